"""Support vector machines: Newton steps on the rows near a kink.

    min over w, b:  Σ sᵢ ℓ(xᵢᵀw + κ·b)/Σs + ½·l2·(‖w‖² + b²)

with the losses of ``certus._solvers.svm_kernels`` (b is unpenalised if it is free). The
squared losses are smooth, and Newton's method needs the Gram matrix of the active rows
alone. The others are solved by the method of multipliers: their dual has a proximal
term ½·delta·(u − centre)², which leaves a smooth problem whose curvature lives on the
few rows within ``delta`` of a kink; the centre is moved to the solution and ``delta``
lowered until the duality gap is closed. The limit is exact, also with repeated rows.
Large dense problems first solve themselves on an eighth of the rows. Cost of a step:
two passes over X, and the Gram matrix of the rows near a kink. Memory: X, a block of
rows, min(d, rows near a kink)².
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from certus._solvers.problem import Solution, SolverLimits, Start
from certus._solvers.svm_far import move_near, started, watched
from certus._solvers.svm_kernels import along, envelope
from certus._solvers.svm_problem import DualBox, SvmProblem, SVMRows
from certus._solvers.svm_systems import newton_direction
from certus.certificate import Status
from certus.typing import Array


class SVMPoint(NamedTuple):
    """An iterate and what the next step needs."""

    w: Array
    z: Array
    u: Array
    inside: Array
    gradient: Array
    objective: float  # with the true loss
    short: float  # complementarity: mean of ℓ(z) + ℓ*(u) − uz
    rest: float  # ‖∇‖²/(2·l2), and what a free intercept costs


class Smoothed:
    """The problem with its proximal term: where, how wide, around what."""

    def __init__(self, problem: SvmProblem, delta: float, centre: Array) -> None:
        self.problem, self.delta, self.centre = problem, delta, centre

    def at(self, w: Array, z: Array) -> SVMPoint:
        """Value, dual point and gradient at w with scores z.

        A free intercept is moved to its minimum where no row near a kink could tell
        Newton's method where to go.
        """
        rows, box = self.problem.rows, self.problem.box
        smooth, linear, loss, u, inside = self._envelope(z)
        if self.problem.free and not inside.any():
            shift = self._best_shift(z)
            w, z = w.copy(), z + rows.scale * shift
            w[-1] += shift
            smooth, linear, loss, u, inside = self._envelope(z)
        if self.problem.free and not box.width:
            self._balance(u, inside)
        levels = self.problem.levels
        if self.problem.constant:
            self._anchor(u, inside, levels[-2] * w[-2])
        penalty = float(levels @ (w * w)) / 2
        gradient = rows.pull(u) + levels * w
        value = smooth if box.width else loss
        short = 0.0 if box.width else max(loss - linear, 0.0) / rows.total
        g, b = gradient, w[-1]
        if self.problem.free:
            rest = float(g[:-1] @ g[:-1]) / (2 * self.problem.l2)
            rest += 2 * abs(g[-1]) * (1 + abs(b))
        else:
            rest = float(g @ (g / levels)) / 2
        objective = value / rows.total + penalty
        return SVMPoint(w, z, u, inside, gradient, objective, short, rest)

    def _envelope(self, z: Array) -> tuple[float, float, float, Array, Array]:
        rows, box = self.problem.rows, self.problem.box
        u, inside = np.empty(rows.n), np.empty(rows.n, dtype=np.bool_)
        sums = envelope(
            *(z, box.t, rows.s, box.low, box.high, box.epsilon),
            *(self.delta, self.centre, u, inside),
        )
        return (*sums, u, inside)

    def _balance(self, u: Array, inside: Array) -> None:
        """Make Σ s·u = 0 where only the rounding of z/delta is in the way."""
        s = self.problem.rows.s
        room = float(s[inside].sum())
        if room > 0.0:
            excess = float(s @ u) / room
            if abs(excess) <= 1e-6:
                u[inside] -= excess

    def _anchor(self, u: Array, inside: Array, slope: float) -> None:
        """As ``_balance`` for a constant that is penalised, however little."""
        rows = self.problem.rows
        share = rows.s * rows.X[:, -1] / rows.total
        room = float(share[inside].sum())
        if room > 0.0:
            excess = (float(share @ u) + slope) / room
            if abs(excess) <= 1e-6:
                u[inside] -= excess

    def _best_shift(self, z: Array) -> float:
        """How far b moves to its minimum for fixed w: a root of a monotone slope."""
        rows, box = self.problem.rows, self.problem.box
        ones = np.full(rows.n, rows.scale)
        low, high, step, best, least = -np.inf, np.inf, 0.0, 0.0, np.inf
        reach = 1.0
        for _ in range(200):
            g, h = along(
                *(z, ones, step, box.t, rows.s, box.low, box.high),
                *(box.epsilon, self.delta, self.centre),
            )
            if abs(g) < least:
                best, least = step, abs(g)
            if abs(g) <= 1e-16 * rows.total:
                break
            low, high = (step, high) if g < 0 else (low, step)
            step = step - g / h if h > 0 else np.nan
            if not low < step < high:
                reach *= 2
                if np.isinf(high):
                    step = low + reach
                elif np.isinf(low):
                    step = high - reach
                else:
                    step = (low + high) / 2
                    if not low < step < high:
                        break
        return best

    def search(self, point: SVMPoint, p: Array, q: Array) -> float:
        """Step to the minimum along p, to a tenth of the slope; 0 if none is left."""
        rows, box = self.problem.rows, self.problem.box
        levels = self.problem.levels
        first, second = float(levels @ (point.w * p)), float(levels @ (p * p))

        def slope(step: float) -> tuple[float, float]:
            g, h = along(
                *(point.z, q, step, box.t, rows.s, box.low, box.high),
                *(box.epsilon, self.delta, self.centre),
            )
            return first + step * second + g / rows.total, second + h / rows.total

        start, _ = slope(0.0)
        if not start < 0.0:
            return 0.0
        low, high, step = 0.0, np.inf, 1.0
        for _ in range(60):
            g, h = slope(step)
            if abs(g) <= 0.1 * abs(start):
                break
            low, high = (step, high) if g < 0 else (low, step)
            step = step - g / h if h > 0 else np.inf
            if not low < step < high:
                step = (low + high) / 2 if np.isfinite(high) else 4 * low + 1
        return step


@dataclass(frozen=True)
class SmoothedSolution(Solution):
    """A solution and the width of the proximal term that it was found with."""

    delta: float = 1.0
    moved: bool = False  # the dual point is nearer than slopes of rounded scores are


def solve(problem: SvmProblem, start: Start, limits: SolverLimits) -> SmoothedSolution:
    """Minimise to a relative gap of ``limits.tol``; ``primal`` is (w, b)."""
    reference = problem.reference() or 1.0
    near = move_near(problem)
    if near is None:
        return _solve(problem, start, limits, reference)
    problem, move = near
    limits = limits._replace(on_step=watched(move, limits.on_step))
    found = _solve(problem, started(move, start), limits, reference)
    return replace(found, primal=move.back(found.primal), moved=True)


def _solve(
    problem: SvmProblem, start: Start, limits: SolverLimits, reference: float
) -> SmoothedSolution:
    box, rows = problem.box, problem.rows
    w = np.zeros(rows.d + 1) if start.primal is None else start.primal.copy()
    delta, centre = box.width or _first_width(problem, reference), start.dual
    try:
        step = coarse_step(rows)
        if step > 1 and centre is None and not w.any():
            small = problem._replace(rows=rows.take(step), box=box.take(step))
            rough = SolverLimits(max(1e-4, limits.tol), 60)
            first = _solve(small, Start(w), rough, reference)
            if first.status is Status.INTERRUPTED:
                return replace(first, dual=np.zeros(rows.n))
            w, delta = first.primal, min(delta, first.delta)
    except KeyboardInterrupt:
        return SmoothedSolution(w, np.inf, Status.INTERRUPTED, 0, np.zeros(rows.n))
    z = rows.dot(w)
    if centre is None:
        centre = np.zeros(rows.n) if box.width else _middle(box, z, delta)
    return _Multipliers(problem, reference, limits).run(w, z, delta, centre)


def coarse_step(rows: SVMRows) -> int:
    """Stride of the warm-up problem: 8 when that leaves rows to spare."""
    enough = rows.n // 8 >= max(2_000, 20 * rows.d)
    return 8 if enough else 1


def _first_width(problem: SvmProblem, reference: float) -> float:
    """So wide that the first step is a ridge regression on nearly all rows."""
    spread = float(np.abs(problem.box.t).max(initial=0.0))
    return 4.0 * (spread or reference or 1.0)


def _middle(box: DualBox, z: Array, delta: float) -> Array:
    """Half-way between the slopes on either side of the nearest kink."""
    finite = np.isfinite(box.low) & np.isfinite(box.high)
    middle = np.where(finite, (box.low + box.high) / 2, 0.0)
    if box.epsilon > delta:
        middle = middle + np.sign(z - box.t) / 2
    return np.asarray(middle)


class _Multipliers:
    """The outer loop (centres and widths) and the inner one (Newton steps)."""

    def __init__(
        self, problem: SvmProblem, reference: float, limits: SolverLimits
    ) -> None:
        self.problem, self.reference, self.tol = problem, reference, limits.tol
        self.max_iter, self.on_step, self.steps = limits.max_iter, limits.on_step, 0
        self.status: Status | None = None

    def run(self, w: Array, z: Array, delta: float, centre: Array) -> SmoothedSolution:
        """Alternate until the gap is closed, stalls, or a callback stops it."""
        model = Smoothed(self.problem, delta, centre)
        point = model.at(w, z)
        best, stalled = np.inf, 0
        try:
            while self.status is None:
                point = self._newton(model, point)
                gap = (point.short + point.rest) / self.reference
                if self.status is not None:
                    break
                if gap <= 0.5 * self.tol:
                    self.status = Status.SOLVED
                    break
                if self.problem.box.width:
                    self.status = Status.TOL_NOT_REACHED
                    break
                quick = gap < 0.1 * best
                stalled = 0 if gap < 0.7 * best else stalled + 1
                if stalled > 12:
                    self.status = Status.TOL_NOT_REACHED
                best = min(best, gap)
                delta = model.delta if quick else model.delta / 4
                model = Smoothed(self.problem, delta, point.u)
                point = model.at(point.w, point.z)
            if self.status is Status.SOLVED and not self.problem.box.width:
                point = self._polish(model, point)
        except KeyboardInterrupt:
            self.status = Status.INTERRUPTED
        gap = (point.short + point.rest) / self.reference
        u = point.u
        if self.status is not Status.SOLVED and not self.problem.box.width:
            u = self._shrunk(point)
        status = self.status or Status.MAX_ITER
        return SmoothedSolution(point.w, gap, status, self.steps, u, delta=model.delta)

    def _shrunk(self, point: SVMPoint) -> Array:
        """The best multiple of u: far from the minimum, whole slopes prove nothing."""
        rows, box = self.problem.rows, self.problem.box
        v = point.gradient - self.problem.levels * point.w
        square = float(v[:-1] @ (v[:-1] / self.problem.levels[:-1]))
        if not self.problem.free:
            square += float(v[-1]) ** 2 / self.problem.l2
        linear = rows.s @ (point.u * box.t + box.epsilon * np.abs(point.u))
        gain = -float(linear) / rows.total
        if not square > 0.0:
            return point.u
        return point.u * float(np.clip(gain / square, 0.0, 1.0))

    def _polish(self, model: Smoothed, point: SVMPoint) -> SVMPoint:
        """One more round where it is cheap: the limit is exact, not merely close."""
        if self.problem.rows.n * self.problem.rows.d > 1_000_000:
            return point
        before = point.short + point.rest
        model = Smoothed(self.problem, model.delta / 4, point.u)
        new = model.at(point.w, point.z)
        for _ in range(3):
            new = self._step(model, new, 1e-14) or new
        return new if new.short + new.rest <= before else point

    def _newton(self, model: Smoothed, point: SVMPoint) -> SVMPoint:
        """Newton steps until the gradient costs less than the kinks do."""
        for _ in range(100 if self.problem.box.width else 12):
            gap = (point.short + point.rest) / self.reference
            stop = self.on_step(point.objective, gap, point.w)
            enough = max(0.1 * point.short, 0.25 * self.tol * self.reference)
            if point.rest <= enough or gap <= 0.5 * self.tol:
                return point
            if stop is not None or self.steps >= self.max_iter:
                self.status = stop or Status.MAX_ITER
                return point
            self.steps += 1
            new = self._step(model, point, min(1e-2, gap))
            if new is None:
                return point
            point = new
        return point

    def _step(
        self, model: Smoothed, point: SVMPoint, forcing: float
    ) -> SVMPoint | None:
        p = newton_direction(
            self.problem, point.inside, point.gradient, model.delta, forcing
        )
        if not np.isfinite(p).all():
            return None
        q = self.problem.rows.dot(p)
        length = model.search(point, p, q)
        if length == 0.0:
            return None
        w = point.w + length * p
        moved = point.z + length * q
        return model.at(w, moved)
