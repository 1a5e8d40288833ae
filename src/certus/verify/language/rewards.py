"""Reward models: the head of a frozen network, and what held-out pairs say about it.

    r(x, y) = wᵀφ(x, y),   φ a state of the network's last layer
    minimise over w:  mean log(1 + exp(−wᵀ(φ(x, y⁺) − φ(x, y⁻)))) + ½·alpha·‖w‖²

This is a logistic regression without an intercept on differences of features, which the
verifier's own transformer computes in float64; so it has a duality gap. A reward enters
only by its difference between two answers to one prompt: adding a number c(x) to the
rewards of each prompt changes no claim.

Held-out pairs: the share that is ordered correctly, and how much of that length alone
explains. Where prompts repeat, prompts are the independent units, not pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from certus import fingerprints
from certus.certificate import Claim, Strength
from certus.objectives import terms as t
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify import linear
from certus.verify.deciding import Number, gamma
from certus.verify.language import attention, models
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.scoring import DELTA
from certus.verify.language.tuning import (
    HELD,
    alike,
    base_claim,
    read_pairs,
    texts_of,
    unsure,
)
from certus.verify.stating import Checked, Given, require, tol_of
from certus.verify.statistical import RiskInterval, risk_interval

#: Largest difference of two rewards, as a share of the largest: float32.
NEAR = 1e-3
#: Fewest pairs from which a correlation is estimated.
FEWEST = 8
POOLING = ("last", "mean")
COMPUTED = "the features are those of the verifier's own transformer in float64"


class Statement(NamedTuple):
    """The network, its head, and how the head was fitted."""

    config: Mapping[str, Any]
    weights: Mapping[str, Array]
    tokens: list[bytes]
    end: int
    base: Mapping[str, Array]
    coef: Array
    pooling: str
    held: Array
    alpha: float | None  # None where the network was trained with its head
    tol: float


def _reward_model(model: Any) -> Statement:
    frozen = {"head": True, "all": False}[model.train]
    return Statement(
        *models._language_model(model),
        model.base.weights_,
        np.asarray(model.coef_, dtype=np.float64),
        model.pooling,
        np.asarray(model.held_out_, dtype=np.int64),
        float(model.alpha) if frozen else None,
        tol_of(model),
    )


READERS = {"RewardModel": _reward_model}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The gap of the head, and the order of held-out pairs.

    ``X`` are prompts, ``y`` pairs of the chosen and the rejected answer.
    """
    bd.refuse_weights(model, given.sample_weight)
    x = texts_of(given.X, "prompts")
    pairs = () if given.y is None else given.y
    y = [texts_of(pair, "a pair of answers") for pair in pairs]
    two = len(y) == len(x) and all(len(pair) == 2 for pair in y)
    if not two:
        raise ValueError("y must have one pair (chosen, rejected) for each prompt.")
    lines = [b"\0".join((one, *pair)) for one, pair in zip(x, y)]
    marks = fingerprints.of_texts(lines, np.zeros(len(x)))
    read = models.reader(models.Statement(*stated[:4]))
    width = read.config["width"]
    require(stated.coef.shape == (width,), f"its head has not {width} numbers")
    require(stated.pooling in POOLING, "it has an unknown pooling")
    F, rewards, agreed = _rewards(model, stated, read, x, y)
    n, held = len(x), stated.held
    inside = not len(held) or (held.min() >= 0 and held.max() < n)
    left = np.zeros(n, dtype=bool)
    if inside:  # else the pairs are others than those of the fit
        left[held] = True
    D = F[:, 0] - F[:, 1]
    claims = [] if stated.alpha is None else [_gap(stated, D[~left], given)]
    claims += [base_claim(given.witness, stated.base), agreed]
    claims.append(_loss(rewards, left))
    rows = np.flatnonzero(left)
    sizes = np.array([[len(answer) for answer in pair] for pair in y])
    claims += preference_claims(rewards[rows], sizes[rows], [x[i] for i in rows])
    return claims, bd.verdict(claims, unsure(agreed)), marks


def _gap(stated: Statement, D: Array, given: Given) -> Claim:
    """The duality gap of the head; all differences have the target +1."""
    model = SimpleNamespace(coef_=stated.coef[None], intercept_=np.zeros(1))
    fix = "lower tol, or raise alpha"
    problem = linear.Statement(
        *(t.Logistic(), t.L2(float(stated.alpha or 0.0)), "numbers", "none"),
        tol=stated.tol,
        fix=fix,
    )
    data = Given(None, D, np.ones(len(D)), None, given.level)
    claim = linear.check(model, problem, data)[0][0]
    return replace(claim, assumptions=(*claim.assumptions, COMPUTED))


