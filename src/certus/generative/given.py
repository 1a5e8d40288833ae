"""Conditions on rows of numbers: a value or a range for some columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array

__all__ = [
    "GivenBox",
    "chosen_by_weight",
    "inner_ends",
    "read_given",
    "require_possible",
]


class GivenBox(NamedTuple):
    """Lowest and highest number of each column, infinite where nothing is given."""

    low: Array
    high: Array

    def repeated(self, n: int) -> tuple[Array, Array]:
        """The ends once for each of n rows."""
        return np.tile(self.low, (n, 1)), np.tile(self.high, (n, 1))


def read_given(model: Any, given: Mapping[Any, Any]) -> GivenBox:
    """Conditions by the name or the number of a column.

    Parameters
    ----------
    model : estimator
        Fitted, with ``n_features_in_``.
    given : dict
        From columns to a number, or to (low, high).
    """
    d = int(model.n_features_in_)
    names = list(getattr(model, "feature_names_in_", ()))
    box = GivenBox(np.full(d, -np.inf), np.full(d, np.inf))
    if not isinstance(given, Mapping):
        raise ValueError(f"given must be a dict of columns and values, got {given!r}.")
    for column, wanted in given.items():
        j = names.index(column) if column in names else column
        if not isinstance(j, Integral) or isinstance(j, bool) or not 0 <= int(j) < d:
            known = ", ".join(map(str, names[:8])) or f"0 to {d - 1}"
            raise ValueError(
                f"given names the column {column!r}, which X does not have; its "
                f"columns are {known}."
            )
        box.low[j], box.high[j] = _ends(column, wanted)
    return box


def _ends(column: Any, wanted: Any) -> tuple[float, float]:
    """A number twice, or a range."""
    ends = wanted if isinstance(wanted, tuple | list) else (wanted, wanted)
    try:
        low, high = (float(end) for end in ends)
    except (TypeError, ValueError):
        raise ValueError(
            f"given must have a number or (low, high) for column {column!r}, got "
            f"{wanted!r}."
        ) from None
    if not low <= high or (math.isinf(low) and low == high):
        raise ValueError(
            f"given must have low ≤ high for column {column!r}, got {wanted!r}."
        )
    return low, high


def inner_ends(scaled: Any, box: GivenBox) -> tuple[Array, Array]:
    """Ends of the standardised columns that vary; the others must keep their value.

    Parameters
    ----------
    scaled : Standardization
        Mean and spread of each column.
    box : GivenBox
        Ends in the units of the fit.
    """
    ends = np.array([box.low, box.high])
    if scaled.misplaced(np.clip(scaled.loc[None], ends[0], ends[1])).any():
        raise ValueError(
            "given asks for another value of a column that was constant in the fit."
        )
    low, high = scaled.inner(ends)
    return low, high


def require_possible(most: Any) -> None:
    """Refuse conditions whose largest log-weight is not a number."""
    if not np.isfinite(most).all():
        raise ValueError(
            "the conditions have probability zero under the model. Change one of them."
        )


def chosen_by_weight(log_weights: Array, rng: np.random.Generator) -> Array:
    """The number of one proposal of each row, by weight.

    Parameters
    ----------
    log_weights : array of shape (rows, proposals)
        Their logarithms.
    rng : numpy.random.Generator
        Random numbers.
    """
    most = log_weights.max(axis=1, keepdims=True)
    require_possible(most)
    sums = np.cumsum(np.exp(log_weights - most), axis=1)
    u = rng.random(len(sums)) * sums[:, -1]
    return np.minimum((sums <= u[:, None]).sum(axis=1), sums.shape[1] - 1)
