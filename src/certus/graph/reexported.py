"""Estimators of graphs that live where scikit-learn has them."""

from __future__ import annotations

from certus.cluster import SpectralClustering
from certus.semi_supervised import LabelPropagation, LabelSpreading

__all__ = ["LabelPropagation", "LabelSpreading", "SpectralClustering"]
