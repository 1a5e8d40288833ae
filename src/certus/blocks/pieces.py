"""Blocks of an iterator, written to a scratch folder once.

Later passes, the verifier and other processes need rows by address, which an iterator
does not have. It is asked for its rows once; each of its pieces is a block.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import narwhals
import numpy as np
from scipy import sparse

from certus.blocks.files import FileChanged
from certus.blocks.kept import Kept
from certus.blocks.keys import Blocks, Key, RowBlock
from certus.blocks.scratch import Scratch, tell_written
from certus.typing import Array
from certus.wording import unstopped

#: What a piece may be.
PIECES = "X, (X, y), (X, y, sample_weight), or a table of polars, pandas or pyarrow"


def is_stream(source: object) -> bool:
    """Whether rows come from a function that returns an iterator, or from one."""
    if isinstance(source, type):
        return False
    return hasattr(source, "__next__") or (
        callable(source) and not hasattr(source, "__array__")
    )


def of_stream(source: Any, target: Any, weight: Any, columns: Any) -> Blocks:
    """Blocks of an iterator's pieces: tables by Parquet, arrays as they are."""
    pieces = iter(source()) if callable(source) else iter(source)
    first = next(pieces, None)
    if first is None:
        raise ValueError("The iterator has no pieces, so the table has no rows.")
    pieces = itertools.chain([first], pieces)
    if _is_table(first):
        roles = _Roles(first, target, weight, columns)
        return PieceBlocks(map(roles.split, pieces), roles.names)
    given = {"target": target, "sample_weight": weight, "columns": columns}
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} is for an iterator of tables. Of arrays, let the iterator "
                "yield (X, y) or (X, y, sample_weight)."
            )
    return PieceBlocks(pieces)


def _is_table(piece: Any) -> bool:
    return hasattr(piece, "columns") and not isinstance(piece, tuple | list)


class _Roles:
    """Which columns of a table are X, the target and the weights."""

    def __init__(
        self,
        table: Any,
        target: str | None,
        weight: str | None,
        columns: Sequence[str] | None,
    ) -> None:
        frame = narwhals.from_native(table, eager_only=True)
        chosen = [n for n in frame.columns if n not in (target, weight)]
        self.names = chosen if columns is None else [*columns]
        self.target, self.weight = target, weight
        if target in self.names or not self.names:
            raise ValueError(
                "columns must name at least one column beside the target, got "
                f"{self.names}."
            )
        floats = all(frame.schema[n] == narwhals.Float32 for n in self.names)
        self.kind = np.float32 if floats else np.float64

    def split(self, table: Any) -> tuple[Any, Any, Any]:
        """X with its rows one after another, target and weights."""
        frame = narwhals.from_native(table, eager_only=True)
        missing = [n for n in self._all() if n not in frame.columns]
        if missing:
            known = ", ".join(frame.columns[:8])
            raise ValueError(
                f"A table of the iterator has no column {missing[0]!r}; it has {known}."
            )
        X = np.empty((len(frame), len(self.names)), dtype=self.kind)
        for j, name in enumerate(self.names):
            X[:, j] = self._values(frame, name, numbers=True)
        y = None if self.target is None else self._values(frame, self.target)
        s = None if self.weight is None else self._values(frame, self.weight, True)
        return X, y, s

    def _all(self) -> list[str]:
        more = [n for n in (self.target, self.weight) if n is not None]
        return [*self.names, *more]

    def _values(self, frame: Any, name: str, numbers: bool = False) -> Array:
        column = frame[name]
        if column.null_count():
            raise ValueError(
                f"Column {name!r} of the iterator's tables has missing values. Fill "
                "them first, or drop those rows."
            )
        kind = column.dtype
        if numbers and not (kind.is_numeric() or kind == narwhals.Boolean):
            raise ValueError(
                f"Column {name!r} of the iterator's tables holds {kind}, not numbers. "
                "Encode it first, or leave it out with columns=[...]."
            )
        return np.asarray(column.to_numpy())


