"""Criteria that exclude each other: all small tables of truth, decision and group.

The theorem is searched for exceptions exhaustively; the bound on what one criterion
must miss is compared with what is missed, table by table.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from certus.fairness import exclusivity, independence, separation, sufficiency

MOST = 3  # rows in each of the eight cells


def rates(n11: int, n10: int, n01: int, n00: int) -> dict[str, Fraction | None]:
    """Of one group, from counts of (truth, decision)."""

    def over(a: int, b: int) -> Fraction | None:
        return Fraction(a, b) if b else None

    total = n11 + n10 + n01 + n00
    return {
        "p": over(n11 + n10, total),
        "q": over(n11 + n01, total),
        "t": over(n11, n11 + n10),
        "f": over(n01, n01 + n00),
        "v": over(n11, n11 + n01),
        "w": over(n10, n10 + n00),
    }


GROUPS = [
    (cells, rates(*cells))
    for cells in product(range(MOST + 1), repeat=4)
    if cells[0] + cells[1] and cells[2] + cells[3]  # both truths occur
]


def alike(one, other, names: str) -> bool:
    """Equal wherever both are defined; what does not occur cannot differ."""
    return all(one[n] == other[n] or one[n] is None or other[n] is None for n in names)


def rows(cells: tuple[int, ...]) -> tuple[list[int], list[int]]:
    kinds = ((1, 1), (1, 0), (0, 1), (0, 0))
    y = [k[0] for k, n in zip(kinds, cells) for _ in range(n)]
    d = [k[1] for k, n in zip(kinds, cells) for _ in range(n)]
    return y, d


def together(
    one: tuple[int, ...], two: tuple[int, ...]
) -> tuple[list[int], list[int], list[str]]:
    """Truth, decision and group of each row of two groups."""
    (y, d), (z, e) = rows(one), rows(two)
    return y + z, d + e, ["a"] * len(y) + ["b"] * len(z)


@pytest.mark.catalog("FAIR-06")
def test_two_criteria_hold_together_only_in_degenerate_tables() -> None:
    """All tables; where two criteria hold our measures say so, and name no conflict."""
    seen = {"equal": 0, "useless": 0, "perfect": 0}
    asked = 0
    for one, a in GROUPS:
        for two, b in GROUPS:
            holds = {
                "independence": alike(a, b, "q"),
                "separation": alike(a, b, "tf"),
                "sufficiency": alike(a, b, "vw"),
            }
            if sum(holds.values()) < 2:
                continue
            equal = a["p"] == b["p"]
            useless = a["t"] == a["f"] and b["t"] == b["f"]
            perfect = all({g["t"], g["f"]} == {0, 1} for g in (a, b))
            if holds["independence"] and holds["separation"]:
                assert equal or useless
                seen["useless"] += not equal
            if holds["independence"] and holds["sufficiency"]:
                assert equal
            if holds["separation"] and holds["sufficiency"]:
                assert equal or perfect
                seen["perfect"] += not equal
            seen["equal"] += equal and all(holds.values())
            if asked < 150 * (1 + equal + 2 * useless + 3 * perfect):
                asked += 1  # a few hundred of each kind; all would take a minute
                compare_with_measures(one, two, holds)
    assert min(seen.values()) > 0 and asked > 300  # every exception does occur


def compare_with_measures(
    one: tuple[int, ...], two: tuple[int, ...], holds: dict[str, bool]
) -> None:
    y, d, a = together(one, two)
    missed = {
        "independence": independence(d, a).difference,
        "separation": separation(y, d, a).difference,
        "sufficiency": sufficiency(y, d, a).difference,
    }
    for name, value in missed.items():
        known = math.isnan(value) or value < 1e-12
        assert known == holds[name], (one, two, name, value)
    for c in exclusivity(y, d, a).conflicts:
        if holds[c.first] and holds[c.second]:
            assert math.isnan(c.observed) or c.observed < 1e-12


@pytest.mark.catalog("FAIR-06")
def test_one_criterion_misses_by_the_stated_amount() -> None:
    rng = np.random.default_rng(0)
    informative = 0
    tables = [tuple(map(tuple, rng.integers(1, 12, (2, 4)))) for _ in range(400)]
    # Found by search: separation and sufficiency miss by little for their base rates.
    tables.append(((1, 404, 277, 318), (1, 957, 2, 40)))
    for one, two in tables:
        y, d, a = together(one, two)
        found = exclusivity(y, d, a)
        missed = {
            "independence": independence(d, a).difference,
            "separation": separation(y, d, a).difference,
            "sufficiency": sufficiency(y, d, a).difference,
        }
        for c in found.conflicts:
            truth = max(missed[c.first], missed[c.second])
            assert c.observed <= truth + 1e-12
            assert c.least <= c.observed + 1e-12
            informative += c.observed > 0.5 * truth
    assert informative > 100  # the bound is not an idle one


def test_the_bound_is_attained() -> None:
    """Equal selection rates and a rule that is always right where it is chosen."""
    # Independence holds; w differs by all that base rates do, v − w being 1 in one.
    y, d = rows((0, 0, 5, 5))
    z, e = rows((5, 5, 0, 0))
    found = exclusivity(y + z, d + e, ["a"] * 10 + ["b"] * 10)
    assert found.conflicts[1].observed == 1.0
    assert sufficiency(y + z, d + e, ["a"] * 10 + ["b"] * 10).difference == 1.0


def test_equal_base_rates_and_single_groups_exclude_nothing() -> None:
    y, d = rows((3, 1, 2, 4))
    found = exclusivity(y * 2, d * 2, ["a"] * 10 + ["b"] * 10)
    assert [c.observed for c in found.conflicts] == [0.0] * 3
    assert all("may both hold" in c.verdict for c in found.conflicts)
    alone = exclusivity(y, d, ["a"] * 10)
    assert "only one group" in alone.verdict
    assert all(math.isnan(c.observed) and c.groups == () for c in alone.conflicts)


def test_the_findings_are_shown_and_groups_named() -> None:
    y = [1] * 900 + [0] * 100 + [1] * 100 + [0] * 900
    a = ["a"] * 1000 + ["b"] * 1000
    d = [t if i % 10 else 1 - t for i, t in enumerate(y)]
    found = exclusivity(y, d, a)
    assert all(c.least > 0 and set(c.groups) == {"a", "b"} for c in found.conflicts)
    assert "cannot both hold" in str(found) and "at least" in found.verdict
    saved = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert len(saved["conflicts"]) == 3 and saved["verdict"] == found.verdict
    weighted = exclusivity(y, d, a, sample_weight=np.ones(2000))
    for one, two in zip(weighted.conflicts, found.conflicts):
        assert one.observed == pytest.approx(two.observed)
        assert math.isnan(one.least) and "no promise" in one.verdict


def test_several_labels_need_a_positive_one() -> None:
    y, a = [0, 1, 2, 1], ["a", "a", "b", "b"]
    with pytest.raises(ValueError, match="pass positive="):
        exclusivity(y, y, a)
    assert exclusivity(y, y, a, positive=1).rates["base_rate"] == {"a": 0.5, "b": 0.5}
