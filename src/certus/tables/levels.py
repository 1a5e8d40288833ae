"""Categories with many levels: what the target was, on average, at each level.

The average of a level is shrunk towards that of all rows, by as much as the spread of
the averages is due to chance (m = s²/τ², within and between levels, by analysis of
variance). No row may see its own target: rows are dealt into folds by a hash of their
cells, and a row gets the averages of the other folds. The hash needs no target, so new
rows are treated exactly as the training rows are, and copies of a row share a fold.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import polars as pl

__all__ = ["FOLDS", "fold_of_rows", "level_statistics", "target_columns", "text_keys"]

#: With 20, averages come from more rows, but pure noise costs a third more on new rows.
FOLDS = 10
#: Labels that get a column of averages each, the most frequent ones.
_MOST_LABELS = 10


def text_keys(text: pl.Series) -> Any:
    """A number for each text, the same on every machine."""
    known = text.unique().drop_nulls()
    numbers = [zlib.crc32(word.encode("utf-8", "replace")) for word in known]
    found = text.replace_strict(
        known, pl.Series(numbers, dtype=pl.UInt64), default=None, return_dtype=pl.UInt64
    )
    return found.fill_null(2**40).to_numpy()


def fold_of_rows(keys: list[Any], folds: int = FOLDS) -> tuple[Any, float]:
    """The fold of each row by the hash of its cells; and the share of distinct rows."""
    mixed = np.zeros(len(keys[0]), dtype=np.uint64)
    for values in keys:
        mixed = _scrambled(mixed ^ _bits(values))
    return (mixed >> np.uint64(33)) % np.uint64(folds), len(np.unique(mixed)) / len(
        mixed
    )


def _bits(values: Any) -> Any:
    if values.dtype == np.uint64:
        return values
    plain = np.where(np.isnan(values), np.nan, values + 0.0)  # −0 is 0; one NaN
    return plain.astype(np.float64).view(np.uint64)


def _scrambled(x: Any) -> Any:
    """The finaliser of splitmix64: every bit depends on every bit."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def target_columns(y: Any, labels: bool) -> tuple[Any, list[str]]:
    """What is averaged: amounts, or whether a row has each label; and their names."""
    if not labels:
        return np.asarray(y, dtype=np.float64)[:, None], ["average target"]
    classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    if len(classes) == 2:
        chosen = np.array([1])
    else:
        chosen = np.sort(np.argsort(-counts, kind="stable")[:_MOST_LABELS])
    T = (codes.ravel()[:, None] == chosen).astype(np.float64)
    return T, [f"share of {classes[i]}" for i in chosen]


def level_statistics(
    codes: Any, n_levels: int, folds: Any, T: Any, weight: Any | None
) -> tuple[Any, Any]:
    """Averages for each fold, level and column of T, from the rows of the other folds.

    ``codes`` number the levels from 0; the last entry along the levels is for unknown
    ones. Also returns, for each column, the variance between levels beyond chance.
    """
    n, k = T.shape
    w = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
    found = np.empty((FOLDS, n_levels + 1, k))
    between = np.zeros(k)
    for fold in range(FOLDS):
        rest = folds != fold
        codes_, w_ = codes[rest], w[rest]
        counts = np.bincount(codes_, w_, n_levels)
        for j in range(k):
            t = T[rest, j]
            overall = np.average(t, weights=w_) if len(t) else 0.0
            spread, ratio = _shrinkage(codes_, counts, t - overall, w_)
            between[j] += spread / FOLDS
            above = np.bincount(codes_, w_ * (t - overall), n_levels)
            # With an infinite ratio every level is the average.
            found[fold, :-1, j] = overall + above / (counts + ratio)
            found[fold, -1, j] = overall
    return found, between


def _shrinkage(codes: Any, counts: Any, t: Any, w: Any) -> tuple[float, float]:
    """Variance between levels beyond chance, and s²/τ²: rows that the prior counts.

    ``t`` has mean 0; the ratio is infinite where the levels differ by chance alone.
    """
    seen = counts > 0
    total, used = float(counts.sum()), int(seen.sum())
    spare = total - used
    if used < 2 or spare <= 0:
        return 0.0, np.inf
    means = np.bincount(codes, w * t, len(counts))[seen] / counts[seen]
    explained = float(counts[seen] @ means**2)
    within = max(float(w @ t**2) - explained, 0.0) / spare
    share = total - float((counts**2).sum()) / total
    between = (explained - (used - 1) * within) / share
    if between <= 0:
        return 0.0, np.inf
    return between, max(within / between, 1e-3)
