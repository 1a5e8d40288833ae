"""Models of Hugging Face: a GPT-2 folder becomes a language model of certus.

A folder holds ``config.json``, ``model.safetensors`` (or parts of it and an index) and
``tokenizer.json``. All three are data: nothing in them is executed, sizes are compared
with those of the weights before memory is taken, and whatever would make the network
another one than ours is refused by its name. GPT-2 keeps the matrices of its linear
maps transposed; apart from that the weights are the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from certus.language.base import END
from certus.language.language_model import LanguageModel
from certus.language.tokens.tokenizers import BPETokenizer
from certus.neural_network.modules.transformer import Transformer
from certus.wording import unstopped

#: Names of GPT-2's parts, and of ours; those in LINEAR are transposed.
OUTER = {"wte.weight": "embedding.weight", "wpe.weight": "positions"}
OUTER |= {f"ln_f.{part}": f"norm.{part}" for part in ("weight", "bias")}
NORMS = {"ln_1": "attention_norm", "ln_2": "feed_forward_norm"}
LINEAR = {
    "attn.c_attn": "attention.qkv",
    "attn.c_proj": "attention.output",
    "mlp.c_fc": "feed_forward.inner",
    "mlp.c_proj": "feed_forward.outer",
}
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
}
#: Entries of a configuration, and the only values with which the network is ours.
NEEDED: dict[str, tuple[Any, ...]] = {
    "model_type": ("gpt2",),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "quantization_config": (None,),
    "auto_map": (None,),
}
#: What an entry that is missing means.
MEANT = {name: allowed[0] for name, allowed in NEEDED.items() if name != "model_type"}
#: End-of-text tokens of other libraries.
ENDS = (END, "<|endoftext|>", "</s>", "<|end_of_text|>")
#: Largest file of settings that is read.
LARGEST = 1 << 24


def read_gpt2(folder: str | PathLike[str]) -> LanguageModel:
    """Read a GPT-2 model that Hugging Face's ``save_pretrained`` wrote.

    The folder needs ``config.json``, ``model.safetensors`` and ``tokenizer.json``.
    Nothing in it is executed. The model can be judged on any text:
    ``certus.certify(read_gpt2(folder), text)``.

    Parameters
    ----------
    folder : path
        Where the model was saved.

    Returns
    -------
    LanguageModel
        With the weights of the folder, as if it had been fitted. The end-of-text token
        is also called ``"<|end|>"``.

    Examples
    --------
    >>> from certus.language import read_gpt2
    >>> model = read_gpt2("my-gpt2")  # doctest: +SKIP
    >>> model.bits_per_byte("It is a truth universally acknowledged")  # doctest: +SKIP
    """
    place = Path(folder)
    if not place.is_dir():
        raise ValueError(f"{place} is not a folder. Give the one that holds the model.")
    given = _settings(place / "config.json")
    _check(given)
    names = _sizes_of(given)
    tokenizer = _tokenizer(place)
    state = _translated(_weights(place), names, given)
    if tokenizer.n_tokens > names["n_tokens"]:
        raise ValueError(
            f"The tokeniser has {tokenizer.n_tokens} tokens and the network "
            f"{names['n_tokens']}: the files belong to different models."
        )
    network = Transformer(**names)
    network.load_state_dict(state)
    return _fitted(network.eval(), tokenizer)


def _fitted(network: Transformer, tokenizer: BPETokenizer) -> LanguageModel:
    config = network.config
    sizes = {name: config[name] for name in ("n_layers", "width", "heads", "context")}
    model = LanguageModel(
        tokenizer,
        **sizes,
        position=config["position"],
        activation=config["activation"],
        qk_norm=False,
    )
    model.network_, model.tokenizer_ = network, tokenizer
    model.n_iter_, model.best_epoch_ = 0, 0
    model.history_, model.validation_bits_ = {}, math.nan
    return model


# -- settings -------------------------------------------------------------------------


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(
            f"The folder has no {path.name}. Save the model with save_pretrained, "
            "which writes config.json, model.safetensors and tokenizer.json."
        )
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path.name} is too large to hold settings.")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON ({unstopped(error)}).") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} must hold names and values.")
    return found


def _check(given: Mapping[str, Any]) -> None:
    for name, allowed in NEEDED.items():
        value = given.get(name, MEANT.get(name))
        if value not in allowed:
            raise ValueError(
                f"config.json has {name} = {value!r}; only {allowed[0]!r} is read."
            )
    if given.get("activation_function", "gelu_new") not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(
            f"The activation function {given['activation_function']!r} is not known; "
            f"known are {known}."
        )


def _sizes_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What our network is built with."""
    width = _count(given, "n_embd")
    inner = given.get("n_inner")
    return {
        "n_tokens": _count(given, "vocab_size"),
        "n_layers": _count(given, "n_layer"),
        "width": width,
        "heads": _count(given, "n_head"),
        "context": _count(given, "n_positions"),
        "hidden": 4 * width if inner is None else _count(given, "n_inner"),
        "position": "learned",
        "activation": ACTIVATIONS[given.get("activation_function", "gelu_new")],
        "tied": bool(given.get("tie_word_embeddings", True)),
    }


