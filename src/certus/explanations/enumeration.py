"""Contributions of any model by the definition, over all sets of columns.

    φ_j = Σ over sets S without j of |S|! (d − |S| − 1)! / d! · (v(S ∪ j) − v(S))

v(S) is asked of the model for each set: 2^d·m mixed rows for each row. Columns on
which a row agrees with every background row contribute 0 and are left out.
"""

from __future__ import annotations

from math import factorial

import numpy as np

from certus.explanations.games import TOGETHER, MixingGame
from certus.typing import Array

#: Columns that may differ, at most.
MOST_COLUMNS = 12


def moving_columns(game: MixingGame) -> Array:
    """Whether each row differs from some background row in each column."""
    n, m = game.rows.n, game.rows.m
    if game.table is None or game.mixable is None:
        cells = game.rows.cells(all_rows=True)
        found = [[any(a != b for b in col[n:]) for a in col[:n]] for col in cells]
        return np.array(found).T.reshape(n, game.d)
    Z, owner = game.mixable, game.owner
    apart = np.zeros((n, game.d), dtype=bool)
    low, high = Z[n : n + m].min(axis=0), Z[n : n + m].max(axis=0)
    differs = ~((Z[:n] == low) & (Z[:n] == high))
    for e, j in enumerate(np.asarray(owner)):
        apart[:, j] |= differs[:, e]
    return apart


def subset_weights(d: int) -> Array:
    """For each set of d players as a number: what v of it counts for player j.

    The matrix has shape (d, 2^d).
    """
    masks = np.arange(1 << d)
    inside = (masks[None, :] >> np.arange(d)[:, None]) & 1
    size = inside.sum(axis=0)
    up = np.array([factorial(s) * factorial(d - s - 1) for s in range(d)] + [0.0])
    with_j = np.concatenate([[0.0], up[:-1]])[size]  # the set S ∪ j has one more
    total = float(factorial(d))
    return np.where(inside == 1, with_j, -up[size]) / total


def enumerated_contributions(game: MixingGame, moving: Array) -> Array:
    """Contributions of shape (rows, columns, outputs), exact up to rounding."""
    n = game.rows.n
    found = np.zeros((n, game.d, game.k))
    for i in range(n):
        players = np.flatnonzero(moving[i])
        if len(players):
            values = set_values(game, i, players)
            found[i, players] = subset_weights(len(players)) @ values
    return found


def set_values(game: MixingGame, i: int, players: Array) -> Array:
    """v(S) for all sets of these players, of shape (2^p, outputs)."""
    n, m, p = game.rows.n, game.rows.m, len(players)
    behind = np.arange(n, n + m)
    step = max(1, TOGETHER // m)
    parts = []
    for start in range(0, 1 << p, step):
        masks = np.arange(start, min(start + step, 1 << p))
        places = np.repeat(behind[None, :, None], len(masks), axis=0)
        places = np.repeat(places, game.d, axis=2)
        inside = ((masks[:, None] >> np.arange(p)) & 1).astype(bool)
        chosen = np.where(inside[:, None, :], i, behind[None, :, None])
        places[:, :, players] = chosen
        z = game.of(places.reshape(-1, game.d))
        parts.append(z.reshape(len(masks), m, -1).mean(axis=1))
    return np.concatenate(parts)
