"""Rows and background rows as one table, from which mixed rows are taken.

A mixed row has some columns from a row and the others from a background row. It is
named by an index for each column into the table of all rows, so that arrays and data
frames of any library are mixed in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
from scipy import sparse

from certus.base import take
from certus.typing import Array, MatrixLike

#: Rows that stand for the background if none is given, at most.
MOST_BACKGROUND = 100


@dataclass(frozen=True)
class StackedRows:
    """The rows to explain, and the background rows of the same form."""

    first: Any
    background: Any
    columns: tuple[str, ...]

    @property
    def n(self) -> int:
        """Rows to explain."""
        return int(self.first.shape[0])

    @property
    def m(self) -> int:
        """Background rows."""
        return int(self.background.shape[0])

    @cached_property
    def table(self) -> Any:
        """The rows to explain, followed by the background rows."""
        if isinstance(self.first, np.ndarray):
            return np.concatenate([self.first, self.background])
        parts = [
            nw.from_native(p, eager_only=True) for p in (self.first, self.background)
        ]
        return nw.concat(parts, how="vertical").to_native()

    @cached_property
    def _series(self) -> list[Any] | None:
        if isinstance(self.first, np.ndarray):
            return None
        frame = nw.from_native(self.table, eager_only=True)
        return [frame[name] for name in frame.columns]

    def mixed(self, places: Array) -> Any:
        """Rows whose column j is that of row ``places[:, j]``."""
        if self._series is None:
            return self.table[places, np.arange(places.shape[1])]
        parts = [series[places[:, j]] for j, series in enumerate(self._series)]
        frame = nw.from_native(self.table, eager_only=True)
        made = frame[places[:, 0]].with_columns(*parts) if parts else frame
        return made.to_native()

    def cells(self, all_rows: bool = False) -> list[list[Any]]:
        """The cells, column by column; of the rows to explain, or of all rows."""
        last = self.n + self.m if all_rows else self.n
        if self._series is None:
            part = self.table if all_rows else self.first
            return [part[:, j].tolist() for j in range(len(self.columns))]
        return [series[:last].to_list() for series in self._series]

    @property
    def kept(self) -> tuple[Sequence[Any], ...]:
        """The cells of the rows to explain, column by column, as they are now."""
        if self._series is None:
            return tuple(np.array(self.first).T)
        return tuple(map(tuple, self.cells()))


def read_rows(X: Any, background: MatrixLike | None) -> StackedRows:
    """Read rows and background; if none is given, some of the rows serve as such."""
    X = _readable(X, "X")
    n = X.shape[0]
    if n == 0:
        raise ValueError("X has no rows. Pass at least one row to explain.")
    if background is None:
        if n == 1:
            raise ValueError(
                "X has one row, and a contribution is a difference from other rows. "
                "Pass background=, for example some training rows."
            )
        chosen = np.unique(np.linspace(0, n - 1, min(n, MOST_BACKGROUND)).astype(int))
        behind = take(X, chosen)
    else:
        behind = _readable(background, "background")
    if behind.shape[0] == 0:
        raise ValueError("background has no rows. Pass at least one background row.")
    names = _names(X)
    _same_columns(X, behind)
    if isinstance(X, np.ndarray):
        return StackedRows(X, np.asarray(behind), names)
    return StackedRows(*_alike(X, behind), names)


def _readable(X: Any, name: str) -> Any:
    """A frame as it is, and anything else as a two-dimensional array."""
    if sparse.issparse(X):
        X = X.toarray()
    if not hasattr(X, "columns"):
        X = np.asarray(X)
    if len(X.shape) != 2:
        raise ValueError(
            f"{name} must have rows and columns, got {len(X.shape)} dimensions. For "
            f"one row pass [row]."
        )
    if isinstance(X, np.ndarray):
        return X.astype(np.float64) if X.dtype.kind in "iub" else X
    return nw.to_native(nw.from_native(X, eager_only=True))


def _names(X: Any) -> tuple[str, ...]:
    if isinstance(X, np.ndarray):
        return tuple(f"x{j}" for j in range(X.shape[1]))
    return tuple(str(name) for name in X.columns)


def _same_columns(X: Any, behind: Any) -> None:
    framed = [not isinstance(part, np.ndarray) for part in (X, behind)]
    if framed[0] != framed[1]:
        kinds = ["a data frame" if each else "an array" for each in framed]
        raise TypeError(
            f"X is {kinds[0]} and background is {kinds[1]}. Pass both in the same form."
        )
    if framed[0] and list(X.columns) != list(behind.columns):
        ours, theirs = map(set, (X.columns, behind.columns))
        apart = [
            str(name)
            for name in [*X.columns, *behind.columns]
            if name not in ours & theirs
        ]
        what = f"differ in {', '.join(apart[:3])}" if apart else "differ in order"
        raise ValueError(
            f"The columns of X and background {what}. Pass the same columns, in the "
            "same order."
        )
    if X.shape[1] != behind.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns and background has {behind.shape[1]}. Pass "
            "the same columns."
        )


def _alike(X: Any, behind: Any) -> tuple[Any, Any]:
    """Both with the same type in each column: that of X, or texts for categories.

    Two lists of categories may differ, and a background may have one more.
    """
    above, below = (nw.from_native(part, eager_only=True) for part in (X, behind))
    for name, kind in above.schema.items():
        if below.schema[name] == kind:
            continue
        column = nw.col(name).cast(nw.String if kind == nw.Enum else kind)
        above, below = above.with_columns(column), below.with_columns(column)
    return above.to_native(), below.to_native()
