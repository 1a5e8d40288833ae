"""GloVe: word vectors whose products are logarithms of co-occurrence counts.

    min over W, Z, b, c of  ½ Σ_{n_ij > 0} f(n_ij)(w_i·z_j + b_i + c_j − log n_ij)²
    f(n) = min(1, (n/x_max)^α)

A weighted factorisation of log counts over the pairs of words that were seen. It is not
convex; with one side fixed it is, and each row of the other is a least-squares problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.base import (
    Fitted,
    Model,
    certified_fit,
    check_choice,
    check_number,
    generator_of,
    require_indices,
)
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import GloVeWitness
from certus.text.cooccurrence import count_pairs, in_contexts, pair_settings
from certus.text.corpus import EncodedCorpus
from certus.text.counts import document_counts
from certus.text.glove_solvers import (
    Alternation,
    Descent,
    GloVeFactors,
    constant_objective,
    entries,
    objective,
)
from certus.text.vectors import WordVectors
from certus.text.words import Tokenizer
from certus.typing import (
    Array,
    ArrayLike,
    CompressedMatrix,
    MatrixLike,
    RandomState,
    TextsLike,
)

__all__ = ["GloVe"]


class Counted(NamedTuple):
    """Counts to factorise, and the corpus they were taken from, if known."""

    words: list[str]
    ids: Array | None
    offsets: Array | None
    matrix: Any


class GloVe(WordVectors, Model):
    """Word vectors by weighted factorisation of log co-occurrence counts.

    Objective
    ---------
    minimise over W, Z, b, c

        ½ Σ f(n_ij)(w_i·z_j + b_i + c_j − log n_ij)²,
        f(n) = min(1, (n / x_max)^weight_power)

    over the pairs with n_ij > 0. ``history_["objective"]`` is this sum after each
    epoch.

    Certificate
    -----------
    ``half_step_gain`` (PROVED), for ``solver="als"``: what exact solves of the words'
    rows would still gain, as a share of the objective of the best constant, is at most
    ``tol``. ``"sgd"`` has no target and states the same number as
    ``remaining_gain`` (PROVED). ``objective`` (MEASURED): the sum, recomputed.
    ``cooccurrence_counts`` (PROVED): counts of a sample of words, taken again. The
    quick check looks at as many rows as a pass allows, level "full" at all. The problem
    is not convex: nothing is said about other minima.

    Parameters
    ----------
    n_components : int, default=50
        Number of components. This is the length of the vectors.
    context, window, weighting, symmetric
        As in :class:`certus.text.Cooccurrence`; by default windows of 10 words to each
        side, where a pair counts 1/distance.
    x_max : float, default=100.0
        Count from which pairs weigh fully.
    weight_power : float, default=0.75
        Power of the weights below ``x_max``; 0 weighs all pairs alike.
    solver : {"sgd", "als"}, default="sgd"
        Algorithm that computes the fit. Stochastic steps, Θ(n_components) per pair; or
        exact solves of rows in turn, Θ(n_components²) per pair, which need fewer rounds
        and go down every time.
    biases : bool, default=True
        Whether to fit constant terms. They are b and c; if they are not fitted, they
        are zero.
    learning_rate : float, default=0.1
        Step size. For ``"sgd"``. If the steps diverge, the last finite vectors are kept
        and the certificate says so.
    adaptive : bool, default=True
        AdaGrad; else plain steps that shrink linearly to zero over ``max_iter`` epochs.
    max_iter : int, default=50
        Maximum number of iterations. They are epochs of ``"sgd"`` or rounds of
        ``"als"``.
    tol : float, default=1e-4
        ``"als"``: target of ``half_step_gain``. ``"sgd"`` ends early when an epoch
        gains less than this share.
    tokenizer, min_count, max_words
        As in :class:`certus.text.Cooccurrence`; by default words seen five times at
        least.
    warm_start : bool, default=False
        Whether to start from the last fit. The vocabulary must be the same.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the start and the order of
        the steps. Equal seeds give equal vectors, bit for bit, at any number of
        threads.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.

    Attributes
    ----------
    vectors_ : ndarray of shape (n_words, n_components)
        W + Z; W alone if the counts are not square.
    word_factors_, context_factors_ : ndarray
        W and Z.
    word_biases_, context_biases_ : ndarray
        b and c.
    vocabulary_ : list of str
        The words, by falling count.
    counts_, document_counts_ : ndarray of int64
        How often each occurs, and in how many documents (or sentences).
    n_documents_ : int
        Number of documents (or sentences).
    history_ : dict
        Objective, gain (under ``gap``) and seconds after each epoch.
    n_iter_ : int
        Epochs or rounds run.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    Memory: the pairs seen, at most thrice, and the tables; nothing of size n_words².

    Examples
    --------
    >>> from certus.text import GloVe
    >>> texts = ["the cat drinks milk", "the dog drinks water"] * 20
    >>> model = GloVe(n_components=2, window=3, solver="als", random_state=0).fit(texts)
    >>> model.certificate_.met
    True
    >>> model.similarity("milk", "cat") > model.similarity("milk", "dog")
    True
    """

    def __init__(
        self,
        n_components: int = 50,
        *,
        context: str = "window",
        window: int = 10,
        weighting: str = "harmonic",
        symmetric: bool = True,
        x_max: float = 100.0,
        weight_power: float = 0.75,
        solver: str = "sgd",
        biases: bool = True,
        learning_rate: float = 0.1,
        adaptive: bool = True,
        max_iter: int = 50,
        tol: float = 1e-4,
        tokenizer: str | Tokenizer | None = None,
        min_count: int = 5,
        max_words: int | None = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        max_time: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.context = context
        self.window = window
        self.weighting = weighting
        self.symmetric = symmetric
        self.x_max = x_max
        self.weight_power = weight_power
        self.solver = solver
        self.biases = biases
        self.learning_rate = learning_rate
        self.adaptive = adaptive
        self.max_iter = max_iter
        self.tol = tol
        self.tokenizer = tokenizer
        self.min_count = min_count
        self.max_words = max_words
        self.warm_start = warm_start
        self.random_state = random_state
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Iterable[Any], y: ArrayLike | None = None) -> Any:
        """Fit to documents.

        Parameters
        ----------
        X : iterable
            Documents, each a str or a sequence of words. A generator serves.
        y : None
            Ignored.
        """
        pairs = _check_parameters(self)
        counted = X if isinstance(X, Counted) else self._count(X, pairs)
        before = self._previous(counted)
        self.vocabulary_ = counted.words
        monitor = Monitor(self, X, None, None, self.max_time)
        status = _minimise(self, counted.matrix, before, monitor)
        self.history_ = monitor.history
        self.n_iter_ = len(monitor.history["objective"])
        monitor.close(_attributes(_factors(self)))
        witness = GloVeWitness(status is Status.DIVERGED)
        evidence = Evidence("glove", witness=witness)
        return Fitted(evidence, counted, None, None, status)

    def fit_counts(
        self, matrix: MatrixLike, vocabulary: Sequence[str] | None = None
    ) -> GloVe:
        """Fit to co-occurrence counts taken elsewhere.

        Parameters
        ----------
        matrix : sparse matrix or array of shape (n_words, n_contexts)
            Counts, not negative; zeros are pairs that were not seen. A square matrix is
            taken as words × words.
        vocabulary : sequence of str, optional
            The words of the rows; by default their numbers.

        Returns
        -------
        GloVe
            The model itself. ``certus.certify`` then takes the matrix.

        Examples
        --------
        >>> import numpy as np
        >>> from certus.text import GloVe
        >>> counts = np.exp(np.add.outer([1.0, 2.0, 3.0], [0.0, 1.0]))
        >>> model = GloVe(1, solver="als", random_state=0).fit_counts(counts)
        >>> model.vectors_.shape, model.certificate_.met
        ((3, 1), True)
        """
        counts = _check_counts(matrix)
        words = list(map(str, range(counts.shape[0])))
        if vocabulary is not None:
            words = list(vocabulary)
            if len(words) != counts.shape[0] or len(set(words)) < len(words):
                raise ValueError(
                    f"vocabulary must name each of the {counts.shape[0]:,} rows "
                    "exactly once."
                )
        for name in ("counts_", "document_counts_", "n_documents_"):
            if hasattr(self, name):
                delattr(self, name)
        self.fit(Counted(words, None, None, counts))
        return self

    def _count(self, X: TextsLike | EncodedCorpus, pairs: dict[str, Any]) -> Counted:
        corpus = self._read(X)
        matrix = count_pairs(corpus, **pairs)
        if matrix.nnz == 0:
            raise ValueError(
                "No two words occur together: every context holds at most one word "
                "of the vocabulary. Lower min_count, or join the documents."
            )
        self.counts_, self.document_counts_ = corpus.counts, document_counts(corpus)
        self.n_documents_ = corpus.n_documents
        return Counted(corpus.words, corpus.ids, corpus.offsets, matrix)

    def _sources(self, texts: Iterable[Any]) -> Iterable[Any]:
        return in_contexts(texts, self.context)

    def _previous(self, counted: Counted) -> GloVeFactors | None:
        if not self.warm_start or not hasattr(self, "word_factors_"):
            return None
        before = _factors(self)
        rows, columns = counted.matrix.shape
        fits = before.W.shape == (rows, self.n_components) and len(before.Z) == columns
        return before.copy() if fits and self.vocabulary_ == counted.words else None


def _factors(model: GloVe) -> GloVeFactors:
    names = ("word_factors_", "context_factors_", "word_biases_", "context_biases_")
    return GloVeFactors(*(getattr(model, name) for name in names))


def _attributes(at: GloVeFactors) -> dict[str, Array]:
    square = at.W.shape == at.Z.shape
    return {
        "vectors_": at.W + at.Z if square else at.W.copy(),
        "word_factors_": at.W,
        "context_factors_": at.Z,
        "word_biases_": at.b,
        "context_biases_": at.c,
    }


def _check_parameters(model: GloVe) -> dict[str, Any]:
    check_number("n_components", model.n_components, 1, integer=True)
    check_number("x_max", model.x_max, open_low=True)
    check_number("weight_power", model.weight_power)
    check_choice("solver", model.solver, ("sgd", "als"))
    check_number("learning_rate", model.learning_rate, open_low=True)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("tol", model.tol)
    check_number("max_time", model.max_time, none=True)
    return pair_settings(model)


def _check_counts(matrix: MatrixLike) -> Any:
    require_indices(matrix, "The matrix of counts")
    counts = sparse.csr_matrix(matrix, dtype=np.float64, copy=True)
    counts.sum_duplicates()
    counts.eliminate_zeros()
    if not np.isfinite(counts.data).all() or (counts.data < 0).any():
        raise ValueError("Counts must be finite and not negative.")
    if counts.nnz == 0:
        raise ValueError("The counts are all zero, so there is nothing to factorise.")
    return counts


def _minimise(
    model: GloVe,
    matrix: CompressedMatrix,
    before: GloVeFactors | None,
    monitor: Monitor,
) -> Status:
    """Run epochs until the plateau, the limit, or an interrupt."""
    rng = generator_of(model.random_state)
    data = entries(matrix, float(model.x_max), float(model.weight_power))
    start = before or _start(matrix.shape, int(model.n_components), rng)
    biased = bool(model.biases)
    solver: Any
    if model.solver == "als":
        turned = entries(
            matrix.T.tocsr(), float(model.x_max), float(model.weight_power)
        )
        solver = Alternation(data, turned, start, biased)
    else:
        rate, epochs = float(model.learning_rate), int(model.max_iter)
        adaptive = bool(model.adaptive)
        solver = Descent(data, start, rate, adaptive, biased, epochs, rng)
    scale = constant_objective(data) or 1.0
    value, status, kept = objective(data, start), None, start.copy()
    try:
        for _ in range(int(model.max_iter)):
            solver.step()
            last, value = value, objective(data, solver.at)
            if not np.isfinite(value):
                status = Status.DIVERGED
                break
            for old, new in zip(kept, solver.at):
                np.copyto(old, new)
            share = (last - value) / scale
            status = monitor.step(value, share, lambda: _attributes(kept))
            if status is None and share <= model.tol:
                status = Status.SOLVED
            if status is not None:
                break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    if status is None:
        status = Status.MAX_ITER if model.solver == "als" else Status.SOLVED
    for name, part in _attributes(kept).items():
        setattr(model, name, part)
    return status


def _start(shape: tuple[int, int], K: int, rng: np.random.Generator) -> GloVeFactors:
    sides = [rng.uniform(-0.5, 0.5, (n, K)) / K for n in shape]
    return GloVeFactors(*sides, *(np.zeros(n) for n in shape))
