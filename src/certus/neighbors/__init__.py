"""Nearest neighbours, exact, with scikit-learn's names; and the best there can be.

``KNeighborsClassifier`` and ``KNeighborsRegressor`` keep the rows and answer by those
nearest to a query; each fit leaves a ``certificate_`` that shows, on a sample, that the
neighbours found are the nearest. ``BayesClassifier`` is the classifier that no other
beats where the distributions are known, with its risk.
"""

from certus.lazy import absent
from certus.neighbors.bayes import BayesClassifier, Risk
from certus.neighbors.classifier import KNeighborsClassifier
from certus.neighbors.regressor import KNeighborsRegressor

__all__ = ["BayesClassifier", "KNeighborsClassifier", "KNeighborsRegressor", "Risk"]
__getattr__ = absent(__name__)
