"""Metrics by group in one table, with intervals that hold for all cells at once.

Everything that you read from the table (a difference, the largest of several) holds
with probability 1 − delta. A criterion holds, does not hold, or there are too few rows
to decide; then the table says about how many rows would be enough.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.bounds.intervals import check_delta
from certus.fairness.cells import GroupMetric
from certus.fairness.gaps import GroupGap, floor, make_gap, would_do
from certus.fairness.groups import Groups
from certus.results import TableResult
from certus.typing import Array
from certus.wording import plain, shorten


@dataclass(frozen=True, eq=False)
class GroupTable(TableResult):
    """Metrics × groups, with intervals and gaps.

    Attributes
    ----------
    criterion : str
        Which criterion the metrics belong to.
    groups : tuple
        Values of the attribute, tuples of values where there are several attributes;
        None where the value is missing.
    attributes : tuple of str
        Names of the attributes, if they have any.
    counts : ndarray of shape (n_groups,)
        Rows of each group.
    metrics : tuple of str
    values, low, high : ndarray of shape (n_metrics, n_groups)
        Each metric in each group and its interval. No row to count: NaN and the widest
        interval. No interval: NaN.
    sizes : ndarray of shape (n_metrics, n_groups)
        Rows each value was counted on.
    gaps : tuple of GroupGap
        One for each metric.
    decisive : tuple of str
        Metrics that must be within the tolerance for the criterion to hold.
    edges : ndarray
        Ends of the bins of the scores; empty if there are none.
    delta : float
        Probability that any interval of the table is wrong.
    tolerance : float
        Differences up to it count as none.
    notes : tuple of str
        What intervals rest on, or why there are none.

    Examples
    --------
    >>> from certus.fairness import independence
    >>> chosen = [1] * 60 + [0] * 40 + [1] * 20 + [0] * 80
    >>> print(independence(chosen, ["a"] * 100 + ["b"] * 100))
    independence does not hold: groups differ by at least 0.177
      selection_rate: differ by at least 0.177
        a  0.600 (0.483 to 0.709)  100 rows
        b  0.200 (0.118 to 0.305)  100 rows
      all intervals hold together with probability 95 %, for rows drawn independently
    """

    criterion: str
    groups: tuple[Any, ...]
    attributes: tuple[str, ...]
    counts: Array
    metrics: tuple[str, ...]
    values: Array
    low: Array
    high: Array
    sizes: Array
    gaps: tuple[GroupGap, ...]
    decisive: tuple[str, ...]
    edges: Array
    delta: float
    tolerance: float
    notes: tuple[str, ...]

    @property
    def difference(self) -> float:
        """The largest difference of a decisive metric; NaN if nothing was compared."""
        known = [g.difference for g in self._judged if not math.isnan(g.difference)]
        return max(known, default=math.nan)

    @property
    def ratio(self) -> float:
        """The smallest ratio of a decisive metric; NaN if there is none."""
        known = [g.ratio for g in self._judged if not math.isnan(g.ratio)]
        return min(known, default=math.nan)

    @property
    def holds(self) -> bool | None:
        """Whether the criterion holds up to the tolerance; None if this is unknown."""
        if any(gap.finding == "gap" for gap in self.gaps):
            return False
        judged = self._judged
        return True if judged and all(g.finding == "none" for g in judged) else None

    @property
    def verdict(self) -> str:
        """The finding about the criterion as a whole, in words."""
        name = self.criterion
        if all(math.isnan(gap.difference) for gap in self.gaps):
            if len(self.groups) == 1:
                return f"there is only one group, so {name} has nothing to compare"
            return f"fewer than two groups have rows that {name} can compare"
        if self.holds is False:
            most = max(g.low for g in self.gaps if g.finding == "gap")
            return f"{name} does not hold: groups differ by at least {floor(most)}"
        if self.holds:
            return f"{name} holds up to {self.tolerance:g}"
        judged = self._judged
        if any(gap.finding == "unstated" for gap in judged):
            return f"{name}: {self.difference:.3g} observed, no promise for new rows"
        unknown = [gap for gap in judged if gap.finding == "unknown"]
        known = [gap.rows for gap in unknown if gap.rows is not None]
        seen = [g.rows for g in unknown if g.rows and g.difference > self.tolerance]
        # One gap settles the matter; without any, all must be settled.
        rows = min(seen) if seen else None
        if not seen and len(known) == len(unknown):
            rows = max(known, default=None)
        return f"too few rows to say whether {name} holds" + would_do(rows)

    @property
    def _judged(self) -> list[GroupGap]:
        return [gap for gap in self.gaps if gap.metric in self.decisive]

    def __getitem__(self, metric: str) -> dict[Any, float]:
        """The values of a metric by group."""
        row = self.values[self._place(metric)]
        return {group: float(value) for group, value in zip(self.groups, row)}

    def gap(self, metric: str) -> GroupGap:
        """The gap of a metric.

        Parameters
        ----------
        metric : str
            One of ``metrics``.
        """
        return self.gaps[self._place(metric)]

    def _place(self, metric: str) -> int:
        if metric not in self.metrics:
            raise KeyError(f"{metric!r} is not among {', '.join(self.metrics)}.")
        return self.metrics.index(metric)

    def to_dict(self) -> dict[str, Any]:
        """The table as JSON-ready data; unknown values are null."""
        names = ("criterion", "groups", "attributes", "counts", "metrics", "values")
        more = ("low", "high", "sizes", "decisive", "edges", "delta", "tolerance")
        found = {name: plain(getattr(self, name)) for name in (*names, *more)}
        gaps = [plain(g._asdict() | {"verdict": g.verdict}) for g in self.gaps]
        said = {"notes": list(self.notes), "holds": self.holds, "verdict": self.verdict}
        return found | {"gaps": gaps} | said

    def _columns(self) -> Mapping[str, Any]:
        """A row for each metric and group."""
        several = isinstance(self.groups[0], tuple)
        parts = [group if several else (group,) for group in self.groups]
        names = self.attributes or tuple(f"group{j}" for j in range(len(parts[0])))
        if not self.attributes and not several:
            names = ("group",)
        taken, free = {"metric", *_FRAMED}, []
        for name in names:
            while name in taken:
                name = f"group_{name}"
            taken.add(name)
            free.append(name)
        k = len(self.metrics)
        columns = {
            name: [None if p[j] is None else str(p[j]) for p in parts] * k
            for j, name in enumerate(free)
        }
        each = {name: getattr(self, name).ravel() for name in _FRAMED}
        return {
            "metric": np.repeat(self.metrics, len(parts)).tolist(),
            **columns,
            **each,
        }

    def plot(self, figure: Any = None) -> Any:
        """Draw each metric by group, with intervals.

        Parameters
        ----------
        figure : matplotlib figure, optional
            Where to draw; a new one by default.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from certus.fairness.figure import draw

        return draw(self, figure)

    def __str__(self) -> str:
        lines = [self.verdict]
        names = [words(group) for group in self.groups]
        width = max(map(len, names))
        for i, gap in enumerate(self.gaps):
            lines.append(f"  {gap.metric}: {gap.verdict}")
            for name, cells in zip(names, self._cells(i)):
                lines.append(f"    {name:{width}}  {cells[0]}{cells[1]}  {cells[2]}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def __repr__(self) -> str:  # the prompt shows the text; the data are in to_dict()
        return str(self)

    def _cells(self, i: int) -> list[tuple[str, str, str]]:
        """Value, interval and rows of each group, in words."""
        found = []
        for v, a, b, n in zip(self.values[i], self.low[i], self.high[i], self.sizes[i]):
            value = "–" if math.isnan(v) else f"{v:.3f}"
            ends = "" if math.isnan(a) else f" ({a:.3f} to {b:.3f})"
            found.append((value, ends, f"{n:,} row{'s' if n != 1 else ''}"))
        return found

    def _table(self) -> Iterable[Sequence[str]]:
        heads = [f"{words(g)} ({n:,} rows)" for g, n in zip(self.groups, self.counts)]
        yield "", *heads, ""
        for i, gap in enumerate(self.gaps):
            yield gap.metric, *(v + ends for v, ends, _ in self._cells(i)), gap.verdict


_FRAMED = ("values", "low", "high", "sizes")


def words(group: Any) -> str:
    """A group as people name it."""
    parts = group if isinstance(group, tuple) else (group,)
    return ", ".join("(missing)" if p is None else shorten(str(p)) for p in parts)


def make_table(
    criterion: str,
    metrics: Sequence[GroupMetric],
    groups: Groups,
    delta: float,
    tolerance: float,
    *,
    decisive: Sequence[str] | None = None,
    edges: Array | None = None,
    weighted: bool = False,
    notes: tuple[str, ...] = (),
) -> GroupTable:
    """The table of some metrics; all must be decisive unless some are named."""
    check_delta(delta)
    if not (isinstance(tolerance, numbers.Real) and 0 <= tolerance < math.inf):
        raise ValueError(
            f"tolerance must be a number of at least 0, got {tolerance!r}."
        )
    events = max(1, sum(metric.events for metric in metrics) * len(groups.labels))
    rows = [metric.measure(groups, delta, events) for metric in metrics]
    promise = (
        f"all intervals hold together with probability {100 * (1 - delta):.4g} %, for "
        "rows drawn independently"
    )
    if weighted:
        promise = "no intervals: they are not available for weighted rows"
    names = tuple(row.metric for row in rows)
    return GroupTable(
        criterion,
        groups.labels,
        groups.attributes,
        groups.counts,
        names,
        np.array([row.values for row in rows]),
        np.array([row.low for row in rows]),
        np.array([row.high for row in rows]),
        np.array([row.sizes for row in rows]),
        tuple(make_gap(row, groups, tolerance) for row in rows),
        names if decisive is None else tuple(decisive),
        np.empty(0) if edges is None else edges,
        float(delta),
        float(tolerance),
        (promise, *notes),
    )
