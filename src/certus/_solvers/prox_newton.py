"""Logistic and softmax regression with kinks in Ω: proximal Newton on working sets.

    min over W, b:  Σ sᵢ ℓ(yᵢ, xᵢᵀW + b)/Σs + Ω(W)

A pass over all columns gives the gradient and the duality gap; the worst violators join
the working set. On it, the loss is replaced by its quadratic model, which coordinate
descent minimises (logistic: on the weighted Gram matrix; softmax: on the columns), and
a line search makes the step safe. Memory: X and the columns of the working set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import xlogy

from certus._solvers.design import FAR, copy_columns
from certus._solvers.gram import solve_on_gram
from certus._solvers.kernels import descend_softmax
from certus._solvers.losses import evaluate
from certus._solvers.newton import intercept_cost
from certus._solvers.newton_problem import NewtonProblem, NewtonRows
from certus._solvers.penalties import operation, require
from certus._solvers.problem import Solution, SolverLimits, Start
from certus._solvers.working_set import grown
from certus.certificate import Status
from certus.objectives import Logistic
from certus.typing import Array

#: What this method asks of a penalty.
NEEDS = ("value", "prox", "distance", "conjugate", "polar", "piece")


class SparseProblem(NewtonProblem):
    """As :class:`NewtonProblem`, with a penalty by coordinate and a working set."""

    far = FAR  # descent along columns is slow long before digits are lost

    def __init__(
        self, rows: NewtonRows, loss: Any, penalty: Any, intercept: bool
    ) -> None:
        super().__init__(rows, loss, penalty, intercept)
        self.members = np.empty(0, dtype=np.intp)
        self.columns: Any = None
        self._buffer = np.empty((0, self.n))

    def _curvature(self, penalty: Any) -> float:
        row: Any = require("proximal Newton", penalty, *NEEDS)
        return float(row.piece(penalty, np.ones(1)).curvature)

    def admit(self, new: Array) -> None:
        """Add columns to the working set, as a dense or CSC block."""
        X = self.rows.X
        if self.sparse:
            fresh: Any = X[:, new].tocsc()
            parts = [fresh] if self.columns is None else [self.columns, fresh]
            self.columns = sparse.hstack(parts, format="csc")
        else:
            k, m = len(self.members), len(new)
            self._buffer = grown(self._buffer, k, k + m, self.n)
            copy_columns(X, new, self._buffer[k : k + m])
            self.columns = self._buffer[: k + m].T
        self.members = np.concatenate([self.members, new])

    def scores_of(self, W: Array, b: Array) -> Array:
        """Scores from the working set's coefficients."""
        return np.asarray(self.columns @ W) + b

    def omega(self, W: Array) -> float:
        """Ω."""
        return float(operation(self.penalty, "value")(self.penalty, W))

    def distance(self, W: Array, pull: Array) -> Array:
        """How far each coordinate is from optimal."""
        return np.asarray(operation(self.penalty, "distance")(self.penalty, W, pull))

    def gap(self, W: Array, b: Array, z: Array, gradient: Array) -> tuple[float, float]:
        """Objective and P − D, with D from the rescaled slopes."""
        s, total = self.rows.s, self.rows.total
        slopes = evaluate(self.loss, self.rows.y, z)
        primal = float(s @ slopes.value) / total + self.omega(W)
        pull, g_b = gradient[:-1], gradient[-1]
        t = operation(self.penalty, "polar")(self.penalty, pull)
        conjugate = operation(self.penalty, "conjugate")(self.penalty, t * pull)
        dual = -float(s @ _entropy(self.loss, self.rows.y, slopes.slope, t)) / total
        gap = primal - dual + conjugate
        if self.intercept:
            gap += intercept_cost(b, g_b, self.sides(slopes))
        return primal, max(gap, 0.0)


