"""Likelihoods with an L2 penalty over blocks: Newton's method on sums.

    min over W, b:  Σ sᵢ ℓ(yᵢ, xᵢᵀW + b)/Σs + ½·l2·‖W‖²

Nothing is kept for a row: each step is one pass that adds up objective, gradient and,
unless the last one still does, the Hessian. The means and spreads of a few blocks move
and scale the columns, and their minimum is where the passes over all blocks start.
Memory: a block and ((d + 1)k)² numbers. Mostly four passes over all blocks, after
about six over an eighth of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from certus._solvers.block_design import (
    NO_TARGET,
    ROWS,
    BlockMoments,
    merge,
    moments_of,
    numbers,
    require_sound,
)
from certus._solvers.losses import Slopes, evaluate
from certus._solvers.newton import intercept_cost
from certus._solvers.problem import Solution, SolverLimits, Start
from certus.blocks import RowBlock, total
from certus.certificate import Status
from certus.objectives import Softmax
from certus.typing import Array


class LabelSums(NamedTuple):
    """What a pass over the targets finds: weights, and what the loss needs of them."""

    weight: float
    labels: dict[Any, float]  # the weight of every label
    mean: float  # Σsy of numbers, and the smallest
    least: float


def _labels(block: RowBlock) -> LabelSums:
    y, s = _target(block)
    labels, codes = np.unique(y, return_inverse=True)
    weights = np.bincount(codes, weights=s, minlength=len(labels))
    found = dict(zip(labels.tolist(), weights.tolist(), strict=True))
    return LabelSums(float(s.sum()), found, 0.0, 0.0)


def _numbers(block: RowBlock) -> LabelSums:
    _, y, s = numbers(block)
    return LabelSums(float(s.sum()), {}, float(s @ y[:, 0]), float(y.min()))


def _join(a: LabelSums, b: LabelSums) -> LabelSums:
    names = {**a.labels, **b.labels}
    both = {name: a.labels.get(name, 0.0) + b.labels.get(name, 0.0) for name in names}
    least = min(a.least, b.least)
    return LabelSums(a.weight + b.weight, both, a.mean + b.mean, least)


def survey(blocks: Any, labels: bool) -> LabelSums:
    """Weights and targets; columns of X are not read."""
    return total(blocks.targets(), _labels if labels else _numbers, merge=_join)


def _target(block: RowBlock) -> tuple[Array, Array]:
    if block.y is None:
        raise ValueError(NO_TARGET)
    n = len(block.X)
    s = np.ones(n) if block.s is None else np.asarray(block.s, dtype=np.float64)
    return np.asarray(block.y), s


def _spreads(block: RowBlock) -> BlockMoments:
    X, s = _rows(block)
    return moments_of(X, s)


def few(blocks: Any, wanted: int) -> Any:
    """Evenly spread blocks that hold enough rows to start from; all if they are few."""
    m, n = len(blocks.keys), blocks.shape[0]
    if m < 4:
        return blocks
    count = min(m, max(2, m // 8, -(-wanted * m // max(1, n))))
    return blocks.some(
        [blocks.keys[(2 * i + 1) * m // (2 * count)] for i in range(count)]
    )


def frame_of(blocks: Any, loss: Any, classes: Array, factors: Array, free: bool) -> Any:
    """Loss, labels, and the means and spreads of the columns in some blocks."""
    found = total(blocks, _spreads, merge=merge)
    spread = np.sqrt(np.diag(found.scatter) / max(found.weight, 1e-300))
    if not free:
        spread = np.sqrt(np.square(spread) + np.square(found.mean))
    mean = found.mean if free else np.zeros_like(found.mean)
    return RowFrame(loss, classes, factors, mean, np.where(spread > 0, spread, 1.0))


def _rows(block: RowBlock) -> tuple[Array, Array]:
    X = np.asarray(block.X)
    s = np.ones(len(X)) if block.s is None else np.asarray(block.s, dtype=np.float64)
    require_sound(X, s)
    return X, s


class RowFrame(NamedTuple):
    """How rows become numbers of the problem; sent with every task."""

    loss: Any
    classes: Array  # none of a regression
    factors: Array  # weight of each class
    mean: Array
    scale: Array
    intercept: bool = True
    every: int = 1  # of so many runs of rows, the first is looked at

    def parts(self, n: int) -> list[slice]:
        """Runs of rows that stay in cache."""
        return [slice(i, i + ROWS) for i in range(0, n, ROWS * self.every)]

    def targets(self, block: RowBlock, s: Array) -> tuple[Array, Array]:
        """Targets as the loss takes them, and weights with those of the classes."""
        if not len(self.classes):
            return np.asarray(block.y, dtype=np.float64), s
        codes = np.searchsorted(self.classes, np.asarray(block.y))
        s = s * self.factors[codes]
        two = not isinstance(self.loss, Softmax)
        return np.where(codes == 1, 1.0, -1.0) if two else codes, s


def _constant(block: RowBlock, frame: RowFrame, b: Array) -> Array:
    """Σ s ℓ at a constant score, from targets alone."""
    y, s = frame.targets(block, _target(block)[1])
    z = np.tile(b, (len(s), 1))
    return np.asarray(s @ evaluate(frame.loss, y, z, s).value)


def constant_loss(blocks: Any, frame: RowFrame, b: Array) -> float:
    """Σ s ℓ at a constant score."""
    return float(total(blocks.targets(), _constant, frame, b))


class Sums(NamedTuple):
    """Objective, gradient, Hessian and sides, summed over rows."""

    value: float
    gradient: Array  # (d + 1, k)
    hessian: Array  # ((d + 1)k, (d + 1)k), class-major
    sides: Array


def _sums(block: RowBlock, frame: RowFrame, W: Array, bent: bool) -> Sums:
    """Sums at W; the Hessian only if ``bent``."""
    X, s = _rows(block)
    y, s = frame.targets(block, s)
    V = W.copy()
    V[:-1] /= frame.scale[:, None]
    k, p = W.shape[1], len(W)
    value, sides = 0.0, np.zeros(k)
    gradient, hessian = np.zeros_like(W), np.zeros((p * k, p * k) if bent else 0)
    for part in frame.parts(len(X)):
        A = with_ones(X[part], frame.mean)
        found = evaluate(frame.loss, y[part], A @ V, s[part])
        weighed = s[part, None] * found.slope
        value += float(s[part] @ found.value)
        gradient += A.T @ weighed
        sides += _sides(frame.loss, s[part], found)
        if bent:
            hessian += _hessian(frame, A, s[part], found.state)
    turn = np.append(1 / frame.scale, float(frame.intercept))
    gradient *= turn[:, None]
    if bent:
        turn = np.tile(turn, k)
        hessian *= turn[:, None] * turn
    return Sums(value, gradient, hessian, sides)


def with_ones(X: Array, mean: Array) -> Array:
    """X − mean in float64, and a column of ones."""
    A = np.empty((X.shape[1] + 1, len(X)))
    A[:-1] = X.T
    A[:-1] -= mean[:, None]
    A[-1] = 1.0
    return A.T


def _sides(loss: Any, s: Array, found: Slopes) -> Array:
    """What moving the dual point onto Σsu = 0 is a share of."""
    if isinstance(loss, Softmax):
        return np.asarray(s @ found.state)
    return np.array([float(s @ np.abs(found.slope[:, 0])) / 2])


def _hessian(frame: RowFrame, A: Array, s: Array, P: Array) -> Array:
    """Σ s ℓ'' aaᵀ; of several classes Σ s (diag p − ppᵀ) ⊗ aaᵀ, class by class."""
    if not isinstance(frame.loss, Softmax):
        B = A * np.sqrt(s * P[:, 0])[:, None]
        return np.asarray(B.T @ B)
    p, k = A.shape[1], P.shape[1]
    out = np.zeros((k, p, k, p))
    for a in range(k):
        for b in range(a, k):
            weight = s * P[:, a] * ((a == b) - P[:, b])
            out[a, :, b] = A.T @ (A * weight[:, None])
            out[b, :, a] = out[a, :, b].T
    return out.reshape(k * p, k * p)


class SummedProblem:
    """The objective over blocks, in moved and scaled coordinates.

    Parameters
    ----------
    blocks : Blocks
        Rows with labels.
    frame : RowFrame
        Loss, classes, and the columns' means and scales.
    weight : float
        Σs, class weights included.
    l2 : float
        Strength of the penalty, above 0.
    reference : float
        The objective of the best constant model, which gaps are relative to.
    constant : float
        The κ of a penalty on b/κ; 0 for an intercept that is free or absent.
    """

    #: Whether a start is better than the minimum over some of the blocks.
    near = False

    def __init__(
        self,
        blocks: Any,
        frame: RowFrame,
        weight: float,
        l2: float,
        reference: float,
        constant: float = 0.0,
    ) -> None:
        self.blocks, self.frame, self.weight, self.l2 = blocks, frame, weight, l2
        self.reference, self.constant = reference, constant
        self.k = frame.loss.n_classes if isinstance(frame.loss, Softmax) else 1
        last = l2 / constant**2 if constant else 0.0
        self.level = np.append(l2 / np.square(frame.scale), last)[:, None]

    def over(self, blocks: Any, every: int) -> SummedProblem:
        """The same mean over some of the rows."""
        frame = self.frame._replace(every=every)
        weight = float(total(blocks.targets(), weight_of, frame))
        more = (self.l2, self.reference, self.constant)
        return SummedProblem(blocks, frame, weight, *more)

    def at(self, W: Array, bent: bool = True) -> Sums:
        """Objective, gradient and, if asked for, Hessian at W; one pass."""
        found = total(self.blocks, _sums, self.frame, W, bent)
        value, gradient, hessian, sides = (x / self.weight for x in found)
        value += float(np.sum(self.level * np.square(W))) / 2
        gradient += self.level * W
        if bent:
            diagonal = self.level[:, 0].copy()
            if not self.frame.intercept:
                diagonal[-1] = 1.0  # where the gradient is 0
            hessian.flat[:: len(hessian) + 1] += np.tile(diagonal, self.k)
        return Sums(value, gradient, hessian, sides)

    def gap(self, W: Array, point: Sums) -> float:
        """What the verifier will find: ‖∇P‖²/(2·l2) plus what the intercept costs."""
        g = point.gradient * np.append(self.frame.scale, self.constant)[:, None]
        b, cost = self.end(W)[-1], 0.0
        if not self.constant and self.frame.intercept:
            cost = intercept_cost(b, point.gradient[-1], point.sides)
        left = float(np.vdot(g, g)) / (2 * self.l2) + cost
        return left / self.reference if self.reference > 0 else left

    def end(self, W: Array) -> Array:
        """Coefficients of the rows as given."""
        w = W[:-1] / self.frame.scale[:, None]
        return np.vstack([w, W[-1] - self.frame.mean @ w])


def weight_of(block: RowBlock, frame: RowFrame) -> float:
    """Σs of the rows that the frame looks at."""
    s = frame.targets(block, _target(block)[1])[1]
    return float(sum(s[part].sum() for part in frame.parts(len(s))))


#: A relative gap below which the last Hessian is taken for one more step.
NEAR = 1e-2
#: Rows for each coefficient of the few blocks that a fit starts from.
EACH = 20


def solve(problem: SummedProblem, start: Start, limits: SolverLimits) -> Solution:
    """Minimise to a relative gap of ``limits.tol``; a step is one pass, rarely more."""
    shape = (len(problem.frame.mean) + 1, problem.k)
    W = np.zeros(shape) if start.primal is None else start.primal
    wanted = max(EACH * W.size, problem.blocks.shape[0] // 8)
    some = few(problem.blocks, EACH * W.size)
    every = some.shape[0] // max(wanted, ROWS)
    if not problem.near and (some is not problem.blocks or every > 1):
        part = problem.over(some, max(1, every))
        rows = some.shape[0] // max(1, every)
        found = _near(part, W, W.size / max(1, rows))
        if np.isfinite(found).all():
            W = found
    ended = _descend(problem, W, limits, start.primal)
    return replace(ended, primal=problem.end(ended.primal))


def _near(part: SummedProblem, W: Array, tol: float) -> Array:
    """The minimum over some rows; their number limits how exact it needs to be."""
    if not part.weight > 0:
        return np.full_like(W, np.nan)
    return _descend(part, W, SolverLimits(tol, 20)).primal


def _descend(
    problem: SummedProblem, W: Array, limits: SolverLimits, instead: Array | None = None
) -> Solution:
    """Newton's method from W, or from ``instead`` where that is better than W."""
    status, steps, gap = Status.MAX_ITER, 0, np.inf
    try:
        point = problem.at(W)
        if instead is not None and not point.value <= 2 * problem.reference:
            W, point = instead, problem.at(instead)
        bend = point.hessian
        while True:
            before, gap = gap, problem.gap(W, point)
            stop = limits.on_step(point.value, gap, problem.end(W))
            if gap <= 0.5 * limits.tol:
                status = Status.SOLVED
            elif stop is not None:
                status = stop
            if status is not Status.MAX_ITER or steps >= limits.max_iter:
                break
            if np.ndim(point.hessian) == 2:
                bend = point.hessian
            elif not gap <= 0.1 * before:  # the old one no longer helps
                point = problem.at(W)
                bend = point.hessian
            steps += 1
            found = _step(problem, W, point, bend, gap > NEAR)
            if found is None and bend is not point.hessian:
                point = problem.at(W)
                found = _step(problem, W, point, point.hessian, True)
            if found is None:
                status = Status.TOL_NOT_REACHED
                break
            W, point = found
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return Solution(W, gap, status, steps)


def _step(
    problem: SummedProblem, W: Array, point: Sums, bend: Array, bent: bool
) -> tuple[Array, Sums] | None:
    """Newton's step, halved until the objective falls; None where it does not."""
    g = point.gradient.T.ravel()
    try:
        factor = linalg.cho_factor(bend, check_finite=False)
        move = linalg.cho_solve(factor, g)
    except linalg.LinAlgError:  # a class's intercept is free up to a constant
        move = linalg.lstsq(bend, g, cond=1e-14)[0]
    move = move.reshape(W.shape[::-1]).T
    fall, t = float(np.vdot(point.gradient, move)), 1.0
    for _ in range(30):
        new = W - t * move
        found = problem.at(new, bent)
        if found.value <= point.value - 1e-4 * t * fall:
            return new, found
        close = abs(t * fall) <= 1e-12 * max(1.0, abs(point.value))
        norm = np.linalg.norm
        if close and norm(found.gradient) < 0.9 * norm(point.gradient):
            return new, found
        t /= 2
    return None
