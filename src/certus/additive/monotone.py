"""Newton's method with monotone shapes: cells that would violate the constraint merge.

Neighbouring cells whose difference is held at 0 form one cell. Each round takes a
Newton step on the merged cells, frees the differences whose multiplier has the wrong
sign and holds those with the wrong sign, until no such differences are left.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from certus.additive.layout import Additive, add_penalty, penalty_value
from certus.additive.newton import Run, gradient
from certus.certificate import Status
from certus.objectives import Squared
from certus.typing import Array

#: Rounds after which differences are freed one at a time, so that none repeats.
CAREFUL = 15


def edge_signs(p: Additive, columns: list[tuple[int, ...]], signs: Array) -> Array:
    """The sign asked of each difference: that of the column, if it stands alone."""
    each = [signs[own[0]] if len(own) == 1 else 0 for own in columns]
    return np.asarray(each, dtype=float)[p.layout.edge_term]


def solve_monotone(
    p: Additive, run: Run, signs: Array, base: float, tol: float, max_iter: int
) -> None:
    """Minimise at the levels of ``run`` under the signs of the differences."""
    left, right = p.layout.edges.T
    fixed = p.gram(p.share) if isinstance(p.loss, Squared) else None
    asked = signs != 0
    held = asked & (signs * (run.w[right, 0] - run.w[left, 0]) <= 0)
    for at in range(max_iter):
        starts = _groups(p.layout.size, right[held])
        run.w = _merged(p, run.w, starts)
        promised = _step(p, run, starts, fixed)
        run.n_iter += 1
        d = signs * (run.w[right, 0] - run.w[left, 0])
        _, u, _ = p.slopes(p.scores(run.w, run.b))
        push = _multipliers(gradient(p, run.levels, run.w[:, 0], u[:, 0]), held, p)
        wrong, turned = held & (-signs * push < 0), asked & ~held & (d < 0)
        if at >= CAREFUL and wrong.sum() > 1:
            worst = np.argmin(np.where(wrong, -signs * push, np.inf))
            wrong = np.arange(len(wrong)) == worst
        small = promised <= 1e-5 * tol * base
        # A multiplier of rounding size changes nothing that the certificate sees.
        slight = np.abs(push) <= 1e-12 * float(np.abs(u).sum())
        wrong &= ~slight
        if run.tell(p.value(p.scores(run.w, run.b)), promised / base if base else 0.0):
            break
        if not wrong.any() and not turned.any() and small:
            run.status = Status.SOLVED
            break
        held = (held & ~wrong) | turned
    else:
        run.status = Status.MAX_ITER
    run.w = _in_order(run.w, left, right, signs)


def _groups(size: int, joined: Array) -> Array:
    """Where each merged cell begins; ``joined`` are merged with the one before."""
    first = np.ones(size, dtype=bool)
    first[joined] = False
    return np.flatnonzero(first)


def _merged(p: Additive, w: Array, starts: Array) -> Array:
    sizes = np.diff(np.append(starts, p.layout.size))
    means = np.add.reduceat(w[:, 0], starts) / sizes
    return np.repeat(means, sizes)[:, None]


def _step(p: Additive, run: Run, starts: Array, fixed: Array | None) -> float:
    """A Newton step on merged cells, halved until it helps; what it promised."""
    layout, levels = p.layout, run.levels
    value, u, state = p.slopes(p.scores(run.w, run.b))
    h = p.curvature(state, 0)
    A = p.gram(h) if fixed is None else fixed.copy()
    m, total = np.diagonal(A).copy(), float(h.sum())
    cells = levels.shrinkage[layout.cell_term]
    add_penalty(layout, cells, levels.smoothing[layout.edge_term], A)
    A = np.triu(A) + np.triu(A, 1).T - np.outer(m / total, m)
    A = np.add.reduceat(np.add.reduceat(A, starts, axis=0), starts, axis=1)
    g, g0 = gradient(p, levels, run.w[:, 0], u[:, 0]), float(u.sum())
    rest = np.add.reduceat(g - m * (g0 / total), starts)
    move = -linalg.cho_solve(linalg.cho_factor(A), rest)
    sizes = np.diff(np.append(starts, layout.size))
    step = np.repeat(move, sizes)[:, None]
    shift = -(g0 + float(m @ step[:, 0])) / total
    promised = -(float(g @ step[:, 0]) + g0 * shift) / 2
    before = value + penalty_value(layout, levels, run.w)
    for _ in range(40):
        w, b = run.w + step, run.b + shift
        after = p.value(p.scores(w, b)) + penalty_value(layout, levels, w)
        if after <= before + 1e-14 * abs(before):
            run.w, run.b = w, b
            break
        step, shift = step / 2, shift / 2
    return max(promised, 0.0)


def _multipliers(g: Array, held: Array, p: Additive) -> Array:
    """The flow along held differences that balances the gradient of each cell."""
    joined = np.zeros(p.layout.size, dtype=bool)
    joined[p.layout.edges[held, 1]] = True
    before = np.concatenate([[0.0], np.cumsum(g)])
    begins = np.maximum.accumulate(np.where(joined, 0, np.arange(len(joined))))
    flow = before[p.layout.edges[:, 1]] - before[begins[p.layout.edges[:, 0]]]
    return np.where(held, flow, 0.0)


def _in_order(w: Array, left: Array, right: Array, signs: Array) -> Array:
    """Values that a stopped run left in the wrong order take that of the one before."""
    w = w.copy()
    for a, b, sign in zip(left, right, signs):
        if sign and sign * (w[b, 0] - w[a, 0]) < 0:
            w[b, 0] = w[a, 0]
    return w
