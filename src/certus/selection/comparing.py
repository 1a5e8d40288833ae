"""``certus.compare``: candidates on one plan of folds, one choice, one sealed check.

The order matters. Rows are sealed first; columns are judged and candidates tuned,
fitted and chosen on the other rows alone; then the sealed rows are opened once, for the
chosen model, and the verifier states its risk by an interval fixed in advance. The rule
of the choice is fixed too: the smallest mean error over the folds; ties go to the
simpler model.
"""

from __future__ import annotations

import dataclasses
import time as clock
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from certus._core.alarm import TimeIsUp, alarm
from certus.base import check_number
from certus.certificate import Claim, Status
from certus.config import config_context, get_config
from certus.selection.comparison import Comparison, ComparisonRow
from certus.selection.deciding import (
    check_decision,
    choose_threshold,
    decide_at,
    read_bounds,
)
from certus.selection.halving import PlanStep
from certus.selection.heats import sharing
from certus.selection.inspection import take
from certus.selection.lineup import Models, choose, make_lineup
from certus.selection.opening import AskedMetric, Opened, bins_of, open_rows
from certus.selection.preparation import Prepared, prepare
from certus.selection.race import Race, Step, take_target
from certus.selection.refitting import (
    ALWAYS_BELOW,
    NO_TIME,
    PARTS,
    ChosenModel,
    Refitted,
)
from certus.selection.refitting import refit as refit_model
from certus.selection.splits import FEWEST
from certus.typing import ArrayLike, MatrixLike
from certus.verify import no_sealed_rows, union_claim

__all__ = ["compare"]

#: Share of the out-of-fold errors below the threshold of ``large_error``.
_LARGE = 0.9
#: Beyond the first number of training rows, the second number of folds judges the
#: candidates.
_MANY_ROWS, _JUDGED = 50_000, 2