class PieceBlocks(Blocks):
    """Arrays of an iterator: files of a scratch folder, a few for each block."""

    def __init__(
        self, pieces: Iterator[Any], names: Sequence[str] | None = None
    ) -> None:
        self.named = names is not None
        self._scratch = Scratch()
        self._folder = self._scratch.folder
        keys: list[Key] = []
        content, first, width = hashlib.sha256(), 0, -1
        kinds, held = set(), None
        for i, piece in enumerate(pieces):
            X, y, s = _parts(piece, i)
            if width not in (-1, X.shape[1]):
                raise ValueError(
                    f"Piece {i} of the iterator has {X.shape[1]} columns, but the "
                    f"first has {width}."
                )
            if held not in (None, (y is None, s is None)):
                raise ValueError(
                    f"Piece {i} of the iterator must have a target and weights if, and "
                    "only if, the first has."
                )
            width, held = X.shape[1], (y is None, s is None)
            if not len(X):
                continue
            kinds.add(X.dtype)
            for name, part in zip("Xys", (X, y, s)):
                if part is not None:
                    np.save(self._path(i, name), part, allow_pickle=False)
                    content.update(repr((part.dtype.str, part.shape)).encode())
                    content.update(np.ascontiguousarray(part).tobytes())
            keys.append(Key(self._folder, i, 0, first, len(X)))
            first += len(X)
        if not keys:
            raise ValueError("The iterator has no rows.")
        self.keys = tuple(keys)
        self.names = tuple(names or (f"x{j}" for j in range(width)))
        single = kinds == {np.dtype(np.float32)}
        self.dtype = np.dtype(np.float32 if single else np.float64)
        self._content = content.digest()
        self._kept = Kept()
        sizes = [os.path.getsize(each.path) for each in os.scandir(self._folder)]
        tell_written("the iterator", sum(sizes))

    def _path(self, part: int, name: str) -> str:
        return os.path.join(self._folder, f"{part:06d}-{name}.npy")

    def digest(self) -> bytes:
        """Blocks and content."""
        where = [(key.part, key.rows) for key in self.keys]
        about = repr((where, self.names)).encode()
        return hashlib.sha256(self._content + about).digest()

    def read(self, key: Key) -> RowBlock:
        """The rows at an address; read once while they fit in memory."""
        return self._kept.get(key, self._loaded)

    def _loaded(self, key: Key) -> RowBlock:
        return RowBlock(
            np.asarray(self._load(key, "X"), dtype=self.dtype),
            self._load(key, "y"),
            self._load(key, "s"),
        )

    def _load(self, key: Key, name: str) -> Any:
        path = self._path(key.part, name)
        if name != "X" and not os.path.exists(path):
            return None
        try:
            return np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise FileChanged(
                f"{path}, a scratch file of the iterator's rows, cannot be read: "
                f"{unstopped(error)}. On a cluster, write the rows to Parquet where "
                "all workers see them, and pass the path."
            ) from error


def _parts(piece: Any, i: int) -> tuple[Array, Array | None, Array | None]:
    """X, y and weights of a piece, in a form that needs no pickle."""
    three = piece if isinstance(piece, tuple) else (piece,)
    if not 1 <= len(three) <= 3:
        raise ValueError(f"Piece {i} of the iterator must be {PIECES}.")
    X, y, s = (*three, None, None)[:3]
    X = X.toarray() if sparse.issparse(X) else np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise ValueError(
            f"X of piece {i} of the iterator must be numbers in rows and columns, got "
            f"shape {X.shape} and type {X.dtype}. A piece must be {PIECES}."
        )
    y, s = (None if each is None else np.asarray(each) for each in (y, s))
    for name, each in (("y", y), ("sample_weight", s)):
        if each is not None and each.shape != (len(X),):
            raise ValueError(
                f"{name} of piece {i} of the iterator must have one value for each of "
                f"its {len(X):,} rows, got shape {each.shape}."
            )
    return X, y.astype(str) if y is not None and y.dtype == object else y, s
