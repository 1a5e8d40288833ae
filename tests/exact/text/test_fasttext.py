"""The text classifier is what it states: a linear model of low rank on word counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from sklearn.feature_extraction.text import CountVectorizer

import certus
from certus.certificate import Status
from certus.diagnostics.text_classifier import evaluation_rows
from certus.text import FastTextClassifier
from certus.text.huffman import (
    huffman_tree,
    leaf_log_probabilities,
    leaf_paths,
)
from certus.text.ngrams import character_ngrams, hash_words, word_ngrams
from helpers.measured import as_told

LOSSES = ["softmax", "hierarchical"]


def corpus(n=300, classes=4, seed=0, words=60, length=8):
    """Texts of which half the words belong to their class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    own = words // classes
    tokens = rng.integers(0, words, (n, length))
    mine = rng.random((n, length)) < 0.5
    tokens = np.where(mine, y[:, None] * own + tokens % own, tokens)
    return [" ".join(f"w{t}" for t in row) for row in tokens], y


def fitted(loss="softmax", **options):
    texts, y = corpus()
    options = {
        "random_state": 0,
        "n_components": 6,
        "learning_rate": 1.0,
        "max_iter": 3,
        **options,
    }
    return FastTextClassifier(loss=loss, **options).fit(texts, y), texts, y


# -- what the model is ------------------------------------------------------------


@pytest.mark.catalog("TXT-10")
def test_scores_are_those_of_a_linear_classifier_on_bags_of_words_of_low_rank():
    model, texts, _ = fitted(n_components=3)
    bag = CountVectorizer(vocabulary=model.vocabulary_, token_pattern=r"\w+")
    counts = bag.fit_transform(texts).toarray()
    matrix = model.vectors_.astype(float) @ model.coef_.T.astype(float)
    assert np.linalg.matrix_rank(matrix, tol=1e-4) == 3  # of 60 words × 4 classes
    scores = counts @ matrix / counts.sum(axis=1, keepdims=True)
    logs = scores - logsumexp(scores, axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_log_proba(texts), logs, atol=1e-9)
    np.testing.assert_array_equal(
        model.predict(texts), model.classes_[scores.argmax(axis=1)]
    )


def test_document_vectors_are_means_of_word_vectors():
    model, texts, _ = fitted()
    place = {word: i for i, word in enumerate(model.vocabulary_)}
    rows = [[place[w] for w in text.split()] for text in texts]
    means = [model.vectors_[r].astype(float).mean(axis=0) for r in rows]
    np.testing.assert_allclose(model.transform(texts), means, rtol=1e-6, atol=1e-7)


@pytest.mark.catalog("TXT-10")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_components", [1, 16, 17])
def test_a_separable_toy_has_no_errors(loss, n_components):
    texts = ["red apple", "green pear", "fast car", "slow bus", "tall oak", "old elm"]
    y = ["fruit", "fruit", "road", "road", "tree", "tree"]
    if n_components == 1:  # on a line only two classes are separable
        texts, y = texts[:4], y[:4]
    model = FastTextClassifier(
        n_components, loss=loss, learning_rate=1.0, max_iter=200, random_state=0
    ).fit(texts, y)
    assert model.score(texts, y) == 1.0
    assert model.history_["error"][-1] == 0.0
    assert model.certificate_["training_error"].value == 0.0


def numeric_gradient(f, x, h=1e-5):
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        out[i] = (f(up) - f(down)) / (2 * h)
    return out


@pytest.mark.catalog("TXT-10")
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_norm_is_that_of_finite_differences(loss):
    texts, y = ["a b a", "c", "d e", "e c d a"], np.array([0, 1, 2, 1])
    model = FastTextClassifier(
        5, loss=loss, max_iter=30, learning_rate=1.0, random_state=0
    )
    model.fit(texts, y)
    place = {word: i for i, word in enumerate(model.vocabulary_)}
    Z0, W0 = model.vectors_.astype(float), model.coef_.astype(float)

    def objective(Z, W):
        H = [Z[[place[w] for w in t.split()]].mean(axis=0) for t in texts]
        scores = np.array(H) @ W.T
        if loss == "softmax":
            logs = scores - logsumexp(scores, axis=1, keepdims=True)
        else:
            logs = leaf_log_probabilities(model.tree_, scores)
        return -logs[np.arange(4), y].mean()

    gZ = numeric_gradient(lambda Z: objective(Z, W0), Z0)
    gW = numeric_gradient(lambda W: objective(Z0, W), W0)
    claimed = model.certificate_["gradient_norm"].value
    assert claimed == pytest.approx(np.hypot(*map(np.linalg.norm, (gZ, gW))), rel=1e-6)


