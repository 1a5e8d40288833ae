"""Sequences to sequences: an encoder, and a decoder that reads its states.

    p(y | x) = Πₜ p(yᵗ | x, y^{<t}),   hᵗ = F(hᵗ⁻¹, yᵗ⁻¹),   yᵗ ~ softmax(V g(hᵗ, cᵗ))

The decoder starts from the encoder's output for x, receives its previous output, and
with attention mixes the encoder's states by how well they answer its own, cᵗ = Σ αₛ eₛ.
Output 0 ends a sequence. Tokens are numbers; see :class:`certus.neural_network.Seq2Seq`
for the estimator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.arguments import require_choice, require_count
from certus.neural_network.modules.attention import Attention, Clock, EncodedSources
from certus.neural_network.modules.rnn import LAYERS, both_ways, new_layer, within
from certus.neural_network.modules.translation import (
    DecodingTransformer,
    EncodingTransformer,
)

#: The output that ends a sequence; also what fills the inputs of shorter ones.
END = 0


class Encoder(nn.Module):
    """Reads tokens forwards and backwards.

    Parameters
    ----------
    n_tokens : int
        Number of different tokens, with 0 for padding.
    hidden : int
        Width of a state, in each direction.
    cell : {"gru", "lstm", "rnn"}
        Kind of recurrence.
    n_layers : int
        How many recurrences stand on each other.
    dropout : float
        Share of embeddings and states that training leaves out.
    """

    def __init__(
        self, n_tokens: int, hidden: int, cell: str, n_layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.width = 2 * hidden
        self.embedding = nn.Embedding(n_tokens, hidden)
        self.begun, self.left = Clock(hidden), Clock(hidden)
        self.dropout = nn.Dropout(dropout)
        self.layers: Any = nn.ModuleList()
        for i in range(n_layers):
            seen = hidden if i == 0 else self.width
            readers = [new_layer(cell, seen, hidden) for _ in range(2)]
            self.layers.append(nn.ModuleList(readers))

    def forward(self, source: Tensor, lengths: Tensor) -> EncodedSources:
        """Encode padded tokens (batch, time) of these lengths, each at least 1."""
        lengths = lengths.to(source.device)
        t = torch.arange(source.shape[1], device=source.device)
        states = self.embedding(source) + self.begun(t)  # (batch, time, hidden)
        states = states + self.left(lengths[:, None] - t)
        for readers in self.layers:  # from here on (batch, time, 2·hidden)
            states = both_ways(readers, self.dropout(states), lengths)
        last = states[torch.arange(len(states), device=states.device), lengths - 1]
        half = self.width // 2
        # Forwards the last state has read all, backwards the first.
        summary = torch.cat([last[:, :half], states[:, 0, half:]], dim=1)
        return EncodedSources(summary, self.dropout(states), within(states, lengths))


class Decoder(nn.Module):
    """Writes tokens, each from its state and, with attention, from a context.

    Parameters
    ----------
    n_tokens : int
        Number of different outputs; output 0 ends a sequence.
    hidden : int
        Width of its state.
    width : int
        Width of what the encoder gives.
    cell, n_layers, dropout : str, int, float
        As of :class:`Encoder`.
    attention : {None, "dot", "additive"}
        Whether and how the encoder's states are looked at in each step.
    feedback : bool
        Whether it receives its previous output. Without it outputs depend on each other
        through the source alone.
    """

    def __init__(
        self,
        n_tokens: int,
        hidden: int,
        width: int,
        cell: str,
        n_layers: int,
        dropout: float,
        attention: str | None,
        feedback: bool,
    ) -> None:
        super().__init__()
        self.feedback, self.start_token = feedback, n_tokens
        self.embedding = nn.Embedding(n_tokens + 1, hidden)
        self.clock = Clock(hidden)
        self.bridge = nn.Linear(width, n_layers * hidden)
        self.dropout = nn.Dropout(dropout)
        stack = [new_layer(cell, hidden, hidden) for _ in range(n_layers)]
        self.layers: Any = nn.ModuleList(stack)
        self.attention, seen = None, hidden
        if attention is not None:
            self.attention, seen = Attention(hidden, width, attention), hidden + width
        self.mix = nn.Linear(seen, hidden)
        self.output = nn.Linear(hidden, n_tokens)

    def start(self, encoded: EncodedSources) -> Any:
        """The first state of each layer, made from the encoder's summary."""
        h = torch.tanh(self.bridge(encoded.summary))[None]
        parts = h.chunk(len(self.layers), dim=2)  # each (1, batch, hidden)
        if isinstance(self.layers[0], nn.LSTM):
            return tuple((part, torch.zeros_like(part)) for part in parts)
        return parts

    def forward(
        self,
        previous: Tensor,
        state: Any,
        encoded: EncodedSources,
        begun: int = 0,
        weights: bool = True,
    ) -> tuple[Tensor, Any, Tensor | None]:
        """Scores of the next outputs after each of some previous ones.

        Parameters
        ----------
        previous : Tensor of shape (batch, steps)
            Outputs that were made before; ``start_token`` at the beginning.
        state : tuple, for each layer of a Tensor or a pair of them
            The states before the first of them.
        encoded : EncodedSources
            The sources.
        begun : int
            How many steps were made before.
        weights : bool
            Whether what attention looked at is needed; here it costs nothing.

        Returns
        -------
        scores : Tensor of shape (batch, steps, n_tokens)
            Their softmax is the distribution of the next output.
        state : tuple, for each layer of a Tensor or a pair of them
            The states after the last step.
        weights : Tensor of shape (batch, steps, time) or None
            What attention looked at.
        """
        if not self.feedback:
            previous = torch.full_like(previous, self.start_token)
        t = begun + torch.arange(previous.shape[1], device=previous.device)
        h = self.embedding(previous) + self.clock(t)  # (batch, steps, hidden)
        after = []
        for layer, before in zip(self.layers, state):
            h, last = layer(self.dropout(h), before)
            after.append(last)
        looks = None
        if self.attention is not None:
            context, looks = self.attention(h, encoded.states, encoded.mask)
            h = torch.cat([h, context], dim=2)  # (batch, steps, hidden + width)
        z = self.output(self.dropout(torch.tanh(self.mix(h))))
        return z, tuple(after), looks


