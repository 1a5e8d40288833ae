"""Rows for k-means and Gaussian mixtures."""

from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.random import default_rng

from benchmarks.machines import handed_over
from benchmarks.peers import Fit, Problem
from benchmarks.rows import Contender, Row, ours

# -- Gaussian mixtures ------------------------------------------------------------


@lru_cache(maxsize=1)
def gaussians(scale: int = 1) -> Any:
    """100,000 × 16 from 16 components, each with its own covariance."""
    rng, n, k, d = default_rng(0), 100_000 // scale, 16, 16
    centres = rng.standard_normal((k, d)) * 1.5
    shapes = 0.4 * rng.standard_normal((k, d, d)) + 0.5 * np.eye(d)
    z = rng.integers(0, k, n)
    return centres[z] + np.einsum("nij,nj->ni", shapes[z], rng.standard_normal((n, d)))


def mixture(module: str) -> Any:
    """Thirty EM steps from uniform weights, k-means++ means, all rows' covariance."""

    def fit(p: Problem, tol: float) -> Fit:
        cls = import_module(module).GaussianMixture
        return handed_over(cls(16, tol=0.0, max_iter=30, **p.queries).fit(p.X))

    return fit


def _mixture_problem(scale: int) -> Problem:
    from sklearn.cluster import kmeans_plusplus

    X = gaussians(scale)
    means, _ = kmeans_plusplus(X[:5000], 16, random_state=0)
    start = {
        "weights_init": np.full(16, 1 / 16),
        "means_init": means,
        "precisions_init": np.repeat(np.linalg.inv(np.cov(X.T))[None], 16, axis=0),
    }
    return Problem(X, None, None, queries=start, judge=likelihood_lost)


def likelihood_lost(p: Problem, fit: Fit) -> float:
    """Mean log-likelihood below that of thirty steps of ours, by SciPy's density."""
    from scipy.special import logsumexp
    from scipy.stats import multivariate_normal

    def level(model: Any) -> float:
        parts = zip(model.weights_, model.means_, model.covariances_)
        joint = [np.log(w) + multivariate_normal(m, c).logpdf(p.X) for w, m, c in parts]
        return float(np.mean(logsumexp(joint, axis=0)))

    if id(p) not in _LEVELS:
        _LEVELS[id(p)] = level(mixture("certus.mixture")(p, 0.0).coef)
    return max(0.0, _LEVELS[id(p)] - level(fit.coef))


_LEVELS: dict[int, float] = {}

ROWS: tuple[Row, ...] = (
    Row(
        "Gaussian mixture, full, 100,000 × 16, K = 16, 30 EM steps",
        _mixture_problem,
        1e-8,
        (
            ours(mixture("certus.mixture"), 0.0),
            Contender("sklearn", mixture("sklearn.mixture")),
        ),
        (("sklearn", 6.0),),
        "gap: mean log-likelihood lost",
    ),
)
