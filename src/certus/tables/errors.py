"""Errors about tables, in words that the owner of the table understands.

Every error names the file or the column, says what was found there and what to
do about it. Misspelt names get the nearest existing one as a suggestion.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["TableError", "did_you_mean", "quoted"]


class TableError(ValueError):
    """A table cannot be read, encoded or matched to the one a model was fitted on.

    Examples
    --------
    >>> from certus.tables import TableError, read_table
    >>> try:
    ...     read_table("no_such_file.csv")
    ... except TableError as error:
    ...     print(error)
    There is no file no_such_file.csv. Check its name and folder.
    """


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return ' Did you mean "…"?' with the nearest candidate, or nothing."""
    by_lower: dict[str, str] = {}
    for candidate in candidates:
        by_lower.setdefault(candidate.lower(), candidate)
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f' Did you mean "{by_lower[near[0]]}"?' if near else ""


def quoted(names: Iterable[str], limit: int = 5) -> str:
    """List names in quotation marks, the tail of a long list as a count."""
    listed = list(names)
    shown = ", ".join(f'"{name}"' for name in listed[:limit])
    rest = len(listed) - limit
    return f"{shown} and {rest:,} more" if rest > 0 else shown
