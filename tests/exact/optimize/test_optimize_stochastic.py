"""Stochastic methods: unbiasedness, noise, batches, exact second moments, SVRG."""

import time
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certus.optimize import (
    Objective,
    RobbinsMonro,
    average_bounds,
    gradient_descent,
    gradient_noise,
    least_squares_objective,
    logistic_objective,
    polyak_average,
    sign_descent,
    stochastic_gradient_descent,
    svrg,
    svrg_gradient,
)


def regression(n=40, d=3, seed=0, alpha=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return least_squares_objective(X, X @ np.ones(d) + rng.normal(size=n), alpha)


def classification(n=40, alpha=0.1):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)
    return logistic_objective(X, y, alpha)


def per_term(f, x):
    return np.array([f.evaluate(x, np.array([i]))[1] for i in range(f.n_terms)])


@pytest.mark.catalog("OPT-25")
def test_sgd_converges_with_decaying_steps() -> None:
    f = regression()
    step = RobbinsMonro(2 / f.m, k0=4 * f.L_terms / f.m)
    record = stochastic_gradient_descent(
        f, np.zeros(3), step=step, max_iter=20_000, every=2000, random_state=0
    )
    error = np.linalg.norm(record.iterates - f.optimum, axis=1)
    assert error[-1] < 0.05 and error[-1] < 0.1 * error[0]
    assert record.theorem.kind == "stochastic" and record.holds is None
    assert "one run cannot tell" in str(record)


@pytest.mark.catalog("OPT-25")
def test_cost_of_a_step_does_not_depend_on_rows() -> None:
    def seconds(n):
        f = replace(regression(n, 5), optimum=None)
        best = np.inf
        for _ in range(3):
            start = time.perf_counter()
            stochastic_gradient_descent(
                f, np.zeros(5), step=1e-3, max_iter=3000, every=3000, random_state=0
            )
            best = min(best, time.perf_counter() - start)
        return best

    assert seconds(50_000) < 4 * seconds(500)


@pytest.mark.catalog("OPT-25")
def test_sgd_by_hand() -> None:
    f = classification()
    record = stochastic_gradient_descent(
        f, np.zeros(3), step=0.1, max_iter=30, every=1, random_state=5
    )
    rng, x = np.random.default_rng(5), np.zeros(3)
    for k in range(30):
        n = rng.integers(40, size=1)
        x = x - 0.1 * f.evaluate(x, n)[1]
        np.testing.assert_allclose(record.iterates[k + 1], x, atol=1e-14)
    again = stochastic_gradient_descent(
        f, np.zeros(3), step=0.1, max_iter=30, every=1, random_state=5
    )
    np.testing.assert_array_equal(record.iterates, again.iterates)


@pytest.mark.catalog("OPT-26")
@given(seed=st.integers(0, 1000))
def test_stochastic_gradients_are_unbiased(seed) -> None:
    x = np.random.default_rng(seed).normal(scale=3, size=3)
    for f in (regression(), classification()):
        terms = per_term(f, x)
        np.testing.assert_allclose(terms.mean(axis=0), f.evaluate(x)[1], atol=1e-12)
        # Of the sum, as once printed, a single term is no unbiased estimate.
        assert not np.allclose(terms.mean(axis=0), terms.sum(axis=0))


@pytest.mark.catalog("OPT-27")
def test_gradient_noise_is_the_trace_of_the_covariance() -> None:
    x = np.array([0.5, -1.0, 2.0])
    for f in (regression(), classification()):
        covariance = np.cov(per_term(f, x).T, bias=True)
        assert gradient_noise(f, x) == pytest.approx(np.trace(covariance), rel=1e-12)
    with pytest.raises(ValueError, match="n_terms"):
        gradient_noise(lambda x: (x @ x, 2 * x), x)


@pytest.mark.catalog("OPT-28")
def test_full_batch_is_gradient_descent_to_the_bit() -> None:
    f = classification()
    batch = stochastic_gradient_descent(
        f, np.ones(3), step=0.3, batch_size=40, replace=False, max_iter=50, every=1
    )
    full = gradient_descent(f, np.ones(3), step=0.3, max_iter=50, tol=0)
    np.testing.assert_array_equal(batch.iterates, full.iterates)


