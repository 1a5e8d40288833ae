"""Split conformal prediction: scores of rows kept aside, and their coverage.

A score says how badly a value fits a row: |y − f(x)| for a regressor; for a classifier
1 − p(y | x) or, without probabilities, by how much the best other label beats y; for a
density how unlikely the row is. Any score is valid. If n calibration scores and a new
one are exchangeable, the rank of the new one is uniform (ties only help), so it lies at
or below the k-th smallest with probability at least k/(n + 1); given the calibration
rows, that probability is at least a Beta(k, n + 1 − k) variable (Vovk 2012).
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from scipy.special import betaincinv

from certus.certificate import Claim, Status, Strength
from certus.evidence import ConformalWitness
from certus.fingerprints import in_each_way, same_rows
from certus.typing import Array, ArrayLike, Fit, MatrixLike
from certus.verify.deciding import refused, status_of
from certus.verify.kernel import reading
from certus.verify.stating import Checked
from certus.verify.statistical import SURE, outwards

#: What the certificate states, in percent; predictions may ask for any other.
PERCENT = 90
DELTA = 0.05

#: Kinds of scores that judge labels.
LABELS = ("probability", "margin", "label")
#: The scores by name, as the certificate words them.
SCORES = {
    "residual": "|y − f(x)|",
    "probability": "1 − p(y | x)",
    "margin": "best score of another label minus the score of y",
    "label": "1 if y is not the predicted label, else 0",
    "density": "outlier_scores(x)",
}
_EXCHANGEABLE = (
    "calibration rows and new rows are exchangeable (the same source, no drift in "
    "time, no groups that span both), and none was used in the fit"
)


def score_of(model: Fit) -> str:
    """Which score a model has, by the methods that it has."""
    if hasattr(model, "outlier_scores"):
        return "density"
    if not hasattr(model, "classes_"):
        return "residual"
    if hasattr(model, "predict_proba"):
        return "probability"
    return "margin" if hasattr(model, "decision_function") else "label"


def own_scores(model: Fit, X: MatrixLike, y: ArrayLike) -> Array:
    """The scores of rows with their own y, ascending; inf where they are NaN."""
    return np.sort(row_scores(model, X, y))


def row_scores(model: Fit, X: MatrixLike, y: ArrayLike) -> Array:
    """The score of each row with its own y, in order; inf where it is NaN."""
    kind = score_of(model)
    with np.errstate(invalid="ignore"):  # inf − inf
        if kind == "density":
            found = np.asarray(model.outlier_scores(X), dtype=np.float64)
        elif kind == "residual":
            z = np.asarray(model.predict(X), dtype=np.float64).ravel()
            found = np.abs(reading.numbers(y, len(z)).ravel() - z)
        else:
            classes = np.asarray(model.classes_)
            found = _by_label(model, X, kind, reading.codes(y, classes), classes)
    return np.where(np.isnan(found), np.inf, found)


def _by_label(model: Fit, X: object, kind: str, own: Array, classes: Array) -> Array:
    rows, k = np.arange(len(own)), len(classes)
    if kind == "label":
        return np.asarray(model.predict(X) != classes[own], dtype=np.float64)
    if kind == "probability":
        P = np.asarray(model.predict_proba(X), dtype=np.float64)
        return np.asarray(1.0 - P[rows, own])
    z = np.asarray(model.decision_function(X), dtype=np.float64)
    z = np.column_stack([-z, z]) if z.ndim == 1 else z
    if getattr(model, "decision_function_shape", "") == "ovo" and k > 2:
        pairs = np.array(list(combinations(range(k), 2)))
        z = z @ (np.eye(k)[pairs[:, 0]] - np.eye(k)[pairs[:, 1]])
    others = np.where(np.arange(k) == own[:, None], -np.inf, z).max(axis=1)
    return np.asarray(others - z[rows, own])


def check_conformal(
    model: Fit, witness: ConformalWitness, X: MatrixLike, y: ArrayLike, level: str
) -> Checked:
    """State the coverage of the scores in ``witness``; at full level, recompute them.

    Rows of the fit are refused, in any order.
    """
    scores = np.sort(np.asarray(witness.scores, dtype=np.float64))
    marks, reason = next(in_each_way(X, y)), ""
    if level == "full":
        found = own_scores(model, X, y)
        if found.shape != scores.shape or not np.allclose(found, scores, 1e-6, 1e-12):
            reason = "the scores of these rows are not those of the calibration"
    if seen_in_fit(model, X, y):
        reason = "these are rows of the fit, which the model fits better than new rows"
    if not (0 < witness.delta < 1 and 0 < witness.share <= 1):
        reason = "delta and its share are not between 0 and 1"
    if reason:
        return [refused("coverage", reason, "")], Status.REFUTED, marks
    kind = score_of(model)
    alone = commonest(y) if kind in LABELS else None
    claims = coverage_claims(
        scores, kind, delta=witness.delta, share=witness.share, alone=alone
    )
    return claims, stated_status(claims[0]), marks


def commonest(y: ArrayLike) -> str | None:
    """Who answers the label that most rows have reaches the share of PERCENT, too.

    A sentence, or None where that is not so.
    """
    labels, counts = np.unique(np.asarray(y), return_counts=True)
    most, n = int(counts.max(initial=0)), int(counts.sum())
    if not n or 100 * most < PERCENT * n:
        return None
    text = str(labels[counts.argmax()])
    text = text if text.isprintable() else ascii(text)[1:-1]
    share = outwards(100 * most / n, up=False, digits=3)
    return (
        f'{share:.3g} % of these rows have the label "{text}", so sets that hold '
        "nothing else would do, too"
    )


def stated_status(claim: Claim) -> Status:
    """Of a coverage that needs no target: stated or not."""
    if claim.strength is Strength.STATISTICAL and claim.target is None:
        return Status.SOLVED
    return status_of(claim)


def seen_in_fit(model: Fit, X: MatrixLike, y: ArrayLike) -> bool:
    """Whether these are the rows of the fit, in that order or another.

    Numeric targets must agree too: an experiment may repeat the same X. Fits encode
    labels in different ways, so for labels X decides.
    """
    fit = getattr(getattr(model, "certificate_", None), "fingerprint", {})
    amounts = score_of(model) == "residual"
    return any(same_rows(fit, marks, amounts) for marks in in_each_way(X, y))


def coverage_claims(
    scores: Array,
    kind: str,
    *,
    delta: float = DELTA,
    share: float = 1.0,
    alone: str | None = None,
) -> list[Claim]:
    """What n calibration scores guarantee, on average and given these rows.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Of the calibration rows, ascending.
    kind : str
        A key of ``SCORES``.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. The statement
        is the coverage given these rows, with others that hold together with it.
    share : float, default=1
        Share of delta that is spent on it.
    alone : str, optional
        Why the coverage is reached without a model; then it counts as no success.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.verify.conformal import coverage_claims
    >>> for claim in coverage_claims(np.arange(1.0, 100.0), "residual"):
    ...     print(claim.detail, "|", claim.basis)
    on average at least 90 % of new rows lie within ±90 of the prediction | statistical
    with these 99 calibration rows it is at least 84.6 % | 95 % sure
    """
    n, interval = len(scores), kind == "residual"
    k = -(-(n + 1) * PERCENT // 100)  # in whole numbers: 0.9 is none in floats
    about = f"score {SCORES[kind]} of {n:,} calibration rows"
    if k > n or scores[k - 1] == np.inf:
        whole = "the interval is infinite" if interval else "the set holds every label"
        whole = "no row raises an alarm" if kind == "density" else whole
        few = "are too few" if k > n else "have too many predictions that are NaN"
        said = f"{n} calibration rows {few} for {PERCENT} %: {whole}"
        fix = f"calibrate on at least {math.ceil(PERCENT / (100 - PERCENT))} rows"
        return [refused("coverage", said, fix, objective=about)]
    q = outwards(float(scores[k - 1]), up=True, digits=3)
    reach = f"{q:,.0f}" if 1000 <= q < 1e9 else f"{q:.3g}"
    near = f"lie within ±{reach} of the prediction"
    what = near if interval else "have their label in predict_set"
    if kind == "density":
        what = f"raise no alarm at level {1 - PERCENT / 100:.2g}"
    said = f"on average at least {PERCENT} % of new rows {what}"
    marginal = Claim(
        "coverage",
        Strength.STATISTICAL,
        k / (n + 1),
        PERCENT / 100 if alone is None else None,
        True if alone is None else None,
        objective=about,
        theorem="the rank of a new score among exchangeable scores is uniform",
        assumptions=(_EXCHANGEABLE,),
        detail=said if alone is None else f"{said}; {alone}",
    )
    floor = float(betaincinv(k, n + 1 - k, delta * share * (1 - SURE)))
    least = outwards(100 * floor, up=False, digits=3)
    together = "; the other statements about these rows hold with it"
    given = Claim(
        *("coverage_floor", Strength.STATISTICAL, floor),
        theorem="given the calibration rows, coverage is at least Beta(k, n + 1 − k)"
        f"{together if share < 1 else ''}",
        assumptions=("calibration rows and new rows are independent",),
        delta=delta,
        detail=f"with these {n:,} calibration rows it is at least {least:.3g} %",
    )
    return [marginal, given]
