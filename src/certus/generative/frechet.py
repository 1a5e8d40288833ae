"""How far apart two sets of rows are in a space of features, beside real rows.

    F = ‖m − m'‖² + tr(S + S' − 2(S S')^½)

of means and covariances of the features: the squared Wasserstein distance of two normal
distributions. Estimated from few rows it is too large, so it says something only beside
its value for two sets of real rows of the same sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from certus.generative.inputs import rows
from certus.typing import Array, MatrixLike


def frechet_distance(
    X: MatrixLike, Y: MatrixLike, *, features: Callable[[Any], Any] | None = None
) -> float:
    """The Fréchet distance of two sets of rows, that of Inception scores as well.

    Parameters
    ----------
    X, Y : array-like of shapes (n, d) and (m, d)
        Rows, two of each at least.
    features : callable, optional
        Numbers by which rows are compared, ``features(X)`` of shape (n, k): such as the
        last hidden layer of a classifier that was fitted on other real rows. By default
        the rows themselves.

    Returns
    -------
    float
        Zero for equal means and covariances.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import frechet_distance
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [3.0, 1.0]])
    >>> round(frechet_distance(X, X + [3.0, 4.0]), 9)
    25.0
    """
    A, B = (np.asarray(R) if features is None else features(R) for R in (X, Y))
    A, B = rows("X", A), rows("Y", B)
    if A.shape[1] != B.shape[1] or min(len(A), len(B)) < 2:
        raise ValueError(
            "X and Y must have the same features and two rows or more, got shapes "
            f"{A.shape} and {B.shape}."
        )
    S, T = (np.atleast_2d(np.cov(R, rowvar=False)) for R in (A, B))
    between = float(np.square(A.mean(axis=0) - B.mean(axis=0)).sum())
    # tr (ST)^½ is the sum of singular values of S^½ T^½, which are never negative.
    cross = np.linalg.svd(_root(S) @ _root(T), compute_uv=False).sum()
    return max(between + float(np.trace(S) + np.trace(T) - 2 * cross), 0.0)


def _root(S: Array) -> Array:
    values, V = np.linalg.eigh(S)
    return np.asarray((V * np.sqrt(np.maximum(values, 0.0))) @ V.T)
