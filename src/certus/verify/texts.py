"""How the verifier reads a corpus, and whether its words were counted right.

Documents come as texts, which are split into words here, by the model's parameters and
not by its code; or as numbers assigned by ``fit``, and then that numbering is assumed.
Counts are taken again: by ``bincount``, by walking through the occurrences of a word,
and for many words by one sparse sum per distance. A corpus leaves a fingerprint of its
words in their order, the same however they were numbered.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus import fingerprints
from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify import data
from certus.verify import deciding as bd
from certus.verify.deciding import Number, gamma
from certus.verify.stating import Checked, Given

#: Words whose documents and neighbours are counted again at level "quick".
SAMPLE = 16
#: Numbers handled at a time.
BLOCK = 1 << 17
#: How far counts of 1/distance may be off, each as a share of itself.
SHARES = 1e-9
FIX = "pass the training documents, or fit again"
NUMBERED = "the words of the documents have the same numbers as in the fit"


class Statement(NamedTuple):
    """What counts as a word, which words are kept, and which pairs are counted."""

    tokenizer: Any = None
    ngrams: tuple[int, int] = (1, 1)
    sentences: bool = False
    min_count: int = 1
    max_words: int | None = None
    window: int | None = None  # None: whole documents or sentences
    harmonic: bool = False
    symmetric: bool = True
    pairs: bool = False


def reading(model: Any) -> Statement:
    """The statement made by the parameters of a model of texts."""
    said = model.get_params(deep=False)
    context, most = said.get("context"), said.get("max_words")
    return Statement(
        said.get("tokenizer"),
        said.get("ngram_range", (1, 1)),
        sentences=context == "sentence",
        min_count=int(said.get("min_count", 1)),
        max_words=None if most is None else int(most),
        window=int(said["window"]) if context == "window" else None,
        harmonic=said.get("weighting") == "harmonic",
        symmetric=bool(said.get("symmetric", True)),
        pairs=context is not None,
    )


READERS = {"BagOfWords": reading, "Cooccurrence": reading}


# -- reading ----------------------------------------------------------------------


class _Letters(dict[int, str]):
    """Each character as it is, or a space if no word holds it."""

    def __missing__(self, code: int) -> str:
        c = chr(code)
        mark = code >= 0x300 and unicodedata.category(c)[0] == "M"
        self[code] = c if c.isalnum() or c in "_'’" or mark else " "
        return self[code]


_LETTERS = _Letters()
_QUOTES = re.compile("['’]{2,}")
_ENDS = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*\s+|\n\s*\n|(?<=[。！？])")


def split(text: str, tokenizer: Any = None) -> list[str]:
    """The words of a text: lower-case runs of letters, apostrophes only inside.

    Examples
    --------
    >>> split("Don't panic: x_1 isn't '42'!")
    ["don't", 'panic', 'x_1', "isn't", '42']
    """
    if tokenizer is not None:
        return text.split() if tokenizer == "whitespace" else list(tokenizer(text))
    text = text.lower()
    text = text if text.isascii() else unicodedata.normalize("NFC", text)
    runs = text.translate(_LETTERS).split()
    parts = (part.strip("'’") for run in runs for part in _QUOTES.split(run))
    return [part for part in parts if part]


def contexts(stated: Statement, texts: Any) -> Iterator[list[str]]:
    """The words of each document, or sentence, that the claims are about."""
    whole = isinstance(texts, str | bytes | Mapping) or hasattr(texts, "columns")
    if whole or not isinstance(texts, Iterable) or sparse.issparse(texts):
        raise ValueError("Pass the documents: an iterable of texts or lists of words.")
    low, high = stated.ngrams
    for document in texts:
        parts: list[Any] = [document]
        if isinstance(document, str) and stated.sentences:
            parts = [p for p in map(str.strip, _ENDS.split(document)) if p]
        for part in parts:
            text = isinstance(part, str)
            words = split(part, stated.tokenizer) if text else list(part)
            yield [
                " ".join(words[i : i + n]) if n > 1 else words[i]
                for n in range(low, high + 1)
                for i in range(len(words) - n + 1)
            ]


class Corpus(NamedTuple):
    """Words, and the documents as positions among them, one after the other."""

    words: list[str]
    ids: Array
    offsets: Array
    others: Counter[str] | None = None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions of claims about the documents."""
        return (NUMBERED,) if self.others is None else ()

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The fingerprint of the documents, for any numbering of their words."""
        return fingerprints.of_words(self.words, self.ids, self.offsets)


def read(model: Any, X: Any) -> Corpus:
    """The corpus, restricted to the model's words; other words are only counted.

    ``X`` is what ``fit`` numbered, or the documents themselves.
    """
    words = list(data.listed(model, "vocabulary_"))
    if hasattr(X, "ids") and hasattr(X, "offsets"):
        if list(X.words) != words:
            other = "The corpus was encoded with another vocabulary"
            raise ValueError(f"{other}; pass the documents.")
        return Corpus(words, np.asarray(X.ids), np.asarray(X.offsets))
    position = dict(zip(words, range(len(words))))
    others: Counter[str] = Counter()
    ids, ends = array("i"), array("q", [0])
    for document in contexts(reading(model), X):
        ids.extend(position[word] for word in document if word in position)
        ends.append(len(ids))
        others.update(word for word in document if word not in position)
    found = np.array(ids, dtype=np.int32)
    return Corpus(words, found, np.array(ends, dtype=np.int64), others)


def sample(n: int, level: str, size: int = SAMPLE) -> Array:
    """Positions of frequent and rare words alike; all of them at level "full"."""
    if level == "full" or n <= size:
        return np.arange(n)
    return np.unique(np.geomspace(1, n, size).astype(np.int64) - 1)


# -- claims -----------------------------------------------------------------------


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Count words, or pairs of words, and compare with the model's counts."""
    bd.refuse_weights(model, given.sample_weight)
    corpus = read(model, given.X)
    some = sample(len(corpus.words), given.level)
    claims = counts_claims(model, stated, corpus, None if stated.pairs else some)
    if stated.pairs:
        claims.insert(0, pairs_claim(corpus, stated, model.matrix_, some))
    return claims, bd.verdict(claims), corpus.fingerprint