class DecodedSequences(NamedTuple):
    """Outputs that decoding found."""

    tokens: Tensor  # (batch, steps), END from where a sequence is over
    log_probability: Tensor  # (batch,)


class EncoderDecoder(nn.Module):
    """An encoder and a decoder, recurrent ones or transformers.

    Parameters
    ----------
    n_source, n_target : int
        Number of different tokens of sources (0 fills them) and targets (0 ends them).
    network : {"recurrent", "transformer"}, default="recurrent"
        What both of them are. A transformer always looks at the encoder's states: it
        has no ``cell``, and ``attention`` is without effect.
    hidden : int, default=128
        Width of states and embeddings.
    cell : {"gru", "lstm", "rnn"}, default="gru"
        Kind of recurrence.
    heads : int, default=4
        Heads of a transformer; ``hidden`` is a multiple of them.
    n_layers : int, default=1
        How many layers stand on each other, in encoder and decoder.
    attention : {"dot", "additive", None}, default="dot"
        How the decoder looks at the encoder's states.
    feedback : bool, default=True
        Whether the decoder receives its previous output.
    forcing : float, default=1.0
        In training, the probability that it receives the true one (teacher forcing)
        and not one drawn from its own distribution.
    forcing_decay : float, default=0.0
        Scheduled sampling: above 0, the probability falls from 1 to ``forcing`` by this
        much with each training batch.
    dropout : float, default=0.0
        Share of embeddings and states that training leaves out.
    encoder : nn.Module, optional
        In place of the recurrent one: gives :class:`EncodedSources` for its inputs, of
        a ``width`` that it has as attribute. ``n_source`` is not used then.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import EncoderDecoder
    >>> net = EncoderDecoder(5, 4, hidden=8).eval()
    >>> source, lengths = torch.tensor([[1, 2, 3], [4, 0, 0]]), torch.tensor([3, 1])
    >>> target = torch.tensor([[1, 2, 0], [0, -1, -1]])  # −1: nothing is asked
    >>> net(source, lengths, target).shape
    torch.Size([2, 3, 4])
    >>> net.greedy(net.encode(source, lengths), max_length=6).tokens.shape[0]
    2
    """

    encoder: Any
    batches: Tensor

    def __init__(
        self,
        n_source: int,
        n_target: int,
        *,
        network: str = "recurrent",
        hidden: int = 128,
        cell: str = "gru",
        heads: int = 4,
        n_layers: int = 1,
        attention: str | None = "dot",
        feedback: bool = True,
        forcing: float = 1.0,
        forcing_decay: float = 0.0,
        dropout: float = 0.0,
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_choice("network", network, ("recurrent", "transformer"))
        require_count("hidden", hidden)
        require_count("n_layers", n_layers)
        require_choice("cell", cell, tuple(LAYERS))
        require_choice("attention", attention, ("dot", "additive", None))
        self.config: dict[str, Any] = {
            "n_source": n_source,
            "n_target": n_target,
            "network": network,
            "hidden": hidden,
            "cell": cell,
            "heads": heads,
            "n_layers": n_layers,
            "attention": attention,
            "feedback": feedback,
            "forcing": forcing,
            "forcing_decay": forcing_decay,
            "dropout": dropout,
            "encoder": encoder,
        }
        plain, made = network == "recurrent", (n_layers, dropout)
        if encoder is None and plain:
            encoder = Encoder(n_source, hidden, cell, *made)
        elif encoder is None:
            encoder = EncodingTransformer(n_source, hidden, heads, *made)
        self.encoder = encoder
        sizes = n_target, hidden, int(self.encoder.width)
        self.decoder: Decoder | DecodingTransformer
        if plain:
            self.decoder = Decoder(*sizes, cell, *made, attention, feedback)
        else:
            self.decoder = DecodingTransformer(*sizes, heads, *made, feedback)
        self.forcing, self.forcing_decay = forcing, forcing_decay
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def encode(self, *inputs: Tensor) -> EncodedSources:
        """What the decoder sees of the sources."""
        encoded: EncodedSources = self.encoder(*inputs)
        return encoded

    def forward(self, *inputs: Tensor) -> Tensor:
        """Scores (batch, steps, n_target) of targets, given those before each.

        Parameters
        ----------
        *inputs : Tensor
            What the encoder takes: padded sources (batch, time) and their lengths; then
            targets (batch, steps), with END after the last token and −1 beyond it.
        """
        *sources, target = inputs
        encoded = self.encode(*sources)
        forcing = self.forcing_now() if self.training else 1.0
        if forcing >= 1.0:
            return self._forced(encoded, target)[0]
        return self._sampled(encoded, target, forcing)

    def forcing_now(self) -> float:
        """The probability of the true previous output; counts this batch."""
        if not self.forcing_decay:
            return self.forcing
        now = max(self.forcing, 1.0 - self.forcing_decay * int(self.batches))
        self.batches += 1
        return now

    def _forced(
        self, encoded: EncodedSources, target: Tensor, weights: bool = False
    ) -> tuple[Tensor, Any, Any]:
        """All steps at once, given the true previous outputs."""
        first = torch.full_like(target[:, :1], self.decoder.start_token)
        previous = torch.cat([first, target[:, :-1].clamp(min=END)], dim=1)
        found: tuple[Tensor, Any, Any] = self.decoder(
            previous, self.decoder.start(encoded), encoded, weights=weights
        )
        return found

    def _sampled(
        self, encoded: EncodedSources, target: Tensor, forcing: float
    ) -> Tensor:
        """Step by step, given the true previous output with probability ``forcing``."""
        state = self.decoder.start(encoded)
        previous = torch.full_like(target[:, :1], self.decoder.start_token)
        scores = []
        for t in range(target.shape[1]):
            z, state, _ = self.decoder(previous, state, encoded, t)  # z (batch, 1, n)
            scores.append(z)
            own = torch.multinomial(torch.softmax(z[:, 0].detach(), dim=1), 1)
            true = target[:, t : t + 1].clamp(min=END)
            told = torch.rand(true.shape, device=true.device) < forcing
            previous = torch.where(told, true, own)
        return torch.cat(scores, dim=1)

    # -- decoding -----------------------------------------------------------------

    def greedy(self, encoded: EncodedSources, max_length: int) -> DecodedSequences:
        """The most probable output in each step, given its own previous ones."""
        return self.beam(encoded, max_length, 1)

    @torch.no_grad()
    def beam(
        self, encoded: EncodedSources, max_length: int, width: int
    ) -> DecodedSequences:
        """The most probable of the sequences that a search of this width meets.

        In each step the ``width`` best beginnings are kept, finished ones among them;
        after ``max_length`` tokens the next must be the end.
        """
        n, k, V = len(encoded.summary), width, self.config["n_target"]
        spread = EncodedSources(*(part.repeat_interleave(k, dim=0) for part in encoded))
        state = self.decoder.start(spread)
        device = encoded.summary.device
        # (batch, width): of the equal beginnings only the first competes.
        total = spread.summary.new_full((n, k), -torch.inf)
        total[:, 0] = 0.0
        over = torch.zeros((n, k), dtype=torch.bool, device=device)
        tokens = torch.empty((n, k, 0), dtype=torch.int64, device=device)
        previous = torch.full((n * k, 1), self.decoder.start_token, device=device)
        nothing = total.new_full((V,), -torch.inf)
        nothing[END] = 0.0  # a finished sequence goes on with END, at no cost
        for t in range(max_length + 1):
            z, state, _ = self.decoder(previous, state, spread, t)
            gain = F.log_softmax(z[:, 0], dim=1).reshape(n, k, V)
            if t == max_length:
                gain = gain + nothing
            gain = torch.where(over[..., None], nothing, gain)
            total, flat = (total[..., None] + gain).reshape(n, k * V).topk(k, dim=1)
            parent, token = flat // V, flat % V  # (batch, width)
            before = tokens.gather(1, parent[..., None].expand(-1, -1, t))
            tokens = torch.cat([before, token[..., None]], dim=2)
            over = over.gather(1, parent) | (token == END)
            if bool(over.all()):
                break
            rows = (parent + k * torch.arange(n, device=device)[:, None]).reshape(-1)
            state = _chosen(state, rows)
            previous = token.reshape(-1, 1)
        return DecodedSequences(tokens[:, 0], total[:, 0])

    @torch.no_grad()
    def attend(self, encoded: EncodedSources, tokens: Tensor) -> Tensor | None:
        """Attention (batch, steps, time) while these tokens (batch, steps) are made."""
        weights: Tensor | None = self._forced(encoded, tokens, weights=True)[2]
        return weights


def _chosen(state: Any, rows: Tensor) -> Any:
    """The states of some rows; each is (1, batch, ...)."""
    if isinstance(state, tuple):
        return tuple(_chosen(part, rows) for part in state)
    return state[:, rows]
