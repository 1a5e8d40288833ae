"""Methods of every model x ~ N(m, WWᵀ + Ψ): factors of rows, densities, samples.

    x = m + Wz + η,   z ~ N(0, I),   η ~ N(0, Ψ),   M = I + WᵀΨ⁻¹W

The mean of z given x is M⁻¹WᵀΨ⁻¹(x − m), and the precision Ψ⁻¹ − Ψ⁻¹W M⁻¹WᵀΨ⁻¹, so the
system to solve has one row for each factor.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigvalsh
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from certus._core.rounding import EPS
from certus.base import check_number
from certus.blocks.accepting import by_block
from certus.decomposition.moments import DenseTransformer, RowMoments
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

#: Least noise of a column, as a share of its variance; of a constant one, absolutely.
FLOOR = 1e-12


def in_precision(noise: Any, dtype: Any) -> Any:
    """The noise in the precision of X; an error if that cannot hold it."""
    held = np.asarray(noise).astype(dtype)
    if np.any((noise > 0) & np.isfinite(noise) & ((held <= 0) | np.isinf(held))):
        raise ValueError(
            "The variances of X are too large or too small for "
            f"{np.dtype(dtype).name}. Standardise the columns (StandardScaler), or "
            "pass X in float64."
        )
    return held[()]


def within(tol: float, found: RowMoments, k: int, noise: Any) -> float:
    """The target of the ascent, for a certificate that adds the rounding of its sums.

    A likelihood of n rows sums n·Σ S_jj/Ψ_j, in runs of 256 rows and groups of 64 runs,
    and the certificate bounds that rounding for each of k factors.
    """
    n, d = found.n, len(found.variances)
    sums = n * float((found.variances / noise).sum())
    additions = min(n, 256) + min(n / 256, 64) + n / 16384 + d
    room = 16 * (k + 1) * EPS * additions * sums
    return max(0.99 * tol - room, 0.1 * tol)


class GaussianFactors(DenseTransformer):
    """What follows from x ~ N(m, WWᵀ + Ψ); ``components_`` is Wᵀ. Abstract."""

    components_: Array
    mean_: Array
    noise_variance_: Any

    def _parts(self) -> tuple[Array, Array, Array]:
        """Wᵀ, the noise of each column, and I + WᵀΨ⁻¹W, in float64."""
        check_is_fitted(self)
        W = np.asarray(self.components_, dtype=np.float64)
        noise = np.asarray(self.noise_variance_, dtype=np.float64)
        noise = np.broadcast_to(noise, W.shape[1])
        inner = (W / noise) @ W.T
        inner.flat[:: len(inner) + 1] += 1.0
        return W, noise, inner

    @by_block
    def transform(self, X: Any) -> Array:
        """Mean of the factors given each row: Wᵀ(WWᵀ + Ψ)⁻¹(x − m).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        """
        W, noise, inner = self._parts()
        X = self._dense(X)
        map_ = cho_solve(cho_factor(inner), W / noise) if len(W) else W
        return np.asarray((X - self.mean_) @ map_.T.astype(X.dtype))

    def get_covariance(self) -> Array:
        """The model's covariance WWᵀ + Ψ.

        Returns
        -------
        ndarray of shape (n_features, n_features)
        """
        W, noise, _ = self._parts()
        return np.asarray(W.T @ W + np.diag(noise))

    def get_precision(self) -> Array:
        """The inverse of :meth:`get_covariance`, from a system with one row per factor.

        Returns
        -------
        ndarray of shape (n_features, n_features)
        """
        W, noise, inner = self._parts()
        B = W / noise
        explained = B.T @ cho_solve(cho_factor(inner), B) if len(W) else 0.0
        return np.asarray(np.diag(1.0 / noise) - explained)

    @by_block
    def score_samples(self, X: Any) -> Array:
        """Log-likelihood of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        """
        _, noise, inner = self._parts()
        X = self._dense(X)
        centred = X.astype(np.float64) - self.mean_
        determinant = np.log(noise).sum() + np.log(eigvalsh(inner)).sum()
        distances = np.einsum("ij,ij->i", centred, centred @ self.get_precision())
        constant = X.shape[1] * math.log(2 * math.pi)
        return np.asarray(-0.5 * (distances + determinant + constant))

    def score(self, X: MatrixLike, y: ArrayLike | None = None) -> float:
        """Mean log-likelihood of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.
        """
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        random_state : int, RandomState or None
            Seed or generator of all random numbers.
        """
        W, noise, _ = self._parts()
        check_number("n_samples", n_samples, 1, integer=True)
        random = check_random_state(random_state)
        factors = random.normal(size=(n_samples, len(W)))
        rest = random.normal(size=(n_samples, W.shape[1])) * np.sqrt(noise)
        rows = self.mean_ + factors @ W + rest
        return np.asarray(rows, dtype=self.components_.dtype)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])
