"""Training of an encoder: stretches of steps, each followed by a look at held-out text.

What an encoder learns is a task of its own (:class:`Task`): its objective, its batches
and its look. This module plans the run, stops it, and keeps checkpoints, as
:mod:`certus.language.training` does for language models.
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
from certus.language.training import (
    PASSES,
    STRETCH,
    RunClock,
    held_out,
    language_step,
    make_plan,
)
from certus.neural_network import distributed
from certus.neural_network.batches import Batch
from certus.neural_network.checkpoint import Checkpoints, describe
from certus.neural_network.randomness import own_generator
from certus.neural_network.run import SMALL, Losses, Rules, TrainingRun
from certus.neural_network.train import train
from certus.typing import Array

#: Tokens of a step by default, and the fewest rows that have them.
TOKENS, FEWEST = 2048, 16
#: Fewest bytes of which some are held out.
WORTH_HOLDING = 256


class Task(Protocol):
    """What an encoder learns."""

    #: Steps that see about as many tokens as the texts have, and tokens of a step.
    a_pass: int
    tokens: int
    #: All that the run depends on, for the fingerprint of a checkpoint.
    data: tuple[Any, ...]
    #: Whether there is held-out text to look at.
    watched: bool

    def objective(self, module: Any, batch: Batch) -> Losses:
        """The losses of a batch."""

    def draw(self, rng: np.random.Generator, steps: int) -> Iterator[Batch]:
        """A batch for each step."""

    def look(self, module: Any) -> float:
        """The loss on held-out text."""


class Trained(NamedTuple):
    """A run at its end, its module, and how it ended."""

    run: TrainingRun
    module: Any
    status: Status


def held_documents(
    model: Any, documents: list[bytes], rng: np.random.Generator
) -> tuple[list[bytes], list[bytes] | None]:
    """Texts to learn from, and those to stop by."""
    if not model.early_stopping or sum(map(len, documents)) < WORTH_HOLDING:
        return documents, None
    rest, held = held_out(documents, float(model.validation_fraction), rng)
    return [text for text in rest if text], held


def checkpoints_of(model: Any, rng: np.random.Generator) -> Checkpoints | None:
    """The checkpoints of a fit; it gets the random numbers of the one it resumes."""
    if model.checkpoint is None:
        return None
    kept = Checkpoints(model.checkpoint)
    kept.begin(rng)
    return kept


def rows_of_a_step(model: Any, lengths: Any) -> int:
    """The rows of a step: those asked for, or so many that have enough tokens."""
    if model.batch_size is not None:
        return int(model.batch_size)
    mean = max(1.0, float(np.mean(lengths)))
    return int(max(FEWEST, round(TOKENS / mean)))


def train_encoder(
    model: Any,
    build: Callable[[], nn.Module],
    task: Task,
    rng: np.random.Generator,
    kept: Checkpoints | None,
    monitor: Monitor,
    state: Callable[[Any], dict[str, Any]],
) -> Trained:
    """Train until the plan, the held-out text, a callback or Ctrl-C ends it.

    Parameters
    ----------
    model : TextEncoder
        With its parameters.
    build : callable
        Makes the module, with random numbers of torch that are the run's own.
    task : Task
        What it learns.
    rng : numpy.random.Generator
        Of the fit.
    kept : Checkpoints or None
        Where the run is saved.
    monitor : Monitor
        Of the fit; callbacks are shown what ``state(module)`` gives.
    state : callable
        The fitted attributes from a module.
    """
    run = _begun(model, build, task, rng)
    module = run.step.modules["module"]
    steps = model.max_iter
    if steps is None and model.max_time is None:
        steps = max(STRETCH, PASSES * task.a_pass)
    clock = RunClock(steps, model.max_time)
    plan = make_plan(run.step.optimizers["module"], clock, model.warmup)
    run.schedules = [plan]
    if kept is not None:
        about = describe(model.get_params(deep=False), module, *task.data)
        kept.resume(run, about)
    spent = run.history.get("seconds", [0.0])[-1]
    clock.start(spent)
    began = time.perf_counter()

    def batches(rng: np.random.Generator) -> Iterator[Batch]:
        every, done = min(STRETCH, max(10, task.a_pass)), plan.last_epoch
        if clock.steps is not None:
            every = min(every, clock.steps - done)
        # All are drawn, so that the generator is the same wherever a stretch ends.
        for i, batch in enumerate(list(task.draw(rng, every))):
            if i and clock.share(done + i) >= 1:
                return
            yield batch

    def look(run: TrainingRun) -> dict[str, float]:
        found = task.look(module)
        criterion = found if math.isfinite(found) else math.inf
        return {"validation_loss": found, "criterion": criterion}

    def on_epoch(run: TrainingRun) -> Status | None:
        seconds = spent + time.perf_counter() - began
        run.record({"steps": plan.last_epoch, "seconds": seconds})
        ended = monitor.step(
            run.history["loss"][-1],
            math.nan,
            lambda: _shown(run, plan.last_epoch, state),
        )
        if kept is not None:
            kept.save(run)
        return ended or (Status.SOLVED if clock.share(plan.last_epoch) >= 1 else None)

    rules = Rules(
        max_epochs=run.epoch if clock.share(plan.last_epoch) >= 1 else sys.maxsize,
        patience=model.n_iter_no_change if task.watched else math.inf,
        max_time=model.max_time if clock.steps is not None else None,
        keep_best=task.watched,
    )
    status = train(run, batches, rules, look if task.watched else None, on_epoch)
    return Trained(
        run, module.eval(), Status.SOLVED if status is Status.MAX_ITER else status
    )


def _begun(
    model: Any, build: Callable[[], nn.Module], task: Task, rng: np.random.Generator
) -> TrainingRun:
    """A run at its beginning."""
    seed = int(rng.integers(2**63 - 1))
    with own_generator():
        torch.default_generator.manual_seed(seed)
        module = build().to(model.device)
        distributed.alike(module)
        state = torch.random.get_rng_state()
    step = language_step(model, module, task.tokens)
    step.objective = task.objective
    weights = sum(p.numel() for p in module.parameters())
    # On small networks a second thread waits longer than it helps.
    threads = 1 if weights * task.tokens <= 8 * SMALL else None
    return TrainingRun(step, rng, state, threads=threads)


def _shown(run: TrainingRun, steps: int, state: Any) -> dict[str, Any]:
    """The fitted attributes as of now, for callbacks."""
    module: Any = copy.deepcopy(run.step.modules["module"]).eval()
    history = {name: list(column) for name, column in run.history.items()}
    return {**state(module), "history_": history, "n_iter_": steps}


def finish(model: Any, trained: Trained, state: dict[str, Any]) -> None:
    """Leave what a fit leaves: its state, history, steps, the best stretch."""
    run = trained.run
    for name, value in state.items():
        setattr(model, name, value)
    model.history_ = {name: list(column) for name, column in run.history.items()}
    model.n_iter_ = int(run.schedules[0].last_epoch)
    model.best_epoch_ = run.best_epoch


def in_order_of_length(
    rng: np.random.Generator, lengths: Array, steps: int, size: int
) -> Iterator[Array]:
    """Row numbers of each batch; rows of like length go together, batches at random.

    Every row comes once before any comes twice.
    """
    count, order = steps * size, np.zeros(0, np.int64)
    while len(order) < count:
        order = np.concatenate([order, rng.permutation(len(lengths))])
    order = order[:count]
    wide = size * max(1, min(steps, 16))
    for begin in range(0, count, wide):
        part = order[begin : begin + wide]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches = part.reshape(-1, size)
        yield from batches[rng.permutation(len(batches))]
