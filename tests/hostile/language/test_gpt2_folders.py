"""Folders that are damaged, forged, or hold another network than they say."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.gpt2_folder import CONFIG, tokenizer_json, weights, write

from certus.language import read_gpt2


class Bomb:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('executed')",))


def test_pickled_weights_are_not_opened(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match="can execute code"):
        read_gpt2(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "llama"}, "model_type = 'llama'"),
        ({"model_type": None}, "model_type"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon"),
        ({"scale_attn_weights": False}, "scale_attn_weights"),
        ({"scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"auto_map": {"AutoModel": "evil.Model"}}, "auto_map"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"activation_function": "silu"}, "'silu' is not known"),
        ({"n_layer": 0}, "n_layer"),
        ({"n_layer": 10**9}, "fewer layers"),
        ({"n_layer": 3}, "lack 'h.2"),
        ({"n_layer": 1}, "does not have"),
        ({"n_embd": 10**9}, "wte.weight"),
        ({"n_embd": "16"}, "n_embd"),
        ({"n_positions": True}, "n_positions"),
        ({"n_positions": 10**12}, "wpe.weight"),
        ({"n_inner": 10**9}, "c_fc"),
        ({"n_head": 3}, "multiple of heads"),
        ({"vocab_size": 100}, "wte.weight"),
        ({"tie_word_embeddings": False}, "not tied"),
    ],
    ids=str,
)
def test_settings_that_mean_another_network(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    folder = write(tmp_path / "m", {**CONFIG, **change}, weights(CONFIG))
    with pytest.raises(ValueError, match=said):
        read_gpt2(folder)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b"[" * 100_000),
        ("config.json", b"\xff\xfe"),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"nothing"),
        ("model.safetensors", b""),
        ("model.safetensors", b"\xff" * 100),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, data: bytes) -> None:
    folder = write(tmp_path / "m")
    (folder / name).write_bytes(data)
    with pytest.raises(ValueError, match=r"JSON|hold|read|damaged"):
        read_gpt2(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_files_that_are_missing(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "m")
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"no {name}"):
        read_gpt2(folder)
    with pytest.raises(ValueError, match="not a folder"):
        read_gpt2(folder / "config.json")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite(tmp_path: Path, bad: float) -> None:
    given = weights(CONFIG)
    given["transformer.ln_f.bias"][3] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        read_gpt2(write(tmp_path / "m", given=given))


def test_weights_of_another_kind_and_others(tmp_path: Path) -> None:
    given = weights(CONFIG)
    whole = given | {"transformer.ln_f.bias": np.zeros(16, np.int32)}
    with pytest.raises(ValueError, match="int32"):
        read_gpt2(write(tmp_path / "a", given=whole))
    with pytest.raises(ValueError, match="does not have: 'extra'"):
        read_gpt2(write(tmp_path / "b", given=given | {"extra": np.zeros(1)}))
    head = {"lm_head.weight": np.zeros((260, 16), np.float32)}
    with pytest.raises(ValueError, match="other numbers"):
        read_gpt2(write(tmp_path / "c", given=given | head))


@pytest.mark.parametrize("name", ["../up.safetensors", "/etc/passwd", "a/b", None])
def test_an_index_that_leads_elsewhere(tmp_path: Path, name: Any) -> None:
    folder = write(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"wte.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="same folder"):
        read_gpt2(folder)


def test_a_tokeniser_of_another_model(tmp_path: Path) -> None:
    large = tokenizer_json()
    large["model"]["vocab"] |= {f"the{i}": 260 + i for i in range(9)}
    with pytest.raises(ValueError, match="different models"):
        read_gpt2(write(tmp_path / "a", tokenizer=large))
    without = tokenizer_json()
    without["added_tokens"] = []
    del without["model"]["vocab"]["<|endoftext|>"]
    with pytest.raises(ValueError, match="no end-of-text token"):
        read_gpt2(write(tmp_path / "b", tokenizer=without))
