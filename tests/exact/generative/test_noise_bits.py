"""Bits of rows of whole numbers, against a law whose entropy and bound are known."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom, norm

from certus.certificate import Claim, Strength
from certus.verify import noise_bits
from certus.verify.denoisers import MOST
from certus.verify.perceptrons import RowsGiven

VALUES = np.arange(-15, 16)
#: A normal law with standard deviation 3, rounded to whole numbers.
SHARES = np.diff(norm.cdf(np.append(VALUES, 16) - 0.5, scale=3))


def best_rounded(
    x: np.ndarray, sigma: np.ndarray, loc: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """E[x₀ | x] of the rounded law, column by column: no denoiser is better."""
    levels = (VALUES[:, None] - loc) / scale
    s = np.broadcast_to(sigma, len(x))[:, None, None]
    logs = np.log(SHARES)[:, None] - 0.5 * np.square((x[:, None] - levels) / s)
    w = np.exp(logs - logs.max(axis=1, keepdims=True))
    return (w * levels).sum(axis=1) / w.sum(axis=1)


def expected_bits(scale: float, last: float) -> float:
    """The chain's bound of a column by quadrature, with the best denoiser."""
    levels = np.geomspace(MOST, last, noise_bits.CHAIN)
    places, weights = np.polynomial.hermite_e.hermegauss(16)
    weights = weights / weights.sum()
    z, one = VALUES / scale, np.array([scale])

    def off(sigma: float) -> np.ndarray:
        x = (z[:, None] + sigma * places).reshape(-1, 1)
        return z[:, None] - best_rounded(x, sigma, 0 * one, one).reshape(len(z), -1)

    x, widest = z[:, None] + MOST * places, math.sqrt(1 + MOST**2)
    nats = (norm.logpdf(x, z[:, None], MOST) - norm.logpdf(x, 0, widest)) @ weights
    for sigma, below in pairwise(levels):
        nats += 0.5 * (1 / below**2 - 1 / sigma**2) * (np.square(off(sigma)) @ weights)
    away, half, v = np.abs(off(last)), 0.5 / scale, last / math.sqrt(1 + last**2)
    mass = norm.sf(away - half, 0, v) - norm.sf(away + half, 0, v)
    return float(SHARES @ (nats - np.log(mass) @ weights) / math.log(2))


class BestDenoiser:
    """The best denoiser of columns with standard deviation 3."""

    cost = 1

    def values(self, x: np.ndarray, sigma: np.ndarray, codes: None) -> np.ndarray:
        return best_rounded(x, sigma, np.zeros(x.shape[1]), np.full(x.shape[1], 3.0))


class Lazy:
    """A denoiser that leaves the noise where it is."""

    cost = 1

    def values(self, x: np.ndarray, sigma: np.ndarray, codes: None) -> np.ndarray:
        return x


def bits_of(X: np.ndarray, scale: float, plain: object = None) -> Claim:
    """The claim on new rows, of columns with mean 0 and this standard deviation."""
    n, d = X.shape
    model = SimpleNamespace(
        loc_=np.zeros(d), scale_=np.full(d, scale), varies_=np.ones(d, dtype=bool)
    )
    every = np.arange(n)
    rows = RowsGiven(X, X / scale, None, every, every[:0], False, {})
    claim = noise_bits.noise_bits(plain or BestDenoiser(), model, rows, "quick")
    assert claim is not None and claim.strength is Strength.STATISTICAL
    return claim


def ends(claim: Claim) -> tuple[float, float]:
    low, high = (float(v) for v in re.findall(r"\d(?:\.\d+)?", claim.detail)[:2])
    assert low < claim.value <= high
    return low, high


def rounded_rows(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.round(3 * rng.normal(size=(n, 3)))


def test_bits_of_a_known_distribution(monkeypatch) -> None:
    """With the best denoiser the bound is near the entropy, and the interval holds."""
    entropy = -(SHARES * np.log2(SHARES)).sum()
    truth = expected_bits(3.0, 1 / 3)  # the chain ends at one step of the values
    assert entropy < truth < entropy + 0.03
    X = rounded_rows(1000, np.random.default_rng(0))
    low, high = ends(bits_of(X, 3.0))
    assert low < truth < high < truth + 0.25
    # Levels of twice their width, and a start that is forgotten, show.
    mass = noise_bits.log_mass
    with monkeypatch.context() as changed:
        changed.setattr(noise_bits, "log_mass", lambda m, half: mass(m, 2 * half))
        assert ends(bits_of(X, 3.0))[1] < truth
    with monkeypatch.context() as changed:
        changed.setattr(noise_bits, "MOST", 1.0)
        changed.setattr(noise_bits, "log_mass", lambda m, half: mass(m, half / 2))
        assert ends(bits_of(X, 3.0))[0] > truth


@pytest.mark.slow
def test_the_interval_of_bits_keeps_its_level(monkeypatch) -> None:
    """Of 200 samples, at most a share of 0.05 miss the mean, other draws each time."""
    truth, n, real = expected_bits(3.0, 1 / 3), 200, np.random.default_rng
    misses = 0
    for seed in range(n):
        rng = real(seed)
        fake = lambda _, seed=seed: real([9, seed])  # noqa: E731
        monkeypatch.setattr(np.random, "default_rng", fake)
        low, high = ends(bits_of(rounded_rows(300, rng), 3.0))
        misses += not low <= truth <= high
    assert misses <= binom.ppf(0.999, n, 0.05)


def test_worse_denoisers_need_more_bits() -> None:
    X = rounded_rows(1000, np.random.default_rng(1))
    lazy = bits_of(X, 3.0, Lazy())
    assert lazy.value > bits_of(X, 3.0).value
    assert ends(lazy)[0] > 7 and "of 1,000 rows count as 8 bits" in lazy.detail


def test_a_step_of_many_standard_deviations_keeps_the_bound_true() -> None:
    """A value of one row in a million: the chain must not begin below its end."""
    X = np.zeros((2000, 1))
    X[0] = 1.0
    assert ends(bits_of(X, 0.001, Lazy()))[0] > 4  # log₂ 80 or so
