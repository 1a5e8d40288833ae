"""Robust and quantile regression: known optima, bounds that hold, invariances.

References are linear programmes, brute force over vertices and general minimisers; the
bounds are tested as inequalities at arbitrary points, not at solutions alone.
"""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import certus
from certus.certificate import Status, Strength
from certus.linear_model import (
    HuberRegressor,
    LinearRegression,
    QuantileRegressor,
    RobustRegressor,
)
from certus.objectives import terms as t
from certus.verify.kernel.moved import measure_moved
from helpers.judging import problem

Array = np.ndarray


def data(
    seed: int = 0, n: int = 80, d: int = 3, outliers: float = 0.0
) -> tuple[Array, Array, Array]:
    """A noisy linear target, a share of it moved far away, and the true slopes."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, d)), rng.normal(size=d)
    y = X @ w + 1.0 + 0.3 * rng.normal(size=n)
    far = rng.choice(n, int(outliers * n), replace=False)
    y[far] += 50 + 20 * np.abs(rng.normal(size=len(far))) + 10 * X[far, 0]
    return X, y, w


# -- absolute errors ----------------------------------------------------------------


@pytest.mark.catalog("LOSS-02")
@pytest.mark.parametrize("n", [1, 2, 5, 8, 101])
def test_the_constant_of_least_absolute_error_is_the_median(n: int) -> None:
    rng = np.random.default_rng(n)
    y = rng.exponential(size=n)
    model = RobustRegressor("absolute").fit(np.zeros((n, 1)), y)
    assert np.abs(y - model.intercept_).sum() == pytest.approx(
        np.abs(y - np.median(y)).sum(), rel=1e-9, abs=1e-9
    )
    assert model.certificate_.met


@pytest.mark.catalog("LOSS-02")
def test_one_outlier_moves_least_squares_and_not_least_absolute_errors() -> None:
    X, y, _ = data()
    fits = {}
    for far in (1e3, 1e6, 1e9):
        moved = y.copy()
        moved[7] = far
        fits[far] = (
            RobustRegressor("absolute").fit(X, moved).coef_,
            LinearRegression().fit(X, moved).coef_,
        )
    absolute, squared = zip(*fits.values())
    np.testing.assert_allclose(absolute[1], absolute[0], rtol=1e-6)
    np.testing.assert_allclose(absolute[2], absolute[0], rtol=1e-6)
    assert np.linalg.norm(squared[2]) > 1e5 * np.linalg.norm(squared[0]) / 10
    plain = RobustRegressor("absolute").fit(X, y).coef_
    assert np.linalg.norm(absolute[2] - plain) < 0.2


@pytest.mark.parametrize("seed", range(5))
def test_least_absolute_errors_pass_through_as_many_rows_as_coefficients(
    seed: int,
) -> None:
    X, y, _ = data(seed, n=9, d=1)
    best = np.inf
    for pair in combinations(range(9), 2):
        A = np.column_stack([X[list(pair), 0], np.ones(2)])
        w, b = np.linalg.solve(A, y[list(pair)])
        best = min(best, np.abs(y - w * X[:, 0] - b).sum())
    model = RobustRegressor("absolute").fit(X, y)
    e = y - model.predict(X)
    assert np.abs(e).sum() == pytest.approx(best, rel=1e-9)
    assert np.sum(np.abs(e) < 1e-9) >= 2


# -- fixed thresholds ---------------------------------------------------------------


@pytest.mark.catalog("REG-26")
@pytest.mark.parametrize("loss", ["absolute", "huber", "tukey"])
def test_gross_outliers_do_a_tenth_of_the_harm(loss: str) -> None:
    X, y, w = data(5, n=400, d=4, outliers=0.2)
    squared = LinearRegression().fit(X, y)
    robust = RobustRegressor(loss).fit(X, y)
    harm = np.linalg.norm(squared.coef_ - w)
    assert np.linalg.norm(robust.coef_ - w) <= 0.1 * harm


@pytest.mark.catalog("LOSS-04")
def test_a_gross_outlier_has_no_influence_on_tukey() -> None:
    X, y, _ = data(6)
    kept = np.arange(len(y)) != 7
    without = RobustRegressor("tukey", tol=1e-10).fit(X[kept], y[kept])
    for far in (1e3, 1e9):
        moved = y.copy()
        moved[7] = far
        model = RobustRegressor("tukey", tol=1e-10).fit(X, moved)
        np.testing.assert_allclose(model.coef_, without.coef_, rtol=1e-7)
        assert model.weights_[7] == 0.0
        assert (
            "1 of 80 rows have no influence"
            in model.certificate_["stationarity"].detail
        )


def test_tukey_is_measured_and_its_curvature_reported() -> None:
    X, y, _ = data(7, outliers=0.1)
    model = RobustRegressor("tukey").fit(X, y)
    claim = model.certificate_["stationarity"]
    assert claim.strength is Strength.MEASURED and claim.met is None
    assert model.certificate_.status is Status.UNDECIDED and claim.value <= 1e-6
    full = certus.certify(model, X, y, level="full")
    assert full["curvature"].value > 0
    # A point half-way up the hill: the gradient vanishes nowhere near.
    model.coef_ = model.coef_ + 1.0
    assert certus.certify(model, X, y)["stationarity"].value > 1e-3


def test_a_perfect_fit_is_stationary() -> None:
    X, _, w = data(7)
    for loss in ("absolute", "huber", "tukey"):
        model = RobustRegressor(loss).fit(X, X @ w + 3.0)
        proved = Status.UNDECIDED if loss == "tukey" else Status.SOLVED
        assert model.certificate_.status is proved, model.certificate_
        assert model.certificate_.value <= 1e-6
        np.testing.assert_allclose(model.coef_, w, rtol=1e-8)


def test_huber_tends_to_least_squares_and_to_absolute_errors() -> None:
    X, y, _ = data(8, outliers=0.1)
    wide = RobustRegressor("huber", threshold=1e6).fit(X, y)
    np.testing.assert_allclose(
        wide.coef_, LinearRegression().fit(X, y).coef_, rtol=1e-8
    )
    narrow = RobustRegressor("huber", threshold=1e-7, max_iter=500).fit(X, y)
    absolute = RobustRegressor("absolute").fit(X, y)
    assert narrow.certificate_.met
    np.testing.assert_allclose(narrow.coef_, absolute.coef_, atol=1e-5)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 30),
    d=st.integers(1, 5),
    delta=st.sampled_from([1e-3, 0.3, 1.35, 20.0]),
    alpha=st.sampled_from([0.0, 1e-6, 0.1, 10.0]),
)
@settings(max_examples=60, deadline=None)
def test_huber_against_a_general_minimiser(
    seed: int, n: int, d: int, delta: float, alpha: float
) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), 3 * rng.standard_t(2, size=n)
    model = RobustRegressor("huber", threshold=delta, alpha=alpha).fit(X, y)

    def objective(v: Array) -> float:
        e = np.abs(y - X @ v[:-1] - v[-1])
        loss = np.where(e <= delta, e * e / 2, delta * (e - delta / 2))
        return float(loss.mean() + alpha * v[:-1] @ v[:-1] / 2)

    found = objective(np.append(model.coef_, model.intercept_))
    other = minimize(objective, np.append(model.coef_, model.intercept_), method="BFGS")
    constant = min(objective(np.append(np.zeros(d), b)) for b in np.sort(y))
    assert found <= other.fun + 2e-6 * constant + 1e-12
    assert model.certificate_.met, model.certificate_


# -- the backward gap ---------------------------------------------------------------


@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["absolute", "huber"]))
@settings(max_examples=30, deadline=None)
def test_backward_gap_bounds_the_distance_on_the_changed_data(
    seed: int, kind: str
) -> None:
    """Away from the solution too: some X + E within the share is within the value."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(15, 2)), rng.normal(size=15)
    s = rng.uniform(0.5, 2, 15)
    loss: Any = t.Absolute() if kind == "absolute" else t.Huber(0.5)
    w, b = rng.normal(size=2), 0.1
    found = measure_moved(problem(loss, t.NoPenalty(), X, y, w, b, s), None)
    u = found.u
    E = -np.outer(u, (s * u) @ X) / ((s * u) @ u)
    centred = X - s @ X / s.sum()
    shares = np.sqrt(s @ np.square(E)) / np.sqrt(s @ np.square(centred))
    assert shares.max() == pytest.approx(found.share)

    def objective(v: Array) -> float:
        e = np.abs(y - (X + E) @ v[:-1] - v[-1])
        if kind == "huber":
            e = np.where(e <= 0.5, e * e / 2, 0.5 * (e - 0.25))
        return float(s @ e / s.sum())

    here = objective(np.append(w, b))
    best = min(
        minimize(objective, start, method="Nelder-Mead", options={"maxiter": 2000}).fun
        for start in (np.append(w, b), np.zeros(3))
    )
    assert found.computed + found.bound >= here - best - 1e-9