@pytest.mark.catalog("TXT-10")
@pytest.mark.parametrize("loss", LOSSES)
def test_one_step_on_one_text_is_minus_the_gradient(loss):
    """All texts but one are empty, so that an epoch is one step of known rate."""
    texts = ["a b a c", "", "", ""]
    y = np.array([1, 0, 2, 1])
    options = {
        "random_state": 0,
        "n_components": 3,
        "loss": loss,
        "deterministic": True,
    }
    start = FastTextClassifier(**options, max_iter=40, learning_rate=1.0).fit(texts, y)
    place = {word: i for i, word in enumerate(start.vocabulary_)}
    rows = [place[w] for w in texts[0].split()]
    Z0, W0 = start.vectors_.astype(float), start.coef_.astype(float)

    def loss_of(Z, W):
        scores = (Z[rows].mean(axis=0) @ W.T)[None]
        if loss == "softmax":
            return float(logsumexp(scores) - scores[0, 1])
        return -float(leaf_log_probabilities(start.tree_, scores)[0, 1])

    gZ = numeric_gradient(lambda Z: loss_of(Z, W0), Z0)
    gW = numeric_gradient(lambda W: loss_of(Z0, W), W0)
    start.set_params(warm_start=True, max_iter=1, learning_rate=1e-2).fit(texts, y)
    step_Z, step_W = start.vectors_ - Z0, start.coef_ - W0
    rate = -np.sum(step_W * gW) / np.sum(gW**2)
    assert 0 < rate <= 1e-2 * (1 + 1e-5)  # it depends on the text's turn
    np.testing.assert_allclose(step_W, -rate * gW, atol=2e-7)
    np.testing.assert_allclose(step_Z, -rate * gZ, atol=2e-7)


# -- the tree ---------------------------------------------------------------------


def test_huffman_codes_have_the_known_lengths():
    # The textbook frequencies 45 13 12 16 9 5 have codes of 1 3 3 3 4 4 bits.
    paths = leaf_paths(huffman_tree([45, 13, 12, 16, 9, 5]))
    assert np.diff(paths.ends).tolist() == [1, 3, 3, 3, 4, 4]


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=40))
def test_leaves_of_any_tree_have_probabilities_that_sum_to_one(counts):
    tree = huffman_tree(counts)
    scores = np.random.default_rng(0).normal(0, 5, (3, len(counts) - 1))
    P = np.exp(leaf_log_probabilities(tree, scores))
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-12)
    total, k = sum(counts), len(counts)
    if total and min(counts):  # mean depth within one bit of the entropy
        p = np.array(counts) / total
        entropy = -np.sum(p * np.log2(p))
        depth = p @ np.diff(leaf_paths(tree).ends)
        assert entropy - 1e-9 <= depth < entropy + 1
    assert sorted(tree[:, 0].tolist() * 1) == sorted(2 * list(range(k - 1)))


def test_probabilities_down_the_tree_sum_to_one_and_give_the_loss():
    model, texts, y = fitted("hierarchical")
    P = model.predict_proba(texts)
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-12)
    loss = -np.log(P[np.arange(len(y)), y]).mean()
    assert model.history_["objective"][-1] == pytest.approx(loss, rel=1e-12)


# -- n-grams ----------------------------------------------------------------------


def fnv(text):
    h = 2166136261
    for byte in text.encode():
        h = (h ^ byte) * 16777619 % 2**32
    return h


def test_the_hash_has_the_published_values():
    found = hash_words(["", "a", "foobar"]).tolist()
    assert found == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


