"""Autoregressive densities on awkward tables, conditions, parameters and files."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import certus
from certus.generative import AutoregressiveDensity
from certus.persist import ModelFileError

RNG = np.random.default_rng(0)
N = RNG.normal(size=(150, 2))


def fitted(X: Any, **params: Any) -> AutoregressiveDensity:
    params = {"max_iter": 12, "hidden_layer_sizes": (6,)} | params
    with certus.config_context(certify="never"):
        return AutoregressiveDensity(random_state=0, **params).fit(X)


@pytest.mark.parametrize(
    "X",
    [
        np.column_stack([N[:, 0], np.full(150, 7.5)]),  # a constant
        np.column_stack([N[:, 0], N[:, 0]]),  # a column twice
        RNG.standard_cauchy((150, 2)),  # heavy tails
        np.column_stack([np.where(N[:, 0] > 0, 0.0, N[:, 0]), N[:, 1] > 0]),  # atoms
        N * [1e200, 1e-200] + [0.0, 5e-200],  # absurd sizes
        np.ones((20, 2)),  # one value only
        N[:3],  # three rows
        np.round(N, 1),  # ties
    ],
    ids=["constant", "twice", "heavy", "atoms", "sizes", "one", "few", "ties"],
)
def test_odd_columns_are_learnt_drawn_and_certified(X) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fitted(X)
        S = model.sample(50, random_state=0)
        assert S.shape == (50, X.shape[1]) and np.isfinite(S).all()
        assert np.isfinite(model.score_samples(X)).all()
        assert (S.min(axis=0) >= X.min(axis=0) - 1).all()
    assert certus.certify(model, X)["normalised"].met


def test_a_constant_column_stays_and_a_copy_is_nearly_kept() -> None:
    model = fitted(np.column_stack([N[:, 0], np.full(150, 7.5)]))
    assert (model.sample(30, random_state=0)[:, 1] == 7.5).all()


def test_one_row_and_gaps_are_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match="minimum of 2"):
        fitted(N[:1])
    X = N.copy()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="impute"):
        fitted(X)
    assert np.isfinite(fitted(N).impute(X, random_state=0)).all()


def test_far_outside_counts_as_the_nearest_value_and_unknown_categories_as_none() -> (
    None
):
    X = np.column_stack([N[:, 0], N[:, 1] > 0])
    model = fitted(X)
    edges = model.cells_[0]["edges"]
    far = model.score_samples([[1e300, 1.0], [edges[-1], 1.0], [0.0, 0.5]])
    assert far[0] == far[1] and np.isneginf(far[2])


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"parts": 0}, "parts must be"),
        ({"parts": [1, 2, 3]}, "one for each of 2 columns"),
        ({"bins": 0}, "bins must be"),
        ({"uniform_share": 0.0}, "uniform_share must be"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"edges": [[0, 1]]}, "one array for each of 2"),
        ({"edges": [[1, 0], [0, 1]]}, "rising numbers"),
        ({"categorical_features": [4]}, "categorical_features must be"),
        ({"hidden_layer_sizes": ()}, "hidden_layer_sizes"),
    ],
)
def test_wrong_parameters_are_named(params, told) -> None:
    with pytest.raises(ValueError, match=told):
        fitted(N, **params)


def test_a_column_with_too_many_categories_is_refused() -> None:
    X = np.arange(2400.0).reshape(1200, 2)
    with pytest.raises(ValueError, match="at most 1,000 values"):
        fitted(X, categorical_features=[0])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({5: 1.0}, "does not have"),
        ({"age": 1.0}, "does not have"),
        ({0: "old"}, "a number or"),
        ({0: (2.0, 1.0)}, "low ≤ high"),
        ({0: np.nan}, "low ≤ high"),
        ({1: 0.5}, "probability zero"),
        ([1], "must be a dict"),
    ],
)
def test_impossible_conditions_are_refused(given, told) -> None:
    model = fitted(np.column_stack([N[:, 0], N[:, 1] > 0]))
    with pytest.raises(ValueError, match=told):
        model.sample(3, given=given)


def test_ctrl_c_leaves_a_fitted_model(monkeypatch) -> None:
    calls, plain = [], AutoregressiveDensity._losses

    def losses(self: Any, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return plain(self, *args)

    monkeypatch.setattr(AutoregressiveDensity, "_losses", losses)
    with certus.config_context(certify="never", on_interrupt="return"):
        model = AutoregressiveDensity(
            max_iter=40, hidden_layer_sizes=(6,), random_state=0
        ).fit(N)
    assert np.isfinite(model.score(N))
    assert model.validation_score_ >= model.start_score_ - 1e-5


def test_a_damaged_or_forged_file_is_refused(tmp_path) -> None:
    path = fitted(N).save(tmp_path / "law.certus")
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with pytest.raises(ModelFileError):
        certus.load(path)
    forged = whole.replace(b"parents", b"perents", 1)
    assert forged != whole
    path.write_bytes(forged)
    with pytest.raises(ModelFileError):
        certus.load(path)
