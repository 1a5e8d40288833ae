"""Language models that were changed after their fit, or never were fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import certus
from certus.certificate import Status
from certus.language import ByteTokenizer, LanguageModel

TEXT = ["the cat sat on the mat. " * 4, "the dog sat on the cat. " * 4] * 4


@pytest.fixture
def model() -> LanguageModel:
    sizes: Any = {"n_layers": 1, "width": 16, "heads": 2, "context": 16}
    return LanguageModel(
        **sizes, max_iter=20, max_time=None, random_state=0, early_stopping=False
    ).fit(TEXT)


def test_the_same_model_and_text(model: LanguageModel) -> None:
    found = certus.certify(model, TEXT)
    assert found.status is Status.SOLVED
    assert np.isclose(found.value, model.certificate_.value, rtol=1e-9)


def test_weights_that_were_changed_refute_the_certificate(
    model: LanguageModel,
) -> None:
    with torch.no_grad():
        for p in model.network_.parameters():
            p.mul_(1.01)
    assert certus.certify(model, TEXT).status is Status.REFUTED


def test_another_text_is_judged_on_its_own(model: LanguageModel) -> None:
    other = certus.certify(model, "zebras and xylophones")
    assert other.status is Status.SOLVED and other.value > model.certificate_.value


def test_an_exchanged_vocabulary_is_found(model: LanguageModel) -> None:
    model.tokenizer_ = ByteTokenizer(special_tokens=("<|a|>", "<|b|>", "<|end|>"))
    with pytest.raises(ValueError, match="changed after its fit"):
        certus.certify(model, "text")


def test_an_end_of_text_that_stands_for_bytes(model: LanguageModel) -> None:
    class Odd(ByteTokenizer):
        @property
        def special(self) -> dict[str, int]:
            return {"<|end|>": 65}

    model.tokenizer_ = Odd(special_tokens=("<|end|>",))
    found = certus.certify(model, "text")
    assert found.primary == "bytes_counted" and found.met is False


def test_weights_that_are_not_finite(model: LanguageModel) -> None:
    with torch.no_grad():
        model.network_.embedding.weight[5, 5] = torch.nan
    with pytest.raises(ValueError, match="finite"):
        certus.certify(model, "text")


@pytest.mark.parametrize("text", ["", [], ["", b""], b""])
def test_texts_without_a_byte(model: LanguageModel, text: Any) -> None:
    with pytest.raises(ValueError, match="empty"):
        certus.certify(model, text)


@pytest.mark.parametrize("text", [5, None, [1, 2], 0.5])
def test_objects_that_are_not_texts_are_reported(
    model: LanguageModel, text: Any
) -> None:
    with pytest.raises(TypeError, match="Pass a text"):
        certus.certify(model, text)


@pytest.mark.parametrize("text", [b"\xff\xfe\x00", "\x00", "a", b"\n" * 50, "日本" * 9])
def test_odd_bytes(model: LanguageModel, text: Any) -> None:
    found = certus.certify(model, text, level="full")
    assert found["bytes_counted"].met and found["stated_bits"].met


def test_before_a_fit() -> None:
    with pytest.raises(ValueError, match="not fitted"):
        certus.certify(LanguageModel(), "text")
