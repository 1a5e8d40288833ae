"""Matrix factorisation: what is left to gain, from the ratings and the factors.

The problem is not convex, so "no half-step gains much" is what can be proved cheaply; a
fit by exact half-steps is told the most that another could gain, a stochastic one the
least. Level "full" adds a bound on the distance to the best of all factorisations, by
weak duality of the convex relaxation (nuclear norm), and repeats the run.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.blocks import over_blocks
from certus.verify.data import Array
from certus.verify.factorisation import (
    EPS,
    EXACT,
    Side,
    bracket,
    least,
    solve,
    spectral_norm,
)
from certus.verify.rating_entries import Explicit, Implicit, mislaid, read

#: Cells up to which a fully observed matrix is decomposed at level "full".
DENSE = 4_000_000
#: Entries below which a second thread costs more than it gains.
ALONE = 50_000
#: Without a target, a bound above this share of the objective is made tighter.
ROUGH = 0.1


def check_ratings(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Judge factors by the gain of a further half-step; more at level "full"."""
    params = evidence.params
    entries = read(model, X, y, sample_weight, params["form"] == "implicit")
    matrix = entries.by_user
    marks = np.diff(matrix.indptr).astype(np.float64)
    total = np.full(matrix.shape[0], entries.weights.sum() / matrix.shape[0])
    print_ = data.fingerprint(matrix, marks, total)
    kind: Any = Explicit if params["form"] == "explicit" else Implicit
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
        found = kind(model, params, entries)
        claims, status = _gain_claims(found, params, level)
        if level == "full":
            claims += _full_claims(found, evidence)
    return claims, status, print_


# -- claims -----------------------------------------------------------------------


def _gain_claims(found: Any, params: Any, level: str) -> tuple[list[Claim], Status]:
    sides = [found.users, found.side(1)]
    by_item = found.z
    if found.biased:  # an item's own number is c, where a user's is b
        b, c = found.point[2:]
        by_item = by_item - np.repeat(b, np.diff(sides[0].indptr)) + c[sides[0].indices]
    z = (found.z, by_item)

    def slope(one: slice) -> Array:
        k = one.start
        return sides[k].gradient(found.rows(k), z[k])

    slopes = list(over_blocks(slope, 2, 1, alone=len(found.z) < ALONE))
    if not np.isfinite(found.value) or not all(np.isfinite(g).all() for g in slopes):
        claim = Claim(
            "half_step_gain",
            Strength.REFUSED,
            objective=found.objective,
            detail="the factors or the objective are not finite",
            fix=str(params["fix"]),
        )
        return [claim], Status.DIVERGED
    stochastic = params["solver"] == "sgd"
    claim, status = (_least if stochastic else _most)(
        found, params, sides, slopes, level
    )
    fault = found.fault or mislaid(found.model, found.entries)
    if fault:
        fix = "pass the training data, or fit again"
        claim = dataclasses.replace(
            claim, strength=Strength.PROVED, met=False, detail=fault, fix=fix
        )
        status = Status.TOL_NOT_REACHED
    return [claim, _objective_claim(found), _slope_claim(found, sides, slopes)], status


def _share(found: Any, gain: float) -> float:
    return found.twice * gain / found.value if found.value > 0 else 0.0


