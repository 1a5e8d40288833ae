"""Criteria of fairness, measured with intervals."""

from certus.fairness.excluding import Conflict, Exclusivity, exclusivity
from certus.fairness.gaps import Gap
from certus.fairness.measures import independence, separation, sufficiency
from certus.fairness.recovering import Recovery, recovery
from certus.fairness.scored import calibration
from certus.fairness.table import GroupTable

__all__ = [
    "Conflict",
    "Exclusivity",
    "Gap",
    "GroupTable",
    "Recovery",
    "calibration",
    "exclusivity",
    "independence",
    "recovery",
    "separation",
    "sufficiency",
]
