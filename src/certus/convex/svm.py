"""Support vector machines: Newton steps on the rows near a kink.

    min over w, b:  Σ sᵢ ℓ(xᵢᵀw + κ·b)/Σs + ½·l2·(‖w‖² + b²)

with the losses of ``certus.convex.svm_kernels`` (b is unpenalised if it is free). The
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

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from certus.certificate import Status
from certus.convex.blas import cholesky
from certus.convex.design import Array
from certus.convex.problem import OnStep, Solution, keep_going
from certus.convex.svm_kernels import along, envelope

#: Columns up to which the Newton matrix is formed, and rows for its dual form.
PRIMAL_SIDE = 2_000
DUAL_SIDE = 2_000
#: Rows near a kink beyond which a sample of them makes the Newton matrix.
SAMPLE_ROWS = 20_000
_BLOCK = 1 << 20


class Box(NamedTuple):
    """A loss as a maximum over a box; see ``certus.convex.svm_kernels``."""

    t: Array
    low: Array
    high: Array
    epsilon: float
    width: float

    def take(self, step: int) -> Box:
        """Every ``step``-th row."""
        parts = (np.ascontiguousarray(a[::step]) for a in self[:3])
        return Box(*parts, self.epsilon, self.width)


def hinge_box(y: Array, squared: bool, top: float = 1.0) -> Box:
    """Hinge loss of labels ±1, its square, or (``top=inf``) the hard margin."""
    limit = np.inf if squared else top
    low, high = np.where(y > 0, -limit, 0.0), np.where(y > 0, 0.0, limit)
    return Box(y.astype(np.float64), low, high, 0.0, 0.5 if squared else 0.0)


def tube_box(y: Array, epsilon: float, squared: bool) -> Box:
    """Epsilon-insensitive loss of targets y, or its square."""
    limit = np.full(len(y), np.inf if squared else 1.0)
    width = 0.5 if squared else 0.0
    return Box(y.astype(np.float64), -limit, limit, float(epsilon), width)


class Rows:
    """Rows with a constant column of size ``scale`` that is never stored.

    Parameters
    ----------
    X : ndarray or CSR matrix
        Data.
    s : ndarray
        Weights.
    scale : float
        κ; zero for no intercept.
    """

    def __init__(self, X: Any, s: Array, scale: float) -> None:
        self.X, self.s, self.scale = X, s, scale
        self.n, self.d = X.shape
        self.total = float(s.sum())
        self.sparse = sparse.issparse(X)

    def dot(self, w: Array) -> Array:
        """Xw + κb."""
        if not w[:-1].any():
            return np.full(self.n, self.scale * w[-1])
        if self.sparse or self.X.dtype == np.float64:
            z = np.asarray(self.X @ w[:-1])
        else:
            z = np.concatenate([block @ w[:-1] for _, block in self.blocks()])
        z += self.scale * w[-1]
        return z

    def pull(self, u: Array) -> Array:
        """[X κ]ᵀ(s∘u)/Σs."""
        su = self.s * u
        out = np.empty(self.d + 1)
        if self.sparse:
            out[:-1] = self.X.T @ su
        elif self.X.dtype == np.float64:
            out[:-1] = su @ self.X
        else:
            out[:-1] = 0.0
            for start, block in self.blocks():
                out[:-1] += su[start : start + len(block)] @ block
        out[-1] = self.scale * su.sum()
        return out / self.total

    def blocks(self) -> Any:
        """Dense blocks in float64, with where they start."""
        rows = max(1, _BLOCK // max(1, self.d))
        for i in range(0, self.n, rows):
            yield i, self.X[i : i + rows].astype(np.float64, copy=False)

    def gram(self, members: Array, h: Array) -> Array:
        """[X κ]ᵀ diag(h) [X κ] over some rows."""
        out = np.zeros((self.d + 1, self.d + 1))
        border = np.zeros(self.d)
        if self.sparse:
            part = self.X[members].astype(np.float64)
            out[:-1, :-1] = (part.T @ (sparse.diags_array(h) @ part)).toarray()
            border = np.asarray(part.T @ h)
        else:
            rows = max(1, _BLOCK // max(1, self.d))
            root = np.sqrt(h)
            for i in range(0, len(members), rows):
                index = members[i : i + rows]
                part = self.X[index].astype(np.float64, copy=False)
                part *= root[i : i + rows, None]
                out[:-1, :-1] += part.T @ part
                border += root[i : i + rows] @ part
        out[:-1, -1] = out[-1, :-1] = self.scale * border
        out[-1, -1] = self.scale**2 * h.sum()
        return out

    def squares(self) -> Array:
        """‖xᵢ‖² + κ²."""
        if self.sparse:
            out = np.asarray(self.X.multiply(self.X).sum(axis=1)).ravel()
            return np.asarray(out + self.scale**2, dtype=np.float64)
        parts = [np.einsum("ij,ij->i", b, b) for _, b in self.blocks()]
        return np.concatenate(parts) + self.scale**2

    def take(self, step: int) -> Rows:
        """Every ``step``-th row."""
        return Rows(self.X[::step], np.ascontiguousarray(self.s[::step]), self.scale)


class SvmProblem(NamedTuple):
    """One problem with one score per row."""

    rows: Rows
    box: Box
    l2: float
    free: bool  # whether the constant column escapes the penalty

    @property
    def levels(self) -> Array:
        """Penalty of each coordinate, that of b last."""
        out = np.full(self.rows.d + 1, self.l2)
        if self.free:
            out[-1] = 0.0
        return out

    def reference(self) -> float:
        """P(0), what gaps are relative to; with a free intercept P(best constant)."""
        box, s = self.box, self.rows.s
        b = _best_constant(box, s) if self.free else 0.0
        r = b - box.t
        over = np.maximum(np.abs(r) - box.epsilon, 0.0)
        if box.width:
            bounded = np.where(r > 0, box.high, -box.low) > 0
            loss = np.where(bounded, over**2, 0.0)
        else:
            loss = over * np.where(r > 0, box.high, -box.low)
        return float(s @ loss) / self.rows.total


def _best_constant(box: Box, s: Array) -> float:
    """The constant score of least loss, by bisection on the slope."""
    reach = 2 + 2 * float(np.abs(box.t).max(initial=0.0))
    low, high = -reach, reach
    for _ in range(60):
        b = (low + high) / 2
        r = b - box.t
        over = np.sign(r) * np.maximum(np.abs(r) - box.epsilon, 0.0)
        slope = 2 * over if box.width else np.sign(over)
        if s @ np.clip(slope, box.low, box.high) > 0:
            high = b
        else:
            low = b
    return (low + high) / 2


class Point(NamedTuple):
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

    def at(self, w: Array, z: Array) -> Point:
        """Value, dual point and gradient at w with scores z."""
        rows, box = self.problem.rows, self.problem.box
        u, inside = np.empty(rows.n), np.empty(rows.n, dtype=np.bool_)
        smooth, linear, loss = envelope(
            *(z, box.t, rows.s, box.low, box.high, box.epsilon),
            *(self.delta, self.centre, u, inside),
        )
        levels = self.problem.levels
        penalty = float(levels @ (w * w)) / 2
        gradient = rows.pull(u) + levels * w
        value = smooth if box.width else loss
        short = 0.0 if box.width else max(loss - linear, 0.0) / rows.total
        g, b = gradient, w[-1]
        if self.problem.free:
            rest = float(g[:-1] @ g[:-1]) / (2 * self.problem.l2)
            rest += 2 * abs(g[-1]) * (1 + abs(b))
        else:
            rest = float(g @ g) / (2 * self.problem.l2)
        objective = value / rows.total + penalty
        return Point(w, z, u, inside, gradient, objective, short, rest)

    def search(self, point: Point, p: Array, q: Array) -> float:
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


def solve(
    problem: SvmProblem,
    start: Array,
    tol: float,
    max_iter: int,
    on_step: OnStep = keep_going,
    centre: Array | None = None,
) -> Solution:
    """Minimise to a relative gap of ``tol``; ``start`` is (w, b) of length d + 1.

    ``centre`` is a dual point to begin from. The dual point found is ``extra["u"]``.
    """
    box, rows = problem.box, problem.rows
    reference = problem.reference() or 1.0
    w, delta = start.copy(), box.width or _first_width(problem, reference)
    try:
        step = coarse_step(rows)
        if step > 1 and centre is None and not start.any():
            small = SvmProblem(
                rows.take(step), box.take(step), problem.l2, problem.free
            )
            first = solve(small, w, max(1e-4, tol), 60)
            if first.status is Status.INTERRUPTED:
                return _nothing(first.primal, rows.n)
            w, delta = first.primal, min(delta, first.extra["delta"])
    except KeyboardInterrupt:
        return _nothing(w, rows.n)
    z = rows.dot(w)
    if centre is None:
        centre = np.zeros(rows.n) if box.width else _middle(box, z, delta)
    return _Multipliers(problem, reference, tol, max_iter, on_step).run(
        w, z, delta, centre
    )


def _nothing(w: Array, n: int) -> Solution:
    return Solution(w, np.inf, Status.INTERRUPTED, 0, {"u": np.zeros(n), "delta": 1.0})


def coarse_step(rows: Rows) -> int:
    """Stride of the warm-up problem: 8 when that leaves rows to spare."""
    enough = rows.n // 8 >= max(2_000, 20 * rows.d)
    return 8 if enough else 1


def _first_width(problem: SvmProblem, reference: float) -> float:
    """So wide that the first step is a ridge regression on nearly all rows."""
    spread = float(np.abs(problem.box.t).max(initial=0.0))
    return 4.0 * (spread or reference or 1.0)


def _middle(box: Box, z: Array, delta: float) -> Array:
    """Half-way between the slopes on either side of the nearest kink."""
    finite = np.isfinite(box.low) & np.isfinite(box.high)
    middle = np.where(finite, (box.low + box.high) / 2, 0.0)
    if box.epsilon > delta:
        middle = middle + np.sign(z - box.t) / 2
    return np.asarray(middle)


class _Multipliers:
    """The outer loop (centres and widths) and the inner one (Newton steps)."""

    def __init__(
        self,
        problem: SvmProblem,
        reference: float,
        tol: float,
        max_iter: int,
        on_step: OnStep,
    ) -> None:
        self.problem, self.reference, self.tol = problem, reference, tol
        self.max_iter, self.on_step, self.steps = max_iter, on_step, 0
        self.status: Status | None = None

    def run(self, w: Array, z: Array, delta: float, centre: Array) -> Solution:
        """Alternate until the gap is closed, stalls, or somebody stops it."""
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
        extra = {"u": u, "delta": model.delta}
        return Solution(point.w, gap, self.status or Status.MAX_ITER, self.steps, extra)

    def _shrunk(self, point: Point) -> Array:
        """The best multiple of u: far from the minimum, whole slopes prove nothing."""
        rows, box = self.problem.rows, self.problem.box
        v = point.gradient - self.problem.levels * point.w
        square = float(v @ v) / self.problem.l2
        linear = rows.s @ (point.u * box.t + box.epsilon * np.abs(point.u))
        gain = -float(linear) / rows.total
        if not square > 0.0:
            return point.u
        return point.u * float(np.clip(gain / square, 0.0, 1.0))

    def _polish(self, model: Smoothed, point: Point) -> Point:
        """One more round where it is cheap: the limit is exact, not merely close."""
        if self.problem.rows.n * self.problem.rows.d > 1_000_000:
            return point
        before = point.short + point.rest
        model = Smoothed(self.problem, model.delta / 4, point.u)
        new = model.at(point.w, point.z)
        for _ in range(3):
            new = self._step(model, new, 1e-14) or new
        return new if new.short + new.rest <= before else point

    def _newton(self, model: Smoothed, point: Point) -> Point:
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

    def _step(self, model: Smoothed, point: Point, forcing: float) -> Point | None:
        p = newton_direction(self.problem, point, model.delta, forcing)
        if not np.isfinite(p).all():
            return None
        q = self.problem.rows.dot(p)
        length = model.search(point, p, q)
        if length == 0.0:
            return None
        w = point.w + length * p
        moved = point.z + length * q
        return model.at(w, moved)


# -- Newton systems ---------------------------------------------------------------


def newton_direction(
    problem: SvmProblem, point: Point, delta: float, forcing: float
) -> Array:
    """Solve (levels + AᵀHA)p = −g, A the rows near a kink, H = s/(delta·Σs)."""
    rows, g = problem.rows, point.gradient
    members = np.flatnonzero(point.inside)
    h = rows.s[members] / (delta * rows.total)
    if not members.size and not problem.free:
        return -g / problem.l2
    few = members.size < rows.d // 2 and not problem.free
    if few and rows.d > 300 and members.size <= DUAL_SIDE:
        return _dual_direction(problem, members, h, g)
    if rows.d <= PRIMAL_SIDE:
        return _primal_direction(problem, members, h, g)
    return _conjugate_gradients(problem, members, h, g, forcing)


def _primal_direction(problem: SvmProblem, members: Array, h: Array, g: Array) -> Array:
    stride = members.size // max(SAMPLE_ROWS, 200 * problem.rows.d)
    if stride > 1:  # the direction need not be exact: the gradient is
        part = h[::stride]
        members, h = members[::stride], part * (h.sum() / part.sum())
    H = problem.rows.gram(members, h)
    H.flat[:: len(H) + 1] += problem.levels
    return -symmetric_inverse(H)(g)


def symmetric_inverse(H: Array) -> Callable[[Array], Array]:
    """H⁻¹ by Cholesky where well-conditioned, else on its range."""
    diagonal = np.diag(H).copy()
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    M = H * scale[:, None] * scale
    M.flat[:: len(M) + 1] = 1.0
    factor = cholesky(M)
    if factor is not None:
        pivots = np.diag(factor)
        if pivots.min() > 1e-7 * pivots.max():
            return lambda v: np.asarray(
                scale * linalg.lapack.dpotrs(factor, scale * v)[0]
            )
    values, Q = np.linalg.eigh(M)
    keep = values > 1e-15 * len(M) * values.max()
    Q, values = Q[:, keep], values[keep]
    return lambda v: np.asarray(scale * (Q @ ((Q.T @ (scale * v)) / values)))


def _dual_direction(problem: SvmProblem, members: Array, h: Array, g: Array) -> Array:
    """By the matrix of inner products of the rows, for more columns than rows."""
    rows = problem.rows
    A = rows.X[members].astype(np.float64)
    K = A @ A.T
    K = np.asarray(K.toarray() if rows.sparse else K) + rows.scale**2
    K /= problem.l2
    K.flat[:: len(K) + 1] += 1 / h
    Ag = np.asarray(A @ g[:-1]) + rows.scale * g[-1]
    x = symmetric_inverse(K)(Ag / problem.l2)
    p = -g.copy()
    p[:-1] += A.T @ x
    p[-1] += rows.scale * x.sum()
    return np.asarray(p / problem.l2)


def _conjugate_gradients(
    problem: SvmProblem, members: Array, h: Array, g: Array, forcing: float
) -> Array:
    """With a diagonal preconditioner, to a residual of ``forcing``."""
    rows, levels = problem.rows, problem.levels
    A = rows.X[members].astype(np.float64)
    squares = A.multiply(A).T @ h if rows.sparse else np.square(A).T @ h
    D = levels + np.append(np.asarray(squares), rows.scale**2 * h.sum())
    D[D <= 0.0] = np.inf

    def curve(v: Array) -> Array:
        hAv = h * (np.asarray(A @ v[:-1]) + rows.scale * v[-1])
        return levels * v + np.append(A.T @ hAv, rows.scale * hAv.sum())

    x, r = np.zeros_like(g), -g
    y = r / D
    p, ry = y, float(r @ y)
    first = ry
    for _ in range(min(2 * len(g), 1_000)):
        Hp = curve(p)
        bend = float(p @ Hp)
        if not bend > 0.0:
            break
        a = ry / bend
        x, r = x + a * p, r - a * Hp
        y = r / D
        new = float(r @ y)
        if new <= forcing**2 * first:
            break
        p, ry = y + (new / ry) * p, new
    return x
