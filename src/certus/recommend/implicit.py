"""Matrix factorisation of implicit feedback: counts of what people did.

    min Σ_ui c_ui (p_ui − w_u·z_i)² + λ(‖W‖² + ‖Z‖²),  c = 1 + α·count, p = 1[count > 0]

over all users × items, including those without a count (Hu, Koren and Volinsky, 2008).
The dense part is computed from ZᵀZ and WᵀW, so the cost is that of the counts alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from certus._core.threads import run_blocks
from certus.base import Fitted, certified_fit, check_choice, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import RatingsWitness
from certus.recommend.matrix import resume
from certus.recommend.rating_kernels import (
    conjugate_block,
    implicit_errors,
    row_blocks,
    solve_rows,
)
from certus.recommend.rating_solvers import RatedRows, both_sides
from certus.recommend.ratings import Ratings, read_ratings
from certus.recommend.recommending import Recommender
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

#: Largest α·count, beside which the 1 of other pairs still has a digit.
BEYOND = 1e15


class ImplicitALS(Recommender):
    """Factors behind counts of clicks, plays or purchases.

    Objective
    ---------
    Σ_ui (1 + α·count_ui)(p_ui − w_u·z_i)² + λ(‖W‖² + ‖Z‖²) over all users and items,
    p = 1 where there is a count and 0 elsewhere.

    Certificate
    -----------
    ``half_step_gain`` (PROVED): the most that an exact solve for all users, or for
    all items, would still gain, as a share of the objective; ``tol`` bounds it. The
    objective and its gradient (MEASURED). Level "full": the exact gain, and the run
    from the recorded start repeated with exact solves, monotone at every half-step.

    Parameters
    ----------
    n_components : int, default=32
        Number of components. This is the length K of w_u and z_i.
    count_weight : float, default=1.0
        How much a count adds to the confidence of 1.
    alpha : float, default=0.1
        Strength of the penalty.
    solver : {"cg", "cholesky"}, default="cg"
        Algorithm that computes the fit. A few steps of conjugate gradients for each
        row, or exact solves.
    cg_steps : int, default=3
        Steps of "cg" in each half-round; they start where the last round ended.
    max_iter : int, default=50
        Maximum number of iterations. They are rounds over users and items.
    tol : float or None, default=1e-3
        Ends when a round gains less than half this share of the objective; None to run
        ``max_iter`` rounds.
    init_std : float, default=0.1
        Standard deviation of the factors at the start.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the start.
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
        W and Z; zero for those without a count.
    n_iter_ : int
        Rounds.
    history_ : dict
        Objective, gain of the round as a share of it (under ``gap``) and seconds.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A round costs 4·cg_steps·m·K + (n_users + n_items)·K² operations with "cg", m·K²
    + (n_users + n_items)·K³ with "cholesky", for m counts; memory is that of the
    counts, by users and by items, and of the factors. The result is the same at any
    number of threads. Repeated pairs are added up, counts of 0 mean the same as no
    count, and float32 counts are fitted in float32. Scores of users and items not seen
    are 0, which is what the objective gives to those without a count.

    Examples
    --------
    >>> from certus.recommend import ImplicitALS
    >>> pairs = [("ann", "tea"), ("ann", "rum"), ("bob", "tea"), ("bob", "rum"),
    ...          ("cy", "gin"), ("cy", "ale"), ("di", "gin"), ("ed", "tea")]
    >>> model = ImplicitALS(n_components=2, random_state=0).fit(pairs, [1] * 8)
    >>> model.recommend("ed", n=1).ids.tolist(), model.recommend("di", n=1).ids.tolist()
    (['rum'], ['ale'])
    """

    def __init__(
        self,
        n_components: int = 32,
        *,
        count_weight: float = 1.0,
        alpha: float = 0.1,
        solver: str = "cg",
        cg_steps: int = 3,
        max_iter: int = 50,
        tol: float | None = 1e-3,
        init_std: float = 0.1,
        random_state: RandomState = None,
        warm_start: bool = False,
        max_time: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.count_weight = count_weight
        self.alpha = alpha
        self.solver = solver
        self.cg_steps = cg_steps
        self.max_iter = max_iter
        self.tol = tol
        self.init_std = init_std
        self.random_state = random_state
        self.warm_start = warm_start
        self.max_time = max_time

    @certified_fit
    def fit(self, X: MatrixLike, y: ArrayLike | None = None) -> Any:
        """Fit to counts.

        Parameters
        ----------
        X : sparse or dense matrix (n_users, n_items), or pairs (n_events, 2)
            Rows are users, always. Pairs (user, item) go with ``y``.
        y : array-like of shape (n_events,), optional
            The counts of the pairs.
        """
        _check_parameters(self)
        ratings = read_ratings(X, y, counts=True)
        matrix = ratings.matrix
        extra = float(self.count_weight) * matrix.data
        if extra.max() > BEYOND:
            raise ValueError(
                f"count_weight times the largest count is {extra.max():.0e}, so large "
                "that pairs without events have no influence. Lower count_weight, or "
                "pass the logarithms of the counts."
            )
        sides = both_sides(matrix, extra.astype(matrix.dtype), np.ones_like(extra))
        seed = int(
            check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        )
        W, Z, warm = _start(self, ratings, np.random.default_rng(seed))
        start = Z.copy() if warm else None
        monitor = Monitor(self, X, y, None, self.max_time)
        self.n_iter_, status = _run(self, sides, W, Z, monitor)
        self._keep(ratings)
        self.user_factors_, self.item_factors_ = W, Z
        self.history_ = monitor.history
        monitor.close({"user_factors_": W, "item_factors_": Z})
        run = (seed, float(self.init_std), self.n_iter_, False)
        evidence = Evidence("ratings", witness=RatingsWitness(*run, start))
        return Fitted(evidence, matrix, None, None, status)

    def _scores_of_new(self, places: Array, values: Array) -> Array:
        if values.min() < 0:
            raise ValueError("Counts must be at least 0, but some are negative.")
        Z = self.item_factors_.astype(np.float64)
        confidence = np.ones(len(Z))
        confidence[places] += float(self.count_weight) * values
        wanted = np.zeros(len(Z))
        wanted[places[values > 0]] = 1
        A = Z.T @ (confidence[:, None] * Z) + float(self.alpha) * np.eye(Z.shape[1])
        w = np.linalg.lstsq(A, Z.T @ (confidence * wanted), rcond=None)[0]
        return Z @ w

    def _offsets(self) -> tuple[float, Array, Array]:
        return 0.0, np.zeros(len(self.users_)), np.zeros(len(self.items_))


def _check_parameters(model: ImplicitALS) -> None:
    check_number("n_components", model.n_components, 1, integer=True)
    check_number("count_weight", model.count_weight, open_low=True)
    check_number("alpha", model.alpha)
    check_choice("solver", model.solver, ("cg", "cholesky"))
    check_number("cg_steps", model.cg_steps, 1, integer=True)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("tol", model.tol, none=True)
    check_number("init_std", model.init_std, open_low=True)
    check_number("max_time", model.max_time, none=True)


def _start(
    model: ImplicitALS, ratings: Ratings, random: np.random.Generator
) -> tuple[Array, Array, bool]:
    """Items at random and users at zero; those of the last fit if warm."""
    matrix, K = ratings.matrix, int(model.n_components)
    n, m = matrix.shape
    Z = (float(model.init_std) * random.standard_normal((m, K))).astype(matrix.dtype)
    W = np.zeros((n, K), dtype=matrix.dtype)
    last = getattr(model, "item_factors_", None)
    warm = bool(model.warm_start) and last is not None and last.shape[1] == K
    if warm:
        resume(W, model.users_, ratings.users, model.user_factors_)
        resume(Z, model.items_, ratings.items, model.item_factors_)
    W[np.diff(matrix.indptr) == 0] = 0
    Z[np.bincount(matrix.indices, minlength=m) == 0] = 0
    return W, Z, warm


def _run(
    model: ImplicitALS,
    sides: tuple[RatedRows, RatedRows],
    W: Array,
    Z: Array,
    monitor: Monitor,
) -> tuple[int, Status]:
    """Users, then items, until a round gains less than half of ``tol``."""
    penalty, done = float(model.alpha), 0
    steps = int(model.cg_steps) if model.solver == "cg" else None
    before = objective(sides[0], W, Z, penalty)
    try:
        for done in range(1, int(model.max_iter) + 1):
            half_step(sides[0], W, Z, penalty, steps)
            half_step(sides[1], Z, W, penalty, steps)
            value = objective(sides[0], W, Z, penalty)
            gain = (before - value) / before if before > 0 else 0.0
            before = value
            stop = monitor.step(
                value, gain, lambda: {"user_factors_": W, "item_factors_": Z}
            )
            if model.tol is not None and gain <= 0.5 * model.tol:
                return done, Status.SOLVED
            if stop is not None:
                return done, stop
    except KeyboardInterrupt:
        return done, Status.INTERRUPTED
    return done, Status.SOLVED if model.tol is None else Status.MAX_ITER


def half_step(
    rows: RatedRows, own: Array, other: Array, penalty: float, steps: int | None
) -> None:
    """Minimise over ``own``, exactly or by ``steps`` of conjugate gradients."""
    gram = other.T @ other
    if steps is None:
        n, none = len(own), np.zeros(0)
        # Σ (1 + s) z = Σ s·((1 + s)/s)·z, in the form that the explicit solve takes.
        targets = 1.0 + 1.0 / rows.weights.astype(np.float64)
        gram = gram.astype(np.float64)
        solve_rows(
            *(rows.indptr, rows.indices, targets, rows.weights),
            *(other, np.zeros(len(other)), gram, np.full(n, penalty), none),
            biased=False,
            out=own,
            out_bias=none,
        )
        return
    gram[np.diag_indices(len(gram))] += other.dtype.type(penalty)

    def work(block: tuple[int, int], stop: Callable[[], bool]) -> None:
        if not stop():
            conjugate_block(
                *block, rows.indptr, rows.indices, rows.weights, other, gram, steps, own
            )

    run_blocks(work, row_blocks(rows.indptr, 4.0 * steps * other.shape[1]))


def objective(rows: RatedRows, W: Array, Z: Array, penalty: float) -> float:
    """The value over all users × items, from the entries and two K × K matrices."""
    blocks = row_blocks(rows.indptr, W.shape[1])
    parts = np.zeros(len(blocks))

    def work(place: int, stop: Callable[[], bool]) -> None:
        parts[place] = implicit_errors(
            *blocks[place], rows.indptr, rows.indices, rows.weights, W, Z
        )

    run_blocks(work, range(len(blocks)))
    grams = [(F.T @ F).astype(np.float64) for F in (W, Z)]
    lengths = sum(float(np.trace(gram)) for gram in grams)
    return float(parts.sum() + np.sum(grams[0] * grams[1]) + penalty * lengths)
