"""Multi-task learning: one body, one head for each task.

    Σ_t wₜ · mean over rows of [yₜ is known] ℓₜ(yₜ, fₜ(x))

The heads are the last linear layer, a block of its rows for each task; the gradient of
what they share is the sum of the tasks' gradients. Rows may lack the targets of some
tasks: what few of them teach about one task helps the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Unpack

import numpy as np
import torch
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_consistent_length
from torch import Tensor, nn

from certus._core.rows import known_codes
from certus.base import as_array, certified_fit, check_choice, class_codes
from certus.neural_network.estimator import NeuralModel
from certus.neural_network.neural import OwnModule
from certus.neural_network.objective import Targets, cross_entropy, squared
from certus.neural_network.parameters import TrainingOptions, trained_with
from certus.typing import ArrayLike, MatrixLike

KINDS = ("classes", "numbers")


class Tasks(NeuralModel):
    """Targets that are a table with one column for each task; abstract."""

    loss: Any = "auto"  # each kind of task has its own

    def _read_y(self, y: ArrayLike, reset: bool) -> Targets:
        table = _table(y)
        if reset:
            self.tasks_ = self._kinds(table)
            self.classes_: list[Any] = [None] * len(self.tasks_)
        elif table.shape[1] != len(self.tasks_):
            raise ValueError(
                f"y has {table.shape[1]} columns, but the model was fitted on "
                f"{len(self.tasks_)} tasks."
            )
        columns = [self._column(table, t, reset) for t in range(len(self.tasks_))]
        weights = self._task_weights()
        ends = np.cumsum([0, *self._widths()])

        def loss(z: Tensor, y: Tensor) -> Tensor:
            total = torch.zeros(len(z), dtype=z.dtype, device=z.device)
            for t, kind in enumerate(self.tasks_):
                known = ~torch.isnan(y[:, t])
                part, wanted = z[known, ends[t] : ends[t + 1]], y[known, t]
                if kind == "classes":
                    rows = cross_entropy(part, wanted.long())
                else:
                    rows = squared(part, wanted)
                total[known] += weights[t] * rows
            return total

        return Targets(torch.as_tensor(np.stack(columns, axis=1)), loss, int(ends[-1]))

    def _kinds(self, table: np.ndarray) -> list[str]:
        n = table.shape[1]
        kinds = self.tasks
        if kinds == "auto":
            return [_guess(table[:, t]) for t in range(n)]
        kinds = list(kinds) if isinstance(kinds, list | tuple) else [kinds] * n
        for kind in kinds:
            check_choice("tasks", kind, KINDS)
        if len(kinds) != n:
            raise ValueError(f"tasks names {len(kinds)} tasks, but y has {n} columns.")
        return kinds

    def _task_weights(self) -> list[float]:
        n = len(self.tasks_)
        given = [1.0] * n if self.task_weights is None else self.task_weights
        plain = isinstance(given, list | tuple | np.ndarray) and len(given) == n
        fine = plain and all(
            isinstance(w, Real) and 0 <= float(w) < np.inf for w in given
        )
        if not fine or not any(given):
            raise ValueError(
                f"task_weights must hold {n} numbers, not negative and not all zero; "
                f"got {self.task_weights!r}."
            )
        return [float(w) for w in given]

    def _column(self, table: np.ndarray, t: int, reset: bool) -> np.ndarray:
        """The targets of a task as numbers; NaN where they are missing."""
        values = table[:, t]
        known = ~_missing(values)
        if reset and not known.any():
            raise ValueError(f"Column {t} of y has no values. Leave it out.")
        column = np.full(len(values), np.nan)
        if self.tasks_[t] == "numbers":
            try:
                column[known] = values[known].astype(np.float64)
            except (TypeError, ValueError):
                raise ValueError(
                    f"Column {t} of y must hold numbers. If it holds labels, name its "
                    "task 'classes'."
                ) from None
            if not np.isfinite(column[known]).all():
                raise ValueError(f"Column {t} of y contains infinity.")
            return column
        labels = np.array(values[known].tolist())
        if reset:
            self.classes_[t], column[known] = class_codes(labels)
        else:
            column[known] = known_codes(labels, self.classes_[t])
        return column

    def _widths(self) -> list[int]:
        return [1 if known is None else len(known) for known in self.classes_]

    def _heads(self, z: np.ndarray) -> list[np.ndarray]:
        """The outputs of each task."""
        return np.split(z, np.cumsum(self._widths())[:-1], axis=1)

    def _misfit(self, z: Tensor, targets: Targets) -> str:
        wanted = (len(z), targets.outputs)
        return "" if z.shape == wanted else f"shape {wanted}, the heads side by side"

    def _grade(self, z: Tensor, y: Tensor, s: Tensor | None) -> float:
        found, wanted, weight = self._decide(as_array(z)), as_array(y), as_array(s)
        return _mean_score(found, wanted, self.tasks_, weight)

    def _decide(self, z: np.ndarray) -> list[np.ndarray]:
        """Class numbers or numbers, for each task."""
        return [
            head[:, 0] if known is None else head.argmax(axis=1)
            for head, known in zip(self._heads(z), self.classes_)
        ]

    def predict(self, X: MatrixLike) -> np.ndarray:
        """Predictions of all tasks.

        Parameters
        ----------
        X : array-like
            Rows like those of the fit.

        Returns
        -------
        ndarray of shape (n_samples, n_tasks)
            Numbers; objects, where the labels of some task are not numbers.
        """
        found = self._decide(self._outputs(X))
        columns = [
            part if known is None else known[part]
            for part, known in zip(found, self.classes_)
        ]
        plain = all(column.dtype.kind in "iuf" for column in columns)
        table = np.empty((len(columns[0]), len(columns)), float if plain else object)
        for t, column in enumerate(columns):
            table[:, t] = column
        return table

    def predict_proba(self, X: MatrixLike) -> list[np.ndarray | None]:
        """Probabilities of the classes of each task.

        Parameters
        ----------
        X : array-like
            Rows like those of the fit.

        Returns
        -------
        list of ndarray of shape (n_samples, n_classes)
            For each task, in the order of ``classes_``; None for tasks of numbers.
        """
        return [
            None if known is None else torch.softmax(torch.as_tensor(z), 1).numpy()
            for z, known in zip(self._heads(self._outputs(X)), self.classes_)
        ]

    def score(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Mean over tasks of the accuracy, or of R² for numbers.

        Parameters
        ----------
        X, y : array-like
            Rows and their targets; missing ones are left out.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.

        Returns
        -------
        float
            Score.
        """
        found = self._decide(self._outputs(X))
        wanted = self._read_y(y, reset=False).y.numpy()
        check_consistent_length(found[0], wanted, sample_weight)
        return _mean_score(found, wanted, self.tasks_, sample_weight)


