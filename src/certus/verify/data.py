"""How the verifier reads data: matrices, labels, weights and a fingerprint.

Everything is computed in float64. Dense blocks of another dtype are cast a block at a
time, so checking never doubles the memory of X; sparse X is never densified.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 1 << 18  # elements handled at a time, so that they stay in cache
_SPREAD_ROWS = 20_000


def as_matrix(X: Any) -> Any:
    """X as a numeric 2-D array or CSR/CSC matrix, or an error that says what to do."""
    if sparse.issparse(X):
        X = X if X.format in ("csr", "csc") else X.tocsr()
    else:
        X = np.asarray(X)
        if X.dtype.kind not in "fiub":
            try:
                X = X.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"X is not numeric ({error}). Encode text and categories first, "
                    "or pass the whole pipeline."
                ) from None
        if X.ndim != 2:
            raise ValueError(f"X has shape {X.shape}; pass rows × columns.")
    if X.shape[0] == 0:
        raise ValueError("X has no rows.")
    return X


def refuse_holes(X: Any) -> None:
    """Raise if X holds NaN or inf."""
    values = X.data if sparse.issparse(X) else X
    bad = values.size - int(np.isfinite(values).sum())
    if bad:
        raise ValueError(f"X holds {bad} NaN or infinite values. Fill or drop them.")


def plain(coef: Any) -> Array:
    """Coefficients as an array; scikit-learn's ``sparsify`` makes them sparse."""
    found = np.asarray(coef.toarray() if sparse.issparse(coef) else coef)
    if found.dtype.kind not in "fiub":
        raise ValueError("The model's coefficients are not real numbers. Fit it again.")
    return found


