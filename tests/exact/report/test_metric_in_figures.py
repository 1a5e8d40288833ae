"""Importance, learning curve and penalty are those of the metric that was asked for."""

import numpy as np
import pytest
from sklearn.inspection import permutation_importance
from sklearn.model_selection import KFold, cross_val_score

import certus
from certus.linear_model import LogisticRegression, Ridge
from certus.report.predictions import calibration
from certus.report.rows import TableRows

SCORING = {"auc": "roc_auc", "mae": "neg_mean_absolute_error"}


def case(metric):
    """Rows, targets, and a model with a penalty that is far too strong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    z = 2 * X[:, 0] + 0.5 * X[:, 1]
    if metric == "auc":
        return X, (z + rng.logistic(size=300) > 0).astype(int), LogisticRegression()
    return X, z + rng.standard_t(2, size=300), Ridge(alpha=300.0)


@pytest.fixture(scope="module", params=SCORING)
def audited(request):
    X, y, model = case(request.param)
    folds = list(KFold(3, shuffle=True, random_state=0).split(X[:198]))
    model.fit(X[:198], y[:198])
    report = certus.audit(
        *(model, X[:198], y[:198]),
        X_test=X[198:],
        y_test=y[198:],
        metric=request.param,
        cv=folds,
        max_time=60,
    )
    figures = {figure.kind: figure for figure in report.figures}
    return request.param, X, y, model, folds, figures


def test_curves_are_cross_validated_values_of_the_metric(audited):
    metric, X, y, model, folds, figures = audited
    sign = 1 if metric == "auc" else -1

    def value(penalty):
        each = type(model)(**{figures["validation"].data["parameter"]: penalty})
        scores = cross_val_score(
            each, X[:198], y[:198], cv=folds, scoring=SCORING[metric]
        )
        return sign * scores.mean()

    learning, validation = figures["learning"].data, figures["validation"].data
    used = validation["used"]
    assert learning["sizes"][-1] == min(len(train) for train, _ in folds)
    assert learning["held_out"]["mean"][-1] == pytest.approx(value(used), rel=1e-3)
    means = dict(zip(validation["values"], validation["held_out"]["mean"], strict=True))
    for penalty, mean in means.items():
        assert mean == pytest.approx(value(penalty), rel=1e-3), penalty
    best = max if metric == "auc" else min
    assert validation["best"] == best(means, key=means.__getitem__)
    constant = learning["constant"]
    if metric == "auc":
        assert constant == 0.5
    else:
        away = np.abs(y[:198] - np.median(y[:198])).mean()
        assert constant == pytest.approx(away, rel=0.02)


def test_importance_is_the_change_of_the_metric(audited):
    metric, X, y, model, _, figures = audited
    found = figures["importance"].data
    theirs = permutation_importance(
        *(model, X[198:], y[198:]),
        scoring=SCORING[metric],
        n_repeats=50,
        random_state=0,
    )
    order = [int(name[1:]) for name in found["names"]]
    spread = 4 * theirs.importances_std[order] / np.sqrt(found["repeats"]) + 1e-12
    away = np.abs(np.array(found["mean"]) - theirs.importances_mean[order])
    assert (away < spread).all() and order[0] == 0
    change = "Fall of the AUC" if metric == "auc" else "Rise of the MAE"
    assert found["change"] == change and change in figures["importance"].caption


def test_the_calibration_figure_is_about_the_positive_label():
    rng = np.random.default_rng(1)
    p = rng.random(300)
    shares = np.column_stack([p, 1 - p])
    labels = np.array(["bad", "good"])
    y = np.where(rng.random(300) < p, "bad", "good")
    for positive, column in (("bad", 0), ("good", 1), (None, 1)):
        drawn = calibration(TableRows(None, y), shares, labels, "rows", positive).data
        assert drawn["label"] == f"“{labels[column]}”"
        counts = np.array(drawn["counts"])
        assert counts @ drawn["predicted"] == pytest.approx(shares[:, column].sum())
        assert counts @ drawn["observed"] == pytest.approx((y == labels[column]).sum())
    X, y = case("auc")[:2]
    model = LogisticRegression().fit(X, y)
    report = certus.audit(model, X, y, positive=0, max_time=5)
    drawn = next(f for f in report.figures if f.kind == "calibration")
    assert drawn.data["label"] == "“0”"
