"""scikit-learn's perceptrons: the same parameters give the same weights."""

from __future__ import annotations

import pickle
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import sklearn.neural_network as theirs
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from certus.neural_network import MLPClassifier, MLPRegressor

X, Y_DIGITS = load_digits(return_X_y=True)
X, Y_DIGITS = X[:600] / 16, Y_DIGITS[:600]
NUMBERS = X[:, 20] * 3
COUNTS = np.round(NUMBERS)
WEIGHTS = np.random.default_rng(0).uniform(0.2, 2, len(X))


@contextmanager
def quiet():
    """Fits of a few epochs are not finished, and say so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def both(name: str, X, y, weight=None, **options):
    """Ours and theirs, fitted alike."""
    options = {"random_state": 0, "max_iter": 6, **options}
    ours = {"MLPClassifier": MLPClassifier, "MLPRegressor": MLPRegressor}[name]
    with quiet():
        return (
            ours(**options).fit(X, y, weight),
            getattr(theirs, name)(**options).fit(X, y, weight),
        )


def same(ours, other, rtol: float = 1e-9) -> None:
    for a, b in zip(ours.coefs_ + ours.intercepts_, other.coefs_ + other.intercepts_):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert_allclose(a, b, rtol=rtol, atol=rtol)
    names = ("n_iter_", "t_", "n_layers_", "n_outputs_", "out_activation_")
    assert [getattr(ours, n) for n in names] == [getattr(other, n) for n in names]
    for name in ("loss_", "best_loss_", "loss_curve_", "validation_scores_"):
        a, b = getattr(ours, name, None), getattr(other, name, None)
        assert (a is None) == (b is None), name
        if a is not None:
            assert_allclose(a, b, rtol=rtol)


CLASSIFIERS = [
    {},
    {"hidden_layer_sizes": 7, "activation": "tanh", "alpha": 0.1},
    {"hidden_layer_sizes": (20, 10), "activation": "logistic", "batch_size": 33},
    {"activation": "identity", "shuffle": False, "beta_1": 0.5, "epsilon": 1e-3},
    {"solver": "sgd", "momentum": 0.5, "nesterovs_momentum": False},
    {"solver": "sgd", "learning_rate": "invscaling", "learning_rate_init": 0.5},
    {
        "solver": "sgd",
        "learning_rate": "adaptive",
        "learning_rate_init": 0.5,
        "tol": 0.5,
        "n_iter_no_change": 2,
        "max_iter": 60,
    },
    {"early_stopping": True, "n_iter_no_change": 2, "max_iter": 60, "tol": 0.01},
    {"solver": "lbfgs", "max_iter": 15},
]


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("options", CLASSIFIERS, ids=str)
def test_classifiers_have_the_same_weights(options, weight):
    ours, other = both("MLPClassifier", X, Y_DIGITS, weight, **options)
    same(ours, other)
    assert_allclose(ours.predict_proba(X), other.predict_proba(X), atol=1e-9)
    assert np.array_equal(ours.predict(X), other.predict(X))


@pytest.mark.parametrize("target", ["binary", "labels"])
@pytest.mark.parametrize("options", [{}, {"early_stopping": True}], ids=str)
def test_two_classes_and_labels(target, options):
    y = np.where(Y_DIGITS > 4, "high", "low")
    if target == "labels":
        y = np.c_[Y_DIGITS > 4, Y_DIGITS % 2, Y_DIGITS < 2].astype(int)
    ours, other = both("MLPClassifier", X, y, **options)
    same(ours, other)
    assert_allclose(ours.predict_proba(X), other.predict_proba(X), atol=1e-9)
    assert np.array_equal(ours.predict(X), other.predict(X))
    assert ours.score(X, y) == other.score(X, y)


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"solver": "sgd"},
        {"solver": "lbfgs", "max_iter": 10},
        {"loss": "poisson", "alpha": 1.0},
        {"early_stopping": True},
    ],
    ids=str,
)
def test_regressors_have_the_same_weights(options, weight):
    y = COUNTS if "loss" in options else NUMBERS
    ours, other = both("MLPRegressor", X, y, weight, **options)
    same(ours, other)
    assert_allclose(ours.predict(X), other.predict(X), rtol=1e-8, atol=1e-9)


def test_float32_stays_float32():
    ours, other = both("MLPClassifier", X.astype(np.float32), Y_DIGITS)
    same(ours, other, rtol=1e-4)
    assert ours.predict_proba(X.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_array])
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_sparse_rows_give_the_weights_of_dense_ones(form, solver):
    options = {"solver": solver, "random_state": 0, "max_iter": 5}
    with quiet():
        one = MLPClassifier(**options).fit(form(X), Y_DIGITS, WEIGHTS)
        two = MLPClassifier(**options).fit(X, Y_DIGITS, WEIGHTS)
    same(one, two)
    assert_allclose(one.predict_proba(form(X)), two.predict_proba(X), rtol=1e-9)


def test_partial_fits_and_warm_starts_go_on_as_in_scikit_learn():
    pair = [
        cls(hidden_layer_sizes=9, random_state=0, warm_start=True, max_iter=3)
        for cls in (MLPClassifier, theirs.MLPClassifier)
    ]
    with quiet():
        for model in pair:
            model.partial_fit(X[:300], Y_DIGITS[:300], classes=np.arange(10))
            model.partial_fit(X[300:], Y_DIGITS[300:])
        same(*pair)
        pair = [pickle.loads(pickle.dumps(model)) for model in pair]
        for model in pair:
            model.partial_fit(X, Y_DIGITS, WEIGHTS)
        same(*pair)
        for model in pair:
            model.fit(X, Y_DIGITS)
            model.set_params(max_iter=2).fit(X, Y_DIGITS)
        same(*pair)
    assert not hasattr(clone(pair[0]), "coefs_")


def test_to_sklearn_predicts_the_same_and_can_be_fitted_further():
    for y in (Y_DIGITS, Y_DIGITS > 4, np.c_[Y_DIGITS > 4, Y_DIGITS > 6].astype(int)):
        with quiet():
            model = MLPClassifier(12, random_state=0, max_iter=4).fit(X, y)
        exported = model.to_sklearn()
        assert type(exported) is theirs.MLPClassifier
        assert_allclose(exported.predict_proba(X), model.predict_proba(X), rtol=1e-12)
        assert np.array_equal(exported.predict(X), model.predict(X))
        exported.partial_fit(X, y)
    with quiet():
        model = MLPRegressor(loss="poisson", random_state=0, max_iter=4).fit(X, COUNTS)
    assert_allclose(model.to_sklearn().predict(X), model.predict(X), rtol=1e-12)


def test_designs_of_our_own_are_not_exported():
    with quiet():
        model = MLPClassifier(activation="elu", max_iter=2).fit(X, Y_DIGITS)
    with pytest.raises(NotImplementedError, match="activation='elu'"):
        model.to_sklearn()


def test_pipelines_and_searches():
    pipeline = make_pipeline(StandardScaler(), MLPClassifier(40, random_state=0))
    with quiet():
        pipeline.set_params(mlpclassifier__learning_rate_init=0.02)
        pipeline.set_params(mlpclassifier__max_iter=20)
        assert cross_val_score(pipeline, X, Y_DIGITS, cv=3).mean() > 0.8
        grid = {"mlpclassifier__alpha": [1e-4, 1.0]}
        search = GridSearchCV(pipeline, grid, cv=2).fit(X, Y_DIGITS)
    assert search.best_score_ > 0.8
