"""Multi-head attention: every position asks, every position answers.

    Z = [Z₁ … Z_H] W_O,   Z_h = softmax(Q_h K_hᵀ/√d) V_h
    Q = X W_Q,   K = M W_K,   V = M W_V

Queries come from X, keys and values from a memory M: X itself (self-attention), or what
an encoder made of a source (cross-attention). A causal mask keeps position t from all
later ones. Rotary positions turn queries and keys by an angle that grows with their
place, so that a score depends on the distance of two places only.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.arguments import require_count

#: Keys and values of the positions read so far, each (batch, heads, time, width/heads).
Cache = tuple[Tensor, Tensor]


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in several heads, and a linear map of them all.

    Parameters
    ----------
    width : int
        Numbers in a vector of the sequence; a multiple of ``heads``.
    heads : int
        How many mixtures are taken side by side, each of ``width / heads`` numbers.
    rotary : bool, default=False
        Whether queries and keys are turned by their places (rotary positions).
    qk_norm : bool, default=False
        Whether each query and key is brought to mean square 1 before the product, which
        keeps scores bounded however long training goes on.
    bias : bool, default=True
        Whether the four linear maps have offsets.
    dropout : float, default=0.0
        Share of attention weights that training leaves out.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import MultiHeadAttention
    >>> look = MultiHeadAttention(8, 2)
    >>> x = torch.randn(1, 3, 8)
    >>> z, weights = look(x, causal=True, weights=True)
    >>> z.shape, weights.shape
    (torch.Size([1, 3, 8]), torch.Size([1, 2, 3, 3]))
    >>> weights[0, 0, 0].tolist()  # the first position sees itself alone
    [1.0, 0.0, 0.0]
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        rotary: bool = False,
        qk_norm: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width, heads = require_count("width", width), require_count("heads", heads)
        if width % heads or (rotary and width // heads % 2):
            kind = "an even multiple" if rotary else "a multiple"
            raise ValueError(
                f"width must be {kind} of heads, got width={width} and heads={heads}."
            )
        self.heads, self.rotary, self.qk_norm = heads, rotary, qk_norm
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width, bias=bias)  # W_Q, W_K, W_V in one
        self.output = nn.Linear(width, width, bias=bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        causal: bool = False,
        mask: Tensor | None = None,
        cache: Cache | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | Cache | None]:
        """What each position of x takes from the memory.

        Parameters
        ----------
        x : Tensor of shape (batch, queries, width)
            The positions that ask.
        memory : Tensor of shape (batch, keys, width), optional
            The positions that answer; x itself by default.
        causal : bool
            Whether position t sees positions up to t only. With a cache, the first of x
            stands behind the last of the cache.
        mask : bool Tensor of shape (batch, keys), optional
            False where the memory has no token.
        cache : (Tensor, Tensor), optional
            Keys and values of the positions before x, as returned before.
        weights : bool
            Return the attention weights instead of the cache.

        Returns
        -------
        z : Tensor of shape (batch, queries, width)
        weights, or cache : Tensor of shape (batch, heads, queries, keys), or a pair
        """
        q, k, v = self._heads_of(x, memory, 0 if cache is None else cache[0].shape[2])
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        share = self.dropout if self.training else 0.0
        if weights:
            seen = _visible(q, k, causal, mask)
            scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
            if seen is not None:
                scores = scores.masked_fill(~seen, -torch.inf)
            P = torch.softmax(scores, dim=3)  # (batch, heads, queries, keys)
            z = F.dropout(P, share) @ v
        else:
            square = causal and mask is None and q.shape[2] == k.shape[2]
            seen = None if square else _visible(q, k, causal, mask)
            z = F.scaled_dot_product_attention(q, k, v, seen, share, is_causal=square)
        z = z.transpose(1, 2).flatten(2)  # (batch, queries, width)
        return self.output(z), (P if weights else (k, v))

    def _heads_of(
        self, x: Tensor, memory: Tensor | None, begun: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (batch, heads, time, width/heads) each."""
        width = x.shape[2]
        if memory is None:
            parts = self.qkv(x).split(width, dim=2)
        else:
            W, b = self.qkv.weight, self.qkv.bias
            ask = F.linear(x, W[:width], None if b is None else b[:width])
            told = F.linear(memory, W[width:], None if b is None else b[width:])
            parts = (ask, *told.split(width, dim=2))
        q, k, v = (p.unflatten(2, (self.heads, -1)).transpose(1, 2) for p in parts)
        if self.qk_norm:
            q, k = (F.rms_norm(p, p.shape[3:]) for p in (q, k))
        if self.rotary:
            q, k = rotate(q, begun), rotate(k, begun)
        return q, k, v


def _visible(q: Tensor, k: Tensor, causal: bool, mask: Tensor | None) -> Tensor | None:
    """What each query may see, (batch or 1, 1, queries, keys); None if all."""
    seen = None if mask is None else mask[:, None, None, :]
    if causal:
        n, m = q.shape[2], k.shape[2]
        past = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
        seen = past[None, None] if seen is None else seen & past
    return seen


def rotate(x: Tensor, begun: int = 0) -> Tensor:
    """Turn pairs of coordinates of (..., time, d) by t/10000^{2i/d}, t from ``begun``.

    A product of two vectors that were turned at places s and t depends on s − t alone.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules.multi_head import rotate
    >>> q, k = torch.ones(1, 4), torch.ones(1, 4)
    >>> near = rotate(q, 7) @ rotate(k, 5).T
    >>> torch.allclose(near, rotate(q, 107) @ rotate(k, 105).T, atol=1e-5)
    True
    """
    half = x.shape[-1] // 2
    turns = _turns.__wrapped__ if torch.compiler.is_compiling() else _turns
    cos, sin = turns(half, begun, x.shape[-2], x.dtype, x.device)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


@functools.lru_cache(maxsize=16)
def _turns(
    half: int, begun: int, length: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles; all layers and steps ask for the same ones."""
    with torch.inference_mode(False):  # so that training can use them later
        angles = _angles(half, begun, length, device)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def _angles(half: int, begun: int, length: int, device: torch.device) -> Tensor:
    """t/10000^{i/half} for places t and i < half, (length, half), in float64."""
    t = torch.arange(begun, begun + length, dtype=torch.float64, device=device)
    i = torch.arange(half, dtype=torch.float64, device=device)
    return t[:, None] * 10000.0 ** (-i / half)


def sinusoidal_positions(length: int, width: int) -> Tensor:
    """The fixed position vectors sin(t/10000^{2i/d}), cos(t/10000^{2i/d}).

    Parameters
    ----------
    length : int
        How many places.
    width : int
        d, an even number.

    Returns
    -------
    Tensor of shape (length, width)
        Sines in even columns, cosines in odd ones. Each row has squared length d/2, and
        a step of Δ places is one rotation, the same from every place.

    Examples
    --------
    >>> from certus.neural_network.modules import sinusoidal_positions
    >>> sinusoidal_positions(50, 8).square().sum(dim=1).round().unique().tolist()
    [4.0]
    """
    if width % 2:
        raise ValueError(f"width must be even, got {width}.")
    angles = _angles(width // 2, 0, length, torch.device("cpu"))
    both = torch.stack([angles.sin(), angles.cos()], dim=2)
    return both.flatten(1).to(torch.get_default_dtype())
