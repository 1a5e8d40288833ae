"""Hostile corpora for vectors trained by negative sampling."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.text import DocumentVectors, FastTextVectors, SkipGram
from helpers.measured import as_told

OPTIONS = {"n_components": 6, "subsample": None, "min_count": 1, "random_state": 0}
MODELS = [
    SkipGram(max_iter=2, **OPTIONS),
    FastTextVectors(max_iter=2, **OPTIONS),
    DocumentVectors(max_iter=2, **OPTIONS),
    DocumentVectors(max_iter=2, target="neighbours", **OPTIONS),
]
every = pytest.mark.parametrize(
    "model", MODELS, ids=lambda m: type(m).__name__ + getattr(m, "target", "")
)


def long_texts(n=4000, words=2000, length=50):
    rng = np.random.default_rng(0)
    names = np.array([f"word{i}" for i in range(words)])
    return names[rng.integers(0, words, (n, length))].tolist()


@every
def test_a_corpus_with_one_word(model):
    model = clone(model).fit([["a", "a", "a"]] * 3)
    assert model.vocabulary_ == ["a"] and np.isfinite(model.context_vectors_).all()
    assert as_told(model.certificate_)


@every
def test_empty_documents_among_others(model):
    texts = [[], ["a", "b", "c"], [], [], ["b", "c", "a"], ["c", "b"], []]
    model = clone(model).fit(texts)
    assert as_told(certus.certify(model, texts))
    assert model.transform([[], ["zebra-none"]]).shape == (2, 6)


@every
@pytest.mark.parametrize("texts", [[], [[]], [[], []], [""], ["?!"]])
def test_no_words_at_all(model, texts):
    with pytest.raises(ValueError, match="no words"):
        clone(model).fit(texts)


@every
def test_everything_below_min_count(model):
    with pytest.raises(ValueError, match="min_count=9"):
        clone(model).set_params(min_count=9).fit([["a", "b"], ["c"]])


@pytest.mark.parametrize("model", MODELS[:2], ids=lambda m: type(m).__name__)
def test_texts_of_one_word_have_no_pairs(model):
    with pytest.raises(ValueError, match="no pairs"):
        clone(model).fit([["a"], ["b"], ["a"]])


@every
def test_all_words_thinned_away(model):
    with pytest.raises(ValueError, match="subsample"):
        clone(model).set_params(subsample=1e-300).fit([["a", "b"], ["b", "a"]] * 5)


@every
@pytest.mark.parametrize("bad", [3, None, ["x"], b"x", float("nan")])
def test_tokens_that_are_not_strings_are_refused(model, bad):
    with pytest.raises((TypeError, ValueError), match=r"[Dd]ocument 1"):
        clone(model).fit([["a", "b"], ["a", bad], ["b"]])


@every
def test_a_single_string_is_not_a_corpus(model):
    with pytest.raises(ValueError, match="single string"):
        clone(model).fit("a text that was meant as one document")


@every
def test_windows_beyond_every_text(model):
    texts = [["a", "b", "c"], ["c", "b"], ["a", "c", "d", "b"]] * 3
    fitted = clone(model).set_params(window=10_000).fit(texts)
    assert as_told(fitted.certificate_)


@every
def test_steps_that_diverge_are_reported(model):
    texts = [["a", "b", "c", "d"], ["d", "c", "a", "b"]] * 20
    model = clone(model).set_params(
        learning_rate=1e30, max_iter=5, n_components=40, deterministic=True
    )
    with pytest.warns(UncertifiedWarning, match="learning_rate"):
        model.fit(texts)
    assert model.certificate_.status is Status.DIVERGED


@every
def test_words_of_every_script_and_length(model):
    texts = [
        ["ß", "日本", "\ud800", "a" * 5000, "", " "],
        ["日本", "ß", "é", "e\u0301"],
    ]
    fitted = clone(model).fit(texts * 3)
    assert "日本" in fitted.vocabulary_ and as_told(fitted.certificate_)


@every
def test_max_time_ends_within_an_epoch(model):
    texts = long_texts()
    model = clone(model).set_params(max_iter=500, n_components=200, max_time=0.7)
    clone(model).set_params(max_iter=1, max_time=None).fit(texts[:50])  # compiles
    begin = time.perf_counter()
    with pytest.warns(UncertifiedWarning, match="max_time"):
        model.fit(texts)
    assert time.perf_counter() - begin < 6
    assert model.certificate_.status is Status.TIME_LIMIT
    assert as_told(certus.certify(model, texts))
    assert len(model.history_["objective"]) >= 1


@pytest.mark.usefixtures("ctrl_c")
@every
def test_interrupt_within_an_epoch_leaves_a_fitted_model(model):
    texts = long_texts()
    model = clone(model).set_params(max_iter=300, n_components=200)
    # All is compiled before the signal: one that comes while LLVM calls back is lost.
    clone(model).set_params(max_iter=1).fit(texts)
    timer = threading.Timer(1.0, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    with certus.config_context(on_interrupt="return"):
        model.fit(texts)
    assert model.certificate_.status is Status.INTERRUPTED
    assert model.n_pairs_ > 0 and as_told(certus.certify(model, texts))


@every
def test_saved_and_read_back(model, tmp_path):
    texts = [["a", "b", "c"], ["c", "b", "a", "a"], ["b", "c"]] * 4
    fitted = clone(model).fit(texts)
    back = certus.load(fitted.save(tmp_path / "m.certus"))
    assert set(vars(back)) == set(vars(fitted))
    assert np.array_equal(back.transform(texts), fitted.transform(texts))
    assert as_told(certus.certify(back, texts))


@every
def test_in_a_pipeline_and_cloned(model):
    texts = [["a", "b", "c"], ["c", "b", "a", "a"], ["b", "c"]] * 4
    chain = make_pipeline(clone(model).set_params(deterministic=True))
    assert chain.fit(texts).transform(texts).shape == (12, 6)
    assert clone(chain).get_params(deep=False).keys() == chain.get_params(False).keys()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"n_components": 0}, ValueError),
        ({"n_components": 2.5}, TypeError),
        ({"window": 0}, ValueError),
        ({"negatives": 0}, ValueError),
        ({"negatives": 10**9}, ValueError),
        ({"subsample": 0.0}, ValueError),
        ({"subsample": "often"}, TypeError),
        ({"learning_rate": 0.0}, ValueError),
        ({"learning_rate": float("nan")}, ValueError),
        ({"min_learning_rate": 1.0}, ValueError),
        ({"max_iter": 0}, ValueError),
        ({"min_count": 0}, ValueError),
        ({"max_words": 0}, ValueError),
        ({"noise_power": -1.0}, ValueError),
        ({"max_time": -1}, ValueError),
        ({"tokenizer": "letters"}, ValueError),
    ],
)
def test_parameters_are_checked(options, error):
    with pytest.raises(error, match=next(iter(options))):
        SkipGram(**options).fit(["a b a b"] * 5)


def test_a_million_words_fit_in_the_memory_of_two_tables():
    code = """
    import resource
    import numpy as np
    from certus.text import EncodedCorpus, SkipGram
    n, d = 1_000_000, 32
    SkipGram(d, max_iter=1, min_count=1, subsample=None).fit([["a", "b"]] * 3)
    words = [f"w{i}" for i in range(n)]
    ids = np.random.default_rng(0).permutation(np.arange(n, dtype=np.int32))
    offsets = np.arange(0, n + 1, 20)
    corpus = EncodedCorpus(words, np.ones(n, dtype=np.int64), ids, offsets, 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = SkipGram(d, max_iter=1, min_count=1, random_state=0, negatives=1, window=1)
    model.fit(corpus)
    used = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert not model.certificate_["reported_loss"].fix
    print(used / (2 * 4 * n * d))
    """
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.6


class Stopper:
    """A callback that asks to stop, or interrupts, after some epochs."""

    def __init__(self, after, error=None):
        self.after, self.error, self.seen = after, error, 0

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X=None, fitted_estimator=None):
        if context.task_name != "step":
            return False
        assert fitted_estimator.transform(X).any()
        self.seen += 1
        if self.seen >= self.after and self.error is not None:
            raise self.error
        return self.seen >= self.after

    def teardown(self, estimator, context):
        pass


@every
def test_a_callback_may_stop_or_interrupt(model):
    texts = [["a", "b", "c"], ["c", "b", "a", "a"], ["b", "c"]] * 4
    stopped = clone(model).set_params(max_iter=9).set_callbacks(Stopper(3)).fit(texts)
    assert stopped.certificate_.status is Status.STOPPED and stopped.n_iter_ == 3
    broken = clone(model).set_params(max_iter=9)
    broken.set_callbacks(Stopper(2, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        broken.fit(texts)
    assert broken.certificate_.status is Status.INTERRUPTED and broken.n_iter_ == 2
    assert len(broken.history_["objective"]) == 2
    assert as_told(certus.certify(broken, texts))
