"""Contributions for tree ensembles, exactly, on the scale on which trees are added.

Models of scikit-learn, LightGBM and XGBoost are read as arrays. They are used only if
the arrays give the same predictions as the model for all rows and background rows.
"""

from __future__ import annotations

from math import comb
from typing import Any, NamedTuple

import numpy as np

from certus._core.threads import Stop, run_blocks, slices
from certus.ensemble import read_rows, read_trees
from certus.explanations.games import MixingGame
from certus.trees import TreeEnsemble
from certus.typing import Array

#: Rows that walk together, and groups of trees, each with sums of its own.
PIECE, GROUPS = 2048, 8
#: Cells of one copy of the result, above which trees are not shared out.
LARGE = 1 << 22


class ReadTrees(NamedTuple):
    """The arrays, and rows and background as the trees see them."""

    trees: Any
    rows: Array
    behind: Array


def trees_of(game: MixingGame) -> ReadTrees | None:
    """The model's trees, if it has any and they give what is explained."""
    if game.owner is None:
        return None
    try:
        trees = read_trees(game.inner)
        Z = np.asarray(read_rows(game.inner, game.table), dtype=np.float64)
    except (TypeError, ValueError, NotImplementedError):
        return None
    if trees.n_outputs != game.k or trees.n_features != len(game.owner):
        trees = _last_class(trees, game)
        if trees is None:
            return None
    if trees.single:
        Z = Z.astype(np.float32).astype(np.float64)
    size = np.abs(game.answers).max()
    if not np.allclose(trees.scores(Z), game.answers, rtol=0, atol=1e-5 * size):
        return None
    return ReadTrees(trees, Z[: game.rows.n], Z[game.rows.n :])


def _last_class(trees: TreeEnsemble, game: MixingGame) -> Any:
    """Of a forest for two classes, the shares of the second one."""
    shares = trees.n_outputs == 2 and game.k == 1 and trees.link == "shares"
    if not shares or trees.n_features != len(np.asarray(game.owner)):
        return None
    part = {"value": trees.value[:, 1:], "baseline": trees.baseline[1:]}
    output = np.zeros(len(trees.roots), dtype=np.int32)
    return type(trees)(**{**trees.as_dict(), **part, "output": output})


def tree_contributions(game: MixingGame, read: ReadTrees) -> Array | None:
    """Contributions of shape (rows, columns, outputs); None if a path is too long."""
    from certus.explanations.shapley_kernels import add_trees

    trees, owner = read.trees, np.asarray(game.owner, dtype=np.int64)
    n, m, d, k = game.rows.n, game.rows.m, game.d, game.k
    deepest = depth_of(trees)
    up, down = _weights(min(deepest, 62))
    BT = np.ascontiguousarray(read.behind.T)
    out = np.zeros((n, d, k))
    fine = []
    groups = GROUPS if min(n, PIECE) * d * k <= LARGE else 1
    parts = slices(trees.n_trees, -(-trees.n_trees // groups))
    for piece in slices(n, PIECE):
        XT = np.ascontiguousarray(read.rows[piece].T)
        sums = [np.zeros((XT.shape[1], d, k)) for _ in parts]

        def work(t: int, stop: Stop, XT: Array = XT, sums: list[Array] = sums) -> None:
            fine.append(
                add_trees(
                    *(parts[t].start, parts[t].stop, trees.feature, trees.threshold),
                    *(trees.left, trees.right, trees.value, trees.missing_left),
                    *(trees.other_left, trees.category, trees.bits, trees.roots),
                    *(trees.output, owner, XT, BT, up, down, deepest, sums[t]),
                )
            )

        run_blocks(work, range(len(parts)))
        for each in sums:
            out[piece] += each
    out /= m * trees.divisor
    return out if all(fine) else None


def depth_of(trees: TreeEnsemble) -> int:
    """Steps from a root to the deepest leaf."""
    level, depth = np.asarray(trees.roots), -1
    while len(level):
        inner = level[trees.feature[level] >= 0]
        level = np.concatenate([trees.left[inner], trees.right[inner]])
        depth += 1
    return max(depth, 1)


def _weights(most: int) -> tuple[Array, Array]:
    """(p − 1)! q! / (p + q)! and p! (q − 1)! / (p + q)!."""
    up, down = np.zeros((most + 1, most + 1)), np.zeros((most + 1, most + 1))
    for p in range(most + 1):
        for q in range(most + 1):
            up[p, q] = 1 / (p * comb(p + q, q)) if p else 0.0
            down[p, q] = 1 / (q * comb(p + q, p)) if q else 0.0
    return up, down
