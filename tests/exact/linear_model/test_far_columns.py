"""Columns far from zero: time stamps, years, temperatures in kelvin.

The reference is computed in long double from exactly centred columns.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model as sk
from sklearn.base import clone

import certus
from certus import linear_model, svm
from certus._solvers.design import Design
from certus._solvers.shifts import exact_sum, far_shift
from certus.certificate import Status

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
        mine = getattr(linear_model, name)(**options).fit(X, y)
        theirs = getattr(sk, name)(**options).fit(X, y)
        assert error(mine, reference) <= 2 * error(theirs, reference) + 1e-12
        assert mine.certificate_.met


@pytest.mark.parametrize("ratio", [0.0, 1e4, 1e7])
def test_weights_and_columns_of_every_ratio(ratio: float) -> None:
    X, y = data(0.0)
    X[:, 2] += ratio
    X[:, 3] *= 1e-3
    s = np.random.default_rng(1).uniform(0.1, 2, len(y))
    mine = linear_model.LinearRegression().fit(X, y, s)
    assert error(mine, exact(X, y, s=s)) <= 1e-11  # the third is near 1e3
    assert mine.certificate_.met


@pytest.mark.parametrize("ratio", RATIOS)
def test_sparse_columns_without_zeros(ratio: float) -> None:
    X, y = data(ratio)
    X[:, 1] = np.where(np.arange(len(X)) % 3, 0.0, X[:, 1] - ratio)  # one that has
    mine = linear_model.Ridge(alpha=10.0).fit(sparse.csr_matrix(X), y)
    assert error(mine, exact(X, y, 10.0)) <= 1e-12


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("ratio", RATIOS)
def test_a_lasso_is_the_same_wherever_its_columns_lie(ratio: float, kind: str) -> None:
    X, y = data(ratio)
    near = X.astype(np.longdouble) - np.longdouble(ratio)
    form = sparse.csc_matrix if kind == "sparse" else np.asarray
    here = linear_model.Lasso(alpha=0.1, tol=1e-10).fit(form(X), y)
    there = linear_model.Lasso(alpha=0.1, tol=1e-10).fit(near.astype(float), y)
    np.testing.assert_allclose(here.coef_, there.coef_, atol=1e-11)


def test_a_day_of_time_stamps() -> None:
    rng = np.random.default_rng(0)
    when = 1.7e9 + rng.uniform(0, 86_400, 5000)
    y = 3e-5 * (when - 1.7e9) + rng.normal(size=5000)
    model = linear_model.LinearRegression().fit(when[:, None], y)
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


# -- losses that are solved by steps ----------------------------------------------

FAR = [1e2, 1e4, 1e6, 1.6e9]
forms = pytest.mark.parametrize("kind", ["dense", "csr", "csc"])


def of_kind(X: Array, kind: str) -> Any:
    return X if kind == "dense" else sparse.csr_matrix(X).asformat(kind)


def labelled(ratio: float) -> tuple[Array, Array, dict[str, Array]]:
    """Rows at ``ratio`` and the very same about zero, with targets of all sorts."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(800, 4)) + ratio
    near = X - ratio  # exact
    z = near @ [0.5, -1.0, 0.8, 0.0]
    noisy = z + rng.logistic(size=len(z))
    targets = {
        "two": (noisy > 0).astype(int),
        "three": np.digitize(noisy, [-1, 1]),
        "counts": rng.poisson(np.exp(0.5 * z)),
        "numbers": noisy,
    }
    return X, near, targets


STEPPED = [
    ("two", linear_model.LogisticRegression()),
    ("two", linear_model.LogisticRegression(C=np.inf)),
    ("two", linear_model.LogisticRegression(l1_ratio=1.0, C=0.1)),
    ("three", linear_model.LogisticRegression()),
    ("three", linear_model.LogisticRegression(l1_ratio=0.5, C=0.1)),
    ("counts", linear_model.PoissonRegressor()),
    ("counts", linear_model.GeneralizedLinearModel("poisson")),
    ("numbers", linear_model.RobustRegressor("huber", alpha=0.01)),
    ("numbers", linear_model.HuberRegressor()),
    ("two", svm.LinearSVC(intercept_scaling=np.inf)),
    ("numbers", linear_model.QuantileRegressor(alpha=0.01)),
]


