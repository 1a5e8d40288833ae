"""Training on a task: stretches of steps, each followed by a look at held-out data.

What is learnt is a :class:`Task`: its objective, its batches and its look. This module
plans the run over steps or over a time, stops it, and keeps checkpoints. Encoders of
texts and generative models are trained by it.
"""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from certus.callbacks import Monitor
from certus.certificate import Status
from certus.neural_network import distributed
from certus.neural_network.batches import Batch
from certus.neural_network.checkpoint import Checkpoints, describe
from certus.neural_network.optim import SCHEDULES
from certus.neural_network.randomness import own_generator
from certus.neural_network.run import Losses, Rules, TrainingRun, TrainingStep
from certus.neural_network.train import train
from certus.typing import Fit

#: Steps after which held-out data are looked at, if a pass over all is not shorter.
STRETCH = 100
#: Passes over the data where neither steps nor a time are given.
PASSES = 10

#: Makes the step of a module; and the fitted attributes from a module.
MakeStep = Callable[[nn.Module], TrainingStep]
ToState = Callable[[Any], dict[str, Any]]


class Task(Protocol):
    """What a network learns."""

    #: Steps that see about as many rows, or tokens, as there are.
    a_pass: int
    #: All that the run depends on, for the fingerprint of a checkpoint.
    data: tuple[Any, ...]
    #: Whether there are held-out data to look at.
    watched: bool

    def objective(self, module: nn.Module, batch: Batch) -> Losses:
        """The losses of a batch."""

    def draw(self, rng: np.random.Generator, steps: int) -> Iterator[Batch]:
        """A batch for each step."""

    def look(self, module: Any) -> float:
        """The loss on held-out data."""


class Trained(NamedTuple):
    """A run at its end, its module, and how it ended."""

    run: TrainingRun
    module: Any
    status: Status


class RunClock:
    """The share of a run that is over: of its steps, or of its seconds.

    Parameters
    ----------
    steps : int or None
        Steps of the whole run; None where the time decides.
    seconds : float or None
        Seconds of the whole run.
    """

    def __init__(self, steps: int | None, seconds: float | None) -> None:
        self.steps, self.seconds = steps, seconds
        self.start(0.0)

    def start(self, spent: float) -> None:
        """Begin to measure, after this many seconds of an earlier part of the run."""
        self.began = time.perf_counter() - spent

    def share(self, step: int) -> float:
        """The share that is over before a step; the same in all processes."""
        if self.steps is not None:
            return step / self.steps
        gone = float(distributed.agreed(time.perf_counter() - self.began))
        return gone / (self.seconds or math.inf)


def make_plan(
    optimizer: torch.optim.Optimizer,
    clock: RunClock,
    warmup: float,
    shape: str = "linear",
) -> torch.optim.lr_scheduler.LRScheduler:
    """A rate that rises over the share ``warmup`` of the run, then falls to zero.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Whose rates it changes.
    clock : RunClock
        Of the run.
    warmup : float
        Share of the run.
    shape : str
        How the rate falls: a name of ``SCHEDULES``.
    """
    fall = SCHEDULES[shape]

    def factor(step: int) -> float:
        t = min(1.0, clock.share(step))
        rise = 1.0 if t >= warmup else (t + 1e-3) / (warmup + 1e-3)
        return rise * fall(t)

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def checkpoints_of(model: Fit, rng: np.random.Generator) -> Checkpoints | None:
    """The checkpoints of a fit; it gets the random numbers of the one it resumes."""
    if model.checkpoint is None:
        return None
    kept = Checkpoints(model.checkpoint)
    kept.begin(rng)
    return kept


def begin(
    model: Fit,
    build: Callable[[], nn.Module],
    make_step: MakeStep,
    rng: np.random.Generator,
    threads: Callable[[nn.Module], int | None],
) -> TrainingRun:
    """A run at its beginning; its module has random numbers of torch of its own.

    Parameters
    ----------
    model : estimator
        With its parameters.
    build : callable
        Makes the module.
    make_step : callable
        Makes the step that moves it.
    rng : numpy.random.Generator
        Of the fit.
    threads : callable
        The most threads for a module, or None.
    """
    seed = int(rng.integers(2**63 - 1))
    with own_generator():
        torch.default_generator.manual_seed(seed)
        module = build().to(model.device)
        distributed.alike(module)
        step = make_step(module)
        state = torch.random.get_rng_state()
    return TrainingRun(step, rng, state, threads=threads(module))


