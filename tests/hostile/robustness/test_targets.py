"""Models and rows that nobody meant to be attacked: attacked rightly, or refused."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression as SklearnLogistic
from sklearn.linear_model import RidgeClassifier as SklearnRidge
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.neighbors import KNeighborsClassifier as SklearnNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from certus.linear_model import LinearRegression, LogisticRegression
from certus.robustness import (
    OneStep,
    ThreatModel,
    Worst,
    as_target,
    attack,
    robust_accuracy,
)
from certus.robustness.target import Labelled, LinearTarget, Scored
from certus.svm import SVC

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from certus.neural_network import MLPClassifier, NeuralClassifier  # noqa: E402

X, Y = load_iris(return_X_y=True)
MODEL = LogisticRegression().fit(X, Y)
THREAT = ThreatModel("l2", 0.5)


class Written(nn.Module):
    """A function of rows as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def scores(x):
    """Three scores of four entries."""
    return torch.stack([x[:, 0], x[:, 1] * 2, x[:, 2] - 1], dim=1)


def test_noise_in_a_module_is_seen():
    W = torch.linspace(-1, 1, 12).reshape(3, 4)
    noisy = {
        "dropout": lambda x: F.linear(F.dropout(x, 0.5), W),
        "noise": lambda x: scores(x) + torch.randn(len(x), 3),
        "batch": lambda x: scores(x) - x.mean(dim=0, keepdim=True)[:, :3],
        "batch norm": lambda x: scores(F.batch_norm(x, None, None, training=True)),
    }
    for name, function in noisy.items():
        state = torch.get_rng_state()
        with pytest.raises(ValueError, match=r"called again|depend on each other"):
            attack(Written(function).eval(), X, Y, THREAT)
        assert torch.equal(torch.get_rng_state(), state), name
    quiet = Written(lambda x: F.linear(F.dropout(x, 0.5, training=False), W))
    assert attack(quiet.eval(), X, None, THREAT, OneStep()).right.all()
    for part in (nn.Dropout(0.5), nn.BatchNorm1d(4)):
        module = nn.Sequential(part, nn.Linear(4, 3))
        with pytest.raises(ValueError, match=r"training mode.*module.eval\(\)"):
            attack(module, X, Y, THREAT)
        module.eval()[0].train()  # a single part suffices
        with pytest.raises(ValueError, match="training mode"):
            attack(module, X, Y, THREAT)


def test_modules_without_scores_are_refused():
    wrong = {
        r"got tuple": lambda x: (scores(x), x),
        r"got \(64,\s?3,\s?1\)": lambda x: scores(x)[:, :, None],
        r"got \(3,\s?\)": lambda x: scores(x).mean(dim=0),
        r"NaN or infinite scores": lambda x: scores(x) * np.nan,
        r"fails on rows of shape \(64, 4\)": lambda x: x @ torch.ones(5, 3),
    }
    for said, function in wrong.items():
        with pytest.raises(ValueError, match=said):
            attack(Written(function).eval(), X, Y, THREAT)
    with pytest.raises(ValueError, match="3 outputs, but 2 classes"):
        as_target(Written(scores).eval(), X, classes=["a", "b"])


def test_noise_in_functions_and_estimators_is_seen():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="draws random numbers"):
        attack(lambda A: rng.normal(size=(len(A), 3)), X, Y, THREAT)
    with pytest.raises(ValueError, match="depend on each other"):
        attack(lambda A: A[:, :3] - A[:, :3].mean(axis=0), X, Y, THREAT)
    with pytest.raises(ValueError, match="draws random numbers"):
        attack(DummyClassifier(strategy="uniform").fit(X, Y), X, Y, THREAT)


def test_functions_without_scores_are_refused():
    with pytest.raises(ValueError, match="one output for each of 64 rows"):
        attack(lambda A: A[:3], X, Y, THREAT)
    with pytest.raises(ValueError, match="NaN or infinite"):
        attack(lambda A: A * np.nan, X, Y, THREAT)
    with pytest.raises(ValueError, match=r"gives shape \(64, 4, 1\)"):
        attack(lambda A: A[:, :, None], X, Y, THREAT)
    with pytest.raises(TypeError, match=r"in an nn\.Module"):
        attack(lambda x: F.linear(x, torch.ones(3, 4)), X, Y, THREAT)
    with pytest.raises(ValueError, match=r"between 0 and 1.*classes=\[0, 1\]"):
        attack(lambda A: (A[:, 0] > 5) * 1.0, X, Y > 0, THREAT)
    with pytest.raises(ValueError, match="threshold= is for a single output"):
        as_target(lambda A: A[:, :3], X, threshold=0.5)
    with pytest.raises(ValueError, match="not one of its classes"):
        target = as_target(MODEL.predict, X[:50], classes=[0, 1])
        attack(target, X, Y, THREAT)
    labels = as_target(lambda A: (A[:, 0] > 5) * 1.0, X, classes=[0, 1])
    assert type(labels) is Labelled
    with pytest.raises(TypeError, match="cannot predict"):
        attack("model", X, Y, THREAT)


