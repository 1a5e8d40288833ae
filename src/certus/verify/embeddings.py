"""Vectors trained by negative sampling: whether the loss they report is theirs.

    L = mean over sampled pairs (x, w) of −log σ(h_x·u_w) − Σⱼ log σ(−h_x·u_{nⱼ})

The evidence names places in the corpus: of a word x, or a text x, and of the word w it
predicts; and the words nⱼ drawn as noise. Which words stand there is read from the
corpus passed, so other texts give another loss. h_x is the vector of the word, of the
text, or the mean over the text's words. All sums are float64. The loss, its gradient
and the order of scores are those of these pairs: nothing is said about the minimum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import texts
from certus.verify.data import Array
from certus.verify.text_classifier import feature_rows

#: Largest difference from the loss reported, as a share of 1 + loss; means of vectors
#: are rounded to float32 on the way.
TARGET, TARGET_MEANS = 1e-9, 1e-6
#: Largest difference between a vector and the mean of its rows: rounding to float32.
COMPOSITION = 1e-5
TINY = float(np.finfo(np.float32).tiny)
#: Words whose vectors are put together again at level "quick".
COMPOSED = 64
_FORMULA = "mean over sampled pairs of −log σ(h·u) − Σ log σ(−h·uⱼ), {} drawn for each"
_FIX = "pass the training texts, or fit again"


class Pairs(NamedTuple):
    """Inputs as rows of H, the words they are paired with, and which row each is of."""

    H: Array
    which: Array
    words: Array  # (n, k + 1): the true word, then the noise


class Found(NamedTuple):
    """What the sample tells."""

    loss: float
    gradient: float
    above: float  # share of drawn words that score below the true one; ties are half


def check_negative_sampling(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Recompute the loss of the sample, and compare with the one reported.

    ``evidence.params``: inputs ("word", "text" or "mean"), reach (of a "mean", in
    texts), reported, fix. ``evidence.arrays``: ``inputs``, ``targets``, ``noise``.
    """
    corpus = texts.read(model, X)
    marks = texts.fingerprint(corpus)
    reported = float(evidence.params["reported"])
    problem = _misfit(model, evidence, corpus)
    if problem:
        claim = _reported_claim(np.inf, reported, evidence, problem)
        return [claim], Status.TOL_NOT_REACHED, marks
    found = _measure(model, _pairs(model, evidence, corpus))
    claims = [_reported_claim(found.loss, reported, evidence)]
    if not np.isfinite(found.loss):
        return claims, Status.DIVERGED, marks
    claims += _measured_claims(found, evidence)
    claims += texts.stated_counts_claims(model, corpus)
    if hasattr(model, "subword_vectors_"):
        claims.append(_composition_claim(model, level))
    claims.sort(key=lambda claim: claim.met is not False)
    status = Status.SOLVED if claims[0].met is not False else Status.TOL_NOT_REACHED
    return claims, status, marks


def _misfit(model: Any, evidence: Evidence, corpus: texts.Corpus) -> str:
    """Why the sample cannot be one of this corpus and this model, or nothing."""
    n, words = len(corpus.ids), len(corpus.words)
    kind = evidence.params["inputs"]
    inputs, targets, noise = (
        np.asarray(evidence.arrays[name]) for name in ("inputs", "targets", "noise")
    )
    U = np.asarray(model.context_vectors_)
    Z = np.asarray(model.document_vectors_ if kind == "text" else model.vectors_)
    n_inputs = len(corpus.offsets) - 1
    if U.shape[0] != words or Z.shape[0] != (n_inputs if kind == "text" else words):
        return "the model has vectors for another number of words or texts"
    if Z.shape[1] != U.shape[1] or noise.shape[:1] != targets.shape:
        return "the vectors and the sample do not fit together"
    bound = n if kind == "word" else n_inputs
    inside = _within(inputs, bound) and _within(targets, n) and _within(noise, words)
    if not inside or not len(targets) or len(inputs) != len(targets):
        return "the sampled places do not exist in these texts"
    home = np.searchsorted(corpus.offsets, targets, side="right") - 1
    if kind == "word":
        own = np.searchsorted(corpus.offsets, inputs, side="right") - 1
        paired = (own == home) & (inputs != targets)
    elif kind == "text":
        paired = home == inputs
    else:
        away = np.abs(home - inputs)
        paired = (away > 0) & (away <= evidence.params["reach"])
    return "" if paired.all() else "the sampled places are no pairs in these texts"


def _within(places: Array, bound: int) -> bool:
    return places.size == 0 or (places.min() >= 0 and places.max() < bound)


def _pairs(model: Any, evidence: Evidence, corpus: texts.Corpus) -> Pairs:
    """Input vectors in float64, and the words that stand at the sampled places."""
    arrays = evidence.arrays
    inputs = np.asarray(arrays["inputs"])
    words = np.column_stack([corpus.ids[arrays["targets"]], arrays["noise"]])
    kind = evidence.params["inputs"]
    if kind == "mean":
        rows, which = np.unique(inputs, return_inverse=True)
        H = np.array([_mean_vector(model.vectors_, corpus, i) for i in rows])
        return Pairs(H, which, words)
    table = model.document_vectors_ if kind == "text" else model.vectors_
    rows = inputs if kind == "text" else corpus.ids[inputs]
    rows, which = np.unique(rows, return_inverse=True)
    return Pairs(np.asarray(table)[rows].astype(np.float64), which, words)


