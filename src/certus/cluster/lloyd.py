"""Lloyd's algorithm: label each row by its nearest centre, move centres to the means.

    minimise over labels z and centres c   Σ sᵢ‖xᵢ − c(zᵢ)‖²

Labels are those of float64 differences. Products in float32 screen: with rows centred
at m and scaled, −2x·c + ‖c‖² carries an error of at most a·(‖x‖² + ‖c‖²),
a = 1.06·(d + 10)·2⁻²⁴, and rows whose two nearest centres come that close are compared
directly. Once labelled, a row keeps an upper bound on the distance to its centre and a
lower one to all others (Hamerly); while centres move less than the space between, it is
not looked at again. Rows that change clusters are taken out of one sum and into the
other; before the run may end, the sums are taken again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus._core.threads import Stop, run_blocks, slices
from certus.certificate import Status
from certus.cluster import kmeans_kernels as kernels
from certus.typing import Array

#: Cells of X that one task looks at; independent of the number of threads.
TASK = 1 << 21
#: Scores of one product.
SCORES = 1 << 17
#: Rows of one product, at most.
BLOCK = 2048
#: Memory, in numbers, of the sums that tasks keep.
SUMS = 1 << 24
#: Share of rows too close to call in float32 beyond which products are in float64.
BLURRED = 0.05

#: Moves after which sums are taken again.
REFRESH = 16
#: Groups of centres, at most, that a row keeps a bound for.
GROUPS = 4


def tasks(n: int, size: int) -> list[slice]:
    """An even number of equal parts of ``range(n)``, or one where it is small."""
    parts = -(-n // max(1, size))
    parts += parts % 2 if parts > 1 else 0
    return slices(n, -(-n // parts))


def sum_of(s: Array, values: Array) -> float:
    """Σ s·v without BLAS, whose threads would keep spinning beside ours."""
    return float(np.einsum("i,i->", s, values))


#: How far centres and groups have moved; labels, upper and lower bounds of a part.
Bounds = tuple[Array, ...]


class Screen(NamedTuple):
    """Centres in the form that the products need, with bounds of the error."""

    centers: Array  # (K, d), in original units
    norms: Array
    factor: Array  # (d, K), by which rows are multiplied
    low: Array
    high: Array


class DenseRows:
    """Rows in memory, with a copy centred and scaled for the products."""

    def __init__(self, X: Array, s: Array, dtype: Any = np.float32) -> None:
        self.X, self.s, (self.n, self.d) = X, s, X.shape
        self.mean = weighted_mean(X, s)
        low, high = float(X.min()), float(X.max())
        reach = max(high - float(self.mean.min()), float(self.mean.max()) - low)
        # Squares of numbers below 2⁴⁰ stay in float32's range.
        self.scale = math.ldexp(1.0, 40 - math.frexp(reach)[1]) if reach > 0 else 1.0
        self.screen_in(dtype)

    def screen_in(self, dtype: Any) -> None:
        """Prepare products of this precision."""
        self.dtype = np.dtype(dtype)
        single = self.dtype == np.float32
        self.slack = 1.06 * (self.d + 10) * (2.0**-24 if single else 2.0**-53)
        self.lost = (self.d + 2) * (2.0**-120 if single else 2.0**-1000)
        self.rows = np.empty((self.n, self.d), dtype=self.dtype)
        self.norms = np.empty(self.n)

        def work(part: slice, stopped: Stop) -> None:
            place = (self.rows[part], self.norms[part])
            kernels.centre_rows(self.X[part], self.mean, self.scale, *place)

        run_blocks(work, tasks(self.n, TASK // self.d))
        self.scatter = sum_of(self.s, self.norms) / self.scale**2
        self.spread = self.scatter  # about the mean

    def sharpen(self) -> None:
        """Float64 products, where float32 tells too few distances apart."""
        if self.dtype == np.float32:
            self.screen_in(np.float64)

    def screen(self, centers: Array) -> Screen:
        """Centres for the products."""
        shifted = (centers - self.mean) * self.scale
        norms = np.einsum("ij,ij->i", shifted, shifted)
        factor = np.ascontiguousarray((-2.0 * shifted).T, dtype=self.dtype)
        low = ((1.0 - self.slack) * norms - self.lost).astype(self.dtype)
        return Screen(
            centers, norms, factor, low, 2 * self.slack * norms + 2 * self.lost
        )

    def compare(
        self, part: slice, screen: Screen, names: Array, bounds: Bounds, desk: Desk
    ) -> int:
        """Label the named rows of a part; returns how many were too close to call."""
        shape = desk.size, self.d
        block = desk.block.view(self.dtype)[: math.prod(shape)].reshape(shape)
        shape = desk.size, len(screen.centers)
        scores = desk.scores.view(self.dtype)[: math.prod(shape)].reshape(shape)
        given = (self.rows[part], self.X[part], screen.centers, self.scale)
        known = (*screen[2:], self.norms[part], self.slack)
        room = (block, scores, desk.listed)
        return int(kernels.compare(*given, *known, names, *bounds, *room))

    def add(self, part: slice, *arrays: Array) -> None:
        """Sums over the rows of each cluster, of differences to the mean."""
        kernels.add_rows(self.X[part], self.mean, self.s[part], *arrays)

    def shift(self, part: slice, *arrays: Array) -> None:
        """Correct those sums for the rows that changed clusters."""
        kernels.shift_rows(self.X[part], self.mean, self.s[part], *arrays)

    def own_distances(self, centers: Array, labels: Array, out: Array) -> None:
        """Squared distances of all rows to their centres."""

        def work(part: slice, stopped: Stop) -> None:
            kernels.own_distances(self.X[part], centers, labels[part], out[part])

        run_blocks(work, tasks(self.n, TASK // self.d))

    def row(self, i: int) -> Array:
        """One row in float64."""
        return self.X[i].astype(np.float64)


class SparseRows:
    """CSR rows; products in float64, never densified, no centring."""

    def __init__(self, X: Any, s: Array, dtype: Any = np.float64) -> None:
        self.X, self.s, (self.n, self.d) = X, s, X.shape
        self.mean, self.scale, self.dtype = np.zeros(self.d), 1.0, np.dtype(np.float64)
        longest = int(np.diff(X.indptr).max(initial=0))
        self.slack = 1.06 * (longest + 10) * 2.0**-52
        self.cells = X.data.astype(np.float64, copy=False)
        self.norms = np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
        if X.dtype != np.float64:
            squares = sparse.csr_matrix((self.cells**2, X.indices, X.indptr), X.shape)
            self.norms = np.asarray(squares.sum(axis=1)).ravel()
        centre = np.asarray(X.T @ s, dtype=np.float64) / s.sum()
        self.scatter = sum_of(s, self.norms)
        self.spread = max(0.0, self.scatter - float(s.sum()) * float(centre @ centre))

    def screen(self, centers: Array) -> Screen:
        """Centres for the products."""
        norms = np.einsum("ij,ij->i", centers, centers)
        low = (1.0 - self.slack) * norms
        factor = np.ascontiguousarray(centers.T)
        return Screen(centers, norms, factor, low, 2 * self.slack * norms)

    def compare(
        self, part: slice, screen: Screen, names: Array, bounds: Bounds, desk: Desk
    ) -> int:
        """Label the named rows of a part; float64 products leave nothing to settle."""
        known = (screen.low, screen.high, self.norms[part], self.slack)
        given = (self.cells, self.X.indices, self.X.indptr[part.start :])
        for sub in slices(len(names), desk.size):
            scores = np.empty((sub.stop - sub.start, len(screen.centers)))
            kernels.sparse_scores(*given, names[sub], screen.factor, scores)
            kernels.judge(scores, *known, names[sub], *bounds, desk.listed)
        return 0

    def add(self, part: slice, *arrays: Array) -> None:
        """Sums over the rows of each cluster."""
        kernels.add_sparse(*self._part(part), self.s[part], *arrays)

    def own_distances(self, centers: Array, labels: Array, out: Array) -> None:
        """Squared distances of all rows to their centres."""
        known = (self.norms, *self.screen(centers)[:2])
        kernels.own_sparse(*self._part(slice(0, self.n)), *known, labels, out)

    def row(self, i: int) -> Array:
        """One row in float64."""
        return np.asarray(self.X[[i]].toarray(), dtype=np.float64).ravel()

    def _part(self, part: slice) -> tuple[Array, Array, Array]:
        ends = self.X.indptr[part.start : part.stop + 1]
        return self.cells, self.X.indices, ends


LloydRows = DenseRows | SparseRows


def rows_of(X: Any, s: Array) -> LloydRows:
    """Dense or CSR rows, ready to be labelled."""
    return SparseRows(X, s) if sparse.issparse(X) else DenseRows(X, s)


def weighted_mean(X: Array, s: Array) -> Array:
    """Mean of dense rows in float64."""
    parts = tasks(len(X), max(1, TASK // X.shape[1]))
    sums = np.empty((len(parts), X.shape[1]))

    def work(p: int, stopped: Stop) -> None:
        kernels.column_sums(X[parts[p]], s[parts[p]], sums[p])

    run_blocks(work, range(len(parts)))
    return np.asarray(sums.sum(axis=0) / s.sum())


class Desk:
    """Buffers for one part, reused: new memory costs more than the arithmetic."""

    def __init__(self, state: Labelling) -> None:
        rows, most = state.rows, max(p.stop - p.start for p in state.parts)
        self.size = min(BLOCK, max(64, SCORES // state.k))
        self.labels = np.empty(most, dtype=np.int32)
        self.names = np.empty(most, dtype=np.int64)
        self.listed = np.empty(self.size, dtype=np.int64)
        self.scores = np.empty(state.k * self.size)
        self.block = np.empty(self.size * rows.d if isinstance(rows, DenseRows) else 0)


class Labelling:
    """The labels of all rows for one set of centres, kept as the centres move.

    Bounds are kept as of the start: ``upper`` less and ``lower`` plus how far a centre,
    or the fastest of a group, has moved since, so that moves leave them as they are.
    """

    def __init__(self, rows: LloydRows, k: int) -> None:
        self.rows, self.k = rows, k
        self.parts = tasks(rows.n, max(1, TASK // rows.d))
        most = max(2, SUMS // (k * rows.d))
        if len(self.parts) > most:
            self.parts = tasks(rows.n, -(-rows.n // most))
        # With few columns one bound is enough, and takes less memory than the rows.
        self.size = -(-k // min(k, GROUPS, max(1, rows.d // 4)))
        groups = -(-k // self.size)
        self.labels = np.full(rows.n, -1, dtype=np.int32)
        self.upper = np.empty(rows.n)
        self.lower = [np.empty((groups, p.stop - p.start)) for p in self.parts]
        self.drift, self.group_drift = np.zeros(k), np.zeros(groups)
        self.sums = np.zeros((len(self.parts), k, rows.d))
        self.weight = np.zeros((len(self.parts), k))
        self.stale = np.zeros(len(self.parts), dtype=bool)
        # Differences of unequal weights might leave a little of an empty cluster.
        self.unit = bool(np.all(rows.s == 1.0))
        self.moves = 0
        self.centers: Array | None = None
        self.desks: list[Desk] = []  # one for each thread, used over and over

    def move_to(self, centers: Array) -> int:
        """Label all rows for these centres; returns how many labels changed."""
        rows, before = self.rows, self.centers
        if before is not None:
            moved = rows.scale * np.sqrt(np.square(centers - before).sum(axis=1))
            moved *= 1.0 + 1e-12
            self.drift += moved
            starts = np.arange(0, self.k, self.size)
            self.group_drift += np.maximum.reduceat(moved, starts)
        screen = rows.screen(centers)
        counts = np.zeros((len(self.parts), 2), dtype=np.int64)

        def work(p: int, stopped: Stop) -> None:
            counts[p] = self._label(p, screen, before is None)

        run_blocks(work, range(len(self.parts)))
        self.centers = centers
        self.moves += 1
        if self.moves % REFRESH == 0:
            self.refresh()
        changed, unsure = counts.sum(axis=0)
        if isinstance(rows, DenseRows) and unsure > BLURRED * rows.n:
            rows.sharpen()  # from the next move on
        return int(changed)

    def _label(self, p: int, screen: Screen, again: bool) -> tuple[int, int]:
        part, rows = self.parts[p], self.rows
        desk = self.desks.pop() if self.desks else Desk(self)
        labels = self.labels[part]
        old, names = desk.labels[: len(labels)], desk.names[: len(labels)]
        old[:] = labels
        drifts = (self.drift, self.group_drift)
        bounds = (labels, self.upper[part], self.lower[p])
        if again:
            names[:] = np.arange(len(labels))
        else:
            guard = 1e-12 * float(self.drift.max())
            names = names[: kernels.doubtful(*bounds, *drifts, guard, names)]
        unsure = rows.compare(part, screen, names, (*drifts, *bounds), desk)
        changed = kernels.count_changes(old, labels)
        few = 4 * changed < len(labels) and not again
        if few and self.unit and isinstance(rows, DenseRows):
            if changed:
                rows.shift(part, old, labels, self.sums[p], self.weight[p])
                self.stale[p] = True
        elif changed:
            rows.add(part, labels, self.sums[p], self.weight[p])
            self.stale[p] = False
        self.desks.append(desk)
        return changed, unsure

    def refresh(self) -> None:
        """Compute the sums again after moves, which leave rounding errors behind."""

        def work(p: int, stopped: Stop) -> None:
            part = self.parts[p]
            place = (self.labels[part], self.sums[p], self.weight[p])
            self.rows.add(part, *place)

        run_blocks(work, np.flatnonzero(self.stale))
        self.stale[:] = False

    def means(self) -> tuple[Array, Array]:
        """The weighted mean of each cluster, and its weight; empty ones keep theirs."""
        weight = self.weight.sum(axis=0)
        full = weight > 0
        out = np.array(self.centers)
        sums = self.sums.sum(axis=0)[full]
        out[full] = self.rows.mean + sums / weight[full, None]
        return out, weight

    def objective(self, means: Array, weight: Array) -> float:
        """Σ s‖x − mean of its cluster‖²: total less between-cluster scatter."""
        gaps = means - self.rows.mean
        between = float(weight @ np.einsum("ij,ij->i", gaps, gaps))
        return max(0.0, self.rows.scatter - between)

    def farthest(self, centers: Array, count: int) -> list[int]:
        """Rows far from their centres, each also far from those before it."""
        rows, away = self.rows, np.empty(self.rows.n)
        rows.own_distances(centers, self.labels, away)
        away[rows.s == 0] = 0.0
        found: list[int] = []
        for _ in range(count):
            i = int(np.argmax(away))
            if not away[i] > 0:
                break  # fewer distinct rows than clusters
            found.append(i)
            again, zero = np.empty(rows.n), np.zeros(rows.n, dtype=np.int32)
            rows.own_distances(rows.row(i)[None], zero, again)
            np.minimum(away, again, out=away)
        return found


class LloydRun(NamedTuple):
    """Where one run of Lloyd's algorithm ended."""

    centers: Array  # float64
    labels: Array
    inertia: float
    n_iter: int
    status: Status
    start: Array


