"""Code that support vector classifiers and regressors share.

Both minimise C·Σ sᵢ ℓ(yᵢ, f(xᵢ) + b) + ½‖f‖² with a loss that is zero on a range, so
that f is a sum over few rows, the support vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import dense_coef
from certus.base import check_choice, check_number
from certus.kernels.machine import KernelMachine
from certus.objectives import terms as t
from certus.typing import Array, MatrixLike

#: Suggested when a support vector machine misses its target.
MILDER = "standardise the columns, or choose a smaller C"


class SupportVectorMachine(KernelMachine):
    """``coef_``, ``n_support_`` and scores from ``dual_coef_``; abstract."""

    C: Any
    tol: Any
    degree: Any
    max_iter: Any
    max_time: Any
    cache_size: Any
    shrinking: Any
    dual_coef_: Any
    support_: Array
    support_vectors_: Any
    intercept_: Array
    _n_support: Array

    def _check_settings(self) -> None:
        check_number("C", self.C, open_low=True)
        check_number("tol", self.tol)
        check_number("max_iter", self.max_iter, -1, integer=True)
        check_number("max_time", self.max_time, none=True)
        check_number("cache_size", self.cache_size, open_low=True)
        check_choice("shrinking", self.shrinking, (True, False))

    def _step_limit(self) -> int | None:
        return None if self.max_iter < 0 else int(self.max_iter)

    def _store_support(self, X: Any, support: Array) -> None:
        """Set ``support_`` and ``support_vectors_``."""
        self.support_ = support.astype(np.int32)
        if isinstance(self.kernel_, t.OwnKernel | t.Precomputed):
            self.support_vectors_ = np.empty((0, 0))
        else:
            self.support_vectors_ = X[support]

    def _store_dual(self, dual: Array) -> None:
        """Set ``dual_coef_``: sparse if the support vectors are, as scikit-learn's."""
        if sparse.issparse(self.support_vectors_):
            self.dual_coef_ = self._as_rows_are(dual)
        else:
            self.dual_coef_ = dual

    def _as_rows_are(self, values: Array) -> Any:
        """Values as a sparse array or a sparse matrix, like the rows."""
        array = isinstance(self.support_vectors_, sparse.sparray)
        return (sparse.csr_array if array else sparse.csr_matrix)(values)

    def _raw_scores(self, X: MatrixLike, coef: Array) -> Array:
        """Kernel sums for coefficients of shape (n_support, n_problems)."""
        return self._sums(X, self.support_vectors_, self.support_, coef)

    @property
    def n_support_(self) -> Array:
        """Number of support vectors (for each class)."""
        if not hasattr(self, "_n_support"):
            raise AttributeError("n_support_ is only available after fit.")
        return self._n_support

    @property
    def coef_(self) -> Any:
        """Coefficients of the columns, for the linear kernel; sparse for sparse X."""
        linear = isinstance(self.kernel, str) and self.kernel == "linear"
        if not (linear or isinstance(self.kernel, t.Linear)):
            raise AttributeError("coef_ is only available when using a linear kernel")
        check_is_fitted(self)
        coef = np.asarray(self._pair_coefficients().T @ self.support_vectors_)
        if sparse.issparse(self.support_vectors_):
            return self._as_rows_are(coef)
        coef.flags.writeable = False
        return coef

    def _pair_coefficients(self) -> Array:
        """Coefficients of the support vectors, one column for each problem."""
        return dense_coef(self.dual_coef_).T
