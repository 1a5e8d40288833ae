"""Criteria of fairness between groups, with intervals, and ways to meet them."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "Conflict": "excluding",
    "Exclusivity": "excluding",
    "Frontier": "tradeoff",
    "GroupGap": "gaps",
    "GroupTable": "table",
    "Recovery": "recovering",
    "calibration": "scored",
    "exclusivity": "excluding",
    "frontier": "tradeoff",
    "independence": "measures",
    "recovery": "recovering",
    "separation": "measures",
    "sufficiency": "measures",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
