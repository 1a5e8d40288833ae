"""The contributions of tree ensembles, leaf by leaf, in plain NumPy.

A mixed row reaches a leaf if each column on its path passes all its conditions. With p
columns that only the row x passes, q that only the background row b passes, and none
that neither passes, the leaf of value v is a game of its own, whose Shapley values are

    + v (p − 1)! q! / (p + q)!   for the p columns,
    − v p! (q − 1)! / (p + q)!   for the q columns.

Pairs of a row and a background row walk down all trees together, one level at a time; a
pair leaves where neither passes a column. Sums over leaves, trees and background rows
give the contributions. The arrays of the trees are read as they are; that they answer
as the model does is checked separately.
"""

from __future__ import annotations

from math import comb
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array

#: RowPairs that begin the walk together, and columns whose bits share one word.
TOGETHER, BITS = 1 << 17, 62


class RowPairs(NamedTuple):
    """Row, background row, node and tree of each pair, and the columns that it fails.

    ``ours`` has a bit for each column whose conditions the row fails, ``theirs`` the
    same for the background row; wide tables have several words.
    """

    row: Array
    behind: Array
    node: Array
    tree: Array
    ours: Array
    theirs: Array

    def at(self, kept: Array) -> RowPairs:
        """Some of the pairs."""
        return RowPairs(*(part[kept] for part in self))


