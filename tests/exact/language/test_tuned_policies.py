"""Tuned policies: rewards rise, faults are found, runs resume, files come back."""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone  # noqa: E402

import certus  # noqa: E402
from certus.certificate import Status, Strength  # noqa: E402
from certus.language import (  # noqa: E402
    DPO,
    GRPO,
    PPO,
    FineTuned,
    LanguageModel,
    RewardModel,
    TrainingProgress,
)
from certus.language.tuning import policy_base, policy_losses, rollouts  # noqa: E402
from certus.language.tuning.adapters import merged  # noqa: E402
from certus.neural_network.checkpoint import Checkpoints  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")

WORDS = {"n_layers": 1, "width": 32, "heads": 2, "context": 16, "random_state": 0}
ANIMALS = ["cat", "dog", "hen", "cow"]
PROMPTS = ["a ", "my ", "the "]
TEXTS = [f"{x}{y}" for x in PROMPTS for y in ANIMALS] * 6
SMALL = {"max_tokens": 5, "batch_size": 32, "max_iter": 15, "random_state": 0}


def likes_cows(prompt, answer):
    return float(answer == "cow")


@pytest.fixture(scope="module")
def base():
    return LanguageModel(**WORDS, max_iter=150, early_stopping=False).fit(TEXTS)


@pytest.fixture(scope="module")
def ppo(base):
    model = PPO(base, likes_cows, beta=0.1, reward_range=(0, 1), **SMALL)
    return model.fit(PROMPTS)


def weights(model):
    return {name: array.tobytes() for name, array in model.weights_.items()}


@pytest.mark.catalog("LM-17", "LM-21")
def test_the_reward_rises_while_the_divergence_stays_bounded(base, ppo):
    history = ppo.history_
    assert history["reward_low"][-1] > history["reward_high"][0]
    made = ppo.generate_many(PROMPTS * 20, 5, random_state=0)
    share = np.mean([each.text == "cow" for each in made])
    plain = base.generate_many(PROMPTS * 20, 5, random_state=0)
    assert share > 0.15 + np.mean([each.text == "cow" for each in plain])
    claim = ppo.certificate_["kl_to_reference"]
    assert claim.strength is Strength.STATISTICAL
    assert 0 < history["kl"][-1] < claim.value < 5 * math.log(257 / 0.01)
    assert ppo.certificate_["stated_samples"].met
    assert ppo.certificate_["gap_to_optimal_policy"].strength is Strength.STATISTICAL
    assert ppo.certificate_["gain_over_reference"].value > 0


def test_scaled_groups_learn_as_well(base):
    model = GRPO(base, likes_cows, beta=0.1, reward_range=(0, 1), **SMALL)
    history = model.fit(PROMPTS).history_
    assert history["reward_low"][-1] > history["reward_high"][0]
    assert model.certificate_["stated_samples"].met


def test_a_function_and_a_reward_model_are_both_rewards(base):
    chosen, rejected = ["cow"] * 30, ["cat", "dog", "hen"] * 10
    reward = RewardModel(base, random_state=0).fit(["a "] * 30, chosen, rejected)
    model = PPO(base, reward, beta=0.5, **{**SMALL, "max_iter": 5}).fit(PROMPTS)
    told = [reward("a ", text) for text in model.samples_["after"][:1]]
    assert model.samples_["reward"][:1] == pytest.approx(told)
    assert model.certificate_["stated_samples"].met
    assert clone(model).reward is reward and clone(model).base is base


@pytest.mark.catalog("LM-17", "LM-23")
def test_each_stage_of_the_pipeline_is_preferred_to_the_one_before(base):
    """Pre-trained, fine-tuned on demonstrations of mixed quality, tuned by a reward."""
    rng = np.random.default_rng(0)
    answers = rng.choice(["cow", "cat", "dog"], p=[0.5, 0.3, 0.2], size=60).tolist()
    with certus.config_context(certify="never"):
        sft = FineTuned(base, max_iter=40, random_state=0).fit(PROMPTS * 20, answers)
        ppo = PPO(sft, likes_cows, beta=0.1, **SMALL).fit(PROMPTS)
    shares = []
    for model in (base, sft, ppo):
        made = model.generate_many(PROMPTS * 50, 5, random_state=3)
        shares.append(np.mean([each.text == "cow" for each in made]))
    assert shares[0] + 0.1 < shares[1] and shares[1] + 0.1 < shares[2]
    assert ppo.history_["kl"][-1] < 3.0


