"""Optimisers and schedules by name, and the weight decay that spares biases.

torch's own optimisers, and what it lacks: the sign of the gradient, gradients of less
variance, weights within a ball. A schedule is a factor of the learning rate, a
function of the share of the run that is over.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from certus.base import check_choice, check_number
from certus.neural_network.batches import Batch
from certus.neural_network.objective import GradientStep, Objective
from certus.neural_network.run import Losses


class SignSGD(torch.optim.Optimizer):
    """θ ← θ − η sign(m) with m = βm + (1 − β)g; no momentum by default.

    Where several processes train together each sends the signs of its gradient, and the
    majority decides.

    Parameters
    ----------
    params : iterable
        Parameters or groups of them.
    lr : float, default=0.01
        How far each weight moves in a step.
    momentum : float, default=0.0
        β.
    weight_decay : float, default=0.0
        Decoupled: weights shrink by lr·weight_decay in each step.

    Examples
    --------
    >>> import certus, torch
    >>> w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> w.grad = torch.tensor([-30.0, 0.2])
    >>> certus.neural_network.SignSGD([w], lr=0.5).step()
    >>> w.tolist()
    [1.5, 1.5]
    """

    votes = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.01,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Move all parameters that have a gradient."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            beta, rate = group["momentum"], group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad
                if beta:
                    g = self.state[p].setdefault("mean", torch.zeros_like(p))
                    g.mul_(beta).add_(p.grad, alpha=1 - beta)
                p.mul_(1 - rate * group["weight_decay"])
                p.sub_(rate * torch.sign(g))
        return loss


class VarianceReducedStep(GradientStep):
    """SVRG: moves along ∇f_B(θ) − ∇f_B(θ̃) + ∇f(θ̃), B a batch and f the mean loss.

    The anchor θ̃ are the weights at the start of the epoch. The estimate is unbiased and
    its variance vanishes at the minimum, so that a constant learning rate converges to
    it. An epoch costs three passes over the rows in place of one.
    """

    def begin(self, batches: list[Any]) -> None:
        """Set the anchor, and take the gradient over all rows there.

        Parameters
        ----------
        batches : list
            Row numbers of the batches of an epoch.
        """
        self.anchor = copy.deepcopy(self.modules["module"])
        self.full = [torch.zeros_like(p) for p in self.anchor.parameters()]
        total: Any = 0.0
        for rows in batches:
            _, weight = super().gradients(self.anchor, *self.fetched(rows))
            total = total + weight
            for mean, p in zip(self.full, self.anchor.parameters()):
                if p.grad is not None:
                    mean += weight * p.grad
        for mean in self.full:
            mean /= total

    def gradients(
        self, module: nn.Module, batch: Batch, weight: float | Tensor
    ) -> tuple[Losses, Any]:
        """Leave a module the corrected gradients; the losses are the batch's own."""
        drawn = torch.random.get_rng_state()
        found = super().gradients(module, batch, weight)
        torch.random.set_rng_state(drawn)  # the same units drop out at the anchor
        super().gradients(self.anchor, batch, weight)
        parts = zip(module.parameters(), self.anchor.parameters(), self.full)
        for p, q, mean in parts:
            if p.grad is not None and q.grad is not None:
                p.grad += mean - q.grad
        return found


#: Optimisers by name, each with what is set unless the user says otherwise.
OPTIMIZERS: dict[str, tuple[type, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"fused": True, "decoupled_weight_decay": True}),
    "nadam": (torch.optim.NAdam, {"decoupled_weight_decay": True}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adagrad": (torch.optim.Adagrad, {"fused": True}),
    "adadelta": (torch.optim.Adadelta, {}),
    "signsgd": (SignSGD, {}),
    "svrg": (torch.optim.SGD, {}),
}


def make_step(
    kind: str | Callable[..., torch.optim.Optimizer],
    module: nn.Module,
    rate: float,
    decay: float | dict[str, float],
    objective: Objective,
    clip: float | None = None,
) -> GradientStep:
    """The step that moves a module: an optimiser, and the gradients it is given.

    Parameters
    ----------
    kind : str or callable
        As for :func:`make_optimizer`.
    module : nn.Module
        What is trained.
    rate, decay : float
        Learning rate and weight decay.
    objective : callable
        ``objective(module, batch)`` gives the losses of a batch.
    clip : float, optional
        Largest norm of a gradient.
    """
    optimizer = make_optimizer(kind, module, rate, decay)
    cls = VarianceReducedStep if kind == "svrg" else GradientStep
    return cls(module, optimizer, objective, None, clip)


