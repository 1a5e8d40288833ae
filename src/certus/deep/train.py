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
from certus.deep import distributed

Losses = dict[str, Tensor]
#: Gives the row numbers of each batch of an epoch.
Batches = Callable[[np.random.Generator], Iterable[Any]]
#: Seconds between looks at the losses for a run that has come apart.
LOOK = 5.0
#: Products in a pass forward up to which one thread is faster than two.
SMALL = 8_000_000


class Step(Protocol):
    """Moves the weights on one batch.

    One that has a method ``begin(batches)`` is told the batches of each epoch before
    the first of them.
    """

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
    #: At most so many, where fewer are faster; see :func:`threads_for`.
    threads: int | None = None
    #: Set where losses became NaN or infinite: epoch, step in it, the loss before.
    diverged: tuple[int, int, float] | None = None

    def record(self, values: dict[str, float]) -> None:
        """Add a line to the history; every column has one entry for each epoch."""
        for name, value in values.items():
            self.history.setdefault(name, []).append(float(value))

    def weights(self) -> dict[str, Any]:
        """A copy of all weights and buffers, averages included."""
        parts = {**self.step.modules, **_named("average", self.averages)}
        return {name: _copied(module.state_dict()) for name, module in parts.items()}

    def put_back(self, weights: dict[str, Any]) -> None:
        """Load what :meth:`weights` gave."""
        parts = {**self.step.modules, **_named("average", self.averages)}
        for name, module in parts.items():
            module.load_state_dict(weights[name])

    def n_threads(self) -> int:
        """How many threads compute."""
        most = torch.get_num_threads()
        return most if self.threads is None else min(most, self.threads)

    def final(self, name: str = "module") -> nn.Module:
        """The module whose weights are the result: the average, if there is one."""
        average = self.averages.get(name)
        return self.step.modules[name] if average is None else average.module


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {
        name: v.detach().clone() if isinstance(v, Tensor) else copy.deepcopy(v)
        for name, v in state.items()
    }


def _named(prefix: str, modules: dict[str, AveragedModel]) -> dict[str, nn.Module]:
    return {f"{prefix}.{name}": module for name, module in modules.items()}


