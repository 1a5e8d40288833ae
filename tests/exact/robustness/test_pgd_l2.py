"""Projected gradient steps in the l2 ball, on models of ours."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import make_moons

from certus.linear_model import LogisticRegression
from certus.neural_network import MLPClassifier
from certus.robustness import PGD, OneStep, ThreatModel, Worst, as_target, attack

torch = pytest.importorskip("torch")

RADIUS = 0.25


@pytest.fixture(scope="module")
def moons():
    """A network, and rows that it predicts rightly."""
    X, y = make_moons(120, noise=0.15, random_state=0)
    model = MLPClassifier((16,), learning_rate_init=0.02, max_iter=500, random_state=0)
    right = model.fit(X, y).predict(X) == y
    return model, X[right], y[right]


def losses(model, X, y):
    return -np.log(model.predict_proba(X)[np.arange(len(y)), y])


def changed(model, X, y, method, radius=RADIUS):
    """The rows an attack ends with, all of them, also those that are not fooled."""
    target = as_target(model, X).lent()
    rows = target.rows(X)
    labels = torch.as_tensor(y) if torch.is_tensor(rows) else y
    found = method.run(
        target, rows, labels, ThreatModel("l2", radius), np.random.default_rng(0)
    )
    return np.asarray(found, dtype=float)


@pytest.mark.catalog("ADV-08")
def test_rows_stay_in_the_ball_and_beat_one_step(moons):
    model, X, y = moons
    X_hat = changed(model, X, y, PGD(steps=40, stop=False))
    lengths = np.linalg.norm(X_hat - X, axis=1)
    assert lengths.max() <= RADIUS * (1 + 1e-9)
    assert np.median(lengths) > 0.99 * RADIUS  # it pays to go to the edge
    one = changed(model, X, y, OneStep())
    before, first, last = (losses(model, Z, y) for Z in (X, one, X_hat))
    assert (last >= first - 1e-9).all() and last.mean() > first.mean() + 1e-3
    assert (last > before).all()
    # What is reported of the attack is what these rows do to the model.
    wrong = [(model.predict(Z) != y) for Z in (one, X_hat)]
    assert 0 < wrong[0].sum() <= wrong[1].sum()
    told = attack(model, X, y, ThreatModel("l2", RADIUS), PGD(steps=40), random_state=0)
    assert told.fooled.sum() == wrong[1].sum()


@pytest.mark.catalog("ADV-08")
def test_no_row_of_the_ball_is_much_worse(moons):
    """In two dimensions the worst row of a circle can be looked up."""
    model, X, y = moons
    X, y = X[::4], y[::4]
    found = losses(model, changed(model, X, y, PGD(steps=60, stop=False)), y)
    angles = np.linspace(0, 2 * np.pi, 3600, endpoint=False)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    close = 0
    for x, label, loss in zip(X, y, found):
        inside = np.vstack([x + r * RADIUS * circle for r in np.linspace(0, 1, 9)])
        worst = losses(model, inside, np.full(len(inside), label)).max()
        assert loss <= worst * 1.002
        close += loss >= 0.95 * worst
    assert close >= 0.8 * len(X)  # steps may end on another hill


@pytest.mark.catalog("ADV-08")
def test_turning_the_space_turns_the_attack():
    """The l2 ball has no axes: rotated rows and weights give rotated changes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = (X @ [1.0, -2.0, 0.5, 0.0] + 0.3 * rng.normal(size=60) > 0).astype(int)
    Q, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    one, two = LogisticRegression().fit(X, y), LogisticRegression().fit(X, y)
    two.coef_ = two.coef_ @ Q
    options = {"steps": 20, "stop": False}
    a = changed(one, X, y, PGD(**options)) - X
    b = changed(two, X @ Q, y, PGD(**options)) - X @ Q
    np.testing.assert_allclose(b, a @ Q, atol=1e-6)


@pytest.mark.catalog("ADV-08")
def test_on_a_linear_model_it_finds_the_worst_row():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 5))
    y = (X[:, 0] + 0.5 * rng.normal(size=80) > 0).astype(int)
    model = LogisticRegression().fit(X, y)
    right = model.predict(X) == y
    X, y = X[right], y[right]
    steps, worst = (
        changed(model, X, y, method) for method in (PGD(steps=20, stop=False), Worst())
    )
    np.testing.assert_allclose(steps, worst, atol=1e-6)
    w = model.coef_[0] / np.linalg.norm(model.coef_)
    away = X - RADIUS * np.outer(2 * y - 1, w)
    np.testing.assert_allclose(steps, away, atol=1e-6)
    # By a general method, for one row.
    x, label = X[0], y[:1]
    ball = {"type": "ineq", "fun": lambda d: RADIUS**2 - d @ d}
    worst = minimize(
        lambda d: -losses(model, (x + d)[None], label)[0],
        np.full(5, 0.01),
        constraints=ball,
    )
    found = losses(model, steps[:1], label)[0]
    assert found == pytest.approx(-worst.fun, rel=1e-5)
