"""Kernel machines without a penalty: interpolation, hard margins, the perceptron.

Ridge without a penalty claims the backward error of K c = y. A hard margin claims a gap
after scaling, or is refused with two convex combinations that coincide. The perceptron
claims Novikov's bound on its mistakes, with the margin that it found. Every sum of m
kernel values is counted with its rounding.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status, Strength
from certus.evidence import KernelWitness
from certus.verify import deciding, gram
from certus.verify.deciding import Number, measured, proved
from certus.verify.gram import Sums
from certus.verify.kernel.reading import Array
from certus.verify.kernel.spaces import UNIT, gamma
from certus.verify.machines import KernelStatement, kernel_text
from certus.verify.reproducing import Machine

#: Squared distance, in units of the largest k(x, x), at which two points coincide.
COINCIDE = 1e-12
#: Largest distance of a coefficient from a count, and of a ratio from its limit.
EXACT = 1e-9


class Case(NamedTuple):
    """What is judged: rows of some weight, and the machines on them."""

    kernel: Any
    X: Any
    machines: list[Machine]
    stated: KernelStatement
    lack: float  # the multiple of I that makes a matrix of unknown sign a kernel

    def sums(self, columns: list[Array]) -> Sums:
        """K·c for each column."""
        return gram.sums(self.kernel, self.X, columns, self.lack)

    @property
    def kernel_text(self) -> str:
        """The kernel as it stands in an objective."""
        more = f",  K + {self.lack:.0e}·I for K" if self.lack > 0 else ""
        return kernel_text(self.kernel) + more


def interpolation(case: Case) -> tuple[list[Claim], Status]:
    """Kc = y, with the smallest perturbation of K and y for which it is exact."""
    sums, found = case.sums([m.c for m in case.machines]), []
    for i, m in enumerate(case.machines):
        y, n = m.problem.y, len(m.rows)
        residual = float(np.linalg.norm(y - sums.Z[:, i] - m.b))
        off = math.sqrt(n) * (sums.off(m.c) + 4 * UNIT * float(np.abs(y).max()))
        size = sums.top * n * float(np.linalg.norm(m.c)) + float(np.linalg.norm(y))
        found.append(Number.share(residual, off, size * (1 - 1e-9)))
    claim = deciding.claim_of(
        *(deciding.BACKWARD, found[deciding.worst_of(found)], case.stated.tol),
        *(f"K c = y,  {case.kernel_text}", case.stated.fix),
    )
    claim = replace(
        claim,
        theorem="the coefficients solve (K + E)c = y + e exactly with "
        "‖E‖ ≤ value·n·max k and ‖e‖ ≤ value·‖y‖",
    )
    return [claim], deciding.status_of(claim)


# -- hard margins -----------------------------------------------------------------


def hard_margin(case: Case, witness: KernelWitness) -> tuple[list[Claim], Status]:
    """½‖f‖² subject to y·(f + b) ≥ 1: the gap after scaling, or why there is none.

    As in :mod:`certus.verify.margin`: ½‖f − tg‖² + t·Σ a(yf − 1), g = Σ ay·k(·, x).
    """
    machines, tol, fix = case.machines, case.stated.tol, case.stated.fix
    objective = f"½‖f‖²  with y·(f(x) + b) ≥ 1,  {case.kernel_text}"
    refusal = _hulls_meet(case, witness.hulls)
    if refusal is not None:
        return [replace(refusal, objective=objective)], Status.NO_MINIMISER
    others = [_balanced(m) for m in machines]
    sums = case.sums([*(m.c for m in machines), *(o for o, _ in others)])
    k, Z = len(machines), sums.Z.T
    found = [
        _hard_gap(m, *other, z, g, sums)
        for m, other, z, g in zip(machines, others, Z[:k], Z[k:])
    ]
    worst = found[deciding.worst_of(found)]
    if not math.isfinite(worst.most):
        detail = "some row lies on the wrong side, and no proof that it must is given"
        claim = replace(
            deciding.impossible(deciding.MARGIN, tol, detail, fix), objective=objective
        )
        return [claim], Status.TOL_NOT_REACHED
    claim = deciding.claim_of(deciding.MARGIN, worst, tol, objective, fix, k)
    return [claim], deciding.status_of(claim)


def _signs(m: Machine) -> Array:
    """Labels on all rows, 0 for those that have no part in the problem."""
    sign = np.zeros(len(m.c))
    sign[m.rows] = m.problem.y
    return sign


def _balanced(m: Machine) -> tuple[Array, float]:
    """Coefficients a·y with a ≥ 0 and Σ ay = 0, and the share by which they miss it."""
    sign = _signs(m)
    a = np.maximum(m.c * sign, 0.0)
    up, down = float(a[sign > 0].sum()), float(a[sign < 0].sum())
    if min(up, down) <= 0:
        return np.zeros(len(a)), 0.0
    a = a * np.where(sign > 0, min(1.0, down / up), min(1.0, up / down))
    total = float(a.sum())
    off = abs(float((a * sign).sum())) + 40 * UNIT * total
    return a * sign, 2 * off / (total - off) if off < total / 2 else 1.0


def _hard_gap(
    m: Machine, other: Array, share: float, z: Array, g: Array, sums: Sums
) -> Number:
    f = m.problem.y * (z[m.rows] + m.b)
    slack = sums.off(m.c) + 4 * UNIT * (abs(m.b) + float(np.abs(f).max()))
    margin, given = float(f.min()) - slack, float(np.abs(m.c).sum())
    primal = (float(m.c @ z) - given * sums.off(m.c)) / margin**2 / 2
    lower, total = float(other @ g), float(np.abs(other).sum())
    if not (margin > 0 and primal > 0):
        return Number(math.inf)
    if not (lower > 0 and total > 0):
        return Number(1.0)
    t = total / lower
    d = m.c / margin - t * other
    square = max(float(d @ (z / margin - t * g)), 0.0)
    size = float(np.abs(d).sum())
    slip = (8 * UNIT + share) * (given / margin + t * total)
    off = size * (sums.off(m.c) / margin + t * sums.off(other))
    off += sums.top * (2 * size * slip + slip**2) + gamma(len(d) + 8) * square
    a = np.abs(other[m.rows])
    computed = square / 2 + t * float(a @ np.maximum(f / margin - 1, 0.0))
    bound = off / 2 + t * total * 4 * (slack / margin + UNIT)
    bound += 2 * share * primal + 2 * gamma(len(f) + 24) * computed
    return Number.share(computed, bound, primal)


def _hulls_meet(case: Case, hulls: Any) -> Claim | None:
    """Whether the given convex combinations of two classes are the same point."""
    if np.ndim(hulls) != 2 or np.shape(hulls)[1] != case.X.shape[0]:
        return None
    top = float(np.abs(gram.diagonal(case.kernel, case.X)).max(initial=0.0))
    for weights in np.asarray(hulls, dtype=float):
        for m in case.machines:
            signed = weights * _signs(m)
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
                f"{int((plus > 0).sum())} rows of one class is one of "
                f"{int((minus > 0).sum())} rows of the other, to within {apart:.0e}",
                "any finite C, or a richer kernel",
                theorem="a plane that separates two sets separates their convex "
                "combinations; if two of these are less than δ apart, ‖f‖ > 2/δ",
            )
    return None


# -- the perceptron ---------------------------------------------------------------


class Run(NamedTuple):
    """What one run of a perceptron shows."""

    deviation: float  # of the coefficients from signed counts
    mistakes: float
    wrong: int
    margin: float
    growth: float  # ‖f‖² as a share of Σ m·k(x, x)
    length: float


def perceptron(case: Case) -> tuple[list[Claim], Status]:
    """Counts of mistakes; Novikov's bound with the margin that the model shows."""
    lift = float(case.stated.perceptron or 0.0)
    own = gram.diagonal(case.kernel, case.X) + lift
    sums = case.sums([m.c for m in case.machines])
    runs = [_run(m, sums.Z[:, i], own, lift, sums) for i, m in enumerate(case.machines)]
    first = _sum_claim(runs, case)
    if not first.met:
        return [first], Status.TOL_NOT_REACHED
    apart = all(run.margin > 0 for run in runs)
    last = _bound_claim(runs, float(own.max())) if apart else _limit_claim(runs)
    wrong, rows = sum(run.wrong for run in runs), len(own) * len(runs)
    told = f"{wrong:,} of {rows:,} rows on the wrong side"
    claims = [first, _growth_claim(runs), last]
    error = measured("training_error", wrong / rows, told)
    if apart:
        return [*claims, error], Status.SOLVED
    return [error, *claims], Status.UNDECIDED


