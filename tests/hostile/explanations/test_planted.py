"""Planted faults: numbers moved, other rows, another model. Each must be found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.svm import SVR

import certus
from certus.certificate import Status

X, y = load_diabetes(return_X_y=True)
ROWS, BEHIND = X[:6, :5], X[50:60, :5]
MODELS = {"linear": Ridge(), "definition": SVR(C=20.0), "sampled": SVR(C=20.0)}


def explained(way: str) -> tuple[Any, Any]:
    model = MODELS[way].fit(X[:, :5], y)
    more = {"method": "sampled", "max_asked": 4000} if way == "sampled" else {}
    return model, certus.explain(model, ROWS, BEHIND, **more)


def missed(certificate: Any) -> set[str]:
    assert certificate.status is Status.TOL_NOT_REACHED
    return {claim.name for claim in certificate.claims if claim.met is False}


def changed(found: Any, **parts: Any) -> Any:
    return replace(found, told=found.told._replace(**parts))


@pytest.mark.parametrize("way", sorted(MODELS))
def test_computed_values_are_confirmed(way: str) -> None:
    model, found = explained(way)
    assert found.certify(model, ROWS, BEHIND).status is Status.SOLVED


@pytest.mark.parametrize("way", sorted(MODELS))
def test_a_changed_contribution_is_found(way: str) -> None:
    model, found = explained(way)
    values = found.values.copy()
    values[2, 1, 0] += 1e-5
    seen = changed(found, values=values).certify(model, ROWS, BEHIND)
    assert "additivity" in missed(seen)


@pytest.mark.parametrize("way", sorted(MODELS))
def test_a_share_that_moved_to_another_column_is_found(way: str) -> None:
    """It adds up all the same."""
    model, found = explained(way)
    values = found.values.copy()
    values[0, 1, 0] += 1e-5
    values[0, 2, 0] -= 1e-5
    seen = changed(found, values=values).certify(model, ROWS, BEHIND)
    name = "replayed_orders" if way == "sampled" else "contributions"
    assert missed(seen) == {name}


@pytest.mark.parametrize("way", sorted(MODELS))
def test_a_shifted_base_value_is_found(way: str) -> None:
    model, found = explained(way)
    values = found.values.copy()
    values[:, 0] -= 0.01
    seen = changed(found, base=found.base + 0.01, values=values)
    assert "base_value" in missed(seen.certify(model, ROWS, BEHIND))


@pytest.mark.parametrize("way", sorted(MODELS))
def test_another_background_is_found(way: str) -> None:
    model, found = explained(way)
    other = BEHIND.copy()
    other[3, 2] += 0.05
    assert "base_value" in missed(found.certify(model, ROWS, other))


@pytest.mark.parametrize("way", sorted(MODELS))
def test_a_model_that_was_changed_afterwards_is_found(way: str) -> None:
    _, found = explained(way)
    other = type(MODELS[way])().fit(X[:200, :5], y[:200])
    assert "additivity" in missed(found.certify(other, ROWS, BEHIND))


def test_other_rows_are_found() -> None:
    model, found = explained("linear")
    assert "additivity" in missed(found.certify(model, ROWS[::-1], BEHIND))
    seen = found.certify(model, ROWS[:2], BEHIND)
    assert seen.status is Status.UNDECIDED and seen.met is None


def test_an_encoder_that_mixes_columns_in_secret_is_found() -> None:
    """A scaler by name that adds the first column to the second."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler as Honest

    class StandardScaler(Honest):
        def transform(self, X: Any) -> Any:
            Z = super().transform(X)
            Z[:, 1] += Z[:, 0]
            return Z

    model = make_pipeline(StandardScaler(), Ridge()).fit(X[:, :5], y)
    found = certus.explain(model, ROWS, BEHIND)
    claim = found.certificate["contributions"]
    assert claim.strength == "refused" and "mixes columns" in claim.detail


def test_infinite_and_missing_numbers_are_not_confirmed() -> None:
    model, found = explained("linear")
    for bad in (np.nan, np.inf):
        values = found.values.copy()
        values[1, 1, 0] = bad
        seen = changed(found, values=values).certify(model, ROWS, BEHIND)
        assert "additivity" in missed(seen)
