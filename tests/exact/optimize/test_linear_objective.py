"""Training by the mean of any loss of a score: slopes, constants, and what it finds."""

import numpy as np
import pytest

from certus.linear_model import HuberRegressor, LogisticRegression, Ridge
from certus.objectives import (
    L2,
    EpsilonInsensitive,
    ExponentialMargin,
    Hinge,
    Huber,
    Logistic,
    ModifiedHuber,
    Softmax,
    Squared,
    SquaredHinge,
    Tukey,
)
from certus.optimize import (
    InverseSqrt,
    gradient_descent,
    linear_objective,
    logistic_objective,
    newton_method,
    stochastic_gradient_descent,
    subgradient_descent,
)
from certus.svm import LinearSVC
from certus.verify import check

LAMBDA, C = 0.7, 0.3
MARGINS = {
    "hinge": (Hinge(), lambda m: np.maximum(0, 1 - m)),
    "perceptron": (Hinge(0.0), lambda m: np.maximum(0, -m)),
    "logistic": (Logistic(), lambda m: np.log1p(np.exp(-m))),
    "squared": (Squared(), lambda m: (1 - m) ** 2 / 2),
    "squared hinge": (SquaredHinge(), lambda m: np.maximum(0, 1 - m) ** 2),
    "exponential": (ExponentialMargin(), lambda m: np.exp(-m)),
}


@pytest.fixture
def clouds():
    """Two classes that overlap, labelled ±1."""
    rng = np.random.default_rng(0)
    y = np.repeat([-1.0, 1.0], 30)
    return rng.normal(size=(60, 3)) + 0.7 * y[:, None], y


def penalised(X, y, loss):
    """λ/2·‖w‖² + C·Σ ℓ, divided by C·n."""
    return linear_objective(X, y, loss, LAMBDA / (C * len(y)))


@pytest.mark.catalog("CLS-42")
@pytest.mark.parametrize("name", MARGINS)
def test_value_and_gradient_of_a_regularised_margin_loss(clouds, name):
    X, y = clouds
    loss, formula = MARGINS[name]
    f = penalised(X, y, loss)

    def known(w):
        return (LAMBDA / 2 * w @ w + C * formula(y * (X @ w)).sum()) / (C * len(y))

    for w in np.random.default_rng(1).normal(size=(10, 3)):
        value, slope = f.evaluate(w)
        assert value == pytest.approx(known(w), rel=1e-12)
        ends = [[known(w + s * d) for s in (1e-6, -1e-6)] for d in np.eye(3)]
        steps = [(up - down) / 2e-6 for up, down in ends]
        np.testing.assert_allclose(slope, steps, rtol=1e-6, atol=1e-8)
        rows = np.array([3, 50])  # a batch is the mean over its rows
        part = formula(y[rows] * (X[rows] @ w)).mean() + f.m / 2 * w @ w
        assert f.evaluate(w, rows)[0] == pytest.approx(part, rel=1e-12)


@pytest.mark.catalog("CLS-42")
@pytest.mark.parametrize("name", ["logistic", "squared", "squared hinge"])
def test_descent_trains_what_the_estimators_solve(clouds, name):
    X, y = clouds
    loss, _ = MARGINS[name]
    level = LAMBDA / (C * len(y))
    record = gradient_descent(penalised(X, y, loss), np.zeros(3))
    assert record.theorem.kind == "strongly convex" and record.holds
    assert check(record.x, None, (loss, L2(level)), X, y).met
    options = {"fit_intercept": False, "tol": 1e-12}
    model = {
        "logistic": LogisticRegression(C=C / LAMBDA, **options),
        "squared": Ridge(LAMBDA / C, **options),
        "squared hinge": LinearSVC(C=C / LAMBDA, **options),
    }[name].fit(X, y)
    np.testing.assert_allclose(record.x, np.ravel(model.coef_), atol=1e-5)


