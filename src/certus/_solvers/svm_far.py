"""Support vector machines whose columns lie far from zero.

A free intercept takes up any shift of the columns. A penalised one does not, but
½·l2·‖(w, b)‖² stays the same under a rotation: one that takes (m, κ), the mean of the
rows and the constant column, to M times the last axis leaves columns near zero and a
last one of M(1 + small). In units of c = M·v that is an intercept at the level l2/M²,
nearly free; every other column is as well-conditioned as it was about its mean.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from certus._solvers.problem import OnStep, Start
from certus._solvers.shifts import Shift, exact_sum, far_shift
from certus._solvers.svm_problem import SvmProblem, SVMRows
from certus.typing import Array

#: Spreads from zero at which columns are moved: fewer cost few digits.
FAR = 100.0


class Rotation(NamedTuple):
    """The reflection that takes (m, κ)/M to the last axis, and M."""

    X: Array
    mean: Array
    scale: float
    axis: Array  # p of I − 2ppᵀ
    size: float

    def forth(self, w: Array) -> Array:
        """(w, b) as coefficients of the rotated columns, b of no constant column."""
        turned = self._reflect(np.asarray(w, dtype=np.float64))
        turned[-1] *= self.size
        return np.append(turned, 0.0)

    def near(self, w: Array) -> Array:
        """The inverse of ``forth``."""
        turned = w[:-1].copy()
        turned[-1] /= self.size
        return self._reflect(turned)

    def back(self, w: Array) -> Array:
        """As ``near``, with b such that the mean of the scores is right to the end."""
        out = self.near(w)
        out[-1] = exact_sum(w[-2], -self.mean, out[:-1]) / self.scale
        return out

    def _reflect(self, v: Array) -> Array:
        return np.asarray(v - 2 * self.axis * float(self.axis @ v))


Move = Shift | Rotation


def move_near(problem: SvmProblem) -> tuple[SvmProblem, Move] | None:
    """The same problem on columns near zero, and how its points move.

    None if the columns are near zero already, or cannot be moved.
    """
    rows = problem.rows
    if not rows.scale or (rows.sparse and not problem.free):
        return None
    shift = far_shift(rows.X, FAR)
    if shift is None:
        return None
    if problem.free:
        return problem._replace(rows=SVMRows(shift.X, rows.s, rows.scale)), shift
    turn = _rotation(shift, rows.scale)
    moved = SVMRows(turn.X, rows.s, 0.0)
    return problem._replace(rows=moved, constant=turn.size), turn


def _rotation(shift: Shift, scale: float) -> Rotation:
    raw = np.append(shift.mean, scale)
    size = float(np.linalg.norm(raw))
    axis = raw / size
    axis[-1] -= 1.0
    axis /= np.linalg.norm(axis)
    along = shift.X @ axis[:-1]
    X = np.empty((len(along), len(raw)))
    np.subtract(shift.X, np.multiply.outer(2 * along, axis[:-1]), out=X[:, :-1])
    X[:, -1] = 1 - 2 * along * axis[-1] / size
    return Rotation(X, shift.mean, scale, axis, size)


def watched(move: Move, on_step: OnStep) -> OnStep:
    """``on_step`` for points of the moved columns."""
    return lambda objective, gap, w: on_step(objective, gap, move.near(w))


def started(move: Move, start: Start) -> Start:
    """A start on the moved columns."""
    if start.primal is None:
        return start
    return Start(move.forth(start.primal), start.dual)
