"""What is known of a model: formulas, gradients and scores beside what it predicts."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.datasets import load_digits, load_iris
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

from certus import factor, terms
from certus.kernel import SVC, KernelLogisticRegression, KernelPerceptron
from certus.linear import LinearSVC, LogisticRegression, Perceptron, RidgeClassifier
from certus.neighbors import KNeighborsClassifier
from certus.robust import (
    PGD,
    DeepFool,
    OneStep,
    ThreatModel,
    Worst,
    as_target,
    attack,
    robust_accuracy,
)
from certus.robust.attacks import SURROGATES
from certus.robust.target import Derived, Differentiated, Labelled, Linear, Scored

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from certus.deep import (  # noqa: E402
    ConvNetClassifier,
    Distilled,
    MLPClassifier,
    NeuralClassifier,
)

X, Y = load_iris(return_X_y=True)
TWO = Y > 0
DIGITS, DIGIT = (part[:240] for part in load_digits(n_class=3, return_X_y=True))


def derivative_by_differences(target, x, v):
    """∇ₓ Σ vⱼ zⱼ(x) of one row by central differences, in float64."""
    found = np.empty(x.size)
    for i in range(x.size):
        step = np.zeros(x.size)
        step[i] = 1e-5 * max(1.0, np.abs(x).max())
        ends = np.stack([x.ravel() + step, x.ravel() - step]).reshape(2, *x.shape)
        z = np.asarray(target.scores(target.rows(ends)), dtype=np.float64)
        found[i] = (z[0] - z[1]) @ v / (2 * step[i])
    return found.reshape(x.shape)


def check_gradients(target, rows, rtol=1e-5):
    """Gradients of two pulls at once beside differences."""
    z = np.asarray(target.scores(target.rows(rows)))
    V = np.random.default_rng(0).standard_normal((2, *z.shape))

    def pull(k):
        return lambda z: torch.as_tensor(V[k]) if torch.is_tensor(z) else V[k]

    _, *found = target.gradient(target.rows(rows), pull(0), pull(1))
    for k, G in enumerate(found):
        for i, x in enumerate(np.asarray(rows, dtype=np.float64)):
            truth = derivative_by_differences(target, x, V[k, i])
            size = np.abs(truth).max()
            np.testing.assert_allclose(G[i], truth, rtol=rtol, atol=rtol * size)


def check_scores(target, rows, model):
    """The largest score is that of the predicted class."""
    z = np.asarray(target.scores(target.rows(rows)))
    np.testing.assert_array_equal(target.classes[z.argmax(axis=1)], model.predict(rows))


# -- linear models ----------------------------------------------------------------

LINEAR = {
    "logistic": LogisticRegression(),
    "svm": LinearSVC(),
    "ridge": RidgeClassifier(),
    "perceptron": Perceptron(max_iter=20),
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
    "our components": make_pipeline(factor.PCA(2), LogisticRegression()),
    "directions": make_pipeline(factor.TruncatedSVD(3), LogisticRegression()),
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
    assert isinstance(target, Linear) and target.note == ""
    W, b = target.formula
    z = rows @ W.T + b
    truth = model.decision_function(rows)
    if classes == 2:
        z = z[:, 1] - z[:, 0]
    np.testing.assert_allclose(z, truth, rtol=1e-6, atol=1e-8 * np.abs(truth).max())
    found = robust_accuracy(model, rows[::5], y[::5], ThreatModel("l2", 0.3), radii=1)
    assert found.lower == found.upper


def test_scores_of_pairs_are_no_formula():
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


def test_a_step_that_cuts_is_no_formula_and_one_that_lies_no_step():
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


def test_a_model_that_predicts_otherwise_than_it_scores_is_asked_for_labels():
    class Contrary(LogisticRegression):
        def predict(self, X):
            return super().predict(X)[::1] ^ 1

    model = Contrary().fit(X, TWO.astype(int))
    target = as_target(model, X)
    assert type(target) is Labelled
    assert "not those of what it predicts" in target.note
    found = robust_accuracy(model, X, 1 - TWO, ThreatModel("l2", 0.1), radii=1)
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
        assert isinstance(target, Linear | Derived)
        pairs = isinstance(model, SVC) and len(target.classes) > 2
        assert (type(target) is Linear) == (name == "linear" and not pairs)
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
        model, X[::10], Y[::10], ThreatModel("l2", 0.2), radii=1, attacks=[OneStep()]
    )
    assert found.lower == 0 and "neither linear nor a network" in found.method


# -- networks ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def networks():
    """Classifiers with networks, each with rows and classes of its own."""
    made = nn.Sequential(nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 3))
    options = {"max_iter": 12, "random_state": 0}
    layout = DIGITS.reshape(-1, 8, 8, 1)
    colours = np.concatenate([layout, 16 - layout, layout / 2], axis=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = {
            "own module": (NeuralClassifier(made, **options), DIGITS, DIGIT),
            "explicit": (MLPClassifier((10,), **options), DIGITS, DIGIT),
            "torch": (MLPClassifier((10,), engine="torch", **options), DIGITS, DIGIT),
            "single score": (MLPClassifier((6,), **options), DIGITS, DIGIT > 0),
            "flat images": (conv(), DIGITS, DIGIT),
            "bytes": (conv(), DIGITS.reshape(-1, 8, 8).astype(np.uint8) * 15, DIGIT),
            "colours": (conv(), colours, DIGIT),
            "scaled": (make_pipeline(StandardScaler(), tanh()), X, Y),
            "projected": (make_pipeline(factor.PCA(3), tanh()), X, Y),
            "cut": (make_pipeline(MinMaxScaler(clip=True), tanh()), X, Y),
        }
        for name, (model, rows, y) in models.items():
            models[name] = (model.fit(rows, y), rows, y)
    return models


def tanh():
    """A small perceptron."""
    return MLPClassifier((8,), activation="tanh", max_iter=80, random_state=0)


def conv():
    """A small convolutional classifier whose layers all have known bounds."""

    def network(shape, outputs):
        width = 4 * shape[1] * shape[2] // 4
        return nn.Sequential(
            nn.Conv2d(shape[0], 4, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(width, outputs),
        )

    return ConvNetClassifier(network, max_iter=2, random_state=0)


NETWORKS = (
    *("own module", "explicit", "torch", "single score", "flat images"),
    *("bytes", "colours", "scaled", "projected", "cut"),
)


@pytest.mark.catalog("ADV-04", "ADV-20")
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_attacked_in_raw_units(networks, name):
    """Scores, gradients and proofs of the function that the estimator predicts by."""
    model, rows, y = networks[name]
    target = as_target(model, rows)
    assert isinstance(target, Differentiated) and target.note == ""
    check_scores(target, rows.astype(float), model)
    # The same function in float64 agrees, and has gradients to many digits.
    exact = target.exactly()
    some = torch.as_tensor(rows[:6].astype(float))
    with torch.no_grad():
        close = {"rtol": 1e-4, "atol": 1e-4}
        plain = target.function(target.rows(rows[:6]))
        torch.testing.assert_close(exact(some), plain.double(), **close)
    wide = Differentiated(
        None, target.classes, exact, torch.float64, torch.device("cpu"), None
    )
    check_gradients(wide, rows[5:7] + 0.013, rtol=1e-4)
    # Ball and box hold in the units of the rows, and labels do change.
    low, high = float(rows.min()), float(rows.max())
    reach = 0.05 * (high - low)
    threat = ThreatModel("linf", reach, low, high)
    found = attack(model, rows, y, threat, PGD(steps=10), random_state=0)
    assert found.fooled.any()
    assert np.abs(found.X_hat - rows.astype(float)).max() <= reach
    assert found.X_hat.min() >= low and found.X_hat.max() <= high
    anew = model.predict(found.X_hat)
    np.testing.assert_array_equal(anew == y, found.right & ~found.fooled)
    proved = robust_accuracy(
        model,
        rows[::8],
        y[::8],
        threat.within(reach / 50),
        radii=1,
        attacks=[OneStep()],
    )
    assert 0 < proved.lower <= proved.upper


def test_images_of_any_layout_are_the_same_attack(networks):
    model, rows, y = networks["flat images"]
    threat = ThreatModel("l2", 3.0, 0, 16)
    found = [
        attack(model, rows[:60].reshape(-1, *shape), y[:60], threat, OneStep())
        for shape in ((64,), (8, 8), (8, 8, 1), (1, 8, 8))
    ]
    assert found[0].fooled.any()
    for other in found[1:]:
        np.testing.assert_array_equal(other.fooled, found[0].fooled)
        np.testing.assert_allclose(other.distances, found[0].distances, rtol=1e-5)


def test_resized_images_are_attacked_at_their_own_size():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = conv().set_params(image_shape=(4, 4))
        images = DIGITS.reshape(-1, 8, 8)
        model.fit(images, DIGIT)
    target = as_target(model, images)
    check_scores(target, images, model)
    threat = ThreatModel("l2", 9.0, 0, 16)
    found = attack(model, images[:60], DIGIT[:60], threat, OneStep())
    assert found.fooled.any() and found.changes.shape == (60, 8, 8)


def test_a_distilled_network_is_a_network(networks):
    model, rows, y = networks["own module"]
    student = Distilled(NeuralClassifier(model.module, max_iter=2), model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        student.fit(rows, y)
    target = as_target(student, rows)
    assert isinstance(target, Differentiated)
    check_scores(target, rows, student)


def test_evaluation_mode_does_not_depend_on_what_was_done_to_the_module():
    made = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = NeuralClassifier(made, max_iter=3, random_state=0).fit(X, Y)
    model.module_.train()
    target = as_target(model, X)
    check_scores(target, X, model)
    assert model.module_.training  # as the user left it


@pytest.mark.catalog("ADV-03")
def test_attacks_succeed_where_the_surrogate_is_large(networks):
    """Rows with a larger surrogate loss after one step are fooled the more often."""
    model, rows, y = networks["own module"]
    target = as_target(model, rows)
    threat = ThreatModel("linf", 1.0, 0, 16)
    x, t = target.rows(rows), torch.as_tensor(y)
    moved = OneStep().run(target, x, t, threat, None)
    for name in ("cross_entropy", "margin"):
        loss = SURROGATES[name].value(t, target.scores(moved)).numpy()
        fooled = target.labels(moved.numpy()) != y
        order = np.argsort(loss)
        thirds = [fooled[part].mean() for part in np.array_split(order, 3)]
        assert thirds[0] <= thirds[1] <= thirds[2] and thirds[2] > thirds[0]
        # Decreasing in the margin: it is positive exactly where the row is lost.
        if name == "margin":
            np.testing.assert_array_equal(loss > 0, fooled)


@pytest.mark.catalog("ADV-20")
@pytest.mark.parametrize("kind", ["linear", "kernel", "network", "forest"])
def test_small_changes_alter_the_label_that_the_model_itself_gives(networks, kind):
    """r with k(x + r) ≠ k(x), without true classes, checked by predicting anew."""
    made = {
        "linear": (LogisticRegression().fit(X, Y), "deepfool"),
        "kernel": (SVC().fit(X, Y), DeepFool()),
        "network": (networks["scaled"][0], DeepFool()),
        "forest": (DecisionTreeClassifier(random_state=0).fit(X, Y), "boundary"),
    }
    model, method = made[kind]
    threat = ThreatModel("l2", np.inf)
    found = attack(model, X[::6], None, threat, method, random_state=0)
    assert found.right.all() and found.fooled.mean() > 0.9
    changed = model.predict(X[::6] + found.changes) != model.predict(X[::6])
    np.testing.assert_array_equal(changed, found.fooled)
    assert np.median(found.distances) < 3


# -- modules, functions and black boxes -------------------------------------------


def small(*last):
    """A module of random weights, steep enough to saturate what may follow."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        for part in (net[0], net[2]):
            part.weight.data *= 6
    return nn.Sequential(*net, *last).eval()


