"""k-means: theorems, enumeration, invariances; the bounds change nothing."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from sklearn.datasets import make_blobs
from threadpoolctl import threadpool_limits

import certus
from certus.cluster import KMeans, elbow, kmeans_plusplus
from certus.cluster import lloyd as engine


def plain_lloyd(X, centers, steps, s=None):
    """The algorithm in six lines, with the objective after every half-step."""
    s, seen = np.ones(len(X)) if s is None else s, []
    for _ in range(steps):
        D = ((X[:, None] - centers[None]) ** 2).sum(axis=2)
        z = D.argmin(axis=1)
        seen.append(float(s @ D[np.arange(len(X)), z]))
        centers = np.array(
            [
                np.average(X[z == k], axis=0, weights=s[z == k])
                for k in range(len(centers))
            ]
        )
        seen.append(float(s @ ((X - centers[z]) ** 2).sum(axis=1)))
    return centers, z, seen


def cost(X, centers, s=None):
    D = ((X[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1)
    return float(D.sum() if s is None else s @ D)


def best_partition(X, k):
    """The lowest objective of all, by enumeration."""
    best = np.inf
    for z in product(range(k), repeat=len(X)):
        z = np.array(z)
        inside = [X[z == j] for j in range(k) if (z == j).any()]
        best = min(best, sum(((p - p.mean(axis=0)) ** 2).sum() for p in inside))
    return best


def clouds(n=600, k=6, d=5, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    centers = 4 * rng.normal(size=(k, d))
    return centers[rng.integers(0, k, n)] + spread * rng.normal(size=(n, d))


@pytest.mark.catalog("LAT-01")
def test_objective_is_total_less_between_cluster_scatter():
    X = clouds()
    s = np.random.default_rng(1).integers(1, 4, len(X)).astype(float)
    model = KMeans(6, tol=0, random_state=0).fit(X, sample_weight=s)
    mean = np.average(X, axis=0, weights=s)
    total = s @ ((X - mean) ** 2).sum(axis=1)
    weight = np.bincount(model.labels_, s, 6)
    between = weight @ ((model.cluster_centers_ - mean) ** 2).sum(axis=1)
    assert model.inertia_ == pytest.approx(total - between, rel=1e-12)
    by_rows = s @ ((X - model.cluster_centers_[model.labels_]) ** 2).sum(axis=1)
    assert model.inertia_ == pytest.approx(by_rows, rel=1e-12)
    assert model.certificate_["inertia"].met


@pytest.mark.catalog("LAT-02")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("k", "d"), [(1, 3), (3, 1), (6, 5), (40, 7), (70, 33)])
def test_bounds_and_products_leave_plain_lloyd(k, d, dtype):
    X = clouds(1500, 9, d, seed=k, spread=2.0).astype(dtype)
    start = X[:: len(X) // k][:k]
    centers, _, seen = plain_lloyd(X.astype(float), start.astype(float), 12)
    model = KMeans(k, init=start, max_iter=12, tol=0)
    with certus.config_context(on_uncertified="ignore"):
        model.fit(X)
    assert model.cluster_centers_.dtype == dtype
    tight = 1e-10 if dtype is np.float64 else 1e-5
    np.testing.assert_allclose(model.cluster_centers_, centers, atol=tight)
    objective = model.history_["objective"]
    np.testing.assert_allclose(objective, seen[1::2][: len(objective)], rtol=1e-6)
    exact = ((X[:, None].astype(float) - model.cluster_centers_[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(model.labels_, exact.argmin(axis=1))
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.catalog("LAT-02", "LAT-03")
def test_each_half_step_is_the_exact_minimiser_and_the_run_ends():
    X = clouds(300, 5, 3, spread=2.5)
    start = X[:5]
    centers, _, seen = plain_lloyd(X, start, 60)
    assert np.all(np.diff(seen) <= 1e-9 * seen[0])  # never rises
    model = KMeans(5, init=start, tol=0).fit(X)
    assert model.certificate_.met and model.certificate_.value <= 1e-20
    assert model.n_iter_ < 60  # finitely many labellings, each better than the last
    np.testing.assert_allclose(model.cluster_centers_, centers, atol=1e-12)
    # Over the labels: every other label of a row is worse. Over a centre: so is a move.
    rng = np.random.default_rng(0)
    for _ in range(50):
        other = model.labels_.copy()
        other[rng.integers(len(X))] = rng.integers(5)
        moved = model.cluster_centers_ + 0.1 * rng.normal(size=centers.shape)
        assert ((X - centers[other]) ** 2).sum() >= model.inertia_ * (1 - 1e-12)
        assert ((X - moved[model.labels_]) ** 2).sum() > model.inertia_


@pytest.mark.catalog("LAT-03", "LAT-06")
def test_a_bad_start_ends_in_a_clustering_that_is_not_the_best():
    X = np.array([[0.0, 0], [0, 1], [9, 0], [9, 1]])
    bad = KMeans(2, init=[[4.5, 0.0], [4.5, 1.0]]).fit(X)
    good = KMeans(2, init=[[0.0, 0.5], [9.0, 0.5]]).fit(X)
    assert bad.certificate_.met and good.certificate_.met  # both are fixed points
    assert good.inertia_ == pytest.approx(best_partition(X, 2))
    assert bad.inertia_ == pytest.approx(81.0) and good.inertia_ == pytest.approx(1.0)


@pytest.mark.catalog("LAT-06")
def test_outliers_and_long_clusters_mislead_it():
    rng = np.random.default_rng(0)
    two = np.concatenate([rng.normal(size=(50, 2)), rng.normal(size=(50, 2)) + 8])
    labels = KMeans(2, random_state=0).fit_predict(np.vstack([two, [[400.0, 400]]]))
    assert np.all(labels[:100] == 1 - labels[100])  # the outlier takes a cluster
    long = rng.normal(size=(400, 2)) * [12, 0.3]
    long[200:, 1] += 3
    model = KMeans(2, n_init=5, random_state=0).fit(long)
    agree = np.mean(model.labels_ == (np.arange(400) >= 200))
    assert 0.3 < agree < 0.7  # cut across, not along: a lower objective, all the same
    true = sum(((p - p.mean(axis=0)) ** 2).sum() for p in (long[:200], long[200:]))
    assert model.inertia_ < true


@pytest.mark.catalog("LAT-04")
def test_second_centre_is_drawn_by_squared_distance():
    X = np.array([[0.0], [1.0], [3.0], [3.0]])
    s = np.array([1.0, 2.0, 1.0, 0.0])
    seen = np.zeros((4, 4))
    for seed in range(1500):
        _, (i, j) = kmeans_plusplus(
            X, 2, sample_weight=s, random_state=seed, n_local_trials=1
        )
        seen[i, j] += 1
    expected = np.zeros((4, 4))
    for i in range(4):
        mass = s * (X[:, 0] - X[i, 0]) ** 2
        expected[i] = s[i] / s.sum() * mass / mass.sum()
    # Four standard deviations of a frequency.
    width = 4 * np.sqrt(expected * (1 - expected) / 1500)
    assert np.all(np.abs(seen / 1500 - expected) <= width)


@pytest.mark.catalog("LAT-04")
@pytest.mark.parametrize("trials", [1, None])
def test_expected_cost_of_seeds_is_below_the_bound(trials):
    rng = np.random.default_rng(5)
    for k in (2, 3):
        X = np.concatenate(
            [c + rng.normal(size=(3, 2)) for c in ([0, 0], [6, 0], [0, 9])]
        )
        optimum = best_partition(X, k)
        costs = [
            cost(X, kmeans_plusplus(X, k, random_state=r, n_local_trials=trials)[0])
            for r in range(150)
        ]
        assert np.mean(costs) <= 8 * (np.log(k) + 2) * optimum
        assert min(costs) >= optimum - 1e-9


@pytest.mark.catalog("LAT-05")
@pytest.mark.parametrize("true", [3, 4, 5])
def test_elbow_is_at_the_true_number_of_separated_blobs(true):
    angles = 2 * np.pi * np.arange(true) / true
    X, _ = make_blobs(
        400, centers=10 * np.c_[np.cos(angles), np.sin(angles)], random_state=true
    )
    found = elbow(X, range(1, 9), random_state=0)
    assert found.k == true
    assert found.model.n_clusters == true
    assert np.all(np.diff(found.inertias) < 0)
    np.testing.assert_allclose(found.inertias[0], ((X - X.mean(axis=0)) ** 2).sum())
    axes = found.plot()
    assert len(axes.lines) == 2 and axes.get_xlabel() == "clusters"


# -- invariances ------------------------------------------------------------------


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_a_weight_is_a_repetition_in_any_order_of_rows(init, as_sparse):
    X = np.round(clouds(120, 4, 3), 2)
    rng = np.random.default_rng(2)
    s = rng.integers(0, 4, len(X))
    order = rng.permutation(s.sum())
    repeated = np.repeat(X, s, axis=0)[order]
    form = sparse.csr_matrix if as_sparse else np.asarray
    a = KMeans(5, init=init, n_init=2, random_state=3).fit(form(X), sample_weight=s)
    b = KMeans(5, init=init, n_init=2, random_state=3).fit(form(repeated))
    np.testing.assert_allclose(a.cluster_centers_, b.cluster_centers_, atol=1e-9)
    np.testing.assert_array_equal(np.repeat(a.labels_, s)[order], b.labels_)
    assert a.inertia_ == pytest.approx(b.inertia_, rel=1e-9)
    assert a.n_iter_ == b.n_iter_


def test_rows_of_weight_zero_do_not_choose_the_start():
    """Were they to set the units of the columns, the order of draws would change."""
    for seed in range(40):
        rng = np.random.RandomState(seed)
        X, s = rng.rand(15, 30), rng.randint(0, 5, 15)
        far = np.vstack([X, 100 * rng.rand(2, 30)])
        with_zeros = kmeans_plusplus(
            far, 4, sample_weight=[*s, 0, 0], random_state=seed
        )
        repeated = kmeans_plusplus(np.repeat(X, s, axis=0), 4, random_state=seed)
        np.testing.assert_array_equal(with_zeros[0], repeated[0])


def test_a_row_on_its_centre_is_at_distance_zero():
    X = 1e3 + np.random.default_rng(0).random((6, 30))
    model = KMeans(6, random_state=0).fit(np.repeat(X, 3, axis=0))
    away = model.transform(X)
    assert np.all(away.min(axis=1) < 1e-12)
    direct = np.linalg.norm(X[:, None] - model.cluster_centers_, axis=2)
    np.testing.assert_allclose(away, direct, rtol=1e-12, atol=1e-12)


def test_sparse_rows_give_what_dense_ones_do():
    X = clouds(400, 5, 12)
    X[np.random.default_rng(0).random(X.shape) < 0.6] = 0
    for start in (X[:7], "k-means++"):
        dense = KMeans(7, init=start, random_state=1).fit(X)
        csc = KMeans(7, init=start, random_state=1).fit(sparse.csc_array(X))
        np.testing.assert_allclose(
            dense.cluster_centers_, csc.cluster_centers_, atol=1e-9
        )
        np.testing.assert_array_equal(dense.labels_, csc.labels_)
        np.testing.assert_array_equal(dense.predict(sparse.csr_matrix(X)), csc.labels_)
        assert csc.certificate_.met
        assert certus.certify(csc, sparse.csr_matrix(X), level="full").met


def test_two_threads_give_the_same_bits_of_labels_and_steps(monkeypatch):
    monkeypatch.setattr(engine, "TASK", 4096)
    X = clouds(6000, 12, 8, spread=2.0)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(KMeans(12, random_state=0).fit(X))
    one, two = found
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_array_equal(one.cluster_centers_, two.cluster_centers_)
    assert one.n_iter_ == two.n_iter_ and one.inertia_ == two.inertia_


@settings(max_examples=40, deadline=None)
@given(
    arrays(np.float64, (12, 2), elements=st.integers(-6, 6).map(float)),
    st.integers(1, 12),
    st.integers(0, 100),
)
def test_any_small_integers_end_in_a_proved_fixed_point(X, k, seed):
    model = KMeans(k, tol=0, random_state=seed).fit(X)
    D = ((X[:, None] - model.cluster_centers_[None]) ** 2).sum(axis=2)
    assert np.all(D[np.arange(12), model.labels_] <= D.min(axis=1) + 1e-12)
    for j in set(model.labels_):
        mean = X[model.labels_ == j].mean(axis=0)
        np.testing.assert_allclose(model.cluster_centers_[j], mean, atol=1e-12)
    assert model.inertia_ == pytest.approx(D.min(axis=1).sum(), abs=1e-10)
    assert certus.certify(model, X, level="full").met
    distinct = len(np.unique(X, axis=0))
    if k >= distinct:
        assert model.inertia_ <= 1e-12


def test_rows_beside_a_far_row_are_settled_in_float64():
    """One far row spoils float32 products for all others; labels stay exact."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(500, 3)), [[1e9, 1e9, 1e9]]])
    X[:250] += 6
    model = KMeans(3, init=X[[0, 499, 500]], tol=0).fit(X)
    D = ((X[:, None] - model.cluster_centers_[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(model.labels_, D.argmin(axis=1))
    assert np.bincount(model.labels_).tolist() == [250, 250, 1]
    assert model.certificate_.met


def test_the_elbow_takes_a_data_frame_and_keeps_its_names():
    pd = pytest.importorskip("pandas")
    X, _ = make_blobs(60, centers=3, cluster_std=0.3, random_state=0)
    found = elbow(
        pd.DataFrame(X, columns=["a", "b"]), range(1, 6), random_state=0
    )  # warns of nothing
    assert found.k == elbow(X, range(1, 6), random_state=0).k == 3
    assert list(found.model.feature_names_in_) == ["a", "b"]
    assert repr(found).startswith("Elbow(k=3, of 1 to 5 clusters")
    with pytest.raises(TypeError, match="range"):
        elbow(X, 5)


@pytest.mark.catalog("LAT-01")
def test_rows_near_a_boundary_are_settled_in_float64():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((4000, 3))
    # One row in forty lies a billionth beside the plane between two centres.
    near = np.arange(0, len(X), 40)
    X[near, 0] = rng.choice([-1.0, 1.0], len(near)) * 1e-9
    centers = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 9.0, 0.0]])
    rows = engine.rows_of(X, np.ones(len(X)))
    state = engine.Labelling(rows, len(centers))
    state.move_to(centers)
    away = ((X[:, None, :] - centers) ** 2).sum(axis=2)
    assert np.array_equal(state.labels, away.argmin(axis=1))
    assert 0.2 < np.mean(state.labels[near] == 0) < 0.8


def test_a_run_that_ends_a_little_elsewhere_is_not_taken_for_this_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) + 8 * rng.integers(0, 2, (300, 1))
    model = KMeans(2, n_init=1, random_state=0, tol=1e-3).fit(X)
    spread = np.sqrt(((X - X.mean(axis=0)) ** 2).sum() / len(X))
    assert certus.certify(model, X, level="full")["monotone"].met
    model.cluster_centers_ = model.cluster_centers_ + 1.5e-3 * spread
    found = certus.certify(model, X, level="full")["monotone"]
    assert found.met is None and "leads to another result" in found.detail
