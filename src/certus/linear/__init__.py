"""Linear models with scikit-learn's names, parameters and attributes.

Least squares, ridge, lasso (weighted, grouped, multi-task), elastic net, robust and
quantile regression, generalised linear models, logistic regression, support vector
machines and the perceptron; each fit leaves a ``certificate_`` that says whether it is
solved.
"""

from certus.linear.glm import GeneralizedLinearModel, PoissonRegressor
from certus.linear.grouped import GroupLasso, WeightedLasso
from certus.linear.lasso import ElasticNet, Lasso
from certus.linear.lasso_cv import ElasticNetCV, LassoCV
from certus.linear.least_squares import LinearRegression, Ridge, RidgeClassifier
from certus.linear.logistic import LogisticRegression
from certus.linear.logistic_cv import LogisticRegressionCV
from certus.linear.multi_task import MultiTaskElasticNet, MultiTaskLasso
from certus.linear.multi_task_cv import MultiTaskElasticNetCV, MultiTaskLassoCV
from certus.linear.paths import enet_path, lasso_path
from certus.linear.perceptron import Perceptron
from certus.linear.quantile import QuantileRegressor
from certus.linear.ridge_cv import RidgeCV
from certus.linear.robust import HuberRegressor, RobustRegressor
from certus.linear.stochastic import StochasticLinearClassifier
from certus.linear.summary import Summary, SummaryRefused
from certus.linear.svm import LinearSVC, LinearSVR

__all__ = [
    "ElasticNet",
    "ElasticNetCV",
    "GeneralizedLinearModel",
    "GroupLasso",
    "HuberRegressor",
    "Lasso",
    "LassoCV",
    "LinearRegression",
    "LinearSVC",
    "LinearSVR",
    "LogisticRegression",
    "LogisticRegressionCV",
    "MultiTaskElasticNet",
    "MultiTaskElasticNetCV",
    "MultiTaskLasso",
    "MultiTaskLassoCV",
    "Perceptron",
    "PoissonRegressor",
    "QuantileRegressor",
    "Ridge",
    "RidgeCV",
    "RidgeClassifier",
    "RobustRegressor",
    "StochasticLinearClassifier",
    "Summary",
    "SummaryRefused",
    "WeightedLasso",
    "enet_path",
    "lasso_path",
]
