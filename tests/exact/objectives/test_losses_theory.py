"""Theorems about losses: likelihoods, Fisher information, calibration.

Expectations are exact wherever possible: sums over labels, Gauss–Hermite quadrature,
piecewise linear functions evaluated at their knots.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import linprog, minimize_scalar
from scipy.special import expit

from certus import objectives
from certus.linear_model import LinearRegression, LogisticRegression, Ridge
from certus.objectives import terms as t

Array = np.ndarray


# -- likelihoods ------------------------------------------------------------------


@pytest.mark.catalog("LOSS-18")
def test_negative_log_likelihoods() -> None:
    rng = np.random.default_rng(0)
    y, v = rng.normal(size=(2, 6))
    for sigma in (0.3, 1.0, 4.0):
        nll = -objectives.log_likelihood(t.Squared(), y, v, sigma).sum()
        reference = stats.multivariate_normal(v, sigma**2 * np.eye(6)).logpdf(y)
        assert nll == pytest.approx(-reference, rel=1e-12)
        constant = 6 * np.log(sigma * np.sqrt(2 * np.pi))
        half = np.sum((y - v) ** 2) / (2 * sigma**2)
        assert nll == pytest.approx(half + constant, rel=1e-12)
    label, z = rng.integers(0, 3, 6), rng.normal(size=(6, 3))
    np.testing.assert_array_equal(
        objectives.log_likelihood(t.Softmax(3), label, z),
        -objectives.value(t.Softmax(3), label, z),
    )


@pytest.mark.catalog("LOSS-18")
@pytest.mark.parametrize(
    "loss, y",
    [
        (t.Squared(), 0.3),
        (t.Absolute(), 0.3),
        (t.Logistic(), -1),
        (t.Binomial(5), 2),
        (t.Poisson(), 3),
        (t.Exponential(), 0.7),
    ],
    ids=lambda value: type(value).__name__,
)
def test_loss_and_negative_log_likelihood_differ_by_a_constant(
    loss: Any, y: float
) -> None:
    z = np.linspace(-4, 4, 81)
    difference = objectives.value(loss, y, z) + objectives.log_likelihood(loss, y, z)
    np.testing.assert_allclose(difference, difference[0], atol=1e-11)
    # The deviance form makes the best possible loss zero.
    if not isinstance(loss, t.Logistic):
        best = minimize_scalar(lambda z: float(objectives.value(loss, y, z)))
        assert best.fun == pytest.approx(0.0, abs=1e-7)


def test_likelihoods_refuse_what_they_are_not() -> None:
    with pytest.raises(TypeError, match="not the likelihood"):
        objectives.log_likelihood(t.Hinge(), 1, 0.0)
    with pytest.raises(ValueError, match="whole numbers"):
        objectives.log_likelihood(t.Poisson(), 1.5, 0.0)
    with pytest.raises(ValueError, match="no scale"):
        objectives.log_likelihood(t.Poisson(), 1, 0.0, scale=2.0)
    with pytest.raises(ValueError, match="positive"):
        objectives.log_likelihood(t.Squared(), 1, 0.0, scale=0.0)


@pytest.mark.catalog("LOSS-19")
@pytest.mark.parametrize("v", [-1.3, 0.0, 0.8])
@pytest.mark.parametrize(
    "loss, distribution",
    [
        (t.Binomial(), lambda v: stats.bernoulli(expit(v))),
        (t.Poisson(), lambda v: stats.poisson(np.exp(v))),
        (t.Squared(), lambda v: stats.norm(v, 1.0)),
    ],
    ids=["Bernoulli", "Poisson", "Gaussian"],
)
def test_exponential_families(loss: Any, distribution: Any, v: float) -> None:
    """ψ is the loss at y = 0: ψ' is the mean and ψ'' the variance of y."""

    def psi(v: Any) -> Array:
        return objectives.value(loss, 0.0, v)

    h, known = 1e-4, distribution(v)
    first = (psi(v + h) - psi(v - h)) / (2 * h)
    second = (psi(v + h) - 2 * psi(v) + psi(v - h)) / h**2
    assert first == pytest.approx(known.mean(), abs=1e-7)
    assert second == pytest.approx(known.var(), abs=1e-6)
    assert objectives.gradient(loss, 0.0, v) == pytest.approx(known.mean(), abs=1e-12)
    assert objectives.curvature(loss, 0.0, v) == pytest.approx(known.var(), abs=1e-12)
    grid = np.linspace(-3, 3, 41)
    for y in (0.0, 1.0):  # ψ(v) − y·v is the loss, up to a constant in v
        difference = objectives.value(loss, y, grid) - (psi(grid) - y * grid)
        np.testing.assert_allclose(difference, difference[0], atol=1e-12)
        log_p = known.logpdf if isinstance(loss, t.Squared) else known.logpmf
        found = objectives.log_likelihood(loss, y, v)
        assert found == pytest.approx(log_p(y), abs=1e-12)


