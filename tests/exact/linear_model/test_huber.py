"""Huber regression that fits its scale: bounds that hold, formulas, small scales.

The bounds are tested as inequalities at arbitrary points, not at solutions alone.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import certus
from certus._solvers.losses import HuberScale, evaluate, huber_scale
from certus.certificate import Status
from certus.linear_model import HuberRegressor, RobustRegressor
from certus.objectives import terms as t
from certus.verify import linear
from certus.verify.huber import best_scale, perspective
from certus.verify.stating import Given

Array = np.ndarray


def data(
    seed: int = 0, n: int = 80, d: int = 3, outliers: float = 0.0
) -> tuple[Array, Array, Array]:
    """A noisy linear target, a share of it moved far away, and the true slopes."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, d)), rng.normal(size=d)
    y = X @ w + 1.0 + 0.3 * rng.normal(size=n)
    far = rng.choice(n, int(outliers * n), replace=False)
    y[far] += 50 + 20 * np.abs(rng.normal(size=len(far))) + 10 * X[far, 0]
    return X, y, w


# -- Huber with its scale -----------------------------------------------------------


def joint(
    v: Array, X: Array, y: Array, s: Array, epsilon: float, alpha: float
) -> float:
    """P(w, b, σ), written down once more; v = (w, b, σ)."""
    r, sigma = np.abs(y - X @ v[:-2] - v[-2]), v[-1]
    if sigma < 0:
        return np.inf
    if sigma == 0:
        losses = 2 * epsilon * r
    else:
        k = r / sigma
        h = np.where(k <= epsilon, k * k, 2 * epsilon * k - epsilon**2)
        losses = sigma * h
    total = s.sum()
    return float(sigma + s @ losses / total + alpha / total * v[:-2] @ v[:-2])


