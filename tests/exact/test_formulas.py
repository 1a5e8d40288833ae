"""The verifier's formulas against definitions: limits, suprema, inequalities."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import huber, softmax
from sklearn.metrics import log_loss

from certus import terms as t
from certus.verify.formulas import (
    LOSSES,
    describe,
    into_domain,
    one_hot,
    penalty_conjugate,
    penalty_value,
    split_penalty,
)

Array = np.ndarray

REGRESSION = [
    t.Squared(),
    t.Absolute(),
    t.Huber(0.7),
    t.Quantile(0.3),
    t.EpsilonInsensitive(0.4),
    t.SquaredEpsilonInsensitive(0.4),
]
MARGIN = [
    t.Logistic(),
    t.Hinge(),
    t.Hinge(0.0),
    t.SquaredHinge(),
    t.ModifiedHuber(),
    t.ExponentialMargin(),
]
COUNTS = [t.Poisson(), t.Binomial(), t.Binomial(3), t.Exponential()]
SCALAR = [*REGRESSION, *MARGIN, *COUNTS]
NOT_CONVEX = [t.Tukey(1.3), t.ZeroOne()]
KINKED = t.Absolute | t.Quantile | t.EpsilonInsensitive | t.Hinge
SMOOTH = [t.Tukey(1.3), *(loss for loss in SCALAR if not isinstance(loss, KINKED))]
FINITE = st.floats(-6, 6, allow_nan=False)


def name(term: Any) -> str:
    return f"{type(term).__name__}{tuple(term)}"


def target(loss: t.Loss, raw: float) -> Array:
    """A label that the loss admits, from any number."""
    if type(loss) in {t.ZeroOne, *(type(margin) for margin in MARGIN)}:
        return np.array([1.0 if raw > 0 else -1.0])
    if isinstance(loss, t.Poisson):
        return np.array([float(round(abs(raw)))])
    if isinstance(loss, t.Binomial):
        return np.array([float(min(round(abs(raw)), loss.trials))])
    if isinstance(loss, t.Exponential):
        return np.array([0.1 + abs(raw) / 4])
    return np.array([raw])


def targets(loss: t.Loss, n: int, rng: np.random.Generator) -> Array:
    if isinstance(loss, t.Softmax):
        return rng.integers(0, loss.n_classes, n)
    return np.concatenate([target(loss, raw) for raw in rng.uniform(-3, 3, n)])


def test_every_loss_is_tested() -> None:
    tested = {type(loss) for loss in [*SCALAR, *NOT_CONVEX]} | {t.Softmax}
    assert tested == set(LOSSES)


@pytest.mark.catalog("LOSS-01", "LOSS-03", "LOSS-04", "LOSS-13")
@pytest.mark.parametrize("loss", SMOOTH, ids=name)
@given(raw=FINITE, z=FINITE)
def test_derivative_is_the_limit_of_differences(
    loss: t.Loss, raw: float, z: float
) -> None:
    f, y, h = LOSSES[type(loss)], target(loss, raw), 1e-5
    up, down = (f.value(loss, y, np.array([z + e])) for e in (h, -h))
    slope = f.derivative(loss, y, np.array([z]))
    # Second derivatives are at most 3e^6 here and may jump: first order is exact to h.
    assert abs((up - down) / (2 * h) - slope) < 5 * h * max(1.0, np.exp(z))


@pytest.mark.catalog("LOSS-09")
@pytest.mark.parametrize("loss", SCALAR, ids=name)
@given(raw=FINITE, z=FINITE, other=FINITE)
def test_derivative_is_a_subgradient(
    loss: t.Loss, raw: float, z: float, other: float
) -> None:
    f, y = LOSSES[type(loss)], target(loss, raw)
    here, there = np.array([z]), np.array([other])
    line = f.value(loss, y, here) + f.derivative(loss, y, here) * (there - here)
    value = f.value(loss, y, there)
    assert value >= line - 1e-12 * (1 + abs(line) + abs(value))


@pytest.mark.catalog("GEN-05")
@pytest.mark.parametrize("loss", SCALAR, ids=name)
@given(raw=FINITE, z=FINITE, slope_at=FINITE)
def test_fenchel_young(loss: t.Loss, raw: float, z: float, slope_at: float) -> None:
    f, y = LOSSES[type(loss)], target(loss, raw)
    here, there = np.array([z]), np.array([slope_at])
    u = f.derivative(loss, y, there)
    size = 1e-12 * (1 + np.exp(max(abs(z), abs(slope_at))))
    left = f.value(loss, y, here) + f.conjugate(loss, y, u)
    assert left >= u * z - 10 * size
    equal = f.value(loss, y, there) + f.conjugate(loss, y, u)
    assert equal == pytest.approx(u * slope_at, abs=20 * float(size))


@pytest.mark.catalog("GEN-05")
@pytest.mark.parametrize("loss", SCALAR, ids=name)
def test_conjugate_is_the_supremum(loss: t.Loss) -> None:
    rng = np.random.default_rng(0)
    f = LOSSES[type(loss)]
    grid = np.linspace(-60, 60, 240_001)
    kink = getattr(loss, "epsilon", 0.0)
    for y in targets(loss, 5, rng):
        for z in rng.uniform(-3, 3, 5):
            one = np.array([y])
            slope = f.derivative(loss, one, np.array([z]))
            # Strictly inside the domain the supremum is attained near the data.
            u = 0.9 * slope
            points = np.append(grid, [y - kink, y + kink])
            values = f.value(loss, np.full(points.shape, y), points)
            supremum = np.max(u * points - values)
            assert f.conjugate(loss, one, u) == pytest.approx(supremum, abs=4e-6)


@pytest.mark.catalog("CLS-37", "GEN-05")
@pytest.mark.parametrize("loss", SCALAR, ids=name)
def test_the_conjugate_of_the_conjugate_is_the_loss(loss: t.Loss) -> None:
    """For the hinge: max(0, 1 − yz) is the largest α(1 − yz) with 0 ≤ α ≤ 1."""
    rng = np.random.default_rng(0)
    f = LOSSES[type(loss)]
    grid = np.linspace(-40, 40, 160_001)
    for y in targets(loss, 5, rng):
        conjugates = f.conjugate(loss, np.full(grid.shape, y), grid)
        for z in rng.uniform(-3, 3, 8):
            supremum = np.max(grid * z - conjugates)
            value = f.value(loss, np.array([y]), np.array([z]))
            # Ends of the domain may fall between two points of the grid.
            assert value == pytest.approx(supremum, abs=3e-3)
            assert value >= supremum - 1e-9


@pytest.mark.parametrize(
    "loss, y, outside",
    [
        (t.Huber(0.7), 1.0, [0.71, -0.71]),
        (t.Quantile(0.3), 1.0, [0.71, -0.31]),
        (t.EpsilonInsensitive(0.4), 1.0, [1.01, -1.01]),
        (t.Absolute(), 1.0, [1.01, -1.01]),
        (t.Tukey(1.3), 1.0, [1e-9, -1e-9]),
        (t.ZeroOne(), 1.0, [1e-9, -1e-9]),
        (t.ExponentialMargin(), 1.0, [0.01]),
        (t.Binomial(3), 1.0, [2.01, -1.01]),
        (t.Exponential(), 2.0, [1.01]),
        (t.Logistic(), 1.0, [0.01, -1.01]),
        (t.Hinge(), -1.0, [-0.01, 1.01]),
        (t.SquaredHinge(), 1.0, [0.01]),
        (t.ModifiedHuber(), 1.0, [0.01, -4.01]),
        (t.Poisson(), 2.0, [-2.01]),
    ],
    ids=lambda value: name(value) if isinstance(value, tuple) else "",
)
def test_conjugate_is_infinite_outside_its_domain(
    loss: t.Loss, y: float, outside: list[float]
) -> None:
    conjugate = LOSSES[type(loss)].conjugate
    for u in outside:
        assert conjugate(loss, np.array([y]), np.array([u])) == np.inf


@pytest.mark.parametrize("loss", NOT_CONVEX, ids=name)
@given(raw=FINITE, z=FINITE, u=FINITE)
def test_bounded_losses_have_the_trivial_bound(
    loss: t.Loss, raw: float, z: float, u: float
) -> None:
    """Fenchel–Young holds without convexity; the only finite conjugate is inf ℓ = 0."""
    f, y = LOSSES[type(loss)], target(loss, raw)
    value = f.value(loss, y, np.array([z]))
    assert value + f.conjugate(loss, y, np.array([u])) >= u * z
    inside = into_domain(loss, y, np.array([u]))
    np.testing.assert_array_equal(f.conjugate(loss, y, inside), 0.0)


@pytest.mark.parametrize("loss", SCALAR, ids=name)
@given(raw=FINITE, z=FINITE, u=FINITE)
def test_any_dual_point_is_moved_into_the_domain(
    loss: t.Loss, raw: float, z: float, u: float
) -> None:
    f, y = LOSSES[type(loss)], target(loss, raw)
    assert np.isfinite(f.conjugate(loss, y, into_domain(loss, y, np.array([u])))).all()
    slope = f.derivative(loss, y, np.array([z]))  # lies in the domain: stays
    np.testing.assert_array_equal(into_domain(loss, y, slope), slope)


@pytest.mark.catalog("LOSS-17")
@given(seed=st.integers(0, 10_000))
def test_softmax_formulas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k = 4, int(rng.integers(2, 5))
    loss, f = t.Softmax(k), LOSSES[t.Softmax]
    y, z = rng.integers(0, k, n), rng.normal(0, 3, (n, k))
    value, slope = f.value(loss, y, z), f.derivative(loss, y, z)
    d, h = rng.normal(size=(n, k)), 1e-6
    moved = f.value(loss, y, z + h * d) - f.value(loss, y, z - h * d)
    assert moved / (2 * h) == pytest.approx((slope * d).sum(1), abs=1e-7)
    assert f.value(loss, y, z + 5.0) == pytest.approx(value, abs=1e-12)
    P = softmax(z, axis=1)
    np.testing.assert_allclose(slope + one_hot(y, k), P, atol=1e-15)
    assert value.mean() == pytest.approx(log_loss(y, P, labels=range(k)), abs=1e-10)
    # Fenchel–Young, with equality at the derivative.
    u = f.derivative(loss, y, rng.normal(0, 3, (n, k)))
    assert np.all(value + f.conjugate(loss, y, u) >= (u * z).sum(1) - 1e-12)
    equal = value + f.conjugate(loss, y, slope)
    assert equal == pytest.approx((slope * z).sum(1), abs=1e-10)
    assert np.all(np.isinf(f.conjugate(loss, y, slope + 0.1)))


@pytest.mark.catalog("LOSS-12", "LOSS-13")
@given(g=st.floats(-1000, 1000), label=st.sampled_from([0, 1]))
def test_both_forms_of_the_logistic_loss(g: float, label: int) -> None:
    f, sign = LOSSES[t.Logistic], np.array([2.0 * label - 1])
    value = f.value(t.Logistic(), sign, np.array([g]))
    assert value == pytest.approx(np.logaddexp(0, g) - label * g, abs=1e-12)
    assert value / np.log(2) >= (sign * g <= 0) - 1e-12


@pytest.mark.catalog("LOSS-03")
@given(e=st.floats(-50, 50), delta=st.floats(0.01, 20))
def test_huber_is_scipys(e: float, delta: float) -> None:
    f, loss = LOSSES[t.Huber], t.Huber(delta)
    value = f.value(loss, np.array([e]), np.zeros(1))
    assert value == pytest.approx(huber(delta, e), rel=1e-13, abs=1e-15)
    assert abs(f.derivative(loss, np.array([e]), np.zeros(1))) <= delta


@pytest.mark.catalog("LOSS-09")
@given(z=FINITE)
def test_hinge_bounds_the_zero_one_loss(z: float) -> None:
    for loss in (t.Hinge(), t.SquaredHinge(), t.ModifiedHuber()):
        value = LOSSES[type(loss)].value(loss, np.ones(1), np.array([z]))
        assert value >= (z <= 0)


@pytest.mark.parametrize("loss", [*SCALAR, t.Softmax(3)], ids=name)
@given(seed=st.integers(0, 10_000), spread=st.floats(0.1, 5))
def test_centred_dual_points_are_feasible(
    loss: t.Loss, seed: int, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    n, f = 12, LOSSES[type(loss)]
    y = targets(loss, n, rng)
    s = rng.uniform(0, 3, n) * (rng.uniform(size=n) > 0.2)
    assume(s.sum() > 0)
    if isinstance(loss, t.Poisson):
        assume(s @ y > 0)
    shape = (n, loss.n_classes) if isinstance(loss, t.Softmax) else n
    u = f.derivative(loss, y, rng.normal(0, spread, shape))
    centred = f.centre(loss, y, u, s)
    assert s @ centred == pytest.approx(0, abs=1e-12 * (1 + s @ np.abs(u)).max())
    assert np.all(np.isfinite(f.conjugate(loss, y, centred)))
    # Shrinking towards zero, as an L1 penalty demands, stays in the domain.
    assert np.all(np.isfinite(f.conjugate(loss, y, 0.3 * centred)))
    # A point that is already centred is left where it is.
    again = f.centre(loss, y, centred, s)
    assert again == pytest.approx(centred, abs=1e-9 * (1 + np.abs(u).max()))


PENALTIES = [t.L1(0.7), t.L2(0.4), t.ElasticNet(0.5, 0.3)]


@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
@given(seed=st.integers(0, 10_000))
def test_penalty_conjugate_is_the_supremum(penalty: t.Penalty, seed: int) -> None:
    rng = np.random.default_rng(seed)
    v = rng.uniform(-1, 1, 3) * (0.7 if isinstance(penalty, t.L1) else 3)
    grid = np.linspace(-40, 40, 20_001)[:, None]
    l1, l2 = split_penalty(penalty)
    by_hand = v * grid - l1 * np.abs(grid) - l2 * grid**2 / 2
    supremum = by_hand.max(axis=0).sum()
    assert penalty_conjugate(penalty, v) == pytest.approx(supremum, abs=1e-5)
    w = rng.normal(0, 2, 3)
    value = sum(l1 * abs(x) + l2 * x * x / 2 for x in w)
    assert penalty_value(penalty, w) == pytest.approx(value)
    assert value + penalty_conjugate(penalty, v) >= v @ w - 1e-12


def test_no_penalty() -> None:
    w = np.array([1.0, -2.0])
    assert split_penalty(t.NoPenalty()) == (0.0, 0.0)
    assert penalty_value(t.NoPenalty(), w) == 0.0
    with pytest.raises(TypeError, match="no formula"):
        split_penalty(t.Squared())  # type: ignore[arg-type]


def test_a_smaller_l1_level_than_the_gradient_needs_l2() -> None:
    """Ω* of the elastic net by a general minimiser."""
    v, penalty = np.array([1.2, -0.1, -2.0]), t.ElasticNet(0.5, 0.3)
    found = minimize(
        lambda w: penalty_value(penalty, w) - v @ w, np.zeros(3), method="Powell"
    )
    assert penalty_conjugate(penalty, v) == pytest.approx(-found.fun, rel=1e-5)


@pytest.mark.parametrize("loss", [*SCALAR, *NOT_CONVEX, t.Softmax(3)], ids=name)
@pytest.mark.parametrize("penalty", [*PENALTIES, t.NoPenalty()], ids=name)
def test_objectives_are_described(loss: t.Loss, penalty: t.Penalty) -> None:
    for intercept in ("none", "free", "penalised"):
        text = describe(loss, penalty, intercept)
        assert "mean" in text and "{" not in text
        for level in split_penalty(penalty):
            assert level == 0 or f"{level:.4g}·" in text
