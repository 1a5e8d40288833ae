"""Reading patterns: numbers become two values, as ``binarize`` says.

    x > binarize   a one
    otherwise      a zero, or minus one

With ``binarize=None`` nothing is cut: entries must be 0 and 1, or −1 and 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus.base import Model, check_number, validate_data
from certus.typing import Array


class MemoryModel(Model):
    """What the memories share: dense rows of numbers, checked alike."""

    def _rows(self, X: Any, first: bool = False) -> Array:
        """Rows in float64 or float32, finite, with the columns of the fit."""
        if not first:
            check_is_fitted(self)
        kinds = [np.float64, np.float32]
        return np.asarray(validate_data(self, X, dtype=kinds, reset=first))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def check_binarize(value: Any) -> None:
    """Raise an error unless ``binarize`` is a number or None."""
    check_number("binarize", value, -np.inf, none=True)


def as_ones(X: Array, binarize: float | None, name: str = "X") -> Array:
    """Which entries count as a one."""
    if binarize is None:
        low = -1.0 if (X < 0).any() else 0.0
        if not np.isin(X, (low, 1.0)).all():
            strange = X[~np.isin(X, (low, 1.0))][0]
            raise ValueError(
                f"{name} must hold only 0 and 1, or only -1 and 1, got {strange:g}. "
                "Set binarize to the value above which an entry counts as a one."
            )
        return np.asarray(X > 0)
    return np.greater(X, binarize)


def as_signs(X: Array, binarize: float | None) -> Array:
    """Entries as −1 and 1, in float64."""
    return np.where(as_ones(X, binarize), 1.0, -1.0)
