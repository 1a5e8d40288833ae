"""Tables that cannot be read from the middle, written to Parquet once.

CSV files, polars LazyFrames, and Datasets of pyarrow that are more than their files are
streamed to a scratch file, which lives as long as the blocks that read it. A message
of the logger ``certus`` says so.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from typing import Any

from certus.blocks.files import ENDINGS

#: Rows of a block in a scratch file.
ROWS = 100_000


class Scratch:
    """A folder that is removed with the last object that refers to it."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="certus-blocks-")
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def __reduce__(self) -> Any:
        return _Elsewhere, ()


class _Elsewhere:
    """What a copy in another process has instead: nothing to remove."""


def is_lazy(source: object) -> bool:
    """Whether this is a LazyFrame of polars."""
    kind = type(source)
    return kind.__module__.startswith("polars.") and kind.__name__ == "LazyFrame"


def is_delimited(path: str) -> bool:
    """Whether a file holds text in columns."""
    return path.lower().endswith((".csv", ".tsv", ".csv.gz"))


def sunk(source: Any) -> tuple[str, Scratch]:
    """The Parquet file of a LazyFrame, or of the rows of a CSV file."""
    import polars

    name = "the LazyFrame"
    if not is_lazy(source):
        name = os.fspath(source)
        mark = "\t" if name.lower().endswith(".tsv") else ","
        source = polars.scan_csv(source, separator=mark)
    scratch = Scratch()
    path = os.path.join(scratch.folder, "rows.parquet")
    source.sink_parquet(path, row_group_size=ROWS)
    tell_written(name, os.path.getsize(path))
    return path, scratch


def is_dataset(source: object) -> bool:
    """Whether this is a Dataset of pyarrow."""
    return type(source).__module__.startswith("pyarrow._dataset")


def files_of_dataset(source: Any) -> list[str] | None:
    """The files of a Dataset that is its files' rows and columns; None of another.

    A filter takes rows away, and folders such as ``year=2020`` add columns: neither is
    in the files.
    """
    from pyarrow import fs

    files = getattr(source, "files", None)
    if not files or not isinstance(source.filesystem, fs.LocalFileSystem):
        return None
    if not all(path.lower().endswith(ENDINGS) for path in files):
        return None
    try:
        fragments = list(source.get_fragments())
    except ValueError:  # of a Dataset with a filter
        return None
    for part in fragments:
        groups = getattr(part, "num_row_groups", None)  # of Parquet
        some = groups is not None and groups != part.metadata.num_row_groups
        if some or not part.physical_schema.equals(source.schema):
            return None
    return list(files)


def dataset_sunk(source: Any) -> tuple[str, Scratch]:
    """The Parquet file of a Dataset's rows: its filter and partitions included."""
    from pyarrow import Table, parquet

    scratch = Scratch()
    path = os.path.join(scratch.folder, "rows.parquet")
    waiting: list[Any] = []
    with parquet.ParquetWriter(path, source.schema) as writer:
        for batch in source.to_batches():
            waiting.append(batch)
            if sum(each.num_rows for each in waiting) >= ROWS:
                writer.write_table(Table.from_batches(waiting))
                waiting = []
        writer.write_table(Table.from_batches(waiting, source.schema))
    tell_written("the Dataset", os.path.getsize(path))
    return path, scratch


def tell_written(name: str, size: int) -> None:
    """Say that rows were copied to the disk."""
    logging.getLogger("certus").warning(
        "%s was written to a scratch file of %.3g MB, because it cannot be read from "
        "the middle",
        *(name, size / 1e6),
    )
