"""Kernel ridge regression, with scikit-learn's name, parameters and attributes."""

from certus.kernel_ridge.ridge import KernelRidge

__all__ = ["KernelRidge"]
