"""The result of a comparison of models: the table, the choice, and the sealed risk.

Plain frozen data; only :func:`certus.compare` makes it. Fold errors are
measured: no unbiased estimate of their variance exists. The statements in ``risk``
come from the verifier, on rows that were sealed before anything was fitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from certus.certificate import Certificate, Claim, Status
from certus.rendering import format_seconds
from certus.results import Result, TableResult, draw_intervals
from certus.selection.halving import PlanStep
from certus.selection.metrics import Metric
from certus.selection.opening import AskedMetric
from certus.selection.splits import Split
from certus.wording import number

__all__ = ["Comparison", "ComparisonRow"]


@dataclass(frozen=True)
class ComparisonRow(Result):
    """One candidate of a comparison: its errors fold by fold, or why there are none.

    Attributes
    ----------
    name : str
        For example ``"kernel ridge (Gaussian)"``.
    kind : {"baseline", "certus", "foreign"}
        The best constant; a model that certus can certify and save; any other.
    model : estimator or None
        Unfitted, as it would be fitted to all training rows if it were chosen; with
        the parameters of the last fold where it was not.
    errors : tuple of float
        The metric on each fold; empty if the candidate was not completed.
    seconds : float
        Time of its fits, choices of parameters and predictions, over all folds.
    gap : float or None
        Value of the primary claim: of the model that was chosen, of the last fold's
        for the others.
    solved : bool or None
        Whether that certificate met its target; None where it promises nothing.
    reason : str
        Why it was skipped or stopped; empty if it is complete.
    grid : tuple of (dict, float)
        Parameters tried and their inner errors, of the last choice that was made.
    predictions : ndarray of shape (n_rows,) or None
        What it predicted for each row while that row's fold was held out; NaN or None
        in rows that no fold held out, such as the sealed ones.
    shares : ndarray of shape (n_rows, n_labels) or None
        The probabilities that it gave to the labels, likewise.
    cut_short : bool
        Whether the time limit stopped one of its fits before its end.
    """

    name: str
    kind: str
    model: Any = None
    errors: tuple[float, ...] = ()
    seconds: float = 0.0
    gap: float | None = None
    solved: bool | None = None
    reason: str = ""
    grid: tuple[tuple[Mapping[str, Any], float], ...] = ()
    predictions: np.ndarray | None = field(default=None, repr=False, compare=False)
    shares: np.ndarray | None = field(default=None, repr=False, compare=False)
    cut_short: bool = False

    @property
    def mean(self) -> float:
        """Mean of the fold errors; NaN if there are none."""
        return sum(self.errors) / len(self.errors) if self.errors else math.nan

    @property
    def deviation(self) -> float:
        """Standard deviation of the fold errors, measured."""
        if len(self.errors) < 2:
            return math.nan
        squares = sum((error - self.mean) ** 2 for error in self.errors)
        return math.sqrt(squares / (len(self.errors) - 1))

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON-ready data, without the predictions."""
        complete = bool(self.errors)
        return {
            "name": self.name,
            "kind": self.kind,
            "class": None if self.model is None else type(self.model).__name__,
            "mean": self.mean if complete else None,
            "sd": self.deviation if len(self.errors) > 1 else None,
            "folds": list(self.errors),
            "strength": "measured",
            "seconds": self.seconds,
            "gap": self.gap,
            "solved": self.solved,
            "reason": self.reason,
            "cut_short": self.cut_short,
            "grid": [{"params": _plain(p), "error": error} for p, error in self.grid],
        }


