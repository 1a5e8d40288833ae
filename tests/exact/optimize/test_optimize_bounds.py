"""Rates with momentum, and bounds with estimated or false constants."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certus.optimize import (
    Ball,
    InverseSqrt,
    Objective,
    Piecewise,
    RobbinsMonro,
    Static,
    Sublinear,
    adagrad,
    estimate_constants,
    gradient_descent,
    heavy_ball,
    least_squares_objective,
    minimize,
    momentum,
    nesterov,
    quadratic_objective,
    sign_descent,
    subgradient_descent,
)
from helpers.optimising import quadratic
from helpers.optimising import solved_logistic as logistic


def hilly(x):
    return float(x[0] ** 2 + 3 * np.sin(x[0]) ** 2), 2 * x + 3 * np.sin(2 * x)


@pytest.mark.catalog("OPT-31")
def test_piecewise_schedule() -> None:
    schedule = Piecewise(0.5, (10, 30))
    for k, value in ((0, 0.5), (9, 0.5), (10, 0.05), (29, 0.05), (30, 0.005)):
        assert schedule(k) == pytest.approx(value, rel=1e-15)
    f = quadratic_objective(np.eye(1), np.zeros(1))
    record = gradient_descent(f, [1.0], step=schedule, max_iter=40, tol=0)
    np.testing.assert_allclose(record.step_sizes, [schedule(k) for k in range(40)])
    np.testing.assert_allclose(record.x[0], np.prod(1 - record.step_sizes))


@pytest.mark.catalog("OPT-32", "OPT-33", "OPT-30")
def test_decaying_schedules() -> None:
    for k in (0, 1, 7, 100):
        assert Sublinear(0.3, 0.5)(k) == pytest.approx(0.3 / (1 + 0.5 * k), rel=1e-15)
        assert InverseSqrt(0.3, 0.5)(k) == pytest.approx(
            0.3 / np.sqrt(1 + 0.5 * k), rel=1e-15
        )
        assert RobbinsMonro(0.3)(k) == pytest.approx(0.3 / (k + 1), rel=1e-15)
    late = 10**9
    assert Sublinear(0.3, 0.5)(late) * late == pytest.approx(0.3 / 0.5, rel=1e-6)
    assert InverseSqrt(0.3, 0.5)(late) * np.sqrt(late) == pytest.approx(
        0.3 / np.sqrt(0.5), rel=1e-6
    )
    steps = np.array([RobbinsMonro(1.0)(k) for k in range(10_000)])
    assert steps.sum() > 9 and np.sum(steps**2) < np.pi**2 / 6


@pytest.mark.catalog("OPT-34")
@given(share=st.floats(0.01, 3.0).filter(lambda s: abs(s - 1) > 0.02))
def test_diverges_exactly_beyond_two_over_L(share) -> None:
    f, _ = quadratic([1.0, 2.0, 7.0])
    record = gradient_descent(f, np.full(3, 4.0), step=share * 2 / f.L, max_iter=60)
    growing = record.gradient_norms[-1] > record.gradient_norms[0]
    if share < 1:
        assert record.status.value != "diverged" and record.holds
    else:
        late = record.values[-5:]
        assert (np.diff(late) > 0).all() or growing
        assert "2/L" in record.refused


@pytest.mark.catalog("OPT-39")
def test_heavy_ball_rate() -> None:
    kappa = 100.0
    spectrum = np.geomspace(1, kappa, 12)
    f, _ = quadratic(spectrum)
    rng = np.random.default_rng(6)
    record = heavy_ball(f, f.optimum + rng.normal(size=12), max_iter=400, tol=0)
    eta = 4 / (np.sqrt(kappa) + 1) ** 2
    assert record.step_sizes[0] == pytest.approx(eta)
    assert record.holds and record.theorem.kind == "strongly convex"
    rate = (np.sqrt(kappa) - 1) / (np.sqrt(kappa) + 1)
    error = np.linalg.norm(record.iterates - f.optimum, axis=1)
    measured = (error[100] / error[0]) ** (1 / 100)
    assert rate < measured < 0.86  # a factor linear in k on top of 0.818^k
    later = (error[140] / error[60]) ** (1 / 80)
    assert later == pytest.approx(rate, abs=0.02)
    # The iteration by hand.
    beta, x, before = rate**2, record.iterates[0], record.iterates[0]
    for k in range(20):
        g = f.evaluate(x)[1]
        x, before = x - eta * g + beta * (x - before), x
        np.testing.assert_allclose(record.iterates[k + 1], x, atol=1e-12)
    wrong = heavy_ball(replace(f, m=2.0), record.iterates[0], max_iter=400, tol=0)
    assert wrong.holds is False


def test_heavy_ball_on_convex_functions() -> None:
    f = logistic()
    record = heavy_ball(replace(f, m=None), np.full(4, 4.0), max_iter=2000)
    assert record.theorem.kind == "convex" and record.holds
    far = heavy_ball(replace(f, m=None), np.full(4, 4.0), step=1.0, beta=0.9)
    assert "exceeds" in far.refused


@pytest.mark.catalog("OPT-40")
def test_nesterov_rate_and_speed() -> None:
    kappa = 400.0
    f, _ = quadratic(np.geomspace(1, kappa, 15))
    x0 = f.optimum + np.random.default_rng(7).normal(size=15)
    record = nesterov(f, x0, max_iter=5000, tol=1e-8)
    assert record.holds and record.theorem.kind == "strongly convex"
    k, R2 = record.steps, np.sum((x0 - f.optimum) ** 2)
    gap = record.values - f.evaluate(f.optimum)[0]
    notes = f.L * ((np.sqrt(kappa) - 1) / np.sqrt(kappa)) ** k * R2
    assert (gap <= notes + 1e-12 * abs(record.values[0])).all()
    assert (record.bound <= notes * (1 + 1e-9)).all()
    slow = gradient_descent(f, x0, step=1 / f.L, max_iter=100_000, tol=1e-8)
    ratio = slow.n_iter / record.n_iter
    assert np.sqrt(kappa) / 4 < ratio < np.sqrt(kappa) * 4
    wrong = nesterov(replace(f, m=60.0), x0, max_iter=500, tol=1e-8)
    assert wrong.holds is False


@pytest.mark.catalog("OPT-40")
def test_nesterov_without_strong_convexity() -> None:
    f, _ = quadratic(np.geomspace(1e-6, 1, 30))
    f = replace(f, m=None)
    x0 = f.optimum + np.ones(30)
    record = nesterov(f, x0, max_iter=1000, tol=0)
    assert record.theorem.kind == "convex" and record.holds
    plain = gradient_descent(f, x0, max_iter=1000, tol=0)
    lowest = f.evaluate(f.optimum)[0]
    assert record.value - lowest < 0.1 * (plain.value - lowest)
    assert nesterov(replace(f, optimum=None), x0, max_iter=300).holds
    assert "exceeds 1/L" in nesterov(f, x0, step=2.0, max_iter=5).refused


@pytest.mark.catalog("OPT-59")
def test_standardised_features_need_fewer_steps() -> None:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(100, 3)) * [1.0, 4.0, 0.5] + [0.0, 2.0, 1.0]
    y = X @ [1.0, 0.3, -4.0] + rng.normal(size=100)
    add = lambda A: np.column_stack([A, np.ones(100)])  # noqa: E731
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    raw, scaled = (least_squares_objective(add(A), y) for A in (X, Z))
    assert scaled.L / scaled.m < 0.05 * raw.L / raw.m
    slow = gradient_descent(raw, np.zeros(4), max_iter=20_000, tol=1e-6)
    quick = gradient_descent(scaled, np.zeros(4), max_iter=20_000, tol=1e-6)
    assert quick.n_iter < slow.n_iter / 20
    np.testing.assert_allclose(add(X) @ slow.x, add(Z) @ quick.x, atol=1e-4)


def test_estimated_constants_are_reported_as_estimated() -> None:
    f, _ = quadratic([1.0, 3.0, 10.0])
    bare = Objective(f.function, m="estimate")
    record = gradient_descent(bare, np.ones(3))
    assert {k: v.source for k, v in record.constants.items()} == {
        "L": "estimated",
        "m": "estimated",
    }
    assert record.constants["L"].value == pytest.approx(10, rel=1e-6)
    assert "estimated" in record.theorem.assumptions[0]
    assert record.holds
    large, _ = quadratic(np.linspace(1, 50, 80))
    L, m = estimate_constants(large.function, np.ones(80))
    assert pytest.approx(50, rel=1e-3) == L and pytest.approx(1, rel=0.05) == m


def test_false_convexity_is_refuted() -> None:
    f = Objective(hilly, L=8.0, convex=True)
    record = gradient_descent(f, [4.0], step=0.02, max_iter=200)
    assert any("not convex" in line for line in record.refutations)
    assert record.holds is False


@pytest.mark.parametrize("method", ["adagrad", "subgradient", "sign", "momentum"])
def test_other_theorems_hold_with_and_without_the_minimiser(method) -> None:
    f = logistic()
    options = {
        "adagrad": {"step": 0.5},
        "subgradient": {"step": InverseSqrt(1.0)},
        "sign": {"step": 0.01},
        "momentum": {},
    }[method]
    record = minimize(f, np.full(4, 3.0), method=method, max_iter=800, **options)
    assert record.bounds and record.holds
    blind = replace(f, optimum=None)
    record = minimize(blind, np.full(4, 3.0), method=method, max_iter=800, **options)
    assert record.holds is not False


def test_every_theorem_gives_a_falling_bound() -> None:
    """Each theorem's bound falls; an inflated observation would exceed it."""
    f = replace(logistic(), m=None)
    x0 = np.full(4, 3.0)
    runs = (
        gradient_descent(f, x0),
        nesterov(f, x0),
        adagrad(f, x0, step=0.5),
        subgradient_descent(f, x0, step=InverseSqrt(1.0)),
        heavy_ball(f, x0),
        sign_descent(f, x0, step=InverseSqrt(0.1)),
    )
    for record in runs:
        bound = record.bounds[0]
        assert bound.bound[-1] < 0.5 * bound.bound[1]
        forged = replace(bound, observed=bound.observed + 2 * bound.bound[1])
        assert forged.holds is False


