"""Attacks that only ask: differences of scores, searches, boundaries, copies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from certus.robustness import (
    PGD,
    Boundary,
    DeepFool,
    Differences,
    Search,
    ThreatModel,
    Transfer,
    as_target,
    attack,
    finite_differences,
    robust_accuracy,
    steal,
)
from certus.robustness.target import Labelled, Scored
from certus.threat import row_norms

X, Y = load_iris(return_X_y=True)


def smooth(X):
    """A function with derivatives of all orders."""
    return np.exp(0.3 * X[:, 0]) * np.sin(X[:, 1]) + X[:, 2] ** 3


def slope(X):
    """Its gradient."""
    a, b, c = X.T
    e = np.exp(0.3 * a)
    return np.stack([0.3 * e * np.sin(b), e * np.cos(b), 3 * c**2], axis=1)


@pytest.mark.catalog("ADV-12")
def test_differences_have_the_errors_and_the_costs_they_state():
    """Half the α: half the error forward, a quarter of it both ways."""
    rows = np.random.default_rng(0).standard_normal((20, 3))
    asked = []

    def counted(points):
        asked.append(len(points))
        return smooth(points)

    for central, order, cost in ((False, 1, 4), (True, 2, 6)):
        errors = []
        for alpha in (2e-2, 1e-2, 5e-3):
            asked.clear()
            G = finite_differences(counted, rows, step_size=alpha, central=central)
            assert sum(asked) == cost * len(rows)
            errors.append(np.linalg.norm(G - slope(rows)))
        ratios = np.divide(errors[:-1], errors[1:])
        np.testing.assert_allclose(ratios, 2**order, rtol=0.05)
    with pytest.raises(ValueError, match="step_size"):
        finite_differences(smooth, rows, step_size=0.0)
    assert finite_differences(smooth, rows[:0]).shape == (0, 3)


@pytest.mark.catalog("ADV-12")
def test_an_attack_by_differences_is_as_strong_as_by_gradients():
    """On a linear model of which only scores are shown; each step asks d + 1 times."""
    model = LogisticRegression(max_iter=1000).fit(X, Y)
    shown = Scored(model.predict, model.classes_, model.decision_function)
    threat = ThreatModel("l2", 0.4)
    white = attack(model, X, Y, threat, PGD(steps=10))
    for central in (False, True):
        method = Differences(PGD(steps=10), central=central)
        black = attack(shown, X, Y, threat, method)
        np.testing.assert_array_equal(black.fooled, white.fooled)
        assert black.gradients == 0
        # Both ask for scores at each point; the differences come on top.
        more = black.queries - white.queries
        assert more == white.gradients * (8 if central else 5)


@pytest.mark.parametrize("p", [1, 2, 3, math.inf])
def test_a_search_finds_most_of_what_gradients_find(p):
    model = SVC(gamma=0.5).fit(X, Y)
    threat = ThreatModel(p, 0.35 * 4 ** (1 / p), X.min(0), X.max(0))
    noise = attack(model, X, Y, threat, Noise(), random_state=0)
    found = attack(model, X, Y, threat, Search(300), random_state=0)
    steps = attack(model, X, Y, threat, Differences(), random_state=0)
    assert found.success > 2 * noise.success
    assert found.success >= steps.success - 0.02
    assert found.queries <= 300 * found.right.sum()
    assert found.gradients == 0


class Noise:
    """Random changes as large as the radius."""

    def run(self, target, X, y, threat, rng):
        """Changed rows."""
        D = rng.standard_normal(X.shape)
        return X + D * (threat.radius / row_norms(D, threat.norm))[:, None]


def test_a_search_changes_images_in_squares_and_stops_at_success():
    rng = np.random.default_rng(1)
    images = rng.uniform(0, 1, (12, 1, 6, 6))
    weight = rng.standard_normal(36)

    def score(A):
        return A.reshape(len(A), -1) @ weight - images[0].sum() * weight.mean()

    model = Scored(lambda A: (score(A) > 0).astype(int), [0, 1], score)
    threat = ThreatModel("linf", 0.3, 0, 1)
    found = attack(model, images, None, threat, Search(500), random_state=0)
    assert found.X_hat.shape == images.shape
    assert found.success > 0.8
    assert found.queries < 500 * len(images)


@pytest.mark.catalog("ADV-13")
@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_a_walk_by_labels_never_goes_away_and_comes_near(p):
    """More steps of the same walk: no row farther; at last near the exact distance."""
    model = LogisticRegression(max_iter=1000).fit(X, Y)
    shown = Labelled(model.predict, model.classes_)
    threat = ThreatModel(p, math.inf)
    before = np.full(len(X), np.inf)
    for steps in (1, 3, 6, 12, 24):
        found = attack(shown, X, None, threat, Boundary(steps), random_state=0)
        assert found.success == 1.0
        assert (found.distances <= before + 1e-12).all()
        before = found.distances
    truth = attack(model, X, None, threat, DeepFool(overshoot=1e-6)).distances
    assert (before >= truth * (1 - 1e-4)).all()
    assert np.median(before / truth) < 1.1
    # Bisection: a little nearer, and the label is that of the row again.
    inside = X + 0.98 * found.changes
    assert np.mean(model.predict(inside) == model.predict(X)) > 0.95


@pytest.mark.catalog("ADV-13")
def test_a_walk_rests_inside_the_radius():
    model = KNeighborsClassifier(1).fit(X, Y)
    shown = Labelled(model.predict, model.classes_)
    near = attack(shown, X, Y, ThreatModel("l2", 0.6), Boundary(20), random_state=0)
    far = attack(shown, X, Y, ThreatModel("l2", 6.0), Boundary(20), random_state=0)
    assert 0 < near.success < far.success == 1.0
    assert far.queries < near.queries
    assert far.queries == as_counted(model, 6.0)


def as_counted(model, radius):
    """Rows that the model itself was asked about by the attack, less the judge's."""
    count = []

    def predict(A):
        count.append(len(A))
        return model.predict(A)

    shown = Labelled(predict, model.classes_)
    threat = ThreatModel("l2", radius)
    attack(shown, X, Y, threat, Boundary(20), random_state=0)
    return sum(count) - 2 * len(X)


