"""Document vectors trained directly: each text predicts words, its own or nearby.

    objective = mean over pairs (s, w) of −log σ(h_s·u_w) − Σⱼ log σ(−h_s·u_{nⱼ})

of a text s and a word w. With ``target="words"`` h_s is a vector of the text's own and
w one of its words (paragraph vectors, distributed bag of words). ``"neighbours"``: h_s
is the mean of its words' vectors and w a word of the texts next to it, so that
sentences take the place of words in skip-gram. n₁ … n_k are drawn from the noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Unpack

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus._core.sharing import shares
from certus.base import (
    Model,
    certified_fit,
    check_choice,
    check_number,
    generator_of,
)
from certus.text import sampling
from certus.text.corpus import EncodedCorpus, TextInput, encode
from certus.text.document_training import infer, train
from certus.text.parameters import SamplingOptions
from certus.text.vectors import pool
from certus.text.vocabulary import lookup
from certus.typing import Array, ArrayLike, TextsLike

__all__ = ["DocumentVectors"]

TINY = float(np.finfo(np.float32).tiny)


@shares(SamplingOptions, max_iter=20, min_count=2)
class DocumentVectors(sampling.Sampled, TextInput, Model):
    """Vectors of texts, trained to predict words.

    Objective
    ---------
    mean over pairs (s, w) of −log σ(h_s·u_w) − Σⱼ log σ(−h_s·u_{nⱼ})

    over texts s and words w, after frequent words are thinned out: the words of s
    itself, or those of its neighbours. The k = ``negatives`` words nⱼ are drawn from
    q(w) ∝ count(w)^power.

    Certificate
    -----------
    ``reported_loss`` (MEASURED): the objective over a sample of pairs, drawn once from
    ``random_state``, is what the training reported in ``history_["objective"]``,
    recomputed in float64. ``sample_loss``, ``gradient_norm`` and ``pairs_told_apart``
    (MEASURED), as for :class:`certus.text.SkipGram`. There is no guarantee for other
    pairs or new texts.

    Parameters
    ----------
    n_components : int, default=100
        Number of components. This is the length of the vectors.
    target : {"words", "neighbours"}, default="words"
        A text predicts its own words, or the words of the texts next to it; the latter
        needs texts in their order, for example the sentences of a book.
    window : int, default=1
        How many texts before and after a text are its neighbours.
    {shared}

    Attributes
    ----------
    document_vectors_ : ndarray of shape (n_documents, n_components)
        h of each training text, float32; zero for a text without known words.
    vocabulary_ : list of str
        The words, by falling count.
    vectors_ : ndarray of shape (n_words, n_components)
        Vectors of words whose means are h; only if neighbours are predicted.
    context_vectors_ : ndarray of shape (n_words, n_components)
        u, float32.
    counts_ : ndarray of int64
        Occurrences of each word.
    n_iter_, n_pairs_ : int
        Epochs completed, pairs visited.
    history_ : dict
        ``objective``, ``running_loss`` and ``seconds`` after each epoch, as for
        :class:`certus.text.SkipGram`.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    ``transform`` makes ``max_iter`` passes over each text with the same step sizes, and
    is always deterministic.

    Time: pairs × (negatives + 1) × n_components. Memory: the tables and the corpus as
    int32. In ``transform`` the vectors u are fixed, so finding the vector of a text is
    a convex problem; the result depends on its words and the model, not on the texts
    beside it.

    Examples
    --------
    >>> from certus.text import DocumentVectors
    >>> texts = ["red green blue", "blue red", "one two three", "three one"] * 20
    >>> model = DocumentVectors(8, subsample=None, max_iter=50, deterministic=True,
    ...                         random_state=0).fit(texts)
    >>> [texts[i] for i, _ in model.most_similar("green red", n=1)][0] in texts[:2]
    True
    """

    def __init__(
        self,
        n_components: int = 100,
        *,
        target: str = "words",
        window: int = 1,
        **shared: Unpack[SamplingOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, texts: TextsLike | EncodedCorpus, y: ArrayLike | None = None) -> Any:
        """Learn vectors of texts.

        Parameters
        ----------
        texts : iterable of str or of sequences of str, or EncodedCorpus
            Documents; a generator serves.
        y : None
            Ignored.
        """
        sampling.check_training(self)
        check_choice("target", self.target, ("words", "neighbours"))
        check_number("window", self.window, 1, integer=True)
        corpus = self._read(texts)
        random = generator_of(self.random_state)
        n, d = len(corpus.words), int(self.n_components)
        own = self.target == "words"
        inputs = sampling.start_vectors(corpus.n_documents if own else n, d, random)
        self.context_vectors_ = np.zeros((n, d), dtype=np.float32)
        self.vocabulary_ = corpus.words
        self.counts_ = np.asarray(corpus.counts, dtype=np.int64)
        self.seed_ = int(random.integers(1 << 62))
        if own:
            inputs[np.diff(corpus.offsets) == 0] = 0.0
            self.document_vectors_ = inputs
        else:
            self.vectors_ = inputs
        return train(self, texts, corpus, inputs, random)

    def transform(self, texts: Iterable[Any]) -> Array:
        """Vectors of texts, new or old.

        Parameters
        ----------
        texts : iterable
            Documents, each a str or a sequence of words.

        Returns
        -------
        ndarray of shape (n_documents, n_components)
            If own words are predicted, the vector that does so best, by ``max_iter``
            passes of gradient descent from zero with u fixed; else the mean of the
            words' vectors. Zero for a text without known words.
        """
        check_is_fitted(self, "document_vectors_")
        corpus = encode(texts, tokenizer=self.tokenizer, vocabulary=lookup(self))
        if self.target == "neighbours":
            ones = np.ones(len(self.vocabulary_), dtype=np.float32)
            return pool(corpus.ids, corpus.offsets, ones, self.vectors_)
        return infer(self, corpus)

    def fit_transform(self, texts: Iterable[Any], y: ArrayLike | None = None) -> Array:
        """Fit, and return the vectors of the training texts.

        Parameters
        ----------
        texts : iterable
            Documents.
        y : None
            Ignored.
        """
        self.fit(texts)
        return self.document_vectors_

    def most_similar(
        self, text: str | Sequence[str] | int, n: int = 10
    ) -> list[tuple[int, float]]:
        """The training texts whose vectors have the largest cosine with that of a text.

        Parameters
        ----------
        text : str, sequence of str, or int
            A text, or the number of a training text, which is left out of the answer.
        n : int, default=10
            How many.

        Returns
        -------
        list of (int, float)
            Numbers of training texts and cosines, the nearest first.
        """
        check_is_fitted(self, "document_vectors_")
        check_number("n", n, 1, integer=True)
        if isinstance(text, int | np.integer):
            check_number("text", text, 0, len(self.document_vectors_) - 1)
            query, but = self.document_vectors_[text], {int(text)}
        else:
            query, but = self.transform([text])[0], set()
        Z = self.document_vectors_
        sizes = np.sqrt(np.einsum("ij,ij->i", Z, Z)) * max(np.linalg.norm(query), TINY)
        cosines = Z @ query / np.where(sizes > 0, sizes, 1)
        order = np.argsort(-cosines, kind="stable")[: n + len(but)].tolist()
        return [(i, float(cosines[i])) for i in order if i not in but][:n]

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> Array:
        """Names of the columns of document vectors.

        Parameters
        ----------
        input_features : None
            Ignored.
        """
        check_is_fitted(self, "document_vectors_")
        names = [f"documentvectors{i}" for i in range(self.n_components)]
        return np.asarray(names, dtype=object)
