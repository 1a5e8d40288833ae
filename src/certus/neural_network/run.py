"""A training run: the step that moves the weights, and the state reached so far.

A :class:`TrainingStep` moves on one batch. A :class:`TrainingRun` is a step with its
random numbers, averages, schedules and history; it is what a checkpoint holds.
:class:`Rules` say when it ends. The loop over epochs and batches is in
:mod:`certus.neural_network.train`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from certus.neural_network.randomness import own_generator

Losses = dict[str, Tensor]
#: Products in a pass forward up to which one thread is faster than two.
SMALL = 8_000_000


class TrainingStep(Protocol):
    """Moves the weights on one batch.

    One that has a method ``begin(batches)`` receives the batches of each epoch before
    the first of them.
    """

    #: By name: the modules that are trained, and the optimisers that move them.
    modules: dict[str, nn.Module]
    optimizers: dict[str, torch.optim.Optimizer]

    def __call__(self, rows: Any) -> Losses:
        """Move on the rows of these numbers; ``"loss"`` is the one that is watched."""


class Divergence(NamedTuple):
    """Where losses or weights became NaN or infinite."""

    epoch: int
    step: int
    before: float  # the loss of the step before


class Rules(NamedTuple):
    """When a run ends, and what of it is kept."""

    max_epochs: int
    #: Epochs without an improvement of more than ``tol`` after which it ends.
    patience: float = math.inf
    tol: float = 0.0
    max_time: float | None = None
    #: Whether the weights of the best epoch are put back at the end.
    keep_best: bool = False


class WeightsCopy(NamedTuple):
    """A copy of all weights, and how many epochs had been made."""

    epoch: int
    weights: dict[str, Any]


@dataclass
class TrainingRun:
    """The state of a run between two epochs."""

    step: TrainingStep
    rng: np.random.Generator
    torch_state: Tensor
    #: Averages of the weights, by the name of their module.
    averages: dict[str, AveragedModel] = field(default_factory=dict)
    schedules: list[Any] = field(default_factory=list)
    epoch: int = 0
    #: Epoch after which the weights were as they are now.
    kept: int = 0
    best_epoch: int = 0
    best_value: float = math.inf
    stale: int = 0
    best: dict[str, Any] | None = None
    history: dict[str, list[float]] = field(default_factory=dict)
    #: Of the first batch, before the first step.
    first_loss: float | None = None
    #: The last weights whose loss was no higher; a run that diverges goes back to them.
    sane: WeightsCopy | None = None
    #: The most threads to use, if fewer are faster; see :func:`threads_for`.
    threads: int | None = None
    diverged: Divergence | None = None

    def record(self, values: dict[str, float]) -> None:
        """Add a line to the history; every column has one entry for each epoch."""
        for name, value in values.items():
            self.history.setdefault(name, []).append(float(value))

    def weights(self) -> dict[str, Any]:
        """A copy of all weights and buffers, averages included."""
        return {name: _copied(m.state_dict()) for name, m in self._parts().items()}

    def put_back(self, weights: dict[str, Any]) -> None:
        """Load what :meth:`weights` gave."""
        for name, module in self._parts().items():
            module.load_state_dict(weights[name])

    def _parts(self) -> dict[str, nn.Module]:
        averages = {f"average.{name}": m for name, m in self.averages.items()}
        return {**self.step.modules, **averages}

    def parameters(self) -> Iterator[Tensor]:
        """All that is trained."""
        for module in self.step.modules.values():
            yield from module.parameters()

    def training_mode(self) -> None:
        """Training mode for all but frozen batch norms, which stay as they are."""
        for module in self.step.modules.values():
            module.train()
            for part in module.modules():
                if isinstance(part, nn.modules.batchnorm._BatchNorm):
                    own = list(part.parameters())
                    part.training = not own or any(p.requires_grad for p in own)

    def came_apart(self, losses: Tensor) -> Divergence | None:
        """Where the losses of an epoch, or the weights after it, are not numbers."""
        bad = torch.nonzero(~torch.isfinite(losses))
        if len(bad):
            at = int(bad[0, 0])
        elif all(bool(torch.isfinite(p).all()) for p in self.parameters()):
            return None
        else:  # the last step did it
            at = len(losses)
        earlier = self.history.get("loss") or [math.nan]
        before = float(losses[at - 1]) if at else earlier[-1]
        return Divergence(self.epoch + 1, min(at + 1, len(losses)), before)

    def final(self, name: str = "module") -> nn.Module:
        """The module whose weights are the result: the average, if there is one."""
        average = self.averages.get(name)
        return self.step.modules[name] if average is None else average.module

    def n_threads(self) -> int:
        """How many threads compute."""
        most = torch.get_num_threads()
        return most if self.threads is None else min(most, self.threads)

    @contextmanager
    def surroundings(self) -> Iterator[None]:
        """The run's own threads and random numbers; the user's are put back."""
        devices = {p.device for p in self.parameters() if p.device.type == "cuda"}
        before = torch.get_num_threads()
        torch.set_num_threads(self.n_threads())
        try:
            with own_generator(sorted(d.index or 0 for d in devices)):
                torch.random.set_rng_state(self.torch_state)
                yield
        finally:
            torch.set_num_threads(before)


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {
        name: v.detach().clone() if isinstance(v, Tensor) else copy.deepcopy(v)
        for name, v in state.items()
    }


def threads_for(module: nn.Module, rows: int) -> int | None:
    """One thread for a network so small that two would wait for one another.

    Only for networks that use each weight once for a row: elsewhere (convolutions,
    recurrences) the amount of work is unknown, and torch decides.
    """
    plain = all(
        isinstance(part, nn.Linear) or p.ndim < 2
        for part in module.modules()
        for p in part.parameters(recurse=False)
    )
    weights = sum(p.numel() for p in module.parameters())
    return 1 if plain and weights * rows <= SMALL else None
