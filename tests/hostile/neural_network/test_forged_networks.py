"""Doctored networks, swapped data, rewritten evidence: no certificate may follow."""

import copy
import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import certus
from certus.certificate import Status
from certus.diagnostics.networks import evenly, spaced
from certus.neural_network import MLPRegressor, NeuralClassifier, NeuralRegressor
from helpers.networks import CASES, CLASSES, NUMBERS, X, rough, small

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
_FITTED = {}


def fitted(name, **options):
    """A copy of a fitted estimator, with its data."""
    key = name, repr(options)
    if key not in _FITTED:
        model, rows, y = CASES[name](**options)
        _FITTED[key] = model.fit(rows, y), rows, y
    model, rows, y = _FITTED[key]
    return copy.deepcopy(model), rows, y


def scaled(module):
    for p in module.parameters():
        p.mul_(1.5)


def nudged(module):
    last = next(iter(module.parameters()))[-1]
    steps = torch.arange(1, 1 + last.numel())  # a norm takes equal ones away again
    last.add_(1e-2 * steps.reshape(last.shape))


def emptied(module):
    for p in module.parameters():
        p.zero_()


def spoilt(module):
    for p in module.parameters():
        p.fill_(float("nan"))


def overflowing(module):
    for p in module.parameters():
        p.mul_(1e200 if p.dtype is torch.float64 else 1e30)


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("change", [scaled, nudged, emptied, spoilt, overflowing])
def test_other_weights_are_refuted(name, change):
    model, rows, y = fitted(name)
    with torch.no_grad():
        change(model.module_)
    assert certus.certify(model, rows, y).status is Status.REFUTED


@pytest.mark.parametrize("name", sorted(CASES))
def test_modes_and_gradients_of_a_module_change_no_claim(name):
    model, rows, y = fitted(name)
    stated = model.certificate_
    model.module_.train()  # modes and gradients are no part of what is certified
    again = certus.certify(model, rows, y)
    assert again.status is stated.status and again.value == stated.value
    assert not again["training_loss"].assumptions
    for p in model.module_.parameters():
        p.requires_grad_(False)
    frozen = certus.certify(model, rows, y, level="full")
    assert frozen.value == pytest.approx(stated.value, rel=1e-12)


@pytest.mark.parametrize("name", ["classifier", "regressor", "explicit_classifier"])
def test_swapped_targets_and_weights_are_reported(name):
    model, rows, y = fitted(name)
    s = np.ones(len(y))
    plain = certus.certify(model, rows, y, s)
    assert plain.status is not Status.REFUTED
    assert not plain["training_loss"].assumptions
    s[:2] = 2.0, 0.0  # the same sum
    for others in [(rows, y[::-1], None), (rows, y, s), (rows[::-1], y, None)]:
        found = certus.certify(model, *others)
        assert "not those of the fit" in found["training_loss"].assumptions[0]
        assert found.status not in (Status.SOLVED, Status.REFUTED)


def test_weights_in_another_order_are_not_those_of_the_fit():
    s = np.linspace(1, 2, len(CLASSES))
    model = NeuralClassifier(small, max_iter=2, random_state=0)
    model.fit(X, CLASSES, sample_weight=s)
    assert certus.certify(model, X, CLASSES, s).value == model.certificate_.value
    found = certus.certify(model, X, CLASSES, s[::-1])
    assert found.status is not Status.REFUTED
    assert "not those of the fit" in found["training_loss"].assumptions[0]


def test_a_row_that_was_checked_leaves_a_mark():
    n = 40_000
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    model = NeuralRegressor(nn.Linear(2, 1), max_iter=1, batch_size=n)
    model.fit(rows, y)
    assert not certus.certify(model, rows, y)["training_loss"].assumptions
    some = spaced(n)
    checked = some[evenly(len(some), 2048)]
    changed = rows.copy()
    changed[checked[checked % 2 == 1][5]] += 100.0
    found = certus.certify(model, changed, y)
    assert found.status is not Status.REFUTED
    assert "not those of the fit" in found["training_loss"].assumptions[0]


def test_labels_in_other_containers_are_the_same_labels():
    words = np.array(["a", "b", "c"])[CLASSES]
    model = NeuralClassifier(small, max_iter=2, random_state=0).fit(X, words)
    frame = pd.DataFrame(X)
    for y in (words.tolist(), words.astype(object), pd.Series(words)):
        found = certus.certify(model, X, y)
        assert not found["training_loss"].assumptions
        assert not certus.certify(model, frame, y)["training_loss"].assumptions


@pytest.mark.parametrize(
    "options",
    [
        {"label_smoothing": 0.2},
        {"class_weight": {0: 5.0, 1: 1.0, 2: 1.0}},
        {"loss": lambda z, y: 2 * nn.functional.cross_entropy(z, y, reduction="none")},
    ],
)
def test_another_loss_is_refuted(options):
    for before, after in ({}, options), (options, {}):
        model, rows, y = fitted("classifier", **before)
        for name in options:
            plain = {"label_smoothing": 0.0, "class_weight": None, "loss": "auto"}
            model.set_params(**{name: after.get(name, plain[name])})
        assert certus.certify(model, rows, y).status is Status.REFUTED


def test_classes_in_another_order_are_refuted():
    model, rows, y = fitted("classifier")
    model.classes_ = model.classes_[::-1]
    with pytest.raises(ValueError, match="not fitted on"):
        certus.certify(model, rows, y)
    model.classes_ = np.array([1, 2, 3])
    with pytest.raises(ValueError, match="not fitted on"):
        certus.certify(model, rows, y)


