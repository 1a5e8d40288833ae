"""A column of a new table, encoded by the plan learnt in training.

``encode_column`` gives standardised numbers, the codes of categories and the parts of
dates. Values that differ from the training table are converted with a note where that
is safe, and refused with the name of the column where it is not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from certus.tables.cells import to_dates
from certus.tables.errors import TableError, quoted
from certus.tables.frame import Column, date_parts, finite, wall_clock
from certus.tables.plan import Plan

__all__ = ["EncodedColumns", "encode_column"]

_WORDS = {
    "number": "numeric",
    "boolean": "true or false",
    "date": "a date",
    "text": "text",
    "category": "a category",
}

_ONE = {"number": "a number", "boolean": "true or false"}


class EncodedColumns(NamedTuple):
    """Dense columns, or one array of category codes (−1: none of them)."""

    dense: list[Any]
    codes: Any | None = None


def encode_column(plan: Plan, column: Column, remarks: list[str]) -> EncodedColumns:
    """Apply a plan to a column; say in ``remarks`` what differs from training."""
    if plan["kind"] == "category":
        return EncodedColumns([], _codes(plan, column, remarks))
    if plan["kind"] == "date":
        clock = _as_dates(plan, column, remarks)
        parts = date_parts(clock, plan["origin"])
        gaps = clock.is_null().to_numpy()
    else:
        x = _as_numbers(plan, column, remarks)
        parts = {"": x}
        gaps = np.isnan(x)
    dense = []
    for part in plan["parts"]:
        x = parts[part["label"]]
        filled = np.where(gaps, part["fill"], x)
        with np.errstate(over="ignore"):
            z = (filled / part["unit"] - part["centre"]) / part["spread"]
        if not np.isfinite(z).all():
            raise TableError(
                f'Column "{plan["name"]}" has values too far from those of the fit to '
                "be scaled. Correct the column, or refit."
            )
        dense.append(z)
    if plan["missing"]:
        dense.append(gaps.astype(np.float64))
    elif gaps.any():
        remarks.append(
            f'"{plan["name"]}" has {_rows(gaps.sum())} without a value, although no '
            "value was missing in training: filled with the training median."
        )
    return EncodedColumns(dense)


def _codes(plan: Plan, column: Column, remarks: list[str]) -> Any:
    text = _as_text(plan, column, remarks)
    levels = plan["levels"]
    codes = text.cast(pl.Enum(levels), strict=False).to_physical()
    result = codes.cast(pl.Int64).fill_null(-1).to_numpy().copy()
    gaps = text.is_null().to_numpy()
    unseen = (result < 0) & ~gaps
    if plan["other"]:
        result[unseen] = len(levels)
    elif unseen.any():
        new = text.filter(pl.Series(unseen)).unique(maintain_order=True).to_list()
        remarks.append(
            f'"{plan["name"]}" has {_rows(unseen.sum())} with a category not seen in '
            f"training ({quoted(new, 3)}): encoded as none of the known categories."
        )
    if plan["missing"]:
        result[gaps] = len(levels) + plan["other"]
    elif gaps.any():
        remarks.append(
            f'"{plan["name"]}" has {_rows(gaps.sum())} without a value, although no '
            "value was missing in training: encoded as none of the known categories."
        )
    return result


def _as_text(plan: Plan, column: Column, remarks: list[str]) -> pl.Series:
    values = column.values
    kind = column.kind
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
    if now == "text":
        parsed = _parse_numbers(values, boolean=was == "boolean")
        bad = values.filter(parsed.is_null() & values.is_not_null())
        if len(bad):
            raise _changed(plan, "text", f'"{bad[0]}"')
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
