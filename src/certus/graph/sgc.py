"""Simple graph convolution: a logistic regression on features mixed along the graph.

    Z = Q^k X,   minimise over W, b:  Σ ℓ(yᵢ, Wzᵢ + b) + Ω(W)/C  over labelled nodes

A network of k layers without activations between them is the same. The mixing is done
once, and what is left is convex: the fit has a duality gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from certus._solvers.problem import Solution, Start
from certus.base import Estimator, Fitted, certified_fit, check_number, class_codes
from certus.callbacks import Monitor
from certus.certificate import Status
from certus.edges import class_places, read_labels
from certus.graph.filters import mixed, renormalized
from certus.graph.joining import nodes_to_predict, read_nodes
from certus.linear_model.common import check_limits, class_weights, limits_of
from certus.linear_model.logistic import (
    check_classes,
    evidence_of,
    make_rows,
    penalty_of,
    solve_logistic,
    store_logistic,
)
from certus.typing import (
    Array,
    ClassWeight,
    CompressedMatrix,
    GraphLike,
    Matrix,
    MatrixLike,
    NodeLabels,
)

#: Fitted attributes that predictions need.
_LEARNED = ("classes_", "coef_", "intercept_", "graph_", "X_")


class SGCClassifier(ClassifierMixin, Estimator):
    """Classifies nodes by a logistic regression on mixed features.

    Objective
    ---------
    Σ ℓ(yᵢ, Wzᵢ + b) + ‖W‖²/(2C) over nodes with a label, Z = Q^n_steps X with
    Q = D̃^{-1/2}(A + I)D̃^{-1/2}.

    Certificate
    -----------
    ``duality_gap`` (PROVED, bounded by ``tol``), relative to the best constant model,
    on features that the verifier mixes itself. ``equivariance`` and ``stated_labels``
    (PROVED): probabilities and labels of all nodes are those of the coefficients, so
    that the numbers of the nodes do not matter. ``spectrum`` (PROVED): mixing never
    enlarges a signal. See :func:`certus.graph.node_accuracy` for
    how often new labels agree.

    Parameters
    ----------
    n_steps : int, default=2
        Number of steps along edges that features are averaged over.
    C : float, default=1.0
        Inverse strength of the penalty. Mixed features are small where each node has
        one of its own: raise C there.
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the row weights.
    n_neighbors : int, default=7
        Number of neighbours. They make the graph where none is passed.
    max_iter : int, default=100
        Maximum number of iterations.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    warm_start : bool, default=False
        Whether to start from the last fit.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients of the mixed features.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Constants.
    graph_ : csr_array of shape (n_nodes, n_nodes)
        Adjacency of the fit.
    X_ : array, sparse matrix or None
        Features of the nodes; None where each has one of its own.
    classes_ : ndarray
        Classes, without −1.
    label_distributions_ : ndarray of shape (n_nodes, n_classes)
        Probabilities of the classes of each node.
    transduction_ : ndarray of shape (n_nodes,)
        The most probable class of each node.
    n_iter_ : ndarray
        Iterations of the solver.
    history_ : dict
        Objective, gap and seconds after each iteration.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.graph import SGCClassifier, stochastic_block_model
    >>> A, groups = stochastic_block_model(
    ...     [40, 40], [[0.3, 0.02], [0.02, 0.3]], random_state=0
    ... )
    >>> model = SGCClassifier().fit(None, {0: "left", 79: "right"}, graph=A)
    >>> bool((model.transduction_[:40] == "left").mean() > 0.9), model.certificate_.met
    (True, True)
    """

    def __init__(
        self,
        n_steps: int = 2,
        *,
        C: float = 1.0,
        fit_intercept: bool = True,
        class_weight: ClassWeight = None,
        n_neighbors: int = 7,
        max_iter: int = 100,
        tol: float = 1e-6,
        max_time: float | None = None,
        warm_start: bool = False,
    ) -> None:
        self.n_steps = n_steps
        self.C = C
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.n_neighbors = n_neighbors
        self.max_iter = max_iter
        self.tol = tol
        self.max_time = max_time
        self.warm_start = warm_start

    @certified_fit
    def fit(
        self, X: MatrixLike | None, y: NodeLabels, *, graph: GraphLike | None = None
    ) -> Any:
        """Mix the features and fit the coefficients to the nodes that have a label.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_nodes, n_features) or None
            Features of the nodes. None stands for those of a PyG Data, or else for a
            feature of its own for each node.
        y : array-like of shape (n_nodes,) or dict
            Classes, −1 where there is no label; or a dict from a node to its class.
            Without a graph, −1 and one other label are two classes.
        graph : sparse matrix, array, list of edges, networkx graph or PyG Data, \
