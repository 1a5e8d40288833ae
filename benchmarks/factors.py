"""Rows for principal components, truncated SVD and factor analysis."""

from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.random import default_rng

from benchmarks.machines import handed_over
from benchmarks.peers import Fit, Problem
from benchmarks.rows import Contender, Row

# -- principal components and singular vectors --------------------------------------


@lru_cache(maxsize=1)
def component_rows(scale: int = 1) -> Any:
    """100,000 × 500: forty directions of decreasing variance, unit noise."""
    rng, n, d = default_rng(0), 100_000 // scale, 500 // scale
    L = rng.standard_normal((d, 40)) * np.linspace(3, 0.3, 40)
    return rng.standard_normal((n, 40)) @ L.T + rng.standard_normal((n, d))


@lru_cache(maxsize=1)
def word_rows(scale: int = 1) -> Any:
    """50,000 documents over 100,000 words: log1p of counts, rows of length one."""
    rng, n, d = default_rng(0), 50_000 // scale, 100_000 // scale
    draws = 4_000_000 // scale
    p = np.arange(1, d + 1) ** -1.05
    rows = rng.integers(0, n, draws)
    words = rng.choice(d, draws, p=p / p.sum())
    X = sp.csr_matrix((np.ones(draws), (rows, words)), (n, d))
    X.sum_duplicates()
    X.data = np.log1p(X.data)
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    return sp.csr_matrix(sp.diags(1 / np.maximum(lengths, 1e-30)) @ X)


def decomposition(module: str, name: str, k: int, **options: Any) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        return handed_over(getattr(import_module(module), name)(k, **options).fit(p.X))

    return fit


def uncaptured(p: Problem, fit: Fit) -> float:
    """Squares that the components miss of the most k directions can capture."""
    X, V = p.X, np.linalg.qr(np.asarray(fit.coef.components_, dtype=float).T)[0]
    k = V.shape[1]
    mean = np.zeros(X.shape[1]) if sp.issparse(X) else X.mean(axis=0, dtype=float)
    Z = np.asarray(X @ V) - mean @ V
    if id(p) not in _MOST:
        if sp.issparse(X):
            from certus.decomposition import TruncatedSVD

            tight = TruncatedSVD(k, tol=1e-10, random_state=1).fit(X)
            _MOST[id(p)] = float(np.sum(tight.singular_values_**2))
        else:
            C = X.astype(float).T @ X.astype(float) - len(X) * np.outer(mean, mean)
            _MOST[id(p)] = float(np.linalg.eigvalsh(C)[-k:].sum())
    return max(0.0, 1.0 - float(np.sum(Z**2)) / _MOST[id(p)])


_MOST: dict[int, float] = {}


def _components(single: bool) -> Any:
    def problem(scale: int) -> Problem:
        X = component_rows(scale)
        return Problem(X.astype("f") if single else X, None, None, judge=uncaptured)

    return problem


def _words(scale: int) -> Problem:
    return Problem(word_rows(scale), None, None, judge=uncaptured)


def _pca_contenders() -> tuple[Contender, ...]:
    def pca(module: str, **options: Any) -> Any:
        return decomposition(module, "PCA", 20, **options)

    theirs = {"svd_solver": "covariance_eigh"}
    return (
        Contender("certus", pca("certus.decomposition"), kind="ours"),
        Contender("sklearn", pca("sklearn.decomposition", **theirs)),
        Contender("sklearnex", pca("sklearnex.decomposition", **theirs)),
        Contender(
            "sklearn randomised",
            pca("sklearn.decomposition", svd_solver="randomized", random_state=0),
        ),
    )


def _svd(module: str, **options: Any) -> Any:
    return decomposition(module, "TruncatedSVD", 50, random_state=0, **options)


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
    from certus.decomposition import FactorAnalysis

    if id(p) not in _LIKELIEST:
        tight = FactorAnalysis(8, tol=1e-6, max_iter=10_000).fit(p.X)
        _LIKELIEST[id(p)] = float(tight.score(p.X))
    return max(0.0, _LIKELIEST[id(p)] - float(np.mean(fit.coef.score_samples(p.X))))


_LIKELIEST: dict[int, float] = {}


def _factors(scale: int) -> Problem:
    return Problem(factor_rows(scale), None, None, judge=missing_likelihood)


UNCAPTURED = "gap: share of the squares that k directions can capture, missed"

ROWS: tuple[Row, ...] = (
    Row(
        "PCA 100,000 × 500, k = 20",
        _components(single=False),
        1e-9,
        _pca_contenders(),
        (("sklearn", 1.0),),
        UNCAPTURED,
    ),
    Row(
        "PCA 100,000 × 500, k = 20, float32",
        _components(single=True),
        1e-6,
        _pca_contenders(),
        (),
        UNCAPTURED,
    ),
    Row(
        "truncated SVD sparse 50,000 × 100,000, k = 50",
        _words,
        1e-9,
        (
            Contender("certus", _svd("certus.decomposition"), kind="ours"),
            Contender(
                "sklearn arpack", _svd("sklearn.decomposition", algorithm="arpack")
            ),
            Contender("sklearn randomised", _svd("sklearn.decomposition")),
        ),
        (("best", 1.5),),
        UNCAPTURED,
    ),
    Row(
        "factor analysis 50,000 × 50, k = 8",
        _factors,
        1e-5,
        (
            Contender("certus", factor_analysis("certus.decomposition"), kind="ours"),
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