@dataclass(frozen=True)
class Comparison(TableResult):
    """The result of :func:`certus.compare`.

    Attributes
    ----------
    task : {"regression", "binary", "multiclass"}
        What the target was taken for.
    target : str or None
        Its name, if it had one.
    metric : Metric
        What the candidates were judged by; see :data:`certus.selection.METRICS`.
    positive : label or None
        Of two labels, the one that recall, precision and the like are about.
    notes : tuple of str
        What the inspection of the table found, one sentence each.
    left_out : tuple of str
        Columns that no candidate saw: they determine the target, or name the groups.
    split : Split
        Which rows were sealed, and the folds shared by all candidates.
    rows : tuple of ComparisonRow
        The candidates, skipped ones included, in the order of the table.
    chosen : str
        Name of the certus candidate that is best by the metric, on average over the
        folds; ties go to the earlier one. It is the model in ``model``.
    model : TablePipeline
        The chosen candidate, fitted to all training rows; with ``refit``, to all rows.
    risk : tuple of Claim
        What the sealed rows say about ``judged``; opened once. ``coverage`` is that of
        the intervals or sets of ``model``.
    union : Claim
        Hoeffding's bound over all candidates and folds at once, or why there is none.
    asked : AskedMetric
        What was fixed before the sealed rows were opened: thresholds, bins, bounds.
    status : Status
        SOLVED, TIME_LIMIT or INTERRUPTED: whether all candidates were given their time.
    seconds : float
        Everything together.
    sealed_predictions : ndarray or None
        What ``judged`` predicted for the sealed rows, in the order of ``split.sealed``.
    plan : tuple of PlanStep
        What was run, in turn: name, part of the table, rows learnt from, error,
        seconds, and the outcome; for what was dropped, why.
    """

    task: str
    target: str | None
    metric: Metric
    positive: Any
    notes: tuple[str, ...]
    left_out: tuple[str, ...]
    split: Split
    rows: tuple[ComparisonRow, ...]
    chosen: str
    model: Any
    risk: tuple[Claim, ...]
    union: Claim
    asked: AskedMetric
    status: Status = Status.SOLVED
    seconds: float = 0.0
    sealed_predictions: np.ndarray | None = field(
        default=None, repr=False, compare=False
    )
    plan: tuple[PlanStep, ...] = ()

    def __getitem__(self, name: str) -> ComparisonRow:
        for row in self.rows:
            if row.name == name:
                return row
        have = ", ".join(row.name for row in self.rows)
        raise KeyError(f"no candidate {name!r}; this comparison has: {have}")

    @property
    def complete(self) -> tuple[ComparisonRow, ...]:
        """The rows that have all their fold errors."""
        return tuple(row for row in self.rows if row.errors)

    @property
    def judged(self) -> Any:
        """The model that the sealed rows judged: ``model``, before any refit."""
        return getattr(self.model, "before_", self.model)

    @property
    def refitted(self) -> bool:
        """Whether ``model`` was fitted again to all rows."""
        return hasattr(self.model, "before_")

    @property
    def best(self) -> ComparisonRow:
        """The row of the chosen model."""
        return self[self.chosen]

    @property
    def threshold(self) -> float | None:
        """The error q of ``large_error``.

        The 0.9 quantile of the chosen model's errors on rows that its folds held out.
        """
        return self.asked.far

    @property
    def measure(self) -> str:
        """What was measured, in words."""
        return self.metric.measure

    @property
    def leader(self) -> ComparisonRow:
        """The row that is best by the metric, also of other libraries."""
        loss = self.metric.loss
        return min(self.complete, key=lambda row: loss(row.mean), default=self.best)

    @property
    def certificate(self) -> Certificate:
        """Certificate of ``model``, on the rows that it was fitted to."""
        found: Certificate = self.model.certificate_
        return found

    @property
    def beaten(self) -> bool:
        """Whether a foreign candidate wins by more than the chosen one's deviation."""
        ahead = self._behind(self.leader)
        return self.leader.kind == "foreign" and ahead > self.best.deviation

    @property
    def not_run(self) -> tuple[str, ...]:
        """Candidates that the time limit left no time for."""
        late = "no time left"
        return tuple(row.name for row in self.rows if row.reason.startswith(late))

    def _behind(self, leader: ComparisonRow) -> float:
        """By how much the chosen one is worse than another."""
        return self.metric.loss(self.best.mean) - self.metric.loss(leader.mean)

    @property
    def verdict(self) -> str:
        """One sentence: a foreign win, or that nothing beats the constant; or empty."""
        leader, best = self.leader, self.best
        ahead = self._behind(leader)
        if leader.kind == "foreign" and ahead > 0:
            by = self.show(ahead)
            if self.beaten:
                return (
                    f"{leader.name} is better than every certus model by {by}, more "
                    f"than the variation between folds; the file holds {best.name}."
                )
            return (
                f"{leader.name} was better by {by}, within the variation between "
                "folds; it is in the table, but not in the file."
            )
        if leader.kind == "baseline" and ahead >= 0:
            return f"no model is better than {leader.name} on new rows."
        return ""

    def show(self, error: float) -> str:
        """A value of the metric in its units."""
        return self.metric.show(error)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON-ready data, without model, rows and predictions."""
        return {
            "task": self.task,
            "target": self.target,
            "metric": self.metric.key,
            "better": "more" if self.metric.more else "less",
            "positive": None if self.positive is None else str(self.positive),
            "measure": self.measure,
            "notes": list(self.notes),
            "left_out": list(self.left_out),
            "split": self.split.to_dict(),
            "candidates": [row.to_dict() for row in self.rows],
            "chosen": self.chosen,
            "leader": self.leader.name,
            "verdict": self.verdict,
            "risk": [claim.to_dict() for claim in self.risk],
            "union": self.union.to_dict(),
            "plan": [step.to_dict() for step in self.plan],
            "certificate": self.certificate.to_dict(),
            "refitted": self.refitted,
            "status": self.status.value,
            "seconds": self.seconds,
        }

    def record(self) -> dict[str, Any]:
        """The data in a model file from which the split can be restored and checked."""
        training = dict(self.judged.certificate_.fingerprint)
        return self.split.record() | self.asked.record() | {"training": training}

    def table(self) -> list[tuple[str, str, str, str]]:
        """Model, error, time and solved of each row, as text."""
        return [self._cells(row) for row in self.rows]

    def _cells(self, row: ComparisonRow) -> tuple[str, str, str, str]:
        if not row.errors:
            reason = row.reason.partition(". ")[0].rstrip(".")
            return row.name, f"– {reason}", "", ""
        error = self.show(row.mean)
        if len(row.errors) > 1:
            # Equal values have a deviation that is nothing but rounding.
            spread = row.deviation if row.deviation > 1e-9 * abs(row.mean) else 0.0
            error += f" ± {self.metric.show(spread, 2)}"
        solved = "cut short" if row.cut_short else _solved(row)
        return row.name, error, format_seconds(row.seconds), solved

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        lines = [f"{self.task}: {self.metric.label}, {len(self.split.folds)} folds"]
        lines += [f"! {note}" for note in self.notes]
        for name, error, seconds, solved in self.table():
            mark = "→" if name == self.chosen else " "
            line = f"{mark} {name:<{width}}  {error:<20}  {seconds:<7}  {solved}"
            lines.append(line.rstrip())
        lines += [f"{c.mark} {c.label}: {c.detail}" for c in self.risk]
        return "\n".join(lines)

    def _columns(self) -> Mapping[str, Any]:
        rows = [row.to_dict() for row in self.rows]
        names = ("name", "mean", "sd", "seconds", "gap", "solved", "reason")
        return {name: [row[name] for row in rows] for name in names}

    def plot(self, ax: Any = None) -> Any:
        """Draw the mean error of each candidate, and its deviation; returns the axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; None means a new figure.
        """
        rows = [row for row in self.rows if row.errors]
        mean = np.array([row.mean for row in rows])
        sd = np.array([row.deviation if len(row.errors) > 1 else 0.0 for row in rows])
        names = [row.name for row in rows]
        return draw_intervals(names, mean, mean - sd, mean + sd, self.measure, ax)


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, bool | int | float | str) else repr(value)
        for name, value in params.items()
    }


def _solved(row: ComparisonRow) -> str:
    if row.kind == "foreign":
        return "not ours"
    if row.solved is None:
        return "–"
    mark = "✓" if row.solved else "✗"
    return mark if row.gap is None else f"{mark} {number(row.gap, 2)}"
