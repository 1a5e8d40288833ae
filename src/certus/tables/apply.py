"""A column of a new table, encoded by the plan learnt in training.

``encode_column`` gives standardised numbers, the codes of categories, the parts of
dates and the terms of texts. Values that differ from the training table are converted
with a note where that is safe, and refused with the name of the column where it is not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from certus.tables.cells import to_dates, to_times
from certus.tables.dates import date_part, day_wave
from certus.tables.errors import TableError, quoted
from certus.tables.frame import Column, epoch_days, finite, wall_clock
from certus.tables.levels import text_keys
from certus.tables.plan import Plan, is_wide
from certus.tables.texts import encode_text

__all__ = ["EncodedColumns", "encode_column", "level_codes", "scaled"]

_WORDS = {
    "number": "numeric",
    "boolean": "true or false",
    "date": "a date",
    "text": "text",
    "category": "a category",
}

_ONE = {"number": "a number", "boolean": "true or false"}


class EncodedColumns(NamedTuple):
    """Dense columns, one array of category codes (−1: none of them), or a matrix.

    ``cells`` are the values themselves, as numbers or text; they tell rows apart.
    """

    dense: list[Any]
    codes: Any | None = None
    wide: Any | None = None
    cells: Any = None

    @property
    def keys(self) -> Any:
        """A number for each cell, equal for equal cells."""
        return (
            text_keys(self.cells) if isinstance(self.cells, pl.Series) else self.cells
        )


def encode_column(plan: Plan, column: Column, remarks: list[str]) -> EncodedColumns:
    """Apply a plan to a column; say in ``remarks`` what differs from training.

    Of a category with many levels, the codes only: its averages depend on all columns.
    """
    if plan["kind"] == "text":
        text = _as_text(plan, column, remarks)
        Z = encode_text(plan, text)
        if "directions" in plan:
            return EncodedColumns(list(Z.T), cells=text)
        return EncodedColumns([], wide=Z, cells=text)
    if plan["kind"] == "category":
        text = _as_text(plan, column, remarks)
        coded = _codes if is_wide(plan) else level_codes
        return EncodedColumns([], coded(plan, text, remarks), cells=text)
    if plan["kind"] == "date":
        clock = _as_dates(plan, column, remarks)
        cells = epoch_days(clock)
        parts = [date_part(clock, p["label"], plan["origin"]) for p in plan["parts"]]
    else:
        cells = _as_numbers(plan, column, remarks)
        parts = [
            day_wave(cells, p["label"]) if p["label"] else cells for p in plan["parts"]
        ]
    gaps = np.isnan(cells)
    dense = [scaled(plan, part, x, gaps) for part, x in zip(plan["parts"], parts)]
    if plan["missing"]:
        dense.append(gaps.astype(np.float64))
    elif gaps.any():
        remarks.append(
            f'"{plan["name"]}" has {_rows(gaps.sum())} without a value, although no '
            "value was missing in training: filled with the training median."
        )
    return EncodedColumns(dense, cells=cells)


def scaled(plan: Plan, part: Plan, x: Any, gaps: Any) -> Any:
    """Numbers with their gaps filled, on the scale of training."""
    filled = np.where(gaps, part["fill"], x)
    with np.errstate(over="ignore"):
        z = (filled / part["unit"] - part["centre"]) / part["spread"]
    if not np.isfinite(z).all():
        raise TableError(
            f'Column "{plan["name"]}" has values too far from those of the fit to '
            "be scaled. Correct the column, or refit."
        )
    return z


def level_codes(plan: Plan, text: pl.Series, remarks: list[str]) -> Any:
    """The level of each row by its number; then gaps, then levels never seen."""
    levels = plan["levels"]
    codes = text.cast(pl.Enum(levels), strict=False).to_physical().cast(pl.Int64)
    result = codes.fill_null(len(levels) + 1).to_numpy().copy()
    gaps = text.is_null().to_numpy()
    unseen = (result > len(levels)) & ~gaps
    if unseen.any():
        remarks.append(_unseen(plan, text, unseen, "given the average of all rows"))
    result[gaps] = len(levels)
    if gaps.any() and not plan["missing"]:
        remarks.append(
            f'"{plan["name"]}" has {_rows(gaps.sum())} without a value, although no '
            "value was missing in training: given the average of all rows."
        )
    return result


def _unseen(plan: Plan, text: pl.Series, unseen: Any, treatment: str) -> str:
    new = text.filter(pl.Series(unseen)).unique(maintain_order=True).to_list()
    return (
        f'"{plan["name"]}" has {_rows(unseen.sum())} with a category not seen in '
        f"training ({quoted(new, 3)}): {treatment}."
    )


def _codes(plan: Plan, text: pl.Series, remarks: list[str]) -> Any:
    levels = plan["levels"]
    codes = text.cast(pl.Enum(levels), strict=False).to_physical()
    result = codes.cast(pl.Int64).fill_null(-1).to_numpy().copy()
    gaps = text.is_null().to_numpy()
    unseen = (result < 0) & ~gaps
    if plan["other"]:
        result[unseen] = len(levels)
    elif unseen.any():
        known = "encoded as none of the known categories"
        remarks.append(_unseen(plan, text, unseen, known))
    if plan["missing"]:
        result[gaps] = len(levels) + plan["other"]
    elif gaps.any():
        remarks.append(
            f'"{plan["name"]}" has {_rows(gaps.sum())} without a value, although no '
            "value was missing in training: encoded as none of the known categories."
        )
    return result


def _as_text(plan: Plan, column: Column, remarks: list[str]) -> pl.Series:
    values = column.values if column.text is None else column.text
    kind = "text" if column.text is not None else column.kind
    if kind in ("text", "empty"):
        return values.cast(pl.String)
    remarks.append(
        f'"{plan["name"]}" was text in training and is {_WORDS[kind]} now; its values '
        "are compared as text."
    )
    # A whole number reads "1" in a text column, even if gaps made it a float.
    if values.dtype.is_float() and (values == values.round(0)).all():
        values = values.cast(pl.Int128, strict=False)
    return values.cast(pl.String)


def _as_numbers(plan: Plan, column: Column, remarks: list[str]) -> Any:
    name, was, now = plan["name"], plan["kind"], column.kind
    values = column.values
    if now == "empty":
        return np.full(len(values), np.nan)
    if now == "date":
        raise _changed(plan, "date", values.drop_nulls()[0])
    _check_meaning(plan, column)
    if now == "text" and plan.get("clock"):
        times = to_times(values)
        if times is not None:
            return _minutes(times)
    if now == "text":
        parsed = _parse_numbers(values, boolean=was == "boolean")
        bad = values.filter(parsed.is_null() & values.is_not_null())
        if len(bad):
            # "12 kg" may be a number to the reader of the file; "heavy" is none.
            worst = bad.filter(~bad.str.contains(r"\d"))
            raise _changed(plan, "text", f'"{[*worst.head(1), bad[0]][0]}"')
        remarks.append(
            f'"{name}" is text now, but every cell can be read as {_ONE[was]}.'
        )
        values = parsed
    x = finite(name, values)
    if was == "boolean" and now != "boolean":
        bad_numbers = x[~np.isnan(x) & (x != 0) & (x != 1)]
        if len(bad_numbers):
            raise _changed(plan, now, f"{bad_numbers[0]:.6g}")
    return x


def _check_meaning(plan: Plan, column: Column) -> None:
    """Refuse numbers that mean something else than those of the fit."""
    name, unit = plan["name"], plan.get("unit", "")
    if column.clock and not plan.get("clock"):
        raise TableError(
            f'column "{name}" held numbers when the model was fitted and holds times '
            "of the day now. Correct the column, or refit."
        )
    if column.text is not None and column.unit != unit:
        was = f'with "{unit}"' if unit else "without a unit"
        raise TableError(
            f'column "{name}" was {was} when the model was fitted and is in '
            f'"{column.unit}" now. Convert it, or refit.'
        )


def _minutes(times: pl.Series) -> Any:
    return times.to_physical().cast(pl.Float64).to_numpy() / 60e9


def _parse_numbers(values: pl.Series, boolean: bool) -> pl.Series:
    stripped = values.str.strip_chars()
    if boolean:
        lower = stripped.str.to_lowercase()
        words = {"true": "1", "false": "0"}
        stripped = lower.replace(list(words), list(words.values()))
    return stripped.cast(pl.Float64, strict=False)


def _as_dates(plan: Plan, column: Column, remarks: list[str]) -> pl.Series:
    values, now = column.values, column.kind
    if now == "empty":
        return pl.Series([None] * len(values), dtype=pl.Datetime("us"))
    if now == "text":
        parsed = to_dates(values)
        if parsed is None:
            raise _changed(plan, "text", f'"{_no_date(values)}"')
        remarks.append(
            f'"{plan["name"]}" is text now, but every cell can be read as a date.'
        )
        values = parsed
    elif now != "date":
        raise _changed(plan, now, values.drop_nulls()[0])
    zone = getattr(values.dtype, "time_zone", None)
    if (zone is None) != (plan["zone"] is None):
        remarks.append(
            f'"{plan["name"]}" {"lost its" if zone is None else "now has a"} time '
            "zone; the clock times are used unchanged."
        )
    return wall_clock(values, plan["zone"])


def _no_date(values: pl.Series) -> str:
    """The first cell that is not a date, or that can be read as two dates."""
    cells = values.drop_nulls().head(1000)
    bad = (cell for cell in cells if to_dates(pl.Series([cell])) is None)
    return str(next(bad, cells[0]))


def _changed(plan: Plan, now: str, example: Any) -> TableError:
    form = " (dates as 2020-12-31)" if plan["kind"] == "date" else ""
    return TableError(
        f'column "{plan["name"]}" was {_WORDS[plan["kind"]]} when the model was '
        f"fitted and is {_WORDS[now]} now ({example}). Correct the column{form}, or "
        "refit."
    )


def _rows(count: Any) -> str:
    return "1 row" if count == 1 else f"{int(count):,} rows"
