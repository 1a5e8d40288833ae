"""Diffusion models: the denoiser computed again, and judged beside two others.

With x = x₀ + σε, the best denoiser on a table of rows is known in closed form, the
memoriser M(x) = Σ wᵢxᵢ, wᵢ ∝ exp(−‖x − xᵢ‖²/2σ²): no denoiser has a smaller mean error
on these rows. On other rows it is worse by a gap, and a model that copies has that gap
too.

- ``denoiser_agrees``: ``denoise`` as the weights give it.
- ``denoising``: errors of model, memoriser and best linear denoiser at some noise
  levels, on rows held out and on training rows. The share of the memoriser's gap that
  the model has is 1 for a copier and 0 for a model that knows nothing of single rows.
  On new rows: the error minus that of x/(1 + σ²), the best factor for each column.
- ``flow_likelihood``: log p by the verifier's own probability flow, its divergence from
  derivatives of its own, with two step sizes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus import fingerprints
from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify import data
from certus.verify import deciding as bd
from certus.verify.deciding import Number, U
from certus.verify.denoisers import (
    PlainDenoiser,
    Statement,
    best_linear,
    flow_log_density,
    memoriser,
)
from certus.verify.scoring import spread
from certus.verify.stating import Checked, Given, require
from certus.verify.statistical import ROWS, bernstein, outwards

#: Rows that are computed again, and draws of noise for each, by level.
SOME, DRAWS = {"quick": 200, "full": 1_000}, {"quick": 4, "full": 16}
#: Noise levels at which denoisers are compared.
LEVELS = (0.05, 0.2, 0.5, 1.0, 2.0)
#: Multiplications that the memoriser may take at each level.
WORK = 1e9
#: How far the denoiser may be off, as a share of 1 + its size.
NEAR = 1e-6
#: The share of the memoriser's gap above which a model copies.
COPIES = 0.5
#: A gap of the memoriser below this, in units of σ²/(1 + σ²), is none.
NO_GAP = 0.05
#: Largest error of a new row that is counted, in the same units.
CLIP, DELTA = 10.0, 0.05
#: The flow: most columns, rows, and steps.
NARROW, FLOWN, STEPS = 16, 20, 32
FIX = "restore the model file, or fit again"


READERS = {
    "Diffusion": lambda model: Statement(dict(model.config_), model.weights_),
}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The claims of a diffusion model on the rows given."""
    bd.refuse_weights(model, given.sample_weight)
    X = np.asarray(given.X, dtype=np.float64)
    X = data.dense(X.reshape(len(X), -1) if X.ndim > 2 else X)
    marks = data.fingerprint(X, np.zeros(len(X)), np.ones(len(X)))
    plain = PlainDenoiser(stated) if "n_inputs" in stated.config else None
    at = np.asarray(model.varies_, dtype=bool)
    loc, scale = (data.fitted(model, n, (X.shape[1],)) for n in ("loc_", "scale_"))
    require(at.shape == loc.shape, "varies_ has not one entry for each column")
    require(plain is None or int(at.sum()) == plain.d, "its network does not fit")
    codes = None
    if stated.config["n_classes"]:
        codes = _codes(model, given.y, len(X))
    rows = _Noisy(model, plain, (loc, scale, at), given.level)
    Z = (X[:, at] - loc[at]) / scale[at]
    fit = getattr(getattr(model, "certificate_", None), "fingerprint", None)
    old = fit is None or fingerprints.same_rows(fit, marks, False)
    held = np.asarray(model.held_out_, dtype=np.int64) if old else np.zeros(0, int)
    require(not len(held) or held.max() < len(X), "held_out_ names rows beyond X")
    with np.errstate(all="ignore"):
        if not old:
            claims = [_new_rows(rows, Z, codes)]
        else:
            claims = [_compared(rows, Z, codes, held)]
        some = spread(len(X), SOME[given.level])
        claims.append(_agreement(rows, Z[some], None if codes is None else codes[some]))
        if plain is not None and plain.d <= NARROW:
            chosen = (held if len(held) else np.arange(len(X)))[:FLOWN]
            claims.append(_likelihood(model, plain, X[chosen], Z[chosen]))
    return claims, bd.verdict(claims), marks


