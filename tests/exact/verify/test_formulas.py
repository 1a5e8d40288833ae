"""The kernel's rows against definitions: limits, suprema, inequalities.

Every loss and every penalty of both tables; excesses against value + conjugate −
product, which cancels where they do not.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import huber, softmax
from sklearn.metrics import log_loss

from certus.objectives import terms as t
from certus.objectives.rows import LOSSES as USERS
from certus.verify.kernel import losses
from certus.verify.kernel.gap import _REPAIRS
from certus.verify.kernel.losses import LOSSES, one_hot
from certus.verify.kernel.penalties import PENALTIES, row_of
from certus.verify.problems import describe
from certus.verify.stated_linear import Statement
from helpers.conjugates import penalty_conjugate
from helpers.judging import problem

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
COUNTS += [t.Tweedie(1.3), t.Tweedie(1.9)]
SCALAR = [*REGRESSION, *MARGIN, *COUNTS]
NOT_CONVEX: list[Any] = [t.Tukey(1.3), t.ZeroOne()]
KINKED = t.Absolute | t.Quantile | t.EpsilonInsensitive | t.Hinge
SMOOTH = [t.Tukey(1.3), *(loss for loss in SCALAR if not isinstance(loss, KINKED))]
FINITE = st.floats(-6, 6, allow_nan=False)


def name(term: Any) -> str:
    return f"{type(term).__name__}{tuple(term)}"


def target(loss: t.Loss, raw: float) -> Array:
    """A label that the loss admits, from any number."""
    if type(loss) in {t.ZeroOne, *(type(margin) for margin in MARGIN)}:
        return np.array([1.0 if raw > 0 else -1.0])
    if isinstance(loss, t.Poisson | t.Tweedie):
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


def conjugate_of(loss: t.Loss, y: Array, u: Array) -> Array:
    """ℓ*(u) of the users' row: the kernel has no use for it."""
    return np.asarray(USERS[type(loss)].conjugate(loss, y, u))


def into_domain(loss: t.Loss, y: Array, u: Array) -> Array:
    f = LOSSES[type(loss)]
    return np.asarray(f.slope_of(loss, y, f.natural_of(loss, y, u)))


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
    slope = f.slope(loss, y, np.array([z]))
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
    line = f.value(loss, y, here) + f.slope(loss, y, here) * (there - here)
    value = f.value(loss, y, there)
    assert value >= line - 1e-12 * (1 + abs(line) + abs(value))


@pytest.mark.catalog("GEN-05")
@pytest.mark.parametrize("loss", SCALAR, ids=name)
@given(raw=FINITE, z=FINITE, slope_at=FINITE)
def test_fenchel_young(loss: t.Loss, raw: float, z: float, slope_at: float) -> None:
    f, y = LOSSES[type(loss)], target(loss, raw)
    here, there = np.array([z]), np.array([slope_at])
    u = into_domain(loss, y, f.slope(loss, y, there))
    size = 1e-12 * (1 + np.exp(max(abs(z), abs(slope_at))))
    left = f.value(loss, y, here) + conjugate_of(loss, y, u)
    assert left >= u * z - 10 * size
    equal = f.value(loss, y, there) + conjugate_of(loss, y, u)
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
            slope = f.slope(loss, one, np.array([z]))
            # Strictly inside the domain the supremum is attained near the data.
            u = 0.9 * slope
            points = np.append(grid, [y - kink, y + kink])
            values = f.value(loss, np.full(points.shape, y), points)
            supremum = np.max(u * points - values)
            assert conjugate_of(loss, one, u) == pytest.approx(supremum, abs=4e-6)


