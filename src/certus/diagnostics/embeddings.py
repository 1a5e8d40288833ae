"""Vectors trained by negative sampling: the loss of a sample of pairs.

    L = mean over sampled pairs (x, w) of −log σ(h_x·u_w) − Σⱼ log σ(−h_x·u_{nⱼ})

A sample names places in the corpus: of a word x, or a text x, and of the word w it
predicts; and the words nⱼ drawn as noise. Which words stand there is read from the
corpus passed, so other texts give another loss. h_x is the vector of the word, of the
text, or the mean over the text's words. All sums are float64. The loss, its gradient
and the order of scores are those of these pairs: nothing is said about the minimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit

from certus.certificate import Claim, Strength
from certus.typing import Array

#: Differences from the loss reported that rounding explains, as a share of 1 + loss;
#: means of vectors are rounded to float32 on the way.
SAME, SAME_MEANS = 1e-9, 1e-6
_FORMULA = "mean over sampled pairs of −log σ(h·u) − Σ log σ(−h·uⱼ), {} drawn for each"
_FIX = "pass the training texts, or fit again"


class JudgedPairs(NamedTuple):
    """Pairs by which vectors are judged.

    ``kind`` says what the inputs are: the places of "word"s, numbers of a "text", or of
    texts whose "mean" predicts words of texts at most ``reach`` away.
    """

    kind: str
    inputs: Array
    targets: Array
    noise: Array
    reach: int = 0


class DocumentCodes(NamedTuple):
    """Documents as positions among this many words, one after the other."""

    ids: Array
    offsets: Array
    n_words: int


class WordPairs(NamedTuple):
    """Inputs as rows of H, the words they are paired with, and which row each is of."""

    H: Array
    which: Array
    words: Array  # (n, k + 1): the true word, then the noise


class PairMeasures(NamedTuple):
    """What the sample tells."""

    loss: float
    gradient: float
    above: float  # share of drawn words that score below the true one; ties are half


def measure(
    Z: Array,
    U: Array,
    corpus: DocumentCodes,
    sample: JudgedPairs,
    reported: float,
    fix: str = "",
) -> list[Claim]:
    """Loss, gradient and order of scores of a sample of pairs.

    Parameters
    ----------
    Z : ndarray of shape (n_words or n_texts, n_components)
        Vectors of the inputs.
    U : ndarray of shape (n_words, n_components)
        Vectors of the words that are predicted.
    corpus : DocumentCodes
        The texts.
    sample : JudgedPairs
        Pairs in them.
    reported : float
        The loss that the fit found.
    fix : str
        What helps where the loss is not finite.

    Returns
    -------
    list of Claim
        All MEASURED; ``sample_loss`` comes first.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.diagnostics.embeddings import DocumentCodes, JudgedPairs, measure
    >>> corpus = DocumentCodes(np.array([0, 1, 2]), np.array([0, 3]), 3)
    >>> sample = JudgedPairs("word", np.array([0]), np.array([1]), np.array([[2]]))
    >>> zero = np.zeros((3, 4))
    >>> claim = measure(zero, zero, corpus, sample, 2 * np.log(2))[0]
    >>> claim.detail
    'loss 1.386 of 1 pairs; 1.386 for zero vectors'
    """
    problem = _misfit(Z, U, corpus, sample)
    if problem:
        return [
            Claim(
                "sample_loss",
                Strength.MEASURED,
                detail=f"not measured: {problem}",
                fix=_FIX,
            )
        ]
    found = _measure(U, _pairs(Z, corpus, sample))
    told = _reported_claim(found.loss, reported, sample, fix)
    if not np.isfinite(found.loss):
        n = len(sample.noise)
        said = f"the loss of {n:,} sampled pairs is not finite"
        lost = Claim("sample_loss", Strength.MEASURED, found.loss, detail=said, fix=fix)
        return [lost, told]
    return [*_claims(found, sample), told]


def _misfit(Z: Array, U: Array, corpus: DocumentCodes, sample: JudgedPairs) -> str:
    """Why the sample cannot be one of this corpus and these vectors, or nothing."""
    n, words, kind = len(corpus.ids), corpus.n_words, sample.kind
    _, inputs, targets, noise, reach = sample
    n_inputs = len(corpus.offsets) - 1
    if U.shape[0] != words or Z.shape[0] != (n_inputs if kind == "text" else words):
        return "the number of vectors is not the number of words or texts"
    if Z.shape[1] != U.shape[1] or noise.ndim != 2 or noise.shape[:1] != targets.shape:
        return "the sizes of the vectors and of the sample do not match"
    bound = n if kind == "word" else n_inputs
    inside = _within(inputs, bound) and _within(targets, n) and _within(noise, words)
    if not inside or not len(targets) or inputs.shape != targets.shape:
        return "the sampled positions do not exist in these texts"
    home = np.searchsorted(corpus.offsets, targets, side="right") - 1
    if kind == "word":
        own = np.searchsorted(corpus.offsets, inputs, side="right") - 1
        paired = (own == home) & (inputs != targets)
    elif kind == "text":
        paired = home == inputs
    else:
        away = np.abs(home - inputs)
        paired = (away > 0) & (away <= reach)
    return "" if paired.all() else "the sampled positions are not pairs in these texts"


def _within(places: Array, bound: int) -> bool:
    return places.size == 0 or (places.min() >= 0 and places.max() < bound)


def _pairs(Z: Array, corpus: DocumentCodes, sample: JudgedPairs) -> WordPairs:
    """Input vectors in float64, and the words that stand at the sampled places."""
    words = np.column_stack([corpus.ids[sample.targets], sample.noise])
    if sample.kind == "word":
        inputs = corpus.ids[sample.inputs]
    else:
        inputs = sample.inputs
    rows, which = np.unique(inputs, return_inverse=True)
    if sample.kind == "mean":
        H = np.array([_mean_vector(Z, corpus, i) for i in rows])
    else:
        H = Z[rows].astype(np.float64)
    return WordPairs(H, which, words)


def _mean_vector(Z: Array, corpus: DocumentCodes, i: int) -> Array:
    own = corpus.ids[corpus.offsets[i] : corpus.offsets[i + 1]]
    return np.asarray(Z[own].mean(axis=0, dtype=np.float64))


def _measure(U: Array, pairs: WordPairs) -> PairMeasures:
    """Loss, gradient and signs; one column of words at a time."""
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
    return PairMeasures(float(losses.mean()), gradient, above)


def _reported_claim(
    loss: float, reported: float, sample: JudgedPairs, fix: str
) -> Claim:
    """How far the loss that the fit found is from this one."""
    n, same = len(sample.noise), SAME_MEANS if sample.kind == "mean" else SAME
    value = abs(loss - reported) / (1 + abs(loss)) if np.isfinite(loss) else np.inf
    detail = (
        f"the reported loss, {reported:.6g}, agrees with that of {n:,} sampled pairs"
    )
    if not np.isfinite(loss):
        detail = f"the loss of {n:,} sampled pairs is not finite"
    elif value > same:
        detail = (
            f"the loss of {n:,} sampled pairs is {loss:.6g}, not the {reported:.6g} "
            "reported"
        )
        fix = _FIX
    else:
        fix = ""
    return Claim(
        "reported_loss", Strength.MEASURED, float(value), detail=detail, fix=fix
    )


def _claims(found: PairMeasures, sample: JudgedPairs) -> list[Claim]:
    n, k = sample.noise.shape
    chance = (k + 1) * np.log(2.0)
    return [
        Claim(
            "sample_loss",
            Strength.MEASURED,
            found.loss,
            objective=_FORMULA.format(k),
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
            detail="the true word scores higher than a random one in "
            f"{100 * found.above:.3g} % of cases (50 % by chance)",
        ),
    ]
