"""Mixtures of Gaussians: distance from a fixed point of EM, and valid parameters.

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
from typing import NamedTuple

import numpy as np

from certus.certificate import Claim, Status, Strength
from certus.evidence import MixtureWitness
from certus.typing import Array, Fit
from certus.verify import climbing, data, deciding, stating
from certus.verify import gaussian_step as em
from certus.verify.block_moments import with_workers
from certus.verify.block_rows import BlockRows
from certus.verify.covariance import eigen
from certus.verify.deciding import Number, gamma, proved
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given, Refusal

#: Rows asked for their responsibilities.
ASKED = 2048
#: By what share precisions may miss the inverse covariances, and by how many nats
#: responsibilities the posterior; in double and single precision.
INVERSE, POSTERIOR = (1e-6, 1e-5), (1e-9, 1e-5)
#: A variance that is regularisation for the most part, or nothing beside the data's.
FLOOR, TINY = 2.0, 1e-12
_FORMULAS = {
    False: "mean over rows of log Σ_k π_k N(x; μ_k, Σ_k)",
    True: "mean over rows of max_k log(π_k N(x; μ_k, Σ_k))",
}


class Statement(NamedTuple):
    """A fixed point of EM for a mixture of K Gaussians."""

    n_components: int
    kind: str
    hard: bool
    tol: float
    reg: float
    fix: str


def _read(model: Fit) -> Statement:
    kind = model.covariance_type
    if kind not in em.shapes(1, 1):
        raise Refusal(f"covariance_type={kind!r} is unknown", "fit again")
    return Statement(
        *(int(model.n_components), kind),
        getattr(model, "assignment", "soft") == "hard",
        float(model.tol) or climbing.LEAST,
        float(model.reg_covar),
        f"raise max_iter (now {model.max_iter}), or continue with warm_start=True",
    )


READERS = {"GaussianMixture": _read}


class Parts(NamedTuple):
    """The parameters of a mixture, with one covariance for each component."""

    theta: em.Theta
    covariances: Array
    precisions: Array
    single: int  # whether some of it is float32


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Check the parameters, take one step, ask for responsibilities."""
    witness, X, _, sample_weight, level, _ = given
    deciding.refuse_weights(model, sample_weight)
    over = BlockRows(X) if stating.by_address(X) else None
    X = over or reading.as_matrix(X)
    n, d = X.shape
    k = len(data.fitted(model, "means_", (None, d)))
    if over is None:
        rows = data.dense(reading.as_matrix(given.X))
        marks = data.fingerprint(rows, np.zeros(n), np.ones(n))
        X = rows
    else:
        marks = over.marks
    if k != stated.n_components:
        claims = [deciding.wrong_count("components", k, stated.n_components)]
        return claims, Status.TOL_NOT_REACHED, marks
    kept, shapes = data.fitted(model, "covariances_").shape, em.shapes(k, d)
    if kept != shapes[stated.kind] and kept in shapes.values():
        told = f"the covariances do not have covariance_type={stated.kind!r}"
        claims = [proved("parts", Number(1.0), 0.0, told, fix="fit again")]
        return claims, Status.TOL_NOT_REACHED, marks
    parts = _parts(model, stated.kind, k, d)
    with np.errstate(all="ignore"):
        shaped = _shape_claim(parts)
        if not shaped.met:
            told = f"no EM step can be taken from these parameters: {shaped.detail}"
            lost = Number(math.inf)
            gain = proved("step_gain", lost, stated.tol, told, fix=shaped.fix)
            return [gain, shaped], Status.TOL_NOT_REACHED, marks
        theta = parts.theta
        claims = [_gain_claim(X, theta, stated), _elbo_claim(model, X, theta), shaped]
        claims.append(_collapse_claim(parts, stated, n))
        if level == "full":
            claims.append(_monotone_claim(X, theta, stated, witness))
    # A collapsed component is only a remark about a valid fit.
    status = deciding.verdict(claims, ("collapse", "monotone"))
    if over is None:
        return claims, status, marks
    return *with_workers(claims, status, over.again, over.blocks), over.marks


