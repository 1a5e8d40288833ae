"""What held-out rows say about a predictor: one interval, chosen before looking.

The risk is E ℓ(y, f(x)) for a fixed f on new rows drawn as the held-out ones were. The
smallest of several intervals would hold less often than it says, so the kind of the
question alone decides which one is stated:

    right or wrong (classification)     Clopper–Pearson
    a loss with known bounds            empirical Bernstein (few rows: Hoeffding)
    a loss without bounds (regression)  nothing for the mean, which one row in a million
                                        may govern; Clopper–Pearson for P(loss > q)
    groups of rows                      groups are the independent units, not rows
    rows in order of time               a measured number, no interval

A claim is met or missed only where a target was given. The formulas are the verifier's
own; failure probabilities are taken smaller by more than rounding.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betainccinv, betaincinv

from certus.certificate import Claim, Strength
from certus.typing import Array, ArrayLike, Column
from certus.verify.attributes import codes_of
from certus.verify.deciding import measured, refused

TASKS = ("classification", "binary", "multiclass", "regression")
ROWS = ("all rows, old and new, are drawn independently from one distribution",)
GROUPS = ("all groups, old and new, are drawn independently from one distribution",)
#: Share by which failure probabilities shrink and widths grow: more than rounding.
SURE = 1e-9


class RiskInterval(NamedTuple):
    """The risk lies between ``low`` and ``high``, except with probability ``delta``."""

    low: float
    high: float
    value: float
    delta: float
    method: str
    n: int
    assumptions: tuple[str, ...] = ROWS


class _Question(NamedTuple):
    """The question, which depends on the arguments and never on the losses.

    ``name`` is that of the claim, ``values`` has one entry per independent unit.
    """

    name: str
    losses: Array
    values: Array
    low: float
    high: float
    threshold: float | None
    grouped: bool
    delta: float
    models: int

    @property
    def counted(self) -> bool:
        """Whether the question is about a count."""
        return self.name != "mean_loss" and not self.grouped

    @property
    def open(self) -> bool:
        """Whether the loss has no known bounds."""
        return self.name == "large_error" and self.threshold is None


# -- formulas -------------------------------------------------------------------------


def clopper_pearson(count: int, n: int, tail: float, upper: bool) -> tuple[Any, Any]:
    """The p that do not put ``count`` of n in a tail: δ/2 on both sides, or δ above."""
    tail = (tail if upper else tail / 2) * (1 - SURE)
    low = 0.0 if upper or not count else float(betaincinv(count, n - count + 1, tail))
    high = float(betainccinv(count + 1, n - count, tail)) if count < n else 1.0
    return low, high


def hoeffding(n: int, tail: float) -> float:
    """√(ln(2/δ) / 2n), as a share of the range of the loss."""
    return math.sqrt((math.log(2.0) - math.log(tail)) / (2 * n)) * (1 + SURE)


def bernstein(n: int, tail: float, variance: float) -> float:
    """√(2V·ln(3/δ)/n) + 7·ln(3/δ)/3(n − 1): too high, too low, and V too small."""
    if n < 2:
        return math.inf
    log = math.log(3.0) - math.log(tail)
    return (math.sqrt(2 * variance * log / n) + 7 * log / (3 * (n - 1))) * (1 + SURE)


def _intervals(question: _Question) -> list[RiskInterval]:
    """The interval that is stated, and others for comparison.

    Of the mean at δ/K, cut to the range of the loss: the empirical Bernstein one, then
    Hoeffding's; the other way round where n alone keeps the first from ever being
    narrower. Of a count, before both, that of Clopper and Pearson.
    """
    values, low, high, delta = question.values, *question[3:5], question.delta
    n, reach, tail = len(values), high - low, delta / question.models
    mean = min(max(float(values.mean()), low), high)
    variance = float(np.var((values - low) / reach, ddof=1)) if n > 1 else 0.0
    slack = 8 * n * 2.0**-53 * max(abs(low), abs(high))
    said = GROUPS if question.grouped else ROWS

    def around(half: float, method: str) -> RiskInterval:
        wide = reach * half + slack
        ends = max(low, mean - wide), min(high, mean + wide)
        return RiskInterval(*ends, mean, delta, method, n, said)

    by_range = around(hoeffding(n, tail), "Hoeffding")
    by_variance = around(bernstein(n, tail, variance), "empirical Bernstein")
    if question.counted:
        count, upper = int(values.sum()), question.name == "large_error"
        ends = clopper_pearson(count, n, tail, upper)
        exact = RiskInterval(*ends, count / n, delta, "Clopper–Pearson", n)
        return [exact, by_range, by_variance]
    hopeless = bernstein(n, tail, 0.0) >= hoeffding(n, tail)
    return [by_range, by_variance] if hopeless else [by_variance, by_range]


# -- claims ---------------------------------------------------------------------------


def risk_claims(
    losses: ArrayLike,
    task: str,
    *,
    delta: float = 0.05,
    bounds: tuple[float, float] | None = None,
    threshold: float | None = None,
    groups: Column = None,
    ordered: bool = False,
    models: int = 1,
    target: float | None = None,
    rows: str = "held-out rows",
) -> tuple[Claim, ...]:
    """State the risk of one predictor on new rows, with one interval.

    Parameters
    ----------
    losses : array-like of shape (n_samples,)
        One number per held-out row. Classification: whether the label is wrong (0 or 1,
        or booleans). Regression: the absolute error of each row. With bounds: any loss.
    task : {"classification", "binary", "multiclass", "regression"}
        What the model predicts; the first three mean the same here.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    bounds : (low, high), optional
        Bounds of the loss known before the data, for example (0, 1) for a Brier score.
        With them the mean loss is stated, whatever the task.
    threshold : float, optional
        q of P(loss > q), for a loss without bounds. It must have been fixed without the
        held-out rows, for example as the 0.9 quantile of cross-validated errors on the
        training rows.
    groups : array-like of shape (n_samples,), optional
        Group of each row. Rows of a group may depend on one another; each group counts
        once, by its mean.
    ordered : bool, default=False
        Whether the held-out rows come later in time than the training rows.
    models : int, default=1
        How many models are judged on the same rows (union bound).
    target : float, optional
        Largest risk asked for; the claim is met if the upper end is below. Without it
        the claim informs, and is neither met nor missed.
    rows : str
        What the rows are called in the sentences, for example ``"sealed rows"``.

    Returns
    -------
    tuple of Claim
        ``error_rate`` (classification), ``mean_loss`` (bounds), or ``mean_loss``
        REFUSED followed by ``large_error`` if there is a threshold. ``value`` is the
        upper end of the interval; for MEASURED and REFUSED claims, the mean observed.
        The ends as numbers: :func:`risk_interval` with the same arguments.

    Examples
    --------
    >>> from certus.verify.statistical import risk_claims
    >>> wrong = [1] * 4 + [0] * 82
    >>> (claim,) = risk_claims(wrong, "binary", rows="sealed rows")
    >>> claim.detail.split(" (")[0], claim.basis
    ('between 1.2 % and 12 % on new rows like these', '95 % sure')
    >>> [c.strength.value for c in risk_claims([3.1, 0.2], "regression", threshold=5.0)]
    ['refused', 'statistical']
    """
    question = _asked(losses, task, delta, models, bounds, threshold, groups)
    mean, seen = float(question.losses.mean()), f"{len(question.losses):,} {rows}"
    if ordered:
        return (_measured(question.name == "error_rate", mean, seen),)
    claims = [_refused(mean, seen)] if question.name == "large_error" else []
    if question.open:
        return tuple(claims)
    intervals = _intervals(question)
    claim = interval_claim(
        intervals[0],
        question.name,
        detail=_sentence(question, intervals),
        objective=_basis(question, intervals[0], seen),
        target=target,
        within=(question.low, question.high),
    )
    return (*claims, claim)


def risk_interval(losses: ArrayLike, task: str, **asked: Any) -> RiskInterval | None:
    """The interval of :func:`risk_claims` as numbers; None if there is no interval.

    Parameters
    ----------
    losses, task, **asked
        As in :func:`risk_claims`: delta, models, bounds, threshold, groups, ordered.

    Examples
    --------
    >>> from certus.verify.statistical import risk_interval
    >>> found = risk_interval([1] * 4 + [0] * 82, "binary")
    >>> round(found.low, 4), round(found.high, 4), found.method
    (0.0128, 0.1148, 'Clopper–Pearson')
    """
    ordered = asked.pop("ordered", False)
    question = _asked(losses, task, **asked)
    return None if ordered or question.open else _intervals(question)[0]


def interval_claim(
    interval: RiskInterval,
    name: str,
    *,
    detail: str,
    objective: str = "",
    target: float | None = None,
    within: tuple[float, float] = (0.0, 1.0),
) -> Claim:
    """An interval as a STATISTICAL claim; its value is the upper end.

    Parameters
    ----------
    interval : RiskInterval
        From here or from ``certus.bounds``.
    name : str
        Name of the claim.
    detail : str
        The claim as a sentence.
    objective : str
        What the number speaks about.
    target : float, optional
        Largest upper end asked for.
    within : (float, float), default=(0, 1)
        The whole range: an interval that fills it says nothing.

    Examples
    --------
    >>> from certus.bounds import clopper_pearson
    >>> from certus.verify.statistical import interval_claim
    >>> claim = interval_claim(
    ...     clopper_pearson(4, 86), "error_rate", detail="few errors", target=0.1
    ... )
    >>> claim.met, claim.fix
    (False, 'use more held-out rows, which makes the interval narrower')
    """
    empty = interval.low <= within[0] and interval.high >= within[1]
    met = None if target is None else bool(interval.high <= target)
    met = None if empty and met else met
    near = empty or (target is not None and interval.value <= target)
    more = "use more held-out rows, which makes the interval narrower"
    fix = more if near else "try another model: the observed mean is above the target"
    return Claim(
        *(name, Strength.STATISTICAL, interval.high, target, met, objective),
        f"{interval.method}: the interval contains the risk with probability at least "
        f"{1 - interval.delta:.6g} over the draw of the {interval.n:,} units",
        *(interval.assumptions, interval.delta, 0.0, detail),
        fix if met is False or empty else "",
    )


def _asked(
    losses: ArrayLike,
    task: str,
    delta: float = 0.05,
    models: int = 1,
    bounds: tuple[float, float] | None = None,
    threshold: float | None = None,
    groups: Column = None,
) -> _Question:
    """The question that the arguments ask; the losses must fit it."""
    values = np.asarray(losses, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(
            f"losses has shape {values.shape}; pass one number per row, at least one."
        )
    low, high = (float(end) for end in bounds or (0.0, 1.0))
    name = "error_rate" if task != "regression" else "large_error"
    name = "mean_loss" if bounds is not None else name
    least, most = float(values.min()), float(values.max())
    wrong = {
        f"task must be one of {', '.join(TASKS)}, got {task!r}.": task not in TASKS,
        "losses holds NaN or infinity. Drop or correct these rows first.": not (
            math.isfinite(least) and math.isfinite(most)
        ),
        f"bounds ({low!r}, {high!r}) are not valid.": not 0 < high - low < math.inf,
        f"losses lie outside [{low:.6g}, {high:.6g}]; pass the true bounds of the "
        "loss.": name == "mean_loss" and not low <= least <= most <= high,
        "losses of a regression are absolute errors and cannot be negative; for "
        "another loss pass its bounds.": name == "large_error" and least < 0,
        "losses of a classifier must be 0 (right) or 1 (wrong); for another loss pass "
        "its bounds.": name == "error_rate" and not np.isin(values, (0.0, 1.0)).all(),
        f"threshold must be a finite number, got {threshold!r}.": not math.isfinite(
            threshold or 0.0
        ),
        f"delta must be between 0 and 1, got {delta!r}.": not 0 < delta < 1,
        f"models must be at least 1, got {models!r}.": models < 1,
    }
    for message, holds in wrong.items():
        if holds:
            raise ValueError(message)
    units = values
    if threshold is not None and name == "large_error":
        units = (values > threshold).astype(np.float64)
    grouped = groups is not None
    units = group_means(units, groups) if grouped else units
    asked = low, high, threshold, grouped, delta, models
    return _Question(name, values, units, *asked)


def group_means(values: Array, groups: Column) -> Array:
    """The mean of each group, within the range of the values."""
    labels = np.asarray(groups)
    if labels.shape != values.shape:
        raise ValueError(
            f"groups has shape {labels.shape} for {len(values)} losses; pass one group "
            "per row."
        )
    seen, codes = codes_of(labels.astype(object)[:, None])
    if (None,) in seen:
        row = int(np.argmax(codes == seen.index((None,))))
        raise ValueError(
            f"groups has no value in row {row}; give the row a group or drop it."
        )
    means = np.bincount(codes, values) / np.bincount(codes)
    return np.clip(means, values.min(), values.max())  # rounding may leave the range


# -- sentences ------------------------------------------------------------------------


def _sentence(question: _Question, intervals: list[RiskInterval]) -> str:
    if question.threshold is not None and question.name == "large_error":
        share = _percent(1.0 - intervals[0].high, up=False)
        near = number(outwards(question.threshold, up=True, digits=4), 4)
        over = ", on average over groups" if question.grouped else ""
        return (
            f"at least {share} % of new rows like these are within ±{near} of the "
            f"prediction{over}"
        )

    def ends(found: RiskInterval, between: str) -> str:
        low, high = (
            f"{_percent(end, up=up)} %"
            if question.name == "error_rate"
            else number(outwards(end, up=up), 2)
            for end, up in ((found.low, False), (found.high, True))
        )
        return f"{low} {between} {high}"

    where = "new groups like these" if question.grouped else "new rows like these"
    others = "; ".join(f"{found.method} {ends(found, 'to')}" for found in intervals[1:])
    first = ends(intervals[0], "and")
    return f"between {first} on {where} (for comparison, {others})"


def _basis(question: _Question, interval: RiskInterval, rows: str) -> str:
    """The formula, the observation and the method, in one line."""
    formula = {
        "error_rate": "P(wrong label)",
        "mean_loss": f"mean loss, in [{number(question.low)}, {number(question.high)}]",
        "large_error": f"P(|error| > {question.threshold or 0.0:.6g})",
    }[question.name]
    seen = f"{number(interval.value)} on {rows}"
    if question.counted:
        seen = f"{int(question.values.sum()):,} of {rows}"
    elif question.grouped:
        seen = f"{number(interval.value)} over {interval.n:,} groups ({rows})"
    K = question.models
    both = f" at delta/{K}, because {K} models were compared" if K > 1 else ""
    return f"{formula}: {seen} ({interval.method}{both})"


def _measured(wrong: bool, mean: float, rows: str) -> Claim:
    seen = f"{_percent(mean)} % wrong" if wrong else f"{number(mean)} on average"
    said = f"{seen} on {rows}, which are later in time; there is no valid interval"
    words: Any = {
        "objective": "P(wrong label)" if wrong else "mean loss",
        "assumptions": ("rows in order of time are not independent",),
    }
    return measured("error_rate" if wrong else "mean_loss", mean, said, **words)


def _refused(mean: float, rows: str) -> Claim:
    said = "the mean loss on new rows cannot be bounded: a few very large losses may "
    said += f"dominate it. On {rows} it is {number(mean)}"
    fix = "ask how often the loss exceeds a threshold, or pass the bounds of the loss"
    about = "mean loss, without a bound"
    return refused("mean_loss", said, fix, value=mean, objective=about)


def outwards(value: float, *, up: bool, digits: int = 2) -> float:
    """Round to a few digits and outwards, so that the sentence stays true."""
    context = Context(digits, ROUND_CEILING if up else ROUND_FLOOR)
    return float(context.create_decimal(f"{value:.9e}"))


def _percent(share: float, *, up: bool | None = None) -> str:
    value = 100 * share
    return number(value if up is None else outwards(value, up=up), 2)


def number(value: float, digits: int = 3) -> str:
    """A number with a few significant digits, as people write it."""
    rounded = float(f"{value:.{digits - 1}e}")
    whole = 10 ** (digits - 1) <= abs(rounded) < 1e9
    return f"{rounded:,.0f}" if whole else f"{rounded:.{digits}g}"
