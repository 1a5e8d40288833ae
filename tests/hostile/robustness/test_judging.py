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

import certus
from certus.robustness import (
    PGD,
    Boundary,
    DeepFool,
    OneStep,
    Search,
    ThreatModel,
    Transfer,
    Worst,
    as_target,
    attack,
)
from certus.robustness.judging import allowed
from certus.robustness.target import Labelled, Target

torch = pytest.importorskip("torch")

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
def test_at_radius_zero_the_accuracy_is_that_of_the_model(p):
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
def test_allowed_changes_need_no_slack(p, kind, radius, exponent, seed, box):
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
    # Powers other than squares are rounded by whoever computes them.
    slack = 0 if p in (1, 2, math.inf) else 1e-14
    assert (np.linalg.norm(D, p, axis=1) <= radius * (1 + slack)).all()
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
def test_input_that_is_not_an_array_of_rows_is_refused(make):
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


def test_models_that_cannot_be_attacked_are_reported():
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
        with pytest.raises(TypeError, match="an attack must have a method run"):
            attack(MODEL, X, Y, THREAT, method)
    with pytest.raises(TypeError, match="must be a ThreatModel"):
        attack(MODEL, X, Y, 0.1)
    with pytest.raises(ValueError, match="same number of rows, got 150 and 149"):
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


def net(dtype=torch.float32):
    """A small network of rows with four entries."""
    parts = torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
    return torch.nn.Sequential(*parts).to(dtype).eval()


@pytest.mark.parametrize("p", [1, 2, 2.5, math.inf])
@pytest.mark.parametrize("radius", [1e300, 1e-40])
def test_radii_of_any_size(p, radius):
    """Without a warning, and nothing leaves ball or box."""
    rows = X[::25].astype(np.float32)
    methods = ("auto", "one-step", "deepfool", Search(20), Boundary(1))
    for model in (MODEL, net()):
        for box in ((-math.inf, math.inf), (0, 10)):
            threat = ThreatModel(p, radius, *box)
            for method in methods:
                found = attack(model, rows, None, threat, method, random_state=0)
                assert np.isfinite(found.X_hat).all()
                assert threat.contains(found.X_hat, rows).all()
                if radius < 1e-9:
                    assert not found.fooled.any()
                elif method == "one-step" and model is MODEL and box[1] < 11:
                    assert found.success > 0.9


@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_a_radius_beyond_the_box_is_all_of_the_box(p):
    """And steps are as strong as if the box had been given as the radius."""
    low, high = X.min(0), X.max(0)
    whole = ThreatModel(p, math.inf, low, high)
    for method in (Worst(), PGD(20), Search(100)):
        for radius in (1e2, 1e6):
            threat = whole.within(radius)
            found = attack(MODEL, X, Y, threat, method, random_state=0)
            inside = attack(MODEL, X, Y, whole, method, random_state=0)
            np.testing.assert_array_equal(found.X_hat, inside.X_hat)
    assert found.success > 0.9


def test_a_single_row_and_a_constant_model():
    one = attack(MODEL, X[:1], Y[:1], ThreatModel("l2", 3.0))
    assert one.fooled.shape == (1,)
    assert one.interval().high == 1.0
    constant = torch.nn.Linear(4, 3).eval()
    constant.weight.data *= 0
    rows = X.astype(np.float32)
    for method in ("one-step", "pgd", "deepfool", "search", Boundary(2)):
        found = attack(constant, rows, None, THREAT, method, random_state=0)
        assert found.success == 0.0
        assert not found.changes.any()


def test_one_step_makes_two_passes_forward():
    """The pass that predicts the rows serves the gradient as well."""
    module, rows, seen = net(torch.float64), X, []
    as_it_is = attack(module, rows, None, THREAT, OneStep())
    module.register_forward_hook(lambda _, given, out: seen.append(len(given[0])))
    y = np.where(np.arange(150) % 3, as_it_is.predicted, 99)
    target = as_target(module, rows)
    y = np.where(np.arange(150) % 3, target.labels(rows), 99)
    seen.clear()
    found = attack(target, rows, y, THREAT, OneStep())
    assert seen == [150, 100]
    assert (found.queries, found.gradients) == (100, 100)
    alone = OneStep().run(
        target, torch.as_tensor(rows), torch.as_tensor(y % 99), THREAT, None
    )
    tried = allowed(alone.numpy(), rows, THREAT)
    np.testing.assert_array_equal(found.X_hat[found.fooled], tried[found.fooled])
    assert found.fooled.any()

    class Writes:
        """Changes the rows it was given, and asks for the gradient there."""

        def run(self, target, X, y, threat, rng):
            X += 0.05
            kept.append(OneStep().run(target, X, y, threat, rng) - X)
            return X

    kept = []
    attack(target, rows, y, THREAT, Writes())
    moved = torch.as_tensor(rows[y < 99]) + 0.05
    truth = OneStep().run(target, moved, torch.as_tensor(y[y < 99]), THREAT, None)
    np.testing.assert_allclose(kept[0], truth - moved)


class Slow:
    """Finds something at once, and goes on asking."""

    def __init__(self, stop):
        self.stop, self.runs = stop, 0

    def run(self, target, X, y, threat, rng):
        """Changed rows, but for the second part."""
        self.runs += 1
        while self.runs == 2:
            self.stop()
            target.scores(X)
        return Worst().run(target, X, y, threat, rng)


def parts(**options):
    """An attack on three parts that is stopped in the second."""
    rows, y = np.repeat(X, 10, axis=0), np.repeat(Y, 10)
    everything = attack(MODEL, rows, y, THREAT, Worst())
    found = attack(MODEL, rows, y, THREAT, **options)
    cut = Target.together
    np.testing.assert_array_equal(found.fooled[:cut], everything.fooled[:cut])
    assert found.tried[:cut].all()
    assert not found.fooled[cut:].any()
    np.testing.assert_array_equal(found.tried[cut:], ~found.right[cut:])
    np.testing.assert_array_equal(found.right, everything.right)
    assert found.accuracy > everything.accuracy


def test_a_time_limit_leaves_rows_untried():
    parts(method=Slow(lambda: None), max_time=0.5)
    nothing = attack(MODEL, X, Y, THREAT, max_time=0)
    assert nothing.accuracy == MODEL.score(X, Y)
    assert nothing.queries == 0
    target = as_target(MODEL, X)
    attack(target, X, Y, THREAT, max_time=0)
    assert attack(target, X, Y, THREAT).tried.all()
    for wrong, kind in ((-1, ValueError), (math.nan, ValueError), ("1", TypeError)):
        with pytest.raises(kind, match="max_time must be"):
            attack(MODEL, X, Y, THREAT, max_time=wrong)


def test_ctrl_c_ends_the_call_or_the_attack():
    def interrupt():
        raise KeyboardInterrupt

    with certus.config_context(on_interrupt="return"):
        parts(method=Slow(interrupt))
    with pytest.raises(KeyboardInterrupt):
        parts(method=Slow(interrupt))


def test_a_copy_keeps_to_the_time_as_well():
    method = Transfer(as_target(MODEL, X), PGD(10**6, stop=False))
    found = attack(MODEL, X, Y, THREAT, method, max_time=0.3)
    assert not found.tried[found.right].any()
    assert attack(MODEL, X, Y, THREAT, Transfer(method.copy)).tried.all()
