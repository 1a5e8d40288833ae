"""Answers of a policy and of its reference, drawn with the verifier's own numbers.

The reference is floored at each token, ρ = (1 − η) π_ref + η/V, so that no token is
impossible and log(π/ρ) ≤ log(V/η). An answer ends with an end-of-text token or after
``length`` tokens. Token t is the first whose cumulative probability exceeds uₜ; for the
reference a second number vₜ < η makes it token ⌊uₜV⌋ instead, which has the
distribution ρ.

Somebody faster may propose answers. Each token is compared with what its number gives
in float64, and replaced if it differs: a proposal saves time and needs no trust.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array
from certus.verify.kernel.spaces import gamma
from certus.verify.language import attention
from certus.verify.language.attention import PlainNetwork
from certus.verify.statistical import SURE

#: Numbers of scores that are held at a time, and answers that are compared together.
HELD, TOGETHER = 1 << 22, 256
#: Proposes answers: ``propose(prompts, u, v, reference)``; v is None for the policy.
Propose = Callable[[list[Array], Array, Array | None, bool], Sequence[Array]]


class Duel(NamedTuple):
    """A policy beside its reference, and how answers end."""

    policy: PlainNetwork
    reference: PlainNetwork
    end: int
    floor: float
    length: int

    @property
    def reach(self) -> float:
        """The largest divergence of an answer: ``length`` times log(V/η)."""
        V = self.policy.config["n_tokens"]
        return self.length * math.log(V / self.floor) if self.floor else math.inf

    @property
    def stated(self) -> str:
        """What ρ is at each token, with its numbers."""
        eta, V = self.floor, self.policy.config["n_tokens"]
        return f"ρ = (1 − η)·π_ref + η/V with η = {eta:g} and V = {V:,}"


class AnswerTerms(NamedTuple):
    """Of each answer: log π/ρ, Σₜ KL, and a bound on the rounding of both."""

    ratio: Array
    divergence: Array
    rounding: Array


class AnswerLaw(NamedTuple):
    """Log-probabilities of the next token, (places, V), and their rounding."""

    log: Array
    off: Array  # (places,)


def next_laws(
    read: PlainNetwork, end: int, prompts: list[Array], answers: Sequence[Any]
) -> list[AnswerLaw]:
    """The distributions at each token of the answers and behind the last one.

    One for each pair; without the last place where the answer fills the context.
    """
    context, found = read.config["context"], []
    streams = [
        np.concatenate([[end], x, y]).astype(np.int64)[:context]
        for x, y in zip(prompts, answers, strict=True)
    ]
    longest = max(map(len, streams), default=1)
    many = max(1, HELD // (longest * read.config["n_tokens"]))
    for i in range(0, len(streams), many):
        part = streams[i : i + many]
        rows = np.full((len(part), max(map(len, part))), end, np.int64)
        for row, stream in zip(rows, part):  # what stands behind is never seen
            row[: len(stream)] = stream
        S, off = attention.bounded(read, rows)
        for s, e, x, stream in zip(S, off, prompts[i:], part):
            lp = attention.log_softmax(s[len(x) : len(stream)])
            own = gamma(lp.shape[-1] + 16) * (2 + np.abs(lp).max(axis=-1))
            found.append(AnswerLaw(lp, 2 * e[len(x) : len(stream)] + own))
    return found


def floored(lp: Array, eta: float) -> Array:
    """Return log((1 − η) p + η/V)."""
    if not eta:
        return lp
    return np.log((1 - eta) * np.exp(lp) + eta / lp.shape[-1])


def picked(p: Array, u: float) -> int:
    """The first token whose cumulative probability exceeds u."""
    token = int(np.searchsorted(np.cumsum(p), u, side="right"))
    return min(token, int(np.flatnonzero(p)[-1]))


def draw(
    read: PlainNetwork,
    duel: Duel,
    prompts: list[Array],
    u: Array,
    v: Array | None = None,
    proposed: Sequence[Any] | None = None,
) -> tuple[list[Array], list[AnswerLaw]]:
    """The answers that these numbers give, and the distributions of their tokens.

    With v, answers of the floored distribution; the distributions are the network's own
    all the same.
    """
    V, end, length = read.config["n_tokens"], duel.end, duel.length
    answers = [np.zeros(0, np.int64)] * len(prompts)
    if proposed is not None and len(proposed) == len(prompts):
        answers = [np.clip(np.ravel(y)[:length], 0, V - 1) for y in proposed]
    waiting = list(range(len(prompts)))
    laws = [AnswerLaw(np.zeros(0), np.zeros(0))] * len(u)
    while waiting:
        some = next_laws(
            read, end, [prompts[i] for i in waiting], [answers[i] for i in waiting]
        )
        still = []
        for i, law in zip(waiting, some):
            lp = law.log
            y = [int(token) for token in answers[i]]
            for t in range(length):
                if v is not None and v[i, t] < duel.floor:
                    token = min(int(u[i, t] * V), V - 1)
                else:
                    token = picked(np.exp(lp[t]), u[i, t])
                if t == len(y) or y[t] != token:
                    y = [*y[:t], token]
                    over = token == end or t + 1 == length
                    still += [] if over else [i]
                    break
                if token == end:
                    y = y[: t + 1]
                    break
            answers[i] = np.array(y, np.int64)
            laws[i] = AnswerLaw(lp[: len(y)].copy(), law.off[: len(y)])
        waiting = still
    return answers, laws


def terms_of(
    duel: Duel,
    prompts: list[Array],
    answers: list[Array],
    ours: list[AnswerLaw] | None = None,
    theirs: list[AnswerLaw] | None = None,
) -> AnswerTerms:
    """Log π/ρ of each answer, and its exact divergence: sums over the vocabulary.

    The distributions of the policy and of the plain reference may be known.
    """
    ratio, divergence, rounding = np.zeros((3, len(answers)))
    for begin in range(0, len(answers), TOGETHER):
        part = slice(begin, begin + TOGETHER)
        known = [
            laws[part]
            if laws
            else next_laws(read, duel.end, prompts[part], answers[part])
            for read, laws in zip(duel[:2], (ours, theirs))
        ]
        for i, (a, b) in enumerate(zip(*known), begin):
            n = len(answers[i])
            lp, lr, e = a.log[:n], floored(b.log[:n], duel.floor), a.off[:n] + b.off[:n]
            ratio[i] = math.fsum((lp - lr)[np.arange(n), answers[i]])
            divergence[i] = math.fsum(token_divergences(lp, lr))
            # Logarithms off by e move a divergence by e(2 + Σ p |log p/q|) at most.
            far = (np.exp(lp) * np.abs(lp - lr)).sum(axis=-1)
            rounding[i] = 1.01 * math.fsum(e * (2 + far))
    return AnswerTerms(ratio, divergence, rounding)


def token_divergences(lp: Array, lr: Array) -> Array:
    """KL(π‖ρ) at each place as a sum of terms p log(p/q) − p + q, none negative."""
    p, q = np.exp(lp), np.exp(lr)
    gap = np.where(p > 0, lp - lr, 0.0)
    return np.maximum(p * gap - p + q, 0.0).sum(axis=-1)


# -- a mean, bounded from above -------------------------------------------------------


def upper_mean(x: Array, low: float, high: float, delta: float) -> float:
    """A number that the mean of independent x in [low, high] exceeds with chance δ.

    For a mean m the stake Π (1 + λᵢ (m − zᵢ)), z = (x − low)/(high − low), has
    expectation 1 as λᵢ depends on earlier x alone, so it reaches 1/δ with chance δ at
    most (Ville). It grows with m: all means above the returned one reach 1/δ.
    """
    if not high > low:
        return high
    z = np.clip((x - low) / (high - low), 0.0, 1.0)
    n, goal = len(z), -math.log(delta * (1 - SURE))
    seen = np.arange(1, n + 1)
    mean = (0.5 + np.concatenate([[0.0], np.cumsum(z)[:-1]])) / seen
    spread = np.concatenate([[0.0], np.cumsum(np.square(z - mean))[:-1]])
    bets = np.sqrt(2 * goal / (n * (0.05 + spread) / seen))

    def stake(m: float) -> float:
        # Below 1/(1 − m), which keeps each factor positive.
        return math.fsum(np.log1p(np.minimum(bets, 0.9 / (1 - m)) * (m - z)))

    below, above = 0.0, 1.0 - 1e-12
    if not n or stake(above) < goal:
        return high
    while above - below > 1e-9:
        middle = 0.5 * (below + above)
        below, above = (below, middle) if stake(middle) >= goal else (middle, above)
    return low + (high - low) * above
