"""The folded part of a report: the data, the parameters, the comparison as data."""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.report.predictions import coefficients
from certus.report.rows import PredictionTask, TableRows, column_names
from certus.unwrapping import innermost, unwrap
from certus.wording import clean, number, plain, shorten

__all__ = ["comparison", "data", "params"]

_COLUMNS = 200  # listed one by one
_COEFFICIENTS = 30


def comparison(found: Any) -> dict[str, Any] | None:
    """A comparison as JSON-ready data, with its table as it is printed."""
    if found is None:
        return None
    result: dict[str, Any] = plain(found.to_dict())
    table = [list(map(str, row)) for row in found.table()]
    trials = [
        [
            clean(step.name),
            step.part,
            "–" if np.isnan(step.error) else found.show(step.error),
            clean(step.outcome),
        ]
        for step in found.plan
        if step.part.endswith("of fold 1")
    ]
    named = {"table": table, "trials": trials, "metric_label": found.metric.label}
    return result | named


def data(
    model: Any, task: PredictionTask, rows: TableRows | None, unseen: TableRows | None
) -> dict[str, Any]:
    """Rows, target, and what became of each column."""
    some = rows or unseen
    if some is None:
        return {}
    encoder: Any = getattr(model, "encoder_", None)
    found: dict[str, Any] = {
        "training_rows": 0 if rows is None else rows.size,
        "unseen_rows": 0 if unseen is None else unseen.size,
        "unseen_kind": "" if unseen is None else unseen.kind,
        "columns": len(column_names(some.X)),
        "target": clean(task.target),
        "task": "classification" if task.labels else "regression",
        "spread": _spread(some, task),
        "summary": encoder.summary() if hasattr(encoder, "summary") else "",
        "notes": [clean(note) for note in getattr(encoder, "notes_", [])],
        "treatment": _treatment(encoder),
        "coefficients": _coefficients(model, some),
    }
    return found


def _spread(rows: TableRows, task: PredictionTask) -> str:
    if not task.labels:
        low, high = float(np.min(rows.y)), float(np.max(rows.y))
        return f"{number(low, 4)} … {number(high, 4)}"
    labels, counts = np.unique(rows.y, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    shown = [f"{shorten(str(labels[i]), 20)} {counts[i]:,}" for i in order[:6]]
    more = len(labels) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _treatment(encoder: Any) -> list[list[str]]:
    """Name, kind and treatment of each column."""
    views = getattr(encoder, "columns_", [])
    if not views or not hasattr(views[0], "treatment"):
        return []
    return [[clean(v.name), v.kind, clean(v.treatment)] for v in views[:_COLUMNS]]


def _coefficients(model: Any, rows: TableRows) -> dict[str, Any]:
    """The largest coefficients, with the standard deviation of their columns."""
    found = coefficients(model, rows)
    if found is None:
        return {}
    names, coef, sd = found
    labels: Any = getattr(model, "classes_", None)
    several = len(coef) > 1 and labels is not None
    heads = [shorten(str(label), 20) for label in labels] if several else [""]
    if len(heads) != len(coef):
        return {}
    return {
        "heads": heads,
        "names": [clean(name) for name in names[:_COEFFICIENTS]],
        "values": coef.T[:_COEFFICIENTS].tolist(),
        "sd": sd[:_COEFFICIENTS].tolist(),
        "total": len(names),
    }


def params(model: Any, rows: TableRows | None) -> dict[str, str]:
    """The parameters of the estimator itself, as text."""
    inner = model if rows is None else innermost(unwrap(model, rows.X)[0])
    found = inner.get_params(deep=False) if hasattr(inner, "get_params") else {}
    return {
        str(k): shorten(" ".join(repr(v).split()), 80) for k, v in sorted(found.items())
    }
