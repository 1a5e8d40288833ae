"""Checks of linear models with a convex objective.

P(w, b) = Σ sᵢ ℓ(yᵢ, xᵢᵀw + b) / Σ s + Ω(w). A dual point u = ℓ'(z), repaired so that it
is feasible, gives D(u) ≤ min P, hence P − min P ≤ P − D: the duality gap, whatever
produced (w, b). Problems without a penalty have no finite gap: least squares claims a
backward error instead, other losses the size of the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from certus import terms as t
from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.claims import (
    EPS,
    Found,
    backward_claim,
    backward_gap_claim,
    gap_claim,
    shape_claim,
    stationarity_claim,
)
from certus.verify.curvature import curvature
from certus.verify.data import Array
from certus.verify.formulas import (
    LOSSES,
    describe,
    into_domain,
    one_hot,
    penalty_conjugate,
    penalty_value,
    split_penalty,
)
from certus.verify.kinks import changed, kink_dual, steepness
from certus.verify.recession import refuse_counts
from certus.verify.separation import separates, separating_direction
from certus.verify.slopes import sharpen

#: Losses whose dual points are bounded: without a penalty they still have a bound.
LIPSCHITZ = (t.Absolute, t.Huber, t.Quantile, t.EpsilonInsensitive)
#: Losses whose slopes near a kink the verifier chooses itself.
SLOPED = (t.Hinge, t.EpsilonInsensitive)


class Problem(NamedTuple):
    """One convex problem and the point to judge."""

    loss: t.Loss
    penalty: t.Penalty
    X: Any
    y: Array
    s: Array
    w: Array
    b: Any
    intercept: str  # "none" | "free" | "penalised"
    scale: float = 1.0  # of the constant column when the intercept is penalised
    dual: Array | None = None  # u, where the slopes at a kink do not tell it


def scores(p: Problem) -> Array:
    """The scores z = Xw + b."""
    return data.dot(p.X, p.w) + p.b


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


def constant_value(p: Problem) -> float:
    """P of the best model that ignores X (b = 0 unless the intercept is free)."""
    value = LOSSES[type(p.loss)].value
    n, total = len(p.y), p.s.sum()
    if isinstance(p.loss, t.Softmax):
        share = np.bincount(p.y, weights=p.s, minlength=p.loss.n_classes) / total
        if p.intercept != "free":
            return float(np.log(p.loss.n_classes))
        return float(-(share[share > 0] @ np.log(share[share > 0])))
    if p.intercept != "free":
        return float((p.s @ value(p.loss, p.y, np.zeros(n))) / total)
    b = _best_constant(p)
    if not np.isfinite(b):
        return 0.0
    best = float((p.s @ value(p.loss, p.y, np.full(n, b))) / total)
    if isinstance(p.loss, t.Squared) and best <= (4 * EPS * np.abs(p.y).max()) ** 2:
        return 0.0
    return best


def _best_constant(p: Problem) -> float:
    mean = (p.s @ p.y) / p.s.sum()
    with np.errstate(divide="ignore"):
        if isinstance(p.loss, t.Squared):
            return float(mean)
        if isinstance(p.loss, t.Poisson | t.Exponential):
            return float(np.log(mean))
        if isinstance(p.loss, t.Binomial):
            return float(np.log(mean) - np.log(p.loss.trials - mean))
        if isinstance(p.loss, t.Logistic | t.ExponentialMargin):
            odds = np.log1p(mean) - np.log1p(-mean)
            return float(odds / 2 if isinstance(p.loss, t.ExponentialMargin) else odds)
    if isinstance(p.loss, t.Absolute | t.Quantile):
        order = np.argsort(p.y)
        mass = np.cumsum(p.s[order])
        q = p.loss.q if isinstance(p.loss, t.Quantile) else 0.5
        at = int(np.searchsorted(mass, q * mass[-1]))
        return float(p.y[order[min(at, len(order) - 1)]])
    # Any other loss: the derivative in b is monotone, so bisect.
    slope = LOSSES[type(p.loss)].derivative
    reach = 2 + 2 * float(np.abs(p.y).max())

    def total_slope(b: float) -> float:
        return float(p.s @ slope(p.loss, p.y, np.full(len(p.y), b)))

    if not total_slope(-reach) < 0:
        return -reach
    if not total_slope(reach) > 0:
        return reach
    return float(brentq(total_slope, -reach, reach, xtol=1e-15 * reach, maxiter=200))


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


# -- the checker ------------------------------------------------------------------


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
    if evidence.params.get("intercept") == "none" and np.any(model.intercept_):
        claim = Claim(
            "duality_gap",
            Strength.PROVED,
            np.inf,
            tol,
            met=False,
            detail="there is an intercept where none was asked for",
            fix="set intercept_ to 0, or fit_intercept=True",
        )
        return [claim], Status.TOL_NOT_REACHED, marks
    primary, status = _primary_claim(problems, evidence, tol, fix, level)
    claims = [primary]
    if level == "full":
        claims += _full_claims(problems, evidence)
    claims.append(shape_claim(model, X, s, level, evidence))
    return claims, status, marks


def problems_of(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any
) -> tuple[list[Problem], Array, Array]:
    """The model as one or several problems with a single score each, or one softmax."""
    n, params = X.shape[0], evidence.params
    target = params.get("target", "numbers")
    coef = data.plain(model.coef_)
    if coef.shape[-1] != X.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns and the model was fitted on {coef.shape[-1]}."
        )
    classes = None if target == "numbers" else np.asarray(model.classes_)
    if classes is None:
        labels = data.numbers(y, n)
    else:
        labels = data.codes(y, classes)
        if len(labels) != n:
            raise ValueError(f"y has {len(labels)} rows and X has {n}.")
    class_weight = params.get("class_weight")
    counts = params.get("class_counts", "weights")
    on_positives = params.get("class_weight_on") == "positives"
    positives = class_weight is not None and on_positives
    on_rows = None if positives else class_weight
    s = data.weights(sample_weight, on_rows, labels, classes, n, counts)
    free = params.get("intercept", "free")
    loss, penalty = evidence.terms
    common = (free, float(params.get("intercept_scale", 1.0)))
    intercept = np.asarray(model.intercept_, dtype=float)
    if target == "codes":
        b = intercept if intercept.ndim else np.full(coef.shape[0], float(intercept))
        penalty = _penalty_of(penalty, params, 0, s)
        problem = Problem(loss, penalty, X, labels, s, coef.T, b, *common)
        return [problem], s, labels.astype(float)
    if target == "signs":
        targets = np.where(labels == 1, 1.0, -1.0)[:, None]
    elif target == "one_vs_rest":
        targets = (
            2 * one_hot(labels, len(classes)) - 1 if classes is not None else labels
        )
    else:
        targets = labels.reshape(n, -1)
    outputs = coef.size // X.shape[1]
    if outputs != targets.shape[1]:
        raise ValueError(
            f"y has {targets.shape[1]} columns and the model predicts {outputs}."
        )
    coefs = coef.reshape(targets.shape[1], -1)
    intercepts = np.broadcast_to(intercept.ravel(), (targets.shape[1],))
    duals = _duals(evidence, targets.shape)
    problems = []
    for k in range(targets.shape[1]):
        y_k = np.ascontiguousarray(targets[:, k])
        s_k = s
        if positives and classes is not None:
            each = data.class_weights(class_weight, s, labels, classes, counts)
            s_k = np.where(labels == k, s * each[k], s)
        omega = _penalty_of(penalty, params, k, s_k)
        problem = Problem(
            *(loss, omega, X, y_k, s_k, coefs[k], float(intercepts[k]), *common),
            dual=duals[k],
        )
        problems.append(problem)
    return problems, s, labels.astype(float)


def _duals(evidence: Evidence, shape: tuple[int, ...]) -> list[Array | None]:
    """Column k of the evidence's ``dual`` for problem k; None where it cannot fit."""
    dual = evidence.arrays.get("dual")
    if dual is None or np.size(dual) != np.prod(shape) or not np.isfinite(dual).all():
        return [None] * shape[1]
    return list(np.asarray(dual, dtype=float).reshape(shape).T)


