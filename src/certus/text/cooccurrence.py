"""Which words occur together: co-occurrence counts of words in contexts.

    n_ij = number of contexts that hold both word i and word j

A context is a document, a sentence, or a window around each position; for windows n_ij
counts pairs of positions at most ``window`` apart, each as one or as 1/distance. The
matrix is sparse and made in pieces of the corpus, so memory is that of its entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from certus._core.threads import Stop, run_blocks
from certus.base import Fitted, Model, certified_fit, check_choice, check_number
from certus.certificate import Evidence
from certus.text.corpus import EncodedCorpus, TextInput
from certus.text.counts import document_matrix
from certus.text.counts_kernels import occurrences, pad, window_rows
from certus.text.words import Tokenizer, check_corpus, sentences
from certus.typing import Array, ArrayLike, CompressedMatrix

if TYPE_CHECKING:
    from certus.text.glove import GloVe

__all__ = ["Cooccurrence", "count_pairs"]

CONTEXTS = ("window", "sentence", "document")
#: Words of the corpus whose pairs are counted before they are added to the rest.
PIECE = 1 << 24
#: Entries of one block of rows, and pairs behind them: 50 MB, a tenth of a second.
ENTRIES, PAIRS = 1 << 22, 1 << 25
#: Pairs that one piece of documents or sentences may make, and one of them alone.
CROSSED, LARGEST = 1 << 27, 1 << 30


class Cooccurrence(TextInput, Model):
    """Co-occurrence counts of words, as a sparse matrix.

    Objective
    ---------
    None: n_ij = number of contexts that hold words i and j. For windows, the pairs of
    positions p ≠ q of one document at most ``window`` apart, with word i at p and j at
    q, each counted as 1 or as 1/distance; ``symmetric=False`` counts only q > p.

    Certificate
    -----------
    ``cooccurrence_counts`` (PROVED): for a sample of words, frequent and rare, every
    count is recounted from the documents; at level "full" for all words. The quick
    check costs one look at the numbered words for each of the sample.

    Parameters
    ----------
    context : {"window", "sentence", "document"}, default="window"
        What two words must share. Texts are split into sentences by
        :func:`certus.text.sentences`; a document that is a sequence of words is one
        sentence.
    window : int, default=5
        Largest distance between the two words of a pair.
    weighting : {"flat", "harmonic"}, default="flat"
        A pair in a window counts 1, or 1/distance.
    symmetric : bool, default=True
        Both sides of a word, or only what follows it. Sentences and documents know no
        sides.
    tokenizer : None, "whitespace" or callable, default=None
        How a str is split into words; None means :func:`certus.text.tokenize`.
    min_count : int, default=1
        Words that occur less often are left out. This happens before windows are
        formed.
    max_words : int, default=None
        Maximum number of words; the most frequent ones are kept.

    Attributes
    ----------
    matrix_ : CSR matrix of shape (n_words, n_words)
        The counts n_ij.
    vocabulary_ : list of str
        The words, by falling count; they name rows and columns.
    counts_ : ndarray of int64
        How often each occurs.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    Windows take O(words·window), documents and sentences O(Σ length²). Memory is that
    of the entries, twice, and of a piece of the corpus. The result does not depend on
    the number of threads.

    Examples
    --------
    >>> from certus.text import Cooccurrence
    >>> model = Cooccurrence(window=1).fit(["the cat sat on the cat"])
    >>> model.vocabulary_
    ['the', 'cat', 'sat', 'on']
    >>> model.matrix_.toarray()[0]  # the: twice before "cat", once after "on"
    array([0., 2., 0., 1.])
    """

    def __init__(
        self,
        context: str = "window",
        *,
        window: int = 5,
        weighting: str = "flat",
        symmetric: bool = True,
        tokenizer: str | Tokenizer | None = None,
        min_count: int = 1,
        max_words: int | None = None,
    ) -> None:
        self.context = context
        self.window = window
        self.weighting = weighting
        self.symmetric = symmetric
        self.tokenizer = tokenizer
        self.min_count = min_count
        self.max_words = max_words

    @certified_fit
    def fit(self, X: Iterable[Any], y: ArrayLike | None = None) -> Any:
        """Count which words occur together.

        Parameters
        ----------
        X : iterable
            Documents, each a str or a sequence of words. A generator serves.
        y : None
            Ignored.
        """
        pairs = pair_settings(self)
        corpus = self._read(X)
        self.matrix_ = count_pairs(corpus, **pairs)
        self.vocabulary_, self.counts_ = corpus.words, corpus.counts
        return Fitted(Evidence("cooccurrence"), corpus, None)

    def _sources(self, texts: Iterable[Any]) -> Iterable[Any]:
        return in_contexts(texts, self.context)


def in_contexts(texts: Iterable[Any], context: str) -> Iterable[Any]:
    """The documents, or the sentences of those that are texts."""
    return _in_sentences(texts) if context == "sentence" else texts


def _in_sentences(texts: Iterable[Any]) -> Iterator[Any]:
    check_corpus(texts)
    for document in texts:
        if isinstance(document, str):
            yield from sentences(document)
        else:
            yield document


def pair_settings(model: Cooccurrence | GloVe) -> dict[str, Any]:
    """The checked parameters that say which pairs are counted."""
    check_choice("context", model.context, CONTEXTS)
    check_number("window", model.window, 1, integer=True)
    check_choice("weighting", model.weighting, ("flat", "harmonic"))
    if model.context != "window" and not model.symmetric:
        raise ValueError(
            f"context={model.context!r} has no left and right; use symmetric=True, or "
            "context='window'."
        )
    if model.context != "window" and model.weighting == "harmonic":
        raise ValueError(
            f"context={model.context!r} has no distances; use weighting='flat', or "
            "context='window'."
        )
    return {
        "context": model.context,
        "window": int(model.window),
        "weighting": model.weighting,
        "symmetric": bool(model.symmetric),
    }


def count_pairs(
    corpus: EncodedCorpus, context: str, window: int, weighting: str, symmetric: bool
) -> Any:
    """The matrix n_ij of a corpus, a piece of it at a time."""
    total = _Total(len(corpus.words))
    if context == "window":
        longest = int(np.diff(corpus.offsets).max(initial=1))
        window = min(window, max(1, longest))  # nothing lies farther
        distance = np.arange(1, window + 1, dtype=np.float64)
        weights = 1 / distance if weighting == "harmonic" else np.ones(window)
        work = np.diff(corpus.offsets)
    else:
        work = np.diff(corpus.offsets) ** 2
        largest = int(work.argmax()) if len(work) else 0
        if len(work) and work[largest] > LARGEST:
            raise ValueError(
                f"Context {largest} holds {np.diff(corpus.offsets)[largest]:,} words, "
                "and each is paired with all others. Use context='window' or "
                "'sentence'."
            )
    limit = PIECE if context == "window" else CROSSED
    for first, last in _pieces(work, limit):
        start, end = corpus.offsets[first], corpus.offsets[last]
        ids = np.asarray(corpus.ids[start:end])
        part = EncodedCorpus(
            corpus.words,
            corpus.counts,
            ids,
            corpus.offsets[first : last + 1] - start,
            0,
        )
        if context == "window":
            total.add(_windows(part, weights, symmetric))
        else:
            B = document_matrix(part, binary=True).astype(np.float64)
            total.add(B.T @ B)
    return total.whole()


def _pieces(work: Array, limit: float) -> Iterator[tuple[int, int]]:
    """Ranges of documents of at most this work, or of one document."""
    done = np.concatenate([[0], np.cumsum(work)])
    first = 0
    while first < len(work):
        last = int(np.searchsorted(done, done[first] + limit, side="right")) - 1
        last = max(first + 1, min(last, len(work)))
        yield first, last
        first = last


class _Total:
    """A sum of sparse matrices; those of like size are added first."""

    def __init__(self, n: int) -> None:
        self.shape = (n, n)
        self.parts: list[Any] = []

    def add(self, part: CompressedMatrix) -> None:
        self.parts.append(part)
        while len(self.parts) > 1 and self.parts[-2].nnz < 2 * self.parts[-1].nnz:
            last = self.parts.pop()
            self.parts[-1] = self.parts[-1] + last

    def whole(self) -> Any:
        while len(self.parts) > 1:
            last = self.parts.pop()
            self.parts[-1] = self.parts[-1] + last
        found = self.parts[0] if self.parts else sparse.csr_matrix(self.shape)
        found = sparse.csr_matrix(found)
        found.sort_indices()
        return found


def _windows(corpus: EncodedCorpus, weights: Array, symmetric: bool) -> Any:
    """Pairs within windows: whole rows of the matrix, blocks of them in threads."""
    n = len(corpus.words)
    padded = np.empty(len(corpus.ids) + len(corpus.offsets), dtype=np.int32)
    pad(corpus.ids, corpus.offsets, padded)
    counts = np.bincount(corpus.ids, minlength=n)
    starts = np.concatenate([[0], np.cumsum(counts)])
    positions = np.empty(len(corpus.ids), dtype=np.int64)
    occurrences(padded, starts, positions)
    pairs = counts * len(weights) * (2 if symmetric else 1)
    entries = np.minimum(pairs, n)
    blocks = list(_pieces(np.maximum(entries * (PAIRS // ENTRIES), pairs), PAIRS))
    sizes = np.zeros(n + 1, dtype=np.int64)
    found: list[Any] = [None] * len(blocks)

    def count(k: int, stop: Stop) -> None:
        if stop():
            return
        first, last = blocks[k]
        room = int(entries[first:last].sum())
        indices, values = np.empty(room, np.int32), np.empty(room)
        size = window_rows(
            *(padded, positions, starts, first, last, weights, symmetric),
            *(indices, values, sizes[1:]),
        )
        found[k] = indices[:size].copy(), values[:size].copy()

    run_blocks(count, range(len(blocks)))
    indices = np.concatenate([part[0] for part in found])
    values = np.concatenate([part[1] for part in found])
    return sparse.csr_matrix((values, indices, np.cumsum(sizes)), shape=(n, n))
