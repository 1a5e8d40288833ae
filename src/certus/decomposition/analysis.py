"""Factor analysis: few hidden factors behind many columns, each with its own noise.

    x = m + Wz + η,   z ~ N(0, I),   η ~ N(0, Ψ), Ψ diagonal,   so x ~ N(m, WWᵀ + Ψ)

The mean log-likelihood depends on the rows through their mean and covariance S only, so
S is formed once and every step works on it: the best W for Ψ comes from the largest
eigenvectors of Ψ^(−1/2) S Ψ^(−1/2), and at that W the step of EM is Ψ ← diag(S − WWᵀ).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from certus.base import Fitted, certified_fit, check_choice, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.decomposition.by_blocks import covariance_of_rows
from certus.decomposition.gaussian import FLOOR, GaussianFactors, in_precision, within
from certus.decomposition.moments import RowMoments, moments
from certus.evidence import FactorsWitness
from certus.typing import Array, ArrayLike, RandomState

if TYPE_CHECKING:
    from certus.blocks import Blocks


class FactorAnalysis(GaussianFactors):
    """Factor analysis by maximum likelihood, on the covariance.

    Objective
    ---------
    max over W, Ψ of Σᵢ log N(xᵢ; m, WWᵀ + Ψ), Ψ diagonal.

    Certificate
    -----------
    ``step_gain`` (PROVED): what one further step of EM would add to the log-likelihood
    of all rows; ``tol`` bounds it. ``log_likelihood`` (PROVED) is the value that the
    fit stated, ``noise_variances`` (PROVED) are positive; columns whose noise vanishes
    (Heywood cases) are named. The covariance is recomputed in one pass. At level full
    the steps are replayed from their start, and none may lower the likelihood.

    Parameters
    ----------
    n_components : int, default=None
        Number of components. None means one for each column. At most as many as X has
        columns and rows are kept.
    tol : float, default=1e-2
        Target of the certificate's primary claim. The fit stops when a step adds less
        than this to the log-likelihood of all rows.
    max_iter : int, default=1000
        Maximum number of iterations.
    noise_variance_init : array-like of shape (n_features,), default=None
        Noise at the start; by default one.
    rotation : {"varimax", "quartimax"}, default=None
        Turn the factors so that each column depends on few; the likelihood stays.
    warm_start : bool, default=False
        Whether to start from the last fit.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    copy, svd_method, iterated_power, random_state
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Wᵀ, the loadings.
    noise_variance_ : ndarray of shape (n_features,)
        Diagonal of Ψ.
    mean_ : ndarray of shape (n_features,)
        m.
    loglike_ : list of float
        Log-likelihood of all rows after each step.
    n_iter_ : int
        Steps taken.
    history_ : dict
        Mean log-likelihood, the gain (under ``gap``) and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    One pass of n·d² operations, then d³ a step, whatever the number of rows. Memory:
    d², or a copy of X if it has more columns than rows. The model does not depend on
    the units of the columns, except through the start. Noise is kept above 1e-12 of a
    column's variance.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.decomposition import FactorAnalysis
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = FactorAnalysis(n_components=2).fit(X)
    >>> model.transform(X).shape, model.certificate_.met
    ((150, 2), True)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        tol: float = 1e-2,
        copy: bool = True,
        max_iter: int = 1000,
        noise_variance_init: Any = None,
        svd_method: str = "randomized",
        iterated_power: int = 3,
        rotation: str | None = None,
        random_state: RandomState = None,
        warm_start: bool = False,
        max_time: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.tol = tol
        self.copy = copy
        self.max_iter = max_iter
        self.noise_variance_init = noise_variance_init
        self.svd_method = svd_method
        self.iterated_power = iterated_power
        self.rotation = rotation
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

    def _previous(self) -> Any:
        return getattr(self, "noise_variance_", None) if self.warm_start else None

    def _on(self, X: Any, found: RowMoments, before: Any) -> Fitted:
        """Fit to the covariance of rows, or of blocks of rows."""
        start = _start(self, before, X.shape[1])
        k = X.shape[1] if self.n_components is None else int(self.n_components)
        ascent = _FactorAscent(found, start, min(k, *X.shape))
        monitor = Monitor(self, X, None, None, self.max_time)
        status = _climb(self, ascent, monitor, X.dtype)
        for name, value in _attributes(self, ascent, X.dtype).items():
            setattr(self, name, value)
        self.n_iter_ = len(self.loglike_)
        self.history_ = monitor.history
        monitor.close(_attributes(self, ascent, X.dtype))
        witness = FactorsWitness(start, steps=self.n_iter_)
        evidence = Evidence("gaussian_factors", witness=witness)
        return Fitted(evidence, X, None, None, status)


def _check_parameters(model: FactorAnalysis) -> None:
    check_number("n_components", model.n_components, integer=True, none=True)
    check_number("tol", model.tol)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_choice("svd_method", model.svd_method, ("randomized", "lapack"))
    check_number("iterated_power", model.iterated_power, integer=True)
    check_choice("rotation", model.rotation, (None, "varimax", "quartimax"))
    check_number("max_time", model.max_time, none=True)


