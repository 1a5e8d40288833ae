"""Delimited text: what separates its cells, what its header says, where it is ragged.

The separator is the one by which the first rows have as many cells as the header. Other
encodings and binary files are refused with advice.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import polars as pl

from certus.tables.cells import MISSING_MARKERS, typed
from certus.tables.errors import TableError, quoted

__all__ = [
    "guess_separator",
    "head_as_text",
    "not_utf8",
    "open_bytes",
    "ragged_line",
    "read_delimited",
]

_ROWS = 200  # of the head, looked at for the separator

#: First bytes of files that are not text, and advice for each.
_SIGNATURES = {
    b"\x1f\x8b": "is compressed with gzip. Rename it to {name}.gz and try again.",
    b"PK\x03\x04": "is a spreadsheet or archive: binary data. Save it as CSV.",
    b"\xd0\xcf\x11\xe0": "is a spreadsheet: binary data. Save it as CSV.",
    b"PAR1": "is a Parquet file. Rename it so that it ends in .parquet, and try again.",
    b"ARROW1": "is a Feather file. Rename it so that it ends in .feather, and try "
    "again.",
    codecs.BOM_UTF32_LE: "is UTF-32 text. Save it as UTF-8 and try again.",
    codecs.BOM_UTF32_BE: "is UTF-32 text. Save it as UTF-8 and try again.",
    codecs.BOM_UTF16_LE: "is UTF-16 text. Save it as UTF-8 and try again.",
    codecs.BOM_UTF16_BE: "is UTF-16 text. Save it as UTF-8 and try again.",
}
_NULLS = "holds null bytes: binary data, or UTF-16. Save it as UTF-8 text."


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file, unpacked if its name ends in ``.gz``."""
    packed = path.suffix.lower() == ".gz"
    return cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb")


def head_as_text(path: Path, size: int = 1 << 16) -> str:
    """Decode the start of a text file; refuse other encodings and binary files."""
    with open_bytes(path) as file:
        # To the end of a line, so that no name or letter is cut in two.
        head = file.read(size) + file.readline(1 << 24)
    name = path.name
    if not head.strip():
        raise TableError(f"{name} is empty: it has only white space. Export it again.")
    for signature, what in _SIGNATURES.items():
        if head.startswith(signature):
            raise TableError(f"{name} {what.format(name=name)}")
    if b"\0" in head:
        raise TableError(f"{name} {_NULLS}")
    try:
        return head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if head.translate(None, bytes({*range(1, 32)} - {9, 10, 12, 13})) != head:
            raise TableError(
                f"{name} holds binary data, not a text table. Save it as CSV."
            ) from None
        line = head[: error.start].count(b"\n") + 1
        raise TableError(not_utf8(name, f" (line {line})")) from None


def not_utf8(name: str, where: str = "") -> str:
    """What to do about text of another encoding."""
    return (
        f"{name} is not UTF-8 text{where}. Save it as UTF-8, or convert it: "
        f"iconv -f latin1 -t utf8 {name} > new.csv"
    )


def read_delimited(path: Path, separator: str | None) -> pl.DataFrame:
    """Read a CSV or TSV file and give its columns types."""
    head = head_as_text(path)
    if separator is None:
        separator = guess_separator(head)
    names = _header(next(_rows(io.StringIO(head, newline=""), separator), []), path)
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
        found = ragged_line(path, separator)
        if found:
            raise TableError(found)
    if len(names) == frame.width:
        frame.columns = names
    if frame.width > 1:
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    frame = typed(frame, separator)
    # A cell with a null byte is not a number, so only text columns can have one.
    text = frame.select(pl.selectors.string().str.contains("\0", literal=True).any())
    if any(found[0] for found in text.iter_columns()):
        raise TableError(f"{path.name} {_NULLS}")
    return frame


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


def ragged_line(path: Path, separator: str) -> str:
    """Say which is the first row whose number of cells differs from the header's."""
    with (
        open_bytes(path) as raw,
        io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file,
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