@pytest.mark.catalog("LOSS-20")
def test_the_gaussian_likelihood_is_least_squares() -> None:
    rng = np.random.default_rng(1)
    X, y, sigma = rng.normal(size=(40, 3)), rng.normal(size=40), 0.6

    def log_p(w: Array) -> float:
        return float(objectives.log_likelihood(t.Squared(), y, X @ w, sigma).sum())

    for w in rng.normal(size=(5, 3)):
        rest = log_p(w) + np.sum((y - X @ w) ** 2) / (2 * sigma**2)
        assert rest == pytest.approx(-40 * np.log(sigma * np.sqrt(2 * np.pi)))
    # log p is quadratic: one Newton step from anywhere reaches its maximum.
    w = rng.normal(size=3)
    score = -X.T @ objectives.gradient(t.Squared(), y, X @ w) / sigma**2
    information = (X.T * objectives.curvature(t.Squared(), y, X @ w)) @ X / sigma**2
    best = w + np.linalg.solve(information, score)
    fitted = LinearRegression(fit_intercept=False).fit(X, y).coef_
    np.testing.assert_allclose(best, fitted, atol=1e-10)
    nearby = best + 1e-3 * rng.normal(size=(50, 3))
    assert all(log_p(w) < log_p(best) for w in nearby)


@pytest.mark.catalog("LOSS-21")
def test_the_laplace_likelihood_is_least_absolute_deviations() -> None:
    rng = np.random.default_rng(2)
    n, b = 21, 0.4
    X, y = np.column_stack([np.ones(n), rng.normal(size=n)]), rng.laplace(size=n)

    def log_p(w: Array) -> float:
        return float(objectives.log_likelihood(t.Absolute(), y, X @ w, b).sum())

    w = rng.normal(size=2)
    expected = -np.abs(y - X @ w).sum() / b - n * np.log(2 * b)
    assert log_p(w) == pytest.approx(expected, rel=1e-12)
    # A maximum is attained on a line through two of the points: try all of them.
    lines = [
        np.linalg.solve(X[[i, j]], y[[i, j]])
        for i, j in itertools.combinations(range(n), 2)
    ]
    best = max(lines, key=log_p)
    cost = np.concatenate([np.zeros(2), np.ones(2 * n)])
    equal = np.hstack([X, np.eye(n), -np.eye(n)])
    bounds = [(None, None)] * 2 + [(0, None)] * (2 * n)
    programme = linprog(cost, A_eq=equal, b_eq=y, bounds=bounds, method="highs")
    np.testing.assert_allclose(best, programme.x[:2], atol=1e-9)
    deviations = objectives.value(t.Absolute(), y, X @ best).sum()
    assert deviations == pytest.approx(programme.fun, rel=1e-12)


