"""What a good prediction is: one row for each metric, at the end of this file.

Log loss, Brier score, pinball loss and the deviances are proper: no prediction has a
smaller expected loss than the truth (probabilities, quantile or mean). The share of
wrong labels is not: with 2 % positives, the constant is hard to beat.

    log loss      −mean ln max(p(y | x), 0.001)
    Brier         mean ½·Σ_k (p_k − 1[y = k])²; for two labels (p − 1[y = 1])²
    AUC           P(score of a positive row > score of a negative one), ties count half
    F-beta        (1 + β²)·TP / ((1 + β²)·TP + β²·FN + FP)
    pinball       mean of q·(y − z) where y > z, else (1 − q)·(z − y)
    Poisson       mean 2·(y·ln(y/z) − y + z);   gamma: mean 2·(ln(z/y) + y/z − 1)
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy
from scipy.stats import rankdata

from certus.typing import Array
from certus.wording import number

__all__ = [
    "CLIP",
    "METRICS",
    "Metric",
    "Predicted",
    "check_targets",
    "default_metric",
    "find_metric",
    "predict_rows",
]

#: Probabilities below this count as this in the log loss, which is thereby bounded.
CLIP = 1e-3
#: Share of the largest deviations, and the share of all squares that makes tails heavy.
_FEW, _MOST = 0.01, 0.5


class Predicted(NamedTuple):
    """What a model said about some rows.

    ``guess`` holds labels or amounts; ``shares`` the probability of each of
    ``classes``, or None; ``positive`` is the label that metrics of two labels are
    about.
    """

    guess: Array
    shares: Array | None = None
    classes: Array | None = None
    positive: Any = None

    @property
    def chance(self) -> Array:
        """Probability of the positive label."""
        if self.shares is None or self.classes is None:
            raise ValueError("the model gives no probabilities.")
        at = np.flatnonzero(self.classes == self.positive)
        column = int(at[0]) if len(at) else len(self.classes) - 1
        return np.asarray(self.shares[:, column])

    def of_truth(self, truth: Array) -> Array:
        """Probability that each row's own label was given."""
        if self.shares is None or self.classes is None:
            raise ValueError("the model gives no probabilities.")
        at = np.searchsorted(self.classes, truth)
        return np.asarray(self.shares[np.arange(len(truth)), at])


class Metric(NamedTuple):
    """A metric: its name, its direction, what it needs, and what can be said of it.

    Attributes
    ----------
    name, label : str
        As in ``metric=`` and as in a sentence.
    task : {"labels", "two labels", "amounts"}
        Which targets it is for.
    needs : {"labels", "probabilities", "amounts"}
        What a model must predict.
    interval : str
        The interval that rows never seen allow for it.
    value : callable
        ``value(truth, predicted, at)``.
    constant : str
        The best constant answer: a strategy of scikit-learn's dummy models.
    unit : {"share", "number", "target"}
        How values are written.
    more : bool
        Whether larger is better.
    at : float or None
        Its parameter: β, the precision, or the level of the quantile.
    """

    name: str
    label: str
    task: str
    needs: str
    interval: str
    value: Callable[[Array, Predicted, float], float]
    constant: str
    unit: str = "number"
    more: bool = False
    at: float | None = None

    @property
    def key(self) -> str:
        """The name with its parameter, as :func:`find_metric` reads it."""
        return self.name if self.at is None else f"{self.name}@{self.at:g}"

    @property
    def measure(self) -> str:
        """What is measured, in words."""
        return _WORDS.get(self.name, self.label)

    def __call__(self, truth: Array, predicted: Predicted) -> float:
        """Its value on some rows; NaN where they do not define it."""
        return float(self.value(truth, predicted, self.at or 0.0))

    def loss(self, value: float) -> float:
        """The value, turned so that less is better."""
        return -value if self.more else value

    def show(self, value: float, digits: int = 3) -> str:
        """The value as people write it."""
        if self.unit == "share":
            return f"{100 * value:.1f} %"
        return number(value, digits)


