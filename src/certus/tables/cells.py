"""Cells of text to values: each column gets the first type that all of its cells have.

Numbers may be written as 1234.5, 1,234.5, 1.234,5 or 1 234,5, with a currency or a unit
that is the same in the whole column, and dates in the usual orders of day, month and
year. Cells that can be read in two ways are not guessed: 1,234 is read as in the rest
of the file, and 01/02/2020 stays text if no other cell decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import polars as pl

from certus.tables.formatted import Unmarked, unmarked

__all__ = [
    "MISSING_MARKERS",
    "doubt",
    "marked_numbers",
    "to_dates",
    "to_times",
    "typed",
    "typed_texts",
]

#: Cells of a text file that mean "no value".
MISSING_MARKERS: tuple[str, ...] = (
    *("", " ", "?", "NA", "N/A", "n/a", "na", "#N/A", "#NA", "<NA>"),
    *("NaN", "nan", "-nan", "-NaN", "NaT", "NULL", "Null", "null", "None"),
)

_PROBE = 100  # cells tried first, which saves most columns most of the full attempts

Convert = Callable[[pl.Series], pl.Series]


def typed(
    frame: pl.DataFrame, separator: str, units: dict[str, str] | None = None
) -> pl.DataFrame:
    """Convert the text columns of a delimited file.

    The currency or unit that was left out of a column is put into ``units``.
    """
    units = {} if units is None else units
    # Polars can infer types itself, but is slow at dates over a whole file.
    stripped = pl.all().str.strip_chars()
    missing = stripped.is_in(MISSING_MARKERS)
    cells = frame.select(pl.when(~missing).then(stripped).name.keep())
    plain = [_first(text, _PLAIN_TYPES) for text in cells.iter_columns()]
    marked = [
        unmarked(text) if found is None else None
        for found, text in zip(plain, cells.iter_columns())
    ]
    by_comma = any(
        found is None and _shows_decimal_comma(text if mark is None else mark.text)
        for found, text, mark in zip(plain, cells.iter_columns(), marked)
    )
    columns = []
    for found, text, mark in zip(plain, cells.iter_columns(), marked):
        # Where others write 1.234,5 a column of 1.234 holds thousands.
        if found is None or (by_comma and found.dtype == pl.Float64):
            again = _grouped_numbers(text, separator, by_comma)
            found = found if again is None else again
        if found is None:
            found = to_dates(text)
        if found is None:
            found = to_times(text)
        if found is None and mark is not None:
            found = _without_marks(mark, separator, by_comma)
            units |= {} if found is None else {text.name: mark.unit}
        columns.append(text if found is None else found)
    return pl.DataFrame(columns)


def _without_marks(mark: Unmarked, separator: str, by_comma: bool) -> pl.Series | None:
    """Numbers from cells whose currency or unit was taken away."""
    text = mark.text
    found = _first(text, _PLAIN_TYPES[:2])
    if found is None or (by_comma and found.dtype == pl.Float64):
        again = _grouped_numbers(text, separator, by_comma)
        found = found if again is None else again
    if found is None or mark.powers is None:
        return found
    return (found * pl.Series([10.0]).pow(mark.powers)).alias(text.name)


def typed_texts(
    frame: pl.DataFrame, units: dict[str, str], dates: bool = False
) -> pl.DataFrame:
    """Convert text columns of numbers with a currency or unit, and of times.

    Dates as text are converted where the file format has no type for them. Plain
    numbers stay text, because whoever wrote the file chose so.
    """
    found = {}
    for column in frame.iter_columns():
        if column.dtype != pl.String:
            continue
        values = to_dates(column) if dates else None
        values = to_times(column) if values is None else values
        if values is None:
            numbers = marked_numbers(column)
            if numbers is None:
                continue
            values, units[column.name] = numbers
        found[column.name] = values
    return frame.with_columns(**found)


def marked_numbers(text: pl.Series) -> tuple[pl.Series, str] | None:
    """Numbers of a column whose cells share a currency or unit, and which it is."""
    cells = text.str.strip_chars()
    mark = unmarked(cells)
    if mark is None:
        return None
    found = _without_marks(mark, ",", _shows_decimal_comma(mark.text))
    return None if found is None else (found, mark.unit)


def _first(text: pl.Series, conversions: Iterable[Convert]) -> pl.Series | None:
    """Result of the first conversion that understands every cell."""
    probe = text.drop_nulls().head(_PROBE)
    if len(probe) == 0:
        return None
    for convert in conversions:
        try:
            if convert(probe).null_count():
                continue
            values = convert(text)
        except pl.exceptions.PolarsError:
            continue
        if values.null_count() == text.null_count():
            return values
    return None


def _booleans(text: pl.Series) -> pl.Series:
    lower = text.str.to_lowercase()
    return lower.replace_strict(["true", "false"], [True, False], default=None)


def _as_type(dtype: type[pl.DataType]) -> Convert:
    return lambda text: text.cast(dtype, strict=False)


_PLAIN_TYPES = (_as_type(pl.Int64), _as_type(pl.Float64), _booleans)

# ---- numbers with commas and groups --------------------------------------------------

_SPACES = " '’\u00a0\u202f"
_PLAIN = r"\d+(?:\.\d+)?"
#: Commas between groups of three digits, a point before decimals.
_ENGLISH = rf"^[+-]?(?:[1-9]\d{{0,2}}(?:,\d{{3}})+(?:\.\d+)?|{_PLAIN})$"
#: The same with spaces or apostrophes between the groups.
_SWISS = rf"^[+-]?(?:[1-9]\d{{0,2}}(?:[{_SPACES}]\d{{3}})+(?:\.\d+)?|{_PLAIN})$"
#: A comma before decimals; points, spaces or apostrophes between the groups.
_COMMA = rf"^[+-]?(?:\d+|[1-9]\d{{0,2}}(?:[.{_SPACES}]\d{{3}})+)(?:,\d+)?$"


def _all_match(text: pl.Series, pattern: str) -> bool:
    known = text.drop_nulls()
    return all(
        bool(cells.str.contains(pattern).all()) for cells in (known.head(_PROBE), known)
    )


def _shows_decimal_comma(text: pl.Series) -> bool:
    """Whether commas in the column can only stand before decimals."""
    return (
        text.null_count() < len(text)
        and bool(text.str.contains(",", literal=True).any())
        and _all_match(text, _COMMA)
        and not _all_match(text, _ENGLISH)
    )


def _grouped_numbers(
    text: pl.Series, separator: str, by_comma: bool
) -> pl.Series | None:
    """Numbers whose commas, points and spaces have one reading in this file."""
    if text.null_count() == len(text):
        return None
    decimal = _all_match(text, _COMMA)
    if decimal and not by_comma and _all_match(text, _ENGLISH):
        # Cells such as 1,234 alone: between commas they were quoted for their groups,
        # and semicolons serve those who write decimals with a comma.
        if separator not in ",;":
            return None
        decimal = separator == ";"
    if decimal:
        cleaned = text.str.replace_all(f"[.{_SPACES}]", "").str.replace(",", ".")
    elif _all_match(text, _ENGLISH) or _all_match(text, _SWISS):
        cleaned = text.str.replace_all(f"[,{_SPACES}]", "")
    else:
        return None
    return _first(cleaned, [_as_type(pl.Int64), _as_type(pl.Float64)])


# ---- dates ---------------------------------------------------------------------------

_CLOCK = r"(?:([T ]+)\d{1,2}:\d{2}(:\d{2})?( ?[AaPp][Mm])?)?"
_YEAR_FIRST = r"^\d{4}\D"
_YEAR_LAST = re.compile(rf"^\d{{1,2}}([/.-])\d{{1,2}}\1(\d{{4}}|\d{{2}}){_CLOCK}$")
_MONTH = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_NAMED = re.compile(rf"^(?:\d{{1,2}}[ -])?(?:{_MONTH})[a-z]*[ -]\d", re.IGNORECASE)
_NAMED_ORDERS = (
    "%d %B %Y",
    "%B %d %Y",
    "%d-%B-%y",
    "%d-%B-%Y",
)  # %Y takes two digits for a year of antiquity


def to_dates(text: pl.Series) -> pl.Series | None:
    """Dates or times, if every cell is one and none can be read in two ways."""
    known = text.drop_nulls()
    if len(known) == 0:
        return None
    first = known[0].strip()
    if re.match(_YEAR_FIRST, first):
        if not _all_match(text, r"^\s*\d{4}\D"):
            return None
        return _first(
            text,
            [
                lambda cells: cells.str.to_date(strict=False),
                lambda cells: cells.str.to_datetime(strict=False, time_unit="us"),
            ],
        )
    if _YEAR_LAST.match(first):
        orders = _orders(text, first)
        return None if len(orders) != 1 else orders[0]
    if _NAMED.match(first):
        cells = text.str.replace_all(",", "", literal=True)
        return _first(cells, [_by_format(order) for order in _NAMED_ORDERS])
    return None


def _orders(text: pl.Series, first: str) -> list[pl.Series]:
    """What dates such as 31/12/2020 can mean: none, one, or two different things."""
    found = _YEAR_LAST.match(first)
    if found is None:
        return []
    mark, year, gap, seconds, half = found.groups()
    digits = len(year)
    shape = rf"^\s*\d{{1,2}}[{mark}]\d{{1,2}}[{mark}]\d{{{digits}}}(?:\D|$)"
    if not _all_match(text, shape):
        return []
    last = "%Y" if digits == 4 else "%y"
    clock = ""
    if gap:
        hours = ("%I:%M", "%H:%M")[half is None]
        clock = gap + hours + ":%S" * bool(seconds)
        clock += half.replace(half.strip(), "%p") if half else ""
    # With points between them, the day comes first everywhere.
    forms = ["%d{0}%m{0}{1}{2}"] + ["%m{0}%d{0}{1}{2}"] * (mark != ".")
    readings = [
        _first(text, [_by_format(form.format(mark, last, clock))]) for form in forms
    ]
    known = [reading for reading in readings if reading is not None]
    if len(known) == 2 and known[0].equals(known[1]):
        return known[:1]
    return known


def _by_format(form: str) -> Convert:
    dtype = pl.Datetime("us") if "%M" in form else pl.Date()
    return lambda text: text.str.strip_chars().str.strptime(dtype, form, strict=False)


_TIME = r"^([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?( ?[AaPp][Mm])?$"


def to_times(text: pl.Series) -> pl.Series | None:
    """Times of the day such as 9:30, 21:05:30 or 9:30 PM, if every cell is one."""
    if text.null_count() == len(text):
        return None
    cells = text.str.strip_chars()
    if not _all_match(cells, _TIME):
        return None
    half = cells.str.contains(r"[AaPp][Mm]$")
    if half.any() and not half.all():
        return None
    parts = cells.str.extract_groups(
        r"^(\d+):(\d+)(?::(\d+)(?:\.(\d+))?)? ?([AaPp])?"
    ).struct
    hour = parts.field("1").cast(pl.Int64)
    if half.any():
        if not bool(hour.is_between(1, 12).all()):
            return None
        hour = hour % 12 + 12 * parts.field("5").is_in(["p", "P"]).cast(pl.Int64)
    seconds = parts.field("3").cast(pl.Int64).fill_null(0)
    micro = parts.field("4").str.pad_end(6, "0").cast(pl.Int64).fill_null(0)
    whole = 3600 * hour + 60 * parts.field("2").cast(pl.Int64) + seconds
    return ((whole * 10**6 + micro) * 1000).cast(pl.Time).alias(text.name)


# ---- doubts --------------------------------------------------------------------------


def doubt(known: pl.Series) -> str:
    """Why text that looks like numbers or dates was not read so; or nothing."""
    if len(known) == 0:
        return ""
    if len(_orders(known, known[0].strip())) == 2:
        return (
            f' Dates such as "{known[0]}" can be read in two ways. Write them as '
            "2020-12-31 to use them as dates."
        )
    parsed = known.str.strip_chars().cast(pl.Float64, strict=False)
    other = known.filter(parsed.is_null())
    if len(other) == 0:
        return " It holds numbers written as text. Convert them to use them as numbers."
    if 10 * len(other) > len(known):
        return ""
    count = len(known) - len(other)
    return (
        f' {count:,} of its {len(known):,} cells are numbers, but "{other[0][:20]}" '
        "is not. Empty such cells to use the column as numbers."
    )
