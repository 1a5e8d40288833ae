"""Uses of word vectors: neighbours, analogies, document vectors.

Any model with ``vocabulary_`` (words) and ``vectors_`` (one row of Z per word) becomes
usable through :class:`WordVectors`. Nearness is the cosine, cos(a, b) = a·b/(|a||b|);
the vector of a document is the mean of its words' vectors, a product of its counts
with Z.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from certus.base import Model, check_choice, check_number
from certus.text import word2vec_format
from certus.text.corpus import EncodedCorpus, TextInput, encode
from certus.text.vocabulary import lookup
from certus.text.words import Tokenizer
from certus.typing import Array, ArrayLike, TextsLike
from certus.wording import shorten

__all__ = ["PretrainedVectors", "UnknownWordError", "WordVectors", "load_word2vec"]

#: Words compared with an unknown one, the most frequent, to suggest near spellings.
SPELLINGS = 50_000
#: Smoothing of the weights a/(a + p(word)) of ``weights="sif"``.
SIF = 1e-3


class UnknownWordError(KeyError):
    """A word that is not in the vocabulary; the message names near spellings.

    Examples
    --------
    >>> from certus.text import GloVe, UnknownWordError
    >>> model = GloVe(2, min_count=1, random_state=0).fit(["white wine", "red wine"])
    >>> try:
    ...     model["whine"]
    ... except UnknownWordError as error:
    ...     print("wine" in str(error))
    True
    """

    def __str__(self) -> str:
        """The message, without the quotes that a KeyError puts around it."""
        return str(self.args[0])


class WordVectors(TextInput):
    """Neighbours, analogies and document vectors of a model with a vector per word.

    A class that uses it has the parameter ``tokenizer`` and, once fitted,
    ``vocabulary_`` (list of str) and ``vectors_`` (n_words × n_components). Weights
    "sif" need ``counts_`` (of words), weights "idf" ``document_counts_`` (documents
    that hold the word) and ``n_documents_``.

    Examples
    --------
    >>> from certus.text import GloVe, WordVectors
    >>> model = GloVe(2, min_count=1, random_state=0).fit(["white wine", "red wine"])
    >>> isinstance(model, WordVectors), "wine" in model, model["wine"].shape
    (True, True, (2,))
    """

    vocabulary_: list[str]
    vectors_: Array

    def __contains__(self, word: object) -> bool:
        """Whether the word has a vector."""
        check_is_fitted(self, "vectors_")
        return isinstance(word, str) and word in lookup(self)

    def __getitem__(self, word: str) -> Array:
        """The vector of a word."""
        return self.vector(word)

    __iter__ = None  # words are the keys, so iteration over positions is disabled

    def vector(self, word: str) -> Array:
        """The vector of a word.

        Parameters
        ----------
        word : str
            A word of the vocabulary; another raises ``UnknownWordError``.
        """
        at = self._position(word)
        return self.vectors_[at].copy()

    def _position(self, word: str) -> int:
        check_is_fitted(self, "vectors_")
        if not isinstance(word, str):
            raise TypeError(f"A word must be a str, got {shorten(repr(word))}.")
        at = lookup(self)[word]
        if at < 0:
            raise UnknownWordError(_unknown(word, self.vocabulary_))
        return at

    def most_similar(
        self, word: str | ArrayLike, n: int = 10
    ) -> list[tuple[str, float]]:
        """The words whose vectors have the largest cosine with that of a word.

        Parameters
        ----------
        word : str or array of shape (n_components,)
            A word, which is left out of the answer, or any vector.
        n : int, default=10
            How many.

        Returns
        -------
        list of (str, float)
            Words and cosines, the nearest first.
        """
        if isinstance(word, str):
            vector = self.vector(word)
            return self._nearest(vector, n, {lookup(self)[word]})
        check_is_fitted(self, "vectors_")
        query = np.asarray(word)
        if query.shape != self.vectors_.shape[1:] or query.dtype.kind not in "fiu":
            raise ValueError(
                f"Pass one word or one vector of {self.vectors_.shape[1]} numbers, for "
                f"example model['a'] + model['b']; got {shorten(repr(word))}."
            )
        if not np.isfinite(query).all():
            raise ValueError("The vector holds NaN or infinite values.")
        return self._nearest(query, n, set())

    def similarity(self, a: str, b: str) -> float:
        """The cosine between the vectors of two words.

        Parameters
        ----------
        a, b : str
            Words.
        """
        return float(_unit(self.vector(a)) @ _unit(self.vector(b)))

    def analogy(self, a: str, b: str, c: str, n: int = 10) -> list[tuple[str, float]]:
        """Complete "a is to b as c is to": the words nearest to b − a + c.

        Parameters
        ----------
        a, b, c : str
            "a is to b as c is to ...". Vectors are scaled to length one first, and the
            three words are left out of the answer.
        n : int, default=10
            How many.

        Returns
        -------
        list of (str, float)
            Words and cosines, the nearest first.
        """
        unit_a, unit_b, unit_c = (_unit(self.vector(word)) for word in (a, b, c))
        given = {self._position(word) for word in (a, b, c) if word in self}
        return self._nearest(unit_b - unit_a + unit_c, n, given)

    def _nearest(self, query: Array, n: int, but: set[int]) -> list[tuple[str, float]]:
        check_number("n", n, 1, integer=True)
        cosines = _cosines(self.vectors_, query)
        order = np.argsort(-cosines, kind="stable")[: n + len(but)]
        best = [i for i in order.tolist() if i not in but][:n]
        return [(self.vocabulary_[i], float(cosines[i])) for i in best]

    def transform(
        self,
        texts: Iterable[Any],
        weights: str | Mapping[str, float] | None = None,
        pooling: str = "mean",
    ) -> Array:
        """Document vectors: the mean of the vectors of a document's words.

        Words without a vector are ignored; a document without any known word gets
        the zero vector.

        Parameters
        ----------
        texts : iterable
            Documents, each a str or a sequence of words.
        weights : None, "idf", "sif" or dict, default=None
            Weight of a word: one; log((1 + N)/(1 + n)) + 1 if n of N training documents
            hold it; a/(a + p) with a = 0.001 if it is the share p of all training
            words; or its value in a dictionary, one where that lacks it.
        pooling : {"mean", "sum"}, default="mean"
            The weighted mean, or the weighted sum, which is linear in the counts.

        Returns
        -------
        ndarray of shape (n_documents, n_components)
            The vectors.
        """
        check_is_fitted(self, "vectors_")
        check_choice("pooling", pooling, ("mean", "sum"))
        each = self._word_weights(weights)
        corpus = encode(texts, tokenizer=self.tokenizer, vocabulary=lookup(self))
        return pool(corpus.ids, corpus.offsets, each, self.vectors_, pooling)

    def _word_weights(self, weights: str | Mapping[str, float] | None) -> Array:
        dtype = self.vectors_.dtype
        if weights is None:
            return np.ones(len(self.vocabulary_), dtype=dtype)
        if isinstance(weights, Mapping):
            each = [weights.get(word, 1.0) for word in self.vocabulary_]
            found = np.asarray(each, dtype=np.float64)
            if not np.isfinite(found).all() or (found < 0).any():
                raise ValueError(
                    "The weights of words must be finite and not negative."
                )
            return found.astype(dtype)
        check_choice("weights", weights, (None, "idf", "sif"))
        needed = "counts_" if weights == "sif" else "document_counts_"
        if not hasattr(self, needed):
            raise ValueError(
                f"weights={weights!r} needs the words' counts in the training "
                "documents, which this model does not have; pass a dict of weights."
            )
        if weights == "sif":
            share = np.asarray(self.counts_, dtype=np.float64)  # type: ignore[attr-defined]
            found = SIF / (SIF + share / max(1.0, share.sum()))
        else:
            hold = np.asarray(self.document_counts_, dtype=np.float64)  # type: ignore[attr-defined]
            found = np.log((1 + self.n_documents_) / (1 + hold)) + 1  # type: ignore[attr-defined]
        return found.astype(dtype)

    def fit_transform(self, texts: Iterable[Any], y: ArrayLike | None = None) -> Array:
        """Fit, and return the document vectors of the same texts.

        Parameters
        ----------
        texts : iterable
            Documents; they are read twice, so a generator does not serve.
        y : None
            Ignored.
        """
        if iter(texts) is texts:
            raise ValueError(
                "A generator can be read only once; pass a list or a LineCorpus."
            )
        return self.fit(texts).transform(texts)  # type: ignore[attr-defined]

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> Array:
        """Names of the columns of document vectors.

        Parameters
        ----------
        input_features : None
            Ignored.
        """
        check_is_fitted(self, "vectors_")
        stem = type(self).__name__.lower()
        names = [f"{stem}{i}" for i in range(self.vectors_.shape[1])]
        return np.asarray(names, dtype=object)

    def to_word2vec(self, path: str | Path) -> Path:
        """Write words and vectors in the text format of word2vec.

        Parameters
        ----------
        path : str or Path
            Where to; the write is atomic. Read it back with
            :func:`certus.text.load_word2vec`. A word that holds a space is refused.
        """
        check_is_fitted(self, "vectors_")
        return word2vec_format.write(path, self.vocabulary_, self.vectors_)


class PretrainedVectors(WordVectors, Model):
    """Word vectors that were trained elsewhere, from :func:`load_word2vec`.

    Objective
    ---------
    None: nothing is fitted.

    Certificate
    -----------
    None: the objective of the vectors is not known.

    Parameters
    ----------
    tokenizer : None, "whitespace" or callable, default=None
        How a str is split into words; None means :func:`certus.text.tokenize`.

    Attributes
    ----------
    vocabulary_ : list of str
        The words.
    vectors_ : ndarray of shape (n_words, n_components)
        Their vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.text import PretrainedVectors
    >>> model = PretrainedVectors()
    >>> model.vocabulary_, model.vectors_ = ["cat", "dog", "sun"], np.eye(3)[[0, 0, 2]]
    >>> model.most_similar("cat", n=1)
    [('dog', 1.0)]
    """

    def __init__(self, tokenizer: str | Tokenizer | None = None) -> None:
        self.tokenizer = tokenizer

    def __sklearn_clone__(self) -> PretrainedVectors:
        # The vectors were read, not fitted: cross-validation must not lose them.
        return self

    def fit(
        self, texts: TextsLike | EncodedCorpus | None = None, y: ArrayLike | None = None
    ) -> PretrainedVectors:
        """Do nothing; it exists so that a pipeline can contain this model.

        Parameters
        ----------
        texts, y : ignored
            Nothing is learnt from them.
        """
        check_is_fitted(self, "vectors_")
        return self


def load_word2vec(path: str | Path, dtype: str = "float32") -> PretrainedVectors:
    r"""Read word vectors from a file in the text format of word2vec or GloVe.

    Parameters
    ----------
    path : str or Path
        One word and its numbers per line, UTF-8; ``.gz`` is decompressed. A first line
        with the number of words and of components may precede. Binary files must be
        written as text first (gensim: ``save_word2vec_format(path, binary=False)``).
    dtype : {"float32", "float64"}, default="float32"
        Precision to keep.

    Returns
    -------
    PretrainedVectors
        A model ready for ``most_similar``, ``analogy``, ``transform`` and ``save``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from certus.text import load_word2vec
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "vectors.txt"
    ...     _ = path.write_text("2 3\ncat 1 0 0\ndog 1 0.5 0\n")
    ...     model = load_word2vec(path)
    >>> round(model.similarity("cat", "dog"), 3)
    0.894
    """
    check_choice("dtype", dtype, ("float32", "float64"))
    model = PretrainedVectors()
    model.vocabulary_, model.vectors_ = word2vec_format.read(path, dtype)
    return model


def pool(
    ids: Array, offsets: Array, weights: Array, Z: Array, pooling: str = "mean"
) -> Array:
    """Weighted means (or sums) of rows of Z, one per document; zero if it is empty."""
    shape = (len(offsets) - 1, len(Z))
    counts = sparse.csr_array((weights[ids], ids, offsets), shape=shape)
    total = np.asarray(counts @ Z)
    if pooling == "mean":
        size = np.asarray(counts @ np.ones(len(Z), dtype=Z.dtype))
        total /= np.where(size > 0, size, 1)[:, None]
    return total


def _unit(vector: Array) -> Array:
    length = np.linalg.norm(vector)
    return np.asarray(vector / length if length > 0 else vector)


def _cosines(Z: Array, query: Array) -> Array:
    """Cosines of a vector with each row; zero where either has no length."""
    query = _unit(np.asarray(query, dtype=np.float64)).astype(Z.dtype)
    lengths = np.sqrt(np.einsum("ij,ij->i", Z, Z))
    return np.asarray(Z @ query / np.where(lengths > 0, lengths, 1))


def _unknown(word: str, vocabulary: list[str]) -> str:
    """Say that a word is unknown, with the near spellings among the frequent ones."""
    some = vocabulary[:SPELLINGS]
    alike = [
        other
        for other in some
        if abs(len(other) - len(word)) <= 2
        and (other[:1].lower() == word[:1].lower() or other[-1:] == word[-1:])
    ]
    near = difflib.get_close_matches(word.lower(), alike, n=3, cutoff=0.6)
    hint = f" Similar spellings: {', '.join(map(repr, near))}." if near else ""
    return f"{shorten(repr(word))} is not in the vocabulary.{hint}"
