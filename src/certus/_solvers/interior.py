"""Losses with kinks, by an interior point method: quantile, absolute and Huber.

    min over w, b:  Σ sᵢ ℓ(yᵢ − xᵢᵀw − b)/Σs + l1·‖w‖₁ + ½·l2·‖w‖²

with ℓ(r) = max over g in [−down, up] of g·r − ½·bend·g². Mehrotra's predictor and
corrector on r = p − m + bend·g, p(up − g) = m(down + g) = μ; the L1 part is one more
row for each column. A step costs one weighted Gram matrix, n·d², and a few passes; ten
to twenty-five of them suffice. Rows of weight s count as s rows at every step, so that
weights equal repetitions. The last step projects onto the face that the residuals show
and makes a vertex exact. Memory: a scaled copy of X and a dozen arrays of n.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from certus._core.blas import cholesky
from certus._solvers.losses import middle
from certus._solvers.newton_problem import bordered_gram
from certus._solvers.problem import OnStep
from certus.certificate import Status
from certus.typing import Array

#: Most unknowns of the linear system that makes a vertex exact.
POLISH_SIDE = 1_200
#: A gap this small is a vertex. After the target this many more steps are spent on one.
EXACT, MORE_STEPS = 1e-13, 8
#: Steps without progress after which nothing more is expected.
STALLED = 25
#: Columns whose spread is below this share of their size are constant.
FLAT = 1e-13


class Kinked(NamedTuple):
    """ℓ(r): slopes up (r > 0) and down (r < 0); ``bend`` rounds the kink, as Huber."""

    up: float
    down: float
    bend: float = 0.0

    def value(self, r: Array) -> Array:
        """ℓ of each residual."""
        if not self.bend:
            return np.maximum(self.up * r, -self.down * r)
        g = np.clip(r / self.bend, -self.down, self.up)
        return np.asarray(g * (r - self.bend * g / 2))


class KinkedProblem(NamedTuple):
    """Data in the solver's units; ``A`` is (n, d), with a free constant if asked for.

    ``s`` sums to ``total``; ``l1`` has one level for each column. ``linear`` is
    subtracted from the objective, times x: rows whose g is known.
    """

    A: Any
    y: Array
    s: Array
    total: float
    loss: Kinked
    l1: Array
    l2: float
    intercept: bool
    linear: Array

    def dot(self, x: Array) -> Array:
        """Scores; the constant is last in x."""
        return np.asarray(self.A @ x[:-1]) + x[-1]

    def t_dot(self, v: Array) -> Array:
        """[A 1]ᵀv."""
        last = float(v.sum()) if self.intercept else 0.0
        return np.append(np.asarray(self.A.T @ v), last)


class InteriorIterate(NamedTuple):
    """x, and for each row (columns with an L1 part follow) p, m and g."""

    x: Array
    p: Array
    m: Array
    g: Array


class Kinks(NamedTuple):
    """Where it ended: coefficients with the constant last, g per row, relative gap."""

    x: Array
    g: Array
    gap: float
    status: Status
    n_iter: int


class _Rows(NamedTuple):
    """The rows and, after them, one row abs(x_j) for each penalised column."""

    weight: Array
    up: Array
    down: Array
    bend: Array
    y: Array
    columns: Array


def _rows(q: KinkedProblem) -> _Rows:
    n, columns = len(q.y), np.flatnonzero(q.l1 > 0)
    k = len(columns)
    return _Rows(
        np.concatenate([q.s, q.l1[columns] * q.total]),
        np.concatenate([np.full(n, q.loss.up), np.ones(k)]),
        np.concatenate([np.full(n, q.loss.down), np.ones(k)]),
        np.concatenate([np.full(n, q.loss.bend), np.zeros(k)]),
        np.concatenate([q.y, np.zeros(k)]),
        columns,
    )


def _scores(q: KinkedProblem, rows: _Rows, x: Array) -> Array:
    return np.concatenate([q.dot(x), x[rows.columns]])


def _pull(q: KinkedProblem, rows: _Rows, v: Array) -> Array:
    """All rows' Aᵀ(weight∘v), without the linear part."""
    n, weighted = len(q.y), rows.weight * v
    out = q.t_dot(weighted[:n])
    out[rows.columns] += weighted[n:]
    return out


