"""How far a metric is from equal across groups, and whether the data decide it.

The largest true value is at least every lower end, the smallest at most every upper
end; so the difference lies between numbers that follow from the intervals of the cells.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.fairness.cells import Cells, GroupPairs
from certus.fairness.groups import Groups
from certus.typing import Array

_MOST = 1e7  # largest number of rows that is worth stating


class GroupGap(NamedTuple):
    """How far a metric is from what the criterion asks.

    Attributes
    ----------
    metric : str
    difference : float
        Largest less smallest value; of distributions, the largest distance between two;
        of errors of calibration, the largest error. NaN where nothing was compared.
    ratio : float
        Smallest over largest value, of rates; otherwise NaN.
    low, high : float
        Ends of the interval for the difference on new rows; NaN without a guarantee.
    ratio_low, ratio_high : float
        The same of the ratio.
    largest, smallest : object
        The groups; ``smallest`` is None for errors of calibration.
    tolerance : float
        Differences up to it count as none.
    rows : int or None
        If these are too few: about how many would settle it, were the values to stay.

    Examples
    --------
    >>> from certus.fairness import independence
    >>> chosen = [1] * 30 + [0] * 70 + [1] * 20 + [0] * 80
    >>> gap = independence(chosen, ["a"] * 100 + ["b"] * 100).gap("selection_rate")
    >>> round(gap.difference, 3), gap.largest, gap.finding
    (0.1, 'a', 'unknown')
    >>> gap.verdict
    'too few rows to say (about 3,400 needed)'
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
    tolerance: float
    rows: int | None

    @property
    def finding(self) -> str:
        """``"gap"``, ``"none"``, ``"unknown"``, or ``"unstated"`` without interval."""
        if math.isnan(self.low):
            return "unstated"
        if self.low > self.tolerance:
            return "gap"
        return "none" if self.high <= self.tolerance else "unknown"

    @property
    def verdict(self) -> str:
        """The finding in words."""
        if self.finding == "gap":
            return f"differ by at least {floor(self.low)}"
        if self.finding == "none":
            return f"no difference above {self.tolerance:g}"
        if self.finding == "unknown":
            return "too few rows to say" + would_do(self.rows)
        if math.isnan(self.difference):
            return "nothing to compare"
        return f"{self.difference:.3g} observed, no promise"


def make_gap(row: Cells, groups: Groups, tolerance: float) -> GroupGap:
    """The largest of a metric's differences."""
    pairs = row.pairs
    known = np.flatnonzero(~np.isnan(pairs.seen))
    if not len(known):
        ends = (*_ends(pairs), math.nan, math.nan)
        return GroupGap(
            row.metric, math.nan, math.nan, *ends, None, None, tolerance, None
        )
    top = known[np.argmax(pairs.seen[known])]
    first, second = int(pairs.first[top]), int(pairs.second[top])
    ratio = (math.nan,) * 3
    if row.is_rate:
        ratio = _ratio(row.values[~np.isnan(row.values)], row.low, row.high)
    low, high = _ends(pairs)
    return GroupGap(
        row.metric,
        float(pairs.seen[top]),
        ratio[0],
        low,
        high,
        *ratio[1:],
        groups.labels[first],
        None if second < 0 else groups.labels[second],
        tolerance,
        _rows_needed(pairs, tolerance, int(groups.counts.sum())),
    )


def _ends(pairs: GroupPairs) -> tuple[float, float]:
    """The interval of the largest difference."""
    if not len(pairs.low) or np.isnan(pairs.low).any():
        return math.nan, math.nan
    return max(0.0, float(pairs.low.max())), float(pairs.high.max())


def _ratio(values: Array, low: Array, high: Array) -> tuple[float, float, float]:
    """Smallest over largest value, and its interval; 1 where all are zero."""
    ratio = float(values.min() / values.max()) if values.max() > 0 else 1.0
    if np.isnan(low).any():
        return ratio, math.nan, math.nan
    least, most = np.meshgrid(low, high, indexing="ij")
    others = (most > 0) & ~np.eye(len(low), dtype=bool)
    worst = float((least[others] / most[others]).min(initial=1.0))
    best = min(1.0, float(high.min() / low.max())) if low.max() > 0 else 1.0
    return ratio, worst, best


def _rows_needed(pairs: GroupPairs, tolerance: float, n: int) -> int | None:
    """About how many rows would settle it: intervals shrink as one over the root.

    Were the values to stay, m times the rows leave each end at 1/√m of its distance.
    """
    if np.isnan(pairs.low).any() or np.isnan(pairs.seen).any():
        return None

    def settled(m: float) -> bool:
        part = 1 / math.sqrt(m)
        low = (pairs.seen - part * (pairs.seen - pairs.low)).max()
        high = (pairs.seen + part * (pairs.high - pairs.seen)).max()
        return bool(low > tolerance or high <= tolerance)

    most = _MOST / n
    if settled(1.0) or most <= 1 or not settled(most):
        return None
    few, enough = 1.0, most
    while enough > 1.01 * few:
        middle = math.sqrt(few * enough)
        few, enough = (few, middle) if settled(middle) else (middle, enough)
    size = 10 ** max(0, math.floor(math.log10(enough * n)) - 1)
    return int(math.ceil(enough * n / size) * size)


def floor(value: float) -> str:
    """Three digits, rounded down: "at least" must stay true."""
    if value <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    # Dividing may land just below a whole number that the value stands for.
    return f"{math.floor(value / step + 1e-9) * step:.3g}"


def would_do(rows: int | None) -> str:
    """How many rows would settle it, in words."""
    return "" if rows is None else f" (about {rows:,} needed)"
