"""The duality gap as a sum of Fenchel–Young excesses, and a bound of its rounding.

    P(w, b) = mean ℓ(y, z) + Ω(w),   z = Xw + b,   mean a = Σ sᵢaᵢ/Σs

For every u in the domain of ℓ* (with mean u = 0 where b is free) and v = Xᵀ(su)/Σs

    P(w, b) − min P ≤ mean e(z, u) + [Ω(w) + Ω*(−v) + wᵀv].

The choice of u only makes the bound more or less tight. Rounding is
*added*: the number stated is computed + bound, where the bound covers the errors of the
scores (δ), of each vⱼ (εⱼ), of the evaluation of e, and the distance of the floats û
from the exactly feasible point of the theorem. That point is û with its
heavier side shrunk by a share t; e and Ω* are convex in u, so that it costs at most
t·e(z, 0) and moves vⱼ by at most t·Nⱼ‖û‖.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array
from certus.verify.kernel import losses, penalties
from certus.verify.kernel.losses import LossRow, one_hot
from certus.verify.kernel.spaces import TINY, UNIT, Seen, Space, gamma

#: Where a rough look is enough, a repair below this share is charged, not computed.
SKIP = 1e-10
#: Rows processed together, so that intermediate results stay in cache.
PART = 1 << 13


class Problem(NamedTuple):
    """A convex problem and the point to judge; rows of positive weight only."""

    loss: Any
    penalty: Any
    space: Space
    y: Array
    w: Array  # (d,) or (d, k); a penalised intercept is its last entry
    b: Array  # (k,): zeros unless the intercept is free
    free: bool  # whether the intercept is
    dual: Array | None = None  # u, for losses with kinks


class Gap(NamedTuple):
    """P − D ≤ computed + bound, and other results of the pass."""

    computed: float
    bound: float
    primal: float
    z: Array
    u: Array  # the dual point
    slack: float  # share by which u is shrunk until it is exactly feasible
    probe: Array  # scores of the probing direction

    @property
    def stated(self) -> float:
        """The claimed value: never below the true gap."""
        return self.computed + self.bound


class Repair(NamedTuple):
    """A dual point on mean u = 0, as a combination of what is pulled back.

    ``share`` is t of the exactly feasible point near the floats; for a share of one it
    moves u by at most ``moves`` in norm (a number for each score) and adds at most
    ``cost`` to mean e, where that is not e(z, 0). ``moved`` is the share by which the
    repair itself moved slopes that were the dual point.
    """

    natural: Array
    mixture: Array  # (r, k): u = B @ mixture
    share: float
    moves: Any
    cost: float = 0.0
    moved: float = math.inf


def mean(p: Problem, a: Array) -> float:
    """Σ s·a/Σs; rows of a are summed over their columns.

    NumPy adds contiguous numbers pairwise: the error is below 40 units of mean |a|.
    """
    return float(means(p, a).sum())


def means_of(p: Problem, f: Callable[[slice], Array]) -> Array:
    """As :func:`mean`, of each row of f(part): what f needs stays in cache."""
    sums = []
    for i in range(0, p.space.n, PART):
        each = np.ascontiguousarray(f(slice(i, i + PART)))
        each = each if p.space.even else each * p.space.s[i : i + PART]
        sums.append(np.sum(each, axis=-1))
    total = p.space.n if p.space.even else p.space.total
    return np.asarray(np.sum(np.ascontiguousarray(np.transpose(sums)), axis=-1) / total)


def columns(w: Array) -> Array:
    """Coefficients with a column for each score."""
    return w if w.ndim == 2 else w[:, None]


def means(p: Problem, a: Array) -> Array:
    """As :func:`mean`, for every column."""
    return means_of(p, lambda rows: columns(a)[rows].T)


def excess_of(p: Problem, z: Array, q: Array) -> tuple[float, float]:
    """Mean e(z, q), and the mean of what evaluating it loses in units of 2⁻⁵³."""
    row = losses.row_of(p.loss)

    def each(rows: slice) -> Array:
        both = row.excess(p.loss, p.y[rows], z[rows], q[rows])
        return np.vstack([columns(part).T for part in both])

    found, noise = means_of(p, each).reshape(2, -1).sum(axis=1)
    return float(found), float(noise)


def norm(p: Problem, a: Array) -> float:
    """The root of mean a² within 1e-11 of it, safe from under- and overflow."""
    if p.space.even:
        # Too short for BLAS to wake its threads.
        parts = np.split(a.ravel("K"), range(PART, a.size, PART))
        square = float(np.sum([part @ part for part in parts])) / len(a)
    else:
        square = float(means_of(p, lambda rows: np.square(columns(a)[rows].T)).sum())
    if 1e-280 < square < 1e280:
        return math.sqrt(square)
    unit = float(np.abs(a).max(initial=0.0))
    if not 0 < unit < math.inf:
        return unit
    return unit * math.sqrt(mean(p, np.square(a / unit)))


# -- repairs ----------------------------------------------------------------------


def _companions(row: LossRow, p: Problem, rows: slice, u: Array) -> list[Array]:
    """What is pulled back beside u so that the repair is a linear combination."""
    y = p.y[rows]
    if not p.free:
        return []
    match row.repair:
        case "centre":
            return [np.ones(len(y))]
        case "shrink":
            return [np.maximum(u, 0.0)]
        case "rescale":
            return [row.rest(p.loss, y)]
    return [np.ones(len(y)), *one_hot(y, p.loss.n_classes).T]


def _imbalance(p: Problem, u: Array) -> float:
    """The share t by which the heavier side is shrunk until mean u = 0 exactly."""
    size = means_of(p, lambda rows: np.abs(columns(u)[rows].T))
    off = np.abs(means(p, u)) + 40 * UNIT * size
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(off < size / 2, 2 * off / (size - off), size > 0)
    return float(np.max(share))


def _sizes(p: Problem, u: Array) -> Array:
    return np.array([norm(p, column) for column in columns(u).T])


def _untouched(row: LossRow, p: Problem, q: Array) -> Repair:
    k = q.shape[1] if q.ndim == 2 else 1
    share = (k + 8) * UNIT if row.repair == "mix" else 0.0  # rows that add up to one
    return Repair(q, np.eye(k), share, 1.0, moved=0.0)


def _centred(row: LossRow, p: Problem, q: Array) -> Repair:
    middle = means(p, q)
    q -= middle if q.ndim == 2 else middle[0]
    mixture = np.vstack([np.eye(len(middle)), -middle])
    return Repair(q, mixture, _imbalance(p, q), _sizes(p, q))


def _shrunk(row: LossRow, p: Problem, q: Array) -> Repair:
    def slope(rows: slice) -> Array:
        return row.slope_of(p.loss, p.y[rows], q[rows])

    sides = np.array([[1.0], [-1.0]])
    up, down = means_of(p, lambda rows: np.maximum(sides * slope(rows), 0.0))
    factor = float(min(up, down) / max(up, down)) if max(up, down) > 0 else 1.0
    for i in range(0, len(q), PART):
        rows = slice(i, i + PART)
        side = slope(rows) > 0 if up > down else slope(rows) < 0
        rest = row.rest(p.loss, p.y[rows])
        q[rows] = np.where(side, factor * q[rows] + (1 - factor) * rest, q[rows])
    mixture = [[1.0], [factor - 1]] if up > down else [[factor], [1 - factor]]
    u = slope(slice(None))
    share = _imbalance(p, u)
    return Repair(q, np.array(mixture), share, _sizes(p, u), moved=1 - factor)


def _rescaled(row: LossRow, p: Problem, m: Array) -> Repair:
    """M ← m·mean(rest)/mean m; a relative change τ of m costs τ(e + 2(m + μ))."""
    goal, found = mean(p, row.rest(p.loss, p.y)), mean(p, m)
    if not 0 < found < math.inf:
        return Repair(m, np.array([[1.0], [0.0]]), math.inf, math.inf)
    factor = goal / found
    q = m * factor
    share = (abs(mean(p, q) - goal) / goal if goal > 0 else 0.0) + 96 * UNIT
    # u = m − rest, so factor·m − rest = factor·u + (factor − 1)·rest; Gamma: 1 − ρ.
    sign = 1.0 if row.slope_of(p.loss, np.ones(1), np.full(1, 2.0))[0] > 0 else -1.0
    mixture = np.array([[factor], [sign * (factor - 1)]])
    cost, moved = 2 * (1 + factor) * found, abs(1 - factor)
    return Repair(q, mixture, share, norm(p, q), cost, moved)


def _mixed(row: LossRow, p: Problem, Q: Array) -> Repair:
    """Q ← (1 − t)Q + t·1qᵀ with the smallest t that leaves q ≥ 0."""
    k = p.loss.n_classes
    wanted, found = means(p, one_hot(p.y, k)), means(p, Q)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = float(np.max(np.where(found > 0, 1 - wanted / found, 0.0), initial=0.0))
    q = np.maximum(wanted - (1 - t) * found, 0.0)
    q = q / q.sum() if q.sum() > 0 else np.full(k, 1 / k)
    mixture = np.vstack([(1 - t) * np.eye(k), t * q, -t * np.eye(k)])
    Q = (1 - t) * Q + t * q
    found = means(p, Q)
    off = np.abs(found - wanted) + 96 * UNIT * np.maximum(found, wanted)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = float(np.max(np.where(off > 0, off / found, 0.0), initial=0.0))
    return Repair(Q, mixture, left + (k + 8) * UNIT, 2.0, moved=t)


_REPAIRS: dict[str, Callable[[LossRow, Problem, Array], Repair]] = {
    "centre": _centred,
    "shrink": _shrunk,
    "rescale": _rescaled,
    "mix": _mixed,
}


# -- the gap ----------------------------------------------------------------------


def look(p: Problem, probe: Array | None) -> tuple[Seen, Array, Repair]:
    """One pass over X: its results, the scores, and a feasible dual point.

    ``probe`` is a direction whose scores are wanted too, for a fingerprint: the last
    column of those seen.
    """
    row, w, b, k = losses.row_of(p.loss), columns(p.w), p.b, p.b.size
    natural = np.empty((p.space.n, k) if p.w.ndim == 2 else p.space.n)
    if probe is not None:
        extra = np.append(probe, 0.0) if len(w) > len(probe) else probe
        w, b = np.column_stack([w, extra]), np.append(b, 0.0)

    def vectors(rows: slice, z: Array) -> Array:
        y, score = p.y[rows], z[:, :k] if p.w.ndim == 2 else z[:, 0]
        if p.dual is None:
            q = row.natural(p.loss, y, score)
        else:
            q = row.natural_of(p.loss, y, p.dual[rows])
        natural[rows] = q
        u = row.slope_of(p.loss, y, q)
        return np.vstack([columns(u).T, *_companions(row, p, rows, u)]).T

    seen = p.space.look(w, b, vectors, k)
    z = seen.z[:, :k] if p.w.ndim == 2 else seen.z[:, 0]
    return seen, z, repaired(row, p, natural)


def repaired(row: LossRow, p: Problem, q: Array) -> Repair:
    """The dual point moved onto mean u = 0, where the intercept is free."""
    return (_REPAIRS[row.repair] if p.free else _untouched)(row, p, q)


def measure(p: Problem, probe: Array | None = None) -> Gap:
    """The gap of a penalised problem, with its rounding."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _assemble(losses.row_of(p.loss), p, *look(p, probe), probe is not None)


