"""Autoencoders: codes and rows computed again, and errors beside the best linear ones.

- ``codes_agree``: codes, and rows from codes, as the weights give them. Of sparse codes
  no more entries differ from zero than allowed, and they are those of largest size.
- ``beside_pca``: no linear code of k components has a smaller error on these rows than
  the sum of the eigenvalues left out (Eckart and Young); the model's minus that.
- ``row_error``: the error on rows held out or new, as a share of the variance.
- ``gap_to_best``: linear networks. With A = DE and c = σ² + contraction, the objective
  is tr (I − A)S(I − A)ᵀ + c‖A‖², at least tr S − Σ λⱼ²/(λⱼ + c) over k of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.balls import ErrorBall
from certus.verify.covariance import EIGEN, Spread, covariance_about
from certus.verify.deciding import Number, U, gamma
from certus.verify.language.scoring import spread
from certus.verify.perceptrons import (
    MeanInterval,
    RowsGiven,
    perceptron_keys,
    read_layers,
    rows_given,
    run_layers,
)
from certus.verify.stating import Checked, Given, require
from certus.verify.statistical import ROWS, outwards

#: Rows that are computed again, by level, and rows that pass a network together.
SOME, TOGETHER = {"quick": 500, "full": 5_000}, 2_048
#: How far codes and rows may be off, as a share of 1 + their size.
NEAR = 1e-6
#: How far above its minimum the objective of linear networks may be, by the variance.
GAP = 1e-9
#: Largest error of a row that is counted, and the chance that an interval fails.
CLIP, DELTA = 10.0, 0.05
#: Variance of a component below which it carries nothing, as a share of the largest.
IDLE = 1e-6
FIX = "restore the model file, or fit again"


class Statement(NamedTuple):
    """An autoencoder: what it was built with, its weights, and its objective."""

    config: Mapping[str, Any]
    weights: Mapping[str, Array]
    #: σ² + c.
    lost: float


READERS = {
    "Autoencoder": lambda model: Statement(
        dict(model.config_),
        model.weights_,
        float(model.noise) ** 2 + float(model.contraction),
    )
}


class PlainCoder:
    """Both networks as arrays."""

    def __init__(self, stated: Statement) -> None:
        config, n = stated.config, len(stated.config["hidden"])
        self.d, self.k = int(config["n_inputs"]), int(config["n_components"])
        active = config["n_active"]
        self.active = self.k if active is None else int(active)
        self.encoder = read_layers(stated.weights, perceptron_keys("encoder", n))
        self.decoder = read_layers(stated.weights, perceptron_keys("decoder", n))
        self.linear = not n and self.active == self.k
        require(self.encoder[-1][0].shape[0] == self.k, "its encoder does not fit")
        require(self.decoder[-1][0].shape[0] == self.d, "its decoder does not fit")

    def errors(self, Z: Array) -> tuple[ErrorBall, Array]:
        """The mean square error of each row, and its code."""
        x = ErrorBall(Z)
        z = run_layers(self.encoder, x)
        if self.active < self.k:
            kept = np.argsort(-np.abs(z.x), axis=1, kind="stable")[:, : self.active]
            at = np.zeros(z.x.shape, dtype=bool)
            np.put_along_axis(at, kept, True, axis=1)
            # Where sizes are equal within rounding either choice is one of the model.
            z = ErrorBall(np.where(at, z.x, 0.0), np.where(at, z.r, 0.0))
        rest = x - run_layers(self.decoder, z)
        return (rest * rest).sum() / float(self.d), z.x


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The claims of an autoencoder on the rows given."""
    rows, plain = rows_given(model, given, 0), PlainCoder(stated)
    require(rows.Z.shape[1] == plain.d, "its networks have another number of columns")
    some = np.array(spread(len(rows.Z), SOME[given.level]))
    with np.errstate(all="ignore"):
        errors, codes = _all_errors(plain, rows.Z)
        claims = [_error_claim(plain, rows, errors.x, codes)]
        claims.append(_agreement(model, plain, rows.X[some], rows.Z[some]))
        if min(rows.Z.shape) <= EIGEN:
            about, shift = covariance_about(rows.Z, rows.Z.mean(axis=0))
            S = about.about_the_mean(shift)
            claims.append(_beside_pca(plain, errors, S))
            if plain.linear and rows.old:
                claims.insert(0, _gap_claim(plain, errors, S, stated.lost))
    return claims, bd.verdict(claims), rows.marks


