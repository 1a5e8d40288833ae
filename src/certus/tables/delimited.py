"""Delimited text: what separates its cells, what its header says, where it is ragged.

The separator is the one by which the first rows have as many cells as the header. What
had to be assumed about a file (its encoding, names of columns, units) is reported in
sentences. Binary files are refused with advice.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import polars as pl

from certus.tables.cells import MISSING_MARKERS, typed, typed_texts
from certus.tables.encodings import WESTERN, decode, guess_encoding
from certus.tables.errors import TableError, quoted
from certus.tables.headers import has_header

__all__ = [
    "Reading",
    "guess_separator",
    "head_as_text",
    "not_utf8",
    "open_bytes",
    "ragged_line",
    "read_delimited",
    "typed_reading",
]

_ROWS = 200  # of the head, looked at for the separator

#: First bytes of files that are not text, and advice for each.
_SIGNATURES = {
    b"\x1f\x8b": "is compressed with gzip. Rename it to {name}.gz and try again.",
    b"PK\x03\x04": "is a spreadsheet or archive: binary data. Save the sheet you want "
    "as CSV.",
    b"\xd0\xcf\x11\xe0": "is a spreadsheet: binary data. Save the sheet you want as "
    "CSV.",
    b"PAR1": "is a Parquet file. Rename it so that it ends in .parquet, and try again.",
    b"ARROW1": "is a Feather file. Rename it so that it ends in .feather, and try "
    "again.",
}
_NULLS = "holds null bytes: binary data, or UTF-16. Save it as UTF-8 text."


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file, unpacked if its name ends in ``.gz``."""
    packed = path.suffix.lower() == ".gz"
    return cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb")


def head_as_text(path: Path, size: int = 1 << 16, encoding: str | None = None) -> str:
    """Decode the start of a text file; refuse binary files and unknown encodings."""
    return _head(path, size, encoding)[0]


