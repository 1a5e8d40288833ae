"""The panel: every usual metric of one predictor, each with what can be said of it.

All intervals of a panel hold together with probability 1 − δ, and so do the statements
that are made beside it: ``together`` divides δ.

    error, recalls, precision     Clopper–Pearson, given the rows that they are about
    balanced error, F-beta        from the recalls, and from recall and precision
    log loss (p ≥ 0.001), Brier   empirical Bernstein (few rows: Hoeffding)
    AUC, average precision        see ``ranking``
    calibration                   Σ over bins |E (y − p)|, bins fixed before
    RMSE, MAE, R², deviances      measured, with a bootstrap interval; with bounds of
                                  the target, empirical Bernstein

Rows that depend on one another (groups) leave only means over groups; rows in order of
time leave numbers without an interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify.amounts import amount_claims, bounded_metrics
from certus.verify.deciding import measured, refused
from certus.verify.ranking import MetricEnds, auc_interval, average_precision_interval
from certus.verify.statistical import (
    GROUPS,
    ROWS,
    bernstein,
    clopper_pearson,
    group_means,
    hoeffding,
    number,
    outwards,
)
from certus.verify.together import DeltaShares, share_out

#: Smallest probability that the log loss sees, so that it is bounded by its logarithm.
CLIP = 1e-3
#: Bins of the calibration, where none are given.
_BINS = 5

#: For each metric: the name of its claim, the formula, whether it is a share, and
#: whether more is better.
_SHOWN: dict[str, tuple[str, str, bool, bool]] = {
    "log_loss": (
        *(
            "log_loss",
            f"−mean ln max(p(y | x), {CLIP:g}), at most {-math.log(CLIP):.3g}",
        ),
        *(False, False),
    ),
    "brier": ("brier", "mean ½·Σ(p_k − 1[y = k])², at most 1", False, False),
    "auc": ("auc", "P(score of a positive row > of a negative one)", False, True),
    "average_precision": (
        *("average_precision", "mean precision at the scores of positive rows"),
        *(False, True),
    ),
    "error": ("error_rate", "P(wrong label)", True, False),
    "balanced_error": (
        *("balanced_error", "mean over labels of P(wrong | label)", True, False),
    ),
    "recall": ("recall_rate", "P(found | positive)", True, True),
    "precision": ("precision", "P(positive | said to be positive)", True, True),
    "f_beta": ("f_beta", "(1 + β²)·P·R/(β²·P + R)", False, True),
    "calibration": (
        *("calibration", "Σ over bins |E (1[true] − p) in the bin|", True, False),
    ),
}


class Said(NamedTuple):
    """What a model said about rows that it had not seen, and what was true.

    ``shares`` are the probabilities of ``classes``; ``edges`` divide them into bins,
    and must not have been chosen on these rows.
    """

    truth: Array
    guess: Array
    shares: Array | None = None
    classes: Array | None = None
    positive: Any = None
    groups: Array | None = None
    edges: Array | None = None

    @property
    def two(self) -> bool:
        """Whether there are two labels."""
        return self.classes is not None and len(self.classes) == 2

    @property
    def probabilities(self) -> tuple[Array, Array]:
        """DeltaShares and classes, where the model gives them."""
        if self.shares is None or self.classes is None:
            raise ValueError("shares and classes are needed; the model has none.")
        return self.shares, self.classes

    @property
    def chance(self) -> Array:
        """Probability of the positive label; of more labels, of the most probable."""
        shares, classes = self.probabilities
        if not self.two:
            return np.asarray(shares.max(axis=1))
        return np.asarray(shares[:, classes == self.positive][:, 0])

    @property
    def came_true(self) -> Array:
        """Whether what ``chance`` is about came true."""
        shares, classes = self.probabilities
        if self.two:
            return np.asarray(self.truth == self.positive)
        return np.asarray(self.truth == classes[shares.argmax(axis=1)])


# -- means ----------------------------------------------------------------------------


def mean_interval(values: Array, low: float, high: float, delta: float) -> MetricEnds:
    """Of a mean with known bounds: Bernstein's, or Hoeffding's where n is too small."""
    n, reach = len(values), high - low
    mean = min(max(float(values.mean()), low), high)
    spread = float(np.var((values - low) / reach, ddof=1)) if n > 1 else 0.0
    half, method = bernstein(n, delta, spread), "empirical Bernstein"
    if bernstein(n, delta, 0.0) >= hoeffding(n, delta):
        half, method = hoeffding(n, delta), "Hoeffding"
    wide = reach * half + 8 * n * 2.0**-53 * max(abs(low), abs(high))
    return MetricEnds(max(low, mean - wide), min(high, mean + wide), mean, method, n)


def _mean(said: Said, values: Array, most: float, delta: float) -> MetricEnds:
    if said.groups is not None:
        values = np.minimum(group_means(values, said.groups), most)
    return mean_interval(values, 0.0, most, delta)


def _log_loss(said: Said, delta: float, at: float) -> MetricEnds:
    shares, classes = said.probabilities
    own = shares[np.arange(len(said.truth)), np.searchsorted(classes, said.truth)]
    losses = np.clip(-np.log(np.clip(own, CLIP, 1.0)), 0.0, -math.log(CLIP))
    return _mean(said, losses, -math.log(CLIP), delta)


def _brier(said: Said, delta: float, at: float) -> MetricEnds:
    shares, classes = said.probabilities
    hot = np.eye(len(classes))[np.searchsorted(classes, said.truth)]
    losses = np.clip(0.5 * np.square(shares - hot).sum(axis=1), 0.0, 1.0)
    return _mean(said, losses, 1.0, delta)


# -- counts ---------------------------------------------------------------------------


def _count(hits: Array, delta: float) -> MetricEnds:
    """The share of hits; of no rows at all, anything."""
    n, k = len(hits), int(np.count_nonzero(hits))
    if not n:
        return MetricEnds(0.0, 1.0, math.nan, "Clopper–Pearson", 0)
    low, high = clopper_pearson(k, n, delta, upper=False)
    return MetricEnds(low, high, k / n, "Clopper–Pearson", n)


def _error(said: Said, delta: float, at: float) -> MetricEnds:
    wrong = said.guess != said.truth
    if said.groups is not None:
        return _mean(said, wrong.astype(float), 1.0, delta)
    return _count(wrong, delta)


def _recall_of(said: Said, label: Any, delta: float) -> MetricEnds:
    mine = said.truth == label
    return _count(said.guess[mine] == label, delta)


def _recall(said: Said, delta: float, at: float) -> MetricEnds:
    return _recall_of(said, said.positive, delta)


def _precision(said: Said, delta: float, at: float) -> MetricEnds:
    told = said.guess == said.positive
    return _count(said.truth[told] == said.positive, delta)


def _balanced(said: Said, delta: float, at: float) -> MetricEnds:
    classes = [] if said.classes is None else list(said.classes)
    rates = [_recall_of(said, label, delta / len(classes)) for label in classes]
    value = 1 - float(np.mean([rate.value for rate in rates]))
    low = 1 - float(np.mean([rate.high for rate in rates]))
    high = 1 - float(np.mean([rate.low for rate in rates]))
    few = min(rate.n for rate in rates)
    return MetricEnds(max(0.0, low), high, value, "joint Clopper–Pearson", few)


def _f_beta(said: Said, delta: float, at: float) -> MetricEnds:
    """Both are monotone in precision and recall, which hold together."""
    recall, precision = _recall(said, delta / 2, at), _precision(said, delta / 2, at)
    b = at * at

    def score(p: float, r: float) -> float:
        return (1 + b) * p * r / (b * p + r) if p + r > 0 else 0.0

    value = math.nan if not recall.n else 0.0
    if recall.n and precision.n:
        value = score(precision.value, recall.value)
    ends = score(precision.low, recall.low), score(precision.high, recall.high)
    few = min(recall.n, precision.n)
    return MetricEnds(*ends, value, "joint Clopper–Pearson", few)


# -- scores ---------------------------------------------------------------------------


def _both(said: Said) -> tuple[Array, Array]:
    hit = said.truth == said.positive
    return said.chance[hit], said.chance[~hit]


def _auc(said: Said, delta: float, at: float) -> MetricEnds:
    positive, negative = _both(said)
    if not len(positive) or not len(negative):
        return MetricEnds(0.0, 1.0, math.nan, "", 0)
    return auc_interval(positive, negative, delta)


def _average_precision(said: Said, delta: float, at: float) -> MetricEnds:
    positive, negative = _both(said)
    if not len(positive) or not len(negative):
        return MetricEnds(0.0, 1.0, math.nan, "", 0)
    return average_precision_interval(positive, negative, delta)


def calibration_interval(said: Said, delta: float) -> MetricEnds:
    """How far probabilities are from frequencies, added up over fixed bins.

    Σ_b |E (1[true] − p)·1[bin b]| is the largest of 2^B means of values in [−1, 1], one
    for each choice of signs; bounds of all of them at once hold for it.

    Parameters
    ----------
    said : Said
        With probabilities, and with bins that were fixed before.
    delta : float
        Failure probability: the chance that the statement does not hold.
    """
    edges = said.edges
    if edges is None:
        edges = np.linspace(0.0, 1.0, _BINS + 1)[1:-1]
    away = said.came_true.astype(float) - said.chance
    place = np.searchsorted(np.asarray(edges), said.chance, side="right")
    n, bins = len(away), len(edges) + 1
    sums = np.bincount(place, away, minlength=bins) / n
    value = float(np.abs(sums).sum())
    # Each bound has two sides, so signs and their opposites count once; and the
    # variance of any choice of signs is at most the mean square.
    square = float(np.square(away).mean()) * n / max(1, n - 1)
    tail = delta / 2.0 ** (bins - 1)
    half, method = 2 * bernstein(n, tail, square / 4), "empirical Bernstein"
    if bernstein(n, tail, 0.0) >= hoeffding(n, tail):
        half, method = 2 * hoeffding(n, tail), "Hoeffding"
    return MetricEnds(max(0.0, value - half), min(1.0, value + half), value, method, n)


def _calibration(said: Said, delta: float, at: float) -> MetricEnds:
    return calibration_interval(said, delta)


# -- the panel ------------------------------------------------------------------------

_Interval = Callable[[Said, float, float], MetricEnds]
#: Metrics in the order of the panel; whether each needs probabilities, two labels.
_PANEL: dict[str, tuple[_Interval, bool, bool]] = {
    "log_loss": (_log_loss, True, False),
    "brier": (_brier, True, False),
    "auc": (_auc, True, True),
    "average_precision": (_average_precision, True, True),
    "error": (_error, False, False),
    "balanced_error": (_balanced, False, False),
    "recall": (_recall, False, True),
    "precision": (_precision, False, True),
    "f_beta": (_f_beta, False, True),
    "calibration": (_calibration, True, False),
}
#: Metrics whose interval holds for means over groups.
_GROUPED = ("log_loss", "brier", "error")


def _names(said: Said) -> list[str]:
    """The metrics that this model and these labels have."""
    return [
        name
        for name, (_, shares, two) in _PANEL.items()
        if (said.shares is not None or not shares) and (said.two or not two)
    ]


def panel_shares(
    said: Said,
    metric: str,
    *,
    delta: float = 0.05,
    ordered: bool = False,
    bounds: tuple[float, float] | None = None,
    asked: int = 0,
    others: int = 0,
) -> DeltaShares:
    """How delta is divided among the intervals of the panel and statements beside it.

    Parameters
    ----------
    said, metric, delta, ordered, bounds
        As in :func:`panel_claims`.
    asked, others : int
        Statements that are made beside the panel: asked for, and others.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.verify.panel import Said, panel_shares
    >>> said = Said(np.array([0, 1]), np.array([0, 1]), None, np.array([0, 1]), 1)
    >>> panel_shares(said, "error", others=1).number
    6
    """
    if said.classes is None:
        names = bounded_metrics(metric, bounds) if bounds is not None else []
        names = [] if _why_not(said, ordered) else names
    else:
        grouped = said.groups is not None
        names = [n for n in _names(said) if not grouped or n in _GROUPED]
        names = [] if ordered else names
    own = int(metric in names)
    return share_out(delta, asked + own, others + len(names) - own)


def panel_intervals(
    said: Said,
    metric: str,
    *,
    delta: float = 0.05,
    at: float = 1.0,
    shares: DeltaShares | None = None,
) -> dict[str, MetricEnds]:
    """All intervals of a classifier; they hold together, except with chance delta.

    Parameters
    ----------
    said : Said
        What the model said about rows it had not seen.
    metric : str
        The one that was asked for.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    at : float, default=1.0
        β of F-beta.
    shares : DeltaShares, optional
        How delta is divided, where more is stated than this panel.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.verify.panel import Said, panel_intervals
    >>> truth = np.repeat([0, 1], 200)
    >>> p = np.clip(truth + np.tile([0.1, -0.1, 0.6, -0.6], 100), 0.1, 0.9)
    >>> shares, labels = np.column_stack([1 - p, p]), np.array([0, 1])
    >>> said = Said(truth, (p > 0.5).astype(int), shares, labels, 1)
    >>> found = panel_intervals(said, "log_loss")
    >>> [name for name, ends in found.items() if ends.low <= ends.value <= ends.high]
    ['log_loss', 'brier', 'auc', 'average_precision', 'error', 'balanced_error', \
'recall', 'precision', 'f_beta', 'calibration']
    """
    shares = shares or panel_shares(said, metric, delta=delta)
    return {
        name: _PANEL[name][0](
            said, shares.asked if name == metric else shares.other, at
        )
        for name in _names(said)
    }


def panel_claims(
    said: Said,
    metric: str,
    *,
    delta: float = 0.05,
    at: float = 1.0,
    ordered: bool = False,
    bounds: tuple[float, float] | None = None,
    shares: DeltaShares | None = None,
    rows: str = "held-out rows",
) -> tuple[Claim, ...]:
    """State every usual metric of one predictor on new rows, the one asked for first.

    Parameters
    ----------
    said : Said
        What the model said about rows it had not seen; ``classes=None`` for amounts.
    metric : str
        The metric that was asked for.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. The intervals
        of the panel hold together.
    at : float, default=1.0
        The parameter of the metric: β, or the level of the quantile.
    ordered : bool, default=False
        Whether the rows come later in time than those of the fit.
    bounds : (low, high), optional
        Bounds of an amount, known before the data; predictions are cut to them.
    shares : DeltaShares, optional
        How delta is divided, where more is stated than this panel.
    rows : str
        What the rows are called in the sentences.

    Returns
    -------
    tuple of Claim
    """
    if shares is None:
        shares = panel_shares(said, metric, delta=delta, ordered=ordered, bounds=bounds)
    if said.classes is None:
        return amount_claims(
            said.truth,
            said.guess,
            metric,
            shares=shares,
            at=at,
            why=_why_not(said, ordered),
            bounds=bounds,
            rows=rows,
        )
    beta = at if metric == "f_beta" else 1.0
    found = panel_intervals(said, metric, at=beta, shares=shares)
    order = sorted(found, key=lambda name: name != metric)
    return tuple(
        _claim(name, found[name], said, shares, ordered, rows, beta) for name in order
    )


def _why_not(said: Said, ordered: bool) -> str:
    """Why rows that depend on one another leave a number without an interval."""
    if ordered:
        return "which are later in time; there is no valid interval"
    if said.groups is not None:
        return "whose groups are not independent rows; there is no valid interval"
    return ""


def _claim(
    name: str,
    ends: MetricEnds,
    said: Said,
    shares: DeltaShares,
    ordered: bool,
    rows: str,
    beta: float,
) -> Claim:
    title, formula, share, more = _SHOWN[name]
    seen = f"{len(said.truth):,} {rows}"
    if name in ("recall", "precision", "f_beta", "auc", "average_precision"):
        formula += f"; positive label: {_written(said.positive)}"
    if name == "f_beta":
        formula = f"β = {beta:g}: {formula}"
    if math.isnan(ends.value):
        lacking = "row was said to be positive" if name == "precision" else "such row"
        word = "AUC" if name == "auc" else name.replace("_", " ")
        why = f"nothing can be said of the {word}: no {lacking} among the {seen}"
        return refused(title, why, "use more held-out rows", objective=formula)
    show = _percent if share else _plain
    value = show(ends.value, None)
    why = _why_not(said, ordered)
    if why and (ordered or name not in _GROUPED):
        words = f"{value} on {seen}, {why}"
        return measured(title, ends.value, words, objective=formula)
    low, high = show(ends.low, False), show(ends.high, True)
    top = -math.log(CLIP) if name == "log_loss" else 1.0
    empty = ends.low <= 0 and ends.high >= top
    fix = "use more held-out rows, which makes the interval narrower"
    return Claim(
        *(title, Strength.STATISTICAL, ends.low if more else ends.high),
        objective=f"{formula}; {ends.method}, {ends.n:,} of {seen}",
        theorem=f"{ends.method}; {shares.said}",
        assumptions=ROWS if said.groups is None else GROUPS,
        delta=shares.whole,
        detail=_sentence(name, value, low, high, empty),
        fix=fix if empty else "",
    )


def _written(label: Any) -> str:
    """A label as text, without characters that control a terminal."""
    text = str(label)
    return text if text.isprintable() else ascii(text)[1:-1]


def _sentence(name: str, value: str, low: str, high: str, empty: bool) -> str:
    if empty:
        return f"{value} on these rows, too few to say anything about new ones"
    if name == "calibration":
        return f"probabilities are off by {value}, and by {low} to {high} on new rows"
    return f"{value}, and between {low} and {high} on new rows like these"


def _plain(value: float, up: bool | None) -> str:
    return number(value if up is None else outwards(value, up=up, digits=3))


def _percent(value: float, up: bool | None) -> str:
    text = 100 * value
    return f"{number(text if up is None else outwards(text, up=up, digits=3), 3)} %"
