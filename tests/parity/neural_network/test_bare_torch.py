"""A bare PyTorch loop with the same seed and batches has the same weights, bit for bit.

The loop here is what one would write by hand; it shares no line with the library.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import certus
from certus.neural_network import NeuralClassifier, NeuralRegressor

N, EPOCHS, BATCH = 70, 3, 16


def mlp():
    return nn.Sequential(
        nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Linear(8, 3)
    )


def cnn():
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Dropout(0.2), nn.Linear(4 * 3 * 3, 3)),
    )


def bare_loop(build, X, y, loss, optimizer, schedule=None, clip=None):
    """Train as the documentation of PyTorch does."""
    seed = np.random.RandomState(7).randint(np.iinfo(np.int32).max)
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63 - 1)))
        module = build()
        moving = optimizer(module)
        total = EPOCHS * math.ceil(N / BATCH)
        if schedule is not None:
            plan = torch.optim.lr_scheduler.LambdaLR(
                moving, lambda k: schedule(k / total)
            )
        for _ in range(EPOCHS):
            for rows in torch.from_numpy(rng.permutation(N)).split(BATCH):
                moving.zero_grad()
                loss(module(X[rows]), y[rows]).backward()
                if clip is not None:
                    nn.utils.clip_grad_norm_(module.parameters(), clip)
                moving.step()
                if schedule is not None:
                    plan.step()
    return module.eval()


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, nesterov=True)


def adam(module):
    return torch.optim.Adam(module.parameters(), lr=0.01, fused=True)


def adamw(module):
    weights = [module[0].weight, module[4].weight]
    others = [module[0].bias, *module[3].parameters(), module[4].bias]
    groups = [
        {"params": weights, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.01, fused=True)


def cosine(t):
    return 0.5 * (1 + math.cos(math.pi * t))


CASES = {
    "sgd": (sgd, {"optimizer": "sgd", "learning_rate": 0.05}, {}),
    "adam": (adam, {"learning_rate": 0.01}, {}),
    "weight decay": (adamw, {"learning_rate": 0.01, "weight_decay": 0.1}, {}),
    "schedule": (
        sgd,
        {"optimizer": "sgd", "learning_rate": 0.05, "schedule": "cosine"},
        {"schedule": cosine},
    ),
    "clip": (adam, {"learning_rate": 0.01, "clip": 0.1}, {"clip": 0.1}),
}


def assert_same(found, wanted):
    found, wanted = found.state_dict(), wanted.state_dict()
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        assert torch.equal(found[name], value), name


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 5)).astype(np.float32)
    return X, rng.integers(0, 3, N)


def fitted(cls, module, X, y, **options):
    model = cls(
        module, batch_size=BATCH, max_iter=EPOCHS, tol=0.0, random_state=7, **options
    )
    with certus.config_context(on_uncertified="ignore"):  # it ends at max_iter
        return model.fit(X, y)


@pytest.mark.catalog("NN-30")
@pytest.mark.parametrize("case", CASES)
def test_a_classifier_has_the_weights_of_the_bare_loop(rows, case):
    X, y = rows
    optimizer, ours, theirs = CASES[case]
    model = fitted(NeuralClassifier, lambda d, k: mlp(), X, y, **ours)
    tensors = torch.from_numpy(X), torch.from_numpy(y)
    wanted = bare_loop(mlp, *tensors, F.cross_entropy, optimizer, **theirs)
    assert_same(model.module_, wanted)
    with torch.inference_mode():
        p = torch.softmax(wanted(tensors[0]), dim=1).numpy()
    assert np.array_equal(model.predict_proba(X), p)


def test_a_convolutional_network_has_the_weights_of_the_bare_loop():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 1, 8, 8)).astype(np.float32)
    y = rng.integers(0, 3, N)
    model = fitted(NeuralClassifier, lambda *_: cnn(), X, y, learning_rate=0.01)
    tensors = torch.from_numpy(X), torch.from_numpy(y)
    assert_same(model.module_, bare_loop(cnn, *tensors, F.cross_entropy, adam))


def test_a_regressor_has_the_weights_of_the_bare_loop(rows):
    X, _ = rows
    y = X @ np.arange(5, dtype=np.float32)

    def build():
        return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))

    def loss(z, y):
        return 0.5 * F.mse_loss(z.squeeze(1), y)

    model = fitted(NeuralRegressor, lambda *_: build(), X, y, learning_rate=0.01)
    wanted = bare_loop(build, torch.from_numpy(X), torch.from_numpy(y), loss, adam)
    for p, q in zip(model.module_.parameters(), wanted.parameters()):
        assert torch.allclose(p, q, rtol=1e-5, atol=1e-7)


def test_an_average_is_that_of_the_path_of_the_bare_loop(rows):
    X, y = rows
    model = fitted(NeuralClassifier, lambda *_: mlp(), X, y, average="polyak")
    assert model.module_ is not model._run.step.modules["module"]
    path, tensors = [], (torch.from_numpy(X), torch.from_numpy(y))

    def recording(module):
        optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, fused=True)
        optimizer.register_step_post_hook(
            lambda *_: path.append([p.detach().clone() for p in module.parameters()])
        )
        return optimizer

    bare_loop(mlp, *tensors, F.cross_entropy, recording)
    for k, p in enumerate(model.module_.parameters()):
        mean = torch.stack([point[k].double() for point in path]).mean(dim=0)
        assert torch.allclose(p.double(), mean, rtol=1e-5, atol=1e-7)
