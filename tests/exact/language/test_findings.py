"""Certificates about texts: the entropy of a source, the best text, two models."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import certus
from certus.certificate import Status, Strength
from certus.language import (
    LanguageModel,
    NGramModel,
    bits_difference,
    decoding_gap,
    entropy_excess,
)

LAW = np.array([[0.9, 0.1], [0.3, 0.7]])
#: Bits per symbol of this source: Σ π H(row), π = (3/4, 1/4).
ENTROPY = 0.75 * 0.4689955936 + 0.25 * 0.8812908992


def source(n: int, seed: int = 0) -> str:
    rng, state, out = np.random.default_rng(seed), 0, []
    for u in rng.random(n):
        state = int(u >= LAW[state, 0])
        out.append("ab"[state])
    return "".join(out)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    text = [source(100, seed) for seed in range(200)]
    words: Any = {"n_layers": 1, "width": 32, "heads": 2, "context": 16}
    return LanguageModel(**words, max_iter=150, max_time=None, random_state=0).fit(text)


@pytest.mark.catalog("LM-02")
def test_a_trained_model_comes_near_the_entropy_rate(model: LanguageModel) -> None:
    found = entropy_excess(model, LAW, "ab", 12)  # all 4,096 texts
    claim = found["entropy_excess"]
    assert claim.strength is Strength.PROVED and found.primary == "entropy_excess"
    assert 0 < claim.value < 0.08
    # The same number from the model's side: bits of long texts above the entropy.
    bits = model.bits_per_byte([source(100, 1000 + i) for i in range(20)])
    assert abs(bits - ENTROPY) < 0.12
    sampled = entropy_excess(model, LAW, "ab", 16)["entropy_excess"]
    assert sampled.strength is Strength.STATISTICAL
    assert 0 < sampled.value < 0.08


def test_coding_with_another_distribution_costs_the_divergence(
    model: LanguageModel,
) -> None:
    """Against a fair coin the model pays the divergence of its own law."""
    fair = entropy_excess(model, [0.5, 0.5], "ab", 12).value
    assert fair > entropy_excess(model, LAW, "ab", 12).value + 0.2


def test_the_most_probable_text(model: LanguageModel) -> None:
    every = {
        "".join(text): model.log_prob("a" + "".join(text)) - model.log_prob("a")
        for text in itertools.product("ab", repeat=4)
    }
    best = max(every, key=lambda text: every[text])
    top = decoding_gap(model, "a", best)
    assert top["decoding_gap"].strength is Strength.PROVED
    assert top.value < 1e-6
    other = decoding_gap(model, "a", "bbbb")
    assert math.isclose(other.value, every[best] - every["bbbb"], abs_tol=1e-3)
    assert decoding_gap(model, "a", "bbbb", visits=1).value >= other.value - 1e-9


def test_models_that_cannot_be_judged_are_refused(model: LanguageModel) -> None:
    found = decoding_gap(model, "a" * 14, "abab")
    assert found["decoding_gap"].strength is Strength.REFUSED
    assert decoding_gap(model, "a", "ab", max_tokens=3).met is None
    with pytest.raises(ValueError, match="one token"):
        entropy_excess(model, LAW, ["ab", "b"], 4)
    with pytest.raises(ValueError, match="length"):
        entropy_excess(model, LAW, "ab", 99)


def test_two_models_by_document() -> None:
    texts = [source(300, seed) for seed in range(30)]
    one, two = (NGramModel(k).fit("".join(texts[:15])) for k in (1, 2))
    found = bits_difference(two, one, texts[15:])
    assert found["bits_difference"].met and found.value < 0
    bits = [m.bits_per_byte("".join(texts[15:])) for m in (two, one)]
    assert abs(found["total_difference"].value - (bits[0] - bits[1])) < 0.02
    back = bits_difference(one, two, texts[15:])["bits_difference"]
    assert back.met and back.value > 0
    few = bits_difference(two, one, texts[15:20])
    assert few["bits_difference"].strength is Strength.REFUSED
    with pytest.raises(ValueError, match="delta"):
        bits_difference(one, two, texts, delta=2)


def test_the_certificate_of_a_fit_and_of_another_text(model: LanguageModel) -> None:
    text = [source(60, seed) for seed in range(500, 503)]
    found = certus.certify(model, text, level="full")
    assert found.status is Status.SOLVED and found.primary == "bits_per_byte"
    assert math.isclose(found.value, model.bits_per_byte(text), rel_tol=1e-5)
    assert all(claim.met is not False for claim in found.claims)
    assert model.certificate_.primary == "bits_per_byte"
    assert "bits" in str(model.certificate_)
