"""Samplers: whether each token follows from the stated distribution and number.

The distribution of the next token is softmax(scores/temperature), of which the
``top_k`` largest are kept, then the fewest of the largest whose sum reaches ``top_p``;
what is kept is scaled to sum 1. A draw takes the first token, in the order of their
numbers, whose cumulative probability exceeds the recorded uniform number u, so u lies
in the interval of the emitted token. A network in float32 moves the ends of the
intervals a little, and may take another of two almost equal members: misses are
measured and members counted.

One speculative step draws x from q, keeps it with probability min(1, p(x)/q(x)), and
draws from max(p − q, 0) otherwise. Its distribution is a finite sum, and equals p
exactly if the p and q that the sampler used are those that it drew from.
"""

from __future__ import annotations

import math
from itertools import combinations, islice
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number
from certus.verify.language import attention
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.drift import Bounded
from certus.verify.language.ngrams import CountedProposer, scores_behind
from certus.verify.language.scoring import (
    NEAR,
    decide,
    estimate,
    estimated,
    farthest,
    pick,
    windows,
)

#: Largest miss of an interval, and distance of two distributions.
MISS = 1e-5
#: Scores, and sums of probabilities, that float32 cannot tell apart.
ALIKE = 1e-4
#: Laws that are tried where members are ambiguous.
TRIED = 24


#: What proposed: a network, or a model that counts.
Draft = PlainNetwork | CountedProposer
#: Where a token comes from: the network, an accepted proposal, or what is left of p.
DRAWN, ACCEPTED, RESIDUAL = 0, 1, 2


