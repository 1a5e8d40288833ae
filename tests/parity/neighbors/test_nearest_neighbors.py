"""NearestNeighbors against scikit-learn's, direct comparison and planted faults."""

import inspect
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors as Theirs

import certus
from certus.neighbors import NearestNeighbors

Array = np.ndarray
METRICS = ["minkowski", "manhattan", "chebyshev", "cosine", "canberra"]


def rows(seed: int = 0, n: int = 300, d: int = 3) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(40, d))


def same(ours: Any, theirs: Any) -> bool:
    return all(np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(ours, theirs))


def test_parameters_attributes_and_methods_are_those_of_scikit_learn() -> None:
    own = inspect.signature(NearestNeighbors).parameters
    for key, value in inspect.signature(Theirs).parameters.items():
        assert own[key].default == value.default
    X, _ = rows()
    mine, other = NearestNeighbors().fit(X), Theirs().fit(X)
    public = {k for k in dir(other) if not k.startswith("_")}
    assert public - {k for k in dir(mine) if not k.startswith("_")} == set()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("d", [2, 5, 20])
def test_neighbours_are_those_of_scikit_learn(metric: str, d: int) -> None:
    X, Q = rows(d=d)
    radius = {"cosine": 0.3, "canberra": 0.4 * d}.get(metric, 0.5 * np.sqrt(d))
    mine = NearestNeighbors(metric=metric, radius=radius).fit(X)
    other = Theirs(metric=metric, radius=radius).fit(X)
    for queries in (Q, None):
        far, names = mine.kneighbors(queries)
        there = other.kneighbors(queries)
        np.testing.assert_array_equal(names, there[1])
        np.testing.assert_allclose(far, there[0], rtol=1e-9, atol=1e-12)
        far, names = mine.radius_neighbors(queries, sort_results=True)
        there = other.radius_neighbors(queries, sort_results=True)
        assert same(names, there[1])
        for a, b in zip(far, there[0]):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
        for mode in ("connectivity", "distance"):
            graph = mine.radius_neighbors_graph(queries, mode=mode)
            plain = other.radius_neighbors_graph(queries, mode=mode)
            np.testing.assert_allclose(graph.toarray(), plain.toarray(), atol=1e-9)
    if metric in ("minkowski", "manhattan", "chebyshev"):
        assert mine.certificate_.met and certus.certify(other, X).met
        assert mine.certificate_["within_radius"].met


@pytest.mark.parametrize("algorithm", ["kd_tree", "brute"])
@pytest.mark.parametrize("p", [1, 1.5, 2, 3, np.inf])
def test_exactly_the_rows_within_the_radius(algorithm: str, p: float) -> None:
    """Rows of a lattice lie at exactly the radius: they count."""
    X = np.stack(np.meshgrid(*[np.arange(7.0)] * 2), -1).reshape(-1, 2)
    model = NearestNeighbors(radius=2.0, p=p, algorithm=algorithm).fit(X)
    name, more = ("chebyshev", {}) if np.isinf(p) else ("minkowski", {"p": p})
    inside = cdist(X, X, name, **more) <= 2.0
    found = model.radius_neighbors(X, return_distance=False)
    for row, names in zip(inside, found):
        np.testing.assert_array_equal(np.flatnonzero(row), names)


def test_other_forms_of_rows_are_read() -> None:
    X, Q = rows(d=12)
    X[np.abs(X) < 0.7] = 0.0
    dense = NearestNeighbors(radius=3.0).fit(X)
    thin = NearestNeighbors(radius=3.0).fit(sparse.csr_matrix(X))
    assert same(thin.radius_neighbors(Q)[1], dense.radius_neighbors(Q)[1])
    given = NearestNeighbors(radius=3.0, metric="precomputed").fit(cdist(X, X))
    assert same(given.radius_neighbors(cdist(Q, X))[1], dense.radius_neighbors(Q)[1])
    graph = dense.radius_neighbors_graph(mode="distance")
    read = NearestNeighbors(radius=3.0, metric="precomputed").fit(graph)
    assert same(read.radius_neighbors()[1], dense.radius_neighbors()[1])
    for scale in (1e-200, 1e200):
        far = NearestNeighbors(radius=3.0 * scale).fit(X * scale)
        assert same(far.radius_neighbors(Q * scale)[1], dense.radius_neighbors(Q)[1])
    single = NearestNeighbors(radius=3.0).fit(X.astype(np.float32))
    assert single.certificate_.met
    w = np.arange(12) % 3
    weighted = NearestNeighbors(radius=3.0, metric_params={"w": w}).fit(X)
    assert same(
        weighted.radius_neighbors(Q)[1],
        [np.flatnonzero(row <= 3.0) for row in cdist(Q, X, "minkowski", p=2, w=w)],
    )


def test_rows_without_neighbours_and_wrong_parameters() -> None:
    X, Q = rows()
    model = NearestNeighbors(radius=1e-9).fit(X)
    assert [len(names) for names in model.radius_neighbors(Q)[1]] == [0] * len(Q)
    assert model.radius_neighbors_graph(Q).nnz == 0
    with pytest.raises(ValueError, match="radius"):
        NearestNeighbors(radius=-1.0).fit(X)
    with pytest.raises(ValueError, match="return_distance must be True"):
        model.radius_neighbors(Q, return_distance=False, sort_results=True)
    with pytest.raises(ValueError, match="Unsupported mode"):
        model.radius_neighbors_graph(Q, mode="both")


@pytest.mark.parametrize("cls", [NearestNeighbors, Theirs])
def test_planted_faults_are_not_certified(cls: Any) -> None:
    X, _ = rows()

    def fitted(**more: Any) -> Any:
        return cls(radius=0.7, **more).fit(X)

    assert certus.certify(fitted(), X).met
    assert not certus.certify(fitted(), X + 1e-6).met
    assert not certus.certify(fitted(), X[::-1]).met
    assert not certus.certify(fitted(), np.rint(X).astype(np.int8)).met
    wrong = fitted()
    wrong._fit_X = wrong._fit_X * (1 + 1e-12)
    assert not certus.certify(wrong, X).met
    # A search by another distance than the parameters say.
    wrong = fitted(metric="manhattan", algorithm="brute")
    wrong.metric = "chebyshev"
    assert not certus.certify(wrong, X, level="full").met


def test_a_radius_that_the_search_does_not_keep_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from certus.neighbors import unsupervised

    right = unsupervised.within

    def narrow(X: Any, Q: Any, radius: float, *more: Any) -> Any:
        return right(X, Q, 0.9 * radius, *more)

    X, _ = rows()
    monkeypatch.setattr(unsupervised, "within", narrow)
    found = certus.certify(NearestNeighbors(radius=0.7).fit(X), X, level="full")
    assert found["nearest_neighbours"].met
    assert found["within_radius"].met is False
