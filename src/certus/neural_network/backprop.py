"""A multi-layer perceptron trained by its own backpropagation, without torch.

    L(θ) = Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s + ½·alpha·‖W‖² / Σ s

over the rows of a batch. Weights, gradients and moments are flat vectors; whole
stretches of an epoch run in one compiled call, into buffers made once. Small networks
keep BLAS to one thread, since a second one costs more than it saves.
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
from sklearn.utils import assert_all_finite

from certus._core.threads import Stop, run_blocks, slices
from certus.base import thread_budget, thread_pools
from certus.typing import Array, DTypeLike, Matrix

#: Multiplications in the largest product of a step from which two threads pay.
THREADED = 4_000_000
#: Work of one compiled call: a tenth of a second or less, so that Ctrl-C works.
STRETCH = 2e9
#: Bytes of sparse rows that are made dense at once.
DENSE = 2**26
#: Slope of the leaky rectifier below zero.
LEAK = 0.01
#: Rows whose gradients are computed together.
TOGETHER = 2048
#: Numbers of a layer that are computed together in prediction: a megabyte of float32.
NUMBERS_TOGETHER = 1 << 18
#: Multiplications of a prediction from which threads share the rows.
SHARED = 5_000_000
#: Weights of a layer from which on BLAS makes better use of threads than we do.
LARGE = 1 << 15


class PerceptronDesign(NamedTuple):
    """The design of a network and its loss."""

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


class PerceptronRows(NamedTuple):
    """Inputs, targets and weights; targets have one column for each output."""

    X: Any  # dense or CSR
    Y: Array
    s: Array  # empty: all weigh the same

    @classmethod
    def of(cls, X: Any, Y: Array, s: Array | None, dtype: DTypeLike) -> PerceptronRows:
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
    design : PerceptronDesign
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
        design: PerceptronDesign,
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
        rows: PerceptronRows,
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
    design: PerceptronDesign, theta: Array, rows: PerceptronRows, alpha: float
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

    def __init__(
        self, design: PerceptronDesign, dtype: DTypeLike, batch: int, solver: str
    ) -> None:
        from certus.neural_network.backprop_kernels import ACTIVATIONS, LOSSES, SOLVERS

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

    def stretches(
        self, rows: PerceptronRows, order: Array
    ) -> Iterator[tuple[PerceptronRows, Array]]:
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
            block = PerceptronRows(rows.X[numbers].toarray(), rows.Y[numbers], s)
            yield block, np.arange(len(numbers))

    def run(
        self,
        theta: Array,
        first: Array,
        second: Array,
        rows: PerceptronRows,
        numbers: Array,
        settings: Array,
        steps: int,
    ) -> tuple[float, int]:
        from certus.neural_network.backprop_kernels import train

        given = [part.view() for part in (*rows, numbers)]
        for part in given:  # some are read-only: all of them, so as to compile once
            part.flags.writeable = False
        return train(
            *(theta, self.gradient, first, second, self.layers, self.slopes),
            *(self.targets, self.weights, *given),
            *(0, len(numbers), self.sizes, *self.codes, self.numbers, settings, steps),
        )


# -- prediction -------------------------------------------------------------------


def outputs(coefs: list[Array], intercepts: list[Array], X: Matrix, name: str) -> Array:
    """The last layer's scores of all rows, before any output activation.

    Computed in the type of the weights, on as many threads as the process may use.
    Raises where X holds NaN or infinity.
    """
    n, dtype = X.shape[0], coefs[0].dtype
    Z = np.empty((n, coefs[-1].shape[1]), dtype=dtype)
    large = max(W.size for W in coefs) > LARGE
    width = max((W.shape[1] for W in coefs[:-1]), default=1)
    together = min(n, max(2048 if large else 256, NUMBERS_TOGETHER // width))
    fine: list[bool] = []

    # Threads that meet in Python between layers would wait for one another. But where φ
    # is expensive, NumPy's is vectorised and ours is not; and a product with a large
    # matrix is best left to the threads of BLAS.
    dense = not sparse.issparse(X)
    cheap = dense and not large and name in ("identity", "relu", "leaky_relu")
    theta = pack(coefs, intercepts) if cheap else None
    ready = X.dtype == dtype and cheap

    def part(rows: slice, stopped: Stop) -> None:
        room = np.empty((2, together * width), dtype=dtype)
        for block in slices(rows.stop - rows.start, n if ready else together):
            if stopped():
                return
            at = slice(rows.start + block.start, rows.start + block.stop)
            if theta is None:
                fine.append(_block(coefs, intercepts, X[at], name, room, Z[at]))
            else:
                h = np.ascontiguousarray(X[at], dtype=dtype)
                fine.append(_compiled(theta, coefs, h, name, room, Z[at], together))

    weights = sum(W.size for W in coefs)
    shared = n * weights > SHARED and not (large and dense)
    size = max(256, -(-n // thread_budget())) if shared else n
    with np.errstate(all="ignore"):
        run_blocks(part, slices(n, size))
    if not all(fine):
        _require_finite(X, dtype)
    return Z


def _compiled(
    theta: Array,
    coefs: list[Array],
    h: Array,
    name: str,
    room: Array,
    Z: Array,
    size: int,
) -> bool:
    """What :func:`_block` does, in one compiled call."""
    from certus.neural_network.backprop_kernels import ACTIVATIONS, scores

    sizes = np.array([h.shape[1], *(W.shape[1] for W in coefs)])
    which, zero = ACTIVATIONS.index(name), Z.dtype.type(0)
    return bool(scores(theta, sizes, h, Z, room.ravel(), size, which, zero))


def _block(
    coefs: list[Array],
    intercepts: list[Array],
    h: Matrix,
    name: str,
    room: Array,
    Z: Array,
) -> bool:
    """Z ← the scores of a few rows; returns whether no first product is infinite.

    A row with a NaN or an infinity has no finite product with any vector, not even with
    zero, so one unit's products stand for all cells of X.
    """
    h = h.astype(Z.dtype, copy=False)
    for k, (W, b) in enumerate(zip(coefs, intercepts)):
        last = k == len(coefs) - 1
        if sparse.issparse(h):
            out = h @ W
        else:
            out = Z if last else room[k % 2, : len(h) * len(b)].reshape(len(h), -1)
            np.dot(h, W, out=out)
        if k == 0:
            fine = bool(np.isfinite(out[:, 0].sum()))
        out += b
        if not last:
            activate(out, name)
        h = out
    if h is not Z:
        Z[:] = h
    return fine


def _require_finite(X: Any, dtype: DTypeLike) -> None:
    """Raise if X holds values that are not finite, or too large for a narrower type."""
    values = X.data if sparse.issparse(X) else X
    with np.errstate(over="ignore", invalid="ignore"):
        assert_all_finite(X, input_name="X")
        if np.isfinite(values.astype(dtype)).all():
            return
    raise ValueError(
        f"X holds numbers too large for {dtype}, the precision of the network. Scale "
        "X as you did for the fit, or fit on float64."
    )


def activate(z: Array, name: str) -> None:
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
