"""Recommendations: few tastes behind many ratings, and measures of ranked lists."""

from certus.recommend.implicit import ImplicitALS
from certus.recommend.matrix import MatrixFactorization
from certus.recommend.ranking import (
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
from certus.recommend.recommending import Ranked
from certus.recommend.splits import RatingSplit, fold_ratings, split_ratings

__all__ = [
    "Evaluation",
    "ImplicitALS",
    "MatrixFactorization",
    "Ranked",
    "RatingSplit",
    "auc",
    "average_precision",
    "coverage",
    "evaluate",
    "fold_ratings",
    "hit_rate",
    "ndcg",
    "precision_at_k",
    "recall_at_k",
    "split_ratings",
]