def compare(
    X: MatrixLike,
    y: ArrayLike,
    *,
    models: Models | None = None,
    also: Models = (),
    task: str | None = None,
    groups: Any = None,
    time: Any = None,
    keep: Sequence[str] = (),
    metric: str | None = None,
    positive: Any = None,
    bounds: tuple[float, float] | None = None,
    cost: Mapping[str, float] | None = None,
    recall: float | None = None,
    refit: bool | None = False,
    fraction: float = 0.2,
    folds: int = 5,
    delta: float = 0.05,
    max_time: float | None = None,
    random_state: int = 0,
    on_step: Step | None = None,
) -> Comparison:
    """Compare models on a table, choose one, and state its risk on sealed rows.

    Each candidate is a pipeline: what it learns about columns, and its parameters, it
    learns again in every fold. The constant, penalised linear models, a robust one, a
    kernel machine, nearest neighbours, the perceptron, a neural network and gradient
    boosting are compared. The certus model that is best by the metric on average over
    the folds is chosen, the earlier one on ties; it is fitted again to all training
    rows, and judged once on rows that were sealed before anything was fitted. Where the
    target holds labels, models without probabilities get them inside each fold
    (:class:`certus.calibration.PlattClassifier`); so does boosting with two labels and
    up to 2,000 training rows, whose own probabilities are too near 0 and 1.

    Certificate
    -----------
    ``model.certificate_`` is that of the final fit. ``risk`` holds the panel, the
    metric asked for first. For labels: log loss, Brier score, AUC, average precision,
    error rate, balanced error, recall, precision, F-beta and calibration, with
    intervals that hold together (STATISTICAL). For amounts: RMSE, MAE and R², MEASURED,
    or STATISTICAL with ``bounds``; and ``large_error``, which is STATISTICAL.
    ``coverage`` is that of the conformal intervals or sets which ``model`` is
    calibrated for. With groups, groups are the units; with time, numbers are MEASURED.
    Fold values are MEASURED. After a refit, ``coverage`` is that of CV+ (STATISTICAL;
    MEASURED where the choice of the model could not be repeated without each fold), and
    the rest of ``risk`` is about the model before.

    Parameters
    ----------
    X : data frame or array of shape (n_samples, n_features)
        Numbers, categories, dates, gaps: see :class:`certus.tables.TableEncoder`.
    y : series or array of shape (n_samples,)
        Labels or amounts, without gaps.
    models : sequence of estimators, or mapping of names to them, optional
        Compare these, as they are, instead of the usual candidates.
    also : sequence of estimators, or mapping of names to them, optional
        Further candidates; any that follow scikit-learn.
    task : {"regression", "classification"}, optional
        What y holds; see :func:`certus.tables.guess_task` if None.
    groups : str or array of shape (n_samples,), optional
        A column of X (which no model sees then) or one value for each row; rows of one
        group never end up on two sides.
    time : str or array of shape (n_samples,), optional
        A column of X, or one value for each row, to order rows by: the latest are
        sealed, and each fold is judged on rows later than those it learnt from.
    keep : sequence of str
        Columns to use although they determine the target.
    metric : str, optional
        What models are judged by: for labels ``"log_loss"`` (the default),
        ``"brier"``, ``"error"``, ``"balanced_error"``; for two labels also ``"auc"``,
        ``"average_precision"``, ``"f_beta@2"``, ``"recall@0.9"`` (at a precision of
        0.9); for amounts ``"rmse"``, ``"mae"``, ``"r2"``, ``"pinball@0.9"``,
        ``"poisson"``, ``"gamma"``. For amounts the default is RMSE, and MAE if 1 % of
        the training rows hold more than half of all squared distances from the median.
    positive : label, optional
        Of two labels, the one that recall, precision and the like are about. Default:
        the rarer one.
    bounds : (low, high), optional
        Bounds of an amount that are known before the data. No target may be outside
        them, and ``model`` cuts its predictions to them; the metrics then have
        intervals with a guarantee (the deviances, if ``low`` is above 0).
    cost : dict, optional
        ``{"fp": 1, "fn": 20}``: what a false alarm and a miss cost. The threshold with
        the least cost is chosen on rows that models of folds had not seen, and its cost
        on new rows is stated beside that of one half (``decision_cost``,
        ``cost_saved``, STATISTICAL).
    recall : float, optional
        Share of the positive rows to find: the threshold is the highest for which this
        is certain (``kept_recall``, ``false_alarms``, STATISTICAL), from the sealed
        positive rows.
    refit : bool or None, default=False
        Whether to fit the chosen model again, to all rows, after the sealed rows were
        opened. What they said is about the model before, ``model.before_``. Intervals
        and sets are those of CV+: ``folds`` models, each chosen and fitted without one
        fold of all rows, are kept in ``fold_models_``. None means True below 1,000
        rows, as in ``certus fit``.
    fraction : float, default=0.2
        Share of the rows to seal. Tables of fewer than 20 rows are not divided.
    folds : int, default=5
        Folds of the training rows. Beyond 50,000 of them, two folds are run; where a
        fold learns from 20,000 rows or more, trials on 2,000 of them come first, and
        only the better half of the candidates goes on (see ``Comparison.plan``).
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. All statements
        about the sealed rows hold together.
    max_time : float, optional
        Seconds after which no further fit is begun, and a candidate that is not
        complete is given up. The claims about the chosen model come afterwards. The
        final fit has the parameters of the last fold if choosing them again would take
        too long.
    random_state : int, default=0
        Seed or generator of all random numbers. They decide the split, and what models
        draw. The default is a fixed seed, so that every call seals the same rows.
    on_step : callable, optional
        Called with a text and the share of the work done, before each fit.

    Returns
    -------
    Comparison
        After Ctrl-C, with ``on_interrupt="return"`` in effect, that of the candidates
        which were complete.

    Examples
    --------
    >>> import certus
    >>> from certus.linear_model import Lasso, Ridge
    >>> from certus.tables import load_example
    >>> frame, target = load_example()
    >>> found = certus.compare(
    ...     frame.drop(target), frame[target], models=[Ridge(), Lasso(alpha=0.5)]
    ... )
    >>> found.task, found.chosen, len(found.split.sealed)
    ('regression', 'Ridge', 88)
    >>> [claim.name for claim in found.risk]
    ['rmse', 'mae', 'r2', 'poisson', 'gamma', 'large_error', 'coverage',
     'coverage_floor']
    """
    start = clock.perf_counter()
    check_number("fraction", fraction, 0, 0.9)
    check_number("folds", folds, 2, integer=True)
    check_number("delta", delta, 0, 1, open_low=True)
    check_number("random_state", random_state, 0, 2**32 - 1, integer=True)
    check_number("max_time", max_time, open_low=True, none=True)
    about = metric, positive
    deadline = None if max_time is None else start + max_time
    try:
        with alarm(deadline):
            ready = prepare(
                *(X, y, task, groups, time, keep, fraction, folds, random_state), *about
            )
    except TimeIsUp:
        raise TimeoutError(
            "the table could not be read within the time limit. Raise it."
        ) from None
    costs = check_decision(ready.task, cost, recall)
    refits = _refits(refit, ready, recall)
    ready = _fewer_folds(ready)
    ready = ready._replace(bounds=read_bounds(bounds, ready))
    lineup = make_lineup(ready, models, also, random_state)
    race = Race(ready, deadline, _steps(on_step, refits))
    with config_context(on_uncertified="ignore", on_interrupt="raise"):
        rows, status = race.run(lineup)
    if status is Status.INTERRUPTED and get_config()["on_interrupt"] == "raise":
        raise KeyboardInterrupt
    chosen = choose(lineup, rows, status, ready.metric)
    at = lineup.index(chosen)
    model, rows[at] = race.finish(chosen, rows[at], y)
    if model.certificate_.status is Status.INTERRUPTED:
        status = Status.INTERRUPTED
    asked = _asked(rows[at], ready)._replace(costs=costs, recall=recall)
    asked = asked._replace(threshold=choose_threshold(rows[at].shares, ready, costs))
    if asked.threshold is not None:
        decide_at(model, asked.threshold, asked.positive)
    with sharing(len(ready.y)):
        opened, risk = _open(model, ready, y, asked, delta)
    notes = [*ready.notes, *_too_good(rows, rows[at], ready)]
    if refits and status is not Status.INTERRUPTED:
        name = ready.task if ready.task == "regression" else "classification"
        judged = ChosenModel(
            model,
            chosen,
            rows[at],
            rows,
            status,
            lambda some: prepare(
                *(take(X, some), ready.y[some], name, None, None, keep, 0.0, PARTS),
                *(random_state, *about),
            ),
            lambda part: make_lineup(part, models, also, random_state),
            asked.threshold,
        )
        again, status = _again(race, judged, y, folds)
        model, risk = again.model, _with_coverage(risk, again)
        notes += [again.note] if again.note else []
    return Comparison(
        task=ready.task,
        target=model.target_name_,
        metric=ready.metric,
        positive=ready.positive,
        notes=tuple(notes),
        left_out=ready.left_out,
        split=ready.split,
        rows=tuple(rows),
        chosen=chosen.name,
        model=model,
        risk=risk,
        union=_union(rows, ready, delta),
        asked=asked,
        status=status,
        seconds=clock.perf_counter() - start,
        sealed_predictions=None if opened is None else opened.said.guess,
        plan=_plan(race, rows, chosen.name),
    )


