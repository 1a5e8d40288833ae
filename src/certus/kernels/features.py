"""Explicit feature maps, where they are finite: Φ with ΦΦᵀ = K.

A kernel has many: (x₁², √2x₁x₂, x₂²) and (x₁², x₁x₂, x₂x₁, x₂²) give the same inner
products. ``form="monomials"`` lists each monomial once, ``form="tensor"`` writes out
the tensor powers in row-major order: longer, but plain. The kernel needs d
multiplications where the map has C(d + p, p) or dᵖ entries.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np

from certus.base import check_choice
from certus.objectives import terms as t
from certus.typing import Array, MatrixLike

__all__ = ["feature_dimension", "feature_map"]


def feature_map(kernel: t.Kernel, X: MatrixLike, form: str = "monomials") -> Array:
    """Rows φ(x) with φ(x)·φ(z) = k(x, z).

    Parameters
    ----------
    kernel : kernel of ``certus.objectives``
        Linear, polynomial (any whole degree), and sums, products, non-negative
        multiples, compositions and weightings of such.
    X : array-like of shape (n_samples, n_features)
        Rows.
    form : {"monomials", "tensor"}
        How polynomials are written: each monomial once, or all tensor entries.

    Returns
    -------
    array of shape (n_samples, feature_dimension(kernel, n_features, form))

    Examples
    --------
    >>> from certus.kernels import feature_map
    >>> from certus.objectives import Polynomial
    >>> feature_map(Polynomial(2, coef0=0.0), [[1.0, 2.0]], form="tensor")
    array([[1., 2., 2., 4.]])
    """
    check_choice("form", form, ("monomials", "tensor"))
    X = np.asarray(X, dtype=np.float64)
    match kernel:
        case t.Linear():
            return X
        case t.Polynomial(degree, coef0, gamma) if _finite(kernel):
            if form == "tensor":
                return _tensor_powers(X, int(degree), coef0, gamma)
            return _monomials(X, int(degree), coef0, gamma)
        case t.Sum(left, right):
            return np.hstack([feature_map(k, X, form) for k in (left, right)])
        case t.Product(left, right):
            a, b = (feature_map(k, X, form) for k in (left, right))
            return _rowwise_tensor(a, b)
        case t.Scaled(factor, inner) if factor >= 0:
            return math.sqrt(factor) * feature_map(inner, X, form)
        case t.Weighted(inner, function):
            f = np.asarray(function(X), dtype=float).reshape(-1, 1)
            return f * feature_map(inner, X, form)
        case t.Composed(inner, mapping):
            return feature_map(inner, np.asarray(mapping(X), dtype=float), form)
    raise ValueError(
        f"{type(kernel).__name__} has no known feature map of finite size. Use the "
        "kernel itself, or a polynomial kernel."
    )


def feature_dimension(
    kernel: t.Kernel, n_features: int, form: str = "monomials"
) -> float:
    """Length of φ(x) for rows of ``n_features`` entries; inf where it is not finite.

    Parameters
    ----------
    kernel : kernel of ``certus.objectives``
        As in :func:`feature_map`.
    n_features : int
        Length of x.
    form : {"monomials", "tensor"}
        As in :func:`feature_map`.

    Examples
    --------
    >>> from certus.kernels import feature_dimension
    >>> from certus.objectives import Gaussian, Polynomial
    >>> feature_dimension(Polynomial(3), 50), feature_dimension(Gaussian(1.0), 50)
    (23426, inf)
    """
    match kernel:
        case t.Linear():
            return n_features
        case t.Polynomial(degree, coef0, _) if _finite(kernel):
            p = int(degree)
            if form == "tensor":
                first = 0 if coef0 else p
                return sum(n_features**j for j in range(first, p + 1))
            length = n_features + (1 if coef0 else 0)
            return math.comb(length + p - 1, p) if length else int(p == 0)
        case t.Sum(left, right):
            return sum(feature_dimension(k, n_features, form) for k in (left, right))
        case t.Product(left, right):
            sizes = [feature_dimension(k, n_features, form) for k in (left, right)]
            return sizes[0] * sizes[1]
        case t.Scaled(factor, inner) if factor >= 0:
            return feature_dimension(inner, n_features, form)
        case t.Weighted(inner, _):
            return feature_dimension(inner, n_features, form)
    return math.inf


def _finite(kernel: t.Polynomial) -> bool:
    whole = float(kernel.degree).is_integer() and kernel.degree >= 0
    return whole and kernel.coef0 >= 0 and kernel.gamma >= 0


def _monomials(X: Array, p: int, coef0: float, gamma: float) -> Array:
    """√(multinomial)·Π xᵢ^aᵢ over Σa = p, after appending √coef0 to √gamma·x."""
    A = math.sqrt(gamma) * X
    if coef0:
        A = np.column_stack([A, np.full(len(X), math.sqrt(coef0))])
    columns = []
    for chosen in itertools.combinations_with_replacement(range(A.shape[1]), p):
        repeats = Counter(chosen).values()
        count = math.factorial(p) // math.prod(math.factorial(r) for r in repeats)
        columns.append(math.sqrt(count) * np.prod(A[:, list(chosen)], axis=1))
    return np.column_stack(columns) if columns else np.zeros((len(X), 0))


def _tensor_powers(X: Array, p: int, coef0: float, gamma: float) -> Array:
    """√(binomial·gammaʲ·coef0ᵖ⁻ʲ)·vec(x ⊗ … ⊗ x), highest power first."""
    parts, power = [], np.ones((len(X), 1))
    for j in range(p + 1):
        level = math.comb(p, j) * gamma**j * (coef0 ** (p - j) if p > j else 1.0)
        if level > 0:
            parts.append(math.sqrt(level) * power)
        power = _rowwise_tensor(power, X)
    return np.hstack(parts[::-1])


def _rowwise_tensor(a: Array, b: Array) -> Array:
    return np.einsum("ni,nj->nij", a, b).reshape(len(a), -1)
