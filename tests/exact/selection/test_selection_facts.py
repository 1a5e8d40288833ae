"""Model selection and generalisation: what is true of risks, splits and folds.

Truth is known: expectations are sums over every possible sample, or closed forms of
linear models with Gaussian rows and noise. Where a mean over repetitions stands in, the
seed is fixed and it must come within four of its standard errors.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import KFold, LeaveOneOut, cross_val_predict

from certus.bounds import bounded_mean, excess_risk, hoeffding
from certus.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeCV
from certus.selection import (
    bias_variance,
    generalisation_gap,
    make_split,
    ridge_bias_variance,
)
from certus.verify.statistical import risk_interval

SIGMA = 0.7
W = np.array([1.0, -2.0, 0.5])


def near(values: np.ndarray, expected: float) -> bool:
    """Whether a mean is within four standard errors of what is expected."""
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    return bool(abs(np.mean(values) - expected) <= 4 * error)


def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal rows, y = x·w plus noise of standard deviation σ."""
    X = rng.normal(size=(n, len(W)))
    return X, X @ W + SIGMA * rng.normal(size=n)


def true_risk(model) -> float:
    """E (y − f(x))² of a linear model in closed form: σ² + ‖ŵ − w‖² + b²."""
    return SIGMA**2 + float(np.sum((model.coef_ - W) ** 2) + model.intercept_**2)


# -- risks ----------------------------------------------------------------------------


@pytest.mark.catalog("SEL-01")
def test_the_mean_loss_on_fresh_rows_tends_to_the_true_risk():
    rng = np.random.default_rng(0)
    model = Ridge(alpha=3.0).fit(*draw(rng, 40))
    distances = []
    for n in (10**3, 10**5, 2 * 10**6):
        X, y = draw(rng, n)
        losses = (y - model.predict(X)) ** 2
        assert near(losses, true_risk(model))
        distances.append(abs(losses.mean() - true_risk(model)))
    assert distances[-1] < 2e-3 < distances[0] * 10


@pytest.mark.catalog("SEL-02")
def test_the_empirical_risk_of_a_fixed_model_is_unbiased():
    """The mean over every sample of four from a distribution on three rows."""
    X, y, chance = np.array([[0.0], [1.0], [2.0]]), [1, 0, 1], np.array([0.5, 0.3, 0.2])
    model = LogisticRegression().fit([[0.0], [0.4], [0.8], [3.0]], [0, 0, 1, 1])
    wrong = (model.predict(X) != y).astype(float)
    samples = [list(rows) for rows in product(range(3), repeat=4)]
    odds = np.array([chance[rows].prod() for rows in samples])
    found = [1 - model.score(X[rows], np.take(y, rows)) for rows in samples]
    stated = [risk_interval(wrong[rows], "classification").value for rows in samples]
    assert [odds @ found, odds @ stated] == pytest.approx([chance @ wrong] * 2)
    assert 0 < chance @ wrong < 1


@pytest.mark.catalog("SEL-03")
def test_training_error_is_optimistic_by_twice_the_share_of_parameters():
    """Fixed rows: σ²(1 − D/N) in training, σ²(1 + D/N) with new noise there."""
    rng = np.random.default_rng(1)
    n, d, repeats = 30, 6, 4000
    X, w = rng.normal(size=(n, d)), rng.normal(size=d)
    noise, fresh = SIGMA * rng.normal(size=(2, n, repeats))
    Y = (X @ w)[:, None] + noise
    model = LinearRegression(fit_intercept=False).fit(X, Y)
    Z = model.predict(X)
    train = ((Y - Z) ** 2).mean(axis=0)
    test = (((X @ w)[:, None] + fresh - Z) ** 2).mean(axis=0)
    assert near(train, SIGMA**2 * (1 - d / n)) and near(test, SIGMA**2 * (1 + d / n))
    assert near(test - train, 2 * SIGMA**2 * d / n)


@pytest.mark.catalog("SEL-04")
def test_the_error_on_the_held_out_part_is_unbiased():
    """Over repeated draws, that on the training part is not."""
    rng = np.random.default_rng(2)
    held_out, training = [], []
    for seed in range(250):
        X, y = draw(rng, 40)
        split = make_split(y, labels=False, fraction=0.25, random_state=seed)
        model = LinearRegression().fit(X[split.training], y[split.training])
        errors = (y - model.predict(X)) ** 2
        held_out.append(errors[split.sealed].mean() - true_risk(model))
        training.append(errors[split.training].mean() - true_risk(model))
    assert near(np.array(held_out), 0.0)
    assert np.mean(training) < -0.1 * SIGMA**2 and not near(np.array(training), 0.0)


