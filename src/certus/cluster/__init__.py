"""Clusters: k-means, its starts, and how many clusters there are."""

from certus.cluster.elbow import Elbow, elbow
from certus.cluster.kmeans import KMeans
from certus.cluster.seeding import kmeans_plusplus
from certus.lazy import absent

__all__ = ["Elbow", "KMeans", "elbow", "kmeans_plusplus"]
__getattr__ = absent(__name__)
