"""Convolutions: as sums and matrices; what layers make of sizes and slopes.

References are NumPy, SciPy and torch's layers; nothing of ours checks itself.
"""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal
from torch import nn
from torch.nn import functional as F

from certus.neural_network.modules import (
    ResNet,
    convolution_matrix,
    output_size,
    receptive_field,
    same_padding,
    toeplitz_matrix,
)

RNG = np.random.default_rng(0)


def gaussian(t, variance=1.0):
    return np.exp(-(t**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)


# -- in one dimension -------------------------------------------------------------


@pytest.mark.catalog("CNN-04")
@pytest.mark.parametrize("move", [1, 3, 7])
def test_a_shift_before_is_a_shift_after(move):
    x = RNG.normal(size=12)
    T = toeplitz_matrix(RNG.normal(size=5), 12, "periodic")
    np.testing.assert_allclose(T @ np.roll(x, move), np.roll(T @ x, move), atol=1e-14)
    layer = nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular", dtype=torch.float64)
    image = torch.randn(1, 2, 9, 9, dtype=torch.float64)
    moved = layer(image.roll((move, 2), (2, 3)))
    torch.testing.assert_close(moved, layer(image).roll((move, 2), (2, 3)))


@pytest.mark.catalog("CNN-05")
def test_every_linear_equivariant_map_is_a_convolution():
    """A filter given only as a black box, here by its spectrum, is known by one δ."""
    spectrum = np.fft.fft(RNG.normal(size=10))

    def black_box(x):
        return np.fft.ifft(np.fft.fft(x) * spectrum).real

    delta = np.eye(10)[0]
    T = toeplitz_matrix(black_box(delta), 10, "periodic")
    for _ in range(5):
        x = RNG.normal(size=10)
        np.testing.assert_allclose(T @ x, black_box(x), atol=1e-12)
    odd = np.diag(RNG.normal(size=10))  # linear, not equivariant
    assert not np.allclose(toeplitz_matrix(odd @ delta, 10, "periodic"), odd)


# -- sums and matrices ------------------------------------------------------------


@pytest.mark.catalog("CNN-06", "CNN-09")
@given(st.integers(1, 8), st.integers(1, 12), st.sampled_from(["full", "valid"]))
def test_a_toeplitz_matrix_convolves(k, n, mode):
    rng = np.random.default_rng([k, n])
    h, x = rng.normal(size=k), rng.normal(size=n)
    if mode == "valid" and k > n:
        with pytest.raises(ValueError, match="longer than the signal"):
            toeplitz_matrix(h, n, mode)
        return
    T = toeplitz_matrix(h, n, mode)
    np.testing.assert_allclose(T @ x, np.convolve(x, h, mode), atol=1e-12)
    for offset in range(-T.shape[0] + 1, n):
        assert len(np.unique(np.diagonal(T, offset))) == 1
    if mode == "full":
        other = toeplitz_matrix(x, k)
        np.testing.assert_allclose(T @ x, other @ h, atol=1e-12)  # commutes


@pytest.mark.catalog("CNN-06", "CNN-16")
@given(*(st.integers(1, 4) for _ in range(4)))
@settings(max_examples=40)
def test_full_padding_is_the_full_convolution(kh, kw, more_h, more_w):
    h, w = kh + more_h, kw + more_w
    rng = np.random.default_rng([kh, kw, h, w])
    K, X = rng.normal(size=(kh, kw)), rng.normal(size=(h, w))
    W = convolution_matrix(K, (h, w), padding="full", flip=True)
    full = signal.convolve2d(X, K)
    assert full.shape == (h + kh - 1, w + kw - 1)
    assert output_size(h, kh, padding="full") == h + kh - 1
    np.testing.assert_allclose((W @ X.ravel()).reshape(full.shape), full, atol=1e-12)
    np.testing.assert_allclose(full, signal.convolve2d(K, X), atol=1e-12)


@pytest.mark.catalog("CNN-07")
def test_correlation_is_convolution_with_the_kernel_turned():
    x, h = RNG.normal(size=9), RNG.normal(size=4)
    turned = toeplitz_matrix(h[::-1], 9, "valid") @ x
    np.testing.assert_allclose(turned, np.correlate(x, h, "valid"), atol=1e-12)
    X, K = RNG.normal(size=(6, 7)), RNG.normal(size=(3, 3))
    plain = convolution_matrix(K, (6, 7)) @ X.ravel()
    flipped = convolution_matrix(K[::-1, ::-1], (6, 7), flip=True) @ X.ravel()
    expected = signal.correlate2d(X, K, "valid").ravel()
    np.testing.assert_allclose(plain, expected, atol=1e-12)
    np.testing.assert_allclose(flipped, expected, atol=1e-12)


@pytest.mark.catalog("CNN-08")
def test_the_worked_example_of_the_notes():
    X = [
        [1, 1, 1, 0, 0],
        [0, 1, 1, 1, 0],
        [0, 0, 1, 1, 1],
        [0, 0, 1, 1, 0],
        [0, 1, 1, 0, 0],
    ]
    K = [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    out = convolution_matrix(K, (5, 5)) @ np.ravel(X)
    np.testing.assert_array_equal(out.reshape(3, 3), [[4, 3, 4], [2, 4, 3], [2, 3, 4]])


@pytest.mark.catalog("CNN-10", "CNN-11")
def test_the_matrix_of_a_two_dimensional_convolution():
    K = np.array([[1.0, 2.0], [3.0, 4.0]])
    W = convolution_matrix(K, (3, 3))
    assert W.shape == (4, 9)
    assert (W != 0).sum() == 16  # places
    np.testing.assert_array_equal(np.unique(W[W != 0]), [1, 2, 3, 4])  # 4 weights of 36
    X = RNG.normal(size=(3, 3))
    expected = signal.correlate2d(X, K, "valid").ravel()
    np.testing.assert_allclose(W @ X.ravel(), expected, atol=1e-14)
    blocks = W.reshape(2, 2, 3, 3).transpose(0, 2, 1, 3)  # block (i, j) is 2 × 3
    np.testing.assert_array_equal(blocks[0, 0], blocks[1, 1])
    np.testing.assert_array_equal(blocks[0, 1], blocks[1, 2])
    np.testing.assert_array_equal(blocks[0, 0], [[1, 2, 0], [0, 1, 2]])


@pytest.mark.catalog("CNN-10")
def test_only_periodic_padding_is_diagonalised_by_the_fourier_transform():
    K = RNG.normal(size=(3, 3))
    D = np.kron(np.fft.fft(np.eye(6)), np.fft.fft(np.eye(5)))

    def off_diagonal(W):
        spectrum = D @ W @ np.linalg.inv(D)
        return np.abs(spectrum - np.diag(np.diag(spectrum))).max()

    assert off_diagonal(convolution_matrix(K, (6, 5), padding="periodic")) < 1e-12
    assert off_diagonal(convolution_matrix(K, (6, 5), padding="same")) > 0.1
    X = RNG.normal(size=(6, 5))
    round_ = convolution_matrix(K, (6, 5), padding="periodic", flip=True)
    wrapped = signal.convolve2d(X, K, boundary="wrap")[2:, 2:]  # the same up to a shift
    found = (round_ @ X.ravel()).reshape(6, 5)
    np.testing.assert_allclose(found[:4, :3], wrapped[:4, :3], atol=1e-12)


@pytest.mark.catalog("CNN-12", "CNN-14")
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("channels", [(1, 1), (2, 3)])
@pytest.mark.parametrize("kernel", [(3, 3), (2, 5)])
def test_a_layer_is_a_sum_of_matrices_and_a_bias(stride, padding, channels, kernel):
    before, after = channels
    w, b = RNG.normal(size=(after, before, *kernel)), RNG.normal(size=after)
    x = RNG.normal(size=(before, 7, 8))
    out = F.conv2d(
        *map(torch.as_tensor, (x[None], w, b)), stride=stride, padding=padding
    )[0]
    options = {"stride": stride, "padding": padding}
    found = [
        b[o]
        + sum(
            convolution_matrix(w[o, i], (7, 8), **options) @ x[i].ravel()
            for i in range(before)
        )
        for o in range(after)
    ]
    np.testing.assert_allclose(found, out.reshape(after, -1), atol=1e-12)
    high, wide = (max(0, k - padding) for k in kernel)
    corner = sum(  # the window's first rows and columns meet zeros
        (w[0, i, padding:, padding:] * x[i, :high, :wide]).sum() for i in range(before)
    )
    assert float(out[0, 0, 0]) == pytest.approx(b[0] + corner)
    n, m = out.shape[1] - 1, out.shape[2] - 1  # the last window, by its definition
    around = np.pad(x, [(0, 0), (padding, padding), (padding, padding)])
    last = around[:, n * stride :, m * stride :][:, : kernel[0], : kernel[1]]
    assert float(out[-1, n, m]) == pytest.approx(b[-1] + (w[-1] * last).sum())


# -- sizes ------------------------------------------------------------------------


@pytest.mark.catalog("CNN-14", "CNN-17")
def test_output_sizes_are_those_of_layers():
    grid = itertools.product(range(1, 12), range(1, 6), range(1, 4), range(3), (1, 2))
    for size, kernel, stride, padding, dilation in grid:
        if size + 2 * padding < dilation * (kernel - 1) + 1:
            with pytest.raises(ValueError, match="does not fit"):
                output_size(size, kernel, stride, padding, dilation)
            continue
        layer = nn.Conv1d(1, 1, kernel, stride, padding, dilation)
        found = layer(torch.zeros(1, 1, size)).shape[2]
        assert output_size(size, kernel, stride, padding, dilation) == found
    assert output_size(9, 4, padding="valid") == 6


@pytest.mark.catalog("CNN-15")
def test_same_padding_keeps_the_size():
    for size, kernel, stride in itertools.product(
        range(1, 20), (1, 3, 5, 7), (1, 2, 3)
    ):
        p = same_padding(size, kernel, stride)
        assert output_size(size, kernel, stride, p) == size
        assert output_size(size, kernel, stride, "same") == size
        layer = nn.Conv1d(1, 1, kernel, stride, p)
        assert layer(torch.zeros(1, 1, size)).shape[2] == size
        if stride == 1:
            assert p == kernel // 2
    with pytest.raises(ValueError, match="odd kernel"):
        same_padding(8, 4)


windows = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=3
)


def slope(layers):
    """Where ∂out/∂in is not zero, for one unit of a stack of layers in 1-D."""
    net = nn.Sequential(
        *(nn.Conv1d(1, 1, k, s, bias=False, dtype=torch.float64) for k, s in layers)
    )
    for layer in net:
        nn.init.ones_(layer.weight)
    size = receptive_field(layers)
    x = torch.zeros(1, 1, size + 40, dtype=torch.float64, requires_grad=True)
    out = net(x)[0, 0]
    (g,) = torch.autograd.grad(out[len(out) // 2], x)
    return g[0, 0]


@pytest.mark.catalog("CNN-18")
@given(windows)
@settings(max_examples=40, deadline=None)
def test_the_receptive_field_is_the_support_of_the_gradient(layers):
    support = torch.nonzero(slope(layers)).ravel()
    # Strides beyond the kernel leave gaps; its ends are those of the formula.
    assert int(support[-1] - support[0]) + 1 == receptive_field(layers)


@pytest.mark.catalog("CNN-18", "CNN-19")
def test_slopes_are_exactly_zero_outside_the_receptive_field():
    """The whole Jacobian of padded, dilated, pooled and bent layers, unit by unit."""
    net = nn.Sequential(
        nn.Conv2d(1, 2, (3, 2), padding=(1, 0), dilation=(2, 1)),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(2, 1, 3, stride=2, padding=1),
        nn.Sigmoid(),
    ).double()
    x = torch.randn(1, 1, 26, 21, dtype=torch.float64)
    J = torch.autograd.functional.jacobian(net, x)[0, 0, :, :, 0, 0]  # (o, o, i, i)
    r = [receptive_field(net, axis) for axis in (0, 1)]
    assert r == [10, 7]
    # From one unit to the next 2·2 pixels; padding starts 1 + 2·1 or 2·1 before.
    seen = torch.zeros_like(J, dtype=torch.bool)
    for a, b in np.ndindex(*J.shape[:2]):
        top, left = 4 * a - 3, 4 * b - 2
        rows, columns = slice(max(0, top), top + r[0]), slice(max(0, left), left + r[1])
        seen[a, b, rows, columns] = True
        assert J[a, b, rows, columns].abs().min() > 0  # all that is inside counts
    assert not J[~seen].any() and seen.float().mean() < 0.2


@pytest.mark.catalog("CNN-18")
def test_the_receptive_field_of_torch_layers():
    pool = nn.Sequential(nn.MaxPool2d((2, 3)))
    layers = [nn.Conv2d(1, 4, (5, 3)), nn.ReLU(), pool, nn.Conv2d(4, 4, 3)]
    assert receptive_field(layers) == 5 + 1 + 2 * 2
    assert receptive_field(layers, axis=1) == 3 + 2 + 3 * 2
    assert receptive_field([(3, 1, 2)]) == 5  # dilation
    assert receptive_field([]) == 1
    with pytest.raises(ValueError, match="whole image"):
        receptive_field([*layers, nn.Flatten(), nn.Linear(3, 2)])
    for blind in (nn.ConvTranspose2d(1, 1, 3), ResNet(1, 2)):
        with pytest.raises(ValueError, match="not a sequence of windows"):
            receptive_field(blind)


# -- slopes -----------------------------------------------------------------------


@pytest.mark.catalog("CNN-20")
def test_shared_weights_get_the_sum_of_slopes_of_their_copies():
    K, X, v = RNG.normal(size=(2, 2)), RNG.normal(size=(4, 4)), RNG.normal(size=9)
    W = torch.tensor(convolution_matrix(K, (4, 4)), requires_grad=True)
    out = torch.tanh(W @ torch.as_tensor(X.ravel())) @ torch.as_tensor(v)
    (unshared,) = torch.autograd.grad(out, W)
    places = convolution_matrix(np.arange(1, 5).reshape(2, 2), (4, 4))
    summed = [float(unshared[places == k].sum()) for k in range(1, 5)]
    k = torch.tensor(K, requires_grad=True)
    layer = F.conv2d(torch.as_tensor(X)[None, None], k[None, None]).ravel()
    (shared,) = torch.autograd.grad(torch.tanh(layer) @ torch.as_tensor(v), k)
    np.testing.assert_allclose(summed, shared.ravel(), atol=1e-13)

    def value(kernel):
        return np.tanh(convolution_matrix(kernel, (4, 4)) @ X.ravel()) @ v

    for place in itertools.product(range(2), range(2)):
        step = np.zeros((2, 2))
        step[place] = 1e-6
        slope = (value(K + step) - value(K - step)) / 2e-6
        assert slope == pytest.approx(float(shared[place]), abs=1e-8)


# -- pooling and filters ----------------------------------------------------------


@pytest.mark.catalog("CNN-22", "CNN-23")
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 0), (3, 1, 1)])
def test_pooling_windows_may_overlap(kernel, stride, padding):
    """Value and slope, window by window: a pixel may be the largest of several."""
    x = RNG.normal(size=11)
    signal_ = torch.tensor(x[None, None], requires_grad=True)
    starts = range(-padding, len(x) + padding - kernel + 1, stride)
    inside = [[i for i in range(s, s + kernel) if 0 <= i < len(x)] for s in starts]
    v = RNG.normal(size=len(inside))
    for pool, rule in ((F.max_pool1d, "max"), (F.avg_pool1d, "mean")):
        out = pool(signal_, kernel, stride, padding)
        (g,) = torch.autograd.grad(out[0, 0] @ torch.tensor(v), signal_)
        values, slopes = [], np.zeros(len(x))
        for window, share in zip(inside, v):
            if rule == "max":
                values.append(x[window].max())
                slopes[window[x[window].argmax()]] += share
            else:
                values.append(x[window].sum() / kernel)  # padding counts as zeros
                slopes[window] += share / kernel
        assert len(values) == output_size(len(x), kernel, stride, padding)
        np.testing.assert_allclose(out.detach()[0, 0], values, atol=1e-14)
        np.testing.assert_allclose(g[0, 0], slopes, atol=1e-14)


