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


def blocks(
    source: Any,
    target: Any = None,
    *,
    sample_weight: Any = None,
    columns: Sequence[str] | None = None,
    rows: int | None = None,
) -> Blocks:
    """A table as blocks of rows, which models read one after another.

    Parameters
    ----------
    source : array, memory map, sparse matrix, path, pattern, or list of paths
        Parquet and Feather files are read a row group or record batch at a time; a
        pattern such as ``"houses/*.parquet"`` stands for all files it matches, in the
        order of their names.
    target : str or array
        The column to predict; for an array, the values themselves.
    sample_weight : str or array, optional
        Row weights. For files, the name of their column.
    columns : list of str, optional
        Columns of X, for files; by default all others.
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
    names = isinstance(source, list | tuple) and all(
        isinstance(each, str | os.PathLike) for each in source
    )
    if isinstance(source, str | os.PathLike) or (names and source):
        if rows is not None:
            raise ValueError("rows is for arrays; a file's row groups are its blocks.")
        return FileBlocks(paths_of(source), target, sample_weight, columns)
    if columns is not None:
        raise ValueError("columns is for files; select the columns of an array.")
    found = source if sparse.issparse(source) else np.asanyarray(source)
    if found.ndim != 2 or found.dtype.kind not in "fiub":
        raise ValueError(
            f"source must be numbers in rows and columns, or paths; got {type(source)}."
        )
    for name, values in (("target", target), ("sample_weight", sample_weight)):
        if values is not None and len(values) != found.shape[0]:
            raise ValueError(
                f"{name} has {len(values)} values, but the table has "
                f"{found.shape[0]} rows."
            )
    return ArrayBlocks(found, target, sample_weight, rows)
