"""A bound of the bits that a diffusion model needs for rows of evenly spaced values.

The chain x_T → … → x_1 of noise levels σ_T > … > σ_1, each step the distribution of the
next level given x and x₀ = D(x), and a last step that rounds N(D(x_1), v) to a level,
has
    −log P(x₀) ≤ KL(N(x₀, σ_T²) ‖ N(0, 1 + σ_T²))
                 + Σ ½(1/σ_{t−1}² − 1/σ_t²) E‖x₀ − D(x_t, σ_t)‖² − E log P(x₀ | x_1).
Rounding is part of the distribution, so no noise has to be added to rows, and no
entropy of it can be forgotten. Steps are drawn, one from each of several equal parts of
the chain.

The bound is true for any σ_1 and v. Noise narrower than a step of the values tells only
how well D rounds, which few networks learn, so σ_1 is one step; v = σ_1²/(1 + σ_1²) is
the variance of x₀ given x_1 in a normal column of variance one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from certus.certificate import Claim
from certus.typing import Array
from certus.verify.denoisers import LEAST, MOST, NoisyNetwork
from certus.verify.elbo import BITS, bits_claim
from certus.verify.perceptrons import RowsGiven, step_of_levels
from certus.verify.variational import log_mass

#: Levels of the chain, steps that are drawn for a row, and multiplications by level.
CHAIN, DRAWN, WORK = 1_000, 16, {"quick": 1.5e9, "full": 3e10}
#: Least and most rows.
LIMITS = (8, 2_000)


def noise_bits(
    plain: NoisyNetwork, model: Any, rows: RowsGiven, level: str
) -> Claim | None:
    """The claim, or None where rows take no evenly spaced values."""
    step = step_of_levels(rows.X)
    if step is None:
        return None
    n = int(np.clip(WORK[level] / (DRAWN * plain.cost), *LIMITS))
    chosen = rows.judged[:n]
    at = np.asarray(model.varies_, dtype=bool)
    steps = step / np.asarray(model.scale_, dtype=np.float64)[at]
    nats = _bound(plain, rows.Z[chosen], rows.codes_at(chosen), steps)
    columns = rows.X.shape[1]
    bits = np.nan_to_num(nats, nan=math.inf) / (columns * math.log(2))
    # A value that was never seen in a constant column has no probability.
    loc = np.asarray(model.loc_, dtype=np.float64)[~at]
    odd = (np.abs(rows.X[chosen][:, ~at] - loc) > 1e-9 * (1 + np.abs(loc))).any(axis=1)
    bits = np.clip(np.where(odd, BITS, bits), 0.0, BITS)
    given = ", given the class" if rows.codes is not None else ""
    bound = f"variational bound of a chain of {CHAIN:,} levels{given}"
    return bits_claim(bits, rows, step, columns, bound)


def _bound(plain: NoisyNetwork, Z: Array, codes: Array | None, steps: Array) -> Array:
    """The bound of each row in nats, without bias."""
    rng, n = np.random.default_rng(4), len(Z)
    last = float(np.clip(steps.min(), LEAST, 1.0))
    levels = np.geomspace(MOST, last, CHAIN)
    # The start of the chain: both distributions are normal, column by column.
    v, w = MOST**2, 1 + MOST**2
    nats = 0.5 * ((v + np.square(Z)) / w - 1 + math.log(w / v)).sum(axis=1)
    moves = CHAIN - 1
    for i in range(DRAWN):
        t = ((i + rng.random(n)) / DRAWN * moves).astype(int)
        sigma, below = levels[t], levels[t + 1]
        x = Z + sigma[:, None] * rng.standard_normal(Z.shape)
        off = np.square(Z - plain.values(x, sigma, codes)).sum(axis=1)
        nats += moves / DRAWN * 0.5 * (1 / below**2 - 1 / sigma**2) * off
    x = Z + last * rng.standard_normal(Z.shape)
    D = plain.values(x, np.full(n, last), codes)
    wide = last / math.sqrt(1 + last**2)
    return np.asarray(nats - log_mass((Z - D) / wide, 0.5 * steps / wide).sum(axis=1))
