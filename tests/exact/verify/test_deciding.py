"""How a number and the bound of its rounding decide a target."""

from __future__ import annotations

import math

import pytest

from certus.certificate import Claim, Status, Strength
from certus.verify.deciding import (
    GAP,
    Number,
    claim_of,
    proved,
    status_of,
    verdict,
    worst_of,
)

#: Computed, rounding, whether a target of 1e-6 is met.
DECIDED = [
    (5e-7, 5e-7, True),
    (6e-7, 5e-7, False),  # the rounding is small: what was asked for is not shown
    (0.0, 2e-6, None),  # rounding alone exceeds the target
    (2.5e-6, 2e-6, None),  # the true number may be 5e-7
    (3.1e-6, 2e-6, False),  # it is 1.1e-6 at least
    (1.0, math.inf, None),  # nothing is known of the rounding
    (0.0, math.nan, None),
    (math.inf, 0.0, False),
    (math.nan, 0.0, False),
    (math.inf, 1.0, False),
]


@pytest.mark.parametrize(("computed", "rounding", "met"), DECIDED)
def test_one_rule_decides_every_claim(computed, rounding, met):
    found = Number(computed, rounding)
    for claim in (
        proved("a number", found, 1e-6, "met", missed="missed", fix="try again"),
        claim_of(GAP, found, 1e-6, "P", "try again"),
    ):
        assert claim.met is met and claim.strength is Strength.PROVED
        assert not claim.value < computed + rounding and claim.allowance >= 0
        assert claim.detail.startswith("undecided: rounding errors alone") is (
            met is None
        )
        assert bool(claim.fix) is (met is not True)
        expected = {True: Status.SOLVED, None: Status.UNDECIDED}
        assert status_of(claim) is expected.get(met, Status.TOL_NOT_REACHED)


def test_without_a_target_nothing_is_decided():
    claim = proved("a number", Number(1.0), None, "it is 1", fix="none needed")
    assert claim.met is None and claim.detail == "it is 1" and claim.fix == ""
    assert status_of(claim) is Status.UNDECIDED
    assert verdict([claim, Claim("other", Strength.MEASURED, 1.0)]) is Status.SOLVED


def test_a_share_of_no_variance_is_zero_or_infinite():
    assert Number.share(1.0, 0.5, 2.0) == (0.5, 0.25)
    assert Number.share(0.0, 0.0, 0.0) == (0.0, 0.0)
    assert Number.share(1.0, 0.0, 0.0).most == math.inf
    assert Number.share(0.0, 1.0, math.nan).most == math.inf


def test_a_missed_target_is_worse_than_an_undecided_one():
    found = [Number(1e-9), Number(1e-3), Number(0.0, math.inf), Number(math.nan, 1.0)]
    assert worst_of(found, 1e-6) == 1
    assert worst_of([found[0], found[2]], 1e-6) == 1
    assert worst_of(found) in (2, 3)
