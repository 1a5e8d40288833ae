"""Matrix factorisation: what is left to gain, from the ratings and the factors.

The problem is not convex, so the claim that can be proved cheaply is "no half-step
gains much". For a fit by exact half-steps the claim states the most that another one
could gain, for a stochastic fit the least. Level "full" adds a bound on the distance to
the best of all factorisations, by weak duality of the convex relaxation (nuclear norm),
and repeats the run.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Status, Strength
from certus.evidence import RatingsWitness
from certus.typing import Array, CompressedMatrix, Fit
from certus.verify import climbing, data, stating
from certus.verify import deciding as bd
from certus.verify.blocks import over_blocks
from certus.verify.covariance import eigen
from certus.verify.deciding import TINY, Number, U, gamma
from certus.verify.half_steps import EXACT, bracket, filled, least, solve, step
from certus.verify.rating_entries import Entries, Point, factors, read
from certus.verify.stating import Checked, Given

EXPLICIT = "½Σ s·(x − μ − b − c − w·z)² + ½Σ λ_w‖w‖² + λ_z‖z‖² + λ_b(b² + c²)"
IMPLICIT = "Σ (1 + α·count)·(p − w·z)² + λ(‖W‖² + ‖Z‖²)"
RIDGE = "with the items fixed, each user has a ridge problem, and vice versa: "
RIDGE += "weak duality bounds its excess, as a share of the objective"
RELAXED = "weak duality of the convex relaxation, ½(λ_w‖W‖² + λ_z‖Z‖²) ≥ "
RELAXED += "√(λ_wλ_z)‖WZᵀ‖_*: residuals of spectral norm √(λ_wλ_z) are feasible"
LOCAL = ("the problem is not convex, so a better factorisation may exist",)
STEPS = ("stochastic steps of a fixed size do not reach the minimum",)
#: Cells up to which a fully observed matrix is decomposed at level "full".
DENSE = 4_000_000
#: Entries below which a second thread costs more than it gains.
ALONE = 50_000
#: Without a target, a bound above this share of the objective is made tighter.
ROUGH = 0.1
#: Largest rise of the objective in a half-step that is repeated, as a share of it.
RISE = 1e-9
#: Squares below this may have vanished.
SMALL = TINY / U**2
NAMES = ("user_factors_", "item_factors_", "user_biases_", "item_biases_")


class Statement(NamedTuple):
    """What a factorisation minimises, and how much a half-step may still gain."""

    n_components: int
    penalties: tuple[float, float, float]  # of users, of items, of biases
    tol: float | None
    fix: str
    stochastic: bool = False
    biases: bool = False
    by_ratings: bool = False  # penalties count once for each rating
    count_weight: float | None = None


def _explicit(model: Fit) -> Statement:
    w, sgd = float(model.alpha), str(model.solver) == "sgd"
    others = (model.alpha_items, model.alpha_biases)
    z, b = (w if p is None else float(p) for p in others)
    tol = None if sgd or model.tol is None else float(model.tol)
    fix = f"raise max_iter (now {model.max_iter})" + ", or change learning_rate" * sgd
    by_ratings = str(model.penalty_scale) == "ratings"
    found = (int(model.n_components), (w, z, b), tol, fix, sgd)
    return Statement(*found, bool(model.biases), by_ratings)


def _implicit(model: Fit) -> Statement:
    tol = None if model.tol is None else float(model.tol)
    penalty, weight = float(model.alpha), float(model.count_weight)
    fix = f"raise max_iter (now {model.max_iter})"
    three = (penalty, penalty, 0.0)
    return Statement(int(model.n_components), three, tol, fix, count_weight=weight)


READERS: dict[str, stating.Reader] = {
    "MatrixFactorization": _explicit,
    "ImplicitALS": _implicit,
}


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge factors by the gain of a further half-step; more at level "full"."""
    witness, X, y, weights, level, _ = given
    numbers = np.array([*stated.penalties, stated.count_weight or 0.0])
    if not np.all((numbers >= 0) & (numbers < np.inf)):
        raise ValueError("Penalties and count_weight must be finite and 0 or more.")
    matrix, s = read(model, X, y, weights, stated.count_weight is not None)
    rated = np.diff(matrix.indptr).astype(np.float64)
    marks = data.fingerprint(matrix, rated, np.full(len(rated), s.sum() / len(rated)))
    run = witness if isinstance(witness, RatingsWitness) else RatingsWitness()
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is refused
        found = Evaluated(model, stated, matrix, s)
        claims = _measured_claims(found)
        if not found.finite:
            lost = "the factors or residuals are not finite"
            claims.insert(0, bd.refused("half_step_gain", lost, stated.fix))
            return claims, Status.DIVERGED, marks
        judge = _least if stated.stochastic else _most
        claims.insert(0, judge(found, run, level))
        fault = _fault(model, stated, matrix, s, found.point)
        if fault:
            fix = "pass the training data, or fit again"
            claims.insert(0, bd.proved("parts", Number(1.0), 0.0, fault, fix=fix))
        if level == "full" and stated.count_weight is None:
            claims.append(_global_claim(found))
        if level == "full" and not stated.stochastic and not fault and run.n_iter:
            claims.append(_replay_claim(found, run))
    status = bd.verdict(claims, ("monotone",))
    if stated.stochastic and run.diverged:
        status = Status.DIVERGED
    elif claims[0].strength is Strength.MEASURED:
        status = Status.UNDECIDED
    return claims, status, marks


