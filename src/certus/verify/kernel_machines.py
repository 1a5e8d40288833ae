"""Checks of kernel machines.

    P(f, b) = Σ sᵢ ℓ(yᵢ, f(xᵢ) + b) / Σs + ½λ‖f‖²,      f = Σⱼ cⱼ k(·, xⱼ)

The coefficients c are themselves a dual point: uᵢ = −λ·Σs·cᵢ/sᵢ. Moved into its domain
it gives another function f', and Fenchel–Young gives the gap as a sum without
cancellation, P − D = Σ s(ℓ + ℓ* − uz)/Σs + ½λ‖f − f'‖². One pass over the kernel values
of all rows with the support vectors computes everything, block by block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus import terms as t
from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.claims import Found, gap_claim
from certus.verify.data import Array
from certus.verify.domains import check_intercept, check_kernel_term
from certus.verify.formulas import LOSSES, into_domain
from certus.verify.gram import (
    diagonal,
    given_matrix,
    positive_by_form,
    products,
    smallest_eigenpair,
)
from certus.verify.kernel_margin import hard_margin, interpolation, perceptron
from certus.verify.machines import (
    Machine,
    Scores,
    kernel_text,
    machines_of,
    scores_of,
    stored_otherwise,
)
from certus.verify.problem import Problem, constant_value

EPS = float(np.finfo(np.float64).eps)
#: Rows up to which a matrix of unknown sign is looked into at level "quick", "full".
LOOK = {"quick": 2_000, "full": 6_000}
#: A negative eigenvalue smaller than this share of the trace is rounding.
SHARE = 1e-10

Checked = tuple[list[Claim], Status, dict[str, Any]]


def check_kernel(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> Checked:
    """Judge ``dual_coef_`` and ``intercept_`` of a kernel machine.

    ``evidence.terms``: loss, penalty (beside the sum of losses), kernel.
    ``evidence.params``: machine ("gap", "perceptron"), target ("numbers", "signs",
    "one_vs_one", "one_vs_rest"), intercept ("free", "none"), class_weight,
    class_counts, alphas, tol, fix. ``evidence.arrays``: ``eigenvector``, ``hulls``.
    """
    kernel = evidence.terms[2]
    looked_up = isinstance(kernel, t.Given)  # X becomes the matrix of its values
    if looked_up:
        X, kernel = given_matrix(kernel, X), t.Precomputed()
    check_kernel_term(kernel)
    X = data.as_matrix(X)
    if isinstance(kernel, t.Precomputed) and X.shape[0] != X.shape[1]:
        raise ValueError(
            f"X has shape {X.shape}; a precomputed kernel is a square matrix, one row "
            "and one column for each training row."
        )
    machines, s, labels, support = machines_of(model, evidence, X, y, sample_weight)
    marks = data.fingerprint(X, labels, s)
    tol, fix = (
        float(evidence.params.get("tol", 1e-6)),
        str(evidence.params.get("fix", "")),
    )
    refusal = _not_positive(kernel, X, evidence, level)
    if refusal is not None:
        return [refusal], Status.NO_MINIMISER, marks
    if not all(np.isfinite(p.c).all() and np.isfinite(p.b) for p in machines):
        claim = _useless(
            tol,
            "the coefficients hold NaN or infinite values",
            "scale the data, or choose a milder kernel",
        )
        return [claim], Status.DIVERGED, marks
    adds_up = evidence.params.get("machine") == "perceptron"  # its b is checked there
    kind = evidence.params.get("intercept", "free")
    other = "" if adds_up else check_intercept(kind, [p.b for p in machines])
    if not other and not looked_up:
        other = stored_otherwise(model, X, support, labels)
    if other:
        claim = _useless(tol, other, "pass the X of the fit, or fit again")
        return [claim], Status.TOL_NOT_REACHED, marks
    if adds_up:
        claims, status = perceptron(kernel, X, machines, support, evidence)
    else:
        claims, status = _gaps(kernel, X, machines, support, evidence, tol, fix)
    if not positive_by_form(kernel) and X.shape[0] > LOOK[level]:
        note = "the kernel matrix is positive semidefinite (too large to look into)"
        claims[0] = _assuming(claims[0], note)
    used = len(np.unique(support))
    detail = f"{used:,} of {X.shape[0]:,} rows carry the model"
    claims.append(Claim("support", Strength.MEASURED, float(used), detail=detail))
    return claims, status, marks


def _useless(tol: float, detail: str, fix: str) -> Claim:
    """The target is missed, whatever the numbers say."""
    values = {"met": False, "detail": detail, "fix": fix}
    return Claim("duality_gap", Strength.PROVED, np.inf, tol, **values)  # type: ignore[arg-type]


def _assuming(claim: Claim, note: str) -> Claim:
    values = {**claim.__dict__, "assumptions": (*claim.assumptions, note)}
    return Claim(**values)


# -- the gap ----------------------------------------------------------------------


def _dual_point(p: Machine, support: Array, n: int) -> tuple[Array, Array]:
    """U on the rows of the problem, repaired, and the coefficients that go with it."""
    everywhere = np.bincount(support, weights=p.c, minlength=n)
    c = everywhere[p.rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        u = np.where(p.s > 0, -p.level * c / p.s, 0.0)
    u = into_domain(p.loss, p.y, u)
    if p.free:
        u = LOSSES[type(p.loss)].centre(p.loss, p.y, u, p.s)
    repaired = np.zeros(n)
    repaired[p.rows] = -p.s * u / p.level
    return u, repaired[support]


def _gaps(
    kernel: t.Kernel,
    X: Any,
    machines: list[Machine],
    support: Array,
    evidence: Evidence,
    tol: float,
    fix: str,
) -> tuple[list[Claim], Status]:
    n = X.shape[0]
    if isinstance(evidence.terms[1], t.NoPenalty):
        if isinstance(evidence.terms[0], t.Hinge):
            return hard_margin(kernel, X, machines, support, evidence, tol, fix)
        return interpolation(kernel, X, machines, support, tol, fix)
    points = [_dual_point(p, support, n) for p in machines]
    scores = scores_of(kernel, X, machines, support, [c for _, c in points])
    largest = float(np.sqrt(np.abs(diagonal(kernel, X)).max(initial=0.0))) or 1.0
    found = [
        _gap(p, u, score, largest) for p, (u, _), score in zip(machines, points, scores)
    ]
    worst = max(range(len(found)), key=lambda k: found[k].value - found[k].allowance)
    objective = describe(machines[worst], kernel)
    claim = gap_claim(found[worst], tol, objective, fix, len(machines))
    solved = claim.strength is not Strength.REFUSED and claim.met
    return [claim], Status.SOLVED if solved else Status.TOL_NOT_REACHED


def _gap(p: Machine, u: Array, score: Scores, largest: float) -> Found:
    """(P − D) relative to the best constant model, and the rounding granted."""
    formulas, total = LOSSES[type(p.loss)], float(p.s.sum())
    z = score.z + p.b
    losses, conjugates = (
        formulas.value(p.loss, p.y, z),
        formulas.conjugate(p.loss, p.y, u),
    )
    excess = losses + conjugates - u * z
    gap = float(p.s @ excess) / total + p.level / total * score.apart / 2
    size = float(p.s @ (np.abs(losses) + np.abs(conjugates) + np.abs(u * z))) / total
    # Each score is a sum of c·k: its rounding, seen through u.
    reach = float(np.abs(p.c).sum()) * largest**2 + abs(p.b)
    seen = float(p.s @ np.abs(u)) / total
    rounding = EPS * (8 * size + 8 * reach * seen)
    blank = np.zeros(0)
    intercept = "free" if p.free else "none"
    constant = Problem(p.loss, t.NoPenalty(), None, p.y, p.s, blank, 0.0, intercept)
    reference = constant_value(constant)
    if not np.isfinite(gap):
        return Found(np.inf, 0.0)
    if reference <= 0.0:
        return Found(0.0 if gap <= rounding else np.inf, 0.0)
    return Found(max(gap, 0.0) / reference, rounding / reference)


def describe(p: Machine, kernel: t.Kernel) -> str:
    """The objective as one line of text."""
    text = LOSSES[type(p.loss)].text.format(**p.loss._asdict())
    score = "z = f(x) + b" if p.free else "z = f(x)"
    level = p.level / float(p.s.sum())
    return f"{text} + ½·{level:.4g}·‖f‖²,  {score},  {kernel_text(kernel)}"


# -- matrices that are not kernels ------------------------------------------------


def _not_positive(
    kernel: t.Kernel, X: Any, evidence: Evidence, level: str
) -> Claim | None:
    """A vector v with vᵀKv < 0, given or found, if the kernel's form leaves room."""
    if positive_by_form(kernel):
        return None
    trace = float(np.abs(diagonal(kernel, X)).sum())
    witness = evidence.arrays.get("eigenvector")
    value = 0.0
    if witness is not None and np.shape(witness) == (X.shape[0],):
        v = np.asarray(witness, dtype=float)
        v = v / (np.linalg.norm(v) or 1.0)
        everything = np.arange(X.shape[0])
        value = float(v @ products(kernel, X, everything, v[:, None])[:, 0])
    if not value < -SHARE * trace:
        if X.shape[0] > LOOK[level]:
            return None
        value, asymmetry = smallest_eigenpair(kernel, X, SHARE * trace)
        if asymmetry > 1e-8 * max(trace, 1e-300):
            return Claim(
                "duality_gap",
                Strength.REFUSED,
                detail="the kernel matrix is not symmetric, so it is no kernel",
                fix="symmetrise it, or use a kernel of certus.terms",
            )
    if not value < -SHARE * trace:
        return None
    return Claim(
        "duality_gap",
        Strength.REFUSED,
        theorem="Mercer: k is a kernel only if every matrix of its values is positive "
        "semidefinite; along a vector with vᵀKv < 0 the penalty has no lower bound",
        detail="no minimiser exists: the kernel matrix is not positive semidefinite "
        f"(vᵀKv = {value:.2g} for a unit vector v)",
        fix="another kernel, or other parameters of it (see mercer_check)",
    )
