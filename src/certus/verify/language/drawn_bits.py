"""Bits per byte of a long text, at level "quick": an interval from a random part of it.

The unit is a document where there are ``DOCUMENTS`` of them, and else a window.

Documents are drawn independently, in proportion to the tokens that are scored in them.
Then the bits per token of a drawn one have the mean Σ bits / Σ tokens whatever the
sizes, and Σ tokens / Σ bytes is known. Of a long document some windows are drawn, in
proportion to their tokens again, which leaves the mean as it is. So the draws are
independent and have one distribution.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.scoring import (
    BITS,
    DELTA,
    Stretch,
    window_log_probs,
    windows,
)

#: Fewest documents that are the unit of an interval, or that two models share.
DOCUMENTS = 8
#: Documents are drawn this often at least, if there are enough windows to score.
DRAWS = 24


class ScoredPart(NamedTuple):
    """Tokens that a window scores, and the factor on their bits."""

    window: Stretch
    tokens: slice
    times: float


def sampled_claim(
    read: PlainNetwork,
    stream: Array,
    tokens: Array,
    n_bytes: int,
    many: int,
    objective: str,
) -> Claim:
    """An interval from about this many windows; ``tokens``: how many a document has."""
    every = windows(len(stream) - 1, read.config["context"])
    rng, count = np.random.default_rng(len(stream)), np.count_nonzero(tokens)
    if count >= DOCUMENTS:
        each = max(1, many // DRAWS)
        drawn = draw_documents(rng, every, tokens, many, each)
        bits = (len(stream) - 1) * bits_of_parts(read, stream, drawn)
        low, high = student(bits, DELTA)
        unit, way = "documents", "independently, in proportion to their tokens"
        few = "1 window" if each == 1 else f"{each:,} windows"
        told = f"draws of {count:,} documents, up to {few} of each"
    else:
        some = rng.permutation(len(every))[:many]
        drawn = [[ScoredPart(every[i], slice(None), len(every))] for i in some]
        bits = bits_of_parts(read, stream, drawn)
        low, high = student(bits, DELTA, of=len(every))
        unit, way, told = "windows", "without return", f"of {len(every):,} windows"
    low, high = max(0.0, low) / n_bytes, high / n_bytes
    return Claim(
        *("bits_per_byte", Strength.STATISTICAL, high, None, None),
        objective=objective,
        theorem=f"Student's interval for the mean over {unit} drawn {way}",
        assumptions=(f"the mean of {len(bits)} drawn {unit} is close to normal",),
        delta=DELTA,
        detail=f"between {low:.3f} and {high:.3f} bits per byte for {n_bytes:,} bytes, "
        f"from {len(bits)} {told}; level='full' takes all",
    )


def draw_documents(
    rng: np.random.Generator, every: list[Stretch], tokens: Array, many: int, each: int
) -> list[list[ScoredPart]]:
    """Documents drawn for about this many windows, and what is scored of each draw."""
    edges = np.concatenate([[0], np.cumsum(tokens + 1)])
    edges[0] = 1  # the first end-of-text token is given and not scored
    stops = np.array([w.stop for w in every])
    first, last = np.searchsorted(stops, [edges[:-1], edges[1:] - 1])
    chance = np.diff(edges) / (edges[-1] - 1)
    draws = int(many / (chance @ np.minimum(last - first + 1, each)))
    return [
        some_of(rng, every[first[i] : last[i] + 1], edges[i], edges[i + 1], each)
        for i in rng.choice(len(chance), draws, p=chance)
    ]


def some_of(
    rng: np.random.Generator, those: list[Stretch], begin: int, stop: int, each: int
) -> list[ScoredPart]:
    """All windows of a document, its tokens ``begin … stop − 1``; or ``each`` drawn."""
    inside = [
        slice(max(begin - w.first, 0), min(stop - 1, w.stop) - w.first + 1)
        for w in those
    ]
    if len(those) <= each:
        times = 1 / max(1, stop - begin)
        return [ScoredPart(w, s, times) for w, s in zip(those, inside, strict=True)]
    n = np.array([s.stop - s.start for s in inside])
    chosen = rng.choice(len(n), each, p=n / n.sum())
    return [ScoredPart(those[i], inside[i], 1 / (each * n[i])) for i in chosen]


def bits_of_parts(
    read: PlainNetwork, stream: Array, drawn: list[list[ScoredPart]]
) -> Array:
    """The bits of each draw, times its factors; each window is scored once."""
    some = sorted({part.window for parts in drawn for part in parts})
    found = dict(window_log_probs(read, stream, some))
    nats = [
        math.fsum(times * -found[w].x[tokens].sum() for w, tokens, times in parts)
        for parts in drawn
    ]
    return np.array(nats) / BITS


def student(values: Array, delta: float, of: float = math.inf) -> tuple[float, float]:
    """Student's interval for the mean of a population of ``of`` units."""
    n = len(values)
    left = 1 - (n - 1) / (of - 1) if of < math.inf else 1.0
    sd = float(np.std(values, ddof=1)) * math.sqrt(max(0.0, left) / n)
    half = float(stdtrit(n - 1, 1 - delta / 2)) * sd
    return float(np.mean(values)) - half, float(np.mean(values)) + half