def stated_counts_claims(model: Any, corpus: Corpus) -> list[Claim]:
    """Whether ``counts_`` agrees with the documents."""
    if getattr(model, "counts_", None) is None:
        return []
    return counts_claims(model, reading(model), corpus)[:1]


def counts_claims(
    model: Any, stated: Statement, corpus: Corpus, some: Array | None = None
) -> list[Claim]:
    """``word_counts``, of ``some`` words also their documents; and ``vocabulary``.

    Words in another order than their vectors are found by it, too.
    """
    n, theorem = len(corpus.words), "every word was counted again"
    counts = np.zeros(n, dtype=np.int64)
    for start in range(0, len(corpus.ids), BLOCK):
        counts += np.bincount(corpus.ids[start : start + BLOCK], minlength=n)
    wrong = _differ(model.counts_, counts)
    if some is not None:
        theorem += f"; their documents for {len(some):,} of {n:,} words"
        held = np.asarray(model.document_counts_)
        fits = held.shape == (n,)
        fits = fits and np.array_equal(model.n_documents_, len(corpus.offsets) - 1)
        again = _document_counts(corpus, some)
        wrong[some] |= _differ(held[some], again) if fits else True
    bad = int(wrong.sum())
    claim = bd.proved(
        *("word_counts", Number(float(bad)), 0.0),
        f"the counts of all {n:,} words agree with the documents",
        missed=f"the counts of {bad:,} of {n:,} words do not agree with the documents",
        fix=FIX,
        objective="n_w = how often word w occurs",
        theorem=theorem,
        assumptions=corpus.assumptions,
    )
    return [claim, _vocabulary_claim(stated, counts, corpus)]


def _differ(stated: Any, counts: Array) -> Array:
    """Where counts are not those stated; everywhere, if they are not as many."""
    fits = np.shape(stated) == counts.shape
    return np.asarray(stated) != counts if fits else np.ones(len(counts), dtype=bool)


