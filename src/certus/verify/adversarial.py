"""Adversarial networks: both players computed again, and what their critic proves.

- ``players_agree``: drawn rows and scores as the weights give them.
- ``divergence``: for any function S, E_q S − E_p f*(S) is at most the f-divergence of q
  (real rows) from p (drawn rows), and (E_q S − E_p S)/L at most W₁ where L bounds the
  slopes of S. Scores are clipped to an interval that is fixed before, so that both
  means have intervals; a clipped S is a function like any other.
- ``spread``: total variance of drawn rows by that of real rows.
- ``modes``, ``fresh_critic``: see ``made_rows``.
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
from certus.verify.covariance import eigen
from certus.verify.deciding import Number, U
from certus.verify.language.scoring import spread
from certus.verify.made_rows import fresh_claim, mode_claim
from certus.verify.perceptrons import read_layers, rows_given
from certus.verify.stating import Checked, Given, require
from certus.verify.statistical import ROWS, bernstein, outwards

#: Rows that are computed again, and rows that are made, by level.
SOME, MADE = {"quick": 200, "full": 2_000}, {"quick": 4_000, "full": 40_000}
#: How far rows and scores may be off, as a share of 1 + their size.
NEAR = 1e-6
#: The interval to which scores are clipped, and of W₁ the largest distance counted.
CLIP, FAR = 6.0, 6.0
DELTA = 0.05
#: Share of the real spread below which a generator has collapsed.
COLLAPSED = 0.1
#: The slope of a leaky unit below zero.
LEAK = 0.01
FIX = "restore the model file, or fit again"


class Statement(NamedTuple):
    """Two players: what they were built with, their weights, and the game."""

    config: Mapping[str, Any]
    weights: Mapping[str, Array]
    loss: str


READERS = {
    "GenerativeAdversarial": lambda model: Statement(
        dict(model.config_), model.weights_, str(model.loss)
    )
}


class PlainPlayers:
    """Both networks as arrays."""

    def __init__(self, stated: Statement) -> None:
        config, self.weights = stated.config, stated.weights
        self.d, self.k = int(config["n_inputs"]), int(config["n_components"])
        self.classes, self.lipschitz = int(config["n_classes"]), config["lipschitz"]
        n, m = len(config["hidden"]), len(config["critic_hidden"])
        keys = [f"layers.{i}" for i in range(m + 1)]
        if not self.lipschitz:
            keys = [*(f"layers.{i}.linear" for i in range(m)), "output"]
        made = [*(f"layers.{i}.linear" for i in range(n)), "output"]
        self.generator = read_layers(self.weights, [f"generator.{k}" for k in made])
        self.critic = read_layers(self.weights, [f"critic.{k}" for k in keys])
        require(self.generator[-1][0].shape[0] == self.d, "its generator does not fit")
        require(self.critic[-1][0].shape[0] == 1, "its critic does not fit")

    def _told(self, x: ErrorBall, codes: Array | None) -> ErrorBall:
        if not self.classes:
            return x
        told = np.eye(self.classes)[np.zeros(0, int) if codes is None else codes]
        require(len(told) == len(x.x), "the rows have no classes; pass y")
        return ErrorBall(np.hstack([x.x, told]), np.hstack([x.r, np.zeros_like(told)]))

    def generate(self, z: Array, codes: Array | None) -> ErrorBall:
        """Rows from noise."""
        h = self._told(ErrorBall(z), codes)
        for W, b in self.generator[:-1]:
            h = h.times(W, b).clip(0.0, math.inf)
        return h.times(*self.generator[-1])

    def score(self, x: ErrorBall, codes: Array | None) -> ErrorBall:
        """The critic's scores."""
        h = self._told(x, codes)
        for W, b in self.critic[:-1]:
            h = h.times(W, b)
            h = _sorted(h) if self.lipschitz else _leaky(h)
        return h.times(*self.critic[-1])[:, 0]

    def slope(self) -> float:
        """An upper bound of the critic's slopes: the product of its matrices' norms."""
        total = 1.0
        for i, (W, _) in enumerate(self.critic):
            part = W if i or not self.classes else W[:, : self.d]
            total *= spectral_norm(part)
        return total


def spectral_norm(W: Array) -> float:
    """An upper bound of the largest singular value, from those of a Gram matrix."""
    small = W if W.shape[0] <= W.shape[1] else W.T
    G = small @ small.T
    values, _, off = eigen(G)
    lost = 2 * (small.shape[1] + 2) * U * float(np.square(small).sum())
    return math.sqrt(max(float(values[0]), 0.0) + off + lost) * (1 + 8 * U)


