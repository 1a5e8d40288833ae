"""Whether groups are treated alike: the section of an audit about an attribute.

The criteria are measured on rows the model has not seen; without such rows there is no
claim about new rows. All tables together are wrong with probability at most delta.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.bounds.intervals import IID
from certus.certificate import Claim, Strength
from certus.fairness import (
    GroupTable,
    exclusivity,
    independence,
    separation,
    sufficiency,
)
from certus.fairness.groups import classes_of, groups_of
from certus.fairness.table import words
from certus.report.document import Figure
from certus.report.rows import PredictionTask, TableRows, column_names
from certus.typing import Array, MatrixLike
from certus.wording import shorten

__all__ = ["GroupFindings", "JudgedAttribute", "judge", "read"]

_GROUPS = 12  # drawn; the largest ones
_METRICS = 6
_LABELS = 20


class GroupFindings(NamedTuple):
    """Claims about new rows, a figure, and what is missing."""

    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()
    left_out: tuple[str, ...] = ()


class JudgedAttribute(NamedTuple):
    """The attribute of the rows that are judged, and its name."""

    values: Any
    name: str


def read(
    sensitive: MatrixLike, table: Any, rows: Array | None
) -> JudgedAttribute | None:
    """The attribute of some rows of a table, by the name of a column or as given."""
    if sensitive is None:
        return None
    name = ""
    if isinstance(sensitive, str):
        if not hasattr(table, "columns"):
            raise ValueError(
                "sensitive names a column, but the table has no column names; pass "
                "the values, one per row."
            )
        if sensitive not in column_names(table):
            raise ValueError(f"The table has no column “{shorten(sensitive)}”.")
        name, sensitive = sensitive, table[sensitive]
    else:
        given = getattr(sensitive, "columns", None)
        parts = [getattr(sensitive, "name", None)] if given is None else list(given)
        name = ", ".join(str(part) for part in parts if part is not None)
    values = np.asarray(sensitive, dtype=object)
    size = table.shape[0] if hasattr(table, "shape") else len(table)
    if len(values) != size:
        raise ValueError(
            f"sensitive has {len(values):,} rows, but the test table has {size:,}: "
            "they must be equal."
        )
    groups_of(values, size)  # raise errors about groups before the work begins
    return JudgedAttribute(values if rows is None else values[rows], name)


def judge(
    attribute: JudgedAttribute | None,
    task: PredictionTask,
    unseen: TableRows | None,
    guess: Any,
    delta: float,
) -> GroupFindings:
    """Measure the criteria on rows never seen; nothing without an attribute."""
    if attribute is None:
        return GroupFindings()
    values, name = attribute
    if unseen is None or guess is None:
        reason = "all the rows you passed were used in the fit"
        refused = Claim(
            "independence",
            Strength.REFUSED,
            detail=f"nothing can be said about groups of new rows: {reason}",
            fix="set rows aside before the fit and pass them as X_test, y_test",
        )
        return GroupFindings((refused,), (), (f"groups: {reason}",))
    if task.labels and len(set(unseen.y)) > _LABELS:
        return GroupFindings(
            left_out=(f"groups: there are more than {_LABELS} labels",)
        )
    if task.labels:
        share = delta / 4  # three tables and the rates behind their exclusion
        chosen = classes_of(None, y_true=unseen.y, y_pred=guess)
        # The same label counts as chosen in all, even one that was never guessed.
        one = chosen[0] if len(chosen) == 1 else None
        tables = [
            independence(guess, values, positive=one, delta=share),
            separation(unseen.y, guess, values, delta=share),
            sufficiency(unseen.y, guess, values, delta=share),
        ]
        excluded = _exclusion(unseen.y, guess, values, share)
    else:
        tables = [independence(guess, values, scores=True, delta=delta)]
        excluded, chosen = "", []
    claims = tuple(_claim(table) for table in tables)
    by = f" by “{shorten(name)}”" if name else ""
    if len(chosen) == 1:  # of several labels each metric says which it is about
        by += f", positive decisions are “{shorten(str(chosen[0]))}”"
    return GroupFindings(claims, (_figure(tables, unseen, by, delta, excluded),))


def _exclusion(truth: Array, guess: Array, values: Any, delta: float) -> str:
    """Whether base rates keep the criteria from holding together."""
    if len(np.unique(np.concatenate([truth, guess]))) > 2:
        return ""
    said = exclusivity(truth, guess, values, delta=delta).verdict
    return said if "at least" in said else ""


def _claim(table: GroupTable) -> Claim:
    if table.holds is None:
        return Claim(table.criterion, Strength.REFUSED, detail=table.verdict)
    known = [gap.low for gap in table.gaps if not math.isnan(gap.low)]
    gaps = [gap.high for gap in table.gaps if gap.metric in table.decisive]
    return Claim(
        table.criterion,
        Strength.STATISTICAL,
        max(gaps) if table.holds else max(known),
        table.tolerance,
        table.holds,
        assumptions=IID,
        delta=table.delta,
        detail=table.verdict,
    )


def _figure(
    tables: list[GroupTable], unseen: TableRows, by: str, delta: float, excluded: str
) -> Figure:
    said = [t.verdict for t in tables] + ([excluded] if excluded else [])
    answer = " ".join(f"{text[0].upper()}{text[1:]}." for text in said)
    keep = np.sort(np.argsort(-tables[0].counts, kind="stable")[:_GROUPS])
    metrics: dict[str, list[Any]] = {"names": [], "verdicts": []}
    cells: dict[str, list[Any]] = {"values": [], "low": [], "high": [], "sizes": []}
    crowded = 0  # metrics that do not fit into the figure
    for table in tables:
        for i, gap in enumerate(table.gaps):
            if np.isnan(table.low[i]).any():
                continue
            if len(metrics["names"]) == _METRICS:
                crowded += 1
                continue
            metrics["names"].append(gap.metric.replace("_", " ").replace("[", " ["))
            metrics["verdicts"].append(gap.verdict)
            for key, row in cells.items():
                part = getattr(table, key)[i, keep].tolist()
                row.append([None if v != v else v for v in part])
    more = len(tables[0].groups) - len(keep)
    rest = f"; {more:,} smaller groups are not drawn" if more else ""
    rest += f"; {crowded:,} further rates are not drawn" if crowded else ""
    rest += "".join(f"; {note}" for table in tables for note in table.notes[1:])
    return Figure(
        "groups",
        "Are groups treated equally?",
        answer,
        f"{unseen.size:,} {unseen.kind}, grouped{by}; bars: intervals that all hold "
        f"at once with probability {100 * (1 - delta):.4g} %{rest}.",
        {"groups": [words(tables[0].groups[g]) for g in keep], **metrics, **cells},
    )