def _penalty_of(
    penalty: t.Penalty, params: Mapping[str, Any], k: int, s: Array
) -> t.Penalty:
    """Ω of problem k, for a loss that is a weighted mean.

    ``alphas``: one L2 level per target, as scikit-learn's Ridge allows. ``penalty_of``:
    whether Ω was stated beside the "mean", the "sum" or, as SGD does, Σ sℓ/n ("rows").
    """
    alphas = params.get("alphas")
    if alphas is not None:
        penalty = t.L2(float(alphas[k]))
    stated = params.get("penalty_of", "mean")
    if stated == "mean":
        return penalty
    factor = (1.0 if stated == "sum" else len(s)) / float(s.sum())
    return type(penalty)(*(level * factor for level in penalty))


def _primary_claim(
    problems: list[Problem], evidence: Evidence, tol: float, fix: str, level: str
) -> tuple[Claim, Status]:
    # Rows of weight zero may hold anything, also what overflows.
    zs = [_blank(scores(p), p.s > 0) for p in problems]
    found = []
    for p, z in zip(problems, zs):
        penalised = sum(split_penalty(p.penalty)) > 0
        if isinstance(p.loss, t.Logistic | t.Softmax) and not penalised:
            objective = describe(p.loss, p.penalty, p.intercept)
            refusal = _no_minimiser(p, z, evidence, level, objective)
            if refusal is not None:
                return refusal, Status.NO_MINIMISER
        if isinstance(p.loss, t.Poisson | t.Binomial):
            refusal = refuse_counts(
                *(p.X, p.y, p.s, p.loss, p.intercept == "free", penalised),
                *(evidence.arrays.get("direction"), level == "full"),
                describe(p.loss, p.penalty, p.intercept),
            )
            if refusal is not None:
                return refusal, Status.NO_MINIMISER
        if level == "full" and p.dual is None and isinstance(p.loss, SLOPED):
            p = p._replace(dual=sharper_slopes(p, z, level))
        found.append(_measure(p)(p, z))
    worst = max(range(len(found)), key=lambda k: found[k].value - found[k].allowance)
    p, result = problems[worst], found[worst]
    objective = describe(p.loss, p.penalty, p.intercept)
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


def _measure(p: Problem) -> Any:
    """What is computed for a loss and penalty."""
    if isinstance(p.loss, t.Tukey):
        return stationarity
    if sum(split_penalty(p.penalty)) > 0:
        return duality_gap
    return backward_gap if isinstance(p.loss, LIPSCHITZ) else backward_error


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
