"""Mixtures of Gaussians: how far from a fixed point of EM, and whether well formed.

From the fitted θ = (π, μ, U with Σ⁻¹ = UUᵀ) the verifier takes one EM step of its own
to θ⁺ and states |L(θ⁺) − L(θ)|, L the mean log-likelihood (hard EM: of rows together
with their best component). On sampled rows the model is asked for its responsibilities
q: log p(x) = ELBO(q) + KL(q ‖ p(z|x)), so ELBO = log p(x) says that they are the
posterior. Nothing is said about other maxima: there may be higher ones.

That U belongs to Σ is judged entry by entry, |UᵀΣU − I| ≤ share·|U|ᵀ|Σ||U|: it is exact
for entries changed by that share. The products are right to γ_{2d+4} of the same bound,
however long and thin Σ is. Σ is positive definite if |UᵀΣU − I| stays below one half.
"""

from __future__ import annotations

import math
import warnings
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import xlogy

from certus.certificate import Claim, Status, Strength
from certus.evidence import MixtureWitness
from certus.verify import data
from certus.verify.covariance import eigen
from certus.verify.data import Array
from certus.verify.deciding import (
    Number,
    gamma,
    proved,
    refuse_weights,
    replayed,
    verdict,
    wrong_count,
)
from certus.verify.gaussian_step import (
    Theta,
    expect,
    level_of,
    root_of,
    spread,
    take_step,
)
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Rows asked for their responsibilities.
ASKED = 2048
#: By what share precisions may miss the inverse covariances, and by how many nats
#: responsibilities the posterior; in double and single precision.
INVERSE, POSTERIOR = (1e-6, 1e-5), (1e-9, 1e-5)
#: A variance that is regularisation for the most part, or nothing beside the data's.
FLOOR, TINY = 2.0, 1e-12
#: A drop of L, in nats, that is none; how near a run again must end; least tol.
DROP, APART, LEAST = 1e-9, 1e-3, 1e-10


class Statement(NamedTuple):
    """A fixed point of EM for a mixture of K Gaussians."""

    n_components: int
    kind: str
    hard: bool
    tol: float
    reg: float
    fix: str


def _read(model: Any) -> Statement:
    return Statement(
        int(model.n_components),
        str(model.covariance_type),
        getattr(model, "assignment", "soft") == "hard",
        float(model.tol) or LEAST,
        float(model.reg_covar),
        f"raise max_iter (now {model.max_iter}), or go on with warm_start=True",
    )


