"""Products with X: scores z = Xw + b, and pull-backs Xᵀu.

A linear space stands for A = X − 1cᵀ in float64, rows of positive weight only. The
shift c is a *choice* (from a few rows): where the intercept is free, Aᵀ(su) = Xᵀ(su)
for every u with Σ su = 0, and numbers far from zero keep their digits. One pass over
blocks of rows gives scores, pull-backs and the weighted column norms Nⱼ = ‖Aⱼ‖ from
which every bound of their rounding follows (errors of a product in any order):

    ‖ẑ − z‖ ≤ γ_{d+4}·Σⱼ|wⱼ|Nⱼ + 4u|b'|        |v̂ⱼ − vⱼ| ≤ γ_{m+64}·Nⱼ‖B‖

with m = rows of a block + number of blocks, and b' = b + cᵀw summed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.typing import Array, CompressedMatrix, Matrix

#: Runs work on slices of the rows, in their order: ``each(work, n, step)``.
Each = Callable[[Callable[[slice], Any], int, int], Iterable[Any]]

#: Unit roundoff; and below TINY a loaded library may flush to zero.
UNIT, TINY = 2.0**-53, 2.0**-1022
#: Numbers of a block and its rows at most, so that both stay in cache.
BLOCK, ROWS = 1 << 18, 1 << 15
#: Squares between these ends have lost nothing to under- or overflow.
LOW, HIGH = 1e-280, 1e280


def gamma(m: float, unit: float = UNIT) -> float:
    """m·u/(1 − m·u): the relative error of m roundings in a row; infinite for many."""
    return m * unit / (1 - m * unit) if m * unit < 0.5 else math.inf


def one_by_one(work: Callable[[slice], Any], n: int, step: int) -> Iterator[Any]:
    """The blocks in the caller's thread."""
    for i in range(0, n, max(1, step)):
        yield work(slice(i, min(i + max(1, step), n)))


class Seen(NamedTuple):
    """The results of one pass."""

    z: Array  # scores (n, k)
    B: Array  # the vectors pulled back (n, r)
    V: Array  # AᵀSB/Σs (d, r)


