"""Fine-tuning: the loss of answers, adapters, and what is left of the base."""

from __future__ import annotations

import math
import pydoc_data.topics
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

torch = pytest.importorskip("torch")

import certus  # noqa: E402
from certus.base import UncertifiedWarning  # noqa: E402
from certus.certificate import Status, Strength  # noqa: E402
from certus.language import FineTuned, LanguageModel, TrainingProgress  # noqa: E402
from certus.language.tuning.adapters import adapters_of, merged, with_adapters  # noqa: E402
from certus.language.tuning.answers import encode_pairs  # noqa: E402
from certus.language.tuning.tuned import answer_loss  # noqa: E402
from certus.neural_network.checkpoint import Checkpoints  # noqa: E402

SMALL: Any = {"n_layers": 1, "width": 16, "heads": 2, "context": 32, "random_state": 0}
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
PROMPTS = [f"{word}=" for word in WORDS] * 2
ANSWERS = [word[::-1] for word in WORDS] * 2


class Stopped(Exception):
    """In place of a loss of power."""


@pytest.fixture(scope="module")
def base() -> LanguageModel:
    return LanguageModel(**SMALL, max_iter=100).fit((" ".join(WORDS) + " ") * 20)


@pytest.fixture(scope="module", params=[None, 2])
def model(request: Any, base: LanguageModel) -> FineTuned:
    return FineTuned(base, rank=request.param, max_iter=60, random_state=0).fit(
        PROMPTS, ANSWERS
    )


def cost(model: Any, prompts: list[str], answers: list[str]) -> float:
    """Nats for each token of the answers, from the model's own log-probabilities."""
    end, total, count = model.tokenizer_.special["<|end|>"], 0.0, 0
    for x, y in zip(prompts, answers):
        before, ids = (model.tokenizer_.encode(text) for text in (x, y))
        found = model.token_log_probs(np.concatenate([before, ids, [end]]))
        total -= found[len(before) :].sum()
        count += len(ids) + 1
    return total / count


def kl(model: Any, base: Any, x: str, y: str) -> list[float]:
    """KL of the next token from the base's, at each place of an answer."""
    ids, found = model.tokenizer_.encode(x + y), []
    for t in range(len(x), len(ids) + 1):
        p, q = (m.next_probabilities(ids[:t]) for m in (model, base))
        found.append(float((p * np.log(p / q)).sum()))
    return found


@pytest.mark.catalog("LM-06")
def test_the_loss_on_demonstrations_falls_and_the_distance_is_known(
    model: FineTuned, base: LanguageModel
) -> None:
    before, after = (cost(m, PROMPTS, ANSWERS) for m in (base, model))
    assert after < (0.7 if model.rank is None else 0.95) * before
    claims = model.certificate_
    assert claims["answer_loss"].value == pytest.approx(after, rel=1e-4)
    apart = [kl(model, base, x, y) for x, y in zip(PROMPTS, ANSWERS)]
    assert min(map(min, apart)) >= 0
    mean = np.mean(np.concatenate(apart))
    assert mean > 0.05
    assert claims["kl_from_base"].value == pytest.approx(mean, rel=1e-3)


@pytest.mark.catalog("LM-05")
def test_two_stages_are_better_than_either() -> None:
    """Much text first, then a few answers: ends of sentences of the reference."""
    text = "".join(pydoc_data.topics.topics.values())
    lines = [line for line in text.splitlines() if 24 < len(line) < 30][:80]
    prompts, answers = ([line[s] for line in lines] for s in (slice(16), slice(16, 99)))
    train, test = slice(60), slice(60, None)
    options = {**SMALL, "width": 32, "heads": 2}
    much = LanguageModel("bytes", **options, max_iter=120).fit(text[:150_000])
    nothing = LanguageModel("bytes", **options, max_iter=1).fit(text[:2_000])
    tuned = [
        FineTuned(start, max_iter=60, random_state=0).fit(
            prompts[train], answers[train]
        )
        for start in (much, nothing)
    ]
    both, second, first = (
        cost(m, prompts[test], answers[test]) for m in (*tuned, much)
    )
    assert both < first - 0.05
    assert both < second - 0.05


