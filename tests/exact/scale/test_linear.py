"""Linear models over blocks: the optimum of all rows, proved by a pass of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import certus
from certus.certificate import Status
from certus.linear_model import (
    ElasticNet,
    GammaRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)
from certus.scale import blocks
from certus.svm import LinearSVC

MODELS: dict[str, tuple[Any, str]] = {
    "least squares": (LinearRegression(), "numbers"),
    "ridge": (Ridge(alpha=2.0), "numbers"),
    "lasso": (Lasso(alpha=0.1, tol=1e-10), "numbers"),
    "elastic net": (ElasticNet(alpha=0.1, tol=1e-10), "numbers"),
    "positive": (ElasticNet(alpha=0.1, positive=True, tol=1e-10), "numbers"),
    "logistic": (LogisticRegression(tol=1e-10), "labels"),
    "poisson": (PoissonRegressor(tol=1e-10), "counts"),
    "gamma": (GammaRegressor(tol=1e-10), "amounts"),
    "squared hinge": (LinearSVC(tol=1e-10), "labels"),
    "wide intercept": (LinearSVC(tol=1e-10, intercept_scaling=5.0), "labels"),
}


def table(kind: str, n: int = 1200) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 4)) * [1, 3, 0.1, 1] + [0, 2, 5, 0]
    z = (X - X.mean(axis=0)) @ [1.0, 0.2, 3.0, 0.0] + rng.normal(size=n)
    s = rng.integers(0, 3, n).astype(float)
    counts = rng.poisson(np.exp(np.clip(0.3 * z, -3, 3))).astype(float)
    targets = {"counts": counts, "amounts": counts + 0.5, "numbers": z + 3.0}
    return X, targets.get(kind, np.where(z > 0.3, "in", "out")), s


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("intercept", [True, False])
def test_blocks_give_the_optimum_of_all_rows(name: str, intercept: bool) -> None:
    model, kind = MODELS[name]
    X, y, s = table(kind)
    model = clone(model).set_params(fit_intercept=intercept)
    whole = clone(model).fit(X, y, sample_weight=s)
    model.fit(blocks(X, y, sample_weight=s, rows=110))
    assert np.allclose(model.coef_, whole.coef_, rtol=1e-5, atol=1e-5)
    assert np.allclose(model.intercept_, whole.intercept_, rtol=1e-5, atol=1e-5)
    assert model.certificate_.met and whole.certificate_.met
    assert certus.certify(model, X, y, s).met


@pytest.mark.parametrize("name", MODELS)
def test_a_number_added_up_is_that_of_all_rows(name: str) -> None:
    """Away from the minimum, where it is far above its rounding; both refute it."""
    model, kind = MODELS[name]
    X, y, s = table(kind)
    rows = blocks(X, y, sample_weight=s, rows=110)
    model = clone(model).fit(rows)
    model.coef_ = model.coef_ * 1.01
    here, there = certus.certify(model, X, y, s), certus.certify(model, rows)
    assert here.met is False and there.status is Status.REFUTED
    assert there.primary == here.primary
    # Over blocks a penalty of the best constant itself is left out, a bound from below.
    assert np.isclose(here.value, there.value, rtol=1e-4)
    assert there.value >= here.value * (1 - 1e-6)


@pytest.mark.parametrize("name", ["lasso", "poisson", "squared hinge"])
def test_the_bits_do_not_depend_on_threads(name: str) -> None:
    model, kind = MODELS[name]
    X, y, _ = table(kind)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = clone(model).fit(blocks(X, y, rows=90))
        value = np.asarray(model.certificate_.value)
        found.append((model.coef_.tobytes(), value.tobytes()))
    assert found[0] == found[1]


def test_a_constant_column_is_left_alone() -> None:
    """Its float32 mean is not the value, so that a centred column is not zero."""
    X, y, _ = table("numbers")
    X[:, 3] = 0.1
    model = LinearRegression().fit(blocks(X, y, rows=100))
    whole = LinearRegression().fit(X, y)
    assert np.allclose(model.coef_[:3], whole.coef_[:3], rtol=1e-8)
    assert model.certificate_.met


def test_sorted_rows_start_elsewhere_and_end_alike() -> None:
    """A few blocks of sorted rows have one label only: no start can come from them."""
    X, y, _ = table("labels")
    order = np.argsort(y, kind="stable")
    model = LogisticRegression(tol=1e-10).fit(blocks(X[order], y[order], rows=60))
    whole = LogisticRegression(tol=1e-10).fit(X, y)
    assert model.certificate_.met
    assert np.allclose(model.coef_, whole.coef_, rtol=1e-5, atol=1e-6)


def test_targets_out_of_range_and_labels_are_refused() -> None:
    X, y, _ = table("numbers")
    with pytest.raises(ValueError, match="y ≥ 0"):
        PoissonRegressor().fit(blocks(X, y, rows=100))
    with pytest.raises(NotImplementedError, match="alpha=0"):
        PoissonRegressor(alpha=0.0).fit(blocks(X, np.abs(y)))
    with pytest.raises(NotImplementedError, match="3 classes"):
        LinearSVC().fit(blocks(X, np.arange(len(y)) % 3))


@pytest.mark.parametrize("intercept", [True, False])
def test_backward_errors_of_slopes_add_up(intercept: bool) -> None:
    """With the mean of the residuals at zero, so that the columns alone decide."""
    X, y, s = table("numbers")
    rows = blocks(X, y, sample_weight=s, rows=110)
    model = LinearRegression(fit_intercept=intercept).fit(rows)
    move = np.array([1e-3, 0.0, -1e-2, 0.0])
    model.coef_ = model.coef_ + move
    if intercept:
        model.intercept_ -= np.average(X, axis=0, weights=s) @ move
    here, there = certus.certify(model, X, y, s), certus.certify(model, rows)
    assert here.met is False and there.met is False
    assert np.isclose(here.value, there.value, rtol=1e-6)


@pytest.mark.parametrize("name", ["ridge", "least squares", "logistic", "poisson"])
@pytest.mark.parametrize("first", [0, 300])
def test_a_block_without_weight_changes_nothing(name: str, first: int) -> None:
    model, kind = MODELS[name]
    X, y, s = table(kind)
    s[first : first + 100] = 0.0
    kept = s > 0
    whole = clone(model).fit(X[kept], y[kept], sample_weight=s[kept])
    model = clone(model).fit(blocks(X, y, sample_weight=s, rows=100))
    assert np.allclose(model.coef_, whole.coef_, rtol=1e-5, atol=1e-5)
    assert model.certificate_.met
