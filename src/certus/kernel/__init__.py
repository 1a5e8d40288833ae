"""Kernels and the machines that use them, with scikit-learn's names and attributes.

Kernels are data (``certus.terms``): linear, polynomial, Gaussian, Laplace, and what can
be built of them. Each fit leaves a ``certificate_`` that says whether it is solved.
"""

from certus.kernel.features import feature_dimension, feature_map
from certus.kernel.logistic import KernelLogisticRegression
from certus.kernel.mercer import MercerCheck, gram, mercer_check
from certus.kernel.perceptron import KernelPerceptron
from certus.kernel.ridge import KernelRidge
from certus.kernel.svc import SVC
from certus.kernel.svr import SVR

__all__ = [
    "SVC",
    "SVR",
    "KernelLogisticRegression",
    "KernelPerceptron",
    "KernelRidge",
    "MercerCheck",
    "feature_dimension",
    "feature_map",
    "gram",
    "mercer_check",
]
