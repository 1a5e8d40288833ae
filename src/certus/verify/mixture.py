"""Mixtures of Gaussians: how far from a fixed point of EM, and whether well formed.

From the fitted θ = (π, μ, U with Σ⁻¹ = UUᵀ) the verifier takes one EM step of its own
to θ⁺ and states |L(θ⁺) − L(θ)|, L the mean log-likelihood (hard EM: of rows together
with their best component). On sampled rows the model is asked for its responsibilities
q: log p(x) = ELBO(q) + KL(q ‖ p(z|x)), so ELBO = log p(x) says that they are the
posterior. Nothing is said about other maxima: there may be higher ones.
"""

from __future__ import annotations

import math
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import xlogy

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.data import Array
from certus.verify.gaussian_step import (
    EPS,
    Theta,
    level_of,
    log_joint,
    posterior,
    spread,
    start_of,
    take_step,
)

#: Rows asked for their responsibilities.
ASKED = 2048
#: How far precisions may be from the inverse covariances; rounding above which nothing
#: can be said.
INVERSE, BLURRED = 1e-6, 1e-2
#: Nats by which responsibilities may differ from the posterior.
POSTERIOR = 1e-9
#: A variance that is regularisation for the most part, or nothing beside the data's.
FLOOR, TINY = 2.0, 1e-12


