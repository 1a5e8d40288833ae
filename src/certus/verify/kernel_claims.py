"""The claims about kernel machines f = Σⱼ cⱼ k(·, xⱼ), whose coefficients are duals.

    P(f, b) = mean ℓ(y, f(x) + b) + ½λ‖f‖²,      uᵢ = −λΣs·cᵢ/sᵢ

Moved into its domain, u gives other coefficients c', and the gap is a sum without
cancellation: mean e(z, u) + ½λ(c − c')ᵀK(c − c'). Kernel values are bounded by ``top``
and known up to ``error`` each; a sum of m of them loses γ_m·top·Σ|c| more.

Ridge without a penalty claims the backward error of K c = y. A hard margin claims the
gap of a hinge, or is refused with two convex combinations that coincide. The perceptron
claims Novikov's bound on its mistakes, with the margin that it found.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status
from certus.evidence import KernelWitness
from certus.objectives import terms as t
from certus.typing import Array
from certus.verify import deciding, online
from certus.verify import gram as kernels
from certus.verify.deciding import Number, proved
from certus.verify.gram import GramSums
from certus.verify.kernel import gap, losses
from certus.verify.kernel.gap import Problem, Repair, norm
from certus.verify.kernel.reference import least_constant
from certus.verify.kernel.spaces import TINY, UNIT, Space, gamma

#: Squared distance, in units of the largest k(x, x), at which two points coincide.
COINCIDE = 1e-12
#: Largest distance of a coefficient from a count, and of a ratio from its limit.
EXACT = 1e-9
INTERPOLATED = deciding.BACKWARD._replace(
    theorem="the coefficients solve (K + E)c = y + e exactly with "
    "‖E‖ ≤ value·n·max k and ‖e‖ ≤ value·‖y‖"
)
ONE_CLASS = deciding.GAP._replace(
    theorem="weak duality: P(f, b) − min P ≤ P(f, b) − D(u) for every feasible u; as a "
    "share of |min P|"
)


class Statement(NamedTuple):
    """Σ sℓ(y, f(x) + b) + ½·level·‖f‖², once or for several targets."""

    loss: Any
    levels: tuple[float, ...]  # one, or one for each target; 0: no penalty
    kernel: Any  # its name, function or term, as the constructor takes it
    gamma: Any
    degree: float
    coef0: float
    target: str = "numbers"  # | "signs" | "one_vs_rest" | "one_vs_one"
    free: bool = True
    class_weight: Any = None
    class_counts: str = "rows"
    class_weight_on: str = "rows"
    weighted_gamma: bool = False  # whether weights count as repetitions in "scale"
    perceptron: float | None = None  # the constant beside its kernel, if it is one
    nu: float | None = None  # share of the rows outside, if there is but one class
    options: dict[str, Any] | None = None  # for a function that takes two rows
    tol: float = 1e-6
    fix: str = ""


class Machine(NamedTuple):
    """One problem of a kernel machine: its rows among all, and coefficients on all."""

    problem: Problem
    rows: Array
    level: float  # λ·Σs
    c: Array
    b: float


class Case(NamedTuple):
    """What is judged: rows of positive weight, and the machines on them."""

    kernel: Any
    X: Any
    machines: list[Machine]
    stated: Statement
    lack: float  # the multiple of I that makes a matrix of unknown sign a kernel

    def sums(self, columns: list[Array]) -> GramSums:
        """K·c for each column."""
        return kernels.sums(self.kernel, self.X, columns, self.lack)

    @property
    def kernel_text(self) -> str:
        """The kernel as an objective writes it."""
        more = f",  K + {self.lack:.0e}·I for K" if self.lack > 0 else ""
        return f"k = {kernels.text_of(self.kernel)}{more}"


def judge(
    case: Case, witness: KernelWitness, kept: Array
) -> tuple[list[Claim], Status]:
    """The claims about a machine; ``kept`` says which rows have a positive weight."""
    if case.stated.perceptron is not None:
        return perceptron(case)
    if case.stated.nu is not None:
        return one_class(case, case.stated.nu)
    hard = not max(case.stated.levels) > 0
    if hard and not isinstance(case.stated.loss, t.Hinge):
        return interpolation(case)
    refusal = hulls_meet(case, witness.hulls, kept) if hard else None
    if refusal is not None:
        return [refusal], Status.NO_MINIMISER
    return _gap(case, hard)


def _gap(case: Case, hard: bool) -> tuple[list[Claim], Status]:
    """The gap of every problem; the worst counts."""
    stated, k = case.stated, len(case.machines)
    parts = [carried(m) for m in case.machines] if hard else case.machines
    duals, found = [dual_of(m) for m in parts], []
    sums = case.sums([*(m.c for m in parts), *(d for _, d in duals)])
    for i, (m, dual) in enumerate(zip(parts, duals)):
        z, apart = sums.Z[:, i], sums.Z[:, k + i]
        if hard:
            m, base = at_margin(case.machines[i], m, z, sums)
        else:
            base = least_constant(m.problem)
        number = Number.share(*measure(m, *dual, z, apart, sums), base)
        found.append(Number(math.inf) if hard and not base > 0 else number)
    words = deciding.MARGIN if hard else deciding.GAP
    worst = deciding.worst_of(found, stated.tol)
    more = (stated.tol, _describe(case, worst), stated.fix, k)
    claim = deciding.claim_of(words, found[worst], *more)
    return [claim], deciding.status_of(claim)


def _describe(case: Case, worst: int) -> str:
    stated, m = case.stated, case.machines[worst]
    text, score = "½‖f‖²  with y·(f(x) + b) ≥ 1", ""
    if m.level > 0:
        text = losses.row_of(stated.loss).text.format(**stated.loss._asdict())
        text += f" + ½·{m.level / m.problem.space.total:.4g}·‖f‖²"
        score = ",  z = f(x) + b" if stated.free else ",  z = f(x)"
    return f"{text}{score},  {case.kernel_text}"


def dual_of(m: Machine) -> tuple[Repair, Array]:
    """The feasible dual point near the coefficients, and c − c' on all rows."""
    p, row = m.problem, losses.row_of(m.problem.loss)
    q = row.natural_of(p.loss, p.y, -m.level * m.c[m.rows] / p.space.s)
    found = gap.repaired(row, p, q)
    u = row.slope_of(p.loss, p.y, found.natural)
    apart = m.c.copy()
    apart[m.rows] += p.space.s * u / m.level
    return found, apart


