"""Checks of factor analysis and probabilistic PCA: what a further step would gain.

    mean log-likelihood = −½(d·log 2π + log det Σ + tr Σ⁻¹S),   Σ = WWᵀ + Ψ

with S the covariance about the model's mean, recomputed here in one pass. A step of EM
has B = Σ⁻¹W, W' = SB(I − WᵀB + BᵀSB)⁻¹ and Ψ' = diag(S − W'BᵀS), for probabilistic PCA
the mean of that diagonal. W = 0 and other saddles keep EM at rest, so a step ends with
the best W for its noise, from eigenvectors of Ψ^(−1/2) S Ψ^(−1/2). For probabilistic
PCA the largest likelihood there is follows from the eigenvalues of S.

Rounding. With A = Ψ^(−1/2)W ≈ U diag(f) Vᵀ, g = f²/(1 + f²) and aᵢ² = Sᵢᵢ/Ψᵢ,
log det Σ = Σ log Ψ + Σ log(1 + f²) and tr Σ⁻¹S = Σa² − Σⱼ gⱼ uⱼᵀΨ^(−1/2)SΨ^(−1/2)uⱼ. An
entry of S is off by γ of its two deviations, which changes the trace by at most
γ(Σa² + Σⱼ gⱼ(Σᵢ|Uᵢⱼ|aᵢ)²). That U, f, V are no exact factors changes log det and trace
by at most 2h(2k + Σa²), h = ‖UᵀU − I‖ + ‖VᵀV − I‖ + ‖R‖ with R = A − UfVᵀ, because
‖(I + AAᵀ)⁻¹‖ ≤ 1 and ‖(I + AAᵀ)⁻¹A‖ ≤ ½ for any A; all three norms are computed. Where
a step leads is a choice: the likelihood is taken at the point that came out.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status, Strength
from certus.evidence import FactorsWitness
from certus.verify import data, stating
from certus.verify.covariance import EIGEN, EPS, Spread, covariance_about
from certus.verify.data import Array
from certus.verify.deciding import (
    Number,
    U,
    gamma,
    proved,
    refuse_weights,
    replayed,
    verdict,
    wrong_count,
)
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Noise is not looked for below this share of a column's variance.
FLOOR = 1e-12
#: Columns with less noise than this share of their variance are Heywood cases.
HEYWOOD = 5e-3
#: Rounding of a mean log-likelihood above which it tells nothing, in nats.
BLURRED = 1e-6
#: What tol=0 stands for, a drop that is none, and how near a likelihood must be to the
#: one stated, in double and in single precision.
LEAST, DROP, AGREE = 1e-6, 1e-6, (1e-7, 1e-3)
_OBJECTIVE = "Σᵢ log N(xᵢ; m, WWᵀ + Ψ)"


class Statement(NamedTuple):
    """A fixed point of EM for W and Ψ, isotropic for probabilistic PCA."""

    isotropic: bool
    n_components: int | None
    tol: float
    fix: str


def _read_factors(model: Any) -> Statement:
    fix = f"raise max_iter (now {model.max_iter}), "
    ours = stating.is_ours(model)
    fix += "or tol" if ours else "svd_method='lapack', or certus.factor.FactorAnalysis"
    return Statement(False, model.n_components, float(model.tol) or LEAST, fix)


def _read_ppca(model: Any) -> Statement:
    fix = f"raise max_iter (now {model.max_iter}), or solver='closed_form'"
    return Statement(True, model.n_components, float(model.tol) or LEAST, fix)


READERS = {"FactorAnalysis": _read_factors, "ProbabilisticPCA": _read_ppca}


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


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Judge W, Ψ and the mean."""
    witness, X, _, sample_weight, level, _ = given
    refuse_weights(model, sample_weight)
    X = reading.as_matrix(X)
    mean, point = _read(model, X)
    n, k = X.shape[0], point.W.shape[1]
    marks = data.fingerprint(X, np.zeros(n), np.ones(n))
    asked = k if stated.n_components is None else int(stated.n_components)
    if k not in (asked, min(asked, *X.shape)):
        return [wrong_count("factors", k, asked)], Status.TOL_NOT_REACHED, marks
    if not all(np.isfinite(part).all() for part in (mean, *point)):
        lost = "the parameters hold NaN or infinite values"
        return [_gain_claim(Number(math.inf, 0), stated, lost)], Status.DIVERGED, marks
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        spread, shift = covariance_about(X, mean)
        varies = spread.diagonal > np.square(16 * EPS * np.abs(mean))
        claims = [_noise_claim(point, spread, varies, stated.isotropic)]
        if not claims[0].met:
            lost = "no likelihood: a noise variance is not positive"
            claims.insert(0, _gain_claim(Number(math.inf, 0), stated, lost))
            return claims, Status.TOL_NOT_REACHED, marks
        here = _setting(spread, shift, point, varies, stated.isotropic)
        now = log_likelihood(here.S, here.point)
        claims.insert(0, _stated_claim(model, now, here.constant, n))
        after = _further(here)
        off = n * (now.rounding + after.rounding)
        gain = Number(max(n * (after.value - now.value), 0.0), off)
        claims.insert(0, _gain_claim(gain, stated))
        if claims[0].met is not False and now.rounding > max(BLURRED, stated.tol / n):
            flat = _is_flat(here.centred)
            if flat or not claims[0].met:
                # A factor for every column is scikit-learn's default: no warning.
                status = Status.NO_MINIMISER if flat else Status.UNDECIDED
                free = stated.n_components is None and not stated.isotropic
                claims[0] = _refusal(here, flat, off)
                return claims, Status.SOLVED if free else status, marks
        if stated.isotropic and min(X.shape) <= EIGEN:
            claims.insert(0, _gap_claim(here, now, n, stated))
        if level == "full":
            claims.append(_ascent_claim(here, witness or FactorsWitness()))
    return claims, verdict(claims, ("monotone",)), marks


