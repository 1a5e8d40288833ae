"""Factors: few directions behind many columns, and few tastes behind many ratings."""

from certus.factor.analysis import FactorAnalysis
from certus.factor.autoencoder import LinearAutoencoder
from certus.factor.deep_linear import DeepLinearNetwork
from certus.factor.implicit import ImplicitALS
from certus.factor.matrix import MatrixFactorization
from certus.factor.modes import mode_strength
from certus.factor.pca import PCA
from certus.factor.probabilistic import ProbabilisticPCA
from certus.factor.recommending import Ranked
from certus.factor.svd import TruncatedSVD

__all__ = [
    "PCA",
    "DeepLinearNetwork",
    "FactorAnalysis",
    "ImplicitALS",
    "LinearAutoencoder",
    "MatrixFactorization",
    "ProbabilisticPCA",
    "Ranked",
    "TruncatedSVD",
    "mode_strength",
]
