"""Flows on awkward tables: constants, copies, heavy tails, atoms, gaps, one row."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import certus
from certus.generative import NormalizingFlow

RNG = np.random.default_rng(0)
N = RNG.normal(size=(120, 2))


def fitted(X: Any, **params: Any) -> NormalizingFlow:
    params = {"max_iter": 12, "n_components": 2, "hidden_layer_sizes": (8,)} | params
    with certus.config_context(certify="never"):
        return NormalizingFlow(random_state=0, **params).fit(X)


def test_constant_columns_are_left_out_and_put_back() -> None:
    X = np.column_stack([N[:, 0], np.full(120, 7.5), N[:, 1]])
    model = fitted(X)
    assert model.varies_.tolist() == [True, False, True]
    assert (model.sample(9, random_state=0)[:, 1] == 7.5).all()
    same = fitted(N)
    np.testing.assert_allclose(model.score_samples(X), same.score_samples(N))
    assert model.transform(X).shape == (120, 2)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X)
    other = X[:3].copy()
    other[1, 1] = 7.6
    assert np.isneginf(model.score_samples(other)).tolist() == [False, True, False]
    assert certus.certify(model, X).met


def test_all_columns_constant_or_one_row_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to learn"):
        fitted(np.ones((20, 3)))
    with pytest.raises(ValueError, match="1 sample"):
        fitted(N[:1])


@pytest.mark.parametrize("layers", ["spline", "affine", "monotone", "sum_of_squares"])
def test_a_copied_column_keeps_its_copy(layers) -> None:
    model = fitted(np.column_stack([N[:, 0], N[:, 0]]), layer=layers)
    S = model.sample(200, random_state=0)
    assert np.isfinite(S).all()
    assert np.abs(S[:, 0] - S[:, 1]).max() < 0.5


@pytest.mark.parametrize("layers", ["spline", "sum_of_squares", "planar"])
def test_heavy_tails_and_atoms_stay_finite(layers) -> None:
    X = np.column_stack([RNG.standard_cauchy(200), RNG.integers(0, 2, 200)])
    model = fitted(X, layer=layers)
    assert np.isfinite(model.score(X))
    assert np.isfinite(model.sample(500, random_state=0)).all()
    assert certus.certify(model, X)["bijective"].met


def test_gaps_are_refused_with_a_hint() -> None:
    X = N.copy()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="impute"):
        fitted(X)
    model = fitted(N)
    with pytest.raises(ValueError, match="impute"):
        model.score_samples(X)
    assert np.isfinite(model.impute(X, random_state=0)).all()


def test_far_outside_the_density_is_small_without_warnings() -> None:
    model = fitted(N)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        far = model.score_samples([[1e3, 0], [1e8, -1e8], [1e200, 0], [0, -1e300]])
    assert (far[:2] < -1e4).all() and np.isneginf(far[2:]).all()
    X = [[50.0, -80.0], [1e6, 3.0]]
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X)


def test_columns_of_very_different_sizes() -> None:
    X = np.column_stack([1e12 * N[:, 0] + 3e14, 1e-9 * N[:, 1]])
    model = fitted(X)
    same = fitted(N).score_samples(N)
    volume = np.log(1e12) + np.log(1e-9)
    np.testing.assert_allclose(model.score_samples(X) + volume, same, atol=1e-3)


@pytest.mark.parametrize("n", [2, 5, 11])
def test_few_rows(n) -> None:
    model = fitted(N[:n], n_components=1, base="normal")
    assert np.isfinite(model.sample(3, random_state=0)).all()
    assert np.isfinite(model.score(N[:n]))


def test_images_keep_their_shape() -> None:
    X = RNG.integers(0, 255, size=(60, 3, 2)).astype(np.uint8)
    model = fitted(X)
    assert model.sample(4, random_state=0).shape == (4, 3, 2)
    assert model.score_samples(X).shape == (60,)
    flat = X.reshape(60, 6)
    np.testing.assert_array_equal(model.score_samples(flat), model.score_samples(X))
    with pytest.raises(ValueError, match="6"):
        model.score_samples(X[:, :2])


@pytest.mark.parametrize(
    "params, told",
    [
        ({"layer": "glow"}, "layer must be one of"),
        ({"base": "uniform"}, "base must be one of"),
        ({"n_layers": 0}, "n_layers must be"),
        ({"max_iter": -1}, "max_iter must be"),
        ({"average": 1.5}, "average must be"),
        ({"coupling": True}, "at least 2 columns"),
    ],
)
def test_wrong_parameters_are_named(params, told) -> None:
    X = N[:, :1] if "coupling" in params else N
    with pytest.raises(ValueError, match=told):
        fitted(X, **params)


def test_ctrl_c_leaves_a_fitted_model(monkeypatch) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    calls = []
    plain = NormalizingFlow._losses

    def losses(self: Any, *args: Any) -> Any:
        calls.append(1)
        return interrupted() if len(calls) == 25 else plain(self, *args)

    monkeypatch.setattr(NormalizingFlow, "_losses", losses)
    with certus.config_context(certify="never", on_interrupt="return"):
        model = NormalizingFlow(
            max_iter=40, n_components=1, hidden_layer_sizes=(8,), random_state=0
        ).fit(N)
    assert np.isfinite(model.score(N))
    assert model.validation_score_ >= model.start_score_ - 1e-5
