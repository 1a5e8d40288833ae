"""What is done with word vectors: cosines, analogies, means, files."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import certus
from certus.text import (
    BagOfWords,
    Cooccurrence,
    GloVe,
    PretrainedVectors,
    UnknownWordError,
    load_word2vec,
)

WORDS = ["king", "queen", "man", "woman", "apple", "nothing"]


@pytest.fixture
def model() -> PretrainedVectors:
    made = PretrainedVectors()
    made.vocabulary_ = list(WORDS)
    # Royal, female, fruit; the last word has no length at all.
    made.vectors_ = np.array(
        [[3.0, 0, 0], [3, 3, 0], [0.1, 0, 0.1], [0.1, 3, 0.1], [0, 0, 2], [0, 0, 0]]
    )
    return made


def test_neighbours_are_those_of_the_cosine(model: Any) -> None:
    Z = model.vectors_
    for word, z in zip(WORDS[:5], Z):
        norms = np.linalg.norm(Z, axis=1) * np.linalg.norm(z)
        cosines = Z @ z / np.where(norms > 0, norms, 1)
        found = model.most_similar(word, n=10)
        assert word not in dict(found) and len(found) == len(WORDS) - 1
        values = [value for _, value in found]
        assert values == sorted(values, reverse=True)
        for other, value in found:
            assert value == pytest.approx(cosines[WORDS.index(other)])
            assert value == pytest.approx(model.similarity(word, other))
    assert model.most_similar(Z[4], n=1) == [("apple", pytest.approx(1.0))]
    assert model.similarity("king", "nothing") == 0.0


def test_analogies(model: Any) -> None:
    assert model.analogy("king", "queen", "man", n=1)[0][0] == "woman"
    assert not {"king", "queen", "man"} & set(
        dict(model.analogy("king", "queen", "man"))
    )


def test_words_are_keys(model: Any) -> None:
    assert "king" in model and "kin" not in model and 3 not in model
    np.testing.assert_array_equal(model["apple"], [0, 0, 2])
    model["apple"][0] = 9  # a copy
    assert model["apple"][0] == 0
    with pytest.raises(UnknownWordError, match=r"'qeen' is not .* spellings: 'queen'"):
        model["qeen"]
    with pytest.raises(KeyError, match=r"'King' is not .* 'king'"):
        model.similarity("King", "queen")
    with pytest.raises(TypeError, match="A word must be a str"):
        model.vector(3)
    with pytest.raises(TypeError):
        iter(model)


@pytest.mark.catalog("TXT-09")
@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "c", "z"]), max_size=6), min_size=1),
    st.sampled_from([np.float32, np.float64]),
)
def test_means_are_bags_of_words_times_vectors(texts: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    model = PretrainedVectors()
    model.vocabulary_, model.vectors_ = ["a", "b", "c"], rng.normal(size=(3, 4))
    model.vectors_ = model.vectors_.astype(dtype)
    counts = BagOfWords().fit([model.vocabulary_])
    assert counts.vocabulary_ == model.vocabulary_
    X = counts.transform(texts)
    total = model.transform(texts, pooling="sum")
    tight = {"rtol": 1e-5, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-12}
    np.testing.assert_allclose(total, X @ model.vectors_, **tight)
    sizes = np.maximum(1, np.asarray(X.sum(axis=1)))
    mean = model.transform(texts)
    np.testing.assert_allclose(mean, X @ model.vectors_ / sizes, **tight)
    assert mean.dtype == dtype and mean.shape == (len(texts), 4)
    # Linear: joined documents add up.
    joined = model.transform([[word for text in texts for word in text]], pooling="sum")
    np.testing.assert_allclose(joined, total.sum(axis=0, keepdims=True), atol=1e-4)


@pytest.mark.catalog("TXT-09")
def test_weights_of_words(model: Any) -> None:
    texts = [["king", "apple", "apple"], ["unknown"], []]
    found = model.transform(texts, weights={"king": 3.0})
    np.testing.assert_allclose(found[0], (3 * model["king"] + 2 * model["apple"]) / 5)
    assert not found[1:].any()
    for weights in ("sif", "idf"):
        with pytest.raises(ValueError, match="pass a dict of weights"):
            model.transform(texts, weights=weights)
    model.counts_ = np.array([500, 100, 300, 50, 40, 10])
    model.document_counts_, model.n_documents_ = np.array([9, 5, 8, 3, 2, 1]), 10
    share = model.counts_ / 1000
    a = 1e-3 / (1e-3 + share)
    expected = (a[0] * model["king"] + 2 * a[4] * model["apple"]) / (a[0] + 2 * a[4])
    np.testing.assert_allclose(model.transform(texts, weights="sif")[0], expected)
    a = np.log(11 / (1 + model.document_counts_)) + 1
    expected = (a[0] * model["king"] + 2 * a[4] * model["apple"]) / (a[0] + 2 * a[4])
    np.testing.assert_allclose(model.transform(texts, weights="idf")[0], expected)
    with pytest.raises(ValueError, match="not negative"):
        model.transform(texts, weights={"king": -1.0})


def test_document_vectors_in_a_pipeline(model: Any) -> None:
    texts = ["king queen", "apple", "queen", "apple apple"] * 3
    y = [1, 0, 1, 0] * 3
    pipeline = make_pipeline(model, LogisticRegression()).fit(texts, y)
    assert pipeline.score(texts, y) == 1.0
    assert pipeline[:-1].get_feature_names_out()[0] == "pretrainedvectors0"


# -- files ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_word2vec_format_keeps_every_digit(
    model: Any, tmp_path: Any, dtype: Any
) -> None:
    rng = np.random.default_rng(0)
    model.vectors_ = rng.normal(size=(6, 5)) * 10.0 ** rng.integers(-30, 30, (6, 5))
    model.vectors_ = model.vectors_.astype(dtype)
    model.vocabulary_ = ["a", "ü", "東京", "#", "1.5", "😀"]
    path = model.to_word2vec(tmp_path / "vectors.txt")
    assert path.read_text("utf-8").splitlines()[0] == "6 5"
    back = load_word2vec(path, dtype=dtype)
    assert back.vocabulary_ == model.vocabulary_
    np.testing.assert_array_equal(back.vectors_, model.vectors_)
    assert back.vectors_.dtype == dtype


def test_files_without_a_first_line_and_of_word2vec_itself(tmp_path: Any) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("the 0.1 -2\nof 1e-3 4\n")
    assert load_word2vec(path).vocabulary_ == ["the", "of"]
    path.write_text("2 2\nthe 0.1 -2 \nof 1e-3 4 \n")
    np.testing.assert_allclose(load_word2vec(path)["of"], [1e-3, 4])


TEXTS = ["the cat drinks milk", "the dog drinks water", ""] * 20


def fitted(name: str) -> Any:
    if name == "PretrainedVectors":
        vectors = PretrainedVectors()
        vectors.vocabulary_, vectors.vectors_ = ["a", "b c"], np.eye(2)
        return vectors
    made = {
        "BagOfWords": BagOfWords(ngram_range=(1, 2)),
        "Cooccurrence": Cooccurrence("sentence"),
        "GloVe": GloVe(2, solver="als", random_state=0),
    }
    return made[name].fit(TEXTS)


@pytest.mark.parametrize(
    "name", ["BagOfWords", "Cooccurrence", "GloVe", "PretrainedVectors"]
)
def test_models_come_back_from_files(name: str, tmp_path: Any) -> None:
    model = fitted(name)
    back = certus.load(model.save(tmp_path / "m.certus"))
    assert set(vars(back)) == set(vars(model))
    assert back.vocabulary_ == model.vocabulary_
    if hasattr(model, "transform"):
        assert (model.transform(TEXTS) != back.transform(TEXTS)).sum() == 0
    if hasattr(model, "certificate_"):
        again = certus.certify(back, TEXTS)
        assert again.met and again.fingerprint == model.certificate_.fingerprint


def test_a_hundred_thousand_words_are_saved_and_loaded_quickly(tmp_path: Any) -> None:
    model = PretrainedVectors()
    model.vocabulary_ = [f"wörd{i}" for i in range(100_000)]
    model.vectors_ = np.zeros((100_000, 8), dtype=np.float32)
    start = time.perf_counter()
    back = certus.load(model.save(tmp_path / "m.certus"))
    assert time.perf_counter() - start < 10
    assert back.vocabulary_ == model.vocabulary_


def test_vectors_that_were_read_survive_cross_validation():
    model = PretrainedVectors()
    model.vocabulary_, model.vectors_ = ["good", "bad"], np.array([[1.0], [-1.0]])
    texts, labels = ["good", "bad"] * 6, [1, 0] * 6
    pipe = make_pipeline(model, LogisticRegression())
    assert cross_val_score(pipe, texts, labels, cv=3).min() == 1.0
    with pytest.raises(ValueError, match=r"one word.*model\['a'\] \+ model\['b'\]"):
        model.most_similar(["good", "bad"])