def _count(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"config.json must have {name}, a whole number from 1 on.")
    return value


def _tokenizer(place: Path) -> BPETokenizer:
    path = place / "tokenizer.json"
    if not path.is_file():
        raise ValueError(
            "The folder has no tokenizer.json. AutoTokenizer.from_pretrained(folder)"
            ".save_pretrained(folder) writes one."
        )
    tokenizer = BPETokenizer.from_tokenizers(path)
    for name in ENDS:
        if name in tokenizer.special_:
            tokenizer.special_[END] = tokenizer.special_[name]
            return tokenizer
    known = ", ".join(map(repr, tokenizer.special_)) or "none"
    raise ValueError(
        f"The tokeniser has no end-of-text token, such as {ENDS[1]!r}; its special "
        f"tokens: {known}."
    )


# -- weights --------------------------------------------------------------------------


def _weights(place: Path) -> dict[str, Any]:
    """All tensors by name, from one file or several."""
    parts = [place / "model.safetensors"]
    index = place / "model.safetensors.index.json"
    if not parts[0].is_file() and index.is_file():
        named = _settings(index).get("weight_map")
        files: set[Any] = set(named.values()) if isinstance(named, dict) else {None}
        if not all(isinstance(f, str) and Path(f).name == f for f in files):
            raise ValueError(f"{index.name} must name files in the same folder.")
        parts = [place / name for name in sorted(files)]
    found: dict[str, Any] = {}
    for path in parts:
        found |= _tensors(path)
    return found


def _tensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise ValueError(
            f"The folder has no {path.name}. Files of pickled weights are not read, as "
            "they can execute code: save with safe_serialization=True."
        )
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path.name} cannot be read: {unstopped(error)}.") from None


def _translated(
    found: Mapping[str, Any], names: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The weights under our names, in float32; all of them, and no others."""
    left = {name.removeprefix("transformer."): value for name, value in found.items()}
    for name in [n for n in left if n.endswith((".attn.bias", ".attn.masked_bias"))]:
        del left[name]  # masks that older versions kept beside the weights
    if names["n_layers"] > len(left):
        raise ValueError(
            f"The file has weights for fewer layers than {names['n_layers']}."
        )
    table = dict(_table(names))
    tied = left.pop("lm_head.weight", None)
    state = {}
    for theirs, (ours, shape, turned) in table.items():
        if theirs not in left:
            raise ValueError(f"The weights lack {theirs!r}.")
        state[ours] = _plain(left.pop(theirs), theirs, shape, turned)
    _refuse(left)
    size = (names["n_tokens"], names["width"])
    if not names["tied"]:
        if tied is None:
            raise ValueError("The weights lack 'lm_head.weight', which is not tied.")
        state["head.weight"] = _plain(tied, "lm_head.weight", size, False)
    elif tied is not None:
        head = _plain(tied, "lm_head.weight", size, False)
        if not bool((head == state["embedding.weight"]).all()):
            raise ValueError(
                "config.json says that 'lm_head.weight' is the embedding, but the "
                "file holds other numbers."
            )
    return state


def _table(
    names: Mapping[str, Any],
) -> Iterable[tuple[str, tuple[str, tuple[int, ...], bool]]]:
    """Their name, and our name, the shape in their file, and whether it is turned."""
    d, hidden = names["width"], names["hidden"]
    yield "wte.weight", (OUTER["wte.weight"], (names["n_tokens"], d), False)
    yield "wpe.weight", (OUTER["wpe.weight"], (names["context"], d), False)
    for part in ("weight", "bias"):
        yield f"ln_f.{part}", (OUTER[f"ln_f.{part}"], (d,), False)
    outs = {"attn.c_attn": (d, 3 * d), "attn.c_proj": (d, d)}
    outs |= {"mlp.c_fc": (d, hidden), "mlp.c_proj": (hidden, d)}
    for i in range(names["n_layers"]):
        for theirs, ours in NORMS.items():
            for part in ("weight", "bias"):
                yield (
                    f"h.{i}.{theirs}.{part}",
                    (f"layers.{i}.{ours}.{part}", (d,), False),
                )
        for theirs, ours in LINEAR.items():
            into = f"layers.{i}.{ours}"
            yield f"h.{i}.{theirs}.weight", (f"{into}.weight", outs[theirs], True)
            yield f"h.{i}.{theirs}.bias", (f"{into}.bias", outs[theirs][1:], False)


def _plain(value: Any, name: str, shape: tuple[int, ...], turned: bool) -> Any:
    if tuple(value.shape) != shape or not value.is_floating_point():
        raise ValueError(
            f"The weights {name!r} must be numbers of shape {shape}, got "
            f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}."
        )
    value = value.float()
    if not bool(value.isfinite().all()):
        raise ValueError(f"The weights {name!r} hold NaN or infinity.")
    return value.T.contiguous() if turned else value.contiguous()


def _refuse(left: Mapping[str, Any]) -> None:
    if left:
        some = ", ".join(map(repr, list(left)[:3]))
        raise ValueError(
            f"The file has {len(left)} weights that GPT-2 does not have: {some}."
        )
