"""The Bayes classifier on known distributions, against closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier

from certus.linear_model import LogisticRegression
from certus.neighbors import BayesClassifier, KNeighborsClassifier


def mixture() -> BayesClassifier:
    """Three Gaussians in the plane, unequal in size and shape."""
    means = [[0.0, 0.0], [2.0, 0.5], [0.5, 2.0]]
    shapes = [np.eye(2), [[1.0, 0.6], [0.6, 1.0]], [[0.5, 0.0], [0.0, 2.0]]]
    densities = [stats.multivariate_normal(m, S) for m, S in zip(means, shapes)]
    return BayesClassifier([0.5, 0.3, 0.2], densities, ["a", "b", "c"])


@pytest.mark.catalog("CLS-18")
def test_the_rule_is_the_most_probable_label() -> None:
    best = mixture()
    X = np.random.default_rng(0).normal(1, 2, (200, 2))
    joint = np.stack(
        [p * d.pdf(X) for p, d in zip(best.priors, best.densities)], axis=1
    )
    np.testing.assert_allclose(
        best.predict_proba(X), joint / joint.sum(axis=1, keepdims=True), rtol=1e-10
    )
    assert np.array_equal(best.predict(X), best.classes[joint.argmax(axis=1)])


@pytest.mark.catalog("CLS-18")
@pytest.mark.parametrize("gap", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("d", [1, 5])
def test_the_risk_of_two_gaussians_is_known(gap: float, d: int) -> None:
    """Equal priors and covariance: R* = Φ(−‖μ₁ − μ₀‖/2)."""
    mean = np.zeros(d)
    mean[0] = gap
    best = BayesClassifier(
        [0.5, 0.5],
        [stats.multivariate_normal(-mean, 1.0), stats.multivariate_normal(mean, 1.0)],
    )
    risk = best.risk(50_000, random_state=0, delta=1e-3)
    assert risk.low < stats.norm.cdf(-gap) < risk.high
    assert risk.high - risk.low < 0.02


@pytest.mark.catalog("CLS-18")
def test_no_fitted_classifier_beats_it() -> None:
    best = mixture()
    X, y = best.sample(3000, random_state=0)
    test_X, test_y = best.sample(40_000, random_state=1)
    risk = best.risk(random_state=2)
    own = (best.predict(test_X) != test_y).mean()
    # Hoeffding on 40,000 rows at 1e-4 two-sided: 0.0112.
    assert risk.low - 0.0112 < own < risk.high + 0.0112
    for model in (
        KNeighborsClassifier(1),
        KNeighborsClassifier(25),
        LogisticRegression(),
        LinearDiscriminantAnalysis(),
        RandomForestClassifier(30, random_state=0),
    ):
        error = (model.fit(X, y).predict(test_X) != test_y).mean()
        assert error >= risk.low - 0.0112, type(model).__name__
        # On the same rows, too: paired differences are far less noisy.
        assert error >= own - 0.002, type(model).__name__


@pytest.mark.catalog("CLS-18")
def test_discrete_distributions() -> None:
    best = BayesClassifier([0.6, 0.4], [stats.poisson(2.0), stats.poisson(6.0)])
    counts = np.arange(60)
    joint = np.stack(
        [0.6 * stats.poisson.pmf(counts, 2), 0.4 * stats.poisson.pmf(counts, 6)]
    )
    exact = 1 - joint.max(axis=0).sum()
    risk = best.risk(50_000, random_state=0)
    assert risk.low < exact < risk.high
    neighbour = best.neighbor_risk(50_000, random_state=0)
    expected = (2 * joint.prod(axis=0) / joint.sum(axis=0)).sum()
    assert neighbour.low < expected < neighbour.high


def test_outside_every_support_the_priors_decide() -> None:
    best = BayesClassifier([0.3, 0.7], [stats.uniform(0, 1), stats.uniform(2, 1)])
    np.testing.assert_allclose(best.predict_proba([[1.5]]), [[0.3, 0.7]])
    assert best.risk(1000, random_state=0).value == 0.0


def test_samples_follow_the_priors_and_the_seed() -> None:
    best = mixture()
    X, y = best.sample(20_000, random_state=3)
    again, _ = best.sample(20_000, random_state=3)
    assert np.array_equal(X, again) and X.shape == (20_000, 2)
    assert (y == "a").mean() == pytest.approx(0.5, abs=0.02)
    np.testing.assert_allclose(X[y == "b"].mean(axis=0), [2.0, 0.5], atol=0.08)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([0.5, 0.4], [stats.norm(0), stats.norm(1)]), ValueError, "sum to one"),
        (([1.5, -0.5], [stats.norm(0), stats.norm(1)]), ValueError, "non-negative"),
        (([1.0], [stats.norm(0), stats.norm(1)]), ValueError, "one number per density"),
        (([0.5, 0.5], [stats.norm(0), "normal"]), TypeError, "logpdf"),
        (([0.5, 0.5], [stats.norm(0), stats.norm(1)], ["a"]), ValueError, "2 labels"),
    ],
)
def test_bad_arguments_are_named(arguments: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        BayesClassifier(*arguments)


def test_dimensions_must_agree() -> None:
    with pytest.raises(ValueError, match="dimension"):
        BayesClassifier([1.0], [stats.norm(0)]).predict(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="rows × columns"):
        mixture().predict(np.zeros(2))
