"""Normalising flows: bijective for every row, with the density and draws they state.

- ``bijective``: the boolean product of a layer's masks shows which columns decide over
  which. If none decides over itself or an earlier one, the layer is triangular for
  every input; slopes are bounded from below for all parameters. Such a map is one to
  one and onto, so the density integrates to the sum of the mixture's shares.
- ``log_density``: on rows, log r(S(x)) + log |det ∇S(x)| from the verifier's own
  layers, each number with a radius that holds its rounding errors.
- ``inverse``: on rows, how far S⁻¹(S(x)) is from x.
- ``start``: the mixture behind the flow is the one that the fit has stated.
- ``sample_density``: rows that are drawn have the density that is stated; see
  :mod:`certus.verify.drawn_density`.
- ``gain``: log p minus that of the mixture on new rows, clipped, with an interval; on
  rows of the fit a measured number, and ``stated_score`` recomputes the stated one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from certus import fingerprints
from certus.certificate import Claim, Status, Strength
from certus.typing import Array
from certus.verify import data
from certus.verify import deciding as bd
from certus.verify.balls import ErrorBall
from certus.verify.deciding import Number, U, gamma
from certus.verify.drawn_density import ColumnScaling, StartMixture, draws_claim
from certus.verify.flow_maps import PlainFlow, mixture, structure
from certus.verify.language.scoring import spread
from certus.verify.stating import Checked, Given, require
from certus.verify.statistical import ROWS, bernstein, hoeffding, outwards

#: Rows that are computed again on level "quick" and "full".
SOME = {"quick": 200, "full": 2_000}
#: How far log-densities may be off, as a share of 1 + |log p|; inverses, in spreads.
NEAR, BACK = 1e-6, 1e-9
#: How far the mixture behind a flow may be from the stated one.
SAME = 1e-6
#: Nats beyond which a gain does not count, and the chance of error.
CLIP, DELTA = 5.0, 0.05
FIX = "restore the model file, or fit again"


class Statement(NamedTuple):
    """A flow: what it was built with, and its weights."""

    config: Mapping[str, Any]
    weights: Mapping[str, Array]


READERS = {
    "NormalizingFlow": lambda model: Statement(dict(model.config_), model.weights_)
}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The claims of a flow on the rows given."""
    bd.refuse_weights(model, given.sample_weight)
    shape = tuple(model.shape_)
    X = np.asarray(given.X, dtype=np.float64)
    if X.shape[1:] == shape:
        X = X.reshape(len(X), -1)
    X = data.dense(X)
    marks = data.fingerprint(X, np.zeros(len(X)), np.ones(len(X)))
    flow, scaling = PlainFlow(stated.config, stated.weights), ColumnScaling.of(model, X)
    rows = spread(len(X), SOME[given.level])
    with np.errstate(all="ignore"):
        claims = [_bijective(flow, scaling)]
        if claims[0].met:
            mix = StartMixture.of(model.mixture_, flow.d)
            claims.append(_density_claim(model, flow, scaling, X[rows]))
            claims.append(_inverse_claim(model, scaling, X[rows]))
            claims.append(_start_claim(flow, mix))
            claims.append(draws_claim(model, scaling, mix, given.level))
            claims += _added_claims(model, flow, scaling, mix, X, marks)
    status = bd.verdict(claims)
    # Draws that are refuted count as much as a proof that fails.
    claims.sort(key=lambda claim: claim.met is not False)
    status = Status.TOL_NOT_REACHED if claims[0].met is False else status
    return claims, status, marks


# -- for every row --------------------------------------------------------------------


def _bijective(flow: PlainFlow, scaling: ColumnScaling) -> Claim:
    found = structure(flow)
    shares = flow.get("shares", (flow.k,))
    off = abs(math.fsum(shares.tolist()) - 1.0)
    sound = bool((shares >= 0).all() and (scaling.scale > 0).all())
    sound &= len(shares) > 0 and int(scaling.varies.sum()) == flow.d
    sound &= _upper(flow) and found.slope > 0
    value = off if sound and not found.wrong else max(1.0, float(found.wrong))
    slope = outwards(found.slope, up=False) if found.slope > 0 else 0.0
    words = (
        "no column decides over itself or an earlier one",
        "an increasing triangular map",
    )
    if flow.kind == "planar":
        words = "each layer moves along one direction", "a map along one direction"
    return bd.proved(
        *("bijective", Number(value, 4 * U), 1e-9),
        f"one to one and onto for every row: {words[0]}, and slopes are at least "
        f"{slope:.1g}",
        missed=f"not shown to be one to one: {found.wrong} dependences between columns "
        f"break their order, the least slope is {slope:.1g}",
        objective="paths through the masks that break the order of columns; "
        "|Σ shares of the mixture − 1|",
        theorem=f"{words[1]} whose slopes are bounded away from zero is a bijection, "
        "and p(x) = r(S(x)) |det ∇S(x)| integrates to one",
        fix=FIX,
    )


