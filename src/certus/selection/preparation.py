"""Prepare a raw table for the candidates: seal rows first, then look at the others.

Notes say what was found: copies of rows, which stay on one side; columns that
determine the target, which are left out; groups that share rows; times out of order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from certus.selection import inspection
from certus.selection.metrics import (
    Metric,
    check_targets,
    default_metric,
    find_metric,
)
from certus.selection.splits import Split, make_split
from certus.tables import TableError, guess_task
from certus.tables.frame import Column
from certus.tables.pipeline import read_target
from certus.typing import ArrayLike, MatrixLike
from certus.wording import shorten

__all__ = ["Prepared", "prepare"]


class Prepared(NamedTuple):
    """A prepared table: the rows that candidates may see, and the plan of folds."""

    X: Any
    y: np.ndarray
    task: str
    split: Split
    times: np.ndarray | None
    notes: tuple[str, ...]
    left_out: tuple[str, ...]
    metric: Metric
    positive: Any = None  # the label that metrics of two labels are about
    bounds: tuple[float, float] | None = None  # of an amount

    @property
    def labels(self) -> bool:
        """Whether the target holds labels."""
        return self.task != "regression"

    @property
    def classes(self) -> np.ndarray | None:
        """The labels, in order; None for amounts."""
        return np.unique(self.y) if self.labels else None


def prepare(
    X: MatrixLike,
    y: ArrayLike,
    task: str | None,
    groups: Any,
    time: Any,
    keep: Sequence[str],
    fraction: float,
    folds: int,
    seed: int,
    metric: str | None = None,
    positive: Any = None,
) -> Prepared:
    """Seal rows, divide the others into folds, and look at their columns."""
    columns = inspection.columns_of(X)
    if not columns or len(columns[0].values) == 0:
        what = "rows" if columns else "columns"
        raise TableError(f"The table has no {what}. Pass rows × columns to learn from.")
    target = _checked_target(y, len(columns[0].values))
    task = _task(target, task)
    _require_names(keep, columns)
    notes: list[str] = []
    order = _order(X, columns, target, groups, time, notes)
    plan = make_split(
        target,
        labels=task != "regression" and groups is None,
        fraction=fraction,
        folds=folds,
        random_state=seed,
        units=order.units,
        time=order.times,
    )
    split = dataclasses.replace(plan, groups=order.groups, time=order.time)
    _check_sides(split)
    hidden = [groups] if isinstance(groups, str) else []
    seen = [
        column._replace(values=column.values[split.training])
        for column in columns
        if column.name not in hidden
    ]
    hidden += _leaking(seen, target[split.training], task != "regression", keep, notes)
    if groups is None and time is None:
        notes += inspection.hints([c for c in seen if c.name not in hidden])
    X = inspection.without(X, hidden) if hidden else X
    asked = _metric(metric, task, target[split.training], notes)
    label = _positive(positive, target, split.training) if task == "binary" else None
    said = tuple(notes), tuple(hidden), asked, label
    return Prepared(X, target, task, split, order.times, *said)


def _metric(name: str | None, task: str, y: np.ndarray, notes: list[str]) -> Metric:
    """The metric that was asked for, or the default for these training targets."""
    if name is None:
        found, remark = default_metric(task, y)
        notes += [remark] if remark else []
        return found
    found = find_metric(name, task)
    check_targets(found, y)
    return found


def _positive(asked: Any, y: np.ndarray, training: np.ndarray) -> Any:
    """The label named, by its value or its text; else the rarer of training rows."""
    labels = np.unique(y)
    if asked is None:
        counts = [np.count_nonzero(y[training] == label) for label in labels]
        return labels[0] if counts[0] < counts[1] else labels[1]
    for label in labels:
        if label == asked or str(label).lower() == str(asked).lower():
            return label
    raise ValueError(
        f"positive must be one of the labels {', '.join(map(str, labels))}, got "
        f"{asked!r}."
    )


def _checked_target(y: ArrayLike, n: int) -> np.ndarray:
    target = np.asarray(read_target(y)[0])
    if target.ndim == 2 and target.shape[1] == 1:
        target = target[:, 0]
    if target.shape != (n,):
        raise ValueError(
            f"y has shape {target.shape} and X has {n:,} rows; pass one target per row."
        )
    if target.dtype.kind == "f" and not np.isfinite(target).all():
        raise TableError(
            "The target holds NaN or infinite values. Correct or drop those rows."
        )
    if len(set(target[:1000].tolist())) == 1 and len(set(target.tolist())) == 1:
        raise TableError(
            "The target is the same in every row, so there is nothing to predict."
        )
    return target


def _task(target: np.ndarray, task: str | None) -> str:
    if task not in (None, "regression", "classification"):
        raise ValueError(
            f"task must be 'regression' or 'classification', got {task!r}."
        )
    if (task or guess_task(target)) == "regression":
        if target.dtype.kind not in "iufb":
            raise TableError("The target holds labels, but a regression needs numbers.")
        return "regression"
    return "binary" if len(np.unique(target)) == 2 else "multiclass"


def _require_names(keep: Sequence[str], columns: list[Column]) -> None:
    names = {column.name for column in columns}
    for name in keep:
        if name not in names:
            raise TableError(f'There is no column "{name}" to keep.')


# ---- which rows belong together ------------------------------------------------------


class _Order(NamedTuple):
    """Units and times of the rows, and the names of the columns they came from."""

    units: np.ndarray | None = None
    times: np.ndarray | None = None
    groups: str | None = None
    time: str | None = None


def _order(
    X: MatrixLike,
    columns: list[Column],
    y: np.ndarray,
    groups: Any,
    time: Any,
    notes: list[str],
) -> _Order:
    if groups is not None and time is not None:
        raise ValueError("groups and time cannot be used together. Choose one.")
    if groups is not None:
        column = inspection.take_column(X, groups, "groups")
        named = groups if isinstance(groups, str) else None
        others = [c for c in columns if c.name != named]
        return _by_groups(column, others, y, notes)
    same, extra = inspection.copies(columns)
    if time is not None:
        column = inspection.take_column(X, time, "time")
        if column.kind not in ("number", "date"):
            raise TableError(
                f'"{shorten(column.name)}" must hold dates or numbers to order the '
                f"rows, got {column.kind}."
            )
        times = column.values.to_physical().cast(float).to_numpy()
        if extra:
            notes.append(
                f"{_rows(extra)} equal to another row, perhaps at another time."
            )
        notes.append(
            "models are tested on later rows, in the order of "
            f'"{shorten(column.name)}".'
        )
        return _Order(None, times, None, column.name)
    if extra:
        notes.append(
            f"{_rows(extra)} equal to another row; copies stay together when splitting."
        )
    return _Order(same)


def _by_groups(
    column: Column, others: list[Column], y: np.ndarray, notes: list[str]
) -> _Order:
    name = shorten(column.name)
    units = column.values.rank("dense").to_numpy().astype(np.int64) - 1
    sizes = np.bincount(units)
    if len(sizes) < 3:
        raise TableError(
            f'"{name}" has {len(sizes)} groups, too few to set one aside and compare '
            "models on the others. Choose another column, or none."
        )
    notes.append(
        f'"{name}" has {len(sizes):,} groups; each stays together when splitting.'
    )
    if sizes.max() > len(y) / 2:
        notes.append(f"one group holds {sizes.max():,} of {len(y):,} rows.")
    same, _ = inspection.copies(others)
    if same is not None:
        overlap = int(np.count_nonzero(units != units[same]))
        if overlap:
            notes.append(f"{_rows(overlap)} equal to a row of another group.")
    return _Order(units, None, column.name, None)


def _rows(count: int) -> str:
    return "1 row is" if count == 1 else f"{count:,} rows are"


def _check_sides(split: Split) -> None:
    if len(split.training) < 2:
        where = f' "{shorten(split.time)}"' if split.time else ""
        raise TableError(
            f"Setting {100 * split.fraction:.0f} % of the rows aside by{where} leaves "
            "fewer than 2 for training: too many rows are equal there."
        )


# ---- columns that tell too much ------------------------------------------------------


def _leaking(
    columns: list[Column],
    y: np.ndarray,
    labels: bool,
    keep: Sequence[str],
    notes: list[str],
) -> list[str]:
    """Names of the columns to leave out; the reasons go to notes."""
    leaks = inspection.find_leaks(columns, y, labels)
    certain = [leak for leak in leaks if leak.strength >= inspection.DETERMINES]
    out = [leak.column for leak in certain if leak.column not in keep]
    alone = len(out) == len(columns)
    for leak in leaks:
        name = f'"{shorten(leak.column)}"'
        if leak.column in keep:
            continue
        if leak.column not in out:
            notes.append(
                f"{name} nearly determines the target ({leak.what}): drop it if it is "
                "known only after the target."
            )
        elif alone:
            notes.append(
                f"{name} determines the target ({leak.what}); it is used because "
                "there is no other column."
            )
        else:
            notes.append(
                f"{name} determines the target ({leak.what}), so it is left out. Use "
                "--keep to include it."
            )
    return [] if alone else out
