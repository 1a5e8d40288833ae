"""Vocabularies of other libraries, beside their rules in a few lines of Python."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from certus.language import BPETokenizer
from certus.language.tokens.splitting_kernels import RULES
from certus.language.tokens.vocabularies import REGEX, byte_characters
from helpers import tokenising

TEXT = "low lower lowest, slow slower; new newer newest. It's 1999!\n" * 4


def fitted(rule: str = "gpt2") -> BPETokenizer:
    return BPETokenizer(330, pattern=rule, special_tokens=["<|end|>", "<|pad|>"]).fit(
        TEXT
    )


def random_ranks(seed: int) -> dict[bytes, int]:
    """A vocabulary that no learning would give: any strings of a, b and c, shuffled."""
    rng = random.Random(seed)
    words = {bytes(rng.choices(b"abc", k=rng.randrange(2, 7))) for _ in range(40)}
    tokens = [bytes([b]) for b in range(256)] + sorted(words)
    rng.shuffle(tokens)
    return {token: i for i, token in enumerate(tokens)}


@pytest.mark.parametrize("seed", range(25))
def test_any_ranks_give_the_tokens_of_their_rule(seed: int) -> None:
    ranks, rng = random_ranks(seed), random.Random(seed)
    model = BPETokenizer.from_tiktoken(ranks, pattern="gpt2")
    for _ in range(200):
        piece = bytes(rng.choices(b"abc", k=rng.randrange(1, 30)))
        assert model.encode(piece).tolist() == tokenising.by_ranks(piece, ranks)
    assert model.to_tiktoken() == ranks
    again = BPETokenizer.from_tokenizers(model.to_tokenizers())
    np.testing.assert_array_equal(again.encode(b"abcabca"), model.encode(b"abcabca"))


@pytest.mark.parametrize("seed", range(10))
def test_any_merges_are_applied_by_rank(seed: int) -> None:
    """Also where several merges make one token, and where a rank comes too early."""
    rng = random.Random(seed)
    ranks = random_ranks(seed)
    pairs = [
        (t[:k], t[k:])
        for t in ranks
        for k in range(1, len(t))
        if t[:k] in ranks and t[k:] in ranks
    ]
    rng.shuffle(pairs)
    shown = {b: c for c, b in byte_characters().items()}
    word = {t: "".join(shown[b] for b in t) for t in ranks}
    contents = fitted().to_tokenizers()
    contents["added_tokens"] = []
    contents["model"]["vocab"] = {word[t]: i for t, i in ranks.items()}
    contents["model"]["merges"] = [f"{word[a]} {word[b]}" for a, b in pairs]
    model = BPETokenizer.from_tokenizers(contents)
    merges = {(ranks[a], ranks[b]): (r, ranks[a + b]) for r, (a, b) in enumerate(pairs)}
    for _ in range(200):
        piece = bytes(rng.choices(b"abc", k=rng.randrange(1, 150)))
        wanted = tokenising.join([ranks[bytes([b])] for b in piece], merges)
        assert model.encode(piece).tolist() == wanted


@pytest.mark.parametrize("rule", sorted(RULES))
def test_files_come_back_with_the_same_ids(rule: str, tmp_path: Path) -> None:
    model = fitted(rule)
    model.to_tokenizers(tmp_path / "tokenizer.json")
    model.to_tiktoken(tmp_path / "ranks.tiktoken")
    back = [
        BPETokenizer.from_tokenizers(tmp_path / "tokenizer.json"),
        BPETokenizer.from_tiktoken(
            tmp_path / "ranks.tiktoken", pattern=rule, special_tokens=model.special
        ),
    ]
    for other in back:
        assert other.tokens == model.tokens and other.special == model.special
        np.testing.assert_array_equal(other.merges_, model.merges_)
        assert other.pattern == rule
        for text in tokenising.tricky_texts(200):
            np.testing.assert_array_equal(
                other.encode(text, special=True), model.encode(text, special=True)
            )


def test_bytes_are_written_as_gpt2_writes_them() -> None:
    """The characters that its published vocabulary uses."""
    known = byte_characters()
    assert len(known) == len(set(known.values())) == 256
    assert known["Ġ"] == ord(" ") and known["Ċ"] == ord("\n") and known["!"] == ord("!")
    assert known["Ā"] == 0 and known["Ń"] == 0xAD


def test_ids_may_have_gaps_and_special_tokens_may_come_first() -> None:
    ranks = {bytes([b]): b + 10 for b in range(256)} | {b"th": 300}
    model = BPETokenizer.from_tiktoken(
        ranks, pattern="gpt2", special_tokens={"<|end|>": 0}
    )
    assert model.encode("<|end|>the", special=True).tolist() == [0, 300, 111]
    assert model.decode_bytes([0, 300, 111]) == b"the"
    assert model.n_tokens == 301


def test_an_encoding_contains_its_pattern() -> None:
    encoding = SimpleNamespace(
        _mergeable_ranks={bytes([b]): b for b in range(256)} | {b"ab": 256},
        _pat_str=REGEX["cl100k_end"].replace("{1,3}", "{1,3}+"),
        _special_tokens={"<|endoftext|>": 257},
    )
    model = BPETokenizer.from_tiktoken(encoding)
    assert model.pattern == "cl100k_end" and model.special == {"<|endoftext|>": 257}
    assert model.encode("ab").tolist() == [256]


def test_merges_that_tiktoken_would_not_follow_are_refused() -> None:
    contents = fitted().to_tokenizers()
    contents["model"]["merges"].reverse()
    with pytest.raises(ValueError, match="tiktoken would make other tokens"):
        BPETokenizer.from_tokenizers(contents).to_tiktoken()


def changed(**parts: Any) -> dict[str, Any]:
    contents = json.loads(json.dumps(fitted().to_tokenizers()))
    for path, value in parts.items():
        *folders, last = path.split("__")
        at = contents
        for folder in folders:
            at = at[folder]
        at[last] = value
    return contents


SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}


@pytest.mark.parametrize(
    "parts, told",
    [
        ({"model__type": "WordPiece"}, "WordPiece"),
        ({"model__dropout": 0.1}, "dropout=0.1"),
        ({"model__byte_fallback": True}, "byte_fallback=True"),
        ({"model__end_of_word_suffix": "</w>"}, "end_of_word_suffix"),
        ({"normalizer": {"type": "NFC"}}, "NFC"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "Whitespace"),
        ({"pre_tokenizer": None}, "None is not supported"),
        ({"pre_tokenizer__add_prefix_space": True}, "add_prefix_space"),
        ({"pre_tokenizer__use_regex": False}, "without a pattern"),
        (
            {
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [SPLIT | {"pattern": {"Regex": r"\d+"}}, BYTES],
                }
            },
            r"pattern '\\\\d\+' is not known",
        ),
        (
            {
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [
                        SPLIT | {"pattern": {"Regex": r"\p{N}{1,3}+"}},
                        BYTES,
                    ],
                }
            },
            "means another rule in Hugging Face",
        ),
        ({"decoder": {"type": "Metaspace"}}, "Metaspace"),
        ({"post_processor": {"type": "BertProcessing"}}, "BertProcessing"),
        (
            {"added_tokens": [{"id": 328, "content": "x", "special": False}]},
            "not special",
        ),
        (
            {
                "added_tokens": [
                    {"id": 9999, "content": "x", "special": True, "lstrip": True}
                ]
            },
            "lstrip",
        ),
    ],
)
def test_unknown_names_are_refused_by_name(parts: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        BPETokenizer.from_tokenizers(changed(**parts))


def test_tokens_may_be_added_around_a_text() -> None:
    around = {"type": "TemplateProcessing", "single": [], "pair": []}
    model = BPETokenizer.from_tokenizers(changed(post_processor=around))
    np.testing.assert_array_equal(model.encode(TEXT), fitted().encode(TEXT))