def _upper(flow: PlainFlow) -> bool:
    """Whether the factors of the mixture are triangular with positive diagonals."""
    full = flow.config["covariance"] == "full"
    shape = (flow.k, flow.d, flow.d) if full else (flow.k, flow.d)
    factors = flow.get("factors", shape)
    if not full:
        return bool((factors > 0).all())
    sizes = np.diagonal(factors, axis1=1, axis2=2)
    return bool((sizes > 0).all() and not np.tril(factors, -1).any())


# -- on rows --------------------------------------------------------------------------


def _density_claim(
    model: Any, flow: PlainFlow, scaling: ColumnScaling, X: Array
) -> Claim:
    z, log_det = flow.forward(scaling.inner(X))
    own = flow.base(z) + log_det - scaling.volume()
    said = np.asarray(model.score_samples(scaling.rows(X)), dtype=np.float64)
    require(said.shape == own.x.shape, "it does not score each row")
    # Rows too far away for any number: both say so, or the comparison is void.
    seen = np.isfinite(own.x) & np.isfinite(own.r)
    seen &= ~((scaling.loc != X) & ~scaling.varies).any(axis=1)
    size = 1.0 + np.abs(own.x)
    apart = np.where(np.isfinite(said), np.abs(said - own.x) / size, np.inf)[seen]
    lost = ((own.r + U * np.abs(own.x)) / size)[seen]
    if not len(apart):
        return bd.refused(
            "log_density", "every row is too far away for a density", "pass other rows"
        )
    i = int(np.argmax(apart + lost))
    return bd.proved(
        *("log_density", Number(float(apart[i]), float(lost[i])), NEAR),
        f"the log-densities of {len(apart):,} rows agree within {apart.max():.1e} of "
        "their size",
        missed=f"a log-density is {apart[i]:.2g} of its size away from that of the "
        "flow's weights",
        objective="largest |log p of the model − (log r(S(x)) + log |det ∇S(x)|)|, as "
        "a share of 1 + |log p|",
        theorem="S and its derivatives were computed again from the weights, each "
        "number with a radius that holds its rounding errors",
        fix=FIX,
    )


def _inverse_claim(model: Any, scaling: ColumnScaling, X: Array) -> Claim:
    rows = scaling.rows(X)
    again = np.asarray(model.inverse_transform(model.transform(rows)))
    require(again.shape == rows.shape, "its inverse does not give rows back")
    off = np.abs(again.reshape(len(X), -1) - X)[:, scaling.varies]
    size = scaling.scale[scaling.varies]
    # Far from the middle a float64 has no digits left for a billionth of a spread.
    far = np.abs(X - scaling.loc)[:, scaling.varies] / size
    off = off / size / np.maximum(1.0, far)
    worst = float(off.max()) if np.isfinite(off).all() else math.inf
    return bd.proved(
        *("inverse", Number(worst, 8 * U), BACK),
        f"S⁻¹(S(x)) is within {worst:.1e} spreads of x on {len(X):,} rows",
        missed=f"S⁻¹(S(x)) is {worst:.2g} spreads away from x",
        objective="largest |inverse_transform(transform(x)) − x| in units of the "
        "column's spread, or of x where that is larger",
        theorem="both were called on these rows and their results subtracted",
        fix=FIX,
    )


def _start_claim(flow: PlainFlow, mix: StartMixture) -> Claim:
    """Whether the mixture behind the flow is the stated one."""
    off, lost = math.inf, 0.0
    if flow.kind == "linear":
        A = np.tril(flow.get("layers.0.weight", (flow.d, flow.d)))
        b = flow.get("layers.0.bias", (flow.d,))
        shares, means, factors = np.ones(1), -np.linalg.solve(A, b)[None], A.T[None]
    else:
        full = flow.config["covariance"] == "full"
        shape = (flow.k, flow.d, flow.d) if full else (flow.k, flow.d)
        shares, means = (
            flow.get("shares", (flow.k,)),
            flow.get("means", (flow.k, flow.d)),
        )
        factors = flow.get("factors", shape)
        factors = factors if full else factors[:, :, None] * np.eye(flow.d)
    if len(shares) == len(mix.shares):
        sizes = (
            np.abs(factors).swapaxes(1, 2) @ np.abs(mix.covariances) @ np.abs(factors)
        )
        bent = factors.swapaxes(1, 2) @ mix.covariances @ factors - np.eye(flow.d)
        spreads = np.sqrt(np.diagonal(mix.covariances, axis1=1, axis2=2))
        moved = np.abs(means - mix.means) / spreads
        off = max(
            float(np.abs(shares - mix.shares).max()),
            float(moved.max()),
            float((np.abs(bent) / sizes).max()),
        )
        lost = gamma(2 * flow.d + 4)
    return bd.proved(
        *("start", Number(off, lost), SAME),
        "the mixture behind the flow is the one it started at",
        missed=f"the mixture behind the flow is not mixture_: {off:.2g} apart",
        objective="largest difference of shares, means (in spreads) and UᵀΣU − I",
        theorem="entry by entry, with the rounding of the products",
        fix=FIX,
    )


