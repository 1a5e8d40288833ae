"""Pictures in folders: subfolders are classes, and damaged folders are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from certus import config_context
from certus.generative import (
    Diffusion,
    GenerativeAdversarial,
    NormalizingFlow,
    VariationalAutoencoder,
)

QUICK = {"hidden_layer_sizes": (16,), "max_iter": 20, "random_state": 0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty dark and thirty light pictures of 4 × 4 grey pixels."""
    rng = np.random.default_rng(0)
    for name, grey, n in (("dark", 40, 20), ("light", 200, 30)):
        (tmp_path / name).mkdir()
        for i in range(n):
            pixels = (grey + rng.integers(-20, 20, (4, 4))).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i:02d}.png")
    return tmp_path


@pytest.fixture(autouse=True)
def without_certificates():
    with config_context(certify="never"):
        yield


@pytest.mark.parametrize("cls", [Diffusion, VariationalAutoencoder])
def test_subfolders_are_classes(cls: type, folder: Path) -> None:
    model = cls(**QUICK).fit(folder)
    assert model.classes_.tolist() == ["dark", "light"] and model.shape_ == (4, 4)
    np.testing.assert_allclose(model.class_prior_, [0.4, 0.6])
    X, y = model.sample(6, y="light", random_state=0)
    assert X.shape == (6, 4, 4) and set(y) == {"light"}
    both = sorted(folder.rglob("*.png"))
    labels = [path.parent.name for path in both]
    same = cls(**QUICK).fit([str(path) for path in both], labels)
    np.testing.assert_array_equal(
        same.sample(3, y="dark", random_state=1)[0],
        model.sample(3, y="dark", random_state=1)[0],
    )


def test_labels_that_are_passed_go_first(folder: Path) -> None:
    y = np.arange(50) % 3
    model = GenerativeAdversarial(**QUICK).fit(folder, y)
    assert model.classes_.tolist() == [0, 1, 2]


def test_a_folder_without_subfolders_has_no_classes(folder: Path) -> None:
    model = Diffusion(**QUICK).fit(folder / "light")
    assert not hasattr(model, "classes_")
    assert model.sample(2, random_state=0).shape == (2, 4, 4)
    flow = NormalizingFlow(max_iter=3, random_state=0).fit(folder)  # has no classes
    assert flow.sample(2, random_state=0).shape == (2, 4, 4)


def test_folders_that_hold_no_pictures_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises((ValueError, OSError)):
            Diffusion(**QUICK).fit(path)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG no picture")
    with pytest.raises(ValueError, match=r"broken\.png"):
        Diffusion(**QUICK).fit(tmp_path)


def test_pictures_of_unequal_sizes_are_refused(folder: Path) -> None:
    Image.fromarray(np.zeros((5, 4), np.uint8)).save(folder / "dark" / "odd.png")
    with pytest.raises(ValueError, match=r"odd\.png"):
        Diffusion(**QUICK).fit(folder)
