"""Attacks with gradients: closed forms for linear models, and what holds for all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm as normal

from certus.robustness import (
    PGD,
    DeepFool,
    OneStep,
    ThreatModel,
    Worst,
    attack,
    relative_robustness,
    robust_accuracy,
)
from certus.robustness.attacks import SURROGATES
from certus.robustness.target import Formula, LinearTarget
from certus.threat import row_norms

torch = pytest.importorskip("torch")

NORMS = [1, 1.5, 2, 3, math.inf]


def linear(W, b):
    """A linear model with scores W x + b."""
    W, b = np.asarray(W, dtype=float), np.asarray(b, dtype=float)
    if W.ndim == 1:
        W, b = np.vstack([np.zeros_like(W), W]), np.array([0.0, float(b)])

    def predict(X):
        return np.argmax(np.asarray(X, dtype=float) @ W.T + b, axis=1)

    return LinearTarget(predict, np.arange(len(W)), Formula(W, b))


def network(seed=0, d=12, classes=4, width=24):
    """A small network with random weights, of float64, and rows for it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        first, last = torch.nn.Linear(d, width), torch.nn.Linear(width, classes)
        # Steep enough to be far from linear.
        first.weight.data *= 6
        module = torch.nn.Sequential(first, torch.nn.Tanh(), last).double().eval()
    X = np.random.default_rng(seed).uniform(0, 1, (150, d))
    return module, X


def exact_distances(target, X, y, q):
    """To the nearest boundary of a linear model: min over j of the gap by ‖w‖_q."""
    W, b = target.formula
    z = X @ W.T + b
    found = np.full(len(X), np.inf)
    for j in range(len(W)):
        at = np.flatnonzero(y != j)
        gap = z[at, y[at]] - z[at, j]
        found[at] = np.minimum(found[at], gap / row_norms(W[j] - W[y[at]], q))
    return found


@pytest.mark.catalog("ADV-01", "ADV-02")
@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_risk_of_a_linear_rule_on_gaussian_classes(p):
    """Φ((ε‖w‖_q − m)/s) with the margin's mean m and deviation s; counted and exact."""
    rng = np.random.default_rng(0)
    d, n = 6, 20000
    mean, w = rng.normal(0, 0.6, d), rng.normal(0, 1, d)
    w *= np.sign(w @ mean)
    L = rng.normal(0, 0.4, (d, d)) + np.eye(d)
    y = rng.integers(0, 2, n)
    X = (2 * y - 1)[:, None] * mean + rng.standard_normal((n, d)) @ L.T
    target, deviation = linear(w, 0.0), np.linalg.norm(L.T @ w)
    dual = ThreatModel(p, 1.0).dual
    before = 0.0
    for radius in (0.0, 0.1, 0.3, 0.8):
        found = attack(target, X, y, ThreatModel(p, radius), Worst())
        shift = radius * np.linalg.norm(w, dual)
        truth = normal.cdf((shift - w @ mean) / deviation)
        seen = found.interval(1e-6)
        assert seen.low <= truth <= seen.high
        assert 1 - found.accuracy >= before
        before = 1 - found.accuracy
    assert before > 0.3


