"""Columns of numbers as cells, and back: values that are frequent, and bins.

A value that many rows share has a cell of its own; so has every value of a column with
few. The others are put into bins with about as many rows each, and a bin may be cut
into parts of equal width. The number of the cell and that of the part are two columns
for a network that learns rows of cells.

    log p(x) = log P(cells) − Σ log width of the part,   over columns in bins

A number outside the range of the fit counts as the nearest one inside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array

__all__ = ["CellCode", "ColumnCells", "columns_of", "learn_cells"]

#: Values with this share of the rows have a cell, and all of a column with few values.
ATOM, FEW = 0.02, 20
#: Rows of a bin, and of a part, at least.
BIN_ROWS, PART_ROWS = 10, 5
#: Most cells of a column.
MOST = 1_000


class ColumnCells(NamedTuple):
    """The cells of a column: single values first, then bins between ``edges``."""

    values: Array
    edges: Array
    parts: int

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.values) + max(0, len(self.edges) - 1)

    def encode(self, x: Array) -> tuple[Array, Array]:
        """The cell and the part of each number; −1 for a value without a cell."""
        at, known = _place(self.values, x)
        if len(self.edges) < 2:
            return np.where(known, at, -1), np.zeros(len(x), dtype=np.int64)
        inside = np.clip(x, self.edges[0], self.edges[-1])
        bins = np.searchsorted(self.edges, inside, "right") - 1
        bins = np.clip(bins, 0, len(self.edges) - 2)
        low, wide = self.edges[bins], np.diff(self.edges)[bins]
        part = np.floor((inside - low) / wide * self.parts).astype(np.int64)
        part = np.where(known, 0, np.clip(part, 0, self.parts - 1))
        return np.where(known, at, len(self.values) + bins), part

    def ends(self, cell: Array, part: Array) -> tuple[Array, Array]:
        """Lowest and highest number of each cell and part; equal for single values."""
        m = len(self.values)
        single = self.values[np.minimum(cell, m - 1)] if m else np.zeros(len(cell))
        if len(self.edges) < 2:
            return single, single
        bins = np.clip(cell - m, 0, len(self.edges) - 2)
        low, high = self.edges[bins], self.edges[bins + 1]
        step = (high - low) / self.parts
        low, high = low + part * step, np.minimum(high, low + (part + 1) * step)
        own = cell < m
        return np.where(own, single, low), np.where(own, single, high)

    def log_width(self, cell: Array) -> Array:
        """Log of the width of a part; 0 for single values."""
        if len(self.edges) < 2:
            return np.zeros(len(cell))
        m = len(self.values)
        bins = np.clip(cell - m, 0, len(self.edges) - 2)
        wide = np.log(np.diff(self.edges) / self.parts)[bins]
        return np.where(cell < m, 0.0, wide)

    def levels(self) -> Array:
        """A number in [−1, 1] for each cell, in the order of their values."""
        middle = (self.edges[1:] + self.edges[:-1]) / 2
        place = np.argsort(np.argsort(np.concatenate([self.values, middle])))
        return (2.0 * place + 1.0) / self.size - 1.0


def _place(values: Array, x: Array) -> tuple[Array, Array]:
    """Where each number is among sorted values, and whether it is."""
    if not len(values):
        return np.zeros(len(x), dtype=np.int64), np.zeros(len(x), dtype=bool)
    at = np.minimum(np.searchsorted(values, x), len(values) - 1)
    return at, np.asarray(values[at] == x)


def learn_cells(x: Array, bins: int, parts: int, categorical: bool) -> ColumnCells:
    """The cells of one column.

    Parameters
    ----------
    x : float64 array of shape (n,)
        Its numbers.
    bins, parts : int
        Bins at most, and parts of each.
    categorical : bool
        Whether every value has a cell of its own.
    """
    values, counts = np.unique(x, return_counts=True)
    if categorical and len(values) > MOST:
        raise ValueError(
            f"a categorical column must have at most {MOST:,} values, got "
            f"{len(values):,}. Leave it out, or treat it as a number."
        )
    if categorical or len(values) <= FEW:
        return ColumnCells(values, np.zeros(0), 1)
    atom = counts >= max(2.0, ATOM * len(x))
    rest = np.sort(x[~np.isin(x, values[atom])])
    if not len(rest):
        return ColumnCells(values[atom], np.zeros(0), 1)
    count = int(np.clip(len(rest) // BIN_ROWS, 1, bins))
    edges = np.unique(np.quantile(rest, np.linspace(0, 1, count + 1)))
    if len(edges) < 2:  # one number, which is not frequent enough to be an atom
        room = max(abs(edges[0]), 1.0) * 1e-3
        edges = np.array([edges[0] - room, edges[0] + room])
    fine = int(np.clip(len(rest) // (PART_ROWS * count), 1, parts))
    return ColumnCells(values[atom], edges, fine)


class CellCode(NamedTuple):
    """Rows of numbers as rows of cells: a column for cells, then one for parts."""

    columns: tuple[ColumnCells, ...]

    @classmethod
    def of(cls, stored: list[dict[str, Any]]) -> CellCode:
        """From what a model file holds."""
        return cls(tuple(ColumnCells(**each) for each in stored))

    @property
    def fine(self) -> list[int]:
        """The columns whose bins are cut into parts."""
        return [j for j, c in enumerate(self.columns) if c.parts > 1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each column of the code."""
        cells = [column.size for column in self.columns]
        return (*cells, *(self.columns[j].parts for j in self.fine))

    @property
    def skips(self) -> tuple[int, ...]:
        """Single values of the cell of each part, which has no parts there."""
        singles = (len(self.columns[j].values) for j in self.fine)
        return (*(0 for _ in self.columns), *singles)

    def levels(self) -> list[Array]:
        """Levels of the cells of each column of the code."""
        parts = [self.columns[j].parts for j in self.fine]
        even = [(2.0 * np.arange(k) + 1.0) / k - 1.0 for k in parts]
        return [*(column.levels() for column in self.columns), *even]

    def encode(self, X: Array) -> Array:
        """Cells and parts of rows; −1 where a value has no cell."""
        found = [c.encode(X[:, j]) for j, c in enumerate(self.columns)]
        cells = [cell for cell, _ in found]
        return np.column_stack([*cells, *(found[j][1] for j in self.fine)])

    def parts_of(self, codes: Array) -> Array:
        """The part of each cell, (n, columns); 0 where there are no parts."""
        parts = np.zeros((len(codes), len(self.columns)), dtype=np.int64)
        parts[:, self.fine] = codes[:, len(self.columns) :]
        return parts

    def log_volume(self, codes: Array) -> Array:
        """Σ log width of each row."""
        total = np.zeros(len(codes))
        for j, column in enumerate(self.columns):
            total += column.log_width(codes[:, j])
        return total

    def decode(self, codes: Array, rng: np.random.Generator, box: Any = None) -> Array:
        """Numbers from cells, uniform within a part, and within a box if there is one.

        Parameters
        ----------
        codes : int array of shape (n, columns of the code)
            Cells and parts.
        rng : numpy.random.Generator
            Random numbers.
        box : pair of arrays, optional
            Lowest and highest number of each column.
        """
        parts, n = self.parts_of(codes), len(codes)
        X = np.empty((n, len(self.columns)))
        for j, column in enumerate(self.columns):
            low, high = column.ends(codes[:, j], parts[:, j])
            if box is not None:
                low, high = (
                    np.clip(e, box[0][:, j], box[1][:, j]) for e in (low, high)
                )
            X[:, j] = low + (high - low) * rng.random(n)
        return X


