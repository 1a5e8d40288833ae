"""k-means under bad input, absurd scales, forged attributes and interruptions."""

import copy
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs

import certus
from certus.certificate import Status
from certus.cluster import KMeans, elbow, kmeans_plusplus
from certus.cluster import kmeans as module
from certus.cluster import lloyd as engine

X, _ = make_blobs(200, centers=4, random_state=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be an integer of at least 1"),
        ({"n_clusters": 201}, "n_samples=200 should be >= n_clusters=201"),
        ({"n_init": 0}, "n_init must be"),
        ({"tol": -1}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"algorithm": "auto"}, "algorithm must be one of"),
        ({"init": "kmeans"}, "init must be one of"),
        ({"init": X[:3]}, "does not match the number of clusters 4"),
        ({"init": X[:4, :1]}, "does not match the number of features"),
    ],
)
def test_a_wrong_parameter_gets_a_clear_message(change, message):
    with pytest.raises(ValueError, match=message):
        KMeans(**{"n_clusters": 4, **change}).fit(X)


def test_norms_of_other_rows_are_refused():
    with pytest.raises(ValueError, match="length of x_squared_norms"):
        kmeans_plusplus(X, 2, x_squared_norms=np.ones(len(X) + 1))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_holes_are_refused(bad, form):
    holed = X.copy()
    holed[7, 1] = bad
    for call in (KMeans(2).fit, lambda Z: kmeans_plusplus(Z, 2)):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            call(form(holed))
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        KMeans(2, random_state=0).fit(X).predict(form(holed))


@pytest.mark.parametrize("weight", [[-1.0] * 200, [0.0] * 200, [np.nan] * 200, [1.0]])
def test_impossible_weights_are_refused(weight):
    with pytest.raises(ValueError, match="sample_weight"):
        KMeans(2).fit(X, sample_weight=weight)


@pytest.mark.parametrize("power", [-300, -160, -20, 20, 150, 300])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_labels_do_not_depend_on_the_unit(power, dtype):
    if dtype is np.float32 and abs(power) > 20:
        power = int(np.sign(power) * 30)
    unit = 2.0 ** int(power * 3.3)
    scaled = (X.astype(dtype) * dtype(unit)).astype(dtype)
    near = KMeans(4, random_state=0).fit(X.astype(dtype))
    far = KMeans(4, random_state=0).fit(scaled)
    np.testing.assert_array_equal(near.labels_, far.labels_)
    np.testing.assert_allclose(
        far.cluster_centers_ / dtype(unit), near.cluster_centers_, rtol=1e-5
    )
    assert far.certificate_.met
    np.testing.assert_array_equal(far.predict(scaled), far.labels_)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_more_clusters_than_distinct_rows(form):
    rows = np.repeat([[0.0, 1.0], [2.0, 3.0], [5.0, 5.0]], 10, axis=0)
    for init in ("k-means++", "random", rows[:5]):
        model = KMeans(5, init=init, random_state=0).fit(form(rows))
        assert model.inertia_ == 0 and len(set(model.labels_)) == 3
        assert model.certificate_.met
        assert "2 of 5 clusters have no rows" in str(model.certificate_)


def test_one_row_one_column_constant_columns():
    assert KMeans(1).fit([[3.0, 4.0]]).cluster_centers_.tolist() == [[3.0, 4.0]]
    flat = np.c_[np.ones(200), X, np.zeros(200)]
    a, b = KMeans(4, random_state=0).fit(flat), KMeans(4, random_state=0).fit(X)
    assert a.inertia_ <= b.inertia_ * 1.5 and a.certificate_.met
    same = KMeans(3, random_state=0).fit(np.full((10, 2), 7.0))
    assert same.inertia_ == 0 and same.certificate_.met


def test_an_empty_cluster_goes_to_the_farthest_row():
    rows = np.array([[0.0], [1.0], [10.0], [11.0], [30.0]])
    model = KMeans(3, init=[[0.5], [20.0], [1e6]]).fit(rows)
    assert len(set(model.labels_)) == 3
    assert model.inertia_ == pytest.approx(1.0)
    assert certus.certify(model, rows, level="full").met


def test_a_far_row_and_a_far_origin():
    rows = np.vstack([X, [[1e12, -1e12]]])
    model = KMeans(5, n_init=5, random_state=0).fit(rows)
    assert model.certificate_.met and np.bincount(model.labels_).min() == 1
    far = KMeans(4, init=X[:4] + 1e7).fit(X + 1e7)
    np.testing.assert_array_equal(far.labels_, KMeans(4, init=X[:4]).fit(X).labels_)
    assert far.certificate_.met


