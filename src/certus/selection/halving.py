"""Successive halving: many are tried on little, the better half on more.

Settings of one candidate are halved from inner fold to inner fold, or from a third of
the rows to all of them; candidates from a sample of the first fold to the whole plan.
What was tried, and why it went no further, is kept as a plan. Nothing here looks at a
clock, so that a seed decides everything; a time limit is the race's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["PlanStep", "better_half", "halve"]

#: Share of the rows of a single inner fold on which all settings are tried.
THIRD = 3
#: Rows of an inner fold below which it is not divided: too few would say too little.
FEWEST = 600


class PlanStep(NamedTuple):
    """One trial of a candidate on a part of the table.

    Attributes
    ----------
    name : str
        The candidate.
    part : str
        What it was tried on, in words.
    rows : int
        Rows that it learnt from.
    error : float
        The metric on the rows of the fold; NaN where there is none.
    seconds : float
    outcome : str
        What came of it: that it went on, or why it did not.
    """

    name: str
    part: str
    rows: int
    error: float
    seconds: float
    outcome: str

    def to_dict(self) -> dict[str, Any]:
        """The step as JSON-ready data."""
        error = None if math.isnan(self.error) else self.error
        return {**self._asdict(), "error": error}


def better_half(losses: Sequence[float], fewest: int = 1) -> list[int]:
    """Positions of the better half, rounded up, the best first; ties by position.

    Parameters
    ----------
    losses : sequence of float
        Less is better; NaN and infinity are never among them.
    fewest : int, default=1
        So many are kept where there are as many.

    Examples
    --------
    >>> from certus.selection.halving import better_half
    >>> better_half([0.3, 0.1, float("nan"), 0.2, 0.1])
    [1, 4, 3]
    """
    able = [at for at, loss in enumerate(losses) if math.isfinite(loss)]
    keep = max(fewest, (len(losses) + 1) // 2)
    return sorted(able, key=lambda at: (losses[at], at))[:keep]


def halve(
    number: int,
    inner: Sequence[tuple[np.ndarray, np.ndarray]],
    trial: Callable[[Sequence[int], np.ndarray, np.ndarray], Sequence[float]],
) -> list[float]:
    """The mean loss of each of a number of settings, over the folds that it reached.

    Parameters
    ----------
    number : int
    inner : sequence of (ndarray, ndarray)
        Rows to learn from and to judge on. Each fold is a round; a single one of many
        rows has a round before it, on a third of them.
    trial : callable
        ``trial(settings, train, test)`` gives the losses of some settings.

    Returns
    -------
    list of float
        Infinite for settings that did not reach the last round.
    """
    rounds = list(inner)
    first = None
    if len(rounds) == 1 and len(rounds[0][0]) >= FEWEST and number > 2:
        train, test = rounds[0]
        # Every third row: folds list their rows in the order of the table.
        first = trial(range(number), train[::THIRD], test)
    alive = list(range(number)) if first is None else sorted(better_half(first))
    totals = np.zeros(number)
    for at, (train, test) in enumerate(rounds):
        totals[alive] += np.asarray(trial(alive, train, test), dtype=float)
        if at < len(rounds) - 1:
            alive = sorted(alive[i] for i in better_half(totals[alive].tolist(), 2))
        if not alive:
            break
    means = np.full(number, np.inf)
    means[alive] = totals[alive] / len(rounds)
    return [float(mean) for mean in np.where(np.isnan(means), np.inf, means)]
