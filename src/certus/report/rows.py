"""The rows of an audit: select some, and compute the error of a model on them.

Tables may be arrays, sparse matrices, pandas or polars frames. The error is the metric
that was asked for, in its own units; for some metrics more is better.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from scipy import sparse

from certus.selection.metrics import Metric, Predicted, predict_rows
from certus.typing import Array
from certus.wording import number, shorten

__all__ = [
    "PredictionTask",
    "TableRows",
    "column_names",
    "deviation",
    "make_rows",
    "take",
]


class PredictionTask(NamedTuple):
    """What is predicted, and by which metric it is judged.

    ``labels`` says whether labels are predicted, ``target`` is the name of the target;
    ``classes`` are all labels, ``positive`` is the one that metrics of two are about.
    """

    labels: bool
    target: str
    metric: Metric
    classes: Array | None = None
    positive: Any = None

    @property
    def measure(self) -> str:
        """What the metric is, in words."""
        words = self.metric.measure
        if self.metric.unit == "target":
            return f"{words}, in units of {self.quoted}"
        return words

    @property
    def quoted(self) -> str:
        """The target as written in a sentence."""
        return f"“{shorten(self.target)}”" if self.target else "the target"

    @property
    def percent(self) -> bool:
        """Whether values are shares."""
        return self.metric.unit == "share"

    @property
    def constant(self) -> str:
        """The answer that the constant gives, in words."""
        return {
            "mean": "the mean",
            "median": "the median",
            "quantile": "one quantile",
            "most_frequent": "the most frequent label",
            "prior": "the shares of the labels",
        }[self.metric.constant]

    def ask(self, model: Any, X: Any) -> Predicted:
        """What a model says about rows."""
        return predict_rows(model, X, self.classes, self.positive)

    def error(self, truth: Array, said: Predicted) -> float:
        """The metric on some rows."""
        if not self.labels:
            truth = np.asarray(truth, float)
        return self.metric(truth, said)

    def always(self, y: Array, count: int) -> Predicted:
        """The best constant answer for targets y, given that many times."""
        if self.classes is None:
            y, at = np.asarray(y, float), self.metric.at
            how = self.metric.constant
            best = np.mean(y) if how == "mean" else np.quantile(y, at or 0.5)
            return Predicted(np.full(count, best))
        counts = np.array([np.count_nonzero(y == label) for label in self.classes])
        shares = np.tile(counts / counts.sum(), (count, 1))
        guess = np.full(count, self.classes[int(counts.argmax())])
        return Predicted(guess, shares, self.classes, self.positive)

    def show(self, error: float, digits: int = 3) -> str:
        """A value of the metric as people write it."""
        if self.percent:
            return f"{number(100 * error, 2)} %"
        return number(error, digits)


class TableRows(NamedTuple):
    """Some rows of a table and their targets; ``kind`` says which in words."""

    X: Any
    y: Array
    kind: str = ""

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.y)

    def take(self, index: Array) -> TableRows:
        """Those rows only."""
        return TableRows(take(self.X, index), self.y[index], self.kind)

    def sample(self, most: int, rng: np.random.Generator) -> TableRows:
        """At most that many rows, at random but in their order."""
        if self.size <= most:
            return self
        return self.take(np.sort(rng.choice(self.size, most, replace=False)))


def make_rows(X: Any, y: Any, kind: str) -> TableRows:
    """Check that the table and the target belong together and have no holes in y."""
    if not (sparse.issparse(X) or hasattr(X, "columns") or isinstance(X, np.ndarray)):
        X = np.asarray(X)
    if sparse.issparse(X):
        X = X.tocsr()
    elif not hasattr(X, "__getitem__") or type(X).__module__.startswith("pyarrow"):
        X = nw.from_native(X, eager_only=True).to_polars()
    truth = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if truth.ndim == 2 and truth.shape[1] == 1:
        truth = truth[:, 0]
    if truth.ndim != 1:
        raise ValueError(
            f"y has shape {truth.shape}; an audit needs a single target. Audit the "
            "columns of y one at a time."
        )
    if truth.dtype.kind in "UT":
        truth = truth.astype(object)
    if X.shape[0] != len(truth):
        raise ValueError(
            f"X has {X.shape[0]:,} rows, but y has {len(truth):,}: they must be equal."
        )
    if len(truth) == 0:
        raise ValueError("X has no rows. Pass the rows the model was fitted on.")
    holes = sum(v is None or v != v for v in truth.tolist())
    if holes:
        raise ValueError(f"y has no value (NaN) in {holes:,} rows. Drop those rows.")
    return TableRows(X, truth, kind)


def deviation(values: Array) -> Array:
    """Standard deviation along the last axis; 0 of a single value."""
    if values.shape[-1] < 2:
        return np.zeros(values.shape[:-1])
    size = _size(values)
    return np.asarray(size * np.std(values / size, axis=-1, ddof=1))


def _size(values: Array) -> float:
    """The largest magnitude, by which huge numbers are divided before squaring."""
    return float(np.max(np.abs(values))) or 1.0


def take(X: Any, index: Array) -> Any:
    """Rows of an array, a sparse matrix or a data frame, by position."""
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def column_names(X: Any) -> list[str]:
    """Names of the columns; ``x0, x1, …`` where they have none."""
    if hasattr(X, "columns"):
        return [str(name) for name in X.columns]
    return [f"x{i}" for i in range(X.shape[1])]
