"""Subword vectors: made of n-grams, also for words never seen."""

import numpy as np
import pytest

import certus
from certus.certificate import Status
from certus.text import FastTextVectors, UnknownWordError
from certus.verify.measured import _pieces
from helpers.measured import as_told

STEMS = ("walk", "sing", "paint", "climb", "bark", "knock")
ENDINGS = ("er", "ing", "ed", "s")


def related_texts(n=200, seed=0):
    """Each text holds the forms of one stem."""
    rng = np.random.default_rng(seed)
    stems = rng.choice(STEMS, n)
    return [[s + e for e in rng.permutation(ENDINGS)] for s in stems]


def small(**options):
    defaults = {
        "n_components": 12,
        "subsample": None,
        "min_count": 1,
        "deterministic": True,
        "random_state": 0,
    }
    return FastTextVectors(**{**defaults, **options})


@pytest.fixture(scope="module")
def fitted():
    texts = related_texts()
    return small(max_iter=8).fit(texts), texts


@pytest.mark.catalog("TXT-13")
def test_words_never_seen_have_vectors_near_their_relatives(fitted):
    model, _ = fitted
    for stem in STEMS:
        word = stem + "ings"
        assert word not in model
        near = [other for other, _ in model.most_similar(word, n=3)]
        assert all(other.startswith(stem) for other in near)


def feature_rows(model, words):
    """The rows of each word by the verifier's own search for n-grams."""
    places = {word: i for i, word in enumerate(model.vocabulary_)}
    behind = {int(b): len(places) + i for i, b in enumerate(model.buckets_)}
    for word in words:
        own = [places[word]] if word in places else []
        yield own + _pieces(word, model.ngrams_, behind)


@pytest.mark.catalog("TXT-13")
def test_a_vector_is_the_mean_of_its_rows(fitted):
    model, _ = fitted
    table = model.subword_vectors_.astype(float)
    words = [*model.vocabulary_, "walkings", "knocker", "<odd>"]
    for word, rows in zip(words, feature_rows(model, words)):
        if rows:
            assert model.vector(word) == pytest.approx(table[rows].mean(0), abs=1e-6)
    known = np.array([model.vector(word) for word in model.vocabulary_])
    assert np.array_equal(known, model.vectors_)


def test_only_buckets_that_occur_have_rows(fitted):
    model, _ = fitted
    found = {r for rows in feature_rows(model, model.vocabulary_) for r in rows}
    assert found == set(range(len(model.subword_vectors_)))
    assert len(model.subword_vectors_) == len(model.vocabulary_) + len(model.buckets_)
    assert len(model.buckets_) < 600


def test_a_word_of_unknown_letters_is_refused(fitted):
    model, _ = fitted
    with pytest.raises(UnknownWordError, match="'xyzq'"):
        model.vector("xyzq")
    with pytest.raises(TypeError, match="str"):
        model.vector(3)


def test_documents_count_words_never_seen(fitted):
    model, _ = fitted
    found = model.transform([["walking", "walkings"], ["xyzq"], [], ["walkings"]])
    mean = (model.vector("walking") + model.vector("walkings")) / 2
    assert found[0] == pytest.approx(mean, abs=1e-6)
    assert not found[1:3].any()
    summed = model.transform([["walkings", "walkings"]], {"walkings": 3.0}, "sum")
    assert summed[0] == pytest.approx(6 * model.vector("walkings"), rel=1e-5)
    weighted = model.transform([["walking", "walkings"]], weights="idf")
    held = model.document_counts_[model.vocabulary_.index("walking")]
    a = np.log((1 + model.n_documents_) / (1 + held)) + 1
    b = np.log(1 + model.n_documents_) + 1
    mean = (a * model.vector("walking") + b * model.vector("walkings")) / (a + b)
    assert weighted[0] == pytest.approx(mean, abs=1e-5)


def test_spelling_alone_relates_words_before_contexts_do():
    forms = [stem + end for stem in STEMS for end in "xy"]
    model = small(n_components=256, max_iter=1, learning_rate=1e-4).fit([forms] * 2)
    vectors = [model.vector(word) for word in forms]
    unit = {word: v / np.linalg.norm(v) for word, v in zip(forms, vectors)}
    alike = [unit[stem + "x"] @ unit[stem + "y"] for stem in STEMS]
    apart = [unit[a + "x"] @ unit[b + "y"] for a in STEMS for b in STEMS if a != b]
    # About half of the n-grams are common to both forms of a stem.
    assert min(alike) > 0.3 and max(apart) < 0.25


def test_warm_start_keeps_rows_of_words_and_ngrams(fitted):
    _, texts = fitted
    model = small(max_iter=2).fit(texts)
    before = {word: model.vector(word) for word in (*model.vocabulary_, "walkings")}
    options = {"warm_start": True, "learning_rate": 1e-7, "min_learning_rate": 0.0}
    model.set_params(**options, max_iter=1)
    model.fit([*texts, ["brandnew", "word"]])
    for word, vector in before.items():
        if word in model:
            assert model.vector(word) == pytest.approx(vector, abs=1e-4)


def test_deterministic(fitted):
    model, texts = fitted
    again = small(max_iter=8).fit(texts)
    assert np.array_equal(model.subword_vectors_, again.subword_vectors_)


def test_certificate_and_forgery(fitted):
    model, texts = fitted
    assert as_told(model.certificate_) and model.certificate_["composition"].met
    full = certus.certify(model, texts, level="full")
    assert full.status is Status.UNDECIDED and full["composition"].met
    kept = model.subword_vectors_.copy()
    try:
        model.subword_vectors_[3] += 0.1  # the loss knows nothing of it
        found = certus.certify(model, texts)
        assert found.status is Status.REFUTED and found.primary == "composition"
    finally:
        model.subword_vectors_[:] = kept
    kept = model.vectors_.copy()
    try:
        model.vectors_[:] *= 1.1
        assert certus.certify(model, texts).status is Status.REFUTED
    finally:
        model.vectors_[:] = kept


def test_saved_and_read_back(fitted, tmp_path):
    model, texts = fitted
    back = certus.load(model.save(tmp_path / "m.certus"))
    assert np.array_equal(back.vector("walkings"), model.vector("walkings"))
    assert as_told(certus.certify(back, texts))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"char_ngrams": (0, 6)}, "char_ngrams"),
        ({"char_ngrams": (4, 3)}, "char_ngrams"),
        ({"n_buckets": 0}, "n_buckets"),
        ({"negatives": 0}, "negatives"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options).fit([["a", "b"]])
