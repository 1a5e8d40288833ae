"""Vector files that were cut, mixed up or forged; words no file can hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from certus.text import GloVe, PretrainedVectors, load_word2vec


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no line"),
        ("\n", "line 1"),
        ("3 2\na 1 2\nb 3 4\n", "states 3"),
        ("1 2\na 1 2\nb 3 4\n", "states 1"),
        ("2 2\na 1 2\nb 3\n", "line 3, 2 entries"),
        ("2 2\na 1 2\nb 3 4 5\n", "line 3, 4 entries"),
        ("2 2\na 1 2\na 3 4\n", "line 3, the word 'a' occurs twice"),
        ("2 2\na 1 2\nb 3 x\n", "line 3, could not convert"),
        ("2 2\na 1 2\nb nan 1\n", "line 3, a number is not finite"),
        ("2 2\na 1 2\nb 1e999 1\n", "not finite"),
        ("2 2\na 1 2\n b 1\n", "line 3"),
        ("2 0\na\nb\n", "line 2"),
        ("0 5\nword\n", "line 2"),
        ("word\n", "line 1"),
        ("99999999999999999999 3\na 1 2 3\n", "was cut"),
    ],
)
def test_damaged_files_name_the_line(tmp_path: Any, text: str, says: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        load_word2vec(path)


def test_binary_and_missing_files(tmp_path: Any) -> None:
    path = tmp_path / "vectors.bin"
    path.write_bytes(b"2 2\na \x00\x80\xff\x3f\x00\x00\x00\x40")
    with pytest.raises(ValueError, match="not UTF-8"):
        load_word2vec(path)
    with pytest.raises(FileNotFoundError):
        load_word2vec(tmp_path / "missing")
    with pytest.raises(ValueError, match="dtype must be"):
        load_word2vec(path, dtype="float16")


@pytest.mark.parametrize("word", ["two words", "", "tab\tbed", "line\n", "\ud800"])
def test_words_that_the_format_cannot_hold(tmp_path: Any, word: str) -> None:
    model = PretrainedVectors()
    model.vocabulary_, model.vectors_ = ["fine", word], np.eye(2)
    path = tmp_path / "vectors.txt"
    path.write_text("kept")
    with pytest.raises(ValueError, match="The word"):
        model.to_word2vec(path)
    assert path.read_text() == "kept"


def test_places_that_cannot_be_written_are_refused(tmp_path: Any) -> None:
    model = PretrainedVectors()
    model.vocabulary_, model.vectors_ = ["a"], np.eye(1)
    with pytest.raises(OSError, match="could not be written"):
        model.to_word2vec(tmp_path / "no" / "such" / "folder.txt")


def test_senseless_questions_are_refused() -> None:
    model = PretrainedVectors()
    for ask in (
        lambda: model["a"],
        lambda: model.transform(["a"]),
        lambda: "a" in model,
    ):
        with pytest.raises(NotFittedError):
            ask()
    model.vocabulary_, model.vectors_ = ["a", "b"], np.eye(2)
    for query in (np.ones(3), np.ones((2, 2)), np.array(["x", "y"])):
        with pytest.raises(ValueError, match="one vector of 2 numbers"):
            model.most_similar(query)
    with pytest.raises(ValueError, match="NaN or infinite"):
        model.most_similar([np.nan, 1.0])
    with pytest.raises(ValueError, match="n must be"):
        model.most_similar("a", n=0)
    with pytest.raises(ValueError, match="pooling must be"):
        model.transform(["a"], pooling="max")
    with pytest.raises(ValueError, match="weights must be"):
        model.transform(["a"], weights="tfidf")
    with pytest.raises(ValueError, match="list of documents"):
        model.transform("a")


def test_a_generator_cannot_be_read_twice() -> None:
    with pytest.raises(ValueError, match="only once"):
        GloVe(2).fit_transform(text for text in ["a b"])
