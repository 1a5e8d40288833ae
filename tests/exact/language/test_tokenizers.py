"""Tokenisers beside their definitions: rules, learning, merging, and their inverse."""

from __future__ import annotations

import io
import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from certus.language import BPETokenizer, ByteTokenizer
from certus.language.tokens.pieces import PieceCounts, in_pieces
from certus.language.tokens.splitting_kernels import RULES
from certus.neural_network.modules import Transformer
from helpers import tokenising

TEXT = (
    "The sea, the sea! It's 1234567 miles.\n\n  They'LL sail on the sea; the sea is "
    "calm.\r\n\tНа море тихо, море 123 спит.   \n the the the\n"
) * 3


def pieces(text: str, rule: str) -> list[str]:
    data = np.frombuffer(text.encode(), np.uint8)
    found, at = [], 0
    for _, ends in in_pieces(data, RULES[rule]):
        for end in ends.tolist():
            found.append(data[at:end].tobytes().decode())
            at = end
    return found


@pytest.mark.parametrize("rule", sorted(RULES))
def test_texts_are_cut_as_the_regular_expressions_say(rule: str) -> None:
    for text in [TEXT, *tokenising.tricky_texts(3000)]:
        assert pieces(text, rule) == tokenising.split(text, rule), repr(text)


def test_the_rules_differ() -> None:
    """Companion: what each rule is known for."""
    assert pieces("It'S 12345", "gpt2") == ["It", "'", "S", " 12345"]
    assert pieces("It'S 12345", "cl100k") == ["It", "'S", " ", "123", "45"]
    assert pieces("x \n  ", "cl100k") == ["x", " \n", "  "]
    assert pieces("x \n  ", "cl100k_end") == ["x", " \n  "]


@pytest.mark.parametrize("rule", sorted(RULES))
def test_merges_are_the_most_frequent_pairs(rule: str) -> None:
    texts = [TEXT, *tokenising.tricky_texts(60, 1)]
    model = BPETokenizer(256 + 80, pattern=rule).fit(texts)
    assert list(map(tuple, model.merges_[:, :2].tolist())) == tokenising.learn(
        texts, rule, 80
    )


@pytest.mark.parametrize("rule", sorted(RULES))
def test_encoding_applies_merges_in_their_order(rule: str) -> None:
    model = BPETokenizer(256 + 120, pattern=rule).fit(TEXT)
    merges = {(a, b): (r, c) for r, (a, b, c) in enumerate(model.merges_.tolist())}
    for text in [TEXT, *tokenising.tricky_texts(300, 2)]:
        wanted = [
            i
            for piece in tokenising.split(text, rule)
            for i in tokenising.join(piece.encode(), merges)
        ]
        assert model.encode(text).tolist() == wanted


def test_long_pieces_are_merged_alike() -> None:
    """Beyond 96 bytes a heap does the work."""
    rng = random.Random(3)
    model = BPETokenizer(256 + 30).fit(["".join(rng.choices("ab", k=3000))])
    merges = {(a, b): (r, c) for r, (a, b, c) in enumerate(model.merges_.tolist())}
    for n in (95, 96, 97, 98, 300):
        text = "".join(rng.choices("ab", k=n))
        assert model.encode(text).tolist() == tokenising.join(text.encode(), merges)


@pytest.mark.catalog("TRF-01")
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_every_byte_string_comes_back(data: bytes) -> None:
    for model in (learnt(), ByteTokenizer(["<|end|>"])):
        assert model.decode_bytes(model.encode(data)) == data
        named = model.encode(data + b"<|end|>" + data, special=True)
        assert (named == model.special["<|end|>"]).sum() >= 1
        assert model.decode_bytes(named) == (data + data).replace(b"<|end|>", b"")


@cache
def learnt() -> BPETokenizer:
    return BPETokenizer(500, special_tokens=["<|end|>"]).fit(TEXT)


@pytest.mark.catalog("TRF-01")
def test_looking_a_token_up_is_a_product_with_one_hot_rows() -> None:
    model = learnt()
    ids = model.encode("The sea is calm.")
    net = Transformer(model.n_tokens, width=16, n_layers=1, heads=2, context=32)
    rows = net.embedding(torch.as_tensor(ids, dtype=torch.long)).detach().numpy()
    W = net.state_dict()["embedding.weight"].numpy()
    np.testing.assert_array_equal(np.eye(model.n_tokens, dtype=W.dtype)[ids] @ W, rows)


def test_files_lists_and_generators_learn_the_same(tmp_path: Path) -> None:
    lines = [f"line {i} of the text, again and again. " for i in range(300)]
    path = tmp_path / "book.txt"
    path.write_text("".join(lines))
    whole = BPETokenizer(320).fit("".join(lines))
    for given_ in (path, [path], iter(["".join(lines)]), io.StringIO("".join(lines))):
        np.testing.assert_array_equal(
            BPETokenizer(320).fit(given_).merges_, whole.merges_
        )


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_file_is_cut_where_pieces_end(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("certus.language.tokens.pieces.CHUNK", 13)
    text = TEXT + "".join(tokenising.tricky_texts(200, 4))
    path = tmp_path / "book.txt"
    path.write_bytes(text.encode())
    counted = [PieceCounts(RULES[rule]).add(given_).arrays() for given_ in (path, text)]
    for found, wanted in zip(*counted):
        np.testing.assert_array_equal(found[: len(wanted)], wanted[: len(found)])


def test_counts_have_64_bits() -> None:
    """One text counted 2³³ times beats another that is there more often modulo 2³²."""
    counted = PieceCounts().add(["ab", "cd"])
    counted.counts[:2] = [2**33, 7]
    from certus.language.tokens import bpe_learning_kernels

    merges = np.empty((2, 3), np.int32)
    done = bpe_learning_kernels.learn_merges(*counted.arrays(), 1, 2, merges)
    assert done == 1 and merges[0].tolist() == [ord("a"), ord("b"), 256]


def test_memory_grows_with_distinct_words() -> None:
    few, many = PieceCounts(), PieceCounts()
    few.add(["the sea the sea "] * 10)
    many.add(["the sea the sea "] * 10_000)
    assert len(few.store) == len(many.store) and len(few.counts) == len(many.counts)
    assert many.arrays()[2].max() == 1000 * few.arrays()[2].max()


def test_special_tokens_are_text_unless_asked_for() -> None:
    model = learnt()
    end = model.special["<|end|>"]
    assert end not in model.encode("a<|end|>b")
    assert model.encode("a<|end|>b", special=True).tolist() == [97, end, 98]
    assert model.decode([97, end, 98]) == "ab"
    assert model.n_tokens == len(model.tokens) == end + 1


def test_a_model_file_holds_a_tokeniser(tmp_path: Path) -> None:
    import certus

    for model in (learnt(), ByteTokenizer(["<|end|>"])):
        back = certus.load(model.save(tmp_path / "t.certus"))
        assert back.tokens == model.tokens and back.special == model.special
        np.testing.assert_array_equal(back.encode(TEXT), model.encode(TEXT))
