"""Probabilistic PCA: factor analysis with the same noise in every column.

    x = m + Wz + η,   z ~ N(0, I),   η ~ N(0, σ²I),   so x ~ N(m, WWᵀ + σ²I)

With λ₁ ≥ … ≥ λ_d and U the eigenvalues and vectors of the covariance S, the likelihood
is largest where σ² is the mean of the d − k eigenvalues left out and W = U(Λ − σ²I)^½,
up to a rotation of the factors. EM comes to the same place in small steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array

from certus.base import Fitted, certified_fit, check_choice, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.decomposition.by_blocks import covariance_of_rows
from certus.decomposition.gaussian import FLOOR, GaussianFactors, in_precision, within
from certus.decomposition.moments import RowMoments, moments
from certus.evidence import FactorsWitness
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

if TYPE_CHECKING:
    from certus.blocks import Blocks

#: Up to this many rows or columns, EM knows where the maximum is and stops near it.
EIGEN = 2_000


class ProbabilisticPCA(GaussianFactors):
    """Probabilistic principal component analysis.

    Objective
    ---------
    max over W, σ² of Σᵢ log N(xᵢ; m, WWᵀ + σ²I).

    Certificate
    -----------
    ``likelihood_gap`` (PROVED): how far the log-likelihood of all rows is below the
    largest there is, by the eigenvalues of the covariance; ``tol`` bounds it.
    ``step_gain`` (PROVED): what one further step of EM would add; beyond 2,000 rows and
    columns it comes first. ``log_likelihood`` (PROVED) is what the fit stated. At level
    full, steps of EM are replayed from their start, and none may lower the likelihood.

    Parameters
    ----------
    n_components : int, default=None
        Number of components. None means all directions in which the rows vary but one,
        which is left to the noise.
    solver : {"closed_form", "em"}, default="closed_form"
        Algorithm that computes the fit. From the eigenvectors of the covariance, or
        step by step.
    tol : float, default=1e-2
        Target of the certificate's primary claim. This is how far below its maximum the
        log-likelihood of all rows may stay; beyond 2,000 rows and columns, what a step
        of EM may still add.
    max_iter : int, default=1000
        Maximum number of iterations. They are steps of EM.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the loadings at which EM
        starts.
    warm_start : bool, default=False
        Whether to start from the last fit.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Wᵀ, the loadings. In closed form its rows are orthogonal, the longest first.
    noise_variance_ : float
        σ².
    mean_ : ndarray of shape (n_features,)
        m.
    n_components_ : int
        Number of factors.
    loglike_ : list of float
        Log-likelihood of all rows after each step.
    n_iter_ : int
        Steps taken; one in closed form.
    history_ : dict
        Mean log-likelihood, what ``tol`` bounds (under ``gap``) and seconds.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    One pass of n·d² operations and an eigendecomposition of d³; a step of EM takes d²k.
    If every direction is a factor, σ² is the smallest eigenvalue, which leaves the
    covariance as it is. Variances divide by n, as maximum likelihood does;
    scikit-learn's PCA divides by n − 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.decomposition import ProbabilisticPCA
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = ProbabilisticPCA(n_components=2).fit(X)
    >>> em = ProbabilisticPCA(2, solver="em", tol=1e-8, random_state=0).fit(X)
    >>> round(model.score(X), 4), round(em.score(X), 4)
    (-2.6998, -2.6998)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        solver: str = "closed_form",
        tol: float = 1e-2,
        max_iter: int = 1000,
        random_state: RandomState = None,
        warm_start: bool = False,
        max_time: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.warm_start = warm_start
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: ArrayLike | None = None) -> Any:
        """Fit to rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows; or blocks of them (:func:`certus.scale.blocks`).
        y : None
            Ignored.
        """
        _check_parameters(self)
        before = self._previous()
        X = self._dense(X, reset=True)
        return self._on(X, moments(X, type(self).__name__), before)

    def _fit_blocks(self, table: Blocks) -> Fitted:
        _check_parameters(self)
        found = covariance_of_rows(table, type(self).__name__)
        return self._on(table, found, self._previous())

    def _on(
        self, X: Any, found: RowMoments, before: tuple[Array, float] | None
    ) -> Fitted:
        """Fit to the covariance of rows, or of blocks of rows."""
        k = _number_of_factors(self.n_components, found)
        monitor = Monitor(self, X, None, None, self.max_time)
        ascent = _PPCAAscent(found, k)
        witness = FactorsWitness()
        if self.solver == "closed_form":
            ascent.move(*ascent.closed_form())
            monitor.step(ascent.loglike[-1] / found.n, 0.0)
            status = Status.SOLVED
        else:
            ascent.begin(before, check_random_state(self.random_state))
            noise = np.array(ascent.noise * ascent.unit)
            first = ascent.W.T * math.sqrt(ascent.unit)
            status = self._climb(ascent, monitor, X.dtype)
            witness = FactorsWitness(noise, first, len(ascent.loglike))
        self._store(ascent.attributes(X.dtype))
        self.history_ = monitor.history
        monitor.close(ascent.attributes(X.dtype))
        evidence = Evidence("gaussian_factors", witness=witness)
        return Fitted(evidence, X, None, None, status)

    def _previous(self) -> tuple[Array, float] | None:
        if not self.warm_start or not hasattr(self, "components_"):
            return None
        return np.array(self.components_, dtype=float).T, float(self.noise_variance_)

    def _climb(self, ascent: _PPCAAscent, monitor: Monitor, dtype: Any) -> Status:
        """Steps of EM until ``tol`` is reached."""
        known = min(ascent.found.n, len(ascent.mean)) <= EIGEN
        best = ascent.log_likelihood(*ascent.closed_form()) if known else None
        try:
            for _ in range(int(self.max_iter)):
                ascent.move(*ascent.em())
                short = ascent.gain() if best is None else best - ascent.loglike[-1]
                stop = monitor.step(
                    ascent.loglike[-1] / ascent.found.n,
                    short,
                    lambda: ascent.attributes(dtype),
                )
                if short <= within(self.tol, ascent.found, ascent.k, ascent.noise):
                    return Status.SOLVED
                if stop is not None:
                    return stop
        except KeyboardInterrupt:
            if not ascent.loglike:
                raise
            return Status.INTERRUPTED
        return Status.MAX_ITER

    def _store(self, found: dict[str, Any]) -> None:
        for name, value in found.items():
            setattr(self, name, value)
        self.n_components_ = len(self.components_)
        self.n_iter_ = len(self.loglike_)

    def inverse_transform(self, X: MatrixLike) -> Array:
        """Mean of the rows that have these factors: m + Wz.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Factors, as :meth:`transform` gives them.
        """
        W, _, _ = self._parts()
        Z = check_array(X, dtype=[np.float64, np.float32])
        if Z.shape[1] != len(W):
            raise ValueError(
                f"X has {Z.shape[1]} columns, but the model has {len(W)} factors."
            )
        return np.asarray(Z @ W.astype(Z.dtype) + self.mean_)


