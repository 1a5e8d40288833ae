"""Rows of any kind as named NumPy columns: frames, arrays, and files.

Numbers and dates (in days) become floats with NaN for gaps; text and booleans become
objects with None for gaps. Tables that are compared must agree in names and in types.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from certus.tables import TableError, read_table
from certus.tables.errors import quoted
from certus.tables.frame import (
    Column,
    Table,
    epoch_days,
    finite,
    is_frame,
    table_from_array,
    table_from_frame,
    wall_clock,
)
from certus.typing import Array

__all__ = ["align", "feature_matrix", "plain_table"]

#: Levels of a column that the classifiers tell apart.
_LEVELS = 200


def plain_table(table: Any) -> Table:
    """A path, a frame of pandas or polars, or a two-dimensional array as a table."""
    if isinstance(table, str | os.PathLike):
        table = read_table(os.fspath(table))
    if is_frame(table):
        found = table_from_frame(table)
    else:
        array = np.asarray(table)
        if array.ndim != 2:
            raise ValueError(
                f"a table must have rows and columns, got shape {array.shape}."
            )
        found = table_from_array(array, [f"x{i}" for i in range(array.shape[1])])
    if not found.height or not found.columns:
        raise ValueError("a table must have at least one row and one column.")
    return found


def align(**tables: Any) -> dict[str, tuple[Array, ...]]:
    """The columns of several tables, in the order of the first."""
    read = {name: plain_table(table) for name, table in tables.items()}
    first = next(iter(read))
    wanted = [column.name for column in read[first].columns]
    for name, table in read.items():
        have = {column.name for column in table.columns}
        missing, more = [n for n in wanted if n not in have], have - set(wanted)
        if missing:
            raise TableError(
                f"{name} must have the columns of {first}, but it lacks "
                f"{quoted(missing)}."
            )
        if more:
            raise TableError(
                f"{name} has columns that {first} lacks: "
                f"{quoted(sorted(more))}. Drop them."
            )
    found = {}
    for wanted_name in wanted:
        parts = {
            name: next(c for c in table.columns if c.name == wanted_name)
            for name, table in read.items()
        }
        found[wanted_name] = _one_kind(wanted_name, parts)
    return found


def _one_kind(name: str, parts: Mapping[str, Column]) -> tuple[Array, ...]:
    """The arrays of one column, all numbers or all labels."""
    kinds = {part.kind for part in parts.values()} - {"empty"}
    if kinds == {"boolean", "number"}:
        kinds = {"number"}
    if len(kinds) > 1:
        told = ", ".join(f"{part.kind} in {table}" for table, part in parts.items())
        raise TableError(
            f'Column "{name}" must have one type in all tables, got {told}. Convert it.'
        )
    kind = next(iter(kinds), "number")
    return tuple(_array(part, kind) for part in parts.values())


def _array(column: Column, kind: str) -> Array:
    values = column.values
    if column.kind == "empty":
        gap: Any = np.nan if kind in ("number", "date") else None
        return np.full(len(values), gap, dtype=float if gap is not None else object)
    if kind == "date":
        zone = getattr(values.dtype, "time_zone", None)
        return np.asarray(epoch_days(wall_clock(values, zone)), dtype=np.float64)
    if kind == "number":
        return np.asarray(finite(column.name, values), dtype=np.float64)
    return np.array(values.to_list(), dtype=object)


def feature_matrix(
    columns: Mapping[str, tuple[Array, ...]],
) -> tuple[list[Array], list[int]]:
    """Float matrices of each table, labels as codes, and which columns are labels."""
    parts: list[list[Array]] = [[] for _ in next(iter(columns.values()))]
    labels = []
    for place, arrays in enumerate(columns.values()):
        if arrays[0].dtype == object:
            arrays = _codes(arrays)
            labels.append(place)
        for part, array in zip(parts, arrays):
            part.append(array)
    return [np.column_stack(part) for part in parts], labels


def _codes(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Labels by how often they occur, the rare ones as one; gaps as NaN."""
    seen: dict[Any, int] = {}
    for cell in np.concatenate(arrays).tolist():
        if cell is not None:
            seen[cell] = seen.get(cell, 0) + 1
    order = sorted(seen, key=lambda level: -seen[level])
    codes = {level: float(min(i, _LEVELS)) for i, level in enumerate(order)}
    codes[None] = np.nan
    return tuple(np.array([codes[cell] for cell in a.tolist()]) for a in arrays)
