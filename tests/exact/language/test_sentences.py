"""Sentence encoders: cosines, one pass for each text, pairs that belong together."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone  # noqa: E402
from sklearn.frozen import FrozenEstimator  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

import certus  # noqa: E402
from certus.language import MaskedLanguageModel, SentenceEncoder  # noqa: E402
from certus.neural_network.checkpoint import Checkpoints  # noqa: E402
from certus.neural_network.modules import Transformer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")

RNG = np.random.default_rng(0)
COLOURS, COUNTS = ["red", "green", "blue", "pink"], ["one", "two", "six", "nine"]
TEXTS = [
    " ".join(RNG.choice(COLOURS if i % 2 else COUNTS, 8)) for i in range(60)
]  # fmt: skip
SMALL = {
    "width": 16,
    "heads": 2,
    "context": 24,
    "batch_size": 16,
    "max_iter": 60,
    "max_time": None,
    "random_state": 0,
}


@pytest.fixture(scope="module", params=[0, 1], ids=["no layer", "one layer"])
def small(request):
    return SentenceEncoder(n_layers=request.param, **SMALL).fit(TEXTS)


@pytest.mark.catalog("LM-15")
def test_similarity_is_the_cosine_of_the_mean_states(small):
    found = small.similarity(["red blue"], ["one six", "pink"])
    means = [small._states(small.tokenizer_.encode(t))[1:].double().mean(0).numpy()
             for t in ("red blue", "one six", "pink")]  # fmt: skip
    for j in (1, 2):
        a, b = means[0], means[j]
        cosine = a @ b / math.sqrt(a @ a) / math.sqrt(b @ b)
        assert found[0, j - 1] == pytest.approx(cosine, abs=1e-12)
    np.testing.assert_allclose(np.linalg.norm(small.transform(TEXTS), axis=1), 1)


def test_without_layers_a_text_is_the_mean_of_the_vectors_of_its_tokens():
    model = SentenceEncoder(**SMALL).fit(TEXTS)
    table = model.weights_["embedding.weight"].astype(float)
    assert model.config_["n_layers"] == 0 and set(model.weights_) == {
        "embedding.weight"
    }
    text = " ".join([*COLOURS, *COUNTS, *COLOURS])  # more tokens than its parts hold
    mean = table[model.tokenizer_.encode(text)].mean(axis=0)
    np.testing.assert_allclose(
        model.transform([text])[0], mean / np.linalg.norm(mean), atol=1e-12
    )
    # The order of the words plays no part, but for which one comes first.
    one, other = model.transform(["red blue pink", "red pink blue"])
    np.testing.assert_allclose(one, other, atol=1e-12)
    # Lengths are free, so that words which tell little can count for little.
    lengths = np.linalg.norm(table[np.unique(model.tokenizer_.encode(text))], axis=1)
    assert lengths.max() > 1.1 * lengths.min()


@pytest.mark.catalog("LM-15")
def test_n_texts_take_n_passes_and_stored_vectors_none(small, monkeypatch):
    plain, passes = Transformer.states, []

    def states(self, *args, **options):
        passes.append(1)
        return plain(self, *args, **options)

    monkeypatch.setattr(Transformer, "states", states)
    texts = sorted({text[:20] for text in TEXTS})[:12]  # each fits in the context
    stored = small.transform(texts)
    assert len(passes) == 12
    cached = small.similarity(stored, stored)
    assert len(passes) == 12
    again = small.similarity(texts, texts)
    assert len(passes) == 36  # both lists once; 144 pairs would take 288
    np.testing.assert_array_equal(cached, again)
    # Pair by pair, each text encoded anew: the same scores.
    for i in (0, 5):
        for j in (3, 7):
            score = small.similarity([texts[i]], [texts[j]])[0, 0]
            assert score == cached[i, j]


@pytest.mark.catalog("LM-15")
def test_texts_of_one_kind_are_nearer_than_those_of_two(small):
    fresh = ["pink green", "red red blue", "nine two", "six one one"]
    S = small.similarity(fresh)
    assert min(S[0, 1], S[2, 3]) > S[:2, 2:].max()
    # Half of the 16 pairs of a batch are of one kind: log 8 is the best, log 16 chance.
    assert small.history_["loss"][-1] < math.log(11)


@pytest.mark.catalog("LM-15")
def test_given_pairs_decide_what_belongs_together():
    """Colours belong to counts here, which no passage of a text shows."""
    pairs = [
        (COLOURS[k] + " " + COLOURS[k], COUNTS[k]) for k in RNG.integers(0, 4, 200)
    ]
    options = {**SMALL, "max_iter": 150, "batch_size": 32, "early_stopping": False}
    model = SentenceEncoder(**options, temperature=0.2).fit(pairs)
    S = model.similarity(COLOURS, COUNTS)
    assert (S.argmax(axis=1) == np.arange(4)).all()


def test_vectors_without_information_cost_the_logarithm_of_the_batch():
    options = {**SMALL, "max_iter": 1, "learning_rate": 1e-9, "temperature": 1e6}
    model = SentenceEncoder(**options).fit(TEXTS)
    assert model.history_["loss"][0] == pytest.approx(math.log(16), abs=1e-4)


def test_a_sentence_encoder_starts_from_a_masked_model():
    base = MaskedLanguageModel(n_layers=1, **SMALL).fit(TEXTS)
    before = {name: w.tobytes() for name, w in base.weights_.items()}
    still = {**SMALL, "max_iter": 1, "learning_rate": 1e-12}
    model = SentenceEncoder(base, **still).fit(TEXTS)
    np.testing.assert_allclose(
        model.transform(["red"])[0],
        base.transform(["red"])[0] / np.linalg.norm(base.transform(["red"])[0]),
        atol=1e-5,
    )
    moved = SentenceEncoder(base, **SMALL).fit(TEXTS)
    assert {n: w.tobytes() for n, w in base.weights_.items()} == before
    assert np.abs(moved.transform(["red"]) - model.transform(["red"])).max() > 1e-3
    kept = clone(SentenceEncoder(FrozenEstimator(base), **still)).fit(TEXTS)
    np.testing.assert_array_equal(kept.transform(["red"]), model.transform(["red"]))
    anew = clone(SentenceEncoder(base, **still)).fit(TEXTS)  # fits the base first
    np.testing.assert_array_equal(anew.transform(["red"]), model.transform(["red"]))


def test_a_run_that_was_cut_off_goes_on_bit_for_bit(tmp_path, monkeypatch):
    class Stopped(Exception):
        pass

    model = SentenceEncoder(**{**SMALL, "max_iter": 30})
    whole = clone(model).fit(TEXTS)
    plain = Checkpoints.save

    def save(self, run):
        plain(self, run)
        if run.epoch == 2:
            raise Stopped

    parts = clone(model).set_params(checkpoint=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        with pytest.raises(Stopped):
            parts.fit(TEXTS)
    parts = clone(parts).fit(TEXTS)
    np.testing.assert_array_equal(parts.transform(TEXTS), whole.transform(TEXTS))


def test_a_sentence_encoder_serves_in_pipelines_and_cross_validation(small):
    y = np.array(["counts", "colours"] * 30)
    pipeline = make_pipeline(clone(small), LogisticRegression())
    assert cross_val_score(pipeline, np.array(TEXTS), y, cv=2).mean() > 0.9


def test_a_file_brings_back_the_same_vectors(small, tmp_path):
    small.save(tmp_path / "model.certus")
    again = certus.load(tmp_path / "model.certus")
    np.testing.assert_array_equal(
        again.transform(TEXTS[:3]), small.transform(TEXTS[:3])
    )
    assert again.certificate_["cosines"].met


def test_scores_that_are_not_cosines_are_found(small):
    found = certus.certify(small, TEXTS)
    assert found["cosines"].met and found["pair_loss"].value < math.log(60)

    class Lying(SentenceEncoder):
        def similarity(self, first, second=None):
            return super().similarity(first, second) + 1e-6

    Lying.__name__ = "SentenceEncoder"
    liar = clone(small).fit(TEXTS)
    liar.__class__ = Lying
    assert certus.certify(liar, TEXTS)["cosines"].met is False