@pytest.mark.catalog("LOSS-22")
def test_the_score_vanishes_at_the_estimate() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3))
    y = np.where(rng.random(200) < expit(X @ [1.0, -0.5, 0.2] + 0.3), 1, -1)
    A = np.column_stack([X, np.ones(200)])
    model = LogisticRegression(C=np.inf, tol=1e-12).fit(X, y)
    z = model.decision_function(X)
    assert np.abs(A.T @ objectives.gradient(t.Logistic(), y, z)).max() < 1e-8
    # The likelihood is a product; minimising the loss maximises it.
    product = np.prod(np.where(y > 0, expit(z), expit(-z)).astype(np.longdouble))
    total = objectives.value(t.Logistic(), y, z).sum()
    assert float(np.log(product)) == pytest.approx(-total, rel=1e-12)
    target = X @ [1.0, 2.0, 3.0] + rng.normal(size=200)
    linear = LinearRegression().fit(X, target)
    slope = objectives.gradient(t.Squared(), target, linear.predict(X))
    assert np.abs(A.T @ slope).max() < 1e-10
    for loss, estimate, data in [
        (t.Poisson(), lambda y: np.log(y.mean()), rng.poisson(3.0, 50)),
        (t.Exponential(), lambda y: np.log(y.mean()), rng.exponential(3.0, 50)),
        (
            t.Binomial(7),
            lambda y: np.log(y.mean() / (7 - y.mean())),
            rng.binomial(7, 0.3, 50),
        ),
    ]:
        assert objectives.gradient(loss, data, estimate(data)).sum() == pytest.approx(
            0.0, abs=1e-10
        )


@pytest.mark.catalog("LOSS-23")
def test_maximum_likelihood_minimises_the_divergence() -> None:
    mixture = [(0.3, stats.norm(-1.0, 0.5)), (0.7, stats.norm(1.5, 1.2))]

    def q(y: float) -> float:
        return float(sum(share * part.pdf(y) for share, part in mixture))

    def log_p(y: Any, theta: float) -> Array:
        return objectives.log_likelihood(t.Squared(), y, theta, 1.4)

    def divergence(y: float, theta: float) -> float:
        return float(q(y) * (np.log(q(y)) - log_p(y, theta)))

    def gain(y: float, theta: float) -> float:
        return float(q(y) * log_p(y, theta))

    thetas = np.linspace(-1, 2.5, 6)
    expected = [quad(gain, -9, 12, (theta,))[0] for theta in thetas]
    divergences = [quad(divergence, -9, 12, (theta,))[0] for theta in thetas]
    sums = np.add(divergences, expected)
    np.testing.assert_allclose(sums, sums[0], atol=1e-7)
    rng = np.random.default_rng(4)
    part = rng.random(200_000) < 0.3
    sample = np.where(
        part, rng.normal(-1.0, 0.5, part.size), rng.normal(1.5, 1.2, part.size)
    )
    for theta, known in zip(thetas, expected):
        each = log_p(sample, theta)
        assert abs(each.mean() - known) < 4 * each.std() / np.sqrt(each.size)


@pytest.mark.catalog("LOSS-26")
@pytest.mark.parametrize(
    "loss", [t.Logistic(), t.Squared()], ids=["logistic", "linear"]
)
def test_fisher_information_has_two_expressions(loss: Any) -> None:
    """Exactly: sums over both labels, and Gauss–Hermite quadrature over the noise."""
    rng = np.random.default_rng(5)
    X, w, sigma = rng.normal(size=(15, 3)), np.array([0.5, -1.0, 0.3]), 0.7
    z = X @ w
    if isinstance(loss, t.Logistic):
        outcomes = [(np.full(15, s), expit(s * z)) for s in (-1.0, 1.0)]
        scale, known = 1.0, (X.T * (expit(z) * expit(-z))) @ X
    else:
        nodes, weights = np.polynomial.hermite_e.hermegauss(8)
        share = weights / weights.sum()
        outcomes = [(z + sigma * x, np.full(15, p)) for x, p in zip(nodes, share)]
        scale, known = sigma**2, X.T @ X / sigma**2
    outer, hessian = np.zeros((3, 3)), np.zeros((3, 3))
    for y, p in outcomes:
        slope = objectives.gradient(loss, y, z) / scale
        outer += (X.T * (p * slope**2)) @ X
        hessian += (X.T * (p * objectives.curvature(loss, y, z) / scale)) @ X
    np.testing.assert_allclose(outer, hessian, atol=1e-12)
    np.testing.assert_allclose(hessian, known, atol=1e-12)


