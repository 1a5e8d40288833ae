"""Checkpoints under kill -9, full disks, damage and changes of mind."""

import errno
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from certus.neural_network import checkpoint
from certus.neural_network.checkpoint import (
    NAMES,
    CheckpointError,
    Checkpoints,
    fingerprint,
)
from certus.neural_network.objective import GradientStep
from certus.persist import container
from helpers import killed_fits
from helpers.killed_fits import EPOCHS, data, fit, model, network, weights


class Stopped(Exception):
    """In place of a loss of power."""


def stop_after(monkeypatch, epoch):
    plain = Checkpoints.save

    def save(self, run):
        plain(self, run)
        if run.epoch == epoch:
            raise Stopped

    monkeypatch.setattr(Checkpoints, "save", save)


def interrupted(monkeypatch, folder, epoch=7, **options):
    with monkeypatch.context() as patch:
        stop_after(patch, epoch)
        with pytest.raises(Stopped):
            fit(folder, **options)
    return folder


@pytest.fixture(scope="module")
def whole():
    """The fit that nobody interrupts."""
    return fit()


def test_killed_at_any_moment_and_resumed_is_not_killed_at_all(tmp_path):
    told = subprocess.run(
        [sys.executable, killed_fits.__file__, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
    )
    found = json.loads(told.stdout)
    assert found["same"] == [True, True]
    assert found["died"] > 0
    # Half a file lay there under another name, and was cleared away.
    assert any(name.endswith(".tmp") for name in found["left"])
    assert found["tidy"] == list(NAMES)


@pytest.mark.parametrize("epoch", [1, 2, 7, EPOCHS - 1, EPOCHS])
def test_interrupted_and_resumed_is_uninterrupted(monkeypatch, tmp_path, whole, epoch):
    found = fit(interrupted(monkeypatch, tmp_path, epoch))
    assert weights(found) == weights(whole)
    assert found.best_epoch_ == whole.best_epoch_
    for name in ("loss", "validation_loss", "validation_score"):
        assert found.history_[name] == whole.history_[name]
    assert len(found.history_["seconds"]) == EPOCHS


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd", "learning_rate": 0.05},
        {"optimizer": "svrg", "learning_rate": 0.05},
        {"optimizer": "signsgd", "average": "polyak", "clip": 0.1},
        {"early_stopping": False, "average": None, "weight_decay": 0.1},
        {"optimizer": "rmsprop", "schedule": None, "warmup": 0.0},
    ],
)
def test_every_kind_of_run_is_resumed_bit_for_bit(monkeypatch, tmp_path, options):
    options = {**options, "max_iter": 6}
    whole = fit(**options)
    assert weights(
        fit(interrupted(monkeypatch, tmp_path, 3, **options), **options)
    ) == (weights(whole))


def test_without_a_seed_the_rows_held_out_stay_held_out(monkeypatch, tmp_path):
    folder = interrupted(monkeypatch, tmp_path, random_state=None)
    seen = []
    plain = Checkpoints.resume

    def resume(self, run, about):
        seen.append(about["data"])
        plain(self, run, about)

    monkeypatch.setattr(Checkpoints, "resume", resume)
    fit(folder, random_state=None)
    fit(folder, random_state=None)
    assert seen[0] == seen[1]


def test_a_finished_fit_is_returned_and_a_longer_one_goes_on(monkeypatch, tmp_path):
    options = {"schedule": None, "warmup": 0.0}
    short = fit(tmp_path, max_iter=5, **options)
    with monkeypatch.context() as patch:
        patch.setattr(GradientStep, "__call__", lambda *_: 1 / 0)
        again = fit(tmp_path, max_iter=5, **options)
    assert weights(again) == weights(short)
    assert again.history_ == short.history_
    longer = fit(tmp_path, max_iter=8, **options)
    assert weights(longer) == weights(fit(max_iter=8, **options))


