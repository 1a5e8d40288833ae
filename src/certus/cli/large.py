"""Tables larger than memory: when they are read by blocks, and within which memory."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from certus._core.free_memory import memory_free
from certus.cli.screen import Stop
from certus.wording import shorten

__all__ = [
    "LargeTable",
    "columns_that_fit",
    "look",
    "peak_memory",
    "read_memory",
    "size_of",
    "working",
]

#: Endings of files whose parts can be read alone.
ENDINGS = (".parquet", ".pq", ".feather", ".arrow", ".ipc")
#: Share of the free memory above which a table is read by blocks.
SHARE = 0.25
#: Copies of a block in float64 that a pass may hold, and bytes for everything else.
COPIES, REST = 5, 120 << 20
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def read_memory(text: str | None) -> int | None:
    """``2GB`` or ``512MiB`` as bytes.

    Examples
    --------
    >>> read_memory("2GB"), read_memory("1.5 MiB")
    (2000000000, 1572864)
    """
    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt]?)(i?)b?\s*", text.lower())
    try:
        size = float(found[1]) if found else 0.0
    except ValueError:
        size = 0.0
    if found is None or not size > 0:
        raise Stop(f"--memory must be a size such as 2GB, got {text}.", code=2)
    unit = _UNITS[found[2]]
    return int(size * (unit if not found[3] else 1024 ** "_kmgt".index(found[2])))


def free_memory() -> int:
    """Bytes that may still be used here; half of the machine's where that is unknown.

    A container or ``ulimit`` may allow less than the machine has.
    """
    found = memory_free()
    if found is not None:
        return found
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError, AttributeError):
        return 4 << 30


def peak_memory() -> int:
    """The most memory this process has held, in bytes; 0 where that is unknown."""
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class LargeTable(NamedTuple):
    """A table that will be read by blocks, and why."""

    paths: tuple[Path, ...]
    rows: int
    width: int
    largest: int  # bytes of the largest part of a file, uncompressed
    reason: str


def look(
    paths: Sequence[Path], memory: int | None = None, cluster: bool = False
) -> LargeTable | None:
    """The table, if it should be read by blocks; None for one that fits."""
    files = [path for path in paths if path.suffix.lower() in ENDINGS]
    if not files or not all(path.is_file() for path in paths):
        return None
    if len(files) < len(paths):
        other = next(path for path in paths if path not in files)
        raise Stop(
            f"several files are read by blocks, and {other} is not a Parquet or "
            "Feather file. Convert it first."
        )
    found = describe(files)
    size, free = found.rows * found.width * 8, memory or free_memory()
    if size > SHARE * free:
        whose = "of the memory given" if memory else "of the free memory"
        reason = (
            f"in memory it would take {size_of(size)}, more than a quarter {whose} "
            f"({size_of(free)})"
        )
    elif cluster or len(files) > 1:
        reason = "the rows are on a cluster" if cluster else f"{len(files)} files"
    else:
        return None
    return found._replace(reason=reason)


def describe(paths: Sequence[Path]) -> LargeTable:
    """Rows, columns and parts of the files, from their own indices."""
    rows = largest = width = 0
    for path in paths:
        if not path.is_file():
            raise Stop(f"there is no file {path}.")
        n, width, part = _size(path)
        rows, largest = rows + n, max(largest, part)
    return LargeTable(tuple(paths), rows, width, largest, "")


def places_for(paths: Sequence[Path], cluster: str | None) -> list[str]:
    """Paths as the workers see them, whose current folder is another one."""
    return [str(path.absolute() if cluster else path) for path in paths]


def _size(path: Path) -> tuple[int, int, int]:
    """Rows, columns, and the bytes of the largest part of a file."""
    if path.suffix.lower() in (".parquet", ".pq"):
        try:
            from pyarrow import parquet

            found = parquet.ParquetFile(path).metadata
        except ImportError:
            return _size_by_polars(path)
        except (OSError, ValueError):
            raise Stop(f"{path} is damaged or cut short. Copy it again.") from None
        parts = range(found.num_row_groups)
        most = max((found.row_group(i).total_byte_size for i in parts), default=0)
        return found.num_rows, found.num_columns, most
    return _size_by_polars(path)


def _size_by_polars(path: Path) -> tuple[int, int, int]:
    import polars as pl

    parquet = path.suffix.lower() in (".parquet", ".pq")
    scan = pl.scan_parquet(path) if parquet else pl.scan_ipc(path)
    rows = scan.select(pl.len()).collect().item()
    return int(rows), len(scan.collect_schema()), 0


def columns_that_fit(
    path: Path,
    target: str,
    drop: Sequence[str],
    left_out: str | None = None,
    order: str | None = None,
) -> tuple[list[str], list[str]]:
    """Columns of numbers without gaps, and a remark for each other column.

    No model sees ``left_out``, which names groups; ``order``, a time, may be a column.
    """
    import polars as pl

    parquet = path.suffix.lower() in (".parquet", ".pq")
    scan = pl.scan_parquet(path) if parquet else pl.scan_ipc(path)
    schema = scan.collect_schema()
    known = list(schema)
    for name in (target, *drop, left_out, order):
        if name is not None and name not in known:
            from certus.tables.errors import did_you_mean

            hint = did_you_mean(name, known)
            raise Stop(f'{path.name} has no column "{shorten(name)}".{hint}')
    gaps = _gaps(path) if parquet else {}
    kept, remarks = [], []
    for name, kind in schema.items():
        if name in (target, left_out) or name in drop:
            continue
        if not (kind.is_numeric() or kind == pl.Boolean) or kind.is_decimal():
            remarks.append(f'"{shorten(name)}" is left out: it holds {kind}')
        elif gaps.get(name):
            missing = f"{gaps[name]:,} missing values"
            remarks.append(f'"{shorten(name)}" is left out: it has {missing}')
        else:
            kept.append(name)
    if not kept:
        raise Stop(f"{path.name} has no column of numbers without missing values.")
    return kept, remarks


def _gaps(path: Path) -> dict[str, int]:
    """Missing values of each column, from the file's own statistics."""
    from pyarrow import parquet

    about = parquet.ParquetFile(path).metadata
    found: dict[str, int] = {}
    for i in range(about.num_row_groups):
        group = about.row_group(i)
        for j in range(group.num_columns):
            column = group.column(j)
            stats = column.statistics
            if stats is not None and stats.has_null_count:
                name = column.path_in_schema
                found[name] = found.get(name, 0) + stats.null_count
    return found