@pytest.mark.catalog("SEL-04", "SEL-13")
@settings(max_examples=40)
@given(st.integers(20, 120), st.integers(2, 10), st.integers(0, 999), st.booleans())
def test_a_plan_parts_the_rows(n, folds, seed, labels):
    """Sealed and training rows, and the folds of these, are each row exactly once."""
    y = np.arange(n) % 3 if labels else np.linspace(0, 1, n)
    split = make_split(y, labels=labels, folds=folds, random_state=seed)
    together = np.concatenate([split.training, split.sealed])
    np.testing.assert_array_equal(np.sort(together), np.arange(n))
    tested = np.concatenate([test for _, test in split.folds])
    np.testing.assert_array_equal(np.sort(tested), split.training)
    for train, test in split.folds:
        assert set(train) | set(test) == set(split.training)
        assert not set(train) & set(test)


@pytest.mark.catalog("SEL-05")
def test_the_gap_of_a_fixed_model_shrinks_as_the_root_of_n():
    """E ∣L_S − L∣ of an error rate, exactly: four times the rows, half of it."""
    train, truth, errors = [0.0, 0.0, 0.0, 1.0], 0.3 - 0.25, []
    for n in (100, 400, 1600):
        k = np.flatnonzero(binom.pmf(np.arange(n + 1), n, 0.3) > 1e-12)
        gaps = [generalisation_gap(train, np.arange(n) < j).value for j in k]
        errors.append(binom.pmf(k, n, 0.3) @ np.abs(np.subtract(gaps, truth)))
    np.testing.assert_allclose(np.array(errors[1:]) / errors[:-1], 0.5, rtol=5e-3)


@pytest.mark.catalog("SEL-05")
def test_the_interval_for_the_gap_is_that_of_the_risk_moved():
    rng = np.random.default_rng(3)
    train, test = np.repeat([0.0, 1.0], [95, 5]), rng.binomial(1, 0.3, 500)
    found = generalisation_gap(train, test)
    assert found.value == pytest.approx(test.mean() - 0.05) and 0.25 in found
    risk = bounded_mean(test)
    assert (found.low, found.high) == (risk.low - 0.05, risk.high - 0.05)
    wide = generalisation_gap(3 * train, 3.0 * test, 0.05, 0, 3)
    assert wide.width == pytest.approx(3 * found.width)
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got values"):
        generalisation_gap([2.0], [0.5])


@pytest.mark.catalog("SEL-06")
def test_a_shift_of_the_rows_changes_the_risk():
    """A line fitted to a parabola on [0, 1] is good there and nowhere else.

    An interval around the mean loss of shifted rows misses the risk.
    """
    rng = np.random.default_rng(4)
    X = rng.uniform(0, 1, size=(5000, 1))
    model = LinearRegression().fit(X, X[:, 0] ** 2)

    def mean_loss(x):
        return np.minimum(np.abs(x**2 - model.predict(x[:, None])), 1.0).mean()

    risk = mean_loss(np.linspace(0, 1, 100_001))
    half = hoeffding(2000, 0.05)
    same = [mean_loss(rng.uniform(0, 1, 2000)) for _ in range(100)]
    shifted = [mean_loss(rng.uniform(1, 2, 2000)) for _ in range(100)]
    assert np.mean(np.abs(same - risk) <= half) == 1.0
    assert np.mean(np.abs(shifted - risk) <= half) == 0.0


# -- choosing -------------------------------------------------------------------------


@pytest.mark.catalog("SEL-12")
def test_the_best_penalty_is_kept_most_of_the_time():
    """Many columns and much noise, so one of three penalties is known to be best."""
    rng = np.random.default_rng(5)
    alphas, d = (1e-3, 30.0, 1e5), 25
    kept, risks = [], []
    for _ in range(60):
        w = rng.normal(size=d) / math.sqrt(d)
        X = rng.normal(size=(120, d))
        y = X @ w + rng.normal(size=120)
        models = [Ridge(a, fit_intercept=False).fit(X[:40], y[:40]) for a in alphas]
        held_out = [np.mean((y[40:] - m.predict(X[40:])) ** 2) for m in models]
        kept.append(int(np.argmin(held_out)))
        risks.append([1 + np.sum((m.coef_ - w) ** 2) for m in models])
    best = int(np.argmin(np.mean(risks, axis=0)))
    assert best == 1  # σ²/τ² with prior variance τ² = 1/d is 25
    assert np.mean(np.array(kept) == best) >= 0.9


