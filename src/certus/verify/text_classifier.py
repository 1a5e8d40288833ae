"""Text classifiers: whether the loss they report is the one they state.

    L = Σ sᵢ ℓ(W·hᵢ, yᵢ) / Σ s,   hᵢ = mean of the rows of Z of words and n-grams of i

with ℓ = −log softmax, or −Σ log σ(±s_j) down the path to a leaf. Features are found
here anew, from the words, by dictionaries and a hash of our own in plain Python; sums
are float64. At level "quick" on up to 4,096 evenly spaced texts, at "full" on all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit, logsumexp

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.data import Array

#: Texts on which a fit reports its objective.
EVALUATED = 4096
#: Largest difference of the loss reported, as a share of 1 + loss.
TARGET = 1e-9


class Found(NamedTuple):
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
    >>> from certus.verify.text_classifier import evaluation_rows
    >>> len(evaluation_rows(3)), len(evaluation_rows(100_000))
    (3, 4096)
    """
    return np.unique(np.linspace(0, n - 1, min(n, EVALUATED)).astype(np.int64))


def check_text_classifier(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Recompute loss, errors and gradient; compare with the loss reported.

    ``evidence.params``: loss, reported, class_weight, fix.
    """
    if sample_weight is not None:
        raise ValueError("Text classifiers are fitted without sample_weight.")
    codes = data.codes(y, np.asarray(model.classes_))
    n = len(codes)
    sample = evaluation_rows(n)
    rows = np.arange(n) if level == "full" else sample
    texts, marks = _read(X, codes, rows)
    weight = evidence.params.get("class_weight")
    s = data.weights(None, weight, codes, np.asarray(model.classes_), n)
    found = _evaluate(model, texts, codes[rows], s[rows])
    at = np.searchsorted(rows, sample)
    loss = _mean(found.losses[at], s[sample])
    reported = float(evidence.params["reported"])
    formula = _formula(evidence, weight)
    primary = _reported_claim(loss, reported, found.mass, len(sample), formula)
    if not primary.met:
        fix = "pass the training texts, or fit again"
        if not np.isfinite(reported):
            fix = str(evidence.params.get("fix", ""))
        primary = dataclasses.replace(primary, fix=fix)
    claims = [primary, *_measured(found, _mean(found.losses, s[rows]), n)]
    status = Status.SOLVED if primary.met else Status.TOL_NOT_REACHED
    if not np.isfinite(reported) and not np.isfinite(loss):
        status = Status.DIVERGED
    return claims, status, marks


# -- texts ------------------------------------------------------------------------


def _read(X: Any, codes: Array, rows: Array) -> tuple[list[Any], dict[str, Any]]:
    """The texts of some rows, and the fingerprint of all."""
    chosen = iter(rows.tolist())
    wanted, picked, seen = next(chosen, -1), [], []
    for i, text in enumerate(X):
        seen.append(data.text_code(text))
        if i == wanted:
            picked.append(text)
            wanted = next(chosen, -1)
    if len(seen) != len(codes):
        raise ValueError(f"There are {len(seen)} texts and {len(codes)} labels.")
    return picked, data.text_fingerprint(seen, codes)


def _bag(model: Any, texts: list[Any]) -> tuple[sparse.csr_matrix, Array]:
    """Shares of the features of each text, and the rows of Z they belong to."""
    ends, values = [0], []
    for rows in feature_rows(model, model._contexts(texts)):
        values.extend(rows)
        ends.append(len(values))
    used, columns = np.unique(np.array(values, dtype=np.int64), return_inverse=True)
    sizes = np.diff(ends)
    shares = np.repeat(1.0 / np.maximum(sizes, 1), sizes)
    shape = (len(texts), len(used))
    return sparse.csr_matrix((shares, columns.ravel(), ends), shape), used


def feature_rows(model: Any, documents: Iterable[Sequence[str]]) -> Iterator[list[int]]:
    """The rows of Z of each document, with repetitions.

    Parameters
    ----------
    model : FastTextClassifier
        Fitted.
    documents : iterable of sequences of str
        Words.

    Yields
    ------
    list of int
        Rows of words, of their character n-grams, and of word n-grams.
    """
    places = {word: i for i, word in enumerate(model.vocabulary_)}
    words_at_most, lengths, n_buckets = model.ngrams_
    behind = {int(b): len(places) + i for i, b in enumerate(model.buckets_)}
    pieces: dict[str, list[int]] = {}
    for words in documents:
        rows: list[int] = []
        known = [word for word in words if word in places]
        for word in words:
            if word in places:
                rows.append(places[word])
            if lengths is not None:
                if word not in pieces:
                    pieces[word] = _pieces(word, lengths, n_buckets, behind)
                rows.extend(pieces[word])
        for n in range(2, min(words_at_most, len(known)) + 1):
            for i in range(len(known) - n + 1):
                bucket = _joint_hash(known[i : i + n]) % n_buckets
                if bucket in behind:
                    rows.append(behind[bucket])
        yield rows


def _pieces(
    word: str, lengths: tuple[int, int], n_buckets: int, behind: dict[int, int]
) -> list[int]:
    marked, out = f"<{word}>", []
    for n in range(lengths[0], min(lengths[1], len(marked)) + 1):
        for i in range(len(marked) - n + 1):
            alone = n == 1 and i in (0, len(marked) - 1)
            bucket = _hash(marked[i : i + n]) % n_buckets
            if not alone and bucket in behind:
                out.append(behind[bucket])
    return out


def _hash(text: str) -> int:
    """FNV-1a, 32 bits, of the UTF-8 bytes."""
    h = 2166136261
    for byte in text.encode("utf-8", "surrogatepass"):
        h = (h ^ byte) * 16777619 % 2**32
    return h


def _joint_hash(words: Sequence[str]) -> int:
    h = _hash(words[0])
    for word in words[1:]:
        h = (h * 116049371 + _hash(word)) % 2**64
    return h


# -- loss and gradient ------------------------------------------------------------


def _evaluate(model: Any, texts: list[Any], codes: Array, s: Array) -> Found:
    bag, used = _bag(model, texts)
    sizes = np.shape(model.vectors_), np.shape(model.coef_)
    outputs = len(model.classes_) if model.tree_ is None else len(model.tree_) // 2
    fits = (
        sizes[0][1:] == sizes[1][1:] and len(sizes[1]) == 2 and sizes[1][0] >= outputs
    )
    if not fits or sizes[0][0] <= int(used.max(initial=-1)):
        raise ValueError("The model's vectors do not fit its words. Fit it again.")
    Z = np.asarray(model.vectors_)[used].astype(np.float64)
    W = np.asarray(model.coef_, dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        H = np.asarray(bag @ Z).reshape(len(texts), W.shape[1])
        scores = H @ W.T
        if model.tree_ is None:
            logs, slopes, mass = _softmax(scores, codes)
        else:
            logs, slopes, mass = _tree(scores, codes, np.asarray(model.tree_))
        slopes *= (s / max(s.sum(), np.finfo(float).tiny))[:, None]
        along_W, along_Z = slopes.T @ H, bag.T @ (slopes @ W)
        norm = float(np.sqrt(np.vdot(along_W, along_W) + np.vdot(along_Z, along_Z)))
    own = logs[np.arange(len(codes)), codes]
    return Found(-own, logs.argmax(axis=1) != codes, norm, mass)


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


def _mean(losses: Array, s: Array) -> float:
    return float(s @ losses / max(s.sum(), np.finfo(float).tiny))


# -- claims -----------------------------------------------------------------------


def _formula(evidence: Evidence, weight: Any) -> str:
    ell = "−log softmax(W·h)_y"
    if evidence.params.get("loss") == "hierarchical":
        ell = "−Σ log σ(±W_j·h) on the way to the leaf y"
    mean = "mean over texts of " if weight is None else "mean, by class weights, of "
    return mean + ell


def _reported_claim(
    loss: float, reported: float, mass: float, n: int, formula: str
) -> Claim:
    value = abs(loss - reported) / (1 + loss) if np.isfinite(loss) else np.inf
    value = value if np.isfinite(value) else np.inf
    whole = mass <= TARGET
    met = bool(value <= TARGET and whole)
    if met:
        detail = f"the loss reported, {reported:.6g}, is that of {n:,} training texts"
    elif not np.isfinite(loss):
        detail = "the loss is no finite number: the steps were too large"
    elif not whole:
        detail = "the probabilities of the classes do not sum to 1"
    else:
        detail = f"the loss reported is {reported:.6g}, that of these texts {loss:.6g}"
    return Claim(
        "reported_loss",
        Strength.PROVED,
        value if whole else np.inf,
        TARGET,
        met,
        formula,
        "recomputed in float64 from the texts and the fitted vectors",
        detail=detail,
    )


def _measured(found: Found, loss: float, n: int) -> list[Claim]:
    """What the fit reached; it promises nothing."""
    m, wrong = len(found.losses), int(found.wrong.sum())
    some = f"{m:,} training texts" if m < n else f"all {m:,} training texts"
    return [
        Claim(
            "training_loss",
            Strength.MEASURED,
            loss,
            detail=f"mean loss {loss:.4g} on {some}",
        ),
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
