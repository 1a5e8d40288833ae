"""Many small ridge problems at once, and what solving each of them exactly would gain.

With one side of a factorisation fixed, every row x of the other has its own

    P(x) = ½Σ_t s_t(y_t·x − v_t)² + ½xᵀGx + ½ρΣ_k λ_k x_k²,   g = ∇P(x),   H = ∇²P

over its entries t. The slopes of the losses at x − d are a dual point, whatever the
step d is; with r = g − Hd, Fenchel–Young's excess over all terms is

    P(x) − min P  ≤  ½dᵀHd + rᵀd + ½Σ_k r_k²/f_k,  f_k = ρλ_k + λ_min(G) or λ_min(H)

and P(x) − P(x − d) = ½dᵀHd + rᵀd is gained at least. Steps are chosen freely
(conjugate gradients, a solve); only the evaluation above is relied on. Its rounding is
bounded row by row: every error is γ times one of the sizes in :class:`Sizes`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.searches import steps as search
from certus.typing import Array, CompressedMatrix
from certus.verify.blocks import over_blocks
from certus.verify.covariance import eigen
from certus.verify.deciding import TINY, U, gamma

#: Entries handled at a time, so that their factors stay in cache.
BLOCK = 1 << 13
#: Instead of a number of steps: solve each row's system.
EXACT = -1


def dots(F: Array, G: Array) -> Array:
    """Products of the rows of two matrices."""
    return np.einsum("ij,ij->i", F, G)


def lengths(F: Array) -> Array:
    """Length of each row."""
    return np.sqrt(dots(F, F))


def filled(places: CompressedMatrix, values: Array) -> Any:
    """A CSR matrix with other numbers in its places."""
    return sparse.csr_matrix((values, places.indices, places.indptr), places.shape)


class Side(NamedTuple):
    """One side's problems: places of the entries, s, the others' factors, penalties.

    ``places`` are always the users' rows, so that nothing is sorted; the problems are
    the items' if ``turned``. ``curve`` is s, ``ridge`` λ and ``scale`` ρ.
    """

    places: CompressedMatrix
    curve: Array
    Y: Array
    ridge: Array
    scale: Array
    gram: Array | None = None
    turned: bool = False

    def matrix(self, values: Array) -> Any:
        """Numbers in the places of the entries."""
        found = filled(self.places, values)
        return found.T if self.turned else found

    def sums(self, values: Array) -> Array:
        """Over the entries of each row."""
        return np.asarray(self.matrix(values) @ np.ones(len(self.Y)))

    def products(self, x: Array) -> Array:
        """x·y of each entry, a few at a time."""
        users = np.repeat(np.arange(self.places.shape[0]), np.diff(self.places.indptr))
        of_users, of_items = (self.Y, x) if self.turned else (x, self.Y)

        def work(part: slice) -> Array:
            own, other = users[part], self.places.indices[part]
            return dots(of_items.take(other, 0), of_users.take(own, 0))

        return np.concatenate([np.empty(0), *over_blocks(work, len(users), BLOCK)])

    def pull(self, x: Array) -> Array:
        """The gradient of all but the losses of the entries."""
        found = self.scale[:, None] * (x * self.ridge)
        return found if self.gram is None else found + x @ self.gram

    def gradient(self, x: Array, slope: Array) -> Array:
        """Of every row, given the slopes of the losses in the products."""
        return np.asarray(self.matrix(slope) @ self.Y + self.pull(x))

    def curved(self, d: Array) -> Array:
        """Hd of every row."""
        return self.gradient(d, self.curve * self.products(d)) if d.any() else 0.0 * d


class Sizes(NamedTuple):
    """Sizes that bound rounding, a row each: of H, of the gradient, and γ's factor."""

    curve: Array
    gradient: Array
    steps: Array


def bound(side: Side, x: Array, e: Array, own: Array, other: Array) -> Sizes:
    """Sizes of a side at x.

    ``own`` and ``other`` hold the lengths of rows and their biases. Slopes are s·e of
    residuals e that are computed to within γ times |e| and twice the sizes of w·z, b
    and c; with a Gram matrix, which Σ‖y‖² bounds, they are s·e − 1.
    """
    length, whole = lengths(side.Y), 0.0
    n = side.sums(np.ones(len(e))) + (x.shape[1] + 32)
    sizes = np.column_stack([length, length[:, None] * other, length**2])
    plain, wide, bias, mass = (side.matrix(side.curve) @ sizes).T
    slope = np.sqrt(mass * side.sums(side.curve * e**2)) + TINY / U * plain
    slope += 2 * (own[:, 0] * wide + own[:, 1] * plain + bias)
    if side.gram is not None:
        whole, n = float(np.sum(length**2)), n + len(length)
        slope += side.matrix(np.ones(len(e))) @ length
    curve = mass + whole + side.scale * side.ridge.max(initial=0.0)
    return Sizes(curve, slope + curve * lengths(x), n * U / (1 - n * U))


