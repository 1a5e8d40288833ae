"""Mixtures of Gaussians, fitted by soft or hard EM.

    L(θ) = (1/n) Σᵢ log Σ_k π_k N(xᵢ; μ_k, Σ_k)   →  max over π, μ, Σ

The likelihood has many maxima and, without ``reg_covar``, no largest one: a component
that closes in on one row drives it to infinity. A fit can only guarantee a fixed point,
and the certificate says how near it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from certus.base import (
    Fitted,
    Model,
    certified_fit,
    check_choice,
    check_number,
    validate_data,
)
from certus.blocks.accepting import by_block
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import MixtureWitness
from certus.mixture.ascent import AscentRun, best_run
from certus.mixture.covariances import KINDS, from_public, log_joint, to_public
from certus.mixture.starts import METHODS
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

if TYPE_CHECKING:
    from certus.blocks import Blocks


class GaussianMixture(DensityMixin, Model):
    """Mixture of Gaussians by expectation and maximisation.

    Objective
    ---------
    maximise (1/n) Σᵢ log Σ_k π_k N(xᵢ; μ_k, Σ_k); with ``assignment="hard"``
    (1/n) Σᵢ max_k log π_k N(xᵢ; μ_k, Σ_k).

    Certificate
    -----------
    ``step_gain`` (PROVED): what one further EM step, taken by the verifier, would
    change in the objective; at most ``tol``. ``elbo`` (PROVED): at the model's
    responsibilities the lower bound equals the log-likelihood. ``parameters`` and
    ``collapse`` (PROVED): weights, covariances and their inverses are valid; no
    component has shrunk to ``reg_covar`` or lost its rows. Level "full" repeats the fit
    from its start: ``monotone`` is the largest drop, PROVED to be none if
    ``reg_covar=0``, else MEASURED. Two passes over the data, about as much as two or
    three steps.

    Parameters
    ----------
    n_components : int, default=1
        Number of components.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        A matrix each, one matrix for all, a diagonal each, or one variance each.
    tol : float, default=1e-3
        Stop when a step changes the objective by less, and the two after it would, too.
    reg_covar : float, default=1e-6
        Added to every variance, so that no component can collapse altogether.
    max_iter : int, default=100
        Maximum number of iterations. They are EM steps of one start.
    n_init : int, default=1
        Number of starts, of which the best is kept.
    init_params : str, default="kmeans"
        Responsibilities to begin with: clusters ("kmeans"), one row far apart for each
        component ("k-means++"), random numbers ("random"), or one random row for each
        component ("random_from_data").
    weights_init : array-like of shape (n_components,), default=None
        Weights to begin with.
    means_init : array-like of shape (n_components, n_features), default=None
        Means to begin with.
    precisions_init : array-like, default=None
        Inverse covariances to begin with, shaped as ``precisions_``.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the start, and the draws of
        ``sample``.
    warm_start : bool, default=False
        Whether to start from the last fit. ``n_init`` is then ignored.
    assignment : {"soft", "hard"}, default="soft"
        Hard EM gives each row to its most probable component before it refits.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    verbose, verbose_interval
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
        Mixing proportions; 0 for a component that lost all its rows.
    means_ : ndarray of shape (n_components, n_features)
        Means.
    covariances_, precisions_, precisions_cholesky_ : ndarray
        Covariances, their inverses P, and upper triangular U with P = UUᵀ; the shape
        is (K, d, d), (d, d), (K, d) or (K,) by ``covariance_type``.
    converged_ : bool
        Whether the last step changed the objective by less than ``tol``, and the two
        after it would, too.
    n_iter_ : int
        Steps of the best start.
    lower_bound_ : float
        The objective before the last M-step, as in scikit-learn.
    lower_bounds_ : list of float
        The same for every step of the best start.
    history_ : dict
        Objective, its change (under ``gap``) and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A step costs O(n·K·d²) for matrices, O(n·K·d) otherwise; memory beside the data is
    that of the parameters and of a few thousand rows. float32 data is read block by
    block into float64, and gives float32 attributes.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.mixture import GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (100, 2)), rng.normal(8, 1, (100, 2))])
    >>> model = GaussianMixture(2, random_state=0).fit(X)
    >>> sorted(model.weights_.round(2).tolist()), model.certificate_.met
    ([0.5, 0.5], True)
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "kmeans",
        weights_init: Any = None,
        means_init: Any = None,
        precisions_init: Any = None,
        random_state: RandomState = None,
        warm_start: bool = False,
        verbose: int = 0,
        verbose_interval: int = 10,
        assignment: str = "soft",
        max_time: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.assignment = assignment
        self.max_time = max_time

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    @certified_fit
    def fit(self, X: Any, y: ArrayLike | None = None) -> Any:
        """Fit to rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; or blocks of them (:func:`certus.scale.blocks`).
        y : None
            Ignored.
        """
        _check_parameters(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        return self._on(X)

    def _fit_blocks(self, table: Blocks) -> Fitted:
        _check_parameters(self)
        return self._on(table)

    def _on(self, X: Any) -> Fitted:
        """Fit to rows, or to blocks of rows."""
        if X.shape[0] < self.n_components:
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = "
                f"{self.n_components}, n_samples = {X.shape[0]}. Lower n_components."
            )
        monitor = Monitor(self, X, None, None, self.max_time)
        best, status = best_run(self, X, monitor)
        state = to_public(best.theta, self.covariance_type, X.dtype)
        for name, value in state.items():
            setattr(self, name, value)
        self.converged_ = best.status is Status.SOLVED
        self.n_iter_ = len(best.bounds)
        self.lower_bound_ = best.bound
        self.lower_bounds_ = best.bounds
        self.history_ = monitor.history
        monitor.close(state)
        return Fitted(_evidence(self, best), X, None, None, status)

    def fit_predict(self, X: MatrixLike, y: ArrayLike | None = None) -> Array:
        """Fit, and name the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.
        """
        return self.fit(X).predict(X)

    def _log_joint(self, X: Any) -> tuple[Array, Any]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        joint = log_joint(X, from_public(self, self.covariance_type))
        lost = ~np.isfinite(joint.max(axis=1))
        if lost.any():
            raise ValueError(
                f"Row {int(np.argmax(lost))} is so far from every component that its "
                "density is too small for float64. Drop the row, or standardise the "
                "columns."
            )
        return joint, X.dtype

    @by_block
    def predict(self, X: MatrixLike) -> Array:
        """The most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        """
        return np.asarray(self._log_joint(X)[0].argmax(axis=1))

    @by_block
    def predict_proba(self, X: MatrixLike) -> Array:
        """Responsibilities: the probability of each component, given the row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        """
        joint, dtype = self._log_joint(X)
        np.exp(joint - joint.max(axis=1, keepdims=True), out=joint)
        joint /= joint.sum(axis=1, keepdims=True)
        return joint.astype(dtype, copy=False)

    @by_block
    def score_samples(self, X: MatrixLike) -> Array:
        """Log-density of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        """
        joint, dtype = self._log_joint(X)
        return np.asarray(logsumexp(joint, axis=1)).astype(dtype, copy=False)

    def score(self, X: MatrixLike, y: ArrayLike | None = None) -> float:
        """Mean log-density of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.
        """
        return float(np.mean(self.score_samples(X), dtype=np.float64))

    def sample(self, n_samples: int = 1) -> tuple[Array, Array]:
        """Draw rows from the mixture, ordered by component.

        Parameters
        ----------
        n_samples : int, default=1
            How many.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        labels : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        check_number("n_samples", n_samples, 1, integer=True)
        random = check_random_state(self.random_state)
        theta = from_public(self, self.covariance_type)
        # float32 weights may sum to a little more than 1, which multinomial refuses.
        counts = random.multinomial(n_samples, theta.weights / theta.weights.sum())
        parts = []
        for count, mean, covariance in zip(counts, theta.means, theta.covariances):
            if covariance.ndim == 2:
                parts.append(random.multivariate_normal(mean, covariance, int(count)))
            else:
                noise = random.standard_normal((int(count), len(mean)))
                parts.append(mean + noise * np.sqrt(covariance))
        return np.vstack(parts), np.repeat(np.arange(len(counts)), counts)

    def bic(self, X: MatrixLike) -> float:
        """Bayesian information criterion on the rows; the lower the better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        """
        rows = self.score_samples(X)
        total = -2 * float(np.sum(rows, dtype=np.float64))
        return total + _free_parameters(self) * math.log(len(rows))

    def aic(self, X: MatrixLike) -> float:
        """Akaike's information criterion on the rows; the lower the better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        """
        total = -2 * float(np.sum(self.score_samples(X), dtype=np.float64))
        return total + 2 * _free_parameters(self)


def _check_parameters(model: GaussianMixture) -> None:
    check_number("n_components", model.n_components, 1, integer=True)
    check_choice("covariance_type", model.covariance_type, KINDS)
    check_number("tol", model.tol)
    check_number("reg_covar", model.reg_covar)
    check_number("max_iter", model.max_iter, 0, integer=True)
    check_number("n_init", model.n_init, 1, integer=True)
    check_choice("init_params", model.init_params, METHODS)
    check_choice("assignment", model.assignment, ("soft", "hard"))
    check_number("max_time", model.max_time, none=True)


def _free_parameters(model: GaussianMixture) -> int:
    k, d = model.means_.shape
    half = d * (d + 1) // 2
    covariance = {"full": k * half, "tied": half, "diag": k * d, "spherical": k}
    return covariance[model.covariance_type] + k * d + k - 1


def _evidence(model: GaussianMixture, run: AscentRun) -> Evidence:
    start = to_public(run.start, model.covariance_type, np.float64)
    names = ("weights_", "means_", "covariances_")
    first = {name: start[name] for name in names}
    witness = MixtureWitness(n_iter=len(run.bounds), **first)
    return Evidence("mixture", witness=witness)
