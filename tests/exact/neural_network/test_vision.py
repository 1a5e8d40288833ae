"""Vision transformers, patches, and attention that convolves."""

import math

import pytest
import torch
from torch.nn import functional as F

from certus.neural_network.modules import (
    MultiHeadAttention,
    VisionTransformer,
    attention_as_convolution,
    count_parameters,
    patchify,
    unpatchify,
)


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def built(*args, seed=0, **options):
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        net = VisionTransformer(*args, **options)
    return net.double().eval().requires_grad_(False)


# -- patches ----------------------------------------------------------------------


@pytest.mark.catalog("TRF-22")
@pytest.mark.parametrize(
    ("patch", "shape"),
    [(4, (1, 28, 28)), (2, (3, 6, 4)), ((1, 5), (2, 1, 10)), ((3, 2), (1, 9, 8))],
)
def test_patches_put_together_are_the_image(patch, shape):
    x = drawn(5, *shape)
    patches = patchify(x, patch)
    p, q = patch if isinstance(patch, tuple) else (patch, patch)
    rows, columns = shape[1] // p, shape[2] // q
    assert patches.shape == (5, rows * columns, shape[0] * p * q)
    assert torch.equal(unpatchify(patches, patch, shape), x)
    for r in range(rows):
        for c in range(columns):
            piece = x[:, :, r * p : (r + 1) * p, c * q : (c + 1) * q]
            assert torch.equal(patches[:, r * columns + c], piece.flatten(1))


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(
        ValueError, match="9 × 8 pixels cannot be cut into patches of 2"
    ):
        patchify(drawn(1, 1, 9, 8), 2)
    with pytest.raises(ValueError, match="do not make an image of 1 × 4 × 4"):
        unpatchify(drawn(1, 4, 5), 2, (1, 4, 4))
    with pytest.raises(ValueError, match="patch_size must be a number or a pair"):
        patchify(drawn(1, 1, 8, 8), (2, 2, 2))
    with pytest.raises(ValueError, match="patch_size must be a whole number above 0"):
        VisionTransformer(1, (8, 8), 2, patch_size=0)
    with pytest.raises(ValueError, match="pooling must be one of"):
        VisionTransformer(1, (8, 8), 2, pooling="max")
    with pytest.raises(ValueError, match="a multiple of heads"):
        VisionTransformer(1, (8, 8), 2, width=10, heads=4)


# -- the network ------------------------------------------------------------------


@pytest.mark.catalog("TRF-22")
@pytest.mark.parametrize("pooling", ["mean", "token"])
def test_after_one_layer_every_output_depends_on_every_patch(pooling):
    net = built(1, (12, 12), 3, patch_size=3, n_layers=1, pooling=pooling)
    x = drawn(1, 1, 12, 12).requires_grad_()
    states, _ = net.states(x)
    first = 1 if pooling == "token" else 0
    for token in states[0, first:]:
        g = torch.autograd.grad(token[0], x, retain_graph=True)[0]
        assert (patchify(g, 3).abs().amax(dim=2) > 0).all()
    for score in net(x)[0]:
        g = torch.autograd.grad(score, x, retain_graph=True)[0]
        assert (patchify(g, 3).abs().amax(dim=2) > 0).all()
    # A 3 × 3 convolution over the same patches reaches its neighbours alone.
    c = F.conv2d(x, drawn(1, 1, 9, 9), padding=4)[0, 0, 0, 0]
    g = torch.autograd.grad(c, x)[0]
    assert (patchify(g, 3).abs().amax(dim=2) > 0).sum() == 4


@pytest.mark.catalog("TRF-22")
def test_without_positions_patches_may_stand_anywhere():
    x, order = drawn(2, 1, 8, 8), torch.randperm(16)
    mixed = unpatchify(patchify(x, 2)[:, order], 2, (1, 8, 8))
    for position in (None, "learned", "sinusoidal"):
        net = built(1, (8, 8), 3, patch_size=2, position=position)
        assert torch.allclose(net(mixed), net(x)) == (position is None)