@pytest.mark.catalog("LM-17", "LM-23")
def test_a_reward_learnt_from_noisy_preferences_raises_the_true_reward(base):
    """No stage sees the reward that the preferences come from."""
    rng = np.random.default_rng(0)
    asked = PROMPTS * 60
    one, other = rng.choice(ANIMALS, size=(2, len(asked)))
    keep = one != other
    gain = 3.0 * ((one == "cow").astype(float) - (other == "cow"))
    first = rng.random(len(asked)) < 1 / (1 + np.exp(-gain))
    chosen, rejected = np.where(first, one, other), np.where(first, other, one)
    pairs = [np.array(x)[keep].tolist() for x in (asked, chosen, rejected)]
    with certus.config_context(certify="never"):
        reward = RewardModel(base, random_state=0).fit(*pairs)
        ppo = PPO(base, reward, beta=0.5, **SMALL).fit(PROMPTS)
    before, after = (
        np.mean([likes_cows(x, y.text) for x, y in zip(PROMPTS * 50, made)])
        for made in (
            m.generate_many(PROMPTS * 50, 5, random_state=3) for m in (base, ppo)
        )
    )
    assert after > before + 0.15
    assert ppo.history_["reward_low"][-1] > ppo.history_["reward_high"][0]


@pytest.mark.catalog("LM-22")
def test_without_weight_the_text_changes_nothing_and_with_it_less_is_forgotten(base):
    words = {**SMALL, "beta": 0.0, "learning_rate": 0.01, "max_iter": 10}
    plain = PPO(base, likes_cows, **words).fit(PROMPTS)
    none = PPO(base, likes_cows, ptx=0.0, **words).fit(PROMPTS, TEXTS)
    kept = PPO(base, likes_cows, ptx=2.0, **words).fit(PROMPTS, TEXTS)
    assert weights(plain) == weights(none)
    lost, less = (m.bits_per_byte(TEXTS[:24]) for m in (plain, kept))
    before = base.bits_per_byte(TEXTS[:24])
    assert lost > before + 0.1 and less - before < 0.5 * (lost - before)
    assert "text_loss" in kept.history_


@pytest.fixture(scope="module")
def dpo(base):
    prompts, chosen = PROMPTS * 10, ["cow"] * 30
    model = DPO(base, beta=0.3, max_iter=40, learning_rate=1e-3, random_state=0)
    return model.fit(prompts, chosen, ["cat", "dog", "hen"] * 10)


def test_pairs_move_the_policy_towards_the_chosen_answers(base, dpo):
    p, q = (
        math.exp(m.token_log_probs(m.tokenizer_.encode("a cow"))[2:].sum())
        for m in (dpo, base)
    )
    assert p > 1.5 * q
    claim = dpo.certificate_["preference_loss"]
    assert claim.strength is Strength.PROVED and claim.met and claim.value < 0.6
    assert dpo.certificate_["gap_to_optimal_policy"].strength is Strength.REFUSED
    assert dpo.history_["accuracy"][-1] > 0.9


@pytest.fixture(scope="module")
def grpo(base):
    model = GRPO(base, likes_cows, beta=0.1, reward_range=(0, 1), **SMALL)
    return model.fit(PROMPTS)


# -- planted faults -------------------------------------------------------------------

KINDS = pytest.mark.parametrize("kind", ["dpo", "ppo", "grpo"])


def refitted(model, **changes):
    """A short fit with the parameters of a model, but for some."""
    short = {"max_iter": 5, "learning_rate": 0.01, **changes}
    data = ["a "] * 30, ["cow"] * 30, ["cat", "dog", "hen"] * 10
    fresh = clone(model).set_params(**short)
    return fresh.fit(*data) if isinstance(model, DPO) else fresh.fit(PROMPTS)


def again(model, **changes):
    """The certificate of a changed model."""
    kept = {name: getattr(model, name) for name in changes}
    try:
        for name, value in changes.items():
            setattr(model, name, value)
        return certus.certify(model, PROMPTS)
    finally:
        for name, value in kept.items():
            setattr(model, name, value)


@KINDS
def test_a_swapped_reference_is_found(kind, request):
    model = request.getfixturevalue(kind)
    other = LanguageModel(**WORDS, max_iter=40).fit(TEXTS)
    assert again(model)["stated_samples"].met and again(model)["base_untouched"].met
    found = again(model, base=other)
    assert found["stated_samples"].met is False
    assert found["base_untouched"].met is False
    assert found.met is False and found.status is not Status.SOLVED


