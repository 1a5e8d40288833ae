"""Perceptrons under bad input, absurd scales, short clocks and Ctrl-C."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from scipy import sparse

from certus import config_context
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.neural_network import MLPClassifier, MLPRegressor

rng = np.random.default_rng(0)
X, y = rng.standard_normal((60, 4)), rng.integers(3, size=60)


@pytest.mark.parametrize("engine", ["explicit", "torch"])
@pytest.mark.parametrize(
    "X, y, text",
    [
        (np.full((5, 2), np.nan), np.arange(5) % 2, "NaN"),
        (np.full((5, 2), np.inf), np.arange(5) % 2, "infinity"),
        (np.empty((0, 2)), np.empty(0, int), "0 sample"),
        (np.ones((5, 2)), np.zeros(5, int), "only one class"),
        (np.ones((5, 2)), np.zeros(4, int), "inconsistent numbers"),
        (np.ones((5, 2)), np.ones((5, 2)) * 3, "zeros and ones"),
        (np.ones(5), np.arange(5) % 2, "2D array"),
    ],
    ids=["nan", "inf", "empty", "one class", "lengths", "table", "flat"],
)
def test_bad_data_gets_a_clear_message(X, y, text, engine):
    with pytest.raises(ValueError, match=text):
        MLPClassifier(engine=engine).fit(X, y)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"hidden_layer_sizes": (3, 0)}, "hidden_layer_sizes"),
        ({"hidden_layer_sizes": (2.5,)}, "hidden_layer_sizes"),
        ({"activation": "sine"}, "activation"),
        ({"solver": "newton"}, "solver"),
        ({"alpha": -1}, "alpha"),
        ({"batch_size": 0}, "batch_size"),
        ({"learning_rate_init": 0}, "learning_rate_init"),
        ({"beta_1": 1.0}, "beta_1"),
        ({"dropout": 1.0}, "dropout"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"engine": "jax"}, "engine"),
        ({"normalization": "group"}, "normalization"),
        ({"max_time": 0}, "max_time"),
        ({"engine": "torch", "solver": "lbfgs"}, "solver='lbfgs'"),
        ({"dropout": 0.1, "shuffle": False}, "shuffle"),
        ({"early_stopping": True, "validation_fraction": 1e-9}, "validation"),
    ],
    ids=str,
)
def test_bad_parameters_get_a_clear_message(options, text):
    with pytest.raises((ValueError, TypeError), match=text):
        MLPClassifier(**options).fit(X, y)


def test_poisson_refuses_negative_counts():
    with pytest.raises(ValueError, match="of at least 0"):
        MLPRegressor(loss="poisson").fit(X, X[:, 0])


def test_validation_rows_are_looked_at():
    for val, text in [
        ({"X_val": X}, "both"),
        ({"X_val": X, "y_val": y[:5]}, "X_val has 60 rows"),
        ({"X_val": X[:, :2], "y_val": y}, "features"),
        ({"X_val": X, "y_val": y + 7}, "not fitted on"),
    ]:
        with pytest.raises(ValueError, match=text):
            MLPClassifier().fit(X, y, **val)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
def test_absurd_scales_leave_finite_weights(solver, scale):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)
        model = MLPClassifier(solver=solver, max_iter=5, random_state=0)
        model.fit(scale * X, y)
        other = MLPRegressor(solver=solver, max_iter=5, random_state=0)
        other.fit(X, scale * X[:, 0])
    for one in (model, other):
        assert all(np.isfinite(W).all() for W in one.coefs_)
        assert one.certificate_.status is not Status.SOLVED or one.solver == "lbfgs"


def test_divergence_is_reported_and_the_last_good_weights_are_kept():
    model = MLPRegressor(solver="sgd", learning_rate_init=1e4, random_state=0)
    with pytest.warns(UncertifiedWarning, match="NaN or infinite in epoch"):
        model.fit(X, X[:, 0])
    assert model.certificate_.status is Status.DIVERGED
    assert "learning_rate_init" in model.certificate_["training_loss"].fix
    assert np.isfinite(model.predict(X)).all()


def test_divergence_in_a_partial_fit_is_an_error_and_undone():
    model = MLPRegressor(solver="sgd", random_state=0).partial_fit(X, X[:, 0])
    before = model.predict(X)
    with pytest.raises(ValueError, match="became NaN or infinite"):
        model.partial_fit(X, np.full(60, 1e308))
    assert np.array_equal(model.predict(X), before)


@pytest.mark.parametrize(
    "rows", [1, 2, 61], ids=["a row", "two", "a last batch of one"]
)
@pytest.mark.parametrize("design", [{}, {"normalization": "layer"}], ids=str)
def test_few_rows(rows, design):
    X = rng.standard_normal((rows, 3))
    model = MLPRegressor(batch_size=60, max_iter=3, random_state=0, **design)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)
        assert np.isfinite(model.fit(X, X[:, 0]).predict(X)).all()


def test_ten_classes_with_one_row_each_and_constant_columns():
    X = np.c_[np.eye(10), np.ones(10)]
    model = MLPClassifier(solver="lbfgs", random_state=0).fit(X, np.arange(10))
    assert model.score(X, np.arange(10)) == 1


def test_constant_target_is_learnt():
    model = MLPRegressor(solver="lbfgs", random_state=0).fit(X, np.full(60, 3.0))
    assert np.allclose(model.predict(X), 3, atol=0.05)


def test_dead_units_are_reported():
    model = MLPClassifier((10,), random_state=0, max_iter=1, learning_rate_init=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)
        model.fit(X, y)
        model.intercepts_[0][:4] = -1e6
        from certus import certify

        assert certify(model, X, y)["dead_units"].value >= 4


def test_damaged_sparse_rows_are_refused():
    S = sparse.csr_matrix(X)
    S.indices[0] = 1000
    with pytest.raises(ValueError, match="damaged"):
        MLPClassifier().fit(S, y)


def test_weights_of_zero_are_absent_rows():
    s = np.ones(60)
    s[:20] = 0
    big = X.copy()
    big[:20] = 1e300
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)
        one = MLPClassifier(max_iter=3, random_state=0).fit(big, y, s)
        two = MLPClassifier(max_iter=3, random_state=0).fit(X[20:], y[20:])
    assert np.allclose(one.coefs_[0], two.coefs_[0])
    with pytest.raises(ValueError, match="not all zero"):
        MLPClassifier().fit(X, y, np.zeros(60))


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_the_clock_ends_a_fit(solver):
    wide = rng.standard_normal((4000, 300))
    many = rng.integers(2, size=4000)
    options = {"max_iter": 10**6, "n_iter_no_change": 10**6, "tol": 0, "alpha": 1.0}
    MLPClassifier((5,), tol=0.1, random_state=0).fit(X, y)  # compiles
    model = MLPClassifier((200, 200), solver=solver, max_time=0.5, **options)
    start = time.perf_counter()
    with pytest.warns(UncertifiedWarning, match="max_time"):
        model.fit(wide, many)
    assert time.perf_counter() - start < 8
    assert model.certificate_.status is Status.TIME_LIMIT
    assert model.predict(wide).shape == (4000,)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_ctrl_c_leaves_a_fitted_model(solver):
    wide, many = rng.standard_normal((4000, 300)), rng.integers(2, size=4000)
    options = {"max_iter": 10**6, "n_iter_no_change": 10**6, "tol": 0, "alpha": 1.0}
    model = MLPClassifier((200, 200), solver=solver, max_time=30, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)
        MLPClassifier((5,), solver=solver, max_iter=2).fit(wide, many)  # compiled
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.perf_counter()
    with config_context(on_interrupt="return"):
        model.fit(wide, many)
    timer.join()
    assert time.perf_counter() - start < 20
    assert model.certificate_.status is Status.INTERRUPTED
    assert model.predict_proba(wide).shape == (4000, 2)


def test_the_explicit_engine_needs_no_torch():
    code = """