def predict_rows(model: Any, X: Any, classes: Array | None, positive: Any) -> Predicted:
    """Ask a fitted model about rows; columns of shares follow ``classes``."""
    guess = np.asarray(model.predict(X))
    if classes is None:
        return Predicted(guess)
    if not hasattr(model, "predict_proba"):
        return Predicted(guess, None, classes, positive)
    found = np.asarray(model.predict_proba(X), dtype=np.float64)
    shares = np.zeros((len(found), len(classes)))
    shares[:, np.searchsorted(classes, np.asarray(model.classes_))] = found
    return Predicted(guess, shares, classes, positive)


# ---- labels ------------------------------------------------------------------------


def _error(truth: Array, said: Predicted, at: float) -> float:
    return float(np.mean(said.guess != truth))


def _balanced_error(truth: Array, said: Predicted, at: float) -> float:
    """Mean of the error rates of the labels."""
    rates = [np.mean(said.guess[truth == label] != label) for label in np.unique(truth)]
    return float(np.mean(rates))


def _log_loss(truth: Array, said: Predicted, at: float) -> float:
    return float(-np.mean(np.log(np.maximum(said.of_truth(truth), CLIP))))


def _brier(truth: Array, said: Predicted, at: float) -> float:
    own = said.of_truth(truth)
    squares = np.square(said.shares).sum(axis=1)  # type: ignore[arg-type]
    return float(np.mean(0.5 * (squares - 2 * own + 1)))


def _auc(truth: Array, said: Predicted, at: float) -> float:
    hit = truth == said.positive
    n, m = int(hit.sum()), int((~hit).sum())
    if not n or not m:
        return math.nan
    ranks = rankdata(said.chance)
    return float((ranks[hit].sum() - n * (n + 1) / 2) / (n * m))


def _operating_points(truth: Array, said: Predicted) -> tuple[Array, Array]:
    """Recall and precision at each distinct threshold, from the highest down."""
    hit, chance = truth == said.positive, said.chance
    order = np.argsort(-chance, kind="stable")
    last = np.append(np.diff(chance[order]) != 0, True)
    true = np.cumsum(hit[order])[last]
    return true / max(1, hit.sum()), true / (np.flatnonzero(last) + 1)


def _average_precision(truth: Array, said: Predicted, at: float) -> float:
    if not (truth == said.positive).any():
        return math.nan
    recall, precision = _operating_points(truth, said)
    return float(np.diff(recall, prepend=0.0) @ precision)


def _f_beta(truth: Array, said: Predicted, beta: float) -> float:
    hit, told = truth == said.positive, said.guess == said.positive
    true = float((hit & told).sum())
    b = beta * beta
    whole = (1 + b) * true + b * (hit & ~told).sum() + (~hit & told).sum()
    return (1 + b) * true / whole if whole else math.nan


def _recall(truth: Array, said: Predicted, least: float) -> float:
    """Largest recall of a threshold whose precision on these rows is high enough."""
    if not (truth == said.positive).any():
        return math.nan
    recall, precision = _operating_points(truth, said)
    return float(recall[precision >= least].max(initial=0.0))


# ---- amounts -----------------------------------------------------------------------


def _rmse(truth: Array, said: Predicted, at: float) -> float:
    return _root_mean_square(np.asarray(said.guess, float) - truth)


def _root_mean_square(residual: Array) -> float:
    """Scaled first, so that huge residuals do not overflow."""
    scale = float(np.abs(residual).max(initial=0.0))
    if not 0 < scale < math.inf:
        return scale
    return scale * float(np.sqrt(np.mean(np.square(residual / scale))))


def _mae(truth: Array, said: Predicted, at: float) -> float:
    return float(np.mean(np.abs(np.asarray(said.guess, float) - truth)))


def _r2(truth: Array, said: Predicted, at: float) -> float:
    truth = np.asarray(truth, float)
    spread = _root_mean_square(truth - truth.mean())
    if spread == 0:
        return math.nan
    return 1 - (_rmse(truth, said, at) / spread) ** 2


def _pinball(truth: Array, said: Predicted, level: float) -> float:
    short = truth - np.asarray(said.guess, float)
    return float(np.mean(np.maximum(level * short, (level - 1) * short)))


def _poisson(truth: Array, said: Predicted, at: float) -> float:
    z = np.asarray(said.guess, float)
    if not (z > 0).all():
        return math.inf
    return float(np.mean(2 * (xlogy(truth, truth / z) - truth + z)))


