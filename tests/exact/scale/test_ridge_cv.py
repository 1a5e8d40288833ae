"""RidgeCV over blocks: the alpha and the score of all rows, by the same errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

import certus
from certus.certificate import Status
from certus.linear_model import Ridge, RidgeCV
from certus.scale import blocks

ALPHAS = (1e-2, 1.0, 30.0, 1e3)


def table(n: int = 700) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 6)) * [1, 2, 0.1, 1, 5, 1] + [0, 3, 0, 0, 20, 1]
    y = X @ [0.2, -0.1, 0, 0, 0.05, 0] + 2 * rng.normal(size=n) + 7
    return X, y, rng.integers(0, 3, n).astype(float)


@pytest.mark.parametrize("cv", [None, 4, KFold(3)], ids=str)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighed", [True, False])
def test_blocks_choose_as_all_rows_do(cv: Any, intercept: bool, weighed: bool) -> None:
    X, y, s = table()
    s = s if weighed else None
    model = RidgeCV(ALPHAS, cv=cv, fit_intercept=intercept)
    whole = clone(model).fit(X, y, sample_weight=s)
    model.fit(blocks(X, y, sample_weight=s, rows=90))
    assert model.alpha_ == whole.alpha_
    assert np.isclose(model.best_score_, whole.best_score_, rtol=1e-8)
    assert np.allclose(model.coef_, whole.coef_, rtol=1e-8, atol=1e-10)
    assert np.isclose(model.intercept_, whole.intercept_, rtol=1e-8)
    assert model.certificate_.met and certus.certify(model, X, y, s).met


@pytest.mark.parametrize("cv", [None, 4])
def test_each_alpha_has_the_score_of_all_rows(cv: Any) -> None:
    X, y, s = table()
    rows = blocks(X, y, sample_weight=s, rows=110)
    for alpha in ALPHAS:
        here = RidgeCV([alpha], cv=cv).fit(rows).best_score_
        there = RidgeCV([alpha], cv=cv).fit(X, y, s).best_score_
        assert np.isclose(here, there, rtol=1e-8)


def test_an_error_left_out_is_that_of_a_fit_without_the_row() -> None:
    """Scores are mean squares, so that one row far away shows in them."""
    X, y, _ = table(60)
    y[17] += 50.0
    left = []
    for i in range(60):
        rest = np.arange(60) != i
        one = Ridge(3.0).fit(X[rest], y[rest])
        left.append(float(y[i] - one.predict(X[[i]])[0]))
    model = RidgeCV([3.0]).fit(blocks(X, y, rows=13))
    assert np.isclose(-model.best_score_, np.mean(np.square(left)), rtol=1e-8)


def test_columns_that_repeat_and_a_constant_target_have_scores() -> None:
    X, y, _ = table()
    X[:, 3] = X[:, 0]
    for target in (y, np.full(len(y), 2.0)):
        model = RidgeCV([0.0, 1.0], cv=5)
        whole = clone(model).fit(X, target)
        model.fit(blocks(X, target, rows=100))
        assert model.alpha_ == whole.alpha_
        assert np.isclose(model.best_score_, whole.best_score_, rtol=1e-8)


@pytest.mark.parametrize("cv", [None, 3])
def test_the_bits_do_not_depend_on_threads(cv: Any) -> None:
    X, y, _ = table()
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = RidgeCV(ALPHAS, cv=cv).fit(blocks(X, y, rows=60))
        value = np.array([model.best_score_, model.certificate_.value])
        found.append(model.coef_.tobytes() + value.tobytes())
    assert found[0] == found[1]


def test_coefficients_that_were_changed_are_found() -> None:
    X, y, _ = table()
    rows = blocks(X, y, rows=100)
    model = RidgeCV(ALPHAS).fit(rows)
    model.alpha_ *= 3.0  # those of another strength
    here, there = certus.certify(model, X, y), certus.certify(model, rows)
    assert here.met is False and there.status is Status.REFUTED
    assert np.isclose(here.value, there.value, rtol=1e-6)


def test_what_needs_all_rows_is_refused_by_name() -> None:
    X, y, _ = table()
    rows = blocks(X, y, rows=100)
    for more in (
        {"scoring": "r2"},
        {"store_cv_results": True},
        {"cv": KFold(3, shuffle=True)},
    ):
        with pytest.raises(NotImplementedError, match=next(iter(more))):
            RidgeCV(**more).fit(rows)
    with pytest.raises(ValueError, match="from 2 to the number of rows"):
        RidgeCV(cv=1).fit(rows)
    with pytest.raises(ValueError, match="more rows than columns"):
        RidgeCV().fit(blocks(X[:5], y[:5]))