@KINDS
def test_a_reference_that_hardly_moved_is_found(kind, request):
    """The divergences of the samples do not tell it, the digest of its weights does."""
    model = request.getfixturevalue(kind)
    other = copy.deepcopy(model.base)
    with torch.no_grad():
        other.network_.get_parameter("norm.weight")[3] += 1e-6
    found = again(model, base=other)
    assert found["stated_samples"].met
    assert found["base_untouched"].met is False
    assert found.met is False and found.status is not Status.SOLVED


@KINDS
def test_a_base_whose_adapter_was_merged_twice_is_found(base, kind, request):
    answers = ["cow", "cat", "dog"] * 10
    with certus.config_context(certify="never"):
        sft = FineTuned(base, rank=2, max_iter=5, random_state=0)
        sft.fit(["a "] * 30, answers)
    model = refitted(request.getfixturevalue(kind), base=sft)
    assert again(model)["base_untouched"].met
    sft.network_ = merged(sft.network_, sft.adapters_, 1.0).eval()
    found = again(model)
    assert found["base_untouched"].met is False and found.met is False


@KINDS
def test_a_divergence_by_sampled_ratios_is_found(kind, request, monkeypatch):
    """Training and the stored samples take their divergences from one function."""

    def sampled(log_p, log_q):  # the usual estimate, from one token at each place
        token = log_p.argmax(dim=-1, keepdim=True)
        return (log_p - log_q).gather(-1, token)[..., 0]

    monkeypatch.setattr(policy_base, "divergences", sampled)
    model = refitted(request.getfixturevalue(kind))
    assert model.certificate_["stated_samples"].met is False
    assert "sum over the vocabulary" in model.certificate_["stated_samples"].detail


def test_a_look_with_a_negative_divergence_is_found(ppo):
    past = {**ppo.history_, "kl": [-0.01, *ppo.history_["kl"][1:]]}
    assert again(ppo, history_=past)["stated_samples"].met is False


def test_the_floor_is_in_the_stated_objective(ppo, dpo):
    stated = "ρ = (1 − η)·π_ref + η/V with η = 0.01 and V = 257"
    for name in ("kl_to_reference", "gap_to_optimal_policy", "gain_over_reference"):
        assert stated in ppo.certificate_[name].objective
    assert stated in dpo.certificate_["kl_to_reference"].objective
    free = clone(ppo).set_params(floor=0.0, max_iter=1).fit(PROMPTS)
    assert "η = 0 and" in free.certificate_["kl_to_reference"].objective


def test_swapped_pairs_are_found(base, dpo):
    prompts, chosen = PROMPTS * 10, ["cow"] * 30
    rejected = ["cat", "dog", "hen"] * 10
    right = certus.certify(dpo, prompts, list(zip(chosen, rejected)))
    wrong = certus.certify(dpo, prompts, list(zip(rejected, chosen)))
    assert right["preference_loss"].met
    assert wrong["preference_loss"].met is False and wrong.met is False
    assert "chosen" in wrong["preference_loss"].fix


@KINDS
def test_another_reward_than_that_of_the_samples_is_found(kind, request):
    shifted = {"a ": 0.3, "my ": -0.2, "the ": 0.1}
    other = lambda x, y: likes_cows(x, y) + shifted[x]  # noqa: E731
    model = request.getfixturevalue(kind)
    if kind == "dpo":  # only its certificate has a reward
        model = refitted(model, reward=likes_cows)
    assert again(model)["stated_samples"].met
    assert again(model, reward=other)["stated_samples"].met is False


@pytest.mark.parametrize("kind", ["ppo", "grpo"])
def test_a_reward_that_is_shifted_for_each_prompt_tunes_the_same_policy(kind, request):
    shifted = {"a ": 16.0, "my ": -8.0, "the ": 4.0}
    plain = request.getfixturevalue(kind)
    model = clone(plain).set_params(
        reward=lambda x, y: likes_cows(x, y) + shifted[x], reward_range=(-10, 20)
    )
    with certus.config_context(certify="never"):
        model.fit(PROMPTS)
    for name, array in model.weights_.items():  # sums of 16 and 1 are exact
        np.testing.assert_allclose(array, plain.weights_[name], atol=1e-5)


def test_divergences_are_never_negative_in_a_tuned_policy(ppo, dpo):
    assert min(ppo.samples_["kl"]) >= 0 and min(dpo.samples_["kl"]) >= 0
    assert min(ppo.history_["kl"]) >= 0


