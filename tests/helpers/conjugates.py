"""Conjugates of the penalties, which excesses are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.objectives import terms as t

Array = np.ndarray


def penalty_conjugate(term: Any, v: Array) -> float:
    """Ω*(v): what v has beyond l₁, ½‖over‖²/l₂, and infinite where l₂ is 0."""
    match term:
        case t.NoPenalty():
            return _beyond(np.abs(v), 0.0)
        case t.L1(l1):
            return _beyond(np.abs(v) - l1, 0.0)
        case t.L2(l2):
            return _beyond(np.abs(v), l2)
        case t.L1L2(l1, l2):
            return _beyond(np.abs(v) - l1, l2)
        case t.WeightedL1(alphas):
            return _beyond(np.abs(v) - np.asarray(alphas), 0.0)
        case t.NonNegative(l1, l2):
            return _beyond(v - l1, l2)
        case t.Group(l1, groups, l2):
            numbers = np.asarray(groups)
            norms = [np.linalg.norm(v[numbers == g]) for g in np.unique(numbers)]
            return _beyond(np.array(norms) - l1, l2)
        case t.MultiTask(l1, l2):
            return _beyond(np.linalg.norm(v, axis=1) - l1, l2)
    raise TypeError(f"no conjugate of {term!r}")


def _beyond(over: Array, l2: float) -> float:
    over = np.maximum(over, 0.0)
    if l2 == 0.0:
        return np.inf if over.any() else 0.0
    return float(np.vdot(over, over) / (2 * l2))
