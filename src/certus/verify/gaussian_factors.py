"""Checks of factor analysis and probabilistic PCA: what a further step would gain.

    mean log-likelihood = −½(d·log 2π + log det Σ + tr Σ⁻¹S),   Σ = WWᵀ + Ψ

with S the covariance about the model's mean, recomputed here in one pass. With
M = I + WᵀΨ⁻¹W, log det Σ = log det Ψ + log det M and Σ⁻¹ = Ψ⁻¹ − Ψ⁻¹W M⁻¹WᵀΨ⁻¹. A step
of EM has B = Σ⁻¹W, W' = SB(I − WᵀB + BᵀSB)⁻¹ and Ψ' = diag(S − W'BᵀS), for
probabilistic PCA the mean of that diagonal. W = 0 and other saddles keep EM at rest, so
a step ends with the best W for its noise, from eigenvectors of Ψ^(−1/2) S Ψ^(−1/2).
For probabilistic PCA the largest likelihood there is follows from the eigenvalues of S.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.covariance import EIGEN, EPS, Spread, covariance_about
from certus.verify.data import Array

#: Noise is not looked for below this share of a column's variance.
FLOOR = 1e-12
#: Columns with less noise than this share of their variance are Heywood cases.
HEYWOOD = 5e-3
#: Rounding of a mean log-likelihood above which it tells nothing, in nats.
BLURRED = 1e-6


class Point(NamedTuple):
    """W (d × k) and the noise of each column."""

    W: Array
    noise: Array


class Setting(NamedTuple):
    """The columns that vary, in their own units: their deviations, or one for all.

    Units change the likelihood by a constant and no step; they keep numbers comparable.
    """

    S: Spread  # about the model's mean
    centred: Spread  # about the mean
    point: Point
    inside: Array
    units: Array
    isotropic: bool
    constant: float  # what the units, and columns left aside, add to the mean

    def put(self, W: Array, noise: Array) -> Point:
        """A point of all columns as one of these."""
        u = 1 / self.units
        return Point(W[self.inside] * u[:, None], noise[self.inside] * u * u)


def check_gaussian_factors(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Judge W, Ψ and the mean.

    ``evidence.params``: noise ("diagonal" or "isotropic"), tol, log_likelihood (of all
    rows, as stated), steps, saturated (a factor for every column), fix.
    ``evidence.arrays``: where the steps began, ``start`` (noise) and, for probabilistic
    PCA, ``start_components``.
    """
    X = data.as_matrix(X)
    mean, point = _read(model, X)
    n = X.shape[0]
    marks = data.fingerprint(X, np.zeros(n), np.ones(n))
    if not all(np.isfinite(part).all() for part in (mean, *point)):
        detail = "the parameters hold NaN or infinite values"
        return [_gain_claim(math.inf, 0.0, evidence, detail)], Status.DIVERGED, marks
    spread, shift = covariance_about(X, mean)
    varies = spread.diagonal > np.square(16 * EPS * np.abs(mean))
    isotropic = evidence.params.get("noise") == "isotropic"
    positive = _noise_claim(point, spread, varies, isotropic)
    if not positive.met:
        detail = "no likelihood: a noise variance is not positive"
        claims = [_gain_claim(math.inf, 0.0, evidence, detail), positive]
        return claims, Status.TOL_NOT_REACHED, marks
    here = _setting(spread, shift, point, varies, isotropic)
    value, rounding = log_likelihood(here.S, here.point)
    unit = np.finfo(np.asarray(model.components_).dtype).eps
    stated = _stated_claim(value + here.constant, evidence, n, float(unit), rounding)
    after, more = _further(here)
    rise, allowance = n * (after - value), n * (rounding + more)
    gain = _gain_claim(rise, allowance, evidence)
    tol = float(evidence.params.get("tol", 0.0))
    if rounding > BLURRED and rounding * n > tol:
        flat = _is_flat(here.centred)
        if flat or gain.met:
            # A factor for every column is scikit-learn's default: no warning.
            lost = Status.NO_MINIMISER if flat else Status.TOL_NOT_REACHED
            status = Status.SOLVED if evidence.params.get("saturated") else lost
            return [_refusal(here, flat, allowance), stated, positive], status, marks
    claims = [gain, stated, positive]
    if isotropic and min(X.shape) <= EIGEN:
        claims.insert(0, _gap_claim(here, value, n, rounding, evidence))
    if level == "full":
        claims.append(_ascent_claim(here, evidence))
    claims.sort(key=lambda claim: claim.met is not False)  # what is missed leads
    met = claims[0].met is not False
    return claims, Status.SOLVED if met else Status.TOL_NOT_REACHED, marks


