"""Which criteria cannot hold together on given data, and by how much one must fail.

With base rates p = P(Y = 1 | A), selection rates q, true and false positive rates t and
f, and v = P(Y = 1 | D = 1), w = P(Y = 1 | D = 0) in each group, counting gives

    q = t·p + f·(1 − p)              p = v·q + w·(1 − q)
    (1 − v)·t·p = v·f·(1 − p)        (1 − w)·(1 − t)·p = w·(1 − f)·(1 − p)

Subtracting each line for two groups a and b shows that if no metric of two criteria
differs by more than g, then, Δ being the difference of the base rates,

    independence and separation    2g ≥ Δ·|t − f|
    independence and sufficiency   (1 + |v − w|)·g ≥ Δ
    separation and sufficiency     2g ≥ Δ·(v·f + (1 − v)·t)
                                   2g ≥ Δ·(w·(1 − f) + (1 − w)·(1 − t))

with t, f, v, w of either group. So both hold only if base rates are equal, decisions
say nothing about the truth (first line), or are always right or always wrong (third).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from certus.fairness.cells import Share
from certus.fairness.gaps import floor
from certus.fairness.groups import (
    are_scores,
    classes_of,
    groups_of,
    labels_of,
    same_length,
    weights_of,
)
from certus.fairness.table import GroupTable, make_table, words
from certus.results import TableResult
from certus.typing import Array, ArrayLike, MatrixLike
from certus.wording import plain

_RATES = (
    "base_rate",
    "selection_rate",
    "true_positive_rate",
    "false_positive_rate",
    "positive_share_if_chosen",
    "positive_share_if_not_chosen",
)
_PAIRS = (
    ("independence", "separation"),
    ("independence", "sufficiency"),
    ("separation", "sufficiency"),
)


class Conflict(NamedTuple):
    """Two criteria that conflict, and by how much one must fail.

    Attributes
    ----------
    first, second : str
        The criteria.
    observed : float
        In the sample, some metric of the two differs between groups by at least this.
    least : float
        For new rows, some metric of the two differs by at least this, with probability
        1 − delta; NaN where there is no guarantee.
    groups : tuple
        The two groups that show it.

    Examples
    --------
    >>> from certus.fairness import exclusivity
    >>> y, group = [1] * 80 + [0] * 20 + [1] * 20 + [0] * 80, ["a"] * 100 + ["b"] * 100
    >>> conflict = exclusivity(y, y, group).conflicts[1]
    >>> conflict.first, conflict.second, round(conflict.observed, 2)
    ('independence', 'sufficiency', 0.3)
    """

    first: str
    second: str
    observed: float
    least: float
    groups: tuple[Any, ...]

    @property
    def verdict(self) -> str:
        """The finding in words."""
        both = f"{self.first} and {self.second}"
        if self.least > 0:
            return (
                f"{both} cannot both hold: at least one is off by {floor(self.least)} "
                "or more"
            )
        if self.observed > 0:
            seen = f"in this sample, at least one is off by {floor(self.observed)}"
            if math.isnan(self.least):
                return f"{both}: {seen}; no promise for new rows"
            return f"{both}: {seen}; too few rows to say the same about new rows"
        return f"{both} may both hold"


@dataclass(frozen=True, eq=False)
class Exclusivity(TableResult):
    """Which criteria exclude each other on some data.

    Attributes
    ----------
    conflicts : tuple of Conflict
        One for each two of independence, separation and sufficiency.
    rates : GroupTable
        The rates they follow from: base rates first. All intervals hold together.

    Examples
    --------
    >>> from certus.fairness import exclusivity
    >>> y, group = [1] * 80 + [0] * 20 + [1] * 20 + [0] * 80, ["a"] * 100 + ["b"] * 100
    >>> exclusivity(y, y, group).rates["base_rate"]
    {'a': 0.8, 'b': 0.2}
    """

    conflicts: tuple[Conflict, ...]
    rates: GroupTable

    @property
    def verdict(self) -> str:
        """Whether the criteria can hold together, in words."""
        gap = self.rates.gap("base_rate")
        if math.isnan(gap.difference):
            return "there is only one group, so no criteria exclude each other"
        if gap.low > 0:
            return (
                f"base rates differ by at least {floor(gap.low)} between groups: not "
                "all criteria can hold"
            )
        return (
            f"base rates differ by {gap.difference:.3g} here; they may not differ on "
            "new rows"
        )

    def to_dict(self) -> dict[str, Any]:
        """The findings as JSON-ready data."""
        return {
            "verdict": self.verdict,
            "conflicts": [
                plain(c._asdict() | {"verdict": c.verdict}) for c in self.conflicts
            ],
            "rates": self.rates.to_dict(),
        }

    def __str__(self) -> str:
        lines = [self.verdict]
        for group, rate in self.rates["base_rate"].items():
            lines.append(f"  base rate of {words(group)}: {rate:.3f}")
        return "\n".join([*lines, *(f"  {c.verdict}" for c in self.conflicts)])

    def __repr__(self) -> str:  # the prompt shows the text; the data are in to_dict()
        return str(self)

    def _columns(self) -> Mapping[str, Any]:
        names = (*Conflict._fields, "verdict")
        return {n: [str(getattr(c, n)) for c in self.conflicts] for n in names}


def exclusivity(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sensitive: MatrixLike,
    *,
    positive: Any = None,
    sample_weight: ArrayLike | None = None,
    delta: float = 0.05,
) -> Exclusivity:
    """Which criteria cannot hold together on these data, and by how much.

    Where base rates differ, no decision that says anything about the truth and errs
    can have independence and separation, or separation and sufficiency; and none at
    all independence and sufficiency. The bound on what one of the two must miss holds
    for the decisions given; see the module for the inequalities.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Truths and decisions.
    sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The attribute, or several.
    positive : label, optional
        The decision that counts as chosen; of two, the larger by default.
    sample_weight : array-like of shape (n_samples,), optional
        Row weights. Nothing is promised about new rows then.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. The statement
        is that all claims about new rows hold.

    Returns
    -------
    Exclusivity

    Examples
    --------
    >>> from certus.fairness import exclusivity
    >>> y = [1] * 600 + [0] * 400 + [1] * 200 + [0] * 800
    >>> d = [1] * 500 + [0] * 400 + [1] * 100 + [1] * 200 + [0] * 800
    >>> print(exclusivity(y, d, ["a"] * 1000 + ["b"] * 1000))
    base rates differ by at least 0.316 between groups: not all criteria can hold
      base rate of a: 0.600
      base rate of b: 0.200
      independence and separation cannot both hold: at least one is off by
      0.152 or more
      independence and sufficiency cannot both hold: at least one is off by
      0.187 or more
      separation and sufficiency cannot both hold: at least one is off by
      0.0419 or more
    """
    if are_scores(y_pred, None):
        raise ValueError(
            "y_pred must hold decisions, got scores. Pass y_pred > t with your "
            "decision threshold t."
        )
    truth, chosen = labels_of("y_true", y_true), labels_of("y_pred", y_pred)
    n = same_length(y_true=truth, y_pred=chosen)
    groups, weights = groups_of(sensitive, n), weights_of(sample_weight, n)
    classes = classes_of(positive, y_true=truth, y_pred=chosen)
    if len(classes) > 1:
        raise ValueError(
            f"There are {len(classes)} labels; pass positive= to say which one counts "
            "as the positive decision."
        )
    y, d, every = truth == classes[0], chosen == classes[0], np.ones(n, dtype=bool)
    asked = ((y, every), (d, every), (d, y), (d, ~y), (y, d), (y, ~d))
    rates = make_table(
        "equality of rates",
        [Share(name, *what, weights) for name, what in zip(_RATES, asked)],
        groups,
        delta,
        0.0,
        weighted=weights is not None,
    )
    seen, low, high = rates.values, rates.low, rates.high
    found = [_least(seen, seen, a, b) for a, b in permutations(range(seen.shape[1]), 2)]
    sure = [_least(low, high, a, b) for a, b in permutations(range(seen.shape[1]), 2)]
    pairs = list(permutations(rates.groups, 2))
    conflicts = []
    for k, (first, second) in enumerate(_PAIRS):
        here = np.array([each[k] for each in found])
        there = np.array([each[k] for each in sure])
        promised = _most(there)
        best = there if promised > 0 else here
        show = pairs[int(np.nanargmax(best))] if not np.isnan(best).all() else ()
        conflicts.append(Conflict(first, second, _most(here), promised, show))
    return Exclusivity(tuple(conflicts), rates)


def _most(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else math.nan


def _least(low: Array, high: Array, a: int, b: int) -> tuple[float, float, float]:
    """What each pair of criteria must miss by; from the ends of intervals, at least.

    Base rates of the groups a and b, the other rates those of b.
    """
    apart = max(low[0, a] - high[0, b], low[0, b] - high[0, a], 0.0)
    (t, f, v, w), (T, F, V, W) = low[2:, b], high[2:, b]
    informed = max(t - F, f - T, 0.0)
    telling = max(abs(V - w), abs(W - v))
    # v·f + (1 − v)·t is linear in each rate, hence least at a corner; so is the other.
    chosen = min(x * y + (1 - x) * z for x in (v, V) for y in (f, F) for z in (t, T))
    others = min(
        x * (1 - y) + (1 - x) * (1 - z)
        for x in (w, W) for y in (f, F) for z in (t, T)
    )  # fmt: skip
    both = np.fmax(
        chosen, others
    )  # one is enough where nobody, or everybody, is chosen
    return apart * informed / 2, apart / (1 + telling), apart * float(both) / 2
