"""Projections, constrained and proximal descent, duality."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize as scipy_minimize

from certus.linear_model import Lasso
from certus.optimize import (
    Ball,
    Box,
    HalfSpace,
    Intersection,
    L1Norm,
    Objective,
    Simplex,
    gradient_descent,
    least_squares_objective,
    logistic_objective,
    newton_method,
    projected_gradient,
    proximal_gradient,
    quadratic_objective,
)

SETS = {
    "l1": Ball(1.3, p=1),
    "l2": Ball(0.8, p=2, center=np.array([0.5, -0.2, 0.1])),
    "linf": Ball(0.7, p=np.inf),
    "box": Box(np.array([-1.0, 0.0, -np.inf]), np.array([0.5, 0.0, 2.0])),
    "simplex": Simplex(1.5),
    "half-space": HalfSpace([1.0, -2.0, 0.5], 0.3),
    "intersection": Intersection((Ball(1.0), HalfSpace([1.0, 1.0, 0.0], 0.2))),
}
numbers = st.floats(-50, 50, allow_nan=False)
points = st.lists(numbers, min_size=3, max_size=3).map(np.array)


@pytest.mark.catalog("OPT-52")
@pytest.mark.parametrize("name", SETS)
@given(w=points, v=points)
def test_projection_properties(name, w, v) -> None:
    """In the set, idempotent, non-expansive, and at an obtuse angle."""
    C = SETS[name]
    Pw, Pv = C.project(w), C.project(v)
    assert C.contains(Pw, 1e-7)
    tol = 1e-6 if name == "intersection" else 1e-9
    np.testing.assert_allclose(C.project(Pw), Pw, atol=tol)
    assert np.linalg.norm(Pw - Pv) <= np.linalg.norm(w - v) + tol
    assert (w - Pw) @ (Pv - Pw) <= tol * (1 + np.linalg.norm(w))


@pytest.mark.catalog("OPT-52", "OPT-53")
@pytest.mark.parametrize("name", ["l1", "l2", "simplex", "half-space", "intersection"])
def test_projection_equals_a_generic_solver(name) -> None:
    C = SETS[name]
    rng = np.random.default_rng(0)
    inequality = {
        "l1": lambda v: 1.3 - np.sqrt(v**2 + 1e-14).sum(),
        "l2": lambda v: 0.64 - np.sum((v - [0.5, -0.2, 0.1]) ** 2),
        "simplex": lambda v: v,
        "half-space": lambda v: 0.3 - v @ [1.0, -2.0, 0.5],
        "intersection": lambda v: np.array([1 - v @ v, 0.2 - v[0] - v[1]]),
    }[name]
    constraints = [{"type": "ineq", "fun": inequality}]
    if name == "simplex":
        constraints.append({"type": "eq", "fun": lambda v: v.sum() - 1.5})
    for w in rng.normal(scale=2, size=(10, 3)):
        found = scipy_minimize(
            lambda v, w=w: np.sum((v - w) ** 2),
            C.project(np.zeros(3)) + 1e-3,
            constraints=constraints,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        ours = C.project(w)
        assert np.sum((ours - w) ** 2) <= found.fun + 1e-6
        np.testing.assert_allclose(ours, found.x, atol=2e-3)


@pytest.mark.catalog("OPT-53")
@given(v=points, r=st.floats(0, 20))
def test_l2_ball(v, r) -> None:
    P = Ball(r).project(v)
    # Squares of tiny numbers lose digits, and no number is finer than 5e-324.
    assert math.hypot(*P) <= r * (1 + 1e-12) + len(v) * 5e-324
    norm = math.hypot(*v)
    expected = v if norm <= r else min(1, r / norm) * v
    np.testing.assert_allclose(P, expected, atol=1e-12)


def test_bad_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Box(1.0, 0.0).project([0.0])
    with pytest.raises(ValueError, match="no common point"):
        apart = (HalfSpace([1.0], 0.0), HalfSpace([-1.0], -1.0))
        Intersection(apart, max_iter=100).project([5.0])
    with pytest.raises(ValueError, match="1, 2 or inf"):
        Ball(1.0, p=3).project([1.0])
    with pytest.raises(ValueError, match="normal vector"):
        HalfSpace([0.0], 1.0).project([1.0])
    with pytest.raises(TypeError, match="project"):
        projected_gradient(lambda x: (x @ x, 2 * x), [1.0], constraint="ball")


@pytest.mark.catalog("OPT-54")
@pytest.mark.parametrize("name", ["l1", "l2", "linf", "box", "simplex", "intersection"])
def test_projected_gradient_solves_the_constrained_problem(name) -> None:
    rng = np.random.default_rng(1)
    B = rng.normal(size=(5, 3))
    A, b = B.T @ B + 0.1 * np.eye(3), 4 * rng.normal(size=3)
    free = quadratic_objective(A, b)
    f = Objective(free.function, L=free.L, convex=True)
    C = SETS[name]
    record = projected_gradient(f, [5.0, 5.0, 5.0], C, max_iter=20_000, tol=1e-9)
    assert record.status.value == "solved"
    assert all(C.contains(x, 1e-8) for x in record.iterates)
    # KKT: no feasible direction descends.
    g = f.evaluate(record.x)[1]
    others = [C.project(u) for u in rng.normal(scale=3, size=(300, 3))]
    assert min(g @ (u - record.x) for u in others) >= -1e-6
    start = C.project(np.zeros(3))
    reference = scipy_minimize(
        lambda x: f.evaluate(C.project(x))[0] + 50 * np.sum((x - C.project(x)) ** 2),
        start,
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000},
    )
    assert record.value <= reference.fun + 1e-7
    assert record.value == pytest.approx(
        f.evaluate(C.project(reference.x))[0], abs=1e-4
    )
    assert record.theorem.kind == "convex" and record.holds


@pytest.mark.catalog("OPT-54")
def test_projected_gradient_against_slsqp() -> None:
    rng = np.random.default_rng(2)
    B = rng.normal(size=(8, 4))
    f = quadratic_objective(B.T @ B, 5 * rng.normal(size=4))
    C = Box(0.0, 1.0)
    found = scipy_minimize(
        lambda x: f.evaluate(x)[0],
        np.full(4, 0.5),
        jac=lambda x: f.evaluate(x)[1],
        bounds=[(0, 1)] * 4,
        method="SLSQP",
        options={"ftol": 1e-15},
    )
    known = Objective(f.function, L=f.L, m=f.m, optimum=found.x)
    record = projected_gradient(known, np.full(4, 0.5), C, max_iter=50_000)
    np.testing.assert_allclose(record.x, found.x, atol=1e-6)
    # The distance contracts as strong convexity says (x* is SLSQP's, to 1e-7).
    limit = record.bounds[0].bound + 1e-6
    assert (record.bounds[0].observed <= limit).all()


def test_proximal_gradient_is_the_lasso() -> None:
    rng = np.random.default_rng(3)
    X, w = rng.normal(size=(60, 8)), np.array([3.0, -2, 0, 0, 0, 1, 0, 0])
    y = X @ w + rng.normal(size=60)
    lasso = Lasso(alpha=0.3, fit_intercept=False, tol=1e-12).fit(X, y)
    plain = least_squares_objective(X, y)
    f = Objective(plain.function, L=plain.L, convex=True, n_terms=60)
    record = proximal_gradient(f, np.zeros(8), L1Norm(0.3), max_iter=5000, tol=1e-12)
    np.testing.assert_allclose(record.x, lasso.coef_, atol=1e-8)
    assert record.holds and record.theorem.kind == "convex"
    np.testing.assert_array_equal(record.x == 0, lasso.coef_ == 0)
    known = Objective(
        plain.function, L=plain.L, m=plain.m, n_terms=60, optimum=record.x
    )
    again = proximal_gradient(known, np.ones(8), L1Norm(0.3), max_iter=200)
    assert again.theorem.kind == "strongly convex" and again.holds
    wrong = Objective(
        plain.function, L=plain.L, m=3 * plain.m, n_terms=60, optimum=record.x
    )
    assert not proximal_gradient(wrong, np.ones(8), L1Norm(0.3), max_iter=200).holds


@pytest.mark.catalog("OPT-55")
def test_penalty_reaches_the_constraint_as_one_over_lambda() -> None:
    rng = np.random.default_rng(4)
    H = np.diag([1.0, 2.0, 5.0])
    b, A, c = rng.normal(size=3), rng.normal(size=(1, 3)), np.array([1.0])
    kkt = np.block([[H, A.T], [A, np.zeros((1, 1))]])
    exact = np.linalg.solve(kkt, np.append(b, c))[:3]
    weights = 10.0 ** np.arange(1, 7)
    errors = []
    for weight in weights:
        f = quadratic_objective(H + 2 * weight * A.T @ A, b + 2 * weight * A.T @ c)
        errors.append(np.linalg.norm(newton_method(f, np.zeros(3)).x - exact))
    slope = np.polyfit(np.log(weights), np.log(errors), 1)[0]
    assert slope == pytest.approx(-1, abs=0.05)
    # The indicator of a set as penalty is projection: prox_{tP} = P_C for any t.
    plane = Intersection((HalfSpace(A[0], 1.0), HalfSpace(-A[0], -1.0)))
    projected = projected_gradient(
        quadratic_objective(H, b), np.zeros(3), plane, max_iter=3000, tol=1e-11
    )
    np.testing.assert_allclose(projected.x, exact, atol=1e-6)


@pytest.mark.catalog("OPT-56")
def test_minimax_duality() -> None:
    """Weak duality always; for the soft-margin SVM the gap closes."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        G = rng.normal(size=(4, 6))
        assert G.max(axis=1).min() >= G.min(axis=0).max()
    assert any(
        G.max(axis=1).min() > G.min(axis=0).max() + 0.1
        for G in rng.normal(size=(20, 4, 6))
    )
    n, lam = 8, 0.1
    X = rng.normal(size=(n, 12))
    y = np.where(rng.random(n) > 0.5, 1.0, -1.0)
    Z = X * y[:, None]

    def primal(w):
        return lam / 2 * w @ w + np.maximum(0, 1 - Z @ w).mean()

    def dual(a):
        return a.mean() - np.sum((Z.T @ a) ** 2) / (2 * lam * n**2)

    f = quadratic_objective(Z @ Z.T / (lam * n**2), np.full(n, 1 / n))
    box = Box(0.0, 1.0)
    for a, w in zip(rng.random((50, n)), rng.normal(size=(50, 12))):
        assert dual(a) <= primal(w)
    record = projected_gradient(f, np.zeros(n), box, max_iter=200_000, tol=1e-12)
    w = Z.T @ record.x / (lam * n)
    assert 0 <= primal(w) - dual(record.x) + 1e-12 <= 1e-8


