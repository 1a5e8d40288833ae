"""Criteria of fairness, measured with intervals."""

from certus.fairness.measures import independence, separation, sufficiency
from certus.fairness.table import Gap, GroupTable

__all__ = ["Gap", "GroupTable", "independence", "separation", "sufficiency"]