class Evaluated:
    """A problem at the model's point: objective, residuals, sides and gradients."""

    def __init__(self, model: Fit, stated: Statement, matrix: Any, s: Array) -> None:
        self.stated, self.point = stated, factors(model, NAMES, matrix.shape)
        items = np.bincount(matrix.indices, None, matrix.shape[1])
        self.counts = np.diff(matrix.indptr), items
        own = [stated.penalties[2]] * stated.biases
        K, two = self.point[0].shape[1], stated.penalties[:2]
        ridge = [np.array([p] * K + own) for p in two]
        scale = [np.maximum(n, 1.0) ** stated.by_ratings for n in self.counts]
        if stated.count_weight is None:
            self.objective = EXPLICIT
            values = matrix.data - float(data.fitted(model, "mean_", ()))
        else:
            self.objective, s = IMPLICIT, stated.count_weight * matrix.data
            values = np.ones(matrix.nnz)
        problem = Entries(
            matrix, s, values, ridge, scale, stated.count_weight is not None
        )
        self.problem, self.e = problem, problem.errors(self.point)
        self.value, self.rounding = problem.value(self.point, self.e)
        self.sides = [problem.side(k, self.point) for k in (0, 1)]
        self.rows = [problem.rows(k, self.point) for k in (0, 1)]
        slope = problem.slopes(self.e)

        def gradient(one: slice) -> Array:
            return self.sides[one.start].gradient(self.rows[one.start], slope)

        self.slopes = list(over_blocks(gradient, 2, 1, alone=len(slope) < ALONE))
        sizes = [self.value, self.rounding, *(float(g.sum()) for g in self.slopes)]
        self.finite = bool(np.isfinite(sizes).all())

    def share(self, gain: float, sure: bool = True) -> float:
        """A gain as a share of the objective, less its rounding or plus it.

        A gain is at most everything; where squares vanish nothing else is known.
        """
        value = self.value - self.rounding if sure else self.value + self.rounding
        if value > SMALL:
            return min(1.0, self.problem.twice * gain / value)
        zero = not self.e.any() and not any(part.any() for part in self.point)
        return 0.0 if zero or (gain == 0 and not sure) else 1.0


def _fault(model: Fit, stated: Statement, matrix: Any, s: Array, point: Point) -> str:
    """Why the predictions belong to another model than the objective, if they do."""
    K = point[0].shape[1]
    if stated.n_components != K:
        return f"there are {K} factors, and n_components is {stated.n_components}"
    if stated.count_weight is None:
        mean, size = float(data.fitted(model, "mean_", ())), np.abs(matrix.data).max()
        expected = float(s @ matrix.data / s.sum()) if stated.biases else 0.0
        if not abs(mean - expected) <= 1e-6 * max(1e-300, size):
            what = "the mean of these ratings" if stated.biases else "zero"
            return f"mean_ is {mean:.6g}, not {what}"
    if not stated.biases and any(np.any(bias) for bias in point[2:]):
        return "the model has biases, but biases=False"
    for name in ("users_", "items_"):
        ids = np.asarray(getattr(model, name))
        if ids.dtype.kind in "iufUS" and np.any(ids[1:] <= ids[:-1]):
            return f"{name} is not sorted"
        if ids.dtype.kind == "O" and len(set(ids.tolist())) < len(ids):
            return f"{name} holds an id twice"
    seen = model.seen_
    same = np.array_equal(seen.indptr, matrix.indptr)
    same = same and np.array_equal(seen.indices, matrix.indices)
    return "" if same else "the model's record of known ratings differs"


# -- claims -----------------------------------------------------------------------


