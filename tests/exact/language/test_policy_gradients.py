"""Gradients of policies: estimates against sums over all answers, ratios, clipping."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.helpers.policies import (  # noqa: E402
    Table,
    all_answers,
    drawn,
    exact_objective,
    rollout,
)

from certus.language import LanguageModel  # noqa: E402
from certus.language.tuning.policy_losses import (  # noqa: E402
    PolicyLoss,
    advantages,
    clipped_surrogate,
    divergences,
    floored,
    group_advantages,
    to_go,
)
from certus.language.tuning.ppo import PPO  # noqa: E402
from certus.language.tuning.rollouts import PolicyCourse, begin_tuning  # noqa: E402

BETA, FLOOR, LENGTH = 0.3, 0.05, 3
REWARDS = np.array([0.0, 1.0, -0.5, 0.3])


def reward(y):
    """Depends on all tokens and on the length."""
    return float(REWARDS[y].sum() - 0.1 * len(y) ** 2)


def estimates(module, reference, group, batches, n=128):
    """Gradients of the loss for batches of drawn answers, as vectors."""
    rng, found = np.random.default_rng(0), []
    for _ in range(batches):
        answers = drawn(module, n, LENGTH, rng)
        r = torch.tensor([reward(y) for y in answers], dtype=torch.float64)
        made = rollout(
            *(module, reference, answers),
            lambda kl, row, r=r: advantages(r, kl, row, group, BETA),
            FLOOR,
        )
        module.zero_grad()
        PolicyLoss(BETA, 0.2)(module, made)["loss"].backward()
        found.append(-module.theta.grad.numpy().ravel().copy())
    return np.array(found)


@pytest.mark.catalog("LM-18")
@pytest.mark.parametrize("group", [1, 4])
def test_the_policy_gradient_is_that_of_all_answers_of_an_mdp(group):
    """Fails if later divergences, the baseline or the direct term are wrong."""
    module, reference = Table(4, seed=1), Table(4, seed=2)
    J = exact_objective(module, reference, reward, BETA, LENGTH, FLOOR)
    (exact,) = torch.autograd.grad(J, module.theta)
    found = estimates(module, reference, group, batches=80)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    z = (found.mean(axis=0) - exact.numpy().ravel()) / np.maximum(error, 1e-12)
    assert np.abs(z).max() < 4.5  # 16 numbers
    assert exact.abs().max() > 10 * error.max() / 2  # the test can tell


def test_without_later_divergences_the_gradient_would_be_wrong():
    """Companion: what the test above would see."""
    module, reference = Table(4, seed=1), Table(4, seed=2)
    J = exact_objective(module, reference, reward, BETA, LENGTH, FLOOR)
    (exact,) = torch.autograd.grad(J, module.theta)
    rng, found = np.random.default_rng(0), []
    for _ in range(80):
        answers = drawn(module, 128, LENGTH, rng)
        r = torch.tensor([reward(y) for y in answers], dtype=torch.float64)
        made = rollout(
            *(module, reference, answers),
            lambda kl, row, r=r: (r - r.mean())[row],
            FLOOR,
        )
        module.zero_grad()
        PolicyLoss(BETA, 0.2)(module, made)["loss"].backward()
        found.append(-module.theta.grad.numpy().ravel().copy())
    found = np.array(found)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert np.abs((found.mean(axis=0) - exact.numpy().ravel()) / error).max() > 6


@pytest.mark.catalog("LM-18")
def test_a_drawn_iteration_has_the_exact_gradient_of_a_bandit():
    """The whole loop: compiled draws of a language model, rewards, advantages."""
    words = {"n_layers": 1, "width": 16, "heads": 2, "context": 8, "max_iter": 30}
    base = LanguageModel(**words, random_state=0).fit("abacad" * 60)
    value = np.random.default_rng(0).normal(size=257)
    model = PPO(
        base,
        lambda prompt, answer: value[ord(answer[0]) % 257 if answer else 256],
        max_tokens=1,
        batch_size=512,
        beta=BETA,
    )
    model.max_tokens_ = 1
    rng = np.random.default_rng(1)
    loss = PolicyLoss(BETA, 0.2)
    run = begin_tuning(model, model._module, loss, 1e-3, rng)
    module = run.step.modules["module"]
    with torch.no_grad():  # the policy is not its reference
        for p in module.parameters():
            p += 0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0))
    course = PolicyCourse(model, run, [np.array([97])], ["a"], None)
    seen = torch.tensor([[256, 97]])
    lp = torch.log_softmax(module(seen).output[0, -1].double(), dim=0)
    with torch.no_grad():
        lq = torch.log_softmax(base.network_(seen).output[0, -1].double(), dim=0)
    lq = floored(lq, model.floor)
    decode = base.tokenizer_.decode
    r = [model.reward("a", decode([v])) for v in range(257)]
    J = (lp.exp() * (torch.tensor(r) - BETA * (lp - lq))).sum()
    exact = torch.autograd.grad(J, list(module.parameters()))
    exact = torch.cat([g.ravel() for g in exact]).numpy()
    directions = np.random.default_rng(2).normal(size=(len(exact), 6))
    found = []
    for _ in range(16):
        module.zero_grad()
        loss(module, course.roll(rng))["loss"].backward()
        g = torch.cat([p.grad.ravel() for p in module.parameters()]).numpy()
        found.append(-g @ directions)
    found = np.array(found)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert np.abs((found.mean(axis=0) - exact @ directions) / error).max() < 4.5
    assert np.abs(exact @ directions).max() > 4 * error.max()


@pytest.mark.catalog("LM-21")
def test_at_ratio_one_the_surrogate_has_the_policy_gradient():
    z = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)).double()
    z.requires_grad_(True)
    wanted = torch.tensor([0, 1, 2, 3, 4, 0, 1])
    A = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0, -1.0, 2.0]).double()
    lp = torch.log_softmax(z, dim=1).gather(1, wanted[:, None])[:, 0]
    (plain,) = torch.autograd.grad((A * lp).sum(), z, retain_graph=True)
    value = clipped_surrogate(lp, lp.detach(), A, 0.2).sum()
    (clipped,) = torch.autograd.grad(value, z)
    assert torch.allclose(plain, clipped, rtol=1e-12, atol=1e-15)
    assert float(value.detach()) == pytest.approx(float(A.sum()))


@pytest.mark.catalog("LM-21")
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("ratio", [0.5, 0.79, 0.9, 1.1, 1.21, 2.0])
def test_outside_the_clip_the_gradient_is_zero_where_the_advantage_says_so(
    advantage, ratio
):
    lp = torch.tensor(np.log(ratio), requires_grad=True)
    A = torch.tensor(advantage, dtype=torch.float64)
    value = clipped_surrogate(lp, torch.zeros((), dtype=torch.float64), A, 0.2)
    (slope,) = torch.autograd.grad(value, lp)
    over = (ratio > 1.2 and advantage > 0) or (ratio < 0.8 and advantage < 0)
    assert float(slope) == pytest.approx(0.0 if over else advantage * ratio)


def test_the_return_of_a_token_does_not_count_its_own_reward():
    values = torch.tensor([1.0, 2.0, 4.0, 10.0, 20.0, 100.0])
    row = torch.tensor([0, 0, 0, 1, 1, 2])
    assert to_go(values, row, 3).tolist() == [6, 4, 0, 20, 0, 0]


@pytest.mark.parametrize("group", [2, 4])
def test_a_shift_of_the_reward_for_each_prompt_changes_no_advantage(group):
    rng = np.random.default_rng(0)
    r = torch.tensor(rng.normal(size=8))
    row = torch.arange(8).repeat_interleave(3)
    kl = torch.tensor(rng.random(24))
    shift = torch.tensor(rng.normal(size=8 // group)).repeat_interleave(group)
    assert torch.allclose(
        advantages(r, kl, row, group, BETA), advantages(r + shift, kl, row, group, BETA)
    )
    ours, moved = (group_advantages(x, row, group) for x in (r, 5 * r + shift))
    assert torch.allclose(ours, moved)


def test_equal_rewards_move_nothing():
    row, r = torch.arange(8), torch.full((8,), 0.1).double()
    assert not group_advantages(r, row, 4).any()
    assert not advantages(r, torch.zeros(8).double(), row, 4, BETA).abs().max() > 1e-15


def test_divergences_are_never_negative_and_exact():
    made = torch.Generator().manual_seed(0)
    lp, lq = (
        torch.log_softmax(3 * torch.randn(50, 20, generator=made).double(), dim=1)
        for _ in range(2)
    )
    found = divergences(lp, lq)
    assert torch.allclose(found, (lp.exp() * (lp - lq)).sum(dim=1))
    assert (found > 0).all() and (divergences(lp, lp) >= 0).all()
    near = lp + 1e-9 * torch.randn(lp.shape, generator=made).double()
    assert (divergences(torch.log_softmax(near, 1), lp) > -1e-15).all()


def test_all_answers_have_probability_one():
    """Companion: the list of answers is complete."""
    module = Table(4)
    lp = torch.log_softmax(module.theta, dim=1)
    total = sum(
        sum(lp[a, b] for a, b in zip([module.end, *y[:-1]], y)).exp()
        for y in all_answers(4, LENGTH)
    )
    assert float(total.detach()) == pytest.approx(1.0, abs=1e-12)
