"""Compiled loops of the text classifier: document vectors and steps of SGD.

A document is the mean h of the rows of Z that belong to its words and n-grams. A step
on one document with label y, rate r and m features is that of gradient descent on
ℓ(W·h, y), taken with the old W:

    softmax       W_k += r(1{k = y} − p_k)·h for every class k
    hierarchical  W_j += r(1{right at j} − σ(W_j·h))·h for the nodes j above the leaf y
    both          Z_i += −r·Wᵀ(dℓ/ds)/m for each of its features i

In training, rows have a multiple of 16 columns, the surplus being zero forever.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import kernel
from certus.typing import Array

#: Rows that nearly every step writes: the vectors of the most frequent words, and W.
#: Each thread has copies of its own, so that two cores do not exchange them at each
#: step.
OWN = 256
#: Documents after which a thread adds what it learnt to the common rows.
EXCHANGE = 64


@register_jitable
def _mean(
    Z: Array, own: Array, features: Array, first: int, end: int, h: Array
) -> None:
    """The mean of the features' rows, 0 without any; the first rows are ``own``."""
    d = len(h)
    h[:] = 0.0
    for p in range(first, end):
        i = features[p]
        if i < len(own):
            for j in range(d):
                h[j] += own[i, j]
        else:
            for j in range(d):
                h[j] += Z[i, j]
    if end > first:
        h[:] *= h.dtype.type(1.0 / (end - first))


@register_jitable
def _spread(
    Z: Array, own: Array, features: Array, first: int, end: int, g: Array
) -> None:
    """Add g/m to the row of each of the m features."""
    d = len(g)
    if end > first:
        g[:] *= np.float32(1.0 / (end - first))
    for p in range(first, end):
        i = features[p]
        if i < len(own):
            for j in range(d):
                own[i, j] += g[j]
        else:
            for j in range(d):
                Z[i, j] += g[j]


@register_jitable
def _exchange(common: Array, own: Array, base: Array) -> None:
    """Add own − base to the common rows; then set both to the common rows."""
    for i in range(own.shape[0]):
        for j in range(own.shape[1]):
            new = common[i, j] + (own[i, j] - base[i, j])
            common[i, j] = new
            own[i, j] = new
            base[i, j] = new


@register_jitable
def _dot(a: Array, b: Array) -> Any:
    d = (len(b) // 16) * 16  # tells the compiler that there is no remainder
    total = np.float32(0.0)
    for j in range(d):
        total += a[j] * b[j]
    return total


@register_jitable
def _both(w: Array, h: Array, g: Array, step: np.float32) -> None:
    """Add step·w to g, then step·h to w."""
    d = (len(h) // 16) * 16
    for j in range(d):
        old = w[j]
        g[j] += step * old
        w[j] = old + step * h[j]


@kernel
def document_means(Z: Array, features: Array, offsets: Array, H: Array) -> None:
    """Mean row of each document of a block: features[offsets[i]:offsets[i + 1]]."""
    for i in range(len(H)):
        _mean(Z, Z[:0], features, offsets[i], offsets[i + 1], H[i])


@kernel
def train_softmax(
    Z: Array,
    W: Array,
    features: Array,
    offsets: Array,
    labels: Array,
    weights: Array,
    order: Array,
    rates: Array,
) -> float:
    """Steps on the documents in ``order``, its rates falling from the first to last.

    Returns the sum of weighted losses, each as it was before its step.
    """
    n, classes, d = len(order), W.shape[0], W.shape[1]
    h, g = np.zeros(d, dtype=np.float32), np.zeros(d, dtype=np.float32)
    p = np.zeros(classes, dtype=np.float32)
    common = Z[:OWN]
    own, base = common.copy(), common.copy()
    W_own, W_base = W.copy(), W.copy()
    total = 0.0
    for t in range(n):
        i = order[t]
        y, s = labels[i], weights[labels[i]]
        first, end = offsets[i], offsets[i + 1]
        _mean(Z, own, features, first, end, h)
        top = np.float32(-np.inf)
        for k in range(classes):
            p[k] = _dot(W_own[k], h)
            top = max(top, p[k])
        mass = np.float32(0.0)
        score = p[y] - top
        for k in range(classes):
            p[k] = np.exp(p[k] - top)
            mass += p[k]
        total += s * (np.log(mass) - score)
        step = np.float32(s * (rates[0] + (rates[1] - rates[0]) * t / n))
        g[:] = 0.0
        for k in range(classes):
            slope = -p[k] / mass
            if k == y:
                slope += np.float32(1.0)
            _both(W_own[k], h, g, step * slope)
        _spread(Z, own, features, first, end, g)
        if (t + 1) % EXCHANGE == 0 or t + 1 == n:
            _exchange(common, own, base)
            _exchange(W, W_own, W_base)
    return total


@kernel
def train_hierarchical(
    Z: Array,
    W: Array,
    features: Array,
    offsets: Array,
    labels: Array,
    weights: Array,
    order: Array,
    rates: Array,
    nodes: Array,
    sides: Array,
    ends: Array,
) -> float:
    """As ``train_softmax``; leaf k hangs below ``nodes[ends[k]:ends[k + 1]]``."""
    n, d = len(order), W.shape[1]
    common, top = Z[:OWN], W[-OWN:]  # nodes near the root have the high numbers
    own, base = common.copy(), common.copy()
    W_own, W_base = top.copy(), top.copy()
    below = len(W) - len(top)
    h, g = np.zeros(d, dtype=np.float32), np.zeros(d, dtype=np.float32)
    total = 0.0
    for t in range(n):
        i = order[t]
        y, s = labels[i], weights[labels[i]]
        first, end = offsets[i], offsets[i + 1]
        _mean(Z, own, features, first, end, h)
        step = np.float32(s * (rates[0] + (rates[1] - rates[0]) * t / n))
        g[:] = 0.0
        loss = np.float32(0.0)
        for q in range(ends[y], ends[y + 1]):
            node = nodes[q]
            w = W_own[node - below] if node >= below else W[node]
            z = _dot(w, h)
            right = sides[q] > 0
            away = np.exp(-abs(z))  # σ(|z|) = 1/(1 + away)
            loss += np.log1p(away) + max(np.float32(0.0), -z if right else z)
            sigma = np.float32(1.0) / (np.float32(1.0) + away)
            if z < 0:
                sigma = away * sigma
            slope = (np.float32(1.0) if right else np.float32(0.0)) - sigma
            _both(w, h, g, step * slope)
        total += s * loss
        _spread(Z, own, features, first, end, g)
        if (t + 1) % EXCHANGE == 0 or t + 1 == n:
            _exchange(common, own, base)
            _exchange(top, W_own, W_base)
    return total
