"""Types that all parts of certus use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

__all__ = [
    "Array",
    "ArrayLike",
    "Axes",
    "ClassWeight",
    "Column",
    "CompressedMatrix",
    "DTypeLike",
    "DataFrame",
    "Fit",
    "GraphLike",
    "Matrix",
    "MatrixLike",
    "ModuleLike",
    "NodeLabels",
    "Places",
    "RandomState",
    "Shape",
    "SparseMatrix",
    "Texts",
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


class Axes(Protocol):
    """Axes of matplotlib, which nothing here imports."""

    def __getattribute__(self, name: str, /) -> Any:
        """Read a method, such as ``plot``."""


class NodesAndEdges(Protocol):
    """A graph of networkx."""

    @property
    def nodes(self) -> Any:
        """Names of the nodes."""

    @property
    def edges(self) -> Any:
        """Pairs of names."""


class EdgeIndex(Protocol):
    """A graph of PyTorch Geometric."""

    @property
    def edge_index(self) -> Any:
        """Numbers of the nodes at both ends of each edge, (2, edges)."""


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
#: Graphs as users pass them: a matrix, a list of edges, networkx, or PyG's Data.
GraphLike = MatrixLike | Sequence[Sequence[Any]] | NodesAndEdges | EdgeIndex
#: Labels of nodes: one for each in order, or by name.
NodeLabels = ArrayLike | Mapping[Any, Any] | None
#: Weights of classes, by label.
ClassWeight = Mapping[Any, float] | str | None
#: The network of an estimator: a name, a module, or a function that makes one.
ModuleLike = str | Callable[..., Any]
#: Texts in their order.
Texts = Sequence[str | bytes]
#: Documents: strings, or their words.
TextsLike = Iterable[str] | Iterable[Sequence[str]]
#: Where random numbers come from; None for numbers that differ from call to call.
RandomState = int | np.random.RandomState | np.random.Generator | None
