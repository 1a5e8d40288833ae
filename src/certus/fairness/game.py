"""The game behind a mixture of classifiers: multipliers against answers.

Values and rates of the classifiers so far, the best mixture of them by a linear
programme, and the multipliers that classifiers are asked to answer.
"""

from __future__ import annotations

import numpy as np

from certus.fairness.programme import Mixture, Shares, best_mixture
from certus.typing import Array


class Game:
    """Values and rates of the classifiers so far, and multipliers that were tried."""

    def __init__(self, shares: Shares, members: Array, k: int, allowed: float) -> None:
        self.shares, self.members, self.k, self.allowed = shares, members, k, allowed
        self.values: list[float] = []
        self.rates: list[Array] = []  # (n_metrics, n_groups) of each
        # Those that were answered; the plain fit is the answer to none.
        self.tried: list[Array] = [np.zeros(shares.known.shape)]
        n = len(members)
        self.add(np.zeros(n, dtype=bool))
        self.add(np.ones(n, dtype=bool))

    def add(self, chosen: Array) -> None:
        """One more classifier, by whom it chooses."""
        self.values.append(self.shares.base + float(self.shares.gain @ chosen))
        counted = [
            np.bincount(self.members, part * chosen, minlength=self.k)
            for part in self.shares.rate
        ]
        self.rates.append(np.array(counted))

    def solve(self) -> Mixture:
        """The best mixture, and its multipliers."""
        rates = np.array(self.rates).reshape(len(self.rates), -1).T
        blocks = np.zeros(len(self.values), dtype=int)
        values = np.array(self.values)
        known = self.shares.known
        return best_mixture(values, rates, blocks, known, self.allowed)

    def worth(self, multipliers: Array) -> Array:
        """What choosing each row is worth."""
        cost = multipliers[:, self.members] * self.shares.rate
        return np.asarray(self.shares.gain - cost.sum(axis=0))

    def bound(self, multipliers: Array) -> float:
        """The Lagrangian's largest value over the classifiers so far."""
        cost = np.einsum("mg,jmg->j", multipliers, np.array(self.rates))
        slack = self.allowed * float(np.maximum(multipliers, 0).sum())
        return float((np.array(self.values) - cost).max()) + slack

    def best(self) -> Array:
        """The multipliers with the least bound."""
        return min(self.tried, key=self.bound)

    @property
    def free(self) -> bool:
        """Whether the plain fit meets the constraints, so that it is the answer."""
        rates, known = self.rates[2], self.shares.known
        highest = np.where(known, rates, -np.inf).max(axis=1)
        lowest = np.where(known, rates, np.inf).min(axis=1)
        return bool(np.all(highest - lowest <= self.allowed))

    def gap(self, mixture: Mixture) -> float:
        """How much more than the mixture the least bound allows."""
        return max(0.0, min(map(self.bound, self.tried)) - mixture.value)


def even(k: int) -> float:
    """The k-th of numbers that fill (0, 1) ever more evenly: ½, ¼, ¾, ⅛, ..."""
    part, found = 0.5, 0.0
    while k:
        found += part * (k % 2)
        k, part = k // 2, part / 2
    return found


class MultiplierWalk:
    """Multipliers by exponentiated gradients: they grow with the rates' deviations."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.most = 1 / max(game.allowed, 0.01)
        self.powers = np.zeros((2, *game.shares.known.shape))

    def step(self, rates: Array) -> Array:
        """The multipliers after a classifier with these rates."""
        known = self.game.shares.known
        count = np.maximum(known.sum(axis=1, keepdims=True), 1)
        away = np.where(known, rates - (rates * known).sum(1, keepdims=True) / count, 0)
        slack = 0.5 * self.game.allowed
        self.powers += 2 / self.most * np.array([away - slack, -away - slack])
        grown = np.where(known, np.exp(self.powers), 0.0)
        both = self.most * grown / (1 + grown.sum())
        found = both[0] - both[1]
        return np.where(known, found - found.sum(axis=1, keepdims=True) / count, 0.0)
