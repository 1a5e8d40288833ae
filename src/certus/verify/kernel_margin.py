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
from certus.verify.deciding import (
    BACKWARD,
    MARGIN,
    Number,
    claim_of,
    impossible,
    refused,
    status_of,
    worst_of,
)
from certus.verify.gram import diagonal, products, sizes
from certus.verify.kernel.reading import Array
from certus.verify.kernel.spaces import UNIT, gamma
from certus.verify.machines import (
    KernelStatement,
    Machine,
    kernel_text,
    rows_that_count,
)
from certus.verify.reproducing import Values

#: Squared distance, in units of the largest k(x, x), at which two points coincide.
COINCIDE = 1e-12


def _sums(
    kernel: Any, X: Any, machines: list[Machine], coef: list[Array]
) -> tuple[Array, Values]:
    """K·c for coefficients on all rows, and how well each sum is known."""
    C = np.column_stack(coef)
    used = np.flatnonzero(C.any(axis=1))
    values = Values(len(used), *sizes(kernel, rows_that_count(kernel, X, machines)))
    return products(kernel, X, used, C[used]), values


def interpolation(
    kernel: Any,
    X: Any,
    machines: list[Machine],
    support: Array,
    stated: KernelStatement,
) -> tuple[list[Claim], Status]:
    """Kc = y, with the smallest perturbation of K and y for which it is exact."""
    Z, values = _sums(kernel, X, machines, [m.c for m in machines])
    found = []
    for i, m in enumerate(machines):
        y, n = m.problem.y, len(m.rows)
        residual = float(np.linalg.norm(y - Z[m.rows, i] - m.b))
        off = math.sqrt(n) * (values.off(m.c) + 4 * UNIT * float(np.abs(y).max()))
        size = values.top * X.shape[0] * float(np.linalg.norm(m.c))
        size += float(np.linalg.norm(y))
        found.append(Number.share(residual, off, size * (1 - 1e-9)))
    claim = claim_of(
        *(BACKWARD, found[worst_of(found)], stated.tol),
        *(f"K c = y,  {kernel_text(kernel)}", stated.fix or "alpha > 0"),
    )
    claim = replace(
        claim,
        theorem="the coefficients solve (K + E)c = y + e exactly with "
        "‖E‖ ≤ value·n·max k and ‖e‖ ≤ value·‖y‖",
    )
    return [claim], status_of(claim)


def hard_margin(
    kernel: Any,
    X: Any,
    machines: list[Machine],
    support: Array,
    stated: KernelStatement,
    witness: KernelWitness,
) -> tuple[list[Claim], Status]:
    """½‖f‖² subject to y·(f + b) ≥ 1: the gap after scaling, or why there is none.

    As in :mod:`certus.verify.margin`: ½‖f − tg‖² + t·Σ a(yf − 1), g = Σ ay·k(·, x).
    """
    if witness.hulls is not None:
        hulls = np.asarray(witness.hulls, dtype=float)
        refusal = _hulls_meet(kernel, X, machines, hulls)
        if refusal is not None:
            return [refusal], Status.NO_MINIMISER
    others = [_balanced(m) for m in machines]
    Z, values = _sums(
        kernel, X, machines, [*(m.c for m in machines), *(o for o, _ in others)]
    )
    found = [
        _hard_gap(m, *others[i], Z[:, i], Z[:, len(machines) + i], values)
        for i, m in enumerate(machines)
    ]
    objective = f"½‖f‖²  with y·(f(x) + b) ≥ 1,  {kernel_text(kernel)}"
    worst = found[worst_of(found)]
    if not math.isfinite(worst.most):
        detail = "some row lies on the wrong side, and no proof that it must is given"
        claim = impossible(MARGIN, stated.tol, detail, stated.fix)
        return [replace(claim, objective=objective)], Status.TOL_NOT_REACHED
    claim = claim_of(MARGIN, worst, stated.tol, objective, stated.fix, len(machines))
    return [claim], status_of(claim)


