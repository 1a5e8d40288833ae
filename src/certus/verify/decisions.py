"""What a threshold costs on new rows, beside the one at one half.

A row is called positive if its probability reaches the threshold. Two ways to a
threshold, each with what then holds:

    costs    it was chosen on other rows, so it is fixed here. The cost of a row is
             c_fp·1[false alarm] + c_fn·1[miss]; both counts have Clopper–Pearson
             intervals. What it saves against one half: the rows between both
             thresholds change sides, and these counts have theirs.
    recall   it is the j-th smallest of n scores of positive rows. Any continuous or
             discrete distribution of scores leaves a share below it of at most 1 −
             recall, except with probability P(Bin(n, 1 − recall) < j). It does not
             depend on the negative rows, whose false alarms have a Clopper–Pearson
             interval.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify.deciding import measured, refused
from certus.verify.ranking import MetricEnds, recall_place, wide_enough
from certus.verify.statistical import ROWS, clopper_pearson, number, outwards
from certus.verify.together import DeltaShares

HALF = 0.5


class Costs(NamedTuple):
    """What a false alarm and a miss cost."""

    fp: float
    fn: float


def _pair(first: Array, second: Array, costs: Costs, delta: float) -> MetricEnds:
    """costs.fp·P(first) + costs.fn·P(second), both counts at once; costs may be < 0."""
    n = len(first)
    ends = np.zeros(2)
    for hits, cost in ((first, costs.fp), (second, costs.fn)):
        count = int(np.count_nonzero(hits))
        found = clopper_pearson(count, n, delta / 2, upper=False)
        ends += np.sort(cost * np.array(found))
    value = costs.fp * float(first.mean()) + costs.fn * float(second.mean())
    return MetricEnds(float(ends[0]), float(ends[1]), value, "joint Clopper–Pearson", n)


def cost_intervals(
    hit: Array, chance: Array, threshold: float, costs: Costs, delta: float = 0.05
) -> tuple[MetricEnds, MetricEnds, MetricEnds]:
    """Cost of a row at the threshold, at one half, and what is saved; all at once.

    Parameters
    ----------
    hit : ndarray of bool
        Which rows are positive.
    chance : ndarray
        Their probabilities.
    threshold : float
        Chosen without these rows.
    costs : Costs
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.verify.decisions import Costs, cost_intervals
    >>> hit = np.repeat([True, False], [20, 180])
    >>> chance = np.repeat([0.3, 0.9, 0.1, 0.3], [10, 10, 160, 20])
    >>> here, half, saved = cost_intervals(hit, chance, 0.2, Costs(1, 20))
    >>> here.value, half.value, saved.value
    (0.1, 1.0, 0.9)
    """
    part = delta / 3
    told, half = chance >= threshold, chance >= HALF
    here = _pair(told & ~hit, ~told & hit, costs, part)
    naive = _pair(half & ~hit, ~half & hit, costs, part)
    moved = told != half
    sign = 1.0 if threshold < HALF else -1.0
    both = Costs(-sign * costs.fp, sign * costs.fn)
    return here, naive, _pair(moved & ~hit, moved & hit, both, part)


def cost_claims(
    hit: Array,
    chance: Array,
    threshold: float,
    costs: Costs,
    *,
    shares: DeltaShares,
    independent: bool = True,
    rows: str = "held-out rows",
) -> tuple[Claim, ...]:
    """``decision_cost`` and ``cost_saved`` (STATISTICAL), beside one half.

    Parameters
    ----------
    hit, chance, threshold, costs
        As in :func:`cost_intervals`.
    shares : DeltaShares
        How the failure probability is divided; these claims were asked for.
    independent : bool, default=True
        Whether the rows are independent; if not, the costs are MEASURED.
    rows : str
        What the rows are called.
    """
    here, half, saved = cost_intervals(hit, chance, threshold, costs, shares.asked)
    seen = f"{len(hit):,} {rows}"
    about = f"{costs.fp:g} for a false alarm, {costs.fn:g} for a miss; {seen}"
    start = f"{number(here.value)} a row at threshold {number(threshold)}"
    naive = f"{number(half.value)} at 0.5"
    if not independent:
        words = f"{start} ({naive}); rows depend on one another, so no interval"
        return (measured("decision_cost", here.value, words, objective=about),)

    def between(ends: MetricEnds) -> str:
        low, high = (
            number(outwards(end, up=up, digits=3))
            for end, up in ((ends.low, False), (ends.high, True))
        )
        return f"between {low} and {high}"

    cost = _claim(
        "decision_cost",
        here.high,
        f"{start}, {between(here)} on new rows ({naive}, {between(half)})",
        about,
        shares,
    )
    if threshold == HALF:
        return (cost,)
    gain = f"{number(saved.value)} a row against 0.5, {between(saved)} on new rows"
    return cost, _claim("cost_saved", saved.low, gain, about, shares)


def _claim(
    name: str, value: float, detail: str, about: str, shares: DeltaShares
) -> Claim:
    return Claim(
        *(name, Strength.STATISTICAL, value),
        objective=about,
        theorem="joint Clopper–Pearson: false alarms and misses at both thresholds; "
        f"{shares.said}",
        assumptions=(*ROWS, "the threshold was chosen without these rows"),
        delta=shares.whole,
        detail=detail,
    )


class RecallThreshold(NamedTuple):
    """A threshold for a recall, and what holds at it; None where nothing does."""

    threshold: float | None
    recall: MetricEnds
    alarms: MetricEnds
    precision: MetricEnds


def recall_threshold(
    hit: Array, chance: Array, recall: float, delta: float = 0.05
) -> RecallThreshold:
    """The highest threshold that keeps a recall on new rows, from these rows alone.

    Parameters
    ----------
    hit : ndarray of bool
        Which rows are positive.
    chance : ndarray
        Their probabilities, by a model that has not seen them.
    recall : float
        The share of positive rows that is to be found.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. Half of it is
        spent on the recall, a quarter each on false alarms and the share of positives.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.verify.decisions import recall_threshold
    >>> chance = np.linspace(0, 1, 1001)
    >>> found = recall_threshold(chance > 0.5, chance, 0.9)
    >>> round(found.threshold, 3), found.alarms.value
    (0.537, 0.0)
    """
    own, other = np.sort(chance[hit]), chance[~hit]
    place = recall_place(len(own), recall, delta / 2)
    threshold = float(own[place]) if place >= 0 else None
    at = -np.inf if threshold is None else threshold
    found = float(np.mean(own >= at)) if len(own) else float("nan")
    low, high = 0.0, 1.0
    if len(other):
        count = int(np.count_nonzero(other >= at))
        low, high = clopper_pearson(count, len(other), delta / 4, upper=False)
    share = clopper_pearson(len(own), len(hit), delta / 4, upper=False)
    alarms = MetricEnds(
        *(low, high, float(np.mean(other >= at)) if len(other) else float("nan")),
        *("Clopper–Pearson", len(other)),
    )
    return RecallThreshold(
        threshold,
        MetricEnds(recall, 1.0, found, "order statistics", len(own)),
        alarms,
        _precision(share, (recall, 1.0), alarms, hit, chance >= at),
    )


def _precision(
    share: tuple[float, float],
    recall: tuple[float, float],
    alarms: MetricEnds,
    hit: Array,
    told: Array,
) -> MetricEnds:
    """From the share of positives, recall and false alarms, in which it is monotone."""

    def of(p: float, r: float, f: float) -> float:
        whole = p * r + (1 - p) * f
        return p * r / whole if whole > 0 else 1.0

    low = of(share[0], recall[0], alarms.high)
    high = of(share[1], recall[1], alarms.low)
    value = float(np.mean(hit[told])) if told.any() else float("nan")
    return MetricEnds(low, high, value, "joint Clopper–Pearson", len(hit))


def recall_claims(
    hit: Array,
    chance: Array,
    recall: float,
    *,
    shares: DeltaShares,
    rows: str = "held-out rows",
) -> tuple[float | None, tuple[Claim, ...]]:
    """The threshold, ``kept_recall``, ``false_alarms`` and their precision, or why not.

    Parameters
    ----------
    hit, chance, recall
        As in :func:`recall_threshold`.
    shares : DeltaShares
        How the failure probability is divided; these claims were asked for.
    rows : str
        What the rows are called.
    """
    delta = shares.asked
    found = recall_threshold(hit, chance, recall, delta)
    own = int(np.count_nonzero(hit))
    about = f"P(found | positive) at a threshold from {own:,} positive {rows}"
    if found.threshold is None:
        need = wide_enough(recall, delta / 2)
        said = f"a recall of {100 * recall:g} % cannot be promised: {own:,} positive "
        said += f"{rows} are too few, {need:,} are needed"
        more = "use more rows, or ask for a smaller recall"
        return None, (refused("kept_recall", said, more, objective=about),)
    half = chance >= HALF
    naive = number(100 * float(np.mean(half[hit])), 3)
    words = f"at least {100 * recall:g} % of new positive rows reach the threshold "
    words += f"{number(found.threshold)} (0.5 found {naive} % of {own:,})"
    kept = Claim(
        *("kept_recall", Strength.STATISTICAL, recall, recall, True, about),
        "order statistics: P(share below the j-th smallest of n scores > 1 − recall) "
        f"≤ P(Bin(n, 1 − recall) < j); {shares.said}",
        ROWS,
        shares.whole,
        0.0,
        words,
    )

    def ends(found: MetricEnds) -> str:
        low = number(outwards(100 * found.low, up=False, digits=3))
        return f"between {low} % and {number(outwards(100 * found.high, up=True))} %"

    alarms, precise = found.alarms, found.precision
    other = f"P(said positive | negative) at this threshold, {alarms.n:,} {rows}"
    told = f"{ends(alarms)} of new negative rows; {ends(precise)} of those found are "
    second = Claim(
        *("false_alarms", Strength.STATISTICAL, alarms.high),
        objective=other,
        theorem="Clopper–Pearson: the threshold does not depend on the negative rows; "
        f"{shares.said}",
        assumptions=(*ROWS,),
        delta=shares.whole,
        detail=f"{told}positive",
    )
    return found.threshold, (kept, second)
