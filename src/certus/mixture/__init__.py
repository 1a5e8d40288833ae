"""Clusters and mixtures: k-means, Gaussian mixtures, and EM for any latent variable."""

from certus.mixture.bend import Elbow, elbow
from certus.mixture.em import EM
from certus.mixture.gaussian import GaussianMixture
from certus.mixture.kmeans import KMeans
from certus.mixture.seeding import kmeans_plusplus
from certus.mixture.starts import gaussian_start

__all__ = [
    "EM",
    "Elbow",
    "GaussianMixture",
    "KMeans",
    "elbow",
    "gaussian_start",
    "kmeans_plusplus",
]