def _gamma(truth: Array, said: Predicted, at: float) -> float:
    z = np.asarray(said.guess, float)
    if not (z > 0).all():
        return math.inf
    return float(np.mean(2 * (np.log(z / truth) + truth / z - 1)))


# ---- which one ---------------------------------------------------------------------

_COUNT = "Clopper–Pearson"
_BOUNDED = "empirical Bernstein"
_BOOTSTRAP = "bootstrap (with bounds of the target: empirical Bernstein)"
_ABOVE_ZERO = "bootstrap (with bounds of the target above 0: empirical Bernstein)"

#: The metrics: name, label, task, needs, interval, value, constant, unit, more.
METRICS: Mapping[str, Metric] = {
    row.name: row
    for row in (
        Metric(
            "error",
            "error rate",
            "labels",
            "labels",
            _COUNT,
            _error,
            "most_frequent",
            "share",
        ),
        Metric(
            "balanced_error",
            "balanced error",
            "labels",
            "labels",
            f"joint {_COUNT}",
            _balanced_error,
            "most_frequent",
            "share",
        ),
        Metric(
            "log_loss",
            "log loss",
            "labels",
            "probabilities",
            _BOUNDED,
            _log_loss,
            "prior",
        ),
        Metric(
            "brier",
            "Brier score",
            "labels",
            "probabilities",
            _BOUNDED,
            _brier,
            "prior",
        ),
        Metric(
            "auc",
            "AUC",
            "two labels",
            "probabilities",
            "Hoeffding and Bernstein for U-statistics",
            _auc,
            "prior",
            more=True,
        ),
        Metric(
            "average_precision",
            "average precision",
            "two labels",
            "probabilities",
            "bands of the ROC curve",
            _average_precision,
            "prior",
            more=True,
        ),
        Metric(
            "f_beta",
            "F-beta",
            "two labels",
            "labels",
            f"joint {_COUNT}",
            _f_beta,
            "most_frequent",
            "number",
            True,
            1.0,
        ),
        Metric(
            "recall",
            "recall at a precision",
            "two labels",
            "probabilities",
            f"joint {_COUNT}",
            _recall,
            "prior",
            "share",
            True,
            0.9,
        ),
        Metric(
            "rmse",
            "RMSE",
            "amounts",
            "amounts",
            _BOOTSTRAP,
            _rmse,
            "mean",
            "target",
        ),
        Metric(
            "mae",
            "MAE",
            "amounts",
            "amounts",
            _BOOTSTRAP,
            _mae,
            "median",
            "target",
        ),
        Metric(
            "r2",
            "R²",
            "amounts",
            "amounts",
            _BOOTSTRAP,
            _r2,
            "mean",
            more=True,
        ),
        Metric(
            "pinball",
            "pinball loss",
            "amounts",
            "amounts",
            _BOOTSTRAP,
            _pinball,
            "quantile",
            "target",
            False,
            0.5,
        ),
        Metric(
            "poisson",
            "Poisson deviance",
            "amounts",
            "amounts",
            _ABOVE_ZERO,
            _poisson,
            "mean",
        ),
        Metric(
            "gamma",
            "gamma deviance",
            "amounts",
            "amounts",
            _ABOVE_ZERO,
            _gamma,
            "mean",
        ),
    )
}
#: What a metric measures, where its label does not say it.
_WORDS = {
    "error": "share of wrong labels",
    "balanced_error": "mean over labels of the share of wrong rows",
    "log_loss": "log loss, −ln of the probability given to the true label "
    f"(at least {CLIP:g})",
    "brier": "Brier score, half the squared distance of probabilities and truth",
    "auc": "AUC, how often a positive row has a higher score than a negative one",
    "rmse": "root mean square of prediction − truth",
    "mae": "mean of |prediction − truth|",
    "r2": "R², the share of the variance that is predicted",
}
_ALIASES = {
    "logloss": "log_loss",
    "cross_entropy": "log_loss",
    "roc_auc": "auc",
    "ap": "average_precision",
    "pr_auc": "average_precision",
    "accuracy": "error",
    "balanced_accuracy": "balanced_error",
    "brier_score": "brier",
    "f1": "f_beta@1",
    "f2": "f_beta@2",
    "mse": "rmse",
    "r²": "r2",
    "quantile": "pinball",
    "poisson_deviance": "poisson",
    "gamma_deviance": "gamma",
}


