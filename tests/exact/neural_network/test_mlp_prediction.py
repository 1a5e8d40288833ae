"""Prediction of perceptrons: layer after layer, in blocks, on threads, in any type."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import expit

from certus.neural_network import MLPClassifier, MLPRegressor
from certus.neural_network.backprop_kernels import ACTIVATIONS, _tanh

rng = np.random.default_rng(0)
X = rng.standard_normal((5_000, 30))
X[rng.random(X.shape) < 0.5] = 0.0
y = X[:, 0] - np.abs(X[:, 1])

FORMULAS = {
    "identity": lambda z: z,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
    "elu": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))),
    "softplus": lambda z: np.logaddexp(z, 0),
}


def fitted(dtype, activation="relu", hidden=(40, 20)):
    model = MLPRegressor("squared_error", hidden, activation, solver="lbfgs")
    model.set_params(max_iter=3, random_state=0)
    return model.fit(X[:200].astype(dtype), y[:200])


def formula(model, X):
    h = np.asarray(X, dtype=np.float64)
    for W, b in zip(model.coefs_[:-1], model.intercepts_):
        h = FORMULAS[model.activation](h @ W.astype(float) + b)
    return (h @ model.coefs_[-1].astype(float) + model.intercepts_[-1])[:, 0]


@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_rows_get_the_values_of_the_formula(activation, dtype):
    model = fitted(dtype, activation)
    wanted, tolerance = formula(model, X), 3e-5 if dtype == np.float32 else 1e-11
    for rows in (X, X.astype(np.float32), np.asfortranarray(X), sparse.csc_array(X)):
        found = model.predict(rows)
        assert found.dtype == dtype  # the type of the weights
        if rows.dtype == np.float64 or dtype == np.float32:
            assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    assert_allclose(model.predict(X[:1]), wanted[:1], rtol=tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
@pytest.mark.parametrize("hidden", [(), (7,), (3, 50, 2)])
def test_any_number_of_layers_is_trained(hidden):
    model = fitted(np.float64, hidden=hidden)
    assert_allclose(model.predict(X), formula(model, X), atol=1e-12)


@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_a_cell_that_is_not_finite_is_found_wherever_it_is(bad, layout):
    model = fitted(np.float64)
    model.coefs_[0][:10] = 0.0  # a weight of zero does not hide it
    for row, column in [(0, 0), (1023, 29), (1024, 9), (4_999, 3), (2_600, 17)]:
        rows = X.copy()
        rows[row, column] = bad
        with pytest.raises(ValueError, match="NaN" if bad != bad else "infinity"):
            model.predict(layout(rows))


@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
def test_rows_beyond_the_type_of_the_weights_are_reported():
    rows = X[:5].copy()
    rows[2, 3] = 1e300
    with pytest.raises(ValueError, match="too large for float32"):
        fitted(np.float32).predict(rows)
    assert np.isfinite(fitted(np.float64).predict(rows)).all()


@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
def test_large_rows_are_accepted_although_a_product_overflows():
    model = MLPClassifier((4,), activation="tanh", max_iter=1, random_state=0)
    model.fit(X[:200].astype(np.float32), y[:200] > 0)
    model.coefs_[0][:] *= 100
    rows = np.full((3, 30), 3e38, dtype=np.float32)
    found = model.predict_proba(np.where(model.coefs_[0][:, 0] > 0, rows, -rows))
    assert np.isfinite(found).all()


@pytest.mark.parametrize("dtype, least", [(np.float32, 2e-7), (np.float64, 4e-16)])
def test_tanh_in_training_is_that_of_the_library(dtype, least):
    z = np.geomspace(1e-12, 100, 2_001)
    z = np.concatenate([z, -z, [0.0, 0.03, -0.03]]).astype(dtype)
    compiled = njit(_tanh)
    found = np.array([compiled(t) for t in z]).astype(dtype)
    assert np.abs(found - np.tanh(z.astype(float))).max() < least
    small = np.abs(z) < 0.03
    assert_allclose(found[small], np.tanh(z.astype(float))[small], rtol=least)
