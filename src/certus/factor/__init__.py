"""Factors: few directions behind many columns, and few tastes behind many ratings."""

from certus.factor.analysis import FactorAnalysis
from certus.factor.pca import PCA
from certus.factor.probabilistic import ProbabilisticPCA
from certus.factor.svd import TruncatedSVD

__all__ = ["PCA", "FactorAnalysis", "ProbabilisticPCA", "TruncatedSVD"]
