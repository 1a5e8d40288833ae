"""Masks, patches and colours under bad input, and with planted faults."""

import numpy as np
import pytest

import certus
from certus.representation import (
    Colorizer,
    MaskedAutoencoder,
    PatchPosition,
    colours,
    masked,
    patches,
)

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
RNG = np.random.default_rng(0)
SMALL = {"max_iter": 4, "hidden_layer_sizes": (8,), "random_state": 0}
IMAGES = RNG.random((30, 6, 6))
PAINTED = RNG.random((30, 6, 6, 3))
ROWS = RNG.normal(size=(30, 5))
MAKERS = {
    "masked": lambda **more: (MaskedAutoencoder(4, **SMALL | more), IMAGES),
    "table": lambda **more: (MaskedAutoencoder(4, **SMALL | more), ROWS),
    "patches": lambda **more: (PatchPosition(4, **SMALL | more), IMAGES),
    "colours": lambda **more: (Colorizer(4, **SMALL | more), PAINTED),
}
every = pytest.mark.parametrize("name", list(MAKERS))


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_holes_are_refused(name, bad):
    model, X = MAKERS[name]()
    holed = X.copy()
    holed[1] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.fit(holed)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.fit(X).transform(holed)


@every
def test_one_row_equal_rows_and_other_shapes_are_refused(name):
    model, X = MAKERS[name]()
    with pytest.raises(ValueError, match=r"at least 2|minimum of 2"):
        model.fit(X[:1])
    with pytest.raises(ValueError, match="equal"):
        model.fit(np.repeat(X[:1], 5, axis=0))
    model.fit(X)
    with pytest.raises(ValueError, match=r"pixels|columns|features|channels"):
        model.transform(X[:, :4])


@every
def test_batches_of_one_and_rows_that_are_few(name):
    model, X = MAKERS[name](batch_size=1, max_iter=3)
    model.fit(X[:4])
    assert model.transform(X[:1]).shape == (1, 4) and not len(model.held_out_)
    share = {"patches": "position_accuracy", "colours": "painted"}.get(name, "restored")
    claim = model.certificate_[share]
    assert claim.strength.value == "refused" and "held out" in claim.detail


def test_images_of_one_pixel():
    pixels = RNG.random((30, 1, 1))
    model = MaskedAutoencoder(2, **SMALL).fit(pixels)
    assert model.transform(pixels).shape == (30, 2)
    filled = model.reconstruct(pixels, np.ones((30, 1, 1), dtype=bool))
    assert np.ptp(filled) < 1e-6  # nothing is visible
    tones = RNG.random((30, 1, 1, 3))
    model = Colorizer(2, channels="last", **SMALL).fit(tones)
    assert model.colorize(tones).shape == tones.shape
    with pytest.raises(ValueError, match="room for 3 × 3 patches"):
        PatchPosition(2, **SMALL).fit(pixels)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: MaskedAutoencoder(mask_fraction=0.0).fit(ROWS),
            "mask_fraction must be",
        ),
        (
            lambda: MaskedAutoencoder(mask_fraction=1.5).fit(ROWS),
            "mask_fraction must be",
        ),
        (lambda: MaskedAutoencoder(patch_size=0).fit(IMAGES), "patch_size must be"),
        (lambda: MaskedAutoencoder(0).fit(ROWS), "n_components must be"),
        (lambda: MaskedAutoencoder(kind="sound").fit(ROWS), "kind must be"),
        (lambda: MaskedAutoencoder(max_iter=0).fit(ROWS), "max_iter must be"),
        (lambda: PatchPosition(patch_size=3).fit(IMAGES), "room for 3 × 3 patches"),
        (lambda: PatchPosition().fit(ROWS[:, :2]), "room for 3 × 3 patches"),
        (lambda: Colorizer(painter_width=0).fit(PAINTED), "painter_width must be"),
        (lambda: Colorizer().fit(IMAGES), "3 channels"),
        (lambda: Colorizer().fit(np.repeat(IMAGES[..., None], 3, 3)), "are grey"),
    ],
)
def test_bad_arguments_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_bad_masks_and_patches_are_named():
    model = MaskedAutoencoder(4, **SMALL).fit(IMAGES)
    with pytest.raises(ValueError, match="hidden must have the shape"):
        model.reconstruct(IMAGES, np.ones((30, 5, 6), dtype=bool))
    model = MaskedAutoencoder(4, kind="sequences", **SMALL)
    lines = [RNG.normal(size=(n, 1)) for n in (3, 4, 5, 6)]
    model.fit(lines)
    with pytest.raises(ValueError, match="one list of steps"):
        model.reconstruct(lines, [np.ones(2, dtype=bool)] * 4)
    model = PatchPosition(4, **SMALL).fit(IMAGES)
    with pytest.raises(ValueError, match="first must have the shape"):
        model.predict_position(IMAGES[:3], IMAGES[:3])
    one = np.zeros((2, 1, 1, 1))
    with pytest.raises(ValueError, match="same number of patches"):
        model.predict_position(one, one[:1])
    with pytest.raises(ValueError, match="NaN"):
        model.predict_position(one * np.nan, one)


