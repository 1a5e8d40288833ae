"""Capacity curves: how recall of random patterns ends as a memory fills.

Patterns are drawn, stored and recalled; beside the measured curve stand the theory's
curve, where it has one, and the load at which it says that the memory is full.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus import config
from certus.base import check_choice, check_number, generator_of
from certus.bounds import clopper_pearson
from certus.memory import storing
from certus.memory.hopfield import HopfieldNetwork
from certus.memory.limits import (
    HEBB_LIMIT,
    OPTIMAL_LIMIT,
    cover_probability,
    pattern_information,
    willshaw_limits,
)
from certus.memory.willshaw import WillshawMemory
from certus.results import TableResult, new_figure
from certus.typing import Array, RandomState

#: Loads that are tried, by rule.
LOADS = {
    "hebb": (0.05, 0.08, 0.11, 0.138, 0.16, 0.2, 0.25),
    "optimal": (1.0, 1.5, 1.8, 2.0, 2.2, 2.5, 3.0),
    "willshaw": (0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.6),
}
LABELS = {
    "hebb": ("patterns for each unit", "overlap after recall"),
    "optimal": ("points for each weight", "share that can be separated"),
    "willshaw": ("patterns, as a share of n² ln 2/r²", "bits for each synapse"),
}


@dataclass(frozen=True)
class CapacityCurve(TableResult):
    """How well random patterns are recalled, for several loads.

    Attributes
    ----------
    rule : str
        "hebb", "optimal" or "willshaw".
    n_units : int
        Units of the memory.
    loads : ndarray
        Patterns for each unit; with "willshaw" as a share of n² ln 2/r².
    values : ndarray
        What was measured: mean overlap, share of separable dichotomies, or bits of
        information for each synapse.
    low, high : ndarray
        With "optimal" intervals of 95 % each for the share, otherwise the quartiles of
        the trials.
    expected : ndarray
        What the theory says for this size; NaN where it has no formula.
    limit : float
        The load, or with "willshaw" the value, at which the theory says that the
        memory is full.

    Examples
    --------
    >>> from certus.memory import capacity
    >>> curve = capacity(30, rule="optimal", loads=[1.0, 3.0], random_state=0)
    >>> bool(curve.values[0] > 0.9), bool(curve.values[1] < 0.1), curve.limit
    (True, True, 2.0)
    """

    rule: str
    n_units: int
    loads: Array
    values: Array
    low: Array
    high: Array
    expected: Array
    limit: float

    def _columns(self) -> Mapping[str, Array]:
        names = ("loads", "values", "low", "high", "expected")
        return {name: getattr(self, name) for name in names}

    def plot(self, ax: Any = None) -> Any:
        """Draw the curve, its band and the theory; returns the axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; None means a new figure.
        """
        if ax is None:
            ax = new_figure(5.5, 3.6).subplots()
        ax.fill_between(self.loads, self.low, self.high, color="#30638e", alpha=0.2)
        name = f"measured, n = {self.n_units}"
        ax.plot(self.loads, self.values, "o-", color="#30638e", ms=4, label=name)
        if np.isfinite(self.expected).any():
            style = {"color": "#c2452d", "ls": "--", "lw": 1.2}
            ax.plot(self.loads, self.expected, label="theory", **style)
        across = ax.axhline if self.rule == "willshaw" else ax.axvline
        across(self.limit, color="black", lw=0.8, ls=":", label=f"{self.limit:.3g}")
        x, y = LABELS[self.rule]
        ax.set(xlabel=x, ylabel=y, ylim=(0.0, None))
        ax.legend(frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
        return ax


def capacity(
    n_units: int = 200,
    *,
    rule: str = "hebb",
    loads: Sequence[float] | None = None,
    n_trials: int = 20,
    random_state: RandomState = None,
) -> CapacityCurve:
    """Measure how much random patterns a memory holds.

    Parameters
    ----------
    n_units : int, default=200
        Units of the memory.
    rule : {"hebb", "optimal", "willshaw"}, default="hebb"
        "hebb": mean overlap of stored patterns with what is recalled from them.
        "optimal": share of random dichotomies that some weights of a unit realise.
        "willshaw": bits of information retrieved for each synapse.
    loads : sequence of float, optional
        Patterns for each unit; with "willshaw" as a share of n² ln 2/r².
    n_trials : int, default=20
        Draws for each load; with "hebb" and "willshaw" each draw recalls all patterns.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers.

    Returns
    -------
    CapacityCurve

    Examples
    --------
    >>> from certus.memory import capacity
    >>> curve = capacity(100, loads=[0.05, 0.4], n_trials=3, random_state=0)
    >>> bool(curve.values[0] > 0.99), bool(curve.values[1] < 0.6)
    (True, True)
    """
    check_number("n_units", n_units, 2, integer=True)
    check_number("n_trials", n_trials, 1, integer=True)
    check_choice("rule", rule, tuple(LOADS))
    given = LOADS[rule] if loads is None else tuple(loads)
    if not given:
        raise ValueError("loads must hold at least one number.")
    for load in given:
        check_number("each of loads", load, open_low=True)
    rng, n = generator_of(random_state), int(n_units)
    trial = {"hebb": _overlap, "optimal": _separable, "willshaw": _bits}[rule]
    with config.config_context(certify="never"):
        found = np.array(
            [[trial(n, float(a), rng) for _ in range(n_trials)] for a in given]
        )
    low, high = _band(found, rule)
    limit = {"hebb": HEBB_LIMIT, "optimal": OPTIMAL_LIMIT, "willshaw": math.log(2)}
    return CapacityCurve(
        *(rule, n, np.array(given, dtype=float), found.mean(axis=1), low, high),
        np.array([_theory(rule, n, float(load)) for load in given]),
        limit[rule],
    )


def _band(found: Array, rule: str) -> tuple[Array, Array]:
    """Intervals for shares, quartiles for other numbers."""
    if rule == "optimal":
        each = [clopper_pearson(int(row.sum()), len(row)) for row in found]
        return np.array([e.low for e in each]), np.array([e.high for e in each])
    low, high = np.quantile(found, [0.25, 0.75], axis=1)
    return low, high


def _theory(rule: str, n: int, load: float) -> float:
    """What the theory says of a load; NaN without a formula."""
    if rule == "optimal":
        return cover_probability(_count(n, load), n)
    if rule == "willshaw":
        r = int(willshaw_limits(n)["n_ones"])
        s = _stored(n, r, load)
        rate = willshaw_limits(n, r, s)["false_rate"]
        kept = pattern_information(n, r) - _choices(r + rate * (n - r), r)
        return s * max(kept, 0.0) / n**2
    return math.nan


def _count(n: int, load: float) -> int:
    return max(1, round(load * n))


def _overlap(n: int, load: float, rng: np.random.Generator) -> float:
    """Mean overlap of the patterns with what is recalled from them."""
    x = np.where(rng.random((_count(n, load), n)) < 0.5, -1.0, 1.0)
    memory = HopfieldNetwork().fit(x)
    return float((memory.predict(x) * np.where(x > 0, 1, -1)).mean())


def _separable(n: int, load: float, rng: np.random.Generator) -> float:
    """Whether some weights realise random labels of random points: 1 or 0."""
    rows = rng.normal(size=(_count(n, load), n))
    return float(storing.combination(rows) is None)


def _stored(n: int, r: int, load: float) -> int:
    return max(1, round(load * n * n * math.log(2) / r**2))


def _bits(n: int, load: float, rng: np.random.Generator) -> float:
    """Bits of information retrieved for each synapse.

    What is retrieved has r + f ones: it leaves log₂ C(r + f, r) of the bits open.
    """
    r = int(willshaw_limits(n)["n_ones"])
    s = _stored(n, r, load)
    cues, partners = (np.argsort(rng.random((s, n)), axis=1)[:, :r] for _ in range(2))
    X, y = np.zeros((s, n)), np.zeros((s, n))
    np.put_along_axis(X, cues, 1.0, axis=1)
    np.put_along_axis(y, partners, 1.0, axis=1)
    found = WillshawMemory().fit(X, y).predict(X).sum(axis=1)
    open_bits = sum(_choices(float(ones), r) for ones in found)
    return (s * pattern_information(n, r) - open_bits) / n**2


def _choices(ones: float, r: int) -> float:
    """log₂ C(ones, r), also between whole numbers."""
    inner = math.lgamma(ones + 1) - math.lgamma(r + 1) - math.lgamma(ones - r + 1)
    return inner / math.log(2)
