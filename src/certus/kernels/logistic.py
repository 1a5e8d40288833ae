"""Logistic regression in the space of a kernel.

Objective, for each class against the rest: C·Σ sᵢ log(1 + exp(−yᵢ(f(xᵢ) + b))) + ½‖f‖².
By the representer theorem f = Σ cᵢ k(·, xᵢ); Newton's method on c and b is a sequence
of weighted kernel ridge regressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_expit, xlogy
from sklearn.base import ClassifierMixin

from certus._core.rows import labelled_weights
from certus.base import Fitted, certified_fit, check_number, class_codes
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.kernels.machine import OneAgainstRest, kernel_term, negative_direction, take
from certus.kernels.system import KernelSystem
from certus.objectives import terms as t
from certus.typing import Array, ArrayLike, MatrixLike


class KernelIterate(NamedTuple):
    """Coefficients, constant, and the kernel sums Kc."""

    c: Array
    b: float
    g: Array


class KernelLogisticRegression(ClassifierMixin, OneAgainstRest):
    """Logistic regression with any kernel.

    Objective
    ---------
    C·Σ log(1 + exp(−y·(f(x) + b))) + ½‖f‖², over functions f of the kernel's space; the
    intercept is not penalised. With more than two classes there is one problem for each
    class against the rest.

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model, the worst of the
    problems. Costs one pass over the kernel matrix.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty.
    kernel : str, callable or kernel of ``certus.objectives``, default="rbf"
        As in :class:`certus.svm.SVC`.
    degree : int, default=3
        Degree of the kernel "poly".
    gamma : {"scale", "auto"} or float, default="scale"
        Scale of the kernels "poly", "rbf", "laplacian" and "sigmoid".
    coef0 : float, default=0.0
        Constant of the kernels "poly" and "sigmoid".
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the row weights.
    max_iter : int, default=100
        Maximum number of iterations. They are Newton steps of each problem. A step
        costs n³/3 up to 8,000 rows, with the matrix held; beyond, some dozen passes
        over it, block by block.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.

    Attributes
    ----------
    classes_ : ndarray
        Labels.
    dual_coef_ : ndarray of shape (1 or n_classes, n_samples)
        Coefficients: f = Σ ``dual_coef_``·k(·, x).
    intercept_ : ndarray of shape (1 or n_classes,)
        b of each problem.
    X_fit_ : array or sparse matrix
        The training rows.
    kernel_ : kernel of ``certus.objectives``
        The kernel used, gamma as a number.
    n_iter_ : ndarray
        Steps of each problem.
    history_ : dict
        Objective, gap and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.kernels import KernelLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KernelLogisticRegression().fit(X, y)
    >>> model.certificate_.met, model.score(X, y) > 0.9
    (True, True)
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: str | t.Kernel | Callable[..., Any] = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        class_weight: Mapping[Any, float] | str | None = None,
        max_iter: int = 100,
        max_time: float | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to labelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; with ``kernel="precomputed"`` the kernel matrix.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        check_number("C", self.C, open_low=True, high=1e300)
        check_number("tol", self.tol)
        check_number("max_iter", self.max_iter, 0, integer=True)
        check_number("max_time", self.max_time, none=True)
        X, y, s = self._read(X, y, sample_weight)
        self.classes_, codes = class_codes(y)
        if isinstance(self.class_weight, str) and self.class_weight != "balanced":
            raise ValueError(
                "class_weight must be 'balanced', a dict from label to weight, or "
                f"None; got {self.class_weight!r}."
            )
        weight = labelled_weights(s, self.class_weight, codes, self.classes_)
        if np.count_nonzero(np.bincount(codes, weights=weight)) < 2:
            raise ValueError(
                "Only one class has a positive weight; at least 2 classes are needed."
            )
        self.kernel_ = kernel_term(
            self.kernel, X, self.gamma, self.degree, self.coef0, s
        )
        kernel, rows = self._training(X)
        status = self._solve(kernel, rows, X, y, codes, weight)
        witness = negative_direction(kernel, rows)
        evidence = Evidence("kernel", witness=witness)
        return Fitted(evidence, X, y, s, status)

    def _solve(
        self,
        kernel: t.Kernel,
        rows: Any,
        X: MatrixLike,
        y: ArrayLike,
        codes: Array,
        s: Array,
    ) -> Status:
        used = np.flatnonzero(s > 0)
        data = rows if len(used) == len(s) else take(kernel, rows, used)
        system = KernelSystem(kernel, data)
        monitor = Monitor(self, X, y, None, self.max_time)
        problems = [1] if len(self.classes_) == 2 else list(range(len(self.classes_)))
        self.dual_coef_ = np.zeros((len(problems), len(s)))
        self.intercept_ = np.zeros(len(problems))
        self.n_iter_ = np.zeros(len(problems), dtype=np.int32)
        # A copy, so that later changes of X do not change the model.
        self.X_fit_ = X.copy() if hasattr(X, "copy") else X
        status = Status.SOLVED

        def state() -> dict[str, Any]:
            names = ("dual_coef_", "intercept_", "classes_", "X_fit_", "kernel_")
            return {name: getattr(self, name) for name in names}

        for k, positive in enumerate(problems):
            target = np.where(codes[used] == positive, 1.0, -1.0)

            def on_step(
                objective: float, gap: float, at: KernelIterate, k: int = k
            ) -> Status | None:
                self.dual_coef_[k, used] = at.c
                self.intercept_[k] = at.b
                return monitor.step(objective, gap, state)

            ended, steps = newton(
                system,
                target,
                float(self.C) * s[used],
                bool(self.fit_intercept),
                float(self.tol),
                int(self.max_iter),
                on_step,
            )
            self.n_iter_[k] = steps
            if ended is not Status.SOLVED:
                status = ended
            if ended in (Status.TIME_LIMIT, Status.STOPPED, Status.INTERRUPTED):
                break
        self.history_ = monitor.history
        monitor.close(state())
        return status

    def _expansion(self) -> tuple[Any, Array]:
        return self.X_fit_, np.arange(self.dual_coef_.shape[1])

    def predict_proba(self, X: MatrixLike) -> Array:
        """Probability of each class; with several, those of the problems, normalised.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to predict.
        """
        p = expit(self.decision_function(X))
        if p.ndim == 1:
            return np.column_stack([1 - p, p])
        total = p.sum(axis=1, keepdims=True)
        return np.where(total > 0, p / np.where(total > 0, total, 1), 1 / p.shape[1])

    def predict_log_proba(self, X: MatrixLike) -> Array:
        """Logarithm of :meth:`predict_proba`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to predict.
        """
        z = self.decision_function(X)
        if z.ndim == 1:
            return np.column_stack([log_expit(-z), log_expit(z)])
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


