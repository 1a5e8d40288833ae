"""Bounds in expectation, by repetition on problems with known constants."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from certus.optimize import (
    InverseSqrt,
    Objective,
    RobbinsMonro,
    average_bounds,
    gradient_descent,
    least_squares_objective,
    stochastic_gradient_descent,
    svrg,
)


def regression(n=30, d=3, seed=0, alpha=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return least_squares_objective(X, X @ np.ones(d) + rng.normal(size=n), alpha)


def repeated(f, x0, repeats, **options):
    return [
        stochastic_gradient_descent(f, x0, random_state=seed, **options)
        for seed in range(repeats)
    ]


@pytest.mark.catalog("OPT-29", "OPT-28")
@pytest.mark.parametrize(
    ("batch_size", "with_replacement"), [(1, True), (5, True), (5, False)]
)
def test_strongly_convex_sgd_on_average(batch_size, with_replacement) -> None:
    f = regression()
    options = {
        "batch_size": batch_size,
        "replace": with_replacement,
        "max_iter": 150,
        "every": 10,
    }
    records = repeated(f, np.full(3, 4.0), 60, step=0.5 / f.L_terms, **options)
    mean = average_bounds(records)
    assert mean.holds
    assert mean.bound[-1] < 0.2 * mean.bound[0]
    # Four times the strong convexity there is: noticed.
    wrong = replace(f, m=4 * f.m, L=None)
    records = repeated(wrong, np.full(3, 4.0), 60, step=0.05 / f.L_terms, **options)
    assert average_bounds(records).holds is False


@pytest.mark.catalog("OPT-51", "OPT-35")
def test_convex_sgd_on_average() -> None:
    """Absolute error, a kinked loss: the average of the iterates obeys the bound."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(25, 2))
    y = X @ [1.0, -1.0] + rng.laplace(size=25)

    def function(w, rows):
        e = X[rows] @ w - y[rows]
        return float(np.abs(e).mean()), X[rows].T @ np.sign(e) / len(e)

    # A minimiser by linear programming: mean t with t ≥ ±(Xw − y).
    eye, cost = np.eye(25), np.r_[np.zeros(2), np.full(25, 1 / 25)]
    best = linprog(
        cost,
        np.block([[X, -eye], [-X, -eye]]),
        np.r_[y, -y],
        bounds=[(None, None)] * 2 + [(0, None)] * 25,
    )
    f = Objective(function, convex=True, n_terms=25, optimum=best.x[:2])
    records = repeated(
        f, [3.0, 3.0], 30, step=InverseSqrt(0.5), average=True, max_iter=500, every=50
    )
    mean = average_bounds(records)
    assert mean.holds and mean.bound[-1] < mean.bound[1]


@pytest.mark.catalog("OPT-35")
def test_averaging_beats_the_last_iterate() -> None:
    f = regression()
    records = repeated(
        f, f.optimum, 30, step=0.3 / f.L_terms, average=True, max_iter=1000, every=1000
    )
    last = np.mean([np.sum((r.iterates[-1] - f.optimum) ** 2) for r in records])
    averaged = np.mean([np.sum((r.x - f.optimum) ** 2) for r in records])
    assert averaged < 0.2 * last


@pytest.mark.catalog("OPT-36")
def test_svrg_on_average() -> None:
    f = regression(alpha=0.5)
    records = [
        svrg(f, np.full(3, 4.0), epoch_length=800, random_state=s, max_iter=2, tol=0)
        for s in range(12)
    ]
    assert average_bounds(records).holds


@pytest.mark.catalog("OPT-30")
def test_robbins_monro_against_constant_steps() -> None:
    f = regression()
    step = RobbinsMonro(1 / f.m, k0=2 * f.L_terms / f.m)
    options = {"max_iter": 1600, "every": 200}
    decaying = average_bounds(repeated(f, f.optimum + 1.0, 20, step=step, **options))
    assert decaying.holds
    scaled = decaying.observed * decaying.steps
    assert scaled[-1] < 3 * scaled[1] + 1e-9  # E‖x − x*‖²·k stays bounded
    floors = []
    for eta in (0.4, 0.2):
        mean = average_bounds(
            repeated(f, f.optimum, 30, step=eta / f.L_terms, **options)
        )
        assert mean.holds
        floors.append(mean.observed[3:].mean())
    assert floors[0] / floors[1] == pytest.approx(2, rel=0.35)


