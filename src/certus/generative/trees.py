"""Distributions that are trees: the best one for given cells, and exact draws from it.

P(x) = P(x_r) ∏ P(x_j | x_parent(j)). Of all trees, the one with the largest sum of the
mutual information of its edges has the largest likelihood (Chow and Liu, 1968), and it
is a maximum spanning tree. Its tables are pulled towards the marginals by ``smoothing``
rows, so that a cell of one or two rows does not repeat them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from certus.typing import Array

__all__ = [
    "TreeLaw",
    "chow_liu",
    "mutual_information_matrix",
    "spanning_tree",
    "tables_of",
]


class TreeLaw(NamedTuple):
    """Parents (−1 for the root), an order from the root, and the tables.

    ``tables[j]`` is P(x_j) for the root and P(x_j | parent), a row for each cell of the
    parent, for other columns.
    """

    parents: Array
    order: Array
    tables: list[Array]

    def log_prob(self, codes: Array) -> Array:
        """The log-probability of rows of cells."""
        total = np.zeros(len(codes))
        with np.errstate(divide="ignore"):
            for j, parent in enumerate(self.parents.tolist()):
                table, own = self.tables[j], codes[:, j]
                p = table[own] if parent < 0 else table[codes[:, parent], own]
                total += np.log(p)
        return total

    def draw(self, allowed: list[Array], rng: np.random.Generator) -> Array:
        """Draw the cells of each row, given weights of the cells of each column.

        Messages go from the leaves to the root, and draws from the root to the leaves:
        exact, whatever is given.
        """
        beliefs = [part.copy() for part in allowed]
        for j in self.order[:0:-1].tolist():
            message = beliefs[j] @ self.tables[j].T
            beliefs[self.parents[j]] *= message
        codes = np.zeros((len(allowed[0]), len(allowed)), dtype=np.int64)
        for j in self.order.tolist():
            parent = self.parents[j]
            table = self.tables[j]
            p = table if parent < 0 else table[codes[:, parent]]
            codes[:, j] = _pick(beliefs[j] * p, rng)
        return codes


def _pick(weights: Array, rng: np.random.Generator) -> Array:
    """One cell of each row, by weight."""
    total = np.cumsum(weights, axis=1)
    if not (total[:, -1] > 0).all():
        raise ValueError("these conditions have probability zero. Change one of them.")
    u = rng.random(len(total)) * total[:, -1]
    return np.minimum((total <= u[:, None]).sum(axis=1), weights.shape[1] - 1)


def mutual_information_matrix(codes: Array, sizes: list[int]) -> Array:
    """The mutual information of each pair of columns, in nats."""
    n, d = codes.shape
    found = np.zeros((d, d))
    shares = [np.bincount(codes[:, j], minlength=k) / n for j, k in enumerate(sizes)]
    for i in range(d):
        for j in range(i):
            k = sizes[j]
            both = np.bincount(codes[:, i] * k + codes[:, j], minlength=sizes[i] * k)
            cells = np.flatnonzero(both)
            p = both[cells] / n
            q = shares[i][cells // k] * shares[j][cells % k]
            found[i, j] = found[j, i] = max(0.0, float(p @ np.log(p / q)))
    return found


def spanning_tree(weights: Array) -> tuple[Array, Array]:
    """Parents and order of a maximum spanning tree, by Prim's method."""
    d = len(weights)
    parents = np.full(d, -1)
    order = [int(np.argmax(weights.sum(axis=0)))]
    best, source = weights[order[0]].copy(), np.full(d, order[0])
    outside = np.ones(d, dtype=bool)
    outside[order[0]] = False
    while outside.any():
        j = int(np.argmax(np.where(outside, best, -np.inf)))
        parents[j] = source[j]
        order.append(j)
        outside[j] = False
        nearer = weights[j] > best
        best, source = np.where(nearer, weights[j], best), np.where(nearer, j, source)
    return parents, np.array(order)


def tables_of(
    codes: Array, sizes: list[int], parents: Array, smoothing: float
) -> list[Array]:
    """P(x_j | parent) = (n_pc + s·q_c)/(n_p + s), q_c = (n_c + 1/k)/(n + 1)."""
    n, tables = len(codes), []
    for j, parent in enumerate(parents.tolist()):
        k = sizes[j]
        q = (np.bincount(codes[:, j], minlength=k) + 1 / k) / (n + 1)
        if parent < 0:
            tables.append(q)
            continue
        pairs = codes[:, parent] * k + codes[:, j]
        counts = np.bincount(pairs, minlength=sizes[parent] * k).reshape(-1, k)
        rows = counts.sum(axis=1, keepdims=True)
        tables.append((counts + smoothing * q) / np.maximum(rows + smoothing, 1e-300))
    return tables


def chow_liu(codes: Array, sizes: list[int], smoothing: float) -> TreeLaw:
    """The best tree for these rows of cells."""
    parents, order = spanning_tree(mutual_information_matrix(codes, sizes))
    return TreeLaw(parents, order, tables_of(codes, sizes, parents, smoothing))
