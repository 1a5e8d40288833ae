"""CV+ for table pipelines: intervals and sets from models that each lack one fold.

After a refit no row is left to calibrate on. Each row has the score that the model
without its fold gives it; :mod:`certus.bounds.conformal` has the formulas, and the
verifier states the coverage.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.bounds.conformal import cv_plus_coverage, cv_plus_ends, cv_plus_holds
from certus.conformal import label_scores, predictions, row_scores, score_kind
from certus.typing import Array, MatrixLike

__all__ = [
    "PromisedCoverage",
    "cross_intervals",
    "cross_sets",
    "held_out_scores",
    "promised_coverage",
]


class PromisedCoverage(NamedTuple):
    """What the intervals or sets of a model promise when a coverage is asked for.

    ``least`` is the share of new rows that they hold on average, None where this is
    only measured; ``folds`` counts those of CV+, and is 0 for calibration rows.
    """

    least: float | None
    folds: int = 0


def promised_coverage(model: Any, coverage: float) -> PromisedCoverage:
    """What a calibrated model promises; after a refit, less a term for the folds.

    Examples
    --------
    >>> from certus.tables.crossing import promised_coverage
    >>> promised_coverage(object(), 0.9)
    PromisedCoverage(least=0.9, folds=0)
    """
    stated = getattr(model, "calibration_certificate_", None)
    evidence = getattr(stated, "evidence", None)
    if evidence is None or evidence.kind != "cross":
        return PromisedCoverage(coverage)
    folds = len(model.fold_models_)
    if not evidence.witness.repeated:
        return PromisedCoverage(None, folds)
    n = int((np.asarray(evidence.witness.folds) >= 0).sum())
    # Towards zero, as it is shown.
    least = math.floor(1000 * cv_plus_coverage(n, folds, coverage)) / 1000
    return PromisedCoverage(least, folds)


def held_out_scores(member: Any, X: MatrixLike, y: Array) -> Array:
    """Scores of rows that a pipeline was not fitted to; inf for a label it lacks.

    None instead of a pipeline stands for a fit that failed.
    """
    if member is None:
        return np.full(len(y), np.inf)
    inner, Z, _ = member._predictor(X)
    kind = score_kind(inner)
    if kind == "residual":
        return row_scores(inner, Z, y, kind)
    S, _ = label_scores(inner, Z, kind)
    at = {label: i for i, label in enumerate(np.asarray(inner.classes_).tolist())}
    own = np.array([at.get(label, -1) for label in np.asarray(y).tolist()])
    return np.where(own < 0, np.inf, S[np.arange(len(own)), own])


def cross_intervals(pipeline: Any, X: MatrixLike, coverage: float) -> Array:
    """Lower and upper ends for each row, outwards by the rounding."""
    members, scores = pipeline.fold_models_, _by_fold(pipeline)
    n = len(np.asarray(pipeline.predict(X)))
    centres, rounding = np.full((n, len(members)), np.nan), 0.0
    for k, member in enumerate(members):
        if member is not None:
            inner, Z, _ = member._predictor(X)
            centres[:, k], error = predictions(inner, Z)
            rounding = max(rounding, error)
    low, high = cv_plus_ends(centres, scores, coverage)
    size = np.maximum(np.abs(low), np.abs(high))
    known = np.where(np.isfinite(centres), np.abs(centres), 0.0).max(axis=1)
    reach = rounding * np.where(np.isfinite(size), np.maximum(size, known), 0.0)
    return np.column_stack([low - reach, high + reach])


def cross_sets(pipeline: Any, X: MatrixLike, coverage: float) -> Array:
    """Which labels each set holds, in the order of ``classes_``."""
    classes = np.asarray(pipeline.classes_).tolist()
    n = len(np.asarray(pipeline.predict(X)))
    found = []
    for member in pipeline.fold_models_:
        full = np.full((n, len(classes)), np.inf)
        if member is not None:
            inner, Z, _ = member._predictor(X)
            S, rounding = label_scores(inner, Z, score_kind(inner))
            size = np.abs(np.where(np.isinf(S), 0.0, S)).max(axis=1, keepdims=True)
            places = [classes.index(c) for c in np.asarray(inner.classes_).tolist()]
            full[:, places] = S - rounding * size  # a tie keeps the label
        found.append(full)
    return cv_plus_holds(found, _by_fold(pipeline), coverage)


def _by_fold(pipeline: Any) -> list[Array]:
    """The scores of the rows of each fold."""
    witness = pipeline.calibration_certificate_.evidence.witness
    folds = np.asarray(witness.folds)
    scores = np.asarray(witness.scores, dtype=np.float64)
    return [scores[folds == k] for k in range(len(pipeline.fold_models_))]
