"""Factors: few directions behind many columns, and few tastes behind many ratings."""

from certus.factor.analysis import FactorAnalysis
from certus.factor.autoencoder import LinearAutoencoder
from certus.factor.deep_linear import DeepLinearNetwork
from certus.factor.implicit import ImplicitALS
from certus.factor.matrix import MatrixFactorization
from certus.factor.modes import mode_strength
from certus.factor.pca import PCA
from certus.factor.probabilistic import ProbabilisticPCA
from certus.factor.ranking import (
    Evaluation,
    auc,
    average_precision,
    coverage,
    evaluate,
    hit_rate,
    ndcg,
    precision_at_k,
    recall_at_k,
)
from certus.factor.recommending import Ranked
from certus.factor.splits import (
    RatingSplit,
    fold_ratings,
    split_ratings,
)
from certus.factor.svd import TruncatedSVD

__all__ = [
    "PCA",
    "DeepLinearNetwork",
    "Evaluation",
    "FactorAnalysis",
    "ImplicitALS",
    "LinearAutoencoder",
    "MatrixFactorization",
    "ProbabilisticPCA",
    "Ranked",
    "RatingSplit",
    "TruncatedSVD",
    "auc",
    "average_precision",
    "coverage",
    "evaluate",
    "fold_ratings",
    "hit_rate",
    "mode_strength",
    "ndcg",
    "precision_at_k",
    "recall_at_k",
    "split_ratings",
]
