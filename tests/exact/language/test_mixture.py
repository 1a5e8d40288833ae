"""Mixtures of language models: the weights are the best, and the gap says so."""

from __future__ import annotations

import math
import operator
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

import certus
from certus.language import BPETokenizer, MixtureOfModels, NGramModel
from certus.language.base import END
from certus.language.mixture import mixing_weights
from certus.verify.language import mixing

TRAIN = "the cat sat on the mat and the dog sat on the log; " * 6 + "a man, a plan. "
TEXT = "a cat and a dog sat on a log and sang: the end. "


@pytest.fixture(scope="module")
def members():
    return [NGramModel(order).fit(TRAIN) for order in (1, 2, 5)]


def bits(L, lam):
    top = L.max(axis=1)
    return -float(np.mean(top + np.log(np.exp(L - top[:, None]) @ lam)))


@pytest.mark.parametrize("seed", range(5))
def test_two_members_have_the_minimum_of_a_line(seed):
    rng = np.random.default_rng(seed)
    L = np.log(rng.random((400, 2)) ** rng.uniform(0.5, 6))
    lam, _ = mixing_weights(L, 1e-10)
    line = minimize_scalar(
        lambda t: bits(L, np.array([t, 1 - t])),
        bounds=(0, 1),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert bits(L, lam) <= line.fun + 1e-9 and abs(lam.sum() - 1) < 1e-14


@pytest.mark.parametrize("n_models", [1, 3, 6])
def test_many_members_are_as_good_as_another_solver_finds(n_models):
    rng = np.random.default_rng(n_models)
    L = np.log(rng.dirichlet(np.ones(5), size=(n_models, 300))[:, :, 0].T)
    lam, _ = mixing_weights(L, 1e-9)
    other = minimize(
        lambda v: bits(L, np.exp(v) / np.exp(v).sum()), np.zeros(n_models), tol=1e-12
    )
    assert lam.min() >= 0 and bits(L, lam) <= other.fun + 1e-7


def test_a_useless_member_gets_no_weight():
    L = np.log(np.column_stack([np.full(100, 0.5), np.full(100, 0.1)]))
    lam, _ = mixing_weights(L, 1e-8)
    assert lam[0] > 1 - 1e-6
    L[3] = [-2000.0, -1.0]  # the first cannot do without the second here
    lam, _ = mixing_weights(L, 1e-8)
    assert lam[1] > 0.005 and np.isfinite(bits(L, lam))


def test_the_mixture_is_at_least_as_good_as_its_members_and_sums_to_one(members):
    model = MixtureOfModels(members).fit(TEXT)
    own = model.bits_per_byte(TEXT)
    assert own < min(one.bits_per_byte(TEXT) for one in members)
    np.testing.assert_allclose(
        model.member_bits_, [one.bits_per_byte(TEXT) for one in members]
    )
    ids = model.tokenizer_.encode(TEXT)
    total = 0.0
    for t in range(0, len(ids), 5):
        p = model.next_probabilities(ids[:t])
        assert abs(math.fsum(p) - 1) < 1e-12
        expected = sum(
            w * one.next_probabilities(ids[:t])
            for w, one in zip(model.weights_, members)
        )
        np.testing.assert_allclose(p, expected)
        total += abs(math.log(p[ids[t]]) - model.token_log_probs(ids)[t])
    assert total < 1e-10


def test_the_certificate_bounds_what_other_weights_save(members):
    model = MixtureOfModels(members).fit(TEXT)
    found = model.certificate_
    assert found.met and found.primary == "mixing_gap"
    assert found["bits_per_byte"].value == pytest.approx(
        model.bits_per_byte(TEXT), rel=1e-12
    )
    best = model.bits_per_byte(TEXT)
    for lam in ([1.0, 0.0, 0.0], [0.3, 0.3, 0.4], [0.0, 0.5, 0.5]):
        model.weights_ = np.array(lam)
        gap = certus.certify(model, TEXT)["mixing_gap"]
        true = model.bits_per_byte(TEXT) - best
        assert gap.met is False and gap.value >= true - 1e-9
        assert gap.value <= 1.05 * true + 1e-3  # and says not much more than is so


def test_the_bound_holds_for_texts_of_others(members):
    model = MixtureOfModels(members).fit(TEXT)
    other = "on the log sat the cat; the man had a plan."
    gap = certus.certify(model, other)["mixing_gap"]
    best = MixtureOfModels(members).fit(other).bits_per_byte(other)
    assert gap.value >= model.bits_per_byte(other) - best - 1e-9


def test_weights_that_are_not_shares_are_refused(members):
    model = MixtureOfModels(members).fit(TEXT)
    for lam in ([0.5, 0.6, 0.0], [1.5, -0.5, 0.0], [1.0], [np.nan, 0.5, 0.5]):
        model.weights_ = np.array(lam)
        with pytest.raises(ValueError, match="changed after its fit"):
            certus.certify(model, TEXT)


def test_a_mixture_may_hold_a_mixture(members):
    inner = MixtureOfModels(members[:2]).fit(TEXT)
    outer = MixtureOfModels([inner, members[2]]).fit(TEXT)
    flat = MixtureOfModels(members).fit(TEXT)
    assert flat.bits_per_byte(TEXT) <= outer.bits_per_byte(TEXT) + 1e-6


def test_members_must_cut_texts_alike(members):
    tokenizer = BPETokenizer(260, special_tokens=[END]).fit(TRAIN)
    other = NGramModel(2, tokenizer=tokenizer).fit(TRAIN)
    with pytest.raises(ValueError, match="different tokens"):
        MixtureOfModels([members[0], other]).fit(TEXT)
    with pytest.raises(TypeError, match="list of fitted"):
        MixtureOfModels(members[0]).fit(TEXT)
    with pytest.raises(TypeError, match="list of fitted"):
        MixtureOfModels([]).fit(TEXT)
    with pytest.raises(TypeError, match=r"certus\.language"):
        MixtureOfModels([3]).fit(TEXT)
    with pytest.raises(Exception, match="not fitted"):
        MixtureOfModels([NGramModel()]).fit(TEXT)


@pytest.mark.parametrize("scale", [1.0, 30.0, 200.0])
def test_the_rounding_of_a_mixture_is_bounded(scale: float) -> None:
    """The figure with 50 digits lies within the allowance; so does the gap."""
    rng = np.random.default_rng(0)
    L = -scale * rng.exponential(size=(300, 3))
    lam = np.array([0.7, 0.2999, 0.0001])
    bits, gap = mixing._bits(L, lam, 500), mixing._gap(L, lam, 500, 1e-6)
    with mpmath.workdps(50):

        def cost(weights: Any) -> Any:
            p = ((mpmath.exp(v) for v in row) for row in L.tolist())
            each = (mpmath.fsum(map(operator.mul, weights, row)) for row in p)
            return -mpmath.fsum(map(mpmath.log, each)) / mpmath.log(2) / 500

        truth = cost([mpmath.mpf(v) for v in lam.tolist()])
        assert abs(bits.value - bits.allowance - truth) <= bits.allowance
        assert 0 < bits.allowance < 1e-9
        # No weights save more than the gap says.
        for other in rng.dirichlet(np.ones(3), 20).tolist():
            saved = truth - cost([mpmath.mpf(v) / mpmath.fsum(other) for v in other])
            assert saved <= gap.value
