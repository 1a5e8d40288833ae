"""How often a table of groups is wrong, against how often it says it may be.

Draws from known rates; a table fails if any of its cells or gaps misses the truth. The
same intervals at half their width or less must be found out.
"""

from __future__ import annotations

import numpy as np
import pytest

from certus.fairness import calibration, independence, recovery, separation

DELTA = 0.2  # failures must be seen to be counted
REPEATS = 400


def most(repeats: int) -> int:
    """Failures that a promise of DELTA exceeds with probability below 1e-3."""
    from scipy.stats import binom

    return int(binom.isf(1e-3, repeats, DELTA))


@pytest.mark.slow
@pytest.mark.catalog("FAIR-02", "FAIR-03")
def test_all_cells_and_gaps_of_decisions_hold_together() -> None:
    rng = np.random.default_rng(0)
    t, f = np.array([0.7, 0.6, 0.9]), np.array([0.2, 0.25, 0.05])
    failures = halved = 0
    for _ in range(REPEATS):
        a, y = rng.integers(0, 3, 150), rng.integers(0, 2, 150)
        d = (rng.random(150) < np.where(y == 1, t[a], f[a])).astype(int)
        table = separation(y, d, a, delta=DELTA)
        true = np.array([t, f])
        out = (true < table.low) | (true > table.high)
        for gap, row in zip(table.gaps, true):
            wide = row.max() - row.min()
            held = gap.low <= wide <= gap.high
            held &= gap.ratio_low <= row.min() / row.max() <= gap.ratio_high
            assert held or out.any()  # gaps fail only with cells
        failures += out.any()
        half = (table.high - table.low) / 4
        halved += (np.abs(table.values - true) > half).any()
    assert failures <= most(REPEATS) and halved > most(REPEATS)


@pytest.mark.slow
@pytest.mark.catalog("FAIR-01", "FAIR-02")
def test_distances_and_means_of_scores_hold_together() -> None:
    rng = np.random.default_rng(1)
    # Uniform on [0, 1] and its square: distance 1/4, means 1/2 and 1/3.
    failures = halved = 0
    for _ in range(REPEATS):
        a = rng.integers(0, 2, 100)
        u = rng.random(100)
        table = independence(np.where(a == 1, u**2, u), a, delta=DELTA)
        gap = table.gap("score_distribution")
        mean = table.values[1] - [0.5, 1 / 3]
        reach = (table.high[1] - table.low[1]) / 2
        failures += not gap.low <= 0.25 <= gap.high or (np.abs(mean) > reach).any()
        part = 0.25 * (gap.high - gap.difference)
        halved += abs(gap.difference - 0.25) > part
    assert failures <= most(REPEATS) and halved > most(REPEATS)


@pytest.mark.slow
@pytest.mark.catalog("FAIR-05")
def test_errors_of_calibration_hold_together() -> None:
    rng = np.random.default_rng(2)
    failures = halved = 0
    shift = np.array([0.0, 0.15])
    for _ in range(REPEATS):
        a, r = rng.integers(0, 2, 400), 0.1 + 0.7 * rng.random(400)
        y = (rng.random(400) < r + shift[a]).astype(int)
        table = calibration(y, r, a, bins=[0, 0.25, 0.5, 0.75, 1], delta=DELTA)
        out = (table.low > shift) | (table.high < shift)
        failures += out.any()
        middle, half = table.values, (table.high - table.low) / 4
        halved += (np.abs(middle - shift) > half)[1:].any()
    assert failures <= most(REPEATS) and halved > 0


@pytest.mark.slow
@pytest.mark.catalog("FAIR-07")
def test_recovery_holds_for_the_models_it_judged() -> None:
    """The area of each fold's model is known exactly when one column decides it."""
    from scipy.special import ndtr

    rng = np.random.default_rng(3)
    failures = 0
    for seed in range(100):
        member = rng.integers(0, 2, 120)
        x = rng.normal(size=(120, 1)) + member[:, None]
        found = recovery(x, member, delta=DELTA, random_state=seed)
        # Every model ranks by x, as its slope is positive.
        truth = float(ndtr(1 / np.sqrt(2)))
        failures += not (found.auc_low[1] <= truth <= found.auc_high[1])
    assert failures <= most(100)
