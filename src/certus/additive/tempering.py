"""Scale all levels by one factor, chosen by the loss of held-out rows.

Laplace's approximation smooths too much where labels are nearly certain. The chosen
levels keep their proportions, and cross-validation picks a common factor from a short
list, one step after another, with wide cells. Rows in the same cells are in the same
fold, so a row of weight two still equals two rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from certus.additive.coarsening import coarsen
from certus.additive.layout import Additive, TermLevels
from certus.additive.newton import Run, solve
from certus.objectives import Squared
from certus.typing import Array

WEAKER, STRONGER = (0.3, 0.1, 0.03), (3.0,)
FOLDS = 3
#: Rows beyond which the approximation is taken as it is.
MOST_ROWS = 20_000
#: Newton steps of each trial, at most.
STEPS = 8
#: Solves a problem at the levels of a run: base, target of the gap, and most steps.
Solver = Callable[[Additive, Run, float, float, int], Any]
#: Target of their gap; a hundredth of the differences that count.
ROUGH = 0.1


def temper_levels(
    p: Additive, run: Run, base: float, solver: Solver = solve, variation: bool = False
) -> None:
    """Scale the levels of ``run`` by the factor that is best on held-out rows.

    ``solver`` solves each trial; ``variation`` says that the levels are those of total
    variation.
    """
    plain = isinstance(p.loss, Squared) and not variation
    if plain or len(p.share) > MOST_ROWS:
        return
    folds = _folds(p)
    rough = coarsen(p, variation)
    q, levels = (
        (p, run.levels) if rough is None else (rough.p, rough.levels(run.levels))
    )
    trials = []
    for fold in range(FOLDS):
        out = folds == fold
        kept, left = np.where(out, 0.0, q.share), np.where(out, q.share, 0.0)
        if not (kept.sum() > 0 and left.sum() > 0):
            return
        trial = Run(np.zeros((q.layout.size, q.k)), run.b.copy(), levels, _silent)
        trials.append((q._replace(share=kept / kept.sum()), left, trial))

    def lost(factor: float) -> float:
        found = 0.0
        for inner, left, trial in trials:
            trial.levels = _scaled(levels, factor)
            solver(inner, trial, base, ROUGH, STEPS)
            found += q._replace(share=left).value(q.scores(trial.w, trial.b))
        return found

    best, least = 1.0, lost(1.0)
    # First to weaker penalties, which are needed more often; else to stronger ones.
    for factors in WEAKER, STRONGER:
        for factor in factors:
            found = lost(factor)
            if run.tell(found, np.inf):
                return
            if found >= least:
                break
            best, least = factor, found
        if best != 1.0:
            break
    run.levels = _scaled(run.levels, best)


def _scaled(levels: TermLevels, factor: float) -> TermLevels:
    return TermLevels(*(factor * level for level in levels))


def _silent(*_: Any) -> None:
    return None


def _folds(p: Additive) -> Array:
    """A fold for each row, which depends on its cells and not on the order of rows."""
    mixed = np.zeros(p.codes.shape[1], dtype=np.uint64)
    for row, start, shape in zip(p.codes, p.layout.starts, p.layout.shapes):
        if len(shape) == 1:  # pairs have the cells of their columns
            mixed += _spread(row.astype(np.uint64) - np.uint64(start))
    return _spread(mixed) % np.uint64(FOLDS)


def _spread(x: Array) -> Array:
    """Bits of 64-bit numbers, spread evenly."""
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((x ^ (x >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) >> 7)
