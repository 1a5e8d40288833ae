"""Refits with another penalty: whether the one that was used is right.

Powers of ten around the value used, by cross-validation on the training rows alone; a
model that chose its own penalty is varied as the plain model it chose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from certus.report.curves import (
    FEWEST,
    SMALL,
    Fold,
    Learning,
    Split,
    cut_folds,
    first_line,
    is_clear,
    moments,
    run_fold,
)
from certus.report.document import Figure
from certus.report.rows import PredictionTask, TableRows
from certus.typing import Array, MatrixLike
from certus.unwrapping import innermost, unwrap
from certus.wording import number

__all__ = ["penalty_of", "validation"]

_STEPS = (1, 1 / 10, 10, 1 / 100, 100, 1 / 1000, 1000)
_NEIGHBOURS = (1, 1 / 2, 2, 1 / 4, 4, 1 / 8, 8)

#: Parameters that trade fit against simplicity: the question, and the factors tried.
_TUNED: dict[str, tuple[str, Sequence[float]]] = {
    "alpha": ("Is the penalty right?", _STEPS),
    "C": ("Is the penalty right?", _STEPS),
    "n_neighbors": ("Is the number of neighbours right?", _NEIGHBOURS),
}
_HINTS = {
    "alpha": "larger means simpler",
    "C": "smaller means simpler",
    "n_neighbors": "larger means smoother",
}


class _Penalty(NamedTuple):
    """A parameter that can be varied, its value, and the model with another one."""

    name: str
    value: float
    build: Callable[[Any], Any]


def penalty_of(model: Any, X: MatrixLike) -> _Penalty | None:
    """Find the parameter that trades fit against simplicity, if there is one.

    A model that chose its own (``LassoCV``) is varied as the plain model it chose.
    """
    inner = innermost(unwrap(model, X)[0])
    for name in _TUNED:
        value = getattr(inner, name, None)
        if hasattr(inner, f"{name}_") and type(inner).__name__.endswith("CV"):
            value = np.unique(getattr(inner, f"{name}_"))
            value = value.item() if value.size == 1 else None
        if name != "n_neighbors" and getattr(inner, "penalty", "") is None:
            continue
        if isinstance(value, bool) or not np.isscalar(value) or isinstance(value, str):
            continue
        if not 0 < float(value) < np.inf:  # type: ignore[arg-type]
            continue
        plain = _plain_model(inner)
        if plain is None:
            return None

        def build(new: Any, name: str = name, plain: Any = plain) -> Any:
            return _replaced(model, clone(plain).set_params(**{name: new}))

        return _Penalty(name, float(value), build)  # type: ignore[arg-type]
    return None


def _plain_model(inner: Any) -> Any:
    """The estimator without its own search for the penalty, unfitted."""
    name = type(inner).__name__
    if not name.endswith("CV"):
        return clone(inner)
    import importlib

    package = ".".join(type(inner).__module__.split(".")[:2])
    cls = getattr(importlib.import_module(package), name.removesuffix("CV"), None)
    if cls is None:
        return None
    params = inner.get_params(deep=False)
    known = cls().get_params(deep=False)
    kept = {key: value for key, value in params.items() if key in known}
    ratio = getattr(inner, "l1_ratio_", None)
    if "l1_ratio" in known and ratio is not None:
        kept["l1_ratio"] = np.unique(ratio)[0].item() if np.ndim(ratio) else ratio
    return cls(**kept)


def _replaced(model: Any, inner: Any) -> Any:
    """An unfitted copy of a pipeline or search, with another last estimator."""
    if hasattr(model, "best_estimator_"):
        return _replaced(model.best_estimator_, inner)
    if hasattr(model, "estimator_") and hasattr(model, "estimator"):
        # Parameters that the fit chose are not in it: the last estimator has its own.
        last = _replaced(model.estimator_, inner)
        return clone(model).set_params(estimator=last)
    if hasattr(model, "steps"):
        last = _replaced(model.steps[-1][1], inner)
        return clone(model).set_params(**{model.steps[-1][0]: last})
    return inner


def validation(
    penalty: _Penalty,
    rows: TableRows,
    task: PredictionTask,
    folds: Sequence[Split],
    seconds: float,
    done: Learning,
) -> tuple[Figure | None, str]:
    """Error on held-out and training rows as the penalty moves by powers of ten."""
    question, factors = _TUNED[penalty.name]
    values = list(_values(penalty, factors))
    budget = len(values) * len(folds) * max(done.seconds, 1e-4)
    size = int(min(1.0, seconds / budget) * done.size)
    if size < min(FEWEST, done.size):
        return None, "a single fit takes too long to try other values"
    cut = cut_folds(folds, size)
    deadline = time.perf_counter() + 1.5 * seconds
    found: dict[float, list[Fold]] = {}
    for value in values:
        if time.perf_counter() > deadline:
            break
        try:
            found[value] = [run_fold(penalty.build(value), rows, task, f) for f in cut]
        except Exception as error:
            if value == values[0]:
                return None, f"refitting failed ({first_line(error)})"
    if len(found) < 3:
        return None, "not enough time to try three values"
    return _validation_figure(question, penalty, found, size, rows, task), ""


def _values(penalty: _Penalty, factors: Iterable[float]) -> Iterable[Any]:
    seen = set()
    for factor in factors:
        value: Any = penalty.value * factor
        if penalty.name == "n_neighbors":
            value = max(1, round(value))
        if value not in seen:
            seen.add(value)
            yield value


def _validation_figure(
    question: str,
    penalty: _Penalty,
    found: dict[float, list[Fold]],
    trained: int,
    rows: TableRows,
    task: PredictionTask,
) -> Figure:
    values = sorted(found)
    held_out = np.array([[fold.held_out for fold in found[v]] for v in values])
    training = np.array([[fold.training for fold in found[v]] for v in values])
    used = values.index(next(iter(found)))
    sign = task.metric.loss(1.0)
    best = int(np.argmin(sign * held_out.mean(axis=1)))
    folds = held_out.shape[1]
    caption = (
        f"{folds} folds of {rows.size:,} {rows.kind}, {trained:,} rows in each fit; "
        f"{penalty.name}: {_HINTS[penalty.name]}. Mean and standard deviation over "
        "the folds, measured. The other parameters are those of the fitted model, so "
        "values may differ from those of a comparison."
    )
    if trained < 0.7 * rows.size * (folds - 1) / folds:
        caption += (
            " Because of the time limit, not all rows were used; the best value can"
        )
        caption += " depend on their number."
    return Figure(
        "validation",
        question,
        _validation_answer(penalty, values, held_out, used, best, task),
        caption,
        {
            "measure": task.measure,
            "metric": task.metric.label,
            "percent": task.percent,
            "parameter": penalty.name,
            "values": [float(value) for value in values],
            "used": float(values[used]),
            "best": float(values[best]),
            "held_out": moments(held_out),
            "training": moments(training),
            "folds": folds,
            "rows": rows.size,
        },
    )


def _validation_answer(
    penalty: _Penalty,
    values: list[float],
    held_out: Array,
    used: int,
    best: int,
    task: PredictionTask,
) -> str:
    name, now = penalty.name, float(held_out[used].mean())
    mine = f"{name} = {number(values[used])}"
    other = f"{name} = {number(values[best])}"
    if best == used:
        return (
            f"Yes: of the values tried, {mine} had the best {task.metric.label}, "
            f"{task.show(now)}."
        )
    least = float(held_out[best].mean())
    lowest = task.show(least)
    gain = task.metric.loss(1.0) * (held_out[used] - held_out[best])
    if not is_clear(gain) or gain.mean() < SMALL * abs(now):
        return (
            f"Yes, as far as the folds can tell: {other} gave {lowest} and {mine}, "
            f"the one used, gave {task.show(now)}, which is not a clear difference."
        )
    edge = best in (0, len(values) - 1)
    more = ", and a value outside the range tried may be even better" if edge else ""
    return (
        f"No: {other} moved the {task.metric.label} from {task.show(now)} ({mine}, the "
        f"one used) to {lowest}{more}."
    )
