"""The linear estimators against optima known beforehand, and the facts about them.

Data come from ``certus.testing.problems``, where the optimum is chosen first, or have
a closed form; nothing here is compared with another library's estimator.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certus._solvers.design import Design
from certus.linear_model import (
    ElasticNet,
    Lasso,
    LinearRegression,
    Ridge,
    RidgeClassifier,
    RidgeCV,
)
from certus.objectives import terms as t
from certus.testing.problems import (
    ConstructedProblem,
    known_regression,
)
from certus.verify.kernel.losses import LOSSES
from certus.verify.kernel.penalties import PENALTIES

Array = np.ndarray
TIGHT = 1e-12


def orthonormal(n: int, d: int, seed: int = 0) -> Array:
    """Columns with XᵀX = n·I."""
    rng = np.random.default_rng(seed)
    return np.sqrt(n) * np.linalg.qr(rng.normal(size=(n, d)))[0]


def slope(f: Any, x: Array, step: float = 1e-5) -> Array:
    """Central differences of a function of an array."""
    x = np.asarray(x, dtype=float)
    out = np.empty(x.shape)
    for i in np.ndindex(x.shape):
        e = np.zeros(x.shape)
        e[i] = step
        out[i] = (f(x + e) - f(x - e)) / (2 * step)
    return out


def determinant(A: Array) -> Fraction:
    """Exact, for a matrix of integers."""
    rows = [[Fraction(int(a)) for a in row] for row in A]
    product = Fraction(1)
    while rows:
        at = next((i for i, row in enumerate(rows) if row[0] != 0), None)
        if at is None:
            return Fraction(0)
        top = rows.pop(at)
        product *= top[0] * (-1) ** at
        rows = [
            [a - b * row[0] / top[0] for a, b in zip(row[1:], top[1:])] for row in rows
        ]
    return product


# -- products of the data ---------------------------------------------------------


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("far", [0.0, 2.0, 1e4])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("k", [1, 3])
def test_products_taken_in_one_pass_are_those_of_their_definition(
    centre: bool, far: float, dtype: Any, k: int
) -> None:
    rng = np.random.default_rng(0)
    n, d = 27_001, 40
    X = (far + rng.normal(size=(n, d))).astype(dtype)
    Y = 1e6 + rng.normal(size=(n, k))
    design = Design(X, None, centre, targets=Y[:, 0] if k == 1 else Y)
    assert centre is False or (far == 1e4) == (design.shift is not None)
    A = X.astype(np.longdouble)
    mean = Y.mean(axis=0) * centre
    if centre:
        A = A - A.mean(axis=0)
    size = np.sqrt(np.mean(A**2, axis=0)).astype(float)
    off = np.abs(design.gram() - A.T @ A / n) / np.outer(size, size)
    assert off.max() < 1e-13 * (1 + 20 * min(far, 2.0) ** 2)
    pulled = design.t_dot_targets(Y - mean)
    spread = np.sqrt(np.mean((Y - mean) ** 2, axis=0))
    off = np.abs(pulled - A.T @ (Y - mean) / n) / np.outer(size, spread)
    assert off.max() < 1e-13 * (1 + 20 * min(far, 2.0) ** 2)


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_pass_finds_every_hole(centre: bool, bad: float) -> None:
    X = np.random.default_rng(0).normal(size=(30_000, 40))
    X[29_999, 3] = bad
    with pytest.raises(ValueError, match=r"NaN|inf"):
        Design(X, None, centre, targets=X[:, 0])


# -- known optima -----------------------------------------------------------------


def fitted(p: ConstructedProblem) -> Any:
    """The estimator that minimises the objective of ``p``, fitted."""
    penalty, free = p.terms[1], p.intercept is not None
    model: Any = LinearRegression(fit_intercept=free)
    if isinstance(penalty, t.L2):
        model = Ridge(penalty.alpha * p.s.sum(), fit_intercept=free)
    elif not isinstance(penalty, t.NoPenalty):
        level = sum(penalty)
        share = penalty[0] / level
        model = ElasticNet(level, l1_ratio=share, fit_intercept=free, tol=TIGHT)
    return model.fit(p.X, p.y, sample_weight=p.s)


@given(
    seed=st.integers(0, 10**6),
    l1=st.sampled_from([0.0, 0.05, 0.5]),
    l2=st.sampled_from([0.0, 0.05, 5.0]),
    intercept=st.booleans(),
    weighted=st.booleans(),
)
@settings(max_examples=60)
def test_regression_finds_the_known_optimum(
    seed: int, l1: float, l2: float, intercept: bool, weighted: bool
) -> None:
    p = known_regression(
        l1=l1, l2=l2, intercept=intercept, weighted=weighted, seed=seed
    )
    model = fitted(p)
    assert model.certificate_.met
    # A gap of 1e-12 leaves about its root in the coefficients; direct solves less.
    near = 2e-5 if l1 else 1e-9
    np.testing.assert_allclose(model.coef_, p.coef, atol=near)
    np.testing.assert_allclose(model.intercept_, p.intercept or 0.0, atol=near)
    if l1:
        assert np.array_equal(model.coef_ != 0, p.coef != 0)


# -- least squares ----------------------------------------------------------------


@pytest.mark.catalog("REG-04", "REG-10")
@pytest.mark.parametrize("d", [1, 6])
@pytest.mark.parametrize("solver", ["auto", "cholesky", "qr", "svd"])
def test_least_squares_equals_lstsq(d: int, solver: str) -> None:
    rng = np.random.default_rng(d)
    X, y = rng.normal(2, 1, (50, d)), rng.normal(size=50)
    expected = np.linalg.lstsq(np.column_stack([X, np.ones(50)]), y, rcond=None)[0]
    model = LinearRegression(solver=solver).fit(X, y)
    np.testing.assert_allclose(model.coef_, expected[:-1], rtol=1e-11)
    np.testing.assert_allclose(model.intercept_, expected[-1], rtol=1e-11)
    new = rng.normal(size=(7, d))
    np.testing.assert_allclose(
        model.predict(new), new @ expected[:-1] + expected[-1], rtol=1e-10
    )


@pytest.mark.catalog("REG-05")
@pytest.mark.parametrize("weighted", [False, True])
def test_an_augmented_column_equals_the_intercept(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(3, 1, (40, 4)), rng.normal(size=40)
    s = rng.uniform(0.1, 2, 40) if weighted else None
    separate = LinearRegression().fit(X, y, sample_weight=s)
    wide = np.column_stack([X, np.ones(40)])
    together = LinearRegression(fit_intercept=False).fit(wide, y, sample_weight=s)
    np.testing.assert_allclose(together.coef_[:-1], separate.coef_, rtol=1e-10)
    np.testing.assert_allclose(together.coef_[-1], separate.intercept_, rtol=1e-10)


@pytest.mark.catalog("REG-06")
def test_normal_equations() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 5)), rng.normal(size=60)
    w = LinearRegression(fit_intercept=False).fit(X, y).coef_
    assert np.linalg.norm(X.T @ (y - X @ w)) <= 1e-10
    columns, row = X.T, y[None, :]  # samples as columns: W = YXᵀ(XXᵀ)⁻¹
    W = row @ columns.T @ np.linalg.inv(columns @ columns.T)
    np.testing.assert_allclose(W[0], w, rtol=1e-11)


@pytest.mark.catalog("REG-07")
@pytest.mark.parametrize("solver", ["auto", "qr", "svd"])
def test_solvers_beat_the_explicit_inverse(solver: str) -> None:
    rng = np.random.default_rng(2)
    U, V = (np.linalg.qr(rng.normal(size=(n, 5)))[0] for n in (40, 5))
    X = U @ np.diag(np.geomspace(1, 1e-8, 5)) @ V.T
    w = rng.normal(size=5)
    y = X @ w
    found = LinearRegression(fit_intercept=False, solver=solver).fit(X, y).coef_
    inverse = np.linalg.inv(X.T @ X) @ X.T @ y
    ours, theirs = np.linalg.norm(found - w), np.linalg.norm(inverse - w)
    assert ours < 1e-3 * theirs and ours / np.linalg.norm(w) < 1e-6


@pytest.mark.catalog("REG-08")
@pytest.mark.parametrize("rank", [5, 3])
def test_fitted_values_are_a_projection(rank: int) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, rank)) @ rng.normal(size=(rank, 5))
    hat = LinearRegression(fit_intercept=False).fit(X, np.eye(20)).predict(X)
    np.testing.assert_allclose(hat @ hat, hat, atol=1e-10)
    np.testing.assert_allclose(hat, hat.T, atol=1e-10)
    assert np.trace(hat) == pytest.approx(rank)
    y = rng.normal(size=20)
    projected = LinearRegression(fit_intercept=False).fit(X, y).predict(X)
    np.testing.assert_allclose(projected, hat @ y, atol=1e-10)


@pytest.mark.catalog("REG-09")
@pytest.mark.parametrize(
    "model",
    [
        LinearRegression(),
        Ridge(2.0),
        ElasticNet(0.05, tol=TIGHT),
        Lasso(0.1, tol=TIGHT),
    ],
    ids=lambda m: type(m).__name__,
)
def test_several_targets_are_fitted_one_by_one(model: Any) -> None:
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(40, 6)), rng.normal(size=(40, 3))
    together = model.fit(X, Y)
    coef, intercept = together.coef_.copy(), together.intercept_.copy()
    assert coef.shape == (3, 6) and intercept.shape == (3,)
    for k in range(3):
        one = model.fit(X, Y[:, k])
        np.testing.assert_allclose(coef[k], one.coef_, atol=1e-9)
        np.testing.assert_allclose(intercept[k], one.intercept_, atol=1e-9)

    def risk(W: Array) -> float:  # samples as columns, as the statement has it
        return float(np.sum((W @ X.T - Y.T) ** 2) / 40)

    W = rng.normal(size=(3, 6))
    expected = 2 / 40 * (W @ X.T - Y.T) @ X
    np.testing.assert_allclose(slope(risk, W), expected, atol=1e-7)


@pytest.mark.catalog("REG-11")
@given(
    n=st.integers(1, 8),
    d=st.integers(1, 8),
    rank=st.integers(1, 8),
    seed=st.integers(0, 999),
)
def test_rank_decides_invertibility(n: int, d: int, rank: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = min(rank, n, d)
    X = rng.integers(-3, 4, (n, rank)) @ rng.integers(-3, 4, (rank, d)) * 1.0
    model = LinearRegression(fit_intercept=False).fit(X, rng.normal(size=n))
    assert model.rank_ == np.linalg.matrix_rank(X)
    assert (model.rank_ == d) == (determinant(X.T @ X) != 0)
    assert model.rank_ < d or d <= n


@pytest.mark.catalog("REG-12")
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("shape", [(6, 15), (30, 8)])
@pytest.mark.parametrize("solver", ["auto", "cholesky", "qr", "svd"])
def test_rank_deficient_problems_give_the_least_norm(
    shape: tuple[int, int], intercept: bool, solver: str
) -> None:
    rng = np.random.default_rng(5)
    n, d = shape
    X = rng.normal(1, 1, shape)
    if n > d:
        X[:, 5:] = X[:, :3] @ rng.normal(size=(3, 3))  # collinear
    y = rng.normal(size=n)
    model = LinearRegression(fit_intercept=intercept, solver=solver).fit(X, y)
    A, b = (X - X.mean(0), y - y.mean()) if intercept else (X, y)
    np.testing.assert_allclose(model.coef_, np.linalg.pinv(A) @ b, atol=1e-9)
    assert model.certificate_.met
    if n < d:
        np.testing.assert_allclose(model.predict(X), y, atol=1e-9)
    w, step = np.zeros(d), 1 / np.linalg.norm(A, 2) ** 2
    for _ in range(20_000):  # gradient descent from 0 stays in the row space
        w -= step * A.T @ (A @ w - b)
    np.testing.assert_allclose(w, model.coef_, atol=1e-6)


@pytest.mark.catalog("REG-13")
@pytest.mark.parametrize("eps", [1.0, 0.1, 0.01])
def test_two_rows_that_nearly_agree(eps: float) -> None:
    X, y = np.array([[0.0, 1.0], [eps, 1.0]]), np.array([1.0, -1.0])
    plain = LinearRegression(fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(plain.coef_, [-2 / eps, 1.0], rtol=1e-9)
    ridge = Ridge(0.1, fit_intercept=False).fit(X, y)
    assert np.abs(ridge.coef_).max() < 2


@pytest.mark.catalog("REG-14")
def test_hessian_of_least_squares() -> None:
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(30, 4)), rng.normal(size=30)

    def gradient(w: Array) -> Array:
        return X.T @ LOSSES[t.Squared].slope(t.Squared(), y, X @ w) / 30

    H = np.array([slope(lambda w, j=j: gradient(w)[j], np.ones(4)) for j in range(4)])
    np.testing.assert_allclose(H, X.T @ X / 30, atol=1e-8)
    values = np.linalg.eigvalsh(X.T @ X / 30)
    singular = np.linalg.svd(X, compute_uv=False)
    np.testing.assert_allclose(values[::-1], singular**2 / 30, rtol=1e-10)
    model = LinearRegression(fit_intercept=False, solver="svd").fit(X, y)
    np.testing.assert_allclose(model.singular_, singular, rtol=1e-10)


# -- ridge ------------------------------------------------------------------------


@pytest.mark.catalog("REG-18")
@pytest.mark.parametrize("shape", [(40, 6), (8, 20)])
def test_ridge_in_three_normalisations(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    n, d = shape
    X, y, lam = rng.normal(size=shape), rng.normal(size=n), 0.3
    cases = {
        2 * n * lam: lambda w: np.sum((y - X @ w) ** 2) / (2 * n) + lam * w @ w,
        n * lam: lambda w: np.sum((y - X @ w) ** 2) / n + lam * w @ w,
        lam: lambda w: np.sum((y - X @ w) ** 2) + lam * w @ w,
    }
    for alpha, objective in cases.items():
        model = Ridge(alpha, fit_intercept=False).fit(X, y)
        closed = np.linalg.solve(X.T @ X + alpha * np.eye(d), X.T @ y)
        np.testing.assert_allclose(model.coef_, closed, atol=1e-11)
        assert np.abs(slope(objective, model.coef_)).max() < 1e-7


@pytest.mark.catalog("REG-19")
def test_ridge_lifts_eigenvalues() -> None:
    rng = np.random.default_rng(8)
    X, lift = rng.normal(size=(20, 5)), 0.7
    X[:, 4] = X[:, 3]  # singular without the penalty
    s = np.linalg.svd(X, compute_uv=False)
    M = X.T @ X + lift * np.eye(5)
    np.testing.assert_allclose(np.linalg.eigvalsh(M)[::-1], s**2 + lift, rtol=1e-10)
    expected = (s[0] ** 2 + lift) / (s[-1] ** 2 + lift)
    assert np.linalg.cond(M) == pytest.approx(expected)
    y = rng.normal(size=20)
    for alpha in (1e-6, lift):  # any positive level suffices
        model = Ridge(alpha, fit_intercept=False).fit(X, y)
        assert model.certificate_.met
        assert model.coef_[3] == pytest.approx(model.coef_[4], rel=1e-5)


@pytest.mark.catalog("REG-20")
def test_ridge_is_least_squares_on_more_rows() -> None:
    rng = np.random.default_rng(9)
    X, y, alpha = rng.normal(size=(30, 5)), rng.normal(size=30), 3.0
    rows = np.vstack([X, np.sqrt(alpha) * np.eye(5)])
    plain = LinearRegression(fit_intercept=False).fit(rows, np.append(y, np.zeros(5)))
    ridge = Ridge(alpha, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(plain.coef_, ridge.coef_, atol=1e-12)


@pytest.mark.catalog("REG-21")
def test_ridge_shrinks_along_eigenvectors() -> None:
    rng = np.random.default_rng(10)
    values, level, n = np.array([5.0, 0.5, 0.05]), 0.3, 30
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    X = orthonormal(n, 3) @ np.diag(np.sqrt(values)) @ Q.T
    y = rng.normal(size=n)
    best = LinearRegression(fit_intercept=False).fit(X, y).coef_
    ridge = Ridge(n * level, fit_intercept=False).fit(X, y).coef_
    factors = (Q.T @ ridge) / (Q.T @ best)
    np.testing.assert_allclose(factors, values / (values + level), rtol=1e-9)
    np.testing.assert_allclose(factors, [0.943, 0.625, 0.143], atol=5e-4)


def test_one_level_per_target() -> None:
    rng = np.random.default_rng(11)
    X, Y = rng.normal(size=(30, 4)), rng.normal(size=(30, 2))
    model = Ridge([0.1, 30.0]).fit(X, Y)
    assert model.certificate_.met
    for k, alpha in enumerate((0.1, 30.0)):
        one = Ridge(alpha).fit(X, Y[:, k])
        np.testing.assert_allclose(model.coef_[k], one.coef_, rtol=1e-10)


@pytest.mark.parametrize("k", [2, 3])
def test_ridge_classifier_regresses_on_signs(k: int) -> None:
    rng = np.random.default_rng(12)
    X = rng.normal(size=(60, 4))
    labels = np.array(["a", "b", "c"])[:k]
    y = labels[np.argmax(X[:, :k] + 0.5 * rng.normal(size=(60, k)), axis=1)]
    model = RidgeClassifier(2.0).fit(X, y)
    signs = np.where(y[:, None] == labels, 1.0, -1.0)[:, 1 if k == 2 else 0 :]
    ridge = Ridge(2.0).fit(X, signs)
    np.testing.assert_allclose(model.coef_.ravel(), ridge.coef_.ravel(), atol=1e-11)
    np.testing.assert_allclose(model.intercept_, ridge.intercept_, atol=1e-11)


@pytest.mark.parametrize("targets", [0, 2])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(14, 4), (7, 12)])
def test_leave_one_out_equals_refitting(
    shape: tuple[int, int], weighted: bool, intercept: bool, targets: int
) -> None:
    rng = np.random.default_rng(13)
    n, alphas = shape[0], [0.1, 1.0, 10.0]
    X = rng.normal(0.5, 1, shape)
    y = rng.normal(1, 1, (n, targets) if targets else n)
    s = rng.uniform(0.2, 2, n) if weighted else np.ones(n)
    model = RidgeCV(alphas, fit_intercept=intercept, store_cv_results=True)
    model.fit(X, y, sample_weight=s if weighted else None)
    errors = np.empty((*y.shape, 3))
    for i in range(n):
        rest = np.arange(n) != i
        for a, alpha in enumerate(alphas):
            one = Ridge(alpha, fit_intercept=intercept)
            one.fit(X[rest], y[rest], sample_weight=s[rest])
            errors[i, ..., a] = s[i] * (y[i] - one.predict(X[[i]])[0]) ** 2
    np.testing.assert_allclose(model.cv_results_, errors, rtol=1e-7)
    means = errors.reshape(-1, 3).mean(axis=0)
    assert model.alpha_ == alphas[int(means.argmin())]
    assert model.best_score_ == pytest.approx(-means.min())


@pytest.mark.catalog("LOSS-28")
def test_a_regularised_objective_is_a_sum() -> None:
    rng = np.random.default_rng(18)
    X, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    w, penalty = rng.normal(size=4), t.L1L2(0.3, 0.2)

    def loss(w: Array) -> float:
        return float(LOSSES[t.Squared].value(t.Squared(), y, X @ w).mean())

    def both(w: Array) -> float:
        return loss(w) + PENALTIES[type(penalty)].value(penalty, w)

    added = slope(loss, w) + 0.3 * np.sign(w) + 0.2 * w
    np.testing.assert_allclose(slope(both, w), added, atol=1e-8)
    plain = LinearRegression().fit(X, y)
    for none in (Ridge(0.0), ElasticNet(0.0)):
        model = none.fit(X, y)
        assert np.array_equal(model.coef_, plain.coef_)
        assert model.intercept_ == plain.intercept_
        assert model.certificate_.primary == "backward_error"


@pytest.mark.parametrize("power", [-900, -664, 400])
def test_columns_of_any_size_are_solved_alike(power: int) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    size = 2.0**power
    model = LinearRegression().fit(X * size, y)
    reference = LinearRegression().fit(X, y)
    np.testing.assert_allclose(model.coef_ * size, reference.coef_, rtol=1e-10)
    assert model.certificate_.met
