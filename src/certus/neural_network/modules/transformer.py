"""Transformers: attention and a small network for each position, layer after layer.

    x ← x + Attention(LN(x)),   x ← x + W₂ φ(W₁ LN(x))      (norm="pre")
    x ← LN(x + Attention(x)),   x ← LN(x + W₂ φ(W₁ x))      (norm="post", the original)

A decoder sees the past only and gives scores of the next token at every position; an
encoder sees all positions; both together translate: the decoder's layers also look at
what the encoder made of the source.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.arguments import require_choice, require_count
from certus.neural_network.modules.feed_forward import ACTIVATIONS, FeedForward
from certus.neural_network.modules.multi_head import (
    Cache,
    MultiHeadAttention,
    sinusoidal_positions,
)

KINDS = ("decoder", "encoder", "both")
POSITIONS = ("rotary", "learned", "sinusoidal", None)

#: Published models by name; ``Transformer(**PUBLISHED["gpt2"])`` builds one. On
#: ``torch.device("meta")`` it takes no memory, so that any can be counted.
PUBLISHED: dict[str, dict[str, Any]] = {
    name: {
        "n_tokens": n_tokens,
        "n_layers": n_layers,
        "width": width,
        "heads": heads,
        "context": context,
        "position": "learned",
        "activation": "gelu_tanh",
        **more,
    }
    for name, n_tokens, n_layers, width, heads, context, more in (
        ("gpt1", 40_478, 12, 768, 12, 512, {"norm": "post"}),
        ("gpt2", 50_257, 12, 768, 12, 1024, {}),
        ("gpt2-xl", 50_257, 48, 1600, 25, 1024, {}),
        ("gpt3", 50_257, 96, 12_288, 96, 2048, {}),
        (
            "bert-base",
            30_522,
            12,
            768,
            12,
            512,
            {"kind": "encoder", "norm": "post", "segments": 2, "activation": "gelu"},
        ),
    )
}


class Block(nn.Module):
    """One layer: self-attention, attention to a source if any, feed-forward."""

    def __init__(self, config: dict[str, Any], cross: bool) -> None:
        super().__init__()
        width, bias = config["width"], config["bias"]
        options = {"bias": bias, "dropout": config["dropout"]}
        options["qk_norm"] = config["qk_norm"]
        rotary = config["position"] == "rotary"
        self.first = config["norm"] == "pre"
        self.attention = MultiHeadAttention(
            width, config["heads"], rotary=rotary, **options
        )
        self.attention_norm = nn.LayerNorm(width, bias=bias)
        self.cross: MultiHeadAttention | None = None
        if cross:
            self.cross = MultiHeadAttention(width, config["heads"], **options)
            self.cross_norm = nn.LayerNorm(width, bias=bias)
        self.feed_forward = FeedForward(
            width, config["hidden"], config["activation"], bias
        )
        self.feed_forward_norm = nn.LayerNorm(width, bias=bias)
        self.dropout = nn.Dropout(config["dropout"])

    def forward(
        self,
        x: Tensor,
        *,
        causal: bool,
        mask: Tensor | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        cache: Cache | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, Any]:
        """The layer's output (batch, time, width); and its cache or its weights.

        With a source its weights are a pair, the second of them over the source.
        """
        kept: list[Any] = []

        def attend(h: Tensor) -> Tensor:
            z, found = self.attention(
                h, causal=causal, mask=mask, cache=cache, weights=weights
            )
            kept.append(found)
            return z

        def look(h: Tensor) -> Tensor:
            assert self.cross is not None
            z, found = self.cross(h, source, mask=source_mask, weights=weights)
            kept.append(found)
            return z

        x = self._add(x, self.attention_norm, attend)
        if self.cross is not None:
            x = self._add(x, self.cross_norm, look)
        x = self._add(x, self.feed_forward_norm, self.feed_forward)
        return x, tuple(kept) if weights and self.cross is not None else kept[0]

    def _add(
        self, x: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]
    ) -> Tensor:
        if self.first:
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))


class TransformerOutput(NamedTuple):
    """Scores or states of each position; keys and values, or attention weights."""

    output: Tensor
    kept: tuple[Any, ...]


class Transformer(nn.Module):
    """A decoder, an encoder, or both, over tokens 0 … n_tokens − 1.

    Parameters
    ----------
    n_tokens : int
        Number of different tokens.
    kind : {"decoder", "encoder", "both"}, default="decoder"
        A decoder scores the next token at every position from the tokens up to it. An
        encoder gives states that depend on all positions. "both" encodes a source and
        scores the next target token.
    n_layers, width, heads : int
        Layers (of each part), numbers in a vector, heads of attention. An encoder may
        have 0 layers: its states are the vectors of the tokens themselves.
    context : int, default=256
        Most positions that fit in at once.
    hidden : int, optional
        Width inside of the feed-forward part; 4 × width by default, for "swiglu" the
        8/3 × width that has as many parameters.
    norm : {"pre", "post"}, default="pre"
        Whether a layer normalises what goes into its parts, or what comes out.
    position : {"rotary", "learned", "sinusoidal", None}, default="rotary"
        How places are marked: by turning queries and keys, by a vector that is learnt
        for each place, by fixed sines and cosines, or not at all.
    activation : {"gelu", "gelu_tanh", "relu", "relu2", "swiglu"}, default="relu2"
        Activation of the feed-forward part; "relu2" is max(0, x)².
    qk_norm : bool, default=False
        Whether queries and keys are normalised before their product.
    bias : bool, default=True
        Whether linear maps and norms have offsets.
    tied : bool, default=True
        Whether scores of tokens come from the embeddings themselves.
    segments : int, default=0
        Kinds of segment whose embeddings are added to those of tokens (BERT has 2). A
        model with segments also normalises its embeddings and has a dense layer above
        the first position (:meth:`pool`), as BERT has.
    dropout : float, default=0.0
        Share of numbers that training leaves out.

    Attributes
    ----------
    config : dict
        The parameters above.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import Transformer, count_parameters
    >>> net = Transformer(100, n_layers=2, width=32, heads=4)
    >>> net(torch.zeros(1, 7, dtype=torch.long)).output.shape
    torch.Size([1, 7, 100])
    >>> from certus.neural_network.modules import PUBLISHED
    >>> with torch.device("meta"):
    ...     f"{count_parameters(Transformer(**PUBLISHED['gpt3'])):,}"
    '174,604,259,328'
    """

    positions: Tensor | None

    def __init__(
        self,
        n_tokens: int,
        *,
        kind: str = "decoder",
        n_layers: int = 4,
        width: int = 128,
        heads: int = 4,
        context: int = 256,
        hidden: int | None = None,
        norm: str = "pre",
        position: str | None = "rotary",
        activation: str = "relu2",
        qk_norm: bool = False,
        bias: bool = True,
        tied: bool = True,
        segments: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        require_choice("kind", kind, KINDS)
        require_count("n_tokens", n_tokens)
        require_count("context", context)
        if kind != "encoder" or type(n_layers) is not int or n_layers:
            require_count("n_layers", n_layers)
        require_choice("norm", norm, ("pre", "post"))
        require_choice("position", position, POSITIONS)
        require_choice("activation", activation, ACTIVATIONS)
        if hidden is None:
            wide = 4 * width if activation != "swiglu" else 8 * width / 3
            hidden = math.ceil(wide / 8) * 8
        self.config: dict[str, Any] = {
            "n_tokens": n_tokens,
            "kind": kind,
            "n_layers": n_layers,
            "width": width,
            "heads": heads,
            "context": context,
            "hidden": require_count("hidden", hidden),
            "norm": norm,
            "position": position,
            "activation": activation,
            "qk_norm": qk_norm,
            "bias": bias,
            "tied": tied,
            "segments": segments,
            "dropout": dropout,
        }
        self.embedding = nn.Embedding(n_tokens, width)
        self.segment = nn.Embedding(segments, width) if segments else None
        self.embedding_norm = nn.LayerNorm(width) if segments else None
        self.pooler = nn.Linear(width, width) if segments else None
        table: Tensor | None = None
        if position == "learned":
            table = nn.Parameter(torch.empty(context, width))
        elif position == "sinusoidal":
            table = sinusoidal_positions(context, width)
        if isinstance(table, nn.Parameter):
            self.positions = table
        else:
            self.register_buffer("positions", table, persistent=False)
        self.dropout = nn.Dropout(dropout)
        stack = [Block(self.config, kind == "both") for _ in range(n_layers)]
        self.layers = nn.ModuleList(stack)
        self.encoder = nn.ModuleList()
        if kind == "both":
            self.encoder.extend(Block(self.config, False) for _ in range(n_layers))
        pre = norm == "pre"
        self.norm = nn.LayerNorm(width, bias=bias) if pre else nn.Identity()
        both = pre and kind == "both"
        self.source_norm = nn.LayerNorm(width, bias=bias) if both else nn.Identity()
        self.head: nn.Linear | None = None
        if kind != "encoder" and not tied:
            self.head = nn.Linear(width, n_tokens, bias=False)
        self._begin()

    def _begin(self) -> None:
        """Small normal weights, smaller where many layers add up; GPT-2's."""
        deep = 1 / math.sqrt(2 * max(1, self.config["n_layers"]))
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif "norm" not in name:
                added = name.endswith(("output.weight", "outer.weight"))
                nn.init.normal_(p, std=0.02 * (deep if added else 1.0))

    def forward(
        self,
        tokens: Tensor,
        source: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        source_mask: Tensor | None = None,
        segments: Tensor | None = None,
        cache: tuple[Cache, ...] | None = None,
        weights: bool = False,
    ) -> TransformerOutput:
        """Scores (decoder, both) or states (encoder) of each position.

        Parameters
        ----------
        tokens : int Tensor of shape (batch, time)
            At most ``context`` of them, those in the cache included.
        source : int Tensor of shape (batch, source time), for kind "both"
            The tokens to be translated.
        mask, source_mask : bool Tensor, optional
            False where a shorter sequence is over.
        segments : int Tensor of shape (batch, time), optional
            The segment that each token belongs to.
        cache : optional
            ``kept`` of a call on the tokens before these.
        weights : bool
            Keep the attention weights (batch, heads, time, time) of each layer instead;
            for kind "both" a pair, the second of them over the source.
        """
        states, kept = self.states(
            tokens,
            None if source is None else self.encode(source, source_mask),
            mask=mask,
            source_mask=source_mask,
            segments=segments,
            cache=cache,
            weights=weights,
        )
        if self.config["kind"] == "encoder":
            return TransformerOutput(states, kept)
        return TransformerOutput(self.scores(states), kept)

    def scores(self, states: Tensor) -> Tensor:
        """Scores of the next token, (..., n_tokens), from the last layer's vectors."""
        table = self.embedding.weight if self.head is None else self.head.weight
        return F.linear(states, table)

    def states(
        self,
        tokens: Tensor,
        encoded: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        source_mask: Tensor | None = None,
        segments: Tensor | None = None,
        cache: tuple[Cache, ...] | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, tuple[Any, ...]]:
        """The last layer's vectors (batch, time, width), before scores of tokens."""
        begun = 0 if cache is None else cache[0][0].shape[2]
        x, kept = self._embed(tokens, begun, segments), []
        for i, block in enumerate(self.layers):
            x, one = block(
                x,
                causal=self.config["kind"] != "encoder",
                mask=mask,
                source=encoded,
                source_mask=source_mask,
                cache=None if cache is None else cache[i],
                weights=weights,
            )
            kept.append(one)
        return self.norm(x), tuple(kept)

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        """What the decoder of kind "both" sees of a source: (batch, time, width)."""
        if self.config["kind"] != "both":
            raise ValueError('Only a transformer of kind "both" has a source.')
        x = self._embed(source, 0, None)
        for block in self.encoder:
            x, _ = block(x, causal=False, mask=mask)
        return self.source_norm(x)

    def pool(self, states: Tensor) -> Tensor:
        """One vector for each sequence, from its first position, as BERT has it."""
        if self.pooler is None:
            return states.mean(dim=1)
        return torch.tanh(self.pooler(states[:, 0]))

    def _embed(self, tokens: Tensor, begun: int, segments: Tensor | None) -> Tensor:
        """From (batch, time) to (batch, time, width)."""
        end = begun + tokens.shape[1]
        if end > self.config["context"]:
            raise ValueError(
                f"{end} tokens do not fit into a context of {self.config['context']}."
            )
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions[begun:end]
        if self.segment is not None:
            x = x + self.segment(
                torch.zeros_like(tokens) if segments is None else segments
            )
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        return self.dropout(x)