@pytest.mark.catalog("LOSS-28", "LOSS-32")
@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_multiplying_an_objective_moves_its_value_alone(factor: float) -> None:
    rng = np.random.default_rng(6)
    X, y, alpha = rng.normal(size=(30, 4)), rng.normal(size=30), 0.8

    def objective(w: Array, c: float) -> float:
        loss = objectives.value(t.Squared(), y, X @ w).sum()
        return float(c * (loss + alpha * w @ w / 2))

    plain = Ridge(alpha, fit_intercept=False).fit(X, y).coef_
    scaled = Ridge(factor * alpha, fit_intercept=False)
    scaled.fit(X, y, sample_weight=np.full(30, factor))
    np.testing.assert_allclose(scaled.coef_, plain, rtol=1e-12)
    ratio = objective(scaled.coef_, factor) / objective(plain, 1.0)
    assert ratio == pytest.approx(factor, rel=1e-12)
    # The gradient of loss and penalty is the sum of theirs.
    h, w = 1e-6, rng.normal(size=4)
    slope = X.T @ objectives.gradient(t.Squared(), y, X @ w) + alpha * w
    differences = [
        (objective(w + h * e, 1.0) - objective(w - h * e, 1.0)) / (2 * h)
        for e in np.eye(4)
    ]
    np.testing.assert_allclose(slope, differences, rtol=1e-6)


# -- calibration ------------------------------------------------------------------

ETAS = np.array([0.0, 0.05, 0.3, 0.45, 0.499, 0.501, 0.55, 0.7, 0.95, 1.0])


def calibration_gaps(phi: Callable[[Array], Array], points: Array) -> Array:
    """Infimum over scores of the wrong sign, minus infimum over all, for each η."""
    gaps = []
    for eta in ETAS:
        conditional = eta * phi(points) + (1 - eta) * phi(-points)
        wrong = points * (eta - 0.5) <= 0
        gaps.append(conditional[wrong].min() - conditional.min())
    return np.array(gaps)


@pytest.mark.catalog("LOSS-29")
@pytest.mark.parametrize(
    "loss, calibrated",
    [
        (t.Hinge(), True),
        (t.Hinge(0.2), True),
        (t.Logistic(), True),
        (t.ExponentialMargin(), True),
        (t.Squared(), True),
        (t.SquaredHinge(), True),
        (t.ModifiedHuber(), True),
        (t.ZeroOne(), True),
        (t.Absolute(), True),
        (t.Quantile(0.5), True),
        (t.Huber(0.3), True),
        (t.Huber(3.0), True),
        (t.Tukey(0.5), True),
        (t.Tukey(1.5), True),
        (t.Tukey(9.0), True),
        (t.EpsilonInsensitive(0.5), True),
        (t.SquaredEpsilonInsensitive(0.5), True),
        (t.Hinge(0.0), False),
        (t.Hinge(-0.5), False),
        (t.EpsilonInsensitive(1.0), False),
        (t.EpsilonInsensitive(1.5), False),
        (t.SquaredEpsilonInsensitive(1.0), False),
    ],
    ids=lambda value: (
        f"{type(value).__name__}{value}" if isinstance(value, tuple) else str(value)
    ),
)
def test_calibration_by_its_definition(loss: Any, calibrated: bool) -> None:
    # ±1e-9 stands for the one-sided limits at zero.
    points = np.concatenate([np.linspace(-12, 12, 24_001), [-1e-9, 1e-9]])
    gaps = calibration_gaps(lambda m: objectives.value(loss, 1.0, m), points)
    assert bool(np.all(gaps > 1e-8)) == calibrated
    assert objectives.is_calibrated(loss) == calibrated