def _balanced(m: Machine) -> tuple[Array, float]:
    """Coefficients a·y with a ≥ 0 and Σ ay = 0, and the share by which they miss it."""
    sign = np.zeros(len(m.c))
    sign[m.rows] = m.problem.y
    a = np.maximum(m.c * sign, 0.0)
    up, down = float(a[sign > 0].sum()), float(a[sign < 0].sum())
    if min(up, down) <= 0:
        return np.zeros(len(a)), 0.0
    a = a * np.where(sign > 0, min(1.0, down / up), min(1.0, up / down))
    total = float(a.sum())
    off = abs(float((a * sign).sum())) + 40 * UNIT * total
    return a * sign, 2 * off / (total - off) if off < total / 2 else 1.0


def _hard_gap(
    m: Machine, other: Array, share: float, z: Array, g: Array, values: Values
) -> Number:
    f = m.problem.y * (z[m.rows] + m.b)
    slack = values.off(m.c) + 4 * UNIT * (abs(m.b) + float(np.abs(f).max()))
    margin = float(f.min()) - slack
    length = float(m.c @ z)
    primal = (length - float(np.abs(m.c).sum()) * values.off(m.c)) / margin**2 / 2
    lower, total = float(other @ g), float(np.abs(other).sum())
    if not (margin > 0 and primal > 0):
        return Number(math.inf)
    if not (lower > 0 and total > 0):
        return Number(1.0)
    t = total / lower
    d = m.c / margin - t * other
    square = max(float(d @ (z / margin - t * g)), 0.0)
    size = float(np.abs(d).sum())
    slip = (8 * UNIT + share) * (float(np.abs(m.c).sum()) / margin + t * total)
    off = size * (values.off(m.c) / margin + t * values.off(other))
    off += values.top * (2 * size * slip + slip**2) + gamma(len(d) + 8) * square
    a = np.abs(other[m.rows])
    computed = square / 2 + t * float(a @ np.maximum(f / margin - 1, 0.0))
    bound = off / 2 + t * total * 4 * (slack / margin + UNIT)
    bound += 2 * share * primal + 2 * gamma(len(f) + 24) * computed
    return Number.share(computed, bound, primal)


