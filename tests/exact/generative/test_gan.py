"""Adversarial networks: games with known values, gradients and solutions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm, wasserstein_distance

from certus import certify, load
from certus.certificate import Strength
from certus.generative import (
    GenerativeAdversarial,
    descent_ascent,
    mode_shares,
    wasserstein_bound,
)
from certus.generative.games import GAMES, TwoPlayerStep, kernel_distance
from certus.neural_network.batches import Batch
from certus.neural_network.modules import Adversarial, LipschitzCritic
from certus.objectives import Logistic, gradient
from certus.verify.made_rows import fresh_claim, mode_claim
from certus.verify.perceptrons import RowsGiven

RING = 2 * np.column_stack(
    [np.cos(np.arange(8) * math.pi / 4), np.sin(np.arange(8) * math.pi / 4)]
)


def fitted(X: np.ndarray, y: object = None, **given: object) -> GenerativeAdversarial:
    options = {
        "hidden_layer_sizes": (32,),
        "critic_layer_sizes": (32,),
        "n_components": 2,
        "max_iter": 600,
        "random_state": 0,
        **given,
    }
    return GenerativeAdversarial(**options).fit(X, y)


@pytest.fixture(scope="module")
def line() -> GenerativeAdversarial:
    X = np.random.default_rng(0).normal(3.0, 2.0, size=(2000, 1))
    return fitted(X)


@pytest.mark.catalog("GEN-11", "GEN-23")
def test_alternating_training_finds_mean_and_variance(line) -> None:
    drawn = line.sample(4000, random_state=1)
    assert abs(drawn.mean() - 3.0) < 0.4
    assert abs(drawn.std() - 2.0) < 0.5
    assert not hasattr(line, "score_samples")
    with pytest.raises(AttributeError, match="examine"):
        line.score_samples(drawn)


@pytest.mark.catalog("GEN-11")
@pytest.mark.parametrize("loss", sorted(GAMES))
def test_gradients_of_both_players_are_those_of_finite_differences(loss: str) -> None:
    rng, h = np.random.default_rng(0), 1e-6
    real, made = (torch.from_numpy(rng.normal(size=5)) for _ in range(2))
    game = GAMES[loss]
    for of in (lambda m: game.critic(real, m), game.generator):
        m = made.clone().requires_grad_()
        (g,) = torch.autograd.grad(of(m), m)
        steps = h * torch.eye(5, dtype=torch.float64)
        by_hand = [(of(made + e) - of(made - e)) / (2 * h) for e in steps]
        np.testing.assert_allclose(g.numpy(), by_hand, atol=1e-7)


@pytest.mark.catalog("GEN-16")
def test_the_critic_of_a_game_is_a_logistic_regression() -> None:
    rng = np.random.default_rng(1)
    real, made = (torch.from_numpy(rng.normal(size=6)) for _ in range(2))
    s = torch.cat([real, made]).requires_grad_()
    (g,) = torch.autograd.grad(GAMES["minimax"].critic(s[:6], s[6:]), s)
    y = np.repeat([1.0, -1.0], 6)
    both = s.detach().numpy()
    expected = gradient(Logistic(), y, both) / 6
    np.testing.assert_allclose(g.numpy(), expected, atol=1e-12)


@pytest.mark.catalog("GEN-15")
def test_players_alternate_and_the_bilinear_game_stays_bounded() -> None:
    xs, ys = descent_ascent(lambda x, y: (y, x), 1.0, 1.0, max_iter=500)
    assert np.hypot(xs, ys).max() < 2.0
    xs, ys = descent_ascent(
        lambda x, y: (y, x), 1.0, 1.0, max_iter=500, alternating=False
    )
    np.testing.assert_allclose(np.hypot(xs, ys)[-1], math.sqrt(2) * 1.01**250)
    # The step of a fit: the critic climbs, then the generator descends against it.
    module = Adversarial(1, 1, (4,), (4,)).double()
    x = torch.linspace(2, 3, 64, dtype=torch.float64)[:, None]
    game, moves = GAMES["minimax"], []

    def worth() -> float:
        with torch.random.fork_rng(), torch.no_grad():
            torch.default_generator.manual_seed(7)
            made = module.draw(500)
            return -float(game.critic(module.score(x), module.score(made)))

    class Noted(torch.optim.SGD):
        def step(self, closure: object = None) -> None:
            before = worth()
            super().step()
            moves.append((self.name, worth() - before))

    optimizers = {}
    for name in ("generator", "critic"):
        optimizers[name] = Noted(getattr(module, name).parameters(), lr=0.05)
        optimizers[name].name = name
    step = TwoPlayerStep(module, optimizers, "minimax", critic_steps=2)
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        for _ in range(20):
            step(Batch((x, None), x, None))
    assert [name for name, _ in moves[:3]] == ["critic", "critic", "generator"]
    change = {k: np.sum([c for name, c in moves if name == k]) for k in optimizers}
    assert change["critic"] > 0 > change["generator"]


@pytest.mark.catalog("GEN-18")
def test_a_good_critic_leaves_minimax_without_gradient() -> None:
    """Disjoint supports: the better D is, the less log(1 − D) teaches."""
    sizes = {"minimax": [], "nonsaturating": []}
    for scale in (1.0, 3.0, 9.0, 27.0):
        for loss, found in sizes.items():
            made = torch.zeros(8, dtype=torch.float64, requires_grad=True)
            S = scale * (made - 1.0)  # the critic: real rows at 2, made ones at 0
            (g,) = torch.autograd.grad(GAMES[loss].generator(S), made)
            found.append(float(g.norm()) / scale)
    assert all(np.diff(sizes["minimax"]) < 0) and sizes["minimax"][-1] < 1e-11
    assert all(np.diff(sizes["nonsaturating"]) >= 0)


@pytest.mark.catalog("GEN-17")
def test_modes_are_counted_and_a_collapse_is_seen() -> None:
    rng = np.random.default_rng(0)
    X = RING[rng.integers(8, size=4000)] + 0.05 * rng.normal(size=(4000, 2))
    whole = mode_shares(X, RING, radius=0.15)
    assert whole.covered() == 8 and whole.inside > 0.97
    one = mode_shares(X[X[:, 0] > 1.7], RING, radius=0.15)
    assert one.covered() == 1
    # A generator with one unit cannot reach a ring: the metric says so.
    poor = fitted(X, hidden_layer_sizes=(1,), max_iter=200)
    assert (
        mode_shares(poor.sample(2000, random_state=0), RING, radius=0.15).covered() < 8
    )


@pytest.mark.catalog("GEN-19")
def test_classes_have_their_own_means() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1500)
    X = rng.normal(size=(1500, 2)) + 4.0 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    model = fitted(X, y, loss="mmd", max_iter=400)
    for c, mean in enumerate(([0, 0], [4, 0], [0, 4])):
        drawn, labels = model.sample(1000, y=c, random_state=2)
        assert (labels == c).all()
        np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.6)


@pytest.mark.catalog("GEN-20")
@pytest.mark.parametrize("d", [2, 8])
def test_the_distance_is_bounded_from_below(d: int) -> None:
    rng = np.random.default_rng(0)
    shift = np.eye(d)[0]
    X, Y = rng.normal(size=(20_000, d)), rng.normal(size=(20_000, d)) + shift
    bound = wasserstein_bound(X, Y, random_state=0)
    assert 0.8 <= bound.value <= 1.0
    assert bound.claim.strength is Strength.STATISTICAL
    same = wasserstein_bound(X[:2000], X[2000:4000], max_iter=50, random_state=0)
    assert same.value == 0.0


@pytest.mark.catalog("GEN-20")
def test_the_bound_of_two_point_masses_is_their_distance() -> None:
    for theta in (0.5, 2.0):
        X, Y = np.zeros((400, 1)), np.full((400, 1), theta)
        bound = wasserstein_bound(X, Y, random_state=0)
        with torch.no_grad():
            rows = torch.tensor([[0.0], [theta]], dtype=torch.float64) / bound.scale
            a, b = bound.critic(rows)[:, 0]
        gap = abs(float(a - b)) * bound.scale
        assert 0.95 * theta < gap <= theta * (1 + 1e-6)
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=4000), rng.exponential(size=4000) + 1
    truth = wasserstein_distance(X, Y)
    assert 0.75 * truth < wasserstein_bound(X, Y, random_state=0).value <= truth + 0.05


@pytest.mark.catalog("GEN-20")
def test_the_critic_of_a_fit_never_rises_faster_than_one() -> None:
    X = np.random.default_rng(0).normal(size=(500, 2))
    model = fitted(X, loss="wasserstein", critic_steps=3, max_iter=150)
    new = np.random.default_rng(1).normal(size=(4000, 2))
    pairs = model.critic_scores(new[:2000]) - model.critic_scores(new[2000:])
    far = np.linalg.norm((new[:2000] - new[2000:]) / model.scale_, axis=1)
    assert (np.abs(pairs) <= far * (1 + 1e-6)).all()
    claim = certify(model, new)["divergence"]
    assert claim.strength is Strength.STATISTICAL and claim.value < 0.5


def test_a_wrong_generator_is_recognised() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 1))
    model = fitted(X, max_iter=300)
    with torch.no_grad():
        model.network_.generator.output.bias += 4.0
        for p in model.network_.critic.parameters():
            p.mul_(0.0)
        model.network_.critic.output.weight[0, 0] = 0.0
        model.network_.critic.layers[0].linear.weight[0, 0] = -1.0
        model.network_.critic.layers[0].linear.bias[0] = 2.0
        model.network_.critic.output.weight[0, 0] = 5.0
    claim = certify(model, rng.normal(size=(4000, 1)))["divergence"]
    assert 0.2 < claim.value <= math.log(2)
    assert certify(model, X)["players_agree"].met


def test_faults_are_found(line, tmp_path, monkeypatch) -> None:
    X = np.random.default_rng(0).normal(3.0, 2.0, size=(2000, 1))
    assert line.certificate_["players_agree"].met
    whole = GenerativeAdversarial.critic_scores
    with monkeypatch.context() as changed:
        changed.setattr(
            GenerativeAdversarial, "critic_scores", lambda *a: whole(*a) + 1e-4
        )
        assert certify(line, X)["players_agree"].met is False
    line.save(tmp_path / "gan.certus")
    again = load(tmp_path / "gan.certus")
    np.testing.assert_array_equal(
        again.sample(5, random_state=0), line.sample(5, random_state=0)
    )


def test_a_collapsed_generator_is_named() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = fitted(X, max_iter=20)
    with torch.no_grad():
        model.network_.generator.output.weight.zero_()
    assert "collapsed" in certify(model, X)["spread"].detail


def test_a_missing_mode_is_named_by_the_certificate() -> None:
    """Made rows of the verifier beside cells of real rows, with a level."""
    rng = np.random.default_rng(0)
    X = RING[rng.integers(8, size=2000)] + 0.05 * rng.normal(size=(2000, 2))
    whole = X[rng.integers(2000, size=4000)]
    claim = mode_claim(X, whole)
    assert claim.met and claim.strength is Strength.STATISTICAL and claim.value > 0.5
    seven = whole[np.linalg.norm(whole - RING[3], axis=1) > 0.5]
    claim = mode_claim(X, seven)
    assert claim.met is False and "hardly ever made" in claim.detail


def test_a_fresh_critic_sees_what_the_own_one_does_not() -> None:
    """The own critic is set to zero; the verifier's is not deceived."""
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(600, 2)), rng.normal(size=(3000, 2))
    model = fitted(X, max_iter=10)
    with torch.no_grad():
        for p in model.network_.parameters():
            p.zero_()
        model.network_.generator.output.bias += 3.0
    found = certify(model, new)
    assert found["divergence"].value < 0.01
    fresh = found["fresh_critic"]
    assert fresh.strength is Strength.STATISTICAL and 0.4 < fresh.value <= math.log(2)
    assert certify(model, X)["fresh_critic"].strength is Strength.MEASURED
    # Against rows of the same law it finds nothing.
    rows = RowsGiven(new, new, None, np.arange(3000), np.arange(0), False, {})
    claim = fresh_claim(rows, rng.normal(size=(4000, 2)), None, 0)
    assert claim is not None and claim.value == 0.0


