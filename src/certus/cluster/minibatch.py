"""k-means from batches: each batch of rows moves the centres nearest to them.

With W the weight that a centre has averaged so far, and w and m the weight and mean of
the rows of a batch that are nearest to it:

    c ← (W·c + w·m)/(W + w),   W ← W + w

Batches are drawn by weight over the rows in a fixed order, so that a weight of two is a
row given twice. The centres are averages of what past batches assigned to them, usually
not the means of the rows nearest to them now.
"""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus._core.rows import row_weights
from certus.base import Fitted, certified_fit, check_number, generator_of
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.cluster.kmeans import (
    KMeans,
    check_parameters,
    factor_of,
    given_centers,
    in_range,
    in_units,
    mean_variance,
    n_runs,
    validated,
)
from certus.cluster.lloyd import Labelling, LloydRows, rows_of, sum_of
from certus.cluster.seeding import StartPool
from certus.typing import Array, ArrayLike, RandomState

#: Rows per cluster between two searches for centres with very few rows.
SEEN = 10


class MiniBatchKMeans(KMeans):
    """k-means clustering from batches of rows.

    Objective
    ---------
    Σ sᵢ·minₖ‖xᵢ − cₖ‖² over k centres; each batch moves the centres towards the rows
    that are nearest to them, by less and less.

    Certificate
    -----------
    ``nearest_centres`` (PROVED): no row is nearer to another centre. ``inertia``
    (PROVED): equals the total less the between-cluster scatter. ``centre_shift``
    (PROVED, bounded by the larger of ``tol`` and 1e-4): Σ‖Δc‖² of one step of k-means
    over all rows. Batches seldom reach this bound, and the fit warns if they do not;
    ``KMeans(init=cluster_centers_)`` reaches it. With ``compute_labels=False`` only
    ``centre_shift`` is checked. ``partial_fit`` sets no certificate: use
    ``certus.certify``.

    Parameters
    ----------
    n_clusters : int, default=8
        How many clusters.
    init : {"k-means++", "random"}, array or callable, default="k-means++"
        How the first centres are chosen. Rows drawn by k-means++, distinct rows drawn
        by weight, given centres, or ``f(X, n_clusters, random_state=...)``.
    max_iter : int, default=100
        Maximum number of iterations. They are passes over as many rows as X has.
    batch_size : int, default=1024
        Number of rows in each training step.
    compute_labels : bool, default=True
        Whether to label all rows at the end.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide starts and batches.
    tol : float, default=0.0
        Bound on Σ‖Δc‖² of a batch, as a share of the mean variance of the columns, at
        which the fit stops; 0 means that it is not looked at.
    max_no_improvement : int or None, default=10
        Batches in a row that do not lower the smoothed inertia, after which the fit
        stops.
    init_size : int, default=None
        Rows drawn to choose starts from; None means three batches, or 3·n_clusters if
        that is fewer than n_clusters.
    n_init : int or "auto", default="auto"
        Number of starts, of which the best is kept. "auto" means 1 for "k-means++" and
        given centres, otherwise 3.
    reassignment_ratio : float, default=0.01
        A centre that has averaged less than this share of the largest weight moves to
        a row of the batch.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    verbose
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centres.
    labels_ : ndarray of shape (n_samples,)
        The nearest centre of each row; equally near ones go to the first. Of the last
        batch after ``partial_fit``.
    inertia_ : float
        Σ sᵢ‖xᵢ − c‖² to those centres; without labels, as smoothed over batches.
    n_iter_ : int
        Passes over as many rows as X has.
    n_steps_ : int
        Batches.
    history_ : dict
        Smoothed inertia, centre shift (under ``gap``) and seconds after each batch.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A batch costs O(batch_size·k·d), whatever the number of rows; sorting and labelling
    all rows O(n·log n) and O(n·k·d), once. The number of rows that passes are counted
    in is that of distinct rows, and at least one batch.

    Examples
    --------
    >>> import certus
    >>> from certus.cluster import MiniBatchKMeans
    >>> X = [[1.0, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]]
    >>> with certus.config_context(on_uncertified="ignore"):
    ...     model = MiniBatchKMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_[:, 0].round().tolist())
    [1.0, 10.0]
    >>> model.certificate_["nearest_centres"].met
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        max_iter: int = 100,
        batch_size: int = 1024,
        verbose: int = 0,
        compute_labels: bool = True,
        random_state: RandomState = None,
        tol: float = 0.0,
        max_no_improvement: int | None = 10,
        init_size: int | None = None,
        n_init: int | str = "auto",
        reassignment_ratio: float = 0.01,
        max_time: float | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.verbose = verbose
        self.compute_labels = compute_labels
        self.random_state = random_state
        self.tol = tol
        self.max_no_improvement = max_no_improvement
        self.init_size = init_size
        self.n_init = n_init
        self.reassignment_ratio = reassignment_ratio
        self.max_time = max_time

    @certified_fit
    def fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Any:
        """Find clusters.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to cluster; sparse ones are never densified.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        X, given = self._checked(X, first=True)
        s = row_weights(sample_weight, X.shape[0])
        monitor = Monitor(self, X, None, None, self.max_time)
        factor = factor_of(X, given)
        scaled = X if factor == 1.0 else X * X.dtype.type(factor)
        light, power = in_range(s)
        rows, generator = rows_of(scaled, light), generator_of(self.random_state)
        pool = StartPool(scaled, light)
        start = self._best_start(pool, given, factor, generator)
        run = self._run(rows, pool, start, (factor, power), generator, monitor)
        self._keep(run.centers / factor, run.counts, X.dtype)
        self.n_steps_, self.n_iter_ = run.n_steps, run.n_iter
        self.__dict__.pop("labels_", None)
        self.inertia_ = in_units(run.inertia, (factor, power))
        if self.compute_labels:
            centers = self.cluster_centers_.astype(np.float64) * factor
            self.labels_, inertia = _nearest(rows, centers)
            self.inertia_ = in_units(inertia, (factor, power))
        self.history_ = monitor.history
        monitor.close(self._attributes())
        weight = None if sample_weight is None else s
        return Fitted(Evidence("kmeans"), X, None, weight, run.status)

    def partial_fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Any:
        """Move the centres by one batch, given here.

        It sets no certificate, because a batch says nothing about later rows. Use
        ``certus.certify`` to check the centres on rows of your choice.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows of the batch.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        """
        first = not hasattr(self, "cluster_centers_")
        X, given = self._checked(X, first)
        s = row_weights(sample_weight, X.shape[0])
        counts = np.zeros(int(self.n_clusters)) if first else self._counts
        with np.errstate(over="ignore"):
            if not np.isfinite(s.sum() + counts.sum()):
                raise ValueError(
                    "sample_weight is too large: its sum over all batches is infinite."
                )
        n_steps = 0 if first else self.n_steps_
        # Each call has its own draws, without a generator kept between calls.
        seed = int(generator_of(self.random_state).integers(1 << 31))
        generator = np.random.default_rng([seed, n_steps])
        before = given if first else self.cluster_centers_.astype(np.float64)
        factor = factor_of(X, before)
        scaled = X if factor == 1.0 else X * X.dtype.type(factor)
        if first or before is None:
            pool = StartPool(scaled, s)
            start = self._best_start(pool, given, factor, generator, once=True)
        else:
            start = before * factor
        rows = rows_of(scaled, s)
        moved = self._step(rows, start, counts, n_steps, generator)
        self.__dict__.pop("certificate_", None)
        dtype = X.dtype if first else self.cluster_centers_.dtype
        self._keep(moved.centers / factor, moved.counts, dtype)
        self.n_steps_ = n_steps + 1
        if self.compute_labels:
            centers = self.cluster_centers_.astype(np.float64) * factor
            self.labels_, inertia = _nearest(rows, centers)
            self.inertia_ = in_units(inertia, (factor, 0))
        return self

    # -- shared by fit and partial_fit ----------------------------------------

    def _checked(self, X: Any, first: bool) -> tuple[Any, Array | None]:
        """Rows and given centres, after a look at the parameters."""
        check_parameters(self)
        check_number("batch_size", self.batch_size, 1, integer=True)
        check_number("init_size", self.init_size, 1, integer=True, none=True)
        most = self.max_no_improvement
        check_number("max_no_improvement", most, 0, integer=True, none=True)
        check_number("reassignment_ratio", self.reassignment_ratio)
        X = validated(self, X, reset=first)
        if first and X.shape[0] < self.n_clusters:
            raise ValueError(
                f"n_samples={X.shape[0]} should be >= n_clusters={self.n_clusters}."
            )
        if not first or isinstance(self.init, str) or callable(self.init):
            return X, None
        return X, given_centers(self, self.init, X)

    def _best_start(
        self,
        pool: StartPool,
        given: Array | None,
        factor: float,
        generator: np.random.Generator,
        once: bool = False,
    ) -> Array:
        """Starting centres from a sample; the best of several on another sample."""
        if given is not None:
            n_runs(self)  # warns if several were asked for
            return given * factor
        size = self._start_size()
        runs = 1 if once else n_runs(self, 3)
        judged = None
        if runs > 1:
            other = _drawn(pool, size, generator)
            judged = rows_of(other.X[other.order], other.s[: len(other.order)])
        best, least = np.empty(0), math.inf
        for _ in range(runs):
            some = _drawn(pool, size, generator)
            chosen = some if isinstance(self.init, str) else None
            rows = some.X if factor == 1.0 else some.X / factor
            start = self._start(rows, chosen, None, factor, generator, None)
            if judged is None:
                return start
            inertia = _nearest(judged, start)[1]
            if inertia < least or not len(best):
                best, least = start, inertia
        return best

    def _start_size(self) -> int:
        k = int(self.n_clusters)
        if self.init_size is None:
            size = 3 * int(self.batch_size)
            return size if size >= k else 3 * k
        if self.init_size < k:
            warnings.warn(
                f"init_size={self.init_size} should be larger than n_clusters={k}. "
                "Setting it to min(3*n_clusters, n_samples)",
                RuntimeWarning,
                stacklevel=6,
            )
            return 3 * k
        return int(self.init_size)

    def _run(
        self,
        rows: LloydRows,
        pool: StartPool,
        start: Array,
        units: tuple[float, int],
        generator: np.random.Generator,
        monitor: Monitor,
    ) -> BatchRun:
        """Batch after batch, until the smoothed inertia no longer falls."""
        size, total = int(self.batch_size), float(rows.s.sum())
        n = max(size, pool.n_distinct)
        most = max(1, int(self.max_iter) * n // size)
        fresh, variance = min(1.0, 2.0 * size / (n + 1)), mean_variance(rows)
        draws, unit, dtype = WeightedDraws(pool), np.ones(size), pool.X.dtype
        status, t = Status.MAX_ITER, 0
        centers, counts = start, np.zeros(len(start))
        smooth, least, idle = math.inf, math.inf, 0
        try:
            while t < most:
                batch = rows_of(pool.X[draws.rows(size, generator)], unit)
                moved = self._step(batch, centers, counts, t, generator)
                shift = float(np.square(moved.centers - centers).sum())
                centers, counts, t = moved.centers, moved.counts, t + 1
                here = moved.inertia / size
                # The first batch measures the start, not the progress.
                smooth = here if t <= 2 else (1.0 - fresh) * smooth + fresh * here
                asked = monitor.step(
                    in_units(smooth * total, units),
                    shift / variance if variance > 0 else 0.0,
                    partial(dict, cluster_centers_=(centers / units[0]).astype(dtype)),
                )
                if asked is not None:
                    status = asked
                    break
                if t == 1:
                    continue
                idle = 0 if smooth < least else idle + 1
                least = min(least, smooth)
                enough = self.max_no_improvement
                small = self.tol > 0 and shift <= self.tol * variance
                if small or (enough is not None and idle >= enough):
                    status = Status.SOLVED
                    break
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        passes = max(1, math.ceil(t * size / n))
        inertia = smooth * total if t else _nearest(rows, centers)[1]
        return BatchRun(centers, counts, inertia, max(t, 1), passes, status)

    def _step(
        self,
        batch: LloydRows,
        centers: Array,
        counts: Array,
        n_steps: int,
        generator: np.random.Generator,
    ) -> BatchStep:
        """Centres and weights after one batch, and its inertia before."""
        state = Labelling(batch, len(centers))
        state.move_to(centers)
        away = np.empty(batch.n)
        batch.own_distances(centers, state.labels, away)
        means, weight = state.means()
        after = counts + weight
        share = np.divide(weight, after, out=np.zeros_like(after), where=after > 0)
        out = centers + share[:, None] * (means - centers)
        every = -(-SEEN * len(centers) // int(self.batch_size))
        if self.reassignment_ratio > 0 and (n_steps % every == 0 or not counts.all()):
            self._reassign(batch, out, after, generator)
        return BatchStep(out, after, sum_of(batch.s, away))

    def _reassign(
        self,
        batch: LloydRows,
        centers: Array,
        counts: Array,
        generator: np.random.Generator,
    ) -> None:
        """Move centres with very few rows to rows of the batch, in place."""
        few = np.flatnonzero(counts < self.reassignment_ratio * counts.max())
        if not len(few):
            return
        pool = StartPool(batch.X, batch.s)
        lowest = np.argsort(counts[few], kind="stable")[: max(1, pool.n_distinct // 2)]
        few = few[lowest]
        drawn = pool.X[pool.draw_any(len(few), generator)]
        centers[few] = drawn.toarray() if sparse.issparse(drawn) else drawn
        # A smaller weight would have them moved again at once.
        others = np.delete(counts, few)
        counts[few] = others.min() if len(others) else counts.max()

    def _keep(self, centers: Array, counts: Array, dtype: Any) -> None:
        self.cluster_centers_ = centers.astype(dtype)
        self._n_features_out = len(centers)
        self._counts = counts

    def _attributes(self) -> dict[str, Any]:
        names = ("cluster_centers_", "labels_", "inertia_", "n_iter_", "n_steps_")
        return {name: vars(self)[name] for name in names if name in vars(self)}


class BatchStep(NamedTuple):
    """Centres after a batch, the weight they average, the inertia before."""

    centers: Array
    counts: Array
    inertia: float


class BatchRun(NamedTuple):
    """Where the batches of one fit ended."""

    centers: Array
    counts: Array
    inertia: float
    n_steps: int
    n_iter: int
    status: Status


class WeightedDraws:
    """Draws rows by weight, with replacement."""

    def __init__(self, pool: StartPool) -> None:
        self.order, s = pool.order, pool.s[: len(pool.order)]
        self.ends = None if s.min() == s.max() else np.cumsum(s)

    def rows(self, size: int, generator: np.random.Generator) -> Array:
        """Numbers of rows where the distribution function reaches uniform shares."""
        shares, n = generator.random(size), len(self.order)
        if self.ends is None:
            places = (shares * n).astype(np.int64)
        else:
            goals = shares * self.ends[-1]
            places = np.searchsorted(self.ends, goals, side="right")
        return self.order[np.minimum(places, n - 1)]


def _drawn(pool: StartPool, size: int, generator: np.random.Generator) -> StartPool:
    """A sample of the rows, drawn by weight; all rows if they are no more."""
    if pool.n_distinct <= size:
        return pool
    return StartPool(pool.X[WeightedDraws(pool).rows(size, generator)], np.ones(size))


def _nearest(rows: LloydRows, centers: Array) -> tuple[Array, float]:
    """The nearest centre of each row, and Σ s‖x − c‖²."""
    state = Labelling(rows, len(centers))
    state.move_to(centers)
    away = np.empty(rows.n)
    rows.own_distances(centers, state.labels, away)
    return state.labels, sum_of(rows.s, away)
