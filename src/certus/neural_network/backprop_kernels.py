"""Backpropagation of a multi-layer perceptron, compiled.

    forward    h⁰ = x,  hˡ⁺¹ = φ(hˡWˡ + bˡ)
    backward   δᴸ = ∂ℓ/∂z,  δˡ = (δˡ⁺¹(Wˡ⁺¹)ᵀ) ⊙ φ'(zˡ)
               ∂L/∂Wˡ = (hˡ)ᵀδˡ,  ∂L/∂bˡ = Σδˡ

All weights are one vector, first the matrices and then the biases; the activations of a
batch are another, one block of rows after the other. Nothing is allocated in a step.
Derivatives are taken from activations, so that z need not be kept. Numbers of a step
are read from arrays of the weights' type: a float64 among them would make all of it
float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import kernel
from certus.typing import Array

#: Activations and losses by their number in the kernels.
ACTIVATIONS = (
    "identity",
    "logistic",
    "tanh",
    "relu",
    "leaky_relu",
    "elu",
    "softplus",
)
LOSSES = ("squared_error", "softmax", "logistic", "poisson")
SOLVERS = ("sgd", "nesterov", "adam", "gradient")
NESTEROV, ADAM, GRADIENT = 1, 2, 3
#: Slope of the leaky rectifier below zero.
LEAK = 0.01
#: Constants that keep float32; Python's own would make it float64.
ONE, TWO = np.float32(1), np.float32(2)
#: Below it tanh is its series to the ninth power.
NEAR = np.float32(0.03)


@register_jitable
def _tanh(z: float) -> Any:
    """Hyperbolic tangent by one exponential: the library's takes four times as long."""
    if abs(z) < NEAR:  # where the difference below would lose digits
        q = z * z
        return z * (1 - q * (1 / 3 - q * (2 / 15 - q * (17 / 315 - q * 62 / 2835))))
    return TWO / (ONE + math.exp(-z - z)) - ONE


@register_jitable
def _activate(Z: Array, b: Array, which: int, zero: np.floating) -> None:
    """Z ← φ(Z + b)."""
    rows, columns = Z.shape
    for i in range(rows):
        z = Z[i]
        if which == 3:
            for j in range(columns):
                t = z[j] + b[j]
                z[j] = t if t > zero else zero
            continue
        for j in range(columns):
            z[j] += b[j]
        if which == 1:
            for j in range(columns):
                z[j] = ONE / (ONE + math.exp(-z[j]))
        elif which == 2:
            for j in range(columns):
                z[j] = _tanh(z[j])
        elif which == 4:
            for j in range(columns):
                z[j] = z[j] if z[j] > 0 else LEAK * z[j]
        elif which == 5:
            for j in range(columns):
                z[j] = z[j] if z[j] > 0 else math.expm1(z[j])
        elif which == 6:
            for j in range(columns):
                z[j] = max(z[j], zero) + math.log1p(math.exp(-abs(z[j])))


@register_jitable
def _through(D: Array, H: Array, which: int, zero: np.floating) -> None:
    """D ← D ⊙ φ'(z), where φ(z) = H."""
    rows, columns = D.shape
    for i in range(rows):
        d, h = D[i], H[i]
        if which == 1:
            for j in range(columns):
                d[j] *= h[j] * (ONE - h[j])
        elif which == 2:
            for j in range(columns):
                d[j] *= ONE - h[j] * h[j]
        elif which == 3:
            for j in range(columns):
                d[j] = d[j] if h[j] > zero else zero
        elif which == 4:
            for j in range(columns):
                d[j] *= 1 if h[j] > 0 else LEAK
        elif which == 5:
            for j in range(columns):
                d[j] *= 1 if h[j] > 0 else 1 + h[j]
        elif which == 6:
            for j in range(columns):
                d[j] *= -math.expm1(-h[j])


