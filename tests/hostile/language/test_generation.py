"""Generation and compression under absurd parameters, forged files and Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from tests.helpers.language import WritingModel

from certus.language import ByteTokenizer
from certus.language.base import END
from certus.language.decoding.packing import pack
from certus.language.decoding.samplers import CompiledDecoder


@pytest.fixture(scope="module")
def model() -> WritingModel:
    return WritingModel()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"temperature": -1}, "temperature must be a finite number of at least 0"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"temperature": float("inf")}, "temperature must be"),
        ({"temperature": 1e-9}, "use 0 for the most probable"),
        ({"top_k": 0}, "top_k must be a whole number of at least 1"),
        ({"top_k": 2.5}, "top_k must be a whole number of at least 1"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\]"),
        ({"top_p": 1.5}, r"top_p must be in \(0, 1\]"),
        ({"top_p": float("nan")}, "top_p must be"),
        ({"max_tokens": -1}, "max_tokens must be a whole number of at least 0"),
        ({"max_tokens": 1.5}, "max_tokens must be"),
        ({"beam": 0}, "beam must be a whole number of at least 1"),
        ({"beam": 2, "temperature": 0.5}, "Beam search looks for the most probable"),
        ({"draft_tokens": 0}, "draft_tokens must be"),
    ],
)
def test_wrong_parameters(model: WritingModel, words: Any, match: str) -> None:
    draft = {"draft": model} if "draft_tokens" in words else {}
    with pytest.raises(ValueError, match=match):
        model.generate("a", **{"max_tokens": 4, **words, **draft})


@pytest.mark.parametrize("prompt", [None, 3, ["a", "b"], {"a": 1}])
def test_wrong_prompts(model: WritingModel, prompt: Any) -> None:
    with pytest.raises(TypeError, match="prompt must be a str or bytes"):
        model.generate(prompt)
    with pytest.raises(TypeError, match="prompts must be a list"):
        model.generate_many("one text")


@pytest.mark.parametrize("prompt", ["", b"\0\0", b"\xff\xfe", "x" * 500, "🎉" * 9])
def test_odd_prompts(model: WritingModel, prompt: Any) -> None:
    for words in ({}, {"beam": 2}, {"draft": model}, {"temperature": 0}):
        made = model.generate(prompt, 5, random_state=0, **words)
        assert 1 <= len(made.generated) <= 5 and np.isfinite(made.log_probs).all()


def test_nothing_to_generate(model: WritingModel) -> None:
    for words in ({}, {"beam": 2}, {"draft": model}):
        made = model.generate("a", 0, **words)
        assert made.text == "" and not made.finished and made.log_prob == 0.0
    assert model.generate_many([], 5) == []


def test_the_name_of_the_end_token_in_a_prompt_is_text(model: WritingModel) -> None:
    assert model.generate(END, 1).prompt_length == len(END)


@pytest.mark.parametrize("context", [1, 2, 3])
def test_tiny_contexts(context: int) -> None:
    model = WritingModel(context=context)
    for words in ({}, {"beam": 2}, {"draft": WritingModel(seed=1, context=2)}):
        assert len(model.generate("abc", 9, random_state=0, **words).generated) == 9
    assert model.decompress(model.compress(b"some text")) == b"some text"


def test_a_draft_with_other_tokens(model: WritingModel) -> None:
    other = WritingModel(ByteTokenizer(special_tokens=(END, "<|more|>")))
    with pytest.raises(ValueError, match="draft must have the same tokens"):
        model.generate("a", draft=other)
    with pytest.raises(TypeError, match="draft must be a fitted LanguageModel"):
        model.generate("a", draft="gpt2")


def test_wrong_networks(model: WritingModel) -> None:
    broken = WritingModel()
    broken.weights_["norm.weight"][0] = np.nan
    with pytest.raises(ValueError, match=r"'norm\.weight' must be finite"):
        broken.generate("a")
    lost = {k: v for k, v in model.weights_.items() if k != "embedding.weight"}
    with pytest.raises(ValueError, match=r"weights lack 'embedding\.weight'"):
        CompiledDecoder(model.config_, lost, 256)
    with pytest.raises(ValueError, match="Only a decoder"):
        pack({**model.config_, "kind": "encoder"}, model.weights_)
    with pytest.raises(ValueError, match="network has 300 tokens"):
        broken.config_ = {**broken.config_, "n_tokens": 300}
        broken.generate("a")
    del broken.tokenizer_, broken.config_, broken.weights_, broken.network_
    with pytest.raises(NotFittedError):
        broken.generate("a")


def test_damaged_files_are_refused_or_give_the_text_all_the_same(
    model: WritingModel,
) -> None:
    """A few bits, such as the last ones, are not needed to restore the text."""
    text = b"What is written, remains."
    file, refused = model.compress(text), 0
    for place in range(len(file)):
        forged = bytearray(file)
        forged[place] ^= 1 << (place % 8)
        try:
            assert model.decompress(bytes(forged)) == text
        except ValueError as error:
            assert re.search(r"restored|compress|model", str(error))
            refused += 1
    assert refused >= len(file) - 2
    for size in range(len(file)):
        with pytest.raises(ValueError, match=r"restored|compress"):
            model.decompress(file[:size])
    with pytest.raises(TypeError, match="data must be bytes"):
        model.decompress("a string")


def test_a_forged_length_takes_neither_memory_nor_time(model: WritingModel) -> None:
    file = model.compress(b"What is written, remains.")
    huge = b"\xff" * 7 + b"\x01"
    start = time.monotonic()
    with pytest.raises(ValueError, match="cannot be restored"):
        model.decompress(file[:4] + huge + huge + file[6:])
    assert time.monotonic() - start < 20


def test_another_model_is_recognised(model: WritingModel) -> None:
    file = model.compress("some text")
    with pytest.raises(ValueError, match="compressed by another model"):
        WritingModel(seed=5).decompress(file)
    with pytest.raises(ValueError, match="takes one text"):
        model.compress(["two", "texts"])


def test_ctrl_c_stops_a_generation(ctrl_c: None) -> None:
    model = WritingModel()
    model.weights_["embedding.weight"][256] = 0  # the end is never likely
    model.generate("", 1)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(1_000):
            model.generate("", 20_000, random_state=0)
    assert time.monotonic() - start < 10
