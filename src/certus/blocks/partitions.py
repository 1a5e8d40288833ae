"""Blocks of Dask collections: a partition each, computed where its rows are needed.

A block carries the tasks of its own partition only, and runs them in one thread, in
whatever process reads it. Lengths that Dask does not know are counted once.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from certus.blocks.files import FileChanged
from certus.blocks.kept import Kept
from certus.blocks.keys import Blocks, Key, RowBlock
from certus.typing import Array

#: Tasks of each partition alone, added up, as a multiple of those of the collection,
#: above which partitions are made of each other (as after a shuffle).
SHARED = 2


def is_collection(source: object) -> bool:
    """Whether this is a Dask collection, or built on one."""
    graph = getattr(source, "__dask_graph__", None)
    return callable(graph) and not isinstance(source, type)


def of_collection(
    source: Any, target: Any, weight: Any, columns: Sequence[str] | None
) -> PartitionBlocks:
    """Blocks of a ``dask.array`` or a ``dask.dataframe``."""
    module = type(source).__module__
    if module.startswith("dask.array") and source.ndim == 2:
        if columns is not None:
            raise ValueError("columns is for tables; select the columns of an array.")
        return _of_array(source, target, weight)
    if module.startswith("dask.dataframe") and hasattr(source, "columns"):
        return _of_frame(source, target, weight, columns)
    raise TypeError(
        "Of Dask's collections, blocks takes a dask.dataframe, or a dask.array with "
        f"rows and columns, got {module}.{type(source).__name__}. Convert it to one of "
        "these, or write it to Parquet and pass the path."
    )


class PartitionTasks(NamedTuple):
    """What computes one partition, and nothing else."""

    graph: dict[Any, Any]
    key: Any

    def result(self) -> Any:
        """The partition, computed in this thread."""
        from dask import get

        return get(self.graph, self.key)


class Partition(NamedTuple):
    """The parts of a block: tasks or values; of a frame, tasks and two names."""

    X: Any
    y: Any
    s: Any


class PartitionBlocks(Blocks):
    """The partitions of a Dask collection that have rows."""

    def __init__(
        self,
        parts: Sequence[Partition],
        lengths: Sequence[int],
        names: Sequence[str] | int,
        dtype: Any,
    ) -> None:
        self.named = not isinstance(names, int)
        if isinstance(names, int):
            names = [f"x{j}" for j in range(names)]
        self.names = tuple(names)
        self.dtype = np.dtype(np.float32 if dtype == np.float32 else np.float64)
        keys, first = [], 0
        for i, rows in enumerate(lengths):
            if rows:
                keys.append(Key("dask", i, 0, first, int(rows)))
                first += int(rows)
        if not keys:
            raise ValueError("The table has no rows.")
        self.keys = tuple(keys)
        self._parts = {key: parts[key.part] for key in keys}
        self._kept = Kept()

    @property
    def nbytes(self) -> int:
        """Bytes that a pass would send, from those of its first block."""
        first = self._parts[self.keys[0]]
        return len(self.keys) * sum(_size(part) for part in first)

    def only(self, key: Key) -> PartitionBlocks:
        """The same table with one address and its tasks."""
        found = copy(self)
        found.keys, found._parts = (key,), {key: self._parts[key]}
        return found

    def read(self, key: Key) -> RowBlock:
        """The rows of a partition; computed once while they fit in memory."""
        return self._kept.get(key, self._computed)

    def _computed(self, key: Key) -> RowBlock:
        X, y, s = self._parts[key]
        found = _value(X)
        if self.named:
            y, s = (None if name is None else _column(found, name) for name in (y, s))
            rows = np.empty((len(self.names), len(found)), dtype=self.dtype).T
            for j, name in enumerate(self.names):
                rows[:, j] = _column(found, name)
            found = rows
        else:
            found = np.asarray(found, dtype=self.dtype)
            y, s = _value(y), _value(s)
        for each in (found, y, s):
            if each is not None and len(each) != key.rows:
                raise FileChanged(
                    f"Partition {key.part} of the Dask collection has {len(each):,} "
                    f"rows or values now, but {key.rows:,} when it was counted. Write "
                    "the collection to Parquet and pass the path."
                )
        return RowBlock(found, y, s)


def _size(part: Any) -> int:
    """Bytes of the values that tasks hold."""
    from dask.sizeof import sizeof

    if not isinstance(part, PartitionTasks):
        return int(sizeof(part))
    found = 0
    for node in part.graph.values():
        held = [getattr(node, "value", node), *getattr(node, "args", ())]
        found += sum(sizeof(getattr(each, "value", each)) for each in held)
    return int(found)


def _value(part: Any) -> Any:
    return part.result() if isinstance(part, PartitionTasks) else part


def _column(frame: Any, name: str) -> Array:
    """Values of a column of a partition; labels as text."""
    column = frame[name]
    missing = int(column.isna().sum())
    if missing:
        raise ValueError(
            f"Column {name!r} has {missing:,} missing values in a partition. Fill "
            "them first (fillna), or drop those rows (dropna)."
        )
    found = np.asarray(column)
    return found.astype(str) if found.dtype == object else found


def _tasks(collection: Any) -> list[PartitionTasks]:
    """The tasks of each partition."""
    from dask import optimize
    from dask.core import flatten
    from dask.optimization import cull

    frame = hasattr(collection, "optimize")
    ready = collection.optimize() if frame else collection
    graph = dict(ready.__dask_graph__())
    if any(type(each).__module__.startswith("distributed.") for each in graph.values()):
        raise ValueError(
            "The rows of this Dask collection lie in the memory of workers (persist). "
            "Pass the collection before persist(), or write it to Parquet and pass "
            "the path."
        )
    if not frame:
        (ready,) = optimize(collection)
        graph = dict(ready.__dask_graph__())
    names = list(flatten(ready.__dask_keys__()))
    found = [PartitionTasks(cull(graph, [name])[0], name) for name in names]
    if sum(_work(each.graph) for each in found) > SHARED * _work(graph):
        raise ValueError(
            "Each partition of this Dask collection is made of many others, as after "
            "a shuffle, and would be computed again in every pass. Write it to Parquet "
            "(to_parquet) and pass the path."
        )
    return found


def _work(graph: dict[Any, Any]) -> int:
    """PartitionTasks that compute something; the others are values and names."""
    tasks = (
        isinstance(each, tuple) or hasattr(each, "func") for each in graph.values()
    )
    return sum(tasks)


def _lengths(collection: Any) -> list[int]:
    """Rows of each partition, counted by Dask, on its cluster if there is one."""
    from dask import compute, delayed

    parts = np.ravel(collection.to_delayed())
    return [int(length) for length in compute(*[delayed(len)(p) for p in parts])]


def _of_frame(
    frame: Any, target: Any, weight: Any, columns: Sequence[str] | None
) -> PartitionBlocks:
    known = list(frame.columns)
    for role, name in (("target", target), ("sample_weight", weight)):
        if name is not None and (not isinstance(name, str) or name not in known):
            raise ValueError(
                f"{role} must be the name of a column of the Dask frame, got {name!r}."
            )
    chosen = [n for n in known if n not in (target, weight)]
    if columns is not None:
        chosen = list(columns)
        wrong = [n for n in chosen if n not in known or n == target]
        if wrong:
            raise ValueError(
                f"columns must name columns of the Dask frame other than the target, "
                f"got {wrong[0]!r}."
            )
    kinds = {name: frame.dtypes[name] for name in chosen}
    for name, kind in kinds.items():
        if getattr(kind, "kind", "O") not in "fiub":
            raise ValueError(
                f"Column {name!r} of the Dask frame holds {kind}, not numbers. Encode "
                "it first, or leave it out with columns=[...]."
            )
    if not chosen:
        raise ValueError("The Dask frame has no columns beside the target.")
    more = [n for n in (target, weight) if n is not None and n not in chosen]
    lengths = _lengths(frame[[chosen[0]]])
    parts = _tasks(frame[[*chosen, *more]])
    single = all(kind == np.float32 for kind in kinds.values())
    return PartitionBlocks(
        [Partition(part, target, weight) for part in parts],
        lengths,
        [str(name) for name in chosen],
        np.float32 if single else np.float64,
    )


def _of_array(X: Any, target: Any, weight: Any) -> PartitionBlocks:
    if X.dtype.kind not in "fiub":
        raise ValueError(f"The Dask array must hold numbers, got {X.dtype}.")
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    lengths = [*X.chunks[0]]
    if any(length != length for length in lengths):  # not a number: unknown to Dask
        lengths = _lengths(X)
    ends = np.cumsum([0, *lengths])
    more: list[list[Any]] = []
    for role, values in (("target", target), ("sample_weight", weight)):
        if values is None:
            more.append([None] * len(lengths))
            continue
        if isinstance(values, str):
            raise ValueError(
                f"{role} must hold the values of a Dask array's rows, got the name "
                f"{values!r}. Names are for tables."
            )
        if is_collection(values):
            more.append(_beside(values, role, lengths))
            continue
        if len(values) != ends[-1]:
            raise ValueError(
                f"{role} has {len(values):,} values, but the table has "
                f"{ends[-1]:,} rows."
            )
        plain = np.asarray(values)
        more.append([plain[a:b] for a, b in pairwise(ends)])
    parts = [Partition(*three) for three in zip(_tasks(X), *more, strict=True)]
    return PartitionBlocks(parts, lengths, X.shape[1], X.dtype)


def _beside(values: Any, role: str, lengths: Sequence[int]) -> list[Any]:
    """The tasks of a Dask array of targets or weights, cut as the rows are."""
    if getattr(values, "ndim", 0) != 1 or not hasattr(values, "chunks"):
        raise ValueError(f"{role} must be a Dask array with one value for each row.")
    known = not any(length != length for length in values.chunks[0])
    if known and sum(values.chunks[0]) != sum(lengths):
        raise ValueError(
            f"{role} has {sum(values.chunks[0]):,} values, but the table has "
            f"{sum(lengths):,} rows."
        )
    if known and [*values.chunks[0]] != [*lengths]:
        values = values.rechunk((tuple(int(length) for length in lengths),))
    if len(values.chunks[0]) != len(lengths):
        raise ValueError(
            f"{role} has {len(values.chunks[0])} partitions, but the table has "
            f"{len(lengths)}. Give both the same (compute_chunk_sizes, rechunk)."
        )
    return list(_tasks(values))