# -- planted faults ---------------------------------------------------------------


def test_filling_with_hidden_values_is_found(monkeypatch):
    right = masked._filled_in

    def leaking(encoder, decoder, x, hidden):
        return 0.5 * right(encoder, decoder, x, hidden) + 0.5 * x[0]

    model = MaskedAutoencoder(4, **SMALL).fit(IMAGES)
    assert model.certificate_["no_leak"].met
    monkeypatch.setattr(masked, "_filled_in", leaking)
    for X in (IMAGES, ROWS):
        found = MaskedAutoencoder(4, **SMALL).fit(X).certificate_
        assert found["no_leak"].met is False and found.met is False


def test_tokens_that_leak_are_found(monkeypatch):
    right = masked._filled_in

    texts = [list("abc" * n)[: n + 2] for n in range(1, 30)]
    assert MaskedAutoencoder(4, **SMALL).fit(texts).certificate_["no_leak"].met
    monkeypatch.setattr(
        masked, "_filled_in", lambda e, d, x, hidden: right(e, d, x, hidden & False)
    )
    found = MaskedAutoencoder(4, **SMALL).fit(texts).certificate_
    assert found["no_leak"].met is False


def test_a_solver_that_labels_directions_differently_is_found(monkeypatch):
    y, x = np.mgrid[:9, :9] - 4.0
    hills = np.exp(-(x**2 + y**2) / 20) + 0.3 * x + 0.1 * y
    X = hills + 0.02 * RNG.normal(size=(200, 9, 9))
    options = {"max_iter": 80, "batch_size": 64, "learning_rate": 0.01}
    options |= {"hidden_layer_sizes": (32,), "validation_fraction": 0.4}
    good = PatchPosition(8, random_state=0, **options).fit(X)
    assert good.certificate_["position_accuracy"].met
    right = patches.random_pairs

    def wrong(x, side):
        first, second, place = right(x, side)
        return first, second, (place + 1) % 8

    monkeypatch.setattr(patches, "random_pairs", wrong)
    bad = PatchPosition(8, random_state=0, **options).fit(X)
    assert bad.certificate_["position_accuracy"].met is False
    monkeypatch.setattr(patches, "random_pairs", right)
    # Swapped data: images upside down.
    turned = certus.certify(good, X[:, ::-1])["position_accuracy"].value
    assert turned < good.certificate_["position_accuracy"].value - 0.2


def test_invalid_colours_and_colours_that_change_grey_are_found(monkeypatch):
    model, new = Colorizer(4, **SMALL).fit(PAINTED), RNG.random((30, 6, 6, 3))
    right = colours.joined
    monkeypatch.setattr(colours, "joined", lambda grey, c: right(grey, c) + 0.1)
    with pytest.raises(ValueError, match="changes grey values"):
        certus.certify(model, new)
    monkeypatch.setattr(colours, "joined", lambda grey, c: right(grey, 50 + 9 * c))
    assert certus.certify(model, new)["painted"].met is False


@every
def test_changed_parameters_weights_and_dtypes(name, tmp_path):
    model, X = MAKERS[name]()
    model.fit(X)
    stated = model.certificate_.claims[0].value
    path = model.save(tmp_path / "m.certus")
    for part in model.part_names:
        forged = certus.load(path)
        for p in getattr(forged, f"{part}_").parameters():
            p.data.add_(0.3)
        assert certus.certify(forged, X).claims[0].value != pytest.approx(stated)
    same = model.transform(X.astype(np.float32))
    np.testing.assert_allclose(same, model.transform(X), atol=1e-4)
    forged = certus.load(path)
    if name == "patches":
        forged.patch_size_ = 5
        with pytest.raises(ValueError, match=r"fit into|shape"):
            certus.certify(forged, X)
    if name == "masked":
        forged.mask_fraction = 7.0
        with pytest.raises(ValueError, match="mask_fraction"):
            certus.certify(forged, X)
