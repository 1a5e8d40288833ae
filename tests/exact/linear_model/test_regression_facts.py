"""Facts about linear functions and regression, shown on our own estimators.

Each is exact, or a simulation with a fixed seed whose tolerance is several standard
errors.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from sklearn.preprocessing import PolynomialFeatures

from certus import objectives
from certus.linear_model import LinearRegression, Ridge
from certus.objectives import terms as t
from certus.optimize import (
    Ball,
    least_squares_objective,
    projected_gradient,
    stochastic_gradient_descent,
)

Array = np.ndarray
SEEDS = st.integers(0, 10**6)


def fitted(seed: int, d: int = 4, **options: bool) -> tuple[LinearRegression, Array]:
    """A least-squares model of some data, and fresh points."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(30, d)), rng.normal(1.0, 1.0, 30)
    return LinearRegression(**options).fit(X, y), rng.normal(size=(8, d))


# -- linear functions -------------------------------------------------------------


@pytest.mark.catalog("REG-01")
@given(seed=SEEDS)
def test_a_linear_function_is_an_inner_product(seed: int) -> None:
    model, (x, y, *_) = fitted(seed, fit_intercept=False)
    probed = model.predict(np.eye(4))  # f(eᵢ) = wᵢ
    np.testing.assert_allclose(probed, model.coef_, rtol=1e-13)

    def f(x: Array) -> float:
        return float(model.predict(x[None, :])[0])

    assert f(x) == pytest.approx(x @ probed, abs=1e-12)
    assert f(2.5 * x - 0.5 * y) == pytest.approx(2.5 * f(x) - 0.5 * f(y), abs=1e-12)
    # Composition: several outputs are a matrix, and matrices multiply.
    rng = np.random.default_rng(seed)
    X, Y, Z = (rng.normal(size=(20, k)) for k in (4, 3, 2))
    first = LinearRegression(fit_intercept=False).fit(X, Y)
    second = LinearRegression(fit_intercept=False).fit(Y, Z)
    both = second.predict(first.predict(x[None, :]))[0]
    np.testing.assert_allclose(both, second.coef_ @ first.coef_ @ x, atol=1e-11)


@pytest.mark.catalog("REG-02")
@given(seed=SEEDS, a=st.floats(-3, 3), b=st.floats(-3, 3))
def test_an_affine_function_keeps_affine_combinations(
    seed: int, a: float, b: float
) -> None:
    model, (x, y, *_) = fitted(seed)

    def f(x: Array) -> float:
        return float(model.predict(x[None, :])[0])

    mixed = f(a * x + (1 - a) * y)
    assert mixed == pytest.approx(a * f(x) + (1 - a) * f(y), abs=1e-11)
    # In general the difference is (1 − a − b) times the intercept.
    excess = f(a * x + b * y) - a * f(x) - b * f(y)
    assert excess == pytest.approx((1 - a - b) * model.intercept_, abs=1e-11)
    assert abs(model.intercept_) > 1e-3


@pytest.mark.catalog("REG-03")
@given(seed=SEEDS)
def test_level_sets_are_orthogonal_to_the_coefficients(seed: int) -> None:
    model, (x, move, *_) = fitted(seed)
    w = model.coef_
    unit = w / np.linalg.norm(w)
    along = move - (move @ unit) * unit  # orthogonal to w
    rows = np.stack([x, x + along, x + 1e-3 * unit, x - 1e-3 * unit])
    here, moved, up, down = model.predict(rows)
    assert moved == pytest.approx(here, abs=1e-12)
    assert (up - down) / 2e-3 == pytest.approx(np.linalg.norm(w), rel=1e-9)
    directions = np.random.default_rng(seed).normal(size=(50, 4))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    rates = model.predict(x + directions) - here  # no direction is steeper than w
    assert rates.max() <= np.linalg.norm(w) + 1e-12


# -- rich models ------------------------------------------------------------------


