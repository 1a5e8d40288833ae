"""Checkpoints: the state of a run on disk, so that at most one epoch is lost.

Two files take turns; each is written beside its place, synced and renamed, and sealed
by a checksum. The newer one that is whole is read. With the same versions and threads,
an interrupted and resumed run gives the same result as an uninterrupted one, bit for
bit.
"""

from __future__ import annotations

import copy
import hashlib
import platform
import re
import warnings
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from certus.neural_network import distributed
from certus.neural_network.run import TrainingRun
from certus.neural_network.snapshot import plain, restore, state_of
from certus.persist import ModelFileError, decode, encode
from certus.persist.container import seal, unseal, write_atomically

NAMES = ("checkpoint-0.certus", "checkpoint-1.certus")
#: What may differ when a run is resumed: how long it lasts, and where it is kept.
FREE = (
    "max_iter",
    "max_time",
    "n_iter_no_change",
    "checkpoint",
    "warm_start",
    "device",
)


class CheckpointError(ValueError):
    """A checkpoint that does not belong to this fit, and what to do about it."""


class Checkpoints:
    """The checkpoints of one fit, in a folder of their own.

    Parameters
    ----------
    folder : path
        Made if it does not exist. What is in it already is read.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self.about: dict[str, Any] = {}
        self.began: Any = None
        here = distributed.rank() == 0  # the others need not see the folder
        self.found = distributed.agreed(_read(self.folder) if here else [])

    def begin(self, rng: np.random.Generator) -> None:
        """Give a fit the random numbers of the one it resumes, from their beginning."""
        for state in self.found:
            with suppress(ValueError, TypeError, LookupError):
                rng.bit_generator.state = state["began"]
                break
        self.began = copy.deepcopy(rng.bit_generator.state)

    def resume(self, run: TrainingRun, about: dict[str, Any]) -> None:
        """Put a run into the newest state found; the first is written if none was.

        Parameters
        ----------
        run : TrainingRun
            As it is before its first epoch.
        about : dict
            What must be the same: see :func:`describe`.
        """
        self.about = about
        for state in self.found:
            _require_same(state["about"], about)
            _require_shapes(run, state["run"]["modules"])
            try:
                restore(run, state["run"])
            except (LookupError, TypeError, ValueError, RuntimeError, AttributeError):
                continue  # whole, but not written by us: the one before counts
            _compare_surroundings(state["surroundings"], _surroundings(run))
            return
        if self.found:
            raise CheckpointError(
                f"The checkpoints in {self.folder} are incomplete. Delete them to "
                "start again."
            )
        self._write(run)  # a folder that cannot be written fails before the training

    def save(self, run: TrainingRun) -> None:
        """Write the state of a run after an epoch; a full disk is not an error."""
        try:
            self._write(run)
        except CheckpointError as error:
            warnings.warn(f"{error} Training continues.", RuntimeWarning, stacklevel=2)

    def _write(self, run: TrainingRun) -> None:
        if distributed.rank() > 0:
            return
        tensors: dict[str, np.ndarray] = {}
        state = {
            "about": self.about,
            "began": self.began,
            "surroundings": _surroundings(run),
            "run": state_of(run),
        }
        place = self.folder / NAMES[run.epoch % 2]
        try:
            data = encode(state, tensors)
            manifest = {"checkpoint": 1, "epoch": run.epoch, "state": data}
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(place, seal(manifest, tensors))
        except ModelFileError as error:
            raise CheckpointError(f"The checkpoint {place} {error}") from error
        except OSError as error:
            raise CheckpointError(
                f"The folder {self.folder} for checkpoints cannot be made: "
                f"{error.strerror or error}. Name another one."
            ) from error


def describe(params: dict[str, Any], module: nn.Module, *data: Any) -> dict[str, Any]:
    """What a run is: parameters, architecture, and a fingerprint of its data.

    Parameters
    ----------
    params : dict
        Of the estimator.
    module : nn.Module
        What is trained.
    *data : array, Tensor, sparse matrix, list or None
        All that it is trained and stopped by.
    """
    return {
        "parameters": {k: _said(v) for k, v in params.items() if k not in FREE},
        "architecture": repr(module).splitlines(),
        "data": fingerprint(*data),
    }


def fingerprint(*data: Any) -> str:
    """A digest of data; equal data have equal ones, in any process."""
    digest = hashlib.sha256()

    def feed(value: Any) -> None:
        if isinstance(value, Tensor):
            value = value.detach().cpu().numpy()
        if sparse.issparse(value):
            value = value.tocsr()
            value = [value.shape, value.data, value.indices, value.indptr]
        if hasattr(value, "__array__") and not isinstance(value, np.generic):
            value = np.asarray(value)
            if value.dtype.kind != "O":
                digest.update(f"{value.dtype.str}{value.shape}".encode())
                digest.update(np.ascontiguousarray(value).data.cast("B"))
                return
            value = value.tolist()
        if isinstance(value, list | tuple):
            digest.update(f"list of {len(value)}".encode())
            for item in value:
                feed(item)
        else:
            digest.update(_said(value).encode("utf-8", "surrogatepass"))

    feed(data)
    return digest.hexdigest()


def _said(value: Any) -> str:
    """A parameter as text that is the same in every process."""
    if isinstance(value, nn.Module):
        return type(value).__name__
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, np.ndarray | Tensor) or sparse.issparse(value):
        return f"{type(value).__name__} {fingerprint(value)[:16]}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _read(folder: Path) -> list[dict[str, Any]]:
    """The whole checkpoints of a folder, newest first."""
    found: list[dict[str, Any]] = []
    damaged: list[str] = []
    for name in NAMES:
        try:
            manifest, tensors = unseal(folder / name)
            state = decode(manifest["state"], tensors)
            state["epoch"] = int(manifest["epoch"])
            _require_parts(state)
            found.append(state)
        except (
            *(ModelFileError, LookupError, TypeError, ValueError, AttributeError),
        ) as error:
            if (folder / name).exists():
                known = isinstance(error, ModelFileError)
                damaged.append(f"{name} {error if known else 'is not a checkpoint.'}")
    for left in folder.glob(".certus-*.tmp"):  # of a process killed while it wrote
        with suppress(OSError):
            left.unlink()
    if damaged and not found:
        raise CheckpointError(
            f"No checkpoint in {folder} can be read: {damaged[0]} Delete the folder "
            "to start again."
        )
    if damaged:
        warnings.warn(
            f"In {folder}, {damaged[0]} The fit continues from the other checkpoint, "
            f"after epoch {found[0]['epoch']}.",
            RuntimeWarning,
            stacklevel=2,
        )
    return sorted(found, key=lambda state: -state["epoch"])


def _require_parts(state: dict[str, Any]) -> None:
    """Raise unless a state has the parts that every checkpoint has."""
    about, weights = state["about"], state["run"]["modules"]
    told = [*about["parameters"].values(), *about["architecture"], about["data"]]
    right = all(isinstance(text, str) for text in told)
    parts = state["began"], state["surroundings"], *weights.values()
    if not right or not all(isinstance(part, dict) for part in parts):
        raise TypeError
    if state["run"]["epoch"] != state["epoch"]:
        raise ValueError


def _require_same(was: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to continue with another model or other data, and say what differs."""
    before, after = was["parameters"], now["parameters"]
    odd = [k for k in sorted(before | after) if before.get(k) != after.get(k)]
    told = [f"{k} was {before.get(k)} and is now {after.get(k)}" for k in odd]
    lines = zip(was["architecture"], now["architecture"])
    told += [f"{old.strip()} is now {new.strip()}" for old, new in lines if old != new]
    if not told and len(was["architecture"]) != len(now["architecture"]):
        told = ["the network has other layers"]
    if not told and was["data"] != now["data"]:
        told = ["the data differ"]
    if told:
        more = f" and {len(told) - 3} more" if len(told) > 3 else ""
        raise CheckpointError(
            f"The checkpoint belongs to another fit: {'; '.join(told[:3])}{more}. Use "
            "the same parameters and data as that fit, or name another folder."
        )


