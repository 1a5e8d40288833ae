"""Linear models with scikit-learn's names, parameters and attributes.

Least squares, ridge, lasso (weighted, grouped, multi-task), elastic net, robust and
quantile regression, generalised linear models, logistic regression and the perceptron;
each fit leaves a ``certificate_`` that says whether it is solved.
"""

from certus.lazy import absent
from certus.linear_model.glm import GeneralizedLinearModel, PoissonRegressor
from certus.linear_model.grouped import GroupLasso, WeightedLasso
from certus.linear_model.lasso import ElasticNet, Lasso
from certus.linear_model.lasso_cv import ElasticNetCV, LassoCV
from certus.linear_model.least_squares import LinearRegression, Ridge, RidgeClassifier
from certus.linear_model.logistic import LogisticRegression
from certus.linear_model.logistic_cv import LogisticRegressionCV
from certus.linear_model.multi_task import MultiTaskElasticNet, MultiTaskLasso
from certus.linear_model.multi_task_cv import MultiTaskElasticNetCV, MultiTaskLassoCV
from certus.linear_model.paths import enet_path, lasso_path
from certus.linear_model.perceptron import Perceptron
from certus.linear_model.quantile import QuantileRegressor
from certus.linear_model.ridge_cv import RidgeCV
from certus.linear_model.robust import HuberRegressor, RobustRegressor
from certus.linear_model.stochastic import StochasticLinearClassifier
from certus.linear_model.summary import Summary, SummaryRefused

__all__ = [
    "ElasticNet",
    "ElasticNetCV",
    "GeneralizedLinearModel",
    "GroupLasso",
    "HuberRegressor",
    "Lasso",
    "LassoCV",
    "LinearRegression",
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
__getattr__ = absent(__name__)
