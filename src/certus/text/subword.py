"""Skip-gram on character n-grams: words that are spelt alike lie near each other.

    z_w = mean of the word's own row and of the rows of its character n-grams

with the objective of :mod:`certus.text.skipgram`. N-grams are hashed into buckets, and
only buckets that occur have a row. A word that was never seen has a vector as long as
one of its n-grams was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus._core.sharing import shares
from certus.base import (
    Fitted,
    Model,
    certified_fit,
    check_choice,
    check_number,
    generator_of,
)
from certus.text import sampling
from certus.text.corpus import EncodedCorpus, encode
from certus.text.ngrams import Lists, character_ngrams
from certus.text.parameters import SamplingOptions, WindowOptions, WordOptions
from certus.text.skipgram import WordInputs, check_pairs, train
from certus.text.skipgram_kernels import compose
from certus.text.vectors import WordVectors, pool
from certus.text.vocabulary import lookup
from certus.text.words import character_lengths
from certus.typing import Array, ArrayLike, TextsLike

__all__ = ["FastTextVectors"]


@shares(WindowOptions, SamplingOptions, learning_rate=0.05)
class FastTextVectors(sampling.Sampled, WordVectors, Model):
    """Word vectors by skip-gram with character n-grams (fastText).

    Objective
    ---------
    mean over pairs (x, w) of −log σ(z_x·u_w) − Σⱼ log σ(−z_x·u_{nⱼ})

    as for :class:`certus.text.SkipGram`, with z_x the mean of m rows: the word's own
    and those of its character n-grams. As in fastText the rows' steps are not divided
    by m, so that z_x moves as far as it would alone.

    Certificate
    -----------
    As for :class:`certus.text.SkipGram`: ``reported_loss`` (MEASURED) and, MEASURED,
    ``sample_loss``, ``gradient_norm`` and ``pairs_told_apart``. Also ``composition``
    (PROVED): the vectors of sampled words are the means of their rows, whose n-grams
    are found again.

    Parameters
    ----------
    n_components : int, default=100
        Number of components. This is the length of the vectors.
    char_ngrams : (int, int), default=(3, 6)
        Fewest and most characters in a piece of a word. Words are written between < and
        >.
    n_buckets : int, default=2_000_000
        Number of buckets into which n-grams are hashed. Only those that occur take
        memory; with more of them, fewer n-grams share one.
    {shared}

    Attributes
    ----------
    vocabulary_ : list of str
        The words, by falling count.
    vectors_ : ndarray of shape (n_words, n_components)
        z, float32.
    context_vectors_ : ndarray of shape (n_words, n_components)
        u, float32.
    subword_vectors_ : ndarray of shape (n_words + n_used_buckets, n_components)
        The rows: one for each word, then one for each bucket that occurs.
    buckets_ : ndarray
        The buckets that occur, ascending.
    ngrams_ : tuple
        What the rows are made of: (1, ``char_ngrams``, ``n_buckets``).
    counts_, document_counts_, n_documents_, n_iter_, n_pairs_, history_, certificate_
        As for :class:`certus.text.SkipGram`.

    Notes
    -----
    A pair costs as much as in skip-gram, plus the rows of its word: about three
    times as much for words of six letters.

    Examples
    --------
    >>> from certus.text import FastTextVectors
    >>> texts = ["the walking walker walks", "a singing singer sings"] * 20
    >>> model = FastTextVectors(8, subsample=None, deterministic=True,
    ...                         random_state=0).fit(texts)
    >>> "walkings" in model, model.vector("walkings").shape
    (False, (8,))
    """

    def __init__(
        self,
        n_components: int = 100,
        *,
        char_ngrams: tuple[int, int] = (3, 6),
        n_buckets: int = 2_000_000,
        **shared: Unpack[WordOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, texts: TextsLike | EncodedCorpus, y: ArrayLike | None = None) -> Any:
        """Learn vectors from texts.

        Parameters
        ----------
        texts : iterable of str or of sequences of str, or EncodedCorpus
            Documents; a generator serves.
        y : None
            Ignored.
        """
        check_pairs(self)
        check_number("n_buckets", self.n_buckets, 1, 2**31 - 1, integer=True)
        recipe = _recipe(self)
        corpus = self._read(texts)
        random = generator_of(self.random_state)
        n, d = len(corpus.words), int(self.n_components)
        old = _previous(self) if self.warm_start else None
        self.ngrams_ = recipe
        grams = character_ngrams(corpus.words, *recipe[1:])
        self.buckets_ = np.unique(grams.values)
        rows = _rows(grams, self.buckets_, np.arange(n, dtype=np.int32), n)
        del grams
        inputs = sampling.start_vectors(n + len(self.buckets_), d, random)
        self.context_vectors_ = np.zeros((n, d), dtype=np.float32)
        if old is not None:
            _continue_from(self, old, corpus.words, inputs)
        self.subword_vectors_ = inputs
        self.vectors_ = np.empty((n, d), dtype=np.float32)
        every = np.arange(n, dtype=np.int64)
        compose(inputs, rows.values, rows.ends, every, self.vectors_)
        fitted: Fitted = train(self, texts, corpus, inputs, rows, random)
        return fitted

    def vector(self, word: str) -> Array:
        """The vector of a word, known or not.

        Parameters
        ----------
        word : str
            Any word. One that was never seen gets the mean over its n-grams; if none of
            these was seen either, ``UnknownWordError`` is raised.
        """
        check_is_fitted(self, "vectors_")
        if not isinstance(word, str) or word in self:
            return super().vector(word)
        rows = self._rows_of([word])
        if rows.ends[1] == 0:
            return super().vector(word)  # raises, and names near spellings
        return self._compose(rows)[0]

    def transform(
        self,
        texts: Iterable[Any],
        weights: str | Mapping[str, float] | None = None,
        pooling: str = "mean",
    ) -> Array:
        """Document vectors: the mean over words, including those never seen.

        Parameters
        ----------
        texts : iterable
            Documents, each a str or a sequence of words.
        weights : None, "idf", "sif" or dict, default=None
            As for :meth:`certus.text.SkipGram.transform`; an unknown word counts as one
            that no training document holds.
        pooling : {"mean", "sum"}, default="mean"
            The weighted mean, or the weighted sum.

        Returns
        -------
        ndarray of shape (n_documents, n_components)
            The vectors; zero for a document none of whose words has a known n-gram.
        """
        check_is_fitted(self, "vectors_")
        check_choice("pooling", pooling, ("mean", "sum"))
        known = self._word_weights(weights)
        corpus = encode(texts, tokenizer=self.tokenizer)
        rows = self._rows_of(corpus.words)
        position = lookup(self)
        places = np.array([position[word] for word in corpus.words], dtype=np.int64)
        each = np.array([self._new_weight(weights, word) for word in corpus.words])
        each[places >= 0] = known[places[places >= 0]]
        each[np.diff(rows.ends) == 0] = 0.0
        Z = self._compose(rows)
        return pool(corpus.ids, corpus.offsets, each.astype(Z.dtype), Z, pooling)

    def _new_weight(
        self, weights: str | Mapping[str, float] | None, word: str
    ) -> float:
        """Weight of a word that no training document holds."""
        if isinstance(weights, Mapping):
            return float(weights.get(word, 1.0))
        if weights == "idf":
            return float(np.log(1.0 + self.n_documents_) + 1.0)
        return 1.0

    def _rows_of(self, words: list[str]) -> WordInputs:
        """Rows of any words; a word without a known n-gram has none."""
        position = lookup(self)
        own = np.array([position[word] for word in words], dtype=np.int32)
        grams = character_ngrams(words, *self.ngrams_[1:])
        return _rows(grams, self.buckets_, own, len(self.vocabulary_))

    def _compose(self, rows: WordInputs) -> Array:
        table = np.ascontiguousarray(self.subword_vectors_, dtype=np.float32)
        out = np.empty((len(rows.ends) - 1, table.shape[1]), dtype=np.float32)
        compose(table, rows.values, rows.ends, np.arange(len(out)), out)
        return out


def _rows(grams: Lists, buckets: Array, own: Array, n_words: int) -> WordInputs:
    """Row of each word, unless −1, and those of its n-grams whose bucket has one."""
    n = len(own)
    place = np.searchsorted(buckets, grams.values)
    known = np.zeros(len(place), dtype=bool)
    if len(buckets):
        place = np.minimum(place, len(buckets) - 1)
        known = buckets[place] == grams.values
    owner = np.repeat(np.arange(n), np.diff(grams.offsets))[known]
    first = (own >= 0).astype(np.int64)
    sizes = first + np.bincount(owner, minlength=n)
    ends = np.append(0, np.cumsum(sizes)).astype(np.int64)
    values = np.empty(ends[-1], dtype=np.int32)
    values[ends[:-1][own >= 0]] = own[own >= 0]
    # N-grams come in the order of their words: each moves by the own rows before it.
    shift = np.cumsum(first)
    values[np.arange(len(owner)) + shift[owner]] = n_words + place[known]
    return WordInputs(values, ends)


def _recipe(model: FastTextVectors) -> tuple[int, tuple[int, int], int]:
    """How words are cut: see ``ngrams_``."""
    return 1, character_lengths(model.char_ngrams), int(model.n_buckets)


def _previous(model: FastTextVectors) -> tuple[Any, ...] | None:
    """Words, buckets and tables of the last fit, if it cut words in the same way."""
    if getattr(model, "ngrams_", None) != _recipe(model):
        return None
    if model.subword_vectors_.shape[1] != model.n_components:
        return None
    tables = (model.subword_vectors_, model.context_vectors_)
    return (list(model.vocabulary_), model.buckets_, *tables)


def _continue_from(
    model: FastTextVectors, old: tuple[Any, ...], words: list[str], inputs: Array
) -> None:
    """Give words and n-grams that had rows in the last fit the same ones."""
    before, buckets, rows, outputs = old
    places = {word: i for i, word in enumerate(before)}
    at = np.array([places.get(word, -1) for word in words], dtype=np.int64)
    known = np.flatnonzero(at >= 0)
    inputs[known] = rows[at[known]]
    model.context_vectors_[known] = outputs[at[known]]
    _, here, there = np.intersect1d(model.buckets_, buckets, return_indices=True)
    inputs[len(words) + here] = rows[len(before) + there]
