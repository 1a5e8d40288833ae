"""No theorem where its assumptions fail, no silent acceptance of false promises.

A record that states a bound must be entitled to it: constants that contradict each
other, gradients that are not those of f, comparison points that a theorem does not
allow, all of them are refused or refuted.
"""

import numpy as np
import pytest
import torch

import certus
from certus.optimize import (
    Box,
    InverseSqrt,
    L1Norm,
    MaxTime,
    Objective,
    RobbinsMonro,
    adagrad,
    adam,
    alternating_minimization,
    average_bounds,
    bisection,
    from_torch,
    gradient_descent,
    grid_search,
    heavy_ball,
    least_squares_objective,
    logistic_objective,
    minimize,
    momentum,
    nesterov,
    newton_method,
    power_method,
    projected_gradient,
    proximal_gradient,
    quadratic_objective,
    second_order_test,
    sign_descent,
    stochastic_gradient_descent,
    subgradient_descent,
    svrg,
)


def bowl(x):
    return x @ x / 2, x


# -- promises that cannot be, or are not, true ----------------------------------------


@pytest.mark.parametrize(
    "facts",
    [{"m": 5.0, "L": 1.0}, {"pl": 3.0, "L": 1.0}, {"m": 2.0, "L_terms": 1.0}],
)
def test_constants_that_no_function_has(facts) -> None:
    with pytest.raises(ValueError, match="no function has both"):
        Objective(bowl, **facts)


@pytest.mark.parametrize("factor", [-2.0, 0.5, 1.3, 5.0])
@pytest.mark.parametrize("step", [None, 0.1])
def test_a_gradient_that_is_not_that_of_f_is_refuted(factor, step) -> None:
    record = gradient_descent(
        lambda x: (x @ x / 2, factor * x), [1.0, 2.0], step=step, max_iter=30
    )
    assert record.holds is False
    assert any("not that of f" in text for text in record.refutations)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_a_true_gradient_is_not_refuted(scale) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.sign(rng.normal(size=40))
    f = logistic_objective(X, y, alpha=0.1)
    scaled = Objective(lambda x: tuple(scale * v for v in f.evaluate(x)), L=scale * f.L)
    for start in (np.zeros(3), np.full(3, 30.0)):
        assert gradient_descent(scaled, start, max_iter=40).refutations == ()


def test_the_descent_lemma_finds_a_smoothness_that_is_too_small() -> None:
    # Along this path the gradient turns as promised; only the value tells.
    def f(x):
        return float(x[0] ** 2), x * 1.0

    record = gradient_descent(Objective(f, L=1.0), [1.0], step=0.5, max_iter=5)
    assert any("L = 1" in text for text in record.refutations)


def test_a_function_wrongly_declared_quadratic_is_found() -> None:
    f = Objective(
        lambda x: ((x**4).sum() / 4 + x @ x / 2, x**3 + x),
        L=4.0,
        m=1.0,
        quadratic=True,
        optimum=[0.0],
    )
    record = heavy_ball(f, [1.0], max_iter=20)
    assert record.holds is False and "quadratic" in record.refutations[0]
    assert heavy_ball(quadratic_objective(np.eye(2), [1, 2]), [3.0, 4.0]).holds


def test_a_false_polyak_lojasiewicz_constant_is_refuted() -> None:
    f = Objective(lambda x: (x[0] ** 4, 4 * x**3), L=12.0, pl=1.0, minimum=0.0)
    assert any("pl" in t for t in gradient_descent(f, [1.0], max_iter=50).refutations)


# -- theorems that do not apply -------------------------------------------------------


def test_an_optimum_outside_the_set_is_left_aside() -> None:
    f = Objective(lambda x: (abs(x[0] - 5), np.sign(x - 5)), convex=True, optimum=[5.0])
    record = subgradient_descent(f, [0.0], step=InverseSqrt(0.5), constraint=Box(0, 1))
    assert record.holds and record.value == 4
    inside = Objective(f.function, convex=True, optimum=[1.0])
    found = subgradient_descent(inside, [0.0], step=0.1, constraint=Box(0, 1))
    assert "given minimiser" in found.theorem.assumptions[-1]


