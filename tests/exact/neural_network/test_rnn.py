"""Recurrent cells and networks against torch, enumeration and each other."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402

from certus.neural_network.modules.cells import ElmanCell, GRUCell, LSTMCell, unroll  # noqa: E402
from certus.neural_network.modules.rnn import Recurrent, turned, within, written_out  # noqa: E402

KINDS = ("rnn", "lstm", "gru")
LAYERS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def close(a, b, tol=1e-12):
    torch.testing.assert_close(a, b, rtol=tol, atol=tol)


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.catalog("SEQ-01")
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_elman_cell_is_torchs(activation):
    layer = nn.RNN(3, 5, nonlinearity=activation, batch_first=True).double()
    x = numbers(4, 9, 3)
    close(unroll(written_out(layer), x)["state"], layer(x)[0])


@pytest.mark.catalog("SEQ-01")
def test_the_elman_cell_is_its_formula():
    cell = ElmanCell(3, 5, activation="logistic").double()
    x, h = numbers(3), numbers(5)
    found = cell(x[None], {"state": h[None]})["state"][0]
    close(found, torch.sigmoid(cell.W @ h + cell.U @ x + cell.b))


@pytest.mark.catalog("SEQ-08")
def test_the_lstm_is_torchs():
    layer = nn.LSTM(3, 5, batch_first=True).double()
    x = numbers(4, 9, 3)
    states, (_, memory) = layer(x)
    found = unroll(written_out(layer), x)
    close(found["state"], states)
    close(found["memory"][:, -1], memory[0])


@pytest.mark.catalog("SEQ-08")
def test_an_lstm_that_forgets_and_writes_nothing_keeps_its_memory_exactly():
    cell = LSTMCell(3, 5).double()
    with torch.no_grad():
        i, f, _, _ = cell.b.chunk(4)
        i.fill_(-1e4)  # σ(−10⁴) is 0 and σ(10⁴) is 1 in floating point
        f.fill_(1e4)
    start = {"state": numbers(4, 5), "memory": numbers(4, 5)}
    found = unroll(cell, numbers(4, 200, 3), start)
    assert torch.equal(found["memory"][:, -1], start["memory"])
    assert not torch.equal(found["state"][:, -1], found["state"][:, 0])


@pytest.mark.catalog("SEQ-08")
def test_the_memory_follows_its_gates():
    cell = LSTMCell(2, 3).double()
    found = unroll(cell, numbers(4, 6, 2))
    before = torch.cat([torch.zeros(4, 1, 3), found["memory"][:, :-1]], dim=1)
    kept, written = found["forget"] * before, found["input"] * found["candidate"]
    close(found["memory"], kept + written)
    close(found["state"], found["output"] * torch.tanh(found["memory"]))


@pytest.mark.catalog("SEQ-09")
def test_the_gru_is_torchs_with_the_reset_after_the_product():
    layer = nn.GRU(3, 5, batch_first=True).double()
    x = numbers(4, 9, 3)
    close(unroll(written_out(layer), x)["state"], layer(x)[0])


@pytest.mark.catalog("SEQ-09")
def test_the_gru_is_its_formula():
    cell = GRUCell(2, 3).double()
    x, h = numbers(2), numbers(3)
    found = cell(x[None], {"state": h[None]})
    (Wr, Wz, W), (Ur, Uz, U) = cell.W.chunk(3), cell.U.chunk(3)
    br, bz, b = cell.b.chunk(3)
    r = torch.sigmoid(Wr @ h + Ur @ x + br)
    z = torch.sigmoid(Wz @ h + Uz @ x + bz)
    candidate = torch.tanh(W @ (r * h) + U @ x + b)
    close(found["reset"][0], r)
    close(found["update"][0], z)
    close(found["state"][0], (1 - z) * h + z * candidate)


@pytest.mark.catalog("SEQ-01")
@pytest.mark.parametrize("pooling", [None, "last"])
def test_outputs_are_made_of_states(pooling):
    """hᵗ = tanh(W hᵗ⁻¹ + U xᵗ + b), zᵗ = V hᵗ + c, in a loop of its own."""
    net = Recurrent(3, 5, 2, cell="rnn", pooling=pooling).double()
    x, ((layer,),) = numbers(4, 9, 3), net.layers
    W, U, b = layer.weight_hh_l0, layer.weight_ih_l0, layer.bias_ih_l0
    h, z = torch.zeros(4, 5, dtype=torch.float64), []
    for t in range(9):
        h = torch.tanh(h @ W.T + x[:, t] @ U.T + b)
        z.append(h @ net.output.weight.T + net.output.bias)
    close(net(x), torch.stack(z, dim=1) if pooling is None else z[-1])


@pytest.mark.catalog("SEQ-09")
def test_resets_before_and_after_agree_where_the_gate_is_open_or_shut():
    x, h = numbers(4, 2), {"state": numbers(4, 3)}
    before, after = GRUCell(2, 3).double(), GRUCell(2, 3, reset="after").double()
    after.load_state_dict({**before.state_dict(), "b_state": torch.zeros(3)})
    assert not torch.allclose(before(x, h)["state"], after(x, h)["state"])
    for shut in (-1e4, 1e4):
        with torch.no_grad():
            before.b[:3] = after.b[:3] = shut
        close(before(x, h)["state"], after(x, h)["state"])


@pytest.mark.catalog("SEQ-09")
@given(
    scale=st.floats(1e-3, 1e3),
    reset=st.sampled_from(["before", "after"]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=25, deadline=None)
def test_the_state_of_a_gru_lies_between_the_last_one_and_the_candidate(
    scale, reset, seed
):
    torch.manual_seed(seed)
    cell = GRUCell(2, 3, reset=reset).double()
    start = {"state": 2 * torch.rand(4, 3, dtype=torch.float64) - 1}
    found = unroll(cell, scale * numbers(4, 7, 2), start)
    before = torch.cat([start["state"][:, None], found["state"][:, :-1]], dim=1)
    low = torch.minimum(before, found["candidate"]) - 1e-15
    high = torch.maximum(before, found["candidate"]) + 1e-15
    assert ((low <= found["state"]) & (found["state"] <= high)).all()
    assert found["state"].abs().max() <= 1


@pytest.mark.catalog("SEQ-06")
@pytest.mark.parametrize("kind", KINDS)
def test_two_directions_are_torchs(kind):
    theirs = LAYERS[kind](3, 5, bidirectional=True, batch_first=True).double()
    net = Recurrent(3, 5, 2, cell=kind, bidirectional=True, pooling=None).double()
    copy_layers(theirs, net)
    x = numbers(4, 9, 3)
    close(net(x), net.output(theirs(x)[0]))
    there, back = written_out(theirs), written_out(theirs, backwards=True)
    close(unroll(there, x)["state"], theirs(x)[0][..., :5])
    close(unroll(back, x.flip(1))["state"].flip(1), theirs(x)[0][..., 5:])


@pytest.mark.catalog("SEQ-06")
@pytest.mark.parametrize("kind", KINDS)
def test_reversing_the_input_swaps_the_two_streams(kind):
    net = Recurrent(3, 5, 10, cell=kind, bidirectional=True, pooling=None).double()
    net.output = nn.Identity()
    x = numbers(4, 9, 3)
    plain = net(x)
    net.layers[0] = nn.ModuleList(reversed(net.layers[0]))
    close(net(x.flip(1)).flip(1), torch.cat([plain[..., 5:], plain[..., :5]], dim=2))


@pytest.mark.catalog("SEQ-07")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_stacked_layers_are_torchs(kind, bidirectional):
    options = {"bidirectional": bidirectional, "batch_first": True}
    theirs = LAYERS[kind](3, 5, num_layers=3, **options).double()
    net = Recurrent(
        3, 5, 2, cell=kind, n_layers=3, bidirectional=bidirectional, pooling=None
    ).double()
    copy_layers(theirs, net)
    x = numbers(4, 9, 3)
    close(net(x), net.output(theirs(x)[0]))


def copy_layers(theirs, net):
    """Give our network the weights of a layer of torch."""
    for name, value in theirs.state_dict().items():
        kind, which, suffix = (
            name.rsplit("_", 2)
            if "reverse" not in name
            else (*name.removesuffix("_reverse").rsplit("_", 2),)
        )
        reader = net.layers[int(suffix[1:])][1 if "reverse" in name else 0]
        reader.load_state_dict({f"{kind}_{which}_l0": value}, strict=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["last", "mean", None])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_changes_no_output(kind, pooling, bidirectional):
    net = Recurrent(
        3, 5, 2, cell=kind, n_layers=2, bidirectional=bidirectional, pooling=pooling
    ).double()
    lengths = torch.tensor([7, 1, 4, 0, 7, 3])
    x = numbers(6, 11, 3)
    x[~within(x, lengths)] = 1e3  # whatever stands there
    together = net(x, lengths)
    for row, n in enumerate(lengths.tolist()):
        alone = net(x[row : row + 1, :n])
        if pooling is None:
            close(together[row : row + 1, :n], alone)
        else:
            close(together[row : row + 1], alone)


def test_packed_sequences_give_the_same():
    layer = nn.LSTM(3, 5, num_layers=2, bidirectional=True, batch_first=True).double()
    net = Recurrent(3, 5, 2, n_layers=2, bidirectional=True).double()
    copy_layers(layer, net)
    x, lengths = numbers(4, 9, 3), torch.tensor([9, 2, 5, 1])
    packed = nn.utils.rnn.pack_padded_sequence(
        x, lengths, batch_first=True, enforce_sorted=False
    )
    _, (h, _) = layer(packed)
    close(net(x, lengths), net.output(torch.cat([h[-2], h[-1]], dim=1)))


def test_pooling_is_the_state_at_the_end_or_the_mean():
    x, lengths = numbers(3, 6, 2), torch.tensor([6, 4, 1])
    net = Recurrent(2, 4, 4, cell="gru").double()
    net.output = nn.Identity()
    states = unroll(written_out(net.layers[0][0]), x)["state"]
    ends = torch.stack([states[i, n - 1] for i, n in enumerate(lengths)])
    close(net(x, lengths), ends)
    net.config["pooling"] = "mean"
    means = torch.stack([states[i, :n].mean(0) for i, n in enumerate(lengths)])
    close(net(x, lengths), means)


def test_an_empty_sequence_has_the_first_state():
    net = Recurrent(2, 4, 3, bidirectional=True).double()
    close(net(torch.zeros(2, 0, 2, dtype=torch.float64)), net.output.bias.repeat(2, 1))
    for_each = Recurrent(2, 4, 3, pooling=None)
    assert for_each(torch.zeros(2, 0, 2)).shape == (2, 0, 3)


def test_the_unknown_token_carries_no_information_and_does_not_learn():
    net = Recurrent(5, 4, 3, embedding=6).double()
    assert not net.embedding.weight[0].any()
    net(torch.tensor([[0, 1, 2], [3, 0, 4]])).sum().backward()
    assert not net.embedding.weight.grad[0].any()
    assert net.embedding.weight.grad[1:].any(dim=1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gates_are_those_of_the_network(kind):
    net = Recurrent(
        3, 4, 2, cell=kind, n_layers=2, bidirectional=True, pooling=None
    ).double()
    lengths = torch.tensor([5, 2, 0])
    x = numbers(3, 5, 3)
    states = torch.cat(
        [net.gates(x, lengths, 1, back)["state"] for back in (False, True)], dim=2
    )
    inside = within(x, lengths)
    close(net.output(states)[inside], net(x, lengths)[inside])
    assert torch.isnan(states[~inside]).all()
    for name, value in net.gates(x, lengths).items():
        if name in ("forget", "input", "output", "update", "reset"):
            assert ((value[inside] > 0) & (value[inside] < 1)).all()


def test_turning_round_is_its_own_inverse():
    x, lengths = numbers(3, 5, 2), torch.tensor([5, 3, 0])
    back = turned(x, lengths)
    assert torch.equal(turned(back, lengths), x)
    assert torch.equal(back[1], x[1][[2, 1, 0, 3, 4]])


def test_the_forget_gate_begins_open():
    net = Recurrent(2, 4, 1)
    layer = net.layers[0][0]
    assert (layer.bias_ih_l0 + layer.bias_hh_l0).tolist() == [0] * 4 + [1] * 4 + [0] * 8
    for gate in layer.weight_hh_l0.detach().chunk(4):
        close(gate @ gate.T, torch.eye(4), tol=1e-5)


@pytest.mark.parametrize(
    "wrong, told",
    [
        ({"cell": "lstn"}, "cell"),
        ({"pooling": "max"}, "pool"),
        ({"n_layers": 0}, "lay"),
    ],
)
def test_wrong_arguments_are_named(wrong, told):
    with pytest.raises(ValueError, match=told):
        Recurrent(2, 3, 1, **wrong)


def test_every_configuration_is_rebuilt_from_its_config():
    choices = itertools.product(KINDS, (1, 2), (False, True), (None, 3), ("mean", None))
    for cell, layers, both, embedding, pooling in choices:
        net = Recurrent(
            4,
            3,
            2,
            cell=cell,
            n_layers=layers,
            bidirectional=both,
            embedding=embedding,
            pooling=pooling,
        )
        again = type(net)(**net.config)
        again.load_state_dict(net.state_dict())
        x = torch.tensor([[1, 2, 3]]) if embedding else torch.randn(1, 3, 4)
        assert torch.equal(net(x), again(x))
