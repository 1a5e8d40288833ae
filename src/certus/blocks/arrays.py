"""Blocks of an array in memory, a memory map, or a sparse matrix in rows."""

from __future__ import annotations

import hashlib
from copy import copy
from typing import Any

import numpy as np
from scipy import sparse

from certus.blocks.keys import CELLS, Blocks, Key, RowBlock
from certus.typing import Array, Matrix


class ArrayBlocks(Blocks):
    """Slices of rows; a sparse matrix is turned into dense rows a block at a time."""

    named = False

    def __init__(
        self,
        X: Matrix,
        y: Array | None,
        s: Array | None,
        rows: int | None,
        mark: Array | None = None,
    ) -> None:
        rows_of: Any = sparse.csr_array(X) if sparse.issparse(X) else X
        n, d = rows_of.shape
        if not n:
            raise ValueError("The table has no rows.")
        self._X, self._y, self._s, self._mark = rows_of, y, s, mark
        self._offset = 0  # of the first row that is held
        exact = rows_of.dtype in (np.float32, np.float64)
        self.dtype = rows_of.dtype if exact else np.dtype(float)
        self.names = tuple(f"x{j}" for j in range(d))
        step = rows or max(1, CELLS // max(1, d))
        starts = range(0, n, step)
        self.keys = tuple(
            Key("array", i, 0, first, min(step, n - first))
            for i, first in enumerate(starts)
        )

    @property
    def nbytes(self) -> int:
        """Size of the array in memory."""
        X = self._X
        return int(X.data.nbytes if sparse.issparse(X) else X.nbytes)

    def only(self, key: Key) -> ArrayBlocks:
        """The rows at one address alone, under the same address."""
        found, part = copy(self), slice(key.first, key.first + key.rows)
        found.keys, found._offset = (key,), key.first
        found._X = self._X[part]
        found._y, found._s = _of(self._y, part), _of(self._s, part)
        found._mark = _of(self._mark, part)
        return found

    def digest(self) -> bytes:
        """Addresses and content."""
        found = hashlib.sha256(repr(self.keys).encode())
        for key in self.keys:
            for part in self.read(key):
                if part is not None:
                    about = repr((part.dtype, part.shape)).encode()
                    plain = part.tolist() if part.dtype.hasobject else part
                    found.update(about)
                    found.update(
                        repr(plain).encode()
                        if isinstance(plain, list)
                        else np.ascontiguousarray(plain).tobytes()
                    )
        return found.digest()

    def targets(self) -> Blocks:
        """The same rows without columns of X."""
        found = copy(self)
        found.names, found._X = (), self._X[:, :0]
        return found

    def read(self, key: Key) -> RowBlock:
        """The rows at an address."""
        first = key.first - self._offset
        part = slice(first, first + key.rows)
        X = self._X[part].toarray() if sparse.issparse(self._X) else self._X[part]
        return RowBlock(
            np.asarray(X, dtype=self.dtype),
            _of(self._y, part),
            _of(self._s, part),
            _of(self._mark, part),
        )


def _of(values: Array | None, part: slice) -> Array | None:
    return None if values is None else np.asarray(values[part])
