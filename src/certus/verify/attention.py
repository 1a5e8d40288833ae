"""A transformer in plain NumPy and float64: the verifier's own, to be read.

    x ← x + Attention(LN(x)),   x ← x + W₂ φ(W₁ LN(x))      (norm="pre")
    x ← LN(x + Attention(x)),   x ← LN(x + W₂ φ(W₁ x))      (norm="post")
    Attention(x) = [softmax(Q_h K_hᵀ/√d) V_h]_h W_O,   (Q, K, V) = x W

It takes the configuration and the weights by name, and shares no code with the network
that was trained. ``order=-1`` adds up all products backwards: how far both results are
apart tells the size of the rounding, about 1e-13 for networks of a few layers.
Shapes: T tokens, M of them seen, d = width, H heads, V different tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import erf

from certus.typing import Array

#: Added to variances by layer norms.
EPSILON = 1e-5
Weights = Mapping[str, Array]
#: What a configuration may say; () stands for a whole number above 0.
ALLOWED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("n_tokens", "layers", "width", "heads", "context", "hidden"), ()),
    "kind": ("decoder", "encoder", "both"),
    "norm": ("pre", "post"),
    "position": ("rotary", "learned", "sinusoidal", None),
    "activation": ("gelu", "gelu_tanh", "relu", "relu2", "swiglu"),
    **dict.fromkeys(("qk_norm", "bias", "tied"), (False, True)),
    "segments": (0, 1, 2, 3, 4),
}


class PlainNetwork:
    """The weights by name, in float64; products in the chosen order of summation."""

    def __init__(
        self, config: Mapping[str, Any], weights: Weights, order: int = 1
    ) -> None:
        self.config, self.weights, self.order = config, weights, order
        self.kept: dict[str, Array] = {}
        for name, allowed in ALLOWED.items():
            value = config.get(name, ...)
            counts = isinstance(value, int) and not isinstance(value, bool)
            sound = counts and value > 0 if allowed == () else value in allowed
            if not sound:
                said = "missing" if value is ... else repr(value)
                raise ValueError(f"The network's configuration has {name} = {said}.")

    def backwards(self) -> PlainNetwork:
        """The same weights with the other order of summation."""
        other = PlainNetwork(self.config, self.weights, -self.order)
        other.kept = self.kept
        return other

    def get(self, name: str, shape: tuple[int, ...]) -> Array:
        """The weights of this name, which must have this shape and be finite."""
        if name in self.kept:
            return self.kept[name]
        found = np.asarray(self.weights.get(name, np.zeros(0)))
        if found.shape != shape or not np.isfinite(found).all():
            have = f"shape {found.shape}" if name in self.weights else "none"
            raise ValueError(
                f"The weights {name!r} must be finite and of shape {shape}, got {have}."
            )
        self.kept[name] = found.astype(np.float64)
        return self.kept[name]

    def times(self, a: Array, b: Array) -> Array:
        """Return a @ b, over the last axis of a and the last but one of b."""
        if self.order < 0:
            a = np.ascontiguousarray(a[..., ::-1])
            b = np.ascontiguousarray(b[..., ::-1, :])
        return a @ b

    def linear(self, x: Array, name: str, rows: int, bias: bool = True) -> Array:
        """Return x Wᵀ + b, from (T, columns) to (T, rows)."""
        z = self.times(x, self.get(f"{name}.weight", (rows, x.shape[-1])).T)
        return z + self.get(f"{name}.bias", (rows,)) if bias else z

    def norm(self, x: Array, name: str, bias: bool) -> Array:
        """Mean 0 and variance 1 at each position, then scaled and shifted."""
        d = x.shape[-1]
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + EPSILON)
        x = x * self.get(f"{name}.weight", (d,))
        return x + self.get(f"{name}.bias", (d,)) if bias else x


def forward(
    config: Mapping[str, Any],
    weights: Weights,
    tokens: Any,
    source: Any = None,
    *,
    segments: Any = None,
    order: int = 1,
) -> Array:
    """Scores (decoder, both) or states (encoder) of each position, in float64.

    Parameters
    ----------
    config : mapping
        ``Transformer.config``.
    weights : mapping of str to array
        As in ``state_dict``.
    tokens : int array of shape (..., T)
        Sequences of the same length, at most ``context``.
    source : int array of shape (..., S), for kind "both"
        The tokens to be translated.
    segments : int array of shape (..., T), optional
        The segment of each token; 0 by default.
    order : {1, -1}
        Add up products forwards or backwards.

    Returns
    -------
    float64 array of shape (..., T, V), or (..., T, width) for an encoder
    """
    return scores(PlainNetwork(config, weights, order), tokens, source, segments)


def scores(
    read: PlainNetwork, tokens: Any, source: Any = None, segments: Any = None
) -> Array:
    """As :func:`forward`, for weights that are kept between calls."""
    config, seen = read.config, None
    if config["kind"] == "both":
        seen = embed(read, source, None)
        for i in range(config["layers"]):
            seen = layer(read, seen, f"encoder.{i}.", causal=False)
        seen = last(read, seen, "source_norm")
    x = embed(read, tokens, segments)
    for i in range(config["layers"]):
        x = layer(read, x, f"layers.{i}.", config["kind"] != "encoder", seen)
    x = last(read, x, "norm")
    if config["kind"] == "encoder":
        return x
    name = "embedding" if config["tied"] else "head"
    return read.linear(x, name, config["n_tokens"], bias=False)


def embed(read: PlainNetwork, tokens: Any, segments: Any) -> Array:
    """Vectors of tokens and places, (..., T, d)."""
    config = read.config
    n, d = config["n_tokens"], config["width"]
    ids = np.asarray(tokens)
    if ids.dtype.kind not in "iu" or ids.ndim < 1 or not ids.size:
        raise ValueError("tokens must be whole numbers, at least one.")
    if ids.min() < 0 or ids.max() >= n:
        raise ValueError(f"tokens must be between 0 and {n - 1}.")
    T = ids.shape[-1]
    if config["context"] < T:
        raise ValueError(f"{T} tokens do not fit into {config['context']} places.")
    x = read.get("embedding.weight", (n, d))[ids]
    if config["position"] == "learned":
        x = x + read.get("positions", (config["context"], d))[:T]
    elif config["position"] == "sinusoidal":
        angles = turns(T, d // 2)
        waves = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(T, d)
        x = x + waves
    if config["segments"]:
        table = read.get("segment.weight", (config["segments"], d))
        x = x + table[np.zeros_like(ids) if segments is None else np.asarray(segments)]
        x = read.norm(x, "embedding_norm", True)
    return x


def last(read: PlainNetwork, x: Array, name: str) -> Array:
    """The norm behind all layers, which only pre-norm networks have."""
    pre = read.config["norm"] == "pre"
    return read.norm(x, name, read.config["bias"]) if pre else x


def layer(
    read: PlainNetwork, x: Array, at: str, causal: bool, source: Array | None = None
) -> Array:
    """Self-attention, attention to a source if any, feed-forward; (..., T, d)."""
    bias, pre = read.config["bias"], read.config["norm"] == "pre"
    rotary = read.config["position"] == "rotary"

    def add(x: Array, name: str, part: Callable[[Array], Array]) -> Array:
        if pre:
            return x + part(read.norm(x, f"{at}{name}_norm", bias))
        return read.norm(x + part(x), f"{at}{name}_norm", bias)

    name = f"{at}attention"
    x = add(x, "attention", lambda h: attend(read, h, h, name, causal, rotary))
    if source is not None:
        x = add(x, "cross", lambda h: attend(read, h, source, f"{at}cross", False))
    return add(x, "feed_forward", lambda h: feed(read, h, f"{at}feed_forward"))


def attend(
    read: PlainNetwork,
    x: Array,
    memory: Array,
    name: str,
    causal: bool,
    rotary: bool = False,
) -> Array:
    """What each position of x (..., T, d) takes from the memory (..., M, d)."""
    config, d = read.config, x.shape[-1]
    H = config["heads"]
    W = read.get(f"{name}.qkv.weight", (3 * d, d))
    b = np.zeros(3 * d)
    if config["bias"]:
        b = read.get(f"{name}.qkv.bias", (3 * d,))
    q, k, v = (
        heads(read.times(h, W[i * d : (i + 1) * d].T) + b[i * d : (i + 1) * d], H)
        for i, h in enumerate((x, memory, memory))
    )  # (..., H, T or M, d/H)
    if config["qk_norm"]:
        # As in training: the epsilon is that of the weights' own precision.
        given = np.asarray(read.weights[f"{name}.qkv.weight"]).dtype
        tiny = np.finfo(given if given.kind == "f" else np.float64).eps
        q, k = (
            p / np.sqrt(np.square(p).mean(axis=-1, keepdims=True) + tiny)
            for p in (q, k)
        )
    if rotary:
        q, k = turn(q), turn(k)
    S = read.times(q, np.swapaxes(k, -1, -2)) / math.sqrt(d // H)
    if causal:
        later = np.arange(k.shape[-2]) > np.arange(q.shape[-2])[:, None]
        S = np.where(later, -np.inf, S)
    P = softmax(S)  # (..., H, T, M)
    z = np.swapaxes(read.times(P, v), -2, -3).reshape(x.shape)
    return read.linear(z, f"{name}.output", d, config["bias"])


def heads(x: Array, H: int) -> Array:
    """From (..., T, d) to (..., H, T, d/H)."""
    return np.swapaxes(x.reshape(*x.shape[:-1], H, -1), -2, -3)


def turns(T: int, half: int) -> Array:
    """The angles t/10000^{i/half} of places t < T, (T, half)."""
    return np.arange(T)[:, None] * 10000.0 ** (-np.arange(half) / half)


def turn(x: Array) -> Array:
    """Turn the coordinates i and i + d/2 of each place together by its angle."""
    half = x.shape[-1] // 2
    angles = turns(x.shape[-2], half)
    a, b, cos, sin = x[..., :half], x[..., half:], np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def feed(read: PlainNetwork, x: Array, name: str) -> Array:
    """W₂ φ(W₁ x + b₁) + b₂ at each position; "swiglu": W₂ (silu(W₁x) ⊙ W₃x)."""
    config = read.config
    kind, bias = config["activation"], config["bias"]
    rows = config["hidden"] * (2 if kind == "swiglu" else 1)
    h = read.linear(x, f"{name}.inner", rows, bias)
    match kind:
        case "gelu":
            h = h * (0.5 + 0.5 * erf(h / math.sqrt(2)))
        case "gelu_tanh":
            inside = math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)
            h = h * (0.5 + 0.5 * np.tanh(inside))
        case "relu":
            h = np.maximum(h, 0.0)
        case "relu2":
            h = np.square(np.maximum(h, 0.0))
        case "swiglu":
            a, b = np.split(h, 2, axis=-1)
            h = a * (0.5 + 0.5 * np.tanh(a / 2)) * b
    return read.linear(h, f"{name}.outer", x.shape[-1], bias)


def softmax(S: Array) -> Array:
    """Each row as probabilities."""
    e = np.exp(S - S.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_softmax(S: Array) -> Array:
    """Logarithms of the probabilities of each row."""
    z = S - S.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
