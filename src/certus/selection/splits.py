"""One plan for all candidates: the sealed rows, and the fold of each other row.

Rows are put in an order that depends on the seed and their number alone, so that the
plan is the same on every machine. Labels are distributed evenly, copies of a row and
rows of one group stay together, and with a time column the sealed rows are the latest
and each fold is judged on rows later than those it learnt from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.results import Result
from certus.typing import ArrayLike

__all__ = ["FEWEST", "Split", "make_split", "sealed_rows"]

#: Tables with fewer rows are not divided: a handful of sealed rows says nothing.
FEWEST = 20


@dataclass(frozen=True)
class Split(Result):
    """Which rows were sealed, and the folds of the others.

    Attributes
    ----------
    n_rows : int
        Rows of the table, those without a target not counted.
    training, sealed : ndarray of int
        Row numbers, ascending; ``sealed`` is empty for a tiny table.
    folds : tuple of (ndarray, ndarray)
        Row numbers to learn from and to judge on, for each fold.
    seed : int
    fraction : float
        Share of the rows that was to be sealed.
    groups, time : str or None
        The column that was respected.
    units : ndarray of int or None
        Group of each row, if rows were kept together.
    """

    n_rows: int
    training: np.ndarray
    sealed: np.ndarray
    folds: tuple[tuple[np.ndarray, np.ndarray], ...]
    seed: int
    fraction: float
    groups: str | None = None
    time: str | None = None
    units: np.ndarray | None = None

    def to_dict(self) -> dict[str, Any]:
        """A description of the split; the rows themselves as counts."""
        return {
            "seed": self.seed,
            "fraction": self.fraction,
            "groups": self.groups,
            "time": self.time,
            "rows": self.n_rows,
            "training_rows": len(self.training),
            "sealed_rows": len(self.sealed),
            "folds": len(self.folds),
        }

    def record(self) -> dict[str, Any]:
        """What a model file keeps: as :meth:`to_dict`, with one bit for each row."""
        mask = np.zeros(self.n_rows, dtype=bool)
        mask[self.sealed] = True
        return self.to_dict() | {"sealed": np.packbits(mask)}


def sealed_rows(record: Mapping[str, Any]) -> np.ndarray:
    """Row numbers that a model file's split sealed.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.selection.splits import make_split, sealed_rows
    >>> split = make_split(np.arange(50.0), labels=False)
    >>> bool((sealed_rows(split.record()) == split.sealed).all())
    True
    """
    bits = np.unpackbits(np.asarray(record["sealed"], dtype=np.uint8))
    return np.flatnonzero(bits[: int(record["rows"])])


def make_split(
    y: ArrayLike,
    *,
    labels: bool,
    fraction: float = 0.2,
    folds: int = 5,
    random_state: int = 0,
    units: Any = None,
    time: Any = None,
    fewest: int = FEWEST,
) -> Split:
    """Seal a fraction of the rows and divide the others into folds.

    Parameters
    ----------
    y : ndarray of shape (n,)
        The target; used only to deal labels evenly.
    labels : bool
        Whether it holds labels.
    fraction : float, default=0.2
        Share of the rows to seal; 0 seals none.
    folds : int, default=5
        As many as the rows allow, at most this.
    random_state : int, default=0
        Seed or generator of all random numbers. It decides which rows are sealed.
        The default is a fixed seed, so that every call seals the same rows.
    units : ndarray of int, optional
        Rows of equal number stay together: groups, or copies of a row.
    time : ndarray, optional
        Numbers to order the rows by; equal times stay together.
    fewest : int, default=20
        Below this many rows none is sealed.

    Returns
    -------
    Split

    Examples
    --------
    >>> import numpy as np
    >>> from certus.selection.splits import make_split
    >>> split = make_split(np.repeat([0, 1], [80, 20]), labels=True)
    >>> len(split.sealed), len(split.folds), [len(test) for _, test in split.folds]
    (20, 5, [16, 16, 16, 16, 16])
    """
    y = np.asarray(y)
    n = len(y)
    share = fraction if n >= fewest else 0.0
    folds = min(folds, n // 2)
    if time is not None:
        training, sealed, pairs = _by_time(np.asarray(time), share, folds)
    else:
        keys = _keys(n, random_state)
        strata = np.unique(y, return_inverse=True)[1] if labels else np.zeros(n, int)
        training, sealed, pairs = _by_unit(keys, strata, units, share, folds)
    return Split(n, training, sealed, pairs, random_state, fraction, units=units)


def _keys(n: int, seed: int) -> np.ndarray:
    """Pseudo-random numbers of the rows: SplitMix64, equal on every machine."""
    z = np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed) * np.uint64(2**32)
    z = z * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


SplitRows = tuple[np.ndarray, np.ndarray, tuple[tuple[np.ndarray, np.ndarray], ...]]


def _by_unit(
    keys: np.ndarray, strata: np.ndarray, units: Any, share: float, folds: int
) -> SplitRows:
    """Deal whole units: the first of each stratum are sealed, the others in turn."""
    n = len(keys)
    unit = np.arange(n) if units is None else np.unique(units, return_inverse=True)[1]
    first = np.unique(unit, return_index=True)[1]  # a unit goes where its first row is
    sizes = np.bincount(unit)
    order = np.lexsort((keys[first], strata[first]))
    place = np.full(len(first), -1)  # −1: sealed
    load = np.zeros(folds, dtype=np.int64)
    at = 0
    for members in np.split(order, np.flatnonzero(np.diff(strata[first][order])) + 1):
        kept = members[round(share * len(members)) :]
        if sizes.max() > 1:
            for m in kept:  # the emptiest fold next, as units differ in size
                fold = int(load.argmin())
                place[m], load[fold] = fold, load[fold] + sizes[m]
        else:
            place[kept] = (at + np.arange(len(kept))) % folds
            at += len(kept)
    where = place[unit]
    training = np.flatnonzero(where >= 0)
    pairs = []
    for fold in range(folds):
        test = np.flatnonzero(where == fold)
        train = np.flatnonzero((where >= 0) & (where != fold))
        if len(test) and len(train) > 1:
            pairs.append((train, test))
    return training, np.flatnonzero(where < 0), tuple(pairs)


def _by_time(time: np.ndarray, share: float, folds: int) -> SplitRows:
    """Seal the latest rows; each fold is judged on the block after what it learnt."""
    ordered = np.sort(time)
    n = len(time)
    cut = ordered[min(n - 1, n - round(share * n))] if share else np.inf
    before, sealed = time < cut, np.flatnonzero(time >= cut)
    past = ordered[ordered < cut]
    marks = [len(past) * k // (folds + 1) for k in range(1, folds + 1)]
    starts = np.unique(past[marks] if len(past) else past)
    pairs = []
    for at, start in enumerate(starts):
        end = starts[at + 1] if at + 1 < len(starts) else cut
        train = np.flatnonzero(time < start)
        test = np.flatnonzero((time >= start) & (time < end))
        if len(test) and len(train) > 1:
            pairs.append((train, test))
    return np.flatnonzero(before), sealed, tuple(pairs)
