"""Corpora: what a word is, and ids that spell the documents they came from."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certus.text import LineCorpus, Vocabulary, encode, sentences, tokenize

words = st.text("abcdeé", min_size=1, max_size=3)
corpora = st.lists(st.lists(words, max_size=8), max_size=8)


def spelt(found: Any) -> list[list[str]]:
    """The documents that ids and offsets stand for."""
    at = found.offsets
    return [[found.words[i] for i in found.ids[a:b]] for a, b in pairwise(at)]


# -- words ------------------------------------------------------------------------


@given(st.text(st.characters(codec="ascii")))
def test_ascii_words_are_runs_of_word_characters(text: str) -> None:
    assert tokenize(text) == re.findall(r"\w+(?:'\w+)*", text.lower())


def test_words_of_other_scripts() -> None:
    assert tokenize("Grüße, ÉCOLE; don’t 東京 naïve") == [
        *("grüße", "école", "don’t", "東京", "naïve")
    ]
    # Composed and decomposed accents are one word; Hindi vowel signs stay in theirs.
    assert tokenize("cafe\u0301") == tokenize("caf\u00e9") == ["café"]
    assert tokenize("हिन्दी में") == ["हिन्दी", "में"]


def test_sentences_end_where_they_should() -> None:
    text = 'Pi is 3.14. "Really?" Yes!\n\nA new paragraph\ngoes on… and ends'
    assert sentences(text) == [
        *("Pi is 3.14.", '"Really?', "Yes!", "A new paragraph\ngoes on…", "and ends")
    ]
    assert sentences(" \n ") == [] and sentences("完了。次へ") == ["完了。", "次へ"]


# -- ids --------------------------------------------------------------------------


@given(corpora, st.integers(1, 3), st.none() | st.integers(1, 4))
def test_ids_spell_the_documents(texts: Any, min_count: int, most: int | None) -> None:
    found = encode(texts, min_count=min_count, max_words=most)
    counts = Counter(word for document in texts for word in document)
    # Python's sort is stable, and a Counter remembers first appearance.
    expected = sorted(counts, key=lambda word: -counts[word])
    expected = [word for word in expected if counts[word] >= min_count][:most]
    assert found.words == expected
    assert found.counts.tolist() == [counts[word] for word in expected]
    kept = [[word for word in text if word in expected] for text in texts]
    assert spelt(found) == kept
    assert found.n_dropped == counts.total() - sum(map(len, kept))
    assert found.n_documents == len(texts)


@given(corpora, st.lists(words, unique=True, max_size=5))
def test_a_given_vocabulary_keeps_its_order(texts: Any, known: list[str]) -> None:
    for given_as in (known, Vocabulary(known), {w: i for i, w in enumerate(known)}):
        found = encode(texts, vocabulary=given_as)
        assert found.words == known
        assert spelt(found) == [[w for w in text if w in known] for text in texts]


@pytest.mark.parametrize("in_memory", [0, 50, 10**9])
@pytest.mark.parametrize("chunk", [1, 7, 10**6])
def test_pieces_and_files_change_nothing(
    monkeypatch: Any, in_memory: int, chunk: int
) -> None:
    rng = np.random.default_rng(0)
    texts = [
        [f"w{i}" for i in rng.zipf(1.5, size=rng.integers(0, 9))] for _ in range(60)
    ]
    plain = encode(texts, min_count=2)
    monkeypatch.setitem(encode.__globals__, "IN_MEMORY", in_memory)
    monkeypatch.setitem(encode.__globals__, "CHUNK", chunk)
    found = encode((text for text in texts), min_count=2)
    assert spelt(found) == spelt(plain) and found.words == plain.words
    assert found.n_dropped == plain.n_dropped
    assert isinstance(found.ids, np.memmap) == (in_memory <= 50)
    again = encode(texts, vocabulary=plain.words)
    assert spelt(again) == spelt(plain)


def test_documents_of_every_kind() -> None:
    texts = ["A b", ("a", "b"), np.array(["a"]), {"a": 1}.keys(), iter(["b"])]
    assert spelt(encode(texts)) == [["a", "b"], ["a", "b"], ["a"], ["a"], ["b"]]
    assert spelt(encode(["A-b c"], tokenizer="whitespace")) == [["A-b", "c"]]
    assert spelt(encode(["abc"], tokenizer=list)) == [["a", "b", "c"]]


@pytest.mark.parametrize("name", ["lines.txt", "lines.txt.gz"])
def test_lines_of_a_file_can_be_read_again(tmp_path: Any, name: str) -> None:
    text = "first line\r\n\nÜnïcode\u2028inside\nlast"
    opener: Any = gzip.open if name.endswith("gz") else open
    with opener(tmp_path / name, "wt", encoding="utf-8", newline="") as handle:
        handle.write(text)
    lines = LineCorpus(tmp_path / name)
    assert list(lines) == ["first line", "", "Ünïcode\u2028inside", "last"]
    assert encode(lines).words == encode(list(lines)).words
