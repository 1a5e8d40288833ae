"""The contributions of additive models, pair by pair of a row and a background row.

For one background row b, a term g of one column gives g(x) − g(b). A pair h gives its
first column ½ [h(x, x) − h(b, x) + h(x, b) − h(b, b)], the mean over both orders. The
cells are found by counting edges, and background rows are averaged at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.typing import Array

#: Pairs of a row and a background row that are looked at together.
TOGETHER = 1 << 20


def term_shares(
    model: Any, X: Array, B: Array, owner: Array, d: int, k: int
) -> tuple[Array, Array, Array]:
    """Contributions, the sums of the sizes of their terms, and scores of the rows."""
    n, m = len(X), len(B)
    found, sizes = np.zeros((n, d, k)), np.zeros((n, d, k))
    scores = np.tile(np.atleast_1d(np.asarray(model.intercept_, dtype=float)), (n, 1))
    step = max(1, TOGETHER // max(1, m * k))
    for columns, axes, shape in zip(model.terms_, model.bin_edges_, model.shapes_):
        known = [bool(model.is_categorical_[j]) for j in columns]
        ours = [_cell(X[:, j], a, c) for j, a, c in zip(columns, axes, known)]
        theirs = [_cell(B[:, j], a, c) for j, a, c in zip(columns, axes, known)]
        cells = np.asarray(shape, dtype=np.float64).reshape(
            *np.shape(shape)[: len(columns)], k
        )
        players = [int(owner[j]) for j in columns]
        scores += cells[tuple(ours)]
        for start in range(0, n, step):
            at = slice(start, start + step)
            x = [code[at, None] for code in ours]
            b = [code[None, :] for code in theirs]
            top, low = cells[tuple(x)], cells[tuple(b)]
            if len(set(players)) == 1:
                _add(found, sizes, at, players[0], 1.0, (top, low), ())
                continue
            mixed, other = cells[x[0], b[1]], cells[b[0], x[1]]
            _add(found, sizes, at, players[0], 0.5, (top, low), (mixed, other))
            _add(found, sizes, at, players[1], 0.5, (top, low), (other, mixed))
    return found, sizes, scores


def _add(
    found: Array, sizes: Array, at: slice, j: int, half: float, ends: Any, mixed: Any
) -> None:
    value = ends[0] - ends[1]
    size = np.abs(ends[0]) + np.abs(ends[1])
    if mixed:
        value = value + mixed[0] - mixed[1]
        size = size + np.abs(mixed[0]) + np.abs(mixed[1])
    found[at, j] += half * value.mean(axis=1)
    sizes[at, j] += half * size.mean(axis=1)


def _cell(column: Array, axis: Array, categorical: bool) -> Array:
    """How many edges are at or below each value, plus one; or which category it is."""
    column = np.asarray(column, dtype=np.float64)
    found = np.zeros(len(column), dtype=np.intp)
    if categorical:
        for place, category in enumerate(np.asarray(axis)):
            found[column == category] = place + 1
        return found
    for edge in np.asarray(axis):
        found += column >= edge
    return np.where(np.isnan(column), 0, found + 1)