@pytest.mark.catalog("OPT-28")
@pytest.mark.parametrize("with_replacement", [True, False])
def test_variance_of_a_batch(with_replacement) -> None:
    """Exactly, by listing every batch of a small sum."""
    f = regression(n=6, d=2)
    x, n, r = np.array([0.3, -1.0]), 6, 3
    g, V = f.evaluate(x)[1], gradient_noise(f, x)
    batches = (
        product(range(n), repeat=r) if with_replacement else combinations(range(n), r)
    )
    spread = [np.sum((f.evaluate(x, np.array(rows))[1] - g) ** 2) for rows in batches]
    expected = V / r if with_replacement else V / r * (n - r) / (n - 1)
    assert np.mean(spread) == pytest.approx(expected, rel=1e-12)


def second_moments(a, c, x0, eta, steps):
    """E(x_k − x*)² for f_i = a_i/2·(x − c_i)², by the exact recursion."""
    star = (a @ c) / a.sum()
    mean, square, found = x0 - star, (x0 - star) ** 2, []
    for k in range(steps + 1):
        found.append(square)
        t = eta(k) if callable(eta) else eta
        # x − x* ↦ (1 − t·a_i)(x − x*) + t·a_i(c_i − x*), i uniform
        r, s = 1 - t * a, t * a * (c - star)
        square = np.mean(r**2) * square + 2 * np.mean(r * s) * mean + np.mean(s**2)
        mean = np.mean(r) * mean + np.mean(s)
    return np.array(found), star


@pytest.mark.catalog("OPT-29")
@settings(max_examples=40)
@given(
    a=st.lists(st.floats(0.2, 5), min_size=2, max_size=6),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 50),
)
def test_constant_step_theorem_on_exact_moments(a, share, seed) -> None:
    a = np.array(a)
    c = np.random.default_rng(seed).normal(scale=2, size=a.size)
    mu, L = a.mean(), a.max()
    eta = share / L
    moments, star = second_moments(a, c, 5.0, eta, 200)
    sigma2 = np.mean((a * (star - c)) ** 2)
    A = 1 - 2 * eta * mu * (1 - eta * L)
    B = eta * sigma2 / (mu * (1 - eta * L))
    k = np.arange(201)
    limit = A**k * (5.0 - star) ** 2 + B
    assert (moments <= limit * (1 + 1e-9) + 1e-12).all()

    # The record's own column is the recursion behind it: between moments and limit.
    f = Objective(
        lambda x, rows: (
            float(np.mean(a[rows] * (x[0] - c[rows]) ** 2) / 2),
            np.array([np.mean(a[rows] * (x[0] - c[rows]))]),
        ),
        m=mu,
        L_terms=L,
        optimum=[star],
        n_terms=a.size,
    )
    record = stochastic_gradient_descent(f, [5.0], step=eta, max_iter=200, every=1)
    assert record.theorem.kind == "stochastic"
    assert (moments <= record.bound * (1 + 1e-9) + 1e-12).all()
    assert (record.bound <= limit * (1 + 1e-9)).all()
    assert record.constants["noise"].value == pytest.approx(sigma2, abs=1e-12)


