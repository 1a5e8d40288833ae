"""Tuned language models: what is claimed of DPO, PPO and GRPO after a fit.

The policy is the model's own network, the reference that of its ``base``, with the
floor, the β and the longest answer that its parameters state. The verifier draws
answers itself and compares what the model reports of its own samples. A model of pairs
is also judged by its loss, mean −log σ(β log π/ρ(chosen) − β log π/ρ(rejected)), which
is log 2 for doing nothing: pairs that were swapped are above it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from certus import fingerprints
from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.models import END
from certus.verify.language.policies import (
    Asked,
    Scores,
    drawn_claims,
    drawn_units,
    spoken,
)
from certus.verify.language.policy_draws import Duel, terms_of
from certus.verify.language.tuning import base_claim
from certus.verify.stating import Checked, Given, Refusal, require

#: Multiplications that are spent on draws; draws and pairs at least and at most.
WORK = {"quick": 5e9, "full": 4e11}
FEWEST, MOST = 48, {"quick": 512, "full": 8_192}
DELTA = 0.05
#: Largest difference between a reported and a computed number.
NEAR = 1e-3
LOG_2 = math.log(2)


class Statement(NamedTuple):
    """Both networks, the objective, and the bytes of each token."""

    duel: Duel
    beta: float
    tokens: list[bytes]
    reward: Any
    bounds: tuple[float, float] | None
    pairs: bool


def _stated(pairs: bool, model: Any) -> Statement:
    base, tokenizer = model.base, model.tokenizer_
    tokens = [bytes(token) for token in tokenizer.tokens]
    end, floor = int(tokenizer.special[END]), float(model.floor)
    policy = PlainNetwork(dict(model.config_), model.weights_)
    reference = PlainNetwork(dict(base.config_), base.weights_)
    sizes = {read.config["n_tokens"] for read in (policy, reference)}
    if sizes != {len(tokens)} or [*map(bytes, base.tokenizer_.tokens)] != tokens:
        raise Refusal("the policy and its reference have different tokens")
    duel = Duel(policy, reference, end, floor, int(model.max_tokens_))
    limits = model.reward_range
    bounds = None if limits is None else (float(limits[0]), float(limits[1]))
    return Statement(duel, float(model.beta), tokens, model.reward, bounds, pairs)


READERS = {
    "DPO": partial(_stated, True),
    "GRPO": partial(_stated, False),
    "PPO": partial(_stated, False),
}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Claims for prompts X; y holds pairs (chosen, rejected) for a model of pairs."""
    bd.refuse_weights(model, given.sample_weight)
    texts = list(given.X)
    require(0 <= stated.duel.floor < 1, "its floor is not a share")
    encode, duel = model.tokenizer_.encode, stated.duel
    prompts = [np.asarray(encode(text), np.int64) for text in texts]
    pairs = [] if given.y is None or not stated.pairs else list(given.y)
    known = [_raw(text) for text in (*texts, *(y for pair in pairs for y in pair))]
    marks = fingerprints.of_texts(known, np.zeros(len(known)))
    base = base_claim(given.witness, duel.reference.weights)
    claims = [base, samples_claim(model, stated)]
    n = affordable(duel, prompts, given.level)
    if pairs:
        claims.append(preference_claim(encode, stated, prompts, pairs, n))
    room = [i for i, x in enumerate(prompts) if _fits(duel, x)]
    if len(room) < len(texts) or not texts:
        told = f"{len(texts) - len(room):,} prompts leave no room in the context for "
        told += f"{duel.length} tokens"
        claims.append(bd.refused("kl_to_reference", told, "shorten these prompts"))
        return claims, bd.verdict(claims), marks
    reward = None if stated.reward is None else scores_of(stated.reward)
    propose = getattr(model, "propose_answers", None)
    units = drawn_units(
        duel, prompts, texts, stated.tokens, reward, n, propose, len(texts)
    )
    rest = (len(texts), stated.bounds, DELTA, duel.stated)
    claims = [*drawn_claims(units, Asked(stated.beta, duel.reach, *rest)), *claims]
    status = bd.verdict(claims)
    if any(claim.met is False for claim in claims):  # also one that is statistical
        claims.sort(key=lambda claim: claim.met is not False)
        status = bd.status_of(claims[0])
    return claims, status, marks


def _raw(text: Any) -> bytes:
    return text.encode("utf-8") if isinstance(text, str) else bytes(text)


def _fits(duel: Duel, prompt: Array) -> bool:
    context = min(duel.policy.config["context"], duel.reference.config["context"])
    return len(prompt) + duel.length <= context


