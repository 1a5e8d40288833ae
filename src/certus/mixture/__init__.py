"""Clusters and mixtures: k-means, Gaussian mixtures, and EM for any latent variable."""

__all__: list[str] = []
