"""Minimise ½Σ_Ω s(x − b_u − c_i − w_u·z_i)² + ½Σ_u λ_u‖w_u‖² + ½Σ_i λ_i‖z_i‖² + biases.

Alternating least squares solves all users exactly, then all items; rows do not depend
on each other, so threads share them. Stochastic descent takes one entry at a time:
users and items are divided into B groups each, and the B blocks of a stratum share
neither a user nor an item, so threads may take them in any order and the result is the
same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus._core.threads import run_blocks
from certus.base import thread_budget
from certus.certificate import Status
from certus.recommend.rating_kernels import (
    row_blocks,
    solve_rows,
    squared_errors,
    squared_norms,
)
from certus.recommend.rating_steps import deal_entries, visit
from certus.typing import Array

#: (entries, groups) of users and of items; it depends on the data alone, so that the
#: result does not depend on the number of threads.
GROUPS = ((20_000_000, 16), (50_000, 4), (0, 1))
#: Users that stay together when their order is shuffled.
RUN = 16
#: The run has diverged if the objective is this many times that of the start.
TOO_LARGE = 10.0

#: Called after each round with (objective, relative gain); a status ends the run.
OnRound = Callable[[float, float], Status | None]


#: How blocks of work are run: ``run_blocks``, or on threads that wait for more.
Run = Callable[[Callable[[Any, Callable[[], bool]], None], Any], None]


class RatedRows(NamedTuple):
    """One side's rows in CSR form; ``weights`` is empty if all are one."""

    indptr: Array
    indices: Array
    values: Array
    weights: Array


class RatingProblem(NamedTuple):
    """The objective as data: entries by users and by items, and each row's penalty.

    Stochastic descent needs of the items no more than :func:`column_starts`.
    """

    by_user: RatedRows
    by_item: RatedRows
    reg: tuple[Array, Array]
    reg_bias: tuple[Array, Array]
    biased: bool


class RatingFactors(NamedTuple):
    """Factors and biases; solvers change them in place."""

    W: Array
    Z: Array
    b: Array
    c: Array

    def swapped(self) -> RatingFactors:
        """The same with users and items exchanged."""
        return RatingFactors(self.Z, self.W, self.c, self.b)


def rows_of(matrix: Any, weights: Array, values: Array) -> RatedRows:
    """A CSR matrix, with other values in its places."""
    return RatedRows(matrix.indptr, matrix.indices, values, weights)


def both_sides(
    matrix: Any, weights: Array, values: Array
) -> tuple[RatedRows, RatedRows]:
    """The entries by rows and by columns."""
    places = sparse.csr_matrix(
        (np.arange(matrix.nnz), matrix.indices, matrix.indptr), matrix.shape
    ).tocsc()
    order = places.data
    other = weights[order] if len(weights) else weights
    by_item = RatedRows(places.indptr, places.indices, values[order], other)
    return rows_of(matrix, weights, values), by_item


def column_starts(matrix: Any) -> RatedRows:
    """How many entries each column has."""
    counts = np.bincount(matrix.indices, minlength=matrix.shape[1])
    empty = np.empty(0, dtype=matrix.dtype)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return RatedRows(starts, np.empty(0, dtype=matrix.indices.dtype), empty, empty)


def objective(
    problem: RatingProblem, point: RatingFactors, run: Run = run_blocks
) -> float:
    """The value of the objective, in blocks added up in a fixed order."""
    rows, (W, Z, b, c) = problem.by_user, point
    blocks = row_blocks(rows.indptr, W.shape[1])
    parts = np.zeros(len(blocks))

    def work(place: int, stop: Callable[[], bool]) -> None:
        parts[place] = squared_errors(*blocks[place], *rows, W, Z, b, c)

    run(work, range(len(blocks)))
    total = float(parts.sum())
    for k, (F, f) in enumerate(((W, b), (Z, c))):
        own = problem.reg_bias[k] if problem.biased else np.zeros(len(F))
        total += squared_norms(F, f, problem.reg[k], own)
    return 0.5 * total


# -- alternating least squares ----------------------------------------------------


def half_step(problem: RatingProblem, point: RatingFactors, side: int) -> None:
    """Minimise exactly over users (0) or items (1)."""
    here = point if side == 0 else point.swapped()
    K = here.W.shape[1]
    solve_rows(
        *(problem.by_user if side == 0 else problem.by_item),
        *(here.Z, here.c, np.zeros((K, K))),
        *(problem.reg[side], problem.reg_bias[side], problem.biased),
        *(here.W, here.b),
    )


def alternate(
    problem: RatingProblem,
    point: RatingFactors,
    max_iter: int,
    tol: float | None,
    on_round: OnRound,
) -> tuple[int, Status]:
    """Users, then items, until a round gains less than ``tol`` of the objective."""
    before, done = objective(problem, point), 0
    try:
        for done in range(1, max_iter + 1):
            half_step(problem, point, 0)
            half_step(problem, point, 1)
            value = objective(problem, point)
            gain = (before - value) / before if before > 0 else 0.0
            before = value
            stop = on_round(value, gain)
            # Half, since the verifier bounds the gain of the next step from above.
            if tol is not None and gain <= 0.5 * tol:
                return done, Status.SOLVED
            if stop is not None:
                return done, stop
    except KeyboardInterrupt:
        return done, Status.INTERRUPTED
    return done, Status.MAX_ITER if tol is not None else Status.SOLVED


