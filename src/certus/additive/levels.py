"""Choose the strength of both penalties of every term from the data of the fit.

The penalties are treated as normal prior distributions of the shapes. Each round takes
a Newton step at the current levels and sets every level so that the expected sum of
squares agrees with that of the shapes found. The result is a fixed point of the
restricted likelihood (in Laplace's approximation, if the loss is not the squared
error). No rows are set aside.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.additive.coarsening import coarsen
from certus.additive.layout import Additive, CellLayout, TermLevels, quantiles
from certus.additive.newton import Run, factor_of, gradient, lowered
from certus.objectives import Quantile, Squared
from certus.typing import Array

#: Ends of both levels, times the number of cells of a term.
LEAST, MOST = (1e-6, 1e-5), (1e6, 1e4)
#: Rounds at most, and the change of a level's logarithm below which they end.
ROUNDS, STILL = 20, 0.1
#: Rounds with all cells, after those with few; and the factor of a repeated move.
POLISH, FURTHER = 1, 1.6


def first_levels(layout: CellLayout, known: TermLevels | None = None) -> TermLevels:
    """Where the search begins: at known levels, for the terms that have some."""
    cells = np.diff(layout.starts).astype(float)
    if known is None:
        return TermLevels(1.0 / cells, 0.03 / cells)
    rest = cells[len(known.smoothing) :]
    return TermLevels(
        np.concatenate([known.smoothing, 1.0 / rest]),
        np.concatenate([known.shrinkage, 0.3 / rest]),
    )


def choose_levels(p: Additive, n: float, run: Run) -> None:
    """Choose the levels of ``run``: with few cells first; n is the weight."""
    rough = coarsen(p)
    if rough is None:
        _search(p, n, run, ROUNDS)
        return
    trial = Run(
        np.zeros((rough.p.layout.size, p.k)),
        run.b.copy(),
        rough.levels(run.levels),
        lambda objective, gap, _: run.on_step(objective, gap, run),
    )
    _search(rough.p, n, trial, ROUNDS)
    run.status = trial.status
    run.w, run.b = trial.w[rough.place], trial.b
    run.levels = rough.refined(trial.levels)
    if run.status is None:
        _search(p, n, run, POLISH)


def levels_for(p: Additive, n: float, run: Run, variation: bool) -> None:
    """Levels for the loss and penalty of ``p``, from those of a squared error.

    The quantile loss bends as much as the density of its residuals. Under total
    variation a difference has the same variance as under squares.
    """
    if not isinstance(p.loss, Quantile) and not variation:
        return
    z = p.scores(run.w, run.b)
    if isinstance(p.loss, Quantile):
        q = float(p.loss.q)
        middle = float(quantiles(p.y - z[:, 0], p.share, [q])[0])
        run.b = run.b + middle
        bend = float(p.slopes(z + middle)[2][0, 0])
        run.levels = TermLevels(*(bend * level for level in run.levels))
        z = z + middle
    if variation:
        rough = np.sqrt(2 * run.levels.smoothing * p.noise(z) / n)
        run.levels = run.levels._replace(smoothing=rough)


def _search(p: Additive, n: float, run: Run, rounds: int) -> None:
    """Move the levels of ``run`` until they settle, or for a number of rounds."""
    squared = isinstance(p.loss, Squared)
    fixed = p.gram(p.share) if squared else None
    last: Any = 0.0
    for _ in range(rounds):
        value, u, state = p.slopes(p.scores(run.w, run.b))
        smooth = small = np.zeros(len(p.layout.spectra))
        used = np.zeros(len(p.layout.spectra))
        step_w, step_b = np.zeros_like(run.w), np.zeros_like(run.b)
        for k in range(p.k):
            factor = factor_of(p, run.levels, p.curvature(state, k), fixed)
            g = gradient(p, run.levels, run.w[:, k], u[:, k])
            step_w[:, k], step_b[k] = factor.solve(g, float(u[:, k].sum()))
            one, two = _traces(p.layout, run.levels, factor.inverse())
            smooth, small = smooth + one, small + two
            used += run.levels.smoothing * one + run.levels.shrinkage * two
        after = lowered(p, run, step_w, step_b, value)
        scale = 1 / n
        if squared:
            free = max(n - 1.0 - float(used.sum()), 0.1 * n)
            scale = 2 * p.value(p.scores(run.w, run.b)) / free
        found = _squares(p.layout, run.w)
        old = run.levels
        target = _moved(p.layout, old, (smooth, small), found, scale)
        moves = np.log(np.stack(target) / np.stack(old))
        # A level that keeps its course has far to go.
        further = np.where(moves * last > 0, FURTHER, 1.0)
        run.levels = _within(p.layout, np.stack(old) * np.exp(further * moves))
        last = moves
        # What has no freedom left changes nothing.
        still = np.abs(moves) * np.minimum(1.0, np.maximum(used, 0.0))
        if run.tell(after, np.inf) or still.max(initial=0.0) < STILL:
            return


def _traces(
    layout: CellLayout, levels: TermLevels, inverse: Array
) -> tuple[Array, Array]:
    """What both penalties of each term leave free: tr K⁻S − tr A⁻¹S."""
    terms = len(layout.spectra)
    a, b = layout.edges.T
    diagonal = np.diagonal(inverse)
    each = diagonal[a] + diagonal[b] - 2 * inverse[b, a]
    smooth = -np.bincount(layout.edge_term, each, terms)
    small = -np.bincount(layout.cell_term, diagonal, terms)
    for t, values in enumerate(layout.spectra):
        K = levels.smoothing[t] * values + levels.shrinkage[t]
        smooth[t] += float(np.sum(values / K))
        small[t] += float(np.sum(1 / K))
    return smooth, small


def _squares(layout: CellLayout, w: Array) -> tuple[Array, Array]:
    """Sums of squared differences and of squares of each term."""
    terms = len(layout.spectra)
    d = np.square(w[layout.edges[:, 1]] - w[layout.edges[:, 0]]).sum(axis=1)
    smooth = np.bincount(layout.edge_term, d, terms)
    return smooth, np.bincount(layout.cell_term, np.square(w).sum(axis=1), terms)


def _moved(
    layout: CellLayout, levels: TermLevels, free: Any, found: Any, scale: float
) -> TermLevels:
    """The levels at which expected and found squares agree, within their ends."""
    out = []
    for level, left, square in zip(levels, free, found):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = scale * np.maximum(left, 1e-12) / square
        ratio = np.where(np.isfinite(ratio), np.clip(ratio, 1e-3, 1e3), 1e3)
        out.append(level * ratio)
    return _within(layout, out)


def _within(layout: CellLayout, levels: Any) -> TermLevels:
    """Levels between their ends."""
    cells = np.diff(layout.starts).astype(float)
    ends = zip(levels, LEAST, MOST)
    return TermLevels(*(np.clip(x, low / cells, high / cells) for x, low, high in ends))
