"""Labels that spread along a graph from a few rows to all of them.

    propagation:  f_u = Σ_v p_uv f_v where u has no label, f = y where it has one
    spreading:    minimise Σ_k [F_kᵀ(I − S)F_k + (1/α − 1)‖F_k − Y_k‖²]

The graph is made of the rows, by a kernel or by nearest neighbours, or is passed. Both
are linear systems and are solved as such: nothing depends on how long an iteration ran.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from certus.base import (
    Estimator,
    Fitted,
    certified_fit,
    check_choice,
    check_number,
    require_finite,
    validate_data,
)
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.edges import class_places, read_graph, read_labels
from certus.evidence import PropagationWitness
from certus.semi_supervised.systems import (
    OnStep,
    SystemSolution,
    is_symmetric,
    rbf_weights,
    solve_clamped,
    solve_spread,
)
from certus.typing import Array, GraphLike, Matrix, MatrixLike

#: Rows that are predicted together.
TOGETHER = 1024


def _count_nodes(X: Any, y: Any, graph: GraphLike | None) -> int | None:
    """How many nodes there are; a list of edges leaves out nodes without one."""
    if X is not None:
        return int(np.shape(X)[0])
    if not isinstance(graph, list | tuple) or np.ndim(y) != 1:
        return None
    listed = read_graph(graph).A.shape[0] if len(graph) else 0
    return max(listed, len(y))


class _GraphLabels(ClassifierMixin, Estimator):
    """What propagation and spreading share; abstract."""

    #: Columns of the system beside those of the classes.
    _more = 0

    def _solution(
        self,
        W: Matrix,
        same: bool,
        codes: Array,
        k: int,
        on_step: OnStep,
        start: Array | None,
    ) -> SystemSolution:
        raise NotImplementedError

    def _fit(self, X: Any, y: Any, graph: GraphLike | None) -> Fitted:
        self._check()
        monitor = Monitor(self, X, y, max_time=self.max_time)
        names, given = None, X
        if graph is None:
            X = self._read_X(X, reset=True)
            n = X.shape[0]
        else:
            W, names = read_graph(graph, _count_nodes(X, y, graph))
            n = W.shape[0]
            X, given = None, (None, graph)
        line = read_labels(y, n, names)
        self.classes_, codes = class_places(line)
        order = np.arange(n)
        if graph is None and self.kernel == "rbf":
            # Labelled rows first: then the system of the others is one block.
            order = np.argsort(codes < 0, kind="stable")
            W = rbf_weights(X[order], float(self.gamma))
        elif graph is None:
            W = self._weights(X)
        self.X_ = X
        self.graph_ = W if graph is not None or self.kernel != "rbf" else None

        def on_step(residual: float) -> Any:
            return monitor.step(residual, math.nan)

        same = graph is not None or self.kernel == "rbf" or is_symmetric(W)
        if self.graph_ is not None and not sparse.issparse(W):
            W = W.copy()  # it is overwritten
        k, back = len(self.classes_), np.argsort(order)
        start = self._last_solution(n, k)
        start = None if start is None else start[order]
        found = self._solution(W, same, codes[order], k, on_step, start)
        if self.warm_start and found.Z is not None:
            self.solution_ = found.Z[back]
        F, steps = found.F[back], found.steps
        steps = None if steps is None else steps[back]
        totals = F.sum(axis=1)
        shares = F / np.where(totals > 0, totals, 1.0)[:, None]
        self.label_distributions_ = shares
        self.transduction_ = self.classes_[shares.argmax(axis=1)]
        self.n_iter_ = max(1, found.n_iter)
        self.history_ = monitor.history
        monitor.close({})
        witness = PropagationWitness(totals, steps)
        rows = given if graph is not None else X
        told = y if isinstance(y, Mapping) else line
        return Fitted(Evidence("propagation", witness), rows, told, None, found.status)

    def _last_solution(self, n: int, k: int) -> Array | None:
        """What the last fit solved for, if it had as many nodes and classes."""
        last = self.__dict__.pop("solution_", None)
        fits = self.warm_start and last is not None and len(last) == n
        return last if fits and last.shape[1] - self._more == k else None

    def _check(self) -> None:
        if not callable(self.kernel):
            check_choice("kernel", self.kernel, ("knn", "rbf"))
        check_number("gamma", self.gamma)
        check_number("n_neighbors", self.n_neighbors, 1, integer=True)
        check_number("max_iter", self.max_iter, 1, integer=True)
        check_number("tol", self.tol)
        check_number("max_time", self.max_time, none=True)

    def _read_X(self, X: MatrixLike, reset: bool) -> Any:
        X = validate_data(
            self,
            X,
            accept_sparse=["csr", "csc"],
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            reset=reset,
        )
        require_finite(X, type(self).__name__)
        return X

    def _weights(self, X: Matrix) -> Any:
        """The graph of the rows, by neighbours or by a function."""
        if self.kernel == "knn":
            k = int(self.n_neighbors)
            if k > X.shape[0]:
                raise ValueError(
                    f"n_neighbors must be at most the number of rows ({X.shape[0]}), "
                    f"got {k}."
                )
            near = NearestNeighbors(n_neighbors=k, n_jobs=self.n_jobs).fit(X)
            return sparse.csr_array(near.kneighbors_graph(X, k, mode="connectivity"))
        found: Any = self.kernel(X, X)
        found = sparse.csr_array(found) if sparse.issparse(found) else np.array(found)
        if found.shape != (X.shape[0],) * 2:
            raise ValueError(
                f"kernel must return a matrix of shape {(X.shape[0],) * 2} for "
                f"{X.shape[0]} rows, got {found.shape}."
            )
        values: Any = found.data if sparse.issparse(found) else found
        if not np.isfinite(values).all() or values.min(initial=0.0) < 0:
            raise ValueError("kernel must return finite weights that are not negative.")
        return found.astype(np.float64)

    def predict_proba(self, X: MatrixLike | None = None) -> Array:
        """Probabilities of the classes, from the rows of the fit that are near.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), optional
            Rows. None stands for the nodes of the fit, whose distributions are
            ``label_distributions_``; a model of a graph knows no others.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``; equal shares where nothing is known.
        """
        check_is_fitted(self)
        if X is None:
            return self.label_distributions_.copy()
        if self.X_ is None:
            raise ValueError(
                "This model was fitted on a graph, so it cannot predict for new rows. "
                "Call predict() for the nodes of the fit, or fit again with them."
            )
        rows = self._read_X(X, reset=False)
        parts = range(0, rows.shape[0], TOGETHER)
        found = np.vstack([self._near(rows[i : i + TOGETHER]) for i in parts])
        total = found.sum(axis=1, keepdims=True)
        even = np.full_like(found, 1.0 / found.shape[1])
        return np.divide(found, total, out=even, where=total > 0)

    def _near(self, X: Matrix) -> Array:
        """Weighted sums of the distributions of the rows of the fit."""
        if self.kernel == "knn":
            near = NearestNeighbors(n_neighbors=int(self.n_neighbors)).fit(self.X_)
            places = near.kneighbors(X, return_distance=False)
            return np.asarray(self.label_distributions_[places].sum(axis=1))
        if callable(self.kernel):
            weights = self.kernel(self.X_, X).T
        else:
            away = euclidean_distances(X, self.X_, squared=True).astype(np.float64)
            # Only ratios count: the nearest row has the weight one, however far it is.
            away -= away.min(axis=1, keepdims=True)
            weights = np.exp(-self.gamma * away)
        return np.asarray(weights @ self.label_distributions_)

    def predict(self, X: MatrixLike | None = None) -> Array:
        """The most probable class of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), optional
            Rows. None stands for the nodes of the fit, whose labels are
            ``transduction_``.

        Returns
        -------
        ndarray of shape (n_samples,)
            Classes.
        """
        places = self.predict_proba(X).argmax(axis=1)
        return self.classes_[places]


class LabelPropagation(_GraphLabels):
    """Labels of all rows as weighted means of those of their neighbours.

    Objective
    ---------
    f_u = Σ_v p_uv f_v at rows without a label and f = y at those with one, p the
    weights of the graph as shares of their row.

    Certificate
    -----------
    ``propagation_error`` (PROVED, bounded by ``tol``): how far a probability of a
    reached row may be from the exact solution, by a witness g ≥ 0 with
    (I − P_uu)g ≥ 1. ``settled_labels`` (PROVED): rows whose label the exact solution
    has too; ``stated_labels`` (PROVED) is there if other labels are stated. Nothing is
    said about whether the labels are right: see :func:`certus.graph.node_accuracy`.

    Parameters
    ----------
    kernel : {"rbf", "knn"} or callable, default="rbf"
        How the rows make a graph. By exp(−gamma·‖x − x'‖²), by nearest neighbours, or
        by a function of two sets of rows that returns weights. Not used where a graph
        is passed.
    gamma : float, default=20
        Scale of the kernels "poly", "rbf", "laplacian" and "sigmoid". Only "rbf" is
        offered here.
    n_neighbors : int, default=7
        Number of neighbours. The row itself is one of them.
    max_iter : int, default=1000
        Maximum number of iterations. They are conjugate gradients, for more than 2,000
        rows without a label.
    tol : float, default=1e-3
        Target of the certificate's primary claim. It bounds the error of a
        probability.
    n_jobs : int, default=None
        Number of processes that look for neighbours.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    warm_start : bool, default=False
        Whether to start from the last fit.

    Attributes
    ----------
    X_ : array or sparse matrix of shape (n_samples, n_features) or None
        Rows of the fit; None where a graph was passed.
    graph_ : sparse matrix, array or None
        Weights of the graph; None for "rbf", whose weights follow from ``X_``.
    classes_ : ndarray of shape (n_classes,)
        Classes, without −1.
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        Probabilities of the classes of each row; zeros where no path leads to a label.
    transduction_ : ndarray of shape (n_samples,)
        The most probable class of each row; the first where nothing is known.
    solution_ : ndarray of shape (n_samples, n_classes + 1)
        What was solved for, with ``warm_start=True`` only: the next fit starts there.
    n_iter_ : int
        Iterations made; 1 for a system that was factored.
    history_ : dict
        Residual and seconds after each iteration.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.semi_supervised import LabelPropagation
    >>> path = [(0, 1), (1, 2), (2, 3)]
    >>> model = LabelPropagation().fit(None, [0, -1, -1, 1], graph=path)
    >>> model.label_distributions_[1].round(3), model.certificate_.met
    (array([0.667, 0.333]), True)
    """

    _more = 1  # the mean number of steps to a label

    def __init__(
        self,
        kernel: str | Callable[..., Any] = "rbf",
        *,
        gamma: float = 20,
        n_neighbors: int = 7,
        max_iter: int = 1000,
        tol: float = 1e-3,
        n_jobs: int | None = None,
        max_time: float | None = None,
        warm_start: bool = False,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.n_neighbors = n_neighbors
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.max_time = max_time
        self.warm_start = warm_start

    @certified_fit
    def fit(self, X: Any, y: Any, *, graph: Any = None) -> Any:
        """Carry labels along the graph.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features) or None
            Rows; None, or not used, where a graph is passed.
        y : array-like of shape (n_samples,) or dict
            Labels, −1 where there is none; or a dict from a node to its label.
        graph : sparse matrix, array, list of edges, networkx graph or PyG Data, \
