"""The checks of linear models against optima found by general minimisers.

The reference minimises the objective as the terms define it, with scipy alone: smooth
problems by L-BFGS-B on w = p − q with p, q ≥ 0, the others in epigraph form by SLSQP.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from certus import terms as t
from certus.certificate import Status
from certus.verify import check
from certus.verify.formulas import LOSSES, split_penalty
from certus.verify.gaps import backward_error, duality_gap
from certus.verify.problem import Problem, constant_value, scores
from helpers.verifying import (
    KINKED,
    SMOOTH,
    make,
    name,
    primal,
    smooth_optimum,
    unravel,
)

Array = np.ndarray

PENALTIES = [t.L1(0.05), t.L2(0.3), t.ElasticNet(0.05, 0.2)]
INTERCEPTS = ["none", "free", "penalised"]


def kinked_optimum(p: Problem) -> tuple[Array, Any, float]:
    """Epigraph form: minimise Σ sᵢξᵢ/Σs + Ω with ξᵢ above each linear piece."""
    n, m = p.X.shape[0], p.w.size
    extra = {"none": 0, "free": 1, "penalised": 2}[p.intercept]
    l1, l2 = split_penalty(p.penalty)
    pieces: list[Callable[[Array], Array]]
    if isinstance(p.loss, t.Hinge):
        margin = p.loss.margin
        pieces = [lambda z: 0 * z, lambda z: margin - p.y * z]
    elif isinstance(p.loss, t.Quantile):
        q = p.loss.q
        pieces = [lambda z: q * (p.y - z), lambda z: (q - 1) * (p.y - z)]
    else:
        e = getattr(p.loss, "epsilon", 0.0)
        pieces = [lambda z: 0 * z, lambda z: p.y - z - e, lambda z: z - p.y - e]

    def parts(x: Array) -> tuple[Array, Array]:
        w, b = unravel(p, x[n:])
        return x[:n], p.X @ w + b

    def objective(x: Array) -> float:
        w, b = unravel(p, x[n:])
        size = x[n : n + 2 * m].sum() if p.intercept != "penalised" else x[n:].sum()
        square = float(w @ w)
        if p.intercept == "penalised":
            square += (b / p.scale) ** 2
        return float(p.s @ x[:n] / p.s.sum() + l1 * size + l2 * square / 2)

    def slack(x: Array) -> Array:
        xi, z = parts(x)
        return np.concatenate([xi - piece(z) for piece in pieces])

    x = np.zeros(n + 2 * m + extra)
    x[:n] = 10.0
    bounds: list[tuple[float | None, None]] = [(None, None)] * n + [(0, None)] * (2 * m)
    bounds += [(None if p.intercept == "free" else 0, None)] * extra
    found = minimize(
        objective,
        x,
        bounds=bounds,
        constraints={"type": "ineq", "fun": slack},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    w, b = unravel(p, found.x[n:])
    return w, b, primal(p, w, b)


def absolute(p: Problem) -> tuple[float, float]:
    """The gap and the rounding granted to it, not divided by the constant model."""
    found, reference = duality_gap(p, scores(p)), constant_value(p)
    return found.value * reference, found.allowance * reference


@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
@pytest.mark.parametrize("loss", SMOOTH, ids=name)
def test_gap_bounds_the_distance_to_the_minimum(
    loss: t.Loss, penalty: t.Penalty, intercept: str
) -> None:
    p = make(loss, penalty, intercept)
    w, b, best = smooth_optimum(p)
    rng = np.random.default_rng(1)
    for size in (1.0, 0.1, 1e-3):
        v = w + size * rng.normal(size=w.shape)
        c = b if intercept == "none" else b + size * rng.normal(size=np.shape(b))
        q = p._replace(w=v, b=c)
        gap, rounding = absolute(q)
        assert gap >= primal(p, v, c) - best - rounding - 1e-12
    at_optimum = duality_gap(p._replace(w=w, b=b), scores(p._replace(w=w, b=b)))
    assert at_optimum.value <= 1e-6
    assert at_optimum.allowance <= 1e-10


@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
@pytest.mark.parametrize("loss", SMOOTH, ids=name)
def test_an_intercept_left_out_is_noticed(loss: t.Loss, penalty: t.Penalty) -> None:
    """The best w for b = 0 looks solved to a dual point that is not centred."""
    p = make(loss, penalty, "free")
    w, b, without = smooth_optimum(p._replace(intercept="none"))
    _, _, best = smooth_optimum(p)
    assert without - best > 1e-3
    gap, rounding = absolute(p._replace(w=w, b=b))
    assert gap >= without - best - rounding - 1e-12


@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
@pytest.mark.parametrize("loss", KINKED, ids=name)
def test_gap_bounds_the_distance_for_losses_with_kinks(
    loss: t.Loss, penalty: t.Penalty, intercept: str
) -> None:
    p = make(loss, penalty, intercept, n=12, d=2)
    w, b, best = kinked_optimum(p)
    rng = np.random.default_rng(1)
    for size in (1.0, 0.1, 1e-3, 0.0):
        v = w + size * rng.normal(size=w.shape)
        c = b if intercept == "none" else b + size * float(rng.normal())
        gap, rounding = absolute(p._replace(w=v, b=c))
        assert gap >= primal(p, v, c) - best - rounding - 1e-7
        assert primal(p, v, c) >= best - 1e-9


@pytest.mark.parametrize("loss", KINKED, ids=name)
def test_a_stated_dual_point_closes_the_gap_at_a_kink(loss: t.Loss) -> None:
    p = make(loss, t.L2(0.3), "none", n=12, d=2)
    w, b, best = kinked_optimum(p)
    f, total, n = LOSSES[type(loss)], p.s.sum(), len(p.y)
    ends = np.sort([f.derivative(loss, p.y, p.y + e) for e in (-9.0, 9.0)], axis=0)
    if isinstance(loss, t.Hinge):
        ends = np.sort([0 * p.y, -p.y], axis=0)

    # u = a − c with a, c ≥ 0, because ℓ* may have a kink at 0.
    def negative_dual(x: Array) -> float:
        u = x[:n] - x[n:]
        v = p.X.T @ (p.s * u) / total
        conjugates = f.conjugate(loss, p.y, x[:n]) + f.conjugate(loss, p.y, -x[n:])
        return float(p.s @ conjugates / total + v @ v / 0.6)

    found = minimize(
        negative_dual,
        np.full(2 * n, 0.1) * np.concatenate([ends[1], -ends[0]]),
        bounds=[(0, top) for top in np.concatenate([ends[1], -ends[0]])],
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000, "maxfun": 50_000},
    )
    dual = found.x[:n] - found.x[n:]
    q = p._replace(w=w, b=b, dual=dual)
    assert duality_gap(q, scores(q)).value <= 1e-6
    assert duality_gap(q, scores(q)).value < duality_gap(p, scores(p)).value
    # A dual point outside the domain is moved inside: it proves less, never too much.
    forged = p._replace(w=w, b=b, dual=dual + 5 * np.sign(dual) + 0.1)
    gap, rounding = absolute(forged)
    assert gap > absolute(q)[0] and gap >= primal(p, w, b) - best - rounding - 1e-7


@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=name)
@given(
    seed=st.integers(0, 10_000),
    penalty=st.sampled_from(PENALTIES),
    intercept=st.sampled_from(INTERCEPTS),
    size=st.floats(0.01, 3),
)
@settings(max_examples=30)
def test_weak_duality(
    loss: t.Loss, seed: int, penalty: t.Penalty, intercept: str, size: float
) -> None:
    """The lower bound of one point lies below the objective of every other."""
    p = make(loss, penalty, intercept, seed=seed, n=15)
    p = p._replace(w=size * p.w, b=size * p.b)
    gap, rounding = absolute(p)
    bound = primal(p, p.w, p.b) - gap
    rng = np.random.default_rng(seed)
    for _ in range(5):
        v = rng.normal(size=p.w.shape) * rng.uniform(0, 2)
        c = p.b if intercept == "none" else rng.normal(size=np.shape(p.b))
        assert primal(p, v, c) >= bound - rounding - 1e-12 * abs(bound)


@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=name)
def test_integer_weights_are_repetitions(loss: t.Loss, intercept: str) -> None:
    p = make(loss, t.ElasticNet(0.05, 0.2), intercept)
    counts = np.random.default_rng(3).integers(0, 4, len(p.y))
    weighted = p._replace(s=counts.astype(float))
    repeated = p._replace(
        X=np.repeat(p.X, counts, axis=0),
        y=np.repeat(p.y, counts),
        s=np.ones(counts.sum()),
    )
    for check_one in (duality_gap, backward_error):
        a = check_one(weighted, scores(weighted)).value
        b = check_one(repeated, scores(repeated)).value
        assert a == pytest.approx(b, rel=1e-10)
    assert constant_value(weighted) == pytest.approx(constant_value(repeated), rel=1e-9)


@pytest.mark.catalog("LOSS-01")
@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=name)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_constant_value(loss: t.Loss, seed: int) -> None:
    p = make(loss, t.L2(1.0), "free", seed=seed)
    zero = np.zeros_like(p.w)
    if isinstance(loss, t.Softmax):
        found = minimize(lambda b: primal(p, zero, b), np.zeros(3), tol=1e-12).fun
    else:
        found = minimize_scalar(
            lambda b: primal(p, zero, b),
            bounds=(-20, 20),
            method="bounded",
            options={"xatol": 1e-11},
        ).fun
    assert constant_value(p) == pytest.approx(found, rel=1e-7)
    without = p._replace(intercept="none")
    origin = primal(without, zero, np.zeros(3) if p.w.ndim == 2 else 0.0)
    assert constant_value(without) == pytest.approx(origin, rel=1e-12)


@pytest.mark.parametrize("intercept", ["none", "free"])
@given(seed=st.integers(0, 10_000), size=st.floats(1e-8, 3))
def test_backward_error_is_a_perturbation(
    intercept: str, seed: int, size: float
) -> None:
    """Build E and e of the stated size, and solve that problem: (w, b) comes out."""
    p = make(t.Squared(), t.NoPenalty(), intercept, seed=seed)
    free = intercept == "free"
    root = np.sqrt(p.s)
    ones = np.ones((len(p.y), 1)) if free else np.empty((len(p.y), 0))
    A = np.hstack([p.X, ones])
    exact = np.linalg.lstsq(root[:, None] * A, root * p.y, rcond=None)[0]
    moved = exact + size * np.random.default_rng(seed).normal(size=A.shape[1])
    w, b = moved[:3], float(moved[3]) if free else 0.0
    value = backward_error(p._replace(w=w, b=b), p.X @ w + b).value

    r = p.y - p.X @ w - b
    shift = (p.s @ r) / p.s.sum() if free else 0.0
    r = r - shift
    norm_r = np.sqrt(p.s @ r**2)
    centred = p.X - (p.s @ p.X) / p.s.sum() if free else p.X
    stationary = -np.outer(r, (p.s * r) @ centred) / norm_r**2
    interpolating = np.outer(r, w) / (w @ w)
    norms = [
        np.linalg.norm(root[:, None] * E) / np.linalg.norm(root[:, None] * centred)
        for E in (stationary, interpolating)
    ]
    E = (stationary, interpolating)[int(np.argmin(norms))]
    y = p.y - shift
    new = np.hstack([p.X + E, ones])
    residual = y - new @ moved
    scale = np.linalg.norm(root[:, None] * new) * np.linalg.norm(root * p.y)
    assert np.abs(new.T @ (p.s * residual)).max() <= 1e-11 * scale
    drift = abs(shift) * np.sqrt(p.s.sum()) / np.linalg.norm(root * p.y)
    assert value == pytest.approx(max(min(norms), drift), rel=1e-6, abs=1e-14)


def test_backward_error_vanishes_at_the_solution() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 4)), rng.normal(size=50)
    w = np.linalg.lstsq(X, y, rcond=None)[0]
    certificate = check((t.Squared(), t.NoPenalty()), X, y, w)
    assert certificate.met and certificate.primary == "backward_error"
    assert certificate.status is Status.SOLVED
    off = check((t.Squared(), t.NoPenalty()), X, y, w + 0.01)
    assert off.met is False and off.status is Status.TOL_NOT_REACHED
