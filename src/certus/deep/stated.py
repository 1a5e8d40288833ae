"""The stated loss of a trained network as a function of a float64 vector.

What the verifier looks at: the weighted mean loss over some rows, with the module in
evaluation mode and in float64, beside its gradient and its Hessian's products.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certus.deep.batches import Batch


class Stated:
    """L(θ) = Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s on the rows of a batch.

    Parameters
    ----------
    module : nn.Module
        The trained network; a copy in float64 is used.
    objective : callable
        ``objective(module, batch)``, as the training step has it.
    batch : Batch
        The rows.
    """

    def __init__(self, module: nn.Module, objective: Any, batch: Batch) -> None:
        self.module = copy.deepcopy(module).cpu().double().eval()
        self.objective, self.batch = objective, _in_double(batch)
        trained = [(k, p) for k, p in self.module.named_parameters() if p.requires_grad]
        self.shapes = [(name, p.shape) for name, p in trained]
        parts = [p.detach().reshape(-1) for _, p in trained]
        self.point = torch.cat(parts).numpy().copy() if parts else np.empty(0)

    def loss(self, theta: Any) -> float:
        """L(θ)."""
        with torch.no_grad():
            return float(self._value(torch.from_numpy(np.asarray(theta))))

    def gradient(self, theta: Any) -> np.ndarray:
        """∇L(θ), by reverse-mode differentiation."""
        t = torch.from_numpy(np.array(theta)).requires_grad_()
        return _numpy(torch.autograd.grad(self._value(t), t)[0])

    def product(self, theta: Any, v: Any) -> np.ndarray:
        """∇²L(θ)v, by differentiating the gradient along v."""
        t = torch.from_numpy(np.array(theta)).requires_grad_()
        (g,) = torch.autograd.grad(self._value(t), t, create_graph=True)
        along = g @ torch.from_numpy(np.array(v, dtype=np.float64))
        if not along.requires_grad:  # a loss that is linear in θ
            return np.zeros(len(self.point))
        (out,) = torch.autograd.grad(along, t, allow_unused=True)
        return np.zeros(len(self.point)) if out is None else _numpy(out)

    def _value(self, theta: Tensor) -> Tensor:
        weights, at = {}, 0
        for name, shape in self.shapes:
            size = shape.numel()
            weights[name] = theta[at : at + size].reshape(shape)
            at += size

        def call(*inputs: Tensor) -> Any:
            return torch.func.functional_call(self.module, weights, inputs)

        return self.objective(call, self.batch)["loss"]


def _in_double(batch: Batch) -> Batch:
    def cast(value: Tensor) -> Tensor:
        value = value.detach().cpu()
        return value.double() if value.is_floating_point() else value

    s = None if batch.s is None else cast(batch.s)
    extra = None if batch.extra is None else cast(batch.extra)
    return Batch(tuple(cast(x) for x in batch.inputs), cast(batch.y), s, extra)


def _numpy(value: Tensor) -> np.ndarray:
    return value.detach().numpy().astype(np.float64, copy=False)
