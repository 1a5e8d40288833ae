"""Constructed problems: data whose optimum is known before anything is fitted.

Parity with another library only shows equal bugs. Here the optimum (w, b) comes first
and the data are built around it, so that it satisfies the optimality conditions of

    P(w, b) = Σ sᵢ ℓ(yᵢ, xᵢᵀw + b) / Σ s + l1·‖w‖₁ + ½·l2·‖w‖²

to rounding. Regression bends the columns of X towards a chosen residual; a
classification problem repeats each row once per class and chooses the weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax

from certus.objectives import terms as t
from certus.typing import Array

__all__ = [
    "ConstructedProblem",
    "known_logistic",
    "known_regression",
    "known_softmax",
    "penalty_term",
    "separable",
    "soft_threshold",
]


class ConstructedProblem(NamedTuple):
    """A problem and its optimum.

    ``coef`` has shape (d,), for softmax (k, d); ``intercept`` is None where the model
    has none.
    """

    terms: tuple[t.Loss, t.Penalty]
    X: Array
    y: Array
    s: Array
    coef: Array
    intercept: Any


def penalty_term(l1: float, l2: float) -> t.Penalty:
    """The term l1·‖w‖₁ + ½·l2·‖w‖², in its shortest form.

    Examples
    --------
    >>> from certus.testing.problems import penalty_term
    >>> penalty_term(0.1, 0.0), penalty_term(0.0, 0.0)
    (L1(alpha=0.1), NoPenalty())
    """
    if l1 and l2:
        return t.L1L2(l1, l2)
    if l1:
        return t.L1(l1)
    return t.L2(l2) if l2 else t.NoPenalty()


def soft_threshold(x: Array, level: float) -> Array:
    """Minimiser of ½(w − x)² + level·abs(w).

    Examples
    --------
    >>> import numpy as np
    >>> from certus.testing.problems import soft_threshold
    >>> soft_threshold(np.array([3.0, -0.5]), 1.0).tolist()
    [2.0, -0.0]
    """
    return np.asarray(np.sign(x) * np.maximum(np.abs(x) - level, 0.0))


def known_regression(
    n: int = 40,
    d: int = 8,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    support: int | None = None,
    intercept: bool = True,
    weighted: bool = False,
    seed: int = 0,
) -> ConstructedProblem:
    """Least squares, ridge, lasso or elastic net around a chosen (w, b).

    Parameters
    ----------
    n, d : int
        Rows and columns; n < d needs a penalty for the optimum to be unique.
    l1, l2 : float
        Levels of the penalty.
    support : int, optional
        How many coefficients are not zero; half of them with an L1 part, else all.
    intercept : bool
        Whether b is free.
    weighted : bool
        Whether rows have different weights; otherwise all are one.
    seed : int
        Of the generator.

    Examples
    --------
    >>> from certus.testing.problems import known_regression
    >>> from certus import check
    >>> p = known_regression(l1=0.1)
    >>> check(p.coef, p.intercept, p.terms, p.X, p.y, p.s, tol=1e-12).met
    True
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(0.3, 1.0, (n, d))
    s = rng.uniform(0.2, 2.0, n) if weighted else np.ones(n)
    share = s / s.sum()
    w, subgradient = _signed_point(d, l1, support, rng)
    b = 1.7 if intercept else 0.0
    residual = rng.normal(size=n)
    if intercept:
        residual -= share @ residual
    # Optimality is Xᵀ(share∘r) = l1·g + l2·w; each column moves along r to get there.
    pull = l1 * subgradient + l2 * w
    X += np.outer(residual, (pull - X.T @ (share * residual)) / (share @ residual**2))
    y = X @ w + b + residual
    terms = (t.Squared(), penalty_term(l1, l2))
    return ConstructedProblem(terms, X, y, s, w, b if intercept else None)


