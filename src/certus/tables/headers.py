"""Whether the first row of a file names the columns, or is a row like the others.

A file has no header if the first row holds numbers above every column of numbers, and a
level of the column above each column of a few words. Years and numbered columns
(1990, 1991, …) are names.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

__all__ = ["has_header"]

_FEW = 0.5  # share of distinct cells up to which a column of words is one of levels


def has_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Compare the first row with the cells below it."""
    rows = [row for row in rows if len(row) == len(first)]
    if len(rows) < 3 or not any(_is_number(cell) for cell in first):
        return True
    numbers = []
    for at, cell in enumerate(first):
        below = [row[at].strip() for row in rows if row[at].strip()]
        if not below:
            continue
        if all(map(_is_number, below)):
            if not _is_number(cell):
                return True
            numbers.append(float(cell))
        elif len(set(below)) <= _FEW * len(below) and cell.strip() not in below:
            return True
    return not numbers or _counts_up(numbers)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.strip().lower() not in ("nan", "inf", "-inf", "infinity")


def _counts_up(numbers: list[float]) -> bool:
    """1990, 1991, 1992 or 0, 1, 2: names of columns."""
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    return len(steps) == 1 and min(steps) > 0 and all(x == int(x) for x in numbers)