@pytest.mark.catalog("OPT-29")
def test_the_bound_does_not_change_with_the_units_of_f() -> None:
    """f → s·f and η → η/s leave the iterates as they are, and so the bound.

    With the floor as once printed, ησ²/(μ − ηL), it would change, even its sign.
    """
    a, c, eta = np.array([0.5, 1.0, 3.0]), np.array([-1.0, 2.0, 0.5]), 0.25
    star = a @ c / a.sum()

    def run(s):
        f = Objective(
            lambda x, rows: (
                float(s * np.mean(a[rows] * (x[0] - c[rows]) ** 2) / 2),
                np.array([s * np.mean(a[rows] * (x[0] - c[rows]))]),
            ),
            m=s * a.mean(),
            L_terms=s * a.max(),
            optimum=[star],
            n_terms=3,
        )
        return stochastic_gradient_descent(
            f, [5.0], step=eta / s, max_iter=300, every=1, random_state=0
        )

    def printed(record, s):
        known = record.constants
        slack = known["m"].value - eta / s * known["L_terms"].value
        return eta / s * known["noise"].value / slack

    one = run(1.0)
    for s in (1e-3, 10.0, 100.0):
        scaled = run(s)
        np.testing.assert_allclose(scaled.iterates, one.iterates, rtol=1e-9)
        np.testing.assert_allclose(scaled.bound, one.bound, rtol=1e-9)
        assert abs(printed(scaled, s) - printed(one, 1.0)) > 0.1
    assert printed(run(1e-3), 1e-3) < 0 < one.bound[-1]
    mu, L, sigma2 = a.mean(), a.max(), one.constants["noise"].value
    assert one.bound[-1] <= eta * sigma2 / (mu * (1 - eta * L)) * (1 + 1e-9)


@pytest.mark.catalog("OPT-30")
def test_robbins_monro_on_exact_moments() -> None:
    a, c = np.array([0.5, 1.0, 3.0]), np.array([-1.0, 2.0, 0.5])
    steps = 8000
    moments, _ = second_moments(a, c, 5.0, RobbinsMonro(1.5, k0=6.0), steps)
    k = np.arange(1, steps + 1)
    scaled = moments[1:] * k
    assert scaled[1000:].max() < 1.2 * scaled[-1] + 1 and np.ptp(scaled[-2000:]) < 0.05
    floors = [
        second_moments(a, c, 5.0, eta, 3000)[0][-1] for eta in (0.02, 0.01, 0.005)
    ]
    for larger, smaller in pairwise(floors):
        assert larger / smaller == pytest.approx(2, rel=0.1)  # a floor ∝ η


@pytest.mark.catalog("OPT-35")
def test_running_mean() -> None:
    f = regression()
    record = stochastic_gradient_descent(
        f, np.zeros(3), step=0.05, max_iter=200, every=1, average=True, random_state=0
    )
    means = polyak_average(record.iterates)
    for k in (0, 1, 50, 200):
        exact = record.iterates[: k + 1].mean(axis=0)
        np.testing.assert_allclose(means[k], exact, atol=1e-13)
        if k:
            step = (k * means[k - 1] + record.iterates[k]) / (k + 1)
            np.testing.assert_allclose(means[k], step, atol=1e-13)
            # The record's average covers the points that were moved from.
            np.testing.assert_allclose(
                record.extra["averages"][k], means[k - 1], atol=1e-13
            )
    np.testing.assert_array_equal(record.x, record.extra["averages"][-1])


@pytest.mark.catalog("OPT-36")
def test_svrg_is_unbiased_and_its_variance_vanishes() -> None:
    f = classification()
    best = gradient_descent(f, np.zeros(3), tol=1e-14, max_iter=20_000).x
    rng = np.random.default_rng(2)
    offset, shift = rng.normal(size=(2, 3))
    variances = []
    for radius in (1.0, 0.1, 0.01, 0.001):
        x, snapshot = best + radius * offset, best + radius * shift
        full = f.evaluate(snapshot)[1]
        draws = np.array([svrg_gradient(f, x, snapshot, full, [i]) for i in range(40)])
        gradient = f.evaluate(x)[1]
        np.testing.assert_allclose(draws.mean(axis=0), gradient, atol=1e-14)
        variances.append(np.sum((draws - gradient) ** 2) / 40)
    np.testing.assert_allclose(np.diff(np.log10(variances)), -2, atol=0.4)
    assert gradient_noise(f, best) > 0.01  # that of a plain stochastic gradient stays


