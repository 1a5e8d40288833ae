"""Noise-contrastive estimation: learn a density by separating data from known noise.

    log p(x) = φ(x)·θ − c
    L(θ, c) = −mean over data of log σ(G) − ν·mean over noise of log σ(−G),
    G(x) = log p(x) − log(ν·q(x)),   ν noise rows for each row of data

L is convex in (θ, c), and in the limit of many rows its minimum is the true density if
the family holds it. The normaliser c = log Σ e^{φ(x)·θ} is a parameter like the others:
no sum over all x is needed. Negative sampling drops the log(ν·q) from G, and thereby
learns log p/q − log ν instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import lstsq
from scipy.special import expit

from certus.base import check_number
from certus.certificate import Status
from certus.typing import Array, ArrayLike

__all__ = ["NoiseContrastiveFit", "noise_contrastive"]


# Share of L by which its sum over the rows may be rounded.
_ROUNDING = 1e-10


class NoiseContrastiveFit(NamedTuple):
    """What :func:`noise_contrastive` found.

    Attributes
    ----------
    coef : ndarray of shape (n_features,)
        θ.
    log_normaliser : float
        c; zero if it was not fitted.
    loss : float
        L at the end.
    gradient_norm : float
        Largest entry of the gradient of L.
    n_iter : int
        Newton steps.
    status : Status
        SOLVED if ``gradient_norm`` is within ``tol``.

    Examples
    --------
    >>> from certus.text import noise_contrastive
    >>> x, noise, half = [[1.0], [1.0], [0.0]], [[1.0], [0.0]], np.log(0.5)
    >>> fit = noise_contrastive(x, noise, [half] * 3, [half] * 2)
    >>> np.exp(fit.log_density([[1.0], [0.0]])).round(3)  # two of three, one of three
    array([0.667, 0.333])
    """

    coef: Array
    log_normaliser: float
    loss: float
    gradient_norm: float
    n_iter: int
    status: Status

    def log_density(self, features: ArrayLike) -> Array:
        """Log p(x) = φ(x)·θ − c of each row of features."""
        return np.asarray(features, dtype=float) @ self.coef - self.log_normaliser


def noise_contrastive(
    data: ArrayLike,
    noise: ArrayLike,
    log_q_data: ArrayLike,
    log_q_noise: ArrayLike,
    *,
    fit_normaliser: bool = True,
    tol: float = 1e-8,
    max_iter: int = 100,
) -> NoiseContrastiveFit:
    """Fit log p(x) = φ(x)·θ − c by logistic regression of data against noise.

    Parameters
    ----------
    data, noise : array-like of shape (n_rows, n_features)
        φ(x) of the data, and of rows drawn from the noise. More noise gives a better
        estimate: its variance tends to that of maximum likelihood.
    log_q_data, log_q_noise : array-like of shape (n_rows,)
        log q(x) of the noise's density at both; q must not vanish where data lie.
    fit_normaliser : bool, default=True
        Whether c is a parameter. Not with features that sum to a constant, such as
        one column per value, which hold it already.
    tol : float, default=1e-8
        Largest entry of the gradient at which to stop.
    max_iter : int, default=100
        Most Newton steps.

    Returns
    -------
    NoiseContrastiveFit
        θ, c and how the minimisation ended.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.text import noise_contrastive
    >>> rng = np.random.default_rng(0)
    >>> p, q = np.array([0.6, 0.3, 0.1]), np.full(3, 1 / 3)
    >>> x, y = rng.choice(3, 20_000, p=p), rng.choice(3, 200_000, p=q)
    >>> found = noise_contrastive(np.eye(3)[x], np.eye(3)[y], np.log(q)[x],
    ...                           np.log(q)[y], fit_normaliser=False)
    >>> np.exp(found.coef).round(1)  # nothing forces the sum to be one
    array([0.6, 0.3, 0.1])
    """
    check_number("tol", tol)
    check_number("max_iter", max_iter, 1, integer=True)
    A, offset, y, s = _stack(data, noise, log_q_data, log_q_noise, fit_normaliser)
    w = np.zeros(A.shape[1])
    value, gradient, curvature = _loss(A, offset, y, s, w)
    n_iter = 0
    while np.abs(gradient).max() > tol and n_iter < max_iter:
        n_iter += 1
        H = (A * curvature[:, None]).T @ A
        step = lstsq(H, -gradient)[0]
        slope, size = float(gradient @ step), 1.0
        # Near the minimum a step lowers L by less than its sum is rounded by; there the
        # gradient, which is not, tells whether the step leads on.
        hidden = -slope <= _ROUNDING * value
        while size > 1e-12:
            ahead = _loss(A, offset, y, s, w + size * step)
            lower = ahead[0] <= value + 1e-4 * size * slope
            if lower or (hidden and np.abs(ahead[1]).max() < np.abs(gradient).max()):
                break
            size = 0.0 if hidden else size / 2
        if size <= 1e-12 or not np.isfinite(ahead[0]):
            break
        w = w + size * step
        value, gradient, curvature = ahead
    norm = float(np.abs(gradient).max())
    status = Status.SOLVED if norm <= tol else Status.TOL_NOT_REACHED
    if status is not Status.SOLVED and n_iter == max_iter:
        status = Status.MAX_ITER
    theta, c = (w[:-1], -float(w[-1])) if fit_normaliser else (w, 0.0)
    return NoiseContrastiveFit(theta, c, value, norm, n_iter, status)


def _stack(
    data: ArrayLike,
    noise: ArrayLike,
    log_q_data: ArrayLike,
    log_q_noise: ArrayLike,
    constant: bool,
) -> tuple[Array, Array, Array, Array]:
    """Rows of both, their offsets −log νq, labels ±1 and weights."""
    parts = []
    for name, rows, logs in (
        ("data", data, log_q_data),
        ("noise", noise, log_q_noise),
    ):
        if sparse.issparse(rows) or np.iscomplexobj(rows):
            raise ValueError(
                f"{name} must be a dense array of real numbers with rows × features."
            )
        rows, logs = np.asarray(rows, dtype=float), np.asarray(logs, dtype=float)
        if rows.ndim != 2 or not len(rows):
            raise ValueError(f"{name} has shape {rows.shape}; pass rows × features.")
        if logs.shape != (len(rows),):
            raise ValueError(
                f"log_q_{name} has shape {logs.shape}; expected ({len(rows)},)."
            )
        if not np.isfinite(rows).all() or not np.isfinite(logs).all():
            raise ValueError(
                f"{name} or its log q holds NaN or infinite values; the noise must "
                "have a positive density wherever there are data."
            )
        if max(np.abs(rows).max(initial=0), np.abs(logs).max()) > 1e100:
            raise ValueError(f"{name} or its log q exceeds 1e100. Scale the columns.")
        parts.append((rows, logs))
    (X, log_x), (Y, log_y) = parts
    if X.shape[1] != Y.shape[1]:
        raise ValueError(f"data has {X.shape[1]} features, but noise has {Y.shape[1]}.")
    A = np.vstack([X, Y])
    if constant:
        A = np.column_stack([A, np.ones(len(A))])
    n, m = len(X), len(Y)
    offset = -np.log(m / n) - np.concatenate([log_x, log_y])
    y = np.concatenate([np.ones(n), -np.ones(m)])
    return A, offset, y, np.full(n + m, 1.0 / n)


def _loss(
    A: Array, offset: Array, y: Array, s: Array, w: Array
) -> tuple[float, Array, Array]:
    """L, its gradient, and the weights of its curvature."""
    z = A @ w + offset
    slope = -y * expit(-y * z)
    value = float(s @ np.logaddexp(0.0, -y * z))
    return value, A.T @ (s * slope), s * expit(z) * expit(-z)
