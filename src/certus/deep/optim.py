"""Optimisers and schedules by name, and the weight decay that spares biases.

torch's own optimisers, with those of the notes that torch lacks. A schedule is a factor
of the learning rate, told the share of the run that is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from certus.base import check_choice


class SignSGD(torch.optim.Optimizer):
    """θ ← θ − η sign(m) with m = βm + (1 − β)g; no momentum by default.

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
    """

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
    def step(self, closure: Any = None) -> Any:
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


#: Optimisers by name, each with what is set unless the user says otherwise.
OPTIMIZERS: dict[str, tuple[type, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"fused": True, "decoupled_weight_decay": True}),
    "nadam": (torch.optim.NAdam, {"decoupled_weight_decay": True}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adagrad": (torch.optim.Adagrad, {"fused": True}),
    "adadelta": (torch.optim.Adadelta, {}),
    "signsgd": (SignSGD, {}),
}


def make_optimizer(
    kind: Any,
    module: nn.Module,
    rate: float,
    decay: float = 0.0,
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
    decay : float
        Weight decay of weights, not of biases and not of norms' scales.
    options : dict, optional
        Passed to the optimiser.
    """
    groups = decay_groups(module, decay)
    if callable(kind):
        return kind(groups, lr=rate, **(options or {}))
    check_choice("optimizer", kind, tuple(OPTIMIZERS))
    cls, preset = OPTIMIZERS[kind]
    return cls(groups, lr=rate, **{**preset, **(options or {})})


def decay_groups(module: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Trainable parameters as two groups: weights, which decay, and all others."""
    trained = [p for p in module.parameters() if p.requires_grad]
    if not decay:
        return [{"params": trained}]
    weights = [p for p in trained if p.ndim > 1]
    others = [p for p in trained if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": decay}]
    return [*groups, {"params": others, "weight_decay": 0.0}] if others else groups


#: Schedules by name: the factor of the rate when a share t of the run is over.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": lambda t: 0.5 * (1 + math.cos(math.pi * min(t, 1.0))),
    "linear": lambda t: max(0.0, 1 - t),
    "step": lambda t: 0.1 ** (int(3 * t) if t < 1 else 2),
    "inverse": lambda t: 1 / (1 + 10 * t),
}


def make_schedule(
    kind: Any, optimizer: torch.optim.Optimizer, steps: int, warmup: float = 0.0
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
    if kind is None and not warmup:
        return None
    if kind is not None and not callable(kind):
        check_choice("schedule", kind, (None, *SCHEDULES))
        kind = SCHEDULES[kind]

    def factor(step: int) -> float:
        t = step / max(1, steps)
        rise = 1.0 if t >= warmup else (step + 1) / (warmup * steps + 1)
        return rise * (1.0 if kind is None else kind(t))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def make_average(
    module: nn.Module, kind: float | str | None
) -> torch.optim.swa_utils.AveragedModel | None:
    """An average of the weights over steps: ``"polyak"``, or the decay of an EMA."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    if kind is None:
        return None
    if kind == "polyak":
        return AveragedModel(module, use_buffers=False)
    decay = get_ema_multi_avg_fn(float(kind))
    return AveragedModel(module, multi_avg_fn=decay, use_buffers=False)
