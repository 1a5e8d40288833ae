"""Recurrent networks: a state that is carried along a sequence.

    hᵗ = F(hᵗ⁻¹, xᵗ),   zᵗ = V hᵗ + c

F is a cell of ``cells.py``, computed by torch's fused layers: stacked, in both
directions, on sequences of unequal length. Padding changes no output: forwards it comes
too late, backwards each sequence is turned round by itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from certus.neural_network.modules.arguments import require_choice, require_count
from certus.neural_network.modules.cells import (
    Cell,
    ElmanCell,
    GRUCell,
    LSTMCell,
    Values,
    unroll,
)

LAYERS: dict[str, Any] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
CELLS: dict[type, type[Cell]] = {nn.RNN: ElmanCell, nn.LSTM: LSTMCell, nn.GRU: GRUCell}


class Recurrent(nn.Module):
    """Recurrent layers on sequences of numbers or tokens, and a linear output.

    Parameters
    ----------
    n_inputs : int
        Numbers at each step; with ``embedding`` the number of tokens, where token 0
        stands for all that are unknown and carries no information.
    hidden : int
        Numbers in a state, in each direction.
    n_outputs : int
        Numbers given for each sequence, or for each of its elements.
    cell : {"lstm", "gru", "rnn"}, default="lstm"
        Kind of recurrence; the LSTM's forget gate begins open, with bias 1.
    n_layers : int, default=1
        How many recurrences stand on each other; each sees the states of the one below.
    bidirectional : bool, default=False
        Each layer reads backwards as well; both states stand side by side.
    dropout : float, default=0.0
        Share of the numbers left out, in training, above each layer.
    embedding : int, default=None
        Numbers that stand for a token, where inputs are tokens.
    pooling : {"last", "mean", None}, default="last"
        The output is made from the state at the end of each reading, from the mean of
        all states, or, with None, from every state.

    Attributes
    ----------
    config : dict
        The parameters above.
    output : nn.Linear
        The head.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import Recurrent
    >>> net = Recurrent(2, 16, 3, cell="gru", bidirectional=True)
    >>> net(torch.zeros(5, 7, 2), torch.tensor([7, 3, 1, 0, 7])).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        n_inputs: int,
        hidden: int,
        n_outputs: int,
        *,
        cell: str = "lstm",
        n_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        embedding: int | None = None,
        pooling: str | None = "last",
    ) -> None:
        super().__init__()
        for name, value in (("n_inputs", n_inputs), ("hidden", hidden)):
            require_count(name, value)
        require_count("n_layers", n_layers)
        require_choice("cell", cell, tuple(LAYERS))
        require_choice("pooling", pooling, ("last", "mean", None))
        self.config: dict[str, Any] = {
            "n_inputs": n_inputs,
            "hidden": hidden,
            "n_outputs": n_outputs,
            "cell": cell,
            "n_layers": n_layers,
            "bidirectional": bidirectional,
            "dropout": dropout,
            "embedding": embedding,
            "pooling": pooling,
        }
        self.embedding = None
        if embedding is not None:
            self.embedding = nn.Embedding(n_inputs, embedding, padding_idx=0)
        width = n_inputs if embedding is None else embedding
        directions = 2 if bidirectional else 1
        self.layers: Any = nn.ModuleList()
        for _ in range(n_layers):
            readers = [new_layer(cell, width, hidden) for _ in range(directions)]
            self.layers.append(nn.ModuleList(readers))
            width = directions * hidden
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, n_outputs)

    def remember(self, span: int) -> Recurrent:
        """Begin with memories that last for up to ``span`` steps, of all durations.

        A gate of bias b keeps for about exp(b) steps; b becomes the logarithm of a
        number between 1 and ``span`` − 1, drawn for each unit. An
        LSTM that keeps a memory this long also writes to it this slowly. Dependencies
        over 100 steps are learnt from there in a few hundred batches, and from a bias
        of 1 often not at all.

        Parameters
        ----------
        span : int
            The longest distance of elements that depend on each other; the length of
            the sequences, if nothing else is known. Less than 3 changes nothing.

        Returns
        -------
        Recurrent
            Itself.
        """
        hidden = self.config["hidden"]
        if span < 3 or self.config["cell"] == "rnn":
            return self
        with torch.no_grad():
            for layer in (reader for readers in self.layers for reader in readers):
                bias = layer.bias_ih_l0
                keep = torch.log(1 + (span - 2) * torch.rand(hidden)).to(bias)
                # In torch's order the second gate keeps; an LSTM's first one writes.
                bias[hidden : 2 * hidden] = keep
                if self.config["cell"] == "lstm":
                    bias[:hidden] = -keep
        return self

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """From (batch, time, n_inputs), or (batch, time) tokens, to outputs.

        ``lengths`` says how many elements of each sequence count; all by default. The
        output is (batch, n_outputs), or (batch, time, n_outputs) without pooling.
        """
        h, ends = self._start(x, lengths)
        for readers in self.layers:
            h = self.dropout(both_ways(readers, h, ends))  # (batch, time, width)
        pooling, turn = self.config["pooling"], self.config["hidden"]
        if pooling == "mean":
            n = ends.clamp(min=1).to(h.dtype)[:, None]
            h = torch.where(within(h, ends)[..., None], h, 0).sum(dim=1) / n
        elif pooling == "last":
            rows = torch.arange(len(h), device=h.device)
            last = h[rows, (ends - 1).clamp(min=0)]
            # Read backwards, the end of a sequence is its first element.
            h = torch.cat([last[:, :turn], h[:, 0, turn:]], dim=1)
            h = torch.where((ends > 0)[:, None], h, 0)  # nothing read: the first state
        else:
            h = h[:, : x.shape[1]]
        return self.output(h)

    def gates(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        layer: int = 0,
        backwards: bool = False,
    ) -> Values:
        """What happens inside a layer at each step: gates, memory and state.

        Computed by the cells written out above, with the weights of this network, in
        evaluation mode. Beyond the end of a sequence there is NaN.

        Parameters
        ----------
        x : Tensor of shape (batch, time, n_inputs) or (batch, time)
            Sequences.
        lengths : Tensor of shape (batch,), optional
            How many elements of each count.
        layer : int, default=0
            Which of the layers.
        backwards : bool, default=False
            Which reading, where there are two.

        Returns
        -------
        dict of Tensor of shape (batch, time, hidden)
            "forget", "input", "output", "candidate", "memory" and "state" of an LSTM;
            "update", "reset", "candidate" and "state" of a GRU; "state" otherwise.
        """
        with torch.no_grad():
            h, ends = self._start(x, lengths)
            for readers in self.layers[:layer]:
                h = both_ways(readers, h, ends)
            cell = written_out(self.layers[layer][1 if backwards else 0])
            found = unroll(cell, turned(h, ends) if backwards else h)
            if backwards:
                found = {name: turned(v, ends) for name, v in found.items()}
            beyond = ~within(h, ends)[..., None]
            return {
                name: v.masked_fill(beyond, torch.nan)[:, : x.shape[1]]
                for name, v in found.items()
            }

    def _start(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """What the first layer reads, of one step at least, and where it ends."""
        if lengths is None:
            lengths = torch.full((len(x),), x.shape[1])
        if x.shape[1] == 0:
            x = x.new_zeros(len(x), 1, *x.shape[2:])
        h = x if self.embedding is None else self.embedding(x)
        return h, lengths.to(h.device)


def new_layer(kind: str, n_inputs: int, hidden: int) -> nn.RNNBase:
    """A layer of torch with the initial weights of our cells."""
    layer: Any = LAYERS[kind](n_inputs, hidden, batch_first=True)
    cell = CELLS[LAYERS[kind]](n_inputs, hidden)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(cell.W)
        layer.weight_ih_l0.copy_(cell.U)
        layer.bias_ih_l0.copy_(cell.b)
        layer.bias_hh_l0.zero_()
    return layer


def written_out(layer: nn.RNNBase, number: int = 0, backwards: bool = False) -> Cell:
    """A recurrent layer of torch as a cell of ours, with a copy of its weights.

    Parameters
    ----------
    layer : nn.RNN, nn.LSTM or nn.GRU
        A GRU becomes one whose reset comes after the product.
    number : int, default=0
        Which of its layers.
    backwards : bool, default=False
        Which direction, where there are two.

    Returns
    -------
    ElmanCell, LSTMCell or GRUCell
        To be unrolled.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import unroll, written_out
    >>> layer = torch.nn.LSTM(2, 3, batch_first=True)
    >>> x = torch.randn(5, 7, 2)
    >>> torch.allclose(unroll(written_out(layer), x)["state"], layer(x)[0], atol=1e-6)
    True
    """
    suffix = f"l{number}" + ("_reverse" if backwards else "")
    W, U = getattr(layer, f"weight_hh_{suffix}"), getattr(layer, f"weight_ih_{suffix}")
    hidden, n_inputs = W.shape[1], U.shape[1]
    if isinstance(layer, nn.GRU):
        cell: Cell = GRUCell(n_inputs, hidden, reset="after")
    elif isinstance(layer, nn.LSTM):
        cell = LSTMCell(n_inputs, hidden)
    else:
        cell = ElmanCell(n_inputs, hidden, activation=str(layer.nonlinearity))
    cell = cell.to(W)
    with torch.no_grad():
        cell.W.copy_(W)
        cell.U.copy_(U)
        cell.b.zero_()
        if layer.bias:
            on_state = getattr(layer, f"bias_hh_{suffix}").clone()
            if isinstance(cell, GRUCell):
                cell.b_state.copy_(on_state[2 * hidden :])
                on_state[2 * hidden :] = 0
            cell.b.copy_(getattr(layer, f"bias_ih_{suffix}") + on_state)
        if isinstance(cell, GRUCell):  # torch's update gate is 1 − z = σ(−…)
            for weight in (cell.W, cell.U, cell.b):
                weight[hidden : 2 * hidden] *= -1
    return cell


def both_ways(readers: nn.ModuleList, x: Tensor, lengths: Tensor) -> Tensor:
    """The states of one layer, forwards and, if there are two, backwards beside them.

    Packed sequences give the same result, but take six times as long on a processor.
    """
    states, _ = readers[0](x)
    if len(readers) == 1:
        return states
    back, _ = readers[1](turned(x, lengths))
    return torch.cat([states, turned(back, lengths)], dim=2)


def turned(x: Tensor, lengths: Tensor) -> Tensor:
    """Each sequence back to front, its padding where it was."""
    t = torch.arange(x.shape[1], device=x.device)
    mirror = lengths[:, None] - 1 - t  # (batch, time), negative beyond the end
    source = torch.where(mirror >= 0, mirror, t)
    return x.gather(1, source[..., None].expand_as(x))


def within(x: Tensor, lengths: Tensor) -> Tensor:
    """Which elements count: (batch, time), False beyond the end of a sequence."""
    return torch.arange(x.shape[1], device=x.device) < lengths[:, None]
