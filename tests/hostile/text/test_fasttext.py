"""The text classifier meets odd texts, odd labels, Ctrl-C and the clock."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.text import FastTextClassifier, LineCorpus, encode
from certus.text import classifier_training as training
from helpers.interrupting import interrupt_at
from helpers.measured import as_told

TEXTS = ["good film", "fine acting", "bad film", "awful acting"] * 5
Y = ["pos", "pos", "neg", "neg"] * 5


def quick(**options):
    return FastTextClassifier(
        **{
            "random_state": 0,
            "n_components": 4,
            "learning_rate": 1.0,
            "max_iter": 5,
            **options,
        }
    )


# -- labels -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (["pos"] * 20, ValueError, "at least 2 classes"),
        (["pos", "neg"], ValueError, "20 texts, but 2 labels"),
        ([0.0, 1.0, np.nan, 1.0] * 5, ValueError, "missing labels"),
        ([0, None] * 10, ValueError, "missing labels"),
        (["a", None] * 10, ValueError, "missing labels"),
        (None, ValueError, "y is missing"),
        (np.linspace(0, 1, 20), ValueError, "continuous"),
        (np.zeros((20, 2)), ValueError, "1d"),
        ([], ValueError, "no texts"),
        (np.array([1, "a"] * 10, dtype=object), ValueError, "label type"),
    ],
)
def test_invalid_labels_are_refused(y, error, message):
    with pytest.raises(error, match=message):
        quick().fit(TEXTS, y)


@pytest.mark.parametrize(
    "labels",
    [[True, False], [3, -7], [2.0, 5.0], ["b", "ä"], np.array(["x", "y"], object)],
)
def test_labels_of_any_kind_come_back(labels):
    y = np.array([labels[0], labels[0], labels[1], labels[1]] * 5)
    model = quick().fit(TEXTS, y)
    assert model.predict(TEXTS).tolist() == y.tolist()
    assert model.score(TEXTS, y) == 1.0


# -- texts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        ("one string", ValueError, "single string"),
        ([b"bytes", b"more"], ValueError, "bytes"),
        ([["a", 3], ["b", "c"]], TypeError, "not a string"),
        ([[1.0, 2.0], [3.0, 4.0]], TypeError, "not a string"),
        ([None, "a"], ValueError, "Document 0"),
        (["", "  "], ValueError, "no word"),
        (["a", "b"], ValueError, None),
        (3, ValueError, "int"),
        (encode(["a b", "c"]), ValueError, "texts themselves"),
    ],
)
def test_invalid_texts_are_refused(texts, error, message):
    least = 2 if message is None else 1
    with pytest.raises(error, match=message or "at least 2 times"):
        quick(min_count=least).fit(texts, [0, 1])


def test_empty_texts_count_in_the_mean_and_move_nothing():
    model = quick(deterministic=True).fit([*TEXTS, "", "?!"], [*Y, "pos", "neg"])
    alone = model.predict_log_proba([""])
    assert alone == pytest.approx(np.log([[0.5, 0.5]]))
    assert as_told(model.certificate_)
    assert as_told(certus.certify(model, [*TEXTS, "", "?!"], [*Y, "pos", "neg"]))


@pytest.mark.parametrize("loss", ["softmax", "hierarchical"])
def test_a_text_of_unknown_words_has_the_zero_vector(loss):
    y = ["often", "often", "rare", "other"] * 5
    model = quick(loss=loss).fit(TEXTS, y)
    P = model.predict_proba(["zebra quagga", ""])
    np.testing.assert_array_equal(model.transform(["zebra quagga", ""]), 0)
    wanted = [1 / 3] * 3 if loss == "softmax" else [1 / 2, 1 / 4, 1 / 4]
    np.testing.assert_allclose(P, [wanted] * 2)


def test_no_texts_to_predict():
    model = quick().fit(TEXTS, Y)
    assert model.predict([]).shape == (0,)
    assert model.predict_proba([]).shape == (0, 2)
    assert model.transform([]).shape == (0, 4)


def test_one_text_of_each_class():
    model = quick(max_iter=100).fit(["yes", "no"], [1, 0])
    assert model.predict(["no", "yes"]).tolist() == [0, 1]


def test_texts_from_anywhere(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    wanted = quick(deterministic=True).fit(TEXTS, Y)
    sources = [
        (text for text in TEXTS),
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        LineCorpus(path),
        [text.split() for text in TEXTS],
        [tuple(text.split()) for text in TEXTS],
    ]
    for texts in sources:
        model = quick(deterministic=True).fit(texts, iter(Y))
        np.testing.assert_array_equal(model.vectors_, wanted.vectors_)
        assert as_told(model.certificate_)
    lines = LineCorpus(path)
    assert wanted.predict(lines).tolist() == Y
    assert as_told(certus.certify(wanted, lines, Y))


def test_pandas_with_an_index_of_its_own():
    pd = pytest.importorskip("pandas")
    texts = pd.Series(TEXTS, index=range(100, 120))
    y = pd.Series(Y, index=range(100, 120))
    model = quick().fit(texts, y)
    assert model.score(texts, y) == 1.0 and as_told(model.certificate_)
    assert as_told(certus.certify(model, texts, y, level="full"))


def test_scripts_emoji_and_lone_surrogates():
    texts = ["日本語 です", "naïve café", "🙂 🙂", "\ud800 odd"] * 5
    options = {"tokenizer": "whitespace", "char_ngrams": (1, 3), "word_ngrams": 2}
    model = quick(**options, max_iter=30).fit(texts, Y)
    assert model.score(texts, Y) == 1.0 and as_told(model.certificate_)


def test_a_huge_text_and_a_huge_word():
    texts = ["a " * 300_000 + "b", "c", "d" * 100_000, "e"]
    model = quick(char_ngrams=(3, 3), n_buckets=1000).fit(texts, [0, 1, 1, 0])
    assert as_told(model.certificate_)
    assert np.isfinite(model.predict_proba(texts)).all()


def test_few_buckets_are_shared_and_many_take_no_memory():
    crowded = quick(word_ngrams=3, char_ngrams=(2, 5), n_buckets=1).fit(TEXTS, Y)
    assert crowded.vectors_.shape == (len(crowded.vocabulary_) + 1, 4)
    assert as_told(crowded.certificate_)
    roomy = quick(word_ngrams=2, n_buckets=10_000_000).fit(TEXTS, Y)
    assert len(roomy.vectors_) < 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"loss": "hinge"}, "loss"),
        ({"word_ngrams": 0}, "word_ngrams"),
        ({"char_ngrams": (3, 2)}, "char_ngrams"),
        ({"char_ngrams": 3}, "char_ngrams"),
        ({"char_ngrams": (0, 2)}, "char_ngrams"),
        ({"n_buckets": 0}, "n_buckets"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": np.nan}, "learning_rate"),
        ({"max_iter": 0}, "max_iter"),
        ({"min_count": 0}, "min_count"),
        ({"max_time": -1}, "max_time"),
        ({"tokenizer": "spaces"}, "tokenizer"),
        ({"class_weight": {"pos": -1.0}}, "class_weight"),
        ({"class_weight": {"pos": 0.0, "neg": 0.0}}, "class_weight"),
    ],
)
def test_parameters_out_of_range(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        quick(**options).fit(TEXTS, Y)


def test_absurd_rates_are_reported_as_divergence():
    with pytest.warns(UncertifiedWarning, match="learning_rate"):
        model = quick(learning_rate=1e30).fit(TEXTS, Y)
    assert model.certificate_.status is Status.DIVERGED
    assert model.certificate_.met is None


# -- time and Ctrl-C --------------------------------------------------------------


def large(n=4000):
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 500, (n, 20))
    return [[f"w{t}" for t in row] for row in tokens], rng.integers(0, 20, n)


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_clock_stops_within_an_epoch(monkeypatch, deterministic):
    monkeypatch.setattr(training, "TURN", 1e5)
    texts, y = large()
    step = training.train_softmax
    turns = []

    def slow(*args):
        turns.append(1)
        return step(*args)

    # A clock on which each turn takes a second, however busy the machine is.
    clock = SimpleNamespace(perf_counter=lambda: float(len(turns)))
    monkeypatch.setattr(training, "time", clock)
    monkeypatch.setattr(training, "train_softmax", slow)
    model = FastTextClassifier(
        20, max_time=5.5, deterministic=deterministic, random_state=0
    )
    with pytest.warns(UncertifiedWarning, match="time"):
        model.fit(texts, y)
    assert model.n_iter_ == 0 and len(turns) == 6
    assert model.certificate_.status is Status.TIME_LIMIT
    assert as_told(model.certificate_) and len(model.history_["objective"]) == 1
    assert model.predict(texts[:3]).shape == (3,)


@pytest.mark.parametrize("policy", ["raise", "return"])
def test_ctrl_c_within_an_epoch_leaves_a_fitted_model(monkeypatch, policy):
    monkeypatch.setattr(training, "TURN", 1e5)
    texts, y = large()
    interrupt_at(monkeypatch, training, "train_softmax", 20)
    model = FastTextClassifier(20, deterministic=True, random_state=0)
    with certus.config_context(on_interrupt=policy):
        if policy == "raise":
            with pytest.raises(KeyboardInterrupt):
                model.fit(texts, y)
        else:
            model.fit(texts, y)
    assert model.certificate_.status is Status.INTERRUPTED
    assert as_told(model.certificate_) and np.isfinite(
        model.history_["running_loss"][0]
    )
    assert np.abs(model.coef_).max() > 0


def test_turns_are_short():
    """A hundred million numbers: 0.2 s at a twentieth of the speed of the loop."""
    assert training.TURN <= 1e8


# -- files ------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["softmax", "hierarchical"])
def test_files_and_pickles_bring_the_model_back(tmp_path, loss):
    options = {"word_ngrams": 2, "char_ngrams": (2, 3), "class_weight": "balanced"}
    texts, y = [*TEXTS, "~ tilde"], [*Y, "neg"]
    model = quick(loss=loss, **options, tokenizer="whitespace").fit(texts, y)
    back = certus.load(model.save(tmp_path / "m.certus"))
    other = pickle.loads(pickle.dumps(model))
    for twin in (back, other):
        np.testing.assert_array_equal(
            twin.predict_proba(texts), model.predict_proba(texts)
        )
        assert as_told(certus.certify(twin, texts, y))
    assert set(vars(back)) == set(vars(model))
    assert back.get_params() == model.get_params()


def test_a_custom_tokenizer_is_refused_by_name_when_saving(tmp_path):
    model = quick(tokenizer=str.split).fit(TEXTS, Y)
    assert as_told(model.certificate_)
    with pytest.raises(Exception, match="tokenizer"):
        model.save(tmp_path / "m.certus")


def test_sets_of_labels_for_texts():
    texts, y = large(300)
    model = FastTextClassifier(8, random_state=0).fit(texts[:200], y[:200])
    model.calibrate((t for t in texts[200:]), y[200:])
    found = model.predict_set(texts[:5], coverage=0.9)
    assert found.shape == (5, 20) and found.dtype == bool
    with pytest.raises(ValueError, match="rows of the fit"):
        model.calibrate(texts[:200], y[:200])