def _entropy(loss: Any, y: Array, slope: Array, t: float) -> Array:
    """Conjugate of the loss at t·slope."""
    if isinstance(loss, Logistic):
        v = t * np.abs(slope[:, 0])
        return np.asarray(xlogy(v, v) + xlogy(1 - v, 1 - v))
    P = t * slope
    P[np.arange(len(y)), y] += 1.0
    P = np.maximum(P, 0.0)
    return np.asarray(xlogy(P, P).sum(axis=1))


def solve(problem: SparseProblem, start: Start, limits: SolverLimits) -> Solution:
    """Minimise to a relative gap of ``limits.tol``; ``primal`` is (d + 1, k)."""
    first = problem.begin(start)
    W, b = first[:-1].copy(), first[-1].copy()
    on_step, tol = problem.watched(limits.on_step), limits.tol
    status, steps, relative = Status.MAX_ITER, 0, np.inf
    reference = problem.constant_objective() or 1.0
    if problem.intercept and not first.any():
        b = _best_intercept(problem)
    z = problem.scores(np.vstack([W, b]))
    stalled = False
    try:
        while True:
            slope = evaluate(problem.loss, problem.rows.y, z).slope
            gradient = problem.pull(slope)
            objective, gap = problem.gap(W, b, z, gradient)
            relative = gap / reference
            stop = on_step(objective, relative, np.vstack([W, b]))
            if relative <= 0.9 * tol:
                status = Status.SOLVED
                break
            if stop is not None or steps >= limits.max_iter or stalled:
                status = stop or (Status.TOL_NOT_REACHED if stalled else status)
                break
            steps += 1
            grown = _admit(problem, W, gradient[:-1])
            aim = max(0.2 * gap, 0.3 * tol * reference)
            part = W[problem.members]
            b, z, moved = _solve_members(problem, part, b, z, aim)
            W[problem.members] = part
            stalled = not (moved or grown)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return Solution(problem.end(np.vstack([W, b])), relative, status, steps)


def _best_intercept(problem: SparseProblem) -> Array:
    y, s = problem.rows.y, problem.rows.s
    codes = (y > 0).astype(int) if problem.k == 1 else y
    share = np.bincount(codes, weights=s, minlength=max(2, problem.k)) / s.sum()
    share = np.maximum(share, 1e-12)
    if problem.k == 1:
        return np.array([np.log(share[1] / share[0])])
    return np.log(share) - np.log(share).mean()


def _admit(problem: SparseProblem, W: Array, pull: Array) -> bool:
    inside = np.zeros(problem.d, dtype=bool)
    inside[problem.members] = True
    violation = problem.distance(W, pull).max(axis=1)
    support = np.abs(W).max(axis=1) > 0
    candidates = np.flatnonzero(~inside & (violation > 0))
    room = max(100, int(support.sum()))
    if len(candidates) > room:
        best = np.argpartition(violation[candidates], -room)[-room:]
        candidates = candidates[best]
    new = np.union1d(candidates, np.flatnonzero(support & ~inside))
    if not (new.size or inside.any()):  # only the intercept has to move
        new = np.array([violation.argmax()])
    if new.size:
        problem.admit(new)
    return bool(new.size)


def _solve_members(
    problem: SparseProblem, W: Array, b: Array, z: Array, aim: float
) -> tuple[Array, Array, bool]:
    """Proximal Newton steps on the working set, in place, until its gap is ``aim``."""
    moved = False
    s, total = problem.rows.s, problem.rows.total
    for _ in range(50):
        slopes = evaluate(problem.loss, problem.rows.y, z)
        sU = s[:, None] * slopes.slope
        pull = (
            np.vstack([problem.columns.T @ sU, sU.sum(axis=0, keepdims=True)]) / total
        )
        if not problem.intercept:
            pull[-1] = 0.0
        objective, gap = problem.gap(W, b, z, pull)
        if moved and gap <= aim:
            break
        model = _model_logistic if problem.k == 1 else _model_softmax
        target, b_target = model(problem, W, b, pull, slopes.state)
        step, step_b = target - W, b_target - b
        pushed = problem.scores_of(step, step_b)
        slope = float(np.vdot(pull[:-1], step) + pull[-1] @ step_b)
        slope += problem.omega(target) - problem.omega(W)
        taken = _line_search(problem, W, b, z, step, step_b, pushed, objective, slope)
        if taken == 0.0:
            break
        W += taken * step
        b = b + taken * step_b
        z = z + taken * pushed
        moved = True
    return b, z, moved


