"""Diffusion models: the denoiser computed again, and judged beside two others.

With x = x₀ + σε, the best denoiser on a table of rows is known in closed form, the
memoriser M(x) = Σ wᵢxᵢ, wᵢ ∝ exp(−‖x − xᵢ‖²/2σ²): no denoiser has a smaller mean error
on these rows. On other rows it is worse by a gap, and a model that copies has that gap
too.

- ``denoiser_agrees``: ``denoise`` as the weights give it.
- ``denoising``: the share of the memoriser's gap that the model has, 1 for a copier and
  0 for a model that knows nothing of single rows. On new rows: the error minus that of
  x/(1 + σ²), the best factor for each column.
- ``denoising_errors``: errors of model, memoriser and best linear denoiser on rows held
  out, with intervals of paired differences at each noise level.
- ``memoriser_floor``: the same on training rows, where none is below the memoriser.
- ``bits_per_dimension``, ``flow_likelihood``: see ``noise_bits`` and ``denoisers``;
  ``sample_density``, on level "full" and for few columns: see ``drawn_density``.

Rows and noise are drawn by the verifier. Noise is cut at a length R that one draw in
10⁴ exceeds, and denoisers are moved into the ball of radius R around x, where x₀ is:
that makes no error larger, and all errors bounded.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number, U
from certus.verify.denoisers import (
    NoisyNetwork,
    PlainDenoiser,
    Statement,
    best_linear,
    flow_log_density,
    memoriser,
)
from certus.verify.drawn_density import ColumnScaling, StartMixture, draws_claim
from certus.verify.language.scoring import spread
from certus.verify.noise_bits import noise_bits
from certus.verify.perceptrons import MeanInterval, RowsGiven, rows_given
from certus.verify.stating import Checked, Given, require
from certus.verify.statistical import ROWS, outwards
from certus.verify.unet import PlainUNet

#: Rows that are computed again, by level; of a U-Net only a few.
SOME, FEW = {"quick": 200, "full": 1_000}, {"quick": 4, "full": 16}
#: Multiplications at each noise level, and least and most draws of row and noise.
WORK, DRAWS = {"quick": 2e8, "full": 2e9}, (48, 20_000)
#: Noise levels at which denoisers are compared, and how often noise is cut.
LEVELS, CUT = (0.05, 0.2, 0.5, 1.0, 2.0), 1e-4
#: How far the denoiser may be off, as a share of 1 + its size.
NEAR = 1e-6
#: The share of the memoriser's gap above which a model copies.
COPIES = 0.5
#: A gap of the memoriser below this, in units of σ²/(1 + σ²), is none.
NO_GAP = 0.05
#: Largest error of a new row that is counted, in the same units.
CLIP, DELTA = 10.0, 0.05
#: The flow: most columns by level, rows, and steps.
NARROW, FLOWN, STEPS = {"quick": 16, "full": 128}, 20, 32
#: Most columns whose draws are compared with the density, and draws: each is a flow.
DRAWN, DRAWS_OF_FLOW = 4, 2_000
FIX = "restore the model file, or fit again"


READERS = {
    "Diffusion": lambda model: Statement(dict(model.config_), model.weights_),
}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The claims of a diffusion model on the rows given."""
    plain: NoisyNetwork
    plain = (PlainUNet if "image_shape" in stated.config else PlainDenoiser)(stated)
    rows = rows_given(model, given, plain.classes)
    require(rows.Z.shape[1] == plain.d, "its network does not fit")
    level = given.level
    with np.errstate(all="ignore"):
        if rows.old:
            claims = _compared(plain, rows, level)
        else:
            claims = [_new_rows(plain, rows, level)]
        claims.append(_agreement(model, plain, rows, level))
        bits = noise_bits(plain, model, rows, level)
        claims += [] if bits is None else [bits]
        if isinstance(plain, PlainDenoiser) and plain.d <= NARROW[level]:
            n = FLOWN if plain.d <= NARROW["quick"] else 4
            chosen = rows.judged[:n]
            claims.append(_likelihood(model, plain, rows.X[chosen], rows.Z[chosen]))
            if level == "full" and plain.d <= DRAWN:
                claims.append(_drawn_claim(model, rows))
    return claims, bd.verdict(claims), rows.marks


