"""Chains of tokens against enumeration: best texts, entropies, paired differences."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from tests.helpers.language import SmallModel

from certus.certificate import Strength
from certus.verify.language import attention, chains
from certus.verify.language.attention import PlainNetwork

TINY = {"n_layers": 1, "width": 8, "heads": 2, "context": 8}


class Small(SmallModel):
    """Four tokens, of which the last is the end of a text."""

    def __init__(self, seed: int = 0, size: float = 0.5) -> None:
        class Four:
            n_tokens, special = 4, {"<|end|>": 3}

        super().__init__(Four(), seed, size, **TINY)
        self.read = PlainNetwork(self.config_, self.weights_)

    def log_prob(self, text: Any) -> float:
        given = np.array([3, *text])
        lp = self.after(given[:-1])
        return float(lp[np.arange(len(text)), given[1:]].sum())


def texts(length: int) -> list[tuple[int, ...]]:
    """All finished texts of at most so many tokens."""
    found = []
    for n in range(1, length + 1):
        for text in itertools.product(range(4), repeat=n):
            ended = text[-1] == 3 and 3 not in text[:-1]
            if ended or (n == length and 3 not in text):
                found.append(text)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_best_text_is_found_by_listing_all(seed: int) -> None:
    model = Small(seed, 1.0)
    every = {text: model.log_prob(text) for text in texts(4)}
    assert math.isclose(sum(map(math.exp, every.values())), 1.0, rel_tol=1e-5)
    best = max(every.values())
    for text in (max(every, key=every.get), (0, 0, 0, 0), (3,)):
        claim = chains.decoding_claim(model.read, [3], text, 3, 4)
        assert claim.strength is Strength.PROVED
        assert math.isclose(claim.value, best - every[text], abs_tol=1e-4)


def test_a_short_search_bounds_from_above() -> None:
    model = Small(1)
    every = {text: model.log_prob(text) for text in texts(5)}
    true = max(every.values()) - every[(1, 1, 1, 1, 1)]
    last = math.inf
    for visits in (1, 3, 10, 1000):
        claim = chains.decoding_claim(model.read, [3], (1, 1, 1, 1, 1), 3, 5, visits)
        assert last >= claim.value >= true - 1e-4
        last = claim.value
    assert math.isclose(last, true, abs_tol=1e-4)


@pytest.mark.parametrize("text", [(1, 3, 1, 1), (1, 1), (), (1, 1, 1, 1, 1)])
def test_unfinished_texts_are_refused(text: tuple[int, ...]) -> None:
    claim = chains.decoding_claim(Small().read, [3], np.array(text, int), 3, 4)
    assert claim.strength is Strength.REFUSED


def test_no_room_is_refused() -> None:
    claim = chains.decoding_claim(Small().read, [3] * 7, [1, 1, 3], 3, 3)
    assert claim.strength is Strength.REFUSED and "room for 2" in claim.detail


# -- entropy --------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 2])
def test_excess_is_the_divergence_over_all_texts(k: int) -> None:
    model, rng = Small(), np.random.default_rng(k)
    law = rng.dirichlet(np.ones(3), (3,) * k)
    start = chains.stationary(law)
    claim = chains.excess_claim(model.read, 3, law, [0, 1, 2], 4)
    total = 0.0
    for text in itertools.product(range(3), repeat=4):
        log_p = math.log(start[text[:k]])
        for t in range(k, 4):
            log_p += math.log(law[text[t - k : t + 1]])
        total += math.exp(log_p) * (log_p - model.log_prob(text))
    assert claim.strength is Strength.PROVED
    assert math.isclose(claim.value, total / 4 / math.log(2), rel_tol=1e-5)
    assert claim.value > 0


def test_the_stationary_distribution_does_not_change() -> None:
    law = np.random.default_rng(0).dirichlet(np.ones(3), (3, 3))
    state = chains.stationary(law)
    np.testing.assert_allclose((state[..., None] * law).sum(axis=0), state, atol=1e-14)
    cycle = np.array([[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(chains.stationary(cycle), [0.5, 0.5])


def test_no_model_is_below_the_entropy() -> None:
    law = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
    for seed in range(5):
        claim = chains.excess_claim(Small(seed).read, 3, law, [0, 1, 2], 5)
        assert claim.value > 0


def test_excess_of_long_texts_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    law = np.random.default_rng(1).dirichlet(np.ones(3), 3)
    model = Small()
    true = chains.excess_claim(model.read, 3, law, [0, 1, 2], 6).value
    monkeypatch.setattr(chains, "LISTED", 1)
    claim = chains.excess_claim(model.read, 3, law, [0, 1, 2], 6)
    assert claim.strength is Strength.STATISTICAL
    assert true < claim.value < 1.5 * true


@pytest.mark.parametrize("law", [[[0.5, 0.6], [0.5, 0.5]], [[0.5, 0.5]], [1.5, -0.5]])
def test_invalid_probabilities_are_refused(law: Any) -> None:
    with pytest.raises(ValueError, match="law must"):
        chains.excess_claim(Small().read, 3, law, [0, 1], 3)


# -- differences ----------------------------------------------------------------------


def test_differences_of_documents() -> None:
    rng = np.random.default_rng(0)
    n = rng.integers(100, 1000, 30)
    a = 2.0 * n + rng.normal(size=30)
    claim, total = chains.difference_claims(a, a + 0.1 * n, n)
    assert claim.met and "first model is better" in claim.detail
    assert math.isclose(total.value, -0.1, rel_tol=1e-9)
    assert math.isclose(claim.value, -0.1, rel_tol=1e-9)
    same, _ = chains.difference_claims(a, a + rng.normal(size=30), n)
    assert same.met is None


def test_the_median_lies_in_the_interval_as_often_as_stated() -> None:
    rng, missed = np.random.default_rng(0), 0
    for _ in range(400):
        d = rng.exponential(size=20) - math.log(2)  # median 0, a skewed law
        claim, _ = chains.difference_claims(d, np.zeros(20), np.ones(20))
        missed += claim.met is True  # the interval leaves out 0
    assert missed <= 30  # at most 20 expected


def test_few_documents_are_refused() -> None:
    claim, total = chains.difference_claims(np.ones(7), np.zeros(7), np.ones(7))
    assert claim.strength is Strength.REFUSED and total.value == 1.0
    many, _ = chains.difference_claims(np.ones(8), np.zeros(8), np.ones(8), models=9)
    assert many.strength is Strength.REFUSED


def test_bits_that_do_not_match() -> None:
    for bad in ([1.0], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="each document"):
            chains.difference_claims(bad, [1.0, 2.0], [1, 1])


def test_the_helper_is_the_verifiers_network() -> None:
    model = Small()
    lp = attention.log_softmax(attention.scores(model.read, np.array([3, 1, 2])))
    np.testing.assert_allclose(lp, model.after(np.array([3, 1, 2])), atol=1e-5)
