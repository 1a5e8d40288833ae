"""Multi-head attention against its formula, torch's own and the facts about it."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from certus.neural_network.modules import (
    Attention,
    MultiHeadAttention,
    sinusoidal_positions,
)
from certus.neural_network.modules.multi_head import rotate


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def built(width, heads, seed=0, **options):
    """Attention with weights that are not small, so that it does look at something."""
    look = MultiHeadAttention(width, heads, **options).double().requires_grad_(False)
    for p in look.parameters():
        p.copy_(drawn(*p.shape, seed=seed + p.numel()) / math.sqrt(width))
    return look


def bare(width, heads=1):
    """Attention whose four maps are the identity: x and memory meet as they are."""
    look = MultiHeadAttention(width, heads, bias=False).double().requires_grad_(False)
    look.qkv.weight.copy_(torch.eye(width).repeat(3, 1))
    look.output.weight.copy_(torch.eye(width))
    return look


def in_numpy(look, x, memory=None, causal=False):
    """softmax(QKᵀ/√d)V W_O, head by head, row by row."""
    W, b = (p.numpy() for p in (look.qkv.weight, look.qkv.bias))
    x = x.numpy()
    m = x if memory is None else memory.numpy()
    D = x.shape[1]
    Q, K, V = (
        s @ W[i * D : (i + 1) * D].T + b[i * D : (i + 1) * D]
        for i, s in enumerate((x, m, m))
    )
    d, parts = D // look.heads, []
    for h in range(look.heads):
        q, k, v = (A[:, h * d : (h + 1) * d] for A in (Q, K, V))
        rows = []
        for t in range(len(q)):
            seen = t + 1 if causal else len(k)
            e = np.exp(k[:seen] @ q[t] / math.sqrt(d))
            rows.append((e / e.sum()) @ v[:seen])
        parts.append(np.array(rows))
    out, c = (p.numpy() for p in (look.output.weight, look.output.bias))
    return np.hstack(parts) @ out.T + c


@pytest.mark.catalog("TRF-02")
@pytest.mark.parametrize("causal", [False, True])
def test_weights_are_positive_and_add_up_to_one(causal):
    x = drawn(2, 7, 12)
    _, P = built(12, 3)(x, causal=causal, weights=True)
    seen = torch.ones(7, 7).tril().bool() if causal else torch.ones(7, 7).bool()
    assert (P[..., seen] > 0).all() and (P[..., ~seen] == 0).all()
    torch.testing.assert_close(P.sum(dim=3), torch.ones(2, 3, 7, dtype=P.dtype))


@pytest.mark.catalog("TRF-02")
@pytest.mark.parametrize("kind", ["dot", "additive"])
def test_the_gates_of_a_recurrent_decoder_are_positive_and_add_up_to_one(kind):
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    _, P = Attention(4, 6, kind).double()(drawn(2, 3, 4), drawn(2, 5, 6), mask)
    torch.testing.assert_close(P.sum(dim=2), torch.ones(2, 3).double())
    assert (P[0] > 0).all() and (P[1, :, :3] > 0).all() and (P[1, :, 3:] == 0).all()


@pytest.mark.catalog("TRF-03")
def test_outputs_lie_in_the_convex_hull_of_the_values():
    width, heads = 6, 2
    look, x = built(width, heads), drawn(1, 5, width)
    look.output.weight.copy_(torch.eye(width))
    look.output.bias.zero_()
    z, P = look(x, weights=True)
    V = look.qkv(x)[0, :, 2 * width :].unflatten(1, (heads, -1))  # (5, heads, 3)
    z = z[0].unflatten(1, (heads, -1))
    for h in range(heads):
        torch.testing.assert_close(P[0, h] @ V[:, h], z[:, h])
        for t in range(5):  # and somebody else finds convex weights too
            A = np.vstack([V[:, h].numpy().T, np.ones(5)])
            found = linprog(np.zeros(5), A_eq=A, b_eq=[*z[t, h].tolist(), 1.0])
            assert found.status == 0
        outside = V[:, h].numpy().max(axis=0) + 0.1
        assert linprog(np.zeros(5), A_eq=A, b_eq=[*outside, 1.0]).status == 2


@pytest.mark.catalog("TRF-04")
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_the_scaled_dot_product(causal, weights):
    look, x = bare(8, 2), drawn(3, 6, 8)
    q = x.unflatten(2, (2, 4)).transpose(1, 2)
    z = F.scaled_dot_product_attention(q, q, q, is_causal=causal)
    mine = look(x, causal=causal, weights=weights)[0]
    torch.testing.assert_close(mine, z.transpose(1, 2).flatten(2))
    general = built(8, 2)
    found = general(x[:1], causal=causal, weights=weights)[0][0].numpy()
    expected = in_numpy(general, x[0], causal=causal)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.catalog("TRF-04", "TRF-24")
@pytest.mark.parametrize("d", [4, 64, 256])
def test_the_root_of_the_width_keeps_the_spread_of_scores_at_one(d):
    q, k = drawn(1, 400, d, seed=1), drawn(1, 400, d, seed=2)
    _, P = bare(d)(q, k, weights=True)
    differences = P.log().diff(dim=3)  # (q·k_{j+1} − q·k_j)/√d: variance 2
    assert float(differences.var()) == pytest.approx(2.0, rel=0.08)


@pytest.mark.catalog("TRF-24")
def test_unscaled_scores_saturate_as_vectors_grow_wider():
    T, entropies = 64, {"scaled": [], "unscaled": []}
    for d in (4, 64, 1024):
        q, k = drawn(1, T, d, seed=1), drawn(1, T, d, seed=2)
        for name, factor in (("scaled", 1.0), ("unscaled", math.sqrt(d))):
            look = bare(d)
            look.qkv.weight.data[:d] *= factor
            _, P = look(q, k, weights=True)
            H = -torch.special.xlogy(P, P).sum(dim=3).mean()
            entropies[name].append(float(H) / math.log(T))
    assert min(entropies["scaled"]) > 0.85
    a, b, c = entropies["unscaled"]
    assert a > b > c and c < 0.1


@pytest.mark.catalog("TRF-05")
def test_keys_choose_where_and_values_what():
    look, x = built(8, 2), drawn(1, 5, 8)
    z, P = look(x, weights=True)
    other = built(8, 2)
    other.qkv.weight[16:] = drawn(8, 8, seed=5)
    z_values, P_values = other(x, weights=True)
    assert torch.equal(P_values, P) and not torch.allclose(z_values, z)
    other.qkv.weight[8:16] = drawn(8, 8, seed=6)
    assert not torch.allclose(other(x, weights=True)[1], P)


@pytest.mark.catalog("TRF-06")
def test_self_attention_does_not_know_the_order_of_its_rows():
    look, x = built(8, 2), drawn(2, 9, 8)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(look(x[:, order])[0], look(x)[0][:, order])
    assert not torch.allclose(look(x[:, order])[0], look(x)[0])
    turned = built(8, 2, rotary=True)
    assert not torch.allclose(turned(x[:, order])[0], turned(x)[0][:, order])


@pytest.mark.catalog("TRF-06")
def test_its_cost_grows_with_the_square_of_the_length():
    look, D = built(8, 2), 8

    def cost(T):
        with FlopCounterMode(display=False) as counter:
            look(drawn(1, T, D), weights=True)
        return counter.get_total_flops()

    # Four maps of D × D for each row; scores and mixtures for each pair of rows.
    for T in (5, 50, 500):
        assert cost(T) == 2 * T * 4 * D * D + 2 * 2 * T * T * D


@pytest.mark.catalog("TRF-06", "TRF-07")
def test_one_head_is_the_plain_formula():
    look, x = built(6, 1), drawn(7, 6)
    W = look.qkv.weight
    Q, K, V = (x @ W[i : i + 6].T + look.qkv.bias[i : i + 6] for i in (0, 6, 12))
    Z = torch.softmax(Q @ K.T / math.sqrt(6), dim=1) @ V
    torch.testing.assert_close(look(x[None])[0][0], look.output(Z))


def torchs_own(look, width):
    """torch's MultiheadAttention with the same weights."""
    peer = nn.MultiheadAttention(width, look.heads, batch_first=True).double()
    peer.requires_grad_(False)
    peer.in_proj_weight.copy_(look.qkv.weight)
    peer.in_proj_bias.copy_(look.qkv.bias)
    peer.out_proj.weight.copy_(look.output.weight)
    peer.out_proj.bias.copy_(look.output.bias)
    return peer