#: Called after each step with the objective, Σ‖Δc‖², and the centres.
OnStep = Callable[[float, float, Array], Status | None]


def lloyd(
    rows: LloydRows,
    start: Array,
    tol: float,
    max_iter: int,
    dtype: Any,
    on_step: OnStep,
) -> LloydRun:
    """Run from ``start`` until Σ‖Δc‖² ≤ ``tol`` in a step and in the one after it.

    The certificate looks at the step after. Steps are counted as scikit-learn
    does: one that changes no label is a step. Centres are rounded to ``dtype`` at the
    end and the rows labelled once more.
    """
    state = Labelling(rows, len(start))
    status, n_iter, quiet = Status.MAX_ITER, 0, False
    try:
        state.move_to(start)
        while n_iter < max_iter:
            means, weight = state.means()
            _fill_empty(state, means, weight)
            shift = float(np.square(means - state.centers).sum())
            if quiet and shift <= tol:
                if not state.stale.any():
                    status = Status.SOLVED
                    break
                state.refresh()
                continue
            quiet = shift <= tol
            changed = state.move_to(means)
            n_iter += 1
            asked = on_step(state.objective(means, weight), shift, means)
            if asked is not None:
                status = asked
                break
            if changed == 0 and not quiet:  # the next means are the same
                state.refresh()
                if state.move_to(state.means()[0]) == 0:
                    n_iter, status = min(n_iter + 1, max_iter), Status.SOLVED
                    break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return _finish(state, start, n_iter, status, dtype)


def _fill_empty(state: Labelling, means: Array, weight: Array) -> None:
    """Move centres without rows to the rows farthest from their own centres."""
    empty = np.flatnonzero(weight <= 0)
    if len(empty) and state.centers is not None:
        found = state.farthest(state.centers, len(empty))
        for k, i in zip(empty, found):
            means[k] = state.rows.row(i)


def _finish(
    state: Labelling, start: Array, n_iter: int, status: Status, dtype: Any
) -> LloydRun:
    rows = state.rows
    centers = start if state.centers is None else state.centers
    rounded = centers.astype(dtype).astype(np.float64)
    if status is Status.INTERRUPTED:
        state.centers = None  # some parts may have moved and others not
    if state.centers is None or not np.array_equal(rounded, centers):
        state.move_to(rounded)
    away = np.empty(rows.n)
    rows.own_distances(rounded, state.labels, away)
    inertia = sum_of(rows.s, away)
    return LloydRun(rounded, state.labels, inertia, n_iter, status, start)
