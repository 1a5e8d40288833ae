"""Policies tuned on preferences: how far from the reference, and from the best policy.

    J(π) = E_x [E_{y~π} r(x, y) − β KL(π‖ρ)],   ρ = (1 − η) π_ref + η/V at each token
    π* ∝ ρ e^{r/β},   J* = E_x β log E_{y~ρ} e^{r/β},   J* − J(π) = β KL(π‖π*) ≥ 0

Where all answers are listed these are finite sums. Elsewhere answers y ~ π and z ~ ρ
are drawn for prompts x. As log Z ≤ g + Z e^{−g} − 1 for every g,

    J* − J(π) ≤ E [βg(x) + β(w(y) + w(z) − 1) − r(y) + β Σₜ KLₜ(y)],
    w(y) = e^{r(y)/β − g(x)} ρ(y)/(ρ(y) + π(y)),

an expectation of terms that are bounded if the reward is: r in [a, b], which must be
given, and KLₜ ≤ log(V/η). The functions g come from draws that are not used again. The
bounds never use the observed range of log π/ρ. A shift of the reward for each prompt
changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number, gamma
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.policy_draws import (
    TOGETHER,
    Duel,
    Propose,
    draw,
    next_laws,
    terms_of,
    upper_mean,
)

GAP, KL, GAIN = "gap_to_optimal_policy", "kl_to_reference", "gain_over_reference"
#: Share of the draws from which g is chosen.
PILOT = 1 / 3
MEANS = "answers are drawn by the verifier, independently, for prompts of this list"
BETS = "a bet against the true mean grows 1/δ-fold with probability δ at most (Ville)"
#: What a reward is to the verifier: prompts and answers, as texts, to numbers.
Scores = Callable[[Sequence[Any], Sequence[str]], Array]


# -- all answers are listed -----------------------------------------------------------


def excess(lp: Array, lq: Array, r: Array, beta: float, off: float = 0.0) -> Number:
    """J* − J(π) for distributions over a list, given by logarithms up to a constant.

    ``off`` bounds the error of each logarithm. With r = 0 and β = 1 it is KL(π‖ρ).
    """
    possible = lp > -math.inf
    if np.any(possible & (lq == -math.inf)):
        return Number(math.inf)
    p = np.exp(lp - lp.max())
    P, log_P = p.sum(), lp.max() + math.log(p.sum())
    p = p / P
    if beta == 0:
        best = float(r[lq > -math.inf].max())
        size = float(np.abs(r).max(initial=0.0))
        slack = gamma(len(r) + 32) * size + 2 * off * size
        return Number(best - math.fsum(p * r), slack)
    known = lq > -math.inf
    e = lq[known] + r[known] / beta
    top = float(e.max())
    w = np.exp(e - top)
    log_Z = top + math.log(w.sum())
    some = np.where(possible, lp, 0.0), np.where(possible, lq, 0.0)
    a = beta * (some[0] - some[1]) - r
    found = math.fsum(p * a) - beta * log_P + beta * log_Z
    sizes = beta * (np.abs(some[0]) + np.abs(some[1])) + np.abs(r)
    parts = np.abs(lq[known]) + np.abs(r[known]) / beta + abs(top) + 1
    size = math.fsum(p * sizes) + beta * math.fsum(w * parts) / w.sum()
    size += beta * (abs(log_P) + abs(log_Z) + 1)
    span = float(np.ptp(a[possible]))
    moved = off * (span + 2 * beta + 8 * beta * off)
    return Number(max(found, 0.0), gamma(len(r) + 32) * size + moved)


def policy_claims(
    policy: Array, reference: Array, reward: Array, beta: float, off: Any = 0.0
) -> list[Claim]:
    """The claims where all answers are listed, from logarithms of the distributions.

    Parameters
    ----------
    policy, reference, reward : arrays of shape (n_prompts, n_answers)
        Logarithms of both distributions, up to a constant in each row; and r.
    beta : float
        β.
    off : float or array of shape (n_prompts,)
        Bound on the error of each logarithm.
    """
    n, m = reward.shape
    off = np.broadcast_to(np.asarray(off, dtype=float), (n,))
    rows = list(zip(policy, reference, reward, off))
    ours = _mean([excess(p, q, r, beta, e) for p, q, r, e in rows])
    idle = _mean([excess(q, q, r, beta, e) for _, q, r, e in rows])
    apart = _mean([excess(p, q, 0 * r, 1.0, e) for p, q, r, e in rows])
    wins = float(np.mean([_win_rate(p, q, r) for p, q, r, _ in rows]))
    many = f"{m:,} answers" + (f" to each of {n:,} prompts" if n > 1 else "")
    words: Any = {
        "theorem": "J* − J(π) = β KL(π‖π*) with π* ∝ ρ e^{r/β}: a finite sum",
        "objective": f"J* − J(π), J = E r − {beta:g}·KL(π‖ρ), over {many}",
    }
    said = f"{idle.value:.4g} for doing nothing"
    gap = bd.proved(
        *(GAP, ours, idle.most + ours.rounding),
        f"{ours.value:.4g} below the best policy's objective ({said}); its answers win "
        f"{wins:.1%} against the reference's",
        missed=f"worse than its own reference: {ours.value:.4g} below the best "
        f"policy's objective, against {said}, while its answers win {wins:.1%} against "
        "the reference's",
        fix="use more pairs, fewer steps or a larger beta",
        **words,
    )
    near = bd.proved(
        *(KL, apart, None),
        f"KL(π‖ρ) is {apart.value:.4g} nats",
        objective=f"KL(π‖ρ) over {many}",
        theorem="a finite sum over all answers",
    )
    return [gap, near]


def _mean(found: list[Number]) -> Number:
    n = len(found)
    value = math.fsum(x.value for x in found) / n
    if value == math.inf:  # an answer that the reference never gives
        return Number(value)
    return Number(value, math.fsum(x.rounding for x in found) / n + 4 * bd.U * value)


def _win_rate(lp: Array, lq: Array, r: Array) -> float:
    """P(y preferred to z), y ~ π and z ~ ρ, where σ(r(y) − r(z)) is preferred."""
    p, q = (np.exp(x - x.max()) / np.exp(x - x.max()).sum() for x in (lp, lq))
    return float(p @ (0.5 + 0.5 * np.tanh(0.5 * (r[:, None] - r))) @ q)


# -- answers are drawn ----------------------------------------------------------------


class Units(NamedTuple):
    """Independent draws: a prompt, an answer y of the policy, z of the reference."""

    prompt: Array  # number in the list of prompts
    divergence: Array  # Σₜ KL along y
    ratio: Array  # log π/ρ of y
    reference_ratio: Array  # of z
    reward: Array  # of y; NaN without one
    reference_reward: Array
    rounding: float


class Asked(NamedTuple):
    """The objective, and what is known of the reward before looking."""

    beta: float
    reach: float  # largest divergence of an answer
    prompts: int
    bounds: tuple[float, float] | None
    delta: float
    reference: str = "ρ as it was given"


def drawn_units(
    duel: Duel,
    prompts: list[Array],
    texts: Sequence[Any],
    tokens: list[bytes],
    reward: Scores | None,
    n: int,
    propose: Propose | None = None,
    seed: int = 0,
) -> Units:
    """Draw n units; ``texts`` and ``tokens`` say what the reward is asked about."""
    rng = np.random.default_rng([seed, n, duel.length])
    which = rng.integers(len(prompts), size=n)
    u, u_ref, v = rng.random((3, n, duel.length))
    parts = [
        _drawn_part(
            duel, [prompts[i] for i in which[k]], u[k], (u_ref[k], v[k]), propose
        )
        for k in (slice(i, i + TOGETHER) for i in range(0, n, TOGETHER))
    ]
    y, z, kl, ratio, other, off = (list(column) for column in zip(*parts))
    said = np.full((2, n), math.nan)
    if reward is not None:
        asked = [texts[i] for i in which]
        for row, made in zip(said, (y, z)):
            told = [spoken(tokens, each) for answers in made for each in answers]
            row[:] = reward(asked, told)
    joined = [np.concatenate(column) for column in (kl, ratio, other)]
    return Units(
        *(which, joined[0], joined[1], joined[2]), said[0], said[1], float(max(off))
    )


def _drawn_part(
    duel: Duel, x: list[Array], u: Array, other: tuple[Array, Array], propose: Any
) -> tuple[Any, ...]:
    """Answers of both, Σₜ KL of the policy's, log π/ρ of both, and rounding."""
    hints: list[Any] = [None, None]
    if propose is not None:
        hints = [propose(x, u, None, False), propose(x, *other, True)]
    y, ours = draw(duel.policy, duel, x, u, None, hints[0])
    z, theirs = draw(duel.reference, duel, x, *other, hints[1])
    one, two = terms_of(duel, x, y, ours=ours), terms_of(duel, x, z, theirs=theirs)
    worst = max(one.rounding.max(), two.rounding.max())
    return y, z, one.divergence, one.ratio, two.ratio, worst


