"""The convex problem of an additive model in the form that its solver works on.

    minimise mean ℓ(y, z) + Σₜ [½ qₜ Σ (w_a − w_b)² + ½ rₜ ‖wₜ‖²],  z = b + Σₜ wₜ[cell]

The sum of differences runs over neighbouring cells of term t.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from certus._solvers.losses import evaluate
from certus.additive.cells import Term, neighbours
from certus.additive.histogram_kernels import add_gram, add_scores, add_sums
from certus.objectives import Quantile, Squared
from certus.typing import Array


class CellLayout(NamedTuple):
    """Cells of all terms, in one numbering, and which of them are neighbours."""

    starts: Array  # of each term's cells, and the end
    shapes: list[tuple[int, ...]]
    ordered: list[tuple[bool, ...]]  # whether the cells of an axis have an order
    edges: Array  # (e, 2)
    edge_term: Array
    cell_term: Array
    spectra: list[Array]  # eigenvalues of each term's sum of squared differences

    @property
    def size(self) -> int:
        """Number of cells."""
        return int(self.starts[-1])


def layout_of(terms: list[Term], categorical: Array) -> CellLayout:
    """Number the cells of all terms."""
    return number_cells(
        [term.shape(categorical) for term in terms],
        [tuple(not categorical[j] for j in term.columns) for term in terms],
    )


def number_cells(
    shapes: list[tuple[int, ...]], ordered: list[tuple[bool, ...]]
) -> CellLayout:
    """The layout of terms with this many cells along each axis."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
    edges, owner, spectra = [np.zeros((0, 2), dtype=np.intp)], [], []
    for t, (shape, orders) in enumerate(zip(shapes, ordered)):
        found = neighbours(shape, orders)
        edges.append(found + starts[t])
        owner += [t] * len(found)
        spectra.append(_spectrum(found, sizes[t]))
    cell_term = np.repeat(np.arange(len(shapes)), sizes)
    both = np.concatenate(edges), np.array(owner, dtype=np.intp)
    return CellLayout(starts, shapes, ordered, *both, cell_term, spectra)


def _spectrum(edges: Array, size: int) -> Array:
    L = np.zeros((size, size))
    np.add.at(L, (edges[:, 0], edges[:, 0]), 1.0)
    np.add.at(L, (edges[:, 1], edges[:, 1]), 1.0)
    L[edges[:, 0], edges[:, 1]] -= 1.0
    L[edges[:, 1], edges[:, 0]] -= 1.0
    return np.maximum(np.linalg.eigvalsh(L), 0.0)


class TermLevels(NamedTuple):
    """Strength of both penalties, one of each for every term."""

    smoothing: Array
    shrinkage: Array


class Additive(NamedTuple):
    """Rows, targets and the loss, for the solver: weights add up to one."""

    loss: Any
    codes: Array
    y: Array
    share: Array
    layout: CellLayout
    k: int = 1  # scores of a row

    def scores(self, w: Array, b: Array) -> Array:
        """Scores (n, k) of cells (size, k) and constants (k,)."""
        z = np.empty((self.k, len(self.share)))
        for column, values, constant in zip(z, w.T, b):
            column[:] = constant
            add_scores(self.codes, np.ascontiguousarray(values), column)
        return z.T

    def sums(self, U: Array) -> Array:
        """Sums of U (n, k) over the rows of each cell."""
        out = np.zeros((self.k, self.layout.size))
        for column, u in zip(out, U.T):
            add_sums(self.codes, np.ascontiguousarray(u), column)
        return out.T

    def slopes(self, z: Array) -> tuple[float, Array, Array]:
        """Mean loss, and weighted slopes and curvature state of each row."""
        if isinstance(self.loss, Squared):
            r = z - self.y[:, None]
            value = float(self.share @ np.square(r[:, 0])) / 2
            return value, self.share[:, None] * r, np.ones_like(r)
        if isinstance(self.loss, Quantile):
            return self._pinball(z)
        found = evaluate(self.loss, self.y, z)
        return (
            float(self.share @ found.value),
            self.share[:, None] * found.slope,
            found.state,
        )

    def _pinball(self, z: Array) -> tuple[float, Array, Array]:
        """Of the quantile loss; its curvature is the density of the residuals at 0."""
        q, r = float(self.loss.q), z[:, 0] - self.y
        slope = np.where(r > 0, 1 - q, np.where(r < 0, -q, 0.0))
        state = np.full_like(z, density_at(q, -r, self.share))
        return float(self.share @ (slope * r)), (self.share * slope)[:, None], state

    def noise(self, z: Array) -> float:
        """The variance of a row's slope, as a share of its curvature."""
        if isinstance(self.loss, Squared):
            return 2 * self.value(z)
        if isinstance(self.loss, Quantile):
            q = float(self.loss.q)
            return q * (1 - q) / float(self.slopes(z)[2][0, 0])
        return 1.0

    def gram(self, h: Array) -> Array:
        """The Gram matrix of the one-hot design with row weights h."""
        G = np.zeros((self.layout.size,) * 2)
        add_gram(self.codes, np.ascontiguousarray(h), G)
        return G

    def curvature(self, state: Array, k: int) -> Array:
        """Weighted curvature of each row in score k."""
        own = state[:, k] if self.k == 1 else state[:, k] * (1 - state[:, k])
        return np.asarray(self.share * np.maximum(own, 1e-12))

    def value(self, z: Array) -> float:
        """Mean loss."""
        return self.slopes(z)[0]


