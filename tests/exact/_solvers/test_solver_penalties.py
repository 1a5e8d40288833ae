"""The solvers' rows of penalties: each operation against its definition."""

from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certus._solvers.design import Design
from certus._solvers.lasso import QuadraticProblem
from certus._solvers.penalties import (
    PENALTIES,
    PenaltyOperations,
    curvature_of,
    levels_of,
    operation,
    prox,
    require,
)
from certus.objectives import terms as t
from certus.verify.kernel import penalties as judging
from helpers.conjugates import penalty_conjugate

Array = np.ndarray
GROUPS = (0, 1, 0, 2, 1, 0)
TERMS = [
    t.NoPenalty(),
    t.L1(0.7),
    t.L2(0.7),
    t.L1L2(0.3, 0.9),
    t.NonNegative(0.0, 0.0),
    t.NonNegative(0.4, 0.0),
    t.NonNegative(0.4, 0.6),
    t.WeightedL1((0.1, 0.5, 0.9, 1.3, 0.2, 0.4)),
    t.Group(0.7, GROUPS),
    t.Group(0.7, GROUPS, 0.5),
    t.MultiTask(0.7),
    t.MultiTask(0.7, 0.5),
]
D = 6
terms = pytest.mark.parametrize("penalty", TERMS, ids=str)


@numba.njit
def compiled_prox(penalty: Any, j: int, x: float, step: float) -> float:
    return prox(penalty, j, x, step)


def call(penalty: Any, name: str, *args: Any) -> Any:
    return operation(penalty, name)(penalty, *args)


def draw(penalty: Any, seed: int) -> tuple[Array, Array]:
    """A point of Ω's domain with some zeros, and any gradient."""
    rng = np.random.default_rng(seed)
    shape = (D, 3) if isinstance(penalty, t.MultiTask) else (D,)
    w, g = rng.normal(size=shape), rng.normal(size=shape)
    w = np.abs(w) if isinstance(penalty, t.NonNegative) else w
    w[rng.random(D) < 0.4] = 0.0
    if isinstance(penalty, t.Group):
        w[np.isin(GROUPS, rng.integers(0, 3))] = 0.0
    return w, g


def test_every_penalty_has_a_row() -> None:
    assert set(PENALTIES) == set(t.Penalty.__args__)
    assert {type(penalty) for penalty in TERMS} == set(PENALTIES)


@terms
@given(x=st.floats(-10, 10), step=st.floats(1e-3, 10), j=st.integers(0, D - 1))
def test_both_proximal_operators_minimise(
    penalty: Any, x: float, step: float, j: int
) -> None:
    whole = call(penalty, "take", np.arange(D))
    blocks = operation(penalty, "blocks")
    if blocks is not None:  # x is the norm of a block, along any unit vector
        x, j = abs(x), 0
        direction = (blocks(penalty, D) == 0) / np.sqrt((blocks(penalty, D) == 0).sum())
    else:
        direction = np.eye(D)[j]
    v = prox(penalty, j, x, step)
    assert compiled_prox(whole, j, x, step) == pytest.approx(v, rel=1e-12, abs=1e-12)

    def objective(v: float) -> float:
        return call(penalty, "value", v * direction) + (v - x) ** 2 / (2 * step)

    best = objective(v)
    size = max(1.0, abs(best))
    for other in (0.0, x, *(v + d for d in (-1.0, -1e-3, 1e-3, 1.0))):
        assert objective(other) >= best - 1e-12 * size
    # Strong convexity: moving by d costs at least d²/(2·step).
    assert objective(v + 0.5) >= best + 0.125 / step - 1e-10 * max(size, 1 / step)


@terms
@given(seed=st.integers(0, 10**6))
@settings(max_examples=25)
def test_value_and_conjugate_obey_fenchel_and_young(penalty: Any, seed: int) -> None:
    w, g = draw(penalty, seed)
    scale = call(penalty, "polar", g)
    assert 0.0 <= scale <= 1.0
    if scale == 0.0:
        return
    conjugate = call(penalty, "conjugate", scale * g)
    assert np.isfinite(conjugate)
    assert (
        call(penalty, "value", w) + conjugate >= -float(np.vdot(w, scale * g)) - 1e-12
    )
    if scale < 1.0:
        assert call(penalty, "conjugate", scale * (1 + 1e-6) * g) == np.inf


