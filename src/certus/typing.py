"""Types that all parts of certus use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

__all__ = [
    "Array",
    "ArrayLike",
    "Column",
    "CompressedMatrix",
    "DTypeLike",
    "DataFrame",
    "Fit",
    "Matrix",
    "MatrixLike",
    "Places",
    "RandomState",
    "Shape",
    "SparseMatrix",
    "TextsLike",
    "ThreatLike",
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


class CompressedMatrix(SparseMatrix, Protocol):
    """A matrix of ``scipy.sparse`` that is stored by rows (CSR) or columns (CSC)."""

    data: Array
    indices: Array
    indptr: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def T(self) -> Any:
        """The transpose."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""

    @property
    def format(self) -> str:
        """Either "csr" or "csc"."""

    @property
    def nnz(self) -> int:
        """Number of stored entries."""

    def __getitem__(self, key: Any, /) -> Any: ...

    def __matmul__(self, other: Any, /) -> Any: ...

    def __abs__(self) -> Any: ...

    def astype(self, dtype: DTypeLike, *, copy: bool = True) -> Any:
        """The same entries in another type."""

    def multiply(self, other: Any) -> Any:
        """Products entry by entry."""

    def sum(self, axis: int | None = None) -> Any:
        """Sums of all entries, or along an axis."""


class Fit(Protocol):
    """A fitted model of any library, whose public attributes are read by name."""

    def __getattribute__(self, name: str, /) -> Any:
        """Read a parameter, a fitted attribute or a method."""


class ThreatLike(Protocol):
    """What an attacker may do to a row, such as ``certus.threat.ThreatModel``."""

    @property
    def norm(self) -> Any:
        """The p of the norm."""

    @property
    def radius(self) -> float:
        """Size of the ball."""

    @property
    def low(self) -> Any:
        """Smallest valid values."""

    @property
    def high(self) -> Any:
        """Largest valid values."""

    @property
    def fixed(self) -> Any:
        """Entries that cannot change, or None."""


class DataFrame(Protocol):
    """A table of pandas, polars or another library of frames."""

    @property
    def columns(self) -> Any:
        """Their names."""

    def __len__(self) -> int: ...


#: Sizes along each axis; None stands for any size.
Shape = tuple[int | None, ...] | None
#: One entry for each row, as users pass it; or nothing.
Column = ArrayLike | None
#: Rows or columns of a matrix: their numbers, or a part of it.
Places = Array | slice
#: Rows after they were read: a 2-D array of numbers, or a sparse matrix.
Matrix = Array | CompressedMatrix
#: Rows as users pass them: array-like, sparse, or a table with named columns.
MatrixLike = ArrayLike | SparseMatrix | DataFrame
#: Documents: strings, or their words.
TextsLike = Iterable[str] | Iterable[Sequence[str]]
#: Where random numbers come from; None for numbers that differ from call to call.
RandomState = int | np.random.RandomState | np.random.Generator | None