@pytest.mark.catalog("OPT-36")
def test_svrg_converges_linearly() -> None:
    f = regression(n=30, d=3, alpha=0.5)
    record = svrg(
        f, np.full(3, 5.0), epoch_length=1500, random_state=0, max_iter=40, tol=1e-11
    )
    assert record.status.value == "solved"
    assert np.linalg.norm(record.x - f.optimum) < 1e-10
    gap = record.values - f.evaluate(f.optimum)[0]
    late = np.log10(gap[gap > 1e-13])
    assert np.polyfit(np.arange(late.size), late, 1)[0] < -0.3
    assert record.theorem.kind == "stochastic" and record.bound[-1] < 1e-4
    assert (gap <= 10 * record.bound + 1e-12).all()
    assert "longer epoch" in svrg(f, np.ones(3), epoch_length=5, max_iter=2).refused


@pytest.mark.catalog("OPT-61")
@pytest.mark.parametrize("workers", [1, 2, 5, 8])
def test_workers_reproduce_the_large_batch(workers) -> None:
    f = classification()
    x = y = np.ones(3)
    parts = np.arange(40).reshape(workers, -1)
    for _ in range(20):
        mean = np.mean([f.evaluate(x, rows)[1] for rows in parts], axis=0)
        x = x - 0.5 * mean
        y = y - 0.5 * f.evaluate(y)[1]
        np.testing.assert_allclose(x, y, atol=1e-12)
    full = gradient_descent(f, np.ones(3), step=0.5, max_iter=20, tol=0)
    np.testing.assert_allclose(full.x, x, atol=1e-12)
    # Compressed to signs: the mean's sign, one bit per coordinate, is sign descent.
    g = np.mean([f.evaluate(np.ones(3), rows)[1] for rows in parts], axis=0)
    compressed = sign_descent(f, np.ones(3), step=0.1, max_iter=1).x
    np.testing.assert_allclose(compressed, np.ones(3) - 0.1 * np.sign(g), atol=1e-15)


def test_clipped_sgd_has_no_theorem_unless_nothing_was_clipped() -> None:
    f = regression()
    start = {"step": 0.01, "max_iter": 50, "random_state": 0}
    tight = stochastic_gradient_descent(f, np.zeros(3), clip=0.1, **start)
    assert "biased" in tight.refused
    assert stochastic_gradient_descent(f, np.zeros(3), clip=1e9, **start).bounds


def test_batches_need_a_finite_sum() -> None:
    f = lambda x: (float(x @ x), 2 * x)  # noqa: E731
    with pytest.raises(ValueError, match="n_terms"):
        stochastic_gradient_descent(f, [1.0], step=0.1)
    with pytest.raises(ValueError, match="finite sum"):
        sign_descent(f, [1.0], step=0.1, batch_size=1)
    with pytest.raises(ValueError, match="between 1 and 40"):
        stochastic_gradient_descent(
            regression(), np.zeros(3), step=0.1, batch_size=50, replace=False
        )


def test_average_bounds_needs_several_alike_records() -> None:
    f = regression()
    run = lambda seed, every: stochastic_gradient_descent(  # noqa: E731
        f, np.zeros(3), step=0.01, max_iter=40, every=every, random_state=seed
    )
    with pytest.raises(ValueError, match="at least two"):
        average_bounds([run(0, 10)])
    with pytest.raises(ValueError, match="different steps"):
        average_bounds([run(0, 10), run(1, 20)])


@pytest.mark.catalog("OPT-28")
@pytest.mark.parametrize("batch_size", [1, 4, 40])
def test_the_theorem_uses_the_noise_of_a_batch(batch_size) -> None:
    f = regression()
    V = gradient_noise(f, f.optimum)
    for replaced, factor in ((True, 1.0), (False, (40 - batch_size) / 39)):
        record = stochastic_gradient_descent(
            f,
            np.zeros(3),
            step=0.01,
            batch_size=batch_size,
            replace=replaced,
            max_iter=40,
            random_state=0,
        )
        noise = record.constants["noise"].value
        assert noise == pytest.approx(V / batch_size * factor, abs=1e-14)
    if batch_size == 40:  # nothing is random: the bound is on this very run
        assert record.holds is True