def test_sigmoids_of_several_classes_are_not_taken_off():
    """Scores 18 and 36 are both 1 after a sigmoid, and then the first class wins."""
    lifted = nn.Linear(1, 2)
    with torch.no_grad():
        lifted.weight.copy_(torch.tensor([[1.0], [2.0]]))
        lifted.bias.zero_()
    module = nn.Sequential(lifted, nn.Sigmoid()).eval()
    rows = np.array([[15.0], [18.0], [2.0]])
    assert as_target(module, rows).labels(rows).tolist() == [1, 0, 1]
    found = robust_accuracy(module, rows, [1, 0, 1], ThreatModel("l2", 3.0), radii=1)
    assert not found.certified[0]
    found = robust_accuracy(module, rows, [1, 0, 1], ThreatModel("l2", 0.1), radii=1)
    assert found.certified.tolist() == [False, False, True]


@pytest.mark.parametrize("last", [nn.Softmax(dim=1), nn.LogSoftmax(dim=-1)])
def test_probabilities_are_attacked_by_their_logits(last):
    plain, ended = small(), small(last)
    y = as_target(plain, X).labels(X)
    threat = ThreatModel("l2", 0.3)
    found = [
        attack(module, X, y, threat, PGD(steps=10, restarts=1), random_state=0)
        for module in (plain, ended)
    ]
    np.testing.assert_array_equal(found[0].fooled, found[1].fooled)
    assert found[0].fooled.any()


