"""The cells of an additive model: which cell of each term a row lies in.

A column of numbers is divided at edges halfway between neighbouring values, chosen so
that its cells hold about equally many rows. A categorical column has a cell for each
value. Cell 0 holds missing values, and values that no training row had.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array


class Term(NamedTuple):
    """The columns of a term, and for each of them its edges, or its categories."""

    columns: tuple[int, ...]
    axes: tuple[Array, ...]

    def shape(self, categorical: Array) -> tuple[int, ...]:
        """Numbers of cells, that of missing values included."""
        pairs = zip(self.columns, self.axes)
        return tuple(len(axis) + 2 - int(categorical[j]) for j, axis in pairs)


def edges_of(column: Array, s: Array, most: int) -> Array:
    """Edges halfway between neighbouring values, at about equal weights."""
    seen = ~np.isnan(column)
    values, place = np.unique(column[seen], return_inverse=True)
    if len(values) < 2:
        return np.zeros(0)
    below = np.cumsum(np.bincount(place, s[seen]))
    if len(values) <= most:
        cuts = np.arange(len(values) - 1)
    else:
        # A value with many rows takes a cell; the others share what is left.
        wanted = below[-1] * np.arange(1, most) / most
        cuts = np.unique(np.searchsorted(below, wanted * (1 - 1e-12)))
        cuts = cuts[cuts < len(values) - 1]
    return np.unique(halfway(values[cuts], values[cuts + 1]))


def halfway(low: Array, high: Array) -> Array:
    """The middle, at least above the lower value."""
    middle = low / 2 + high / 2
    return np.where((middle > low) & (middle <= high), middle, high)


def categories_of(column: Array) -> Array:
    """The values of a categorical column."""
    return np.unique(column[~np.isnan(column)])


def place(column: Array, axis: Array, categorical: bool) -> Array:
    """The cell of each row along one axis."""
    if not categorical:
        found = np.searchsorted(axis, column, side="right") + 1
        return np.where(np.isnan(column), 0, found)
    if not len(axis):
        return np.zeros(len(column), dtype=np.intp)
    found = np.minimum(np.searchsorted(axis, column), len(axis) - 1)
    return np.where(axis[found] == column, found + 1, 0)


def codes_of(X: Array, terms: list[Term], categorical: Array) -> Array:
    """The cell of each row in each term, numbered over all terms: (terms, n)."""
    codes = np.empty((len(terms), X.shape[0]), dtype=np.int32)
    start = 0
    for t, term in enumerate(terms):
        shape = term.shape(categorical)
        at: Any = np.zeros(X.shape[0], dtype=np.intp)
        for j, axis, size in zip(term.columns, term.axes, shape):
            at = at * size + place(X[:, j], axis, bool(categorical[j]))
        codes[t] = start + at
        start += int(np.prod(shape))
    return codes


def neighbours(shape: tuple[int, ...], ordered: tuple[bool, ...]) -> Array:
    """Pairs of neighbouring cells along the ordered axes, without missing values."""
    index = np.arange(int(np.prod(shape))).reshape(shape)
    found = [np.zeros((0, 2), dtype=np.intp)]
    for axis, in_order in enumerate(ordered):
        if in_order:
            along = np.moveaxis(index, axis, 0)[1:]
            found.append(np.column_stack([along[:-1].ravel(), along[1:].ravel()]))
    return np.concatenate(found)
