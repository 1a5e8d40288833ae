"""Numbers with the rounding in them bounded, and the claims that are made of both.

A sum of m products in float64, in any order, is off by at most γ_m times the sum of
their sizes, γ_m = mu/(1 − mu), u = 2⁻⁵³. A claim states the number plus its bound. It
is missed where the number itself is too large, and undecided where the bound is.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status, Strength
from certus.verify.data import Array

#: Unit roundoff, and the smallest number that no library flushes to zero.
U, TINY = 2.0**-53, 2.0**-1022
#: Rows multiplied at a time, and blocks added up before they join the total.
RUN, GROUP = 256, 64


def gamma(m: float, unit: float = U) -> float:
    """γ_m, infinite where m terms are too many for this precision."""
    return m * unit / (1 - m * unit) if m * unit < 0.5 else math.inf


def depth(n: int) -> int:
    """Additions that any of n rows goes through, in runs, groups and a total."""
    return min(n, RUN) + min(n // RUN + 1, GROUP) + n // (RUN * GROUP) + 1


def length(v: Array) -> float:
    """‖v‖ without over- or underflow of its squares."""
    top = float(np.abs(v).max(initial=0.0))
    if not 0 < top < math.inf:
        return top
    return top * float(np.linalg.norm(v / top))


def power_of_two(size: float) -> float:
    """A power of two p with ½ ≤ p·size < 1, for sizes within range; else 1."""
    if not 0 < size < math.inf:
        return 1.0
    return math.ldexp(1.0, min(1000, -math.frexp(size)[1]))


class Number(NamedTuple):
    """A number, and what rounding may have done to it."""

    value: float
    rounding: float


def proved(
    name: str, found: Number, target: float | None, detail: str, **words: Any
) -> Claim:
    """A PROVED claim. ``missed`` and ``fix`` are said where the target is missed."""
    missed, fix = words.pop("missed", detail), words.pop("fix", "")
    computed, rounding = (
        x if x == x else math.inf for x in map(float, (found.value, found.rounding))
    )
    value = computed + rounding
    met = None if target is None else bool(value <= target)
    if target is not None and met is False and rounding > target:
        # Missed all the same, if what was computed stands out from its rounding.
        met = False if computed == math.inf or computed - rounding > target else None
    if met is None and target is not None:
        detail = f"undecided: rounding alone may be {rounding:.1e}"
        fix = "centre and scale the columns (StandardScaler), or a larger tol"
    return Claim(
        name,
        Strength.PROVED,
        value,
        target,
        met,
        allowance=rounding,
        detail=missed if met is False else detail,
        fix="" if met or target is None else fix,
        **words,
    )


def measured(name: str, value: float | None, detail: str, **words: Any) -> Claim:
    """A number without a promise."""
    return Claim(name, Strength.MEASURED, value, detail=detail, **words)


def verdict(claims: list[Claim], remarks: tuple[str, ...] = ()) -> Status:
    """Put first what is missed, then what is undecided; the status that follows."""

    def rank(claim: Claim) -> int:
        lost = claim.met is None and claim.target is not None
        if claim.name in remarks or claim.strength is not Strength.PROVED:
            return 2
        return 0 if claim.met is False else 1 if lost else 2

    claims.sort(key=rank)
    return (Status.TOL_NOT_REACHED, Status.UNDECIDED, Status.SOLVED)[rank(claims[0])]


def status_of(claim: Claim) -> Status:
    """How a check ends whose primary claim this is."""
    if claim.met is None:
        return Status.UNDECIDED
    return Status.SOLVED if claim.met else Status.TOL_NOT_REACHED


def replayed(claim: Claim, apart: float, limit: float) -> Claim:
    """The claim of a run repeated; undecided where it ends ``apart`` from the model."""
    if not claim.met or apart <= limit:
        return claim
    lost = f"undecided: the recorded start leads elsewhere, {apart:.1e} apart"
    return replace(claim, met=None, detail=lost)


def refuse_weights(model: Any, sample_weight: Any) -> None:
    """Raise where a model that was fitted without weights is judged with them."""
    if sample_weight is not None:
        raise ValueError(
            f"{type(model).__name__} takes no sample_weight; leave it out."
        )


def wrong_count(what: str, found: int, asked: Any) -> Claim:
    """That a model has another number of parts than its parameters ask for."""
    told = f"the model has {found} {what} where its parameters ask for {asked}"
    number = Number(abs(float(found) - float(asked)), 0.0)
    return proved("parts", number, 0.0, told, fix="fit again with these parameters")


def eigen(G: Array) -> tuple[Array, Array, float]:
    """Eigenvalues of a symmetric matrix, falling, vectors, and how far values are off.

    With R = GV − VΛ and ε = ‖VᵀV − I‖, the polar factor Q of V has QᵀGQ = Λ + F,
    ‖F‖ ≤ (‖R‖ + 2ε‖Λ‖)/(1 − ε), so each eigenvalue is that near to its own of Λ (Weyl);
    however V and Λ were found. Both norms are computed here, with their rounding.
    """
    values, V = np.linalg.eigh(G)
    d = len(G)
    size, norm = float(np.linalg.norm(G)), float(np.abs(values).max(initial=0.0))
    slip = float(np.linalg.norm(G @ V - V * values)) + gamma(d + 4) * 2 * (
        (size + norm) * math.sqrt(d)
    )
    skew = float(np.linalg.norm(V.T @ V - np.eye(d))) + gamma(d + 4) * 2 * d
    off = (slip + 2 * skew * norm) / (1 - skew) if skew < 0.5 else math.inf
    return values[::-1], V[:, ::-1], off