@pytest.mark.catalog("TRF-15")
def test_scores_come_from_the_mean_or_from_a_token_of_its_own():
    x = drawn(4, 1, 8, 8)
    for pooling, n in (("mean", 16), ("token", 17)):
        net = built(1, (8, 8), 3, pooling=pooling)
        states, looks = net.states(x, weights=True)
        assert states.shape == (4, n, 64) and looks[0].shape == (4, 4, n, n)
        one = states[:, 0] if pooling == "token" else states.mean(dim=1)
        torch.testing.assert_close(net(x), net.output(one))


def test_sides_are_padded_and_parameters_counted():
    net = built(3, (9, 6), 5, patch_size=(4, 4), width=16, heads=2, n_layers=3)
    assert net.grid == (3, 2)
    x = drawn(2, 3, 9, 6)
    whole = built(3, (12, 8), 5, patch_size=4, width=16, heads=2, n_layers=3)
    whole.load_state_dict(net.state_dict())
    torch.testing.assert_close(net(x), whole(F.pad(x, (1, 1, 1, 2))))
    layer = 12 * 16 * 16 + 13 * 16
    head = 2 * 16 + 16 * 5 + 5
    assert (
        count_parameters(net.requires_grad_())
        == (48 + 1) * 16 + 6 * 16 + 3 * layer + head
    )
    again = VisionTransformer(**net.config)
    assert count_parameters(again) == count_parameters(net)


@pytest.mark.parametrize(
    ("shape", "grid"), [((8, 8), (4, 4)), ((28, 28), (7, 7)), ((1, 10), (1, 5))]
)
def test_patches_are_chosen_by_the_size_of_the_image(shape, grid):
    assert built(1, shape, 2).grid == grid
    assert built(1, (224, 224), 2, n_layers=1).grid == (8, 8)


# -- attention as convolution -----------------------------------------------------


@pytest.mark.catalog("TRF-23")
@pytest.mark.parametrize(
    ("kernel", "shape", "channels"),
    [
        ((3, 3), (8, 8), (3, 4)),
        ((3, 3), (16, 11), (1, 1)),
        ((5, 3), (7, 9), (6, 2)),
        ((1, 3), (1, 12), (2, 3)),
        ((1, 1), (4, 4), (2, 9)),
    ],
)
def test_one_head_for_each_offset_reproduces_a_convolution(kernel, shape, channels):
    before, after = channels
    weight, bias = drawn(after, before, *kernel), drawn(after, seed=1)
    net = attention_as_convolution(weight, shape, bias)
    assert isinstance(net.attention, MultiHeadAttention)
    assert net.attention.heads == kernel[0] * kernel[1]
    x = drawn(2, before, *shape, seed=2)
    expected = F.conv2d(x, weight, bias, padding="same")
    torch.testing.assert_close(net(x), expected, atol=1e-10, rtol=0)
    single = attention_as_convolution(weight.float(), shape, bias.float())
    torch.testing.assert_close(single(x.float()).double(), expected, atol=1e-4, rtol=0)


@pytest.mark.catalog("TRF-23")
def test_each_head_looks_at_one_pixel():
    net = attention_as_convolution(drawn(1, 1, 3, 3), (4, 5))
    tokens = F.pad(net.positions.flatten(1).T[None], (1, 36 - 5))
    with torch.no_grad():
        _, P = net.attention(tokens, weights=True)  # (1, heads, 42, 42)
    largest, place = P[0].max(dim=2)
    assert float(largest.min()) > 1 - 1e-12
    for h in range(9):
        for r in range(1, 5):
            for c in range(1, 6):
                at = (r + h // 3 - 1) * 7 + c + h % 3 - 1
                assert place[h, r * 7 + c] == at


def test_kernels_of_even_sides_and_other_images_are_refused():
    with pytest.raises(ValueError, match="height and width odd"):
        attention_as_convolution(drawn(1, 1, 2, 3), (4, 4))
    net = attention_as_convolution(drawn(1, 1, 3, 3), (4, 4))
    with pytest.raises(ValueError, match="another size than 5 × 4"):
        net(drawn(1, 1, 5, 4))
    assert math.isfinite(float(net(drawn(1, 1, 4, 4)).sum().detach()))
