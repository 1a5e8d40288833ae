"""Networks and modules as they are attacked: raw units, their own scaling inside."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier

from certus import decomposition
from certus.linear_model import LogisticRegression
from certus.robustness import (
    PGD,
    DeepFool,
    OneStep,
    ThreatModel,
    as_target,
    attack,
    robust_accuracy,
)
from certus.robustness.attacks import SURROGATES
from certus.robustness.target import Differentiated
from certus.svm import SVC
from helpers.targets import check_gradients, check_scores

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from certus.neural_network import (  # noqa: E402
    ConvNetClassifier,
    Distilled,
    MLPClassifier,
    NeuralClassifier,
)

X, Y = load_iris(return_X_y=True)
DIGITS, DIGIT = (part[:240] for part in load_digits(n_class=3, return_X_y=True))


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
            "projected": (make_pipeline(decomposition.PCA(3), tanh()), X, Y),
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
    exact = target.copied().double()
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
        random_state=0,
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
    student = Distilled(NeuralClassifier(model.module, max_iter=2), teacher=model)
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
    found = robust_accuracy(
        module, rows, [1, 0, 1], ThreatModel("l2", 3.0), radii=1, random_state=0
    )
    assert not found.certified[0]
    found = robust_accuracy(
        module, rows, [1, 0, 1], ThreatModel("l2", 0.1), radii=1, random_state=0
    )
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


def test_one_score_is_distinguished_from_one_probability():
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