def _require_shapes(run: TrainingRun, modules: dict[str, Any]) -> None:
    mine, theirs = _shapes(plain(run.weights())), _shapes(modules)
    if mine != theirs:
        odd = sorted(k for k in mine | theirs if mine.get(k) != theirs.get(k))
        none = ("none", "none")
        was, now = theirs.get(odd[0], none), mine.get(odd[0], none)
        differs = f"has shape {was[0]} there and {now[0]} here"
        if was[0] == now[0]:
            differs = f"holds {was[1]} there and {now[1]} here"
        raise CheckpointError(
            f"The checkpoint belongs to another network: {odd[0]} {differs} "
            f"({len(odd)} tensors differ). Fit the same network, or name another "
            "folder."
        )


def _shapes(modules: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    return {
        f"{name}.{key}": (value.shape, str(value.dtype))
        for name, state in modules.items()
        for key, value in state.items()
        if isinstance(value, np.ndarray)
    }


def _surroundings(run: TrainingRun) -> dict[str, Any]:
    devices = {str(p.device) for m in run.step.modules.values() for p in m.parameters()}
    return {
        "Python": platform.python_version(),
        "torch": str(torch.__version__),
        "NumPy": np.__version__,
        "threads": run.n_threads(),
        "processes": distributed.count(),
        "device": ", ".join(sorted(devices)),
    }


def _compare_surroundings(was: dict[str, Any], now: dict[str, Any]) -> None:
    odd = [f"{k} {was.get(k)} (now {now[k]})" for k in now if was.get(k) != now[k]]
    if odd:
        warnings.warn(
            f"The checkpoint was written with {', '.join(odd)}. The fit continues, "
            "but its last digits may differ from those of an uninterrupted fit.",
            RuntimeWarning,
            stacklevel=2,
        )
