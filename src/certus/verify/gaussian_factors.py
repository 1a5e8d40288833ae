"""Checks of factor analysis and probabilistic PCA: what a further step would gain.

    mean log-likelihood = −½(d·log 2π + log det Σ + tr Σ⁻¹S),   Σ = WWᵀ + Ψ

with S the covariance about the model's mean, recomputed here in one pass. A step of EM
has B = Σ⁻¹W, W' = SB(I − WᵀB + BᵀSB)⁻¹ and Ψ' = diag(S − W'BᵀS), for probabilistic PCA
the mean of that diagonal. EM does not move away from W = 0 and other saddles, so a step
ends with the best W for its noise, from eigenvectors of Ψ^(−1/2) S Ψ^(−1/2). For
probabilistic PCA the largest likelihood there is follows from the eigenvalues of S.

Rounding. With A = Ψ^(−1/2)W ≈ U diag(f) Vᵀ, g = f²/(1 + f²) and aᵢ² = Sᵢᵢ/Ψᵢ,
log det Σ = Σ log Ψ + Σ log(1 + f²) and tr Σ⁻¹S = Σa² − Σⱼ gⱼ uⱼᵀΨ^(−1/2)SΨ^(−1/2)uⱼ. An
entry of S is off by γ of its two deviations, which changes the trace by at most
γ(Σa² + Σⱼ gⱼ(Σᵢ|Uᵢⱼ|aᵢ)²). Because U, f, V are not exact factors, log det and trace
change by at most 2h(2k + Σa²), h = ‖UᵀU − I‖ + ‖VᵀV − I‖ + ‖R‖ with R = A − UfVᵀ,
because ‖(I + AAᵀ)⁻¹‖ ≤ 1 and ‖(I + AAᵀ)⁻¹A‖ ≤ ½ for any A; all three norms are
computed. The step is taken in float64: the likelihood is bounded at the point that it
comes to, which may differ a little from an exact step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status
from certus.evidence import FactorsWitness
from certus.typing import Array, Fit
from certus.verify import climbing, data, deciding, stating
from certus.verify.block_moments import covariance, with_workers
from certus.verify.covariance import EIGEN, Spread, covariance_about
from certus.verify.deciding import Number, U, gamma, proved
from certus.verify.kernel import reading
from certus.verify.recomputed import RecomputedBlocks
from certus.verify.stating import Checked, Given

#: Noise is not looked for below this share of a column's variance.
FLOOR = 1e-12
#: Columns with less noise than this share of their variance are Heywood cases.
HEYWOOD = 5e-3
#: Rounding above which a mean log-likelihood is useless, in nats.
BLURRED = 1e-6
#: What tol=0 means, a drop that counts as none, and how close a likelihood must be to
#: the stated one, in double and in single precision.
LEAST, DROP, AGREE = 1e-6, 1e-6, (1e-7, 1e-3)
_SUM, _MEAN = "Σᵢ log N(xᵢ; m, WWᵀ + Ψ)", "mean of log N(xᵢ; m, WWᵀ + Ψ)"


class Statement(NamedTuple):
    """A fixed point of EM for W and Ψ, isotropic for probabilistic PCA."""

    isotropic: bool
    n_components: int | None
    tol: float
    fix: str


def _read_factors(model: Fit) -> Statement:
    fix = f"raise max_iter (now {model.max_iter}), "
    other = "svd_method='lapack', or certus.decomposition.FactorAnalysis"
    fix += "or tol" if stating.is_ours(model) else other
    return Statement(False, model.n_components, float(model.tol) or LEAST, fix)


def _read_ppca(model: Fit) -> Statement:
    fix = f"raise max_iter (now {model.max_iter}), or solver='closed_form'"
    return Statement(True, model.n_components, float(model.tol) or LEAST, fix)


READERS = {"FactorAnalysis": _read_factors, "ProbabilisticPCA": _read_ppca}


class Factors(NamedTuple):
    """W (d × k) and the noise of each column."""

    W: Array
    noise: Array


class Setting(NamedTuple):
    """The covariance and the point, in units of a power of two that keep them in range.

    Columns that do not vary have no covariance, and keep the noise that they have.
    """

    S: Spread  # about the model's mean
    centred: Spread  # about the mean
    point: Factors
    isotropic: bool
    unit: float
    constant: float  # what units and 2π add to the mean

    def put(self, W: Array, noise: Array) -> Factors:
        """A point in these units."""
        return Factors(W * self.unit, noise * self.unit**2)

    @property
    def floor(self) -> Array:
        """The least noise that is looked for."""
        own = self.centred.diagonal
        return np.where(own > 0, FLOOR * own, self.point.noise)


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge W, Ψ and the mean."""
    witness, X, _, sample_weight, level, _ = given
    deciding.refuse_weights(model, sample_weight)
    blocks, again = stating.by_address(X), RecomputedBlocks()
    X = X if blocks else data.dense(reading.as_matrix(X))
    mean, point = _read(model, X.shape[1])
    n, k = X.shape[0], point.W.shape[1]
    marks: dict[str, Any] = {"shape": [int(size) for size in X.shape]}
    if not blocks:
        marks = data.fingerprint(X, np.zeros(n), np.ones(n))
    asked = k if stated.n_components is None else int(stated.n_components)
    if k not in (asked, min(asked, *X.shape)):
        claims = [deciding.wrong_count("factors", k, asked)]
        return claims, Status.TOL_NOT_REACHED, marks
    if not all(np.isfinite(part).all() for part in (mean, *point)):
        lost = "the parameters hold NaN or infinite values"
        return [_gain_claim(Number(math.inf), stated, lost)], Status.DIVERGED, marks
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if blocks:
            spread, shift, marks = covariance(X, again, mean)
        else:
            spread, shift = covariance_about(X, mean)
        varies = spread.diagonal > np.square(32 * U * np.abs(mean))
        noise = _noise_claim(point, spread, varies, stated.isotropic)
        if not noise.met:
            lost = "the likelihood is not defined: a noise variance is not positive"
            claims = [_gain_claim(Number(math.inf), stated, lost), noise]
            return claims, Status.TOL_NOT_REACHED, marks
        here = _setting(spread, shift, point, varies, stated.isotropic)
        now, after = log_likelihood(here.S, here.point), _further(here)
        off = n * (now.rounding + after.rounding)
        gain = Number(max(n * (after.value - now.value), 0.0), off)
        claims = [_gain_claim(gain, stated), _stated_claim(model, now, here, n), noise]
        if claims[0].met is not False and now.rounding > max(BLURRED, stated.tol / n):
            flat = _is_flat(here.centred)
            if flat or not claims[0].met:
                # A factor for every column is scikit-learn's default: no warning.
                status = Status.NO_MINIMISER if flat else Status.UNDECIDED
                free = stated.n_components is None and not stated.isotropic
                claims[0] = _refusal(here, flat, off)
                status = Status.SOLVED if free else status
                return *with_workers(claims, status, again, X), marks
        if stated.isotropic and min(X.shape) <= EIGEN:
            claims.insert(0, _gap_claim(here, now, n, stated))
        if level == "full":
            claims.append(_ascent_claim(here, witness or FactorsWitness(), now.value))
    status = deciding.verdict(claims, ("monotone",))
    return *with_workers(claims, status, again, X), marks


