"""Parity with scikit-learn's nearest neighbours, over every option they share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import neighbors as theirs
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from certus import neighbors as ours

NAMES = ["KNeighborsClassifier", "KNeighborsRegressor"]
both = pytest.mark.parametrize("name", NAMES)
OPTIONS = [
    {},
    {"p": 1},
    {"p": 3},
    {"metric": "euclidean"},
    {"metric": "manhattan"},
    {"metric": "chebyshev"},
    {"metric": "minkowski", "p": np.inf},
    {"metric": "cosine"},
    {"metric": "canberra"},
]


def pair(name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
    return tuple(getattr(m, name)(*args, **options) for m in (ours, theirs))


def data(name: str, n: int, d: int, outputs: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    X, Q = rng.normal(size=(n, d)), rng.normal(size=(37, d))
    if "Classifier" in name:
        y = rng.choice(["x", "y", "z"], (n, outputs))
    else:
        y = rng.normal(size=(n, outputs))
    return X, (y[:, 0] if outputs == 1 else y), Q


@both
@pytest.mark.catalog("NBR-01", "NBR-02")
@pytest.mark.parametrize("d", [2, 12])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("weights", ["uniform", "distance", lambda d: np.exp(-d)])
def test_same_answers(name: str, d: int, options: Any, weights: Any) -> None:
    for outputs in (1, 2):
        X, y, Q = data(name, 240, d, outputs)
        mine, other = pair(name, 6, weights=weights, **options)
        mine.fit(X, y)
        other.fit(X, y)
        a, b = mine.kneighbors(Q), other.kneighbors(Q)
        assert np.array_equal(a[1], b[1])
        np.testing.assert_allclose(a[0], b[0], rtol=1e-7, atol=1e-10)
        predicted, expected = mine.predict(Q), other.predict(Q)
        if predicted.dtype.kind == "f":
            np.testing.assert_allclose(predicted, expected, rtol=1e-9)
        else:
            assert np.array_equal(predicted, expected)
            np.testing.assert_allclose(
                mine.predict_proba(Q), other.predict_proba(Q), rtol=1e-9
            )
        if outputs == 1 or "Regressor" in name:  # scikit-learn scores no other
            assert mine.score(X, y) == pytest.approx(other.score(X, y))
            assert mine.score(None, y) == pytest.approx(other.score(None, y))
        for attribute in ("effective_metric_", "n_samples_fit_", "n_features_in_"):
            assert getattr(mine, attribute) == getattr(other, attribute)


@both
@pytest.mark.parametrize("form", ["csr_matrix", "csc_matrix", "csr_array", "coo_array"])
def test_sparse_data(name: str, form: str) -> None:
    X, y, Q = data(name, 150, 20, 1)
    X, Q = X * (np.abs(X) > 1), Q * (np.abs(Q) > 1)
    make = getattr(sparse, form)
    mine, other = pair(name, 4)
    rows = mine.fit(make(X), y).kneighbors(make(Q))
    expected = other.fit(X, y).kneighbors(Q)
    np.testing.assert_allclose(rows[0], expected[0], rtol=1e-9)
    assert np.array_equal(rows[1], expected[1])
    assert np.array_equal(mine.predict(make(Q)), other.predict(Q))


@both
def test_precomputed(name: str) -> None:
    X, y, Q = data(name, 100, 5, 1)
    D, E = pairwise_distances(X), pairwise_distances(Q, X)
    mine, other = pair(name, 4, metric="precomputed")
    mine.fit(D, y)
    other.fit(D, y)
    assert np.array_equal(mine.predict(E), other.predict(E))
    assert np.array_equal(mine.kneighbors()[1], other.kneighbors()[1])
    graph = (
        theirs.NearestNeighbors(n_neighbors=9).fit(X).kneighbors_graph(mode="distance")
    )
    mine.fit(graph, y)
    other.fit(graph, y)
    assert np.array_equal(mine.predict(graph), other.predict(graph))
    with pytest.raises(ValueError, match="only 9 neighbors"):
        mine.kneighbors(n_neighbors=10)
    with pytest.raises(ValueError, match="square"):
        mine.fit(D[:, :7], y)
    with pytest.raises(ValueError, match="Negative"):
        mine.fit(-D, y)


def test_missing_values_by_their_own_metric() -> None:
    X = [[0.0, 1.0], [1.0, np.nan], [2.0, 3.0], [3.0, 5.0]]
    y = [0, 0, 1, 1]
    mine, other = pair("KNeighborsClassifier", 2, metric="nan_euclidean")
    assert np.array_equal(mine.fit(X, y).predict(X), other.fit(X, y).predict(X))


@both
@pytest.mark.parametrize("mode", ["connectivity", "distance"])
def test_graphs(name: str, mode: str) -> None:
    X, y, Q = data(name, 90, 3, 1)
    mine, other = (m.fit(X, y) for m in pair(name, 4))
    for queries in (None, Q):
        a = mine.kneighbors_graph(queries, mode=mode)
        b = other.kneighbors_graph(queries, mode=mode)
        assert type(a) is type(b) and a.dtype == b.dtype
        np.testing.assert_allclose(a.toarray(), b.toarray(), rtol=1e-9)


@pytest.mark.parametrize("loader", [load_iris, load_digits, load_diabetes])
def test_real_tables(loader: Any) -> None:
    X, y = loader(return_X_y=True)
    name = NAMES[1] if loader is load_diabetes else NAMES[0]
    if loader is load_diabetes:  # scaled to single digits: nothing is tied
        X, y = X[:, :9], y.astype(float)
    mine, other = pair(name, 3, algorithm="kd_tree")
    train, test = np.arange(len(y)) % 3 > 0, np.arange(len(y)) % 3 == 0
    mine.fit(X[train], y[train])
    other.fit(X[train], y[train])
    agree = np.isclose(
        mine.kneighbors(X[test])[0], other.kneighbors(X[test])[0], rtol=1e-9
    )
    assert agree.all()  # ties may choose other rows, never other distances
    same = np.isclose(mine.predict(X[test]), other.predict(X[test]))
    assert same.mean() > 0.97


def test_inside_a_search() -> None:
    X, y = load_iris(return_X_y=True)
    grid = {"model__n_neighbors": [1, 5, 15], "model__weights": ["uniform", "distance"]}
    best = []
    for model in pair("KNeighborsClassifier"):
        pipe = make_pipeline(StandardScaler(), model)
        pipe.steps[-1] = ("model", model)
        search = GridSearchCV(pipe, grid, cv=3, n_jobs=2).fit(X, y)
        best.append(search.cv_results_["mean_test_score"])
    np.testing.assert_allclose(*best)


@both
def test_default_parameters_are_those_of_scikit_learn(name: str) -> None:
    mine, other = pair(name)
    assert mine.get_params() == other.get_params()


def test_a_column_of_labels_warns_as_in_scikit_learn() -> None:
    from sklearn.exceptions import DataConversionWarning

    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = ours.KNeighborsClassifier(1).fit([[0.0], [1.0]], [[0], [1]])
    assert model.predict([[0.9]]).shape == (1,)


def test_powers_below_one_and_double_powers_warn() -> None:
    X, y = [[0.0, 1.0], [1.0, 5.0], [3.0, 3.0]], [0.0, 1.0, 2.0]
    with pytest.warns(UserWarning, match="not distance metrics"):
        model = ours.KNeighborsRegressor(1, p=0.5).fit(X, y)
    distances, rows = model.kneighbors([[1.0, 2.0]], 3)
    expected = [3.0, (np.sqrt(1) + np.sqrt(1)) ** 2, (np.sqrt(2) + 1) ** 2]
    np.testing.assert_allclose(distances[0], expected)
    assert list(rows[0]) == [1, 0, 2]
    with pytest.raises(ValueError, match="0 < p < 1"):
        ours.KNeighborsRegressor(1, p=0.5, algorithm="kd_tree").fit(X, y)
    with pytest.warns(SyntaxWarning, match="metric_params"):
        three = ours.KNeighborsRegressor(1, metric_params={"p": 3}).fit(X, y)
    assert three.effective_metric_params_["p"] == 3
    with pytest.warns(UserWarning, match="cannot use tree with sparse input"):
        ours.KNeighborsRegressor(1, algorithm="kd_tree").fit(sparse.csr_matrix(X), y)
