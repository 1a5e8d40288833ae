"""``watch``: compare new rows with a model in use, with or without true targets.

Columns show how far they moved. They do not show whether errors grew: a column may move
without harm, and the relation of the target to the columns may change although no
column moves. If the true targets are known, the coverage of the intervals is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.base import check_number
from certus.monitoring.columns import ColumnMove, column_moves
from certus.monitoring.coverage import CoverageWatch, watch_coverage
from certus.results import TableResult
from certus.tables.errors import TableError
from certus.tables.pipeline import TablePipeline, read_target
from certus.typing import ArrayLike, Fit, MatrixLike

__all__ = ["Watch", "watch"]


@dataclass(frozen=True)
class Watch(TableResult):
    """What new rows say about a model in use; made by :func:`watch`.

    Attributes
    ----------
    rows : int
        New rows.
    columns : tuple of ColumnMove
        One for each column that is used, the most certain move first; all their
        intervals hold together.
    coverage : CoverageWatch or None
        Whether intervals or sets still hold; None if the true targets are not given.
    unknown : tuple of str
        What these rows cannot tell, and why.
    delta : float
        Failure probability of the intervals of all columns together, and of each
        statement about the coverage.
    """

    rows: int
    columns: tuple[ColumnMove, ...]
    coverage: CoverageWatch | None
    unknown: tuple[str, ...]
    delta: float

    @property
    def moved(self) -> tuple[ColumnMove, ...]:
        """The columns whose interval does not contain 0."""
        return tuple(column for column in self.columns if column.moved)

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        count, total = len(self.moved), len(self.columns)
        noun = "column" if total == 1 else "columns"
        text = f"{count} of {total} {noun} moved" if count else "no column moved"
        if self.coverage is not None:
            text += f"; {self.coverage.headline}"
        return text + "."

    def __str__(self) -> str:
        lines = [self.verdict]
        lines += [f"  {'!' if c.moved else '·'} {c}" for c in self.columns]
        return "\n".join([*lines, *(f"  – not known: {text}" for text in self.unknown)])

    def _columns(self) -> Mapping[str, Any]:
        names = ("name", "kind", "what", "before", "now", "low", "high", "moved")
        return {name: [getattr(c, name) for c in self.columns] for name in names}


def watch(
    model: Fit,
    X: MatrixLike,
    y: ArrayLike | None = None,
    *,
    ordered: bool = False,
    coverage: float = 0.9,
    delta: float = 0.05,
) -> Watch:
    """Compare new rows with those that a model was fitted on.

    Parameters
    ----------
    model : TablePipeline
        A fitted pipeline, such as the one in a model file; it keeps a profile of its
        columns.
    X : data frame or array of shape (n_samples, n_features)
        New rows.
    y : series or array of shape (n_samples,), optional
        True targets of the new rows, if they are known by now.
    ordered : bool, default=False
        Whether the rows are in the order in which they came. Statements about the
        coverage then hold at every moment, so you may look at them after each row.
    coverage : float, default=0.9
        Probability, on average over calibration rows and new rows. The intervals or
        sets that are judged should reach it.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. It applies to
        the intervals of all columns together, and to each statement about the coverage.

    Returns
    -------
    Watch

    Examples
    --------
    >>> import certus
    >>> from certus.linear_model import Ridge
    >>> from certus.monitoring import watch
    >>> from certus.tables import load_example
    >>> frame, target = load_example()
    >>> X, y = frame.drop(target), frame[target]
    >>> model = certus.compare(X, y, models=[Ridge()]).model
    >>> older = X.with_columns(X["age"] + 20)
    >>> found = watch(model, older)
    >>> [column.name for column in found.moved]
    ['age']
    >>> print(found.unknown[0])
    whether errors grew: the true targets of these rows are missing. Columns may move
    without harm, and errors may grow although no column moved
    """
    check_number("coverage", coverage, 0, 1, open_low=True)
    check_number("delta", delta, 0, 1, open_low=True)
    if not isinstance(model, TablePipeline) or not hasattr(model.encoder_, "plans_"):
        raise TypeError(
            f"watch needs a fitted TablePipeline, such as the model that `certus fit` "
            f"saves, but {type(model).__name__} keeps no profile of its columns."
        )
    plans, cells = model.encoder_.cells(X)
    unknown = []
    moves = column_moves(plans, cells, delta)
    texts = [plan["name"] for plan in plans if plan["kind"] == "text"]
    if texts:
        unknown.append(f"whether free text changed ({', '.join(texts)}): not compared")
    if len(moves) + len(texts) < len(plans):
        unknown.append(
            "which columns moved: the model was saved before profiles were kept. Fit "
            "it again"
        )
    judged = None
    if y is None:
        unknown.append(
            "whether errors grew: the true targets of these rows are missing. Columns "
            "may move without harm, and errors may grow although no column moved"
        )
    else:
        judged = _judged(model, X, y, coverage, ordered, delta, unknown)
    return Watch(len(cells[0]), tuple(moves), judged, tuple(unknown), delta)


def _judged(
    model: Fit,
    X: Any,
    y: ArrayLike,
    coverage: float,
    ordered: bool,
    delta: float,
    unknown: list[str],
) -> CoverageWatch | None:
    from sklearn.exceptions import NotFittedError

    truth = np.asarray(read_target(y)[0])
    if len(truth) != len(X):
        raise TableError(f"y has {len(truth):,} rows, but X has {len(X):,}.")
    if not ordered:
        unknown.append(
            "when something changed: the order of the rows is not known, so they are "
            "judged as one sample"
        )
    try:
        return watch_coverage(model, X, truth, coverage, ordered, delta)
    except (NotFittedError, AttributeError):
        unknown.append(
            "whether intervals still hold: the model has no calibration rows, because "
            "its rows come in groups or in order of time"
        )
        return None
