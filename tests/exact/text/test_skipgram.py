"""Skip-gram: the loss reported, its steps and optimum, what is drawn and refuted."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from threadpoolctl import threadpool_limits

import certus
from certus.certificate import Status, Strength
from certus.linear_model import LogisticRegression
from certus.text import SkipGram, encode
from certus.text.sampling import Noise, cut, keep_chances
from certus.text.skipgram_kernels import (
    FINENESS,
    REACH,
    collect_pairs,
    sigmoid_table,
    train_words,
)
from helpers import sampling as plain
from helpers.measured import as_told

COLOURS = "red green blue red blue green"
NUMBERS = "one two three two one three"


def topic_texts(n=300, topics=4, words=12, seed=0):
    rng = np.random.default_rng(seed)
    which = rng.integers(0, topics, n)
    draw = rng.integers(0, words, (n, 8))
    return [[f"{t}-{w}" for w in row] for t, row in zip(which, draw)]


def small(**options):
    defaults = {
        "n_components": 8,
        "subsample": None,
        "min_count": 1,
        "max_iter": 3,
        "deterministic": True,
        "random_state": 0,
    }
    return SkipGram(**{**defaults, **options})


# -- the objective ----------------------------------------------------------------


def formula(model, texts):
    """The objective over the evidence's pairs, by loops."""
    flat = [word for text in texts for word in text]
    place = {word: i for i, word in enumerate(model.vocabulary_)}
    arrays = model.certificate_.evidence.witness._asdict()
    total = 0.0
    for x, w, drawn in zip(arrays["inputs"], arrays["targets"], arrays["noise"]):
        h = model.vectors_[place[flat[x]]].astype(float)
        u = model.context_vectors_.astype(float)
        total += plain.pair_loss(h, u[place[flat[w]]], u[drawn])
    return total / len(arrays["inputs"])


@pytest.mark.catalog("TXT-07")
def test_the_objective_reported_is_that_of_the_formula():
    texts = topic_texts(60)
    model = small(max_iter=4).fit(texts)
    expected = formula(model, texts)
    assert model.history_["objective"][-1] == pytest.approx(expected, rel=1e-12)
    assert model.certificate_["sample_loss"].value == pytest.approx(expected, rel=1e-12)
    assert as_told(model.certificate_)


def test_history_has_an_entry_for_each_epoch_and_the_loss_falls():
    model = small(max_iter=10, learning_rate=0.05).fit(topic_texts())
    losses = model.history_["objective"]
    assert len(losses) == len(model.history_["running_loss"]) == model.n_iter_ == 10
    assert losses[-1] < losses[2] < losses[0] < 6 * np.log(2)
    assert np.all(np.diff(model.history_["seconds"]) >= 0)


def test_the_first_step_sees_chance():
    # Context vectors start at zero, so every score does: (k + 1) log 2.
    model = small(max_iter=1, negatives=3, learning_rate=1e-9, min_learning_rate=0.0)
    model.fit(topic_texts(20))
    assert model.history_["running_loss"][0] == pytest.approx(4 * np.log(2), rel=1e-5)


def test_the_table_of_sigmoids():
    table = sigmoid_table().astype(float)
    z = np.linspace(-REACH, REACH - 1e-6, 20_001)
    place = (z + REACH) * FINENESS
    i = place.astype(int)
    share = (place - i)[:, None]
    got = table[i] * (1 - share) + table[i + 1] * share
    exact = np.stack([1 / (1 + np.exp(-z)), np.logaddexp(0, -z)], axis=1)
    assert np.abs(got - exact).max() < 3e-6


def test_gradient_of_the_plain_reference_by_finite_differences():
    rng = np.random.default_rng(0)
    h, u, drawn = rng.normal(size=4), rng.normal(size=4), rng.normal(size=(3, 4))
    point = np.concatenate([h, u, drawn.ravel()])

    def loss(v):
        return plain.pair_loss(v[:4], v[4:8], v[8:].reshape(3, 4))

    by_h, by_u, by_drawn = plain.pair_gradient(h, u, drawn)
    found = np.concatenate([by_h, by_u, by_drawn.ravel()])
    assert np.abs(found - approx_fprime(point, loss, 1e-7)).max() < 1e-6


