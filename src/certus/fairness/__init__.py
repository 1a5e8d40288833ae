"""Criteria of fairness, measured with intervals."""

from certus.fairness.decorrelation import Decorrelation
from certus.fairness.excluding import Conflict, Exclusivity, exclusivity
from certus.fairness.gaps import Gap
from certus.fairness.measures import independence, separation, sufficiency
from certus.fairness.penalty import CovariancePenalty
from certus.fairness.recovering import Recovery, recovery
from certus.fairness.reduction import GroupReduction
from certus.fairness.scored import calibration
from certus.fairness.table import GroupTable
from certus.fairness.thresholds import GroupThresholds
from certus.fairness.tradeoff import Frontier, frontier

__all__ = [
    "Conflict",
    "CovariancePenalty",
    "Decorrelation",
    "Exclusivity",
    "Frontier",
    "Gap",
    "GroupReduction",
    "GroupTable",
    "GroupThresholds",
    "Recovery",
    "calibration",
    "exclusivity",
    "frontier",
    "independence",
    "recovery",
    "separation",
    "sufficiency",
]
