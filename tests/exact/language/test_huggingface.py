"""A GPT-2 folder is read as what it says, and judged like any model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors
from tests.helpers.gpt2_folder import CONFIG, gpt2, weights, write

import certus
from certus.language import read_gpt2

TEXT = "the cat and the dog, thé\n"


def scores(model: Any, ids: Any) -> np.ndarray:
    with torch.no_grad():
        return model.network_(torch.as_tensor(ids)[None]).output[0].numpy()


def test_scores_are_those_of_the_paper(tmp_path: Path) -> None:
    model = read_gpt2(write(tmp_path / "m"))
    ids = model.tokenizer_.encode(TEXT)
    assert ids[0] == 257 and 258 in ids and model.tokenizer_.decode(ids) == TEXT
    truth = gpt2(CONFIG, weights(CONFIG), ids)
    np.testing.assert_allclose(scores(model, ids), truth, atol=2e-4)


def test_the_folder_is_judged(tmp_path: Path) -> None:
    model = read_gpt2(write(tmp_path / "m"))
    found = certus.certify(model, TEXT, level="full")
    ids = model.tokenizer_.encode(TEXT)
    truth = gpt2(CONFIG, weights(CONFIG), np.array([259, *ids[:-1]]))
    lp = truth - np.log(np.exp(truth).sum(1, keepdims=True))
    bits = -lp[np.arange(len(ids)), ids].sum() / math.log(2) / len(TEXT.encode())
    assert found.primary == "bits_per_byte"
    assert math.isclose(found.value, bits, rel_tol=1e-7)
    assert found["bytes_counted"].met and found["stated_bits"].met
    assert found["agreement"].met and found["causality"].met


def test_a_folder_whose_weights_were_changed(tmp_path: Path) -> None:
    """Changed after reading: the network no longer is what its weights say."""
    model = read_gpt2(write(tmp_path / "m"))
    plain = model.bits_per_byte(TEXT)
    given = weights(CONFIG)
    given["transformer.h.0.mlp.c_fc.weight"][0, 0] += 1.0
    other = read_gpt2(write(tmp_path / "n", given=given))
    assert other.bits_per_byte(TEXT) != plain


def test_names_without_a_prefix_and_old_masks(tmp_path: Path) -> None:
    given = {k.removeprefix("transformer."): v for k, v in weights(CONFIG).items()}
    given["h.0.attn.bias"] = np.ones((1, 1, 24, 24), np.float32)
    given["lm_head.weight"] = given["wte.weight"].copy()
    model = read_gpt2(write(tmp_path / "m", given=given))
    truth = gpt2(CONFIG, weights(CONFIG), [1, 2, 3])
    np.testing.assert_allclose(scores(model, [1, 2, 3]), truth, atol=2e-4)


def test_a_custom_head_is_used(tmp_path: Path) -> None:
    config = {**CONFIG, "tie_word_embeddings": False, "n_inner": 40}
    given = weights(config)
    rng = np.random.default_rng(9)
    given["lm_head.weight"] = rng.normal(size=(260, 16)).astype(np.float32)
    model = read_gpt2(write(tmp_path / "m", config, given))
    truth = gpt2(config, given, [1, 2, 3])
    np.testing.assert_allclose(scores(model, [1, 2, 3]), truth, atol=5e-4)


def test_weights_in_parts(tmp_path: Path) -> None:
    folder, given = write(tmp_path / "m"), weights(CONFIG)
    (folder / "model.safetensors").unlink()
    names = sorted(given)
    files = {"a.safetensors": names[:5], "b.safetensors": names[5:]}
    for file, some in files.items():
        save_file({name: given[name] for name in some}, folder / file)
    index = {"weight_map": {n: file for file, some in files.items() for n in some}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    truth = gpt2(CONFIG, given, [1, 2, 3])
    np.testing.assert_allclose(scores(read_gpt2(folder), [1, 2, 3]), truth, atol=2e-4)


def test_weights_in_half_precision(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    half = {k: torch.from_numpy(v).bfloat16() for k, v in weights(CONFIG).items()}
    save_tensors(half, folder / "model.safetensors")
    truth = gpt2(CONFIG, {k: v.float().numpy() for k, v in half.items()}, [1, 2])
    np.testing.assert_allclose(scores(read_gpt2(folder), [1, 2]), truth, atol=2e-4)


def test_an_imported_model_goes_through_a_model_file(tmp_path: Path) -> None:
    model = read_gpt2(write(tmp_path / "m"))
    certus.save(model, tmp_path / "m.certus")
    again = certus.load(tmp_path / "m.certus")
    assert again.bits_per_byte(TEXT) == model.bits_per_byte(TEXT)


def test_against_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_embd=16, n_head=4, n_layer=2, n_positions=24, vocab_size=260
    )
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    folder = write(tmp_path / "m")
    theirs.save_pretrained(folder)
    ids = torch.tensor([[1, 50, 257, 259]])
    with torch.no_grad():
        truth = theirs(ids).logits[0].numpy()
    np.testing.assert_allclose(scores(read_gpt2(folder), ids[0]), truth, atol=1e-5)