@pytest.mark.catalog("TRF-07")
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_torchs_own_attention_gives_the_same(heads):
    look, x = built(8, heads), drawn(2, 5, 8)
    z, P = look(x, weights=True)
    mine, theirs = (z, P), torchs_own(look, 8)(x, x, x, average_attn_weights=False)
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a, b)


@pytest.mark.catalog("TRF-08")
def test_cross_attention_has_a_row_for_each_query():
    look, x, memory = built(8, 2), drawn(2, 3, 8), drawn(2, 6, 8, seed=1)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    z, P = look(x, memory, mask=mask, weights=True)
    assert z.shape == (2, 3, 8) and P.shape == (2, 2, 3, 6)
    peer = torchs_own(look, 8)(x, memory, memory, key_padding_mask=~mask)[0]
    torch.testing.assert_close(z, peer)
    found = look(x[:1], memory[:1])[0][0].numpy()
    np.testing.assert_allclose(found, in_numpy(look, x[0], memory[0]), atol=1e-12)
    changed = memory.clone()
    changed[1, 4:] = 99.0  # beyond the mask
    assert torch.equal(look(x, changed, mask=mask)[0], look(x, memory, mask=mask)[0])


@pytest.mark.catalog("TRF-09")
@pytest.mark.parametrize("weights", [False, True])
def test_later_tokens_change_nothing_before(weights):
    look, x = built(8, 2, rotary=True, qk_norm=True), drawn(1, 9, 8)
    z = look(x, causal=True, weights=weights)[0]
    for t in range(8):
        other = x.clone()
        other[:, t + 1 :] = drawn(1, 8 - t, 8, seed=t + 3)
        found = look(other, causal=True, weights=weights)[0]
        assert torch.equal(found[:, : t + 1], z[:, : t + 1])  # to the last bit
        assert not torch.allclose(found[:, t + 1], z[:, t + 1])