READERS = {"GaussianMixture": _read}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Check the parameters, take one step, ask for responsibilities."""
    witness, X, _, sample_weight, level, _ = given
    refuse_weights(model, sample_weight)
    X = reading.as_matrix(X)
    if sparse.issparse(X):
        raise ValueError("X is sparse; pass a dense array to a Gaussian mixture.")
    if np.ndim(model.means_) != 2 or X.shape[1] != model.means_.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns and the model was fitted on "
            f"{np.shape(model.means_)[-1]}."
        )
    n, k = len(X), len(model.means_)
    marks = data.fingerprint(X, np.zeros(n), np.ones(n))
    if k != stated.n_components:
        claims = [wrong_count("components", k, stated.n_components)]
        return claims, Status.TOL_NOT_REACHED, marks
    shaped = _shape_claim(model, stated.kind)
    if not shaped.met:
        return [_unformed(shaped, stated), shaped], Status.TOL_NOT_REACHED, marks
    means = np.asarray(model.means_, dtype=np.float64)
    roots = spread(model.precisions_cholesky_, stated.kind, *means.shape)
    theta = Theta(np.asarray(model.weights_, dtype=np.float64), means, roots)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        claims = [_gain_claim(X, theta, stated), _elbo_claim(model, X, theta), shaped]
        claims.append(_collapse_claim(model, stated, n))
        if level == "full":
            claims.append(_monotone_claim(X, theta, stated, witness))
    # A component that collapsed is a remark on a sound fit.
    return claims, verdict(claims, ("collapse", "monotone")), marks


# -- the parameters ---------------------------------------------------------------


def _is_single(values: Any) -> int:
    return int(np.asarray(values).dtype == np.float32)


def _shape_claim(model: Any, kind: str) -> Claim:
    """Weights are shares, covariances positive definite, U and P their inverses."""
    weights = np.asarray(model.weights_, dtype=np.float64)
    single = max(map(_is_single, (model.covariances_, model.precisions_cholesky_)))
    off = abs(float(weights.sum()) - 1.0)
    problem, found = "", Number(math.inf, 0.0)
    try:
        found = _inverse_error(model, kind)
    except (ValueError, np.linalg.LinAlgError) as error:
        problem = str(error)
    if not problem and (not (weights >= 0).all() or not off <= INVERSE[single]):
        problem = f"the weights are no shares: they sum to {weights.sum():.6g}"
        found = Number(math.inf, 0.0)
    return proved(
        "parameters",
        Number(float(np.max([found.value, off])), found.rounding),
        INVERSE[single],
        "weights sum to 1; covariances are positive definite, precisions their "
        "inverses",
        missed=problem
        or f"precisions are not the inverse covariances, by {found.value:.1e}",
        theorem="|UᵀΣU − I|/|U|ᵀ|Σ||U| and |UUᵀ − P|/|U||U|ᵀ, entry by entry: exact "
        "for entries changed by that share",
        fix="refit, in float64, with standardised columns",
    )


def _inverse_error(model: Any, kind: str) -> Number:
    """How far U is from a root of the inverse covariances, and P from UUᵀ."""
    k, d = np.shape(model.means_)
    names = ("covariances_", "precisions_cholesky_", "precisions_")
    parts = [spread(getattr(model, name), kind, k, d) for name in names]
    if not np.isfinite(model.means_).all():
        raise ValueError("a mean is not finite")
    if not all(np.isfinite(part).all() for part in parts):
        raise ValueError("a covariance or its inverse is not finite")
    worst, g = 0.0, gamma(2 * d + 4)
    for s, u, p in list(zip(*parts))[: 1 if kind == "tied" else k]:
        if not ((s if s.ndim == 1 else np.diag(s)) > 0).all():
            raise ValueError("a covariance is not positive definite")
        if not ((u if u.ndim == 1 else np.diag(u)) > 0).all():
            raise ValueError("the root of a precision has no positive diagonal")
        if s.ndim == 1:
            off = [np.abs(u * u * s - 1), np.abs(p / (u * u) - 1)]
        else:
            if np.tril(u, -1).any():
                raise ValueError("the root of a precision is not triangular")
            size, made = np.abs(u).T @ np.abs(s) @ np.abs(u), np.abs(u) @ np.abs(u).T
            gap = np.abs(u.T @ s @ u - np.eye(d))
            if not float(np.linalg.norm(gap + g * size)) < 0.5:
                if float(np.max(gap / (size + 1))) > 100 * g:
                    raise ValueError("precisions are not the inverse covariances")
                raise ValueError("a covariance is too near to singular to be inverted")
            size, made = (np.where(part > 0, part, 1.0) for part in (size, made))
            off = [gap / size, np.abs(u @ u.T - p) / made]
        worst = max(worst, float(np.max(off)))
    return Number(worst, g)


def _unformed(shaped: Claim, stated: Statement) -> Claim:
    lost = f"no step can be taken from parameters that are none: {shaped.detail}"
    gain = Number(math.inf, 0.0)
    return proved("step_gain", gain, stated.tol, lost, fix=shaped.fix)


# -- claims -----------------------------------------------------------------------


def _objective(hard: bool) -> str:
    if hard:
        return "mean over rows of max_k log(π_k N(x; μ_k, Σ_k))"
    return "mean over rows of log Σ_k π_k N(x; μ_k, Σ_k)"


def _gain_claim(X: Array, theta: Theta, stated: Statement) -> Claim:
    here, after = take_step(X, theta, stated.kind, stated.reg, stated.hard)
    gain, fix, tol = Number(math.inf, 0.0), stated.fix, stated.tol
    if after is None:
        missed = "one further EM step ends in a singular covariance: the likelihood "
        missed += "has no upper bound here"
        fix = f"raise reg_covar (now {stated.reg:g}), lower n_components, or use fewer "
        fix += "covariances"
    else:
        there = level_of(X, after, stated.hard)
        gain = Number(abs(there.value - here.value), here.rounding + there.rounding)
        missed = (
            f"one further EM step changes the mean log-likelihood {here.value:.6g} by "
            f"{gain.value:.1e}, above {tol:.0e}"
        )
        if math.isnan(gain.value):
            gain = Number(math.inf, 0.0)
            missed = "the log-likelihood is beyond float64's range"
            fix = "standardise the columns"
    return proved(
        "step_gain",
        gain,
        tol,
        f"one further EM step changes the mean log-likelihood {here.value:.6g} by "
        f"{gain.value:.1e}, below {tol:.0e}",
        missed=missed,
        objective=_objective(stated.hard),
        theorem="an EM step taken here, in float64; EM stands still at θ if and only "
        "if θ is a fixed point",
        fix=fix,
    )


def _elbo_claim(model: Any, X: Array, theta: Theta) -> Claim:
    """Ask for responsibilities of some rows; their ELBO must be log p(x)."""
    n = X.shape[0]
    some = np.unique(np.linspace(0, n - 1, min(n, ASKED)).astype(int))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names of columns that it misses
        q = np.asarray(model.predict_proba(X[some]))
    target, q = POSTERIOR[_is_single(q)], q.astype(np.float64)
    rows = expect(np.asarray(X[some], dtype=np.float64), theta)
    found = elbo_gap(
        q, rows.joint, rows.levels, rows.off + (rows.shares * rows.errors).sum(axis=1)
    )
    which = f"{len(some):,} of {n:,} rows"
    return proved(
        "elbo",
        found,
        target,
        f"the responsibilities sum to 1 and are the posterior, for {which}",
        missed=f"the responsibilities of some of {which} are not the posterior",
        objective="E_q log(π_z N(x; μ_z, Σ_z)/q(z)) against log p(x)",
        theorem="log p(x) = ELBO(q) + KL(q ‖ p(z|x)): equality if and only if q is "
        "the posterior",
        fix="centre and scale the columns (StandardScaler), or refit",
    )


def elbo_gap(q: Array, joint: Array, levels: Array, off: Array) -> Number:
    """The largest |log p(x) − ELBO(q)| or |Σq − 1| of rows, ``off`` known so far."""
    if q.shape != joint.shape or not (q >= 0).all():
        return Number(math.inf, 0.0)
    terms = np.where(q > 0, q * np.where(q > 0, joint, 0.0), 0.0)
    gap = np.abs(levels - (terms.sum(axis=1) - xlogy(q, q).sum(axis=1)))
    gap = np.maximum(gap, np.abs(q.sum(axis=1) - 1.0))
    sizes = np.abs(terms).sum(axis=1) + np.abs(xlogy(q, q)).sum(axis=1)
    off = off + gamma(q.shape[1] + 8) * (sizes + np.abs(levels) + 1)
    value = float(np.nan_to_num(gap, nan=np.inf).max())
    return Number(value, float((gap + off).max()) - value if value < np.inf else 0.0)


def _collapse_claim(model: Any, stated: Statement, n: int) -> Claim:
    """Components whose variance is the regularisation, or that have no rows."""
    k, d = np.shape(model.means_)
    weights = np.asarray(model.weights_, dtype=np.float64)
    means = np.asarray(model.means_, dtype=np.float64)
    sigma = spread(model.covariances_, stated.kind, k, d)
    variances = sigma if sigma.ndim == 2 else np.diagonal(sigma, axis1=1, axis2=2)
    overall = weights @ (variances + (means - weights @ means) ** 2)
    floor = max(FLOOR * stated.reg, TINY * float(overall.max()))
    least = [float(s.min()) if s.ndim == 1 else _least(s) for s in sigma]
    flat = [j for j in range(k) if not least[j] > floor]
    empty = [j for j in range(k) if weights[j] * n < 0.5]
    missed = f"{_names(empty)} less than half a row"
    if not empty and flat:
        missed = f"{_names(flat)} collapsed: a variance of {min(least):.1e} in some "
        missed += f"direction, where reg_covar is {stated.reg:.0e}"
    constant = np.flatnonzero(overall <= floor)
    fix = "lower n_components, raise reg_covar, use covariance_type='tied', or drop "
    fix += f"column {constant[0]}" if len(constant) else "copies of rows"
    return proved(
        "collapse",
        Number(float(len({*flat, *empty})), 0.0),
        0.0,
        "no component has shrunk to reg_covar or lost its rows",
        missed=missed,
        theorem="least eigenvalue of each covariance, less its rounding, and n·π_k",
        fix=fix,
    )


def _least(sigma: Array) -> float:
    values, _, off = eigen(sigma)
    return float(values[-1]) - off


def _names(which: list[int]) -> str:
    if len(which) == 1:
        return f"component {which[0]} has"
    shown = ", ".join(str(j) for j in which[:5])
    return f"components {shown}{' …' if len(which) > 5 else ''} have"


def _monotone_claim(
    X: Array, theta: Theta, stated: Statement, witness: MixtureWitness | None
) -> Claim:
    """Repeat the fit from the start it recorded, and find the largest drop."""
    if witness is None or witness.means_ is None:
        detail = "the fit recorded no start, so it cannot be repeated"
        return Claim("monotone", Strength.REFUSED, detail=detail)
    means = np.asarray(witness.means_, dtype=np.float64)
    sigma = spread(witness.covariances_, stated.kind, *means.shape)
    roots = [root for root in map(root_of, sigma) if root is not None]
    if means.shape != theta.means.shape or len(roots) < len(means):
        raise ValueError("the recorded start is no mixture of this shape.")
    now = Theta(np.asarray(witness.weights_, dtype=np.float64), means, np.stack(roots))
    levels: list[Number] = []
    for _ in range(int(witness.n_iter)):
        level, after = take_step(X, now, stated.kind, stated.reg, stated.hard)
        levels.append(level)
        if after is None:
            break
        now = after
    levels.append(level_of(X, now, stated.hard))
    end = level_of(X, theta, stated.hard).value
    return repeated(levels, end, _objective(stated.hard), exact=stated.reg == 0)


def repeated(levels: list[Number], end: float, objective: str, exact: bool) -> Claim:
    """The claim ``monotone`` of steps repeated, which should end at ``end``."""
    values = [level.value for level in levels]
    drop = max([0.0, *(a - b for a, b in pairwise(values))])
    off, apart = 2 * max(level.rounding for level in levels), abs(values[-1] - end)
    told = f"{len(levels) - 1} steps repeated from the start, {values[0]:.6g} to "
    told += f"{values[-1]:.6g}: "
    fell = f"{told}largest drop {drop:.1e}"
    claim = proved(
        "monotone",
        Number(drop, off),
        DROP,
        f"{told}no step lowers it; the model is {apart:.1e} from where they end",
        missed=fell,
        objective=objective,
        theorem="L(θ⁺) ≥ ELBO(q, θ⁺) ≥ ELBO(q, θ) = L(θ), for an exact M-step",
        fix="see that the M-step maximises E_q log p(x, z | θ)",
    )
    if exact:
        return replayed(claim, apart, APART * (1 + abs(end)))
    value = drop if drop > off else 0.0
    return Claim(
        "monotone",
        Strength.MEASURED,
        value,
        objective=objective,
        allowance=off,
        detail=fell if value else claim.detail,
    )
