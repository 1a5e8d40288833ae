"""Criteria by group: values against direct counts, intervals against their definitions.

References count row by row in plain Python, take binomial tails and Kolmogorov and
Smirnov's distance from scipy, and look at what must be known by construction.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, ks_2samp

from certus.fairness import calibration, independence, separation, sufficiency

ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.sampled_from("abc")),
    min_size=1,
    max_size=60,
)


def share(rows: list[bool]) -> float:
    return sum(rows) / len(rows) if rows else math.nan


def same(found: float, wanted: float) -> bool:
    return found == pytest.approx(wanted, abs=1e-12, nan_ok=True)


# ---- values -----------------------------------------------------------------------


@pytest.mark.catalog("FAIR-01", "FAIR-02", "FAIR-03", "FAIR-04")
@given(ROWS)
def test_values_of_decisions_are_counts(rows) -> None:
    y, d, a = (list(part) for part in zip(*rows))
    one, two, three = independence(d, a), separation(y, d, a), sufficiency(y, d, a)
    for g in sorted(set(a)):
        mine = [(truth, chosen) for truth, chosen, group in rows if group == g]
        assert same(one["selection_rate"][g], share([c == 1 for _, c in mine]))
        for table, metric, wanted in (
            (two, "true_positive_rate", [c == 1 for t, c in mine if t == 1]),
            (two, "false_positive_rate", [c == 1 for t, c in mine if t == 0]),
            (three, "positive_predictive_value", [t == 1 for t, c in mine if c == 1]),
            (three, "negative_predictive_value", [t == 0 for t, c in mine if c == 0]),
        ):
            assert same(table[metric][g], share(wanted))
            size = table.sizes[table.metrics.index(metric), table.groups.index(g)]
            assert size == len(wanted)
    assert one.counts.tolist() == [a.count(g) for g in sorted(set(a))]


@given(ROWS, st.lists(st.floats(0.01, 9), min_size=60, max_size=60))
def test_weighted_values_are_weighted_counts(rows, weights) -> None:
    y, d, a = (list(part) for part in zip(*rows))
    w = weights[: len(rows)]
    table = separation(y, d, a, sample_weight=w)
    for g in table.groups:
        pairs = [(d[i], w[i]) for i in range(len(a)) if a[i] == g and y[i] == 1]
        total = sum(v for _, v in pairs)
        wanted = sum(v for c, v in pairs if c) / total if pairs else math.nan
        assert same(table["true_positive_rate"][g], wanted)
    assert np.isnan(table.low).all() and np.isnan(table.high).all()
    assert "weighted" in table.notes[0] and table.holds is None
    plain = separation(y, d, a, sample_weight=np.full(len(a), 2.5))
    np.testing.assert_allclose(plain.values, separation(y, d, a).values, atol=1e-15)


def test_classes_are_judged_one_against_the_others() -> None:
    rng = np.random.default_rng(0)
    y, d, a = rng.integers(0, 3, (3, 200))
    table = separation(y, d, a)
    assert len(table.metrics) == 6
    for c in range(3):
        alone = separation(y == c, d == c, a)
        for name in ("true_positive_rate", "false_positive_rate"):
            assert table[f"{name}[{c}]"] == alone[name]
    chosen = separation(y, d, a, positive=1)
    assert chosen["true_positive_rate"] == table["true_positive_rate[1]"]


def test_the_positive_label_is_one_even_if_never_chosen() -> None:
    assert independence([0, 0], ["a", "b"])["selection_rate"] == {"a": 0.0, "b": 0.0}
    assert independence([-1, -1], ["a", "b"])["selection_rate"]["a"] == 0.0
    assert independence(["no", "yes"], [0, 0])["selection_rate"][0] == 0.5
    assert independence(["no"], [0], positive="yes")["selection_rate"][0] == 0.0
    assert independence([0, 0], ["a", "b"]).ratio == 1.0


# ---- differences and intervals ----------------------------------------------------


@given(ROWS)
def test_differences_and_ratios_are_those_of_extremes(rows) -> None:
    y, d, a = (list(part) for part in zip(*rows))
    table = separation(y, d, a)
    for i, gap in enumerate(table.gaps):
        known = table.values[i][~np.isnan(table.values[i])]
        if len(known) < 2:
            assert math.isnan(gap.difference)
            continue
        assert same(gap.difference, known.max() - known.min())
        assert table[gap.metric][gap.largest] == known.max()
        assert table[gap.metric][gap.smallest] == known.min()
        if known.max() > 0:
            assert same(gap.ratio, known.min() / known.max())
        assert 0 <= gap.low <= gap.difference <= gap.high <= 1
        assert 0 <= gap.ratio_low <= gap.ratio <= gap.ratio_high <= 1


def test_intervals_are_binomial_tails_shared_over_all_cells() -> None:
    rng = np.random.default_rng(1)
    y, d = rng.integers(0, 2, (2, 300))
    a = rng.choice(list("abc"), 300)
    table = separation(y, d, a, delta=0.1)
    tail = 0.1 / (2 * 3) / 2
    for i in range(2):
        for j in range(3):
            n = int(table.sizes[i, j])
            k = round(table.values[i, j] * n)
            assert binom.sf(k - 1, n, table.low[i, j]) == pytest.approx(tail)
            assert binom.cdf(k, n, table.high[i, j]) == pytest.approx(tail)


def test_the_ends_of_a_gap_are_attained_and_no_wider() -> None:
    """Every choice of true values in the intervals gives a difference in the ends."""
    rng = np.random.default_rng(2)
    d, a = rng.integers(0, 2, 90), rng.choice(list("abc"), 90)
    table = independence(d, a)
    low, high = table.low[0], table.high[0]
    gap, found, ratios = table.gaps[0], [], []
    for _ in range(4000):
        weight = rng.choice([0.0, 1.0, rng.random()], 3)
        value = low + weight * (high - low)
        found.append(value.max() - value.min())
        ratios.append(value.min() / value.max())
    assert gap.low <= min(found) and max(found) <= gap.high + 1e-15
    assert max(found) == pytest.approx(gap.high)
    assert min(ratios) == pytest.approx(gap.ratio_low)
    assert gap.ratio_low <= min(ratios) and max(ratios) <= gap.ratio_high


def test_verdicts_for_large_known_and_equal_groups() -> None:
    half = [1, 0] * 20_000
    table = independence(half * 2, ["a"] * 40_000 + ["b"] * 40_000)
    assert table.holds is True and table.difference == 0.0
    assert table.verdict == "independence holds up to 0.05"
    most = [1, 1, 0, 0] * 10_000 + [1, 0, 0, 0] * 10_000
    table = independence(most, ["a"] * 40_000 + ["b"] * 40_000)
    assert table.holds is False
    said = float(table.verdict.rpartition(" ")[2])
    assert said <= table.gaps[0].low < 0.25 and said > 0.23
    few = independence([1, 0, 1, 0], ["a", "a", "b", "b"])
    assert few.holds is None and few.verdict.startswith("too few rows")


@pytest.mark.parametrize("rates", [(0.5, 0.5), (0.6, 0.5), (0.3, 0.29), (0.0, 0.1)])
def test_the_number_of_rows_asked_for_is_enough(rates) -> None:
    """With so many rows at the same rates it is settled; with half of them not."""

    def table(n: int):
        parts = [np.arange(n // 2) < round(rate * (n // 2)) for rate in rates]
        return independence(np.concatenate(parts), ["a"] * (n // 2) + ["b"] * (n // 2))

    found = table(400)
    rows = found.gaps[0].rows
    assert found.holds is None and f"about {rows:,} needed)" in found.verdict
    assert table(int(1.1 * rows)).holds is not None
    if min(rates) > 0:  # an interval near 0 shrinks faster than the root
        assert table(rows // 2).holds is None


def test_a_lower_bound_is_rounded_down() -> None:
    from certus.fairness.gaps import floor

    assert floor(0.12999) == "0.129" and floor(0.0999999) == "0.0999"
    assert floor(0.3) == "0.3" and floor(0.0) == "0" and floor(0.07) == "0.07"


# ---- scores -----------------------------------------------------------------------


@pytest.mark.catalog("FAIR-01", "FAIR-02")
def test_scores_are_compared_by_kolmogorov_and_smirnovs_distance() -> None:
    rng = np.random.default_rng(3)
    r, a = np.round(rng.random(500), 2), rng.choice(list("abc"), 500)
    r[a == "b"] **= 2
    table = independence(r, a)
    gap = table.gap("score_distribution")
    wanted = {
        (g, h): ks_2samp(r[a == g], r[a == h]).statistic
        for g in "abc" for h in "abc" if g < h
    }  # fmt: skip
    assert gap.difference == pytest.approx(max(wanted.values()), abs=1e-12)
    assert {gap.largest, gap.smallest} == set(max(wanted, key=wanted.get))

    # Bands of both groups; of all cells, three distributions and three means.
    def band(g: str) -> float:
        return math.sqrt(math.log(2 * 6 / 0.05) / (2 * (a == g).sum()))

    lows = [v - band(g) - band(h) for (g, h), v in wanted.items()]
    assert gap.low == pytest.approx(max(0, *lows), abs=1e-12)
    assert gap.high <= 1
    for g in "abc":
        assert table["mean_score"][g] == pytest.approx(r[a == g].mean())
        far = max(v for pair, v in wanted.items() if g in pair)
        assert table["score_distribution"][g] == pytest.approx(far, abs=1e-12)


def test_the_distance_bounds_the_gap_at_any_threshold() -> None:
    rng = np.random.default_rng(4)
    r, a = rng.random(200), rng.integers(0, 2, 200)
    r[a == 1] *= 0.9
    most = independence(r, a).gap("score_distribution").difference
    gaps = [independence((r > t).astype(int), a).difference for t in r]
    assert max(gaps) == pytest.approx(most, abs=1e-12)


def test_whole_weights_of_scores_are_repetitions() -> None:
    rng = np.random.default_rng(5)
    r, a, y = rng.random(60), rng.integers(0, 2, 60), rng.integers(0, 2, 60)
    w = rng.integers(1, 4, 60)
    more = [np.repeat(part, w) for part in (y, r, a)]
    for one, two in (
        (independence(r, a, sample_weight=w), independence(*more[1:])),
        (separation(y, r, a, sample_weight=w), separation(*more)),
        (sufficiency(y, r, a, sample_weight=w), sufficiency(*more)),
        (calibration(y, r, a, sample_weight=w), calibration(*more)),
    ):
        np.testing.assert_allclose(one.values, two.values, atol=1e-12)
        assert one.difference == pytest.approx(two.difference, nan_ok=True)


@pytest.mark.catalog("FAIR-03")
def test_separation_of_scores_looks_within_each_truth() -> None:
    rng = np.random.default_rng(6)
    y, a = rng.integers(0, 2, 400), rng.integers(0, 2, 400)
    r = rng.random(400)
    r[(y == 1) & (a == 1)] /= 2
    table = separation(y, r, a)
    for c in (0, 1):
        alone = independence(r[y == c], a[y == c])
        metric = f"score_distribution[y={c}]"
        assert table[metric] == alone["score_distribution"]
    assert table.gap("score_distribution[y=1]").finding == "gap"
    assert table.gap("score_distribution[y=0]").finding == "unknown"
    assert table.holds is False


@pytest.mark.catalog("FAIR-04", "FAIR-05")
def test_rates_and_errors_by_bin_are_counts() -> None:
    rng = np.random.default_rng(7)
    r, y, a = rng.random(300), rng.integers(0, 2, 300), rng.integers(0, 2, 300)
    r[0], r[1] = 1.0, 0.25
    edges = [0.0, 0.25, 0.5, 1.0]
    rates = sufficiency(y, r, a, bins=edges)
    errors = calibration(y, r, a, bins=edges)
    for g in (0, 1):
        total = 0.0
        for b, (low, high) in enumerate(pairwise(edges)):
            rows = (a == g) & (r >= low) & ((r < high) | (high == 1.0))
            assert rates.values[b, g] == pytest.approx(y[rows].mean(), abs=1e-12)
            error = y[rows].mean() - r[rows].mean()
            assert errors.values[b + 1, g] == pytest.approx(error, abs=1e-12)
            total += abs(error) * rows.sum() / (a == g).sum()
        assert errors.values[0, g] == pytest.approx(total, abs=1e-12)


@pytest.mark.catalog("FAIR-05")
def test_recalibrating_within_groups_brings_calibration_and_sufficiency() -> None:
    """Scores off by another amount in each group, mapped to the rates seen there."""
    rng = np.random.default_rng(8)
    n = 60_000
    a, true = rng.integers(0, 2, n), rng.choice([0.15, 0.35, 0.55, 0.75], n)
    y = (rng.random(n) < true).astype(int)
    r = np.where(a == 1, true + 0.2, true - 0.1)
    before = calibration(y, r, a)
    assert before.holds is False and before.difference == pytest.approx(0.2, abs=0.02)
    mended = np.empty(n)
    for g in (0, 1):
        for level in np.unique(true):
            rows = (a == g) & (true == level)
            mended[rows] = y[rows].mean()
    after = calibration(y, mended, a)
    assert after.holds is True and after.difference < 1e-12
    # The same number now means the same in both groups.
    assert sufficiency(y, mended, a, tolerance=0.06).holds is True
    assert sufficiency(y, r, a, bins=4).holds is False


@pytest.mark.catalog("FAIR-04")
def test_binned_gaps_are_zero_where_a_score_means_the_same() -> None:
    """Shares of 1/4, 1/2, 3/4 in the bins of both groups, filled unequally."""
    rows = [
        (truth, score, group)
        for score, positive in ((0.2, 1), (0.5, 2), (0.8, 3))
        for group, times in (("a", 50), ("b", 20 if score < 0.5 else 300))
        for truth in [1] * positive + [0] * (4 - positive)
        for _ in range(times)
    ]
    y, r, a = zip(*rows)
    table = sufficiency(y, r, a, bins=[0.0, 0.4, 0.6, 1.0])
    assert [gap.difference for gap in table.gaps] == [0.0] * 3
    np.testing.assert_array_equal(table.values, [[0.25] * 2, [0.5] * 2, [0.75] * 2])
    # The groups are scored unlike, and the criterion does not mind.
    assert independence(r, a).difference > 0.1
    other = [1 - t if g == "b" else t for t, g in zip(y, a)]
    assert sufficiency(other, r, a, bins=[0.0, 0.4, 0.6, 1.0]).difference == 0.5


@pytest.mark.catalog("FAIR-02", "FAIR-03")
def test_gaps_are_zero_by_construction() -> None:
    """A full factorial table: decision, truth and group are independent."""
    grid = np.array([(d, y, a) for d in (0, 1) for y in (0, 1) for a in (0, 1)] * 50)
    d, y, a = grid.T
    assert independence(d, a).difference == 0.0
    assert separation(y, d, a).difference == 0.0
    assert sufficiency(y, d, a).difference == 0.0


# ---- groups -----------------------------------------------------------------------


def test_several_attributes_make_intersections() -> None:
    frame = pl.DataFrame(
        {"sex": ["f", "f", "m", "m"], "old": [True, False, True, True]}
    )
    table = independence([1, 0, 1, 0], frame)
    assert table.attributes == ("sex", "old")
    assert table.groups == (("f", False), ("f", True), ("m", True))
    assert table["selection_rate"][("m", True)] == 0.5
    flat = table.to_frame()
    assert flat.columns == ["metric", "sex", "old", "values", "low", "high", "sizes"]
    assert flat.height == 3


def test_missing_values_are_a_group_of_their_own() -> None:
    for missing in (None, math.nan, np.float64("nan")):
        table = independence([1, 0, 1], ["a", missing, "b"])
        assert table.groups == ("a", "b", None)
        assert table["selection_rate"][None] == 0.0
        assert "(missing)" in str(table)
        assert table.to_dict()["groups"] == ["a", "b", None]
    both = independence([1, 0], [float("nan"), None])
    assert both.groups == (None,) and both.counts.tolist() == [2]


def test_numbers_are_ordered_by_size() -> None:
    assert independence([1, 0, 1], [10, 9, 2]).groups == (2, 9, 10)


# ---- shown ------------------------------------------------------------------------


def test_a_table_is_shown_as_text_html_json_and_figure() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    rng = np.random.default_rng(9)
    y, a = rng.integers(0, 2, 400), rng.choice(["<b>x</b>", "y"], 400)
    r = rng.random(400)
    tables = [
        independence(y, a),
        independence(r, a),
        independence(10 * r, a),
        separation(y, (r > 0.5).astype(int), np.column_stack([a, y])),
        sufficiency(y, r, a),
        calibration(y, r, a, bins=4, sample_weight=r + 0.1),
    ]
    for table in tables:
        assert str(table).startswith(table.verdict)
        found = json.loads(json.dumps(table.to_dict(), allow_nan=False))
        assert found["verdict"] == table.verdict
        assert len(found["gaps"]) == len(table.metrics)
        assert "<b>x" not in table._repr_html_()
        figure = table.plot()
        assert figure._suptitle.get_text() == table.verdict
        pyplot.close(figure)
    figure = pyplot.figure()
    assert tables[0].plot(figure) is figure
    pyplot.close(figure)


def test_the_interval_of_a_mean_states_its_assumptions() -> None:
    """A rare score of 1000 is not seen, and moves the mean beyond every end."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 400)
    unlucky = 0
    for _ in range(40):
        score = np.where(rng.random(400) < 1e-3, 1000.0, rng.random(400))
        table = independence(score, a, scores=True)
        seen = bool(score.max() > 1)
        assert np.isnan(table.low[1]).all() == seen
        said = "has no bound" if seen else "if the scores of new rows lie in [0, 1]"
        assert sum(said in note for note in table.notes) == 1
        unlucky += not seen and bool((table.high[1] < 1.4995).all())
    assert unlucky > 10  # so that it needs saying


def test_one_bin_is_enough_for_calibration_to_fail() -> None:
    """Although the expected error, mostly of other bins, is within the tolerance."""
    r = np.repeat([0.25, 0.75], [40_000, 800])
    y = np.concatenate([np.arange(40_000) % 4 == 0, np.zeros(800)]).astype(int)
    table = calibration(y, r, np.zeros(len(r)), bins=2)
    assert table.gap("expected_calibration_error").finding == "none"
    assert table.holds is False and table.gap(table.metrics[2]).finding == "gap"
