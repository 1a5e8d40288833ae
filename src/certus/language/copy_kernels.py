"""Compiled loops of a suffix automaton: the longest run that two texts share.

The automaton of a text has a state for each set of places where some run of it ends; it
has at most twice as many states as the text has bytes, and three times as many edges
(Blumer and others, 1985). Another text is read through it in one pass: the state knows
the longest suffix of what was read that occurs in the first text. So the memory is that
of the shorter text, whatever the length of the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from certus._core.cache import kernel
from certus.typing import Array

_ODD, _TURN = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@register_jitable
def _place(keys: Array, state: int, byte: Any) -> Any:
    """Where the edge of a state and a byte stands in the table, or would."""
    key = np.int64(state) * 256 + byte + 1
    h = np.uint64(key) * _ODD
    at = np.int64((h ^ h >> _TURN) & np.uint64(len(keys) - 1))
    while keys[at] != key and keys[at] != 0:
        at = (at + 1) & (len(keys) - 1)
    return at


@register_jitable
def _connect(
    keys: Array, edges: Array, to: Array, bytes_: Array, after: Array, head: Array,
    e: Array, state: int, byte: Any, target: int,
) -> None:  # fmt: skip
    at = _place(keys, state, byte)
    keys[at] = np.int64(state) * 256 + byte + 1
    edges[at] = e[0]
    to[e[0]], bytes_[e[0]], after[e[0]] = target, byte, head[state]
    head[state] = e[0]
    e[0] += 1


@kernel
def automaton(
    text: Array, keys: Array, edges: Array, to: Array, bytes_: Array, after: Array,
    head: Array, length: Array, link: Array, end: Array,
) -> int:  # fmt: skip
    """Build the automaton of a text, and return the number of its states.

    ``head`` and ``after`` list the edges of each state; ``end`` is the place where a
    run of the state ends first.
    """
    link[0], head[0], used, last = -1, -1, 1, 0
    e = np.zeros(1, np.int64)
    for i in range(len(text)):
        c = np.int64(text[i])
        new, used = used, used + 1
        length[new], head[new], end[new] = length[last] + 1, -1, i
        p = last
        while p >= 0 and keys[_place(keys, p, c)] == 0:
            _connect(keys, edges, to, bytes_, after, head, e, p, c, new)
            p = link[p]
        if p < 0:
            link[new] = 0
        else:
            q = to[edges[_place(keys, p, c)]]
            if length[q] == length[p] + 1:
                link[new] = q
            else:
                clone, used = used, used + 1
                length[clone], head[clone] = length[p] + 1, -1
                link[clone], end[clone] = link[q], end[q]
                edge = head[q]
                while edge >= 0:
                    _connect(
                        keys, edges, to, bytes_, after, head, e,
                        clone, bytes_[edge], to[edge],
                    )  # fmt: skip
                    edge = after[edge]
                while p >= 0:
                    at = _place(keys, p, c)
                    if keys[at] == 0 or to[edges[at]] != q:
                        break
                    to[edges[at]] = clone
                    p = link[p]
                link[q] = link[new] = clone
        last = new
    return used


@kernel
def longest_shared(
    source: Array,
    keys: Array,
    edges: Array,
    to: Array,
    length: Array,
    link: Array,
    end: Array,
) -> tuple[int, int, int]:
    """The longest run of the source in the text: length, start in text, in source."""
    state, size = 0, 0
    best, start, at = 0, 0, 0
    for j in range(len(source)):
        c = np.int64(source[j])
        place = _place(keys, state, c)
        while state > 0 and keys[place] == 0:
            state = link[state]
            size = length[state]
            place = _place(keys, state, c)
        if keys[place] != 0:
            state, size = to[edges[place]], size + 1
        if size > best:
            best, start, at = size, end[state] - size + 1, j - size + 1
    return best, start, at
