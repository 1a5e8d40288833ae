"""How far rounding moves the rows of a transformer: a bound for each position.

Each row comes with a bound of ‖computed row − row of exact arithmetic‖. A step moves
it by its own rounding, and by what it makes of the error that goes in:

    W x + b              ‖W‖₂ e + γ (‖W‖_F ‖x‖ + ‖b‖)
    c/σ,  c = x − mean   e/(σ − e/√d), as its Jacobian's norm is at most 1/σ
    Σₛ pₛ vₛ             e^{2m} (‖a‖_p ‖v − z‖_p + Σₛ pₛ eₛ),   ‖f‖²_p = Σₛ pₛ fₛ²

The last line: scores off by aₛ, abs(aₛ) ≤ m, change pₛ by a factor rₛ, and z by
Σ pₛ (rₛ − 1)(vₛ − z)/Σ pₛ rₛ exactly. What all scores of a row have in common cancels,
so keys count by their distance from their mean. ‖W‖₂ is bounded from above by
‖AᵀA‖ = ‖A‖², used six times.

γ holds for sums in any order. The bounds are sums of products of numbers ≥ 0, so ``UP``
covers their own rounding. Functions of libraries are taken to be right to 4 units.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erf

from certus.typing import Array
from certus.verify.kernel.spaces import TINY, UNIT, gamma

#: Covers the rounding of a bound; and of a difference of squares, as a share of both.
UP, NEAR = 1 + 1e-6, 1e-9
#: Rows shorter than this count as long as this: their squares may vanish.
SHORT = 1e-150
#: Times that a matrix is squared; n columns then cost a factor n^{1/128}.
SQUARED = 6
#: What functions of a library may be off by, as a share: 4 units in the last place.
LIBRARY = 8 * UNIT


class Bounded(NamedTuple):
    """Rows as computed (..., T, d), and how far each may be from the exact one."""

    x: Array
    off: Array


class Extent(NamedTuple):
    """Bounds of ‖W‖₂ and ‖W‖_F, of rows and columns, and of ‖b‖; maybe of several W."""

    most: Any
    all: Any
    rows: Array
    columns: Array
    bias: Any


def lengths(x: Array) -> Array:
    """At least ‖x‖ of each row."""
    return np.sqrt(np.square(x).sum(axis=-1)) * UP + SHORT


def size_of(W: Array, bias: Array | None = None) -> Extent:
    """The size of a matrix, or of several in the leading axes."""
    rows, columns = lengths(W), lengths(np.swapaxes(W, -1, -2))
    b = 0.0 if bias is None else lengths(bias)
    return Extent(spectral(W), lengths(rows), rows, columns, b)


def spectral(A: Array, times: int = SQUARED) -> Array:
    """At least ‖A‖₂: the root of ‖AᵀA‖₂, in the end of ‖·‖_F."""
    whole = lengths(A.reshape(*A.shape[:-2], -1))
    if times == 0:
        return whole
    unit = np.exp2(-np.ceil(np.log2(whole)))  # of ‖A‖_F, so that no square overflows
    A = A * unit[..., None, None]
    T = np.swapaxes(A, -1, -2)
    G = A @ T if A.shape[-2] < A.shape[-1] else T @ A
    lost = gamma(max(A.shape[-2:])) * UP
    return np.minimum(whole, np.sqrt(spectral(G, times - 1) + lost) * UP / unit)


def product(x: Bounded, size: Extent, terms: int) -> Array:
    """The bound of W x + b."""
    own = gamma(terms + 2) * (size.all * lengths(x.x) + size.bias) + terms * SHORT
    return UP * (size.most * x.off + own)


def scaled(x: Bounded, y: Array, sigma: Array, least: float) -> Array:
    """The bound of y = c/σ, c being x or x − mean, σ² = ‖c‖²/d + least²."""
    d = x.x.shape[-1]
    moved = x.off + gamma(d + 4) * lengths(x.x)
    low = np.maximum(least, sigma / UP - UP * moved / math.sqrt(d)) / UP
    return UP * (np.minimum(moved / low, 2 * math.sqrt(d)) + gamma(d + 8) * lengths(y))


def turned(x: Bounded, angles: Array) -> Array:
    """The bound of rows that were turned by angles up to these."""
    return UP * (x.off + (20 * angles + 20) * UNIT * lengths(x.x))


def added(a: Array, b: Array | float, total: Array) -> Array:
    """The bound of a sum of two."""
    return UP * (a + b + UNIT * lengths(total))


def mixed(q: Bounded, k: Bounded, v: Bounded, P: Array, z: Array) -> Array:
    """The bound of z = P v, with P = softmax(q·k/√d)."""
    d, M = k.x.shape[-1], k.x.shape[-2]
    Q, K, V = (lengths(part.x) for part in (q, k, v))
    columns = np.stack([K**2, V**2, k.off**2, v.off, V], axis=-1)
    K2, V2, b2, moved, heft = np.moveaxis(P @ columns, -1, 0)
    root, far = math.sqrt(d), K.max(axis=-1, keepdims=True)
    lost = gamma(d + 8) * Q * far / root + 2 * LIBRARY
    apart = q.off * _spread(K2, P @ k.x) + (Q + q.off) * np.sqrt(b2)
    worst = 2 * q.off * far + (Q + q.off) * k.off.max(axis=-1, keepdims=True)
    grown = np.exp(2 * np.minimum(UP * (worst / root + lost), 300.0))
    most = V.max(axis=-1, keepdims=True)
    first = (apart / root + lost) * _spread(V2, z) + 4 * M * TINY * most
    first = np.minimum(grown * first, 2 * most)
    second = np.minimum(grown * moved, v.off.max(axis=-1, keepdims=True))
    return UP * (first + second + gamma(2 * M + 8) * heft)


def _spread(squares: Array, mean: Array) -> Array:
    """√Σ p ‖vₛ − z‖², from Σ p ‖vₛ‖² and z."""
    left = squares - np.square(mean).sum(axis=-1)
    return UP * np.sqrt(np.maximum(left, 0.0) + NEAR * squares)


def fed(x: Bounded, slopes: Array, own: Array, inner: Extent, outer: Extent) -> Array:
    """The bound of W₂ φ(W₁ x + b₁), without the rounding of the product with W₂.

    ``slopes`` are at least abs(φ′) between the computed entries and the exact ones,
    ``own`` bounds the rounding of φ. Of three bounds of ‖W₂ diag(slopes) W₁‖ the least
    is taken.
    """
    top, squares = slopes.max(axis=-1), slopes**2
    columns = np.minimum(outer.most * top, np.sqrt(squares @ outer.columns**2))
    each = (inner.rows**2).reshape(-1, slopes.shape[-1]).sum(axis=0)
    rows = np.minimum(inner.most * top, np.sqrt(squares @ each))
    both = np.minimum(columns * inner.most, outer.most * rows)
    first = product(Bounded(x.x, 0.0 * x.off), inner, x.x.shape[-1])
    return UP * (both * x.off + columns * first + outer.most * own)


def slopes_of(kind: str, h: Array, r: Array) -> tuple[Array, Array]:
    """At least abs(φ′) within r of h, entry by entry; and the rounding of each row."""
    r = r[..., None]
    match kind:
        case "relu":
            return 1.0 * (h > -r), 0.0 * r[..., 0]
        case "relu2":
            up = np.maximum(h, 0.0)
            return np.where(h > -r, 2 * up + r, 0.0) * UP, UNIT * lengths(up**2)
        case "swiglu":
            a, b = np.split(h, 2, axis=-1)
            s = 0.5 + 0.5 * np.tanh(a / 2)
            own = LIBRARY * (1 + np.abs(a))
            first = (np.abs(s * (1 + a * (1 - s))) + 0.5 * r + own) * np.abs(b)
            second = np.abs(a) * s + 1.1 * r + own
            return np.hypot(first, second) * UP, 4 * LIBRARY * lengths(a * b)
    if kind == "gelu":
        slope = 0.5 + 0.5 * erf(h / math.sqrt(2))
        slope += h * np.exp(-0.5 * h**2) / math.sqrt(2 * math.pi)
    else:
        c = math.sqrt(2 / math.pi)
        t = np.tanh(c * (h + 0.044715 * h**3))
        slope = 0.5 + 0.5 * t + 0.5 * h * (1 - t**2) * c * (1 + 3 * 0.044715 * h**2)
    slope = np.minimum(np.abs(slope) + r + 1e-13, 1.13) * UP  # abs(φ″) ≤ 1
    return slope, 4 * LIBRARY * lengths(h)
