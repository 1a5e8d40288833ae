"""Products of the rooms around the kernel, and the fingerprint of data.

Everything is computed in float64. Dense blocks of another dtype are cast a block at a
time, so checking never doubles the memory of X; sparse X is never densified.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from certus.verify.kernel import reading

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 1 << 18  # elements handled at a time, so that they stay in cache


def dot(X: Any, w: Array) -> Array:
    """X @ w in float64."""
    if sparse.issparse(X) or X.dtype == np.float64:
        return np.asarray(X @ w, dtype=np.float64)
    return np.concatenate([X[rows].astype(np.float64) @ w for rows in _blocks(X)])


def t_dot(X: Any, u: Array) -> Array:
    """Xᵀ @ u in float64."""
    if sparse.issparse(X) or X.dtype == np.float64:
        return np.asarray(X.T @ u, dtype=np.float64)
    parts = (X[rows].astype(np.float64).T @ u[rows] for rows in _blocks(X))
    return np.asarray(sum(parts))


def _blocks(X: Array) -> list[slice]:
    step = max(1, _BLOCK // max(1, X.shape[1]))
    return [slice(i, i + step) for i in range(0, max(1, len(X)), step)]


def dense(X: Any) -> Array:
    """Rows as an array: the few of a sparse matrix that are looked at together."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X)


def size_of(X: Any) -> float:
    """The largest entry, in size."""
    values = X.data if sparse.issparse(X) else X
    return max(float(values.max(initial=0)), -float(values.min(initial=0)))


def fitted(model: Any, name: str, shape: Any = None, *, finite: bool = False) -> Array:
    """Numbers that a fit has left, of some shape; None stands for any length."""
    try:
        found, wrong = reading.plain(getattr(model, name)), ""
    except ValueError:
        found, wrong, shape = np.zeros(0), "does not hold numbers", None
    if finite and not np.isfinite(found).all():
        wrong = "holds NaN or infinite values"
    sizes = found.shape if shape is None else shape
    pairs = zip(sizes, found.shape)
    if len(sizes) != found.ndim or any(a not in (None, b) for a, b in pairs):
        wrong = f"has shape {found.shape}, where the columns of X ask for {shape}"
    if wrong:
        said = f"{name} of this {type(model).__name__} {wrong}"
        raise ValueError(f"{said}. Fit it again, or restore its file.")
    return found


def named(what: str, which: Any) -> str:
    """Some of them by their numbers: "columns 0, 4"; the first five of many."""
    shown = ", ".join(str(int(i)) for i in which[:5])
    what = f"{what}s" if len(which) > 1 else what
    return f"{what} {shown} …" if len(which) > 5 else f"{what} {shown}"


def listed(model: Any, name: str) -> Any:
    """Ids, words or labels that a fit has left, one after the other."""
    found = getattr(model, name)
    if not isinstance(found, list | tuple) and np.ndim(found) != 1:
        text = f"{name} of this {type(model).__name__} is no list. Fit it again."
        raise ValueError(text)
    return found


def as_array(X: Any) -> Any:
    """A torch tensor of any kind as an array; anything else as it is."""
    if not hasattr(X, "detach"):
        return X
    X = X.detach().cpu().to_dense()
    return (X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy()


#: Rows summed at a time, and columns up to which they are summed one by one.
PART = 1 << 13
NARROW = 8


def row_weights(sample_weight: Any, n: int) -> Array:
    """Row weights as they were given, read by the kernel."""
    given = reading.weights(sample_weight, n)
    return np.ldexp(given.s, given.power)


def fingerprint(
    X: Any, y: Array, s: Array, projected: Array | None = None
) -> dict[str, Any]:
    """Shape, dtype, Σs, and projections on fixed irrational sequences.

    Detects mistakes (other rows, changed cells, another order), not adversaries. Every
    cell enters with a weight that is not zero, so NaN and inf are found on the way.
    ``projected`` is X @ direction(d), if a pass of the checker has computed it already.
    """
    n, d = X.shape
    # As numbers of order one, so that tiny and huge columns both leave a trace.
    # Sums without BLAS where little is summed: its threads would keep turning
    # afterwards, and slow whatever the user does next.
    with np.errstate(over="ignore", invalid="ignore"):
        if projected is None:
            narrow = d <= NARROW and not sparse.issparse(X)
            column = direction(d)
            projected = np.einsum("ij,j", X, column) if narrow else dot(X, column)
        top = size_of(projected)
        marks = [0.0, 0.0, 0.0]
        for i in range(0, n, PART):  # a part at a time stays in cache
            row = _sequence(min(PART, n - i), 0.6180339887498949, i)
            for k, a in enumerate((projected, y, s)):
                part = a[i : i + PART] if len(a) == n else np.zeros(len(row))
                marks[k] += float(np.einsum("i,i...", row, part).sum())
    if not np.isfinite(top):
        reading.refuse_holes(X)
    return {
        "shape": [int(n), int(d)],
        "dtype": str(X.dtype),
        "weight": float(s.sum()),
        "s": marks[2],
        "x": marks[0] if np.isfinite(marks[0]) else 0.0,
        "x_scale": float(top),
        "y": marks[1],
        **unordered(projected, y),
    }


def unordered(projected: Array, y: Any = None) -> dict[str, Any]:
    """Sums over rows that tell their set, in whatever order they come.

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


def same_rows(a: Mapping[str, Any], b: Mapping[str, Any], targets: bool) -> bool:
    """Whether two fingerprints are of the same rows, in any order.

    With ``targets`` these must agree too. Marks of older files know one order only.
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


def text_code(text: Any) -> int:
    """Checksum of a document: a str, or its words."""
    if not isinstance(text, str):
        text = "\x1f".join(map(str, text))
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def text_fingerprint(codes: list[int], y: Array) -> dict[str, Any]:
    """As :func:`fingerprint`, of documents by their checksums: one column of texts."""
    marks = np.array(codes, dtype=np.float64) / 2**32 - 0.5
    return fingerprint(marks[:, None], y, np.ones(len(y)), marks) | {"dtype": "str"}


def direction(d: int) -> Array:
    """The fixed direction on which rows are projected for a fingerprint."""
    return _sequence(d, 0.7548776662466927)


def _sequence(n: int, step: float, start: int = 0) -> Array:
    x = np.arange(start + 1, start + n + 1) * step
    return x - np.floor(x) - 0.5


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


def _of_one_shape(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """What was refused has no fingerprint."""
    known = "x" in a and "x" in b
    return known and list(a["shape"]) == list(b["shape"])
