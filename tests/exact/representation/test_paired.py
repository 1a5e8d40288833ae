"""Pairs of two kinds: the loss at the start, matching, and classes without labels."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import certus
from certus.representation import PairedEncoder, retrieval
from certus.representation.paired import PairInputs, _same

pytestmark = pytest.mark.filterwarnings("ignore:PairedEncoder. collapsed")
X, Y = load_digits(n_class=5, return_X_y=True)
NAMES = np.array(["zero", "one", "two", "three", "four"])
TEXTS = [NAMES[k] for k in Y]


@pytest.fixture(scope="module")
def clip():
    model = PairedEncoder(
        32,
        image_shape=(8, 8),
        max_iter=60,
        batch_size=64,
        validation_fraction=0.3,
        random_state=0,
    )
    return model.fit(X[:600], TEXTS[:600])


@pytest.mark.catalog("SSL-11")
def test_random_towers_have_a_loss_near_log_b():
    model = PairedEncoder(
        16, temperature=1.0, image_shape=(8, 8), max_iter=1, learning_rate=1e-9,
        batch_size=64, random_state=0, validation_fraction=0.0,
    )  # fmt: skip
    model.fit(X[:64], [f"number {i}" for i in range(64)])
    claim = model.certificate_["match_loss"]
    assert claim.value == pytest.approx(np.log(64), rel=0.05)
    assert f"{np.log(64):.3f} = log 64" in claim.detail
    # The first loss of a run with these weights is that of training.
    assert model.history_["loss"][0] == pytest.approx(claim.value, rel=1e-4)


def test_images_of_one_pixel_are_paired():
    pixels = np.random.default_rng(0).random((40, 1, 1))
    words = np.where(pixels[:, 0, 0] > 0.5, "light", "dark")
    model = PairedEncoder(4, max_iter=60, random_state=0).fit(pixels, words)
    assert model.transform(pixels).shape == (40, 4)
    S = model.similarity(np.array([[[0.0]], [[1.0]]]), ["dark", "light"])
    assert S.argmax(axis=1).tolist() == [0, 1]
    with pytest.raises(ValueError, match="All images of X are equal"):
        PairedEncoder(4, max_iter=5).fit(np.ones((40, 1, 1)), words)


@pytest.mark.catalog("SSL-11")
def test_partners_are_nearest_after_training(clip):
    S = clip.similarity(X[600:], NAMES)
    own = S[np.arange(len(S)), Y[600:]]
    others = np.where(np.arange(5) == Y[600:, None], -np.inf, S).max(axis=1)
    assert (own > others).mean() > 0.9


@pytest.mark.catalog("SSL-11")
def test_images_are_classified_by_texts_and_texts_find_images(clip):
    found = clip.nearest(X[600:], NAMES)
    assert (found == Y[600:]).mean() > 0.9
    A, B = clip.transform(X[600:]), clip.transform_second(NAMES)
    there = retrieval(A, B, matches=Y[600:])
    assert there.recall == (found == Y[600:]).mean()
    low, high = there.interval
    assert 0.85 < low < there.recall < high and there.chance == pytest.approx(0.2)
    # The other way round: the image nearest to each text has its label.
    back = (B @ A.T).argmax(axis=1)
    assert (Y[600:][back] == np.arange(5)).all()
    assert clip.certificate_["mutual_information"].met


def test_any_two_kinds_go_together():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 3))
    waves = [r[0] * np.sin(np.arange(4 + i % 5)) + r[1] for i, r in enumerate(rows)]
    model = PairedEncoder(8, max_iter=5, batch_size=16, random_state=0)
    model.fit(waves, rows)
    kinds = model.inputs_["kind"], model.second_inputs_["kind"]
    assert kinds == ("sequences", "rows")
    assert model.transform(waves[:3]).shape == model.transform_second(rows[:3]).shape
    model.fit(rows, X[:80].reshape(-1, 8, 8))
    assert model.second_inputs_["kind"] == "images"
    lengths = np.linalg.norm(model.transform_second(X[:9].reshape(-1, 8, 8)), axis=1)
    assert lengths == pytest.approx(np.ones(9))


def test_equal_second_sides_share_a_number():
    assert _same(["ab", "c", "ab"]).tolist() == [0, 1, 0]
    assert _same([np.array([1, 2]), np.array([1]), np.array([1, 2])])[2] == 0
    rows = PairInputs([(torch.ones(1),)] * 3, [(torch.ones(1),)] * 3, _same("aba"))
    assert len(rows) == 3 and rows[2][-1].item() == 0


def test_a_model_file_and_a_resumed_run_are_the_same(tmp_path, clip):
    again = certus.load(clip.save(tmp_path / "pair.certus"))
    assert np.array_equal(again.similarity(X[:5], NAMES), clip.similarity(X[:5], NAMES))
    assert again.temperature_ == clip.temperature_
    given = {"image_shape": (8, 8), "max_iter": 20, "batch_size": 16, "random_state": 0}
    whole = PairedEncoder(8, **given).fit(X[:64], TEXTS[:64])
    folder = tmp_path / "run"
    part = PairedEncoder(8, **given, checkpoint=folder, max_time=1e-9)
    with pytest.warns(certus.base.UncertifiedWarning, match="max_time"):
        part.fit(X[:64], TEXTS[:64])
    resumed = PairedEncoder(8, **given, checkpoint=folder).fit(X[:64], TEXTS[:64])
    assert np.array_equal(whole.transform(X[:9]), resumed.transform(X[:9]))
    assert whole.temperature_ == resumed.temperature_


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (X[:30], TEXTS[:29], "same number of rows"),
        (X[:30], None, "two sides"),
        (X[:30], ["one"] * 30, "differ"),
        (X[:30], np.full((30, 2), np.nan), "NaN"),
        (np.ones((30, 4)), TEXTS[:30], "equal"),
    ],
)
def test_pairs_that_cannot_be_learnt_are_refused(first, second, text):
    with pytest.raises(ValueError, match=text):
        PairedEncoder(4, max_iter=1).fit(first, second)


@pytest.mark.catalog("LM-25")
def test_one_model_reads_images_and_texts(clip):
    # How GPT-4 reads images is not published; that one model takes both is all there
    # is to show. An image of a digit finds its name, and a name its images.
    kinds = clip.inputs_["kind"], clip.second_inputs_["kind"]
    assert kinds == ("images", "sequences")
    new = 600 + np.flatnonzero(np.isin(Y[600:], (0, 4)))
    both = clip.similarity(X[new], ["zero", "four"])
    assert len(new) > 60 and both.shape == (len(new), 2)
    assert (np.array([0, 4])[both.argmax(axis=1)] == Y[new]).mean() > 0.9
    assert Y[new[both.argmax(axis=0)]].tolist() == [0, 4]
    # Both inputs count: the texts in another order give the scores in that order.
    turned = clip.similarity(X[new], ["four", "zero"])
    np.testing.assert_allclose(turned, both[:, ::-1], rtol=1e-5, atol=1e-6)
