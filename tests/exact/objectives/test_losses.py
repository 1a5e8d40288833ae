"""Losses as public objects: values, slopes, curvature and what follows from them.

References are definitions: finite differences, suprema on a grid, SciPy's and
scikit-learn's functions, minimisers found by general methods.
"""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from scipy.optimize import linprog, minimize_scalar
from sklearn.metrics import log_loss, zero_one_loss

from certus import objectives
from certus.linear_model import LinearRegression
from certus.objectives import terms as t
from certus.objectives.rows import LOSSES

Array = np.ndarray

RESIDUAL = [
    t.Squared(),
    t.Absolute(),
    t.Huber(0.7),
    t.Tukey(1.3),
    t.Quantile(0.3),
    t.EpsilonInsensitive(0.4),
    t.SquaredEpsilonInsensitive(0.4),
]
MARGINS = [
    t.Logistic(),
    t.Hinge(),
    t.Hinge(0.0),
    t.SquaredHinge(),
    t.ModifiedHuber(),
    t.ExponentialMargin(),
    t.ZeroOne(),
]
MARGIN = tuple({type(loss) for loss in MARGINS})
AMOUNTS = t.Exponential | t.Poisson | t.Tweedie
LIKELIHOODS = [t.Binomial(), t.Binomial(4), t.Exponential(), t.Poisson()]
LIKELIHOODS += [t.Tweedie(1.1)]
SCALAR = [*RESIDUAL, *MARGINS, *LIKELIHOODS]
FINITE = st.floats(-5, 5)


def name(value: Any) -> str:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{type(value).__name__}{tuple(value)}"
    return str(value)


def some_targets(loss: Any) -> list[float]:
    if isinstance(loss, MARGIN):
        return [-1.0, 1.0]
    if isinstance(loss, t.Binomial):
        return [0.0, 1.0, float(loss.trials)]
    return [0.5, 2.0] if isinstance(loss, AMOUNTS) else [-1.0, 0.8]


def constant_minimiser(loss: Any, y: Array) -> float:
    def total(b: float) -> float:
        return float(objectives.value(loss, y, b).sum())

    bounds = (float(y.min()), float(y.max()))
    return float(minimize_scalar(total, bounds=bounds, options={"xatol": 1e-11}).x)


def least_absolute(X: Array, y: Array) -> Array:
    """Minimiser of Σ abs(y − Xw) by linear programming."""
    n, d = X.shape
    cost = np.concatenate([np.zeros(d), np.ones(2 * n)])
    equal = np.hstack([X, np.eye(n), -np.eye(n)])
    bounds = [(None, None)] * d + [(0, None)] * (2 * n)
    return linprog(cost, A_eq=equal, b_eq=y, bounds=bounds, method="highs").x[:d]


# -- all of them ------------------------------------------------------------------


def test_every_loss_is_listed() -> None:
    assert {type(loss) for loss in SCALAR} | {t.Softmax} == set(LOSSES)


@pytest.mark.parametrize("loss", SCALAR, ids=name)
def test_curvature_is_the_change_of_the_slope(loss: Any) -> None:
    x, h = np.linspace(-2.9, 2.9, 400), 1e-5  # no kink lies on this grid
    for y in some_targets(loss):
        up, down = (
            objectives.gradient(loss, y, x + h),
            objectives.gradient(loss, y, x - h),
        )
        found = objectives.curvature(loss, y, x)
        assert found.shape == x.shape
        np.testing.assert_allclose(found, (up - down) / (2 * h), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "loss, at, larger",
    [
        (t.Huber(0.7), 0.7, 1.0),
        (t.SquaredEpsilonInsensitive(0.4), 0.4, 2.0),
        (t.SquaredHinge(), 1.0, 2.0),
        (t.ModifiedHuber(), -1.0, 2.0),
        (t.Absolute(), 0.0, np.inf),
        (t.Quantile(0.3), 0.0, np.inf),
        (t.EpsilonInsensitive(0.4), 0.4, np.inf),
        (t.Hinge(), 1.0, np.inf),
    ],
    ids=name,
)
def test_curvature_where_it_jumps(loss: Any, at: float, larger: float) -> None:
    y = 1.0 if isinstance(loss, MARGIN) else 0.0
    sides = [objectives.curvature(loss, y, at + h) for h in (-1e-6, 1e-6)]
    assert objectives.curvature(loss, y, at) == larger >= max(sides)
    assert larger == np.inf or sorted(sides) == [0.0, larger]


