"""Numbers with a radius: every result holds the true one, rounding included.

A ball is a computed array x and a bound r of its error. An operation in float64 adds
u|result|, u = 2⁻⁵³; exp, log and tanh are trusted to 8u. Radii are rounded upwards by a
share that exceeds their own rounding errors. A dual number is a ball and the ball of
its derivative: derivatives follow from the rules of calculus, and no formula for them
is shared with the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.typing import Array
from certus.verify.deciding import TINY, U, gamma

#: Radii grow by this share, which covers the rounding of a few sums of them.
UP = 1 + 64 * U
#: Error of a function of NumPy, as a share of its value.
LIBRARY = 8 * U


class ErrorBall:
    """An array of float64 and a bound of the error of each entry."""

    __array_ufunc__ = None  # so that array + ball is left to the ball

    def __init__(self, x: Any, r: Any = 0.0) -> None:
        self.x = np.asarray(x, dtype=np.float64)
        self.r = np.broadcast_to(np.asarray(r, dtype=np.float64), self.x.shape)

    def _rounded(self, x: Array, r: Any) -> ErrorBall:
        return ErrorBall(x, UP * (r + U * np.abs(x)) + TINY)

    def __add__(self, other: Any) -> ErrorBall:
        b = ball(other)
        return self._rounded(self.x + b.x, self.r + b.r)

    def __sub__(self, other: Any) -> ErrorBall:
        b = ball(other)
        return self._rounded(self.x - b.x, self.r + b.r)

    def __rsub__(self, other: Any) -> ErrorBall:
        return ball(other) - self

    def __mul__(self, other: Any) -> ErrorBall:
        b = ball(other)
        r = np.abs(self.x) * b.r + np.abs(b.x) * self.r + self.r * b.r
        return self._rounded(self.x * b.x, r)

    def __truediv__(self, other: Any) -> ErrorBall:
        b = ball(other)
        q, room = self.x / b.x, np.abs(b.x) - b.r
        r = (self.r + np.abs(q) * b.r) / np.where(room > 0, room, np.nan)
        return self._rounded(q, np.where(room > 0, r, np.inf))

    def __rtruediv__(self, other: Any) -> ErrorBall:
        return ball(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __getitem__(self, key: Any) -> ErrorBall:
        return ErrorBall(self.x[key], self.r[key])

    def __neg__(self) -> ErrorBall:
        return ErrorBall(-self.x, self.r)

    def sum(self, axis: int = -1) -> ErrorBall:
        """The sum over an axis."""
        size = np.abs(self.x).sum(axis) * gamma(self.x.shape[axis] + 2)
        r = self.r.sum(axis) * (1 + gamma(self.x.shape[axis] + 2))
        return ErrorBall(self.x.sum(axis), UP * (r + size))

    def cumsum(self) -> ErrorBall:
        """Sums from the beginning, along the last axis."""
        n = self.x.shape[-1]
        size = np.cumsum(np.abs(self.x), -1) * gamma(n + 2)
        return ErrorBall(
            np.cumsum(self.x, -1), UP * (np.cumsum(self.r, -1) * UP + size)
        )

    def times(self, W: Array, b: Any = 0.0) -> ErrorBall:
        """The product x Wᵀ + b with exact W and b."""
        size, n = np.abs(self.x) @ np.abs(W).T + np.abs(b), W.shape[1]
        r = self.r @ np.abs(W).T * (1 + gamma(n + 2)) + gamma(n + 3) * size
        return ErrorBall(self.x @ W.T + b, UP * r + TINY)

    def exp(self) -> ErrorBall:
        """The exponential."""
        y = np.exp(self.x)
        return ErrorBall(y, UP * y * (np.expm1(self.r) + LIBRARY) + TINY)

    def log(self) -> ErrorBall:
        """The logarithm of a positive number."""
        y, share = np.log(self.x), self.r / self.x
        r = -np.log1p(-np.where(share < 1, share, np.nan))
        r = np.where(share < 1, r, np.inf)
        return ErrorBall(y, UP * (r * (1 + LIBRARY) + LIBRARY * np.abs(y)) + TINY)

    def tanh(self) -> ErrorBall:
        """The hyperbolic tangent, whose slope is at most 1."""
        y = np.tanh(self.x)
        return ErrorBall(y, UP * (self.r + LIBRARY * np.abs(y)))

    def clip(self, low: float, high: float) -> ErrorBall:
        """Into an interval; exact, and no two numbers get farther apart."""
        return ErrorBall(np.clip(self.x, low, high), self.r)

    def join(self, other: ErrorBall, where: Array) -> ErrorBall:
        """A ball that holds both where asked, else this one."""
        low = np.minimum(self.x - self.r, other.x - other.r)
        high = np.maximum(self.x + self.r, other.x + other.r)
        middle = 0.5 * (low + high)
        r = UP * (np.maximum(high - middle, middle - low) + U * np.abs(middle))
        return ErrorBall(np.where(where, middle, self.x), np.where(where, r, self.r))


def ball(value: Any) -> ErrorBall:
    """A number that is exact, if it is no ball already."""
    return value if isinstance(value, ErrorBall) else ErrorBall(value)


class Dual:
    """A ball and the ball of its derivative."""

    __array_ufunc__ = None

    def __init__(self, v: Any, d: Any) -> None:
        self.v, self.d = ball(v), ball(d)

    def __add__(self, other: Any) -> Dual:
        b = dual(other)
        return Dual(self.v + b.v, self.d + b.d)

    def __sub__(self, other: Any) -> Dual:
        b = dual(other)
        return Dual(self.v - b.v, self.d - b.d)

    def __rsub__(self, other: Any) -> Dual:
        return dual(other) - self

    def __mul__(self, other: Any) -> Dual:
        b = dual(other)
        return Dual(self.v * b.v, self.d * b.v + self.v * b.d)

    def __truediv__(self, other: Any) -> Dual:
        b = dual(other)
        q = self.v / b.v
        return Dual(q, (self.d - q * b.d) / b.v)

    __radd__, __rmul__ = __add__, __mul__

    def tanh(self) -> Dual:
        """The hyperbolic tangent."""
        h = self.v.tanh()
        return Dual(h, (1.0 - h * h) * self.d)

    def sum(self) -> Dual:
        """The sum over the last axis."""
        return Dual(self.v.sum(), self.d.sum())

    def wide(self) -> Dual:
        """With one more axis at the end."""
        return Dual(self.v[..., None], self.d[..., None])

    def join(self, other: Dual, where: Array) -> Dual:
        """A number that holds both where asked, else this one."""
        return Dual(self.v.join(other.v, where), self.d.join(other.d, where))


def dual(value: Any) -> Dual:
    """A constant, if it is no dual number already."""
    return value if isinstance(value, Dual) else Dual(value, 0.0 * ball(value).x)
