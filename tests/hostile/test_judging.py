"""The judge of attacks: nothing leaves the ball or the box, whoever made it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from certus.robust import PGD, DeepFool, OneStep, Search, ThreatModel, Worst, attack
from certus.robust.judging import allowed
from certus.robust.target import Labelled, Target

X, Y = load_iris(return_X_y=True)
MODEL = LogisticRegression(max_iter=1000).fit(X, Y)
THREAT = ThreatModel("l2", 0.3, low=0.0)


class Returns:
    """An attack that returns what it is told to."""

    def __init__(self, make):
        self.make = make

    def run(self, target, X, y, threat, rng):
        """Anything."""
        return self.make(np.array(X))


@pytest.mark.catalog("ADV-02")
@pytest.mark.parametrize("p", [1, 2, 2.5, math.inf])
def test_at_radius_zero_the_accuracy_is_the_models_own(p):
    for method in ("one-step", "pgd", "deepfool", "search", "boundary"):
        found = attack(MODEL, X, Y, ThreatModel(p, 0.0), method)
        assert found.accuracy == MODEL.score(X, Y)
        np.testing.assert_array_equal(found.X_hat, X)
        assert found.queries == found.gradients == 0


@settings(max_examples=150, deadline=None)
@given(
    p=st.sampled_from([1, 1.5, 2, 3, math.inf]),
    kind=st.sampled_from(["f2", "f4", "f8"]),
    radius=st.floats(1e-6, 1e6),
    exponent=st.integers(-9, 9),
    seed=st.integers(0, 10**6),
    box=st.booleans(),
)
def test_what_is_allowed_needs_no_slack(p, kind, radius, exponent, seed, box):
    """Exactly inside in float64, for rows of every precision."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, (5, 6)).astype(kind)
    low, high = (-1.0, 1.0) if box else (-math.inf, math.inf)
    threat = ThreatModel(p, radius, low, high)
    wild = rows + rng.standard_normal(rows.shape) * 10.0**exponent
    found = allowed(wild, rows, threat)
    assert found.dtype == rows.dtype
    assert np.isfinite(found).all()
    D = found.astype(float) - rows.astype(float)
    assert (np.linalg.norm(D, p, axis=1) <= radius).all()
    assert ((found >= low) & (found <= high)).all()


@pytest.mark.parametrize("p", [1, 2, 3, math.inf])
def test_pulling_back_costs_next_to_nothing(p):
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 1, (200, 8))
    threat = ThreatModel(p, 0.1)
    for kind, close in ((np.float64, 1e-9), (np.float32, 1e-4)):
        found = allowed(
            rows + rng.standard_normal(rows.shape), rows.astype(kind), threat
        )
        sizes = np.linalg.norm(found.astype(float) - rows.astype(kind), p, axis=1)
        assert sizes.min() > 0.1 * (1 - close)


@pytest.mark.parametrize(
    "make",
    [
        lambda X: X + 100.0,
        lambda X: -X,
        lambda X: np.full_like(X, np.nan),
        lambda X: np.full_like(X, np.inf),
        lambda X: np.where(np.arange(4) == 2, -np.inf, X + 1e300),
        lambda X: np.zeros(X.shape, dtype=int),
        lambda X: X.astype(np.float32),
        lambda X: (X + 5).tolist(),
    ],
)
def test_rows_from_outside_are_judged_where_they_may_be(make):
    found = attack(MODEL, X, Y, THREAT, Returns(make))
    sizes = np.linalg.norm(found.X_hat - X, axis=1)
    assert (sizes <= 0.3).all()
    assert (found.X_hat >= 0).all()
    wrong = MODEL.predict(found.X_hat) != Y
    np.testing.assert_array_equal(wrong, found.fooled | ~found.right)
    np.testing.assert_array_equal(found.distances, sizes)
    best = attack(MODEL, X, Y, THREAT, Worst())
    assert found.accuracy >= best.accuracy
    np.testing.assert_array_equal(MODEL.predict(found.X_hat), found.predicted)


@pytest.mark.parametrize(
    "make",
    [
        lambda X: None,
        lambda X: X[:-1],
        lambda X: X[:1],
        lambda X: X.T,
        lambda X: 0.0,
        lambda X: "rows",
        lambda X: [[1.0, 2.0], [3.0]],
        lambda X: X + 1j,
    ],
)
def test_what_is_no_array_of_rows_is_refused(make):
    with pytest.raises(ValueError, match="the attack must return changed rows"):
        attack(MODEL, X, Y, THREAT, Returns(make))


