"""Training a network: one loop over batches of row numbers.

A step moves the weights on one batch and returns its losses as tensors; they are read
once an epoch. A run that diverges is put back to where its loss was last no higher than
at the start.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from certus.certificate import Status
from certus.neural_network import distributed
from certus.neural_network.run import (
    Losses,
    Rules,
    TrainingRun,
    TrainingStep,
    WeightsCopy,
)

#: Gives the row numbers of each batch of an epoch.
Batches = Callable[[np.random.Generator], Iterable[Any]]
#: Seconds between checks of the losses for a run that has diverged.
LOOK = 5.0


def train(
    run: TrainingRun,
    batches: Batches,
    rules: Rules,
    evaluate: Callable[[TrainingRun], dict[str, float]] | None = None,
    on_epoch: Callable[[TrainingRun], Status | None] | None = None,
) -> Status:
    """Run epochs until the rules, ``on_epoch`` or Ctrl-C end it.

    Parameters
    ----------
    run : TrainingRun
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
    status, run.kept, run.diverged = _over(run, rules), run.epoch, None
    latest = WeightsCopy(run.epoch, run.weights())
    run.sane = run.sane or latest  # one that is resumed knows its own
    losses: dict[str, float] = {}
    with run.surroundings():
        while status is None:
            try:
                losses, first, status = _epoch(run, batches, deadline)
                run.first_loss = first if run.first_loss is None else run.first_loss
                if first <= run.first_loss:  # that of the weights it began with
                    run.sane = latest
                if status is None:
                    values = losses | (evaluate(run) if evaluate else {})
                    latest = _close_epoch(run, distributed.agreed(values), rules)
                    status = on_epoch(run) if on_epoch else None
                    status = distributed.agreed(status) or _over(run, rules)
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
            if status not in (None, Status.MAX_ITER, Status.SOLVED):
                _step_back(run, latest if run.diverged is None else run.sane, losses)
    run.sane = None
    if rules.keep_best and run.best is not None:
        if run.kept:
            run.put_back(run.best)
        else:  # no epoch was sane, not even the best
            run.best_epoch = 0
        run.kept = run.best_epoch
    return status


def _over(run: TrainingRun, rules: Rules) -> Status | None:
    """Whether the rules end the run here."""
    if run.stale >= rules.patience:
        return Status.SOLVED
    return Status.MAX_ITER if run.epoch >= rules.max_epochs else None


def _epoch(
    run: TrainingRun, batches: Batches, deadline: float
) -> tuple[dict[str, float], float, Status | None]:
    """One epoch: its mean losses, its first one, and why it broke off if it did."""
    run.training_mode()
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
        return {}, math.nan, ended
    names = seen[0][1]
    table = {k: torch.stack([v[k] for _, v in seen]).double().cpu() for k in names}
    first = float(table["loss"][0])
    run.diverged = run.came_apart(table["loss"])
    if run.diverged is not None:
        return {}, first, ended if ended is Status.INTERRUPTED else Status.DIVERGED
    share = torch.tensor([n for n, _ in seen], dtype=torch.float64)
    share /= share.sum()
    return {k: float(share @ column) for k, column in table.items()}, first, ended


def _told(step: TrainingStep, batches: Iterable[Any]) -> Iterable[Any]:
    """The batches of an epoch; a step with ``begin`` receives all of them first."""
    begin = getattr(step, "begin", None)
    if begin is None:
        return batches
    batches = list(batches)
    begin(batches)
    return batches


def _close_epoch(
    run: TrainingRun, values: dict[str, float], rules: Rules
) -> WeightsCopy:
    """Count the epoch, keep it if it is the best; returns its weights."""
    criterion = values.pop("criterion", values["loss"])
    weights = run.weights()
    run.record(values)
    run.torch_state = torch.random.get_rng_state()
    run.stale = 0 if criterion < run.best_value - rules.tol else run.stale + 1
    run.epoch += 1
    run.kept = run.epoch
    if criterion < run.best_value:
        run.best_value, run.best_epoch = criterion, run.epoch
        run.best = weights if rules.keep_best else None
    return WeightsCopy(run.epoch, weights)


def _step_back(run: TrainingRun, to: WeightsCopy, losses: dict[str, float]) -> None:
    """Undo part of an epoch, which does not count, unless there is nothing else."""
    if run.diverged is not None:
        for optimizer in run.step.optimizers.values():
            optimizer.state.clear()  # its means of gradients diverged as well
    if run.epoch or run.diverged is not None:
        run.put_back(to.weights)
        run.kept = to.epoch
        run.history = {k: v[: run.epoch] for k, v in run.history.items()}
    elif losses and not run.history:
        run.record(losses)