def _read(model: Any, X: Any) -> tuple[Array, Point]:
    W = np.asarray(reading.plain(model.components_), dtype=np.float64).T
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
    axes, f, Vt = np.linalg.svd(point.W / np.sqrt(point.noise)[:, None], False)
    return axes, f, Vt.T


def log_likelihood(S: Spread, point: Point) -> Number:
    """−½(log det Σ + tr Σ⁻¹S), and the rounding in it."""
    noise, A = point.noise, point.W / np.sqrt(point.noise)[:, None]
    axes, f, V = _axes(point)
    (d, k), top = axes.shape, float(f.max(initial=0.0))
    B = axes / np.sqrt(noise)[:, None]
    own, g = S.diagonal / noise, f**2 / (1 + f**2)
    inner = np.einsum("ij,ij->j", B, S.times(B))
    logs, explained = float(np.log1p(f**2).sum()), float(inner @ g)
    total = np.log(noise).sum() + logs + own.sum() - explained
    sizes = np.abs(np.log(noise)).sum() + logs + own.sum() + explained
    rest = np.linalg.norm(A - axes * f @ V.T) + gamma(k + 4) * k * top
    skew = sum(np.linalg.norm(Q.T @ Q - np.eye(k)) for Q in (axes, V))
    h = skew + 2 * k * gamma(d + 4) + rest
    reach = own.sum() + g @ np.square(np.sqrt(own) @ np.abs(axes))
    off = S.share * reach + 2 * h * (2 * k + own.sum()) + gamma(d + k + 8) * sizes
    off = off if h < 0.1 else math.inf
    return Number(float(-0.5 * total), float(0.5 * off))


def em_step(S: Spread, point: Point, isotropic: bool, floor: Array) -> Point:
    """One step of EM; noise at ``floor`` or below stays there."""
    axes, f, V = _axes(point)
    B = (axes / np.sqrt(point.noise)[:, None] * (f / (1 + f**2))) @ V.T  # Σ⁻¹W
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


def _further(here: Setting) -> Number:
    """Mean log-likelihood after one more step, and the rounding in it."""
    S, point = here.centred, here.point
    floor = np.minimum(point.noise, FLOOR * np.maximum(S.diagonal, 1e-300))
    moved = em_step(S, point, here.isotropic, floor)
    if here.isotropic:
        return log_likelihood(S, moved)
    best = best_loadings(S, moved.noise, point.W.shape[1])
    return max(log_likelihood(S, moved), log_likelihood(S, best))


# -- claims -----------------------------------------------------------------------


def _gain_claim(gain: Number, stated: Statement, missed: str = "") -> Claim:
    told = f"a further step of EM adds {gain.value:.1e} to the log-likelihood"
    return proved(
        "step_gain",
        gain,
        stated.tol,
        told,
        missed=missed or told,
        objective=_OBJECTIVE,
        theorem="a step of EM never lowers the likelihood, and is at rest at a maximum",
        fix=stated.fix,
    )


def _gap_claim(here: Setting, now: Number, n: int, stated: Statement) -> Claim:
    """How far the log-likelihood of all rows is below the largest there is.

    Eigenvalues off by ε each change it by at most 2kε/σ² and, through the trace, by
    γ·tr S/σ².
    """
    S, k = here.centred, here.point.W.shape[1]
    d, trace = len(S.diagonal), float(S.diagonal.sum())
    values, off = S.bounds()
    values = np.maximum(values, 0.0)
    top = values[:k]
    noise = (trace - top.sum()) / (d - k) if k < d else values[d - 1]
    noise = max(float(noise), FLOOR)
    logs = np.log(np.maximum(top, noise)).sum() + (d - len(top)) * math.log(noise)
    best = float(-0.5 * (logs + d))
    more = ((2 * k + 1) * off + S.share * trace) / noise + gamma(d + 8) * (
        np.abs(np.log(np.maximum(top, noise))).sum() + d * (1 + abs(math.log(noise)))
    )
    gap = Number(max(n * (best - now.value), 0.0), n * (now.rounding + float(more)))
    return proved(
        "likelihood_gap",
        gap,
        stated.tol,
        f"the log-likelihood is {gap.value:.1e} below the largest there is",
        objective="Σᵢ log N(xᵢ; m, WWᵀ + σ²I)",
        theorem="at the maximum σ² is the mean of the eigenvalues left out",
        fix=stated.fix,
    )


