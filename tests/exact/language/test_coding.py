"""Compressed texts: the file has the bits that the model says, and comes back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.language import WritingModel

from certus.language import BPETokenizer, ByteTokenizer
from certus.language.base import END
from certus.language.decoding import coding
from certus.language.decoding import coding_kernels as kernels
from certus.language.decoding.samplers import CompiledDecoder

TEXT = (
    "It is a truth universally acknowledged, that a single man in possession of a good "
    "fortune, must be in want of a wife. " * 5
)
#: "Hello, world!", compressed by :func:`fixed_model`.
GOLDEN = (
    "434c4d310d0d315f5bdb76d078c43e810aad1c62d4303665afcd7bb18488973e659d7f6aa35ea780"
)


@pytest.fixture(scope="module")
def model() -> WritingModel:
    return WritingModel()


@pytest.mark.parametrize(
    "text", [b"", b"a", TEXT.encode(), bytes(range(256)) * 2, b"\0" * 100, b"\xff\xfe"]
)
def test_every_byte_string_comes_back(model: WritingModel, text: bytes) -> None:
    assert model.decompress(model.compress(text)) == text


@settings(max_examples=25, deadline=None)
@given(text=st.binary(max_size=60))
def test_random_bytes_come_back(text: bytes) -> None:
    model = WritingModel(seed=1)
    assert model.decompress(model.compress(text)) == text


def test_the_file_has_the_bits_that_the_model_says(model: WritingModel) -> None:
    file = model.compress(TEXT)
    ids = model.tokenizer_.encode(TEXT)
    bits = -model.token_log_probs(ids).sum() / math.log(2)  # by PyTorch
    # Zero bytes at the end of the code are left out; one is by chance in 256 files.
    assert bits - 1 - 8 <= 8 * (len(file) - 24) <= bits + 2 + 8
    assert bits == pytest.approx(model.bits_per_byte(TEXT) * len(TEXT))


def test_merged_tokens_come_back() -> None:
    tokenizer = BPETokenizer(300, special_tokens=(END,)).fit([TEXT])
    model = WritingModel(tokenizer)
    assert model.decompress(model.compress(TEXT)) == TEXT.encode()


class Counts:
    """A law that counts what came before; no network."""

    tokenizer_ = ByteTokenizer(special_tokens=(END,))

    def next_probabilities(self, ids: np.ndarray) -> np.ndarray:
        counts = 0.01 + np.bincount(ids, minlength=257)
        return counts / counts.sum()


def test_any_model_of_text_can_compress() -> None:
    model, text = Counts(), TEXT.encode()
    file = coding.compress(text, model)
    assert coding.decompress(file, model) == text
    ids = model.tokenizer_.encode(text)
    laws = [model.next_probabilities(ids[:i]) for i in range(len(ids))]
    bits = -sum(math.log2(p[x]) for p, x in zip(laws, ids))
    assert 8 * (len(file) - 24) <= bits + 10


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 40), st.integers(0, 2**32 - 1))
def test_the_coder_is_optimal_to_two_bits(n: int, seed: int) -> None:
    """Bits of the code ≤ Σ log₂(total/frequency) + 2, for laws of any shape."""
    rng = np.random.default_rng(seed)
    laws = rng.dirichlet(np.full(n, 10.0 ** rng.uniform(-2, 2)), size=30)
    tokens = rng.integers(0, n, 30)
    state, out = coding._state(), np.zeros(4 * 30 + 16, np.uint8)
    ideal = 0.0
    for p, x in zip(laws, tokens):
        kernels.put(p, x, state, out)
        f = 1 + np.floor(p * (kernels.TOTAL - n))
        ideal += math.log2(f.sum() / f[x])
    kernels.finish(state, out)
    assert state[kernels.AT] <= ideal + 2.001
    code = out[: (state[kernels.AT] + 7) // 8]
    state = coding._state()
    kernels.begin_reading(state, code)
    assert [kernels.get(p, state, code) for p in laws] == tokens.tolist()


def fixed_model() -> WritingModel:
    """Weights from whole numbers, so that they are the same everywhere."""
    model = WritingModel(position=None, width=8, heads=2)
    made = np.random.Generator(np.random.PCG64(7))
    for name, w in model.weights_.items():
        model.weights_[name] = (made.integers(-64, 65, w.shape) / 64).astype(np.float32)
    return model


def test_files_of_other_processors_are_read() -> None:
    """The bits of each probability follow from IEEE 754; this file was made once."""
    assert fixed_model().compress("Hello, world!").hex() == GOLDEN
    assert fixed_model().decompress(bytes.fromhex(GOLDEN)) == b"Hello, world!"


def test_compressing_reads_blocks_and_restoring_reads_tokens() -> None:
    """Both get the same bits, in windows that move: 200 tokens, context 16."""
    model = WritingModel(size=0.5, seed=4)
    decoder = model.decoder()
    assert isinstance(decoder, CompiledDecoder) and decoder.net.context == 16
    text = np.random.default_rng(0).integers(0, 256, 200, np.uint8).tobytes()
    assert model.decompress(model.compress(text)) == text
