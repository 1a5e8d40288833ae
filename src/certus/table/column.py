"""One column of a table to numbers: what is learnt from it, and how it is applied.

``plan_column`` looks at a training column and returns a plan, a dict of plain values
(it is saved with the model). ``encode_column`` applies a plan to a column of the same
name: standardised numbers z = (x − mean)/sd, codes of categories, parts of a date.
Remarks about what it met on the way go to a list.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from certus.table.errors import TableError, quoted
from certus.table.frame import Column

__all__ = ["Encoded", "encode_column", "feature_labels", "plan_column"]

Plan = dict[str, Any]

_DAY = 86_400e6  # microseconds
_LONG_TEXT = 40  # characters, on average
_FEW_ROWS = 10  # below this, distinct values say nothing about identifiers
_ID_NAME = re.compile(
    r"(?i:(^|.*[^a-z])(id|uuid|guid|key|index|row|rowid|rownum)|(id|row|index)[^a-z].*"
    r"|unnamed: 0)|.*[a-z](Id|ID)"
)
_WORDS = {
    "number": "numeric",
    "boolean": "true or false",
    "date": "a date",
    "text": "text",
    "category": "a category",
}


class Encoded(NamedTuple):
    """Dense columns, or one array of category codes (−1: none of them)."""

    dense: list[Any]
    codes: Any | None = None


# --- learning a plan ----------------------------------------------------------


def plan_column(
    column: Column, weight: Any | None, *, scale: bool, max_categories: int | None
) -> Plan:
    """Decide what becomes of a column, from the rows with positive weight."""
    kind = column.kind
    if kind == "empty":
        return _left_out(column, "empty", "has no values")
    if kind == "text":
        return _plan_text(column, weight, max_categories)
    if kind == "date":
        return _plan_date(column, weight, scale)
    if kind == "number" and _is_identifier(column):
        return _left_out(column, "identifier", "has one value per row")
    return _plan_numbers(column, weight, scale and kind == "number")


def _left_out(column: Column, kind: str, why: str) -> Plan:
    note = f'"{column.name}" set aside: {why}.'
    return {"name": column.name, "kind": kind, "treatment": "left out", "note": note}


def _is_identifier(column: Column) -> bool:
    if not _ID_NAME.fullmatch(column.name):
        return False
    values = column.values.drop_nulls()
    if values.dtype.is_float():
        values = values.drop_nans()
        if (values != values.round(0)).any():
            return False
    return len(values) > 1 and values.n_unique() == len(values)


def _plan_text(column: Column, weight: Any | None, limit: int | None) -> Plan:
    values = column.values
    known = values.drop_nulls()
    distinct = known.n_unique()
    if not column.declared and len(known) >= _FEW_ROWS:
        share = distinct / len(known)
        long = float(known.str.len_chars().mean() or 0) >= _LONG_TEXT  # type: ignore[arg-type]
        if long and share > 0.5:
            return _left_out(column, "text", "free text")
        if share > 0.9:
            each = "one value" if share == 1 else "nearly one value"
            return _left_out(column, "identifier", f"has {each} per row")
    missing = len(known) < len(values)
    if distinct == 1 and not missing:
        return _left_out(column, "constant", f'is always "{known[0]}"')
    counts = (
        pl.DataFrame({"level": values, "weight": _ones_or(weight, len(values))})
        .drop_nulls("level")
        .group_by("level")
        .agg(pl.col("weight").sum())
        .sort(["weight", "level"], descending=[True, False])
    )
    kept = counts["level"] if limit is None else counts["level"].head(limit)
    other = distinct > len(kept)
    notes = []
    if column.mixed:
        notes.append(f'"{column.name}" mixes types and is read as categories.')
    if other:
        notes.append(
            f'"{column.name}" has {distinct:,} levels: the {len(kept)} most frequent '
            "are kept, the others share one column."
        )
    treatment = f"one-hot, {len(kept)} levels"
    treatment += " + other" * other + " + missing" * missing
    return {
        "name": column.name,
        "kind": "category",
        "treatment": treatment,
        "note": " ".join(notes),
        "levels": sorted(kept.to_list()),
        "other": other,
        "missing": missing,
    }


def _plan_numbers(column: Column, weight: Any | None, scale: bool) -> Plan:
    x = _finite(column.name, column.values)
    missing = bool(np.isnan(x).any())
    part = _plan_part("", x, weight, scale)
    kind = column.kind
    note = ""
    if part is None and not missing:
        value = f"{x[0]:.6g}" if kind == "number" else str(bool(x[0])).lower()
        return _left_out(column, "constant", f"is always {value}")
    if part is None:
        note = f'"{column.name}" has a single value: only its gaps are used.'
    elif column.values.dtype.is_integer() and float(np.nanmax(np.abs(x))) > 2.0**53:
        note = f'"{column.name}" has integers beyond 2^53, which are rounded.'
    steps = [] if part is None else ["standardised" if scale else "as it is"]
    if kind == "boolean":
        steps = ["0 or 1"]
    if missing:
        fill = f"gaps filled by {part['fill']:.4g}" if part else "gaps"
        steps += [f"{fill}, with indicator"]
    return {
        "name": column.name,
        "kind": kind,
        "treatment": ", ".join(steps),
        "note": note,
        "parts": [] if part is None else [part],
        "missing": missing,
    }


def _plan_date(column: Column, weight: Any | None, scale: bool) -> Plan:
    zone = getattr(column.values.dtype, "time_zone", None)
    clock = _wall_clock(column.values, zone)
    origin = float(np.nanmin(_epoch_days(clock)))
    missing = clock.null_count() > 0
    parts = [
        _plan_part(label, x, weight, scale)
        for label, x in _date_parts(clock, origin).items()
    ]
    parts = [part for part in parts if part is not None]
    if not parts and not missing:
        return _left_out(column, "constant", "is always the same date")
    labels = [part["label"] for part in parts]
    treatment = ", ".join(labels) + ", standardised" * (scale and bool(parts))
    return {
        "name": column.name,
        "kind": "date",
        "treatment": treatment + ", missing indicator" * missing,
        "note": "",
        "parts": parts,
        "missing": missing,
        "origin": origin,
        "zone": zone,
    }


def _plan_part(label: str, x: Any, weight: Any | None, scale: bool) -> Plan | None:
    """Median, mean and standard deviation after filling; None if all are equal."""
    known = ~np.isnan(x)
    values = x[known]
    w = None if weight is None else weight[known]
    fill = _median(values, w)
    top = float(np.abs(values).max())
    # A power of two divides exactly and keeps squares of 1e±200 in range.
    unit = 1.0
    if top > 0 and not 1e-100 < top < 1e100:
        unit = 2.0 ** min(max(math.frexp(top)[1], -1021), 1023)
    filled = np.where(known, x, fill) / unit
    centre = float(np.average(filled, weights=weight))
    spread = float(np.sqrt(np.average((filled - centre) ** 2, weights=weight)))
    if spread <= 4 * np.finfo(float).eps * top / unit:
        return None
    if not scale:
        unit, centre, spread = 1.0, 0.0, 1.0
    part = {"label": label, "fill": fill, "unit": unit}
    return part | {"centre": centre, "spread": spread}


def _median(values: Any, weight: Any | None) -> float:
    """Median in which an integer weight counts as that many repetitions."""
    n = len(values)
    if weight is None:
        middle = [(n - 1) // 2, n // 2]
        lower, upper = np.partition(values, middle)[middle].tolist()
    else:
        order = np.argsort(values, kind="stable")
        reach = np.cumsum(weight[order])
        half = reach[-1] / 2
        at = min(int(np.searchsorted(reach, half)), n - 1)
        after = min(at + int(reach[at] == half), n - 1)
        lower, upper = values[order[[at, after]]].tolist()
    average = (lower + upper) / 2
    return average if math.isfinite(average) else lower / 2 + upper / 2


def _ones_or(weight: Any | None, n: int) -> Any:
    return np.ones(n) if weight is None else weight


# --- applying a plan ----------------------------------------------------------


def feature_labels(plan: Plan) -> list[str]:
    """Names of the output columns a plan produces, in their order."""
    name = plan["name"]
    if plan["kind"] == "category":
        labels = [f"{name}={level}" for level in plan["levels"]]
        labels += [f"{name}=(other)"] * plan["other"]
        return labels + [f"{name}=(missing)"] * plan["missing"]
    parts = plan.get("parts", [])
    labels = [f"{name} ({p['label']})" if p["label"] else name for p in parts]
    return labels + [f"{name} (missing)"] * bool(plan.get("missing"))


def encode_column(plan: Plan, column: Column, remarks: list[str]) -> Encoded:
    """Apply a plan to a column; say in ``remarks`` what differs from training."""
    if plan["kind"] == "category":
        return Encoded([], _codes(plan, column, remarks))
    if plan["kind"] == "date":
        clock = _as_dates(plan, column, remarks)
        parts = _date_parts(clock, plan["origin"])
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
                f'Column "{plan["name"]}" has values too far from those the model was '
                "fitted on to be scaled. Fix the column, or refit."
            )
        dense.append(z)
    if plan["missing"]:
        dense.append(gaps.astype(np.float64))
    elif gaps.any():
        remarks.append(
            f'"{plan["name"]}" has {_rows(gaps.sum())} without a value, which it '
            "never had in training: filled by the training median."
        )
    return Encoded(dense)


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
            f'"{plan["name"]}" has {_rows(unseen.sum())} with a level not seen in '
            f"training ({quoted(new, 3)}): encoded as none of the levels."
        )
    if plan["missing"]:
        result[gaps] = len(levels) + plan["other"]
    elif gaps.any():
        remarks.append(
            f'"{plan["name"]}" has {_rows(gaps.sum())} without a value, which it '
            "never had in training: encoded as none of the levels."
        )
    return result


def _as_text(plan: Plan, column: Column, remarks: list[str]) -> pl.Series:
    values = column.values
    kind = column.kind
    if kind in ("text", "empty"):
        return values.cast(pl.String)
    remarks.append(
        f'"{plan["name"]}" was text in training and is {_WORDS[kind]} now: '
        "its values are compared as text."
    )
    if values.dtype.is_float():
        values = values.fill_nan(None)
        if values.is_finite().all() and (values == values.round(0)).all():
            values = values.cast(pl.Int128)
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
        remarks.append(f'"{name}" is text now, but every cell reads as {_WORDS[was]}.')
        values = parsed
    x = _finite(name, values)
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
        try:
            parsed = values.str.to_datetime(strict=False, time_unit="us")
        except pl.exceptions.PolarsError:
            parsed = pl.Series([None] * len(values), dtype=pl.Datetime("us"))
        bad = values.filter(parsed.is_null() & values.is_not_null())
        if len(bad):
            raise _changed(plan, "text", f'"{bad[0]}"')
        remarks.append(f'"{plan["name"]}" is text now, but every cell reads as a date.')
        values = parsed
    elif now != "date":
        raise _changed(plan, now, values.drop_nulls()[0])
    zone = getattr(values.dtype, "time_zone", None)
    if (zone is None) != (plan["zone"] is None):
        remarks.append(
            f'"{plan["name"]}" {"lost its" if zone is None else "now has a"} time '
            "zone: the clock times are taken as they stand."
        )
    return _wall_clock(values, plan["zone"])


def _changed(plan: Plan, now: str, example: Any) -> TableError:
    return TableError(
        f'column "{plan["name"]}" was {_WORDS[plan["kind"]]} when the model was '
        f"fitted and is {_WORDS[now]} now ({example}). Fix the column, or refit."
    )


def _rows(count: Any) -> str:
    return "1 row" if count == 1 else f"{int(count):,} rows"


# --- shared by both -----------------------------------------------------------


def _finite(name: str, values: pl.Series) -> Any:
    """Numbers as float64, gaps as NaN; infinities are refused."""
    x = values.cast(pl.Float64).to_numpy()
    if np.isinf(x).any():
        row = int(np.flatnonzero(np.isinf(x))[0])
        raise TableError(
            f'Column "{name}" has an infinite value (row {row:,}, counted from 0). '
            "Replace it by a number, or leave the cell empty."
        )
    return x


def _wall_clock(values: pl.Series, zone: str | None) -> pl.Series:
    """Dates as the clock of ``zone`` shows them, without a zone."""
    if values.dtype == pl.Date:
        return values.cast(pl.Datetime("us"))
    if getattr(values.dtype, "time_zone", None) is not None:
        if zone is not None:
            values = values.dt.convert_time_zone(zone)
        values = values.dt.replace_time_zone(None)
    return values


def _epoch_days(clock: pl.Series) -> Any:
    return clock.to_physical().cast(pl.Float64).to_numpy() / _DAY


def _date_parts(clock: pl.Series, origin: float) -> dict[str, Any]:
    def numbers(part: pl.Series) -> Any:
        return part.cast(pl.Float64).to_numpy()

    return {
        "year": numbers(clock.dt.year()),
        "month": numbers(clock.dt.month()),
        "weekday": numbers(clock.dt.weekday()),
        "days": _epoch_days(clock) - origin,
    }
