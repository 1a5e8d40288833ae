"""Transformers: what each part does, against formulas and torch's own layers."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from certus.neural_network.modules import (
    PUBLISHED,
    Transformer,
    count_parameters,
    sinusoidal_positions,
)
from certus.neural_network.modules.feed_forward import ACTIVATIONS, FeedForward
from certus.neural_network.modules.transformer import POSITIONS, Block

SMALL = {"n_layers": 2, "width": 16, "heads": 2, "context": 32}


def built(n_tokens=11, seed=0, **options):
    """A small transformer in float64, with weights that are not small."""
    made = torch.Generator().manual_seed(seed)
    net = Transformer(n_tokens, **{**SMALL, **options}).double().eval()
    net.requires_grad_(False)
    for name, p in net.named_parameters():
        if "norm" not in name:
            p.normal_(std=1 / math.sqrt(16), generator=made)
    return net


def tokens(*shape, n_tokens=11, seed=0):
    return torch.randint(n_tokens, shape, generator=torch.Generator().manual_seed(seed))


def block(seed=0, **options):
    config = {"width": 8, "heads": 2, "hidden": 32, "bias": True, "dropout": 0.0}
    config |= {"qk_norm": False, "position": None, "norm": "pre", "activation": "relu"}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        part = Block({**config, **options}, False)
    return part.double().eval().requires_grad_(False)


# -- positions --------------------------------------------------------------------


@pytest.mark.catalog("TRF-10")
@pytest.mark.parametrize("position", POSITIONS)
def test_only_positions_tell_the_order(position):
    net, x = built(kind="encoder", position=position), tokens(1, 7)
    order = torch.tensor([3, 0, 6, 1, 5, 4, 2])
    same = torch.allclose(net(x[:, order]).output, net(x).output[:, order])
    assert same == (position is None)


@pytest.mark.catalog("TRF-10")
def test_a_learnt_position_is_added_to_the_embedding():
    net, x = built(position="learned"), tokens(2, 5)
    assert net.positions.shape == (32, 16)
    added = net.embedding(x) + net.positions[:5]
    bare = built(position=None)
    bare.load_state_dict(
        {k: v for k, v in net.state_dict().items() if k != "positions"}
    )
    bare.embedding.register_forward_hook(lambda *_: added)
    torch.testing.assert_close(bare(x).output, net(x).output)


@pytest.mark.catalog("TRF-11")
def test_sinusoidal_positions_are_fixed_and_not_counted():
    net = built(position="sinusoidal")
    torch.testing.assert_close(
        net.positions, sinusoidal_positions(32, 16).double(), atol=1e-6, rtol=0
    )
    assert all(name != "positions" for name, _ in net.named_parameters())
    assert "positions" not in net.state_dict()


# -- feed-forward -----------------------------------------------------------------


@pytest.mark.catalog("TRF-12")
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_feed_forward_part_treats_each_position_alone(activation):
    part, x = FeedForward(8, 32, activation, True), torch.randn(2, 6, 8)
    order = torch.randperm(6)
    torch.testing.assert_close(part(x[:, order]), part(x)[:, order])
    other = x.clone()
    other[:, 3] = 0.0
    changed = (part(other) != part(x)).any(dim=2)
    assert changed.nonzero()[:, 1].unique().tolist() == [3]


@pytest.mark.catalog("TRF-13")
@pytest.mark.parametrize("d", [8, 512])
def test_the_feed_forward_layer_has_8d2_and_5d_parameters(d):
    part = FeedForward(d, 4 * d, "relu", True).double()
    assert count_parameters(part) == 8 * d * d + 5 * d
    x = np.random.default_rng(0).normal(size=(3, d))
    W1, b1, W2, b2 = (p.detach().numpy() for p in part.parameters())
    by_hand = np.maximum(0, x @ W1.T + b1) @ W2.T + b2
    np.testing.assert_allclose(part(torch.tensor(x)).detach(), by_hand, atol=1e-12)


def test_gates_have_as_many_parameters_as_plain_layers():
    plain = Transformer(11, n_layers=2, width=48)
    gated = Transformer(11, n_layers=2, width=48, activation="swiglu")
    assert count_parameters(gated) == pytest.approx(count_parameters(plain), rel=0.01)


# -- layers -----------------------------------------------------------------------


@pytest.mark.catalog("TRF-14")
def test_a_layer_of_zeros_is_the_identity_with_pre_norm():
    one, x = block(norm="pre"), torch.randn(2, 5, 8, dtype=torch.float64)
    for name in ("attention.output", "feed_forward.outer"):
        part = one.get_submodule(name)
        part.weight.zero_()
        part.bias.zero_()
    assert torch.equal(one(x, causal=True)[0], x)
    two = block(norm="post")
    two.load_state_dict(one.state_dict())
    normed = nn.functional.layer_norm(x, (8,))
    normed = nn.functional.layer_norm(normed, (8,))
    torch.testing.assert_close(two(x, causal=True)[0], normed)


@pytest.mark.catalog("TRF-14")
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_torchs_own_layer_gives_the_same(norm, activation):
    one, x = block(norm=norm, activation=activation), torch.randn(2, 5, 8).double()
    peer = nn.TransformerEncoderLayer(
        *(8, 2, 32, 0.0, activation), batch_first=True, norm_first=norm == "pre"
    ).double()
    names = {
        "self_attn.in_proj_": "attention.qkv.",
        "self_attn.out_proj.": "attention.output.",
        "linear1.": "feed_forward.inner.",
        "linear2.": "feed_forward.outer.",
        "norm1.": "attention_norm.",
        "norm2.": "feed_forward_norm.",
    }
    state = {
        theirs + kind: one.state_dict()[mine + kind]
        for theirs, mine in names.items()
        for kind in ("weight", "bias")
    }
    peer.load_state_dict(state)
    torch.testing.assert_close(one(x, causal=False)[0], peer(x))


# -- whole networks ---------------------------------------------------------------


@pytest.mark.catalog("TRF-15")
def test_one_output_for_each_token_or_one_for_all():
    x, order = tokens(3, 6), torch.randperm(6)
    assert built()(x).output.shape == (3, 6, 11)
    net = built(kind="encoder", position=None)
    pooled = net.pool(net(x).output)
    assert pooled.shape == (3, 16)
    torch.testing.assert_close(net.pool(net(x[:, order]).output), pooled)
    bert = built(kind="encoder", segments=2, norm="post", position="learned")
    states = bert(x).output
    by_first = torch.tanh(bert.pooler(states[:, 0]))
    torch.testing.assert_close(bert.pool(states), by_first)
    assert not torch.allclose(bert.pool(bert(x[:, order]).output), by_first)


def reach(net, T=6):
    """Which positions of the output depend on which of the input: (T, T) of bool."""
    x = torch.randn(1, T, 16, dtype=torch.float64)
    net.embedding.register_forward_hook(lambda *_: x)
    x.requires_grad_()
    out = net(tokens(1, T)).output[0].sum(dim=1)
    rows = [torch.autograd.grad(out[t], x, retain_graph=True)[0] for t in range(T)]
    return torch.stack([g[0].abs().amax(dim=1) > 0 for g in rows])


@pytest.mark.catalog("TRF-16")
def test_an_encoder_depends_on_both_sides_and_a_decoder_on_the_past():
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(16, generator=generator, dtype=torch.float64)
    encoder = built(kind="encoder", n_layers=1)
    encoder.norm.weight.copy_(weights)  # a norm's outputs add up to a constant
    assert reach(encoder).all()
    decoder = built(n_layers=1)
    assert torch.equal(reach(decoder), torch.ones(6, 6).tril().bool())


@pytest.mark.catalog("TRF-09")
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_later_tokens_change_no_score_before(position, norm):
    net, x = built(position=position, norm=norm), tokens(1, 8)
    for t in range(7):
        other = x.clone()
        other[:, t + 1 :] = (other[:, t + 1 :] + 1) % 11
        assert torch.equal(net(other).output[:, : t + 1], net(x).output[:, : t + 1])


@pytest.mark.catalog("TRF-08")
def test_the_decoder_of_both_looks_at_its_source():
    net, source, x = built(kind="both"), tokens(2, 9), tokens(2, 4, seed=1)
    scores = net(x, source).output
    assert scores.shape == (2, 4, 11)
    turned = source.flip(1)
    assert not torch.allclose(net(x, turned).output, scores)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[:, 6:] = False
    shorter = net(x, source[:, :6]).output
    torch.testing.assert_close(net(x, source, source_mask=mask).output, shorter)


@pytest.mark.catalog("TRF-21")
def test_the_reference_sizes_give_the_counted_parameters():
    N, d, h, V = 6, 512, 8, 37_000
    with torch.device("meta"):
        net = Transformer(
            *(V,),
            kind="both",
            n_layers=N,
            width=d,
            heads=h,
            context=512,
            norm="post",
            position="sinusoidal",
            activation="relu",
        )
    assert net.config["hidden"] == 2048 and d // h == 64
    attention, feed_forward, norm = 4 * d * d + 4 * d, 8 * d * d + 5 * d, 2 * d
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    assert count_parameters(net) == V * d + N * (encoder + decoder)
    assert count_parameters(net) / 1e6 == pytest.approx(63.1, abs=0.05)


@pytest.mark.catalog("TRF-24")
def test_at_the_start_attention_is_spread_evenly():
    net, T = Transformer(50, n_layers=2, width=64, heads=4, kind="encoder"), 40
    with torch.no_grad():
        looks = net(tokens(2, T, n_tokens=50), weights=True).kept
    for P in looks:
        H = -torch.special.xlogy(P, P).sum(dim=3)
        assert float(H.min()) > 0.99 * math.log(T)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_can_be_built_without_memory(name):
    with torch.device("meta"):
        net = Transformer(**PUBLISHED[name])
    assert net.config["n_layers"] == PUBLISHED[name]["n_layers"]


def test_wrong_arguments_are_named():
    for name, value in (("kind", "decode"), ("norm", "mid"), ("position", "rope")):
        with pytest.raises(ValueError, match=f"{name} must be one of"):
            Transformer(5, **{name: value})
    with pytest.raises(ValueError, match="33 tokens do not fit into a context of 32"):
        built()(tokens(1, 33))
    with pytest.raises(ValueError, match='kind "both"'):
        built()(tokens(1, 3), tokens(1, 3))
