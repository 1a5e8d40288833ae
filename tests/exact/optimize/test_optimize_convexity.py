"""Convexity: its characterisations, what follows for minima, subgradients, norms."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from certus.optimize import (
    HalfSpace,
    Intersection,
    Objective,
    chord_violation,
    gradient_descent,
    least_squares_objective,
    linear_maximizer,
    logistic_objective,
    minimize,
    newton_method,
    second_order_test,
    tangent_violation,
)


def tukey(e, c=1.0):
    return c**2 / 6 * (1 - np.clip(1 - (e / c) ** 2, 0, None) ** 3)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    return X, X @ [1.0, -2.0, 0.5, 0.0] + rng.normal(size=30)


def losses(X, y):
    labels = np.where(y > 0, 1.0, -1.0)
    return {
        "mse": lambda w: float(np.mean((y - X @ w) ** 2)),
        "mae": lambda w: float(np.mean(np.abs(y - X @ w))),
        "logistic": lambda w: float(np.mean(np.logaddexp(0, -labels * (X @ w)))),
        "hinge": lambda w: float(np.mean(np.maximum(0, 1 - labels * (X @ w)))),
    }


@pytest.mark.catalog("OPT-01")
@pytest.mark.parametrize("name", ["mse", "mae", "logistic", "hinge"])
def test_chords_lie_above_convex_losses(data, name) -> None:
    points = np.random.default_rng(1).normal(scale=3, size=(60, 4))
    assert chord_violation(losses(*data)[name], points) is None


@pytest.mark.catalog("OPT-01")
def test_chords_of_tukey_and_sine_are_crossed_with_a_witness(data) -> None:
    X, y = data
    points = np.random.default_rng(1).normal(scale=3, size=(60, 4))
    robust = lambda w: float(np.mean(tukey(y - X @ w)))  # noqa: E731
    for value, where in ((robust, points), (lambda x: np.sin(x[0]), points[:, :1])):
        found = chord_violation(value, where)
        assert found is not None
        u, v, middle = found.points
        share = np.linalg.norm(middle - v) / np.linalg.norm(u - v)
        assert value(middle) > share * value(u) + (1 - share) * value(v)


@pytest.mark.catalog("OPT-02")
def test_strict_convexity_gives_at_most_one_minimum(data) -> None:
    """exp is strictly convex and has none; full-rank least squares has one."""
    grid = np.linspace(-4, 4, 40)
    assert chord_violation(lambda x: float(np.exp(x[0])), grid) is None
    for u, v in pairwise(grid):  # strict: the middle is below the chord
        assert np.exp((u + v) / 2) < (np.exp(u) + np.exp(v)) / 2
    f = Objective(lambda x: (np.exp(x[0]), np.exp(x)), convex=True)
    runs = [
        gradient_descent(f, [0.0], step=0.5, max_iter=n, tol=0) for n in (10, 100, 1000)
    ]
    assert runs[0].x > runs[1].x > runs[2].x  # it leaves for minus infinity
    rng = np.random.default_rng(2)
    ls = least_squares_objective(*data)
    ends = [gradient_descent(ls, rng.normal(scale=10, size=4)).x for _ in range(20)]
    np.testing.assert_allclose(ends, np.tile(ls.optimum, (20, 1)), atol=1e-7)


@pytest.mark.catalog("OPT-03")
def test_tangents_lie_below(data) -> None:
    X, y = data
    f = logistic_objective(X, np.where(y > 0, 1, -1), alpha=0.1)
    rng = np.random.default_rng(3)
    points = rng.normal(scale=3, size=(40, 4))
    for x in points[:10]:
        value, slope = f.evaluate(x)
        assert tangent_violation(lambda u: f.evaluate(u)[0], x, slope, points) is None
        # Any other slope is refuted close by.
        near = x + rng.normal(scale=1e-2, size=(40, 4))
        wrong = slope + 0.5
        assert tangent_violation(lambda u: f.evaluate(u)[0], x, wrong, near)
        assert value > 0
    c = rng.normal(size=4)
    for x, u in pairwise(points):  # equality where f is linear
        assert c @ u == pytest.approx(c @ x + c @ (u - x), abs=1e-12)
    assert tangent_violation(lambda u: -float(u @ u), points[0], -2 * points[0], points)


@pytest.mark.catalog("OPT-04")
def test_hessian_of_the_logistic_loss_is_positive_semidefinite(data) -> None:
    X, y = data
    f = logistic_objective(X, np.where(y > 0, 1, -1))
    assert f.hessian is not None
    for w in np.random.default_rng(4).normal(scale=3, size=(50, 4)):
        H = f.hessian(w)
        assert np.linalg.eigvalsh(H).min() >= -1e-10
        numeric = approx_fprime(w, lambda v: f.evaluate(v)[1], 1e-6)
        np.testing.assert_allclose(H, numeric, atol=1e-5)
    # The test can fail: the Hessian of a Tukey loss is indefinite somewhere.
    curvature = [tukey(e + 1e-3) - 2 * tukey(e) + tukey(e - 1e-3) for e in (0.0, 0.8)]
    assert curvature[0] > 0 > curvature[1]


@pytest.mark.catalog("OPT-05")
def test_sums_compositions_and_intersections_stay_convex(data) -> None:
    family = losses(*data)
    rng = np.random.default_rng(5)
    A, b = rng.normal(size=(4, 3)), rng.normal(size=4)
    points = rng.normal(scale=2, size=(40, 3))
    for first in family.values():
        assert chord_violation(lambda v, f=first: f(A @ v + b), points) is None
        for second in family.values():
            total = lambda w, f=first, g=second: 2 * f(w) + g(w)  # noqa: E731
            assert chord_violation(total, rng.normal(size=(15, 4))) is None
    for _ in range(10):
        spaces = tuple(HalfSpace(rng.normal(size=3), rng.random()) for _ in range(5))
        common = Intersection(spaces)
        inside = [common.project(rng.normal(scale=3, size=3)) for _ in range(8)]
        assert all(common.contains(x, 1e-8) for x in inside)
        for u, v in pairwise(inside):
            assert common.contains((u + v) / 2, 1e-8)


@pytest.mark.catalog("OPT-06")
def test_every_start_reaches_the_same_value(data) -> None:
    X, y = data
    f = logistic_objective(X, np.where(y > 0, 1, -1), alpha=0.1)
    starts = np.random.default_rng(6).normal(scale=10, size=(50, 4))
    values = [gradient_descent(f, x0, max_iter=5000).value for x0 in starts]
    assert max(values) - min(values) < 1e-8
    # Not so where f is not convex.
    bumpy = Objective(
        lambda x: (float(x[0] ** 2 / 50 + np.sin(x[0])), x / 25 + np.cos(x)), L=1.04
    )
    ends = [gradient_descent(bumpy, [s]).value for s in (-8.0, 0.0, 8.0)]
    assert max(ends) - min(ends) > 0.1


@pytest.mark.catalog("OPT-07")
@pytest.mark.parametrize("method", ["gd", "nesterov", "newton", "heavy_ball"])
def test_reported_optima_are_stationary(data, method) -> None:
    X, y = data
    for f in (
        least_squares_objective(X, y),
        logistic_objective(X, np.where(y > 0, 1, -1), alpha=0.1),
    ):
        record = minimize(f, np.ones(4), method=method, max_iter=20_000)
        assert record.status.value == "solved"
        assert np.linalg.norm(f.evaluate(record.x)[1]) <= 1e-8
        # Sufficient, as f is convex: nothing nearby or far away is lower.
        others = record.x + np.random.default_rng(7).normal(size=(200, 4)) * 3
        assert all(f.evaluate(u)[0] >= record.value for u in others)


@pytest.mark.catalog("OPT-08")
def test_second_order_test() -> None:
    assert second_order_test(0.0, 2.0) == "minimum"  # x²
    assert second_order_test([0, 0], np.diag([2.0, -2.0])) == "saddle"  # x² − y²
    assert second_order_test(0.0, 0.0) == "undecided"  # x³ and x⁴ at 0
    assert second_order_test([0, 0], np.diag([2.0, 0.0])) == "undecided"
    assert second_order_test(0.0, -1e-12) == "maximum"  # scale does not matter
    assert second_order_test([0, 0], np.diag([-1.0, -2.0])) == "maximum"
    assert second_order_test(1.0, 2.0) == "not stationary"
    with pytest.raises(ValueError, match="shape"):
        second_order_test([0, 0], np.eye(3))


@pytest.mark.catalog("OPT-49")
def test_subgradients_fill_an_interval_at_a_kink() -> None:
    grid = np.linspace(-3, 3, 61)
    kinks = {  # function, where, lowest and highest slope
        "abs": (lambda x: abs(x[0]), 0.0, -1.0, 1.0),
        "hinge": (lambda x: max(0.0, 1 - x[0]), 1.0, -1.0, 0.0),
        "relu": (lambda x: max(0.0, x[0]), 0.0, 0.0, 1.0),
    }
    for value, at, low, high in kinks.values():
        for slope in np.linspace(low, high, 11):
            assert tangent_violation(value, [at], [slope], grid) is None
        for slope in (low - 0.01, high + 0.01):
            assert tangent_violation(value, [at], [slope], grid) is not None
    rng = np.random.default_rng(8)
    x, points = np.array([0.0, 2.0, 0.0]), rng.normal(size=(300, 3))
    norm = lambda u: float(np.abs(u).sum())  # noqa: E731
    for _ in range(30):
        g = np.array([rng.uniform(-1, 1), 1.0, rng.uniform(-1, 1)])
        assert tangent_violation(norm, x, g, points) is None
    for wrong in ([1.1, 1.0, 0.0], [0.0, 0.9, 0.0], [0.0, 1.0, -1.2]):
        axes = np.vstack([x + np.eye(3), x - np.eye(3)])
        assert tangent_violation(norm, x, wrong, axes) is not None


@pytest.mark.catalog("OPT-50")
def test_subgradient_of_a_composition() -> None:
    """h(q(w)), h = abs: the chain rule with any slope of h at its kink."""
    rng = np.random.default_rng(9)
    a, b = rng.normal(size=3), 0.7
    affine = lambda w: float(abs(a @ w - b))  # noqa: E731
    curved = lambda w: float(abs(np.sin(a @ w)))  # noqa: E731
    for w in rng.normal(size=(20, 3)):
        g = np.sign(np.sin(a @ w)) * np.cos(a @ w) * a
        np.testing.assert_allclose(g, approx_fprime(w, curved, 1e-7), atol=1e-5)
        g = np.sign(a @ w - b) * a
        np.testing.assert_allclose(g, approx_fprime(w, affine, 1e-7), atol=1e-5)
    kink = a * b / (a @ a)
    points = rng.normal(scale=2, size=(200, 3))
    for slope in np.linspace(-1, 1, 9):
        assert tangent_violation(affine, kink, slope * a, points) is None
    assert tangent_violation(affine, kink, 1.1 * a, points) is not None
    # The global inequality needs an affine q: abs(sin) has a kink it fails at.
    wide = np.linspace(-10, 10, 400)
    assert tangent_violation(lambda x: abs(np.sin(x[0])), [0.0], [0.5], wide)


@pytest.mark.catalog("OPT-58")
@pytest.mark.parametrize("p", [1, 1.5, 2, 3, 10, np.inf])
def test_linear_maximiser_reaches_the_dual_norm(p) -> None:
    rng = np.random.default_rng(10)
    q = {1: np.inf, np.inf: 1}.get(p, p / (p - 1) if p not in (1, np.inf) else 0)
    for z in rng.normal(size=(20, 5)):
        v = linear_maximizer(z, p)
        assert np.linalg.norm(v, p) == pytest.approx(1, abs=1e-12)
        assert v @ z == pytest.approx(np.linalg.norm(z, q), rel=1e-12)
        others = rng.normal(size=(200, 5))
        others /= np.linalg.norm(others, p, axis=1)[:, None]
        assert (others @ z <= v @ z + 1e-12).all()
    z = np.array([1.0, -3.0, 2.0])
    if p == 2:
        np.testing.assert_allclose(linear_maximizer(z, p), z / np.linalg.norm(z))
    if p == np.inf:
        np.testing.assert_array_equal(linear_maximizer(z, p), np.sign(z))
    if p == 1:
        np.testing.assert_array_equal(linear_maximizer(z, p), [0, -1, 0])
    np.testing.assert_array_equal(linear_maximizer(np.zeros(3), p), np.zeros(3))


@pytest.mark.catalog("OPT-08")
def test_newton_needs_the_second_order_condition() -> None:
    f = Objective(
        lambda x: (x[0] ** 2 - x[1] ** 2, np.array([2 * x[0], -2 * x[1]])),
        hessian=lambda x: np.diag([2.0, -2.0]),
    )
    record = newton_method(f, [1.0, 1e-3], max_iter=3)
    assert record.extra["lifted"] > 0  # it descends instead of jumping to the saddle
    assert record.value < f.evaluate(np.array([1.0, 1e-3]))[0]
