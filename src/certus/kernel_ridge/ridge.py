"""Kernel ridge regression, by whichever of its two formulas is cheaper.

Objective: Σ sᵢ (yᵢ − f(xᵢ))² + alpha·‖f‖², without an intercept. The two formulas,

    c = (K + alpha·S⁻¹)⁻¹ y        and        w = (ΦᵀSΦ + alpha·I)⁻¹ ΦᵀS y,

are the same by the push-through identity; the first costs n³, the second D²n with D the
length of the feature map, where that is finite.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg, sparse
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels

from certus.base import Fitted, certified_fit, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.kernels.features import feature_dimension, feature_map
from certus.kernels.machine import (
    NAMES,
    KernelMachine,
    kernel_term,
    negative_direction,
    take,
)
from certus.kernels.system import KernelSystem
from certus.objectives import terms as t
from certus.typing import Array, ArrayLike, Matrix, MatrixLike

#: Error of the fitted equations above which the primal formula is not trusted.
PRIMAL_ERROR = 1e-9


class KernelRidge(MultiOutputMixin, RegressorMixin, KernelMachine):
    """Ridge regression in the space of a kernel.

    Objective
    ---------
    Σ (y − f(x))² + alpha·‖f‖², over functions f of the kernel's space; there is no
    intercept.

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to f = 0. With ``alpha=0`` ``backward_error``
    (PROVED) of K c = y. Costs one pass over the kernel matrix.

    Parameters
    ----------
    alpha : float or array of shape (n_targets,), default=1
        Strength of the penalty. One number, or one for each target.
    kernel : str, callable or kernel of ``certus.objectives``, default="linear"
        Name of a kernel, a function, or a kernel of ``certus.objectives``. Names are
        scikit-learn's, and "precomputed"; a function takes two rows.
    gamma : float, default=None
        Scale of the kernels "poly", "rbf", "laplacian" and "sigmoid". Also of "chi2".
        None means 1/n_features, and 1 for "chi2".
    degree : float, default=3
        Degree of the kernel "poly".
    coef0 : float, default=1
        Constant of the kernels "poly" and "sigmoid".
    kernel_params : dict, default=None
        Further arguments of a function.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (n_samples,) or (n_samples, n_targets)
        Coefficients: f = Σ ``dual_coef_``·k(·, x).
    X_fit_ : array or sparse matrix
        The training rows.
    kernel_ : kernel of ``certus.objectives``
        The kernel used, gamma as a number.
    solver_, solver_reason_ : str
        The formula used, and why. Up to 8,000 rows the matrix is held (a square of
        float64); beyond, conjugate gradients form it block by block.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.kernel_ridge import KernelRidge
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = KernelRidge(alpha=1e-3, kernel="rbf").fit(X, np.sin(X).ravel())
    >>> model.certificate_.met, model.solver_
    (True, 'Cholesky')
    """

    def __init__(
        self,
        alpha: ArrayLike = 1,
        *,
        kernel: str | t.Kernel | Callable[..., Any] = "linear",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
    ) -> None:
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _own_function(self) -> bool:
        return False  # functions take two rows here, so X is always a table

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to numbers.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; with ``kernel="precomputed"`` the kernel matrix.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : float or array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        X, y, s = self._read(X, y, sample_weight, multi_output=True, y_numeric=True)
        Y = np.asarray(y, dtype=np.float64).reshape(X.shape[0], -1)
        alphas = self._alphas(Y.shape[1])
        self.kernel_ = self._term(X)
        kernel, rows = self._training(X)
        monitor = Monitor(self, X, y)
        used = np.arange(len(Y)) if s is None else np.flatnonzero(s > 0)
        weight = np.ones(len(used)) if s is None else s[used]
        data = rows if len(used) == len(Y) else take(kernel, rows, used)
        coef = np.zeros_like(Y)
        coef[used] = self._solve(kernel, data, Y[used], weight, alphas)
        self.dual_coef_ = coef.ravel() if y.ndim == 1 else coef
        self.X_fit_ = X.copy()  # whoever changes X later does not change the model
        names = ("dual_coef_", "X_fit_", "kernel_")
        monitor.close({name: getattr(self, name) for name in names})
        witness = negative_direction(kernel, rows)
        return Fitted(Evidence("kernel", witness=witness), X, y, s)

    def _alphas(self, targets: int) -> Array:
        """One alpha for each target; all zero, or all positive."""
        values = np.ravel(np.asarray(self.alpha, dtype=object))
        for value in values:
            check_number("alpha", value)
        if len(values) not in (1, targets):
            raise ValueError(
                f"alpha has {len(values)} values and y has {targets} columns; pass "
                "one alpha, or one for each column."
            )
        alphas = np.broadcast_to(values.astype(float), (targets,))
        if alphas.min() == 0 and alphas.max() > 0:
            raise ValueError("alpha must be all zero or all positive.")
        return alphas

    def _term(self, X: Matrix) -> t.Kernel:
        name = self.kernel
        if isinstance(name, t.Kernel):
            return name
        if callable(name):
            options = {"metric": name, **(self.kernel_params or {})}
            return t.OwnKernel(functools.partial(pairwise_kernels, **options))
        check_number("gamma", self.gamma, none=True)
        name = "poly" if name == "polynomial" else name
        if name in NAMES:
            gamma = 1.0 / X.shape[1] if self.gamma is None else self.gamma
            return kernel_term(name, X, gamma, self.degree, self.coef0)
        if name not in PAIRWISE_KERNEL_FUNCTIONS:
            return kernel_term(name, X)  # an error that lists the names
        options = {"metric": name, "filter_params": True}
        if self.gamma is not None:
            options["gamma"] = self.gamma
        return t.OwnKernel(functools.partial(pairwise_kernels, **options))

    def _solve(
        self, kernel: t.Kernel, X: Matrix, Y: Array, s: Array, alphas: Array
    ) -> Array:
        """Coefficients of the rows; names the formula."""
        n = X.shape[0]
        length = feature_dimension(kernel, X.shape[1])
        if length < n and alphas.min() > 0 and not isinstance(kernel, t.Precomputed):
            coef = _primal(kernel, X, Y, s, alphas)
            if coef is not None:
                self.solver_ = "primal"
                self.solver_reason_ = (
                    f"there are fewer features ({length:,}) than rows ({n:,})"
                )
                return coef
        system = KernelSystem(kernel, X)
        self.solver_ = system.method
        self.solver_reason_ = f"no feature map is shorter than the {n:,} rows"
        coef = np.empty_like(Y)
        for alpha in np.unique(alphas):
            same = alphas == alpha
            coef[:, same] = system.factor(alpha / s)(Y[:, same])
        return coef

    def predict(self, X: MatrixLike) -> Array:
        """Predicted values.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; with ``kernel="precomputed"`` their kernel values with all training
            rows.
        """
        X = self._query(X)
        everything = np.arange(self.X_fit_.shape[0])
        coef = np.asarray(self.dual_coef_, dtype=np.float64)
        return self._sums(X, self.X_fit_, everything, coef)


def _primal(
    kernel: t.Kernel, X: Any, Y: Array, s: Array, alphas: Array
) -> Array | None:
    """From the primal weights c = S(y − Φw)/alpha; None if too much cancels."""
    if sparse.issparse(X):
        if not isinstance(kernel, t.Linear):
            return None
        Phi = X
    else:
        Phi = feature_map(kernel, X)
    scaled = (
        Phi.multiply(s[:, None]).tocsr() if sparse.issparse(Phi) else Phi * s[:, None]
    )
    gram = scaled.T @ Phi
    gram = gram.toarray() if sparse.issparse(gram) else np.asarray(gram)
    right = np.asarray(scaled.T @ Y)
    coef = np.empty_like(Y)
    for alpha in np.unique(alphas):
        same = alphas == alpha
        M = gram.copy()
        M.flat[:: len(M) + 1] += alpha
        try:
            w = linalg.solve(M, right[:, same], assume_a="pos", check_finite=False)
        except linalg.LinAlgError:
            return None
        c = s[:, None] * (Y[:, same] - np.asarray(Phi @ w)) / alpha
        # The dual equations Kc + alpha·c/s = y, with K = ΦΦᵀ.
        error = np.asarray(Phi @ np.asarray(Phi.T @ c)) + alpha * c / s[:, None]
        error = np.abs(error - Y[:, same]).max(initial=0.0)
        if not error <= PRIMAL_ERROR * max(np.abs(Y).max(initial=0.0), 1e-300):
            return None
        coef[:, same] = c
    return coef
