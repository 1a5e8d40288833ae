"""Texts and parameters that an n-gram model may be given by mistake."""

from __future__ import annotations

import numpy as np
import pytest

import certus
from certus.language import NGramModel


@pytest.mark.parametrize(
    "texts, told",
    [
        ("", "empty"),
        ([], "empty"),
        (["", b""], "empty"),
        (list("abc"), "Join them"),
        ([1, 2, 3], "must hold texts"),
        (3.5, "must be a text"),
        (None, "must be a text"),
        ("\ud800", "half a character"),
    ],
)
def test_what_is_not_a_text_is_refused(texts, told):
    with pytest.raises((ValueError, TypeError), match=told):
        NGramModel().fit(texts)


@pytest.mark.parametrize("order", [0, -1, 65, 2.5, "5", None, True])
def test_order_must_be_a_whole_number(order):
    with pytest.raises((ValueError, TypeError), match="order must be an integer"):
        NGramModel(order).fit("abc")


@pytest.mark.parametrize(
    "text", ["a", b"\x00" * 100, b"\xff\xfe\x80", "né", b"\x00\xff" * 3, "<|end|>"]
)
def test_every_text_can_be_learnt_and_has_a_probability(text):
    model = NGramModel().fit(text)
    assert model.certificate_.met and model.certificate_["ngram_counts"].met
    bits = model.bits_per_byte(text)
    assert 0 < bits < 9 and np.isfinite(model.bits_per_byte(b"\x01never seen\xff"))


@pytest.mark.parametrize("ids", [[-1], [257], [[1, 2]], [10**12]])
def test_tokens_outside_the_vocabulary_are_refused(ids):
    model = NGramModel(3).fit("abc")
    with pytest.raises(ValueError, match="from 0 to 256"):
        model.token_log_probs(np.array(ids))


def test_a_long_text_without_a_line_break():
    rng = np.random.default_rng(0)
    text = rng.choice(np.frombuffer(b"acgt", np.uint8), 1_000_000).tobytes()
    model = NGramModel(5).fit(text)
    assert model.n_runs_[0] == 5 and abs(model.bits_per_byte(text) - 2) < 0.01


def test_a_forged_tokeniser_is_found():
    """Tokens that stand for other bytes than the text's cannot be counted as it."""
    model = NGramModel(3).fit("abc")

    class Shorter(type(model.tokenizer_)):
        def encode(self, text, *, special=False):
            return super().encode(text, special=special)[:-1]

    model.tokenizer_ = Shorter(model.tokenizer_.special_tokens)
    found = certus.certify(model, "abc")
    assert found["bytes_counted"].met is False and "bits_per_byte" not in found


def test_certify_wants_a_text():
    model = NGramModel(3).fit("abc")
    with pytest.raises(ValueError, match="text is empty"):
        certus.certify(model, "")