@pytest.mark.parametrize("loss", SCALAR, ids=name)
def test_smoothness_is_the_largest_curvature(loss: Any) -> None:
    kinks = [-1.0, -0.4, 0.0, 0.4, 1.0, 0.8, 0.8 - 0.4, 0.8 + 0.4, 60.0, -60.0]
    x = np.concatenate([np.linspace(-4, 4, 8001), kinks])
    highest = max(
        np.abs(objectives.curvature(loss, y, x)).max() for y in some_targets(loss)
    )
    smooth = objectives.smoothness(loss)
    if np.isfinite(smooth):
        assert highest == pytest.approx(smooth, abs=1e-6) and highest <= smooth
    else:
        assert highest > 1e20


@pytest.mark.parametrize("loss", SCALAR, ids=name)
def test_convexity_along_chords(loss: Any) -> None:
    rng = np.random.default_rng(0)
    (a, b), share = rng.uniform(-4, 4, (2, 20_000)), rng.uniform(size=20_000)
    worst = -np.inf
    for y in some_targets(loss):
        chord = share * objectives.value(loss, y, a) + (1 - share) * objectives.value(
            loss, y, b
        )
        middle = objectives.value(loss, y, share * a + (1 - share) * b)
        worst = max(worst, float(np.max((middle - chord) / (1 + np.abs(chord)))))
    assert objectives.is_convex(loss) == (worst <= 1e-12)


@pytest.mark.parametrize("loss", SCALAR, ids=name)
def test_conjugates_through_the_public_function(loss: Any) -> None:
    """Fenchel–Young on arrays of any shape; equality at slopes of convex losses."""
    z = np.linspace(-3, 3, 12).reshape(3, 4)
    for y in some_targets(loss):
        value, slope = objectives.value(loss, y, z), objectives.gradient(loss, y, z)
        dual = objectives.conjugate(loss, y, slope)
        assert value.shape == slope.shape == dual.shape == (3, 4)
        assert np.all(value + dual >= slope * z - 1e-9)
        if objectives.is_convex(loss):
            np.testing.assert_allclose(value + dual, slope * z, rtol=1e-9, atol=1e-9)


def test_softmax_curvature() -> None:
    rng = np.random.default_rng(0)
    loss, z, h = t.Softmax(4), rng.normal(0, 2, (5, 4)), 1e-5
    y = rng.integers(0, 4, 5)
    H = objectives.curvature(loss, y, z)
    assert H.shape == (5, 4, 4) and objectives.is_convex(loss)
    for j, e in enumerate(np.eye(4)):
        up, down = (objectives.gradient(loss, y, z + s * h * e) for s in (1, -1))
        np.testing.assert_allclose(H[:, :, j], (up - down) / (2 * h), atol=1e-9)
    eigenvalues = np.linalg.eigvalsh(H)
    assert eigenvalues.min() >= -1e-15
    assert eigenvalues.max() <= objectives.smoothness(loss)
    even = objectives.curvature(loss, 0, [50.0, 50.0, 0.0, 0.0])  # two classes share
    assert np.linalg.eigvalsh(even).max() == pytest.approx(objectives.smoothness(loss))


# -- regression -------------------------------------------------------------------


@pytest.mark.catalog("LOSS-01", "LOSS-07")
def test_squared_error_has_two_scalings() -> None:
    rng = np.random.default_rng(1)
    X, y, w = rng.normal(size=(30, 3)), rng.normal(size=30), rng.normal(size=3)
    e, h = y - X @ w, 1e-6

    def half(w: Array) -> float:
        return float(objectives.value(t.Squared(), y, X @ w).mean())

    assert 2 * half(w) == pytest.approx(np.mean(e**2), rel=1e-14)
    found = X.T @ objectives.gradient(t.Squared(), y, X @ w) / 30
    np.testing.assert_allclose(found, -X.T @ e / 30, rtol=1e-12)
    differences = [(half(w + h * d) - half(w - h * d)) / (2 * h) for d in np.eye(3)]
    np.testing.assert_allclose(found, differences, atol=1e-8)
    np.testing.assert_allclose(2 * found, -2 / 30 * X.T @ e, rtol=1e-12)
    assert constant_minimiser(t.Squared(), y) == pytest.approx(y.mean(), abs=1e-7)
    # On vectors: half the squared distance, with slope v − y.
    Y, V = rng.normal(size=(2, 6, 4))
    distance = np.linalg.norm(Y - V, axis=1)
    value = objectives.value(t.Squared(), Y, V).sum(axis=-1)
    np.testing.assert_allclose(value, distance**2 / 2, rtol=1e-13)
    np.testing.assert_array_equal(objectives.gradient(t.Squared(), Y, V), V - Y)