class Gain(NamedTuple):
    """What exact solves gain, by rows: at least, at most, and rounding in ``high``."""

    low: Array
    high: Array
    allowance: Array


def bracket(
    side: Side, g: Array, sizes: Sizes, d: Array, floor: Array | None = None
) -> Gain:
    """Bounds on P − min P of every row, from a step d.

    Without a penalty ``floor`` bounds λ_min(H) from below; where it is 0, nothing
    bounds the gain from above.
    """
    r, length = g - side.curved(d), lengths(d)
    error = sizes.steps * (sizes.gradient + sizes.curve * length + TINY / U)
    low = 0.5 * dots(g + r, d)
    unsure = (error + sizes.steps * lengths(g + r)) * length
    f = side.scale[:, None] * side.ridge if floor is None else floor[:, None]
    if floor is None and side.gram is not None:  # a part of every H
        values, _, off = eigen(side.gram)
        off += gamma(len(side.Y) + 8) * float(np.trace(side.gram))
        f = f + max(float(values[-1]) - off, 0.0)
    least_f = np.broadcast_to(f, r.shape).min(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = lengths(r / np.sqrt(f))
        more = (1 + sizes.steps) * (rest + error / np.sqrt(least_f)) ** 2 - rest**2
    high = np.where(least_f > 0, np.maximum(low + 0.5 * rest**2, 0.0), np.inf)
    more = np.where(least_f > 0, unsure + 0.5 * more, 0.0)
    return Gain(np.maximum(low - unsure, 0.0), high, more)


def least(side: Side, g: Array, sizes: Sizes) -> Gain:
    """A lower bound on the gain of every row, in one pass, and the rounding taken off.

    The best step along one direction d gains ½(gᵀd)²/dᵀHd.
    """
    d = step(side, g, 1)
    length, slope = lengths(d), np.abs(dots(g, d))
    curve = dots(side.pull(d), d) + side.sums(side.curve * side.products(d) ** 2)
    error = sizes.steps * (sizes.gradient * length + slope) + TINY
    most = curve * (1 + sizes.steps) + sizes.steps * sizes.curve * length**2 + TINY
    sure = 0.5 * np.maximum(slope - error, 0.0) ** 2 / most * (1 - 8 * U)
    gained = np.divide(slope, curve, out=np.zeros_like(slope), where=curve > 0)
    return Gain(sure, sure + np.inf, 0.5 * slope * gained - sure)


# -- steps: any will do -----------------------------------------------------------


def step(side: Side, g: Array, steps: int) -> Array:
    """A step d: solve each row, or take a search's suggestion, if it is finite."""
    if steps == EXACT:
        return solve(side, g)[0]
    d = np.asarray(search.suggested(side, g, steps))
    sound = d.dtype.kind == "f" and d.shape == g.shape and np.isfinite(d).all()
    return d.astype(float) if sound else np.zeros_like(g)


def solve(side: Side, rhs: Array) -> tuple[Array, Array]:
    """H⁻¹·rhs of every row, one after the other; and a proved bound below λ_min(H).

    With an approximate inverse A, λ_min(H) ≥ (1 − ‖I − HA‖)/‖A‖; 0 if that fails.
    """
    rows = side.matrix(np.arange(1, side.places.nnz + 1)).tocsr()
    out, floor, one = np.zeros_like(rhs), np.zeros(len(rhs)), np.eye(rhs.shape[1])
    for u in np.flatnonzero(rhs.any(axis=1)):
        here = slice(rows.indptr[u], rows.indptr[u + 1])
        Y, s = side.Y[rows.indices[here]], side.curve[rows.data[here] - 1]
        H = (Y * s[:, None]).T @ Y + side.scale[u] * np.diag(side.ridge)
        H = H if side.gram is None else H + side.gram
        size = float(np.trace(H))
        try:
            A = np.linalg.inv(H + (1e-15 * size / len(one)) * one)
        except np.linalg.LinAlgError:
            continue
        out[u] = A @ rhs[u]
        out[u] += A @ (rhs[u] - H @ out[u])
        norm = float(np.linalg.norm(A))
        away = (
            float(np.linalg.norm(one - H @ A)) + gamma(2 * len(one) + 8) * size * norm
        )
        lost = gamma(len(s) + len(one) + 8) * size
        if away < 1:
            floor[u] = max(0.0, (1 - 1e-12) * (1 - away) / norm - lost)
    return out, floor