def spoken(tokens: list[bytes], ids: Any) -> str:
    """The text of some tokens."""
    return b"".join([tokens[int(i)] for i in ids]).decode("utf-8", "replace")


def drawn_claims(units: Units, asked: Asked) -> list[Claim]:
    """Claims about J, its best value and the divergence, from draws."""
    claims = [kl_claim(units, asked)]
    seen = np.concatenate([units.reward, units.reference_reward])
    if np.isnan(seen).all():
        told = "no reward is known, so that no policy is the best one"
        fix = "call policy_gap with a reward and its range"
        return [*claims, bd.refused(GAP, told, fix)]
    if not np.isfinite(seen).all():
        bad = int((~np.isfinite(seen)).sum())
        told = f"the reward of {bad:,} of {len(seen):,} answers is NaN or infinite"
        return [*claims, bd.refused(GAP, told, "use a reward with finite values")]
    if asked.bounds is None or asked.reach == math.inf:
        told = "the reward has no stated range, and one rare answer may decide"
        fix = "state bounds of the reward, reward_range=(low, high)"
        if asked.bounds is not None:
            told, fix = "without a floor, divergences have no bound", "set floor=0.01"
        return [*claims, bd.refused(GAP, told, fix), gain_claim(units, asked)]
    a, b = asked.bounds
    if seen.min() < a or seen.max() > b:
        told = f"rewards between {seen.min():.4g} and {seen.max():.4g} were seen, but "
        told += f"its range is stated as {a:g} to {b:g}"
        return [*claims, bd.refused(GAP, told, "state the true range of the reward")]
    gain = gain_claim(units, asked)
    gap = gap_claim(units, asked)
    return [gain, gap, *claims] if gain.met is False else [*claims, gap, gain]


