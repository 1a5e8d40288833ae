"""Factors: few directions behind many columns, and few tastes behind many ratings."""

from certus.factor.analysis import FactorAnalysis
from certus.factor.probabilistic import ProbabilisticPCA

__all__ = ["FactorAnalysis", "ProbabilisticPCA"]
