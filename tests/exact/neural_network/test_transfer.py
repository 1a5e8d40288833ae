"""Pre-training and fine-tuning: what is kept, and how many labels it saves."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from certus.neural_network import (
    NeuralClassifier,
    NeuralRegressor,
    freeze,
    load_backbone,
    replace_head,
)
from certus.neural_network.modules import MLP

QUICK = {"learning_rate": 0.01, "schedule": "cosine", "random_state": 0}


def needed(make, train, test, target=0.9):
    """How many labelled rows a model needs for an accuracy."""
    for n in (10, 20, 40, 80, 160, 320, 640):
        if make().fit(train[0][:n], train[1][:n]).score(*test) >= target:
            return n
    return 1280


@pytest.mark.catalog("NN-53")
def test_a_pretrained_network_needs_fewer_labels():
    rng = np.random.default_rng(0)
    W = rng.normal(size=(12, 4)) / np.sqrt(12)

    def features(X):
        return np.tanh(4 * X @ W)

    X = rng.normal(size=(3000, 12))
    body = NeuralRegressor(lambda n, k: MLP(n, 64, k), **QUICK, max_iter=60)
    body.fit(X, features(X) @ rng.normal(size=(4, 8)))  # a generic task, much data
    new = rng.normal(size=(1800, 12))
    y = (features(new) @ np.array([1.0, -1.0, 1.0, 1.0]) > 0).astype(int)
    train, test = (new[:800], y[:800]), (new[800:], y[800:])
    tuned = freeze(replace_head(body, 2, random_state=0))
    settings = {**QUICK, "learning_rate": 0.02, "max_iter": 60}
    fine = needed(lambda: NeuralClassifier(tuned, **settings), train, test)
    scratch = needed(
        lambda: NeuralClassifier(lambda n, k: MLP(n, 64, k), **settings), train, test
    )
    assert fine * 2 <= scratch


def test_frozen_layers_stay_and_the_head_is_trained():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(80, 3)), rng.integers(2, size=80)
    net = freeze(MLP(3, (8, 8), 2, normalization="batch"))
    model = NeuralClassifier(net, **QUICK, max_iter=5, weight_decay=0.1).fit(X, y)
    before, after = net.state_dict(), model.module_.state_dict()
    changed = {k for k in before if not torch.equal(before[k], after[k])}
    assert changed == {"output.weight", "output.bias"}  # nor running statistics
    assert model.certificate_["gradient_norm"].value >= 0


def test_batch_norms_that_are_not_frozen_learn():
    rng = np.random.default_rng(1)
    X, y = 3 + rng.normal(size=(80, 3)), rng.integers(2, size=80)
    net = freeze(MLP(3, (8, 8), 2, normalization="batch"), "layers.0")
    model = NeuralClassifier(net, **QUICK, max_iter=2).fit(X, y)
    before, after = net.state_dict(), model.module_.state_dict()
    assert torch.equal(
        before["layers.0.norm.running_mean"], after["layers.0.norm.running_mean"]
    )
    assert not torch.equal(
        before["layers.1.norm.running_mean"], after["layers.1.norm.running_mean"]
    )


def test_layers_are_frozen_by_name():
    net = MLP(3, (4, 4), 2)
    some = freeze(net, ["layers.0", "output.bias"])
    left = {name for name, p in some.named_parameters() if p.requires_grad}
    assert left == {"layers.1.linear.weight", "layers.1.linear.bias", "output.weight"}
    assert all(p.requires_grad for p in net.parameters())  # a copy was changed
    with pytest.raises(ValueError, match=r"no layer 'layers.7'"):
        freeze(net, "layers.7")
    everything = freeze(net, ["layers", "output"])
    with pytest.raises(ValueError, match="no parameters to train"):
        NeuralClassifier(everything, **QUICK).fit([[0.0] * 3, [1.0] * 3], [0, 1])


def test_a_new_head_leaves_all_other_weights():
    net = MLP(3, 4, 7, normalization="layer").double()
    new = replace_head(net, 2, random_state=0)
    assert new.output.weight.shape == (2, 4)
    assert new.output.weight.dtype == torch.float64
    assert new.config["n_outputs"] == 2 and net.config["n_outputs"] == 7
    for name, value in net.state_dict().items():
        if not name.startswith("output"):
            assert torch.equal(value, new.state_dict()[name])
    again = replace_head(net, 2, random_state=0)
    assert torch.equal(again.output.weight, new.output.weight)
    rebuilt = MLP(**new.config).double()
    rebuilt.load_state_dict(new.state_dict())
    x = torch.ones(1, 3).double()
    assert torch.equal(rebuilt(x), new(x))


def test_heads_are_found_in_any_module():
    chain = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4, bias=False))
    new = replace_head(chain, 9)
    assert new[2].weight.shape == (9, 5) and new[2].bias is None
    assert replace_head(nn.Linear(3, 5), 2).weight.shape == (2, 3)
    with pytest.raises(ValueError, match="no linear layer"):
        replace_head(nn.Conv2d(1, 2, 3), 2)
    with pytest.raises(ValueError, match="n_outputs"):
        replace_head(chain, 0)
    with pytest.raises(TypeError, match=r"nn\.Module"):
        replace_head("resnet", 2)


def test_backbones_come_from_modules_states_files_and_estimators(tmp_path):
    donor, net = MLP(3, 4, 7), MLP(3, 4, 2)
    path = tmp_path / "donor.safetensors"
    save_file(donor.state_dict(), path)
    model = NeuralClassifier(donor, **QUICK, max_iter=1)
    model.fit(np.eye(7, 3), np.arange(7))
    for source in (donor, donor.state_dict(), path, str(path), model):
        loaded = load_backbone(net, source)
        assert loaded.left_out == ["output.weight", "output.bias"]
        state = source.module_ if source is model else donor
        weight = state.state_dict()["layers.0.linear.weight"]
        assert torch.equal(loaded.layers[0].linear.weight, weight)
        assert torch.equal(loaded.output.weight, net.output.weight)
    assert not torch.equal(net.layers[0].linear.weight, donor.layers[0].linear.weight)
    with pytest.raises(ValueError, match="None of the weights fits"):
        load_backbone(MLP(5, 6, 2), donor)
    path.write_bytes(b"not a file of tensors")
    with pytest.raises(ValueError, match="cannot be read"):
        load_backbone(net, path)
    with pytest.raises(ValueError, match="cannot be read"):
        load_backbone(net, tmp_path / "absent.safetensors")
