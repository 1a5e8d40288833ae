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

from certus import terms as t
from certus.certificate import Claim, Status
from certus.verify import deciding, gram
from certus.verify.deciding import Number, measured, proved
from certus.verify.gram import Sums
from certus.verify.kernel.reading import Array
from certus.verify.kernel.spaces import UNIT, Linear, gamma
from certus.verify.machines import KernelStatement, Machine, kernel_text

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
        return f"k = {kernel_text(self.kernel)}{more}"


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


def carried(m: Machine) -> Machine:
    """The problem on the rows that carry it, for which c itself is a dual point."""
    p = m.problem
    share = m.c[m.rows] * p.y / p.space.s
    rows = np.flatnonzero(share > 0)
    if not rows.size:
        return m._replace(level=1.0)
    space = Linear(np.zeros((len(rows), 0)), p.space.s[rows], False)
    p, level = p._replace(space=space, y=p.y[rows]), 1 / float(share.max())
    return m._replace(problem=p, rows=m.rows[rows], level=level)


def at_margin(
    whole: Machine, m: Machine, z: Array, sums: Sums
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


def hulls_meet(case: Case, hulls: Any) -> Claim | None:
    """Whether the given convex combinations of two classes are the same point."""
    if np.ndim(hulls) != 2 or np.shape(hulls)[1] != case.X.shape[0]:
        return None
    top = float(np.abs(gram.diagonal(case.kernel, case.X)).max(initial=0.0))
    for weights in np.asarray(hulls, dtype=float):
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
                f"{int((plus > 0).sum())} rows of one class is one of "
                f"{int((minus > 0).sum())} rows of the other, to within {apart:.0e}",
                "any finite C, or a richer kernel",
                theorem="a plane that separates two sets separates their convex "
                "combinations; if two of these are less than δ apart, ‖f‖ > 2/δ",
            )
    return None


# -- the perceptron ---------------------------------------------------------------


def perceptron(case: Case) -> tuple[list[Claim], Status]:
    """Counts of mistakes; Novikov's bound with the margin that the model shows.

    Margins are stated from below, lengths from above; a constant beside the kernel
    stands for the intercept.
    """
    lift, fix = float(case.stated.perceptron or 0.0), case.stated.fix
    own = gram.diagonal(case.kernel, case.X) + lift
    y, C = (
        np.column_stack(x) for x in zip(*((m.problem.y, m.c) for m in case.machines))
    )
    sums, counts, total = case.sums(list(C.T)), C * y, C.sum(axis=0)
    odd = np.maximum(np.abs(counts - np.round(counts)), -counts)
    b = np.array([m.b for m in case.machines])
    apart = float(max(odd.max(), np.abs(b - lift * total).max()))
    margins, made = y * (sums.Z + lift * total), counts.sum(axis=0)
    doubt = np.array([sums.off(c) for c in C.T]) + 8 * UNIT * lift * np.abs(total)
    square = (C * sums.Z).sum(axis=0) + lift * total**2
    square = np.maximum(square + 2 * np.abs(C).sum(axis=0) * doubt, 0.0)
    least, wrong = margins.min(axis=0) - doubt, int(np.count_nonzero(margins <= 0))
    counted = proved(
        *("update_sum", Number(apart), EXACT),
        f"the function is the sum of {made.sum():,.0f} mistakes",
        missed=f"the coefficients differ by {apart:.2g} from counts of mistakes",
        objective=f"perceptron with {case.kernel_text}",
        theorem="each mistake adds y·k(·, x), so that coefficients are whole numbers "
        "with the signs of their rows",
        fix=fix,
    )
    if not counted.met:
        return [counted], Status.TOL_NOT_REACHED
    room = own @ counts * (1 - gamma(len(own) + 16))
    growth = float(np.where(room > 0, square / room, 0.0).max())
    grown = proved(
        *("norm_growth", Number(growth), 1 + EXACT),
        f"‖f‖² is {growth:.2g} of what its mistakes allow",
        objective="‖f‖²/Σ m·k(x, x)",
        theorem="a mistake, where y·f(x) ≤ 0, raises ‖f‖² by at most k(x, x)",
    )
    told = f"{wrong:,} of {margins.size:,} rows on the wrong side"
    error = measured("training_error", wrong / margins.size, told)
    if not (least > 0).all():
        limit = float(np.where(made > 0, np.sqrt(square) / made, np.inf).min())
        limited = proved(
            *("margin_limit", Number(limit), None),
            f"no function of the kernel separates the rows by more than {limit:.2g}",
            objective="‖f‖/Σ m",
            theorem="a function of unit norm and margin γ has γ·Σm ≤ ‖f‖",
        )
        return [replace(error, fix=fix), counted, grown, limited], Status.UNDECIDED
    bounds = float(own.max()) * (1 + EXACT) * square / least**2
    worst = int(np.argmax(made / bounds))
    bound = proved(
        *("mistake_bound", Number(float(made[worst])), float(bounds[worst])),
        f"all rows on their side after {made[worst]:,.0f} mistakes; the bound is "
        f"{bounds[worst]:,.0f}",
        objective="R²/γ², R² = largest k(x, x), γ = smallest y·f(x)/‖f‖",
        theorem="Novikov: a perceptron makes at most R²/γ² mistakes on rows that some "
        "function of unit norm separates with margin γ; here the one found",
    )
    return [bound, counted, grown, error], deciding.status_of(bound)