@trained_with(TrainingOptions)
class MultiTaskNetwork(OwnModule, Tasks):
    """Trains one network for several tasks at once, classes and numbers mixed.

    Objective
    ---------
    Σ_t wₜ Σᵢ sᵢ [yᵢₜ is known] ℓₜ(yᵢₜ, fₜ(xᵢ)) / Σ s: the cross entropy for classes,
    ½(y − f)² for numbers.

    Certificate
    -----------
    As for :class:`certus.neural_network.NeuralClassifier`, all of it MEASURED.

    Parameters
    ----------
    module : nn.Module or callable
        The network to train, or a function that makes it. It has the outputs of all
        heads side by side, one for each class of a task of classes and one for a task
        of numbers. A function is called as ``module(n_inputs, n_outputs)``.
    tasks : "auto", str or list of str, default="auto"
        "classes" or "numbers" for each column of y. "auto" takes columns of fractions
        for numbers and all others for classes.
    task_weights : list of float, default=None
        wₜ; 1 if None.
    {shared}

    Attributes
    ----------
    module_ : nn.Module
        The trained module, in evaluation mode.
    tasks_ : list of str
        Kinds of the tasks.
    classes_ : list
        Classes of each task; None for numbers.
    history_, n_iter_, loss_, best_epoch_, certificate_
        As for :class:`certus.neural_network.NeuralClassifier`. The validation score is
        the mean over tasks of accuracy and R².

    Examples
    --------
    >>> import numpy as np
    >>> from certus.neural_network import MultiTaskNetwork
    >>> from certus.neural_network.modules import MLP
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> radius = np.hypot(*X.T)
    >>> y = np.column_stack([radius > 1, radius])
    >>> y[::2, 0] = np.nan  # half the rows have no class
    >>> model = MultiTaskNetwork(
    ...     lambda n, k: MLP(n, 32, k),
    ...     learning_rate=0.01,
    ...     schedule="cosine",
    ...     random_state=0,
    ... ).fit(X, y)
    >>> model.tasks_, model.predict(X).shape, model.score(X, y) > 0.9
    (['classes', 'numbers'], (300, 2), True)
    """

    def __init__(
        self,
        module: nn.Module | Callable[..., nn.Module],
        *,
        tasks: str | Sequence[str] = "auto",
        task_weights: Sequence[float] | None = None,
        **shared: Unpack[TrainingOptions],
    ) -> None: ...

    @certified_fit
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: MatrixLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Any:
        """Train the module.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, ...)
            Rows.
        y : array-like of shape (n_samples, n_tasks)
            Targets; NaN or None where one is missing.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        X_val, y_val : array-like, optional
            Rows of your own to stop by.

        Returns
        -------
        MultiTaskNetwork
            Itself.
        """
        return self._fit(X, y, sample_weight, X_val, y_val)


def _table(y: ArrayLike) -> np.ndarray:
    if y is None:
        raise ValueError(
            "MultiTaskNetwork requires y to be passed, but the target y is None."
        )
    y = as_array(y)
    table = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if table.ndim != 2 or table.size == 0:
        raise ValueError(
            f"y has shape {table.shape}; pass a table with one column for each task."
        )
    return table


def _missing(values: np.ndarray) -> np.ndarray:
    """Where a column holds NaN or None."""
    return np.array([v is None or v != v for v in values.tolist()], dtype=bool)


def _guess(values: np.ndarray) -> str:
    """Numbers, if some are fractions; else classes."""
    known = values[~_missing(values)].tolist()
    numeric = all(isinstance(v, int | float) for v in known)
    return "numbers" if numeric and any(v != round(v) for v in known) else "classes"


def _mean_score(
    found: list[np.ndarray], wanted: np.ndarray, kinds: list[str], s: ArrayLike | None
) -> float:
    scores = []
    for t, kind in enumerate(kinds):
        known = ~np.isnan(wanted[:, t])
        if known.sum() < (1 if kind == "classes" else 2):
            continue
        measure = accuracy_score if kind == "classes" else r2_score
        weight = None if s is None else np.asarray(s)[known]
        pair = wanted[known, t], found[t][known]
        scores.append(measure(*pair, sample_weight=weight))
    return float(np.mean(scores)) if scores else float("nan")