def make_optimizer(
    kind: str | Callable[..., torch.optim.Optimizer],
    module: nn.Module,
    rate: float,
    decay: float | dict[str, float] = 0.0,
    options: dict[str, Any] | None = None,
) -> torch.optim.Optimizer:
    """The optimiser of a module's trainable parameters.

    Parameters
    ----------
    kind : str or callable
        A name of ``OPTIMIZERS``, or ``kind(groups, lr=...)`` of the user's own.
    module : nn.Module
        Parameters that need no gradient are left alone.
    rate : float
        Learning rate.
    decay : float or dict
        Weight decay of weights, not of biases and not of norms' scales; or one for
        each part of the module, by its name.
    options : dict, optional
        Passed to the optimiser.
    """
    groups = decay_groups(module, decay)
    if callable(kind):
        found = kind(groups, lr=rate, **(options or {}))
        if not isinstance(found, torch.optim.Optimizer):
            raise TypeError(
                "optimizer(parameters, lr=...) must return a torch.optim.Optimizer, "
                f"got a {type(found).__name__}."
            )
        return found
    check_choice("optimizer", kind, tuple(OPTIMIZERS))
    cls, preset = OPTIMIZERS[kind]
    return cls(groups, lr=rate, **{**preset, **(options or {})})


#: Layers whose scales do not count as weights, whatever their shape.
NORMS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    *(nn.LayerNorm, nn.GroupNorm, nn.RMSNorm),
)


def decay_groups(
    module: nn.Module, decay: float | dict[str, float]
) -> list[dict[str, Any]]:
    """Trainable parameters in groups of equal weight decay.

    Biases and the scales of norms do not decay. A dictionary has a decay for each part
    of the module it names, and the longest name that fits counts: with
    ``{"": 1e-4, "head": 1e-2}`` the part ``head`` decays faster than all others.
    """
    by_name = decay if isinstance(decay, dict) else {"": decay}
    trained = {k: p for k, p in module.named_parameters() if p.requires_grad}
    for name, value in by_name.items():
        check_number(f"weight_decay of {name!r}" if name else "weight_decay", value)
        if name and not any(_within(k, name) for k in trained):
            raise ValueError(
                f"weight_decay names {name!r}, which is not a part of the module. Its "
                f"parameters are {', '.join(list(trained)[:6])}."
            )
    spared = {
        id(p)
        for part in module.modules()
        for p in part.parameters(recurse=False)
        if p.ndim < 2 or isinstance(part, NORMS)
    }
    groups: dict[float, list[Any]] = {}
    for k, p in trained.items():
        fits = [name for name in by_name if _within(k, name)]
        factor = by_name[max(fits, key=len)] if fits else 0.0
        groups.setdefault(0.0 if id(p) in spared else float(factor), []).append(p)
    if set(groups) <= {0.0}:  # the user's own optimiser may know no weight_decay
        return [{"params": params} for params in groups.values()]
    return [{"params": params, "weight_decay": f} for f, params in groups.items()]


def _within(parameter: str, part: str) -> bool:
    return not part or parameter == part or parameter.startswith(part + ".")