@given(
    seed=st.integers(0, 10**6),
    epsilon=st.sampled_from([1.0, 1.1, 1.35, 3.0]),
    alpha=st.sampled_from([1e-4, 0.1, 10.0]),
    scale=st.sampled_from([0.0, 1e-3, 0.5, 2.0]),
)
@settings(max_examples=60, deadline=None)
def test_the_joint_bound_holds_at_any_point(
    seed: int, epsilon: float, alpha: float, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    n, d = 20, 2
    X, y = rng.normal(size=(n, d)), rng.standard_t(3, size=n)
    s = rng.uniform(0.2, 2, n)
    w, b = rng.normal(size=d), float(rng.normal())
    point = SimpleNamespace(coef_=w, intercept_=b, scale_=scale)
    stated = linear.Statement(
        t.Huber(epsilon), t.L2(2 * alpha), penalty_of="sum", joint=True
    )
    found = linear.check(point, stated, Given(None, X, y, s))[0][0]
    model = HuberRegressor(epsilon=epsilon, alpha=alpha).fit(X, y, s)
    best = joint(
        np.array([*model.coef_, model.intercept_, model.scale_]),
        X,
        y,
        s,
        epsilon,
        alpha,
    )
    here = joint(np.array([*w, b, scale]), X, y, s, epsilon, alpha)
    order = np.argsort(y)
    mass = np.cumsum(s[order])
    median = y[order[np.searchsorted(mass, mass[-1] / 2)]]
    sigma = best_scale(y - median, s, epsilon)
    base = joint(np.array([0.0, 0.0, median, sigma]), X, y, s, epsilon, 0.0)
    assert found.value * base >= here - best - 1e-9
    assert model.certificate_.met, model.certificate_


@given(seed=st.integers(0, 10**6), epsilon=st.floats(1.0, 3.0))
@settings(deadline=None)
def test_the_dual_of_the_perspective(seed: int, epsilon: float) -> None:
    """φ(r, σ) ≥ ar − σa²/4 for |a| ≤ 2ε, with equality at its slope."""
    rng = np.random.default_rng(seed)
    r, sigma = 3 * rng.normal(size=50), float(rng.uniform(0, 2))
    a = rng.uniform(-2 * epsilon, 2 * epsilon, 50)
    value = perspective(r, sigma, epsilon)
    assert np.all(value >= a * r - sigma * a * a / 4 - 1e-12)
    if sigma > 0:
        a = np.clip(2 * r / sigma, -2 * epsilon, 2 * epsilon)
        np.testing.assert_allclose(value, a * r - sigma * a * a / 4, atol=1e-12)


@given(
    seed=st.integers(0, 10**6), epsilon=st.floats(1.0, 4.0), zeros=st.integers(0, 25)
)
@settings(deadline=None)
def test_both_formulas_of_the_scale_agree(
    seed: int, epsilon: float, zeros: int
) -> None:
    rng = np.random.default_rng(seed)
    r, s = rng.standard_t(2, size=30), rng.uniform(0.1, 2, 30)
    r[:zeros] = 0.0
    found = huber_scale(r, s, epsilon)
    if epsilon > 1.001:  # at 1 every σ below the smallest residual is as good
        assert found == pytest.approx(best_scale(r, s, epsilon), rel=1e-9, abs=1e-300)
    if found > 0:
        assert s @ np.minimum((r / found) ** 2, epsilon**2) == pytest.approx(s.sum())

    def value(sigma: float) -> float:
        return sigma + s @ perspective(r, sigma, epsilon) / s.sum()

    for other in (0.0, 0.5 * found, 0.99 * found, 1.01 * found, found + 0.1):
        assert value(found) <= value(other) + 1e-12


def test_the_solver_s_joint_loss_is_the_perspective_at_its_best() -> None:
    rng = np.random.default_rng(0)
    y, z, s = rng.standard_t(2, size=40), rng.normal(size=(40, 1)), rng.uniform(size=40)
    found = evaluate(HuberScale(1.35), y, z, s)
    sigma = best_scale(y - z[:, 0], s, 1.35)
    expected = sigma + perspective(y - z[:, 0], sigma, 1.35)
    np.testing.assert_allclose(found.value, expected, rtol=1e-12)
    step = 1e-6 * rng.normal(size=(40, 1))

    def mean(z: Array) -> float:
        return float(s @ evaluate(HuberScale(1.35), y, z, s).value / s.sum())

    change = (mean(z + step) - mean(z - step)) / 2
    assert change == pytest.approx(
        float(s @ (found.slope * step)[:, 0] / s.sum()), rel=1e-5
    )


def test_a_perfect_fit_has_no_scale() -> None:
    X, _, w = data(11)
    y = X @ w + 1.0
    model = HuberRegressor(alpha=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, w, rtol=1e-9)
    assert model.scale_ <= 1e-9 and model.certificate_.met
    y[:5] += 10.0  # five rows of eighty are wrong: the others still fit exactly
    model = HuberRegressor(alpha=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, w, rtol=1e-9)
    assert model.outliers_[:5].all() and model.scale_ <= 1e-9


def test_epsilon_one_is_least_absolute_errors() -> None:
    """With epsilon = 1 the slope in σ never falls below zero: σ = 0 is best."""
    X, y, _ = data(12)
    model = HuberRegressor(epsilon=1.0, alpha=0).fit(X, y)
    absolute = RobustRegressor("absolute").fit(X, y)
    assert model.scale_ == 0.0 and model.certificate_.met
    np.testing.assert_allclose(model.coef_, absolute.coef_, rtol=1e-6)


def test_a_forged_scale_is_noticed() -> None:
    X, y, _ = data(13)
    model = HuberRegressor().fit(X, y)
    for scale in (-1.0, np.nan, 0.0, 1.1 * model.scale_, 1e9):
        other = HuberRegressor().fit(X, y)
        other.scale_ = scale
        found = certus.certify(other, X, y)
        assert found.met is False and found.status is not Status.SOLVED


@pytest.mark.parametrize("alpha", [1e-4, 1.0, 1e4])
def test_more_columns_than_rows(alpha: float) -> None:
    """Turned columns turn the coefficients; sparse, warm and square fits agree."""
    X, y, _ = data(20, n=30, d=50, outliers=0.1)
    model = HuberRegressor(alpha=alpha).fit(X, y)
    assert model.certificate_.met, model.certificate_
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(50, 50)))[0]
    turned = HuberRegressor(alpha=alpha).fit(X @ turn, y)
    np.testing.assert_allclose(turn @ turned.coef_, model.coef_, atol=1e-5)
    assert turned.scale_ == pytest.approx(model.scale_, abs=1e-6)
    thin = HuberRegressor(alpha=alpha).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(thin.coef_, model.coef_, atol=1e-5)
    again = HuberRegressor(alpha=alpha, warm_start=True).fit(X, y).fit(X, y)
    np.testing.assert_allclose(again.coef_, model.coef_, atol=1e-5)
    # The same rows, in the n coordinates of their span: a problem that is not wide.
    L, Q = np.linalg.qr(X.T)[1].T, np.linalg.qr(X.T)[0]
    square = HuberRegressor(alpha=alpha).fit(L, y)
    np.testing.assert_allclose(Q @ square.coef_, model.coef_, atol=1e-5)


def test_more_columns_than_rows_without_a_penalty_interpolates() -> None:
    X, y, _ = data(21, n=30, d=50, outliers=0.1)
    for rows in (X, sparse.csr_array(X)):
        model = HuberRegressor(alpha=0.0).fit(rows, y)
        np.testing.assert_allclose(model.predict(rows), y, atol=1e-8)
        assert model.scale_ <= 1e-9 and model.certificate_.met
