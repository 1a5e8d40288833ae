"""Intervals and sets for sequences: by the scores of sequences kept aside."""

import math
import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

pytest.importorskip("torch")

import certus
from certus.linear_model import Ridge
from certus.neural_network import (
    MLPClassifier,
    RecurrentClassifier,
    RecurrentRegressor,
    Seq2Seq,
    SequenceTagger,
)
from certus.text import TextConvClassifier

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")


def measured(n, rng):
    """Sequences of pairs of numbers, and the sum of the first ones."""
    X = [rng.normal(size=(rng.integers(1, 9), 2)) for _ in range(n)]
    return X, np.array([x[:, 0].sum() for x in X])


def spelt(n, rng):
    """Lists of letters, some empty, and whether there is an a."""
    X = [list(rng.choice(list("abc"), rng.integers(0, 6))) for _ in range(n)]
    return X, np.array(["with" if "a" in x else "without" for x in X])


def regressor(**options):
    return RecurrentRegressor(width=8, max_iter=5, random_state=0, **options)


def classifier(**options):
    return RecurrentClassifier(width=8, max_iter=5, random_state=0, **options)


def test_an_interval_is_as_wide_as_the_ranked_residual():
    X, y = measured(160, np.random.default_rng(0))
    model = regressor().fit(X[:60], y[:60]).calibrate(X[60:159], y[60:159])
    residuals = np.sort(np.abs(model.predict(X[60:159]) - y[60:159]))
    q = residuals[math.ceil(100 * 0.8) - 1]
    found, z = model.predict_interval(X[159:], coverage=0.8), model.predict(X[159:])
    np.testing.assert_allclose(found, np.column_stack([z - q, z + q]), rtol=1e-6)
    with pytest.raises(TypeError, match="use predict_interval"):
        model.predict_set(X)


@pytest.mark.parametrize("form", ["tokens", "array"])
def test_a_set_holds_the_classes_probable_enough(form):
    rng = np.random.default_rng(1)
    if form == "tokens":
        X, y = spelt(200, rng)
    else:
        X = rng.normal(size=(200, 6, 2))
        y = (X[:, :, 0].sum(axis=1) > 0).astype(int)
    model = classifier().fit(X[:80], y[:80]).calibrate(X[80:179], y[80:179])
    p = model.predict_proba(X[80:179]).astype(float)
    own = np.sort(1 - p[np.arange(99), np.searchsorted(model.classes_, y[80:179])])
    q = own[math.ceil(100 * 0.9) - 1]
    wanted = 1 - model.predict_proba(X[179:]).astype(float) <= q + 1e-5
    np.testing.assert_array_equal(model.predict_set(X[179:], coverage=0.9), wanted)
    assert model.calibration_certificate_["coverage"].met


def test_sequences_are_covered_as_often_as_promised():
    rng = np.random.default_rng(2)
    X, y = measured(3_100, rng)
    model = regressor().fit(X[:100], y[:100]).calibrate(X[100:1_100], y[100:1_100])
    low, high = model.predict_interval(X[1_100:], coverage=0.9).T
    covered = np.mean((low <= y[1_100:]) & (y[1_100:] <= high))
    assert 0.87 < covered < 0.93


@pytest.mark.parametrize("form", ["measured", "tokens", "array", "texts", "weighted"])
def test_sequences_of_the_fit_are_refused(form):
    rng = np.random.default_rng(3)
    weight = None
    if form == "measured":
        (X, y), model = measured(60, rng), regressor()
    elif form == "tokens":
        (X, y), model = spelt(60, rng), classifier()
    elif form == "texts":
        (X, y), model = spelt(60, rng), TextConvClassifier(max_iter=2)
        X = [" ".join(x) for x in X]
    else:
        X, model = rng.normal(size=(60, 6, 2)), regressor()
        y = X[:, 0, 0]
        weight = rng.random(60) + 0.5 if form == "weighted" else None
    model.fit(X, y, sample_weight=weight)
    with pytest.raises(ValueError, match="the rows of the fit"):
        model.calibrate(X, y)
    with pytest.raises(ValueError, match="the rows of the fit"):
        model.calibrate(X[::-1], y[::-1])
    assert model.calibrate(X[1:], y[1:]).calibration_certificate_
    if form == "array":
        other = [np.roll(x, 1, axis=0) for x in X]
        assert model.calibrate(other, y).calibration_certificate_


def test_weights_and_many_rows_hide_the_fit_no_better():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40_000, 2))
    y = (X[:, 0] > 0).astype(int)
    few = Ridge().fit(X[:50], X[:50, 1], sample_weight=rng.random(50))
    with pytest.raises(ValueError, match="the rows of the fit"):
        few.calibrate(X[:50], X[:50, 1])
    many = MLPClassifier(hidden_layer_sizes=4, max_iter=1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="the rows of the fit"):
        many.calibrate(X, y)


def test_the_verifier_finds_the_coverage_again_on_those_sequences_alone():
    X, y = measured(120, np.random.default_rng(5))
    model = regressor().fit(X[:60], y[:60]).calibrate(X[60:], y[60:])
    assert certus.certify(model, X[60:], y[60:])["coverage"].met
    assert "coverage" not in {
        claim.name for claim in certus.certify(model, X[:60], y[:60]).claims
    }


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_one_more_epoch_forgets_the_calibration_and_can_be_certified(kind):
    rng = np.random.default_rng(6)
    X, y = spelt(80, rng) if kind == "classes" else measured(80, rng)
    model = classifier() if kind == "classes" else regressor()
    model.fit(X[:40], y[:40]).calibrate(X[40:], y[40:])
    model.partial_fit(X[:40], y[:40])
    ask = model.predict_set if kind == "classes" else model.predict_interval
    with pytest.raises(NotFittedError, match="not calibrated"):
        ask(X[:2])
    found = certus.certify(model, X[:40], y[:40])
    p = model.predict_proba(X[:40]) if kind == "classes" else model.predict(X[:40])
    own = (
        -np.log(p[np.arange(40), np.searchsorted(model.classes_, y[:40])])
        if kind == "classes"
        else (p - y[:40]) ** 2 / 2
    )
    assert found["training_loss"].value == pytest.approx(own.mean(), rel=1e-4)


def test_taggers_and_writers_refuse_prediction_sets():
    X, _ = spelt(30, np.random.default_rng(7))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [
            SequenceTagger(width=4, max_iter=1).fit(X, X),
            Seq2Seq(width=4, max_iter=1).fit(X, X),
        ]
    for model in models:
        for ask in (model.predict_set, model.predict_interval):
            with pytest.raises(TypeError, match="one number or one class for each row"):
                ask(X)
        with pytest.raises(TypeError, match="one number or one class for each row"):
            model.calibrate(X, X)
