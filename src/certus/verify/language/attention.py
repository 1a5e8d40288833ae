"""A transformer in plain NumPy and float64: the verifier's own, to be read.

    x ← x + Attention(LN(x)),   x ← x + W₂ φ(W₁ LN(x))      (norm="pre")
    x ← LN(x + Attention(x)),   x ← LN(x + W₂ φ(W₁ x))      (norm="post")
    Attention(x) = [softmax(Q_h K_hᵀ/√d) V_h]_h W_O,   (Q, K, V) = x W

It takes the configuration and the weights by name, and shares no code with the network
that was trained. Each row carries a bound of its rounding (``drift``), which grows with
every layer. ``order=-1`` adds up all products backwards: how far both results are apart
tells the size of the rounding, about 1e-13, where the bound says too little.
Shapes: T tokens, M of them seen, d = width, H heads, V different tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import erf

from certus.typing import Array
from certus.verify.kernel.spaces import UNIT, gamma
from certus.verify.language import drift
from certus.verify.language.drift import Bounded, Extent

#: Added to variances by layer norms.
EPSILON = 1e-5
Weights = Mapping[str, Array]
#: What a configuration may say; () stands for a whole number, above 0 as a rule.
ALLOWED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("n_tokens", "n_layers", "width", "heads", "context", "hidden"), ()
    ),
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
        self.sizes: dict[str, Extent] = {}
        for name, allowed in ALLOWED.items():
            value = config.get(name, ...)
            counts = isinstance(value, int) and not isinstance(value, bool)
            # An encoder without layers is its table of embeddings.
            least = 0 if (name, config.get("kind")) == ("n_layers", "encoder") else 1
            sound = counts and value >= least if allowed == () else value in allowed
            if not sound:
                said = "missing" if value is ... else repr(value)
                raise ValueError(f"The network's configuration has {name} = {said}.")

    def backwards(self) -> PlainNetwork:
        """The same weights with the other order of summation."""
        other = PlainNetwork(self.config, self.weights, -self.order)
        other.kept, other.sizes = self.kept, self.sizes
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

    def size(self, name: str, *given: Any) -> Extent:
        """The size of these weights, found once."""
        if name not in self.sizes:
            self.sizes[name] = drift.size_of(*given)
        return self.sizes[name]

    def linear(self, x: Bounded, name: str, rows: int, bias: bool = True) -> Bounded:
        """Return x Wᵀ + b, from (T, columns) to (T, rows)."""
        d = x.x.shape[-1]
        W = self.get(f"{name}.weight", (rows, d))
        b = self.get(f"{name}.bias", (rows,)) if bias else np.zeros(rows)
        off = drift.product(x, self.size(name, W, b), d)
        return Bounded(self.times(x.x, W.T) + b, off)

    def norm(self, x: Bounded, name: str, bias: bool) -> Bounded:
        """Mean 0 and variance 1 at each position, then scaled and shifted."""
        d = x.x.shape[-1]
        y = scaled(x, x.x - x.x.mean(axis=-1, keepdims=True), EPSILON)
        gain = self.get(f"{name}.weight", (d,))
        z = y.x * gain
        b = self.get(f"{name}.bias", (d,)) if bias else np.zeros(d)
        off = np.abs(gain).max() * y.off + UNIT * drift.lengths(z)
        return Bounded(z + b, drift.added(off, 0.0, z + b))


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
    return bounded(read, tokens, source, segments).x


def bounded(
    read: PlainNetwork, tokens: Any, source: Any = None, segments: Any = None
) -> Bounded:
    """Scores, and how far each score of a position may be off; or states."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        found = passed(read, tokens, source, segments)
    return found._replace(off=np.where(np.isnan(found.off), np.inf, found.off))