optional
            Edges between the nodes, without a direction. By default each row of X is
            joined to those near it.
        """
        check_number("n_steps", self.n_steps, 0, integer=True)
        check_number("n_neighbors", self.n_neighbors, 1, integer=True)
        check_number("C", self.C, open_low=True)
        check_limits(self)
        given = X if graph is None else (X, graph)
        monitor = Monitor(self, X, y, max_time=self.max_time)
        A, features, names = read_nodes(self, X, graph)
        line = read_labels(y, A.shape[0], names)
        _, places = class_places(line, signs=graph is None)
        known = np.flatnonzero(places >= 0)
        self.classes_, codes = class_codes(np.array(line[known].tolist()))
        self.graph_, self.X_, Z = A, features, self._mixed(A, features)
        solution = self._solve(Z[known], codes, monitor)
        self.n_iter_ = np.array([solution.n_iter], dtype=np.int32)
        self.history_ = monitor.history
        scores = self._scores(Z)
        self.label_distributions_ = _probabilities(scores)
        self.transduction_ = self.classes_[_places(scores)]
        monitor.close(self._learned())
        told = y if isinstance(y, Mapping) else line
        return Fitted(evidence_of(solution), given, told, None, solution.status)

    def _solve(self, Z: Matrix, codes: Array, monitor: Monitor) -> Solution:
        """The logistic regression on mixed features of the nodes with a label."""
        k = len(self.classes_)
        dtype = np.float64 if self.X_ is None else self.X_.dtype
        weight = class_weights(None, self.class_weight, codes, self.classes_)
        rows = make_rows(Z, codes, k, weight)
        check_classes(rows, codes)

        def on_step(objective: float, gap: float, W: Array) -> Status | None:
            store_logistic(self, W, dtype)
            return monitor.step(objective, gap, self._learned)

        first = np.zeros((Z.shape[1] + 1, 1 if k == 2 else k))
        if self.warm_start and hasattr(self, "coef_"):
            last = np.vstack([self.coef_.T, self.intercept_])
            first = last.astype(np.float64) if last.shape == first.shape else first
        start = Start(first)
        penalty = penalty_of(float(self.C), 0.0, rows.total)
        limits, free = limits_of(self, on_step), bool(self.fit_intercept)
        solution, _ = solve_logistic(rows, k, penalty, free, start, limits)
        store_logistic(self, solution.primal, dtype)
        return solution

    def _learned(self) -> dict[str, Any]:
        """Fitted attributes that predictions need."""
        return {name: vars(self)[name] for name in _LEARNED}

    def _mixed(self, A: CompressedMatrix, X: Matrix | None) -> Any:
        X = sparse.eye_array(A.shape[0], format="csr") if X is None else X
        X = X.astype(np.float64)
        return mixed(renormalized(A), X, int(self.n_steps))

    def decision_function(
        self, X: MatrixLike | None = None, *, graph: GraphLike | None = None
    ) -> Array:
        """Scores Wz + b of nodes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_nodes, n_features), optional
            Features. None stands for the nodes of the fit. Without a graph, each row
            is joined to the nodes of the fit that are near it.
        graph : sparse matrix, array, list of edges, networkx graph or PyG Data, \
optional
            Edges between the rows of X, a graph of their own.

        Returns
        -------
        ndarray of shape (n_nodes,) or (n_nodes, n_classes)
            Positive numbers mean the second of two classes.
        """
        check_is_fitted(self, "coef_")
        A, features, places = nodes_to_predict(self, X, graph)
        return self._scores(self._mixed(A, features)[places])

    def _scores(self, Z: Array) -> Array:
        scores = np.asarray(Z @ self.coef_.T) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(
        self, X: MatrixLike | None = None, *, graph: GraphLike | None = None
    ) -> Array:
        """Probabilities of the classes of nodes.

        Parameters
        ----------
        X, graph
            As for :meth:`decision_function`.

        Returns
        -------
        ndarray of shape (n_nodes, n_classes)
            In the order of ``classes_``.
        """
        return _probabilities(self.decision_function(X, graph=graph))

    def predict(
        self, X: MatrixLike | None = None, *, graph: GraphLike | None = None
    ) -> Array:
        """The most probable class of nodes.

        Parameters
        ----------
        X, graph
            As for :meth:`decision_function`.

        Returns
        -------
        ndarray of shape (n_nodes,)
            Classes.
        """
        places = _places(self.decision_function(X, graph=graph))
        return self.classes_[places]


def _probabilities(scores: Array) -> Array:
    """Shares of the classes by their scores."""
    if scores.ndim == 1:
        p = 0.5 * (1.0 + np.tanh(0.5 * scores))
        return np.column_stack([1.0 - p, p])
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _places(scores: Array) -> Array:
    """Places of the largest scores among the classes."""
    if scores.ndim == 1:
        return (scores > 0).astype(int)
    return np.asarray(scores.argmax(axis=1))
