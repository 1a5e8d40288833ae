"""Variational autoencoders: their bounds, computed again by networks of the verifier.

- ``gap_to_best``: linear networks with a normal likelihood are probabilistic PCA. With
  q = N(Ax + a, diag s²) the bound is
      −½(d log 2πσ² + (‖x − W(Ax + a) − m‖² + Σ sⱼ²‖wⱼ‖²)/σ²) − KL,
  and the largest likelihood follows from the eigenvalues of the covariance.
- ``codes_agree``: codes, and rows from codes, as the weights give them.
- ``likelihood_bound``: the mean of E_q log p(x | z) − KL over rows, with draws of the
  verifier's own; ``importance_bound``: the same with log of a mean over draws.
- ``bits_per_dimension``: of rows that take evenly spaced values, the bound of the
  probability that a draw rounds to the row.
- ``sample_density``: whether draws have the density that ``log_likelihood`` states, for
  few columns, linear networks or, on level "full", at most two components.
- ``integrated_likelihood``: log p(x) between two bounds, by cells of the plane.
- ``gain_over_pca``: the bound minus the likelihood of the best probabilistic PCA.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.balls import ErrorBall
from certus.verify.covariance import EIGEN, Spread, covariance_about
from certus.verify.deciding import Number, U, gamma
from certus.verify.drawn_density import ColumnScaling, StartMixture, draws_claim
from certus.verify.gaussian_factors import best_isotropic
from certus.verify.language.scoring import spread
from certus.verify.perceptrons import (
    MeanInterval,
    RowsGiven,
    rows_given,
    step_of_levels,
)
from certus.verify.quadrature import bracket
from certus.verify.stating import Checked, Given, require
from certus.verify.statistical import ROWS, outwards
from certus.verify.variational import Bounds, PlainVAE, Statement, drawn_bounds

__all__ = ["READERS", "Statement", "check"]

#: Rows that are computed again, and draws of a code for each, by level.
SOME, DRAWS = {"quick": 200, "full": 2_000}, {"quick": 16, "full": 64}
#: Rows whose likelihood is integrated, and cells of the plane.
ROWS_IN, CELLS = {"quick": 10, "full": 50}, {"quick": 4_000, "full": 60_000}
#: Most columns whose draws are compared with the density, and draws.
DRAWN, DRAWS_OF_ROWS = 8, 4_000
#: How far codes and rows may be off, as a share of 1 + their size.
NEAR = 1e-6
#: Nats of a row by which a linear network may be below the best one.
GAP = 1e-6
#: Mean divergence below which a component carries nothing, in nats.
IDLE = 0.01
#: Nats of a column, and bits of one, at which a new row's bound is clipped.
NATS, BITS, DELTA = 3.0, 8.0, 0.05
FIX = "restore the model file, or fit again"

READERS = {
    "VariationalAutoencoder": lambda model: Statement(
        dict(model.config_), model.weights_, float(model.beta)
    )
}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The claims of an autoencoder on the rows given."""
    plain = PlainVAE(stated)
    rows = rows_given(model, given, plain.classes)
    Z, codes = rows.Z, rows.codes
    require(Z.shape[1] == plain.d, "its networks have another number of columns")
    linear = plain.normal and not plain.hidden and not plain.classes
    some = np.array(spread(len(Z), SOME[given.level]))
    claims = []
    with np.errstate(all="ignore"):
        S = None
        if plain.normal and min(Z.shape) <= EIGEN:
            about, shift = covariance_about(Z, Z.mean(axis=0))
            S = about.about_the_mean(shift)
        if linear and S is not None:
            claims.append(_gap_claim(plain, Z, S, stated.beta))
        claims.append(_agreement(model, plain, rows, some))
        chosen = rows.judged[: 10 * SOME[given.level]]
        step = step_of_levels(rows.X)
        steps = None if step is None else step / _scales(model)
        steps = steps if plain.normal else None
        draws = DRAWS[given.level]
        part = None if codes is None else codes[chosen]
        bounds = drawn_bounds(plain, Z[chosen], part, draws, steps)
        claims += _bound_claims(plain, rows, bounds, draws)
        if step is not None:
            claims.append(_bits_claim(plain, rows, bounds, step))
        if plain.k <= 2 and not plain.classes and not linear:
            n = ROWS_IN[given.level]
            few = drawn_bounds(plain, Z[chosen][:n], None, 4 * draws)
            claims.append(
                _integral_claim(plain, Z[chosen][:n], few, CELLS[given.level])
            )
        known = linear or (given.level == "full" and plain.k <= 2)
        if plain.normal and not plain.classes and known and plain.d <= DRAWN:
            scaling, around = ColumnScaling.of(model, rows.X), StartMixture.around(Z)
            words: Any = {"said": "log_likelihood", "draws": DRAWS_OF_ROWS}
            claims.append(draws_claim(model, scaling, around, given.level, **words))
        if S is not None and not linear and not plain.classes:
            ppca = _ppca_scores(Z, S, plain.k, Z[chosen])
            claims.append(_gain_claim(bounds.elbo, ppca, plain.k))
    if not linear:  # what the fit is judged by comes first
        claims.sort(key=lambda claim: claim.name != "likelihood_bound")
    return claims, bd.verdict(claims), rows.marks