def test_stochastic_bounds_need_a_fixed_point_of_comparison() -> None:
    # The best iterate depends on the draws; without m nothing replaces the minimiser.
    X, y = np.eye(4), [1, -1, 1, -1]
    loose = logistic_objective(X, y)
    record = stochastic_gradient_descent(
        loose, np.zeros(4), step=0.5, average=True, random_state=0
    )
    assert record.bounds == () and "minimiser" in record.refused
    strict = logistic_objective(X, y, alpha=0.1)
    runs = [
        stochastic_gradient_descent(
            strict, np.ones(4), step=0.5, average=True, max_iter=80, random_state=i
        )
        for i in range(20)
    ]
    best = gradient_descent(strict, np.zeros(4), tol=1e-12).x
    reach = 2 * runs[0].step_sizes.sum() * runs[0].bound[-1]
    assert reach >= float(np.sum((np.ones(4) - best) ** 2))
    assert average_bounds(runs).holds


def test_newton_without_full_steps_promises_nothing() -> None:
    f = logistic_objective(np.eye(2), [1, -1], alpha=0.1)
    record = newton_method(f, [0.0, 0.0], step=0.5, max_iter=5)
    assert record.bounds == () and record.holds is None
    assert "promises nothing" in record.refused


def test_an_unseen_step_is_not_counted() -> None:
    # Projected gradients depend on the step, so that of the last row proves nothing.
    f = Objective(
        lambda x: (float(np.cos(3 * x[0])), -3 * np.sin(3 * x)), L=9.0, minimum=-1.0
    )
    record = projected_gradient(
        f, [0.1], Box(-2, 2), step=InverseSqrt(0.1), tol=0.0, max_iter=30
    )
    drop = record.step_sizes * (1 - 9 * record.step_sizes / 2)
    gap = record.values[0] + 1
    assert record.bound[-1] == pytest.approx(np.sqrt(gap / drop.sum()))
    assert record.holds


def test_a_curvature_that_overflows_gives_no_theorem() -> None:
    def steep(x):
        return float(np.sum(np.exp(np.minimum(x, 1e300)))), np.exp(x)

    record = minimize(steep, [1.0], method="sign", step=0.1, max_iter=3)
    assert record.holds is not None  # here L can be estimated
    f = Objective(lambda x: (0.0 if x[0] == 0 else np.inf, x * 0), convex=True)
    for method in ("nesterov", "heavy_ball", "sign", "gd"):
        found = minimize(f, [0.0], method=method, step=0.1, max_iter=2)
        assert not any(np.isnan(b.bound).any() for b in found.bounds)


def test_grid_search_compares_with_a_minimum_only_if_there_is_one() -> None:
    axis = np.linspace(-1, 1, 4)
    record = grid_search(Objective(bowl, lipschitz=2.0), [axis])
    assert record.bounds == () and record.holds is None
    assert record.extra["lower_bound"] <= 0 <= record.value
    outside = Objective(bowl, lipschitz=2.0, optimum=[9.0])
    assert "outside" in grid_search(outside, [axis]).refused
    holes = Objective(lambda x: (np.nan if x[0] > 0 else 1.0, x), lipschitz=1.0)
    found = grid_search(holes, [axis])
    assert "not finite" in found.refused and "lower_bound" not in found.extra


def test_the_last_record_has_its_bound_too() -> None:
    f = Objective(bowl, L=1.0, convex=True, optimum=[0.0, 0.0])
    for method, options in (("adagrad", {}), ("sign", {"step": 0.1})):
        record = minimize(f, [1.0, 2.0], method=method, max_iter=7, **options)
        assert record.bound.size == record.steps.size == 8
        assert record.holds


# -- silent wrong numbers -------------------------------------------------------------


def test_bisection_is_not_fooled_by_underflow_or_nan() -> None:
    with pytest.raises(ValueError, match="sign does not change"):
        bisection(lambda x: 1e-200 * (x + 1), 0.0, 2.0)
    with pytest.raises(ValueError, match=r"NaN at 1\.5"):
        bisection(lambda x: x - 1 if x in (0.0, 3.0) else np.nan, 0.0, 3.0)
    with pytest.raises(ValueError, match="finite"):
        bisection(lambda x: x, -1e308, 1.7e308)


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1.0, 1e160, 1e200])
def test_power_method_at_any_scale(scale) -> None:
    J = scale * np.array([[2.0, 1.0], [0.0, 1.0], [3.0, -1.0]])
    expected = scale * np.linalg.norm(J / scale, 2)
    assert power_method(J, random_state=0).value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1j])
