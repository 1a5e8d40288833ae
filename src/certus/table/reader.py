"""Files to data frames: CSV, TSV, Parquet, Feather and JSON lines, by extension.

Types are inferred over the whole file, never from its first rows, so that a column
does not change its meaning at row 101. Whatever is wrong with a file is reported
as one sentence about the file, with its line where there is one.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, cast

import polars as pl

from certus.table.errors import TableError, did_you_mean, quoted

__all__ = ["MISSING_MARKERS", "SUPPORTED", "read_table"]

#: Cells of a text file that mean "no value".
MISSING_MARKERS: tuple[str, ...] = (
    *("", " ", "?", "NA", "N/A", "n/a", "na", "#N/A", "#NA", "<NA>"),
    *("NaN", "nan", "-nan", "-NaN", "NaT", "NULL", "Null", "null", "None"),
)

SUPPORTED = ".csv .tsv .csv.gz .tsv.gz .parquet .feather .arrow .ipc .jsonl .ndjson"

# Polars reports some damaged files by a panic, which is no ordinary exception.
_READ_ERRORS = (
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException),
    *(OSError, EOFError, ValueError, RuntimeError, csv.Error),
)


def read_table(
    path: str | Path, *, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    r"""Read a table from a file; the extension says which format.

    CSV and TSV files (also with ``.gz``) may be separated by semicolons, have dates
    parsed, and take the usual markers (empty, ``NA``, ``nan``, ``null``, ``?``, …)
    as missing; rows with no value at all, such as blank lines, are skipped.

    Parameters
    ----------
    path : str or Path
        A ``.csv``, ``.tsv``, ``.parquet``, ``.feather``, ``.arrow``, ``.ipc``,
        ``.jsonl`` or ``.ndjson`` file; text formats also with ``.gz`` appended.
    columns : sequence of str, optional
        Keep these columns, in this order.

    Returns
    -------
    polars.DataFrame
        At least one row and one column.

    Raises
    ------
    TableError
        The file is missing, empty, damaged or not a table.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from certus.table import read_table
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "houses.csv"
    >>> _ = file.write_text("rooms,town\n3,Bath\nNA,York\n")
    >>> read_table(file)["rooms"].to_list()
    [3, None]
    >>> folder.cleanup()
    """
    path = Path(path)
    _check_file(path)
    read = _reader_for(path)
    try:
        frame = read(path)
    except TableError:
        raise
    except _READ_ERRORS as error:
        raise TableError(_explain(path, error)) from None
    if frame.width == 0 or frame.height == 0:
        raise TableError(f"{path.name} has no rows below its header.")
    if columns is None:
        return frame
    for name in columns:
        if name not in frame.columns:
            hint = did_you_mean(name, frame.columns)
            raise TableError(f'{path.name} has no column "{name}".{hint}')
    return frame.select(list(columns))


def _check_file(path: Path) -> None:
    """Refuse what is not a non-empty file, with the nearest name as a suggestion."""
    if path.is_dir():
        raise TableError(f"{path} is a folder. Name a file in it: {SUPPORTED}.")
    if not path.exists():
        folder = path.parent
        names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        hint = did_you_mean(path.name, names)
        raise TableError(f"There is no file {path}.{hint}")
    if path.stat().st_size == 0:
        raise TableError(f"{path.name} is empty: 0 bytes.")


def _reader_for(path: Path) -> Callable[[Path], pl.DataFrame]:
    """Pick the reader by extension; ``.gz`` counts for text formats only."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    kind = (suffixes[:-1] if packed else suffixes)[-1:] or [""]
    text: dict[str, Callable[[Path], pl.DataFrame]] = {
        ".csv": lambda p: _read_delimited(p, None),
        ".tsv": lambda p: _read_delimited(p, "\t"),
        ".jsonl": _read_json_lines,
        ".ndjson": _read_json_lines,
    }
    binary: dict[str, Callable[[Path], pl.DataFrame]] = {
        ".parquet": lambda p: pl.read_parquet(p, glob=False),
        **dict.fromkeys((".feather", ".arrow", ".ipc"), _read_arrow),
    }
    readers = text if packed else text | binary
    if kind[0] not in readers:
        found = "".join(suffixes[-2:]) or "no extension"
        raise TableError(
            f"{path.name} has {found}, which is no table format known here. "
            f"Supported: {SUPPORTED}."
        )
    return readers[kind[0]]


def _open_bytes(path: Path) -> IO[bytes]:
    packed = path.suffix.lower() == ".gz"
    return cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb")


def _head_as_text(path: Path, size: int = 1 << 16) -> str:
    """Decode the start of a text file; refuse other encodings and binary files."""
    with _open_bytes(path) as file:
        # To the end of a line, lest a name or a letter be cut in two.
        head = file.read(size) + file.readline(1 << 24)
    if not head.strip():
        raise TableError(f"{path.name} is empty: it holds only white space.")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise TableError(f"{path.name} is UTF-16 text. Save it as UTF-8 and try again.")
    if b"\0" in head:
        raise TableError(f"{path.name} holds binary data, not a text table.")
    try:
        return head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = head[: error.start].count(b"\n") + 1
        raise TableError(
            f"{path.name} is not UTF-8 text (line {line}). Save it as UTF-8, or "
            f"convert it: iconv -f latin1 -t utf8 {path.name}"
        ) from None


