"""Blocks of Parquet and Feather files: a row group or a record batch each.

A block is read alone, in whatever process, from the file's own index. A file that
changed since the addresses were made is an error that names it.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from certus.blocks.kept import Kept
from certus.blocks.keys import Blocks, Key, RowBlock, cut
from certus.blocks.marks import mark_rows, one_of
from certus.typing import Array

#: Endings of Parquet files.
PARQUET = (".parquet", ".pq")
#: Endings of files whose parts can be read alone.
ENDINGS = (*PARQUET, ".feather", ".arrow", ".ipc")


class FileChanged(RuntimeError):
    """A file is not the one whose rows were addressed."""


class _Stamp(NamedTuple):
    """What tells that a file was replaced.

    Copies of one file on several machines differ in the time of their last change. The
    footer of a Parquet file is the same in each: it lists where every column of every
    row group lies, its compressed size, and mostly its smallest and largest value.
    """

    size: int
    changed: int
    footer: bytes  # digest of it; empty where other content could have the same footer

    def same_rows(self, other: _Stamp) -> bool:
        """Whether the other file is this one, or a copy of it."""
        if self[:2] == other[:2]:
            return True
        return bool(self.footer) and self[::2] == other[::2]


def paths_of(source: Any) -> list[str]:
    """The files of a path, a pattern, a folder or a list of these, in their order."""
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        if os.path.isdir(text):
            inside = [path for path in Path(text).iterdir() if path.is_file()]
            found = sorted(str(path) for path in inside if not _beside(path.name))
        elif os.path.exists(text):
            found = [text]
        else:
            found = sorted(glob.glob(text))
            if not _beside(os.path.basename(text)):
                found = [path for path in found if not _beside(os.path.basename(path))]
        if not found:
            raise FileNotFoundError(f"No file matches {text!r}.")
        return found
    return [path for each in source for path in paths_of(each)]


def _beside(name: str) -> bool:
    """Whether a file lies beside the rows, as ``_SUCCESS`` and ``.crc`` of Spark do."""
    return name.startswith(("_", "."))


class FileBlocks(Blocks):
    """The columns of one or more files with the same columns."""

    #: Folders of files that were written for these blocks.
    scratch: tuple[Any, ...] = ()
    #: Whether this was sent from another process, perhaps of another machine.
    _sent = False

    def __init__(
        self,
        paths: Sequence[str],
        target: str | None,
        weight: str | None,
        columns: Sequence[str] | None,
        groups: str | None = None,
        time: str | None = None,
    ) -> None:
        self._target, self._weight = target, weight
        self._role, self._mark = one_of(groups, time), groups or time
        self.groups, self.time = groups, time
        self._stamps = {path: _stamp(path) for path in paths}
        names = _names(paths[0])
        roles = {"target": target, "sample_weight": weight, self._role: self._mark}
        for role, name in roles.items():
            if name is not None and name not in names:
                raise ValueError(_unknown(paths[0], name, names, role))
        chosen = [n for n in names if n not in roles.values()]
        if columns is not None:
            for name in columns:
                if name not in names:
                    raise ValueError(_unknown(paths[0], name, names, "columns"))
            chosen = list(columns)
            if target in chosen:
                raise ValueError(
                    f"columns must not name the target {target!r}: a model would read "
                    "the answer from it. Leave it out of columns."
                )
        if not chosen:
            raise ValueError(f"{paths[0]} has no columns beside the target.")
        self.names = tuple(chosen)
        keys: list[Key] = []
        for path in paths:
            own = _names(path)
            missing = [name for name in self._columns if name not in own]
            if missing:
                raise ValueError(
                    f"{path} has no column {missing[0]!r}, which {paths[0]} has. All "
                    "files must have the same columns."
                )
            first = keys[-1].first + keys[-1].rows if keys else 0
            keys += cut(path, _parts(path), len(chosen), first)
        if not keys:
            raise ValueError("The table has no rows.")
        self.keys = tuple(keys)
        self.dtype = _dtype(paths[0], chosen)
        self._kept = Kept()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_sent": True}

    def __copy__(self) -> FileBlocks:
        found = object.__new__(type(self))
        vars(found).update(vars(self))
        return found

    @property
    def _columns(self) -> list[str]:
        more = dict.fromkeys((self._target, self._weight, self._mark))
        wanted = (n for n in more if n is not None and n not in self.names)
        return [*self.names, *wanted]

    def only(self, key: Key) -> FileBlocks:
        """The same table with one address and its file."""
        found = copy(self)
        found.keys, found._stamps = (key,), {key.source: self._stamps[key.source]}
        return found

    def digest(self) -> bytes:
        """Addresses and columns, and what tells that a file was replaced."""
        about: tuple[Any, ...]
        about = self.keys, self._columns, self._target, self._weight, self._stamps
        about = (*about, self._role, self._mark) if self._role else about
        return hashlib.sha256(repr(about).encode()).digest()

    def read(self, key: Key) -> RowBlock:
        """The rows at an address; decoded once while they fit in memory."""
        self._require_same(key)
        return self._kept.get(key, self._decoded)

    def targets(self) -> Blocks:
        """The same rows without columns of X, which are then not read."""
        found = copy(self)
        found.names, found._kept = (), Kept()
        return found

    def _require_same(self, key: Key) -> None:
        known = self._stamps[key.source]
        try:
            found = os.stat(key.source)
            if (found.st_size, found.st_mtime_ns) == known[:2]:
                return
            if self._sent and _stamp(key.source).same_rows(known):
                return
        except FileNotFoundError:
            raise FileChanged(
                f"{key.source} is gone; its rows from {key.first:,} on are needed. "
                "Restore the file and run the same command again."
            ) from None
        raise FileChanged(
            f"{key.source} changed while it was in use (part {key.part}, rows from "
            f"{key.first:,} on). Start again, so that all rows are of one file."
        )

    def _decoded(self, key: Key) -> RowBlock:
        try:
            table = _table(key, self._columns)
        except (OSError, ValueError, KeyError) as error:
            raise FileChanged(
                f"{key.source}, part {key.part}, cannot be read: {error}"
            ) from error
        # Columns lie together here as in the file, and are copied in long runs.
        X = np.empty((len(self.names), key.rows), dtype=self.dtype).T
        for j, name in enumerate(self.names):
            X[:, j] = _numbers(table, name, key)
        y = None if self._target is None else _labels(table, self._target)
        s = None if self._weight is None else _numbers(table, self._weight, key)
        return RowBlock(X, y, s, self._marks(table, key))

    def _marks(self, table: Any, key: Key) -> Array | None:
        """Numbers for the groups or times of the rows."""
        if self._mark is None:
            return None
        column, where = table.column(self._mark), f"Column {self._mark!r}"
        where += f" of {key.source} (part {key.part})"
        if column.null_count:
            what = "group" if self._role == "groups" else "time"
            raise ValueError(
                f"{where} has {column.null_count:,} rows without a {what}. Fill them "
                "first, or drop those rows."
            )
        return mark_rows(column.to_numpy(), self._role, where)


def _stamp(path: str) -> _Stamp:
    found = os.stat(path)
    footer = b""
    if Path(path).suffix.lower() in PARQUET:
        with open(path, "rb") as file:
            file.seek(-min(8, found.st_size), os.SEEK_END)
            length = int.from_bytes(file.read(4), "little")  # then the letters PAR1
            file.seek(-min(length + 8, found.st_size), os.SEEK_END)
            footer = hashlib.sha256(file.read()).digest()
    return _Stamp(found.st_size, found.st_mtime_ns, footer)


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.feather
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ImportError(
            'Reading files by blocks needs pyarrow: pip install "certus[scale]".'
        ) from error
    return pyarrow


def _kind(path: str) -> str:
    suffix = Path(path).suffix.lower()
    if suffix in PARQUET:
        return "parquet"
    if suffix in ENDINGS:
        return "feather"
    raise ValueError(
        f"{path} is not a Parquet, Feather or CSV file. Convert it to Parquet once, "
        "for example by a scan_* function of polars and sink_parquet."
    )


def _opened(path: str) -> Any:
    arrow = _arrow()
    if _kind(path) == "parquet":
        return arrow.parquet.ParquetFile(path)
    return arrow.ipc.open_file(arrow.memory_map(path))


def _schema(path: str) -> Any:
    found = _opened(path)
    return found.schema_arrow if _kind(path) == "parquet" else found.schema


def _names(path: str) -> list[str]:
    return list(_schema(path).names)


def _parts(path: str) -> list[int]:
    found = _opened(path)
    if _kind(path) == "parquet":
        groups = range(found.metadata.num_row_groups)
        return [found.metadata.row_group(i).num_rows for i in groups]
    return [found.get_batch(i).num_rows for i in range(found.num_record_batches)]


def _dtype(path: str, names: Sequence[str]) -> Any:
    """Float32 if all columns are, else float64."""
    schema = _schema(path)
    kinds = {str(schema.field(name).type) for name in names}
    return np.dtype(np.float32 if kinds == {"float"} else np.float64)


def _table(key: Key, columns: list[str]) -> Any:
    found = _opened(key.source)
    if _kind(key.source) == "parquet":
        table = found.read_row_group(key.part, columns=columns, use_threads=False)
    else:
        table = _arrow().Table.from_batches([found.get_batch(key.part)]).select(columns)
    table = table.slice(key.start, key.rows)
    if table.num_rows != key.rows:
        raise ValueError(f"it has {table.num_rows} rows, expected {key.rows}")
    return table


def _numbers(table: Any, name: str, key: Key) -> Array:
    column = table.column(name)
    where = f"Column {name!r} of {key.source} (part {key.part})"
    kind = str(column.type)
    plain = kind.startswith(("int", "uint", "float", "double", "halffloat", "bool"))
    if not plain:
        raise ValueError(
            f"{where} holds {kind}, not numbers. Encode it first, or leave it out with "
            "columns=[...]."
        )
    if column.null_count:
        raise ValueError(
            f"{where} has {column.null_count:,} missing values. Fill them first, or "
            "leave the column out with columns=[...]."
        )
    return np.asarray(column.to_numpy())


def _labels(table: Any, name: str) -> Array:
    column = table.column(name)
    if column.null_count:
        raise ValueError(
            f"The target {name!r} has {column.null_count:,} missing values. Drop those "
            "rows first."
        )
    found = np.asarray(column.to_numpy())
    return found.astype(str) if found.dtype == object else found


def _unknown(path: str, name: str, names: list[str], role: str) -> str:
    known = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
    return f"{path} has no column {name!r} for {role}; it has {known}."
