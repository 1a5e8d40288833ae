"""``certus watch``: a model file meets rows that came later.

The target is used if the table has it. Nothing is called drift by a p-value: each
column shows a difference and its interval, and what cannot be known is said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from certus.cli import DONE, MISSED
from certus.cli.applying import columns_of, read_model, read_rows
from certus.cli.machine import say_json
from certus.cli.predicting import check_units
from certus.cli.screen import Stop, progress, remark, say
from certus.wording import shorten

_COLUMNS = 10


class Order(NamedTuple):
    """How the order of the rows is known: by a column, by the file, or not at all."""

    column: str | None = None
    file: bool = False


def watch(
    model_path: Path,
    path: Path,
    target: str | None,
    order: Order,
    interval: float,
    encoding: str | None,
    as_json: bool,
) -> int:
    """Compare, judge, and write the result; returns the exit code."""
    from certus.monitoring import watch as compare

    if not 0 < interval < 1:
        raise Stop(f"--interval must be a share between 0 and 1, got {interval:g}.", 2)
    with progress(3) as step:
        model, split = read_model(model_path, step)
        if not hasattr(getattr(model, "encoder_", None), "cells"):
            raise Stop(
                f"{model_path.name} keeps nothing about its training rows. Fit the "
                "model with certus fit to watch it."
            )
        read = read_rows(path, step, encoding)
        frame = _in_order(read.frame, order, path.name)
        name = target or getattr(model, "target_name_", None)
        X, y, gaps = _rows(frame, name, target is not None, path.name)
        X, remarks = columns_of(model, X)
        remarks = [*check_units(split, read.units, read.frame.columns), *remarks]
        if gaps:
            remarks.insert(0, f"{gaps:,} rows without a target were left out.")
        step("comparing")
        ordered = order.column is not None or order.file
        found = compare(model, X, y, ordered=ordered, coverage=interval)
    lost = found.coverage is not None and found.coverage.broken
    code = MISSED if lost else DONE
    if as_json:
        say_json({**found.to_dict(), "remarks": remarks, "exit_code": code})
        return code
    for text in remarks:
        remark(text)
    _say(found, path.name)
    return code


def _in_order(frame: Any, order: Order, file: str) -> Any:
    if order.column is None:
        return frame
    if order.column not in frame.columns:
        from certus.tables.errors import did_you_mean

        hint = did_you_mean(order.column, frame.columns)
        raise Stop(f'{file} has no column "{shorten(order.column)}".{hint}')
    if frame[order.column].null_count():
        raise Stop(
            f'"{shorten(order.column)}" has no value in some rows, so their order is '
            "not known. Fill them, or leave out --time."
        )
    return frame.sort(order.column, maintain_order=True)


def _rows(
    frame: Any, target: str | None, asked: bool, file: str
) -> tuple[Any, Any, int]:
    """Columns and target; None where the table does not have it."""
    from certus.cli.data import split_target

    if target is None or (target not in frame.columns and not asked):
        return frame, None, 0
    return split_target(frame, target, file)


def _say(found: Any, file: str) -> None:
    say(f"{shorten(file)}  {found.rows:,} rows: {found.verdict}", style="bold", hang=4)
    say()
    for move in found.columns[:_COLUMNS]:
        style = "" if move.moved else "dim"
        mark = "!" if move.moved else "·"
        say(f"{mark} {move}", indent=2, hang=2, style=style)
    more = len(found.columns) - _COLUMNS
    if more > 0:
        moved = sum(move.moved for move in found.columns[_COLUMNS:])
        noun = "column" if more == 1 else "columns"
        say(f"  {more:,} more {noun}, of which {moved or 'none'} moved: with --json")
    if found.columns:
        sure = f"{100 * (1 - found.delta):g} %"
        say(
            f"now − before in points, and its interval; all of them hold with {sure} "
            "if rows are drawn independently, old and new",
            style="dim",
            indent=2,
            hang=2,
        )
    if found.coverage is not None:
        say()
        _say_coverage(found.coverage)
    if found.unknown:
        say()
        say("cannot be known from these rows:")
        for text in found.unknown:
            say(f"– {text}", indent=2, hang=2)


def _say_coverage(seen: Any) -> None:
    mark, style = ("✗", "red") if seen.broken else ("✓", "green")
    if not seen.broken and not seen.holds:
        mark, style = "·", ""
    say(f"{mark} {seen.verdict}", style=style, hang=2)
    sure = f"{100 * (1 - seen.delta):g} %"
    if not seen.ordered:
        say(
            f"Clopper–Pearson, {sure}; rows drawn independently",
            style="dim",
            indent=2,
        )
        return
    say(
        f"the interval holds after every row with {sure}, whatever happens to the rows",
        style="dim",
        indent=2,
        hang=2,
    )
    if seen.odds is not None:
        whose = " of the model before its refit" if seen.refitted else ""
        say(
            f"bet against rows like those of the calibration{whose}: the capital "
            f"reached {seen.odds:.3g}; {1 / seen.delta:g} would establish a change (it "
            f"does so wrongly with at most {100 * seen.delta:g} %, ever)",
            style="dim",
            indent=2,
            hang=2,
        )