def test_only_tokens_of_answers_count(base: LanguageModel) -> None:
    """The objective of a batch is the mean over answers, whatever prompts cost."""
    pairs = encode_pairs(base.tokenizer_, PROMPTS, ANSWERS, 32)
    with torch.no_grad():
        loss = answer_loss(base.network_, pairs.fetch(range(len(pairs))))["loss"]
    assert float(loss) == pytest.approx(cost(base, PROMPTS, ANSWERS), rel=1e-5)


# -- adapters -------------------------------------------------------------------------


def test_adapters_begin_at_the_base(base: LanguageModel) -> None:
    module = with_adapters(base.network_, 3, 1.0)
    ids = torch.arange(20)[None]
    torch.testing.assert_close(module(ids).output, base.network_(ids).output)
    trained = [name for name, p in module.named_parameters() if p.requires_grad]
    assert len(trained) == 2 * 4 and all(name[-1] in "AB" for name in trained)


def test_merged_weights_compute_what_adapters_compute(base: LanguageModel) -> None:
    module = with_adapters(base.network_, 3, 0.7)
    made = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name.endswith(".B"):
                p.normal_(std=0.3, generator=made)
    network = merged(base.network_, adapters_of(module), 0.7)
    ids = torch.arange(25)[None]
    torch.testing.assert_close(network(ids).output, module(ids).output)
    for name, W in base.network_.state_dict().items():
        change = (network.state_dict()[name] - W).double().numpy()
        if change.ndim == 2 and change.any():
            sizes = np.linalg.svd(change, compute_uv=False)
            assert sizes[3] < 1e-5 * sizes[0]  # of rank 3, but for rounding


def test_the_certificate_of_adapters(base: LanguageModel) -> None:
    options: Any = {"rank": 2, "adapter_scale": 0.5, "max_iter": 20, "random_state": 0}
    model = FineTuned(base, **options).fit(PROMPTS, ANSWERS)
    claims = model.certificate_
    for name in ("adapter_merged", "adapter_rank", "base_untouched", "agreement"):
        assert claims[name].strength is Strength.PROVED and claims[name].met
    assert claims.status is Status.SOLVED and claims["adapter_rank"].value == 2
    assert model.n_trained_ == sum(B.size + A.size for B, A in model.adapters_.values())
    for name, (B, A) in model.adapters_.items():
        W, new = base.weights_[name].astype(float), model.weights_[name]
        exact = W + 0.5 * (B.astype(float) @ A.astype(float))
        np.testing.assert_array_equal(new, exact.astype(np.float32))
    others = set(base.weights_) - set(model.adapters_)
    assert others
    for name in others:
        np.testing.assert_array_equal(model.weights_[name], base.weights_[name])


# -- the model ------------------------------------------------------------------------


def test_the_base_stays_as_it_is(base: LanguageModel) -> None:
    before = {name: value.copy() for name, value in base.weights_.items()}
    FineTuned(base, max_iter=10, random_state=0).fit(PROMPTS, ANSWERS)
    for name, value in base.weights_.items():
        np.testing.assert_array_equal(value, before[name])
    assert all(p.requires_grad for p in base.network_.parameters())


