"""Code that the kernel machines share: their kernel, their rows and their scores.

A machine takes a kernel as scikit-learn does, by name, as a function or as
"precomputed", or as a kernel of ``certus.objectives``; all become one term, kept in
``kernel_``, which solver and verifier evaluate each in its own way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg, sparse
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import row_weights
from certus.base import Estimator, check_number, require_finite, validate_data
from certus.evidence import KernelWitness
from certus.kernels.evaluate import evaluate, is_positive, squared_norms
from certus.kernels.rows import as_rows, multiply
from certus.objectives import terms as t
from certus.typing import Array, ArrayLike, Matrix, MatrixLike

#: Rows up to which ``fit`` examines a matrix whose sign is not known.
LOOK = 2_000
#: Cells up to which sparse rows are worked on as an array: eight megabytes.
CELLS = 1 << 20
NAMES = ("linear", "poly", "rbf", "laplacian", "sigmoid", "precomputed")


def gamma_value(gamma: float | str, X: Any, s: Array | None = None) -> float:
    """scikit-learn's "scale" and "auto" as numbers; weights count as repetitions."""
    if isinstance(gamma, str):
        if gamma not in ("scale", "auto"):
            raise ValueError(
                f"gamma must be 'scale', 'auto' or a number, got {gamma!r}."
            )
        if gamma == "auto":
            return 1.0 / X.shape[1]
        variance = _variance(X, s)
        return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
    check_number("gamma", gamma)
    return float(gamma)


def dense_if_few(X: Any) -> Any:
    """Sparse rows of few cells as an array.

    Dense products are faster there, and a model is the same to the last digit whichever
    way its rows are stored.
    """
    few = sparse.issparse(X) and X.shape[0] * X.shape[1] <= CELLS
    return X.toarray() if few else X


def _variance(X: Any, s: Array | None) -> float:
    """Variance of all cells, each row counted by its weight."""
    X = dense_if_few(X)
    if s is not None:
        share = s / s.sum()
        mean = (
            float(share @ np.asarray(X.sum(axis=1), dtype=float).ravel()) / X.shape[1]
        )
        if sparse.issparse(X):
            square = X.multiply(X).sum(axis=1)
            return float(share @ np.ravel(square)) / X.shape[1] - mean**2
        spread = np.square(X - mean, dtype=np.float64).sum(axis=1)
        return float(share @ spread) / X.shape[1]
    if sparse.issparse(X):
        return float(X.multiply(X).mean() - X.mean() ** 2)
    return float(np.var(X, dtype=np.float64))


def kernel_term(
    kernel: Any,
    X: MatrixLike,
    gamma: Any = "scale",
    degree: Any = 3,
    coef0: Any = 0.0,
    s: Array | None = None,
) -> t.Kernel:
    """The term that a constructor's ``kernel`` and its parameters stand for."""
    if isinstance(kernel, t.Kernel):
        return kernel
    if callable(kernel):
        return t.OwnKernel(kernel)
    if kernel not in NAMES:
        shown = ", ".join(repr(name) for name in NAMES)
        raise ValueError(
            f"kernel must be one of {shown}, a function of two sets of rows, or a "
            f"kernel of certus.objectives; got {kernel!r}."
        )
    if kernel == "precomputed":
        return t.Precomputed()
    check_number("degree", degree)
    check_number("coef0", coef0, -np.inf)
    if kernel == "linear":
        return t.Linear()
    scale = gamma_value(gamma, X, s)
    match kernel:
        case "poly":
            return t.Polynomial(degree, float(coef0), scale)
        case "rbf":
            return t.Gaussian(scale)
        case "laplacian":
            return t.Laplace(scale, 1)
    return t.Sigmoid(scale, float(coef0))


