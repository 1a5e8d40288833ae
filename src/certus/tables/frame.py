"""Any table to a list of named polars columns of a few plain types.

Data frames are read through narwhals, so that pandas, polars and pyarrow tables
give the same columns; two-dimensional arrays give columns ``x0, x1, …``. After this
module only five types exist: numbers, booleans, text, dates, and nothing at all.
"""

from __future__ import annotations

import datetime as dt
import decimal
import numbers
from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import polars as pl

from certus.tables.cells import marked_numbers
from certus.tables.errors import TableError, quoted

__all__ = [
    "Column",
    "Table",
    "column_names",
    "epoch_days",
    "finite",
    "is_frame",
    "missing_objects",
    "table_from_array",
    "table_from_frame",
    "wall_clock",
]

_MICROSECONDS_PER_DAY = 86_400e6
_NANOSECONDS_PER_MINUTE = 60e9


class Column(NamedTuple):
    """One column: its values, and whether its owner declared it to be categories.

    ``clock`` says that the numbers are minutes of the day; ``text`` has the cells of
    numbers that were text with a currency or unit, which is the ``unit``.
    """

    name: str
    values: pl.Series
    declared: bool = False
    mixed: bool = False
    clock: bool = False
    text: pl.Series | None = None
    unit: str = ""

    @property
    def kind(self) -> str:
        """One of number, boolean, text, date, empty."""
        dtype = self.values.dtype
        if dtype == pl.Null or self.values.null_count() == len(self.values):
            return "empty"
        if dtype == pl.Boolean:
            return "boolean"
        if dtype == pl.String:
            return "text"
        return "number" if dtype.is_numeric() else "date"


class Table(NamedTuple):
    """The columns of a table; ``named`` is false for a bare array."""

    columns: list[Column]
    named: bool
    height: int


def is_frame(X: Any) -> bool:
    """Tell a data frame from an array, by whether narwhals knows it."""
    try:
        native = nw.from_native(X, pass_through=True, allow_series=True)
    except nw.exceptions.DuplicateError:
        labels = getattr(X, "column_names", None) or list(X.columns)
        raise _repeated([_plain_name(label) for label in labels]) from None
    if isinstance(native, nw.LazyFrame):
        raise TableError("The table is lazy. Call collect() first.")
    if isinstance(native, nw.Series):
        raise TableError(
            "Expected 2D array, got 1D array instead: a single column. "
            "Pass a data frame, for example frame[[name]]."
        )
    return isinstance(native, nw.DataFrame)


def column_names(X: Any) -> list[str]:
    """Names of a data frame's columns, as text."""
    names = [_plain_name(label) for label in nw.from_native(X, eager_only=True).columns]
    if len(set(names)) < len(names):
        raise _repeated(names)
    return names


def table_from_frame(X: Any, wanted: Collection[str] | None = None) -> Table:
    """Turn a data frame that narwhals reads into a table of plain columns.

    Of ``wanted`` columns only, if given: others may be of a type unknown here.
    """
    frame = nw.from_native(X, eager_only=True)
    names = column_names(X)
    height = len(frame)
    if wanted is not None:
        kept = [i for i, name in enumerate(names) if name in wanted]
        frame, names = frame[:, kept], [names[i] for i in kept]
    if frame.implementation.is_pyarrow():
        frame = nw.from_native(frame.to_polars(), eager_only=True)
    polars = frame.implementation.is_polars()
    if polars:  # all columns at once: polars plans a query each time
        blank = frame.to_native().with_columns(pl.selectors.float().fill_nan(None))
        frame = nw.from_native(blank, eager_only=True)
    columns = [
        _from_polars(name, values.to_native())
        if polars
        else _from_narwhals(name, values)
        for name, values in zip(names, frame.iter_columns())
    ]
    return Table(columns, True, height)


def _plain_name(label: Any) -> str:
    if isinstance(label, tuple):
        return "_".join(str(part) for part in label)
    return str(label)


