"""The runs of tokens of a corpus, counted, and the shares that Kneser–Ney gives them.

Runs are numbered by length, then by their tokens, the empty one first. So a run is
known by its last token, the children of each run (the same run with a token more) stand
behind each other, and equal corpora give equal arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from certus.language import ngram_kernels as kernels
from certus.typing import Array

#: Discounts of counts of 1, 2 and more where a text is too small to estimate them.
FALLBACK = (0.5, 1.0, 1.5)
#: Runs of tokens that a model can hold; they are numbered in 32 bits.
MOST = 2**31 - 2


class CountedRuns(NamedTuple):
    """The different runs of tokens, by length and then by their tokens."""

    starts: Array  # where the runs of each length begin, and their end
    first: Array  # children of run j: first[j] to first[j + 1]
    token: Array  # last token
    suffix: Array  # the run without its first token
    counts: Array  # occurrences; of shorter runs, different tokens before them


class _Runs:
    """Arrays of runs in the order of their first occurrence, which can grow."""

    def __init__(self, size: int, V: int) -> None:
        self.V, self.used = V, 1
        self.parent, self.token, self.suffix = np.zeros((3, size), np.int32)
        self.count, self.left = np.zeros(size, np.int64), np.zeros(size, np.int32)
        self.hash()

    def hash(self) -> None:
        slots = 1 << (2 * len(self.parent) - 1).bit_length()
        self.keys, self.nodes = np.zeros(slots, np.int64), np.zeros(slots, np.int32)
        kernels.hash_grams(
            *(self.keys, self.nodes, self.parent, self.token, self.used, self.V)
        )

    def grow(self) -> None:
        size = len(self.parent)
        if 2 * size > MOST:
            raise ValueError(
                f"the text has more than {size:,} different runs of tokens. Lower "
                "order, or fit a part of the text."
            )
        for name in ("parent", "token", "suffix", "count", "left"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        self.hash()


def count_runs(ids: Array, end: int, V: int, order: int) -> CountedRuns:
    """Count all runs of up to ``order`` tokens.

    Parameters
    ----------
    ids : int array
        Tokens, with an ``end`` behind each document. Runs do not cross it: the tokens
        before a document are one ``end``.
    end, V : int
        The end-of-text token, and the number of tokens.
    order : int
        The longest runs.
    """
    runs = _Runs(max(1 << 10, 1 << min(20, len(ids)).bit_length()), V)
    runs.token[1], runs.used = end, 2
    runs.hash()
    state = np.full(order, -1, np.int32)
    state[:2] = np.arange(min(order, 2))
    ids, i = np.ascontiguousarray(ids, np.int32), 0
    while i < len(ids):
        i, runs.used = kernels.count_grams(
            *(ids, i, end, V, runs.keys, runs.nodes, runs.parent, runs.token),
            *(runs.suffix, runs.count, runs.left, state, runs.used),
        )
        if i < len(ids):
            runs.grow()
    return _in_order(runs, order)


def _in_order(runs: _Runs, order: int) -> CountedRuns:
    """The runs by length and tokens, with the counts that each length goes by."""
    n = runs.used
    place = np.zeros(n, np.int64)  # of each run in the new order
    old, starts = [np.zeros(1, np.int64)], [0, 1]
    lengths = _lengths(runs.parent[:n])
    for length in range(1, order + 1):
        some = np.flatnonzero(lengths == length)
        keys = place[runs.parent[some]] * runs.V + runs.token[some]
        some = some[np.argsort(keys)]
        place[some] = starts[-1] + np.arange(len(some))
        old.append(some)
        starts.append(starts[-1] + len(some))
    every = np.concatenate(old)
    parents = place[runs.parent[every[1:]]]
    first = 1 + np.searchsorted(parents, np.arange(n + 1))
    count, left = runs.count[every], runs.left[every].astype(np.int64)
    # Runs that begin with an end of text have nothing before them.
    short = slice(0, starts[-2])
    count[short] = np.where(left[short] > 0, left[short], count[short])
    token, suffix = runs.token[every], place[runs.suffix[every]].astype(np.int32)
    return CountedRuns(np.array(starts, np.int64), first, token, suffix, count)


def _lengths(parent: Array) -> Array:
    """The length of each run: how often one can take its last token away."""
    lengths, up = np.zeros(len(parent), np.int16), np.arange(len(parent))
    while up.any():
        lengths += up > 0
        up = parent[up]
    return lengths


def discounts(tree: CountedRuns) -> Array:
    """D(1), D(2), D(3 and more), one row for runs of each length."""
    ends = zip(tree.starts[1:-1], tree.starts[2:])
    return np.array([_discount(tree.counts[begin:end]) for begin, end in ends])


def _discount(count: Array) -> Array:
    n1, n2, n3, n4 = np.bincount(count[count < 5], minlength=5)[1:5].astype(float)
    if min(n1, n2, n3, n4) == 0:
        return np.array(FALLBACK)
    y = n1 / (n1 + 2 * n2)
    found = np.array([1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
    return found if (found >= 0).all() else np.array(FALLBACK)


def shares(tree: CountedRuns, discount: Array) -> tuple[Array, Array]:
    """What each run's count gives its last token, and what its context passes on.

    p(w | h) = share(hw) + backoff(h) p(w | h′). A context that nothing follows passes
    everything on.
    """
    order = len(discount)
    table = np.zeros((order + 2, 4))  # by the length of the run, and its count up to 3
    table[1:-1, 1:] = discount
    length = np.repeat(np.arange(order + 1), np.diff(tree.starts))
    kind = np.minimum(tree.counts, 3)
    total = _children_sum(tree, tree.counts)
    passed = np.zeros(len(total))
    for k in (1, 2, 3):
        passed += _children_sum(tree, kind == k) * table[length + 1, k]
    backoff = np.divide(passed, total, out=np.ones(len(total)), where=total > 0)
    parent = np.repeat(np.arange(len(total)), np.diff(tree.first))
    share = np.zeros(len(total))
    share[1:] = (tree.counts[1:] - table[length[1:], kind[1:]]) / total[parent]
    return share, backoff


def _children_sum(tree: CountedRuns, values: Array) -> Array:
    """The sum of the values of each run's children, in whole numbers."""
    sums = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    return sums[tree.first[1:]] - sums[tree.first[:-1]]


def is_tree(
    V: int,
    starts: Array,
    first: Array,
    token: Array,
    suffix: Array,
    share: Array,
    backoff: Array,
) -> bool:
    """Whether arrays, maybe from a forged file, can be walked along without harm.

    Continuations stay inside of the arrays, and a suffix is one token shorter: every
    walk to shorter and shorter runs ends.
    """
    whole, n = (starts, first, token, suffix), len(token)
    lines = all(a.ndim == 1 and a.dtype.kind == "i" for a in whole)
    lines = lines and all(a.dtype == np.float64 for a in (share, backoff))
    same = {a.shape for a in (token, suffix, share, backoff, first[:-1])} == {(n,)}
    if not (lines and same and len(starts) > 2 and len(first) == n + 1):
        return False
    rising = np.all(np.diff(starts) >= 0) and np.all(np.diff(first) >= 0)
    ends = (starts[0], starts[1], starts[-1], first[0], first[-1]) == (0, 1, n, 1, n)
    if not (rising and ends and token.min() >= 0 and token.max() < V):
        return False
    for k in range(1, len(starts) - 1):
        some = suffix[starts[k] : starts[k + 1]]
        if some.size and not starts[k - 1] <= some.min() <= some.max() < starts[k]:
            return False
    return bool(suffix[0] == 0)
