"""Few labels, many rows: how many labels the rows without one are worth.

Label efficiency is compared at several numbers of labels, always on rows that no fit
has seen; the control replaces the rows without labels by ones that say nothing.
"""

import math

import numpy as np
import pytest
from sklearn.datasets import make_moons

from certus.linear_model import LogisticRegression
from certus.mixture import GaussianMixture
from certus.neural_network import ConsistentClassifier, NeuralClassifier
from certus.neural_network.modules import MLP

#: All epochs of the plan, however little the last ones gain.
PLAN = {"schedule": "cosine", "n_iter_no_change": math.inf, "learning_rate": 0.01}


def network():
    return NeuralClassifier(
        lambda n, k: MLP(n, (50, 50), k),
        max_iter=60,
        batch_size=32,
        random_state=0,
        **PLAN,
    )


def moons(seed, labels):
    """Two moons, some rows of each labelled, the others −1; and rows to judge by."""
    X, y = make_moons(400, noise=0.1, random_state=seed)
    rng = np.random.default_rng(seed)
    known = np.concatenate(
        [rng.choice(np.flatnonzero(y == c), labels, False) for c in (0, 1)]
    )
    few = np.full(400, -1)
    few[known] = y[known]
    return X, few, make_moons(1000, noise=0.1, random_state=1000 + seed)


def alone(seed, labels):
    """Accuracy of the network that sees the labelled rows only."""
    X, few, test = moons(seed, labels)
    return network().fit(X[few >= 0], few[few >= 0]).score(*test)


def together(seed, labels, blur=False):
    """Accuracy with the other rows, or with as many from all over the plane."""
    X, few, test = moons(seed, labels)
    if blur:
        rng = np.random.default_rng(seed)
        spread = rng.uniform(X.min(axis=0), X.max(axis=0), size=X.shape)
        X = np.where((few >= 0)[:, None], X, spread)
    model = ConsistentClassifier(network(), alpha=5.0, noise=0.1)
    return model.fit(X, few).score(*test)


@pytest.mark.catalog("NN-54")
def test_rows_without_labels_are_worth_labels_on_two_moons():
    seeds = (1, 2, 3)
    ten, more = ([alone(seed, labels) for seed in seeds] for labels in (10, 20))
    helped = [together(seed, 10) for seed in seeds]
    assert min(np.subtract(helped, ten)) > 0.02  # each time better than without
    assert np.mean(helped) > np.mean(more) + 0.02  # and than twice the labels
    assert min(helped) > 0.94
    # Rows that do not gather anywhere say nothing of where the classes part.
    idle = [together(seed, 10, blur=True) for seed in seeds]
    assert np.mean(idle) < np.mean(helped) - 0.02


@pytest.mark.catalog("NN-54")
def test_a_density_of_all_rows_needs_a_label_for_each_cluster():
    """Two clusters: the mixture finds them alone, two labels say which is which."""
    rng = np.random.default_rng(0)
    apart = 2 * np.eye(10)[0]  # the best rule is right with probability Φ(2)
    named, direct = [], {1: [], 5: []}
    for seed in range(15):
        y = rng.integers(0, 2, 300)
        X = rng.normal(size=(300, 10)) + (2 * y - 1)[:, None] * apart
        mixture = GaussianMixture(2, covariance_type="spherical", random_state=seed)
        mixture.fit(X)
        first = [int(np.flatnonzero(y == c)[0]) for c in (0, 1)]
        claims = mixture.predict_proba(X[first])  # which group each label points at
        turned = claims[0, 1] + claims[1, 0] > claims[0, 0] + claims[1, 1]
        named.append(np.mean((mixture.predict(X) != turned) == y))
        for labels, scores in direct.items():
            some = [i for c in (0, 1) for i in np.flatnonzero(y == c)[:labels]]
            scores.append(LogisticRegression().fit(X[some], y[some]).score(X, y))
    assert np.median(named) > 0.96
    assert np.median(named) > np.median(direct[1]) + 0.05
    assert np.median(named) > np.median(direct[5]) + 0.01
