"""Interrupted after an epoch and resumed is not interrupted at all, for every network.

Compared bit for bit: weights and buffers, the optimiser's state, the random numbers to
come, the history but for its seconds.
"""

import numpy as np
import pytest
import torch
from torch import nn

from certus.neural_network import (
    BaggedNetworks,
    NeuralClassifier,
    NeuralRegressor,
    SignSGD,
)
from certus.neural_network.checkpoint import Checkpoints, fingerprint
from certus.threat import ThreatModel
from helpers.networks import CASES, CLASSES, NUMBERS, X, rough, small

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
EPOCHS, AFTER = 4, 2


class Stopped(Exception):
    """In place of a loss of power."""


def noise(x):
    return x + 0.1 * torch.randn_like(x)


def momentum(groups, lr):
    return SignSGD(groups, lr, momentum=0.9)


def falling(share):
    return (1 - share) ** 2


def all_of(fitted):
    """A digest of all that a run consists of."""
    model = getattr(fitted, "estimator_", fitted)
    run = model._run
    state = {
        "weights": model.module_.state_dict(),
        "trained": run.weights(),
        "optimizers": [o.state_dict() for o in run.step.optimizers.values()],
        "schedules": [s.last_epoch for s in run.schedules],
        "numbers": run.rng.bit_generator.state,
        "torch": run.torch_state,
        "history": {k: v for k, v in model.history_.items() if k != "seconds"},
        "epochs": [model.n_iter_, model.best_epoch_, run.stale, run.best_value],
    }
    return {name: fingerprint(_listed(part)) for name, part in state.items()}


def _listed(value):
    if isinstance(value, dict):
        return [[str(k), _listed(v)] for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [_listed(v) for v in value]
    return value


def interrupted(monkeypatch, make, folder, after=AFTER, **fitting):
    plain = Checkpoints.save

    def save(self, run):
        plain(self, run)
        if run.epoch == after:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        model, rows, y = make(checkpoint=folder)
        with pytest.raises(Stopped):
            model.fit(rows, y, **fitting)


def require_the_same(monkeypatch, tmp_path, make, **fitting):
    model, rows, y = make()
    whole = all_of(model.fit(rows, y, **fitting))
    interrupted(monkeypatch, make, tmp_path, **fitting)
    model, rows, y = make(checkpoint=tmp_path)
    model.fit(rows, y, **fitting)
    assert all_of(model) == whole
    assert model.n_iter_ == EPOCHS


NETWORKS = sorted(
    name for name in CASES if not name.startswith(("explicit_", "torch_"))
)
OPTIONS = {
    "plain": {},
    "averaged": {"average": 0.9, "schedule": "cosine", "warmup": 0.3},
    "polyak": {"average": "polyak", "optimizer": "sgd", "clip": 0.5},
    "svrg": {"optimizer": "svrg", "learning_rate": 0.05, "warmup": 0.5},
    "signs": {"optimizer": momentum, "learning_rate": 0.01, "schedule": falling},
    "decay": {"optimizer": "nadam", "weight_decay": 0.1, "schedule": "step"},
}
#: An attacker that begins at random.
ROBUST = {"adversarial": ThreatModel("l2", 0.5), "adversarial_steps": 2}


@pytest.mark.parametrize("options", sorted(OPTIONS))
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_with_every_kind_of_run(monkeypatch, tmp_path, name, options):
    def make(**more):
        return CASES[name](max_iter=EPOCHS, **OPTIONS[options], **more)

    require_the_same(monkeypatch, tmp_path, make)


@pytest.mark.parametrize("name", [n for n in NETWORKS if n != "consistent"])
def test_rows_held_out_and_weights_of_rows(monkeypatch, tmp_path, name):
    def make(**more):
        chosen = {"early_stopping": True, "validation_fraction": 0.3}
        return CASES[name](max_iter=EPOCHS, **chosen, **more)

    s = np.linspace(0.5, 2.0, 30)
    s[3] = 0.0
    require_the_same(monkeypatch, tmp_path, make, sample_weight=s)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("classifier", {"module": rough}),
        ("regressor", {"module": rough, "augment": noise}),
        ("tasks", {"module": rough, "average": 0.5}),
        ("consistent", {"module": rough}),
        ("distilled", {"module": rough, "early_stopping": True}),
        ("classifier", {"module": rough, "optimizer": "svrg", "augment": noise}),
        ("images", {"module": "auto", "augment": noise}),
        ("images", {"augment": noise, "average": "polyak"}),
        ("recurrent_classifier", {"dropout": 0.5, "n_layers": 2, "cell": "lstm"}),
        ("recurrent_regressor", {"dropout": 0.5, "early_stopping": True}),
        ("tagger", {"dropout": 0.5, "bidirectional": True}),
        ("translator", {"dropout": 0.5, "teacher_forcing": "scheduled"}),
        ("translator", {"teacher_forcing": 0.3, "average": 0.9, "attention": None}),
        ("texts", {"dropout": 0.5, "schedule": "linear"}),
        ("classifier", {"module": rough, **ROBUST, "alpha_operator_norm": 0.1}),
        ("classifier", {**ROBUST, "optimizer": "svrg"}),
        ("images", {**ROBUST, "lipschitz": 2.0, "average": "polyak"}),
    ],
)
def test_every_random_draw_follows_the_seed(monkeypatch, tmp_path, name, options):
    def make(**more):
        return CASES[name](max_iter=EPOCHS, **options, **more)

    require_the_same(monkeypatch, tmp_path, make)


