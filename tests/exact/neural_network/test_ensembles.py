"""Bagging: what a bootstrap sample holds, and what the mean of members gains."""

import numpy as np
import pytest
from scipy.stats import binom, chisquare
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import scale

import certus
from certus.neural_network import (
    BaggedNetworks,
    NeuralClassifier,
    NeuralRegressor,
    RecurrentClassifier,
    SequenceTagger,
    bootstrap_counts,
)
from certus.neural_network.modules import MLP

X, y = load_iris(return_X_y=True)
X = scale(X)


def small(n, k):
    """A network small enough to be trained by the dozen."""
    return MLP(n, 8, k)


SETTINGS = {
    "learning_rate": 0.05,
    "schedule": "cosine",
    "max_iter": 20,
    "batch_size": 32,
}
CLASSIFIER = NeuralClassifier(small, **SETTINGS)
REGRESSOR = NeuralRegressor(small, **SETTINGS)


@pytest.mark.catalog("NN-43")
def test_counts_of_a_bootstrap_sample_are_binomial():
    rng = np.random.default_rng(0)
    n, repeats = 40, 2000
    counts = np.array([bootstrap_counts(n, random_state=rng) for _ in range(repeats)])
    assert (counts.sum(axis=1) == n).all()
    wanted = binom.pmf(np.arange(5), n, 1 / n)
    wanted = np.append(wanted, 1 - wanted.sum())
    for row in counts.T:  # every row, the first and the last too
        found = np.bincount(np.minimum(row, 5), minlength=6)
        assert chisquare(found, wanted * repeats).pvalue > 1e-3 / n
    # Two rows have nothing to do with each other but that all counts sum to n.
    between = np.corrcoef(counts.T)[~np.eye(n, dtype=bool)]
    assert np.abs(between + 1 / (n - 1)).max() < 5 / np.sqrt(repeats)
    short = bootstrap_counts(n, 7, random_state=rng)
    assert short.sum() == 7 and short.shape == (n,)


@pytest.mark.catalog("NN-42")
def test_a_bootstrap_sample_holds_63_percent_of_the_rows():
    shares = [
        np.mean(bootstrap_counts(10_000, random_state=seed) > 0) for seed in range(20)
    ]
    assert np.mean(shares) == pytest.approx(1 - np.exp(-1), abs=2e-3)


@pytest.mark.catalog("NN-42")
def test_the_mean_varies_less_than_its_members():
    rng = np.random.default_rng(0)
    at = rng.normal(size=(20, 2))
    means, members = [], []
    for seed in range(8):  # as many data sets
        Z = rng.normal(size=(30, 2))
        target = np.sin(2 * Z[:, 0]) + 0.5 * rng.normal(size=30)
        bag = BaggedNetworks(REGRESSOR, n_estimators=4, random_state=seed).fit(
            Z, target
        )
        means.append(bag.predict(at))
        members.append([member.predict(at) for member in bag.estimators_])
    of_mean = np.var(means, axis=0)
    of_members = np.var(members, axis=0).mean(axis=0)
    assert (of_mean <= of_members).all()
    assert of_mean.mean() < 0.8 * of_members.mean()


@pytest.mark.catalog("NN-42")
def test_the_error_of_the_mean_is_that_of_the_members_less_their_spread():
    target = X[:, 3]
    bag = BaggedNetworks(REGRESSOR, n_estimators=5, random_state=0).fit(
        X[:, :3], target
    )
    mean, spread = bag.predict_spread(X[:, :3])
    errors = [(m.predict(X[:, :3]) - target) ** 2 for m in bag.estimators_]
    np.testing.assert_allclose(
        (mean - target) ** 2, np.mean(errors, axis=0) - spread**2, atol=1e-5
    )
    np.testing.assert_array_equal(bag.predict(X[:, :3]), mean)
    assert len({m.predict(X[:1, :3])[0] for m in bag.estimators_}) == 5
    assert bag.score(X[:, :3], target) > 0.9


def test_rows_out_of_the_bag_judge_fairly():
    rng = np.random.default_rng(0)
    Z, coin = rng.normal(size=(120, 6)), rng.integers(2, size=120)
    eager = NeuralClassifier(
        lambda n, k: MLP(n, 64, k),
        learning_rate=0.02,
        schedule="cosine",
        max_iter=80,
    )
    bag = BaggedNetworks(eager, n_estimators=7, random_state=0).fit(Z, coin)
    assert bag.score(Z, coin) > 0.85  # learnt by heart
    assert 0.35 < bag.oob_score_ < 0.65  # and worth nothing
    good = BaggedNetworks(CLASSIFIER, n_estimators=7, random_state=0).fit(X, y)
    assert good.oob_score_ > 0.9


