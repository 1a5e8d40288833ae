"""Label propagation, spreading and spectral clustering beside scikit-learn's."""

import warnings

import numpy as np
import pytest
from sklearn import cluster, semi_supervised
from sklearn.datasets import load_digits, load_iris, make_circles, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import certus
from certus.cluster import SpectralClustering
from certus.semi_supervised import LabelPropagation, LabelSpreading

X, y = load_iris(return_X_y=True)
FEW = np.where(np.random.default_rng(0).random(150) < 0.3, y, -1)
MOONS, SIDES = make_moons(120, noise=0.05, random_state=0)


@pytest.mark.parametrize("alpha", [0.2, 0.8])
@pytest.mark.parametrize("scale", [0.1, 0.25])
def test_labels_far_from_all_others_follow_scores_of_any_size(alpha, scale):
    """In scikit-learn's own example scores fall to 1e-40 and below."""
    rows, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(2).permutation(len(rows))[:340]
    few = np.where(np.arange(340) < 40, labels[order], -1)
    mine = LabelSpreading(gamma=scale, alpha=alpha).fit(rows[order], few)
    theirs = semi_supervised.LabelSpreading(
        gamma=scale, alpha=alpha, tol=0.0, max_iter=200
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(rows[order], few)
    np.testing.assert_array_equal(mine.transduction_, theirs.transduction_)
    np.testing.assert_allclose(
        mine.label_distributions_, theirs.label_distributions_, atol=1e-3
    )


@pytest.mark.parametrize("name", ["LabelPropagation", "LabelSpreading"])
@pytest.mark.parametrize(
    "kernel", ["rbf", "knn", lambda A, B: np.exp(-np.abs(A[:, None] - B).sum(axis=2))]
)
def test_labels_are_those_of_a_long_iteration(name, kernel):
    ours = {"LabelPropagation": LabelPropagation, "LabelSpreading": LabelSpreading}[
        name
    ]
    mine = ours(kernel, gamma=5).fit(X, FEW)
    theirs = getattr(semi_supervised, name)(kernel, gamma=5, tol=1e-12, max_iter=5_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(X, FEW)
    np.testing.assert_allclose(
        mine.label_distributions_, theirs.label_distributions_, atol=1e-5
    )
    np.testing.assert_array_equal(mine.transduction_, theirs.transduction_)
    np.testing.assert_array_equal(mine.classes_, theirs.classes_)
    new = X[::7] + 0.05
    np.testing.assert_allclose(
        mine.predict_proba(new), theirs.predict_proba(new), atol=1e-5
    )
    assert mine.certificate_.met


def test_a_model_of_scikit_learn_is_judged_by_where_its_iteration_ended():
    rough = semi_supervised.LabelSpreading(gamma=5, alpha=0.8, tol=0.5).fit(X, FEW)
    fine = semi_supervised.LabelSpreading(gamma=5, alpha=0.8, tol=1e-9, max_iter=500)
    fine.fit(X, FEW)
    loose, tight = (certus.certify(m, X, FEW) for m in (rough, fine))
    assert tight["propagation_error"].met
    assert loose["propagation_error"].value > 100 * tight["propagation_error"].value
    refused = certus.certify(semi_supervised.LabelSpreading("knn").fit(X, FEW), X, FEW)
    assert refused.claims[0].strength.value == "refused"


@pytest.mark.parametrize("affinity", ["rbf", "nearest_neighbors"])
@pytest.mark.parametrize("assign", ["kmeans", "discretize", "cluster_qr"])
def test_clusters_are_the_same(affinity, assign):
    options = {"affinity": affinity, "assign_labels": assign, "gamma": 20}
    mine = SpectralClustering(2, random_state=0, **options).fit(MOONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = cluster.SpectralClustering(2, random_state=0, **options).fit(MOONS)
    assert adjusted_rand_score(mine.labels_, theirs.labels_) == 1
    a, b = mine.affinity_matrix_, theirs.affinity_matrix_
    np.testing.assert_allclose(
        np.asarray(a - b), 0, atol=1e-10
    ) if affinity == "rbf" else (np.testing.assert_allclose(a.toarray(), b.toarray()))


def test_more_clusters_and_given_affinities():
    rows, _ = make_circles(150, factor=0.3, noise=0.05, random_state=0)
    K = np.exp(-8 * ((rows[:, None] - rows) ** 2).sum(axis=2))
    mine = SpectralClustering(3, affinity="precomputed", random_state=0).fit(K)
    theirs = cluster.SpectralClustering(3, affinity="precomputed", random_state=0).fit(
        K
    )
    assert adjusted_rand_score(mine.labels_, theirs.labels_) > 0.9
    own = mine.certificate_["normalised_cut"].value
    judged = certus.certify(theirs, K)["normalised_cut"]
    assert judged.strength.value == "proved"
    assert own <= judged.value * 1.05