@pytest.mark.catalog("REG-15")
def test_distinct_points_can_be_interpolated_in_many_ways() -> None:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-1, 1, 7))
    y = rng.normal(size=7)

    def lagrange(at: Array) -> Array:
        model = LinearRegression(fit_intercept=False, solver="svd")
        return model.fit(np.vander(x), y).predict(np.vander(at, 7))

    np.testing.assert_allclose(lagrange(x), y, atol=1e-8)
    # In several dimensions: a Gaussian bump at every point.
    X, Y = rng.normal(size=(12, 3)), rng.normal(size=12)
    weights = np.linalg.solve(np.exp(-cdist(X, X, "sqeuclidean")), Y)

    def bumps(at: Array, c: float = 0.0) -> Array:
        smooth = np.exp(-cdist(at, X, "sqeuclidean")) @ weights
        return smooth + c * np.prod(cdist(at, X, "sqeuclidean"), axis=1)

    new = rng.normal(size=(4, 3))
    for c in (0.0, 1.0, -3.0):  # the added term vanishes at the points alone
        np.testing.assert_allclose(bumps(X, c), Y, atol=1e-9)
    assert np.all(np.abs(bumps(new, 1.0) - bumps(new)) > 1e-6)


@pytest.mark.catalog("REG-16")
def test_polynomials_are_linear_in_their_features() -> None:
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-1, 1, 12))
    y = np.sin(3 * x) + 0.3 * rng.normal(size=12)
    errors = []
    for degree in range(12):
        features = PolynomialFeatures(degree).fit_transform(x[:, None])
        np.testing.assert_allclose(features, np.vander(x, degree + 1, increasing=True))
        model = LinearRegression(fit_intercept=False, solver="svd").fit(features, y)
        errors.append(objectives.value(t.Squared(), y, model.predict(features)).mean())
        if degree <= 6:
            known = np.polyfit(x, y, degree)[::-1]
            np.testing.assert_allclose(model.coef_, known, rtol=1e-7, atol=1e-9)
    assert np.all(np.diff(errors) <= 1e-12)
    assert errors[11] < 1e-14 < errors[8]  # as many features as rows


@pytest.mark.catalog("REG-17")
def test_too_poor_and_too_rich() -> None:
    rng = np.random.default_rng(2)

    def draw(n: int) -> tuple[Array, Array]:
        x = rng.uniform(-1, 1, n)
        return x, np.sin(4 * x) + 0.3 * rng.normal(size=n)

    new_x, new_y = draw(4000)

    def errors(degree: int, n: int) -> tuple[float, float]:
        """Mean training and test error over repetitions."""
        found = []
        for _ in range(30):
            x, y = draw(n)
            model = LinearRegression(fit_intercept=False)
            model.fit(np.polynomial.legendre.legvander(x, degree), y)
            predicted = model.predict(np.polynomial.legendre.legvander(new_x, degree))
            train = y - model.predict(np.polynomial.legendre.legvander(x, degree))
            found.append([np.mean(train**2), np.mean((new_y - predicted) ** 2)])
        return tuple(np.median(found, axis=0))

    poor, right, rich = (errors(degree, 25) for degree in (0, 5, 18))
    assert poor[0] > right[0] > rich[0]  # training error only falls
    assert poor[1] > 2 * right[1] and rich[1] > 2 * right[1]  # test error is a U
    gaps = [np.subtract(*errors(9, n)[::-1]) for n in (20, 80, 320)]
    assert gaps[0] > gaps[1] > gaps[2] > 0


# -- rules and penalties ----------------------------------------------------------


@pytest.mark.catalog("REG-25")
def test_the_lms_rule() -> None:
    rng = np.random.default_rng(3)
    X, true = rng.normal(size=(300, 3)), np.array([1.0, -2.0, 0.5])
    y = X @ true + 0.1 * rng.normal(size=300)
    by_rule, by_gradient, step = np.zeros(3), np.zeros(3), 0.05
    for x, target in zip(X, y):
        by_rule = by_rule + step * (target - x @ by_rule) * x
        slope = objectives.gradient(t.Squared(), target, x @ by_gradient)
        by_gradient = by_gradient - step * slope * x
        np.testing.assert_array_equal(by_gradient, by_rule)
    objective = least_squares_objective(X, y)
    record = stochastic_gradient_descent(
        objective, np.zeros(3), step=step, every=1, random_state=0, max_iter=200
    )
    for before, after in itertools.pairwise(record.iterates):
        each = step * (y - X @ before)[:, None] * X  # what the rule does at each row
        assert np.abs(after - before - each).max(axis=1).min() < 1e-14
    assert len(record.iterates) == 201
    # In the mean the error is multiplied by I − ηH: it shrinks iff η < 2/λ_max.
    H = X.T @ X / 300
    best = LinearRegression(fit_intercept=False).fit(X, y).coef_
    edge = 2 / np.linalg.eigvalsh(H).max()
    for factor, shrinks in [(0.9, True), (1.1, False)]:
        mean = np.zeros(3)
        for _ in range(300):
            slope = objectives.gradient(t.Squared(), y, X @ mean)
            mean = mean - factor * edge * X.T @ slope / 300
        assert (np.linalg.norm(mean - best) < 1e-6) == shrinks


