"""Columns of a design that a solver works on, with their Gram matrix.

Dense columns are copied, and centred as they are copied: nothing is subtracted from
products afterwards, so a mean far from zero costs no digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus._core.rounding import EPS
from certus._solvers.design import Design
from certus.typing import Array

#: Largest working set that keeps its Gram matrix (side² · 8 bytes).
GRAM_SIDE = 6_000
#: Working sets from this size on descend on a float32 copy, unless columns are so
#: small or large that float32 could not hold their squares.
HALF_SIDE, TINY, HUGE = 1_000, 1e-30, 1e30


class WorkingSet:
    """Columns of a design and their Gram matrix, in buffers that grow by doubling.

    Parameters
    ----------
    design : Design
        Where the columns come from.
    most : int, optional
        Members up to which they keep their Gram matrix; never above ``GRAM_SIDE``.
    """

    def __init__(self, design: Design, most: int | None = None) -> None:
        self.design = design
        self._side = GRAM_SIDE if most is None else min(most, GRAM_SIDE)
        self.members = np.empty(0, dtype=np.intp)  # in order of arrival
        self.inside = np.zeros(design.d, dtype=bool)
        # Descent on sparse columns is cheap; their Gram matrix is formed when needed.
        self._gram: Array | None = None if design.sparse else np.empty((0, 0))
        self._half, self._halved = np.empty((0, 0), dtype=np.float32), 0
        self.columns: Any = None if design.sparse else np.empty((0, design.n))
        self.curvature = np.empty(0)
        self._h = (np.ones(design.n) if design.s is None else design.s) / design.total

    @property
    def G(self) -> Array | None:
        """Gram matrix of the members, or None where there are too many."""
        k = len(self.members)
        return None if self._gram is None else self._gram[:k, :k]

    @property
    def rows(self) -> Array:
        """Contiguous rows to descend along, which begin with those of ``G``.

        In float32 for large sets: descent waits for memory there.
        """
        k, old, size = len(self.members), self._halved, self.curvature
        assert self._gram is not None
        if k < HALF_SIDE or size.min() < TINY or size.max() > HUGE:
            return self._gram
        if old < k:
            self._half = H = grown(self._half, old, k)
            H[old:k, :k] = self._gram[old:k, :k]
            H[:old, old:k] = H[old:k, :old].T
            self._halved = k
        return self._half

    @property
    def off(self) -> Array:
        """What has still to be subtracted from each member: sparse columns' means."""
        return self.design.rest[self.members] * self.design.sparse

    def dense(self) -> Array:
        """The members' dense columns, Fortran-ordered."""
        return self.columns[: len(self.members)].T

    def form_gram(self) -> None:
        """Gram matrix of all members, kept from now on, where it is small enough."""
        if len(self.members) <= self._side:
            off = self.off
            columns = self.columns if self.design.sparse else self.dense()
            self._gram = self.design.cross(columns, columns, (off, off))
            self._halved = 0

    def dot(self, which: Array, values: Array) -> Array:
        """Centred columns at positions ``which``, times ``values``."""
        if not which.size:
            return np.zeros((self.design.n, *values.shape[1:]))
        if self.design.sparse:
            z = np.asarray(self.columns[:, which] @ values)
            return z - self.design.rest[self.members[which]] @ values
        if 2 * len(which) < len(self.members):
            return np.asarray((values.T @ self.columns[which]).T)
        spread = np.zeros((len(self.members), *values.shape[1:]))  # no copy of columns
        spread[which] = values
        return np.asarray((spread.T @ self.dense().T).T)

    def append(self, new: Array) -> None:
        """Add columns and their inner products with the members."""
        design, k, m = self.design, len(self.members), len(new)
        if design.sparse:
            fresh = design.X[:, new]
        else:
            self.columns = grown(self.columns, k, k + m, design.n)
            fresh = self.columns[k : k + m].T
            design.columns(new, fresh.T)
        size = self._sizes(new, fresh)
        if k + m > self._side:
            self._gram = None
        if self._gram is not None:
            off_new, off_old = design.rest[new], design.rest[self.members]
            old = self.columns if design.sparse else self.columns[:k].T
            self._gram = G = grown(self._gram, k, k + m)
            if k:
                G[k : k + m, :k] = design.cross(fresh, old, (off_new, off_old))
                G[:k, k : k + m] = G[k : k + m, :k].T
            G[k : k + m, k : k + m] = design.cross(fresh, fresh, (off_new, off_new))
        if design.sparse:
            parts = [fresh] if self.columns is None else [self.columns, fresh]
            self.columns = sparse.hstack(parts, format="csc")
        self.curvature = np.concatenate([self.curvature, size])
        self.members = np.concatenate([self.members, new])
        self.inside[new] = True

    def _sizes(self, new: Array, fresh: Any) -> Array:
        """Mean squares; columns that vary by rounding alone are made zero."""
        design = self.design
        if design.sparse:
            size = np.asarray(fresh.multiply(fresh).T @ self._h)
            return size - design.rest[new] ** 2 * design.centred
        size = np.einsum("ij,ij,j->i", fresh.T, fresh.T, self._h)
        dead = design.centred & (size <= np.square(4 * EPS * design.mean[new]))
        fresh[:, dead] = 0.0
        return np.where(dead, 0.0, size)

    def keep(self, which: Array) -> None:
        """Keep the members marked in ``which``."""
        on = np.flatnonzero(which)
        self.inside[self.members[~which]] = False
        self.members, self.curvature = self.members[on], self.curvature[on]
        k, self._halved = len(on), 0
        if self._gram is not None:
            self._gram[:k, :k] = self._gram[np.ix_(on, on)]
        if self.design.sparse:
            self.columns = self.columns[:, on]
        else:
            self.columns[:k] = self.columns[on]


def grown(buffer: Array, used: int, rows: int, width: int | None = None) -> Array:
    """A buffer of at least ``rows`` rows; square unless a ``width`` is given.

    Memory that is not written to costs nothing, so the first is generous.
    """
    if rows <= len(buffer):
        return buffer
    side = max(rows, 2 * len(buffer), 256)
    out = np.empty((side, side if width is None else width), dtype=buffer.dtype)
    columns = used if width is None else width
    out[:used, :columns] = buffer[:used, :columns]
    return out
