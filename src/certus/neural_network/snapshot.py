"""Save the state of a training run as plain data, and restore it.

What comes from a disk is compared with what this run would write before any of it is
used: the same names, kinds of numbers, shapes and dtypes, the same settings of the
optimiser. Only values differ.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.neural_network.run import TrainingRun, WeightsCopy

#: Settings of an optimiser that a schedule changes.
SCHEDULED = ("lr", "initial_lr", "params")


def state_of(run: TrainingRun) -> dict[str, Any]:
    """All that a run consists of, with arrays in place of tensors."""
    return plain(
        {
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
            "first_loss": run.first_loss,
            "sane": None if run.sane is None else list(run.sane),
            "history": run.history,
        }
    )


def restore(run: TrainingRun, state: dict[str, Any]) -> None:
    """Put a run into a state; raises ValueError unless it fits this run."""
    _require_alike(run, state)
    run.put_back({name: _tensors(part) for name, part in state["modules"].items()})
    for name, optimizer in run.step.optimizers.items():
        _give(optimizer, _tensors(state["optimizers"][name]))
    for schedule, part in zip(run.schedules, state["schedules"], strict=True):
        schedule.load_state_dict(part)
    run.rng.bit_generator.state = state["rng"]
    run.torch_state = torch.from_numpy(state["torch_state"])
    run.best = None if state["best"] is None else _tensors(state["best"])
    run.sane = None if state["sane"] is None else WeightsCopy(*_tensors(state["sane"]))
    values = ("epoch", "best_epoch", "best_value", "stale", "first_loss", "history")
    for name in values:
        setattr(run, name, state[name])


def _give(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a state as it is: torch's own loading casts it to the weights' dtype."""
    optimizer.load_state_dict(state)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for i, saved in state["state"].items():
        mine = optimizer.state[parameters[i]]
        for name, value in saved.items():
            # Files have no bfloat16: there torch's cast is the right one.
            if isinstance(value, Tensor) and mine[name].dtype is not torch.bfloat16:
                mine[name] = value.to(mine[name].device)


# -- what a state looks like ----------------------------------------------------------


def _require_alike(run: TrainingRun, state: dict[str, Any]) -> None:
    mine = state_of(run)
    weights = mine["modules"]
    free = ("optimizers", "best", "sane", "history", "first_loss")
    fixed = {name: value for name, value in mine.items() if name not in free}
    if not isinstance(state, dict) or set(state) != set(mine):
        raise ValueError("the parts differ")
    if not alike({name: state[name] for name in fixed}, fixed):
        raise ValueError("the parts have other types")
    for name, optimizer in run.step.optimizers.items():
        _require_settings(optimizer, state["optimizers"][name])
    best, sane, first = state["best"], state["sane"], state["first_loss"]
    right = (best is None or alike(best, weights)) and (
        sane is None or alike(sane, [0, weights])
    )
    columns = state["history"].values()
    right = right and all(
        isinstance(column, list)
        and len(column) == state["epoch"]
        and all(isinstance(value, Real) for value in column)
        for column in columns
    )
    if not right or not (first is None or isinstance(first, Real)):
        raise ValueError("there is no history of this run")


def _require_settings(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Raise unless a state has this optimiser's settings and kinds of numbers."""
    mine = plain(_after_a_step(optimizer).state_dict())
    groups = zip(saved["param_groups"], mine["param_groups"], strict=True)
    same = all(
        set(a) == set(b)
        and alike(a, b)
        and all(a[k] == b[k] for k in a if k not in SCHEDULED)
        for a, b in groups
    )
    known = mine["state"]
    if not same or not all(
        not known or (i in known and alike(part, known[i]))
        for i, part in saved["state"].items()
    ):
        raise ValueError("a different optimiser")


def _after_a_step(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """A copy that has moved its parameters, and so has all the state it ever has."""
    tried = copy.deepcopy(optimizer)
    for group in tried.param_groups:
        for p in group["params"]:
            p.grad = torch.zeros_like(p)
    with suppress(RuntimeError, TypeError, ValueError):  # some need further arguments
        tried.step()
    return tried


def alike(a: Any, b: Any) -> bool:
    """Whether two values differ in numbers alone.

    Parameters
    ----------
    a, b : object
        Numbers, texts, None and arrays, in dictionaries, lists and tuples.

    Examples
    --------
    >>> from certus.neural_network.snapshot import alike
    >>> alike({"w": [1, 2.0]}, {"w": [3, 4.0]}), alike({"w": [1]}, {"w": [1, 2]})
    (True, False)
    """
    if isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and (a.shape, a.dtype) == (b.shape, b.dtype)
    if isinstance(b, dict):
        same = isinstance(a, dict) and set(a) == set(b)
        return same and all(alike(a[k], b[k]) for k in b)
    if isinstance(b, list | tuple):
        same = isinstance(a, list | tuple) and len(a) == len(b)
        return same and all(alike(x, y) for x, y in zip(a, b))
    if isinstance(b, Real) and not isinstance(b, bool | np.bool_):
        return isinstance(a, Real) and not isinstance(a, bool | np.bool_)
    return type(a) is type(b)


def plain(value: Any) -> Any:
    """Tensors as arrays, all the way down."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        if value.dtype is torch.bfloat16:  # which NumPy lacks
            value = value.float()
        return value.numpy().copy()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(v) for v in value)
    return value


def _tensors(value: Any) -> Any:
    """Inverse of :func:`plain`."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, dict):
        return {k: _tensors(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_tensors(v) for v in value)
    return value
