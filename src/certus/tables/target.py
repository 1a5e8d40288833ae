"""The target of a table: labels or amounts, as an array without gaps."""

from __future__ import annotations

import decimal
import math
import numbers
from typing import Any

import narwhals as nw
import numpy as np

from certus.tables.errors import TableError
from certus.tables.frame import missing_objects
from certus.typing import ArrayLike

__all__ = ["check_bounds", "guess_task", "read_target"]

# Integers with more distinct values than this count as amounts, not as labels.
_MOST_LABELS = 10


def guess_task(y: ArrayLike) -> str:
    """Say whether a target looks like labels or like amounts.

    Text, booleans and anything with two values are labels; so are integers with at most
    ten distinct values, each met five times on average. Other numbers are amounts.

    Parameters
    ----------
    y : array or series of shape (n_samples,)

    Returns
    -------
    {"classification", "regression"}

    Examples
    --------
    >>> from certus.tables import guess_task
    >>> guess_task(["yes", "no", "no"]), guess_task([0.5, 1.5, 2.5])
    ('classification', 'regression')
    """
    array = read_target(y)[0]
    if array.dtype.kind not in "iuf":
        return "classification"
    if array.ndim == 2 and array.shape[1] > 1:
        return "regression"
    values = np.unique(array)
    whole = bool((values == np.round(values)).all())
    few = len(values) <= _MOST_LABELS and array.size >= 5 * len(values)
    return "classification" if whole and (few or len(values) <= 2) else "regression"


def read_target(y: ArrayLike) -> tuple[Any, str | None]:
    """Return the target as an array, with its name if it has one; no gaps allowed."""
    native = nw.from_native(y, pass_through=True, allow_series=True)
    name = None
    if isinstance(native, nw.DataFrame) and len(native.columns) == 1:
        native = native[native.columns[0]]
    if isinstance(native, nw.Series):
        name = None if native.name in (None, "") else str(native.name)
        if native.null_count():
            raise _gaps(name, native.null_count())
        if isinstance(native.dtype, nw.Categorical | nw.Enum):
            labels = native.to_list()
            array = np.array(labels, dtype=object)
        else:
            array = native.to_numpy()
    else:
        array = np.asarray(y)
    if array.dtype.kind in "mM":
        raise TableError(
            "The target is a date. Convert it to a number, such as the number of "
            "days since a fixed date."
        )
    if array.dtype.kind in "UT":
        array = array.astype(object)
    if array.dtype.kind == "O":
        array, missing = _plain_objects(array)
        if missing:
            raise _gaps(name, missing)
    return array, name


def _plain_objects(array: Any) -> tuple[Any, int]:
    """Convert objects that are all numbers or booleans; count the missing ones."""
    missing = int(missing_objects(array).sum())
    types: set[type] = set(map(type, array.ravel()))
    if not missing and types:
        if all(issubclass(t, bool | np.bool_) for t in types):
            return array.astype(bool), 0
        if all(issubclass(t, numbers.Integral) for t in types):
            return array.astype(np.int64), 0
        if all(issubclass(t, numbers.Real | decimal.Decimal) for t in types):
            return array.astype(np.float64), 0
    return array, missing


def _gaps(name: str | None, count: int) -> TableError:
    what = f'The target "{name}"' if name else "The target"
    rows = "1 row" if count == 1 else f"{count:,} rows"
    return TableError(
        f"{what} has no value (NaN) in {rows}. Drop those rows before fitting."
    )


def check_bounds(bounds: Any) -> tuple[float, float] | None:
    """Bounds of an amount as two finite numbers, the lower one first."""
    if bounds is None:
        return None
    try:
        low, high = (float(end) for end in bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(
            "bounds must be two finite numbers (low, high) with low below high, got "
            f"{bounds!r}."
        )
    return low, high
