"""Counting where there is little, or much, to count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import certus
from certus.text import BagOfWords, Cooccurrence, cooccurrence, encode

MODELS = [BagOfWords(), Cooccurrence(), Cooccurrence("document")]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_corpora_without_words(model: Any) -> None:
    for texts in ([], [""], [[], "..."]):
        with pytest.raises(ValueError, match="has no words left"):
            model.fit(texts)
    with pytest.raises(ValueError, match="2 words are rarer than min_count=3"):
        type(model)(min_count=3).fit(["a b"])


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_one_word_and_empty_documents(model: Any) -> None:
    model.fit(["", "word", []])
    assert model.vocabulary_ == ["word"] and model.certificate_.met
    assert certus.certify(model, ["", "word", []], level="full").met


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("min_count", 0), ("min_count", 1.5), ("max_words", 0), ("context", "page")),
        *(("window", 0), ("window", 2.5), ("weighting", "linear"), ("ngram_range", 3)),
        *(("ngram_range", (2, 1)), ("ngram_range", (0, 1)), ("tokenizer", "words")),
    ],
)
def test_parameters_are_checked(name: str, value: Any) -> None:
    for model in (BagOfWords(), Cooccurrence()):
        if name in model.get_params():
            with pytest.raises((ValueError, TypeError), match=name):
                model.set_params(**{name: value}).fit(["a b", "c d"])


def test_contexts_without_sides_or_distances() -> None:
    with pytest.raises(ValueError, match="has no left and right"):
        Cooccurrence("document", symmetric=False).fit(["a b"])
    with pytest.raises(ValueError, match="has no distances"):
        Cooccurrence("sentence", weighting="harmonic").fit(["a b"])


def test_a_document_too_large_to_be_one_context(monkeypatch: Any) -> None:
    monkeypatch.setattr(cooccurrence, "LARGEST", 100)
    texts = [["a"], [f"w{i}" for i in range(11)]]
    with pytest.raises(ValueError, match="Context 1 holds 11 words"):
        Cooccurrence("document").fit(texts)
    assert Cooccurrence().fit(texts).certificate_.met


def test_a_million_words_and_no_dense_matrix() -> None:
    rng = np.random.default_rng(0)
    names = [f"w{i}" for i in range(10**6)]
    shuffled = rng.permutation(10**6).reshape(-1, 10)
    corpus = encode([names[i] for i in row] for row in shuffled)
    model = Cooccurrence(window=2).fit(corpus)
    assert model.matrix_.shape == (10**6, 10**6)
    assert model.matrix_.nnz == 10**5 * 2 * (9 + 8) and model.certificate_.met
    counts = BagOfWords().fit(corpus)
    assert counts.certificate_.met and counts.document_counts_.sum() == 10**6


def test_windows_longer_than_everything() -> None:
    model = Cooccurrence(window=10**6).fit(["a b c", "b"])
    assert model.matrix_.sum() == 6 and model.certificate_.met


def test_a_foreign_numbering_is_refused() -> None:
    model = BagOfWords().fit(["a b"])
    with pytest.raises(ValueError, match="another vocabulary"):
        certus.certify(model, encode(["b a"]))


def test_a_corpus_on_disk_is_counted_like_one_in_memory(monkeypatch: Any) -> None:
    texts = ["the cat drinks milk", "the dog drinks water"] * 9
    inside = Cooccurrence().fit(texts)
    rows = BagOfWords().fit_transform(texts)
    monkeypatch.setitem(encode.__globals__, "IN_MEMORY", 10)
    outside = Cooccurrence().fit(text for text in texts)
    assert (outside.matrix_ != inside.matrix_).nnz == 0 and outside.certificate_.met
    assert (BagOfWords().fit_transform(iter(texts)) != rows).nnz == 0
