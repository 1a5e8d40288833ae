"""The checker of linear models with a convex objective.

It states the model as problems, measures each (:mod:`certus.verify.gaps`), and puts the
worst into a claim: the duality gap, without a penalty a backward error or the size of
the gradient; or a refusal, where a direction shows that there is no minimiser.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus import terms as t
from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.claims import (
    backward_claim,
    backward_gap_claim,
    gap_claim,
    shape_claim,
    stationarity_claim,
)
from certus.verify.curvature import curvature
from certus.verify.data import Array
from certus.verify.domains import check_intercept
from certus.verify.formulas import describe, split_penalty
from certus.verify.gaps import (
    LIPSCHITZ,
    SLOPED,
    measure_of,
    newton_decrement,
    sharper_slopes,
)
from certus.verify.old_recession import refuse_counts
from certus.verify.old_separation import separates, separating_direction
from certus.verify.problem import Problem, problems_of, scores


def check_linear(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Judge ``coef_`` and ``intercept_`` of a linear model; the first claim is primary.

    ``evidence.params``: target ("numbers", "signs", "one_vs_rest", "codes"), intercept
    ("none", "free", "penalised"), intercept_scale, class_weight, class_counts,
    class_weight_on ("rows", "positives"), alphas, penalty_of, tol, fix.
    ``evidence.arrays``: ``dual``, one u per row (and problem), for losses with kinks.
    """
    if isinstance(evidence.terms[0], t.ZeroOne):
        raise ValueError(
            "The 0-1 loss cannot be judged: its slope vanishes almost everywhere. "
            "Judge a convex loss of the margin, such as Logistic() or Hinge()."
        )
    X = data.as_matrix(X)
    problems, s, y_used = problems_of(model, evidence, X, y, sample_weight)
    marks = data.fingerprint(X, y_used, s)
    tol = float(evidence.params.get("tol", 1e-6))
    fix = str(evidence.params.get("fix", ""))
    if not np.all(np.isfinite(data.plain(model.coef_))) or not np.all(
        np.isfinite(model.intercept_)
    ):
        claim = Claim(
            "duality_gap",
            Strength.PROVED,
            np.inf,
            tol,
            met=False,
            detail="the coefficients hold NaN or infinite values",
            fix="standardise the columns",
        )
        return [claim], Status.DIVERGED, marks
    intercept = evidence.params.get("intercept", "free")
    if wrong := check_intercept(intercept, model.intercept_):
        claim = Claim(
            "duality_gap",
            Strength.PROVED,
            np.inf,
            tol,
            met=False,
            detail=wrong,
            fix="set intercept_ to 0, or fit_intercept=True",
        )
        return [claim], Status.TOL_NOT_REACHED, marks
    primary, status = _primary_claim(problems, evidence, tol, fix, level)
    claims = [primary]
    if level == "full":
        claims += _full_claims(problems, evidence)
    claims.append(shape_claim(model, X, s, level, evidence))
    return claims, status, marks


def _primary_claim(
    problems: list[Problem], evidence: Evidence, tol: float, fix: str, level: str
) -> tuple[Claim, Status]:
    # Rows of weight zero may hold anything, also what overflows.
    zs = [_blank(scores(p), p.s > 0) for p in problems]
    found = []
    for p, z in zip(problems, zs):
        penalised = sum(split_penalty(p.penalty)) > 0
        if isinstance(p.loss, t.Logistic | t.Softmax) and not penalised:
            objective = describe(p.loss, p.penalty, p.intercept, p.scale)
            refusal = _no_minimiser(p, z, evidence, level, objective)
            if refusal is not None:
                return refusal, Status.NO_MINIMISER
        if isinstance(p.loss, t.Poisson | t.Binomial):
            refusal = refuse_counts(
                *(p.X, p.y, p.s, p.loss, p.intercept == "free", penalised),
                *(evidence.arrays.get("direction"), level == "full"),
                describe(p.loss, p.penalty, p.intercept, p.scale),
            )
            if refusal is not None:
                return refusal, Status.NO_MINIMISER
        if level == "full" and p.dual is None and isinstance(p.loss, SLOPED):
            p = p._replace(dual=sharper_slopes(p, z, level))
        found.append(measure_of(p)(p, z))
    worst = max(range(len(found)), key=lambda k: found[k].value - found[k].allowance)
    p, result = problems[worst], found[worst]
    objective = describe(p.loss, p.penalty, p.intercept, p.scale)
    if isinstance(p.loss, t.Tukey):
        far = np.abs(p.y - zs[worst]) >= p.loss.delta
        note = f"; {int(far.sum()):,} of {len(far):,} rows have no influence"
        return stationarity_claim(result, tol, objective, evidence, note, convex=False)
    if sum(split_penalty(p.penalty)) > 0:
        claim = gap_claim(result, tol, objective, fix, len(problems))
    elif isinstance(p.loss, t.Squared):
        claim = backward_claim(result, tol, objective, fix, len(problems))
    elif isinstance(p.loss, LIPSCHITZ):
        claim = backward_gap_claim(result, tol, objective, fix, len(problems))
    else:
        return stationarity_claim(result, tol, objective, evidence)
    solved = claim.strength is not Strength.REFUSED and claim.met
    return claim, Status.SOLVED if solved else Status.TOL_NOT_REACHED


