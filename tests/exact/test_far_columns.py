"""Columns far from zero: time stamps, years, temperatures in kelvin.

The reference is computed in long double from exactly centred columns.
"""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model as sk

from certus import linear as ours
from certus.convex.design import Design

Array = np.ndarray
RATIOS = [0.0, 1.0, 3.0, 5.0, 1e2, 1e4, 1e6, 1e7]


def data(ratio: float, n: int = 2000, d: int = 6) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) + ratio
    return X, (X - ratio) @ rng.normal(size=d) + rng.normal(size=n)


def exact(X: Array, y: Array, alpha: float = 0.0, s: Array | None = None) -> Array:
    """(AᵀSA + alpha)⁻¹AᵀSy in long double, by elimination."""
    weight = np.ones(len(X)) if s is None else s
    share = (weight / weight.sum()).astype(np.longdouble)
    A = X.astype(np.longdouble)
    for _ in range(2):
        A = A - share @ A
    h = weight.astype(np.longdouble)[:, None]
    eye = np.eye(A.shape[1], dtype=np.longdouble)
    M = np.column_stack([A.T @ (h * A) + alpha * eye, A.T @ (h[:, 0] * y)])
    for i in range(len(M)):
        M[i] /= M[i, i]
        others = np.arange(len(M)) != i
        M[others] -= np.outer(M[others, i], M[i])
    return M[:, -1]


def error(model: Any, reference: Array) -> float:
    return float(np.abs(model.coef_ - reference).max())


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("ratio", RATIOS)
def test_least_squares_and_ridge_lose_no_digits(ratio: float, order: Any) -> None:
    X, y = data(ratio)
    X = np.asarray(X, order=order)
    for name, alpha in (("LinearRegression", 0.0), ("Ridge", 10.0)):
        options = {"alpha": alpha} if alpha else {}
        reference = exact(X, y, alpha)
        mine = getattr(ours, name)(**options).fit(X, y)
        theirs = getattr(sk, name)(**options).fit(X, y)
        assert error(mine, reference) <= 2 * error(theirs, reference) + 1e-12
        assert mine.certificate_.met


@pytest.mark.parametrize("ratio", [0.0, 1e4, 1e7])
def test_weights_and_columns_of_every_ratio(ratio: float) -> None:
    X, y = data(0.0)
    X[:, 2] += ratio
    X[:, 3] *= 1e-3
    s = np.random.default_rng(1).uniform(0.1, 2, len(y))
    mine = ours.LinearRegression().fit(X, y, s)
    assert error(mine, exact(X, y, s=s)) <= 1e-11  # the third is near 1e3
    assert mine.certificate_.met


@pytest.mark.parametrize("ratio", RATIOS)
def test_sparse_columns_without_zeros(ratio: float) -> None:
    X, y = data(ratio)
    X[:, 1] = np.where(np.arange(len(X)) % 3, 0.0, X[:, 1] - ratio)  # one that has
    mine = ours.Ridge(alpha=10.0).fit(sparse.csr_matrix(X), y)
    assert error(mine, exact(X, y, 10.0)) <= 1e-12


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("ratio", RATIOS)
def test_a_lasso_is_the_same_wherever_its_columns_lie(ratio: float, kind: str) -> None:
    X, y = data(ratio)
    near = X.astype(np.longdouble) - np.longdouble(ratio)
    form = sparse.csc_matrix if kind == "sparse" else np.asarray
    here = ours.Lasso(alpha=0.1, tol=1e-10).fit(form(X), y)
    there = ours.Lasso(alpha=0.1, tol=1e-10).fit(near.astype(float), y)
    np.testing.assert_allclose(here.coef_, there.coef_, atol=1e-11)


def test_a_day_of_time_stamps() -> None:
    rng = np.random.default_rng(0)
    when = 1.7e9 + rng.uniform(0, 86_400, 5000)
    y = 3e-5 * (when - 1.7e9) + rng.normal(size=5000)
    model = ours.LinearRegression().fit(when[:, None], y)
    assert model.coef_[0] == pytest.approx(float(exact(when[:, None], y)[0]), rel=1e-12)
    assert model.certificate_.met


def test_columns_near_zero_are_not_shifted() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(1.0, 1.0, (500, 4))
    X[:, 3] = rng.random(500) < 0.01  # rare: its mean is small beside its spread
    assert Design(X, None, True).shift is None
    assert Design(X + 1e3, None, True).shift is not None
    X[:, 0] = 1.0  # constant: nothing to lose
    assert Design(X, None, True).shift is None
