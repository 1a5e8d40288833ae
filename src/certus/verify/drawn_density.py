"""Whether rows that a model draws have the density that it states.

For a set B and a number c, both fixed before the draws, rows x with density p have

    E[1{x ∈ B, p(x) ≥ c}/p(x)] = vol{x ∈ B : p(x) ≥ c}

Both sides are means of bounded numbers: the left of c/p ≤ 1 over rows that the model
draws, the right the share of uniform points of B with p ≥ c. B is the ellipsoid of the
heaviest component of a mixture that is close to p, or of a normal distribution with
the rows' mean and covariance, of radius √d, so that in any dimension both sides are
seen often. A wrong sign, a lost constant or a map in the wrong
direction makes the sides differ.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify import data
from certus.verify import deciding as bd
from certus.verify.balls import ErrorBall
from certus.verify.stating import require
from certus.verify.statistical import bernstein, clopper_pearson, outwards

#: Draws on level "quick" and "full"; by how much both sides may differ.
DRAWS = {"quick": 4_000, "full": 40_000}
APART, DELTA = {"quick": 0.5, "full": 0.25}, 0.05


class ColumnScaling(NamedTuple):
    """What standardises rows, read from the model."""

    loc: Array
    scale: Array
    varies: Array
    shape: tuple[int, ...]

    @classmethod
    def of(cls, model: Any, X: Array) -> ColumnScaling:
        """From a model's attributes."""
        loc, scale = (data.fitted(model, n, (X.shape[1],)) for n in ("loc_", "scale_"))
        varies = np.asarray(model.varies_, dtype=bool)
        require(varies.shape == loc.shape, "varies_ has not one entry for each column")
        return cls(loc, scale, varies, tuple(model.shape_))

    def inner(self, X: Array) -> ErrorBall:
        """Standardised rows."""
        at = self.varies
        return (ErrorBall(X[:, at]) - self.loc[at]) / self.scale[at]

    def rows(self, X: Array) -> Array:
        """Rows in the shape that the model takes."""
        return X.reshape(len(X), *self.shape)

    def outer(self, Z: Array) -> Array:
        """Rows of X from standardised ones."""
        X = np.tile(self.loc, (len(Z), 1))
        X[:, self.varies] += Z * self.scale[self.varies]
        return X

    def volume(self) -> ErrorBall:
        """Σ log scale."""
        return ErrorBall(self.scale[self.varies]).log().sum()


class StartMixture(NamedTuple):
    """The mixture that the fit has stated, with one covariance for each component."""

    shares: Array
    means: Array
    covariances: Array
    factors: Array

    @classmethod
    def around(cls, Z: Array) -> StartMixture:
        """One normal distribution, with the mean and the covariance of rows."""
        mean, d = Z.mean(axis=0), Z.shape[1]
        C = (Z - mean).T @ (Z - mean) / len(Z) + 1e-6 * np.eye(d)
        factor = np.linalg.inv(np.linalg.cholesky(C)).T
        return cls(np.ones(1), mean[None], C[None], factor[None])

    @classmethod
    def of(cls, model: Any, d: int) -> StartMixture:
        """From a fitted mixture's weights, means and covariances."""
        means = data.fitted(model, "means_", (None, d), finite=True)
        k = len(means)
        shares = data.fitted(model, "weights_", (k,), finite=True)
        C = data.fitted(model, "covariances_", finite=True).astype(np.float64)
        kind = model.covariance_type
        if kind == "tied":
            C = np.broadcast_to(C, (k, d, d))
        elif kind == "diag":
            C = C[:, :, None] * np.eye(d)
        elif kind == "spherical":
            C = C[:, None, None] * np.eye(d)
        require(C.shape == (k, d, d), "its mixture has covariances of another shape")
        try:
            L = np.linalg.cholesky(C)
        except np.linalg.LinAlgError:
            require(False, "a covariance of its mixture is not positive definite")
        factors = np.linalg.inv(L).swapaxes(1, 2)
        return cls(shares.astype(float), means.astype(float), C, factors)


def draws_claim(
    model: Any,
    scaling: ColumnScaling,
    mix: StartMixture,
    level: str,
    *,
    said: str = "score_samples",
    draws: int | None = None,
) -> Claim:
    """Whether rows that are drawn have the density that the method ``said`` states."""
    n, rng = draws or DRAWS[level], np.random.default_rng(0)
    volume = float(scaling.volume().x)
    k, d = int(np.argmax(mix.shares)), mix.means.shape[1]
    F, radius = mix.factors[k], math.sqrt(d)

    def points(count: int) -> Array:
        """Uniform in the ellipsoid of the heaviest component."""
        g = rng.standard_normal((count, d))
        g *= (radius * rng.random(count) ** (1 / d) / np.linalg.norm(g, axis=1))[
            :, None
        ]
        return mix.means[k] + np.linalg.solve(F.T, g.T).T

    def log_p(Z: Array) -> Array:
        found = getattr(model, said)(scaling.rows(scaling.outer(Z)))
        return np.asarray(found, dtype=np.float64) + volume

    log_vol = 0.5 * d * math.log(math.pi) - math.lgamma(d / 2 + 1)
    log_vol += d * math.log(radius) - float(np.log(F.diagonal()).sum())
    log_c = float(np.quantile(log_p(points(512)), 0.2))
    drawn = model.sample(n, random_state=1)
    drawn = drawn[0] if isinstance(drawn, tuple) else drawn  # with classes
    Z = scaling.inner(np.asarray(drawn).reshape(n, -1)).x
    inside = np.linalg.norm((Z - mix.means[k]) @ F, axis=1) <= radius
    v, about = np.zeros(n), log_p(Z[inside])
    v[inside] = np.where(about >= log_c, np.exp(np.minimum(log_c - about, 0.0)), 0.0)
    hits = int((log_p(points(n)) >= log_c).sum())
    low, high = clopper_pearson(hits, n, DELTA / 2, False)
    half = bernstein(n, DELTA / 2, float(np.var(v, ddof=1)))
    few, many = float(v.mean()) - half, float(v.mean()) + half
    unit = log_c + log_vol  # c·vol(B)
    words: Any = {
        "objective": "E[1{x in B, p(x) ≥ c}/p(x)] over draws against vol{x in B : "
        f"p(x) ≥ c}}, B the ellipsoid of the heaviest component, {n:,} draws each",
        "assumptions": ("the draws are independent",),
    }
    if not (few > 0 and low > 0 and math.isfinite(unit)):
        seen = int(inside.sum())
        told = f"of {n:,} rows drawn, {seen} are where this can be seen; too few"
        return bd.refused("sample_density", told, "certify with level='full'", **words)
    ratio = max(math.log(many / low) - unit, unit + math.log(high / few))
    value = math.expm1(min(ratio, 700.0))
    sure = outwards(100 * value, up=True)
    target = APART[level]
    agree = value <= target
    # Missed only if the two intervals do not meet: the identity is then refuted.
    refuted = math.log(few / high) > unit or math.log(many / low) < unit
    met = True if agree else (False if refuted else None)
    detail = f"rows drawn have the stated density, within {sure:.3g} % of a volume"
    if refuted:
        detail = f"rows drawn do not have the density that {said} states"
    elif not agree:
        detail = f"rows drawn have the stated density within {sure:.3g} % of a volume"
    return Claim(
        *("sample_density", Strength.STATISTICAL, value, target, met),
        theorem="rows with density p have this mean whatever p is; Clopper and Pearson "
        "on one side, empirical Bernstein on the other",
        delta=DELTA,
        detail=detail,
        fix="" if met else "certify with level='full', or fit again",
        **words,
    )