class Space:
    """A = X − 1cᵀ with weights s > 0; ``constant`` is one more column of that size.

    Parameters
    ----------
    X : ndarray, CSR or CSC of shape (n, d)
        Any real dtype; cast to float64 a block at a time, sparse X never densified
        (but for its columns without a zero).
    s : ndarray of shape (n,)
        Positive weights.
    free : bool
        Whether Σ su = 0 for all that is pulled back, so that columns may be shifted.
    """

    def __init__(
        self,
        X: Matrix,
        s: Array,
        free: bool,
        constant: float = 0.0,
        each: Each = one_by_one,
    ) -> None:
        self.s, self.total = s, float(s.sum())
        self.even = bool((s == s[:1]).all())  # as without weights
        self.given, self.n, self.width = X, X.shape[0], X.shape[1]
        self.constant, self.each, self.rough = constant, each, False
        self._norms: Array | None = None
        self._dense: Array | None = None  # norms of the columns held dense
        self.sparse: Any = None
        self.full = np.arange(self.width)  # columns held dense
        if not isinstance(X, np.ndarray):
            self.sparse = X if X.dtype == np.float64 else X.astype(np.float64)
            counts = _counts(X, 0) if free else np.zeros(0)
            self.full = np.flatnonzero(counts == self.n)
            X = X[:, self.full].toarray() if len(self.full) else np.zeros((self.n, 0))
            if len(self.full):
                keep = np.ones(self.width)
                keep[self.full] = 0.0
                self.sparse = self.sparse @ sparse.diags_array(keep)
            ends = self.sparse.data.min(initial=0), self.sparse.data.max(initial=0)
            self.top = float(max(-ends[0], ends[1]))  # the largest entry
        self.X = X
        self.shift = self._choose_shift() if free else np.zeros(X.shape[1])
        self.shifted = bool(self.shift.any())
        # Columns that lie together are read in long runs, whole if there are not many
        # rows, else if they need not be copied.
        fortran = X.flags.f_contiguous
        self.whole = fortran and self.n <= ROWS and X.size > BLOCK
        self.long = fortran and X.dtype == np.float64 and not self.shifted
        least = self.n if self.whole else 4096 if self.long else 16
        self.step = max(least, min(ROWS, BLOCK // (X.shape[1] + 1)))

    def _choose_shift(self) -> Array:
        """Means of a few rows where they are large beside the spread, else 0."""
        some = np.linspace(0, self.n - 1, 4).astype(int)[:, None] - np.arange(4)
        part = np.asarray(self.X[np.unique(np.maximum(some, 0))], dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            mean, spread = part.mean(axis=0), part.std(axis=0)
            # As float32: few digits, so that products with halves of w are exact.
            mean = mean.astype(np.float32).astype(np.float64)
        far = np.isfinite(mean) & (np.abs(mean) > 4 * spread)
        return np.where(far, mean, 0.0)

    def is_constant(self, j: int) -> bool:
        """Whether column j has one value only; not known of sparse ones with zeros."""
        at = np.flatnonzero(self.full == j)
        column = self.X[:, at[0]] if len(at) else np.arange(2)
        return bool((column == column[0]).all())

    @property
    def depth(self) -> int:
        """Roundings on the way of one entry into a pull-back."""
        dense = min(self.step, self.n) + -(-self.n // self.step)
        if self.sparse is None:
            return dense
        quick = self.rough and self.sparse.format == "csr"
        tallest = self.n if quick else int(_counts(self.sparse, 0).max(initial=0))
        return max(dense, tallest)

    def _block(self, part: slice, some: Array | slice = slice(None)) -> Array:
        A = self.X[part, some]
        if self.shifted:
            return np.subtract(A, self.shift[some], dtype=np.float64)
        return np.asarray(A, dtype=np.float64)

    def offset(self, w: Array, b: Array) -> Array:
        """The offset b + cᵀw, for every column of w: exact products, summed exactly."""
        if not self.shifted:
            return b
        near = w[self.full]
        size, power = np.frexp(near)
        high = np.ldexp(np.rint(np.ldexp(size, 24)), power - 24)
        parts = np.vstack([b, *(self.shift[:, None] * x for x in (high, near - high))])
        parts[:, ~np.isfinite(np.abs(parts).sum(axis=0))] = np.nan
        return np.array([math.fsum(column) for column in parts.T])

    def look(
        self,
        w: Array,
        b: Array,
        vectors: Callable[[slice, Array], Array] | None,
        own: int | None = None,
    ) -> Seen:
        """Scores of w (d, k) and b (k,), and the pull-back of ``vectors(rows, z)``.

        ``vectors`` reads the first ``own`` scores, by default all. Cost: one pass over
        X; if columns lie together, one more over those that these scores rest on.
        """
        long = self.long or self.whole
        own = own if long and own is not None else w.shape[1]
        if self.constant:
            b, w = b + self.constant * w[-1], w[:-1]
        z = np.empty((w.shape[1], self.n)).T  # columns that lie together each
        z[:] = self.offset(w, b)
        if self.sparse is not None:
            self._add_products((self.sparse, w[:, j], z[:, j]) for j in range(own))
        inner = np.ascontiguousarray(w[self.full])
        norms = vectors is not None and self._dense is None
        answer = vectors or (lambda _, z: z[:, :0])
        B = np.empty((answer(slice(0, 0), z[:0]).shape[1], self.n)).T
        used = np.flatnonzero(inner[:, :own].any(axis=1))
        few: Any = used if long and 8 * len(used) < len(inner) else slice(None)
        wide = 2 * BLOCK // self.step + 1
        sides = [slice(j, j + wide) for j in range(0, max(1, len(inner)) * long, wide)]

        def work(part: slice) -> tuple[Array, Array]:
            A = self._block(part, few)
            squares = [self._squares(part, A) if norms and not long else np.zeros(0)]
            first = self._times(A, inner[few, :own])
            for column, out in zip(first.T, z[part].T):
                out += column
            B[part] = answer(part, z[part])
            weighed = self._weighed(B[part], part)
            V = [] if long else [self._times(A.T, weighed)]
            for some in sides:  # long columns a few at a time
                A = self._block(part, some)
                squares.append(self._squares(part, A) if norms else np.zeros(0))
                z[part, own:] += self._times(A, inner[some, own:])
                V.append(self._times(A.T, weighed))
            return np.concatenate(V), np.concatenate(squares)

        V, squares = np.zeros((B.shape[1], len(inner))).T, np.zeros(len(inner) * norms)
        # In this thread: BLAS has its own, and after a fit they are awake.
        for found in one_by_one(work, self.n, self.step):
            V += found[0]
            squares += found[1]
        if norms:
            self._dense = self._roots(squares)
        weighed, out = self._weighed(B, slice(None)), V
        if self.sparse is not None:
            out = np.zeros((B.shape[1], self.width)).T
            out[self.full] = V
            rest = [(self.sparse, w[:, j], z[:, j]) for j in range(own, w.shape[1])]
            back = [(self.sparse.T, x, v) for x, v in zip(weighed.T, out.T)]
            self._add_products([*rest, *back])
        if self.constant:  # the sums are pairwise
            out = np.vstack([out, self.constant * weighed.T.sum(axis=1)])
        return Seen(z, B, out / (self.n if self.even else self.total))

    def _times(self, A: Array, W: Array) -> Array:
        """A @ W; by its columns where a product with two or three is slow."""
        if not (self.long or self.X.shape[1] > 16 * self.step) or W.shape[1] > 3:
            return np.asarray(A @ W)
        each = [A @ w[:, None] for w in np.ascontiguousarray(W.T)]
        return np.array(each).reshape(W.shape[1], len(A)).T

    def _weighed(self, B: Array, part: slice) -> Array:
        """The vectors times their weights, in units of one where these are even."""
        return B if self.even else B * self.s[part, None]

    def _add_products(self, asked: Iterable[tuple[Any, Array, Array]]) -> None:
        """Add A @ x to out, for each (A, x, out) in a thread."""
        listed = list(asked)

        def work(part: slice) -> None:
            A, x, out = listed[part.start]
            used = np.flatnonzero(x)
            few = A.format == "csc" and 8 * len(used) < len(x)
            out += A[:, used] @ x[used] if few else A @ x

        list(self.each(work, len(listed), 1))

    # -- column norms ----------------------------------------------------------

    @property
    def norms(self) -> Array:
        """Nⱼ, at least; a bound from the largest entry while ``rough``."""
        if self._norms is not None:
            return self._norms
        if self._dense is None:  # no pass has been made
            zero = np.zeros((self.width + bool(self.constant), 1))
            self.look(zero, np.zeros(1), lambda _, z: z)
        rough = self.rough and self.sparse is not None
        found = np.zeros(self.width)
        if self.sparse is not None:
            found += self.top if rough else self._sparse_norms()
        found[self.full] = self._dense
        found = np.append(found, self.constant) if self.constant else found
        self._norms = None if rough else found
        return found

    def _roots(self, squares: Array) -> Array:
        squares = squares / (self.n if self.even else self.total)
        odd = np.flatnonzero(~((squares > LOW) & (squares < HIGH)))
        found = np.sqrt(squares)
        if len(odd):
            found[odd] = self._careful(odd)
        return np.asarray(found)

    def _squares(self, part: slice, A: Array) -> Array:
        if not self.even:
            return np.asarray(self.s[part] @ (A * A))
        if self.long:
            return np.asarray(np.vecdot(A.T, A.T))
        # Short rows as a few long ones.
        width = A.shape[1]
        short = A.flags.c_contiguous and width <= 256 and len(A) % 16 == 0
        A = A.reshape(-1, 16 * width) if short else A
        return np.asarray(np.einsum("ij,ij->j", A, A).reshape(-1, width).sum(axis=0))

    def _careful(self, columns: Array) -> Array:
        """Norms of a few columns in units of a power of two near their largest."""
        A = np.asarray(self.X[:, columns], dtype=np.float64) - self.shift[columns]
        return _scaled_norms(np.abs(A), self.s / self.total)

    def _sparse_norms(self) -> Array:
        share = self.s / self.total
        unit = 2.0 ** -math.frexp(self.top)[1] if 0 < self.top < math.inf else 1.0
        squares = np.asarray((self.sparse * unit).power(2).T @ share)
        found = np.sqrt(squares + self.n * TINY) / unit
        for j in np.flatnonzero((squares < LOW) & (_counts(self.sparse, 0) > 0)):
            column = np.abs(self.sparse[:, [j]].toarray())
            found[j] = _scaled_norms(column, share)[0]
        return np.asarray(found)

    # -- rounding --------------------------------------------------------------

    def score_error(self, w: Array, b: Array) -> Array:
        """‖ẑ − z‖ for every column of w, in the weighted mean square."""
        size, inner = np.abs(w), self.X.shape[1] + bool(self.constant)
        if self.sparse is not None:
            # A row meets as many coefficients as it has entries where they are not 0.
            used, A = np.flatnonzero(size[: self.width].any(axis=1)), self.sparse
            A = A[:, used] if A.format == "csc" and 4 * len(used) < self.width else A
            inner += int(_counts(A, 1).max())
        reach = np.einsum("i,ij", self.norms, size)
        if self.rough and self.sparse is not None:
            most = inner * float(self.norms.max(initial=0.0))
            reach = np.minimum(reach, most * size.max(axis=0, initial=0.0))
        moved = self.offset(w[: self.width], b)
        return np.asarray(
            gamma(inner + 4) * reach * (1 + 1e-9)
            + 4 * UNIT * (np.abs(moved) + np.abs(b))
            + inner * TINY
        )


def _counts(X: CompressedMatrix, axis: int) -> Array:
    """How many entries each column (0) or row (1) of a sparse matrix has."""
    along, size = X.format == ("csc", "csr")[axis], X.shape[1 - axis]
    return np.diff(X.indptr) if along else np.bincount(X.indices, minlength=size)


def _scaled_norms(A: Array, share: Array) -> Array:
    top = A.max(axis=0, initial=0.0)
    power = np.frexp(np.where(np.isfinite(top), top, 1.0))[1]
    part = np.ldexp(A, -power)
    return np.ldexp(np.sqrt(share @ np.square(part) + len(A) * TINY), power)