def quantiles(values: Array, share: Array, levels: list[float]) -> Array:
    """Where the cumulated weight reaches a level; weights equal repetition."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(share[order])
    wanted = np.array(levels) * reached[-1] * (1 - 1e-12)
    found = np.searchsorted(reached, wanted)
    return np.asarray(values[order][np.minimum(found, len(values) - 1)])


def density_at(q: float, residual: Array, share: Array) -> float:
    """The density of the residuals near their quantile q."""
    ends = [max(q - 0.1, q / 2), min(q + 0.1, (1 + q) / 2)]
    low, high = quantiles(residual, share, ends)
    size = float(share @ np.abs(residual)) / float(share.sum())
    width = max(float(high - low), 1e-6 * size)
    return (ends[1] - ends[0]) / width if width > 0 else 1.0


def penalty_value(layout: CellLayout, levels: TermLevels, w: Array) -> float:
    """Both penalties."""
    d = w[layout.edges[:, 1]] - w[layout.edges[:, 0]]
    smooth = levels.smoothing[layout.edge_term] @ np.square(d)
    small = levels.shrinkage[layout.cell_term] @ np.square(w)
    return float(np.sum(smooth + small)) / 2


def penalty_slope(layout: CellLayout, levels: TermLevels, w: Array) -> Array:
    """The gradient of both penalties."""
    out = levels.shrinkage[layout.cell_term][:, None] * w
    d = w[layout.edges[:, 1]] - w[layout.edges[:, 0]]
    flow = levels.smoothing[layout.edge_term][:, None] * d
    for column, f in zip(out.T, flow.T):
        add_flow(layout, f, column)
    return out


def add_flow(layout: CellLayout, flow: Array, out: Array) -> None:
    """Add Dᵀ·flow, D the differences of neighbouring cells."""
    out += np.bincount(layout.edges[:, 1], flow, layout.size)
    out -= np.bincount(layout.edges[:, 0], flow, layout.size)


def add_penalty(layout: CellLayout, cells: Array, edges: Array, G: Array) -> None:
    """Add a level of each cell and of each edge to the upper part of a matrix."""
    a, b = layout.edges.T
    each = np.arange(layout.size)
    G[each, each] += cells
    G[each, each] += np.bincount(a, edges, layout.size)
    G[each, each] += np.bincount(b, edges, layout.size)
    # A pair of cells has one edge, and its first cell has the smaller number.
    G[a, b] -= edges


class Factor:
    """Cholesky's factor of the matrix of a Newton step, its constant eliminated."""

    def __init__(self, G: Array, total: float, m: Array) -> None:
        # G is overwritten; its upper part holds Gram matrix plus penalties.
        linalg.blas.dsyr(-1.0 / total, m, a=G.T, lower=1, overwrite_a=1)
        self.m, self.total = m, total
        self.c, info = linalg.lapack.dpotrf(G.T, lower=1, overwrite_a=1, clean=0)
        if info:
            raise np.linalg.LinAlgError("the matrix of a Newton step is not positive")

    def solve(self, g: Array, g0: float) -> tuple[Array, float]:
        """The step of cells and constant for a gradient."""
        rest = g - self.m * (g0 / self.total)
        step = -linalg.lapack.dpotrs(self.c, rest, lower=1)[0]
        return step, -(g0 + float(self.m @ step)) / self.total

    def inverse(self) -> Array:
        """The inverse, lower part; the factor is lost."""
        found, info = linalg.lapack.dpotri(self.c, lower=1, overwrite_c=1)
        if info:
            raise np.linalg.LinAlgError("the matrix of a Newton step is singular")
        return np.asarray(found)
