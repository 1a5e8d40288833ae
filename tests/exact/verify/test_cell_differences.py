"""The verifier's row for differences of cells, beside brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from certus.verify.kernel.penalties import PENALTIES
from certus.verify.shapes import CellDifferences

ROW = PENALTIES[CellDifferences]
#: A path of five cells with one edge more.
LEFT, RIGHT = np.array([0, 1, 2, 3, 0]), np.array([1, 2, 3, 4, 4])


def penalty(quadratic=1.0, variation=0.0, sign=0, own=0.3):
    edges = np.ones(len(LEFT))
    signs = np.array([sign, sign, sign, sign, 0])
    own = np.full(5, own)
    return CellDifferences(
        LEFT, RIGHT, quadratic * edges, variation * edges, signs, own
    )


KINDS = {
    "squares": penalty(),
    "variation": penalty(0.0, 0.7),
    "both": penalty(0.5, 0.7),
    "rising": penalty(1.0, 0.0, 1),
    "falling": penalty(0.0, 0.4, -1),
}


def plainly(p, w):
    """The formula of Ω, an edge at a time."""
    found = float(p.own @ w**2) / 2
    for a, b, q, t in zip(p.left, p.right, p.quadratic, p.variation):
        found += q * (w[b] - w[a]) ** 2 / 2 + t * abs(w[b] - w[a])
    return found


def conjugate(p, v):
    """Ω*(−v) = max over w of −vᵀw − Ω(w), by a general method.

    A difference is up − down, both at least 0, which makes the problem smooth.
    """
    m = len(p.left)

    def parts(x):
        return x[:5], x[5 : 5 + m], x[5 + m :]

    def cost(x):
        w, up, down = parts(x)
        d = up - down
        smooth = p.own @ w**2 / 2 + p.quadratic @ d**2 / 2
        return v @ w + smooth + p.variation @ (up + down)

    def slope(x):
        w, up, down = parts(x)
        d = p.quadratic * (up - down)
        return np.concatenate([v + p.own * w, d + p.variation, p.variation - d])

    equal = np.zeros((m, 5 + 2 * m))  # w[right] − w[left] = up − down
    equal[np.arange(m), p.right] += 1
    equal[np.arange(m), p.left] -= 1
    equal[np.arange(m), 5 + np.arange(m)] = -1
    equal[np.arange(m), 5 + m + np.arange(m)] = 1
    ups = [(0, 0 if s < 0 else None) for s in p.signs]
    downs = [(0, 0 if s > 0 else None) for s in p.signs]
    found = optimize.minimize(
        *(cost, np.zeros(5 + 2 * m)),
        jac=slope,
        bounds=[(None, None)] * 5 + ups + downs,
        constraints={"type": "eq", "fun": lambda x: equal @ x, "jac": lambda x: equal},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return -found.fun, found.x[:5]


@pytest.mark.parametrize("kind", KINDS)
def test_the_value_and_the_excess_agree_with_brute_force(kind):
    p, rng = KINDS[kind], np.random.default_rng(0)
    sign = int(p.signs[0])
    for _ in range(6):
        v = rng.normal(size=5)
        w = rng.normal(size=5)
        w = np.sort(w)[:: sign or 1] if sign else w
        assert ROW.value(p, w) == pytest.approx(plainly(p, w), rel=1e-12)
        most, _ = conjugate(p, v)
        true = plainly(p, w) + most + v @ w
        found = ROW.excess(p, w, v, np.zeros(5))
        assert true >= -1e-7
        assert found.bound >= found.value >= true - 1e-7  # a bound from above
        moved = ROW.excess(p, w, v, np.full(5, 1e-3))
        off = conjugate(p, v + 1e-3 * rng.choice([-1, 1], 5))
        assert moved.bound >= plainly(p, w) + off[0] + v @ w - 1e-2 * np.abs(w).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_the_excess_vanishes_at_the_minimum_of_a_path(kind):
    """Without a cycle there is one flow that balances every cell."""
    whole, rng = KINDS[kind], np.random.default_rng(1)
    p = CellDifferences(*(a[:4] for a in whole[:5]), whole.own)
    sign = int(p.signs[0])
    for _ in range(4):
        v = rng.normal(size=5)
        best = conjugate(p, v)[1]
        best = best if not sign else sign * np.maximum.accumulate(sign * best)
        assert ROW.excess(p, best, v, np.zeros(5)).value < 1e-6


@pytest.mark.parametrize("sign", [1, -1])
def test_the_cone_is_exact(sign):
    p, w = penalty(sign=sign), sign * np.arange(5.0)
    assert ROW.cone(p, w) and np.isfinite(ROW.value(p, w))
    w[2] = np.nextafter(w[1], -sign * np.inf)  # the smallest step the wrong way
    assert not ROW.cone(p, w)
    assert ROW.value(p, w) == np.inf
    assert ROW.excess(p, w, np.zeros(5), np.zeros(5)).bound == np.inf


def test_cells_without_a_penalty_of_their_own_are_null_directions():
    own = np.array([0.3, 0.0, 0.3, 0.0, 0.3])
    p = penalty()._replace(own=own)
    w = np.arange(5.0)
    assert ROW.free(p, w).tolist() == [False, True, False, True, False]
    assert ROW.free(p, np.ones((5, 2))).sum() == 4
    assert ROW.reach(p, np.zeros(5), np.zeros(5)) == 0.0  # no dual point is in reach
    assert ROW.reach(penalty(), np.zeros(5), np.zeros(5)) == 1.0
    assert ROW.value(p, w) == pytest.approx(plainly(p, w))
    # A constant costs nothing where no cell has r > 0.
    assert ROW.value(penalty(own=0.0), np.full(5, 7.0)) == 0.0
