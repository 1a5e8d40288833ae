"""The verifier's own U-Net: convolutions as matrix products over patches.

Images are (rows, height, width, channels). Every function takes arrays, or balls that
hold the true numbers; worst cases multiply from layer to layer, so that balls are
narrow enough for small networks only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from certus.typing import Array
from certus.verify.balls import ErrorBall
from certus.verify.deciding import U
from certus.verify.denoisers import NoisyNetwork, Statement
from certus.verify.stating import require

#: torch's constant in a norm over groups, and most groups.
NORM_FLOOR, GROUPS = 1e-5, 8


class PlainUNet(NoisyNetwork):
    """The U-Net as arrays."""

    def __init__(self, stated: Statement) -> None:
        super().__init__(stated)
        config = stated.config
        self.shape = tuple(int(n) for n in config["image_shape"])
        self.first_axis = bool(config["channels_first"])
        self.d, self.depth = math.prod(self.shape), len(config["hidden"])
        self.weights = stated.weights

    @property
    def cost(self) -> float:
        """Multiplications for a row, about; patches cost as much as products."""
        pixels, total = self.shape[1] * self.shape[2], 0.0
        for key, W in self.weights.items():
            if np.ndim(W) == 4:
                level = self.depth - 1
                if key.startswith(("down", "up")):
                    at = int(key.split(".")[1])
                    level = at if key.startswith("down") else self.depth - 1 - at
                level = 0 if key.startswith(("first", "last")) else level
                total += 3.0 * np.size(W) * pixels / 4**level
        return total

    def _array(self, key: str, ndim: int) -> Array:
        found = np.asarray(self.weights.get(key), dtype=np.float64)
        require(found.ndim == ndim, f"{key} has another shape")
        require(bool(np.isfinite(found).all()), f"{key} is NaN")
        return found

    def _conv(self, key: str, x: Any) -> Any:
        W, b = self._array(f"{key}.weight", 4), self._array(f"{key}.bias", 1)
        side = W.shape[2]
        channels = _values(x).shape[-1]
        require(W.shape[1:] == (channels, side, side), f"{key} does not fit")
        flat = W.transpose(0, 2, 3, 1).reshape(len(W), -1)
        return _times(_each(x, lambda a: _patches(a, side)), flat, b)

    def _norm(self, key: str, x: Any) -> Any:
        """Each group of channels of an image gets mean 0 and variance 1."""
        gain, shift = self._array(f"{key}.weight", 1), self._array(f"{key}.bias", 1)
        n, height, width, channels = _values(x).shape
        require(gain.shape == shift.shape == (channels,), f"{key} does not fit")
        groups = math.gcd(GROUPS, channels)
        size = height * width * channels // groups

        def apart(a: Array) -> Array:
            a = a.reshape(n, height * width, groups, -1)
            return a.transpose(0, 2, 1, 3).reshape(n, groups, size)

        def together(a: Array) -> Array:
            a = a.reshape(n, groups, height * width, -1).transpose(0, 2, 1, 3)
            return a.reshape(n, height, width, channels)

        g = _each(x, apart)
        g = g - _each(_sum(g) / float(size), lambda a: a[..., None])
        variance = _sum(g * g) / float(size) + NORM_FLOOR
        g = g / _each(_root(variance), lambda a: a[..., None])
        return _each(g, together) * gain + shift

    def _block(self, key: str, x: Any, told: Any) -> Any:
        """Two convolutions that add to their input, told of noise level and class."""
        both = _times(
            told,
            self._array(f"{key}.tell.weight", 2),
            self._array(f"{key}.tell.bias", 1),
        )
        both = _each(both, lambda a: a[:, None, None])
        new = self._conv(f"{key}.enter", _silu(self._norm(f"{key}.before", x)))
        new, half = self._norm(f"{key}.between", new), _values(both).shape[-1] // 2
        require(_values(new).shape[-1] == half, f"{key}.tell does not fit")
        new = new * (both[..., :half] + 1.0) + both[..., half:]
        new = self._conv(f"{key}.leave", _silu(new))
        if f"{key}.skip.weight" in self.weights:
            x = self._conv(f"{key}.skip", x)
        require(_values(x).shape == _values(new).shape, f"{key} does not add up")
        return x + new

    def _network(self, z: Any, told: Any) -> Any:
        """F of scaled rows."""
        channels, height, width = self.shape
        step = 2 ** (self.depth - 1)

        def image(a: Array) -> Array:
            if self.first_axis:
                a = a.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
            a = a.reshape(-1, height, width, channels)
            pads = ((0, 0), (0, -height % step), (0, -width % step), (0, 0))
            return np.pad(a, pads)

        x = _each(z, image)
        n, tall, wide, _ = _values(x).shape
        axes = (np.linspace(-1.0, 1.0, m) for m in (tall, wide))
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        places = np.broadcast_to(grid, (n, *grid.shape))
        # torch's linspace and NumPy's may differ in the last digit.
        if isinstance(x, ErrorBall):
            h: Any = _joined(x, ErrorBall(places, 4 * U))
        else:
            h = _joined(x, places)
        h, kept = self._conv("first", h), []
        for i in range(self.depth):
            h = self._block(f"down.{i}", _pooled(h) if i else h, told)
            kept.append(h)
        h = self._block("middle", h, told)
        for i in range(self.depth):
            if i:
                h = _each(h, lambda a: a.repeat(2, axis=1).repeat(2, axis=2))
            h = self._block(f"up.{i}", _joined(h, kept.pop()), told)
        h = self._conv("last", _silu(h))

        def flat(a: Array) -> Array:
            a = a[:, :height, :width]
            a = a.transpose(0, 3, 1, 2) if self.first_axis else a
            return a.reshape(len(a), -1)

        return _each(h, flat)

    def denoise(self, x: Array, sigma: Any, codes: Array | None) -> ErrorBall:
        """D of rows at one noise level, or one of each, with bounds on rounding."""
        skip, out, inner = self.factors(sigma)
        found = self._network(ErrorBall(x) * inner, self.told(sigma, codes, len(x)))
        return ErrorBall(x) * skip + found * out

    def values(self, x: Array, sigma: Any, codes: Array | None) -> Array:
        """D of rows at one noise level, or one of each, in float64."""
        skip, out, inner = (f.x for f in self.factors(sigma))
        told, z = self.told(sigma, codes, len(x)).x, x * inner
        parts = [
            self._network(z[i : i + 16], told[i : i + 16]) for i in range(0, len(x), 16)
        ]
        return np.asarray(skip * x + out * np.vstack(parts))


# -- what arrays and balls have in common -------------------------------------------


def _values(x: Any) -> Array:
    return x.x if isinstance(x, ErrorBall) else np.asarray(x)


def _each(x: Any, move: Callable[[Array], Array]) -> Any:
    """Entries moved, repeated or put aside, which rounds nothing."""
    return ErrorBall(move(x.x), move(x.r)) if isinstance(x, ErrorBall) else move(x)


def _times(x: Any, W: Array, b: Array) -> Any:
    return x.times(W, b) if isinstance(x, ErrorBall) else x @ W.T + b


def _sum(x: Any) -> Any:
    return x.sum(axis=-1)


def _root(x: Any) -> Any:
    if not isinstance(x, ErrorBall):
        return np.sqrt(x)
    root = np.sqrt(x.x)  # |√a − √b| ≤ |a − b|/√a
    return ErrorBall(root, x.r / root * (1 + 8 * U) + 4 * U * root)


def _silu(x: Any) -> Any:
    half = x * 0.5
    return x * (
        (half.tanh() if isinstance(half, ErrorBall) else np.tanh(half)) * 0.5 + 0.5
    )


def _joined(a: Any, b: Any) -> Any:
    """Channels side by side."""
    if isinstance(a, ErrorBall):
        return ErrorBall(
            np.concatenate([a.x, b.x], axis=-1), np.concatenate([a.r, b.r], axis=-1)
        )
    return np.concatenate([a, b], axis=-1)


def _pooled(x: Any) -> Any:
    """Means over squares of four pixels."""
    upper = _each(x, lambda a: a[:, ::2, ::2]) + _each(x, lambda a: a[:, ::2, 1::2])
    lower = _each(x, lambda a: a[:, 1::2, ::2])
    return (upper + lower + _each(x, lambda a: a[:, 1::2, 1::2])) * 0.25


def _patches(a: Array, side: int) -> Array:
    """Squares around each pixel, (rows, height, width, side·side·channels)."""
    if side == 1:
        return a
    half = side // 2
    height, width = a.shape[1:3]
    a = np.pad(a, ((0, 0), (half, half), (half, half), (0, 0)))
    parts = [
        a[:, i : i + height, j : j + width] for i in range(side) for j in range(side)
    ]
    return np.concatenate(parts, axis=-1)
