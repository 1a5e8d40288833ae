# Written by `make stubs` from the rows of the package; do not edit.
from certus.additive.classifier import AdditiveClassifier as AdditiveClassifier
from certus.additive.regressor import AdditiveRegressor as AdditiveRegressor