@pytest.mark.catalog("LOSS-02")
def test_absolute_error_and_one_outlier() -> None:
    rng = np.random.default_rng(2)
    X, y = np.column_stack([np.ones(25), rng.normal(size=25)]), rng.normal(size=25)
    assert constant_minimiser(t.Absolute(), y) == pytest.approx(np.median(y), abs=1e-7)
    w = np.array([0.1, -0.3])
    found = X.T @ objectives.gradient(t.Absolute(), y, X @ w) / 25
    by_hand = -sum(np.sign(y[i] - X[i] @ w) * X[i] for i in range(25)) / 25
    np.testing.assert_allclose(found, by_hand, rtol=1e-13)
    same = objectives.value(t.EpsilonInsensitive(0.0), y, X @ w)
    np.testing.assert_array_equal(objectives.value(t.Absolute(), y, X @ w), same)
    fits, squares = [], []
    for far in (1e2, 1e4, 1e6):
        moved = y.copy()
        moved[0] = far
        fits.append(least_absolute(X, moved))
        squares.append(LinearRegression(fit_intercept=False).fit(X, moved).coef_)
    np.testing.assert_allclose(fits[1:], [fits[0]] * 2, atol=1e-9)
    assert np.linalg.norm(squares[2]) > 1e3 * np.linalg.norm(fits[2])


@pytest.mark.catalog("LOSS-03")
@given(delta=st.floats(0.05, 20), e=st.floats(-40, 40))
def test_huber(delta: float, e: float) -> None:
    loss = t.Huber(delta)
    assert objectives.value(loss, e, 0.0) == pytest.approx(special.huber(delta, e))
    assert objectives.gradient(loss, e, 0.0) == np.clip(-e, -delta, delta)
    edge, step = np.array([-delta, delta]), 1e-9 * delta
    for function in (objectives.value, objectives.gradient):  # continuous at both edges
        inside, outside = (function(loss, edge * (1 + s), 0.0) for s in (-1e-9, 1e-9))
        np.testing.assert_allclose(inside, outside, rtol=1e-8, atol=step)
    wide = objectives.value(t.Huber(1e3), e, 0.0)
    assert wide == pytest.approx(objectives.value(t.Squared(), e, 0.0), rel=1e-15)
    narrow = objectives.value(t.Huber(1e-9), e, 0.0) / 1e-9
    assert narrow == pytest.approx(abs(e), abs=1e-9)


@pytest.mark.catalog("LOSS-04")
def test_tukey() -> None:
    delta = 1.7
    loss, e = t.Tukey(delta), np.linspace(-4, 4, 4001)
    x = np.minimum((e / delta) ** 2, 1)
    rho, psi = delta**2 / 6 * (1 - (1 - x) ** 3), e * (1 - x) ** 2
    np.testing.assert_allclose(objectives.value(loss, e, 0.0), rho, atol=1e-15)
    np.testing.assert_allclose(-objectives.gradient(loss, e, 0.0), psi, atol=1e-15)
    h = 1e-5
    differences = objectives.value(loss, e + h, 0.0) - objectives.value(
        loss, e - h, 0.0
    )
    np.testing.assert_allclose(differences / (2 * h), psi, atol=1e-8)
    far = np.abs(e) > delta
    assert np.all(objectives.gradient(loss, e, 0.0)[far] == 0.0)  # redescends, exactly
    assert objectives.gradient(loss, 1e12, 0.0) == 0.0
    assert np.diff(objectives.value(loss, e, 0.0), 2).min() < -1e-7
    assert not objectives.is_convex(loss)


@pytest.mark.catalog("LOSS-05")
def test_losses_of_regression_meet_the_conditions_for_a_cost() -> None:
    e = np.concatenate([-np.logspace(-6, 9, 400), np.logspace(-6, 9, 400)])
    influence = {}
    for loss in [t.Squared(), t.Absolute(), t.Huber(0.7), t.Tukey(1.3)]:
        value, mirrored = (
            objectives.value(loss, e, 0.0),
            objectives.value(loss, -e, 0.0),
        )
        np.testing.assert_array_equal(value, mirrored)
        influence[type(loss)] = np.abs(objectives.gradient(loss, e, 0.0)).max()
    assert influence[t.Squared] == pytest.approx(
        1e9
    )  # grows with the residual, without end
    assert influence[t.Absolute] == 1.0 and influence[t.Huber] == 0.7
    # ψ of Tukey is largest at e = delta/√5
    assert influence[t.Tukey] == pytest.approx(1.3 / np.sqrt(5) * 0.8**2, rel=5e-3)


