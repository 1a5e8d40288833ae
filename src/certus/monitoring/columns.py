"""How far each column of a new table lies from the training table, with intervals.

For each cut point, or each frequent level, the share of new rows minus the share of
training rows. Each difference has two intervals, each with half of the failure
probability, and their intersection is used: the ends of two Clopper–Pearson intervals,
which are narrow for small shares, and Hoeffding's for a difference, which is narrow for
large ones. Cut points and levels were chosen on other training rows than the rows that
are counted, so all intervals hold together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.bounds import clopper_pearson
from certus.results import Result
from certus.tables.profiles import interval_counts, level_counts
from certus.wording import number, shorten

__all__ = ["ColumnMove", "column_moves"]


@dataclass(frozen=True)
class ColumnMove(Result):
    """The largest difference between new rows and training rows in one column.

    Attributes
    ----------
    name, kind : str
        Name of the column, and what it holds, such as numbers or categories.
    what : str
        Which share differs most: ``"age ≤ 41"``, ``"town = Bath"``.
    before, now : float
        This share among the training rows and among the new rows.
    low, high : float
        Ends of an interval for the difference, now − before, of the populations that
        the rows were drawn from.
    """

    name: str
    kind: str
    what: str
    before: float
    now: float
    low: float
    high: float

    @property
    def change(self) -> float:
        """The difference of the shares, now − before."""
        return self.now - self.before

    @property
    def moved(self) -> bool:
        """Whether the interval of the difference does not contain 0."""
        return self.low > 0 or self.high < 0

    @property
    def least(self) -> float:
        """The smallest size of the difference that the interval allows."""
        return max(self.low, -self.high, 0.0)

    def __str__(self) -> str:
        return (
            f"{self.what}: {_percent(self.before)} of the training rows, "
            f"{_percent(self.now)} now ({100 * self.change:+.0f} points, "
            f"{100 * self.low:+.0f} to {100 * self.high:+.0f})"
        )


def _percent(share: float) -> str:
    return f"{number(100 * share, 2)} %"


def column_moves(plans: list[Any], cells: list[Any], delta: float) -> list[ColumnMove]:
    """One move for each column with a profile; together they hold with 1 − delta."""
    pairs = [(p, c) for p, c in zip(plans, cells) if p.get("profile") is not None]
    each = delta / max(1, len(pairs))
    moves = [_move(plan, values, each) for plan, values in pairs]
    return sorted(moves, key=lambda m: (-m.least, -abs(m.change)))


def _move(plan: Any, cells: Any, delta: float) -> ColumnMove:
    profile, name = plan["profile"], shorten(plan["name"], 40)
    if "edges" in profile:
        texts, before, now = _numbers(plan, name, cells)
    else:
        texts, before, now = _levels(profile, name, cells)
    n = int(np.sum(profile["counts"])) + profile["gaps"] + profile.get("others", 0)
    m = len(cells)
    found = [_difference(a, n, b, m, delta / len(texts)) for a, b in zip(before, now)]
    sizes = [
        (max(low, -high, 0.0), abs(b / m - a / n))
        for (low, high), a, b in zip(found, before, now)
    ]
    at = max(range(len(texts)), key=lambda i: sizes[i])
    return ColumnMove(
        *(plan["name"], plan["kind"], texts[at]),
        *(float(before[at] / n), float(now[at] / m), *found[at]),
    )


def _numbers(plan: Any, name: str, x: Any) -> tuple[list[str], Any, Any]:
    """Rows up to each cut point, and gaps."""
    profile = plan["profile"]
    gaps = np.isnan(x)
    new = np.cumsum(interval_counts(x[~gaps], profile["edges"]))[:-1]
    old = np.cumsum(profile["counts"])[:-1]
    show = _day if plan["kind"] == "date" else lambda value: number(float(value), 4)
    texts = [f"{name} ≤ {show(edge)}" for edge in profile["edges"]]
    if plan["kind"] == "boolean":
        said = ("= false", "is true or false")  # older files may hold the latter
        texts = [f"{name} {said[int(edge >= 1)]}" for edge in profile["edges"]]
    texts.append(f"{name} is missing")
    return texts, [*old, profile["gaps"]], [*new, int(gaps.sum())]


def _levels(profile: Any, name: str, text: Any) -> tuple[list[str], Any, Any]:
    """Rows of each frequent level, of all others, and gaps."""
    counts, others = level_counts(text, profile["watched"])
    texts = [f"{name} = {shorten(level, 30)}" for level in profile["watched"]]
    texts += [
        f"{name} is none of the {len(texts)} frequent levels",
        f"{name} is missing",
    ]
    old = [*profile["counts"], profile["others"], profile["gaps"]]
    return texts, old, [*counts, others, text.null_count()]


def _difference(a: int, n: int, b: int, m: int, delta: float) -> tuple[float, float]:
    """Interval of a difference of two shares, from a of n and b of m rows."""
    half = delta / 2
    old = clopper_pearson(int(a), n, half / 2)
    new = clopper_pearson(int(b), m, half / 2)
    reach = math.sqrt(math.log(2 / half) / 2 * (1 / n + 1 / m))
    middle = b / m - a / n
    low = max(new.low - old.high, middle - reach)
    high = min(new.high - old.low, middle + reach)
    return float(low), float(high)


def _day(value: float) -> str:
    return str(np.datetime64(int(value), "D"))