@pytest.mark.catalog("LOSS-29")
def test_a_kink_at_zero_is_not_calibrated() -> None:
    """max(−2t, −t): slopes are negative on both sides, yet 0 wins for η near ½."""

    def phi(m: Array) -> Array:
        return objectives.value(t.Hinge(0.0), 1.0, m) - m

    m = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(phi(m), np.maximum(-2 * m, -m))
    gaps = calibration_gaps(phi, np.linspace(-12, 12, 24_001))
    assert gaps.min() == 0.0 and gaps.max() > 1.0


@pytest.mark.catalog("LOSS-30")
@given(
    heights=st.lists(
        st.sampled_from([0.0, 0.0, 0.1, 0.7, 2.0]), min_size=9, max_size=9
    ),
    tilt=st.sampled_from([-1.0, -0.3, 0.0, 0.3, 1.0]),
)
def test_the_derivative_at_zero_decides(heights: list[float], tilt: float) -> None:
    """Convex piecewise linear φ: calibrated iff differentiable at 0 with φ'(0) < 0."""
    knots = np.array([-2.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 2.0])

    def phi(m: Array) -> Array:
        parts = [
            height * objectives.value(t.Hinge(knot), 1.0, m)
            for height, knot in zip(heights, knots)
        ]
        return sum(parts) + tilt * m

    step = 1e-3  # no knot is nearer to zero, so one-sided slopes are exact
    left, right = ((phi(0.0) - phi(-step)) / step, (phi(step) - phi(0.0)) / step)
    by_derivative = abs(left - right) < 1e-9 and left < -1e-9
    # A piecewise linear function is least at a knot or at an end.
    points = np.concatenate([knots, [-1e4, 1e4]])
    by_definition = bool(np.all(calibration_gaps(phi, points) > 1e-9))
    assert by_definition == by_derivative


def test_calibration_is_about_margins() -> None:
    for loss in (t.Poisson(), t.Softmax(2), t.Quantile(0.3), t.Binomial()):
        with pytest.raises(TypeError, match="not a function of the margin"):
            objectives.is_calibrated(loss)


@pytest.mark.catalog("LOSS-31")
def test_the_hinge_minimiser_is_the_bayes_classifier() -> None:
    rng = np.random.default_rng(7)
    etas = np.array([0.0, 0.1, 0.35, 0.48, 0.52, 0.8, 1.0])
    mass = rng.dirichlet(np.ones(len(etas)))
    grid = np.linspace(-3, 3, 6001)
    risk = np.outer(etas, objectives.value(t.Hinge(), 1, grid))
    risk += np.outer(1 - etas, objectives.value(t.Hinge(), -1, grid))
    # Over all functions of x the score of each point is free.
    scores = grid[risk.argmin(axis=1)]
    np.testing.assert_array_equal(np.sign(scores), np.sign(etas - 0.5))

    def zero_one(signs: Array) -> float:
        return float(mass @ np.where(signs > 0, 1 - etas, etas))

    every = itertools.product([-1, 1], repeat=len(etas))
    lowest = min(zero_one(np.array(signs)) for signs in every)
    assert zero_one(scores) == pytest.approx(lowest)


@pytest.mark.catalog("LOSS-31")
def test_inside_a_restricted_class_it_may_fail() -> None:
    """Scores w·x without a constant, x = 1 labelled + and x = 10 labelled −."""
    x, y, mass = np.array([1.0, 10.0]), np.array([1.0, -1.0]), np.array([0.7, 0.3])
    slopes = np.linspace(-2, 2, 4001)
    hinge = objectives.value(t.Hinge(), y, np.outer(slopes, x)) @ mass
    mistakes = objectives.value(t.ZeroOne(), y, np.outer(slopes, x)) @ mass
    chosen = hinge.argmin()
    assert slopes[chosen] == pytest.approx(-0.1)
    assert mistakes[chosen] == pytest.approx(0.7)
    assert mistakes.min() == pytest.approx(0.3)
