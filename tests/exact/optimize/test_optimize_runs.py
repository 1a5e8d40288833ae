"""What surrounds the optimisers: stopping, torch, hostile input, records."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from certus.optimize import (
    MaxTime,
    Objective,
    Static,
    Validation,
    adam,
    bisection,
    from_torch,
    gradient_descent,
    grid_search,
    least_squares_objective,
    minimize,
    power_method,
)
from helpers.optimising import bowl, logistic


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
    assert "stopped falling" in static.reason and static.value < 1e-7
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
    with pytest.raises(ValueError, match="sign does not change"):
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
    f = from_torch(lambda x: ((x - torch.tensor([1.0, 2.0])) ** 2).sum())
    record = gradient_descent(Objective(f, L=2.0, m=2.0), [0.0, 0.0])
    np.testing.assert_allclose(record.x, [1, 2], atol=1e-8)


@pytest.mark.catalog("OPT-41", "OPT-42", "OPT-45")
@pytest.mark.parametrize("name", ["adagrad", "adam", "amsgrad"])
def test_trajectories_equal_those_of_torch(name) -> None:
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
        ({"f": lambda x: (x, 2 * x)}, "a single number"),
        ({"f": lambda x: (np.nan, 2 * x), "step": 1.0}, "not finite at x0"),
        ({"f": lambda x: (float(x.sum()), np.ones(2))}, "Pass step="),
        ({"x0": [np.nan, 1.0]}, "x0 must be finite"),
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
    with pytest.raises(ValueError, match="Pass step="):
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


def test_one_step_is_quick() -> None:
    """Overhead per step stays in the tens of microseconds."""
    f = Objective(lambda x: (float(x @ x), 2 * x), L=2.0)
    start = time.perf_counter()
    gradient_descent(f, np.ones(5), step=1e-6, max_iter=2000, tol=0)
    assert time.perf_counter() - start < 2.0
