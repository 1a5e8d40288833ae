"""Rate theorems on problems with known constants: they hold, and wrong ones show."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm
from scipy.optimize import minimize as scipy_minimize
from scipy.optimize import minimize_scalar

from certus.optimize import (
    Objective,
    estimate_constants,
    gradient_descent,
    least_squares_objective,
    logistic_objective,
    newton_method,
    quadratic_objective,
)
from helpers.optimising import quadratic
from helpers.optimising import solved_logistic as logistic


@pytest.mark.catalog("OPT-10")
def test_gradient_descent_contracts_each_eigendirection() -> None:
    lam = np.array([0.5, 1.0, 3.0, 8.0])
    f, Q = quadratic(lam)
    record = gradient_descent(f, np.full(4, 5.0), step=0.2, max_iter=12, tol=0)
    errors = (record.iterates - f.optimum) @ Q
    ratios = np.abs(errors[1:] / errors[:-1])
    np.testing.assert_allclose(ratios, np.tile(np.abs(1 - 0.2 * lam), (12, 1)))


@pytest.mark.catalog("OPT-11")
@pytest.mark.parametrize("gamma", [0.1, 1.0, 1.9])
def test_one_parameter_mean(gamma) -> None:
    y = np.array([1.0, 4.0, 7.0])
    f = least_squares_objective(np.ones((3, 1)), y)
    record = gradient_descent(f, [10.0], step=gamma, max_iter=30, tol=0)
    w = 10.0
    for seen in record.iterates[:, 0]:
        assert seen == pytest.approx(w, rel=1e-12)
        w = (1 - gamma) * w + gamma * y.mean()
    errors = np.abs(record.iterates[:8, 0] - 4.0)
    np.testing.assert_allclose(errors[1:], abs(1 - gamma) * errors[:-1], atol=1e-12)
    if gamma != 1.9:
        assert record.x[0] == pytest.approx(4.0, abs=0.3)


@pytest.mark.catalog("OPT-11", "OPT-34")
def test_one_parameter_mean_diverges_beyond_two() -> None:
    f = least_squares_objective(np.ones((3, 1)), np.array([1.0, 4.0, 7.0]))
    record = gradient_descent(f, [10.0], step=2.1, max_iter=5000)
    assert record.status.value == "diverged" and "diverged" in record.reason
    assert np.isfinite(record.x).all()
    assert "2/L" in record.refused


@pytest.mark.catalog("OPT-12")
def test_linear_regression_by_gradient_descent() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(100, 5)), rng.normal(size=100)
    f = least_squares_objective(X, y)
    w = rng.normal(size=5)
    np.testing.assert_allclose(f.evaluate(w)[1], -X.T @ (y - X @ w) / 100, atol=1e-14)
    record = gradient_descent(f, np.zeros(5), tol=1e-11)
    expected = np.linalg.lstsq(X, y, rcond=None)[0]
    np.testing.assert_allclose(record.x, expected, atol=1e-9)


@pytest.mark.catalog("OPT-12")
def test_cost_is_linear_in_rows_and_columns() -> None:
    """Eight times the data, about eight times the time (far from sixty-four)."""

    def seconds(n, d):
        rng = np.random.default_rng(0)
        f = least_squares_objective(rng.normal(size=(n, d)), rng.normal(size=n))
        best, w = np.inf, np.zeros(d)
        for _ in range(15):
            start = time.perf_counter()
            f.evaluate(w)
            best = min(best, time.perf_counter() - start)
        return best

    base = seconds(500, 20)
    assert seconds(4000, 20) < 24 * base
    assert seconds(500, 160) < 24 * base


@pytest.mark.catalog("OPT-13")
def test_step_minimises_the_quadratic_model() -> None:
    f = logistic(alpha=0.1)
    x, t = np.array([1.0, -2.0, 0.5, 3.0]), 0.3
    value, g = f.evaluate(x)
    step = gradient_descent(f, x, step=t, max_iter=1).x
    model = quadratic_objective(np.eye(4) / t, x / t - g)  # up to a constant
    np.testing.assert_allclose(newton_method(model, x).x, step, atol=1e-10)
    found = scipy_minimize(
        lambda y: value + g @ (y - x) + np.sum((y - x) ** 2) / (2 * t),
        np.zeros(4),
        jac=lambda y: g + (y - x) / t,
        tol=1e-13,
    )
    np.testing.assert_allclose(step, found.x, atol=1e-10)


@pytest.mark.catalog("OPT-14")
def test_best_small_step_is_against_the_gradient() -> None:
    f = Objective(
        lambda x: (
            math.exp(x[0]) + x[0] * x[1] + x[1] ** 4,
            np.array([math.exp(x[0]) + x[1], x[0] + 4 * x[1] ** 3]),
        )
    )
    x = np.array([0.3, -0.7])
    _, g = f.evaluate(x)
    target = np.arctan2(-g[1], -g[0])
    angles = []
    for eta in 10.0 ** -np.arange(1, 6):
        found = minimize_scalar(
            lambda a, r=eta: f.evaluate(x + r * np.array([np.cos(a), np.sin(a)]))[0],
            bounds=(target - 1, target + 1),
            method="bounded",
            options={"xatol": 1e-10},
        )
        angles.append(abs(found.x - target))
    assert angles[0] > angles[1] > angles[2] and angles[-1] < 1e-3


@pytest.mark.catalog("OPT-15")
def test_gradient_descent_is_euler_on_the_gradient_flow() -> None:
    A = np.array([[2.0, 0.5], [0.5, 1.0]])
    f = quadratic_objective(A, np.zeros(2))
    x0, T = np.array([1.0, -2.0]), 1.0
    exact = expm(-A * T) @ x0
    etas = np.array([0.1, 0.05, 0.02, 0.01, 0.005])
    errors = [
        np.linalg.norm(
            gradient_descent(f, x0, step=eta, max_iter=round(T / eta), tol=0).x - exact
        )
        for eta in etas
    ]
    slope = np.polyfit(np.log(etas), np.log(errors), 1)[0]
    assert slope == pytest.approx(1, abs=0.1)


@pytest.mark.catalog("OPT-16")
def test_smoothness_of_the_logistic_loss() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(50, 3))
    y = np.where(rng.random(50) > 0.5, 1, -1)
    f = logistic_objective(X, y)
    L = np.linalg.eigvalsh(X.T @ X).max() / (4 * 50)
    assert pytest.approx(L, rel=1e-10) == f.L
    assert estimate_constants(f, np.zeros(3))[0] == pytest.approx(L, rel=1e-6)
    for x, u in rng.normal(scale=2, size=(200, 2, 3)):
        (fx, gx), (fu, gu) = f.evaluate(x), f.evaluate(u)
        assert np.linalg.norm(gx - gu) <= L * np.linalg.norm(x - u) * (1 + 1e-12)
        assert fu <= fx + gx @ (u - x) + L / 2 * np.sum((u - x) ** 2) + 1e-12
    record = gradient_descent(f, np.full(3, 4.0), step=1 / L, max_iter=200)
    drops = record.values[:-1] - record.values[1:]
    assert (drops >= record.gradient_norms[:-1] ** 2 / (2 * L) - 1e-15).all()
    # The upper bound alone is not smoothness: −x² satisfies it with L = 0.
    assert -(3.0**2) <= -(1.0**2) - 2 * 1.0 * (3.0 - 1.0) + 0.0
    assert abs(-2 * 3.0 + 2 * 1.0) > 0.0 * 2


@pytest.mark.catalog("OPT-17")
def test_strong_convexity_of_ridge() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    f = least_squares_objective(X, y, alpha=0.2)
    m = np.linalg.eigvalsh(X.T @ X).min() / 30 + 0.2
    assert pytest.approx(m, rel=1e-10) == f.m
    assert estimate_constants(f, y[:4])[1] == pytest.approx(m, rel=1e-6)
    tight = np.inf
    for x, u in rng.normal(size=(300, 2, 4)):
        (fx, gx), (fu, _) = f.evaluate(x), f.evaluate(u)
        rest = fu - fx - gx @ (u - x)
        assert rest >= m / 2 * np.sum((u - x) ** 2) * (1 - 1e-10)
        tight = min(tight, rest / np.sum((u - x) ** 2))
    # With m in place of m/2, as once printed, it fails along the flattest direction.
    v = np.linalg.eigh(X.T @ X)[1][:, 0]
    fx, gx = f.evaluate(np.zeros(4))
    assert f.evaluate(v)[0] - fx - gx @ v < m * 0.99
    assert tight >= m / 2


def hilly(x):
    return float(x[0] ** 2 + 3 * np.sin(x[0]) ** 2), 2 * x + 3 * np.sin(2 * x)


@pytest.mark.catalog("OPT-18")
def test_polyak_lojasiewicz() -> None:
    """x² + 3 sin²x is not convex, yet gradient descent converges linearly."""
    mu, L = 1 / 32, 8.0
    grid = np.linspace(-20, 20, 20_001)
    value = grid**2 + 3 * np.sin(grid) ** 2
    slope = 2 * grid + 3 * np.sin(2 * grid)
    assert (slope**2 / 2 >= mu * value - 1e-12).all()
    assert (2 + 6 * np.cos(2 * grid)).min() < 0  # not convex
    f = Objective(hilly, L=L, pl=mu, optimum=[0.0])
    for start in (-9.0, 2.0, 15.0):
        record = gradient_descent(f, [start], step=1 / L, max_iter=300)
        assert record.theorem.kind == "PL" and record.holds
        k = record.steps
        assert (record.values <= (1 - mu / L) ** k * record.values[0] + 1e-15).all()
        unknown = gradient_descent(replace(f, optimum=None), [start], step=1 / L)
        assert unknown.holds and "best iterate" in unknown.theorem.assumptions[-1]
    wrong = gradient_descent(replace(f, pl=6.0), [15.0], step=1 / L)
    assert not wrong.holds and wrong.bounds[0].violations.size


@pytest.mark.catalog("OPT-19")
@pytest.mark.parametrize("epsilon", [1e-2, 1e-5, 1e-9])
def test_stops_at_an_epsilon_stationary_point(epsilon) -> None:
    f = logistic(alpha=0.05)
    record = gradient_descent(f, np.ones(4), tol=epsilon, max_iter=10_000)
    assert record.status.value == "solved" and "gradient norm" in record.reason
    assert np.linalg.norm(f.evaluate(record.x)[1]) <= epsilon
    assert record.gradient_norms[-2] > epsilon


@pytest.mark.catalog("OPT-20")
@given(
    t=st.floats(0.05, 1.0),
    start=st.lists(st.floats(-4, 4), min_size=4, max_size=4),
)
def test_descent_lemma(t, start) -> None:
    functions = (logistic(), Objective(lambda x: _sum(hilly, x), L=8.0))
    for f in functions:
        step = t / f.L
        record = gradient_descent(f, start, step=step, max_iter=30, tol=0)
        drops = record.values[:-1] - record.values[1:]
        promised = step / 2 * record.gradient_norms[:-1] ** 2
        assert (drops >= promised - 1e-12 * record.values[0] - 1e-300).all()


def _sum(function, x):
    pairs = [function(np.array([v])) for v in x]
    return sum(p[0] for p in pairs), np.array([p[1][0] for p in pairs])


@pytest.mark.catalog("OPT-21")
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_convex_rate(share) -> None:
    flat, _ = quadratic(np.geomspace(1e-4, 1, 12))
    cases = ((logistic(), np.full(4, 5.0)), (replace(flat, m=None), np.full(12, 3.0)))
    for f, x0 in cases:
        t = share / f.L
        f = replace(f, m=None)
        record = gradient_descent(f, x0, step=t, max_iter=2000, tol=0)
        assert record.theorem.kind == "convex" and record.holds
        k = np.arange(1, 2001)
        gap = record.values[1:] - f.evaluate(np.asarray(f.optimum))[0]
        R2 = np.sum((x0 - f.optimum) ** 2)
        assert (gap <= R2 / (2 * t * k) * (1 + 1e-9)).all()
        np.testing.assert_allclose(record.bound[1:], R2 / (2 * t * k))
        tail = slice(100, 2000)
        seen = gap[tail] > 1e-13
        slope = np.polyfit(np.log(k[tail][seen]), np.log(gap[tail][seen]), 1)[0]
        assert slope <= -0.97
        # Without the minimiser the same holds against the best iterate.
        blind = gradient_descent(replace(f, optimum=None), x0, step=t, max_iter=300)
        assert blind.holds


@pytest.mark.catalog("OPT-22")
def test_strongly_convex_rate_is_tight_on_two_eigenvalues() -> None:
    m, L = 1.0, 20.0
    f = quadratic_objective(np.diag([m, L]), np.array([3.0, -2.0]))
    x0 = f.optimum + np.array([1.0, 1.0])
    record = gradient_descent(f, x0, max_iter=60, tol=0)
    assert record.step_sizes[0] == pytest.approx(2 / (m + L))
    distance, gap = record.bounds
    k, kappa = record.steps, L / m
    rate = (kappa - 1) / (kappa + 1)
    np.testing.assert_allclose(distance.bound, rate**k * np.sqrt(2), rtol=1e-9)
    np.testing.assert_allclose(distance.observed, distance.bound, rtol=1e-9)
    np.testing.assert_allclose(gap.bound, rate ** (2 * k) * L / 2 * 2, rtol=1e-9)
    assert record.holds
    # A constant that is wrong by one part in ten is noticed.
    for change in ({"m": 1.1}, {"m": 2.0}, {"L": 12.0}):
        wrong = gradient_descent(
            replace(f, **change), x0, step=1 / L, max_iter=200, tol=0
        )
        assert wrong.holds is False, change
        assert wrong.refutations or wrong.bounds[0].violations.size


@pytest.mark.catalog("OPT-22")
@given(
    t=st.floats(0.05, 1.95),
    spectrum=st.lists(st.floats(0.1, 10), min_size=2, max_size=5),
    seed=st.integers(0, 100),
)
def test_strongly_convex_rate_for_any_step(t, spectrum, seed) -> None:
    f, _ = quadratic(spectrum, seed)
    x0 = np.random.default_rng(seed).normal(scale=5, size=len(spectrum))
    record = gradient_descent(f, x0, step=t / f.L, max_iter=60)
    assert record.holds is not False
    blind = replace(f, optimum=None)
    record = gradient_descent(blind, x0, step=t / f.L, max_iter=60)
    assert record.holds is not False


def rosenbrock(x):
    a, b = x
    return float((1 - a) ** 2 + 5 * (b - a**2) ** 2), np.array(
        [-2 * (1 - a) - 20 * a * (b - a**2), 10 * (b - a**2)]
    )


def small_net(X, y, hidden=3):
    """Mean squared error of a tanh network, value and gradient by hand."""

    def f(theta):
        W, v = theta[: 2 * hidden].reshape(hidden, 2), theta[2 * hidden :]
        H = np.tanh(X @ W.T)
        e = H @ v - y
        dH = np.outer(e, v) * (1 - H**2)
        n = len(y)
        return float(e @ e / (2 * n)), np.concatenate(
            [(dH.T @ X / n).ravel(), H.T @ e / n]
        )

    return f


@pytest.mark.catalog("OPT-23")
def test_non_convex_rate() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 2))
    net = small_net(X, np.sign(X[:, 0] * X[:, 1]))
    cases = (
        (Objective(rosenbrock, L=90.0, minimum=0.0), np.array([-1.2, 1.0])),
        (Objective(net, L=8.0, minimum=0.0), rng.normal(size=9)),
    )
    for f, x0 in cases:
        t = 1 / f.L
        record = gradient_descent(f, x0, max_iter=3000, tol=0)
        assert record.refutations == ()  # L is right along the path
        assert record.theorem.kind == "non-convex" and record.holds
        k = record.steps
        best = np.minimum.accumulate(record.gradient_norms)
        limit = np.sqrt(2 * (record.values[0] - 0.0) / (t * (k + 1)))
        assert (best <= limit).all()
        np.testing.assert_allclose(record.bound, limit, rtol=1e-9)
        assert gradient_descent(replace(f, minimum=None), x0, max_iter=500).holds
        # L far too small: the path itself contradicts it.
        wrong = gradient_descent(replace(f, L=f.L / 60), x0, step=t, max_iter=500)
        assert wrong.refutations and wrong.holds is False


@pytest.mark.catalog("OPT-24")
def test_iterations_to_epsilon() -> None:
    """1/ε² non-convex, 1/ε convex, log(1/ε) strongly convex, by fitted slopes."""
    # Convex: equal weight on every scale of curvature makes the gap fall like 1/k.
    f = replace(quadratic_objective(np.diag(np.geomspace(1e-5, 1, 60)), np.zeros(60)))
    values = gradient_descent(f, np.ones(60), step=1.0, max_iter=10_000, tol=0).values
    gaps = np.geomspace(1e-1, 1e-3, 9)
    needed = [int(np.argmax(values <= eps)) for eps in gaps]
    assert -np.polyfit(np.log(gaps), np.log(needed), 1)[0] == pytest.approx(1, abs=0.1)
    # Strongly convex: each tenth of ε costs the same number of steps.
    g, _ = quadratic([1.0, 4.0, 30.0])
    record = gradient_descent(g, np.full(3, 9.0), max_iter=800, tol=0)
    gap = record.values - g.evaluate(g.optimum)[0]
    needed = [int(np.argmax(gap <= eps)) for eps in 10.0 ** -np.arange(1, 9)]
    assert np.ptp(np.diff(needed)[1:]) <= 2
    # Non-convex: a function whose gradient fades as slowly as theory allows.
    s = 0.02
    slow = Objective(
        lambda x: (
            float((1 + x[0] ** 2) ** (-s / 2)),
            -s * x * (1 + x[0] ** 2) ** (-s / 2 - 1),
        ),
        L=3 * s,
        minimum=0.0,
    )
    record = gradient_descent(slow, [1.0], step=1 / slow.L, max_iter=12_000, tol=0)
    assert record.holds and record.refutations == ()
    sizes = np.geomspace(1e-3, 3e-4, 8)
    needed = [int(np.argmax(record.gradient_norms <= eps)) for eps in sizes]
    assert -np.polyfit(np.log(sizes), np.log(needed), 1)[0] == pytest.approx(2, abs=0.1)
