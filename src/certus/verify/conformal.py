"""Split conformal prediction: scores of rows kept aside, and the coverage they promise.

A score says how badly a value fits a row: |y − f(x)| for a regressor; for a classifier
1 − p(y | x) or, without probabilities, by how much the best other label beats y. Any
score is valid: the promise rests on the rank of a new row's score among those of the
calibration rows, see ``certus.bounds.conformal``.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np

from certus.bounds.conformal import (
    conformal_quantile,
    conformal_rank,
    coverage_floor,
)
from certus.certificate import Certificate, Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.data import Array
from certus.verify.marks import marks_of
from certus.verify.networks import evenly, rows_for

#: What the certificate states; ``predict_interval`` and ``predict_set`` take any other.
COVERAGE = 0.9
DELTA = 0.05

#: The scores by name, as the certificate words them.
SCORES = {
    "residual": "|y − f(x)|",
    "probability": "1 − p(y | x)",
    "margin": "best score of another label, less that of y",
    "label": "1 if y is not the predicted label, else 0",
}
_EXCHANGEABLE = (
    "calibration rows and new rows are drawn alike (exchangeable: no drift in time, no "
    "groups that span both), and none was used in the fit"
)


def predictions(model: Any, X: Any) -> tuple[Array, float]:
    """What a regressor predicts, in float64, and the relative rounding of it."""
    z = np.asarray(model.predict(X))
    return z.astype(np.float64).ravel(), _rounding(z)


def _rounding(z: Array) -> float:
    return 64 * float(np.finfo(z.dtype if z.dtype.kind == "f" else np.float64).eps)


def label_scores(model: Any, X: Any, kind: str) -> tuple[Array, float]:
    """The score of every label for every row, NaN as inf; and the rounding of them."""
    if kind == "probability":
        z = np.asarray(model.predict_proba(X))
        S = 1.0 - z.astype(np.float64)
    elif kind == "margin":
        z = np.asarray(model.decision_function(X))
        shape = getattr(model, "decision_function_shape", "")
        S = _behind(_by_class(z.astype(np.float64), len(model.classes_), shape))
    else:
        z = np.asarray(model.predict(X))
        S = (z[:, None] != model.classes_).astype(np.float64)
    return np.where(np.isnan(S), np.inf, S), _rounding(z)


def _by_class(z: Array, k: int, shape: str) -> Array:
    """Decision values as one column for each class."""
    if z.ndim == 1:
        return np.column_stack([-z, z])
    if shape != "ovo" or k == 2:
        return z
    total = np.zeros((len(z), k))
    for column, (i, j) in enumerate(combinations(range(k), 2)):
        total[:, i] += z[:, column]
        total[:, j] -= z[:, column]
    return total


def _behind(z: Array) -> Array:
    """By how much the best other column beats each one."""
    second, first = np.sort(z, axis=1)[:, -2:].T[:, :, None]
    with np.errstate(invalid="ignore"):  # inf − inf
        return np.asarray(np.where(z == first, second, first) - z)


def calibration_scores(model: Any, X: Any, y: Any, kind: str) -> Array:
    """The score of each calibration row, in ascending order."""
    if np.ndim(y) > 1 and np.shape(y)[1] > 1:
        raise ValueError(
            f"y_cal has shape {np.shape(y)}: conformal prediction is for one target. "
            "Fit and calibrate a model for each."
        )
    if kind == "residual":
        z, _ = predictions(model, X)
        y = data.numbers(y, len(z))
        with np.errstate(invalid="ignore"):
            scores = np.abs(y.ravel() - z)
        return np.sort(np.where(np.isnan(scores), np.inf, scores))
    try:
        own = data.codes(y, np.asarray(model.classes_))
    except ValueError as error:
        raise ValueError(
            f"{error} Without them the coverage is that of known labels alone."
        ) from None
    S, _ = label_scores(model, X, kind)
    if len(S) != len(own):
        raise ValueError(f"y has {len(own)} rows and X has {len(S)}.")
    return np.sort(S[np.arange(len(own)), own])


def check_conformal(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """State the coverage of the scores in ``evidence``; at full level, recompute them.

    ``evidence.params``: score (a key of ``SCORES``). ``evidence.arrays``: scores.
    """
    kind, scores = str(evidence.params["score"]), evidence.arrays["scores"]
    marks = calibration_marks(model, X, y)
    claims = coverage_claims(scores, kind)
    if level == "full":
        found = calibration_scores(model, X, y, kind)
        if found.shape != scores.shape or not np.allclose(found, scores, 1e-6, 1e-12):
            refusal = "these rows do not have the scores of the calibration"
            claim = Claim("coverage", Strength.REFUSED, detail=refusal)
            return [claim], Status.REFUTED, marks
    return claims, Status.SOLVED, marks


def calibration_marks(model: Any, X: Any, y: Any) -> dict[str, Any]:
    """Fingerprint of the rows, made as the fit of the model makes it.

    Only their number, where they are neither numbers nor texts nor read by a network.
    """
    own = getattr(getattr(model, "certificate_", None), "evidence", None)
    if own is not None and own.kind == "network":
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        checked = evenly(n, rows_for(n, int(own.params.get("parameters", 0))))
        return marks_of(X, y, None, checked)
    if isinstance(X, list | tuple) and X and isinstance(X[0], str):
        return _text_marks(X, y)
    try:
        X = data.as_matrix(X)
    except ValueError:  # texts, or rows of a kernel of the user's own
        return _text_marks(X, y)
    if not hasattr(X, "format") and X.dtype.kind == "f" and np.isnan(X).any():
        X = np.nan_to_num(X)
    y = np.asarray(y)
    numeric = y.dtype.kind in "fiub"
    target = y.astype(np.float64) if numeric else np.unique(y, return_inverse=True)[1]
    return data.fingerprint(X, np.reshape(target, -1), np.ones(X.shape[0]))


def _text_marks(X: Any, y: Any) -> dict[str, Any]:
    rows = list(X)
    for row in rows:
        words = [row] if isinstance(row, str) else row
        if not isinstance(words, list | tuple) or not all(
            isinstance(word, str) for word in words
        ):
            return {"shape": [len(rows), 0]}
    target = np.unique(np.asarray(y), return_inverse=True)[1]
    return data.text_fingerprint([data.text_code(row) for row in rows], target)


def was_calibrated_on(model: Any, stated: Certificate, X: Any, y: Any) -> bool:
    """Whether these are the rows of that calibration of the model."""
    if y is None or "x" not in stated.fingerprint:
        return False
    marks = calibration_marks(model, X, y)
    return "x" in marks and data.same_data(stated.fingerprint, marks)


def coverage_claims(
    scores: Array, kind: str, coverage: float = COVERAGE, delta: float = DELTA
) -> list[Claim]:
    """What n calibration scores promise, on average and given these rows.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Of the calibration rows.
    kind : str
        A key of ``SCORES``.
    coverage, delta : float
        What is promised of a new row; the chance that the calibration rows mislead.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.verify.conformal import coverage_claims
    >>> for claim in coverage_claims(np.arange(1.0, 100.0), "residual"):
    ...     print(claim.detail, "|", claim.basis)
    on average at least 90 % of new rows lie within ±90 of the prediction | statistical
    with these 99 calibration rows at least 84.7 % do | 95 % sure
    """
    n, percent = len(scores), f"{100 * coverage:.4g} %"
    k = conformal_rank(n, coverage)
    about = f"score {SCORES[kind]} of {n:,} calibration rows"
    interval = kind == "residual"
    if k > n:
        least = math.ceil(round(coverage / (1 - coverage), 9))
        whole = "the interval is infinite" if interval else "the set holds every label"
        refusal = Claim(
            "coverage",
            Strength.REFUSED,
            objective=about,
            detail=f"{n} calibration rows are too few for {percent}: {whole}",
            fix=f"calibrate on at least {least:,} rows",
        )
        return [refusal]
    q = conformal_quantile(scores, coverage)
    what = (
        f"lie within ±{q:.3g} of the prediction"
        if interval
        else "have their label in predict_set"
    )
    marginal = Claim(
        "coverage",
        Strength.STATISTICAL,
        k / (n + 1),
        coverage,
        met=True,
        objective=about,
        theorem="the rank of a new score among exchangeable ones is uniform",
        assumptions=(_EXCHANGEABLE,),
        detail=f"on average at least {percent} of new rows {what}",
    )
    floor = coverage_floor(n, coverage, delta)
    given = Claim(
        "coverage_floor",
        Strength.STATISTICAL,
        floor,
        met=True,
        theorem="given the calibration rows, coverage is at least Beta(k, n + 1 − k)",
        assumptions=("calibration rows and new rows are independent",),
        delta=delta,
        detail=f"with these {n:,} calibration rows at least {100 * floor:.3g} % do",
    )
    return [marginal, given]