def _agreement(model: Any, plain: NoisyNetwork, rows: RowsGiven, level: str) -> Claim:
    """Whether ``denoise`` is that of the weights."""
    deep = isinstance(plain, PlainUNet)
    some = np.array(spread(len(rows.Z), (FEW if deep else SOME)[level]))
    Z, codes = rows.Z[some], rows.codes_at(some)
    rng, worst, lost = np.random.default_rng(2), 0.0, 0.0
    whom = [None] if codes is None else [None, codes]  # classes not told, and told
    for part, sigma in zip(np.array_split(np.arange(len(Z)), 4), (0.01, 0.3, 2.0, 40)):
        x = Z[part] + sigma * rng.standard_normal(Z[part].shape)
        for told in whom if len(x) else []:
            who = None if told is None else told[part]
            read, said = _said(model, x, sigma, who)
            own = plain.denoise(read, sigma, who)
            size = 1.0 + np.abs(own.x)
            far = np.abs(said - own.x) / size
            worst = max(worst, float(far.max()) if np.isfinite(far).all() else math.inf)
            lost = max(lost, float((own.r / size).max()))
    told_of = f"denoise gives what the weights give on {len(Z):,} rows with noise, "
    told_of += f"within {worst:.1e} of its size"
    about = "largest difference of denoise from the network, as a share of 1 + its size"
    if deep and worst <= NEAR < lost:
        why = "; worst cases of rounding multiply from layer to layer to "
        told_of += f"{why}{lost:.0e}, so it is not more than measured"
        return bd.measured("denoiser_agrees", worst, told_of, objective=about)
    return bd.proved(
        *("denoiser_agrees", Number(worst, lost + 16 * U), NEAR),
        told_of,
        missed=f"denoise is {worst:.2g} of its size away from the weights'",
        objective=f"{about}; columns standardised",
        theorem="the network was computed again, with a bound on rounding errors",
        fix=FIX,
    )


def _said(
    model: Any, x: Array, sigma: float, codes: Array | None
) -> tuple[Array, Array]:
    """Standardised rows as the model reads them, and what it says."""
    loc, scale = np.asarray(model.loc_), np.asarray(model.scale_)
    at = np.asarray(model.varies_, dtype=bool)
    X = np.tile(loc, (len(x), 1))
    X[:, at] = loc[at] + x * scale[at]
    read = (X[:, at] - loc[at]) / scale[at]
    labels = () if codes is None else (np.asarray(model.classes_)[codes],)
    found = model.denoise(X.reshape(-1, *model.shape_), sigma, *labels)
    found = np.asarray(found, dtype=np.float64).reshape(len(X), -1)
    require(found.shape == X.shape, "it does not give a row for each row")
    return read, (found[:, at] - loc[at]) / scale[at]


# -- model, memoriser and line ------------------------------------------------------


class _Errors(NamedTuple):
    """Errors of three denoisers at each draw, in units of σ²/(1 + σ²)."""

    model: Array
    memoriser: Array
    linear: Array
    #: No error can be larger.
    most: float
    #: Means of the three for each row that was drawn: rows are what differs elsewhere.
    by_row: Array


def _compared(plain: NoisyNetwork, rows: RowsGiven, level: str) -> list[Claim]:
    """Whether the model generalises or copies, from errors at some noise levels."""
    every = np.arange(len(rows.Z))
    train = rows.rest if len(rows.rest) else every
    alone = len(rows.rest) < 2 or len(rows.judged) < 2
    found = []
    for k, sigma in enumerate(LEVELS):
        parts = [
            _errors(plain, rows, train, some, sigma, (k, level))
            for some in ((train,) if alone else (rows.judged, train))
        ]
        found.append(_Level(sigma, parts[0], parts[-1]))
    floor = _floor_claim(found)
    if alone:
        why = "no rows were held out, so that copying cannot be told from generalising"
        fix = "early_stopping=True, or certify on new rows"
        return [bd.refused("denoising", why, fix), floor]
    return [_share_claim(found), _errors_claim(found), floor]


def _share_claim(found: list[_Level]) -> Claim:
    """Which share of the memoriser's gap the model has."""
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
    return bd.measured(
        *("denoising", shares[at][0] if told else None, words),
        objective="largest share, over noise levels, of the memoriser's gap between "
        "held-out and training rows that the model has; errors ‖D − x₀‖²/d in units of "
        "σ²/(1 + σ²), ± standard errors",
        fix="more rows, a smaller network, or early_stopping=True"
        if words.startswith("copies")
        else "",
    )


