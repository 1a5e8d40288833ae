"""k-means from batches: averages, weights as repetition, order, passes and endings."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs

import certus
from certus.certificate import Status, Strength
from certus.cluster import KMeans, MiniBatchKMeans
from certus.cluster.minibatch import WeightedDraws
from certus.cluster.seeding import StartPool

X, _ = make_blobs(600, centers=5, n_features=3, random_state=0)


@pytest.fixture(autouse=True)
def _quiet():
    with certus.config_context(on_uncertified="ignore"):
        yield


def nearest(rows, centers):
    D = ((rows[:, None] - centers[None]) ** 2).sum(axis=2)
    return D.argmin(axis=1), D.min(axis=1)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_partial_fit_averages_all_that_was_nearest(form):
    s = np.random.default_rng(0).integers(0, 4, len(X)).astype(float)
    start, counts = X[:5].copy(), np.zeros(5)
    model = MiniBatchKMeans(5, init=X[:5], n_init=1, reassignment_ratio=0)
    for part in (slice(0, 200), slice(200, 450), slice(450, 600)):
        z = nearest(X[part], start)[0]
        for k in range(5):
            w = s[part][z == k]
            if w.sum() > 0:
                moved = counts[k] * start[k] + w @ X[part][z == k]
                counts[k] += w.sum()
                start[k] = moved / counts[k]
        model.partial_fit(form(X[part]), sample_weight=s[part])
        np.testing.assert_allclose(model.cluster_centers_, start, rtol=1e-10)
        np.testing.assert_allclose(model._counts, counts)
        z, away = nearest(X[part], start)
        np.testing.assert_array_equal(model.labels_, z)
        assert model.inertia_ == pytest.approx(s[part] @ away)
    assert model.n_steps_ == 3 and not hasattr(model, "certificate_")


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_weight_of_two_is_a_row_given_twice(form, init, dtype):
    rng = np.random.default_rng(1)
    s = rng.integers(0, 4, len(X))
    rows = X.astype(dtype)
    options = {"batch_size": 64, "init": init, "init_size": 100, "random_state": 3}
    one = MiniBatchKMeans(6, **options).fit(form(rows), sample_weight=s)
    many = MiniBatchKMeans(6, **options).fit(form(np.repeat(rows, s, axis=0)))
    np.testing.assert_allclose(one.cluster_centers_, many.cluster_centers_, rtol=1e-6)
    assert one.n_steps_ == many.n_steps_ > 10 and one.n_iter_ == many.n_iter_
    assert one.inertia_ == pytest.approx(many.inertia_, rel=1e-6)
    np.testing.assert_array_equal(np.repeat(one.labels_, s), many.labels_)


def test_neither_the_order_of_rows_nor_the_unit_of_weights_matters():
    options = {"batch_size": 50, "random_state": 0}
    one = MiniBatchKMeans(5, **options).fit(X)
    turned = np.random.default_rng(2).permutation(len(X))
    other = MiniBatchKMeans(5, **options).fit(X[turned])
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_)
    np.testing.assert_array_equal(one.labels_[turned], other.labels_)
    heavy = MiniBatchKMeans(5, **options).fit(X, sample_weight=np.full(len(X), 8.0))
    np.testing.assert_array_equal(one.cluster_centers_, heavy.cluster_centers_)
    assert heavy.inertia_ == pytest.approx(8 * one.inertia_)


def test_rows_are_drawn_by_weight():
    s = np.array([0.0, 1.0, 0.5, 2.5])
    pool = StartPool(np.array([[3.0], [1.0], [2.0], [0.0]]), s)
    drawn = WeightedDraws(pool).rows(40_000, np.random.default_rng(0))
    share = np.bincount(drawn, minlength=4) / 40_000
    np.testing.assert_allclose(share, s / s.sum(), atol=0.01)
    assert share[0] == 0


def test_certificate_says_what_holds():
    model = MiniBatchKMeans(5, random_state=0).fit(X)
    found = model.certificate_
    for name in ("nearest_centres", "inertia"):
        assert found[name].met and found[name].strength is Strength.PROVED
    z, away = nearest(X, model.cluster_centers_)
    np.testing.assert_array_equal(model.labels_, z)
    assert model.inertia_ == pytest.approx(away.sum())
    means = np.array([X[z == k].mean(axis=0) for k in range(5)])
    shift = ((means - model.cluster_centers_) ** 2).sum() / X.var(axis=0).mean()
    assert found["centre_shift"].value == pytest.approx(shift)
    assert found["centre_shift"].met == (shift <= 1e-4)
    on = KMeans(5, init=model.cluster_centers_).fit(X)
    assert on.certificate_.met and on.inertia_ <= model.inertia_


def test_data_without_labels_give_no_claim_about_labels():
    model = MiniBatchKMeans(5, compute_labels=False, random_state=0).fit(X)
    with_them = MiniBatchKMeans(5, random_state=0).fit(X)
    assert not hasattr(model, "labels_")
    np.testing.assert_array_equal(model.cluster_centers_, with_them.cluster_centers_)
    assert model.inertia_ == pytest.approx(with_them.inertia_, rel=0.2)
    assert [claim.name for claim in model.certificate_.claims] == ["centre_shift"]
    model = MiniBatchKMeans(5, random_state=0).fit(X).set_params(compute_labels=False)
    assert not hasattr(model.fit(X), "labels_")


def test_endings_and_passes():
    model = MiniBatchKMeans(5, batch_size=100, max_iter=2, max_no_improvement=None)
    model.set_params(random_state=0).fit(X)
    assert (model.n_steps_, model.n_iter_) == (12, 2)
    assert model.certificate_.status is Status.MAX_ITER
    assert len(model.history_["objective"]) == 12
    early = MiniBatchKMeans(5, tol=10.0, random_state=0).fit(X)
    assert early.n_steps_ == 2 and early.certificate_["centre_shift"].met
    idle = MiniBatchKMeans(5, max_no_improvement=0, random_state=0).fit(X)
    assert idle.n_steps_ == 2


def test_a_centre_without_rows_moves_to_one():
    start = np.vstack([X[:4], np.full((1, 3), 1e6)])
    options = {"init": start, "random_state": 0}
    stuck = MiniBatchKMeans(5, reassignment_ratio=0, **options).fit(X)
    assert np.ptp(stuck.cluster_centers_) > 1e5 and len(set(stuck.labels_)) == 4
    model = MiniBatchKMeans(5, **options).fit(X)
    assert len(set(model.labels_)) == 5 and model.inertia_ < stuck.inertia_


def test_partial_fit_goes_on_from_a_fit_and_from_a_file(tmp_path):
    model = MiniBatchKMeans(5, random_state=0).fit(X)
    again = certus.load(model.save(tmp_path / "model.certus"))
    assert certus.certify(again, X)["nearest_centres"].met
    steps = model.n_steps_
    model.partial_fit(X[:50])
    again.partial_fit(X[:50])
    np.testing.assert_array_equal(model.cluster_centers_, again.cluster_centers_)
    np.testing.assert_array_equal(model._counts, again._counts)
    assert model.n_steps_ == steps + 1 and len(model.labels_) == 50
