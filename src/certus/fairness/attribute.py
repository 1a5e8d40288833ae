"""How interventions find and read the sensitive attribute.

It is passed beside X (``sensitive=``), or is in columns of X that the parameter
``sensitive_columns`` names; then ``fit`` and ``predict`` take X alone, as cross-
validation, searches and pipelines call them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from certus.fairness.groups import groups_of, objects_of
from certus.typing import Array, Fit, MatrixLike


class Attributed:
    """A mixin that reads the attribute from the arguments."""

    sensitive_columns: Any

    def _read_sensitive(self, X: MatrixLike, sensitive: MatrixLike) -> Array:
        """The attribute, one column for each, from ``sensitive`` or from X."""
        return read_sensitive(self, X, sensitive)

    def _refuse_text(self, X: MatrixLike, sensitive: MatrixLike) -> None:
        """Refuse text if all columns of a frame must be numbers."""
        if sensitive is not None or self.sensitive_columns is None:
            return
        if not hasattr(X, "columns"):
            return
        found = self._read_sensitive(X, None)
        if any(isinstance(x, str) for x in found.flat):
            raise ValueError(
                f"The columns {self.sensitive_columns!r} of X hold text, but "
                f"{type(self).__name__} needs numbers in all columns. Leave them out "
                "of X and pass them as sensitive, or encode them as numbers."
            )


def read_sensitive(model: Fit, X: MatrixLike, sensitive: MatrixLike) -> Array:
    """The attribute, one column for each, from ``sensitive`` or from X."""
    named = model.sensitive_columns
    n = count_rows(X)
    if sensitive is not None:
        if named is not None:
            raise ValueError(
                "The attribute was passed twice, as sensitive and in "
                "sensitive_columns. Pass only one of them."
            )
        found = objects_of(sensitive)
        if found.ndim not in (1, 2):
            raise ValueError(
                f"sensitive has shape {found.shape}; pass one value per row, or "
                "one column per attribute."
            )
        found = found.reshape(len(found), -1)
    elif named is None:
        raise ValueError(
            f"{type(model).__name__} needs the sensitive attribute: pass sensitive, "
            "or name the columns of X that hold it (sensitive_columns)."
        )
    else:
        names = [named] if isinstance(named, str | int) else list(named)
        columns = [_column(X, name) for name in names]
        found = np.empty((n, len(columns)), dtype=object)
        for j, column in enumerate(columns):
            found[:, j] = column
    if len(found) != n:
        raise ValueError(f"sensitive has {len(found):,} rows and X has {n:,}.")
    return found


def count_rows(X: Any) -> int:
    """Number of rows of an array, a frame, or a list."""
    if not hasattr(X, "shape"):
        return len(X if hasattr(X, "__len__") else np.asarray(X))
    return int(X.shape[0]) if X.shape else 0


def _column(X: Any, name: Any) -> Array:
    """A column of X by its name or its place."""
    try:
        if isinstance(name, str):
            return np.asarray(X[name], dtype=object)
        if hasattr(X, "iloc"):
            return np.asarray(X.iloc[:, name], dtype=object)
        if sparse.issparse(X):
            return np.asarray(X.tocsc()[:, [name]].toarray().ravel(), dtype=object)
        table = X if hasattr(X, "columns") else np.asarray(X)
        return np.asarray(table[:, name], dtype=object)
    except (KeyError, IndexError, TypeError, ValueError):
        pass
    except Exception as error:  # a frame's own error for a name it does not have
        if type(error).__name__ != "ColumnNotFoundError":
            raise
    raise ValueError(
        f"sensitive_columns names {name!r}, but X has no such column. Pass a data "
        "frame with that column, or the position of the column."
    )


def group_numbers(sensitive: Array) -> tuple[tuple[Any, ...], Array]:
    """The groups that occur and the number of each row's; no attribute, one group."""
    if not sensitive.shape[1]:
        return ((),), np.zeros(len(sensitive), dtype=int)
    found = groups_of(sensitive, len(sensitive))
    return found.labels, found.members


def columns_of(sensitive: Array) -> Array:
    """The attribute as numbers, of shape (n_samples, n_columns).

    A column of numbers with fractions stays as it is; any other holds categories, each
    of which, also what is missing, becomes a column of zeros and ones.
    """
    parts = [np.zeros((len(sensitive), 0))]
    for column in sensitive.T:
        if _is_amount(column):
            parts.append(np.array([float(x) for x in column])[:, None])
            continue
        labels, members = group_numbers(column[:, None])
        parts.append(np.eye(len(labels))[members])
    return np.hstack(parts)


def _is_amount(column: Array) -> bool:
    """Whether all values are finite numbers and one has a fraction."""
    numbers = all(
        isinstance(x, int | float | np.number) and not isinstance(x, bool)
        for x in column
    )
    if not numbers:
        return False
    values = [float(x) for x in column]
    return all(map(math.isfinite, values)) and any(x != math.floor(x) for x in values)


def basis_of(sensitive: Array, s: Array) -> Array:
    """Columns u with mean zero, Σsuu'/Σs = 1: they span what the attribute explains.

    The variance of a score that the attribute explains linearly is the sum of its
    squared covariances with them; for groups, the variance of the groups' means.
    """
    share = s / s.sum()
    A = columns_of(sensitive)
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.abs(A).max(axis=0, initial=0.0)
        A = A / np.where(scale > 0, scale, 1.0)
        A = A - share @ A
    size = np.sqrt(share @ np.square(A))
    A = A[:, size > 1e-12]
    root = np.sqrt(share)[:, None]
    U, values, _ = np.linalg.svd(root * (A / size[size > 1e-12]), full_matrices=False)
    U = U[:, values > 1e-10 * values.max(initial=0.0)]
    return np.divide(U, root, out=np.zeros_like(U), where=root > 0)
