"""What is claimed about the risk: one interval, chosen by the question alone."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certus.bounds import (
    bounded_mean,
    clopper_pearson,
    empirical_bernstein,
    hoeffding,
    hoeffding_interval,
)
from certus.certificate import Claim, Strength
from certus.verify.comparing import union_claim
from certus.verify.statistical import interval_claim, risk_claims, risk_interval

WRONG = np.repeat([1, 0], [4, 82])


def as_stated(found, bound) -> bool:
    """Whether the verifier's ends are those of ``certus.bounds``, rounded outwards."""
    near = pytest.approx((bound.low, bound.high), rel=1e-7, abs=1e-12)
    outside = found.low <= bound.low and bound.high <= found.high
    same = ("value", "delta", "method", "n", "assumptions")
    return (
        outside
        and (found.low, found.high) == near
        and all(
            getattr(found, name) == pytest.approx(getattr(bound, name))
            if name == "value"
            else getattr(found, name) == getattr(bound, name)
            for name in same
        )
    )


def above(value: float, bound: float) -> bool:
    """Whether an upper end is that of a bound, rounded outwards."""
    return bound <= value <= bound * (1 + 1e-7)


def ends(text: str) -> tuple[float, float]:
    """The two numbers of "between … and …"."""
    found = re.match(r"between (\S+)(?: %)? and (\S+)", text)
    assert found is not None, text
    return tuple(float(number.replace(",", "")) for number in found.groups())


# -- which interval -------------------------------------------------------------------


@pytest.mark.catalog("SEL-02", "SEL-07")
@pytest.mark.parametrize("task", ["classification", "binary", "multiclass"])
def test_classifiers_get_clopper_pearson_and_the_others_for_comparison(task):
    (claim,) = risk_claims(WRONG, task, rows="sealed rows")
    assert claim.name == "error_rate" and claim.strength is Strength.STATISTICAL
    found = clopper_pearson(4, 86)
    assert above(claim.value, found.high) and claim.delta == 0.05
    assert claim.met is None  # no target was given
    assert as_stated(risk_interval(WRONG, task), found)
    assert (
        "Clopper–Pearson" in claim.theorem and "4 of 86 sealed rows" in claim.objective
    )
    assert "for comparison, Hoeffding 0 % to 20 %; empirical Bernstein" in claim.detail
    assert claim.basis == "95 % sure" and claim.mark == "·"
    assert risk_claims(WRONG.astype(bool), task)[0].value == claim.value
    assert Claim.from_dict(claim.to_dict()) == claim


def test_the_stated_interval_is_not_the_smallest_of_three():
    """Few rows that vary: Hoeffding is narrower, and is only shown."""
    losses = np.arange(100) % 2.0
    (claim,) = risk_claims(losses, "regression", bounds=(0, 1))
    stated = empirical_bernstein(losses)
    assert hoeffding_interval(losses).width < stated.width
    assert above(claim.value, stated.high) and "empirical Bernstein" in claim.objective
    assert "for comparison, Hoeffding" in claim.detail
    half = np.repeat([0, 1], 30)  # Clopper–Pearson against a narrower Hoeffding at 1
    (claim,) = risk_claims(half, "binary", delta=0.9)
    assert above(claim.value, clopper_pearson(30, 60, 0.9).high)


def test_bounds_of_the_loss_decide_whatever_the_task():
    losses = np.random.default_rng(0).uniform(1, 3, size=400)
    for task in ("binary", "regression"):
        (claim,) = risk_claims(losses, task, bounds=(1, 3), delta=0.1)
        found = bounded_mean(losses, 0.1, 1, 3)
        assert claim.name == "mean_loss" and above(claim.value, found.high)
        stated = risk_interval(losses, task, bounds=(1, 3), delta=0.1)
        assert as_stated(stated, found)
        low, high = ends(claim.detail)
        assert low <= found.low < found.high <= high


def test_an_unbounded_mean_is_refused_and_large_errors_are_counted():
    errors = np.abs(np.random.default_rng(1).standard_cauchy(500))
    refused, claim = risk_claims(errors, "regression", threshold=6.25)
    assert refused.strength is Strength.REFUSED and refused.met is None
    assert refused.name == "mean_loss" and "cannot be bounded" in refused.detail
    count = int((errors > 6.25).sum())
    found = clopper_pearson(count, 500, side="upper")
    assert claim.name == "large_error" and above(claim.value, found.high)
    assert f"{count} of 500" in claim.objective and "6.25" in claim.objective
    share = re.search(r"at least (\S+) %.*within ±(\S+) of the", claim.detail)
    assert float(share[1]) <= 100 * (1 - found.high) and float(share[2]) >= 6.25
    assert as_stated(risk_interval(errors, "regression", threshold=6.25), found)
    (alone,) = risk_claims(errors, "regression")
    assert alone == refused and risk_interval(errors, "regression") is None


