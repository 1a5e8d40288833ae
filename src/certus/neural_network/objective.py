"""The objective of a network, and the plain step that decreases it.

    Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s   over the rows of a batch

Targets are class numbers, soft targets (a distribution over classes), zeros and ones
of several labels, or numbers; the losses are those of scikit-learn's networks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network import distributed
from certus.neural_network.batches import Batch
from certus.neural_network.run import Losses


def cross_entropy(z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """−Σₖ tₖ log softmax(z)ₖ for each row; ``y`` holds numbers or distributions t."""
    return F.cross_entropy(z, y, reduction="none", label_smoothing=smoothing)


def binary_cross_entropy(z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """−y log σ(z) − (1 − y) log σ(−z), summed over labels as scikit-learn does."""
    y = y.to(z.dtype).reshape(z.shape)
    y = y * (1 - smoothing) + 0.5 * smoothing
    loss = F.binary_cross_entropy_with_logits(z, y, reduction="none")
    return loss.reshape(len(z), -1).sum(dim=1)


def squared(z: Tensor, y: Tensor) -> Tensor:
    """½(z − y)², its mean over outputs."""
    return 0.5 * (z - y.to(z.dtype).reshape(z.shape)).square().reshape(len(z), -1).mean(
        dim=1
    )


#: Losses by name; each gives one number for each row.
LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "squared": squared,
}


def weighted_mean(rows: Tensor, s: Tensor | None) -> Tensor:
    """Σ sᵢ rowsᵢ / Σ s; the plain mean without weights."""
    return rows.mean() if s is None else (s * rows).sum() / s.sum()


class RowLoss:
    """The weighted mean over a batch of a loss of each row.

    Parameters
    ----------
    loss : callable
        ``loss(z, y)`` gives a tensor with one number for each row.
    """

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.loss = loss

    def __call__(self, module: nn.Module, batch: Batch) -> Losses:
        """The losses of a batch; ``"loss"`` is minimised, others are recorded."""
        rows = self.loss(module(*batch.inputs), batch.y)
        return {"loss": weighted_mean(rows, batch.s)}


#: ``objective(module, batch)`` gives the losses of a batch.
Objective = Callable[[Any, Batch], Losses]
#: Turns the targets of an estimator into those of a task built upon it.
Change = Callable[["Targets"], "Targets"]


class Targets(NamedTuple):
    """The targets, in the form that the loss needs."""

    y: Tensor
    loss: Callable[[Tensor, Tensor], Tensor]  # one number for each row
    outputs: int  # of the network, for each row
    groups: Any = None  # class numbers, to share out rows evenly
    #: Set if the objective is more than the mean of ``loss``: it is called with batches
    #: whose ``extra`` are rows of the table ``extra``.
    objective: Objective | None = None
    extra: Tensor | None = None


def minimised(targets: Targets) -> Objective:
    """The objective: the mean loss of rows, unless the targets have their own."""
    return RowLoss(targets.loss) if targets.objective is None else targets.objective


class GradientStep:
    """The plain step: loss, backward, clip, move.

    Parameters
    ----------
    module : nn.Module
        What is trained.
    optimizer : torch.optim.Optimizer
        Moves its parameters.
    objective : callable
        ``objective(module, batch)`` gives the losses of a batch.
    fetch : callable, optional
        Gives the :class:`Batch` of some row numbers; without it the step is called with
        a batch.
    clip : float, optional
        Largest norm of a gradient.

    Attributes
    ----------
    project : callable or None
        Called after each step: puts the weights back to where they are allowed.
    """

    project: Callable[[], None] | None = None

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        objective: Callable[[nn.Module, Batch], Losses],
        fetch: Callable[[Any], Batch] | None = None,
        clip: float | None = None,
    ) -> None:
        self.modules = {"module": module}
        self.optimizers = {"module": optimizer}
        self.objective, self.fetch, self.clip = objective, fetch, clip
        self._weights = [*module.parameters()]  # finding them takes 1 % of a small step

    def __call__(self, rows: Any) -> Losses:
        """Move on the rows of these numbers."""
        module, optimizer = self.modules["module"], self.optimizers["module"]
        losses, _ = self.gradients(module, *self.fetched(rows))
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self._weights, self.clip)
        optimizer.step()
        if self.project is not None:
            self.project()
        return losses

    def fetched(self, rows: Any) -> tuple[Batch, Any]:
        """The share of a batch that is this process's, and its weight."""
        if self.fetch is None:
            batch, counts = rows, 1.0
        else:
            rows, counts = distributed.share(rows)
            batch = self.fetch(rows)
        return batch, counts * (len(batch.y) if batch.s is None else batch.s.sum())

    def gradients(
        self, module: nn.Module, batch: Batch, weight: float | Tensor
    ) -> tuple[Losses, Any]:
        """Leave a module the gradients of the whole batch; its losses and weight."""
        losses = self.objective(module, batch)
        if not losses["loss"].requires_grad:
            raise ValueError(
                "The loss does not depend on the module's parameters. Compute it "
                "from the outputs, without detach, no_grad or item."
            )
        own = module is self.modules["module"]
        for weights in self._weights if own else module.parameters():
            weights.grad = None
        losses["loss"].backward()
        plain = {name: value.detach() for name, value in losses.items()}
        vote = getattr(self.optimizers["module"], "votes", False)
        return distributed.bring_together(module, plain, weight, vote)