@terms
@given(seed=st.integers(0, 10**6))
@settings(max_examples=25)
def test_the_conjugate_is_reached(penalty: Any, seed: int) -> None:
    """At w = prox(x), x − w is a subgradient: the gap and the distance are 0."""
    x = 2 * draw(penalty, seed)[1]
    w = proximal_point(penalty, x)
    g = w - x
    assert call(penalty, "distance", w, g).max() <= 1e-12
    if not isinstance(penalty, t.NoPenalty):
        if call(penalty, "polar", g) == 0.0:  # a cone, and rounding
            g = np.maximum(g, 0.0)
        gap = call(penalty, "value", w) + call(penalty, "conjugate", g) + np.vdot(w, g)
        assert gap == pytest.approx(0.0, abs=1e-11)
    far = call(penalty, "distance", w, g + np.where(w != 0, 1.0, 0.0))
    if np.any(w):
        assert far.max() >= 1.0 - 1e-12


def proximal_point(penalty: Any, x: Array) -> Array:
    """Prox of the whole vector, by coordinates or blocks, with step 1."""
    blocks = operation(penalty, "blocks")
    if blocks is None:
        return np.array([prox(penalty, j, x[j], 1.0) for j in range(D)])
    out = np.empty_like(x)
    for b in range(blocks(penalty, D).max() + 1):
        part = blocks(penalty, D) == b
        size = float(np.linalg.norm(x[part]))
        out[part] = x[part] * (prox(penalty, b, size, 1.0) / size)
    return out


class Unfinished(NamedTuple):
    """alpha·Σ log(1 + abs(w)), of which only the value is known."""

    alpha: float


def test_a_solver_names_the_operations_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = Design(np.eye(3), None, False), np.ones(3)
    told = "descent needs value, prox, .* of Unfinished; missing: value, prox"
    with pytest.raises(NotImplementedError, match=told):
        QuadraticProblem(*data, Unfinished(1.0))
    row = PenaltyOperations(
        value=lambda p, w: p.alpha * float(np.log1p(np.abs(w)).sum())
    )
    monkeypatch.setitem(PENALTIES, Unfinished, row)
    with pytest.raises(NotImplementedError, match="missing: prox, distance"):
        QuadraticProblem(*data, Unfinished(1.0))
    with pytest.raises(NotImplementedError, match="Newton needs piece of Unfinished"):
        curvature_of("Newton", Unfinished(1.0))
    with pytest.raises(NotImplementedError, match="smooth penalty; L1 has kinks"):
        curvature_of("Newton", t.L1(1.0))
    with pytest.raises(NotImplementedError, match="missing: levels"):
        levels_of("interior point", t.NonNegative(1.0, 0.0), 3)
    assert require("anything", t.L1(1.0), "value", "prox") is PENALTIES[t.L1]


@terms
@given(seed=st.integers(0, 10**6))
@settings(max_examples=25)
def test_the_two_sides_agree(penalty: Any, seed: int) -> None:
    w, g = draw(penalty, seed)
    theirs = judging.PENALTIES[type(penalty)]
    assert call(penalty, "value", w) == pytest.approx(theirs.value(penalty, w), 1e-12)
    scale = call(penalty, "polar", g)
    reach = theirs.reach(penalty, g, np.zeros_like(g))
    assert scale == pytest.approx(reach, rel=1e-12)
    inside = 0.999 * scale * g
    mine, other = (
        call(penalty, "conjugate", inside),
        penalty_conjugate(penalty, -inside),
    )
    assert mine == pytest.approx(other, rel=1e-12, abs=1e-15)
    if scale > 0 and np.isfinite(mine):
        excess = theirs.excess(penalty, w, inside, np.zeros_like(g)).value
        plain = call(penalty, "value", w) + mine + float(np.vdot(w, inside))
        assert excess == pytest.approx(plain, rel=1e-9, abs=1e-12)
