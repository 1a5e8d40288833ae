"""The instances that scikit-learn's estimator checks run on.

Only ``tol``, ``max_iter``, ``random_state``, ``batch_size`` and required constructor
arguments may differ from the defaults. Weights are compared with repetitions to seven
digits, so iterative solvers are asked for more than their default here.
"""

from __future__ import annotations

from typing import Any


def instances() -> list[Any]:
    """One estimator of each public class.

    Examples
    --------
    >>> from certus.testing.instances import instances
    >>> len({type(e).__name__ for e in instances()}) == len(instances())
    True
    """
    from certus import deep, factor, fairness, kernel, linear, mixture, neighbors

    logistic = linear.LogisticRegression(tol=1e-7)
    return [
        *_networks(),
        deep.MLPClassifier(max_iter=1000, tol=1e-3, random_state=0),
        deep.MLPRegressor(max_iter=3000, tol=1e-2, random_state=0),
        linear.LinearRegression(),
        linear.Ridge(),
        linear.RidgeCV(),
        linear.RidgeClassifier(),
        linear.Lasso(tol=1e-9),
        linear.LassoCV(tol=1e-9),
        linear.ElasticNet(tol=1e-9),
        linear.ElasticNetCV(tol=1e-9),
        linear.MultiTaskElasticNet(tol=1e-9),
        linear.MultiTaskElasticNetCV(tol=1e-9),
        linear.MultiTaskLasso(tol=1e-9),
        linear.MultiTaskLassoCV(tol=1e-9),
        linear.GroupLasso(tol=1e-9),
        linear.WeightedLasso(tol=1e-9),
        linear.LogisticRegression(tol=1e-7),
        linear.LogisticRegressionCV(tol=1e-7),
        linear.RobustRegressor(tol=1e-9),
        linear.HuberRegressor(tol=1e-9),
        linear.QuantileRegressor(tol=1e-7),
        linear.GeneralizedLinearModel(),
        linear.PoissonRegressor(tol=1e-9),
        linear.LinearSVC(tol=1e-9),
        linear.LinearSVR(tol=1e-9),
        linear.Perceptron(),
        linear.StochasticLinearClassifier(random_state=0),
        kernel.SVC(tol=1e-9),
        kernel.SVR(tol=1e-9),
        kernel.KernelRidge(),
        kernel.KernelLogisticRegression(tol=1e-9),
        kernel.KernelPerceptron(),
        neighbors.KNeighborsClassifier(),
        neighbors.KNeighborsRegressor(),
        factor.DeepLinearNetwork(),
        factor.FactorAnalysis(),
        factor.LinearAutoencoder(),
        factor.ProbabilisticPCA(),
        factor.PCA(),
        factor.TruncatedSVD(),
        mixture.KMeans(random_state=0),
        mixture.GaussianMixture(),
        # The attribute stands in X, for these checks pass X and y alone.
        fairness.CovariancePenalty(logistic, sensitive_columns=[0]),
        fairness.Decorrelation(sensitive_columns=[0]),
        fairness.GroupReduction(logistic, sensitive_columns=(), random_state=0),
        fairness.GroupThresholds(logistic, sensitive_columns=(), random_state=0),
    ]


def _networks() -> list[Any]:
    """Those that need PyTorch: none without it."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        return []
    from certus import deep, linear
    from certus.testing.toys import TinyNetwork

    # All rows in each step, so that a weight is a repetition.
    options: dict[str, Any] = {"batch_size": None, "tol": 1e-3, "random_state": 0}
    student = deep.NeuralClassifier(TinyNetwork(), max_iter=1000, **options)
    return [
        deep.NeuralClassifier(TinyNetwork(), max_iter=1000, **options),
        deep.NeuralRegressor(TinyNetwork(), max_iter=1000, **options),
        deep.Distilled(student, linear.LogisticRegression(tol=1e-10)),
        deep.ConvNetClassifier(max_iter=50, **options),
        deep.RecurrentClassifier(max_iter=50, **options),
        deep.RecurrentRegressor(max_iter=100, **options),
    ]


def supervised() -> list[Any]:
    """Those that predict a target and prove it best: no clusterings, no networks.

    Nor interventions of ``certus.fairness``, which hold other estimators.

    Examples
    --------
    >>> from certus.testing.instances import supervised
    >>> any(type(e).__name__ == "FactorAnalysis" for e in supervised())
    False
    """
    from sklearn.utils import get_tags

    return [
        e
        for e in instances()
        if get_tags(e).target_tags.required
        and not type(e).__module__.startswith(("certus.deep", "certus.fairness"))
    ]