def _fewer_folds(ready: Prepared) -> Prepared:
    """Two folds judge well enough where each has many rows."""
    split = ready.split
    if len(split.training) <= _MANY_ROWS or len(split.folds) <= _JUDGED:
        return ready
    folds = split.folds[-_JUDGED:] if split.time else split.folds[:_JUDGED]
    note = (
        f"{len(split.training):,} training rows: {_JUDGED} of the {len(split.folds)} "
        "folds judge the candidates."
    )
    fewer = dataclasses.replace(split, folds=folds)
    return ready._replace(split=fewer, notes=(*ready.notes, note))


def _plan(race: Race, rows: list[ComparisonRow], chosen: str) -> tuple[PlanStep, ...]:
    """The rounds of the race, and what became of each candidate on the folds."""
    folds = race.ready.split.folds
    size = max((len(train) for train, _ in folds), default=0)
    last = []
    for row in rows:
        outcome = row.reason or ("cut short" if row.cut_short else "complete")
        outcome = "chosen" if row.name == chosen else outcome
        part = f"{len(folds)} folds"
        step = row.name, part, size, row.mean, row.seconds, outcome
        last.append(PlanStep(*step))
    ran = {step.name for step in race.plan if step.outcome != "went on"}
    return (*race.plan, *(step for step in last if step.name not in ran))


# ---- the model on all rows ---------------------------------------------------------


#: Of the work, the share before the model is fitted again.
_BEFORE = 0.6


def _steps(on_step: Step | None, refits: bool) -> Step:
    """Shares of the whole work; those above 1 are of a refit."""
    if on_step is None:
        return lambda text, share: None
    if not refits:
        return on_step
    whole = _BEFORE, 1 - _BEFORE
    return lambda text, share: on_step(
        text, whole[0] * min(share, 1.0) + whole[1] * min(max(share - 1, 0.0), 1.0)
    )


def _refits(refit: bool | None, ready: Prepared, recall: float | None) -> bool:
    """Whether to fit again to all rows."""
    if refit is not None and not isinstance(refit, bool | np.bool_):
        raise ValueError(f"refit must be True, False or None, got {refit!r}.")
    if refit and recall is not None:
        raise ValueError(
            "recall and refit cannot be used together: the threshold that keeps a "
            "recall comes from the sealed rows, and holds for the model that was not "
            "fitted to them. Choose one."
        )
    small = ready.split.n_rows < ALWAYS_BELOW and recall is None
    return bool(small if refit is None else refit) and len(ready.split.sealed) > 0


