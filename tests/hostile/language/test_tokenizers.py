"""Tokenisers and absurd input: errors that say what to do, and nothing lost."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import certus
from certus.language import BPETokenizer, ByteTokenizer

TEXT = "low lower lowest, slow slower; new newer newest. " * 4


@pytest.fixture(scope="module")
def model() -> BPETokenizer:
    return BPETokenizer(290, special_tokens=["<|end|>"]).fit(TEXT)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"\0" * 1000,
        b"\xff\xfe\xfd",
        b"\xc3",
        b"\xed\xa0\x80",  # half a surrogate pair
        b"\xf4\x90\x80\x80",  # beyond Unicode
        b"\xe2\x82",
        b"low\xffer \x80\x80 \xc0\xaf",
        bytes(range(256)) * 3,
        b"a" * 100_000,
        b" " * 100_000,
        b"\n " * 50_000,
        "é".encode() * 10_000,
    ],
    ids=lambda data: repr(data[:8]),
)
@pytest.mark.parametrize("rule", ["gpt2", "cl100k", "cl100k_end"])
def test_any_bytes_come_back(data: bytes, rule: str) -> None:
    learnt = BPETokenizer(300, pattern=rule).fit([TEXT, data])
    assert learnt.decode_bytes(learnt.encode(data)) == data


def test_a_long_text_without_a_line_break(tmp_path: Path) -> None:
    """32 MB in one line are read in parts; without a space, as one piece."""
    path = tmp_path / "line.txt"
    path.write_bytes(TEXT.encode() * 160_000)
    learnt = BPETokenizer(300).fit(path)
    assert b" lower" in learnt.tokens
    data = b"lowlower" * 400_000
    assert learnt.decode_bytes(learnt.encode(data)) == data


@pytest.mark.parametrize("texts", ["", b"", [], [""], iter([])])
def test_an_empty_text_cannot_be_learnt(texts) -> None:
    with pytest.raises(ValueError, match="hold no byte"):
        BPETokenizer().fit(texts)


def test_an_empty_text_has_no_tokens(model) -> None:
    assert model.encode("").tolist() == [] and model.decode([]) == ""
    assert model.encode("", special=True).tolist() == []


def test_one_character_is_enough() -> None:
    learnt = BPETokenizer().fit("a")
    assert learnt.n_tokens == 256 and learnt.certificate_.met


@pytest.mark.parametrize(
    "texts, told",
    [
        (list("hello world"), "single characters"),
        ([1, 2, 3], "must be str or bytes, got int"),
        (5, "must be a text, a path, or a list"),
        ({"a": "b"}, "must be a text, a path, or a list"),
        (None, "must be a text, a path, or a list"),
        (["a\ud800b"], "unpaired surrogate"),
    ],
)
def test_objects_that_are_not_texts_are_refused(texts, told) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        BPETokenizer().fit(texts)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder; give its files"):
        BPETokenizer().fit(tmp_path)
    with pytest.raises(FileNotFoundError):
        BPETokenizer().fit(tmp_path / "nowhere.txt")


@pytest.mark.parametrize(
    "ids, told",
    [
        ([10**6], "not in the vocabulary"),
        ([-1], "not in the vocabulary"),
        ([0.5], "whole numbers"),
        ([[1, 2]], "whole numbers"),
        (["a"], "whole numbers"),
        (np.array([2**63], np.uint64), "not in the vocabulary"),
    ],
)
def test_unknown_tokens_are_refused(model, ids, told) -> None:
    with pytest.raises(ValueError, match=told):
        model.decode(ids)


@pytest.mark.parametrize(
    "params, told",
    [
        ({"vocab_size": 100}, "at least 256"),
        ({"vocab_size": 256, "special_tokens": ["x"]}, "at least 257"),
        ({"vocab_size": 3.5}, "vocab_size must be an integer"),
        ({"vocab_size": 10**12}, "vocab_size"),
        ({"min_count": 0}, "min_count"),
        ({"pattern": "o200k"}, "pattern must be one of 'gpt2'"),
        ({"special_tokens": "<|end|>"}, "write \\['<|end|>'\\]"),
        ({"special_tokens": ["x", "x"]}, "occurs twice"),
        ({"special_tokens": [""]}, "at least one character"),
        ({"special_tokens": [7]}, "got 7"),
    ],
)
def test_wrong_parameters_are_refused(params, told) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        BPETokenizer(**params).fit(TEXT)


def test_an_unfitted_tokeniser_says_so() -> None:
    for call in (
        lambda m: m.encode("a"),
        lambda m: m.tokens,
        lambda m: m.to_tiktoken(),
    ):
        with pytest.raises(NotFittedError):
            call(BPETokenizer())
    with pytest.raises(TypeError, match="write \\[text\\]"):
        ByteTokenizer().transform("abc")


# -- files ------------------------------------------------------------------------


def ranks_file(path: Path, lines: list[bytes]) -> Path:
    every = [base64.b64encode(bytes([b])) + b" %d" % b for b in range(256)]
    path.write_bytes(b"\n".join(every + lines))
    return path


@pytest.mark.parametrize(
    "lines, told",
    [
        ([b"not base64! 256"], "Line 257"),
        ([b"YWI="], "Line 257"),
        ([b"YWI= x"], "Line 257"),
        ([b"YWI= 5"], "same id"),
        ([b"YWI= -5"], "whole number"),
        ([b"YWI= 999999999"], "damaged"),
        ([base64.b64encode(b"a" * 5000) + b" 256"], "5,000 bytes"),
    ],
)
def test_damaged_ranks_are_refused(tmp_path: Path, lines, told) -> None:
    path = ranks_file(tmp_path / "r.tiktoken", lines)
    with pytest.raises(ValueError, match=told):
        BPETokenizer.from_tiktoken(path, pattern="gpt2")


def test_ranks_need_a_known_pattern_and_all_bytes(tmp_path: Path) -> None:
    path = ranks_file(tmp_path / "r.tiktoken", [])
    with pytest.raises(ValueError, match="does not say how texts are cut"):
        BPETokenizer.from_tiktoken(path)
    with pytest.raises(ValueError, match=r"o200k.* is not known"):
        BPETokenizer.from_tiktoken(path, pattern="o200k")
    with pytest.raises(ValueError, match="255 of the 256 bytes have no token"):
        BPETokenizer.from_tiktoken({b"a": 0}, pattern="gpt2")
    with pytest.raises(ValueError, match="each a few bytes"):
        BPETokenizer.from_tiktoken({"a": 0}, pattern="gpt2")


def test_damaged_json_is_refused(model, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    model.to_tokenizers(path)
    whole = path.read_bytes()
    for cut in (0, 1, len(whole) // 2, len(whole) - 2):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="is not JSON"):
            BPETokenizer.from_tokenizers(path)
    contents = json.loads(whole)
    for forged in (
        {},
        {"model": 5},
        {"model": {"type": "BPE", "vocab": [], "merges": []}},
        contents | {"model": contents["model"] | {"merges": [["a"]]}},
        contents | {"model": contents["model"] | {"merges": [["a", "☃"]]}},
        contents | {"model": contents["model"] | {"vocab": {"a": "b"}}},
        contents | {"added_tokens": [{"id": 1, "special": True, "content": 5}]},
        contents | {"added_tokens": 7},
        [],
    ):
        with pytest.raises(ValueError):
            BPETokenizer.from_tokenizers({"model": forged} if forged == [] else forged)
    with pytest.raises(ValueError, match="is a folder"):
        BPETokenizer.from_tokenizers(tmp_path)


def test_deeply_nested_json_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError):
        BPETokenizer.from_tokenizers(path)


def test_a_full_disk_leaves_the_old_file(model, tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with pytest.raises(certus.persist.ModelFileError):
        model.to_tokenizers("/dev/full")


def test_a_forged_model_file_does_not_crash(model, tmp_path: Path) -> None:
    """Merges of tokens that do not exist give no tokens out of range."""
    path = model.save(tmp_path / "t.certus")
    back = certus.load(path)
    back.merges_ = np.array([[97, 98, 10**6]], np.int32)
    with pytest.raises(ValueError):
        certus.certify(back)
    with pytest.raises(ValueError, match="not in the vocabulary"):
        back.decode(back.encode("ab"))


@pytest.mark.parametrize("made", [258, 10**6])
def test_forged_merges_do_not_crash_where_a_word_is_huge(made: int) -> None:
    """There compiled code goes from token to token by their lengths."""
    changed = BPETokenizer(270).fit("low lower lowest " * 9)
    changed.merges_ = np.array([[97, 98, made], *changed.merges_.tolist()], np.int32)
    assert changed.encode("ab" * 40_000).tolist() == [made] * 40_000
