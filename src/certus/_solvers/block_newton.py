"""Likelihoods with an L2 penalty over blocks: Newton's method on sums.

    min over W, b:  Σ sᵢ ℓ(yᵢ, xᵢᵀW + b)/Σs + ½·l2·‖W‖²

Nothing is kept for a row: each step is one pass that adds up objective, gradient and
Hessian, on columns moved and scaled by the means and spreads of a first pass. Memory: a
block and ((d + 1)k)² numbers; 5 to 8 passes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from certus._solvers.block_design import (
    NO_TARGET,
    BlockMoments,
    merge,
    moments_of,
    require_sound,
)
from certus._solvers.losses import evaluate
from certus._solvers.newton import intercept_cost
from certus._solvers.newton_problem import bordered_gram
from certus._solvers.problem import Solution, SolverLimits, Start
from certus.blocks import RowBlock, total
from certus.certificate import Status
from certus.objectives import Logistic, Softmax
from certus.typing import Array


class Survey(NamedTuple):
    """What the first pass finds: moments of X, and the weight of every label."""

    moments: BlockMoments
    labels: dict[Any, float]


def _survey(block: RowBlock) -> Survey:
    if block.y is None:
        raise ValueError(NO_TARGET)
    X, s = _rows(block)
    labels, codes = np.unique(block.y, return_inverse=True)
    weights = np.bincount(codes, weights=s, minlength=len(labels))
    found = dict(zip(labels.tolist(), weights.tolist(), strict=True))
    return Survey(moments_of(X, s), found)


def _join(a: Survey, b: Survey) -> Survey:
    names = {**a.labels, **b.labels}
    both = {name: a.labels.get(name, 0.0) + b.labels.get(name, 0.0) for name in names}
    return Survey(merge(a.moments, b.moments), both)


def survey(blocks: Any) -> Survey:
    """BlockMoments and labels, in one pass."""
    return total(blocks, _survey, merge=_join)


def _rows(block: RowBlock) -> tuple[Array, Array]:
    X = np.asarray(block.X, dtype=np.float64)
    s = np.ones(len(X)) if block.s is None else np.asarray(block.s, dtype=np.float64)
    require_sound(X, s)
    return X, s


class RowFrame(NamedTuple):
    """How rows become numbers of the problem; sent with every task."""

    loss: Any
    classes: Array
    factors: Array  # weight of each class
    mean: Array
    scale: Array
    intercept: bool


class Sums(NamedTuple):
    """Objective, gradient, Hessian and sides, summed over rows."""

    value: float
    gradient: Array  # (d + 1, k)
    hessian: Array  # ((d + 1)k, (d + 1)k), class-major
    sides: Array


def _sums(block: RowBlock, frame: RowFrame, W: Array) -> Sums:
    X, s = _rows(block)
    codes = np.searchsorted(frame.classes, np.asarray(block.y))
    s = s * frame.factors[codes]
    X = (X - frame.mean) / frame.scale
    two = isinstance(frame.loss, Logistic)
    y = np.where(codes == 1, 1.0, -1.0) if two else codes
    z = X @ W[:-1] + W[-1]
    found = evaluate(frame.loss, y, z, s)
    gradient = np.zeros_like(W)
    weighed = s[:, None] * found.slope
    gradient[:-1] = X.T @ weighed
    if frame.intercept:
        gradient[-1] = weighed.sum(axis=0)
    if two:
        hessian = bordered_gram(X, s * found.state[:, 0], frame.intercept)
        sides = np.array([float(s @ np.abs(found.slope[:, 0])) / 2])
    else:
        hessian = _softmax_hessian(X, s, found.state, frame.intercept)
        sides = s @ found.state
    return Sums(float(s @ found.value), gradient, hessian, sides)


def _softmax_hessian(X: Array, s: Array, P: Array, intercept: bool) -> Array:
    """Σ s (diag p − ppᵀ) ⊗ xxᵀ, with a column of ones beside X."""
    p, k = X.shape[1] + 1, P.shape[1]
    out = np.zeros((k, p, k, p))
    for a in range(k):
        for b in range(a, k):
            weight = s * P[:, a] * ((a == b) - P[:, b])
            out[a, :, b] = bordered_gram(X, weight, intercept)
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
    """

    def __init__(
        self, blocks: Any, frame: RowFrame, weight: float, l2: float, reference: float
    ) -> None:
        self.blocks, self.frame, self.weight, self.l2 = blocks, frame, weight, l2
        self.reference = reference
        self.k = frame.loss.n_classes if isinstance(frame.loss, Softmax) else 1

    def at(self, W: Array) -> Sums:
        """Objective, gradient and Hessian at W; one pass."""
        found = total(self.blocks, _sums, self.frame, W)
        value, gradient, hessian, sides = (x / self.weight for x in found)
        level = self.l2 / np.square(self.frame.scale)
        value += float(np.sum(level[:, None] * np.square(W[:-1]))) / 2
        gradient[:-1] += level[:, None] * W[:-1]
        diagonal = np.tile(np.append(level, 0.0), self.k)
        hessian.flat[:: len(hessian) + 1] += diagonal
        return Sums(value, gradient, hessian, sides)

    def gap(self, W: Array, point: Sums) -> float:
        """What the verifier will find: ‖∇P‖²/(2·l2) plus what the intercept costs."""
        g = point.gradient[:-1] * self.frame.scale[:, None]
        b = self.end(W)[-1]
        cost = intercept_cost(b, point.gradient[-1], point.sides)
        return (float(np.vdot(g, g)) / (2 * self.l2) + cost) / self.reference

    def end(self, W: Array) -> Array:
        """Coefficients of the rows as given."""
        w = W[:-1] / self.frame.scale[:, None]
        b = W[-1] - self.frame.mean @ w if self.frame.intercept else W[-1]
        return np.vstack([w, b])


