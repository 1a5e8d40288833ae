"""k-means from batches under bad input, absurd scales, forgeries and interruptions."""

import copy
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs

import certus
from certus.certificate import Status
from certus.cluster import KMeans, MiniBatchKMeans
from certus.cluster import minibatch as module

X, _ = make_blobs(200, centers=4, random_state=0)


def fitted(rows=X, s=None, **options):
    with certus.config_context(on_uncertified="ignore"):
        return MiniBatchKMeans(**{"n_clusters": 4, "random_state": 0, **options}).fit(
            rows, sample_weight=s
        )


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be an integer of at least 1"),
        ({"n_clusters": 201}, "n_samples=200 should be >= n_clusters=201"),
        ({"n_init": 0}, "n_init must be"),
        ({"tol": -1}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"init_size": 0}, "init_size must be"),
        ({"max_no_improvement": -1}, "max_no_improvement must be"),
        ({"reassignment_ratio": -0.1}, "reassignment_ratio must be"),
        ({"init": "kmeans"}, "init must be one of"),
        ({"init": X[:3]}, "does not match the number of clusters 4"),
        ({"init": X[:4, :1]}, "does not match the number of features"),
    ],
)
def test_a_wrong_parameter_gets_a_clear_message(method, change, message):
    model = MiniBatchKMeans(**{"n_clusters": 4, **change})
    with pytest.raises(ValueError, match=message):
        getattr(model, method)(X)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_holes_and_impossible_weights_are_refused(bad, form):
    holed = X.copy()
    holed[7, 1] = bad
    for call in (MiniBatchKMeans(2).fit, MiniBatchKMeans(2).partial_fit):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            call(form(holed))
        for weight in ([-1.0] * 200, [0.0] * 200, [bad] * 200, [1.0]):
            with pytest.raises(ValueError, match="sample_weight"):
                call(form(X), sample_weight=weight)


@pytest.mark.parametrize("power", [-300, -160, 150, 300])
def test_labels_do_not_depend_on_the_unit(power):
    unit = 2.0 ** int(power * 3.3)
    near, far = fitted(), fitted(X * unit)
    np.testing.assert_array_equal(near.labels_, far.labels_)
    np.testing.assert_allclose(far.cluster_centers_ / unit, near.cluster_centers_)
    assert far.certificate_["nearest_centres"].met and far.certificate_["inertia"].met
    far.partial_fit(X[:50] * unit)
    near.partial_fit(X[:50])
    np.testing.assert_allclose(far.cluster_centers_ / unit, near.cluster_centers_)


@pytest.mark.parametrize("size", [1e308, 1e-300])
def test_weights_whose_sum_overflows_give_the_same_centres(size):
    s = np.linspace(0.1, 1.0, len(X))
    one, model = fitted(s=s), fitted(s=s * size)
    np.testing.assert_allclose(model.cluster_centers_, one.cluster_centers_)
    assert model.certificate_["nearest_centres"].met
    assert model.certificate_["inertia"].met


def test_batches_whose_weights_are_infinite_are_refused():
    model = fitted()
    before = model.cluster_centers_.copy()
    with pytest.raises(ValueError, match="sample_weight is too large"):
        model.partial_fit(X, sample_weight=np.full(200, 1e308))
    np.testing.assert_array_equal(model.cluster_centers_, before)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_more_clusters_than_distinct_rows(form):
    rows = np.repeat([[0.0, 1.0], [2.0, 3.0], [5.0, 5.0]], 10, axis=0)
    for init in ("k-means++", "random", rows[:5]):
        model = fitted(form(rows), n_clusters=5, init=init)
        assert model.inertia_ == pytest.approx(0, abs=1e-20)
        assert len(set(model.labels_)) == 3 and model.certificate_.met
    same = fitted(np.full((10, 2), 7.0), n_clusters=3)
    assert same.inertia_ == 0 and same.certificate_.met
    assert fitted([[3.0, 4.0]], n_clusters=1).cluster_centers_.tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize("ratio", [1.0, 5.0])
def test_every_centre_may_be_reassigned(ratio):
    model = fitted(reassignment_ratio=ratio, batch_size=10)
    assert model.certificate_["nearest_centres"].met


def test_far_from_zero():
    start = KMeans(4, random_state=0).fit(X)
    far = fitted(X + 1e7, init=start.cluster_centers_ + 1e7)
    assert far.inertia_ == pytest.approx(start.inertia_, rel=0.02)
    assert far.certificate_["nearest_centres"].met


# -- forgeries --------------------------------------------------------------------


def far_centre(model):
    model.cluster_centers_[0] += 0.5


def swap_label(model):
    model.labels_[3] = (model.labels_[3] + 1) % 4


def swap_centres(model):
    model.cluster_centers_ = model.cluster_centers_[::-1].copy()


def drop_labels(model):
    del model.labels_


def lower_inertia(model):
    model.inertia_ *= 0.9


def no_number(model):
    model.cluster_centers_[1, 0] = np.nan


@pytest.mark.parametrize(
    "change",
    [far_centre, swap_label, swap_centres, drop_labels, lower_inertia, no_number],
)
def test_forged_attributes_are_seen(change):
    model = fitted(tol=1.0)
    assert model.certificate_.met and model.certificate_.status is Status.SOLVED
    change(model)
    assert certus.certify(model, X).status is not Status.SOLVED


def test_labels_there_are_checked_whatever_compute_labels_says():
    model = fitted(tol=1.0).set_params(compute_labels=False)
    swap_label(model)
    assert certus.certify(model, X)["nearest_centres"].met is False


def test_a_fault_in_the_labelling_is_found(monkeypatch):
    real = module._nearest

    def faulty(rows, centers):
        labels, inertia = real(rows, centers)
        return np.roll(labels, 1), inertia

    monkeypatch.setattr(module, "_nearest", faulty)
    found = fitted(tol=1.0).certificate_
    assert found["nearest_centres"].met is False and found.status is not Status.SOLVED


def test_a_fault_in_the_average_is_found(monkeypatch):
    real = MiniBatchKMeans._keep

    def faulty(self, centers, counts, dtype):
        real(self, centers * 1.5, counts, dtype)

    monkeypatch.setattr(MiniBatchKMeans, "_keep", faulty)
    assert fitted(tol=0.01).certificate_["centre_shift"].met is False


# -- endings ----------------------------------------------------------------------


def test_a_fit_that_did_not_settle_warns():
    model = MiniBatchKMeans(8, batch_size=20, random_state=0)
    with pytest.warns(certus.base.UncertifiedWarning, match="continue with KMeans"):
        model.fit(X)
    assert model.certificate_.met is False
    assert model.certificate_["nearest_centres"].met
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X)  # nothing was promised


def test_max_time_leaves_a_fitted_model():
    model = fitted(max_time=0.0)
    assert model.certificate_.status is Status.TIME_LIMIT and model.n_steps_ == 1
    assert model.certificate_["nearest_centres"].met


@pytest.mark.parametrize("at", [1, 5])
def test_interrupt_keeps_the_model(monkeypatch, at):
    real, calls = MiniBatchKMeans._step, []

    def interrupted(self, *args):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(MiniBatchKMeans, "_step", interrupted)
    model = MiniBatchKMeans(4, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert model.certificate_.status is Status.INTERRUPTED
    assert model.certificate_["nearest_centres"].met
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_a_failed_batch_changes_nothing():
    model = fitted()
    before = copy.deepcopy(vars(model))
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :1])
    assert set(vars(model)) == set(before)
    np.testing.assert_array_equal(model.cluster_centers_, before["cluster_centers_"])
