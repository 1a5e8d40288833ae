"""Words by their characters: directions, unseen words, shares of layers."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone  # noqa: E402
from sklearn.linear_model import LogisticRegression, Ridge  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

import certus  # noqa: E402
from certus.language import CharacterEncoder  # noqa: E402
from certus.language.encoders.characters import _best_shares  # noqa: E402
from certus.neural_network.checkpoint import Checkpoints  # noqa: E402
from certus.neural_network.modules import CharacterReader  # noqa: E402
from certus.neural_network.modules.character_reader import symbols  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")

TEXTS = ["the cat sat on the mat", "a dog lay near the rug"] * 25
SMALL = {"width": 8, "batch_size": 8, "max_iter": 40, "max_time": None}
SMALL |= {"random_state": 0}


@pytest.fixture(scope="module")
def small():
    return CharacterEncoder(**SMALL).fit(TEXTS)


@pytest.mark.catalog("LM-16")
def test_each_direction_sees_its_own_side_only(small):
    H = small.layer_vectors("the cat sat on")  # (layers + 1, words, 2 width)
    other = small.layer_vectors("the cat lay on")
    w = 8
    for j in (1, 2):
        np.testing.assert_array_equal(H[j, :2, :w], other[j, :2, :w])
        np.testing.assert_array_equal(H[j, 3:, w:], other[j, 3:, w:])
        assert np.abs(H[j, 2:, :w] - other[j, 2:, :w]).max(axis=1).min() > 1e-6
        assert np.abs(H[j, :3, w:] - other[j, :3, w:]).max(axis=1).min() > 1e-6
    np.testing.assert_array_equal(H[0, :, :w], H[0, :, w:])
    np.testing.assert_array_equal(H[0, [0, 1, 3]], other[0, [0, 1, 3]])


@pytest.mark.catalog("LM-16")
def test_the_same_word_has_another_vector_in_another_context(small):
    one, other = small.layer_vectors("the cat"), small.layer_vectors("a cat")
    np.testing.assert_array_equal(one[0, 1], other[0, 1])
    assert np.abs(one[1:, 1] - other[1:, 1]).max() > 1e-4


@pytest.mark.catalog("LM-16")
def test_words_never_seen_have_vectors_of_their_own(small):
    seen = {word for text in TEXTS for word in text.split()}
    assert not {"catfish", "zebra", "日本", "naïve"} & seen
    Z = small.transform(["catfish", "zebra", "日本", "naïve", "cat"])
    assert np.isfinite(Z).all()
    apart = np.abs(Z[:, None] - Z[None]).max(axis=2) + np.eye(5)
    assert apart.min() > 1e-4
    # A longer word than any is read by its first bytes.
    assert np.isfinite(small.transform(["x" * 1000])).all()


@pytest.mark.catalog("LM-16")
def test_shares_are_on_the_simplex_and_vectors_are_that_mixture(small):
    assert small.layer_weights_.tolist() == pytest.approx([1 / 3] * 3)
    told = clone(small).fit(TEXTS, ["cat", "dog"] * 25)
    for model in (small, told):
        s = model.layer_weights_
        assert s.min() >= 0 and math.fsum(s) == pytest.approx(1, abs=1e-15)
        H = model.layer_vectors("the cat sat")
        mixed = sum(s[j] * H[j].mean(axis=0) for j in range(3))
        np.testing.assert_allclose(
            model.transform(["the cat sat"])[0], mixed, atol=1e-14
        )
    assert told.layer_weights_.tolist() != small.layer_weights_.tolist()


@pytest.mark.catalog("LM-16")
def test_training_gives_the_largest_share_to_the_informative_layer():
    rng = np.random.default_rng(0)
    H = rng.normal(size=(3, 400, 6))
    Y = H[1] @ rng.normal(size=(6, 2))
    s = _best_shares(H, Y)
    assert s.sum() == pytest.approx(1) and s.argmax() == 1 and s[1] > 0.8


@pytest.mark.catalog("LM-16")
def test_both_neighbours_are_learnt():
    """Words alternate, so that each is known from the one before and the one after."""
    texts = ["tick tock " * 6, "tock tick " * 6] * 10
    options = {**SMALL, "max_iter": 150, "learning_rate": 0.01}
    model = CharacterEncoder(**options).fit(texts)
    # One that does not know its neighbour costs log 2.
    assert model.history_["validation_loss"][0] > 0.5
    assert model.history_["validation_loss"][-1] < math.log(2) / 2


def test_padding_changes_no_state():
    net = CharacterReader(10, width=8).eval()
    words = symbols(["one", "two", "threethree"], 24)
    texts = torch.tensor([[0, 1, 2], [2, 0, 0]])
    with torch.no_grad():
        both = net(words, texts, torch.tensor([3, 1]))
        alone = net(words[2:], torch.tensor([[0]]), torch.tensor([1]))
    for a, b in zip(both, alone, strict=True):
        torch.testing.assert_close(a[1, :1], b[0])


def test_a_run_that_was_cut_off_goes_on_bit_for_bit(tmp_path, monkeypatch):
    class Stopped(Exception):
        pass

    model = CharacterEncoder(**{**SMALL, "max_iter": 30})
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


def test_a_character_encoder_precedes_a_classifier_or_regressor(small):
    y = np.array(["cat", "dog"] * 25)
    pipeline = make_pipeline(clone(small), LogisticRegression())
    assert pipeline.fit(TEXTS, y).score(TEXTS, y) == 1.0
    numbers = np.where(y == "cat", 1.5, -2.0) + np.linspace(0, 0.1, 50)
    fitted = make_pipeline(clone(small), Ridge(0.01)).fit(TEXTS, numbers)
    assert fitted.score(TEXTS, numbers) > 0.9


def test_a_file_brings_back_the_same_vectors(small, tmp_path):
    small.save(tmp_path / "model.certus")
    again = certus.load(tmp_path / "model.certus")
    np.testing.assert_array_equal(
        again.transform(TEXTS[:3]), small.transform(TEXTS[:3])
    )
    assert again.get_params() == small.get_params()


def test_changed_shares_are_found(small):
    assert certus.certify(small, TEXTS)["layer_shares"].met
    model = clone(small).fit(TEXTS)
    model.layer_weights_ = np.array([0.5, 0.6, -0.1])
    found = certus.certify(model, TEXTS)
    assert found["layer_shares"].met is False and found.met is False
    assert found["mixed"].met
