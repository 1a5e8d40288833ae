"""Contributions of tree ensembles against the definition; rows of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import certus

X, y = load_diabetes(return_X_y=True)
FLOWERS, KINDS = load_iris(return_X_y=True)
HIGH = y > 140
CASES: dict[str, tuple[Any, Any, Any, str]] = {
    "boosting": (HistGradientBoostingRegressor(max_iter=20), X[:, :5], y, "predict"),
    "deep forest": (*(ExtraTreesRegressor(5, random_state=0), X[:, :6], y, "predict"),),
    "one tree": (DecisionTreeRegressor(random_state=0), X[:, :5], y, "predict"),
    "two classes": (
        *(RandomForestClassifier(5, random_state=0), X[:, :4], HIGH, "predict_proba"),
    ),
    "classes": (
        HistGradientBoostingClassifier(max_iter=5),
        *(FLOWERS, KINDS, "decision_function"),
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_definition_is_kept(name: str) -> None:
    model, table, target, method = CASES[name]
    model.fit(table, target)

    def asked(rows: Any) -> Any:
        z = getattr(model, method)(rows)
        return z[:, 1:] if name == "two classes" else z

    rows, behind = table[:4], table[60:70]
    found = certus.explain(model, rows, behind)
    slow = certus.explain(asked, rows, behind)
    assert found.way.startswith("exact over all leaves")
    np.testing.assert_allclose(found.values, slow.values, atol=1e-11)
    assert [claim.met for claim in found.certificate.claims] == [True] * 3


def test_missing_values_and_categories() -> None:
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.integers(6, size=200), rng.normal(size=(200, 2))])
    table[rng.random((200, 3)) < 0.1] = np.nan
    target = (
        np.isin(table[:, 0], [1, 4]) + np.nan_to_num(table[:, 1]) * table[:, 2] ** 2
    )
    target = np.nan_to_num(target)
    model = HistGradientBoostingRegressor(categorical_features=[0], max_iter=20)
    model.fit(table, target)
    found = certus.explain(model, table[:20], table[100:130])
    slow = certus.explain(lambda rows: model.predict(rows), table[:20], table[100:130])
    np.testing.assert_allclose(found.values, slow.values, atol=1e-12)
    assert found.certificate["contributions"].met


def test_a_forest_behind_a_scaler_and_many_rows() -> None:
    model = make_pipeline(StandardScaler(), HistGradientBoostingRegressor(max_iter=30))
    model.fit(X, y)
    found = certus.explain(model, X, X[::9])
    total = found.base + found.values.sum(axis=1)
    np.testing.assert_allclose(total[:, 0], model.predict(X), rtol=1e-10)
    assert found.certificate.met


def test_groups_of_encoded_columns_are_one_player() -> None:
    import polars as pl

    from certus.tables import TablePipeline

    rng = np.random.default_rng(1)
    towns = np.array(["Bath", "York", "Ely", "Hull"])[rng.integers(4, size=150)]
    size = rng.normal(size=150)
    table = pl.DataFrame({"town": towns, "size": size})
    target = np.where(towns == "Ely", size, 0.0) + (towns == "Bath")
    model = TablePipeline(estimator=HistGradientBoostingRegressor(max_iter=15))
    model.fit(table, target)
    found = certus.explain(model, table[:10], table[100:])
    slow = certus.explain(lambda rows: model.predict(rows), table[:10], table[100:])
    assert found.way.startswith("exact over all leaves")
    np.testing.assert_allclose(found.values, slow.values, atol=1e-11)


def test_a_planted_fault_in_a_tree_is_found() -> None:
    """The model's answers are those of other trees: nothing is confirmed."""
    model = HistGradientBoostingRegressor(max_iter=10).fit(X[:, :5], y)
    found = certus.explain(model, X[:6, :5], X[50:60, :5])
    other = HistGradientBoostingRegressor(max_iter=11).fit(X[:, :5], y)
    seen = found.certify(other, X[:6, :5], X[50:60, :5])
    assert seen["additivity"].met is False
    values = found.values.copy()
    values[0, 1] += 1e-5
    values[0, 2] -= 1e-5
    from dataclasses import replace

    moved = replace(found, told=found.told._replace(values=values))
    assert moved.certify(model, X[:6, :5], X[50:60, :5])["contributions"].met is False