def _is_flat(S: Spread) -> bool:
    """Whether rows lie in a subspace: without it no noise makes a density unbounded."""
    values = S.eigen()[0]
    few = len(values) < len(S.diagonal)
    return bool(few or values[-1] <= len(values) * FLOOR * values[0])


def _refusal(here: Setting, flat: bool, off: float) -> Claim:
    bare = np.flatnonzero(here.inside)[here.point.noise <= BLURRED * here.S.diagonal]
    detail = f"the factors explain {_columns(bare)} entirely"
    if here.isotropic:
        detail = "the factors explain all rows entirely"
    theorem = "where noise vanishes, the likelihood is a difference of large numbers"
    if flat:
        theorem = "without noise the density of rows in a subspace is unbounded"
        detail = f"no maximum to be near: {detail}, and the likelihood grows without "
        detail += "bound"
    elif not len(bare) and not here.isotropic:
        detail = f"undecided: rounding alone may be {off:.1e} of the log-likelihood"
    else:
        detail = f"{detail}, and rounding hides {off:.1e} of the log-likelihood"
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
    lowest = float(point.noise.min())
    detail = f"the noise variance is positive, {lowest:.3g}"
    assumptions: tuple[str, ...] = ()
    if not isotropic:
        least = float(share.min()) if len(share) else 1.0
        detail = f"all are positive, the least {least:.1e} of its column's variance"
        bare = np.flatnonzero(varies)[share < HEYWOOD]
        if len(bare):
            detail += f"; Heywood cases, all but explained: {_columns(bare)}"
        if not varies.all():
            still = _columns(np.flatnonzero(~varies))
            assumptions = (f"constant and left aside: {still}",)
    return proved(
        "noise_variances",
        Number(float(np.count_nonzero(~(point.noise > 0))), 0.0),
        0.0,
        detail,
        missed="a noise variance is zero or negative",
        objective="Ψ > 0",
        assumptions=assumptions,
        fix="fit again",
    )


def _stated_claim(model: Any, now: Number, constant: float, n: int) -> Claim:
    """The mean log-likelihood, beside the one that our fits state."""
    found = now.value + constant
    text = f"mean log-likelihood {found:.6g}, recomputed from the covariance"
    said = getattr(model, "loglike_", None)
    if not stating.is_ours(model) or not said:
        return Claim("log_likelihood", Strength.MEASURED, found, detail=text)
    off, single = (
        abs(float(said[-1]) / n - found),
        model.components_.dtype == np.float32,
    )
    room = 1 + abs(found)
    return proved(
        "log_likelihood",
        Number(off / room, (now.rounding + 16 * U * abs(constant)) / room),
        AGREE[int(single)],
        text,
        missed=f"{text}; the fit stated {float(said[-1]) / n:.6g}",
        objective="mean of log N(xᵢ; m, WWᵀ + Ψ)",
        theorem="|stated − recomputed| over one plus its size",
        fix="fit again",
    )


# -- the whole ascent -------------------------------------------------------------


def _ascent_claim(here: Setting, witness: FactorsWitness) -> Claim:
    """Steps replayed from their recorded start: the largest drop."""
    start, steps, given = witness.start, witness.steps, witness.start_components
    d, k = len(here.inside), here.point.W.shape[1]
    if start is None or steps < 1 or np.size(start) not in (1, d):
        detail = "where the fit began was not recorded"
        return Claim("monotone", Strength.REFUSED, detail=detail)
    W = np.zeros((d, k)) if given is None else np.asarray(given, dtype=np.float64).T
    point = here.put(W, np.broadcast_to(np.asarray(start, dtype=np.float64), d))
    drop, end = _replay(here, point, int(steps), given is None)
    now = log_likelihood(here.S, here.point).value
    claim = proved(
        "monotone",
        drop,
        DROP,
        f"none of {steps} steps replayed lowers the likelihood",
        missed=f"one of {steps} steps replayed lowers the mean by {drop.value:.1e}",
        objective="mean of log N(xᵢ; m, WWᵀ + Ψ)",
        theorem="both halves of a step maximise, given what the other half found",
        fix="standardise the columns (StandardScaler)",
    )
    return replayed(claim, abs(end - now), 1e-3 * (1 + abs(now)))


def _replay(
    here: Setting, point: Point, steps: int, best: bool
) -> tuple[Number, float]:
    """Largest drop over all half-steps, and the likelihood where they end.

    With ``best`` a step ends with the best W for its noise, and the first is only that.
    """
    S, k = here.centred, here.point.W.shape[1]
    floor = FLOOR * np.maximum(S.diagonal, 1e-300)
    point = Point(point.W, np.maximum(point.noise, floor))
    before, drop, off = -math.inf, 0.0, 0.0
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
            off = max(off, 2 * rounding)
    return Number(drop, off), before