def affordable(duel: Duel, prompts: list[Array], level: str) -> int:
    """How many draws of a pair of answers are made."""
    size = sum(np.size(w) for read in duel[:2] for w in read.weights.values())
    long = max(map(len, prompts), default=0) + duel.length
    return int(np.clip(WORK[level] / (4 * long * size), FEWEST, MOST[level]))


def scores_of(reward: Any) -> Scores:
    """The reward as a function of lists: a fitted model's, or a function's."""
    if hasattr(reward, "predict"):
        return lambda x, y: np.asarray(reward.predict(list(x), list(y)), dtype=float)
    return lambda x, y: np.array([float(reward(a, b)) for a, b in zip(x, y)])


def samples_claim(model: Any, stated: Statement) -> Claim:
    """Whether the model's samples have the divergences and rewards that it reports."""
    told, duel = model.samples_, stated.duel
    texts, said = list(told["prompt"]), np.asarray(told["kl"], dtype=float)
    prompts = [np.asarray(model.tokenizer_.encode(x), np.int64) for x in texts]
    answers = [np.asarray(y, np.int64) for y in told["tokens"]]
    n = len(texts)
    require(len(answers) == n == len(said), "its samples are incomplete")
    V = duel.policy.config["n_tokens"]
    known = all(len(y) <= duel.length and np.all((y >= 0) & (y < V)) for y in answers)
    require(known and all(_fits(duel, x) for x in prompts), "its samples do not fit")
    found = terms_of(duel, prompts, answers)
    past = [0.0, *getattr(model, "history_", {}).get("kl", [])]  # none is negative
    apart = [float(np.abs(found.divergence - said).max(initial=0.0)), -np.min(past)]
    spoke = [spoken(stated.tokens, y) for y in answers]
    wrong = sum(a != b for a, b in zip(spoke, told["after"]))
    if stated.reward is not None and n:
        again = scores_of(stated.reward)(texts, spoke)
        apart.append(float(np.abs(again - np.asarray(told["reward"])).max()))
    worst = math.inf if wrong or not np.isfinite(apart).all() else max(apart)
    off = float(found.rounding.max(initial=0.0))
    return bd.proved(
        *("stated_samples", Number(worst, off), NEAR),
        f"the reported KL and rewards of {n:,} answers agree within {worst:.1e}",
        missed=f"the reported KL or reward of an answer is {worst:.2g} away from the "
        "sum over the vocabulary, with this base as the reference",
        objective="largest |reported − computed| of Σₜ KL(π‖ρ) and of r, over the "
        "model's samples",
        theorem="both networks were run again in float64, and KL was summed over the "
        "whole vocabulary at each token",
        fix="fit again with this base, beta, floor and reward",
    )


def preference_claim(
    encode: Any, stated: Statement, prompts: list[Array], pairs: Sequence[Any], n: int
) -> Claim:
    """The loss on the pairs, which is log 2 for doing nothing."""
    require(len(pairs) == len(prompts), "there are not as many pairs as prompts")
    duel, margins, off = stated.duel, np.zeros(0), 0.0
    context = min(read.config["context"] for read in duel[:2])
    ends, kept = [duel.end], []
    for x, pair in zip(prompts, pairs):
        both = [np.concatenate([encode(y), ends]).astype(np.int64) for y in pair]
        if len(x) + max(map(len, both)) <= context:
            kept.append((x, *both))
    picked = [kept[i] for i in np.unique(np.linspace(0, len(kept) - 1, n).astype(int))]
    if picked:
        asked = [each[0] for each in picked]
        good, bad = (
            terms_of(duel, asked, [each[i] for each in picked]) for i in (1, 2)
        )
        margins = stated.beta * (good.ratio - bad.ratio)
        off = stated.beta * float((good.rounding + bad.rounding).max())
    loss = float(np.logaddexp(0.0, -margins).mean()) if len(margins) else math.inf
    right = float((margins > 0).mean()) if len(margins) else 0.0
    return bd.proved(
        *("preference_loss", Number(loss, off), LOG_2 + off),
        f"{loss:.4f}, against {LOG_2:.4f} for doing nothing; {right:.1%} of "
        f"{len(margins):,} pairs are ranked as given",
        missed=f"{loss:.4f}, worse than the {LOG_2:.4f} of doing nothing; only "
        f"{right:.1%} of {len(margins):,} pairs are ranked as given",
        objective="mean −log σ(β log π/ρ(chosen) − β log π/ρ(rejected)) over pairs of "
        "the fit",
        theorem="both networks were run again in float64 on each answer",
        fix="pass the preferred answers as chosen, the others as rejected",
    )