def _read(model: Fit, d: int) -> tuple[Array, Factors]:
    mean = data.fitted(model, "mean_", (d,)).astype(np.float64)
    W = data.fitted(model, "components_", (None, d)).astype(np.float64).T
    noise = data.fitted(model, "noise_variance_")
    if noise.ndim:
        noise = data.fitted(model, "noise_variance_", (d,))
    return mean, Factors(W, np.broadcast_to(noise.astype(np.float64), d))


def _setting(
    spread: Spread, shift: Array, point: Factors, varies: Array, isotropic: bool
) -> Setting:
    u, d = 1.0, len(varies)
    if isotropic:
        varies = np.ones_like(varies)
        u = deciding.power_of_two(math.sqrt(spread.diagonal.max()))
    S = spread.scaled(varies * u)
    constant = -0.5 * d * (math.log(2 * math.pi) - 2 * math.log(u))
    centred = S.about_the_mean(shift * varies * u)
    moved = Setting(S, centred, point, isotropic, u, constant)
    return moved._replace(point=moved.put(*point))


# -- likelihood and step ----------------------------------------------------------


def _axes(point: Factors) -> tuple[Array, Array, Array]:
    """U, f and V of Ψ^(−1/2)W = U diag(f) Vᵀ: Σ⁻¹ without squares of small noise."""
    axes, f, Vt = np.linalg.svd(point.W / np.sqrt(point.noise)[:, None], False)
    return axes, f, Vt.T


