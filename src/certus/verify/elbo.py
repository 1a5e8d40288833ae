"""Variational autoencoders: their bounds, computed again by networks of the verifier.

- ``gap_to_best``: linear networks with a normal likelihood are probabilistic PCA. With
  q = N(Ax + a, diag s²) the bound is
      −½(d log 2πσ² + (‖x − W(Ax + a) − m‖² + Σ sⱼ²‖wⱼ‖²)/σ²) − KL,
  and the largest likelihood follows from the eigenvalues of the covariance.
- ``codes_agree``: codes, and rows from codes, as the weights give them.
- ``likelihood_bound``: the mean of E_q log p(x | z) − KL over rows, with draws of the
  verifier's own.
- ``integrated_likelihood``: log p(x) by the trapezoidal rule, and with half the step.
- ``gain_over_pca``: the bound minus the likelihood of the best probabilistic PCA.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from certus import fingerprints
from certus.certificate import Claim
from certus.typing import Array
from certus.verify import data
from certus.verify import deciding as bd
from certus.verify.balls import ErrorBall
from certus.verify.covariance import EIGEN, Spread, covariance_about
from certus.verify.deciding import Number, U, gamma
from certus.verify.gaussian_factors import best_isotropic
from certus.verify.scoring import spread
from certus.verify.stating import Checked, Given, require

#: Rows that are computed again, and draws of a code for each, by level.
SOME, DRAWS = {"quick": 200, "full": 2_000}, {"quick": 16, "full": 64}
#: How far codes and rows may be off, as a share of 1 + their size.
NEAR = 1e-6
#: Nats of a row by which a linear network may be below the best one.
GAP = 1e-6
#: Mean divergence below which a component carries nothing, in nats.
IDLE = 0.01
#: The square that is integrated over, and its points along an axis.
REACH, GRID = 6.0, 81
#: Least logarithm of σ², as networks have it.
LEAST = -14.0
FIX = "restore the model file, or fit again"


class Statement(NamedTuple):
    """An autoencoder: what it was built with, and its weights."""

    config: Mapping[str, Any]
    weights: Mapping[str, Array]
    beta: float


READERS = {
    "VariationalAutoencoder": lambda model: Statement(
        dict(model.config_), model.weights_, float(model.beta)
    )
}


class PlainVAE:
    """Both networks as arrays."""

    def __init__(self, stated: Statement) -> None:
        config = stated.config
        self.d, self.k = int(config["n_inputs"]), int(config["n_components"])
        self.classes, self.hidden = int(config["n_classes"]), tuple(config["hidden"])
        self.normal = config["likelihood"] == "normal"
        n = len(self.hidden)
        self.encoder = self._layers(stated.weights, "encoder", n)
        self.decoder = self._layers(stated.weights, "decoder", n)
        require(self.encoder[-1][0].shape[0] == 2 * self.k, "its encoder does not fit")
        require(self.decoder[-1][0].shape[0] == self.d, "its decoder does not fit")
        self.noise = ErrorBall(1.0)
        if self.normal:
            logs = np.asarray(stated.weights["log_noise"], dtype=np.float64)
            require(logs.shape == (1,), "it has not one variance of the noise")
            self.noise = ErrorBall(np.maximum(logs[0], LEAST)).exp()

    @staticmethod
    def _layers(weights: Mapping[str, Array], name: str, n: int) -> list[Any]:
        keys = [f"{name}.layers.{i}.linear" for i in range(n)] + [f"{name}.output"]
        found = []
        for key in keys:
            W, b = (
                np.asarray(weights.get(f"{key}.{part}"), dtype=np.float64)
                for part in ("weight", "bias")
            )
            require(W.ndim == 2 and b.shape == W.shape[:1], f"{key} has other shapes")
            require(
                bool(np.isfinite(W).all() and np.isfinite(b).all()), f"{key} is NaN"
            )
            found.append((W, b))
        return found

    def run(self, layers: list[Any], x: ErrorBall, codes: Array | None) -> ErrorBall:
        """A perceptron with ReLU; classes are put behind the row."""
        if self.classes:
            told = np.eye(self.classes)[np.zeros(0, int) if codes is None else codes]
            require(len(told) == len(x.x), "the rows have no classes; pass y")
            r = np.hstack([x.r, np.zeros_like(told)])
            x = ErrorBall(np.hstack([x.x, told]), r)
        for W, b in layers[:-1]:
            x = x.times(W, b).clip(0.0, math.inf)
        return x.times(*layers[-1])

    def encode(self, x: ErrorBall, codes: Array | None) -> tuple[ErrorBall, ErrorBall]:
        """Means and logarithms of variances of codes."""
        both = self.run(self.encoder, x, codes)
        return both[:, : self.k], both[:, self.k :]

    def decode(self, z: ErrorBall, codes: Array | None) -> ErrorBall:
        """Rows from codes, before a sigmoid."""
        return self.run(self.decoder, z, codes)

    def log_likelihood(self, x: Array, m: Array) -> Array:
        """Log p(x | z), in float64."""
        if self.normal:
            noise = float(self.noise.x)
            each = np.square(x - m) / noise + math.log(2 * math.pi * noise)
            return np.asarray(-0.5 * each.sum(axis=-1))
        soft = np.maximum(m, 0) + np.log1p(np.exp(-np.abs(m)))
        return np.asarray((x * m - soft).sum(axis=-1))


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The claims of an autoencoder on the rows given."""
    bd.refuse_weights(model, given.sample_weight)
    X = np.asarray(given.X, dtype=np.float64)
    X = data.dense(X.reshape(len(X), -1) if X.ndim > 2 else X)
    y = np.zeros(len(X)) if given.y is None else np.asarray(given.y)
    marks = data.fingerprint(X, np.zeros(len(X)), np.ones(len(X)))
    plain = PlainVAE(stated)
    Z = _standardised(model, X)
    require(Z.shape[1] == plain.d, "its networks have another number of columns")
    codes = _codes(model, y) if plain.classes else None
    linear = plain.normal and not plain.hidden and not plain.classes
    some = spread(len(X), SOME[given.level])
    part = None if codes is None else codes[some]
    fit = getattr(getattr(model, "certificate_", None), "fingerprint", None)
    old = fit is None or fingerprints.same_rows(fit, marks, False)
    claims = []
    with np.errstate(all="ignore"):
        S = None
        if plain.normal and min(Z.shape) <= EIGEN:
            about, shift = covariance_about(Z, Z.mean(axis=0))
            S = about.about_the_mean(shift)
        if linear and S is not None:
            claims.append(_gap_claim(plain, Z, S, stated.beta))
        claims.append(_agreement(model, plain, X[some], Z[some], part))
        held = np.asarray(model.held_out_, dtype=np.int64) if old else np.zeros(0, int)
        require(not len(held) or held.max() < len(X), "held_out_ names rows beyond X")
        chosen = (held if len(held) else np.arange(len(X)))[: 10 * SOME[given.level]]
        part = None if codes is None else codes[chosen]
        bounds, kl = _bounds(plain, Z[chosen], part, DRAWS[given.level])
        where = "rows held out" if len(held) else "rows"
        claims.append(_bound_claim(bounds, kl, where))
        if plain.k <= 2 and not plain.classes and not linear:
            claims.append(_integral_claim(plain, Z[chosen][:50], bounds[:50]))
        if S is not None and not linear and not plain.classes:
            ppca = _ppca_scores(Z, S, plain.k, Z[chosen])
            claims.append(_gain_claim(bounds, ppca, plain.k))
    if not linear:  # what the fit is judged by comes first
        claims.sort(key=lambda claim: claim.name != "likelihood_bound")
    return claims, bd.verdict(claims), marks