def find_metric(name: str, task: str) -> Metric:
    """The metric of that name, if it can judge this task.

    Parameters
    ----------
    name : str
        A key of ``METRICS``, with ``@`` and a number where it has a parameter:
        ``"f_beta@2"``, ``"recall@0.9"``, ``"pinball@0.9"``.
    task : {"regression", "binary", "multiclass"}

    Examples
    --------
    >>> from certus.selection.metrics import find_metric
    >>> find_metric("pinball@0.9", "regression").at, find_metric("f2", "binary").label
    (0.9, 'F2 score')
    """
    if not isinstance(name, str):
        raise ValueError(f"metric must be a name, got {name!r}.")
    asked = name.strip().lower().replace("-", "_").replace(" ", "_")
    base, _, rest = _ALIASES.get(asked, asked).partition("@")
    base = _ALIASES.get(base, base)
    fits = [row.name for row in METRICS.values() if _fits(row, task)]
    if base not in METRICS:
        near = difflib.get_close_matches(base, fits, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(
            f"metric must be one of {', '.join(fits)}, got {name!r}.{hint}"
        )
    row = METRICS[base]
    if not _fits(row, task):
        what = {"regression": "amounts", "binary": "two labels"}.get(
            task, "more than two labels"
        )
        raise ValueError(
            f"{row.name} is a metric for {row.task}, but the target holds {what}. Use "
            f"one of {', '.join(fits)}."
        )
    return _with_parameter(row, rest, name)


def _fits(row: Metric, task: str) -> bool:
    if task == "regression":
        return row.task == "amounts"
    return row.task == "labels" or (row.task == "two labels" and task == "binary")


def _with_parameter(row: Metric, text: str, name: str) -> Metric:
    if not text:
        at = row.at
    elif row.at is None:
        raise ValueError(f"{row.name} has no parameter; leave out what follows the @.")
    else:
        try:
            at = float(text)
        except ValueError:
            at = math.nan
        most = math.inf if row.name == "f_beta" else 1.0
        if not (0 < at < most and math.isfinite(at)):
            room = "above 0" if row.name == "f_beta" else "between 0 and 1"
            raise ValueError(f"the number after @ must be {room}, got {name!r}.")
    if at is None:
        return row
    label = {
        "f_beta": f"F{at:g} score",
        "recall": f"recall at precision {at:g}",
        "pinball": f"pinball loss at {at:g}",
    }[row.name]
    return row._replace(at=at, label=label)


def default_metric(task: str, y: Array) -> tuple[Metric, str]:
    """The metric for a task, and a remark if the targets decided it.

    Log loss for labels. For amounts RMSE; MAE where the tails are heavy: the 1 % of
    the rows that are farthest from the median hold more than half of all squared
    distances, so that a few rows would decide which model is chosen.

    Parameters
    ----------
    task : {"regression", "binary", "multiclass"}
    y : array of shape (n,)
        The targets that models learn from.
    """
    if task != "regression":
        return METRICS["log_loss"], ""
    away = np.abs(np.asarray(y, float) - np.median(y))
    top = float(away.max(initial=0.0))
    if not 0 < top < math.inf or len(away) < 20:
        return METRICS["rmse"], ""
    squares = np.sort(np.square(away / top))[::-1]
    few = max(1, int(_FEW * len(squares)))
    if squares[:few].sum() <= _MOST * squares.sum():
        return METRICS["rmse"], ""
    rows = "1 row holds" if few == 1 else f"{few:,} rows hold"
    return METRICS["mae"], (
        f"{rows} more than half of all squared distances from the median, so models "
        "are compared by the mean absolute error. Use --metric rmse for squares."
    )


def check_targets(metric: Metric, y: Array) -> None:
    """Raise an error if a deviance is asked of targets that it does not allow."""
    least = {"poisson": 0.0, "gamma": 0.0}.get(metric.name)
    if least is None:
        return
    low = float(np.min(y))
    if low < 0 or (metric.name == "gamma" and low == 0):
        room = "positive" if metric.name == "gamma" else "at least 0"
        raise ValueError(
            f"{metric.name} needs targets that are {room}, got {low:.6g}. Use rmse or "
            "mae instead."
        )
