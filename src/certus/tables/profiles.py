"""What the training rows of a column looked like, in a few numbers kept with the model.

Numbers: cut points, and how many rows lie between them. Categories: their levels, and
how often the frequent ones occur. ``certus predict --unseen`` says which rows lie
outside of it, and ``certus watch`` compares new rows with it. Every other row chooses
cut points and levels; the rows between are counted, so that both are independent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

__all__ = ["interval_counts", "level_counts", "profile_levels", "profile_numbers"]

_INTERVALS = 16
_ROWS = 50_000  # more rows are thinned out; the profile says how many it used
#: Levels that are listed, and those that are counted one by one.
MOST_LEVELS, COUNTED = 1_000, 20


def profile_numbers(x: Any) -> dict[str, Any]:
    """Cut points of the numbers, and the rows between them; NaN are gaps."""
    low, high = float(np.nanmin(x)), float(np.nanmax(x))
    x = x[:: max(1, len(x) // _ROWS)]
    chooses, counted = x[::2], x[1::2]
    known = chooses[~np.isnan(chooses)]
    if len(known) == 0:
        known = np.array([low, high])
    cuts = np.linspace(0, 1, _INTERVALS + 1)[1:-1]
    edges = np.unique(np.quantile(known, cuts, method="inverted_cdf"))
    values = np.unique(known)
    if len(values) <= _INTERVALS:  # rare ones count as well
        edges = values[:-1] if len(values) > 1 else values
    if np.isin(values, (0.0, 1.0)).all():
        edges = np.array([0.0])
    gaps = np.isnan(counted)
    return {
        "edges": edges,
        "counts": interval_counts(counted[~gaps], edges),
        "gaps": int(gaps.sum()),
        "low": low,
        "high": high,
    }


def interval_counts(known: Any, edges: Any) -> Any:
    """Rows in each interval; the upper end of an interval belongs to it."""
    at = np.searchsorted(edges, known, side="left")
    return np.bincount(at, minlength=len(edges) + 1).astype(np.int64)


def profile_levels(text: pl.Series) -> dict[str, Any]:
    """The levels, the frequent ones among them, and how often those occur; and gaps."""
    text = text.gather_every(max(1, len(text) // _ROWS))
    levels = _by_frequency(text)
    watched = _by_frequency(text.gather_every(2))[:COUNTED]
    counted = text.gather_every(2, 1)
    counts, others = level_counts(counted, watched)
    return {
        "levels": levels[:MOST_LEVELS],
        "more": len(levels) > MOST_LEVELS,
        "watched": watched,
        "counts": counts,
        "others": others,
        "gaps": counted.null_count(),
    }


def _by_frequency(text: pl.Series) -> list[str]:
    counts = pl.DataFrame({"level": text.drop_nulls()}).group_by("level").len()
    ordered = counts.sort(["len", "level"], descending=[True, False])
    return ordered["level"].to_list()


def level_counts(text: pl.Series, levels: list[str]) -> tuple[Any, int]:
    """How often each of these levels occurs in a column, and how often others do."""
    known = text.drop_nulls()
    codes = known.cast(pl.Enum(levels), strict=False).to_physical().cast(pl.Int64)
    here = codes.drop_nulls().to_numpy()
    return np.bincount(here, minlength=len(levels)), len(known) - len(here)