def log_likelihood(S: Spread, point: Factors) -> Number:
    """−½(log det Σ + tr Σ⁻¹S), and the rounding in it."""
    noise, A = point.noise, point.W / np.sqrt(point.noise)[:, None]
    axes, f, V = _axes(point)
    (d, k), top = axes.shape, float(f.max(initial=0.0))
    B = axes / np.sqrt(noise)[:, None]
    own, g = S.diagonal / noise, f**2 / (1 + f**2)
    inner = np.einsum("ij,ij->j", B, S.times(B))
    logs, explained = float(np.log1p(f**2).sum()), float(inner @ g)
    total = np.log(noise).sum() + logs + own.sum() - explained
    sizes = np.abs(np.log(noise)).sum() + d + logs + own.sum() + explained
    rest = np.linalg.norm(A - axes * f @ V.T) + gamma(k + 4) * k * top
    skew = sum(np.linalg.norm(Q.T @ Q - np.eye(k)) for Q in (axes, V))
    h = skew + 2 * k * gamma(d + 4) + rest
    reach = own.sum() + g @ np.square(np.sqrt(own) @ np.abs(axes))
    off = S.share * reach + 2 * h * (2 * k + own.sum()) + gamma(d + k + 8) * sizes
    return Number(float(-0.5 * total), float(0.5 * off) if h < 0.1 else math.inf)


def em_step(S: Spread, point: Factors, isotropic: bool, floor: Array) -> Factors:
    """One step of EM; noise at ``floor`` or below stays there."""
    axes, f, V = _axes(point)
    B = (axes / np.sqrt(point.noise)[:, None] * (f / (1 + f**2))) @ V.T  # Σ⁻¹W
    SB = S.times(B)
    factors = (V / (1 + f**2)) @ V.T + B.T @ SB  # I − WᵀB + BᵀSB
    new = np.linalg.lstsq(factors, SB.T, rcond=None)[0].T
    rest = S.diagonal - np.einsum("ij,ij->i", new, SB)
    if isotropic:
        rest = np.full_like(rest, rest.mean())
    return Factors(new, np.maximum(rest, floor))


def best_loadings(S: Spread, noise: Array, k: int) -> Factors:
    """The best W for given noise."""
    root = np.sqrt(noise)
    values, V = S.scaled(1 / root).eigen()
    W = V[:, :k] * np.sqrt(np.maximum(values[:k] - 1.0, 0.0)) * root[:, None]
    return Factors(W, noise)


def _further(here: Setting) -> Number:
    """Mean log-likelihood after one more step, and the rounding in it."""
    S, point = here.centred, here.point
    moved = em_step(S, point, here.isotropic, np.minimum(point.noise, here.floor))
    if here.isotropic:
        return log_likelihood(S, moved)
    best = best_loadings(S, moved.noise, point.W.shape[1])
    return max(log_likelihood(S, moved), log_likelihood(S, best))


# -- claims -----------------------------------------------------------------------


def _gain_claim(gain: Number, stated: Statement, missed: str = "") -> Claim:
    told = f"another EM step adds {gain.value:.1e} to the log-likelihood"
    return proved(
        *("step_gain", gain, stated.tol, told),
        missed=missed or told,
        objective=_SUM,
        theorem="an exact EM step never lowers the likelihood and changes nothing at "
        "a maximum; rounding errors of both likelihoods are included",
        fix=stated.fix,
    )


def best_isotropic(S: Spread, k: int) -> Number:
    """The largest −½(log det Σ + tr Σ⁻¹S) with Σ = WWᵀ + σ²I, W of k columns.

    Eigenvalues off by ε each change it by at most 2kε/σ² and, through the trace, by
    γ·tr S/σ².
    """
    d, trace = len(S.diagonal), float(S.diagonal.sum())
    values, off = S.bounds()
    top = np.maximum(values[:k], 0.0)
    noise = (trace - top.sum()) / (d - k) if k < d else values[d - 1]
    noise = max(float(noise), FLOOR * (trace / d or 1.0))
    logs = np.append(np.log(np.maximum(top, noise)), (d - len(top)) * math.log(noise))
    more = ((2 * k + 1) * off + S.share * trace) / noise
    more += gamma(d + 8) * (np.abs(logs).sum() + d * (1 + abs(math.log(noise))))
    return Number(float(-0.5 * (logs.sum() + d)), float(more))


def _gap_claim(here: Setting, now: Number, n: int, stated: Statement) -> Claim:
    """How far the log-likelihood of all rows is below the largest possible one."""
    best = best_isotropic(here.centred, here.point.W.shape[1])
    lost = n * (now.rounding + best.rounding)
    gap = Number(max(n * (best.value - now.value), 0.0), lost)
    return proved(
        *("likelihood_gap", gap, stated.tol),
        f"the log-likelihood is {gap.value:.1e} below its maximum",
        objective="Σᵢ log N(xᵢ; m, WWᵀ + σ²I)",
        theorem="at the maximum, σ² is the mean of the eigenvalues that are left out",
        fix=stated.fix,
    )