def _errors_claim(found: list[_Level]) -> Claim:
    """The three side by side on rows held out, with intervals of both differences."""
    delta, lines, ends = DELTA / (2 * len(found)), [], []
    below: dict[str, list[str]] = {"the memoriser": [], "the best linear denoiser": []}
    for one in found:
        e = one.held
        apart = [
            MeanInterval.of(e.model - other, -e.most, e.most, delta)
            for other in (e.memoriser, e.linear)
        ]
        for name, diff in zip(below, apart, strict=True):
            below[name] += [f"{one.sigma:g}"] if diff.high < 0 else []
        ends.append(apart[0].high)
        means = ", ".join(f"{float(v.mean()):.3g}" for v in e[:3])
        spans = " and ".join(
            f"{outwards(d.low, up=False):.2g} to {outwards(d.high, up=True):.2g}"
            for d in apart
        )
        lines.append(f"{one.sigma:g}: {means}; minus both {spans}")
    words = "; ".join(
        f"below {name} at σ = {', '.join(at)}"
        if at
        else f"not shown to be below {name}"
        for name, at in below.items()
    )
    return Claim(
        *("denoising_errors", Strength.STATISTICAL, min(ends), None, True),
        objective="mean of ‖D − x₀‖²/d over rows held out and noise, in units of "
        "σ²/(1 + σ²); the value is the least upper end of model minus memoriser",
        theorem="empirical Bernstein over the verifier's draws of rows and noise, at "
        "all noise levels together",
        assumptions=("the verifier's random numbers are independent",),
        delta=DELTA,
        detail=f"{words}. Errors at σ (model, memoriser, best linear): "
        f"{' | '.join(lines)}",
    )


def _floor_claim(found: list[_Level]) -> Claim:
    """On training rows no denoiser is below the memoriser."""
    delta, ends, lines = DELTA / len(found), [], []
    for one in found:
        e = one.train
        diff = MeanInterval.of(e.model - e.memoriser, -e.most, e.most, delta)
        ends.append(diff.high)
        lines.append(f"{one.sigma:g}: {diff.mean:.2g}")
    sound = min(ends) >= 0
    told = "on its training rows the model's error is above the least there can be, as "
    told += f"it must; by, at σ: {', '.join(lines)}"
    if not sound:
        told = "the error on training rows is below that of the memoriser, which no "
        told += f"denoiser can reach; by, at σ: {', '.join(lines)}"
    return Claim(
        *("memoriser_floor", Strength.STATISTICAL, min(ends), None, sound),
        objective="mean of ‖D − x₀‖² − ‖M − x₀‖² over training rows and noise, by d, "
        "in units of σ²/(1 + σ²); the least upper end over noise levels",
        theorem="M(x) = E[x₀ | x] over the training rows has the least mean square "
        "error of all functions of x; empirical Bernstein at all noise levels together",
        assumptions=("the verifier's random numbers are independent",),
        delta=DELTA,
        detail=told,
        fix="" if sound else "the denoiser sees more than x; fit again",
    )


class _Level:
    """Errors at one noise level, on rows held out and on training rows."""

    def __init__(self, sigma: float, held: _Errors, train: _Errors) -> None:
        self.sigma, self.held, self.train = sigma, held, train
        self.gap, self.gap_error = _apart(held.by_row[1], train.by_row[1])

    @property
    def share(self) -> tuple[float, float]:
        """The share of the memoriser's gap that the model has, and its error."""
        held, train = self.held.by_row, self.train.by_row
        share = _apart(held[0], train[0])[0] / self.gap
        _, error = _apart(held[0] - share * held[1], train[0] - share * train[1])
        return share, error / self.gap

    @property
    def better(self) -> float:
        """By how many standard errors the model is below the memoriser."""
        d = self.held.by_row[1] - self.held.by_row[0]
        return float(d.mean() / max(_error(d), 1e-300))


def _error(v: Array) -> float:
    return float(v.std(ddof=1) / math.sqrt(len(v))) if len(v) > 1 else math.inf


def _apart(a: Array, b: Array) -> tuple[float, float]:
    """The difference of two means of different rows, and its standard error."""
    return float(a.mean() - b.mean()), math.hypot(_error(a), _error(b))


