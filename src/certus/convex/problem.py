"""What a solver is given and what it hands back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from certus.certificate import Status
from certus.convex.design import Array

#: Called after each step with (objective, gap, w); a status means stop.
OnStep = Callable[[float, float, Array], Status | None]


class Limits(NamedTuple):
    """When a solver stops: at a relative gap, after so many steps, or when told."""

    tol: float
    max_iter: int
    on_step: OnStep = lambda objective, gap, w: None


class Solution(NamedTuple):
    """Where a solver got to, and how it ended."""

    primal: Array
    gap: float
    status: Status
    n_iter: int
    extra: dict[str, Any] = {}  # noqa: RUF012  (a NamedTuple default, never mutated)


def keep_going(objective: float, gap: float, w: Array) -> Status | None:
    """An ``OnStep`` that never stops."""
    return None
