"""Images as they come: folders, broken files, unequal sizes, one image, no colour."""

import numpy as np
import pytest
import torch
from PIL import Image

import certus
from certus.neural_network import ConvNetClassifier, read_images

RNG = np.random.default_rng(0)
QUICK = {"max_iter": 2, "random_state": 0}


def write(path, shape=(6, 6), mode="L", level=None):
    """A file of random pixels, or of one grey."""
    path.parent.mkdir(parents=True, exist_ok=True)
    full = shape if mode in ("L", "1") else (*shape, len(mode))
    pixels = RNG.integers(0, 256, full) if level is None else np.full(full, level)
    Image.fromarray(pixels.astype(np.uint8), mode).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    for i in range(8):
        write(tmp_path / "dark" / f"{i}.png", level=i)
        write(tmp_path / "light" / f"{i}.png", level=240 + i)
    return tmp_path


def test_a_folder_is_fitted_predicted_and_scored(folder, tmp_path):
    fit = ConvNetClassifier(max_iter=20, random_state=0).fit(str(folder))
    assert fit.classes_.tolist() == ["dark", "light"]
    assert fit.image_shape_ == (1, 6, 6)
    assert fit.score(folder) == 1.0
    paths = sorted((folder / "light").iterdir())
    assert set(fit.predict(paths)) == {"light"}
    assert set(fit.predict([str(p) for p in paths])) == {"light"}
    assert fit.predict(str(paths[0])).tolist() == ["light"]
    X, y = read_images(folder)
    checked = certus.certify(fit, X, y)
    assert checked["training_loss"].value == pytest.approx(
        fit.certificate_["training_loss"].value
    )
    back = certus.load(fit.save(tmp_path / "m.certus"))
    np.testing.assert_array_equal(back.predict(folder), fit.predict(folder))
    held = ConvNetClassifier(**QUICK).fit(folder, X_val=folder)
    assert len(held.history_["validation_score"]) == 2


def test_files_that_are_not_images_are_ignored(folder):
    (folder / "dark" / "notes.txt").write_text("none")
    (folder / "dark" / ".hidden.png").write_text("none")
    (folder / ".git").mkdir()
    X, y = read_images(folder)
    assert X.shape == (16, 6, 6)
    assert X.dtype == np.uint8
    assert y.tolist() == ["dark"] * 8 + ["light"] * 8


def test_grey_and_coloured_files_are_all_read_in_colour(tmp_path):
    write(tmp_path / "a" / "1.png", mode="RGB")
    write(tmp_path / "b" / "1.png", level=100)
    write(tmp_path / "b" / "2.png", mode="RGBA")
    X, _ = read_images(tmp_path)
    assert X.shape == (3, 6, 6, 3)
    np.testing.assert_array_equal(X[1], 100)
    grey, _ = read_images(tmp_path, colour=False)
    assert grey.shape == (3, 6, 6)
    wanted = np.asarray(Image.open(tmp_path / "a" / "1.png").convert("L"))
    assert np.abs(grey[0].astype(int) - wanted).max() <= 1


def test_deep_greys_are_read_as_bytes(tmp_path):
    deep = np.array([[0, 65535], [257, 2 * 257]], dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "1.png")
    X, y = read_images(tmp_path)
    assert X.tolist() == [[[0, 255], [1, 2]]]
    assert y is None


def test_unequal_sizes_are_refused_or_resized(tmp_path):
    write(tmp_path / "a" / "small.png", level=50)
    write(tmp_path / "b" / "wide.png", shape=(6, 9), level=50)
    with pytest.raises(ValueError, match=r"6 × 6 \(small.png\) and 6 × 9 \(wide.png\)"):
        ConvNetClassifier(**QUICK).fit(tmp_path)
    X, _ = read_images(tmp_path, image_shape=(8, 7))
    np.testing.assert_array_equal(X, np.full((2, 8, 7), 50))  # a grey stays itself
    fit = ConvNetClassifier(image_shape=(8, 7), **QUICK).fit(tmp_path)
    assert fit.image_shape_ == (1, 8, 7)
    other = write(tmp_path / "c.png", shape=(30, 20))
    assert fit.predict([other]).shape == (1,)