def test_a_walk_begins_at_random_where_all_rows_are_alike():
    model = LogisticRegression(max_iter=1000).fit(X, Y)
    rows = X[:10]
    shown = Labelled(model.predict, model.classes_)
    found = attack(shown, rows, None, ThreatModel("l2", math.inf), random_state=0)
    assert found.success == 1.0
    constant = Labelled(lambda A: np.zeros(len(A), int), [0, 1])
    nothing = attack(constant, rows, None, ThreatModel("l2", 9.0), random_state=0)
    assert nothing.success == 0.0
    assert not nothing.changes.any()


@pytest.mark.catalog("ADV-15")
def test_a_linear_model_is_copied_with_d_plus_one_queries():
    """From scores, and from the probabilities of a softmax."""
    rng = np.random.default_rng(2)
    model = LogisticRegression(max_iter=1000).fit(X, Y)
    questions = rng.normal(X.mean(0), 1.0, (5, 4))
    copy = steal(model, questions)
    assert copy.queries == 5
    np.testing.assert_allclose(copy.model.formula.W, model.coef_, rtol=1e-8)
    np.testing.assert_allclose(copy.model.formula.b, model.intercept_, rtol=1e-8)
    assert copy.agreement(X) == 1.0
    # Probabilities fix the scores but for what is common to all classes.
    copy = steal(model.predict_proba, questions)
    W, coef = (A - A.mean(axis=0) for A in (copy.model.formula.W, model.coef_))
    np.testing.assert_allclose(W, coef, rtol=1e-6)
    few = steal(model, questions[:4])
    assert np.abs(few.model.formula.W - model.coef_).max() > 1e-3


@pytest.mark.catalog("ADV-15")
def test_copies_agree_more_the_more_is_asked():
    rng = np.random.default_rng(3)
    model = RandomForestClassifier(30, random_state=0).fit(X, Y)
    new = rng.uniform(X.min(0), X.max(0), (2000, 4))
    agreed = []
    for n in (20, 200, 2000):
        questions = rng.uniform(X.min(0), X.max(0), (n, 4))
        copy = steal(model, questions, RandomForestClassifier(30, random_state=0))
        assert copy.queries == n
        agreed.append(copy.agreement(new))
    assert agreed[0] < agreed[1] < agreed[2]
    assert agreed[2] > 0.93
    by_labels = steal(Labelled(model.predict, model.classes_), X)
    assert by_labels.agreement(X) > 0.7
    with pytest.raises(ValueError, match="for all 10 rows"):
        steal(model, np.repeat(X[:1], 10, axis=0), GaussianNB())
    with pytest.raises(ValueError, match="finite"):
        steal(model, X[:0])


