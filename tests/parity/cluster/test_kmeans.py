"""k-means against scikit-learn: the same start leads to the same end."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import cluster
from sklearn.datasets import load_digits, load_iris

import certus
from certus.cluster import KMeans, kmeans_plusplus


def data(name):
    return load_iris().data if name == "iris" else load_digits().data


@pytest.mark.catalog("LAT-02")
@pytest.mark.parametrize("name", ["iris", "digits"])
@pytest.mark.parametrize("tol", [0.0, 1e-4, 1e-2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_same_start_same_centres_labels_and_steps(name, tol, dtype, form):
    X = data(name).astype(dtype)
    k = 10 if name == "digits" else 3
    start = X[:: len(X) // k][:k]
    ours = KMeans(k, init=start, tol=tol).fit(form(X))
    theirs = cluster.KMeans(k, init=start, tol=tol, n_init=1).fit(form(X))
    tight = 1e-9 if dtype is np.float64 else 2e-3
    np.testing.assert_allclose(
        ours.cluster_centers_, theirs.cluster_centers_, atol=tight
    )
    assert np.mean(ours.labels_ != theirs.labels_) <= (0 if tight < 1e-6 else 0.002)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-5)
    if dtype is np.float64:
        assert ours.n_iter_ == theirs.n_iter_
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=10 * tight)
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-5)
    assert ours.transform(X).dtype == dtype


def test_weights_from_the_same_start():
    X = data("iris")
    s = np.random.default_rng(0).random(len(X))
    ours = KMeans(3, init=X[[0, 60, 120]], tol=0).fit(X, sample_weight=s)
    theirs = cluster.KMeans(3, init=X[[0, 60, 120]], tol=0).fit(X, sample_weight=s)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_)
    assert ours.inertia_ == pytest.approx(theirs.inertia_)


@pytest.mark.catalog("LAT-04")
def test_seeds_cost_no_more_than_those_of_scikit_learn_on_average():
    X = data("digits")

    def mean_cost(draw):
        found = (draw(X, 10, random_state=seed)[0] for seed in range(60))
        model = KMeans(10, init=X[:10], max_iter=1)
        with certus.config_context(on_uncertified="ignore"):
            model.fit(X)
        costs = []
        for model.cluster_centers_ in found:
            costs.append(-model.score(X))
        return np.mean(costs), np.std(costs) / np.sqrt(60)

    ours, width = mean_cost(kmeans_plusplus)
    theirs, their_width = mean_cost(cluster.kmeans_plusplus)
    assert ours <= theirs + 2 * np.hypot(width, their_width)


def test_certificates_of_scikit_learn_models():
    X = data("iris")
    whole = cluster.KMeans(3, tol=0, n_init=1, random_state=0).fit(X)
    found = certus.certify(whole, X)
    assert found.met and found["nearest_centres"].met and found["inertia"].met
    batch = cluster.MiniBatchKMeans(3, random_state=0, batch_size=32).fit(X)
    found = certus.certify(batch, X)
    assert found.met is False and found.value > 1e-4
    assert "init=model.cluster_centers_" in found[found.primary].fix
    on = KMeans(3, init=batch.cluster_centers_).fit(X)
    assert on.certificate_.met and on.inertia_ <= batch.inertia_


def test_an_early_end_of_scikit_learn_is_noticed():
    X = data("digits")
    early = cluster.KMeans(10, init=X[:10], max_iter=2, n_init=1).fit(X)
    found = certus.certify(early, X)
    assert found.met is False and found["nearest_centres"].met


def test_export_predicts_the_same():
    X = data("iris")
    model = KMeans(3, random_state=0).fit(X)
    theirs = model.to_sklearn()
    assert type(theirs) is cluster.KMeans
    np.testing.assert_array_equal(theirs.predict(X), model.predict(X))
    np.testing.assert_allclose(theirs.transform(X), model.transform(X))
    assert theirs.inertia_ == model.inertia_


def test_callable_and_repeated_starts():
    X = data("iris")

    def first(X, k, random_state):
        assert isinstance(random_state, np.random.RandomState)
        return X[:k]

    ours = KMeans(3, init=first, n_init=2).fit(X)
    np.testing.assert_allclose(
        ours.cluster_centers_, KMeans(3, init=X[:3]).fit(X).cluster_centers_
    )
    many = KMeans(6, init="random", n_init=8, random_state=0).fit(X)
    few = KMeans(6, init="random", n_init=1, random_state=0).fit(X)
    assert many.inertia_ <= few.inertia_
    with pytest.warns(RuntimeWarning, match="only one init"):
        KMeans(3, init=X[:3], n_init=4).fit(X)
