"""How often the bounds fail, against how often they say they may.

Exactly where the failure probability is a finite sum (counts of errors are binomial),
otherwise by repetition on the least favourable problem known, with enough repetitions
to reject twice the promised failure with probability 0.95. Each bound is also judged
at half its width, and must then be found out: a test that a wrong constant passes is
no test. Only the VC bound, four times Hoeffding's for a finite class, is cut further.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from certus.bounds import (
    Interval,
    bounded_mean,
    clopper_pearson,
    empirical_bernstein,
    excess_risk,
    growth_function,
    hoeffding,
    hoeffding_interval,
    vc_bound,
)
from certus.verify.statistical import risk_interval

DELTA = 0.05
FULL_AND_HALF = pytest.mark.parametrize("scale", [1.0, 0.5])


def judge(failure: float, scale: float, delta: float = DELTA) -> None:
    """At full width the promise is kept; below, twice the promise is exceeded."""
    if scale == 1.0:
        assert failure <= delta + 1e-12
    else:
        assert failure > 2 * delta


def narrowed(found: Interval, scale: float) -> tuple[float, float]:
    """The interval with each side scaled about the mean."""
    low = found.value - scale * (found.value - found.low)
    return low, found.value + scale * (found.high - found.value)


def missed(rule, n: int, scale: float, grid: np.ndarray) -> np.ndarray:
    """P(p is outside the interval), for each p of the grid, summed over all counts."""
    ends = np.array([narrowed(rule(k, n), scale) for k in range(n + 1)])
    jumps = np.concatenate([ends.ravel() - 1e-10, ends.ravel() + 1e-10])
    grid = np.concatenate([grid, jumps[(jumps > 0) & (jumps < 1)]])
    failure = np.empty(len(grid))
    for block in np.array_split(np.arange(len(grid)), max(1, len(grid) // 200)):
        chance = binom.pmf(np.arange(n + 1)[:, None], n, grid[block])
        outside = (grid[block] < ends[:, :1]) | (grid[block] > ends[:, 1:])
        failure[block] = (chance * outside).sum(axis=0)
    return failure


def losses(k: int, n: int) -> np.ndarray:
    return np.repeat([1.0, 0.0], [k, n - k])


# -- one model ------------------------------------------------------------------------

RULES = {
    "both": lambda k, n: clopper_pearson(k, n, DELTA),
    "upper": lambda k, n: clopper_pearson(k, n, DELTA, side="upper"),
    "lower": lambda k, n: clopper_pearson(k, n, DELTA, side="lower"),
    "Hoeffding": lambda k, n: hoeffding_interval(losses(k, n), DELTA),
    "stated": lambda k, n: risk_interval(losses(k, n), "binary"),
}


@FULL_AND_HALF
@pytest.mark.catalog("SEL-07")
@pytest.mark.parametrize("n", [60, 200, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", RULES)
def test_intervals_for_an_error_rate(rule, n, scale):
    """Every probability on a grid, and both sides of every place where it jumps."""
    judge(missed(RULES[rule], n, scale, np.linspace(0, 1, 1001)).max(), scale)


@FULL_AND_HALF
@pytest.mark.parametrize(
    "n", [pytest.param(6000, marks=pytest.mark.slow), pytest.param(100_000)]
)
def test_empirical_bernstein(n, scale):
    """Losses 0 and 1, the most scattered there are; their variance is their count's.

    Where errors are few the second term governs and half of it would do; so the rate
    must not be small for the cut to be found out.
    """
    log = math.log(3 / DELTA)
    rates = [0.01, 0.1, 0.3, 0.5] if n == 100_000 else np.linspace(0.002, 0.998, 60)
    worst = 0.0
    for p in rates:
        low, high = binom.ppf([1e-12, 1 - 1e-12], n, p).astype(int)
        k = np.arange(low, high + 1)
        mean = k / n
        # the formula, to judge many counts at once; a few are compared with the code
        spread = n / (n - 1) * mean * (1 - mean)
        half = np.sqrt(2 * spread * log / n) + 7 * log / (3 * (n - 1))
        found = empirical_bernstein(losses(int(k[0]), n), DELTA)
        assert found.high == pytest.approx(min(1.0, mean[0] + half[0]), rel=1e-10)
        outside = np.abs(mean - p) > scale * half
        worst = max(worst, float((binom.pmf(k, n, p) * outside).sum()))
    judge(worst, scale)


@pytest.mark.parametrize("n", [30, 51, 52, 120])
def test_the_stated_interval_for_a_bounded_loss(n):
    """The change from Hoeffding to Bernstein at 52 losses costs nothing."""
    rule = lambda k, m: bounded_mean(losses(k, m), DELTA)  # noqa: E731
    judge(missed(rule, n, 1.0, np.linspace(0, 1, 2001)).max(), 1.0)


@pytest.mark.catalog("SEL-06")
def test_an_interval_from_shifted_rows_misses_the_rate():
    """Wrong where x > 0.9: an error rate of 0.1 for uniform x, and 0.5 after a shift.

    The interval from shifted rows misses the rate on the original distribution almost
    always; from rows of that distribution it is missed at most as often as promised.
    """
    n, rate = 200, 0.1
    k = np.arange(n + 1)
    half = hoeffding(n, DELTA)
    outside = np.abs(k / n - rate) > half
    assert binom.pmf(k, n, 0.5)[outside].sum() > 0.999
    assert binom.pmf(k, n, rate)[outside].sum() <= DELTA


def test_rows_that_depend_within_groups():
    """Groups of 20 equal rows: intervals over groups hold, those over rows do not."""
    n_groups, size = 300, 20
    groups = np.repeat(np.arange(n_groups), size)

    def over_groups(k: int, n: int) -> Interval:
        return risk_interval(np.repeat(losses(k, n), size), "binary", groups=groups)

    def over_rows(k: int, n: int) -> Interval:
        return clopper_pearson(k * size, n * size, DELTA)

    grid = np.linspace(0.05, 0.95, 19)
    assert missed(over_groups, n_groups, 1.0, grid).max() <= DELTA
    assert missed(over_rows, n_groups, 1.0, grid).max() > 0.5


@FULL_AND_HALF
def test_labels_dealt_evenly_between_training_and_sealed_rows(scale):
    """A sealed fifth of each of two labels: not independent, yet less scattered.

    Of N rows, N₁ have label 1; of round(N₁/5) and round(N₀/5) sealed ones a share p₁
    and p₀ is wrong. The risk is π·p₁ + (1 − π)·p₀; summed over N₁ and both counts.
    """
    n = 300
    worst = 0.0
    for share in (0.1, 0.3, 0.5):
        first, last = binom.ppf([1e-9, 1 - 1e-9], n, share).astype(int)
        ones = np.arange(first, last + 1)
        weight = binom.pmf(ones, n, share)
        for rates in ((0.0, 0.0), (0.1, 0.1), (0.0, 0.5), (0.3, 0.6), (0.5, 0.5)):
            risk = (1 - share) * rates[0] + share * rates[1]
            failure = 0.0
            for count, chance in zip(ones, weight):
                sizes = round(0.2 * (n - count)), round(0.2 * count)
                wrong = np.convolve(
                    *(binom.pmf(np.arange(m + 1), m, p) for m, p in zip(sizes, rates))
                )
                failure += chance * wrong[_misses(sum(sizes), scale, risk)].sum()
            worst = max(worst, failure)
    judge(worst, scale)


@cache
def _ends(n: int, scale: float) -> np.ndarray:
    return np.array([narrowed(RULES["both"](k, n), scale) for k in range(n + 1)])


def _misses(n: int, scale: float, risk: float) -> np.ndarray:
    ends = _ends(n, scale)
    return (risk < ends[:, 0]) | (risk > ends[:, 1])


# -- several models -------------------------------------------------------------------


@FULL_AND_HALF
@pytest.mark.catalog("SEL-09")
@pytest.mark.parametrize("models", [2, 10, 1000])
def test_all_models_at_once(models, scale):
    """Independent coins, whose means scatter most: one further away than ε?"""
    n = 400
    width = scale * hoeffding(n, DELTA, models=models)
    k = np.arange(n + 1)
    one = binom.pmf(k, n, 0.5)[np.abs(k / n - 0.5) >= width - 1e-12].sum()
    judge(-math.expm1(models * math.log1p(-one)), scale)


@FULL_AND_HALF
@pytest.mark.catalog("SEL-10")
@pytest.mark.parametrize("n", [50, 400, 5001])
def test_the_selected_model(n, scale):
    """Two models, one wrong exactly where the other is right, risks ½ ∓ g/2.

    With g at the bound, the worse is kept if the better errs on half the rows or more.
    """
    delta = 0.01
    gap = scale * excess_risk(n, delta, models=2)
    if gap >= 1:  # no two risks lie that far apart
        return
    kept = binom.sf(math.ceil(n / 2) - 1, n, 0.5 - gap / 2)
    judge(float(kept), scale, delta)


def enough(delta: float) -> tuple[int, int]:
    """Repetitions R and the count c of failures from which the promise is rejected.

    Keeping the promise is rejected with probability at most 0.001, twice the promise
    with at least 0.95.
    """
    for repeats in range(100, 100_000, 50):
        limit = int(binom.isf(0.001, repeats, delta)) + 1
        if binom.sf(limit - 1, repeats, 2 * delta) >= 0.95:
            return repeats, limit
    raise AssertionError


@pytest.mark.slow
@FULL_AND_HALF
@pytest.mark.catalog("SEL-10")
def test_the_selected_of_many_models(scale):
    """One better model among 200, on the same rows, where it errs the others do not.

    Given that the better one is right, the others err independently; the test at half
    width uses their gap at half the bound.
    """
    delta, models, n = 0.01, 200, 4000
    gap = scale * excess_risk(n, delta, models=models)
    repeats, limit = enough(delta)
    rng = np.random.default_rng(0)
    good = 0.3
    rest = (good + gap) / (1 - good)  # how often the others err where it is right
    assert rest < 1
    own = rng.binomial(n, good, size=repeats)
    best = rng.binomial((n - own)[:, None], rest, size=(repeats, models - 1)).min(
        axis=1
    )
    failures = int((best <= own).sum())
    assert (failures >= limit) == (scale < 1)


# -- infinitely many models -----------------------------------------------------------


@pytest.mark.catalog("THY-04")
@pytest.mark.parametrize("scale", [1.0, 1 / 8])
def test_the_vc_bound_on_a_finite_class(scale):
    """A thousand independent coins: for large n the growth function is their number."""
    n, models = 4000, 1000
    width = scale * vc_bound(n, DELTA, growth=models)
    k = np.arange(n + 1)
    one = binom.pmf(k, n, 0.5)[0.5 - k / n > width].sum()
    judge(-math.expm1(models * math.log1p(-one)), scale)


@pytest.mark.slow
@pytest.mark.catalog("THY-04")
@pytest.mark.parametrize("scale", [1.0, 1 / 24])
def test_the_vc_bound_for_thresholds(scale):
    """Labels are coins, so each threshold errs with probability ½; the best-looking?"""
    n = 2000
    repeats, limit = enough(DELTA)
    width = scale * vc_bound(n, DELTA, growth=growth_function("thresholds", 2 * n))
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, size=(repeats, n))  # in the order of x
    # {x ≥ t} with j points below t errs on the ones below and the zeros above
    wrong = np.cumsum(2 * y - 1, axis=1)
    fewest = (y == 0).sum(axis=1) + np.minimum(wrong.min(axis=1), 0)
    failures = int((0.5 - fewest / n > width).sum())
    assert (failures >= limit) == (scale < 1)


def test_the_repetitions_can_tell():
    for delta in (0.01, 0.05):
        repeats, limit = enough(delta)
        assert binom.sf(limit - 1, repeats, 2 * delta) >= 0.95
        assert binom.sf(limit - 1, repeats, delta) <= 0.001