def _codes(model: Any, y: Any, n: int) -> Array:
    classes = np.asarray(model.classes_)
    y = np.zeros(0) if y is None else np.asarray(y)
    require(y.shape == (n,), "the rows have no classes; pass y")
    places = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    require(bool((classes[places] == y).all()), "y holds a class it was not fitted to")
    return np.asarray(places)


class _Noisy:
    """The model's denoiser on standardised rows: the verifier's own, or its method."""

    def __init__(
        self, model: Any, plain: PlainDenoiser | None, by: Any, level: str
    ) -> None:
        self.model, self.plain, self.level = model, plain, level
        self.loc, self.scale, self.at = by

    def said(self, x: Array, sigma: float, codes: Array | None) -> tuple[Array, Array]:
        """Standardised rows as the model reads them, and what it says."""
        X = np.tile(self.loc, (len(x), 1))
        X[:, self.at] = self.loc[self.at] + x * self.scale[self.at]
        read = (X[:, self.at] - self.loc[self.at]) / self.scale[self.at]
        labels = () if codes is None else (np.asarray(self.model.classes_)[codes],)
        found = self.model.denoise(X.reshape(-1, *self.model.shape_), sigma, *labels)
        found = np.asarray(found, dtype=np.float64).reshape(len(X), -1)
        require(found.shape == X.shape, "it does not give a row for each row")
        return read, (found[:, self.at] - self.loc[self.at]) / self.scale[self.at]

    def denoise(self, x: Array, sigma: float, codes: Array | None) -> Array:
        """D of rows, in float64."""
        if self.plain is None:
            return self.said(x, sigma, codes)[1]
        return self.plain.denoise(x, sigma, codes).x


def _agreement(rows: _Noisy, Z: Array, codes: Array | None) -> Claim:
    """Whether ``denoise`` is that of the weights."""
    if rows.plain is None:
        return bd.refused(
            "denoiser_agrees",
            "a U-Net is not computed again; what is said rests on the model's denoise",
            'network="mlp"',
        )
    rng, worst, lost = np.random.default_rng(2), 0.0, 0.0
    whom = [None] if codes is None else [None, codes]  # classes not told, and told
    for part, sigma in zip(np.array_split(np.arange(len(Z)), 4), (0.01, 0.3, 2.0, 40)):
        x = Z[part] + sigma * rng.standard_normal(Z[part].shape)
        for told in whom if len(x) else []:
            who = None if told is None else told[part]
            read, said = rows.said(x, sigma, who)
            own = rows.plain.denoise(read, sigma, who)
            size = 1.0 + np.abs(own.x)
            far = np.abs(said - own.x) / size
            worst = max(worst, float(far.max()) if np.isfinite(far).all() else math.inf)
            lost = max(lost, float((own.r / size).max()))
    return bd.proved(
        *("denoiser_agrees", Number(worst, lost + 16 * U), NEAR),
        f"denoise gives what the weights give on {len(Z):,} rows with noise, within "
        f"{worst:.1e} of its size",
        missed=f"denoise is {worst:.2g} of its size away from the weights'",
        objective="largest difference of denoise from the network, as a share of 1 + "
        "its size; columns standardised",
        theorem="the network was computed again, with a bound on rounding errors",
        fix=FIX,
    )


# -- model, memoriser and line ------------------------------------------------------


class _Errors(NamedTuple):
    """Errors of three denoisers on each row, in units of σ²/(1 + σ²)."""

    model: Array
    memoriser: Array
    linear: Array