def newton(
    system: KernelSystem,
    y: Array,
    cost: Array,
    intercept: bool,
    tol: float,
    max_iter: int,
    on_step: Callable[[float, float, KernelIterate], Status | None],
) -> tuple[Status, int]:
    """Newton's method with halved steps; ``cost`` is C times the weights."""
    n = len(y)
    share = float(cost @ (y > 0)) / float(cost.sum())
    b = float(np.log(share / (1 - share))) if intercept and 0 < share < 1 else 0.0
    at = KernelIterate(np.zeros(n), b, np.zeros(n))
    unit = _objective(at, y, cost)
    steps, status = 0, Status.SOLVED
    try:
        while True:
            value = _objective(at, y, cost)
            gap = _gap(at, y, cost, intercept) / max(unit, 1e-300)
            stop = on_step(value, gap, at)
            if gap <= tol / 2 or stop is not None:
                return stop or Status.SOLVED, steps
            if steps >= max_iter:
                return Status.MAX_ITER, steps
            steps += 1
            new = _search(at, _target(system, at, y, cost, intercept), y, cost, value)
            if new is None:
                return Status.TOL_NOT_REACHED, steps
            at = new
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return status, steps


def _objective(at: KernelIterate, y: Array, cost: Array) -> float:
    return float(cost @ np.logaddexp(0.0, -y * (at.g + at.b)) + at.c @ at.g / 2)


def _gap(at: KernelIterate, y: Array, cost: Array, intercept: bool) -> float:
    """The sum of Fenchel–Young excesses at the dual point −c/cost; inf outside it."""
    v = at.c * y / cost  # between zero and one at every dual point
    balanced = not intercept or abs(at.c.sum()) <= 1e-9 * max(
        np.abs(at.c).sum(), 1e-300
    )
    if v.min() < 0 or v.max() > 1 or not balanced:
        return np.inf
    m = y * (at.g + at.b)
    excess = np.logaddexp(0.0, -m) + xlogy(v, v) + xlogy(1 - v, 1 - v) + v * m
    return float(cost @ np.maximum(excess, 0.0))


def _target(
    system: KernelSystem, at: KernelIterate, y: Array, cost: Array, intercept: bool
) -> KernelIterate:
    """The quadratic model's minimum: (K + D)c + b = z − u/h with D = 1/(cost·h)."""
    z = at.g + at.b
    p = expit(-y * z)
    h = np.maximum(p * (1 - p), 1e-10)
    d = 1.0 / (cost * h)
    right = z + y * p / h
    solve = system.factor(d)
    if not intercept:
        c = solve(right)
        return KernelIterate(c, 0.0, system.product(c))
    both = solve(np.column_stack([right, np.ones(len(y))]))
    b = float(both[:, 0].sum() / both[:, 1].sum())
    c = both[:, 0] - b * both[:, 1]
    return KernelIterate(c, b, system.product(c))


def _search(
    at: KernelIterate, goal: KernelIterate, y: Array, cost: Array, value: float
) -> KernelIterate | None:
    """The first of 1, ½, ¼, … that lowers the objective; None if rounding hides it."""
    step = 1.0
    for _ in range(40):
        new = KernelIterate(
            at.c + step * (goal.c - at.c),
            at.b + step * (goal.b - at.b),
            at.g + step * (goal.g - at.g),
        )
        found = _objective(new, y, cost)
        if found < value or (step == 1.0 and found <= value + 1e-13 * abs(value)):
            return new
        step /= 2
    return None
