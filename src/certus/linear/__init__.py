"""Linear models with scikit-learn's names, parameters and attributes.

Least squares, ridge, lasso, elastic net and logistic regression; each fit leaves a
``certificate_`` that says whether it is solved.
"""

from certus.linear.lasso import ElasticNet, Lasso, enet_path, lasso_path
from certus.linear.least_squares import LinearRegression, Ridge, RidgeClassifier
from certus.linear.logistic import LogisticRegression
from certus.linear.ridge_cv import RidgeCV

__all__ = [
    "ElasticNet",
    "Lasso",
    "LinearRegression",
    "LogisticRegression",
    "Ridge",
    "RidgeCV",
    "RidgeClassifier",
    "enet_path",
    "lasso_path",
]
