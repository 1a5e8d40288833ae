"""The encoder and the decoder of sequence to sequence as transformers.

    encoder:  x ← embedding + places, then layers of attention to all of the source
    decoder:  y ← embedding + place, then layers of attention to what was written, and
              to the encoder's states

They stand in for the recurrent ones of
:class:`certus.neural_network.modules.EncoderDecoder`. A place is marked by its distance
from the beginning, in a source also by that from the end, so that sequences may be of
any length.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from certus.neural_network.modules.attention import Clock, EncodedSources
from certus.neural_network.modules.transformer import Block

#: Keys and values of each layer, (1, batch, heads, steps, hidden / heads).
State = tuple[tuple[Tensor, Tensor], ...]


class EncodingTransformer(nn.Module):
    """Reads tokens, each of which looks at all others.

    Parameters
    ----------
    n_tokens : int
        Number of different tokens, with 0 for padding.
    hidden : int
        Width of a state, a multiple of ``heads``.
    heads : int
        Heads of attention.
    n_layers : int
        How many layers stand on each other.
    dropout : float
        Share of units that training leaves out.
    """

    def __init__(
        self, n_tokens: int, hidden: int, heads: int, n_layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.width = hidden
        self.embedding = nn.Embedding(n_tokens, hidden)
        self.begun, self.left = Clock(hidden), Clock(hidden)
        self.dropout = nn.Dropout(dropout)
        self.layers: Any = _stack(hidden, heads, n_layers, dropout, cross=False)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, source: Tensor, lengths: Tensor) -> EncodedSources:
        """Encode padded tokens (batch, time) of these lengths, each at least 1."""
        lengths = lengths.to(source.device)
        t = torch.arange(source.shape[1], device=source.device)
        mask = t < lengths[:, None]  # (batch, time)
        h = self.embedding(source) + self.begun(t)  # (batch, time, hidden)
        h = self.dropout(h + self.left(lengths[:, None] - t))
        for block in self.layers:
            h, _ = block(h, causal=False, mask=mask)
        states = self.norm(h)
        inside = mask[..., None].to(states.dtype)
        summary = (states * inside).sum(dim=1) / inside.sum(dim=1)
        return EncodedSources(summary, states, mask)


class DecodingTransformer(nn.Module):
    """Writes tokens, each from those before it and from the encoder's states.

    Parameters
    ----------
    n_tokens : int
        Number of different outputs; output 0 ends a sequence.
    hidden : int
        Width of its states, a multiple of ``heads``.
    width : int
        Width of what the encoder gives.
    heads, n_layers, dropout : int, int, float
        As of :class:`EncodingTransformer`.
    feedback : bool
        Whether it receives its previous output.
    """

    def __init__(
        self,
        n_tokens: int,
        hidden: int,
        width: int,
        heads: int,
        n_layers: int,
        dropout: float,
        feedback: bool,
    ) -> None:
        super().__init__()
        self.feedback, self.start_token = feedback, n_tokens
        self.attention = "heads"
        self.embedding = nn.Embedding(n_tokens + 1, hidden)
        self.clock = Clock(hidden)
        self.bridge = nn.Linear(width, hidden) if width != hidden else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.layers: Any = _stack(hidden, heads, n_layers, dropout, cross=True)
        self.norm = nn.LayerNorm(hidden)
        self.output = nn.Linear(hidden, n_tokens)

    def start(self, encoded: EncodedSources) -> State:
        """Keys and values of the steps so far: none."""
        heads = self.layers[0].attention.heads
        shape = 1, len(encoded.states), heads, 0, self.norm.weight.shape[0] // heads
        nothing = encoded.states.new_empty(shape)
        return ((nothing, nothing),) * len(self.layers)

    def forward(
        self,
        previous: Tensor,
        state: State,
        encoded: EncodedSources,
        begun: int = 0,
        weights: bool = False,
    ) -> tuple[Tensor, State, Tensor | None]:
        """Scores of the next outputs after each of some previous ones.

        Parameters
        ----------
        previous : Tensor of shape (batch, steps)
            Outputs that were made before; ``start_token`` at the beginning.
        state : tuple
            Keys and values of the steps before them.
        encoded : EncodedSources
            The sources.
        begun : int
            How many steps were made before.
        weights : bool
            Whether to return attention; the state is not kept then.

        Returns
        -------
        scores : Tensor of shape (batch, steps, n_tokens)
            Their softmax is the distribution of the next output.
        state : tuple
            Keys and values of all steps.
        weights : Tensor of shape (batch, steps, time) or None
            What was looked at in the source, on average over layers and heads.
        """
        if not self.feedback:
            previous = torch.full_like(previous, self.start_token)
        t = begun + torch.arange(previous.shape[1], device=previous.device)
        h = self.dropout(self.embedding(previous) + self.clock(t))
        source, kept = self.bridge(encoded.states), []
        for block, (k, v) in zip(self.layers, state):
            h, found = block(
                h,  # (batch, steps, hidden)
                causal=True,
                source=source,
                source_mask=encoded.mask,
                cache=(k[0], v[0]),
                weights=weights,
            )
            kept.append(found)
        z = self.output(self.norm(h))
        if weights:
            looks = torch.stack([cross.mean(dim=1) for _, cross in kept])
            return z, state, looks.mean(dim=0)
        return z, tuple((k[None], v[None]) for k, v in kept), None


def _stack(
    width: int, heads: int, n_layers: int, dropout: float, *, cross: bool
) -> nn.ModuleList:
    config: dict[str, Any] = {"norm": "pre", "position": None, "activation": "gelu"}
    config |= {"width": width, "heads": heads, "hidden": 4 * width, "dropout": dropout}
    config |= {"bias": True, "qk_norm": False}
    return nn.ModuleList(Block(config, cross) for _ in range(n_layers))
