"""Log p(x) of a decoder with at most two components, between two bounds.

    p(x) = ∫ p(x | z) N(z; 0, I) dz

The plane is cut into cells. In a cell with centre c and half widths h the decoder is
m(c) + Jδ up to an error ε that is bounded layer by layer: a unit that cannot change its
sign is linear, and another is off by at most how far it may pass zero. The exponent is
then gᵀδ − ½δᵀMδ up to |ρ|ᵀε, with 0 ≤ M ≤ wJᵀJ + I (w = 1/σ², or ¼ of a sigmoid):

    above   exp(φ(c) + |ρ|ᵀε) Π sinh(gᵢhᵢ)/(gᵢhᵢ)
    below   exp(φ(c) − |ρ|ᵀε) times the larger of exp(−mean of ½δᵀMδ) (Jensen) and
            exp(−max of ½δᵀMδ) Π sinh(gᵢhᵢ)/(gᵢhᵢ)

Cells that matter are cut again until their number is used up. Beyond the square
p(x | z) is at most its maximum, and the normal mass there is known.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, logsumexp

from certus.typing import Array
from certus.verify.deciding import U, gamma
from certus.verify.variational import PlainVAE

#: The square reaches from −REACH to REACH: the mass beyond is below e⁻⁷²⁰.
REACH = 38.0
#: Cells along an axis at the start, and numbers that are computed together.
FIRST, TOGETHER = 24, 4_000_000


class LogBracket(NamedTuple):
    """Log p(x) of each row lies between both."""

    low: Array
    high: Array


class _Cells(NamedTuple):
    """Centres, half widths, and logarithms of both bounds for each row."""

    centre: Array
    half: Array
    low: Array
    high: Array


def bracket(plain: PlainVAE, Z: Array, n_cells: int) -> LogBracket:
    """Both bounds of log p of rows.

    Parameters
    ----------
    plain : PlainVAE
        With one or two components and no classes.
    Z : float64 array of shape (n, d)
        Rows.
    n_cells : int
        Cells that are computed in all.
    """
    # Small cells near zero: edges are signed squares of an even grid.
    t = np.linspace(-1.0, 1.0, FIRST + 1)
    edges = REACH * np.sign(t) * np.abs(t) ** 2
    middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    grids = (np.meshgrid(*[a] * plain.k, indexing="ij") for a in (middle, half))
    centre, half = (np.stack(g, axis=-1).reshape(-1, plain.k) for g in grids)
    cells = _computed(plain, Z, centre, half)
    used, children = len(centre), 2**plain.k
    while used < n_cells:
        top = logsumexp(cells.high, axis=0)
        # What a cell adds to the distance of both bounds, where it matters most.
        share = (np.exp(cells.high - top) - np.exp(cells.low - top)).max(axis=1)
        some = min((n_cells - used) // children, max(64, len(share) // 4))
        cut = np.argsort(-share)[:some]
        cut = cut[share[cut] > 0]
        if not len(cut):
            break
        signs = np.stack(np.meshgrid(*[[-0.5, 0.5]] * plain.k), -1).reshape(-1, plain.k)
        half = np.repeat(0.5 * cells.half[cut], children, axis=0)
        centre = (
            cells.centre[cut][:, None] + signs * cells.half[cut][:, None]
        ).reshape(-1, plain.k)
        used += len(centre)
        new = _computed(plain, Z, centre, half)
        keep = np.ones(len(share), dtype=bool)
        keep[cut] = False
        cells = _Cells(
            *(np.concatenate([a[keep], b]) for a, b in zip(cells, new, strict=True))
        )
    low, high = logsumexp(cells.low, axis=0), logsumexp(cells.high, axis=0)
    beyond = math.log(2 * plain.k) + float(log_ndtr(-REACH)) + _peak(plain)
    slip = 64 * U * (1 + np.maximum(np.abs(low), np.abs(high))) + gamma(len(cells.low))
    return LogBracket(low - slip, np.logaddexp(high, beyond) + slip)


def _peak(plain: PlainVAE) -> float:
    """The largest log p(x | z) there can be."""
    if not plain.normal:
        return 0.0
    noise = float(plain.noise.x - plain.noise.r)
    return -0.5 * plain.d * math.log(2 * math.pi * noise)


def _computed(plain: PlainVAE, Z: Array, centre: Array, half: Array) -> _Cells:
    some = max(1, TOGETHER // (plain.d * (len(Z) + 8)))
    parts = [
        _bounds(plain, Z, centre[i : i + some], half[i : i + some])
        for i in range(0, len(centre), some)
    ]
    low, high = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
    return _Cells(centre, half, low, high)


def _linearised(plain: PlainVAE, z: Array, half: Array) -> tuple[Array, Array, Array]:
    """m(c), J of shape (cells, components, d), and a bound ε of what is left out."""
    k = plain.k
    h, J = z, np.broadcast_to(np.eye(k), (len(z), k, k))
    err = np.zeros_like(z)
    for i, (W, b) in enumerate(plain.decoder):
        a, slope = h @ W.T + b, J @ W.T
        size = np.abs(h) + np.einsum("nk,nkj->nj", half, np.abs(J)) + err
        lost = gamma(W.shape[1] + k + 4) * (size @ np.abs(W).T + np.abs(b))
        err = err @ np.abs(W).T * (1 + gamma(W.shape[1] + 4)) + lost
        if i == len(plain.decoder) - 1:
            return a, slope, err
        reach = np.einsum("nk,nkj->nj", half, np.abs(slope)) * (1 + 8 * U) + err
        on = a > 0
        over = np.maximum(reach - np.abs(a), 0.0)
        err = np.where(on | (over > 0), err, 0.0) + over
        h, J = np.where(on, a, 0.0), slope * on[:, None, :]
    raise AssertionError("a decoder has an output")


def _bounds(plain: PlainVAE, Z: Array, z: Array, half: Array) -> tuple[Array, Array]:
    """Logarithms of both bounds of the integral over each cell, (cells, rows)."""
    m, J, err = _linearised(plain, z, half)
    d, k = plain.d, plain.k
    if plain.normal:
        noise = float(plain.noise.x)
        w, shift = 1 / noise, -0.5 * d * math.log(2 * math.pi * noise)
        off = Z[None] - m[:, None]  # (cells, rows, d)
        value, slopes = -0.5 * w * np.square(off).sum(axis=2) + shift, w * off
        # σ² is rounded, and everything is measured by it.
        share = float(plain.noise.r) * w * 2 + gamma(d + 16)
        size = -value + 2 * abs(shift) + d
    else:
        w = 0.25
        soft = np.maximum(m, 0) + np.log1p(np.exp(-np.abs(m)))
        value = m @ Z.T - soft.sum(axis=1, keepdims=True)
        slopes = Z[None] - (0.5 + 0.5 * np.tanh(0.5 * m))[:, None]
        share = gamma(d + 16)
        size = np.abs(m) @ np.abs(Z).T + soft.sum(axis=1, keepdims=True)
    prior = -0.5 * np.square(z).sum(axis=1) - 0.5 * k * math.log(2 * math.pi)
    volume = np.log(2 * half).sum(axis=1)
    phi = value + (prior + volume)[:, None]
    slack = np.einsum("nrd,nd->nr", np.abs(slopes), err)
    slack += share * (size + np.abs(prior + volume)[:, None] + 1)
    g = np.einsum("nrd,nkd->nrk", slopes, J) - z[:, None]
    x = np.abs(g) * half[:, None]
    bent = (x + np.log(-np.expm1(-2 * x) / (2 * np.maximum(x, 1e-8)))).sum(axis=2)
    bent = np.where((x < 1e-8).any(axis=2), _small(x), bent)
    # Of gᵀδ: products, σ² or a sigmoid, which is off by 8u however small ρ is.
    across = np.einsum("nk,nkd->nd", half, np.abs(J))
    steep = np.abs(slopes) + (0.0 if plain.normal else 1.0)
    slack += 32 * U * (1 + x.sum(axis=2))
    slack += (share + gamma(d + k)) * np.einsum("nrd,nd->nr", steep, across)
    # Lengths of Jδ at the corners at most, and of the error.
    length = np.sqrt(np.square(J).sum(axis=2))  # (cells, components)
    far, loose = (length * half).sum(axis=1), np.sqrt(np.square(err).sum(axis=1))
    most = 0.5 * (w * (far + loose) ** 2 + np.square(half).sum(axis=1))
    mean = 0.5 * (
        w * ((np.square(length) * half**2).sum(axis=1) / 3 + loose * (2 * far + loose))
        + np.square(half).sum(axis=1) / 3
    )
    up = 1 + 1e-12
    below = np.maximum(-mean[:, None] * up, bent - most[:, None] * up)
    return phi - slack + below, phi + slack + bent


def _small(x: Array) -> Array:
    """Σ log sinh(x)/x where some x is tiny: at most Σ x²/6, and taken as that."""
    big = np.maximum(x, 1e-8)
    each = big + np.log(-np.expm1(-2 * big) / (2 * big))
    return np.asarray(np.where(x < 1e-8, 1e-16, each).sum(axis=2))
