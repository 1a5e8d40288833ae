"""What holds for all models also holds for trees: intervals, sets, watching, groups."""

from __future__ import annotations

import numpy as np
import pytest

from certus import ensemble
from certus.fairness import independence
from certus.monitoring import watch
from certus.tables import TablePipeline

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2400, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * RNG.normal(size=2400)
KINDS = np.array(["low", "mid", "top"])[np.digitize(Y, [-0.5, 0.5])]
FIT, CAL, NEW = slice(0, 800), slice(800, 1400), slice(1400, None)
NUMBERS = {
    "boosting": ensemble.HistGradientBoostingRegressor(max_iter=20),
    "forest": ensemble.RandomForestRegressor(10, random_state=0),
    "extra": ensemble.ExtraTreesRegressor(10, random_state=0),
}
LABELS = {
    "boosting": ensemble.HistGradientBoostingClassifier(max_iter=10),
    "forest": ensemble.RandomForestClassifier(10, random_state=0),
    "extra": ensemble.ExtraTreesClassifier(10, random_state=0),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_intervals_of_trees_cover_new_rows(name):
    model = NUMBERS[name].fit(X[FIT], Y[FIT]).calibrate(X[CAL], Y[CAL])
    low, high = model.predict_interval(X[NEW], coverage=0.9).T
    assert 0.86 < np.mean((low <= Y[NEW]) & (Y[NEW] <= high)) < 0.94


@pytest.mark.parametrize("name", LABELS)
def test_sets_of_trees_hold_the_labels_of_new_rows(name):
    model = LABELS[name].fit(X[FIT], KINDS[FIT]).calibrate(X[CAL], KINDS[CAL])
    sets = model.predict_set(X[NEW], coverage=0.9)
    codes = np.searchsorted(model.classes_, KINDS[NEW])
    held = np.mean(sets[np.arange(len(codes)), codes])
    assert 0.86 < held < 0.96


def test_trees_are_watched():
    model = TablePipeline(estimator=NUMBERS["boosting"]).fit(X[FIT], Y[FIT])
    model.calibrate(X[CAL], Y[CAL])
    assert not watch(model, X[NEW], Y[NEW]).moved
    later = X[NEW] + [0.0, 2.0, 0.0]
    found = watch(model, later, Y[NEW] + 2 * X[NEW, 2])
    assert len(found.moved) == 1
    assert "1" in found.moved[0].name
    worse = watch(model, X[NEW], Y[NEW] + 3, ordered=True)
    assert worse.coverage.alarm is not None


def test_trees_are_judged_by_group():
    group = np.where(X[:, 0] > 0, "a", "b")
    yes = (Y > 0).astype(int)
    model = LABELS["boosting"].fit(X[FIT], yes[FIT])
    chosen = model.predict(X[NEW])
    table = independence(chosen, group[NEW])
    for each in ("a", "b"):
        rate = np.mean(chosen[group[NEW] == each])
        assert table["selection_rate"][each] == pytest.approx(rate)
    assert table.gap("selection_rate").low > 0.1
    assert (
        independence(chosen, RNG.permutation(group[NEW])).gap("selection_rate").low == 0
    )
