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
    from certus import (
        cluster,
        decomposition,
        fairness,
        kernel_ridge,
        kernels,
        linear_model,
        mixture,
        neighbors,
        neural_network,
        svm,
    )

    logistic = linear_model.LogisticRegression(tol=1e-7)
    return [
        *_networks(),
        neural_network.MLPClassifier(max_iter=1000, tol=1e-3, random_state=0),
        neural_network.MLPRegressor(max_iter=3000, tol=1e-2, random_state=0),
        linear_model.LinearRegression(),
        linear_model.Ridge(),
        linear_model.RidgeCV(),
        linear_model.RidgeClassifier(),
        linear_model.Lasso(tol=1e-9),
        linear_model.LassoCV(tol=1e-9),
        linear_model.ElasticNet(tol=1e-9),
        linear_model.ElasticNetCV(tol=1e-9),
        linear_model.MultiTaskElasticNet(tol=1e-9),
        linear_model.MultiTaskElasticNetCV(tol=1e-9),
        linear_model.MultiTaskLasso(tol=1e-9),
        linear_model.MultiTaskLassoCV(tol=1e-9),
        linear_model.GroupLasso(tol=1e-9),
        linear_model.WeightedLasso(tol=1e-9),
        linear_model.LogisticRegression(tol=1e-7),
        linear_model.LogisticRegressionCV(tol=1e-7),
        linear_model.RobustRegressor(tol=1e-9),
        linear_model.HuberRegressor(tol=1e-9),
        linear_model.QuantileRegressor(tol=1e-7),
        linear_model.GeneralizedLinearModel(),
        linear_model.PoissonRegressor(tol=1e-9),
        svm.LinearSVC(tol=1e-9),
        svm.LinearSVR(tol=1e-9),
        linear_model.Perceptron(),
        linear_model.StochasticLinearClassifier(random_state=0),
        svm.SVC(tol=1e-9),
        svm.SVR(tol=1e-9),
        kernel_ridge.KernelRidge(),
        kernels.KernelLogisticRegression(tol=1e-9),
        kernels.KernelPerceptron(),
        neighbors.KNeighborsClassifier(),
        neighbors.KNeighborsRegressor(),
        decomposition.DeepLinearNetwork(),
        decomposition.FactorAnalysis(),
        decomposition.LinearAutoencoder(),
        decomposition.ProbabilisticPCA(),
        decomposition.PCA(),
        decomposition.TruncatedSVD(),
        cluster.KMeans(random_state=0),
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
    from certus import linear_model, neural_network
    from certus.testing.toys import TinyNetwork

    # All rows in each step, so that a weight is a repetition.
    options: dict[str, Any] = {"batch_size": None, "tol": 1e-3, "random_state": 0}
    student = neural_network.NeuralClassifier(TinyNetwork(), max_iter=1000, **options)
    return [
        neural_network.NeuralClassifier(TinyNetwork(), max_iter=1000, **options),
        neural_network.NeuralRegressor(TinyNetwork(), max_iter=1000, **options),
        neural_network.Distilled(student, linear_model.LogisticRegression(tol=1e-10)),
        neural_network.ConvNetClassifier(max_iter=50, **options),
        neural_network.RecurrentClassifier(max_iter=50, **options),
        neural_network.RecurrentRegressor(max_iter=100, **options),
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
        and not type(e).__module__.startswith(
            ("certus.neural_network", "certus.fairness")
        )
    ]