@pytest.mark.catalog("TXT-07")
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_steps_and_losses_are_those_of_plain_python(several, scale):
    rng = np.random.default_rng(1)
    n, d, k = 9, 5, 3
    lengths = [6, 0, 1, 11]
    offsets = np.append(0, np.cumsum(lengths))
    ids = rng.integers(0, n, offsets[-1]).astype(np.int32)
    keep = rng.uniform(0.5, 1.2, n).astype(np.float32)
    noise = Noise.of(rng.integers(1, 50, n), 0.75)
    rows = [[w] for w in range(n)]
    if several:
        rows = [[w, n + w % 4, n + 4 + w % 3] for w in range(n)]
    Z = (scale * rng.normal(size=(n + 7, d))).astype(np.float32)
    U = (scale * rng.normal(size=(n, d))).astype(np.float32)
    Z2, U2 = Z.astype(float), U.astype(float)
    values = np.concatenate(rows).astype(np.int32)
    ends = np.append(0, np.cumsum([len(r) for r in rows]))
    total, pairs = train_words(
        *(ids, offsets, keep, values, ends, Z, U, noise.accept, noise.other),
        *(sigmoid_table(), np.uint64(77), (0.05, 1e-4), (3, True, k)),
    )
    table = (noise.accept, noise.other)
    losses = plain.train(
        ids, offsets, keep, rows, Z2, U2, table, 77, (0.05, 1e-4), 3, True, k
    )
    assert pairs == len(losses) > 20
    assert total == pytest.approx(sum(losses), rel=1e-5)
    assert np.abs(Z - Z2).max() < 2e-5 * scale and np.abs(U - U2).max() < 2e-5 * scale


# -- the optimum ------------------------------------------------------------------


@pytest.mark.catalog("TXT-07")
def test_exact_optimum_is_pmi_less_log_k():
    """Logistic regression of real pairs against drawn ones, a column for each pair."""
    rng = np.random.default_rng(2)
    n, k = 5, 4
    joint = rng.random((n, n)) + 0.05
    joint /= joint.sum()
    p, q = joint.sum(axis=1), rng.dirichlet(np.ones(n))
    pairs = np.vstack([np.eye(n * n)] * 2)
    real = np.repeat([1, 0], n * n)
    weights = np.concatenate([joint.ravel(), k * np.outer(p, q).ravel()])
    model = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-12)
    scores = model.fit(pairs, real, sample_weight=weights).coef_.reshape(n, n)
    pmi = np.log(joint / np.outer(p, q))
    np.testing.assert_allclose(scores, pmi - np.log(k), atol=1e-5)


