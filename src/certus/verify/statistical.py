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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.bounds import (
    Interval,
    bounded_mean,
    clopper_pearson,
    empirical_bernstein,
    hoeffding_interval,
)
from certus.bounds.intervals import check_losses
from certus.certificate import Claim, Strength
from certus.verify.data import Array
from certus.wording import number

__all__ = ["interval_claim", "risk_claims", "risk_interval"]

TASKS = ("classification", "binary", "multiclass", "regression")
GROUPS = ("groups drawn independently, new groups from the same distribution",)


@dataclass(frozen=True)
class _Question:
    """What is asked about, settled by the arguments and never by the losses.

    ``name`` is that of the claim, ``values`` has one entry per independent unit.
    """

    name: str
    values: Array
    low: float
    high: float
    counted: bool
    grouped: bool


def risk_claims(
    losses: Any,
    task: str,
    *,
    delta: float = 0.05,
    bounds: tuple[float, float] | None = None,
    threshold: float | None = None,
    groups: Any = None,
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
        Failure probability of the one interval.
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
        the interval itself is the promise and ``met`` is True.
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
    kind, values = _checked(losses, task, bounds)
    if ordered:
        return (_measured(kind, values, rows),)
    claims = [_refused(values, rows)] if kind == "large_error" else []
    if kind == "large_error" and threshold is None:
        return tuple(claims)
    question = _question(kind, values, bounds, threshold, groups)
    interval = _interval(question, delta, models)
    claims.append(
        interval_claim(
            interval,
            question.name,
            detail=_sentence(question, interval, threshold, delta, models),
            objective=_basis(question, interval, len(values), threshold, models, rows),
            target=target,
        )
    )
    return tuple(claims)


def risk_interval(
    losses: Any,
    task: str,
    *,
    delta: float = 0.05,
    bounds: tuple[float, float] | None = None,
    threshold: float | None = None,
    groups: Any = None,
    ordered: bool = False,
    models: int = 1,
) -> Interval | None:
    """The interval of :func:`risk_claims` as numbers; None where nothing is promised.

    Parameters
    ----------
    losses, task, delta, bounds, threshold, groups, ordered, models
        As in :func:`risk_claims`.

    Examples
    --------
    >>> from certus.verify.statistical import risk_interval
    >>> print(risk_interval([1] * 4 + [0] * 82, "binary"))
    between 0.0128 and 0.115 with probability 95 % (Clopper–Pearson, n = 86)
    """
    kind, values = _checked(losses, task, bounds)
    if ordered or (kind == "large_error" and threshold is None):
        return None
    return _interval(_question(kind, values, bounds, threshold, groups), delta, models)


def interval_claim(
    interval: Interval,
    name: str,
    *,
    detail: str,
    objective: str = "",
    target: float | None = None,
) -> Claim:
    """An interval as a STATISTICAL claim; its value is the upper end.

    Parameters
    ----------
    interval : Interval
        From ``certus.bounds``.
    name : str
        Name of the claim.
    detail : str
        The claim as a sentence.
    objective : str
        What the number speaks about.
    target : float, optional
        Largest upper end asked for.

    Examples
    --------
    >>> from certus.bounds import clopper_pearson
    >>> from certus.verify.statistical import interval_claim
    >>> claim = interval_claim(
    ...     clopper_pearson(4, 86), "error_rate", detail="few errors", target=0.1
    ... )
    >>> claim.met, claim.fix
    (False, 'more held-out rows, which narrow the interval')
    """
    met = target is None or interval.high <= target
    fix = ""
    if not met:
        near = target is not None and interval.value <= target
        fix = "more held-out rows, which narrow the interval" if near else ""
        fix = fix or "another model: the mean observed is above the target"
    return Claim(
        name,
        Strength.STATISTICAL,
        interval.high,
        target,
        met,
        objective,
        f"{interval.method}: the interval holds the risk with probability at least "
        f"{1 - interval.delta:.6g} over the draw of the {interval.n:,} units",
        interval.assumptions,
        interval.delta,
        0.0,
        detail,
        fix,
    )


def _checked(
    losses: Any, task: str, bounds: tuple[float, float] | None
) -> tuple[str, Array]:
    """Which claim answers, and the losses, which must be of its kind."""
    if task not in TASKS:
        raise ValueError(f"task is {task!r}; use one of {', '.join(TASKS)}.")
    if bounds is not None:
        return "mean_loss", check_losses(losses, *bounds)
    values = check_losses(losses)
    if task == "regression":
        if values.min() < 0:
            raise ValueError(
                "losses of a regression are absolute errors and cannot be negative; "
                "for another loss pass its bounds."
            )
        return "large_error", values
    if not np.isin(values, (0.0, 1.0)).all():
        raise ValueError(
            "losses of a classifier must be 0 (right) or 1 (wrong); for another loss "
            "pass its bounds."
        )
    return "error_rate", values


def _question(
    kind: str,
    values: Array,
    bounds: tuple[float, float] | None,
    threshold: float | None,
    groups: Any,
) -> _Question:
    if threshold is not None and kind == "large_error":
        if not math.isfinite(threshold):
            raise ValueError(f"threshold is {threshold!r}; use a finite number.")
        values = (values > threshold).astype(np.float64)
    if groups is not None:
        values = _group_means(values, groups)
    low, high = bounds or (0.0, 1.0)
    counted = kind != "mean_loss" and groups is None
    return _Question(kind, values, low, high, counted, groups is not None)


def _group_means(values: Array, groups: Any) -> Array:
    labels = np.asarray(groups)
    if labels.shape != values.shape:
        raise ValueError(
            f"groups has shape {labels.shape} for {len(values)} losses; pass one group "
            "per row."
        )
    seen: dict[Any, int] = {}
    codes = np.empty(len(values), dtype=np.intp)
    for i, label in enumerate(labels.tolist()):
        if label is None or label != label:  # NaN and NaT differ from themselves
            raise ValueError(
                f"groups has no value in row {i}; give the row a group or drop it."
            )
        codes[i] = seen.setdefault(label, len(seen))
    means = np.bincount(codes, values) / np.bincount(codes)
    return np.clip(means, values.min(), values.max())  # rounding may step outside


def _interval(question: _Question, delta: float, models: int) -> Interval:
    values = question.values
    if question.counted:
        side = "upper" if question.name == "large_error" else "both"
        count = int(values.sum())
        return clopper_pearson(count, len(values), delta, side=side, models=models)
    found = bounded_mean(values, delta, question.low, question.high, models=models)
    if not question.grouped:
        return found
    ends = found.low, found.high, found.value, found.delta
    return Interval(*ends, found.method, found.n, GROUPS)


# -- sentences ------------------------------------------------------------------------


def _sentence(
    question: _Question,
    interval: Interval,
    threshold: float | None,
    delta: float,
    models: int,
) -> str:
    where = "new groups like these" if question.grouped else "new rows like these"
    if question.name == "large_error" and threshold is not None:
        share = _percent(1.0 - interval.high, up=False)
        near = number(_outwards(threshold, up=True, digits=4), 4)
        over = ", on average over groups" if question.grouped else ""
        kind = where.replace("groups", "rows")
        return (
            f"at least {share} % of {kind} are within ±{near} of the prediction{over}"
        )
    show = _percent if question.name == "error_rate" else _plain
    unit = " %" if question.name == "error_rate" else ""

    def ends(found: Interval) -> tuple[str, str]:
        return show(found.low, up=False) + unit, show(found.high, up=True) + unit

    low, high = ends(interval)
    args = question.values, delta, question.low, question.high
    others = [
        rule(*args, models=models) for rule in (hoeffding_interval, empirical_bernstein)
    ]
    compared = "; ".join(
        f"{other.method} {' to '.join(ends(other))}"
        for other in others
        if other.method != interval.method
    )
    return f"between {low} and {high} on {where} (for comparison, {compared})"


def _basis(
    question: _Question,
    interval: Interval,
    n_rows: int,
    threshold: float | None,
    models: int,
    rows: str,
) -> str:
    """Formula, what was observed, and the method, in one line."""
    formula = {
        "error_rate": "P(wrong label)",
        "mean_loss": f"mean loss, in [{number(question.low)}, {number(question.high)}]",
        "large_error": f"P(|error| > {threshold:.6g})" if threshold is not None else "",
    }[question.name]
    if question.counted:
        count = int(question.values.sum())
        seen = f"{count:,} of {n_rows:,} {rows}"
    elif question.grouped:
        seen = (
            f"{number(interval.value)} over {interval.n:,} groups ({n_rows:,} {rows})"
        )
    else:
        seen = f"{number(interval.value)} on {n_rows:,} {rows}"
    both = f" at delta/{models}: {models} models compared" if models > 1 else ""
    return f"{formula}: {seen} ({interval.method}{both})"


def _measured(kind: str, values: Array, rows: str) -> Claim:
    wrong = kind == "error_rate"
    mean = float(values.mean())
    seen = f"{_percent(mean)} % wrong" if wrong else f"{number(mean)} on average"
    return Claim(
        "error_rate" if wrong else "mean_loss",
        Strength.MEASURED,
        mean,
        objective="P(wrong label)" if wrong else "mean loss",
        assumptions=("rows in order of time are not draws of one distribution",),
        detail=f"{seen} on {len(values):,} {rows}, later in time; no interval holds",
    )


def _refused(values: Array, rows: str) -> Claim:
    mean = float(values.mean())
    return Claim(
        "mean_loss",
        Strength.REFUSED,
        mean,
        objective="mean loss, without a bound",
        detail="the mean loss on new rows cannot be bounded: rare rows of any size may "
        f"govern it. On {len(values):,} {rows} it is {number(mean)}",
        fix="state how often the loss exceeds a threshold, or pass bounds of the loss",
    )


def _outwards(value: float, *, up: bool, digits: int = 2) -> float:
    """Round to a few digits, away from the interval: the sentence stays true."""
    if value == 0.0 or not math.isfinite(value):
        return value
    unit = digits - 1 - math.floor(math.log10(abs(value)))
    if not -300 < unit < 300:
        return value
    scaled = value * 10.0**unit
    near = round(scaled)
    whole = near if abs(scaled - near) < 1e-9 * abs(near) else math.floor(scaled) + up
    return float(whole / 10.0**unit)


def _plain(value: float, *, up: bool) -> str:
    return number(_outwards(value, up=up), 2)


def _percent(share: float, *, up: bool | None = None) -> str:
    value = 100 * share
    return number(value if up is None else _outwards(value, up=up), 2)
