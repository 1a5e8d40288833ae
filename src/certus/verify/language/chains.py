"""Chains of tokens: the best continuation, the entropy of a source, two models.

- MAP gap: the unfinished beginnings of a best-first search cover all texts that were
  not finished, and none of these is more probable than its beginning; so the best of
  both bounds every text from above.
- Excess: for a source with a known distribution P, (1/n) E log P(x)/Q(x) ≥ 0 is what a
  model Q pays above the source's entropy; a finite sum where all texts can be listed.
- Difference: of two models' bits per byte, document by document. The interval for its
  median comes from the order of the documents' differences and needs no distribution.
"""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
from scipy.special import bdtr

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify.deciding import Number, U, gamma, measured, refused
from certus.verify.language import attention
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.drawn_bits import DOCUMENTS, student
from certus.verify.language.drift import Bounded
from certus.verify.language.scoring import BITS, DELTA, FACTOR, figure

#: Texts that are listed, or drawn, for the excess over a source's entropy.
LISTED, DRAWN = 4_096, 256


# -- the most probable continuation ----------------------------------------------------


def decoding_claim(
    read: PlainNetwork,
    prompt: Array,
    found: Array,
    end: int,
    length: int,
    visits: int = 200,
) -> Claim:
    """How much more probable another continuation can be.

    A continuation ends with the end-of-text token or has ``length`` tokens. ``prompt``
    begins with an end-of-text token.
    """
    found, start = np.asarray(found), np.asarray(prompt)
    room = read.config["context"] - len(start) + 1
    if length > room:
        more = f"the prompt leaves room for {room} tokens, not {length}"
        return refused("decoding_gap", more, "use a shorter prompt, or fewer tokens")
    whole = len(found) == length or (0 < len(found) <= length and found[-1] == end)
    if not whole or np.any(found[:-1] == end):
        what = "the continuation is unfinished, or goes on after its end"
        return refused("decoding_gap", what, "pass a finished continuation")
    own = _log_prob(read, start, found)
    bound, off, done = _best_first(read, start, end, length, visits, own.value)
    # Each of the two sums has at most this many terms, each off by at most this much.
    said, lost = own.value, own.rounding + length * (off + 4 * U * abs(own.value))
    gap = Number(max(0.0, bound - said), lost)
    far = gap.value > gap.rounding
    shown = f"at most {gap.most:.3g} nats below the best" if far else "the best of all"
    return figure(
        *("decoding_gap", gap),
        f"log p is {said:.4f}, {shown} ({done:,} beginnings were continued)",
        lambda: FACTOR * abs(said - _log_prob(read.backwards(), start, found).value),
        objective=f"max log p of a continuation of up to {length} tokens − log p of "
        "this one",
        theorem="no text is more probable than its beginning, and the unfinished "
        "beginnings cover all texts that were not finished",
    )


def _log_prob(read: PlainNetwork, start: Array, found: Array) -> Number:
    lp = attention.log_probs(read, np.append(start, found[:-1]).astype(np.int64))
    each = lp.x[np.arange(len(found)) + len(start) - 1, found]
    return Number(math.fsum(each), math.fsum(lp.off[len(start) - 1 :]))


def _best_first(
    read: PlainNetwork, start: Array, end: int, length: int, visits: int, said: float
) -> tuple[float, float, int]:
    """The best log p from above, a term's rounding, and the beginnings continued."""
    best, off, done = said, 0.0, 0
    heap: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    while heap and -heap[0][0] > best and done < visits:
        minus, begun = heapq.heappop(heap)
        given = np.append(start, begun).astype(np.int64)
        scored = attention.log_probs(read, given)
        lp, off, done = scored.x[-1] - minus, max(off, scored.off[-1]), done + 1
        for token in np.flatnonzero(lp > best).tolist():
            if token == end or len(begun) + 1 == length:
                best = max(best, float(lp[token]))
            else:
                heapq.heappush(heap, (-float(lp[token]), (*begun, token)))
    return max(best, -heap[0][0] if heap else best), off, done


# -- the entropy of a source ----------------------------------------------------------