def _scales(model: Any) -> Array:
    return np.asarray(model.scale_, dtype=np.float64)[np.asarray(model.varies_, bool)]


# -- claims -------------------------------------------------------------------------


def _gap_claim(plain: PlainVAE, Z: Array, S: Spread, beta: float) -> Claim:
    """How far the bound of linear networks is below the best likelihood."""
    best = best_isotropic(S, plain.k)
    mean, log_var = plain.encode(ErrorBall(Z), None)
    rest = ErrorBall(Z) - plain.decode(mean, None)
    W = plain.decoder[-1][0]
    variance = log_var.exp()
    lost = (rest * rest).sum() + variance.times(np.square(W).sum(axis=0)[None])[:, 0]
    # ‖wⱼ‖² is rounded itself.
    size = variance.x @ np.square(W).sum(axis=0) * gamma(plain.d + 2)
    lost = ErrorBall(lost.x, lost.r + size)
    kl = (mean * mean + variance - 1.0 - log_var).sum()
    each = lost / plain.noise + kl
    mean_of = each.sum(axis=0) / len(Z)
    noise = float(plain.noise.x)
    bound = -0.5 * float(mean_of.x) - 0.5 * plain.d * math.log(noise)
    off = 0.5 * float(mean_of.r) + plain.d * (float(plain.noise.r) / noise + 8 * U)
    off += best.rounding + 8 * U * plain.d * abs(math.log(noise))
    gap = Number(max(best.value - bound, 0.0), off)
    return bd.proved(
        *("gap_to_best", gap, GAP),
        f"the bound is {gap.value:.1e} nats a row below the largest likelihood of "
        f"probabilistic PCA with {plain.k} components",
        objective="max over W, m, σ² of mean log N(x; m, WWᵀ + σ²I), minus the mean of "
        "E_q log p(x | z) − KL(q ‖ N(0, I)); columns standardised",
        theorem="at the maximum, σ² is the mean of the eigenvalues that are left out; "
        "the bound never exceeds the likelihood",
        fix="hidden_layer_sizes=() with beta=1, which has a formula"
        if beta != 1
        else FIX,
    )


def _agreement(model: Any, plain: PlainVAE, given: RowsGiven, some: Array) -> Claim:
    """Whether codes, and rows from codes, are those of the weights."""
    X, Z, codes = given.X[some], given.Z[some], given.codes_at(some)
    labels = () if codes is None else (np.asarray(model.classes_)[codes],)
    rows = X.reshape(len(X), *model.shape_)
    said = np.asarray(model.transform(rows, *labels), dtype=np.float64)
    own, _ = plain.encode(ErrorBall(Z), codes)
    require(said.shape == own.x.shape, "it does not code each row")
    back = np.asarray(model.inverse_transform(said, *labels)).reshape(len(X), -1)
    m = plain.decode(ErrorBall(said), codes)
    if not plain.normal:
        # A sigmoid's slope is at most ¼.
        m = ErrorBall(0.5 + 0.5 * np.tanh(0.5 * m.x), 0.25 * m.r + 8 * U)
    at = np.asarray(model.varies_, dtype=bool)
    again = ((back - model.loc_) / model.scale_)[:, at]
    worst, lost = 0.0, 0.0
    for one, other in ((said, own), (again, m)):
        size = 1.0 + np.abs(other.x)
        far = np.abs(one - other.x) / size
        worst = max(worst, float(far.max()) if np.isfinite(far).all() else math.inf)
        lost = max(lost, float((other.r / size).max()))
    return bd.proved(
        *("codes_agree", Number(worst, lost + 16 * U), NEAR),
        f"codes and rows of {len(X):,} rows are those of the weights, within "
        f"{worst:.1e} of their size",
        missed=f"a code or a row is {worst:.2g} of its size away from the weights'",
        objective="largest difference of transform and inverse_transform from both "
        "networks, as a share of 1 + their size",
        theorem="both networks were computed again, with a bound on rounding errors",
        fix=FIX,
    )


