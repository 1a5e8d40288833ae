"""The best tree: no other tree of dependences makes the rows more probable.

For a tree with empirical tables the mean log-likelihood is Σ I(x_j; x_parent(j)) minus
the entropies of the columns, which no tree changes. So the best tree is a maximum
spanning tree of the mutual information I. The verifier counts the cells again, grows a
spanning tree by the heaviest edge across each cut, and states how much more that one
has: a bound in nats per row.

Rounding: each I is a sum of m terms p·log(p/q), hence right to γ_{m+8} times the sum of
their sizes, with sizes p·(|log p/q| + 3).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim
from certus.typing import Array, Fit
from certus.verify import deciding as bd
from certus.verify import stating
from certus.verify.data import fitted, marks_of
from certus.verify.deciding import Number, gamma
from certus.verify.stating import Checked, Given

#: Largest shortfall of a tree, in nats per row, and largest difference of a table.
SHORT, SAME = 1e-9, 1e-9


class Statement(NamedTuple):
    """A tree over cells whose tables are pulled to the marginals by some rows."""

    smoothing: float


def _read(model: Fit) -> Statement:
    if not stating.is_number(model.smoothing):
        raise stating.Refusal(f"smoothing={model.smoothing!r:.40} is not a number")
    return Statement(float(model.smoothing))


READERS: dict[str, stating.Reader] = {"ChowLiuTree": _read}


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge the edges of a tree, and its tables."""
    X = np.asarray(given.X)
    bd.refuse_weights(model, given.sample_weight)
    marks = marks_of(X, None, None)
    parents = fitted(model, "parents_", (X.shape[1],)).astype(np.int64)
    sizes = fitted(model, "n_cells_", (X.shape[1],)).astype(np.int64)
    codes = _cells(X, sizes)
    claims = [_tree_claim(codes, sizes, parents)]
    claims.append(_table_claim(model, codes, sizes, parents, stated.smoothing))
    return claims, bd.verdict(claims), marks


def _cells(X: Array, sizes: Array) -> Array:
    """The cells as whole numbers; all of them must be cells of the model."""
    codes = np.asarray(X, dtype=np.float64)
    whole = codes.ndim == 2 and bool(np.all(codes == np.floor(codes)))
    if not whole or not np.all((codes >= 0) & (codes < sizes)):
        raise ValueError(
            "X must hold the numbers of cells, from 0 to n_cells_ − 1 in each column."
        )
    return codes.astype(np.int64)


def information(a: Array, b: Array, k: int, m: int) -> Number:
    """I(a; b) in nats, with a bound of its rounding."""
    n = len(a)
    table = np.zeros((k, m))
    np.add.at(table, (a, b), 1.0)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    i, j = np.nonzero(table)
    p = table[i, j] / n
    logs = np.log(table[i, j] * n / (rows[i] * columns[j]))
    sizes = math.fsum(p * (np.abs(logs) + 3))
    return Number(math.fsum(p * logs), gamma(len(p) + 8) * sizes)


def _tree_claim(codes: Array, sizes: Array, parents: Array) -> Claim:
    d = len(parents)
    stating.require(_is_tree(parents), "its parents do not make a tree")
    weights, off = np.zeros((d, d)), 0.0
    for i in range(d):
        for j in range(i):
            found = information(codes[:, i], codes[:, j], int(sizes[i]), int(sizes[j]))
            weights[i, j] = weights[j, i] = found.value
            off = max(off, found.rounding)
    edges = [(j, int(p)) for j, p in enumerate(parents) if p >= 0]
    own = math.fsum(weights[i, j] for i, j in edges)
    best = _heaviest(weights)
    gap = Number(max(0.0, best - own), 2 * max(1, d) * (off + 1e-15 * max(1.0, best)))
    return bd.proved(
        *("best_tree", gap, SHORT),
        f"no other tree of {d} columns makes the rows more probable ({own:.4f} nats "
        "per row above independent columns)",
        missed=f"another tree makes the rows more probable, by {gap.value:.2g} nats "
        "per row",
        objective="max over trees of Σ I(x_j; x_parent) − that of this tree",
        theorem="the heaviest edge across each cut belongs to a maximum spanning tree, "
        "and that tree has the largest likelihood (Chow and Liu)",
        fix="fit it again",
    )


def _is_tree(parents: Array) -> bool:
    """Whether there is one root, which every column reaches."""
    d = len(parents)
    if np.sum(parents < 0) != 1 or np.any(parents >= d):
        return False
    at = np.arange(d)
    for _ in range(d):
        at = np.where(parents[at] < 0, at, parents[at])
    return bool(np.all(parents[at] < 0))


def _heaviest(weights: Array) -> float:
    """The weight of a maximum spanning tree, cut by cut."""
    inside = np.zeros(len(weights), dtype=bool)
    inside[0], taken = True, []
    while not inside.all():
        cut = np.where(inside[:, None] & ~inside[None, :], weights, -1.0)
        place = int(np.argmax(cut))
        taken.append(float(cut.flat[place]))
        inside[place % len(weights)] = True
    return math.fsum(taken)


def _table_claim(
    model: Fit, codes: Array, sizes: Array, parents: Array, smoothing: float
) -> Claim:
    """Whether the tables are those of the counts, smoothed as stated."""
    n, worst = len(codes), 0.0
    tables: Any = model.tables_
    stating.require(len(tables) == len(parents), "it has another number of tables")
    for j, parent in enumerate(parents.tolist()):
        k = int(sizes[j])
        share = (np.bincount(codes[:, j], minlength=k) + 1.0 / k) / (n + 1)
        wanted = share
        if parent >= 0:
            pairs = np.zeros((int(sizes[parent]), k))
            np.add.at(pairs, (codes[:, parent], codes[:, j]), 1.0)
            rows = pairs.sum(axis=1, keepdims=True)
            wanted = (pairs + smoothing * share) / np.maximum(rows + smoothing, 1e-300)
        own = np.asarray(tables[j], dtype=np.float64)
        stating.require(own.shape == wanted.shape, "a table has another shape")
        apart = np.abs(own - wanted).max(initial=0.0)
        worst = max(worst, math.inf if np.isnan(apart) else float(apart))
    return bd.proved(
        *("tree_tables", Number(worst, gamma(16)), SAME),
        "the tables are the counts of the rows, smoothed as stated",
        missed=f"a probability differs from the counts by {worst:.2g}",
        objective="max |P(x_j | parent) − (n_pc + s·q_c)/(n_p + s)|",
        theorem="all cells were counted again",
        fix="fit it again",
    )