import sys
class Without:
    def find_spec(self, name, *_):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Without())
import numpy as np
from certus.neural_network import MLPClassifier
X = np.random.default_rng(0).standard_normal((50, 3))
model = MLPClassifier(solver="lbfgs", random_state=0).fit(X, X[:, 0] > 0)
assert model.score(X, X[:, 0] > 0) == 1
import certus
certus.certify(model, X, X[:, 0] > 0, level="full")
other = MLPClassifier(dropout=0.5)
for call in (lambda: other.fit(X, X[:, 0] > 0), lambda: model.module_):
    try:
        call()
    except ImportError as error:
        assert 'certus[deep]' in str(error), error
    else:
        raise SystemExit("no error")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("engine", ["explicit", "torch"])
def test_copies_and_pickles_go_on_as_the_model_does(engine):
    model = MLPClassifier((6,), engine=engine, max_iter=3, random_state=0)
    with config_context(on_uncertified="ignore"):
        model.fit(X, y)
    twin, copied = pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
    for other in (twin, copied):
        assert np.array_equal(other.predict_proba(X), model.predict_proba(X))
        other.partial_fit(X, y)
    assert np.array_equal(twin.predict_proba(X), copied.predict_proba(X))


def test_read_only_rows_compile_nothing_again():
    from certus.neural_network.backprop_kernels import train

    s = np.linspace(1, 2, 60)
    options = {"max_iter": 2, "random_state": 0, "hidden_layer_sizes": (4,)}
    with config_context(on_uncertified="ignore"):
        plain = MLPClassifier(**options).fit(X, y, sample_weight=s)
        known = len(train.signatures)
        frozen = [np.array(part) for part in (X, y, s)]
        for part in frozen:
            part.flags.writeable = False
        again = MLPClassifier(**options).fit(*frozen)
    assert len(train.signatures) == known
    assert np.array_equal(plain.predict_proba(X), again.predict_proba(X))


