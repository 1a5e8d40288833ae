"""Kernel machines without a penalty: interpolation, hard margins, the perceptron.

Ridge without a penalty claims the backward error of K c = y. A hard margin claims a gap
after scaling, or is refused with two convex combinations that coincide. The perceptron
claims Novikov's bound on its mistakes, with the margin that it found.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus import terms as t
from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify.bounded import gamma
from certus.verify.data import Array
from certus.verify.gram import diagonal, products
from certus.verify.machines import Machine, Scores, kernel_text, scores_of

EPS = float(np.finfo(np.float64).eps)
#: Squared distance, in units of the largest k(x, x), at which two points coincide.
COINCIDE = 1e-12
_AS_COMPUTED = ("kernel values as computed in float64",)


def interpolation(
    kernel: t.Kernel,
    X: Any,
    machines: list[Machine],
    support: Array,
    tol: float,
    fix: str,
) -> tuple[list[Claim], Status]:
    """Kc = y, with the smallest perturbation of K and y for which it is exact."""
    scores = scores_of(kernel, X, machines, support, [p.c * 0 for p in machines])
    top = float(np.abs(diagonal(kernel, X)).max(initial=0.0)) * X.shape[0]
    value = 0.0
    for p, score in zip(machines, scores):
        residual = float(np.linalg.norm(p.y - score.z - p.b))
        size = top * float(np.linalg.norm(p.c)) + float(np.linalg.norm(p.y))
        value = max(value, residual / size if size > 0 else 0.0)
    met = value <= tol
    claim = Claim(
        "backward_error",
        Strength.PROVED,
        value,
        tol,
        met,
        f"backward error of  K c = y,  {kernel_text(kernel)}",
        "the coefficients solve (K + E)c = y + e exactly with ‖E‖ ≤ value·n·max k and "
        "‖e‖ ≤ value·‖y‖",
        detail=f"exact for a system within {value:.1e} of yours (asked for {tol:.0e})",
        fix="" if met else fix or "alpha > 0",
    )
    return [claim], Status.SOLVED if met else Status.TOL_NOT_REACHED


def hard_margin(
    kernel: t.Kernel,
    X: Any,
    machines: list[Machine],
    support: Array,
    evidence: Evidence,
    tol: float,
    fix: str,
) -> tuple[list[Claim], Status]:
    """½‖f‖² subject to y·(f + b) ≥ 1: the gap after scaling, or why there is none."""
    hulls = evidence.arrays.get("hulls")
    if hulls is not None:
        refusal = _hulls_meet(kernel, X, machines, np.asarray(hulls, dtype=float))
        if refusal is not None:
            return [refusal], Status.NO_MINIMISER
    others = []
    for p in machines:
        sign = np.bincount(p.rows, weights=p.y, minlength=X.shape[0])[support]
        alpha = np.maximum(p.c * sign, 0.0)
        up, down = alpha[sign > 0].sum(), alpha[sign < 0].sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(sign > 0, min(1.0, down / up), min(1.0, up / down))
        others.append(np.nan_to_num(alpha * sign * scale))
    value = 0.0
    for p, other, score in zip(
        machines, others, scores_of(kernel, X, machines, support, others)
    ):
        used = p.s > 0
        margin = float((p.y * (score.z + p.b))[used].min())
        everywhere = np.bincount(support, weights=other, minlength=X.shape[0])[p.rows]
        lower = float(everywhere @ score.other)
        dual = float(np.abs(other).sum()) ** 2 / (2 * lower) if lower > 0 else 0.0
        primal = score.square / margin**2 / 2 if margin > 0 else np.inf
        gap = (primal - dual) / primal if np.isfinite(primal) else np.inf
        value = max(value, max(gap, 0.0))
    met = value <= tol
    asked = f"(asked for {tol:.0e})"
    missed = f"may be {value:.2g} above the smallest norm {asked}"
    if value == np.inf:
        missed = "some row lies on the wrong side, and no proof that it must is given"
    claim = Claim(
        "duality_gap",
        Strength.PROVED,
        value,
        tol,
        met,
        f"duality gap of  ½‖f‖²  with y·(f(x) + b) ≥ 1,  {kernel_text(kernel)}",
        "weak duality, with (f, b) scaled until its margin is one",
        allowance=0.0,
        detail=f"within {value:.1e} of the largest margin {asked}" if met else missed,
        fix="" if met else fix,
    )
    return [claim], Status.SOLVED if met else Status.TOL_NOT_REACHED


def _hulls_meet(
    kernel: t.Kernel, X: Any, machines: list[Machine], hulls: Array
) -> Claim | None:
    """Whether the given convex combinations of two classes are the same point."""
    n = X.shape[0]
    if hulls.ndim != 2 or hulls.shape[1] != n or not np.isfinite(hulls).all():
        return None
    top = float(np.abs(diagonal(kernel, X)).max(initial=0.0))
    for weights in hulls:
        for p in machines:
            inside = np.zeros(n)
            inside[p.rows[p.s > 0]] = p.y[p.s > 0]
            plus, minus = weights * (inside > 0), weights * (inside < 0)
            if weights.min() < 0 or np.any(weights[inside == 0] != 0):
                continue
            if min(plus.sum(), minus.sum()) <= 0:
                continue
            c = plus / plus.sum() - minus / minus.sum()
            used = np.flatnonzero(c)
            square = float(
                c[used] @ products(kernel, X, used, c[used][:, None])[used, 0]
            )
            if square > COINCIDE * top:
                continue
            apart = np.sqrt(max(square, EPS * top))
            return Claim(
                "duality_gap",
                Strength.REFUSED,
                objective=f"½‖f‖²  with y·(f(x) + b) ≥ 1,  {kernel_text(kernel)}",
                theorem="a plane that separates two sets separates their convex "
                "combinations; if two of these are less than δ apart, ‖f‖ > 2/δ",
                detail="no hard margin exists: a convex combination of "
                f"{int((plus > 0).sum())} rows of one class is one of "
                f"{int((minus > 0).sum())} rows of the other, to within {apart:.0e}",
                fix="any finite C, or a richer kernel",
            )
    return None


class Run(NamedTuple):
    """What one run of a perceptron shows."""

    deviation: float  # of the coefficients from signed counts
    mistakes: float
    wrong: int
    margin: float
    growth: float  # ‖f‖² as a share of Σ m·k(x, x)
    length: float


def perceptron(
    kernel: t.Kernel,
    X: Any,
    machines: list[Machine],
    support: Array,
    evidence: Evidence,
) -> tuple[list[Claim], Status]:
    """Counts of mistakes; Novikov's bound with the margin that the model shows."""
    lift = float(evidence.params.get("constant", 0.0))
    fix = str(evidence.params.get("fix", ""))
    own = diagonal(kernel, X) + lift
    nothing = [p.c * 0 for p in machines]
    scores = scores_of(kernel, X, machines, support, nothing)
    runs = [_run(p, score, own, support, lift) for p, score in zip(machines, scores)]
    claims = [_sum_claim(runs, kernel, fix)]
    if not claims[0].met:
        return claims, Status.TOL_NOT_REACHED
    wrong, rows = sum(run.wrong for run in runs), sum(len(p.rows) for p in machines)
    detail = f"{wrong:,} of {rows:,} rows on the wrong side"
    named = ("training_error", Strength.MEASURED, wrong / rows)
    error = Claim(*named, detail=detail, fix=fix if wrong else "")
    claims.append(_growth_claim(runs))
    if all(run.margin > 0 for run in runs):
        claims.append(_bound_claim(runs, float(own.max(initial=0.0))))
        return [*claims, error], Status.SOLVED
    if any(run.mistakes for run in runs if run.margin <= 0):
        claims.append(_limit_claim(runs))
    return [error, *claims], Status.UNDECIDED  # what leaves rows wrong solves nothing


def _run(p: Machine, score: Scores, own: Array, support: Array, lift: float) -> Run:
    sign = np.bincount(p.rows, weights=p.y, minlength=len(own))[support]
    m = p.c * sign
    total = float(p.c.sum())
    off = np.maximum(np.abs(m - np.round(m)), -m)
    deviation = max(float(off.max(initial=0.0)), abs(p.b - lift * total))
    margins = p.y * (score.z + lift * total)
    square = score.square + lift * total**2
    room = float(m @ own[support])
    length = float(np.sqrt(max(square, 0.0)))
    # From below: a sum of as many products, each at most |c| times the largest k.
    slack = gamma(len(support) + 64) * float(np.abs(p.c).sum() * own.max(initial=0.0))
    least = (float(margins.min()) - slack) / length if length > 0 else 0.0
    growth = square / room if room > 0 else 0.0
    wrong = int(np.count_nonzero(margins <= 0))
    return Run(deviation, float(m.sum()), wrong, least, growth, length)


def _sum_claim(runs: list[Run], kernel: t.Kernel, fix: str) -> Claim:
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
        assumptions=_AS_COMPUTED,
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
