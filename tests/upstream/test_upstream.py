"""The runner of scikit-learn's tests, and what these tests once found wrong.

``make test-upstream`` takes minutes; these few run always. References are brute force
or scikit-learn's own estimators.
"""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context
from sklearn import linear_model as theirs
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, cross_val_predict

from certus import linear_model as ours

HERE = Path(__file__).parent
RUN = runpy.run_path(str(HERE / "run.py"))
sys.path.insert(0, str(HERE))  # the plugin imports run.py
PLUGIN = runpy.run_path(str(HERE / "plugin.py"))
sys.path.remove(str(HERE))


def test_imports_are_replaced_and_lines_kept():
    source = (
        "import os\nfrom sklearn.linear_model import (\n    Lasso,\n    Lars,\n)\nx = 1"
    )
    changed = RUN["replace_imports"](source)
    assert changed.splitlines()[5] == "x = 1"
    found = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(changed))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert found == {("sklearn.linear_model", "Lars"), ("certus.linear_model", "Lasso")}


def test_entries_match_by_name_and_pattern():
    entry = PLUGIN["Entry"]("test_a.py::test_b[*-svd]", "private API")
    assert entry.matches("test_a.py::test_b[42-svd]")
    assert not entry.matches("test_a.py::test_b[42-qr]")
    assert not entry.matches("test_a.py::test_bc[42-svd]")
    assert PLUGIN["Entry"]("f.py::t", "deliberate").matches("f.py::t[1]")


def test_the_list_names_files_that_run_and_no_test_twice():
    entries = PLUGIN["read_list"]()
    assert {entry.name.partition("::")[0] for entry in entries} <= set(RUN["FILES"])
    assert len({entry.text for entry in entries}) == len(entries)


def test_the_page_counts_what_is_listed_against_the_first_share_only():
    outcomes = [("passed", None)] * 3 + [("skipped", "private API")]
    lines = [
        {"test": f"test_svm.py::test_{at}", "outcome": outcome, "kind": kind}
        for at, (outcome, kind) in enumerate(outcomes)
    ]
    last = RUN["as_markdown"](lines).splitlines()[-1]
    assert last.startswith("| all | 4 | 3 | 0 | 1 |")
    assert last.endswith("| 75.0 % | 100.0 % |")


@pytest.mark.parametrize("shape", [(12, 40), (40, 12), (20, 20)])
@pytest.mark.parametrize("intercept", [True, False])
def test_leave_one_out_equals_brute_force_at_tiny_alpha(shape, intercept):
    X, y = make_regression(*shape, noise=1.0, random_state=0)
    alphas = [1e-8, 1e-2, 10.0]
    cv = ours.RidgeCV(
        alphas, fit_intercept=intercept, scoring="r2", store_cv_results=True
    )
    predicted = cv.fit(X, y).cv_results_
    for a, alpha in enumerate(alphas):
        ridge = theirs.Ridge(alpha, fit_intercept=intercept, solver="svd")
        expected = cross_val_predict(ridge, X, y, cv=LeaveOneOut())
        np.testing.assert_allclose(predicted[:, a], expected, rtol=1e-5)


def test_weights_reach_the_scorer_of_ridge_cv():
    X, y = make_regression(30, 5, noise=20.0, random_state=1)
    weight = np.random.default_rng(0).uniform(0.1, 3, 30)
    options = {"alphas": [0.1, 1.0, 10.0], "scoring": "neg_mean_absolute_error"}
    mine = ours.RidgeCV(**options).fit(X, y, weight)
    reference = theirs.RidgeCV(**options).fit(X, y, weight)
    assert mine.alpha_ == reference.alpha_
    assert mine.best_score_ == pytest.approx(reference.best_score_, rel=1e-9)


def test_equal_weights_choose_as_no_weights_do():
    rng = np.random.RandomState(0)
    X = rng.rand(10, 5)
    y = X.sum(axis=1) + rng.rand(10)
    model = ours.ElasticNetCV(fit_intercept=False, cv=3)  # folds of 4, 3 and 3 rows
    plain = clone(model).fit(X, y)
    weighted = clone(model).fit(X, y, np.full(10, 2.0))
    assert weighted.alpha_ == pytest.approx(plain.alpha_)


@pytest.mark.parametrize("name", ["Ridge", "RidgeCV", "ElasticNet", "Lasso"])
def test_one_target_column_gives_flat_coefficients(name):
    X, y = make_regression(30, 4, random_state=0)
    model, reference = (getattr(m, name)().fit(X, y[:, None]) for m in (ours, theirs))
    assert model.coef_.shape == reference.coef_.shape
    assert np.shape(model.intercept_) == np.shape(reference.intercept_)
    assert model.predict(X).shape == reference.predict(X).shape


@pytest.mark.parametrize("C", [0.1, np.inf])
def test_softmax_is_symmetric_over_classes(C):
    rng = np.random.RandomState(0)
    X, y = rng.randn(200, 3), rng.randint(0, 3, 200)
    model = ours.LogisticRegression(C=C).fit(X, y)
    assert abs(model.intercept_.sum()) < 1e-12
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0, atol=1e-12)


def test_folds_may_lack_a_class():
    rng = np.random.RandomState(0)
    X = rng.randn(30, 2)
    y = np.repeat(["a", "b", "c"], 10)
    cv = KFold(6)
    model = ours.LogisticRegressionCV(
        Cs=[0.1, 1.0], cv=cv, scoring="neg_log_loss", use_legacy_attributes=False
    ).fit(X, y)
    for f, (train, test) in enumerate(cv.split(X)):
        fold = ours.LogisticRegression(C=0.1).fit(X[train], y[train])
        loss = log_loss(y[test], fold.predict_proba(X[test]), labels=fold.classes_)
        assert model.scores_[f, 0, 0] == pytest.approx(-loss, rel=1e-3)
    assert model.score(X, y) < 0  # by its scorer, not accuracy


@pytest.mark.parametrize("model", [ours.LassoCV(), ours.LogisticRegressionCV()])
def test_groups_need_metadata_routing(model):
    rng = np.random.RandomState(0)
    X, y, groups = rng.randn(40, 3), np.tile([0, 1], 20), np.repeat(range(5), 8)
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        clone(model).fit(X, y, groups=groups)
    with config_context(enable_metadata_routing=True):
        cv = GroupKFold(5).set_split_request(groups=True)
        clone(model).set_params(cv=cv).fit(X, y, groups=groups)


def test_sparse_coefficients_predict_and_warm_start():
    rng = np.random.RandomState(0)
    X = rng.randn(60, 5)
    y = (X[:, 0] > 0).astype(int)
    model = ours.LogisticRegression(l1_ratio=1, C=0.5, warm_start=True).fit(X, y)
    expected = model.predict_proba(X)
    np.testing.assert_allclose(model.sparsify().predict_proba(X), expected)
    assert model.fit(X, y).certificate_.met