def kl_claim(units: Units, asked: Asked) -> Claim:
    """E Σₜ KL(π‖ρ) with an interval."""
    k, n = units.divergence, len(units.divergence)
    mean, off = float(k.mean()), units.rounding
    stated = "mean over prompts and y ~ π of Σₜ KL(π‖ρ) at token t, summed over the "
    stated += f"whole vocabulary; {asked.reference}"
    if asked.reach == math.inf:
        told = f"{mean:.4g} nats for each of {n:,} answers; no interval without a floor"
        return bd.measured(KL, mean, told, objective=stated)
    reach, half = asked.reach, asked.delta / 2
    high = min(reach, upper_mean(k, 0.0, reach, half) + off)
    low = max(0.0, -upper_mean(-k, -reach, 0.0, half) - off)
    return Claim(
        *(KL, Strength.STATISTICAL, high, None, None),
        theorem=f"a token's divergence is at most log(V/η), and {BETS}",
        delta=asked.delta,
        allowance=off,
        detail=f"between {low:.4g} and {high:.4g} nats for each answer; {mean:.4g} on "
        f"average over {n:,} answers",
        objective=stated,
        assumptions=(MEANS,),
    )


def gain_claim(units: Units, asked: Asked) -> Claim:
    """J(π) − J(ρ): what the tuning has gained; missed if it is surely below zero."""
    beta, off = asked.beta, asked.beta * units.rounding
    gain = units.reward - units.reference_reward - beta * units.divergence
    stated = f"J(π) − J(ρ), J = E r − {beta:g}·KL(π‖ρ); {asked.reference}"
    if asked.bounds is None or asked.reach == math.inf:
        told = f"{gain.mean():+.4g} on average over {len(gain):,} answers"
        return bd.measured(GAIN, float(gain.mean()), told, objective=stated)
    a, b = asked.bounds
    worst, best, half = a - b - beta * asked.reach, b - a, asked.delta / 2
    high = upper_mean(gain, worst, best, half) + off
    low = -upper_mean(-gain, -best, -worst, half) - off
    met = True if low > 0 else False if high < 0 else None
    said = f"between {low:+.4g} and {high:+.4g}; {gain.mean():+.4g} on average"
    if met is False:
        rose = float((units.reward - units.reference_reward).mean())
        said = f"worse than its own reference, {said}: rewards changed by {rose:+.4g}"
        said += f", and {beta:g}·KL is {beta * units.divergence.mean():.4g}"
    return Claim(
        *(GAIN, Strength.STATISTICAL, high, None, met),
        objective=stated,
        theorem=BETS,
        assumptions=(MEANS, f"the reward lies between {a:g} and {b:g}"),
        delta=asked.delta,
        allowance=off,
        detail=said,
        fix="" if met is not False else "use more pairs, fewer steps or a larger beta",
    )


