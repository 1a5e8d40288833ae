"""Where the error of a model comes from, on problems whose truth is known.

For squared loss, y = f(x) + ε with variance σ², and a model f_S trained on a random S,

    E (y − f_S(x))²  =  σ²  +  (f(x) − E f_S(x))²  +  Var f_S(x)
    risk                noise   bias²                  variance

``bias_variance`` estimates the parts by refitting on fresh training sets;
``ridge_bias_variance`` has them in closed form for ridge regression on fixed rows.
``generalisation_gap`` needs no truth: it compares training with held-out losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.bounds import Interval, bounded_mean
from certus.bounds.intervals import check_count, check_losses
from certus.config import config_context
from certus.results import TableResult
from certus.typing import Array, MatrixLike, RandomState


@dataclass(frozen=True, eq=False)
class BiasVariance(TableResult):
    """The parts of the expected squared error, averaged over the rows of X.

    Attributes
    ----------
    noise, bias, variance : float
        σ², squared bias and variance; they add up to ``risk``.
    risk : float
        E (y − f_S(x))².
    error : float
        Standard error of ``risk`` from the number of refits; 0 for closed forms.
    pointwise : dict of arrays
        ``noise``, ``bias``, ``variance`` at each row of X.
    """

    noise: float
    bias: float
    variance: float
    risk: float
    error: float
    pointwise: dict[str, Array]

    def _columns(self) -> Mapping[str, Array]:
        return self.pointwise


def bias_variance(
    estimator: Any,
    sample: Callable[[np.random.Generator], tuple[Any, Any]],
    X: MatrixLike,
    f: Any,
    noise: Any,
    *,
    n_repeats: int = 200,
    random_state: RandomState = None,
) -> BiasVariance:
    """Split the expected squared error of an estimator by fitting it again and again.

    The estimates are unbiased: the share of the squared bias that comes from the
    scatter of the mean prediction is subtracted, so a squared bias of zero may be
    estimated as slightly negative.

    Parameters
    ----------
    estimator : estimator
        A regressor; copies of it are fitted.
    sample : callable
        ``sample(rng)`` draws one training set (X, y) with the NumPy generator it gets.
    X : array-like of shape (n_points, n_features)
        Where to predict.
    f : callable or array-like of shape (n_points,)
        The true regression function E[y | x], or its values at X.
    noise : float or array-like of shape (n_points,)
        The variance σ² of y given x.
    n_repeats : int, default=200
        Number of training sets, at least 2.
    random_state : int or Generator, optional
        Seed or generator of all random numbers.

    Returns
    -------
    BiasVariance

    Examples
    --------
    >>> import numpy as np
    >>> from certus.linear_model import Ridge
    >>> from certus.selection import bias_variance
    >>> def sample(rng):
    ...     X = rng.normal(size=(30, 2))
    ...     return X, X[:, 0] + rng.normal(size=30)
    >>> grid = np.random.default_rng(0).normal(size=(50, 2))
    >>> strong = bias_variance(Ridge(100), sample, grid, grid[:, 0], 1, random_state=0)
    >>> weak = bias_variance(Ridge(0.1), sample, grid, grid[:, 0], 1, random_state=0)
    >>> strong.bias > weak.bias, strong.variance < weak.variance
    (True, True)
    """
    from sklearn.base import clone

    n_repeats = check_count("n_repeats", n_repeats, 2)
    rng = np.random.default_rng(random_state)
    points = np.asarray(X)
    truth = _per_point("f", f(X) if callable(f) else f, len(points))
    sigma2 = _per_point("noise", noise, len(points))
    if sigma2.min() < 0:
        raise ValueError("noise is a variance and must not be negative.")
    found = np.empty((n_repeats, len(points)))
    with config_context(certify="never"):
        for row in found:
            row[:] = np.ravel(clone(estimator).fit(*sample(rng)).predict(X))
    if not np.isfinite(found).all():
        raise ValueError("a refit predicts NaN or infinity. Check its training set.")
    variance = found.var(axis=0, ddof=1)
    bias = (found.mean(axis=0) - truth) ** 2 - variance / n_repeats
    scatter = np.std(((found - truth) ** 2).mean(axis=1), ddof=1)
    return _parts(sigma2, bias, variance, float(scatter / math.sqrt(n_repeats)))


def ridge_bias_variance(
    X_train: Any, w: Any, alpha: float, noise: float, X: MatrixLike
) -> BiasVariance:
    """The parts for ridge regression without intercept, in closed form.

    Training rows are fixed, y = X_train·w + ε with independent noise of variance σ².
    With A = X_trainᵀX_train + αI the prediction xᵀA⁻¹X_trainᵀy has

        bias −α·xᵀA⁻¹w,   variance σ²·‖X_train A⁻¹x‖².

    Parameters
    ----------
    X_train : array-like of shape (n_samples, n_features)
        Training rows; with ``alpha=0`` their columns must be independent.
    w : array-like of shape (n_features,)
        The true coefficients.
    alpha : float
        Strength of the penalty, as in ``Ridge``.
    noise : float
        σ².
    X : array-like of shape (n_points, n_features)
        Where to predict.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.selection import ridge_bias_variance
    >>> parts = ridge_bias_variance(np.eye(4), [2, 0, 0, 0], 1.0, 1.0, np.eye(4))
    >>> parts.noise, parts.bias, parts.variance, parts.risk
    (1.0, 0.25, 0.25, 1.5)
    """
    X_train, X = np.asarray(X_train, dtype=float), np.asarray(X, dtype=float)
    if not alpha >= 0 or not noise >= 0:
        raise ValueError(
            f"alpha and noise must not be negative, got {alpha} and {noise}."
        )
    A = X_train.T @ X_train + alpha * np.eye(X_train.shape[1])
    if np.linalg.matrix_rank(A, hermitian=True) < len(A):
        raise ValueError(
            "The columns of X_train are linearly dependent. Use alpha above zero."
        )
    Z = np.linalg.solve(A, X.T)  # one column for each point
    bias = (alpha * (np.asarray(w, dtype=float) @ Z)) ** 2
    variance = noise * ((X_train @ Z) ** 2).sum(axis=0)
    return _parts(np.full(len(X), float(noise)), bias, variance, 0.0)


def generalisation_gap(
    train_losses: Any,
    test_losses: Any,
    delta: float = 0.05,
    low: float = 0.0,
    high: float = 1.0,
) -> Interval:
    """An interval for risk − training loss of one fitted model.

    Given the fit, its training loss is a number and the held-out losses are
    independent: the interval is that of the risk, moved.

    Parameters
    ----------
    train_losses : array-like of shape (n_train,)
        Losses on the rows it was fitted on.
    test_losses : array-like of shape (n_test,)
        Losses on other rows, drawn as those were.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    low, high : float, default=0, 1
        Bounds of the loss, known before the data.

    Returns
    -------
    Interval
        ``value`` is the difference of the two means.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.selection import generalisation_gap
    >>> print(generalisation_gap(np.zeros(500), np.repeat([0.0, 1.0], [700, 300])))
    between 0.249 and 0.351 with probability 95 % (empirical Bernstein, n = 1,000)
    """
    own = float(check_losses(train_losses, low, high).mean())
    risk = bounded_mean(test_losses, delta, low, high)
    return Interval(
        risk.low - own,
        risk.high - own,
        risk.value - own,
        risk.delta,
        risk.method,
        risk.n,
        risk.assumptions,
    )


def _per_point(name: str, values: Any, n: int) -> Array:
    found = np.asarray(values, dtype=np.float64)
    if found.shape not in ((), (n,)):
        raise ValueError(
            f"{name} has shape {found.shape} for {n} points; pass one number per point."
        )
    if not np.isfinite(found).all():
        raise ValueError(f"{name} holds NaN or infinity.")
    return np.broadcast_to(found, (n,))


def _parts(noise: Array, bias: Array, variance: Array, error: float) -> BiasVariance:
    s, b, v = float(noise.mean()), float(bias.mean()), float(variance.mean())
    pointwise = {"noise": noise, "bias": bias, "variance": variance}
    return BiasVariance(s, b, v, s + b + v, error, pointwise)
