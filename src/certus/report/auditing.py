"""``certus.audit``: everything that is known about one fitted model.

The verifier recomputes the certificate on the training rows and states the risk on
rows the model has not seen; curves refit on training rows only. The work has a time
limit; if it was reached, the caption says so.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import get_tags

from certus._core.alarm import TimeIsUp, alarm
from certus.certificate import Certificate, Claim, Strength
from certus.certifying import certify
from certus.config import config_context, show_versions
from certus.fingerprints import same_data
from certus.report import (
    curves,
    details,
    groups,
    penalties,
    predictions,
    threats,
    verdicts,
)
from certus.report.document import Audit, Figure
from certus.report.rows import PredictionTask, TableRows, column_names, make_rows
from certus.selection import Split, make_split, recheck, sealed_rows
from certus.selection.heats import sharing
from certus.selection.inspection import take_column
from certus.selection.metrics import METRICS, default_metric, find_metric
from certus.selection.opening import AskedMetric, bins_of, open_rows
from certus.typing import Array, ArrayLike, MatrixLike

__all__ = ["audit"]

_JUDGED = 5_000  # rows whose probabilities are compared with what came true
_QUANTILE = 0.9  # of absolute errors in cross-validation: the threshold for new rows


def audit(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    X_test: Any = None,
    y_test: Any = None,
    comparison: Any = None,
    split: Mapping[str, Any] | None = None,
    sample_weight: Any = None,
    cv: Any = None,
    target: str | None = None,
    sensitive: Any = None,
    threat: Any = None,
    metric: str | None = None,
    positive: Any = None,
    delta: float = 0.05,
    max_time: float = 20.0,
    random_state: int | np.random.Generator | None = None,
) -> Audit:
    """Report on a fitted model: what is proved, statistical, measured and assumed.

    Parameters
    ----------
    model : fitted classifier or regressor
        Of certus or of scikit-learn; pipelines and searches too.
    X, y : table and target
        The rows the model was fitted on; with ``comparison`` or ``split``, all rows of
        the table, sealed ones included. May be left out for a model of certus, whose
        stated certificate is then shown unchecked.
    X_test, y_test : table and target, optional
        Rows the model has never seen, drawn independently; the risk is stated on them.
        For rows that come in groups or in order of time use ``certus.compare``.
    comparison : Comparison, optional
        From ``certus.compare``; its table and its risk join the report.
    split : dict, optional
        The split of a model file, ``certus.persist.read_manifest(path)["split"]``.
    sample_weight : array of shape (n_samples,), optional
        Row weights. Those used in ``fit``. Refitted curves are then left out.
    cv : splitter or iterable of (train, test), optional
        Folds of the training rows for the curves; five shuffled ones by default.
    target : str, optional
        Name of the target, if it is not in the model or in ``y``.
    sensitive : str or array-like, optional
        An attribute that should not matter: a column of the table, or its value for
        each row of ``X_test`` (with ``comparison`` or ``split``, of X). The report then
        says whether groups are treated alike.
    threat : ThreatModel, optional
        By how much rows may be changed, in the units of the table. The report then says
        between what the accuracy of a classifier lies under the worst changes.
    metric : str, optional
        What the model is judged by, as in :func:`certus.compare`. Default: the metric
        of the comparison or of the model file; else log loss for probabilities, the
        error rate for labels without them, RMSE or MAE for amounts.
    positive : label, optional
        Of two labels, the one that recall, precision and the like are about. Default:
        the rarer one.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. The statements
        about new rows, about groups and about changed rows each have this one.
    max_time : float, default=20.0
        Seconds for refitting and shuffling, and as many for proofs and attacks; figures
        shrink or are left out to keep it.
    random_state : int, Generator or None, default=None
        Seed or generator of all random numbers. They decide folds, shuffles,
        samples and the starts of attacks.

    Returns
    -------
    Audit

    Examples
    --------
    >>> import certus
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import RidgeClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = RidgeClassifier().fit(X[:400], y[:400])
    >>> report = certus.audit(model, X[:400], y[:400], X_test=X[400:], y_test=y[400:])
    >>> [claim.name for claim in report.statistical]
    ['error_rate', 'balanced_error', 'recall_rate', 'precision', 'f_beta']
    >>> [figure.question for figure in report.figures][:2]
    ['Would more rows help?', 'Is the penalty right?']
    """
    start = time.perf_counter()
    if not max_time > 0:
        raise ValueError(f"max_time must be above 0 seconds, got {max_time!r}.")
    _check_model(model)
    whole = model
    if comparison is not None or split is not None:
        # Sealed rows are about the model that had not seen them.
        model = getattr(model, "before_", model)
    name = target or getattr(y, "name", None) or getattr(model, "target_name_", None)
    labels = bool(is_classifier(model))
    parts = _divide(model, labels, X, y, X_test, y_test, comparison, split, cv)
    past = None if comparison is None else comparison.asked
    past = AskedMetric.read(split) if split is not None else past
    asked = _asked(model, labels, parts, metric, positive, past)
    task = PredictionTask(
        labels,
        str(name or ""),
        asked.metric,
        _classes(model, parts) if labels else None,
        asked.positive,
    )
    if sample_weight is not None:
        parts = parts._replace(why="refitting would ignore the weights")
    rows, unseen = parts.rows, parts.unseen
    attribute = groups.read(sensitive, X if X_test is None else X_test, parts.sealed)
    threats.check(threat, task)
    rng = np.random.default_rng(random_state)
    (attacking,) = rng.spawn(1)  # does not depend on how far the refits came
    # Warnings of refits are hidden: the certificate already says the same.
    size = (rows or unseen).size  # type: ignore[union-attr]
    with (
        warnings.catch_warnings(),
        config_context(on_uncertified="ignore"),
        sharing(size),
    ):
        warnings.simplefilter("ignore")
        certificate, known = _certificate(model, rows, sample_weight)
        found = _look(model, task, parts, max_time, rng)
        if split is not None and unseen is not None:
            risk = recheck(whole, split, X, y, delta=delta).risk
        else:
            risk = () if comparison is None else comparison.risk
        risk = risk or _risk(model, task, asked, unseen, found, delta)
        alike = groups.judge(attribute, task, unseen, found.guess, delta)
        changed = threats.judge(
            threat, model, unseen or rows, unseen, delta, max_time, attacking
        )
    return Audit(
        title=verdicts.title(certificate, task),
        verdict=verdicts.verdict(certificate, risk, found, task, comparison)
        + _refit(whole, model),
        proved=(*verdicts.proved(certificate), *changed.proved),
        statistical=(
            *verdicts.statistical(risk),
            *alike.claims,
            *changed.statistical,
        ),
        measured=(
            *verdicts.measured(certificate, risk, found, task, comparison),
            *changed.measured,
        ),
        assumed=verdicts.assumed(certificate, risk, known, unseen),
        certificate=certificate,
        comparison=details.comparison(comparison),
        figures=(*found.figures, *alike.figures, *changed.figures),
        left_out=(*found.left_out, *alike.left_out),
        data=details.data(model, task, rows, unseen),
        params=details.params(model, rows or unseen),
        versions=show_versions(),
        seconds=time.perf_counter() - start,
    )


def _refit(whole: Any, judged: Any) -> str:
    """A sentence where the model to be used was fitted again to all rows."""
    if whole is judged:
        return ""
    return (
        f" For use it was fitted again to all {whole.certificate_.n_samples:,} rows; "
        "what the sealed rows say is about the model before."
    )


def _check_model(model: Any) -> None:
    if not (is_classifier(model) or is_regressor(model)):
        raise ValueError(
            f"{type(model).__name__} is neither a classifier nor a regressor; an "
            "audit needs a model that predicts a target."
        )
    if not get_tags(model).input_tags.two_d_array:
        raise ValueError(
            f"{type(model).__name__} takes texts, but an audit needs a table. Look at "
            "its certificate and its score instead."
        )


# ---- rows ----------------------------------------------------------------------


class _Parts(NamedTuple):
    """Training rows, rows never seen, folds of the former, or why not to refit."""

    rows: TableRows | None
    unseen: TableRows | None
    cv: Any = None
    why: str = ""
    sealed: Array | None = None  # which rows of the whole table were never seen


def _classes(model: Any, parts: _Parts) -> Array:
    """All labels that the model or the rows know."""
    known = [np.asarray(model.classes_)]
    known += [np.unique(rows.y) for rows in (parts.rows, parts.unseen) if rows]
    return np.unique(np.concatenate(known))


def _asked(
    model: Any,
    labels: bool,
    parts: _Parts,
    metric: str | None,
    positive: Any,
    past: AskedMetric | None,
) -> AskedMetric:
    """What is asked: as in the comparison or the file, unless other words are given."""
    y = (parts.rows or parts.unseen).y  # type: ignore[union-attr]
    classes = _classes(model, parts) if labels else None
    task = "regression"
    if classes is not None:
        task = "binary" if len(classes) == 2 else "multiclass"
    if task == "binary" and positive is None:
        counts = [np.count_nonzero(y == label) for label in classes]  # type: ignore[union-attr]
        positive = classes[0] if counts[0] < counts[1] else classes[1]  # type: ignore[index]
        positive = positive if past is None else past.positive
    if past is not None:
        asked = past
    else:
        found = default_metric(task, np.asarray(y, float) if not labels else y)[0]
        if labels and not hasattr(model, "predict_proba"):
            found = METRICS["error"]
        asked = AskedMetric(task, found)
    if metric is not None:
        asked = asked._replace(metric=find_metric(metric, task))
    if asked.metric.needs == "probabilities" and not hasattr(model, "predict_proba"):
        raise ValueError(
            f"{asked.metric.name} needs probabilities, which "
            f"{type(model).__name__} does not give. Use error or balanced_error, or "
            "wrap the model in certus.calibration.PlattClassifier."
        )
    return asked._replace(positive=positive)


def _divide(
    model: Any,
    labels: bool,
    X: MatrixLike,
    y: ArrayLike,
    X_test: MatrixLike | None,
    y_test: ArrayLike | None,
    comparison: Any,
    split: Mapping[str, Any] | None,
    cv: Any,
) -> _Parts:
    """Divide the rows, by a comparison, a model file or the arguments."""
    for table, truth, names in ((X, y, "X, y"), (X_test, y_test, "X_test, y_test")):
        if (table is None) != (truth is None):
            raise ValueError(f"Only one of {names} was given. Pass both or neither.")
    if sum(part is not None for part in (comparison, split, X_test)) > 1:
        raise ValueError(
            "Pass only one of comparison, split and X_test: each names the test rows."
        )
    if comparison is not None or split is not None:
        if X is None:
            raise ValueError("Pass X, y: all rows of the table that was split.")
        whole = make_rows(_columns(model, X), y, "")
        if comparison is not None:
            return _as_compared(whole, comparison.split)
        return _as_filed(whole, X, labels, split or {})
    rows = None if X is None else make_rows(_columns(model, X), y, "training rows")
    unseen = None
    if X_test is not None:
        unseen = make_rows(_columns(model, X_test), y_test, "test rows")
    if rows is None and unseen is None:
        raise ValueError("Pass X, y: the rows the model was fitted on.")
    return _Parts(rows, unseen, cv)


def _as_compared(whole: TableRows, split: Split) -> _Parts:
    """The parts and the folds of a comparison."""
    _same_size(whole, split.n_rows)
    # Folds number the rows of the whole table; here they number the training rows.
    place = np.full(split.n_rows, -1)
    place[split.training] = np.arange(len(split.training))
    folds = [(place[train], place[test]) for train, test in split.folds]
    return _parts(whole, split.training, split.sealed, folds)


def _as_filed(
    whole: TableRows, X: MatrixLike, labels: bool, split: Mapping[str, Any]
) -> _Parts:
    """The parts of a model file; folds keep groups together and follow time."""
    _same_size(whole, int(split["rows"]))
    sealed = sealed_rows(split)
    training = np.setdiff1d(np.arange(whole.size), sealed)
    order: dict[str, Any] = {"units": None, "time": None}
    for key, option in (("units", "groups"), ("time", "time")):
        if split[option] is None:
            continue
        if split[option] not in column_names(X):
            why = f"the {option} that the split keeps together are not in the table"
            return _parts(whole, training, sealed, None)._replace(why=why)
        ranks = take_column(X, split[option], option).values.rank("dense").to_numpy()
        order[key] = ranks[training].astype(int)
    again = make_split(whole.y[training], labels=labels, fraction=0.0, **order)
    return _parts(whole, training, sealed, again.folds)


def _parts(whole: TableRows, training: Array, sealed: Array, folds: Any) -> _Parts:
    unseen = whole.take(sealed)._replace(kind="sealed rows") if len(sealed) else None
    rows = whole.take(training)._replace(kind="training rows")
    return _Parts(rows, unseen, folds, sealed=sealed)


def _same_size(whole: TableRows, rows: int) -> None:
    if whole.size != rows:
        raise ValueError(
            f"The table that was split has {rows:,} rows, but X has {whole.size:,}. "
            "Pass the same table, or other rows as X_test, y_test."
        )


def _columns(model: Any, X: Any) -> Any:
    """The columns the model knows, if the table has them and more."""
    names = getattr(model, "feature_names_in_", None)
    if names is None or not hasattr(X, "columns"):
        return X
    wanted, given = [str(name) for name in names], [str(name) for name in X.columns]
    if len(given) <= len(wanted) or not set(wanted) <= set(given):
        return X
    return X[wanted]


def _certificate(
    model: Any, rows: TableRows | None, sample_weight: ArrayLike | None
) -> tuple[Certificate, bool | None]:
    """The certificate, and whether the rows are those of the fit (None: unknown)."""
    stated = getattr(model, "certificate_", None)
    if rows is None:
        if not isinstance(stated, Certificate):
            raise ValueError(
                f"{type(model).__name__} has no certificate. Pass X, y: the rows it "
                "was fitted on."
            )
        return dataclasses.replace(stated, origin="file"), None
    found = certify(model, rows.X, rows.y, sample_weight)
    if not isinstance(stated, Certificate):
        return found, None
    return found, same_data(stated.fingerprint, found.fingerprint)


# ---- what is looked at ---------------------------------------------------------


class AuditFigures(NamedTuple):
    """Figures, those left out and why, and the numbers that sentences need."""

    figures: list[Figure]
    left_out: list[str]
    learning: curves.Learning
    guess: Array | None  # for the rows never seen


def _look(
    model: Any,
    task: PredictionTask,
    parts: _Parts,
    seconds: float,
    rng: np.random.Generator,
) -> AuditFigures:
    """Draw every figure there is time and reason for."""
    rows, unseen, cv, why = parts[:4]
    figures: list[Figure] = []
    left_out: list[str] = []

    def keep(figure: Figure | None, name: str, reason: str) -> None:
        if figure is not None:
            figures.append(figure)
        elif reason:
            left_out.append(f"{name}: {reason}")

    learning = curves.Learning(None, why or "the training rows were not passed")
    if rows is not None and not why:
        folds = curves.splits(rows, task, cv, rng)
        learning = _within(
            0.4 * seconds,
            lambda limit: curves.learning(model, rows, task, folds, limit),
            curves.Learning(None, _NO_TIME),
        )
        penalty = penalties.penalty_of(model, rows.X)
    keep(learning.figure, "learning curve", learning.reason)
    if learning.errors and rows is not None and penalty is not None:
        drawn = _within(
            0.35 * seconds,
            lambda limit: penalties.validation(
                penalty, rows, task, folds, limit, learning
            ),
            (None, _NO_TIME),
        )
        keep(drawn[0], "validation curve", drawn[1])
    judged, guess, shares, source = _predictions(model, rows, unseen, learning)
    if task.labels:
        if hasattr(model, "predict_proba"):
            figures.append(_calibration(model, judged, shares, source, rng, task))
        else:
            left_out.append("calibration: the model gives no probabilities")
        figures.append(predictions.confusion(judged, guess, source))
    else:
        figures.append(predictions.residuals(judged, guess, task, source, rng))
    seen = unseen or rows
    if seen is not None:
        drawn = _within(
            0.25 * seconds,
            lambda limit: predictions.importance(model, seen, task, limit, rng),
            (None, _NO_TIME),
        )
        if drawn[0] is None:
            drawn = predictions.coefficient_figure(model, seen, task), drawn[1]
        keep(drawn[0], "importance of columns", drawn[1])
    return AuditFigures(
        figures, left_out, learning, guess if judged is unseen else None
    )


#: Why a figure is left out that took longer than it may.
_NO_TIME = "there was no time for it"


def _within(seconds: float, draw: Callable[[float], Any], otherwise: Any) -> Any:
    """What is drawn within a time limit, or something else."""
    try:
        with alarm(time.perf_counter() + 1.5 * seconds):
            return draw(seconds)
    except TimeIsUp:
        return otherwise


def _predictions(
    model: Any,
    rows: TableRows | None,
    unseen: TableRows | None,
    learning: curves.Learning,
) -> tuple[TableRows, Array, Array | None, str]:
    """Predictions of rows that the model has not seen, if possible, and their name."""
    if unseen is None and learning.held_out is not None and learning.guess is not None:
        source = (
            f"{learning.held_out.kind}, each predicted by a model fitted without it"
        )
        return learning.held_out, learning.guess, learning.shares, source
    judged = unseen or rows
    if judged is None:
        raise ValueError("Pass X, y: the rows the model was fitted on.")
    guess = np.asarray(model.predict(judged.X))
    seen = " the model was fitted on, so errors look smaller than they are"
    return judged, guess, None, judged.kind + (seen if unseen is None else "")


def _calibration(
    model: Any,
    judged: TableRows,
    shares: Array | None,
    source: str,
    rng: np.random.Generator,
    task: PredictionTask,
) -> Figure:
    """Probabilities against what came true, on a sample of many rows."""
    if shares is None:
        if judged.size > _JUDGED:
            source = f"of {judged.size:,} {source}"
        judged = judged.sample(_JUDGED, rng)
        shares = np.asarray(model.predict_proba(judged.X))
    classes = np.asarray(model.classes_)
    return predictions.calibration(judged, shares, classes, source, task.positive)


def _risk(
    model: Any,
    task: PredictionTask,
    asked: AskedMetric,
    unseen: TableRows | None,
    found: AuditFigures,
    delta: float,
) -> tuple[Claim, ...]:
    """The verifier's claims about new rows, from rows never seen."""
    if unseen is None or found.guess is None:
        return (
            Claim(
                "error_rate" if task.labels else "mean_loss",
                Strength.REFUSED,
                detail="nothing can be said about new rows: all the rows you passed "
                "were used in the fit",
                fix="set rows aside before the fit and pass them as X_test, y_test",
            ),
        )
    past = found.learning
    if past.held_out is not None and past.guess is not None:
        if not task.labels:
            known = np.abs(past.held_out.y - past.guess)
            asked = asked._replace(far=float(np.quantile(known, _QUANTILE)))
        edges = bins_of(past.shares, task.classes, task.positive)
        asked = asked._replace(edges=edges)
    return open_rows(
        model, unseen.X, unseen.y, asked, delta=delta, rows=unseen.kind
    ).claims
