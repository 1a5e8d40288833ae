"""The ends of every interval by group, from their formulas written once more.

How often intervals hold is counted elsewhere; most are so wide that a lost factor two
or a share of delta too large would not be seen there.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import beta
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from certus.fairness import (
    GroupThresholds,
    calibration,
    exclusivity,
    frontier,
    independence,
    recovery,
    separation,
)
from certus.fairness.excluding import _least


def root(n: float, delta: float) -> float:
    """Hoeffding's half width for a mean of n numbers in [0, 1]."""
    return math.sqrt(math.log(2 / delta) / (2 * n))


def binomial(k: int, n: int, delta: float) -> tuple[float, float]:
    low = beta.ppf(delta / 2, k, n - k + 1) if k else 0.0
    high = beta.ppf(1 - delta / 2, k + 1, n - k) if k < n else 1.0
    return float(low), float(high)


@pytest.mark.catalog("FAIR-05")
def test_errors_of_calibration() -> None:
    """Eight groups of events: one for each expected error, two for each of 3 bins."""
    rng = np.random.default_rng(0)
    n, edges = 9000, np.array([0.0, 0.2, 0.6, 1.0])
    a, r = rng.integers(0, 2, n), rng.random(n)
    y = (rng.random(n) < np.clip(r + 0.35 * a, 0, 1)).astype(int)
    table = calibration(y, r, a, bins=edges, delta=0.1)
    share = 0.1 / (2 * (1 + 2 * 3))
    for g in (0, 1):
        mine = a == g
        size = int(mine.sum())
        t = 2 * root(size, share)
        error = table.values[0, g]
        lowest = max(0.0, error - t - math.sqrt(3 / size))
        assert table.low[0, g] == pytest.approx(lowest, abs=1e-12)
        assert table.high[0, g] == pytest.approx(error + t, abs=1e-12)
        for b in range(3):
            rows = mine & (r >= edges[b]) & (r < edges[b + 1])
            ends = binomial(int(y[rows].sum()), int(rows.sum()), share)
            half = (edges[b + 1] - edges[b]) * root(rows.sum(), share)
            wanted = np.array(ends) - r[rows].mean() + [-half, half]
            found = table.low[1 + b, g], table.high[1 + b, g]
            np.testing.assert_allclose(found, np.clip(wanted, -1, 1), atol=1e-9)
    assert table.low[0, 1] > 0  # what chance adds to the expected error was at stake


@pytest.mark.catalog("FAIR-02")
def test_distances_and_means_of_scores() -> None:
    """Two groups, one event for the distribution and one for the mean of each."""
    rng = np.random.default_rng(5)
    a, r = rng.integers(0, 2, 500), rng.random(500) ** 2
    table = independence(r, a, delta=0.1)
    sizes, share = np.bincount(a), 0.1 / 4
    reach = root(sizes[0], share) + root(sizes[1], share)
    gap = table.gap("score_distribution")
    assert gap.high == pytest.approx(gap.difference + reach)
    for g, n in enumerate(sizes):
        part, tail = r[a == g], math.log(3 / share)
        half = math.sqrt(2 * part.var(ddof=1) * tail / n) + 7 * tail / (3 * (n - 1))
        assert table.high[1, g] == pytest.approx(part.mean() + half)
        assert table.low[1, g] == pytest.approx(max(0, part.mean() - half))


@pytest.mark.catalog("FAIR-02")
def test_ratios() -> None:
    d = np.repeat([1, 0, 1, 0], [900, 100, 200, 800])
    table = independence(d, np.repeat(["a", "b"], 1000))
    gap = table.gaps[0]
    (low_a, low_b), (high_a, high_b) = table.low[0], table.high[0]
    assert gap.ratio_low == pytest.approx(low_b / high_a)
    assert gap.ratio_high == pytest.approx(high_b / low_a)
    assert gap.ratio_low < gap.ratio < gap.ratio_high < 0.3


def test_the_gap_that_needs_fewer_rows_decides() -> None:
    """Of two metrics that differ, the one settled sooner says how many rows."""
    y = np.repeat([1, 0, 1, 0], 100)
    d = np.concatenate([np.arange(100) < k for k in (60, 40, 45, 32)]).astype(int)
    table = separation(y, d, np.repeat(["a", "b"], 200))
    few, many = sorted(gap.rows for gap in table.gaps)
    assert table.holds is None and few < many / 2
    assert f"(about {few:,} needed)" in table.verdict


def rates(cells: np.ndarray) -> np.ndarray:
    """p, q, t, f, v, w of a group, from probabilities of (truth, decision)."""
    n11, n10, n01, n00 = cells
    return np.array([
        n11 + n10, n11 + n01, n11 / (n11 + n10), n01 / (n01 + n00),
        n11 / (n11 + n01), n10 / (n10 + n00),
    ])  # fmt: skip