def test_labels_that_appear_later_are_learnt():
    """A function without classes= may know more of them than its first rows show."""
    names = np.array(["a", "b", "c"])
    found = attack(
        lambda A: names[MODEL.predict(A)], X, names[Y], ThreatModel("l2", 1.0)
    )
    assert found.right.mean() == MODEL.score(X, Y)
    assert set(found.predicted) == set(names)
    np.testing.assert_array_equal(found.predicted, names[MODEL.predict(found.X_hat)])
    one = as_target(lambda A: names[MODEL.predict(A)], X[:40])
    assert one.classes.tolist() == ["a"]
    wide = attack(one, X[::5], None, ThreatModel("linf", 5.0), random_state=0)
    assert sorted(one.classes) == ["a", "b", "c"]
    truth = names[MODEL.predict(wide.X_hat)]
    np.testing.assert_array_equal(wide.predicted, truth)


@pytest.mark.parametrize("kind", ["sklearn", "ours", "network", "neighbours"])
def test_several_labels_are_refused(kind):
    table = np.stack([Y > 0, Y > 1], axis=1).astype(int)
    made = nn.Sequential(nn.Linear(4, 2))
    models = {
        "sklearn": SklearnRidge(),
        "ours": MLPClassifier((4,), max_iter=2),
        "network": NeuralClassifier(made, max_iter=2),
        "neighbours": SklearnNeighbors(),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = models[kind].fit(X, table)
    with pytest.raises(ValueError, match="several labels at once"):
        attack(model, X, table, THREAT)
    with pytest.raises(ValueError, match=r"y has shape \(150, 2\)"):
        attack(MODEL, X, table, THREAT)


def test_only_fitted_classifiers_are_accepted():
    with pytest.raises(TypeError, match="LinearRegression is not a classifier"):
        attack(LinearRegression().fit(X, Y), X, Y, THREAT)
    with pytest.raises(NotFittedError):
        attack(SVC(), X, Y, THREAT)
    with pytest.raises(NotFittedError):
        attack(make_pipeline(StandardScaler(), LogisticRegression()), X, Y, THREAT)


def test_one_class_and_constant_models_cannot_be_fooled():
    one = DummyClassifier().fit(X, np.zeros(150, int))
    found = robust_accuracy(one, X, np.zeros(150, int), THREAT, radii=1, random_state=0)
    assert found.lower == found.upper == 1.0
    half = robust_accuracy(one, X, Y, THREAT, radii=1, random_state=0)
    assert half.lower == half.upper == np.mean(Y == 0)
    constant = {
        "estimator": DummyClassifier(strategy="most_frequent").fit(X, Y),
        "scores": lambda A: np.zeros((len(A), 3)),
        "labels": lambda A: np.zeros(len(A), int),
        "module": Written(lambda x: (x * 0)[:, :3]).eval(),
    }
    for name, model in constant.items():
        found = attack(model, X[::10], Y[::10], THREAT, random_state=0)
        assert not found.fooled.any(), name
        assert found.accuracy == np.mean(Y[::10] == 0)
        for method in ("one-step", "pgd", "deepfool") if name == "module" else ():
            assert not attack(model, X[::10], Y[::10], THREAT, method).fooled.any()


def test_a_threshold_of_its_own_is_obeyed():
    """predict is not where the scores are largest: labels alone are believed."""
    inner = SklearnLogistic(max_iter=1000)
    model = FixedThresholdClassifier(inner, threshold=0.9).fit(X, Y > 1)
    target = as_target(model, X)
    assert type(target) is Labelled
    found = attack(model, X, Y > 1, THREAT, random_state=0)
    assert found.right.mean() == model.score(X, Y > 1)
    anew = model.predict(found.X_hat) == (Y > 1)
    np.testing.assert_array_equal(anew, found.right & ~found.fooled)


def test_rows_of_every_container_are_the_same_rows():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    names = ["a", "b", "c", "d"]
    frame = pandas.DataFrame(X, columns=names)
    truth = attack(MODEL, X, Y, THREAT).X_hat
    forest = RandomForestClassifier(5, random_state=0)
    threat = ThreatModel("l2", 0.3)
    plain = attack(forest.fit(X, Y), X[::10], Y[::10], threat, random_state=0)
    for rows in (frame, polars.DataFrame(X, schema=names), sparse.csr_array(X)):
        model = LogisticRegression().fit(rows, Y)
        for given in (rows, X):
            found = attack(model, given, Y, THREAT)
            np.testing.assert_allclose(found.X_hat, truth)
    found = attack(
        *(forest.fit(frame, Y), frame[::10], Y[::10], threat), random_state=0
    )
    np.testing.assert_array_equal(found.X_hat, plain.X_hat)
    scaled = make_pipeline(
        StandardScaler(), MLPClassifier((4,), max_iter=5, random_state=0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaled.fit(frame, pandas.Series(Y))
    assert attack(scaled, frame, pandas.Series(Y), THREAT).gradients > 0
    with pytest.raises(ValueError, match="must hold numbers"):
        attack(MODEL, frame.assign(a="x"), Y, THREAT)


def test_invalid_rows_are_refused():
    for rows, said in (
        (X[0], "For a single row pass X\\[None\\]"),
        (X[:0], "X has no rows"),
        (np.where(X > 7, np.nan, X), "NaN or infinite"),
    ):
        with pytest.raises(ValueError, match=said):
            attack(MODEL, rows, Y[: len(rows)], THREAT)
        with pytest.raises(ValueError, match=said):
            attack(scores_of(MODEL), rows, Y[: len(rows)], THREAT)


def scores_of(model):
    """A function of its scores."""
    return lambda A: model.decision_function(A)


def test_true_classes_of_another_kind():
    with pytest.raises(ValueError, match="y holds classes such as"):
        attack(MODEL, X, Y.astype(str), THREAT)
    with pytest.raises(ValueError, match="y has missing values"):
        attack(MODEL, X, np.where(Y > 1, np.nan, Y), THREAT)
    with pytest.raises(ValueError, match="y has missing values"):
        attack(MODEL, X, np.array([None, *Y[1:]], dtype=object), THREAT)
    same = attack(MODEL, X, Y.astype(float), THREAT)
    np.testing.assert_array_equal(same.fooled, attack(MODEL, X, Y, THREAT).fooled)


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float16, np.float32])
def test_rows_of_every_kind_of_number(kind):
    rows = np.rint(X * 10).astype(kind)
    model = LogisticRegression().fit(rows, Y)
    threat = ThreatModel("linf", 3.0, 0, 255)
    found = attack(model, rows, Y, threat, Worst())
    assert found.fooled.any()
    assert found.X_hat.dtype == (np.float64 if kind in (np.uint8, np.int64) else kind)
    assert threat.contains(found.X_hat, rows).all()
    assert isinstance(as_target(model, rows), LinearTarget)


def test_a_radius_beyond_the_box_reaches_all_of_it():
    low, high = X.min(axis=0), X.max(axis=0)
    model = SVC().fit(X, Y)
    threat = ThreatModel("linf", 1e6, low, high)
    found = attack(model, X[::5], Y[::5], threat, random_state=0)
    assert found.success > 0.9
    assert ((found.X_hat >= low) & (found.X_hat <= high)).all()
    with pytest.raises(ValueError, match="rows lie outside the box"):
        attack(model, X, Y, ThreatModel("linf", 1.0, low, high - 1))


def test_a_network_of_whole_numbers_is_a_black_box():
    """Words have no gradient: the network is asked for its scores."""
    made = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(16, 3))
    whole = np.rint(X).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = NeuralClassifier(made, max_iter=2, random_state=0).fit(whole, Y)
    target = as_target(model, whole)
    assert isinstance(target, Scored) and not target.has_gradients
    assert "NeuralClassifier gives no gradient for rows of this kind" in target.note


