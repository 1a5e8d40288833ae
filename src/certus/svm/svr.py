"""Support vector regression: errors up to epsilon are free.

Objective: C·Σ sᵢ max(0, abs(yᵢ − f(xᵢ) − b) − epsilon) + ½‖f‖².
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from certus.base import Fitted, certified_fit, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.kernels.machine import kernel_term, negative_direction
from certus.svm.problem import solve_part
from certus.svm.support import SupportVectorMachine
from certus.typing import Array, MatrixLike


class SVR(RegressorMixin, SupportVectorMachine):
    """Support vector regression with any kernel.

    Objective
    ---------
    C·Σ max(0, abs(y − f(x) − b) − epsilon) + ½‖f‖², over functions f of the kernel's
    space; the intercept is never penalised.

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model; REFUSED with a
    direction where the kernel matrix is not positive semidefinite. Costs one pass over
    the kernel values of all rows with the support vectors.

    Parameters
    ----------
    kernel : str, callable or kernel of ``certus.objectives``, default="rbf"
        Name of a kernel, a function, or a kernel of ``certus.objectives``. Names are
        "linear", "poly", "rbf", "laplacian", "sigmoid" and "precomputed"; a function
        takes two sets of rows and returns their matrix.
    degree : int, default=3
        Degree of the kernel "poly".
    gamma : {"scale", "auto"} or float, default="scale"
        Scale of the kernels "poly", "rbf", "laplacian" and "sigmoid".
    coef0 : float, default=0.0
        Constant of the kernels "poly" and "sigmoid".
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    C : float, default=1.0
        Inverse strength of the penalty.
    epsilon : float, default=0.1
        Size up to which an error costs nothing.
    cache_size : float, default=1000
        Megabytes of memory for rows of the kernel matrix. A fit needs this memory and a
        few copies of X.
    max_iter : int, default=-1
        Maximum number of iterations. They are steps of two variables. −1 means no
        limit.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    shrinking, verbose
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    dual_coef_ : array or sparse matrix of shape (1, n_support)
        Coefficients: f = Σ ``dual_coef_``·k(·, support vector).
    support_ : ndarray of shape (n_support,)
        Rows that are support vectors.
    support_vectors_ : array or sparse matrix
        Those rows; empty where the matrix was given.
    intercept_ : ndarray of shape (1,)
        b.
    n_support_ : ndarray of shape (1,)
        Number of support vectors.
    kernel_ : kernel of ``certus.objectives``
        The kernel used, gamma as a number.
    n_iter_ : int
        Steps used.
    history_ : dict
        Objective, gap and seconds after each working set.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.svm import SVR
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> model = SVR(C=10.0).fit(X, np.sin(X).ravel())
    >>> model.certificate_.met, len(model.support_) < 20
    (True, True)
    """

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: Any = "scale",
        coef0: float = 0.0,
        tol: float = 1e-6,
        C: float = 1.0,
        epsilon: float = 0.1,
        shrinking: bool = True,
        cache_size: float = 1000,
        verbose: bool = False,
        max_iter: int = -1,
        max_time: float | None = None,
    ) -> None:
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.C = C
        self.epsilon = epsilon
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.verbose = verbose
        self.max_iter = max_iter
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit to numbers.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; with ``kernel="precomputed"`` the kernel matrix.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        self._check_settings()
        check_number("epsilon", self.epsilon)
        if np.isinf(self.C):
            raise ValueError("C must be finite in SVR; choose a large number.")
        X, y, s = self._read(X, y, sample_weight, y_numeric=True)
        target = np.asarray(y, dtype=np.float64)
        self.kernel_ = kernel_term(
            self.kernel, X, self.gamma, self.degree, self.coef0, s
        )
        self._gamma = getattr(self.kernel_, "gamma", 0.0)
        kernel, rows = self._training(X)
        monitor = Monitor(self, X, y, None, self.max_time)
        n = len(target)
        cost = float(self.C) * (np.ones(n) if s is None else s)
        columns = np.arange(n)

        def state(beta: Array, b: float) -> dict[str, Any]:
            self._put(X, beta[columns] + beta[n + columns], b)
            names = ("dual_coef_", "support_", "support_vectors_", "intercept_")
            return {
                **{name: getattr(self, name) for name in names},
                "_n_support": self._n_support,
                "kernel_": self.kernel_,
            }

        def on_step(
            objective: float, gap: float, beta: Array, b: float
        ) -> Status | None:
            return monitor.step(objective, gap, lambda: state(beta, b))

        part = solve_part(
            *(kernel, rows, target, cost, float(self.epsilon), float(self.tol)),
            *(self._step_limit(), float(self.cache_size), on_step),
        )
        self._put(X, part.coef, part.b)
        self.n_iter_ = int(part.n_iter)
        self.fit_status_ = int(part.status is Status.MAX_ITER)
        self.shape_fit_ = getattr(X, "shape", (n,))
        self.history_ = monitor.history
        monitor.close(state(np.r_[part.coef, 0 * part.coef], part.b))
        witness = negative_direction(kernel, rows)
        evidence = Evidence("kernel", witness=witness)
        return Fitted(evidence, X, y, s, part.status)

    def _put(self, X: MatrixLike, coef: Array, b: float) -> None:
        support = np.flatnonzero(coef)
        self._store_support(X, support)
        self._store_dual(coef[support][None, :])
        self.intercept_ = np.array([b])
        self._n_support = np.array([len(support)], dtype=np.int32)

    def predict(self, X: MatrixLike) -> Array:
        """Predicted values.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; with ``kernel="precomputed"`` their kernel values with all training
            rows.
        """
        X = self._query(X)
        return self._raw_scores(X, self._pair_coefficients()).ravel() + self.intercept_