def _read(model: Any, X: Any) -> tuple[Array, Point]:
    W = np.asarray(data.plain(model.components_), dtype=np.float64).T
    mean = np.asarray(model.mean_, dtype=np.float64)
    noise = np.asarray(model.noise_variance_, dtype=np.float64)
    d = X.shape[1]
    if W.ndim != 2 or W.shape[0] != d or mean.shape != (d,):
        raise ValueError(
            f"X has {d} columns and the model was fitted on {mean.shape[0]}."
        )
    if noise.shape not in ((), (d,)):
        raise ValueError(f"noise_variance_ has shape {noise.shape}; expected ({d},).")
    return mean, Point(W, np.broadcast_to(noise, d).copy())


def _setting(
    spread: Spread, shift: Array, point: Point, varies: Array, isotropic: bool
) -> Setting:
    inside = np.ones_like(varies) if isotropic else varies
    own: Array = spread.diagonal[inside]
    if isotropic:
        own = np.full_like(own, own.mean())
    units = np.sqrt(np.where(own > 0, own, 1.0))
    S = spread.scaled(1 / units, inside)
    aside, noise = spread.diagonal[~inside], point.noise[~inside]
    constant = len(inside) * math.log(2 * math.pi) + 2 * np.log(units).sum()
    constant += (np.log(noise) + aside / noise).sum()
    centred = S.about_the_mean(shift[inside] / units)
    moved = Setting(S, centred, point, inside, units, isotropic, float(-0.5 * constant))
    return moved._replace(point=moved.put(*point))


# -- likelihood and step ----------------------------------------------------------


def _axes(point: Point) -> tuple[Array, Array, Array]:
    """U, f and V of Ψ^(−1/2)W = U diag(f) Vᵀ: Σ⁻¹ without squares of small noise."""
    U, f, Vt = np.linalg.svd(point.W / np.sqrt(point.noise)[:, None], False)
    return U, f, Vt.T


def log_likelihood(S: Spread, point: Point) -> tuple[float, float]:
    """−½(log det Σ + tr Σ⁻¹S), and the rounding in it."""
    noise = point.noise
    U, f, _ = _axes(point)
    B = U / np.sqrt(noise)[:, None]
    own = S.diagonal / noise
    inner = np.einsum("ij,ij->j", B, S.times(B))
    explained = float((inner * (f**2 / (1 + f**2))).sum())
    logs = float(np.log1p(f**2).sum())
    total = np.log(noise).sum() + logs + own.sum() - explained
    sizes = np.abs(np.log(noise)).sum() + logs + own.sum() + explained
    return float(-0.5 * total), float(4 * EPS * sizes)


def em_step(S: Spread, point: Point, isotropic: bool, floor: Array) -> Point:
    """One step of EM; noise at ``floor`` or below stays there."""
    U, f, V = _axes(point)
    B = (U / np.sqrt(point.noise)[:, None] * (f / (1 + f**2))) @ V.T  # Σ⁻¹W
    SB = S.times(B)
    factors = (V / (1 + f**2)) @ V.T + B.T @ SB  # I − WᵀB + BᵀSB
    new = np.linalg.lstsq(factors, SB.T, rcond=None)[0].T
    rest = S.diagonal - np.einsum("ij,ij->i", new, SB)
    if isotropic:
        rest = np.full_like(rest, rest.mean())
    return Point(new, np.maximum(rest, floor))


def best_loadings(S: Spread, noise: Array, k: int) -> Point:
    """The best W for given noise."""
    root = np.sqrt(noise)
    values, V = S.scaled(1 / root).eigen()
    W = V[:, :k] * np.sqrt(np.maximum(values[:k] - 1.0, 0.0)) * root[:, None]
    return Point(W, noise)