@pytest.mark.catalog("LOSS-06")
def test_convexity_in_the_coefficients() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(20, 3)), rng.normal(size=20)

    def gap(loss: Any, v: Array, w: Array, a: float) -> float:
        mixed, left, right = (
            objectives.value(loss, y, X @ point).mean()
            for point in (a * v + (1 - a) * w, v, w)
        )
        return float(mixed - a * left - (1 - a) * right)

    def absolute(W: Array) -> Array:
        return objectives.value(t.Absolute(), y, W @ X.T).mean(axis=1)

    (V, W), a = rng.normal(0, 2, (2, 10_000, 3)), rng.uniform(size=(10_000, 1))
    chord = a[:, 0] * absolute(V) + (1 - a[:, 0]) * absolute(W)
    assert np.max(absolute(a * V + (1 - a) * W) - chord) <= 1e-12
    for _ in range(200):
        v, w, a = *rng.normal(0, 2, (2, 3)), rng.uniform()
        closed = -a * (1 - a) * np.sum((X @ (v - w)) ** 2) / 40
        assert gap(t.Squared(), v, w, a) == pytest.approx(closed, abs=1e-12)


# -- classification ---------------------------------------------------------------


@pytest.mark.catalog("LOSS-08")
def test_zero_one_loss_counts_mistakes() -> None:
    rng = np.random.default_rng(4)
    y, z = rng.choice([-1, 1], 300), rng.normal(size=300)
    rate = objectives.value(t.ZeroOne(), y, z).mean()
    assert rate == zero_one_loss(y, np.sign(z))
    assert objectives.value(t.ZeroOne(), [1, -1], 0.0).tolist() == [1.0, 1.0]


@pytest.mark.catalog("LOSS-09")
@given(z=FINITE, other=FINITE, y=st.sampled_from([-1, 1]))
def test_hinge(z: float, other: float, y: int) -> None:
    loss = t.Hinge()
    assert objectives.value(loss, y, z) == max(0.0, 1 - y * z)
    assert objectives.value(loss, y, z) >= objectives.value(t.ZeroOne(), y, z)
    slope = objectives.gradient(loss, y, z)
    assert slope == (-y if y * z <= 1 else 0)
    assert objectives.gradient(loss, y, float(y)) == -y  # at the kink
    line = objectives.value(loss, y, z) + slope * (other - z)
    assert objectives.value(loss, y, other) >= line - 1e-12


@pytest.mark.catalog("LOSS-10")
def test_stochastic_gradient_on_the_perceptron_loss_is_the_perceptron() -> None:
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.normal(size=(60, 3)), np.ones(60)])
    y = np.where(X @ [1.0, -2.0, 0.5, 0.2] > 0, 1, -1)
    assert objectives.value(t.Hinge(0.0), y, X[:, 0]).tolist() == [
        max(0.0, -a * b) for a, b in zip(y, X[:, 0])
    ]
    by_gradient, by_rule = np.zeros(4), np.zeros(4)
    mistakes = 0
    for i in itertools.chain(range(60), range(60), range(60)):
        slope = objectives.gradient(t.Hinge(0.0), y[i], X[i] @ by_gradient)
        by_gradient = by_gradient - slope * X[i]
        if y[i] * (X[i] @ by_rule) <= 0:
            by_rule, mistakes = by_rule + y[i] * X[i], mistakes + 1
        np.testing.assert_array_equal(by_gradient, by_rule)
    assert mistakes > 3


@pytest.mark.catalog("LOSS-11")
@given(z=st.floats(-1e6, 1e6), y=st.sampled_from([-1.0, 1.0]))
def test_squared_margin_is_squared_error(z: float, y: float) -> None:
    m = 1 - y * z
    assert 2 * objectives.value(t.Squared(), y, z) == m * m  # a power rounds otherwise


