"""Few directions behind many columns: components, factors, linear networks."""

from certus.decomposition.analysis import FactorAnalysis
from certus.decomposition.autoencoder import LinearAutoencoder
from certus.decomposition.deep_linear import DeepLinearNetwork
from certus.decomposition.modes import mode_strength
from certus.decomposition.pca import PCA
from certus.decomposition.probabilistic import ProbabilisticPCA
from certus.decomposition.svd import TruncatedSVD
from certus.lazy import absent

__all__ = [
    "PCA",
    "DeepLinearNetwork",
    "FactorAnalysis",
    "LinearAutoencoder",
    "ProbabilisticPCA",
    "TruncatedSVD",
    "mode_strength",
]
__getattr__ = absent(__name__)