@pytest.mark.catalog("CNN-27")
def test_classical_filters():
    edge = np.zeros((8, 8))
    edge[:, 4:] = 1
    sobel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    across = (convolution_matrix(sobel, (8, 8)) @ edge.ravel()).reshape(6, 6)
    np.testing.assert_array_equal(across, np.tile([0, 0, 4, 4, 0, 0], (6, 1)))
    along = convolution_matrix(sobel.T, (8, 8)) @ edge.ravel()
    assert not along.any()
    t = np.arange(-10, 11)
    bell = gaussian(t, 2.0) / gaussian(t, 2.0).sum()
    blur = convolution_matrix(np.outer(bell, bell), (41, 41), padding="same")
    image = np.zeros((41, 41))
    image[17:24, 15:22] = RNG.random((7, 7))  # any picture, away from the border
    blurred = (blur @ image.ravel()).reshape(41, 41)
    reference = signal.convolve2d(image, np.outer(bell, bell), "same")
    np.testing.assert_allclose(blurred, reference, atol=1e-14)
    for axis in (0, 1):
        before, after = (moments(p.sum(axis=axis)) for p in (image, blurred))
        assert after == pytest.approx((before[0], before[1], before[2] + 2), rel=1e-4)
    noise = RNG.normal(size=(21, 21))
    goes_round = convolution_matrix(np.outer(bell, bell), (21, 21), padding="periodic")
    smooth = goes_round @ noise.ravel()
    assert smooth.mean() == pytest.approx(noise.mean(), abs=1e-14)
    assert smooth.std() < 0.3 * noise.std()


def moments(p):
    """Mass, centre and variance of what stands along one axis."""
    t = np.arange(len(p))
    centre = p @ t / p.sum()
    return p.mean(), centre, p @ (t - centre) ** 2 / p.sum()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: output_size(0, 3), "size must be"),
        (lambda: output_size(5, 3, padding=-1), "padding must be"),
        (lambda: output_size(5, 3, padding="much"), "padding must be one of"),
        (lambda: toeplitz_matrix([], 3), "one axis"),
        (lambda: toeplitz_matrix([1], 3, "round"), "mode must be"),
        (lambda: convolution_matrix([1, 2], (3, 3)), "two axes"),
        (lambda: convolution_matrix([[1]], (3, 3, 3)), "image_shape must be"),
        (lambda: receptive_field([(0, 1)]), "kernel must be"),
    ],
)
def test_wrong_arguments_get_a_clear_message(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