def dot(X: Any, w: Array) -> Array:
    """X @ w in float64."""
    w = np.asarray(w, dtype=np.float64)
    by_column = X.format == "csc" if sparse.issparse(X) else X.flags.f_contiguous
    used = np.flatnonzero(w) if by_column and w.ndim == 1 else None
    if used is not None and 4 * len(used) < len(w):
        X, w = X[:, used], w[used]  # a sparse model touches few columns
    if sparse.issparse(X) or X.dtype == np.float64:
        return np.asarray(X @ w, dtype=np.float64)
    out = np.empty((X.shape[0], *w.shape[1:]))
    rows = max(1, _BLOCK // max(1, X.shape[1]))
    for i in range(0, X.shape[0], rows):
        out[i : i + rows] = X[i : i + rows].astype(np.float64) @ w
    return out


def t_dot(X: Any, u: Array) -> Array:
    """Xᵀ @ u in float64."""
    if sparse.issparse(X):
        return np.asarray(X.T @ u, dtype=np.float64)
    if X.dtype == np.float64:
        return np.asarray(u @ X if u.ndim == 1 else (u.T @ X).T)
    out = np.zeros((X.shape[1], *u.shape[1:]))
    rows = max(1, _BLOCK // max(1, X.shape[1]))
    for i in range(0, X.shape[0], rows):
        out += X[i : i + rows].astype(np.float64).T @ u[i : i + rows]
    return out


def magnitudes(X: Any) -> Array:
    """Root mean square of each column, estimated on a few evenly spaced rows.

    Only rounding allowances use it, so an estimate serves.
    """
    n, d = X.shape
    if sparse.issparse(X):
        values = X.data.astype(np.float64, copy=False)
        return np.full(d, np.sqrt(float(values @ values) / max(1, n * d)))
    few = min(n, 512, max(32, (1 << 20) // max(1, d)))
    rows = X[np.unique(np.linspace(0, n - 1, few).astype(int))]
    return np.asarray(np.sqrt(np.mean(np.square(rows, dtype=np.float64), axis=0)))


def spread(X: Any, s: Array, centred: bool) -> float:
    """‖√s(X − 1mᵀ)‖_F, or a lower bound from evenly spaced rows when there are many.

    Rows left out, and centring the others at their own mean, only lower it; so a value
    divided by it is an upper bound.
    """
    step = max(1, X.shape[0] // _SPREAD_ROWS)
    if sparse.issparse(X):
        square = np.asarray(X.multiply(X).T @ s, dtype=np.float64)
        mean = t_dot(X, s) / s.sum() if centred else np.zeros(X.shape[1])
        total = square.sum() - s.sum() * (mean @ mean)
    else:
        X, s = X[::step], s[::step]
        mean = t_dot(X, s) / max(s.sum(), 1e-300) if centred else None
        total = 0.0
        rows = max(1, _BLOCK // max(1, X.shape[1]))
        for i in range(0, X.shape[0], rows):
            block = X[i : i + rows].astype(np.float64, copy=mean is not None)
            if mean is not None:
                block -= mean
            total += float(np.einsum("ij,ij,i->", block, block, s[i : i + rows]))
    return float(np.sqrt(max(total, 0.0)))


def as_array(X: Any) -> Any:
    """A torch tensor of any kind as an array; anything else as it is."""
    if not hasattr(X, "detach"):
        return X
    X = X.detach().cpu().to_dense()
    return (X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy()


def weights(
    sample_weight: Any,
    class_weight: Any,
    y: Array,
    classes: Array | None,
    n: int,
    counts: str = "weights",
) -> Array:
    """Non-negative row weights; ``class_weight`` multiplies, as in scikit-learn."""
    s = np.ones(n) if sample_weight is None else np.asarray(sample_weight, float)
    if s.ndim == 0:
        s = np.full(n, float(s))
    if s.shape != (n,):
        raise ValueError(f"sample_weight has shape {s.shape}; expected ({n},).")
    if not np.all(np.isfinite(s)) or s.min() < 0 or s.max() <= 0:
        raise ValueError("sample_weight must be finite, non-negative, not all zero.")
    if class_weight is None or classes is None:
        return s
    s = np.asarray(s * class_weights(class_weight, s, y, classes, counts)[y])
    if not s.any():
        raise ValueError("class_weight leaves no row with a positive weight.")
    return s


def class_weights(
    class_weight: Any, s: Array, y: Array, classes: Array, counts: str = "weights"
) -> Array:
    """One weight per class; "balanced" counts weights or, if told so, rows."""
    if isinstance(class_weight, Mapping):
        return _named_weights(class_weight, classes.tolist())
    if not isinstance(class_weight, str) or class_weight != "balanced":
        raise ValueError(
            f"class_weight={class_weight!r}; use 'balanced', a dict from label to "
            "weight, or None."
        )
    share = s if counts == "weights" else np.ones(len(y))
    sizes = np.bincount(y, weights=share, minlength=len(classes))
    present = sizes > 0
    each = share.sum() / (present.sum() * np.where(present, sizes, 1))
    return np.where(present, each, 0.0)


def _named_weights(class_weight: Mapping[Any, Any], labels: list[Any]) -> Array:
    """Weights by label; a certificate's file turns keys into text."""
    named = [next((k for k in (x, str(x)) if k in class_weight), None) for x in labels]
    names = {key for label in labels for key in (label, str(label))}
    odd = [key for key in class_weight if key not in names]
    if odd and None in named:
        known = ", ".join(sorted(map(str, labels))[:8])
        raise ValueError(
            f"class_weight names {odd[0]!r}, which is no class of y: they are {known}."
        )
    try:
        given = [1.0 if key is None else float(class_weight[key]) for key in named]
    except TypeError:
        raise ValueError("class_weight must hold numbers.") from None
    if not all(0 <= weight < np.inf for weight in given):
        raise ValueError("class_weight must be finite and not negative.")
    return np.array(given)


def codes(y: Any, classes: Array) -> Array:
    """Position of each label among the (sorted) ``classes`` of the model."""
    y = np.asarray(y)
    if y.ndim == 0:
        raise ValueError("y is missing: pass the labels the model was fitted on.")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; pass one label per row.")
    try:
        found = _positions(classes, y)
        found = np.minimum(found, len(classes) - 1)
        known = classes[found] == y
    except TypeError:
        known = np.zeros(len(y), dtype=bool)
        found = known.astype(int)
    if not np.all(known):
        strange = y[np.flatnonzero(~np.asarray(known))[0]]
        some = ", ".join(map(str, classes[:5].tolist()))
        raise ValueError(
            f'y holds the label "{strange}", which the model was not fitted on (it '
            f"knows {some}{' …' if len(classes) > 5 else ''}). Leave such rows out, "
            "or refit."
        )
    return np.asarray(found, dtype=np.int64)


def _positions(classes: Array, y: Array) -> Array:
    """Where each label stands among the sorted classes, or would stand."""
    whole = classes.dtype.kind in "iu" and y.dtype.kind in "iu" and len(classes) > 0
    if whole and int(classes[-1]) - int(classes[0]) < 1024 <= len(y):
        low, high = int(classes[0]), int(classes[-1])
        if low <= int(y.min()) and int(y.max()) <= high:  # a table beats a search
            table = np.searchsorted(classes, np.arange(low, high + 1))
            return np.asarray(
                table[np.subtract(y, low, dtype=np.intp, casting="unsafe")]
            )
    return np.searchsorted(classes, y)


#: Targets below this have squares that a float64 cannot hold.
TINY = 1e-153


def numbers(y: Any, n: int) -> Array:
    """Targets as float64, shape (n,) or (n, k)."""
    y = np.asarray(y)
    if y.ndim not in (1, 2):
        raise ValueError("y is missing: pass the targets the model was fitted on.")
    try:
        y = y.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError("y is not numeric; this model is a regressor.") from None
    if y.shape[0] != n:
        raise ValueError(f"y has {y.shape[0]} rows and X has {n}.")
    if not np.all(np.isfinite(y)):
        raise ValueError("y holds NaN or infinite values. Fill or drop those rows.")
    if 0 < np.abs(y).max(initial=0.0) < TINY:
        raise ValueError(f"y is below {TINY:g} everywhere, too small to be squared.")
    return y


#: Up to so many columns are summed one by one.
NARROW = 8


def fingerprint(
    X: Any, y: Array, s: Array, projected: Array | None = None
) -> dict[str, Any]:
    """Shape, dtype, Σs, and projections on fixed irrational sequences.

    Detects mistakes (other rows, changed cells, another order), not adversaries. Every
    cell enters with a weight that is not zero, so NaN and inf are found on the way.
    ``projected`` is X @ direction(d), if a pass of the checker has computed it already.
    """
    n, d = X.shape
    row = _sequence(n, 0.6180339887498949)
    # As numbers of order one, so that tiny and huge columns both leave a trace.
    # Sums without BLAS where little is summed: its threads would keep turning
    # afterwards, and slow whatever the user does next.
    with np.errstate(over="ignore", invalid="ignore"):
        column = direction(d)
        if projected is not None:
            pass
        elif d <= NARROW and not sparse.issparse(X):
            projected = sum((X[:, j] * column[j] for j in range(d)), np.zeros(n))
        else:
            projected = dot(X, column)
        x_mark = float(np.einsum("i,i", row, projected))
        y_mark = float(np.einsum("i,i...", row, y).sum())
    if not np.isfinite(projected).all():
        refuse_holes(X)
    return {
        "shape": [int(n), int(d)],
        "dtype": str(X.dtype),
        "weight": float(s.sum()),
        "s": float(np.einsum("i,i", row, s)) if len(s) == n else 0.0,
        "x": x_mark if np.isfinite(x_mark) else 0.0,
        "x_scale": float(np.abs(projected).max(initial=0.0)),
        "y": y_mark,
        **unordered(projected, y),
    }


def unordered(projected: Array, y: Any = None) -> dict[str, Any]:
    """Sums over rows that tell their set, in whatever order they come.

    A bounded function of each row's projection, in units of their root mean square, and
    targets weighted by it.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rms = float(np.sqrt(np.mean(np.square(projected)))) if len(projected) else 0.0
        q = projected / rms if 0 < rms < np.inf else np.zeros(len(projected))
        q = q / (1.0 + q * q)
        marks = {"set": float(q.sum()), "rms": rms if rms < np.inf else 0.0}
        if np.shape(y) == q.shape:
            marks["y_set"] = float(y.sum() + q @ y)
    return marks


def same_rows(a: Mapping[str, Any], b: Mapping[str, Any], targets: bool) -> bool:
    """Whether two fingerprints are of the same rows, in any order.

    With ``targets`` these must agree too. Marks of older files know one order only.
    """
    if "x" not in a or "x" not in b or list(a["shape"]) != list(b["shape"]):
        return False
    if "set" not in a or "set" not in b:
        ignored = ("weight", "s") if targets else ("weight", "s", "y")
        return same_data(a, {**b, **{k: a[k] for k in ignored if k in a}})
    pairs = [(a["rms"], b["rms"])]
    if targets:
        if "y_set" not in a or "y_set" not in b:
            return False
        pairs.append((a["y_set"], b["y_set"]))
    return abs(a["set"] - b["set"]) <= 1e-9 * a["shape"][0] and all(
        abs(one - other) <= 1e-9 * max(abs(one), abs(other)) for one, other in pairs
    )


def text_code(text: Any) -> int:
    """Checksum of a document: a str, or its words."""
    if not isinstance(text, str):
        text = "\x1f".join(map(str, text))
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def text_fingerprint(codes: list[int], y: Array) -> dict[str, Any]:
    """As :func:`fingerprint`, of documents by their checksums: one column of texts."""
    row = _sequence(len(codes), 0.6180339887498949)
    marks = np.array(codes, dtype=np.float64) / 2**32 - 0.5
    return {
        "shape": [len(codes), 1],
        "dtype": "str",
        "weight": float(len(codes)),
        "x": float(row @ marks),
        "x_scale": 0.5,
        "y": float(row @ y),
        **unordered(marks, y),
    }


def direction(d: int) -> Array:
    """The fixed direction on which rows are projected for a fingerprint."""
    return _sequence(d, 0.7548776662466927)


def _sequence(n: int, step: float) -> Array:
    return np.modf(np.arange(1, n + 1) * step)[0] - 0.5


def same_data(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two fingerprints agree, up to the rounding of another machine."""
    if "x" not in a or "x" not in b or list(a["shape"]) != list(b["shape"]):
        return False  # what was refused has no fingerprint
    scale = max(1e-300, abs(float(a["x_scale"])) * float(np.sqrt(a["shape"][0])))
    s = [float(marks["s"]) for marks in (a, b) if "s" in marks]  # older ones lack it
    return (
        abs(a["x"] - b["x"]) <= 1e-10 * scale
        and abs(a["y"] - b["y"]) <= 1e-10 * max(1e-300, abs(a["y"]), abs(b["y"]))
        and abs(a["weight"] - b["weight"]) <= 1e-10 * abs(a["weight"])
        and abs(s[0] - s[-1] if s else 0.0) <= 1e-10 * abs(a["weight"])
    )