@pytest.mark.catalog("ADV-14")
def test_attacks_on_a_copy_carry_over():
    """Above random changes of the same size, on a model without gradients."""
    model = RandomForestClassifier(30, random_state=0).fit(X, Y)
    threat = ThreatModel("l2", 0.8)
    copy = steal(model, X)
    carried = attack(model, X, Y, threat, Transfer(copy), random_state=0)
    noise = attack(model, X, Y, threat, Noise(), random_state=0)
    assert carried.success > noise.success + 0.2
    # A copy that knows two of the classes only leaves rows of the third alone.
    two = LogisticRegression().fit(X[Y > 0], Y[Y > 0])
    some = attack(model, X, Y, threat, Transfer(two), random_state=0)
    assert some.success > 0
    assert not some.fooled[Y == 0].any()


def test_models_without_gradients_are_attacked_all_the_same():
    """What attack and robust_accuracy choose: scores by search, labels by a walk."""
    model = KNeighborsClassifier(1).fit(X, Y)
    threat = ThreatModel("linf", 0.4)
    for shown in (model, Labelled(model.predict, model.classes_)):
        found = robust_accuracy(shown, X, Y, threat, radii=1, random_state=0)
        assert found.lower == 0.0
        assert found.upper < 0.9 < found.clean
        assert attack(shown, X, Y, threat, random_state=0).accuracy < 0.9
    assert as_target(model, X).has_scores


@pytest.mark.catalog("ADV-13")
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_walk_leaves_fixed_entries_alone(norm):
    """Rows of the other class differ in the fixed entry: no way leads over them."""
    rng = np.random.default_rng(0)
    group = np.repeat([0.0, 1.0], 10)
    X = np.column_stack([rng.uniform(0, 1, 20), group])

    def label(X):
        return (X[:, 0] + 5 * X[:, 1] > 3).astype(int)

    threat = ThreatModel(norm, math.inf, fixed=np.array([False, True]))
    target = as_target(label, X, classes=[0, 1])
    found = attack(target, X, label(X), threat, Boundary(), random_state=0)
    assert found.fooled.all() and (found.X_hat[:, 1] == group).all()
    np.testing.assert_allclose(found.distances, abs(3 - 5 * group - X[:, 0]), rtol=0.02)


@pytest.mark.catalog("ADV-12")
@pytest.mark.parametrize("central", [True, False])
def test_random_directions_are_right_in_the_mean_and_ask_less(central):
    """E (d/m) Σ u uᵀg = g, with m + 1 or 2m questions in place of d + 1 or 2d."""
    g = np.arange(1.0, 9.0)
    asked = []

    def linear(X):
        asked.append(len(X))
        return X @ g

    X = np.zeros((2, 8))
    options = {"central": central, "directions": 3, "step_size": 0.1}
    found = np.array([
        finite_differences(linear, X, **options, random_state=seed)
        for seed in range(4000)
    ])  # fmt: skip
    assert sum(asked) == 4000 * 2 * (6 if central else 4)
    # Each estimate is a multiple of g's size: its mean is g within five errors.
    error = found.std(axis=0) / np.sqrt(4000)
    assert (abs(found.mean(axis=0) - g) < 5 * error).all()
    # On one direction it is the projection itself, scaled by d.
    (one,) = finite_differences(linear, X[:1], directions=1, random_state=0)
    u = one / np.linalg.norm(one)
    np.testing.assert_allclose(one, 8 * u * (u @ g), rtol=1e-6)
    with pytest.raises(ValueError, match="directions"):
        finite_differences(linear, X, directions=0)


@pytest.mark.catalog("ADV-12")
def test_an_attack_in_random_directions_needs_fewer_questions():
    X, y = load_digits(n_class=2, return_X_y=True)
    model = GaussianNB(var_smoothing=0.1).fit(X[:200], y[:200])
    threat, rows = ThreatModel("l2", 25.0, 0, 16), (X[200:230], y[200:230])
    method = PGD(steps=6, stop=False)
    few, all_ = (
        attack(
            model, *rows, threat, Differences(method, 0.1, directions=m), random_state=0
        )
        for m in (16, None)
    )
    assert few.queries < 0.4 * all_.queries
    assert few.fooled.sum() >= 0.6 * all_.fooled.sum() > 0
