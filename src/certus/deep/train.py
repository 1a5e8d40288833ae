"""Training a network: one loop over batches of row numbers.

A :class:`Step` moves the weights on one batch and returns its losses as tensors; they
are read once an epoch. Everything a run consists of stands in :class:`Run`, which is
what a checkpoint holds. The run's random numbers come from its own generators: torch's
global one is put back as it was.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from certus.certificate import Status

Losses = dict[str, Tensor]
#: Seconds between looks at the losses for a run that has come apart.
LOOK = 5.0


class Step(Protocol):
    """Moves the weights on one batch."""

    #: By name: the modules that are trained, and the optimisers that move them.
    modules: dict[str, nn.Module]
    optimizers: dict[str, torch.optim.Optimizer]

    def __call__(self, rows: Any) -> Losses:
        """Move on the rows of these numbers; ``"loss"`` is the one that is watched."""


class Rules(NamedTuple):
    """When a run ends, and what of it is kept."""

    max_epochs: int
    #: Epochs without an improvement of more than ``tol`` after which it ends.
    patience: float = math.inf
    tol: float = 0.0
    max_time: float | None = None
    #: Whether the weights of the best epoch are put back at the end.
    keep_best: bool = False


@dataclass
class Run:
    """The state of a run between two epochs."""

    step: Step
    rng: np.random.Generator
    torch_state: Tensor
    #: Averages of the weights, by the name of their module.
    averages: dict[str, AveragedModel] = field(default_factory=dict)
    schedules: list[Any] = field(default_factory=list)
    epoch: int = 0
    best_epoch: int = 0
    best_value: float = math.inf
    stale: int = 0
    best: dict[str, Any] | None = None
    history: dict[str, list[float]] = field(default_factory=dict)
    #: Set where losses became NaN or infinite: epoch, step in it, the loss before.
    diverged: tuple[int, int, float] | None = None

    def record(self, values: dict[str, float]) -> None:
        """Add a line to the history; every column has one entry for each epoch."""
        for name, value in values.items():
            self.history.setdefault(name, []).append(float(value))

    def weights(self) -> dict[str, Any]:
        """A copy of all weights and buffers, averages included."""
        parts = {**self.step.modules, **_named("average", self.averages)}
        return {name: copy.deepcopy(m.state_dict()) for name, m in parts.items()}

    def put_back(self, weights: dict[str, Any]) -> None:
        """Load what :meth:`weights` gave."""
        parts = {**self.step.modules, **_named("average", self.averages)}
        for name, module in parts.items():
            module.load_state_dict(weights[name])

    def final(self, name: str = "module") -> nn.Module:
        """The module whose weights are the result: the average, if there is one."""
        average = self.averages.get(name)
        return self.step.modules[name] if average is None else average.module


def _named(prefix: str, modules: dict[str, AveragedModel]) -> dict[str, nn.Module]:
    return {f"{prefix}.{name}": module for name, module in modules.items()}


def train(
    run: Run,
    batches: Callable[[np.random.Generator], Iterable[Any]],
    rules: Rules,
    evaluate: Callable[[Run], dict[str, float]] | None = None,
    on_epoch: Callable[[Run], Status | None] | None = None,
) -> Status:
    """Run epochs until the rules, ``on_epoch`` or Ctrl-C end it.

    Parameters
    ----------
    run : Run
        Where to start; holds the result.
    batches : callable
        Gives the row numbers of each batch of an epoch, drawn from the generator.
    rules : Rules
        When to end.
    evaluate : callable, optional
        Numbers after each epoch, for the history. ``"criterion"``, which is not kept
        there, decides what is best (lower is better); without it the loss does.
    on_epoch : callable, optional
        Called after each epoch: checkpoints, progress; may return a status to end.

    Returns
    -------
    Status
        SOLVED for a plateau, MAX_ITER, TIME_LIMIT, DIVERGED, INTERRUPTED, STOPPED.
    """
    deadline = (
        math.inf if rules.max_time is None else time.perf_counter() + rules.max_time
    )
    status, good = Status.MAX_ITER, run.weights()
    with _own_randomness(run):
        while run.epoch < rules.max_epochs:
            ended = _epoch(run, batches, deadline)
            if ended is not None:
                # Part of an epoch does not count, unless there is nothing else.
                if run.epoch or ended is Status.DIVERGED:
                    run.put_back(good)
                status = ended
                break
            good = _close_epoch(run, evaluate(run) if evaluate else {}, rules)
            ended = on_epoch(run) if on_epoch else None
            if ended is None and run.stale >= rules.patience:
                ended = Status.SOLVED
            if ended is not None:
                status = ended
                break
    if rules.keep_best and run.best is not None:
        run.put_back(run.best)
    return status


def _epoch(run: Run, batches: Any, deadline: float) -> Status | None:
    """One epoch, its mean losses added to the history; or why it broke off."""
    for module in run.step.modules.values():
        module.train()
    seen: dict[str, list[Tensor]] = {}
    sizes: list[float] = []
    ended, looked = None, time.perf_counter()
    try:
        for rows in batches(run.rng):
            losses = run.step(rows)
            for name, average in run.averages.items():
                average.update_parameters(run.step.modules[name])
            for schedule in run.schedules:
                schedule.step()
            sizes.append(len(rows))
            for name, value in losses.items():
                seen.setdefault(name, []).append(value)
            now = time.perf_counter()
            if now > deadline:
                ended = Status.TIME_LIMIT
                break
            if now - looked > LOOK:
                looked = now
                if not math.isfinite(float(losses["loss"])):
                    break
    except KeyboardInterrupt:
        ended = Status.INTERRUPTED
    table = {name: torch.stack(column).double().cpu() for name, column in seen.items()}
    if "loss" in table and not bool(torch.isfinite(table["loss"]).all()):
        run.diverged = _came_apart(run, table["loss"])
        return Status.DIVERGED
    if ended is None:
        share = torch.tensor(sizes, dtype=torch.float64)
        share /= share.sum()
        run.record({name: float(share @ column) for name, column in table.items()})
    return ended


def _came_apart(run: Run, losses: Tensor) -> tuple[int, int, float]:
    at = int(torch.nonzero(~torch.isfinite(losses))[0, 0])
    earlier = run.history.get("loss") or [math.nan]
    before = float(losses[at - 1]) if at else earlier[-1]
    return run.epoch + 1, at + 1, before


def _close_epoch(run: Run, values: dict[str, float], rules: Rules) -> dict[str, Any]:
    """Count the epoch, keep it if it is the best; returns its weights."""
    criterion = values.pop("criterion", run.history["loss"][-1])
    run.record(values)
    run.epoch += 1
    run.torch_state = torch.random.get_rng_state()
    weights = run.weights()
    run.stale = 0 if criterion < run.best_value - rules.tol else run.stale + 1
    if criterion < run.best_value:
        run.best_value, run.best_epoch = criterion, run.epoch
        run.best = weights if rules.keep_best else None
    return weights


@contextmanager
def _own_randomness(run: Run) -> Iterator[None]:
    """Dropout and its like draw from the run's state, not from the user's."""
    devices = {
        p.device
        for module in run.step.modules.values()
        for p in module.parameters()
        if p.device.type == "cuda"
    }
    with torch.random.fork_rng(devices=sorted(d.index or 0 for d in devices)):
        torch.random.set_rng_state(run.torch_state)
        yield
