"""Probabilities of a support vector classifier, computed as in libsvm.

Each pair of classes is fitted five times without a fifth of its rows. A sigmoid
P(first class) = 1 / (1 + exp(a·f + b)) is fitted to the scores f of the rows left out
(Platt, 1999; Lin, Lin and Weng, 2007). With more than two classes the probabilities r
of the pairs are coupled: p minimises Σ_{i<j} (r_ji·p_i − r_ij·p_j)² over p that sum to
one (Wu, Lin and Weng, 2004, second approach).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit

from certus.kernels.machine import take
from certus.kernels.rows import multiply
from certus.objectives import terms as t
from certus.svm.problem import SolvedPart
from certus.typing import Array

FOLDS = 5
#: Probabilities of a pair stay this far from 0 and 1, as in libsvm.
MARGIN = 1e-7


def held_out_scores(
    kernel: t.Kernel,
    rows: Any,
    target: Array,
    solve: Callable[[Any, Array], SolvedPart],
    rng: np.random.RandomState,
) -> Array:
    """The score of each row by a machine that was fitted without it.

    Parameters
    ----------
    kernel : kernel of ``certus.objectives``
        With ``Precomputed()``, ``rows`` is the matrix itself.
    rows : array or sparse matrix
        Rows of the two classes.
    target : array of shape (n,)
        Their signs.
    solve : callable
        Fits rows, given as such and by number.
    rng : RandomState
        Draws the folds, which keep the shares of the classes.

    Returns
    -------
    array of shape (n,)
        The scores.
    """
    shuffled = rng.permutation(len(target))
    by_class = shuffled[np.argsort(target[shuffled], kind="stable")]
    fold = np.empty(len(target), dtype=int)
    fold[by_class] = np.arange(len(target)) % FOLDS
    scores = np.zeros(len(target))
    for number in range(FOLDS):
        out, kept = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        if not len(out) or not len(kept):
            continue
        if np.ptp(target[kept]) == 0:  # one class is left: its sign
            scores[out] = target[kept[0]]
            continue
        part = solve(take(kernel, rows, kept), kept)
        used = np.flatnonzero(part.coef)
        coef = part.coef[used][:, None]
        if isinstance(kernel, t.Precomputed):
            sums = rows[np.ix_(out, kept[used])] @ coef
        else:
            sums = multiply(kernel, rows[out], rows[kept[used]], coef)
        scores[out] = np.ravel(sums) + part.b
    return scores


def fit_sigmoid(scores: Array, target: Array) -> tuple[float, float]:
    """The a and b of Platt's sigmoid, by Newton's method with backtracking.

    The loss is Σ [−q·log p − (1 − q)·log(1 − p)] with p = 1 / (1 + exp(a·f + b)) and
    targets q drawn a little away from 0 and 1, so that a finite minimum exists.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.svm.probability import fit_sigmoid
    >>> a, b = fit_sigmoid(np.array([-2.0, -1, 1, 2]), np.array([-1, -1, 1, 1]))
    >>> a < 0, abs(round(b, 6))
    (True, 0.0)
    """
    positive = target > 0
    n_positive = float(positive.sum())
    n_negative = len(target) - n_positive
    q = np.where(
        positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2)
    ).astype(float)
    w = np.array([0.0, np.log((n_negative + 1) / (n_positive + 1))])
    A = np.column_stack([scores, np.ones(len(scores))])

    def loss(w: Array) -> float:
        z = A @ w
        return float(np.sum(np.logaddexp(0.0, z) - (1 - q) * z))

    value = loss(w)
    for _ in range(100):
        p = expit(-(A @ w))
        gradient = A.T @ (q - p)
        if np.abs(gradient).max() < 1e-5:
            break
        curvature = (A.T * (p * (1 - p))) @ A + 1e-12 * np.eye(2)
        step = -np.linalg.solve(curvature, gradient)
        size = 1.0
        while size >= 1e-10:
            new = loss(w + size * step)
            if new < value + 1e-4 * size * float(gradient @ step):
                break
            size /= 2
        else:
            break
        w, value = w + size * step, new
    return float(w[0]), float(w[1])


def class_probabilities(scores: Array, a: Array, b: Array, k: int) -> Array:
    """Probabilities of k classes from the scores of their pairs.

    Parameters
    ----------
    scores : array of shape (n, k * (k - 1) / 2)
        A score above zero speaks for the first class of its pair.
    a, b : array of shape (k * (k - 1) / 2,)
        The sigmoids.
    k : int
        Number of classes.

    Returns
    -------
    array of shape (n, k)
        Each row sums to one.
    """
    pair = np.clip(expit(-(a * scores + b)), MARGIN, 1 - MARGIN)
    if k == 2:
        return np.column_stack([pair, 1 - pair])
    r = np.zeros((len(scores), k, k))
    for column, (i, j) in enumerate(itertools.combinations(range(k), 2)):
        r[:, i, j], r[:, j, i] = pair[:, column], 1 - pair[:, column]
    return _couple(r)


def _couple(r: Array) -> Array:
    """The p of each row: Qp + λ·1 = 0 and Σp = 1, with Q from the pairs."""
    n, k, _ = r.shape
    diagonal = np.arange(k)
    system = np.zeros((n, k + 1, k + 1))
    system[:, :k, :k] = -np.swapaxes(r, 1, 2) * r
    system[:, diagonal, diagonal] = np.square(r).sum(axis=1)
    system[:, :k, k] = system[:, k, :k] = 1.0
    right = np.zeros((n, k + 1, 1))
    right[:, k] = 1.0
    p = np.clip(np.linalg.solve(system, right)[:, :k, 0], 0.0, None)
    return np.asarray(p / p.sum(axis=1, keepdims=True))
