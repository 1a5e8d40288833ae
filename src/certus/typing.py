"""Types that all parts of certus use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

__all__ = [
    "Array",
    "ArrayLike",
    "DTypeLike",
    "DataFrame",
    "MatrixLike",
    "RandomState",
    "SparseMatrix",
    "TextsLike",
]

#: An array of any shape and type.
Array = np.ndarray[Any, np.dtype[Any]]


class SparseMatrix(Protocol):
    """A matrix or array of ``scipy.sparse``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    def tocsr(self) -> Any:
        """Stored by rows."""

    def toarray(self) -> Any:
        """With its zeros."""


class DataFrame(Protocol):
    """A table of pandas, polars or another library of frames."""

    @property
    def columns(self) -> Any:
        """Their names."""

    def __len__(self) -> int: ...


#: Rows as users pass them: array-like, sparse, or a table with named columns.
MatrixLike = ArrayLike | SparseMatrix | DataFrame
#: Documents: strings, or their words.
TextsLike = Iterable[str] | Iterable[Sequence[str]]
#: Where random numbers come from; None for numbers that differ from call to call.
RandomState = int | np.random.RandomState | np.random.Generator | None