def toy(d, n, seed):
    """One strong feature, y + noise, and d − 1 weak ones; ±1 as 1 and 0."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    means = np.full(d, math.sqrt(math.log(d) / (d - 1)))
    means[0] = 1.0
    return (2 * y - 1)[:, None] * means + rng.standard_normal((n, d)), y, means


@pytest.mark.catalog("ADV-18", "ADV-19")
def test_accurate_rules_need_not_be_robust():
    """All features: risk .00246, but .985 under ε = .166; the strong one: .1587."""
    d, n = 1000, 4000
    X, y, means = toy(d, n, 0)
    epsilon = 2 * means[1]
    level = math.log(d)
    standard = normal.cdf(-math.sqrt(1 + level))
    attacked = normal.cdf((level - 1 + epsilon) / math.sqrt(1 + level))
    assert (round(standard, 5), round(attacked, 3)) == (0.00246, 0.985)
    assert round(epsilon, 3) == 0.166
    everything, one = linear(means, 0.0), linear(np.eye(d)[0], 0.0)
    for target, radius, truth in (
        (everything, 0.0, standard),
        (everything, epsilon, attacked),
        (one, 0.0, normal.cdf(-1)),
        (one, epsilon, normal.cdf(-1 + epsilon)),
    ):
        found = attack(target, X, y, ThreatModel("linf", radius), Worst())
        seen = found.interval(1e-6)
        assert seen.low <= truth <= seen.high
    # The perturbation turns the weak features round: they now have mean −y.
    found = attack(everything, X, y, ThreatModel("linf", epsilon), Worst())
    signs = (2 * y - 1)[found.fooled, None] * found.changes[found.fooled]
    np.testing.assert_allclose(signs[:, 1:], -epsilon)
    assert normal.cdf(-1) == pytest.approx(0.1587, abs=5e-5)


@pytest.mark.catalog("ADV-19")
def test_the_toy_perturbation_shrinks_with_more_features():
    """A million features: ε = .0074, and the risk .99957."""
    d = 10**6
    X, y, means = toy(d, 2, 0)
    target, epsilon = linear(means, 0.0), 2 * means[1]
    assert round(epsilon, 4) == 0.0074
    found = attack(target, X, y, ThreatModel("linf", epsilon), Worst())
    assert found.fooled.all() and np.abs(found.changes).max() <= epsilon * (1 + 1e-12)
    fall = (2 * y - 1) * (-found.changes @ means)
    # The margin is normal of mean and variance ‖μ‖²; the attack takes `fall` from it.
    size = np.linalg.norm(means)
    risk = normal.cdf((fall - size**2) / size)
    np.testing.assert_array_equal(np.round(risk, 5), 0.99957)


@pytest.mark.catalog("ADV-05", "ADV-06", "ADV-07")
@pytest.mark.parametrize("p", NORMS)
def test_one_step_is_the_worst_case_of_a_linear_model(p):
    """‖δ‖ = ε and the margin falls by exactly ε‖w‖_q."""
    rng = np.random.default_rng(1)
    w, X = rng.standard_normal(8), rng.standard_normal((50, 8))
    target, threat = linear(w, 0.3), ThreatModel(p, 0.2)
    y = target.labels(X)
    X_hat = OneStep().run(target, X, y, threat, None)
    np.testing.assert_allclose(row_norms(X_hat - X, p), 0.2)
    fall = (2 * y - 1) * ((X - X_hat) @ w)
    np.testing.assert_allclose(fall, 0.2 * row_norms(w[None], threat.dual)[0])
    if p == math.inf:
        np.testing.assert_allclose(X_hat, X - 0.2 * np.outer(2 * y - 1, np.sign(w)))
    if p == 2:
        step = np.outer(2 * y - 1, w / np.linalg.norm(w))
        np.testing.assert_allclose(X_hat, X - 0.2 * step)


@pytest.mark.catalog("ADV-08", "ADV-09", "ADV-10")
@pytest.mark.parametrize("loss", ["cross_entropy", "margin"])
@pytest.mark.parametrize("p", NORMS)
def test_steps_raise_the_loss_above_that_of_one_step(p, loss):
    """And stay in the ball and in the box."""
    module, X = network()
    radius = 0.1 * X.shape[1] ** (1 / p)
    for low, high in ((-math.inf, math.inf), (0.0, 1.0)):
        threat = ThreatModel(p, radius, low, high)
        rows = torch.as_tensor(X)
        target = as_torch(module, X)
        y = torch.argmax(target.scores(rows), dim=1)
        value, _ = SURROGATES[loss]
        one = OneStep(loss).run(target, rows, y, threat, None)
        run = PGD(steps=60, loss=loss, stop=False).run
        many = run(target, rows, y, threat, np.random.default_rng(0))
        assert (row_norms(many - rows, p) <= radius * (1 + 1e-9)).all()
        assert ((many >= low) & (many <= high)).all()
        gain = value(y, target.scores(many)) - value(y, target.scores(one))
        assert gain.min() >= -1e-3
        if low == -math.inf:
            assert gain.min() >= -1e-12
        assert gain.mean() > 0.001


def as_torch(module, X):
    from certus.robustness import as_target

    return as_target(module, X)


@pytest.mark.catalog("ADV-08", "ADV-09")
@pytest.mark.parametrize("p", [2, math.inf])
def test_plain_steps_are_those_of_the_definition(p):
    """Two steps of constant size, written out."""
    module, X = network(1)
    threat, rows = ThreatModel(p, 0.3), torch.as_tensor(X)
    target = as_torch(module, X)
    y = torch.argmax(target.scores(rows), dim=1)
    x = rows.clone()
    for _ in range(2):
        x = x.detach().requires_grad_(True)
        loss = torch.nn.functional.cross_entropy(module(x), y, reduction="sum")
        (G,) = torch.autograd.grad(loss, x)
        step = G.sign() if p == math.inf else G / G.norm(dim=1, keepdim=True)
        D = x.detach() + 0.5 * 0.3 * step - rows
        if p == math.inf:
            D = D.clip(-0.3, 0.3)
        else:
            D = D * (0.3 / D.norm(dim=1, keepdim=True)).clip(max=1)
        x = rows + D
    run = PGD(steps=2, step_size=0.5, stop=False).run
    found = run(target, rows, y, threat, np.random.default_rng(0))
    value = SURROGATES["cross_entropy"].value
    better = value(y, target.scores(x)) >= value(y, target.scores(rows))
    assert better.double().mean() > 0.8
    np.testing.assert_allclose(found[better], x[better], atol=1e-6)


@pytest.mark.parametrize("box", [(-math.inf, math.inf), (0.0, 1.0)])
@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_steps_find_the_worst_of_a_linear_model(p, box):
    rng = np.random.default_rng(2)
    X, W = rng.uniform(0, 1, (300, 10)), rng.standard_normal((4, 10))
    target = linear(W, -W @ np.full(10, 0.5))
    threat = ThreatModel(p, 0.05 * 10 ** (1 / p), *box)
    best = attack(target, X, None, threat, Worst())
    found = attack(target, X, None, threat, PGD(loss="rivals", restarts=3))
    assert 0.2 < best.success < 0.95
    assert not (found.fooled & ~best.fooled).any()
    assert found.success >= best.success - 0.011


@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_many_steps_are_at_least_as_strong_as_the_nearest_boundary(p):
    """Of the rows that DeepFool brings inside the radius, all but a few."""
    module, X = network(3)
    far = ThreatModel(p, math.inf, 0, 1)
    radius = float(np.median(attack(module, X, None, far, DeepFool()).distances))
    threat = ThreatModel(p, radius, 0, 1)
    deep, one, many = (
        attack(module, X, None, threat, method, random_state=0).accuracy
        for method in (DeepFool(), OneStep(), PGD(loss="rivals", restarts=3))
    )
    assert many <= deep + 0.01
    assert many <= one


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_random_starts_and_restarts_only_help(dtype):
    module, X = network(4)
    module = module.to(torch.float32 if dtype is np.float32 else torch.float64)
    X = X.astype(dtype)
    threat = ThreatModel("linf", 0.1, 0, 1)
    few = attack(module, X, None, threat, PGD(5, random_start=True), random_state=3)
    more = PGD(5, random_start=True, restarts=5)
    many = attack(module, X, None, threat, more, random_state=3)
    again = attack(module, X, None, threat, more, random_state=3)
    assert many.X_hat.dtype == dtype
    assert (few.fooled <= many.fooled).all()
    np.testing.assert_array_equal(many.X_hat, again.X_hat)
    assert many.gradients > few.gradients


@pytest.mark.catalog("ADV-21")
@pytest.mark.parametrize("p", NORMS)
def test_deepfool_reaches_the_boundary_of_two_classes_in_one_step(p):
    """r = (f₁ − f₂)/‖w‖_q^q · |w|^(q−1) ⊙ sgn(w), w = ∇f₂ − ∇f₁."""
    rng = np.random.default_rng(5)
    w, X = rng.standard_normal(7), rng.standard_normal((40, 7))
    target, threat = linear(w, 0.4), ThreatModel(p, math.inf)
    y = target.labels(X)
    method = DeepFool(steps=2, overshoot=1e-6, halvings=0, refinements=0)
    found = attack(target, X, None, threat, method)
    assert found.success == 1.0
    assert found.gradients == len(X)
    q, f = threat.dual, np.abs(X @ w + 0.4)
    np.testing.assert_allclose(found.distances, f / np.linalg.norm(w, q), rtol=1e-5)
    if math.isfinite(q):
        toward = -(2 * y - 1)[:, None] * w
        size = f[:, None] / np.sum(np.abs(w) ** q) * np.abs(w) ** (q - 1)
        np.testing.assert_allclose(found.changes, size * np.sign(toward), rtol=1e-5)


@pytest.mark.catalog("ADV-22", "ADV-20")
@pytest.mark.parametrize("p", NORMS)
def test_deepfool_finds_the_nearest_of_many_classes(p):
    rng = np.random.default_rng(6)
    target = linear(rng.standard_normal((5, 7)), rng.standard_normal(5))
    X, threat = rng.standard_normal((60, 7)), ThreatModel(p, math.inf)
    y = target.labels(X)
    truth = exact_distances(target, X, y, threat.dual)
    found = attack(target, X, None, threat, DeepFool(overshoot=1e-4))
    assert found.success == 1.0
    np.testing.assert_allclose(found.distances, truth, rtol=2e-4)
    assert (found.distances >= truth * (1 - 1e-9)).all()
    assert (target.labels(found.X_hat) != y).all()
    assert (found.predicted == target.labels(X + found.changes)).all()


def test_drawing_back_and_refining_shorten_the_way():
    module, X = network(7)
    threat = ThreatModel("l2", math.inf)
    long, short, refined = (
        attack(module, X, None, threat, DeepFool(halvings=h, refinements=r))
        for h, r in ((0, 0), (8, 0), (8, 4))
    )
    assert refined.success == short.success == long.success == 1.0
    assert (short.distances <= long.distances).all()
    assert (refined.distances <= short.distances).all()
    assert short.distances.mean() < 0.995 * long.distances.mean()
    assert refined.distances.mean() < 0.99 * short.distances.mean()


@pytest.mark.catalog("ADV-23")
@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_relative_robustness_of_an_affine_model(p):
    """ρ = mean of |wᵀx + b|/(‖w‖_q‖x‖_p)."""
    rng = np.random.default_rng(8)
    w, X = rng.standard_normal(5), rng.standard_normal((80, 5))
    q = ThreatModel(p, 1.0).dual
    truth = np.mean(np.abs(X @ w - 0.2) / np.linalg.norm(w, q) / row_norms(X, p))
    method = DeepFool(overshoot=1e-5)
    rho = relative_robustness(linear(w, -0.2), X, norm=p, method=method)
    assert rho == pytest.approx(truth, rel=1e-4)
    # True classes: rows that are wrong already do not count.
    y = linear(w, -0.2).labels(X)
    y[:40] = 1 - y[:40]
    some = relative_robustness(linear(w, -0.2), X, y, norm=p, method=method)
    rest = X[40:]
    own = np.abs(rest @ w - 0.2) / np.linalg.norm(w, q) / row_norms(rest, p)
    assert some == pytest.approx(np.mean(own), rel=1e-4)
    with pytest.raises(ValueError, match="none may be 0"):
        relative_robustness(linear(w, -0.2), np.zeros((1, 5)))
    assert relative_robustness(linear(w * 0, 1.0), X) == math.inf


@pytest.mark.catalog("ADV-24")
def test_smallest_changes_are_recognised_by_their_confidence():
    """They lie at the boundary: both classes about as likely, unlike the rows."""
    module, X = network(9, classes=2)
    found = attack(module, X, None, ThreatModel("l2", math.inf), DeepFool())
    with torch.no_grad():
        before, after = (
            torch.softmax(module(torch.as_tensor(A)), dim=1).max(dim=1).values.numpy()
            for A in (X, found.X_hat)
        )
    assert found.success == 1.0
    assert np.abs(after - 0.5).max() < 0.01 < np.median(np.abs(before - 0.5))


@pytest.mark.catalog("ADV-02")
def test_robust_accuracy_of_linear_models_by_enumeration():
    """For p = ∞ the corners of the cube decide; all of them are tried."""
    rng = np.random.default_rng(10)
    target = linear(rng.standard_normal((3, 4)), rng.standard_normal(3))
    X = rng.standard_normal((60, 4))
    corners = 0.2 * np.array(np.meshgrid(*[[-1, 1]] * 4)).reshape(4, -1).T
    y = target.labels(X)
    stands = [(target.labels(x + corners) == c).all() for x, c in zip(X, y)]
    found = robust_accuracy(target, X, y, ThreatModel("linf", 0.2), random_state=0)
    assert found.lower == found.upper == np.mean(stands)
    np.testing.assert_array_equal(found.certified, stands)


def test_the_success_of_an_attack_is_described_in_words():
    """Not in arrays, of which a result has many."""
    model = linear([1.0, 0.0], 0.0)
    X = np.array([[0.1, 0.0], [5.0, 0.0], [-5.0, 0.0], [-3.0, 0.0]])
    found = attack(model, X, np.array([1, 1, 0, 1]), ThreatModel("linf", 0.5))
    assert found.verdict == (
        "1 of 3 correctly predicted rows are fooled: accuracy 50.0 % "
        "(75.0 % without changes)"
    )
    assert str(found) == repr(found) and "array(" not in repr(found)
