"""Open rows that a model has never seen, once, and let the verifier state its claims.

What is asked was fixed before: the metric, the positive label, the thresholds and the
bins, all chosen on other rows. A model file keeps them, so that the same claims can be
recomputed from the file and the table. All that is stated about these rows holds
together, except with probability delta.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim
from certus.selection.metrics import Metric, Predicted, find_metric, predict_rows
from certus.verify import (
    Costs,
    DeltaShares,
    Said,
    cost_claims,
    large_error_claim,
    panel_claims,
    panel_shares,
    recall_claims,
)

__all__ = ["AskedMetric", "Opened", "bins_of", "open_predictions", "open_rows"]

#: Bins of the calibration, at quantiles of probabilities of other rows.
_BINS = 5


class AskedMetric(NamedTuple):
    """All that is fixed before the rows are opened.

    ``far`` is the q of P(|error| > q); ``edges`` divide probabilities into bins;
    ``costs`` or ``recall`` ask for a threshold, ``threshold`` is one chosen on other
    rows; ``bounds`` are those of an amount.
    """

    task: str
    metric: Metric
    positive: Any = None
    far: float | None = None
    edges: tuple[float, ...] | None = None
    costs: tuple[float, float] | None = None
    recall: float | None = None
    threshold: float | None = None
    bounds: tuple[float, float] | None = None

    def record(self) -> dict[str, Any]:
        """What a model file keeps."""
        return {
            "task": self.task,
            "metric": self.metric.key,
            "positive": self.positive,
            "threshold": self.far,
            "edges": None if self.edges is None else list(self.edges),
            "costs": None if self.costs is None else list(self.costs),
            "recall": self.recall,
            "cut": self.threshold,
            "bounds": None if self.bounds is None else list(self.bounds),
        }

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> AskedMetric:
        """Inverse of :meth:`record`; older files know errors and RMSE only."""
        task = record["task"]
        old = "error" if task != "regression" else "rmse"
        positive = record.get("positive")

        def pair(name: str) -> Any:
            return None if record.get(name) is None else tuple(record[name])

        return cls(
            task,
            find_metric(record.get("metric") or old, task),
            positive,
            record["threshold"],
            pair("edges"),
            pair("costs"),
            record.get("recall"),
            record.get("cut"),
            pair("bounds"),
        )


class Opened(NamedTuple):
    """What the model said, the claims, and the threshold that keeps a recall.

    ``shares`` says how delta was divided among the claims.
    """

    said: Predicted
    claims: tuple[Claim, ...]
    shares: DeltaShares
    threshold: float | None = None


def bins_of(shares: np.ndarray | None, classes: Any, positive: Any) -> Any:
    """Edges of bins with equally many rows, from probabilities of other rows."""
    if shares is None or classes is None:
        return None
    given = shares[np.isfinite(shares).all(axis=1)]
    if not len(given):
        return None
    two = len(classes) == 2
    chance = given[:, classes == positive][:, 0] if two else given.max(axis=1)
    levels = np.linspace(0, 1, _BINS + 1)[1:-1]
    return tuple(float(edge) for edge in np.unique(np.quantile(chance, levels)))


def open_rows(
    model: Any,
    X: Any,
    y: np.ndarray,
    asked: AskedMetric,
    *,
    groups: Any = None,
    ordered: bool = False,
    calibrates: bool = False,
    delta: float = 0.05,
    rows: str = "sealed rows",
) -> Opened:
    """Predict rows never seen and state the panel; decisions, if they were asked for.

    Parameters
    ----------
    model : fitted classifier or regressor
    X, y : table and target
        The rows.
    asked : AskedMetric
    groups : array of shape (n,), optional
        Rows of one group depend on one another.
    ordered : bool, default=False
        Whether the rows are later in time than those of the fit.
    calibrates : bool, default=False
        Whether intervals or sets are calibrated on these rows, too: their coverage
        given the rows is one more statement that holds together with the others.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    rows : str
        What the rows are called.
    """
    classes = _classes(model, y) if asked.task != "regression" else None
    if classes is not None and len(classes) == 2 and asked.positive is None:
        asked = asked._replace(positive=classes[1])
    said = predict_rows(model, X, classes, asked.positive)
    return open_predictions(
        said,
        y,
        asked,
        groups=groups,
        ordered=ordered,
        calibrates=calibrates,
        delta=delta,
        rows=rows,
    )


def open_predictions(
    said: Predicted,
    y: np.ndarray,
    asked: AskedMetric,
    *,
    groups: Any = None,
    ordered: bool = False,
    calibrates: bool = False,
    delta: float = 0.05,
    rows: str = "sealed rows",
) -> Opened:
    """State the panel about predictions that were made; see :func:`open_rows`."""
    labels, classes = asked.task != "regression", said.classes
    if asked.recall is not None and said.shares is not None and classes is not None:
        # The threshold comes from these rows, so the panel is about one half.
        said = said._replace(guess=classes[said.shares.argmax(axis=1)])
    given = Said(
        y,
        said.guess,
        said.shares,
        classes,
        asked.positive,
        groups,
        None if asked.edges is None else np.array(asked.edges),
    )
    far = not labels and not ordered and asked.far is not None
    two = said.shares is not None and classes is not None and len(classes) == 2
    plain = groups is None and not ordered
    decides = asked.costs is not None and asked.threshold is not None
    decides = two and plain and (decides or asked.recall is not None)
    shares = panel_shares(
        given,
        asked.metric.name,
        delta=delta,
        ordered=ordered,
        bounds=asked.bounds,
        asked=int(decides),
        others=int(far) + int(calibrates),
    )
    claims = panel_claims(
        given,
        asked.metric.name,
        at=asked.metric.at or 1.0,
        ordered=ordered,
        bounds=asked.bounds,
        shares=shares,
        rows=rows,
    )
    if far and asked.far is not None:
        errors = np.abs(np.asarray(said.guess, float) - np.asarray(y, float))
        claims += (
            large_error_claim(
                errors, asked.far, shares=shares, groups=groups, rows=rows
            ),
        )
    opened = Opened(said, claims, shares)
    return _decided(given, asked, opened, plain, rows) if two else opened


def _classes(model: Any, y: np.ndarray) -> np.ndarray:
    """The labels of the fit, and those that only these rows have."""
    return np.union1d(np.asarray(model.classes_), np.unique(y))


def _decided(
    given: Said, asked: AskedMetric, opened: Opened, plain: bool, rows: str
) -> Opened:
    """Claims about a threshold: chosen on other rows, or on the positive ones here."""
    hit, shares = np.asarray(given.truth == asked.positive), opened.shares
    if asked.costs is not None and asked.threshold is not None:
        found = cost_claims(
            hit,
            given.chance,
            asked.threshold,
            Costs(*asked.costs),
            shares=shares,
            independent=plain,
            rows=rows,
        )
        return opened._replace(claims=opened.claims + found)
    if asked.recall is not None and plain:
        cut, found = recall_claims(
            hit, given.chance, asked.recall, shares=shares, rows=rows
        )
        return opened._replace(claims=opened.claims + found, threshold=cut)
    return opened
