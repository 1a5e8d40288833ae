# Written by `make stubs` from the rows of the package; do not edit.
from certus.kernels.logistic import KernelLogisticRegression as KernelLogisticRegression
from certus.kernels.perceptron import KernelPerceptron as KernelPerceptron
from certus.kernels.mercer import MercerCheck as MercerCheck
from certus.kernels.features import feature_dimension as feature_dimension
from certus.kernels.features import feature_map as feature_map
from certus.kernels.mercer import gram as gram
from certus.kernels.mercer import mercer_check as mercer_check
