"""The same ids as Hugging Face's tokenizers and tiktoken, in both directions.

The same facts without these libraries: tests/exact/language/test_vocabularies.py.
"""

from __future__ import annotations

import random
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from certus.language import BPETokenizer
from certus.language.tokens.splitting_kernels import RULES
from helpers.tokenising import TRICKY, tricky_texts

TEXT = (
    "The sea, the sea! It's 1234567 miles.\n\n  They'LL sail on.\r\n\tМоре 123.  \n" * 9
)
#: Characters that Python's table of Unicode knows; others may know more.
KNOWN = [
    chr(c)
    for c in range(0x110000)
    if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")
]


def texts() -> list[str]:
    rng = random.Random(5)
    mixed = [
        "".join(rng.choice(rng.choice((KNOWN, TRICKY))) for _ in range(20))
        for _ in range(500)
    ]
    return [TEXT, "", *tricky_texts(500, 6), *mixed]


def ours(rule: str) -> BPETokenizer:
    taught = [TEXT, *tricky_texts(400, 7)]
    return BPETokenizer(700, pattern=rule, special_tokens=["<|end|>"]).fit(taught)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_hugging_face_gives_the_same_ids(rule: str, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    model = ours(rule)
    model.to_tokenizers(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in texts():
        assert theirs.encode(text).ids == model.encode(text).tolist(), repr(text)
        assert theirs.decode(model.encode(text).tolist()) == text
    named = "a<|end|> b<|end|>"
    assert theirs.encode(named).ids == model.encode(named, special=True).tolist()


def test_a_vocabulary_of_hugging_face_is_read(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.ByteLevelBPETokenizer()
    theirs.train_from_iterator([TEXT], vocab_size=400, special_tokens=["<|endoftext|>"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    model = BPETokenizer.from_tokenizers(tmp_path / "tokenizer.json")
    assert model.special == {"<|endoftext|>": 0}
    for text in texts():
        assert theirs.encode(text).ids == model.encode(text).tolist(), repr(text)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_tiktoken_gives_the_same_ids(rule: str) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    model = ours(rule)
    theirs = tiktoken.Encoding(
        "ours",
        pat_str=model.regex,
        mergeable_ranks=model.to_tiktoken(),
        special_tokens=model.special,
    )
    for text in texts():
        assert theirs.encode_ordinary(text) == model.encode(text).tolist(), repr(text)
    named = "a<|end|> b<|end|>"
    both = theirs.encode(named, allowed_special="all")
    assert both == model.encode(named, special=True).tolist()
    again = BPETokenizer.from_tiktoken(theirs)
    np.testing.assert_array_equal(again.merges_, model.merges_)


def test_sentencepiece_loses_what_we_keep(tmp_path: Path) -> None:
    """Runs of spaces and line breaks become one space there."""
    sentencepiece = pytest.importorskip("sentencepiece")
    text = "two  spaces\nand a line break\n"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text] * 50),
        model_prefix=str(tmp_path / "sp"),
        vocab_size=25,
        model_type="bpe",
        minloglevel=2,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "sp.model"))
    model = BPETokenizer(280).fit([text] * 50)
    assert model.decode(model.encode(text)) == text
    assert theirs.decode(theirs.encode(text)) != text
