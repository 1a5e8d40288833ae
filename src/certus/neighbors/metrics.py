"""Distances by scikit-learn's names, and which computation each name stands for.

    Euclidean √Σ(q − x)², Manhattan Σ|q − x|, Chebyshev max|q − x|, and Minkowski's
    (Σ w|q − x|^p)^(1/p), of which the first three are p = 2, 1 and ∞.

These four have compiled loops. Every other name of scikit-learn, a function of two
rows, and "precomputed" go through scikit-learn's ``pairwise_distances``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import pairwise_distances

from certus.base import check_number
from certus.neighbors.kernels import CHEBYSHEV, EUCLIDEAN, MANHATTAN, MINKOWSKI
from certus.typing import Array, ArrayLike

_CODES = {
    "euclidean": EUCLIDEAN,
    "l2": EUCLIDEAN,
    "manhattan": MANHATTAN,
    "cityblock": MANHATTAN,
    "l1": MANHATTAN,
    "chebyshev": CHEBYSHEV,
    "infinity": CHEBYSHEV,
    "minkowski": MINKOWSKI,
    "p": MINKOWSKI,
}
_OBJECTS = {name: name for name in ("euclidean", "manhattan", "chebyshev")}
_POWERS = {EUCLIDEAN: 2.0, MANHATTAN: 1.0, CHEBYSHEV: np.inf}


class NeighborMetric(NamedTuple):
    """A distance: its loop (None for one of scikit-learn's), its power, its weights."""

    name: Any
    params: dict[str, Any]
    code: int | None
    p: float
    weights: Array | None

    @property
    def precomputed(self) -> bool:
        """Whether X holds distances instead of coordinates."""
        return isinstance(self.name, str) and self.name == "precomputed"

    def finish(self, reduced: Array) -> Array:
        """Distances from what the loops compare."""
        return np.sqrt(reduced) if self.code == EUCLIDEAN else reduced

    def stretch(self, X: Any) -> Any:
        """Coordinates whose unweighted distance is the weighted one."""
        if self.weights is None:
            return X
        # The largest coordinate has its weights, zero or one, as factors.
        factors = self.weights ** (1.0 if np.isinf(self.p) else 1.0 / self.p)
        return X * factors if isinstance(X, np.ndarray) else X.multiply(factors).tocsr()


def resolve(
    metric: str | Callable[..., float],
    p: Any,
    metric_params: dict[str, Any] | None,
    n_features: int,
) -> tuple[NeighborMetric, Any, dict[str, Any]]:
    """The metric, and scikit-learn's ``effective_metric_`` and its parameters."""
    params = dict(metric_params or {})
    if "p" in params and p is not None and metric == "minkowski":
        warnings.warn(
            "Parameter p is found in metric_params. The corresponding parameter from "
            "__init__ is ignored.",
            SyntaxWarning,
            stacklevel=5,
        )
    # A DistanceMetric of scikit-learn, for example EuclideanDistance64, is one of ours.
    kind = type(metric).__name__.partition("Distance")[0].lower()
    named = metric if isinstance(metric, str) else _OBJECTS.get(kind)
    code = None if named is None else _CODES.get(named)
    if code is None:
        if not (callable(metric) or hasattr(metric, "pairwise") or _known(metric)):
            raise ValueError(
                f"Metric {metric!r} not valid. Use 'euclidean', 'manhattan', "
                "'chebyshev', 'minkowski', 'precomputed', another name of "
                "sklearn.metrics.pairwise_distances, or a function of two rows."
            )
        return NeighborMetric(metric, params, None, 2.0, None), metric, params
    if code != MINKOWSKI:
        return NeighborMetric(named, {}, code, _POWERS[code], None), metric, params
    power = params.pop("p", p)
    check_number("p", power, open_low=True)
    weights = params.pop("w", None)
    if params:
        raise ValueError(
            f"metric_params has unknown entries: {', '.join(map(repr, params))}."
        )
    if weights is None:
        for plain, name in (
            (MANHATTAN, "manhattan"),
            (EUCLIDEAN, "euclidean"),
            (CHEBYSHEV, "chebyshev"),
        ):
            if power == _POWERS[plain]:
                return NeighborMetric(name, {}, plain, float(power), None), name, {}
    effective = {"p": power, "w": weights}
    if weights is not None:
        weights = _check_weights(weights, n_features)
        if power == np.inf:  # the largest coordinate whose weight is not zero
            weights = (weights > 0).astype(float)
    codes = {2.0: EUCLIDEAN, 1.0: MANHATTAN, np.inf: CHEBYSHEV}
    code = codes.get(float(power), MINKOWSKI)
    return (
        NeighborMetric("minkowski", {}, code, float(power), weights),
        metric,
        effective,
    )


def check_sparse(metric: NeighborMetric) -> None:
    """Refuse a distance that scikit-learn does not compute for sparse rows."""
    known = metric.code is not None or metric.precomputed or metric.name == "cosine"
    if isinstance(metric.name, str) and not known:
        raise ValueError(
            f"Metric {metric.name!r} not valid for sparse input. Use 'euclidean', "
            "'manhattan', 'chebyshev', 'minkowski' or 'cosine', or pass X.toarray()."
        )


def _known(metric: Any) -> bool:
    """Whether scikit-learn computes this distance; asked on two rows."""
    if not isinstance(metric, str):
        return False
    if metric == "precomputed":
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pairwise_distances(np.eye(2), metric=metric)
    except Exception as error:  # it may need parameters; the name alone matters
        return "Unknown" not in str(error) and "must be a str among" not in str(error)
    return True


def _check_weights(weights: ArrayLike, n_features: int) -> Array:
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (n_features,) or not np.isfinite(w).all() or w.min() < 0:
        raise ValueError(
            f"metric_params['w'] must be {n_features} finite, non-negative numbers, "
            "one per column."
        )
    return w
