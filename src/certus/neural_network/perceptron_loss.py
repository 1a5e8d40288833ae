"""The numbers that are measured on a multi-layer perceptron trained without torch.

    L(θ) = Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s + ½·alpha·‖W‖²

on some rows, as a function of a float64 vector: its loss, its gradient, the products of
its Hessian with vectors, and units that are never active.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from certus.diagnostics.perceptron import PerceptronProblem, stated_loss
from certus.neural_network.backprop import (
    LEAK,
    PerceptronDesign,
    PerceptronRows,
    activate,
    loss_gradient,
    softmax,
)
from certus.typing import Array, Matrix


class StatedDesign:
    """L(θ) on some rows as a function of a float64 vector.

    The loss is that of the diagnostics; the gradient that of the training, in float64.

    Parameters
    ----------
    design : PerceptronDesign
        The network.
    theta : ndarray
        Its weights.
    X, Y, s : arrays
        The rows, dense or sparse.
    alpha : float
        Penalty ½·alpha·‖W‖² of the mean loss.
    """

    def __init__(
        self,
        design: PerceptronDesign,
        theta: Array,
        X: Matrix,
        Y: Array,
        s: Array | None,
        alpha: float,
    ) -> None:
        self.design, self.point = design, theta.astype(np.float64)
        self.rows = PerceptronRows.of(X, Y, s, np.float64)
        total = float(self.rows.s.sum()) if len(self.rows.s) else float(len(Y))
        self.alpha = alpha * total
        coefs, intercepts = design.views(theta)
        self.sizes = [part.size for part in (*coefs, *intercepts)]
        self.network = PerceptronProblem(
            [W.shape for W in coefs],
            design.activation,
            design.loss if design.loss in ("softmax", "logistic") else "identity",
            design.loss,
            True,
            self.alpha,
            self.rows.X,
            self.rows.Y,
            self.rows.s if len(self.rows.s) else np.ones(len(Y)),
        )

    def loss(self, theta: Array) -> float:
        """L(θ), by the formulas of the diagnostics."""
        with np.errstate(over="ignore", invalid="ignore"):
            return stated_loss(self.network, np.asarray(theta))

    def gradient(self, theta: Array) -> Array:
        """∇L(θ), by backpropagation."""
        theta = np.ascontiguousarray(theta, dtype=np.float64)
        return loss_gradient(self.design, theta, self.rows, self.alpha)[1]

    def dead_units(self) -> tuple[int, int]:
        """ReLU units that are zero on all rows; and how many there are."""
        if self.design.activation != "relu":
            return 0, 0
        dead, units, h = 0, 0, self.rows.X
        weights, biases = self.design.views(self.point)
        for W, b in zip(weights[:-1], biases):
            h = np.maximum(h @ W + b, 0.0)
            dead += int((~(h > 0).any(axis=0)).sum())
            units += W.shape[1]
        return dead, units

    def product(self, theta: Array, v: Array) -> Array:
        """∇²L(θ)v: forward and backward passes, differentiated along v."""
        weights, biases = self.design.views(np.asarray(theta, dtype=np.float64))
        moves, shifts = self.design.views(np.asarray(v, dtype=np.float64))
        name, last = self.design.activation, len(weights) - 1
        hidden: list[Any] = [self.rows.X]
        changes: list[Any] = [None]
        slopes: list[Any] = []
        bends: list[Any] = []
        for k in range(last + 1):
            z = hidden[k] @ weights[k] + biases[k]
            dz = hidden[k] @ moves[k] + shifts[k]
            if changes[k] is not None:
                dz += changes[k] @ weights[k]
            if k == last:
                break
            activate(z, name)
            slope, bend = _derivatives(z, name)
            hidden.append(z)
            changes.append(slope * dz)
            slopes.append(slope)
            bends.append(bend * dz)
        s = self.network.s / self.network.s.sum()
        delta, change = (s[:, None] * part for part in self._outputs(z, dz))
        out = np.empty_like(self.point)
        coefs, intercepts = self.design.views(out)
        for k in range(last, -1, -1):
            coefs[k][:] = hidden[k].T @ change
            if changes[k] is not None:
                coefs[k] += changes[k].T @ delta
            coefs[k] += self.alpha / self.network.s.sum() * moves[k]
            intercepts[k][:] = change.sum(axis=0)
            if k:
                back = delta @ weights[k].T
                change = change @ weights[k].T + delta @ moves[k].T
                change = change * slopes[k - 1] + back * bends[k - 1]
                delta = back * slopes[k - 1]
        return out

    def _outputs(self, z: Array, dz: Array) -> tuple[Array, Array]:
        """Slope of the rows' losses in their outputs, and how it changes along dz."""
        Y, loss = self.rows.Y, self.design.loss
        if loss == "squared_error":
            return (z - Y) / Y.shape[1], dz / Y.shape[1]
        if loss == "softmax":
            p = softmax(z.copy())
            return p - Y, p * (dz - (p * dz).sum(axis=1, keepdims=True))
        if loss == "logistic":
            p = expit(z)
            return p - Y, p * (1 - p) * dz
        return np.exp(z) - Y, np.exp(z) * dz


def _derivatives(h: Array, name: str) -> tuple[Any, Any]:
    """First and second derivative of φ, from its value h."""
    if name == "logistic":
        return h * (1 - h), h * (1 - h) * (1 - 2 * h)
    if name == "tanh":
        return 1 - h * h, -2 * h * (1 - h * h)
    if name == "relu":
        return (h > 0).astype(h.dtype), 0.0
    if name == "leaky_relu":
        return np.where(h > 0, 1.0, LEAK), 0.0
    if name == "elu":
        return np.where(h > 0, 1.0, 1 + h), np.where(h > 0, 0.0, 1 + h)
    if name == "softplus":
        slope = -np.expm1(-h)
        return slope, slope * (1 - slope)
    return 1.0, 0.0
