"""Tables that cannot be read from the middle, written to Parquet once.

CSV files and polars LazyFrames are streamed to a scratch file, which lives as long as
the blocks that read it. A message of the logger ``certus`` says so.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from typing import Any

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
    size = os.path.getsize(path)
    logging.getLogger("certus").warning(
        "%s was written to a scratch file of %.3g MB, because it cannot be read from "
        "the middle",
        *(name, size / 1e6),
    )
    return path, scratch


def files_of_dataset(source: Any) -> list[str] | None:
    """The files of a pyarrow Dataset; None for anything else."""
    if not type(source).__module__.startswith("pyarrow._dataset"):
        return None
    files = getattr(source, "files", None)
    if files is None or any("://" in path for path in files):
        raise ValueError(
            "A pyarrow Dataset must consist of local files. Write it to Parquet, and "
            "pass the paths."
        )
    return list(files)