# -- rewards --------------------------------------------------------------------------


def features(
    read: PlainNetwork, streams: list[tuple[Array, int]], pooling: str
) -> tuple[Array, Array]:
    """The state at the last token of each pair, or the mean where it answers.

    And a bound of the distance of each from that of exact arithmetic.
    """
    found, off = np.zeros((len(streams), read.config["width"])), np.zeros(len(streams))
    row = read.config["heads"] * read.config["context"] + 8 * read.config["hidden"]
    for rows in alike([line for line, _ in streams], HELD // row):
        h = attention.embed(read, np.stack([streams[i][0][:-1] for i in rows]), None)
        for k in range(read.config["n_layers"]):
            h = attention.layer(read, h, f"layers.{k}.", True)
        h = attention.last(read, h, "norm")
        for i, states, apart in zip(rows, h.x, h.off):
            begin = -1 if pooling == "last" else streams[i][1] - 1
            part, many = states[begin:], gamma(len(states) + 2)
            found[i] = part.mean(axis=0)
            size = np.sqrt(np.square(part).sum(axis=1))
            off[i] = np.mean(apart[begin:] + many * size)
    return found, np.where(np.isnan(off), np.inf, off)


def _rewards(
    model: Any, stated: Statement, read: PlainNetwork, x: list[bytes], y: list[Any]
) -> tuple[Array, Array, Claim]:
    """Features (n, 2, width) and rewards (n, 2) of all pairs; the model's own agree."""
    both = [(one, answer) for one, pair in zip(x, y) for answer in pair]
    known = {pair: i for i, pair in enumerate(dict.fromkeys(both))}
    prompts, answers = ([pair[k] for pair in known] for k in (0, 1))
    context = read.config["context"]
    pairs = read_pairs(model.tokenizer_, stated.end, prompts, answers, context)
    counted = models.bytes_claim(
        stated.tokens, stated.end, pairs.ids, prompts + answers
    )
    require(bool(counted.met), counted.detail)
    F, off = features(read, pairs.streams, stated.pooling)
    r, length = F @ stated.coef, bd.length(stated.coef)
    lost = (off + gamma(F.shape[1] + 2) * np.sqrt(np.square(F).sum(axis=1))) * length
    size = max(1.0, float(np.abs(r).max()))
    said = np.asarray(model.predict(prompts, answers), dtype=np.float64)
    require(said.shape == r.shape, f"it gives {said.size} rewards for {r.size} answers")
    apart = float(np.abs(said - r).max())
    lost = 1.01 * float(lost.max())
    found = Number.share(apart if math.isfinite(apart) else math.inf, lost, size)
    claim = bd.proved(
        *("reward_agreement", found, NEAR),
        f"the model's rewards of {len(r):,} answers agree within {apart:.1e}",
        missed=f"a reward of the model is {apart:.2g} away from that of its weights",
        objective="largest |reward of the model − reward of the verifier|, as a share "
        "of the largest reward or of 1",
        theorem="the network was run again in float64 from its configuration and "
        "weights",
        fix="restore the model file, or fit again",
    )
    numbers = np.array([known[pair] for pair in both])
    return F[numbers].reshape(len(x), 2, -1), r[numbers].reshape(-1, 2), claim


def _loss(rewards: Array, left: Array) -> Claim:
    """−log σ(r⁺ − r⁻) of the pairs of the fit, and of those held out."""
    costs = np.logaddexp(0.0, rewards[:, 1] - rewards[:, 0])
    loss = float(costs[~left].mean()) if not left.all() else math.nan
    other = f"; {float(costs[left].mean()):.4f} on those held out" if left.any() else ""
    return bd.measured(
        *("pairwise_loss", loss),
        f"{loss:.4f} nats on {int((~left).sum()):,} pairs{other}; equal rewards have "
        f"{math.log(2):.4f}",
        objective="mean −log σ(r(x, y⁺) − r(x, y⁻))",
    )


# -- held-out pairs -------------------------------------------------------------------


def preference_claims(
    rewards: Any, sizes: Any, prompts: list[Any], delta: float = DELTA
) -> list[Claim]:
    """What pairs that no fit has seen say about a reward.

    Parameters
    ----------
    rewards : array of shape (n, 2)
        Of the chosen and the rejected answers. Only their differences count.
    sizes : array of shape (n, 2)
        Bytes of the answers.
    prompts : list of length n
        Where one repeats, prompts are the independent units.
    delta : float
        Failure probability: the chance that the statement does not hold. Of each claim.
    """
    r, n = np.asarray(rewards, dtype=np.float64), len(prompts)
    sizes = np.asarray(sizes, dtype=np.float64)
    if not n:
        more = "no pairs were held out"
        fix = "give more pairs, or call preference_accuracy with others"
        return [bd.refused("pair_accuracy", more, fix)]
    if not np.isfinite(r).all():
        fix = "give a finite reward for every answer"
        return [bd.refused("pair_accuracy", "a reward is NaN or infinite", fix)]
    margin, longer = r[:, 0] - r[:, 1], sizes[:, 0] - sizes[:, 1]
    order = {prompt: i for i, prompt in enumerate(dict.fromkeys(prompts))}
    groups = np.array([order[prompt] for prompt in prompts])
    claims = [_accuracy(_share(margin > 0, groups, delta), n)]
    unequal = longer != 0
    if not unequal.any():
        return claims
    m, part = int(unequal.sum()), groups[unequal]
    chosen = _share(longer[unequal] > 0, part, delta)
    liked = _share(margin[unequal] * longer[unequal] > 0, part, delta)
    claims.append(
        _length(
            *("longer_chosen", chosen, m),
            "the longer answer is the chosen one in {}: what length alone would get",
        )
    )
    claims.append(
        _length("longer_preferred", liked, m, "the longer answer has more reward in {}")
    )
    if len(order) == n >= FEWEST and margin.std() > 0 and longer.std() > 0:
        claims.append(_correlation(margin, longer, delta))
    return claims


def _share(holds: Array, groups: Array, delta: float) -> RiskInterval:
    """An interval for how often something holds."""
    repeated = len(np.unique(groups)) < len(groups)
    found = risk_interval(
        *(holds.astype(float), "binary"),
        delta=delta,
        groups=groups if repeated else None,
    )
    assert found is not None
    return found


def _told(found: RiskInterval, n: int) -> str:
    return (
        f"{100 * found.value:.3g} % of {n:,} pairs (between {100 * found.low:.3g} % "
        f"and {100 * found.high:.3g} % of new ones)"
    )


def _words(found: RiskInterval) -> dict[str, Any]:
    unit = "pairs" if found.method == "Clopper–Pearson" else "prompts"
    return {
        "theorem": f"{found.method}, {found.n:,} {unit}",
        "assumptions": (f"all {unit}, old and new, are drawn independently",),
        "delta": found.delta,
    }


def _accuracy(found: RiskInterval, n: int) -> Claim:
    """How often the chosen answer has more reward; flagged where it rarely has."""
    below = found.high < 0.5
    words = "the chosen answer has more reward in "
    return Claim(
        *("pair_accuracy", Strength.STATISTICAL, found.low),
        target=0.5 if below else None,
        met=False if below else None,
        objective="share of pairs with r(x, y⁺) > r(x, y⁻); a coin gets one half",
        detail=words + _told(found, n),
        fix="swap chosen and rejected: the reward prefers the rejected answers"
        if below
        else "",
        **_words(found),
    )


def _length(name: str, found: RiskInterval, n: int, sentence: str) -> Claim:
    return Claim(
        *(name, Strength.STATISTICAL, found.high),
        objective="of the pairs whose answers have different lengths, in bytes",
        detail=sentence.format(_told(found, n)),
        **_words(found),
    )


def _correlation(margin: Array, longer: Array, delta: float) -> Claim:
    """Fisher's interval for the correlation of both differences."""
    n = len(margin)
    value = float(np.clip(np.corrcoef(margin, longer)[0, 1], -1 + 1e-12, 1 - 1e-12))
    half = float(ndtri(1 - delta / 2)) / math.sqrt(n - 3)
    low, high = (math.tanh(math.atanh(value) + side * half) for side in (-1, 1))
    return Claim(
        *("length_correlation", Strength.STATISTICAL, high),
        objective="correlation of r(x, y⁺) − r(x, y⁻) and the difference in bytes",
        theorem="Fisher: atanh of a correlation has a variance of 1/(n − 3)",
        assumptions=("both differences are close to jointly normal",),
        delta=delta,
        detail=f"reward and length correlate by {value:.2f} (between {low:.2f} and "
        f"{high:.2f})",
    )