def solve_kinked(
    q: KinkedProblem,
    reference: float,
    tol: float,
    max_iter: int,
    on_step: OnStep,
    start: Array | None = None,
    slopes: Array | None = None,
) -> Kinks:
    """Minimise to a gap of ``tol`` times ``reference``, the loss of a constant.

    ``start`` and ``slopes`` are x and g of the rows to begin with.
    """
    rows = _rows(q)
    null = _null_space(q)
    x = _least_squares(q, rows, null) if start is None else start
    state = _first(q, rows, x, slopes)
    best, best_gap = state, np.inf
    status, steps, stalled, more = Status.MAX_ITER, 0, 0, MORE_STEPS
    goal, least = max(0.5 * tol, 1e-15), np.inf
    try:
        while True:
            objective, gap = _gap(q, rows, state, reference)
            stalled = 0 if gap < 0.9 * least else stalled + 1
            least = min(least, gap)
            for other in _candidates(q, rows, state, gap, tol):
                found = _gap(q, rows, other, reference)[1]
                if found <= best_gap:
                    best, best_gap = other, found
            stop = on_step(objective, best_gap, best.x)
            if best_gap <= goal:
                more = more - 1 if best_gap > EXACT and tol < 1e-5 else 0
            if (best_gap <= goal and more <= 0) or stalled > STALLED:
                status = Status.SOLVED if best_gap <= tol else Status.TOL_NOT_REACHED
                break
            if stop is not None:
                status = stop
                break
            if steps >= max_iter:
                break
            steps += 1
            state = _step(q, rows, state, null)
            if not np.isfinite(state.x).all():
                status = Status.TOL_NOT_REACHED
                break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return Kinks(best.x, best.g[: len(q.y)], best_gap, status, steps)


def _candidates(
    q: KinkedProblem, rows: _Rows, state: InteriorIterate, gap: float, tol: float
) -> list[InteriorIterate]:
    """The iterate, and near the end the vertex or face that it points to."""
    if q.loss.bend or gap > max(1e-4, 10 * tol):
        return [state]
    exact = _polish(q, rows, state)
    return [state] if exact is None else [state, exact]


def _first(
    q: KinkedProblem, rows: _Rows, x: Array, slopes: Array | None
) -> InteriorIterate:
    """Strictly inside: p and m apart by the residuals, g = 0 unless it is known."""
    r = rows.y - _scores(q, rows, x)
    size = np.abs(r)
    typical = middle(size, rows.weight)
    if typical == 0.0:
        typical = float(rows.weight @ size) / float(rows.weight.sum())
    slack = 0.1 * typical + 1e-12
    g = np.zeros(len(r))
    if slopes is not None:
        width = rows.up + rows.down
        known = np.append(slopes, np.zeros(len(r) - len(slopes)))
        g = np.clip(known, -rows.down + 0.02 * width, rows.up - 0.02 * width)
    r = r - rows.bend * g
    return InteriorIterate(
        x, np.maximum(r, 0.0) + slack, np.maximum(-r, 0.0) + slack, g
    )


def _gap(
    q: KinkedProblem, rows: _Rows, state: InteriorIterate, reference: float
) -> tuple[float, float]:
    """Mean objective, and P − D over ``reference``, infeasible g included.

    Without a penalty also the share of Aᵀ(s∘g), which must vanish, in its largest size.
    """
    x, g = state.x, state.g
    n = len(q.y)
    r = rows.y - _scores(q, rows, x)
    primal = float(rows.weight[:n] @ q.loss.value(r[:n]))
    primal += float(rows.weight[n:] @ np.abs(r[n:]))
    primal += q.total * q.l2 * float(x[:-1] @ x[:-1]) / 2 - float(q.linear @ x)
    pulled = _pull(q, rows, g) + q.linear
    dual = float(rows.weight @ (g * rows.y - rows.bend * g * g / 2))
    level, share = q.total * q.l2, 0.0
    if level > 0:
        dual -= float(pulled[:-1] @ pulled[:-1]) / (2 * level)
        off = abs(float(pulled[-1] * x[-1])) + abs(float(pulled[-1]))
    else:
        off = float(np.abs(pulled) @ np.abs(x)) + float(np.abs(pulled).max())
        size = float(np.sqrt(q.total * (rows.weight @ (g * g))))
        if not len(rows.columns) and size > 0:
            share = float(np.abs(pulled).max()) / size
    gap = (abs(primal - dual) + off) / (q.total * reference)
    alone = not q.linear.any()
    if alone and primal <= gap * q.total * reference:  # g = 0 does better
        return primal / q.total, max(primal, 0.0) / (q.total * reference)
    return primal / q.total, max(gap, share)


