"""Document vectors trained directly: topics, context sentences, inference, proof."""

import numpy as np
import pytest

import certus
from certus.certificate import Status
from certus.text import DocumentVectors
from certus.text.sampling import Noise
from certus.text.skipgram_kernels import sigmoid_table, train_texts
from helpers.measured import as_told
from helpers.sampling import Stream, pair_loss


def paragraphs(n=80, topics=4, words=15, seed=0):
    """Sentences of six words; five in a row share a topic."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(rng.integers(0, topics, n), 5)
    draws = rng.integers(0, words, (5 * n, 6))
    return [[f"{t}-{w}" for w in row] for t, row in zip(labels, draws)], labels


def small(**options):
    defaults = {
        "n_components": 12,
        "subsample": None,
        "max_iter": 30,
        "deterministic": True,
        "random_state": 0,
    }
    return DocumentVectors(**{**defaults, **options})


@pytest.fixture(scope="module", params=["words", "neighbours"])
def fitted(request):
    texts, labels = paragraphs()
    return small(target=request.param).fit(texts), texts, labels


@pytest.mark.catalog("TXT-12")
def test_neighbours_share_the_topic(fitted):
    model, texts, labels = fitted
    for i in range(0, len(texts), 7):
        near = [labels[j] for j, _ in model.most_similar(i, n=5)]
        assert near.count(labels[i]) >= 4
    new, truth = paragraphs(8, seed=9)
    for text, label in zip(new, truth):
        near = [labels[j] for j, _ in model.most_similar(text, n=5)]
        assert near.count(label) >= 4


@pytest.mark.catalog("TXT-12")
def test_context_sentences_relate_words_that_never_meet():
    # Odd and even sentences of a paragraph have no word in common: a sentence of its
    # own words cannot tell, one that predicts its neighbours can.
    rng = np.random.default_rng(0)
    texts = []
    for t in rng.integers(0, 3, 150):
        for i in range(6):
            texts.append([f"{t}{'ab'[i % 2]}{w}" for w in rng.integers(0, 8, 5)])
    model = small(target="neighbours", max_iter=20).fit(texts)

    def towards(kind):
        """Scores of even sentences with the words of odd ones, by topic."""
        h = model.transform([[f"{t}a{w}" for w in range(8)] for t in range(3)])
        place = model.vocabulary_.index
        at = [[place(f"{t}{kind}{w}") for w in range(8)] for t in range(3)]
        U = model.context_vectors_
        return np.array([[np.mean(U[words] @ x) for words in at] for x in h])

    scores = towards("b")
    assert scores.argmax(axis=1).tolist() == [0, 1, 2]
    assert np.all(np.diag(scores) > towards("a").max())


def test_the_objective_reported_is_that_of_the_formula(fitted):
    model, texts, _ = fitted
    flat = [word for text in texts for word in text]
    place = {word: i for i, word in enumerate(model.vocabulary_)}
    U, total = model.context_vectors_.astype(float), 0.0
    arrays = model.certificate_.evidence.witness._asdict()
    for s, w, drawn in zip(arrays["inputs"], arrays["targets"], arrays["noise"]):
        h = model.document_vectors_[s].astype(float)
        total += pair_loss(h, U[place[flat[w]]], U[drawn])
        inside = 6 * s <= w < 6 * s + 6
        assert inside == (model.target == "words") and abs(w // 6 - s) <= 1
    loss = total / len(arrays["inputs"])
    assert model.history_["objective"][-1] == pytest.approx(loss, rel=1e-6)
    assert as_told(model.certificate_)


@pytest.mark.parametrize("learn", [True, False])
def test_steps_are_those_of_plain_python(learn):
    rng = np.random.default_rng(0)
    n, d, k = 7, 4, 2
    tokens = rng.integers(0, n, 12).astype(np.int32)
    spans = np.array([[0, 3, 6, 9], [3, 3, 3, 3], [3, 6, 9, 12]])
    rows = np.array([0, 1, 4, 2, 3, 5], dtype=np.int32)
    ends = np.array([0, 2, 3, 6])
    noise = Noise.of(rng.integers(1, 9, n), 1.0)
    keep = np.ones(n, dtype=np.float32)
    Z = rng.normal(size=(6, d)).astype(np.float32)
    U = rng.normal(size=(n, d)).astype(np.float32)
    Z2, U2, expected, stream = Z.astype(float), U.astype(float), [], Stream(3)
    for s, (a, b, c, e) in enumerate(spans):
        own, rate = rows[ends[s] : ends[s + 1]], 0.1 - 0.01 * s
        stream = stream if learn else Stream(3)
        for w in (*tokens[a:b], *tokens[c:e]):
            drawn = stream.noise(noise.accept, noise.other, k)
            h = Z2[own].mean(axis=0)
            expected.append(pair_loss(h, U2[w], U2[drawn]))
            scores, step = U2[[w, *drawn]] @ h, 0.0
            for at, (word, z) in enumerate(zip([w, *drawn], scores)):
                slope = rate * ((at == 0) - 1 / (1 + np.exp(-z)))
                step = step + slope * U2[word]
                U2[word] += slope * h * learn
            Z2[own] += step
    total, pairs = train_texts(
        *(tokens, spans, keep, rows, ends, Z, U, noise.accept, noise.other),
        *(sigmoid_table(), np.uint64(3), (0.1, 0.01), (k, learn)),
    )
    assert pairs == len(expected) == 12
    assert total == pytest.approx(sum(expected), rel=1e-5)
    assert np.abs(Z - Z2).max() < 1e-4 and np.abs(U - U2).max() < 1e-4


def test_a_text_has_its_vector_whatever_is_beside_it(fitted):
    model, texts, _ = fitted
    new = [["0-1", "0-2"], ["zzz"], [], ["0-1", "unknown", "0-2"], texts[0]]
    together = model.transform(new)
    for i, text in enumerate(new):
        assert np.array_equal(model.transform([text])[0], together[i])
    assert not together[1:3].any()
    assert np.array_equal(together[0], together[3])
    assert np.array_equal(together, model.transform(iter(new)))


def test_inference_lowers_the_loss_of_the_text():
    texts, _ = paragraphs()
    model = small().fit(texts)
    U = model.context_vectors_.astype(float)
    q = model.counts_**0.75 / np.sum(model.counts_**0.75)
    for text in texts[:20]:
        at = [model.vocabulary_.index(word) for word in text]

        def loss(h, at=at):
            """The expected objective of one text, which is convex in h."""
            scores = U @ h
            noise = 5 * (q @ np.logaddexp(0, scores))
            return np.logaddexp(0, -scores[at]).mean() + noise

        found = loss(model.transform([text])[0])
        assert found < loss(np.zeros(12)) - 0.3


def test_long_and_empty_texts():
    rng = np.random.default_rng(0)
    long = [f"w{i}" for i in rng.integers(0, 50, 30_000)]
    texts = [[], long, [], ["w1", "w2"], []]
    model = small(max_iter=1, min_count=1).fit(texts)
    assert not model.document_vectors_[[0, 2, 4]].any()
    assert model.document_vectors_[[1, 3]].any(axis=1).all()
    assert model.n_pairs_ == 30_002
    near = small(max_iter=1, min_count=1, target="neighbours")
    near.fit([["w1", "w2"], [], long[:3000], ["w1"]])
    # The empty text between keeps its neighbours apart.
    assert near.n_pairs_ == 3001


def test_forged_vectors_are_refuted(fitted):
    model, texts, _ = fitted
    assert as_told(certus.certify(model, texts))
    names = ["context_vectors_"]
    names += ["document_vectors_" if model.target == "words" else "vectors_"]
    for name in names:
        kept = getattr(model, name).copy()
        getattr(model, name)[:] *= 1.01
        assert certus.certify(model, texts).status is Status.REFUTED
        getattr(model, name)[:] = kept
    other = certus.certify(model, texts[::-1])
    assert "not those of the fit" in other["sample_loss"].assumptions[0]


def test_saved_and_read_back(fitted, tmp_path):
    model, texts, _ = fitted
    back = certus.load(model.save(tmp_path / "m.certus"))
    assert np.array_equal(back.transform(texts[:9]), model.transform(texts[:9]))
    assert as_told(certus.certify(back, texts))


def test_one_text_has_no_neighbours():
    with pytest.raises(ValueError, match="no pairs of a text and a word"):
        small(target="neighbours", min_count=1).fit([["a", "b", "a"]])


@pytest.mark.parametrize(
    "options", [{"target": "all"}, {"window": 0}, {"max_iter": 0}, {"n_components": 0}]
)
def test_parameters_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        small(**options).fit([["a", "a"], ["a"]])
