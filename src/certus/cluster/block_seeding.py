"""k-means++ over blocks of rows: the draws of ``seeding``, without all rows in memory.

    P(next centre = xᵢ) ∝ sᵢ·D(xᵢ)²,   D the distance to the nearest centre so far

Draws invert the distribution function over rows sorted by a fixed projection. A sample
of the projections gives the ends of a few thousand bins; one pass adds up the mass of
each bin for every candidate, and a second one brings the rows of the bins that the
draws fall into. Two passes for each centre therefore find the row that is drawn in
memory, but for what rounding may do at the very edge between two rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus._solvers.block_design import ROWS, require_sound
from certus.blocks import RowBlock, total
from certus.cluster import kmeans_kernels as kernels
from certus.cluster.seeding import EQUAL, units_of
from certus.typing import Array

#: Bins of projections, and how many projections are looked at to place them.
BINS, SAMPLE = 4096, 1 << 16


class RowSurvey(NamedTuple):
    """Of all rows: how many, Σs, means, Σ s‖x − m‖², and the largest entries."""

    rows: int
    weight: float
    mean: Array
    square: float
    largest: Array  # of each column, in size, over rows of positive weight
    top: float  # over all rows
    heaviest: float


def rows_of_block(block: RowBlock) -> tuple[Array, Array]:
    """X in C order and weights of one block."""
    X = np.ascontiguousarray(block.X)
    s = np.ones(len(X)) if block.s is None else np.asarray(block.s, dtype=np.float64)
    return X, s


def _survey(block: RowBlock) -> RowSurvey:
    X, s = rows_of_block(block)
    require_sound(X, s)
    weight, sizes = float(s.sum()), np.abs(X)
    used = sizes if s.all() else sizes[s > 0]
    largest = used.max(axis=0, initial=0.0).astype(np.float64)
    mean = (s @ X) / weight if weight > 0 else np.zeros(X.shape[1])
    square, off = 0.0, np.zeros(X.shape[1])
    for i in range(0, len(X), ROWS):
        part = slice(i, i + ROWS)
        A = X[part] - mean
        square += float(s[part] @ np.einsum("ij,ij->i", A, A))
        off += s[part] @ A
    if weight > 0:  # what rounding left of the mean
        off /= weight
        square -= weight * float(off @ off)
    top = float(sizes.max(initial=0.0))
    more = (largest, top, float(s.max(initial=0.0)))
    return RowSurvey(len(X), weight, mean + off, max(square, 0.0), *more)


def _join(a: RowSurvey, b: RowSurvey) -> RowSurvey:
    weight = a.weight + b.weight
    share = b.weight / weight if weight > 0 else 0.0
    gap = b.mean - a.mean
    square = a.square + b.square + float(gap @ gap) * a.weight * share
    more = (np.maximum(a.largest, b.largest), max(a.top, b.top))
    mean, n = a.mean + share * gap, a.rows + b.rows
    return RowSurvey(n, weight, mean, square, *more, max(a.heaviest, b.heaviest))


def survey(blocks: Any) -> RowSurvey:
    """Means, scatter and sizes of all rows; NaN and inf are refused. One pass."""
    found: RowSurvey = total(blocks, _survey, merge=_join)
    return found


class Line(NamedTuple):
    """The order of the rows: their projection, and where bins of it begin."""

    u: Array
    edges: Array
    mean: Array  # the origin of products


class DrawnRows(NamedTuple):
    """Rows with their projections."""

    rows: Array
    marks: Array


class Mass(NamedTuple):
    """The rows of some bins, equal ones as one: place, mass and content."""

    bins: Array
    marks: Array
    mass: Array
    rows: Array


def _marks(X: Array, u: Array) -> Array:
    found = np.empty(len(X))
    kernels.project(X, u, found)
    return found


def _sample(block: RowBlock, u: Array, stride: int) -> Array:
    X, s = rows_of_block(block)
    return _marks(np.ascontiguousarray(X[s > 0][::stride]), u)


def _both(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray):
        return np.concatenate([a, b])
    return type(a)(*(np.concatenate(pair) for pair in zip(a, b, strict=True)))


def _squares(X: Array, line: Line, centers: Array) -> Array:
    """‖x − c‖², by products; by differences where those have lost their digits."""
    A, C = X - line.mean, centers - line.mean
    both = np.einsum("ij,ij->i", A, A)[:, None] + np.einsum("ij,ij->i", C, C)
    D = both - 2 * (A @ C.T)
    guard = 512 * (X.shape[1] + 4) * 2.0**-52
    both *= guard
    for i, j in zip(*np.nonzero(both > D), strict=True):
        gap = X[i].astype(np.float64) - centers[j]
        D[i, j] = gap @ gap
    return D


def _nearest(X: Array, line: Line, chosen: DrawnRows) -> Array:
    """‖x − c‖² to the nearest of the chosen rows."""
    return np.asarray(_squares(X, line, chosen.rows).min(axis=1))


def _masses(
    block: RowBlock, line: Line, chosen: DrawnRows, tried: DrawnRows, left_out: Array
) -> Array:
    """The mass in each bin, for every row tried; by weight alone if none is."""
    X, s = rows_of_block(block)
    count = len(line.edges) + 1
    out = np.zeros((max(1, len(tried.rows)), count))
    for i in range(0, len(X), ROWS):
        some, weight = X[i : i + ROWS], s[i : i + ROWS]
        marks = _marks(some, line.u)
        bins = np.searchsorted(line.edges, marks, side="right")
        if not len(tried.rows):
            weight = np.where(np.isin(marks, left_out), 0.0, weight)
            out[0] += np.bincount(bins, weights=weight, minlength=count)
            continue
        q = len(chosen.rows)
        both = _squares(some, line, np.vstack([chosen.rows, tried.rows]))
        near = both[:, :q].min(axis=1, initial=np.inf)
        D = np.minimum(both[:, q:], near[:, None])
        for j in range(D.shape[1]):
            out[j] += np.bincount(bins, weights=weight * D[:, j], minlength=count)
    return out


def _gather(
    block: RowBlock, line: Line, chosen: DrawnRows, wanted: Array, left_out: Array
) -> Mass:
    """The rows in the wanted bins, with their mass."""
    X, s = rows_of_block(block)
    marks = _marks(X, line.u)
    bins = np.searchsorted(line.edges, marks, side="right")
    used = np.isin(bins, wanted) & (s > 0) & ~np.isin(marks, left_out)
    some, weight = X[used], s[used]
    marks, first, back = np.unique(marks[used], return_index=True, return_inverse=True)
    mass = np.bincount(back, weights=weight, minlength=len(marks))
    rows = np.asarray(some[first], dtype=np.float64)
    if len(chosen.rows) and len(rows):
        mass = mass * _nearest(rows, line, chosen)
    return Mass(bins[used][first], marks, mass, rows)


class BlockPool:
    """Draws rows of a table that comes by address.

    Parameters
    ----------
    blocks : Blocks
        The rows.
    seen : RowSurvey
        Their survey.
    """

    def __init__(self, blocks: Any, seen: RowSurvey) -> None:
        self.blocks, d = blocks, len(seen.mean)
        _, u = units_of(seen.largest, blocks.dtype)
        stride = max(1, seen.rows // SAMPLE)
        marks = np.sort(total(blocks, _sample, u, stride, merge=_both))
        places = np.linspace(0, len(marks) - 1, min(BINS, len(marks))).astype(int)
        self.line = Line(u, np.unique(marks[places]), seen.mean)
        self.none = DrawnRows(np.empty((0, d)), np.empty(0))

    def draw_far(
        self,
        k: int,
        generator: np.random.Generator,
        hurry: Callable[[], bool] | None = None,
    ) -> Array:
        """K rows drawn by k-means++; the rest by weight once ``hurry()`` is true."""
        trials = 3 + int(math.log(k))
        chosen = self._by_weight(generator.random(1), np.empty(0))
        by_bin = self._mass(self.none, chosen)[0]
        while len(chosen.rows) < k and by_bin.sum() > 0:
            if hurry is not None and hurry():
                break
            shares = (np.arange(trials) + generator.random(trials)) / trials
            tried = self._draw(by_bin, shares, chosen, np.empty(0))
            found = self._mass(chosen, tried)
            sums = found.sum(axis=1)
            best = int(np.argmax(sums <= sums.min() * (1.0 + EQUAL)))
            by_bin = found[best]
            chosen = _both(chosen, DrawnRows(*(part[[best]] for part in tried)))
        return self._fill(chosen, k, generator)

    def draw_any(self, k: int, generator: np.random.Generator) -> Array:
        """K rows drawn by weight, no two of them equal."""
        return self._fill(self.none, k, generator)

    def _fill(self, chosen: DrawnRows, k: int, generator: np.random.Generator) -> Array:
        left_out = chosen.marks
        while len(chosen.rows) < k:
            if not self._mass(self.none, self.none, left_out).any():
                left_out = np.empty(0)  # every distinct row is a centre already
            found = self._by_weight(generator.random(1), left_out)
            chosen = _both(chosen, found)
            left_out = np.append(left_out, found.marks)
        return chosen.rows

    def _by_weight(self, shares: Array, left_out: Array) -> DrawnRows:
        by_bin = self._mass(self.none, self.none, left_out)[0]
        return self._draw(by_bin, shares, self.none, left_out)

    def _mass(
        self, chosen: DrawnRows, tried: DrawnRows, left_out: Array | None = None
    ) -> Array:
        left_out = np.empty(0) if left_out is None else left_out
        return np.asarray(
            total(self.blocks, _masses, self.line, chosen, tried, left_out)
        )

    def _draw(
        self, by_bin: Array, shares: Array, chosen: DrawnRows, left_out: Array
    ) -> DrawnRows:
        """The rows where the distribution function of the mass reaches the shares."""
        ends = np.cumsum(by_bin)
        last = int(np.flatnonzero(by_bin > 0)[-1])
        goals = shares * ends[-1]
        bins = np.minimum(np.searchsorted(ends, goals, side="right"), last)
        found: Mass = total(
            *(self.blocks, _gather, self.line, chosen, np.unique(bins), left_out),
            merge=_both,
        )
        picked = []
        for goal, place in zip(goals, bins, strict=True):
            here = np.flatnonzero(found.bins == place)
            here = here[np.argsort(found.marks[here], kind="stable")]
            inside = np.cumsum(found.mass[here])
            left = goal - (ends[place - 1] if place else 0.0)
            left *= inside[-1] / by_bin[place]  # the bin's total, in another order
            r = int(np.searchsorted(inside, left, side="right"))
            most = int(np.searchsorted(inside, inside[-1], side="left"))
            picked.append(here[min(r, most)])
        return DrawnRows(found.rows[picked], found.marks[picked])
