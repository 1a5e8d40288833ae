"""Gram matrices, and whether a function of two rows is a kernel at all.

Mercer's condition: k is a kernel, an inner product k(x, z) = ⟨φ(x), φ(z)⟩ in some
space, exactly if every matrix of its values is symmetric and positive semidefinite. One
vector v with vᵀKv < 0 on one set of rows disproves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from certus.kernels.evaluate import evaluate, is_positive
from certus.kernels.machine import kernel_term, smallest_eigenpair
from certus.objectives import terms as t
from certus.results import Result
from certus.typing import Array, MatrixLike

__all__ = ["MercerCheck", "gram", "mercer_check"]


@dataclass(frozen=True, eq=False)
class MercerCheck(Result):
    """What was found about a kernel on a set of rows.

    Attributes
    ----------
    positive : bool
        Whether the matrix is symmetric and has no negative eigenvalue beyond rounding.
    eigenvalue : float
        The smallest eigenvalue.
    witness : array or None
        A unit vector v with vᵀKv < 0, where there is one.
    by_form : bool
        Whether the form of the kernel alone shows that it is one, on any rows.
    reason : str
        The finding as a sentence.
    """

    positive: bool
    eigenvalue: float
    witness: Array | None
    by_form: bool
    reason: str


def gram(kernel: Any, X: MatrixLike, Y: Any = None) -> Array:
    """The kernel matrix of rows of X with rows of Y (by default, with X itself).

    Parameters
    ----------
    kernel : kernel of ``certus.objectives``, callable or str
        What to evaluate; names are scikit-learn's, with ``gamma="scale"``.
    X, Y : array-like or sparse matrix
        Rows.

    Returns
    -------
    array of shape (len(X), len(Y))
        float64. Time and memory are those of the matrix.

    Examples
    --------
    >>> from certus.kernels import gram
    >>> from certus.objectives import Linear
    >>> gram(Linear(), [[1.0, 2.0], [0.0, 1.0]])
    array([[5., 2.],
           [2., 1.]])
    """
    X = _rows(X)
    return evaluate(kernel_term(kernel, X), X, X if Y is None else _rows(Y))


def _rows(X: Any) -> Any:
    if sparse.issparse(X):
        return X.tocsr()
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}; pass rows × columns.")
    return X


def mercer_check(kernel: Any, X: MatrixLike) -> MercerCheck:
    """Whether a kernel is symmetric positive semidefinite on the rows of X.

    Parameters
    ----------
    kernel : kernel of ``certus.objectives``, callable, str or "precomputed"
        The function to test; with ``"precomputed"``, X is the matrix.
    X : array-like or sparse matrix
        Rows to test it on. Costs the eigenvalues of a matrix of that many rows.

    Returns
    -------
    MercerCheck
        With the eigenvector of the smallest eigenvalue as witness where it is negative
        beyond 1e-10 of the trace.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.kernels import mercer_check
    >>> from certus.objectives import Gaussian, Sigmoid
    >>> X = np.random.default_rng(0).normal(size=(20, 3))
    >>> mercer_check(Gaussian(0.5), X).positive
    True
    >>> found = mercer_check(Sigmoid(1.0, coef0=-1.0), X)
    >>> found.positive, found.witness.shape
    (False, (20,))
    """
    X = _rows(X)
    term = kernel_term(kernel, X)
    K: Any = X if isinstance(term, t.Precomputed) else evaluate(term, X, X)
    K = np.asarray(K.toarray() if sparse.issparse(K) else K, dtype=np.float64)
    if K.shape[0] != K.shape[1]:
        raise ValueError(f"The kernel matrix has shape {K.shape}; it must be square.")
    if not np.isfinite(K).all():
        raise ValueError("The kernel matrix holds NaN or infinite values.")
    by_form = is_positive(term)
    uneven = float(np.abs(K - K.T).max(initial=0.0))
    value, vector = smallest_eigenpair(K)
    trace = float(np.abs(np.diagonal(K)).sum())
    size = max(trace, float(np.abs(K).max(initial=0.0)))
    if uneven > 1e-10 * size:
        reason = f"not symmetric: k(x, z) and k(z, x) differ by {uneven:.2g}"
        return MercerCheck(False, value, None, by_form, reason)
    if value < -1e-10 * size:
        reason = (
            f"not positive semidefinite: vᵀKv = {value:.2g} for the vector v in "
            "`witness`"
        )
        return MercerCheck(False, value, vector, by_form, reason)
    reason = f"no negative eigenvalue was found on these {len(K):,} rows"
    if by_form:
        reason = "this is a valid kernel on any rows, by its formula"
    return MercerCheck(True, value, None, by_form, reason)