def check_mixture(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Check the parameters, take one step, ask for responsibilities."""
    X = data.as_matrix(X)
    if sparse.issparse(X):
        raise ValueError("X is sparse; pass a dense array to a Gaussian mixture.")
    if np.ndim(model.means_) != 2 or X.shape[1] != model.means_.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns and the model was fitted on "
            f"{np.shape(model.means_)[-1]}."
        )
    n = X.shape[0]
    marks = data.fingerprint(X, np.zeros(n), np.ones(n))
    kind = str(evidence.params["covariance_type"])
    shaped = _shape_claim(model, kind)
    if not shaped.met:
        return [_unformed(shaped), shaped], Status.TOL_NOT_REACHED, marks
    theta = _theta(model, kind)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        gain = _gain_claim(X, theta, kind, evidence)
        claims = [gain, _elbo_claim(model, X, theta), shaped]
        claims.append(_collapse_claim(model, kind, evidence, n))
        if level == "full":
            claims.append(_monotone_claim(X, theta, kind, evidence))
    # What is missed leads; a component that collapsed is a remark on a sound fit.
    claims.sort(key=lambda claim: claim.met is not False or claim.name == "collapse")
    met = claims[0].met is not False
    return claims, Status.SOLVED if met else Status.TOL_NOT_REACHED, marks


# -- the parameters ---------------------------------------------------------------


def _theta(model: Any, kind: str) -> Theta:
    means = np.asarray(model.means_, dtype=np.float64)
    roots = spread(model.precisions_cholesky_, kind, *means.shape)
    return Theta(np.asarray(model.weights_, dtype=np.float64), means, roots)


def _shape_claim(model: Any, kind: str) -> Claim:
    """Weights are shares, covariances positive definite, U and P their inverses."""
    problem = ""
    try:
        found = _inverse_error(model, kind)
    except (ValueError, np.linalg.LinAlgError) as error:
        found, problem = (np.inf, 0.0), str(error)
    value, allowance = found
    weights = np.asarray(model.weights_, dtype=np.float64)
    off = abs(float(weights.sum()) - 1.0)
    limit = 16 * len(weights) * _eps_of(model.weights_)
    if not problem and (not (weights >= 0).all() or not off <= limit):
        problem = f"the weights are no shares: they sum to {weights.sum():.6g}"
    if not problem and not value <= INVERSE + allowance:
        problem = f"precisions are not the inverse covariances, by {value:.1e}"
    met = not problem
    return Claim(
        "parameters",
        Strength.PROVED,
        float(np.max([value, off])),
        INVERSE,
        met,
        theorem="each root inverted, multiplied out, and compared with its covariance",
        allowance=float(max(allowance, limit)),
        detail=problem
        or "weights sum to 1; covariances are positive definite, precisions their "
        "inverses",
        fix="" if met else "refit, in float64, with standardised columns",
    )


def _eps_of(values: Any) -> float:
    dtype = np.asarray(values).dtype
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else EPS


def _inverse_error(model: Any, kind: str) -> tuple[float, float]:
    """How far covariances are from those of U, and P from UUᵀ; what rounding explains.

    Entries are compared in units of the deviations of their row and column. U inverted
    and multiplied out again differs by rounding times the root of the condition number.
    """
    k, d = np.shape(model.means_)
    if not np.isfinite(model.means_).all():
        raise ValueError("a mean is not finite")
    sigma = spread(model.covariances_, kind, k, d)
    root = spread(model.precisions_cholesky_, kind, k, d)
    precision = spread(model.precisions_, kind, k, d)
    each = 1 if kind == "tied" else k
    if not all(np.isfinite(part).all() for part in (sigma, root, precision)):
        raise ValueError("a covariance or its inverse is not finite")
    eps = max(map(_eps_of, (model.covariances_, model.precisions_cholesky_)))
    worst, allowance = 0.0, 0.0
    for s, u, p in zip(sigma[:each], root[:each], precision[:each]):
        if not ((s if s.ndim == 1 else np.diag(s)) > 0).all():
            raise ValueError("a covariance is not positive definite")
        if not ((u if u.ndim == 1 else np.diag(u)) > 0).all():
            raise ValueError("the root of a precision has no positive diagonal")
        if s.ndim == 1:
            off = [np.abs(u * u * s - 1), np.abs(p / (u * u) - 1)]
            allowance = max(allowance, 8 * eps)
        else:
            if np.tril(u, -1).any():
                raise ValueError("the root of a precision is not triangular")
            unit = 1 / np.sqrt(np.diag(s))
            lower = np.linalg.inv(u.T) * unit[:, None]
            off = [np.abs(lower @ lower.T - s * unit * unit[:, None])]
            made = u @ u.T
            length = np.sqrt(np.diag(made))
            off.append(np.abs(made - p) / length / length[:, None])
            eigen = np.linalg.eigvalsh(s * unit * unit[:, None])
            if not eigen[0] > 0:
                raise ValueError("a covariance is not positive definite")
            allowance = max(allowance, 32 * d * eps * math.sqrt(eigen[-1] / eigen[0]))
        worst = max(worst, float(np.max(off)))
    if not allowance < BLURRED:
        raise ValueError("a covariance is too near to singular to be inverted")
    return worst, allowance


def _unformed(shaped: Claim) -> Claim:
    return Claim(
        "step_gain",
        Strength.PROVED,
        np.inf,
        0.0,
        False,
        detail=f"no step can be taken from parameters that are none: {shaped.detail}",
        fix=shaped.fix,
    )


# -- claims -----------------------------------------------------------------------


def _objective(hard: bool) -> str:
    if hard:
        return "mean over rows of max_k log(π_k N(x; μ_k, Σ_k))"
    return "mean over rows of log Σ_k π_k N(x; μ_k, Σ_k)"


def _gain_claim(X: Array, theta: Theta, kind: str, evidence: Evidence) -> Claim:
    params = evidence.params
    hard = params.get("assignment") == "hard"
    tol = float(params["tol"])
    step = take_step(X, theta, kind, float(params["reg_covar"]), hard)
    allowance = 64 * EPS * (1 + abs(step.level) + X.shape[1])
    fix = str(params.get("fix", ""))
    gain = math.inf
    if step.theta is None:
        detail = (
            "one further EM step ends in a singular covariance: the likelihood has no "
            "upper bound here"
        )
        reg = float(params["reg_covar"])
        fix = f"raise reg_covar (now {reg:g}), lower n_components, or use fewer "
        fix += "covariances"
    else:
        gain = abs(level_of(X, step.theta, hard) - step.level)
        detail = (
            f"one further EM step changes the mean log-likelihood {step.level:.6g} by "
            f"{gain:.1e}, {'below' if gain <= tol + allowance else 'above'} {tol:.0e}"
        )
    if math.isnan(gain):
        gain, detail = math.inf, "the log-likelihood is beyond float64's range"
        fix = "standardise the columns"
    met = gain <= tol + allowance
    return Claim(
        "step_gain",
        Strength.PROVED,
        float(gain),
        tol,
        bool(met),
        objective=_objective(hard),
        theorem="an EM step taken here, in float64; EM stands still at θ if and only "
        "if θ is a fixed point",
        allowance=allowance,
        detail=detail,
        fix="" if met else fix,
    )


def _elbo_claim(model: Any, X: Array, theta: Theta) -> Claim:
    """Ask for responsibilities of some rows; their ELBO must be log p(x)."""
    n = X.shape[0]
    some = np.unique(np.linspace(0, n - 1, min(n, ASKED)).astype(int))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names of columns that it misses
        q = np.asarray(model.predict_proba(X[some]))
    eps, q = _eps_of(q), q.astype(np.float64)
    joint = log_joint(np.asarray(X[some], dtype=np.float64), theta)
    level, _ = posterior(joint, hard=False)
    if q.shape != joint.shape:
        gap = np.full(len(some), np.inf)
    else:
        expected = np.where(q > 0, q * np.where(q > 0, joint, 0.0), 0.0).sum(axis=1)
        gap = np.abs(level - (expected - xlogy(q, q).sum(axis=1)))
        gap = np.maximum(gap, np.abs(q.sum(axis=1) - 1.0))
    limit = 64 * eps * joint.shape[1] * (1 + np.abs(level))
    met = bool(np.max(gap - limit) <= POSTERIOR)
    which = f"{len(some):,} of {n:,} rows"
    return Claim(
        "elbo",
        Strength.PROVED,
        float(np.nan_to_num(np.max(gap), nan=np.inf)),
        POSTERIOR,
        met,
        objective="E_q log(π_z N(x; μ_z, Σ_z)/q(z)) against log p(x)",
        theorem="log p(x) = ELBO(q) + KL(q ‖ p(z|x)): equality if and only if q is "
        "the posterior",
        allowance=float(np.max(limit)),
        detail=f"the responsibilities sum to 1 and are the posterior, for {which}"
        if met
        else f"the responsibilities of some of {which} are not the posterior",
        fix="" if met else "centre and scale the columns (StandardScaler), or refit",
    )


def _collapse_claim(model: Any, kind: str, evidence: Evidence, n: int) -> Claim:
    """Components whose variance is the regularisation, or that have no rows."""
    k, d = np.shape(model.means_)
    reg = float(evidence.params["reg_covar"])
    weights = np.asarray(model.weights_, dtype=np.float64)
    means = np.asarray(model.means_, dtype=np.float64)
    sigma = spread(model.covariances_, kind, k, d)
    variances = sigma if sigma.ndim == 2 else np.diagonal(sigma, axis1=1, axis2=2)
    centre = weights @ means
    overall = weights @ (variances + (means - centre) ** 2)
    floor = max(FLOOR * reg, TINY * float(overall.max()))
    least = [float(s.min() if s.ndim == 1 else np.linalg.eigvalsh(s)[0]) for s in sigma]
    flat = [j for j in range(k) if not least[j] > floor]
    empty = [j for j in range(k) if weights[j] * n < 0.5]
    bad = sorted({*flat, *empty})
    detail = "no component has shrunk to reg_covar or lost its rows"
    if empty:
        detail = f"{_names(empty)} less than half a row"
    elif flat:
        detail = (
            f"{_names(flat)} collapsed: a variance of {min(least):.1e} in some "
            f"direction, where reg_covar is {reg:.0e}"
        )
    constant = np.flatnonzero(overall <= floor)
    fix = "lower n_components, raise reg_covar, use covariance_type='tied', or drop "
    fix += f"column {constant[0]}" if len(constant) else "copies of rows"
    return Claim(
        "collapse",
        Strength.PROVED,
        float(len(bad)),
        0.0,
        not bad,
        theorem="least eigenvalue of each covariance, and n·π_k",
        detail=detail,
        fix=fix if bad else "",
    )


def _names(which: list[int]) -> str:
    if len(which) == 1:
        return f"component {which[0]} has"
    shown = ", ".join(str(j) for j in which[:5])
    return f"components {shown}{' …' if len(which) > 5 else ''} have"


def _monotone_claim(X: Array, theta: Theta, kind: str, evidence: Evidence) -> Claim:
    """Repeat the fit from the start it recorded, and find the largest drop."""
    params = evidence.params
    if "means_" not in evidence.arrays:
        detail = "the fit recorded no start, so it cannot be repeated"
        return Claim("monotone", Strength.REFUSED, detail=detail)
    hard, reg = params.get("assignment") == "hard", float(params["reg_covar"])
    now = start_of(evidence.arrays, kind)
    levels: list[float] = []
    for _ in range(int(params["n_iter"])):
        step = take_step(X, now, kind, reg, hard)
        levels.append(step.level)
        if step.theta is None:
            break
        now = step.theta
    levels.append(level_of(X, now, hard))
    drop = max((a - b for a, b in pairwise(levels)), default=0.0)
    drop = max(0.0, drop)
    allowance = 64 * EPS * (1 + max(map(abs, levels)) + X.shape[1])
    off = abs(levels[-1] - level_of(X, theta, hard))
    rises = "no step lowers it" if drop <= allowance else f"largest drop {drop:.1e}"
    return Claim(
        "monotone",
        Strength.PROVED if reg == 0 else Strength.MEASURED,
        drop if drop > allowance else 0.0,
        0.0 if reg == 0 else None,
        bool(drop <= allowance) if reg == 0 else None,
        objective=_objective(hard),
        theorem="L(θ⁺) ≥ ELBO(q, θ⁺) ≥ ELBO(q, θ) = L(θ), for an exact M-step",
        allowance=allowance,
        detail=f"{len(levels) - 1} steps repeated from the start, {levels[0]:.6g} to "
        f"{levels[-1]:.6g}: {rises}; the model is {off:.1e} from where they end",
    )