def _standardised(model: Any, X: Array) -> Array:
    d = X.shape[1]
    loc, scale = (data.fitted(model, name, (d,)) for name in ("loc_", "scale_"))
    at = np.asarray(model.varies_, dtype=bool)
    require(at.shape == (d,), "varies_ has not one entry for each column")
    return np.asarray((X[:, at] - loc[at]) / scale[at])


def _codes(model: Any, y: Array) -> Array:
    classes = np.asarray(model.classes_)
    places = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    require(bool((classes[places] == y).all()), "y holds a class it was not fitted to")
    return np.asarray(places)


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


def _agreement(
    model: Any, plain: PlainVAE, X: Array, Z: Array, codes: Array | None
) -> Claim:
    """Whether codes, and rows from codes, are those of the weights."""
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
    again = _standardised(model, back)
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


def _bounds(
    plain: PlainVAE, Z: Array, codes: Array | None, n_draws: int
) -> tuple[Array, Array]:
    """The bound of each row with draws of its own, and its divergences."""
    rng = np.random.default_rng(0)
    mean, log_var = (part.x for part in plain.encode(ErrorBall(Z), codes))
    kl = 0.5 * (np.square(mean) + np.expm1(log_var) - log_var)
    total = np.zeros(len(Z))
    for _ in range(n_draws):
        z = mean + np.exp(0.5 * log_var) * rng.standard_normal(mean.shape)
        m = plain.run(plain.decoder, ErrorBall(z), codes).x
        total += plain.log_likelihood(Z, m)
    return total / n_draws - kl.sum(axis=1), kl


def _bound_claim(bounds: Array, kl: Array, where: str) -> Claim:
    value, n = float(bounds.mean()), len(bounds)
    error = float(bounds.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    idle = np.flatnonzero(kl.mean(axis=0) < IDLE)
    told = f"at least {value:.4g} ± {error:.2g} nats for each of {n:,} {where}, on "
    told += "standardised columns"
    if len(idle) == kl.shape[1]:
        told += "; collapsed: no component carries anything, rows do not depend on it"
    elif len(idle):
        told += f"; {len(idle)} of {kl.shape[1]} components carry nothing"
    return bd.measured(
        *("likelihood_bound", value, told),
        objective="mean of E_q log p(x | z) − KL(q(z | x) ‖ N(0, I)), a lower bound of "
        "the mean log-likelihood; ± is the standard error",
        fix="a smaller beta, or fewer components" if len(idle) else "",
    )


def _integral_claim(plain: PlainVAE, Z: Array, bounds: Array) -> Claim:
    coarse, fine = (_integrated(plain, Z, n) for n in (GRID, 2 * GRID - 1))
    apart, value = float(np.abs(fine - coarse).max()), float(fine.mean())
    below = float((fine - bounds).mean())
    return bd.measured(
        *("integrated_likelihood", value),
        f"mean log p(x) is {value:.4g} on {len(Z)} rows, which the bound misses by "
        f"{below:.3g}; half the step changes a row by at most {apart:.1g}",
        objective="∫ p(x | z) N(z; 0, I) dz by the trapezoidal rule from −6 to 6",
    )


def _integrated(plain: PlainVAE, Z: Array, points: int) -> Array:
    axis = np.linspace(-REACH, REACH, points)
    grid = np.stack(np.meshgrid(*[axis] * plain.k, indexing="ij"), axis=-1)
    z = grid.reshape(-1, plain.k)
    prior = -0.5 * (np.square(z) + math.log(2 * math.pi)).sum(axis=1)
    prior += plain.k * math.log(axis[1] - axis[0])
    m = np.vstack([plain.decode(ErrorBall(p), None).x for p in np.array_split(z, 16)])
    return np.array([logsumexp(plain.log_likelihood(row, m) + prior) for row in Z])


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