@pytest.mark.catalog("TRF-11")
def test_sinusoidal_positions_are_rotations():
    d, T = 16, 200
    p = sinusoidal_positions(T, d).double().numpy()
    t, i = np.arange(T)[:, None], np.arange(d // 2)
    angles = t / 10000 ** (2 * i / d)
    np.testing.assert_allclose(p[:, ::2], np.sin(angles), atol=1e-6)
    np.testing.assert_allclose(p[:, 1::2], np.cos(angles), atol=1e-6)
    np.testing.assert_allclose(np.square(p).sum(axis=1), d / 2, atol=1e-5)
    for step in (1, 7):
        R = np.zeros((d, d))
        for j in range(d // 2):
            a = step / 10000 ** (2 * j / d)
            block = [[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]]
            R[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = block
        np.testing.assert_allclose(p[step:], p[:-step] @ R.T, atol=2e-6)
    with pytest.raises(ValueError, match="even"):
        sinusoidal_positions(3, 5)


def test_scores_of_turned_vectors_depend_on_distance_alone():
    q, k = drawn(1, 8, seed=1), drawn(1, 8, seed=2)
    for s, t in ((0, 3), (5, 1)):
        near = rotate(q, s) @ rotate(k, t).T
        far = rotate(q, s + 40) @ rotate(k, t + 40).T
        torch.testing.assert_close(near, far)
    assert not torch.allclose(rotate(q, 3) @ rotate(k, 0).T, q @ k.T)


@pytest.mark.parametrize("options", [{}, {"rotary": True, "qk_norm": True}])
def test_step_by_step_with_a_cache_is_all_at_once(options):
    look, x, kept, rows = built(8, 2, **options), drawn(1, 6, 8), None, []
    for t in range(6):
        z, kept = look(x[:, t : t + 1], causal=True, cache=kept)
        rows.append(z)
    torch.testing.assert_close(torch.cat(rows, dim=1), look(x, causal=True)[0])


def test_widths_that_do_not_divide_are_refused():
    with pytest.raises(
        ValueError, match="a multiple of heads, got width=8 and heads=3"
    ):
        MultiHeadAttention(8, 3)
    with pytest.raises(ValueError, match="an even multiple"):
        MultiHeadAttention(6, 2, rotary=True)
    with pytest.raises(ValueError, match="heads must be a whole number"):
        MultiHeadAttention(6, 0)


def test_angles_kept_from_inference_serve_training() -> None:
    """Cosines and sines are computed once; a length that no other test uses."""
    x = torch.randn(1, 2, 53, 6, requires_grad=True)
    with torch.inference_mode():
        before = rotate(x, 11)
    after = rotate(x, 11)
    after.square().sum().backward()
    assert torch.equal(before, after.detach())
    torch.testing.assert_close(x.grad, 2 * x.detach())  # turning keeps lengths