@pytest.mark.catalog("LOSS-12", "LOSS-13")
@given(g=st.floats(-30, 30), label=st.sampled_from([0, 1]))
def test_logistic_loss_in_both_codings(g: float, label: int) -> None:
    value = objectives.value(t.Binomial(), label, g)
    assert value == pytest.approx(-label * g + np.log1p(np.exp(g)), abs=1e-12)
    sign = 2 * label - 1
    assert value == pytest.approx(-special.log_expit(sign * g), abs=1e-12)
    if abs(g) < 8:  # beyond, 1 − σ(g) cancels in the reference
        known = stats.bernoulli(special.expit(g)).logpmf(label)
        assert value == pytest.approx(-known, abs=1e-12)
    assert objectives.value(t.Logistic(), sign, g) == pytest.approx(value, abs=1e-12)
    assert objectives.gradient(t.Logistic(), sign, g) == pytest.approx(
        objectives.gradient(t.Binomial(), label, g), abs=1e-12
    )
    bound = objectives.value(t.Logistic(), sign, g) / np.log(2)
    assert bound >= objectives.value(t.ZeroOne(), sign, g) - 1e-12


@pytest.mark.catalog("LOSS-12")
def test_logistic_loss_far_out() -> None:
    for loss, low, high in [(t.Binomial(), 0, 1), (t.Logistic(), -1, 1)]:
        assert objectives.value(loss, [high, low], [1000.0, -1000.0]).tolist() == [
            0.0,
            0.0,
        ]
        wrong = objectives.value(loss, [low, high], [1000.0, -1000.0])
        assert wrong.tolist() == [1000.0, 1000.0]


@pytest.mark.catalog("LOSS-14", "LOSS-15", "LOSS-16")
def test_log_loss_and_cross_entropy_are_softmax_at_log_probabilities() -> None:
    rng = np.random.default_rng(6)
    P, Q = rng.dirichlet(np.ones(4), (2, 50))
    y = rng.integers(0, 4, 50)
    loss = t.Softmax(4)
    hard = objectives.value(loss, y, np.log(P))
    np.testing.assert_allclose(hard, -np.log(P[np.arange(50), y]), atol=1e-12)
    assert hard.mean() == pytest.approx(log_loss(y, P, labels=range(4)), abs=1e-12)
    np.testing.assert_allclose(objectives.value(loss, np.eye(4)[y], np.log(P)), hard)
    soft, entropy = (
        objectives.value(loss, Q, np.log(P)),
        objectives.value(loss, Q, np.log(Q)),
    )
    np.testing.assert_allclose(soft, -(Q * np.log(P)).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(entropy, stats.entropy(Q, axis=1), atol=1e-12)
    divergence = special.rel_entr(Q, P).sum(axis=1)
    np.testing.assert_allclose(soft - entropy, divergence, atol=1e-12)
    assert np.all(soft > entropy)  # equality at P = Q alone
    certain = objectives.value(t.Softmax(2), [1.0, 0.0], [0.0, -np.inf])
    assert certain == 0.0  # 0·log 0 counts as 0


@pytest.mark.catalog("LOSS-17")
def test_softmax_from_logits_is_torchs() -> None:
    rng = np.random.default_rng(7)
    z, y, Q = (
        rng.normal(0, 3, (20, 5)),
        rng.integers(0, 5, 20),
        rng.dirichlet(np.ones(5), 20),
    )
    loss = t.Softmax(5)
    for target in (y, Q):
        logits = torch.tensor(z, requires_grad=True)
        value = torch.nn.functional.cross_entropy(
            logits, torch.tensor(target), reduction="none"
        )
        np.testing.assert_allclose(objectives.value(loss, target, z), value.detach())
        value.sum().backward()
        slope = objectives.gradient(loss, target, z)
        np.testing.assert_allclose(slope, logits.grad, atol=1e-12)


@pytest.mark.catalog("LOSS-17")
@given(seed=st.integers(0, 10**6), shift=st.floats(-100, 100))
def test_softmax_from_logits(seed: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    z, Q = rng.normal(0, 3, (6, 3)), rng.dirichlet(np.ones(3), 6)
    value = objectives.value(t.Softmax(3), Q, z)
    by_hand = -(Q * z).sum(axis=1) + np.log(np.exp(z).sum(axis=1))
    np.testing.assert_allclose(value, by_hand, atol=1e-12)
    shifted = objectives.value(t.Softmax(3), Q, z + shift)
    np.testing.assert_allclose(shifted, value, atol=1e-11)
    slope = objectives.gradient(t.Softmax(3), Q, z)
    np.testing.assert_allclose(slope, special.softmax(z, axis=1) - Q, atol=1e-14)
    dual = objectives.conjugate(t.Softmax(3), Q, slope)
    np.testing.assert_allclose(value + dual, (slope * z).sum(axis=1), atol=1e-11)