def test_rows_in_order_of_time_are_only_measured():
    for losses, task, name, more in (
        (WRONG, "binary", "error_rate", {}),
        ([1.0, 3.0], "regression", "mean_loss", {"threshold": 2.0}),
        ([0.5, 0.7], "regression", "mean_loss", {"bounds": (0, 1)}),
    ):
        (claim,) = risk_claims(losses, task, ordered=True, **more)
        assert claim.strength is Strength.MEASURED and claim.met is None
        assert claim.name == name and claim.value == pytest.approx(np.mean(losses))
        assert risk_interval(losses, task, ordered=True, **more) is None


# -- groups ---------------------------------------------------------------------------


def test_each_group_counts_once():
    """Copies of a row within its group change nothing."""
    rng = np.random.default_rng(2)
    per_group = rng.integers(0, 2, size=60)
    copies = rng.integers(1, 9, size=60)
    names = np.array([f"group {i}" for i in range(60)])
    once = risk_interval(per_group, "binary", groups=names)
    many = risk_interval(
        np.repeat(per_group, copies), "binary", groups=np.repeat(names, copies)
    )
    assert once == many and once.n == 60
    bound = empirical_bernstein(per_group)
    assert (once.low, once.high) == pytest.approx((bound.low, bound.high), rel=1e-7)
    assert "groups, old and new, are drawn independently" in once.assumptions[0]


def test_group_means_and_their_order():
    losses = [1, 0, 0, 1, 1, 0]
    groups = ["b", "a", "b", "a", "c", "b"]
    found = risk_interval(losses, "binary", groups=groups)
    assert found.n == 3 and found.value == pytest.approx((1 / 3 + 1 / 2 + 1) / 3)
    assert found.method == "Hoeffding"  # three units are too few for a variance
    (claim,) = risk_claims(losses, "binary", groups=groups)
    assert "new groups like these" in claim.detail and "3 groups" in claim.objective
    _, large = risk_claims(np.arange(6.0), "regression", threshold=2.5, groups=groups)
    assert "on average over groups" in large.detail
    mean = risk_interval(np.arange(6.0) / 5, "binary", bounds=(0, 1), groups=groups)
    assert mean.value == pytest.approx((7 / 3 + 2 + 4) / 15)


# -- models and targets ---------------------------------------------------------------


@pytest.mark.catalog("SEL-09")
def test_comparing_models_widens_the_interval():
    (claim,) = risk_claims(WRONG, "binary", models=7)
    assert above(claim.value, clopper_pearson(4, 86, 0.05 / 7).high)
    assert claim.delta == 0.05 and "7 models were compared" in claim.objective
    losses = np.linspace(0, 1, 200)
    (claim,) = risk_claims(losses, "binary", bounds=(0, 1), models=7)
    assert claim.value == pytest.approx(empirical_bernstein(losses, 0.05 / 7).high)


def test_a_target_is_met_by_the_upper_end():
    high = risk_claims(WRONG, "binary")[0].value
    for target, met, fix in (
        (high, True, ""),
        (high - 1e-9, False, "use more held-out rows"),
        (0.01, False, "try another model"),
    ):
        (claim,) = risk_claims(WRONG, "binary", target=target)
        assert claim.met is met and claim.fix.startswith(fix) and bool(claim.fix) != met
        assert claim.target == target and claim.mark == ("✓" if met else "✗")


def test_a_custom_interval_becomes_a_claim():
    found = clopper_pearson(10, 100, 0.01)
    claim = interval_claim(found, "coverage", detail="a sentence", objective="P(A)")
    assert (claim.name, claim.detail, claim.objective) == (
        "coverage",
        "a sentence",
        "P(A)",
    )
    assert claim.assumptions == found.assumptions and claim.basis == "99 % sure"


# -- sentences ------------------------------------------------------------------------


