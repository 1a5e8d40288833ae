"""The methods one by one: momentum, adaptive steps, Newton, searches, stopping."""

import math
from dataclasses import replace

import numpy as np
import pytest

from certus.optimize import (
    Box,
    InverseSqrt,
    Objective,
    adagrad,
    adam,
    amsgrad,
    clip_gradient,
    gradient_descent,
    grid_search,
    heavy_ball,
    least_squares_objective,
    minimize,
    momentum,
    sign_descent,
)
from helpers.optimising import bowl, logistic


@pytest.mark.catalog("OPT-09")
def test_grid_search_equals_brute_force() -> None:
    f = lambda x: float(np.sin(3 * x[0]) + (x[1] - 0.3) ** 2 + x[2] ** 2)  # noqa: E731
    axis = np.linspace(-2, 2, 9)
    record = grid_search(f, [axis] * 3)
    assert record.evaluations == 9**3 == len(record.iterates)
    best = min(f([a, b, c]) for a in axis for b in axis for c in axis)
    assert record.value == best == f(record.x)
    assert "there is no guarantee" in record.refused and not record.bounds


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
    record = adam(f, [1.0, -3.0, 2.0], step=0.05, epsilon=1e-12, max_iter=1)
    moved = record.x - [1.0, -3.0, 2.0]
    np.testing.assert_allclose(moved, [-0.05, 0.05, -0.05], rtol=1e-6)


@pytest.mark.catalog("OPT-43")
def test_adam_without_bias_correction() -> None:
    f, x0 = logistic(), np.array([3.0, 1.0, -2.0, 0.5])
    settings = {"step": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 0.0, "tol": 0}
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
