"""Sums over the cells of an additive model: Gram blocks, scores and pull-backs.

Row i lies in cell ``codes[t, i]`` of term t, numbered over all terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._core.cache import kernel


@kernel
def add_gram(codes: Any, weights: Any, out: Any) -> None:
    """Add the weighted Gram matrix of the one-hot design to the upper part of out."""
    terms, n = codes.shape
    for a in range(terms):
        for i in range(n):
            out[codes[a, i], codes[a, i]] += weights[i]
        for b in range(a + 1, terms):
            for i in range(n):
                out[codes[a, i], codes[b, i]] += weights[i]


@kernel
def add_scores(codes: Any, w: Any, out: Any) -> None:
    """Add the value of each row's cells to out."""
    terms, n = codes.shape
    for a in range(terms):
        for i in range(n):
            out[i] += w[codes[a, i]]


@kernel
def add_sums(codes: Any, u: Any, out: Any) -> None:
    """Add up u over the rows of each cell."""
    terms, n = codes.shape
    for a in range(terms):
        for i in range(n):
            out[codes[a, i]] += u[i]


@kernel
def pair_gains(codes: Any, sizes: Any, u: Any, h: Any, ridge: float, out: Any) -> None:
    """How much each pair of coarse columns could lower the loss, by its own cells.

    u are slopes of the loss, h its curvatures; rows and columns of a table are made
    free first, so that only what the two do together counts.
    """
    d, n = codes.shape
    top = sizes.max()
    for a in range(d):
        for b in range(a + 1, d):
            ka, kb = sizes[a], sizes[b]
            S = np.zeros((top, top))
            H = np.zeros((top, top))
            for i in range(n):
                S[codes[a, i], codes[b, i]] += u[i]
                H[codes[a, i], codes[b, i]] += h[i]
            gain = 0.0
            for p in range(ka):
                for q in range(kb):
                    gain += S[p, q] * S[p, q] / (H[p, q] + ridge)
            for p in range(ka):
                s, t = 0.0, 0.0
                for q in range(kb):
                    s += S[p, q]
                    t += H[p, q]
                gain -= s * s / (t + ridge)
            for q in range(kb):
                s, t = 0.0, 0.0
                for p in range(ka):
                    s += S[p, q]
                    t += H[p, q]
                gain -= s * s / (t + ridge)
            out[a, b] = gain