def _run(m: Machine, z: Array, own: Array, lift: float, sums: Sums) -> Run:
    """Margins and growth are stated from the side of doubt."""
    y, total = m.problem.y, float(m.c.sum())
    count, size = m.c * y, float(np.abs(m.c).sum())
    odd = np.maximum(np.abs(count - np.round(count)), -count)
    deviation = max(float(odd.max()), abs(m.b - lift * total))
    margins = y * (z + lift * total)
    doubt = sums.off(m.c) + 8 * UNIT * lift * abs(total)
    above = float(m.c @ z) + lift * total**2 + 2 * size * doubt
    room = float(count @ own) * (1 - gamma(len(own) + 16))
    length = math.sqrt(max(above, 0.0))
    least = (float(margins.min()) - doubt) / length if length > 0 else 0.0
    growth = above / room if room > 0 else 0.0
    wrong = int(np.count_nonzero(margins <= 0))
    return Run(deviation, float(count.sum()), wrong, least, growth, length)


def _sum_claim(runs: list[Run], case: Case) -> Claim:
    worst = max(run.deviation for run in runs)
    made = sum(run.mistakes for run in runs)
    return proved(
        *("update_sum", Number(worst), EXACT),
        f"the function is the sum of {made:,.0f} mistakes",
        missed=f"the coefficients differ by {worst:.2g} from counts of mistakes",
        objective=f"perceptron with {case.kernel_text}",
        theorem="each mistake adds y·k(·, x), so that coefficients are whole numbers "
        "with the signs of their rows",
        fix=case.stated.fix,
    )


