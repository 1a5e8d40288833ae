"""Weights that store patterns, by three rules, and how many flips they repair.

    hebb        W = Σ (x xᵀ − I), and b = Σ x with an intercept
    projection  W = the projection onto the span of the patterns, without its diagonal
    margin      for each unit the w of least norm with x_ti·(w·x_t + b) ≥ 1 for all t

Any k flips are repaired in one synchronous step if for each unit the k largest 2|W_ij|
sum to less than its margin x_i·h_i.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog

from certus.callbacks import Monitor
from certus.certificate import Status
from certus.memory import hopfield_kernels as kernels
from certus.typing import Array

#: Singular values below this share of the largest do not count.
RANK = 1e-10
#: Share of the widest margin at which a unit rests; sweeps between two reports.
ENOUGH, SWEEPS = 1e-3, 10
#: Sweeps after which a unit without a margin is tested, and again at each doubling.
TESTED = 100
#: Share of Σ|W| within which a field counts as zero, and one that radii keep from it.
TIE, SAFE = 1e-12, 1e-9


class Stored(NamedTuple):
    """Weights, intercepts, and what shows that no weights store the patterns."""

    weights: Array
    intercept: Array
    n_iter: int = 1
    status: Status = Status.SOLVED
    unit: int | None = None
    combination: Array | None = None
    duals: Array | None = None


def hebb(x: Array, intercept: bool) -> Stored:
    """Sums of products; whole numbers, so that nothing is rounded."""
    W = x.T @ x
    np.fill_diagonal(W, 0.0)
    return Stored(W, x.sum(axis=0) if intercept else np.zeros(x.shape[1]))


def projection(x: Array, intercept: bool) -> Stored:
    """The projection onto the patterns, with a constant unit as intercept."""
    n = x.shape[1]
    wide = np.column_stack([x, np.ones(len(x))]) if intercept else x
    _, sizes, V = np.linalg.svd(wide, full_matrices=False)
    V = V[sizes > RANK * sizes[0]]
    P = V.T @ V
    W = (P[:n, :n] + P[:n, :n].T) / 2
    np.fill_diagonal(W, 0.0)
    return Stored(W, P[:n, n].copy() if intercept else np.zeros(n))


def margin(
    x: Array, intercept: bool, model: Any, monitor: Monitor, start: Array | None = None
) -> Stored:
    """The widest margin of each unit, by dual coordinates, from those of ``start``."""
    s, n = x.shape
    K = x @ x.T + (1.0 if intercept else 0.0)
    duals = np.zeros((n, s)) if start is None else start.copy()
    sums = duals.sum(axis=1)
    forces = (duals * x.T) @ K * x.T - sums[:, None]
    norms = np.einsum("ij,ij->i", duals, forces)
    status, done, test = Status.MAX_ITER, 0, TESTED
    unit, weights = None, None
    try:
        while done < model.max_iter:
            todo = np.flatnonzero(~_rests(forces, norms, sums))
            sweeps = min(SWEEPS, model.max_iter - done)
            work = [np.ascontiguousarray(p[todo]) for p in (duals, forces, norms, sums)]
            signs = np.ascontiguousarray(x[:, todo])
            kernels.margin_sweeps(signs, K, *work, ENOUGH, sweeps)
            duals[todo], forces[todo], norms[todo], sums[todo] = work
            done += sweeps
            rest = _rests(forces, norms, sums)
            share = float(1 - rest.mean())
            asked = monitor.step(float(norms.sum()) / 2, share)
            if rest.all():
                status = Status.SOLVED
                break
            if asked is not None:
                status = asked
                break
            if done >= test or done >= model.max_iter:
                test = 2 * done
                unit, weights = _impossible(x, intercept, forces, norms, sums)
                if unit is not None:
                    break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    signed = duals * x.T  # a_t·x_ti
    W = signed @ x
    np.fill_diagonal(W, 0.0)
    b = signed.sum(axis=1) if intercept else np.zeros(n)
    size = np.sqrt(np.square(W).sum(axis=1) + np.square(b))
    scale = np.where(size > 0, size, 1.0)
    kept = W / scale[:, None], b / scale
    return Stored(*kept, max(done, 1), status, unit, weights, duals)


def _rests(forces: Array, norms: Array, sums: Array) -> Array:
    """Units within reach of the widest margin."""
    least = forces.min(axis=1)
    return np.asarray((norms > 0) & (least * sums >= (1 - ENOUGH) * norms))


def _impossible(
    x: Array, intercept: bool, forces: Array, norms: Array, sums: Array
) -> tuple[int | None, Array | None]:
    """A unit whose patterns no weights store, and the combination that shows it.

    Of the units without a margin, the one whose margin is bounded most tightly.
    """
    stuck = np.flatnonzero(forces.min(axis=1) <= 0)
    if not len(stuck):
        return None, None
    bound = np.sqrt(np.maximum(norms[stuck], 0.0)) / np.maximum(sums[stuck], 1e-300)
    i = int(stuck[np.argmin(bound)])
    weights = combination(signed_rows(x, i, intercept))
    return (None, None) if weights is None else (i, weights)


def signed_rows(x: Array, unit: int, intercept: bool) -> Array:
    """The rows z_t = x_ti·(x_t without unit i, 1): w must have w·z_t > 0 for all t."""
    others = np.delete(x, unit, axis=1)
    if intercept:
        others = np.column_stack([others, np.ones(len(x))])
    return others * x[:, [unit]]


def combination(Z: Array) -> Array | None:
    """Weights a ≥ 0, not all zero, with Σ a_t z_t = 0; None if a w separates.

    As many of them as possible are positive: max Σ min(a_t, 1) under Zᵀa = 0. Then the
    combination keeps away from the border, and rounding can be bounded.
    """
    s, n = Z.shape
    if n == 0:
        return np.ones(s)
    A = np.hstack([Z.T, Z.T])
    bounds = [(0.0, 1.0)] * s + [(0.0, None)] * s
    cost = np.concatenate([-np.ones(s), np.zeros(s)])
    found = linprog(cost, A_eq=A, b_eq=np.zeros(n), bounds=bounds)
    if found.x is None:
        return None
    a = found.x[:s] + found.x[s:]
    few = np.flatnonzero(found.x[:s] > 0.5)
    if not len(few):
        return None
    part = a[few]
    for _ in range(3):  # to rounding: the programme stops at its own tolerance
        part = part - np.linalg.lstsq(Z[few].T, Z[few].T @ part, rcond=None)[0]
    if part.min() <= 0:
        return None
    out = np.zeros(s)
    out[few] = part / part.max()
    return out


def exact_dtype(weights: Array, intercept: Array) -> Any:
    """float32 where it holds every field of these weights exactly, else float64."""
    top = float((np.abs(weights).sum(axis=1) + np.abs(intercept)).max(initial=0.0))
    whole = np.array_equal(np.rint(weights), weights)
    whole = whole and np.array_equal(np.rint(intercept), intercept)
    return np.float32 if whole and top < 2.0**24 else np.float64


def tie_widths(weights: Array, intercept: Array) -> Array:
    """Fields within these of zero count as zero."""
    return np.asarray(TIE * (np.abs(weights).sum(axis=1) + np.abs(intercept)))


def radii(x: Array, weights: Array, intercept: Array) -> Array:
    """Flips of each pattern that one step repairs; −1 if a unit has no margin."""
    sizes = np.abs(weights).sum(axis=1) + np.abs(intercept)
    margins = x * (x @ weights.T + intercept) - SAFE * sizes
    largest = -np.sort(-2 * np.abs(weights), axis=1)
    reach = np.cumsum(largest, axis=1)
    out = np.full(len(x), x.shape[1], dtype=np.int64)
    for i, kept in enumerate(margins.T):
        count = np.searchsorted(reach[i], kept, side="left")
        np.minimum(out, np.where(kept > 0, count, -1), out=out)
    return out
