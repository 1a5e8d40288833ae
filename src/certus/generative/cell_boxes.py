"""Boxes of rows of cells: how much of each cell a condition allows."""

from __future__ import annotations

import numpy as np

from certus.generative.cells import CellCode, ColumnCells
from certus.typing import Array

__all__ = ["CellBox", "filled"]


class CellBox:
    """How much of each cell lies in a row's box, column by column.

    Parameters
    ----------
    code : CellCode
        What the cells are.
    low, high : array of shape (n, columns)
        Lowest and highest number of each row.
    """

    def __init__(self, code: CellCode, low: Array, high: Array) -> None:
        self.code, self.low, self.high = code, low, high

    def __call__(self, j: int, codes: Array) -> Array:
        """Shares of the cells of a column of the code, (n, cells)."""
        d = len(self.code.columns)
        own = self.code.fine[j - d] if j >= d else j
        low, high, column = self.low[:, own], self.high[:, own], self.code.columns[own]
        cell, part = column.encode(low)
        if j >= d:  # parts of the cell that was drawn
            n, k = len(codes), column.parts
            drawn, each = np.repeat(codes[:, own], k), np.tile(np.arange(k), n)
            a, b = (end.reshape(n, k) for end in column.ends(drawn, each))
            return _overlap(a, b, low, high, part)
        cells = np.arange(column.size)
        a = column.ends(cells, np.zeros_like(cells))[0][None]
        b = column.ends(cells, np.full_like(cells, column.parts - 1))[1][None]
        share = _overlap(a, b, low, high, cell)
        return (share > 0).astype(float) if column.parts > 1 else share


def _overlap(a: Array, b: Array, low: Array, high: Array, at: Array) -> Array:
    """The share of each piece [a, b] in [low, high]; a value lies in piece ``at``."""
    wide = b - a
    cut = np.minimum(b, high[:, None]) - np.maximum(a, low[:, None])
    share = np.clip(cut / np.where(wide > 0, wide, 1.0), 0.0, 1.0)
    share = np.where(wide > 0, share, (cut >= 0).astype(float))
    point = low == high
    share[point] = 0.0
    known = np.flatnonzero(point & (at >= 0))
    share[known, at[known]] = 1.0
    return np.asarray(share)


def filled(column: ColumnCells, x: Array, w: Array) -> float:
    """The expected number, or the likeliest value of a column of categories."""
    if len(column.edges) > 1:
        return float(w @ x / w.sum())
    values, at = np.unique(x, return_inverse=True)
    return float(values[np.argmax(np.bincount(at, w))])
