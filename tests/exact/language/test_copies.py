"""Copies, shared runs and extracted passages, against searches by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from certus.certificate import Strength
from certus.language import (
    NGramModel,
    contamination,
    extraction_rate,
    longest_copy,
)
from certus.verify import copy_claim
from certus.verify.language import copies


def longest(text: bytes, source: bytes) -> int:
    n = len(text)
    return max(
        (j - i for i in range(n) for j in range(i + 1, n + 1) if text[i:j] in source),
        default=0,
    )


@pytest.mark.parametrize("letters", [1, 2, 4])
def test_the_longest_copy_is_that_of_brute_force(letters):
    rng = np.random.default_rng(letters)
    for _ in range(60):
        text = bytes(rng.integers(97, 97 + letters, rng.integers(1, 40)).tolist())
        many = [
            bytes(rng.integers(97, 101, rng.integers(1, 90)).tolist())
            for _ in range(rng.integers(1, 4))
        ]
        found = longest_copy(text, many)
        assert found.length == max(longest(text, one) for one in many)
        assert found.claims[0].strength is Strength.PROVED
        assert found.claims[0].value == found.length
        place, at = found.start, found.source_start
        same = many[found.document][at : at + found.length]
        assert text[place : place + found.length] == same


def test_a_copy_does_not_cross_documents():
    assert longest_copy("abcdef", ["xabc", "defx"]).length == 3
    assert longest_copy("abcdef", "xabcdefx").length == 6


def test_copies_stand_beside_those_of_held_out_text():
    rng = np.random.default_rng(0)
    source = bytes(rng.integers(97, 123, 20_000).tolist())
    fresh = bytes(rng.integers(97, 123, 3_000).tolist())
    text = fresh[:200] + source[500:600] + fresh[200:300]
    found = longest_copy(text, source, held_out=fresh[300:])
    assert 100 <= found.length <= 104 and len(found.held_out) == 5
    assert max(found.held_out) < 10 and "held-out" in found.verdict
    assert found.to_dict()["length"] == found.length
    with pytest.raises(ValueError, match="at least as long"):
        longest_copy(text, source, held_out="short")


def test_a_wrong_copy_is_not_proved():
    text, source = b"to be or not to be", [b"or not", b"xx to be, or not"]
    good = longest_copy(text, source)
    right = (good.length, good.start, good.source_start, good.document)
    assert copy_claim(text, source, right).strength is Strength.PROVED
    length, i, j, which = right
    for wrong in (
        (length - 1, i, j, which),  # there is a longer one
        (length + 1, i, j, which),
        (length, i + 1, j, which),
        (length, i, j + 1, which),
        (length, i, j, 7),
        (-1, i, j, which),
    ):
        assert copy_claim(text, source, wrong).strength is Strength.REFUSED


def test_a_copy_in_another_document_cannot_be_hidden():
    text, source = b"abcdef", [b"abc", b"abcde"]
    assert copy_claim(text, source, (3, 0, 0, 0)).strength is Strength.REFUSED
    assert copy_claim(text, source, (5, 0, 0, 1)).strength is Strength.PROVED


@pytest.mark.parametrize("m", [1, 2, 3, 7, 16, 31, 50, 64])
def test_runs_are_found_exactly_where_they_are(m):
    rng = np.random.default_rng(m)
    source = rng.integers(0, 2 if m > 3 else 50, 4_000).astype(np.uint8)
    text = np.concatenate([source[100:260], rng.integers(0, 2, 150).astype(np.uint8)])
    found = copies.occur(text, [source[:50], source], m)
    whole = source.tobytes()
    runs = [text[i : i + m].tobytes() for i in range(len(text) - m + 1)]
    assert found.tolist() == [run in whole for run in runs]


@pytest.mark.parametrize("block", [1, 7, 64])
def test_blocks_of_the_source_hide_nothing(monkeypatch, block):
    monkeypatch.setattr(copies, "BLOCK", block)
    text, source = (np.frombuffer(t, np.uint8) for t in (b"abcabcd", b"xxabcabxabcd"))
    assert copies.occur(text, [source], 4).tolist() == [True, True, False, True]


def test_equal_hashes_of_different_runs_are_distinguished(monkeypatch):
    """A hash that is always the same decides nothing: the bytes do."""

    def constant(data, m, base):
        return np.zeros(max(0, len(data) - m + 1), np.uint64)

    monkeypatch.setattr(copies, "hashes", constant)
    text, source = (np.frombuffer(t, np.uint8) for t in (b"ab", b"xxxxabxx"))
    assert copies.occur(text, [source], 2).tolist() == [True]
    text = np.frombuffer(b"abab", np.uint8)
    with pytest.raises(ValueError, match="same hashes"):
        copies.occur(text, [source], 2)


def test_even_known_weak_points_of_the_hash_are_compared():
    """Thue–Morse strings collide modulo 2⁶⁴ for every base."""
    bits = [bin(i).count("1") % 2 for i in range(4096)]
    a, b = (np.array([c ^ flip for c in bits], np.uint8) for flip in (0, 1))
    ha, hb = (copies.hashes(x, 4096, copies.BASES[0]) for x in (a, b))
    assert ha[0] == hb[0]
    assert not copies.occur(a, [b], 4096).any() and copies.occur(a, [a], 4096).all()


# -- contamination ----------------------------------------------------------------


def test_contamination_by_brute_force():
    rng = np.random.default_rng(3)
    words = ["red", "green", "blue", "cat", "sat", "on", "mat", "the"]
    source = [" ".join(rng.choice(words, 300)) for _ in range(3)]
    rows = [" ".join(rng.choice(words, rng.integers(1, 30))) for _ in range(40)]
    found = contamination(rows, source, length=20)
    for row, runs, hits in zip(rows, found.runs, found.hits):
        every = [row[i : i + 20] for i in range(len(row) - 19)]
        assert runs == len(every)
        assert hits == sum(any(run in one for one in source) for run in every)
    claim = found.claims[0]
    assert claim.strength is Strength.PROVED
    assert claim.value == found.share == np.mean(found.hits > 0)
    assert set(found.clean) == set(np.flatnonzero(found.hits == 0))
    assert found.to_frame().height == len(rows)


def test_line_breaks_hide_nothing():
    text = "It was the best of times, it was the worst of times, it was the age"
    broken = text.replace(" ", "\n\t ")
    assert contamination([broken], text).hits[0] == contamination([text], text).hits[0]
    assert contamination([broken], text).share == 1.0


def test_rows_that_are_too_short_are_counted():
    found = contamination(["short", "also short"], "short and also short", 50)
    assert found.share == 0 and "cannot be judged" in found.verdict
    with pytest.raises(TypeError, match=r"write \[text\]"):
        contamination("one text", "train")


def test_rows_do_not_run_into_each_other():
    rows = ["aaaa bbbb", "cccc dddd"]
    assert contamination(rows, "bbbb cccc", length=8).hits.tolist() == [0, 0]


# -- extraction -------------------------------------------------------------------


def test_a_model_that_knows_its_text_by_heart():
    rng = np.random.default_rng(0)
    train = bytes(rng.integers(97, 123, 3_000).tolist())
    other = bytes(rng.integers(97, 123, 3_000).tolist())
    model = NGramModel(order=8).fit(train)
    found = extraction_rate(model, train, other, n=60, random_state=0)
    assert found.extracted == 60 and found.held_out_extracted == 0
    assert found.high == 1.0 and found.low > 0.9 and found.held_out_high < 0.1
    claim = found.claims[0]
    assert claim.strength is Strength.STATISTICAL and claim.delta == 0.05


def test_the_rate_over_all_places_lies_in_the_interval():
    """The interval against the rate at every place, which can be enumerated."""
    animals = ["the cat", "the dog", "a bird", "one fish"]
    train = " ".join(np.random.default_rng(0).choice(animals, 60)).encode()
    model = NGramModel(order=6).fit(train)
    places = range(len(train) - 18 + 1)
    hits = sum(
        continued(model, train[i : i + 10], train[i + 10 : i + 18]) for i in places
    )
    rate = hits / len(places)
    assert 0.02 < rate < 0.98, "a rate that the interval can miss"
    missed = 0
    for seed in range(40):
        found = extraction_rate(
            model, train, n=50, prompt=10, length=8, delta=0.1, random_state=seed
        )
        missed += not found.low <= rate <= found.high
    assert missed <= binom.ppf(0.999, 40, 0.1)


def continued(model, seen, wanted):
    """Greedy continuation, written plainly."""
    text = seen
    for _ in wanted:
        p = model.next_probabilities(model.tokenizer_.encode(text))
        token = int(p.argmax())
        if token >= 256:
            return False
        text += bytes([token])
    return text == seen + wanted


def test_extraction_asks_for_passages_that_fit():
    model = NGramModel(2).fit("abc")
    with pytest.raises(ValueError, match="Lower prompt or length"):
        extraction_rate(model, "abc")
    with pytest.raises(ValueError, match="n must be"):
        extraction_rate(model, "abc" * 99, n=0)
