"""Compiled walks through packed trees.

Nodes are packed so that the right child follows the left one; a leaf is its own left
child and its threshold is +inf, so a number that reached it stays. Four rows walk at a
time: their loads do not wait for each other. Sums over trees keep the order of the
trees, so that a row has the same scores in every block and on every thread.
"""

from __future__ import annotations

import numpy as np

from certus._core.cache import exact_kernel
from certus.typing import Array


@exact_kernel
def has_missing(X: Array) -> bool:
    """Whether a cell is NaN."""
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            if X[i, j] != X[i, j]:
                return True
    return False


@exact_kernel
def walk_numbers(
    X: Array, threshold: Array, feature: Array, child: Array, root: int, out: Array
) -> None:
    """The leaf of each row in one tree without sets; X has no NaN."""
    n = X.shape[0]
    for r in range(0, n - 3, 4):
        a = b = c = d = root
        while True:
            na = child[a] + (X[r, feature[a]] > threshold[a])
            nb = child[b] + (X[r + 1, feature[b]] > threshold[b])
            nc = child[c] + (X[r + 2, feature[c]] > threshold[c])
            nd = child[d] + (X[r + 3, feature[d]] > threshold[d])
            if na == a and nb == b and nc == c and nd == d:
                break
            a, b, c, d = na, nb, nc, nd
        out[r], out[r + 1], out[r + 2], out[r + 3] = a, b, c, d
    for r in range(n - n % 4, n):
        a = root
        while child[a] != a:
            a = child[a] + (X[r, feature[a]] > threshold[a])
        out[r] = a


@exact_kernel
def walk_missing(
    X: Array,
    threshold: Array,
    feature: Array,
    child: Array,
    sides: Array,
    root: int,
    out: Array,
) -> None:
    """The leaf of each row in one tree without sets; a leaf's side is 0."""
    n = X.shape[0]
    for r in range(0, n - 3, 4):
        a = b = c = d = root
        while True:
            xa, xb = X[r, feature[a]], X[r + 1, feature[b]]
            xc, xd = X[r + 2, feature[c]], X[r + 3, feature[d]]
            na = child[a] + ((xa > threshold[a]) | ((xa != xa) & (sides[a] & 1)))
            nb = child[b] + ((xb > threshold[b]) | ((xb != xb) & (sides[b] & 1)))
            nc = child[c] + ((xc > threshold[c]) | ((xc != xc) & (sides[c] & 1)))
            nd = child[d] + ((xd > threshold[d]) | ((xd != xd) & (sides[d] & 1)))
            if na == a and nb == b and nc == c and nd == d:
                break
            a, b, c, d = na, nb, nc, nd
        out[r], out[r + 1], out[r + 2], out[r + 3] = a, b, c, d
    for r in range(n - n % 4, n):
        a = root
        while child[a] != a:
            x = X[r, feature[a]]
            a = child[a] + ((x > threshold[a]) | ((x != x) & (sides[a] & 1)))
        out[r] = a


@exact_kernel
def walk_any(
    X: Array,
    threshold: Array,
    feature: Array,
    child: Array,
    sides: Array,
    category: Array,
    bits: Array,
    root: int,
    out: Array,
) -> None:
    """The leaf of each row in one tree, with sets of categories and missing values.

    ``sides`` is 1 where NaN goes right, plus 2 where other categories go right.
    """
    most = 32.0 * bits.shape[1]
    for r in range(X.shape[0]):
        i = root
        while child[i] != i:
            x = X[r, feature[i]]
            if x != x:
                right = np.int64(sides[i] & 1)
            elif category[i] < 0:
                right = np.int64(x > threshold[i])
            elif x <= -1.0 or x >= most:
                right = np.int64(sides[i] >> 1)
            else:
                code = np.int64(x)
                word = bits[category[i], code >> 5]
                right = np.int64(1) - np.int64((word >> np.uint32(code & 31)) & 1)
            i = child[i] + right
        out[r] = i


@exact_kernel
def add_trees(
    X: Array,
    threshold: Array,
    feature: Array,
    child: Array,
    sides: Array,
    category: Array,
    bits: Array,
    value: Array,
    roots: Array,
    output: Array,
    block: int,
    scores: Array,
) -> None:
    """Add the leaves of all trees to the scores, a block of rows at a time."""
    n, wide = X.shape[0], value.shape[1]
    leaf = np.empty(block, dtype=np.int64)
    for start in range(0, n, block):
        stop = min(n, start + block)
        rows = X[start:stop]
        numbers = bits.shape[0] == 0
        plain = numbers and not has_missing(rows)
        for t in range(roots.shape[0]):
            root = np.int64(roots[t])
            if plain:
                walk_numbers(rows, threshold, feature, child, root, leaf)
            elif numbers:
                walk_missing(rows, threshold, feature, child, sides, root, leaf)
            else:
                walk_any(
                    rows, threshold, feature, child, sides, category, bits, root, leaf
                )
            if output[t] >= 0:
                k = output[t]
                for r in range(stop - start):
                    scores[start + r, k] += value[leaf[r], 0]
            else:
                for r in range(stop - start):
                    for k in range(wide):
                        scores[start + r, k] += value[leaf[r], k]


@exact_kernel
def all_leaves(
    X: Array,
    threshold: Array,
    feature: Array,
    child: Array,
    sides: Array,
    category: Array,
    bits: Array,
    roots: Array,
    leaves: Array,
) -> None:
    """Leaves of all rows in all trees, one tree per row of ``leaves``."""
    plain = bits.shape[0] == 0 and not has_missing(X)
    for t in range(roots.shape[0]):
        root = np.int64(roots[t])
        if plain:
            walk_numbers(X, threshold, feature, child, root, leaves[t])
        else:
            walk_any(
                X, threshold, feature, child, sides, category, bits, root, leaves[t]
            )
