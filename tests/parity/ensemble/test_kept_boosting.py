"""Boosting by LightGBM and XGBoost as models of certus, and what is asked of them."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import certus
from certus.ensemble import BoostedTreesClassifier, BoostedTreesRegressor
from certus.explanations import explain
from certus.robustness import ThreatModel, robust_accuracy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 4))
Y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
HOLES = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
KINDS = np.array(["low", "mid", "top"])[np.digitize(Y, [-0.5, 0.8])]
TWO = np.where(Y > 0, "yes", "no")
TARGETS = {"numbers": Y, "two": TWO, "three": KINDS}
pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture(params=["lightgbm", "xgboost"])
def library(request):
    pytest.importorskip(request.param)
    return request.param


def ours(library, what, **options):
    made = BoostedTreesRegressor if what == "numbers" else BoostedTreesClassifier
    return made(library, options={"n_estimators": 10, **options}, random_state=0)


def theirs(library, what, **options):
    module = pytest.importorskip(library)
    short = {"lightgbm": "LGBM", "xgboost": "XGB"}[library]
    quiet = {"verbose": -1} if library == "lightgbm" else {}
    kind = "Regressor" if what == "numbers" else "Classifier"
    return getattr(module, short + kind)(n_estimators=10, **quiet, **options)


@pytest.mark.parametrize("what", TARGETS)
def test_a_kept_model_predicts_as_its_library_and_without_it(
    library, what, tmp_path, monkeypatch
):
    model = ours(library, what).fit(HOLES, TARGETS[what])
    assert model.certificate_.met and model.certificate_["leaf_values"].met
    codes = np.unique(TARGETS[what], return_inverse=True)[1]
    other = theirs(library, what).fit(HOLES, Y if what == "numbers" else codes)
    ask = "predict" if what == "numbers" else "predict_proba"
    expected = getattr(other, ask)(HOLES)
    limit = 1e-12 if library == "lightgbm" else 1e-5
    np.testing.assert_allclose(getattr(model, ask)(HOLES), expected, atol=limit)
    monkeypatch.setitem(sys.modules, library, None)
    certus.save(model, tmp_path / "kept.certus")
    again = certus.load(tmp_path / "kept.certus")
    np.testing.assert_array_equal(again.predict(HOLES), model.predict(HOLES))
    found = certus.certify(again, HOLES, TARGETS[what])
    assert found.met and found["leaf_values"].met and found["same_predictions"].met
    with pytest.raises(ImportError, match="is not installed"):
        again.fit(X, TARGETS[what])


def test_a_fitted_model_can_be_kept(library, tmp_path):
    fitted = theirs(library, "numbers", reg_lambda=2.0, reg_alpha=0.01).fit(X, Y)
    model = BoostedTreesRegressor.from_fitted(fitted)
    assert model.options["reg_lambda"] == 2.0
    np.testing.assert_allclose(model.predict(X), fitted.predict(X), atol=1e-5)
    assert certus.certify(model, X, Y)["leaf_values"].met
    with pytest.raises(TypeError, match="Classifier"):
        BoostedTreesClassifier.from_fitted(fitted)
    changed = model.settings_.replace(
        "[lambda_l2: 2]" if library == "lightgbm" else '"lambda":"2"',
        "[lambda_l2: 9]" if library == "lightgbm" else '"lambda":"9"',
    )
    assert changed != model.settings_
    model.settings_ = changed
    claim = certus.certify(model, X, Y)["leaf_values"]
    assert claim.strength.value == "refused" and "first stage" in claim.detail
    # A fit of certus begins where the library does, so there the fault is known.
    options = {"n_estimators": 10, "reg_lambda": 2.0}
    model = BoostedTreesRegressor(library, options=options).fit(X, Y)
    model.settings_ = changed
    assert certus.certify(model, X, Y)["leaf_values"].met is False


def test_constraints_and_weights_of_a_kept_model_are_checked(library):
    model = ours(library, "numbers", monotone_constraints=(1, 0, 0, 0)).fit(X, Y)
    assert model.certificate_["monotone_trees"].met
    weights = RNG.integers(1, 4, len(X)).astype(float)
    weighted = ours(library, "two").fit(X, TWO, weights)
    assert weighted.certificate_["leaf_values"].met
    assert certus.certify(weighted, X, TWO)["leaf_values"].met is False


@pytest.mark.parametrize("what", ["numbers", "two"])
def test_contributions_of_foreign_trees_add_up(library, what):
    codes = np.unique(TARGETS[what], return_inverse=True)[1]
    model = theirs(library, what).fit(X, Y if what == "numbers" else codes)
    found = explain(model, X[:5], X[100:130])
    assert all(claim.met for claim in found.certificate.claims)
    kept = ours(library, what).fit(X, TARGETS[what])
    same = explain(kept, X[:5], X[100:130])
    np.testing.assert_allclose(found.values, same.values, atol=1e-6)


def test_the_bracket_of_foreign_trees_holds_all_near_rows(library):
    model = theirs(library, "two", max_depth=2).fit(X, (Y > 0).astype(int))
    threat, y = ThreatModel("linf", 0.05), (Y > 0).astype(int)
    found = robust_accuracy(model, X[:30], y[:30], threat, radii=1, random_state=0)
    assert 0 < found.lower <= found.upper <= 1
    near = X[:30, None] + RNG.uniform(-0.05, 0.05, (30, 200, 4))
    same = model.predict(near.reshape(-1, 4)).reshape(30, 200) == y[:30, None]
    assert found.lower <= same.all(axis=1).mean()


def test_a_comparison_tries_boosting_of_the_installed_libraries():
    from certus.selection.candidates import list_candidates

    for library in ("lightgbm", "xgboost"):
        pytest.importorskip(library)
    for task, labels in (("regression", 0), ("classification", 2)):
        found = {
            each.name: each.model for each in list_candidates(task, 400, 4, 0, labels)
        }
        assert {"LightGBM", "XGBoost"} <= set(found)
        target = Y if task == "regression" else TWO
        model = found["LightGBM"].fit(X, target)
        assert model.certificate_.met
    one = ours("lightgbm", "numbers")
    table = certus.compare(X, Y, models=[one], folds=3)
    assert isinstance(
        table.model[-1] if hasattr(table.model, "steps") else table.model.estimator_,
        BoostedTreesRegressor,
    )