def stationary(law: Array) -> Array:
    """Stationary distribution of k symbols, of shape (m,)·k, by power iteration."""
    m, k = law.shape[-1], law.ndim - 1
    state = np.full((m,) * k, m ** float(-k))
    for _ in range(10_000 if k else 0):
        new = (state[..., None] * law).sum(axis=0)
        new = 0.5 * (new + state)  # a chain with a period settles too
        if np.abs(new - state).max() < 1e-16:
            break
        state = new
    return state / state.sum()


def source_log_probs(law: Array, texts: Array) -> Array:
    """Return log P(x_t | x_{<t}) of all symbols m at each place, (texts, length, m)."""
    k, start = law.ndim - 1, stationary(law)
    out = np.zeros((*texts.shape, law.shape[-1]))
    with np.errstate(divide="ignore", invalid="ignore"):
        for t in range(texts.shape[1]):
            past = tuple(texts[:, i] for i in range(max(0, t - k), t))
            if t >= k:
                out[:, t] = np.log(law[past])
            else:
                joint = start.sum(axis=tuple(range(t + 1, k)))
                out[:, t] = np.log(joint[past] / joint[past].sum(-1, keepdims=True))
    return out


def excess_claim(
    read: PlainNetwork, end: int, law: Any, symbols: Any, length: int, seed: int = 0
) -> Claim:
    """Bits per symbol that the model pays above the entropy of a Markov source.

    ``law[a, …, b, c]`` is the probability of symbol c behind a, …, b, and ``symbols``
    are the tokens of the symbols. Texts of ``length`` symbols begin in the stationary
    law, behind an end-of-text token.
    """
    law, symbols = np.asarray(law, dtype=np.float64), np.asarray(symbols)
    m, k = law.shape[-1], law.ndim - 1
    sound = law.shape == (m,) * (k + 1) and symbols.shape == (m,)
    if not sound or (law < 0).any() or np.abs(law.sum(axis=-1) - 1).max() > 1e-9:
        raise ValueError(
            "law must hold the probabilities of m symbols, in its last axis."
        )
    if not 1 <= length <= read.config["context"]:
        raise ValueError(f"length must be between 1 and {read.config['context']}.")
    listed = m**length <= LISTED
    if listed:
        texts = np.indices((m,) * length).reshape(length, -1).T
    else:
        texts = _drawn(law, length, seed)
    P = source_log_probs(law, texts)
    Q = _model_log_probs(read, end, symbols, texts)
    each = _divergences(P, Q.x)
    words: Any = {
        "objective": f"(1/n) E log₂ P(x)/Q(x) over texts of n = {length} symbols, the "
        "first of them from the stationary distribution as computed",
    }
    if not listed:
        low, high = student(each / length / BITS, DELTA)
        return Claim(
            *("entropy_excess", Strength.STATISTICAL, high, None, None),
            theorem="Student's interval; each term is a sum over all symbols",
            assumptions=(f"the mean of {len(texts)} drawn texts is close to normal",),
            delta=DELTA,
            detail=f"between {max(0.0, low):.4f} and {high:.4f} bits per symbol above "
            "the entropy of the source",
            **words,
        )
    weights = np.exp(_taken(P, texts).sum(axis=1))
    value = math.fsum(weights * each) / length / BITS
    # Shares of each term: of its weight, a product; of its logarithms; of the sum.
    deep = float(np.where(np.isfinite(P), np.abs(P), 0.0).max())
    share = gamma(64 * length * (1 + m + deep))
    sizes = math.fsum(weights * _divergences(P, Q.x, sizes=True))
    off = (float(Q.off.max()) + share * sizes / length) / BITS * (1 + 1e-6)

    def estimated() -> float:
        back = _model_log_probs(read.backwards(), end, symbols, texts)
        return FACTOR * float(np.abs(back.x - Q.x).max()) / BITS

    return figure(
        *("entropy_excess", Number(value, off)),
        f"{value:.4f} bits per symbol above the entropy of the source",
        estimated,
        theorem=f"all {len(texts):,} texts were listed; a divergence is never negative",
        **words,
    )


