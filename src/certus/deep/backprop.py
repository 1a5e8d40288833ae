"""A multi-layer perceptron trained by its own backpropagation, without torch.

    L(θ) = Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s + ½·alpha·‖W‖² / Σ s

over the rows of a batch. Weights, gradients and moments are flat vectors; whole
stretches of an epoch run in one compiled call, into buffers made once. Small networks
keep BLAS to one thread, since meeting the other costs more than it takes over.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit

from certus.base import thread_pools
from certus.verify.gradient import Network, stated_loss

Array = np.ndarray

#: Multiplications in the largest product of a step from which two threads pay.
THREADED = 4_000_000
#: Work of one compiled call: a tenth of a second or less, so that Ctrl-C is heard.
STRETCH = 2e9
#: Bytes of sparse rows that are made dense at once.
DENSE = 2**26
#: Slope of the leaky rectifier below zero.
LEAK = 0.01
#: Rows that go through the network together in prediction.
TOGETHER = 2048


class Design(NamedTuple):
    """What a network computes and what it is trained for."""

    sizes: tuple[int, ...]  # inputs, hidden layers, outputs
    activation: str
    loss: str

    @property
    def n_weights(self) -> int:
        """Entries of all matrices, without biases."""
        return sum(m * n for m, n in pairwise(self.sizes))

    def views(self, theta: Array) -> tuple[list[Array], list[Array]]:
        """The matrices and the biases inside a vector of all weights."""
        coefs, at = [], 0
        for m, n in pairwise(self.sizes):
            coefs.append(theta[at : at + m * n].reshape(m, n))
            at += m * n
        intercepts = []
        for n in self.sizes[1:]:
            intercepts.append(theta[at : at + n])
            at += n
        return coefs, intercepts


class Rows(NamedTuple):
    """Inputs, targets and weights; targets have one column for each output."""

    X: Any  # dense or CSR
    Y: Array
    s: Array  # empty: all weigh the same

    @classmethod
    def of(cls, X: Any, Y: Any, s: Any, dtype: Any) -> Rows:
        """The rows in the layout and type that the compiled code wants."""
        if sparse.issparse(X):
            X = X.tocsr().astype(dtype, copy=False)
        else:
            X = np.ascontiguousarray(X, dtype=dtype)
        s = np.empty(0) if s is None else s
        return cls(
            X, np.ascontiguousarray(Y, dtype=dtype), np.asarray(s, dtype=np.float64)
        )


def pack(coefs: list[Array], intercepts: list[Array]) -> Array:
    """All weights as one vector: matrices first, then biases."""
    return np.concatenate([np.ravel(part) for part in (*coefs, *intercepts)])


class Trainer:
    """Weights with the moments of their optimiser.

    Parameters
    ----------
    design : Design
        The network.
    theta : ndarray
        First weights, of float32 or float64; they are changed in place.
    solver : {"sgd", "nesterov", "adam"}
        How a step is made.
    rate : float
        Learning rate; may be changed between epochs.
    betas : (float, float)
        Decays of the moments; the first one is the momentum of gradient descent.
    epsilon : float
        Adam's ε.
    """

    def __init__(
        self,
        design: Design,
        theta: Array,
        solver: str = "adam",
        rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self.design, self.theta, self.solver = design, theta, solver
        self.rate, self.betas, self.epsilon = rate, betas, epsilon
        self.steps = 0
        self.moments = np.zeros((2, len(theta)), dtype=theta.dtype)

    def epoch(
        self,
        rows: Rows,
        order: Array,
        batch: int,
        alpha: float,
        deadline: float = np.inf,
    ) -> tuple[float, int]:
        """One step for each batch of the rows in ``order``.

        Returns their mean loss with its penalty, and how many rows it is of: fewer than
        all if the deadline passed, or if a loss was not finite, whose value is NaN.
        """
        call = _Call(self.design, self.theta.dtype, batch, self.solver)
        call.numbers[:5] = (
            *(self.betas[0], 1 - self.betas[0], self.betas[1], 1 - self.betas[1]),
            self.epsilon,
        )
        settings = np.array([self.rate, *self.betas, alpha])
        seen, done = 0.0, 0
        with call.threads():
            for part, numbers in call.stretches(rows, order):
                first, second = self.moments
                value, end = call.run(
                    self.theta, first, second, part, numbers, settings, self.steps
                )
                self.steps += -(-end // batch)
                seen, done = seen + value, done + end
                if end < len(numbers):
                    return np.nan, done
                if time.perf_counter() > deadline:
                    break
        return seen / max(1, done), done


def loss_gradient(
    design: Design, theta: Array, rows: Rows, alpha: float
) -> tuple[float, Array]:
    """L(θ) over all rows and its gradient, in the type of ``theta``."""
    n = len(rows.Y)
    total = float(rows.s.sum()) if len(rows.s) else float(n)
    call = _Call(design, theta.dtype, min(n, TOGETHER), "gradient")
    gradient = np.zeros_like(theta)
    unused, loss = np.empty(0, dtype=theta.dtype), 0.0
    with call.threads():
        for part, numbers in call.stretches(rows, np.arange(n)):
            value, end = call.run(
                theta, gradient, unused, part, numbers, np.zeros(4), 0
            )
            loss += value
            if end < len(numbers):
                return np.inf, np.full_like(theta, np.nan)
    gradient /= total
    weights = theta[: design.n_weights]
    gradient[: design.n_weights] += (alpha / total) * weights
    square = float(np.vdot(weights, weights))
    return loss / total + 0.5 * alpha * square / total, gradient


class _Call:
    """The buffers of compiled calls, and how much is done in each."""

    def __init__(self, design: Design, dtype: Any, batch: int, solver: str) -> None:
        from certus.deep.backprop_kernels import ACTIVATIONS, LOSSES, SOLVERS

        self.sizes = np.array(design.sizes, dtype=np.int64)
        self.batch, self.dtype = int(batch), np.dtype(dtype)
        self.gradient = np.empty(
            design.n_weights + int(self.sizes[1:].sum()), dtype=dtype
        )
        self.layers = np.empty(self.batch * int(self.sizes.sum()), dtype=dtype)
        self.slopes = np.empty(2 * self.batch * int(self.sizes[1:].max()), dtype=dtype)
        self.targets = np.empty((self.batch, design.sizes[-1]), dtype=dtype)
        self.weights = np.empty(self.batch)
        self.numbers = np.zeros(9, dtype=dtype)
        self.numbers[7] = 1
        self.codes = (
            ACTIVATIONS.index(design.activation),
            LOSSES.index(design.loss),
            SOLVERS.index(solver),
        )
        self.largest = self.batch * max(m * n for m, n in pairwise(design.sizes))
        self.work = 6.0 * self.batch * len(self.gradient)

    def threads(self) -> Any:
        """All of BLAS's threads for a large network, one for a small one."""
        if self.largest >= THREADED:
            return contextlib.nullcontext()
        return thread_pools().limit(limits=1, user_api="blas")

    def stretches(self, rows: Rows, order: Array) -> Iterator[tuple[Rows, Array]]:
        """Whole batches of rows for one call each; sparse ones made dense."""
        step = self.batch * max(1, int(STRETCH / self.work))
        thin = sparse.issparse(rows.X)
        if thin:
            fit = DENSE // (rows.X.shape[1] * self.dtype.itemsize * self.batch)
            step = min(step, self.batch * max(1, fit))
        for at in range(0, len(order), step):
            numbers = order[at : at + step]
            if not thin:
                yield rows, numbers
                continue
            s = rows.s[numbers] if len(rows.s) else rows.s
            block = Rows(rows.X[numbers].toarray(), rows.Y[numbers], s)
            yield block, np.arange(len(numbers))

    def run(
        self,
        theta: Array,
        first: Array,
        second: Array,
        rows: Rows,
        numbers: Array,
        settings: Array,
        steps: int,
    ) -> tuple[float, int]:
        from certus.deep.backprop_kernels import train

        given = [part.view() for part in (*rows, numbers)]
        for part in given:  # some are read-only: all of them, so as to compile once
            part.flags.writeable = False
        return train(
            *(theta, self.gradient, first, second, self.layers, self.slopes),
            *(self.targets, self.weights, *given),
            *(0, len(numbers), self.sizes, *self.codes, self.numbers, settings, steps),
        )


