"""Absurd prompts, answers, rewards and prices: an error that says what to do."""

import math

import numpy as np
import pytest

pytest.importorskip("torch")

from sklearn.exceptions import NotFittedError

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.language import (
    DPO,
    GRPO,
    PPO,
    LanguageModel,
    optimal_policy,
    policy_gap,
)

WORDS = {"n_layers": 1, "width": 16, "heads": 2, "context": 16, "random_state": 0}


@pytest.fixture(scope="module")
def base():
    return LanguageModel(**WORDS, max_iter=10).fit("abcd" * 50)


def constant(prompt, answer):
    return 0.0


SMALL = {"max_tokens": 4, "batch_size": 8, "max_iter": 3, "random_state": 0}


@pytest.mark.parametrize("prompts", ["ab", [], [3], None])
def test_prompts_must_be_a_list_of_texts(base, prompts):
    with pytest.raises((TypeError, ValueError), match="prompts must"):
        PPO(base, constant, **SMALL).fit(prompts)


def test_a_prompt_without_room_for_an_answer_is_refused(base):
    with pytest.raises(ValueError, match="context of 16 tokens, got 1 longer"):
        PPO(base, constant, **SMALL).fit(["ab", "a" * 13])
    with pytest.raises(ValueError, match="context of 16"):
        DPO(base).fit(["a" * 14], ["abc"], ["d"])


@pytest.mark.parametrize("value", [math.nan, math.inf, "much", None])
def test_rewards_must_be_finite_numbers(base, value):
    with pytest.raises((TypeError, ValueError), match="reward must return"):
        PPO(base, lambda x, y: value, **SMALL).fit(["a"])


@pytest.mark.parametrize("reward", [None, 3, "long"])
def test_a_reward_must_be_callable(base, reward):
    with pytest.raises(TypeError, match="reward must be a function"):
        GRPO(base, reward, **SMALL).fit(["a"])


@pytest.mark.parametrize("kind", [PPO, GRPO])
def test_constant_rewards_leave_the_base_alone(base, kind):
    model = kind(base, constant, reward_range=(0, 0), **{**SMALL, "floor": 0.0})
    model.fit(["a", "b"])
    for name, array in model.weights_.items():
        np.testing.assert_allclose(array, base.weights_[name], atol=1e-4)
    assert max(model.history_["kl"]) < 1e-4


@pytest.mark.parametrize("beta", [-1.0, math.nan, math.inf, "0.1"])
def test_the_price_of_divergence_must_be_finite(base, beta):
    for model in (PPO(base, constant, beta=beta, **SMALL), DPO(base, beta=beta)):
        data = (["a"],) if isinstance(model, PPO) else (["a"], ["b"], ["c"])
        with pytest.raises((TypeError, ValueError), match="beta must be"):
            model.fit(*data)
    if isinstance(beta, float):
        with pytest.raises(ValueError, match="beta must be"):
            policy_gap([0.5, 0.5], [0.5, 0.5], [0.0, 1.0], beta)


def test_divergence_may_be_free_but_not_for_pairs(base):
    with pytest.raises(ValueError, match="beta must be above 0"):
        DPO(base, beta=0).fit(["a"], ["b"], ["c"])
    model = PPO(base, constant, beta=0, reward_range=(0, 1), **SMALL).fit(["a"])
    claim = model.certificate_["gap_to_optimal_policy"]
    assert claim.value == pytest.approx(1.0, abs=0.1)  # a reward of 1 may exist
    assert optimal_policy([0.5, 0.5], [0.0, 1.0], 0).value == 1.0
    assert policy_gap([0.5, 0.5], [0.5, 0.5], [0.0, 1.0], 0).value == pytest.approx(0.5)


def test_pairs_must_be_different_answers_that_exist(base):
    with pytest.raises(ValueError, match="chosen and rejected must differ"):
        DPO(base).fit(["a", "a"], ["b", "c"], ["b", "d"])
    with pytest.raises(ValueError, match="must not be empty"):
        DPO(base).fit(["a", "a"], ["b", ""], ["c", "d"])
    with pytest.raises(ValueError, match="same length"):
        DPO(base).fit(["a", "a"], ["b"], ["c", "d"])


def test_the_base_must_be_a_fitted_language_model():
    with pytest.raises(TypeError, match="base must be a fitted LanguageModel"):
        PPO("gpt", constant, **SMALL).fit(["a"])
    with pytest.raises(NotFittedError, match="base must be fitted"):
        DPO(LanguageModel()).fit(["a"], ["b"], ["c"])


