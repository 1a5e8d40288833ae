"""The intervals and the test of ``watch`` keep their level, also in nasty cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import certus
from certus.bounds import conformal_p_values, miss_martingale, running_mean
from certus.linear_model import Ridge
from certus.monitoring import watch
from certus.monitoring.columns import column_moves
from certus.tables import TableEncoder, TablePipeline
from certus.tables.crossing import promised_coverage

DELTA = 0.05


def at_most(failures: int, trials: int, level: float) -> bool:
    """Whether so many failures are no surprise at that level (4 standard errors)."""
    return failures <= trials * level + 4 * np.sqrt(trials * level * (1 - level))


# ---- the any-time test ---------------------------------------------------------------

SCORES = {
    "smooth": lambda rng, n: rng.normal(size=n),
    "ties": lambda rng, n: rng.integers(0, 3, n).astype(float),
    "all equal": lambda rng, n: np.ones(n),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n),
    "infinite": lambda rng, n: np.where(rng.random(n) < 0.1, np.inf, rng.random(n)),
}


def false_alarm(law, n: int, m: int, alpha: float, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    scores = law(rng, n + m)
    p = conformal_p_values(scores[:n], scores[n:], seed)
    return bool(miss_martingale(p, alpha).max() >= np.log(1 / DELTA))


@pytest.mark.parametrize("law", SCORES)
def test_false_alarms_over_a_whole_stream_are_rare(law):
    alarms = sum(false_alarm(SCORES[law], 30, 300, 0.1, seed) for seed in range(60))
    assert at_most(alarms, 60, DELTA)


@pytest.mark.slow
@pytest.mark.parametrize("law", SCORES)
@pytest.mark.parametrize(("n", "alpha"), [(5, 0.1), (200, 0.1), (200, 0.01), (50, 0.5)])
def test_false_alarms_at_their_level(law, n, alpha):
    alarms = sum(false_alarm(SCORES[law], n, 1500, alpha, seed) for seed in range(1000))
    assert at_most(alarms, 1000, DELTA)


def test_p_values_are_uniform_and_a_late_change_is_found():
    rng = np.random.default_rng(0)
    p = conformal_p_values(
        rng.normal(size=50), np.round(rng.normal(size=4000), 1), random_state=0
    )
    assert np.abs(np.quantile(p, [0.1, 0.5, 0.9]) - [0.1, 0.5, 0.9]).max() < 0.03
    late = np.abs(rng.normal(size=4000))
    late[2000:] *= 1.6
    capital = miss_martingale(
        conformal_p_values(np.abs(rng.normal(size=200)), late, random_state=0), 0.1
    )
    alarm = int(np.flatnonzero(capital >= np.log(20))[0])
    assert 2000 < alarm < 2500


def leaves_band(m: int, seed: int) -> bool:
    """Chances that change with the past: independence is not needed."""
    rng = np.random.default_rng(seed)
    chance, held = np.empty(m), np.empty(m)
    for t in range(m):
        chance[t] = 0.95 if t == 0 or held[t - 1] else rng.choice([0.2, 0.9, 1.0])
        held[t] = rng.random() < chance[t]
    low, high = running_mean(held, DELTA)
    truth = np.cumsum(chance) / np.arange(1, m + 1)
    return bool(((truth < low) | (truth > high)).any())


def test_band_of_the_running_mean_holds_at_every_row():
    assert at_most(sum(leaves_band(300, seed) for seed in range(60)), 60, DELTA)


@pytest.mark.slow
def test_band_of_the_running_mean_at_its_level():
    assert at_most(sum(leaves_band(3000, seed) for seed in range(1000)), 1000, DELTA)


# ---- columns -------------------------------------------------------------------------


def draw(rng: np.random.Generator, n: int) -> pl.DataFrame:
    """Ties, a rare level, a level in nearly all rows, gaps, heavy tails."""
    return pl.DataFrame(
        {
            "ties": rng.integers(0, 4, n),
            "tails": rng.standard_cauchy(n),
            "gaps": np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
            "rare": rng.choice(["a", "b", "c"], n, p=[0.98, 0.015, 0.005]),
            "many": [f"l{k}" for k in rng.geometric(0.1, n)],
            "flag": rng.random(n) < 0.02,
        }
    )


def misses(n: int, m: int, seed: int) -> bool:
    """Whether any interval leaves out 0 although nothing changed."""
    rng = np.random.default_rng(seed)
    encoder = TableEncoder().fit(draw(rng, n))
    plans, cells = encoder.cells(draw(rng, m))
    return any(move.moved for move in column_moves(plans, cells, DELTA))


def test_columns_that_did_not_drift_are_not_reported():
    assert at_most(sum(misses(120, 90, seed) for seed in range(60)), 60, DELTA)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(60, 10), (40, 5000), (2000, 2000)])
def test_intervals_of_all_columns_hold_together(n, m):
    failed = sum(misses(n, m, seed) for seed in range(500))
    assert at_most(failed, 500, DELTA)


def test_intervals_hold_the_true_difference_of_shares():
    """A known move: of 30 points in one level, and of a quarter turn in a number."""
    failed = found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        old = pl.DataFrame(
            {
                "x": rng.normal(size=1000),
                "g": rng.choice(["a", "b"], 1000, p=[0.5, 0.5]),
            }
        )
        new = pl.DataFrame(
            {"x": rng.normal(size=800), "g": rng.choice(["a", "b"], 800, p=[0.8, 0.2])}
        )
        plans, cells = TableEncoder().fit(old).cells(new)
        for move in column_moves(plans, cells, DELTA):
            if move.name == "g":
                truth = 0.3 if move.what == "g = a" else -0.3
                failed += not move.low <= truth <= move.high
                found += move.moved
    assert at_most(failed, 40, DELTA) and found == 40


# ---- the whole -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(1)

    def rows(n, shift=0.0):
        X = pl.DataFrame({"a": rng.normal(shift, 1, n), "b": rng.normal(size=n)})
        return X, X["a"].to_numpy() + rng.normal(size=n)

    model = TablePipeline(estimator=Ridge()).fit(*rows(400))
    return model.calibrate(*rows(300)), rows


def test_watch_reports_what_holds_what_drifted_and_what_is_unknown(fitted):
    model, rows = fitted
    X, y = rows(600)
    fine = watch(model, X, y, ordered=True)
    assert fine.moved == () and fine.coverage.alarm is None
    assert not fine.coverage.broken and fine.coverage.odds < 20
    bad = watch(model, X, y + np.where(np.arange(600) < 200, 0.0, 4.0), ordered=True)
    assert 200 < bad.coverage.alarm < 260 and bad.coverage.broken
    assert bad.verdict == "no column moved; coverage is lost."
    blind = watch(model, rows(600, 0.8)[0])
    assert [move.name for move in blind.moved] == ["a"]
    assert blind.coverage is None and "whether errors grew" in blind.unknown[-1]
    assert "order of the rows is not known" in watch(model, X, y).unknown[0]
    with pytest.raises(TypeError, match="keeps no profile"):
        watch(Ridge().fit(X.to_numpy(), y), X)
    assert set(fine.to_frame().columns) >= {"name", "low", "high", "moved"}


def test_model_without_calibration_says_so(fitted):
    _, rows = fitted
    X, y = rows(100)
    found = watch(TablePipeline(estimator=Ridge()).fit(X, y), *rows(50))
    assert found.coverage is None
    assert "no calibration rows" in found.unknown[-1]


def test_after_a_refit_watch_promises_what_predict_promises():
    """A coverage between the promise of CV+ and the one asked for breaks nothing."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(100, 2))
    y = X[:, 0] + rng.normal(size=100)
    model = certus.compare(X, y, models=[Ridge()], refit=True).model
    promise = f"{100 * promised_coverage(model, 0.9).least:g} %"
    assert promise in model.calibration_certificate_["coverage"].detail
    fresh = rng.normal(size=(3000, 2))
    ends = model.predict_interval(fresh)
    share = 0.86
    truth = np.where(rng.random(3000) < share, ends.mean(axis=1), ends[:, 1] + 1)
    found = watch(model, fresh, truth).coverage
    assert found.promised < share < found.high < found.asked == 0.9
    assert found.holds and not found.broken and f"at least {promise}" in found.verdict
    lost = watch(model, fresh, ends[:, 1] + 1, ordered=True).coverage
    assert lost.broken and lost.refitted
    assert "by the errors of the model before its refit" in lost.verdict
    assert f"(promised: {promise})" in lost.verdict
    # Where the choice was not repeated, nothing is promised, and nothing is broken.
    evidence = model.calibration_certificate_.evidence
    witness = evidence.witness._replace(repeated=False)
    model.calibration_certificate_ = replace(
        model.calibration_certificate_, evidence=replace(evidence, witness=witness)
    )
    free = watch(model, fresh, truth).coverage
    assert free.promised is None and not free.broken and not free.holds
    assert "only measured" in free.verdict