def _all_errors(plain: PlainCoder, Z: Array) -> tuple[ErrorBall, Array]:
    parts = [plain.errors(Z[i : i + TOGETHER]) for i in range(0, len(Z), TOGETHER)]
    x, r = (np.concatenate([getattr(e, n) for e, _ in parts]) for n in "xr")
    return ErrorBall(x, r), np.vstack([codes for _, codes in parts])


# -- claims -------------------------------------------------------------------------


def _error_claim(
    plain: PlainCoder, rows: RowsGiven, errors: Array, codes: Array
) -> Claim:
    """How well rows come back."""
    each = errors[rows.judged]
    variance = codes.var(axis=0)
    idle = int((variance <= IDLE * max(float(variance.max()), 1e-300)).sum())
    told, fix = "", ""
    if idle:
        told = f"; {idle} of {plain.k} components carry nothing"
        told = "; collapsed: every code is the same" if not variance.any() else told
        fix = "fewer components, or a smaller noise, sparsity or contraction"
    about = "mean of ‖x − D(E(x))‖²/d over rows, columns standardised"
    mean, n = float(each.mean()), len(each)
    if rows.old:
        error = float(each.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
        seen = f"{n:,} {rows.where} come back with {mean:.3g} ± {error:.1g} of the "
        seen += f"variance{told}"
        return bd.measured("row_error", mean, seen, objective=about, fix=fix)
    each = np.minimum(np.nan_to_num(each, nan=CLIP), CLIP)
    found = MeanInterval.of(each, 0.0, CLIP, DELTA)
    low, high = outwards(found.low, up=False), outwards(found.high, up=True)
    return Claim(
        *("row_error", Strength.STATISTICAL, found.high, None, True),
        objective=f"{about}; an error above {CLIP:g} counts as {CLIP:g}",
        theorem="empirical Bernstein",
        assumptions=ROWS,
        delta=DELTA,
        detail=f"new rows come back with an error between {low:.3g} and {high:.3g}, "
        f"where the variance is 1{told}",
        fix=fix,
    )


def _agreement(model: Any, plain: PlainCoder, X: Array, Z: Array) -> Claim:
    """Whether codes, and rows from codes, are those of the weights."""
    said = np.asarray(model.transform(X.reshape(len(X), *model.shape_)), np.float64)
    own = run_layers(plain.encoder, ErrorBall(Z))
    require(said.shape == own.x.shape, "it does not code each row")
    kept = said != 0 if plain.active < plain.k else np.ones(said.shape, dtype=bool)
    size = 1.0 + np.abs(own.x)
    far = np.where(kept, np.abs(said - own.x) / size, 0.0)
    lost = own.r / size
    if plain.active < plain.k:
        # Each entry that was left out is at most as large as each that was kept.
        least = np.where(kept, np.abs(own.x), math.inf).min(axis=1, keepdims=True)
        over = np.where(kept, 0.0, np.maximum(np.abs(own.x) - least, 0.0))
        far, lost = far + over / size, 2 * lost
        many = kept.sum(axis=1).max() > plain.active
        far = np.where(many, math.inf, far)
    back = np.asarray(model.inverse_transform(said)).reshape(len(X), -1)
    at = np.asarray(model.varies_, dtype=bool)
    again = ((back - model.loc_) / model.scale_)[:, at]
    m = run_layers(plain.decoder, ErrorBall(said))
    behind = np.abs(again - m.x) / (1.0 + np.abs(m.x))
    every = np.concatenate([far.ravel(), behind.ravel()])
    worst = float(every.max()) if np.isfinite(every).all() else math.inf
    off = max(float(lost.max()), float((m.r / (1.0 + np.abs(m.x))).max()))
    sparse = ""
    if plain.active < plain.k:
        sparse = f"; at most {plain.active} of {plain.k} entries of a code differ from "
        sparse += "zero"
    return bd.proved(
        *("codes_agree", Number(worst, off + 16 * U), NEAR),
        f"codes and rows of {len(X):,} rows are those of the weights, within "
        f"{worst:.1e} of their size{sparse}",
        missed=f"a code or a row is {worst:.2g} of its size away from the weights', or "
        "a code has too many entries",
        objective="largest difference of transform and inverse_transform from both "
        "networks, as a share of 1 + their size",
        theorem="both networks were computed again, with a bound on rounding errors",
        fix=FIX,
    )


def _beside_pca(plain: PlainCoder, errors: ErrorBall, S: Spread) -> Claim:
    """The error minus the least error of any linear code of as many components."""
    mean = errors.sum(axis=0) / float(len(errors.x))
    values, off = S.bounds()
    trace, k = float(S.diagonal.sum()), plain.active
    top = np.maximum(values[:k], 0.0)
    least = max(trace - float(top.sum()), 0.0) / plain.d
    lost = (min(k, len(values)) * off + S.share * trace) / plain.d
    lost += gamma(plain.d + 4) * 2 * trace / plain.d
    value = Number(float(mean.x) - least, float(mean.r) + lost)
    sign = "below" if value.most < 0 else "above"
    apart = abs(value.value)
    return bd.proved(
        *("beside_pca", value, None),
        f"rows come back with an error of {float(mean.x):.4g}, {apart:.2g} {sign} the "
        f"{least:.4g} of the best linear code of {k} components on the same rows",
        objective="mean of ‖x − D(E(x))‖²/d over all rows given, minus the sum of the "
        "eigenvalues of their covariance that are left out, by d; columns standardised",
        theorem="Eckart and Young: no linear code of k components has a smaller error "
        "on these rows",
    )


def _gap_claim(plain: PlainCoder, errors: ErrorBall, S: Spread, lost: float) -> Claim:
    """How far the objective of linear networks is above its minimum."""
    E, D = plain.encoder[-1][0], plain.decoder[-1][0]
    # A is rounded itself; ‖A‖² is off by at most that times its size, twice.
    A, off = D @ E, gamma(plain.k + 2) * (np.abs(D) @ np.abs(E))
    slopes = float(np.square(A).sum()) / plain.d
    slip = float(
        (2 * np.abs(A) * off + off**2).sum() + gamma(A.size) * np.square(A).sum()
    )
    mean = errors.sum(axis=0) / float(len(errors.x))
    values, wrong = S.bounds()
    trace, k = float(S.diagonal.sum()), min(plain.k, len(values))
    top = np.maximum(values[:k], 0.0)
    gain = np.where(top > 0, top**2 / np.maximum(top + lost, 1e-300), 0.0)
    best = max(trace - float(gain.sum()), 0.0)
    # λ²/(λ + c) has slopes between 0 and 1.
    rounding = k * wrong + (S.share + gamma(plain.d + 8)) * 2 * trace
    unit = trace / plain.d or 1.0
    gap = float(mean.x) + lost * slopes - best / plain.d
    total = float(mean.r) + (lost * slip + rounding) / plain.d + 8 * U * unit
    found = Number(max(gap, 0.0) / unit, total / unit)
    return bd.proved(
        *("gap_to_best", found, GAP),
        f"the objective is {found.value:.1e} of the variance above its minimum over "
        f"linear networks of {plain.k} components",
        objective="mean of ‖x − Ax‖²/d + (σ² + c)‖A‖²/d with A = DE, minus its minimum "
        "over matrices of rank k; columns standardised",
        theorem="its minimum is tr S − Σ λⱼ²/(λⱼ + σ² + c) over k eigenvalues",
        fix=FIX,
    )
