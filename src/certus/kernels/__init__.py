"""Kernels: their values, feature maps and Mercer's condition, and models on them.

Kernels are data (``certus.objectives``): linear, polynomial, Gaussian, Laplace, and
what can be built of them. Support vector machines are in ``certus.svm``, kernel ridge
regression in ``certus.kernel_ridge``, where scikit-learn has them.
"""

from certus.kernels.features import feature_dimension, feature_map
from certus.kernels.logistic import KernelLogisticRegression
from certus.kernels.mercer import MercerCheck, gram, mercer_check
from certus.kernels.perceptron import KernelPerceptron

__all__ = [
    "KernelLogisticRegression",
    "KernelPerceptron",
    "MercerCheck",
    "feature_dimension",
    "feature_map",
    "gram",
    "mercer_check",
]