def test_lists_of_unequal_arrays():
    images = [RNG.normal(size=(5 + i % 2, 6, 3)) for i in range(8)]
    y = np.arange(8) % 2
    with pytest.raises(ValueError, match="different sizes: 5 × 6"):
        ConvNetClassifier(**QUICK).fit(images, y)
    fit = ConvNetClassifier(image_shape=(6, 6), **QUICK).fit(images, y)
    assert fit.image_shape_ == (3, 6, 6)
    boxed = np.empty(8, dtype=object)
    boxed[:] = images
    np.testing.assert_array_equal(fit.predict_proba(boxed), fit.predict_proba(images))
    mixed = [images[0], images[0][:, :, 0]]
    with pytest.raises(ValueError, match="has 3 channels, but number 1 has 1"):
        fit.predict(mixed)


def test_resizing_is_that_of_pillow():
    X = RNG.integers(0, 256, (1, 20, 30)).astype(np.uint8)
    fit = ConvNetClassifier(image_shape=(7, 11), **QUICK)
    found = fit._read_X(np.concatenate([X, X]), reset=True)[0, 0]
    wanted = Image.fromarray(X[0]).resize((11, 7), Image.Resampling.BILINEAR)
    assert np.abs(found.astype(int) - np.asarray(wanted)).max() <= 1


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda p: p / "nowhere", FileNotFoundError, "There is no folder"),
        (lambda p: p, ValueError, "holds no images"),
        (lambda p: (write(p / "1.png"), p)[1], ValueError, "y is missing"),
        (lambda p: [p / "1.png"], FileNotFoundError, "There is no file"),
        (
            lambda p: ((p / "a").mkdir(), write(p / "b" / "1.png"), p)[2],
            ValueError,
            "subfolder .*a' holds no images",
        ),
        (
            lambda p: (write(p / "a" / "1.png"), write(p / "2.png"), p)[2],
            ValueError,
            "both subfolders and images",
        ),
        (
            lambda p: (write(p / "a" / "1.png"), p)[1],
            ValueError,
            "one class",
        ),
    ],
)
def test_odd_folders_raise_one_clear_error(make, error, sentence, tmp_path):
    with pytest.raises(error, match=sentence):
        ConvNetClassifier(**QUICK).fit(make(tmp_path))


