"""Arrays and files as blocks; ``certus.scale.blocks`` is the public name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from certus.blocks.arrays import ArrayBlocks
from certus.blocks.files import FileBlocks, paths_of
from certus.blocks.keys import Blocks
from certus.blocks.marks import mark_rows, one_of
from certus.blocks.partitions import is_collection, of_collection
from certus.blocks.pieces import is_stream, of_stream
from certus.blocks.scratch import (
    dataset_sunk,
    files_of_dataset,
    is_dataset,
    is_delimited,
    is_lazy,
    sunk,
)


def blocks(
    source: Any,
    target: Any = None,
    *,
    sample_weight: Any = None,
    columns: Sequence[str] | None = None,
    groups: Any = None,
    time: Any = None,
    rows: int | None = None,
) -> Blocks:
    """A table as blocks of rows, which models read one after another.

    Parameters
    ----------
    source : array, sparse matrix, path, pattern, list of paths, Dataset, LazyFrame, \
Dask array or frame, or callable
        Parquet and Feather files, also those of a pyarrow Dataset, are read a row group
        or record batch at a time; a folder or a pattern such as ``"houses/*.parquet"``
        stands for its files in the order of their names, without those that begin with
        ``_`` or a dot. CSV files, LazyFrames of polars, and Datasets with a filter or
        with columns from the names of folders are written to a scratch Parquet file
        first. A partition of a ``dask.array`` or ``dask.dataframe`` is a block; it is
        computed where its rows are needed, and lengths that Dask does not know are
        counted once. A callable without arguments returns an iterator of ``(X, y)``, of
        ``(X, y, sample_weight)`` or of tables; each is a block, and all are written to
        a scratch folder first. Decoded blocks stay in memory while they fit into a
        quarter of what is free.
    target : str or array
        The column to predict; for an array, the values themselves; for a Dask array,
        also a Dask array.
    sample_weight : str or array, optional
        Row weights. For files, the name of their column.
    columns : list of str, optional
        Columns of X, for files; by default all others.
    groups : str or array, optional
        For files, a column; for an array, the values. Comparisons of models keep the
        rows of a group together: sealed rows and held-out rows are of other groups.
    time : str or array, optional
        Dates or numbers, as ``groups``. Comparisons seal the last rows, and hold out
        those before. A fit to all rows uses neither.
    rows : int, optional
        Rows of a block, for arrays; by default about four million numbers. Blocks are
        part of the problem: with other blocks the last digits of a fit may differ.

    Returns
    -------
    Blocks

    Examples
    --------
    >>> import numpy as np
    >>> from certus.linear_model import Ridge
    >>> from certus.scale import blocks
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> table = blocks(X, X @ [1.0, 2.0, 3.0], rows=100)
    >>> Ridge(alpha=1e-3).fit(table).coef_.round(3)
    array([1., 2., 3.])
    """
    if isinstance(source, Blocks):
        return source
    role = one_of(groups, time)
    if is_dataset(source):
        source = files_of_dataset(source) or source
    if is_lazy(source) or is_dataset(source):
        return _from_scratch([source], target, sample_weight, columns, groups, time)
    if is_collection(source) or is_stream(source):
        if rows is not None:
            raise ValueError(
                "rows is for arrays; partitions and pieces of an iterator are blocks."
            )
        if role:
            raise ValueError(
                f"{role} is for arrays and files. Write the rows to Parquet and pass "
                f"the path, with {role}= the name of a column."
            )
        make = of_collection if is_collection(source) else of_stream
        return make(source, target, sample_weight, columns)
    names = isinstance(source, list | tuple) and all(
        isinstance(each, str | os.PathLike) for each in source
    )
    if isinstance(source, str | os.PathLike) or (names and source):
        if rows is not None:
            raise ValueError("rows is for arrays; a file's row groups are its blocks.")
        paths = paths_of(source)
        if any(map(is_delimited, paths)):
            return _from_scratch(paths, target, sample_weight, columns, groups, time)
        return FileBlocks(paths, target, sample_weight, columns, groups, time)
    if columns is not None:
        raise ValueError("columns is for files; select the columns of an array.")
    found = source if sparse.issparse(source) else np.asanyarray(source)
    if found.ndim != 2 or found.dtype.kind not in "fiub":
        raise ValueError(
            f"source must be numbers in rows and columns, or paths; got {type(source)}."
        )
    given = {"target": target, "sample_weight": sample_weight}
    given |= {"groups": groups, "time": time}
    for name, values in given.items():
        if name in ("groups", "time") and isinstance(values, str):
            raise ValueError(
                f"{name} must hold the values of an array's rows, got {values!r}. "
                "Names are for files."
            )
        if values is not None and len(values) != found.shape[0]:
            raise ValueError(
                f"{name} has {len(values)} values, but the table has "
                f"{found.shape[0]} rows."
            )
    mark = mark_rows(groups if time is None else time, role, role) if role else None
    made = ArrayBlocks(found, target, sample_weight, rows, mark)
    if role:
        setattr(made, role, role)
    return made


def _from_scratch(sources: Any, *roles: Any) -> Blocks:
    """Blocks of Parquet files, written where a source is of another kind."""
    paths, kept = [], []
    for source in sources:
        if is_dataset(source):
            source, scratch = dataset_sunk(source)
            kept.append(scratch)
        elif is_lazy(source) or is_delimited(source):
            source, scratch = sunk(source)
            kept.append(scratch)
        paths.append(source)
    found = FileBlocks(paths, *roles)
    found.scratch = tuple(kept)
    return found