@settings(max_examples=50)
@given(
    st.lists(st.text(max_size=6), max_size=4),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_character_ngrams_are_all_pieces_of_the_marked_word(words, low, more):
    words = [w.encode("utf-8", "ignore").decode() for w in words]
    found = character_ngrams(words, (low, low + more), 997)
    for i, word in enumerate(words):
        text = f"<{word}>"
        wanted = [
            fnv(text[a:b]) % 997
            for a in range(len(text))
            for b in range(a + low, min(len(text), a + low + more) + 1)
            if not (b - a == 1 and a in (0, len(text) - 1))
        ]
        part = found.values[found.offsets[i] : found.offsets[i + 1]]
        assert part.tolist() == wanted


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(-1, 3), max_size=6), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_word_ngrams_are_all_runs_of_known_words(documents, n):
    hashes = hash_words(["a", "b", "c", "d"])
    ids = np.array([w for doc in documents for w in doc], dtype=np.int32)
    offsets = np.cumsum([0, *map(len, documents)])
    found = word_ngrams(hashes, ids, offsets, n, 997)
    for i, doc in enumerate(documents):
        known = [int(hashes[w]) for w in doc if w >= 0]
        wanted = []
        for a in range(len(known)):
            h = known[a]
            for b in range(a + 1, min(len(known), a + n)):
                h = (h * 116049371 + known[b]) % 2**64
                wanted.append(h % 997)
        part = found.values[found.offsets[i] : found.offsets[i + 1]]
        assert part.tolist() == wanted


def test_order_matters_only_with_word_ngrams():
    texts = ["not good", "good not"] * 20
    y = [0, 1] * 20
    options = {
        "random_state": 0,
        "n_components": 8,
        "learning_rate": 1.0,
        "max_iter": 30,
    }
    assert FastTextClassifier(**options).fit(texts, y).score(texts, y) == 0.5
    pairs = FastTextClassifier(word_ngrams=2, **options).fit(texts, y)
    assert pairs.score(texts, y) == 1.0
    assert len(pairs.buckets_) == 2  # of two million


def test_pieces_of_words_serve_words_never_seen():
    texts = ["cats", "dogs", "walking", "running"] * 10
    y = ["noun", "noun", "verb", "verb"] * 10
    options = {
        "random_state": 0,
        "n_components": 8,
        "learning_rate": 1.0,
        "max_iter": 30,
    }
    model = FastTextClassifier(char_ngrams=(3, 4), **options).fit(texts, y)
    assert model.predict(["sleeping", "hats"]).tolist() == ["verb", "noun"]
    assert np.abs(model.transform(["sleeping"])).max() > 0
    # Rare words have no vector of their own, and still their pieces.
    rare = FastTextClassifier(char_ngrams=(3, 4), min_count=10, **options)
    rare.fit([*texts, "talking"], [*y, "verb"])
    assert "talking" not in rare.vocabulary_
    assert rare.predict(["talking"]).tolist() == ["verb"]


# -- history and certificate ------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weight", [None, "balanced", {0: 3.0, 1: 0.5}])
def test_the_reported_objective_is_the_mean_loss(loss, weight):
    model, texts, y = fitted(loss, class_weight=weight)
    logs = model.predict_log_proba(texts)
    share = np.ones(len(y))
    if weight == "balanced":
        share = (len(y) / 4 / np.bincount(y))[y]
    elif weight:
        share = np.array([3.0, 0.5, 1, 1])[y]
    mean = -share @ logs[np.arange(len(y)), y] / share.sum()
    assert model.history_["objective"][-1] == pytest.approx(mean, rel=1e-10)
    assert as_told(certus.certify(model, texts, y, level="full"))
    assert model.certificate_["training_loss"].value == pytest.approx(mean, rel=1e-9)


def test_large_corpora_are_judged_on_a_sample_and_in_full_on_all():
    texts, y = corpus(n=6000)
    model = FastTextClassifier(4, max_iter=1, random_state=0).fit(texts, y)
    rows = evaluation_rows(6000)
    logs = model.predict_log_proba(texts)[np.arange(6000), y]
    assert model.history_["objective"][-1] == pytest.approx(-logs[rows].mean(), 1e-12)
    full = certus.certify(model, texts, y, level="full")
    assert as_told(full) and full.value == model.certificate_.value
    assert "4,096" in model.certificate_["training_loss"].detail
    said = f"{-logs.mean():.4g} on all 6,000"
    assert said in full["training_loss"].detail


