"""Compiled loops of n-gram models: count the runs of tokens, and walk along a text.

The n-grams form a tree: the children of a run h are the runs hw. Each run also knows
its suffix, the run without its first token, which is where a model backs off to. While
counting, a hash table finds the child of a run; afterwards the runs are sorted by
length, then by their tokens, so that the children of each stand behind each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import exact_kernel, kernel
from certus.typing import Array

_ODD, _TURN = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@register_jitable
def _slot(keys: Array, key: int) -> Any:
    """Where a key stands in the table, or the empty slot where it would."""
    h = np.uint64(key) * _ODD
    at = np.int64((h ^ h >> _TURN) & np.uint64(len(keys) - 1))
    while keys[at] != key and keys[at] != 0:
        at = (at + 1) & (len(keys) - 1)
    return at


@kernel
def hash_grams(
    keys: Array, nodes: Array, parent: Array, token: Any, n: int, V: int
) -> None:
    """Fill an empty table with the first ``n`` runs."""
    for node in range(1, n):
        key = np.int64(parent[node]) * V + token[node] + 1
        at = _slot(keys, key)
        keys[at] = key
        nodes[at] = node


@kernel
def count_grams(
    ids: Array,
    begin: int,
    end: int,
    V: int,
    keys: Array,
    nodes: Array,
    parent: Array,
    token: Any,
    suffix: Array,
    count: Array,
    left: Array,
    state: Array,
    used: int,
) -> tuple[int, int]:
    """Count the runs that end at each token from ``begin`` on.

    ``state[k]`` is the run of the last k tokens, −1 where the text has fewer: it begins
    with an ``end`` token, and so does every document. ``left`` counts the different
    tokens that stand before a run. Stops early where the arrays are full, and returns
    the place and the number of runs.
    """
    order = len(state)
    for i in range(begin, len(ids)):
        if used + order > len(parent) or 2 * (used + order) > len(keys):
            return i, used
        w, shorter = ids[i], 0
        for k in range(order):
            context = state[k]
            if k > 0:
                state[k] = shorter  # from here on with this token
            if context < 0:
                break
            key = np.int64(context) * V + w + 1
            at = _slot(keys, key)
            if keys[at] == 0:
                keys[at] = key
                nodes[at] = used
                parent[used], token[used], suffix[used] = context, w, shorter
                left[shorter] += 1
                used += 1
            shorter = nodes[at]
            count[shorter] += 1
        if w == end:
            state[2:] = -1
    return len(ids), used


@register_jitable
def _child(first: Array, token: Any, node: int, w: int) -> int:
    """The run ``node`` followed by w, or −1."""
    low, high = first[node], first[node + 1]
    while low < high:
        middle = (low + high) >> 1
        if token[middle] < w:
            low = middle + 1
        else:
            high = middle
    return low if low < first[node + 1] and token[low] == w else -1


@exact_kernel
def walk(
    ids: Array,
    end: int,
    V: int,
    longest: int,
    first: Array,
    token: Any,
    suffix: Array,
    share: Array,
    backoff: Array,
    contexts: Array,
    out: Array,
) -> int:
    """Write log p of each token into ``out``, and return the last context.

    Runs from ``longest`` on have full length, and are contexts of nothing.
    ``contexts`` has room for as many runs as the model's order.
    """
    start = max(0, _child(first, token, 0, end))
    start = suffix[start] if start >= longest else start
    context = start
    for i in range(len(ids)):
        w, m, node = ids[i], 0, context
        while node > 0:
            contexts[m] = node
            m, node = m + 1, suffix[node]
        contexts[m], context = 0, 0
        p, found = 1.0 / V, 0
        while m >= 0:
            node = contexts[m]
            p *= backoff[node]
            child = _child(first, token, node, w) if found >= 0 else -1
            if child >= 0:
                p += share[child]
                context = suffix[child] if child >= longest else child
            found, m = child, m - 1
        if w == end:
            context = start
        out[i] = np.log(p)
    return context


@exact_kernel
def next_law(
    node: int, first: Array, token: Any, suffix: Array, share: Array, backoff: Array,
    contexts: Array, p: Array,
) -> None:  # fmt: skip
    """Write the probability of each token after the context ``node`` into ``p``."""
    m = 0
    while node > 0:
        contexts[m] = node
        m, node = m + 1, suffix[node]
    contexts[m] = 0
    p[:] = 1.0 / len(p)
    while m >= 0:
        node = contexts[m]
        p *= backoff[node]
        for child in range(first[node], first[node + 1]):
            p[token[child]] += share[child]
        m -= 1
