"""Active learning: ask for the labels that a model is least sure of.

On a threshold in one dimension, asking at the boundary halves the interval that is left
with each label; with rows drawn at random the number of labels grows like one over the
error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import xlogy

from certus.base import check_choice, check_number
from certus.typing import Fit, MatrixLike


def _entropy(p: np.ndarray) -> np.ndarray:
    return -xlogy(p, p).sum(axis=1)


def _margin(p: np.ndarray) -> np.ndarray:
    top = np.sort(p, axis=1)[:, -2:]
    return 1.0 - (top[:, 1] - top[:, 0])


def _least(p: np.ndarray) -> np.ndarray:
    return 1.0 - p.max(axis=1)


#: Doubt about rows of probabilities, by name; higher is less sure.
DOUBTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "margin": _margin,
    "entropy": _entropy,
    "least_confident": _least,
}


def most_uncertain(
    model: Fit, X: MatrixLike, n: int = 1, *, by: str = "margin"
) -> np.ndarray:
    """Rows about which a classifier is least sure, whose labels help most.

    Parameters
    ----------
    model : fitted classifier
        With ``predict_proba``.
    X : array-like of shape (n_samples, ...)
        Rows without labels.
    n : int, default=1
        How many to name.
    by : {"margin", "entropy", "least_confident"}, default="margin"
        Doubt: a small lead of the first class over the second, a large entropy, or a
        small probability of the first class. With two classes they agree.

    Returns
    -------
    ndarray of shape (n,)
        Row numbers, the most doubtful first; equal ones in the order of X.

    Examples
    --------
    >>> from certus.neural_network import most_uncertain
    >>> from certus.linear_model import LogisticRegression
    >>> model = LogisticRegression().fit([[0.0], [1.0], [9.0], [10.0]], [0, 0, 1, 1])
    >>> most_uncertain(model, [[1.0], [5.2], [8.0]])
    array([1])
    """
    check_choice("by", by, tuple(DOUBTS))
    if not hasattr(model, "predict_proba"):
        raise TypeError(
            f"model must be a classifier with predict_proba; {type(model).__name__} "
            "has none."
        )
    p = np.asarray(model.predict_proba(X), dtype=np.float64)
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(
            "predict_proba must give a probability for each row and class, got an "
            f"array of shape {p.shape}."
        )
    check_number("n", n, 1, len(p), integer=True)
    return np.argsort(-DOUBTS[by](p), kind="stable")[:n]