# -- forgeries --------------------------------------------------------------------


def forged(change):
    model = copy.deepcopy(KMeans(4, tol=0, random_state=0).fit(X))
    change(model)
    return certus.certify(model, X)


def move_centre(model):
    model.cluster_centers_[0] += 0.1


def swap_label(model):
    model.labels_[3] = (model.labels_[3] + 1) % 4


def swap_centres(model):
    model.cluster_centers_ = model.cluster_centers_[::-1].copy()


def nudge_label_out(model):
    model.labels_[0] = 99


@pytest.mark.parametrize(
    "change", [move_centre, swap_label, swap_centres, nudge_label_out]
)
def test_forged_attributes_are_refuted(change):
    found = forged(change)
    assert found.met is False and found.status is Status.REFUTED


def test_forged_inertia_and_nan_centres():
    def lie(model):
        model.inertia_ *= 0.9

    assert forged(lie)["inertia"].met is False
    assert forged(lie).status is not Status.SOLVED

    def break_centre(model):
        model.cluster_centers_[1, 0] = np.nan

    assert forged(break_centre).met is False


def test_other_rows_and_another_start_are_seen():
    model = KMeans(4, tol=0, random_state=0).fit(X)
    assert certus.certify(model, X[::-1]).met is False
    assert certus.certify(model, X[:50]).met is False
    assert certus.certify(model, X, level="full")["monotone"].met
    model.certificate_.evidence.witness.start[:] = 3.0
    again = certus.certify(model, X, level="full")["monotone"]
    assert again.met is None and "leads to another result" in again.detail
    with pytest.raises(ValueError, match="columns"):
        certus.certify(model, X[:, :1])


# -- endings ----------------------------------------------------------------------


def test_max_iter_says_so():
    with pytest.warns(certus.base.UncertifiedWarning, match="raise max_iter"):
        model = KMeans(8, init=X[:8], max_iter=1, tol=0).fit(X)
    assert model.certificate_.status is Status.MAX_ITER


def test_max_time_leaves_a_fitted_model():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = KMeans(8, max_time=0.0, random_state=0).fit(X)
    assert model.certificate_.status is Status.TIME_LIMIT
    assert len(model.predict(X)) == 200 and model.certificate_["nearest_centres"].met


def test_interrupt_keeps_the_model(monkeypatch):
    real, calls = engine.Labelling.move_to, []

    def interrupted(self, centers):
        calls.append(1)
        if len(calls) == 3:
            self.labels[:50] = 0  # as if half the parts had been done
            raise KeyboardInterrupt
        return real(self, centers)

    monkeypatch.setattr(module.Labelling, "move_to", interrupted)
    model = KMeans(8, init=X[:8], tol=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert model.certificate_.status is Status.INTERRUPTED
    assert model.certificate_["nearest_centres"].met
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_model_files_keep_it(tmp_path):
    model = KMeans(4, random_state=0).fit(X)
    back = certus.load(model.save(tmp_path / "m.certus"))
    np.testing.assert_array_equal(back.predict(X), model.labels_)
    assert certus.certify(back, X, level="full").met
    assert back.history_ == model.history_


def test_elbow_needs_two_sides_and_whole_numbers():
    with pytest.raises(ValueError, match="at least three"):
        elbow(X, [2, 3])
    with pytest.raises((TypeError, ValueError), match="each of ks"):
        elbow(X, [1, 2, 2.5])
    assert elbow(sparse.csr_matrix(X), [1, 2, 4, 8], random_state=0).ks.tolist() == [
        1,
        2,
        4,
        8,
    ]


@pytest.mark.parametrize("size", [1e308, 1e-300])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_weights_whose_sum_overflows_give_the_same_centres(size, form):
    s = np.linspace(0.1, 1.0, len(X))
    one = KMeans(3, n_init=2, random_state=0).fit(form(X), sample_weight=s)
    model = KMeans(3, n_init=2, random_state=0).fit(form(X), sample_weight=s * size)
    assert model.certificate_.met, model.certificate_
    np.testing.assert_allclose(model.cluster_centers_, one.cluster_centers_, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(form(X)), one.labels_)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(model.inertia_, one.inertia_ * size, rtol=1e-9)
        score = model.score(form(X), sample_weight=s * size)
        np.testing.assert_allclose(score, -one.inertia_ * size, rtol=1e-9)