def _blank(z: Array, used: Array) -> Array:
    return z if used.all() else np.where(used if z.ndim == 1 else used[:, None], z, 0.0)


def _no_minimiser(
    p: Problem, z: Array, evidence: Evidence, level: str, objective: str
) -> Claim | None:
    """A direction along which every row's loss falls or stays, if one can be shown."""
    witness = evidence.arrays.get("direction")
    candidates = [] if witness is None else [np.asarray(witness, dtype=float)]
    free = p.intercept == "free"
    candidates.append(np.vstack([p.w.reshape(p.X.shape[1], -1), np.atleast_2d(p.b)]))
    if level == "full":
        used = p.s > 0
        candidates += separating_direction(p.X[used], p.y[used], p.loss, free)
    for direction in candidates:
        if not free and np.any(direction[-1] != 0):
            continue  # it moves an intercept that the model does not have
        if separates(p.X, p.y, p.s, p.loss, direction):
            shown = direction.T.ravel() / max(float(np.abs(direction).max()), 1e-300)
            text = ", ".join(f"{v:.2g}" for v in shown[:4])
            more = ", …" if shown.size > 4 else ""
            return Claim(
                "stationarity",
                Strength.REFUSED,
                objective=objective,
                theorem="along a direction that separates the classes the likelihood "
                "rises for ever, so it has no maximum",
                detail="no minimiser exists: the classes are separated along "
                f"(w, b) ∝ ({text}{more})",
                fix="any finite C",
            )
    return None


def _full_claims(problems: list[Problem], evidence: Evidence) -> list[Claim]:
    p = problems[0]
    if isinstance(p.loss, t.Tukey):
        return [_curvature_claim(p)] if p.X.shape[1] <= 2000 else []
    penalised = sum(split_penalty(p.penalty)) > 0
    likelihood = t.Logistic | t.Softmax | t.Poisson | t.Binomial | t.Exponential
    if penalised or not isinstance(p.loss, likelihood):
        return []
    if p.X.shape[1] > 2000:
        return []
    left = newton_decrement(p, scores(p))
    return [
        Claim(
            "newton_decrement",
            Strength.MEASURED,
            left,
            detail=f"one more Newton step would gain {left:.1e}",
            objective="½ gᵀH⁻¹g",
        )
    ]


def _curvature_claim(p: Problem) -> Claim:
    """Smallest eigenvalue of the Hessian, columns in units of their own size."""
    X = p.X.toarray() if hasattr(p.X, "toarray") else np.asarray(p.X, dtype=float)
    A = np.hstack([X, np.ones((len(p.y), 1))]) if p.intercept == "free" else X
    size = np.sqrt(p.s @ np.square(A) / p.s.sum())
    scale = np.where(size > 0, size, 1.0)
    A = A / scale
    h = p.s * curvature(p.loss, p.y, scores(p))
    H = (A * h[:, None]).T @ A / p.s.sum()
    d = p.X.shape[1]
    H[range(d), range(d)] += split_penalty(p.penalty)[1] / np.square(scale[:d])
    least = float(np.linalg.eigvalsh(H)[0])
    word = "a strict local minimum" if least > 0 else "not shown to be a local minimum"
    return Claim(
        "curvature",
        Strength.MEASURED,
        least,
        detail=f"smallest curvature {least:.2g} (columns scaled): {word}",
        objective="smallest eigenvalue of the Hessian",
    )
