"""Bag of words: documents as counts of their words.

    x_dw = how often word w occurs in document d,  or 1 if it does at all

Only the order of the words is lost. Nothing is minimised: fitting reads
the documents once, counts, and keeps the frequent words.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from certus._core.threads import Stop, run_blocks, slices
from certus.base import Fitted, Model, certified_fit, check_number
from certus.certificate import Evidence
from certus.text.corpus import EncodedCorpus, TextInput, encode
from certus.text.counts_kernels import count_documents, count_once, gather
from certus.text.vocabulary import lookup
from certus.text.words import Tokenizer, documents
from certus.typing import Array, ArrayLike, TextsLike

__all__ = ["BagOfWords", "document_counts", "document_matrix"]

#: Documents counted at a time.
BLOCK = 1 << 14


class BagOfWords(TextInput, Model):
    """Counts of words, a sparse row per document.

    Objective
    ---------
    None: x_dw = number of times word w occurs in document d (1 if ``binary``).

    Certificate
    -----------
    ``word_counts`` (PROVED): the count of every word, and the number of documents that
    hold it, recounted from the documents. At level "full", from the texts themselves,
    also ``vocabulary`` (PROVED): the words kept are the frequent ones. The quick check
    costs one pass over the numbered words.

    Parameters
    ----------
    tokenizer : None, "whitespace" or callable, default=None
        How a str is split into words; None means :func:`certus.text.tokenize`.
    min_count : int, default=1
        Words that occur less often are left out.
    max_words : int, default=None
        Maximum number of words; the most frequent ones are kept. Of equally frequent
        words, those seen first are kept.
    binary : bool, default=False
        Whether a word occurs, instead of how often.
    ngram_range : (int, int), default=(1, 1)
        Lengths of the runs of words that are counted; a run is joined by spaces.

    Attributes
    ----------
    vocabulary_ : list of str
        The words, by falling count; they name the columns.
    counts_ : ndarray of int64
        How often each occurs in the training documents.
    document_counts_ : ndarray of int64
        How many training documents hold each.
    n_documents_ : int
        Number of training documents.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    One pass over the documents, which may come from a generator; transforming sorts
    each document. Memory: the vocabulary and four bytes a word, on disk where there
    are many. Words that were not seen in ``fit`` are ignored.

    Examples
    --------
    >>> from certus.text import BagOfWords
    >>> model = BagOfWords().fit(["the cat and the dog", "the end"])
    >>> model.get_feature_names_out().tolist()
    ['the', 'cat', 'and', 'dog', 'end']
    >>> model.transform(["The end of the dog"]).toarray()
    array([[2, 0, 0, 1, 1]])
    """

    def __init__(
        self,
        tokenizer: str | Tokenizer | None = None,
        *,
        min_count: int = 1,
        max_words: int | None = None,
        binary: bool = False,
        ngram_range: tuple[int, int] = (1, 1),
    ) -> None:
        self.tokenizer = tokenizer
        self.min_count = min_count
        self.max_words = max_words
        self.binary = binary
        self.ngram_range = ngram_range

    @certified_fit
    def fit(self, X: Iterable[Any], y: ArrayLike | None = None) -> Any:
        """Count the words of documents.

        Parameters
        ----------
        X : iterable
            Documents, each a str or a sequence of words. A generator serves.
        y : None
            Ignored.
        """
        _check_lengths(self.ngram_range)
        corpus = self._read(X)
        self.vocabulary_, self.counts_ = corpus.words, corpus.counts
        self.document_counts_ = document_counts(corpus)
        self.n_documents_ = corpus.n_documents
        return Fitted(Evidence("word_counts"), corpus, None)

    def fit_transform(self, X: Iterable[Any], y: ArrayLike | None = None) -> Any:
        """Fit, and return the counts of the same documents, which are read once.

        Parameters
        ----------
        X : iterable
            Documents.
        y : None
            Ignored.

        Returns
        -------
        CSR matrix of shape (n_documents, n_words)
        """
        corpus = self._read(X)
        self.fit(corpus)
        return document_matrix(corpus, self.binary)

    def transform(self, X: Iterable[Any]) -> Any:
        """The counts of words in documents.

        Parameters
        ----------
        X : iterable
            Documents; words that ``fit`` did not keep are ignored.

        Returns
        -------
        CSR matrix of shape (n_documents, n_words)
        """
        check_is_fitted(self, "vocabulary_")
        sources = self._sources(X)
        corpus = encode(sources, tokenizer=self.tokenizer, vocabulary=lookup(self))
        return document_matrix(corpus, self.binary)

    def inverse_transform(self, X: TextsLike) -> list[Array]:
        """The distinct words of each row, by falling count in the training documents.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
            Counts.
        """
        names = self.get_feature_names_out()
        rows = sparse.csr_array(X)
        if rows.ndim != 2 or rows.shape[1] != len(names):
            raise ValueError(
                f"X has shape {rows.shape}, but the vocabulary has {len(names)} words."
            )
        rows.sum_duplicates()
        rows.eliminate_zeros()
        return [names[part] for part in np.split(rows.indices, rows.indptr[1:-1])]

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> Array:
        """The words that name the columns.

        Parameters
        ----------
        input_features : None
            Ignored.
        """
        check_is_fitted(self, "vocabulary_")
        return np.asarray(self.vocabulary_, dtype=object)

    def _sources(self, texts: Iterable[Any]) -> Iterable[Any]:
        low, high = self.ngram_range
        if (low, high) == (1, 1):
            return texts
        words = documents(texts, self.tokenizer)
        return (_runs(list(document), low, high) for document in words)


def _check_lengths(lengths: tuple[int, int]) -> None:
    try:
        low, high = lengths
    except (TypeError, ValueError):
        raise ValueError(
            f"ngram_range must be two integers, such as (1, 2), got {lengths!r}."
        ) from None
    check_number("the first of ngram_range", low, 1, integer=True)
    check_number("the second of ngram_range", high, low, integer=True)


def _runs(words: list[str], low: int, high: int) -> list[str]:
    """Runs of ``low`` to ``high`` words, joined by spaces; short ones first."""
    found = list(words) if low == 1 else []
    for n in range(max(2, low), high + 1):
        found += [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]
    return found


def document_counts(corpus: EncodedCorpus) -> Array:
    """How many documents hold each word."""
    out = np.zeros(len(corpus.words), dtype=np.int64)
    last = np.full(len(corpus.words), -1, dtype=np.int64)
    ids = np.asarray(corpus.ids)
    for part in slices(corpus.n_documents, BLOCK):
        count_once(ids, corpus.offsets, part.start, part.stop, last, out)
    return out


def document_matrix(corpus: EncodedCorpus, binary: bool = False) -> Any:
    """Documents × words: how often each word occurs, or whether it does."""
    ids, offsets = np.asarray(corpus.ids), corpus.offsets
    words = np.empty(len(ids), dtype=np.int32)
    counts = np.empty(len(ids), dtype=np.int32)
    sizes = np.zeros(corpus.n_documents + 1, dtype=np.int64)
    blocks = slices(corpus.n_documents, BLOCK)

    def count(part: slice, stop: Stop) -> None:
        if not stop():
            at = (part.start, part.stop)
            count_documents(ids, offsets, *at, words, counts, sizes[1:])

    run_blocks(count, blocks)
    indptr = np.cumsum(sizes)
    wide = max(indptr[-1], len(corpus.words)) > np.iinfo(np.int32).max
    indices = np.empty(indptr[-1], dtype=np.int64 if wide else np.int32)
    data = np.empty(indptr[-1], dtype=np.int64)

    def move(part: slice, stop: Stop) -> None:
        if not stop():
            at = (part.start, part.stop)
            gather(offsets, indptr, *at, words, counts, indices, data)

    run_blocks(move, blocks)
    if binary:
        data[:] = 1
    shape = (corpus.n_documents, len(corpus.words))
    found = sparse.csr_matrix(
        (data, indices, indptr.astype(indices.dtype)), shape=shape
    )
    found.has_sorted_indices = found.has_canonical_format = True
    return found
