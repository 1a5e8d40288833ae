"""Contributions for additive models, in closed form: a term is a table of cells.

    one column   φ_j = g(x_j) − mean of g(b_j)
    a pair       φ_j = ½ [h(x_j, x_l) − mean h(b_j, x_l) + mean h(x_j, b_l) − mean h(b)]

The means over the background are tables as well, one for each axis of a pair.
"""

from __future__ import annotations

import numpy as np

from certus.explanations.games import MixingGame
from certus.typing import Array

#: What a model must have for its terms to be read.
_NEEDED = ("terms_", "bin_edges_", "shapes_", "is_categorical_", "intercept_")


def has_terms(game: MixingGame) -> bool:
    """Whether the model is a sum of terms that give its answers."""
    Z = game.numbers
    if Z is None or not all(hasattr(game.inner, name) for name in _NEEDED):
        return False
    if len(np.atleast_1d(game.inner.intercept_)) != game.k:
        return False
    z = np.tile(np.atleast_1d(game.inner.intercept_).astype(float), (len(Z), 1))
    for part, values in zip(_codes(game), _values(game)):
        z += values[tuple(part)]
    size = max(float(np.abs(z).max()), 1e-300)
    return bool(np.allclose(z, game.answers, rtol=0, atol=1e-9 * size))


def _codes(game: MixingGame) -> list[list[Array]]:
    """For each term and axis, the cell of every row."""
    from certus.additive.cells import place

    model, Z = game.inner, np.asarray(game.numbers)
    known = np.asarray(model.is_categorical_)
    return [
        [place(Z[:, j], axis, bool(known[j])) for j, axis in zip(columns, axes)]
        for columns, axes in zip(model.terms_, model.bin_edges_)
    ]


def _values(game: MixingGame) -> list[Array]:
    """For each term its cells, with an axis for each column and one for outputs."""
    terms = zip(game.inner.terms_, game.inner.shapes_)
    return [
        np.asarray(shape, dtype=np.float64).reshape(
            *np.shape(shape)[: len(columns)], game.k
        )
        for columns, shape in terms
    ]


def additive_contributions(game: MixingGame) -> Array:
    """Contributions of shape (rows, columns, outputs)."""
    n = game.rows.n
    owner = np.asarray(game.owner)
    found = np.zeros((n, game.d, game.k))
    for columns, codes, h in zip(game.inner.terms_, _codes(game), _values(game)):
        own, behind = [c[:n] for c in codes], [c[n:] for c in codes]
        players = [int(owner[j]) for j in columns]
        mean = h[tuple(behind)].mean(axis=0)
        if len(set(players)) == 1:  # one column, or two encoded from one
            found[:, players[0]] += h[tuple(own)] - mean
            continue
        first = h[behind[0]].mean(axis=0)[own[1]]  # the row has the second column only
        second = h[:, behind[1]].mean(axis=1)[own[0]]
        both = h[tuple(own)]
        found[:, players[0]] += (both - first + second - mean) / 2
        found[:, players[1]] += (both - second + first - mean) / 2
    return found