@pytest.mark.parametrize(
    "optimizer", ["adam", "nadam", "rmsprop", "adagrad", "adadelta", "signsgd", "sgd"]
)
def test_every_optimiser(monkeypatch, tmp_path, optimizer):
    def make(**more):
        return CASES["classifier"](max_iter=EPOCHS, optimizer=optimizer, **more)

    require_the_same(monkeypatch, tmp_path, make)


def test_stopping_by_rows_that_the_user_gives(monkeypatch, tmp_path):
    def make(**more):
        return CASES["regressor"](max_iter=EPOCHS, **more)

    require_the_same(monkeypatch, tmp_path, make, X_val=X[:9], y_val=NUMBERS[:9])


def test_a_run_that_diverges_does_so_again_when_repeated(monkeypatch, tmp_path):
    """Also what it falls back to is the same."""

    def make(**more):
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        options = {"optimizer": "sgd", "learning_rate": 1.2, "max_iter": 100}
        draw = torch.Generator().manual_seed(0)
        for p in net.parameters():
            nn.init.normal_(p, generator=draw)
        return NeuralRegressor(net, **options, random_state=0, **more), X, NUMBERS

    model, rows, y = make()
    whole = model.fit(rows, y)
    assert whole.certificate_.status.value == "diverged"
    for after in range(1, whole.n_iter_ + 1):
        folder = tmp_path / str(after)
        interrupted(monkeypatch, make, folder, after)
        model, rows, y = make(checkpoint=folder)
        model.fit(rows, y)
        assert model.certificate_.status.value == "diverged"
        found, wanted = model.module_.state_dict(), whole.module_.state_dict()
        assert all(torch.equal(found[k], wanted[k]) for k in wanted), after


def test_members_of_an_ensemble_have_checkpoints_of_their_own(monkeypatch, tmp_path):
    def make(checkpoint=None):
        member = NeuralClassifier(small, max_iter=3, checkpoint=checkpoint)
        return BaggedNetworks(member, n_estimators=3, random_state=0), X, CLASSES

    whole = make()[0].fit(X, CLASSES).predict_proba(X)
    interrupted(monkeypatch, make, tmp_path)
    again = make(tmp_path)[0].fit(X, CLASSES)
    np.testing.assert_array_equal(again.predict_proba(X), whole)