def test_an_unpenalised_fit_is_proved_and_a_changed_one_refuted() -> None:
    X, y, _ = data(9)
    for model in (
        QuantileRegressor(alpha=0, quantile=0.7),
        RobustRegressor("absolute"),
        RobustRegressor("huber"),
        HuberRegressor(alpha=0),
    ):
        model.fit(X, y)
        claim = model.certificate_["backward_gap"]
        assert claim.strength is Strength.PROVED and claim.met
        model.coef_ = model.coef_ + 0.01
        again = certus.certify(model, X, y)
        assert again.status is Status.REFUTED and again.value > 1e-4


# -- invariances --------------------------------------------------------------------

EVERY = [
    RobustRegressor("absolute"),
    RobustRegressor("huber", alpha=0.1),
    RobustRegressor("tukey", tol=1e-9),
    HuberRegressor(tol=1e-9),
    QuantileRegressor(quantile=0.3, alpha=0.01),
]


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_shift_and_scale_of_the_target(model: Any) -> None:
    """y → c·y + a moves the fit along; delta and penalties are in their own units."""
    from sklearn.base import clone

    X, y, _ = data(14)
    plain = clone(model).fit(X, y)
    shifted = clone(model).fit(X, y + 1000.0)
    np.testing.assert_allclose(shifted.coef_, plain.coef_, atol=2e-5)
    assert shifted.intercept_ == pytest.approx(plain.intercept_ + 1000, abs=1e-4)


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_time_limits_leave_a_usable_model(model: Any) -> None:
    from sklearn.base import clone

    X, y, _ = data(15, n=5000, d=5)
    model = clone(model).set_params(max_time=0.0)
    with certus.config_context(on_uncertified="ignore"):
        model.fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert model.certificate_.status in (Status.TIME_LIMIT, Status.SOLVED)


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_history_is_kept(model: Any) -> None:
    from sklearn.base import clone

    X, y, _ = data(16)
    model = clone(model).fit(X, y)
    assert len(model.history_["gap"]) == len(model.history_["objective"]) > 0
    assert model.n_iter_ <= model.max_iter and model.solver_ and model.solver_reason_


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (RobustRegressor("cauchy"), "loss must be one of"),
        (RobustRegressor(threshold=0), "threshold"),
        (RobustRegressor(alpha=-1), "alpha"),
        (HuberRegressor(epsilon=0.9), "epsilon"),
        (HuberRegressor(max_iter=-1), "max_iter"),
        (QuantileRegressor(quantile=0), "quantile"),
        (QuantileRegressor(quantile=1), "quantile"),
        (QuantileRegressor(solver="simplex"), "solver"),
    ],
    ids=repr,
)
def test_parameters_are_checked(model: Any, match: str) -> None:
    X, y, _ = data()
    with pytest.raises(ValueError, match=match):
        model.fit(X, y)


