"""Recovering the attribute: proxies that each say little, chance, any classifier."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest
from scipy.special import ndtr
from scipy.stats import mannwhitneyu
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import NearestCentroid

from certus.fairness import recovery
from certus.fairness.recovering import area


def proxies(n: int, d: int, shift: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    member = rng.integers(0, 2, n)
    return rng.normal(size=(n, d)) + shift * member[:, None], member


@pytest.mark.catalog("FAIR-07")
def test_many_weak_columns_recover_the_attribute() -> None:
    """The best rule has area Φ(shift·√(d/2)), which tends to one; so does ours."""
    found = []
    for d in (1, 4, 16, 64, 256):
        X, member = proxies(4000, d, 0.3, d)
        best = float(ndtr(0.3 * math.sqrt(d / 2)))
        known = recovery(X, member, random_state=0)
        found.append(known.auc[1])
        assert best - 0.03 < known.auc[1] < best + 0.03
        assert known.auc_low[1] <= known.auc[1] <= known.auc_high[1]
        # No column tells more than chance adds to what each has by itself.
        assert max(value for _, value in known.columns) < 0.63
    assert found == sorted(found) and found[-1] > 0.99
    assert "can be recovered" in known.verdict


def test_chance_is_distinguished_from_recovery() -> None:
    X, _ = proxies(20_000, 3, 0.0, 0)
    member = np.random.default_rng(1).integers(0, 2, 20_000)
    found = recovery(X, member, random_state=0)
    assert abs(found.auc[0] - 0.5) < 0.03 and "can hardly recover" in found.verdict
    few = recovery(X[:40], member[:40], random_state=0)
    assert "too few rows" in few.verdict


def test_areas_are_those_of_mann_and_whitney() -> None:
    rng = np.random.default_rng(2)
    scores, positive = rng.integers(0, 5, 60), rng.integers(0, 2, 60) == 1
    u = mannwhitneyu(scores[positive], scores[~positive]).statistic
    wanted = u / (positive.sum() * (~positive).sum())
    assert area(scores, positive) == pytest.approx(wanted, abs=1e-12)


def test_the_folds_are_judged_on_rows_not_fitted_on() -> None:
    """More columns than rows fit anything; noise must stay at chance."""
    rng = np.random.default_rng(3)
    X, member = rng.normal(size=(300, 400)), rng.integers(0, 2, 300)
    found = recovery(X, member, random_state=0)
    assert abs(found.auc[0] - 0.5) < 0.15
    half = math.sqrt(math.log(2 * 3 / 0.05) / (2 * 27))
    assert found.auc_high[0] - found.auc[0] == pytest.approx(half, rel=0.2)


@pytest.mark.parametrize("model", [LogisticRegression(), RidgeClassifier()])
def test_any_classifier_with_scores_is_accepted(model) -> None:
    X, member = proxies(600, 10, 0.8, 4)
    names = np.array(["one", "two"])[member]
    found = recovery(X, names, estimator=model, random_state=0)
    assert found.groups == ("one", "two") and found.auc_low[0] > 0.6
    assert found.accuracy > found.chance
    assert not hasattr(model, "classes_")  # a copy was fitted


def test_frames_with_text_and_gaps_several_groups_and_missing_ones() -> None:
    rng = np.random.default_rng(5)
    group = rng.choice(["a", "b", "c", None], 800)
    city = np.where(group == "a", "north", rng.choice(["south", "east"], 800))
    frame = pl.DataFrame({"city": city, "pay": rng.normal(size=800)})
    frame = frame.with_columns(pl.when(frame["pay"] > 1).then(None).otherwise("pay"))
    found = recovery(frame.rename({"literal": "more"}), group, random_state=0)
    by = dict(zip(found.groups, found.auc))
    assert by["a"] > 0.99 and by[None] < 0.8
    assert found.columns[0][0] == "city=north"
    saved = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert saved["groups"] == ["a", "b", "c", None]
    assert "(missing)" in str(found) and "city=north" in str(found)


def test_attributes_that_cannot_be_recovered_are_reported() -> None:
    X, member = proxies(20, 2, 1.0, 6)
    with pytest.raises(ValueError, match="only one value"):
        recovery(X, np.zeros(20))
    with pytest.raises(ValueError, match="single row"):
        recovery(X, ["x"] + ["y"] * 19)
    with pytest.raises(ValueError, match="table with columns"):
        recovery(X[:, 0], member)
    with pytest.raises(ValueError, match="21 rows"):
        recovery(X, [0] * 21)
    with pytest.raises(ValueError, match="gives labels only"):
        recovery(X, member, estimator=_Labels())


class _Labels(NearestCentroid):
    """A classifier without scores."""

    @property
    def predict_proba(self):
        raise AttributeError

    @property
    def decision_function(self):
        raise AttributeError


def test_few_rows_of_a_group_mean_fewer_folds() -> None:
    X, _ = proxies(40, 2, 1.0, 7)
    found = recovery(X, [0] * 37 + [1] * 3, random_state=0)
    assert found.folds == 3
    again = recovery(X, [0] * 37 + [1] * 3, random_state=0)
    np.testing.assert_array_equal(found.auc, again.auc)


class Turned(LogisticRegression):
    """Scores the wrong way round."""

    def predict_proba(self, X):
        return super().predict_proba(X)[:, ::-1]


class Silent(LogisticRegression):
    """Scores nothing."""

    def predict_proba(self, X):
        return np.full((len(X), 2), np.nan)


def test_scores_the_wrong_way_round_recover_and_no_scores_do_not() -> None:
    X, member = proxies(4000, 8, 0.5, 0)
    found = recovery(X, member, estimator=Turned(), random_state=0)
    assert found.auc_high.max() < 0.5
    least = 1 - found.auc_high.min()
    assert "negated scores" in found.verdict and "hardly" not in found.verdict
    assert float(found.verdict.split()[-1]) == pytest.approx(least, abs=1e-3)
    with pytest.raises(ValueError, match="Silent hold NaN"):
        recovery(X, member, estimator=Silent())