def test_a_plateau_is_not_trained_on(tmp_path):
    options = {"tol": 1e9, "n_iter_no_change": 2, "early_stopping": False}
    ended = fit(tmp_path, **options)
    assert ended.n_iter_ == 3
    assert weights(fit(tmp_path, **options)) == weights(ended)


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "text", "forged"])
def test_the_previous_checkpoint_is_used_if_the_newest_is_damaged(
    monkeypatch, tmp_path, whole, damage
):
    folder = interrupted(monkeypatch, tmp_path, 7)
    newest = folder / NAMES[1]
    spoil(newest, damage)
    with pytest.warns(
        RuntimeWarning, match=r"continues from the other .* after epoch 6"
    ):
        found = model(folder).fit(*data())
    assert weights(found) == weights(whole)


def spoil(path, damage):
    blob = path.read_bytes()
    if damage == "cut":
        path.write_bytes(blob[: len(blob) // 2])
    elif damage == "flipped":
        path.write_bytes(blob[:-1] + bytes([blob[-1] ^ 1]))
    elif damage == "emptied":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("not a checkpoint")
    else:
        path.write_bytes(
            container.seal({"checkpoint": 1, "epoch": 99, "state": []}, {})
        )


def test_a_forged_state_is_ignored(monkeypatch, tmp_path, whole):
    folder = interrupted(monkeypatch, tmp_path, 7)
    manifest, tensors = container.unseal(folder / NAMES[1])
    manifest["state"]["run"]["optimizers"]["module"] = {"state": 5}
    (folder / NAMES[1]).write_bytes(container.seal(manifest, tensors))
    assert weights(fit(folder)) == weights(whole)


def test_two_damaged_checkpoints_are_reported(monkeypatch, tmp_path):
    folder = interrupted(monkeypatch, tmp_path, 7)
    for name in NAMES:
        spoil(folder / name, "cut")
    with pytest.raises(
        CheckpointError, match=r"No checkpoint in .* can be read"
    ) as info:
        fit(folder)
    assert "is cut short" in str(info.value)
    assert "Delete the folder to start again." in str(info.value)


def test_a_file_that_is_not_a_checkpoint_is_reported(tmp_path):
    from certus.linear_model import Ridge
    from certus.persist import save

    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    save(Ridge().fit(X, X[:, 0]), tmp_path / NAMES[0])
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        fit(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learning_rate": 0.5}, r"learning_rate was 0\.001 and is now 0\.5"),
        ({"random_state": 4}, "random_state was 3 and is now 4"),
        ({"average": None}, r"average was 0\.95 and is now None"),
        ({"augment": None}, "augment was .*noise and is now None"),
        ({"batch_size": 20}, "batch_size was 16 and is now 20"),
    ],
)
def test_other_parameters_are_refused(monkeypatch, tmp_path, options, words):
    folder = interrupted(monkeypatch, tmp_path)
    with pytest.raises(CheckpointError, match=words):
        fit(folder, **options)


def test_another_architecture_is_refused_with_the_difference(monkeypatch, tmp_path):
    folder = interrupted(monkeypatch, tmp_path)

    def refused(build, words):
        build.__module__, build.__qualname__ = network.__module__, network.__qualname__
        changed = model(folder).set_params(module=build)
        with pytest.raises(CheckpointError, match=words):
            changed.fit(*data())

    def wider(d, k):
        return nn.Sequential(nn.Linear(d, 9), *network(d, k)[1:3], nn.Linear(9, k))

    def smoother(d, k):
        part = network(d, k)
        part[1] = nn.Tanh()
        return part

    refused(wider, r"out_features=8.* is now .*out_features=9")
    refused(smoother, r"ReLU\(\) is now .*Tanh\(\)")


class Hidden(nn.Module):
    """A layer that does not say its size."""

    def __init__(self, d, k, width=3):
        super().__init__()
        self.A = nn.Parameter(torch.randn(d, width))
        self.B = nn.Parameter(torch.randn(width, k))

    def forward(self, x):
        return x @ self.A @ self.B


def test_other_shapes_are_refused(tmp_path):
    fit(tmp_path, max_iter=1, module=Hidden)

    def wider(d, k):
        return Hidden(d, k, 5)

    wider.__module__, wider.__qualname__ = Hidden.__module__, Hidden.__qualname__
    with pytest.raises(
        CheckpointError, match=r"shape \(4, 3\) there and \(4, 5\) here"
    ):
        fit(tmp_path, max_iter=1, module=wider)


def test_other_data_are_refused(monkeypatch, tmp_path):
    folder = interrupted(monkeypatch, tmp_path)
    X, y = data()
    changed = X.copy()
    changed[3, 1] += 1e-9
    for others in [
        (changed, y),
        (X, 1 - y),
        (X[:-1], y[:-1]),
        (X, np.where(y, "a", "b")),
    ]:
        with pytest.raises(CheckpointError, match="the data differ"):
            model(folder).fit(*others)
    with pytest.raises(CheckpointError, match="the data differ"):
        model(folder).fit(X, y, sample_weight=np.linspace(1, 2, len(y)))


def test_other_versions_and_threads_are_reported(monkeypatch, tmp_path, whole):
    folder = interrupted(monkeypatch, tmp_path)
    plain = checkpoint._surroundings
    monkeypatch.setattr(
        checkpoint,
        "_surroundings",
        lambda run: {**plain(run), "threads": 64, "torch": "9.9"},
    )
    with pytest.warns(
        RuntimeWarning, match=r"torch .* \(now 9.9\), threads 1 \(now 64"
    ):
        found = model(folder).fit(*data())
    assert weights(found) == weights(whole)


def test_a_full_disk_gives_one_message_and_training_goes_on(
    monkeypatch, tmp_path, whole
):
    plain, count = os.fsync, []

    def full(handle):
        count.append(1)
        if len(count) > 12:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(handle)

    with monkeypatch.context() as patch:
        patch.setattr(container.os, "fsync", full)
        with pytest.warns(RuntimeWarning, match="No space left on device") as caught:
            found = model(tmp_path).fit(*data())
    text = str(caught[0].message)
    assert "the existing file was not changed. Training continues." in text
    assert weights(found) == weights(whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == list(NAMES)
    assert weights(fit(tmp_path)) == weights(whole)  # from the last one that fitted


def test_a_folder_that_cannot_be_written_is_reported_before_training(tmp_path):
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be made: .*Name another one"):
        fit(taken / "folder")
    with pytest.raises(CheckpointError, match=r"cannot be made|could not be written"):
        fit(taken)


def test_two_files_take_turns(tmp_path):
    epochs = []
    plain = Checkpoints._write

    def write(self, run):
        plain(self, run)
        kept = [container.unseal(p)[0]["epoch"] for p in sorted(tmp_path.iterdir())]
        epochs.append(kept)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "_write", write)
        fit(tmp_path, max_iter=4)
    assert epochs == [[0], [0, 1], [2, 1], [2, 3], [4, 3]]


def test_fingerprints_distinguish_data():
    from scipy import sparse

    X = np.arange(6.0).reshape(2, 3)
    different = [
        X,
        X.T,
        X.astype(np.float32),
        X.reshape(3, 2),
        sparse.csr_array(X),
        sparse.csr_array(X + 1),
        [X[0], X[1]],
        ["a", "b"],
        ["ab"],
        [["a"], ["b"]],
        np.array(["a", "b"], dtype=object),
        None,
    ]
    # A list of words and an object array of them are the same data.
    assert len({fingerprint(x) for x in different}) == len(different) - 1
    assert fingerprint(X) == fingerprint(torch.from_numpy(X))
    assert fingerprint(X) == fingerprint(np.asfortranarray(X))


def test_no_warning_is_given_where_nothing_differs(monkeypatch, tmp_path):
    folder = interrupted(monkeypatch, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model(Path(folder)).fit(*data())