@pytest.mark.catalog("CLS-37", "GEN-05")
@pytest.mark.parametrize("loss", SCALAR, ids=name)
def test_the_conjugate_of_the_conjugate_is_the_loss(loss: t.Loss) -> None:
    """For the hinge: max(0, 1 − yz) is the largest α(1 − yz) with 0 ≤ α ≤ 1."""
    rng = np.random.default_rng(0)
    f = LOSSES[type(loss)]
    grid = np.linspace(-40, 40, 160_001)
    for y in targets(loss, 5, rng):
        conjugates = conjugate_of(loss, np.full(grid.shape, y), grid)
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
        (t.Tweedie(1.5), 0.0, [-0.01]),
    ],
    ids=lambda value: name(value) if isinstance(value, tuple) else "",
)
def test_conjugate_is_infinite_outside_its_domain(
    loss: t.Loss, y: float, outside: list[float]
) -> None:
    conjugate = USERS[type(loss)].conjugate
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
    assert value + conjugate_of(loss, y, np.array([u])) >= u * z
    inside = into_domain(loss, y, np.array([u]))
    np.testing.assert_array_equal(conjugate_of(loss, y, inside), 0.0)


@pytest.mark.parametrize("loss", SCALAR, ids=name)
@given(raw=FINITE, z=FINITE, u=FINITE)
def test_any_dual_point_is_moved_into_the_domain(
    loss: t.Loss, raw: float, z: float, u: float
) -> None:
    f, y = LOSSES[type(loss)], target(loss, raw)
    assert np.isfinite(conjugate_of(loss, y, into_domain(loss, y, np.array([u])))).all()
    slope = f.slope(loss, y, np.array([z]))  # lies in the domain: stays
    np.testing.assert_allclose(into_domain(loss, y, slope), slope, rtol=1e-13)


@pytest.mark.catalog("LOSS-17")
@given(seed=st.integers(0, 10_000))
def test_softmax_formulas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k = 4, int(rng.integers(2, 5))
    loss, f = t.Softmax(k), LOSSES[t.Softmax]
    y, z = rng.integers(0, k, n), rng.normal(0, 3, (n, k))
    value, slope = f.value(loss, y, z), f.slope(loss, y, z)
    d, h = rng.normal(size=(n, k)), 1e-6
    moved = f.value(loss, y, z + h * d) - f.value(loss, y, z - h * d)
    assert moved / (2 * h) == pytest.approx((slope * d).sum(1), abs=1e-7)
    assert f.value(loss, y, z + 5.0) == pytest.approx(value, abs=1e-12)
    P = softmax(z, axis=1)
    np.testing.assert_allclose(slope + one_hot(y, k), P, atol=1e-15)
    assert value.mean() == pytest.approx(log_loss(y, P, labels=range(k)), abs=1e-10)
    # Fenchel–Young, with equality at the derivative.
    u = f.slope(loss, y, rng.normal(0, 3, (n, k)))
    assert np.all(value + conjugate_of(loss, y, u) >= (u * z).sum(1) - 1e-12)
    equal = value + conjugate_of(loss, y, slope)
    assert equal == pytest.approx((slope * z).sum(1), abs=1e-10)
    assert np.all(np.isinf(conjugate_of(loss, y, slope + 0.1)))


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
    assert abs(f.slope(loss, np.array([e]), np.zeros(1))) <= delta


@pytest.mark.catalog("LOSS-09")
@given(z=FINITE)
def test_hinge_bounds_the_zero_one_loss(z: float) -> None:
    for loss in (t.Hinge(), t.SquaredHinge(), t.ModifiedHuber()):
        value = LOSSES[type(loss)].value(loss, np.ones(1), np.array([z]))
        assert value >= (z <= 0)


def centre(loss: t.Loss, y: Array, u: Array, s: Array) -> Array:
    """The repair of a dual point for a free intercept."""
    f = LOSSES[type(loss)]
    w = np.zeros((0, u.shape[1])) if u.ndim == 2 else np.zeros(0)
    p = problem(loss, t.L2(1.0), np.zeros((len(y), 0)), y, w, 0.0, s)
    found = _REPAIRS[f.repair](f, p, f.natural_of(loss, y, u))
    assert found.share <= 1e-10  # what is left of the imbalance is rounding
    return np.asarray(f.slope_of(loss, y, found.natural))


