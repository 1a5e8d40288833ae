"""Compiled speculative decoding: a small model proposes, the model decides.

The draft draws up to γ tokens from its own distributions q. The model reads them in one
block and gets its distributions p. A token x is accepted with probability min(1,
p(x)/q(x)); the first one that is not is replaced by a draw from max(p − q, 0),
rescaled. If all are accepted, one more is drawn from p. Each token then has the
distribution p, for every q that was really drawn from.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import exact_kernel
from certus.language.decoding.decoding_kernels import (
    draw,
    law,
    log_prob_of,
    read_on,
    window_start,
)
from certus.language.decoding.forward_kernels import PackedNetwork
from certus.language.ngram_kernels import next_law, walk
from certus.typing import Array


@register_jitable
def residual(p: Array, q: Array, out: Array) -> None:
    """Put max(p − q, 0), rescaled, into out; p itself if nothing is left of it."""
    total = 0.0
    for i in range(len(p)):
        out[i] = max(p[i] - q[i], 0.0)
        total += out[i]
    for i in range(len(p)):
        out[i] = out[i] / total if total > 0.0 else p[i]


@register_jitable
def propose(
    scores: Array, how: tuple[Any, ...], at: int, row: int, numbers: Array, q: Array
) -> int:
    """Draw a token of the draft, and put its distribution into ``q[row]``."""
    temperature, top_k, top_p = how
    law(scores, temperature, top_k, top_p, q[row])
    return draw(q[row], numbers[at, 1])


@register_jitable
def enter(
    tried: tuple[Any, ...], row: int, place: int, token: int, numbers: Array, at: int
) -> None:
    """Write down a token that is tried, and the numbers that draw and decide it."""
    tried[0][row], tried[1][row] = place, token
    tried[2][row], tried[3][row] = numbers[at, 1], numbers[at, 2]


@register_jitable
def proposals(
    net: PackedNetwork, stride: int, n: int, prompt: int, most: int, gamma: int
) -> int:
    """How many tokens to propose: they must fit into the window and the text."""
    room = window_start(n, net.context, stride) + net.context - n
    return min(gamma, room, most - (n - prompt) - 1)


@register_jitable
def over(ids: Array, n: int, prompt: int, most: int, end: int) -> bool:
    """Whether the text is long enough, or has ended."""
    return n - prompt >= most or (n > prompt and ids[0, n - 1] == end)


@register_jitable
def decide(
    model: tuple[Any, ...],
    ids: Array,
    lengths: Array,
    n: int,
    g: int,
    prompt: int,
    end: int,
    how: tuple[Any, ...],
    numbers: Array,
    told: tuple[Any, ...],
    tried: tuple[Any, ...],
    laws: tuple[Any, ...],
    n_tried: int,
    own: Array,
) -> int:
    """Accept or replace g proposed tokens from place n on; the number of tried ones."""
    net, stride, caches, state = model
    uniforms, log_probs, source = told
    temperature, top_k, top_p = how
    tokens, accepted = tried[1], tried[4]
    Q, P = laws
    p, scratch = np.empty(own.shape[2]), np.empty(own.shape[2])
    read_on(
        net, stride, caches[0], caches[1], ids, lengths, state[0], state[1],
        np.ones(1, np.bool_), g + 1, own,
    )  # fmt: skip
    kept = 0
    while kept < g:
        row, at = n_tried + kept, n + kept - prompt
        law(own[0, kept], temperature, top_k, top_p, P[row])
        x = tokens[row]
        accepted[row] = numbers[at, 2] * Q[row, x] < P[row, x]
        if not accepted[row]:
            break
        uniforms[at], source[at] = numbers[at, 1], 1
        log_probs[at] = log_prob_of(own[0, kept], x, scratch)
        kept += 1
        if x == end:
            break
    stopped = kept > 0 and ids[0, n + kept - 1] == end
    n_tried += kept
    if not stopped:
        at = n + kept - prompt
        if kept < g:
            residual(P[n_tried], Q[n_tried], p)
            n_tried += 1
            source[at] = 2
        else:
            law(own[0, kept], temperature, top_k, top_p, p)
            source[at] = 0
        token = draw(p, numbers[at, 0])
        ids[0, n + kept] = token
        uniforms[at] = numbers[at, 0]
        log_probs[at] = log_prob_of(own[0, kept], token, scratch)
        kept += 1
    lengths[0] = n + kept
    forget(state, n + kept)
    return n_tried


@register_jitable
def forget(state: Array, n: int) -> None:
    """What was read of rejected tokens is read again."""
    state[1][0] = min(state[1][0], max(n - 1 - state[0][0], 0))


@exact_kernel
def speculate_some(
    model: tuple[Any, ...],
    draft: tuple[Any, ...],
    ids: Array,
    lengths: Array,
    prompt: int,
    most: int,
    end: int,
    gamma: int,
    how: tuple[Any, ...],
    numbers: Array,
    told: tuple[Any, ...],
    tried: tuple[Any, ...],
    laws: tuple[Any, ...],
    n_tried: int,
    rounds: int,
) -> int:
    """Up to ``rounds`` rounds of proposals; the number of tokens tried so far.

    ``model`` and ``draft`` are networks with their strides, caches and states.
    ``numbers[i, 0]`` draws token i of the generated ones from the model or the
    residual, ``[i, 1]`` from the draft, and ``[i, 2]`` decides on it. Proposals behind
    a rejected one are forgotten. They had no influence on what came out, so their
    numbers are as good as new for the next proposals at these places.
    """
    other, other_stride, caches, state = draft
    V, on = model[0].head.shape[1], np.ones(1, np.bool_)
    own = np.empty((1, gamma + 1, V), np.float32)
    scores = np.empty((1, 1, V), np.float32)
    for _ in range(rounds):
        n = lengths[0]
        if over(ids, n, prompt, most, end):
            break
        g = proposals(model[0], model[1], n, prompt, most, gamma)
        for i in range(g):
            read_on(
                other, other_stride, caches[0], caches[1], ids, lengths, state[0],
                state[1], on, 1, scores,
            )  # fmt: skip
            at, row = n + i - prompt, n_tried + i
            token = propose(scores[0, 0], how, at, row, numbers, laws[0])
            ids[0, n + i] = token
            lengths[0] += 1
            enter(tried, row, n + i, token, numbers, at)
        n_tried = decide(
            model, ids, lengths, n, g, prompt, end, how, numbers, told, tried, laws,
            n_tried, own,
        )  # fmt: skip
        forget(state, lengths[0])
    return n_tried


@exact_kernel
def speculate_counted(
    model: tuple[Any, ...],
    draft: tuple[Any, ...],
    ids: Array,
    lengths: Array,
    prompt: int,
    most: int,
    end: int,
    gamma: int,
    how: tuple[Any, ...],
    numbers: Array,
    told: tuple[Any, ...],
    tried: tuple[Any, ...],
    laws: tuple[Any, ...],
    n_tried: int,
    rounds: int,
) -> int:
    """As :func:`speculate_some`, with proposals of an n-gram model.

    ``draft`` are its order, its first run of full length, and its arrays: where the
    continuations of each run begin, last tokens, suffixes, shares and backoffs.
    """
    order, longest, first, last_tokens, suffixes, shares, backoffs = draft
    V = model[0].head.shape[1]
    own = np.empty((1, gamma + 1, V), np.float32)
    contexts, scores = np.empty(order + 1, np.int64), np.empty(V)
    unused = np.empty(order)
    for _ in range(rounds):
        n = lengths[0]
        if over(ids, n, prompt, most, end):
            break
        g = proposals(model[0], model[1], n, prompt, most, gamma)
        for i in range(g):
            # The context depends on the last tokens only.
            node = walk(
                ids[0, max(1, n + i - order) : n + i], end, V, longest, first,
                last_tokens, suffixes, shares, backoffs, contexts, unused,
            )  # fmt: skip
            next_law(
                node, first, last_tokens, suffixes, shares, backoffs, contexts, scores
            )
            for token in range(V):
                scores[token] = math.log(scores[token])
            at, row = n + i - prompt, n_tried + i
            token = propose(scores, how, at, row, numbers, laws[0])
            ids[0, n + i] = token
            enter(tried, row, n + i, token, numbers, at)
        lengths[0] = n + g
        n_tried = decide(
            model, ids, lengths, n, g, prompt, end, how, numbers, told, tried, laws,
            n_tried, own,
        )  # fmt: skip
    return n_tried
