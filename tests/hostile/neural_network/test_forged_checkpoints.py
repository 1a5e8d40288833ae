"""Checkpoints that are whole and yet not ours, and places where files fare badly."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from certus.neural_network.checkpoint import NAMES, CheckpointError
from certus.persist import container
from helpers import killed_fits
from helpers.killed_fits import data, model
from helpers.networks import classifier, small

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with checkpoints after epochs 2 and 3."""
    folder = tmp_path_factory.mktemp("made")
    fit(folder, max_iter=3)
    return folder


def fit(folder, **options):
    options = {"max_iter": 4, "schedule": "linear", "warmup": 0.2, **options}
    fitted, rows, y = classifier(checkpoint=folder, **options)
    return fitted.fit(rows, y)


def copied(made, tmp_path):
    return shutil.copytree(made, tmp_path / "copy", dirs_exist_ok=True)


def forge(folder, change):
    """Rewrite both files, with a seal that fits."""
    for name in NAMES:
        manifest, tensors = container.unseal(folder / name)
        change(manifest, tensors)
        manifest.pop("sha256")
        (folder / name).write_bytes(container.seal(manifest, tensors))


def paths(value, path=()):
    yield path
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield from paths(value[key], (*path, key))


def put(value, path, new):
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def test_replacing_any_part_is_refused_with_a_message(made, tmp_path):
    state = container.unseal(made / NAMES[1])[0]["state"]
    told = 0
    for i, path in enumerate(list(paths(state))[1::2]):
        new = (5, "x", None, [], {}, [1, 2])[i % 6]
        folder = copied(made, tmp_path)
        try:
            forge(folder, lambda m, _, p=path, v=new: put(m["state"], p, v))
        except (LookupError, TypeError):
            continue  # the other file has no such part
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                fit(folder)
            except CheckpointError as error:
                assert len(str(error)) < 600
                told += 1
            else:  # what only informs, and numbers in place of numbers
                told_apart = path[0] in ("began", "surroundings") or new == 5
                told_apart |= path[-1] == "seconds"  # [1, 2] for two other numbers
                assert told_apart or new is None, path
    assert told > 30


@pytest.mark.parametrize(
    ("name", "value"),
    [("weight_decay", 0.5), ("eps", 1.0), ("amsgrad", True), ("betas", [0.1, 0.2])],
)
def test_other_settings_of_the_optimiser_are_refused(made, tmp_path, name, value):
    folder = copied(made, tmp_path)

    def change(manifest, _):
        state = manifest["state"]["run"]["optimizers"]["module"]
        state["param_groups"][0][name] = value

    forge(folder, change)
    with pytest.raises(CheckpointError, match="incomplete"):
        fit(folder)


@pytest.mark.parametrize("part", ["exp_avg", "weight", "torch_state"])
@pytest.mark.parametrize("how", ["shape", "dtype", "missing"])
def test_other_tensors_are_refused(made, tmp_path, part, how):
    folder = copied(made, tmp_path)

    def change(_, tensors):
        name = next(k for k in tensors if part in k)
        if how == "shape":
            tensors[name] = np.concatenate([tensors[name]] * 2)
        elif how == "dtype":
            tensors[name] = tensors[name].astype(np.int16)
        else:
            del tensors[name]

    forge(folder, change)
    with pytest.raises(CheckpointError):
        fit(folder)


def test_another_dtype_of_the_network_is_refused(made, tmp_path):
    def single(n, k):
        return small(n, k).float()

    single.__module__, single.__qualname__ = small.__module__, small.__qualname__
    with pytest.raises(CheckpointError, match="holds float64 there and float32 here"):
        fit(copied(made, tmp_path), module=single)


def test_other_frozen_layers_are_refused(made, tmp_path):
    def frozen(n, k):
        net = small(n, k)
        net[0].weight.requires_grad_(False)
        return net

    frozen.__module__, frozen.__qualname__ = small.__module__, small.__qualname__
    with pytest.raises(CheckpointError):
        fit(copied(made, tmp_path), module=frozen)


def test_a_pickle_in_its_place_is_never_opened(made, tmp_path):
    folder = copied(made, tmp_path)
    for name in NAMES:
        torch.save({"epoch": 3}, folder / name)
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* can be read"):
        fit(folder)


# -- places ---------------------------------------------------------------------------


def test_links_are_followed_and_devices_reported(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / NAMES[0]).symlink_to(kept / "elsewhere.certus")
    fit(folder)
    assert (folder / NAMES[0]).is_symlink() and (kept / "elsewhere.certus").exists()
    loop = tmp_path / "loop"
    loop.mkdir()
    for name in NAMES:
        (loop / name).symlink_to(loop / name)
    fit(loop)  # a link that leads nowhere is no file: one takes its place
    assert not (loop / NAMES[0]).is_symlink()
    (tmp_path / "null").mkdir()
    (tmp_path / "null" / NAMES[0]).symlink_to("/dev/null")
    with pytest.raises(CheckpointError, match=r"regular file|device"):
        fit(tmp_path / "null")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(CheckpointError, match="Permission denied"):
        fit(tmp_path)


def test_files_that_may_not_grow(tmp_path):
    """As on a disk that is full: the training outlives it, the files stay whole."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    plain = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with pytest.warns(RuntimeWarning) as caught:
        try:
            fitted = model(tmp_path)
            rows, y = data()

            def full():
                size = max(p.stat().st_size for p in tmp_path.iterdir())
                resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, hard))

            fitted.set_params(augment=Once(full))
            fitted.fit(rows, y)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, plain)
    assert "File too large" in str(caught[0].message)
    assert "Training continues." in str(caught[0].message)
    assert fitted.n_iter_ == killed_fits.EPOCHS
    left = sorted(p.name for p in tmp_path.iterdir())
    assert set(left) <= set(NAMES)  # no half of a file
    container.unseal(tmp_path / left[0])


class Once:
    """Calls a function before the first batch, and leaves batches as they are."""

    def __init__(self, function):
        self.function, self.done = function, False

    def __call__(self, x):
        if not self.done:
            self.function()
            self.done = True
        return x


TWO = """
import sys, warnings
sys.path.insert(0, {tests!r})
from helpers.killed_fits import fit, weights
print(weights(fit({folder!r})))
"""


@pytest.mark.slow
def test_two_processes_that_share_a_folder(tmp_path):
    """They write the same bits by turns; no file is ever half of one."""
    tests = str(killed_fits.Path(killed_fits.__file__).parents[1])
    text = TWO.format(tests=tests, folder=str(tmp_path / "shared"))
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = [
        subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, env=env)
        for _ in range(2)
    ]
    found = [process.communicate()[0] for process in told]
    assert found[0] and found[0] == found[1]
    for name in NAMES:
        container.unseal(tmp_path / "shared" / name)


def test_a_folder_that_vanishes_is_made_again(tmp_path):
    folder = tmp_path / "folder"
    fitted, rows, y = classifier(max_iter=3, checkpoint=folder)
    fitted.set_params(augment=Once(lambda: shutil.rmtree(folder)))
    fitted.fit(rows, y)
    assert sorted(p.name for p in folder.iterdir()) == sorted(NAMES)