@pytest.mark.parametrize("loss", [*SCALAR, t.Softmax(3)], ids=name)
@given(seed=st.integers(0, 10_000), spread=st.floats(0.1, 5))
def test_centred_dual_points_are_feasible(
    loss: t.Loss, seed: int, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    n, f = 12, LOSSES[type(loss)]
    y = targets(loss, n, rng)
    s = rng.uniform(0.01, 3, n)
    if isinstance(loss, t.Poisson | t.Tweedie):
        assume(s @ y > 0)
    if isinstance(loss, t.Softmax):  # one without rows is refused: it has no minimiser
        assume(len(np.unique(y)) == loss.n_classes)
    shape = (n, loss.n_classes) if isinstance(loss, t.Softmax) else n
    u = f.slope(loss, y, rng.normal(0, spread, shape))
    centred = centre(loss, y, u, s)
    assert s @ centred == pytest.approx(0, abs=1e-12 * (1 + s @ np.abs(u)).max())
    assert np.all(np.isfinite(conjugate_of(loss, y, centred)))
    # Shrinking towards zero, as an L1 penalty demands, stays in the domain.
    assert np.all(np.isfinite(conjugate_of(loss, y, 0.3 * centred)))
    # A point that is already centred is left where it is.
    again = centre(loss, y, centred, s)
    assert again == pytest.approx(centred, abs=1e-9 * (1 + np.abs(u).max()))


# -- excesses of losses -----------------------------------------------------------


@pytest.mark.parametrize("loss", [*SCALAR, *NOT_CONVEX], ids=name)
@given(raw=FINITE, z=FINITE, u=st.floats(-8, 8, allow_nan=False))
def test_excess_is_value_plus_conjugate_less_product(
    loss: t.Loss, raw: float, z: float, u: float
) -> None:
    f, y, here = LOSSES[type(loss)], target(loss, raw), np.array([z])
    q = f.natural_of(loss, y, np.array([u]))
    inside = f.slope_of(loss, y, q)
    value, conjugate = f.value(loss, y, here), conjugate_of(loss, y, inside)
    excess, noise = f.excess(loss, y, here, q)
    size = 1 + value + abs(conjugate) + abs(inside * z)
    assert excess == pytest.approx(value + conjugate - inside * z, abs=1e-13 * size[0])
    assert excess >= 0 and noise >= 0
    # At the slope itself nothing is left but rounding.
    if f.convex:
        own, _ = f.excess(loss, y, here, f.natural(loss, y, here))
        # The slope 1 − q of the pinball loss is rounded towards the domain.
        ulp = 2.0**-52 * abs(raw - z) if isinstance(loss, t.Quantile) else 0.0
        assert own <= 1e-25 * (1 + float(np.exp(abs(z)))) ** 2 + ulp


@given(seed=st.integers(0, 10_000), spread=st.sampled_from([1e-3, 1.0, 20.0]))
def test_excess_of_the_softmax(seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 6))
    loss, f = t.Softmax(k), LOSSES[t.Softmax]
    y, z = rng.integers(0, k, 8), spread * rng.normal(size=(8, k))
    u = softmax(spread * rng.normal(size=(8, k)), axis=1) - one_hot(y, k)
    q = f.natural_of(loss, y, u)
    inside = f.slope_of(loss, y, q)
    plain = f.value(loss, y, z) + conjugate_of(loss, y, inside) - (inside * z).sum(1)
    excess, _ = f.excess(loss, y, z, q)
    total = excess if excess.ndim == 1 else excess.sum(axis=1)
    np.testing.assert_allclose(total, plain, atol=1e-12 * (1 + spread))


@pytest.mark.parametrize("loss", [*SCALAR, *NOT_CONVEX, t.Softmax(3)], ids=name)
def test_curvature_is_the_change_of_the_slope(loss: t.Loss) -> None:
    rng = np.random.default_rng(2)
    f, y, h = LOSSES[type(loss)], targets(loss, 40, rng), 1e-6
    if isinstance(loss, t.Softmax):
        z, way = rng.normal(size=(40, 3)), rng.normal(size=(40, 3))
        expected = f.slope(loss, y, z + h * way) - f.slope(loss, y, z - h * way)
        found = np.einsum("iab,ib->ia", f.curvature(loss, y, z), way)
        np.testing.assert_allclose(found, expected / (2 * h), atol=1e-8)
        return
    z = rng.normal(size=40)
    if isinstance(loss, KINKED | t.ZeroOne):
        assert set(f.curvature(loss, y, z)) <= {0.0}  # away from kinks
        return
    expected = (f.slope(loss, y, z + h) - f.slope(loss, y, z - h)) / (2 * h)
    np.testing.assert_allclose(f.curvature(loss, y, z), expected, atol=1e-6)
    assert np.all(f.curvature(loss, y, z) <= f.smooth(loss) + 1e-12)


