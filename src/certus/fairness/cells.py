"""Metrics by group with intervals: shares, means, distributions, errors of calibration.

Each metric says how many events may go wrong in a group (``events``); the failure
probability of a table is shared out over all of them, so that all intervals hold
together. The kind of metric and the number of rows decide which interval is stated, not
the outcomes. Whether scores lie in [0, 1] is seen from the scores, and stated:

    a share of rows        Clopper–Pearson
    a mean in [0, 1]       empirical Bernstein (few rows: Hoeffding)
    a distribution         Dvoretzky, Kiefer, Wolfowitz, with Massart's constant:
                           sup |F̂ − F| ≤ √(ln(2/δ)/2n)
    an error of a bin      Clopper–Pearson less Hoeffding's for the mean score
    the expected error     McDiarmid's; see :class:`ExpectedError`
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from certus.bounds import bounded_mean, clopper_pearson, hoeffding
from certus.fairness.groups import Groups
from certus.typing import Array


class GroupPairs(NamedTuple):
    """Observed differences between groups, and the ends of their intervals.

    ``first`` and ``second`` number the groups; −1 stands for zero, what is asked for.
    A negative lower end means that the difference may be zero.
    """

    seen: Array
    low: Array
    high: Array
    first: Array
    second: Array


class Cells(NamedTuple):
    """One metric in every group."""

    metric: str
    values: Array
    low: Array
    high: Array
    sizes: Array
    pairs: GroupPairs
    is_rate: bool  # ratios of it mean something


class GroupMetric(Protocol):
    """A metric that can be measured in every group."""

    @property
    def metric(self) -> str:
        """Its name."""

    @property
    def events(self) -> int:
        """In each group, how many events may make an interval wrong."""

    def measure(self, groups: Groups, delta: float, models: int) -> Cells:
        """Values and intervals; ``delta`` is shared by ``models`` events."""


@dataclass(frozen=True)
class Share:
    """The share of rows with some outcome among those that meet a condition."""

    metric: str
    outcome: Array
    condition: Array
    weights: Array | None = None
    events: int = 1

    def measure(self, groups: Groups, delta: float, models: int) -> Cells:
        """Exact binomial intervals."""
        members, k = groups.members[self.condition], len(groups.labels)
        hits = self.outcome[self.condition]
        sizes = np.bincount(members, minlength=k)
        w = None if self.weights is None else self.weights[self.condition]
        if w is None:
            counts = np.bincount(members[hits], minlength=k)
            values = _divide(counts, sizes)
        else:
            above = np.bincount(members, w * hits, minlength=k)
            values = _divide(above, np.bincount(members, w, minlength=k))
        low, high = _unknown(k, 0.0, 1.0, w)
        for a in np.flatnonzero(sizes) if w is None else ():
            found = clopper_pearson(int(counts[a]), int(sizes[a]), delta, models=models)
            low[a], high[a] = found.low, found.high
        return _spread(self.metric, values, low, high, sizes, is_rate=True)


@dataclass(frozen=True)
class Mean:
    """The mean score; an interval only where scores lie in [0, 1]."""

    metric: str
    scores: Array
    condition: Array
    weights: Array | None = None
    bounded: bool = True

    @property
    def events(self) -> int:
        """Zero events for scores without bounds: then there is no interval."""
        return int(self.bounded)

    def measure(self, groups: Groups, delta: float, models: int) -> Cells:
        """Intervals for the mean of a bounded number."""
        members, k = groups.members[self.condition], len(groups.labels)
        scores = self.scores[self.condition]
        sizes = np.bincount(members, minlength=k)
        w = None if self.weights is None else self.weights[self.condition]
        scale = float(np.abs(scores).max(initial=0.0)) or 1.0  # sums must not overflow
        one = np.ones(len(scores)) if w is None else w
        values = scale * _divide(
            np.bincount(members, one * (scores / scale), minlength=k),
            np.bincount(members, one, minlength=k),
        )
        low, high = _unknown(k, 0.0, 1.0, w)
        if not self.bounded:
            low[:], high[:] = np.nan, np.nan
        for a in np.flatnonzero(sizes) if w is None and self.bounded else ():
            found = bounded_mean(scores[members == a], delta, models=models)
            low[a], high[a] = found.low, found.high
        return _spread(self.metric, values, low, high, sizes, is_rate=self.bounded)


@dataclass(frozen=True)
class Distribution:
    """How much the scores of groups differ: Kolmogorov and Smirnov's distance.

    The value of a group is its distance to the group most unlike it.
    """

    metric: str
    scores: Array
    condition: Array
    weights: Array | None = None
    events: int = 1

    def measure(self, groups: Groups, delta: float, models: int) -> Cells:
        """Distances of all pairs, with the bands of both distributions."""
        members, k = groups.members[self.condition], len(groups.labels)
        scores = self.scores[self.condition]
        sizes = np.bincount(members, minlength=k)
        steps = [
            _steps(scores, members == a, self.weights, self.condition) for a in range(k)
        ]
        band = np.array([hoeffding(int(n), delta, models=models) if n else 1.0
                         for n in sizes])  # fmt: skip
        first, second = np.triu_indices(k, 1)
        seen = np.array([_distance(steps[a], steps[b]) for a, b in zip(first, second)])
        reach = band[first] + band[second]
        if self.weights is not None:
            reach = np.full(len(seen), np.nan)
        low, high = seen - reach, np.minimum(seen + reach, 1.0)
        nothing = np.isnan(seen)
        if self.weights is None:
            low[nothing], high[nothing] = 0.0, 1.0
        pairs = GroupPairs(seen, low, high, first, second)
        each = [(first == a) | (second == a) for a in range(k)]
        values, least, most = (
            np.array([_largest(part[rows]) for rows in each])
            for part in (seen, np.maximum(low, 0.0), high)
        )
        return Cells(self.metric, values, least, most, sizes, pairs, False)


@dataclass(frozen=True)
class BinError:
    """Share of positive truths less mean score, among the rows of a bin."""

    metric: str
    truth: Array
    scores: Array
    condition: Array
    width: float  # of the bin
    weights: Array | None = None
    events: int = 2

    def measure(self, groups: Groups, delta: float, models: int) -> Cells:
        """One interval for the share, one for the mean score."""
        w, where = self.weights, self.condition
        rate = Share("", self.truth, where, w).measure(groups, delta, models)
        mean = Mean("", self.scores, where, w, False).measure(groups, delta, models)
        values = rate.values - mean.values
        half = np.array([
            hoeffding(int(n), delta, high=self.width, models=models) if n else 1.0
            for n in rate.sizes
        ])  # fmt: skip
        known = rate.sizes > 0
        low = np.where(known, rate.low - mean.values - half, rate.low - 1.0)
        high = np.where(known, rate.high - mean.values + half, rate.high)
        return _from_zero(
            self.metric,
            values,
            np.maximum(low, -1.0),
            np.minimum(high, 1.0),
            rate.sizes,
        )


@dataclass(frozen=True)
class ExpectedError:
    """Σ over bins of P(bin)·|share of positive truths − mean score|.

    One row changes the estimate by at most 2/n, so it is within t = √(2 ln(2/δ)/n) of
    its mean (McDiarmid). The mean is not below the truth, by Jensen's inequality, and
    not above it by more than √(bins/n), by that of Cauchy and Schwarz.
    """

    metric: str
    truth: Array
    scores: Array
    place: Array  # the bin of each row
    bins: int
    weights: Array | None = None
    events: int = 1

    def measure(self, groups: Groups, delta: float, models: int) -> Cells:
        """The estimate and its interval."""
        k, members = len(groups.labels), groups.members
        one = np.ones(len(members)) if self.weights is None else self.weights
        error = np.bincount(
            members * self.bins + self.place,
            one * (self.truth - self.scores),
            minlength=k * self.bins,
        ).reshape(k, self.bins)
        total = np.bincount(members, one, minlength=k)
        values = _divide(np.abs(error).sum(axis=1), total)
        low, high = _unknown(k, 0.0, 1.0, self.weights)
        for a, n in enumerate(groups.counts if self.weights is None else ()):
            t = 2 * hoeffding(int(n), delta, models=models)
            low[a] = values[a] - t - math.sqrt(self.bins / n)
            high[a] = min(1.0, values[a] + t)
        ends = np.maximum(low, 0.0), high
        found = _from_zero(self.metric, values, *ends, groups.counts)
        return found._replace(pairs=found.pairs._replace(low=low))


def _divide(above: Array, below: Array) -> Array:
    """The quotient, NaN where there is nothing to divide by."""
    return np.divide(
        above, below, out=np.full(len(below), np.nan), where=np.asarray(below) > 0
    )


def _unknown(k: int, low: float, high: float, w: Array | None) -> tuple[Array, Array]:
    """Ends for a group without rows; no ends at all where rows are weighted."""
    if w is not None:
        return np.full(k, np.nan), np.full(k, np.nan)
    return np.full(k, low), np.full(k, high)


def _largest(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else math.nan


def _spread(
    metric: str, values: Array, low: Array, high: Array, sizes: Array, is_rate: bool
) -> Cells:
    """A metric that should be equal: pairs of groups are compared."""
    a, b = np.triu_indices(len(values), 1)
    swap = np.nan_to_num(values[a]) < np.nan_to_num(values[b])
    a, b = np.where(swap, b, a), np.where(swap, a, b)
    least = np.maximum(low[a] - high[b], low[b] - high[a])
    most = np.maximum(high[a] - low[b], high[b] - low[a])
    with np.errstate(over="ignore"):  # scores of either sign may be as far apart
        seen = values[a] - values[b]
    pairs = GroupPairs(seen, least, most, a, b)
    return Cells(metric, values, low, high, sizes, pairs, is_rate)


def _from_zero(
    metric: str, values: Array, low: Array, high: Array, sizes: Array
) -> Cells:
    """A metric that should be zero in each group."""
    least = np.maximum(low, -high)
    most = np.maximum(np.abs(low), np.abs(high))
    each = np.arange(len(values))
    pairs = GroupPairs(np.abs(values), least, most, each, np.full(len(values), -1))
    return Cells(metric, values, low, high, sizes, pairs, False)


def _steps(
    scores: Array, mine: Array, weights: Array | None, condition: Array
) -> tuple[Array, Array]:
    """Where a group's distribution function steps, and its value after each step."""
    w = np.ones(len(scores)) if weights is None else weights[condition]
    order = np.argsort(scores[mine], kind="stable")
    height = np.cumsum(w[mine][order])
    if not len(height) or height[-1] <= 0:
        return np.empty(0), np.empty(0)
    x = scores[mine][order]
    last = np.append(x[1:] != x[:-1], True)
    return x[last], height[last] / height[-1]


def _distance(one: tuple[Array, Array], other: tuple[Array, Array]) -> float:
    """The largest difference between two distribution functions."""
    if not len(one[0]) or not len(other[0]):
        return math.nan
    worst = 0.0
    for (x, h), (z, other_h) in ((one, other), (other, one)):
        there = np.append(0.0, other_h)[np.searchsorted(z, x, side="right")]
        worst = max(worst, float(np.abs(h - there).max()))
    return worst