@pytest.mark.catalog("OPT-55")
def test_unconstrained_optimum_inside_the_set_is_found_by_both() -> None:
    f = quadratic_objective(np.diag([1.0, 3.0]), np.array([0.1, 0.2]))
    free = gradient_descent(f, [1.0, 1.0])
    held = projected_gradient(f, [1.0, 1.0], Ball(5.0))
    np.testing.assert_allclose(free.x, held.x, atol=1e-7)


def test_steps_are_found_where_L_is_not_given() -> None:
    """Started in the flat, the curvature there is no guide to the way down."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(60, 4))
    y = np.where(X @ [1, -1, 0.5, 0] + rng.normal(size=60) > 0, 1, -1)
    known = logistic_objective(X, y)
    bare = Objective(known.function, convex=True, n_terms=60)
    ball = Ball(1.0)
    exact = projected_gradient(known, np.full(4, 0.1), ball, tol=1e-10).x
    for set_or_penalty, method in (
        (ball, projected_gradient),
        (L1Norm(0.05), proximal_gradient),
    ):
        start = np.full(4, 30.0)
        found = method(bare, start, set_or_penalty, max_iter=5000, tol=1e-9)
        sure = method(known, start, set_or_penalty, max_iter=5000, tol=1e-9)
        assert found.status.value == "solved" and found.holds
        assert found.constants["L"].source == "estimated"
        np.testing.assert_allclose(found.x, sure.x, atol=1e-6)
    assert np.linalg.norm(exact) == pytest.approx(1)