@pytest.mark.catalog("FAIR-06")
def test_the_necessary_miss_follows_from_any_valid_intervals() -> None:
    rng = np.random.default_rng(1)
    close = np.zeros(3)
    pairs = (([1], [2, 3]), ([1], [4, 5]), ([2, 3], [4, 5]))
    for _ in range(3000):
        true = np.column_stack(
            [rates(rng.dirichlet(rng.choice([0.3, 1.0, 3.0]) * np.ones(4)))
             for _ in "ab"]
        )  # fmt: skip
        apart = np.abs(true[:, 0] - true[:, 1])
        width = rng.choice([0.0, 0.05, 0.3], (2, *true.shape)) * rng.random(true.shape)
        low, high = np.maximum(true - width[0], 0), np.minimum(true + width[1], 1)
        for a, b in permutations((0, 1)):
            said = _least(low, high, a, b)
            inside = np.where(rng.random(true.shape) < 0.5, low, high)
            assert np.all(np.array(said) <= np.add(_least(inside, inside, a, b), 1e-12))
            for k, (one, two) in enumerate(pairs):
                missed = max(apart[one].max(), apart[two].max())
                assert said[k] <= missed + 1e-9
                close[k] = max(close[k], said[k] / missed)
    assert close.min() > 0.4  # not idle


@pytest.mark.catalog("FAIR-06")
def test_the_guaranteed_conflict_is_below_the_observed_one() -> None:
    y = np.repeat([1, 0, 1, 0], [300, 200, 100, 400])
    d = np.where(np.arange(1000) % 5 > 0, y, 1 - y)
    found = exclusivity(y, d, np.repeat(["a", "b"], 500))
    low, high = found.rates.low, found.rates.high
    p, t, f = 0, 2, 3
    apart = low[p, 0] - high[p, 1]
    informed = max(low[t, g] - high[f, g] for g in (0, 1))
    assert found.conflicts[0].least == pytest.approx(apart * informed / 2)
    assert all(0 < c.least < c.observed for c in found.conflicts)


@pytest.mark.catalog("FAIR-07")
def test_recovery_shares_delta_and_counts_the_smaller_side() -> None:
    rng = np.random.default_rng(2)
    group = np.repeat(["few", "many"], [40, 400])
    X = rng.normal(size=(440, 2)) + (group == "few")[:, None]
    for values, k in ((group, 2), (np.where(X[:, 0] > 1, "odd", group), 3)):
        found = recovery(X, values, delta=0.1, random_state=0)
        counts = found.counts
        half = [root(min(m, 440 - m) // 5, 0.1 / (k + 1)) for m in counts]
        # Rows that five folds do not share evenly: the smallest fold counts.
        low, high = found.auc - half, found.auc + half
        np.testing.assert_allclose(found.auc_low, np.maximum(low, 0), atol=0.02)
        np.testing.assert_allclose(found.auc_high, np.minimum(high, 1), atol=0.02)
        share = root(440 // 5, 0.1 / (k + 1))
        ends = max(0.0, found.accuracy - share), min(1.0, found.accuracy + share)
        assert (found.accuracy_low, found.accuracy_high) == pytest.approx(ends)


@pytest.mark.catalog("FAIR-09")
def test_accuracies_along_a_frontier_hold_together() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(300, 1)), rng.integers(0, 2, 300)
    values = ["most_frequent", "prior", "uniform", "stratified"]
    found = frontier(
        DummyClassifier(random_state=0), X, y, y, "strategy", values,
        criterion="independence", held_out=(X, y, y), delta=0.1,
    )  # fmt: skip
    for value, low, high in zip(found.accuracy, found.low, found.high):
        ends = binomial(round(300 * value), 300, 0.1 / 4)
        assert (low, high) == pytest.approx(ends)


@pytest.mark.catalog("FAIR-08")
def test_a_frontier_lends_each_row_its_own_attribute() -> None:
    """Decisions by group, asked with the groups mixed up, would not be equal."""
    rng = np.random.default_rng(4)
    group = np.sort(rng.choice(["a", "b"], 2000))
    X = rng.normal(size=(2000, 1)) + 3.0 * (group == "b")[:, None]
    y = (X[:, 0] - 3.0 * (group == "b") + rng.normal(size=2000) > 0).astype(int)
    model = GroupThresholds(
        LogisticRegression(), criterion="independence", random_state=0
    )
    rows = (X, y, group)
    found = frontier(
        model, *rows, "max_difference", [0.0], criterion="independence", held_out=rows
    )
    assert found.difference[0] < 0.05 and found.accuracy[0] > 0.7
    decided = found.models[0].predict(X, sensitive=group)
    assert found.accuracy[0] == np.mean(decided == y)


@pytest.mark.catalog("FAIR-08")
def test_thresholds_stand_in_the_middle() -> None:
    """So that a score that is rounded otherwise in another batch is decided alike."""

    class Raw(LogisticRegression):
        def decision_function(self, X):
            return np.asarray(X)[:, 0]

    X = np.array([[0.0], [1.0], [4.0], [6.0]])
    y = np.array([0, 0, 1, 1])
    model = GroupThresholds(Raw()).fit(X, y, sensitive=[0] * 4)
    np.testing.assert_array_equal(model.thresholds_[0], [2.5])
