"""How well the sensitive attribute can be recovered from the other columns.

Leaving the attribute out of the table does not hide it: columns that say little alone
may say much together. A classifier is fitted to predict it and judged on rows it has
not seen. If it succeeds, anyone can recover the attribute; if it fails, another model
may still succeed.

With K folds the mean over folds of the area under the curve deviates from its mean by
more than t with probability at most 2·exp(−2m·t²), m the fewest rows of a group, or of
all others, in a fold: the bound of Hoeffding for each fold (for U-statistics), and the
exponential is convex, so that it holds for their mean although folds share rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline

from certus.base import generator_of, take
from certus.bounds import hoeffding
from certus.bounds.intervals import check_count, check_delta
from certus.config import config_context
from certus.fairness.gaps import floor
from certus.fairness.groups import groups_of
from certus.fairness.table import words
from certus.linear_model import LogisticRegression
from certus.results import TableResult, draw_intervals
from certus.tables import TableEncoder
from certus.typing import Array, Axes, Fit, MatrixLike, RandomState

_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Recovery(TableResult):
    """How well an attribute was recovered from other columns.

    Attributes
    ----------
    groups : tuple
        The groups, as in a :class:`GroupTable`.
    counts : ndarray of shape (n_groups,)
        Rows of each.
    auc, auc_low, auc_high : ndarray of shape (n_groups,)
        Probability that a row of the group scores above a row of the others, on rows
        not fitted on, and its interval for new rows: mean over the fits. One half is
        chance, one is certainty.
    accuracy, accuracy_low, accuracy_high : float
        Share of rows whose group was guessed, and its interval.
    chance : float
        Accuracy of always guessing the largest group.
    columns : tuple of (str, float)
        The columns that tell most by themselves, with the area under the curve of
        each alone, in the sample; empty if columns are not numbers.
    folds : int
    delta : float
        Failure probability: the chance that the statement does not hold. The statement
        is that all intervals hold.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.fairness import recovery
    >>> rng = np.random.default_rng(0)
    >>> member = rng.integers(0, 2, 1000)
    >>> X = np.column_stack([member, rng.normal(size=1000)])
    >>> print(recovery(X, member, random_state=0))
    the attribute can be recovered: for 0 the area under the curve is at least 0.838
      0: 1.000 (0.839 to 1.000)
      1: 1.000 (0.839 to 1.000)
      guessed correctly: 1.000 (0.891 to 1.000); always guessing the largest
      group: 0.537
      each column by itself: x0 1.00, x1 0.53
    """

    groups: tuple[Any, ...]
    counts: Array
    auc: Array
    auc_low: Array
    auc_high: Array
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    chance: float
    columns: tuple[tuple[str, float], ...]
    folds: int
    delta: float

    @property
    def verdict(self) -> str:
        """The finding, in words."""
        best = int(np.argmax(self.auc_low))
        if self.auc_low[best] > 0.5:
            return (
                f"the attribute can be recovered: for {words(self.groups[best])} the "
                f"area under the curve is at least {floor(self.auc_low[best])}"
            )
        turned = int(np.argmin(self.auc_high))
        if self.auc_high[turned] < 0.5:
            return (
                "the attribute can be recovered from the negated scores: for "
                f"{words(self.groups[turned])} the area under the curve is then at "
                f"least {floor(1 - self.auc_high[turned])}"
            )
        worst = float(max(self.auc_high.max(), 1 - self.auc_low.min()))
        if worst < 0.6:
            return (
                "this model can hardly recover the attribute: the area under the "
                "curve is "
            ) + (f"at most {math.ceil(1000 * worst) / 1000:g}")
        return "too few rows to say whether the attribute can be recovered"

    def __str__(self) -> str:
        lines = [self.verdict]
        for group, v, a, b in zip(self.groups, self.auc, self.auc_low, self.auc_high):
            lines.append(f"  {words(group)}: {v:.3f} ({a:.3f} to {b:.3f})")
        ends = f"{self.accuracy_low:.3f} to {self.accuracy_high:.3f}"
        lines.append(
            f"  guessed correctly: {self.accuracy:.3f} ({ends}); always guessing the "
            f"largest group: {self.chance:.3f}"
        )
        if self.columns:
            said = ", ".join(f"{name} {value:.2f}" for name, value in self.columns)
            lines.append(f"  each column by itself: {said}")
        return "\n".join(lines)

    def __repr__(self) -> str:  # the prompt shows the text; the data are in to_dict()
        return str(self)

    def _columns(self) -> Mapping[str, Any]:
        groups = [str(group) for group in self.groups]
        names = ("counts", "auc", "auc_low", "auc_high")
        return {"group": groups, **{name: getattr(self, name) for name in names}}

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw the area under the curve of each group; returns the axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; None means a new figure.
        """
        names = [str(group) for group in self.groups]
        ends = self.auc_low, self.auc_high
        return draw_intervals(names, self.auc, *ends, "area under the curve", ax)