def measure(
    m: Machine, found: Repair, d: Array, z: Array, apart: Array, sums: GramSums
) -> tuple[float, float]:
    """The gap and its rounding; d = c − c', ``z`` = Kc and ``apart`` = Kd."""
    p, row = m.problem, losses.row_of(m.problem.loss)
    z = z[m.rows] + m.b
    u = row.slope_of(p.loss, p.y, found.natural)
    delta = sums.off(m.c) + gap.evaluation_error(p, z, u) + 4 * UNIT * norm(p, z)
    excess, noise = gap.excess_of(p, z, found.natural)
    above, _ = gap.excess_of(p, z, row.rest(p.loss, p.y))
    rounds = gamma(len(z) + 24)
    bound = gap.steep(p, z, u, delta) + UNIT * noise
    bound += found.share * above * (1 + rounds) + rounds * excess
    # c' is rounded, and stands within a share of what is exactly feasible.
    size, given = float(np.abs(d).sum()), float(np.abs(m.c).sum())
    slip = (8 * UNIT + found.share) * (given + size)
    off = size * (sums.off(d) + gamma(len(d) + 8) * np.abs(apart).max(initial=0.0))
    off += sums.top * (2 * size + slip) * slip
    strength = m.level / p.space.total
    computed = excess + strength * max(float(d @ apart), 0.0) / 2
    bound = float(bound + strength * off / 2 + TINY)
    if not math.isfinite(computed):
        return math.inf, 0.0
    return computed, bound if bound == bound else math.inf


