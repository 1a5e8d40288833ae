"""k-means: each row belongs to the nearest of k centres, each centre is a mean.

    minimise over labels z and centres c   Σ sᵢ‖xᵢ − c(zᵢ)‖²

Lloyd's algorithm from k-means++ starts. It ends where neither labels nor centres can be
improved alone, which need not be the best clustering.
"""

from __future__ import annotations

import math
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import row_weights
from certus._core.threads import Stop, run_blocks
from certus.base import (
    Fitted,
    Model,
    certified_fit,
    check_choice,
    check_number,
    generator_of,
    require_finite,
    validate_data,
)
from certus.blocks.accepting import by_block
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.cluster import by_blocks
from certus.cluster import kmeans_kernels as kernels
from certus.cluster.lloyd import (
    TASK,
    Labelling,
    LloydRows,
    LloydRun,
    lloyd,
    rows_of,
    sum_of,
    tasks,
)
from certus.cluster.seeding import StartPool
from certus.evidence import KMeansWitness
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

if TYPE_CHECKING:
    from certus.blocks import Blocks

#: Entries beyond 2^±WIDEST are scaled before they are squared.
WIDEST = 300
#: Runs from random starts where ``n_init="auto"``.
RANDOM_STARTS = 10


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, Model):
    """k-means clustering.

    Objective
    ---------
    Σ sᵢ·minₖ‖xᵢ − cₖ‖² over k centres; lowered in turn over labels and over centres.

    Certificate
    -----------
    ``centre_shift`` (PROVED, bounded by ``tol``): Σ‖Δc‖² of one further step, as a
    share of the mean variance of the columns. ``nearest_centres`` (PROVED): no row is
    nearer to another centre. ``inertia`` (PROVED): equals the total less the
    between-cluster scatter. At level "full" the recorded start is run again and each
    half-step must not raise the objective (``monotone``). Nothing is said about other,
    better clusterings. One pass over the data, as much as one step.

    Parameters
    ----------
    n_clusters : int, default=8
        How many clusters.
    init : {"k-means++", "random"}, array or callable, default="k-means++"
        How the first centres are chosen. Rows drawn by k-means++, distinct rows drawn
        by weight, given centres, or ``f(X, n_clusters, random_state=...)``.
    n_init : int or "auto", default="auto"
        Number of starts, of which the best is kept. "auto" means 1 for "k-means++" and
        given centres, otherwise 10.
    max_iter : int, default=300
        Maximum number of iterations. They are steps of a run.
    tol : float, default=1e-4
        Bound on Σ‖Δc‖² of a step, as a share of the mean variance of the columns.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the starts.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    verbose, copy_x, algorithm
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centres.
    labels_ : ndarray of shape (n_samples,)
        The nearest centre of each row; equally near ones go to the first.
    inertia_ : float
        Σ sᵢ‖xᵢ − c‖² to those centres.
    n_iter_ : int
        Steps of the run kept.
    history_ : dict
        Objective, centre shift (under ``gap``) and seconds after each step of all runs.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A step costs at most O(n·k·d), and less once centres settle: rows that cannot have
    changed are skipped. Memory: a float32 copy of the rows, and up to nine numbers a
    row for bounds. A cluster that lost all its rows moves to the row farthest from its
    own centre; if every row is a centre already, it stays empty, and the certificate
    says so.

    Examples
    --------
    >>> from certus.cluster import KMeans
    >>> X = [[1.0, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]]
    >>> model = KMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.tolist()), model.certificate_.met
    ([[1.0, 2.0], [10.0, 2.0]], True)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        verbose: int = 0,
        random_state: RandomState = None,
        copy_x: bool = True,
        algorithm: str = "lloyd",
        max_time: float | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.copy_x = copy_x
        self.algorithm = algorithm
        self.max_time = max_time

    @certified_fit
    def fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Any:
        """Find clusters.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to cluster; sparse ones are never densified. Or blocks of rows
            (:func:`certus.scale.blocks`).
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        check_parameters(self)
        check_choice("algorithm", self.algorithm, ("lloyd", "elkan"))
        X = validated(self, X, reset=True)
        n = X.shape[0]
        if n < self.n_clusters:
            raise ValueError(
                f"n_samples={n} should be >= n_clusters={self.n_clusters}."
            )
        s = row_weights(sample_weight, n)
        given = None if isinstance(self.init, str) or callable(self.init) else self.init
        if given is not None:
            given = given_centers(self, given, X)
        monitor = Monitor(self, X, None, None, self.max_time)
        factor = factor_of(X, given)
        scaled = X if factor == 1.0 else X * X.dtype.type(factor)
        light, power = in_range(s)
        units = factor, power
        run = self._best_run(scaled, X, light, given, units, monitor)
        self._store(run, units, X.dtype)
        self.history_ = monitor.history
        monitor.close(self._attributes())
        start = (run.start / factor).astype(X.dtype)
        evidence = Evidence("kmeans", witness=KMeansWitness(start))
        weight = None if sample_weight is None else s
        return Fitted(evidence, X, None, weight, run.status)

    def _fit_blocks(self, table: Blocks) -> Fitted:
        check_parameters(self)
        check_choice("algorithm", self.algorithm, ("lloyd", "elkan"))
        given = None if isinstance(self.init, str) or callable(self.init) else self.init
        if given is not None:
            given = given_centers(self, given, table)
        return by_blocks.fit_kmeans(self, table, given, n_runs(self))

    def _best_run(
        self,
        X: Any,
        original: Any,
        s: Array,
        given: Array | None,
        units: tuple[float, int],
        monitor: Monitor,
    ) -> LloydRun:
        """Run from each start and keep the lowest inertia."""
        factor = units[0]
        rows = rows_of(X, s)
        generator = generator_of(self.random_state)
        begin, limit = time.perf_counter(), self.max_time
        variance = mean_variance(rows)

        def hurry() -> bool:
            return limit is not None and time.perf_counter() - begin > limit

        def on_step(objective: float, shift: float, centers: Array) -> Status | None:
            relative = shift / variance if variance > 0 else 0.0
            return monitor.step(
                in_units(objective, units),
                relative,
                lambda: {"cluster_centers_": (centers / factor).astype(X.dtype)},
            )

        pool = StartPool(X, s) if isinstance(self.init, str) else None
        best: LloydRun | None = None
        for _ in range(n_runs(self)):
            try:
                start = self._start(original, pool, given, factor, generator, hurry)
            except KeyboardInterrupt:
                if best is None:
                    raise
                return best._replace(status=Status.INTERRUPTED)
            most = int(self.max_iter)
            run = lloyd(rows, start, self.tol * variance, most, X.dtype, on_step)
            # A lower inertia by rounding alone is the same clustering.
            if best is None or run.inertia < best.inertia * (1.0 - 1e-10):
                best = run
            ended = (Status.INTERRUPTED, Status.TIME_LIMIT, Status.STOPPED)
            if run.status in ended:
                return best._replace(status=run.status)
        if best is None:
            raise ValueError("n_init must be at least 1.")
        return best

    def _start(
        self,
        X: Any,
        pool: StartPool | None,
        given: Array | None,
        factor: float,
        generator: np.random.Generator,
        hurry: Any,
    ) -> Array:
        """Starting centres in float64, scaled as the rows are."""
        k = int(self.n_clusters)
        if given is not None:
            return given * factor
        if pool is not None:
            if self.init == "k-means++":
                rows = pool.draw_far(k, generator, hurry=hurry)
            else:
                rows = pool.draw_any(k, generator)
            drawn = pool.X[rows]
            dense = drawn.toarray() if sparse.issparse(drawn) else drawn
            return np.asarray(dense, dtype=np.float64)
        seed = np.random.RandomState(int(generator.integers(1 << 31)))
        return given_centers(self, self.init(X, k, random_state=seed), X) * factor

    def _store(self, run: LloydRun, units: tuple[float, int], dtype: Any) -> None:
        self.cluster_centers_ = (run.centers / units[0]).astype(dtype)
        self._n_features_out = len(self.cluster_centers_)
        self.labels_ = run.labels
        self.inertia_ = in_units(run.inertia, units)
        self.n_iter_ = run.n_iter

    def _attributes(self) -> dict[str, Any]:
        names = ("cluster_centers_", "labels_", "inertia_", "n_iter_")
        return {name: getattr(self, name) for name in names}

    def fit_predict(
        self,
        X: MatrixLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Array:
        """Find clusters and return the label of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to cluster.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        """
        return self.fit(X, sample_weight=sample_weight).labels_

    def fit_transform(
        self,
        X: MatrixLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Array:
        """Find clusters and return the distances of each row to the centres.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to cluster.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        """
        return self.fit(X, sample_weight=sample_weight).transform(X)

    @by_block
    def predict(self, X: Any) -> Array:
        """The nearest centre of each row; equally near ones go to the first.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to label.
        """
        return self._label(X, None)[0]

    @by_block
    def transform(self, X: Any) -> Array:
        """Distances of each row to the centres, rows × clusters.

        Dense rows use differences, so that a row on its centre is at distance zero.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to measure.
        """
        check_is_fitted(self)
        X = validated(self, X)
        centers = self.cluster_centers_
        factor = factor_of(X, centers)
        if factor != 1.0:
            X, centers = X * factor, centers * factor
        if sparse.issparse(X):
            out = np.asarray(euclidean_distances(X, centers))
        else:
            out = np.empty((X.shape[0], len(centers)), dtype=X.dtype)
            wide = centers.astype(np.float64)

            def work(part: slice, stopped: Stop) -> None:
                kernels.all_distances(X[part], wide, out[part])

            run_blocks(work, tasks(len(X), TASK // (X.shape[1] * len(centers))))
        return out if factor == 1.0 else out / factor

    def score(
        self, X: Any, y: ArrayLike | None = None, sample_weight: Any = None
    ) -> float:
        """Minus the objective: −Σ s·min‖x − c‖².

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to score.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        """
        return -self._label(X, sample_weight)[1]

    def _label(self, X: Any, sample_weight: Any) -> tuple[Array, float]:
        check_is_fitted(self)
        X = validated(self, X)
        s, power = in_range(row_weights(sample_weight, X.shape[0]))
        centers = self.cluster_centers_.astype(np.float64)
        factor = factor_of(X, centers)
        scaled = X if factor == 1.0 else X * X.dtype.type(factor)
        rows = rows_of(scaled, s)
        state = Labelling(rows, len(centers))
        state.move_to(centers * factor)
        away = np.empty(rows.n)
        rows.own_distances(centers * factor, state.labels, away)
        return state.labels, in_units(sum_of(s, away), (factor, power))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def in_range(s: Array) -> tuple[Array, int]:
    """Weights whose sums are numbers, and the power of two they were divided by."""
    power = math.frexp(float(s.max()))[1]
    return (s, 0) if abs(power) < 100 else (np.ldexp(s, -power), power)


def in_units(objective: float, units: tuple[float, int]) -> float:
    """An objective in the units of X and of its weights; infinite if it overflows."""
    factor, power = units
    with np.errstate(over="ignore"):
        return float(np.ldexp(objective / factor / factor, power))


def check_parameters(model: KMeans) -> None:
    """Check the parameters that KMeans and MiniBatchKMeans share."""
    check_number("n_clusters", model.n_clusters, 1, integer=True)
    if model.n_init != "auto":
        check_number("n_init", model.n_init, 1, integer=True)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("tol", model.tol)
    check_number("max_time", model.max_time, none=True)
    if isinstance(model.init, str):
        check_choice("init", model.init, ("k-means++", "random"))


def validated(model: KMeans, X: Any, reset: bool = False) -> Any:
    """Dense rows in C order, or CSR ones with sorted columns."""
    X = validate_data(
        model,
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        order="C",
        ensure_all_finite=False,
        reset=reset,
    )
    if not np.isfinite(ends_of(X)).all():
        require_finite(X, type(model).__name__)
    if sparse.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def ends_of(X: Any) -> tuple[float, float]:
    """The smallest and the largest entry; NaN if there is one."""
    values = X.data if sparse.issparse(X) else X
    return float(values.min(initial=0.0)), float(values.max(initial=0.0))


def given_centers(model: KMeans, centers: Any, X: Any) -> Array:
    """Centres that were passed, checked, in float64."""
    centers = check_array(centers, accept_sparse="csr", dtype=X.dtype, order="C")
    if sparse.issparse(centers):
        centers = centers.toarray()
    if centers.shape[0] != model.n_clusters:
        raise ValueError(
            f"The shape of the initial centers {centers.shape} does not match the "
            f"number of clusters {model.n_clusters}."
        )
    if centers.shape[1] != X.shape[1]:
        raise ValueError(
            f"The shape of the initial centers {centers.shape} does not match the "
            f"number of features of the data {X.shape[1]}."
        )
    return np.asarray(centers, dtype=np.float64)


def n_runs(model: KMeans, random_starts: int = RANDOM_STARTS) -> int:
    """How many starts are tried."""
    given = not isinstance(model.init, str) and not callable(model.init)
    once = given or (isinstance(model.init, str) and model.init == "k-means++")
    if model.n_init == "auto":
        return 1 if once else random_starts
    if given and model.n_init != 1:
        warnings.warn(
            "Explicit initial center position passed: performing only one init in "
            f"{type(model).__name__} instead of n_init={model.n_init}.",
            RuntimeWarning,
            stacklevel=6,
        )
        return 1
    return int(model.n_init)


def factor_of(X: MatrixLike, centers: Array | None) -> float:
    """A power of two, one for ordinary data, that brings squares into range."""
    top = float(np.abs(ends_of(X)).max())
    if centers is not None:
        top = max(top, float(np.abs(centers).max(initial=0.0)))
    power = math.frexp(top)[1]
    return 1.0 if top == 0 or abs(power) < WIDEST else math.ldexp(1.0, -power)


def mean_variance(rows: LloydRows) -> float:
    """Mean over columns of the weighted variance."""
    return rows.spread / float(rows.s.sum()) / rows.d