@register_jitable
def _row_loss(z: Array, y: Array, d: Array, which: int) -> float:
    """The loss of a row from its outputs z; d ← its slope in z."""
    k = len(z)
    loss = 0.0
    if which == 0:
        for j in range(k):
            d[j] = (z[j] - y[j]) / k
            loss += 0.5 * (z[j] - y[j]) * d[j]
    elif which == 1:
        top = z[0]
        for j in range(1, k):
            top = max(top, z[j])
        total = 0.0
        for j in range(k):
            d[j] = math.exp(z[j] - top)
            total += d[j]
        for j in range(k):
            if y[j] != 0:
                loss += y[j] * (math.log(total) + top - z[j])
            d[j] = d[j] / total - y[j]
    elif which == 2:
        for j in range(k):
            e = math.exp(-abs(z[j]))
            p = (1 if z[j] > 0 else e) / (1 + e)
            loss += max(z[j], 0) - y[j] * z[j] + math.log1p(e)
            d[j] = p - y[j]
    else:
        for j in range(k):
            mean = math.exp(z[j])
            loss += mean - y[j] * z[j] - y[j]
            if y[j] > 0:
                loss += y[j] * math.log(y[j])
            d[j] = mean - y[j]
    return loss


@register_jitable
def _output(
    Z: Array, b: Array, Y: Array, s: Array, total: float, D: Array, which: int
) -> float:
    """Weighted mean of the rows' losses; Z gets its biases, D the slopes of the mean.

    ``s`` is empty where all rows weigh the same.
    """
    rows, columns = Z.shape
    loss = 0.0
    for i in range(rows):
        z, d = Z[i], D[i]
        for j in range(columns):
            z[j] += b[j]
        weight = s[i] / total if len(s) else 1 / total
        loss += weight * _row_loss(z, Y[i], d, which)
        for j in range(columns):
            d[j] *= weight
    return loss


@register_jitable
def _biases_at(sizes: Array) -> int:
    """Where the biases begin in the vector of all weights."""
    at = 0
    for k in range(len(sizes) - 1):
        at += sizes[k] * sizes[k + 1]
    return at


@register_jitable
def _forward(
    theta: Array,
    A: Array,
    sizes: Array,
    room: int,
    b: int,
    which: int,
    zero: np.floating,
) -> int:
    """All layers but the last one's bias; returns where its block of A begins."""
    weight, bias, place = 0, _biases_at(sizes), 0
    for k in range(len(sizes) - 1):
        m, n = sizes[k], sizes[k + 1]
        W = theta[weight : weight + m * n].reshape(m, n)
        H = A[place : place + b * m].reshape(b, m)
        place += room * m
        Z = A[place : place + b * n].reshape(b, n)
        np.dot(H, W, Z)
        if k < len(sizes) - 2:
            _activate(Z, theta[bias : bias + n], which, zero)
        weight += m * n
        bias += n
    return place


@kernel
def scores(
    theta: Array,
    sizes: Array,
    X: Array,
    Z: Array,
    A: Array,
    room: int,
    which: int,
    zero: np.floating,
) -> bool:
    """Z ← the last layer's scores, ``room`` rows at a time.

    A is a buffer for two layers, used in turn. Returns whether the first unit's
    products with all rows are finite.
    """
    half, last, fine = len(A) // 2, len(sizes) - 2, True
    for at in range(0, len(X), room):
        b = min(room, len(X) - at)
        H = X[at : at + b]
        weight, bias = 0, _biases_at(sizes)
        for k in range(last + 1):
            m, n = sizes[k], sizes[k + 1]
            if k == last:
                out = Z[at : at + b]
            else:
                out = A[k % 2 * half : k % 2 * half + b * n].reshape(b, n)
            np.dot(H, theta[weight : weight + m * n].reshape(m, n), out)
            if k == 0:
                first = zero
                for i in range(b):
                    first += out[i, 0]
                fine = fine and math.isfinite(first)
            _activate(out, theta[bias : bias + n], which if k < last else 0, zero)
            weight += m * n
            bias += n
            H = out
    return fine


@register_jitable
def _gradient(
    theta: Array,
    G: Array,
    A: Array,
    D: Array,
    Y: Array,
    s: Array,
    total: float,
    sizes: Array,
    b: int,
    activation: int,
    loss: int,
    zero: np.floating,
) -> float:
    """G ← ∇ of the weighted mean loss of the b rows at the beginning of A.

    D is a buffer for the slopes of two layers, used in turn.
    """
    room, width = len(Y), len(D) // 2
    place = _forward(theta, A, sizes, room, b, activation, zero)
    weight, bias = _biases_at(sizes), len(theta)
    value, side, last = 0.0, 0, len(sizes) - 1
    for k in range(last, 0, -1):
        m, n = sizes[k - 1], sizes[k]
        weight -= m * n
        bias -= n
        W = theta[weight : weight + m * n].reshape(m, n)
        here = D[side * width : side * width + b * n].reshape(b, n)
        if k == last:
            Z = A[place : place + b * n].reshape(b, n)
            value = _output(Z, theta[bias : bias + n], Y, s, total, here, loss)
        place -= room * m
        H = A[place : place + b * m].reshape(b, m)
        np.dot(H.T, here, G[weight : weight + m * n].reshape(m, n))
        g = G[bias : bias + n]
        for j in range(n):
            g[j] = zero
        for i in range(b):
            for j in range(n):
                g[j] += here[i, j]
        if k > 1:
            side = 1 - side
            below = D[side * width : side * width + b * m].reshape(b, m)
            np.dot(here, W.T, below)
            _through(below, H, activation, zero)
    return value


