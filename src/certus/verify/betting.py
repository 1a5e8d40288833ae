"""A lower bound of a mean of bounded numbers, by betting against smaller values.

The numbers x₁ … xₙ are in [0, 1], each with the mean μ given those before. A player who
stakes λₜ ≥ 0 on xₜ, a share that depends on x₁ … xₜ₋₁ only, has the wealth
Π(1 + λₜ(xₜ − m)) after them. It is a supermartingale for m ≥ μ: the probability that it
ever exceeds 1/δ is at most δ (Ville).
Values of m at which it does are too small to be μ; with stakes that do not depend on
m the wealth falls as m grows, so they are an interval. Where the numbers hardly vary
this is far narrower than Hoeffding's inequality (Waudby-Smith and Ramdas 2024).
"""

from __future__ import annotations

import math

import numpy as np

from certus.typing import Array

#: Largest stake; below 1, so that no number can take all of the wealth.
MOST = 0.9


def betting_bound(x: Array, tail: float) -> float:
    """A number that the mean of x in [0, 1] exceeds with probability 1 − tail."""
    n = len(x)
    count = np.arange(1, n + 1)
    off = np.square(x - (0.5 + np.cumsum(x)) / (count + 1))
    # The variance of the numbers before each, which may be known to the gambler.
    variance = (0.25 + np.concatenate([[0.0], np.cumsum(off[:-1])])) / count
    stake = np.minimum(MOST, np.sqrt(2 * math.log(1 / tail) / (n * variance)))
    goal = math.log(1 / tail) * (1 + 1e-9) + 1e-9  # more than rounding

    def wealth(m: float) -> float:
        return float(np.cumsum(np.log1p(stake * (x - m))).max())

    low, high = 0.0, 1.0
    if wealth(low) <= goal:
        return 0.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if wealth(middle) > goal else (low, middle)
    return low