class TaskCourse:
    """Trains a run on a task until the plan, the look, a callback or Ctrl-C ends it.

    Parameters
    ----------
    model : estimator
        With its parameters: max_iter, max_time, warmup, n_iter_no_change.
    run : TrainingRun
        At its beginning; gets its schedules here.
    task : Task
        What it learns.
    state : callable
        The fitted attributes from a module, for callbacks.
    shape : str
        How the learning rate falls.
    first : bool
        Whether the start counts as the zeroth stretch, so that the result is never
        worse than it on held-out data.
    """

    def __init__(
        self,
        model: Fit,
        run: TrainingRun,
        task: Task,
        state: ToState,
        *,
        shape: str = "linear",
        first: bool = False,
    ) -> None:
        self.model, self.run, self.task = model, run, task
        self.state, self.first = state, first and task.watched
        steps = model.max_iter
        if steps is None and model.max_time is None:
            steps = max(STRETCH, PASSES * task.a_pass)
        self.clock = RunClock(steps, model.max_time)
        run.schedules = [
            make_plan(optimizer, self.clock, model.warmup, shape)
            for optimizer in run.step.optimizers.values()
        ]

    @property
    def done(self) -> int:
        """Steps made so far."""
        return int(self.run.schedules[0].last_epoch)

    def train(self, kept: Checkpoints | None, monitor: Monitor) -> Trained:
        """Train; checkpoints are resumed and written, callbacks are asked."""
        run, model, task, clock = self.run, self.model, self.task, self.clock
        if self.first:
            with run.surroundings():
                run.best_value, run.best = self._look(run)["criterion"], run.weights()
        if kept is not None:
            params, parts = model.get_params(deep=False), run.step.modules
            whole = nn.ModuleDict(parts) if len(parts) > 1 else parts["module"]
            kept.resume(run, describe(params, whole, *task.data))
        spent = run.history.get("seconds", [0.0])[-1]
        clock.start(spent)
        began = time.perf_counter()

        def on_epoch(run: TrainingRun) -> Status | None:
            seconds = spent + time.perf_counter() - began
            run.record({"steps": self.done, "seconds": seconds})
            ended = monitor.step(run.history["loss"][-1], math.nan, self._shown)
            if kept is not None:
                kept.save(run)
            return ended or (Status.SOLVED if clock.share(self.done) >= 1 else None)

        rules = Rules(
            max_epochs=run.epoch if clock.share(self.done) >= 1 else sys.maxsize,
            patience=model.n_iter_no_change if task.watched else math.inf,
            max_time=model.max_time if clock.steps is not None else None,
            keep_best=task.watched,
        )
        look = self._look if task.watched else None
        status = train(run, self._batches, rules, look, on_epoch)
        if self.first and run.best_epoch == 0 and run.best is not None:
            run.put_back(run.best)  # also if the first stretch broke off
        module = run.final().eval()
        return Trained(
            run, module, Status.SOLVED if status is Status.MAX_ITER else status
        )

    def _batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        every, done = min(STRETCH, max(10, self.task.a_pass)), self.done
        if self.clock.steps is not None:
            every = min(every, self.clock.steps - done)
        # All are drawn, so that the generator is the same wherever a stretch ends.
        for i, batch in enumerate(list(self.task.draw(rng, every))):
            if i and self.clock.share(done + i) >= 1:
                return
            yield batch

    def _look(self, run: TrainingRun) -> dict[str, float]:
        found = self.task.look(run.final())
        criterion = found if math.isfinite(found) else math.inf
        return {"validation_loss": found, "criterion": criterion}

    def _shown(self) -> dict[str, Any]:
        """The fitted attributes as of now, for callbacks."""
        module: Any = copy.deepcopy(self.run.final()).eval()
        return {**self.state(module), **record(self.run)}


def record(run: TrainingRun) -> dict[str, Any]:
    """What a run leaves: its history, its steps, the best stretch."""
    history = {name: list(column) for name, column in run.history.items()}
    return {
        "history_": history,
        "n_iter_": int(run.schedules[0].last_epoch),
        "best_epoch_": run.best_epoch,
    }


def finish(model: Fit, trained: Trained, state: dict[str, Any]) -> None:
    """Leave what a fit leaves: its state, history, steps, the best stretch."""
    for name, value in {**state, **record(trained.run)}.items():
        setattr(model, name, value)
