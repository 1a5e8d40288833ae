"""Training of language models: resumed, stopped, saved, and orthogonal steps."""

import bz2
import lzma
import math
import sys
import time
import zlib
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone  # noqa: E402

import certus  # noqa: E402
from certus.certificate import Status  # noqa: E402
from certus.language import (  # noqa: E402
    LanguageModel,
    NGramModel,
    TrainingProgress,
    baselines,
)
from certus.language.base import _fitting_size, fitted_tokenizer  # noqa: E402
from certus.language.sizing import SIZES, choose  # noqa: E402
from certus.language.training import held_out  # noqa: E402
from certus.language.windows import drawn_places  # noqa: E402
from certus.neural_network import Muon  # noqa: E402
from certus.neural_network.checkpoint import Checkpoints  # noqa: E402
from certus.neural_network.muon import muon_groups, orthogonal  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")

TEXT = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 40
SMALL = {
    "n_layers": 1,
    "width": 16,
    "heads": 2,
    "context": 16,
    "batch_size": 8,
    "max_iter": 60,
    "random_state": 0,
}


class Stopped(Exception):
    """In place of a loss of power."""


def weights(model):
    return {name: array.tobytes() for name, array in model.weights_.items()}


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "muon"},
        {"optimizer": "adam", "average": 0.9, "dropout": 0.1},
        {"optimizer": "muon", "early_stopping": False},
    ],
)
def test_interrupted_and_resumed_is_uninterrupted(monkeypatch, tmp_path, options):
    model = LanguageModel(**SMALL, **options)
    whole = clone(model).fit(TEXT)
    assert whole.n_iter_ == 60 and len(whole.history_["loss"]) == 3
    plain = Checkpoints.save

    def save(self, run):
        plain(self, run)
        if run.epoch == 2:
            raise Stopped

    parts = clone(model).set_params(checkpoint=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        with pytest.raises(Stopped):
            parts.fit(TEXT)
    for _ in range(2):  # a run that is over is returned as it is
        parts = clone(parts).fit(TEXT)
        assert weights(parts) == weights(whole)
        assert parts.history_["loss"] == whole.history_["loss"]
        assert parts.best_epoch_ == whole.best_epoch_


def test_another_text_is_not_the_run_that_was_saved(tmp_path):
    model = LanguageModel(**SMALL, checkpoint=tmp_path).fit(TEXT)
    with pytest.raises(ValueError, match="belongs to another fit"):
        clone(model).fit(TEXT.upper())


def test_equal_seeds_give_equal_models():
    model = LanguageModel(**SMALL)
    assert weights(clone(model).fit(TEXT)) == weights(clone(model).fit(TEXT))
    other = clone(model).set_params(random_state=1).fit(TEXT)
    assert weights(other) != weights(clone(model).fit(TEXT))


def test_a_plan_by_time_ends_in_time_with_a_rate_near_zero():
    model = LanguageModel(**{**SMALL, "max_iter": None}, max_time=2.0)
    model.set_params(n_iter_no_change=math.inf)
    start = time.perf_counter()
    model.fit(TEXT)
    assert time.perf_counter() - start < 30  # the certificate and a busy machine
    assert 1.5 < model.history_["seconds"][-1] < 10
    assert model.n_iter_ > 10
    assert model.certificate_.status is not Status.TIME_LIMIT


def test_a_limit_of_time_below_the_plan_keeps_what_there_is():
    model = LanguageModel(**{**SMALL, "max_iter": 10**7}, max_time=1.0)
    model.set_params(n_iter_no_change=math.inf).fit(TEXT)
    assert model.certificate_.status is Status.TIME_LIMIT
    assert model.bits_per_byte(TEXT[:500]) < 8


def test_training_stops_when_held_out_text_no_longer_gains():
    rng = np.random.default_rng(0)
    noise = bytes(rng.integers(97, 123, 3000).tolist())  # nothing to be learnt
    model = LanguageModel(**{**SMALL, "max_iter": 5000}, n_iter_no_change=3)
    model.fit(noise)
    assert model.n_iter_ < 5000
    best = model.best_epoch_
    assert best == len(model.history_["validation_bits"]) - 3
    least = min(model.history_["validation_bits"])
    assert model.history_["validation_bits"][best - 1] == least
    assert model.validation_bits_ == pytest.approx(least, rel=1e-6)


def test_stopping_by_text_that_the_user_gives():
    model = LanguageModel(**SMALL).fit(TEXT, validation="A dog. A fox. " * 10)
    cost = model.bits_per_byte("A dog. A fox. " * 10)
    assert model.validation_bits_ == pytest.approx(cost)


def test_a_model_file_brings_back_the_same_probabilities(tmp_path):
    model = LanguageModel(270, **SMALL).fit(TEXT)
    model.save(tmp_path / "model.certus")
    again = certus.load(tmp_path / "model.certus")
    assert again.bits_per_byte(TEXT[:300]) == model.bits_per_byte(TEXT[:300])
    assert again.get_params() == model.get_params()
    assert weights(again) == weights(model)


def test_the_certificate_is_about_text_that_was_held_out():
    model = LanguageModel(**SMALL).fit(TEXT)
    _, held = held_out([TEXT.encode()], 0.02, np.random.default_rng(0))
    claim = model.certificate_["bits_per_byte"]
    assert claim.value == pytest.approx(model.bits_per_byte(held), rel=1e-4)
    assert claim.value == pytest.approx(model.validation_bits_, rel=1e-4)
    other = certus.certify(model, TEXT)
    assert other["bits_per_byte"].value < 8 and other.met is not False


def test_changed_weights_are_found():
    model = LanguageModel(**SMALL).fit(TEXT)

    class Lying(LanguageModel):
        def token_log_probs(self, ids):
            return super().token_log_probs(ids) + 0.01

    model.__class__ = Lying
    Lying.__name__ = "LanguageModel"
    assert certus.certify(model, TEXT).met is False


@pytest.mark.parametrize("n", [300, 5_000, 400_000])
def test_passages_and_the_rest_make_the_whole_text(n):
    text = ("naïve 日本 " * n)[:n].encode()
    rest, held = held_out([text], 0.02, np.random.default_rng(0))
    whole = b"".join(a + b for a, b in zip(rest, [*held, b""], strict=True))
    assert whole == text
    wanted = max(0.02 * len(text), min(256, 0.05 * len(text)))
    assert sum(map(len, held)) == pytest.approx(wanted, rel=0.1, abs=4)
    assert len(held) == (8 if n == 400_000 else 1)
    for part in (*rest, *held):
        part.decode("utf-8")  # no character is cut
    assert len(rest[-1]) > len(text) // (3 * len(held))  # the end is learnt from


# -- what is chosen -----------------------------------------------------------------


def test_long_texts_get_merged_tokens_and_short_ones_bytes():
    long = [b"some words and other words, number %d. " % i for i in range(4000)]
    assert fitted_tokenizer("auto", long[:1000]).n_tokens == 257
    assert 257 < fitted_tokenizer("auto", long).n_tokens <= 512
    assert [_fitting_size(n) for n in (10**5, 10**6, 4 * 10**6, 10**10)] == [
        *(512, 1024, 2048, 8192)
    ]


@pytest.mark.parametrize("seconds", [1, 60, 600, 86_400])
def test_more_time_pays_for_a_larger_network_but_not_beyond_the_text(seconds):
    free = dict.fromkeys(SIZES)
    plan = {"steps": None, "threads": 2, "given": free}
    for n in (10, 10**4, 10**6, 10**9):
        now = choose(n, seconds=seconds, **plan)
        later = choose(n, seconds=10 * seconds, **plan)
        assert later.n_layers >= now.n_layers and later.width >= now.width
        assert now.width % (2 * now.heads) == 0
        weights = 12 * now.n_layers * now.width**2
        assert now.n_layers == 2 or weights < 2 * 4 * n  # rounded up at most
        own = choose(n, seconds=seconds, **{**plan, "given": {**free, "width": 40}})
        assert own.width == 40 and own.width % (2 * own.heads) == 0


# -- baselines and progress ---------------------------------------------------------


def zstd(data):
    """Zstandard from Python 3.14 on, or from the package."""
    try:
        from compression.zstd import compress
    except ImportError:
        compress = pytest.importorskip("zstandard").compress
    return compress(data, 19)


@pytest.mark.parametrize(
    ("name", "compress"),
    [("xz", lzma.compress), ("bzip2", bz2.compress), ("zstd", zstd)],
)
def test_a_compressor_is_given_the_training_text(name, compress):
    source, text = TEXT[:2000].encode(), TEXT[2000:2400].encode()
    found = baselines(text, source)
    size = len(compress(source + text)) - len(compress(source))
    assert found[name] == pytest.approx(8 * size / len(text), abs=0.1)
    assert found[name] < 8 * len(compress(text)) / len(text)
    assert found["5-gram"] == NGramModel(5).fit(source).bits_per_byte(text)


def test_progress_shows_bits_beside_baselines(monkeypatch):
    if sys.version_info < (3, 14) and find_spec("zstandard") is None:
        module = SimpleNamespace(compress=lambda data, _: zlib.compress(data, 9))
        monkeypatch.setitem(sys.modules, "zstandard", module)
    lines = []
    model = LanguageModel(**SMALL).set_callbacks(TrainingProgress(lines.append))
    model.fit(TEXT)
    assert len(lines) == len(model.history_["validation_bits"])
    last = f"{model.history_['validation_bits'][-1]:.3f} bits per byte"
    assert lines[-1].startswith("step 60, ") and last in lines[-1]
    assert "bits per byte (5-gram " in lines[0] and "(" not in lines[-1]
    assert set(model.baselines_) == {"5-gram", "xz", "bzip2", "zstd"}
    assert f"zstd {model.baselines_['zstd']:.2f}" in lines[0]
    plain = clone(LanguageModel(**SMALL)).fit(TEXT)
    assert weights(plain) == weights(model)  # looking changes nothing


# -- windows of training -----------------------------------------------------------


@pytest.mark.parametrize(("n", "context"), [(1000, 16), (17, 16), (16, 16), (1, 1)])
def test_windows_of_training_lie_in_the_text_and_cover_it(n, context):
    places = drawn_places(np.random.default_rng(0), n, context, 10, 20)
    assert places.shape == (10, 20)
    assert places.min() >= 0 and places.max() <= n - context
    if n == 1000:  # 200 windows of 16 out of 1000 tokens
        seen = np.unique(places[..., None] + np.arange(context))
        assert len(seen) > 0.97 * n


# -- Muon --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8, 8), (8, 24), (24, 8)])
def test_orthogonal_steps_keep_the_singular_vectors(shape):
    M = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0)).double()
    U, _, Vt = torch.linalg.svd(M, full_matrices=False)
    X = orthogonal(M)
    core = U.transpose(1, 2) @ X @ Vt.transpose(1, 2)
    values = core.diagonal(dim1=1, dim2=2)
    assert values.min() > 0.3 and values.max() < 1.3
    off = core - torch.diag_embed(values)
    assert off.abs().max() < 1e-10


def test_muon_takes_matrices_and_adam_the_rest():
    model = LanguageModel(**SMALL).fit(TEXT)
    net = model.network_
    groups = muon_groups(net, 0.02, 0.1)
    names = {id(p): name for name, p in net.named_parameters()}
    inner = {names[id(p)] for g in groups if g["matrices"] for p in g["params"]}
    assert all(name.endswith("weight") and "norm" not in name for name in inner)
    assert "embedding.weight" not in inner
    everything = [id(p) for g in groups for p in g["params"]]
    assert sorted(everything) == sorted(names)


def test_the_adam_part_of_muon_is_that_of_torch():
    made = torch.Generator().manual_seed(0)
    a, b = (torch.nn.Parameter(torch.arange(5.0)) for _ in range(2))
    mine = Muon([a], lr=0.1, betas=(0.9, 0.99))
    theirs = torch.optim.Adam([b], lr=0.1, betas=(0.9, 0.99), eps=1e-10)
    for _ in range(20):
        g = torch.randn(5, generator=made)
        a.grad, b.grad = g.clone(), g.clone()
        mine.step()
        theirs.step()
    torch.testing.assert_close(a, b)
