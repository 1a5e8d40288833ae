# Written by `make stubs` from the rows of the package; do not edit.
from certus.mixture.em import EM as EM
from certus.mixture.gaussian import GaussianMixture as GaussianMixture
from certus.mixture.starts import gaussian_start as gaussian_start
