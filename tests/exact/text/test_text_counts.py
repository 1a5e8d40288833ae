"""Bags of words and co-occurrence counts against counting by hand."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import certus
from certus.base import thread_pools
from certus.certificate import Status, Strength
from certus.linear_model import Perceptron
from certus.text import BagOfWords, Cooccurrence, cooccurrence, encode

corpora = st.lists(st.lists(st.sampled_from("abcdef"), max_size=9), min_size=1).filter(
    lambda texts: any(texts)
)


def zipf(n: int, length: int, size: int = 50, seed: int = 0) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    p = 1 / np.arange(1, size + 1)
    draws = rng.choice(size, (n, length), p=p / p.sum())
    return [[f"w{i}" for i in row] for row in draws]


# -- bag of words -----------------------------------------------------------------

EMAILS = [  # columns of the table: which of five words an e-mail holds
    "and viagra of nigeria",
    "the of",
    "viagra the",
    "and of",
    "and the nigeria",
    "and the of",
]
TABLE = [
    *([1, 0, 0, 1, 1, 1], [1, 0, 1, 0, 0, 0], [0, 1, 1, 0, 1, 1]),
    *([1, 1, 0, 1, 0, 1], [1, 0, 0, 0, 1, 0]),
]


@pytest.mark.catalog("TXT-01")
def test_the_spam_table_and_what_follows_from_it() -> None:
    names = ["and", "viagra", "the", "of", "nigeria"]
    model = BagOfWords(binary=True).fit(EMAILS)
    order = [model.vocabulary_.index(name) for name in names]
    X = model.transform(EMAILS).toarray()[:, order]
    np.testing.assert_array_equal(X.T, TABLE)
    y = [1, -1, 1, -1, 1, -1]
    machine = Perceptron(shuffle=False, tol=None, max_iter=20).fit(X, y)
    new = model.transform(["and viagra"]).toarray()[:, order]
    assert machine.decision_function(new)[0] == 2.0


@pytest.mark.catalog("TXT-01")
@given(corpora, st.booleans(), st.randoms())
def test_counts_are_counts_and_order_is_lost(
    texts: Any, binary: bool, random: Any
) -> None:
    model = BagOfWords(binary=binary)
    X = model.fit_transform(texts)
    for document, row in zip(texts, X.toarray()):
        count = Counter(document)
        expected = [count[word] for word in model.vocabulary_]
        if binary:
            expected = [min(c, 1) for c in expected]
        assert row.tolist() == expected
    shuffled = [random.sample(text, len(text)) for text in texts]
    assert (model.transform(shuffled) != X).nnz == 0
    assert model.certificate_.met and model.certificate_.status is Status.SOLVED
    assert X.has_canonical_format and X.dtype == np.int64
    held = [sum(word in text for text in texts) for word in model.vocabulary_]
    assert model.document_counts_.tolist() == held


def test_unseen_words_are_ignored_and_rows_can_be_read_back() -> None:
    model = BagOfWords().fit(["a b a", "c"])
    X = model.transform(["c z a c", "z", ""])
    assert X.toarray().tolist() == [[1, 0, 2], [0, 0, 0], [0, 0, 0]]
    assert [row.tolist() for row in model.inverse_transform(X)] == [["a", "c"], [], []]


def test_runs_of_words() -> None:
    model = BagOfWords(ngram_range=(1, 2)).fit([["a", "b", "a", "b"]])
    assert dict(zip(model.vocabulary_, model.counts_.tolist())) == {
        **{"a": 2, "b": 2, "a b": 2, "b a": 1}
    }
    assert BagOfWords(ngram_range=(2, 3)).fit(["a b c"]).vocabulary_ == [
        *("a b", "b c", "a b c")
    ]


# -- co-occurrence ----------------------------------------------------------------


def by_hand(texts: Any, words: list[str], model: Cooccurrence) -> Any:
    """Counts straight from the definition."""
    at = {word: i for i, word in enumerate(words)}
    n = np.zeros((len(words), len(words)))
    for text in texts:
        if model.context == "window":
            for p, a in enumerate(text):
                for q, b in enumerate(text):
                    near = 0 < abs(p - q) <= model.window
                    if near and (model.symmetric or q > p):
                        flat = model.weighting == "flat"
                        n[at[a], at[b]] += 1.0 if flat else 1 / abs(p - q)
        else:
            for a in set(text):
                for b in set(text):
                    n[at[a], at[b]] += 1
    return n


@pytest.mark.catalog("TXT-02")
@given(corpora, st.integers(1, 4), st.sampled_from(["flat", "harmonic"]), st.booleans())
def test_window_counts_by_brute_force(
    texts: Any, window: int, weighting: str, symmetric: bool
) -> None:
    model = Cooccurrence(
        "window", window=window, weighting=weighting, symmetric=symmetric
    ).fit(texts)
    expected = by_hand(texts, model.vocabulary_, model)
    np.testing.assert_allclose(model.matrix_.toarray(), expected, rtol=1e-12)
    assert model.certificate_.met


@pytest.mark.catalog("TXT-03")
@given(corpora)
def test_documents_and_sentences_count_contexts_with_both_words(texts: Any) -> None:
    model = Cooccurrence("document").fit(texts)
    n = model.matrix_.toarray()
    np.testing.assert_array_equal(n, by_hand(texts, model.vocabulary_, model))
    joined = [". ".join(" ".join(text) for text in texts)]
    sentence = Cooccurrence("sentence").fit(joined)
    assert sorted(sentence.vocabulary_) == sorted(model.vocabulary_)
    order = [sentence.vocabulary_.index(word) for word in model.vocabulary_]
    np.testing.assert_array_equal(sentence.matrix_.toarray()[np.ix_(order, order)], n)


@pytest.mark.catalog("TXT-03")
@pytest.mark.parametrize("context", ["window", "document"])
def test_counts_are_symmetric_and_sparse(context: str) -> None:
    model = Cooccurrence(context, window=2).fit(zipf(300, 6, 400))
    n = model.matrix_
    assert (n != n.T).nnz == 0
    assert 0 < n.nnz < 0.2 * n.shape[0] ** 2 and n.has_sorted_indices
    one_sided = Cooccurrence(window=2, symmetric=False).fit(zipf(300, 6, 400)).matrix_
    if context == "window":
        assert (one_sided + one_sided.T != n).nnz == 0


@pytest.mark.parametrize("context", ["window", "document"])
def test_pieces_blocks_and_threads_change_nothing(
    context: str, monkeypatch: Any
) -> None:
    texts = zipf(200, 12, 300)
    model = Cooccurrence(context, weighting="flat")
    whole = model.fit(texts).matrix_
    for name in ("PIECE", "CROSSED", "PAIRS"):
        monkeypatch.setattr(cooccurrence, name, 1000)
    monkeypatch.setattr(cooccurrence, "ENTRIES", 500)
    assert (model.fit(texts).matrix_ != whole).nnz == 0
    harmonic = Cooccurrence(weighting="harmonic").fit(texts).matrix_
    with thread_pools().limit(limits=1):
        alone = Cooccurrence(weighting="harmonic").fit(texts).matrix_
    np.testing.assert_array_equal(alone.data, harmonic.data)


def test_rare_words_leave_before_windows_are_laid() -> None:
    texts = [["a", "rare", "b"], ["a", "b"]]
    model = Cooccurrence(window=1, min_count=2).fit(texts)
    assert model.vocabulary_ == ["a", "b"] and model.matrix_[0, 1] == 2


# -- the verifier -----------------------------------------------------------------


@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize(
    "model",
    [
        *(BagOfWords(min_count=2), BagOfWords(max_words=30), Cooccurrence()),
        *(
            Cooccurrence("window", window=3, weighting="harmonic", symmetric=False),
            Cooccurrence("document"),
        ),
    ],
    ids=str,
)
def test_counts_are_confirmed_from_the_texts(model: Any, level: str) -> None:
    texts = zipf(300, 15, 200)
    model.fit(texts)
    again = certus.certify(model, texts, level=level)
    assert again.met and again.fingerprint == model.certificate_.fingerprint
    assert again[again.primary].strength is Strength.PROVED
    # Numbered once, or as an encoded corpus of the same words.
    same = encode(model._contexts(texts), vocabulary=model.vocabulary_)
    assert certus.certify(model, same).fingerprint == again.fingerprint


def test_recounting_words_finds_each_forgery() -> None:
    texts = zipf(300, 15, 200)
    for name, change in [
        ("counts_", lambda a: a + (np.arange(len(a)) == 77)),
        ("document_counts_", lambda a: a + (np.arange(len(a)) == 0)),
        ("vocabulary_", lambda w: [w[1], w[0], *w[2:]]),
        ("n_documents_", lambda n: n + 1),
    ]:
        model = BagOfWords().fit(texts)
        setattr(model, name, change(getattr(model, name)))
        found = certus.certify(model, texts)
        assert found.met is False, name
    model = BagOfWords(min_count=3).fit(texts)
    left_out = [*texts, ["brandnew"] * 50]
    assert certus.certify(model, left_out, level="full")["vocabulary"].met is False


def test_recounting_pairs_finds_forged_rows() -> None:
    texts = zipf(300, 15, 200)
    model = Cooccurrence().fit(texts)
    model.matrix_.data[0] += 1
    assert certus.certify(model, texts).status is Status.REFUTED
    model = Cooccurrence().fit(texts)
    model.matrix_.data[-1] += 1  # the rarest word is in every sample
    assert certus.certify(model, texts).met is False
    fresh = Cooccurrence().fit(texts)
    other = [*texts[:-1], texts[-1][::-1]]
    found = certus.certify(fresh, other)  # a text read backwards: the same pairs
    assert found.met and found.fingerprint != fresh.certificate_.fingerprint
    assert certus.certify(fresh, texts[:-1]).met is False


def test_fingerprints_see_order_and_documents() -> None:
    marks = []
    for texts in (
        [["a", "b", "a"], ["b"]],
        [["b", "a", "a"], ["b"]],
        [["a", "b"], ["a", "b"]],
        [["a", "b", "a"], ["b"], []],
        [["a", "b", "a"], ["c"]],
    ):
        model = BagOfWords().fit(texts)
        marks.append(tuple(map(str, model.certificate_.fingerprint.values())))
    assert len(set(marks)) == len(marks)
    assert all(a != b for a, b in pairwise(marks))
