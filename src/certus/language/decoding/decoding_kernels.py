"""Compiled decoding: windows, distributions of the next token, draws, and drafts.

The text is s = (end of text, x₁, x₂, …). A token at place t of s is predicted from
s[w(t)], …, s[t − 1]: the window begins at w(t) = 0 while t ≤ context, and moves by half
a context whenever the next token no longer fits,

    w(t) = h ⌈(t − context)/h⌉,   h = max(1, ⌊context/2⌋).

Draws are by inverse CDF in the order of token numbers: the first token whose cumulative
probability exceeds the uniform number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import exact_kernel
from certus.language.decoding.exponential_kernels import exp64
from certus.language.decoding.forward_kernels import (
    ROWS,
    PackedNetwork,
    forward_rows,
    times,
)
from certus.typing import Array


@register_jitable
def window_start(t: int, context: int, stride: int) -> int:
    """The first place that a prediction of the token at place t sees."""
    return 0 if t <= context else -(-(t - context) // stride) * stride


@exact_kernel
def read_on(
    net: PackedNetwork,
    stride: int,
    K: Array,
    V: Array,
    ids: Array,
    lengths: Array,
    starts: Array,
    read: Array,
    active: Array,
    last: int,
    logits: Array,
) -> None:
    """Read the tokens that the cache lacks; scores of what follows the last ones.

    Sequence s has tokens ``ids[s, :lengths[s]]``, of which ``read[s]`` from
    ``starts[s]`` on are in the cache. ``logits[s, last - 1]`` become the scores behind
    its last token, ``logits[s, last - 2]`` those behind the one before, and so on, as
    far as they are read in this call. What stands in the cache already is read again
    only if the caller lowers ``read[s]``.
    """
    width = net.embedding.shape[1]
    tokens, owner = np.empty(ROWS, np.int64), np.empty(ROWS, np.int64)
    places, slots = np.empty(ROWS, np.int64), np.empty(ROWS, np.int64)
    X = np.empty((ROWS, width), np.float32)
    scores = np.empty((ROWS, net.head.shape[1]), np.float32)
    s = 0
    while s < len(lengths):
        filled = 0
        while s < len(lengths) and filled < ROWS:
            if active[s]:
                start = window_start(lengths[s], net.context, stride)
                if start != starts[s]:
                    starts[s], read[s] = start, 0
                read[s] = min(read[s], lengths[s] - start)
                while filled < ROWS and start + read[s] < lengths[s]:
                    at = start + read[s]
                    tokens[filled], owner[filled] = ids[s, at], s
                    places[filled], slots[filled] = read[s], last - (lengths[s] - at)
                    filled += 1
                    read[s] += 1
                if start + read[s] < lengths[s]:
                    break
            s += 1
        forward_rows(net, K, V, tokens[:filled], owner[:filled], places[:filled], X)
        _scores(net, X, slots, filled, scores)
        for r in range(filled):
            if slots[r] >= 0:
                logits[owner[r], slots[r], :] = scores[r]


@exact_kernel
def _scores(
    net: PackedNetwork, X: Array, slots: Array, filled: int, scores: Array
) -> None:
    """Scores of the tokens from the states of the rows that have a slot."""
    first = 0
    while first < filled and slots[first] < 0:
        first += 1
    scores[:filled] = np.float32(0)
    times(X[first:filled], filled - first, net.head, scores[first:filled])


@register_jitable
def softmax(logits: Array, temperature: float, p: Array) -> float:
    """Put softmax(logits / temperature) into p; log Σ exp(score − largest)."""
    top = logits[0]
    for i in range(1, len(logits)):
        top = max(top, logits[i])
    for i in range(len(logits)):
        p[i] = exp64((float(logits[i]) - float(top)) / temperature)
    total = 0.0
    for i in range(len(logits)):
        total += p[i]
    for i in range(len(logits)):
        p[i] /= total
    return math.log(total)


@register_jitable
def best(logits: Array) -> int:
    """The token with the largest score, the first of equals."""
    found = 0
    for i in range(1, len(logits)):
        if logits[i] > logits[found]:
            found = i
    return found


@register_jitable
def _sink(heap: Array, p: Array, at: int, size: int) -> None:
    """Let the token at a place of the heap sink until none below it is larger."""
    token = heap[at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(p, heap[child + 1], heap[child]):
            child += 1
        if not _before(p, heap[child], token):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = token


@register_jitable
def _before(p: Array, a: int, b: int) -> bool:
    """Whether a is more probable than b; of equals the first is."""
    return p[a] > p[b] or (p[a] == p[b] and a < b)


@register_jitable
def _keep_largest(p: Array, k: int, share: float) -> None:
    """Keep the largest, until there are k of them or their sum reaches the share."""
    n = len(p)
    heap = np.arange(n)
    for at in range(n // 2 - 1, -1, -1):
        _sink(heap, p, at, n)
    total, kept, size = 0.0, 0, n
    while size and kept < k and (total < share or kept == 0):
        total += p[heap[0]]
        kept += 1
        size -= 1
        heap[0] = heap[size]
        _sink(heap, p, 0, size)
    for at in range(size):
        p[heap[at]] = 0.0
    _rescale(p)


@register_jitable
def _rescale(p: Array) -> None:
    total = 0.0
    for i in range(len(p)):
        total += p[i]
    for i in range(len(p)):
        p[i] /= total


@exact_kernel
def law(logits: Array, temperature: float, top_k: int, top_p: float, p: Array) -> None:
    """Probabilities of the next token: temperature, top-k, top-p, then rescaled."""
    if temperature == 0.0:
        p[:] = 0.0
        p[best(logits)] = 1.0
        return
    softmax(logits, temperature, p)
    _cut(p, top_k, top_p)


@register_jitable
def _cut(p: Array, top_k: int, top_p: float) -> None:
    """Top-k, then top-p, of a distribution."""
    if 0 < top_k < len(p):
        _keep_largest(p, top_k, 2.0)
    if top_p < 1.0:
        _keep_largest(p, len(p), top_p)


@exact_kernel
def draw(p: Array, u: float) -> int:
    """The first token whose cumulative probability exceeds u."""
    total, found = 0.0, 0
    for i in range(len(p)):
        if p[i] > 0.0:
            total += p[i]
            found = i
            if u < total:
                break
    return found


@register_jitable
def log_prob_of(logits: Array, token: int, p: Array) -> float:
    """Natural log p(token) of the network, at temperature 1; p is overwritten."""
    rest = softmax(logits, 1.0, p)
    return float(logits[token]) - float(logits[best(logits)]) - rest


@register_jitable
def _draw_one(scores: Array, how: tuple[Any, ...], u: float, p: Array) -> Any:
    """A token, and its natural log p at temperature 1; p is overwritten."""
    temperature, top_k, top_p = how
    rest = softmax(scores, 1.0, p)
    if temperature == 1.0:  # p is what law() begins with
        _cut(p, top_k, top_p)
    else:
        law(scores, temperature, top_k, top_p, p)
    token = draw(p, u)
    return token, float(scores[token]) - float(scores[best(scores)]) - rest


@exact_kernel
def generate_some(
    net: PackedNetwork,
    stride: int,
    K: Array,
    V: Array,
    ids: Array,
    lengths: Array,
    starts: Array,
    read: Array,
    active: Array,
    prompts: Array,
    most: int,
    end: int,
    how: tuple[Any, ...],
    uniforms: Array,
    log_probs: Array,
    steps: int,
) -> None:
    """Up to ``steps`` more tokens for each active sequence; ``how`` as in law()."""
    n = len(lengths)
    logits = np.empty((n, 1, net.head.shape[1]), np.float32)
    p = np.empty(net.head.shape[1])
    for _ in range(steps):
        if not np.any(active):
            return
        read_on(net, stride, K, V, ids, lengths, starts, read, active, 1, logits)
        for s in range(n):
            if not active[s]:
                continue
            scores, at = logits[s, 0], lengths[s] - prompts[s]
            token, log_probs[s, at] = _draw_one(scores, how, uniforms[s, at], p)
            ids[s, lengths[s]] = token
            lengths[s] += 1
            if token == end or at + 1 == most:
                active[s] = False
