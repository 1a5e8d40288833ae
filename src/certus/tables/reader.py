"""Files to data frames: CSV, TSV, Parquet, Feather and JSON lines, by extension.

Types are inferred over the whole file, never from its first rows, so that a column
does not change its meaning at row 101. Whatever is wrong with a file is reported
as a sentence about the file, with its line where there is one, and what to do.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from certus.tables.delimited import (
    Reading,
    guess_separator,
    head_as_text,
    not_utf8,
    open_bytes,
    ragged_line,
    read_delimited,
    typed_reading,
)
from certus.tables.encodings import check_encoding
from certus.tables.errors import TableError, did_you_mean
from certus.tables.memory import check_memory

__all__ = ["SUPPORTED", "read_table", "read_with_notes"]

SUPPORTED = ".csv .tsv .csv.gz .tsv.gz .parquet .feather .arrow .ipc .jsonl .ndjson"

_SHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar")

# Polars reports some damaged files by a panic, which is not an ordinary exception.
_READ_ERRORS = (
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException),
    *(OSError, EOFError, ValueError, RuntimeError, csv.Error),
)


def read_table(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    max_memory: int | None = None,
    announce: Callable[[str], None] | None = None,
    encoding: str | None = None,
) -> pl.DataFrame:
    r"""Read a table from a file; the extension says which format.

    CSV files may be separated by commas, semicolons, tabs or bars. The usual markers
    (empty, ``NA``, ``nan``, ``null``, ``?``, …) are missing cells; rows with no value
    at all, such as blank lines, are skipped. Numbers may have a decimal comma, groups
    of digits, and a currency or unit that is the same in the whole column (also in text
    columns of other formats); dates may have the usual orders, and 9:30 is a time of
    the day. A column of dates such as 01/02/2020, in which no cell shows
    what comes first, stays text. Columns without a name are called ``index`` (the
    first) or ``column 3``, by their place; so are all columns of a file whose first row
    looks like the others.

    Parameters
    ----------
    path : str or Path
        A ``.csv``, ``.tsv``, ``.parquet``, ``.feather``, ``.arrow``, ``.ipc``,
        ``.jsonl`` or ``.ndjson`` file; text formats also with ``.gz`` appended.
    columns : sequence of str, optional
        Keep these columns, in this order.
    max_memory : int, optional
        Bytes that reading may take, as guessed beforehand; what is free if None.
    announce : callable, optional
        Called with each sentence about the file: the memory that a large one takes, an
        encoding that was recognised, a header that is missing, units left out.
    encoding : str, optional
        Of a CSV or TSV file, such as ``"cp1251"``. If None, UTF-8, UTF-16 and UTF-32
        with a mark, and Windows-1252 are recognised.

    Returns
    -------
    polars.DataFrame
        At least one row and one column.

    Raises
    ------
    TableError
        The file is missing, empty, damaged, too large or not a table.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from certus.tables import read_table
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "houses.csv"
    >>> _ = file.write_text("rooms,town\n3,Bath\nNA,York\n")
    >>> read_table(file)["rooms"].to_list()
    [3, None]
    >>> folder.cleanup()
    """
    path = Path(path)
    frame = read_with_notes(
        path, max_memory=max_memory, announce=announce, encoding=encoding
    ).frame
    if columns is None:
        return frame
    for name in columns:
        if name not in frame.columns:
            hint = did_you_mean(name, frame.columns)
            raise TableError(f'{path.name} has no column "{name}".{hint}')
    return frame.select(list(columns))


def read_with_notes(
    path: Path,
    *,
    max_memory: int | None = None,
    announce: Callable[[str], None] | None = None,
    encoding: str | None = None,
) -> Reading:
    """Read a table, and keep what had to be assumed about it and its units."""
    _check_file(path)
    check_encoding(encoding)
    read = _reader_for(path, encoding)
    try:
        check_memory(path, max_memory, announce)
        found = read(path)
    except TableError:
        raise
    except _READ_ERRORS as error:
        raise TableError(_explain(path, error)) from None
    if found.frame.width == 0 or found.frame.height == 0:
        raise TableError(
            f"{path.name} has no rows below its header. Check how it was exported."
        )
    for note in found.notes if announce is not None else ():
        announce(note)  # type: ignore[misc]
    return found


def _check_file(path: Path) -> None:
    """Refuse what is not a non-empty file, with the nearest name as a suggestion."""
    if path.is_dir():
        raise TableError(f"{path} is a folder. Pass a file in it: {SUPPORTED}.")
    if path.is_symlink() and not path.exists():
        raise TableError(
            f"{path} is a link to {path.readlink()}, which does not exist. Correct "
            "the link, or pass the file itself."
        )
    if not path.exists():
        folder = path.parent
        names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        hint = did_you_mean(path.name, names) or " Check its name and folder."
        raise TableError(f"There is no file {path}.{hint}")
    if not path.is_file():
        raise TableError(f"{path} is not an ordinary file. Save its content in one.")
    if path.stat().st_size == 0:
        raise TableError(f"{path.name} is empty: 0 bytes. Copy or export it again.")


def _reader_for(path: Path, encoding: str | None) -> Callable[[Path], Reading]:
    """Pick the reader by extension; ``.gz`` counts for text formats only."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    kind = (suffixes[:-1] if packed else suffixes)[-1:] or [""]
    text: dict[str, Callable[[Path], Reading]] = {
        ".csv": lambda p: read_delimited(p, None, encoding),
        ".tsv": lambda p: read_delimited(p, "\t", encoding),
        **dict.fromkeys(
            (".jsonl", ".ndjson"), lambda p: typed_reading(_read_json_lines(p), True)
        ),
    }
    binary: dict[str, Callable[[Path], Reading]] = {
        ".parquet": lambda p: typed_reading(pl.read_parquet(p, glob=False)),
        **dict.fromkeys(
            (".feather", ".arrow", ".ipc"), lambda p: typed_reading(_read_arrow(p))
        ),
    }
    if encoding is not None and kind[0] not in (".csv", ".tsv"):
        raise TableError(f"{path.name} is not a CSV or TSV file; leave out --encoding.")
    if kind[0] in _SHEETS:
        raise TableError(
            f"{path.name} is a spreadsheet, which may hold several sheets. Save the "
            "sheet you want as CSV, and pass that file."
        )
    if kind[0] in _ARCHIVES:
        raise TableError(
            f"{path.name} is an archive, which may hold several files. Unpack it, and "
            "pass the table you want."
        )
    readers = text if packed else text | binary
    if kind[0] not in readers:
        found = "".join(suffixes[-2:]) or "no extension"
        raise TableError(
            f"{path.name} has {found}, which is not a known table format. Supported: "
            f"{SUPPORTED}."
        )
    return readers[kind[0]]