@pytest.mark.parametrize("loss", SCALAR, ids=name)
@given(seed=st.integers(0, 10_000))
def test_the_best_constant_score(loss: t.Loss, seed: int) -> None:
    rng = np.random.default_rng(seed)
    f, y, s = LOSSES[type(loss)], targets(loss, 15, rng), rng.uniform(0.1, 2, 15)
    best = f.best(loss, y, s)
    assume(np.isfinite(best))

    def value(b: float) -> float:
        return float(s @ f.value(loss, y, np.full(15, b)))

    for b in [*np.linspace(-6, 6, 61), *(best + step for step in (-1e-3, 1e-3))]:
        assert value(best) <= value(b) * (1 + 1e-12) + 1e-14


def test_unknown_terms_are_named() -> None:
    with pytest.raises(ValueError, match="does not know the loss L1"):
        losses.row_of(t.L1(1.0))
    with pytest.raises(ValueError, match="does not know the penalty Squared"):
        row_of(t.Squared())
    with pytest.raises(ValueError, match="not a loss"):
        losses.row_of(t.Huber(-1.0))
    with pytest.raises(ValueError, match="not negative"):
        row_of(t.L1(-1.0))


# -- penalties --------------------------------------------------------------------

GROUPS = (0, 0, 1, 1, 1, 2)
TERMS: list[Any] = [
    t.L1(0.7),
    t.L2(0.4),
    t.L1L2(0.5, 0.3),
    t.WeightedL1((0.2, 0.4, 0.9, 0.1, 0.5, 0.3)),
    t.NonNegative(0.5, 0.0),
    t.NonNegative(0.0, 0.6),
    t.NonNegative(0.5, 0.3),
    t.Group(0.8, GROUPS),
    t.Group(0.8, GROUPS, 0.4),
    t.MultiTask(0.7, 0.0),
    t.MultiTask(0.7, 0.5),
]


def test_every_penalty_is_tested() -> None:
    public = {term for term in PENALTIES if term.__module__ == t.__name__}
    assert {type(term) for term in TERMS} | {t.NoPenalty} == public


def weights(term: Any, rng: np.random.Generator) -> Array:
    """Coefficients where the penalty is finite, some of them zero."""
    w = rng.normal(0, 2, 6) * (rng.uniform(size=6) > 0.3)
    if isinstance(term, t.NonNegative):
        w = np.abs(w)
    return w.reshape(3, 2) if isinstance(term, t.MultiTask) else w


def pull(term: Any, rng: np.random.Generator) -> Array:
    """A v with Ω*(−v) finite."""
    v = rng.normal(0, 2, 6).reshape(weights(term, rng).shape)
    return np.asarray(v * row_of(term).reach(term, v, np.zeros(v.shape)))