def _compared(rows: _Noisy, Z: Array, codes: Array | None, held: Array) -> Claim:
    """Whether the model generalises or copies, from errors at some noise levels."""
    rest = np.setdiff1d(np.arange(len(Z)), held)
    if len(held) < 2 or len(rest) < 2:
        return bd.refused(
            "denoising",
            "no rows were held out, so that copying cannot be told from generalising",
            "early_stopping=True, or certify on new rows",
        )
    draws = DRAWS[rows.level]
    most = int(min(SOME[rows.level], max(20, WORK / (Z.size * draws))))
    found = []
    for k, sigma in enumerate(LEVELS):
        parts = [
            _errors(rows, Z, codes, rest, some[spread(len(some), most)], sigma, k)
            for some in (held, rest)
        ]
        found.append(_Level(sigma, *parts))
    told = [one for one in found if one.gap > max(NO_GAP, 4 * one.gap_error)]
    shares = [one.share for one in told]
    at = int(np.argmax([s - 2 * e for s, e in shares])) if told else -1
    words = "the memoriser is as good on other rows, so copying does not show"
    if told:
        share, error = shares[at]
        better = told[at].better
        words = f"has {share:.2g} ± {error:.1g} of the memoriser's gap"
        if share - 2 * error > COPIES:
            words = f"copies: {words}"
        elif share + 2 * error <= COPIES and max(one.better for one in told) > 2:
            words = f"generalises: {words}"
        elif better < -2:
            words = f"learned little: worse than the memoriser; {words}"
    table = "; ".join(one.line() for one in found)
    return bd.measured(
        *("denoising", shares[at][0] if told else None),
        f"{words}. Errors on rows held out at σ (model, memoriser, best linear): "
        f"{table}",
        objective="largest share, over noise levels, of the memoriser's gap between "
        "held-out and training rows that the model has; errors ‖D − x₀‖²/d in units of "
        "σ²/(1 + σ²), ± standard errors of the model's, paired difference to the "
        "memoriser in brackets",
        fix="more rows, a smaller network, or early_stopping=True"
        if words.startswith("copies")
        else "",
    )


class _Level:
    """Errors at one noise level, on rows held out and on training rows."""

    def __init__(self, sigma: float, held: _Errors, train: _Errors) -> None:
        self.sigma, self.held, self.train = sigma, held, train
        self.gap, self.gap_error = _apart(held.memoriser, train.memoriser)

    @property
    def share(self) -> tuple[float, float]:
        """The share of the memoriser's gap that the model has, and its error."""
        gap, _ = _apart(self.held.model, self.train.model)
        share = gap / self.gap
        _, error = _apart(
            self.held.model - share * self.held.memoriser,
            self.train.model - share * self.train.memoriser,
        )
        return share, error / self.gap

    @property
    def better(self) -> float:
        """By how many standard errors the model is below the memoriser."""
        d = self.held.memoriser - self.held.model
        return float(d.mean() / max(_error(d), 1e-300))

    def line(self) -> str:
        """One level of the table."""
        model, memo, line = (float(e.mean()) for e in self.held)
        d = self.held.model - self.held.memoriser
        return (
            f"{self.sigma:g}: {model:.3g} ± {_error(self.held.model):.1g}, {memo:.3g}, "
            f"{line:.3g} ({d.mean():+.2g} ± {_error(d):.1g})"
        )


def _error(v: Array) -> float:
    return float(v.std(ddof=1) / math.sqrt(len(v))) if len(v) > 1 else math.inf


def _apart(a: Array, b: Array) -> tuple[float, float]:
    """The difference of two means of different rows, and its standard error."""
    return float(a.mean() - b.mean()), math.hypot(_error(a), _error(b))


def _errors(
    rows: _Noisy,
    Z: Array,
    codes: Array | None,
    rest: Array,
    some: Array,
    sigma: float,
    seed: int,
) -> _Errors:
    """Errors of the three on some rows, with the same noise for all three."""
    rng, draws = np.random.default_rng(seed), DRAWS[rows.level]
    every = np.zeros(len(Z), int) if codes is None else codes
    total = np.zeros((3, len(some)))
    for c in np.unique(every[some]):
        mine, known = every[some] == c, Z[rest[every[rest] == c]]
        x0 = Z[some[mine]]
        who = None if codes is None else codes[some[mine]]
        if not len(known):  # a class of held-out rows only
            known = np.zeros((1, Z.shape[1]))
        line = best_linear(known, sigma)
        for _ in range(draws):
            x = x0 + sigma * rng.standard_normal(x0.shape)
            three = rows.denoise(x, sigma, who), memoriser(known, x, sigma), line(x)
            total[:, mine] += [np.square(D - x0).mean(axis=1) for D in three]
    return _Errors(*(total / draws * (1 + sigma**2) / sigma**2))


