"""The table estimators keep scikit-learn's contract, and their own."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import certus
from certus import linear_model, persist
from certus.tables import (
    TableEncoder,
    TableError,
    TablePipeline,
    guess_task,
    load_example,
)

CHECKED = [
    TableEncoder(),
    TablePipeline(estimator=Ridge()),
    TablePipeline(estimator=linear_model.Ridge()),
    TablePipeline(estimator=RidgeClassifier()),
    TablePipeline(estimator=LogisticRegression(solver="newton-cholesky", tol=1e-12)),
]


@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture
def example():
    frame, target = load_example()
    return frame.drop(target), frame[target]


@pytest.fixture
def towns():
    rng = np.random.default_rng(0)
    town = rng.choice(["Bath", "Hull", "York"], 120)
    size = rng.normal(100, 20, 120)
    label = np.where((town == "Bath") ^ (rng.random(120) < 0.1), "dear", "cheap")
    return pd.DataFrame({"town": town, "size": size}), pd.Series(label, name="price")


def test_encoder_in_pipeline_search_and_cross_validation(example):
    X, y = example[0].to_pandas(), example[1].to_numpy()
    pipeline = make_pipeline(TableEncoder(), Ridge())
    plain = cross_val_score(pipeline, X, y, cv=5)
    ours = cross_val_score(TablePipeline(estimator=Ridge()), X, y, cv=5)
    np.testing.assert_allclose(ours, plain, rtol=1e-12)
    assert plain.mean() > 0.4
    grid = {"encoder__scale": [True, False], "estimator__alpha": [0.1, 1.0]}
    search = GridSearchCV(TablePipeline(TableEncoder(), estimator=Ridge()), grid, cv=3)
    search.fit(X, y)
    assert set(search.best_params_) == set(grid)


def test_pipeline_equals_its_parts(example):
    X, y = example
    pipeline = TablePipeline(estimator=Ridge(alpha=2.0)).fit(X, y)
    Z = TableEncoder().fit_transform(X)
    by_hand = Ridge(alpha=2.0).fit(Z, y.to_numpy())
    np.testing.assert_allclose(pipeline.predict(X), by_hand.predict(Z), rtol=1e-12)
    assert pipeline.score(X, y) == pytest.approx(by_hand.score(Z, y.to_numpy()))
    assert pipeline.target_name_ == "progression"
    assert pipeline.task_ == "regression"
    assert pipeline.feature_names_in_.tolist() == X.columns
    assert pipeline.n_features_in_ == 10
    assert is_regressor(pipeline) and not is_classifier(pipeline)
    assert not hasattr(pipeline, "predict_proba")


def test_default_model_for_amounts_is_certified(example):
    X, y = example
    pipeline = TablePipeline().fit(X, y)
    assert type(pipeline.estimator_).__module__.startswith("certus.linear_model")
    assert pipeline.certificate_.met is True
    assert is_regressor(pipeline)


def test_saved_and_certified_as_one(example, tmp_path):
    X, y = example
    X = X.with_columns(
        visit=pl.date(2020, 1, 1) + pl.duration(days=pl.int_range(pl.len()) % 90),
        glucose=pl.when(pl.col("glucose") < 80).then(None).otherwise("glucose"),
        ward=pl.when(pl.col("age") > 60).then(None).otherwise(pl.lit("day")),
    )
    pipeline = TablePipeline().fit(X, y)
    persist.save(pipeline, tmp_path / "model.certus")
    twin = persist.load(tmp_path / "model.certus")
    np.testing.assert_array_equal(twin.predict(X), pipeline.predict(X))
    assert twin.encoder_.columns_ == pipeline.encoder_.columns_
    assert twin.target_name_ == "progression"
    assert certus.certify(twin, X, y).met is True
    assert certus.certify(twin, X, y + X["age"]).met is not True


@pytest.mark.parametrize("form", ["text", "boolean", "integer", "categorical"])
def test_labels_of_every_form(towns, form):
    X, text = towns
    dear = text == "dear"
    y = {
        "text": text,
        "boolean": dear,
        "integer": dear.astype(int),
        "categorical": pl.Series("price", text.tolist(), dtype=pl.Categorical),
    }[form]
    pipeline = TablePipeline(estimator=LogisticRegression()).fit(X, y)
    assert pipeline.task_ == "classification"
    assert pipeline.target_name_ == "price"
    predicted = pipeline.predict(X)
    assert set(predicted.tolist()) == set(pd.Series(y.to_list()))
    assert pipeline.score(X, y) > 0.8
    assert pipeline.predict_proba(X).shape == (120, 2)
    assert pipeline.decision_function(X).shape == (120,)
    assert pipeline.classes_.tolist() == sorted(set(y.to_list()))


def test_weights_reach_encoder_and_model(towns):
    X, text = towns
    y = X["size"] * 2 + (text == "dear")
    weight = np.arange(120) % 3
    rows = np.repeat(np.arange(120), weight)
    repeated = TablePipeline(estimator=Ridge()).fit(X.iloc[rows], y.iloc[rows])
    weighted = TablePipeline(estimator=Ridge()).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-9)


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (["a", "b", "a"], "classification"),
        ([True, False, True], "classification"),
        ([0, 1, 1], "classification"),
        ([0.0, 1.0, 1.0], "classification"),
        (np.arange(100) % 3, "classification"),
        (np.arange(100) % 60, "regression"),
        ([0.5, 1.0, 2.0], "regression"),
        (np.arange(5), "regression"),
        (np.zeros((6, 2)), "regression"),
    ],
)
def test_task_follows_the_target(y, task):
    assert guess_task(y) == task


def test_feature_names(towns):
    X, _ = towns
    encoder = TableEncoder().fit(X)
    names = ["town=Bath", "town=Hull", "town=York", "size"]
    assert encoder.get_feature_names_out().tolist() == names
    assert encoder.get_feature_names_out(["town", "size"]).tolist() == names
    with pytest.raises(ValueError, match="not equal to feature_names_in_"):
        encoder.get_feature_names_out(["size", "town"])
    unnamed = TableEncoder().fit(X.to_numpy())
    assert unnamed.get_feature_names_out().tolist()[-1] == "x1"
    assert unnamed.get_feature_names_out(["a", "b"]).tolist()[-1] == "b"
    with pytest.raises(ValueError, match="length equal to number of features"):
        unnamed.get_feature_names_out(["a"])
    clash = pl.DataFrame({"a=x": [1, 2], "a": ["x", "y"]})
    out = TableEncoder().fit(clash).get_feature_names_out().tolist()
    assert out == ["a=x", "a=x (2)", "a=y"]


def test_set_output(towns):
    X, _ = towns
    X.index = X.index + 7
    framed = TableEncoder().set_output(transform="pandas").fit_transform(X)
    assert framed.columns.tolist()[-1] == "size"
    assert framed.index.equals(X.index)
    framed = TableEncoder().set_output(transform="polars").fit(X).transform(X)
    assert isinstance(framed, pl.DataFrame)


def test_copies_behave_alike(towns):
    X, y = towns
    pipeline = TablePipeline(estimator=LogisticRegression()).fit(X, y)
    for twin in (pickle.loads(pickle.dumps(pipeline)), copy.deepcopy(pipeline)):
        np.testing.assert_array_equal(twin.predict(X), pipeline.predict(X))
    assert not hasattr(clone(pipeline), "estimator_")


def test_printing_shows_the_parameters_and_the_columns(towns):
    X, _ = towns
    encoder = TableEncoder()
    defaults = (
        "TableEncoder(max_categories=30, scale=True, sparse_output='auto', "
        "text='ngrams')"
    )
    assert repr(encoder) == str(encoder) == defaults
    with pytest.raises(NotFittedError):
        _ = encoder.columns_
    X = X.assign(Id=range(len(X)), flag=[True, None] * 60)
    encoder.fit(X)
    expected = '1 number, 1 category; 1 column has gaps; not used: "Id"'
    assert encoder.summary().replace(", 1 boolean", "") == expected
    assert "town  category    one-hot, 3 levels" in str(encoder)
    page = encoder._repr_mimebundle_()["text/html"]
    assert page.count("<tr>") >= 5
    hostile = TableEncoder().fit(pl.DataFrame({"<script>": [1, 2]}))
    assert "<td><script>" not in hostile._repr_html_()


def test_arrays_match_frames_by_position_with_the_warning_of_scikit_learn(towns):
    X, _ = towns
    named, unnamed = TableEncoder().fit(X), TableEncoder().fit(X.to_numpy())
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        one = named.transform(X.to_numpy())
    with pytest.warns(UserWarning, match="fitted without feature names"):
        two = unnamed.transform(X)
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "params",
    [{"max_categories": 0}, {"max_categories": 2.5}, {"sparse_output": "yes"}],
)
def test_bad_parameters_are_named(params, towns):
    with pytest.raises(ValueError, match=next(iter(params))):
        TableEncoder(**params).fit(towns[0])


def test_model_without_weights_says_so(towns):
    from sklearn.neighbors import KNeighborsClassifier

    X, y = towns
    pipeline = TablePipeline(estimator=KNeighborsClassifier())
    with pytest.raises(TableError, match="takes no sample_weight"):
        pipeline.fit(X, y, sample_weight=np.ones(len(y)))
    assert pipeline.fit(X, y).score(X, y) > 0.7
