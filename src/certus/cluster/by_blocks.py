"""k-means over blocks of rows: a pass for each step of Lloyd's algorithm.

Labels of a block are those of ``lloyd``, on the block alone. Its sums are added up;
labels are kept as a digest, which tells whether any of them changed, and come back with
a last pass. A cluster without rows takes the row farthest from its own centre, which is
a pass of its own.
"""

from __future__ import annotations

import hashlib
import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from certus.base import Fitted, generator_of
from certus.blocks import RowBlock, total, tree
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.cluster import block_seeding
from certus.cluster.block_seeding import BlockPool, RowSurvey, rows_of_block
from certus.cluster.lloyd import DenseRows, Labelling, LloydRun, OnStep, sum_of
from certus.evidence import KMeansWitness
from certus.typing import Array

if TYPE_CHECKING:
    from certus.blocks import Blocks

#: Entries and weights beyond 2^±WIDEST lose their squares and sums.
WIDEST, HEAVIEST = 300, 100


class StepSums(NamedTuple):
    """Of the rows nearest to each centre: Σ s(x − origin), Σs; the labels' digest."""

    sums: Array
    weight: Array
    marks: str


class Farthest(NamedTuple):
    """The row farthest from its centre, and how far it is, squared."""

    away: float
    row: Array


def _labels(block: RowBlock, centers: Array) -> tuple[Labelling, Array]:
    X, s = rows_of_block(block)
    state = Labelling(DenseRows(X, s if s.any() else np.ones(len(X))), len(centers))
    state.move_to(centers)
    return state, s


def nearest(block: RowBlock, centers: Array) -> Array:
    """The nearest centre of each row; equally near ones go to the first."""
    return _labels(block, centers)[0].labels


def _step(block: RowBlock, centers: Array, origin: Array) -> StepSums:
    state, s = _labels(block, centers)
    marks = hashlib.blake2b(state.labels.tobytes(), digest_size=8).hexdigest()
    if not s.any():
        return StepSums(np.zeros(centers.shape), np.zeros(len(centers)), marks)
    weight = state.weight.sum(axis=0)
    move = weight[:, None] * (state.rows.mean - origin)
    return StepSums(state.sums.sum(axis=0) + move, weight, marks)


def _ending(block: RowBlock, centers: Array) -> tuple[Array, float]:
    """Labels, and Σ s‖x − c‖²."""
    state, s = _labels(block, centers)
    away = np.empty(len(s))
    state.rows.own_distances(centers, state.labels, away)
    return state.labels, sum_of(s, away)


def _farthest(block: RowBlock, centers: Array, found: Array) -> Farthest:
    state, s = _labels(block, centers)
    away, rows = np.empty(len(s)), state.rows
    rows.own_distances(centers, state.labels, away)
    away[s == 0] = 0.0
    for row in found:
        again, zero = np.empty(len(s)), np.zeros(len(s), dtype=np.int32)
        rows.own_distances(row[None], zero, again)
        np.minimum(away, again, out=away)
    i = int(np.argmax(away))
    return Farthest(float(away[i]), rows.row(i))


def _farther(a: Farthest, b: Farthest) -> Farthest:
    return b if b.away > a.away else a


def lloyd(
    blocks: Blocks,
    seen: RowSurvey,
    start: Array,
    tol: float,
    max_iter: int,
    on_step: OnStep,
) -> LloydRun:
    """Steps from ``start``, counted and ended as in ``certus.cluster.lloyd``."""
    status, n_iter, quiet, centers = Status.MAX_ITER, 0, False, start
    try:
        here = total(blocks, _step, centers, seen.mean)
        while n_iter < max_iter:
            means = _means(blocks, here, centers, seen)
            shift = float(np.square(means - centers).sum())
            if quiet and shift <= tol:
                status = Status.SOLVED
                break
            quiet, weight, before = shift <= tol, here.weight, here.marks
            here, centers = total(blocks, _step, means, seen.mean), means
            n_iter += 1
            gaps = means - seen.mean
            between = float(weight @ np.einsum("ij,ij->i", gaps, gaps))
            asked = on_step(max(0.0, seen.square - between), shift, means)
            if asked is not None:
                status = asked
                break
            if here.marks == before and not quiet:  # the next means are the same
                n_iter, status = min(n_iter + 1, max_iter), Status.SOLVED
                break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    centers = centers.astype(blocks.dtype).astype(np.float64)
    ends = [*blocks.map(_ending, centers)]
    labels = np.concatenate([own for own, _ in ends])
    inertia = float(tree([own for _, own in ends]))
    return LloydRun(centers, labels, inertia, n_iter, status, start)