def pulled_back(p: Problem, seen: Seen, found: Repair, n: int) -> tuple[Array, Array]:
    """V of the repaired dual point, and the error of each of its entries."""
    v = (seen.V @ found.mixture).reshape(p.w.shape)
    size = _sizes(p, seen.B) @ np.abs(found.mixture)
    slip = gamma(p.space.depth + 64) * size + 2 * found.share * np.asarray(found.moves)
    # Products su may vanish before they meet an entry, at most N/√(s_min/Σs) in size.
    slip = slip + n * TINY / math.sqrt(p.space.s.min()) / math.sqrt(p.space.total)
    error = np.multiply.outer(p.space.norms, slip).reshape(p.w.shape)
    lost = 2 * n * TINY * max(1.0, 1 / p.space.total)
    return v, np.asarray(error + 4 * UNIT * np.abs(v) + lost)


def _assemble(
    row: LossRow, p: Problem, seen: Seen, z: Array, found: Repair, probed: bool
) -> Gap:
    """Scale the dual point into Ω*'s domain and add up all excesses and errors."""
    omega = penalties.row_of(p.penalty)
    v, error = pulled_back(p, seen, found, len(z))
    kappa = omega.reach(p.penalty, v, error)
    q, sharp = found.natural, omega.reach(p.penalty, v, 0 * error)
    if kappa < 1.0:
        q, v = kappa * q + (1 - kappa) * row.rest(p.loss, p.y), kappa * v
        error = kappa * error + 4 * UNIT * np.abs(v) + TINY
    short = 1.0 - omega.reach(p.penalty, v, error)
    share = found.share + short
    left = omega.excess(p.penalty, p.w, v, error + short * np.abs(v))
    u = row.slope_of(p.loss, p.y, q)
    slope = None if p.dual is not None else seen.B[:, : columns(u).shape[1]]
    bound = steep(p, z, u, score_error(p, z, u), slope)
    rounds = gamma(len(z) + 24)
    each = means_of(p, lambda rows: columns(row.value(p.loss, p.y[rows], z[rows])).T)
    level = float(each.sum()) * (1 + rounds + 16 * UNIT)
    moved = found.moved + (1 - kappa)
    if p.space.rough and p.dual is None and moved <= SKIP:
        # Slopes that hardly moved: e is 0 at them, and convex on the way to u = 0.
        excess = noise = 0.0
        share += moved
    else:
        excess, noise = excess_of(p, z, q)
    bound += UNIT * noise + rounds * excess + (left.bound - left.value)
    bound += share * _cost(row, p, z, found, level, excess)
    computed = excess + left.value
    # What the error of v costs in κ is rounding: by convexity (1 − κ/κ₀)·e(z, 0).
    lost = min((1 - kappa / sharp) * level, computed) if kappa < sharp else 0.0
    computed, bound = computed - lost, bound + lost
    if not math.isfinite(computed):
        computed, bound = math.inf, 0.0
    bound = bound if math.isfinite(bound) else math.inf
    primal = level + omega.value(p.penalty, p.w)
    probe = seen.z[:, -1] if probed else np.zeros(0)
    return Gap(computed, bound, primal, z, u, share, probe)


