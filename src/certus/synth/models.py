"""Generators of levels: rows in the unit cube, one coordinate for each column.

A generator is a dataclass of arrays with two methods, and a third if it can condition:

    fit(U, cells, rng)          U of shape (n, d); the ends of each column's cells
    sample(n, rng)              rows of levels
    complete(low, high, rng)    rows of levels within boxes, given each row's box

A generator of another package joins by a row in ``MODELS``; without ``complete``,
conditions are met by drawing until enough rows meet them. One with a field ``smooth``
learns which columns hold numbers between which others lie.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from scipy.special import ndtr, ndtri

from certus.generative.trees import TreeLaw, chow_liu
from certus.synth.levels import place_of
from certus.synth.networks import AutoregressiveModel, DiffusionModel, FlowModel
from certus.typing import Array

__all__ = [
    "MODELS",
    "GaussianCopula",
    "Generator",
    "SequentialCart",
    "TreeModel",
    "generator_from",
    "state_of",
]

#: Levels are kept this far from 0 and 1, where normal quantiles are infinite.
_END = 1e-6
#: Sweeps over the columns with a condition.
_SWEEPS = 25
#: Fewest training rows in a leaf of a sequential tree, as in synthpop.
_LEAF = 5


class Generator(Protocol):
    """What a generator of levels must do."""

    def fit(self, U: Array, cells: list[Array], rng: np.random.Generator) -> Self:
        """Learn from rows of levels."""

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw rows of levels."""


@dataclass
class TreeModel:
    """The best tree of dependences between cells, with smoothed tables."""

    smoothing: float = 5.0
    law: TreeLaw | None = None
    cells: list[Array] = field(default_factory=list)

    def fit(self, U: Array, cells: list[Array], rng: np.random.Generator) -> Self:
        """Count cells, and keep the tree with the largest mutual information."""
        codes = np.column_stack([place_of(e, u) for e, u in zip(cells, U.T)])
        sizes = [len(edges) - 1 for edges in cells]
        self.law = chow_liu(codes, sizes, self.smoothing)
        self.cells = cells
        return self

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw rows of levels."""
        d = len(self.cells)
        return self.complete(np.zeros((n, d)), np.ones((n, d)), rng)

    def complete(self, low: Array, high: Array, rng: np.random.Generator) -> Array:
        """Draw rows within boxes, from the tree's exact conditional distribution."""
        if self.law is None:
            raise ValueError("fit the tree first.")
        allowed = [
            _overlap(edges, low[:, j], high[:, j]) for j, edges in enumerate(self.cells)
        ]
        codes = self.law.draw(allowed, rng)
        out = np.empty(low.shape)
        for j, edges in enumerate(self.cells):
            a = np.maximum(edges[codes[:, j]], low[:, j])
            b = np.minimum(edges[codes[:, j] + 1], high[:, j])
            out[:, j] = a + (b - a) * rng.random(len(a))
        return out


def _overlap(edges: Array, low: Array, high: Array) -> Array:
    """The share of each cell that lies in each row's box; a point counts whole."""
    a = np.maximum(edges[:-1], low[:, None])
    b = np.minimum(edges[1:], high[:, None])
    share = np.clip((b - a) / np.diff(edges), 0.0, 1.0)
    point = high <= low
    share[point] = 0.0
    share[np.flatnonzero(point), place_of(edges, low[point])] = 1.0
    return np.asarray(share)