@pytest.mark.parametrize(
    "options",
    [
        {"rank": 2, "average": 0.9},
        {"optimizer": "sgd", "learning_rate": 0.1, "early_stopping": False},
    ],
)
def test_an_interrupted_fit_goes_on_bit_for_bit(
    base: LanguageModel, options: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    model = FineTuned(base, max_iter=50, random_state=3, **options)
    whole = clone(model).fit(PROMPTS, ANSWERS)
    plain = Checkpoints.save

    def save(self: Any, run: Any) -> None:
        plain(self, run)
        if run.epoch == 2:
            raise Stopped

    parts = clone(model).set_params(checkpoint=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        with pytest.raises(Stopped):
            parts.fit(PROMPTS, ANSWERS)
    for _ in range(2):  # a run that is over is returned as it is
        parts = clone(parts).fit(PROMPTS, ANSWERS)
        for name, value in whole.weights_.items():
            np.testing.assert_array_equal(parts.weights_[name], value)
        assert parts.history_["loss"] == whole.history_["loss"]
    with pytest.raises(ValueError, match="belongs to another fit"):
        clone(parts).fit(PROMPTS, ANSWERS[::-1])


def test_fine_tuning_stops_by_held_out_pairs_and_keeps_the_best(
    base: LanguageModel,
) -> None:
    other = (["q="] * 6, ["xyz", "zzz", "qqq", "jjj", "kkk", "www"])  # not of the task
    model = FineTuned(base, max_iter=400, n_iter_no_change=2, random_state=0)
    model.fit(PROMPTS, ANSWERS, validation=other)
    seen = model.history_["validation_loss"]
    assert model.n_iter_ < 400 and len(seen) == model.best_epoch_ + 2
    assert model.validation_loss_ == pytest.approx(min(seen), rel=1e-6)
    assert model.validation_loss_ == pytest.approx(cost(model, *other), rel=1e-4)


def test_few_pairs_are_all_learnt_from(base: LanguageModel) -> None:
    model = FineTuned(base, max_iter=10, random_state=0).fit(PROMPTS[:5], ANSWERS[:5])
    assert math.isnan(model.validation_loss_)
    assert "validation_loss" not in model.history_


def test_a_file_brings_it_back(model: FineTuned, tmp_path: Any) -> None:
    back = certus.load(model.save(tmp_path / "tuned.certus"))
    assert back.bits_per_byte("two=owt") == model.bits_per_byte("two=owt")
    assert back.base.bits_per_byte("two") == model.base.bits_per_byte("two")
    assert certus.certify(back, PROMPTS, ANSWERS).status is Status.SOLVED


def test_a_merged_model_needs_no_base(model: FineTuned) -> None:
    alone = model.merge()
    assert type(alone) is LanguageModel
    text = "two=owt"
    assert alone.bits_per_byte(text) == model.bits_per_byte(text)
    found = certus.certify(alone, text)
    assert found.value == pytest.approx(model.bits_per_byte(text), rel=1e-4)


def test_a_tuned_model_is_a_base(model: FineTuned, base: LanguageModel) -> None:
    again = FineTuned(model, rank=1, max_iter=10, random_state=0).fit(PROMPTS, ANSWERS)
    assert again.certificate_.met and again.tokenizer_ is base.tokenizer_
    assert clone(again).base is model


def test_progress_is_shown_and_time_is_kept(base: LanguageModel) -> None:
    lines: list[str] = []
    model = FineTuned(base, max_iter=10**6, max_time=1.0, n_iter_no_change=math.inf)
    model.set_callbacks(TrainingProgress(lines.append))
    with pytest.warns(UncertifiedWarning, match="stopped at max_time"):
        model.fit(PROMPTS, ANSWERS)
    assert model.certificate_.status is Status.TIME_LIMIT and model.certificate_.met
    assert lines and "nats per token" in lines[0]


def test_a_callback_stops_it(base: LanguageModel) -> None:
    class Enough(TrainingProgress):
        def on_fit_task_end(self, estimator: Any, context: Any, **more: Any) -> bool:
            return context.task_name == "step"

    model = FineTuned(base, rank=1, max_iter=500).set_callbacks(Enough())
    model.fit(PROMPTS, ANSWERS)
    assert model.certificate_.status is Status.STOPPED and model.n_iter_ < 500
