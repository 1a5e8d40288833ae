"""Hierarchical softmax: classes as the leaves of a Huffman tree.

    P(class) = Π over nodes j from the root to the leaf of σ(±s_j)

with one score s_j per inner node, + to the right. Frequent classes hang near the root,
so that a document's loss takes about as many scores as the entropy of the labels in
bits, at most log₂ n + 1, instead of one score per class.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from certus.typing import Array


class Paths(NamedTuple):
    """Leaf k hangs below ``nodes[ends[k]:ends[k + 1]]``; ``sides`` 1 is right."""

    nodes: Array
    sides: Array
    ends: Array


def huffman_tree(counts: Array | Sequence[float]) -> Array:
    """The tree of least mean depth, as the parent and the side of each vertex.

    Parameters
    ----------
    counts : array-like of shape (n_classes,)
        How often each class occurs, or its weight; two at least.

    Returns
    -------
    ndarray of int64, of shape (2·n_classes − 2, 2)
        Row v: inner node above v, and 0 if v is to its left, 1 if to its right. The
        classes are the vertices 0 … n_classes − 1, inner node j is the vertex
        n_classes + j; the last inner node, n_classes − 2, is the root and has no row.
        Inner nodes are numbered as they are made: a parent's number is the higher.

    Examples
    --------
    >>> from certus.text.huffman import huffman_tree
    >>> huffman_tree([5, 1, 2]).tolist()
    [[1, 1], [0, 0], [0, 1], [1, 0]]
    """
    k = len(counts)
    heap = [(float(count), leaf) for leaf, count in enumerate(counts)]
    heapq.heapify(heap)
    tree = np.empty((2 * k - 2, 2), dtype=np.int64)
    for node in range(k - 1):
        weight, left = heapq.heappop(heap)
        more, right = heapq.heappop(heap)
        tree[left], tree[right] = (node, 0), (node, 1)
        heapq.heappush(heap, (weight + more, k + node))
    return tree


def leaf_paths(tree: Array) -> Paths:
    """The nodes above each leaf, from the leaf up.

    Parameters
    ----------
    tree : ndarray
        As :func:`huffman_tree` returns it.

    Returns
    -------
    Paths
        Nodes (int32), sides (int8) and where each leaf's begin (int64).

    Examples
    --------
    >>> from certus.text.huffman import huffman_tree, leaf_paths
    >>> paths = leaf_paths(huffman_tree([5, 1, 2]))
    >>> paths.nodes.tolist(), paths.ends.tolist()
    ([1, 0, 1, 0, 1], [0, 1, 3, 5])
    """
    k = len(tree) // 2 + 1
    nodes: list[int] = []
    sides: list[int] = []
    ends = [0]
    above = tree.tolist()
    for leaf in range(k):
        vertex = leaf
        while vertex < len(above):
            node, side = above[vertex]
            nodes.append(node)
            sides.append(side)
            vertex = k + node
        ends.append(len(nodes))
    return Paths(
        np.array(nodes, dtype=np.int32),
        np.array(sides, dtype=np.int8),
        np.array(ends, dtype=np.int64),
    )


def leaf_log_probabilities(tree: Array, scores: Array) -> Array:
    """Logarithm of each class's probability; they sum to 1 over the classes.

    Parameters
    ----------
    tree : ndarray
        As :func:`huffman_tree` returns it.
    scores : ndarray of shape (n_samples, n_classes - 1)
        One score per inner node.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)

    Examples
    --------
    >>> import numpy as np
    >>> from certus.text.huffman import huffman_tree, leaf_log_probabilities
    >>> tree = huffman_tree([5, 1, 2])
    >>> np.exp(leaf_log_probabilities(tree, np.zeros((1, 2))))
    array([[0.5 , 0.25, 0.25]])
    """
    k = len(tree) // 2 + 1
    right = -np.logaddexp(0.0, -scores.T)
    left = -np.logaddexp(0.0, scores.T)
    reached = np.zeros((2 * k - 1, len(scores)))
    for vertex in range(2 * k - 3, -1, -1):  # a parent before its children
        node, side = tree[vertex]
        reached[vertex] = reached[k + node] + (right if side else left)[node]
    return np.ascontiguousarray(reached[:k].T)
