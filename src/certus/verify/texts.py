"""How the verifier reads a corpus, and whether its words were counted right.

Documents come as texts, which the model's own reader splits into words (what a word is
belongs to the statement, not to its proof), or numbered, as ``fit`` left them. Counts
are then taken here anew: by ``bincount``, by walking through the occurrences of a word,
and at level "full" by one sparse sum per distance. A corpus leaves a fingerprint of its
words in their order, the same however they were numbered.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify.data import Array

EPS = float(np.finfo(np.float64).eps)
#: Words whose documents and neighbours are counted again at level "quick".
SAMPLE = 16
#: Numbers handled at a time.
BLOCK = 1 << 17
MIX = np.uint64(0x9E3779B97F4A7C15)


class Corpus(NamedTuple):
    """Words, and the documents as positions among them, one after the other."""

    words: list[str]
    ids: Array
    offsets: Array
    others: Counter[str] | None = None


def read(model: Any, X: Any, count_others: bool = False) -> Corpus:
    """The corpus that the model's words speak of; other words are passed over.

    ``X`` is what ``fit`` numbered, or the documents themselves; ``count_others`` also
    counts the words of the latter that the model does not have.
    """
    words = list(model.vocabulary_)
    if hasattr(X, "ids") and hasattr(X, "offsets"):
        if list(X.words) != words:
            raise ValueError(
                "The corpus was encoded with another vocabulary than the model's; "
                "pass the documents."
            )
        return Corpus(words, np.asarray(X.ids), np.asarray(X.offsets))
    position = dict(zip(words, range(len(words))))
    others: Counter[str] | None = Counter() if count_others else None
    ids, ends = array("i"), array("q", [0])
    for document in model._contexts(X):
        ids.extend(position[word] for word in document if word in position)
        ends.append(len(ids))
        if others is not None:
            others.update(word for word in document if word not in position)
    found = np.array(ids, dtype=np.int32)
    return Corpus(words, found, np.array(ends, dtype=np.int64), others)


def fingerprint(corpus: Corpus, targets: Array | None = None) -> dict[str, Any]:
    """Documents, words, tokens, and sums over checksums of words times positions.

    Arithmetic modulo 2⁶⁴ is exact, so equal corpora agree to the bit on any machine. It
    detects mistakes (other texts, another order), not adversaries. ``targets`` are the
    codes or numbers of labelled documents.
    """
    checksums = (zlib.crc32(w.encode("utf-8", "surrogatepass")) for w in corpus.words)
    table = np.fromiter(checksums, np.uint64, len(corpus.words)) * MIX + MIX
    mark = _sum_of_products(table, corpus.ids)
    ends = np.asarray(corpus.offsets)
    mark ^= _sum_of_products(None, ends) * 3 % 2**64
    target = 0.0
    if targets is not None:
        values = np.asarray(targets, dtype=np.float64)
        target = float(values @ (np.modf(np.arange(1, len(values) + 1) * 0.618)[0]))
    return {
        "shape": [len(ends) - 1, len(corpus.words)],
        "dtype": "text",
        "weight": float(len(corpus.ids)),
        "x": float(mark >> 11),  # what float64 holds exactly
        "x_scale": 0.0,
        "y": target,
    }


def _sum_of_products(table: Array | None, ids: Array) -> int:
    """Σ table[ids[p]]·(2p + 1) modulo 2⁶⁴."""
    total = 0
    for start in range(0, len(ids), BLOCK):
        part = ids[start : start + BLOCK]
        values = part.astype(np.uint64) * MIX if table is None else table[part]
        odd = np.arange(start, start + len(part), dtype=np.uint64)
        total += int(np.sum(values * (odd + odd + np.uint64(1)), dtype=np.uint64))
    return total % 2**64


def sample(n: int, level: str, size: int = SAMPLE) -> Array:
    """Positions of frequent and rare words alike; all of them at level "full"."""
    if level == "full" or n <= size:
        return np.arange(n)
    return np.unique(np.geomspace(1, n, size).astype(np.int64) - 1)


# -- words ------------------------------------------------------------------------


def check_word_counts(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Count words and the documents that hold them, and compare with the model's."""
    raw = not hasattr(X, "ids")
    corpus = read(model, X, count_others=level == "full" and raw)
    n = len(corpus.words)
    wrong = np.zeros(n, dtype=bool)
    stated = np.asarray(model.counts_)
    if stated.shape != (n,) or np.shape(model.document_counts_) != (n,):
        wrong[:] = True
    else:
        wrong |= stated != _bincount(corpus.ids, n)
        some = sample(n, level)
        held = _document_counts(corpus, some)
        wrong[some] |= np.asarray(model.document_counts_)[some] != held
    same = len(corpus.offsets) - 1 == model.n_documents_
    bad = int(wrong.sum()) if same else n
    detail = f"the counts of all {n:,} words are those of the documents"
    if bad:
        detail = f"the counts of {bad:,} of {n:,} words are not those of the documents"
    claims = [
        Claim(
            "word_counts",
            Strength.PROVED,
            float(bad),
            0.0,
            bad == 0,
            "n_w = how often word w occurs",
            "every word counted again; the documents that hold it for "
            f"{len(sample(n, level)):,} of {n:,} words",
            detail=detail,
            fix="" if bad == 0 else "pass the training documents, or fit again",
        )
    ]
    if corpus.others is not None:
        claims.append(_vocabulary_claim(model, evidence, stated, corpus.others))
    met = all(claim.met for claim in claims)
    claims.sort(key=lambda claim: claim.met is True)
    status = Status.SOLVED if met else Status.TOL_NOT_REACHED
    return claims, status, fingerprint(corpus)