def _check_parameters(model: ProbabilisticPCA) -> None:
    check_number("n_components", model.n_components, integer=True, none=True)
    check_choice("solver", model.solver, ("closed_form", "em"))
    check_number("tol", model.tol)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("max_time", model.max_time, none=True)


def _number_of_factors(asked: int | None, found: RowMoments) -> int:
    d = len(found.variances)
    if asked is None:
        values = found.eigen(d)[0]
        rank = np.count_nonzero(values > 1e-10 * values.max(initial=0.0))
        return max(0, int(rank) - 1)
    if asked > d:
        raise ValueError(
            f"n_components must be at most the number of columns, {d}; got {asked}."
        )
    return int(asked)


class _PPCAAscent:
    """W (d × k) and σ² in units of the mean variance, and the way to their best."""

    def __init__(self, found: RowMoments, k: int) -> None:
        total = float(found.variances.mean())
        self.unit = total if total > 0 else 1.0
        self.mean = found.mean
        self.found = found.scaled(np.full(len(self.mean), self.unit**-0.5))
        self.trace = float(self.found.variances.sum())
        self.k = k
        self.W, self.noise = np.zeros((len(self.mean), k)), 1.0
        self.loglike: list[float] = []

    def closed_form(self) -> tuple[Array, float]:
        """W and σ² where the likelihood is largest."""
        values, V = self.found.eigen(self.k)
        left = len(self.mean) - self.k
        noise = (self.trace - values.sum()) / left if left else values[-1]
        noise = max(float(noise), FLOOR)
        W = np.zeros_like(self.W)
        W[:, : len(values)] = V * np.sqrt(np.maximum(values - noise, 0.0))
        return W, noise

    def begin(self, before: tuple[Array, float] | None, random: Any) -> None:
        """The last fit, or random loadings that explain half of the variance."""
        if before is not None and before[0].shape == self.W.shape:
            self.W = before[0] / math.sqrt(self.unit)
            self.noise = max(before[1] / self.unit, FLOOR)
            return
        self.W = random.normal(size=self.W.shape) / math.sqrt(2 * max(1, self.k))
        self.noise = 0.5

    def log_likelihood(self, W: Array, noise: float) -> float:
        """Of all rows, by the determinant and inverse of WᵀW + σ²I."""
        d = len(self.mean)
        values, Q = np.linalg.eigh(W.T @ W + noise * np.eye(self.k))
        turned = W @ Q
        inner = np.einsum("ij,ij->j", turned, self.found.times(turned))
        logs = np.log(values).sum() + (d - self.k) * math.log(noise)
        constant = d * math.log(2 * math.pi * self.unit)
        distance = (self.trace - (inner / values).sum()) / noise
        return float(-0.5 * self.found.n * (constant + logs + distance))

    def em(self) -> tuple[Array, float]:
        """W and σ² after one step of EM."""
        M = self.W.T @ self.W + self.noise * np.eye(self.k)
        B = np.linalg.solve(M, self.W.T).T
        SB = self.found.times(B)
        W = np.linalg.solve(self.noise * np.linalg.inv(M) + B.T @ SB, SB.T).T
        rest = self.trace - float(np.einsum("ij,ij->", W, SB))
        return W, max(rest / len(self.mean), FLOOR)

    def move(self, W: Array, noise: float) -> None:
        """Go there, once the likelihood is known."""
        found = self.log_likelihood(W, noise)
        self.W, self.noise = W, noise
        self.loglike.append(found)

    def gain(self) -> float:
        """What the last step added."""
        return self.loglike[-1] - self.loglike[-2] if self.loglike[1:] else math.inf

    def attributes(self, dtype: Any) -> dict[str, Any]:
        """What the estimator keeps."""
        return {
            "components_": (self.W.T * math.sqrt(self.unit)).astype(dtype),
            "noise_variance_": in_precision(self.noise * self.unit, dtype),
            "mean_": self.mean.astype(dtype),
            "loglike_": list(self.loglike),
        }