def _read_json_lines(path: Path) -> pl.DataFrame:
    head_as_text(path)
    with open_bytes(path) as file:
        return pl.read_ndjson(file.read(), infer_schema_length=None)


def _read_arrow(path: Path) -> pl.DataFrame:
    with path.open("rb") as file:
        magic = file.read(6)
    if magic == b"ARROW1":
        return pl.read_ipc(io.BytesIO(path.read_bytes()))
    return pl.read_ipc_stream(path)


def _explain(path: Path, error: BaseException) -> str:
    """Say in one sentence what a reader's exception means for the file."""
    name, text = path.name, str(error)
    lower = text.lower()
    if isinstance(error, PermissionError):
        return f"{name} cannot be opened: permission denied."
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if ".csv" in suffixes or ".tsv" in suffixes:
        if "utf-8" in lower or "utf8" in lower:
            return not_utf8(name)
        if "empty" in lower:
            return f"{name} is empty. Copy or export it again."
        if path.suffix.lower() == ".gz" and isinstance(error, OSError | EOFError):
            return f"{name} is damaged or cut short ({text}). Copy it again."
        separator = guess_separator(head_as_text(path))
        found = ragged_line(path, "\t" if ".tsv" in suffixes else separator)
        if found:
            return found
    return (
        f"{name} is damaged, cut short or in a format other than its name says. Copy "
        "or export it again."
    )
