"""Which rows of a new table lie outside what the model was fitted on, and how.

Nothing is predicted badly just because it is new, but a model has no evidence there:
numbers beyond those of training, levels that did not occur, gaps where there were none.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import polars as pl

from certus.tables.apply import EncodedColumns
from certus.tables.plan import Plan
from certus.wording import number, shorten

__all__ = ["unseen_by_row"]

_MOST = 5  # remarks on one row
_EPOCH = dt.datetime(1970, 1, 1)


def unseen_by_row(
    plans: list[Plan], encoded: list[EncodedColumns], height: int
) -> list[str]:
    """What is new about each row, in a few words; empty where nothing is."""
    found: list[list[str]] = [[] for _ in range(height)]
    for plan, columns in zip(plans, encoded):
        profile = plan.get("profile")
        if isinstance(columns.cells, pl.Series):
            remarks = _of_text(plan, profile, columns)
        else:
            remarks = _of_numbers(plan, profile, columns.cells)
        for row, remark in remarks:
            found[row].append(f"{shorten(plan['name'], 30)} {remark}")
    return [_joined(remarks) for remarks in found]


def _joined(remarks: list[str]) -> str:
    more = len(remarks) - _MOST
    shown = "; ".join(remarks[:_MOST])
    return f"{shown}; {more} more" if more > 0 else shown


def _of_numbers(plan: Plan, profile: Any, x: Any) -> list[tuple[int, str]]:
    gaps = np.isnan(x)
    remarks = [] if plan["missing"] else _everywhere(gaps, "is missing")
    if profile is None or plan["kind"] == "boolean":
        return remarks
    show = _day if plan["kind"] == "date" else _plain
    low, high = profile["low"], profile["high"]
    with np.errstate(invalid="ignore"):
        below, above = np.flatnonzero(x < low), np.flatnonzero(x > high)
    remarks += [(int(i), f"= {show(x[i])} is below {show(low)}") for i in below]
    return remarks + [(int(i), f"= {show(x[i])} is above {show(high)}") for i in above]


def _of_text(
    plan: Plan, profile: Any, columns: EncodedColumns
) -> list[tuple[int, str]]:
    text = columns.cells
    gaps = text.is_null().to_numpy()
    remarks = [] if plan["missing"] else _everywhere(gaps, "is missing")
    if plan["kind"] == "text":
        known = _knows_a_term(columns)
        return remarks + _everywhere(
            ~known & ~gaps, "shares no word with the training rows"
        )
    levels = plan["levels"] if profile is None else profile["levels"]
    if profile is not None and profile["more"]:
        return remarks  # more levels than were kept, so that none is surely new
    new = ~text.is_in(levels).fill_null(True).to_numpy()
    cells = text.to_list()
    return remarks + [
        (int(i), f'= "{shorten(str(cells[i]), 30)}" is new')
        for i in np.flatnonzero(new)
    ]


def _knows_a_term(columns: EncodedColumns) -> Any:
    """Whether a row of text holds any term of training."""
    if columns.wide is not None:
        return np.diff(columns.wide.indptr) > 0
    # The directions of a text without a known term are exactly 0.
    return np.any([part != 0 for part in columns.dense], axis=0)


def _everywhere(mask: Any, remark: str) -> list[tuple[int, str]]:
    return [(int(i), remark) for i in np.flatnonzero(mask)]


def _plain(value: float) -> str:
    return number(float(value), 4)


def _day(value: float) -> str:
    return f"{_EPOCH + dt.timedelta(days=float(value)):%Y-%m-%d}"
