"""The Bayes classifier: the best possible one when the distributions are known.

    f*(x) = argmax over y of P(y | x),   risk R* = E[1 − max over y of P(y | x)]

No classifier has a smaller probability of error. With ever more data the
nearest-neighbour rule errs with probability E[1 − Σ P(y | x)²], which is at most
R*·(2 − K/(K − 1)·R*) for K classes: half of what any rule could learn is in the nearest
neighbour (Cover and Hart). Both are estimated here by simulation, with an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from certus.base import check_number
from certus.results import Result
from certus.typing import Array, ArrayLike, MatrixLike, RandomState


@dataclass(frozen=True)
class Risk(Result):
    """A probability of error, simulated.

    Attributes
    ----------
    value : float
        Mean over the draws.
    low, high : float
        Bounds that hold with probability 1 − delta (empirical Bernstein).
    n_samples : int
        Number of draws.
    delta : float
        Failure probability: the chance that the statement does not hold.
    """

    value: float
    low: float
    high: float
    n_samples: int
    delta: float


class BayesClassifier:
    """The Bayes classifier of known class-conditional distributions.

    Objective
    ---------
    P(f(x) ≠ y), which f*(x) = argmax P(y | x) minimises over all functions.

    Certificate
    -----------
    None, as nothing is fitted; :meth:`risk` comes with an interval that holds with
    probability 1 − delta over the draws (STATISTICAL).

    Parameters
    ----------
    priors : array-like of shape (n_classes,)
        Probabilities of the classes; they must sum to one.
    densities : list of distributions
        One per class, with ``logpdf`` (or ``logpmf``) and ``rvs`` as the frozen
        distributions of ``scipy.stats`` have them.
    classes : array-like of shape (n_classes,), optional
        Labels; 0, 1, … by default. Of equally probable ones the first is predicted.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> from certus.neighbors import BayesClassifier
    >>> best = BayesClassifier([0.5, 0.5], [norm(-1), norm(1)])
    >>> best.predict([[-0.3], [2.0]])
    array([0, 1])
    >>> risk = best.risk(random_state=0)
    >>> bool(risk.low < norm.cdf(-1) < risk.high)
    True
    """

    def __init__(
        self, priors: ArrayLike, densities: Any, classes: ArrayLike | None = None
    ) -> None:
        self.priors = np.asarray(priors, dtype=np.float64)
        self.densities = list(densities)
        k = len(self.densities)
        if self.priors.shape != (k,) or k == 0:
            raise ValueError(
                f"priors has shape {self.priors.shape}, but there are {k} densities; "
                "pass one number per density."
            )
        if not (self.priors >= 0).all() or abs(self.priors.sum() - 1.0) > 1e-9:
            raise ValueError("priors must be non-negative and sum to one.")
        for density in self.densities:
            if not (_log_of(density) and hasattr(density, "rvs")):
                raise TypeError(
                    f"{density!r} has no method logpdf or logpmf, or no method rvs. "
                    "Use a frozen distribution of scipy.stats, for example norm(0, "
                    "1)."
                )
        self.classes = np.arange(k) if classes is None else np.asarray(classes)
        if self.classes.shape != (k,):
            raise ValueError(f"classes must hold {k} labels.")

    def predict_proba(self, X: MatrixLike) -> Array:
        """P(y | x) by Bayes' rule; the priors where no density reaches.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        """
        X = _rows(X)
        with np.errstate(divide="ignore"):
            joint = np.log(self.priors)[:, None] + np.stack(
                [_log_density(density, X) for density in self.densities]
            )
        total = logsumexp(joint, axis=0)
        nowhere = np.isneginf(total)
        share = np.exp(joint - np.where(nowhere, 0.0, total))
        share[:, nowhere] = self.priors[:, None]
        return np.asarray(share.T)

    def predict(self, X: MatrixLike) -> Array:
        """The most probable label of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        """
        return np.asarray(self.classes[self.predict_proba(X).argmax(axis=1)])

    def sample(
        self, n_samples: int, random_state: RandomState = None
    ) -> tuple[Array, Array]:
        """Draw labelled rows.

        Parameters
        ----------
        n_samples : int
            How many.
        random_state : int or Generator, optional
            Seed or generator of all random numbers.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Rows.
        y : ndarray of shape (n_samples,)
            Their labels.
        """
        check_number("n_samples", n_samples, 1, integer=True)
        rng = np.random.default_rng(random_state)
        codes = rng.choice(len(self.priors), size=n_samples, p=self.priors)
        X: Array | None = None
        for k, density in enumerate(self.densities):
            mine = np.flatnonzero(codes == k)
            if len(mine):
                drawn = np.asarray(density.rvs(size=len(mine), random_state=rng))
                drawn = drawn.reshape(len(mine), -1)
                X = np.empty((n_samples, drawn.shape[1])) if X is None else X
                X[mine] = drawn
        return np.asarray(X), np.asarray(self.classes[codes])

    def risk(
        self,
        n_samples: int = 100_000,
        random_state: RandomState = None,
        delta: float = 0.01,
    ) -> Risk:
        """Probability of error of this classifier, which no other can go below.

        Parameters
        ----------
        n_samples : int, default=100_000
            Draws; the mean of 1 − max P(y | x) is taken over them.
        random_state : int or Generator, optional
            Seed or generator of all random numbers.
        delta : float, default=0.01
            Failure probability: the chance that the statement does not hold.
        """
        return self._mean(lambda p: 1.0 - p.max(axis=1), n_samples, random_state, delta)

    def neighbor_risk(
        self,
        n_samples: int = 100_000,
        random_state: RandomState = None,
        delta: float = 0.01,
    ) -> Risk:
        """Probability of error of the nearest-neighbour rule with ever more data.

        E[1 − Σ P(y | x)²]: the label of a row and that of a neighbour at the same place
        are two independent draws.

        Parameters
        ----------
        n_samples : int, default=100_000
            Draws.
        random_state : int or Generator, optional
            Seed or generator of all random numbers.
        delta : float, default=0.01
            Failure probability: the chance that the statement does not hold.
        """
        return self._mean(
            lambda p: 1.0 - np.square(p).sum(axis=1), n_samples, random_state, delta
        )

    def _mean(self, loss: Any, n: int, random_state: RandomState, delta: float) -> Risk:
        check_number("n_samples", n, 2, integer=True)
        check_number("delta", delta, 0, 1, open_low=True)
        X, _ = self.sample(n, random_state)
        losses = loss(self.predict_proba(X))
        value = float(losses.mean())
        # Maurer and Pontil (2009), both sides; losses lie in [0, 1 − 1/K].
        width = 1.0 - 1.0 / len(self.priors)
        log = np.log(4.0 / delta)
        error = np.sqrt(2 * losses.var(ddof=1) * log / n)
        error = float(error + 7 * width * log / (3 * (n - 1)))
        low, high = max(0.0, value - error), min(width, value + error)
        return Risk(value, low, high, int(n), float(delta))

    def __repr__(self) -> str:
        return f"BayesClassifier({len(self.priors)} classes)"


def _rows(X: MatrixLike) -> Array:
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}; pass rows × columns.")
    return X


def _log_of(density: Any) -> Any:
    # A frozen discrete distribution has a logpdf that raises; its logpmf is meant.
    discrete = hasattr(getattr(density, "dist", None), "pmf")
    for name in ("logpmf", "logpdf") if discrete else ("logpdf", "logpmf"):
        if hasattr(density, name):
            return getattr(density, name)
    return None


def _log_density(density: Any, X: Array) -> Array:
    values = _log_of(density)(X[:, 0] if X.shape[1] == 1 else X)
    found = np.asarray(values, dtype=np.float64).reshape(-1)
    if found.shape != (len(X),):
        raise ValueError(
            f"A density gives {found.size} values for {len(X)} rows of {X.shape[1]} "
            "columns; its dimension must be the number of columns of X."
        )
    return found
