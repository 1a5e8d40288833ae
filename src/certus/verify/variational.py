"""The networks of a variational autoencoder as arrays, and bounds of its likelihood.

    log p(x) ≥ log (1/K) Σ p(x, zᵢ)/q(zᵢ | x) ≥ (in the mean) E_q log p(x | z) − KL

Where rows take evenly spaced values, the probability of a row is that of a draw which
is rounded to it: log p(x | z) of a column becomes the logarithm of the normal mass
between x − ½ and x + ½ steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, logsumexp

from certus.typing import Array
from certus.verify.balls import ErrorBall
from certus.verify.perceptrons import perceptron_keys, read_layers, run_layers
from certus.verify.stating import require

#: Least logarithm of σ², as networks have it.
LEAST = -14.0


class Statement(NamedTuple):
    """An autoencoder: what it was built with, and its weights."""

    config: Mapping[str, Any]
    weights: Mapping[str, Array]
    beta: float


class PlainVAE:
    """Both networks as arrays."""

    def __init__(self, stated: Statement) -> None:
        config, weights = stated.config, stated.weights
        self.d, self.k = int(config["n_inputs"]), int(config["n_components"])
        self.classes, self.hidden = int(config["n_classes"]), tuple(config["hidden"])
        self.normal = config["likelihood"] == "normal"
        n = len(self.hidden)
        self.encoder = read_layers(weights, perceptron_keys("encoder", n))
        self.decoder = read_layers(weights, perceptron_keys("decoder", n))
        require(self.encoder[-1][0].shape[0] == 2 * self.k, "its encoder does not fit")
        require(self.decoder[-1][0].shape[0] == self.d, "its decoder does not fit")
        self.noise = ErrorBall(1.0)
        if self.normal:
            logs = np.asarray(weights["log_noise"], dtype=np.float64)
            sound = logs.shape == (1,) and bool(np.isfinite(logs).all())
            require(sound, "it has not one variance of the noise")
            self.noise = ErrorBall(np.maximum(logs[0], LEAST)).exp()

    def _run(self, layers: Any, x: ErrorBall, codes: Array | None) -> ErrorBall:
        """A perceptron; classes are put behind the row."""
        if self.classes:
            told = np.eye(self.classes)[np.zeros(0, int) if codes is None else codes]
            require(len(told) == len(x.x), "the rows have no classes; pass y")
            r = np.hstack([x.r, np.zeros_like(told)])
            x = ErrorBall(np.hstack([x.x, told]), r)
        return run_layers(layers, x)

    def encode(self, x: ErrorBall, codes: Array | None) -> tuple[ErrorBall, ErrorBall]:
        """Means and logarithms of variances of codes."""
        both = self._run(self.encoder, x, codes)
        return both[:, : self.k], both[:, self.k :]

    def decode(self, z: ErrorBall, codes: Array | None) -> ErrorBall:
        """Rows from codes, before a sigmoid."""
        return self._run(self.decoder, z, codes)

    def log_likelihood(self, x: Array, m: Array, steps: Array | None = None) -> Array:
        """Log p(x | z), in float64; of rounded draws where steps are given."""
        if not self.normal:
            soft = np.maximum(m, 0) + np.log1p(np.exp(-np.abs(m)))
            return np.asarray((x * m - soft).sum(axis=-1))
        noise = float(self.noise.x)
        if steps is None:
            each = np.square(x - m) / noise + math.log(2 * math.pi * noise)
            return np.asarray(-0.5 * each.sum(axis=-1))
        root = math.sqrt(noise)
        return np.asarray(log_mass((x - m) / root, 0.5 * steps / root).sum(axis=-1))


def log_mass(middle: Array, half: Array) -> Array:
    """Log P(middle − half < ξ < middle + half) of a standard normal ξ."""
    far = np.abs(middle)  # both ends on the left, where tails keep their digits
    low, high = log_ndtr(-far - half), log_ndtr(-far + half)
    return np.asarray(high + np.log(-np.expm1(np.minimum(low - high, -1e-300))))


class Bounds(NamedTuple):
    """Bounds of each row, its divergences, and bounds of rounded draws or None."""

    elbo: Array
    weighted: Array
    divergence: Array
    rounded: Array | None


def drawn_bounds(
    plain: PlainVAE,
    Z: Array,
    codes: Array | None,
    n_draws: int,
    steps: Array | None = None,
) -> Bounds:
    """Bounds with draws of the verifier's own, the divergence in closed form."""
    rng = np.random.default_rng(0)
    mean, log_var = (part.x for part in plain.encode(ErrorBall(Z), codes))
    kl = 0.5 * (np.square(mean) + np.expm1(log_var) - log_var)
    total, rounded, weights = np.zeros(len(Z)), np.zeros(len(Z)), []
    for _ in range(n_draws):
        eta = rng.standard_normal(mean.shape)
        z = mean + np.exp(0.5 * log_var) * eta
        m = plain.decode(ErrorBall(z), codes).x
        seen = plain.log_likelihood(Z, m)
        total += seen
        ratio = -0.5 * (np.square(z) - np.square(eta) - log_var).sum(axis=1)
        weights.append(seen + ratio)
        if steps is not None:
            rounded += plain.log_likelihood(Z, m, steps)
    lost = kl.sum(axis=1)
    weighted = logsumexp(np.array(weights), axis=0) - math.log(n_draws)
    least = None if steps is None else rounded / n_draws - lost
    return Bounds(total / n_draws - lost, np.asarray(weighted), kl, least)
