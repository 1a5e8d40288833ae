"""Criteria of fairness, measured with intervals."""

from certus.fairness.gaps import Gap
from certus.fairness.measures import independence, separation, sufficiency
from certus.fairness.scored import calibration
from certus.fairness.table import GroupTable

__all__ = [
    "Gap",
    "GroupTable",
    "calibration",
    "independence",
    "separation",
    "sufficiency",
]
