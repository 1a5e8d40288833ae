"""Fingerprints of whatever a network reads: arrays, sparse rows, sequences, texts.

As in :mod:`certus.verify.data` they detect mistakes, not adversaries: shape, dtype,
Σs, and projections on fixed sequences. Of many rows some evenly spaced ones are
projected; their number and all targets count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus.verify import data
from certus.verify.data import Array

#: Rows of X that are projected.
PROJECTED = 4_096
#: Stands for a target that is missing.
MISSING = 0.7390851332151607


def marks_of(
    X: Any, y: Any, sample_weight: Any, *, holes: bool = False
) -> dict[str, Any]:
    """The fingerprint of X, y and weights.

    Parameters
    ----------
    X : array, sparse matrix, frame, tensor, or list of sequences or texts
        One entry for each row.
    y : array-like or list of sequences, optional
        Targets of any kind.
    sample_weight : array-like, optional
        Row weights.
    holes : bool, default=False
        Whether values may be missing from X, for estimators that take such rows.

    Examples
    --------
    >>> from certus.verify.marks import marks_of
    >>> marks_of([[1, 2], [3, 4, 5]], ["a", "b"], None)["shape"]
    [2, 1]
    """
    table = as_table(X)
    n = len(X) if table is None else int(table.shape[0])
    targets = np.zeros(n) if y is None else _line(y)
    s = data.row_weights(sample_weight, n)
    some = np.arange(0, n, max(n // PROJECTED, 1))
    if table is None:
        frame = len(getattr(X, "columns", ())) > 1
        marks = _of_frame(X, some, targets) if frame else _of_sequences(X, n, targets)
    else:
        if holes and not sparse.issparse(table):
            table = np.where(np.isnan(table), MISSING, table)
        part = table[some] if n > PROJECTED else table
        marks = data.fingerprint(part, np.zeros(1), np.ones(1))
        projected = data.dot(table, data.direction(table.shape[1]))
        marks |= {"shape": [n, int(table.shape[1])]}
        marks |= data.unordered(projected, targets)
    return {
        **marks,
        "weight": float(s.sum()),
        "s": float(data.direction(n) @ s),
        "y": float(data.direction(len(targets)) @ targets),
    }


def as_table(X: Any) -> Any:
    """X as rows × columns, further axes laid flat; None if it is none of numbers."""
    if sparse.issparse(X):
        return X if X.format == "csr" else X.tocsr()
    try:
        X = np.asarray(data.as_array(X))
        X = X.astype(np.float64) if X.dtype.kind not in "fiub" else X
    except (TypeError, ValueError):  # unequal lengths, or texts
        return None
    return X.reshape(len(X), -1) if X.ndim >= 2 else None


def _of_frame(X: Any, some: Array, targets: Array) -> dict[str, Any]:
    """Of columns of several kinds, texts among them."""
    part = X.iloc[some] if hasattr(X, "iloc") else X[some]
    columns = [_cells(column) for column in np.asarray(part, dtype=object).T]
    whole = len(some) == len(X) and len({len(column) for column in columns}) == 1
    each = np.array(columns).T @ data.direction(len(columns)) if whole else None
    marks = _of_values(np.concatenate(columns), each, targets)
    return marks | {"shape": [len(X), len(columns)], "dtype": "object"}


def _of_values(values: Array, each: Array | None, targets: Array) -> dict[str, Any]:
    """Of all entries in one line, and of a number for each row where there is one."""
    return {
        **({} if each is None else data.unordered(each, targets)),
        "x": float(data.direction(len(values)) @ values),
        "x_scale": float(np.abs(values).max(initial=0.0)),
    }


def _cells(column: Array) -> Array:
    """A column of a frame as numbers; what is missing looks alike in all frames."""
    try:
        return _line(np.asarray(column, dtype=np.float64))
    except (TypeError, ValueError):
        return _line(np.array(["" if str(v) in _NOTHING else str(v) for v in column]))


#: How missing values of pandas, polars and NumPy are written.
_NOTHING = {"None", "nan", "NaN", "NaT", "<NA>"}


def _of_sequences(X: Any, n: int, targets: Array) -> dict[str, Any]:
    if hasattr(X, "columns") and len(X.columns) == 1:
        X = X[X.columns[0]]
    X = list(X)  # a series may number its rows otherwise
    parts = [_line(x) for x in X]
    lengths = np.array([len(part) for part in parts], dtype=float)
    each = np.array([data.direction(len(part)) @ part for part in parts])
    first: tuple[int, ...] = np.shape(X[0]) if n else ()
    texts = n > 0 and all(isinstance(x, str) for x in X)
    return {
        **_of_values(np.concatenate([*parts, lengths]), each, targets),
        "shape": [n, int(first[1]) if len(first) > 1 else 1],
        "dtype": "str" if texts else "sequences",
    }


def _line(values: Any) -> Array:
    """Numbers, labels or sequences of them as one row of numbers."""
    values = data.as_array(values)
    if sparse.issparse(values):
        values = values.toarray()
    if isinstance(values, str):
        return np.array([data.text_code(values) / 2**32])
    try:
        found = np.asarray(values)
    except ValueError:  # unequal lengths
        found = np.empty(0, dtype=object)
    if found.dtype.kind in "fiub":
        line = np.asarray(found, dtype=np.float64).ravel()
        return np.where(np.isnan(line), MISSING, line)
    cells = found.ravel().tolist()
    if cells and all(isinstance(cell, str | bytes) for cell in cells):
        codes = {text: data.text_code(str(text)) / 2**32 for text in set(cells)}
        return np.array([codes[text] for text in cells])
    parts = [_line(v) if _nested(v) else _line(str(v)) for v in values]
    ends = np.array([len(part) for part in parts], dtype=float)
    return np.concatenate([*parts, ends])


def _nested(value: Any) -> bool:
    listed = isinstance(value, str | list | tuple | np.ndarray)
    return listed or hasattr(value, "detach")