def _most(found: Evaluated, _: object, level: str) -> Claim:
    """The most that an exact half-step could gain; the exact gain at level "full"."""
    tol = found.stated.tol
    bar = ROUGH if tol is None else tol

    def gains(one: slice) -> tuple[float, Number]:
        side, g = found.sides[one.start], found.slopes[one.start]
        sizes = found.problem.bound(one.start, found.e, found.point)
        for steps in (EXACT,) if level == "full" else (0, 1, 4, EXACT):
            gain = bracket(side, g, sizes, step(side, g, steps))
            low, high = (found.share(float(x.sum()), False) for x in gain[:2])
            most = found.share(float((gain.high + gain.allowance).sum()))
            most *= 1 + gamma(len(g) + 8)
            if most <= bar or low > bar:  # decided
                break
        return low, Number(high, most - high)

    lows, highs = zip(*over_blocks(gains, 2, 1, alone=len(found.e) < ALONE))
    words = {"objective": found.objective, "theorem": RIDGE, "assumptions": LOCAL}
    asked = "" if tol is None else f" (asked for {tol:.0e})"
    detail = "solving all users or all items again gains {} {:.1e}" + asked
    if not all(ridge.all() for ridge in found.problem.ridge):
        about = detail.format("about", max(lows))
        return bd.measured("half_step_gain", max(lows), about, target=tol, **words)
    worst = max(highs, key=sum)
    detail, fix = detail.format("at most", sum(worst)), found.stated.fix
    return bd.proved("half_step_gain", worst, tol, detail, fix=fix, **words)


def _least(found: Evaluated, run: RatingsWitness, level: str) -> Claim:
    """The least that solving all users exactly would gain."""
    side, g = found.sides[0], found.slopes[0]
    sizes = found.problem.bound(0, found.e, found.point)
    gain = least(side, g, sizes)
    if level == "full":
        gain = bracket(side, g, sizes, step(side, g, EXACT))
    low, lost = (found.share(float(x.sum()), False) for x in (gain.low, gain.allowance))
    low = low * (1 - gamma(len(g) + 8)) if found.value > SMALL else 0.0
    detail = f"solving all users exactly would lower the objective by {low:.1e} or more"
    if run.diverged:
        detail = f"the objective diverged and the best epoch was kept; {detail}"
    return Claim(
        *("remaining_gain", Strength.PROVED, low),
        objective=found.objective,
        theorem="the gain of one step along d, at most that of the exact solve",
        assumptions=STEPS,
        allowance=lost,
        detail=detail,
        fix="lower learning_rate" if run.diverged else "",
    )


def _measured_claims(found: Evaluated) -> list[Claim]:
    """The objective; and the gradient times the parameters, as a share of it."""
    problem = found.problem
    s = problem.weights + problem.everywhere
    zero = 0.5 * problem.twice * float(s @ np.square(problem.values))
    share = found.value / zero if zero > 0 else 0.0
    detail = f"objective {found.value:.6g} over {len(s):,} entries, "
    detail += f"{share:.3g} of the objective with all factors zero"
    slope, size = (
        bd.length(np.concatenate([part.ravel() for part in both]))
        for both in (found.slopes, found.rows)
    )
    value = problem.twice * slope * size / found.value if found.value > 0 else 0.0
    told = f"the gradient times the factors is {value:.1e} of the objective"
    why = "at a local minimum the gradient is zero; the problem is not convex"
    stationary = bd.measured("stationarity", value, told, theorem=why)
    return [bd.measured("objective", found.value, detail), stationary]


# -- level "full" -----------------------------------------------------------------


def _replay_claim(found: Evaluated, run: RatingsWitness) -> Claim:
    """Exact half-steps from the recorded start: none may raise the objective."""
    problem, point = found.problem, _start(found, run)
    levels = []
    for turn in range(2 * int(run.n_iter or 0) + 1):
        e, k = problem.errors(point), turn % 2
        levels.append(_level(*problem.value(point, e)))
        side, x = problem.side(k, point), problem.rows(k, point)
        move, _ = solve(side, side.gradient(x, problem.slopes(e)))
        point = problem.moved(point, k, x - move)
    apart = abs(levels[-1].value - _level(found.value, 0.0).value)
    words = f"−log of  {found.objective}, after each half-step"
    return climbing.repeated(levels, apart, words, RISE, limit=np.inf)


def _level(value: float, rounding: float) -> Number:
    """−log of an objective, so that gains and losses are shares of it."""
    if value <= SMALL:
        return Number(-math.log(SMALL))
    share, log = rounding / value, math.log(value)
    return Number(-log, share * (1 + share) + 2 * U * abs(log))