def test_the_power_method_refuses_anything_but_a_matrix_of_numbers(bad) -> None:
    with pytest.raises(ValueError, match="J must hold finite"):
        power_method(np.full((2, 2), bad), random_state=0)


def test_a_rising_block_is_not_called_solved() -> None:
    record = alternating_minimization(lambda x: x @ x, [1.0], [lambda x: 2 * x])
    assert record.status.value == "stopped" and record.holds is False
    with pytest.raises(ValueError, match="must be finite"):
        alternating_minimization(lambda x: np.nan, [1.0], [lambda x: x])
    with pytest.raises(ValueError, match="whole point"):
        alternating_minimization(lambda x: x @ x, [1.0, 2.0], [lambda x: x[:1]])


def test_clipping_shortens_only_the_steps_it_clips() -> None:
    record = gradient_descent(
        lambda x: (x @ x / 2, x), [50.0], clip=1.0, max_iter=200, tol=1e-10
    )
    assert record.status.value == "solved" and record.step_sizes[-1] > 0.4
    assert record.holds


def test_a_function_may_write_into_its_argument() -> None:
    def f(x):
        x -= 1
        return x @ x / 2, x

    path = gradient_descent(f, [3.0], step=0.5, max_iter=3).iterates.ravel()
    assert path.tolist() == [3.0, 2.0, 1.5, 1.25]


def test_second_order_test_of_nan() -> None:
    with pytest.raises(ValueError, match="NaN"):
        second_order_test([np.nan], [[1.0]])
    with pytest.raises(ValueError, match="NaN"):
        second_order_test([0.0], [[np.nan]])


def test_adam_starts_inside_its_constraint() -> None:
    record = adam(bowl, [9.0], constraint=Box(-1, 1), max_iter=2)
    assert record.iterates[0] == 1.0


def test_indefinite_quadratics_and_negative_penalties() -> None:
    with pytest.raises(ValueError, match="negative eigenvalue"):
        quadratic_objective(np.diag([1.0, -1e-11]), [0.0, 0.0])
    for build in (least_squares_objective, logistic_objective):
        with pytest.raises(ValueError, match="alpha"):
            build(np.eye(2), [1, -1], alpha=-0.3)
        with pytest.raises(ValueError, match="NaN"):
            build(np.full((2, 2), np.nan), [1, -1])


# -- hostile input --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: gradient_descent(bowl, np.array([1 + 2j])), TypeError, "complex"),
        (lambda: gradient_descent(bowl, []), ValueError, "at least one"),
        (lambda: gradient_descent(bowl, np.eye(2)), ValueError, "ravel"),
        (lambda: gradient_descent(bowl, [1.0], max_iter=2.5), TypeError, "whole"),
        (lambda: gradient_descent(bowl, [1.0], max_iter=-1), ValueError, "at least 0"),
        (lambda: gradient_descent(bowl, [1.0], tol=np.nan), ValueError, "tol"),
        (lambda: gradient_descent(bowl, [1.0], stop=5), TypeError, "MaxTime"),
        (lambda: gradient_descent(bowl, [1.0], step=0), ValueError, "positive"),
        (lambda: gradient_descent(bowl, [1.0], step=-1.0), ValueError, "positive"),
        (lambda: gradient_descent(bowl, [1.0], clip=np.nan), ValueError, "clip"),
        (
            lambda: gradient_descent(bowl, [1.0], step=RobbinsMonro(1.0, 0.0)),
            ValueError,
            "schedule fails at step 0",
        ),
        (lambda: gradient_descent(lambda x: (None, x), [1.0]), TypeError, "real"),
        (lambda: gradient_descent(lambda x: (1j, x), [1.0]), TypeError, "real"),
        (lambda: gradient_descent(lambda x: (1.0, [1, 2]), [1.0]), ValueError, "shape"),
        (lambda: gradient_descent(lambda x: (x, x), [1.0, 2.0]), ValueError, "single"),
        (lambda: nesterov(bowl, [1.0], step=InverseSqrt(1.0)), TypeError, "constant"),
        (lambda: heavy_ball(bowl, [1.0], step=InverseSqrt(1)), TypeError, "constant"),
        (lambda: adagrad(bowl, [1.0], step=InverseSqrt(1.0)), TypeError, "constant"),
        (lambda: adam(bowl, [1.0], epsilon=-1), ValueError, "epsilon"),
        (lambda: adam(bowl, [1.0], constraint=3), TypeError, "project"),
        (
            lambda: newton_method(Objective(bowl, hessian=lambda x: np.ones(3)), [1.0]),
            ValueError,
            "shape",
        ),
        (
            lambda: svrg(
                least_squares_objective(np.eye(2), [1, 2]), [0, 0], epoch_length=0
            ),
            ValueError,
            "epoch_length",
        ),
        (
            lambda: momentum(
                least_squares_objective(np.eye(2), [1, 2]), [0, 0], batch_size=1.5
            ),
            TypeError,
            "whole",
        ),
        (
            lambda: grid_search(lambda x: 0.0, [np.arange(1000)] * 4),
            ValueError,
            "fewer points",
        ),
        (lambda: Objective(bowl, optimum=[np.nan]), ValueError, "optimum"),
    ],
)
def test_unusable_input_is_named(call, error, match) -> None:
    with pytest.raises(error, match=match):
        call()


