"""What the layers of our networks do to maps: filters, pooling, strides; and slopes."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from certus.neural_network import vjp
from certus.neural_network.modules import (
    ConvNet,
    LeNet,
    ResidualBlock,
    ResNet,
    TextCNN,
    convolution_matrix,
    count_parameters,
    output_size,
)


def windows(maps):
    """The 2 × 2 windows of maps (n, c, h, w); what is left over is left out."""
    return maps.unfold(2, 2, 2).unfold(3, 2, 2)


def rows(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.catalog("CNN-13")
def test_five_filters_of_a_network_give_five_maps():
    net = ConvNet(3, (9, 8), 3, channels=(5,)).double()
    first, x = net.features[0], rows(2, 3, 9, 8)
    maps = first(x)
    assert maps.shape == (2, 5, 9, 8)
    assert count_parameters(first) == 5 * 27 + 5
    for k in range(5):  # each adds up what its three kernels find, and its bias
        parts = [
            convolution_matrix(kernel.detach(), (9, 8), padding="same")
            for kernel in first.weight[k]
        ]
        known = np.hstack(parts) @ x[1].numpy().ravel() + first.bias[k].item()
        np.testing.assert_allclose(maps[1, k].detach().ravel(), known, atol=1e-12)


@pytest.mark.catalog("CNN-22")
def test_convnet_keeps_the_largest_and_sends_slopes_to_it_alone():
    net = ConvNet(2, (9, 8), 3, channels=(5,)).double()
    maps = net.features[0](rows(2, 2, 9, 8)).detach()
    pool = net.features[1]
    v = rows(2, 5, 4, 4)
    out, slopes = vjp(pool, maps, v)
    torch.testing.assert_close(out, windows(maps).amax(dim=(4, 5)))
    largest = F.interpolate(out, scale_factor=2) == maps[:, :, :8]
    assert largest.sum() == out.numel()
    known = torch.zeros_like(maps)
    known[:, :, :8] = F.interpolate(v, scale_factor=2) * largest
    torch.testing.assert_close(slopes, known)  # the ninth line is left over


@pytest.mark.catalog("CNN-22")
def test_a_text_network_keeps_the_largest_over_time():
    net = TextCNN(9, 2, embedding=4, widths=(2,), channels=3).double()
    text, length = torch.tensor([[4, 1, 7, 2, 5, 0]]), torch.tensor([5])
    responses = torch.relu(net.filters[0](net.embedding(text[:, :5]).transpose(1, 2)))
    assert responses.shape[2] == output_size(5, 2)
    largest, places = responses.max(dim=2)
    torch.testing.assert_close(net.maxima(text, length), largest)
    # The slope with regard to a word's vector: none where no window that won has it.
    net.maxima(text, length).sum().backward()
    heard = net.embedding.weight.grad.abs().sum(dim=1) > 0
    places = places[largest > 0]
    won = {int(text[0, p + i]) for p in places for i in range(2)}
    assert set(torch.nonzero(heard).ravel().tolist()) == won
    assert not heard.all()


@pytest.mark.catalog("CNN-23")
def test_lenet_takes_means_and_spreads_slopes_evenly():
    net = LeNet().double()
    maps = net.features[:2](rows(2, 1, 32, 32)).detach()
    v = rows(2, 6, 14, 14)
    out, slopes = vjp(net.features[2], maps, v)
    torch.testing.assert_close(out, windows(maps).mean(dim=(4, 5)))
    torch.testing.assert_close(slopes, F.interpolate(v, scale_factor=2) / 4)


@pytest.mark.catalog("CNN-24")
def test_resnet_leaves_one_number_of_each_map():
    net = ResNet(2, 3).double().eval()
    x = rows(2, 2, 9, 8)
    maps = net.features(x).detach()
    size = maps.shape[2] * maps.shape[3]
    assert size > 1
    torch.testing.assert_close(net(x), net.output(maps.sum(dim=(2, 3)) / size))


@pytest.mark.catalog("CNN-25")
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_a_stride_skips_outputs(stride):
    kernel = np.random.default_rng(0).normal(size=(3, 3))
    whole = convolution_matrix(kernel, (9, 8)).reshape(7, 6, 72)
    strided = convolution_matrix(kernel, (9, 8), stride=stride)
    np.testing.assert_array_equal(
        strided, whole[::stride, ::stride].reshape(len(strided), 72)
    )
    assert len(strided) == output_size(9, 3, stride) * output_size(8, 3, stride)


@pytest.mark.catalog("CNN-25")
def test_a_block_that_halves_its_maps_skips_every_second_output():
    block, x = ResidualBlock(2, 3, stride=2).double().eval(), rows(1, 2, 9, 8)
    first = next(m for m in block.modules() if isinstance(m, torch.nn.Conv2d))
    every = F.conv2d(x, first.weight, first.bias, padding=1)[:, :, ::2, ::2]
    torch.testing.assert_close(first(x), every)
    assert block(x).shape == (1, 3, *(output_size(s, 3, 2, 1) for s in (9, 8)))


@pytest.mark.catalog("CNN-21")
def test_the_slope_of_a_kernel_is_a_convolution():
    """∂f/∂w = rot(x) ∗ (v ⊙ σ′(x ∗ w)) for f = vᵀσ(x ∗ w)."""
    rng = np.random.default_rng(0)
    x, v, w = rng.normal(size=(6, 6)), rng.normal(size=16), rng.normal(size=(3, 3))

    def value(w):
        z = convolution_matrix(w, (6, 6), flip=True) @ x.ravel()
        return v @ (1 / (1 + np.exp(-z)))

    found = np.zeros((3, 3))
    for place in itertools.product(range(3), repeat=2):
        step = np.zeros((3, 3))
        step[place] = 1e-5
        found[place] = (value(w + step) - value(w - step)) / 2e-5
    s = 1 / (1 + np.exp(-convolution_matrix(w, (6, 6), flip=True) @ x.ravel()))
    signal = (v * s * (1 - s)).reshape(4, 4)
    turned = np.rot90(x, 2).ravel()
    identity = convolution_matrix(signal, (6, 6), flip=True) @ turned
    np.testing.assert_allclose(identity.reshape(3, 3), found, atol=1e-9)


@pytest.mark.catalog("CNN-21")
def test_the_slopes_of_a_networks_filters_are_convolutions():
    """The same for a layer of ours, which slides its kernels without turning them."""
    net = ConvNet(1, (9, 8), 2, channels=(3,)).double()
    first, x = net.features[0], rows(1, 1, 9, 8)
    v = rows(1, 3, 9, 8)
    out = torch.tanh(first(x))
    (out * v).sum().backward()
    signal = (v * (1 - out.detach() ** 2))[0].numpy()
    around = np.pad(x[0, 0].numpy(), 1)
    for k in range(3):
        known = convolution_matrix(signal[k], around.shape) @ around.ravel()
        found = first.weight.grad[k, 0].ravel()
        np.testing.assert_allclose(found, known, atol=1e-12)
