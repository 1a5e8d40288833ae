"""Linear models with scikit-learn's names, parameters and attributes.

Least squares, ridge, lasso, elastic net and logistic regression; each fit leaves a
``certificate_`` that says whether it is solved.
"""

from certus.linear.lasso import ElasticNet, Lasso, enet_path, lasso_path
from certus.linear.lasso_cv import ElasticNetCV, LassoCV
from certus.linear.least_squares import LinearRegression, Ridge, RidgeClassifier
from certus.linear.logistic import LogisticRegression
from certus.linear.logistic_cv import LogisticRegressionCV
from certus.linear.ridge_cv import RidgeCV

__all__ = [
    "ElasticNet",
    "ElasticNetCV",
    "Lasso",
    "LassoCV",
    "LinearRegression",
    "LogisticRegression",
    "LogisticRegressionCV",
    "Ridge",
    "RidgeCV",
    "RidgeClassifier",
    "enet_path",
    "lasso_path",
]