def stated_counts_claims(model: Any, corpus: Corpus) -> list[Claim]:
    """Whether ``counts_``, kept beside other results, are those of the documents.

    Words in another order than their vectors are found by it, too.
    """
    stated = getattr(model, "counts_", None)
    if stated is None:
        return []
    n = len(corpus.words)
    found = _bincount(corpus.ids, n)
    fits = np.shape(stated) == (n,)
    bad = int(np.count_nonzero(np.asarray(stated) != found)) if fits else n
    detail = f"the counts of all {n:,} words are those of the documents"
    if bad:
        detail = f"the counts of {bad:,} of {n:,} words are not those of the documents"
    return [
        Claim(
            "word_counts",
            Strength.PROVED,
            float(bad),
            0.0,
            bad == 0,
            "n_w = how often word w occurs",
            "every word counted again",
            detail=detail,
            fix="" if bad == 0 else "pass the training documents, or fit again",
        )
    ]


def _bincount(ids: Array, n: int) -> Array:
    counts = np.zeros(n, dtype=np.int64)
    for start in range(0, len(ids), BLOCK):
        counts += np.bincount(ids[start : start + BLOCK], minlength=n)
    return counts


def _document_counts(corpus: Corpus, words: Array) -> Array:
    """How many documents hold each of these words."""
    if len(words) > 4 * SAMPLE:
        return np.bincount(presence(corpus).indices, minlength=len(corpus.words))[words]
    counts = []
    for at in _positions(corpus, words):
        document = np.searchsorted(corpus.offsets, at, side="right")
        counts.append(np.count_nonzero(np.diff(document, prepend=-1)))
    return np.array(counts)


def _positions(corpus: Corpus, words: Array) -> list[Array]:
    """Where each of a few words stands, in one look at the corpus."""
    wanted = np.zeros(len(corpus.words), dtype=bool)
    wanted[words] = True
    parts = []
    for start in range(0, len(corpus.ids), BLOCK):
        part = corpus.ids[start : start + BLOCK]
        parts.append(start + np.flatnonzero(wanted[part]))
    at = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
    which = corpus.ids[at]
    return [at[which == word] for word in words]


def presence(corpus: Corpus) -> Any:
    """Documents × words, one where the document holds the word."""
    shape = (len(corpus.offsets) - 1, len(corpus.words))
    ones = np.ones(len(corpus.ids))
    found = sparse.csr_array((ones, corpus.ids.copy(), corpus.offsets.copy()), shape)
    found.sum_duplicates()
    found.data[:] = 1.0
    return found


def _vocabulary_claim(
    model: Any, evidence: Evidence, counts: Array, others: Counter[str]
) -> Claim:
    """Whether the words kept are frequent enough, and no frequent one is left out."""
    least, most = evidence.params["min_count"], evidence.params["max_words"]
    lowest = int(counts.min()) if len(counts) else 0
    highest = max(others.values(), default=0)
    full = most is not None and len(counts) >= most
    allowed = lowest if full else least - 1
    met = lowest >= least and highest <= allowed and (not full or len(counts) == most)
    return Claim(
        "vocabulary",
        Strength.PROVED,
        float(highest),
        float(allowed),
        bool(met),
        "kept: words that occur min_count times, at most max_words of them",
        "the most frequent word left out is no more frequent than the rule allows",
        detail=f"words kept occur {lowest:,} times at least, words left out "
        f"{highest:,} times at most",
        fix="" if met else "pass the training documents, or fit again",
    )


# -- words in each other's company ------------------------------------------------


