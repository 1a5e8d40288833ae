"""Mixtures: Gaussian mixtures, and EM for any latent variable."""

from certus.lazy import absent
from certus.mixture.em import EM
from certus.mixture.gaussian import GaussianMixture
from certus.mixture.starts import gaussian_start

__all__ = ["EM", "GaussianMixture", "gaussian_start"]
__getattr__ = absent(__name__)
