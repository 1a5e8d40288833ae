"""The checks of linear models against optima found by general minimisers.

The reference minimises the objective as the terms define it, with scipy alone: smooth
problems by L-BFGS-B on w = p − q with p, q ≥ 0, the others in epigraph form by SLSQP.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from certus.certificate import Status
from certus.objectives import terms as t
from certus.objectives.rows import LOSSES as USERS
from certus.verify import check
from certus.verify.kernel import backward
from certus.verify.kernel.losses import LOSSES
from certus.verify.kernel.reference import least_constant
from helpers.verifying import (
    KINKED,
    SMOOTH,
    Case,
    levels,
    make,
    measured,
    name,
    primal,
    smooth_optimum,
    stated,
    unravel,
)

Array = np.ndarray

PENALTIES = [t.L1(0.05), t.L2(0.3), t.L1L2(0.05, 0.2)]
KINKS = tuple(type(loss) for loss in KINKED)
INTERCEPTS = ["none", "free", "penalised"]


def skip_what_nobody_solves(loss: t.Loss, intercept: str) -> None:
    if isinstance(loss, t.Softmax) and intercept == "penalised":
        pytest.skip("no solver penalises the intercepts of a softmax")


def kinked_optimum(p: Case) -> tuple[Array, Any, float]:
    """Epigraph form: minimise Σ sᵢξᵢ/Σs + Ω with ξᵢ above each linear piece."""
    n, m = p.X.shape[0], p.w.size
    extra = {"none": 0, "free": 1, "penalised": 2}[p.intercept]
    l1, l2 = levels(p.penalty)
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


def gap(p: Case) -> float:
    """What is claimed of P(w, b) − min P; rounding is in it."""
    return measured(p).stated


def backward_error(p: Case) -> float:
    found = backward.measure(stated(p))
    return found.computed + found.bound


@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
@pytest.mark.parametrize("loss", SMOOTH, ids=name)
def test_gap_bounds_the_distance_to_the_minimum(
    loss: t.Loss, penalty: t.Penalty, intercept: str
) -> None:
    skip_what_nobody_solves(loss, intercept)
    p = make(loss, penalty, intercept)
    w, b, best = smooth_optimum(p)
    rng = np.random.default_rng(1)
    for size in (1.0, 0.1, 1e-3):
        v = w + size * rng.normal(size=w.shape)
        c = b if intercept == "none" else b + size * rng.normal(size=np.shape(b))
        q = p._replace(w=v, b=c)
        assert gap(q) >= primal(p, v, c) - best - 1e-12
    at_optimum, base = measured(p._replace(w=w, b=b)), least_constant(stated(p))
    assert at_optimum.stated <= 1e-6 * base
    assert at_optimum.bound <= 1e-10 * base


@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
@pytest.mark.parametrize("loss", SMOOTH, ids=name)
def test_an_intercept_left_out_is_noticed(loss: t.Loss, penalty: t.Penalty) -> None:
    """The best w for b = 0 looks solved to a dual point that is not centred."""
    p = make(loss, penalty, "free")
    w, b, without = smooth_optimum(p._replace(intercept="none"))
    _, _, best = smooth_optimum(p)
    assert without - best > 1e-3
    assert gap(p._replace(w=w, b=b)) >= without - best - 1e-12


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
        assert gap(p._replace(w=v, b=c)) >= primal(p, v, c) - best - 1e-7
        assert primal(p, v, c) >= best - 1e-9


@pytest.mark.parametrize("loss", KINKED, ids=name)
def test_a_stated_dual_point_closes_the_gap_at_a_kink(loss: t.Loss) -> None:
    p = make(loss, t.L2(0.3), "none", n=12, d=2)
    w, b, best = kinked_optimum(p)
    f, total, n = LOSSES[type(loss)], p.s.sum(), len(p.y)
    ends = np.broadcast_arrays(*f.domain(loss, p.y), p.y)[:2]

    # u = a − c with a, c ≥ 0, because ℓ* may have a kink at 0.
    def negative_dual(x: Array) -> float:
        u = x[:n] - x[n:]
        v = p.X.T @ (p.s * u) / total
        dual = USERS[type(loss)].conjugate
        conjugates = dual(loss, p.y, x[:n]) + dual(loss, p.y, -x[n:])
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
    assert gap(q) <= 1e-6 * least_constant(stated(q))
    assert gap(q) < gap(p)
    # A dual point outside the domain is moved inside: it proves less, never too much.
    forged = p._replace(w=w, b=b, dual=dual + 5 * np.sign(dual) + 0.1)
    assert gap(forged) > gap(q) and gap(forged) >= primal(p, w, b) - best - 1e-7


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
    assume(not (isinstance(loss, t.Softmax) and intercept == "penalised"))
    p = make(loss, penalty, intercept, seed=seed, n=15)
    p = p._replace(w=size * p.w, b=size * p.b)
    bound = primal(p, p.w, p.b) - gap(p)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        v = rng.normal(size=p.w.shape) * rng.uniform(0, 2)
        c = p.b if intercept == "none" else rng.normal(size=np.shape(p.b))
        assert primal(p, v, c) >= bound - 1e-12 * abs(bound)


@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=name)
def test_integer_weights_are_repetitions(loss: t.Loss, intercept: str) -> None:
    skip_what_nobody_solves(loss, intercept)
    p = make(loss, t.L1L2(0.05, 0.2), intercept)
    counts = np.random.default_rng(3).integers(0, 4, len(p.y))
    weighted = p._replace(s=counts.astype(float))
    repeated = p._replace(
        X=np.repeat(p.X, counts, axis=0),
        y=np.repeat(p.y, counts),
        s=np.ones(counts.sum()),
    )
    for measure in (gap, backward_error) if isinstance(loss, t.Squared) else (gap,):
        assert measure(weighted) == pytest.approx(measure(repeated), rel=1e-10)
    bases = [least_constant(stated(q)) for q in (weighted, repeated)]
    assert bases[0] == pytest.approx(bases[1], rel=1e-9)


@pytest.mark.catalog("LOSS-01")
@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=name)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_the_best_constant(loss: t.Loss, seed: int) -> None:
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
    base = least_constant(stated(p))
    assert base == pytest.approx(found, rel=1e-7) and base <= found * (1 + 1e-12)
    without = p._replace(intercept="none")
    origin = primal(without, zero, np.zeros(3) if p.w.ndim == 2 else 0.0)
    base = least_constant(stated(without))
    assert base == pytest.approx(origin, rel=1e-11) and base <= origin * (1 + 1e-14)


@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=name)
def test_the_best_constant_pays_for_a_penalised_intercept(loss: t.Loss) -> None:
    skip_what_nobody_solves(loss, "penalised")
    p = make(loss, t.L2(0.4), "penalised")
    found = minimize_scalar(
        lambda b: primal(p, np.zeros_like(p.w), b),
        bounds=(-20, 20),
        method="bounded",
        options={"xatol": 1e-11},
    ).fun
    base = least_constant(stated(p))
    assert base <= found * (1 + 1e-12)
    assert base == pytest.approx(found, rel=1e-5 if isinstance(loss, KINKS) else 1e-7)


@pytest.mark.parametrize("intercept", ["none", "free"])
@given(seed=st.integers(0, 10_000), size=st.floats(1e-8, 3))
def test_backward_error_is_a_perturbation(
    intercept: str, seed: int, size: float
) -> None:
    """Build E and e of the stated size, and solve that problem: (w, b) comes out."""
    p = make(t.Squared(), t.NoPenalty(), intercept, seed=seed)
    free = intercept == "free"
    share = p.s / p.s.sum()
    root = np.sqrt(share)
    ones = np.ones((len(p.y), 1)) if free else np.empty((len(p.y), 0))
    A = np.hstack([p.X, ones])
    exact = np.linalg.lstsq(root[:, None] * A, root * p.y, rcond=None)[0]
    moved = exact + size * np.random.default_rng(seed).normal(size=A.shape[1])
    w, b = moved[:3], float(moved[3]) if free else 0.0
    value = backward_error(p._replace(w=w, b=b))

    shift = float(share @ (p.y - p.X @ w - b)) if free else 0.0
    centred = p.X - share @ p.X if free else p.X
    y = p.y - share @ p.y if free else p.y
    r = y - centred @ w
    norms = np.sqrt(share @ centred**2)
    size_y, size_r = (float(np.sqrt(share @ v**2)) for v in (y, r))
    total = np.abs(w) @ norms + size_y
    stationary = -np.outer(r, (share * r) @ centred) / size_r**2
    interpolating = np.outer(r, np.sign(w) * norms) / total
    changes = [(stationary, 0 * r), (interpolating, -r * size_y / total)]
    sizes = [float((np.sqrt(share @ E**2) / norms).max()) for E, _ in changes]
    E, e = changes[int(np.argmin(sizes))]
    new = np.hstack([centred + E, ones])
    residual = y + e - (centred + E) @ w
    scale = np.sqrt(share @ new**2) * size_y
    assert np.abs(new.T @ (share * residual) / scale).max() <= 1e-11
    drift = abs(shift) / size_y
    assert value == pytest.approx(max(min(sizes), drift), rel=1e-6, abs=1e-13)


def test_backward_error_vanishes_at_the_solution() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 4)), rng.normal(size=50)
    w = np.linalg.lstsq(X, y, rcond=None)[0]
    terms = (t.Squared(), t.NoPenalty())
    certificate = check(w, None, terms, X, y)
    assert certificate.met and certificate.primary == "backward_error"
    assert certificate.status is Status.SOLVED
    off = check(w + 0.01, None, terms, X, y)
    assert off.met is False and off.status is Status.TOL_NOT_REACHED