@pytest.mark.parametrize("term", TERMS, ids=name)
@given(seed=st.integers(0, 10_000))
def test_excess_of_a_penalty(term: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    row, w, v = row_of(term), weights(term, rng), pull(term, rng)
    plain = row.value(term, w) + penalty_conjugate(term, -v) + np.vdot(w, v)
    found = row.excess(term, w, v, np.zeros(v.shape))
    assert found.value == pytest.approx(plain, rel=1e-12, abs=1e-12)
    assert found.bound >= found.value * (1 - 1e-12) >= 0
    # For every v within the error the bound holds.
    error = rng.uniform(0, 0.05, v.shape)
    kappa = row.reach(term, v, error)
    v, error = kappa * v, kappa * error
    loose = row.excess(term, w, v, error)
    for _ in range(20):
        near = v + error * rng.uniform(-1, 1, v.shape)
        there = row.value(term, w) + penalty_conjugate(term, -near) + np.vdot(w, near)
        assert np.isfinite(there)
        assert there <= loose.bound * (1 + 1e-12) + 1e-12


@pytest.mark.parametrize("term", TERMS, ids=name)
@given(seed=st.integers(0, 10_000))
def test_penalty_conjugate_is_the_supremum(term: Any, seed: int) -> None:
    """No point is above it, and a general minimiser comes near."""
    rng = np.random.default_rng(seed)
    row, v = row_of(term), pull(term, rng)
    conjugate = penalty_conjugate(term, v if isinstance(term, t.NonNegative) else -v)
    way = v if isinstance(term, t.NonNegative) else -v
    assume(np.isfinite(conjugate))
    for _ in range(20):
        w = rng.uniform(0, 3) * weights(term, rng)
        assert np.vdot(way, w) - row.value(term, w) <= conjugate + 1e-12
    if row.value(term, 1e6 * np.abs(way)) > 1e9:  # with an L2 part: the maximiser
        best = -np.inf
        at = np.abs(way).ravel() if isinstance(term, t.NonNegative) else way.ravel()
        for _ in range(4):  # it searches along lines, and a kink may stop it early
            if best > conjugate - 1e-7:
                break
            found = minimize(
                lambda x: row.value(term, x.reshape(way.shape)) - way.ravel() @ x,
                at,
                method="Powell",
                bounds=[(0 if isinstance(term, t.NonNegative) else -40, 40)] * way.size,
                options={"xtol": 1e-10, "ftol": 1e-14, "maxiter": 10_000},
            )
            best = max(best, -float(found.fun))
            at = found.x * rng.uniform(0.5, 1.0, way.size)
        assert conjugate == pytest.approx(best, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("term", TERMS, ids=name)
@given(seed=st.integers(0, 10_000), size=st.floats(0.01, 100))
def test_reach_is_the_largest_factor(term: Any, seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    row = row_of(term)
    v = size * rng.normal(size=weights(term, rng).shape)
    kappa = row.reach(term, v, np.zeros(v.shape))
    assert 0 <= kappa <= 1
    assert np.isfinite(penalty_conjugate(term, -kappa * v))
    if kappa < 1:
        assert penalty_conjugate(term, -1.001 * kappa * v) == np.inf


@pytest.mark.parametrize("term", TERMS, ids=name)
def test_scaled_penalties(term: Any) -> None:
    rng = np.random.default_rng(0)
    row, w = row_of(term), weights(term, rng)
    scaled = row.scaled(term, 3.5)
    assert row.value(scaled, w) == pytest.approx(3.5 * row.value(term, w))
    assert not row.free(term, w).any()


def test_no_penalty() -> None:
    w, row = np.array([1.0, -2.0]), row_of(t.NoPenalty())
    assert row.value(t.NoPenalty(), w) == 0.0
    assert row.free(t.NoPenalty(), w).all()
    assert row.reach(t.NoPenalty(), w, 0 * w) == 0.0
    assert row.excess(t.NoPenalty(), w, w, 0 * w).value == np.inf


def test_negative_coefficients_cost_infinitely_much() -> None:
    row, w = row_of(t.NonNegative(1.0, 1.0)), np.array([1.0, -1e-300])
    assert row.value(t.NonNegative(1.0, 1.0), w) == np.inf
    assert row.excess(t.NonNegative(1.0, 1.0), w, 0 * w, 0 * w).value == np.inf


@pytest.mark.parametrize("loss", [*SCALAR, *NOT_CONVEX, t.Softmax(3)], ids=name)
@pytest.mark.parametrize("penalty", [*TERMS, t.NoPenalty()], ids=name)
def test_objectives_are_described(loss: t.Loss, penalty: t.Penalty) -> None:
    for intercept in ("none", "free", "penalised"):
        text = describe(Statement(loss, penalty, intercept=intercept), penalty)
        assert "mean" in text and "{" not in text
        for field in ("alpha", "l1", "l2"):
            level = getattr(penalty, field, 0.0)
            assert level == 0 or f"{level:.4g}·" in text