def threads_within(large: LargeTable, memory: int | None) -> int:
    """Threads that keep to the memory; an error where one is too many."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    if memory is None:
        return cores
    each = _held(large, 1) - REST
    if each + REST > memory:
        raise Stop(
            f"--memory {size_of(memory)} is too little: one block needs about "
            f"{size_of(each + REST)}. Raise it, or write the file with smaller row "
            "groups (row_group_size=100_000 in polars' sink_parquet)."
        )
    return max(1, min(cores, (memory - REST) // each))


def _held(large: LargeTable, threads: int) -> int:
    """Bytes that a pass may hold."""
    from certus.blocks.keys import CELLS

    block = 8 * min(2 * CELLS, large.rows * large.width)
    return REST + threads * (COPIES * block + large.largest)


@contextmanager
def working(
    large: LargeTable, memory: int | None, cluster: str | None, checkpoint: Path | None
) -> Iterator[None]:
    """Threads or a cluster for the passes, and the checkpoint if there is one."""
    from threadpoolctl import threadpool_limits

    from certus.blocks.kept import kept_within
    from certus.config import config_context

    settings: dict[str, Any] = {}
    if checkpoint is not None:
        settings["checkpoint"] = checkpoint
    if cluster is None:
        threads = threads_within(large, memory)
        room = None if memory is None else max(0, memory - _held(large, threads)) / 2
        with kept_within(room), threadpool_limits(threads), config_context(**settings):
            yield
        return
    with _client(cluster) as client, config_context(engine=client, **settings):
        yield


@contextmanager
def _client(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise Stop('--cluster needs Dask: pip install "certus[dask]".') from None
    try:
        client = Client(address, timeout=30)
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())
        raise Stop(f"--cluster {address} does not answer: {why}") from None
    with client:
        yield client


def size_of(size: float) -> str:
    """A size as people write it."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:,.0f} bytes"
