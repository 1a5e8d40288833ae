"""Newton's method for an additive model at given levels.

The matrix of a step consists of histograms: for two terms, the weights of the rows in
each pair of cells. With one score it is factorised; with several, conjugate gradients
solve for all of them, and each score's own matrix is the preconditioner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from certus._solvers.losses import apply_curvature
from certus.additive.histogram_kernels import add_sums
from certus.additive.layout import (
    Additive,
    Factor,
    TermLevels,
    add_penalty,
    penalty_slope,
    penalty_value,
)
from certus.certificate import Status
from certus.objectives import Squared
from certus.typing import Array

#: Steps of conjugate gradients for one step of Newton's method, at most.
INNER = 60

#: Told objective, gap, cells and constants after each step; a status means stop.
OnStep = Callable[[float, float, "Run"], Status | None]


class Run:
    """The state of a fit: cells, constants, levels, and how it ended."""

    def __init__(self, w: Array, b: Array, levels: TermLevels, on_step: OnStep) -> None:
        self.w, self.b, self.levels, self.on_step = w, b, levels, on_step
        self.status: Status | None = None
        self.n_iter = 0

    def tell(self, objective: float, gap: float) -> bool:
        """Report a step; whether to stop."""
        self.status = self.on_step(objective, gap, self)
        return self.status is not None


def gradient(p: Additive, levels: TermLevels, w: Array, u: Array) -> Array:
    """The gradient of one score's cells, from weighted slopes."""
    out = penalty_slope(p.layout, levels, w[:, None])[:, 0].copy()
    add_sums(p.codes, np.ascontiguousarray(u), out)
    return out


def factor_of(
    p: Additive,
    levels: TermLevels,
    h: Array,
    gram: Array | None = None,
    edges: Array | None = None,
) -> Factor:
    """The factor of a step's matrix, for curvatures h of the rows.

    ``edges`` are the levels of the differences, if they are not those of the terms.
    """
    A = p.gram(h) if gram is None else gram.copy()
    m = np.diagonal(A).copy()
    cells = levels.shrinkage[p.layout.cell_term]
    edges = levels.smoothing[p.layout.edge_term] if edges is None else edges
    add_penalty(p.layout, cells, edges, A)
    return Factor(A, float(h.sum()), m)


def lowered(p: Additive, run: Run, step_w: Array, step_b: Array, value: float) -> float:
    """Take a step, halved until it lowers the objective; the new objective."""
    before = value + penalty_value(p.layout, run.levels, run.w)
    for _ in range(40):
        w, b = run.w + step_w, run.b + step_b
        after = p.value(p.scores(w, b)) + penalty_value(p.layout, run.levels, w)
        if after <= before:
            run.w, run.b = w, b
            return after
        step_w, step_b = step_w / 2, step_b / 2
    return before


def solve(p: Additive, run: Run, base: float, tol: float, max_iter: int) -> None:
    """Minimise at the levels of ``run``, until a step promises less than tol·base."""
    fixed = p.gram(p.share) if isinstance(p.loss, Squared) else None
    kept: Any = None
    for _ in range(max_iter):
        value, u, state = p.slopes(p.scores(run.w, run.b))
        g = np.column_stack(
            [gradient(p, run.levels, run.w[:, k], u[:, k]) for k in range(p.k)]
        )
        g0 = u.sum(axis=0)
        if p.k == 1:
            if kept is None or fixed is None:
                kept = factor_of(p, run.levels, p.curvature(state, 0), fixed)
            step, move = kept.solve(g[:, 0], float(g0[0]))
            step_w, step_b = step[:, None], np.array([move])
        else:
            step_w, step_b = _joint_step(p, run.levels, state, g, g0)
        promised = -float(np.sum(step_w * g) + step_b @ g0) / 2
        after = lowered(p, run, step_w, step_b, value)
        run.n_iter += 1
        if run.tell(after, promised / base if base > 0 else 0.0):
            return
        if promised <= 1e-4 * tol * base or promised <= 1e-15 * abs(after):
            run.status = Status.SOLVED
            return
    run.status = Status.MAX_ITER


def _joint_step(
    p: Additive, levels: TermLevels, P: Array, g: Array, g0: Array
) -> tuple[Array, Array]:
    """Conjugate gradients for all scores at once."""
    factors = [factor_of(p, levels, p.curvature(P, k)) for k in range(p.k)]

    def product(x: Array, x0: Array) -> tuple[Array, Array]:
        D = apply_curvature(p.loss, P, p.scores(x, x0)) * p.share[:, None]
        return p.sums(D) + penalty_slope(p.layout, levels, x), D.sum(axis=0)

    return conjugate_gradients(factors, product, g, g0)


def conjugate_gradients(
    factors: list[Factor],
    product: Callable[[Array, Array], tuple[Array, Array]],
    g: Array,
    g0: Array,
    most: int = INNER,
    small: float = 1e-10,
) -> tuple[Array, Array]:
    """Solve for the step of all scores; ``factors`` are those of each score alone.

    It ends after ``most`` steps, or at a share ``small`` of the first square.
    """

    def precondition(r: Array, r0: Array) -> tuple[Array, Array]:
        found = [f.solve(r[:, k], float(r0[k])) for k, f in enumerate(factors)]
        return -np.column_stack([f[0] for f in found]), -np.array([f[1] for f in found])

    # Scores are defined up to a constant for all: the constants' sum stays as it is.
    x, x0 = np.zeros_like(g), np.zeros_like(g0)
    r, r0 = -g, -(g0 - g0.mean())
    q, q0 = precondition(r, r0)
    s, s0 = q.copy(), q0.copy()
    size = first = float(np.sum(r * q) + r0 @ q0)
    for _ in range(most):
        a, a0 = product(s, s0)
        bend = float(np.sum(s * a) + s0 @ a0)
        if not bend > 0:
            break
        far = size / bend
        x, x0, r, r0 = x + far * s, x0 + far * s0, r - far * a, r0 - far * a0
        q, q0 = precondition(r, r0)
        old, size = size, float(np.sum(r * q) + r0 @ q0)
        if size <= small * first:
            break
        s, s0 = q + size / old * s, q0 + size / old * s0
    return x, x0
