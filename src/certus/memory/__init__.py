"""Associative memories: recall of stored patterns, with a certified radius."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "CapacityCurve": "curves",
    "NandNetwork": "nand",
    "ThresholdUnit": "threshold_unit",
    "capacity": "curves",
    "cover_probability": "limits",
    "pattern_information": "limits",
    "willshaw_limits": "limits",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
