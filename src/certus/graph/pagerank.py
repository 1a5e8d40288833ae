"""Personalised PageRank: how often a walk that returns to some nodes visits each.

    π = (1 − damping)·v + damping·Pᵀπ,   p_ij = a_ij/Σ_k a_ik

v is where a walk begins again; from a node without edges it begins again at once.
Iteration shrinks the error by the factor ``damping`` in each step, in the 1-norm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from certus.base import Fitted, Model, certified_fit, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.edge_kernels import product
from certus.edges import read_graph
from certus.typing import Array, Column, GraphLike


class PersonalizedPageRank(Model):
    """Ranks the nodes of a graph by how near they are to some of them.

    Objective
    ---------
    π = (1 − damping)·v + damping·Pᵀπ, a linear system.

    Certificate
    -----------
    ``pagerank_error`` (PROVED, bounded by ``tol``): ‖π − π*‖₁, the errors of all scores
    added up, from the residual over 1 − damping.

    Parameters
    ----------
    damping : float, default=0.85
        Probability that a walk goes on, below 1.
    max_iter : int, default=1000
        Maximum number of iterations.
    tol : float, default=1e-8
        Target of the certificate's primary claim.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    warm_start : bool, default=False
        Whether to start from the last fit.

    Attributes
    ----------
    scores_ : ndarray of shape (n_nodes,)
        Share of the steps that visit each node.
    graph_ : csr_array of shape (n_nodes, n_nodes)
        Weights of the edges, row to column.
    personalization_ : ndarray of shape (n_nodes,)
        v: where walks begin, shares that add up to one.
    n_iter_ : int
        Iterations made.
    history_ : dict
        Residual and seconds after each iteration.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.graph import PersonalizedPageRank
    >>> model = PersonalizedPageRank().fit([(0, 1), (1, 2), (2, 0), (3, 0)], {3: 1.0})
    >>> model.scores_.round(3), model.certificate_.met
    (array([0.33 , 0.281, 0.239, 0.15 ]), True)
    """

    def __init__(
        self,
        damping: float = 0.85,
        *,
        max_iter: int = 1000,
        tol: float = 1e-8,
        max_time: float | None = None,
        warm_start: bool = False,
    ) -> None:
        self.damping = damping
        self.max_iter = max_iter
        self.tol = tol
        self.max_time = max_time
        self.warm_start = warm_start

    @certified_fit
    def fit(self, graph: GraphLike, y: Column = None) -> Any:
        """Rank the nodes.

        Parameters
        ----------
        graph : sparse matrix, array, list of edges, networkx graph or PyG Data
            Edges, whose direction counts where they have one.
        y : array-like of shape (n_nodes,) or dict, optional
            Where walks begin: a weight for each node, or a dict from nodes to weights.
            By default everywhere.
        """
        check_number("damping", self.damping, 0, 1)
        if self.damping == 1:
            raise ValueError("damping must be below 1, got 1.")
        check_number("max_iter", self.max_iter, 1, integer=True)
        check_number("tol", self.tol)
        check_number("max_time", self.max_time, none=True)
        A, names = read_graph(graph, directed=True)
        v = _beginnings(y, A.shape[0], names)
        monitor = Monitor(self, graph, None, max_time=self.max_time)
        out = np.asarray(A.sum(axis=1)).ravel()
        back = sparse.csr_array(A.T)
        share = np.divide(1.0, out, out=np.zeros_like(out), where=out > 0)
        damping, stop = float(self.damping), out == 0
        pi, status = self._first(v), Status.MAX_ITER
        for step in range(1, int(self.max_iter) + 1):
            self.n_iter_ = step
            new = damping * (product(back, pi * share) + pi[stop].sum() * v)
            new += (1 - damping) * v
            moved = float(np.abs(new - pi).sum())
            pi = new / new.sum()
            ended = monitor.step(moved, math.nan)
            # Far below the target: rounding is all that is left.
            if moved <= max(1e-15, 1e-3 * float(self.tol) * (1 - damping)):
                status = Status.SOLVED
                break
            if ended is not None:
                status = ended
                break
        self.scores_, self.graph_, self.personalization_ = pi, A, v
        self.history_ = monitor.history
        monitor.close({})
        return Fitted(Evidence("pagerank"), (None, graph), y, None, status)

    def _first(self, v: Array) -> Array:
        """Where the iteration begins: v, or the scores of the last fit."""
        last = getattr(self, "scores_", None) if self.warm_start else None
        return v.copy() if last is None or last.shape != v.shape else last.copy()


def _beginnings(y: Column, n: int, names: list[Any] | None) -> Array:
    """Shares of the walks that begin at each node."""
    if y is None:
        return np.full(n, 1.0 / n)
    if isinstance(y, Mapping):
        place = {name: i for i, name in enumerate(range(n) if names is None else names)}
        odd = [name for name in y if name not in place]
        if odd:
            raise ValueError(f"y names the node {odd[0]!r}, which graph does not have.")
        v = np.zeros(n)
        for name, weight in y.items():
            v[place[name]] = float(weight)
    else:
        v = np.asarray(y, dtype=np.float64)
    if v.shape != (n,):
        raise ValueError(f"y has shape {v.shape}, but graph has {n} nodes.")
    if not np.isfinite(v).all() or v.min() < 0 or not v.any():
        raise ValueError("y must be finite, not negative and not all zero.")
    return np.asarray(v / v.sum())
