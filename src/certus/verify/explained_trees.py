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

from collections.abc import Iterator
from math import comb
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array


class Leaf(NamedTuple):
    """A leaf: its values, and for each column on its path the conditions on it."""

    node: int
    tree: int
    conditions: dict[int, list[tuple[int, bool]]]


def leaves(trees: Any, owner: Array) -> Iterator[Leaf]:
    """All leaves with the conditions on their paths, by the user's column."""
    for tree, root in enumerate(trees.roots):
        waiting: list[tuple[int, dict[int, list[tuple[int, bool]]]]] = [(int(root), {})]
        while waiting:
            node, path = waiting.pop()
            feature = int(trees.feature[node])
            if feature < 0:
                yield Leaf(node, tree, path)
                continue
            j = int(owner[feature])
            for child, left in ((trees.left[node], True), (trees.right[node], False)):
                more = {**path, j: [*path.get(j, []), (node, left)]}
                waiting.append((int(child), more))


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
    """Cells that one row takes: leaves × background rows × columns of a path."""
    return int((np.asarray(trees.feature) < 0).sum()) * m * 8


def tree_shares(
    trees: Any, X: Array, B: Array, owner: Array, d: int
) -> tuple[Array, Array, Array]:
    """Contributions (rows × columns × outputs), their sizes, and scores of the rows."""
    k, n, m = len(trees.baseline), len(X), len(B)
    own, theirs = goes_left(trees, X), goes_left(trees, B)
    found, sizes = np.zeros((n, d, k)), np.zeros((n, d, k))
    scores = np.tile(np.asarray(trees.baseline, dtype=np.float64), (n, 1))
    for leaf in leaves(trees, owner):
        v = np.zeros(k)
        output = int(trees.output[leaf.tree])
        worth = np.asarray(trees.value[leaf.node]) / trees.divisor
        v[slice(None) if output < 0 else slice(output, output + 1)] = worth
        players = list(leaf.conditions)
        if not players:
            scores += v
            continue
        x_ok = _passes(own, leaf)  # (n, players)
        b_ok = _passes(theirs, leaf)
        scores[x_ok.all(axis=1)] += v
        only_x = x_ok[:, None, :] & ~b_ok[None]
        only_b = ~x_ok[:, None, :] & b_ok[None]
        alive = (x_ok[:, None, :] | b_ok[None]).all(axis=2)
        p, q = only_x.sum(axis=2), only_b.sum(axis=2)
        up, down = _weights(len(players))
        gain = np.where(alive, up[p, q], 0.0)
        loss = np.where(alive, down[p, q], 0.0)
        rise = np.einsum("im,imj->ij", gain, only_x)
        fall = np.einsum("im,imj->ij", loss, only_b)
        found[:, players] += (rise - fall)[:, :, None] * v / m
        sizes[:, players] += (rise + fall)[:, :, None] * np.abs(v) / m
    return found, sizes, scores


def _passes(left: Array, leaf: Leaf) -> Array:
    """Whether each row passes all conditions of each column on the path."""
    parts = []
    for conditions in leaf.conditions.values():
        nodes = [node for node, _ in conditions]
        sides = np.array([side for _, side in conditions])
        parts.append((left[:, nodes] == sides).all(axis=1))
    return np.column_stack(parts)


def _weights(most: int) -> tuple[Array, Array]:
    """(p − 1)! q! / (p + q)! and p! (q − 1)! / (p + q)!, zero where they have none."""
    up, down = np.zeros((most + 1, most + 1)), np.zeros((most + 1, most + 1))
    for p in range(most + 1):
        for q in range(most + 1 - p):
            if p:
                up[p, q] = 1.0 / (p * comb(p + q, p))
            if q:
                down[p, q] = 1.0 / (q * comb(p + q, q))
    return up, down
