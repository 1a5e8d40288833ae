"""Language models on texts and settings that nobody should pass, and some do."""

import math
import signal

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402

import certus  # noqa: E402
from certus.base import UncertifiedWarning  # noqa: E402
from certus.certificate import Status  # noqa: E402
from certus.language import ByteTokenizer, LanguageModel  # noqa: E402
from certus.neural_network.objective import GradientStep  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")

TINY = LanguageModel(
    n_layers=1, width=8, heads=2, context=8, batch_size=4, max_iter=5, random_state=0
)


@pytest.mark.parametrize(
    ("texts", "kind", "words"),
    [
        ("", ValueError, "empty"),
        ([], ValueError, "empty"),
        ([""], ValueError, "empty"),
        (list("characters"), ValueError, r"Join them: ''\.join\(texts\)"),
        ([1, 2, 3], TypeError, "got numbers"),
        (7, TypeError, "must be a text, a path, or a list"),
        (None, TypeError, "must be a text, a path, or a list"),
        ({"a text": 1}, TypeError, "must be a text, a path, or a list"),
        ({"a text", "another"}, TypeError, r"Give sorted\(texts\)"),
        ([b"a", None], TypeError, "must be str or bytes"),
        ("half \ud800 pair", ValueError, "unpaired surrogate"),
    ],
)
def test_objects_that_are_not_text_are_refused(texts, kind, words):
    with pytest.raises(kind, match=words):
        clone(TINY).fit(texts)


def test_a_folder_is_refused_and_a_missing_file_says_so(tmp_path):
    with pytest.raises(ValueError, match="is a folder; give its files"):
        clone(TINY).fit(tmp_path)
    with pytest.raises(FileNotFoundError):
        clone(TINY).fit(tmp_path / "absent.txt")


@pytest.mark.parametrize(
    "text",
    ["a", b"\x00", b"\xff\xfe\x80" * 50, b"\x00" * 500, "ab", "日" * 300, b"\n" * 10],
    ids=repr,
)
def test_odd_texts_are_learnt_and_cost_a_finite_number_of_bits(text):
    model = clone(TINY).fit(text)
    assert math.isfinite(model.bits_per_byte(text))
    assert model.next_probabilities(np.zeros(0, int)).sum() == pytest.approx(1)
    assert model.certificate_["bytes_counted"].met


def test_a_text_may_be_longer_than_any_line_and_any_window(tmp_path):
    path = tmp_path / "one_line.txt"
    path.write_bytes(b"x" * 200_000)
    assert clone(TINY).fit(path).n_iter_ == 5


def test_a_text_without_bytes_has_no_bits_per_byte():
    model = clone(TINY).fit("abc" * 100)
    assert model.log_prob("") == 0.0
    with pytest.raises(ValueError, match="empty"):
        model.bits_per_byte("")


@pytest.mark.parametrize("ids", [[257], [-1], [[1, 2]], [0.5], ["a"]])
def test_unknown_tokens_are_named(ids):
    model = clone(TINY).fit("abc" * 100)
    for ask in (model.token_log_probs, model.next_probabilities):
        with pytest.raises(ValueError, match=r"whole numbers from 0 to 256"):
            ask(np.array(ids))


def test_calls_before_a_fit_are_refused():
    with pytest.raises(NotFittedError):
        clone(TINY).next_probabilities(np.zeros(0, int))
    with pytest.raises((NotFittedError, AttributeError)):
        clone(TINY).bits_per_byte("abc")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_layers": 0}, "layers"),
        ({"width": 6, "heads": 4}, "even multiple of heads"),
        ({"context": 0}, "context"),
        ({"max_iter": 0}, "max_iter"),
        ({"max_time": 0}, "max_time"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"dropout": 2.0}, "dropout"),
        ({"position": "absolute"}, "position"),
        ({"activation": "tanh"}, "activation"),
        ({"optimizer": "magic"}, "optimizer"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"device": "toaster"}, "device"),
        ({"precision": "float16"}, "precision"),
        ({"tokenizer": "words"}, "tokenizer must be"),
        ({"tokenizer": ByteTokenizer()}, r"special_tokens=\['<\|end\|>'\]"),
        ({"tokenizer": 100}, "vocab_size must be at least 257"),
    ],
)
def test_senseless_settings_are_refused(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        clone(TINY).set_params(**options).fit("abc" * 100)


@pytest.mark.parametrize("has", [False, True])
def test_bfloat16_needs_a_processor_that_has_it(monkeypatch, has):
    """Elsewhere it is refused, because it would be slower; weights stay float32."""
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: has, raising=False)
    model = clone(TINY).set_params(precision="bfloat16")
    if not has:
        with pytest.raises(ValueError, match="about ten times slower"):
            model.fit("abc" * 100)
        return
    rounded = model.fit("abc" * 100).weights_
    exact = clone(TINY).fit("abc" * 100).weights_
    assert all(part.dtype == np.float32 for part in rounded.values())
    assert any(np.any(rounded[name] != exact[name]) for name in exact)


def test_a_diverging_rate_still_returns_finite_weights():
    model = clone(TINY).set_params(optimizer="sgd", learning_rate=1e30, clip=None)
    model.set_params(qk_norm=False, max_iter=30).fit("abcdefg" * 100)
    assert all(np.isfinite(array).all() for array in model.weights_.values())


def test_ctrl_c_in_the_middle_keeps_a_model(ctrl_c, monkeypatch):
    plain, seen = GradientStep.__call__, []

    def step(self, rows):
        seen.append(1)
        if len(seen) == 25:
            signal.raise_signal(signal.SIGINT)
        return plain(self, rows)

    monkeypatch.setattr(GradientStep, "__call__", step)
    model = clone(TINY).set_params(max_iter=10_000)
    with certus.config_context(on_interrupt="return"):
        model.fit("The dog sleeps. " * 40)
    assert model.n_iter_ < 10_000
    assert math.isfinite(model.bits_per_byte("The dog"))


def test_a_fit_that_diverges_says_so():
    text = "the cat sat on the mat and the dog sat on the cat. " * 100
    model = LanguageModel(
        n_layers=1,
        width=16,
        context=16,
        max_iter=60,
        learning_rate=1e30,
        optimizer="sgd",
        clip=None,
        qk_norm=False,
        random_state=0,
    )
    with pytest.warns(UncertifiedWarning, match="diverged"):
        model.fit(text)
    assert model.certificate_.status is Status.DIVERGED
    assert np.isfinite(model.bits_per_byte(text))  # the weights of before were kept