def _read_delimited(path: Path, separator: str | None) -> pl.DataFrame:
    head = _head_as_text(path)
    if separator is None:
        separator = _guess_separator(head)
    rows = csv.reader(io.StringIO(head, newline=""), delimiter=separator)
    names = next((row for row in rows if row), [])
    repeated = [name for name, times in Counter(names).items() if times > 1 and name]
    if repeated:
        raise TableError(
            f"{path.name} has more than one column {quoted(repeated)}. Rename one."
        )
    frame = pl.read_csv(
        path,
        separator=separator,
        infer_schema=False,
        null_values=list(MISSING_MARKERS),
        glob=False,
    )
    # Polars fills a short row with missing cells. Its last cell is then missing,
    # so that the slow line-by-line look is needed only if some last cell is.
    if frame.height and frame[frame.columns[-1]].null_count():
        found = _ragged_line(path, separator)
        if found:
            raise TableError(found)
    if frame.width > 1:
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    if frame.columns[0] == "" and "index" not in frame.columns:
        frame = frame.rename({"": "index"})
    return _typed(frame)


def _guess_separator(head: str) -> str:
    """Return the comma unless the header has none and another separator instead."""
    header = head.lstrip().partition("\n")[0]
    if "," in header:
        return ","
    return max(",;\t|", key=header.count)


def _ragged_line(path: Path, separator: str) -> str:
    """Find the first row whose number of cells differs from the header's."""
    with (
        _open_bytes(path) as raw,
        io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file,
    ):
        rows = csv.reader(file, delimiter=separator)
        try:
            header = next(row for row in rows if row)
            for row in rows:
                if row and len(row) != len(header):
                    return (
                        f"{path.name}, line {rows.line_num}: {len(row)} cells, but "
                        f"the header has {len(header)}. Correct that line."
                    )
        except (csv.Error, UnicodeDecodeError, StopIteration):
            return ""
    return ""


def _booleans(text: pl.Series) -> pl.Series:
    lower = text.str.to_lowercase()
    return lower.replace_strict(["true", "false"], [True, False], default=None)


def _as_type(dtype: type[pl.DataType]) -> Callable[[pl.Series], pl.Series]:
    return lambda text: text.cast(dtype, strict=False)


_DATES: list[Callable[[pl.Series], pl.Series]] = [
    lambda text: text.str.to_date(strict=False),
    lambda text: text.str.to_datetime(strict=False, time_unit="us"),
]
_TYPES = [_as_type(pl.Int64), _as_type(pl.Float64), _booleans, *_DATES]


def _typed(frame: pl.DataFrame) -> pl.DataFrame:
    """Give each column of text the first type that all of its cells have."""
    # Polars can infer types itself, but is slow at dates over a whole file.
    stripped = pl.all().str.strip_chars()
    missing = stripped.is_in(MISSING_MARKERS)
    cells = frame.select(pl.when(~missing).then(stripped).name.keep())
    columns = zip(cells.iter_columns(), frame.iter_columns())
    return pl.DataFrame([_converted(text, _TYPES, column) for text, column in columns])


def _converted(
    text: pl.Series,
    conversions: Sequence[Callable[[pl.Series], pl.Series]],
    otherwise: pl.Series,
) -> pl.Series:
    # A glance at a few cells spares most columns most of the full attempts.
    probe = text.drop_nulls().head(100)
    if len(probe) == 0:
        return otherwise
    for convert in conversions:
        try:
            if convert(probe).null_count():
                continue
            values = convert(text)
        except pl.exceptions.PolarsError:
            continue
        if values.null_count() == text.null_count():
            return values
    return otherwise


def _read_json_lines(path: Path) -> pl.DataFrame:
    _head_as_text(path)
    with _open_bytes(path) as file:
        frame = pl.read_ndjson(file.read(), infer_schema_length=None)
    columns = [
        _converted(column, _DATES, column) if column.dtype == pl.String else column
        for column in frame.iter_columns()
    ]
    return pl.DataFrame(columns)


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
            return (
                f"{name} is not UTF-8 text. Save it as UTF-8, or convert it: "
                f"iconv -f latin1 -t utf8 {name}"
            )
        if "empty" in lower:
            return f"{name} is empty."
        if path.suffix.lower() == ".gz" and isinstance(error, OSError | EOFError):
            return f"{name} is damaged or cut short ({text}). Copy it again."
        separator = _guess_separator(_head_as_text(path))
        found = _ragged_line(path, "\t" if ".tsv" in suffixes else separator)
        if found:
            return found
    lines = text.strip().splitlines()
    panic = isinstance(error, pl.exceptions.PanicException)
    reason = f": {lines[0][:120]}" if lines and not panic else "."
    return f"{name} is damaged, cut short or not what its name says{reason}"