def _repeated(names: list[str]) -> TableError:
    twice = [name for name, times in Counter(names).items() if times > 1]
    return TableError(f"More than one column is named {quoted(twice)}. Rename one.")


def _from_polars(name: str, values: pl.Series) -> Column:
    dtype = values.dtype
    if isinstance(dtype, pl.Decimal):
        return Column(name, values.cast(pl.Float64))
    if dtype == pl.String:
        return _from_text(name, values)
    if dtype.is_numeric() or dtype in (pl.Boolean, pl.Null, pl.Date):
        return Column(name, values)
    if isinstance(dtype, pl.Datetime):
        return Column(name, values.dt.cast_time_unit("us"))
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return Column(name, values.cast(pl.String), declared=True)
    if dtype == pl.Time:
        minutes = values.to_physical().cast(pl.Float64) / _NANOSECONDS_PER_MINUTE
        return Column(name, minutes, clock=True)
    if isinstance(dtype, pl.Duration):
        days = values.dt.total_microseconds() / _MICROSECONDS_PER_DAY
        return Column(name, days)
    if dtype == pl.Object:
        return _from_objects(name, values.to_numpy())
    raise _unusable(name, str(dtype))


def _from_text(name: str, text: pl.Series) -> Column:
    """Text, or the numbers in it if all cells have the same currency or unit."""
    found = marked_numbers(text)
    if found is None:
        return Column(name, text)
    return Column(name, found[0], text=text, unit=found[1])


def _from_narwhals(name: str, values: nw.Series[Any]) -> Column:
    dtype = values.dtype
    if isinstance(dtype, nw.Categorical | nw.Enum):
        return Column(name, _category_text(values.to_native()), declared=True)
    if dtype == nw.String:
        return _from_text(name, _text(values.to_numpy(), values.is_null().to_numpy()))
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
        utc = values.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        stamps = pl.Series(utc.to_numpy().astype("datetime64[us]"))
        zoned = stamps.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone)
        return Column(name, zoned)
    if dtype.is_decimal():
        values = values.cast(nw.Float64())
    if dtype.is_nested():
        raise _unusable(name, str(dtype))
    return _from_numpy(name, values.to_numpy())


def _category_text(native: Any) -> pl.Series:
    """Labels of a pandas categorical; the code −1 stands for a missing value."""
    labels = np.array([*map(str, native.cat.categories), None], dtype=object)
    return pl.Series(labels[native.cat.codes.to_numpy()].tolist(), dtype=pl.String)


def _text(array: Any, missing: Any) -> pl.Series:
    objects = np.array(array, dtype=object)
    objects[np.asarray(missing, dtype=bool)] = None
    return pl.Series(objects.tolist(), dtype=pl.String)


def _from_numpy(name: str, array: Any) -> Column:
    kind = array.dtype.kind
    if kind in "iub":
        return Column(name, pl.Series(np.ascontiguousarray(array)))
    if kind == "f":
        floats = np.ascontiguousarray(array, dtype=np.float64)
        return Column(name, pl.Series(floats, nan_to_null=True))
    if kind == "M":
        return Column(name, pl.Series(array.astype("datetime64[us]")))
    if kind == "m":
        span = pl.Series(array.astype("timedelta64[us]"))
        return _from_polars(name, span)
    if kind in "UT":
        return Column(name, pl.Series(array.tolist(), dtype=pl.String))
    if kind == "O":
        return _from_objects(name, array)
    raise _unusable(name, str(array.dtype))


def table_from_array(array: Any, names: list[str]) -> Table:
    """Turn a checked two-dimensional array into a table of plain columns."""
    columns: list[Column] = [
        _from_numpy(name, array[:, i]) for i, name in enumerate(names)
    ]
    return Table(columns, False, array.shape[0])


def _is_missing(value: Any) -> bool:
    # pandas marks missing objects by NA and NaT; it need not be installed here.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and value != value


missing_objects = np.frompyfunc(_is_missing, 1, 1)


