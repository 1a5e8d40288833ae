"""CV+: scores of all rows, each by a model that was fitted without the row's fold.

Run at α/2 with K folds of n/K rows, the intervals or sets hold the truth of a new row
with probability at least 1 − α − min{2(1 − 1/K)/(n/K + 1), (1 − K/n)/(K + 1)} (Barber,
Candès, Ramdas and Tibshirani 2021, Theorem 4), if all that was learnt, the choice of
the model included, was learnt without the fold. Otherwise the share is measured.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from certus.certificate import Claim, Status, Strength
from certus.evidence import CrossWitness
from certus.typing import Array, Fit
from certus.verify.conformal import (
    LABELS,
    PERCENT,
    SCORES,
    commonest,
    row_scores,
    score_of,
    stated_status,
)
from certus.verify.deciding import refused
from certus.verify.stating import Checked
from certus.verify.statistical import outwards

_ALIKE = (
    "the rows of the table and new rows are exchangeable (the same source, no drift in "
    "time, no groups that span both)"
)
_APART = "each fold's model, and its choice, used rows of the other folds only"


def check_cross(
    model: Fit, witness: CrossWitness, X: Any, y: Any, level: str
) -> Checked:
    """State the coverage of CV+ from its scores; at full level, recompute them.

    ``model`` has ``fold_models_``, one for each fold or None where a fit failed; each
    is a pair of ``encoder_`` and ``estimator_``.
    """
    scores = np.asarray(witness.scores, dtype=np.float64)
    folds = np.asarray(witness.folds)
    members = list(model.fold_models_)
    marks = {"shape": [len(scores), int(getattr(model, "n_features_in_", 0))]}
    reason = _flaw(scores, folds, len(members))
    if not reason and level == "full":
        found = cross_scores(members, folds, X, np.asarray(y))
        some = folds >= 0
        if not np.allclose(found[some], scores[some], 1e-6, 1e-12):
            reason = "the scores of these rows are not those of the folds' models"
    if reason:
        return [refused("coverage", reason, "")], Status.REFUTED, marks
    kinds = {score_of(each.estimator_) for each in members if each is not None}
    alone = commonest(y) if kinds <= set(LABELS) else None
    claims = [cross_claim(scores, folds, sorted(kinds), witness.repeated, alone)]
    return claims, stated_status(claims[0]), marks


def _flaw(scores: Array, folds: Array, k: int) -> str:
    """Why scores and folds cannot be those of CV+; empty if they can."""
    if scores.ndim != 1 or scores.shape != folds.shape or folds.dtype.kind not in "iu":
        return "scores and folds do not have one whole number for each row"
    sizes = np.bincount(folds[folds >= 0], minlength=k) if len(folds) else np.zeros(1)
    if k < 2 or len(sizes) != k or sizes.min() != sizes.max() or sizes.min() < 1:
        return "the folds are not of one size, or their number is not that of models"
    if np.isnan(scores[folds >= 0]).any():
        return "a score is NaN"
    return ""


def cross_scores(members: list[Any], folds: Array, X: Any, y: Array) -> Array:
    """The score of each row by the model without its fold; inf where there is none."""
    found = np.full(len(folds), np.inf)
    for k, member in enumerate(members):
        if member is None:
            continue
        inner, Z = member.estimator_, member.encoder_.transform(X)
        known = np.ones(len(y), dtype=bool)
        labels = getattr(inner, "classes_", None)
        truth = y
        if labels is not None:
            known = np.isin(y, np.asarray(labels))
            # A label that the model does not know has an infinite score.
            truth = np.where(known, y, np.asarray(labels)[0])
        own = np.where(known, row_scores(inner, Z, truth), np.inf)
        found[folds == k] = own[folds == k]
    return found


def cross_claim(
    scores: Array,
    folds: Array,
    kinds: list[str],
    repeated: bool,
    alone: str | None = None,
) -> Claim:
    """The coverage of CV+ intervals or sets that are asked for at 90 %.

    Parameters
    ----------
    scores, folds : ndarray of shape (n,)
        As in :class:`certus.evidence.CrossWitness`.
    kinds : list of str
        Keys of ``SCORES``.
    repeated : bool
        Whether the choice of the model was repeated without each fold.
    alone : str, optional
        Why the coverage is reached without a model.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.verify.cross_conformal import cross_claim
    >>> scores, folds = np.arange(100.0), np.arange(100) % 5
    >>> print(cross_claim(scores, folds, ["residual"], True).detail)
    intervals asked for at 90 % hold at least 82.3 % of new rows on average
    >>> print(cross_claim(scores, folds, ["residual"], False).strength.value)
    measured
    """
    own, fold = scores[folds >= 0], folds[folds >= 0]
    n, k = len(own), int(fold.max()) + 1
    interval = kinds == ["residual"]
    what = "intervals" if interval else "sets of labels"
    said = "; ".join(SCORES[kind] for kind in kinds)
    about = f"score {said} of {n:,} rows, each by the model without its fold, {k} folds"
    half = Fraction(100 - PERCENT, 200)
    rank = -(-(n + 1) * (1 - half) // 1)
    if rank > n or np.count_nonzero(np.isfinite(own)) < rank:
        few = "are too few" if rank > n else "have too many folds without a model"
        whole = "intervals are infinite" if interval else "sets hold every label"
        reason = f"{n} rows {few} for {PERCENT} %: {whole}"
        return refused("coverage", reason, "collect more rows", objective=about)
    if not repeated:
        return _measured(own, fold, what, about, half)
    # In fractions; the last step to a float is rounded towards less.
    few_rows = Fraction(2 * (k - 1), k) / (Fraction(n, k) + 1)
    many_folds = (1 - Fraction(k, n)) / (k + 1)
    floor = max(Fraction(0), 1 - 2 * half - min(few_rows, many_folds))
    value = max(0.0, float(np.nextafter(float(floor), 0.0)))
    share = outwards(100 * value, up=False, digits=3)
    return Claim(
        *("coverage", Strength.STATISTICAL, value),
        objective=about,
        theorem=f"CV+ at {float(half):g} with {k} folds of {n // k:,} rows: coverage "
        "is at least 1 − α − min{2(1 − 1/K)/(n/K + 1), (1 − K/n)/(K + 1)}",
        assumptions=(_ALIKE, _APART),
        detail=f"{what} asked for at {PERCENT} % hold at least {share:.3g} % of new "
        f"rows on average{'' if alone is None else f'; {alone}'}",
    )


def _measured(own: Array, fold: Array, what: str, about: str, half: Fraction) -> Claim:
    """The share of rows within the scores of the other folds."""
    inside = 0
    for k in range(int(fold.max()) + 1):
        others = np.sort(own[fold != k])
        rank = -(-(len(others) + 1) * (1 - half) // 1)
        limit = others[int(rank) - 1] if rank <= len(others) else np.inf
        inside += int(np.count_nonzero(own[fold == k] <= limit))
    share = inside / len(own)
    return Claim(
        *("coverage", Strength.MEASURED, share, None, None, about),
        detail=f"{what} asked for at {PERCENT} % held about {100 * share:.3g} % of the "
        "rows when their fold was held out; the model was chosen with these rows, so "
        "this is not guaranteed",
    )
