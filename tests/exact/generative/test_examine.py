"""Synthetic rows examined: votes, exact p-values, bands and intervals against truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import binomtest, ks_2samp
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

from certus.certificate import Strength
from certus.generative import examine
from certus.verify import sample_laws, samples


def mixed(rng: np.random.Generator, n: int) -> pl.DataFrame:
    """Whole numbers, labels, gaps, and a column with an atom at zero."""
    a, sex = rng.normal(size=n), np.where(rng.random(n) < 0.4, "F", "M")
    pay = np.where(rng.random(n) < 0.2, 0.0, np.exp(a + 0.3 * rng.normal(size=n)))
    return pl.DataFrame(
        {
            "age": np.round(40 + 10 * a + 5 * (sex == "F")).astype(int),
            "sex": sex,
            "town": rng.choice(list("abcdefg"), n),
            "pay": pay,
            "score": [None if u < 0.1 else float(v) for u, v in rng.random((n, 2))],
        }
    )


def test_each_synthetic_row_votes_for_its_nearest_rows() -> None:
    rng = np.random.default_rng(0)
    pool = rng.integers(0, 3, (60, 2)).astype(float)  # many ties
    made = rng.integers(0, 3, (40, 2)).astype(float)
    votes, near = samples.votes_of(pool, made, 50)
    far = cdist(made, pool)
    wanted = np.zeros(50)
    for row in far[:, :50]:
        nearest = np.isclose(row, row.min())
        wanted += nearest / nearest.sum()
    assert np.allclose(votes, wanted) and votes.sum() == pytest.approx(40)
    assert np.allclose(near, far.min(axis=0) ** 2, atol=1e-9)


def test_p_values_are_those_of_all_exchanges() -> None:
    votes = np.array([3.0, 0.5, 0.0, 2.0, 1.5, 0.0, 1.0, 0.0])
    trained = np.array([1, 1, 0, 1, 0, 0, 0, 0], dtype=bool)
    sums = np.array([votes[list(s)].sum() for s in itertools.combinations(range(8), 3)])
    own = votes[trained].sum()
    found = samples.exchange(votes, trained, 0.05, np.random.default_rng(0))
    assert found.share == pytest.approx(own / 8) and found.expected == 3 / 8
    assert abs(found.above - np.mean(sums >= own)) < 0.02
    assert abs(found.below - np.mean(sums <= own)) < 0.02
    # The interval covers what exchanges alone do, more often than it says.
    assert np.mean(np.abs(sums / 8 - 3 / 8) > found.half) <= 0.05


def test_the_epsilon_that_guesses_refute_is_that_of_clopper_and_pearson() -> None:
    k, right = 50, 80
    low = binomtest(right, 2 * k, alternative="greater").proportion_ci(0.95).low
    found = samples.epsilon_floor(right, k, 0.5, 0.05)
    assert found == pytest.approx(math.log(low / (1 - low)), abs=1e-6)
    assert samples.epsilon_floor(52, k, 0.5, 0.05) == 0.0
    # A heavier coin explains right guesses of "training row", but not of the other.
    assert samples.epsilon_floor(right, k, 0.7, 0.05) > 0


def test_distances_are_those_of_scipy_and_bands_hold_their_order() -> None:
    rng = np.random.default_rng(1)
    real, hold, made = mixed(rng, 500), mixed(rng, 300), mixed(rng, 400)
    made = made.with_columns(pl.col("age") + 6)
    found = examine(real, hold, made, target="age", random_state=0)
    distances = {column.name: column for column in found.columns}
    assert distances["age"].value == pytest.approx(
        ks_2samp(hold["age"], made["age"]).statistic
    )
    p, q = (
        part["town"].value_counts(normalize=True).sort("town")["proportion"].to_numpy()
        for part in (hold, made)
    )
    assert distances["town"].value == pytest.approx(np.abs(p - q).sum() / 2)
    for each in (*found.columns, *found.pairs):
        assert 0 <= each.low <= each.value <= each.high <= 1
    assert distances["age"].low > 0 and len(found.pairs) == 10
    assert found["columns_agree"].value == max(c.high for c in found.columns)
    assert found.shapes == pytest.approx(
        1 - np.mean([column.value for column in found.columns])
    )


def test_the_share_of_recognised_fakes_has_its_exact_bound() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random(200) ** 0.5, rng.random(200)
    claim, auc = sample_laws.told_apart_claim(a, b, 0.05)
    right = int((a > 0.5).sum() + (b <= 0.5).sum())
    low = binomtest(right, 400, alternative="greater").proportion_ci(0.95).low
    assert claim.value == pytest.approx(2 * low - 1, abs=1e-8)
    assert auc == pytest.approx(roc_auc_score(np.repeat([1, 0], 200), np.r_[a, b]))


def test_columns_far_apart_are_distinguished() -> None:
    X = load_breast_cancer().data
    X = X[np.random.default_rng(0).permutation(len(X))]
    found = examine(X[:200], X[200:400], X[400:] * 3, random_state=0)
    assert found["told_apart"].value > 0.5  # the truth is nearly one
    assert found["columns_agree"].value > 0.5
    assert found["useful"].strength is Strength.REFUSED


def test_copies_and_honest_rows_of_real_data() -> None:
    X = load_breast_cancer().data
    X = X[np.random.default_rng(0).permutation(len(X))]
    real, hold, fresh = X[:230], X[230:460], X[460:]
    honest = examine(real, hold, fresh, random_state=0)
    assert not honest.flagged and honest.copies == 0 and honest.p_value > 0.01
    copied = examine(real, hold, real[:100] * (1 + 1e-9), random_state=0)
    assert copied.copies == 0 and copied.flagged  # nearly equal is near enough
    assert copied["memorised"].met is False and copied.excess_low > 0.05
    assert copied.membership_low > 0.5


def test_usefulness_is_what_a_model_of_the_rows_loses() -> None:
    rng = np.random.default_rng(3)

    def table(n: int, slope: float) -> pl.DataFrame:
        x = rng.normal(size=n)
        return pl.DataFrame({"x": x, "y": slope * x + 0.1 * rng.normal(size=n)})

    real, hold = table(400, 1.0), table(400, 1.0)
    good = examine(real, hold, table(400, 1.0), target="y", random_state=0)
    bad = examine(real, hold, table(400, 0.0), target="y", random_state=0)
    assert good.synthetic_score > 0.9 and abs(good["useful"].value) < 0.12
    assert bad.synthetic_score < 0.2 and bad.real_score > 0.9
    assert bad["useful"].value > 0.1


def test_frames_arrays_and_files_are_read_alike(tmp_path: object) -> None:
    rng = np.random.default_rng(4)
    tables = [mixed(rng, n) for n in (120, 110, 90)]
    found = examine(*tables, random_state=5)
    paths = [f"{tmp_path}/{i}.csv" for i in range(3)]
    for table, path in zip(tables, paths):
        table.write_csv(path)
    assert examine(*paths, random_state=5).to_dict() == found.to_dict()
    frames = [pd.DataFrame(table.to_dict(as_series=False)) for table in tables]
    assert examine(*frames, random_state=5).nearest_share == found.nearest_share
    numbers = [table.select("age", "pay").to_numpy() for table in tables]
    named = [pl.DataFrame(part, schema=["x0", "x1"]) for part in numbers]
    again = [examine(*parts, random_state=5).to_dict() for parts in (numbers, named)]
    assert again[0] == again[1]


def test_p_values_under_the_null_are_not_too_small() -> None:
    """Rows of all three tables are drawn alike, with many ties."""
    rng, found = np.random.default_rng(6), []
    for seed in range(120):
        parts = [rng.integers(0, 6, (n, 3)).astype(float) for n in (60, 60, 60)]
        columns = samples.read_columns(
            {str(j): tuple(p[:, j] for p in parts) for j in range(3)}
        )
        near = samples.nearness(columns, seed=seed)
        found.append((near.memorised.above, near.copy_p))
    for p in np.array(found).T:
        # 120 draws at level 0.1: 22 or more have probability 0.3 %.
        assert np.sum(p <= 0.1) < 22 and np.sum(p <= 0.5) < 78


def test_a_bound_for_epsilon_needs_random_choices() -> None:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(600, 3))
    inside = rng.random(600) < 0.5
    parts = X[inside], X[~inside], X[inside]
    split = examine(*parts, random_state=0)["epsilon_floor"]
    coins = examine(*parts, coin=0.5, random_state=0)["epsilon_floor"]
    assert split.strength is Strength.MEASURED and split.value is None
    assert coins.strength is Strength.STATISTICAL
    # 60 of 60 guesses are right: p ≥ 0.05^(1/60).
    p = 0.05 ** (1 / 60)
    assert coins.value == pytest.approx(math.log(p / (1 - p)), abs=1e-3)


def test_words_that_no_vocabulary_can_hold_are_refused() -> None:
    X = np.random.default_rng(8).normal(size=(90, 2))
    found = examine(X[:30], X[30:60], X[60:], random_state=0)
    for name in ("indistinguishable", "anonymous"):
        claim = found[name]
        assert claim.strength is Strength.REFUSED and name in claim.detail and claim.fix
