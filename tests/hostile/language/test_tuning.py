"""Faults that are planted in tuned models, and input that no fit should take."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

torch = pytest.importorskip("torch")

import certus  # noqa: E402
from certus.base import UncertifiedWarning  # noqa: E402
from certus.certificate import Certificate, Status  # noqa: E402
from certus.language import (  # noqa: E402
    FineTuned,
    LanguageModel,
    NGramModel,
    RewardModel,
    preference_accuracy,
)
from certus.language.tuning.adapters import merged  # noqa: E402

PROMPTS = [f"{i}+{i}=" for i in range(24)]
CHOSEN = ["aa", "abab", "caa", "aab"] * 6
REJECTED = ["cc", "bb", "cbbb", "b"] * 6
PAIRS = list(zip(CHOSEN, REJECTED))


@pytest.fixture
def base() -> LanguageModel:
    return LanguageModel(
        n_layers=1, width=16, heads=2, context=16, max_iter=3, random_state=0
    ).fit("abcabcaab" * 40)


@pytest.fixture
def tuned(base: LanguageModel) -> FineTuned:
    options: Any = {"rank": 2, "max_iter": 10, "random_state": 0}
    return FineTuned(base, **options).fit(PROMPTS, CHOSEN)


@pytest.fixture
def reward(base: LanguageModel) -> RewardModel:
    return RewardModel(base, random_state=0).fit(PROMPTS, CHOSEN, REJECTED)


def judged(model: Any) -> Certificate:
    return certus.certify(model, PROMPTS, PAIRS if hasattr(model, "coef_") else CHOSEN)


def change(network: Any, name: str) -> None:
    with torch.no_grad():
        network.get_parameter(name).view(-1)[3] += 1e-4


# -- planted faults -------------------------------------------------------------------


def test_an_adapter_that_is_merged_twice(tuned: FineTuned) -> None:
    tuned.network_ = merged(tuned.network_, tuned.adapters_, 1.0).eval()
    found = judged(tuned)
    assert found.status is Status.REFUTED and found["adapter_merged"].met is False
    assert found["base_untouched"].met


def test_an_adapter_that_is_not_merged(tuned: FineTuned) -> None:
    tuned.network_ = copy.deepcopy(tuned.base.network_)
    assert judged(tuned)["adapter_merged"].met is False


def test_an_adapter_with_another_scale(tuned: FineTuned) -> None:
    tuned.set_params(adapter_scale=1.001)
    assert judged(tuned)["adapter_merged"].met is False


def test_an_adapter_of_a_higher_rank(tuned: FineTuned) -> None:
    tuned.set_params(rank=1)
    assert judged(tuned)["adapter_rank"].met is False


def test_factors_of_other_sizes(tuned: FineTuned) -> None:
    name, (B, A) = next(iter(tuned.adapters_.items()))
    tuned.adapters_[name] = (B[:, :1], A)
    with pytest.raises(ValueError, match="changed after its fit: the factors"):
        judged(tuned)


def test_factors_that_are_not_finite(tuned: FineTuned) -> None:
    name, (B, A) = next(iter(tuned.adapters_.items()))
    tuned.adapters_[name] = (B, A * np.nan)
    assert judged(tuned)["adapter_merged"].met is False


def test_a_weight_without_an_adapter_that_moved(tuned: FineTuned) -> None:
    change(tuned.network_, "embedding.weight")
    found = judged(tuned)["base_untouched"]
    assert found.met is False and found.value == 1
    assert "1 weights without an adapter differ" in found.detail


@pytest.mark.parametrize("name", ["embedding.weight", "layers.0.attention.qkv.weight"])
def test_a_base_that_was_changed(tuned: FineTuned, name: str) -> None:
    change(tuned.base.network_, name)
    assert judged(tuned)["base_untouched"].met is False


def test_a_base_that_was_changed_below_a_full_tuning(base: LanguageModel) -> None:
    model = FineTuned(base, max_iter=5, random_state=0).fit(PROMPTS, CHOSEN)
    assert judged(model)["base_untouched"].met
    change(base.network_, "norm.weight")
    assert judged(model)["base_untouched"].met is False


def test_another_base(tuned: FineTuned) -> None:
    other = copy.deepcopy(tuned.base)
    change(other.network_, "norm.bias")
    assert judged(tuned.set_params(base=other))["base_untouched"].met is False


def test_a_reward_is_judged_by_pairs_alone(reward: RewardModel) -> None:
    with pytest.raises(ValueError, match="one pair \\(chosen, rejected\\)"):
        certus.certify(reward, PROMPTS)


def test_a_head_that_was_turned_round(reward: RewardModel) -> None:
    assert judged(reward).status is Status.SOLVED
    reward.coef_ = -reward.coef_
    found = judged(reward)
    assert found.status is Status.REFUTED and found["duality_gap"].met is False


def test_a_head_that_was_scaled(reward: RewardModel) -> None:
    reward.coef_ = 1.5 * reward.coef_
    assert judged(reward)["duality_gap"].met is False


def test_a_network_below_a_reward_that_was_changed(reward: RewardModel) -> None:
    change(reward.base.network_, "layers.0.attention.qkv.weight")
    assert judged(reward)["base_untouched"].met is False


def test_rewards_that_do_not_follow_from_the_weights_are_found(
    reward: RewardModel, monkeypatch: Any
) -> None:
    told = RewardModel.predict
    monkeypatch.setattr(RewardModel, "predict", lambda *a: told(*a) + 0.1)
    assert judged(reward)["reward_agreement"].met is False


def test_swapped_pairs_are_flagged(reward: RewardModel) -> None:
    """A reward of pairs that were swapped, judged by pairs that were not."""
    wrong = RewardModel(reward.base, random_state=0).fit(PROMPTS, REJECTED, CHOSEN)
    found = preference_accuracy(wrong, PROMPTS, CHOSEN, REJECTED)["pair_accuracy"]
    assert found.met is False and "swap chosen and rejected" in found.fix
    fine = preference_accuracy(reward, PROMPTS, CHOSEN, REJECTED)["pair_accuracy"]
    assert fine.met is None and fine.value > 0.5


def test_a_file_of_the_reward_without_its_rows(reward: RewardModel) -> None:
    reward.held_out_ = np.array([999])
    found = judged(reward)
    assert found["pair_accuracy"].strength == "refused"


# -- input ----------------------------------------------------------------------------


def test_a_base_must_be_a_fitted_transformer() -> None:
    with pytest.raises(TypeError, match="base must be a fitted LanguageModel"):
        FineTuned(NGramModel(2)).fit(PROMPTS, CHOSEN)
    with pytest.raises(NotFittedError, match="base must be fitted"):
        RewardModel(LanguageModel()).fit(PROMPTS, CHOSEN, REJECTED)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank must be an integer of at least 1"),
        ({"rank": 17}, "rank must be at most the width of the base, 16, got 17"),
        ({"adapter_scale": 0.0}, "adapter_scale must be a number above 0"),
        ({"learning_rate": -1.0}, "learning_rate must be a number above 0"),
        ({"validation_fraction": 1.0}, "validation_fraction must be"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1"),
        ({"device": "nowhere"}, "device='nowhere' cannot be used"),
    ],
)
def test_parameters_out_of_range(
    base: LanguageModel, options: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        FineTuned(base, **options).fit(PROMPTS, CHOSEN)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": "some"}, "train must be one of 'head', 'all'"),
        ({"pooling": "first"}, "pooling must be one of"),
        ({"alpha": 0.0}, "alpha must be a number above 0"),
        ({"tol": -1.0}, "tol must be a number above 0"),
    ],
)
def test_parameters_of_a_reward(
    base: LanguageModel, options: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        RewardModel(base, **options).fit(PROMPTS, CHOSEN, REJECTED)


@pytest.mark.parametrize(
    ("chosen", "rejected", "message"),
    [
        (CHOSEN, CHOSEN, "chosen and rejected must differ, got 24 equal pairs"),
        (CHOSEN, REJECTED[:-1], "prompts and rejected must have the same length"),
        ([""] * 24, REJECTED, "chosen must not be empty texts"),
        (CHOSEN, None, "rejected must be a list of texts"),
        (["a" * 40] * 24, REJECTED, "fit into the context of 16 tokens"),
    ],
)
def test_unknown_choices_are_refused(
    base: LanguageModel, chosen: Any, rejected: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        RewardModel(base).fit(PROMPTS, chosen, rejected)


def test_prompts_longer_than_the_context(base: LanguageModel) -> None:
    long = ["x" * 50 + prompt for prompt in PROMPTS]
    model = FineTuned(base, rank=1, max_iter=3, random_state=0).fit(long, CHOSEN)
    assert model.certificate_.met
    reward = RewardModel(base, random_state=0).fit(long, CHOSEN, REJECTED)
    assert reward.certificate_.met
    assert reward("y" * 99 + long[0], "ab") == reward(long[0], "ab")  # both are cut


def test_odd_bytes_and_the_name_of_the_end(base: LanguageModel) -> None:
    prompts = [b"\xff\x00", "<|end|>", "é", ""] * 6
    model = FineTuned(base, rank=1, max_iter=3, random_state=0).fit(prompts, CHOSEN)
    assert model.certificate_.met


def test_one_pair(base: LanguageModel) -> None:
    model = RewardModel(base, random_state=0).fit(["a"], ["b"], ["c"])
    assert model.certificate_.met and model("a", "b") > model("a", "c")
    assert model.certificate_["pair_accuracy"].strength == "refused"
    assert np.isfinite(model("a", ""))


def test_rewards_that_are_constant_or_not_numbers() -> None:
    equal = preference_accuracy(lambda x, y: 1.0, PROMPTS, CHOSEN, REJECTED)
    assert equal["pair_accuracy"].value == 0.0  # a tie is not an order
    assert "length_correlation" not in equal
    wrong = preference_accuracy(lambda x, y: np.nan, PROMPTS, CHOSEN, REJECTED)
    assert wrong["pair_accuracy"].strength == "refused"
    with pytest.raises(ValueError, match="must have the same length"):
        preference_accuracy(lambda x, y: 1.0, PROMPTS, CHOSEN, REJECTED[:2])


def test_certify_refuses_data_that_are_not_pairs(
    tuned: FineTuned, reward: RewardModel
) -> None:
    with pytest.raises(ValueError, match="24 prompts, but 2 answers"):
        certus.certify(tuned, PROMPTS, CHOSEN[:2])
    with pytest.raises(ValueError, match="one pair"):
        certus.certify(reward, PROMPTS, [["a", "b", "c"]] * 24)


@pytest.mark.parametrize("rank", [None, 2])
def test_a_run_that_diverges_goes_back_to_good_weights(
    base: LanguageModel, rank: int | None
) -> None:
    options: Any = {"optimizer": "sgd", "learning_rate": 1e30, "clip": None}
    model = FineTuned(base, rank=rank, **options, max_iter=30, random_state=0)
    with pytest.warns(UncertifiedWarning, match="the loss became NaN or infinite"):
        model.fit(PROMPTS, CHOSEN)
    assert all(np.isfinite(value).all() for value in model.weights_.values())
    assert model.certificate_.met


def test_data_may_be_given_by_name(base: LanguageModel) -> None:
    tuned = FineTuned(base, max_iter=2, random_state=0)
    assert tuned.fit(prompts=PROMPTS, answers=CHOSEN).certificate_.met
    reward = RewardModel(base, random_state=0)
    found = reward.fit(PROMPTS, rejected=REJECTED, chosen=CHOSEN).coef_.copy()
    np.testing.assert_array_equal(found, reward.fit(PROMPTS, CHOSEN, REJECTED).coef_)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        tuned.fit(answers=CHOSEN)
    with pytest.raises(TypeError, match="unexpected keyword argument 'refused'"):
        reward.fit(PROMPTS, CHOSEN, refused=REJECTED)