def _step(
    q: KinkedProblem, rows: _Rows, state: InteriorIterate, null: Array | None
) -> InteriorIterate:
    """One predictor-corrector step."""
    x, p, m, g = state
    a, c = rows.up - g, rows.down + g
    level = np.append(np.full(len(x) - 1, q.total * q.l2), 0.0)
    miss = rows.y - _scores(q, rows, x) - p + m - rows.bend * g
    lean = _pull(q, rows, g) + q.linear - level * x
    theta = 1.0 / (rows.bend + p / a + m / c)
    solve = _factor(q, rows, theta, level, null)

    def direction(push_p: Array, push_m: Array) -> tuple[Array, Array, Array, Array]:
        goal = miss - push_p / a + push_m / c
        dx = solve(lean + _pull(q, rows, theta * goal))
        dg = theta * (goal - _scores(q, rows, dx))
        return dx, (push_p + p * dg) / a, (push_m - m * dg) / c, dg

    share = float(rows.weight.sum())
    mu = float(rows.weight @ (p * a + m * c)) / (2 * share)
    dx, dp, dm, dg = direction(-p * a, -m * c)
    t, u = _lengths(state, rows, dp, dm, dg, 1.0, q.l2 > 0)
    ahead = (p + t * dp) * (a - u * dg) + (m + t * dm) * (c + u * dg)
    left = float(rows.weight @ ahead) / (2 * share)
    aim = mu * min(1.0, max(left / mu, 0.0) ** 3) if mu > 0 else 0.0
    dx, dp, dm, dg = direction(aim - p * a + dp * dg, aim - m * c - dm * dg)
    t, u = _lengths(state, rows, dp, dm, dg, 0.9995, q.l2 > 0)
    g = np.clip(g + u * dg, np.nextafter(-rows.down, 0), np.nextafter(rows.up, 0))
    tiny = 1e-300
    return InteriorIterate(
        x + t * dx, np.maximum(p + t * dp, tiny), np.maximum(m + t * dm, tiny), g
    )


def _lengths(
    state: InteriorIterate,
    rows: _Rows,
    dp: Array,
    dm: Array,
    dg: Array,
    share: float,
    together: bool,
) -> tuple[float, float]:
    """Longest primal and dual steps that keep p, m and both slacks positive."""

    def longest(value: Array, change: Array) -> float:
        falling = change < 0
        if not falling.any():
            return 1.0
        return min(1.0, share * float(np.min(-value[falling] / change[falling])))

    t = min(longest(state.p, dp), longest(state.m, dm))
    u = min(longest(rows.up - state.g, -dg), longest(rows.down + state.g, dg))
    return (min(t, u), min(t, u)) if together else (t, u)