def _drawn(law: Array, length: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    texts = np.zeros((DRAWN, length), dtype=np.int64)
    for t in range(length):
        p = np.exp(source_log_probs(law, texts[:, : t + 1])[:, t])
        texts[:, t] = (rng.random((DRAWN, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
        texts[:, t] = np.minimum(texts[:, t], law.shape[-1] - 1)
    return texts


def _model_log_probs(
    read: PlainNetwork, end: int, symbols: Array, texts: Array
) -> Bounded:
    """Return log Q of each symbol at each place, (texts, length, m)."""
    given = np.column_stack([np.full(len(texts), end), symbols[texts[:, :-1]]])
    parts = np.array_split(given, max(1, len(given) * given.shape[1] // 4_096))
    found = [attention.log_probs(read, part) for part in parts]
    lp = np.concatenate([each.x[..., symbols] for each in found])
    return Bounded(lp, np.concatenate([each.off for each in found]))


def _divergences(P: Array, Q: Array, sizes: bool = False) -> Array:
    """Σ_t Σ_m P log P/Q of each text; or the sizes of the terms."""
    with np.errstate(invalid="ignore"):
        logs = np.abs(P) + np.abs(Q) + 1 if sizes else P - Q
        terms = np.where(np.isneginf(P), 0.0, np.exp(P) * logs)
    return np.asarray(terms.sum(axis=(1, 2)))


def _taken(P: Array, texts: Array) -> Array:
    return np.take_along_axis(P, texts[..., None], axis=2)[..., 0]


# -- two models -----------------------------------------------------------------------


def difference_claims(
    first: Any, second: Any, n_bytes: Any, *, delta: float = DELTA, models: int = 2
) -> list[Claim]:
    """Whether one model needs fewer bits than another, document by document.

    Parameters
    ----------
    first, second : array-like
        Bits of each document.
    n_bytes : array-like
        Bytes of each document.
    delta : float
        Failure probability: the chance that the statement does not hold.
    models : int
        How many models were compared in pairs (union bound).
    """
    a, b, n = (
        np.asarray(v, dtype=np.float64).ravel() for v in (first, second, n_bytes)
    )
    if not (a.shape == b.shape == n.shape) or not np.isfinite([a, b]).all():
        raise ValueError("Both models need a finite number of bits for each document.")
    a, b, n = a[n > 0], b[n > 0], n[n > 0]
    mean = math.fsum(a - b) / max(1.0, n.sum())
    pairs = models * (models - 1) // 2
    total = measured(
        "total_difference",
        mean,
        f"{mean:+.4f} bits per byte over all {int(n.sum()):,} bytes",
        objective="(bits of the first − bits of the second) / bytes",
    )
    if len(n) < DOCUMENTS:
        few = f"too few documents for an interval: {len(n)}"
        more = f"compare on at least {DOCUMENTS} documents"
        return [refused("bits_difference", few, more), total]
    each = np.sort((a - b) / n)
    rank = 0
    while 2 * bdtr(rank, len(each), 0.5) * (1 + 1e-9) <= delta / pairs:
        rank += 1
    if rank == 0:
        few = f"too few documents for this many models: {len(n)}"
        return [refused("bits_difference", few, "use more documents"), total]
    low, high = float(each[rank - 1]), float(each[-rank])
    better = "first" if high < 0 else "second"
    said = f"the median document differs by {low:+.4f} to {high:+.4f} bits per byte"
    if low * high > 0:
        said += f", so the {better} model is better"
    both = f" at delta/{pairs}, because {models} models were compared"
    return [
        Claim(
            *(
                "bits_difference",
                Strength.STATISTICAL,
                high,
                None,
                low * high > 0 or None,
            ),
            objective="median over documents of the difference in bits per byte"
            + (both if pairs > 1 else ""),
            theorem="order statistics: the median lies between the "
            f"{rank}. and the {len(each) - rank + 1}. of {len(each)} differences",
            assumptions=("documents are drawn independently from one distribution",),
            delta=delta,
            detail=said,
        ),
        total,
    ]
