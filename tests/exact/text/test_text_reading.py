"""Compiled reading of texts against the plain one, word for word."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certus.text import corpus, encode

TEXT = st.text(
    st.sampled_from("aAbZ09_'’ \t\n\x0b\x1c\x1f\x85\xa0.!éÉß日\u0301\ud800\x00~"),
    max_size=12,
)
DOCUMENT = st.one_of(TEXT, st.lists(TEXT, max_size=3))


def plain(texts, tokenizer):
    """Words, ids and offsets by a dictionary."""
    numbers, ids, ends = {}, [], [0]
    for words in corpus.documents(texts, tokenizer):
        ids += [numbers.setdefault(word, len(numbers)) for word in words]
        ends.append(len(ids))
    return list(numbers), ids, ends


@pytest.mark.parametrize("tokenizer", [None, "whitespace"])
@settings(max_examples=150)
@given(texts=st.lists(DOCUMENT, min_size=1, max_size=6))
def test_compiled_reading_splits_and_numbers_as_the_plain_one(tokenizer, texts):
    before = corpus.BATCH
    corpus.BATCH = 0  # also a single letter is worth compiled code
    try:
        found = corpus._read_anew(iter(["x", *texts]), tokenizer)
    finally:
        corpus.BATCH = before
    words, ids, offsets = plain(["x", *texts], tokenizer)
    assert found[0] == words
    assert found[1].tolist() == ids
    assert found[2].tolist() == offsets


def test_many_words_and_long_texts_make_the_tables_grow():
    texts = [" ".join(f"w{i}" for i in range(a, a + 30_000)) for a in (0, 20_000, 0)]
    texts += ["y" * 2_000_000, "", *(f"z{i} z{i // 2}" for i in range(150_000))]
    found = encode(texts)
    words, ids, ends = plain(texts, None)
    assert set(found.words) == set(words) and len(found.words) == len(words)
    np.testing.assert_array_equal(found.offsets, ends)
    names = np.array(found.words, dtype=object)[found.ids]
    np.testing.assert_array_equal(names, np.array(words, dtype=object)[ids])


def test_a_word_that_is_not_a_string_is_named_in_long_corpora_too():
    with pytest.raises(TypeError, match=r"Document 1 holds .*3"):
        encode(["a " * corpus.BATCH, ["b", 3]])
    with pytest.raises(ValueError, match="Document 1"):
        encode(["a " * corpus.BATCH, None])
    with pytest.raises(ValueError, match="Document 0"):
        encode([None, "a"])