class How(NamedTuple):
    """How a token is drawn; 0 stands for the most probable one, and for all tokens."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __str__(self) -> str:
        return f"temperature {self.temperature:g}, top_k {self.top_k or None}, " + (
            f"top_p {self.top_p:g}"
        )


class Proposals(NamedTuple):
    """What a draft proposed, and what the sampler used to decide on it.

    ``place`` counts from the end-of-text token at the beginning; q and p are the
    distributions that the sampler used, (n, V) each.
    """

    place: Array
    token: Array
    q: Array
    p: Array
    drawn_by: Array
    decided_by: Array
    accepted: Array


def scores_at(read: PlainNetwork, stream: Array, begun: int) -> Bounded:
    """The scores behind which tokens ``begun``, … of the stream were drawn, (n, V)."""
    found = []
    for w in windows(len(stream) - 1, read.config["context"]):
        first = max(w.first, begun)
        if first <= w.stop:
            S = attention.bounded(read, stream[w.begin : w.stop])
            at = slice(first - 1 - w.begin, w.stop - w.begin)
            found.append(Bounded(S.x[at], S.off[at]))
    return Bounded(*(np.concatenate(part) for part in zip(*found)))


def lost_at(S: Bounded, how: How) -> float:
    """How far rounding moves a sum of probabilities, at most.

    Scores that are off by e multiply each probability by a factor within exp(±2e/T), of
    all tokens or of those that are kept.
    """
    e = 2 * float(S.off.max(initial=0.0)) / (how.temperature or 1.0)
    return math.expm1(min(e, 700.0)) + bd.gamma(S.x.shape[-1] + 64)


def guess_at(read: PlainNetwork, stream: Array, begun: int, how: How) -> float:
    """The same with an estimate of e, from scores in two orders of summation."""
    every = windows(len(stream) - 1, read.config["context"])
    every = [w for w in every if w.stop >= begun]
    inputs = [stream[w.begin : w.stop] for w in pick(every)]
    apart = [
        np.abs(attention.scores(read, x) - attention.scores(read.backwards(), x)).max()
        for x in inputs
    ]
    off = np.array([estimated(max(apart))])
    return lost_at(Bounded(np.zeros((1, read.config["n_tokens"])), off), how)


def laws(S: Array, how: How) -> list[Array]:
    """The distribution of the next token; then those that rounding might make of it."""
    if how.temperature == 0.0:
        near = np.flatnonzero(S.max() - S <= ALIKE)
        first = int(S.argmax())
        best = [first, *(int(i) for i in near if i != first)]
        return [np.eye(1, len(S), i)[0] for i in best[:TRIED]]
    p = attention.softmax(S / how.temperature)
    kept = [p]
    if 0 < how.top_k < len(p):
        kept = [_only(p, members) for members in _largest(p, how)]
    if how.top_p < 1.0:
        kept = [_only(p, some) for p in kept for some in _nucleus(p, how)]
    return kept[:TRIED]


def _only(p: Array, members: Any) -> Array:
    kept = np.zeros_like(p)
    kept[members] = p[members]
    return kept / kept.sum()


def _largest(p: Array, how: How) -> list[Array]:
    """The k most probable tokens; of almost equal ones, all choices."""
    order = np.argsort(-p, kind="stable")
    last, width = p[order[how.top_k - 1]], math.exp(ALIKE / how.temperature)
    sure = order[p[order] > last * width]
    open_ = order[(p[order] <= last * width) & (p[order] >= last / width)]
    choices = combinations(open_.tolist(), how.top_k - len(sure))
    return [np.append(sure, some).astype(int) for some in islice(choices, TRIED)]


def _nucleus(p: Array, how: How) -> list[Array]:
    """The fewest of the largest that reach the share; those near to it as well."""
    order = np.argsort(-p, kind="stable")
    total = np.cumsum(p[order])
    n = min(len(p), 1 + int(np.searchsorted(total, how.top_p, side="left")))
    width = math.exp(ALIKE / how.temperature)
    sizes = [n]
    if n > 1 and total[n - 2] >= how.top_p - ALIKE:
        sizes.append(n - 1)
    if n < len(p) and total[n - 1] <= how.top_p + ALIKE and p[order[n]] > 0:
        sizes.append(n + 1)
    found = [order[:size] for size in sizes]
    if n < len(p) and p[order[n]] > 0 and p[order[n - 1]] <= width * p[order[n]]:
        found.append(np.append(order[: n - 1], order[n]))
    return found


def miss(p: Array, token: int, u: float) -> float:
    """How far u lies outside the interval of the token; 1 if it cannot be drawn."""
    if not p[token] > 0.0:
        return 1.0
    high = math.fsum(p[: token + 1])
    low = high - p[token]
    if token == np.flatnonzero(p)[-1]:
        high = 1.0
    return max(0.0, low - u, u - high)


def replay_claim(
    read: PlainNetwork,
    stream: Array,
    begun: int,
    uniforms: Array,
    how: How,
    source: Array | None = None,
    proposals: Proposals | None = None,
) -> Claim:
    """Whether each token from place ``begun`` of the stream is what its number gives.

    ``stream`` begins with an end-of-text token, and may hold a prompt before ``begun``.
    Tokens that were accepted from a draft are judged with it, those of the residual by
    the distributions that the sampler used.
    """
    n = len(stream) - begun
    u = np.asarray(uniforms, dtype=np.float64).ravel()
    u = np.full(n, 0.5) if how.temperature == 0 else u  # nothing is drawn
    source = np.zeros(n, np.int64) if source is None else np.asarray(source)
    sound = len(u) == n == len(source) and bool(np.all((u >= 0) & (u < 1)))
    worst, outside, ambiguous, off = (0.0 if sound else math.inf), 0, 0, 0.0
    if sound and n:
        found = scores_at(read, stream, begun)
        off = lost_at(found, how)
        left = {} if proposals is None else _residuals(proposals)
        for i in np.flatnonzero(source != ACCEPTED):
            tried = laws(found.x[i], how)
            if source[i] == RESIDUAL:
                tried = left.get(begun + int(i), [np.zeros(len(found.x[i]))])
            ambiguous += len(tried) > 1
            misses = [miss(p, int(stream[begun + i]), float(u[i])) for p in tried]
            outside += misses[0] > 0
            worst = max(worst, min(misses))
    what = "is the most probable one" if how.temperature == 0 else "is what was drawn"
    told = f"{outside:,} lie outside, by rounding" if outside else "none lies outside"
    return decide(
        *("replay", Number(worst, off), MISS),
        f"each of {n:,} tokens {what}: {told} (at most {worst:.1e}); {ambiguous:,} had "
        "almost equal candidates",
        lambda: guess_at(read, stream, begun, how),
        missed=f"a token is not what {how} gives for its number: {worst:.2g} outside",
        objective="largest distance of a uniform number from its token's interval",
        theorem="inverse distribution function, with the verifier's own network and "
        "without a cache",
        fix="draw again with the stated parameters",
    )


def _residuals(given: Proposals) -> dict[int, list[Array]]:
    """What is left of p at the places of refused proposals."""
    return {
        int(place): [_rest(p, q)]
        for place, p, q, accepted in zip(given.place, given.p, given.q, given.accepted)
        if not accepted
    }


def cache_claim(read: PlainNetwork, stream: Array, begun: int, said: Array) -> Claim:
    """Whether log-probabilities found with a cache are those found without."""
    lp = attention.logarithms(scores_at(read, stream, begun))
    own = lp.x[np.arange(len(lp.x)), stream[begun:]]
    found = farthest(own, lp.off, np.asarray(said, dtype=np.float64).ravel())
    worst = found.value
    return decide(
        *("cache", found, NEAR),
        f"log-probabilities with and without a cache agree within {worst:.1e}",
        lambda: estimate(read, stream),
        missed=f"with a cache, the log-probability of a token is {worst:.2g} off",
        objective="largest |log p with a cache − log p without| of an emitted token",
        theorem="the whole text was read again for each window",
        fix="generate again; a cache must be emptied when the window moves",
    )


# -- speculative decoding -------------------------------------------------------------


def _rest(p: Array, q: Array) -> Array:
    rest = np.maximum(p - q, 0.0)
    return rest / rest.sum() if rest.sum() > 0 else p


def step_law(draws: Array, p: Array, q: Array) -> Array:
    """The distribution of one step that draws from ``draws`` and then uses p and q.

    Equal to p, whatever q, if ``draws`` is q.
    """
    ratio = np.divide(p, q, out=np.full(len(p), np.inf), where=q > 0)
    kept = draws * np.minimum(1.0, ratio)
    return kept + (draws.sum() - kept.sum()) * _rest(p, q)


def distance(a: Array, b: Array) -> float:
    """Total variation distance of two distributions."""
    return 0.5 * float(np.abs(a - b).sum())


def speculative_claim(
    read: PlainNetwork, draft: Draft, stream: Array, given: Proposals, how: How
) -> Claim:
    """Whether speculative steps have the distribution of the target network.

    Proposals are drawn from the verifier's own q, which is checked by their numbers;
    the p and q that the sampler used then give the distribution of a step. All tokens
    before a tried one were accepted, so they stand in the stream.
    """
    n, V = len(given.place), read.config["n_tokens"]
    shapes = {part.shape for part in (given.q, given.p)}
    sound = shapes == {(n, V)} and all(len(part) == n for part in given)
    places = np.asarray(given.place)
    sound = sound and bool(np.all((places > 0) & (places < len(stream))))
    worst, apart, wrong, off = 0.0, 0.0, 0 if sound else max(1, n), 0.0
    first = int(places.min()) if sound and n else 0
    if sound and n:
        own = scores_at(read, stream, first)
        if isinstance(draft, CountedProposer):
            other = scores_behind(draft, stream, first)
        else:
            other = scores_at(draft, stream, first)
        lost = lost_at(other, how)
        off = lost_at(own, how) + lost
        for place, token, q, p, drawn, decided, accepted in zip(*given):
            true_p = _nearest(laws(own.x[place - first], how), p)
            true_q = _nearest(laws(other.x[place - first], how), q)
            apart = max(apart, distance(p, true_p), distance(q, true_q))
            worst = max(worst, distance(step_law(true_q, p, q), true_p))
            u = 0.5 if how.temperature == 0 else float(drawn)
            outside = miss(true_q, int(token), u)
            worst = max(worst, outside)
            wrong += not outside <= MISS + lost
            wrong += bool(accepted) != bool(decided * q[token] < p[token])
            wrong += bool(accepted) and stream[place] != token
    found = Number(math.inf, 0.0) if wrong else Number(worst, off)
    networks = [each for each in (read, draft) if isinstance(each, PlainNetwork)]
    return decide(
        *("speculative_gap", found, MISS),
        f"{n:,} drafted tokens: a step is within {worst:.1e} of the "
        f"target's probabilities; the p and q in use are within {apart:.1e} of the "
        "networks'",
        lambda: sum(guess_at(each, stream, first, how) for each in networks),
        missed=f"{wrong:,} drafted tokens were drawn or kept against their numbers"
        if wrong
        else f"a step is {worst:.2g} away from the target's probabilities; the p or q "
        f"in use is {apart:.2g} off",
        objective="largest total variation distance of one step and the target",
        theorem="a step has the probabilities q·min(1, p/q) plus what is left of p: a "
        "finite sum",
        fix="accept with the same p and q that tokens are drawn from, filters included",
    )


def _nearest(found: list[Array], used: Array) -> Array:
    """The distribution nearest to the record, of those that rounding allows."""
    return min(found, key=lambda p: distance(p, used))