def interpolation(case: Case) -> tuple[list[Claim], Status]:
    """Kc = y, with the smallest perturbation of K and y for which it is exact."""
    sums, found = case.sums([m.c for m in case.machines]), []
    for i, m in enumerate(case.machines):
        y, n = m.problem.y, len(m.rows)
        residual = float(np.linalg.norm(y - sums.Z[:, i] - m.b))
        off = math.sqrt(n) * (sums.off(m.c) + 4 * UNIT * float(np.abs(y).max()))
        size = sums.top * n * float(np.linalg.norm(m.c)) + float(np.linalg.norm(y))
        found.append(Number.share(residual, off, size * (1 - 1e-9)))
    tol, said = case.stated.tol, f"K c = y,  {case.kernel_text}"
    worst = found[deciding.worst_of(found, tol)]
    claim = deciding.claim_of(INTERPOLATED, worst, tol, said, case.stated.fix)
    return [claim], deciding.status_of(claim)


# -- one class --------------------------------------------------------------------


def one_class(case: Case, nu: float) -> tuple[list[Claim], Status]:
    """Mean max(0, −z) + ν·b + ½λ‖f‖², z = f + b: a hinge whose shares have the mean ν.

    With q = λα/s in [0, 1] and mean q = ν, P + ½λαᵀKα is mean e(z, q) + ½λ(c − α)ᵀK(c −
    α); −min P is ½λαᵀKα less that gap, at least. q has a mean a little above ν, so that
    what is exactly feasible is q shrunk by a share.
    """
    m, stated = case.machines[0], case.stated
    p, rows = m.problem, m.rows
    q = np.clip(m.level * m.c[rows] / p.space.s, 0.0, 1.0)
    mean, goal = gap.mean(p, q), min(nu * (1 + 128 * UNIT), 1.0)
    if mean > goal:
        q = q * goal / mean
    elif mean < goal:
        q = 1 - (1 - q) * (1 - goal) / (1 - mean)
    mean = gap.mean(p, q)
    above = mean >= nu * (1 + 48 * UNIT) or (q == 1).all()
    share = mean / nu - 1 + 96 * UNIT if above else math.inf
    apart = m.c.copy()
    apart[rows] -= p.space.s * q / m.level
    sums, alpha = case.sums([m.c, apart]), m.c - apart
    found = Repair(q, np.eye(1), share, 0.0)
    computed, bound = measure(m, found, apart, sums.Z[:, 0], sums.Z[:, 1], sums)
    square = float(alpha @ (sums.Z[:, 0] - sums.Z[:, 1]))
    square -= float(np.abs(alpha).sum()) * 2 * (sums.off(m.c) + sums.off(apart))
    size = m.level / p.space.total * square * (1 - gamma(len(alpha) + 16)) / 2
    base = max(size - computed - bound, 0.0)
    number = Number.share(computed, bound, base)
    text = f"mean max(0, −z) + {nu:.4g}·b + ½·{m.level / p.space.total:.4g}·‖f‖²"
    text += f",  z = f(x) + b,  {case.kernel_text}"
    claim = deciding.claim_of(ONE_CLASS, number, stated.tol, text, stated.fix)
    return [claim], deciding.status_of(claim)


# -- hard margins -----------------------------------------------------------------


def carried(m: Machine) -> Machine:
    """The problem on the rows that carry it, for which c itself is a dual point."""
    p = m.problem
    share = m.c[m.rows] * p.y / p.space.s
    rows = np.flatnonzero(share > 0)
    if not rows.size:
        return m._replace(level=1.0)
    space = Space(np.zeros((len(rows), 0)), p.space.s[rows], False)
    p, level = p._replace(space=space, y=p.y[rows]), 1 / float(share.max())
    return m._replace(problem=p, rows=m.rows[rows], level=level)


def at_margin(
    whole: Machine, m: Machine, z: Array, sums: GramSums
) -> tuple[Machine, float]:
    """With the smallest yf, less its rounding, as the margin of the hinge; and ½λ‖f‖².

    Neither f nor the widest margin, so scaled, has a loss then: ½λ‖f‖² is above what
    that has by the gap at most. Zero where some row may be on the wrong side.
    """
    f = whole.problem.y * (z[whole.rows] + m.b)
    size = float(np.abs(f).max()) + abs(m.b)
    least = float(f.min()) - sums.off(m.c) - 4 * UNIT * size
    square = float(m.c @ z) * (1 - gamma(len(z) + 16))
    square -= float(np.abs(m.c).sum()) * sums.off(m.c)
    p = m.problem._replace(loss=t.Hinge(max(least, 0.0)))
    length = m.level / p.space.total * square / 2
    return m._replace(problem=p), length if least > 0 else 0.0


