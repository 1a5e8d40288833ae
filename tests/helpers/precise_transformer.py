"""A decoder in long double, written apart from the verifier's, with exact constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mpmath
import numpy as np

LONG = np.longdouble
#: Whether long double has more digits than double here.
LONGER = bool(np.finfo(LONG).eps < 1e-18)

_erf = np.vectorize(lambda v: LONG(str(mpmath.erf(mpmath.mpf(str(v))))), otypes=[LONG])


def angles(T: int, half: int) -> np.ndarray:
    i = np.arange(half, dtype=LONG)
    return np.arange(T, dtype=LONG)[:, None] * LONG(10000) ** (-i / half)


def rotated(x: np.ndarray) -> np.ndarray:
    """Rows (..., T, d), each pair of coordinates i and i + d/2 turned by its angle."""
    half = x.shape[-1] // 2
    turn = np.exp(1j * angles(x.shape[-2], half))
    z = (x[..., :half] + 1j * x[..., half:]) * turn
    return np.concatenate([z.real, z.imag], axis=-1)


def bent(kind: str, h: np.ndarray) -> np.ndarray:
    pi = LONG("3.14159265358979323846264338327950288")
    match kind:
        case "relu":
            return np.maximum(h, 0)
        case "relu2":
            return np.maximum(h, 0) ** 2
        case "gelu":
            return h * (1 + _erf(h / np.sqrt(LONG(2)))) / 2
        case "gelu_tanh":
            return (
                h * (1 + np.tanh(np.sqrt(2 / pi) * (h + LONG("0.044715") * h**3))) / 2
            )
    a, b = np.split(h, 2, axis=-1)
    return a / (1 + np.exp(-a)) * b


def softmax(S: np.ndarray) -> np.ndarray:
    e = np.exp(S - S.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def scores(
    config: Mapping[str, Any], weights: Mapping[str, Any], ids: np.ndarray
) -> np.ndarray:
    """The scores of a decoder (T, V)."""
    W = {name: np.asarray(w).astype(LONG) for name, w in weights.items()}
    d, H, T = config["width"], config["heads"], len(ids)
    tiny = LONG(np.finfo(np.asarray(weights["embedding.weight"]).dtype).eps)
    none = np.zeros(1, LONG)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        c = x - x.mean(axis=-1, keepdims=True)
        c = c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + LONG(1e-5))
        return c * W[f"{name}.weight"] + W.get(f"{name}.bias", none)

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ W[f"{name}.weight"].T + W.get(f"{name}.bias", none)

    def attend(x: np.ndarray, at: str) -> np.ndarray:
        q, k, v = linear(x, f"{at}.qkv").reshape(T, 3, H, -1).transpose(1, 2, 0, 3)
        if config["qk_norm"]:
            q, k = (
                p / np.sqrt((p * p).mean(axis=-1, keepdims=True) + tiny) for p in (q, k)
            )
        if config["position"] == "rotary":
            q, k = rotated(q), rotated(k)
        S = q @ k.transpose(0, 2, 1) / np.sqrt(LONG(d // H))
        S = np.where(np.tri(T, dtype=bool), S, -np.inf)
        return linear((softmax(S) @ v).transpose(1, 0, 2).reshape(T, d), f"{at}.output")

    def feed(x: np.ndarray, at: str) -> np.ndarray:
        return linear(
            bent(config["activation"], linear(x, f"{at}.inner")), f"{at}.outer"
        )

    x = W["embedding.weight"][ids]
    if config["position"] == "learned":
        x = x + W["positions"][:T]
    elif config["position"] == "sinusoidal":
        a = angles(T, d // 2)
        x = x + np.stack([np.sin(a), np.cos(a)], axis=2).reshape(T, d)
    for i in range(config["n_layers"]):
        for part, name in ((attend, "attention"), (feed, "feed_forward")):
            at = f"layers.{i}.{name}"
            if config["norm"] == "pre":
                x = x + part(norm(x, f"{at}_norm"), at)
            else:
                x = norm(x + part(x, at), f"{at}_norm")
    x = norm(x, "norm") if config["norm"] == "pre" else x
    return x @ W["embedding.weight" if config["tied"] else "head.weight"].T