def _vocabulary_claim(stated: Statement, counts: Array, corpus: Corpus) -> Claim:
    """Whether the words kept are frequent enough, and no frequent one is left out."""
    lowest, most = int(counts.min(initial=2**62)), stated.max_words
    highest = max((corpus.others or Counter()).values(), default=0)
    full = most is not None and len(counts) >= most
    allowed = lowest if full else stated.min_count - 1
    met = lowest >= stated.min_count and highest <= allowed
    met = met and (most is None or len(counts) <= most)
    left = "" if corpus.others is None else f", others at most {highest:,}"
    return Claim(
        *("vocabulary", Strength.PROVED, float(highest), float(allowed), met),
        "kept: words that occur at least min_count times, at most max_words of them",
        "no word that was left out occurs more often than the rule allows",
        detail=f"the words kept occur at least {lowest:,} times{left}",
        fix="" if met else FIX,
    )


def pairs_claim(corpus: Corpus, stated: Statement, matrix: Any, words: Array) -> Claim:
    """Rows of stated co-occurrence counts against the same rows counted here."""
    n, worst = len(corpus.words), np.inf
    if np.shape(matrix) == (n, n):
        again = pair_rows(corpus, stated, words)
        off = abs(sparse.csr_array(matrix)[words] - again).tocoo()
        with np.errstate(divide="ignore", invalid="ignore"):  # as shares of the recount
            shares = off.data / np.asarray(again[off.row, off.col]).ravel()
        worst = float(np.max(np.where(off.data != 0, shares, 0.0), initial=0.0))
    longest = min(stated.window or 1, int(np.diff(corpus.offsets).max(initial=1)))
    found = Number(worst, gamma(2 * longest + 8) if stated.harmonic else 0.0)
    return bd.proved(
        *("cooccurrence_counts", found, SHARES if stated.harmonic else 0.0),
        f"for {len(words):,} of {n:,} words, every count agrees with the documents",
        missed=f"the counts of {len(words):,} words do not agree with the documents",
        fix=FIX,
        objective="n_ij = contexts that hold words i and j (windows: position pairs)",
        theorem="these rows were counted again, word by word",
        assumptions=corpus.assumptions,
    )


# -- counting ---------------------------------------------------------------------


def _occurrences(corpus: Corpus, words: Array) -> tuple[Array, Array, Array]:
    """Where some words occur, and in which documents, in one pass."""
    place = np.full(len(corpus.words), -1)
    place[words] = np.arange(len(words))
    starts = range(0, len(corpus.ids), BLOCK)
    parts = [k + np.flatnonzero(place[corpus.ids[k : k + BLOCK]] >= 0) for k in starts]
    at = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
    return place[corpus.ids[at]], at, np.searchsorted(corpus.offsets, at, "right") - 1


def _document_counts(corpus: Corpus, words: Array) -> Array:
    """How many documents hold each of these words."""
    word, _, document = _occurrences(corpus, words)
    held = np.unique(document * len(words) + word)
    return np.bincount(held % max(1, len(words)), minlength=len(words))


def pair_rows(corpus: Corpus, stated: Statement, words: Array) -> Any:
    """Rows n_ij of some words i, as a sparse matrix; one sum for each distance."""
    word, at, document = _occurrences(corpus, words)
    ids, offsets, n = corpus.ids, corpus.offsets, len(corpus.words)
    if stated.window is None:
        every = (np.ones(len(ids)), ids.copy(), offsets.copy())
        B = sparse.csr_array(every, (len(offsets) - 1, n))
        B.sum_duplicates()
        B.data[:] = 1.0
        return sparse.csr_array(B[:, words].T @ B)
    total = sparse.csr_array((len(words), n))
    longest = int(np.diff(offsets).max(initial=1))
    for distance in range(1, min(stated.window, longest) + 1):
        for sign in (1, -1)[: 1 + stated.symmetric]:
            near = at + sign * distance
            inside = (near >= offsets[document]) & (near < offsets[document + 1])
            pair = (word[inside], ids[near[inside]])
            found = sparse.coo_array((np.ones(len(pair[0])), pair), total.shape)
            share = 1.0 / distance if stated.harmonic else 1.0
            total = total + share * found.tocsr()
    return total
