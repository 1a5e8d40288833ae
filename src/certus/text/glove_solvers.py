"""Two ways to minimise GloVe's objective ½ Σ f(n)(w_i·z_j + b_i + c_j − log n)².

``Descent`` takes one stochastic step per entry. Entries are dealt into stripes of rows
and of columns; blocks that share neither run in parallel, so the result is the same for
any number of threads. ``Alternation`` solves each row's least squares exactly, words
first, then contexts, and the objective never rises.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from certus._core.threads import Stop, run_blocks, slices
from certus.recommend.rating_kernels import row_blocks, solve_rows, squared_errors
from certus.text.glove_kernels import descend, descend_adaptively, errors
from certus.typing import Array, ArrayLike, CompressedMatrix

#: Stripes of rows and of columns; fewer entries than this are visited in one go.
STRIPES, FEW = 8, 1 << 16
#: Multiplications after which a kernel returns.
WORK = 1 << 25
#: Share of a row's mean curvature that holds it where its solution is not unique.
HOLD = 1e-8


class GloVeFactors(NamedTuple):
    """Words W, contexts Z, and their biases."""

    W: Array
    Z: Array
    b: Array
    c: Array

    def copy(self) -> GloVeFactors:
        """A copy of the arrays."""
        return GloVeFactors(*(part.copy() for part in self))


class LogCounts(NamedTuple):
    """Rows of log counts in CSR form, with their weights."""

    indptr: Array
    indices: Array
    logs: Array
    weights: Array


def glove_weights(
    counts: ArrayLike, x_max: float = 100.0, weight_power: float = 0.75
) -> Array:
    """GloVe's weights of counts, f(n) = min(1, (n/x_max)^weight_power), and f(0) = 0.

    Parameters
    ----------
    counts : array-like
        Counts n, not negative.
    x_max : float, default=100.0
        Count from which the weight is one.
    weight_power : float, default=0.75
        Power below it.

    Returns
    -------
    ndarray
        Of the same shape.

    Examples
    --------
    >>> from certus.text import glove_weights
    >>> glove_weights([0, 1, 16, 100, 1000], x_max=16)
    array([0.   , 0.125, 1.   , 1.   , 1.   ])
    """
    n = np.asarray(counts, dtype=np.float64)
    return np.where(n > 0, np.minimum(1.0, (n / x_max) ** weight_power), 0.0)


def entries(matrix: CompressedMatrix, x_max: float, weight_power: float) -> LogCounts:
    """Log counts and weights of a CSR matrix of counts."""
    weights = glove_weights(matrix.data, x_max, weight_power)
    indptr = matrix.indptr.astype(np.int64)
    return LogCounts(indptr, matrix.indices, np.log(matrix.data), weights)


def objective(data: LogCounts, at: GloVeFactors) -> float:
    """½ Σ f·e², summed block by block in a fixed order."""
    blocks = row_blocks(data.indptr, at.W.shape[1])
    sums = np.zeros(len(blocks))

    def work(k: int, stop: Stop) -> None:
        if not stop():
            sums[k] = squared_errors(*blocks[k], *data, *at)

    run_blocks(work, range(len(blocks)))
    return 0.5 * float(np.sum(sums))


def constant_objective(data: LogCounts) -> float:
    """The objective of the best constant in place of w·z + b + c."""
    total = data.weights.sum()
    mean = (data.weights @ data.logs) / total if total > 0 else 0.0
    return 0.5 * float(data.weights @ (data.logs - mean) ** 2)


class Descent:
    """Stochastic steps, AdaGrad or plain."""

    def __init__(
        self,
        data: LogCounts,
        start: GloVeFactors,
        rate: float,
        adaptive: bool,
        biased: bool,
        epochs: int,
        rng: np.random.Generator,
    ) -> None:
        self.data, self.at, self.biased, self.rng = data, start, biased, rng
        self.rate, self.epochs, self.done = rate, epochs, 0
        self.squares = tuple(np.ones_like(part) for part in start) if adaptive else None
        self._deal()

    def _deal(self) -> None:
        """Shuffle the entries once, then sort them into blocks of stripes."""
        m = len(self.data.indices)
        self.stripes = P = STRIPES if m > FEW else 1
        n_rows = len(self.data.indptr) - 1
        rows = np.repeat(np.arange(n_rows, dtype=np.int32), np.diff(self.data.indptr))
        order = self.rng.permutation(m)
        # Words come by falling count: neighbours in number go to different stripes.
        block = (rows % P * P + self.data.indices % P).astype(np.uint8)[order]
        order = order[np.argsort(block, kind="stable")]
        self.ends = np.concatenate(
            [[0], np.cumsum(np.bincount(block, minlength=P * P))]
        )
        self.rows, self.columns = rows[order], self.data.indices[order]
        self.logs = self.data.logs[order].astype(np.float32)
        self.weights = self.data.weights[order].astype(np.float32)

    def step(self) -> None:
        """Visit every entry once."""
        P = self.stripes
        rate = self.rate
        if self.squares is None:  # plain steps must shrink to converge
            rate *= 1 - self.done / self.epochs
        size = max(1, WORK // self.at.W.shape[1])

        def work(block: int, stop: Stop) -> None:
            first, last = self.ends[block], self.ends[block + 1]
            for part in slices(int(last - first), size):
                if stop():
                    return
                self._visit(slice(first + part.start, first + part.stop), rate)

        for turn in self.rng.permutation(P):
            run_blocks(work, [k * P + (k + turn) % P for k in range(P)])
        self.done += 1

    def _visit(self, here: slice, rate: float) -> None:
        some = (self.rows, self.columns, self.logs, self.weights)
        part = [array[here] for array in some]
        if self.squares is None:
            descend(*part, *self.at, rate, self.biased)
        else:
            descend_adaptively(*part, *self.at, *self.squares, rate, self.biased)


class Alternation:
    """Exact solves: all words, then all contexts."""

    def __init__(
        self, data: LogCounts, transposed: LogCounts, start: GloVeFactors, biased: bool
    ) -> None:
        self.data, self.transposed = data, transposed
        self.at, self.biased = start, biased

    def step(self) -> None:
        """Minimise over the words' rows and biases, then over the contexts'."""
        W, Z, b, c = self.at
        self._solve(self.data, W, Z, b, c)
        self._solve(self.transposed, Z, W, c, b)

    def _solve(self, data: LogCounts, W: Array, Z: Array, b: Array, c: Array) -> None:
        """The best change of each row; a row without a unique solution moves little."""
        n, K = W.shape
        left = np.empty(len(data.logs))

        def work(block: tuple[int, int], stop: Stop) -> None:
            if not stop():
                errors(*block, data.indptr, data.indices, data.logs, W, Z, b, c, left)

        run_blocks(work, row_blocks(data.indptr, K))
        ends = np.concatenate([[0.0], np.cumsum(data.weights)])[data.indptr]
        typical = float(np.mean(np.square(Z))) + 1e-300
        hold = HOLD * np.maximum(np.diff(ends), 1e-300)
        move, shift = np.zeros_like(W), np.zeros(n)
        solve_rows(
            *(data.indptr, data.indices, left, data.weights, Z, np.zeros(len(Z))),
            *(np.zeros((K, K)), hold * typical, hold, self.biased, move, shift),
        )
        W += move
        b += shift
