"""Penalties are chosen by the metric that was asked for: compared with every fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold

from certus.config import config_context
from certus.linear_model import Lasso, LogisticRegression, Ridge
from certus.selection.candidates import (
    Tuning,
    _choose_lasso,
    _choose_logistic,
    _choose_ridge,
)
from certus.selection.metrics import find_metric

#: Those of amounts that are not least where squared errors are, and R².
METRICS = ["mae", "pinball@0.9", "r2"]


def heavy(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Few targets are far away, so that squares and absolute values disagree."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 12))
    y = X[:, :3] @ [2.0, -1.0, 1.0] + 0.3 * rng.normal(size=n)
    y[rng.integers(n, size=5)] += rng.choice([-1, 1], size=5) * 15
    return X, y


def tuning(X: Any, y: np.ndarray, metric: str, task: str, plain: bool) -> Tuning:
    inner = list(KFold(4, shuffle=True, random_state=0).split(X))
    positive = np.unique(y)[-1] if task != "regression" else None
    return Tuning(
        X, y, inner, plain, lambda: False, find_metric(metric, task), positive
    )


def loss_of(metric: str, y: np.ndarray, z: np.ndarray) -> float:
    """The metric from its formula."""
    if metric == "mae":
        return float(np.abs(y - z).mean())
    if metric == "r2":
        return float(np.square(y - z).sum() / np.square(y - y.mean()).sum() - 1)
    if metric == "pinball@0.9":
        return float(np.where(y > z, 0.9 * (y - z), 0.1 * (z - y)).mean())
    return float(np.square(y - z).mean())


def folded(make: Any, X: Any, y: np.ndarray, folds: Any, metric: str) -> float:
    losses = []
    with config_context(certify="never"):
        for train, test in folds:
            z = make().fit(X[train], y[train]).predict(X[test])
            losses.append(loss_of(metric, y[test], z))
    return float(np.mean(losses))


@pytest.mark.parametrize("metric", METRICS)
def test_ridge_leaves_one_out_by_the_metric(metric: str) -> None:
    X, y = heavy()
    chosen = _choose_ridge(Ridge(), tuning(X, y, metric, "regression", True)).model
    losses = {}
    for alpha in len(y) * np.logspace(-6, 1, 15):
        z = np.empty_like(y)
        for i in range(len(y)):
            rest = np.arange(len(y)) != i
            with config_context(certify="never"):
                fitted = Ridge(alpha=alpha).fit(X[rest], y[rest])
            z[i] = fitted.predict(X[[i]])[0]
        losses[alpha] = loss_of(metric, y, z)
    assert chosen.alpha == pytest.approx(min(losses, key=lambda alpha: losses[alpha]))


@pytest.mark.parametrize("metric", METRICS)
def test_ridge_on_folds_by_the_metric(metric: str) -> None:
    X, y = heavy()
    on = tuning(X, y, metric, "regression", False)
    losses = {
        alpha: folded(lambda a=alpha: Ridge(alpha=a), X, y, on.inner, metric)
        for alpha in len(y) * np.logspace(-6, 1, 15)
    }
    best = min(losses, key=lambda alpha: losses[alpha])
    assert _choose_ridge(Ridge(), on).model.alpha == pytest.approx(best)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("metric", METRICS)
def test_the_path_of_the_lasso_has_the_losses_of_single_fits(
    metric: str, kind: Any
) -> None:
    X, y = heavy()
    on = tuning(X, y, metric, "regression", True)
    choice = _choose_lasso(Lasso(), on._replace(Z=kind(X)))
    values = np.array([value for _, value in choice.grid])
    for params, value in choice.grid[::7]:
        made = folded(lambda p=params: Lasso(**p, tol=1e-10), X, y, on.inner, metric)
        assert on.metric.loss(value) == pytest.approx(made, abs=2e-3)
    best = np.argmin([on.metric.loss(value) for value in values])
    assert choice.model.alpha == choice.grid[best][0]["alpha"]


def test_absolute_and_squared_errors_choose_differently() -> None:
    """Else the tests above could not fail."""
    X, y = heavy()
    for choose, model in ((_choose_ridge, Ridge()), (_choose_lasso, Lasso())):
        chosen = {
            metric: choose(model, tuning(X, y, metric, "regression", True)).model.alpha
            for metric in ("rmse", "mae")
        }
        assert chosen["mae"] < chosen["rmse"]  # a few far targets ask for a penalty


@pytest.mark.parametrize("metric", ["poisson", "gamma"])
def test_deviances_leave_ridge_and_lasso_to_squares(metric: str) -> None:
    X, y = heavy()
    y = np.abs(y) + 1e-3  # a plane through these is below 0 somewhere
    for choose, model in ((_choose_ridge, Ridge()), (_choose_lasso, Lasso())):
        found, squares = (
            choose(model, tuning(X, y, name, "regression", True))
            for name in (metric, "rmse")
        )
        assert found.model.alpha == squares.model.alpha
        assert not found.grid  # errors of another metric are not shown as its values


def labels(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 15))
    y = np.where(X[:, 0] + rng.normal(size=n) > 0.8, "yes", "no")
    return X, y


@pytest.mark.parametrize("ratio", [0.0, 1.0])
@pytest.mark.parametrize("metric", ["error", "auc", "brier"])
def test_logistic_regression_chooses_by_the_metric(metric: str, ratio: float) -> None:
    X, y = labels()
    on = tuning(X, y, metric, "binary", True)
    choice = _choose_logistic(LogisticRegression(l1_ratio=ratio), on)
    losses, likely = [], []
    for params, value in choice.grid:
        found, sure = [], []
        for train, test in on.inner:
            made = LogisticRegression(l1_ratio=ratio, tol=1e-8, **params)
            with config_context(certify="never"):
                made.fit(X[train], y[train])
            p, hit = made.predict_proba(X[test])[:, 1], y[test] == "yes"
            each = {
                "error": (hit != (p > 0.5)).mean(),
                "auc": -roc_auc_score(hit, p),
                "brier": np.square(p - hit).mean(),
            }
            found.append(each[metric])
            sure.append(np.log(np.where(hit, p, 1 - p)).mean())
        losses.append(np.mean(found))
        likely.append(np.mean(sure))
        assert on.metric.loss(value) == pytest.approx(losses[-1], abs=5e-3)
    at = [params["C"] for params, _ in choice.grid].index(choice.model.C)
    assert losses[at] <= min(losses) + 5e-3  # inner fits are rough: tol 1e-3
    if metric == "error":  # equal shares of wrong labels: the likelier penalty
        equal = [k for k in range(len(losses)) if losses[k] == losses[at]]
        assert likely[at] == pytest.approx(max(likely[k] for k in equal), abs=1e-3)


def test_a_fold_without_positive_rows_does_not_decide() -> None:
    X, y = labels()
    inner = [(np.arange(60, 120), np.flatnonzero(y[:60] == "no"))]
    inner += [(np.arange(60), np.arange(60, 120))]
    on = tuning(X, y, "auc", "binary", True)._replace(inner=inner)
    choice = _choose_logistic(LogisticRegression(), on)
    assert all(np.isfinite(value) for _, value in choice.grid)
    second = _choose_logistic(LogisticRegression(), on._replace(inner=inner[1:]))
    assert choice.model.C == second.model.C