def test_one_score_is_told_apart_from_one_probability():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)).eval()
    with torch.no_grad():
        z = net(torch.as_tensor(X, dtype=torch.float32))
        net[2].bias -= z.median()
    sure = nn.Sequential(*net, nn.Sigmoid()).eval()
    y = as_target(net, X).labels(X)
    assert 0 < y.mean() < 1
    np.testing.assert_array_equal(as_target(sure, X).labels(X), y)

    class Hidden(nn.Module):
        def forward(self, x):
            return torch.sigmoid(net(x))[:, 0]

    with pytest.raises(ValueError, match=r"between 0 and 1.*threshold=0.5"):
        as_target(Hidden().eval(), X)
    target = as_target(Hidden().eval(), X, threshold=0.5)
    np.testing.assert_array_equal(target.labels(X), y)
    lenient = as_target(sure, X, threshold=0.9)
    with torch.no_grad():
        p = sure(torch.as_tensor(X, dtype=torch.float32))[:, 0].numpy()
    np.testing.assert_array_equal(lenient.labels(X), p > 0.9)
    check = lenient.scores(lenient.rows(X)).argmax(dim=1).numpy()
    np.testing.assert_array_equal(check, p > 0.9)


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


def test_a_module_that_writes_into_its_input_is_given_copies():
    class Spoils(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(4, 3)

        def forward(self, x):
            x.mul_(2).sub_(1)
            return self.last(F.relu(x, inplace=True))

    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = Spoils().eval()
    rows = X.astype(np.float32)
    kept = rows.copy()
    threat = ThreatModel("l2", 0.5)
    found = attack(module, rows, None, threat, PGD(steps=5), random_state=0)
    np.testing.assert_array_equal(rows, kept)
    assert found.fooled.any()


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
