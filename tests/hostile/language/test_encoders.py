"""Encoders on texts, labels and settings that nobody should pass, and some do."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

from certus.language import (  # noqa: E402
    CharacterEncoder,
    MaskedLanguageModel,
    SentenceEncoder,
)

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")

QUICK = {"batch_size": 4, "max_iter": 3, "random_state": 0}
SHAPE = {"n_layers": 1, "width": 8, "heads": 2, "context": 8}
MASKED = MaskedLanguageModel(**SHAPE, **QUICK)
PAIRED = MaskedLanguageModel(pairs=True, **SHAPE, **QUICK)
SENTENCES = SentenceEncoder(**SHAPE, **QUICK)
CHARACTERS = CharacterEncoder(width=8, **QUICK)
TEXTS = ["One thing. Then another. And a third.", "A dog. A cat."] * 4
ALL = pytest.mark.parametrize(
    "model", [MASKED, PAIRED, SENTENCES, CHARACTERS], ids=lambda m: type(m).__name__
)


@ALL
@pytest.mark.parametrize(
    ("texts", "kind", "words"),
    [
        ("", ValueError, "empty"),
        ([], ValueError, "empty"),
        ([""], ValueError, "empty"),
        (list("characters"), ValueError, r"Join them: ''\.join\(texts\)"),
        ([1, 2, 3], TypeError, "got numbers"),
        (7, TypeError, "must be a text, a path, or a list"),
        (None, TypeError, "must be a text, a path, or a list"),
        ([b"a", None], TypeError, "must be str or bytes"),
    ],
)
def test_objects_that_are_not_text_are_refused(model, texts, kind, words):
    with pytest.raises(kind, match=words):
        clone(model).fit(texts)


@pytest.mark.parametrize("model", [MASKED, CHARACTERS], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("text", ["a", "one two", "One sentence only."])
def test_a_single_short_text_is_learnt(model, text):
    found = clone(model).fit(text)
    assert found.transform([text]).shape == (1, found.n_features_out_)
    assert np.isfinite(found.transform([text])).all()
    assert math.isfinite(found.certificate_[found.certificate_.primary].value)


@pytest.mark.parametrize(
    "text", [b"\x00" * 300, b"\xff\xfe\x80" * 90, "日" * 200], ids=repr
)
def test_odd_bytes_are_learnt(text):
    for model in (MASKED, clone(SENTENCES).set_params(tokenizer="bytes")):
        assert np.isfinite(clone(model).fit(text).transform([text])).all()


def test_words_are_needed_where_words_are_read():
    with pytest.raises(ValueError, match="no words"):
        clone(CHARACTERS).fit(["...", "!?"])


def test_a_single_character_has_no_passage_after_it():
    with pytest.raises(ValueError, match="at least two tokens"):
        clone(SENTENCES).fit("a")
    with pytest.raises(ValueError, match='set tokenizer="bytes"'):
        clone(SENTENCES).fit("日" * 200)  # one word, and so one token


@pytest.mark.parametrize("texts", ["One sentence.", ["one", "two"], "a"])
def test_pairs_need_two_sentences(texts):
    with pytest.raises(ValueError, match="at least two sentences"):
        clone(PAIRED).fit(texts)


@pytest.mark.parametrize(
    "texts", [[("a", "b"), "c"], [("a",), ("b", "c")], [("a", "b", "c")]]
)
def test_invalid_pairs_are_refused(texts):
    with pytest.raises(ValueError, match="pairs of two texts each"):
        clone(SENTENCES).fit(texts)


@ALL
def test_empty_and_long_texts_among_others_have_vectors(model):
    found = clone(model).fit(TEXTS)
    Z = found.transform(["", "a", "word " * 500, "\x00", "日本"])
    assert np.isfinite(Z).all() and (Z[0] == 0).all()
    assert found.transform([]).shape == (0, found.n_features_out_)
    with pytest.raises(TypeError):
        found.transform(["a", np.nan])


def test_an_empty_text_has_cosine_zero_and_other_vectors_are_refused():
    found = clone(SENTENCES).fit(TEXTS)
    assert found.similarity([""], ["a dog"])[0, 0] == 0
    with pytest.raises(ValueError, match="8 columns"):
        found.similarity(np.zeros((2, 3)))


@ALL
def test_labels_that_are_missing_are_named(model):
    y = [0, 1, np.nan, 1, 0, 1, 0, 1]
    with pytest.raises(ValueError, match=r"missing|NaN"):
        make_pipeline(clone(model), LogisticRegression()).fit(TEXTS, y)


def test_labels_of_other_texts_are_refused():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clone(CHARACTERS).fit(TEXTS, [0, 1])


def test_gaps():
    found = clone(MASKED).fit(TEXTS)
    with pytest.raises(ValueError, match=r"must have '<\|mask\|>'"):
        found.fill("no gap")
    assert len(found.fill("<|mask|>").encode()) >= 1
    long = "word " * 50 + "<|mask|>" + " word" * 50
    assert found.fill(long).startswith("word word")
    many = found.fill("<|mask|>" * 30)
    assert "mask" not in many
    paired = clone(PAIRED).fit(TEXTS)
    with pytest.raises(ValueError, match="same number of texts"):
        paired.follow_probability(["one"], ["two", "three"])
    long = paired.follow_probability(["word " * 100, ""], ["word " * 100, ""])
    assert ((long > 0) & (long < 1)).all()


@ALL
def test_calls_before_a_fit_are_refused(model):
    with pytest.raises(NotFittedError):
        clone(model).transform(["a"])


@ALL
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_layers": -1}, "layers"),
        ({"context": 0}, "context"),
        ({"max_iter": 0}, "max_iter"),
        ({"max_time": 0}, "max_time"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"dropout": 2.0}, "dropout"),
        ({"batch_size": 0}, "batch_size"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"early_stopping": "yes"}, "early_stopping"),
        ({"device": "toaster"}, "device"),
    ],
)
def test_senseless_settings_are_refused(model, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        clone(model).set_params(**options).fit(TEXTS)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (MASKED, {"mask_fraction": 0.0}, "mask_fraction"),
        (MASKED, {"pairs": "both"}, "pairs"),
        (MASKED, {"n_layers": 0}, "layers"),
        (CHARACTERS, {"n_layers": 0}, "layers"),
        (MASKED, {"width": 6, "heads": 4}, "even multiple of heads"),
        (SENTENCES, {"temperature": 0.0}, "temperature"),
        (SENTENCES, {"base": LogisticRegression()}, "base must be"),
        (CHARACTERS, {"max_words": 0}, "max_words"),
    ],
)
def test_senseless_settings_of_a_single_model_are_refused(model, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        clone(model).set_params(**options).fit(TEXTS)


@ALL
def test_a_diverging_rate_still_returns_finite_weights(model):
    found = clone(model).set_params(optimizer="sgd", learning_rate=1e30, clip=None)
    found.set_params(max_iter=30).fit(TEXTS)
    assert all(np.isfinite(array).all() for array in found.weights_.values())
    assert np.isfinite(found.transform(TEXTS)).all()