# -- what the flow adds ---------------------------------------------------------------


def _added_claims(
    model: Any,
    flow: PlainFlow,
    scaling: ColumnScaling,
    mix: StartMixture,
    X: Array,
    marks: dict[str, Any],
) -> list[Claim]:
    """What the flow adds to its start; on rows of the fit also what it has stated."""
    fit = getattr(getattr(model, "certificate_", None), "fingerprint", None)
    old = fit is None or fingerprints.same_rows(fit, marks, False)
    held = np.asarray(getattr(model, "held_out_", ()), dtype=np.int64)
    if old and len(held):
        require(held.min() >= 0 and held.max() < len(X), "held_out_ names no rows")
        X = X[held]
    gains, own = [], []
    for part in np.array_split(X, max(1, len(X) // 2_000)):
        x = scaling.inner(part)
        z, log_det = flow.forward(x)
        found = flow.base(z) + log_det
        start = mixture(x, mix.shares, mix.means, mix.factors)
        own.append(found - scaling.volume())
        gains.append(found.x - start.x)
    d = np.concatenate(gains)
    d = np.clip(np.where(np.isnan(d), -CLIP, d), -CLIP, CLIP)
    claims = [_gain_claim(d, old, len(held))]
    # Rows in another order than in the fit are not those that were held out.
    if old and len(held) and (fit is None or fingerprints.same_data(fit, marks)):
        claims.append(_stated_claim(model, own))
    return claims


def _stated_claim(model: Any, own: list[ErrorBall]) -> Claim:
    x = np.concatenate([each.x for each in own])
    lost = np.concatenate([each.r for each in own])
    mean, said = math.fsum(x.tolist()) / len(x), float(model.validation_score_)
    size = 1.0 + abs(mean)
    off = abs(mean - said) / size if math.isfinite(mean - said) else math.inf
    rounding = float(lost.mean()) + gamma(len(x) + 4) * float(np.abs(x).mean())
    return bd.proved(
        *("stated_score", Number(off, rounding / size), SAME),
        f"the held-out rows have the stated mean log-density, {said:.4g}",
        missed=f"held-out rows have a mean log-density of {mean:.4g}, not {said:.4g}",
        objective="|validation_score_ − mean log p of the held-out rows|, as a share "
        "of 1 + |mean|",
        theorem="computed again from the weights, with a bound on rounding errors",
        fix=FIX,
    )


def _gain_claim(d: Array, old: bool, held: int) -> Claim:
    n, mean = len(d), float(d.mean())
    words: Any = {
        "objective": "mean of log p(x) − log r(x), r the mixture of the start, each "
        f"clipped to ±{CLIP:g} nats",
    }
    if old:
        where = "rows held out, by which it was chosen" if held else "rows"
        told = f"{mean:+.3g} nats for each of {n:,} {where}; certify on new rows"
        return bd.measured("gain", mean, told, **words)
    variance = float(np.var(d / (2 * CLIP), ddof=1)) if n > 1 else 0.0
    hopeless = bernstein(n, DELTA, 0.0) >= hoeffding(n, DELTA)
    half = hoeffding(n, DELTA) if hopeless else bernstein(n, DELTA, variance)
    low, high = mean - 2 * CLIP * half, mean + 2 * CLIP * half
    low, high = max(low, -CLIP), min(high, CLIP)
    return Claim(
        *("gain", Strength.STATISTICAL, low, None, True),
        theorem="empirical Bernstein for the mean of paired differences (few rows: "
        "Hoeffding)",
        assumptions=ROWS,
        delta=DELTA,
        detail=f"between {outwards(low, up=False):+.3g} and "
        f"{outwards(high, up=True):+.3g} nats more than the mixture for each new row",
        **words,
    )