# -- what the user says ---------------------------------------------------------------


def columns_of(
    X: Array, edges: Any, features: Any, *, bins: int, parts: Any
) -> list[ColumnCells]:
    """The cells of each column, learnt from rows or from given edges.

    Parameters
    ----------
    X : float64 array of shape (n, d)
        Rows.
    edges : list of arrays or None
        Ends of the bins of each column.
    features : array or None
        Which columns are categorical, as a mask or as numbers.
    bins : int
        Bins of a column, at most.
    parts : int or sequence of int
        Parts of a bin.
    """
    d = X.shape[1]
    counts = np.asarray(parts)
    sound = counts.shape in ((), (d,)) and counts.dtype.kind in "iu"
    if not sound or counts.min() < 1:
        raise ValueError(
            f"parts must be a whole number above 0, or one for each of {d} columns, "
            f"got {parts!r}."
        )
    counts = np.broadcast_to(counts, (d,))
    if edges is None:
        marked = _mask(features, d)
        return [
            learn_cells(X[:, j], bins, int(counts[j]), bool(marked[j]))
            for j in range(d)
        ]
    if len(edges) != d:
        raise ValueError(
            f"edges must have one array for each of {d} columns, got {len(edges)}."
        )
    return [
        ColumnCells(np.zeros(0), _rising(edges[j], j), int(counts[j])) for j in range(d)
    ]


def _rising(edges: Any, j: int) -> Array:
    found = np.asarray(edges, dtype=np.float64)
    rising = found.ndim == 1 and len(found) > 1 and bool((np.diff(found) > 0).all())
    if not rising or not np.isfinite(found).all() or len(found) > MOST + 1:
        raise ValueError(
            f"the edges of column {j} must be 2 to {MOST + 1:,} rising numbers."
        )
    return found


def _mask(features: Any, d: int) -> Array:
    """Which columns are categorical."""
    marked = np.zeros(d, dtype=bool)
    if features is None:
        return marked
    found = np.asarray(features)
    if found.dtype == bool and found.shape == (d,):
        return found
    listed = found.dtype.kind in "iu" and found.ndim == 1
    if not listed or not np.isin(found, np.arange(d)).all():
        raise ValueError(
            f"categorical_features must be a mask or the numbers of columns, {d} in "
            f"all, got {features!r}."
        )
    marked[found] = True
    return marked
