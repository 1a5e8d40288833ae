"""How far a point is from the minimum of its problem: gaps and backward errors.

A dual point u = ℓ'(z), repaired so that it is feasible, gives D(u) ≤ min P, hence
P − min P ≤ P − D: the duality gap, whatever produced (w, b). Problems without a penalty
have no finite gap: least squares has a backward error instead, losses with kinks a gap
for changed data, other losses the size of the gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus import terms as t
from certus.verify import data
from certus.verify.claims import EPS, Found
from certus.verify.curvature import curvature
from certus.verify.data import Array
from certus.verify.formulas import (
    LOSSES,
    into_domain,
    one_hot,
    penalty_conjugate,
    penalty_value,
    split_penalty,
)
from certus.verify.kinks import changed, kink_dual, steepness
from certus.verify.old_slopes import sharpen
from certus.verify.problem import Problem, constant_value

#: Losses whose dual points are bounded: without a penalty they still have a bound.
LIPSCHITZ = (t.Absolute, t.Huber, t.Quantile, t.EpsilonInsensitive)
#: Losses whose slopes near a kink the verifier chooses itself.
SLOPED = (t.Hinge, t.EpsilonInsensitive)


def duality_gap(p: Problem, z: Array) -> Found:
    """(P − D) relative to the best constant model."""
    formulas, total = LOSSES[type(p.loss)], p.s.sum()
    with np.errstate(over="ignore", invalid="ignore"):
        losses = formulas.value(p.loss, p.y, z)
        u = dual_point(p, z)
        v = data.t_dot(p.X, _weighted(p.s, u)) / total
        w = p.w
        if p.intercept == "penalised":
            row = (1, *p.w.shape[1:])
            v = np.concatenate([v, np.reshape(p.scale * (p.s @ u) / total, row)])
            w = np.concatenate([w, np.reshape(p.b / p.scale, row)])
        l1, l2 = split_penalty(p.penalty)
        top = np.abs(v).max(initial=0.0)
        if l2 == 0.0 and top > l1:
            u, v = u * (l1 / top), v * (l1 / top)
        conjugates = formulas.conjugate(p.loss, p.y, u)
        omega, omega_star = penalty_value(p.penalty, w), penalty_conjugate(p.penalty, v)
        primal = (p.s @ losses) / total + omega
        dual = -(p.s @ conjugates) / total - omega_star
        gap = float(primal - dual)
        reference = constant_value(p)
    if not np.isfinite(gap):
        return Found(np.inf, 0.0)
    size = (p.s @ (np.abs(losses) + np.abs(conjugates))) / total + omega + omega_star
    rounding = EPS * (8 * float(size) + _rounding(p, z, u, w))
    return Found(*_relative(gap, rounding, reference))


def dual_point(p: Problem, z: Array) -> Array:
    """The stated u, or the slopes at z, repaired for a free intercept."""
    formulas, free = LOSSES[type(p.loss)], p.intercept == "free"
    if p.dual is not None:
        u = into_domain(p.loss, p.y, p.dual)
    elif isinstance(p.loss, t.Absolute | t.Quantile) and p.intercept != "penalised":
        u = kink_dual(p.loss, p.penalty, p.X, p.y, p.s, p.w, z, free)
    else:
        u = sharper_slopes(p, z, "quick")
    return formulas.centre(p.loss, p.y, u, p.s) if free else u


def sharper_slopes(p: Problem, z: Array, level: str) -> Array:
    """The slopes at z; near the kinks of hinge and tube, better ones."""
    u = LOSSES[type(p.loss)].derivative(p.loss, p.y, z)
    l1, l2 = split_penalty(p.penalty)
    if not isinstance(p.loss, SLOPED) or l1 or not l2 or p.intercept == "free":
        return u
    constant = p.scale if p.intercept == "penalised" else 0.0
    return sharpen(p.loss, l2, p.X, p.y, p.s, z, u, constant, level)


def backward_gap(p: Problem, z: Array) -> Found:
    """The larger of two shares: the change of X that makes u feasible, and its gap."""
    with np.errstate(over="ignore", invalid="ignore"):
        u = dual_point(p, z)
        free = p.intercept == "free"
        found = changed(p.loss, p.X, p.y, p.s, p.w.astype(float), z, u, free)
        gap = found.primal - found.dual
        rounding = EPS * (8 * found.size + _rounding(p, z, u, p.w))
        base = constant_value(p)
    if not np.isfinite(gap):
        return Found(np.inf, 0.0)
    value, allowance = _relative(gap, rounding, base)
    unit = float(np.finfo(np.float32).eps) if p.w.dtype == np.float32 else EPS
    changed_X = Found(max(value, found.share), allowance + 8 * unit * found.lift)
    # u = 0 is feasible for X itself: tight where the residuals vanish.
    at_zero = Found(*_relative(found.unchanged, rounding, base))
    return min(changed_X, at_zero, key=lambda f: f.value - f.allowance)


def stationarity(p: Problem, z: Array) -> Found:
    """The gradient's share of its natural size, for losses that are not convex."""
    slope, drift = steepness(p.loss, p.penalty, p.X, p.y, p.s, p.w.astype(float), z)
    unit = float(np.finfo(np.float32).eps) if p.w.dtype == np.float32 else EPS
    reach = float(np.abs(z).max(initial=0.0)) / max(getattr(p.loss, "delta", 1.0), EPS)
    free = p.intercept == "free"
    return Found(max(slope, drift) if free else slope, 8 * unit * max(1.0, reach))