@pytest.mark.parametrize("ratio", FAR)
@pytest.mark.parametrize(("target", "model"), STEPPED)
def test_a_free_intercept_takes_up_the_distance(
    target: str, model: Any, ratio: float
) -> None:
    X, near, targets = labelled(ratio)
    y = targets[target]
    # No intercept is nearer to the best than half of its last digit, and of that share
    # a dual point is shrunk until its mean is zero.
    model = model.set_params(tol=max(1e-8, np.spacing(ratio) / 2))
    with certus.config_context(on_uncertified="ignore"):
        there = clone(model).fit(near, y)
        here = clone(model).fit(X, y)
    np.testing.assert_allclose(here.coef_, there.coef_, atol=1e-5)
    moved = here.intercept_ + np.sum(here.coef_.T * ratio, axis=0)
    if target == "three":  # softmax does not see a constant
        moved = moved - moved.mean()
    np.testing.assert_allclose(moved, there.intercept_, atol=1e-5 + 1e-15 * ratio)
    primary = here.certificate_[here.certificate_.primary]
    rounding = primary.met is None and primary.allowance is not None
    assert here.certificate_.status in (Status.SOLVED, Status.UNDECIDED)
    assert primary.met or rounding or there.certificate_.met is None


@forms
@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_sparse_columns_without_zeros_are_moved_too(kind: str, l1_ratio: float) -> None:
    X, _, targets = labelled(1e6)
    X[:, 1] = np.where(np.arange(len(X)) % 3, 0.0, X[:, 1] - 1e6)  # one that has
    model = linear_model.LogisticRegression(l1_ratio=l1_ratio, C=0.1)
    here = clone(model).fit(of_kind(X, kind), targets["two"])
    there = clone(model).fit(X - [1e6, 0, 1e6, 1e6], targets["two"])
    assert here.certificate_.met
    np.testing.assert_allclose(here.coef_, there.coef_, atol=1e-4)


def penalised_machine(X: Array, y: Array, C: float) -> Array:
    """Squared hinge with b penalised, by Newton's method in long double."""
    A = np.column_stack([X, np.ones(len(X))]).astype(np.longdouble)
    sign = np.where(y == 1, 1.0, -1.0)
    w = np.zeros(A.shape[1], dtype=np.longdouble)
    for _ in range(60):
        short = np.maximum(1 - sign * (A @ w), 0)
        on = A[short > 0]
        g = w - 2 * C * A.T @ (sign * short)
        H = np.eye(len(w), dtype=np.longdouble) + 2 * C * on.T @ on
        M = np.column_stack([H, g])
        for i in range(len(M)):
            M[i] /= M[i, i]
            others = np.arange(len(M)) != i
            M[others] -= np.outer(M[others, i], M[i])
        w = w - M[:, -1]
    return w


@pytest.mark.parametrize("ratio", [1e2, 1e4, 1e6])
def test_a_penalised_intercept_is_rotated_away(ratio: float) -> None:
    X, _, targets = labelled(ratio)
    for loss in ("squared_hinge", "hinge"):
        model = svm.LinearSVC(loss=loss).fit(X, targets["two"])
        assert model.certificate_.met
    model = svm.LinearSVC(C=0.1).fit(X, targets["two"])
    exact_w = penalised_machine(X, targets["two"], 0.1)
    np.testing.assert_allclose(model.coef_[0], exact_w[:-1].astype(float), atol=1e-5)
    assert svm.LinearSVR(C=0.1).fit(X, targets["numbers"]).certificate_.met


def test_a_sum_of_products_is_rounded_once() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        a = rng.normal(size=30) * 10.0 ** rng.integers(-8, 8, 30)
        b, first = rng.normal(size=30), float(rng.normal())
        parts = zip(a.tolist(), b.tolist(), strict=True)
        truth = Fraction(first) + sum(Fraction(x) * Fraction(y) for x, y in parts)
        assert exact_sum(first, a, b) == float(truth)
    assert exact_sum(1.0, np.array([1e308, -1e308]), np.array([1.0, 1.0])) == 1.0
    assert exact_sum(1.0, np.array([1e308, 1e308]), np.array([1.0, 1.0])) == np.inf
    assert np.isnan(exact_sum(1.0, np.array([1e308, -1e308]), np.array([1e9, 1e9])))


def test_columns_near_zero_are_not_copied() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(1.0, 1.0, (500, 4))
    assert far_shift(X) is None
    assert far_shift(sparse.csr_matrix(X)) is None
    moved = far_shift(X + np.array([0, 0, 1e3, 0]))
    assert moved is not None and np.flatnonzero(moved.mean).tolist() == [2]
