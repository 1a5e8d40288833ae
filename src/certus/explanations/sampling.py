"""Contributions of any model by sampled orders of the columns, with their intervals.

A draw takes an order of the columns at random and its reverse. Starting from a
background row, the columns of the row are filled in one after the other; what a column
adds is its share. Averaged over all background rows, each draw adds up exactly to
f(x) − mean f(b). Draws are independent, so their spread gives an interval.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from certus.explanations.games import MixingGame
from certus.typing import Array

#: Draws, at least and at most, and mixed rows that may be asked for.
FEWEST, MOST = 8, 256


class SampledShares(NamedTuple):
    """The mean over draws, the standard error of each, and the orders drawn."""

    values: Array
    errors: Array
    orders: Array


def number_of_draws(game: MixingGame, moving: Array, budget: int) -> int:
    """How many draws the budget of mixed rows allows."""
    each = 2 * game.rows.m * max(1, int(moving.sum()))
    return int(np.clip(budget // each, FEWEST, MOST))


def sampled_contributions(
    game: MixingGame, draws: int, rng: np.random.Generator
) -> SampledShares:
    """Average over orders of the columns; each order serves all rows."""
    n, d, k = game.rows.n, game.d, game.k
    orders = np.argsort(rng.random((draws, d)), axis=1)
    total, squares = np.zeros((n, d, k)), np.zeros((n, d, k))
    first = np.zeros(0)
    for order in orders:
        found = np.stack([_along(game, i, order) for i in range(n)])
        found += np.stack([_along(game, i, order[::-1]) for i in range(n)])
        found /= 2
        # Around the first draw, so that equal draws have no spread.
        first = first if first.size else found
        total += found - first
        squares += (found - first) ** 2
    mean = total / draws
    spread = np.maximum(squares / draws - mean**2, 0.0) * draws / (draws - 1)
    return SampledShares(first + mean, np.sqrt(spread / draws), orders)


def _along(game: MixingGame, i: int, order: Array) -> Array:
    """What each column adds to row i in this order, averaged over the background."""
    n, m, d = game.rows.n, game.rows.m, game.d
    behind = np.arange(n, n + m)
    places = np.repeat(behind[None, :, None], d + 1, axis=0)
    places = np.repeat(places, d, axis=2)
    for step, column in enumerate(order):
        places[step + 1 :, :, column] = i
    z = game.of(places.reshape(-1, d)).reshape(d + 1, m, -1).mean(axis=1)
    found = np.empty((d, game.k))
    found[order] = np.diff(z, axis=0)
    return found
