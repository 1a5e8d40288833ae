"""A whole comparison, repeated: the sealed interval holds, the winner's folds do not.

Labels of a known distribution, so that the risk of any fitted model can be had from a
large fresh sample.
"""

import numpy as np
import pytest
from scipy.stats import binom

import certus
from certus.linear_model import LogisticRegression
from certus.neighbors import KNeighborsClassifier
from certus.verify.statistical import risk_interval

pytestmark = pytest.mark.slow


def draw(n, rng):
    """Three useless columns beside one that tells the label in two cases of three."""
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 4))
    X[:, 0] += 0.9 * (2 * y - 1)
    return X, y


def test_the_sealed_interval_holds_after_choosing():
    """At delta = 0.1; 2·delta would be rejected with power above 0.95."""
    repeats, delta = 220, 0.1
    rng = np.random.default_rng(0)
    fresh, truth = draw(30_000, rng)
    models = {f"k = {k}": KNeighborsClassifier(k) for k in (1, 2, 3, 5, 8)}
    models["logistic"] = LogisticRegression()
    missed, optimism = 0, []
    for seed in range(repeats):
        X, y = draw(80, rng)
        found = certus.compare(X, y, models=models, delta=delta, random_state=seed)
        risk = np.mean(found.model.predict(fresh) != truth)
        sealed = found.split.sealed
        wrong = found.model.predict(X[sealed]) != y[sealed]
        ends = risk_interval(wrong, "binary", delta=delta)
        assert ends.high == found.risk[0].value
        missed += not ends.low <= risk <= ends.high
        optimism.append(risk - found.best.mean)
    allowed = binom.ppf(0.99, repeats, delta)
    assert binom.cdf(allowed, repeats, 2 * delta) < 0.05  # the power promised above
    assert missed <= allowed
    # The least of several fold errors is too good, which is why rows are sealed.
    assert np.mean(optimism) > 2 * np.std(optimism) / np.sqrt(repeats)


def test_fold_errors_stay_within_the_union_bound():
    """All candidates and folds at once, against the risks of the folds' models."""
    rng = np.random.default_rng(1)
    fresh, truth = draw(20_000, rng)
    model = KNeighborsClassifier(3)
    missed = 0
    for seed in range(40):
        X, y = draw(150, rng)
        found = certus.compare(X, y, models=[model], random_state=seed)
        for (train, _), error in zip(found.split.folds, found.best.errors, strict=True):
            risk = np.mean(model.fit(X[train], y[train]).predict(fresh) != truth)
            missed += abs(error - risk) > found.union.value
    assert missed == 0  # 0.05 at most per comparison, and Hoeffding is generous