@given(st.integers(1, 5000), st.data(), st.floats(1e-6, 0.5))
def test_rounded_ends_hold_the_interval(n, data, delta):
    """Two digits, rounded outwards: what is read is never more than was shown."""
    k = data.draw(st.integers(0, n))
    losses = np.repeat([1, 0], [k, n - k])
    (claim,) = risk_claims(losses, "binary", delta=delta)
    low, high = ends(claim.detail)
    found = clopper_pearson(k, n, delta)
    slack = 1e-7
    assert low <= 100 * found.low * (1 + slack) and 100 * found.high <= high * (
        1 + slack
    )
    assert low >= 90 * found.low - 1e-300 and high <= 110.1 * found.high


def test_no_word_of_a_mean_for_one_row():
    (claim,) = risk_claims([0], "binary")
    assert ends(claim.detail) == (0.0, 98.0)
    (claim,) = risk_claims([1e-9], "regression", bounds=(0, 1))
    assert ends(claim.detail) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: risk_claims([0, 1], "ranking"), "got 'ranking'"),
        (lambda: risk_claims([], "binary"), "at least one"),
        (lambda: risk_claims([[0, 1]], "binary"), "shape"),
        (lambda: risk_claims([0, 0.5], "binary"), "0 .right. or 1"),
        (lambda: risk_claims([0, math.nan], "binary"), "NaN"),
        (lambda: risk_claims([1.0, math.inf], "regression"), "infinity"),
        (lambda: risk_claims([-1.0], "regression"), "absolute errors"),
        (lambda: risk_claims([2.0], "regression", bounds=(0, 1)), "outside"),
        (
            lambda: risk_claims([0.0], "regression", bounds=(0, math.inf)),
            "are not valid",
        ),
        (lambda: risk_claims([1.0], "regression", threshold=math.nan), "threshold"),
        (lambda: risk_claims([0, 1], "binary", delta=0), "delta"),
        (lambda: risk_claims([0, 1], "binary", groups=[1]), "one group per row"),
        (lambda: risk_claims([0, 1], "binary", groups=[1.0, math.nan]), "row 1"),
        (lambda: risk_claims([0, 1], "binary", groups=[None, "a"]), "row 0"),
        (lambda: risk_claims([0, 1], "binary", models=0), "models"),
    ],
)
def test_nonsense_is_refused_with_a_clear_message(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# -- an interval that says nothing ----------------------------------------------------


def test_the_whole_range_is_not_met():
    """One row of a bounded loss, or all of a few: nothing is promised."""
    for claims in (
        risk_claims([0.3], "regression", bounds=(0, 1)),
        risk_claims([2.0, 2.5], "regression", bounds=(1, 3)),
        risk_claims([9.0, 8.0], "regression", threshold=5.0)[1:],
        risk_claims([1, 0], "binary", groups=["a", "b"]),
    ):
        (claim,) = claims
        assert claim.met is None and claim.mark == "·"
        assert claim.fix.startswith("use more held-out rows")
    (claim,) = risk_claims([0.3], "regression", bounds=(0, 1), target=0.5)
    assert claim.met is False
    (claim,) = risk_claims([0.3], "regression", bounds=(0, 1), target=1.0)
    assert claim.met is None
    (claim,) = risk_claims([0], "binary", target=0.98)
    assert claim.met is True  # P ≤ 0.975 is little, and something
    (claim,) = risk_claims([0], "binary")
    assert claim.met is None and not claim.fix


def test_a_union_bound_has_no_target():
    for n in (200, 2):
        assert union_claim(n, 6, 5).met is None


@given(st.integers(1, 3000), st.data(), st.floats(1e-9, 0.9), st.integers(1, 50))
def test_the_verifiers_formulas_are_those_of_the_bounds(n, data, delta, models):
    """Two programmes: ``certus.bounds`` for users, ``verify`` for claims."""
    k = data.draw(st.integers(0, n))
    losses = np.repeat([1, 0], [k, n - k])
    found = risk_interval(losses, "binary", delta=delta, models=models)
    assert as_stated(found, clopper_pearson(k, n, delta, models=models))
    low, reach = data.draw(st.sampled_from([(0.0, 1.0), (-3.0, 2.0), (1e6, 7.0)]))
    values, ends = low + reach * losses, (low, low + reach)
    found = risk_interval(values, "regression", bounds=ends, delta=delta, models=models)
    bound = bounded_mean(values, delta, *ends, models=models)
    assert found.method == bound.method
    assert found.low <= bound.low and bound.high <= found.high
    assert found.high - found.low <= bound.width + 1e-6 * reach
    half = union_claim(n, models, 2, delta=delta).value
    assert above(half, hoeffding(n, delta, models=2 * models))
