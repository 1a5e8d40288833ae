"""Training of an encoder: which texts are held out, and how many make a step.

What an encoder learns is a task of its own (:class:`TextTask`): its objective, its
batches and its look. :mod:`certus.neural_network.tasks` trains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from torch import nn

from certus.callbacks import Monitor
from certus.language.training import held_out, language_step
from certus.neural_network.checkpoint import Checkpoints
from certus.neural_network.objective import GradientStep
from certus.neural_network.run import SMALL
from certus.neural_network.tasks import Task, TaskCourse, Trained, begin
from certus.typing import Array, Fit

#: Tokens of a step by default, and the fewest rows that have them.
TOKENS, FEWEST = 2048, 16
#: Fewest bytes of which some are held out.
WORTH_HOLDING = 256


class TextTask(Task, Protocol):
    """What an encoder learns."""

    #: Tokens of a step.
    tokens: int


def held_documents(
    model: Fit, documents: list[bytes], rng: np.random.Generator
) -> tuple[list[bytes], list[bytes] | None]:
    """Texts to learn from, and those to stop by."""
    if not model.early_stopping or sum(map(len, documents)) < WORTH_HOLDING:
        return documents, None
    rest, held = held_out(documents, float(model.validation_fraction), rng)
    return [text for text in rest if text], held


def rows_of_a_step(model: Fit, lengths: Any) -> int:
    """The rows of a step: those asked for, or as many as have enough tokens."""
    if model.batch_size is not None:
        return int(model.batch_size)
    mean = max(1.0, float(np.mean(lengths)))
    return int(max(FEWEST, round(TOKENS / mean)))


def train_encoder(
    model: Fit,
    build: Callable[[], nn.Module],
    task: TextTask,
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
    task : TextTask
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
    run = begin(
        model,
        build,
        lambda module: _step(model, module, task),
        rng,
        # On small networks a second thread waits longer than it helps.
        lambda module: 1 if _weights(module) * task.tokens <= 8 * SMALL else None,
    )
    return TaskCourse(model, run, task, state).train(kept, monitor)


def _step(model: Fit, module: nn.Module, task: TextTask) -> GradientStep:
    step = language_step(model, module, task.tokens)
    step.objective = task.objective
    return step


def _weights(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


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
    for first in range(0, count, wide):
        part = order[first : first + wide]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches = part.reshape(-1, size)
        yield from batches[rng.permutation(len(batches))]
