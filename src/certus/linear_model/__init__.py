"""Linear models with scikit-learn's names, parameters and attributes.

Least squares, ridge, lasso (weighted, grouped, multi-task), elastic net, robust and
quantile regression, generalised linear models, logistic regression and the perceptron;
each fit has a ``certificate_`` that says whether the problem is solved.
"""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "Summary": "summary",
    "SummaryRefused": "summary",
    "enet_path": "paths",
    "lasso_path": "paths",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