def test_without_torch_networks_are_black_boxes():
    """The explicit engine needs no torch to train, nor to be attacked."""
    code = """
import sys, warnings
class Without:
    def find_spec(self, name, *_):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Without())
warnings.simplefilter("ignore")
from sklearn.datasets import load_iris
from certus.neural_network import MLPClassifier
from certus.svm import SVC
from certus.robustness import ThreatModel, as_target, attack
X, y = load_iris(return_X_y=True)
model = MLPClassifier((4,), max_iter=50, random_state=0).fit(X, y)
threat = ThreatModel("l2", 1.0)
found = attack(model, X[::10], y[::10], threat, random_state=0)
print(found.fooled.any(), found.note)
print(attack(SVC().fit(X, y), X[::10], y[::10], threat, random_state=0).gradients > 0)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    first, second = run.stdout.splitlines()
    assert first.startswith("True attacked as a black box: gradients of networks need")
    assert second == "True"


class Reversed(SklearnLogistic):
    """A linear model that predicts otherwise where no row is."""

    def predict(self, X):
        found = super().predict(X)
        return np.where(np.abs(X).max(axis=1) > 3.0, 1 - found, found)


class Doubled(StandardScaler):
    """A scaling that adds where no row is."""

    def transform(self, X, copy=None):
        return super().transform(X) + 9.0 * (np.abs(X) > 3.0)


@pytest.mark.parametrize("name", ["predict", "transform", "instance"])
def test_a_formula_is_proved_of_known_classes_only(name):
    """What a subclass does elsewhere is not seen at the rows on which it is tried."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.5, 2.5, (200, 2))
    X = X[np.abs(X @ [1.0, 0.5]) > 0.5]
    y = (X @ [1.0, 0.5] > 0).astype(int)
    plain = make_pipeline(StandardScaler(), SklearnLogistic()).fit(X, y)
    threat = ThreatModel("linf", 0.3)
    assert robust_accuracy(plain, X, y, threat, random_state=0).lower > 0.5
    parts = {
        "predict": (StandardScaler(), Reversed()),
        "transform": (Doubled(), SklearnLogistic()),
        "instance": (StandardScaler(), SklearnLogistic()),
    }
    model = make_pipeline(*parts[name]).fit(X, y)
    if name == "instance":
        model[-1].predict = lambda X: plain[-1].predict(X)
    found = robust_accuracy(model, X[:20], y[:20], threat, random_state=0)
    assert found.refused and found.lower == 0.0


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("whole", [True, False])
def test_ends_of_the_box_that_float32_cannot_hold(norm, whole):
    """Zeros and ones, scaled: rows at the ends can be attacked as others."""
    rng = np.random.default_rng(0)
    scaled = (rng.integers(0, 2, (60, 8)) - 0.1307) / 0.3081
    rows = scaled.astype(np.float32)
    low, high = scaled.min(), scaled.max()
    assert rows.min() < low or rows.max() > high  # else this tests nothing
    model = SklearnLogistic().fit(rows, rows @ rng.normal(size=8) > 0)
    y, wide = model.predict(rows), ThreatModel(norm, 1.0, low - 1e-5, high + 1e-5)
    ends = (np.full(8, low), np.full(8, high)) if whole else (low, high)
    found = attack(model, rows, y, ThreatModel(norm, 1.0, *ends))
    assert found.success == pytest.approx(attack(model, rows, y, wide).success)
    assert found.success > 0.1
    assert found.X_hat.min() >= rows.min() and found.X_hat.max() <= rows.max()
    bracket = robust_accuracy(
        model, rows, y, ThreatModel(norm, 1.0, *ends), radii=2, random_state=0
    )
    assert bracket.lower == bracket.upper