def _is_flat(S: Spread) -> bool:
    """Whether rows lie in a subspace: without it no noise makes a density unbounded."""
    values = S.eigen()[0]
    few = len(values) < len(S.diagonal)
    return bool(few or values[-1] <= len(values) * FLOOR * values[0])


def _refusal(here: Setting, flat: bool, off: float) -> Claim:
    bare = np.flatnonzero(here.point.noise <= BLURRED * here.S.diagonal)
    which = "all rows" if here.isotropic else data.named("column", bare)
    detail = f"the factors explain {which} entirely"
    theorem = "where the noise is zero, the likelihood is a difference of large numbers"
    if flat:
        theorem = "without noise, the density of rows in a subspace has no upper bound"
        detail = f"the likelihood has no maximum: {detail}, and it grows without "
        detail += "bound"
    elif len(bare) or here.isotropic:
        detail = f"{detail}, and rounding errors may be {off:.1e} of the log-likelihood"
    else:
        detail = f"undecided: rounding may change the log-likelihood by {off:.1e}"
    fix = "fewer components, more rows, or only one of columns that repeat each other"
    words = {"objective": _SUM, "theorem": theorem}
    return deciding.refused("step_gain", detail, fix, **words)


def _noise_claim(point: Factors, S: Spread, varies: Array, isotropic: bool) -> Claim:
    """Positive noise; and columns left without any."""
    share = point.noise[varies] / S.diagonal[varies]
    detail = f"the noise variance is positive, {float(point.noise.min()):.3g}"
    assumptions: tuple[str, ...] = ()
    if not isotropic:
        least, bare = share.min(initial=1.0), np.flatnonzero(varies)[share < HEYWOOD]
        detail = f"all are positive; the smallest is {least:.1e} of its column's"
        if len(bare):
            detail += "; almost fully explained (Heywood cases): "
            detail += data.named("column", bare)
        if not varies.all():
            still = data.named("column", np.flatnonzero(~varies))
            assumptions = (f"constant and not counted: {still}",)
    return proved(
        *("noise_variances", Number(float((~(point.noise > 0)).sum())), 0.0, detail),
        missed="a noise variance is zero or negative",
        objective="Ψ > 0",
        assumptions=assumptions,
        fix="fit again",
    )


def _stated_claim(model: Fit, now: Number, here: Setting, n: int) -> Claim:
    """The mean log-likelihood, compared with the one that our fits state."""
    found = now.value + here.constant
    text = f"mean log-likelihood {found:.6g}, recomputed from the covariance"
    if not stating.is_ours(model):
        return deciding.measured("log_likelihood", found, text)
    said = float(data.fitted(model, "loglike_", (None,))[-1]) / n
    room, single = 1 + abs(found), int(model.components_.dtype == np.float32)
    rounding = now.rounding + 16 * U * abs(here.constant)
    return proved(
        *("log_likelihood", Number(abs(said - found) / room, rounding / room)),
        *(AGREE[single], text),
        missed=f"{text}; the fit stated {said:.6g}",
        objective=_MEAN,
        theorem="|stated − recomputed| over one plus its size",
        fix="fit again",
    )


# -- the whole ascent -------------------------------------------------------------


def _ascent_claim(here: Setting, witness: FactorsWitness, now: float) -> Claim:
    """Steps replayed from their recorded start, by the likelihood after each half.

    Without loadings to begin with, a step ends with the best for its noise, and the
    first is only that.
    """
    start, given, steps = witness
    d, k = here.point.W.shape
    if start is None or steps < 1 or np.size(start) not in (1, d):
        return deciding.refused("monotone", "the start of the fit was not recorded", "")
    S, best, floor = here.centred, given is None, here.floor
    W = np.zeros((d, k)) if best else np.asarray(given, dtype=np.float64).T
    point = here.put(W, np.broadcast_to(np.asarray(start, dtype=np.float64), d))
    point, levels = Factors(point.W, np.maximum(point.noise, floor)), []
    for i in range(int(steps)):
        if i or not best:
            point = em_step(S, point, here.isotropic, floor)
            levels.append(log_likelihood(S, point))
        if best:
            point = best_loadings(S, point.noise, k)
            levels.append(log_likelihood(S, point))
    levels = [Number(value + here.constant, off) for value, off in levels]
    apart = abs(levels[-1].value - now - here.constant)
    return climbing.repeated(levels, apart, _MEAN, DROP)
