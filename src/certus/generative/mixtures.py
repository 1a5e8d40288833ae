"""Gaussian mixtures after noise was added: densities, scores, draws, in closed form.

    x₀ ~ Σ_k w_k N(μ_k, Σ_k),   x = a·x₀ + s·ε   ⇒   x ~ Σ_k w_k N(aμ_k, a²Σ_k + s²I)
    ∇ log p(x) = Σ_k r_k(x) g_k,   g_k = −C_k⁻¹(x − aμ_k),   C_k = a²Σ_k + s²I
    div ∇ log p = Σ_k r_k (‖g_k‖² − tr C_k⁻¹) − ‖∇ log p‖²

r_k are the responsibilities. All C_k of one component share their eigenvectors, so one
decomposition serves every a and s. Covariances may be zero: components are then rows of
a table, and the score is that of the table after noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from certus.base import check_number, generator_of
from certus.generative.inputs import finite_array, probabilities, rows
from certus.typing import Array, ArrayLike, MatrixLike, RandomState


class NoisedMixture:
    """A Gaussian mixture, and what noise makes of it.

    Parameters
    ----------
    weights : array-like of shape (n_components,)
        Probabilities of the components.
    means : array-like of shape (n_components, d)
        Their means; a vector is one column.
    covariances : array-like, optional
        Their covariances, of shape (n_components, d, d); or variances of all columns,
        of shape (n_components,). None means zero: the components are points.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import NoisedMixture
    >>> mixture = NoisedMixture([0.5, 0.5], [-2.0, 2.0], [0.25, 0.25])
    >>> mixture.score([[0.0], [2.0]], scale=0.8, std=0.6).round(4)
    array([[ 0.    ],
           [-0.7693]])
    """

    def __init__(
        self,
        weights: ArrayLike,
        means: MatrixLike,
        covariances: ArrayLike | None = None,
    ) -> None:
        self.weights = probabilities("weights", weights)
        self.means = rows("means", means)
        n, d = self.means.shape
        if self.weights.shape != (n,):
            raise ValueError(
                f"weights must have one number for each of {n} means, got shape "
                f"{self.weights.shape}."
            )
        given = np.zeros(n) if covariances is None else covariances
        C = finite_array("covariances", given)
        if C.shape == (n,):
            C = C[:, None, None] * np.eye(d)
        if C.shape != (n, d, d) or not np.allclose(C, np.swapaxes(C, 1, 2)):
            raise ValueError(
                f"covariances must be {n} symmetric matrices of shape ({d}, {d}), or "
                f"{n} variances, got shape {np.shape(given)}."
            )
        self.covariances = C
        values, self._axes = np.linalg.eigh(C)
        if (values < -1e-12 * np.abs(values).max(initial=1.0)).any():
            raise ValueError("covariances must have no negative eigenvalue.")
        self._values = np.maximum(values, 0.0)

    @classmethod
    def from_model(cls, model: Any) -> NoisedMixture:
        """The mixture of a fitted ``GaussianMixture``, of certus or scikit-learn."""
        C, (n, d) = np.asarray(model.covariances_), model.means_.shape
        if model.covariance_type == "diag":
            C = C[:, :, None] * np.eye(d)
        elif model.covariance_type == "tied":
            C = np.broadcast_to(C, (n, d, d))
        return cls(model.weights_, model.means_, C)

    def noised(self, *, scale: float, std: float) -> NoisedMixture:
        """The mixture that scale·x₀ + std·ε has."""
        check_number("scale", scale, 0)
        check_number("std", std, 0)
        eye = np.eye(self.means.shape[1])
        C = scale**2 * self.covariances + std**2 * eye
        return NoisedMixture(self.weights, scale * self.means, C)

    def log_density(
        self, X: MatrixLike, *, scale: float = 1.0, std: float = 0.0
    ) -> Array:
        """The logarithm of p at each row, for x = scale·x₀ + std·ε."""
        return logsumexp(self._parts(X, scale, std)[0], axis=1)

    def score(self, X: MatrixLike, *, scale: float = 1.0, std: float = 0.0) -> Array:
        """∇ log p at each row, for x = scale·x₀ + std·ε."""
        joint, g, _ = self._parts(X, scale, std)
        return np.einsum("nk,nkd->nd", softmax(joint, axis=1), g)

    def score_divergence(
        self, X: MatrixLike, *, scale: float = 1.0, std: float = 0.0
    ) -> Array:
        """The Laplacian of log p at each row: the divergence of the score."""
        joint, g, trace = self._parts(X, scale, std)
        r = softmax(joint, axis=1)
        mean = np.einsum("nk,nkd->nd", r, g)
        inner = np.einsum("nk,nk->n", r, np.sum(g * g, axis=2) - trace)
        return inner - np.sum(mean * mean, axis=1)

    def posterior(
        self, X: MatrixLike, *, scale: float, std: float
    ) -> tuple[Array, Array, Array]:
        """Distribution of x₀ given x = scale·x₀ + std·ε: a mixture for each row.

        Returns
        -------
        weights : ndarray of shape (n, n_components)
        means : ndarray of shape (n, n_components, d)
        roots : ndarray of shape (n_components, d, d)
            Matrices R_k with R_k R_kᵀ = covariance of component k, the same for all
            rows.
        """
        joint, _, _ = self._parts(X, scale, std)
        X = rows("X", X)
        # In the axes of Σ_k: variance λs²/(a²λ + s²), gain aλ/(a²λ + s²).
        C = scale**2 * self._values + std**2
        gain, left = scale * self._values / C, self._values * std**2 / C
        shift = np.einsum("kij,nki->nkj", self._axes, X[:, None] - scale * self.means)
        means = self.means + np.einsum("kij,nkj->nki", self._axes, gain * shift)
        return softmax(joint, axis=1), means, self._axes * np.sqrt(left)[:, None, :]

    def sample(
        self,
        n_samples: int,
        *,
        scale: float = 1.0,
        std: float = 0.0,
        random_state: RandomState = None,
    ) -> Array:
        """Draw rows x = scale·x₀ + std·ε.

        Parameters
        ----------
        n_samples : int
            Number of rows.
        scale, std : float, default=1, 0
            What noise does to x₀.
        random_state : int, RandomState instance or None, default=None
            Seed or generator of all random numbers.
        """
        check_number("n", n_samples, 1, integer=True)
        rng = generator_of(random_state)
        k = rng.choice(
            len(self.weights), size=n_samples, p=self.weights / self.weights.sum()
        )
        z = rng.standard_normal((n_samples, self.means.shape[1]))
        roots = self._axes * np.sqrt(self._values)[:, None, :]
        x0 = self.means[k] + np.einsum("nij,nj->ni", roots[k], z)
        return scale * x0 + std * rng.standard_normal(x0.shape)

    def _parts(
        self, X: MatrixLike, scale: float, std: float
    ) -> tuple[Array, Array, Array]:
        """The log w_k N_k, scores g_k and tr C_k⁻¹ of all components, at each row."""
        X = rows("X", X, self.means.shape[1])
        check_number("scale", scale, 0)
        check_number("std", std, 0)
        C = scale**2 * self._values + std**2
        if not (C > 0).all():
            raise ValueError(
                "The mixture has a density only if its covariances are positive or "
                f"std is, got std = {std!r}."
            )
        shift = np.einsum("kij,nki->nkj", self._axes, X[:, None] - scale * self.means)
        square = np.sum(shift**2 / C, axis=2)
        volume = np.sum(np.log(2 * math.pi * C), axis=1)
        with np.errstate(divide="ignore"):
            joint = np.log(self.weights) - 0.5 * (square + volume)
        g = -np.einsum("kij,nkj->nki", self._axes, shift / C)
        return joint, g, np.sum(1.0 / C, axis=1)
