"""A GPT-2 folder as Hugging Face's ``save_pretrained`` writes it, built by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

CONFIG = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-05,
    "n_embd": 16,
    "n_head": 4,
    "n_inner": None,
    "n_layer": 2,
    "n_positions": 24,
    "vocab_size": 260,
}


def byte_names() -> list[str]:
    """How byte-level vocabularies write each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, more = {b: chr(b) for b in shown}, 0
    for b in range(256):
        if b not in names:
            names[b], more = chr(256 + more), more + 1
    return [names[b] for b in range(256)]


def tokenizer_json() -> dict[str, Any]:
    """256 bytes, three merges ("th", "the", " the") and an end of text."""
    names = byte_names()
    space = names[32]
    words = [*names, "th", "the", f"{space}the", "<|endoftext|>"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": 259,
                "content": "<|endoftext|>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {word: i for i, word in enumerate(words)},
            "merges": ["t h", "th e", f"{space} the"],
        },
    }


def weights(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights under GPT-2's names; linear maps are (into, out) there."""
    rng = np.random.default_rng(seed)
    d, hidden = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
    shapes = {
        "wte.weight": (config["vocab_size"], d),
        "wpe.weight": (config["n_positions"], d),
        "ln_f.weight": (d,),
        "ln_f.bias": (d,),
    }
    for i in range(config["n_layer"]):
        for name, into, out in (
            ("attn.c_attn", d, 3 * d),
            ("attn.c_proj", d, d),
            ("mlp.c_fc", d, hidden),
            ("mlp.c_proj", hidden, d),
        ):
            shapes[f"h.{i}.{name}.weight"] = (into, out)
            shapes[f"h.{i}.{name}.bias"] = (out,)
        for name in ("ln_1", "ln_2"):
            shapes[f"h.{i}.{name}.weight"] = shapes[f"h.{i}.{name}.bias"] = (d,)
    return {
        f"transformer.{name}": rng.normal(size=shape, scale=0.3).astype(np.float32)
        for name, shape in shapes.items()
    }


def write(
    folder: Path,
    config: dict[str, Any] | None = None,
    given: dict[str, np.ndarray] | None = None,
    tokenizer: dict[str, Any] | None = None,
) -> Path:
    """Write the three files."""
    config = CONFIG if config is None else config
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        weights(config) if given is None else given,
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer or tokenizer_json()))
    return folder


def gpt2(config: dict[str, Any], given: Any, ids: Any) -> np.ndarray:
    """GPT-2 from its paper and its names: scores behind each token, in float64."""
    w = {k.removeprefix("transformer."): np.float64(v) for k, v in given.items()}
    heads, T = config["n_head"], len(ids)

    def norm(x: Any, name: str) -> Any:
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(var + 1e-5) * w[f"{name}.weight"] + w[
            f"{name}.bias"
        ]

    def linear(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][ids] + w["wpe.weight"][:T]
    for i in range(config["n_layer"]):
        q, k, v = np.split(linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), 3, 1)
        out, size = [], q.shape[1] // heads
        for h in range(heads):
            at = slice(h * size, (h + 1) * size)
            for t in range(T):
                e = np.exp(k[: t + 1, at] @ q[t, at] / math.sqrt(size))
                out.append(e / e.sum() @ v[: t + 1, at])
        z = np.array(out).reshape(heads, T, size).swapaxes(0, 1).reshape(T, -1)
        x = x + linear(z, f"h.{i}.attn.c_proj")
        h = linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        h = 0.5 * h * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        x = x + linear(h, f"h.{i}.mlp.c_proj")
    head = w.get("lm_head.weight", w["wte.weight"])
    return norm(x, "ln_f") @ head.T
