"""Metrics by group in one table, with intervals that hold for all cells at once.

A metric is the share of rows with some outcome among the rows of a group that meet a
condition. Its interval is that of Clopper and Pearson; the failure probability is
shared out over all cells, so that whatever is read off the table (a difference, the
largest of several) holds with probability 1 − delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from certus.bounds import clopper_pearson

Array = np.ndarray


class Gap(NamedTuple):
    """How far a metric is from equal across groups.

    Attributes
    ----------
    metric : str
    difference, ratio : float
        Largest less smallest value, and smallest over largest; NaN where fewer than
        two groups have a value.
    low, high : float
        Between these the difference lies for new rows.
    ratio_low, ratio_high : float
        The same of the ratio.
    largest, smallest : object
        The groups.
    """

    metric: str
    difference: float
    ratio: float
    low: float
    high: float
    ratio_low: float
    ratio_high: float
    largest: Any
    smallest: Any

    def verdict(self, tolerance: float) -> str:
        """Whether the difference exceeds the tolerance: a gap, no gap, or unknown."""
        if self.low > tolerance:
            return f"a gap of at least {self.low:.3g}"
        if self.high <= tolerance:
            return f"no gap above {tolerance:g}"
        return "too few rows to say"


@dataclass(frozen=True)
class GroupTable:
    """Metrics × groups.

    Attributes
    ----------
    criterion : str
        Which criterion the metrics belong to.
    groups : tuple
        Values of the attribute; tuples of values where there are several attributes.
    counts : ndarray of shape (n_groups,)
        Rows of each group.
    metrics : tuple of str
    values, low, high : ndarray of shape (n_metrics, n_groups)
        Each metric in each group and its interval; NaN and [0, 1] where no row meets
        the condition.
    sizes : ndarray of shape (n_metrics, n_groups)
        Rows each value was counted on.
    delta : float
        Probability that any interval of the table is wrong.
    tolerance : float
        Differences up to it count as none.
    """

    criterion: str
    groups: tuple[Any, ...]
    counts: Array
    metrics: tuple[str, ...]
    values: Array
    low: Array
    high: Array
    sizes: Array
    delta: float
    tolerance: float

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """One for each metric."""
        return tuple(self._gap(i) for i in range(len(self.metrics)))

    @property
    def difference(self) -> float:
        """The largest difference between two groups in any metric."""
        return float(np.nanmax([gap.difference for gap in self.gaps]))

    @property
    def ratio(self) -> float:
        """The smallest ratio between two groups in any metric."""
        return float(np.nanmin([gap.ratio for gap in self.gaps]))

    @property
    def verdict(self) -> str:
        """What can be said of the criterion as a whole."""
        said = [gap.verdict(self.tolerance) for gap in self.gaps]
        gaps = [gap.low for gap in self.gaps if gap.low > self.tolerance]
        if gaps:
            return f"{self.criterion} does not hold: a gap of at least {max(gaps):.3g}"
        if any(text.startswith("too few") for text in said):
            return f"too few rows to say whether {self.criterion} holds"
        return f"{self.criterion} holds up to {self.tolerance:g}"

    def __getitem__(self, metric: str) -> dict[Any, float]:
        """The values of a metric by group."""
        if metric not in self.metrics:
            raise KeyError(f"{metric!r} is not among {', '.join(self.metrics)}.")
        row = self.values[self.metrics.index(metric)]
        return {group: float(value) for group, value in zip(self.groups, row)}

    def _gap(self, i: int) -> Gap:
        v, low, high = self.values[i], self.low[i], self.high[i]
        known = np.flatnonzero(np.isfinite(v))
        if len(known) < 2:
            ends = (0.0, 1.0, 0.0, 1.0)
            return Gap(self.metrics[i], math.nan, math.nan, *ends, None, None)
        top, bottom = known[np.argmax(v[known])], known[np.argmin(v[known])]
        # The largest true value is at least every lower end and at most the largest
        # upper end; likewise the smallest.
        least = max(0.0, float(low.max() - high.min()))
        most = float(high.max() - low.min())
        worst = float(low.min() / high.max()) if high.max() > 0 else 1.0
        best = min(1.0, float(high.min() / low.max())) if low.max() > 0 else 1.0
        ratio = float(v[bottom] / v[top]) if v[top] > 0 else 1.0
        return Gap(
            self.metrics[i],
            float(v[top] - v[bottom]),
            ratio,
            least,
            most,
            worst,
            best,
            self.groups[top],
            self.groups[bottom],
        )

    def __str__(self) -> str:
        width = max(len(name) for name in self.metrics)
        lines = [self.verdict]
        for gap, row, low, high in zip(self.gaps, self.values, self.low, self.high):
            lines.append(f"  {gap.metric:{width}}  {gap.verdict(self.tolerance)}")
            for group, n, v, a, b in zip(self.groups, self.counts, row, low, high):
                name = _words(group)
                lines.append(f"    {name}: {v:.3f} ({a:.3f} to {b:.3f}), {n:,} rows")
        return "\n".join(lines)


def _words(group: Any) -> str:
    return ", ".join(map(str, group)) if isinstance(group, tuple) else str(group)


class Count(NamedTuple):
    """A metric: rows with an outcome among those that meet a condition."""

    metric: str
    outcome: Array
    condition: Array


def make_table(
    criterion: str,
    counts: list[Count],
    labels: tuple[Any, ...],
    members: Array,
    delta: float,
    tolerance: float,
) -> GroupTable:
    """The table of some metrics; ``members`` numbers the group of each row."""
    shape = len(counts), len(labels)
    hits, sizes = np.zeros(shape, dtype=int), np.zeros(shape, dtype=int)
    for i, count in enumerate(counts):
        among = members[count.condition]
        sizes[i] = np.bincount(among, minlength=len(labels))
        chosen = members[count.condition & count.outcome]
        hits[i] = np.bincount(chosen, minlength=len(labels))
    values, low, high = np.full(shape, np.nan), np.zeros(shape), np.ones(shape)
    for cell in zip(*np.nonzero(sizes)):
        each = clopper_pearson(
            int(hits[cell]), int(sizes[cell]), delta, models=hits.size
        )
        values[cell], low[cell], high[cell] = each.value, each.low, each.high
    return GroupTable(
        criterion,
        labels,
        np.bincount(members, minlength=len(labels)),
        tuple(count.metric for count in counts),
        values,
        low,
        high,
        sizes,
        delta,
        tolerance,
    )