def largest_likelihood(S: Spread, k: int) -> tuple[float, float]:
    """The largest −½(log det Σ + tr Σ⁻¹S) with equal noise, and the rounding in it."""
    d = len(S.diagonal)
    values = np.maximum(S.eigen()[0], 0.0)
    top = values[:k]
    noise = (S.diagonal.sum() - top.sum()) / (d - k) if k < d else values[d - 1]
    noise = max(float(noise), FLOOR)
    logs = np.log(np.maximum(top, noise)).sum() + (d - len(top)) * math.log(noise)
    lost = EPS * d * float(values[0]) / noise  # of small eigenvalues beside large ones
    return float(-0.5 * (logs + d)), float(4 * EPS * (abs(logs) + d) + d * lost)


def _further(here: Setting) -> tuple[float, float]:
    """Mean log-likelihood after one more step, and the rounding in it."""
    S, point = here.centred, here.point
    floor = np.minimum(point.noise, FLOOR * np.maximum(S.diagonal, 1e-300))
    moved = em_step(S, point, here.isotropic, floor)
    if here.isotropic:
        return log_likelihood(S, moved)
    best = best_loadings(S, moved.noise, point.W.shape[1])
    return max(log_likelihood(S, moved), log_likelihood(S, best))


# -- claims -----------------------------------------------------------------------

_OBJECTIVE = "Σᵢ log N(xᵢ; m, WWᵀ + Ψ)"


def _gain_claim(
    value: float, allowance: float, evidence: Evidence, detail: str = ""
) -> Claim:
    tol = float(evidence.params.get("tol", 1e-2))
    met = bool(value <= tol + allowance)
    told = max(value, 0.0)
    plain = f"a further step of EM adds {told:.1e} to the log-likelihood"
    fix = "" if met else str(evidence.params.get("fix", "raise max_iter"))
    return Claim(
        "step_gain",
        Strength.PROVED,
        told,
        tol,
        met,
        objective=_OBJECTIVE,
        theorem="a step of EM never lowers the likelihood, and is at rest at a maximum",
        allowance=allowance,
        detail=detail or plain,
        fix=fix,
    )


def _gap_claim(
    here: Setting, value: float, n: int, rounding: float, evidence: Evidence
) -> Claim:
    """How far the log-likelihood of all rows is below the largest there is."""
    best, more = largest_likelihood(here.centred, here.point.W.shape[1])
    tol = float(evidence.params.get("tol", 1e-2))
    gap, allowance = n * (best - value), n * (rounding + more)
    met = bool(gap <= tol + allowance)
    gap = max(gap, 0.0)
    return Claim(
        "likelihood_gap",
        Strength.PROVED,
        gap,
        tol,
        met,
        objective="Σᵢ log N(xᵢ; m, WWᵀ + σ²I)",
        theorem="at the maximum σ² is the mean of the eigenvalues left out",
        allowance=allowance,
        detail=f"the log-likelihood is {gap:.1e} below the largest there is",
        fix="" if met else str(evidence.params.get("fix", "raise max_iter")),
    )


def _is_flat(S: Spread) -> bool:
    """Whether rows lie in a subspace: without it no noise makes a density unbounded."""
    values = S.eigen()[0]
    few = len(values) < len(S.diagonal)
    return bool(few or values[-1] <= len(values) * FLOOR * values[0])


def _refusal(here: Setting, flat: bool, allowance: float) -> Claim:
    bare = np.flatnonzero(here.inside)[here.point.noise <= BLURRED * here.S.diagonal]
    detail = f"the factors explain {_columns(bare)} entirely"
    if here.isotropic:
        detail = "the factors explain all rows entirely"
    theorem = "without noise the density of rows in a subspace is unbounded"
    if flat:
        detail = f"no maximum to be near: {detail}, and the likelihood grows without "
        detail += "bound"
    else:
        theorem = (
            "where noise vanishes, the likelihood is a difference of large numbers"
        )
        detail = f"{detail}, and rounding hides {allowance:.1e} of the log-likelihood"
    return Claim(
        "step_gain",
        Strength.REFUSED,
        objective=_OBJECTIVE,
        theorem=theorem,
        detail=detail,
        fix="fewer components, more rows, or only one of columns that repeat each "
        "other",
    )


def _columns(which: Array) -> str:
    names = ", ".join(map(str, which[:5].tolist())) + (" …" if len(which) > 5 else "")
    return f"column{'s' if len(which) > 1 else ''} {names}"


