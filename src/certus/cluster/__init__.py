"""k-means, its starting points, and how many clusters to use."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "Elbow": "n_clusters",
    "elbow": "n_clusters",
    "kmeans_plusplus": "seeding",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
