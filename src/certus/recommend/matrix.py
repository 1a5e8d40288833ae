"""Matrix factorisation of explicit ratings, many of them missing.

    min ½ Σ_Ω s_ui (x_ui − μ − b_u − c_i − w_u·z_i)²
        + (λ_w/2)‖W‖² + (λ_z/2)‖Z‖² + (λ_b/2)(‖b‖² + ‖c‖²)

over the observed entries Ω, by alternating least squares or by stochastic descent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from certus.base import Fitted, certified_fit, check_choice, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import RatingsWitness
from certus.recommend.rating_solvers import (
    RatingFactors,
    RatingProblem,
    alternate,
    both_sides,
    column_starts,
    descend,
    rows_of,
)
from certus.recommend.ratings import Ratings, locate, read_ratings
from certus.recommend.recommending import Recommender
from certus.typing import Array, ArrayLike, MatrixLike, RandomState


class MatrixFactorization(Recommender):
    """Factors and biases behind a partly observed users × items matrix.

    Objective
    ---------
    ½ Σ_Ω s(x − μ − b_u − c_i − w_u·z_i)² + (λ_w/2)‖W‖² + (λ_z/2)‖Z‖²
    + (λ_b/2)(‖b‖² + ‖c‖²), with μ the mean rating; without biases μ = b = c = 0.

    Certificate
    -----------
    ``solver="als"``: ``half_step_gain`` (PROVED), the most that an exact solve for
    all users, or for all items, would still gain, as a share of the objective; ``tol``
    bounds it. ``solver="sgd"``: ``remaining_gain`` (PROVED), a lower bound on what an
    exact solve for all users would gain: at least so much is left. Both: the objective
    and its gradient (MEASURED). Level "full": the exact gain, the run from the recorded
    start repeated and monotone (ALS), and ``global_gap``, how far above the best of all
    factorisations this one can be.

    Parameters
    ----------
    n_components : int, default=32
        Number of components. This is the length K of w_u and z_i.
    solver : {"als", "sgd"}, default="als"
        Algorithm that computes the fit. Exact solves in turn, or one step for each
        entry. Both give the same result at any number of threads.
    biases : bool, default=True
        Whether to fit constant terms. They are μ, b and c.
    alpha : float, default=5.0
        Strength of the penalty. It is λ_w, that of the users.
    alpha_items, alpha_biases : float, default=None
        λ_z and λ_b; None means as ``alpha``.
    penalty_scale : {"rows", "ratings"}, default="rows"
        With "ratings" each row's penalty is multiplied by its number of ratings.
    max_iter : int, default=50
        Maximum number of iterations. They are rounds of ALS (users and items) or epochs
        of SGD.
    tol : float or None, default=1e-3
        ALS ends when a round gains less than half this share of the objective; None to
        run ``max_iter`` rounds. SGD has no such rule and ignores it.
    learning_rate : float, default=0.005
        Step size. For "sgd".
    init_std : float, default=0.1
        Standard deviation of the factors at the start.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the start, and the order of
        users in SGD.
    warm_start : bool, default=False
        Whether to start from the last fit. Users and items that are new start afresh.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.

    Attributes
    ----------
    users_, items_ : ndarray
        Ids; positions if a matrix was fitted.
    seen_ : CSR matrix of bool
        Which pairs ``fit`` was given; ``recommend`` leaves them out.
    user_factors_, item_factors_ : ndarray of shape (n_users, K) and (n_items, K)
        W and Z; zero for those without ratings.
    user_biases_, item_biases_ : ndarray
        b and c.
    mean_ : float
        μ.
    n_iter_ : int
        Rounds or epochs.
    history_ : dict
        Objective, gain of the round as a share of it (under ``gap``) and seconds.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A round of ALS costs m·K² + (n_users + n_items)·K³ operations for m ratings, an
    epoch of SGD m·K. Memory is that of the ratings, by users and by items, and of the
    factors.

    A stored zero of a sparse matrix is a rating of zero; NaN of a dense matrix is
    missing. ``predict`` gives users and items not seen in ``fit`` the bias model: μ +
    c_i for a new user, μ + b_u for a new item, μ for both; without biases there is none
    and such a pair is an error. Predictions are not clipped to the range of ratings.

    Examples
    --------
    >>> from certus.recommend import MatrixFactorization
    >>> pairs = [("ann", "tea"), ("ann", "rum"), ("bob", "tea"), ("bob", "gin")]
    >>> model = MatrixFactorization(n_components=1, alpha=0.1, random_state=0)
    >>> model = model.fit(pairs, [5, 1, 4, 2])
    >>> model.recommend("ann").ids.tolist()
    ['gin']
    >>> model.predict([("ann", "tea")]).round() == 5
    array([ True])
    """

    def __init__(
        self,
        n_components: int = 32,
        *,
        solver: str = "als",
        biases: bool = True,
        alpha: float = 5.0,
        alpha_items: float | None = None,
        alpha_biases: float | None = None,
        penalty_scale: str = "rows",
        max_iter: int = 50,
        tol: float | None = 1e-3,
        learning_rate: float = 0.005,
        init_std: float = 0.1,
        random_state: RandomState = None,
        warm_start: bool = False,
        max_time: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.biases = biases
        self.alpha = alpha
        self.alpha_items = alpha_items
        self.alpha_biases = alpha_biases
        self.penalty_scale = penalty_scale
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.init_std = init_std
        self.random_state = random_state
        self.warm_start = warm_start
        self.max_time = max_time

    @certified_fit
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Any:
        """Fit to ratings.

        Parameters
        ----------
        X : sparse or dense matrix (n_users, n_items), or pairs (n_ratings, 2)
            Rows are users, always. Pairs (user, item) go with ``y``.
        y : array-like of shape (n_ratings,), optional
            The ratings of the pairs.
        sample_weight : array-like or matrix, optional
            Row weights. One for each rating, above 0: an array beside pairs, a matrix
            with entries in the same places beside a matrix.
        """
        _check_parameters(self)
        ratings = read_ratings(X, y, sample_weight)
        matrix, weights = ratings.matrix, ratings.weights
        mean = 0.0
        if self.biases:
            mean = float(
                np.average(matrix.data, weights=weights if len(weights) else None)
            )
        problem = _problem(self, ratings, mean)
        seed = int(
            check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        )
        random = np.random.default_rng(seed)
        point, warm = _start(self, ratings, random)
        start = (point.Z.copy(), point.c.copy()) if warm else None
        monitor = Monitor(self, X, y, None, self.max_time)

        def on_round(objective: float, gain: float) -> Status | None:
            return monitor.step(objective, gain, lambda: _attributes(point, mean))

        if self.solver == "als":
            tol = None if self.tol is None else float(self.tol)
            run = alternate(problem, point, int(self.max_iter), tol, on_round)
        else:
            rate = float(self.learning_rate)
            run = descend(problem, point, int(self.max_iter), rate, random, on_round)
        self.n_iter_, status = run
        self._keep(ratings)
        found = _attributes(point, mean)
        for name, value in found.items():
            setattr(self, name, value)
        self.history_ = monitor.history
        monitor.close(found)
        began = (seed, float(self.init_std), self.n_iter_, status is Status.DIVERGED)
        witness = RatingsWitness(*began, *(start or ()))
        placed = None
        if len(weights):
            parts = (weights, matrix.indices, matrix.indptr)
            placed = sparse.csr_matrix(parts, matrix.shape)
        evidence = Evidence("ratings", witness=witness)
        return Fitted(evidence, matrix, None, placed, status)

    def _offsets(self) -> tuple[float, Array, Array]:
        return self.mean_, self.user_biases_, self.item_biases_

    def _scores_of_new(self, places: Array, values: Array) -> Array:
        w, _, b = _penalties(self)
        scale = 1 if self.penalty_scale == "rows" else len(places)
        Z = self.item_factors_.astype(np.float64)
        columns = Z[places]
        penalties = np.full(Z.shape[1], w * scale)
        if self.biases:
            columns = np.column_stack([columns, np.ones(len(places))])
            penalties = np.append(penalties, b * scale)
        rest = values - self.mean_ - self.item_biases_[places]
        # Least squares with the penalty as rows, which stand where a penalty is 0 too.
        A = np.vstack([columns, np.diag(np.sqrt(penalties))])
        target = np.append(rest, np.zeros(len(penalties)))
        found = np.linalg.lstsq(A, target, rcond=None)[0]
        own = found[-1] if self.biases else 0.0
        return self.mean_ + own + self.item_biases_ + Z @ found[: Z.shape[1]]

    def _check_unseen(self, users: Array, items: Array) -> None:
        new = int(np.count_nonzero((users < 0) | (items < 0)))
        if new and not self.biases:
            raise ValueError(
                f"{new:,} pairs have a user or an item that was not in the data of "
                "the fit. Without biases the model cannot predict them. Use "
                "biases=True."
            )


def _check_parameters(model: MatrixFactorization) -> None:
    check_number("n_components", model.n_components, 1, integer=True)
    check_choice("solver", model.solver, ("als", "sgd"))
    check_choice("penalty_scale", model.penalty_scale, ("rows", "ratings"))
    check_number("alpha", model.alpha)
    check_number("alpha_items", model.alpha_items, none=True)
    check_number("alpha_biases", model.alpha_biases, none=True)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("tol", model.tol, none=True)
    check_number("learning_rate", model.learning_rate, open_low=True)
    check_number("init_std", model.init_std, open_low=True)
    check_number("max_time", model.max_time, none=True)


def _penalties(model: MatrixFactorization) -> tuple[float, float, float]:
    w = float(model.alpha)
    z, b = (
        w if p is None else float(p) for p in (model.alpha_items, model.alpha_biases)
    )
    return w, z, b


def _problem(
    model: MatrixFactorization, ratings: Ratings, mean: float
) -> RatingProblem:
    matrix = ratings.matrix
    values = (matrix.data - mean).astype(matrix.dtype)
    if model.solver == "als":
        by_user, by_item = both_sides(matrix, ratings.weights, values)
    else:
        by_user = rows_of(matrix, ratings.weights, values)
        by_item = column_starts(matrix)
    w, z, b = _penalties(model)
    counts = [np.maximum(1, np.diff(rows.indptr)) for rows in (by_user, by_item)]
    if model.penalty_scale == "rows":
        counts = [np.ones(len(count)) for count in counts]
    users, items = counts
    return RatingProblem(
        by_user,
        by_item,
        (w * users, z * items),
        (b * users, b * items),
        bool(model.biases),
    )


def _start(
    model: MatrixFactorization, ratings: Ratings, random: np.random.Generator
) -> tuple[RatingFactors, bool]:
    """Random factors, zero where there is no rating; those of the last fit if warm."""
    matrix, K = ratings.matrix, int(model.n_components)
    n, m = matrix.shape
    std, dtype = float(model.init_std), matrix.dtype
    Z = (std * random.standard_normal((m, K))).astype(dtype)
    W = np.zeros((n, K), dtype=dtype)
    if model.solver == "sgd":
        W = (std * random.standard_normal((n, K))).astype(dtype)
    point = RatingFactors(W, Z, np.zeros(n, dtype=dtype), np.zeros(m, dtype=dtype))
    last = getattr(model, "item_factors_", None)
    warm = bool(model.warm_start) and last is not None and last.shape[1] == K
    if warm:
        resume(point.W, model.users_, ratings.users, model.user_factors_)
        resume(point.Z, model.items_, ratings.items, model.item_factors_)
        if model.biases:
            resume(point.b, model.users_, ratings.users, model.user_biases_)
            resume(point.c, model.items_, ratings.items, model.item_biases_)
    rated = np.bincount(matrix.indices, minlength=m) > 0
    point.W[np.diff(matrix.indptr) == 0] = point.Z[~rated] = 0
    point.b[np.diff(matrix.indptr) == 0] = point.c[~rated] = 0
    return point, warm


def resume(target: Array, known: Array, ids: Array, values: Array) -> None:
    """Copy the rows of ids that were known before."""
    places = locate(known, ids, "known")
    target[places >= 0] = values[places[places >= 0]]


def _attributes(point: RatingFactors, mean: float) -> dict[str, Any]:
    return {
        "user_factors_": point.W,
        "item_factors_": point.Z,
        "user_biases_": point.b,
        "item_biases_": point.c,
        "mean_": mean,
    }
