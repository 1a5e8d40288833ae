"""Texts, word vectors and text classifiers against what nobody means to pass."""

import numpy as np
import pytest
from scipy import sparse

import certus
from certus.text import (
    BagOfWords,
    Cooccurrence,
    DocumentVectors,
    FastTextClassifier,
    FastTextVectors,
    GloVe,
    SkipGram,
)

TEXTS = ["red green blue red blue green", "one two three two one three"] * 10
SMALL = {"n_components": 3, "n_epochs": 1, "min_count": 1, "subsample": None}
SEEDED = {"random_state": 0, "deterministic": True}


@pytest.mark.parametrize(
    "model",
    [
        BagOfWords(),
        Cooccurrence(),
        GloVe(3),
        SkipGram(3),
        FastTextVectors(3),
        DocumentVectors(3),
        FastTextClassifier(3),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_sparse_matrix_is_no_corpus(model):
    with pytest.raises(ValueError, match="sparse matrix; pass the texts"):
        model.fit(sparse.eye(20, format="dia"), [0, 1] * 10)


def test_shares_summed_a_hundred_thousand_times_are_not_called_wrong():
    documents = ["a b c d " * 50_000] * 2
    model = Cooccurrence(window=10, weighting="harmonic").fit(documents)
    assert model.certificate_.met
    # A tenth of a pair too many is still seen among 10⁵ of them.
    model.matrix_.data[0] += 0.1
    assert not certus.certify(model, documents).met


@pytest.mark.parametrize("weight", ["equal", [1.0, 2.0], (2, 1), np.ones(2), 3.0])
def test_class_weights_are_a_dict_or_balanced(weight):
    model = FastTextClassifier(3, n_epochs=1, class_weight=weight)
    with pytest.raises(ValueError, match="'balanced', a dict"):
        model.fit(TEXTS, [0, 1] * 10)


def test_ngrams_longer_than_any_word_cost_nothing():
    model = FastTextVectors(**SMALL, **SEEDED, n_buckets=100, char_ngrams=(3, 10**12))
    assert model.fit(TEXTS).certificate_.met


def test_a_number_beyond_floats_is_no_matter_of_scale():
    with pytest.raises(ValueError, match="word_ngrams must be an integer at least 1"):
        FastTextClassifier(3, word_ngrams=10**400).fit(TEXTS, [0, 1] * 10)