def _head(path: Path, size: int, encoding: str | None) -> tuple[str, str]:
    """The start of a text file, and its encoding."""
    with open_bytes(path) as file:
        # To the end of a line, so that no name or letter is cut in two.
        head = file.read(size) + file.readline(1 << 24)
    name = path.name
    if not head.strip():
        raise TableError(f"{name} is empty: it has only white space. Export it again.")
    for signature, what in _SIGNATURES.items():
        if head.startswith(signature):
            raise TableError(f"{name} {what.format(name=name)}")
    found = encoding or guess_encoding(head)
    wide = found is not None and found.lower().startswith(("utf-16", "utf-32", "utf16"))
    if wide:
        head = head[: len(head) // 4 * 4]  # no letter cut in two
        return head.decode(found or "", "ignore").lstrip("\ufeff"), found or ""
    if b"\0" in head:
        raise TableError(f"{name} {_NULLS}")
    if found is not None:
        return decode(head, found, name), found
    if head.translate(None, bytes({*range(1, 32)} - {9, 10, 12, 13})) != head:
        raise TableError(f"{name} holds binary data, not a text table. Save it as CSV.")
    raise TableError(not_utf8(name))


def not_utf8(name: str) -> str:
    """What to do about text of an encoding that cannot be recognised."""
    return (
        f"{name} is not UTF-8 text, and its bytes do not tell what it is. Name its "
        "encoding, as in --encoding cp1251, or save it as UTF-8."
    )


@dataclass(frozen=True)
class Reading:
    """A table, what had to be assumed to read it, and the units that were left out.

    ``spelling`` says for each column of true and false, or of few whole numbers, how
    the file writes a value, where that differs from how we would.
    """

    frame: pl.DataFrame
    notes: list[str] = field(default_factory=list)
    units: dict[str, str] = field(default_factory=dict)
    spelling: dict[str, dict[str, str]] = field(default_factory=dict)


def read_delimited(
    path: Path, separator: str | None, encoding: str | None = None
) -> Reading:
    """Read a CSV or TSV file and give its columns types."""
    head, found = _head(path, 1 << 16, encoding)
    notes: list[str] = []
    source: Any = path
    if found not in ("utf-8-sig", "utf-8") or encoding is not None:
        source = _recoded(path, found)
    if separator is None:
        separator = guess_separator(head)
    try:
        frame = _cells(path, source, head, separator, notes)
    except pl.exceptions.ComputeError as error:
        # Letters of another encoding may come only after the head.
        if source is not path or "utf-8" not in str(error).lower().replace(
            "utf8", "utf-8"
        ):
            raise
        found = _western_or_refuse(path)
        frame = _cells(path, _recoded(path, found), head, separator, notes)
    if found == WESTERN and encoding is None:
        notes.insert(
            0,
            f"{path.name} is not UTF-8. Its letters fit Windows-1252, which was used. "
            "If they look wrong, name the encoding of the file: --encoding",
        )
    # Polars fills a short row with missing cells. Its last cell is then missing,
    # so that the slow line-by-line look is needed only if some last cell is.
    if frame.height and frame[frame.columns[-1]].null_count():
        ragged = ragged_line(path, separator, found)
        if ragged:
            raise TableError(ragged)
    if frame.width > 1:
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    units: dict[str, str] = {}
    table = typed(frame, separator, units)
    # A cell with a null byte is not a number, so only text columns can have one.
    text = table.select(pl.selectors.string().str.contains("\0", literal=True).any())
    if any(cells[0] for cells in text.iter_columns()):
        raise TableError(f"{path.name} {_NULLS}")
    notes += _said(units) + _said_times(frame, table)
    return Reading(table, notes, units, _spelling(frame, table))


def typed_reading(frame: pl.DataFrame, dates: bool = False) -> Reading:
    """A table of a format with types, its text columns of numbers and times typed."""
    units: dict[str, str] = {}
    table = typed_texts(frame, units, dates)
    return Reading(table, _said(units) + _said_times(frame, table), units)


def _said_times(raw: pl.DataFrame, table: pl.DataFrame) -> list[str]:
    """Which columns of text became times of the day."""
    names = [
        name
        for name, was, now in zip(table.columns, raw.dtypes, table.dtypes)
        if now == pl.Time and was == pl.String
    ]
    verb = "is" if len(names) == 1 else "are"
    return [f"{quoted(names)} {verb} read as times of the day."] if names else []


def _cells(
    path: Path, source: Any, head: str, separator: str, notes: list[str]
) -> pl.DataFrame:
    """All cells as text, under the names of the header, if there is one."""
    rows = _rows(io.StringIO(head, newline=""), separator)
    first = next(rows, [])
    named = has_header(first, [row for row, _ in zip(rows, range(_ROWS))])
    names = (
        _header(first, path)
        if named
        else [f"column {i + 1}" for i in range(len(first))]
    )
    frame = pl.read_csv(
        source,
        separator=separator,
        has_header=named,
        infer_schema=False,
        null_values=list(MISSING_MARKERS),
        glob=False,
    )
    if len(names) == frame.width:
        frame.columns = names
    if not named:
        notes.append(
            f"{path.name} has no header: its first row looks like the others. The "
            f'columns are called "column 1" to "column {frame.width}".'
        )
    return frame


def _recoded(path: Path, encoding: str) -> io.BytesIO:
    """The file in memory, as UTF-8."""
    with open_bytes(path) as file:
        data = file.read()
    return io.BytesIO(decode(data, encoding, path.name).lstrip("\ufeff").encode())


def _western_or_refuse(path: Path) -> str:
    with open_bytes(path) as file:
        found = guess_encoding(file.read())
    if found is None:
        raise TableError(not_utf8(path.name))
    return found


def _said(units: dict[str, str]) -> list[str]:
    """What was left out of numbers, in one sentence for each mark."""
    marks: dict[str, list[str]] = {}
    for column, unit in units.items():
        marks.setdefault(unit, []).append(column)
    return [
        f"{quoted(columns)} {'is' if len(columns) == 1 else 'are'} read as numbers, "
        + (f'without "{unit}".' if unit else "with brackets as a minus sign.")
        for unit, columns in marks.items()
    ]


_FEW_LABELS = 50


def _spelling(raw: pl.DataFrame, table: pl.DataFrame) -> dict[str, dict[str, str]]:
    """How the file writes the values of columns that may be labels."""
    found = {}
    for name, values in zip(table.columns, table.iter_columns()):
        if not (values.dtype == pl.Boolean or values.dtype.is_integer()):
            continue
        if values.n_unique() > _FEW_LABELS:
            continue
        pairs = pl.DataFrame({"raw": raw[name].str.strip_chars(), "value": values})
        first = pairs.drop_nulls("value").unique("value", maintain_order=True)
        written = {str(v): r for r, v in first.iter_rows() if str(v) != r}
        written |= {
            str(v): r for r, v in first.iter_rows() if values.dtype == pl.Boolean
        }
        if written:
            found[name] = written
    return found


def _header(cells: list[str], path: Path) -> list[str]:
    """Names without surrounding blanks; unnamed columns are named by their position."""
    names = [cell.strip() for cell in cells]
    repeated = [name for name, times in Counter(names).items() if times > 1 and name]
    if repeated:
        raise TableError(
            f"{path.name} has more than one column named {quoted(repeated)}. Rename "
            "one."
        )
    taken = set(names)
    for at, name in enumerate(names):
        if not name:
            free = "index" if at == 0 else f"column {at + 1}"
            while free in taken:
                free += "'"
            names[at] = free
    return names


@contextmanager
def _long_cells() -> Iterator[None]:
    """Lift the limit on the length of cells in Python's reader."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _rows(text: IO[str], separator: str) -> Iterator[list[str]]:
    """Rows that are not blank lines, as far as they can be read."""
    with _long_cells():
        try:
            yield from (row for row in csv.reader(text, delimiter=separator) if row)
        except csv.Error:
            return


def guess_separator(head: str) -> str:
    """Return the separator that gives most rows as many cells as the header.

    The comma wins ties, and where nothing separates.
    """
    best, most = ",", 0.0
    for separator in ",;\t|":
        rows = _rows(io.StringIO(head, newline=""), separator)
        width = len(next(rows, []))
        alike = [len(row) == width for row, _ in zip(rows, range(_ROWS))]
        share = (1 + sum(alike)) / (1 + len(alike)) if width > 1 else 0.0
        if share > most:
            best, most = separator, share
    return best


def ragged_line(path: Path, separator: str, encoding: str = "utf-8-sig") -> str:
    """Say which is the first row whose number of cells differs from the header's."""
    with (
        open_bytes(path) as raw,
        io.TextIOWrapper(raw, encoding=encoding, newline="") as file,
        _long_cells(),
    ):
        rows = csv.reader(file, delimiter=separator)
        try:
            header = next(row for row in rows if row)
            for row in rows:
                if row and len(row) != len(header):
                    cells = "1 cell" if len(row) == 1 else f"{len(row):,} cells"
                    return (
                        f"{path.name}, line {rows.line_num:,}: {cells}, but the header "
                        f"has {len(header):,}. Correct that line."
                    )
        except (csv.Error, UnicodeDecodeError, StopIteration):
            return ""
    return ""
