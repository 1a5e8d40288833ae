"""Find problems of a table before anything is fitted to it.

Copies of a row, columns that determine the target, columns that look like groups or
times. Columns are judged on training rows alone; the sealed ones are looked at only to
find copies, which must not end up on both sides.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import polars as pl
from scipy.stats import rankdata

from certus.tables.errors import TableError, did_you_mean, quoted
from certus.tables.frame import (
    Column,
    column_names,
    is_frame,
    table_from_array,
    table_from_frame,
)
from certus.tables.plan import ID_NAME, ColumnRules, plan_column
from certus.typing import MatrixLike
from certus.wording import number, shorten

__all__ = [
    "DETERMINES",
    "Leak",
    "columns_of",
    "copies",
    "find_leaks",
    "hints",
    "names_of",
    "take",
    "take_column",
    "without",
]

#: A column this close to a function of the target, or the reverse, is left out.
DETERMINES = 0.999
#: From here on there is a note about it.
NEARLY = 0.98
#: Share of rows with an equal up to which equal rows are copies, whatever they hold;
#: and share of distinct values from which on a column tells rows apart.
_BY_CHANCE = 0.1
_TELLING = 0.3
_ROWS = 20_000  # looked at for leaks
_FEWEST = 30  # rows, below which any column may happen to fit
_RARE = 10  # rows outside the commonest label, likewise


class Leak(NamedTuple):
    """A column that determines the target alone, and how well (1: exactly)."""

    column: str
    strength: float
    what: str


# ---- reading any table -----------------------------------------------------------


def columns_of(X: MatrixLike) -> list[Column]:
    """The columns of a frame or array, as polars series."""
    if is_frame(X):
        return table_from_frame(X).columns
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"X has shape {array.shape}; pass rows × columns.")
    return table_from_array(array, [f"x{i}" for i in range(array.shape[1])]).columns


def names_of(X: MatrixLike) -> list[str]:
    """Names of the columns, without a look at them."""
    if is_frame(X):
        return column_names(X)
    return [f"x{i}" for i in range(np.asarray(X).shape[1])]


def _one_column(X: MatrixLike, at: int) -> Column:
    """Read one column only; the others may have types that no model can use."""
    if is_frame(X):
        return table_from_frame(X, [column_names(X)[at]]).columns[0]
    return columns_of(X)[at]


def take(X: Any, rows: Any) -> Any:
    """Some rows of a frame or array, in the order given."""
    if is_frame(X):
        return nw.from_native(X, eager_only=True)[rows].to_native()
    return np.asarray(X)[rows]


def without(X: Any, names: Any) -> Any:
    """A table without some of its columns."""
    if is_frame(X):
        return nw.from_native(X, eager_only=True).drop(list(names)).to_native()
    array = np.asarray(X)
    drop = {int(name[1:]) for name in names}
    return array[:, [i for i in range(array.shape[1]) if i not in drop]]


def take_column(X: MatrixLike, values: Any, option: str) -> Column:
    """A column of X by its name, or values given beside X."""
    if isinstance(values, str):
        found = names_of(X)
        if values not in found:
            hint = did_you_mean(values, found) or f" It has {quoted(found)}."
            raise TableError(f'The table has no column "{values}".{hint}')
        column = _one_column(X, found.index(values))
    else:
        array = np.asarray(values)
        if array.ndim != 1:
            raise ValueError(f"{option} has shape {array.shape}; pass one per row.")
        column = table_from_array(array[:, None], [option]).columns[0]
    gaps = column.values.null_count()
    if gaps:
        rows = "1 row" if gaps == 1 else f"{gaps:,} rows"
        raise TableError(
            f'"{column.name}" has no value in {rows}, so the split cannot place them. '
            f"Fill or drop these rows, or leave {option} out."
        )
    return column


# ---- copies ------------------------------------------------------------------------


def copies(columns: list[Column]) -> tuple[np.ndarray | None, int]:
    """Number of the first row equal to each row, and how many are copies of another.

    Rows of a few categories agree by chance; keeping those on one side would distort
    the labels of such a cell. Equal rows count as copies if they agree in a value of a
    column that hardly repeats, or if hardly any row of the table has an equal.
    Identifiers are not compared, as they would hide a copy.
    """
    compared = [c.values for c in columns if not is_identifier(c)]
    if not compared:
        return None, 0
    n = len(compared[0])
    frame = pl.DataFrame([s.alias(str(i)) for i, s in enumerate(compared)])
    first = frame.with_row_index("row").select(
        pl.col("row").first().over(frame.columns).alias("first")
    )["first"]
    numbers = first.to_numpy().astype(np.int64)
    if n - len(np.unique(numbers)) > _BY_CHANCE * n:
        telling = np.zeros(n, dtype=bool)
        for values in compared:
            if values.n_unique() >= _TELLING * (n - values.null_count()):
                telling |= values.is_not_null().to_numpy()
        numbers = np.where(telling, numbers, np.arange(n))
    extra = n - len(np.unique(numbers))
    return (numbers, extra) if extra else (None, 0)


# ---- leaks -------------------------------------------------------------------------


def find_leaks(columns: list[Column], y: np.ndarray, labels: bool) -> list[Leak]:
    """Columns that by themselves determine the target, or nearly, strongest first."""
    n = len(y)
    if n < _FEWEST:
        return []
    step = max(1, n // _ROWS)
    target = np.unique(y[::step], return_inverse=True)[1] if labels else y[::step]
    if labels and len(target) - np.bincount(target).max() < _RARE:
        return []
    leaks = []
    for column in columns:
        column = column._replace(values=column.values.gather_every(step))
        if column.kind == "empty" or is_identifier(column):
            continue
        found = _judged(column, target.astype(float), labels)
        if found is not None and found.strength >= NEARLY:
            leaks.append(found)
    return sorted(leaks, key=lambda leak: -leak.strength)


def is_identifier(column: Column) -> bool:
    """Whether the encoder sets the column aside as one value per row."""
    plan = plan_column(column, None, ColumnRules(max_categories=1, text="drop"))
    return bool(plan["kind"] == "identifier")


def _judged(column: Column, y: np.ndarray, labels: bool) -> Leak | None:
    """The strongest of the ways in which a column may determine the target."""
    gaps = column.values.is_null().to_numpy()
    found = []
    if column.kind == "text":
        levels = column.values.fill_null("").rank("dense").to_numpy()
        found.append((_by_level(levels, y, labels), "by its levels"))
    elif 2 * np.count_nonzero(~gaps) >= max(len(y), 2 * _FEWEST):
        x = column.values.to_physical().cast(pl.Float64).to_numpy()[~gaps]
        by = _by_order if labels else _by_line
        if x.min() < x.max() and y[~gaps].min() < y[~gaps].max():
            found.append(by(x, y[~gaps]))
            found.append((_by_level(x, y[~gaps], labels), "by its values"))
    if gaps.any() and not gaps.all():
        found.append((_by_level(gaps.astype(int), y, labels), "by its gaps"))
    return Leak(column.name, *max(found)) if found else None


def _by_line(x: np.ndarray, y: np.ndarray) -> tuple[float, str]:
    """Correlation of the amounts, or of their ranks."""
    with np.errstate(over="ignore", invalid="ignore"):
        straight = abs(np.corrcoef(x, y)[0, 1])
    ranks = abs(np.corrcoef(rankdata(x), rankdata(y))[0, 1])
    r = float(np.fmax(straight, ranks))
    return r, f"r = {number(r, 3) if r < 0.9995 else '1.00'}"


def _by_order(x: np.ndarray, y: np.ndarray) -> tuple[float, str]:
    """How nearly the rows, sorted by the column, show each label in one run."""
    sizes = np.unique(y, return_counts=True)[1]
    shares = sizes / len(y)
    runs = 1 + np.count_nonzero(np.diff(y[np.lexsort((y, x))]))
    by_chance = 1 + (len(y) - 1) * (1 - np.square(shares).sum())
    broken = (runs - len(sizes)) / max(1.0, by_chance - len(sizes))
    # Equal values with different labels, which sorting put in order, do not count.
    torn = (1 - _majority(x, y)) / (1 - shares.max())
    return float(1 - broken - torn), "by its order"


def _majority(x: np.ndarray, y: np.ndarray) -> float:
    """Share of rows that have the most frequent label of their value."""
    frame = pl.DataFrame({"x": x, "y": y})
    counts = frame.group_by("x", "y").len().group_by("x").agg(pl.col("len").max())
    return float(counts["len"].sum()) / len(x)


def _by_level(x: np.ndarray, y: np.ndarray, labels: bool) -> float:
    """How nearly each value has one label, or one amount; needs values that repeat."""
    if len(x) < 5 * len(np.unique(x)):
        return 0.0
    if labels:
        constant = np.bincount(y.astype(int)).max() / len(y)
        if constant == 1:
            return 0.0
        # Relative to the commonest label, which a rare second label would flatter.
        return (_majority(x, y) - constant) / (1 - constant)
    total = float(np.var(y))
    if total == 0:
        return 0.0
    frame = pl.DataFrame({"x": x, "y": y})
    squares = frame.group_by("x").agg(s=pl.col("y").var(ddof=0) * pl.len())["s"]
    inside = float(squares.sum()) / len(y)
    return float(np.sqrt(max(0.0, 1 - inside / total)))


# ---- hints -------------------------------------------------------------------------


def hints(columns: list[Column]) -> list[str]:
    """Columns that may name groups or times that the split does not use."""
    notes = []
    for column in columns:
        values, name = column.values.drop_nulls(), shorten(column.name)
        distinct = values.n_unique()
        if column.kind == "date" and distinct > 1:
            notes.append(
                f'"{name}" is a date. To predict later rows from earlier ones, split '
                "by it (--time)."
            )
        elif (
            ID_NAME.fullmatch(column.name)
            and not values.dtype.is_float()
            and 20 <= 2 * distinct <= len(values)
        ):
            notes.append(
                f'"{name}" looks like an identifier, and its {distinct:,} values '
                "repeat. If rows with the same value belong together, split by it "
                "(--groups)."
            )
    return notes
