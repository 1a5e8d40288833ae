"""Convolutional networks, augmentation, and the classifier of images."""

import copy
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

import certus
from certus.neural_network import ConvNetClassifier, augment
from certus.neural_network.modules import (
    AlexNet,
    ConvNet,
    DenseBlock,
    DenseNet,
    LeNet,
    ResidualBlock,
    ResNet,
    count_parameters,
    receptive_field,
)

NETWORKS = ("auto", "lenet", "resnet", "densenet")


@pytest.fixture(scope="module")
def digits():
    return load_digits(n_class=4, return_X_y=True)


@pytest.fixture(scope="module")
def model(digits):
    return ConvNetClassifier(max_iter=4, random_state=0).fit(*digits)


# -- networks ---------------------------------------------------------------------


@pytest.mark.catalog("CNN-28")
def test_the_shapes_and_the_parameters_of_lenet():
    net, h = LeNet(), torch.zeros(1, 1, 32, 32)
    shapes = []
    for layer in net.features:
        h = layer(h)
        shapes.append(tuple(h.shape[1:]))
    assert [shapes[i] for i in (0, 2, 3, 5)] == [
        (6, 28, 28),
        (6, 14, 14),
        (16, 10, 10),
        (16, 5, 5),
    ]
    assert (net.c5.out_features, net.f6.out_features) == (120, 84)
    assert count_parameters(net) == 61_706
    assert LeNet(image_shape=(28, 28))(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert LeNet(3, (40, 36), 7)(torch.zeros(2, 3, 40, 36)).shape == (2, 7)


@pytest.mark.catalog("CNN-28")
def test_a_smaller_image_is_put_in_the_middle():
    small = torch.randn(1, 1, 28, 28)
    torch.manual_seed(0)
    a = LeNet()
    torch.manual_seed(0)
    b = LeNet(image_shape=(28, 28))
    padded = nn.functional.pad(small, (2, 2, 2, 2))
    torch.testing.assert_close(a(padded), b(small))


@pytest.mark.catalog("CNN-28")
def test_the_radial_output_is_a_squared_distance():
    net = LeNet(rbf=True).double()
    h, centres = torch.randn(3, 84).double(), net.output.centres.detach()
    wanted = torch.cdist(h, centres) ** 2
    torch.testing.assert_close(net.output(h).detach(), -wanted)
    x = torch.randn(3, 1, 32, 32).double()
    below = torch.tanh(net.f6(torch.tanh(net.c5(net.features(x).flatten(1)))))
    torch.testing.assert_close(net(x), -(torch.cdist(below, centres) ** 2))


@pytest.mark.catalog("CNN-28")
def test_lenet_learns_with_radial_outputs(digits):
    X, y = digits

    def network(sizes, k):
        return LeNet(sizes[0], sizes[1:], k, rbf=True)

    fit = ConvNetClassifier(network, max_iter=8, random_state=0).fit(X, y)
    assert fit.score(X, y) > 0.95
    scores = fit.module_(torch.zeros(1, 1, 8, 8))
    assert scores.shape == (1, 4) and (scores < 0).all()


@pytest.mark.catalog("CNN-29")
def test_alexnet_makes_55_of_224_with_padding_2():
    net = AlexNet(n_outputs=5, width=0.05)
    x = torch.zeros(1, 3, 224, 224)
    sizes = []
    h = x
    for layer in net.features:
        h = layer(h)
        sizes.append(h.shape[2])
    assert sizes == [55, 55, 27, 27, 27, 13, 13, 13, 13, 13, 13, 13, 6]
    assert nn.Conv2d(3, 2, 11, stride=4)(x).shape[2] == 54
    assert nn.Conv2d(3, 2, 11, 4)(torch.zeros(1, 3, 227, 227)).shape[2] == 55
    assert net(x).shape == (1, 5)
    with torch.device("meta"):
        assert AlexNet().features[0].out_channels == 96
        assert count_parameters(AlexNet()) == 62_378_344
    with pytest.raises(ValueError, match="at least 63 × 63"):
        AlexNet(1, (28, 28), 10)


@pytest.mark.catalog("CNN-30")
def test_a_residual_block_adds_to_its_input():
    block = ResidualBlock(4, 4).eval()
    x = torch.rand(2, 4, 5, 5)
    torch.testing.assert_close(block(x), torch.relu(x + block.body(x)))
    block.start_as_identity()
    torch.testing.assert_close(block(x), x)
    wider = ResidualBlock(4, 6, stride=2).eval()
    torch.testing.assert_close(wider(x), torch.relu(wider.skip(x) + wider.body(x)))
    plain = ResidualBlock(4, 4, residual=False).eval()
    torch.testing.assert_close(plain(x), torch.relu(plain.body(x)))


@pytest.mark.catalog("CNN-30")
def test_a_network_of_published_size_has_the_published_number_of_weights():
    with torch.device("meta"):
        net = ResNet(3, 1000, channels=(64, 128, 256, 512), blocks=2, large=True)
        assert count_parameters(net) == 11_689_512  # ResNet-18
        h = net.features(torch.zeros(1, 3, 224, 224))
    assert h.shape == (1, 512, 7, 7)
    convolutions = [p for p in net.modules() if isinstance(p, nn.Conv2d)]
    assert sum(p.kernel_size != (1, 1) for p in convolutions) + 1 == 18


@pytest.mark.slow
@pytest.mark.catalog("CNN-30")
def test_depth_hurts_a_plain_network_and_helps_a_residual_one():
    X, y = (v[:900] for v in load_digits(return_X_y=True))

    def loss(residual, blocks, seed):
        def network(sizes, k):
            return ResNet(1, k, channels=(8,), blocks=blocks, residual=residual)

        settings = {"learning_rate": 0.01, "batch_size": 32, "label_smoothing": 0.0}
        fit = ConvNetClassifier(network, max_iter=5, random_state=seed, **settings)
        return fit.fit(X, y).history_["loss"][-1]  # on what it is trained on

    for seed in (0, 1):
        plain = [loss(False, blocks, seed) for blocks in (2, 16)]
        residual = [loss(True, blocks, seed) for blocks in (2, 16)]
        assert plain[1] > 1.3 * plain[0]
        assert residual[1] < 0.7 * residual[0]
        assert residual[1] < 0.5 * plain[1]


@pytest.mark.catalog("CNN-31")
def test_a_dense_block_puts_maps_side_by_side():
    block = DenseBlock(6, 4, 3)
    x = torch.randn(2, 6, 5, 5)
    out = block(x)
    assert out.shape == (2, 6 + 3 * 4, 5, 5)
    torch.testing.assert_close(out[:, :6], x)  # what went in is still there
    assert [layer[2].in_channels for layer in block.layers] == [6, 10, 14]
    net = DenseNet(1, 10, growth=4, n_layers=(2, 3, 1))
    # 8 + 2·4 = 16, halved 8, + 3·4 = 20, halved 10, + 4
    assert net.output.in_features == 14
    (g,) = torch.autograd.grad(
        net(torch.randn(2, 1, 8, 8)).sum(), net.features[0].weight
    )
    assert g.abs().sum() > 0


@pytest.mark.parametrize(
    "sizes", [(1, 8, 8), (3, 17, 9), (1, 1, 10), (1, 1, 1), (3, 96, 96)]
)
def test_networks_fit_any_image(sizes):
    x = torch.randn(2, *sizes)
    large = min(sizes[1:]) >= 96
    nets = [
        ConvNet(sizes[0], sizes[1:], 4),
        LeNet(sizes[0], sizes[1:], 4),
        ResNet(sizes[0], 4, large=large),
        DenseNet(sizes[0], 4, large=large),
    ]
    for net in nets:
        assert net.eval()(x).shape == (2, 4)
        again = type(net)(**net.config)
        again.load_state_dict(net.state_dict())
        torch.testing.assert_close(again.eval()(x), net(x))


@pytest.mark.catalog("CNN-18")
@pytest.mark.parametrize("make", [ResNet, DenseNet, LeNet])
def test_the_receptive_field_of_networks(make):
    size = 128
    net = make(1, (size, size)) if make is LeNet else make(1, 2)
    parts = [nn.Identity() if isinstance(p, nn.ReLU) else p for p in net.features]
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.ones_(part.weight)  # blocks begin as the identity
    x = torch.randn(1, 1, size, size, dtype=torch.float64, requires_grad=True)
    out = nn.Sequential(*parts).double().eval()(x)
    middle = out[0, :, out.shape[2] // 2, out.shape[3] // 2].sum()
    (g,) = torch.autograd.grad(middle, x)
    support = torch.nonzero(g[0, 0].any(dim=1)).ravel()
    assert int(support[-1] - support[0]) + 1 == receptive_field(net.features)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ResNet(1, 2, channels=()), "channels must be a list"),
        (lambda: ResNet(1, 2, channels=(4, 0)), "each of channels must be"),
        (lambda: ResNet(1, 2, blocks=0), "blocks must be a whole number"),
        (lambda: DenseNet(1, 2, n_layers=()), "n_layers must be a list"),
        (lambda: DenseNet(1, 2, growth=0), "growth must be a whole number"),
        (lambda: LeNet(1, (0, 8)), "height must be a whole number"),
        (lambda: ConvNet(1, 8, 2), r"image_shape must be \(height, width\)"),
    ],
)
def test_impossible_sizes_are_reported(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_an_image_is_normalised_by_itself():
    """No other image of the batch has a say."""
    net, x = ConvNet(1, (8, 8), 3), torch.randn(5, 1, 8, 8)
    torch.testing.assert_close(net(x)[:1], net(x[:1]))


# -- augmentation -----------------------------------------------------------------


@pytest.mark.catalog("NN-49")
def test_augmentations_do_what_they_are_named_for():
    g = torch.Generator().manual_seed(0)
    x = torch.rand(64, 3, 9, 9, dtype=torch.float64, generator=g)
    moved = augment.shift(x, 2, generator=g)
    places = {
        (a, b)
        for image, out in zip(x, moved)
        for a in range(-2, 3)
        for b in range(-2, 3)
        if torch.equal(out[:, 2:7, 2:7], image[:, 2 - a : 7 - a, 2 - b : 7 - b])
    }
    assert len(places) > 12  # whole pixels, up to two, drawn for each image
    quarter = torch.rand(1, 1, 9, 9, dtype=torch.float64)
    whole = torch.stack([torch.rot90(quarter[0], k, (1, 2)) for k in range(4)])
    turned = augment._warp(
        quarter, torch.tensor([[[0.0, -1.0], [1.0, 0.0]]], dtype=torch.float64)
    )
    assert min(float((turned - w).abs().max()) for w in whole[[1, 3]]) < 1e-12
    torch.testing.assert_close(augment.reflect(x, 1.0), x.flip(3))
    torch.testing.assert_close(augment.crop(x, 1.0), x)
    torch.testing.assert_close(augment.zoom(x, 0.0), x)
    flips = (augment.reflect(x, generator=g) != x).any(dim=(1, 2, 3)).sum()
    assert 16 < int(flips) < 48
    flat = torch.ones(4, 1, 6, 6)  # a constant image stays what it is
    for name in ("shift", "rotate", "zoom", "crop", "reflect"):
        torch.testing.assert_close(augment.AUGMENTATIONS[name](flat), flat)


@pytest.mark.catalog("NN-49")
def test_colours_change_along_the_ways_they_vary():
    way = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    x = torch.randn(200, 1, 4, 4, dtype=torch.float64) * way[:, None, None]
    change = (augment.pca_colour(x, 0.5) - x)[:, :, 0, 0]
    across = change - (change @ way)[:, None] * way / (way @ way)
    assert across.abs().max() < 1e-6
    assert float(change.norm(dim=1).square().mean()) == pytest.approx(
        0.25 * 5, rel=0.35
    )


@pytest.mark.catalog("NN-49")
def test_training_on_shifted_images_makes_predictions_more_invariant(digits):
    X, y = digits
    images = X.reshape(-1, 8, 8)
    moved = np.roll(images, 1, axis=2)
    change = {}
    for kind in (None, "shift"):
        fit = ConvNetClassifier(augment=kind, max_iter=6, random_state=0)
        fit.fit(images, y)
        gap = fit.predict_proba(moved) - fit.predict_proba(images)
        change[kind] = np.abs(gap).mean()
    assert change["shift"] < 0.7 * change[None]


def test_augmentations_are_named_listed_or_custom(digits):
    X, y = digits
    seen = []

    def own(x):
        seen.append(tuple(x.shape))
        return x

    options = {"max_iter": 1, "random_state": 0}
    ConvNetClassifier(augment=["shift", "rotate", own], **options).fit(X, y)
    assert seen[0] == (64, 1, 8, 8)
    with pytest.raises(ValueError, match="augment must be one of"):
        ConvNetClassifier(augment="blur", **options).fit(X, y)
    with pytest.raises(TypeError, match="a name, a function or a list"):
        ConvNetClassifier(augment=3, **options).fit(X, y)


# -- the classifier ---------------------------------------------------------------


@pytest.mark.catalog("CNN-26")
def test_digits_are_classified():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    fit = ConvNetClassifier(max_iter=6, random_state=0).fit(X, y)
    assert fit.score(X_test, y_test) > 0.95
    kinds = [type(part).__name__ for part in fit.module_.features]
    assert kinds[:4] == ["Conv2d", "MaxPool2d", "GroupNorm", "ReLU"]


@pytest.mark.slow
@pytest.mark.catalog("CNN-26")
def test_the_default_reaches_what_it_promises_on_digits():
    X, y = load_digits(return_X_y=True)
    scores = []
    for seed in range(3):
        parts = train_test_split(X, y, random_state=seed, stratify=y)
        fit = ConvNetClassifier(random_state=seed).fit(parts[0], parts[2])
        scores.append(fit.score(parts[1], parts[3]))
    assert np.median(scores) >= 0.985


def test_all_forms_of_the_same_images_are_one(digits, model):
    X, y = digits
    images = X.reshape(-1, 8, 8)
    forms = [images, images[..., None], images[:, None], list(images)]
    forms.append(torch.as_tensor(images))
    wanted = model.predict_proba(X)
    for form in forms:
        np.testing.assert_array_equal(model.predict_proba(form), wanted)
        again = clone(model).fit(form, y)
        assert again.image_shape_ == (1, 8, 8)
        np.testing.assert_allclose(again.predict_proba(X), wanted, atol=1e-6)


def test_channels_are_found_or_asked_for(digits):
    X, y = digits
    last = np.stack([X.reshape(-1, 8, 8)] * 3, axis=3) * [1.0, 2.0, 3.0]
    first = np.moveaxis(last, 3, 1)
    options = {"max_iter": 1, "random_state": 0}
    a = ConvNetClassifier(**options).fit(last, y)
    b = ConvNetClassifier(**options).fit(first, y)
    assert a.image_shape_ == b.image_shape_ == (3, 8, 8)
    np.testing.assert_allclose(a.predict_proba(last), b.predict_proba(first), atol=1e-6)
    np.testing.assert_allclose(a.mean_ / a.mean_[0], [1, 2, 3])
    rows = last.reshape(len(last), -1)
    c = ConvNetClassifier(image_shape=(8, 8, 3), **options).fit(rows, y)
    np.testing.assert_array_equal(c.predict_proba(rows), a.predict_proba(last))
    np.testing.assert_array_equal(a.predict_proba(rows), a.predict_proba(last))
    square = np.zeros((4, 3, 5, 3))
    with pytest.raises(ValueError, match="channels first or last"):
        ConvNetClassifier(**options).fit(square, [0, 1, 0, 1])
    told = ConvNetClassifier(channels="first", **options).fit(square, [0, 1, 0, 1])
    assert told.image_shape_ == (3, 5, 3)


def handed(fitted, X):
    """What the network is given of these rows."""
    images = fitted._read_X(X, reset=False)
    return fitted._rows(images, fitted.module_)[:][0].numpy()


def assert_first_losses_agree(model, X, Z, y):
    """The losses before the first step, on the same rows written in two ways."""
    one = clone(model).set_params(batch_size=None, max_iter=1)
    with certus.config_context(on_uncertified="ignore"):
        losses = [clone(one).fit(rows, y).history_["loss"][0] for rows in (X, Z)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


# Two trainings on inputs that differ by rounding part by as much as the processor
# likes. What they are given, and how they begin, is equal to rounding on all of them.


@pytest.mark.parametrize("scale", [1e-30, 255.0, 1e30])
def test_the_scale_of_pixels_does_not_matter(digits, model, scale):
    X, y = digits
    again = clone(model).fit(X * scale, y)
    np.testing.assert_allclose(again.mean_, model.mean_ * scale, rtol=1e-12)
    np.testing.assert_allclose(again.scale_, model.scale_ * scale, rtol=1e-12)
    np.testing.assert_allclose(handed(again, X * scale), handed(model, X), atol=1e-6)
    assert_first_losses_agree(model, X * scale, X, y)
    assert again.score(X * scale, y) > 0.95


def test_bytes_are_as_good_as_numbers(digits, model):
    X, y = digits
    pixels = X.astype(np.uint8)
    again = clone(model).fit(pixels, y)
    np.testing.assert_array_equal(again.mean_, model.mean_)
    np.testing.assert_array_equal(again.scale_, model.scale_)
    np.testing.assert_allclose(handed(again, pixels), handed(model, X), atol=1e-6)
    np.testing.assert_allclose(
        again.predict_proba(pixels), again.predict_proba(X), atol=1e-5
    )
    assert_first_losses_agree(model, pixels, X, y)
    assert again.score(pixels, y) > 0.95
    assert next(again.module_.parameters()).dtype == torch.float32


def test_weights_are_repetitions_also_in_mean_and_deviation(digits):
    X, y = digits
    X, y, s = X[:40], y[:40], np.arange(40) % 4
    options = {"batch_size": None, "max_iter": 3, "random_state": 0}
    weighted = ConvNetClassifier(**options).fit(X, y, sample_weight=s)
    repeated = ConvNetClassifier(**options).fit(X.repeat(s, axis=0), y.repeat(s))
    np.testing.assert_allclose(weighted.mean_, repeated.mean_)
    np.testing.assert_allclose(weighted.scale_, repeated.scale_)
    np.testing.assert_allclose(
        weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-4
    )


@pytest.mark.parametrize("network", NETWORKS)
def test_each_network_learns_is_kept_and_certified(network, digits, tmp_path):
    X, y = digits
    fit = ConvNetClassifier(network, max_iter=4, random_state=0).fit(X, y)
    assert fit.score(X, y) > 0.9
    assert fit.certificate_["gradient_ratio"].value < 0.01
    back = certus.load(fit.save(tmp_path / "m.certus"))
    wanted = fit.predict_proba(X)
    for other in (back, pickle.loads(pickle.dumps(fit)), copy.deepcopy(fit)):
        np.testing.assert_array_equal(other.predict_proba(X), wanted)
    checked = certus.certify(back, X, y)
    assert checked["training_loss"].value == pytest.approx(
        fit.certificate_["training_loss"].value
    )


def test_the_same_seed_gives_the_same_network(digits, model):
    again = clone(model).fit(*digits)
    np.testing.assert_array_equal(
        again.predict_proba(digits[0]), model.predict_proba(digits[0])
    )


def test_a_convolutional_network_serves_in_pipelines_and_searches(digits):
    X, y = digits
    pipe = make_pipeline(FunctionTransformer(np.sqrt), ConvNetClassifier(max_iter=2))
    grid = {"convnetclassifier__learning_rate": [1e-3, 3e-3]}
    assert GridSearchCV(pipe, grid, cv=2).fit(X, y).best_score_ > 0.5


def test_your_own_module_or_function_is_trained(digits):
    X, y = digits
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    options = {"max_iter": 10, "learning_rate": 0.01, "random_state": 0}
    fit = ConvNetClassifier(module, **options).fit(X, y)
    assert fit.score(X, y) > 0.95
    told = []

    def network(image_shape, n_outputs):
        told.append((image_shape, n_outputs))
        return nn.Sequential(nn.Flatten(), nn.Linear(64, n_outputs))

    assert ConvNetClassifier(network, **options).fit(X, y).score(X, y) > 0.95
    assert told == [((1, 8, 8), 4)]


def test_partial_fits_keep_the_first_mean(digits):
    X, y = digits
    fit = ConvNetClassifier(random_state=0)
    fit.partial_fit(X[:100], y[:100], classes=np.unique(y))
    mean = fit.mean_.copy()
    for _ in range(4):
        fit.partial_fit(X, y)
    np.testing.assert_array_equal(fit.mean_, mean)
    assert fit.score(X, y) > 0.9


def test_rows_whose_length_is_not_a_square_are_images_of_one_line():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 10))
    y = (X[:, 2] * 2 + X[:, 3] > 0).astype(int)
    fit = ConvNetClassifier(max_iter=40, random_state=0).fit(X, y)
    assert fit.image_shape_ == (1, 1, 10)
    assert fit.score(X, y) > 0.9