LETTERS = "abcdefghijkl"
WORTH = dict(zip(LETTERS, np.random.default_rng(4).random(12).tolist()))


def worth(prompt, answer):
    return WORTH.get(answer, 0.0)


@pytest.mark.catalog("LM-20")
def test_a_fitted_model_of_few_pairs_falls_below_its_reference_while_it_wins():
    """Answers of a letter and their end; each pair is ranked with a person's errors."""
    rng = np.random.default_rng(0)
    p = np.exp(rng.normal(size=12))
    texts = ["? " + y for y in rng.choice(list(LETTERS), 400, p=p / p.sum())]
    base = LanguageModel(**WORDS, max_iter=300, early_stopping=False).fit(texts)
    one, other = rng.choice(list(LETTERS), (2, 120), p=p / p.sum())
    keep = one != other
    gain = np.array([worth("", a) - worth("", b) for a, b in zip(one, other)])
    first = rng.random(120) < 1 / (1 + np.exp(-6 * gain))
    chosen, rejected = np.where(first, one, other), np.where(first, other, one)
    asked = ["? "] * int(keep.sum())
    words = {"beta": 0.15, "reward": worth, "reward_range": (0, 1), "random_state": 0}
    model = DPO(base, **words, max_iter=250, learning_rate=1e-3, early_stopping=False)
    model.fit(asked, chosen[keep].tolist(), rejected[keep].tolist())
    said = [
        np.array([worth("", y.text) for y in m.generate_many(["? "] * 400, 2, **seed)])
        for m, seed in ((model, {"random_state": 1}), (base, {"random_state": 2}))
    ]
    wins = np.mean(said[0] > said[1]) + 0.5 * np.mean(said[0] == said[1])
    assert wins > 0.55 and said[0].mean() > said[1].mean()
    found = model.certificate_
    assert found["gain_over_reference"].met is False and found.met is False
    assert "worse than its own reference" in found["gain_over_reference"].detail
    assert found["preference_loss"].met  # the pairs alone do not tell


# -- runs -----------------------------------------------------------------------------


def test_the_error_of_a_mean_counts_prompts_as_draws():
    """Answers to a prompt that are all alike say as much as one of them."""
    rng = np.random.default_rng(0)
    levels, prompt = rng.normal(size=12), np.repeat(np.arange(12), 8)
    alike = levels[prompt]
    one = levels.std(ddof=1) / math.sqrt(12)
    few = rollouts.standard_error(alike, prompt, 10**9)
    assert few == pytest.approx(one, rel=1e-6)
    assert rollouts.standard_error(alike, prompt, 12) < 1e-12  # no prompt is missing
    single = rollouts.standard_error(levels, np.arange(12), 10**9)
    assert single == pytest.approx(one, rel=1e-6)
    means, errors = [], []
    for _ in range(300):  # a list of 30 prompts, of which 10 are seen
        level = rng.normal(size=30)
        level -= level.mean()
        seen = rng.permutation(30)[:10].repeat(4)
        values = level[seen] + 0.5 * rng.normal(size=40)
        means.append(values.mean())
        errors.append(rollouts.standard_error(values, seen, 30))
    assert np.std(means) == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=0.15)


class Stopped(Exception):
    """In place of a loss of power."""


@pytest.mark.parametrize("kind", ["ppo", "grpo", "dpo"])
def test_interrupted_and_resumed_is_uninterrupted(base, monkeypatch, tmp_path, kind):
    if kind == "dpo":
        model = DPO(base, max_iter=30, random_state=0)
        data = (PROMPTS * 8, ["cow"] * 24, ["cat", "dog", "hen"] * 8)
    else:
        make, more = (PPO, {"ptx": 0.5}) if kind == "ppo" else (GRPO, {})
        model = make(base, likes_cows, **SMALL, **more)
        data = (PROMPTS, TEXTS) if kind == "ppo" else (PROMPTS,)
    plain = Checkpoints.save

    def save(self, run):
        plain(self, run)
        if run.epoch == 2:
            raise Stopped

    with certus.config_context(certify="never"):
        whole = clone(model).fit(*data)
        parts = clone(model).set_params(checkpoint=tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "save", save)
            with pytest.raises(Stopped):
                parts.fit(*data)
        parts = clone(parts).fit(*data)
    assert weights(parts) == weights(whole)
    assert parts.history_["loss"] == whole.history_["loss"]
    assert parts.samples_["after"] == whole.samples_["after"]


