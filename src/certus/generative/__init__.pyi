# Written by `make stubs` from the rows of the package; do not edit.
from certus.generative.closest import ClosestGaussian as ClosestGaussian
from certus.generative.f_divergences import DIVERGENCES as DIVERGENCES
from certus.generative.f_divergences import FDivergence as FDivergence
from certus.generative.discrepancy import MMDTest as MMDTest
from certus.generative.divergences import VariationalBound as VariationalBound
from certus.generative.closest import closest_gaussian as closest_gaussian
from certus.generative.divergences import conjugate as conjugate
from certus.generative.divergences import f_divergence as f_divergence
from certus.generative.divergences import jensen_shannon as jensen_shannon
from certus.generative.divergences import minimax_value as minimax_value
from certus.generative.discrepancy import mmd as mmd
from certus.generative.discrepancy import mmd_test as mmd_test
from certus.generative.divergences import optimal_discriminator as optimal_discriminator
from certus.generative.divergences import variational_bound as variational_bound
