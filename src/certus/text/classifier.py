"""Classification of texts by the mean of word and n-gram vectors (fastText).

    min over Z, W of  (1/n) Σᵢ ℓ(W·hᵢ, yᵢ),   hᵢ = mean of the rows of Z in text i

with ℓ the cross-entropy of a softmax over the classes, or of a product of logistic
choices down a Huffman tree. It is a linear classifier on the bag of words whose matrix
Z·Wᵀ has the rank of the vectors, trained by stochastic gradient descent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import class_weights
from certus.base import (
    Estimator,
    Fitted,
    certified_fit,
    check_choice,
    check_number,
    class_codes,
    generator_of,
)
from certus.callbacks import Monitor
from certus.certificate import Claim, Evidence
from certus.diagnostics import Diagnosed
from certus.diagnostics.text_classifier import Scorer, Texts, evaluation_rows, measure
from certus.text import features
from certus.text.classifier_training import (
    Parameters,
    Previous,
    TextTraining,
    document_vectors,
    log_probabilities,
)
from certus.text.corpus import EncodedCorpus, TextInput, encode
from certus.text.features import select
from certus.text.huffman import huffman_tree
from certus.text.ngrams import Lists
from certus.text.vocabulary import lookup
from certus.text.words import Tokenizer, character_lengths
from certus.typing import Array, ArrayLike, RandomState, TextsLike


class FastTextClassifier(Diagnosed, TextInput, ClassifierMixin, Estimator):
    """Linear classifier on averaged word and n-gram vectors.

    Objective
    ---------
    Σ sᵢ ℓ(W·hᵢ, yᵢ) / Σ s over the training texts, hᵢ the mean of the vectors of the
    words and n-grams of text i, s the class weights; no penalty and no intercept. ℓ is
    −log softmax(W·h)_y, or for ``loss="hierarchical"`` −Σ log σ(±W_j·h) over the nodes
    j above the leaf y of a Huffman tree of the labels.

    Certificate
    -----------
    ``reported_loss`` (MEASURED): the last number of ``history_["objective"]`` is the
    stated objective at the fitted vectors, on up to 4,096 evenly spaced training texts,
    recomputed in float64 from the texts. ``training_loss``, ``gradient_norm`` and
    ``training_error`` (MEASURED) on the same texts; at level "full" on all. The problem
    is not convex: nothing is said about other minima.

    Parameters
    ----------
    n_components : int, default=100
        Number of components. This is the length of the vectors.
    loss : {"softmax", "hierarchical"}, default="softmax"
        Loss of a row. The cross entropy over all classes, or over the path to a leaf of
        a tree, whose cost grows with the logarithm of the number of classes.
    word_ngrams : int, default=1
        Runs of up to this many successive words are features of their own.
    char_ngrams : (int, int), default=None
        Fewest and most characters in a piece of a word. Pieces are features too, so
        that words never seen before have some. None means no pieces.
    n_buckets : int, default=2_000_000
        Number of buckets into which n-grams are hashed. Only those that occur take
        memory.
    min_count : int, default=1
        Words that occur less often are left out. They have no vector of their own.
    learning_rate : float, default=0.1
        Step size. It falls linearly to zero.
    max_iter : int, default=5
        Maximum number of iterations. They are passes over the texts, each in its own
        order.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the row weights.
    tokenizer : None, "whitespace" or callable, default=None
        How a str is split into words; None means :func:`certus.text.tokenize`. Lists of
        tokens are kept.
    deterministic : bool, default=False
        Whether to use one thread, so that equal seeds give equal vectors. Otherwise
        several write to the vectors without locks, and two fits differ about as much as
        two orders of the texts do.
    warm_start : bool, default=False
        Whether to start from the last fit. Words and classes must be the same.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the first vectors and the
        order of the texts.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has. It may stop within an
        epoch.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    vocabulary_ : list of str
        Words, by falling count; word i has row i of ``vectors_``.
    buckets_ : ndarray
        Hash buckets of the n-grams seen, ascending; their rows follow the words'.
    ngrams_ : tuple
        ``word_ngrams``, ``char_ngrams`` and ``n_buckets`` of the fit.
    vectors_ : ndarray of shape (n_words + n_buckets_seen, n_components), float32
        Z.
    coef_ : ndarray of shape (n_classes, n_components), float32
        W; for ``loss="hierarchical"`` one row for each of n_classes − 1 nodes.
    tree_ : ndarray or None
        Parent and side of each vertex of the tree, see
        :func:`certus.text.huffman.huffman_tree`.
    n_iter_ : int
        Complete epochs.
    history_ : dict
        After each epoch: ``objective``, exact, on the texts of the certificate;
        ``error``, the share of them that is misclassified; ``running_loss``, the mean
        loss of the texts of the epoch, each just before its step; ``seconds``.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    An epoch costs O(features·d + n·classes·d), hierarchical O(features·d + n·log
    classes·d). Memory: the table of vectors, four bytes per feature of the texts, and
    the list of texts if an iterator was passed. Words and buckets not seen in training
    are ignored. A text without any known feature has the vector 0: equal
    probabilities by softmax, 2^−depth down the tree, which follows the frequencies.

    Examples
    --------
    >>> from certus.text import FastTextClassifier
    >>> texts = ["good film", "fine acting", "bad film", "awful acting"] * 10
    >>> labels = ["pos", "pos", "neg", "neg"] * 10
    >>> model = FastTextClassifier(n_components=8, learning_rate=1.0, random_state=0)
    >>> model.fit(texts, labels).predict(["good acting", "an awful film"])
    array(['pos', 'neg'], dtype='<U3')
    """

    def __init__(
        self,
        n_components: int = 100,
        *,
        loss: str = "softmax",
        word_ngrams: int = 1,
        char_ngrams: tuple[int, int] | None = None,
        n_buckets: int = 2_000_000,
        min_count: int = 1,
        learning_rate: float = 0.1,
        max_iter: int = 5,
        class_weight: Mapping[Any, float] | str | None = None,
        tokenizer: str | Tokenizer | None = None,
        deterministic: bool = False,
        warm_start: bool = False,
        random_state: RandomState = None,
        max_time: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.loss = loss
        self.word_ngrams = word_ngrams
        self.char_ngrams = char_ngrams
        self.n_buckets = n_buckets
        self.min_count = min_count
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.tokenizer = tokenizer
        self.deterministic = deterministic
        self.warm_start = warm_start
        self.random_state = random_state
        self.max_time = max_time

    @certified_fit
    def fit(self, X: TextsLike, y: ArrayLike) -> Any:
        """Learn vectors from labelled texts.

        Parameters
        ----------
        X : iterable of str, or of sequences of str
            Texts, or their words. One that can be read only once is kept as a list.
        y : array-like of shape (n_texts,)
            Labels of any kind.
        """
        _check_parameters(self)
        texts = list(X) if isinstance(X, Iterator) else X
        labels, classes, codes = _labels(y)
        before = Previous.of(self) if self.warm_start else None
        self.classes_ = classes
        monitor = Monitor(self, texts, labels, None, self.max_time)
        training = self._prepare(texts, codes, before, monitor)
        status = training.run(int(self.max_iter), float(self.learning_rate))
        self.n_iter_, self.history_ = training.n_complete, training.history
        for name, value in training.attributes().items():
            setattr(self, name, value)
        monitor.close(training.attributes())
        evidence = Evidence("text_classifier")
        measured = self._to_measure(None, texts, labels)
        return Fitted(evidence, texts, labels, None, status, measured=measured)

    def _measured(
        self,
        witness: None,
        X: TextsLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        level: str,
    ) -> list[Claim]:
        check_is_fitted(self)
        if sample_weight is not None:
            raise ValueError("Text classifiers are fitted without sample_weight.")
        codes = _known_codes(y, self.classes_)
        n = len(codes)
        rows = np.arange(n) if level == "full" else evaluation_rows(n)
        lists = select(_read(self, X), rows)
        s = _class_weights(self, codes)[codes[rows]]
        tree = self.tree_
        ell = "−log softmax(W·h)_y"
        if tree is not None:
            ell = "−Σ log σ(±W_j·h) on the path to the leaf y"
        weighed = "" if self.class_weight is None else ", weighted by class,"
        return measure(
            Scorer(self.vectors_, self.coef_, tree, len(self.classes_)),
            Texts(*lists, codes[rows], s, rows, n),
            self.history_["objective"][-1],
            f"mean over texts{weighed} of {ell}",
            f"lower learning_rate (now {self.learning_rate:g})",
        )

    def _prepare(
        self, texts: TextsLike, codes: Array, before: Previous | None, monitor: Monitor
    ) -> TextTraining:
        """Read the texts, and initialise every vector."""
        lists = _read_training(self, texts, len(codes))
        weights = _class_weights(self, codes)
        self.tree_ = None
        if self.loss == "hierarchical":
            counts = np.bincount(codes, minlength=len(self.classes_))
            self.tree_ = huffman_tree(counts * weights)
        random = generator_of(self.random_state)
        n_rows = len(self.vocabulary_) + len(self.buckets_)
        n_outputs = len(self.classes_) - (self.tree_ is not None)
        parameters = Parameters.random(
            n_rows, n_outputs, int(self.n_components), random
        )
        if before is not None:
            before.copy_to(self, parameters)
        return TextTraining(
            parameters,
            lists,
            codes,
            weights,
            self.tree_,
            random,
            monitor,
            threaded=not self.deterministic,
            max_time=self.max_time,
        )

    def transform(self, X: TextsLike) -> Array:
        """Document vectors: the mean of the vectors of the words and n-grams of each.

        Parameters
        ----------
        X : iterable of str, or of sequences of str
            Texts; one of which nothing is known has the vector 0.

        Returns
        -------
        ndarray of shape (n_texts, n_components), float32
        """
        check_is_fitted(self)
        lists = _read(self, X)
        out = np.empty((len(lists.offsets) - 1, self.vectors_.shape[1]), np.float32)
        for part, H in document_vectors(self.vectors_, lists):
            out[part] = H
        return out

    def predict_log_proba(self, X: TextsLike) -> Array:
        """Logarithms of the probabilities, see ``predict_proba``.

        Parameters
        ----------
        X : iterable of str, or of sequences of str
            Texts.
        """
        check_is_fitted(self)
        lists = _read(self, X)
        return log_probabilities(self.vectors_, self.coef_, self.tree_, lists)

    def predict_proba(self, X: TextsLike) -> Array:
        """Probability of each class, in the order of ``classes_``.

        Parameters
        ----------
        X : iterable of str, or of sequences of str
            Texts.

        Returns
        -------
        ndarray of shape (n_texts, n_classes)
            Rows sum to 1, for either loss.
        """
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: TextsLike) -> Array:
        """The most probable class; of equally probable ones the first.

        Parameters
        ----------
        X : iterable of str, or of sequences of str
            Texts.
        """
        return self.classes_[self.predict_log_proba(X).argmax(axis=1)]

    def _predictor(
        self, X: TextsLike, y: ArrayLike | None = None
    ) -> tuple[Any, Any, Any]:
        return self, list(X) if isinstance(X, Iterator) else X, y


# -- input ------------------------------------------------------------------------


def _check_parameters(model: FastTextClassifier) -> None:
    check_number("n_components", model.n_components, 1, integer=True)
    check_choice("loss", model.loss, ("softmax", "hierarchical"))
    check_number("word_ngrams", model.word_ngrams, 1, 100, integer=True)
    check_number("n_buckets", model.n_buckets, 1, 1e8, integer=True)
    check_number("min_count", model.min_count, 1, integer=True)
    check_number("learning_rate", model.learning_rate, open_low=True)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("max_time", model.max_time, none=True)
    if model.char_ngrams is not None:
        character_lengths(model.char_ngrams)


def _labels(y: ArrayLike) -> tuple[Array, Array, Array]:
    """The labels, the classes, and the class of each text."""
    if y is None:
        raise ValueError("y is missing: pass one label per text.")
    labels = column_or_1d(list(y) if isinstance(y, Iterator) else y)
    holes = labels != labels if labels.dtype.kind in "fO" else np.zeros(1, dtype=bool)
    if np.any(holes) or (labels.dtype.kind == "O" and any(v is None for v in labels)):
        raise ValueError("y holds missing labels (NaN or None). Drop those texts.")
    if not len(labels):
        raise ValueError("There are no texts to learn from: y is empty.")
    return labels, *class_codes(labels)


def _recipe(model: FastTextClassifier) -> features.Recipe:
    lengths = model.char_ngrams
    return features.Recipe(
        int(model.word_ngrams),
        None if lengths is None else character_lengths(lengths),
        int(model.n_buckets),
    )


def _read_training(model: FastTextClassifier, texts: Iterable[Any], n: int) -> Lists:
    """Set ``vocabulary_`` and ``buckets_``; the features of each text."""
    if isinstance(texts, EncodedCorpus):
        raise ValueError(
            "Pass the texts themselves, because the certificate is about them."
        )
    recipe, least = _recipe(model), int(model.min_count)
    # Words too rare for a vector still have their pieces.
    early = 1 if recipe.char_ngrams else least
    corpus = encode(texts, tokenizer=model.tokenizer, min_count=early)
    if corpus.n_documents != n:
        raise ValueError(f"There are {corpus.n_documents} texts, but {n} labels.")
    kept = int(np.sum(corpus.counts >= least))
    if kept == 0:
        often = "" if least == 1 else f" that occurs at least {least} times"
        raise ValueError(
            f"The texts hold no word{often}, so there is nothing to learn from."
        )
    model.vocabulary_ = corpus.words[:kept]
    rows = np.arange(len(corpus.words), dtype=np.int32)
    rows[kept:] = -1
    grams = features.hashed(recipe, corpus, rows)
    model.ngrams_ = tuple(recipe)
    model.buckets_ = features.used_buckets(grams, recipe.n_buckets)
    return features.features(recipe, corpus, rows, grams, model.buckets_, kept)


def _read(model: FastTextClassifier, texts: Iterable[Any]) -> Lists:
    """The features of new texts."""
    recipe = features.Recipe(*model.ngrams_)
    corpus = encode(texts, tokenizer=model.tokenizer)
    rows = features.word_rows(corpus.words, lookup(model))
    grams = features.hashed(recipe, corpus, rows)
    return features.features(
        recipe, corpus, rows, grams, model.buckets_, len(model.vocabulary_)
    )


def _known_codes(y: ArrayLike, classes: Array) -> Array:
    """The place of each label among those of the fit."""
    labels = np.asarray(column_or_1d(y))
    places = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    strange = np.flatnonzero(classes[places] != labels)
    if len(strange):
        raise ValueError(
            f'y holds the label "{labels[strange[0]]}", which the model was not fitted '
            "on."
        )
    return places


def _class_weights(model: FastTextClassifier, codes: Array) -> Array:
    """One weight per class, of mean 1 over the texts."""
    k = len(model.classes_)
    if model.class_weight is None:
        return np.ones(k)
    each = class_weights(model.class_weight, codes, model.classes_)
    mean = float(each[codes].mean())
    if not mean > 0:
        raise ValueError("class_weight gives every text the weight 0.")
    return each / mean
