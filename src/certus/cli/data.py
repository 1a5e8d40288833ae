"""A table and its target, checked before anything is fitted.

What would make a fit meaningless (no such column, no values, one value, a date) is
said here in words about the user's own file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from certus.cli.screen import Stop, remark
from certus.wording import number, shorten

__all__ = ["LabelledTable", "read_training", "split_target"]


class LabelledTable(NamedTuple):
    """A table without its target, the target, and where they came from."""

    name: str
    X: Any
    y: Any
    target: str
    task: str
    gaps: int
    units: Mapping[str, str] = {}
    spelling: Mapping[str, str] = {}

    @property
    def record(self) -> dict[str, Any]:
        """What a model file keeps about how the table was written."""
        return {"units": dict(self.units), "spelling": dict(self.spelling)}

    @property
    def headline(self) -> str:
        """File, size, task and range of the target."""
        size = f"{self.X.height:,} rows × {self.X.width + 1:,} columns"
        return (
            f"{shorten(self.name)}  {size} → {self.kind} on "
            f'"{shorten(self.target)}" ({self.spread})'
        )

    @property
    def kind(self) -> str:
        """The task, and for labels whether there are two."""
        if self.task == "regression":
            return self.task
        return f"{'binary' if self.y.n_unique() == 2 else 'multiclass'} {self.task}"

    def require(self, column: str | None) -> None:
        """Refuse a column that an option names and the table lacks."""
        if column is not None:
            _require(self.X, column, self.name)

    @property
    def spread(self) -> str:
        """Range of the numbers, or counts of the labels."""
        if self.task == "regression":
            ends = f"{number(self.y.min(), 4)} … {number(self.y.max(), 4)}"
            unit = self.units.get(self.target, "")
            return f"{ends} {unit}" if unit else ends
        counts = self.y.value_counts(sort=True)
        pairs = [(shorten(str(label), 20), n) for label, n in counts.iter_rows()]
        shown = ", ".join(f"{label} {n:,}" for label, n in pairs[:4])
        more = len(pairs) - 4
        return f"{shown} and {more:,} more" if more > 0 else shown


def read_training(
    path: Path | None,
    target: str | None,
    drop: Sequence[str],
    labels: bool | None,
    encoding: str | None = None,
) -> LabelledTable:
    """The training table; the bundled example if there is no path.

    ``labels`` says whether the model wants labels; None lets the target decide.
    """
    from certus.tables import load_example
    from certus.tables.delimited import Reading
    from certus.tables.reader import read_with_notes

    if path is None:
        frame, usual = load_example()
        name, target, read = "diabetes", target or usual, Reading(frame)
    else:
        read = read_with_notes(path, announce=remark, encoding=encoding)
        frame, name = read.frame, path.name
    if target is None:
        raise Stop(
            f"say which column to predict: --target COLUMN. {shorten(name)} has "
            f"{_names(frame)}.",
            code=2,
        )
    for column in drop:
        _require(frame, column, name)
    if target in drop:
        raise Stop(f'"{target}" is both --target and --drop. Remove one.', code=2)
    X, y, gaps = split_target(frame, target, name)
    if X.drop(drop).width == 0:
        raise Stop(
            f'{name} has no column besides "{shorten(target)}" to predict it from. Add '
            "some, or check how its cells are separated."
        )
    task = _task(y, target, labels)
    units = {column: unit for column, unit in read.units.items() if column not in drop}
    spelling = read.spelling.get(target, {})
    return LabelledTable(name, X.drop(drop), y, target, task, gaps, units, spelling)


def split_target(frame: Any, target: str, name: str) -> tuple[Any, Any, int]:
    """Columns, target, and how many rows were left out because they have no target."""
    _require(frame, target, name)
    kept = frame.filter(frame[target].is_not_null())
    if frame[target].dtype.is_float():
        kept = kept.filter(kept[target].is_not_nan())
    if kept.height == 0:
        raise Stop(f'column "{shorten(target)}" of {name} has no value in any row.')
    y = kept[target]
    if y.dtype.is_decimal():
        y = y.cast(float)
    return kept.drop(target), y, frame.height - kept.height


def _require(frame: Any, column: str, name: str) -> None:
    if column not in frame.columns:
        from certus.tables.errors import did_you_mean

        hint = did_you_mean(column, frame.columns) or f" It has {_names(frame)}."
        raise Stop(f'{shorten(name)} has no column "{shorten(column)}".{hint}')


def _names(frame: Any) -> str:
    from certus.tables.errors import quoted

    return quoted([shorten(column, 20) for column in frame.columns], limit=4)


def _task(y: Any, target: str, labels: bool | None) -> str:
    """Regression or classification; a target that can be neither is refused."""
    from certus.tables import guess_task

    what = f'column "{shorten(target)}"'
    numeric, distinct = y.dtype.is_numeric(), y.n_unique()
    if y.dtype.is_temporal() or y.dtype.is_nested():
        raise Stop(
            f"{what} must hold numbers or labels, got {y.dtype}. Convert it to a "
            "number, such as days, or choose another --target."
        )
    if numeric and not math.isfinite(y.min() + 0.0 * y.max()):
        raise Stop(f"{what} holds infinite values. Correct or remove those rows.")
    if distinct == 1:
        raise Stop(
            f"{what} is {shorten(str(y[0]), 20)} in every row, so there is nothing to "
            "predict. Choose another --target."
        )
    task = guess_task(y)
    if labels is False and not numeric:
        raise Stop(
            f"{what} holds labels, but this model predicts numbers. Use --model "
            "logistic or ridge-classifier."
        )
    fractions = y.dtype.is_float() and not (y == y.round()).all()
    if labels is True and fractions:
        raise Stop(
            f"{what} holds {distinct:,} different numbers, but this model predicts "
            "labels. Use --model ridge or lasso."
        )
    if labels is not None:
        task = "classification" if labels else "regression"
    if task == "classification" and distinct > max(2, len(y) // 2):
        if str(y.dtype) == "String" and y.cast(float, strict=False).null_count() == 0:
            raise Stop(
                f"{what} holds numbers written as text, {distinct:,} different ones. "
                "Store it as numbers."
            )
        raise Stop(
            f"{what} has {distinct:,} different labels in {len(y):,} rows: too few "
            "of each to learn from. Choose another --target."
        )
    return task
