"""Windows of a token stream: what training draws, and what scoring looks at.

A stream is the end-of-text token and the tokens x₀ … x_{n−1} of a text behind it. The
network sees ``context`` places of it at once. Scoring moves by h = context // 2 (at
least 1): window k holds the places from kh on, and a token is scored in the first
window that holds it, so that from the second window on it sees at least context − h
tokens before it. What a token sees depends on its place alone, never on what follows:
the probabilities of all texts of one length add up to one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from certus.typing import Array

#: One window of training in this many begins with the end-of-text token, as a text
#: does.
BEGINNINGS = 16


class ScoringWindow(NamedTuple):
    """Places of a stream that are read, and the first of them that is scored."""

    begin: int
    end: int
    scored: int  # place begin ≤ scored < end whose next token is the first new one


def stride(context: int) -> int:
    """By how many places scoring moves."""
    return max(1, context // 2)


def scoring_windows(n: int, context: int) -> Iterator[ScoringWindow]:
    """The windows that score n tokens, each of them once.

    Examples
    --------
    >>> from certus.language.windows import scoring_windows
    >>> [tuple(w) for w in scoring_windows(9, 4)]
    [(0, 4, 0), (2, 6, 4), (4, 8, 6), (6, 9, 8)]
    """
    begin = done = 0
    while done < n:
        end = min(begin + context, n)
        yield ScoringWindow(begin, end, done)
        begin, done = begin + stride(context), end


def begin_of(place: int, context: int) -> int:
    """Where the window begins in which the token behind a place is scored.

    Examples
    --------
    >>> from certus.language.windows import begin_of
    >>> [begin_of(t, 4) for t in range(9)]
    [0, 0, 0, 0, 2, 2, 4, 4, 6]
    """
    h = stride(context)
    return max(0, -(-(place + 1 - context) // h)) * h


def drawn_places(
    rng: np.random.Generator, n: int, context: int, steps: int, batch: int
) -> Array:
    """Beginnings of training windows, (steps, batch), spread over n tokens.

    One from each of steps × batch equal parts of the stream, in random order: a stretch
    of steps that is as long as the stream sees nearly all of it.
    """
    count, room = steps * batch, max(1, n - context + 1)
    at = (np.arange(count) + rng.random(count)) * (room / count)
    places = np.minimum(at.astype(np.int64), room - 1)
    return rng.permutation(places).reshape(steps, batch)
