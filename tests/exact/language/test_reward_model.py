"""Reward models: known scores, the gap of the head, and what held-out pairs say."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.base import clone

torch = pytest.importorskip("torch")

import certus  # noqa: E402
from certus.certificate import Status, Strength  # noqa: E402
from certus.language import (  # noqa: E402
    LanguageModel,
    RewardModel,
    preference_accuracy,
)
from certus.language.tuning.answers import encode_pairs  # noqa: E402
from certus.language.tuning.rewards import (  # noqa: E402
    RewardNetwork,
    pairwise_loss,
    rows_of_choices,
)
from certus.neural_network.checkpoint import Checkpoints  # noqa: E402
from certus.verify import preference_claims  # noqa: E402

#: Strengths of four answers; a beats b in a/(a + b) of 45 comparisons, a whole number.
STRENGTHS = {"red": 1, "green": 2, "blue wall": 4, "dark": 8}


class Stopped(Exception):
    """In place of a loss of power."""


@pytest.fixture(scope="module")
def base() -> LanguageModel:
    return LanguageModel(
        n_layers=1, width=16, heads=2, context=24, max_iter=5, random_state=0
    ).fit("the red, green and blue wall is dark. " * 20)


@pytest.fixture(scope="module")
def choices() -> tuple[list[str], list[str], list[str]]:
    """Answers with more of the letter a are preferred, with some noise."""
    rng = np.random.default_rng(0)
    prompts, chosen, rejected = [], [], []
    for i in range(60):
        one, other = (
            "".join(rng.choice(list("abc"), n)) for n in rng.integers(2, 9, 2)
        )
        gain = one.count("a") - other.count("a")
        if one == other or gain == 0:
            one, other = other + "a", other
        elif rng.random() > 1 / (1 + math.exp(-2 * gain)):
            one, other = other, one
        prompts.append(f"{i}:")
        chosen.append(one)
        rejected.append(other)
    return prompts, chosen, rejected


def bradley_terry(prompts: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Comparisons in exactly the shares that Bradley and Terry's law gives them."""
    rows = []
    for prompt in prompts:
        for (a, s), (b, t) in itertools.combinations(STRENGTHS.items(), 2):
            rows += [(prompt, a, b)] * (45 * s // (s + t))
            rows += [(prompt, b, a)] * (45 * t // (s + t))
    found = tuple(list(column) for column in zip(*rows))
    return found  # type: ignore[return-value]


@pytest.mark.catalog("LM-19")
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_reward_model_recovers_scores_up_to_a_number_for_each_prompt(
    base: LanguageModel, pooling: str
) -> None:
    """With shares as the law says, its scores log s are the maximum of likelihood."""
    model = RewardModel(
        base, pooling=pooling, alpha=1e-7, validation_fraction=0.0, random_state=0
    ).fit(*bradley_terry(["wall? ", "my coat: "]))
    wanted = np.log(list(STRENGTHS.values()))
    for prompt in ("wall? ", "my coat: "):
        r = model.predict([prompt] * 4, list(STRENGTHS))
        np.testing.assert_allclose(r - r.mean(), wanted - wanted.mean(), atol=1e-3)
    entropy = -np.mean(
        [
            s / (s + t) * math.log(s / (s + t)) + t / (s + t) * math.log(t / (s + t))
            for s, t in itertools.combinations(STRENGTHS.values(), 2)
        ]
    )
    assert model.certificate_["pairwise_loss"].value == pytest.approx(entropy, rel=1e-4)


@pytest.mark.catalog("LM-19")
def test_the_first_loss_is_log_2(base: LanguageModel, choices: Any) -> None:
    prompts, chosen, rejected = choices
    both = encode_pairs(base.tokenizer_, prompts * 2, chosen + rejected, 24)
    batch = rows_of_choices(both, np.arange(60), "cpu").fetch(range(60))
    module = RewardNetwork(base.network_, 16, "last")
    loss = pairwise_loss(module, batch)["loss"].item()
    assert loss == pytest.approx(math.log(2), rel=1e-6)
    model = RewardModel(base, train="all", max_iter=10, batch_size=60, random_state=0)
    assert model.fit(*choices).history_["loss"][0] < math.log(2)


def test_the_head_is_the_minimum(base: LanguageModel, choices: Any) -> None:
    """Against SciPy on features that are read off with PyTorch alone."""
    model = RewardModel(base, alpha=0.02, pooling="last", random_state=0).fit(*choices)
    prompts, *answers = choices
    end = base.tokenizer_.special["<|end|>"]

    def feature(x: str, y: str) -> np.ndarray:
        ids = torch.tensor([[end, *base.tokenizer_.encode(x + y)]])
        with torch.no_grad():
            return base.network_.states(ids)[0][0, -1].double().numpy()

    used = np.setdiff1d(np.arange(60), model.held_out_)
    F = [np.array([feature(x, y) for x, y in zip(prompts, a)]) for a in answers]
    D = (F[0] - F[1])[used]

    def objective(w: np.ndarray) -> float:
        return float(np.logaddexp(0, -D @ w).mean() + 0.01 * w @ w)

    best = optimize.minimize(objective, np.zeros(16), method="BFGS", tol=1e-10)
    assert objective(model.coef_) <= best.fun + 1e-6 * math.log(2)
    np.testing.assert_allclose(model.coef_, best.x, atol=1e-3)
    claim = model.certificate_["duality_gap"]
    assert claim.strength is Strength.PROVED and claim.met
    assert model.certificate_.primary == "duality_gap"


@pytest.mark.parametrize("train", ["head", "all"])
def test_a_reward_model_learns_which_answers_are_preferred(
    base: LanguageModel, choices: Any, train: str, tmp_path: Any
) -> None:
    model = RewardModel(base, train=train, random_state=0).fit(*choices)
    claims = model.certificate_
    assert claims.status is Status.SOLVED
    assert claims["pairwise_loss"].value < 0.6 < math.log(2)
    for name in ("base_untouched", "reward_agreement"):
        assert claims[name].strength is Strength.PROVED and claims[name].met
    assert len(model.held_out_) == 12
    assert claims["pair_accuracy"].strength is Strength.STATISTICAL
    assert model("7:", "aaaa") > model("7:", "cccc")
    back = certus.load(model.save(tmp_path / "reward.certus"))
    prompts, chosen, rejected = choices
    np.testing.assert_array_equal(
        back.predict(prompts, chosen), model.predict(prompts, chosen)
    )
    again = certus.certify(back, prompts, list(zip(chosen, rejected)))
    assert again.status is Status.SOLVED
    assert clone(model).base is base


def test_an_interrupted_fit_goes_on_bit_for_bit(
    base: LanguageModel, choices: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    model = RewardModel(base, train="all", max_iter=40, random_state=1)
    whole = clone(model).fit(*choices)
    plain = Checkpoints.save

    def save(self: Any, run: Any) -> None:
        plain(self, run)
        if run.epoch == 2:
            raise Stopped

    parts = clone(model).set_params(checkpoint=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        with pytest.raises(Stopped):
            parts.fit(*choices)
    parts = clone(parts).fit(*choices)
    np.testing.assert_array_equal(parts.coef_, whole.coef_)
    np.testing.assert_array_equal(parts.held_out_, whole.held_out_)
    for name, value in whole.weights_.items():
        np.testing.assert_array_equal(parts.weights_[name], value)


# -- held-out pairs -------------------------------------------------------------------


def test_whole_prompts_are_held_out(base: LanguageModel, choices: Any) -> None:
    prompts, chosen, rejected = choices
    doubled = [x for x in prompts[:30] for _ in range(2)]
    model = RewardModel(base, random_state=0).fit(doubled, chosen, rejected)
    assert len(model.held_out_) == 12
    held = {doubled[i] for i in model.held_out_}
    assert all((x in held) == (i in model.held_out_) for i, x in enumerate(doubled))
    assert "6 prompts" in model.certificate_["pair_accuracy"].theorem


def test_intervals_are_clopper_and_pearsons() -> None:
    prompts = [str(i) for i in range(40)]
    chosen = ["better"] * 30 + ["bad"] * 10
    rejected = ["bad"] * 30 + ["better"] * 10
    found = preference_accuracy(lambda x, y: len(y), prompts, chosen, rejected)
    low = stats.binomtest(30, 40).proportion_ci(0.95, "exact").low
    assert found["pair_accuracy"].value == pytest.approx(low, rel=1e-6)
    high = stats.binomtest(30, 40).proportion_ci(0.95, "exact").high
    assert found["longer_chosen"].value == pytest.approx(high, rel=1e-6)
    assert found["longer_preferred"].value == 1.0  # the reward is the length


def test_the_correlation_with_length() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 30, (50, 2))
    rewards = 0.1 * sizes + rng.normal(size=(50, 2))
    claims = {
        c.name: c
        for c in preference_claims(rewards, sizes, [str(i) for i in range(50)])
    }
    wanted = stats.pearsonr(rewards[:, 0] - rewards[:, 1], sizes[:, 0] - sizes[:, 1])
    high = wanted.confidence_interval(0.95).high  # SciPy's is Fisher's too
    assert claims["length_correlation"].value == pytest.approx(high, rel=1e-6)


def test_a_number_for_each_prompt_changes_no_claim() -> None:
    rng = np.random.default_rng(1)
    rewards, sizes = rng.integers(-9, 9, (30, 2)) * 0.5, rng.integers(1, 30, (30, 2))
    prompts = [str(i) for i in range(30)]
    shift = rng.integers(-50, 50, (30, 1)) * 1.0  # exact in float64
    assert preference_claims(rewards, sizes, prompts) == preference_claims(
        rewards + shift, sizes, prompts
    )