@pytest.mark.catalog("CLS-42")
def test_subgradient_steps_train_a_support_vector_machine(clouds):
    X, y = clouds
    f = penalised(X, y, Hinge())
    assert f.L is None and f.hessian is None  # a kink has neither
    options = {"fit_intercept": False, "loss": "hinge", "tol": 1e-9}
    best = LinearSVC(C=C / LAMBDA, **options).fit(X, y).coef_[0]
    record = subgradient_descent(f, np.zeros(3), step=InverseSqrt(0.5), max_iter=3000)
    lowest, reached = f.evaluate(best)[0], f.evaluate(record.x)[0]
    assert lowest <= reached < lowest * 1.001
    # The perceptron's loss alone is content with w = 0: nothing is learnt.
    assert penalised(X, y, Hinge(0.0)).evaluate(np.zeros(3))[0] == 0


@pytest.mark.catalog("CLS-09")
def test_full_batch_descent_on_the_perceptron_loss(clouds):
    X, y = clouds
    X = X + 3 * y[:, None]  # far enough apart to be separated
    f = linear_objective(X, y, Hinge(0.0))
    rng = np.random.default_rng(0)
    for w in rng.normal(size=(20, 3)):
        wrong = y * (X @ w) <= 0
        value, slope = f.evaluate(w)
        assert value == pytest.approx(np.mean(-y * (X @ w) * wrong), abs=1e-12)
        np.testing.assert_allclose(slope, -(y * wrong) @ X / len(y), atol=1e-12)
        if np.abs(X @ w).min() > 1e-4:  # else too near a kink for differences
            up, down = (
                np.array([f.evaluate(w + s * d)[0] for d in np.eye(3)])
                for s in (1e-6, -1e-6)
            )
            np.testing.assert_allclose(slope, (up - down) / 2e-6, atol=1e-7)
    # A step adds the rows that are classified wrongly, times their labels.
    w = np.array([-1.0, 0.3, 0.2])
    moved = subgradient_descent(f, w, step=0.5, max_iter=1).iterates[-1]
    wrong = y * (X @ w) <= 0
    assert 0 < wrong.sum() < 60
    np.testing.assert_allclose(moved, w + 0.5 * (y * wrong) @ X / len(y))
    record, v = gradient_descent(f, w, step=0.5, max_iter=5), w
    for _ in range(5):
        v = v + 0.5 * (y * (y * (X @ v) <= 0)) @ X / len(y)
    np.testing.assert_allclose(record.x, v)
    ended = subgradient_descent(f, w, step=0.5, max_iter=5000)
    assert (y * (X @ ended.x) > 0).all()  # separated: no step is left to take


def test_constants_are_those_that_are_known(clouds):
    X, y = clouds
    known, found = (
        logistic_objective(X, y, 0.1),
        linear_objective(X, y, Logistic(), 0.1),
    )
    assert (found.L, found.m) == pytest.approx((known.L, known.m), rel=1e-12)
    assert found.L_terms == pytest.approx(known.L_terms, rel=1e-12)
    w = np.array([0.3, -0.2, 1.0])
    np.testing.assert_allclose(found.hessian(w), known.hessian(w), rtol=1e-12)
    assert newton_method(found, w).value == pytest.approx(newton_method(known, w).value)
    for loss in (Huber(0.5), ModifiedHuber(), EpsilonInsensitive(0.1)):
        assert linear_objective(X, y, loss).convex
    tukey = linear_objective(X, y, Tukey(2.0))
    assert not tukey.convex and tukey.m is None and tukey.L > 0


def test_any_loss_of_a_score_can_be_trained_in_batches(clouds):
    X, _ = clouds
    y = X @ [1.0, -2.0, 0.5] + 0.01 * np.random.default_rng(0).standard_t(1, size=60)
    f = linear_objective(X, y, Huber(1.0))
    record = stochastic_gradient_descent(
        f, np.zeros(3), step=0.1, batch_size=10, max_iter=2000, random_state=0
    )
    np.testing.assert_allclose(record.x, [1.0, -2.0, 0.5], atol=0.1)
    robust = HuberRegressor(fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(record.x, robust.coef_, atol=0.1)


def test_models_that_cannot_be_trained_are_refused(clouds):
    X, y = clouds
    with pytest.raises(ValueError, match="several scores"):
        linear_objective(X, y, Softmax(3))
    with pytest.raises(ValueError, match=r"must be|±1|-1"):
        linear_objective(X, y + 1, Hinge())
    with pytest.raises(ValueError, match="alpha"):
        linear_objective(X, y, Hinge(), -1.0)
