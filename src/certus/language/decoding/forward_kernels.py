"""A decoder's forward pass, compiled, with sums in a fixed order.

Each number is a sum in the order of its index, whatever stands beside it: alone or in a
block of rows, with a cache or without one, on any processor that follows IEEE 754, a
token gets scores with the same bits. Vectors run over outputs, which lie side by side,
so they need no other order.

Keys lie with their places side by side, (sequence, layer, head, d, place), values with
their numbers side by side, (sequence, layer, head, place, d).
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from certus._core.cache import exact_kernel
from certus.language.decoding.exponential_kernels import erf, exp32
from certus.typing import Array

GELU, GELU_TANH, RELU, RELU2, SWIGLU = range(5)
#: Rows that are computed side by side; columns of a panel of weights, which is read
#: from its first number to its last; and numbers in a vector.
ROWS, PANEL, LANES = 16, 32, 16
_F = np.float32
_ZERO, _ONE = _F(0), _F(1)


class PackedNetwork(NamedTuple):
    """A decoder's weights; each map as (inputs, outputs), layers side by side.

    What kernels read has gone through ``packing.in_panels``.
    """

    embedding: Array  # (n_tokens, width)
    head: Array  # (width, n_tokens)
    places: Array  # (context, width), or (0, width)
    cosines: Array  # (context, d / 2), or (0, d / 2)
    sines: Array
    qkv: Array  # (layers, width, 3 width)
    qkv_bias: Array  # (layers, 3 width)
    output: Array  # (layers, width, width)
    output_bias: Array  # (layers, width)
    inner: Array  # (layers, width, hidden) or, with gates, (layers, width, 2 hidden)
    inner_bias: Array
    outer: Array  # (layers, hidden, width)
    outer_bias: Array
    norms: (
        Array  # (layers, 2, width): before attention and before the feed-forward part
    )
    norm_biases: Array
    last_norm: Array  # (2, width): weight and bias
    heads: int
    context: int
    activation: int
    pre: bool
    qk_norm: bool


def _adder(columns: int, rows: int) -> Any:
    """A compiled y[r, j] += Σ_{i<n} x[r, i] w[i, j] for these rows and columns.

    ``add(x, x_step, n, w, w_step, y, y_step)`` takes arrays that begin at their first
    number, and the distances between rows. Sums stay in registers, in the order of i;
    products and sums are rounded one by one. LLVM takes vectors apart that are longer
    than the processor's.
    """
    wide = min(columns, LANES)

    @intrinsic
    def add(
        typingctx: Any, x: Any, x_step: Any, n: Any, w: Any, w_step: Any, y: Any,
        y_step: Any,
    ) -> Any:  # fmt: skip
        whole = ir.IntType(8 * np.dtype(np.intp).itemsize)
        vector = ir.VectorType(ir.FloatType(), wide)
        none = ir.Constant(vector, ir.Undefined)
        first = ir.Constant(ir.VectorType(ir.IntType(32), wide), [0] * wide)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def numbers(at: int) -> Any:
                view = context.make_array(signature.args[at])
                return view(context, builder, args[at]).data

            def place(begin: Array, row: Array, step: Array, column: Array) -> Any:
                return builder.gep(begin, [builder.add(builder.mul(row, step), column)])

            def vector_at(begin: Array, row: Array, step: Array, part: int) -> Any:
                found = place(begin, row, step, whole(part * wide))
                return builder.bitcast(found, vector.as_pointer())

            X, W, Y = numbers(0), numbers(3), numbers(5)
            parts, sums = range(columns // wide), {}
            for r, k in itertools.product(range(rows), parts):
                at = vector_at(Y, whole(r), args[6], k)
                sums[r, k] = at, cgutils.alloca_once(builder, vector)
                builder.store(builder.load(at, align=4), sums[r, k][1])
            with cgutils.for_range(builder, args[2]) as loop:
                at = [vector_at(W, loop.index, args[4], k) for k in parts]
                weights = [builder.load(one, align=4) for one in at]
                for r in range(rows):
                    one = builder.load(place(X, whole(r), args[1], loop.index))
                    same = builder.insert_element(none, one, ir.IntType(32)(0))
                    same = builder.shuffle_vector(same, none, first)
                    for k in parts:
                        product = builder.fmul(same, weights[k])
                        total = builder.fadd(builder.load(sums[r, k][1]), product)
                        builder.store(total, sums[r, k][1])
            for at, total in sums.values():
                builder.store(builder.load(total), at, align=4)
            return context.get_dummy_value()

        step = types.intp
        return types.void(x, step, step, w, step, y, step), codegen

    return add


_add_panel, _add_eight = _adder(PANEL, 1), _adder(8, 1)
_add_four_rows = _adder(LANES, 4)


@register_jitable
def _times_row(x: Array, n: int, w: Array, step: int, y: Array) -> None:
    """y[j] += Σ_{i<n} x[i] w[i step + j] in the order of i."""
    m, j = len(y), 0
    while j + PANEL <= m:
        _add_panel(x, 0, n, w[j:], step, y[j:], 0)
        j += PANEL
    while j + 8 <= m:
        _add_eight(x, 0, n, w[j:], step, y[j:], 0)
        j += 8
    while j < m:
        total = y[j]
        for i in range(n):
            total += x[i] * w[i * step + j]
        y[j] = total
        j += 1


@register_jitable
def times(X: Array, rows: int, W: Array, Y: Array) -> None:
    """Y += X W for the first rows; W lies in panels, see ``packing.in_panels``."""
    n, m = W.shape
    w = W.reshape(n * m)
    for first in range(0, m, PANEL):
        wide = min(m - first, PANEL)
        panel, r = w[first * n : (first + wide) * n], 0
        while wide == PANEL and r + 4 <= rows:
            for j in range(0, PANEL, LANES):
                y = Y[r, first + j :]
                _add_four_rows(X[r], X.shape[1], n, panel[j:], PANEL, y, Y.shape[1])
            r += 4
        while r < rows:
            _times_row(X[r], n, panel, wide, Y[r, first : first + wide])
            r += 1


@register_jitable
def _sum(x: Array, n: int) -> float:
    """Σ_{i<n} x[i] in float64, in four sums side by side."""
    a, b, c, d, i = 0.0, 0.0, 0.0, 0.0, 0
    while i + 4 <= n:
        a += x[i]
        b += x[i + 1]
        c += x[i + 2]
        d += x[i + 3]
        i += 4
    while i < n:
        a += x[i]
        i += 1
    return (a + b) + (c + d)


@register_jitable
def _sum_of_squares(x: Array, begin: int, n: int, mean: float) -> float:
    """Σ (x[i] − mean)² over n of them from ``begin`` on, in four sums side by side."""
    a, b, c, d, i = 0.0, 0.0, 0.0, 0.0, begin
    while i + 4 <= begin + n:
        a += (x[i] - mean) * (x[i] - mean)
        b += (x[i + 1] - mean) * (x[i + 1] - mean)
        c += (x[i + 2] - mean) * (x[i + 2] - mean)
        d += (x[i + 3] - mean) * (x[i + 3] - mean)
        i += 4
    while i < begin + n:
        a += (x[i] - mean) * (x[i] - mean)
        i += 1
    return (a + b) + (c + d)


@register_jitable
def _largest(x: Array, n: int) -> Any:
    a, b, i = x[0], x[0], 1
    while i + 2 <= n:
        a, b = max(a, x[i]), max(b, x[i + 1])
        i += 2
    while i < n:
        a = max(a, x[i])
        i += 1
    return max(a, b)


@register_jitable
def _layer_norm(x: Array, weight: Array, bias: Array, y: Array) -> None:
    """(x − mean)/√(variance + 1e-5) ⊙ weight + bias, the moments in float64."""
    n = len(x)
    mean = _sum(x, n) / n
    spread = _sum_of_squares(x, 0, n, mean)
    scale = _F(1.0 / math.sqrt(spread / n + 1e-5))
    middle = _F(mean)
    for i in range(n):
        y[i] = (x[i] - middle) * scale * weight[i] + bias[i]


@register_jitable
def _mean_square_one(x: Array, begin: int, d: int) -> None:
    """Bring x[begin : begin + d] to mean square one."""
    total = _sum_of_squares(x, begin, d, 0.0)
    scale = _F(1.0 / math.sqrt(total / d + 1.1920928955078125e-07))
    for i in range(begin, begin + d):
        x[i] *= scale


@register_jitable
def _turn(x: Array, begin: int, cosines: Array, sines: Array) -> None:
    """Turn the pairs (i, i + d/2) of x[begin : begin + d]: rotary positions."""
    half = len(cosines)
    for i in range(begin, begin + half):
        c, s = cosines[i - begin], sines[i - begin]
        a, b = x[i], x[i + half]
        x[i] = a * c - b * s
        x[i + half] = a * s + b * c


@register_jitable
def _keep(
    net: PackedNetwork, layer: int, row: Array, place: int, K: Array, V: Array
) -> None:
    """Norm and turn queries and keys of a row; put keys and values into the cache."""
    width = net.output.shape[2]
    d = width // net.heads
    for h in range(2 * net.heads):
        if net.qk_norm:
            _mean_square_one(row, h * d, d)
        if net.cosines.shape[0]:
            _turn(row, h * d, net.cosines[place], net.sines[place])
    for h in range(net.heads):
        k, v = K[layer, h], V[layer, h]
        for i in range(d):
            k[i, place] = row[width + h * d + i]
            v[place, i] = row[2 * width + h * d + i]


@register_jitable
def _attend(
    net: PackedNetwork,
    layer: int,
    row: Array,
    place: int,
    K: Array,
    V: Array,
    p: Array,
    z: Array,
) -> None:
    """Put into z what the row's queries take from the places up to its own."""
    width = net.output.shape[2]
    d = width // net.heads
    scale, context = _F(1.0 / math.sqrt(d)), net.context
    reach = min(context, (place // PANEL + 1) * PANEL)  # whole panels are faster
    for h in range(net.heads):
        p[:reach] = _ZERO
        k, v = K[layer, h].reshape(d * context), V[layer, h].reshape(d * context)
        _times_row(row[h * d :], d, k, context, p[:reach])
        for t in range(place + 1):
            p[t] *= scale
        top = _largest(p, place + 1)
        for t in range(place + 1):
            p[t] = exp32(p[t] - top)
        total = _sum(p, place + 1)
        part = z[h * d : (h + 1) * d]
        part[:] = _ZERO
        _times_row(p, place + 1, v, d, part)
        share = _F(1.0 / total)
        for i in range(d):
            part[i] *= share


@register_jitable
def _bend(activation: int, h: Array, hidden: int) -> None:
    """The activation, in place; with gates the first half of h times the second."""
    if activation == RELU2:
        for i in range(hidden):
            a = max(h[i], _ZERO)
            h[i] = a * a
    elif activation == RELU:
        for i in range(hidden):
            h[i] = max(h[i], _ZERO)
    elif activation == GELU:
        for i in range(hidden):
            a = float(h[i])
            h[i] = _F(0.5 * a * (1.0 + erf(a * 0.7071067811865476)))
    elif activation == GELU_TANH:
        for i in range(hidden):
            a = h[i]
            t = _F(1.5957691216057308) * (a + _F(0.044715) * a * a * a)
            h[i] = a * _sigmoid(t)
    else:
        for i in range(hidden):
            h[i] = h[i] * _sigmoid(h[i]) * h[hidden + i]


@register_jitable
def _sigmoid(t: Any) -> Any:
    """1/(1 + e^{−t}) in float32; ½(1 + tanh(t/2)) is the same."""
    e = exp32(-abs(t))
    return (_ONE if t >= _ZERO else e) / (_ONE + e)


@register_jitable
def _add_normed(
    net: PackedNetwork, layer: int, part: int, rows: int, X: Array, Y: Array
) -> None:
    """After a part: X += Y, and with norms behind the parts its norm."""
    width = net.output.shape[2]
    for r in range(rows):
        for i in range(width):
            X[r, i] += Y[r, i]
        if not net.pre:
            weight, bias = net.norms[layer, part], net.norm_biases[layer, part]
            _layer_norm(X[r], weight, bias, X[r])


@register_jitable
def _before(
    net: PackedNetwork, layer: int, part: int, rows: int, X: Array, N: Array
) -> None:
    """Before a part: N = X, or its norm."""
    for r in range(rows):
        if net.pre:
            weight, bias = net.norms[layer, part], net.norm_biases[layer, part]
            _layer_norm(X[r], weight, bias, N[r])
        else:
            N[r, :] = X[r]


@exact_kernel
def forward_rows(
    net: PackedNetwork,
    K: Array,
    V: Array,
    tokens: Array,
    sequences: Array,
    places: Array,
    X: Array,
) -> None:
    """States of tokens behind what the cache holds; their keys and values go into it.

    Row r is ``tokens[r]`` at place ``places[r]`` of sequence ``sequences[r]``. Rows of
    one sequence stand in the order of their places, without a gap to the cache.
    """
    rows, width = len(tokens), net.embedding.shape[1]
    hidden = net.outer.shape[1]
    N, Y = np.empty((rows, width), _F), np.empty((rows, width), _F)
    Q, H = np.empty((rows, 3 * width), _F), np.empty((rows, net.inner.shape[2]), _F)
    p = np.empty(net.context, _F)
    for r in range(rows):
        X[r, :] = net.embedding[tokens[r]]
        if net.places.shape[0]:
            X[r, :] += net.places[places[r]]
    for layer in range(net.qkv.shape[0]):
        _before(net, layer, 0, rows, X, N)
        for r in range(rows):
            Q[r, :] = net.qkv_bias[layer]
            Y[r, :] = net.output_bias[layer]
        times(N, rows, net.qkv[layer], Q)
        for r in range(rows):
            s = sequences[r]
            _keep(net, layer, Q[r], places[r], K[s], V[s])
        for r in range(rows):
            s = sequences[r]
            _attend(net, layer, Q[r], places[r], K[s], V[s], p, N[r])
        times(N, rows, net.output[layer], Y)
        _add_normed(net, layer, 0, rows, X, Y)
        _before(net, layer, 1, rows, X, N)
        for r in range(rows):
            H[r, :] = net.inner_bias[layer]
            Y[r, :] = net.outer_bias[layer]
        times(N, rows, net.inner[layer], H)
        for r in range(rows):
            _bend(net.activation, H[r], hidden)
        times(H, rows, net.outer[layer], Y)
        _add_normed(net, layer, 1, rows, X, Y)
    if net.pre:
        for r in range(rows):
            _layer_norm(X[r], net.last_norm[0], net.last_norm[1], X[r])
