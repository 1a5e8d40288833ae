"""How distributions, rows and mixtures are read, and the errors about them."""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._core.rows import as_array
from certus.typing import Array, ArrayLike

#: How far from 1 a sum of probabilities may be, and an integral over a grid.
SUM, GRID = 1e-6, 1e-3


def finite_array(name: str, values: Any, ndim: int | None = None) -> Array:
    """A non-empty float64 array without NaN and infinity."""
    try:
        found = np.asarray(as_array(values), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers.") from None
    if ndim is not None and found.ndim != ndim:
        raise ValueError(
            f"{name} must have {ndim} dimension{'s' * (ndim != 1)}, got shape "
            f"{found.shape}."
        )
    if not found.size:
        raise ValueError(f"{name} must not be empty, got shape {found.shape}.")
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must not hold NaN or infinity.")
    return found


def rows(name: str, values: Any, columns: int | None = None) -> Array:
    """A matrix with one row for each sample; a vector is one column."""
    found = finite_array(name, values)
    if found.ndim == 1:
        found = found[:, None]
    if found.ndim != 2 or (columns is not None and found.shape[1] != columns):
        wanted = "rows" if columns is None else f"rows of {columns} numbers"
        raise ValueError(f"{name} must be {wanted}, got shape {np.shape(values)}.")
    return found


def probabilities(name: str, values: Any, tol: float = SUM) -> Array:
    """Numbers that are not negative and sum to 1 along the last axis."""
    found = finite_array(name, values)
    if found.ndim == 0 or (found < 0).any():
        raise ValueError(f"{name} must be probabilities, none of them negative.")
    off = float(np.abs(found.sum(axis=-1) - 1.0).max())
    if off > tol:
        raise ValueError(f"{name} must sum to 1; the sum is off by {off:.3g}.")
    return found


def log_probabilities(
    name: str, values: Any, weights: ArrayLike | None = None
) -> tuple[Array, Array]:
    """Logarithms of probabilities, or of a density at nodes; and the weights."""
    if weights is None:
        found = probabilities(name, np.ravel(finite_array(name, values)))
        w = np.ones_like(found)
    else:
        found, w = finite_array(name, values), finite_array("weights", weights)
        if w.shape != found.shape or (w < 0).any():
            raise ValueError(
                f"weights must hold a non-negative number for each entry of {name}, "
                f"got shape {w.shape} for {found.shape}."
            )
        if (found < 0).any():
            raise ValueError(f"{name} must not be negative, got {found.min():.4g}.")
        mass = float(np.sum(w * found))
        if abs(mass - 1.0) > GRID:
            raise ValueError(
                f"{name} must integrate to 1 over the nodes, got {mass:.6g}. Use more "
                "nodes, or a grid that holds all of its mass."
            )
    with np.errstate(divide="ignore"):
        return np.log(found), w


def same_shape(name: str, other: str, a: Array, b: Array) -> None:
    """Raise an error unless two arrays have one shape."""
    if a.shape != b.shape:
        raise ValueError(
            f"{name} and {other} must have the same shape, got {a.shape} and {b.shape}."
        )