def test_projected_subgradient_stays_feasible() -> None:
    f = Objective(lambda x: (float(np.abs(x - 3).sum()), np.sign(x - 3)), convex=True)
    record = subgradient_descent(
        f, [0.0, 0.0], step=InverseSqrt(0.3), constraint=Ball(1.0), max_iter=3000
    )
    assert (np.linalg.norm(record.iterates, axis=1) <= 1 + 1e-12).all()
    np.testing.assert_allclose(record.x, np.sqrt([0.5, 0.5]), atol=1e-2)
    assert record.holds


def test_momentum_is_a_heavy_ball_to_the_theorem() -> None:
    f = replace(logistic(), m=None)
    record = momentum(f, np.full(4, 3.0), max_iter=500)
    assert record.theorem.kind == "convex" and record.holds
    static = momentum(f, np.full(4, 3.0), max_iter=5000, tol=0, stop=Static(1e-12))
    assert "stopped falling" in static.reason


def test_backtracking_finds_its_own_steps() -> None:
    """From a flat start the curvature there says little about the way down."""
    known = logistic()
    for facts, kind in (
        ({}, "non-convex"),
        ({"convex": True}, "convex"),
        ({"convex": True, "optimum": known.optimum}, "convex"),
    ):
        f = Objective(known.function, n_terms=known.n_terms, **facts)
        record = gradient_descent(f, np.full(4, 9.0), max_iter=3000)
        assert record.status.value == "solved" and record.theorem.kind == kind
        assert record.holds and record.refutations == ()
        assert record.constants["L"].source == "estimated"
        np.testing.assert_allclose(record.x, known.optimum, atol=1e-4)
        drops = record.values[:-1] - record.values[1:]
        promised = record.step_sizes / 2 * record.gradient_norms[:-1] ** 2
        assert (drops >= promised - 1e-13).all()
    ridge = replace(logistic(alpha=0.2), L=None)
    strong = gradient_descent(ridge, np.full(4, 9.0), max_iter=3000)
    assert strong.theorem.kind == "strongly convex" and strong.holds
    wrong = gradient_descent(replace(ridge, m=2.0), np.full(4, 9.0), max_iter=3000)
    assert wrong.holds is False
    hills = gradient_descent(Objective(hilly, pl=1 / 32), [15.0])
    assert hills.theorem.kind == "PL" and hills.holds


def test_a_false_minimiser_is_refuted() -> None:
    """The convex theorem holds for any point of comparison: only values can tell."""
    f = logistic()
    false = np.asarray(f.optimum) + 1.0
    for facts in ({"optimum": false}, {"optimum": None, "minimum": 10.0}):
        record = gradient_descent(replace(f, **facts), np.full(4, 9.0))
        assert record.holds is False
        assert any("iterate" in line for line in record.refutations)
    assert gradient_descent(f, np.full(4, 9.0)).refutations == ()