def backward_error(p: Problem, z: Array) -> Found:
    """Smallest of two relative perturbations of X for which (w, b) is exact.

    E = −r(rᵀX)/‖r‖² makes w stationary, E = r wᵀ/‖w‖² makes it interpolate; with an
    intercept both act on the centred problem, and b must be the mean residual.
    """
    u = LOSSES[type(p.loss)].derivative(p.loss, p.y, z)
    # Weights as shares and residuals in units of the largest entry, so that squares
    # neither overflow nor vanish.
    p, total = p._replace(s=p.s / p.s.sum()), 1.0
    unit = float(np.abs(u).max(initial=0.0)) or 1.0
    u, w = u / unit, p.w / unit
    offset = float(np.abs(p.s @ u).max()) / total if p.intercept == "free" else 0.0
    if p.intercept == "free":
        u = u - (p.s @ u) / total
    norm_X = data.spread(p.X, p.s, p.intercept == "free")
    norm_u = float(np.sqrt(np.sum(_weighted(p.s, u) * u)))
    if norm_X == 0.0:
        return Found(offset, EPS)
    gradient = np.linalg.norm(data.t_dot(p.X, _weighted(p.s, u)))
    stationary = gradient / (norm_X * norm_u) if norm_u > 0 else 0.0
    norm_w = float(np.linalg.norm(w))
    interpolating = norm_u / (norm_X * norm_w) if norm_w > 0 else np.inf
    scale_y = float(np.sqrt((p.s @ np.square(p.y / unit)).max() / total))
    drift = offset / scale_y if scale_y > 0 else 0.0
    columns = data.magnitudes(p.X)
    lift = np.sqrt(total) * float(np.linalg.norm(columns)) / norm_X
    rounding = EPS * 8 * max(1.0, lift)
    if p.w.dtype == np.float32:
        rounding *= float(np.finfo(np.float32).eps) / EPS
    squared = isinstance(p.loss, t.Squared)
    smallest = min(stationary, interpolating) if squared else stationary
    return Found(float(max(smallest, drift)), rounding)


def newton_decrement(p: Problem, z: Array) -> float:
    """½ gᵀH⁻¹g: what the quadratic model says is left to gain (a likelihood)."""
    n, total = len(p.y), p.s.sum()
    d = p.X.shape[1]
    ones = np.ones((n, 1)) if p.intercept == "free" else np.empty((n, 0))
    X = p.X.toarray() if hasattr(p.X, "toarray") else np.asarray(p.X, dtype=float)
    A = np.hstack([X, ones])
    u = LOSSES[type(p.loss)].derivative(p.loss, p.y, z)
    if isinstance(p.loss, t.Softmax):
        P = u + one_hot(p.y, p.loss.n_classes)
        k, m = p.loss.n_classes, d + ones.shape[1]
        H = np.zeros((k, m, k, m))
        for a in range(k):
            for c in range(k):
                h = p.s * (P[:, a] * ((a == c) - P[:, c]))
                H[a, :, c, :] = (A * h[:, None]).T @ A
        hessian = H.reshape(k * m, k * m) / total
        gradient = (A.T @ _weighted(p.s, u) / total).T.ravel()
    else:
        h = p.s * curvature(p.loss, p.y, z)
        hessian = (A * h[:, None]).T @ A / total
        gradient = A.T @ (p.s * u) / total
    step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
    return float(gradient @ step / 2)


def measure_of(p: Problem) -> Any:
    """What is computed for a loss and penalty."""
    if isinstance(p.loss, t.Tukey):
        return stationarity
    if sum(split_penalty(p.penalty)) > 0:
        return duality_gap
    return backward_gap if isinstance(p.loss, LIPSCHITZ) else backward_error


def _rounding(p: Problem, z: Array, u: Array, w: Array) -> float:
    """Rounding of Xw and Xᵀu, in units of eps; float32 parameters count as such."""
    columns = data.magnitudes(p.X)
    if len(w) > len(columns):
        columns = np.append(columns, p.scale)
    reach = float(np.sum(columns @ np.abs(w)))
    if p.intercept == "free":
        reach += float(np.abs(p.b).max(initial=0.0)) if np.ndim(p.b) else abs(p.b)
    size_u = float(np.sqrt(np.mean(np.square(u))))
    unit = 1.0
    if p.w.dtype == np.float32:
        unit = float(np.finfo(np.float32).eps) / EPS
    return 8 * unit * reach * size_u


def _relative(gap: float, rounding: float, reference: float) -> tuple[float, float]:
    if reference <= 0.0:
        return (0.0 if gap <= rounding else np.inf), 0.0
    return max(gap, 0.0) / reference, rounding / reference


def _weighted(s: Array, u: Array) -> Array:
    return s * u if u.ndim == 1 else s[:, None] * u
