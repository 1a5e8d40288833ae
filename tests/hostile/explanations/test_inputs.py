"""Difficult input is explained, or refused with an error that says what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, Perceptron, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC

import certus

X, y = load_diabetes(return_X_y=True)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((X[:1],), "one row"),
        ((X[:0],), "no rows"),
        ((X[:3], X[:0]), "background has no rows"),
        ((X[0],), "rows and columns"),
        ((X[:3, :4], X[:9, :4]), "4 columns, but the model was fitted on 10"),
        ((X[:3], X[:9, :4]), "X has 10 columns and background has 4"),
        ((X[:3], pl.DataFrame(X[:9])), "Pass both in the same form"),
    ],
)
def test_wrong_rows_are_refused(arguments: Any, what: str) -> None:
    with pytest.raises((ValueError, TypeError), match=what):
        certus.explain(Ridge().fit(X, y), *arguments)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"output": "odds"}, "output must be one of"),
        ({"method": "fast"}, "method must be one of"),
        ({"delta": 2}, "delta"),
        ({"max_asked": 0}, "max_asked"),
        ({"output": "probability"}, "predicts numbers"),
    ],
)
def test_wrong_options_are_refused(options: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        certus.explain(Ridge().fit(X, y), X[:3], X[:9], **options)


def test_a_class_or_a_number_is_not_a_model() -> None:
    with pytest.raises(TypeError, match="got the class Ridge"):
        certus.explain(Ridge, X[:3], X[:9])
    with pytest.raises(TypeError, match="needs a model that predicts"):
        certus.explain(3, X[:3], X[:9])  # type: ignore[arg-type]


def test_a_missing_column_is_named() -> None:
    table = pl.DataFrame(X, schema=[f"c{j}" for j in range(10)])
    model = Ridge().fit(table.to_pandas(), y)
    rows = table.to_pandas()
    found = certus.explain(model, rows[:3].assign(extra=1)[::-1], rows[:9])
    assert found.columns == tuple(f"c{j}" for j in range(10))
    with pytest.raises(ValueError, match="has no column 'c4'"):
        certus.explain(model, rows[:3].drop(columns="c4"), rows[:9])


@pytest.mark.parametrize("levels", [["a", "b", "c"], ["c", "b", "a"], list("zcba")])
def test_lists_of_categories_may_differ(levels: list[str]) -> None:
    """A background may list its categories in another order, or have one more."""
    rng = np.random.default_rng(0)
    words, size = rng.choice(list("abc"), 60), rng.normal(size=60)
    plain = pl.DataFrame({"c": words, "size": size})
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["c"]), remainder="passthrough"
    )
    model = make_pipeline(encoder, Ridge()).fit(plain, size + (words == "a"))
    behind = plain.with_columns(c=pl.Series([levels[0], *words[1:]]))
    expected = certus.explain(model, plain[:4], behind)
    found = certus.explain(
        model,
        plain[:4].cast({"c": pl.Enum(["a", "b", "c"])}),
        behind.cast({"c": pl.Enum(levels)}),
    )
    np.testing.assert_allclose(found.values, expected.values, atol=1e-12)
    assert found.certificate.met


def test_one_row_one_column_one_background_row() -> None:
    model = LinearRegression().fit(X[:, :1], y)
    found = certus.explain(model, X[:1, :1], X[1:2, :1])
    assert found.values.shape == (1, 1, 1) and found.certificate.met
    assert "1 row, 1 column" in str(found)


def test_several_targets() -> None:
    model = LinearRegression().fit(X, np.column_stack([y, -y]))
    found = certus.explain(model, X[:4], X[:9])
    assert found.outputs == ("output 0", "output 1")
    np.testing.assert_allclose(found.values[..., 0], -found.values[..., 1])
    assert found.certificate.met


def test_missing_values_go_through_a_pipeline() -> None:
    holes = X.copy()
    holes[::3, 2] = np.nan
    model = make_pipeline(SimpleImputer(), Ridge()).fit(holes, y)
    found = certus.explain(model, holes[:6], holes[:30])
    assert np.isfinite(found.values).all() and found.certificate.met
    assert found.certificate["contributions"].met


def test_classifiers_without_probabilities() -> None:
    labels = np.where(y > 140, "high", "low")
    for model in (SVC(), Perceptron()):
        fitted = model.fit(X[:, :4], labels)
        found = certus.explain(fitted, X[:3, :4], X[:9, :4])
        assert found.outputs == ("low",) and found.certificate.met
    found = certus.explain(fitted, X[:3, :4], X[:9, :4], output="prediction")
    assert set(np.unique(found.predictions)) <= {0.0, 1.0}
    with pytest.raises(ValueError, match="does not give a probability"):
        certus.explain(fitted, X[:3, :4], X[:9, :4], output="probability")


def test_answers_that_are_not_finite_are_refused() -> None:
    def model(Z: Any) -> Any:
        return np.where(np.arange(len(Z)) < 2, np.nan, 1.0)

    # Two of the rows and two of the background rows, which are asked apart.
    with pytest.raises(ValueError, match="NaN or infinity for 4"):
        certus.explain(model, X[:3], X[:9])


def test_too_many_columns_for_an_exact_answer() -> None:
    wide = np.random.default_rng(0).normal(size=(40, 20))
    model = SVC().fit(wide, wide[:, 0] > 0)
    with pytest.raises(ValueError, match="No closed form is known for SVC"):
        certus.explain(model, wide[:2], wide, method="exact")
    found = certus.explain(model, wide[:2], wide[:5], max_asked=3000)
    assert found.low is not None and found.certificate.met
