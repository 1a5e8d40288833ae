"""The search returns exactly the nearest rows, ties by row number, on every path.

The reference is a plain sort of float64 distances. On small integers these are exact,
so ties are true ties; elsewhere the loops' own direct comparison is the definition,
itself compared with the reference.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import certus
from certus.neighbors import KNeighborsClassifier, KNeighborsRegressor, screening, tree
from certus.neighbors.compare import nearest
from certus.neighbors.metrics import resolve
from certus.neighbors.screening import screened
from certus.neighbors.search import search

Array = np.ndarray
METRICS = [
    ("euclidean", None),
    ("manhattan", None),
    ("chebyshev", None),
    ("minkowski", 3.0),
    ("minkowski", 1.5),
]


def metric_of(name: str, p: float | None, d: int) -> Any:
    return resolve(name, p, None, d)[0]


def reduced(X: Array, Q: Array, name: str, p: float | None) -> Array:
    gaps = np.abs(Q[:, None, :] - X[None, :, :])
    if name == "euclidean":
        return np.square(gaps).sum(axis=2)
    if name == "chebyshev":
        return gaps.max(axis=2)
    power = 1.0 if name == "manhattan" else float(p or 2)
    return (gaps**power).sum(axis=2) ** (1 / power)


def by_sorting(D: Array, k: int, own: Array | None = None) -> Array:
    D = D.copy()
    if own is not None:
        D[np.arange(len(D)), own] = np.inf
    names = np.broadcast_to(np.arange(D.shape[1]), D.shape)
    return np.lexsort((names, D), axis=1)[:, :k]


def own_of(Q: Any) -> Array:
    return np.full(Q.shape[0], -1, dtype=np.int64)


# -- the definition -----------------------------------------------------------------


@pytest.mark.parametrize(("name", "p"), METRICS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_direct_comparison_is_a_sort(name: str, p: float | None, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 7)).astype(dtype)
    Q = rng.normal(size=(40, 7))
    D = reduced(X.astype(float), Q, name, p)
    value, index = nearest(X, Q, 9, metric_of(name, p, 7))
    assert np.array_equal(index, by_sorting(D, 9))
    np.testing.assert_allclose(value, np.take_along_axis(D, index, 1), rtol=1e-12)


@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 6),
    n=st.integers(1, 60),
    values=st.integers(1, 4),
    data=st.data(),
)
@settings(max_examples=60)
def test_every_path_resolves_ties_alike(
    seed: int, d: int, n: int, values: int, data: Any
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, values, (n, d)).astype(float)
    Q = rng.integers(0, values, (30, d)).astype(float)
    k = data.draw(st.integers(1, n))
    for name in ("euclidean", "manhattan", "chebyshev"):
        metric, own = metric_of(name, None, d), own_of(Q)
        D = reduced(X, Q, name, None)
        expected = by_sorting(D, k)
        paths = {
            "direct": nearest(X, Q, k, metric)[1],
            "tree": tree.through_tree(tree.build(X, 3), X, Q, k, metric, own)[1],
            "sparse": nearest(sparse.csr_matrix(X), sparse.csr_matrix(Q), k, metric)[1],
        }
        if name == "euclidean":
            paths["screened"] = screened(X, Q, k, metric, own)[1]
            S = sparse.csr_matrix(X)
            paths["sparse screened"] = screened(
                S, sparse.csr_matrix(Q), k, metric, own
            )[1]
        for path, found in paths.items():
            assert np.array_equal(found, expected), (path, name)


# -- float32 screening --------------------------------------------------------------


def hard_cases() -> dict[str, tuple[Array, Array]]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 12))
    Q = rng.normal(size=(100, 12))
    fine = np.repeat(X[:40], 50, axis=0)
    wild = X.copy()
    wild[::400] *= 1e12
    return {
        "plain": (X, Q),
        "offset": (X + 1e7, Q + 1e7),
        "below float32": (fine + 1e-9 * X, X[:100] + 1e-9),
        "below float32, far": (fine + 1e-9 * X + 1e3, X[:100] + 1e3),
        "duplicates": (fine, X[:100]),
        "outliers": (wild, Q),
        "far queries": (X, np.vstack([Q[:50], Q[50:] * 1e15])),
        "tiny": (X * 1e-100, Q * 1e-100),
        "grid": (np.rint(3 * X), np.rint(3 * Q)),
        "one point": (np.ones_like(X), Q),
        "queries are rows": (X, X[:100].copy()),
    }


@pytest.mark.parametrize("case", list(hard_cases()))
@pytest.mark.parametrize("k", [1, 10])
def test_screening_gives_what_float64_gives(case: str, k: int) -> None:
    X, Q = hard_cases()[case]
    metric, own = metric_of("euclidean", None, 12), own_of(Q)
    value, index = nearest(X, Q, k, metric)
    fast = screened(X, Q, k, metric, own)
    assert np.array_equal(fast[1], index)
    assert np.array_equal(fast[0], value)  # to the last bit


def test_without_its_bound_screening_would_err(monkeypatch: Any) -> None:
    """The test above can fail: taken at their word, float32 scores mislead."""

    class Trusting(screening.DenseScreen):
        def __init__(self, X: Array) -> None:
            super().__init__(X)
            self.slack = self.lost = 0.0

    monkeypatch.setattr(screening, "DenseScreen", Trusting)
    X, Q = hard_cases()["below float32, far"]
    metric = metric_of("euclidean", None, 12)
    found = screened(X, Q, 10, metric, own_of(Q))[1]
    assert not np.array_equal(found, nearest(X, Q, 10, metric)[1])


@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 40),
    spread=st.floats(-8, 8),
    offset=st.floats(-8, 8),
)
@settings(max_examples=30)
def test_the_lower_bound_is_one(
    seed: int, d: int, spread: float, offset: float
) -> None:
    """Scores less a·‖q‖² stay below the truth, computed in extended precision."""
    rng = np.random.default_rng(seed)
    X = 10.0**spread * rng.standard_t(2, size=(200, d)) + 10.0**offset
    Q = 10.0**spread * rng.standard_t(2, size=(20, d)) + 10.0**offset
    side = screening.DenseScreen(X)
    q, norms, far = side.queries(Q)
    assert not far.any()
    ((_, rows),) = next(iter(side.chunks()))
    scores = side.scores(q, rows, np.empty(20 * 200, dtype=np.float32))
    exact = (
        np.square(Q.astype(np.longdouble)[:, None] - X.astype(np.longdouble)[None]).sum(
            axis=2
        )
        * np.longdouble(side.scale) ** 2
    )
    low = scores + norms[:, None] * (1 - 1.01 * side.slack) - side.lost
    assert (low <= exact).all()
    # and a useful one: within a few slacks of it
    room = 8 * side.slack * (norms[:, None] + exact + 1e-30)
    assert (exact - low <= room + side.lost * 2).all()


def test_long_lists_and_many_slabs(monkeypatch: Any) -> None:
    monkeypatch.setattr(screening, "SLAB", 64)
    monkeypatch.setattr(screening, "CHUNK", 4096)
    monkeypatch.setattr(screening, "ROOM", 16)
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (5000, 6)).astype(float)
    Q = rng.integers(0, 3, (200, 6)).astype(float)
    metric = metric_of("euclidean", None, 6)
    expected = by_sorting(reduced(X, Q, "euclidean", None), 20)
    assert np.array_equal(screened(X, Q, 20, metric, own_of(Q))[1], expected)


def test_threads_change_nothing() -> None:
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(5000, 20)), rng.normal(size=(700, 20))
    model = KNeighborsRegressor(7, algorithm="brute").fit(X, X[:, 0])
    with threadpool_limits(1):
        one = model.kneighbors(Q)
    two = model.kneighbors(Q)
    assert np.array_equal(one[0], two[0]) and np.array_equal(one[1], two[1])


# -- the estimators -----------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["brute", "kd_tree", "ball_tree", "auto"])
@pytest.mark.parametrize("copies", [1, 4, 30])
def test_a_training_row_is_not_its_own_neighbour(algorithm: str, copies: int) -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.integers(0, 9, (20, 3)).astype(float), copies, axis=0)
    X = X[rng.permutation(len(X))]
    model = KNeighborsRegressor(6, algorithm=algorithm).fit(X, X[:, 0])
    own = np.arange(len(X))
    distances, rows = model.kneighbors()
    assert not (rows == own[:, None]).any()
    D = reduced(X, X, "euclidean", None)
    assert np.array_equal(rows, by_sorting(D, 6, own))
    expected = np.sqrt(np.take_along_axis(D, rows, 1))
    assert np.array_equal(distances, expected)
    assert np.array_equal(model.kneighbors(X[:50])[1], by_sorting(D[:50], 6))


def test_graphs_hold_the_neighbours() -> None:
    X = np.array([[0.0], [3.0], [1.0]])
    model = KNeighborsRegressor(2).fit(X, [0, 1, 2])
    expected = [[1, 0, 1], [0, 1, 1], [1, 0, 1]]
    assert np.array_equal(model.kneighbors_graph(X).toarray(), expected)
    far = model.kneighbors_graph(X, mode="distance").toarray()
    assert np.array_equal(far, [[0, 0, 1], [0, 0, 2], [1, 0, 0]])
    alone = model.kneighbors_graph(n_neighbors=1).toarray()
    assert np.array_equal(alone, [[0, 0, 1], [0, 0, 1], [1, 0, 0]])
    with pytest.raises(ValueError, match="mode"):
        model.kneighbors_graph(X, mode="edges")


@pytest.mark.catalog("NBR-01")
def test_votes_of_the_nearest_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(400, 10)), rng.normal(size=(60, 10))
    y = rng.integers(0, 4, 400)
    rows = by_sorting(reduced(X, Q, "euclidean", None), 7)
    for algorithm in ("brute", "kd_tree"):
        model = KNeighborsClassifier(7, algorithm=algorithm).fit(X, y)
        counts = np.array([np.bincount(y[r], minlength=4) for r in rows])
        assert np.array_equal(model.predict(Q), counts.argmax(axis=1))
        assert np.array_equal(model.predict_proba(Q), counts / 7)


@pytest.mark.catalog("NBR-01")
def test_one_neighbour_learns_by_heart_and_all_vote_for_the_majority() -> None:
    rng = np.random.default_rng(1)
    X, y = (
        rng.normal(size=(200, 5)),
        rng.choice(["a", "b", "c"], 200, p=[0.3, 0.5, 0.2]),
    )
    assert KNeighborsClassifier(1).fit(X, y).score(X, y) == 1.0
    labels, counts = np.unique(y, return_counts=True)
    most = KNeighborsClassifier(200).fit(X, y).predict(rng.normal(size=(30, 5)))
    assert set(most) == {labels[counts.argmax()]}


def test_equal_votes_go_to_the_label_that_sorts_first() -> None:
    X = [[0.0], [1.0], [2.0], [3.0]]
    model = KNeighborsClassifier(4).fit(X, ["d", "b", "b", "d"])
    assert model.predict([[1.5]]) == "b"


@pytest.mark.catalog("NBR-02")
def test_all_neighbours_give_the_global_mean() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(80, 3)), rng.normal(size=(80, 2))
    model = KNeighborsRegressor(80).fit(X, Y)
    everywhere = np.broadcast_to(Y.mean(axis=0), (9, 2))
    np.testing.assert_allclose(model.predict(rng.normal(size=(9, 3))), everywhere)
    few = KNeighborsRegressor(3).fit(X, Y[:, 0])
    rows = by_sorting(reduced(X, X, "euclidean", None), 3)
    np.testing.assert_allclose(few.predict(X), Y[rows, 0].mean(axis=1))


def test_weights_by_distance() -> None:
    X, y = np.array([[0.0], [1.0], [4.0]]), np.array([1.0, 2.0, 8.0])
    model = KNeighborsRegressor(3, weights="distance").fit(X, y)
    assert model.predict([[2.0]])[0] == pytest.approx(
        (1 / 2 + 2 / 1 + 8 / 2) / (1 / 2 + 1 + 1 / 2)
    )
    assert np.array_equal(model.predict(X), y)  # at distance zero nobody else counts
    square = KNeighborsRegressor(3, weights=lambda d: d**2).fit(X, y)
    assert square.predict([[2.0]])[0] == pytest.approx((4 + 2 + 32) / 9)


@pytest.mark.catalog("NBR-03")
def test_the_distance_is_a_choice_that_scaling_changes() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)
    Q = rng.normal(size=(200, 2))
    stretch = np.array([1.0, 50.0])
    plain = KNeighborsClassifier(3).fit(X, y)
    scaled = KNeighborsClassifier(3).fit(X * stretch, y)
    changed = (plain.predict(Q) != scaled.predict(Q * stretch)).mean()
    assert changed > 0.1
    city = KNeighborsClassifier(3, p=1).fit(X, y)
    assert not np.array_equal(city.kneighbors(Q)[1], plain.kneighbors(Q)[1])
    # Standardised, the units cancel: by scaling the columns or the metric.
    for factor in (np.ones(2), stretch):
        Z = X * factor
        sd = Z.std(axis=0)
        standard = KNeighborsClassifier(3).fit(Z / sd, y)
        own = KNeighborsClassifier(3, metric_params={"w": 1 / sd**2}).fit(Z, y)
        if factor is not stretch:
            first = standard.predict(Q / sd)
        assert np.array_equal(standard.predict(Q * factor / sd), first)
        assert np.array_equal(own.predict(Q * factor), first)


@pytest.mark.catalog("NBR-04")
def test_in_many_dimensions_all_points_are_equally_far() -> None:
    rng = np.random.default_rng(0)
    ratios = []
    for d in (2, 20, 200, 2000):
        X = rng.uniform(size=(150, d))
        model = KNeighborsRegressor(149).fit(X, X[:, 0])
        distances, _ = model.kneighbors()
        ratios.append(distances.max() / distances.min())
    assert all(a > b for a, b in itertools.pairwise(ratios))
    assert ratios[0] > 50 and ratios[-1] < 1.25


@pytest.mark.catalog("NBR-04")
@pytest.mark.parametrize("d", [1, 2, 10, 50])
def test_a_hundredth_of_a_cube_takes_almost_its_whole_edge(d: int) -> None:
    """The nearest 1 % of uniform rows fill a cube of edge 0.01^(1/d)."""
    X = np.random.default_rng(d).uniform(size=(20_000, d))
    model = KNeighborsRegressor(200, metric="chebyshev").fit(X, X[:, 0])
    distances, _ = model.kneighbors(np.full((1, d), 0.5))
    edge = 2 * distances.max()
    # The share within is one of Beta(200, 19 801): four of its deviations are 0.0028.
    assert edge**d == pytest.approx(0.01, abs=0.0028)
    assert edge == pytest.approx(0.01 ** (1 / d), rel=0.3 / d)
    assert d < 50 or edge > 0.9


@pytest.mark.catalog("NBR-05")
@pytest.mark.parametrize("d", [1, 3, 8, 20])
@pytest.mark.parametrize(("name", "p"), METRICS)
def test_tree_search_returns_identical_neighbours(
    name: str, p: float | None, d: int
) -> None:
    rng = np.random.default_rng(d)
    X, Q = rng.normal(size=(1500, d)), rng.normal(size=(120, d))
    X[::7] = X[3]  # ties as well
    for k in (1, 8):
        made = [
            KNeighborsRegressor(k, metric=name, p=p or 2, algorithm=a).fit(X, X[:, 0])
            for a in ("kd_tree", "brute")
        ]
        assert [m.algorithm_ for m in made] == ["kd_tree", "brute"]
        (da, a), (db, b) = (m.kneighbors(Q) for m in made)
        assert np.array_equal(a, b) and np.array_equal(da, db)


def test_weighted_minkowski_is_a_stretched_space() -> None:
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(300, 4)), rng.normal(size=(20, 4))
    w = np.array([0.0, 1.0, 4.0, 0.3])
    for p in (1, 2, 3, np.inf):
        options = {"p": p, "metric_params": {"w": w}}
        model = KNeighborsRegressor(5, **options).fit(X, X[:, 0])
        gaps = np.abs(Q[:, None] - X[None])
        if p == np.inf:
            D = (gaps * (w > 0)).max(axis=2)
        else:
            D = (w * gaps**p).sum(axis=2) ** (1 / p)
        distances, rows = model.kneighbors(Q)
        assert np.array_equal(rows, by_sorting(D, 5))
        np.testing.assert_allclose(distances, np.sort(D)[:, :5], rtol=1e-12)
        assert model.certificate_.met


def test_sparse_queries_and_rows_mix() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 30)) * (rng.uniform(size=(400, 30)) < 0.2)
    Q = rng.normal(size=(50, 30)) * (rng.uniform(size=(50, 30)) < 0.2)
    for name, p in METRICS:
        options = {"metric": name, "p": p or 2, "algorithm": "brute"}
        expected = by_sorting(reduced(X, Q, name, p), 4)
        for rows in (X, sparse.csr_matrix(X), sparse.csc_array(X)):
            model = KNeighborsRegressor(4, **options).fit(rows, X[:, 0])
            for queries in (Q, sparse.csr_array(Q), sparse.coo_matrix(Q)):
                assert np.array_equal(model.kneighbors(queries)[1], expected)
            assert model.certificate_.met


def test_the_rows_are_a_copy() -> None:
    X, y = np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0, 3.0])
    model = KNeighborsRegressor(1).fit(X, y)
    X[:], y[:] = 99.0, 99.0
    assert np.array_equal(model.predict([[0.0, 1.0]]), [1.0])


def test_copies_and_files_search_as_the_model_does(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 3)), rng.integers(0, 3, (500, 2))
    model = KNeighborsClassifier(4, weights="distance").fit(X, y)
    other = certus.load(model.save(tmp_path / "model.certus"))
    Q = rng.normal(size=(20, 3))
    assert other.algorithm_ == "kd_tree"
    assert np.array_equal(other.kneighbors(Q)[1], model.kneighbors(Q)[1])
    assert np.array_equal(other.predict(Q), model.predict(Q))
    assert "_tree" not in vars(other)
    again = clone(model).set_params(n_neighbors=9).fit(X[::2], y[::2])
    assert again.kneighbors(Q)[1].shape == (20, 9)


def test_refitting_forgets_the_old_tree() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    model = KNeighborsRegressor(1).fit(X, X[:, 0])
    model.fit(X + 100, X[:, 0] + 100)
    assert model.predict([[100.0, 100.0]])[0] > 90


def test_search_takes_every_route(monkeypatch: Any) -> None:
    """Which path serves which data, so that none of the tests above is vacuous."""
    from certus.neighbors import search as module

    taken: list[str] = []
    for name in ("through_tree", "screened", "nearest"):
        whole = getattr(module, name)

        def spy(*args: Any, name: str = name, whole: Any = whole) -> Any:
            taken.append(name)
            return whole(*args)

        monkeypatch.setattr(module, name, spy)
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(1000, 4)), rng.normal(size=(100, 4))
    metric = metric_of("euclidean", None, 4)
    search(X, Q, 5, metric, None, tree.build(X, 10))
    search(X, Q, 5, metric)
    search(X, Q[:3], 5, metric)
    search(X * 1e200, Q * 1e200, 5, metric, None, tree.build(X, 10))
    search(X, Q, 5, metric_of("manhattan", None, 4))
    assert taken == ["through_tree", "screened", "nearest", "screened", "nearest"]