def _start(found: Evaluated, run: RatingsWitness) -> Point:
    """Where the run began: users at zero, items as recorded or drawn from the seed."""
    W, Z, b, c = (np.zeros_like(part) for part in found.point)
    start: Any = run.start
    bias: Any = run.start_bias if found.stated.biases else None
    if start is None:
        random = np.random.default_rng(int(run.seed or 0))
        start = random.standard_normal(Z.shape) * float(run.init_std or 0.0)
        start[found.counts[1] == 0] = 0.0
    bias = c if bias is None else bias
    if np.shape(start) != Z.shape or np.shape(bias) != c.shape:
        raise ValueError("The recorded start does not match the model. Fit it again.")
    return W, np.asarray(start, dtype=float), b, np.asarray(bias, dtype=float)


def _global_claim(found: Evaluated) -> Claim:
    """How far above the best of all factorisations the objective can be."""
    best, rounding, strength, why = _lower_bound(found)
    if best is None:
        return bd.refused("global_gap", why, "")
    size = 0.5 * float(found.problem.weights @ np.square(found.problem.values))
    above, size = max(found.value - best, 0.0), size * (1 - gamma(len(found.e) + 8))
    gap = Number.share(above, rounding + found.rounding, size)
    detail = f"no factorisation is better by more than {gap.most:.1e} of ½Σ s(x − μ)²"
    claim = bd.proved("global_gap", gap, None, detail, theorem=why)
    return replace(claim, strength=strength)


def _lower_bound(found: Evaluated) -> tuple[float | None, float, Strength, str]:
    """Lower bound of every factorisation's objective; its rounding, strength, basis."""
    problem, stated = found.problem, found.stated
    places, s, v = problem.places, problem.weights, problem.values
    (n, m), (w, z, b) = places.shape, stated.penalties
    whole = places.nnz == n * m <= DENSE and np.ptp(s) == 0
    if whole and not stated.biases and not stated.by_ratings:
        sizes = np.linalg.svd(v.reshape(n, m), compute_uv=False)
        bar, kept = np.sqrt(w * z) / s[0], np.zeros(len(sizes))
        kept[: stated.n_components] = np.maximum(
            sizes[: stated.n_components] - bar, 0.0
        )
        best = s[0] * float(np.sum(0.5 * (sizes - kept) ** 2 + bar * kept))
        off = gamma(16 * max(n, m)) * s[0] * float(sizes.sum()) * (sizes[0] + bar)
        why = "the minimum is given by the soft-thresholded singular values (SVD)"
        return best, off, Strength.PROVED, why
    if w * z == 0 or (stated.biases and b == 0):
        why = "no bound is known without a penalty on every part"
        return None, 0.0, Strength.REFUSED, why
    u = -s * found.e  # any numbers are a dual point, once they are scaled
    users = np.repeat(np.arange(n), found.counts[0])
    scale = np.sqrt(w * z * problem.scale[0][users] * problem.scale[1][places.indices])
    norm, sure = spectral_norm(filled(places, u / scale))
    slope, curve = float(u @ v), float(u @ (u / s))
    size = float(np.abs(u) @ np.abs(v)) + curve
    for side, rho in zip(found.sides, problem.scale) if stated.biases else ():
        curve += float(np.sum(side.sums(u) ** 2 / rho)) / b
        size += 2 * float(np.sum(side.sums(np.abs(u)) ** 2 / rho)) / b
    t = 1.0 if curve <= 0 else slope / curve
    t = max(0.0, min(t, (1 - 1e-14) / norm if norm > 0 else t))
    off = gamma(places.nnz + 32) * (t + t * t) * size
    strength = Strength.PROVED if sure else Strength.MEASURED
    return t * slope - 0.5 * t * t * curve, off, strength, RELAXED


def spectral_norm(A: CompressedMatrix) -> tuple[float, bool]:
    """An upper bound of σ_max of a sparse matrix, and whether it is proved."""
    if min(A.shape) <= 2000:
        gram = (A.T @ A if A.shape[1] <= A.shape[0] else A @ A.T).toarray()
        values, _, off = eigen(gram)
        off += gamma(sum(A.shape) + 8) * float(np.sum(A.data**2))
        return float(np.sqrt(max(float(values[0]), 0.0) + off)) * (1 + 16 * U), True
    start = np.ones(min(A.shape))
    top = sparse.linalg.svds(A, k=1, v0=start, return_singular_vectors=False)
    return float(top[0]), False
