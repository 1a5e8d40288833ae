"""What somebody used to torch or scikit-learn tries first, and what is said to it."""

import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import certus
from certus.base import UncertifiedWarning
from certus.neural_network import (
    BaggedNetworks,
    MLPClassifier,
    NeuralClassifier,
    NeuralRegressor,
    load_backbone,
)
from certus.neural_network.modules import MLP

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6))
Y = (X[:, 0] > 0).astype(int)


def linear(d, k):
    return nn.Linear(d, k)


@pytest.mark.parametrize(
    "several",
    [
        (X[:, :4], X[:, 4:]),
        [torch.zeros(40, 4), torch.zeros(40, 2)],
        {"a": X[:, :4], "b": X[:, 4:]},
    ],
    ids=["tuple", "tensors", "dict"],
)
def test_several_inputs_go_side_by_side(several):
    with pytest.raises(TypeError, match="side by side as columns"):
        NeuralClassifier(linear).fit(several, Y)


def test_a_list_of_equal_arrays_is_an_array():
    rows = list(X.reshape(40, 2, 3))
    net = nn.Sequential(nn.Flatten(), nn.Linear(6, 2))
    with certus.config_context(on_uncertified="ignore"):
        assert NeuralClassifier(net, max_iter=1).fit(rows, Y).predict(rows).shape == (
            40,
        )


@pytest.mark.parametrize("wrap", [lambda d: d, DataLoader], ids=["set", "loader"])
def test_data_sets_of_torch_are_named(wrap):
    dataset = TensorDataset(torch.tensor(X), torch.tensor(Y))
    with pytest.raises(TypeError, match="Pass its arrays as X and y"):
        NeuralClassifier(linear).fit(wrap(dataset), Y)


def test_a_function_without_arguments_is_refused_with_a_hint():
    with pytest.raises(TypeError, match=r"the call module\(6, 1\) failed"):
        NeuralRegressor(lambda: nn.Linear(6, 1)).fit(X, X[:, 0])


def test_probabilities_are_not_scores():
    net = nn.Sequential(nn.Linear(6, 2), nn.Softmax(dim=1))
    with pytest.raises(ValueError, match="not the probabilities of a softmax"):
        NeuralClassifier(net).fit(X, Y)

    def likelihood(p, y):
        return nn.functional.nll_loss(torch.log(p), y, reduction="none")

    with certus.config_context(on_uncertified="ignore"):
        NeuralClassifier(net, loss=likelihood, max_iter=1).fit(X, Y)


def test_a_run_cut_short_names_the_remedy_and_a_finished_one_none():
    with pytest.warns(UncertifiedWarning, match=r"Fix: raise max_iter \(now 3\)"):
        model = NeuralClassifier(linear, max_iter=3, random_state=0).fit(X, Y)
    assert model.certificate_["training_loss"].fix == "raise max_iter (now 3)"
    done = NeuralClassifier(linear, max_iter=3, schedule="cosine").fit(X, Y)
    assert done.certificate_["training_loss"].fix == ""
    settled = NeuralClassifier(linear, max_iter=99, tol=1.0, n_iter_no_change=2)
    assert settled.fit(X, Y).certificate_["training_loss"].fix == ""


def test_objects_among_the_parameters_are_shown_without_quotes():
    with certus.config_context(on_uncertified="ignore"):
        model = MLPClassifier((5, 4), max_iter=2, solver="sgd").fit(X, Y)
    title = str(model.certificate_).replace("\n    ", " ")
    assert "hidden_layer_sizes=(5, 4), max_iter=2, solver='sgd'" in title


def test_members_of_a_bag_need_probabilities():
    with pytest.raises(TypeError, match="LinearSVC has no predict_proba"):
        BaggedNetworks(LinearSVC(), n_estimators=2).fit(X, Y)


def test_other_files_are_read_by_their_own_readers(tmp_path):
    torch.save(nn.Linear(6, 2).state_dict(), tmp_path / "net.pt")
    with pytest.raises(ValueError, match=r"result of torch\.load"):
        load_backbone(nn.Linear(6, 2), tmp_path / "net.pt")
    with certus.config_context(on_uncertified="ignore"):
        model = NeuralClassifier(MLP(6, 4, 2), max_iter=1).fit(X, Y)
    path = model.save(tmp_path / "net.certus")
    with pytest.raises(ValueError, match=r"with certus\.load first"):
        load_backbone(MLP(6, 4, 3), path)
    assert load_backbone(MLP(6, 4, 3), certus.load(path)).left_out == [
        "output.weight",
        "output.bias",
    ]


@pytest.mark.parametrize(
    ("options", "kind", "told"),
    [
        ({"average": "ema"}, ValueError, "decay of an exponential average"),
        (
            {"schedule": torch.optim.lr_scheduler.ExponentialLR},
            TypeError,
            "takes the share of training",
        ),
        ({"augment": "shift"}, TypeError, "names are for images"),
        ({"label_smoothing": 10}, ValueError, "at most 1"),
    ],
    ids=["average", "schedule", "augment", "smoothing"],
)
def test_settings_of_other_libraries_are_distinguished(options, kind, told):
    with pytest.raises(kind, match=told):
        NeuralClassifier(linear, **options).fit(X, Y)
