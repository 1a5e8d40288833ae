"""Checkpoints: the state of a run on disk, so that nothing but the epoch is lost.

Two files take turns; each is written beside its place, synced and renamed, and sealed
by a checksum. The newer one that is whole is read. A run that was interrupted and
resumed is the run that was not, bit for bit, with the same versions and threads.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.deep.train import Run
from certus.persist import ModelFileError, decode, encode
from certus.persist.container import seal, unseal, write_atomically

NAMES = ("checkpoint-0.certus", "checkpoint-1.certus")


class CheckpointError(ValueError):
    """A checkpoint that does not belong to this fit, and what to do about it."""


def save_checkpoint(folder: Path, run: Run, about: dict[str, Any]) -> None:
    """Write the state of a run after an epoch.

    Parameters
    ----------
    folder : Path
        Made if it does not exist.
    run : Run
        Between two epochs.
    about : dict
        What must be the same when it is resumed: parameters, data, classes.
    """
    tensors: dict[str, np.ndarray] = {}
    state = {
        "about": about,
        "versions": _versions(),
        "threads": torch.get_num_threads(),
        "run": _plain(_state(run)),
    }
    manifest = {"checkpoint": 1, "epoch": run.epoch, "state": encode(state, tensors)}
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / NAMES[run.epoch % 2]
    try:
        write_atomically(place, seal(manifest, tensors))
    except ModelFileError as error:
        raise CheckpointError(f"{place} {error}") from error


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest whole checkpoint of a folder, or None if there is none."""
    found: dict[str, Any] | None = None
    for name in NAMES:
        try:
            manifest, tensors = unseal(folder / name)
            state = decode(manifest["state"], tensors)
            state["epoch"] = int(manifest["epoch"])
        except (ModelFileError, LookupError, TypeError):
            continue  # cut short while it was written: the other one counts
        if found is None or state["epoch"] > found["epoch"]:
            found = state
    return found


def resume(run: Run, found: dict[str, Any], about: dict[str, Any]) -> None:
    """Put a run into the state that :func:`load_checkpoint` found."""
    _require_same(found["about"], about)
    state = found["run"]
    _require_shapes(run, state["modules"])
    run.put_back({name: _tensors(part) for name, part in state["modules"].items()})
    for name, optimizer in run.step.optimizers.items():
        optimizer.load_state_dict(_tensors(state["optimizers"][name]))
    for schedule, part in zip(run.schedules, state["schedules"]):
        schedule.load_state_dict(part)
    run.rng.bit_generator.state = state["rng"]
    run.torch_state = torch.from_numpy(state["torch_state"])
    run.best = None if state["best"] is None else _tensors(state["best"])
    for name in ("epoch", "best_epoch", "best_value", "stale", "history"):
        setattr(run, name, state[name])


def _state(run: Run) -> dict[str, Any]:
    return {
        "modules": run.weights(),
        "optimizers": {k: o.state_dict() for k, o in run.step.optimizers.items()},
        "schedules": [s.state_dict() for s in run.schedules],
        "rng": run.rng.bit_generator.state,
        "torch_state": run.torch_state,
        "best": run.best,
        "epoch": run.epoch,
        "best_epoch": run.best_epoch,
        "best_value": run.best_value,
        "stale": run.stale,
        "history": run.history,
    }


def _require_same(was: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with another model or other data, saying what differs."""
    differing = [name for name in now if repr(was.get(name)) != repr(now[name])]
    if differing:
        shown = ", ".join(f"{n} was {was.get(n)!r}, is {now[n]!r}" for n in differing)
        raise CheckpointError(
            f"The checkpoint is of another fit: {shown}. Fit with what it was made "
            "with, or name another folder."
        )


def _require_shapes(run: Run, modules: dict[str, Any]) -> None:
    mine = {
        f"{name}.{key}": tuple(value.shape)
        for name, state in run.weights().items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }
    theirs = {
        f"{name}.{key}": tuple(np.shape(value))
        for name, state in modules.items()
        for key, value in state.items()
    }
    if mine != theirs:
        odd = sorted(k for k in mine | theirs if mine.get(k) != theirs.get(k))
        first = odd[0]
        raise CheckpointError(
            f"The checkpoint is of another architecture: {first} has shape "
            f"{theirs.get(first, 'none')} there and {mine.get(first, 'none')} here "
            f"({len(odd)} differ). Fit the same network, or name another folder."
        )


def _plain(value: Any) -> Any:
    """Tensors as arrays, all the way down."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(v) for v in value)
    return value


def _tensors(value: Any) -> Any:
    """Inverse of :func:`_plain`."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, dict):
        return {k: _tensors(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_tensors(v) for v in value)
    return value


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }
