"""k-means++: starting centres drawn from the rows, far ones first.

    P(next centre = xᵢ) ∝ sᵢ·D(xᵢ)²,   D the distance to the nearest centre so far

From a few rows drawn like this, the one that lowers Σ sᵢD(xᵢ)² most is taken. Draws
invert the distribution function over rows sorted by a fixed projection, and rows of
weight zero are left out first: a weight of two is a row given twice, and the order of
the rows does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

from certus._core.rows import row_weights
from certus._core.threads import Stop, run_blocks
from certus.base import check_number, generator_of, require_finite, require_indices
from certus.cluster import kmeans_kernels as kernels
from certus.cluster.lloyd import TASK, tasks
from certus.typing import Array

TILE = kernels.TILE
#: Candidates whose sums differ by less than this share are equal: the first is taken.
EQUAL = 1e-6


def kmeans_plusplus(
    X: Any,
    n_clusters: int,
    *,
    sample_weight: Any = None,
    x_squared_norms: Any = None,
    random_state: Any = None,
    n_local_trials: int | None = None,
) -> tuple[Array, Array]:
    """Draw starting centres for k-means, each far from those before it.

    Parameters
    ----------
    X : array-like or CSR matrix of shape (n_samples, n_features)
        Rows to draw from.
    n_clusters : int
        How many.
    sample_weight : array-like of shape (n_samples,), optional
        Row weights. An integer weight equals repetition.
    x_squared_norms : array-like of shape (n_samples,), optional
        Not used; accepted for compatibility with scikit-learn.
    random_state : int, RandomState or None
        Seed or generator of all random numbers. Equal integers give equal centres,
        whatever the order of the rows.
    n_local_trials : int, optional
        Rows drawn for each centre, of which the best is taken; 3 + ⌊ln k⌋ by default.
        With 1 the cost is at most 8(ln k + 2) times the best possible in expectation.

    Returns
    -------
    centers : ndarray of shape (n_clusters, n_features)
        The rows drawn.
    indices : ndarray of shape (n_clusters,)
        Their numbers.

    Notes
    -----
    O(n·d) per row drawn. Where rows run out (fewer distinct ones than clusters), the
    remaining centres repeat some.

    Examples
    --------
    >>> from certus.cluster import kmeans_plusplus
    >>> X = [[1.0], [1.1], [9.0], [9.1]]
    >>> centers, rows = kmeans_plusplus(X, 2, random_state=0)
    >>> sorted(centers.round().ravel().tolist())
    [1.0, 9.0]
    """
    check_number("n_clusters", n_clusters, 1, integer=True)
    check_number("n_local_trials", n_local_trials, 1, integer=True, none=True)
    require_indices(X)
    X = check_array(
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        order="C",
        ensure_all_finite=False,
    )
    require_finite(X, "kmeans_plusplus")
    if X.shape[0] < n_clusters:
        raise ValueError(
            f"n_samples={X.shape[0]} should be >= n_clusters={n_clusters}."
        )
    if x_squared_norms is not None and np.shape(x_squared_norms) != (X.shape[0],):
        raise ValueError(
            f"The length of x_squared_norms (shape {np.shape(x_squared_norms)}) should "
            f"be equal to the length of n_samples {X.shape[0]}."
        )
    s = row_weights(sample_weight, X.shape[0])
    generator = generator_of(random_state)
    rows = StartPool(X, s).draw_far(int(n_clusters), generator, n_local_trials)
    centers = X[rows].toarray() if sparse.issparse(X) else X[rows]
    return centers, rows


class StartPool:
    """Rows in a fixed order, to draw starting centres from."""

    def __init__(self, X: Any, s: Array) -> None:
        self.X = X
        # A row of weight zero does not count: the direction must not depend on it.
        self.scale, u = _units(X if s.all() else X[s > 0])
        mark = np.empty(X.shape[0])
        if sparse.issparse(X):
            mark[:] = X.astype(np.float64) @ u
        else:
            kernels.project(X, u, mark)
        order = np.argsort(mark, kind="stable")
        self.order = order[s[order] > 0]
        self.mark = mark[self.order]
        n = len(self.order)
        self.n_distinct = 1 + int(np.count_nonzero(np.diff(self.mark)))
        self.n_tiles = -(-n // TILE)
        self.s = np.zeros(self.n_tiles * TILE)
        self.s[:n] = s[self.order]

    def draw_far(
        self,
        k: int,
        generator: np.random.Generator,
        trials: int | None = None,
        hurry: Callable[[], bool] | None = None,
    ) -> Array:
        """Numbers of k rows drawn by k-means++.

        Once ``hurry()`` is true the rest is drawn by weight alone.
        """
        trials = 3 + int(math.log(k)) if trials is None else int(trials)
        distances = (_SparseTrials if sparse.issparse(self.X) else _DenseTrials)(self)
        rows = [self._draw(self.s, self._by_tile(self.s), generator.random(1))[0]]
        D, totals = distances.of(rows, None)
        nearest, by_tile = D[0].copy(), totals[:, 0].copy()
        while len(rows) < k and by_tile.sum() > 0:
            if hurry is not None and hurry():
                break
            # One draw from each of equal shares: the trials do not repeat each other.
            shares = (np.arange(trials) + generator.random(trials)) / trials
            found = self._draw(self.s, by_tile, shares, nearest)
            D, totals = distances.of(found, nearest)
            sums = totals.sum(axis=0)
            best = int(np.argmax(sums <= sums.min() * (1.0 + EQUAL)))
            by_tile = totals[:, best].copy()
            nearest[:] = D[best]
            rows.append(found[best])
        return self.order[self._fill(rows, k, generator)]

    def draw_any(self, k: int, generator: np.random.Generator) -> Array:
        """Numbers of k rows drawn by weight, no two of them equal."""
        return self.order[self._fill([], k, generator)]

    def _fill(self, rows: list[int], k: int, generator: np.random.Generator) -> Array:
        """Add rows drawn by weight among those that differ from the chosen ones."""
        mass = self.s.copy()
        for place in rows:
            mass[self._equal(place)] = 0.0
        while len(rows) < k:
            if not mass.any():
                mass = self.s.copy()  # every distinct row is a centre already
            place = self._draw(mass, self._by_tile(mass), generator.random(1))[0]
            rows.append(place)
            mass[self._equal(place)] = 0.0
        return np.array(rows)

    def _equal(self, place: int) -> slice:
        """Places of the rows that are equal to one: their projections are."""
        left, right = (
            np.searchsorted(self.mark, self.mark[place], side)
            for side in ("left", "right")
        )
        return slice(int(left), int(right))

    def _by_tile(self, mass: Array) -> Array:
        return np.asarray(mass.reshape(-1, TILE).sum(axis=1))

    def _draw(
        self, mass: Array, by_tile: Array, shares: Array, times: Array | None = None
    ) -> list[int]:
        """Places where the distribution function of the mass reaches the shares."""
        ends = np.cumsum(by_tile)
        out = []
        for share in shares:
            goal = share * ends[-1]
            t = min(int(np.searchsorted(ends, goal, side="right")), len(ends) - 1)
            while by_tile[t] <= 0:  # rounding at the very end
                t -= 1
            here = slice(t * TILE, (t + 1) * TILE)
            some = mass[here] if times is None else mass[here] * times[here]
            inside = np.cumsum(some, dtype=np.float64)
            left = goal - (ends[t - 1] if t else 0.0)
            # The tile's own total may differ in the last digit.
            left *= inside[-1] / by_tile[t]
            r = int(np.searchsorted(inside, left, side="right"))
            last = int(np.searchsorted(inside, inside[-1], side="left"))
            out.append(t * TILE + min(r, last))
        return out


class _DenseTrials:
    """Distances from tiles of rows, in the precision of X."""

    def __init__(self, pool: StartPool) -> None:
        self.pool, X = pool, pool.X
        self.tiles = np.zeros((pool.n_tiles, X.shape[1], TILE), dtype=X.dtype)
        self.parts = tasks(pool.n_tiles, max(1, TASK // (TILE * X.shape[1])))
        self.scale = X.dtype.type(pool.scale)
        self.out: Array = np.empty((0, len(pool.s)), dtype=X.dtype)
        self.norms = np.empty(len(pool.s), dtype=X.dtype)
        # Below this share of the norms the product form keeps less than two digits.
        self.guard = X.dtype.type(512 * (X.shape[1] + 4) * np.finfo(X.dtype).eps)

        def work(part: slice, stopped: Stop) -> None:
            place = (self.scale, self.tiles[part], part.start)
            kernels.fill_tiles(X, pool.order, *place)
            kernels.tile_norms(self.tiles[part], self.norms, part.start)

        run_blocks(work, self.parts)

    def of(self, places: list[int], nearest: Array | None) -> tuple[Array, Array]:
        """Squared distances with each row added as a centre, and their sums by tile."""
        pool, q = self.pool, len(places)
        if nearest is None:
            nearest = np.full(len(pool.s), np.inf, dtype=self.tiles.dtype)
        if len(self.out) != q:
            self.out = np.empty((q, len(pool.s)), dtype=self.tiles.dtype)
        tried = pool.X[pool.order[places]] * self.scale
        totals = np.empty((pool.n_tiles, q))

        def work(part: slice, stopped: Stop) -> None:
            known = (self.tiles[part], self.norms, pool.s, nearest, tried)
            place = (self.out, totals[part], part.start)
            kernels.try_dense(*known, self.norms[places], self.guard, *place)

        run_blocks(work, self.parts)
        return self.out, totals


class _SparseTrials:
    """Distances of CSR rows in float64."""

    def __init__(self, pool: StartPool) -> None:
        self.pool, X = pool, pool.X
        self.cells = X.data.astype(np.float64) * pool.scale
        squares = sparse.csr_matrix((self.cells**2, X.indices, X.indptr), X.shape)
        self.norms = np.asarray(squares.sum(axis=1)).ravel()
        longest = int(np.diff(X.indptr).max(initial=0))
        self.slack = 4.0 * (longest + 4) * 2.0**-53
        per_row = max(1, X.nnz // X.shape[0])
        self.parts = tasks(pool.n_tiles, max(1, TASK // (TILE * per_row)))

    def of(self, places: list[int], nearest: Array | None) -> tuple[Array, Array]:
        """As for dense rows."""
        pool, X = self.pool, self.pool.X
        if nearest is None:
            nearest = np.full(len(pool.s), np.inf)
        rows = pool.order[places]
        tried = np.asarray(X[rows].T.toarray(), dtype=np.float64) * pool.scale
        out = np.zeros((len(places), len(pool.s)))
        totals = np.empty((pool.n_tiles, len(places)))

        def work(part: slice, stopped: Stop) -> None:
            kernels.try_sparse(
                *(self.cells, X.indices, X.indptr, pool.order, self.norms, pool.s),
                *(nearest, tried, self.norms[rows], self.slack),
                *(out, totals[part], part.start),
            )

        run_blocks(work, self.parts)
        return out, totals


def _units(X: Any) -> tuple[float, Array]:
    """A power of two that keeps squares in range, and the direction to sort along.

    Columns enter in units of their largest entry, so that none hides another.
    """
    if sparse.issparse(X):
        largest = np.asarray(abs(X).max(axis=0).todense(), dtype=np.float64).ravel()
    else:
        largest = np.maximum(np.abs(X.min(axis=0)), np.abs(X.max(axis=0)))
        largest = largest.astype(np.float64)
    return units_of(largest, X.dtype)


def units_of(largest: Array, dtype: Any) -> tuple[float, Array]:
    """As ``_units``, from the largest entry of each column in size."""
    d = len(largest)
    u = np.modf(np.arange(1, d + 1) * 0.7548776662466927)[0] - 0.5
    u = np.ldexp(u, -np.frexp(largest)[1])
    top = float(largest.max(initial=0.0))
    room = 50 if dtype == np.float32 else 0
    power = room - math.frexp(top)[1] if top > 0 else 0
    ordinary = dtype == np.float64 and abs(power) < 300
    most = 120 if dtype == np.float32 else 1000  # a factor that is itself in range
    return (1.0 if ordinary else math.ldexp(1.0, min(power, most))), u