# -- prediction -------------------------------------------------------------------


def outputs(coefs: list[Array], intercepts: list[Array], X: Any, name: str) -> Array:
    """The last layer's scores of all rows, before any output activation."""
    n = X.shape[0]
    dtype = np.result_type(coefs[0].dtype, X.dtype)
    Z = np.empty((n, coefs[-1].shape[1]), dtype=dtype)
    for at in range(0, n, TOGETHER):
        h = X[at : at + TOGETHER]
        for k, (W, b) in enumerate(zip(coefs, intercepts)):
            h = h @ W
            h += b
            if k < len(coefs) - 1:
                _activate(h, name)
        Z[at : at + TOGETHER] = h
    return Z


def _activate(z: Array, name: str) -> None:
    """Apply φ in place."""
    if name == "relu":
        np.maximum(z, 0, out=z)
    elif name == "tanh":
        np.tanh(z, out=z)
    elif name == "logistic":
        expit(z, out=z)
    elif name == "leaky_relu":
        np.maximum(z, LEAK * z, out=z)
    elif name == "elu":
        np.copyto(z, np.expm1(np.minimum(z, 0)), where=z < 0)
    elif name == "softplus":
        np.logaddexp(z, 0, out=z)


def softmax(Z: Array) -> Array:
    """Probabilities of each row, in place."""
    Z -= Z.max(axis=1, keepdims=True)
    np.exp(Z, out=Z)
    Z /= Z.sum(axis=1, keepdims=True)
    return Z


# -- what the verifier looks at ---------------------------------------------------


class StatedDesign:
    """L(θ) on some rows as a function of a float64 vector.

    The loss is the verifier's own; the gradient is that of the training, in float64.

    Parameters
    ----------
    design : Design
        The network.
    theta : ndarray
        Its weights.
    X, Y, s : arrays
        The rows, dense or sparse.
    alpha : float
        Penalty ½·alpha·‖W‖² of the mean loss.
    """

    def __init__(
        self, design: Design, theta: Array, X: Any, Y: Array, s: Any, alpha: float
    ) -> None:
        self.design, self.point = design, theta.astype(np.float64)
        self.rows = Rows.of(X, Y, s, np.float64)
        total = float(self.rows.s.sum()) if len(self.rows.s) else float(len(Y))
        self.alpha = alpha * total
        coefs, intercepts = design.views(theta)
        self.sizes = [part.size for part in (*coefs, *intercepts)]
        self.network = Network(
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

    def loss(self, theta: Any) -> float:
        """L(θ), by the verifier's formulas."""
        with np.errstate(over="ignore", invalid="ignore"):
            return stated_loss(self.network, np.asarray(theta))

    def gradient(self, theta: Any) -> Array:
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

    def product(self, theta: Any, v: Any) -> Array:
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
            _activate(z, name)
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