def noisy_corners(d=400, terms=256):
    """mean_j abs(x_j) plus mean-zero linear noise: each coordinate is a chain."""
    noise = np.random.default_rng(2).normal(size=(terms, d))
    noise -= noise.mean(axis=0)

    def function(x, rows):
        z = noise[rows].mean(axis=0)
        # Gradients are per coordinate, so that d scales nothing.
        return float(np.abs(x).mean() + z @ x / d), np.sign(x) + z

    return Objective(function, n_terms=terms)


@pytest.mark.catalog("OPT-24")
def test_stochastic_rates() -> None:
    """Convex with t ∝ 1/√k: 1/ε² steps; strongly convex with t ∝ 1/k: 1/ε."""
    corners = noisy_corners()
    record = stochastic_gradient_descent(
        corners,
        np.zeros(400),
        step=InverseSqrt(0.5),
        max_iter=6000,
        every=100,
        random_state=0,
    )
    gap = np.abs(record.iterates).mean(axis=1)
    late = record.steps >= 300
    slope = np.polyfit(np.log(record.steps[late]), np.log(gap[late]), 1)[0]
    assert slope == pytest.approx(-1 / 2, abs=0.1)

    noise = np.random.default_rng(3).normal(size=(256, 400))
    noise -= noise.mean(axis=0)
    bowl = Objective(
        lambda x, rows: (
            float(x @ x / 800),
            x + noise[rows].mean(axis=0),
        ),
        n_terms=256,
    )
    record = stochastic_gradient_descent(
        bowl,
        np.zeros(400),
        step=RobbinsMonro(1.0),
        max_iter=6000,
        every=100,
        random_state=0,
    )
    gap = (record.iterates**2).mean(axis=1) / 2
    late = record.steps >= 300
    slope = np.polyfit(np.log(record.steps[late]), np.log(gap[late]), 1)[0]
    assert slope == pytest.approx(-1, abs=0.15)


@pytest.mark.catalog("OPT-24")
def test_sgd_wins_beyond_a_crossover() -> None:
    """Terms looked at until E gap ≤ ε: gradient descent pays n per step, SGD one."""

    def steps(n, epsilon):
        # The same 16 rows again and again: the problem does not change with n.
        rng = np.random.default_rng(4)
        X = rng.normal(size=(16, 3))
        y = X @ np.ones(3) + rng.normal(size=16)
        copies = n // 16
        f = least_squares_objective(np.tile(X, (copies, 1)), np.tile(y, copies))
        lowest = f.evaluate(f.optimum)[0]
        x0 = f.optimum + 2.0
        plain = gradient_descent(f, x0, max_iter=200, tol=0).values - lowest
        schedule = RobbinsMonro(1 / f.m, k0=2 * f.L_terms / f.m)
        runs = [
            stochastic_gradient_descent(
                f, x0, step=schedule, max_iter=1500, every=5, random_state=seed
            ).values
            - lowest
            for seed in range(4)
        ]
        single = np.mean(runs, axis=0)
        assert plain.min() <= epsilon and single.min() <= epsilon
        return int(np.argmax(plain <= epsilon)), 5 * int(np.argmax(single <= epsilon))

    crossover = []
    for epsilon in (5e-1, 5e-2):
        whole, single = steps(64, epsilon)
        crossover.append(single / whole)  # n beyond which SGD looks at fewer terms
        for n in (16, 1024):
            whole, single = steps(n, epsilon)
            assert (single < n * whole) == (n > crossover[-1])
    assert crossover[1] > 1.5 * crossover[0]  # it moves out as ε shrinks
