"""The verifier's own readers: matrices, targets, labels and weights.

The solvers have their own readers on purpose; a test compares both on hostile input.
Numbers are float64; dense X of another dtype is cast a block at a time, sparse X is
never densified.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.typing import Array, Column, Matrix, MatrixLike

#: Targets below this have squares that a float64 cannot hold.
TINY = 1e-153


class Weights(NamedTuple):
    """Row weights s·2^power: a power of two keeps their sum within range."""

    s: Array
    power: int = 0

    def level(self, alpha: float, rows: bool = False) -> float:
        """Alpha/Σs, for a penalty added to a sum of losses; or alpha·n/Σs."""
        share = alpha * (len(self.s) if rows else 1.0) / float(self.s.sum())
        return math.ldexp(share, -self.power)


def as_matrix(X: MatrixLike) -> Matrix:
    """X as a numeric 2-D array or CSR/CSC matrix, or an error that says what to do."""
    found: Any = X
    if sparse.issparse(X):
        found = found if found.format in ("csr", "csc") else found.tocsr()
        if found.dtype.kind not in "fiub":
            raise ValueError("X is not numeric: its entries must be real numbers.")
        if not found.has_canonical_format:  # parts of an entry say nothing of its size
            found = found.tocoo().astype(np.float64).asformat(found.format)
    else:
        found = np.asarray(X)
        if found.dtype.kind not in "fiub":
            try:
                found = found.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"X is not numeric ({error}). Encode text and categories first, "
                    "or pass the whole pipeline."
                ) from None
        if found.ndim != 2:
            raise ValueError(f"X has shape {found.shape}; pass rows × columns.")
    if found.shape[0] == 0:
        raise ValueError("X has no rows.")
    return found


def refuse_holes(X: Matrix) -> None:
    """Raise if X holds NaN or inf."""
    values = X if isinstance(X, np.ndarray) else X.data
    bad = values.size - int(np.isfinite(values).sum())
    if bad:
        raise ValueError(f"X holds {bad} NaN or infinite values. Fill or drop them.")


def plain(coef: Any) -> Array:
    """Coefficients as an array; scikit-learn's ``sparsify`` makes them sparse."""
    found = np.asarray(coef.toarray() if sparse.issparse(coef) else coef)
    if found.dtype.kind not in "fiub":
        raise ValueError("The model's coefficients are not real numbers. Fit it again.")
    return found


def numbers(y: Column, n: int) -> Array:
    """Targets as float64, shape (n,) or (n, k)."""
    y = np.asarray(y)
    if y.ndim not in (1, 2):
        raise ValueError("y is missing: pass the targets the model was fitted on.")
    try:
        y = y.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        raise ValueError("y is not numeric, but this model is a regressor.") from None
    if y.shape[0] != n:
        raise ValueError(f"y has {y.shape[0]} rows and X has {n}.")
    top = max(y.max(initial=0.0), -y.min(initial=0.0))
    if not top < math.inf:
        raise ValueError("y holds NaN or infinite values. Fill or drop those rows.")
    if 0 < top < TINY:
        raise ValueError(f"y is below {TINY:g} everywhere, too small to be squared.")
    return y


def codes(y: Column, classes: Array, n: int | None = None) -> Array:
    """Position of each label among the (sorted) ``classes`` of the model."""
    y = np.asarray(y)
    if y.ndim == 0:
        raise ValueError("y is missing: pass the labels the model was fitted on.")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; pass one label per row.")
    if n is not None and len(y) != n:
        raise ValueError(f"y has {len(y)} rows and X has {n}.")
    try:
        two = len(classes) == 2  # in a tenth of the time
        found = y == classes[1] if two else np.searchsorted(classes, y)
        found = np.minimum(found, len(classes) - 1)
        known = np.asarray(classes[found] == y)
    except TypeError:
        known = np.zeros(len(y), dtype=bool)
        found = known.astype(int)
    if not np.all(known):
        strange = y[np.flatnonzero(~known)[0]]
        some = ", ".join(map(str, classes[:5].tolist()))
        raise ValueError(
            f'y holds the label "{strange}", which the model was not fitted on (it '
            f"knows {some}{' …' if len(classes) > 5 else ''}). Leave such rows out, "
            "or refit."
        )
    return np.asarray(found, dtype=np.int64)


def weights(sample_weight: Column, n: int) -> Weights:
    """Non-negative row weights, not all zero, within a range that can be summed."""
    s = np.ones(n) if sample_weight is None else np.asarray(sample_weight, float)
    if s.ndim == 0:
        s = np.full(n, float(s))
    if s.shape != (n,):
        raise ValueError(f"sample_weight has shape {s.shape}; expected ({n},).")
    if not np.all(np.isfinite(s)) or s.min() < 0 or s.max() <= 0:
        raise ValueError("sample_weight must be finite, not negative and not all zero.")
    return _in_range(s, 0)


def _in_range(s: Array, power: int) -> Weights:
    # Near 1, so that products with small numbers do not vanish.
    top = math.frexp(float(s.max()))[1]
    if abs(top) < 40:
        return Weights(s, power)
    return Weights(np.ldexp(s, -top), power + top)


def times_classes(given: Weights, factors: Array, labels: Array) -> Weights:
    """Row weights with the weight of each row's class multiplied in."""
    s = given.s * factors[labels]
    if not s.any():
        raise ValueError("class_weight leaves no row with a positive weight.")
    return _in_range(s, given.power)


def class_weights(
    class_weight: object, given: Weights, labels: Array, classes: Array, counts: str
) -> Array:
    """One weight per class; "balanced" counts "weights" or "rows"."""
    if isinstance(class_weight, Mapping):
        return _named_weights(class_weight, classes)
    if not isinstance(class_weight, str) or class_weight != "balanced":
        raise ValueError(
            "class_weight must be 'balanced', a dict from label to weight, or None; "
            f"got {class_weight!r}."
        )
    share = given.s if counts == "weights" else np.ones(len(labels))
    sizes = np.bincount(labels, weights=share, minlength=len(classes))
    present = sizes > 0
    each = share.sum() / (present.sum() * np.where(present, sizes, 1))
    return np.where(present, each, 0.0)


def _named_weights(class_weight: Mapping[Any, Any], classes: Array) -> Array:
    """Weights by label; a file turns keys into text."""
    labels = classes.tolist()
    named = [next((k for k in (x, str(x)) if k in class_weight), None) for x in labels]
    names = {key for label in labels for key in (label, str(label))}
    odd = [key for key in class_weight if key not in names]
    if odd and None in named:
        known = ", ".join(sorted(map(str, labels))[:8])
        raise ValueError(
            f"class_weight names {odd[0]!r}, which is not in y; y has {known}."
        )
    try:
        given = [1.0 if key is None else float(class_weight[key]) for key in named]
    except TypeError:
        raise ValueError("class_weight must hold numbers.") from None
    if not all(0 <= weight < np.inf for weight in given):
        raise ValueError("class_weight must be finite and not negative.")
    return np.array(given)
