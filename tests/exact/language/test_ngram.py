"""N-gram models against a dictionary of counts, enumeration, and planted faults."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict

import numpy as np
import pytest

import certus
from certus.language import BPETokenizer, NGramModel
from certus.language.base import END, joined

TEXTS = [
    "abracadabra, said the cat; the cat said abracadabra. the end of a tale. " * 3,
    "a banana band ran and sang a song; the rain in spain. " * 4,
    "abab",
]


class Reference:
    """Modified Kneser–Ney from dictionaries, word for word from the paper."""

    def __init__(self, texts, order, end=256, V=257):
        self.order, self.end, self.V = order, end, V
        raw = Counter()
        for text in texts:
            line = (end, *text.encode(), end)
            for i in range(1, len(line)):
                for k in range(1, min(order, i + 1) + 1):
                    raw[line[i - k + 1 : i + 1]] += 1
        before = Counter(run[1:] for run in raw if len(run) > 1)
        self.count = {
            run: c if len(run) == order or not before[run] else before[run]
            for run, c in raw.items()
        }
        self.follow = defaultdict(dict)
        for run, c in self.count.items():
            self.follow[run[:-1]][run[-1]] = c
        self.D = {k: self.discount(k) for k in range(1, order + 1)}

    def discount(self, length):
        many = Counter(c for run, c in self.count.items() if len(run) == length)
        n1, n2, n3, n4 = (many[c] for c in (1, 2, 3, 4))
        if not (n1 and n2 and n3 and n4):
            return {1: 0.5, 2: 1.0, 3: 1.5}
        y = n1 / (n1 + 2 * n2)
        found = {1: 1 - 2 * y * n2 / n1, 2: 2 - 3 * y * n3 / n2, 3: 3 - 4 * y * n4 / n3}
        return found if min(found.values()) >= 0 else {1: 0.5, 2: 1.0, 3: 1.5}

    def p(self, w, h):
        lower = self.p(w, h[1:]) if h else 1 / self.V
        here = self.follow.get(h)
        if not here:
            return lower
        D, total = self.D[len(h) + 1], sum(here.values())
        gamma = sum(D[min(c, 3)] for c in here.values()) / total
        c = here.get(w, 0)
        return (c - D[min(c, 3)] if c else 0.0) / total + gamma * lower

    def log_p(self, ids):
        line, found = [self.end], []
        for w in ids:
            since = max(i for i, x in enumerate(line) if x == self.end)
            h = tuple(line[since:])
            h = h[max(0, len(h) - self.order + 1) :] if self.order > 1 else ()
            found.append(math.log(self.p(w, h)))
            line.append(w)
        return found


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_are_those_of_the_paper(order):
    model, ours = NGramModel(order).fit(TEXTS), Reference(TEXTS, order)
    other = ["the cat sang abra", "xyz a band", "", "ab"]
    ids = joined(model.tokenizer_, [text.encode() for text in other])
    np.testing.assert_allclose(model.token_log_probs(ids), ours.log_p(ids), rtol=1e-12)


def test_next_probabilities_are_the_probabilities_of_each_next_token():
    model = NGramModel(4).fit(TEXTS)
    for text in ("", "the c", "zzz", "a", "band"):
        ids = model.tokenizer_.encode(text)
        p = model.next_probabilities(ids)
        each = [
            model.token_log_probs(np.append(ids, w))[-1]
            for w in range(model.tokenizer_.n_tokens)
        ]
        np.testing.assert_allclose(np.log(p), each, rtol=1e-12)


@pytest.mark.catalog("LM-01")
def test_the_probabilities_of_all_texts_of_one_length_sum_to_one():
    """All 257² texts of two tokens, by the chain rule; the model has seen few."""
    model = NGramModel(3).fit(["abab", "ba", "a\n"])
    pairs = itertools.product(range(257), repeat=2)
    total = math.fsum(
        math.exp(math.fsum(model.token_log_probs(np.array(pair)))) for pair in pairs
    )
    assert abs(total - 1) < 1e-12


@pytest.mark.catalog("LM-01")
def test_probabilities_sum_to_one_after_every_context_of_the_text():
    model = NGramModel(4).fit(TEXTS)
    text = " ".join(TEXTS).encode()
    for i in range(0, len(text), 7):
        for unseen in (b"", b"\x00\xff"):
            ids = model.tokenizer_.encode(text[max(0, i - 5) : i] + unseen)
            assert abs(math.fsum(model.next_probabilities(ids)) - 1) < 1e-13


def test_chain_rule():
    model = NGramModel(3).fit(TEXTS)
    text, total = "a song of rain", 0.0
    ids = model.tokenizer_.encode(text)
    for i, w in enumerate(ids):
        total += math.log(model.next_probabilities(ids[:i])[w])
    assert model.log_prob(text) == pytest.approx(total, rel=1e-12)
    bits = model.bits_per_byte(text)
    assert bits == pytest.approx(-total / math.log(2) / len(text), rel=1e-12)


def test_an_order_two_source_is_learnt_to_its_entropy():
    """A Markov source with known entropy: what is above it goes away with data."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), size=4)
    stationary = np.linalg.matrix_power(P, 500)[0]
    entropy = -float(stationary @ (P * np.log2(P)).sum(axis=1))
    state, line = 0, []
    jumps = P.cumsum(axis=1)
    for u in rng.random(60_000):
        state = min(3, int(np.searchsorted(jumps[state], u)))
        line.append(97 + state)
    text = bytes(line)
    model = NGramModel(2).fit(text[:50_000])
    assert abs(model.bits_per_byte(text[50_000:]) - entropy) < 0.03
    few = NGramModel(2).fit(text[:200]).bits_per_byte(text[50_000:])
    assert few > model.bits_per_byte(text[50_000:])


