"""Contributions against the definition, written out; and identities that must hold."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVR

import certus
from certus.certificate import Strength
from certus.explanations.explaining import recheck

X, y = load_diabetes(return_X_y=True)
FLOWERS, KINDS = load_iris(return_X_y=True)


def by_orders(f: Any, x: Any, background: Any) -> Any:
    """The mean over all orders of what each column adds, as the definition says."""
    d, found, count = len(x), 0.0, 0
    for order in permutations(range(d)):
        added = np.zeros(d)
        rows = np.array(background, dtype=float)
        before = f(rows).mean()
        for j in order:
            rows[:, j] = x[j]
            after = f(rows).mean()
            added[j], before = after - before, after
        found, count = found + added, count + 1
    return found / count


def test_the_definition_is_kept_by_any_model() -> None:
    model = SVR(C=50.0).fit(X[:, :4], y)
    rows, background = X[5:8, :4], X[20:26, :4]
    found = certus.explain(model, rows, background)
    for i, x in enumerate(rows):
        expected = by_orders(model.predict, x, background)
        np.testing.assert_allclose(found.values[i, :, 0], expected, atol=1e-10)
    assert found.certificate.met
    assert found.certificate["contributions"].strength is Strength.PROVED


@pytest.mark.parametrize("background", [X[:1], X[:40]])
def test_a_linear_model_has_a_closed_form(background: Any) -> None:
    model = Ridge().fit(X, y)
    found = certus.explain(model, X[:30], background)
    expected = model.coef_ * (X[:30] - background.mean(axis=0))
    np.testing.assert_allclose(found.values[:, :, 0], expected, atol=1e-12)
    assert [claim.met for claim in found.certificate.claims] == [True] * 3


def test_a_glm_is_explained_on_its_link_scale() -> None:
    model = PoissonRegressor(alpha=1e-3).fit(X, y)
    found = certus.explain(model, X[:3], X[:50])
    np.testing.assert_allclose(found.predictions[:, 0], np.log(model.predict(X[:3])))
    assert found.unit == "logarithm of the prediction"
    assert found.certificate["contributions"].met


def test_classes_have_contributions_of_their_own() -> None:
    model = LogisticRegression(max_iter=2000).fit(FLOWERS, KINDS)
    found = certus.explain(model, FLOWERS[::50], FLOWERS[::10])
    assert found.values.shape == (3, 4, 3) and found.outputs == ("0", "1", "2")
    total = found.base + found.values.sum(axis=1)
    np.testing.assert_allclose(total, model.decision_function(FLOWERS[::50]))
    neighbours = KNeighborsClassifier().fit(FLOWERS, KINDS)
    shares = certus.explain(neighbours, FLOWERS[::50], FLOWERS[::30])
    assert shares.unit == "probability" and shares.certificate.met


def test_columns_that_do_not_differ_contribute_nothing() -> None:
    model = SVR().fit(X, y)
    rows, background = X[:2].copy(), X[10:14].copy()
    rows[:, 3] = background[:, 3] = 0.02
    found = certus.explain(model, rows[:, :], background)
    assert (found.values[:, 3] == 0).all()


def frame() -> tuple[pl.DataFrame, Any]:
    rng = np.random.default_rng(0)
    towns = np.array(["Bath", "York", "Ely"])[rng.integers(3, size=60)]
    size = rng.normal(size=60)
    return pl.DataFrame({"town": towns, "size": size}), size + 2.0 * (towns == "Ely")


def test_encoded_columns_belong_to_the_users_columns() -> None:
    table, target = frame()
    pandas = table.to_pandas()
    encoder = make_column_transformer(
        (StandardScaler(), ["size"]), (OneHotEncoder(sparse_output=False), ["town"])
    )
    model = make_pipeline(encoder, Ridge(alpha=1e-6)).fit(pandas, target)
    found = certus.explain(model, pandas[:5], pandas[20:40])
    assert found.columns == ("town", "size") and found.way.startswith("closed")
    slow = certus.explain(lambda rows: model.predict(rows), pandas[:5], pandas[20:40])
    np.testing.assert_allclose(found.values, slow.values, atol=1e-10)
    assert found.certificate["contributions"].met


def test_a_table_pipeline_is_explained_in_the_users_columns() -> None:
    from certus.tables import TablePipeline

    table, target = frame()
    model = TablePipeline().fit(table, target)
    found = certus.explain(model, table[:5], table[20:40])
    assert found.columns == ("town", "size") and found.certificate.met
    slow = certus.explain(lambda rows: model.predict(rows), table[:5], table[20:40])
    np.testing.assert_allclose(found.values, slow.values, atol=1e-10)


def test_an_encoder_that_mixes_columns_is_asked_as_a_whole() -> None:
    model = make_pipeline(PCA(2), Ridge()).fit(X[:, :4], y)
    found = certus.explain(model, X[:3, :4], X[10:20, :4])
    W = model[0].components_.T @ model[1].coef_
    expected = W * (X[:3, :4] - X[10:20, :4].mean(axis=0))
    np.testing.assert_allclose(found.values[:, :, 0], expected, atol=1e-9)
    assert found.way.startswith("the definition")


def test_sampled_orders_add_up_and_cover_the_truth() -> None:
    model = SVR(C=50.0).fit(X[:, :6], y)
    rows, background = X[:2, :6], X[20:30, :6]
    exact = certus.explain(model, rows, background)
    found = certus.explain(
        model, rows, background, method="sampled", max_asked=20_000, random_state=3
    )
    assert (found.low <= exact.values).all() and (exact.values <= found.high).all()
    assert np.abs(found.values - exact.values).max() > 1e-9
    claims = found.certificate
    assert claims["additivity"].met and claims["replayed_orders"].met
    assert claims["contributions"].strength is Strength.STATISTICAL


def test_the_table_has_a_line_for_each_part() -> None:
    table, target = frame()
    found = certus.explain(
        make_pipeline(StandardScaler(), Ridge()).fit(table[["size"]], target),
        table[["size"]][:3],
        table[["size"]],
    )
    shown = found.to_frame()
    assert shown.columns == ["row", "column", "value", "contribution"]
    assert shown.height == 3 and found.top(1) == ["size"]


def test_additive_models_and_their_pairs() -> None:
    from certus.additive import AdditiveRegressor

    rows = X[:, [0, 2, 3]]
    model = AdditiveRegressor(max_bins=8, interactions=[(0, 1)]).fit(rows, y)
    assert any(len(term) == 2 for term in model.terms_)
    found = certus.explain(model, rows[:5], rows[40:60])
    slow = certus.explain(lambda Z: model.predict(Z), rows[:5], rows[40:60])
    assert found.way.startswith("closed form of an additive model")
    np.testing.assert_allclose(found.values, slow.values, atol=1e-10)
    assert found.certificate["contributions"].met


def test_many_rows_have_the_contributions_of_a_few():
    rng = np.random.default_rng(5)
    A = rng.normal(size=(40_000, 30))
    model = Ridge().fit(A[:500], A[:500] @ rng.normal(size=(30, 2)))
    many = certus.explain(model, A, A[:20])
    few = certus.explain(model, A[-300:], A[:20])
    assert many.certificate.met and many.certificate["contributions"].met
    np.testing.assert_allclose(many.values[-300:], few.values, atol=1e-12)
    before = many.cells[3][0]
    A[0, 3] = 99.0  # cells are those of the call
    assert many.cells[3][0] == before
    wrong = many.told._replace(values=many.told.values.copy())
    wrong.values[-1, 3, 1] += 1e-3
    wrong.values[-1, 4, 1] -= 1e-3
    A[0, 3] = before
    found = recheck(wrong, model, A, A[:20], None, "quick")
    assert found["additivity"].met and found["contributions"].met is False
