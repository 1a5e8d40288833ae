"""Recommenders from ratings or counts, and measures of ranked lists."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "Evaluation": "ranking",
    "Ranked": "recommending",
    "RatingSplit": "splits",
    "auc": "ranking",
    "average_precision": "ranking",
    "coverage": "ranking",
    "evaluate": "ranking",
    "fold_ratings": "splits",
    "hit_rate": "ranking",
    "ndcg": "ranking",
    "precision_at_k": "ranking",
    "recall_at_k": "ranking",
    "split_ratings": "splits",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