@dataclass
class GaussianCopula:
    """Normal scores of the levels, with their correlations."""

    correlation: Array = field(default_factory=lambda: np.eye(1))

    def fit(self, U: Array, cells: list[Array], rng: np.random.Generator) -> Self:
        """Correlate normal scores; constant columns correlate with none."""
        Z = ndtri(np.clip(U, _END, 1 - _END))
        Z = Z - Z.mean(axis=0)
        C = Z.T @ Z / max(1, len(Z))
        scale = np.sqrt(np.maximum(np.diag(C), 1e-12))
        d, n = U.shape[1], len(U)
        kept = n / (n + d)  # shrunk a little, so that it has an inverse
        self.correlation = kept * C / np.outer(scale, scale)
        np.fill_diagonal(self.correlation, 1.0)
        return self

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw rows of levels."""
        L = np.linalg.cholesky(self.correlation)
        return np.asarray(ndtr(rng.normal(size=(n, len(L))) @ L.T))

    def complete(self, low: Array, high: Array, rng: np.random.Generator) -> Array:
        """Draw rows within boxes, column by column from normal conditionals (Gibbs)."""
        bound = (low > 0) | (high < 1)
        P = np.linalg.inv(self.correlation)
        U = low + (high - low) * rng.random(low.shape)
        U = np.where(bound, U, self.sample(len(low), rng))
        Z = ndtri(np.clip(U, _END, 1 - _END))
        a, b = (ndtri(np.clip(end, _END, 1 - _END)) for end in (low, high))
        for _ in range(_SWEEPS):
            for j in range(len(P)):
                spread = 1 / np.sqrt(P[j, j])
                mean = Z[:, j] - (Z @ P[:, j]) / P[j, j]
                ends = ndtr((a[:, j] - mean) / spread), ndtr((b[:, j] - mean) / spread)
                u = ends[0] + (ends[1] - ends[0]) * rng.random(len(Z))
                drawn = mean + spread * ndtri(np.clip(u, 1e-12, 1 - 1e-12))
                Z[:, j] = np.clip(drawn, a[:, j], b[:, j])
        return np.asarray(np.clip(ndtr(Z), low, high))


@dataclass
class SequentialCart:
    """Each column from a regression tree on those before it; a leaf's rows are donors.

    It repeats values of its training rows, and with them often whole rows: a baseline
    for comparison.
    """

    exact, baseline = True, True
    values: Array = field(default_factory=lambda: np.zeros((0, 0)))
    trees: list[dict[str, Array]] = field(default_factory=list)

    def fit(self, U: Array, cells: list[Array], rng: np.random.Generator) -> Self:
        """Fit a tree for each column but the first."""
        from sklearn.tree import DecisionTreeRegressor

        self.values, self.trees = U, []
        for j in range(1, U.shape[1]):
            seed = int(rng.integers(2**31))
            leaf = min(_LEAF, len(U))
            model = DecisionTreeRegressor(min_samples_leaf=leaf, random_state=seed)
            model.fit(U[:, :j], U[:, j])
            at, tree = model.apply(U[:, :j]), model.tree_
            order = np.argsort(at, kind="stable")
            begin = np.searchsorted(at[order], np.arange(tree.node_count + 1))
            self.trees.append(
                {
                    "left": tree.children_left.copy(),
                    "right": tree.children_right.copy(),
                    "feature": tree.feature.copy(),
                    "threshold": tree.threshold.copy(),
                    "rows": order,
                    "begin": begin,
                }
            )
        return self

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw rows of levels, each level that of a training row."""
        out = np.empty((n, self.values.shape[1]))
        out[:, 0] = self.values[rng.integers(len(self.values), size=n), 0]
        for j, tree in enumerate(self.trees, start=1):
            leaf = _leaf_of(tree, out[:, :j])
            low, high = tree["begin"][leaf], tree["begin"][leaf + 1]
            donor = low + np.floor((high - low) * rng.random(n)).astype(int)
            out[:, j] = self.values[tree["rows"][donor], j]
        return out


def _leaf_of(tree: dict[str, Array], X: Array) -> Array:
    X = X.astype(np.float32)  # as the tree compared them
    at = np.zeros(len(X), dtype=np.int64)
    while True:
        inner = np.flatnonzero(tree["left"][at] >= 0)
        if not len(inner):
            return at
        node = at[inner]
        goes = X[inner, tree["feature"][node]] <= tree["threshold"][node]
        at[inner] = np.where(goes, tree["left"][node], tree["right"][node])


def state_of(model: Any) -> dict[str, Any]:
    """The fields of a generator as plain values and arrays, for model files."""
    state = dict(vars(model))
    law = state.pop("law", None)
    return state if law is None else state | law._asdict()


def generator_from(name: str, state: dict[str, Any]) -> Any:
    """The generator whose fields these are."""
    if "parents" in state:
        law = TreeLaw(*(state[field] for field in TreeLaw._fields))
        return TreeModel(state["smoothing"], law, state["cells"])
    return MODELS[name](**state)


#: The generators by name.
MODELS: dict[str, Any] = {
    "tree": TreeModel,
    "copula": GaussianCopula,
    "autoregressive": AutoregressiveModel,
    "flow": FlowModel,
    "diffusion": DiffusionModel,
    "cart": SequentialCart,
}