def passed(read: PlainNetwork, tokens: Any, source: Any, segments: Any) -> Bounded:
    """One pass through all layers."""
    config, seen = read.config, None
    if config["kind"] == "both":
        seen = embed(read, source, None)
        for i in range(config["n_layers"]):
            seen = layer(read, seen, f"encoder.{i}.", causal=False)
        seen = last(read, seen, "source_norm")
    x = embed(read, tokens, segments)
    for i in range(config["n_layers"]):
        x = layer(read, x, f"layers.{i}.", config["kind"] != "encoder", seen)
    x = last(read, x, "norm")
    if config["kind"] == "encoder":
        return x
    name, d = "embedding" if config["tied"] else "head", config["width"]
    W = read.get(f"{name}.weight", (config["n_tokens"], d))
    # Of one score only the row of W matters that it comes from.
    longest = float(drift.lengths(W).max())
    off = drift.UP * longest * (x.off + gamma(d + 2) * drift.lengths(x.x))
    return Bounded(read.times(x.x, W.T), off)


def embed(read: PlainNetwork, tokens: Any, segments: Any) -> Bounded:
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
    off = np.zeros(x.shape[:-1])
    if config["position"] == "learned":
        x = x + read.get("positions", (config["context"], d))[:T]
        off = drift.added(off, 0.0, x)
    elif config["position"] == "sinusoidal":
        angles = turns(T, d // 2)
        waves = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(T, d)
        x = x + waves
        off = drift.added(drift.turned(Bounded(waves, off), np.arange(T)), 0.0, x)
    if not config["segments"]:
        return Bounded(x, off)
    table = read.get("segment.weight", (config["segments"], d))
    x = x + table[np.zeros_like(ids) if segments is None else np.asarray(segments)]
    return read.norm(Bounded(x, drift.added(off, 0.0, x)), "embedding_norm", True)


def last(read: PlainNetwork, x: Bounded, name: str) -> Bounded:
    """The norm behind all layers, which only pre-norm networks have."""
    pre = read.config["norm"] == "pre"
    return read.norm(x, name, read.config["bias"]) if pre else x


def layer(
    read: PlainNetwork, x: Bounded, at: str, causal: bool, source: Bounded | None = None
) -> Bounded:
    """Self-attention, attention to a source if any, feed-forward; (..., T, d)."""
    bias, pre = read.config["bias"], read.config["norm"] == "pre"
    rotary = read.config["position"] == "rotary"

    def add(x: Bounded, name: str, part: Callable[[Bounded], Bounded]) -> Bounded:
        more = part(read.norm(x, f"{at}{name}_norm", bias) if pre else x)
        total = x.x + more.x
        x = Bounded(total, drift.added(x.off, more.off, total))
        return x if pre else read.norm(x, f"{at}{name}_norm", bias)

    name = f"{at}attention"
    x = add(x, "attention", lambda h: attend(read, h, h, name, causal, rotary))
    if source is not None:
        x = add(x, "cross", lambda h: attend(read, h, source, f"{at}cross", False))
    return add(x, "feed_forward", lambda h: feed(read, h, f"{at}feed_forward"))


def attend(
    read: PlainNetwork,
    x: Bounded,
    memory: Bounded,
    name: str,
    causal: bool,
    rotary: bool = False,
) -> Bounded:
    """What each position of x (..., T, d) takes from the memory (..., M, d)."""
    config, d = read.config, x.x.shape[-1]
    H = config["heads"]
    W = read.get(f"{name}.qkv.weight", (3 * d, d))
    b = np.zeros(3 * d)
    if config["bias"]:
        b = read.get(f"{name}.qkv.bias", (3 * d,))
    q, k, v = (
        project(read, h, f"{name}.{i}", W[i * d : (i + 1) * d], b[i * d : (i + 1) * d])
        for i, h in enumerate((x, memory, memory))
    )  # (..., H, T or M, d/H)
    if config["qk_norm"]:
        # As in training: the epsilon is that of the weights' own precision.
        given = np.asarray(read.weights[f"{name}.qkv.weight"]).dtype
        tiny = float(np.finfo(given if given.kind == "f" else np.float64).eps)
        q, k = scaled(q, q.x, tiny), scaled(k, k.x, tiny)
    if rotary:
        q, k = turn(q), turn(k)
    S = read.times(q.x, np.swapaxes(k.x, -1, -2)) / math.sqrt(d // H)
    if causal:
        later = np.arange(k.x.shape[-2]) > np.arange(q.x.shape[-2])[:, None]
        S = np.where(later, -np.inf, S)
    P = softmax(S)  # (..., H, T, M)
    z = read.times(P, v.x)
    off = drift.lengths(np.swapaxes(drift.mixed(q, k, v, P, z), -1, -2))
    z = np.swapaxes(z, -2, -3).reshape(x.x.shape)
    return read.linear(Bounded(z, off), f"{name}.output", d, config["bias"])


def project(read: PlainNetwork, x: Bounded, name: str, W: Array, b: Array) -> Bounded:
    """From (..., T, d) to (..., H, T, d/H)."""
    d, H = x.x.shape[-1], read.config["heads"]
    z = read.times(x.x, W.T) + b
    z = np.swapaxes(z.reshape(*z.shape[:-1], H, -1), -2, -3)
    size = read.size(name, W.reshape(H, -1, d), b.reshape(H, -1))
    off = drift.product(Bounded(x.x[..., None, :], x.off[..., None]), size, d)
    return Bounded(z, np.swapaxes(off, -1, -2))


def scaled(x: Bounded, c: Array, epsilon: float) -> Bounded:
    """Each row of c, which is x or its distance from its mean, with mean square 1."""
    sigma = np.sqrt(np.square(c).mean(axis=-1, keepdims=True) + epsilon)
    y = c / sigma
    return Bounded(y, drift.scaled(x, y, sigma[..., 0], math.sqrt(epsilon)))


def turns(T: int, half: int) -> Array:
    """The angles t/10000^{i/half} of places t < T, (T, half)."""
    return np.arange(T)[:, None] * 10000.0 ** (-np.arange(half) / half)


def turn(x: Bounded) -> Bounded:
    """Turn the coordinates i and i + d/2 of each place together by its angle."""
    T, half = x.x.shape[-2], x.x.shape[-1] // 2
    angles = turns(T, half)
    a, b, cos, sin = x.x[..., :half], x.x[..., half:], np.cos(angles), np.sin(angles)
    y = np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
    return Bounded(y, drift.turned(x, np.arange(T)))


def feed(read: PlainNetwork, x: Bounded, name: str) -> Bounded:
    """W₂ φ(W₁ x + b₁) + b₂ at each position; "swiglu": W₂ (silu(W₁x) ⊙ W₃x)."""
    config = read.config
    kind, bias = config["activation"], config["bias"]
    rows = config["hidden"] * (2 if kind == "swiglu" else 1)
    given = read.linear(x, f"{name}.inner", rows, bias)
    h = given.x
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
    y = read.linear(
        Bounded(h, np.zeros(h.shape[:-1])), f"{name}.outer", x.x.shape[-1], bias
    )
    sizes = read.sizes[f"{name}.inner"], read.sizes[f"{name}.outer"]
    off = drift.fed(x, *drift.slopes_of(kind, given.x, given.off), *sizes)
    return Bounded(y.x, drift.added(y.off, off, y.x))


def softmax(S: Array) -> Array:
    """Each row as probabilities."""
    e = np.exp(S - S.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_softmax(S: Array) -> Array:
    """Logarithms of the probabilities of each row."""
    z = S - S.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def log_probs(read: PlainNetwork, tokens: Any) -> Bounded:
    """Log-probabilities of what follows each token, and what they may be off by."""
    return logarithms(bounded(read, tokens))


def logarithms(S: Bounded) -> Bounded:
    """Log-probabilities from scores; scores off by e move log p by at most 2e."""
    lp = log_softmax(S.x)
    far = np.abs(lp).max(axis=-1)
    own = gamma(S.x.shape[-1] + 64) + 10 * UNIT * far
    off = drift.UP * (2 * S.off + own)
    return Bounded(lp, np.where(off >= 0, off, np.inf))
