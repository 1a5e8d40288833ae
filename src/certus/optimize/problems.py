"""Objectives whose constants are known: quadratics, least squares, losses of scores.

They carry L, m, the terms' smoothness, the Hessian and, where there is a formula, the
minimiser, so that every theorem can be run on one's own data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit

from certus import objectives
from certus.objectives import Loss, Softmax
from certus.optimize.objective import ALL, Objective
from certus.typing import Array, ArrayLike, MatrixLike


def quadratic_objective(A: Any, b: Any) -> Objective:
    """½·xᵀAx − bᵀx with its constants and minimiser.

    Parameters
    ----------
    A : array-like of shape (d, d)
        Symmetric, positive semi-definite.
    b : array-like of shape (d,)

    Returns
    -------
    Objective
        L and m are the extreme eigenvalues of A, each moved outwards by its rounding;
        without a positive m there is a minimiser only if b is in the range of A, and
        then the one of least norm is given.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import quadratic_objective
    >>> f = quadratic_objective(np.diag([1.0, 4.0]), [1.0, 4.0])
    >>> f.optimum, round(f.L, 9), round(f.m, 9)
    (array([1., 1.]), 4.0, 1.0)
    """
    A, b = np.asarray(A, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if not (np.isfinite(A).all() and np.isfinite(b).all()):
        raise ValueError("A or b holds NaN or infinity.")
    if A.ndim != 2 or A.shape != (b.size, b.size) or not np.allclose(A, A.T):
        raise ValueError(f"A must be symmetric and have shape ({b.size}, {b.size}).")
    eigenvalues, vectors = np.linalg.eigh(A)
    L, m = _outwards(eigenvalues)
    rounding = L - float(eigenvalues[-1])
    if eigenvalues[0] < -10 * rounding:
        raise ValueError("A has a negative eigenvalue, so there is no minimum.")
    keep = eigenvalues > 1e-12 * max(eigenvalues[-1], 1e-300)
    optimum = vectors[:, keep] @ ((vectors[:, keep].T @ b) / eigenvalues[keep])
    if m > 0:
        optimum = np.linalg.solve(A, b)
    elif not np.allclose(A @ optimum, b):
        raise ValueError("b is not in the range of A, so there is no minimum.")

    def function(x: Array) -> tuple[float, Array]:
        product = A @ x
        return float(x @ product / 2 - b @ x), product - b

    return Objective(
        function,
        L=L,
        m=max(m, 0.0),
        convex=True,
        quadratic=True,
        hessian_lipschitz=0.0,
        optimum=optimum,
        hessian=lambda x: A,
    )


def least_squares_objective(
    X: MatrixLike, y: ArrayLike, alpha: float = 0.0
) -> Objective:
    """(1/2n)·‖y − Xw‖² + (alpha/2)·‖w‖², as a mean of n terms.

    Parameters
    ----------
    X : array-like of shape (n, d)
    y : array-like of shape (n,)
    alpha : float, default=0
        Strength of the squared penalty.

    Returns
    -------
    Objective
        L = λ_max(XᵀX)/n + alpha, m = λ_min(XᵀX)/n + alpha,
        L_terms = max ‖x_i‖² + alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import least_squares_objective
    >>> f = least_squares_objective(np.eye(2), [2.0, 4.0])
    >>> f.optimum, round(f.L, 9), f.L_terms
    (array([2., 4.]), 0.5, 1.0)
    """
    X, y = _rows(X, y, alpha)
    n, d = X.shape
    L, m = _outwards(np.linalg.eigvalsh(X.T @ X / n))
    H = X.T @ X / n + alpha * np.eye(d)
    if m + alpha > 0:
        optimum = np.linalg.solve(H, X.T @ y / n)
    else:
        optimum = np.linalg.lstsq(X, y, rcond=None)[0]

    def function(w: Array, rows: Any = ALL) -> tuple[float, Array]:
        A = X[rows]
        e = A @ w - y[rows]
        size = len(e)
        return (
            float(e @ e / (2 * size) + alpha / 2 * (w @ w)),
            A.T @ e / size + alpha * w,
        )

    return Objective(
        function,
        L=L + alpha,
        m=max(m, 0.0) + alpha,
        convex=True,
        quadratic=True,
        hessian_lipschitz=0.0,
        optimum=optimum,
        hessian=lambda w: H,
        n_terms=n,
        L_terms=float((X**2).sum(axis=1).max()) + alpha,
    )


def logistic_objective(X: MatrixLike, y: ArrayLike, alpha: float = 0.0) -> Objective:
    """Mean log(1 + exp(−y·x'w)) + (alpha/2)·‖w‖², labels ±1, as a mean of n terms.

    Parameters
    ----------
    X : array-like of shape (n, d)
    y : array-like of shape (n,)
        Labels −1 and 1.
    alpha : float, default=0
        Strength of the squared penalty.

    Returns
    -------
    Objective
        L = λ_max(XᵀX)/(4n) + alpha, m = alpha, L_terms = max ‖x_i‖²/4 + alpha,
        hessian_lipschitz = max ‖x_i‖·λ_max(XᵀX)/n·√3/18. Its minimiser has no formula.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import logistic_objective
    >>> f = logistic_objective(np.eye(2), [1, -1], alpha=0.1)
    >>> round(f.evaluate(np.zeros(2))[0], 6), round(f.L, 6)
    (0.693147, 0.225)
    """
    X, y = _rows(X, y, alpha)
    if not np.isin(y, (-1, 1)).all():
        raise ValueError("labels must be −1 and 1.")
    n, d = X.shape
    top = _outwards(np.linalg.eigvalsh(X.T @ X / n))[0]
    longest = float((X**2).sum(axis=1).max())

    def function(w: Array, rows: Any = ALL) -> tuple[float, Array]:
        A, labels = X[rows], y[rows]
        z = labels * (A @ w)
        size = len(z)
        value = np.logaddexp(0.0, -z).mean() + alpha / 2 * (w @ w)
        return float(value), A.T @ (-labels * expit(-z)) / size + alpha * w

    def hessian(w: Array) -> Array:
        p = expit(X @ w)
        return (X.T * (p * (1 - p))) @ X / n + alpha * np.eye(d)

    return Objective(
        function,
        L=top / 4 + alpha,
        m=alpha,
        convex=True,
        # The third derivative of log(1 + e^z) is at most √3/18.
        hessian_lipschitz=float(np.sqrt(longest) * top * np.sqrt(3) / 18),
        hessian=hessian,
        n_terms=n,
        L_terms=longest / 4 + alpha,
    )


def linear_objective(
    X: MatrixLike, y: ArrayLike, loss: Loss, alpha: float = 0.0
) -> Objective:
    """Mean ℓ(y, x'w) + (alpha/2)·‖w‖² for any loss of one score, as a mean of n terms.

    ``Hinge()`` gives the objective of a support vector machine, ``Hinge(0.0)`` that of
    the perceptron on all rows at once. The form λ/2·‖w‖² + C·Σ ℓ corresponds to
    alpha = λ/(C·n).

    Parameters
    ----------
    X : array-like of shape (n, d)
    y : array-like of shape (n,)
        Targets that the loss allows: −1 and 1 for losses of the margin.
    loss : term of ``certus.objectives``
        For example ``Hinge()`` or ``Huber(1.0)``; not ``Softmax``, which has a score
        for each class.
    alpha : float, default=0
        Strength of the squared penalty.

    Returns
    -------
    Objective
        With ℓ'' ≤ S: L = S·λ_max(XᵀX)/n + alpha, L_terms = S·max ‖x_i‖² + alpha, and
        the Hessian. A loss with a kink has none of these; its gradient is then a
        subgradient, for :func:`subgradient_descent`. m = alpha where ℓ is convex.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.objectives import Hinge
    >>> from certus.optimize import linear_objective
    >>> f = linear_objective(np.eye(2), [1, -1], Hinge(), alpha=0.1)
    >>> f.evaluate(np.zeros(2))
    (1.0, array([-0.5,  0.5]))
    """
    X, y = _rows(X, y, alpha)
    if isinstance(loss, Softmax):
        raise ValueError(
            "linear_objective needs a loss of one score; Softmax has several scores "
            "for each row."
        )
    objectives.value(loss, y, np.zeros(len(y)))  # refuses targets of another loss
    n = len(X)
    bend, convex = objectives.smoothness(loss), objectives.is_convex(loss)
    facts: dict[str, Any] = {}
    if np.isfinite(bend):
        top = _outwards(np.linalg.eigvalsh(X.T @ X / n))[0]
        longest = float((X**2).sum(axis=1).max())
        facts = {"L": bend * top + alpha, "hessian": _hessian_of(X, y, loss, alpha)}
        if convex:
            facts["L_terms"] = bend * longest + alpha

    def function(w: Array, rows: Any = ALL) -> tuple[float, Array]:
        A, targets = X[rows], y[rows]
        z = A @ w
        value = objectives.value(loss, targets, z).mean() + alpha / 2 * (w @ w)
        slopes = objectives.gradient(loss, targets, z)
        return float(value), A.T @ slopes / len(z) + alpha * w

    m = alpha if convex else None
    return Objective(function, m=m, convex=convex, n_terms=n, **facts)


def _hessian_of(X: Array, y: Array, loss: Loss, alpha: float) -> Callable[[Array], Any]:
    """The Hessian of :func:`linear_objective`, as a function of w."""

    def hessian(w: Array) -> Array:
        bends = objectives.curvature(loss, y, X @ w)
        return (X.T * bends) @ X / len(y) + alpha * np.eye(X.shape[1])

    return hessian


def _rows(X: MatrixLike, y: ArrayLike, alpha: float) -> tuple[Array, Array]:
    if not 0 <= alpha < np.inf:
        raise ValueError(f"alpha must be finite and not negative, got {alpha!r}.")
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or y.shape != (len(X),) or not X.size:
        raise ValueError(
            f"X must have shape (n, d) and y shape (n,), got {X.shape} and {y.shape}."
        )
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise ValueError("X or y holds NaN or infinity.")
    return X, y


def _outwards(eigenvalues: Array) -> tuple[float, float]:
    """Largest and smallest eigenvalue, moved outwards by what rounding can hide."""
    error = 1e-14 * len(eigenvalues) * float(np.abs(eigenvalues).max(initial=0.0))
    return float(eigenvalues.max()) + error, float(eigenvalues.min()) - error