def _cost(
    row: LossRow, p: Problem, z: Array, found: Repair, level: float, excess: float
) -> float:
    """What a share of one on the way to the exactly feasible point adds to mean e."""
    if row.repair == "rescale" and p.free:
        return max(level, found.cost + excess)
    if row.repair == "mix":
        spread = z.max(axis=1) - z.min(axis=1) + math.log(z.shape[1]) + 1
        return max(level, mean(p, spread))
    return level


def score_error(p: Problem, z: Array, u: Array) -> float:
    """δ: a distance within which there are scores at which e is evaluated exactly."""
    own = float(np.linalg.norm(p.space.score_error(columns(p.w), p.b)))
    return own + evaluation_error(p, z, u)


def evaluation_error(p: Problem, z: Array, u: Array) -> float:
    """The part of δ that evaluating e at given scores costs."""
    numbers = losses.row_of(p.loss).takes
    size = norm(p, z) + norm(p, u)
    size += norm(p, p.y) if numbers in ("numbers", "amounts") else 0.0
    # Constants in the units of a score; others would swamp small targets.
    names = ("threshold", "epsilon", "margin")
    size += sum(abs(float(getattr(p.loss, name, 0.0))) for name in names)
    size += 1.0 if numbers == "signs" else 0.0
    return 6 * UNIT * size + TINY


def steep(
    p: Problem, z: Array, u: Array, delta: float, slope: Array | None = None
) -> float:
    """How much e may change with scores that are off by δ in the mean square."""
    row = losses.row_of(p.loss)
    if row.bend == "kink":
        low, high = row.domain(p.loss, p.y[:1])  # as wide for every target
        return float(np.max(high - low)) * delta
    if slope is None:
        slope = row.slope(p.loss, p.y, z)
    slope = slope.reshape(np.shape(u))
    # The slopes themselves are rounded, by less than 8 units of their size.
    size = norm(p, slope - u) + 8 * UNIT * (norm(p, slope) + norm(p, u))
    if row.bend == "smooth":
        return size * delta + row.smooth(p.loss) * delta * delta / 2
    curve = row.curvature(p.loss, p.y, z)
    least = float(p.space.s.min()) / p.space.total
    if not delta < 0.5 * math.sqrt(least):
        return math.inf
    top = float(np.max(curve, initial=0.0))
    size += 8 * UNIT * row.parts(p.loss) * norm(p, curve)
    return size * delta + top * delta * delta