def recovery(
    X: Any,
    sensitive: MatrixLike,
    *,
    estimator: Fit | None = None,
    folds: int = 5,
    delta: float = 0.05,
    random_state: RandomState = None,
) -> Recovery:
    """How well the attribute can be recovered from the columns of a table.

    Parameters
    ----------
    X : data frame or array of shape (n_samples, n_features)
        The columns a model would see, without the attribute.
    sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The attribute, or several: then their combinations are recovered.
    estimator : classifier, optional
        With ``predict_proba`` or ``decision_function``; by default certus's logistic
        regression on the encoded table.
    folds : int, default=5
        Fewer where a group has fewer rows.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. The statement
        is that all intervals hold.
    random_state : int, Generator or None, default=None
        Seed or generator of all random numbers. They decide which rows are in which
        fold.

    Returns
    -------
    Recovery

    Examples
    --------
    >>> import numpy as np
    >>> from certus.fairness import recovery
    >>> rng = np.random.default_rng(0)
    >>> member = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 30)) + 0.4 * member[:, None]
    >>> found = recovery(X, member, random_state=0)
    >>> print(found.verdict)
    the attribute can be recovered: for 0 the area under the curve is at least 0.828
    >>> round(max(value for _, value in found.columns), 2)  # no column tells much
    0.63
    """
    check_delta(delta)
    folds = check_count("folds", folds, 2)
    if not (hasattr(X, "shape") or hasattr(X, "columns")):
        X = np.asarray(X)
    if len(X.shape) != 2 or not X.shape[1]:
        raise ValueError(f"X has shape {tuple(X.shape)}; pass a table with columns.")
    X = X.tocsr() if sparse.issparse(X) else X
    groups = groups_of(sensitive, int(X.shape[0]))
    _check_groups(groups.labels, groups.counts)
    folds = min(folds, int(groups.counts.min()))
    model = estimator
    if model is None:
        model = make_pipeline(TableEncoder(), LogisticRegression())
    y, k = groups.members, len(groups.labels)
    with config_context(certify="never"):
        found = [
            _judge(model, X, y, k, *part) for part in _deal(y, folds, random_state)
        ]
    auc = np.mean([each[0] for each in found], axis=0)
    accuracy = float(np.mean([each[1] for each in found]))
    # The smallest fold has the widest bound, and the mean is no wider than that.
    fewest = np.min([each[2] for each in found], axis=0)
    half = [hoeffding(int(m), delta, models=k + 1) for m in fewest]
    share = hoeffding(len(y) // folds, delta, models=k + 1)
    return Recovery(
        groups.labels,
        groups.counts,
        auc,
        np.maximum(auc - half, 0.0),
        np.minimum(auc + half, 1.0),
        accuracy,
        max(0.0, accuracy - share),
        min(1.0, accuracy + share),
        float(groups.counts.max() / len(y)),
        _alone(X, y, k),
        folds,
        float(delta),
    )


def _deal(y: Array, folds: int, random_state: RandomState) -> Any:
    """Rows to fit on and rows to judge by, groups dealt evenly."""
    seed = int(generator_of(random_state).integers(2**31))
    deal = StratifiedKFold(folds, shuffle=True, random_state=seed)
    return deal.split(np.zeros(len(y)), y)


def _judge(
    model: Fit, X: MatrixLike, y: Array, k: int, train: Array, test: Array
) -> tuple[list[float], float, Array]:
    """Areas by group, the share guessed right, and the fewest rows of each side."""
    fitted = clone(model).fit(take(X, train), y[train])
    scores = _scores(fitted, take(X, test))
    if np.isnan(scores).any():
        raise ValueError(
            f"The scores of {type(fitted).__name__} hold NaN. Use an estimator that "
            "scores every row."
        )
    areas = [area(scores[:, a], y[test] == a) for a in range(k)]
    counts = np.bincount(y[test], minlength=k)
    right = float(np.mean(scores.argmax(axis=1) == y[test]))
    return areas, right, np.minimum(counts, len(test) - counts)


def _check_groups(labels: tuple[Any, ...], counts: Array) -> None:
    if len(labels) < 2:
        raise ValueError(
            "The attribute has only one value, so there is nothing to recover."
        )
    if counts.min() < 2:
        rare = words(labels[int(counts.argmin())])
        raise ValueError(
            f"The group {rare!r} has a single row, which cannot be used for both "
            "fitting and testing. Merge rare groups first."
        )


def _scores(model: Fit, X: MatrixLike) -> Array:
    """One column of scores for each group."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X), dtype=float)
    if not hasattr(model, "decision_function"):
        raise ValueError(
            f"{type(model).__name__} gives labels only; use a classifier with "
            "predict_proba or decision_function."
        )
    found = np.asarray(model.decision_function(X), dtype=float)
    return np.column_stack([-found, found]) if found.ndim == 1 else found


def area(scores: Array, positive: Array) -> float:
    """Area under the ROC curve: P(positive above negative), ties by half."""
    ranks = rankdata(scores)
    n, m = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * m))


def _alone(X: MatrixLike, y: Array, k: int) -> tuple[tuple[str, float], ...]:
    """The area that the most informative columns reach alone; at least ½."""
    if sparse.issparse(X):
        return ()
    encoder = TableEncoder(sparse_output=False)
    matrix = encoder.fit_transform(X)
    names = [str(name) for name in encoder.get_feature_names_out()]
    best = []
    for name, column in zip(names, np.asarray(matrix).T):
        each = [area(column, y == a) for a in range(k)]
        best.append((name, max(max(each), 1 - min(each))))
    return tuple(sorted(best, key=lambda pair: -pair[1])[:_SHOWN])
