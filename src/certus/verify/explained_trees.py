"""The contributions of tree ensembles, leaf by leaf, in plain NumPy.

A mixed row reaches a leaf if each column on its path passes all its conditions. With p
columns that only the row x passes, q that only the background row b passes, and none
that neither passes, the leaf of value v is a game of its own, whose Shapley values are

    + v (p − 1)! q! / (p + q)!   for the p columns,
    − v p! (q − 1)! / (p + q)!   for the q columns.

Sums over leaves, trees and background rows give the contributions. The arrays of the
trees are read as they are; that they answer as the model does is checked separately.
"""

from __future__ import annotations

from math import comb
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array


class TreePaths(NamedTuple):
    """One tree: inner nodes, leaves, and which leaves are left and right of a node."""

    nodes: Array
    leaves: Array
    under_left: Array  # (nodes, leaves)
    under_right: Array


def paths_of(trees: Any, root: int) -> TreePaths:
    """Walk one tree, and note for each leaf on which side of each node it lies."""
    nodes: list[int] = []
    ends: list[tuple[int, list[tuple[int, bool]]]] = []
    waiting: list[tuple[int, list[tuple[int, bool]]]] = [(root, [])]
    while waiting:
        node, path = waiting.pop()
        if trees.feature[node] < 0:
            ends.append((node, path))
            continue
        place = len(nodes)
        nodes.append(node)
        waiting.append((int(trees.left[node]), [*path, (place, True)]))
        waiting.append((int(trees.right[node]), [*path, (place, False)]))
    sides = np.zeros((2, len(nodes), len(ends)))
    for leaf, (_, path) in enumerate(ends):
        for place, left in path:
            sides[0 if left else 1, place, leaf] = 1.0
    leaves = np.array([node for node, _ in ends])
    return TreePaths(np.array(nodes, dtype=int), leaves, sides[0], sides[1])


def goes_left(trees: Any, Z: Array) -> Array:
    """Whether each row goes left at each node, by its own reading of the rules."""
    Z = np.asarray(Z, dtype=np.float32 if trees.single else np.float64)
    found = np.zeros((len(Z), len(trees.feature)), dtype=bool)
    for node, feature in enumerate(trees.feature):
        if feature < 0:
            continue
        x = Z[:, feature].astype(np.float64)
        gone, row = np.isnan(x), int(trees.category[node])
        if row < 0:
            with np.errstate(invalid="ignore"):
                left = x <= trees.threshold[node]
        else:
            words = trees.bits[row]
            code = np.where(gone, -1, x).astype(np.int64)
            known = (code >= 0) & (code < 32 * len(words))
            safe = np.where(known, code, 0)
            bit = (words[safe // 32] >> (safe % 32).astype(np.uint32)) & 1
            left = np.where(known, bit == 1, trees.other_left[node])
        found[:, node] = np.where(gone, trees.missing_left[node], left)
    return found


def cost(trees: Any, m: int) -> int:
    """Cells that one row takes: leaves × background rows, a few times."""
    return 4 * int((np.asarray(trees.feature) < 0).sum()) * m


def tree_shares(
    trees: Any, X: Array, B: Array, owner: Array, d: int
) -> tuple[Array, Array, Array]:
    """Contributions (rows × columns × outputs), their sizes, and scores of the rows."""
    k, n = len(trees.baseline), len(X)
    own, theirs = goes_left(trees, X), goes_left(trees, B)
    found, sizes = np.zeros((n, d, k)), np.zeros((n, d, k))
    scores = np.tile(np.asarray(trees.baseline, dtype=np.float64), (n, 1))
    for tree, root in enumerate(trees.roots):
        paths = paths_of(trees, int(root))
        output = int(trees.output[tree])
        worth = np.zeros((len(paths.leaves), k))
        to = slice(None) if output < 0 else slice(output, output + 1)
        worth[:, to] = np.asarray(trees.value)[paths.leaves] / trees.divisor
        if not len(paths.nodes):
            scores += worth[0]
            continue
        players, which = np.unique(
            owner[trees.feature[paths.nodes]], return_inverse=True
        )
        failing = _failing(theirs[:, paths.nodes], paths, which, len(players))
        for i in range(n):
            ours = _failing(own[i : i + 1, paths.nodes], paths, which, len(players))[0]
            scores[i] += worth[~ours.any(axis=1)].sum(axis=0)
            shares = _shares(ours, failing)  # (leaves, players), signed
            found[i, players] += shares.T @ worth
            sizes[i, players] += np.abs(shares).T @ np.abs(worth)
    return found, sizes, scores


def _failing(left: Array, paths: TreePaths, which: Array, count: int) -> Array:
    """Whether each row fails a condition of each column, at each leaf.

    The array has shape (rows, leaves, columns).
    """
    found = np.zeros((len(left), len(paths.leaves), count), dtype=bool)
    for j in range(count):
        at = which == j
        right = ~left[:, at]
        missed = right @ paths.under_left[at] + left[:, at] @ paths.under_right[at]
        found[:, :, j] = missed > 0
    return found


def _shares(ours: Array, theirs: Array) -> Array:
    """The share of each column in each leaf of value 1, averaged over the background.

    ``ours`` (leaves × columns) says what the row fails, ``theirs`` the same for each
    background row.
    """
    meets = ~(ours[None] & theirs).any(axis=2)  # (background, leaves)
    p, q = theirs.sum(axis=2), ours.sum(axis=1)
    up, down = _weights(ours.shape[1])
    rise = np.where(meets, up[p, q[None]], 0.0)
    fall = np.where(meets, down[p, q[None]], 0.0).mean(axis=0)
    gained = np.einsum("ml,mlj->lj", rise, theirs) / len(theirs)
    return np.asarray(gained - fall[:, None] * ours)


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