def _growth_claim(runs: list[Run]) -> Claim:
    worst = max(run.growth for run in runs)
    return proved(
        *("norm_growth", Number(worst), 1 + EXACT),
        f"‖f‖² is {worst:.2g} of what its mistakes allow",
        objective="‖f‖²/Σ m·k(x, x)",
        theorem="a mistake, where y·f(x) ≤ 0, raises ‖f‖² by at most k(x, x)",
    )


def _bound_claim(runs: list[Run], radius: float) -> Claim:
    """Mistakes ≤ R²/γ², for the worst of the runs."""
    run = max(runs, key=lambda run: run.mistakes * run.margin**2)
    bound = radius * (1 + EXACT) / run.margin**2
    return proved(
        *("mistake_bound", Number(run.mistakes), bound),
        f"all rows on their side after {run.mistakes:,.0f} mistakes; the bound "
        f"is {bound:,.0f}",
        objective="R²/γ², R² = largest k(x, x), γ = smallest y·f(x)/‖f‖",
        theorem="Novikov: a perceptron makes at most R²/γ² mistakes on rows that some "
        "function of unit norm separates with margin γ; here the one found",
    )


def _limit_claim(runs: list[Run]) -> Claim:
    limit = min(r.length / r.mistakes for r in runs if r.margin <= 0 and r.mistakes)
    return Claim(
        *("margin_limit", Strength.PROVED, limit, None, True, "‖f‖/Σ m"),
        "a function of unit norm and margin γ has γ·Σm ≤ ‖f‖",
        detail=f"no function of the kernel separates the rows by more than {limit:.2g}",
    )
