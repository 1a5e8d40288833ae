"""Accuracy against gap along a parameter: the cost of equal rates.

Each value of the parameter is a model fitted on some rows and judged on others: its
accuracy there with an exact interval, and its largest difference between groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from certus.base import check_choice, take
from certus.bounds import clopper_pearson
from certus.fairness.fitting import decide, fit_sensitive
from certus.fairness.measures import independence, separation, sufficiency
from certus.fairness.table import GroupTable
from certus.results import TableResult, new_figure
from certus.typing import Array, ArrayLike, Axes, Fit, MatrixLike, RandomState

#: How decisions are judged.
MEASURES = ("independence", "separation", "sufficiency")


@dataclass(frozen=True, repr=False)
class Frontier(TableResult):
    """What :func:`frontier` found.

    Attributes
    ----------
    parameter : str
        What was varied.
    values : tuple
        Its values.
    criterion : str
        Which rates the differences compare.
    accuracy : ndarray of shape (n_values,)
        Share of held-out rows decided rightly; ``low`` and ``high`` are the ends of
        intervals that all hold together with probability 1 − ``delta``.
    difference : ndarray of shape (n_values,)
        Largest difference between two groups on the same rows.
    tables : tuple of GroupTable
        All rates by group.
    models : tuple of estimators
        The fitted models.
    """

    parameter: str
    values: tuple[Any, ...]
    criterion: str
    accuracy: Array
    low: Array
    high: Array
    difference: Array
    tables: tuple[GroupTable, ...]
    models: tuple[Any, ...] = field(repr=False)
    delta: float

    @property
    def efficient(self) -> Array:
        """Whether no other value was as good in both and better in one."""
        a, d = self.accuracy, np.nan_to_num(self.difference)
        better = (a[:, None] >= a) & (d[:, None] <= d)
        strictly = (a[:, None] > a) | (d[:, None] < d)
        return np.asarray(~np.any(better & strictly, axis=0))

    def __str__(self) -> str:
        room = max(12, len(self.parameter))
        lines = [f"{self.parameter:>{room}}  {'accuracy':<19}  difference"]
        rows = zip(self.values, self.accuracy, self.low, self.high, self.difference)
        for keep, (value, a, low, high, d) in zip(self.efficient, rows):
            mark = "" if keep else "  (another is at least as good in both)"
            said = f"{value:.4g}" if isinstance(value, float) else str(value)
            lines.append(
                f"{said:>{room}}  {a:.3f} ({low:.3f}–{high:.3f})  {d:.3f}{mark}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:  # the prompt shows the text
        return str(self)

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw accuracy against the difference between groups.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on; None means a new figure.

        Returns
        -------
        matplotlib axes
        """
        if ax is None:
            ax = new_figure().subplots()
        keep = self.efficient
        order = np.flatnonzero(keep)[np.argsort(self.difference[keep])]
        ax.vlines(self.difference, self.low, self.high, color="#30638e", alpha=0.3)
        ax.plot(self.difference[order], self.accuracy[order], "o-", color="#30638e")
        rest = ~keep
        ax.plot(
            self.difference[rest], self.accuracy[rest], "o", mfc="none", c="#777777"
        )
        for value, x, y in zip(self.values, self.difference, self.accuracy):
            said = f"{value:.3g}" if isinstance(value, float) else str(value)
            ax.annotate(said, (x, y), (4, 5), textcoords="offset points", fontsize=8)
        ax.set(xlabel=f"largest difference ({self.criterion})", ylabel="accuracy")
        ax.set_title(f"each point: a value of {self.parameter}", loc="left", fontsize=9)
        ax.set_xlim(left=min(0.0, ax.get_xlim()[0]))
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def _columns(self) -> Mapping[str, Any]:
        names = ("accuracy", "low", "high", "difference")
        return {self.parameter: self.values, **{n: getattr(self, n) for n in names}}