def check_cooccurrence(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Count again which words keep company with some words, at "full" with all."""
    corpus = read(model, X)
    n = len(corpus.words)
    matrix = model.matrix_
    some = sample(n, level)
    claims = [counts_claim(corpus, evidence.params, matrix, some)]
    claims += stated_counts_claims(model, corpus)
    claims.sort(key=lambda claim: claim.met is True)
    status = Status.SOLVED if claims[0].met else Status.TOL_NOT_REACHED
    return claims, status, fingerprint(corpus)


def counts_claim(
    corpus: Corpus, params: Any, matrix: Any, words: Array, recount: Any = None
) -> Claim:
    """Rows of stated co-occurrence counts against the same rows counted here."""
    n = len(corpus.words)
    worst, allowance = np.inf, 0.0
    if matrix.shape == (n, n):
        again = cooccurrence_rows(corpus, params, words) if recount is None else recount
        worst, allowance = _farthest(matrix[words], sparse.csr_array(again), params)
    met = worst <= allowance
    detail = f"for {len(words):,} of {n:,} words, every count is that of the documents"
    if not met:
        detail = f"counts of {len(words):,} words are not those of the documents"
    return Claim(
        "cooccurrence_counts",
        Strength.PROVED,
        worst,
        0.0,
        bool(met),
        "n_ij = contexts that hold words i and j (windows: pairs of positions)",
        "these rows counted again, word by word",
        allowance=allowance,
        detail=detail,
        fix="" if met else "pass the training documents, or fit again",
    )


def _farthest(stated: Any, again: Any, params: Any) -> tuple[float, float]:
    """The count farthest from its recount and its rounding, of the largest count.

    Shares 1/distance of a count n are at most n·window many; each rounds the sum.
    """
    gap = abs(sparse.csr_array(stated) - again).tocoo()
    if not gap.nnz:
        return 0.0, 0.0
    size = np.asarray(again[gap.row, gap.col]).ravel()
    allowed = np.zeros(len(size))
    if params["weighting"] == "harmonic":
        allowed = EPS * (8 + params["window"] * size) * size
    at, scale = int(np.argmax(gap.data - allowed)), max(1.0, float(again.max()))
    return float(gap.data[at]) / scale, float(allowed[at]) / scale


def cooccurrence_rows(corpus: Corpus, params: Any, words: Array) -> Any:
    """Rows n_ij of some words i, as a sparse matrix."""
    n = len(corpus.words)
    everything = len(words) > 4 * SAMPLE
    if params["context"] != "window":
        B = presence(corpus)
        return sparse.csr_array(B[:, words].T @ B)
    if everything:
        return sparse.csr_array(_all_windows(corpus, params)[words])
    found = _positions(corpus, words)
    rows = [sparse.csr_array(_window_row(corpus, params, at, n)) for at in found]
    return sparse.csr_array(sparse.vstack(rows))


def _weights(corpus: Corpus, params: Any) -> Array:
    """What a pair counts at each distance that the longest document has."""
    longest = int(np.diff(corpus.offsets).max(initial=1))
    distance = np.arange(1, min(params["window"], longest) + 1)
    return (
        1.0 / distance if params["weighting"] == "harmonic" else np.ones(len(distance))
    )


def _window_row(corpus: Corpus, params: Any, at: Array, n: int) -> Array:
    """What stands around each occurrence of a word, summed."""
    ids, offsets = corpus.ids, corpus.offsets
    document = np.searchsorted(offsets, at, side="right") - 1
    start, end = offsets[document], offsets[document + 1]
    row = np.zeros(n)
    for distance, weight in enumerate(_weights(corpus, params), 1):
        near = (at + distance)[at + distance < end]
        row += weight * np.bincount(ids[near], minlength=n)
        if params["symmetric"]:
            near = (at - distance)[at - distance >= start]
            row += weight * np.bincount(ids[near], minlength=n)
    return row[None]


def _all_windows(corpus: Corpus, params: Any) -> Any:
    """The whole matrix: one sparse sum for each distance."""
    ids, n = corpus.ids, len(corpus.words)
    document = np.repeat(np.arange(len(corpus.offsets) - 1), np.diff(corpus.offsets))
    total = sparse.csr_array((n, n))
    for distance, weight in enumerate(_weights(corpus, params), 1):
        if distance >= len(ids):
            break
        same = document[distance:] == document[:-distance]
        pair = (ids[:-distance][same], ids[distance:][same])
        ones = np.full(len(pair[0]), weight)
        total = total + sparse.coo_array((ones, pair), shape=(n, n)).tocsr()
    return total + total.T if params["symmetric"] else total
