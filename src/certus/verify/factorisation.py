"""What a further half-step of alternating least squares would gain, bracketed.

With one side fixed the objective is, for every row x of the other, a quadratic with

    H = ρB + Σ_t s_t y_t y_tᵀ,   gradient g = Hx − Σ_t p_t y_t

over its observed entries t, so that an exact solve gains ½gᵀH⁻¹g. For any step d with
remainder r = g − Hd this is gᵀd − ½dᵀHd + ½rᵀH⁻¹r, and 0 ≤ rᵀH⁻¹r ≤ rᵀB⁻¹r/ρ: bounds
from both sides, whatever d is. A few steps of conjugate gradients make them tight.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular

from certus.verify.blocks import over_blocks
from certus.verify.data import Array

EPS = float(np.finfo(np.float64).eps)
#: Entries handled at a time, so that their factors stay in cache.
BLOCK = 1 << 11
#: Entries that a thread takes at a time.
PART = 1 << 16
#: In place of a number of steps: each row's system is solved.
EXACT = -1


class Side(NamedTuple):
    """One side's quadratics: entries, the other side's factors, penalties.

    ``penalty`` is B and ``scale`` ρ; ``curve`` and ``pull`` are s and p of each entry.
    Entries are always those of the users' rows, so that nothing is sorted; the rows are
    the items if ``turned``.
    """

    indptr: Array
    indices: Array
    curve: Array
    pull: Array
    Y: Array
    penalty: Array
    scale: Array
    turned: bool = False

    def matrix(self, values: Array) -> Any:
        """Numbers in the places of the entries."""
        width = len(self.scale) if self.turned else len(self.Y)
        shape = (len(self.indptr) - 1, width)
        found = sparse.csr_matrix((values, self.indices, self.indptr), shape)
        return found.T if self.turned else found

    def places(self) -> tuple[Array, Array]:
        """The row of each entry, and its place among the others."""
        users = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        return (self.indices, users) if self.turned else (users, self.indices)

    def products(self, x: Array) -> Array:
        """x_u·y_i of each entry, a few at a time."""
        rows, others = self.places()

        def work(part: slice) -> Array:
            own, other = rows[part], others[part]
            out = np.empty(len(own))
            left, right = (np.empty((BLOCK, x.shape[1])) for _ in range(2))
            for start in range(0, len(out), BLOCK):
                here = slice(start, start + BLOCK)
                n = len(out[here])
                # Into the same memory; "clip" spares a copy, nothing is clipped.
                np.take(self.Y, other[here], 0, out=left[:n], mode="clip")
                np.take(x, own[here], 0, out=right[:n], mode="clip")
                np.einsum("ij,ij->i", left[:n], right[:n], out=out[here])
            return out

        found = list(over_blocks(work, len(rows), PART))
        return np.concatenate(found) if found else np.empty(0)

    def gradient(self, x: Array, z: Array) -> Array:
        """Of every row, given the products z."""
        data = self.matrix(self.curve * z - self.pull) @ self.Y
        return np.asarray(data + self.scale[:, None] * (x @ self.penalty))

    def by_rows(self) -> Side:
        """The same with the entries of each row together."""
        if not self.turned:
            return self
        found = self.matrix(np.arange(len(self.indices))).tocsr()
        own = {"curve": self.curve[found.data], "pull": self.pull[found.data]}
        return self._replace(
            indptr=found.indptr, indices=found.indices, turned=False, **own
        )


class Gain(NamedTuple):
    """What an exact solve for all rows gains: between ``low`` and ``high``."""

    low: float
    high: float


def bracket(side: Side, g: Array, steps: int) -> Gain:
    """Bounds on ½Σ gᵀH⁻¹g after ``steps`` of preconditioned conjugate gradients.

    In coordinates where B = I. ``EXACT`` solves instead, at the cost of a half-step.
    Without a penalty there is no upper bound.
    """
    white, g = _white(side, g)
    scale = white.scale
    if steps == 0:
        return Gain(0.0, _over(np.einsum("ij,ij->i", g, g), scale))
    if steps == EXACT:
        d = solve(white, g)
        Hd = _apply(white, d)
    else:
        g, d, Hd = _conjugate(white, g, steps)
    low = np.einsum("ij,ij->i", g, d) - 0.5 * np.einsum("ij,ij->i", d, Hd)
    r = g - Hd
    rest = _over(np.einsum("ij,ij->i", r, r), scale)
    total = float(low.sum())
    return Gain(max(0.0, total), total + rest)


def least(side: Side, g: Array) -> float:
    """A lower bound on ½Σ gᵀH⁻¹g in one pass: the best step along one direction d.

    It gains ½(gᵀd)²/dᵀHd, with dᵀHd = ρdᵀBd + Σ_t s_t(y_t·d)²; d is the first direction
    of :func:`bracket`.
    """
    side, g, guess = _axes(*_white(side, g))
    d = g / guess
    slope = np.einsum("ij,ij->i", g, d)
    rows, _ = side.places()
    curve = side.scale * np.einsum("ij,ij->i", d, d)
    squares = side.curve * np.square(side.products(d))
    curve = curve + np.bincount(rows, squares, minlength=len(curve))
    gain = np.divide(slope**2, curve, out=np.zeros_like(slope), where=curve > 0)
    return 0.5 * float(gain.sum())


def _white(side: Side, g: Array) -> tuple[Side, Array]:
    """Coordinates where B = I; with no penalty, ρ = 0 and rows without entries rest."""
    if np.linalg.eigvalsh(side.penalty)[0] > 0:
        L = np.linalg.cholesky(side.penalty)
        Y = solve_triangular(L, side.Y.T, lower=True).T
        g = solve_triangular(L, g.T, lower=True).T
        scale = side.scale
    else:
        Y, scale = side.Y, np.zeros(len(side.scale))
        seen = np.bincount(side.places()[0], minlength=len(g)) > 0
        g = g * seen[:, None]
    return side._replace(Y=Y, penalty=np.eye(Y.shape[1]), scale=scale), g


def _over(squares: Array, scale: Array) -> float:
    """½Σ squares/scale, infinite where a row has neither penalty nor zero remainder."""
    if np.any((scale == 0) & (squares > 0)):
        return np.inf
    return 0.5 * float(np.sum(squares / np.where(scale > 0, scale, 1.0)))


def _apply(side: Side, d: Array) -> Array:
    """Hd of every row, where B = I."""
    data = side.matrix(side.curve * side.products(d)) @ side.Y
    return np.asarray(data + side.scale[:, None] * d)


def _axes(side: Side, g: Array) -> tuple[Side, Array, Array]:
    """Turned axes, and the diagonal in them of about each row's H, where B = I.

    The rows' matrices are alike, ρI plus a multiple of the mean of s·y·yᵀ: dividing by
    it in its own axes is the preconditioner.
    """
    rows, others = side.places()
    weight = np.bincount(others, side.curve, minlength=len(side.Y))
    mean = (side.Y * (weight / max(weight.sum(), 1e-300))[:, None]).T @ side.Y
    if not np.isfinite(mean).all():  # factors too large to be squared
        return side, g, np.ones_like(g)
    sizes, turn = np.linalg.eigh(mean)
    mass = np.bincount(rows, side.curve, minlength=len(g))
    floor = 1e-14 * max(float(sizes[-1]), 1e-300)
    guess = side.scale[:, None] + mass[:, None] * np.maximum(sizes, floor)
    guess[guess == 0] = 1.0
    return side._replace(Y=side.Y @ turn), g @ turn, guess


def _conjugate(side: Side, g: Array, steps: int) -> tuple[Array, Array, Array]:
    """Turned axes: g, d = H⁻¹g approximately, and Hd, of every row, where B = I."""
    side, g, guess = _axes(side, g)
    d, Hd, r = np.zeros_like(g), np.zeros_like(g), g.copy()
    p = r / guess
    size = np.einsum("ij,ij->i", r, p)
    for _ in range(steps):
        Hp = _apply(side, p)
        curve = np.einsum("ij,ij->i", p, Hp)
        move = np.divide(size, curve, out=np.zeros_like(size), where=curve > 0)
        d += move[:, None] * p
        Hp *= move[:, None]
        Hd += Hp
        r -= Hp
        fresh = r / guess
        now = np.einsum("ij,ij->i", r, fresh)
        turned = np.divide(now, size, out=np.zeros_like(now), where=size > 0)
        p, size = fresh + turned[:, None] * p, now
    return g, d, Hd


def solve(side: Side, rhs: Array | None = None) -> Array:
    """H⁻¹ rhs of every row, one after the other; its minimiser by default."""
    side = side.by_rows()
    out = np.zeros((len(side.indptr) - 1, side.Y.shape[1]))
    for u in range(len(out)):
        here = slice(side.indptr[u], side.indptr[u + 1])
        if here.start == here.stop and rhs is None:
            continue
        Y = side.Y[side.indices[here]]
        H = side.scale[u] * side.penalty + (Y * side.curve[here, None]).T @ Y
        h = Y.T @ side.pull[here] if rhs is None else rhs[u]
        try:
            np.linalg.cholesky(H)
            out[u] = np.linalg.solve(H, h)
        except np.linalg.LinAlgError:
            out[u] = np.linalg.lstsq(H, h, rcond=None)[0]
    return out


def spectral_norm(A: Any) -> tuple[float, bool]:
    """σ_max of a sparse matrix, and whether it was computed in full."""
    if min(A.shape) <= 2000:
        gram = (A.T @ A if A.shape[1] <= A.shape[0] else A @ A.T).toarray()
        top = float(np.linalg.eigvalsh(gram)[-1])
        slack = 8 * EPS * len(gram) * float(np.trace(gram))
        return float(np.sqrt(max(top, 0.0) + slack)), True
    start = np.ones(min(A.shape))
    top = sparse.linalg.svds(A, k=1, v0=start, return_singular_vectors=False)
    return float(top[0]), False
