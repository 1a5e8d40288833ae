"""How well neighbours predict the rows they come from, each without itself."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Strength
from certus.typing import Array, MatrixLike

#: Training rows predicted without themselves.
LEFT_OUT = 2048


def left_out(model: Any, X: MatrixLike, rows: Any, targets: Array) -> list[Claim]:
    """``leave_one_out``: the error on training rows predicted without themselves.

    Parameters
    ----------
    model : estimator
        With ``n_neighbors``, ``weights`` and ``kneighbors``; a classifier has
        ``classes_``.
    X : array-like or sparse matrix
        The training rows. Nothing is measured of others than those the model keeps.
    rows, targets : arrays
        What the model keeps: rows, and numbers or positions among the labels.

    Examples
    --------
    >>> from certus.diagnostics.neighbors import left_out
    >>> from certus.neighbors import KNeighborsRegressor
    >>> X, y = [[0.0], [1.0], [2.0], [9.0]], [0.0, 1.0, 2.0, 9.0]
    >>> model = KNeighborsRegressor(1).fit(X, y)
    >>> left_out(model, X, model.rows_, model.targets_)[0].detail
    'root mean square error 3.606 on 4 training rows, each left out of its
    own prediction'
    """
    n, k = rows.shape[0], model.n_neighbors
    if k >= n or not _same(rows, X):
        return []
    targets = targets[:, None] if targets.ndim == 1 else targets
    some = np.unique(np.linspace(0, n - 1, min(n, LEFT_OUT)).astype(int))
    with warnings.catch_warnings():  # these rows have lost their names
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        told, names = map(np.asarray, model.kneighbors(rows[some], n_neighbors=k + 1))
    others = names != some[:, None]
    others[others.all(axis=1), -1] = False  # hidden behind more than k copies of itself
    told, names = told[others].reshape(-1, k), names[others].reshape(-1, k)
    votes = _weights(model.weights, told)[:, :, None]
    if hasattr(model, "classes_"):
        kinds = [np.arange(codes.max() + 1) == codes[:, None] for codes in targets.T]
        best = [np.sum(votes * each[names], axis=1).argmax(axis=1) for each in kinds]
        value = float(np.mean((np.stack(best, axis=1) != targets[some]).any(axis=1)))
        text = f"{100 * value:.3g} % of labels wrong"
    else:
        mean = np.sum(votes * targets[names], axis=1) / votes.sum(axis=1)
        value = float(np.sqrt(np.mean(np.square(mean - targets[some]))))
        text = f"root mean square error {value:.4g}"
    detail = (
        f"{text} on {len(some):,} training rows, each left out of its own prediction"
    )
    return [Claim("leave_one_out", Strength.MEASURED, value, detail=detail)]


def _same(rows: Any, X: MatrixLike) -> bool:
    """Whether both hold the same numbers, or holes in the same places."""
    if sparse.issparse(rows) or sparse.issparse(X):
        a, b = sparse.csr_array(rows), sparse.csr_array(X)
        return a.shape == b.shape and (a != b).nnz == 0
    X = np.asarray(X)
    X = X if X.dtype.kind in "fiub" else X.astype(np.float64)
    return np.array_equal(rows, X, equal_nan=True)


def _weights(weights: Any, told: Array) -> Array:
    if callable(weights):
        return np.asarray(weights(told), dtype=float)
    if weights != "distance":
        return np.ones(told.shape)
    zero = told == 0
    with np.errstate(divide="ignore"):
        return np.where(zero.any(axis=1, keepdims=True), zero, 1.0 / told)
