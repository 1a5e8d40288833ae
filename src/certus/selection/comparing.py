"""``certus.compare``: candidates on one plan of folds, one choice, one sealed check.

The order matters. Rows are sealed first; columns are judged and candidates tuned,
fitted and chosen on the other rows alone; then the sealed rows are opened once, for the
chosen model, and the verifier states its risk by an interval fixed in advance. The rule
of the choice is fixed too: the smallest mean error over the folds; ties go to the
simpler model.
"""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from certus.base import check_number
from certus.certificate import Claim, Status
from certus.config import config_context, get_config
from certus.selection.candidates import Candidate, given_candidate, list_candidates
from certus.selection.comparison import Comparison, ComparisonRow
from certus.selection.inspection import columns_of, take
from certus.selection.preparation import Prepared, prepare
from certus.selection.race import Race, Step, take_target
from certus.selection.splits import FEWEST
from certus.typing import ArrayLike, MatrixLike
from certus.verify import no_sealed_rows, risk_claims, union_claim
from certus.wording import unstopped

__all__ = ["compare"]

#: Share of the out-of-fold errors below the threshold of ``large_error``.
_LARGE = 0.9

#: Estimators, by a name or by that of their class.
Models = Sequence[Any] | Mapping[str, Any]


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
    kernel machine, nearest neighbours, the perceptron and a neural network are
    compared, with scikit-learn's gradient boosting for reference. The certus model with
    the smallest mean error over the folds is chosen, the earlier one on ties; it is
    fitted again to all training rows, and judged once on rows that were sealed before
    anything was fitted.

    Certificate
    -----------
    ``model.certificate_`` is that of the final fit. ``risk`` holds ``error_rate``
    (STATISTICAL, Clopper–Pearson) for labels; for amounts ``mean_loss`` is REFUSED and
    ``large_error`` is STATISTICAL; ``coverage`` is that of the conformal intervals or
    sets which ``model`` is calibrated for. With groups, groups are the units; with
    time, the number is MEASURED. Fold errors are MEASURED.

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
    fraction : float, default=0.2
        Share of the rows to seal. Tables of fewer than 20 rows are not divided.
    folds : int, default=5
        Folds of the training rows.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    max_time : float, optional
        Seconds after which no further fit is begun.
    random_state : int, default=0
        Seed or generator of all random numbers. They decide the split, and what models
        draw.
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
    ['mean_loss', 'large_error', 'coverage', 'coverage_floor']
    """
    start = clock.perf_counter()
    check_number("fraction", fraction, 0, 0.9)
    check_number("folds", folds, 2, integer=True)
    check_number("delta", delta, 0, 1, open_low=True)
    check_number("random_state", random_state, 0, 2**32 - 1, integer=True)
    check_number("max_time", max_time, open_low=True, none=True)
    ready = prepare(X, y, task, groups, time, keep, fraction, folds, random_state)
    lineup = _lineup(ready, models, also, random_state)
    deadline = None if max_time is None else start + max_time
    race = Race(ready, deadline, on_step or (lambda text, share: None))
    with config_context(on_uncertified="ignore", on_interrupt="raise"):
        rows, status = race.run(lineup)
    if status is Status.INTERRUPTED and get_config()["on_interrupt"] == "raise":
        raise KeyboardInterrupt
    chosen = _choose(lineup, rows, status)
    at = lineup.index(chosen)
    model, rows[at] = race.finish(chosen, rows[at], y)
    if model.certificate_.status is Status.INTERRUPTED:
        status = Status.INTERRUPTED
    threshold = None if ready.labels else _threshold(rows[at], ready.y)
    guess, risk = _open(model, ready, y, threshold, delta)
    return Comparison(
        task=ready.task,
        target=model.target_name_,
        measure="share of wrong labels"
        if ready.labels
        else "root mean square of prediction − truth",
        notes=(*ready.notes, *_too_good(rows, rows[at], ready)),
        left_out=ready.left_out,
        split=ready.split,
        rows=tuple(rows),
        chosen=chosen.name,
        model=model,
        risk=risk,
        union=_union(rows, ready, delta),
        threshold=threshold,
        status=status,
        seconds=clock.perf_counter() - start,
        sealed_predictions=guess,
    )


def _lineup(
    ready: Prepared, models: Models | None, also: Models, seed: int
) -> list[Candidate]:
    """The candidates of this comparison, in the order of the table."""
    n, d = len(ready.split.training), len(columns_of(ready.X))
    labels = len(np.unique(ready.y)) if ready.labels else 0
    lineup = list_candidates(ready.task, n, d, seed, labels)
    if models is not None:
        lineup = lineup[:1]
    for name, model in [*_named(models or ()), *_named(also)]:
        if not hasattr(model, "fit") or not hasattr(model, "predict"):
            raise TypeError(f"{model!r} is not an estimator with fit and predict.")
        if ready.labels is not is_classifier(model):
            wants, has = ("labels", "amounts")[:: 1 if is_classifier(model) else -1]
            raise ValueError(
                f"{type(model).__name__} predicts {wants}, and the target holds {has}."
            )
        lineup.append(given_candidate(name, model, [c.name for c in lineup]))
    if not any(candidate.kind == "certus" for candidate in lineup):
        raise ValueError(
            "none of the candidates is a model of certus, so there is none to choose."
        )
    return lineup


def _named(models: Models) -> list[tuple[str, Any]]:
    if isinstance(models, Mapping):
        return [(str(name), model) for name, model in models.items()]
    return [(type(model).__name__, model) for model in models]


def _choose(
    lineup: list[Candidate], rows: list[ComparisonRow], status: Status
) -> Candidate:
    """The certus candidate of least mean error; the first of them on ties."""
    ours = [(c, r) for c, r in zip(lineup, rows) if c.kind == "certus"]
    complete = [(r.mean, at) for at, (_, r) in enumerate(ours) if r.errors]
    if complete:
        return ours[min(complete)[1]][0]
    if status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if status is Status.TIME_LIMIT:
        raise TimeoutError("no model was fitted within the time limit. Raise it.")
    for candidate, row in ours:  # too few rows for folds: the simplest, unmeasured
        if row.reason.startswith("too few rows"):
            return candidate
    raise ValueError(
        f"no model could be fitted; {ours[0][0].name}: {unstopped(ours[0][1].reason)}."
    )


# ---- what is said afterwards -------------------------------------------------------


def _open(
    model: Any, ready: Prepared, y: ArrayLike, threshold: float | None, delta: float
) -> tuple[np.ndarray | None, tuple[Claim, ...]]:
    """Predict the sealed rows, once, and let the verifier state the risk."""
    split, truth = ready.split, ready.y
    sealed = split.sealed
    if len(sealed) == 0:
        return None, (no_sealed_rows(split.n_rows, FEWEST),)
    X = take(ready.X, sealed)
    units = split.units[sealed] if split.groups and split.units is not None else None
    guess = np.asarray(model.predict(X))
    claims = risk_claims(
        losses_of(guess, truth[sealed], ready.labels),
        ready.task,
        delta=delta,
        threshold=threshold,
        groups=units,
        ordered=split.time is not None,
        rows="sealed rows",
    )
    if split.groups is None and split.time is None:
        model.calibrate(X, take_target(y, truth, sealed))
        claims += model.calibration_certificate_.claims
    return guess, claims


def losses_of(guess: Any, truth: Any, labels: bool) -> np.ndarray:
    """Whether each label is wrong, or how far off each amount is."""
    return np.asarray(guess != truth if labels else np.abs(guess - truth))


def _threshold(row: ComparisonRow, y: np.ndarray) -> float | None:
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
    if best.mean > (0.0 if ready.labels else 0.01 * baseline.mean):
        return []
    return [
        "the columns together determine the target: is one of them known only "
        "after the target?"
    ]
