"""A decoder's weights, arranged for the compiled forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from certus.language.decoding import forward_kernels as kernels
from certus.language.decoding.forward_kernels import PackedNetwork
from certus.typing import Array

ACTIVATIONS = {
    "gelu": kernels.GELU,
    "gelu_tanh": kernels.GELU_TANH,
    "relu": kernels.RELU,
    "relu2": kernels.RELU2,
    "swiglu": kernels.SWIGLU,
}


def pack(config: Mapping[str, Any], weights: Mapping[str, Any]) -> PackedNetwork:
    """The network of a configuration and its weights by name.

    Parameters
    ----------
    config : dict
        ``Transformer(...).config`` of kind "decoder".
    weights : dict of arrays
        Named as in the network's ``state_dict``.
    """
    if config["kind"] != "decoder" or config["segments"]:
        raise ValueError(
            "Only a decoder without segments can be decoded, got "
            f"kind={config['kind']!r} and segments={config['segments']}."
        )
    take = _Weights(weights)
    layers, width, context = config["n_layers"], config["width"], config["context"]
    half = width // config["heads"] // 2
    angles = np.zeros((0, half))
    if config["position"] == "rotary":
        angles = np.arange(context)[:, None] * 10000.0 ** (-np.arange(half) / half)
    embedding = take("embedding.weight")
    head = embedding if config["tied"] else take("head.weight")
    pre = config["norm"] == "pre"
    last = [take("norm.weight"), take.bias("norm")] if pre else [np.zeros(width)] * 2

    def maps(name: str) -> tuple[Array, Array]:
        every = [f"layers.{i}.{name}" for i in range(layers)]
        W = np.stack([take(f"{each}.weight").T for each in every])
        return _plain(W), _plain(np.stack([take.bias(each) for each in every]))

    norms = [
        [f"layers.{i}.{part}" for part in ("attention_norm", "feed_forward_norm")]
        for i in range(layers)
    ]
    return PackedNetwork(
        embedding,
        _plain(head.T),
        _places(config, take),
        _plain(np.cos(angles)),
        _plain(np.sin(angles)),
        *maps("attention.qkv"),
        *maps("attention.output"),
        *maps("feed_forward.inner"),
        *maps("feed_forward.outer"),
        _plain(np.array([[take(f"{n}.weight") for n in pair] for pair in norms])),
        _plain(np.array([[take.bias(n) for n in pair] for pair in norms])),
        _plain(np.stack(last)),
        int(config["heads"]),
        int(context),
        ACTIVATIONS[config["activation"]],
        bool(pre),
        bool(config["qk_norm"]),
    )


def in_panels(net: PackedNetwork) -> PackedNetwork:
    """The same network with each map (inputs, outputs) in panels of ``PANEL`` outputs.

    A panel holds its outputs of the first input, then those of the second, and so on;
    the next panel follows. Shapes stay as they are.
    """
    names = ("head", "qkv", "output", "inner", "outer")
    maps: dict[str, Any] = {name: _panels(getattr(net, name)) for name in names}
    return net._replace(**maps)


def _panels(W: Array) -> Array:
    firsts = range(0, W.shape[-1], kernels.PANEL)
    panels = [W[..., j : j + kernels.PANEL] for j in firsts]
    flat = [panel.reshape(*W.shape[:-2], -1) for panel in panels]
    return _plain(np.concatenate(flat, axis=-1).reshape(W.shape))


def _places(config: Mapping[str, Any], take: _Weights) -> Array:
    width, context = config["width"], config["context"]
    if config["position"] == "learned":
        return take("positions")
    if config["position"] != "sinusoidal":
        return np.zeros((0, width), np.float32)
    half = width // 2
    angles = np.arange(context)[:, None] * 10000.0 ** (-np.arange(half) / half)
    both = np.stack([np.sin(angles), np.cos(angles)], axis=2)
    return _plain(both.reshape(context, width))


class _Weights:
    """Weights by name, as float32 arrays that hold finite numbers only."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self.weights = weights

    def __call__(self, name: str) -> Array:
        if name not in self.weights:
            raise ValueError(f"The weights lack {name!r}, which the network needs.")
        found = _plain(np.asarray(self.weights[name]))
        if not np.isfinite(found).all():
            raise ValueError(
                f"The weights {name!r} must be finite numbers. Training has diverged: "
                "fit again with a smaller learning rate."
            )
        return found

    def bias(self, name: str) -> Array:
        """The offset of a map or norm, zero where it has none."""
        if f"{name}.bias" in self.weights:
            return self(f"{name}.bias")
        return np.zeros(len(self.weights[f"{name}.weight"]), np.float32)


def _plain(values: Array) -> Array:
    return np.ascontiguousarray(values, dtype=np.float32)
