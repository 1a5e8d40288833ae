"""Exponentials from sums and products alone, with the same bits on every processor.

e^x = 2^k e^r with a whole number k and |r| ≤ ln 2 / 2; e^r by its Taylor sum, and
powers of two by their bits, without a branch or a table, so that loops run in vectors.
A library's own exponential differs in the last bit from one processor to the next, and
that of an arithmetic coder must not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import register_jitable

_F = np.float32
_ZERO, _ONE = _F(0), _F(1)
#: log₂ e; and ln 2 as a short number, whose multiples are exact, plus the rest.
_INVERSE, _HIGH, _LOW = 1.4426950408889634, 0.693145751953125, 1.4286068203094172e-06
_INVERSE_32, _HIGH_32, _LOW_32 = _F(_INVERSE), _F(_HIGH), _F(_LOW)


@register_jitable
def exp64(x: float) -> float:
    """e^x for x ≤ 0, from sums and products alone; zero below −708."""
    seen = 0.0 if x <= -708.0 else 1.0
    x = -708.0 if x <= -708.0 else x  # NaN stays NaN
    k = math.floor(x * _INVERSE + 0.5)
    r = (x - k * _HIGH) - k * _LOW
    s = 1.0 / 6227020800.0
    s = s * r + 1.0 / 479001600.0
    s = s * r + 1.0 / 39916800.0
    s = s * r + 1.0 / 3628800.0
    s = s * r + 1.0 / 362880.0
    s = s * r + 1.0 / 40320.0
    s = s * r + 1.0 / 5040.0
    s = s * r + 1.0 / 720.0
    s = s * r + 1.0 / 120.0
    s = s * r + 1.0 / 24.0
    s = s * r + 1.0 / 6.0
    s = s * r + 0.5
    s = s * r + 1.0
    s = s * r + 1.0
    return seen * s * np.int64((np.int64(k) + 1023) << 52).view(np.float64)


@register_jitable
def exp32(x: Any) -> Any:
    """e^x for x ≤ 0 in float32; zero below −60, far under the rounding of a sum."""
    seen = _ONE if x > _F(-60.0) else _ZERO
    x = max(x, _F(-60.0))
    k = np.floor(x * _INVERSE_32 + _F(0.5))
    r = (x - k * _HIGH_32) - k * _LOW_32
    s = _F(1.0 / 5040.0)
    s = s * r + _F(1.0 / 720.0)
    s = s * r + _F(1.0 / 120.0)
    s = s * r + _F(1.0 / 24.0)
    s = s * r + _F(1.0 / 6.0)
    s = s * r + _F(0.5)
    s = s * r + _ONE
    s = s * r + _ONE
    return seen * s * np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(_F)


@register_jitable
def erf(x: float) -> float:
    """The error function, to 1.2e-7 (Numerical Recipes' rational Chebyshev fit)."""
    z = abs(x)
    t = 1.0 / (1.0 + 0.5 * z)
    s = 0.17087277
    s = s * t - 0.82215223
    s = s * t + 1.48851587
    s = s * t - 1.13520398
    s = s * t + 0.27886807
    s = s * t - 0.18628806
    s = s * t + 0.09678418
    s = s * t + 0.37409196
    s = s * t + 1.00002368
    rest = t * exp64(min(0.0, s * t - 1.26551223 - z * z))
    return 1.0 - rest if x >= 0 else rest - 1.0