def hulls_meet(case: Case, hulls: Any, kept: Array) -> Claim | None:
    """Whether the given convex combinations of two classes are the same point."""
    if np.ndim(hulls) != 2 or np.shape(hulls)[1] != len(kept) or hulls[:, ~kept].any():
        return None
    top = float(np.abs(kernels.diagonal(case.kernel, case.X)).max(initial=0.0))
    for weights in np.asarray(hulls[:, kept], dtype=float):
        for m in case.machines:
            signs = np.zeros(case.X.shape[0])
            signs[m.rows] = m.problem.y
            signed = weights * signs
            plus, minus = np.maximum(signed, 0.0), np.maximum(-signed, 0.0)
            whole = np.isfinite(weights).all() and np.all(plus + minus == weights)
            if not whole or min(plus.sum(), minus.sum()) <= 0:
                continue
            c = plus / plus.sum() - minus / minus.sum()
            sums = case.sums([c])
            square = float(c @ sums.Z[:, 0]) + 2 * sums.off(c)
            if square > COINCIDE * top:
                continue
            apart = math.sqrt(max(square, 2 * UNIT * top))
            return deciding.refused(
                "duality_gap",
                "no hard margin exists: a convex combination of "
                f"{int((plus > 0).sum())} rows of one class equals one of "
                f"{int((minus > 0).sum())} rows of the other (± {apart:.0e})",
                "set a finite C, or use a richer kernel",
                theorem="a plane that separates two sets separates their convex "
                "combinations; if two of these are less than δ apart, ‖f‖ > "
                "2/δ",
            )
    return None


# -- the perceptron ---------------------------------------------------------------


def perceptron(case: Case) -> tuple[list[Claim], Status]:
    """Counts of mistakes; Novikov's bound with the margin that the model shows.

    Margins are stated from below, lengths from above; a constant beside the kernel
    stands for the intercept. φ(x) = k(·, x) are the inputs, in their space.
    """
    lift, fix = float(case.stated.perceptron or 0.0), case.stated.fix
    own = kernels.diagonal(case.kernel, case.X) + lift
    y, C = (
        np.column_stack(x) for x in zip(*((m.problem.y, m.c) for m in case.machines))
    )
    sums, counts, total = case.sums(list(C.T)), C * y, C.sum(axis=0)
    odd = np.maximum(np.abs(counts - np.round(counts)), -counts)
    b = np.array([m.b for m in case.machines])
    apart = float(max(odd.max(), np.abs(b - lift * total).max()))
    Z, made = sums.Z + lift * total, counts.sum(axis=0)
    doubt = np.array([sums.off(c) for c in C.T]) + 8 * UNIT * lift * np.abs(total)
    square = (C * sums.Z).sum(axis=0) + lift * total**2
    square = np.maximum(square + 2 * np.abs(C).sum(axis=0) * doubt, 0.0)
    least = (y * Z).min(axis=0) - doubt
    counted = proved(
        *("update_sum", Number(apart), EXACT),
        f"the function is the sum of the updates of {made.sum():,.0f} mistakes",
        missed=f"the coefficients differ by {apart:.2g} from the counts of mistakes",
        objective=f"perceptron with {case.kernel_text}",
        theorem="each mistake adds y·k(·, x), so the coefficients are whole numbers "
        "with the signs of their rows",
        fix=fix,
    )
    if not counted.met:
        return [counted], Status.TOL_NOT_REACHED
    room, error = own @ counts * (1 - gamma(len(own) + 16)), online.error_claim(y, Z)
    squares = np.where(room > 0, square, 0.0)
    grown = online.growth_claim(squares, room, 0.0, EXACT, "φ(x)")
    if not (least > 0).all():
        limit = float(np.where(made > 0, np.sqrt(square) / made, np.inf).min())
        limited = online.limit_claim(limit, "φ(x)")
        return [replace(error, fix=fix), counted, grown, limited], Status.UNDECIDED
    bounds = float(own.max()) * (1 + EXACT) * square / least**2
    bound = online.bound_claim(made, bounds, "φ(x)", fix)
    return [bound, counted, grown, error], deciding.status_of(bound)