def _new_rows(rows: _Noisy, Z: Array, codes: Array | None) -> Claim:
    """The model's error on new rows minus that of a factor for each column."""
    rng, draws = np.random.default_rng(3), DRAWS[rows.level]
    total = np.zeros(len(Z))
    for sigma in LEVELS:
        unit = (1 + sigma**2) / sigma**2
        for _ in range(draws):
            x = Z + sigma * rng.standard_normal(Z.shape)
            ours, line = (
                np.minimum(unit * np.square(D - Z).mean(axis=1), CLIP)
                for D in (rows.denoise(x, sigma, codes), x / (1 + sigma**2))
            )
            total += np.where(np.isnan(ours), CLIP, ours) - line
    d = total / (len(LEVELS) * draws)
    width = 2 * CLIP
    variance = float(np.var(d / width, ddof=1)) if len(d) > 1 else 0.0
    half = width * bernstein(len(d), DELTA, variance)
    low, high = (max(min(float(d.mean()) + s * half, CLIP), -CLIP) for s in (-1, 1))
    told = "its error on new rows is not shown to be below or above"
    if high < 0:
        told = "generalises to new rows: its error is below"
    elif low > 0:
        told = "its error on new rows is above"
    return Claim(
        *("denoising", Strength.STATISTICAL, high, None, True),
        objective="mean over new rows, and noise at σ = "
        f"{', '.join(f'{s:g}' for s in LEVELS)}, of the error minus that of "
        f"x/(1 + σ²); errors in units of σ²/(1 + σ²), clipped at {CLIP:g}",
        theorem="empirical Bernstein; noise is drawn for each row on its own",
        assumptions=ROWS,
        delta=DELTA,
        detail=f"{told} that of shrinking each column; difference between "
        f"{outwards(low, up=False):.3g} and {outwards(high, up=True):.3g}",
    )


# -- the density --------------------------------------------------------------------


def _likelihood(model: Any, plain: PlainDenoiser, X: Array, Z: Array) -> Claim:
    """Log-densities by the verifier's own flow, beside the model's."""
    fine, coarse = (_log_density(model, plain, Z, n) for n in (2 * STEPS, STEPS))
    scale = np.asarray(model.scale_)[np.asarray(model.varies_, dtype=bool)]
    said = np.asarray(model.score_samples(X.reshape(-1, *model.shape_)))
    require(said.shape == (len(X),), "it does not score each row")
    value = float(fine.mean() - np.log(scale).sum())
    off = float(np.abs(said + np.log(scale).sum() - fine).max())
    step = float(np.abs(fine - coarse).max())
    return bd.measured(
        *("flow_likelihood", value),
        f"mean log-density {value:.4g} on {len(X)} rows; score_samples is off by at "
        f"most {off:.1g}, and half the step changes a row by at most {step:.1g}",
        objective="log N(z; 0, I) at the end of the probability flow plus the integral "
        "of its divergence",
    )


def _log_density(model: Any, plain: PlainDenoiser, Z: Array, steps: int) -> Array:
    if not plain.classes:
        return flow_log_density(plain, Z, None, steps)
    prior = np.asarray(model.class_prior_, dtype=np.float64)
    require(prior.shape == (plain.classes,), "class_prior_ does not fit")
    each = np.array(
        [
            flow_log_density(plain, Z, np.full(len(Z), c), steps) + math.log(prior[c])
            for c in range(plain.classes)
        ]
    )
    top = each.max(axis=0)
    return np.asarray(top + np.log(np.exp(each - top).sum(axis=0)))
