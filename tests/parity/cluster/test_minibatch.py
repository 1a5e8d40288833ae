"""k-means from batches beside scikit-learn's: same updates, as good, exchangeable."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import cluster
from sklearn.datasets import load_digits, load_iris, make_blobs

import certus
from certus.cluster import MiniBatchKMeans

X = load_iris().data


@pytest.fixture(autouse=True)
def _quiet():
    with certus.config_context(on_uncertified="ignore"):
        yield


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_given_batches_move_centres_as_in_scikit_learn(form, dtype):
    rows, s = X.astype(dtype), np.linspace(0.5, 2.0, len(X))
    options = {"init": rows[[0, 60, 120]], "n_init": 1, "reassignment_ratio": 0}
    ours = MiniBatchKMeans(3, **options)
    theirs = cluster.MiniBatchKMeans(3, **options)
    for part in np.split(np.arange(150).reshape(3, 50).T.ravel(), 5):
        for model in (ours, theirs):
            model.partial_fit(form(rows[part]), sample_weight=s[part])
        rtol = 1e-10 if dtype is np.float64 else 1e-5
        np.testing.assert_allclose(
            ours.cluster_centers_, theirs.cluster_centers_, rtol=rtol
        )
        np.testing.assert_array_equal(ours.labels_, theirs.labels_)
        assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=100 * rtol)
    assert ours.n_steps_ == theirs.n_steps_
    assert ours.cluster_centers_.dtype == theirs.cluster_centers_.dtype
    assert ours.labels_.dtype == theirs.labels_.dtype


@pytest.mark.parametrize("batch_size", [100, 1024])
def test_the_inertia_is_as_low_as_that_of_scikit_learn(batch_size):
    blobs, _ = make_blobs(3000, centers=12, n_features=6, random_state=1)
    for rows, k in ((load_digits().data, 10), (blobs, 12), (X, 3)):
        levels = [
            [
                cls(k, batch_size=batch_size, random_state=seed).fit(rows).inertia_
                for seed in range(12)
            ]
            for cls in (MiniBatchKMeans, cluster.MiniBatchKMeans)
        ]
        width = np.hypot(*np.std(levels, axis=1)) / np.sqrt(12)
        ours, theirs = np.mean(levels, axis=1)
        assert ours <= theirs * 1.02 + 2 * width


def test_the_verifier_says_the_same_of_both():
    ours = MiniBatchKMeans(3, batch_size=32, random_state=0).fit(X)
    theirs = cluster.MiniBatchKMeans(3, batch_size=32, random_state=0).fit(X)
    for name in ("cluster_centers_", "labels_", "inertia_"):
        setattr(theirs, name, getattr(ours, name))
    a, b = certus.certify(ours, X), certus.certify(theirs, X)
    assert a.status is b.status and a.met == b.met
    for claim in a.claims:
        assert (b[claim.name].met, b[claim.name].value) == (claim.met, claim.value)
    bare = cluster.MiniBatchKMeans(3, compute_labels=False, random_state=0).fit(X)
    assert [c.name for c in certus.certify(bare, X).claims] == ["centre_shift"]


@pytest.mark.parametrize("labels", [True, False])
def test_export_predicts_and_goes_on_alike(labels):
    ours = MiniBatchKMeans(3, compute_labels=labels, random_state=0).fit(X)
    theirs = ours.to_sklearn()
    assert type(theirs) is cluster.MiniBatchKMeans
    assert hasattr(theirs, "labels_") == labels
    assert (theirs.n_steps_, theirs.n_iter_) == (ours.n_steps_, ours.n_iter_)
    np.testing.assert_array_equal(theirs.predict(X), ours.predict(X))
    np.testing.assert_allclose(theirs.transform(X), ours.transform(X))
    assert theirs.score(X) == pytest.approx(ours.score(X))
    for model in (ours, theirs):
        model.partial_fit(X[:40])
    np.testing.assert_allclose(theirs.cluster_centers_, ours.cluster_centers_)


def test_warnings_and_messages_are_those_of_scikit_learn():
    for cls in (MiniBatchKMeans, cluster.MiniBatchKMeans):
        with pytest.warns(RuntimeWarning, match="init_size=2 should be larger"):
            cls(3, init_size=2, random_state=0).fit(X)
        with pytest.warns(RuntimeWarning, match="performing only one init in MiniBatc"):
            cls(3, init=X[:3], n_init=4).fit(X)
        with pytest.raises(ValueError, match="n_samples=2 should be >= n_clusters=3"):
            cls(3).partial_fit(X[:2])


def test_callable_starts_get_some_of_the_rows():
    seen = []

    def first(rows, k, random_state):
        assert isinstance(random_state, np.random.RandomState)
        seen.append(len(rows))
        return rows[:k]

    MiniBatchKMeans(3, init=first, init_size=40, random_state=0).fit(X)
    assert seen == [40, 40, 40]
