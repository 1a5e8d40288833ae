"""Non-negative factors, X ≈ WH: how much a further update of one factor could gain.

    P(W, H) = ½‖X − WH‖² + a‖W‖₁ + ½b‖W‖² + a'‖H‖₁ + ½b'‖H‖²,      W, H ≥ 0

The problem in both is not convex, and nothing is said about its global minimum. In each
factor alone it is, row by row of W (column by column of H). With G = HHᵀ, B = XHᵀ and
any shift t ≥ 0 along a fixed direction c > 0, the dual point x − (w + tc)H gives

    P(w) − min P  ≤  ½wGw − B·w + a·Σw + ½(w + tc)G(w + tc)

once t is large enough for B − (w + tc)G ≤ a; with b > 0 no shift is needed. Other
divergences than the squared error have their stationarity measured.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.data import Array

EPS = float(np.finfo(np.float64).eps)
#: Products WH below this are raised to it, as scikit-learn does.
FLOOR = float(np.finfo(np.float32).eps)
GLOBAL = "the other factor held fixed; the global minimum is not spoken of"


class Penalty(NamedTuple):
    """a·‖·‖₁ + ½·b·‖·‖² of one factor."""

    l1: float
    l2: float


class Gradient(NamedTuple):
    """∂P/∂H as a difference of two positive parts, and a curvature for each entry."""

    plus: Array
    minus: Array
    curvature: Array


def check_nonnegative(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Judge H of the model, with W as the model itself gives it for these rows."""
    X = data.as_matrix(X)
    if sample_weight is not None:
        raise ValueError("NMF has no sample_weight; leave it out.")
    marks = data.fingerprint(X, np.zeros(X.shape[0]), np.ones(X.shape[0]))
    H = _factor(model.components_)
    if H.shape[1] != X.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns and the model was fitted on {H.shape[1]}."
        )
    if (X.data if sparse.issparse(X) else X).min(initial=0.0) < 0:
        raise ValueError("X holds negative values; NMF was not fitted on these.")
    # With no component left there is nothing to transform by.
    W = _factor(model.transform(X) if H.any() else np.zeros((X.shape[0], len(H))))
    if W.shape != (X.shape[0], len(H)):
        raise ValueError("The factors do not fit together. Fit the model again.")
    params = evidence.params
    tol, fix = float(params["tol"]), str(params.get("fix", ""))
    on_W = Penalty(*params["on_W"])
    on_H = Penalty(*(X.shape[0] * float(p) for p in params["on_H_per_row"]))
    beta = float(params["beta"])
    gradient = _gradient(X, W, H, beta)
    measured = _stationarity_claim(gradient, H, on_H, tol, beta)
    if beta != 2.0:
        near = measured.value is not None and measured.value <= tol
        status = Status.SOLVED if near else Status.TOL_NOT_REACHED
        return [measured], status, marks
    whole = 0.5 * _squares(X)
    claims = [
        _gap_claim("components_gap", "H", gap(X.T, W.T, H.T, on_H), whole, tol, fix),
        _gap_claim("weights_gap", "W", gap(X, H, W, on_W), whole, tol, fix),
        measured,
        _error_claim(model, X, W, H, whole),
    ]
    solved = all(claim.met is not False for claim in claims)
    claims.sort(key=lambda claim: claim.met is not False)
    return claims, Status.SOLVED if solved else Status.TOL_NOT_REACHED, marks


def _factor(F: Any) -> Array:
    F = np.asarray(F, dtype=np.float64)
    if F.ndim != 2 or not np.isfinite(F).all() or F.min(initial=0.0) < 0:
        raise ValueError("A factor is negative or not finite. Fit the model again.")
    return F


def _squares(X: Any) -> float:
    values = X.data if sparse.issparse(X) else np.asarray(X).ravel()
    values = values.astype(np.float64, copy=False)
    return float(values @ values)


# -- squared error: one factor is a convex problem ----------------------------------


class Gap(NamedTuple):
    """P − D of one factor, and the rounding granted."""

    value: float
    allowance: float


