"""Steps for many small ridge problems at once, where solving each one would be slow.

A side of a factorisation provides its products: ``curved`` gives Hd of every row,
``matrix`` and ``sums`` the weights of its entries. The systems of the rows are similar,
so one decomposition of their mean leads close to all solutions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from certus.typing import Array

#: The smallest number that no library flushes to zero.
TINY = 2.0**-1022


def suggested(side: Any, g: Array, steps: int) -> Array:
    """About H⁻¹g of every row: nothing, a guess, or steps of conjugate gradients."""
    if steps == 1:
        return _guess(side, g)
    d, r, p, size = np.zeros_like(g), g.copy(), np.zeros_like(g), np.zeros(len(g))
    for _ in range(steps - 1):
        fresh = _guess(side, r)
        now = _dots(r, fresh)
        p, size = fresh + _ratio(now, size)[:, None] * p, now
        Hp = side.curved(p)
        move = _ratio(size, _dots(p, Hp))[:, None]
        d, r = d + move * p, r - move * Hp
    return d


def _dots(F: Array, G: Array) -> Array:
    return np.einsum("ij,ij->i", F, G)


def _ratio(a: Array, b: Array) -> Array:
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)


def _guess(side: Any, g: Array) -> Array:
    """The rows' H are alike, ρΛ + G plus a multiple of the mean s·y·yᵀ."""
    S = side.matrix(side.curve)
    weight = np.asarray(S.T @ np.ones(len(g)))
    mean = (side.Y * (weight / max(weight.sum(), TINY))[:, None]).T @ side.Y
    base = np.diag(side.ridge) + (0.0 if side.gram is None else side.gram)
    base = base + (1e-12 * (np.trace(mean) + np.trace(base)) + TINY) * np.eye(len(base))
    sizes, turn = linalg.eigh(mean, base)
    mass = side.sums(side.curve)
    below = side.scale[:, None] + mass[:, None] * np.maximum(sizes, 0.0)
    return np.asarray(np.nan_to_num(((g @ turn) / below) @ turn.T))