def train(
    run: Run,
    batches: Batches,
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
    clock = time.perf_counter
    deadline = math.inf if rules.max_time is None else clock() + rules.max_time
    status, good = _over(run, rules), run.weights()
    losses: dict[str, float] = {}
    with _own_randomness(run), _threads(run):
        while status is None:
            try:
                losses, status = _epoch(run, batches, deadline)
                if status is None:
                    values = losses | (evaluate(run) if evaluate else {})
                    good = _close_epoch(run, distributed.agreed(values), rules)
                    status = on_epoch(run) if on_epoch else None
                    status = distributed.agreed(status) or _over(run, rules)
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
            if status not in (None, Status.MAX_ITER, Status.SOLVED):
                _step_back(run, good, losses)
    if rules.keep_best and run.best is not None:
        run.put_back(run.best)
    return status


def _over(run: Run, rules: Rules) -> Status | None:
    """Whether the rules end the run here."""
    if run.stale >= rules.patience:
        return Status.SOLVED
    return Status.MAX_ITER if run.epoch >= rules.max_epochs else None


def _training_mode(module: nn.Module) -> None:
    """Training mode for all but the batch norms that are frozen: these stay as is."""
    module.train()
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            own = list(part.parameters())
            part.training = not own or any(p.requires_grad for p in own)


def _epoch(
    run: Run, batches: Batches, deadline: float
) -> tuple[dict[str, float], Status | None]:
    """One epoch: its mean losses, and why it broke off if it did."""
    for module in run.step.modules.values():
        _training_mode(module)
    seen: list[tuple[int, Losses]] = []
    ended, looked = None, time.perf_counter()
    try:
        for rows in _told(run.step, batches(run.rng)):
            losses = run.step(rows)
            for name, average in run.averages.items():
                average.update_parameters(run.step.modules[name])
            for schedule in run.schedules:
                schedule.step()
            seen.append((len(rows), losses))
            now = time.perf_counter()
            if deadline < math.inf and distributed.anyone(now > deadline):
                ended = Status.TIME_LIMIT
                break
            if now - looked > LOOK and distributed.count() == 1:
                looked = now
                if not math.isfinite(float(losses["loss"])):
                    break
    except KeyboardInterrupt:
        ended = Status.INTERRUPTED
    if not seen:
        return {}, ended
    names = seen[0][1]
    table = {k: torch.stack([v[k] for _, v in seen]).double().cpu() for k in names}
    run.diverged = _came_apart(run, table["loss"])
    if run.diverged is not None:
        return {}, ended if ended is Status.INTERRUPTED else Status.DIVERGED
    share = torch.tensor([n for n, _ in seen], dtype=torch.float64)
    share /= share.sum()
    return {name: float(share @ column) for name, column in table.items()}, ended


def _told(step: Step, batches: Iterable[Any]) -> Iterable[Any]:
    """The batches of an epoch; a step that wants to know them all is told first."""
    begin = getattr(step, "begin", None)
    if begin is None:
        return batches
    batches = list(batches)
    begin(batches)
    return batches


def _came_apart(run: Run, losses: Tensor) -> tuple[int, int, float] | None:
    """Epoch, step and the loss before, if losses or weights are no numbers any more."""
    bad = torch.nonzero(~torch.isfinite(losses))
    if len(bad):
        at = int(bad[0, 0])
    elif all(bool(torch.isfinite(p).all()) for p in _parameters(run)):
        return None
    else:  # the last step did it
        at = len(losses)
    earlier = run.history.get("loss") or [math.nan]
    before = float(losses[at - 1]) if at else earlier[-1]
    return run.epoch + 1, min(at + 1, len(losses)), before


def _close_epoch(run: Run, values: dict[str, float], rules: Rules) -> dict[str, Any]:
    """Count the epoch, keep it if it is the best; returns its weights."""
    criterion = values.pop("criterion", values["loss"])
    weights = run.weights()
    run.record(values)
    run.torch_state = torch.random.get_rng_state()
    run.stale = 0 if criterion < run.best_value - rules.tol else run.stale + 1
    run.epoch += 1
    if criterion < run.best_value:
        run.best_value, run.best_epoch = criterion, run.epoch
        run.best = weights if rules.keep_best else None
    return weights


def _step_back(run: Run, good: dict[str, Any], losses: dict[str, float]) -> None:
    """Undo part of an epoch, which does not count, unless there is nothing else."""
    if run.diverged is not None:
        for optimizer in run.step.optimizers.values():
            optimizer.state.clear()  # its means of gradients came apart as well
    if run.epoch or run.diverged is not None:
        run.put_back(good)
        run.history = {k: v[: run.epoch] for k, v in run.history.items()}
    elif losses and not run.history:
        run.record(losses)


def _parameters(run: Run) -> Iterator[Tensor]:
    for module in run.step.modules.values():
        yield from module.parameters()


def threads_for(module: nn.Module, rows: int) -> int | None:
    """One thread for a network so small that two would wait for one another.

    Only for networks that use each weight once for a row: elsewhere (convolutions,
    recurrences) nobody knows how much there is to do, and torch decides.
    """
    plain = all(
        isinstance(part, nn.Linear) or p.ndim < 2
        for part in module.modules()
        for p in part.parameters(recurse=False)
    )
    weights = sum(p.numel() for p in module.parameters())
    return 1 if plain and weights * rows <= SMALL else None


@contextmanager
def _threads(run: Run) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(run.n_threads())
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _own_randomness(run: Run) -> Iterator[None]:
    """Dropout and its like draw from the run's state, not from the user's."""
    devices = {p.device for p in _parameters(run) if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(d.index or 0 for d in devices)):
        torch.random.set_rng_state(run.torch_state)
        yield
