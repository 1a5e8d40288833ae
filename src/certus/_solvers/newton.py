"""Smooth losses with an L2 penalty or none: preconditioned Newton-CG.

    min over W, b:  Σ sᵢ ℓ(yᵢ, xᵢᵀW + b)/Σs + ½·l2·‖W‖²

Each Newton system is solved by conjugate gradients, two products with X a step. The
preconditioner makes that one or two steps (``certus._solvers.preconditioners``). Large
problems first solve themselves on an eighth of their rows. Memory: X and a few (n, k)
arrays; X once more where columns are far from zero. Losses: those of
``certus._solvers.losses``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from certus._solvers.losses import evaluate
from certus._solvers.newton_problem import NewtonPoint, NewtonProblem, NewtonRows
from certus._solvers.preconditioners import preconditioner
from certus._solvers.problem import Solution, SolverLimits, Start
from certus.certificate import Status
from certus.typing import Array

__all__ = ["NewtonProblem", "NewtonRows", "intercept_cost", "solve"]

#: Cells of X up to which losses of numbers are solved further than they need be.
SMALL = 200_000


def solve(problem: NewtonProblem, start: Start, limits: SolverLimits) -> Solution:
    """Minimise to a relative gap (stationarity, if unpenalised) of ``limits.tol``."""
    W = problem.begin(start)
    point, gap, status, steps = None, np.inf, Status.MAX_ITER, 0
    on_step, tol = problem.watched(limits.on_step), limits.tol
    try:
        step = _coarse_step(problem)
        if step > 1 and not W[:-1].any():
            part, free = problem.rows.take(step), problem.intercept
            coarse = NewtonProblem(part, problem.loss, problem.penalty, free)
            first = solve(coarse, Start(W), SolverLimits(1e-4, 20))
            W = first.primal
            if first.status is Status.INTERRUPTED:
                return replace(first, primal=problem.end(W))
        reference = problem.constant_objective() or 1.0
        goal = 0.5 * tol
        if not problem.classifies and problem.n * problem.d <= SMALL:
            goal *= 1e-4  # two or three more steps, which cost next to nothing
        point = problem.at(W, problem.scores(W))
        precondition, shrink = None, 0.0
        while True:
            gap = _gap(problem, point, reference)
            stop = on_step(point.objective, gap, point.W)
            if gap <= goal:
                status = Status.SOLVED
            elif stop is not None:
                status = stop
            elif _separated(problem, point):
                status = Status.NO_MINIMISER
            if status is not Status.MAX_ITER or steps >= limits.max_iter:
                break
            steps += 1
            if precondition is None or shrink > 0.05:
                precondition = preconditioner(problem, point)
            direction, pushed = _newton_direction(problem, point, precondition)
            new = _search(problem, point, direction, pushed)
            if new is None:
                status = Status.TOL_NOT_REACHED
                break
            before = float(np.linalg.norm(point.gradient))
            shrink = float(np.linalg.norm(new.gradient)) / max(before, 1e-300)
            point = new
        if status in (Status.MAX_ITER, Status.TOL_NOT_REACHED) and gap <= 0.5 * tol:
            status = Status.SOLVED
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    W = problem.end(W if point is None else point.W)
    return Solution(W, gap, status, steps)


def _coarse_step(problem: NewtonProblem) -> int:
    """Stride of the warm-up problem: 8 when that leaves rows to spare."""
    n, p = problem.n, (problem.d + 1) * problem.k
    enough = n // 8 >= max(2_000, 20 * p)
    plain = not problem.sparse or problem.rows.X.format == "csr"
    return 8 if enough and plain else 1


def _gap(problem: NewtonProblem, point: NewtonPoint, reference: float) -> float:
    """What the verifier will find: ‖∇P‖²/(2·l2) plus what the intercept costs.

    Without a penalty: the gradient over its natural size, ‖Xᵀu‖/(‖X‖·‖u‖).
    """
    g, b = point.gradient, point.W[-1]
    square = float(np.vdot(g[:-1], g[:-1]))
    if problem.l2 > 0:
        if problem.classifies:
            offset = intercept_cost(b, g[-1], point.sides)
        else:
            offset = _offset_cost(problem, point)
        return (square / (2 * problem.l2) + offset) / reference
    slopes = evaluate(problem.loss, problem.rows.y, point.z, problem.rows.s).slope
    s = problem.rows.s
    size = np.sqrt(float(s @ np.square(slopes).sum(axis=1)) * problem.rows.total)
    norm = problem.norm()
    if size == 0.0 or norm == 0.0:
        return 0.0
    total = problem.rows.total
    inside = np.sqrt(square) * total / (norm * size / np.sqrt(total))
    return float(
        max(inside, np.abs(g[-1]).max() * np.sqrt(total) / (size / np.sqrt(total)))
    )


def intercept_cost(b: Array, g_b: Array, sides: Array) -> float:
    """Gap that repairing Σ s u = 0 adds.

    First order b·g_b, and the entropy of the share that is moved: t·log t, with t far
    above float64's smallest probabilities.
    """
    share = float((np.abs(g_b) / np.maximum(sides, 1e-300)).max(initial=0.0))
    return float(np.abs(b * g_b).sum()) + 40 * share


def _offset_cost(problem: NewtonProblem, point: NewtonPoint) -> float:
    """As ``intercept_cost`` for a loss of numbers.

    Moving u by the share that Σ s u = 0 asks for costs its residual, and moves Xᵀu.
    """
    g_b = float(np.abs(point.gradient[-1, 0]))
    residual = abs(point.objective) / max(2 * float(point.sides[0]), 1e-300)
    moved = g_b * problem.norm() / np.sqrt(problem.rows.total)
    return g_b * residual + moved**2 / (2 * problem.l2)


def _separated(problem: NewtonProblem, point: NewtonPoint) -> bool:
    """Without a penalty: whether the scores already put every row on its side."""
    if problem.l2 > 0 or not point.W.any() or not problem.classifies:
        return False
    y, z = problem.rows.y, point.z
    used = problem.rows.s > 0
    if problem.k == 1:
        return bool(np.min((y * z[:, 0])[used]) > 0)
    rows = np.arange(len(y))
    own = z[rows, y]
    others = z.copy()
    others[rows, y] = -np.inf
    return bool(np.min((own - others.max(axis=1))[used]) > 0)


def _newton_direction(
    problem: NewtonProblem, point: NewtonPoint, precondition: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Conjugate gradients on HΔ = −g, and XΔ on the way."""
    g = point.gradient
    x, Xx = np.zeros_like(g), np.zeros_like(point.z)
    r = -g
    y = precondition(r)
    p, ry = y, float(np.vdot(r, y))
    first = ry
    forcing = min(0.1, max(0.0, first) ** 0.25) ** 2  # rounding may leave first < 0
    for _ in range(200):
        if ry <= 0:
            break
        Xp = problem.scores(p)
        Hp = problem.curve(point, p, Xp)
        curvature = float(np.vdot(p, Hp))
        if curvature <= 1e-300:
            break
        a = ry / curvature
        x, Xx, r = x + a * p, Xx + a * Xp, r - a * Hp
        y = precondition(r)
        new = float(np.vdot(r, y))
        if new <= forcing * first:
            break
        p, ry = y + (new / ry) * p, new
    return (x, Xx) if x.any() else (y, problem.scores(y))


def _search(
    problem: NewtonProblem, point: NewtonPoint, direction: Array, pushed: Array
) -> NewtonPoint | None:
    """Backtrack until the objective falls; None if it cannot in float64."""
    slope = float(np.vdot(point.gradient, direction))
    t = 1.0
    for _ in range(30):
        W, z = point.W + t * direction, point.z + t * pushed
        new = problem.at(W, z)
        if new.objective <= point.objective + 1e-4 * t * slope:
            return new
        # At the floor of float64 the gradient still tells progress.
        close = abs(t * slope) <= 1e-12 * max(1.0, abs(point.objective))
        norm = np.linalg.norm
        if close and norm(new.gradient) < 0.9 * norm(point.gradient):
            return new
        t /= 2
    return None
