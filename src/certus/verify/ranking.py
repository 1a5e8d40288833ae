"""Finite-sample intervals of AUC and average precision, from scores of two samples.

Given the labels, the scores of n positive and m negative rows are two independent
samples. With r = min(n, m) and L = ln(3/δ),

    AUC   U = mean over pairs of 1[s⁺ > s⁻] + ½·1[s⁺ = s⁻] is an average of means of r
          independent terms, so the bounds of such means hold for it (Hoeffding, 1963):
          |U − AUC| ≤ √(ln(2/δ)/2r),  and  ≤ √(2V·L/r) + 7L/3(r − 1),
          V the sample variance of the terms of one of these means: each row of the
          smaller sample with a block of the larger one that no other row meets.
    AP    = E[precision at the score of a positive row]. Both distributions of scores
          stay within ε = √(ln(2/δ')/2n) of the samples' everywhere (Dvoretzky, Kiefer,
          Wolfowitz; Massart), ties included; the share of positives has a
          Clopper–Pearson interval. Over all thresholds that these bands allow for the
          r-th part of the positives, precision is bounded from both sides.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from certus.typing import Array
from certus.verify.statistical import SURE, bernstein, clopper_pearson, hoeffding

#: Cells into which the recall is divided; more would narrow the interval a little.
_CELLS = 1000
#: A variance of the terms that is common; it decides from how many rows on Bernstein's
#: bound is stated, and nothing else.
_USUAL = 0.04


class MetricEnds(NamedTuple):
    """An interval, the number in its middle, and where it comes from."""

    low: float
    high: float
    value: float
    method: str
    n: int


def auc_interval(positive: Array, negative: Array, delta: float) -> MetricEnds:
    """AUC, and the interval that the smaller sample allows.

    Parameters
    ----------
    positive, negative : ndarray
        Scores of both kinds of rows, at least one of each.
    delta : float
        Failure probability: the chance that the statement does not hold.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.verify.ranking import auc_interval
    >>> found = auc_interval(np.arange(3.0, 103.0), np.arange(100.0), 0.05)
    >>> round(found.value, 3), round(found.high - found.value, 3), found.method
    (0.53, 0.136, 'Hoeffding for U-statistics')
    """
    value = _auc(positive, negative)
    small, large = positive, negative
    if len(small) > len(large):
        small, large = large, small
    r = len(small)
    # The number of rows alone decides which bound is stated.
    if bernstein(r, delta, _USUAL) >= hoeffding(r, delta):
        half, method = hoeffding(r, delta), "Hoeffding for U-statistics"
    else:
        block = len(large) // r
        # A table may be sorted; in a random order, pairs do not depend on that.
        rng = np.random.default_rng(0)
        small, large = rng.permutation(small), rng.permutation(large)
        others = np.sort(large[: block * r].reshape(r, block), axis=1)
        below = (others < small[:, None]).mean(axis=1)
        equal = (others == small[:, None]).mean(axis=1)
        spread = float(np.var(below + 0.5 * equal, ddof=1)) * (1 + SURE)
        half, method = bernstein(r, delta, spread), "Bernstein for U-statistics"
    return MetricEnds(max(0.0, value - half), min(1.0, value + half), value, method, r)


def _auc(positive: Array, negative: Array) -> float:
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, side="left")
    upto = np.searchsorted(ordered, positive, side="right")
    return float((below + upto).sum() / (2.0 * len(positive) * len(negative)))


class _Curve(NamedTuple):
    """Shares of positive and negative rows at or above each threshold, descending.

    ``strict`` are the shares of positive rows above it.
    """

    recall: Array
    strict: Array
    alarms: Array


def _curve(positive: Array, negative: Array) -> _Curve:
    """At each score met, from the highest down; above all of them, and below."""
    levels = np.unique(np.concatenate([positive, negative]))[::-1]

    def above(scores: Array, side: str) -> Array:
        ordered = np.sort(scores)
        place = np.searchsorted(ordered, levels, side=side)  # type: ignore[call-overload]
        return np.asarray((len(scores) - place) / len(scores))

    recall = np.concatenate([[0.0], above(positive, "left"), [1.0]])
    strict = np.concatenate([[0.0], above(positive, "right"), [1.0]])
    alarms = np.concatenate([[0.0], above(negative, "left"), [1.0]])
    return _Curve(recall, strict, alarms)


def average_precision_interval(
    positive: Array, negative: Array, delta: float
) -> MetricEnds:
    """Average precision, between what the bands of the ROC curve allow.

    Parameters
    ----------
    positive, negative : ndarray
        Scores of both kinds of rows, at least one of each.
    delta : float
        Failure probability: the chance that the statement does not hold. A third each
        is spent on both bands and on the share of positive rows.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.verify.ranking import average_precision_interval
    >>> rng = np.random.default_rng(0)
    >>> found = average_precision_interval(
    ...     rng.normal(2.0, 1.0, 500), rng.normal(size=500), 0.05
    ... )
    >>> found.low < found.value < found.high
    True
    """
    n, m = len(positive), len(negative)
    curve = _curve(positive, negative)
    share = n / (n + m)
    points = share * curve.recall + (1 - share) * curve.alarms
    precision = share * curve.recall[1:-1] / points[1:-1]
    jumps = curve.recall[1:-1] - curve.strict[1:-1]
    value = float(jumps @ precision)
    up, down = hoeffding(n, delta / 3), hoeffding(m, delta / 3)
    least, most = clopper_pearson(n, n + m, delta / 3, upper=False)
    # The most and the least precision of each threshold, given the bands.
    top = most * np.minimum(1.0, curve.recall + up)
    wrong = (1 - most) * np.maximum(0.0, curve.alarms - down)
    high = np.divide(top, top + wrong, out=np.ones_like(top), where=top + wrong > 0)
    alarms = (1 - least) * np.minimum(1.0, curve.alarms + down)
    ends = np.zeros(2)
    for cell in range(_CELLS):
        start, stop = cell / _CELLS, (cell + 1) / _CELLS
        # recall falls below, and strict rises above, along the thresholds.
        first = int(np.searchsorted(curve.recall, start - up))
        last = int(np.searchsorted(curve.strict, stop + up, side="right"))
        seen = slice(first, max(last, first + 1))
        ends[1] += high[seen].max()
        found = least * np.maximum(start, curve.recall[seen] - up)
        whole = found + alarms[seen]
        sound = np.divide(found, whole, out=np.zeros_like(found), where=whole > 0)
        ends[0] += sound.min()
    low = float(ends[0]) / _CELLS * (1 - SURE)
    top_end = min(1.0, float(ends[1]) / _CELLS * (1 + SURE))
    method = "bands of the ROC curve"
    return MetricEnds(min(low, value), max(top_end, value), value, method, min(n, m))


def recall_place(n: int, recall: float, delta: float) -> int:
    """How many of n positive scores may stand below the threshold; −1 for none.

    The j-th smallest score, j one more, leaves at least ``recall`` of all positive rows
    at or above it, except with probability P(Bin(n, 1 − recall) < j) ≤ delta.

    Examples
    --------
    >>> from certus.verify.ranking import recall_place
    >>> recall_place(28, 0.9, 0.05), recall_place(29, 0.9, 0.05)
    (-1, 0)
    """
    from scipy.special import bdtr

    missed = 1.0 - recall
    places = np.arange(n)
    allowed = np.flatnonzero(bdtr(places, n, missed) <= delta * (1 - SURE))
    return int(allowed[-1]) if len(allowed) else -1


def wide_enough(recall: float, delta: float) -> int:
    """Fewest positive rows with which a recall can be promised at all."""
    return math.ceil(math.log(delta * (1 - SURE)) / math.log(recall))
