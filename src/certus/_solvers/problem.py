"""The problem that every solver takes and the solution that it returns.

    solve(problem, start, limits) -> Solution

``problem`` is the solver's own type: data, loss and penalty. A penalty that lacks an
operation the solver needs is refused when the problem is made, before the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from certus.certificate import Status
from certus.typing import Array

#: Called after each step with (objective, gap, w); a status means stop.
OnStep = Callable[[float, float, Array], Status | None]


def keep_going(objective: float, gap: float, w: Array) -> Status | None:
    """An ``OnStep`` that never stops."""
    return None


class Start(NamedTuple):
    """Where a solver begins; it chooses what is None, usually zero."""

    primal: Array | None = None
    dual: Array | None = None


class SolverLimits(NamedTuple):
    """When a solver stops: at a gap, after some steps, or when a callback says so."""

    tol: float
    max_iter: int
    on_step: OnStep = keep_going


@dataclass(frozen=True)
class Solution:
    """Where a solver got to, and how it ended.

    Attributes
    ----------
    primal : ndarray
        Coefficients; where there may be an intercept, b is the last row.
    gap : float
        Relative duality gap, as the solver sees it.
    status : Status
        How it ended.
    n_iter : int
        Steps taken.
    dual : ndarray or None
        u, one number for each row and score, where the verifier could not compute it.
    direction : ndarray or None
        Along it the objective falls forever (NO_MINIMISER); shaped as ``primal``.
    """

    primal: Array
    gap: float
    status: Status
    n_iter: int
    dual: Array | None = None
    direction: Array | None = None