optional
            Edges between the rows. By default the rows make a graph.
        """
        return self._fit(X, y, graph)

    def _solution(
        self,
        W: Matrix,
        same: bool,
        codes: Array,
        k: int,
        on_step: OnStep,
        start: Array | None,
    ) -> SystemSolution:
        return solve_clamped(W, same, codes, k, int(self.max_iter), on_step, start)


class LabelSpreading(_GraphLabels):
    """Labels of all rows from a graph, where given labels may change.

    Objective
    ---------
    (I − αS)F = (1 − α)Y with S = D^{-1/2}WD^{-1/2} without loops: F agrees with the
    labels Y and varies little between neighbours.

    Certificate
    -----------
    ``propagation_error`` (PROVED, bounded by ``tol``): ‖F − F*‖ is at most the
    residual over 1 − α, in the 2-norm for symmetric graphs and otherwise in a weighted
    1-norm. ``settled_labels`` (PROVED): rows whose label the exact solution has too;
    ``stated_labels`` (PROVED) is there if other labels are stated. Nothing is said
    about whether the labels are right: see :func:`certus.graph.node_accuracy`.

    Parameters
    ----------
    kernel : {"rbf", "knn"} or callable, default="rbf"
        How the rows make a graph. By exp(−gamma·‖x − x'‖²), by nearest neighbours, or
        by a function of two sets of rows that returns weights. Not used where a graph
        is passed.
    gamma : float, default=20
        Scale of the kernels "poly", "rbf", "laplacian" and "sigmoid". Only "rbf" is
        offered here.
    n_neighbors : int, default=7
        Number of neighbours. The row itself is one of them.
    alpha : float, default=0.2
        Strength of the penalty. It is the share of a label that comes from the
        neighbours, above 0 and below 1.
    max_iter : int, default=30
        Maximum number of iterations. They are conjugate gradients.
    tol : float, default=1e-3
        Target of the certificate's primary claim. It bounds the error of a score.
    n_jobs : int, default=None
        Number of processes that look for neighbours.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    warm_start : bool, default=False
        Whether to start from the last fit.

    Attributes
    ----------
    X_ : array or sparse matrix of shape (n_samples, n_features) or None
        Rows of the fit; None where a graph was passed.
    graph_ : sparse matrix, array or None
        Weights of the graph; None for "rbf", whose weights follow from ``X_``.
    classes_ : ndarray of shape (n_classes,)
        Classes, without −1.
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        Scores of the classes as shares of their row; zeros where no path leads to a
        label.
    transduction_ : ndarray of shape (n_samples,)
        The class with the largest score; the first where nothing is known.
    solution_ : ndarray of shape (n_samples, n_classes)
        What was solved for, with ``warm_start=True`` only: the next fit starts there.
    n_iter_ : int
        Iterations made; 1 for a system that was factored.
    history_ : dict
        Residual and seconds after each iteration.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.semi_supervised import LabelSpreading
    >>> path = [(0, 1), (1, 2), (2, 3)]
    >>> model = LabelSpreading().fit(None, ["a", None, None, "b"], graph=path)
    >>> model.transduction_, model.certificate_.met
    (array(['a', 'a', 'b', 'b'], dtype='<U1'), True)
    """

    def __init__(
        self,
        kernel: str | Callable[..., Any] = "rbf",
        *,
        gamma: float = 20,
        n_neighbors: int = 7,
        alpha: float = 0.2,
        max_iter: int = 30,
        tol: float = 1e-3,
        n_jobs: int | None = None,
        max_time: float | None = None,
        warm_start: bool = False,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.max_time = max_time
        self.warm_start = warm_start

    @certified_fit
    def fit(self, X: Any, y: Any, *, graph: Any = None) -> Any:
        """Spread labels along the graph.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features) or None
            Rows; None, or not used, where a graph is passed.
        y : array-like of shape (n_samples,) or dict
            Labels, −1 where there is none; or a dict from a node to its label.
        graph : sparse matrix, array, list of edges, networkx graph or PyG Data, \
optional
            Edges between the rows. By default the rows make a graph.
        """
        check_number("alpha", self.alpha, 0, 1, open_low=True)
        if self.alpha == 1:
            raise ValueError("alpha must be below 1, got 1.")
        return self._fit(X, y, graph)

    def _solution(
        self,
        W: Matrix,
        same: bool,
        codes: Array,
        k: int,
        on_step: OnStep,
        start: Array | None,
    ) -> SystemSolution:
        most, alpha = int(self.max_iter), float(self.alpha)
        return solve_spread(W, same, codes, k, alpha, most, on_step, start)