def max_norm(
    optimizer: torch.optim.Optimizer, radius: float, *, whole: bool = False
) -> torch.optim.Optimizer:
    """Let an optimiser project the weights on a ball after each step.

    Objective
    ---------
    min L(θ) subject to ‖w‖₂ ≤ radius for the weights w into each unit, by
    θ ← Π(θ − η∇L(θ)).

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Whose parameters are constrained; those of one axis, biases, are not.
    radius : float
        Largest norm.
    whole : bool, default=False
        Constrain the norm of all weights together in place of each unit's.

    Returns
    -------
    torch.optim.Optimizer
        The same one.

    Examples
    --------
    As ``optimizer`` of an estimator, written as a function of parameters and rate:

    >>> import torch
    >>> from certus.neural_network import max_norm
    >>> def within_three(params, lr):
    ...     return max_norm(torch.optim.SGD(params, lr=lr), 3.0)
    >>> layer = torch.nn.Linear(2, 1)
    >>> loss = (layer(torch.ones(1, 2)) - 100.0).square().sum()
    >>> loss.backward()
    >>> within_three(layer.parameters(), lr=1.0).step()
    >>> round(layer.weight.norm().item(), 4)
    3.0
    """
    check_number("radius", radius, open_low=True)

    @torch.no_grad()
    def project(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        parameters = (p for group in optimizer.param_groups for p in group["params"])
        weights = [p for p in parameters if p.ndim > 1]
        if whole:
            norm = torch.stack([w.norm() for w in weights]).norm()
            for w in weights:
                w.mul_((radius / norm).clamp(max=1.0))
            return
        for w in weights:
            norms = w.flatten(1).norm(dim=1).reshape(-1, *[1] * (w.ndim - 1))
            w.mul_((radius / norms).clamp(max=1.0))

    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"Pass a torch.optim.Optimizer; got {optimizer!r}.")
    optimizer.register_step_post_hook(project)
    return optimizer


#: Schedules by name: the factor of the rate when a share t of the run is over.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": lambda t: 0.5 * (1 + math.cos(math.pi * min(t, 1.0))),
    "linear": lambda t: max(0.0, 1 - t),
    "step": lambda t: 0.1 ** (int(3 * t) if t < 1 else 2),
    "inverse": lambda t: 1 / (1 + 10 * t),
}


def make_schedule(
    kind: str | Callable[[float], float] | None,
    optimizer: torch.optim.Optimizer,
    steps: int,
    warmup: float = 0.0,
) -> torch.optim.lr_scheduler.LRScheduler | None:
    """A schedule over ``steps`` steps, rising linearly in the first ``warmup`` of it.

    Parameters
    ----------
    kind : None, str or callable
        A name of ``SCHEDULES``, or the user's own function of the share that is over.
    optimizer : torch.optim.Optimizer
        Whose rates it changes.
    steps : int
        Steps of the whole run.
    warmup : float
        Share of the run.
    """
    check_number("warmup", warmup, 0, 1)
    if kind is None and not warmup:
        return None
    if kind is not None and not callable(kind):
        check_choice("schedule", kind, (None, *SCHEDULES))
        kind = SCHEDULES[kind]
    elif isinstance(kind, type):
        raise TypeError(
            "schedule must be a name, or a function that takes the share of training "
            "done so far and returns a factor for the learning rate; got "
            f"{kind.__name__}."
        )

    def factor(step: int) -> float:
        t = step / max(1, steps)
        rise = 1.0 if t >= warmup else (step + 1) / (warmup * steps + 1)
        return rise * (1.0 if kind is None else kind(t))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def make_average(module: nn.Module, kind: str | float | None) -> AveragedModel | None:
    """An average of the weights over steps: ``"polyak"``, or the decay of an EMA."""
    if kind is None:
        return None
    if isinstance(kind, str):
        if kind != "polyak":
            raise ValueError(
                "average must be None, 'polyak' or the decay of an exponential "
                f"average, such as 0.99; got {kind!r}."
            )
        return AveragedModel(module, use_buffers=False)
    check_number("average", kind, 0, 1)
    decay = get_ema_multi_avg_fn(float(kind))
    return AveragedModel(module, multi_avg_fn=decay, use_buffers=False)


def warmed_average(module: nn.Module, decay: float) -> AveragedModel:
    """An exponential mean of weights whose decay rises: min(decay, (1 + s)/(10 + s)).

    After s steps. A fixed decay of 0.999 keeps a third of the first weights for a
    thousand steps, so that short runs would end near their start.

    Parameters
    ----------
    module : nn.Module
        Whose weights are averaged.
    decay : float
        Largest decay.
    """
    check_number("average", decay, 0, 1)

    @torch.no_grad()
    def towards(
        means: Sequence[Tensor], weights: Sequence[Tensor], count: Tensor | int
    ) -> None:
        s = int(count)
        share = 1 - min(float(decay), (1 + s) / (10 + s))
        torch._foreach_lerp_(list(means), list(weights), share)

    return AveragedModel(module, multi_avg_fn=towards, use_buffers=False)
