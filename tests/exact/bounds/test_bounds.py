"""Intervals for a risk: values, inverses, edges; their coverage, exactly.

References are the definitions: binomial tails from ``scipy.stats``, closed forms at no
errors and at all errors, the pieces of Maurer and Pontil's proof. Coverage over a grid
of probabilities is a finite sum; larger ones are in ``tests/statistical``.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from certus.bounds import (
    Interval,
    bounded_mean,
    clopper_pearson,
    empirical_bernstein,
    excess_risk,
    hoeffding,
    hoeffding_delta,
    hoeffding_interval,
    hoeffding_samples,
)

DELTAS = st.floats(1e-12, 0.999)
COUNTS = st.integers(1, 10**6)
LOSSES = st.lists(st.floats(0, 1), min_size=1, max_size=80)


# -- Hoeffding ------------------------------------------------------------------------


@pytest.mark.catalog("SEL-07", "SEL-08")
@given(st.integers(1, 10**9), DELTAS, COUNTS, st.floats(0.01, 1e6))
def test_hoeffding_and_its_inverses_undo_each_other(n, delta, models, reach):
    args = {"low": -reach, "high": 2 * reach, "models": models}
    width = hoeffding(n, delta, **args)
    assert width == pytest.approx(
        3 * reach * math.sqrt(math.log(2 * models / delta) / (2 * n)), rel=1e-12
    )
    assert hoeffding_samples(width, delta, **args) == n
    assert hoeffding_delta(n, width, **args) == pytest.approx(delta, rel=1e-11)


@pytest.mark.catalog("SEL-08")
@given(st.floats(1e-4, 10), DELTAS)
def test_hoeffding_samples_is_the_fewest(width, delta):
    n = hoeffding_samples(width, delta)
    assert hoeffding(n, delta) <= width
    assert n == 1 or hoeffding(n - 1, delta) > width


@pytest.mark.catalog("SEL-08")
def test_textbook_numbers():
    assert hoeffding(200, 0.05) == pytest.approx(0.09603227913199208, rel=1e-14)
    assert hoeffding_samples(0.01, 0.05) == 18445  # ln(40)/0.0002 = 18444.4
    assert hoeffding_delta(100, 0.1) == pytest.approx(2 * math.exp(-2), rel=1e-14)
    assert hoeffding_delta(100, 0.001) == 1.0  # a probability, not 2·exp(−0.0002)


@pytest.mark.catalog("SEL-09", "SEL-10")
@given(st.integers(1, 10**6), DELTAS, COUNTS)
def test_the_union_bound_is_hoeffding_at_a_share_of_delta(n, delta, models):
    width = hoeffding(n, delta, models=models)
    assert width == pytest.approx(hoeffding(n, delta / models), rel=1e-12)
    assert excess_risk(n, delta, models=models) == 2 * width


@pytest.mark.catalog("SEL-09")
def test_the_union_bound_grows_as_the_root_of_a_logarithm():
    widths = [hoeffding(1000, 0.05, models=10**k) ** 2 for k in range(1, 60)]
    np.testing.assert_allclose(np.diff(widths), math.log(10) / 2000, rtol=1e-9)


@given(LOSSES, DELTAS)
def test_hoeffding_interval_is_centred_and_cut(losses, delta):
    found = hoeffding_interval(losses, delta)
    half = hoeffding(len(losses), delta)
    assert found.low == max(0.0, found.value - half)
    assert found.high == min(1.0, found.value + half)
    assert found.value == pytest.approx(np.mean(losses)) and found.value in found


# -- Clopper–Pearson ------------------------------------------------------------------


@given(st.integers(1, 2000), st.data(), st.floats(1e-9, 0.9))
def test_clopper_pearson_inverts_the_binomial_tails(n, data, delta):
    k = data.draw(st.integers(0, n))
    found = clopper_pearson(k, n, delta)
    assert found.low <= k / n <= found.high and found.value == k / n
    if k > 0:  # k or more errors have probability δ/2 at the lower end
        assert binom.sf(k - 1, n, found.low) == pytest.approx(delta / 2, rel=1e-8)
    if k < n:
        assert binom.cdf(k, n, found.high) == pytest.approx(delta / 2, rel=1e-8)
    mirror = clopper_pearson(n - k, n, delta)
    assert found.low == pytest.approx(1 - mirror.high, abs=1e-12)
    for side, end in (("upper", "high"), ("lower", "low")):
        alone = clopper_pearson(k, n, delta / 2, side=side)
        assert getattr(alone, end) == getattr(found, end)
    assert clopper_pearson(k, n, delta, side="upper").low == 0.0
    assert clopper_pearson(k, n, delta, side="lower").high == 1.0
    shared = clopper_pearson(k, n, delta, models=2)
    assert (shared.low, shared.high) == pytest.approx(
        (clopper_pearson(k, n, delta / 2).low, clopper_pearson(k, n, delta / 2).high)
    )
    assert shared.delta == delta


@pytest.mark.parametrize("n", [1, 2, 17, 86, 10_000, 10**9])
@pytest.mark.parametrize("delta", [0.5, 0.05, 1e-9])
def test_clopper_pearson_without_errors_and_with_errors_only(n, delta):
    none, every = clopper_pearson(0, n, delta), clopper_pearson(n, n, delta)
    end = -math.expm1(math.log(delta / 2) / n)  # 1 − (δ/2)^(1/n)
    assert none.low == 0.0 and none.high == pytest.approx(end, rel=1e-10)
    assert every.high == 1.0 and every.low == pytest.approx(1 - end, rel=1e-10)
    upper = clopper_pearson(0, n, delta, side="upper").high
    assert upper == pytest.approx(-math.expm1(math.log(delta) / n), rel=1e-10)


def coverage_failure(ends: np.ndarray, n: int, grid: np.ndarray) -> np.ndarray:
    """P(p is outside the interval of Bin(n, p)), by summing over all counts."""
    counts = np.arange(n + 1)
    chance = binom.pmf(counts[:, None], n, grid[None, :])
    outside = (grid < ends[:, :1]) | (grid > ends[:, 1:])
    return (chance * outside).sum(axis=0)


def all_ends(rule, n: int, scale: float = 1.0) -> np.ndarray:
    """Ends of the interval for every count, each half scaled about the mean."""
    found = [rule(k, n) for k in range(n + 1)]
    low = [i.value - scale * (i.value - i.low) for i in found]
    high = [i.value + scale * (i.high - i.value) for i in found]
    return np.column_stack([low, high])


def probabilities(ends: np.ndarray) -> np.ndarray:
    """A grid, and both sides of every end, where the coverage jumps."""
    points = np.concatenate([ends.ravel() - 1e-9, ends.ravel() + 1e-9])
    return np.concatenate([np.linspace(0, 1, 501), points[(points > 0) & (points < 1)]])


def zeros_and_ones(k: int, n: int) -> np.ndarray:
    return np.repeat([1.0, 0.0], [k, n - k])


RULES = {
    "Clopper–Pearson": lambda k, n: clopper_pearson(k, n, 0.05),
    "upper": lambda k, n: clopper_pearson(k, n, 0.05, side="upper"),
    "lower": lambda k, n: clopper_pearson(k, n, 0.05, side="lower"),
    "Hoeffding": lambda k, n: hoeffding_interval(zeros_and_ones(k, n), 0.05),
    "Bernstein": lambda k, n: empirical_bernstein(zeros_and_ones(k, n), 0.05),
    "stated": lambda k, n: bounded_mean(zeros_and_ones(k, n), 0.05),
}


@pytest.mark.catalog("SEL-07")
@pytest.mark.parametrize("n", [1, 2, 5, 40, 150])
@pytest.mark.parametrize("rule", RULES)
def test_the_true_rate_is_missed_at_most_as_often_as_claimed(rule, n):
    ends = all_ends(RULES[rule], n)
    assert coverage_failure(ends, n, probabilities(ends)).max() <= 0.05 + 1e-12


@pytest.mark.parametrize("rule", ["Clopper–Pearson", "upper", "lower", "Hoeffding"])
def test_half_the_width_would_be_found_out(rule):
    ends = all_ends(RULES[rule], 150, scale=0.5)
    assert coverage_failure(ends, 150, probabilities(ends)).max() > 0.1


# -- empirical Bernstein --------------------------------------------------------------


def test_empirical_bernstein_by_hand():
    losses = [0.0, 0.5, 0.5, 1.0] * 25
    log = math.log(60)
    half = math.sqrt(2 * (12.5 / 99) * log / 100) + 7 * log / (3 * 99)
    found = empirical_bernstein(losses, 0.05)
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-13)


@given(st.integers(2, 10**7), st.floats(0, 0.25), DELTAS)
def test_the_constant_covers_the_pieces_of_the_proof(n, spread, delta):
    """Bennett for the mean, on both sides, and the bound for the variance, at δ/3.

    |L − mean| ≤ σ√(2l/n) + l/3n and σ ≤ √V + √(2l/(n − 1)), with l = ln(3/δ).
    """
    log = math.log(3 / delta)
    sigma = math.sqrt(spread) + math.sqrt(2 * log / (n - 1))
    pieces = sigma * math.sqrt(2 * log / n) + log / (3 * n)
    stated = math.sqrt(2 * spread * log / n) + 7 * log / (3 * (n - 1))
    assert pieces <= stated * (1 + 1e-12)


@given(LOSSES, DELTAS, st.floats(-100, 100), st.floats(0.01, 1e3))
def test_empirical_bernstein_moves_and_stretches_with_the_loss(
    losses, delta, shift, reach
):
    plain = empirical_bernstein(losses, delta)
    moved = shift + reach * np.asarray(losses)
    moved = np.clip(moved, shift, shift + reach)
    found = empirical_bernstein(moved, delta, shift, shift + reach)
    for end in ("low", "high", "value"):
        expected = shift + reach * getattr(plain, end)
        assert getattr(found, end) == pytest.approx(expected, rel=1e-7, abs=1e-7)


def test_one_loss_gives_no_interval_and_equal_losses_a_narrow_one():
    alone = empirical_bernstein([0.3])
    assert (alone.low, alone.high) == (0.0, 1.0)
    constant = empirical_bernstein(np.full(10_001, 0.3))
    assert constant.high - 0.3 == pytest.approx(7 * math.log(60) / 30_000)
    assert constant.width < hoeffding_interval(np.full(10_001, 0.3)).width / 10


@given(st.integers(1, 120), st.floats(1e-6, 0.5), st.integers(1, 50))
def test_the_stated_interval_depends_on_the_number_of_losses_alone(n, delta, models):
    """Chosen before looking; and where Hoeffding is, Bernstein is never narrower."""
    equal = bounded_mean(np.full(n, 0.5), delta, models=models)
    spread = bounded_mean(np.arange(n) % 2, delta, models=models)
    assert equal.method == spread.method
    best = empirical_bernstein(np.full(n, 0.5), delta, models=models)
    if equal.method == "Hoeffding":
        assert best.width >= equal.width * (1 - 1e-12)
    else:
        other = hoeffding_interval(np.full(n, 0.5), delta, models=models)
        assert best.width <= other.width


# -- what they are, and what they refuse ----------------------------------------------


def test_an_interval_is_plain_frozen_data():
    found = clopper_pearson(4, 86)
    assert isinstance(found, Interval) and found.n == 86
    assert found.width == found.high - found.low
    assert found.low in found and found.high in found and 0.5 not in found
    assert math.nan not in found
    with pytest.raises(AttributeError):
        found.low = 0.0


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: hoeffding(0), ValueError, "n must be at least"),
        (lambda: hoeffding(2.5), TypeError, "whole number"),
        (lambda: hoeffding(10, 0.0), ValueError, "delta"),
        (lambda: hoeffding(10, math.nan), ValueError, "delta"),
        (lambda: hoeffding(10, 1.0), ValueError, "delta"),
        (
            lambda: hoeffding(10, low=1, high=1),
            ValueError,
            "low and high must be finite",
        ),
        (lambda: hoeffding(10, low=0, high=math.inf), ValueError, "unbounded loss"),
        (lambda: hoeffding(10, models=0), ValueError, "models"),
        (lambda: hoeffding_samples(0.0), ValueError, "width"),
        (lambda: hoeffding_samples(1e-300), ValueError, "width"),
        (lambda: hoeffding_delta(10, math.nan), ValueError, "width"),
        (lambda: clopper_pearson(3, 2), ValueError, "must not exceed"),
        (lambda: clopper_pearson(-1, 2), ValueError, "errors"),
        (lambda: clopper_pearson(0.5, 2), TypeError, "errors"),
        (lambda: clopper_pearson(1, 2, side="left"), ValueError, "side"),
        (lambda: empirical_bernstein([]), ValueError, "at least one"),
        (lambda: empirical_bernstein([[0.1]]), ValueError, "shape"),
        (lambda: empirical_bernstein([0.1, math.nan]), ValueError, "NaN"),
        (lambda: empirical_bernstein([0.1, 1.2]), ValueError, r"lie in \[0, 1\]"),
        (lambda: hoeffding_interval([-0.1]), ValueError, "must lie in"),
        (lambda: bounded_mean([]), ValueError, "at least one"),
    ],
)
def test_nonsense_is_refused_with_a_clear_message(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_extreme_but_honest_input():
    log = math.log(2) + 308 * math.log(10)
    assert hoeffding(1, 1e-308) == pytest.approx(math.sqrt(log / 2), rel=1e-12)
    tiny = clopper_pearson(1, 10**12, 1e-300)
    assert 0.0 <= tiny.low < 1e-12 < tiny.high < 1e-8
    wide = empirical_bernstein([-1e300, 1e300] * 50, low=-1e300, high=1e300)
    assert math.isfinite(wide.width) and wide.value in wide
