"""The exponential families: name, term, range of y, mean, variance, likelihood.

Losses are half the deviance, ℓ(y, z) = log f(y; y) − log f(y; z), so that ``saturated``
turns them into likelihoods. The family's link relates scores z = Xw + b to the mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, gammaln, xlogy
from sklearn.utils.validation import check_is_fitted

from certus._solvers.losses import constant_loss, evaluate, middle
from certus.base import Estimator
from certus.objectives import (
    Absolute,
    Binomial,
    Exponential,
    Loss,
    Poisson,
    Squared,
    Tweedie,
)
from certus.typing import Array, ArrayLike, MatrixLike

FAMILIES = ("gaussian", "laplace", "bernoulli", "binomial", "poisson", "exponential")


def family_loss(family: str, n_trials: int) -> Any:
    """The loss of a family, by its name."""
    terms = {
        "gaussian": Squared(),
        "laplace": Absolute(),
        "bernoulli": Binomial(1),
        "binomial": Binomial(int(n_trials)),
        "poisson": Poisson(),
        "exponential": Exponential(),
    }
    return terms[family]


def check_range(loss: Any, y: Array) -> None:
    """Raise an error if y is outside the family's range."""
    low = float(np.min(y))
    positive = isinstance(loss, Exponential) and low <= 0
    if positive or (isinstance(loss, Poisson | Tweedie) and low < 0):
        name = {Exponential: "exponential and gamma families need y > 0"}.get(
            type(loss), f"{type(loss).__name__} family needs y ≥ 0"
        )
        raise ValueError(
            "Some value(s) of y are out of the valid range of the loss: the "
            f"{name}, and y holds {low:g}."
        )
    if isinstance(loss, Binomial) and (low < 0 or np.max(y) > loss.trials):
        raise ValueError(
            f"This family needs 0 ≤ y ≤ {loss.trials}, got y from {low:g} to "
            f"{np.max(y):g}. Set n_trials, or code the outcomes as 0 and 1."
        )


def mean_of(loss: Loss, z: Array) -> Array:
    """The mean that belongs to a score."""
    if isinstance(loss, Squared | Absolute):
        return z
    if isinstance(loss, Binomial):
        return np.asarray(loss.trials * expit(z))
    return np.exp(z)


def variance_of(loss: Loss, z: Array) -> Array:
    """The variance that belongs to a score, for a family with its own link."""
    if isinstance(loss, Binomial):
        return np.asarray(loss.trials * expit(z) * expit(-z))
    if isinstance(loss, Tweedie):
        return np.exp(loss.power * z)
    mean = np.exp(z)
    return mean if isinstance(loss, Poisson) else np.square(mean)


def saturated(loss: Any, y: Array) -> Array:
    """Log-likelihood of each row if its mean were y."""
    if isinstance(loss, Poisson):
        return np.asarray(xlogy(y, y) - y - gammaln(y + 1))
    if isinstance(loss, Exponential):
        return -np.log(y) - 1
    m, rest = loss.trials, loss.trials - y
    ways = gammaln(m + 1) - gammaln(y + 1) - gammaln(rest + 1)
    whole = 0.0 if m == 1 else ways  # one trial: shares are weights, not counts
    return np.asarray(xlogy(y, y / m) + xlogy(rest, rest / m) + whole)


def gamma_likelihood(y: Array, z: Array, dispersion: float) -> Array:
    """Log-likelihood of each row: gamma of mean exp(z), variance dispersion·mean²."""
    shape, share = 1 / dispersion, y * np.exp(-z)
    with np.errstate(divide="ignore", invalid="ignore"):
        level = shape * (np.log(shape * share) - share) - np.log(y)
    return np.asarray(level - gammaln(shape))


def explained(
    model: Estimator,
    loss: Loss,
    X: MatrixLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
) -> float:
    """1 − deviance/deviance of the best constant, on the data passed."""
    check_is_fitted(model)
    X = model._validate_X(X)
    y = np.asarray(y, dtype=np.float64)
    check_range(loss, y)
    s = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
    z = np.asarray(X @ model.coef_ + model.intercept_, dtype=np.float64)
    if isinstance(loss, Squared | Absolute):
        power = 2 if isinstance(loss, Squared) else 1
        centre = float(s @ y) / s.sum() if power == 2 else middle(y, s)
        left, base = np.abs(y - z) ** power, np.abs(y - centre) ** power
        return 1.0 - float(s @ left) / float(s @ base)
    left = evaluate(loss, y, z[:, None]).value
    return 1.0 - float(s @ left) / float(s.sum()) / constant_loss(loss, y, s, True)