def _factor(
    q: KinkedProblem, rows: _Rows, theta: Array, level: Array, null: Array | None
) -> Any:
    """Solver of (Aᵀ diag(weight∘θ) A + level) x = v, with one refinement."""
    n = len(q.y)
    h = rows.weight * theta
    M = bordered_gram(q.A, h[:n], q.intercept)
    M.flat[:: len(M) + 1] += level
    M[rows.columns, rows.columns] += h[n:]
    if not q.intercept:
        M[-1, -1] = 1.0
    diagonal = np.diag(M)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    N = M * scale[:, None] * scale
    if null is not None:
        V = np.linalg.qr(null / scale[:, None])[0]
        N += V @ V.T
    for jitter in (1e-15, 1e-13, 1e-11, 1e-9, 1e-6):
        N.flat[:: len(N) + 1] = np.diag(N) + jitter
        factor = cholesky(N)
        if factor is not None:
            break
    else:
        raise np.linalg.LinAlgError("the rows' normal matrix has no factor")

    def once(v: Array) -> Array:
        return scale * np.asarray(linalg.lapack.dpotrs(factor, scale * v)[0])

    def solve(v: Array) -> Array:
        x = once(v)
        x = x + once(v - M @ x)
        if null is not None:
            x = x - null @ (null.T @ x)
        if not q.intercept:
            x[-1] = 0.0
        return x

    return solve


def _null_space(q: KinkedProblem) -> Array | None:
    """Directions that no row sees, where no penalty decides: (d + 1, k) or None."""
    if q.l2 > 0 or (len(q.l1) and q.l1.min() > 0):
        return None
    M = bordered_gram(q.A, q.s / q.total, q.intercept)
    scale = 1 / np.sqrt(np.where(np.diag(M) > 0, np.diag(M), 1.0))
    N = M * scale[:, None] * scale
    if not q.intercept:
        N[-1, -1] = 1.0
    factor = cholesky(N.copy())
    if factor is not None and np.diag(factor).min() > 1e-5:
        return None
    values, V = np.linalg.eigh(N)
    flat = values <= 1e-12 * values.max()
    if not flat.any():
        return None
    return np.linalg.qr(scale[:, None] * V[:, flat])[0]


def _least_squares(q: KinkedProblem, rows: _Rows, null: Array | None) -> Array:
    """Where to start: the least-squares fit, as it costs one step."""
    n = len(q.y)
    theta = np.ones(len(rows.y))
    level = np.append(np.full(q.A.shape[1], q.total * q.l2), 0.0)
    solve = _factor(q, rows, theta, level, null)
    goal = np.concatenate([q.y, np.zeros(len(rows.y) - n)])
    return np.asarray(solve(_pull(q, rows, goal)))


def _polish(
    q: KinkedProblem, rows: _Rows, state: InteriorIterate
) -> InteriorIterate | None:
    """Move onto the face that the slacks show: r = 0 on it, g at a bound off it.

    Both corrections are the smallest ones, so repeated rows share theirs evenly.
    """
    x, p, m, g = state
    a, c = rows.up - g, rows.down + g
    on = np.flatnonzero((p < a) & (m < c))
    d1 = len(x)
    if len(on) + d1 > min(POLISH_SIDE, 5 * d1 + 50):
        return None  # too early to tell
    g = np.where(p >= a, rows.up, np.where(m >= c, -rows.down, g))
    n = len(q.y)
    data, extra = on[on < n], on[on >= n] - n
    block = q.A[data]
    A = np.zeros((len(on), d1))
    A[: len(data), :-1] = block.toarray() if sparse.issparse(block) else block
    if q.intercept:
        A[: len(data), -1] = 1.0
    A[len(data) + np.arange(len(extra)), rows.columns[extra]] = 1.0
    weight = rows.weight[on]
    level = np.append(np.full(d1 - 1, q.total * q.l2), 0.0)
    lean = level * x - _pull(q, rows, g) - q.linear
    miss = rows.y[on] - A @ x
    # Weighted unknowns √s·Δg make the least-norm split the same for s and s copies.
    root = np.sqrt(weight)
    size = float(np.sqrt(q.total))
    K = np.zeros((len(on) + d1, len(on) + d1))
    K[: len(on), :d1] = A * root[:, None]
    K[len(on) :, :d1] = -np.diag(level) / size
    K[len(on) :, d1:] = (A * root[:, None]).T / size
    goal = np.concatenate([miss * root, lean / size])
    try:
        found = np.linalg.lstsq(K, goal, rcond=1e-13)[0]
    except np.linalg.LinAlgError:
        return None
    g[on] += found[d1:] / root
    x = x + found[:d1]
    x[rows.columns[extra]] = 0.0
    return InteriorIterate(x, p, m, np.clip(g, -rows.down, rows.up))