@pytest.mark.catalog("TXT-07")
def test_trained_scores_approach_pmi_less_log_k():
    # Pairs of neighbours from a known joint distribution; vectors of full length.
    rng = np.random.default_rng(3)
    n, k = 4, 2
    joint = np.array([[6, 2, 1, 1], [2, 5, 1, 2], [1, 1, 7, 1], [1, 2, 1, 6]]) / 40
    pairs = rng.choice(n * n, 20_000, p=joint.ravel())
    texts = [[str(c // n), str(c % n)] for c in pairs]
    model = small(
        n_components=8,
        window=1,
        negatives=k,
        max_iter=20,
        learning_rate=0.05,
        noise_power=1.0,
        dynamic_window=False,
    ).fit(texts)
    order = [int(word) for word in model.vocabulary_]
    counts = np.zeros((n, n))
    for c in pairs:
        counts[c // n, c % n] += 1
        counts[c % n, c // n] += 1
    seen = counts / counts.sum()
    p = seen.sum(axis=1)
    expected = np.log(seen / np.outer(p, p)) - np.log(k)
    scores = model.vectors_ @ model.context_vectors_.T
    assert np.abs(scores - expected[np.ix_(order, order)]).max() < 0.12


@pytest.mark.catalog("TXT-07")
def test_topics_are_recovered():
    model = small(n_components=16, max_iter=15, learning_rate=0.05).fit(
        topic_texts(800)
    )
    for word in model.vocabulary_:
        near = [other.split("-")[0] for other, _ in model.most_similar(word, n=8)]
        assert near == [word.split("-")[0]] * 8


# -- what is drawn ----------------------------------------------------------------


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
def test_noise_is_drawn_in_proportion_to_powers_of_counts(power):
    counts = np.array([1, 2, 30, 400, 5, 5, 1])
    noise = Noise.of(counts, power)
    share = noise.accept.astype(float).copy()
    np.add.at(share, noise.other, 1 - noise.accept.astype(float))
    expected = counts**power / np.sum(counts**power)
    assert share / len(counts) == pytest.approx(expected, abs=1e-7)
    drawn = noise.draw(np.random.default_rng(0), (200_000,))
    seen = np.bincount(drawn, minlength=7) / 200_000
    assert np.abs(seen - expected).max() < 5 * np.sqrt(0.25 / 200_000)


def test_chances_to_stay():
    counts = np.array([900, 90, 10])
    t = 0.01
    share = counts / 1000
    expected = np.minimum(1, np.sqrt(t / share) + t / share)
    assert keep_chances(counts, t) == pytest.approx(expected, rel=1e-6)
    assert keep_chances(counts, None).tolist() == [1, 1, 1]


def test_windows_and_thinning_have_their_frequencies():
    n, window = 60_000, 4
    ids = np.zeros(n, dtype=np.int32)
    ids[::2] = 1
    found = np.empty((20 * n, 2), dtype=np.int64)
    ends = np.array([0, n])
    ones = np.ones(2, dtype=np.float32)
    got = collect_pairs(ids, ends, ones, np.uint64(5), (window, True, 5), found, 0)
    distance = np.abs(found[:got, 0] - found[:got, 1])
    # A window of 1 … 4 with equal chances reaches distance d with chance (5 − d)/4.
    share = np.bincount(distance, minlength=6)[1:5] / (2 * n)
    assert np.abs(share - np.array([4, 3, 2, 1]) / 4).max() < 0.02
    assert distance.max() == window and distance.min() == 1
    keep = np.array([1.0, 0.25], dtype=np.float32)
    got = collect_pairs(ids, ends, keep, np.uint64(6), (1, False, 5), found, 0)
    kept = np.unique(found[:got])
    assert np.mean(ids[kept] == 1) == pytest.approx(0.2, abs=0.01)


def test_pairs_do_not_leave_their_text():
    found = np.empty((1000, 2), dtype=np.int64)
    ends = np.array([0, 3, 3, 4, 10])
    ids, ones = np.zeros(10, dtype=np.int32), np.ones(1, dtype=np.float32)
    got = collect_pairs(ids, ends, ones, np.uint64(1), (50, False, 1), found, 0)
    pairs = {tuple(p) for p in found[:got].tolist()}
    texts = (range(3), range(3, 4), range(4, 10))
    assert pairs == {(a, b) for t in texts for a in t for b in t if a != b}
    assert got == len(pairs)


@pytest.mark.parametrize("size", [1, 7, 100, 10**6])
def test_blocks_cover_every_token_once(size):
    rng = np.random.default_rng(size)
    offsets = np.append(0, np.cumsum(rng.choice([0, 1, 5, 40, 25_000], 50)))
    blocks = cut(offsets, size)
    assert blocks.edges[0] == 0 and blocks.edges[-1] == len(blocks.ends) - 1
    assert np.all(np.diff(blocks.edges) > 0) and np.all(np.diff(blocks.ends) >= 0)
    assert set(offsets) <= set(blocks.ends) and np.diff(blocks.ends).max() <= 10_000


# -- equal seeds ------------------------------------------------------------------


def test_deterministic_at_any_number_of_threads():
    texts = topic_texts(2000, topics=20, words=40)
    with threadpool_limits(1):
        one = small(n_components=64).fit(texts)
    two = small(n_components=64).fit(texts)
    assert np.array_equal(one.vectors_, two.vectors_)
    assert one.history_["objective"] == two.history_["objective"]
    other = small(n_components=64, random_state=1).fit(texts)
    assert not np.array_equal(one.vectors_, other.vectors_)


def test_threads_without_locks_reach_the_same_loss():
    texts = topic_texts(2000, topics=20, words=40)
    one = small(max_iter=5).fit(texts)
    free = small(max_iter=5, deterministic=False).fit(texts)
    assert free.history_["objective"][-1] == pytest.approx(
        one.history_["objective"][-1], rel=0.02
    )
    assert free.n_pairs_ == one.n_pairs_


def test_encoded_lists_and_generators_are_one_corpus():
    texts = [" ".join(text) for text in topic_texts(40)]
    a = small(tokenizer="whitespace").fit(texts)
    b = small().fit(text.split() for text in texts)
    c = small().fit(encode(texts, tokenizer="whitespace"))
    assert np.array_equal(a.vectors_, b.vectors_)
    assert np.array_equal(a.vectors_, c.vectors_)


def test_warm_start_continues():
    texts = topic_texts(200)
    model = small(max_iter=2).fit(texts)
    before = model.history_["objective"][-1]
    model.set_params(warm_start=True, learning_rate=1e-6, min_learning_rate=0.0)
    kept = model.vectors_.copy()
    model.fit(texts)
    assert np.abs(model.vectors_ - kept).max() < 1e-3
    assert model.history_["objective"][0] == pytest.approx(before, rel=0.05)
    model.fit([*texts, ["new", "word"]])
    assert "new" in model and model.vectors_.shape[0] == len(model.vocabulary_)


# -- what the verifier sees -------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    texts = [COLOURS.split(), NUMBERS.split()] * 30
    return small(max_iter=5).fit(texts), texts


def test_the_certificate_holds_and_claims_nothing_more(fitted):
    model, texts = fitted
    again = certus.certify(model, texts)
    assert again.status is Status.UNDECIDED and as_told(again)
    assert again.primary == "sample_loss"
    strengths = {claim.name: claim.strength for claim in again.claims}
    assert strengths.pop("word_counts") is Strength.PROVED
    assert set(strengths.values()) == {Strength.MEASURED}
    assert again["pairs_told_apart"].value > 0.6


@pytest.mark.parametrize("name", ["vectors_", "context_vectors_"])
def test_forged_vectors_are_refuted(fitted, name):
    model, texts = fitted
    kept = getattr(model, name).copy()
    try:
        getattr(model, name)[0] += 0.01
        assert certus.certify(model, texts).status is Status.REFUTED
    finally:
        setattr(model, name, kept)
    assert as_told(certus.certify(model, texts))


def test_other_texts_are_noticed(fitted):
    model, texts = fitted
    for other in (texts[::-1], texts[:-3], [text[::-1] for text in texts]):
        found = certus.certify(model, other)
        assert found.status is not Status.SOLVED and found.met is not True
        assert "not those of the fit" in found[found.primary].assumptions[0]


def test_places_that_are_not_pairs_are_noticed(fitted):
    model, texts = fitted
    arrays = model.certificate_.evidence.witness._asdict()
    for name, value in (("inputs", 10**9), ("targets", -1), ("noise", 6)):
        kept = arrays[name].copy()
        try:
            arrays[name][..., 0] = value
            assert certus.certify(model, texts).status is Status.REFUTED
        finally:
            arrays[name][:] = kept
    kept = arrays["inputs"].copy()
    arrays["inputs"][:] = arrays["targets"]
    try:
        assert "not pairs" in certus.certify(model, texts).claims[0].detail
    finally:
        arrays["inputs"][:] = kept