def _leaky(h: ErrorBall) -> ErrorBall:
    return ErrorBall(np.where(h.x > 0, h.x, LEAK * h.x), h.r + U * np.abs(h.x))


def _sorted(h: ErrorBall) -> ErrorBall:
    """Each pair, the larger first; either may be off by as much as the worse one."""
    x = h.x.reshape(len(h.x), -1, 2)
    r = h.r.reshape(x.shape).max(axis=-1, keepdims=True)
    both = np.stack([x.max(axis=-1), x.min(axis=-1)], axis=-1)
    return ErrorBall(
        both.reshape(h.x.shape), np.broadcast_to(r, x.shape).reshape(h.x.shape)
    )


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The claims of two players on the rows given."""
    plain = PlainPlayers(stated)
    rows = rows_given(model, given, plain.classes)
    Z = rows.Z
    require(Z.shape[1] == plain.d, "varies_ does not fit")
    with np.errstate(all="ignore"):
        some = np.array(spread(len(Z), SOME[given.level]))
        part = rows.codes_at(some)
        claims = [_agreement(model, plain, rows.X[some], Z[some], part)]
        codes = rows.codes_at(rows.judged)
        made = _made(plain, codes, MADE[given.level])
        real = plain.score(ErrorBall(Z[rows.judged]), codes).x
        claims.append(_divergence(plain, stated.loss, real, made[:2], rows.old))
        claims.append(_spread_claim(Z, made[0]))
        claims.append(mode_claim(Z, made[0]))
        fresh = fresh_claim(rows, made[0], made[2], plain.classes)
        claims += [] if fresh is None else [fresh]
    claims.sort(key=lambda claim: claim.name != "divergence")
    return claims, bd.verdict(claims), rows.marks


def _made(
    plain: PlainPlayers, codes: Array | None, n: int
) -> tuple[Array, Array, Array | None]:
    """Rows of the verifier's own noise, their scores, and classes as those given."""
    rng = np.random.default_rng(0)
    drawn = None if codes is None else codes[rng.integers(len(codes), size=n)]
    rows = plain.generate(rng.standard_normal((n, plain.k)), drawn).x
    return rows, plain.score(ErrorBall(rows), drawn).x, drawn


def _agreement(
    model: Any, plain: PlainPlayers, X: Array, Z: Array, codes: Array | None
) -> Claim:
    labels = () if codes is None else (np.asarray(model.classes_)[codes],)
    z = np.random.default_rng(1).standard_normal((len(X), plain.k))
    made = np.asarray(model.generate(z, *labels)).reshape(len(X), -1)
    at, own = np.asarray(model.varies_, dtype=bool), plain.generate(z, codes)
    again = ((made - model.loc_) / model.scale_)[:, at]
    said = np.asarray(model.critic_scores(X.reshape(len(X), *model.shape_), *labels))
    worst, lost = 0.0, 0.0
    for one, other in ((again, own), (said, plain.score(ErrorBall(Z), codes))):
        require(one.shape == other.x.shape, "its players give other shapes")
        size = 1.0 + np.abs(other.x)
        far = np.abs(one - other.x) / size
        worst = max(worst, float(far.max()) if np.isfinite(far).all() else math.inf)
        lost = max(lost, float((other.r / size).max()))
    return bd.proved(
        *("players_agree", Number(worst, lost + 16 * U), NEAR),
        f"drawn rows and scores of {len(X):,} rows are those of the weights, within "
        f"{worst:.1e} of their size",
        missed=f"a drawn row or a score is {worst:.2g} of its size off the weights'",
        objective="largest difference of generate and critic_scores from both "
        "networks, as a share of 1 + their size",
        theorem="both networks were computed again, with a bound on rounding errors",
        fix=FIX,
    )


class _Bound(NamedTuple):
    """A divergence's name, both means' values, their range, and a factor."""

    name: str
    real: Array
    made: Array
    width: float
    factor: float = 1.0
    constant: float = 0.0


def _bounded(plain: PlainPlayers, loss: str, real: Array, made: Array) -> _Bound:
    if loss == "wasserstein":
        codes = np.zeros(1, int) if plain.classes else None
        middle = float(plain.score(ErrorBall(np.zeros((1, plain.d))), codes).x[0])
        real, made = (np.clip(s - middle, -FAR, FAR) for s in (real, made))
        L = plain.slope()
        return _Bound("W₁ of standardised rows", real, made, 2 * FAR, 1 / L)
    real, made = (np.clip(s, -CLIP, CLIP) for s in (real, made))
    if loss == "kl":
        top = np.minimum(made, 2.0), np.minimum(real, 2.0)
        name, width = "KL(rows ‖ drawn rows)", math.exp(2.0) + CLIP
        return _Bound(name, top[1], np.exp(top[0]), width, 1.0, 1.0)
    if loss == "least_squares":  # S = log D/(1 − D) of its best D = S
        D = (np.clip(s, 0.01, 0.99) for s in (real, made))
        real, made = (np.log(p / (1 - p)) for p in D)
    name, width = "Jensen–Shannon divergence", float(_soft(np.array(CLIP)))
    return _Bound(name, -_soft(-real), _soft(made), width, 0.5, math.log(4))