@pytest.mark.parametrize("engine", ["explicit", "torch"])
def test_rows_that_overflow_get_no_class(engine):
    model = MLPClassifier((6,), engine=engine, max_iter=2, random_state=0)
    with config_context(on_uncertified="ignore"):
        model.fit(X, y)
    far = np.where(np.arange(60)[:, None] == 9, 1.7e308, X)
    for method in (model.predict, model.predict_proba):
        with (
            np.errstate(all="ignore"),
            pytest.raises(ValueError, match="infinity for row 9 of X"),
        ):
            method(far)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"class_weight": {0: 0, 1: 0, 2: 0}}, "leaves no row with a positive weight"),
        ({"class_weight": {"one": 3.0}}, "names 'one', which is not a class of y"),
        ({"early_stopping": "no"}, "early_stopping must be one of False, True"),
        ({"shuffle": None}, "shuffle must be one of False, True"),
    ],
    ids=str,
)
@pytest.mark.parametrize("engine", ["explicit", "torch"])
def test_invalid_weights_and_flags_are_refused(engine, options, text):
    with pytest.raises(ValueError, match=text):
        MLPClassifier(engine=engine, **options).fit(X, y)


@pytest.mark.parametrize("model", [MLPClassifier, MLPRegressor])
def test_a_perceptron_with_a_checkpoint_goes_on_where_it_was(tmp_path, model) -> None:
    """Three epochs and then six, in another process's place, are six in one go."""
    options = {"hidden_layer_sizes": (7,), "random_state": 0, "n_iter_no_change": 50}
    with config_context(on_uncertified="ignore"):
        whole = model(max_iter=6, engine="torch", **options).fit(X, y)
        half = model(max_iter=3, checkpoint=tmp_path, **options).fit(X, y)
        again = model(max_iter=6, checkpoint=tmp_path, **options).fit(X, y)
    assert len(again.history_["loss"]) == 6
    # Its first epochs are the very ones of the other run.
    assert again.history_["seconds"][:3] == half.history_["seconds"]
    assert again.history_["loss"] == whole.history_["loss"]
    for ours, theirs in zip(again.coefs_, whole.coefs_):
        np.testing.assert_array_equal(ours, theirs)


def test_a_missing_device_is_refused() -> None:
    with pytest.raises(ValueError, match="device"):
        MLPClassifier(device="nowhere").fit(X, y)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("cell", [(0, 0), (31, 2), (59, 3)])
@pytest.mark.parametrize(
    "activation, width",
    [("tanh", 6), ("logistic", 6), ("relu", 6), ("relu", 10_000), ("tanh", 10_000)],
)
def test_a_cell_that_is_not_a_number_is_found_in_prediction(
    activation, width, cell, bad
):
    """A bend may hide it: tanh makes one of infinity. Small and large layers differ."""
    model = MLPClassifier((width,), activation=activation, max_iter=1, random_state=0)
    with config_context(on_uncertified="ignore"):
        model.fit(X[:12], y[:12])
    X_bad = X.copy()
    X_bad[cell] = bad
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        model.predict(X_bad)
