"""Text classifiers: loss, errors and gradient.

    L = Σ sᵢ ℓ(W·hᵢ, yᵢ) / Σ s,   hᵢ = mean of the rows of Z of words and n-grams of i

with ℓ = −log softmax, or −Σ log σ(±s_j) down the path to a leaf. Sums are float64. At
level "quick" on up to 4,096 evenly spaced texts, at "full" on all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit, logsumexp

from certus.certificate import Claim, Strength
from certus.typing import Array

#: Texts on which a fit reports its objective.
EVALUATED = 4096
#: Differences of the loss reported that rounding explains, as a share of 1 + loss.
SAME = 1e-9


class Scorer(NamedTuple):
    """Vectors of features, of outputs, and the tree of the classes if there is one."""

    Z: Array
    W: Array
    tree: Array | None
    n_classes: int


class Texts(NamedTuple):
    """Rows of Z of each text, one after the other; codes of labels, and weights."""

    values: Array
    offsets: Array
    codes: Array
    s: Array
    rows: Array  # which of all texts they are
    n: int  # how many texts there are


class TextMeasures(NamedTuple):
    """Losses, errors and the gradient on some texts."""

    losses: Array
    wrong: Array
    norm: float
    mass: float  # largest |1 − Σ p|


def evaluation_rows(n: int) -> Array:
    """The texts on which the objective is reported: all of few, else evenly spaced.

    Parameters
    ----------
    n : int
        Number of texts.

    Examples
    --------
    >>> from certus.diagnostics.text_classifier import evaluation_rows
    >>> len(evaluation_rows(3)), len(evaluation_rows(100_000))
    (3, 4096)
    """
    return np.unique(np.linspace(0, n - 1, min(n, EVALUATED)).astype(np.int64))


def measure(
    scorer: Scorer, texts: Texts, reported: float, formula: str, fix: str = ""
) -> list[Claim]:
    """Loss, errors and gradient of a text classifier.

    Parameters
    ----------
    scorer : Scorer
        The vectors.
    texts : Texts
        Features and labels of some texts, those of ``evaluation_rows`` among them.
    reported : float
        The loss that the fit found on those of ``evaluation_rows``.
    formula : str
        What the loss is.
    fix : str
        What helps where the loss is not finite.

    Returns
    -------
    list of Claim
        All MEASURED; ``training_loss`` comes first.
    """
    found = _evaluate(scorer, texts)
    at = np.searchsorted(texts.rows, evaluation_rows(texts.n))
    loss = _mean(found.losses[at], texts.s[at])
    m, wrong = len(found.losses), int(found.wrong.sum())
    some = f"{m:,} training texts" if m < texts.n else f"all {m:,} training texts"
    detail = f"mean loss {loss:.4g} on {len(at):,} training texts"
    if m > len(at):
        detail += f", {_mean(found.losses, texts.s):.4g} on {some}"
    if found.mass > SAME:
        detail = "the probabilities of the classes do not sum to 1"
    elif not np.isfinite(loss):
        detail = "the loss is not a finite number: the steps were too large"
    return [
        Claim(
            "training_loss",
            Strength.MEASURED,
            loss,
            objective=formula,
            detail=detail,
            fix="" if np.isfinite(loss) else fix,
        ),
        _reported_claim(loss, reported, len(at)),
        Claim(
            "training_error",
            Strength.MEASURED,
            wrong / m,
            detail=f"{wrong:,} of {some} misclassified",
        ),
        Claim(
            "gradient_norm",
            Strength.MEASURED,
            found.norm,
            detail=f"gradient norm {found.norm:.1e} on {some}",
        ),
    ]


def _reported_claim(loss: float, reported: float, n: int) -> Claim:
    """How far the loss that the fit found is from this one."""
    value = abs(loss - reported) / (1 + loss) if np.isfinite(loss) else np.inf
    value = float(value) if np.isfinite(value) else np.inf
    detail = (
        f"the reported loss, {reported:.6g}, agrees with that of {n:,} training texts"
    )
    fix = ""
    if value > SAME:
        detail = (
            f"the reported loss is {reported:.6g}, but the loss on these texts "
            f"is {loss:.6g}"
        )
        fix = "pass the training texts, or fit again"
    return Claim("reported_loss", Strength.MEASURED, value, detail=detail, fix=fix)


def _mean(losses: Array, s: Array) -> float:
    return float(s @ losses / max(s.sum(), np.finfo(float).tiny))


# -- loss and gradient ------------------------------------------------------------


def _bag(texts: Texts) -> tuple[sparse.csr_matrix, Array]:
    """Shares of the features of each text, and the rows of Z they belong to."""
    values = np.asarray(texts.values, dtype=np.int64)
    used, columns = np.unique(values, return_inverse=True)
    sizes = np.diff(texts.offsets)
    shares = np.repeat(1.0 / np.maximum(sizes, 1), sizes)
    shape = (len(sizes), len(used))
    return sparse.csr_matrix((shares, columns.ravel(), texts.offsets), shape), used


def _evaluate(scorer: Scorer, texts: Texts) -> TextMeasures:
    (bag, used), codes, tree = _bag(texts), texts.codes, scorer.tree
    sizes = np.shape(scorer.Z), np.shape(scorer.W)
    outputs = scorer.n_classes if tree is None else len(tree) // 2
    fits = (
        sizes[0][1:] == sizes[1][1:] and len(sizes[1]) == 2 and sizes[1][0] >= outputs
    )
    if not fits or sizes[0][0] <= int(used.max(initial=-1)):
        raise ValueError("The model's vectors do not match its words. Fit it again.")
    Z = np.asarray(scorer.Z)[used].astype(np.float64)
    W = np.asarray(scorer.W, dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        H = np.asarray(bag @ Z).reshape(len(codes), W.shape[1])
        scores = H @ W.T
        if tree is None:
            logs, slopes, mass = _softmax(scores, codes)
        else:
            logs, slopes, mass = _tree(scores, codes, np.asarray(tree))
        slopes *= (texts.s / max(texts.s.sum(), np.finfo(float).tiny))[:, None]
        along_W, along_Z = slopes.T @ H, bag.T @ (slopes @ W)
        norm = float(np.sqrt(np.vdot(along_W, along_W) + np.vdot(along_Z, along_Z)))
    own = logs[np.arange(len(codes)), codes]
    return TextMeasures(-own, logs.argmax(axis=1) != codes, norm, mass)


def _softmax(scores: Array, codes: Array) -> tuple[Array, Array, float]:
    """Log-probabilities, and the slopes of the loss in the scores."""
    logs = scores - logsumexp(scores, axis=1, keepdims=True)
    slopes = np.exp(logs)
    mass = float(np.abs(slopes.sum(axis=1) - 1).max())
    slopes[np.arange(len(codes)), codes] -= 1
    return logs, slopes, mass


def _tree(scores: Array, codes: Array, tree: Array) -> tuple[Array, Array, float]:
    """As ``_softmax``, walking from each leaf up; sides 1 are right, of chance σ(s)."""
    k = len(tree) // 2 + 1
    up, down = -np.logaddexp(0.0, -scores), -np.logaddexp(0.0, scores)
    right = expit(scores)
    logs, slopes = np.zeros((len(scores), k)), np.zeros_like(scores)
    for leaf in range(k):
        mine = codes == leaf
        vertex, steps = leaf, 0
        while vertex < len(tree) and steps < k:
            node, side = (int(v) for v in tree[vertex])
            logs[:, leaf] += (up if side else down)[:, node]
            slopes[mine, node] += right[mine, node] - side
            vertex, steps = k + node, steps + 1
    return logs, slopes, float(np.abs(np.exp(logs).sum(axis=1) - 1).max())