def test_buffers_count():
    model, rows, y = fitted("classifier", module=rough)
    again = certus.certify(model, rows, y)
    assert again.value == model.certificate_.value
    model.module_[1].running_mean += 1.0
    assert certus.certify(model, rows, y).status is Status.REFUTED


def test_a_fit_whose_loss_is_nan_is_never_called_solved():
    class Odd(nn.Module):
        """Trains well, and gives nothing in evaluation mode."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x):
            z = self.layer(x)
            return z if self.training else z * float("nan")

    model = NeuralRegressor(Odd(), max_iter=3, schedule="linear", random_state=0)
    model.fit(X, NUMBERS)
    assert model.certificate_.status is Status.DIVERGED
    assert np.isnan(model.certificate_.value)
    assert certus.certify(model, X, NUMBERS, level="full").status is Status.DIVERGED


# -- evidence -------------------------------------------------------------------------


def with_witness(model, **parts):
    stated = model.certificate_
    witness = stated.evidence.witness._replace(**parts)
    evidence = dataclasses.replace(stated.evidence, witness=witness)
    model.certificate_ = dataclasses.replace(stated, evidence=evidence)
    return model


def test_a_rewritten_history_gives_no_claim():
    model, rows, y = fitted("classifier")
    assert certus.certify(model, rows, y).status is Status.MAX_ITER
    model.history_["loss"] = [2.0, *np.ones(20)]
    found = certus.certify(with_witness(model, epochs=21, settled=True), rows, y)
    assert found.status is Status.MAX_ITER and found.met is None


@pytest.mark.parametrize(
    "params",
    [
        {"epochs": "many"},
        {"epochs": -1},
        {"best_epoch": 1.5},
        {"kept": "last"},
        {"diverged": "yes"},
        {"diverged": [1, 2]},
    ],
)
def test_a_witness_that_no_fit_leaves_gives_one_message(params):
    model, rows, y = fitted("classifier")
    (name,) = params
    with pytest.raises(ValueError, match=rf"changed after (its|the) fit: {name} is"):
        certus.certify(with_witness(model, **params), rows, y)


def test_a_history_that_is_not_a_column_gives_one_message():
    model, rows, y = fitted("classifier")
    model.history_["loss"] = [["a"]]
    with pytest.raises(ValueError, match="history_ does not hold columns of numbers"):
        certus.certify(model, rows, y)


# -- points where derivatives say little ----------------------------------------------


def test_a_network_of_zeros_is_not_accused_of_a_wrong_gradient():
    def zeros(n, k):
        net = nn.Sequential(nn.Linear(n, 3), nn.ReLU(), nn.Linear(3, k))
        with torch.no_grad():
            emptied(net)
        return net

    model = NeuralRegressor(zeros, max_iter=2, random_state=0).fit(X, NUMBERS)
    found = certus.certify(model, X, NUMBERS, level="full")
    assert "gradient_ratio" not in found or found["gradient_ratio"].value < 1e-4
    assert found["dead_units"].value == 3


def test_kinks_exactly_on_the_rows():
    """First weights that are zero: every row lies on every kink."""

    def kinked(n, k):
        net = nn.Sequential(nn.Linear(n, 3), nn.ReLU(), nn.Linear(3, k)).double()
        with torch.no_grad():
            net[0].weight.zero_()
            net[0].bias.zero_()
        return net

    model = NeuralRegressor(kinked, max_iter=2, random_state=0).fit(X, NUMBERS)
    found = certus.certify(model, X, NUMBERS, level="full")
    assert found["gradient_ratio"].value < 1e-4


def test_a_wrong_gradient_is_reported():
    def rounded(z, y):
        return (z - y).square() + 5 * (z - z.detach())  # a slope the loss has not

    model = NeuralRegressor(small, loss=rounded, max_iter=2, random_state=0)
    claim = model.fit(X, NUMBERS).certificate_["gradient_ratio"]
    assert claim.value > 0.1
    assert "not the gradient of this loss" in claim.detail and "detach" in claim.fix


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_absurd_scales_leave_a_right_ratio_or_none(scale):
    model = MLPRegressor(hidden_layer_sizes=3, alpha=0, max_iter=2, random_state=0)
    found = model.fit(X * scale, NUMBERS * scale).certificate_
    assert "gradient_ratio" not in found or found["gradient_ratio"].value < 1e-3


# -- what is no data, and no model ----------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "y", "words"),
    [
        (X, CLASSES[:-1], "X has 30 rows and y has 29"),
        ("folder/of/images", CLASSES, "X is a path"),
        (None, CLASSES, "one entry per row"),
        (X[:0], CLASSES[:0], "row"),
        (X[:, :2], CLASSES, "2 features"),
    ],
)
def test_data_of_other_sizes_give_one_message(rows, y, words):
    model, _, _ = fitted("classifier")
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        certus.certify(model, rows, y)
    assert len(str(caught.value)) < 200


def test_a_bare_module_is_recognised():
    with pytest.raises(ValueError, match="a plain torch module"):
        certus.certify(nn.Linear(3, 1), X, NUMBERS)


def test_a_loss_without_the_network_is_reported():
    model = NeuralRegressor(small, loss=lambda z, y: (0 * y).flatten(), max_iter=2)
    with pytest.raises(ValueError, match="does not depend on the module's parameters"):
        model.fit(X, NUMBERS)


def test_a_flat_loss_is_not_taken_for_a_minimum():
    def flat(z, y):
        return (0 * (z - y)).flatten()

    model = NeuralRegressor(small, loss=flat, max_iter=2, random_state=0)
    found = model.fit(X, NUMBERS).certificate_
    assert found["gradient_norm"].value == 0
    assert "gradient_ratio" not in found and found.met is None
