"""What a model wrote is drawn again by the verifier, or it is found out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import certus
from certus.certificate import Status, Strength
from certus.language import LanguageModel

TEXT = "the cat sat on the mat and the dog sat on the cat. " * 40


def fitted(seed: int, **words: Any) -> LanguageModel:
    sizes = {"n_layers": 2, "width": 32, "heads": 2, "context": 24, **words}
    return LanguageModel(
        **sizes, max_iter=40, max_time=None, random_state=seed, early_stopping=False
    ).fit(TEXT)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return fitted(0)


@pytest.fixture(scope="module")
def small() -> LanguageModel:
    return fitted(1, n_layers=1, width=16)


WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7},
    {"top_k": 5},
    {"top_p": 0.8},
    {"temperature": 1.4, "top_k": 30, "top_p": 0.95},
    {"temperature": 0.0},
]


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_samples_are_drawn_again(model: LanguageModel, ways: dict[str, Any]) -> None:
    made = model.generate("the ", 60, random_state=0, **ways)  # beyond the context
    found = certus.certify(made)
    assert found.status is Status.SOLVED and found.primary == "replay"
    assert found["replay"].met and found["cache"].met and found["bytes_counted"].met
    assert found["cache"].value < 1e-4


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_drafts_are_judged(
    model: LanguageModel, small: LanguageModel, ways: dict[str, Any]
) -> None:
    made = model.generate("the ", 60, draft=small, random_state=0, **ways)
    found = certus.certify(made)
    assert found.status is Status.SOLVED, str(found)
    assert found["speculative_gap"].value < 1e-5


def test_a_beam_search_has_nothing_to_replay(model: LanguageModel) -> None:
    found = certus.certify(model.generate("the ", 8, beam=3))
    assert "replay" not in found and found["cache"].met


def test_an_empty_generation(model: LanguageModel) -> None:
    found = certus.certify(model.generate("the ", 0))
    assert found.status is Status.SOLVED and "cache" not in found


# -- a network whose rounding is not proved to be small -------------------------------


@pytest.fixture(scope="module")
def large() -> LanguageModel:
    words: dict[str, Any] = {"n_layers": 4, "width": 128, "heads": 4, "context": 64}
    model = LanguageModel(
        **words, max_iter=3, max_time=None, random_state=0, early_stopping=False
    )
    with certus.config_context(certify="never"):
        model.fit(TEXT)
    # As after a longer fit: larger weights, and a wider bound of their rounding.
    for name, value in model.weights_.items():
        if name.endswith(("inner.weight", "outer.weight", "qkv.weight", "out.weight")):
            value *= 1.5
    return model


def test_samples_of_a_large_model_are_confirmed_by_an_estimate(
    large: LanguageModel, small: LanguageModel
) -> None:
    """Confirmed in words and numbers; measured, as the proved bound is too wide."""
    made = large.generate("the ", 40, temperature=0.8, random_state=0)
    found = certus.certify(made)
    for name in ("replay", "cache"):
        claim = found[name]
        assert claim.strength is Strength.MEASURED and claim.met is None, name
        assert 0 < claim.allowance < 1e-9 and claim.value < claim.target, name
        assert "estimated from two orders of summation" in claim.detail
    assert found["replay"].target == 1e-5 and found["replay"].value <= 1e-5
    assert "each of 40 tokens is what was drawn" in found["replay"].detail
    assert found.primary == "replay" and found.status is Status.UNDECIDED
    assert "confirmed by measurement" in found.ending and "undecided" not in str(found)
    assert found["bytes_counted"].strength is Strength.PROVED

    made = large.generate("the ", 40, draft=small, temperature=0.8, random_state=0)
    claim = certus.certify(made)["speculative_gap"]
    assert claim.strength is Strength.MEASURED and 0 < claim.value <= claim.target


def test_faults_of_a_large_model_are_refuted(
    large: LanguageModel, small: LanguageModel
) -> None:
    made = large.generate("the ", 40, temperature=0.8, random_state=0)
    ids = made.ids.copy()
    ids[-1] = (ids[-1] + 100) % 256
    late = made.log_probs.copy()
    late[30:] += 0.05  # as if the cache had kept a token of another window
    for change, name in (
        ({"temperature": 1.6}, "replay"),
        ({"ids": ids}, "replay"),
        ({"log_probs": late}, "cache"),
    ):
        found = certus.certify(replace(made, **change))
        assert found[name].met is False and found.primary == name, change
        assert found[name].strength is Strength.PROVED
        assert found.status is Status.TOL_NOT_REACHED
    # Smaller than the proved bound, and far above the estimate: never confirmed.
    near = replace(made, log_probs=made.log_probs + 2e-3)
    found = certus.certify(near)
    assert found["cache"].undecided and found.status is Status.UNDECIDED
    assert found.primary == "cache" and "estimated" in found["cache"].detail

    made = large.generate("the ", 40, draft=small, temperature=0.8, random_state=0)
    assert made.draft is not None
    flat = made.draft.q + 0.3 / made.draft.q.shape[1]
    forged = replace(made.draft, q=flat / flat.sum(axis=1, keepdims=True))
    found = certus.certify(replace(made, draft=forged))
    assert found["speculative_gap"].met is False


# -- planted faults -------------------------------------------------------------------


def test_another_temperature_than_stated(model: LanguageModel) -> None:
    made = model.generate("the ", 60, temperature=1.0, random_state=0)
    for change in ({"temperature": 0.9}, {"top_k": 3}, {"top_p": 0.6}):
        found = certus.certify(replace(made, **change))
        assert found["replay"].met is False and found.primary == "replay"


def test_a_record_of_another_network(model: LanguageModel) -> None:
    made = model.generate("the ", 40, random_state=0)
    weights = {name: value.copy() for name, value in made.weights.items()}
    for value in weights.values():
        value *= 1.001
    found = certus.certify(replace(made, weights=weights))
    assert found["replay"].met is False or found["cache"].met is False


def test_tokens_text_and_numbers_that_were_changed(model: LanguageModel) -> None:
    made = model.generate("the ", 40, random_state=0)
    ids = made.ids.copy()
    ids[-1] = (ids[-1] + 1) % 256
    assert certus.certify(replace(made, ids=ids)).status is Status.TOL_NOT_REACHED
    said = certus.certify(replace(made, text=made.text + "!"))
    assert said["bytes_counted"].met is False
    numbers = (made.uniforms + 0.5) % 1
    assert certus.certify(replace(made, uniforms=numbers))["replay"].met is False


def test_a_draft_that_used_another_q(
    model: LanguageModel, small: LanguageModel
) -> None:
    """Acceptances by the draft's raw law, while proposals came from its ten best."""
    made = model.generate("the ", 60, draft=small, top_k=10, random_state=0)
    assert made.draft is not None
    flat = made.draft.q + 0.3 / made.draft.q.shape[1]
    forged = replace(made.draft, q=flat / flat.sum(axis=1, keepdims=True))
    found = certus.certify(replace(made, draft=forged))
    assert found["speculative_gap"].met is False


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_length": 1000},
        {"prompt_length": -5},
        {"ids": np.array([999])},
        {"config": {"kind": "decoder"}},
    ],
    ids=str,
)
def test_senseless_records_are_refused(
    model: LanguageModel, change: dict[str, Any]
) -> None:
    made = model.generate("the ", 5, random_state=0)
    with pytest.raises(ValueError, match=r"\."):
        certus.certify(replace(made, **change))