def goes_left(trees: Any, Z: Array, who: Array, node: Array) -> Array:
    """Whether rows ``who`` of Z go left at nodes, by its own reading of the rules."""
    x = Z[who, trees.feature[node]]
    row = trees.category[node]
    with np.errstate(invalid="ignore"):
        left = x <= trees.threshold[node]
    coded = np.flatnonzero(row >= 0)
    if len(coded):
        words, value = trees.bits[row[coded]], x[coded]
        code = np.where(np.isnan(value), -1, value).astype(np.int64)
        known = (code >= 0) & (code < 32 * words.shape[1])
        safe = np.where(known, code, 0)
        word = np.take_along_axis(words, (safe // 32)[:, None], axis=1)[:, 0]
        bit = (word >> (safe % 32).astype(np.uint32)) & 1
        left[coded] = np.where(known, bit == 1, trees.other_left[node[coded]])
    gone = np.isnan(x)
    left[gone] = trees.missing_left[node[gone]]
    return np.asarray(left, dtype=bool)


def cost(trees: Any, m: int) -> int:
    """Cells that one row takes, about: in each tree log² of its number of leaves."""
    ends = np.append(trees.roots[1:], len(trees.feature))
    leaves = np.add.reduceat(np.asarray(trees.feature) < 0, trees.roots)
    single = leaves[ends > np.asarray(trees.roots)]
    return 20 * m * max(1, int((np.log2(single) ** 2).sum()))


def tree_shares(
    trees: Any, X: Array, B: Array, owner: Array, d: int
) -> tuple[Array, Array, Array, int]:
    """Contributions (rows × columns × outputs), their sizes, and scores of the rows.

    The last number is that of the terms which were added up for a contribution.
    """
    k, n, m = len(trees.baseline), len(X), len(B)
    kind = np.float32 if trees.single else np.float64
    X, B = (np.asarray(Z, dtype=kind).astype(np.float64) for Z in (X, B))
    found, sizes = np.zeros((n, d, k)), np.zeros((n, d, k))
    scores = np.tile(np.asarray(trees.baseline, dtype=np.float64), (n, 1))
    terms = np.zeros(n, dtype=np.int64)
    step = max(1, TOGETHER // (n * m))
    for first in range(0, len(trees.roots), step):
        which = np.arange(first, min(first + step, len(trees.roots)))
        for done in _walked(trees, X, B, owner, d, which):
            terms += np.bincount(done.row, minlength=n)
            _add(trees, done, found, sizes, scores)
    return found / m, sizes / m, scores, int(terms.max())


def _walked(
    trees: Any, X: Array, B: Array, owner: Array, d: int, which: Array
) -> list[RowPairs]:
    """The pairs that reach a leaf of these trees, level by level."""
    n, m, words = len(X), len(B), -(-d // BITS)
    tree, row, behind = (
        part.ravel() for part in np.meshgrid(which, np.arange(n), np.arange(m))
    )
    none = np.zeros((len(tree), words), dtype=np.int64)
    waiting = RowPairs(row, behind, np.asarray(trees.roots)[tree], tree, none, none)
    found = []
    while len(waiting.node):
        ends = trees.feature[waiting.node] < 0
        if ends.any():
            found.append(waiting.at(ends))
            waiting = waiting.at(~ends)
        player = owner[trees.feature[waiting.node]]
        word, bit = player // BITS, np.int64(1) << (player % BITS)
        ours = goes_left(trees, X, waiting.row, waiting.node)
        theirs = goes_left(trees, B, waiting.behind, waiting.node)
        waiting = _joined(
            _below(waiting, trees.left, word, bit, (ours, theirs)),
            _below(waiting, trees.right, word, bit, (~ours, ~theirs)),
        )
    return found


def _below(
    pairs: RowPairs, child: Array, word: Array, bit: Array, passes: tuple[Array, Array]
) -> RowPairs:
    """The pairs that go on to a child, with what they fail."""
    at = np.flatnonzero(passes[0] | passes[1])
    pairs, word, bit = pairs.at(at), word[at], bit[at]
    each = np.arange(len(at))
    masks = []
    for mask, passed in zip((pairs.ours, pairs.theirs), passes):
        mask = mask.copy()
        mask[each, word] |= np.where(passed[at], 0, bit)
        masks.append(mask)
    both = (masks[0][each, word] & masks[1][each, word]) == 0
    node = np.asarray(child)[pairs.node]
    return pairs._replace(node=node, ours=masks[0], theirs=masks[1]).at(both)


def _joined(one: RowPairs, two: RowPairs) -> RowPairs:
    return RowPairs(*(np.concatenate(parts) for parts in zip(one, two)))


def _add(trees: Any, done: RowPairs, found: Array, sizes: Array, scores: Array) -> None:
    """Add what the leaves give to each column, and the values of the rows' own."""
    n, d, k = found.shape
    p, q = (_counted(mask) for mask in (done.theirs, done.ours))
    up, down = _weights(int((p + q).max(initial=0)))
    gain, fall = up[p, q], down[p, q]
    value = np.asarray(trees.value, dtype=np.float64)[done.node] / trees.divisor
    output = np.asarray(trees.output)[done.tree]
    mine = (q == 0) & (done.behind == 0)
    for c in range(k):
        worth = value[:, c] if value.shape[1] == k and k > 1 else value[:, 0]
        worth = np.where((output < 0) | (output == c), worth, 0.0)
        scores[:, c] += np.bincount(done.row[mine], worth[mine], n)
        for j in range(d):
            word, shift = divmod(j, BITS)
            a = np.flatnonzero((done.theirs[:, word] >> shift) & 1)
            b = np.flatnonzero((done.ours[:, word] >> shift) & 1)
            rise, drop = worth[a] * gain[a], worth[b] * fall[b]
            found[:, j, c] += np.bincount(done.row[a], rise, n)
            found[:, j, c] -= np.bincount(done.row[b], drop, n)
            sizes[:, j, c] += np.bincount(done.row[a], np.abs(rise), n)
            sizes[:, j, c] += np.bincount(done.row[b], np.abs(drop), n)


def _counted(masks: Array) -> Array:
    """The number of bits of each row of words."""
    return np.bitwise_count(masks).sum(axis=1, dtype=np.int64)


def _weights(most: int) -> tuple[Array, Array]:
    """(p − 1)! q! / (p + q)! and p! (q − 1)! / (p + q)!, zero where they have none."""
    up, down = np.zeros((most + 1, most + 1)), np.zeros((most + 1, most + 1))
    for p in range(most + 1):
        for q in range(most + 1):
            if p:
                up[p, q] = 1.0 / (p * comb(p + q, p))
            if q:
                down[p, q] = 1.0 / (q * comb(p + q, q))
    return up, down