def gap(X: Any, H: Array, W: Array, penalty: Penalty) -> Gap:
    """Bound on P(W) − min over W ≥ 0 of P, for H fixed; sums over the rows of W.

    Examples
    --------
    >>> import numpy as np
    >>> H = np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> W = np.array([[1.0, 2.0]])
    >>> round(gap(W @ H, H, W, Penalty(0.0, 0.0)).value, 12)
    0.0
    """
    G, B = H @ H.T, data.dot(X, H.T)
    fit, inner = W @ G, np.einsum("ik,ik->i", B, W)
    own = np.einsum("ik,ik->i", fit, W)
    excess = B - fit - penalty.l1
    cost = penalty.l1 * W.sum(axis=1)
    if penalty.l2 > 0:
        cost += 0.5 * penalty.l2 * np.square(W).sum(axis=1)
        above = np.square(np.maximum(excess, 0.0)).sum(axis=1)
        rows = own - inner + cost + above / (2 * penalty.l2)
    else:
        used = np.diag(G) > 0  # a component of zeros asks for nothing
        c = np.where(used, 1.0 / np.sqrt(np.where(used, np.diag(G), 1.0)), 0.0)
        slope = np.where(used, G @ c, np.inf)
        t = np.maximum(excess / slope, 0.0).max(axis=1, initial=0.0)
        moved = W + t[:, None] * c
        dual = 0.5 * np.einsum("ik,ik->i", moved @ G, moved)
        rows = 0.5 * own - inner + cost + dual
    allowance = 8 * EPS * (len(G) + 8) * float((own + np.abs(inner) + cost).sum())
    return Gap(float(rows.sum()), allowance)


def _gap_claim(
    name: str, factor: str, found: Gap, whole: float, tol: float, fix: str
) -> Claim:
    size = whole if whole > 0 else 1.0
    value, allowance = max(found.value, 0.0) / size, found.allowance / size
    met = bool(value <= tol + allowance)
    detail = f"the best {factor} for the other factor gains at most {value:.1e}"
    if not met:
        detail = f"the best {factor} for the other factor may gain {value:.2g}"
    return Claim(
        name,
        Strength.PROVED,
        float(value),
        tol,
        met,
        "(P − D)/½‖X‖²,  P = ½‖X − WH‖² + penalties,  over the rows of one factor",
        "weak duality: P − min P ≤ P − D for every feasible dual point",
        (GLOBAL,),
        None,
        float(allowance),
        f"{detail} of ½‖X‖² (asked for {tol:.0e})",
        "" if met else fix,
    )


def _error_claim(model: Any, X: Any, W: Array, H: Array, whole: float) -> Claim:
    inner = float(np.einsum("ik,ik->", data.dot(X, H.T), W))
    own = float(np.einsum("ij,ji->", W.T @ W, H @ H.T))
    error = float(np.sqrt(max(2 * whole - 2 * inner + own, 0.0)))
    stated = float(getattr(model, "reconstruction_err_", np.nan))
    return Claim(
        "reconstruction",
        Strength.MEASURED,
        error,
        objective="‖X − WH‖, W as transform gives it",
        detail=f"‖X − WH‖ is {error:.4g}; the model stated {stated:.4g}",
    )


# -- any divergence: stationarity ---------------------------------------------------


def _gradient(X: Any, W: Array, H: Array, beta: float) -> Gradient:
    """Slopes in H of the β-divergence of X from WH, a block of rows at a time."""
    if beta == 2.0:
        curvature = np.square(W).sum(axis=0)[:, None] * np.ones(H.shape)
        return Gradient(W.T @ W @ H, data.t_dot(X, W).T, curvature)
    plus, minus, curvature = (np.zeros(H.shape) for _ in range(3))
    rows = max(1, (1 << 20) // max(1, H.shape[1]))
    X = X.tocsr() if sparse.issparse(X) else X
    for i in range(0, X.shape[0], rows):
        block, w = X[i : i + rows], W[i : i + rows]
        block = block.toarray() if sparse.issparse(block) else block
        fit = np.maximum(w @ H, FLOOR)
        plus += w.T @ fit ** (beta - 1)
        minus += w.T @ (block * fit ** (beta - 2))
        curvature += np.square(w).T @ fit ** (beta - 2)
    return Gradient(plus, minus, curvature)


def _stationarity_claim(
    gradient: Gradient, H: Array, penalty: Penalty, tol: float, beta: float
) -> Claim:
    """How far one scaled and projected gradient step would move H."""
    slope = gradient.plus - gradient.minus + penalty.l1 + penalty.l2 * H
    curvature = gradient.curvature + penalty.l2
    safe = np.where(curvature > 0, curvature, 1.0)
    step = H - np.maximum(H - np.where(curvature > 0, slope / safe, 0.0), 0.0)
    size = float(np.sum(curvature * np.square(H)))
    moved = float(np.sum(curvature * np.square(step)))
    value = float(np.sqrt(moved / size)) if size > 0 else float(moved > 0)
    return Claim(
        "stationarity",
        Strength.MEASURED,
        value,
        tol,
        objective=f"projected gradient step in H, β-divergence with β = {beta:g}",
        theorem="at a local minimum no such step moves H; the problem is not convex",
        detail=f"a projected gradient step would move H by {value:.1e} of its size",
    )
