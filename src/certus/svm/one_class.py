"""One-class support vector machine: the region where most of the rows lie.

Objective: ½‖f‖² − ν·Σs·ρ + Σ sᵢ max(0, ρ − f(xᵢ)), over functions f and thresholds ρ.
Its dual is min ½αᵀKα with 0 ≤ αᵢ ≤ sᵢ and Σα = ν·Σs. About a point α⁰ that is feasible
it is the dual of the other machines, in β = α − α⁰ with Σβ = 0 and the targets −Kα⁰.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import OutlierMixin

from certus.base import Fitted, certified_fit, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.kernels.evaluate import own_threads
from certus.kernels.machine import kernel_term, negative_direction
from certus.kernels.rows import KernelRows
from certus.svm import smo
from certus.svm.problem import mean_diagonal
from certus.svm.support import SupportVectorMachine
from certus.typing import Array

#: Share of the threshold within which a row is on the boundary.
BOUNDARY = 1e-8
#: How often the dual is solved about the point found last, until its gap is small.
ROUNDS = 4


class OneClassSVM(OutlierMixin, SupportVectorMachine):
    """The region where most rows lie; others are outliers.

    Objective
    ---------
    ½‖f‖² − nu·n·ρ + Σ max(0, ρ − f(x)), over functions f of the kernel's space and
    thresholds ρ, for n rows. At most a share ``nu`` of the rows has f(x) < ρ.

    Certificate
    -----------
    ``duality_gap`` (PROVED), as a share of the size of the minimum; REFUSED with a
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
    nu : float, default=0.5
        Largest share of rows outside, and smallest share of support vectors.
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
        −ρ.
    offset_ : ndarray of shape (1,)
        ρ: ``decision_function`` is ``score_samples`` less this.
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
    >>> from certus.svm import OneClassSVM
    >>> X = np.r_[np.random.default_rng(0).normal(size=(100, 2)), [[6.0, 6.0]]]
    >>> model = OneClassSVM(gamma=0.1, nu=0.1).fit(X)
    >>> model.predict([[0.0, 0.0], [6.0, 6.0]]), model.certificate_.met
    (array([ 1, -1]), True)
    """

    C = 1.0  # checked in the shared code

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: Any = "scale",
        coef0: float = 0.0,
        tol: float = 1e-6,
        nu: float = 0.5,
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
        self.nu = nu
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.verbose = verbose
        self.max_iter = max_iter
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Find the region.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; with ``kernel="precomputed"`` the kernel matrix.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        self._check_settings()
        check_number("nu", self.nu, 0.0, 1.0, open_low=True)
        X, _, s = self._read(X, np.ones(_count(X)), sample_weight)
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        self.kernel_ = kernel_term(
            self.kernel, X, self.gamma, self.degree, self.coef0, s
        )
        self._gamma = getattr(self.kernel_, "gamma", 0.0)
        kernel, rows = self._training(X)
        monitor = Monitor(self, X, None, None, self.max_time)
        weights = np.ones(n) if s is None else np.asarray(s, dtype=np.float64)

        def state(alpha: Array, b: float) -> dict[str, Any]:
            self._put(X, alpha, b)
            names = ("dual_coef_", "support_", "support_vectors_", "intercept_")
            return {
                **{name: getattr(self, name) for name in names},
                "offset_": self.offset_,
                "_n_support": self._n_support,
                "kernel_": self.kernel_,
            }

        def on_step(
            objective: float, gap: float, alpha: Array, b: float
        ) -> Status | None:
            return monitor.step(objective, gap, lambda: state(alpha, b))

        with own_threads():
            store = KernelRows(kernel, rows, float(self.cache_size))
            found = _solve(
                *(store, weights, float(self.nu), float(self.tol)),
                *(self._step_limit(), on_step),
            )
        self._put(X, found.alpha, found.b)
        self.n_iter_ = found.n_iter
        self.fit_status_ = int(found.status is Status.MAX_ITER)
        self.shape_fit_ = getattr(X, "shape", (n,))
        self.history_ = monitor.history
        monitor.close(state(found.alpha, found.b))
        evidence = Evidence("kernel", witness=negative_direction(kernel, rows))
        return Fitted(evidence, X, None, s, found.status)

    def _put(self, X: Any, alpha: Array, b: float) -> None:
        support = np.flatnonzero(alpha)
        self._store_support(X, support)
        self._store_dual(alpha[support][None, :])
        self.intercept_ = np.array([b])
        self.offset_ = -self.intercept_
        self._n_support = np.array([len(support)], dtype=np.int32)

    def decision_function(self, X: Any) -> Array:
        """f(x) − ρ: positive inside the region, 0 on its boundary.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; with ``kernel="precomputed"`` their kernel values with all training
            rows.
        """
        X = self._query(X)
        z = self._raw_scores(X, self._pair_coefficients()).ravel() + self.intercept_
        # Support vectors on the boundary score exactly 0, whatever the rounding.
        return np.where(np.abs(z) <= BOUNDARY * np.abs(self.intercept_), 0.0, z)

    def score_samples(self, X: Any) -> Array:
        """f(x), without the threshold.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        """
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> Array:
        """1 for rows in the region, −1 for outliers.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)


def _count(X: Any) -> int:
    """How many rows X has, before any other check."""
    if hasattr(X, "shape"):
        return int(X.shape[0]) if X.shape else 0
    return len(X) if hasattr(X, "__len__") else len(np.asarray(X))


class Region(NamedTuple):
    """α, b = −ρ, and how it ended."""

    alpha: Array
    b: float
    status: Status
    n_iter: int


def _solve(
    rows: KernelRows,
    s: Array,
    nu: float,
    tol: float,
    max_iter: int | None,
    on_step: smo.OnStep,
) -> Region:
    """Solve the dual about a feasible point, and again about the solution if needed."""
    filled = np.minimum(np.cumsum(s), nu * float(s.sum()))
    alpha = np.diff(filled, prepend=0.0)
    steps, everything = 0, np.arange(len(s))
    # ½‖f‖² if all rows lay in one direction. Where the solution has hardly any of it,
    # the rows surround the origin: f = 0 is the answer, and no gap is small beside it.
    largest = float(alpha.sum()) ** 2 * mean_diagonal(rows) / 2
    for k in range(ROUNDS):
        box = smo.DualProblem(rows, everything, 0 * s, -alpha, s - alpha)
        scores = smo.total_scores(box, alpha)
        size = float(alpha @ scores) / 2  # −min P at most
        box = box._replace(target=-scores)
        unit = smo.reference(box)
        target = tol * size / unit / 2 ** (k + 1) if unit > 0 else tol

        def report(
            objective: float, gap: float, beta: Array, b: float, start: Array = alpha
        ) -> Status | None:
            off = gap * unit  # noqa: B023
            share = off / size if size > 0 else 0.0  # noqa: B023
            stop = on_step(objective - size, share, start + beta, b)  # noqa: B023
            around = size - objective + off <= tol**2 * largest  # noqa: B023
            return Status.TOL_NOT_REACHED if around and stop is None else stop

        left = None if max_iter is None else max(max_iter - steps, 0)
        found = smo.solve(box, target, left, report)
        alpha = np.clip(alpha + found.beta, 0.0, s)
        steps += found.n_iter
        after = smo.total_scores(box, alpha)
        least = float(alpha @ after) / 2
        done = found.gap * unit <= 0.6 * tol * least
        if done or found.status is not Status.SOLVED:
            break
    return Region(alpha, found.b, found.status, steps)
