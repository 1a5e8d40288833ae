"""Texts, word vectors and text classifiers against what nobody means to pass."""

import errno
import gzip
import os

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
    load_word2vec,
    noise_contrastive,
)

TEXTS = ["red green blue red blue green", "one two three two one three"] * 10
SMALL = {"n_components": 3, "max_iter": 1, "min_count": 1, "subsample": None}
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
        FastTextClassifier(3, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_sparse_matrix_is_not_a_corpus(model):
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
    model = FastTextClassifier(3, max_iter=1, class_weight=weight, random_state=0)
    with pytest.raises(ValueError, match="'balanced', a dict"):
        model.fit(TEXTS, [0, 1] * 10)


def test_ngrams_longer_than_any_word_cost_nothing():
    model = FastTextVectors(**SMALL, **SEEDED, n_buckets=100, char_ngrams=(3, 10**12))
    assert model.fit(TEXTS).certificate_["composition"].met


def test_a_number_beyond_floats_is_refused_at_any_scale():
    with pytest.raises(
        ValueError, match="word_ngrams must be an integer of at least 1"
    ):
        FastTextClassifier(3, word_ngrams=10**400).fit(TEXTS, [0, 1] * 10)


@pytest.mark.parametrize("weighting", ["flat", "harmonic"])
def test_a_window_wider_than_any_text_takes_no_memory(weighting):
    wide = Cooccurrence(window=10**12, weighting=weighting).fit(TEXTS)
    whole = Cooccurrence(window=6, weighting=weighting).fit(TEXTS)
    assert wide.certificate_.met
    assert abs(wide.matrix_ - whole.matrix_).max() == 0


def test_contrast_refuses_input_that_is_not_a_table_of_numbers():
    rows, logs = np.random.default_rng(0).normal(size=(20, 2)), np.zeros(20)
    for bad in (sparse.csr_array(rows), rows + 1j):
        with pytest.raises(ValueError, match="dense array of real numbers"):
            noise_contrastive(bad, rows, logs, logs)
    with pytest.raises(ValueError, match="Scale the columns"):
        noise_contrastive(rows * 1e200, rows, logs, logs)


# -- files ------------------------------------------------------------------------


def fitted():
    return SkipGram(**SMALL, **SEEDED).fit(TEXTS)


def test_a_pipe_or_device_stays_what_it_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="a device or a pipe"):
        fitted().to_word2vec(pipe)
    with pytest.raises(ValueError, match="a device or a pipe"):
        fitted().save(pipe)
    assert pipe.is_fifo()


def test_a_full_disk_leaves_the_vectors_that_were_there(tmp_path, monkeypatch):
    path = tmp_path / "vectors.txt"
    path.write_text("1 1\nold 1\n")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left.*not changed"):
        fitted().to_word2vec(path)
    assert path.read_text() == "1 1\nold 1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_vectors_beyond_a_precision_and_invalid_vectors_are_refused(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("1 1\na 1e39\n")
    with pytest.raises(ValueError, match="not finite in float32"):
        load_word2vec(path)
    assert load_word2vec(path, "float64").vectors_ == 1e39
    path.write_text("0 3\n")
    with pytest.raises(ValueError, match="holds 0 words"):
        load_word2vec(path)


def test_a_compressed_file_damaged_in_the_middle(tmp_path):
    whole = gzip.compress(b"2 3\na 1 0 0\nb 0 1 0\n")
    path = tmp_path / "vectors.txt.gz"
    path.write_bytes(whole[:12] + b"\xff\xff" + whole[14:])
    with pytest.raises(ValueError, match="incomplete after line"):
        load_word2vec(path)
