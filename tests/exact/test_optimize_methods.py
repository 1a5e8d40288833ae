"""The methods one by one: momentum, adaptive steps, Newton, searches, stopping."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from certus.optimize import (
    Box,
    InverseSqrt,
    MaxTime,
    Objective,
    Static,
    Validation,
    adagrad,
    adam,
    alternating_minimization,
    amsgrad,
    bisection,
    clip_gradient,
    from_torch,
    gradient_descent,
    grid_search,
    heavy_ball,
    least_squares_objective,
    logistic_objective,
    minimize,
    momentum,
    newton_method,
    power_method,
    quadratic_objective,
    sign_descent,
    subgradient_descent,
)


def bowl(seed=0, d=4):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(d + 2, d))
    return quadratic_objective(B.T @ B, rng.normal(size=d))


def logistic(alpha=0.1):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 4))
    y = np.where(X @ [1, -1, 0.5, 0] + rng.normal(size=60) > 0, 1, -1)
    return logistic_objective(X, y, alpha)


@pytest.mark.catalog("OPT-09")
def test_grid_search_equals_brute_force() -> None:
    f = lambda x: float(np.sin(3 * x[0]) + (x[1] - 0.3) ** 2 + x[2] ** 2)  # noqa: E731
    axis = np.linspace(-2, 2, 9)
    record = grid_search(f, [axis] * 3)
    assert record.evaluations == 9**3 == len(record.iterates)
    best = min(f([a, b, c]) for a in axis for b in axis for c in axis)
    assert record.value == best == f(record.x)
    assert "nothing is promised" in record.refused and not record.bounds


@pytest.mark.catalog("OPT-09")
def test_grid_search_with_a_lipschitz_constant() -> None:
    f = Objective(
        lambda x: (float(np.abs(x - 0.37).sum()), np.sign(x - 0.37)),
        lipschitz=np.sqrt(2),
        optimum=[0.37, 0.37],
    )
    for points in (3, 9, 33):
        record = grid_search(f, [np.linspace(-1, 1, points)] * 2)
        assert record.holds and record.evaluations == points**2
    # A constant that is too small is noticed.
    wrong = grid_search(replace(f, lipschitz=0.1), [np.linspace(-1, 1, 3)] * 2)
    assert wrong.holds is False


@pytest.mark.catalog("OPT-37")
def test_clipping_keeps_the_direction() -> None:
    rng = np.random.default_rng(0)
    for scale in (1e-300, 1.0, 1e10, 1e200):
        g = rng.normal(size=5) * scale
        clipped = clip_gradient(g, 2.0)
        with np.errstate(over="ignore"):
            norm = scale * np.linalg.norm(g / scale)
        assert np.linalg.norm(clipped) <= 2.0 * (1 + 1e-12)
        if norm <= 2:
            np.testing.assert_array_equal(clipped, g)
        else:
            cosine = (clipped / np.linalg.norm(clipped)) @ (g / norm)
            assert cosine == pytest.approx(1, abs=1e-12)
    np.testing.assert_array_equal(clip_gradient(np.zeros(3), 1.0), np.zeros(3))
    with pytest.raises(ValueError, match="positive"):
        clip_gradient([1.0], 0.0)


def cliff(x, steps=30):
    """A linear recurrence h ← w·h read out after many steps: flat, then a wall."""
    (w,) = x
    h = 0.5 * w**steps
    return (h - 0.5) ** 2, np.array([2 * (h - 0.5) * 0.5 * steps * w ** (steps - 1)])


@pytest.mark.catalog("OPT-37")
def test_clipping_survives_a_cliff() -> None:
    free = gradient_descent(cliff, [1.5], step=0.01, max_iter=500)
    assert free.status.value == "diverged"
    held = gradient_descent(cliff, [1.5], step=0.01, clip=1.0, max_iter=500, tol=1e-3)
    assert np.isfinite(held.iterates).all() and held.status.value != "diverged"
    assert held.value < 0.1 < cliff(np.array([1.5]))[0]
    moves = np.abs(np.diff(held.iterates[:, 0]))
    assert (moves <= 0.01 * (1 + 1e-9)).all()


@pytest.mark.catalog("OPT-38")
@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_averaged_momentum_is_a_heavy_ball(beta) -> None:
    f, x0 = logistic(), np.array([3.0, 1.0, -2.0, 0.5])
    ema = momentum(f, x0, step=0.7, beta=beta, max_iter=60, tol=0)
    ball = heavy_ball(f, x0, step=0.7 * (1 - beta), beta=beta, max_iter=60, tol=0)
    np.testing.assert_allclose(ema.iterates, ball.iterates, rtol=0, atol=1e-12)
    if beta == 0:
        plain = gradient_descent(f, x0, step=0.7, max_iter=60, tol=0)
        np.testing.assert_array_equal(ema.iterates, plain.iterates)


@pytest.mark.catalog("OPT-38")
def test_momentum_without_memory_is_sgd() -> None:
    f, x0 = logistic(), np.zeros(4)
    a = momentum(f, x0, step=0.1, beta=0.0, batch_size=5, random_state=3, max_iter=24)
    rng, x = np.random.default_rng(3), x0
    for _ in range(24):
        rows = rng.choice(60, 5, replace=False, shuffle=False)
        x = x - 0.1 * f.evaluate(x, rows)[1]
    np.testing.assert_allclose(a.x, x, atol=1e-14)


@pytest.mark.catalog("OPT-41")
def test_adagrad_by_hand() -> None:
    """Coordinate by coordinate, in Python floats, as torch documents the update."""
    f, x0 = logistic(), [3.0, 1.0, -2.0, 0.5]
    record = adagrad(f, x0, step=0.3, max_iter=40, tol=0)
    x, seen = list(x0), [0.0] * 4
    for k in range(40):
        g = f.evaluate(np.array(x))[1]
        for j in range(4):
            seen[j] += g[j] ** 2
            x[j] -= 0.3 * g[j] / (math.sqrt(seen[j]) + 1e-10)
        np.testing.assert_allclose(record.iterates[k + 1], x, rtol=0, atol=1e-12)
    # The step per unit of gradient never grows in any coordinate.
    assert (np.diff(0.3 / record.extra["scale"][1:], axis=0) <= 0).all()


@pytest.mark.catalog("OPT-42", "OPT-45")
@pytest.mark.parametrize("maximum", [False, True])
def test_adam_and_amsgrad_by_hand(maximum) -> None:
    """Coordinate by coordinate, in Python floats, as torch documents the update."""
    f, x0 = logistic(), [3.0, 1.0, -2.0, 0.5]
    method = amsgrad if maximum else adam
    record = method(f, x0, step=0.1, beta2=0.99, max_iter=60, tol=0)
    x, m, v, top = list(x0), [0.0] * 4, [0.0] * 4, [0.0] * 4
    for k in range(1, 61):
        g = f.evaluate(np.array(x))[1]
        for j in range(4):
            m[j] = 0.9 * m[j] + 0.1 * g[j]
            v[j] = 0.99 * v[j] + 0.01 * g[j] ** 2
            top[j] = max(top[j], v[j]) if maximum else v[j]
            root = math.sqrt(top[j]) / math.sqrt(1 - 0.99**k) + 1e-8
            x[j] -= 0.1 / (1 - 0.9**k) * m[j] / root
        np.testing.assert_allclose(record.iterates[k], x, rtol=0, atol=1e-11)
    grows = np.diff(record.extra["second_moment"], axis=0)
    assert (grows >= 0).all() if maximum else (grows < 0).any()
    assert record.refused and record.holds is None


@pytest.mark.catalog("OPT-42")
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e6])
def test_first_step_of_adam_does_not_depend_on_scale(scale) -> None:
    f = lambda x: (scale * float(x @ x), 2 * scale * x)  # noqa: E731
    record = adam(f, [1.0, -3.0, 2.0], step=0.05, delta=1e-12, max_iter=1)
    moved = record.x - [1.0, -3.0, 2.0]
    np.testing.assert_allclose(moved, [-0.05, 0.05, -0.05], rtol=1e-6)


@pytest.mark.catalog("OPT-43")
def test_adam_without_bias_correction() -> None:
    f, x0 = logistic(), np.array([3.0, 1.0, -2.0, 0.5])
    settings = {"step": 0.1, "beta1": 0.9, "beta2": 0.99, "delta": 0.0, "tol": 0}
    record = adam(f, x0, bias_correction=False, max_iter=50, **settings)
    m, v, x = np.zeros(4), np.zeros(4), x0
    for k in range(50):
        g = f.evaluate(x)[1]
        m, v = 0.9 * m + (1 - 0.9) * g, 0.99 * v + (1 - 0.99) * g**2
        x = x - 0.1 * m / np.sqrt(v)
        np.testing.assert_allclose(record.iterates[k + 1], x, atol=1e-12)
    first = np.abs(record.iterates[1] - x0)
    np.testing.assert_allclose(first, 0.1 * (1 - 0.9) / np.sqrt(1 - 0.99), rtol=1e-12)


@pytest.mark.catalog("OPT-44")
def test_rotation_changes_adam_but_not_gradient_descent() -> None:
    f = bowl()
    Q = np.linalg.qr(np.random.default_rng(2).normal(size=(4, 4)))[0]

    def turned(z):
        value, g = f.function(Q.T @ z)
        return value, Q @ g

    x0 = np.array([3.0, 1.0, -2.0, 0.5])
    for method, options in (("gd", {"step": 0.02}), ("heavy_ball", {"step": 0.01})):
        a = minimize(f.function, x0, method, max_iter=30, tol=0, **options)
        b = minimize(turned, Q @ x0, method, max_iter=30, tol=0, **options)
        np.testing.assert_allclose(b.iterates @ Q, a.iterates, atol=1e-10)
    for method in ("adam", "adagrad", "amsgrad"):
        a = minimize(f.function, x0, method, step=0.1, max_iter=30, tol=0)
        b = minimize(turned, Q @ x0, method, step=0.1, max_iter=30, tol=0)
        assert np.abs(b.iterates @ Q - a.iterates).max() > 1e-2


@pytest.mark.catalog("OPT-45")
def test_amsgrad_converges_where_adam_does_not() -> None:
    """Slopes C, −1, −1, C, ... on [−1, 1]: the best fixed point is −1."""
    C = 4.0

    def sequence():
        calls = 0

        def f(x):
            nonlocal calls
            slope = C if calls % 3 == 0 else -1.0
            calls += 1
            return slope * float(x[0]), np.array([slope])

        return f

    settings = {
        "step": InverseSqrt(0.2),
        "beta1": 0.0,
        "beta2": 1 / (1 + C**2),
        "constraint": Box(-1.0, 1.0),
        "max_iter": 6000,
        "tol": 0,
    }
    lost = adam(sequence(), [0.0], bias_correction=False, **settings)
    found = amsgrad(sequence(), [0.0], **settings)
    assert lost.iterates[-300:].mean() > 0.9
    assert found.iterates[-300:].mean() < -0.9
    assert (np.diff(found.extra["second_moment"], axis=0) >= 0).all()


@pytest.mark.catalog("OPT-46")
def test_sign_descent_moves_by_gamma_or_not_at_all() -> None:
    f = lambda x: (float(x[0] ** 2 + 9 * x[1] ** 2), np.array([2, 18, 0]) * x)  # noqa: E731
    record = sign_descent(f, [1.0, -3.0, 5.0], step=0.1, max_iter=30, tol=0)
    moves = np.abs(np.diff(record.iterates, axis=0))
    assert np.isin(np.round(moves, 12), [0.0, 0.1]).all()
    assert (moves[:, 2] == 0).all()
    # One bit per coordinate: packed signs reproduce the step.
    g = np.array([0.3, -7.0, 2.0])
    bits = np.packbits(g > 0)
    assert bits.nbytes == 1
    signs = np.where(np.unpackbits(bits, count=3) == 1, 1.0, -1.0)
    np.testing.assert_array_equal(signs, np.sign(g))
    assert record.holds


@pytest.mark.catalog("OPT-46")
def test_sign_descent_fails_on_biased_signs() -> None:
    """Three terms pull to 0, one to 4: the mean is 1, the signs prefer 0."""
    c = np.array([0.0, 0.0, 0.0, 4.0])
    f = least_squares_objective(np.ones((4, 1)), c)
    start = {"step": 0.01, "max_iter": 4000, "random_state": 0, "tol": 0}
    biased = sign_descent(f, [3.0], batch_size=1, **start)
    assert abs(biased.iterates[-200:].mean()) < 0.1
    assert "biased" in biased.refused
    full = sign_descent(f, [3.0], step=0.01, max_iter=1000)
    assert full.x[0] == pytest.approx(1.0, abs=0.02)


@pytest.mark.catalog("OPT-47")
def test_newton_solves_a_quadratic_in_one_step() -> None:
    for seed in range(5):
        f = bowl(seed, d=6)
        record = newton_method(f, np.full(6, 50.0), tol=1e-6)
        assert record.n_iter == 1 and record.holds
        np.testing.assert_allclose(record.x, f.optimum, atol=1e-6)
    # γ = 1 is the minimiser of the quadratic model, γ < 1 a damped step.
    half = newton_method(f, np.full(6, 50.0), step=0.5, max_iter=1)
    np.testing.assert_allclose(half.x, (50.0 + f.optimum) / 2, atol=1e-7)


@pytest.mark.catalog("OPT-47")
def test_newton_converges_quadratically() -> None:
    f = logistic(alpha=0.01)
    best = newton_method(f, np.zeros(4), tol=1e-15, max_iter=30).x
    record = newton_method(f, np.zeros(4), tol=1e-12)
    error = np.linalg.norm(record.iterates - best, axis=1)
    error = error[error > 1e-13]
    exponents = np.log(error[2:] / error[1:-1]) / np.log(error[1:-1] / error[:-2])
    assert exponents[-1] == pytest.approx(2, abs=0.5)
    strong = newton_method(logistic(alpha=1.0), np.ones(4), tol=1e-13)
    assert strong.theorem.kind == "strongly convex" and strong.holds
    assert np.isfinite(strong.bound).sum() >= 2
    forged = replace(
        logistic(alpha=1.0), hessian_lipschitz=strong.constants["m"].value * 1e-4
    )
    assert newton_method(forged, np.ones(4), tol=1e-13).holds is False


@pytest.mark.catalog("OPT-47")
def test_newton_does_not_depend_on_the_basis() -> None:
    f = logistic()
    T = np.random.default_rng(3).normal(size=(4, 4)) + 2 * np.eye(4)

    def function(z, rows=slice(None)):
        value, g = f.function(T @ z, rows)
        return value, T.T @ g

    turned = Objective(
        function, hessian=lambda z: T.T @ f.hessian(T @ z) @ T, n_terms=60
    )
    x0 = np.array([1.0, 0.0, -1.0, 2.0])
    a = newton_method(f, x0, max_iter=6, tol=0)
    b = newton_method(turned, np.linalg.solve(T, x0), max_iter=6, tol=0)
    np.testing.assert_allclose(b.iterates @ T.T, a.iterates, atol=1e-9)


@pytest.mark.catalog("OPT-47")
def test_damping_rescues_newton() -> None:
    """log cosh: full steps from 3 run away, damped ones do not."""
    f = Objective(
        lambda x: (float(np.logaddexp(x, -x)[0]), np.tanh(x)),
        hessian=lambda x: np.diag(1 / np.cosh(x) ** 2),
        convex=True,
    )
    wild = newton_method(f, [3.0], step=1.0, max_iter=20)
    assert wild.status.value != "solved"
    calm = newton_method(f, [3.0], max_iter=20)
    assert calm.status.value == "solved" and abs(calm.x[0]) < 1e-8
    assert (calm.step_sizes < 1).any()


@pytest.mark.catalog("OPT-48")
def test_gradient_descent_is_newton_with_a_scaled_identity() -> None:
    f, eta = logistic(), 0.25
    fake = replace(f, hessian=lambda x: np.eye(4) / eta)
    a = newton_method(fake, np.ones(4), step=1.0, max_iter=40, tol=0)
    b = gradient_descent(f, np.ones(4), step=eta, max_iter=40, tol=0)
    np.testing.assert_allclose(a.iterates, b.iterates, rtol=0, atol=1e-14)


@pytest.mark.catalog("OPT-51")
def test_subgradient_descent_reaches_linear_programs() -> None:
    rng = np.random.default_rng(4)
    n, d = 25, 2
    X = rng.normal(size=(n, d))
    y = X @ [1.0, -0.5] + rng.laplace(size=n) * 0.3
    eye = np.eye(n)
    # Absolute error: min mean t, −t ≤ y − Xw ≤ t.
    lp = linprog(
        np.r_[np.zeros(d), np.ones(n) / n],
        A_ub=np.block([[X, -eye], [-X, -eye]]),
        b_ub=np.r_[y, -y],
        bounds=[(None, None)] * d + [(0, None)] * n,
    )
    mae = Objective(
        lambda w: (np.abs(y - X @ w).mean(), -X.T @ np.sign(y - X @ w) / n),
        convex=True,
        optimum=lp.x[:d],
    )
    _reaches(mae, lp.fun)
    # Hinge loss: min mean t, t ≥ 1 − y·Xw.
    s = np.where(y > 0, 1.0, -1.0)
    Z = X * s[:, None]
    lp = linprog(
        np.r_[np.zeros(d), np.ones(n) / n],
        A_ub=np.hstack([-Z, -eye]),
        b_ub=-np.ones(n),
        bounds=[(None, None)] * d + [(0, None)] * n,
    )
    hinge = Objective(
        lambda w: (
            np.maximum(0, 1 - Z @ w).mean(),
            -Z.T @ (Z @ w < 1).astype(float) / n,
        ),
        convex=True,
        optimum=lp.x[:d],
    )
    _reaches(hinge, lp.fun)


@pytest.mark.catalog("OPT-51")
def test_subgradient_descent_reaches_the_lasso() -> None:
    from sklearn.linear_model import Lasso

    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 3))
    y = X @ [2.0, 0.0, -1.0] + rng.normal(size=40)
    reference = Lasso(alpha=0.4, fit_intercept=False, tol=1e-12).fit(X, y).coef_

    def function(w):
        e = X @ w - y
        value = e @ e / 80 + 0.4 * np.abs(w).sum()
        return value, X.T @ e / 40 + 0.4 * np.sign(w)

    f = Objective(function, convex=True, optimum=reference)
    _reaches(f, function(reference)[0])


def _reaches(f, optimum) -> None:
    d = len(f.optimum)
    record = subgradient_descent(f, np.zeros(d), step=InverseSqrt(0.5), max_iter=20_000)
    assert optimum - 1e-9 <= record.value <= optimum + 1e-3
    assert record.theorem.kind == "convex" and record.holds
    assert record.bound[-1] < record.bound[0]


@pytest.mark.catalog("OPT-57")
def test_alternating_minimisation_never_rises() -> None:
    """k-means and alternating least squares as blocks; a wrong block is found out."""
    rng = np.random.default_rng(6)
    X = np.vstack([rng.normal(c, 1, size=(20, 2)) for c in (-2, 0, 3)])
    n, k = len(X), 3

    def split(x):
        return x[: 2 * k].reshape(k, 2), x[2 * k :].astype(int)

    def inertia(x):
        centres, labels = split(x)
        return float(np.sum((X - centres[labels]) ** 2))

    def assign(x):
        centres, _ = split(x)
        distance = ((X[:, None] - centres) ** 2).sum(axis=2)
        return np.concatenate([x[: 2 * k], distance.argmin(axis=1)])

    def centre(x):
        centres, labels = split(x)
        used = [
            X[labels == j].mean(axis=0) if j in labels else centres[j] for j in range(k)
        ]
        return np.concatenate([np.ravel(used), labels])

    start = np.concatenate([X[:k].ravel(), rng.integers(k, size=n)])
    record = alternating_minimization(inertia, start, [assign, centre])
    assert record.holds and record.status.value == "solved"
    assert (np.diff(record.values) <= 1e-9).all() and record.values[-1] < record.values[
        1
    ]

    R = rng.normal(size=(8, 6))
    W, Z = slice(0, 16), slice(16, 28)

    def loss(x):
        return float(np.sum((R - x[W].reshape(8, 2) @ x[Z].reshape(2, 6)) ** 2))

    def left(x):
        B = x[Z].reshape(2, 6)
        return np.concatenate(
            [np.linalg.lstsq(B.T, R.T, rcond=None)[0].T.ravel(), x[Z]]
        )

    def right(x):
        A = x[W].reshape(8, 2)
        return np.concatenate([x[W], np.linalg.lstsq(A, R, rcond=None)[0].ravel()])

    factors = alternating_minimization(loss, rng.normal(size=28), [left, right])
    assert factors.holds
    s = np.linalg.svd(R, compute_uv=False)
    assert factors.value == pytest.approx(np.sum(s[2:] ** 2), rel=1e-3)
    worse = alternating_minimization(
        loss, rng.normal(size=28), [left, lambda x: right(x) * 1.1], max_iter=5
    )
    assert worse.holds is False


@pytest.mark.catalog("OPT-57")
def test_em_is_alternating_minimisation() -> None:
    """Two Gaussians of unit variance: free energy over weights q, then over means."""
    rng = np.random.default_rng(7)
    data = np.concatenate([rng.normal(-2, 1, 30), rng.normal(2, 1, 30)])

    def free_energy(x):
        mu, q = x[:2], np.clip(x[2:], 1e-300, 1)
        p = np.clip(1 - x[2:], 1e-300, 1)
        fit = q * (data - mu[0]) ** 2 + p * (data - mu[1]) ** 2
        return float(np.sum(fit / 2 + q * np.log(q) + p * np.log(p)))

    def expect(x):
        odds = ((data - x[0]) ** 2 - (data - x[1]) ** 2) / 2
        return np.concatenate([x[:2], 1 / (1 + np.exp(odds))])

    def maximise(x):
        q = x[2:]
        means = [(q @ data) / q.sum(), ((1 - q) @ data) / (1 - q).sum()]
        return np.concatenate([means, q])

    start = np.concatenate([[-0.1, 0.3], np.full(60, 0.5)])
    record = alternating_minimization(free_energy, start, [expect, maximise])
    assert record.holds and (np.diff(record.values) <= 1e-9).all()
    np.testing.assert_allclose(np.sort(record.x[:2]), [-2, 2], atol=0.6)


@pytest.mark.catalog("OPT-60")
def test_each_stopping_rule_gives_its_reason() -> None:
    f = lambda x: (float(x @ x), 2 * x)  # noqa: E731
    slow = {"step": 1e-3, "tol": 0.0}
    full = gradient_descent(f, [1.0], max_iter=7, **slow)
    assert full.reason == "max_iter of 7 reached" and full.n_iter == 7
    timed = gradient_descent(f, [1.0], step=1e-9, max_iter=10**7, stop=MaxTime(0.05))
    assert timed.status.value == "time_limit" and "0.05 s" in timed.reason
    assert timed.seconds < 2
    static = gradient_descent(
        f, [1.0], step=0.3, tol=0, max_iter=10**5, stop=(MaxTime(60), Static(1e-8))
    )
    assert "static" in static.reason and static.value < 1e-7
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(20, 15)), rng.normal(size=20)
    held, target = rng.normal(size=(200, 15)), np.zeros(200)
    error = lambda w: float(np.mean((held @ w - target) ** 2))  # noqa: E731
    early = gradient_descent(
        least_squares_objective(X, y), np.zeros(15), stop=Validation(error, patience=4)
    )
    assert "validation error" in early.reason and early.n_iter == 4
    solved = gradient_descent(f, [1.0], step=0.3)
    assert solved.status.value == "solved" and "tol" in solved.reason
    with pytest.raises(TypeError, match="Validation"):
        gradient_descent(f, [1.0], stop=("soon",))


@pytest.mark.catalog("OPT-62")
def test_bisection_halves() -> None:
    root = 2 ** (1 / 3)
    record = bisection(lambda x: x**3, 0.0, 2.0, target=2.0, tol=1e-13)
    k = np.arange(len(record.iterates))
    assert (np.abs(record.iterates[:, 0] - root) <= 2.0 * 2.0**-k).all()
    assert record.holds and record.x[0] == pytest.approx(root, abs=1e-12)
    falling = bisection(lambda x: -math.tanh(x), -3.0, 5.0)
    assert falling.x[0] == pytest.approx(0, abs=1e-11)
    assert bisection(lambda x: x, 0.0, 1.0).x[0] == pytest.approx(0, abs=1e-11)
    with pytest.raises(ValueError, match="no change of sign"):
        bisection(lambda x: x, 1.0, 2.0)
    # The inverse of the logistic function, as temperature or noise is calibrated.
    p = bisection(lambda z: 1 / (1 + math.exp(-z)), -30, 30, target=0.9, tol=1e-14)
    assert p.x[0] == pytest.approx(math.log(9), abs=1e-10)


@pytest.mark.catalog("OPT-63")
def test_power_method() -> None:
    rng = np.random.default_rng(9)
    U = np.linalg.qr(rng.normal(size=(9, 6)))[0]
    V = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    s = np.array([5.0, 4.0, 2.0, 1.0, 0.5, 0.1])
    J = U @ np.diag(s) @ V.T
    record = power_method(J, random_state=0, ratio=0.8, leading=V[:, 0])
    assert record.value == pytest.approx(np.linalg.norm(J, 2), rel=1e-10)
    assert record.holds
    tangent = record.observed
    ratios = tangent[10:25] / tangent[9:24]
    np.testing.assert_allclose(ratios, (4 / 5) ** 2, rtol=1e-2)
    assert (np.diff(record.values) >= -1e-12).all()  # never falls, never exceeds
    assert (record.values <= 5 * (1 + 1e-12)).all()
    for shape in ((40, 30), (10, 50)):
        A = rng.normal(size=shape)
        ours = power_method(A, random_state=1, max_iter=5000, tol=1e-8).value
        assert ours == pytest.approx(np.linalg.norm(A, 2), rel=1e-6)
    wrong = power_method(J, random_state=0, ratio=0.5, leading=V[:, 0])
    assert wrong.holds is False


def test_torch_functions() -> None:
    torch = pytest.importorskip("torch")
    f = from_torch(lambda x: ((x - torch.tensor([1.0, 2.0])) ** 2).sum())
    record = gradient_descent(Objective(f, L=2.0, m=2.0), [0.0, 0.0])
    np.testing.assert_allclose(record.x, [1, 2], atol=1e-8)


@pytest.mark.catalog("OPT-41", "OPT-42", "OPT-45")
@pytest.mark.parametrize("name", ["adagrad", "adam", "amsgrad"])
def test_trajectories_equal_those_of_torch(name) -> None:
    torch = pytest.importorskip("torch")
    f = logistic()
    x = torch.tensor([3.0, 1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    optimiser = {
        "adagrad": lambda: torch.optim.Adagrad([x], lr=0.1),
        "adam": lambda: torch.optim.Adam([x], lr=0.1),
        "amsgrad": lambda: torch.optim.Adam([x], lr=0.1, amsgrad=True),
    }[name]()
    path = [x.detach().numpy().copy()]
    for _ in range(50):
        x.grad = torch.tensor(f.evaluate(path[-1])[1])
        optimiser.step()
        path.append(x.detach().numpy().copy())
    record = minimize(f, path[0], name, step=0.1, max_iter=50, tol=0)
    np.testing.assert_allclose(record.iterates, path, atol=1e-10)


def test_minimize_names_its_methods() -> None:
    with pytest.raises(ValueError, match="nesterov"):
        minimize(lambda x: (x @ x, 2 * x), [1.0], method="magic")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"f": 3}, "must be a function"),
        ({"f": lambda x: float(x @ x)}, "from_torch"),
        ({"f": lambda x: (x @ x, np.ones(5))}, "shape"),
        ({"f": lambda x: (x, 2 * x)}, "must be one"),
        ({"f": lambda x: (np.nan, 2 * x), "step": 1.0}, "not finite at x0"),
        ({"f": lambda x: (float(x.sum()), np.ones(2))}, "pass step="),
        ({"x0": [np.nan, 1.0]}, "finite start"),
        ({"x0": np.eye(2)}, "ravel"),
        ({"step": -1.0}, "positive"),
        ({"step": "fast"}, "positive number"),
        ({"step": lambda k: 0.0}, "at step 0"),
        ({"max_iter": -1}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"clip": -1.0}, "clip"),
    ],
)
def test_hostile_input_gets_a_clear_error(change, match) -> None:
    call = {"f": lambda x: (float(x @ x), 2 * x), "x0": [1.0, 2.0], **change}
    with pytest.raises((TypeError, ValueError), match=match):
        gradient_descent(**call)


def test_a_function_may_reuse_its_buffer() -> None:
    buffer = np.empty(3)

    def f(x):
        np.multiply(x, 2.0, out=buffer)
        return float(x @ x), buffer

    known = Objective(f, L=2.0, m=2.0, optimum=np.zeros(3))
    record = gradient_descent(known, np.ones(3), step=0.1)
    assert record.holds and record.refutations == ()


def test_curvature_of_large_and_linear_functions() -> None:
    with pytest.raises(ValueError, match="pass step="):
        gradient_descent(lambda x: (float(x.sum()), np.ones(100)), np.zeros(100))
    with pytest.raises(ValueError, match="not finite at x0"):
        gradient_descent(lambda x: (0.0, np.full(2, np.nan)), np.zeros(2))
    wide = gradient_descent(lambda x: (float(x @ x), 2 * x), np.ones(200))
    assert wide.status.value == "solved"
    assert wide.constants["L"].value == pytest.approx(2, rel=1e-3)


def test_power_method_from_a_vector_without_image() -> None:
    J = np.diag([0.0, 2.0])
    with pytest.raises(ValueError, match="another v0"):
        power_method(J, v0=[1.0, 0.0])
    assert power_method(np.zeros((2, 2)), v0=[1.0, 0.0]).value == 0
    with pytest.raises(ValueError, match="zero"):
        power_method(J, v0=[0.0, 0.0])


def test_grid_search_on_a_finite_sum() -> None:
    f = least_squares_objective(np.ones((3, 1)), np.array([1.0, 2.0, 3.0]))
    assert grid_search(f, [np.linspace(0, 4, 9)]).x[0] == 2.0
    with pytest.raises(ValueError, match="at least one point"):
        grid_search(f, [[]])


def test_zero_steps_and_a_start_at_the_optimum() -> None:
    f = Objective(lambda x: (float(x @ x), 2 * x), L=2.0, m=2.0, optimum=[0.0])
    for method in ("gd", "nesterov", "heavy_ball", "momentum"):
        for x0, n in (([0.0], 10), ([1.0], 0)):
            record = minimize(f, x0, method, max_iter=n)
            assert record.n_iter == 0 and record.holds is not False
    for method in ("adagrad", "adam", "amsgrad", "sign", "subgradient"):
        for x0, n in (([0.0], 10), ([1.0], 0)):
            record = minimize(f, x0, method, step=0.1, max_iter=n)
            assert record.n_iter == 0 and record.holds is not False


def test_interrupt_returns_what_there_is_when_asked() -> None:
    import certus

    def f(x):
        if abs(x[0]) < 0.5:
            raise KeyboardInterrupt
        return float(x @ x), 2 * x

    with certus.config_context(on_interrupt="return"):
        record = gradient_descent(f, [2.0], step=0.1)
    assert record.status.value == "interrupted" and record.x[0] > 0.5
    with pytest.raises(KeyboardInterrupt):
        gradient_descent(f, [2.0], step=0.1)


def test_record_reads_well_and_draws() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    f = bowl()
    record = gradient_descent(f, np.ones(4))
    text = str(record)
    assert "strongly convex" in text and "respected at all" in text
    assert "L = " in text and "given" in text
    ax = record.plot()
    assert {line.get_label() for line in ax.get_lines()} >= {
        "theorem's bound",
        "observed",
    }
    wrong = gradient_descent(replace(f, m=f.m * 5), np.ones(4))
    assert "EXCEEDED" in str(wrong) or "refuted" in str(wrong)
    wrong.plot(index=1)
    ax = adam(f, np.ones(4)).plot()
    assert "Adam" in ax.get_title(loc="left")
    plt.close("all")


def test_a_step_is_quick() -> None:
    """Overhead per step stays in the tens of microseconds."""
    f = Objective(lambda x: (float(x @ x), 2 * x), L=2.0)
    start = time.perf_counter()
    gradient_descent(f, np.ones(5), step=1e-6, max_iter=2000, tol=0)
    assert time.perf_counter() - start < 2.0