def _noise_claim(point: Point, spread: Spread, varies: Array, isotropic: bool) -> Claim:
    """Positive noise; and columns left without any."""
    share = point.noise[varies] / spread.diagonal[varies]
    least = float(share.min()) if len(share) else 1.0
    met = bool(np.all(point.noise > 0))
    assumptions: tuple[str, ...] = ()
    detail = f"the noise variance is positive, {float(point.noise.min()):.3g}"
    if not met:
        detail = "a noise variance is zero or negative"
    elif not isotropic:
        detail = f"all are positive, the least {least:.1e} of its column's variance"
        bare = np.flatnonzero(varies)[share < HEYWOOD]
        if len(bare):
            detail += f"; Heywood cases, all but explained: {_columns(bare)}"
        if not varies.all():
            still = _columns(np.flatnonzero(~varies))
            assumptions = (f"constant and left aside: {still}",)
    return Claim(
        "noise_variances",
        Strength.PROVED,
        float(point.noise.min()),
        0.0,
        met,
        objective="Ψ > 0",
        assumptions=assumptions,
        detail=detail,
        fix="" if met else "fit again",
    )


def _stated_claim(
    found: float, evidence: Evidence, n: int, unit: float, rounding: float
) -> Claim:
    """The mean log-likelihood, beside the one that the fit stated."""
    text = f"mean log-likelihood {found:.6g}, recomputed from the covariance"
    stated = evidence.params.get("log_likelihood")
    if stated is None:
        return Claim("log_likelihood", Strength.MEASURED, found, detail=text)
    off = abs(float(stated) / n - found)
    # Parameters kept in single precision are not quite those the fit spoke of.
    allowance = rounding + 1e3 * unit * (1.0 + abs(found))
    met = bool(off <= allowance)
    if not met:
        text += f"; the fit stated {float(stated) / n:.6g}"
    return Claim(
        "log_likelihood",
        Strength.PROVED,
        found,
        float(stated) / n,
        met,
        objective="mean of log N(xᵢ; m, WWᵀ + Ψ)",
        allowance=allowance,
        detail=text,
        fix="" if met else "fit again",
    )


# -- the whole ascent -------------------------------------------------------------


def _ascent_claim(here: Setting, evidence: Evidence) -> Claim:
    """Steps replayed from their recorded start: the largest drop."""
    start, steps = evidence.arrays.get("start"), int(evidence.params.get("steps", 0))
    given = evidence.arrays.get("start_components")
    d, k = len(here.inside), here.point.W.shape[1]
    if start is None or steps < 1 or np.size(start) not in (1, d):
        detail = "where the fit began was not recorded"
        return Claim("monotone", Strength.REFUSED, detail=detail)
    W = np.zeros((d, k)) if given is None else np.asarray(given, dtype=np.float64).T
    point = here.put(W, np.broadcast_to(np.asarray(start, dtype=np.float64), d))
    drop, allowance = _replay(here, point, steps, given is None)
    met = bool(drop <= allowance)
    detail = f"none of {steps} steps replayed lowers the likelihood"
    if not met:
        detail = f"one of {steps} steps replayed lowers the mean by {drop:.1e}"
    return Claim(
        "monotone",
        Strength.PROVED,
        max(drop, 0.0),
        0.0,
        met,
        objective="mean of log N(xᵢ; m, WWᵀ + Ψ)",
        theorem="both halves of a step maximise, given what the other half found",
        allowance=allowance,
        detail=detail,
        fix="" if met else "standardise the columns (StandardScaler)",
    )


def _replay(here: Setting, point: Point, steps: int, best: bool) -> tuple[float, float]:
    """Largest drop over all half-steps, and the rounding granted.

    With ``best`` a step ends with the best W for its noise, and the first is only that.
    """
    S, k = here.centred, here.point.W.shape[1]
    floor = FLOOR * np.maximum(S.diagonal, 1e-300)
    point = Point(point.W, np.maximum(point.noise, floor))
    before, drop, allowance = -math.inf, 0.0, 0.0
    for i in range(steps):
        moves = []
        if i or not best:
            moves.append(em_step(S, point, here.isotropic, floor))
        if best:
            noise = moves[0].noise if moves else point.noise
            moves.append(best_loadings(S, noise, k))
        for point in moves:
            found, rounding = log_likelihood(S, point)
            drop, before = max(drop, before - found), found
            allowance = max(allowance, 4 * rounding)
    return drop, allowance
