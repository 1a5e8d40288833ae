"""How what the verifier finds about a linear model is put into claims.

Each function turns a number and the rounding granted to it into one claim: whether the
target is met, the sentence, the theorem behind it, and what would help.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.data import Array

EPS = float(np.finfo(np.float64).eps)
#: Beyond this much rounding, relative to the constant model, nothing can be said.
UNTELLABLE = 1e-3


class Found(NamedTuple):
    """A number, the rounding granted to it, and which claim it is."""

    value: float
    allowance: float


def is_met(found: Found, tol: float) -> bool:
    """Whether the value is below the target, rounding granted."""
    return bool(found.value <= tol + found.allowance)


def untellable(found: Found) -> bool:
    """Rounding is large, and the value does not stand out from it."""
    hidden = found.value <= 10 * found.allowance
    return bool(np.isfinite(found.value) and found.allowance > UNTELLABLE and hidden)


def gap_claim(
    found: Found,
    tol: float,
    objective: str,
    fix: str,
    k: int,
    base: str = "P(best constant model)",
) -> Claim:
    """The claim ``duality_gap``; ``k`` problems were judged and this is the worst."""
    note = f"duality gap of  {objective}"
    if k > 1:
        note += f"  (the worst of {k} targets)"
    if untellable(found):
        return Claim(
            "duality_gap",
            Strength.REFUSED,
            found.value,
            tol,
            objective=note,
            allowance=found.allowance,
            detail=f"rounding alone may be {found.allowance:.1e} of the objective: the "
            "columns are too badly scaled to tell",
            fix="centre and scale the columns (StandardScaler)",
        )
    met = is_met(found, tol)
    asked = f"(asked for {tol:.0e})"
    if met:
        close = f"{found.value:.1e}" if found.value >= 1e-16 else "rounding"
        detail = f"within {close} of the minimum {asked}"
    else:
        detail = f"may be {found.value:.2g} above the minimum {asked}"
    return Claim(
        "duality_gap",
        Strength.PROVED,
        found.value,
        tol,
        met,
        note,
        "weak duality: P(w, b) − min P ≤ P(w, b) − D(u) for every feasible u; as a "
        f"share of {base}",
        (),
        None,
        found.allowance,
        detail,
        "" if met else fix,
    )


def backward_gap_claim(
    found: Found, tol: float, objective: str, fix: str, k: int
) -> Claim:
    """The claim ``backward_gap`` of a problem without a penalty."""
    claim = gap_claim(found, tol, objective, fix, k)
    met = claim.strength is not Strength.REFUSED and claim.met
    close = f"{found.value:.1e}" if found.value >= 1e-16 else "rounding"
    detail = f"minimal within {close} for data within {close} of yours"
    if not met:
        detail = (
            f"may be {found.value:.2g} above the minimum of data {found.value:.2g} "
            "away from yours"
        )
    return dataclasses.replace(
        claim,
        name="backward_gap",
        objective=claim.objective.replace("duality gap", "backward gap", 1),
        theorem="P(w, b) − min P ≤ value·P(best constant model) for the data X + E, "
        "where ‖E‖ ≤ value·‖X‖ (columns centred) makes the dual point feasible",
        detail=claim.detail
        if claim.strength is Strength.REFUSED
        else f"{detail} (asked for {tol:.0e})",
    )


def backward_claim(found: Found, tol: float, objective: str, fix: str, k: int) -> Claim:
    """The claim ``backward_error`` of least squares."""
    note = f"backward error of  {objective}"
    if k > 1:
        note += f"  (the worst of {k} targets)"
    if untellable(found):
        return Claim(
            "backward_error",
            Strength.REFUSED,
            found.value,
            tol,
            objective=note,
            allowance=found.allowance,
            detail=f"rounding alone may be {found.allowance:.1e} of X: its columns are "
            "nearly constant",
            fix="centre and scale the columns (StandardScaler)",
        )
    met = is_met(found, tol)
    if met:
        detail = (
            f"exact for data within {found.value:.1e} of yours (asked for {tol:.0e})"
        )
    else:
        detail = (
            f"exact only for data {found.value:.2g} away from yours "
            f"(asked for {tol:.0e})"
        )
    return Claim(
        "backward_error",
        Strength.PROVED,
        found.value,
        tol,
        met,
        note,
        "the coefficients are the exact least-squares solution for X + E and y + e, "
        "where ‖E‖ ≤ value·‖X‖ (columns centred) and e is a constant, ‖e‖ ≤ value·‖y‖",
        (),
        None,
        found.allowance,
        detail,
        "" if met else fix,
    )


def stationarity_claim(
    found: Found,
    tol: float,
    objective: str,
    evidence: Evidence,
    note: str = "",
    convex: bool = True,
) -> tuple[Claim, Status]:
    """The claim ``stationarity``; REFUTED where a stated witness does not hold."""
    theorem = "a convex function is minimal where its gradient vanishes"
    if not convex:
        theorem = "at a local minimum the gradient vanishes; the loss is not convex"
    claim = Claim(
        "stationarity",
        Strength.MEASURED,
        found.value,
        tol,
        objective=f"gradient of  {objective}",
        theorem=theorem,
        allowance=found.allowance,
        detail=f"gradient is {found.value:.1e} of its natural size "
        f"(asked for {tol:.0e}){note}",
        fix="" if is_met(found, tol) else str(evidence.params.get("fix", "")),
    )
    refuted = "direction" in evidence.arrays  # a witness was stated and does not hold
    if refuted:
        return claim, Status.REFUTED
    return claim, Status.SOLVED if is_met(found, tol) else Status.TOL_NOT_REACHED


def shape_claim(model: Any, X: Any, s: Array, level: str, evidence: Evidence) -> Claim:
    """How many coefficients are used; at level full rank and condition number."""
    coef = data.plain(model.coef_)
    d = coef.shape[-1]
    used = int(np.count_nonzero(np.abs(coef.reshape(-1, d)).max(axis=0)))
    detail = f"{used:,} of {d:,} coefficients non-zero"
    if level == "full" and d <= 2000 and not hasattr(X, "toarray"):
        centred = evidence.params.get("intercept", "free") == "free"
        A = np.asarray(X, dtype=float) * np.sqrt(s)[:, None]
        if centred:
            A = A - np.outer(np.sqrt(s), s @ np.asarray(X, dtype=float) / s.sum())
        sizes = np.linalg.svd(A, compute_uv=False)
        rank = int(np.sum(sizes > sizes.max(initial=0.0) * max(A.shape) * EPS))
        if rank:
            detail += (
                f", rank {rank}, condition number {sizes[0] / sizes[rank - 1]:.2g}"
            )
        return Claim("shape", Strength.MEASURED, float(rank), detail=detail)
    return Claim("shape", Strength.MEASURED, float(used), detail=detail)