@pytest.mark.catalog("REG-27")
def test_a_ball_is_a_penalty() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(40, 4)), rng.normal(size=40) * 3
    free = LinearRegression(fit_intercept=False).fit(X, y).coef_

    def projected(radius: float) -> Array:
        objective = least_squares_objective(X, y)
        return projected_gradient(
            objective, np.zeros(4), Ball(radius), tol=1e-12, max_iter=5000
        ).x

    def ridge(alpha: float) -> Array:
        return Ridge(alpha, fit_intercept=False).fit(X, y).coef_

    radius = 0.6 * np.linalg.norm(free)
    multiplier = brentq(lambda a: np.linalg.norm(ridge(a)) - radius, 1e-9, 1e6)
    np.testing.assert_allclose(projected(radius), ridge(multiplier), atol=1e-8)
    assert np.linalg.norm(projected(radius)) == pytest.approx(radius, rel=1e-12)
    for slack in (1.0 + 1e-9, 3.0):  # a ball that holds the optimum does nothing
        bound = slack * np.linalg.norm(free)
        np.testing.assert_allclose(projected(bound), free, atol=1e-8)


@pytest.mark.catalog("REG-28")
def test_noise_on_the_inputs_is_a_ridge_penalty() -> None:
    rng = np.random.default_rng(5)
    n, d, sigma = 30, 3, 0.4
    X, y, w = rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=d)
    # Noise of ±σ in every coordinate: the expectation over all signs is exact.
    signs = sigma * np.stack(np.meshgrid(*[[-1, 1]] * d), axis=-1).reshape(-1, d)
    expected = np.mean([np.mean((y - (X + noise) @ w) ** 2) for noise in signs])
    plain = np.mean((y - X @ w) ** 2)
    assert expected == pytest.approx(plain + sigma**2 * w @ w, rel=1e-12)
    rows = np.vstack([X + noise for noise in signs])
    noisy = LinearRegression(fit_intercept=False).fit(rows, np.tile(y, len(signs)))
    ridge = Ridge(n * sigma**2, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(noisy.coef_, ridge.coef_, rtol=1e-10)
    # Gaussian noise, by simulation.
    drawn = np.array(
        [
            np.mean((y - (X + sigma * rng.normal(size=X.shape)) @ w) ** 2)
            for _ in range(4000)
        ]
    )
    error = drawn.std() / np.sqrt(len(drawn))
    assert abs(drawn.mean() - plain - sigma**2 * w @ w) < 4 * error


@pytest.mark.catalog("REG-29")
def test_regression_finds_correlation_not_causation() -> None:
    """A hidden cause drives both x and y; x itself does nothing."""
    rng = np.random.default_rng(6)
    n = 20_000
    hidden = rng.normal(size=n)
    x = hidden + 0.5 * rng.normal(size=n)
    y = 2 * hidden + 0.5 * rng.normal(size=n)
    model = LinearRegression().fit(x[:, None], y)
    assert model.coef_[0] == pytest.approx(2 / 1.25, rel=0.02)  # Cov(x, y)/Var(x)
    set_x = rng.normal(size=n)  # an experiment sets x, whatever the hidden cause
    outcome = 2 * hidden + 0.5 * rng.normal(size=n)
    effect = LinearRegression().fit(set_x[:, None], outcome).coef_[0]
    assert abs(effect) < 4 * outcome.std() / np.sqrt(n)
    adjusted = LinearRegression().fit(np.column_stack([x, hidden]), y).coef_
    assert abs(adjusted[0]) < 0.05  # once the cause is seen, x explains nothing