def _means(blocks: Blocks, here: StepSums, centers: Array, seen: RowSurvey) -> Array:
    """The mean of each cluster; one without rows goes to a row far from its centre."""
    full = here.weight > 0
    out = centers.copy()
    out[full] = seen.mean + here.sums[full] / here.weight[full, None]
    found = np.empty((0, centers.shape[1]))
    for k in np.flatnonzero(~full):
        far = total(blocks, _farthest, centers, found, merge=_farther)
        if not far.away > 0:
            break  # fewer distinct rows than clusters
        out[k] = far.row
        found = np.vstack([found, far.row])
    return out


def fit_kmeans(model: Any, blocks: Blocks, given: Array | None, runs: int) -> Fitted:
    """Find clusters in blocks of rows; ``given`` are starting centres, if any."""
    if callable(model.init):
        raise NotImplementedError(
            "KMeans cannot be fitted to blocks with a function as init, which takes "
            "all rows. Pass its centres as an array, or init='k-means++'."
        )
    if len(blocks) < model.n_clusters:
        raise ValueError(
            f"n_samples={len(blocks)} should be >= n_clusters={model.n_clusters}."
        )
    seen = block_seeding.survey(blocks)
    _require_range(seen)
    monitor = Monitor(model, blocks, None, None, model.max_time)
    generator, begin = generator_of(model.random_state), time.perf_counter()
    variance = seen.square / seen.weight / len(seen.mean)
    pool = BlockPool(blocks, seen) if given is None else None

    def hurry() -> bool:
        limit = model.max_time
        return limit is not None and time.perf_counter() - begin > limit

    def on_step(objective: float, shift: float, centers: Array) -> Status | None:
        relative = shift / variance if variance > 0 else 0.0
        centers = centers.astype(blocks.dtype)
        return monitor.step(objective, relative, lambda: {"cluster_centers_": centers})

    best: LloydRun | None = None
    for _ in range(runs):
        k, start = int(model.n_clusters), given
        if pool is not None and model.init == "k-means++":
            start = pool.draw_far(k, generator, hurry)
        elif pool is not None:
            start = pool.draw_any(k, generator)
        assert start is not None
        limits = (model.tol * variance, int(model.max_iter), on_step)
        run = lloyd(blocks, seen, start, *limits)
        # A lower inertia by rounding alone is the same clustering.
        if best is None or run.inertia < best.inertia * (1.0 - 1e-10):
            best = run
        if run.status in (Status.INTERRUPTED, Status.TIME_LIMIT, Status.STOPPED):
            best = best._replace(status=run.status)
            break
    assert best is not None
    model._store(best, (1.0, 0), blocks.dtype)
    model.history_ = monitor.history
    monitor.close(model._attributes())
    evidence = Evidence("kmeans", witness=KMeansWitness(best.start))
    return Fitted(evidence, blocks, None, None, best.status)


def _require_range(seen: RowSurvey) -> None:
    """Raise where squares or sums of weights leave float64."""
    if not seen.weight > 0:
        raise ValueError("sample_weight must not be all zero.")
    size, heavy = math.frexp(seen.top)[1], math.frexp(seen.heaviest)[1]
    if (seen.top > 0 and abs(size) >= WIDEST) or abs(heavy) >= HEAVIEST:
        raise ValueError(
            "KMeans over blocks needs entries and weights whose squares and sums are "
            f"numbers; the largest entry is {seen.top:.1e}, the largest weight "
            f"{seen.heaviest:.1e}. Scale them."
        )
