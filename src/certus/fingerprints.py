"""Fingerprints: how a certificate recognises the data that it is about.

Shape, dtype, Σs, and projections on fixed irrational sequences: of tables, and of
whatever else a model reads, sparse rows, frames, sequences, texts, words. They detect
mistakes (other rows, changed cells, another order), not adversaries, and prove nothing:
the verifier computes them while it reads the data, and the certificate keeps them.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from certus.typing import Array

#: Rows summed at a time, so that they stay in cache.
PART = 1 << 13
#: Cells of a table that are cast at a time, and words that are summed.
CELLS, WORDS = 1 << 18, 1 << 17
#: Rows of a network's X that are projected in their order.
PROJECTED = 4_096
#: Stands for a value that is missing.
MISSING = 0.7390851332151607
#: How missing values of pandas, polars and NumPy are written.
NOTHING = {"None", "nan", "NaN", "NaT", "<NA>"}
MIX = np.uint64(0x9E3779B97F4A7C15)


# -- comparing --------------------------------------------------------------------


def same_data(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two fingerprints agree, up to the rounding of another machine."""
    if not _of_one_shape(a, b):
        return False
    scale = max(1e-300, abs(float(a["x_scale"])) * math.sqrt(a["shape"][0]))
    weight, s = abs(a["weight"]), [m["s"] for m in (a, b) if "s" in m]  # or older
    return (
        abs(a["x"] - b["x"]) <= 1e-10 * scale
        and math.isclose(a["y"], b["y"], rel_tol=1e-10, abs_tol=1e-310)
        and abs(a["weight"] - b["weight"]) <= 1e-10 * weight
        and abs(s[0] - s[-1] if s else 0.0) <= 1e-10 * weight
    )


