"""Faults planted in clusterings, mixtures, components and factors: none is proved.

Wrong labels, moved centres, swapped components, wrong variances and noise, a start of
another fit, parameters changed after the fit, weights where there are none; on rows of
small integers, of single precision, far from zero, tiny, and with enormous weights.
"""

import copy
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import cluster

import certus
from certus.certificate import Status
from certus.mixture import KMeans

rng = np.random.default_rng(0)
X = rng.normal(size=(150, 4)) + 6 * rng.integers(0, 3, size=(150, 1))


def changed(model: Any, **changes: Any) -> Any:
    model = copy.deepcopy(model)
    for name, value in changes.items():
        setattr(model, name, value)
    return model


def quiet(model: Any, *data: Any, **options: Any) -> Any:
    with certus.config_context(on_uncertified="ignore"):
        return model.fit(*data, **options)


FORMS = {
    "float64": X,
    "float32": X.astype(np.float32),
    "float32, far": (X + 1e4).astype(np.float32),
    "far": X + 1e7,
    "tiny": X * 1e-165,
    "uint8": (8 * (X + 5)).clip(0, 255).astype(np.uint8),
    "int8": (6 * X).clip(-128, 127).astype(np.int8),
    "sparse uint8": sparse.csr_matrix((8 * (X + 5)).clip(0, 255).astype(np.uint8)),
    "sparse, far": sparse.csr_matrix(X + 1e7),
}
ROWS = pytest.mark.parametrize("rows", FORMS.values(), ids=FORMS)


# -- k-means ----------------------------------------------------------------------


@ROWS
@pytest.mark.parametrize("cls", [KMeans, cluster.KMeans])
def test_wrong_labels_and_moved_centres_at_any_scale_and_type(cls, rows):
    if cls is cluster.KMeans and rows.dtype.kind == "f" and abs(rows).max() < 1e-100:
        pytest.skip("scikit-learn's squares vanish there")
    model = quiet(cls(3, n_init=1, random_state=0), rows)
    assert certus.certify(model, rows)["nearest_centres"].met
    wrong = model.labels_.copy()
    wrong[:100] = (wrong[:100] + 1) % 3
    found = certus.certify(changed(model, labels_=wrong), rows)
    assert found.met is False and found["nearest_centres"].value == 100
    centres = model.cluster_centers_.astype(np.float64)
    centres[0] += 0.1 * np.ptp(centres, axis=0)
    assert certus.certify(changed(model, cluster_centers_=centres), rows).met is False


@pytest.mark.parametrize("shift", [0.0, 1e3, 1e5])
def test_one_wrong_label_in_single_precision(shift):
    # Slack by norms instead of distances let 100 of 150 wrong labels pass.
    Z = (X + shift).astype(np.float32)
    model = quiet(KMeans(3, random_state=0), Z)
    for row in range(0, 150, 10):
        labels = model.labels_.copy()
        labels[row] = (labels[row] + 1) % 3
        claim = certus.certify(changed(model, labels_=labels), Z)["nearest_centres"]
        assert claim.met is False and claim.value == 1


def test_a_tie_is_told_by_distances_and_not_by_norms():
    Z = np.array([[0.0], [1.0], [3.0], [4.0], [2.0]])
    model = quiet(KMeans(2, init=[[0.5], [3.5]], max_iter=1), Z)
    model.cluster_centers_, model.inertia_ = np.array([[0.5], [3.5]]), 3.25
    for label in (0, 1):  # either is right
        model.labels_ = np.array([0, 0, 1, 1, label])
        assert certus.certify(model, Z)["nearest_centres"].met
    model.cluster_centers_ = np.array([[0.5], [3.5 - 1e-7]])
    model.labels_ = np.array([0, 0, 1, 1, 0])
    assert certus.certify(model, Z)["nearest_centres"].met is False


def test_rows_that_differ_by_the_smallest_numbers():
    # Squares of their differences vanish.
    Z = np.array([[0.0], [1e-170], [1.0]])
    model = quiet(KMeans(3, init=Z), Z)
    model.labels_ = np.array([1, 0, 2])
    assert certus.certify(model, Z)["nearest_centres"].met is False


def test_enormous_weights():
    s = np.full(150, 1e308)
    model = quiet(KMeans(3, random_state=0), X)
    assert certus.certify(model, X, sample_weight=s)["centre_shift"].met
    labels = np.roll(model.labels_, 1)
    found = certus.certify(changed(model, labels_=labels), X, sample_weight=s)
    assert found.met is False


@pytest.mark.parametrize("cls", [KMeans, cluster.KMeans, cluster.MiniBatchKMeans])
def test_clusters_of_other_parameters(cls):
    model = quiet(cls(3, n_init=1, random_state=0), X)
    found = certus.certify(model.set_params(n_clusters=5), X)
    assert found.met is False and found.status is not Status.SOLVED
    model = quiet(KMeans(3, init=X[:3], tol=1.0), X)
    assert certus.certify(model.set_params(tol=1e-9), X).met is not True


def test_no_room_for_rounding_is_undecided():
    Z = X + 1e12  # rows a thousand steps of float64 apart
    found = certus.certify(quiet(KMeans(3, tol=1e-30, random_state=0), Z), Z)
    assert found.met is not True
