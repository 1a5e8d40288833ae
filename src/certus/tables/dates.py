"""Dates and times as numbers: a trend that may bend, the calendar, and cycles.

A linear model sees a season only through curves that come back after a year, and a
weekend only through a column for each day of the week. Both are given where the
training rows cover the period, so that no curve is bent by half a year of data. A
column of days counted from a later date on lets a line bend there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from certus.tables.frame import epoch_days

__all__ = ["BEND", "DAY_WAVES", "PLAIN", "date_labels", "date_part", "day_wave"]

_YEAR = 365.2425  # days
_MINUTES = 24 * 60.0  # of a day
_DAYS = (
    *("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
)
#: Days that training rows must cover before a cycle is read from them.
_COVERS_YEARS, _COVERS_WEEKS, _COVERS_DAYS = 330.0, 14.0, 2.0
#: How the label of a bend begins; bends at most, distinct days for each, and the share
#: of the days after which there is none: what comes later continues the last line.
BEND = "after "
_BENDS, _DAYS_EACH, _LAST = 16, 20, 0.9


def date_labels(clock: pl.Series) -> list[str]:
    """The parts that are worth a column, by the time that these rows cover."""
    days = epoch_days(clock)
    days = days[~np.isnan(days)]
    span = float(days.max() - days.min())
    hours = bool((days % 1 != 0).any())
    labels = ["month"]
    if span >= _COVERS_YEARS:
        labels += _harmonics("season")
    labels += list(_DAYS) if span >= _COVERS_WEEKS else ["weekday"]
    if hours:
        labels += ["hour"]
        labels += _harmonics("day") if span >= _COVERS_DAYS else []
    return [*labels, "days", *_bends(days)]


def _bends(days: Any) -> list[str]:
    """Dates at which a trend may bend, with as many days between two of them."""
    distinct = np.unique(np.floor(days))
    count = min(_BENDS, len(distinct) // _DAYS_EACH)
    at = np.linspace(0, _LAST, count + 2)[1:-1] if count > 1 else np.empty(0)
    return [f"{BEND}{_day(d)}" for d in np.quantile(distinct, at, method="lower")]


def _day(days: float) -> str:
    return str(np.datetime64(int(days), "D"))


def _harmonics(cycle: str) -> list[str]:
    return [f"{cycle} {wave} {k}" for k in (1, 2) for wave in ("sine", "cosine")]


def date_part(clock: pl.Series, label: str, origin: float) -> Any:
    """One part of each date as a number; gaps as NaN."""
    if label in _DAYS:
        weekday = _numbers(clock.dt.weekday())
        here = (weekday == 1 + _DAYS.index(label)).astype(np.float64)
        return np.where(np.isnan(weekday), np.nan, here)
    if label.startswith(BEND):
        since = np.datetime64(label.removeprefix(BEND), "D").astype(np.int64)
        return np.maximum(0.0, epoch_days(clock) - float(since))
    cycle, _, rest = label.partition(" ")
    if rest:
        wave, _, k = rest.partition(" ")
        turns = _seasons(clock) if cycle == "season" else epoch_days(clock) % 1
        return _WAVES[wave](2 * np.pi * int(k) * turns)
    if label == "days":
        return epoch_days(clock) - origin
    return _numbers(_PARTS[label](clock))


def day_wave(minutes: Any, label: str) -> Any:
    """One of ``DAY_WAVES`` of minutes of the day; gaps as NaN."""
    _, wave, k = label.split(" ")
    return _WAVES[wave](2 * np.pi * int(k) * minutes / _MINUTES)


def _seasons(clock: pl.Series) -> Any:
    """How much of the year has passed, as a share."""
    return (_numbers(clock.dt.ordinal_day()) - 1 + epoch_days(clock) % 1) / _YEAR


def _numbers(part: pl.Series) -> Any:
    return part.cast(pl.Float64).to_numpy()


_WAVES = {"sine": np.sin, "cosine": np.cos}
_PARTS: dict[str, Callable[[pl.Series], pl.Series]] = {
    "year": lambda clock: clock.dt.year(),  # of files written before there were cycles
    "month": lambda clock: clock.dt.month(),
    "weekday": lambda clock: clock.dt.weekday(),
    "hour": lambda clock: clock.dt.hour() + clock.dt.minute() / 60,
}

#: The cycle of a time of the day.
DAY_WAVES = tuple(_harmonics("day"))
#: Parts that keep their own scale: indicators, sines and cosines.
PLAIN = frozenset((*_DAYS, *_harmonics("season"), *_harmonics("day")))
