"""LightGBM and XGBoost, where they are installed: read, predicted and certified."""

from __future__ import annotations

import numpy as np
import pytest

import certus
from certus.ensemble import read_rows, read_trees, score_range

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 4))
X[:, 3] = RNG.integers(0, 30, 400)
Y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + (X[:, 3] % 7 == 2)
X[RNG.random(X.shape) < 0.1] = np.nan
THREE = np.digitize(Y, [-0.5, 0.8])
TARGETS = {"numbers": Y, "two": (Y > 0).astype(int), "three": THREE}


def models(library, what, **options):
    if library == "lightgbm":
        made = pytest.importorskip("lightgbm")
        options = {"n_estimators": 10, "verbose": -1, **options}
        names = made.LGBMRegressor, made.LGBMClassifier
    else:
        made = pytest.importorskip("xgboost")
        options = {"n_estimators": 10, **options}
        names = made.XGBRegressor, made.XGBClassifier
    return names[what != "numbers"](**options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("what", sorted(TARGETS))
def test_trees_are_read_and_their_leaves_proved(library, what):
    y = TARGETS[what]
    model = models(library, what).fit(X, y)
    trees = read_trees(model)
    expected = model.predict(X) if what == "numbers" else model.predict_proba(X)
    limit = 1e-12 if library == "lightgbm" else 1e-5
    found = trees.predict(read_rows(model, X))
    np.testing.assert_allclose(found, expected, rtol=limit, atol=limit)
    certificate = certus.certify(model, X, y)
    assert certificate.met and certificate["leaf_values"].met


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_constraints_are_checked_and_drawn_rows_refused(library):
    model = models(library, "numbers", monotone_constraints=(1, 0, 0, 0)).fit(X, Y)
    claim = certus.certify(model, X, Y)["monotone_trees"]
    assert claim.met and claim.strength.value == "proved"
    drawn = models(library, "numbers", subsample=0.5, subsample_freq=1)
    if library == "xgboost":
        drawn = models(library, "numbers", subsample=0.5)
    claim = certus.certify(drawn.fit(X, Y), X, Y)["leaf_values"]
    assert claim.strength.value == "refused" and "subsample" in claim.detail


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("what", ["numbers", "three"])
def test_no_row_of_a_box_leaves_the_proved_range(library, what):
    model = models(library, what, max_depth=2).fit(X, TARGETS[what])
    low, high = np.array([-0.5, -1, 0, 3]), np.array([0.5, 1, 1, 9])
    rows = RNG.uniform(low, high, (3000, 4))
    rows[RNG.random(rows.shape) < 0.3] = np.nan
    scores = read_trees(model).scores(rows)
    scores = scores[:, 0] if what == "numbers" else scores
    found = score_range(model, low, high, missing=True)
    assert np.all(found.exact)
    assert np.all(found.low <= scores.min(axis=0))
    assert np.all(scores.max(axis=0) <= found.high)
    np.testing.assert_allclose(found.most, scores.max(axis=0), atol=0.2)
    plain = score_range(model, low, high)
    assert np.all(found.low <= plain.low) and np.all(plain.high <= found.high)