def _signed_point(
    d: int, l1: float, support: int | None, rng: np.random.Generator
) -> tuple[Array, Array]:
    """A point and a subgradient of its L1 norm, strictly inside where w = 0."""
    on = support if support is not None else (max(1, d // 2) if l1 else d)
    w = rng.uniform(0.5, 2.0, d) * rng.choice([-1.0, 1.0], d)
    subgradient = np.sign(w)
    off = rng.permutation(d)[on:]
    w[off] = 0.0
    subgradient[off] = rng.uniform(-0.9, 0.9, len(off))
    return w, subgradient


def known_logistic(
    n: int = 60,
    d: int = 4,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    intercept: bool = True,
    seed: int = 0,
) -> ConstructedProblem:
    """Two classes around a chosen (w, b); labels are 0 and 1.

    Every row appears once with each label, weighted by the share qᵢ of that label. The
    optimum asks for Xᵀ(p − q)/n = −∂Ω(w), which a q near p satisfies. Penalties
    must be small enough for these to stay within (0, 1).

    Parameters
    ----------
    n, d : int
        Different rows, and columns.
    l1, l2 : float
        Levels of the penalty beside the mean of the losses.
    intercept : bool
        Whether b is free.
    seed : int
        Of the generator.

    Examples
    --------
    >>> from certus.testing.problems import known_logistic
    >>> from certus import check
    >>> p = known_logistic(l2=0.01)
    >>> check(p.coef, p.intercept, p.terms, p.X, p.y, p.s, tol=1e-12).met
    True
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    w, subgradient = _signed_point(d, l1, None, rng)
    w *= 2 / np.abs(X @ w).max()  # moderate scores leave room for the penalty
    b = 0.4 if intercept else 0.0
    p = expit(X @ w + b)
    P, pull = np.column_stack([1 - p, p]), l1 * subgradient + l2 * w
    q = p + _moved(X, intercept, P, np.column_stack([-pull, pull]))[:, 1]
    _check_shares(q)
    data = np.vstack([X, X])
    y = np.repeat([1, 0], n)
    terms = (t.Logistic(), penalty_term(l1, l2))
    return ConstructedProblem(
        terms, data, y, np.concatenate([q, 1 - q]), w, b if intercept else None
    )


def known_softmax(
    n: int = 60,
    d: int = 3,
    k: int = 3,
    *,
    l2: float = 0.0,
    intercept: bool = True,
    seed: int = 0,
) -> ConstructedProblem:
    """As :func:`known_logistic` with k classes, labelled 0 … k − 1.

    Scores are centred over the classes, which an L2 penalty demands; without one the
    optimum is unique only up to a common vector.

    Parameters
    ----------
    n, d, k : int
        Different rows, columns, classes.
    l2 : float
        Level of the penalty.
    intercept : bool
        Whether b is free.
    seed : int
        Of the generator.

    Examples
    --------
    >>> from certus.testing.problems import known_softmax
    >>> from certus import check
    >>> p = known_softmax(l2=0.01)
    >>> check(p.coef, p.intercept, p.terms, p.X, p.y, p.s, tol=1e-12).met
    True
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    W = rng.normal(size=(d, k))
    W -= W.mean(axis=1, keepdims=True)
    W *= 2 / np.abs(X @ W).max()  # moderate scores leave room for the penalty
    b = np.linspace(-0.5, 0.5, k) if intercept else np.zeros(k)
    P = softmax(X @ W + b, axis=1)
    q = P + _moved(X, intercept, P, l2 * W)
    _check_shares(q)
    data, y = np.vstack([X] * k), np.repeat(np.arange(k), n)
    terms = (t.Softmax(k), penalty_term(0.0, l2))
    return ConstructedProblem(
        terms, data, y, q.T.ravel(), W.T.copy(), b if intercept else None
    )


def _moved(X: Array, intercept: bool, P: Array, pull: Array) -> Array:
    """R with XᵀR/n = pull, and columns that sum to 0 if b is free; rows sum to 0.

    R = P∘(B − Σₖ P∘B) with B = AV is small where a probability is near 0 or 1, so that
    P + R remains a probability.
    """
    n, k = P.shape
    A = np.column_stack([X, np.ones(n)]) if intercept else X
    H = np.einsum("ia,ik,kl,ib->akbl", A, P, np.eye(k), A)
    H -= np.einsum("ia,ik,il,ib->akbl", A, P, P, A)
    goal = np.vstack([n * pull, np.zeros((A.shape[1] - len(pull), k))])
    side = A.shape[1] * k
    V = np.linalg.lstsq(H.reshape(side, side), goal.ravel(), rcond=1e-12)[0]
    PB = P * (A @ V.reshape(-1, k))
    return np.asarray(PB - P * PB.sum(axis=1, keepdims=True))


def _check_shares(q: Array) -> None:
    if not (q.min() > 0 and q.max() < 1):
        raise ValueError("the penalty is too large for this construction; lower it.")


def separable(
    kind: str = "complete", n: int = 30, d: int = 3, k: int = 2, *, seed: int = 0
) -> tuple[Array, Array, Array]:
    """Classes that a direction separates, so that no penalty means no minimiser.

    Parameters
    ----------
    kind : {"complete", "quasi"}
        Whether every row has a positive margin, or some lie on the boundary.
    n, d, k : int
        Rows, columns, classes.
    seed : int
        Of the generator.

    Returns
    -------
    X, y, direction : arrays
        ``direction`` has shape (d + 1, k), (d + 1, 1) for two classes; the last row is
        the intercept's.

    Examples
    --------
    >>> from certus.testing.problems import separable
    >>> X, y, direction = separable()
    >>> z = X @ direction[:-1, 0] + direction[-1, 0]
    >>> bool(((z > 0) == (y == 1)).all())
    True
    """
    if kind not in ("complete", "quasi"):
        raise ValueError(f"kind must be 'complete' or 'quasi', got {kind!r}.")
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.arange(n) % k
    # The first column alone tells class 0 from the rest; the others overlap.
    side = np.where(y == 0, -1.0, 1.0)
    X[:, 0] = side * rng.uniform(0.5, 2.0, n)
    if kind == "quasi":
        X[: 2 * k, 0] = 0.0
        X[: 2 * k, 1:] = np.repeat(X[:2, 1:], k, axis=0)  # same rows, every label
    direction = np.zeros((d + 1, 1 if k == 2 else k))
    direction[0] = 1.0
    if k > 2:
        direction[0, 0] = -1.0
    return X, y, direction