def test_losses_fall_and_the_loss_seen_is_that_before_each_step():
    model, _, _ = fitted(max_iter=6)
    assert np.all(np.diff(model.history_["objective"]) < 0)
    assert model.n_iter_ == 6
    assert {len(v) for v in model.history_.values()} == {6}
    # The first loss is about log 4; what is seen trails what is reached.
    first = model.history_["running_loss"][0]
    assert model.history_["objective"][0] < first < np.log(4) * 1.02


@pytest.mark.parametrize("spoil", ["vectors_", "coef_", "tree_", "vocabulary_"])
def test_a_tampered_model_is_refuted(spoil):
    model, texts, y = fitted("hierarchical", char_ngrams=(2, 3))
    assert as_told(model.certificate_)
    if spoil == "vocabulary_":
        model.vocabulary_ = model.vocabulary_[::-1]
    elif spoil == "tree_":
        model.tree_[0] = model.tree_[1]
    else:
        setattr(model, spoil, getattr(model, spoil) * 1.001)
    found = certus.certify(model, texts, y)
    assert found.status is Status.REFUTED


def test_other_data_are_recognised():
    model, texts, y = fitted()
    other, labels = corpus(seed=1)
    found = certus.certify(model, other, labels)
    assert found.status is Status.UNDECIDED
    assert "not those of the fit" in found[found.primary].assumptions[0]
    swapped = [texts[1], texts[0], *texts[2:]]
    assert (
        certus.certify(model, swapped, y).fingerprint != model.certificate_.fingerprint
    )


# -- threads and warm starts ------------------------------------------------------


def test_the_deterministic_fit_is_the_same_at_any_number_of_threads(monkeypatch):
    from certus._core import threads

    texts, y = corpus(n=2000)
    monkeypatch.setattr("certus.text.classifier_training.TURN", 1e5)
    found = []
    for budget in (1, 2, 3):
        monkeypatch.setattr(threads, "thread_budget", lambda budget=budget: budget)
        model = FastTextClassifier(
            8, deterministic=True, max_iter=2, random_state=0
        ).fit(texts, y)
        found.append(model)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].vectors_, other.vectors_)
        np.testing.assert_array_equal(found[0].coef_, other.coef_)


@pytest.mark.parametrize("loss", LOSSES)
def test_threads_without_locks_learn_as_well(monkeypatch, loss):
    from certus._core import threads

    texts, y = corpus(n=3000, length=12)
    monkeypatch.setattr("certus.text.classifier_training.TURN", 1e5)
    monkeypatch.setattr(threads, "thread_budget", lambda: 2)
    options = {"random_state": 0, "loss": loss, "learning_rate": 0.5, "max_iter": 4}
    free = FastTextClassifier(16, **options).fit(texts, y)
    alone = FastTextClassifier(16, deterministic=True, **options).fit(texts, y)
    one, two = free.history_["objective"][-1], alone.history_["objective"][-1]
    assert one == pytest.approx(two, rel=0.2)
    assert as_told(free.certificate_) and as_told(alone.certificate_)


def test_a_warm_start_continues_where_words_and_classes_are_the_same():
    model, texts, y = fitted(warm_start=True, word_ngrams=2)
    before = model.history_["objective"][-1]
    model.set_params(learning_rate=1e-6, max_iter=1).fit(texts, y)
    assert model.history_["objective"][-1] == pytest.approx(before, rel=1e-3)
    vectors = dict(zip(model.vocabulary_, model.vectors_))
    model.fit([*texts, "entirely new words"], [*y, 0])
    again = dict(zip(model.vocabulary_, model.vectors_))
    assert {"entirely", "new", "words"} <= set(again)
    for word, vector in vectors.items():
        np.testing.assert_allclose(again[word], vector, atol=1e-5)