def gap_claim(units: Units, asked: Asked) -> Claim:
    """An upper bound of J* − J(π)."""
    a, b = asked.bounds or (0.0, 0.0)
    beta, n = asked.beta, len(units.prompt)
    split = max(1, int(n * PILOT)) if beta else 0
    rest, off = n - split, beta * units.rounding
    objective = units.reward - beta * units.divergence
    top = np.full(asked.prompts, b)
    if beta:
        logs = np.logaddexp(
            units.reward / beta - np.logaddexp(0.0, units.ratio),
            units.reference_reward / beta - np.logaddexp(0.0, units.reference_ratio),
        )  # log(w(y) + w(z)) with g = 0
        g = chosen_g(units.prompt[:split], logs[:split], asked, rest)
        room = 2 * np.exp(b / beta - g)
        top = beta * (g - 1 + room)
        each = beta * (g[units.prompt] - 1 + np.exp(logs - g[units.prompt]))
        low = float((beta * (g - 1)).min()) - b
        off *= 1 + float(room.max())
    else:
        each, low = np.full(n, b), 0.0
    high = float(top.max()) - a + beta * asked.reach
    bound = upper_mean((each - objective)[split:], low, high, asked.delta) + off
    mean = float((each - objective)[split:].mean())
    return Claim(
        *(GAP, Strength.STATISTICAL, max(0.0, bound), None, None),
        objective=f"J* − J(π), J = E r − {beta:g}·KL(π‖ρ); {asked.reference}",
        theorem="log Z ≤ g + Z/e^g − 1, with Z estimated from the answers of both "
        f"policies; {BETS}",
        assumptions=(MEANS, f"the reward lies between {a:g} and {b:g}"),
        delta=asked.delta,
        allowance=off,
        detail=f"at most {max(0.0, bound):.4g} below the best policy's objective "
        f"({max(0.0, mean):.4g} on average over {rest:,} pairs of answers)",
    )


def chosen_g(prompt: Array, logs: Array, asked: Asked, rest: int) -> Array:
    """A number near log Z for each prompt, from draws that are not used again.

    Every choice gives a true bound. It is at least b/β − log(rest/20), so that one
    answer alone cannot move the mean by more than a share of β.
    """
    b = (asked.bounds or (0.0, 0.0))[1]
    least = b / asked.beta - math.log(max(2.0, rest / 20))
    total, count = np.full(asked.prompts, -math.inf), np.zeros(asked.prompts)
    np.logaddexp.at(total, prompt, logs)
    np.add.at(count, prompt, 1)
    seen = count > 0
    g = np.full(asked.prompts, float(np.median(logs)) if len(logs) else least)
    g[seen] = total[seen] - np.log(count[seen])
    return np.maximum(g, least)


# -- laws of language models ----------------------------------------------------------


def answer_logs(
    read: PlainNetwork, end: int, prompts: list[Array], answers: list[Array]
) -> tuple[Array, Array]:
    """Log p of each answer to each prompt, (prompts, answers), and its rounding."""
    logs = np.zeros((len(prompts), len(answers)))
    off = np.zeros(len(prompts))
    for i, x in enumerate(prompts):
        laws = next_laws(read, end, [x] * len(answers), answers)
        for j, (law, y) in enumerate(zip(laws, answers)):
            n = len(y)
            logs[i, j] = math.fsum(law.log[np.arange(n), y])
            off[i] = max(off[i], 1.01 * math.fsum(law.off[:n]))
    return logs, off


def policy_claims_of_draws(
    policy: tuple[Any, Any],
    reference: tuple[Any, Any],
    prompts: list[Array],
    texts: Sequence[Any],
    tokens: list[bytes],
    reward: Scores,
    *,
    end: int,
    floor: float,
    length: int,
    beta: float,
    bounds: tuple[float, float] | None,
    n: int,
    delta: float,
    propose: Propose | None = None,
) -> list[Claim]:
    """The claims about two networks, each given by configuration and weights."""
    duel = Duel(PlainNetwork(*policy), PlainNetwork(*reference), end, floor, length)
    context = min(read.config["context"] for read in duel[:2])
    longest = max(map(len, prompts)) + length
    if longest > context:
        told = f"a prompt with {length} tokens has {longest}, more than the {context} "
        told += "of the context"
        return [bd.refused(GAP, told, "shorten the prompts, or lower max_tokens")]
    units = drawn_units(duel, prompts, texts, tokens, reward, n, propose)
    asked = Asked(beta, duel.reach, len(prompts), bounds, delta, duel.stated)
    claims = drawn_claims(units, asked)
    rank = {GAP: 1, GAIN: 3, KL: 2}
    return sorted(claims, key=lambda c: 0 if c.met is False else rank[c.name])