@pytest.mark.catalog("SEL-10", "SEL-12")
def test_the_kept_model_is_nearly_the_best():
    """The excess stays below the bound in each of 200 draws of the held-out rows."""
    rng = np.random.default_rng(6)
    rates = np.linspace(0.2, 0.5, 31)
    n = 300
    kept = rng.binomial(n, rates, size=(200, 31)).argmin(axis=1)
    assert (rates[kept] - rates.min()).max() < excess_risk(n, 0.05, models=31)
    assert (rates[kept] - rates.min()).max() > 0  # and it is not always the best


# -- cross-validation -----------------------------------------------------------------


@pytest.mark.catalog("SEL-13")
@pytest.mark.parametrize("alpha", [0.0, 0.1, 10.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_leaving_one_out_of_ridge_is_a_formula(alpha, intercept):
    """Σ (eᵢ/(1 − hᵢᵢ))²/N with the hat matrix H, against N refits."""
    rng = np.random.default_rng(7)
    X, y = draw(rng, 35)
    kind = (
        Ridge(alpha, fit_intercept=intercept)
        if alpha
        else LinearRegression(fit_intercept=intercept)
    )
    refits = cross_val_predict(kind, X, y, cv=LeaveOneOut())
    A = X - intercept * X.mean(axis=0)
    H = A @ np.linalg.solve(A.T @ A + alpha * np.eye(3), A.T) + intercept / 35
    shortcut = np.mean(((y - H @ y) / (1 - np.diag(H))) ** 2)
    assert np.mean((y - refits) ** 2) == pytest.approx(shortcut, rel=1e-9)
    if alpha:
        search = RidgeCV(alphas=[alpha], fit_intercept=intercept).fit(X, y)
        assert -search.best_score_ == pytest.approx(shortcut, rel=1e-9)


@pytest.mark.catalog("SEL-13")
def test_folds_estimate_the_risk_at_their_training_size():
    """The expected risk of least squares on n normal rows is σ²(1 + d/(n − d − 1)).

    The mean over folds meets it at n(K − 1)/K, not at n.
    """
    rng = np.random.default_rng(8)
    n, d, folds = 20, 3, 2
    model = LinearRegression(fit_intercept=False)
    found = []
    for _ in range(300):
        X, y = draw(rng, n)
        errors = y - cross_val_predict(model, X, y, cv=KFold(folds))
        found.append(np.mean(errors**2))
    used = n * (folds - 1) // folds
    assert near(np.array(found), SIGMA**2 * (1 + d / (used - d - 1)))
    assert not near(np.array(found), SIGMA**2 * (1 + d / (n - d - 1)))


# -- bias and variance ----------------------------------------------------------------


def fixed_rows(n: int = 25):
    """Training rows that stay, for which ridge has closed forms; where to predict."""
    rng = np.random.default_rng(9)
    X_train, X = rng.normal(size=(n, 3)), rng.normal(size=(12, 3))

    def sample(rng):
        return X_train, X_train @ W + SIGMA * rng.normal(size=n)

    return X_train, X, sample


@pytest.mark.catalog("SEL-14")
@pytest.mark.parametrize("alpha", [0.01, 5.0, 100.0])
def test_refitting_finds_the_closed_forms_of_ridge(alpha):
    X_train, X, sample = fixed_rows()
    exact = ridge_bias_variance(X_train, W, alpha, SIGMA**2, X)
    found = bias_variance(
        Ridge(alpha, fit_intercept=False),
        sample,
        X,
        lambda X: X @ W,
        SIGMA**2,
        n_repeats=800,
        random_state=0,
    )
    assert found.noise == exact.noise == pytest.approx(SIGMA**2)
    assert abs(found.risk - exact.risk) <= 4 * found.error
    scale = exact.variance * math.sqrt(2 / 800)  # of a variance from 800 draws
    assert abs(found.variance - exact.variance) <= 4 * scale
    spread = math.sqrt(4 * exact.bias * exact.variance / 800) + scale
    assert abs(found.bias - exact.bias) <= 4 * spread
    for parts in (found, exact):
        assert parts.risk == parts.noise + parts.bias + parts.variance
        assert parts.risk >= parts.noise - 4 * parts.error  # the floor


@pytest.mark.catalog("SEL-14")
def test_the_parts_add_up_to_the_error_on_fresh_noise():
    """The left side of the identity, measured without the decomposition."""
    _, X, sample = fixed_rows()
    model = Ridge(5.0, fit_intercept=False)
    found = bias_variance(
        model, sample, X, X @ W, SIGMA**2, n_repeats=800, random_state=1
    )
    rng = np.random.default_rng(2)
    total = []
    for _ in range(800):
        y = X @ W + SIGMA * rng.normal(size=len(X))
        total.append(np.mean((y - model.fit(*sample(rng)).predict(X)) ** 2))
    error = np.std(total, ddof=1) / math.sqrt(800)
    assert abs(np.mean(total) - found.risk) <= 4 * math.hypot(error, found.error)


@pytest.mark.catalog("SEL-14")
def test_the_closed_form_by_hand_and_its_limits():
    X_train, X, _ = fixed_rows()
    A_inverse = np.linalg.inv(X_train.T @ X_train + 2.0 * np.eye(3))
    hat = X @ A_inverse @ X_train.T  # prediction = hat·y
    exact = ridge_bias_variance(X_train, W, 2.0, SIGMA**2, X)
    np.testing.assert_allclose(
        exact.pointwise["bias"], (hat @ X_train @ W - X @ W) ** 2, rtol=1e-10
    )
    np.testing.assert_allclose(
        exact.pointwise["variance"], SIGMA**2 * (hat**2).sum(axis=1), rtol=1e-10
    )
    least = ridge_bias_variance(X_train, W, 0.0, SIGMA**2, X)
    assert least.bias == 0.0 and least.variance > exact.variance
    constant = ridge_bias_variance(X_train, W, 1e12, SIGMA**2, X)
    assert constant.variance < 1e-15
    assert constant.bias == pytest.approx(np.mean((X @ W) ** 2), rel=1e-9)


@pytest.mark.catalog("SEL-14")
def test_two_refits_give_no_bias_where_there_is_none():
    """The scatter of the mean prediction, half the variance here, is taken off."""
    _, X, sample = fixed_rows()
    rng = np.random.default_rng(11)
    model = LinearRegression(fit_intercept=False)
    found = [
        bias_variance(model, sample, X, X @ W, 0.0, n_repeats=2, random_state=rng)
        for _ in range(300)
    ]
    bias = np.array([parts.bias for parts in found])
    variance = np.mean([parts.variance for parts in found])
    assert near(bias, 0.0) and not near(bias + variance / 2, 0.0)


@pytest.mark.catalog("SEL-14")
def test_a_model_without_variance_is_all_bias():
    _, X, sample = fixed_rows()
    found = bias_variance(
        DummyRegressor(strategy="constant", constant=1.0),
        sample,
        X,
        X @ W,
        np.arange(12.0),
        n_repeats=3,
    )
    assert found.variance == found.error == 0.0 and found.noise == 5.5
    assert found.bias == pytest.approx(np.mean((1 - X @ W) ** 2))


@pytest.mark.catalog("SEL-15")
def test_more_rows_or_a_penalty_control_overfitting():
    """Expected error falls with N, exactly on nested rows and by refitting."""
    rng = np.random.default_rng(10)
    rows, X = rng.normal(size=(400, 3)), rng.normal(size=(50, 3))
    sizes = (5, 10, 25, 60, 150, 400)
    exact = [ridge_bias_variance(rows[:n], W, 0.0, 1.0, X).risk for n in sizes]
    assert all(np.diff(exact) < 0) and exact[-1] < 1.02
    measured = [
        bias_variance(
            LinearRegression(),
            lambda rng, n=n: draw(rng, n),
            X,
            X @ W,
            SIGMA**2,
            n_repeats=150,
            random_state=0,
        ).risk
        for n in (8, 16, 40, 120)
    ]
    assert all(np.diff(measured) < 0) and measured[-1] > SIGMA**2
    few = [ridge_bias_variance(rows[:5], W, a, 1.0, X) for a in (0.0, 0.2, 1e4)]
    assert few[1].risk < min(few[0].risk, few[2].risk)
    assert few[0].variance > few[1].variance > few[2].variance
    assert few[0].bias < few[1].bias < few[2].bias


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_repeats": 1}, "at least 2"),
        ({"noise": -1.0}, "negative"),
        ({"noise": [1.0, 2.0]}, "one number per point"),
        ({"f": np.zeros(3)}, "one number per point"),
        ({"f": lambda X: X[:, 0] * np.nan}, "NaN"),
    ],
)
def test_nonsense_is_refused_with_a_clear_message(change, words):
    _, X, sample = fixed_rows()
    args = {"f": X @ W, "noise": 1.0} | change
    with pytest.raises(ValueError, match=words):
        bias_variance(Ridge(), sample, X, **args)


def test_dependent_columns_need_a_penalty():
    with pytest.raises(ValueError, match="alpha above zero"):
        ridge_bias_variance(np.ones((4, 2)), [1, 1], 0.0, 1.0, np.eye(2))
    with pytest.raises(ValueError, match="negative"):
        ridge_bias_variance(np.eye(2), [1, 1], -1.0, 1.0, np.eye(2))