def _errors(
    plain: NoisyNetwork,
    rows: RowsGiven,
    train: Array,
    some: Array,
    sigma: float,
    seed: tuple[int, str],
) -> _Errors:
    """Errors of the three on rows drawn from some, with the same noise for all."""
    Z, (number, level) = rows.Z, seed
    rng, d = np.random.default_rng([number, len(some)]), Z.shape[1]
    # A weight of the memoriser costs about as much as thirty products.
    cost = plain.cost + (d + 30) * len(train)
    n = int(np.clip(WORK[level] / cost, *DRAWS))
    drawn = some[rng.integers(len(some), size=n)]
    noise, limit = rng.standard_normal((n, d)), math.sqrt(chi2.isf(CUT, d))
    length = np.linalg.norm(noise, axis=1, keepdims=True)
    while (length > limit).any():  # drawn again, so that it is a cut normal
        long = length[:, 0] > limit
        noise[long] = rng.standard_normal((int(long.sum()), d))
        length = np.linalg.norm(noise, axis=1, keepdims=True)
    x0, reach = Z[drawn], sigma * limit
    x, codes = x0 + sigma * noise, rows.codes_at(drawn)
    three = np.empty((3, n, d))
    three[0] = plain.values(x, sigma, codes)
    every = np.zeros(len(Z), int) if rows.codes is None else rows.codes
    for c in np.unique(every[drawn]):
        mine, known = every[drawn] == c, Z[train[every[train] == c]]
        if not len(known):  # a class of held-out rows only
            known = np.zeros((1, d))
        three[1, mine] = memoriser(known, x[mine], sigma, reach)
        three[2, mine] = best_linear(known, sigma)(x[mine])
    unit = (1 + sigma**2) / sigma**2
    off = three - x
    far = np.linalg.norm(off, axis=2, keepdims=True)
    off *= np.minimum(1.0, reach / np.maximum(far, 1e-300))
    errors = unit * np.square(np.nan_to_num(x + off - x0, nan=2 * reach)).mean(axis=2)
    _, row = np.unique(drawn, return_inverse=True)
    means = np.array([np.bincount(row, e) for e in errors]) / np.bincount(row)
    return _Errors(errors[0], errors[1], errors[2], unit * (2 * reach) ** 2 / d, means)


def _new_rows(plain: NoisyNetwork, rows: RowsGiven, level: str) -> Claim:
    """The model's error on new rows minus that of a factor for each column."""
    Z, rng = rows.Z, np.random.default_rng(3)
    draws = int(np.clip(WORK[level] / (plain.cost * len(Z)), 1, 16))
    total = np.zeros(len(Z))
    for sigma in LEVELS:
        unit = (1 + sigma**2) / sigma**2
        for _ in range(draws):
            x = Z + sigma * rng.standard_normal(Z.shape)
            ours, line = (
                np.minimum(unit * np.square(D - Z).mean(axis=1), CLIP)
                for D in (plain.values(x, sigma, rows.codes), x / (1 + sigma**2))
            )
            total += np.where(np.isnan(ours), CLIP, ours) - line
    found = MeanInterval.of(total / (len(LEVELS) * draws), -CLIP, CLIP, DELTA)
    told = "its error on new rows is not shown to be below or above"
    if found.high < 0:
        told = "generalises to new rows: its error is below"
    elif found.low > 0:
        told = "its error on new rows is above"
    return Claim(
        *("denoising", Strength.STATISTICAL, found.high, None, True),
        objective="mean over new rows, and noise at σ = "
        f"{', '.join(f'{s:g}' for s in LEVELS)}, of the error minus that of "
        f"x/(1 + σ²); errors in units of σ²/(1 + σ²), clipped at {CLIP:g}",
        theorem="empirical Bernstein; noise is drawn for each row on its own",
        assumptions=ROWS,
        delta=DELTA,
        detail=f"{told} that of shrinking each column; difference between "
        f"{outwards(found.low, up=False):.3g} and {outwards(found.high, up=True):.3g}",
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


def _drawn_claim(model: Any, rows: RowsGiven) -> Claim:
    """Whether rows that are drawn have the density that ``score_samples`` states."""
    if model.sampler == "ddpm" or float(model.guidance) != 1.0:
        told = "score_samples is about draws by the flow without guidance, not these"
        return bd.refused("sample_density", told, 'sampler="heun" and guidance=1')
    scaling, around = ColumnScaling.of(model, rows.X), StartMixture.around(rows.Z)
    return draws_claim(model, scaling, around, "full", draws=DRAWS_OF_FLOW)


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