def test_sizes_must_fit_together(base):
    with pytest.raises(ValueError, match="multiple of group"):
        PPO(base, constant, **{**SMALL, "batch_size": 10}).fit(["a"])
    with pytest.raises(ValueError, match="group must be"):
        GRPO(base, constant, group=1, **SMALL).fit(["a"])
    with pytest.raises(ValueError, match="texts must be given"):
        PPO(base, constant, ptx=1.0, **SMALL).fit(["a"])
    with pytest.raises(ValueError, match="reward_range must be"):
        PPO(base, constant, reward_range=(1, 0), **SMALL).fit(["a"])


def test_empty_answers_are_answers(base):
    """A policy that ends at once is possible, and is judged."""
    model = PPO(
        base,
        lambda x, y: float(not y),
        beta=0.0,
        max_tokens=2,
        batch_size=32,
        max_iter=40,
        learning_rate=0.02,
        random_state=0,
    ).fit(["a"])
    assert model.samples_["after"] == [""]
    assert model.certificate_["stated_samples"].met


@pytest.mark.parametrize(
    "law", [[0.5, 0.6], [-0.1, 1.1], [math.nan, 1.0], [], [[0.5, 0.5], [1.0, 1.0]]]
)
def test_probabilities_must_add_up_to_one(law):
    with pytest.raises(ValueError, match="probabilities"):
        policy_gap(law, [0.5, 0.5], [0.0, 1.0], 0.1)
    with pytest.raises(ValueError, match="probabilities"):
        optimal_policy(law, [0.0, 1.0], 0.1)


def test_rewards_of_listed_answers_must_be_finite_and_complete():
    with pytest.raises(ValueError, match="reward must hold"):
        policy_gap([0.5, 0.5], [0.5, 0.5], [0.0, math.nan], 0.1)
    with pytest.raises(ValueError, match="reward must hold"):
        optimal_policy([0.5, 0.5], [0.0, 1.0, 2.0], 0.1)


def test_extreme_prices_neither_overflow_nor_lie():
    q, r = [0.5, 0.3, 0.2], [0.0, 1e6, -1e6]
    for beta in (1e-300, 1e-12, 1e-3, 1e3, 1e300):
        found = policy_gap(q, q, r, beta)
        assert not math.isnan(found.value) and found.value >= 0
        assert np.isfinite(optimal_policy(q, r, beta).probabilities).all()


def test_models_of_other_tokens_and_long_prompts_are_refused(base):
    other = LanguageModel(260, **WORDS, max_iter=2).fit("abcdabce" * 50)
    with pytest.raises(ValueError, match="same tokens"):
        policy_gap(other, base, constant, 0.1, prompts=["a"], reward_range=(0, 1))
    found = policy_gap(
        base, base, constant, 0.1, prompts=["a" * 10], max_tokens=9, reward_range=(0, 1)
    )
    assert "context" in found["gap_to_optimal_policy"].detail
    with pytest.raises(ValueError, match="fit into the context"):
        policy_gap(base, base, constant, 0.1, prompts=["a" * 20], answers=["b", "c"])
    with pytest.raises(ValueError, match="different texts"):
        policy_gap(base, base, constant, 0.1, prompts=["a"], answers=["b", "b"])


@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
@pytest.mark.parametrize("kind", [DPO, PPO, GRPO])
def test_a_run_whose_loss_becomes_infinite_goes_back_to_good_weights(base, kind):
    words = {"optimizer": "sgd", "learning_rate": 1e30, "clip": None, "warmup": 0.0}
    words |= {"random_state": 0, "max_iter": 8}
    if kind is DPO:
        model, data = DPO(base, **words), (["a"] * 24, ["b"] * 24, ["c"] * 24)
    else:
        words |= {"max_tokens": 4, "batch_size": 8}
        model, data = kind(base, lambda x, y: float(len(y)), **words), (["a", "b"],)
    with pytest.warns(UncertifiedWarning, match="loss became NaN or infinite in step"):
        model.fit(*data)
    assert all(np.isfinite(value).all() for value in model.weights_.values())
    assert model.certificate_.status is Status.DIVERGED
    assert model.certificate_["stated_samples"].met


def test_changed_samples_do_not_crash_the_verifier(base):
    model = PPO(base, constant, **SMALL).fit(["a"])
    model.samples_ = {**model.samples_, "tokens": [np.array([999])]}
    with pytest.raises(ValueError, match="changed after its fit"):
        certus.certify(model, ["a"])
