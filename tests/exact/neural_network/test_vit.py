"""The classifier of images by a vision transformer."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import certus
from certus.neural_network import ViTClassifier
from certus.neural_network.modules import VisionTransformer, patchify

SMALL = {"n_layers": 2, "width": 32, "random_state": 0}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(n_class=4, return_X_y=True)
    return train_test_split(X.reshape(-1, 8, 8), y, random_state=0)


@pytest.fixture(scope="module")
def model(digits):
    X, _, y, _ = digits
    return ViTClassifier(max_iter=20, batch_size=32, **SMALL).fit(X, y)


@pytest.mark.catalog("TRF-22")
def test_a_vision_transformer_learns_digits(digits, model):
    _, X, _, y = digits
    assert model.score(X, y) > 0.95
    assert isinstance(model.module_, VisionTransformer)
    assert model.module_.grid == (4, 4)
    assert model.certificate_["training_loss"].value < 0.5
    rows = (X - model.mean_[0]) / model.scale_[0]
    z = model.module_(tensor(rows[:, None])).detach().numpy()
    np.testing.assert_array_equal(model.classes_[z.argmax(axis=1)], model.predict(X))


def tensor(x):
    import torch

    return torch.as_tensor(x, dtype=torch.float32)


@pytest.mark.catalog("TRF-22")
def test_the_loss_is_that_of_the_definition(digits, model):
    X, y = digits[1][:100], digits[3][:100]
    P = model.predict_proba(X)
    T = 0.95 * (y[:, None] == model.classes_) + 0.05 / 4
    by_hand = -(T * np.log(P)).sum(axis=1).mean()
    found = certus.certify(model, X, y)["training_loss"]
    assert found.value == pytest.approx(by_hand, rel=1e-4)


def test_what_patches_look_at_can_be_seen(digits, model):
    x = tensor(digits[1][:3, None])
    states, looks = model.module_.states(x, weights=True)
    assert states.shape == (3, 16, 32) and len(looks) == 2
    assert looks[0].shape == (3, 4, 16, 16)
    assert patchify(x, 2).shape == (3, 16, 4)


def test_all_forms_of_images_are_one(digits, model):
    _, X, _, _ = digits
    for form in (X.reshape(len(X), -1), X[:, None], X[..., None]):
        np.testing.assert_array_equal(model.predict(form), model.predict(X))


def test_sides_need_not_be_multiples_of_the_patch(digits):
    X, X_test, y, y_test = digits
    model = ViTClassifier(3, max_iter=8, **SMALL).fit(X, y)
    assert model.module_.grid == (3, 3)
    assert model.score(X_test, y_test) > 0.8
    colours = np.repeat(X[..., None], 3, axis=3)
    model = ViTClassifier((4, 2), max_iter=1, **SMALL).fit(colours, y)
    assert model.image_shape_ == (3, 8, 8) and model.module_.grid == (2, 4)


def test_a_vision_transformer_is_saved_whole(digits, model, tmp_path):
    again = certus.load(model.save(tmp_path / "vit.certus"))
    X = digits[1]
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_wrong_arguments_are_named(digits):
    X, _, y, _ = digits
    for options, said in (
        ({"patch_size": 0}, "patch_size must be a whole number above 0"),
        ({"patch_size": (2, 2, 2)}, "patch_size must be a number or a pair"),
        ({"width": 30}, "a multiple of heads"),
        ({"n_layers": 0}, "n_layers must be"),
        ({"dropout": 2.0}, "dropout must be"),
    ):
        with pytest.raises(ValueError, match=said):
            ViTClassifier(**options).fit(X, y)


@pytest.mark.slow
@pytest.mark.catalog("TRF-22")
def test_the_default_learns_all_ten_digits():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    model = ViTClassifier(augment="shift", random_state=0).fit(X, y)
    assert model.score(X_test, y_test) >= 0.96