def _soft(s: Array) -> Array:
    """The logarithm of 1 + e^s."""
    return np.asarray(np.maximum(s, 0) + np.log1p(np.exp(-np.abs(s))))


def distance_claim(
    layers: list[tuple[Array, Array]], X: Array, Y: Array, limit: float, delta: float
) -> Claim:
    """A lower bound of W₁ between two samples, from a critic fitted on other rows.

    Parameters
    ----------
    layers : list of (weight, bias)
        The critic: sorted pairs between linear maps, one output.
    X, Y : float64 array of shape (n, d)
        Rows that the critic was not fitted on.
    limit : float
        Scores are clipped to ±limit.
    delta : float
        Failure probability: the chance that the statement does not hold.
    """
    L = math.prod(spectral_norm(np.asarray(W, dtype=np.float64)) for W, _ in layers)

    def scores(rows: Array) -> Array:
        h = np.asarray(rows, dtype=np.float64)
        for W, b in layers[:-1]:
            h = _sorted(ErrorBall(h @ np.asarray(W, float).T + b)).x
        W, b = layers[-1]
        return np.asarray(np.clip(h @ np.asarray(W, float).T + b, -limit, limit)[:, 0])

    values = scores(X), scores(Y)
    slack = sum(
        2 * limit * bernstein(len(v), delta / 2, float(np.var(v / (2 * limit), ddof=1)))
        for v in values
    )
    gap = float(values[0].mean() - values[1].mean())
    low = max((gap - slack) / L * (1 - 1e-9), 0.0)
    return Claim(
        *("distance", Strength.STATISTICAL, low, None, True),
        objective="W₁ ≥ (mean of S over X − mean over Y)/L, S clipped to "
        f"±{limit:.4g}, "
        f"L = {L:.9g}",
        theorem="Kantorovich and Rubinstein: no function with slopes up to L tells two "
        "distributions apart by more than L·W₁; empirical Bernstein for both means",
        assumptions=ROWS,
        delta=delta,
        detail=f"the distance W₁ is at least {outwards(low, up=False):.3g}; the critic "
        f"says {gap / L:.3g}",
    )


def _divergence(
    plain: PlainPlayers, loss: str, real: Array, drawn: tuple[Array, Array], old: bool
) -> Claim:
    if loss == "mmd":
        return bd.refused(
            "divergence",
            "this model was trained without a critic, which could bound a divergence",
            "certus.generative.examine on its rows, or another loss",
        )
    name, S, T, width, factor, constant = _bounded(plain, loss, real, drawn[1])
    value = factor * (float(S.mean()) - float(T.mean()) + constant)
    words: Any = {
        "objective": f"{name} ≥ {factor:.6g}·(mean over rows − mean over "
        f"{len(T):,} drawn rows + {constant:.4g}), of the critic's clipped scores",
    }
    if old:
        told = f"the critic sees a {name} of at least about {max(value, 0):.3g} on "
        told += "held-out rows; certify on new rows for a bound"
        return bd.measured("divergence", value, told, **words)
    slack = sum(
        width * bernstein(len(v), DELTA / 2, float(np.var(v / width, ddof=1)))
        for v in (S, T)
    )
    low = max(value - factor * slack, 0.0)
    return Claim(
        *("divergence", Strength.STATISTICAL, low, None, True),
        theorem="any critic gives a lower bound of the divergence; empirical Bernstein "
        "for both means",
        assumptions=ROWS,
        delta=DELTA,
        detail=f"the {name} is at least {outwards(low, up=False):.3g}",
        **words,
    )


def _spread_claim(Z: Array, made: Array) -> Claim:
    share = float(made.var(axis=0).sum() / max(float(Z.var(axis=0).sum()), 1e-300))
    told = f"drawn rows have {share:.3g} of the variance of real rows"
    if not share >= COLLAPSED:
        told = f"collapsed: {told}"
    return bd.measured(
        *("spread", share, told),
        objective="total variance of drawn rows by that of real rows",
        fix="another loss, or more critic_steps" if share < COLLAPSED else "",
    )