def frontier(
    estimator: Fit,
    X: MatrixLike,
    y: ArrayLike,
    sensitive: MatrixLike,
    parameter: str,
    values: Iterable[Any],
    *,
    criterion: str = "separation",
    held_out: tuple[Any, Any, Any] | None = None,
    test_size: float = 0.3,
    delta: float = 0.05,
    random_state: RandomState = None,
) -> Frontier:
    """Accuracy and gap of an estimator for several values of a parameter.

    Parameters
    ----------
    estimator : classifier
        An intervention of this module, a pipeline that holds one, or any other. Where
        ``fit`` or ``predict`` take ``sensitive`` they are given it.
    X, y, sensitive : array-like
        Rows, labels and attribute.
    parameter : str
        Name of a parameter, such as ``"max_difference"``, ``"alpha"`` or
        ``"decorrelation__alpha"``.
    values : iterable
        Its values.
    criterion : {"independence", "separation", "sufficiency"}, default="separation"
        Which difference is measured.
    held_out : (X, y, sensitive), optional
        Rows to judge on; by default a share ``test_size`` is set apart.
    test_size : float, default=0.3
        Share of rows to judge on.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. The statement
        is that all intervals of the accuracies hold.
    random_state : int, optional
        Seed or generator of all random numbers. They decide which rows are set apart.

    Returns
    -------
    Frontier

    Examples
    --------
    >>> import numpy as np
    >>> from certus.fairness import CovariancePenalty, frontier
    >>> from certus.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> group = rng.choice(["a", "b"], 2000)
    >>> X = rng.normal(size=(2000, 2)) + (group == "b")[:, None] * [2.0, 0.0]
    >>> y = (X.sum(axis=1) + rng.normal(size=2000) > 1).astype(int)
    >>> model = CovariancePenalty(LogisticRegression())
    >>> found = frontier(model, X, y, group, "alpha", [0.0, 1.0, 100.0],
    ...                  criterion="independence", random_state=0)
    >>> bool(found.difference[0] > found.difference[1] > found.difference[2])
    True
    >>> bool(found.accuracy[0] > found.accuracy[2])
    True
    """
    check_choice("criterion", criterion, MEASURES)
    values = tuple(values)
    if not values:
        raise ValueError(f"values is empty; pass some values of {parameter}.")
    if parameter not in estimator.get_params():
        raise ValueError(
            f"{type(estimator).__name__} has no parameter {parameter!r}. It has "
            f"{', '.join(sorted(estimator.get_params(deep=False)))}."
        )
    fit_on, judged = _split(X, y, sensitive, held_out, test_size, random_state)
    truth = np.asarray(judged[1])
    tables, models, intervals = [], [], []
    for value in values:
        model = clone(estimator).set_params(**{parameter: value})
        models.append(fit_sensitive(model, *fit_on))
        decided = decide(models[-1], judged[0], judged[2])
        tables.append(_table(criterion, truth, decided, judged[2]))
        right = int(np.sum(decided == truth))
        intervals.append(clopper_pearson(right, len(truth), delta, models=len(values)))
    return Frontier(
        parameter,
        values,
        criterion,
        np.array([each.value for each in intervals]),
        np.array([each.low for each in intervals]),
        np.array([each.high for each in intervals]),
        np.array([table.difference for table in tables]),
        tuple(tables),
        tuple(models),
        delta,
    )


def _split(
    X: Any,
    y: ArrayLike,
    sensitive: MatrixLike,
    held_out: Any,
    test_size: float,
    random_state: RandomState,
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    if held_out is not None:
        if len(held_out) != 3:
            raise ValueError("held_out must be a tuple of three: X, y and sensitive.")
        return (X, y, sensitive), held_out
    n = len(np.asarray(y))
    sizes = {"X": X.shape[0] if hasattr(X, "shape") else len(X)}
    sizes["sensitive"] = len(np.asarray(sensitive, dtype=object))
    for name, size in sizes.items():
        if size != n:
            raise ValueError(f"{name} has {size:,} rows and y has {n:,}.")
    rows = train_test_split(
        np.arange(n), test_size=test_size, random_state=random_state, stratify=y
    )
    first, second = ((take(X, i), take(y, i), take(sensitive, i)) for i in rows)
    return first, second


def _table(
    criterion: str, truth: Array, decided: Array, sensitive: MatrixLike
) -> GroupTable:
    if criterion == "independence":
        return independence(decided, sensitive)
    measure = separation if criterion == "separation" else sufficiency
    return measure(truth, decided, sensitive)
