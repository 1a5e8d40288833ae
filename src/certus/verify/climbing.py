"""Claims about EM and other methods that only rise: one more step, and the run again.

L is the mean log-likelihood, or another number that no exact step lowers. What one
further step gains is |L(θ⁺) − L(θ)|, both with their rounding, for the θ⁺ that a step
in float64 reaches. A run repeated from its recorded start shows whether any step went
down, and whether it leads to the model at all.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import xlogy

from certus.certificate import Claim
from certus.typing import Array
from certus.verify.deciding import Number, gamma, measured, proved, replayed

#: What tol=0 means; how close a repeated run must end, relative to one plus its size.
LEAST, APART = 1e-10, 1e-3
#: What is proved about a step.
STEP = (
    "|L(θ⁺) − L(θ)| with θ⁺ the result of an EM step in float64, rounding errors of "
    "both included; an exact EM step changes nothing only at a fixed point"
)
#: Why responsibilities whose ELBO is log p(x) are right.
ELBO = "log p(x) = ELBO(q) + KL(q ‖ p(z|x)): equality if and only if q is the posterior"


def step_gain(
    here: Number, there: Number, tol: float, objective: str, fix: str, note: str = ""
) -> Claim:
    """What one further step of EM gains or loses; measured, if a note says why."""
    change, off = there.value - here.value, there.rounding + here.rounding
    verb = "LOWERS" if change < -off else "raises"
    told = f"another EM step {verb} the mean log-likelihood {here.value:.6g} by "
    told += f"{abs(change):.1e}, {'below' if abs(change) <= tol else 'above'} {tol:.0e}"
    gain = Number(abs(change), off)
    words: dict[str, Any] = {"objective": objective, "fix": fix}
    if not math.isfinite(change):
        gain, told = Number(math.inf), "the log-likelihood is not finite"
    if note:
        words["fix"] = "" if gain.value <= tol + off else fix
        words |= {"target": tol, "allowance": off, "assumptions": (note,)}
        return measured("step_gain", gain.value, told, **words)
    words["theorem"] = STEP
    return proved("step_gain", gain, tol, told, **words)


def elbo_gap(q: Array, joint: Array, levels: Array, off: Array) -> Number:
    """The largest |log p(x) − ELBO(q)| or |Σq − 1| of rows, ``off`` known so far."""
    if q.shape != joint.shape or not (q >= 0).all():
        return Number(math.inf)
    terms = np.where(q > 0, q * np.where(q > 0, joint, 0.0), 0.0)
    gap = np.abs(levels - (terms.sum(axis=1) - xlogy(q, q).sum(axis=1)))
    gap = np.maximum(gap, np.abs(q.sum(axis=1) - 1.0))
    sizes = np.abs(terms).sum(axis=1) + np.abs(xlogy(q, q)).sum(axis=1)
    off = off + gamma(q.shape[1] + 8) * (sizes + np.abs(levels) + 1)
    value = float(np.nan_to_num(gap, nan=np.inf).max())
    return Number(value, float((gap + off).max()) - value if value < np.inf else 0.0)


def repeated(
    levels: list[Number],
    apart: float,
    objective: str,
    target: float = 1e-9,
    exact: bool = True,
    limit: float | None = None,
) -> Claim:
    """No step of the repeated run goes down; ``apart`` is its distance from the model.

    Above ``limit``, by default a share of one plus the last level, it is another
    result.
    """
    values = [level.value for level in levels]
    drop = max([0.0, *(a - b for a, b in pairwise(values))])
    off = 2 * max(level.rounding for level in levels)
    told = f"repeated from the start, {values[0]:.6g} to {values[-1]:.6g}: "
    kept = f"{told}no step lowers it; the model is {apart:.1e} from where it ends"
    fell = f"{told}a step lowers it by {drop:.1e}"
    if not exact:
        value, told = (drop, fell) if drop > off else (0.0, kept)
        return measured("monotone", value, told, objective=objective, allowance=off)
    claim = proved(
        *("monotone", Number(drop, off), target, kept),
        missed=fell,
        objective=objective,
        theorem="each half of a step is optimal, given the result of the other half",
        fix="make each step exact, or standardise the columns (StandardScaler)",
    )
    return replayed(claim, apart, limit or APART * (1 + abs(values[-1])))