def _hulls_meet(
    kernel: Any, X: Any, machines: list[Machine], hulls: Array
) -> Claim | None:
    """Whether the given convex combinations of two classes are the same point."""
    n = X.shape[0]
    if hulls.ndim != 2 or hulls.shape[1] != n or not np.isfinite(hulls).all():
        return None
    top = float(np.abs(diagonal(kernel, X)).max(initial=0.0))
    for weights in hulls:
        for m in machines:
            inside = np.zeros(n)
            inside[m.rows] = m.problem.y
            plus, minus = weights * (inside > 0), weights * (inside < 0)
            if weights.min() < 0 or np.any(weights[inside == 0] != 0):
                continue
            if min(plus.sum(), minus.sum()) <= 0:
                continue
            c = plus / plus.sum() - minus / minus.sum()
            Z, values = _sums(kernel, X, machines, [c])
            square = float(c @ Z[:, 0]) + 2 * values.off(c)
            if square > COINCIDE * top:
                continue
            apart = math.sqrt(max(square, 2 * UNIT * top))
            return refused(
                "duality_gap",
                "no hard margin exists: a convex combination of "
                f"{int((plus > 0).sum())} rows of one class is one of "
                f"{int((minus > 0).sum())} rows of the other, to within {apart:.0e}",
                "any finite C, or a richer kernel",
                objective=f"½‖f‖²  with y·(f(x) + b) ≥ 1,  {kernel_text(kernel)}",
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


def perceptron(
    kernel: Any,
    X: Any,
    machines: list[Machine],
    support: Array,
    stated: KernelStatement,
) -> tuple[list[Claim], Status]:
    """Counts of mistakes; Novikov's bound with the margin that the model shows."""
    lift = float(stated.perceptron or 0.0)
    own = diagonal(kernel, X) + lift
    Z, values = _sums(kernel, X, machines, [m.c for m in machines])
    runs = [_run(m, Z[:, i], own, lift, values) for i, m in enumerate(machines)]
    claims = [_sum_claim(runs, kernel, stated.fix)]
    if not claims[0].met:
        return claims, Status.TOL_NOT_REACHED
    claims.append(_growth_claim(runs))
    apart = all(run.margin > 0 for run in runs)
    if apart:
        claims.append(_bound_claim(runs, float(own.max(initial=0.0))))
    else:
        claims.append(_limit_claim(runs))
    wrong, rows = sum(run.wrong for run in runs), sum(len(m.rows) for m in machines)
    detail = f"{wrong:,} of {rows:,} rows on the wrong side"
    error = Claim("training_error", Strength.MEASURED, wrong / rows, detail=detail)
    if apart:
        return [*claims, error], Status.SOLVED
    return [error, *claims], Status.UNDECIDED


def _run(m: Machine, z: Array, own: Array, lift: float, values: Values) -> Run:
    """Margins and growth are stated from the side of doubt."""
    sign = np.zeros(len(m.c))
    sign[m.rows] = m.problem.y
    count = m.c * sign
    total, off = float(m.c.sum()), values.off(m.c)
    odd = np.maximum(np.abs(count - np.round(count)), -count)
    odd = np.where(sign == 0, np.abs(m.c), odd)
    deviation = max(float(odd.max(initial=0.0)), abs(m.b - lift * total))
    margins = m.problem.y * (z[m.rows] + lift * total)
    doubt = off + 8 * UNIT * lift * abs(total)
    size = float(np.abs(m.c).sum())
    square = float(m.c @ z) + lift * total**2
    above = square + 2 * size * doubt
    room = float(count @ own) * (1 - gamma(len(own) + 16))
    length = math.sqrt(max(above, 0.0))
    least = (float(margins.min()) - doubt) / length if length > 0 else 0.0
    growth = above / room if room > 0 else 0.0
    wrong = int(np.count_nonzero(margins <= 0))
    return Run(deviation, float(count.sum()), wrong, least, growth, length)


def _sum_claim(runs: list[Run], kernel: Any, fix: str) -> Claim:
    worst = max(run.deviation for run in runs)
    made = sum(run.mistakes for run in runs)
    met = worst <= 1e-9
    detail = f"the function is the sum of {made:,.0f} mistakes"
    if not met:
        detail = f"the coefficients differ by {worst:.2g} from counts of mistakes"
    return Claim(
        "update_sum",
        Strength.PROVED,
        worst,
        1e-9,
        met,
        f"perceptron with {kernel_text(kernel)}",
        "each mistake adds y·k(·, x), so that coefficients are whole numbers with the "
        "signs of their rows",
        detail=detail,
        fix="" if met else fix,
    )


def _growth_claim(runs: list[Run]) -> Claim:
    worst = max(run.growth for run in runs)
    return Claim(
        "norm_growth",
        Strength.PROVED,
        worst,
        1.0,
        bool(worst <= 1 + 1e-9),
        "‖f‖²/Σ m·k(x, x)",
        "a mistake, where y·f(x) ≤ 0, raises ‖f‖² by at most k(x, x)",
        detail=f"‖f‖² is {worst:.2g} of what its mistakes allow",
    )


def _bound_claim(runs: list[Run], radius: float) -> Claim:
    """Mistakes ≤ R²/γ², for the worst of the runs."""
    run = max(runs, key=lambda run: run.mistakes * run.margin**2)
    bound = radius / run.margin**2
    return Claim(
        "mistake_bound",
        Strength.PROVED,
        run.mistakes,
        bound,
        bool(run.mistakes <= bound * (1 + 1e-9)),
        "R²/γ², R² = largest k(x, x), γ = smallest y·f(x)/‖f‖",
        "Novikov: a perceptron makes at most R²/γ² mistakes on rows that some function "
        "of unit norm separates with margin γ; here the one found",
        detail=f"all rows on their side after {run.mistakes:,.0f} mistakes; the bound "
        f"is {bound:,.0f}",
    )


def _limit_claim(runs: list[Run]) -> Claim:
    limit = min(r.length / r.mistakes for r in runs if r.margin <= 0 and r.mistakes)
    return Claim(
        "margin_limit",
        Strength.PROVED,
        limit,
        None,
        True,
        "‖f‖/Σ m",
        "a function of unit norm and margin γ has γ·Σm ≤ ‖f‖",
        detail=f"no function of the kernel separates the rows by more than {limit:.2g}",
    )