def _again(
    race: Race, judged: ChosenModel, y: ArrayLike, folds: int
) -> tuple[Refitted, Status]:
    """The model on all rows; Ctrl-C keeps the one that was judged."""
    try:
        with (
            config_context(on_uncertified="ignore", on_interrupt="raise"),
            alarm(race.deadline),
        ):
            again = refit_model(race, judged, y, folds)
    except (TimeIsUp, TimeoutError):
        return Refitted(judged.model, note=NO_TIME), judged.status
    except KeyboardInterrupt:
        if get_config()["on_interrupt"] == "raise":
            raise
        note = "interrupted before the model was fitted again to all rows."
        return Refitted(judged.model, note=note), Status.INTERRUPTED
    if again.model.certificate_.status is Status.INTERRUPTED:
        return again, Status.INTERRUPTED
    return again, judged.status


def _with_coverage(risk: tuple[Claim, ...], again: Refitted) -> tuple[Claim, ...]:
    """The claims of the sealed rows, with the coverage of the intervals delivered."""
    if not again.claims:
        return risk
    old = ("coverage", "coverage_floor")
    return (*(claim for claim in risk if claim.name not in old), *again.claims)


# ---- what is said afterwards -------------------------------------------------------


def _asked(row: ComparisonRow, ready: Prepared) -> AskedMetric:
    """All questions to the sealed rows, from rows that models of folds had not seen."""
    return AskedMetric(
        ready.task,
        ready.metric,
        ready.positive,
        None if ready.labels else _far(row, ready.y),
        bins_of(row.shares, ready.classes, ready.positive),
        bounds=ready.bounds,
    )


def _open(
    model: Any, ready: Prepared, y: ArrayLike, asked: AskedMetric, delta: float
) -> tuple[Opened | None, tuple[Claim, ...]]:
    """Predict the sealed rows, once, and let the verifier state the risk."""
    split, truth = ready.split, ready.y
    sealed = split.sealed
    if len(sealed) == 0:
        return None, (no_sealed_rows(split.n_rows, FEWEST),)
    X = take(ready.X, sealed)
    units = split.units[sealed] if split.groups and split.units is not None else None
    plain = split.groups is None and split.time is None
    opened = open_rows(
        model,
        X,
        truth[sealed],
        asked,
        groups=units,
        ordered=split.time is not None,
        calibrates=plain,
        delta=delta,
    )
    claims = opened.claims
    if opened.threshold is not None:
        decide_at(model, opened.threshold, asked.positive)
    if plain:
        share = opened.shares.other / delta
        model._calibrate(X, take_target(y, truth, sealed), delta, share)
        claims += model.calibration_certificate_.claims
    return opened, claims


def _far(row: ComparisonRow, y: np.ndarray) -> float | None:
    """The 0.9 quantile of the out-of-fold errors: known before the sealed rows are."""
    if row.predictions is None:
        return None
    errors = np.abs(row.predictions - y)
    return float(np.quantile(errors[np.isfinite(errors)], _LARGE))


def _union(rows: list[ComparisonRow], ready: Prepared, delta: float) -> Claim:
    split = ready.split
    reason = ""
    if not ready.labels:
        reason = (
            "errors of a regression have no upper bound, so there is no "
            "interval that holds for all of them"
        )
    elif ready.metric.name != "error":
        reason = (
            f"values of the {ready.metric.label} on single folds have no interval "
            "that holds for all candidates; the sealed rows judge the chosen one"
        )
    elif split.time is not None:
        reason = (
            "rows in order of time are not independent, so there is no valid interval"
        )
    units = split.units if split.groups else None
    sizes = [
        len(test) if units is None else len(np.unique(units[test]))
        for _, test in split.folds
    ]
    complete = sum(bool(row.errors) for row in rows)
    fewest = min(sizes, default=0)
    return union_claim(fewest, complete, len(sizes), delta=delta, reason=reason)


def _too_good(
    rows: list[ComparisonRow], best: ComparisonRow, ready: Prepared
) -> list[str]:
    """A note if the columns together determine the target."""
    baseline = rows[0]
    if not best.errors or not baseline.errors or len(ready.split.training) < 100:
        return []
    name, value = ready.metric.name, best.mean
    perfect = {"error": 0.0, "balanced_error": 0.0, "brier": 1e-3, "log_loss": 2e-3}
    least = {
        "auc": 1 - 1e-6,
        "average_precision": 1 - 1e-6,
        "f_beta": 1.0,
        "r2": 0.9999,
    }
    if ready.metric.more:
        close = value >= least.get(name, 1.0)
    else:
        close = value <= perfect.get(name, 0.01 * baseline.mean)
    if not close:
        return []
    return [
        "the columns together determine the target: is one of them known only "
        "after the target?"
    ]
