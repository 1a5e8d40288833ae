"""Huber regression over blocks: coefficients and scale of all rows, and their gap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import certus
from certus.certificate import Status
from certus.linear_model import HuberRegressor
from certus.objectives import terms as t
from certus.scale import blocks
from certus.verify import block_huber, block_sums
from certus.verify.recomputed import RecomputedBlocks
from certus.verify.stated_linear import Statement


def table(n: int = 1400) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, 4)) * [1, 3, 0.1, 1] + [0, 2, 5, 0]
    y = X @ [1.0, 0.2, 3.0, 0.0] + rng.normal(size=n) + 3.0
    y[: n // 10] += 40 * rng.normal(size=n // 10) + 30
    return X, y, rng.integers(0, 3, n).astype(float)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighed", [True, False])
@pytest.mark.parametrize("epsilon", [1.1, 1.35, 4.0])
def test_blocks_give_the_optimum_of_all_rows(
    intercept: bool, weighed: bool, epsilon: float
) -> None:
    X, y, s = table()
    s = s if weighed else None
    model = HuberRegressor(epsilon=epsilon, tol=1e-10, fit_intercept=intercept)
    whole = HuberRegressor(epsilon=epsilon, tol=1e-10, fit_intercept=intercept)
    whole.fit(X, y, sample_weight=s)
    model.fit(blocks(X, y, sample_weight=s, rows=170))
    size = np.abs(whole.coef_).max()
    assert np.allclose(model.coef_, whole.coef_, rtol=1e-7, atol=1e-8 * size)
    assert np.isclose(model.intercept_, whole.intercept_, rtol=1e-8)
    assert np.isclose(model.scale_, whole.scale_, rtol=1e-8)
    assert np.array_equal(model.outliers_, whole.outliers_)
    assert model.certificate_.met and certus.certify(model, X, y, s).met
    here, there = whole.certificate_, model.certificate_
    assert here["outliers"].value == there["outliers"].value


@pytest.mark.parametrize("size", [1e-9, 1e6])
def test_the_unit_of_the_target_does_not_matter(size: float) -> None:
    X, y, _ = table()
    one = HuberRegressor(alpha=1e-3, tol=1e-9).fit(blocks(X, y, rows=200))
    # The penalty is alpha times a square, where all else is linear in the unit.
    other = HuberRegressor(alpha=1e-3 / size, tol=1e-9)
    other.fit(blocks(X, y * size, rows=200))
    assert np.allclose(other.coef_ / size, one.coef_, rtol=1e-6, atol=1e-9)
    assert np.isclose(other.scale_ / size, one.scale_, rtol=1e-6)
    assert other.certificate_.met


def test_sorted_rows_start_elsewhere_and_end_alike() -> None:
    X, y, _ = table()
    order = np.argsort(y)
    model = HuberRegressor(tol=1e-9).fit(blocks(X[order], y[order], rows=60))
    whole = HuberRegressor(tol=1e-10).fit(X, y)
    assert model.certificate_.met
    assert np.allclose(model.coef_, whole.coef_, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["coef_", "intercept_", "scale_"])
def test_a_changed_model_is_found_by_a_bound_above_that_of_all_rows(name: str) -> None:
    """In memory further dual points are searched, so that the bound is smaller."""
    X, y, s = table()
    rows = blocks(X, y, sample_weight=s, rows=110)
    model = HuberRegressor(alpha=300.0).fit(rows)
    setattr(model, name, getattr(model, name) * 1.01)
    here, there = certus.certify(model, X, y, s), certus.certify(model, rows)
    assert here.met is False and there.status is Status.REFUTED
    assert there.primary == here.primary
    assert here.value is not None and there.value is not None
    assert there.value >= here.value * 0.999


def test_a_fit_that_stops_early_says_how_far_it_is() -> None:
    """The gap stated over blocks is above the true one, and not by much."""
    X, y, _ = table()
    best = HuberRegressor(tol=1e-12)
    with certus.config_context(on_uncertified="ignore"):
        best.fit(X, y)
        early = HuberRegressor(max_iter=1, tol=1e-9).fit(blocks(X, y, rows=1400))

    def objective(model: Any) -> float:
        t = (y - X @ model.coef_ - model.intercept_) / model.scale_
        c = np.minimum(np.abs(t), 1.35)
        loss = model.scale_ * (1 + np.mean(c * (2 * np.abs(t) - c)))
        return float(loss + 1e-4 / len(y) * model.coef_ @ model.coef_)

    true = objective(early) - objective(best)
    assert early.certificate_.met is False and early.certificate_.value is not None
    scale = early.certificate_.value
    assert true / objective(early) <= scale


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("rows", [50, 333])
def test_the_best_constant_is_bounded_from_below(free: bool, rows: int) -> None:
    X, y, s = table()
    stated = Statement(t.Huber(1.35), t.L2(1.0), intercept="free" if free else "none")
    order = np.argsort(y)  # the first block is no sample of the rows
    given = blocks(X[order], y[order], sample_weight=s[order], rows=rows)
    none: Any = np.zeros(0)
    asked = block_sums.StatedRows(
        stated, none, none, np.zeros((4, 1)), np.zeros(1), np.zeros(4), free
    )
    found = block_huber.best_constant(given, RecomputedBlocks(), asked, 1.35)

    def objective(at: Any) -> float:
        sigma = np.exp(at[0])
        u = np.abs(y - (at[1] if free else 0.0)) / sigma
        c = np.minimum(u, 1.35)
        return float(sigma * (1 + s @ (c * (2 * u - c)) / s.sum()))

    best = minimize(objective, [1.0, np.median(y)], method="Nelder-Mead").fun
    assert 0.97 * best <= found <= best * (1 + 1e-9)


def test_the_bits_do_not_depend_on_threads() -> None:
    X, y, _ = table()
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = HuberRegressor().fit(blocks(X, y, rows=90))
        value = np.array([model.scale_, model.certificate_.value])
        found.append(model.coef_.tobytes() + value.tobytes())
    assert found[0] == found[1]


def test_a_warm_start_goes_on_from_the_last_fit() -> None:
    X, y, _ = table()
    rows = blocks(X, y, rows=350)  # too few blocks to start from some of them
    model = HuberRegressor(warm_start=True, tol=1e-8).fit(rows)
    first = model.n_iter_
    assert model.fit(rows).n_iter_ < first


def test_what_needs_all_rows_is_refused() -> None:
    X, y, _ = table()
    with pytest.raises(NotImplementedError, match="alpha=0"):
        HuberRegressor(alpha=0.0).fit(blocks(X, y))
    with pytest.raises(NotImplementedError, match="epsilon=1"):
        HuberRegressor(epsilon=1.0).fit(blocks(X, y))
    with pytest.raises(NotImplementedError, match="constant target"):
        HuberRegressor().fit(blocks(X, np.ones(len(y))))
    exact = X @ [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(NotImplementedError, match="the scale vanishes"):
        HuberRegressor(alpha=1e-9).fit(blocks(X, exact, rows=300))