def test_integers_zero_steps_and_functions_without_a_value() -> None:
    assert gradient_descent(bowl, np.array([1, 2])).holds
    for method in ("gd", "momentum", "heavy_ball", "nesterov", "adagrad", "adam"):
        record = minimize(bowl, [1.0], method=method, max_iter=0)
        assert record.n_iter == 0 and record.x == 1.0
    record = gradient_descent(
        lambda x: (float(np.log(x[0])), 1 / x), [1.0], step=2.0, max_iter=5
    )
    assert record.status.value == "diverged" and "NaN" in record.reason
    newton = Objective(bowl, hessian=lambda x: np.array([[np.nan]]))
    assert newton_method(newton, [1.0]).status.value == "diverged"


def test_an_interrupt_leaves_rows_of_equal_length() -> None:
    calls = 0

    def f(x):
        nonlocal calls
        calls += 1
        if calls == 40:
            raise KeyboardInterrupt
        return x @ x / 2, x

    with certus.config_context(on_interrupt="return"):
        for run in (
            lambda: adagrad(Objective(f, convex=True), [3.0, 1.0]),
            lambda: sign_descent(Objective(f, L=1.0), [3.0, 1.0], step=0.01),
            lambda: proximal_gradient(
                Objective(f, L=1.0), [3.0], L1Norm(0.1), step=0.01
            ),
        ):
            calls = 0
            record = run()
            assert record.status.value == "interrupted"
            assert record.steps.size == record.values.size == record.bound.size
    calls = 0
    with certus.config_context(on_interrupt="raise"), pytest.raises(KeyboardInterrupt):
        gradient_descent(Objective(f, L=1.0), [1.0], step=0.001)


def test_torch_functions_of_every_kind() -> None:
    f = from_torch(lambda x: ((x - 1) ** 2).sum())
    start = torch.zeros(2, requires_grad=True)
    assert gradient_descent(f, start).x == pytest.approx([1, 1])
    constant = from_torch(lambda x: torch.tensor(1.0))
    assert gradient_descent(constant, [1.0], step=0.1).value == 1.0
    with pytest.raises(TypeError, match="one number"):
        gradient_descent(from_torch(lambda x: x**2), [1.0, 2.0])
    with pytest.raises(TypeError, match="from_torch"):
        gradient_descent(lambda x: (torch.as_tensor(x) ** 2).sum(), [1.0])


def test_a_torch_sum_under_every_stochastic_method() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    A, b = torch.from_numpy(X), torch.from_numpy(y)
    ours = least_squares_objective(X, y)
    theirs = Objective(
        from_torch(lambda w, rows: ((A[rows] @ w - b[rows]) ** 2).mean() / 2),
        L=ours.L,
        m=ours.m,
        optimum=ours.optimum,
        n_terms=30,
        L_terms=ours.L_terms,
    )
    for method, options in (
        ("sgd", {"step": 0.02}),
        ("svrg", {}),
        ("momentum", {"step": 0.02, "batch_size": 5}),
        ("adam", {"step": 0.02, "batch_size": 5}),
        ("nesterov", {}),
    ):
        if method != "nesterov":
            options = {**options, "random_state": 0}
        options = {**options, "max_iter": 20, "stop": MaxTime(60)}
        one = minimize(ours, np.zeros(2), method=method, **options)
        two = minimize(theirs, np.zeros(2), method=method, **options)
        assert two.x == pytest.approx(one.x, rel=1e-9)
        assert two.holds in (None, True)