def test_documents_do_not_run_into_each_other():
    model = NGramModel(3).fit(["ab", "cd"])
    end = model.tokenizer_.special[END]
    known = set(map(tuple, runs_of(model)))
    assert (97, 98, end) in known and (98, end) in known
    assert not any(end in run[1:-1] for run in known)
    assert (98, end, 99) not in known and (end, 99) in known


def runs_of(model):
    """All runs, by walking up the tree."""
    parent = np.repeat(np.arange(len(model.counts_)), np.diff(model.first_))
    for node in range(1, len(model.counts_)):
        run = []
        while node:
            run.append(int(model.last_tokens_[node]))
            node = parent[node - 1]
        yield run[::-1]


def test_other_tokens_and_the_memory_that_is_stated():
    tokenizer = BPETokenizer(280, special_tokens=[END]).fit(TEXTS)
    model = NGramModel(3, tokenizer=tokenizer).fit(TEXTS)
    assert model.certificate_.met
    assert model.memory_ == 40 * (1 + model.n_runs_.sum()) + 8
    assert model.tokenizer_.n_tokens == tokenizer.n_tokens
    small = NGramModel(3, tokenizer=270).fit(TEXTS)
    assert small.tokenizer_.n_tokens <= 270 and small.bits_per_byte("the cat") > 0


def test_tables_grow():
    """More runs than the first tables hold, counted in the same way."""
    rng = np.random.default_rng(1)
    text = rng.integers(0, 256, 40_000, dtype=np.uint8).tobytes()
    model = NGramModel(3).fit(text)
    pairs = len({text[i : i + 2] for i in range(len(text) - 1)})
    assert model.n_runs_[1] == pairs + 2  # with an end before, and an end behind
    assert model.certificate_["ngram_counts"].met


# -- certificates -----------------------------------------------------------------


def test_the_certificate_holds_what_it_says():
    model = NGramModel(3).fit(TEXTS)
    found = model.certificate_
    assert found.met and found["ngram_counts"].met
    assert found["bits_per_byte"].value == pytest.approx(
        model.bits_per_byte(TEXTS), rel=1e-12
    )
    again = certus.certify(model, TEXTS)
    assert again.met and again["ngram_counts"].met
    other = certus.certify(model, "a song about a cat")
    assert other.met and "ngram_counts" not in other
    bits = model.bits_per_byte("a song about a cat")
    assert other["bits_per_byte"].value == pytest.approx(bits, rel=1e-12)


def test_long_texts_are_counted_in_part_at_level_quick():
    text = "some text, again and again. " * 12_000
    model = NGramModel(4).fit(text)
    assert "bits_per_byte" not in model.certificate_
    assert "2 tokens" in model.certificate_["ngram_counts"].detail
    full = certus.certify(model, text, level="full")
    bits = model.bits_per_byte(text)
    assert full["bits_per_byte"].value == pytest.approx(bits, rel=1e-9)
    assert "all" in full["ngram_counts"].detail and full["ngram_counts"].met


@pytest.mark.parametrize("name, change", [("counts_", 1), ("counts_", -1)])
def test_a_wrong_count_is_found(name, change):
    model = NGramModel(3).fit(TEXTS)
    getattr(model, name)[40] += change
    found = certus.certify(model, TEXTS)
    assert found["ngram_counts"].met is False and found.status == "refuted"


@pytest.mark.parametrize("name", ["shares_", "backoffs_"])
def test_a_wrong_share_is_found(name):
    model = NGramModel(3).fit(TEXTS)
    getattr(model, name)[3] += 1e-6
    found = certus.certify(model, TEXTS)
    assert found["probabilities_sum"].met is False
    assert certus.certify(model, "another text").met is False


def test_moved_probabilities_that_still_sum_to_one_are_found():
    model = NGramModel(2).fit(TEXTS)
    model.shares_[1] += 1e-6
    model.shares_[2] -= 1e-6
    found = certus.certify(model, TEXTS)
    assert found["probabilities_sum"].met and found["ngram_counts"].met is False


def test_a_wrong_suffix_or_order_is_refused():
    model = NGramModel(3).fit(TEXTS)
    model.suffixes_[-1] -= 1
    with pytest.raises(ValueError, match="changed after its fit"):
        certus.certify(model, TEXTS)
    model = NGramModel(3).fit(TEXTS)
    model.last_tokens_[[1, 2]] = model.last_tokens_[[2, 1]]
    with pytest.raises(ValueError, match="changed after its fit"):
        certus.certify(model, TEXTS)
