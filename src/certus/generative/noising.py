"""Noising chains: rows become noise in small steps, and come back.

    x_{t+1} = α_t x_t + √(1 − α_t²) ε   ⇒   x_t given x_0 ~ N(a_t x_0, (1 − a_t²)I),
    a_t = α_0 ⋯ α_{t−1}
    p(x_0 … x_T) = p_0 Π p(x_{t+1} | x_t) = p_T Π p(x_t | x_{t+1})

The last product runs backward. Its kernels are known for Gaussian mixtures, and for a
table, whose rows are components without variance. If α is near 1 and only the score is
known, a Gaussian comes near:

    p(x_t | x_{t+1} = x) ≈ N((2 − α)x + (1 − α²)∇ log p_{t+1}(x), (1 − α²)I)

Denoising score matching learns the score from pairs (x_0, x_t): the score minimises
E‖s(x_t) + (x_t − a x_0)/(1 − a²)‖².
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus._core.rows import row_weights
from certus.base import check_number, generator_of
from certus.generative.inputs import finite_array, rows
from certus.generative.mixtures import NoisedMixture
from certus.typing import Array, ArrayLike, MatrixLike, RandomState


class LinearScore(NamedTuple):
    """s(x) = coef·x + intercept."""

    coef: Array
    intercept: Array

    def __call__(self, X: MatrixLike) -> Array:
        """The score at each row."""
        return rows("X", X, len(self.intercept)) @ self.coef.T + self.intercept


class NoisingChain:
    """x_{t+1} ~ N(α_t x_t, (1 − α_t²)I), for t = 0 … T − 1.

    Parameters
    ----------
    alphas : float or array-like of shape (n_steps,)
        α_t, each between 0 and 1; a number stands for all steps.
    n_steps : int, optional
        T, if ``alphas`` is a number.

    Attributes
    ----------
    alphas : ndarray of shape (n_steps,)
        α_t.
    scales, stds : ndarrays of shape (n_steps + 1,)
        a_t and √(1 − a_t²): x_t given x_0 is N(a_t x_0, (1 − a_t²)I).

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import NoisedMixture, NoisingChain
    >>> chain = NoisingChain(0.9, n_steps=40)
    >>> chain.scales[[0, 1, 2]]
    array([1.  , 0.9 , 0.81])
    >>> data = NoisedMixture([0.5, 0.5], [-2.0, 2.0], [0.01, 0.01])
    >>> X = chain.ancestral_sample(data, 500, random_state=0)
    >>> float(abs(X).mean().round(2))
    2.0
    """

    def __init__(self, alphas: ArrayLike, *, n_steps: int | None = None) -> None:
        given = finite_array("alphas", alphas)
        if given.ndim == 0:
            check_number("n_steps", n_steps, 1, integer=True)
            given = np.full(n_steps, float(given))
        elif n_steps is not None and given.shape != (n_steps,):
            raise ValueError(f"alphas must have n_steps = {n_steps} entries.")
        if given.ndim != 1 or not ((given > 0) & (given < 1)).all():
            raise ValueError("alphas must be numbers strictly between 0 and 1.")
        self.alphas = given
        logs = np.concatenate([[0.0], np.cumsum(np.log(given))])
        self.scales = np.concatenate([[1.0], np.cumprod(given)])
        self.stds = np.sqrt(-np.expm1(2 * logs))

    def forward(
        self, X: MatrixLike, t: int, *, random_state: RandomState = None
    ) -> Array:
        """Draw x_t given x_0, in one step.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows x_0.
        t : int
            Number of steps.
        random_state : int, RandomState instance or None, default=None
            Seed or generator of all random numbers.
        """
        X, t = rows("X", X), self._time(t)
        noise = generator_of(random_state).standard_normal(X.shape)
        return self.scales[t] * X + self.stds[t] * noise

    def path(self, X: MatrixLike, *, random_state: RandomState = None) -> Array:
        """Draw x_1 … x_T given x_0, step by step; of shape (T + 1, n, d).

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows x_0.
        random_state : int, RandomState instance or None, default=None
            Seed or generator of all random numbers.
        """
        kept, rng = [rows("X", X)], generator_of(random_state)
        for alpha in self.alphas:
            noise = rng.standard_normal(kept[0].shape)
            kept.append(alpha * kept[-1] + math.sqrt(1 - alpha**2) * noise)
        return np.stack(kept)

    def backward(
        self,
        data: NoisedMixture,
        X: MatrixLike,
        t: int,
        *,
        random_state: RandomState = None,
    ) -> Array:
        """Draw x_t given x_{t+1}, exactly, if x_0 has the distribution ``data``.

        Parameters
        ----------
        data : NoisedMixture
            The distribution of x_0; without covariances it is a table.
        X : array-like of shape (n, d)
            Rows x_{t+1}.
        t : int
            Time of the rows that are drawn.
        random_state : int, RandomState instance or None, default=None
            Seed or generator of all random numbers.
        """
        weights, means, roots = self.backward_kernel(data, X, t)
        rng = generator_of(random_state)
        # One component for each row: the first whose cumulated weight exceeds u.
        u = rng.random(len(means))[:, None] * weights.sum(axis=1, keepdims=True)
        k = np.sum(np.cumsum(weights, axis=1)[:, :-1] <= u, axis=1)
        z = rng.standard_normal((len(means), means.shape[2]))
        return means[np.arange(len(k)), k] + np.einsum("nij,nj->ni", roots[k], z)

    def backward_kernel(
        self, data: NoisedMixture, X: MatrixLike, t: int
    ) -> tuple[Array, Array, Array]:
        """The distribution of x_t given x_{t+1}: a mixture for each row.

        Parameters
        ----------
        data, X, t
            As in :meth:`backward`.

        Returns
        -------
        weights : ndarray of shape (n, n_components)
        means : ndarray of shape (n, n_components, d)
        roots : ndarray of shape (n_components, d, d)
            Matrices R with R Rᵀ = covariance, the same for all rows.
        """
        t = self._time(t)
        if t == len(self.alphas):
            raise ValueError(f"t must be below n_steps = {t}, as x_(t+1) is given.")
        alpha = float(self.alphas[t])
        at = data.noised(scale=float(self.scales[t]), std=float(self.stds[t]))
        return at.posterior(X, scale=alpha, std=math.sqrt(1 - alpha**2))

    def ancestral_sample(
        self, data: NoisedMixture, n_samples: int, *, random_state: RandomState = None
    ) -> Array:
        """Draw x_T from p_T, then x_{T−1}, …, x_0 by the exact backward kernels.

        Parameters
        ----------
        data : NoisedMixture
            The distribution of x_0.
        n_samples : int
            Number of rows.
        random_state : int, RandomState instance or None, default=None
            Seed or generator of all random numbers.
        """
        rng = generator_of(random_state)
        last = {"scale": float(self.scales[-1]), "std": float(self.stds[-1])}
        X = data.sample(n_samples, **last, random_state=rng)
        for t in reversed(range(len(self.alphas))):
            X = self.backward(data, X, t, random_state=rng)
        return X

    def _time(self, t: int) -> int:
        check_number("t", t, 0, len(self.alphas), integer=True)
        return int(t)


def gaussian_backward(
    X: MatrixLike, score: ArrayLike, alpha: float
) -> tuple[Array, float]:
    """Mean and standard deviation of the Gaussian that stands for x_t given x_{t+1}.

    N((2 − α)x + (1 − α²)∇ log p_{t+1}(x), (1 − α²)I); the error of the mean is of order
    (1 − α)².

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows x_{t+1}.
    score : array-like of shape (n, d)
        ∇ log p_{t+1} at these rows.
    alpha : float
        α_t, below 1.

    Examples
    --------
    Data N(0, 4): x_{t+1} has variance 3.9403, and the exact mean is 1.00500·x.

    >>> import numpy as np
    >>> from certus.generative import gaussian_backward
    >>> mean, std = gaussian_backward([[1.0]], [[-1 / 3.9403]], 0.99)
    >>> mean.round(5)
    array([[1.00495]])
    """
    X = rows("X", X)
    s = rows("score", score, X.shape[1])
    check_number("alpha", alpha, 0, 1, open_low=True)
    if s.shape != X.shape:
        raise ValueError(f"score must have shape {X.shape}, got {s.shape}.")
    variance = 1.0 - alpha**2
    return (2.0 - alpha) * X + variance * s, math.sqrt(variance)


def denoising_loss(
    score: Callable[[Array], Any],
    X: MatrixLike,
    *,
    scale: float,
    std: float,
    noise: MatrixLike | None = None,
    sample_weight: ArrayLike | None = None,
    random_state: RandomState = None,
) -> float:
    """E‖s(x_t) + ε/std‖² with x_t = scale·x_0 + std·ε: denoising score matching.

    Up to a constant that does not depend on s it is E‖s(x_t) − ∇ log p_t(x_t)‖².

    Parameters
    ----------
    score : callable
        s, a function of rows.
    X : array-like of shape (n, d)
        Rows x_0.
    scale, std : float
        Of the noise, for example entries of ``NoisingChain.scales`` and ``stds``.
    noise : array-like of shape (n, d), optional
        ε of each row. None means new normal numbers.
    sample_weight : array-like of shape (n,), optional
        Row weights.
    random_state : int, RandomState instance or None, default=None
        Seed or generator of all random numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import denoising_loss
    >>> X, noise = np.zeros((2, 1)), np.array([[1.0], [-1.0]])
    >>> denoising_loss(lambda x: -4 * x, X, scale=0.9, std=0.5, noise=noise)
    0.0
    """
    X, eps = _pairs(X, scale, std, noise, random_state)
    s = rows("score(x)", score(scale * X + std * eps), X.shape[1])
    losses = np.sum((s + eps / std) ** 2, axis=1)
    return float(np.average(losses, weights=row_weights(sample_weight, len(X))))


def fit_linear_score(
    X: MatrixLike,
    *,
    scale: float,
    std: float,
    noise: MatrixLike | None = None,
) -> LinearScore:
    """The linear score with the least denoising loss, by least squares.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows x_0.
    scale, std : float
        As in :func:`denoising_loss`.
    noise : array-like of shape (n, d), optional
        ε of each row. None takes the expectation over all ε in closed form: then it is
        the score −(a²Σ + s²I)⁻¹(x − aμ) of a Gaussian with the mean μ and covariance Σ
        of the rows.

    Examples
    --------
    >>> from certus.generative import fit_linear_score
    >>> found = fit_linear_score([[-2.0], [2.0]], scale=0.6, std=0.8)
    >>> found.coef.round(6)  # −1/(0.36·4 + 0.64)
    array([[-0.480769]])
    """
    if noise is None:
        X, _ = _pairs(X, scale, std, np.zeros_like(rows("X", X)), None)
        mean = scale * X.mean(axis=0)
        shifted = scale * X - mean
        C = shifted.T @ shifted / len(X) + std**2 * np.eye(X.shape[1])
        coef = -np.linalg.inv(C)
        return LinearScore(coef, -coef @ mean)
    X, eps = _pairs(X, scale, std, noise, None)
    noised = scale * X + std * eps
    design = np.column_stack([noised, np.ones(len(X))])
    found = np.linalg.lstsq(design, -eps / std, rcond=None)[0]
    return LinearScore(found[:-1].T, found[-1])


def _pairs(
    X: MatrixLike,
    scale: float,
    std: float,
    noise: MatrixLike | None,
    random_state: RandomState,
) -> tuple[Array, Array]:
    X = rows("X", X)
    check_number("scale", scale, 0)
    check_number("std", std, 0, open_low=True)
    if noise is None:
        return X, np.asarray(generator_of(random_state).standard_normal(X.shape))
    eps = rows("noise", noise, X.shape[1])
    if eps.shape != X.shape:
        raise ValueError(f"noise must have shape {X.shape}, got {eps.shape}.")
    return X, eps