def _from_objects(name: str, array: Any) -> Column:
    """Find the one type that a column of Python objects holds, or read it as text."""
    missing = missing_objects(array).astype(bool)
    objects = np.array(array, dtype=object)
    objects[missing] = None
    types: set[type] = set(map(type, objects[~missing]))

    def all_are(*kinds: type) -> bool:
        return all(issubclass(t, kinds) for t in types)

    if not types:
        return Column(name, pl.Series([None] * len(objects), dtype=pl.Null))
    if all_are(str):
        return _from_text(name, pl.Series(objects.tolist(), dtype=pl.String))
    if all_are(dt.time):
        return _from_polars(name, pl.Series(objects.tolist(), dtype=pl.Time))
    if all_are(bool, np.bool_):
        return Column(name, pl.Series(objects.tolist(), dtype=pl.Boolean))
    if all_are(numbers.Real, decimal.Decimal, np.bool_):
        return Column(name, _object_numbers(name, objects, missing, types))
    if all_are(dt.date, np.datetime64):
        return Column(name, _object_dates(name, objects))
    if any(issubclass(t, list | tuple | dict | set | np.ndarray) for t in types):
        raise _unusable(name, "lists or records")
    if any(issubclass(t, complex | np.complexfloating) for t in types):
        raise _unusable(name, "complex numbers")
    text = np.array(objects, dtype=object)
    text[~missing] = list(map(str, objects[~missing]))
    mixed = len(types) > 1
    return Column(name, pl.Series(text.tolist(), dtype=pl.String), mixed=mixed)


def _object_numbers(name: str, objects: Any, missing: Any, types: set[type]) -> Any:
    try:
        if not missing.any() and all(issubclass(t, numbers.Integral) for t in types):
            try:
                return pl.Series(objects.astype(np.int64))
            except OverflowError:
                pass
        floats = np.full(len(objects), np.nan)
        floats[~missing] = objects[~missing].astype(np.float64)
    except OverflowError:
        raise TableError(
            f'Column "{name}" holds integers above 1.8e308, too large for a float. '
            "Rescale the column, or convert it to text."
        ) from None
    return pl.Series(floats, nan_to_null=True)


def _object_dates(name: str, objects: Any) -> pl.Series:
    try:
        values = pl.Series(objects.tolist(), strict=False)
        if values.dtype == pl.Object:
            values = pl.Series(objects.astype("datetime64[us]"))
    except (pl.exceptions.PolarsError, TypeError, ValueError):
        raise TableError(
            f'Column "{name}" mixes dates that cannot be compared, such as dates with '
            "and without a time zone. Convert them to one type."
        ) from None
    return values if values.dtype == pl.Date else values.dt.cast_time_unit("us")


def _unusable(name: str, found: str) -> TableError:
    return TableError(
        f'Column "{name}" holds {found}, which are not single numbers, words or dates. '
        "Split it into plain columns, or drop it (--drop)."
    )


def finite(name: str, values: pl.Series) -> Any:
    """Numbers as float64, gaps as NaN; infinities are refused."""
    x = values.cast(pl.Float64).to_numpy()
    if np.isinf(x).any():
        row = int(np.flatnonzero(np.isinf(x))[0])
        raise TableError(
            f'Column "{name}" has an infinite value (row {row:,}, counted from 0). '
            "Replace it with a number, or leave the cell empty."
        )
    return x


def wall_clock(values: pl.Series, zone: str | None) -> pl.Series:
    """Dates as the clock of ``zone`` shows them, without a zone."""
    if values.dtype == pl.Date:
        return values.cast(pl.Datetime("us"))
    if getattr(values.dtype, "time_zone", None) is not None:
        if zone is not None:
            values = values.dt.convert_time_zone(zone)
        values = values.dt.replace_time_zone(None)
    return values


def epoch_days(clock: pl.Series) -> Any:
    """Days since 1970, with their fraction; gaps as NaN."""
    return clock.to_physical().cast(pl.Float64).to_numpy() / _MICROSECONDS_PER_DAY