class _Kind(NamedTuple):
    """A bound: its name, its formula, and what it is called."""

    name: str
    objective: str
    theorem: str


def _bound_claims(
    plain: PlainVAE, rows: RowsGiven, found: Bounds, n_draws: int
) -> list[Claim]:
    """Both lower bounds of the mean log-likelihood, with intervals on new rows."""
    kl = found.divergence
    idle = np.flatnonzero(kl.mean(axis=0) < IDLE)
    collapse = ""
    if len(idle) == kl.shape[1]:
        collapse = (
            "; collapsed: no component carries anything, rows do not depend on it"
        )
    elif len(idle):
        collapse = f"; {len(idle)} of {kl.shape[1]} components carry nothing"
    fix = "a smaller beta, or fewer components" if len(idle) else ""
    kinds = (
        _Kind(
            "likelihood_bound",
            "mean of E_q log p(x | z) − KL(q(z | x) ‖ N(0, I)), a lower bound of the "
            "mean log-likelihood",
            "Jensen's inequality: the bound of a row is at most log p(x)",
        ),
        _Kind(
            "importance_bound",
            f"mean of log of the mean of p(x, z)/q(z | x) over {n_draws} draws, in "
            "expectation a lower bound of the mean log-likelihood",
            "Jensen's inequality, and more draws bring it closer to log p(x)",
        ),
    )
    claims = []
    for kind, values in zip(kinds, (found.elbo, found.weighted), strict=True):
        told = collapse if kind.name == "likelihood_bound" else ""
        if rows.old:
            claims.append(_measured_bound(kind, values, rows.where, told, fix))
        else:
            claims.append(_interval_of_bound(plain, kind, values, told, fix))
    return claims


def _measured_bound(
    kind: _Kind, values: Array, where: str, told: str, fix: str
) -> Claim:
    value, n = float(values.mean()), len(values)
    error = float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    return bd.measured(
        *(kind.name, value),
        f"at least {value:.4g} ± {error:.2g} nats for each of {n:,} {where}, on "
        f"standardised columns{told}",
        objective=f"{kind.objective}; ± is the standard error",
        fix=fix if told else "",
    )


def _interval_of_bound(
    plain: PlainVAE, kind: _Kind, values: Array, told: str, fix: str
) -> Claim:
    """No p(x) exceeds the peak of p(x | z): above it, clipping keeps a lower bound."""
    peak = 0.0
    if plain.normal:
        noise = float(plain.noise.x - plain.noise.r)
        peak = -0.5 * math.log(2 * math.pi * noise)
    high = plain.d * peak
    floor = plain.d * (peak - NATS)
    clipped = np.clip(np.nan_to_num(values, nan=floor), floor, high)
    found = MeanInterval.of(clipped, floor, high, DELTA)
    low, top = (
        outwards(v, up=u, digits=4) for v, u in ((found.low, False), (found.high, True))
    )
    return Claim(
        *(kind.name, Strength.STATISTICAL, found.low, None, True),
        objective=f"{kind.objective}; each row's bound is clipped to [{floor:.4g}, "
        f"{high:.4g}]",
        theorem=f"{kind.theorem}; empirical Bernstein over rows and draws",
        assumptions=ROWS,
        delta=DELTA,
        detail=f"the mean bound of new rows is between {low:.4g} and {top:.4g} nats, "
        f"on standardised columns{told}",
        fix=fix if told else "",
    )


def _bits_claim(plain: PlainVAE, rows: RowsGiven, found: Bounds, step: float) -> Claim:
    """Bits for each column of rows that take evenly spaced values."""
    values = found.rounded
    if values is None:  # Bernoulli: rows of zeros and ones have a probability
        if step != 1.0:
            return bd.refused(
                "bits_per_dimension",
                "a Bernoulli likelihood is about zeros and ones only, and these rows "
                "have other values",
                'rows of zeros and ones, or likelihood="normal"',
            )
        values = found.elbo
    columns = rows.X.shape[1]
    bits = np.clip(
        np.nan_to_num(-values, nan=math.inf) / (columns * math.log(2)), 0, BITS
    )
    return bits_claim(bits, rows, step, columns, "E_q log P(x | z) − KL")