class KernelMachine(Estimator):
    """Base of the kernel machines; abstract."""

    kernel: Any
    kernel_: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = isinstance(self.kernel, str) and self.kernel == "precomputed"
        own = own or isinstance(self.kernel, t.Precomputed)
        tags.input_tags.pairwise = own
        tags.input_tags.sparse = not own
        return tags

    def _own_function(self) -> bool:
        return callable(self.kernel) and not isinstance(self.kernel, t.Kernel)

    def _read(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, **options: Any
    ) -> Any:
        """Checked X, y and weights; with a user's function X is taken as it is."""
        if not self._own_function():
            if sparse.issparse(X) and not self.__sklearn_tags__().input_tags.sparse:
                raise TypeError("Sparse precomputed kernels are not supported.")
            return self._validate_X_y(X, y, sample_weight, **options)
        if hasattr(X, "shape") or _numeric(X):
            return self._validate_X_y(X, y, sample_weight, **options)
        y = np.asarray(y)
        if len(X) != len(y):
            raise ValueError(f"X has {len(X)} rows and y has {len(y)}: inconsistent.")
        if sample_weight is not None:
            sample_weight = row_weights(sample_weight, len(y))
        return X, y, sample_weight

    def _training(self, X: Any) -> tuple[t.Kernel, Any]:
        """The kernel and rows a solver works on; a user's function gives a matrix."""
        kernel = self.kernel_
        if isinstance(kernel, t.OwnKernel):
            self._rows = X
            return t.Precomputed(), evaluate(kernel, X, X)
        if isinstance(kernel, t.Precomputed):
            if X.shape[0] != X.shape[1]:
                raise ValueError(
                    "Precomputed matrix must be a square matrix. Input is a "
                    f"{X.shape[0]}x{X.shape[1]} matrix."
                )
            require_finite(X)
            return kernel, as_rows(X)
        rows = as_rows(dense_if_few(X))
        if not np.isfinite(squared_norms(rows)).all():
            raise ValueError(
                "The numbers in X are too large for a kernel: their squares "
                "overflow. Standardise the columns (StandardScaler)."
            )
        return kernel, rows

    def _query(self, X: MatrixLike) -> Any:
        """Rows to predict, checked."""
        check_is_fitted(self)
        if self._own_function() and not (hasattr(X, "shape") or _numeric(X)):
            return X
        X = validate_data(
            self,
            X,
            accept_sparse=["csr", "csc"],
            dtype=[np.float64, np.float32],
            reset=False,
        )
        return as_rows(X)

    def _sums(self, X: Any, base: Any, index: Array, coef: Array) -> Array:
        """Σ coef·k(x, base) for every row of X; ``index`` says which training rows."""
        kernel = self.kernel_
        if isinstance(kernel, t.OwnKernel):
            return evaluate(kernel, X, self._rows)[:, index] @ coef
        if isinstance(kernel, t.Precomputed):
            return np.asarray(X[:, index] @ coef)
        return multiply(kernel, X, as_rows(base), coef)


class OneAgainstRest(KernelMachine):
    """Scores and labels of one function f + b, or of one for each class; abstract."""

    classes_: Array
    dual_coef_: Array
    intercept_: Array

    def _expansion(self) -> tuple[Any, Array]:
        """The rows that f is a sum over, and their numbers among the training rows."""
        raise NotImplementedError

    def decision_function(self, X: MatrixLike) -> Array:
        """Scores f(x) + b: one for each row with two classes, else one for each class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; with ``kernel="precomputed"`` their kernel values with all training
            rows.
        """
        X = self._query(X)
        z = self._sums(X, *self._expansion(), self.dual_coef_.T) + self.intercept_
        return z.ravel() if z.shape[1] == 1 else z

    def predict(self, X: MatrixLike) -> Array:
        """Predicted labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to label.
        """
        z = self.decision_function(X)
        index = (z > 0).astype(int) if z.ndim == 1 else z.argmax(axis=1)
        return np.asarray(self.classes_[index])


def _numeric(X: MatrixLike) -> bool:
    try:
        return np.asarray(X).dtype.kind in "fiub"
    except ValueError:
        return False


def take(kernel: t.Kernel, X: Matrix, rows: Array) -> Any:
    """The training data of a part of the rows."""
    if isinstance(kernel, t.Precomputed):
        return X[np.ix_(rows, rows)]
    return X[rows]


def negative_direction(kernel: t.Kernel, X: Any) -> KernelWitness:
    """An eigenvector with vᵀKv < 0, where the kernel's form allows one."""
    if is_positive(kernel) or X.shape[0] > LOOK:
        return KernelWitness()
    K = X if isinstance(kernel, t.Precomputed) else evaluate(kernel, X, X)
    value, vector = smallest_eigenpair(np.asarray(K, dtype=np.float64))
    trace = float(np.abs(np.diagonal(K)).sum())
    return KernelWitness(vector if value < -1e-10 * trace else None)


def smallest_eigenpair(K: Array) -> tuple[float, Array]:
    """Smallest eigenvalue of the symmetric part of K, with its unit eigenvector."""
    K = (K + K.T) / 2
    values, vectors = linalg.eigh(K, subset_by_index=[0, 0], check_finite=False)
    return float(values[0]), vectors[:, 0]
