"""The verifier's own denoisers: the network of a diffusion model, and two formulas.

    D(x, σ) = c_skip·x + c_out·F(c_in·x, σ)

The perceptron is computed with bounds on rounding errors; its flow from rows to noise
in float64, with a divergence from derivatives of the verifier's own. The memoriser is
the best denoiser on a table of rows, and the best linear one follows from a covariance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array
from certus.verify.balls import ErrorBall
from certus.verify.deciding import U
from certus.verify.perceptrons import read_layers
from certus.verify.stating import require

#: The range of σ of a flow.
LEAST, MOST = 0.002, 80.0


class Statement(NamedTuple):
    """A denoiser: what it was built with, and its weights."""

    config: Mapping[str, Any]
    weights: Mapping[str, Array]


class NoisyNetwork:
    """What denoisers share: the factors of a noising, and what a network reads."""

    d: int

    def __init__(self, stated: Statement) -> None:
        self.noising = stated.config["noising"]
        self.classes = int(stated.config["n_classes"])

    @property
    def cost(self) -> float:
        """Multiplications for a row, about."""
        raise NotImplementedError

    def factors(self, sigma: Any) -> tuple[ErrorBall, ErrorBall, ErrorBall]:
        """c_skip, c_out and c_in of a noising; columns for a level of each row."""
        s, one = ErrorBall(_column(sigma)), ErrorBall(1.0)
        v = one + s * s
        root = ErrorBall(np.sqrt(v.x), v.r / np.sqrt(v.x) + 4 * U * np.sqrt(v.x))
        if self.noising == "edm":
            return one / v, s / root, one / root
        if self.noising == "variance_preserving":
            return one, -s, one / root
        require(self.noising == "flow_matching", "its noising is not known")
        return one / (one + s), -s / (one + s), one / (one + s)

    def told(self, sigma: Any, codes: Array | None, n: int) -> ErrorBall:
        """Cosines and sines of (log σ)/4, and the class of each row."""
        f = 2 * math.pi * 2.0 ** (np.arange(8) / 2 - 2)
        angle = ErrorBall(_column(sigma)).log() * 0.25 * ErrorBall(f, 8 * U * f)
        # Both have slopes up to 1.
        waves = np.concatenate([np.cos(angle.x), np.sin(angle.x)], axis=-1)
        off = np.concatenate([angle.r, angle.r], axis=-1) + 8 * U
        one = np.zeros((n, self.classes))
        if codes is not None:
            one[np.arange(n), codes] = 1.0
        waves, off = (np.broadcast_to(a, (n, 16)) for a in (waves, off))
        r = np.hstack([off, np.zeros_like(one)])
        return ErrorBall(np.hstack([waves, one]), r)

    def denoise(self, x: Array, sigma: Any, codes: Array | None) -> ErrorBall:
        """D of rows at one noise level, or one of each, with bounds on rounding."""
        raise NotImplementedError

    def values(self, x: Array, sigma: Any, codes: Array | None) -> Array:
        """D of rows at one noise level, or one of each, in float64."""
        raise NotImplementedError


def _column(sigma: Any) -> Any:
    return sigma[:, None] if np.ndim(sigma) else sigma


class PlainDenoiser(NoisyNetwork):
    """The perceptron as arrays."""

    def __init__(self, stated: Statement) -> None:
        super().__init__(stated)
        config = stated.config
        self.d, hidden = int(config["n_inputs"]), tuple(config["hidden"])
        keys = [*(f"layers.{i}" for i in range(len(hidden))), "output"]
        self.layers = read_layers(stated.weights, keys)
        seen = 16 + self.classes
        widths = (self.d, *hidden)
        for (W, _), a, b in zip(self.layers, widths, (*hidden, self.d)):
            extra = seen if W is not self.layers[-1][0] else 0
            require(W.shape == (b, a + extra), "its layers do not fit")

    @property
    def cost(self) -> float:
        """Multiplications for a row."""
        return float(sum(W.size for W, _ in self.layers))

    def denoise(self, x: Array, sigma: Any, codes: Array | None) -> ErrorBall:
        """D of rows at one noise level, or one of each, with bounds on rounding."""
        skip, out, inner = self.factors(sigma)
        told, h = self.told(sigma, codes, len(x)), ErrorBall(x) * inner
        for i, (W, b) in enumerate(self.layers[:-1]):
            both = ErrorBall(np.hstack([h.x, told.x]), np.hstack([h.r, told.r]))
            a = both.times(W, b)
            new = a * ((a * 0.5).tanh() * 0.5 + 0.5)
            h = h + new if i and new.x.shape == h.x.shape else new
        return ErrorBall(x) * skip + h.times(*self.layers[-1]) * out

    def values(self, x: Array, sigma: Any, codes: Array | None) -> Array:
        """D of rows at one noise level, or one of each, in float64."""
        skip, out, inner = (f.x for f in self.factors(sigma))
        told, h = self.told(sigma, codes, len(x)).x, x * inner
        for i, (W, b) in enumerate(self.layers[:-1]):
            a = np.hstack([h, told]) @ W.T + b
            new = a * (0.5 + 0.5 * np.tanh(0.5 * a))
            h = h + new if i and new.shape == h.shape else new
        W, b = self.layers[-1]
        return np.asarray(skip * x + out * (h @ W.T + b))

    def trace(self, x: Array, sigma: float, codes: Array | None) -> tuple[Array, Array]:
        """D of rows in float64, and the trace of its derivatives."""
        skip, out, inner = (float(f.x) for f in self.factors(sigma))
        told, h = self.told(sigma, codes, len(x)).x, x * inner
        J = np.tile(np.eye(self.d) * inner, (len(x), 1, 1))  # (rows, units, d)
        for i, (W, b) in enumerate(self.layers[:-1]):
            a = np.hstack([h, told]) @ W.T + b
            s = 0.5 + 0.5 * np.tanh(0.5 * a)
            new, slope = a * s, s * (1 + a * (1 - s))
            moved = slope[:, :, None] * (W[:, : h.shape[1]] @ J)
            if i and new.shape == h.shape:
                new, moved = h + new, J + moved
            h, J = new, moved
        W, b = self.layers[-1]
        trace = skip * self.d + out * np.einsum("ij,nji->n", W, J)
        return skip * x + out * (h @ W.T + b), trace


def flow_log_density(
    plain: PlainDenoiser, Z: Array, codes: Array | None, steps: int
) -> Array:
    """Log p along z = x/√(1 + σ²), by steps of fourth order in log σ."""

    def slope(z: Array, t: float) -> tuple[Array, Array]:
        v = 1 + math.exp(2 * t)
        D, trace = plain.trace(z * math.sqrt(v), math.exp(t), codes)
        return z / v - D / math.sqrt(v), plain.d / v - trace

    begin, end = math.log(LEAST), math.log(MOST)
    h, z, total = (end - begin) / steps, Z / math.sqrt(1 + LEAST**2), np.zeros(len(Z))
    for k in range(steps):
        t = begin + k * h
        a = slope(z, t)
        b = slope(z + 0.5 * h * a[0], t + 0.5 * h)
        c = slope(z + 0.5 * h * b[0], t + 0.5 * h)
        e = slope(z + h * c[0], t + h)
        z = z + h / 6 * (a[0] + 2 * b[0] + 2 * c[0] + e[0])
        total += h / 6 * (a[1] + 2 * b[1] + 2 * c[1] + e[1])
    base = -0.5 * (np.square(z) + math.log(2 * math.pi)).sum(axis=1)
    return np.asarray(base + total - 0.5 * plain.d * math.log1p(LEAST**2))


def memoriser(known: Array, x: Array, sigma: float, reach: float = math.inf) -> Array:
    """The mean of rows that were x₀, given x: weights exp(−‖x − xᵢ‖²/2σ²).

    Where noise is cut at a length, no row beyond this ``reach`` can have been x₀.
    """
    close = x @ known.T - 0.5 * np.square(known).sum(axis=1)
    if reach < math.inf:
        apart = np.square(x).sum(axis=1, keepdims=True) - 2 * close
        inside = apart <= reach**2 * (1 + 1e-9)
        some = inside.any(axis=1, keepdims=True)
        close = np.where(inside | ~some, close, -math.inf)
    close = (close - close.max(axis=1, keepdims=True)) / sigma**2
    w = np.exp(close)
    return np.asarray((w / w.sum(axis=1, keepdims=True)) @ known)


def best_linear(known: Array, sigma: float) -> Any:
    """The denoiser m + S(S + σ²I)⁻¹(x − m), of mean and covariance of rows."""
    m = known.mean(axis=0)
    _, s, Vt = np.linalg.svd(known - m, full_matrices=False)
    shrink = s**2 / (s**2 + len(known) * sigma**2)
    return lambda x: m + ((x - m) @ Vt.T * shrink) @ Vt