def bits_claim(
    bits: Array, rows: RowsGiven, step: float, columns: int, bound: str
) -> Claim:
    """An upper bound of the bits for each column, with an interval on new rows."""
    mean, n = float(bits.mean()), len(bits)
    about = (
        f"mean of −({bound})/(d log 2) over rows, d = {columns}, at least −log₂ P(x)"
    )
    about += (
        f"/d; P is the probability that a draw, rounded to steps of {step:.4g}, is x"
    )
    if rows.old:
        error = float(bits.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
        return bd.measured(
            *("bits_per_dimension", mean),
            f"at most {mean:.4g} ± {error:.1g} bits for each column of {n:,} "
            f"{rows.where}, rounding included",
            objective=f"{about}; ± is the standard error",
        )
    found = MeanInterval.of(bits, 0.0, BITS, DELTA)
    full = int((bits >= BITS).sum())
    cut = f"; {full:,} of {n:,} rows count as {BITS:g} bits" if full else ""
    low = outwards(found.low, up=False, digits=3)
    high = outwards(found.high, up=True, digits=3)
    return Claim(
        *("bits_per_dimension", Strength.STATISTICAL, found.high, None, True),
        objective=f"{about}; a row's value above {BITS:g} counts as {BITS:g}",
        theorem="the bound of a row is at most log P(x) in expectation over the draws; "
        "empirical Bernstein over rows and draws",
        assumptions=ROWS,
        delta=DELTA,
        detail=f"the bound is between {low:.3g} and {high:.3g} bits for each column of "
        f"new rows, rounding included{cut}",
    )


def _integral_claim(plain: PlainVAE, Z: Array, found: Bounds, cells: int) -> Claim:
    """Log p of some rows between two bounds, and how far below it the ELBO is."""
    ends = bracket(plain, Z, cells)
    low, high = float(ends.low.mean()), float(ends.high.mean())
    elbo, weighted = float(found.elbo.mean()), float(found.weighted.mean())
    wide = float((ends.high - ends.low).max())
    worst = float((ends.low - found.weighted).max())
    told = f"mean log p(x) is between {low:.5g} and {high:.5g} on {len(Z)} rows; the "
    told += f"bound is {elbo:.5g} there, and {weighted:.5g} with importance weights"
    if worst > 0:
        told += f", which misses a row by {worst:.2g} or more"
    if not math.isfinite(high - low):
        told = "the cells do not bound log p(x); it is computed at level full"
    return bd.proved(
        *("integrated_likelihood", Number(high - low, 0.0), None),
        told,
        objective="distance of two bounds of the mean of log ∫ p(x | z) N(z; 0, I) dz "
        f"over {len(Z)} rows, largest for a row {wide:.2g}",
        theorem="in a cell the decoder is linear up to a bounded error, and the "
        "integral of the exponential of a concave quadratic is bounded from both "
        "sides; rounding is bounded too",
        fix='certify(..., level="full") cuts finer cells' if high - low > 1 else "",
    )


def _ppca_scores(Z: Array, S: Spread, k: int, rows: Array) -> Array:
    """Log-likelihoods of rows under the best probabilistic PCA of all of Z."""
    values, V = S.eigen()
    d = Z.shape[1]
    k = min(k, d - 1, len(values))
    noise = max((float(S.diagonal.sum()) - float(values[:k].sum())) / (d - k), 1e-9)
    top = np.maximum(values[:k], noise)
    r = rows - Z.mean(axis=0)
    a = r @ V[:, :k]
    squares = np.square(a) @ (1 / top) + (np.square(r).sum(1) - np.square(a).sum(1)) / (
        noise
    )
    logs = np.log(top).sum() + (d - k) * math.log(noise) + d * math.log(2 * math.pi)
    return np.asarray(-0.5 * (squares + logs))


def _gain_claim(bounds: Array, ppca: Array, k: int) -> Claim:
    value = float((bounds - ppca).mean())
    return bd.measured(
        *("gain_over_pca", value),
        f"{value:+.3g} nats a row against the likelihood of probabilistic PCA with {k} "
        "components on the same rows",
        objective="mean of the bound minus the mean of log N(x; m, WWᵀ + σ²I)",
    )
