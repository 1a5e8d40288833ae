"""The numbers that are measured on a trained network.

The stated loss as a function of a float64 vector: the weighted mean over some rows,
with the module in evaluation mode and in float64, beside its gradient and its Hessian's
products. And how training went, as a record and in words.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from certus import config
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.diagnostics.networks import TrainingRecord, count_rows
from certus.evidence import NetworkWitness
from certus.neural_network.adversarial import Hardened
from certus.neural_network.batches import TOGETHER, Batch, take
from certus.neural_network.objective import Objective
from certus.neural_network.randomness import own_generator
from certus.neural_network.run import TrainingRun
from certus.typing import MatrixLike

if TYPE_CHECKING:
    from certus.neural_network.estimator import NeuralModel


class NetworkLoss:
    """L(θ) = Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s on the rows of a batch.

    Parameters
    ----------
    module : nn.Module
        The trained network; a copy in float64 is used.
    objective : callable
        ``objective(module, batch)``, as the training step has it.
    batch : Batch
        The rows.

    Attributes
    ----------
    point : ndarray
        θ: the trained parameters, one after the other.
    sizes : list of int
        How many numbers each of them has.
    words : str
        What is minimised besides the plain loss.
    """

    def __init__(self, module: nn.Module, objective: Objective, batch: Batch) -> None:
        self.module = copy.deepcopy(module).cpu().double().eval()
        self.plain, self.batch = objective, _in_double(batch)
        self.trained = [p for p in self.module.parameters() if p.requires_grad]
        self.sizes = [p.numel() for p in self.trained]
        self.point = self._vector(self.trained)
        self.objective, self.words = objective, ""
        if isinstance(objective, Hardened):
            # What a search found is held fixed, so that this is a function of θ.
            self.plain, self.words = objective.objective, objective.words
            with self._at(self.point):
                self.objective = objective.held(self.module, self.batch)

    def loss(self, theta: np.ndarray) -> float:
        """L(θ)."""
        with self._at(theta), torch.no_grad():
            return float(self._value())

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """∇L(θ), by reverse-mode differentiation."""
        with self._at(theta):
            return self._vector(self._gradients(self._value()))

    def product(self, theta: np.ndarray, v: np.ndarray) -> np.ndarray:
        """∇²L(θ)v, by differentiating the gradient along v."""
        parts = np.split(np.array(v, dtype=np.float64), np.cumsum(self.sizes)[:-1])
        with self._at(theta):
            gradients = self._gradients(self._value(), create_graph=True)
            along = torch.zeros((), dtype=torch.float64)
            for g, part in zip(gradients, parts):
                if g is not None:
                    along = along + (g.reshape(-1) * torch.from_numpy(part)).sum()
            return self._vector(self._gradients(along))

    def dead_units(self) -> tuple[int, int]:
        """ReLU units, or channels, that are zero on all rows; and how many there are.

        A layer of a recurrent network counts once for each time it is used.
        """
        watch = self._watched()
        return watch.dead, watch.units

    def values(self) -> int:
        """How many numbers a pass forward makes on all rows: what memory goes to."""
        return self._watched().values

    def _watched(self) -> _Watch:
        with self._at(self.point), torch.no_grad(), _Watch() as watch:
            self.plain(self.module, self._copied())
        return watch

    def _value(self) -> Tensor:
        return self.objective(self.module, self._copied())["loss"]

    def _copied(self) -> Batch:
        """The rows again: the module may change them."""
        return self.batch._replace(inputs=tuple(x.clone() for x in self.batch.inputs))

    def _gradients(self, value: Tensor, create_graph: bool = False) -> list[Any]:
        if not value.requires_grad:  # it does not depend on θ, or is linear in it
            return [None] * len(self.trained)
        return list(
            torch.autograd.grad(
                value, self.trained, create_graph=create_graph, allow_unused=True
            )
        )

    def _vector(self, parts: list[Any]) -> np.ndarray:
        flat = [
            np.zeros(size) if p is None else p.detach().reshape(-1).numpy()
            for p, size in zip(parts, self.sizes)
        ]
        return np.concatenate([*flat, np.empty(0)])

    @contextmanager
    def _at(self, theta: np.ndarray) -> Iterator[None]:
        """The module with these weights; what it draws at random is fixed."""
        parts = np.split(np.asarray(theta, np.float64), np.cumsum(self.sizes)[:-1])
        with torch.no_grad():
            for p, part in zip(self.trained, parts):
                p.copy_(torch.from_numpy(np.ascontiguousarray(part)).reshape(p.shape))
        with own_generator():
            torch.default_generator.manual_seed(0)
            yield


class _Watch(TorchFunctionMode):
    """Counts the numbers that are made, and the units behind every ReLU."""

    names = (torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, F.relu, F.relu_)

    def __init__(self) -> None:
        super().__init__()
        self.dead = self.units = self.values = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        made = out if isinstance(out, tuple) else (out,)
        self.values += sum(x.numel() for x in made if isinstance(x, Tensor))
        if func in self.names and out.ndim >= 2:
            # (rows, units), or (rows, channels, ...): one unit is one of axis 1.
            alive = (out > 0).transpose(0, 1).reshape(out.shape[1], -1).any(dim=1)
            self.units += len(alive)
            self.dead += int((~alive).sum())
        return out


def _in_double(batch: Batch) -> Batch:
    def cast(value: Tensor) -> Tensor:
        value = value.detach().cpu()
        return value.double() if value.is_floating_point() else value

    s = None if batch.s is None else cast(batch.s)
    extra = None if batch.extra is None else cast(batch.extra)
    return Batch(tuple(cast(x) for x in batch.inputs), cast(batch.y), s, extra)


def witness_of(run: TrainingRun) -> NetworkWitness:
    """How training ended."""
    diverged = None if run.diverged is None else list(run.diverged)
    return NetworkWitness(run.epoch, run.best_epoch, run.kept, diverged)


def record_of(
    model: NeuralModel, witness: NetworkWitness | None, X: MatrixLike
) -> TrainingRecord:
    """How the training of an estimator went, in the words of the diagnostics."""
    parameters = sum(p.numel() for p in model.module_.parameters())
    if witness is None:  # after a partial fit
        return TrainingRecord(parameters=parameters)
    criterion = _criterion(model)
    # A run with a schedule ends where the schedule does, not on a plateau.
    planned = model.schedule is not None or math.isinf(model.n_iter_no_change)
    return TrainingRecord(
        model.history_.get(criterion, ()),
        criterion,
        witness.epochs,
        witness.best_epoch,
        witness.kept,
        witness.diverged,
        model.max_iter if planned else None,
        float(model.n_iter_no_change),
        model.tol,
        most=model.max_iter,
        parameters=parameters,
        fix="" if witness.diverged is None else _remedy(model, X),
    )


def complain(model: NeuralModel, run: TrainingRun, status: Status) -> None:
    """Warn about a partial fit that diverged, and pass on an interruption."""
    settings = config.get_config()
    if status is Status.INTERRUPTED and settings["on_interrupt"] == "raise":
        raise KeyboardInterrupt
    if run.diverged is not None and settings["on_uncertified"] != "ignore":
        _, step, before = run.diverged
        warnings.warn(
            f"{type(model).__name__}: the loss became NaN or infinite in step {step} "
            f"({before:.3g} before); the weights from before this call were kept. "
            "Fix: lower learning_rate, standardise X, or set clip.",
            UncertifiedWarning,
            stacklevel=4,
        )


def _criterion(model: NeuralModel) -> str:
    """The column of the history by which the best epoch was chosen."""
    scores = model.history_.get("validation_score")
    if scores is None:
        return "loss"
    by_loss = callable(getattr(model, "loss", None)) or not np.isfinite(scores).all()
    return "validation_loss" if by_loss else "validation_score"


def _remedy(model: NeuralModel, X: MatrixLike) -> str:
    """What most likely helps a run whose loss became infinite."""
    some = take(X, np.arange(min(count_rows(X), TOGETHER)))
    few = model._rows(model._read_X(some, reset=False), model.module_)[slice(None)][0]
    largest = float(few.abs().max()) if few.is_floating_point() else 0.0
    if largest > 100:
        return f"standardise X (StandardScaler); its largest entry is {largest:.2g}"
    lower = f"lower learning_rate ({model.learning_rate:g})"
    return lower if model.clip is not None else f"{lower}, or set clip=1.0"