def _most(
    found: Any, params: Any, sides: list[Side], slopes: list[Array], level: str
) -> tuple[Claim, Status]:
    """The most that an exact half-step could gain; the exact gain at level "full"."""
    tol = params["tol"]
    bar = ROUGH if tol is None else float(tol)
    ladder = (EXACT,) if level == "full" else (0, 1, 3, EXACT)
    lows, highs = [], []
    for side, g in zip(sides, slopes):
        for steps in ladder:
            gain = bracket(side, g, steps)
            low, high = _share(found, gain.low), _share(found, gain.high)
            if high <= bar or low > bar:  # decided
                break
        lows.append(low)
        highs.append(high)
    bounded = bool(np.isfinite(max(highs)))
    value = max(highs) if bounded else max(lows)
    allowance = 1e3 * EPS
    met = None if tol is None else bool(value <= tol + allowance)
    asked = "" if tol is None else f" (asked for {tol:.0e})"
    most = "at most" if bounded else "about"
    claim = Claim(
        "half_step_gain",
        Strength.PROVED if bounded else Strength.MEASURED,
        float(value),
        tol,
        met if bounded else None,
        found.objective,
        "with the items fixed the objective is a quadratic of each user, and the other "
        "way round: ½gᵀH⁻¹g is what an exact solve gains, as a share of the objective",
        ("the problem is not convex: a better factorisation may exist",),
        None,
        allowance,
        f"solving all users or all items again gains {most} {value:.1e}{asked}",
        "" if met is not False else str(params["fix"]),
    )
    return claim, Status.TOL_NOT_REACHED if met is False else Status.SOLVED


def _least(
    found: Any, params: Any, sides: list[Side], slopes: list[Array], level: str
) -> tuple[Claim, Status]:
    """The least that solving all users exactly would gain."""
    if level == "full":
        gain = bracket(sides[0], slopes[0], EXACT).low
    else:
        gain = least(sides[0], slopes[0])
    value = _share(found, gain)
    diverged = bool(params.get("diverged"))
    detail = (
        f"solving all users exactly would lower the objective by {value:.1e} or more"
    )
    if diverged:
        detail = f"the objective exploded, the best epoch was kept; {detail}"
    claim = Claim(
        "remaining_gain",
        Strength.PROVED,
        float(value),
        objective=found.objective,
        theorem="the gain of one step along d, at most that of the exact solve",
        assumptions=("stochastic steps of fixed size stop short of the minimum",),
        allowance=1e3 * EPS,
        detail=detail,
        fix="lower learning_rate" if diverged else "",
    )
    return claim, Status.DIVERGED if diverged else Status.SOLVED


def _objective_claim(found: Any) -> Claim:
    n, nnz = found.size, found.entries.by_user.nnz
    share = found.value / n if n > 0 else 0.0
    return Claim(
        "objective",
        Strength.MEASURED,
        found.value,
        detail=f"objective {found.value:.6g} over {nnz:,} entries, {share:.3g} of that "
        "of factors that are zero",
    )


def _slope_claim(found: Any, sides: list[Side], slopes: list[Array]) -> Claim:
    """The gradient, as a share of the largest that such residuals and factors allow."""
    errors = np.linalg.norm(sides[0].curve * found.z - sides[0].pull)
    sizes = []
    for k, side in enumerate(sides):
        own = side.scale[:, None] * (found.rows(k) @ side.penalty)
        sizes += [errors * np.linalg.norm(side.Y), np.linalg.norm(own)]
    top = max(sizes)  # as ratios, whose squares stay within float64's range
    value = 0.0
    if 0 < top < np.inf:
        norm = np.linalg.norm([np.linalg.norm(g) / top for g in slopes])
        value = float(norm / np.linalg.norm(np.array(sizes) / top))
    return Claim(
        "stationarity",
        Strength.MEASURED,
        value,
        theorem="at a local minimum the gradient vanishes; the problem is not convex",
        detail=f"gradient is {value:.1e} of its natural size",
    )


# -- level "full" -----------------------------------------------------------------


def _full_claims(found: Any, evidence: Evidence) -> list[Claim]:
    claims = []
    if isinstance(found, Explicit):
        claims.append(_global_claim(found))
    if evidence.params["solver"] != "sgd" and not found.fault:
        claims.append(_replay_claim(found, evidence))
    return claims


