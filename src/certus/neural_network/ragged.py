"""How sequences of unequal length are read: lists, arrays, columns of lists.

The elements of a sequence are tokens, which :mod:`certus.neural_network.tokens` reads,
or numbers, one or several at each step. Errors name the sequence that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse

from certus.base import as_array


def is_table(X: Any) -> bool:
    """Whether X is an array or a frame of cells, not a list or a column of sequences.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.neural_network.ragged import is_table
    >>> is_table(np.zeros((3, 5))), is_table([[1.0], [2.0, 3.0]])
    (True, False)
    """
    if sparse.issparse(X):
        return True
    if hasattr(X, "columns"):
        return len(X.columns) != 1 or not _holds_sequences(X[X.columns[0]])
    if hasattr(X, "__array__"):  # arrays and series: cells of one axis may be lists
        X = np.asarray(X)
        return X.ndim != 1 or X.dtype.kind not in "OUT" or not _holds_sequences(X)
    return False


def _holds_sequences(column: Iterable[Any]) -> bool:
    return isinstance(next((x for x in column if x is not None), None), Iterable)


def listed(X: Any, name: str = "X") -> list[Any]:
    """The sequences of a list, a series, or a frame of one column of lists."""
    if hasattr(X, "columns"):
        X = X[X.columns[0]]
    # An iterator would be empty when the certificate reads it.
    if isinstance(X, str | bytes | Mapping | Set) or not hasattr(X, "__len__"):
        raise ValueError(
            f"{name} is a {type(X).__name__}; pass a list of sequences, or an array."
        )
    found = list(X)
    for i, x in enumerate(found):
        if isinstance(x, Set | Mapping | Iterator) or not isinstance(x, Iterable):
            raise ValueError(
                f"Sequence {i} of {name} is {x!r:.60}. Pass a list for it, or drop "
                "it. An array must have two or three axes."
            )
    if not found:
        raise ValueError(
            f"{name} holds no sequences: 0 samples, while a minimum of 1 is required."
        )
    return found


def holds_tokens(sequences: Iterable[Any]) -> bool:
    """Whether the first element that there is says so: a string or an integer.

    Examples
    --------
    >>> from certus.neural_network.ragged import holds_tokens
    >>> holds_tokens([[], [3, 1]]), holds_tokens(["ab"]), holds_tokens([[0.5]])
    (True, True, False)
    """
    for sequence in sequences:
        for element in sequence:
            if isinstance(element, str | bool | np.bool_ | Integral):
                return True
            kind = getattr(getattr(element, "dtype", None), "kind", "f")
            return np.ndim(element) == 0 and kind in "iubUS"
    return False


def read_numbers(sequences: Any, width: int | None = None, name: str = "X") -> Any:
    """Each sequence as an array of shape (time, width), all of one dtype.

    Parameters
    ----------
    sequences : list, or ndarray of shape (samples, time, width)
        Each of shape (time,) or (time, width); empty ones of any shape. An array is of
        real numbers, and is given back.
    width : int, optional
        Numbers at each step, where a fit has said it.
    name : str
        What messages call it.

    Examples
    --------
    >>> from certus.neural_network.ragged import read_numbers
    >>> [x.shape for x in read_numbers([[0.5, 1.5], [], [2.5]])]
    [(2, 1), (0, 1), (1, 1)]
    """
    whole = isinstance(sequences, np.ndarray)
    if whole and sequences.size and sequences.shape[2] == (width or sequences.shape[2]):
        return sequences
    arrays = [_array(x, i, name) for i, x in enumerate(sequences)]
    said = "others have" if width is None else "the model was fitted on"
    for i, a in enumerate(arrays):
        if a.size:
            width = a.shape[1] if width is None else width
            if a.shape[1] != width:
                raise ValueError(
                    f"Sequence {i} of {name} has {a.shape[1]} numbers at each step, "
                    f"but {said} {width}."
                )
    full = [a for a in arrays if a.size]
    single = bool(full) and all(a.dtype == np.float32 for a in full)
    dtype, width = np.float32 if single else np.float64, width or 1
    return [
        a.astype(dtype, copy=False) if a.size else np.empty((0, width), dtype)
        for a in arrays
    ]


def _array(x: Any, i: int, name: str) -> np.ndarray:
    """One sequence as an array of two axes, its numbers finite."""
    x = as_array(x)
    try:
        a = np.asarray(x)
        if a.dtype.kind not in "fiub":
            if isinstance(x, str):
                raise ValueError
            a = np.asarray([np.asarray(step, dtype=np.float64) for step in x])
    except (TypeError, ValueError):
        raise ValueError(
            f"Sequence {i} of {name} is not an array of numbers: its steps have "
            "different widths, or hold something else."
        ) from None
    if a.ndim not in (1, 2):
        raise ValueError(
            f"Sequence {i} of {name} has {a.ndim} axes; a sequence has the shape "
            "(time,) or (time, features)."
        )
    a = a if a.dtype in (np.float32, np.float64) else a.astype(np.float64)
    a = a.reshape(len(a), -1) if a.size else a.reshape(0, 1)
    if not np.isfinite(a).all():
        step = int(np.flatnonzero(~np.isfinite(a).all(axis=1))[0])
        raise ValueError(
            f"Sequence {i} of {name} holds NaN or infinity at step {step}. Fill it, or "
            "drop the step."
        )
    return a
