"""Samplers: whether each drawn token is the one that the stated law and number give.

The law of the next token is softmax(scores/temperature), of which the ``top_k`` largest
are kept, then the fewest of the largest whose sum reaches ``top_p``; what is kept is
scaled to sum 1. A draw takes the first token, in the order of their numbers, whose
cumulative probability exceeds the recorded uniform number u, so u lies in the interval
of the emitted token. A network in float32 moves the ends of the intervals a little, and
may take another of two almost equal members: misses are measured and members counted.

One speculative step draws x from q, keeps it with probability min(1, p(x)/q(x)), and
draws from max(p − q, 0) otherwise. Its law is a finite sum, and equals p exactly if the
p and q that the sampler used are those that it drew from.
"""

from __future__ import annotations

import math
from itertools import combinations, islice
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim
from certus.typing import Array
from certus.verify import attention
from certus.verify import deciding as bd
from certus.verify.attention import Reader
from certus.verify.deciding import Number
from certus.verify.language import FACTOR, NEAR, ROUNDED, windows

#: Largest miss of an interval, and distance of two laws.
MISS = 1e-5
#: Scores, and sums of probabilities, that float32 cannot tell apart.
ALIKE = 1e-4
#: Laws that are tried where members are ambiguous.
TRIED = 24


class How(NamedTuple):
    """How a token is drawn; 0 stands for the most probable one, and for all tokens."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


def scores_at(read: Reader, stream: Array, begun: int) -> Array:
    """The scores behind which tokens ``begun``, … of the stream were drawn, (n, V)."""
    found = []
    for w in windows(len(stream) - 1, read.config["context"]):
        first = max(w.first, begun)
        if first <= w.stop:
            S = attention.scores(read, stream[w.begin : w.stop])
            found.append(S[first - 1 - w.begin : w.stop - w.begin])
    return np.concatenate(found)


def rounding_at(read: Reader, S: Array, stream: Array, begun: int) -> float:
    """Ten times the largest difference of a score in two orders of summation."""
    back = scores_at(read.backwards(), stream, begun)
    return FACTOR * float(np.abs(S - back).max(initial=0.0)) + 64 * bd.U


def laws(S: Array, how: How) -> list[Array]:
    """The law of the next token; then those that rounding might make of it."""
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
    read: Reader, stream: Array, begun: int, uniforms: Array, how: How
) -> Claim:
    """Whether each token from place ``begun`` of the stream is what its number gives.

    ``stream`` begins with an end-of-text token, and may hold a prompt before ``begun``.
    """
    u = np.asarray(uniforms, dtype=np.float64).ravel()
    n = len(stream) - begun
    sound = len(u) == n > 0 and bool(np.all((u >= 0) & (u < 1)))
    worst, outside, ambiguous, off = (0.0 if sound else math.inf), 0, 0, 0.0
    if sound:
        found = scores_at(read, stream, begun)
        off = rounding_at(read, found, stream, begun) / (how.temperature or 1.0)
        for S, token, x in zip(found, stream[begun:], u, strict=True):
            tried = laws(S, how)
            ambiguous += len(tried) > 1
            misses = [miss(p, int(token), float(x)) for p in tried]
            outside += misses[0] > 0
            worst = max(worst, min(misses))
    what = "is the most probable one" if how.temperature == 0 else "is what was drawn"
    told = f"{outside:,} lie outside, by rounding" if outside else "none lies outside"
    words = f"{ambiguous:,} had almost equal candidates"
    return bd.proved(
        *("replay", Number(worst, off), MISS),
        f"each of {n:,} tokens {what}: {told} (at most {worst:.1e}); {words}",
        missed=f"a token is not what temperature {how.temperature:g}, top_k "
        f"{how.top_k} and top_p {how.top_p:g} give for its number: {worst:.2g} outside",
        objective="largest distance of a uniform number from its token's interval",
        theorem="inverse distribution function, with the verifier's own network and "
        "without a cache",
        assumptions=(ROUNDED,),
        fix="draw again with the stated parameters",
    )


def cache_claim(read: Reader, stream: Array, begun: int, said: Array) -> Claim:
    """Whether log-probabilities found with a cache are those found without."""
    S = scores_at(read, stream, begun)
    lp, off = attention.log_softmax(S), rounding_at(read, S, stream, begun)
    own = lp[np.arange(len(lp)), stream[begun:]]
    said = np.asarray(said, dtype=np.float64).ravel()
    worst = math.inf
    if said.shape == own.shape and np.isfinite(said).all():
        worst = float(np.abs(own - said).max(initial=0.0))
    return bd.proved(
        *("cache", Number(worst, 2 * off), NEAR),
        f"log-probabilities with and without a cache agree within {worst:.1e}",
        missed=f"with a cache, the log-probability of a token is {worst:.2g} off",
        objective="largest |log p with a cache − log p without| of an emitted token",
        theorem="the whole text was read again for each window",
        assumptions=(ROUNDED,),
        fix="generate again; a cache must be emptied when the window moves",
    )


# -- speculative decoding -------------------------------------------------------------


def step_law(draws: Array, p: Array, q: Array) -> Array:
    """The law of one step that draws from ``draws`` and then uses p and q.

    Equal to p, whatever q, if ``draws`` is q.
    """
    ratio = np.divide(p, q, out=np.full(len(p), np.inf), where=q > 0)
    kept = draws * np.minimum(1.0, ratio)
    rest = np.maximum(p - q, 0.0)
    if rest.sum() == 0.0:
        rest = p
    return kept + (draws.sum() - kept.sum()) * rest / rest.sum()


def distance(a: Array, b: Array) -> float:
    """Total variation distance of two laws."""
    return 0.5 * float(np.abs(a - b).sum())


class Tried(NamedTuple):
    """A token that a draft proposed: its place, and what the sampler made of it."""

    place: int
    token: int
    p: float
    q: float
    u: float
    accepted: bool


def speculative_claim(
    read: Reader, draft: Reader, stream: Array, tried: list[Tried], how: How
) -> Claim:
    """Whether speculative steps have the law of the target network.

    The law of each step is that of proposals from the verifier's own q, accepted by the
    ratio that the sampler recorded; accepted and refused ones are decided again. All
    tokens before a tried one were accepted, so they stand in the stream.
    """
    worst, apart, wrong = 0.0, 0.0, 0
    first = min((one.place for one in tried), default=len(stream) - 1)
    own, other = (scores_at(net, stream, first) for net in (read, draft))
    off = rounding_at(read, own, stream, first)
    off += rounding_at(draft, other, stream, first)
    for one in tried:
        p, q = (
            _nearest(laws(S[one.place - first], how), one.token, said)
            for S, said in ((own, one.p), (other, one.q))
        )
        here = abs(p[one.token] - one.p), abs(q[one.token] - one.q)
        apart = max(apart, *here)
        used_p, used_q = p.copy(), q.copy()
        used_p[one.token], used_q[one.token] = one.p, one.q
        worst = max(worst, distance(step_law(q, used_p, used_q), p))
        wrong += one.accepted != bool(one.u * one.q < one.p)
    found = Number(max(worst, 1.0 if wrong else apart), off / (how.temperature or 1.0))
    return bd.proved(
        *("speculative_gap", found, MISS),
        f"{len(tried):,} drafted tokens: one step is within {worst:.1e} of the "
        f"target's law; p and q are within {apart:.1e}",
        missed=f"{wrong:,} drafted tokens were kept or refused against p and q"
        if wrong
        else f"a step is {worst:.2g} away from the target's law; the p or q that was "
        f"used is {apart:.2g} off",
        objective="largest total variation distance of one step's law and the target's",
        theorem="the law of a step is Σ q·min(1, p/q) plus what is left, a finite sum",
        assumptions=(ROUNDED,),
        fix="accept with the same p and q that tokens are drawn from, filters included",
    )


def _nearest(found: list[Array], token: int, said: float) -> Array:
    """Of the laws that rounding allows, the one that comes nearest to the record."""
    return min(found, key=lambda p: abs(p[token] - said))