def test_an_attack_cannot_change_the_rows_themselves():
    kept = X.copy()

    class Spoils:
        def run(self, target, X, y, threat, rng):
            X += 1000
            y[:] = 0
            return X

    found = attack(MODEL, X, Y, THREAT, Spoils())
    np.testing.assert_array_equal(X, kept)
    assert (np.linalg.norm(found.X_hat - X, axis=1) <= 0.3).all()
    assert found.right.mean() == MODEL.score(X, Y)


def test_rows_of_whole_numbers_and_single_precision():
    whole = np.round(X * 10).astype(np.uint8)
    model = LogisticRegression(max_iter=5000).fit(whole, Y)
    found = attack(model, whole, Y, ThreatModel("linf", 3, 0, 255))
    assert found.X_hat.dtype == np.float64
    assert 0 < np.abs(found.X_hat - whole).max() <= 3
    single = attack(MODEL, X.astype(np.float32), Y, THREAT)
    assert single.X_hat.dtype == np.float32
    assert abs(single.accuracy - attack(MODEL, X, Y, THREAT).accuracy) < 0.02
    half = attack(MODEL, X.astype(np.float16), Y, THREAT)
    assert half.X_hat.dtype == np.float16


def test_more_rows_than_go_together():
    rng = np.random.default_rng(1)
    many = np.repeat(X, 12, axis=0) + rng.normal(0, 0.01, (1800, 4))
    y = np.repeat(Y, 12)
    assert len(many) > 3 * Target.together
    found = attack(MODEL, many, y, THREAT, Worst())
    parts = [
        attack(MODEL, many[i : i + 100], y[i : i + 100], THREAT, Worst()).fooled
        for i in range(0, len(many), 100)
    ]
    np.testing.assert_array_equal(found.fooled, np.concatenate(parts))


def test_true_classes_that_the_model_does_not_know():
    """Such rows are wrong already, and are left alone."""
    y = Y.copy()
    y[:7] = 99
    found = attack(MODEL, X, y, THREAT)
    assert not found.right[:7].any()
    assert not found.changes[:7].any()
    everything = attack(MODEL, X, np.full(150, 99), THREAT)
    assert everything.accuracy == 0.0
    assert math.isnan(everything.success)


def test_what_cannot_be_attacked_is_said():
    tree = DecisionTreeClassifier().fit(X, Y)
    with pytest.raises(ValueError, match=r"PGD needs gradients.*method='search'"):
        attack(tree, X, Y, THREAT, "pgd")
    labels = Labelled(tree.predict, tree.classes_)
    with pytest.raises(ValueError, match=r"Search needs scores.*method='boundary'"):
        attack(labels, X, Y, THREAT, Search())
    with pytest.raises(ValueError, match="Worst needs scores W x"):
        attack(tree, X, Y, THREAT, "worst")
    with pytest.raises(ValueError, match="method must be one of auto, boundary"):
        attack(MODEL, X, Y, THREAT, "fgsm")
    for method in (PGD, 7, None):
        with pytest.raises(TypeError, match="an attack has a method run"):
            attack(MODEL, X, Y, THREAT, method)
    with pytest.raises(TypeError, match="must be a ThreatModel"):
        attack(MODEL, X, Y, 0.1)
    with pytest.raises(ValueError, match="as many rows: 150 and 149"):
        attack(MODEL, X, Y[1:], THREAT)
    spoilt = X.copy()
    spoilt[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        attack(MODEL, spoilt, Y, THREAT)
    with pytest.raises(ValueError, match="rows lie outside the box"):
        attack(MODEL, X, Y, ThreatModel("l2", 1.0, 0, 1))
    for method in ("worst", "one-step", "pgd", "search"):
        with pytest.raises(ValueError, match="the threat has no bound"):
            attack(MODEL, X, Y, ThreatModel("l2", math.inf), method)


def test_a_box_bounds_an_infinite_radius():
    threat = ThreatModel("l2", math.inf, X.min(0), X.max(0))
    for method in ("worst", "one-step", "pgd", "deepfool", "search"):
        found = attack(MODEL, X, Y, threat, method, random_state=0)
        assert found.success > 0.9, method
        assert ((found.X_hat >= X.min(0)) & (found.X_hat <= X.max(0))).all()


def test_parameters_out_of_range_are_refused():
    for make in (
        lambda: PGD(0),
        lambda: PGD(restarts=0),
        lambda: PGD(step_size=-1.0),
        lambda: PGD(loss="hinge"),
        lambda: OneStep("rivals"),
        lambda: DeepFool(steps=0),
        lambda: DeepFool(candidates=1),
        lambda: DeepFool(overshoot=-0.1),
        lambda: Search(0),
    ):
        with pytest.raises(ValueError, match="must be"):
            make()