@register_jitable
def _move(
    theta: Array, G: Array, M: Array, V: Array, solver: int, c: Array, decay: float
) -> float:
    """One step on some of the weights; returns Σθ² before it."""
    keep, new, keep_square, new_square, small, rate = c[0], c[1], c[2], c[3], c[4], c[5]
    square = c[6]
    if solver == ADAM:
        for i in range(len(theta)):
            w = theta[i]
            square += w * w
            g = G[i] + decay * w
            m = keep * M[i] + new * g
            v = keep_square * V[i] + new_square * g * g
            M[i] = m
            V[i] = v
            theta[i] = w - rate * m / (math.sqrt(v) + small)
    else:
        # Nesterov's step goes on by the momentum that follows; the plain one does not.
        ahead, pull = (keep, rate) if solver == NESTEROV else (c[7], c[6])
        for i in range(len(theta)):
            w = theta[i]
            square += w * w
            g = G[i] + decay * w
            m = keep * M[i] - rate * g
            M[i] = m
            theta[i] = w + (ahead * m - pull * g)
    return square


@kernel
def train(
    theta: Array,
    G: Array,
    M: Array,
    V: Array,
    A: Array,
    D: Array,
    Yb: Array,
    sb: Array,
    X: Array,
    Y: Array,
    s: Array,
    order: Array,
    first: int,
    end: int,
    sizes: Array,
    activation: int,
    loss: int,
    solver: int,
    c: Array,
    settings: Array,
    steps: int,
) -> Any:
    """Steps on the rows ``order[first:end]``, ``len(Yb)`` rows at a time.

    Returns Σ (loss of a batch, with its penalty)·(its rows), and where it ended: before
    ``end`` if a loss is not finite. ``settings`` are the learning rate, Adam's two
    decays and alpha; ``steps`` were made before. ``c`` holds what a step needs in the
    type of the weights: the decays β and 1 − β of both moments, ε, the rate, 0, 1 and
    alpha over the weight of the batch.

    The solver ``GRADIENT`` moves nothing: it adds the gradients of all batches to M,
    each times the weight of its batch, and likewise their losses, without penalty.
    """
    rate, beta, beta_square, alpha = settings[0], settings[1], settings[2], settings[3]
    seen, bias = 0.0, _biases_at(sizes)
    d, k, batch = X.shape[1], Y.shape[1], len(Yb)
    while first < end:
        b = min(batch, end - first)
        total = 0.0
        for i in range(b):
            row = order[first + i]
            for j in range(d):
                A[i * d + j] = X[row, j]
            for j in range(k):
                Yb[i, j] = Y[row, j]
            if len(s):
                sb[i] = s[row]
                total += s[row]
        if not len(s):
            total = float(b)
        steps += 1
        if total > 0:  # rows of no weight say nothing
            sw = sb[: b if len(s) else 0]
            value = _gradient(
                *(theta, G, A, D, Yb, sw, total, sizes, b, activation, loss, c[6])
            )
            if not math.isfinite(value):
                break
            if solver == GRADIENT:
                seen += total * value
                for i in range(len(G)):
                    M[i] += total * G[i]
            else:
                c[5], c[8] = rate, alpha / total
                if solver == ADAM:
                    unbias = math.sqrt(1 - beta_square**steps) / (1 - beta**steps)
                    c[5] = rate * unbias
                square = 0.0
                for part in range(2):  # the weights, then the biases
                    at, to = (0, bias) if part == 0 else (bias, len(theta))
                    decay = c[8] if part == 0 else c[6]
                    moved = _move(
                        *(theta[at:to], G[at:to], M[at:to], V[at:to], solver, c, decay)
                    )
                    square += moved if part == 0 else 0.0
                seen += b * (value + 0.5 * alpha * square / total)
        first += b
    return seen, first