def _parts(model: Fit, kind: str, k: int, d: int) -> Parts:
    names = ("covariances_", "precisions_cholesky_", "precisions_")
    found = [data.fitted(model, name, em.shapes(k, d)[kind]) for name in names]
    sigma, roots, precisions = (em.spread(part, kind, k, d) for part in found)
    weights = data.fitted(model, "weights_", (k,)).astype(float)
    single = int(any(part.dtype == np.float32 for part in found[:2]))
    theta = em.Theta(weights, np.asarray(model.means_, dtype=float), roots)
    return Parts(theta, sigma, precisions, single)


# -- the parameters ---------------------------------------------------------------


def _shape_claim(parts: Parts) -> Claim:
    """Weights are shares, covariances positive definite, U and P their inverses."""
    weights, means, roots = parts.theta
    total, d = float(weights.sum()), means.shape[1]
    s, u, p = (
        part.reshape(-1, 1, 1) if part.ndim == 2 else part  # diagonals, one by one
        for part in (parts.covariances, roots, parts.precisions)
    )
    g, ut = gamma(2 * d + 4), u.transpose(0, 2, 1)
    size, made = np.abs(ut) @ np.abs(s) @ np.abs(u), np.abs(u) @ np.abs(ut)
    gap, back = np.abs(ut @ s @ u - np.eye(len(s[0]))), np.abs(u @ ut - p)
    off = max(abs(total - 1.0), _largest(gap, size), _largest(back, made))
    far = np.linalg.norm(gap + g * size, axis=(1, 2)).max() >= 0.5
    shares = (weights >= 0).all() and abs(total - 1) <= INVERSE[parts.single]
    problems = {
        "a mean is not finite": not np.isfinite(means).all(),
        "a covariance or its inverse is not finite": not np.isfinite(s + u + p).all(),
        "a covariance is not positive definite": (_diagonals(s) <= 0).any(),
        "a Cholesky factor has no positive diagonal": (_diagonals(u) <= 0).any(),
        "a Cholesky factor of a precision is not triangular": np.tril(u, -1).any(),
        "precisions are not the inverse covariances": far
        and (gap / (size + 1)).max() > 100 * g,
        "a covariance is too close to singular to be inverted": far,
        f"the weights must sum to 1, but sum to {total:.6g}": not shares,
    }
    problem = next((text for text, bad in problems.items() if bad), "")
    return proved(
        *("parameters", Number(math.inf) if problem else Number(off, g)),
        INVERSE[parts.single],
        "weights sum to 1; covariances are positive definite, precisions their "
        "inverses",
        missed=problem or f"precisions are not the inverse covariances, by {off:.1e}",
        theorem="|UᵀΣU − I|/|U|ᵀ|Σ||U| and |UUᵀ − P|/|U||U|ᵀ, entry by entry: exact "
        "for entries changed by that share",
        fix="refit, in float64, with standardised columns",
    )


def _largest(gap: Array, size: Array) -> float:
    return float((gap / np.where(size > 0, size, 1.0)).max())


def _diagonals(matrices: Array) -> Array:
    return np.diagonal(matrices, axis1=1, axis2=2)


# -- claims -----------------------------------------------------------------------


def _gain_claim(X: Array | BlockRows, theta: em.Theta, stated: Statement) -> Claim:
    here, after = em.take_step(X, theta, stated.kind, stated.reg, stated.hard)
    formula, fix = _FORMULAS[stated.hard], stated.fix
    if after is not None:
        there = em.level_of(X, after, stated.hard)
        if math.isnan(there.value - here.value):
            fix = "standardise the columns"
        return climbing.step_gain(here, there, stated.tol, formula, fix)
    told = "another EM step gives a singular covariance: the likelihood has no "
    told += "upper bound here"
    fix = f"raise reg_covar (now {stated.reg:g}), lower n_components, or use fewer "
    fix += "covariances"
    words = {"objective": formula, "fix": fix}
    return proved("step_gain", Number(math.inf), stated.tol, told, **words)


