"""What is known of a model: formulas, gradients and scores beside what it predicts."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC as SklearnSVC
from sklearn.tree import DecisionTreeClassifier

from certus import decomposition
from certus.kernels import KernelLogisticRegression, KernelPerceptron
from certus.linear_model import LogisticRegression, Perceptron, RidgeClassifier
from certus.neighbors import KNeighborsClassifier
from certus.objectives import terms
from certus.robustness import (
    PGD,
    OneStep,
    ThreatModel,
    Worst,
    as_target,
    attack,
    robust_accuracy,
)
from certus.robustness.attacks import SURROGATES
from certus.robustness.target import Derived, Labelled, LinearTarget, Scored
from certus.svm import SVC, LinearSVC
from helpers.targets import check_gradients, check_scores

X, Y = load_iris(return_X_y=True)
TWO = Y > 0


# -- linear models ----------------------------------------------------------------

LINEAR = {
    "logistic": LogisticRegression(),
    "svm": LinearSVC(),
    "ridge": RidgeClassifier(),
    "perceptron": Perceptron(max_iter=20, random_state=0),
    "kernel": KernelLogisticRegression(kernel="linear"),
    "standardised": make_pipeline(StandardScaler(), LogisticRegression()),
    "range": make_pipeline(MinMaxScaler(), LogisticRegression()),
    "robust": make_pipeline(RobustScaler(), LogisticRegression()),
    "nested": make_pipeline(
        make_pipeline(MaxAbsScaler(), "passthrough", FunctionTransformer()),
        make_pipeline(StandardScaler(with_mean=False), LogisticRegression()),
    ),
    "components": make_pipeline(
        StandardScaler(with_std=False), PCA(3, whiten=True), LogisticRegression()
    ),
    "our components": make_pipeline(decomposition.PCA(2), LogisticRegression()),
    "directions": make_pipeline(decomposition.TruncatedSVD(3), LogisticRegression()),
    "chosen": make_pipeline(SelectKBest(k=2), LogisticRegression()),
    "searched": GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression()),
        {"logisticregression__C": [1.0, 0.1]},
        cv=2,
    ),
}


@pytest.mark.catalog("ADV-04")
@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_models_behind_linear_steps_have_a_formula(name, classes):
    """W x + b of raw rows is the model's own score, so that the bracket closes."""
    rows, y = X + 3.0, (TWO if classes == 2 else Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LINEAR[name].fit(rows, y)
    target = as_target(model, rows)
    assert isinstance(target, LinearTarget) and target.note == ""
    W, b = target.formula
    z = rows @ W.T + b
    truth = model.decision_function(rows)
    if classes == 2:
        z = z[:, 1] - z[:, 0]
    np.testing.assert_allclose(z, truth, rtol=1e-6, atol=1e-8 * np.abs(truth).max())
    found = robust_accuracy(
        model, rows[::5], y[::5], ThreatModel("l2", 0.3), radii=1, random_state=0
    )
    assert found.lower == found.upper


def test_scores_of_pairs_follow_no_formula():
    """Three classes have three pairs: W of the pairs is not W of the classes."""
    for kind in (SVC, SklearnSVC):
        model = kind(kernel="linear", decision_function_shape="ovo").fit(X, Y)
        assert model.coef_.shape == (3, 4)
        target = as_target(model, X)
        assert target.formula is None
        assert target.has_gradients or "SVC has no known gradient" in target.note
        if target.has_scores:
            check_scores(target, X, model)
        assert as_target(kind(kernel="linear").fit(X, TWO), X).formula is not None


def test_a_step_that_clips_has_no_formula_and_a_false_step_is_refused():
    cut = make_pipeline(MinMaxScaler(clip=True), LogisticRegression()).fit(X, Y)
    assert as_target(cut, X).formula is None

    class Squares(StandardScaler):
        def transform(self, X, copy=None):
            return super().transform(X) ** 2

    model = make_pipeline(Squares(), LogisticRegression()).fit(X, Y)
    target = as_target(model, X)
    assert isinstance(target, Scored) and "Squares" in target.note
    scaler = StandardScaler()
    model = make_pipeline(scaler, LogisticRegression()).fit(X, Y)
    scaler.transform = lambda X: np.abs(X)
    target = as_target(model, X)
    assert target.formula is None and "StandardScaler has no known" in target.note


def test_a_model_whose_labels_disagree_with_its_scores_is_asked_for_labels():
    class Contrary(LogisticRegression):
        def predict(self, X):
            return super().predict(X)[::1] ^ 1

    model = Contrary().fit(X, TWO.astype(int))
    target = as_target(model, X)
    assert type(target) is Labelled
    assert "not those of its predictions" in target.note
    found = robust_accuracy(
        model, X, 1 - TWO, ThreatModel("l2", 0.1), radii=1, random_state=0
    )
    assert found.lower == 0.0


# -- kernel machines --------------------------------------------------------------

KERNELS = {
    "linear": "linear",
    "poly": "poly",
    "rbf": "rbf",
    "sigmoid": terms.Sigmoid(0.01, 0.1),
    "laplacian": "laplacian",
    "laplace": terms.Laplace(0.5),
    "sum": terms.Sum(terms.Gaussian(0.3), terms.Scaled(0.2, terms.Linear())),
    "product": terms.Product(terms.Gaussian(0.1), terms.Polynomial(2, 1.0, 0.1)),
    "exponential": terms.Exponentiated(terms.Scaled(0.05, terms.Linear())),
}


@pytest.mark.catalog("ADV-04")
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_machines_have_gradients_in_closed_form(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [
            SVC(kernel=KERNELS[name]).fit(X, Y),
            SVC(kernel=KERNELS[name]).fit(X, TWO),
            KernelPerceptron(kernel=KERNELS[name], max_iter=5).fit(X, Y),
        ]
        if name in ("rbf", "poly"):
            scaled = make_pipeline(StandardScaler(), SVC(kernel=KERNELS[name]))
            models.append(scaled.fit(X, Y))
            cut = make_pipeline(MinMaxScaler((0, 0.7), clip=True), PCA(3), SVC())
            models.append(cut.fit(X[20:120], Y[20:120]))
    # Between the rows, where nothing bends; the last beyond what is cut.
    rows = X[[0, 20, 40, 80, 131]] + np.random.default_rng(1).uniform(
        0.01, 0.04, (5, 4)
    )
    for model in models:
        target = as_target(model, X)
        assert isinstance(target, LinearTarget | Derived)
        pairs = isinstance(model, SVC) and len(target.classes) > 2
        assert (type(target) is LinearTarget) == (name == "linear" and not pairs)
        check_gradients(target, rows)
        z = np.asarray(target.scores(X))
        if len(target.classes) == 2:
            np.testing.assert_allclose(
                z[:, 1] - z[:, 0], model.decision_function(X), rtol=1e-8, atol=1e-8
            )
        labels = target.classes[z.argmax(axis=1)]
        assert np.mean(labels == model.predict(X)) > 0.98


def test_kernel_machines_far_from_the_origin():
    shift = 1e5
    model = SVC().fit(X + shift, TWO)
    near = as_target(SVC(gamma=model.kernel_.gamma).fit(X, TWO), X)
    far = as_target(model, X + shift)

    def pull(z):
        return np.tile([0.0, 1.0], (len(z), 1))

    G = [t.gradient(rows, pull)[1] for t, rows in ((near, X), (far, X + shift))]
    np.testing.assert_allclose(G[1], G[0], rtol=1e-3, atol=1e-3 * np.abs(G[0]).max())


def test_gradients_of_a_kernel_machine_find_what_its_scores_do():
    model = SVC(gamma=0.3).fit(X, Y)
    threat = ThreatModel("l2", 0.6)
    white = attack(model, X[::3], Y[::3], threat, PGD(steps=15), random_state=0)
    black = attack(model, X[::3], Y[::3], threat, "search", random_state=0)
    assert white.fooled.sum() >= black.fooled.sum() > 0
    assert white.gradients > 0 and black.gradients == 0
    found = robust_accuracy(
        model,
        X[::10],
        Y[::10],
        ThreatModel("l2", 0.2),
        radii=1,
        attacks=[OneStep()],
        random_state=0,
    )
    assert found.lower == 0 and "neither linear nor a network" in found.method


# -- functions and black boxes ----------------------------------------------------


def test_functions_of_every_kind():
    model = LogisticRegression().fit(X, Y)
    names = np.array(["a", "b", "c"])
    threat = ThreatModel("l2", 1.0)
    W = model.coef_[1] - model.coef_[0]
    kinds = {
        "scores": (model.decision_function, None, Y),
        "probabilities": (model.predict_proba, None, Y),
        "labels": (model.predict, [0, 1, 2], Y),
        "names": (lambda A: names[model.predict(A)], None, names[Y]),
        "one score": (lambda A: A @ W - 1.0, None, (X @ W > 1).astype(int)),
        "two names": (lambda A: A @ W - 1.0, ["no", "yes"], None),
    }
    for kind, (function, classes, y) in kinds.items():
        target = as_target(function, X, classes=classes)
        assert target.has_scores == (kind not in ("labels", "names")), kind
        assert not target.has_gradients
        found = attack(target, X[::10], None if y is None else y[::10], threat)
        assert found.right.mean() > 0.8 and found.fooled.any(), kind
        assert set(found.predicted) <= set(target.classes)


def test_black_boxes_say_why():
    cases = {
        "Binarizer has no known gradient": make_pipeline(
            Binarizer(threshold=3.0), LogisticRegression()
        ),
        "DecisionTreeClassifier": DecisionTreeClassifier(max_depth=3),
        "GaussianNB": GaussianNB(),
        "KNeighborsClassifier": KNeighborsClassifier(3),
        "SVC has no known gradient": SVC(kernel=lambda A, B: (A @ B.T) ** 2),
    }
    threat = ThreatModel("l2", 1.0)
    for reason, model in cases.items():
        model.fit(X, Y)
        target = as_target(model, X)
        assert isinstance(target, Scored) and not target.has_gradients
        assert (
            target.note.startswith("attacked as a black box") and reason in target.note
        )
        check_scores(target, X, model)
        found = attack(model, X[::10], Y[::10], threat, random_state=0)
        assert found.fooled.any() and found.note == target.note, reason


@pytest.mark.catalog("ADV-04")
def test_derivatives_of_a_linear_rule_have_the_sign_of_the_class():
    """∇ℓ(y g) = y ℓ'(y g) ∇g: g falls for y = +1 and rises for y = −1 (E44)."""
    model = LogisticRegression().fit(X, TWO)
    target, y = as_target(model, X), TWO.astype(int)
    g = approx_fprime(X[0], lambda x: model.decision_function(x[None])[0], 1e-6)
    for name in ("cross_entropy", "margin"):
        slope = SURROGATES[name].slope
        _, G = target.gradient(X, lambda z, slope=slope: slope(y, z))
        along = G @ g / (np.linalg.norm(G, axis=1) * np.linalg.norm(g))
        np.testing.assert_allclose(along, np.where(TWO, -1.0, 1.0), rtol=1e-6)
    moved = attack(model, X, TWO, ThreatModel("l2", 0.1), Worst()).changes
    assert (moved @ g)[TWO].max() <= 0 <= (moved @ g)[~TWO].min()
