"""Predictions of a :class:`~certus.trees.TreeEnsemble`, compiled and on all threads.

The nodes are packed once for each ensemble: a right child follows the left one, so
that a step is one load, one comparison and one sum. Blocks of rows go through all trees
while they are in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

from certus import tree_kernels
from certus._core.threads import run_blocks, slices
from certus.trees import TreeEnsemble
from certus.typing import Array

#: Rows that pass through a tree together; rows given to a thread at a time.
BLOCK, PIECE = 64, 4096
#: Below this many steps from a root to a leaf, one thread is faster than several.
ALONE = 1 << 18


class Packed(NamedTuple):
    """Nodes in the order of the walk; ``place`` is each node's number before."""

    threshold: Array
    feature: Array
    child: Array
    sides: Array
    category: Array
    bits: Array
    value: Array
    roots: Array
    place: Array


def pack(ensemble: TreeEnsemble) -> Packed:
    """The nodes with siblings side by side, tree by tree; kept for the next call."""
    kept = vars(ensemble).get("_packed")
    if kept is not None:
        return kept
    place, roots = _order(ensemble)
    at = np.empty(len(ensemble.feature), dtype=np.int64)
    at[place] = np.arange(len(place))
    leaf = ensemble.feature[place] < 0
    child = np.where(leaf, np.arange(len(place)), at[ensemble.left[place]])
    sides = ~ensemble.missing_left[place] + 2 * ~ensemble.other_left[place]
    packed = Packed(
        np.where(leaf, np.inf, ensemble.threshold[place]),
        np.where(leaf, 0, ensemble.feature[place]).astype(np.int32),
        child.astype(np.int32),
        np.where(leaf, 0, sides).astype(np.uint8),
        np.where(leaf, -1, ensemble.category[place]).astype(np.int64),
        np.ascontiguousarray(ensemble.bits),
        np.ascontiguousarray(ensemble.value[place]),
        roots,
        place,
    )
    object.__setattr__(ensemble, "_packed", packed)
    return packed


def _order(ensemble: TreeEnsemble) -> tuple[Array, Array]:
    """Old numbers in the new order, and where the trees begin in it.

    Level by level over all trees at once, then sorted by tree: a tree's nodes stay
    together, and a left child directly before the right one.
    """
    level = ensemble.roots.astype(np.int64)
    tree = np.arange(len(level))
    found, trees = [level], [tree]
    while len(level):
        inner = ensemble.feature[level] >= 0
        parents, tree = level[inner], tree[inner]
        level = np.stack([ensemble.left[parents], ensemble.right[parents]], 1).ravel()
        level, tree = level.astype(np.int64), np.repeat(tree, 2)
        found.append(level)
        trees.append(tree)
    places, owners = np.concatenate(found), np.concatenate(trees)
    order = np.argsort(owners, kind="stable")
    sizes = np.bincount(owners, minlength=len(ensemble.roots))
    return places[order], np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)


def rows_of(ensemble: TreeEnsemble, X: Any) -> Array:
    """X as the kernels take it: C order, float64 or float32, with the right width."""
    X = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    if ensemble.single or X.dtype != np.float32:
        wanted = np.float32 if ensemble.single else np.float64
        with np.errstate(over="ignore"):
            X = X.astype(wanted, copy=False)
    if X.ndim != 2 or X.shape[1] != ensemble.n_features:
        raise ValueError(
            f"X must have {ensemble.n_features} columns, got the shape {X.shape}."
        )
    return np.ascontiguousarray(X)


def scores(ensemble: TreeEnsemble, X: Any) -> Array:
    """Baseline plus the leaves of all trees."""
    X, packed = rows_of(ensemble, X), pack(ensemble)
    found = np.zeros((len(X), ensemble.n_outputs))
    if ensemble.divisor == 1.0:
        found += ensemble.baseline
    nodes = (*packed[:6], packed.value, packed.roots, ensemble.output)

    # A large tree is read once for many rows, a small one stays in the cache.
    block = min(PIECE, max(BLOCK, len(packed.child) // max(1, ensemble.n_trees)))

    def work(rows: slice, _: Any) -> None:
        tree_kernels.add_trees(X[rows], *nodes, block, found[rows])

    if len(X) * ensemble.n_trees * 8 <= ALONE:
        work(slice(0, len(X)), None)
    else:
        run_blocks(work, slices(len(X), PIECE))
    if ensemble.divisor != 1.0:
        found /= ensemble.divisor
        found += ensemble.baseline
    return found


def apply(ensemble: TreeEnsemble, X: Any) -> Array:
    """The leaf of each row in each tree."""
    X, packed = rows_of(ensemble, X), pack(ensemble)
    leaves = np.empty((ensemble.n_trees, len(X)), dtype=np.int64)
    tree_kernels.all_leaves(X, *packed[:6], packed.roots, leaves)
    return packed.place[leaves.T].astype(np.int32)


def linked(link: str, z: Array) -> Array:
    """Predictions of scores: numbers, or one probability for each class."""
    if link == "logistic":
        high = special.expit(z[:, 0])
        return np.stack([1.0 - high, high], axis=1)
    if link == "softmax":
        return np.asarray(special.softmax(z, axis=1))
    if link == "shares":
        return z
    z = np.exp(z) if link == "exp" else z
    return z[:, 0] if z.shape[1] == 1 else z