def changed_blocks(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[int]:
    """Which blocks differ, if both fingerprints are of as many blocks of rows."""
    one, other = np.array(a.get("blocks", [])), np.array(b.get("blocks", []))
    if not one.size or one.shape != other.shape:
        return []
    far = np.abs(one - other) > 1e-10 * (np.abs(one) + np.abs(other))
    return [int(i) for i in np.flatnonzero(far.any(axis=1))]


def same_rows(a: Mapping[str, Any], b: Mapping[str, Any], targets: bool) -> bool:
    """Whether two fingerprints are of the same rows, in any order.

    With ``targets``, these must agree too. Fingerprints in older files have one order
    only.
    """
    if not _of_one_shape(a, b):
        return False
    if "set" not in a or "set" not in b:
        ignored = ("weight", "s") if targets else ("weight", "s", "y")
        return same_data(a, {**b, **{k: a[k] for k in ignored if k in a}})
    if abs(a["set"] - b["set"]) > 1e-9 * a["shape"][0]:
        return False
    names = ("rms", "y_set") if targets else ("rms",)
    known = all(name in a and name in b for name in names)
    return known and all(math.isclose(a[name], b[name]) for name in names)


def _of_one_shape(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """A refused fit has no fingerprint."""
    known = "x" in a and "x" in b
    return known and list(a["shape"]) == list(b["shape"])


# -- tables -----------------------------------------------------------------------


def direction(d: int) -> Array:
    """The fixed direction on which rows are projected; no entry of it is zero."""
    return _sequence(d, 0.7548776662466927)


def _sequence(n: int, step: float, start: int = 0) -> Array:
    x = np.arange(start + 1, start + n + 1) * step
    return x - np.floor(x) - 0.5


def of_table(
    X: Any, y: Array, s: Array, projected: Array, scale: float
) -> dict[str, Any]:
    """The fingerprint of rows, targets and weights.

    ``projected`` is X @ direction(d), which a pass over the data has found, and
    ``scale`` the largest of its entries in size.
    """
    (n, d), marks = X.shape, [0.0, 0.0, 0.0]
    with np.errstate(over="ignore", invalid="ignore"):
        for i in range(0, n, PART):
            row = _sequence(min(PART, n - i), 0.6180339887498949, i)
            for k, a in enumerate((projected, y, s)):
                part = a[i : i + PART] if len(a) == n else np.zeros(len(row))
                marks[k] += float(np.einsum("i,i...", row, part).sum())
    return {
        "shape": [int(n), int(d)],
        "dtype": str(X.dtype),
        "weight": float(s.sum()),
        "s": marks[2],
        "x": marks[0] if np.isfinite(marks[0]) else 0.0,
        "x_scale": float(scale),
        "y": marks[1],
        **_unordered(projected, y),
    }


def _unordered(projected: Array, y: Any = None) -> dict[str, Any]:
    """Sums over rows that identify the set of rows, in any order.

    A bounded function of each row's projection, in units of their root mean square, and
    targets weighted by it.
    """
    n, both = len(projected), [0.0, 0.0]
    targets = y if np.shape(y) == (n,) else np.zeros(n)
    with np.errstate(over="ignore", invalid="ignore"):
        rms = float(np.sqrt(np.einsum("i,i", projected, projected) / max(n, 1)))
        for i in range(0, n if 0 < rms < np.inf else 0, PART):
            q = projected[i : i + PART] / rms
            q /= 1.0 + q * q
            both[0] += float(q.sum())
            both[1] += float(q @ targets[i : i + PART])
        marks = {"set": both[0], "rms": rms if rms < np.inf else 0.0}
        if np.shape(y) == (n,):
            marks["y_set"] = float(targets.sum() + both[1])
    return marks


# -- whatever a network reads -----------------------------------------------------


def of_rows(X: Any, y: Any, s: Array, *, holes: bool = False) -> dict[str, Any]:
    """The fingerprint of rows of any kind.

    If there are many rows, some evenly spaced ones are projected in their order; the
    number of rows and all targets count.

    Parameters
    ----------
    X : array, sparse matrix, frame, tensor, or list of sequences or texts
        One entry for each row.
    y : array-like or list of sequences, optional
        Targets of any kind.
    s : ndarray of shape (n,)
        Row weights.
    holes : bool, default=False
        Whether values may be missing from X, for estimators that take such rows.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.fingerprints import of_rows
    >>> of_rows([[1, 2], [3, 4, 5]], ["a", "b"], np.ones(2))["shape"]
    [2, 1]
    """
    table, n = _as_table(X), len(s)
    targets = np.zeros(n) if y is None else _line(y)
    some = np.arange(0, n, max(n // PROJECTED, 1))
    if table is None:
        frame = len(getattr(X, "columns", ())) > 1
        marks = _of_frame(X, some, targets) if frame else _of_sequences(X, n, targets)
    else:
        projected = _project(table)
        if holes and not sparse.issparse(table) and np.isnan(projected).any():
            table = np.where(np.isnan(table), MISSING, table)
            projected = _project(table)
        part = slice(None) if n <= PROJECTED else some
        top = float(np.abs(projected[part]).max(initial=0.0))
        if not np.isfinite(top):
            _refuse_holes(table)
        marks = of_table(table[part], np.zeros(1), np.ones(1), projected[part], top) | {
            "shape": [n, int(table.shape[1])]
        }
        marks |= _unordered(projected, targets)
    return {
        **marks,
        "weight": float(s.sum()),
        "s": float(direction(n) @ s),
        "y": float(direction(len(targets)) @ targets),
    }


def _as_table(X: Any) -> Any:
    """X as rows × columns, further axes flattened; None if X is not numeric."""
    if sparse.issparse(X):
        return X if X.format == "csr" else X.tocsr()
    try:
        X = np.asarray(_as_array(X))
        X = X.astype(np.float64) if X.dtype.kind not in "fiub" else X
    except (TypeError, ValueError):  # unequal lengths, or texts
        return None
    return X.reshape(len(X), -1) if X.ndim >= 2 else None


def _as_array(X: Any) -> Any:
    """A torch tensor of any kind as an array; anything else as it is."""
    if not hasattr(X, "detach"):
        return X
    X = X.detach().cpu().to_dense()
    return (X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy()


def _project(table: Any) -> Array:
    """Project each row on the fixed direction, in float64."""
    column = direction(table.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        if sparse.issparse(table) or table.dtype == np.float64:
            return np.asarray(table @ column, dtype=np.float64)
        step = max(1, CELLS // max(1, table.shape[1]))
        starts = range(0, max(1, len(table)), step)
        parts = (table[i : i + step].astype(np.float64) for i in starts)
        return np.concatenate([part @ column for part in parts])


def _refuse_holes(table: Any) -> None:
    values = table.data if sparse.issparse(table) else table
    bad = values.size - int(np.isfinite(values).sum())
    if bad:
        raise ValueError(f"X holds {bad} NaN or infinite values. Fill or drop them.")


def _of_frame(X: Any, some: Array, targets: Array) -> dict[str, Any]:
    """The fingerprint of columns of several types, including texts."""
    part = X.iloc[some] if hasattr(X, "iloc") else X[some]
    columns = [_cells(column) for column in np.asarray(part, dtype=object).T]
    whole = len(some) == len(X) and len({len(column) for column in columns}) == 1
    each = np.array(columns).T @ direction(len(columns)) if whole else None
    marks = _of_values(np.concatenate(columns), each, targets)
    return marks | {"shape": [len(X), len(columns)], "dtype": "object"}


def _of_values(values: Array, each: Array | None, targets: Array) -> dict[str, Any]:
    """Fingerprint of all entries in one line, and of the rows in any order if given."""
    return {
        **({} if each is None else _unordered(each, targets)),
        "x": float(direction(len(values)) @ values),
        "x_scale": float(np.abs(values).max(initial=0.0)),
    }


def _cells(column: Array) -> Array:
    """A column of a frame as numbers; missing values look alike in all frames."""
    try:
        return _line(np.asarray(column, dtype=np.float64))
    except (TypeError, ValueError):
        return _line(np.array(["" if str(v) in NOTHING else str(v) for v in column]))


def _of_sequences(X: Any, n: int, targets: Array) -> dict[str, Any]:
    if hasattr(X, "columns") and len(X.columns) == 1:
        X = X[X.columns[0]]
    X = list(X)  # a series may have another index
    parts = [_line(x) for x in X]
    lengths = np.array([len(part) for part in parts], dtype=float)
    each = np.array([direction(len(part)) @ part for part in parts])
    first: tuple[int, ...] = np.shape(X[0]) if n else ()
    texts = n > 0 and all(isinstance(x, str) for x in X)
    return {
        **_of_values(np.concatenate([*parts, lengths]), each, targets),
        "shape": [n, int(first[1]) if len(first) > 1 else 1],
        "dtype": "str" if texts else "sequences",
    }


def _line(values: Any) -> Array:
    """Numbers, labels or sequences of them as one row of numbers."""
    values = _as_array(values)
    if sparse.issparse(values):
        values = values.toarray()
    if isinstance(values, str):
        return np.array([text_code(values) / 2**32])
    try:
        found = np.asarray(values)
    except ValueError:  # unequal lengths
        found = np.empty(0, dtype=object)
    if found.dtype.kind in "fiub":
        line = np.asarray(found, dtype=np.float64).ravel()
        return np.where(np.isnan(line), MISSING, line)
    cells = found.ravel().tolist()
    if cells and all(isinstance(cell, str | bytes) for cell in cells):
        codes = {text: text_code(str(text)) / 2**32 for text in set(cells)}
        return np.array([codes[text] for text in cells])
    parts = [_line(v) if _nested(v) else _line(str(v)) for v in values]
    ends = np.array([len(part) for part in parts], dtype=float)
    return np.concatenate([*parts, ends])


def _nested(value: Any) -> bool:
    listed = isinstance(value, str | list | tuple | np.ndarray)
    return listed or hasattr(value, "detach")


def in_each_way(X: Any, y: Any) -> Iterator[dict[str, Any]]:
    """Fingerprints of the same rows, for each way in which a fit may have read them.

    Examples
    --------
    >>> from certus.fingerprints import in_each_way
    >>> [marks["dtype"] for marks in in_each_way(["a b", "c"], ["no", "yes"])]
    ['str', 'str']
    """
    n = int(X.shape[0]) if hasattr(X, "shape") else len(X)
    target = np.asarray(y)
    if target.dtype.kind not in "fiub":
        target = np.unique(target, return_inverse=True)[1]
    target = target.astype(np.float64).ravel()
    table = _as_table(X)
    if table is not None and len(np.shape(X)) == 2:
        if not sparse.issparse(table) and np.isnan(table).any():
            table = np.nan_to_num(table)
        projected = _project(table)
        top = float(np.abs(projected).max(initial=0.0))
        if n and np.isfinite(top):
            yield of_table(table, target, np.ones(n), projected, top)
    elif table is None:
        words = [[row] if isinstance(row, str) else row for row in X]
        told = all(isinstance(w, list | tuple) for w in words)
        if told and all(isinstance(word, str) for w in words for word in w):
            yield of_texts(X, target)
    try:
        yield of_rows(X, y, np.ones(n), holes=True)
    except (TypeError, ValueError):  # rows of a kernel of the user's own
        yield {"shape": [n, 0]}


# -- texts and words --------------------------------------------------------------


def text_code(text: Any) -> int:
    """Checksum of a document: a str, its bytes, or its words."""
    if isinstance(text, bytes):
        return zlib.crc32(text)
    if not isinstance(text, str):
        text = "\x1f".join(map(str, text))
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def of_texts(texts: Any, y: Array) -> dict[str, Any]:
    """The fingerprint of documents by their checksums: one column of texts."""
    codes = np.array([text_code(text) for text in texts], dtype=np.float64)
    marks = codes / 2**32 - 0.5
    top = float(np.abs(marks).max(initial=0.0))
    found = of_table(marks[:, None], y, np.ones(len(y)), marks, top)
    return found | {"dtype": "str"}


def of_words(words: Sequence[str], ids: Array, offsets: Array) -> dict[str, Any]:
    """Documents, words, tokens, and sums over checksums of words times positions.

    ``ids`` are positions among the words, document after document, and ``offsets``
    their ends. Arithmetic modulo 2⁶⁴ is exact, so equal corpora agree to the bit on any
    machine, however their words were numbered.
    """
    checksums = (zlib.crc32(w.encode("utf-8", "surrogatepass")) for w in words)
    table = np.fromiter(checksums, np.uint64, len(words)) * MIX + MIX
    ends = np.asarray(offsets, dtype=np.uint64) * MIX
    mark = _sum_of_products(table, ids)
    mark ^= _sum_of_products(ends, np.arange(len(ends))) * 3 % 2**64
    found = {"shape": [len(ends) - 1, len(words)], "dtype": "text", "y": 0.0}
    x = float(mark >> 11)  # what float64 holds exactly
    return {**found, "weight": float(len(ids)), "x": x, "x_scale": 0.0}


def _sum_of_products(table: Array, ids: Array) -> int:
    """Σ table[ids[p]]·(2p + 1) modulo 2⁶⁴."""
    total = 0
    for start in range(0, len(ids), WORDS):
        part = table[ids[start : start + WORDS]]
        odd = 2 * np.arange(start, start + len(part), dtype=np.uint64) + np.uint64(1)
        total += int(np.sum(part * odd, dtype=np.uint64))
    return total % 2**64


# -- networks -------------------------------------------------------------------------


def of_weights(weights: Mapping[str, Any]) -> Array:
    """SHA-256 of all weights of a network with their names and shapes, 32 bytes.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.fingerprints import of_weights
    >>> a, b = of_weights({"W": np.ones(3)}), of_weights({"W": np.ones((3, 1))})
    >>> len(a), bool((a == b).all())
    (32, False)
    """
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = np.asarray(weights[name])
        digest.update(f"{name} {value.dtype.str} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return np.frombuffer(digest.digest(), np.uint8).copy()