class Detached(nn.Linear):
    """A linear map that gradients do not pass."""

    def forward(self, x):
        return super().forward(x.detach())


class Overwritten(nn.Linear):
    """One whose step back needs what it has overwritten."""

    def forward(self, x):
        h = torch.sigmoid(super().forward(x))
        other = h * 1.0
        h *= 2.0
        return other + h


@pytest.mark.parametrize("kind", [Detached, Overwritten])
def test_modules_without_gradients_are_black_boxes(kind):
    X = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    model = kind(2, 2).eval()
    target = as_target(model, X)
    assert isinstance(target, Scored) and "no gradient" in target.note
    y = model(torch.tensor(X)).argmax(dim=1).numpy()
    found = attack(model, X, y, ThreatModel("l2", 1.0), random_state=0)
    assert found.right.all() and found.fooled.any()


def writes_labels(target, threat):
    target._predict = lambda X: np.zeros(len(X), dtype=int)


def writes_classes(target, threat):
    target.classes[:] = target.classes[::-1].copy()


def writes_the_radius(target, threat):
    object.__setattr__(threat, "radius", 1e9)


def writes_the_box(target, threat):
    threat.high[:] = 1e9


class Forger:
    """An attack that writes into what it is given, and leaves the ball."""

    def __init__(self, forge):
        self.forge = forge

    def run(self, target, X, y, threat, rng):
        self.forge(target, threat)
        return X + 5.0


@pytest.mark.parametrize(
    "forge", [writes_labels, writes_classes, writes_the_radius, writes_the_box]
)
@pytest.mark.parametrize("network", [False, True])
def test_a_forging_attack_cannot_change_the_arrays_of_the_judge(forge, network):
    model = MODEL
    if network:
        model = MLPClassifier((4,), max_iter=300, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, Y)
    high = X.max(axis=0) + 0.05
    threat = ThreatModel("linf", 0.1, high=high.copy())
    found = attack(model, X, Y, threat, Forger(forge))
    assert (np.abs(found.X_hat - X) <= 0.1).all() and (found.X_hat <= high).all()
    right = model.predict(X) == Y
    np.testing.assert_array_equal(found.right, right)
    wrong = model.predict(found.X_hat) != Y
    np.testing.assert_array_equal(found.fooled, right & wrong)
    np.testing.assert_array_equal(found.predicted, model.predict(found.X_hat))
