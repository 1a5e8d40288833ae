"""Muon: momentum whose matrices are made orthogonal before each step.

For a weight matrix W with momentum M = UΣVᵀ the step is along UVᵀ: all directions of M
move by the same amount, so that a few large singular values do not decide the rate of
all others. UVᵀ is approximated by five steps of a polynomial,

    X ← aX + (bA + cA²)X,   A = XXᵀ,

which brings all singular values near 1 (Jordan et al., 2024). Vectors, embeddings and
the last layer are moved by Adam.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

#: a, b, c of the polynomial, and how often it is applied.
POLYNOMIAL = (3.4445, -4.775, 2.0315)
TIMES = 5
#: Adam's rate as a share of the rate of matrices.
SHARE = 0.15


class Muon(torch.optim.Optimizer):
    """Orthogonal steps for matrices, Adam for all else.

    Parameters
    ----------
    params : iterable
        Groups of parameters. Those of a group with ``"matrices": True`` move along
        orthogonal matrices; each matrix with more than twice as many rows as columns
        is taken as square ones below each other where that is exact, as queries, keys
        and values of attention are.
    lr : float, default=0.02
        Step size of matrices; groups may have their own.
    momentum : float, default=0.95
        Decay of the mean gradient (Nesterov's form).
    betas : pair of float, default=(0.9, 0.99)
        Decays of Adam's means.
    weight_decay : float, default=0.0
        Decoupled: weights shrink by lr·weight_decay in each step.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network import Muon
    >>> W = torch.nn.Parameter(torch.zeros(3, 3))
    >>> W.grad = torch.diag(torch.tensor([9.0, 3.0, 1.0]))
    >>> Muon([{"params": [W], "matrices": True}], lr=1.0).step()
    >>> bool((W.diagonal() + 1).abs().max() < 0.4)  # all directions alike, about −1
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.02,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "betas": betas,
            "weight_decay": weight_decay,
            "matrices": False,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Move all parameters that have a gradient."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            given = [p for p in group["params"] if p.grad is not None]
            if not given:
                continue
            if group["weight_decay"]:
                torch._foreach_mul_(given, 1 - group["lr"] * group["weight_decay"])
            if group["matrices"]:
                self._orthogonal(given, group)
            else:
                self._adam(given, group)
        return loss

    def _orthogonal(self, given: list[Tensor], group: dict[str, Any]) -> None:
        beta = group["momentum"]
        by_shape: dict[Any, list[tuple[Tensor, Tensor]]] = {}
        for p in given:
            grad: Any = p.grad
            mean = self.state[p].setdefault("mean", torch.zeros_like(p))
            mean.lerp_(grad, 1 - beta)
            ahead = grad.lerp(mean, beta)
            for part, g in zip(_squares(p), _squares(ahead)):
                by_shape.setdefault(g.shape, []).append((part, g))
        for (rows, columns), pairs in by_shape.items():
            steps = orthogonal(torch.stack([g for _, g in pairs]))
            rate = group["lr"] * math.sqrt(max(1.0, rows / columns))
            for (part, _), step in zip(pairs, steps):
                part.sub_(step, alpha=rate)

    def _adam(self, given: list[Tensor], group: dict[str, Any]) -> None:
        first, second = group["betas"]
        for p in given:
            state, grad = self.state[p], p.grad
            assert grad is not None
            if not state:
                state["step"] = torch.zeros(())
                state["mean"], state["square"] = (
                    torch.zeros_like(p),
                    torch.zeros_like(p),
                )
            state["step"] += 1
            t = float(state["step"])
            state["mean"].lerp_(grad, 1 - first)
            state["square"].lerp_(grad.square(), 1 - second)
            scale = (state["square"] / (1 - second**t)).sqrt_().add_(1e-10)
            p.addcdiv_(state["mean"], scale, value=-group["lr"] / (1 - first**t))


def _squares(W: Tensor) -> list[Tensor]:
    """The square blocks of a matrix of 3 of them, such as W_Q, W_K, W_V; or itself."""
    W = W if W.ndim == 2 else W.flatten(1)
    return list(W.chunk(3)) if W.shape[0] == 3 * W.shape[1] else [W]


def orthogonal(M: Tensor) -> Tensor:
    """Matrices near UVᵀ for matrices M = UΣVᵀ, (batch, rows, columns).

    Singular values end between about 0.7 and 1.2.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.muon import orthogonal
    >>> fixed = torch.Generator().manual_seed(0)
    >>> X = orthogonal(torch.randn(1, 8, 16, generator=fixed))
    >>> values = torch.linalg.svdvals(X)
    >>> bool(values.min() > 0.5 and values.max() < 1.3)
    True
    """
    a, b, c = POLYNOMIAL
    wide = M.shape[1] <= M.shape[2]
    X = M if wide else M.transpose(1, 2)
    X = X / (X.norm(dim=(1, 2), keepdim=True) + 1e-12)
    for _ in range(TIMES):
        A = X @ X.transpose(1, 2)
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return X if wide else X.transpose(1, 2)


def muon_groups(module: nn.Module, rate: float, decay: float) -> list[dict[str, Any]]:
    """Groups for :class:`Muon`: inner matrices, other weights, and what has one axis.

    Parameters
    ----------
    module : nn.Module
        Embeddings, and linear maps whose outputs are scores (``head``), are Adam's.
    rate, decay : float
        Learning rate of matrices; weight decay of all that has two axes.
    """
    tables = {
        id(p)
        for name, part in module.named_modules()
        for p in part.parameters(recurse=False)
        if isinstance(part, nn.Embedding) or name.endswith("head")
    }
    trained = [p for p in module.parameters() if p.requires_grad]
    inner = [p for p in trained if p.ndim > 1 and id(p) not in tables]
    wide = [p for p in trained if p.ndim > 1 and id(p) in tables]
    rest = [p for p in trained if p.ndim < 2]
    slow = SHARE * rate
    groups = [
        {"params": inner, "matrices": True, "lr": rate, "weight_decay": decay},
        {"params": wide, "matrices": False, "lr": slow, "weight_decay": decay},
        {"params": rest, "matrices": False, "lr": slow, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
