"""Refits on the training rows: folds, and whether more rows would help.

Cross-validation on the training rows alone, so nothing sealed is looked at. The sizes
of a learning curve double, so the largest costs as much as all the others; a curve
stops if the time left is too short for its next point, and says so.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold

from certus.callbacks import unwatched
from certus.config import config_context
from certus.report.document import Figure
from certus.report.rows import PredictionTask, TableRows, deviation
from certus.typing import Array

__all__ = [
    "FEWEST",
    "SMALL",
    "Fold",
    "Learning",
    "Split",
    "cut_folds",
    "first_line",
    "is_clear",
    "learning",
    "moments",
    "run_fold",
    "splits",
]

_FOLDS = 5
_SIZES = 6
FEWEST = 10  # rows that a learning curve starts from
SMALL = 0.02  # a share of the error that is too small to mention
_TESTED = 2_000  # rows that a fold is tested on, at most

Split = tuple[Array, Array]


class Learning(NamedTuple):
    """A learning curve, and the predictions of rows that their model had not seen."""

    figure: Figure | None
    reason: str
    errors: tuple[float, ...] = ()  # one for each fold, at the largest size
    constant: tuple[float, ...] = ()
    held_out: TableRows | None = None
    guess: Array | None = None
    shares: Array | None = None
    size: int = 0  # the largest there was time for
    seconds: float = 0.0  # of one fit at that size


def splits(
    rows: TableRows, task: PredictionTask, cv: Any, rng: np.random.Generator
) -> list[Split]:
    """The folds: those given, or five shuffled ones, stratified where possible."""
    if cv is None:
        folds = min(_FOLDS, rows.size // 2)
        if folds < 2:
            return []
        kind: Any = KFold
        if task.labels and np.unique(rows.y, return_counts=True)[1].max() >= folds:
            kind = StratifiedKFold
        cv = kind(folds, shuffle=True, random_state=int(rng.integers(2**31)))
    found = cv.split(np.zeros(rows.size), rows.y) if hasattr(cv, "split") else cv
    # Shuffled inside, so that the first rows of a fold stand for all of them.
    return [(rng.permutation(train), rng.permutation(test)) for train, test in found]


def learning(
    model: Any,
    rows: TableRows,
    task: PredictionTask,
    folds: Sequence[Split],
    seconds: float,
) -> Learning:
    """Error on held-out and on training rows as the number of training rows doubles."""
    if not folds:
        return Learning(None, "too few rows to set some aside")
    full = min(len(train) for train, _ in folds)
    sizes = [full >> k for k in range(_SIZES) if full >> k >= FEWEST][::-1] or [full]
    deadline = time.perf_counter() + seconds
    some = folds[: _affordable(model, rows, task, folds, sizes[0], seconds)]
    points, last, reason = _points(model, rows, task, some, sizes, deadline)
    if not points:
        return Learning(None, reason)
    figure = None
    if points[1:]:
        figure = _learning_figure(points, (sizes[-1], len(folds)), rows, task)
    size, best = points[-1]
    reason = "" if figure else "too few rows, or too little time, for a second size"
    index = np.concatenate([fold.test for fold in best])
    shares = [fold.shares for fold in best if fold.shares is not None]
    return Learning(
        figure,
        reason,
        errors=tuple(fold.held_out for fold in best),
        constant=tuple(fold.constant for fold in best),
        held_out=rows.take(index),
        guess=np.concatenate([fold.guess for fold in best]),
        shares=np.concatenate(shares) if len(shares) == len(best) else None,
        size=size,
        seconds=last / len(best),
    )


def _affordable(
    model: Any,
    rows: TableRows,
    task: PredictionTask,
    folds: Sequence[Split],
    size: int,
    seconds: float,
) -> int:
    """How many folds leave time for larger sizes: those that take a quarter of it."""
    for _ in range(2):  # the first time may be spent on compiling
        start = time.perf_counter()
        with contextlib.suppress(Exception):  # so few rows may lack a label
            run_fold(clone(model), rows, task, cut_folds(folds, size)[0])
        count = int(0.25 * seconds / (time.perf_counter() - start))
        if count >= len(folds):
            break
    return max(2, min(len(folds), count))


def _points(
    model: Any,
    rows: TableRows,
    task: PredictionTask,
    folds: Sequence[Split],
    sizes: list[int],
    deadline: float,
) -> tuple[list[tuple[int, list[Fold]]], float, str]:
    """Refits for each size there is time for, the seconds of the last, a complaint."""
    points: list[tuple[int, list[Fold]]] = []
    before, last, reason = 0.0, 0.0, ""
    for size in sizes:
        # The next size takes as much longer as the last one did, or a little more.
        growth = min(max(1.0, last / before), 8.0) if before else 1.5
        start = time.perf_counter()
        if points and start + growth * last > deadline:
            break
        try:
            done = [
                run_fold(clone(model), rows, task, f) for f in cut_folds(folds, size)
            ]
        except Exception as error:  # again: try a larger size
            reason = f"refitting failed ({first_line(error)})"
            continue
        before, last = last, time.perf_counter() - start
        points.append((size, done))
    return points, last, reason


def cut_folds(folds: Sequence[Split], size: int) -> list[Split]:
    """The first training rows of each fold, this many, in the order of the table."""
    return [(np.sort(train[:size]), np.sort(test[:_TESTED])) for train, test in folds]


def on_rows(model: Any, index: Array, n: int) -> Any:
    """The unfitted model, for these of n rows: the folds that it names are cut to them.

    A model that was calibrated on a fold of the training rows names them by their
    places, which are other ones in a part of these rows.
    """
    place = np.full(n, -1)
    place[index] = np.arange(len(index))
    for name, cv in model.get_params().items():
        if name.rpartition("__")[2] != "cv" or not isinstance(cv, list | tuple):
            continue
        if any(np.max(part, initial=-1) >= n for fold in cv for part in fold):
            cv = len(cv) + 1  # places among other rows than these
        else:
            parts = [[place[np.asarray(part)] for part in fold] for fold in cv]
            cv = [tuple(part[part >= 0] for part in fold) for fold in parts]
        model.set_params(**{name: cv})
    return model


class Fold(NamedTuple):
    """Errors of one refit, and what it predicted."""

    training: float
    held_out: float
    constant: float
    test: Array
    guess: Array
    shares: Array | None


def run_fold(model: Any, rows: TableRows, task: PredictionTask, fold: Split) -> Fold:
    """Fit on one part and measure errors on both, and that of the best constant."""
    train, test = rows.take(fold[0]), rows.take(fold[1])
    with config_context(certify="never"):
        unwatched(on_rows(model, fold[0], rows.size)).fit(train.X, train.y)
    said = task.ask(model, test.X)
    few = min(train.size, _TESTED)
    seen = train.take(np.linspace(0, train.size - 1, few).astype(int))
    return Fold(
        training=task.error(seen.y, task.ask(model, seen.X)),
        held_out=task.error(test.y, said),
        constant=task.error(test.y, task.always(train.y, test.size)),
        test=fold[1],
        guess=said.guess,
        shares=said.shares,
    )


def first_line(error: Exception) -> str:
    """The first line of an error."""
    return str(error).partition("\n")[0].rstrip(".")


def _learning_figure(
    points: list[tuple[int, list[Fold]]],
    planned: tuple[int, int],
    rows: TableRows,
    task: PredictionTask,
) -> Figure:
    """The figure, with a note if there was no time for all sizes and folds."""
    sizes = [size for size, _ in points]
    held_out = np.array([[fold.held_out for fold in done] for _, done in points])
    training = np.array([[fold.training for fold in done] for _, done in points])
    constant = float(np.mean([fold.constant for fold in points[-1][1]]))
    folds = held_out.shape[1]
    caption = (
        f"{folds} folds of {rows.size:,} {rows.kind}; mean and standard deviation of "
        f"the {task.metric.label} over the folds, measured. The parameters are those "
        "of the fitted model, so values may differ from those of a comparison, in "
        "which each fold chooses its own."
    )
    tested = max(len(fold.test) for fold in points[-1][1])
    if tested == _TESTED:
        caption += f" Each fold is tested on {_TESTED:,} rows."
    if sizes[-1] < planned[0]:
        caption += (
            f" The time limit stopped it at {sizes[-1]:,} of {planned[0]:,} rows."
        )
    if folds < planned[1]:
        caption += f" The time limit allowed only {folds} of {planned[1]} folds."
    return Figure(
        "learning",
        "Would more rows help?",
        _learning_answer(sizes, planned[0], held_out, training, task),
        caption,
        {
            "measure": task.measure,
            "metric": task.metric.label,
            "percent": task.percent,
            "always": f"always {task.constant}",
            "sizes": sizes,
            "held_out": moments(held_out),
            "training": moments(training),
            "constant": constant,
            "folds": folds,
            "rows": rows.size,
        },
    )


def moments(values: Array) -> dict[str, list[float]]:
    """Mean and standard deviation over the folds, row by row."""
    mean = values.mean(axis=1)
    return {"mean": mean.tolist(), "sd": deviation(values).tolist()}


def is_clear(differences: Array) -> bool:
    """Whether a mean over folds is well above the differences between folds."""
    count = len(differences)
    spread = deviation(differences) / count**0.5
    return count > 1 and bool(differences.mean() > 2.0 * spread)


def _learning_answer(
    sizes: list[int],
    planned: int,
    held_out: Array,
    training: Array,
    task: PredictionTask,
) -> str:
    sign = task.metric.loss(1.0)
    drop = sign * (held_out[-2] - held_out[-1])
    now, before = float(held_out[-1].mean()), float(held_out[-2].mean())
    step = f"from {sizes[-2]:,} to {sizes[-1]:,} rows"
    label = task.metric.label
    if sizes[-1] < planned / 2:
        return (
            f"There was no time to tell: going {step} moved the {label} from "
            f"{task.show(before)} to {task.show(now)}, but the model learns from "
            f"{planned:,} rows or more."
        )
    if is_clear(drop) and drop.mean() > SMALL * abs(before):
        moved, way = ("lowered", "falling") if sign > 0 else ("raised", "rising")
        return (
            f"Probably. Going {step} {moved} the {label} from {task.show(before)} to "
            f"{task.show(now)}, and the curve may still be {way}."
        )
    answer = (
        f"Not much, it seems. Going {step} moved the {label} from {task.show(before)} "
        f"to {task.show(now)}, which is within the variation between folds."
    )
    if sign * (now - training[-1].mean()) < 0.1 * abs(now):
        answer += (
            f" The {label} of training and of held-out rows is close: a richer model "
            "or other columns may help more."
        )
    return answer
