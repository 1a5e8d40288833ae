"""Kernel ridge regression, with scikit-learn's name, parameters and attributes."""

from certus.kernel_ridge.ridge import KernelRidge
from certus.lazy import absent

__all__ = ["KernelRidge"]
__getattr__ = absent(__name__)
