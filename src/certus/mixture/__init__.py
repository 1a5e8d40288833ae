"""Clusters and mixtures: k-means, Gaussian mixtures, and EM for any latent variable."""

from certus.mixture.gaussian import GaussianMixture
from certus.mixture.starts import gaussian_start

__all__ = ["GaussianMixture", "gaussian_start"]