def test_an_intercept_that_was_not_asked_for_proves_nothing() -> None:
    X, y, _ = data(17)
    for model in (
        QuantileRegressor(alpha=0.01, fit_intercept=False),
        RobustRegressor("huber", alpha=0.1, fit_intercept=False),
        HuberRegressor(fit_intercept=False),
    ):
        model.fit(X, y)
        assert model.certificate_.met
        model.intercept_ = 1.0  # lowers the objective below its minimum without one
        assert certus.certify(model, X, y).status is not Status.SOLVED
        assert certus.certify(model, X, y).met is False


@pytest.mark.parametrize("alpha", [1e-12, 1e-6, 1e6, 1e12])
def test_penalties_of_any_size(alpha: float) -> None:
    X, y, _ = data(18)
    for model in (
        QuantileRegressor(alpha=alpha),
        RobustRegressor("absolute", alpha=alpha),
        RobustRegressor("huber", alpha=alpha),
        HuberRegressor(alpha=alpha),
    ):
        assert model.fit(X, y).certificate_.met, model
    if alpha == 1e12:
        np.testing.assert_array_equal(QuantileRegressor(alpha=alpha).fit(X, y).coef_, 0)


def test_a_grid_search_in_two_processes() -> None:
    from sklearn.model_selection import GridSearchCV

    X, y, _ = data(19)
    search = GridSearchCV(QuantileRegressor(), {"alpha": [0.0, 0.01]}, n_jobs=2, cv=3)
    assert search.fit(X, y).best_estimator_.certificate_.met
    assert certus.certify(search, X, y).met