def test_a_reward_that_does_not_rise_ends_the_fit(base):
    """The loss is no reason to go on; the interval of the reward is one to stop."""
    words = {**SMALL, "max_iter": 400}
    model = PPO(base, lambda x, y: 1.0, n_iter_no_change=2, **words)
    with certus.config_context(certify="never"):
        model.fit(PROMPTS)
    assert model.n_iter_ <= 6 * rollouts.EVERY
    assert model.history_["reward"] == [1.0] * len(model.history_["reward"])


def test_a_limit_of_time_keeps_what_there_is(base):
    model = PPO(base, likes_cows, **{**SMALL, "max_iter": 10**6}, max_time=1.0)
    model.fit(PROMPTS)
    assert model.certificate_.status is Status.TIME_LIMIT
    assert 0 < model.n_iter_ < 10**6


def test_a_file_brings_back_policy_base_and_samples(dpo, tmp_path):
    dpo.save(tmp_path / "policy.certus")
    back = certus.load(tmp_path / "policy.certus")
    assert weights(back) == weights(dpo) and weights(back.base) == weights(dpo.base)
    assert back.samples_["after"] == dpo.samples_["after"]
    prompts, pairs = PROMPTS * 10, list(zip(["cow"] * 30, ["cat", "dog", "hen"] * 10))
    assert certus.certify(back, prompts, pairs)["stated_samples"].met


def test_a_tuned_policy_is_the_base_of_the_next_stage(base, dpo):
    with certus.config_context(certify="never"):
        model = PPO(dpo, likes_cows, **{**SMALL, "max_iter": 3}).fit(PROMPTS)
    assert model.merge().generate("a ", 4, random_state=0).text == (
        model.generate("a ", 4, random_state=0).text
    )


def test_callbacks_see_each_look(base):
    seen = []

    class Look:
        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context):
            pass

        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
            if context.task_name == "step":
                seen.append(fitted_estimator.history_["reward"][-1])
            return len(seen) == 2

    lines = []
    shown = TrainingProgress(lines.append)
    model = PPO(base, likes_cows, **SMALL).set_callbacks(Look(), shown)
    model.fit(PROMPTS)
    assert len(seen) == 2 and model.certificate_.status is Status.STOPPED
    assert f"reward {seen[0]:.3f}" in lines[0]


# -- for people -----------------------------------------------------------------------


def test_answers_stand_side_by_side(ppo):
    shown = ppo.side_by_side()
    page = shown._repr_html_()
    assert "before" in page and "a " in page and "<table>" in page
    assert shown.to_frame().shape == (3, 6)
    assert "mean reward" in page


def test_the_frontier_is_drawn(ppo):
    pytest.importorskip("matplotlib")
    found = ppo.frontier()
    ax = found.plot()
    assert "KL" in ax.get_xlabel() and len(found.kl) == len(ppo.history_["kl"])
    J = np.array(ppo.history_["objective"])
    assert found.gain == pytest.approx(J[-1] - J[0])
    kl, level = ax.lines[-1].get_data()  # the line along which nothing is gained
    np.testing.assert_allclose(np.array(level) - ppo.beta * np.array(kl), J[0])


def test_proposals_are_the_draws_that_the_verifier_makes(ppo):
    """The compiled sampler and the verifier agree, also with a floor."""
    ids = [ppo.tokenizer_.encode(x) for x in PROMPTS * 20]
    rng = np.random.default_rng(0)
    u, v = rng.random((2, 60, 5))
    read = certus.verify.PlainNetwork(ppo.base.config_, ppo.base.weights_)
    from certus.verify.language.policy_draws import Duel, draw

    duel = Duel(read, read, 256, 0.3, 5)
    model = clone(ppo).set_params(floor=0.3)
    proposed = model.propose_answers(ids, u, v, reference=True)
    own, _ = draw(read, duel, [np.asarray(x) for x in ids], u, v)
    same = [np.array_equal(a, b) for a, b in zip(proposed, own)]
    assert np.mean(same) > 0.95  # float32 and float64 draw alike


def test_floors_of_both_sides_agree():
    lp = torch.log_softmax(torch.randn(3, 9).double(), dim=1)
    from certus.verify.language.policy_draws import floored

    ours = policy_losses.floored(lp, 0.05).numpy()
    np.testing.assert_allclose(ours, floored(lp.numpy(), 0.05), rtol=1e-12)
