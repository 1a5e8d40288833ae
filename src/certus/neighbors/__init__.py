"""Exact nearest neighbours with scikit-learn's names, and the Bayes classifier.

``KNeighborsClassifier`` and ``KNeighborsRegressor`` keep the rows and answer by those
nearest to a query; each fit has a ``certificate_`` that shows, on a sample, that the
neighbours found are the nearest. ``BayesClassifier`` is the classifier that no other
beats where the distributions are known, with its risk.
"""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "BayesClassifier": "bayes",
    "Risk": "bayes",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
