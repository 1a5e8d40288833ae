"""Compiled speculative decoding: a small network proposes, the model decides.

The draft draws up to γ tokens from its own laws q. The model reads them in one block
and gets its laws p. A token x is accepted with probability min(1, p(x)/q(x)); the first
one that is not is replaced by a draw from max(p − q, 0), rescaled. If all are accepted,
one more is drawn from p. Each token then has the law p, for every q that was really
drawn from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import exact_kernel
from certus.language.decoding_kernels import (
    draw,
    law,
    log_prob_of,
    read_on,
    window_start,
)


@register_jitable
def residual(p: Any, q: Any, out: Any) -> None:
    """Put max(p − q, 0), rescaled, into out; p itself if nothing is left of it."""
    total = 0.0
    for i in range(len(p)):
        out[i] = max(p[i] - q[i], 0.0)
        total += out[i]
    for i in range(len(p)):
        out[i] = out[i] / total if total > 0.0 else p[i]


@exact_kernel
def speculate_some(
    net: Any,
    stride: int,
    caches: Any,
    state: Any,
    draft: Any,
    draft_stride: int,
    draft_caches: Any,
    draft_state: Any,
    ids: Any,
    lengths: Any,
    prompt: int,
    most: int,
    end: int,
    gamma: int,
    how: Any,
    numbers: Any,
    uniforms: Any,
    log_probs: Any,
    source: Any,
    tried: Any,
    laws: Any,
    n_tried: int,
    rounds: int,
) -> int:
    """Up to ``rounds`` rounds of proposals; the number of tokens tried so far.

    ``numbers[i, 0]`` draws token i of the generated ones from the model or the
    residual, ``[i, 1]`` from the draft, and ``[i, 2]`` decides on it. Proposals behind
    a rejected one are forgotten. They had no influence on what came out, so their
    numbers are as good as new for the next proposals at these places.
    """
    temperature, top_k, top_p = how
    places, tokens, draft_u, accept_u, accepted = tried
    Q, P = laws
    V = net.head.shape[1]
    on = np.ones(1, np.bool_)
    own = np.empty((1, gamma + 1, V), np.float32)
    other = np.empty((1, 1, V), np.float32)
    p, scratch = np.empty(V), np.empty(V)
    for _ in range(rounds):
        n = lengths[0]
        if n - prompt >= most or (n > prompt and ids[0, n - 1] == end):
            break
        room = window_start(n, net.context, stride) + net.context - n
        g = min(gamma, room, most - (n - prompt) - 1)
        for i in range(g):  # the draft's proposals
            read_on(
                draft, draft_stride, draft_caches[0], draft_caches[1], ids, lengths,
                draft_state[0], draft_state[1], on, 1, other,
            )  # fmt: skip
            law(other[0, 0], temperature, top_k, top_p, Q[n_tried + i])
            at = n + i - prompt
            token = draw(Q[n_tried + i], numbers[at, 1])
            ids[0, n + i] = token
            lengths[0] += 1
            places[n_tried + i], tokens[n_tried + i] = n + i, token
            draft_u[n_tried + i] = numbers[at, 1]
            accept_u[n_tried + i] = numbers[at, 2]
        read_on(
            net, stride, caches[0], caches[1], ids, lengths, state[0], state[1], on,
            g + 1, own,
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
        # What was read of rejected tokens is read again.
        for one in (state, draft_state):
            one[1][0] = min(one[1][0], max(n + kept - 1 - one[0][0], 0))
    return n_tried
