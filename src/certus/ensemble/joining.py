"""From the trees of a library, one by one, to the arrays of a ``TreeEnsemble``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus.trees import TreeEnsemble
from certus.typing import Array


class ReadTree(NamedTuple):
    """The nodes of one tree, numbered from 0, the root; a leaf has the feature −1."""

    feature: Array
    threshold: Array
    left: Array
    right: Array
    value: Array  # (nodes,) or (nodes, outputs)
    missing_left: Array
    #: Sets of categories that go left, by node: words of 32 bits, and others' side.
    sets: dict[int, tuple[Array, bool]] = {}  # noqa: RUF012 - never written to


def join(trees: list[ReadTree], **rest: Any) -> TreeEnsemble:
    """All trees in one list of nodes; ``rest`` are the other fields of the ensemble."""
    trees = [_in_order(tree) for tree in trees]
    sizes = np.array([len(tree.feature) for tree in trees], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n, words = (
        int(starts[-1]),
        [bits for tree in trees for bits, _ in tree.sets.values()],
    )
    bits = np.zeros((len(words), max(map(len, words), default=0)), dtype=np.uint32)
    category, other = np.full(n, -1), np.zeros(n, dtype=bool)
    count = 0
    for tree, start in zip(trees, starts):
        for node, (found, rest_left) in tree.sets.items():
            bits[count, : len(found)] = found
            if rest_left:  # words that this set does not have
                bits[count, len(found) :] = np.uint32(0xFFFFFFFF)
            category[start + node], other[start + node] = count, rest_left
            count += 1
    shifts = np.repeat(starts[:-1], sizes)

    def side(name: str) -> Array:
        each = np.concatenate([getattr(tree, name) for tree in trees]).astype(np.int64)
        return np.where(each < 0, -1, each + shifts)

    def together(name: str) -> Array:
        return np.concatenate([getattr(tree, name) for tree in trees])

    value = together("value").astype(np.float64)
    return TreeEnsemble(
        feature=together("feature"),
        threshold=together("threshold"),
        left=side("left"),
        right=side("right"),
        value=value.reshape(n, -1),
        missing_left=together("missing_left"),
        other_left=other,
        category=category,
        bits=bits,
        roots=starts[:-1],
        **rest,
    )


def _in_order(tree: ReadTree) -> ReadTree:
    """The tree with its children after their parents and without unused nodes."""
    left, right = np.asarray(tree.left), np.asarray(tree.right)
    split = np.flatnonzero(tree.feature >= 0)
    if (left[split] > split).all() and (right[split] > split).all():
        return tree
    order, level = [], [0]
    while level:
        order += level
        level = [
            int(s[i]) for i in level if tree.feature[i] >= 0 for s in (left, right)
        ]
        if len(order) > len(tree.feature):
            raise ValueError(
                "A tree of this model is damaged, because its nodes form a cycle. Fit "
                "the model again, or restore its file."
            )
    at = np.full(len(left) + 1, -1)
    at[order] = np.arange(len(order))
    places = {node: at[node] for node in tree.sets}
    return ReadTree(
        tree.feature[order],
        tree.threshold[order],
        at[left[order]],
        at[right[order]],
        tree.value[order],
        tree.missing_left[order],
        {int(places[node]): found for node, found in tree.sets.items()},
    )


def words_of(codes: Any, n_words: int | None = None) -> Array:
    """A set of categories as words of 32 bits."""
    codes = np.asarray(codes, dtype=np.int64)
    size = int(codes.max(initial=-1)) // 32 + 1 if n_words is None else n_words
    words = np.zeros(size, dtype=np.uint32)
    np.bitwise_or.at(words, codes // 32, np.uint32(1) << (codes % 32).astype(np.uint32))
    return words