def _elbo_claim(model: Fit, X: Array | BlockRows, theta: em.Theta) -> Claim:
    """Ask for responsibilities of some rows; their ELBO must be log p(x)."""
    n = X.shape[0]
    if isinstance(X, BlockRows):
        asked = X.some(ASKED)
    else:
        asked = X[np.unique(np.linspace(0, n - 1, min(n, ASKED)).astype(int))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names of columns that it misses
        q = np.asarray(model.predict_proba(asked))
    rows = em.expect(np.asarray(asked, dtype=np.float64), theta)
    off = rows.off + (rows.shares * rows.errors).sum(axis=0)
    found = climbing.elbo_gap(q.astype(np.float64), rows.joint.T, rows.levels, off)
    which = f"{len(asked):,} of {n:,} rows"
    return proved(
        *("elbo", found, POSTERIOR[int(q.dtype == np.float32)]),
        f"the responsibilities sum to 1 and are the posterior, for {which}",
        missed=f"the responsibilities of some of {which} are not the posterior",
        objective="E_q log(π_z N(x; μ_z, Σ_z)/q(z)) against log p(x)",
        theorem=climbing.ELBO,
        fix="centre and scale the columns (StandardScaler), or refit",
    )


def _collapse_claim(parts: Parts, stated: Statement, n: int) -> Claim:
    """Components whose variance is the regularisation, or that have no rows."""
    (weights, means, _), sigma = parts.theta, parts.covariances
    variances = sigma if sigma.ndim == 2 else _diagonals(sigma)
    overall = weights @ (variances + (means - weights @ means) ** 2)
    floor = max(FLOOR * stated.reg, TINY * float(overall.max()))
    least = variances.min(axis=1)
    if sigma.ndim == 3:
        found = [eigen(each) for each in sigma]
        least = np.array([values[-1] - off for values, _, off in found])
    flat, empty = np.flatnonzero(~(least > floor)), np.flatnonzero(weights * n < 0.5)
    which, told = empty, "less than half a row"
    if not len(empty):
        which, told = flat, f"collapsed: a variance of {least.min():.1e} in some "
        told += f"direction, where reg_covar is {stated.reg:.0e}"
    have = "has" if len(which) == 1 else "have"
    constant = np.flatnonzero(overall <= floor)
    fix = "lower n_components, raise reg_covar, use covariance_type='tied', or drop "
    fix += f"column {constant[0]}" if len(constant) else "copies of rows"
    return proved(
        *("collapse", Number(float(len({*flat, *empty}))), 0.0),
        "no component has collapsed to reg_covar or lost its rows",
        missed=f"{data.named('component', which)} {have} {told}",
        theorem="smallest eigenvalue of each covariance minus its rounding, and n·π_k",
        fix=fix,
    )


def _monotone_claim(
    X: Array | BlockRows,
    theta: em.Theta,
    stated: Statement,
    witness: MixtureWitness | None,
) -> Claim:
    """Repeat the fit from the start it recorded, and find the largest drop."""
    if witness is None or witness.means_ is None or witness.covariances_ is None:
        detail = "the fit did not record its start, so it cannot be repeated"
        return Claim("monotone", Strength.REFUSED, detail=detail)
    means = np.asarray(witness.means_, dtype=np.float64)
    sigma = em.spread(witness.covariances_, stated.kind, *means.shape)
    roots = [root for root in map(em.root_of, sigma) if root is not None]
    if means.shape != theta.means.shape or len(roots) < len(means):
        raise ValueError("the recorded start is not a mixture of this shape.")
    now = em.Theta(np.asarray(witness.weights_, float), means, np.stack(roots))
    levels: list[Number] = []
    for _ in range(int(witness.n_iter)):
        level, after = em.take_step(X, now, stated.kind, stated.reg, stated.hard)
        levels.append(level)
        if after is None:
            break
        now = after
    levels.append(em.level_of(X, now, stated.hard))
    apart = abs(levels[-1].value - em.level_of(X, theta, stated.hard).value)
    exact = stated.reg == 0
    return climbing.repeated(levels, apart, _FORMULAS[stated.hard], exact=exact)
