"""Texts and parameters that an n-gram model may be given by mistake."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import certus
from certus.language import MixtureOfModels, NGramModel


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
def test_objects_that_are_not_texts_are_refused(texts, told):
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


def spoilt(name, place, value):
    model = NGramModel(3).fit("abracadabra")
    array = getattr(model, name).copy()
    array[place] = value
    setattr(model, name, array)
    return model


@pytest.mark.parametrize(
    "name, place, value",
    [
        ("first_", 0, 10**9),
        ("first_", -1, 10**9),
        ("first_", 3, -5),
        ("suffixes_", -1, 10**9),
        ("suffixes_", -1, -7),
        ("suffixes_", 0, 1),
        ("suffixes_", 5, 5),
        ("last_tokens_", 2, 999),
        ("starts_", -2, 10**6),
        ("starts_", 1, 3),
    ],
)
def test_a_forged_tree_is_not_walked(name, place, value):
    """Compiled code does not check its indices, so they are checked before."""
    model = spoilt(name, place, value)
    with pytest.raises(ValueError, match="changed after its fit"):
        model.bits_per_byte("abra")
    with pytest.raises(ValueError, match="changed after its fit"):
        model.next_probabilities(np.array([97]))


def test_arrays_of_other_lengths_and_types_are_not_walked():
    for name in ("first_", "suffixes_", "shares_", "backoffs_", "last_tokens_"):
        model = NGramModel(3).fit("abracadabra")
        setattr(model, name, getattr(model, name)[:-1])
        with pytest.raises(ValueError, match="changed after its fit"):
            model.log_prob("abra")
        model = NGramModel(3).fit("abracadabra")
        setattr(model, name, getattr(model, name).astype(np.complex128))
        with pytest.raises(ValueError, match="changed after its fit"):
            model.log_prob("abra")


def test_a_forged_file_is_not_walked(tmp_path):
    model = spoilt("suffixes_", -1, 10**9)
    back = certus.load(model.save(tmp_path / "m.certus"))
    with pytest.raises(ValueError, match="changed after its fit"):
        back.bits_per_byte("abra")


def test_files_and_pickles_bring_models_back(tmp_path):
    model = NGramModel(3, tokenizer=260).fit(["abracadabra", "a cat"])
    other = NGramModel(1, tokenizer=model.tokenizer_).fit("abc")
    mixture = MixtureOfModels([model, other])
    mixture.fit("a bra")
    for one in (model, mixture):
        back = certus.load(one.save(tmp_path / "m.certus"))
        again = pickle.loads(pickle.dumps(one))
        for other in (back, again):
            assert other.bits_per_byte("a bra") == one.bits_per_byte("a bra")
        assert certus.certify(back, "a bra").status == "solved"