def _mean_vector(vectors: Array, corpus: texts.Corpus, i: int) -> Array:
    own = corpus.ids[corpus.offsets[i] : corpus.offsets[i + 1]]
    return np.asarray(vectors[own].mean(axis=0, dtype=np.float64))


def _measure(model: Any, pairs: Pairs) -> Found:
    """Loss, gradient and signs; one column of words at a time."""
    U = np.asarray(model.context_vectors_)
    n, columns = pairs.words.shape
    H = pairs.H[pairs.which]
    losses, scores = np.zeros(n), np.empty((n, columns))
    slopes, steps = np.empty((n, columns)), np.zeros(H.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        for j in range(columns):
            u = U[pairs.words[:, j]].astype(np.float64)
            sign = 1.0 if j == 0 else -1.0
            scores[:, j] = sign * np.einsum("id,id->i", H, u)
            losses += np.logaddexp(0.0, -scores[:, j])
            slopes[:, j] = -sign * expit(-scores[:, j]) / n
            steps += slopes[:, j : j + 1] * u
        places = (pairs.which, np.arange(n))
        inner = sparse.csr_array((np.ones(n), places), (len(pairs.H), n)) @ steps
        used, which = np.unique(pairs.words, return_inverse=True)
        owner = np.repeat(np.arange(n), columns)
        spread = (slopes.ravel(), (which.ravel(), owner))
        outer = sparse.csr_array(spread, shape=(len(used), n)) @ H
    lead = scores[:, :1] + scores[:, 1:]  # those of drawn words carry a minus
    above = float(np.mean(lead > 0) + np.mean(lead == 0) / 2)
    gradient = float(np.hypot(np.linalg.norm(inner), np.linalg.norm(outer)))
    return Found(float(losses.mean()), gradient, above)


def _reported_claim(
    loss: float, reported: float, evidence: Evidence, problem: str = ""
) -> Claim:
    n, k = np.shape(evidence.arrays["noise"])
    target = TARGET_MEANS if evidence.params["inputs"] == "mean" else TARGET
    value = abs(loss - reported) / (1 + abs(loss)) if np.isfinite(loss) else np.inf
    met = bool(value <= target)
    detail = f"the loss reported, {reported:.6g}, is that of {n:,} sampled pairs"
    fix = ""
    if problem:
        detail, fix = problem, _FIX
    elif not np.isfinite(loss):
        detail = f"the loss of {n:,} sampled pairs is not finite"
        fix = str(evidence.params["fix"])
    elif not met:
        detail = (
            f"the loss of {n:,} sampled pairs is {loss:.6g}, not the {reported:.6g}"
        )
        detail += " reported"
        fix = _FIX
    return Claim(
        "reported_loss",
        Strength.PROVED,
        float(value),
        target,
        met,
        _FORMULA.format(k),
        "recomputed in float64 from the vectors and the words at the sampled places",
        detail=detail,
        fix=fix,
    )


def _measured_claims(found: Found, evidence: Evidence) -> list[Claim]:
    n, k = np.shape(evidence.arrays["noise"])
    chance = (k + 1) * np.log(2.0)
    return [
        Claim(
            "sample_loss",
            Strength.MEASURED,
            found.loss,
            detail=f"loss {found.loss:.4g} of {n:,} pairs; {chance:.4g} for zero "
            "vectors",
        ),
        Claim(
            "gradient_norm",
            Strength.MEASURED,
            found.gradient,
            detail=f"the gradient of that loss has length {found.gradient:.2e}",
        ),
        Claim(
            "pairs_told_apart",
            Strength.MEASURED,
            found.above,
            detail=f"the true word scores above a drawn one in {100 * found.above:.3g} "
            "% of cases, 50 % by chance",
        ),
    ]


def _composition_claim(model: Any, level: str) -> Claim:
    """Whether the vectors of some words are the means of their rows."""
    some = texts.sample(len(model.vocabulary_), level, COMPOSED)
    table, worst = np.asarray(model.subword_vectors_), 0.0
    documents = ([model.vocabulary_[i]] for i in some)
    for i, rows in zip(some, feature_rows(model, documents)):
        inside = rows and max(rows) < len(table)
        mean = table[rows].mean(axis=0, dtype=np.float64) if inside else np.inf
        size = float(np.abs(table[rows]).max()) if inside else 1.0
        with np.errstate(invalid="ignore"):
            off = np.abs(mean - model.vectors_[i]).max()
        sound = np.isfinite(off) and np.isfinite(size)
        worst = max(worst, float(off) / max(size, TINY) if sound else np.inf)
    met = bool(worst <= COMPOSITION)
    detail = f"the vectors of {len(some):,} words are the means of their n-grams' rows"
    if not met:
        detail = f"among {len(some):,} words a vector is no mean of its n-grams' rows"
    return Claim(
        "composition",
        Strength.PROVED,
        worst,
        COMPOSITION,
        met,
        "z_w = mean of the rows of the word and of its character n-grams",
        "n-grams found and hashed anew; differences as a share of the largest entry",
        detail=detail,
        fix="" if met else "fit again, or restore the model file",
    )
