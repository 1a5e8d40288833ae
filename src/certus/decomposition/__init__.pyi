# Written by `make stubs` from the rows of the package; do not edit.
from certus.decomposition.deep_linear import DeepLinearNetwork as DeepLinearNetwork
from certus.decomposition.analysis import FactorAnalysis as FactorAnalysis
from certus.decomposition.autoencoder import LinearAutoencoder as LinearAutoencoder
from certus.decomposition.nonnegative import NMF as NMF
from certus.decomposition.pca import PCA as PCA
from certus.decomposition.probabilistic import ProbabilisticPCA as ProbabilisticPCA
from certus.decomposition.svd import TruncatedSVD as TruncatedSVD
from certus.decomposition.modes import mode_strength as mode_strength
from certus.decomposition.factorizing import non_negative_factorization as non_negative_factorization