# -- stochastic descent -----------------------------------------------------------


class Strata(NamedTuple):
    """Entries dealt into blocks: users by contiguous groups, items by popularity."""

    users: list[Array]
    items: Array
    ends: Array
    rows: RatedRows


def deal(problem: RatingProblem) -> Strata:
    """Order the items by group, then by how often they are rated.

    A user's popular items are visited first, and each group has its share of them.
    """
    rows, counts = problem.by_user, np.diff(problem.by_item.indptr)
    n, m = len(rows.indptr) - 1, len(counts)
    B = next(groups for least, groups in GROUPS if len(rows.values) >= least)
    B = B if min(n, m) >= B else 1
    popular = np.argsort(-counts, kind="stable")
    items = np.concatenate([popular[q::B] for q in range(B)])
    label = np.empty(m, dtype=np.int32)
    label[items] = np.arange(m)
    edges = np.cumsum([0, *(len(popular[q::B]) for q in range(B))])
    order = np.empty(len(rows.values), dtype=np.intp)
    labels = np.empty(len(rows.values), dtype=np.int32)
    ends = np.empty((B + 1, n), dtype=rows.indptr.dtype)
    deal_entries(rows.indptr, rows.indices, label, edges, order, labels, ends)
    weights = rows.weights[order] if len(rows.weights) else rows.weights
    dealt = RatedRows(rows.indptr, labels, rows.values[order], weights)
    edges = np.searchsorted(rows.indptr, np.linspace(0, len(rows.values), B + 1))
    edges[0], edges[-1] = 0, n
    return Strata(
        [np.arange(edges[p], edges[p + 1]) for p in range(B)], items, ends, dealt
    )


def descend(
    problem: RatingProblem,
    point: RatingFactors,
    max_iter: int,
    rate: float,
    random: np.random.Generator,
    on_round: OnRound,
) -> tuple[int, Status]:
    """Epochs of stochastic descent; users come in a new order in each.

    If the objective diverges, the best point so far is kept.
    """
    strata = deal(problem)
    first = before = best = objective(problem, point)
    kept = RatingFactors(*(part.copy() for part in point))
    moving = RatingFactors(
        point.W, point.Z[strata.items], point.b, point.c[strata.items]
    )
    keeps = _keeps(problem, strata.items, rate, point.W.dtype)
    done = 0
    try:
        with _waiting_threads(len(strata.users)) as run:
            for done in range(1, max_iter + 1):
                orders = [_shuffled(users, random) for users in strata.users]
                try:
                    _epoch(strata, orders, moving, keeps, problem.biased, rate, run)
                finally:
                    point.Z[strata.items], point.c[strata.items] = moving.Z, moving.c
                value = objective(problem, point, run)
                if not value <= TOO_LARGE * first:
                    _copy(kept, point)
                    return done, Status.DIVERGED
                if value < best:
                    best = value
                    _copy(point, kept)
                gain = (before - value) / before if before > 0 else 0.0
                before = value
                stop = on_round(value, gain)
                if stop is not None:
                    return done, stop
    except KeyboardInterrupt:
        return done, Status.INTERRUPTED
    return done, Status.SOLVED


@contextmanager
def _waiting_threads(blocks: int) -> Iterator[Run]:
    """Threads for all epochs: starting them again for each stratum costs as much."""
    workers = min(thread_budget(), blocks)
    if workers == 1:
        yield run_blocks
        return
    with ThreadPoolExecutor(workers) as pool:

        def run(work: Callable[[Any, Callable[[], bool]], None], parts: Any) -> None:
            for _ in pool.map(lambda part: work(part, lambda: False), parts):
                pass

        yield run


def _shuffled(users: Array, random: np.random.Generator) -> Array:
    """Runs of neighbouring users in a random order, so that memory is read in runs."""
    if not len(users):
        return users
    starts = random.permutation(np.arange(users[0], users[-1] + 1, RUN))
    order = (starts[:, None] + np.arange(RUN)).ravel()
    return np.asarray(order[order <= users[-1]])


def _copy(source: RatingFactors, target: RatingFactors) -> None:
    for old, new in zip(target, source):
        old[:] = new


def _keeps(
    problem: RatingProblem, items: Array, rate: float, dtype: Any
) -> list[Array]:
    """1 − rate·λ/count of each row: its penalty is spread over its visits."""
    users = np.maximum(1, np.diff(problem.by_user.indptr))
    rated = np.maximum(1, np.diff(problem.by_item.indptr))
    sides = [
        *zip(problem.reg, (users, rated)),
        *zip(problem.reg_bias, (users, rated)),
    ]
    w, z, b, c = ((1.0 - rate * reg / n).astype(dtype) for reg, n in sides)
    return [w, z[items], b, c[items]]


def _epoch(
    strata: Strata,
    orders: list[Array],
    point: RatingFactors,
    keeps: list[Array],
    biased: bool,
    rate: float,
    run: Run,
) -> None:
    """Visit every entry once, a stratum of disjoint blocks after the other."""
    B, step = len(orders), point.W.dtype.type(rate)
    for shift in range(B):

        def work(p: int, stop: Callable[[], bool], shift: int = shift) -> None:
            q = (p + shift) % B
            visit(
                *(orders[p], strata.ends[q], strata.ends[q + 1]),
                *(*strata.rows[1:], *point, *keeps, biased, step),
            )

        run(work, range(B))