def _line_search(
    problem: SparseProblem,
    W: Array,
    b: Array,
    z: Array,
    step: Array,
    step_b: Array,
    pushed: Array,
    objective: float,
    slope: float,
) -> float:
    """Largest of 1, ½, ¼, … that lowers the objective enough; 0 if none does."""
    if slope >= 0.0:
        return 0.0
    t, s = 1.0, problem.rows.s
    for _ in range(30):
        values = evaluate(problem.loss, problem.rows.y, z + t * pushed).value
        new = float(s @ values) / problem.rows.total + problem.omega(W + t * step)
        if new <= objective + 1e-3 * t * slope + 1e-14 * abs(objective):
            return t
        t /= 2
    return 0.0


def _model_logistic(
    problem: SparseProblem, W: Array, b: Array, pull: Array, state: Array
) -> tuple[Array, Array]:
    """Minimise the quadratic model on its Gram matrix, the intercept eliminated."""
    h = problem.rows.s * state[:, 0] / problem.rows.total
    C = problem.columns
    if problem.sparse:
        G = (C.T @ (sparse.diags_array(h) @ C)).toarray()
    else:
        G = np.zeros((C.shape[1], C.shape[1]))
        root = np.sqrt(h)[:, None]
        block = max(1024, (1 << 22) // max(1, C.shape[1]))
        for i in range(0, problem.n, block):
            scaled = C[i : i + block] * root[i : i + block]
            G += scaled.T @ scaled
    total_h = float(h.sum())
    lean = np.asarray(C.T @ h) / total_h if problem.intercept else np.zeros(len(G))
    g_b = float(pull[-1, 0])
    if problem.intercept:
        G -= total_h * np.outer(lean, lean)
    g = pull[:-1, 0] - lean * g_b
    w = W[:, 0].copy()
    c = G @ w - g
    first = float(problem.distance(w, g).max(initial=0.0))

    def done(w: Array, slope: Array) -> bool:
        return float(problem.distance(w, slope).max(initial=0.0)) <= 0.02 * first

    solve_on_gram(G, c, w, problem.penalty, done)
    b_new = b.copy()
    if problem.intercept:
        b_new = b - g_b / total_h - float(lean @ (w - W[:, 0]))
    return w[:, None], b_new


def _model_softmax(
    problem: SparseProblem, W: Array, b: Array, pull: Array, state: Array
) -> tuple[Array, Array]:
    """Coordinate descent on the quadratic model over columns × classes."""
    C = problem.columns.toarray() if problem.sparse else problem.columns
    if problem.intercept:
        C = np.asfortranarray(np.hstack([C, np.ones((problem.n, 1))]))
    m, k = C.shape[1], problem.k
    s = problem.rows.s / problem.rows.total
    penalised = np.arange(m) < len(W)
    g0 = np.ascontiguousarray(pull[:m])
    V = np.zeros((m, k))
    V[: len(W)] = W
    if problem.intercept:
        V[-1] = b
    before = V.copy()
    h = s[:, None] * state * (1 - state)
    curvature = np.square(C).T @ h
    floor = 1e-14 * float(np.abs(g0).max(initial=0.0))
    D, M = np.zeros((k, problem.n)), np.zeros(problem.n)
    P = np.ascontiguousarray(state.T)
    first = 0.0
    for _ in range(20):
        change, _ = descend_softmax(
            problem.penalty, C, penalised, P, s, curvature, g0, V, D, M, 6, 0.0
        )
        first = first or change
        if change <= 0.02 * first or change <= floor:
            break
    step_b = V[-1] - before[-1] if problem.intercept else np.zeros(k)
    return V[: len(W)], b + step_b
