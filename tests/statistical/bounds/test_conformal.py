"""Conformal coverage, repeated until its probability can be seen.

Each repetition draws calibration rows and one new row, so that misses are independent
and, for scores that do not tie, have probability exactly 1 − k/(n + 1). The number of
repetitions is such that twice the promised probability would be rejected with power
0.95; each test has a companion that fails with intervals of half the width.
"""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.base import is_classifier

from certus import kernel_ridge, linear_model, neighbors, svm
from certus.bounds import conformal_quantile, conformal_rank, coverage_floor

COVERAGE, DELTA = 0.9, 0.05
FALSE_ALARM = 1e-4
MODELS = [
    linear_model.Ridge(),
    linear_model.HuberRegressor(),
    kernel_ridge.KernelRidge(kernel="rbf"),
    neighbors.KNeighborsRegressor(),
    linear_model.LogisticRegression(),
    svm.LinearSVC(C=0.1),
    svm.SVC(),
    neighbors.KNeighborsClassifier(15),
]


def name(model: Any) -> str:
    return type(model).__name__


def design(chance: float) -> tuple[int, int]:
    """Fewest repetitions, and most failures allowed, that tell chance from 2·chance."""
    for n in range(50, 5000, 10):
        most = int(stats.binom.isf(FALSE_ALARM, n, chance))
        if stats.binom.sf(most, n, 2 * chance) >= 0.95:
            return n, most
    raise AssertionError


def draw(rng: np.random.Generator, n: int, labels: bool) -> tuple[Any, Any]:
    """Rows whose noise grows along the first column: no interval fits all alike."""
    X = rng.normal(size=(n, 2))
    z = X @ [1.5, -1.0] + np.exp(0.5 * X[:, 0]) * rng.standard_t(3, size=n)
    return X, (np.digitize(z, [-1.0, 1.0]) if labels else z)


def misses(model: Any, repetitions: int, n: int, **options: Any) -> int:
    rng = np.random.default_rng(3)
    labels = is_classifier(model)
    model.fit(*draw(rng, 150, labels))
    count = 0
    for _ in range(repetitions):
        X, y = draw(rng, n + 1, labels)
        model.calibrate(X[:-1], y[:-1])
        if labels:
            inside = model.predict_set(X[-1:], COVERAGE, **options)[0]
            count += not inside[model.classes_ == y[-1]].all()
        else:
            low, high = model.predict_interval(X[-1:], COVERAGE, **options)[0]
            count += not low <= y[-1] <= high
    return count


@pytest.mark.parametrize("n", [29, 60])
@pytest.mark.parametrize("model", MODELS, ids=name)
def test_new_rows_are_covered(model: Any, n: int) -> None:
    repetitions, most = design(1 - COVERAGE)
    found = misses(model, repetitions, n)
    assert found <= most
    exact = 1 - conformal_rank(n, COVERAGE) / (n + 1)
    if not isinstance(model, neighbors.KNeighborsClassifier):  # its scores tie
        assert found >= stats.binom.ppf(FALSE_ALARM, repetitions, exact)


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_halving_the_width_is_noticed(model: Any, monkeypatch: Any) -> None:
    halve(monkeypatch)
    repetitions, most = design(1 - COVERAGE)
    assert misses(model, repetitions, 60) > most


def halve(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "certus.conformal.conformal_quantile",
        lambda *arguments: conformal_quantile(*arguments) / 2,
    )


def failures(repetitions: int, n: int, promise: float, **options: Any) -> int:
    """How often the coverage given the calibration rows is below the promise.

    Rows and noise are normal, so the residual of a new row is normal too, and the
    coverage of an interval of known width follows without drawing a single one.
    """
    rng = np.random.default_rng(5)
    w = np.array([1.0, -2.0])

    def normal(size: int) -> tuple[Any, Any]:
        X = rng.normal(size=(size, 2))
        return X, X @ w + rng.normal(size=size)

    model = linear_model.Ridge().fit(*normal(40))
    residual = stats.norm(
        model.intercept_, np.hypot(1, np.linalg.norm(model.coef_ - w))
    )
    count = 0
    for _ in range(repetitions):
        low, high = model.calibrate(*normal(n)).predict_interval(
            np.zeros((1, 2)), COVERAGE, **options
        )[0]
        q = (high - low) / 2
        count += residual.cdf(q) - residual.cdf(-q) < promise
    return count


def test_coverage_given_the_calibration_rows() -> None:
    """With delta the promise holds for the rows at hand, but for delta of the draws."""
    repetitions, most = design(DELTA)
    assert failures(repetitions, 100, COVERAGE, delta=DELTA) <= most
    # Without it about half of the draws are below, as Beta(k, n + 1 − k) says.
    k = conformal_rank(100, COVERAGE)
    chance = stats.beta.cdf(COVERAGE, k, 101 - k)
    low, high = stats.binom.interval(1 - FALSE_ALARM, repetitions, chance)
    assert most < low <= failures(repetitions, 100, COVERAGE) <= high


def test_the_floor_of_the_certificate() -> None:
    repetitions, most = design(DELTA)
    floor = coverage_floor(100, COVERAGE, DELTA)
    found = failures(repetitions, 100, floor)
    assert stats.binom.ppf(FALSE_ALARM, repetitions, DELTA) <= found <= most


@pytest.mark.parametrize("delta", [None, DELTA])
def test_half_the_width_given_the_rows_is_noticed(delta: Any, monkeypatch: Any) -> None:
    halve(monkeypatch)
    repetitions, most = design(DELTA)
    promise = coverage_floor(100, COVERAGE, DELTA) if delta is None else COVERAGE
    assert failures(repetitions, 100, promise, delta=delta) > most


def test_drift_makes_the_coverage_too_small() -> None:
    """Why exchangeability is stated as an assumption: later rows that moved away."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2))
    y = X @ [1.0, 1.0] + rng.normal(size=900) + 0.004 * np.arange(900)
    model = linear_model.Ridge().fit(X[:300], y[:300]).calibrate(X[300:600], y[300:600])
    low, high = model.predict_interval(X[600:]).T
    assert ((low <= y[600:]) & (y[600:] <= high)).mean() < 0.75
