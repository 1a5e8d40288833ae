"""Compress a text with a model, and get it back.

    bits of the file ≤ −log₂ p(text) + header,   up to 1e-6 bits a token

An arithmetic coder writes each token with the probability that the model gives it. The
file therefore shows the model's bits per byte: whoever has the model can restore the
text from it. The model itself is not in the file, and its size is not counted.

A file begins with "CLM1", the number of bytes and of tokens, eight bytes of the text's
SHA-256 and eight of the model's. Then the code follows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

import numpy as np

from certus.language.decoding import coding_kernels as kernels
from certus.language.decoding.packing import pack
from certus.language.decoding.samplers import CompiledDecoder
from certus.language.tokens.tokenizers import ByteTokenizer
from certus.typing import Array

#: Called with the share of the work that is done, or nothing.
OnShare = Callable[[float], None] | None
MAGIC = b"CLM1"
#: Tokens that are read between two looks at whether somebody pressed Ctrl-C.
STEPS = 256


class Law(Protocol):
    """A model of text whose probabilities of the next token are always the same."""

    tokenizer_: ByteTokenizer

    def next_probabilities(self, ids: Array) -> Array:
        """The probability of each token to come next."""


def compress(
    text: bytes,
    model: Law,
    decoder: CompiledDecoder | None = None,
    on_share: OnShare = None,
) -> bytes:
    """The text as a file that :func:`decompress` restores with the same model.

    Parameters
    ----------
    text : bytes
        What to compress.
    model : model of texts
        Its ``next_probabilities`` give the distribution of each token, unless there is
        a decoder.
    decoder : CompiledDecoder, optional
        The model's network in its compiled form.
    on_share : callable, optional
        Is called with the share that is done, if there is a decoder.
    """
    ids = np.asarray(model.tokenizer_.encode(text), np.int64)
    if model.tokenizer_.decode_bytes(ids) != text:
        raise ValueError("The tokeniser does not restore this text; fit another one.")
    out = np.zeros(4 * len(ids) + 16, np.uint8)
    state = _state()
    if decoder is not None:
        for first, logits in decoder.scores(np.r_[decoder.end, ids][:-1]):
            tokens = ids[first : first + len(logits)]
            kernels.put_scored(logits, tokens, state, out)
            if on_share is not None:
                on_share((first + len(logits)) / len(ids))
    else:
        for i, token in enumerate(ids):
            kernels.put(_law(model, ids[:i]), token, state, out)
    if len(ids):
        kernels.finish(state, out)
    code = out[: (state[kernels.AT] + 7) >> 3].tobytes()
    numbers = _number(len(text)) + _number(len(ids))
    marks = _mark(text) + fingerprint(model, decoder)
    return MAGIC + numbers + marks + code.rstrip(b"\0")


def decompress(
    data: bytes,
    model: Law,
    decoder: CompiledDecoder | None = None,
    on_share: OnShare = None,
) -> bytes:
    """The text in a file that :func:`compress` made with the same model."""
    n_bytes, n_tokens, text_mark, model_mark, code = _header(data)
    if model_mark != fingerprint(model, decoder):
        raise ValueError(
            "The text was compressed by another model, or by this one where its "
            "numbers come out differently. Use the model that compressed it."
        )
    try:
        text: bytes | None
        if decoder is None:
            text = _read_laws(n_bytes, n_tokens, code, model)
        else:
            text = _read_network(n_bytes, n_tokens, code, model, decoder, on_share)
    except _Damaged:
        text = None
    if text is None or _mark(text) != text_mark:
        raise ValueError(
            "The text cannot be restored: the file is damaged, or this processor "
            "computes other probabilities than the one that compressed it."
        )
    return text


class _Damaged(Exception):
    """More bytes than the header says, or a code that ends too early."""


def _read_network(
    n_bytes: int,
    n_tokens: int,
    code: Array,
    model: Law,
    decoder: CompiledDecoder,
    on_share: OnShare,
) -> bytes:
    """Restore the text; memory grows with what is found, not with the header."""
    room = STEPS + 1
    ids = np.full((1, room), decoder.end, np.int64)
    lengths, starts = np.ones(1, np.int64), np.zeros(1, np.int64)
    read, caches = np.zeros(1, np.int64), decoder.caches(1)
    state = _state()
    kernels.begin_reading(state, code)
    sizes = np.array([len(token) for token in model.tokenizer_.tokens])
    while lengths[0] <= n_tokens:
        if lengths[0] == ids.shape[1]:
            ids = np.concatenate([ids, np.zeros_like(ids)], axis=1)
        most = min(n_tokens + 1, int(lengths[0]) + STEPS, ids.shape[1])
        kernels.get_some(
            decoder.net, decoder.stride, *caches, ids, lengths, starts, read, most,
            state, code,
        )  # fmt: skip
        _require_sane(int(sizes[ids[0, 1 : lengths[0]]].sum()), n_bytes, state, code)
        if lengths[0] == n_tokens + 1:
            break
        if on_share is not None:
            on_share(float(lengths[0]) / n_tokens)
    return model.tokenizer_.decode_bytes(ids[0, 1 : n_tokens + 1])


def _read_laws(n_bytes: int, n_tokens: int, code: Array, model: Law) -> bytes:
    ids: list[int] = []
    size, tokens = 0, model.tokenizer_.tokens
    state = _state()
    kernels.begin_reading(state, code)
    while len(ids) < n_tokens:
        p = _law(model, np.array(ids, np.int64))
        ids.append(int(kernels.get(p, state, code)))
        size += len(tokens[ids[-1]])
        _require_sane(size, n_bytes, state, code)
    return model.tokenizer_.decode_bytes(np.array(ids, np.int64))


def _require_sane(size: int, n_bytes: int, state: Array, code: Array) -> None:
    if size > n_bytes or state[kernels.AT] > 8 * len(code) + 128:
        raise _Damaged


def fingerprint(model: Law, decoder: CompiledDecoder | None) -> bytes:
    """Eight bytes that tell models apart: vocabulary, weights, or probabilities."""
    mark = hashlib.sha256()
    for token in model.tokenizer_.tokens:
        mark.update(len(token).to_bytes(4, "little") + token)
    if decoder is not None:
        for part in pack(decoder.config, decoder.weights):
            mark.update(np.ascontiguousarray(part).tobytes())
    else:
        ids = np.arange(min(4, model.tokenizer_.n_tokens))
        for i in range(len(ids) + 1):
            mark.update(_law(model, ids[:i]).tobytes())
    return mark.digest()[:8]


def _law(model: Law, ids: Array) -> Array:
    return np.ascontiguousarray(model.next_probabilities(ids), np.float64)


def _state() -> Array:
    state = np.zeros(5, np.int64)
    state[kernels.HIGH] = kernels.TOP
    return state


def _mark(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()[:8]


def _number(value: int) -> bytes:
    """A whole number in as few bytes as it needs, seven bits in each."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 127
        out.append(low | (128 if value else 0))
        if not value:
            return bytes(out)


def _header(data: bytes) -> tuple[int, int, bytes, bytes, Array]:
    """Number of bytes and tokens, both marks, and the code."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"data must be bytes, got {type(data).__name__}.")
    data = bytes(data)
    at, numbers = len(MAGIC), []
    for _ in range(2):
        value, shift = 0, 0
        while at < len(data) and shift <= 56:
            byte, at = data[at], at + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                numbers.append(value)
                break
    wrong = len(numbers) < 2 or numbers[1] > numbers[0] or len(data) < at + 16
    if not data.startswith(MAGIC) or wrong:
        raise ValueError(
            "data must be what compress() returned; this begins differently or ends "
            "too early."
        )
    code = np.frombuffer(data[at + 16 :], np.uint8)
    return numbers[0], numbers[1], data[at : at + 8], data[at + 8 : at + 16], code
