"""Tree ensembles as arrays: the same predictions, and claims that can fail."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import sklearn.ensemble as theirs
import sklearn.tree as single

import certus
from certus import ensemble
from certus.ensemble import TreeEnsemble, read_rows, read_trees
from certus.verify.trees import _outward


def table(n=300, holes=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    X[:, 3] = rng.integers(0, 40, n)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 2 * (X[:, 3] % 7 == 2)
    if holes:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X, y + 0.1 * rng.normal(size=n)


X, Y = table()
THREE = np.digitize(Y, [-0.5, 0.8])
TWO = (Y > 0).astype(int)

MODELS = [
    (theirs.HistGradientBoostingRegressor(max_iter=8, categorical_features=[3]), Y),
    (theirs.HistGradientBoostingRegressor(max_iter=8, loss="poisson"), np.exp(Y)),
    (
        theirs.HistGradientBoostingClassifier(max_iter=5, categorical_features=[3]),
        THREE,
    ),
    (theirs.HistGradientBoostingClassifier(max_iter=8), TWO),
    (theirs.RandomForestClassifier(8, random_state=0), THREE),
    (theirs.ExtraTreesRegressor(8, random_state=0), Y),
    (single.DecisionTreeRegressor(random_state=0), Y),
]


@pytest.mark.parametrize(("model", "y"), MODELS, ids=lambda each: type(each).__name__)
def test_arrays_predict_what_the_library_predicts(model, y):
    model.fit(X, y)
    trees = read_trees(model)
    expected = (
        model.predict_proba(X) if hasattr(model, "classes_") else model.predict(X)
    )
    np.testing.assert_allclose(trees.predict(read_rows(model, X)), expected, rtol=1e-12)
    found = certus.certify(model, X, y)
    assert found["same_predictions"].met and found.met


def test_gradient_boosting_with_a_constant_start():
    rows = np.nan_to_num(X)
    for y in (THREE, TWO):
        model = theirs.GradientBoostingClassifier(n_estimators=5).fit(rows, y)
        np.testing.assert_allclose(
            read_trees(model).predict(rows), model.predict_proba(rows), rtol=1e-12
        )


def test_walks_agree_at_thresholds_and_at_codes_outside_of_the_sets():
    model = theirs.HistGradientBoostingRegressor(max_iter=8, categorical_features=[3])
    trees = read_trees(model.fit(X, Y))
    rows = np.tile(read_rows(model, X)[:1], (60, 1))
    cuts = trees.threshold[(trees.feature == 0) & (trees.category < 0)][:20]
    rows[: len(cuts), 0] = cuts
    rows[20 : 20 + len(cuts), 0] = np.nextafter(cuts, np.inf)
    rows[40:46, 3] = [-1.0, 39.0, 41.0, 255.0, 256.0, 1e9]
    leaves = trees.apply(rows)
    for row, found in zip(rows, leaves, strict=True):  # by the definition, one by one
        for root, leaf in zip(trees.roots, found, strict=True):
            node = root
            while trees.feature[node] >= 0:
                x = row[trees.feature[node]]
                if np.isnan(x):
                    left = trees.missing_left[node]
                elif trees.category[node] < 0:
                    left = x <= trees.threshold[node]
                elif x < 0 or x >= 32 * trees.bits.shape[1]:
                    left = trees.other_left[node]
                else:
                    word = int(trees.bits[trees.category[node], int(x) // 32])
                    left = word >> (int(x) % 32) & 1
                node = trees.left[node] if left else trees.right[node]
            assert node == leaf


def test_stages_add_up():
    model = theirs.HistGradientBoostingClassifier(max_iter=6).fit(X, THREE)
    trees = read_trees(model)
    parts = trees.stages(0, 2).scores(X) + trees.stages(2, 6).scores(X)
    np.testing.assert_allclose(parts - trees.baseline, trees.scores(X), atol=1e-12)


def test_arrays_that_are_not_trees_are_refused():
    told = read_trees(single.DecisionTreeRegressor().fit(X, Y)).as_dict()
    circle = told["left"].copy()
    circle[0] = 0
    with pytest.raises(ValueError, match="a child is out of place"):
        TreeEnsemble(**{**told, "left": circle})
    with pytest.raises(ValueError, match="beyond"):
        TreeEnsemble(**{**told, "n_features": 1})
    with pytest.raises(TypeError, match="cannot read a Ridge"):
        read_trees(certus.linear_model.Ridge())


# -- our estimators -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "y", "options"),
    [
        ("HistGradientBoostingRegressor", Y, {"max_iter": 8}),
        ("HistGradientBoostingRegressor", np.exp(Y), {"max_iter": 5, "loss": "gamma"}),
        ("HistGradientBoostingClassifier", THREE, {"max_iter": 5}),
        (
            "HistGradientBoostingClassifier",
            TWO,
            {"max_iter": 8, "class_weight": "balanced", "early_stopping": True},
        ),
        ("ExtraTreesClassifier", THREE, {"n_estimators": 5, "min_samples_leaf": 5}),
        ("ExtraTreesRegressor", Y, {"n_estimators": 5, "min_samples_leaf": 5}),
    ],
)
def test_our_fit_is_that_of_scikit_learn_and_its_leaves_are_proved(
    name, y, options, tmp_path
):
    options["random_state"] = 0
    s = np.random.default_rng(1).integers(1, 4, len(y))
    ours = getattr(ensemble, name)(**options).fit(X, y, sample_weight=s)
    other = getattr(theirs, name)(**options).fit(X, y, sample_weight=s)
    np.testing.assert_array_equal(ours.predict(X), other.predict(X))
    certificate = ours.certificate_
    assert certificate.met and certificate["leaf_values"].met
    assert certificate["leaf_values"].value < 1e-6
    ours.save(tmp_path / "model.certus")
    again = certus.load(tmp_path / "model.certus")
    np.testing.assert_array_equal(again.predict(X), ours.predict(X))
    assert certus.certify(again, X, y, s).met
    # Other weights have other leaves.
    assert certus.certify(ours, X, y)["leaf_values"].met is False


def test_categories_of_a_data_frame_are_kept(tmp_path):
    frame = pd.DataFrame(np.nan_to_num(X), columns=list("abcd"))
    frame["d"] = pd.Categorical([f"kind {v:.0f}" for v in frame["d"]])
    model = ensemble.HistGradientBoostingRegressor(max_iter=10).fit(frame, Y)
    other = theirs.HistGradientBoostingRegressor(max_iter=10).fit(frame, Y)
    np.testing.assert_array_equal(model.predict(frame), other.predict(frame))
    assert model.certificate_.met and len(model.levels_[3]) == 40
    model.save(tmp_path / "model.certus")
    again = certus.load(tmp_path / "model.certus")
    np.testing.assert_array_equal(again.predict(frame), other.predict(frame))


def test_rows_drawn_at_random_are_refused_by_name():
    found = certus.certify(theirs.RandomForestRegressor(5).fit(X, Y), X, Y)
    assert found["leaf_values"].strength.value == "refused"
    assert "bootstrap" in found["leaf_values"].detail
    stopped = theirs.HistGradientBoostingRegressor(early_stopping=True, max_iter=5)
    claim = certus.certify(stopped.fit(X, Y), X, Y)["leaf_values"]
    assert "early stopping held out rows" in claim.detail
    for y, kind in ((Y, "Regressor"), (Y > 0, "Classifier")):
        made = getattr(theirs, f"HistGradientBoosting{kind}")
        stopped = made(early_stopping=True, max_iter=5, random_state=3).fit(X, y)
        assert certus.certify(stopped, X, y)["leaf_values"].met
        stopped.random_state = 4  # not the seed of the fit
        claim = certus.certify(stopped, X, y)["leaf_values"]
        assert claim.strength.value == "refused"


def test_no_score_leaves_the_proved_range():
    model = ensemble.HistGradientBoostingRegressor(max_iter=20).fit(X, Y)
    detail = model.certificate_["output_range"].detail
    low, high = (float(v) for v in detail.partition("between ")[2].split(" and "))
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(5000, 4)) * 3
    rows[:, 3] = rng.integers(-3, 60, len(rows))
    found = model.trees_.scores(rows)
    assert low <= found.min() and found.max() <= high


def test_the_digits_of_a_proved_range_make_it_no_smaller():
    rng = np.random.default_rng(0)
    for value in rng.normal(size=2000) * 10.0 ** rng.integers(-12, 14, size=2000):
        low, high = (
            Fraction(_outward(value, way).replace(",", ""))
            for way in (ROUND_FLOOR, ROUND_CEILING)
        )
        assert low <= Fraction(float(value)) <= high
        assert high - low <= abs(Fraction(float(value))) / 900  # four digits
    assert _outward(0.0, ROUND_FLOOR) == _outward(0.0, ROUND_CEILING) == "0"
    assert _outward(-15_654_321.2, ROUND_FLOOR) == "-15,660,000"