@pytest.mark.parametrize("content", [b"", b"no image at all", None])
def test_a_broken_file_is_named(folder, content):
    broken = folder / "light" / "3.png"
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(ValueError, match=r"3.png' cannot be read as an image"):
        ConvNetClassifier(**QUICK).fit(folder)


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        (np.full((4, 5, 5), np.nan), "contains NaN"),
        (np.full((4, 5, 5), np.inf), "contains infinity"),
        (np.zeros((0, 5, 5)), "no pixels"),
        (np.zeros((4, 0, 5)), "no pixels"),
        (np.zeros((4, 2, 2, 2, 2)), "axes"),
        (np.zeros((4, 5, 5), dtype=complex), "as numbers"),
        (np.full((4, 5, 5), "a"), "as numbers"),
        (np.zeros((3, 5, 5)), "inconsistent numbers of samples"),
        ([], "0 sample|empty|array"),
    ],
)
def test_odd_arrays_raise_one_clear_error(X, sentence):
    with pytest.raises(ValueError, match=sentence):
        ConvNetClassifier(**QUICK).fit(X, [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"image_shape": (4, 4)}, "cannot be images of 4 × 4"),
        ({"image_shape": (0, 25)}, "image_shape must be"),
        ({"image_shape": "large"}, "image_shape must be"),
        ({"image_shape": (5, 5), "module": "alexnet"}, "at least 63 × 63"),
        ({"module": "vgg"}, "module must be one of"),
        ({"channels": "middle"}, "channels must be one of"),
        ({"module": torch.nn.Linear(3, 2)}, "fails on inputs of shape"),
    ],
)
def test_wrong_parameters_raise_one_clear_error(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        ConvNetClassifier(**QUICK, **options).fit(np.eye(4, 25), [0, 1, 0, 1])


def test_one_image_a_class_and_one_to_predict():
    X, y = RNG.normal(size=(10, 6, 6)), np.arange(10)
    fit = ConvNetClassifier(**QUICK).fit(X, y)
    assert fit.predict(X[:1]).shape == (1,)
    assert fit.predict_proba(X[:1]).shape == (1, 10)
    with pytest.raises(ValueError, match="one class"):
        ConvNetClassifier(**QUICK).fit(X[:1], [0])


@pytest.mark.parametrize("value", [0.0, 7.0, 1e30])
def test_constant_images_give_the_shares_of_the_classes(value):
    X, y = np.full((40, 5, 5), value), np.repeat([0, 1], [30, 10])
    fit = ConvNetClassifier(max_iter=60, label_smoothing=0.0, random_state=0).fit(X, y)
    assert fit.scale_ == 1.0
    np.testing.assert_allclose(fit.predict_proba(X[:1])[0], [0.75, 0.25], atol=0.05)


def test_other_sizes_and_scales_are_noticed():
    X = RNG.integers(0, 256, (12, 6, 6)).astype(np.uint8)
    fit = ConvNetClassifier(**QUICK).fit(X, np.arange(12) % 2)
    with pytest.raises(
        ValueError, match="7 × 6 pixels in 1 channel, but those of the fit"
    ):
        fit.predict(np.zeros((2, 7, 6)))
    with pytest.raises(ValueError, match="from 0 to 255, but these are from 0 to 1"):
        fit.predict(X / 255)
    np.testing.assert_array_equal(fit.predict(X.astype(float)), fit.predict(X))
    shares = ConvNetClassifier(**QUICK).fit(X / 255, np.arange(12) % 2)
    with pytest.raises(ValueError, match="from 0 to 1, but these are from 0 to 255"):
        shares.predict(X)


def test_large_images_pass_in_small_blocks():
    X = RNG.integers(0, 256, (6, 70, 64)).astype(np.uint8)
    fit = ConvNetClassifier("resnet", **QUICK).fit(X, np.arange(6) % 2)
    rows = fit._rows(fit._read_X(X, reset=False), fit.module_)
    assert rows.together == (1 << 18) // (70 * 64)
    assert fit.predict(X).shape == (6,)


def test_flattened_colours_are_asked_about():
    X = np.random.default_rng(0).normal(size=(12, 192))
    y = np.arange(12) % 2
    with pytest.raises(ValueError, match=r"image_shape=\(3, 8, 8\) or \(8, 8, 3\)"):
        ConvNetClassifier().fit(X, y)
    with certus.config_context(on_uncertified="ignore"):
        for shape, sizes in {(8, 8, 3): (3, 8, 8), (1, 192): (1, 1, 192)}.items():
            model = ConvNetClassifier(image_shape=shape, max_iter=1).fit(X, y)
            assert model.image_shape_ == sizes


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i2", "f8"])
def test_odd_strides_and_byte_orders(dtype):
    X = (100 * RNG.random((8, 1, 6, 6))).astype(dtype)
    y = np.arange(8) % 2
    plain = ConvNetClassifier(**QUICK).fit(np.array(X.astype(dtype[-2:])), y)
    odd = ConvNetClassifier(**QUICK).fit(X[:, ::-1], y)
    assert np.allclose(plain.predict_proba(X[:, ::-1]), odd.predict_proba(X))


def test_images_that_overflow_get_no_class():
    X, y = RNG.normal(size=(8, 6, 6)), np.arange(8) % 2
    model = ConvNetClassifier(**QUICK).fit(X, y)
    with pytest.raises(ValueError, match="infinity for row 0 of X"):
        model.predict(1e300 * X)


def test_an_object_that_is_not_a_network_is_refused():
    X, y = RNG.normal(size=(8, 6, 6)), np.arange(8) % 2
    model = ConvNetClassifier(lambda sizes, k: None, **QUICK)
    with pytest.raises(TypeError, match="must return an nn"):
        model.fit(X, y)


def test_a_single_image_is_not_taken_for_a_row_of_images():
    X = RNG.integers(0, 256, (12, 6, 6)).astype(np.uint8)
    with certus.config_context(on_uncertified="ignore"):
        model = ConvNetClassifier(**QUICK).fit(X, np.arange(12) % 2)
    with pytest.raises(ValueError, match=r"pass a batch of images, X\[None\]"):
        model.predict(X[0])
    assert model.predict(X[0][None]).shape == (1,)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_files_whose_pixels_are_not_bytes_are_refused(dtype, tmp_path):
    pixels = (1000 * RNG.random((6, 6))).astype(dtype)
    Image.fromarray(pixels).save(tmp_path / "deep.tiff")
    with pytest.raises(ValueError, match="not bytes; pass them as an array"):
        read_images(tmp_path)


@pytest.mark.parametrize("source", [None, 5, b"folder"])
def test_paths_that_name_no_file_are_refused(source):
    with pytest.raises(TypeError, match="Pass a folder or a list of files"):
        read_images(source)