def _replay_claim(found: Any, evidence: Evidence) -> Claim:
    """Exact half-steps from the recorded start: none may raise the objective."""
    point = found.start(evidence)
    value = found.value_at(point, found.side(0, point).products(found.rows(0, point)))
    rise, rounds = 0.0, int(evidence.params["n_iter"])
    for step in range(2 * rounds):
        k = step % 2
        point = found.moved(point, k, solve(found.side(k, point)))
        z = found.side(0, point).products(found.rows(0, point))
        now = found.value_at(point, z)
        rise = max(rise, (now - value) / value if value > 0 else 0.0)
        value = now
    allowance = 1e-10
    met = rise <= allowance
    apart = (found.value - value) / value if value > 0 else 0.0
    end = f"{abs(apart):.1e} {'below' if apart > 0 else 'above'} this model"
    if abs(apart) <= 1e-9:
        end = "where this model is"
    return Claim(
        "monotone",
        Strength.PROVED,
        max(0.0, rise),
        0.0,
        bool(met),
        "",
        "an exact solve of one side cannot raise the objective",
        allowance=allowance,
        detail=f"{2 * rounds} exact half-steps from the start never rise, and end {end}"
        if met
        else f"a half-step raised the objective by {rise:.1e}",
    )


def _global_claim(found: Explicit) -> Claim:
    """How far above the best of all factorisations the objective can be."""
    best, proved, why = _lower_bound(found)
    if best is None:
        return Claim("global_gap", Strength.REFUSED, detail=why)
    gap = (found.value - best) / found.size if found.size > 0 else 0.0
    value = float(max(gap, 0.0))
    return Claim(
        "global_gap",
        Strength.PROVED if proved else Strength.MEASURED,
        value,
        theorem=why,
        allowance=1e4 * EPS,
        detail=f"no factorisation is better by more than {value:.1e} of ½Σ s(x − μ)²",
    )


def _lower_bound(found: Explicit) -> tuple[float | None, bool, str]:
    """A number below the objective of every factorisation, if it is proved, and why."""
    matrix = found.entries.by_user
    n, m = matrix.shape
    w, z, b = (float(p) for p in found.params["penalties"])
    whole = matrix.nnz == n * m <= DENSE and np.ptp(found.entries.weights) == 0
    if whole and not found.biased and found.params["scale"] == "rows":
        each = float(found.entries.weights[0])
        sizes = np.linalg.svd(matrix.toarray(), compute_uv=False)
        kept = np.zeros(len(sizes))
        K = found.point[0].shape[1]
        bar = np.sqrt(w * z) / each
        kept[:K] = np.maximum(sizes[:K] - bar, 0.0)
        best = each * float(np.sum(0.5 * (sizes - kept) ** 2 + bar * kept))
        return best, True, "the minimum is the soft-thresholded singular values (SVD)"
    if w * z == 0 or (found.biased and b == 0):
        return None, False, "without a penalty on every part no bound is known"
    s, users = found.entries.weights, np.repeat(np.arange(n), np.diff(matrix.indptr))
    rest = found.values - found.z
    if found.biased:
        rest = rest - found.point[3][matrix.indices]
    U = s * rest
    scale = np.sqrt(w * z * found.scale[0][users] * found.scale[1][matrix.indices])
    A = sparse.csr_matrix((U / scale, matrix.indices, matrix.indptr), (n, m))
    norm, proved = spectral_norm(A)
    slope = float(U @ found.values)
    curve = float(U @ rest)
    if found.biased:
        for places, rho in zip((users, matrix.indices), found.scale):
            sums = np.bincount(places, U, minlength=len(rho))
            curve += float(np.sum(sums**2 / rho)) / b
    t = 1.0 if curve <= 0 else slope / curve
    t = max(0.0, min(t, 1.0 / norm if norm > 0 else t))
    return (
        t * slope - 0.5 * t * t * curve,
        proved,
        "weak duality of the convex relaxation, ½(λ_w‖W‖² + λ_z‖Z‖²) ≥ "
        "√(λ_wλ_z)‖WZᵀ‖_*: residuals of spectral norm √(λ_wλ_z) are feasible",
    )