def _start(model: FactorAnalysis, before: Any, d: int) -> Array:
    """The noise at the start."""
    given = model.noise_variance_init
    if given is None:
        warm = before is not None and np.shape(before) == (d,)
        return np.array(before, dtype=np.float64) if warm else np.ones(d)
    start = np.array(given, dtype=np.float64)
    if start.shape != (d,) or not np.all((start > 0) & np.isfinite(start)):
        raise ValueError(
            f"noise_variance_init must hold {d} positive numbers, one per column; got "
            f"shape {start.shape}."
        )
    return start


class _FactorAscent:
    """Steps of EM from the best W for the current noise, in units of each column.

    Columns are divided by their standard deviation, which changes no step: it keeps
    noise and floor comparable. Constant columns are left out.
    """

    def __init__(self, found: RowMoments, start: Array, k: int) -> None:
        self.mean, self.k = found.mean, k
        self.varies = found.variances > 0
        self.scale = np.sqrt(found.variances[self.varies])
        self.found = found.columns(self.varies).scaled(1 / self.scale)
        self.noise = np.clip(start[self.varies] / self.scale**2, FLOOR, 1e290)
        still, d = np.count_nonzero(~self.varies), len(start)
        logs = 2 * np.log(self.scale).sum() + still * math.log(FLOOR)
        self.constant = d * math.log(2 * math.pi) + logs
        self.W = np.zeros((k, len(self.scale)))
        self.loglike: list[float] = []

    def propose(self) -> tuple[float, Array, Array]:
        """The noise by EM (not at the first step), and the best W for it.

        Returns the log-likelihood of all rows, the noise and W.
        """
        noise = self.noise
        if self.loglike:
            explained = np.einsum("ij,ij->j", self.W, self.W)
            noise = np.maximum(1.0 - explained, FLOOR)
        root = np.sqrt(noise)
        whitened = self.found.scaled(1 / root)
        values, V = whitened.eigen(self.k)
        # A direction with less variance than its noise is left to the noise.
        used = np.maximum(values, 1.0)
        W = np.zeros_like(self.W)
        W[: len(values)] = (V * np.sqrt(used - 1.0)).T * root
        left = whitened.variances.sum() - values.sum() + (values / used).sum()
        total = np.log(noise).sum() + np.log(used).sum() + left + self.constant
        return float(-0.5 * self.found.n * total), noise, W

    def accept(self, step: tuple[float, Array, Array]) -> None:
        """Move to the proposed point."""
        self.loglike.append(step[0])
        _, self.noise, self.W = step


def _climb(
    model: FactorAnalysis, ascent: _FactorAscent, monitor: Monitor, dtype: Any
) -> Status:
    """Step until neither the last step nor the next gains ``tol``."""
    gain = math.inf
    try:
        step = ascent.propose()
        for _ in range(int(model.max_iter)):
            ascent.accept(step)
            stop = monitor.step(
                step[0] / ascent.found.n,
                gain,
                lambda: _attributes(model, ascent, dtype),
            )
            if stop is not None:
                return stop
            step = ascent.propose()
            gain, last = step[0] - ascent.loglike[-1], gain
            asked = within(model.tol, ascent.found, ascent.k, ascent.noise)
            if last <= model.tol and gain <= asked:
                return Status.SOLVED
    except KeyboardInterrupt:
        if not ascent.loglike:
            raise
        return Status.INTERRUPTED
    return Status.MAX_ITER


def _attributes(
    model: FactorAnalysis, ascent: _FactorAscent, dtype: Any
) -> dict[str, Any]:
    d = len(ascent.mean)
    W, noise = np.zeros((ascent.k, d)), np.full(d, FLOOR)
    W[:, ascent.varies] = ascent.W * ascent.scale
    noise[ascent.varies] = ascent.noise * ascent.scale**2
    if model.rotation is not None:
        W = rotate(W, model.rotation)
    return {
        "components_": W.astype(dtype),
        "noise_variance_": in_precision(noise, dtype),
        "mean_": ascent.mean.astype(dtype),
        "loglike_": list(ascent.loglike),
    }


def rotate(
    W: Array, method: str, tol: float = 1e-6, max_iter: int = 100
) -> np.ndarray[Any, np.dtype[Any]]:
    """Turn the rows of W by the rotation that ``method`` favours.

    Each step takes the polar factor of the criterion's slope, Σw⁴ for quartimax and
    Σ(w² − mean w²)² for varimax.
    """
    L = W.T
    Q = np.eye(L.shape[1])
    before = 0.0
    for _ in range(max_iter):
        turned = L @ Q
        slope = turned**3
        if method == "varimax":
            slope = slope - turned * (turned**2).mean(axis=0)
        U, s, Vt = np.linalg.svd(L.T @ slope)
        Q = U @ Vt
        total = float(s.sum())
        if before and total < before * (1 + tol):
            break
        before = total
    return np.asarray((L @ Q).T)