def solve(problem: SummedProblem, start: Start, limits: SolverLimits) -> Solution:
    """Minimise to a relative gap of ``limits.tol``; a step is one pass, rarely more."""
    shape = (len(problem.frame.mean) + 1, problem.k)
    W = np.zeros(shape) if start.primal is None else start.primal
    status, steps, gap = Status.MAX_ITER, 0, np.inf
    try:
        point = problem.at(W)
        while True:
            gap = problem.gap(W, point)
            stop = limits.on_step(point.value, gap, problem.end(W))
            if gap <= 0.5 * limits.tol:
                status = Status.SOLVED
            elif stop is not None:
                status = stop
            if status is not Status.MAX_ITER or steps >= limits.max_iter:
                break
            steps += 1
            found = _step(problem, W, point)
            if found is None:
                status = Status.TOL_NOT_REACHED
                break
            W, point = found
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return Solution(problem.end(W), gap, status, steps)


def _step(problem: SummedProblem, W: Array, point: Sums) -> tuple[Array, Sums] | None:
    """Newton's step, halved until the objective falls; None where it does not."""
    g = point.gradient.T.ravel()
    try:
        factor = linalg.cho_factor(point.hessian, check_finite=False)
        move = linalg.cho_solve(factor, g)
    except linalg.LinAlgError:  # a class's intercept is free up to a constant
        move = linalg.lstsq(point.hessian, g, cond=1e-14)[0]
    move = move.reshape(W.shape[::-1]).T
    fall, t = float(np.vdot(point.gradient, move)), 1.0
    for _ in range(30):
        new = W - t * move
        found = problem.at(new)
        if found.value <= point.value - 1e-4 * t * fall:
            return new, found
        close = abs(t * fall) <= 1e-12 * max(1.0, abs(point.value))
        norm = np.linalg.norm
        if close and norm(found.gradient) < 0.9 * norm(point.gradient):
            return new, found
        t /= 2
    return None
