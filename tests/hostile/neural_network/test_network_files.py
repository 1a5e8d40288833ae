"""Forged files of networks: other configs, other weights, sizes that fill memory."""

import copy
import time

import numpy as np
import pytest
import torch
from torch import nn

import certus
from certus.certificate import Status
from certus.neural_network import NeuralClassifier, modules
from certus.objectives import L1L2
from certus.persist import ModelFileError, container, decode, encode, load, save
from helpers.networks import CLASSES, X

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
NETWORKS = {
    "ConvNet": lambda: modules.ConvNet(1, (8, 8), 2, channels=(2, 2), hidden=3),
    "DenseNet": lambda: modules.DenseNet(1, 2, growth=2, n_layers=(1, 1)),
    "LSTMCell": lambda: modules.LSTMCell(2, 3),
    "MLP": lambda: modules.MLP(3, (4, 4), 2, normalization="batch"),
    "Recurrent": lambda: modules.Recurrent(2, 3, 2),
    "ResNet": lambda: modules.ResNet(1, 2, channels=(2, 2), blocks=1),
    "EncoderDecoder": lambda: modules.EncoderDecoder(4, 4, hidden=2),
    "TextCNN": lambda: modules.TextCNN(4, 2, embedding=2, channels=2),
}
ODD = [-1, 0, 0.5, 4096, 2**40, "x", None, [], {}, [4096] * 50, [0], "__import__"]


def written(network):
    tensors = {}
    return encode(network, tensors), tensors


def refused(data, tensors):
    with pytest.raises(ModelFileError) as caught:
        decode(data, tensors)
    text = str(caught.value)
    assert len(text) < 500
    return text


def leaves(value, path=()):
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))
    else:
        yield path


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_another_config_gives_an_error_or_the_same_network(name):
    data, tensors = written(NETWORKS[name]())
    assert decode(data, tensors).state_dict().keys()
    told = 0
    for path in leaves(data["config"]):
        for new in ODD:
            forged = copy.deepcopy(data)
            place = forged["config"]
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = new
            start = time.perf_counter()
            try:
                decode(forged, tensors)
            except ModelFileError as error:
                assert len(str(error)) < 500
                told += 1
            assert time.perf_counter() - start < 5
    assert told


def test_layers_that_multiply_are_not_built():
    data, tensors = written(NETWORKS["DenseNet"]())
    data["config"]["n_layers"] = [4096] * 100
    start = time.perf_counter()
    refused(data, tensors)
    assert time.perf_counter() - start < 5
    data, tensors = written(NETWORKS["MLP"]())
    data["config"]["hidden"] = [1] * 4000
    assert "more layers" in refused(data, tensors)


def test_building_elsewhere_goes_on():
    """The count is of one file in one thread, and ends with it."""
    data, tensors = written(NETWORKS["MLP"]())
    data["config"]["hidden"] = [1] * 4000
    refused(data, tensors)
    assert len(list(modules.MLP(3, [1] * 300, 2).parameters())) == 602


@pytest.mark.parametrize("name", ["os.system", "Module", "Linear", "nn", 5, None, ""])
def test_other_classes_are_not_looked_for(name):
    data, tensors = written(NETWORKS["MLP"]())
    data["class"] = name
    refused(data, tensors)


@pytest.mark.parametrize("kind", [np.int64, np.bool_, np.complex128])
def test_weights_of_another_kind(kind):
    data, tensors = written(NETWORKS["MLP"]().double())
    data["state"] = copy.deepcopy(data["state"])
    name = next(key for key in tensors if "weight" in key)
    tensors[name] = tensors[name].astype(kind)
    refused(data, tensors)


def test_weights_of_two_dtypes():
    network = NETWORKS["MLP"]()
    network.output.double()
    with pytest.raises(ModelFileError, match="several dtypes"):
        written(network)
    for dtype in (torch.float16, torch.float64):
        whole = NETWORKS["MLP"]().to(dtype)
        again = decode(*written(whole))
        assert {p.dtype for p in again.parameters()} == {dtype}


def test_weights_that_are_missing_or_too_many():
    data, tensors = written(NETWORKS["MLP"]())
    state = data["state"]
    less = copy.deepcopy(data)
    less["state"].popitem()
    assert "do not match" in refused(less, tensors)
    more = copy.deepcopy(data)
    more["state"]["extra"] = encode(np.ones(3), tensors)
    assert "do not match" in refused(more, tensors)
    twice = copy.deepcopy(data)
    keys = list(state)
    twice["state"][keys[0]] = copy.deepcopy(state[keys[2]])
    refused(twice, tensors)
    data["frozen"] = ["nothing"]
    refused(data, tensors)


def test_parts_of_networks_are_not_networks():
    with pytest.raises(ModelFileError, match="part of a network"):
        written(modules.Heaviside())
    with pytest.raises(ModelFileError, match="never code"):
        written(nn.Linear(2, 2))


def test_weights_changed_in_a_file_are_refuted(tmp_path):
    def small(n, k):
        return modules.MLP(n, 4, k)

    model = NeuralClassifier(small(3, 3), max_iter=3, random_state=0).fit(X, CLASSES)
    path = save(model, tmp_path / "model.certus")
    assert certus.certify(load(path), X, CLASSES).value == model.certificate_.value
    manifest, tensors = container.unseal(path)
    manifest.pop("sha256")
    for name, change in (("weight", 0.1), ("bias", np.nan)):
        forged = dict(tensors)
        key = next(k for k in forged if k.startswith("module_") and k.endswith(name))
        forged[key] = forged[key].copy()
        forged[key].flat[0] += change
        path.write_bytes(container.seal(dict(manifest), forged))
        again = load(path)
        assert again.certificate_.origin == "file"
        assert certus.certify(again, X, CLASSES).status is Status.REFUTED


def test_a_folder_of_checkpoints_does_not_keep_a_model_from_its_file(tmp_path):
    module = modules.MLP(3, 4, 3)
    model = NeuralClassifier(module, max_iter=2, checkpoint=tmp_path / "kept")
    path = save(model.fit(X, CLASSES), tmp_path / "model.certus")
    assert load(path).checkpoint == tmp_path / "kept"


def test_files_with_former_names_are_read():
    data, tensors = written(NETWORKS["EncoderDecoder"]())
    network = decode({**data, "class": "Seq2Seq"}, tensors)
    assert type(network) is modules.EncoderDecoder
    term = {"~": "term", "class": "ElasticNet", "values": [1.0, 2.0]}
    assert decode(term, {}) == L1L2(1.0, 2.0)