def test_kernel_distance_is_that_of_normals() -> None:
    rng = np.random.default_rng(0)
    x, y = (torch.from_numpy(rng.normal(m, 1, size=(1500, 1))) for m in (0.0, 1.0))
    found = float(kernel_distance(x, y, torch.tensor([1.0], dtype=torch.float64)))
    # E k = N(difference; 0, 2 + h²)·√(2π)h with h = 1.
    near, far = (
        norm.pdf(m, scale=math.sqrt(3)) * math.sqrt(2 * math.pi) for m in (0, 1)
    )
    assert found == pytest.approx(2 * (near - far), abs=0.02)


def test_a_critic_of_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="even"):
        LipschitzCritic(2, (5,))
    with pytest.raises(ValueError, match="one of"):
        GenerativeAdversarial(loss="hinge").fit(np.eye(3))


def test_a_critic_is_projected_where_float32_fails(monkeypatch) -> None:
    """LAPACK may give up on equal singular values; NaN is left for the loss to show."""
    critic, whole = LipschitzCritic(2, (4,)), torch.linalg.svd

    def stubborn(W: torch.Tensor, **options: object) -> object:
        if W.dtype == torch.float32:
            raise torch.linalg.LinAlgError("did not converge")
        return whole(W, **options)

    monkeypatch.setattr(torch.linalg, "svd", stubborn)
    with torch.no_grad():
        critic.layers[0].weight.mul_(3.0)
        critic.layers[1].weight.fill_(torch.nan)
    critic.project()
    W = critic.layers[0].weight.detach()
    torch.testing.assert_close(W.T @ W, torch.eye(2))
    assert critic.layers[1].weight.isnan().all()
