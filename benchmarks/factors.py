"""Rows for principal components, truncated SVD and factor analysis."""

from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.random import default_rng

from benchmarks.peers import Fit, Problem
from benchmarks.rows import Contender, Row

# -- factor analysis ----------------------------------------------------------------


@lru_cache(maxsize=1)
def factor_rows(scale: int = 1) -> Any:
    """50,000 × 50: eight factors, and noise of its own in every column."""
    rng, n, d = default_rng(0), 50_000 // scale, 50
    X = rng.standard_normal((n, 8)) @ rng.standard_normal((8, d))
    return X + rng.standard_normal((n, d)) * rng.uniform(0.3, 2, d)


def factor_analysis(module: str, **options: Any) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        model = import_module(module).FactorAnalysis(8, **options).fit(p.X)
        certificate = getattr(model, "certificate_", None)
        seconds = None if certificate is None else float(certificate.seconds)
        return Fit(model, certificate_seconds=seconds)

    return fit


def missing_likelihood(p: Problem, fit: Fit) -> float:
    """Mean log-likelihood below that of a fit of ours with steps until they rest."""
    from certus.factor import FactorAnalysis

    if id(p) not in _LIKELIEST:
        tight = FactorAnalysis(8, tol=1e-6, max_iter=10_000).fit(p.X)
        _LIKELIEST[id(p)] = float(tight.score(p.X))
    return max(0.0, _LIKELIEST[id(p)] - float(np.mean(fit.coef.score_samples(p.X))))


_LIKELIEST: dict[int, float] = {}


def _factors(scale: int) -> Problem:
    return Problem(factor_rows(scale), None, None, judge=missing_likelihood)


ROWS: tuple[Row, ...] = (
    Row(
        "factor analysis 50,000 × 50, k = 8",
        _factors,
        1e-5,
        (
            Contender("certus", factor_analysis("certus.factor"), kind="ours"),
            Contender("sklearn", factor_analysis("sklearn.decomposition")),
            Contender(
                "sklearn lapack",
                factor_analysis("sklearn.decomposition", svd_method="lapack"),
            ),
        ),
        (("best", 30.0),),
        "gap: mean log-likelihood missing",
    ),
)