@pytest.mark.catalog("NN-42")
def test_members_are_fitted_to_the_rows_that_were_drawn():
    s = np.arange(150) % 3 + 0.0  # some rows are absent
    bag = BaggedNetworks(CLASSIFIER, n_estimators=2, random_state=1).fit(X, y, s)
    again = BaggedNetworks(CLASSIFIER, n_estimators=2, random_state=1).fit(X, y, s)
    p = bag.predict_proba(X)
    np.testing.assert_array_equal(p, again.predict_proba(X))
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(bag.predict(X), bag.classes_[p.argmax(axis=1)])
    members = [m.predict_proba(X) for m in bag.estimators_]
    np.testing.assert_allclose(p, np.mean(members, axis=0), rtol=1e-6)


def test_images_and_labels_of_several_columns_are_bagged():
    images = np.random.default_rng(0).normal(size=(40, 3, 3))
    labels = np.column_stack([images[:, 0, 0] > 0, images[:, 1, 1] > 0]).astype(int)
    net = NeuralClassifier(lambda n, k: MLP(9, 8, k), **SETTINGS)
    bag = BaggedNetworks(net, n_estimators=2, random_state=0).fit(images, labels)
    found = bag.predict(images)
    assert found.shape == labels.shape and set(np.unique(found)) <= {0, 1}
    assert np.isfinite(bag.oob_score_)


def test_models_without_randomness_are_bagged_too():
    bag = BaggedNetworks(LogisticRegression(), n_estimators=3, random_state=0).fit(X, y)
    assert bag.score(X, y) > 0.9
    with pytest.raises(TypeError, match="sample_weight"):
        BaggedNetworks(KNeighborsClassifier(), n_estimators=3).fit(X, y)
    with pytest.raises(TypeError, match="neither a classifier nor a regressor"):
        BaggedNetworks(SequenceTagger(), n_estimators=3).fit(["ab", "b"], [[0, 1], [1]])
    with pytest.raises(ValueError, match="n_estimators"):
        BaggedNetworks(CLASSIFIER, n_estimators=0).fit(X, y)
    with pytest.raises(ValueError, match="sample_weight"):
        BaggedNetworks(CLASSIFIER, n_estimators=2).fit(X, y, np.zeros(150))


@pytest.mark.slow
def test_members_do_not_depend_on_how_many_are_fitted_at_a_time():
    words = ["ab", "b", "a", "", "ba", "bb", "aab"] * 3
    sequences = RecurrentClassifier(width=4, schedule="cosine", max_iter=20)
    for model, rows, target in (
        (CLASSIFIER, X, y),
        (REGRESSOR, X[:, :3], X[:, 3]),
        (sequences, words, np.array(["a" in w for w in words]).astype(int)),
    ):
        one = BaggedNetworks(model, n_estimators=3, random_state=0).fit(rows, target)
        two = BaggedNetworks(model, n_estimators=3, random_state=0, n_jobs=2).fit(
            rows, target
        )
        for found in ("predict", "predict_spread"):
            a, b = (np.asarray(getattr(bag, found)(rows)) for bag in (one, two))
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
        assert one.oob_score_ == pytest.approx(two.oob_score_)


@pytest.mark.catalog("NN-42")
def test_scikit_learn_bags_networks():
    bag = BaggingClassifier(CLASSIFIER, 3, oob_score=False, random_state=0).fit(X, y)
    assert bag.score(X, y) > 0.9
    bag = BaggingRegressor(REGRESSOR, 3, random_state=0).fit(X[:, :3], X[:, 3])
    assert bag.score(X[:, :3], X[:, 3]) > 0.8


def test_a_bag_is_cross_validated_and_saved(tmp_path):
    bag = BaggedNetworks(CLASSIFIER, n_estimators=2, random_state=0)
    assert cross_val_score(bag, X, y, cv=3).mean() > 0.85
    plain = BaggedNetworks(
        certus.linear_model.LogisticRegression(), n_estimators=2, random_state=0
    )
    plain.fit(X, y).save(tmp_path / "bag.certus")
    twin = certus.load(tmp_path / "bag.certus")
    np.testing.assert_array_equal(twin.predict_proba(X), plain.predict_proba(X))
