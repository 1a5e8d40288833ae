"""Corpora that are none, tokens that are no words, files that are damaged."""

from __future__ import annotations

import gzip
import tempfile
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certus.text import LineCorpus, Vocabulary, encode


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ("a single string", "list of documents"),
        (b"bytes", "list of documents"),
        (pd.DataFrame({"text": ["a"]}), "column with the texts"),
        ({"a": "text"}, "column with the texts"),
        (7, "iterable of documents"),
        (np.array("x"), "iterable of documents"),
        (["ok", b"bytes"], "Document 1 is bytes"),
        (["ok", None], "Document 1 is None"),
        (pd.Series(["ok", float("nan")]), "Document 1 is nan"),
        ([["a"], {"b": 1}], "Document 1 is"),
    ],
)
def test_an_invalid_corpus_is_refused_with_a_message(texts: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        encode(texts)


@pytest.mark.parametrize("token", [1, None, b"b", 2.5, ["nested"], ("t",)])
def test_a_token_that_is_not_a_string_is_named(token: Any) -> None:
    for vocabulary in (None, ["a"]):
        with pytest.raises(
            TypeError, match="Document 2 holds a token that is not a str"
        ):
            encode([["a"], [], ["a", token]], vocabulary=vocabulary)


def test_errors_of_the_reader_itself_pass() -> None:
    def broken() -> Any:
        yield ["a"]
        raise TypeError("my own mistake")

    with pytest.raises(TypeError, match="my own mistake"):
        encode(broken())
    with pytest.raises(ValueError, match="tokenizer must be"):
        encode(["a"], tokenizer="words")


def test_vocabularies_with_repeats_or_gaps() -> None:
    with pytest.raises(ValueError, match="'a' twice"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(ValueError, match="0, 1, 2"):
        Vocabulary({"a": 0, "b": 2})


def test_damaged_files(tmp_path: Any) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"fine\n" * 3 + b"caf\xe9\n")
    with pytest.raises(ValueError, match="not UTF-8"):
        list(LineCorpus(path))
    cut = tmp_path / "cut.txt.gz"
    cut.write_bytes(gzip.compress(b"line\n" * 1000)[:-20])
    with pytest.raises(ValueError, match="compress it again"):
        list(LineCorpus(cut))
    with pytest.raises(FileNotFoundError):
        list(LineCorpus(tmp_path / "missing.txt"))


def test_lone_surrogates_and_controls_are_words_like_others() -> None:
    odd = ["\ud800", "a\x00b", "\u202e"]
    assert encode([odd]).words == odd


def test_a_full_disk_is_reported(monkeypatch: Any) -> None:
    class Full:
        def close(self) -> None: ...
        def flush(self) -> None: ...
        def write(self, _: Any) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setitem(encode.__globals__, "IN_MEMORY", 0)
    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with pytest.raises(OSError, match="set TMPDIR"):
        encode([["a", "b"]])


def test_a_million_words() -> None:
    found = encode([f"w{i}" for i in range(k, k + 1000)] for k in range(0, 10**6, 1000))
    assert len(found.words) == 10**6 and found.counts.max() == 1
    assert found.words[123_456] == "w123456"
