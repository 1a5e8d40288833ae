"""A compiled arithmetic coder over whole numbers.

A token with frequency f of a total T takes the share f/T of the interval [low, high];
bits on which both ends agree are written (Witten and others, 1987). Ends have 62
bits and a total at most 30, so that rounding costs less than 1e-8 bits a token.

Frequencies come from probabilities by 1 + ⌊p (2³⁰ − n)⌋ for n tokens: none is zero, and
the probabilities are computed in a fixed order, with an exponential of our own, so that
whoever decodes gets the same whole numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import exact_kernel
from certus.language.decoding.decoding_kernels import read_on, softmax
from certus.language.decoding.forward_kernels import PackedNetwork
from certus.typing import Array

TOP = (1 << 62) - 1
HALF, QUARTER = 1 << 61, 1 << 60
TOTAL = 1 << 30
#: Places in the coder's state.
LOW, HIGH, WAITING, AT, CODE = range(5)


@register_jitable
def _frequency(p: float, n: int) -> int:
    return 1 + int(p * (TOTAL - n))


@register_jitable
def _write(bit: int, state: Array, out: Array) -> None:
    at = state[AT]
    if bit:
        out[at >> 3] |= np.uint8(128 >> (at & 7))
    state[AT] = at + 1


@register_jitable
def _write_all(bit: int, state: Array, out: Array) -> None:
    """A bit, and the opposite ones that waited for it."""
    _write(bit, state, out)
    for _ in range(state[WAITING]):
        _write(1 - bit, state, out)
    state[WAITING] = 0


@register_jitable
def _read(state: Any, data: Array) -> int:
    """The next bit; zeros behind the end."""
    at = state[AT]
    state[AT] = at + 1
    if at >> 3 >= len(data):
        return 0
    return (int(data[at >> 3]) >> (7 - (at & 7))) & 1


@register_jitable
def _narrow(state: Array, below: int, f: int, total: int) -> None:
    step = (state[HIGH] - state[LOW] + 1) // total
    state[HIGH] = state[LOW] + step * (below + f) - 1
    state[LOW] += step * below


@exact_kernel
def put(p: Array, token: int, state: Array, out: Array) -> None:
    """Write a token drawn from p; ``out`` must be zero where nothing is written."""
    n, below, total = len(p), 0, 0
    for i in range(n):
        if i == token:
            below = total
        total += _frequency(p[i], n)
    _narrow(state, below, _frequency(p[token], n), total)
    while True:
        if state[HIGH] < HALF:
            _write_all(0, state, out)
        elif state[LOW] >= HALF:
            _write_all(1, state, out)
            state[LOW] -= HALF
            state[HIGH] -= HALF
        elif state[LOW] >= QUARTER and state[HIGH] < HALF + QUARTER:
            state[WAITING] += 1
            state[LOW] -= QUARTER
            state[HIGH] -= QUARTER
        else:
            return
        state[LOW] = 2 * state[LOW]
        state[HIGH] = 2 * state[HIGH] + 1


@exact_kernel
def finish(state: Array, out: Array) -> None:
    """Write two bits that name a place inside of the interval."""
    state[WAITING] += 1
    _write_all(0 if state[LOW] < QUARTER else 1, state, out)


@exact_kernel
def begin_reading(state: Array, data: Array) -> None:
    """Fill the decoder's window with the first 62 bits."""
    for _ in range(62):
        state[CODE] = 2 * state[CODE] + _read(state, data)


@exact_kernel
def get(p: Array, state: Array, data: Array) -> int:
    """The next token, whose distribution is p."""
    n, total = len(p), 0
    for i in range(n):
        total += _frequency(p[i], n)
    step = (state[HIGH] - state[LOW] + 1) // total
    target = min((state[CODE] - state[LOW]) // step, total - 1)
    token, below = 0, 0
    f = _frequency(p[0], n)
    while below + f <= target:
        below += f
        token += 1
        f = _frequency(p[token], n)
    _narrow(state, below, f, total)
    while True:
        if state[HIGH] < HALF:
            shift = 0
        elif state[LOW] >= HALF:
            shift = HALF
        elif state[LOW] >= QUARTER and state[HIGH] < HALF + QUARTER:
            shift = QUARTER
        else:
            return token
        state[LOW] = 2 * (state[LOW] - shift)
        state[HIGH] = 2 * (state[HIGH] - shift) + 1
        state[CODE] = 2 * (state[CODE] - shift) + _read(state, data)


@exact_kernel
def put_scored(logits: Array, tokens: Array, state: Array, out: Array) -> None:
    """Write tokens, each with the distribution that its row of scores gives."""
    p = np.empty(logits.shape[1])
    for i in range(len(tokens)):
        softmax(logits[i], 1.0, p)
        put(p, tokens[i], state, out)


@exact_kernel
def get_some(
    net: PackedNetwork,
    stride: int,
    K: Array,
    V: Array,
    ids: Array,
    lengths: Array,
    starts: Array,
    read: Array,
    most: int,
    state: Array,
    data: Array,
) -> None:
    """Read tokens until ``ids`` has ``most`` of them."""
    on = np.ones(1, np.bool_)
    logits = np.empty((1, 1, net.head.shape[1]), np.float32)
    p = np.empty(net.head.shape[1])
    while lengths[0] < most:
        read_on(net, stride, K, V, ids, lengths, starts, read, on, 1, logits)
        softmax(logits[0, 0], 1.0, p)
        ids[0, lengths[0]] = get(p, state, data)
        lengths[0] += 1
