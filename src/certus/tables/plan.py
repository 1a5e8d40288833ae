"""What is learnt from a column of the training table.

``plan_column`` decides whether a column is a number, a category, a boolean, a date,
free text or nothing to learn from, and returns a plan: a dict of plain values, which is
saved with the model. Numbers are standardised, z = (x − mean)/sd, after gaps are
filled. Categories with many levels are completed by :func:`add_statistics`.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from certus.tables.cells import doubt
from certus.tables.dates import (
    BEND,
    DAY_WAVES,
    PLAIN,
    date_labels,
    date_part,
    day_wave,
)
from certus.tables.frame import Column, epoch_days, finite, wall_clock
from certus.tables.levels import level_statistics
from certus.tables.profiles import profile_levels, profile_numbers
from certus.tables.texts import is_free_text, plan_text_column
from certus.wording import unstopped

__all__ = [
    "ID_NAME",
    "ColumnRules",
    "Plan",
    "add_statistics",
    "feature_labels",
    "is_used",
    "is_wide",
    "plan_column",
]

Plan = dict[str, Any]

_FEW_ROWS = 10  # below this, distinct values say nothing about identifiers
#: Names that identifiers go by.
ID_NAME = re.compile(
    r"(?i:(^|.*[^a-z])(id|uuid|guid|key|index|row|rowid|rownum)|(id|row|index)[^a-z].*"
    r"|unnamed: 0)|.*[a-z](Id|ID)"
)


class ColumnRules(NamedTuple):
    """The choices of the encoder; ``averages`` if the target of each row is known."""

    scale: bool = True
    max_categories: int | None = 30
    text: str = "ngrams"
    averages: bool = False


def plan_column(column: Column, weight: Any | None, rules: ColumnRules) -> Plan:
    """Decide what becomes of a column, from the rows with positive weight."""
    kind = column.kind
    if kind == "empty":
        return _left_out(column, "empty", "no values")
    if kind == "text":
        return _plan_text(column, weight, rules)
    if kind == "date":
        return _plan_date(column, weight, rules.scale)
    if kind == "number" and _is_identifier(column):
        return _left_out(column, "identifier", "one value per row")
    return _plan_numbers(column, weight, rules.scale and kind == "number")


def _left_out(column: Column, kind: str, why: str) -> Plan:
    note = f'"{column.name}" is not used: {unstopped(why)}.'
    return {"name": column.name, "kind": kind, "treatment": "left out", "note": note}


def _is_identifier(column: Column) -> bool:
    if not ID_NAME.fullmatch(column.name):
        return False
    values = column.values.drop_nulls()
    if values.dtype.is_float() and (values != values.round(0)).any():
        return False
    return len(values) > 1 and values.n_unique() == len(values)


def _plan_text(column: Column, weight: Any | None, rules: ColumnRules) -> Plan:
    values = column.values
    known = values.drop_nulls()
    distinct = known.n_unique()
    if not column.declared and len(known) >= _FEW_ROWS:
        share = distinct / len(known)
        if is_free_text(known, distinct):
            return _plan_free_text(column, rules)
        if share > 0.9:
            each = "one value" if share == 1 else "nearly one value"
            plan = _left_out(column, "identifier", f"{each} per row")
            return plan | {"note": plan["note"] + doubt(known)}
    if distinct == 1 and len(known) == len(values):
        return _left_out(column, "constant", f'always "{known[0]}"')
    limit = rules.max_categories
    many = limit is not None and distinct > limit
    if many and rules.averages:
        return _plan_averages(column, distinct)
    return _plan_one_hot(column, weight, limit)


def _plan_free_text(column: Column, rules: ColumnRules) -> Plan:
    """Terms of the text, or their leading directions; see ``texts``."""
    if rules.text == "drop":
        return _left_out(column, "text", "free text")
    learnt = plan_text_column(column.values, dense=rules.text == "components")
    if learnt is None:
        return _left_out(column, "text", "free text in which no word comes back")
    terms = sum(len(block["terms"]) for block in learnt["blocks"].values())
    treatment = f"{terms:,} words, pairs of words and runs of letters"
    if "directions" in learnt:
        treatment = f"{learnt['directions'].shape[1]} directions of {treatment}"
    return {
        "name": column.name,
        "kind": "text",
        "treatment": treatment,
        "note": "",
        **learnt,
        "missing": column.values.null_count() > 0,
    }


def _plan_averages(column: Column, distinct: int) -> Plan:
    """A category whose columns are still to come; see :func:`add_statistics`."""
    levels = column.values.drop_nulls().unique().sort().to_list()
    return {
        "name": column.name,
        "kind": "category",
        "treatment": f"average target of each of {distinct:,} levels",
        "note": f'"{column.name}" has {distinct:,} categories: each is replaced by the '
        "average target of other rows with it.",
        "levels": levels,
        "missing": column.values.null_count() > 0,
        "statistics": None,
        "profile": profile_levels(column.values),
    }


def add_statistics(
    plan: Plan, codes: Any, folds: Any, T: Any, names: list[str], weight: Any | None
) -> Plan:
    """Complete a plan of many levels; it is left out if they say nothing."""
    n_levels = len(plan["levels"]) + 1  # the last is for gaps
    found, between = level_statistics(codes, n_levels, folds, T, weight)
    if not between.any():
        note = (
            f'"{plan["name"]}" is not used: its {len(plan["levels"]):,} categories '
            "differ in the target by no more than chance."
        )
        return plan | {"treatment": "left out", "note": note, "statistics": None}
    parts = []
    for j, name in enumerate(names):
        part = _plan_part(name, found[folds, codes, j], weight, True)
        if part is not None:
            parts.append(part | {"at": j})
    return plan | {"statistics": found, "parts": parts}


def _plan_one_hot(column: Column, weight: Any | None, limit: int | None) -> Plan:
    values = column.values
    known = values.drop_nulls()
    distinct, missing = known.n_unique(), len(known) < len(values)
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
        notes.append(f'"{column.name}" has mixed types and is read as categories.')
    if other:
        notes.append(
            f'"{column.name}" has {distinct:,} categories: the {len(kept)} most '
            "frequent are kept, and the others share one column."
        )
        notes += [] if column.declared else [doubt(known).strip()]
    treatment = f"one-hot, {len(kept)} levels"
    treatment += " + other" * other + " + missing" * missing
    return {
        "name": column.name,
        "kind": "category",
        "treatment": treatment,
        "note": " ".join(notes).strip(),
        "levels": sorted(kept.to_list()),
        "other": other,
        "missing": missing,
        "profile": profile_levels(values),
    }


def _plan_numbers(column: Column, weight: Any | None, scale: bool) -> Plan:
    x = finite(column.name, column.values)
    missing = bool(np.isnan(x).any())
    part = _plan_part("", x, weight, scale)
    cycle = _plan_cycle(x, weight) if column.clock and part else []
    kind = column.kind
    if part and kind == "boolean":
        part["fill"] = float(part["fill"] > 0.5)
    note = ""
    if part is None and not missing:
        value = f"{x[0]:.6g}" if kind == "number" else str(bool(x[0])).lower()
        if abs(x[0]) >= 2.0**53:
            value += " in the 16 digits of a float"
        return _left_out(column, "constant", f"always {value}")
    if part is None:
        note = (
            f'"{column.name}" has a single value, so only its missing values are used.'
        )
    elif column.values.dtype.is_integer() and float(np.nanmax(np.abs(x))) > 2.0**53:
        note = f'"{column.name}" has integers above 2^53, which are rounded.'
    if column.text is not None:
        mark = f'without "{column.unit}"' if column.unit else "brackets as a minus sign"
        note = f'"{column.name}" is read as numbers, {mark}. {note}'.strip()
    steps = []
    if part is not None:
        as_number = "standardised" if scale else "as it is"
        steps.append("0 or 1" if kind == "boolean" else as_number)
        steps += ["minutes of the day, as a cycle too"] * bool(cycle)
        if missing:
            steps.append(f"gaps filled by {part['fill']:.4g}")
    if missing:
        steps.append("gaps marked")
    return {
        "name": column.name,
        "kind": kind,
        "treatment": ", ".join(steps),
        "note": note,
        "parts": [*([] if part is None else [part]), *cycle],
        "missing": missing,
        "clock": column.clock,
        "unit": column.unit,
        "profile": profile_numbers(x),
    }


def _plan_cycle(minutes: Any, weight: Any | None) -> list[Plan]:
    """Sines and cosines of the time of the day, which come back at midnight."""
    waves = [
        _plan_part(label, day_wave(minutes, label), weight, False)
        for label in DAY_WAVES
    ]
    return [part for part in waves if part is not None]


def _plan_date(column: Column, weight: Any | None, scale: bool) -> Plan:
    zone = getattr(column.values.dtype, "time_zone", None)
    clock = wall_clock(column.values, zone)
    origin = float(np.nanmin(epoch_days(clock)))
    missing = clock.null_count() > 0
    learnt = [
        _plan_part(
            label,
            date_part(clock, label, origin),
            weight,
            scale and label not in PLAIN,
        )
        for label in date_labels(clock)
    ]
    parts = [part for part in learnt if part is not None]
    bends = [part for part in parts if part["label"].startswith(BEND)]
    for part in bends if scale else []:
        # Together they count as one column, where distances between rows are taken.
        part["spread"] *= math.sqrt(len(bends))
    if not parts and not missing:
        return _left_out(column, "constant", "always the same date")
    steps = _steps([part["label"] for part in parts])
    steps += ["standardised"] * (scale and bool(parts)) + ["gaps marked"] * missing
    return {
        "name": column.name,
        "kind": "date",
        "treatment": ", ".join(steps),
        "note": "",
        "parts": parts,
        "missing": missing,
        "origin": origin,
        "zone": zone,
        "profile": profile_numbers(epoch_days(clock)),
    }


def _steps(labels: list[str]) -> list[str]:
    """The parts of a date in words, cycles and days of the week by one word."""
    found: dict[str, None] = {}
    for label in labels:
        cycle, _, wave = label.partition(" ")
        word = f"{cycle} as a cycle" if wave else label
        word = "a trend that may bend" if label.startswith(BEND) else word
        found["each day of the week" if label in PLAIN and not wave else word] = None
    return list(found)


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
    average: float = (lower + upper) / 2
    return average if math.isfinite(average) else lower / 2 + upper / 2


def _ones_or(weight: Any | None, n: int) -> Any:
    return np.ones(n) if weight is None else weight


def is_used(plan: Plan) -> bool:
    """Tell the columns that are encoded from those left out."""
    return bool(plan["treatment"] != "left out")


def feature_labels(plan: Plan) -> list[str]:
    """Names of the output columns a plan produces, in their order."""
    name = plan["name"]
    if "blocks" in plan:
        return _text_labels(plan)
    if is_wide(plan):
        labels = [f"{name}={level}" for level in plan["levels"]]
        labels += [f"{name}=(other)"] * plan["other"]
        return labels + [f"{name}=(missing)"] * plan["missing"]
    parts = plan.get("parts", [])
    labels = [f"{name} ({p['label']})" if p["label"] else name for p in parts]
    marked = bool(plan.get("missing")) and "statistics" not in plan
    return labels + [f"{name} (missing)"] * marked


def is_wide(plan: Plan) -> bool:
    """Whether a plan gives one 0/1 column for each level."""
    return bool(plan["kind"] == "category") and "statistics" not in plan


def _text_labels(plan: Plan) -> list[str]:
    name = plan["name"]
    if "directions" in plan:
        return [f"{name} ({k + 1})" for k in range(plan["directions"].shape[1])]
    marks = {"words": "“{}”", "letters": "…{}…"}
    return [
        f"{name}: {marks[shape].format(term)}"
        for shape, block in plan["blocks"].items()
        for term in block["terms"]
    ]
