"""Searches are not believed: whatever they return, no wrong claim is proved.

Each returns rubbish in turn (nothing, wrong shapes, NaN, huge and random numbers, the
right answer spoilt). What the verifier then says of a wrong model is missed, undecided
or refused; of any model it is never below the true excess.
"""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, QuantileRegressor
from sklearn.svm import LinearSVC, LinearSVR

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status, Strength
from certus.linear_model import HuberRegressor, Perceptron
from certus.recommend import MatrixFactorization
from certus.searches import directions, overlaps, slopes, steps
from certus.verify import half_steps, margin, online, problems, separation
from certus.verify import huber as huber_checker
from faults import mutate

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
signs = np.where(X[:, 0] + rng.normal(size=60) > 0, 1, -1)
amounts = X @ [1.0, -2.0, 0.0] + rng.standard_t(2, size=60)

RUBBISH = {
    "nothing": lambda good: None,
    "text": lambda good: "rubbish",
    "a number": lambda good: 1.0,
    "too few": lambda good: good[:-1],
    "too many": lambda good: np.append(good, good),
    "NaN": lambda good: good * np.nan,
    "infinite": lambda good: good + np.inf,
    "zero": lambda good: 0 * good,
    "whole numbers": lambda good: np.ones(good.shape, dtype=int),
    "complex": lambda good: good + 1j,
    "huge": lambda good: 1e300 * (1 + good),
    "the opposite": lambda good: -good,
    "far out": lambda good: 1e6 * good,
    "nearly right": lambda good: good + 1e-3 * rng.normal(size=good.shape),
    "random": lambda good: rng.normal(size=good.shape),
    "in another order": lambda good: good[::-1],
}
every_rubbish = pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH.keys())


def proved(certificate):
    claim = certificate[certificate.primary]
    return claim.strength is Strength.PROVED and claim.met is True


MODELS = {
    "quantile": (QuantileRegressor(alpha=0.05, quantile=0.3), amounts),
    "absolute": (QuantileRegressor(alpha=0.0), amounts),
    "hinge": (LinearSVC(loss="hinge", C=0.1, fit_intercept=False, tol=1e-8), signs),
    "tube": (LinearSVR(C=0.1, epsilon=0.2, tol=1e-8, max_iter=100_000), amounts),
}


@every_rubbish
@pytest.mark.parametrize("name", MODELS)
def test_slopes_are_not_believed(name, rubbish, monkeypatch):
    model, y = MODELS[name]
    model.fit(X, y)
    best = certus.certify(model, X, y)
    assert best.met
    search = slopes.chosen
    monkeypatch.setattr(slopes, "chosen", lambda *given: rubbish(search(*given)))
    model.coef_ = model.coef_ + 0.1
    wrong = certus.certify(model, X, y)
    assert not proved(wrong)
    # The gap can only be wider than that of the best dual point found.
    monkeypatch.undo()
    assert wrong.value >= 0.5 * certus.certify(model, X, y).value - 1e-12


@every_rubbish
def test_steps_of_huber_are_not_believed(rubbish, monkeypatch):
    model = HuberRegressor(alpha=1e-6).fit(X, amounts)
    model.certificate_ = None
    search, asked = slopes.stepped, []

    def spoilt(*given):
        asked.append(given)
        return rubbish(search(*given))

    monkeypatch.setattr(slopes, "stepped", spoilt)
    model.coef_ = model.coef_ + 0.01
    assert not proved(certus.certify(model, X, amounts))
    assert asked


@every_rubbish
@pytest.mark.parametrize("classes", [2, 3])
def test_directions_are_not_believed(classes, rubbish, monkeypatch):
    """No direction separates classes that overlap."""
    shape = (4, 1) if classes == 2 else (4, classes)
    good, asked = rng.normal(size=shape), []

    def found(*given):
        asked.append(given)
        return rubbish(good)

    for name in ("receding", "separating"):
        monkeypatch.setattr(directions, name, found)
    y = signs if classes == 2 else rng.integers(0, 3, 60)
    model = LogisticRegression(C=np.inf).fit(X, y)
    certificate = certus.certify(model, X, y, level="full")
    assert asked and certificate.status is not Status.NO_MINIMISER


@every_rubbish
def test_combinations_are_not_believed(rubbish, monkeypatch):
    """No weights make classes coincide that a hyperplane separates."""
    y = np.where(X[:, 0] > 0, 1, -1)
    Z = X + 0.1 * y[:, None] * np.eye(3)[0]
    good, asked = np.abs(rng.normal(size=60)), []

    def found(*given):
        asked.append(given)
        return rubbish(good)

    monkeypatch.setattr(overlaps, "coinciding", found)
    machine = certus.svm.LinearSVC(C=np.inf, intercept_scaling=np.inf).fit(Z, y)
    machine.coef_ = -machine.coef_  # it separates no more, and a reason is looked for
    machine.certificate_ = None
    perceptron = Perceptron(random_state=0).fit(Z, y)
    for model in (machine, perceptron):
        certificate = certus.certify(model, Z, y, level="full")
        assert certificate.status is not Status.NO_MINIMISER
        assert "separation" not in certificate
    assert asked


ratings = rng.integers(1, 6, (30, 12)).astype(float)


def unsolved_factors():
    model = MatrixFactorization(n_components=2, max_iter=1, tol=1e-8, random_state=0)
    with pytest.warns(UncertifiedWarning):
        return model.fit(ratings)


@every_rubbish
def test_steps_of_ratings_are_not_believed(rubbish, monkeypatch):
    """A factorisation that is not solved, and what another half-step would gain."""
    model = unsolved_factors()
    search, asked = steps.suggested, []

    def spoilt(*given):
        asked.append(given)
        return rubbish(search(*given))

    monkeypatch.setattr(steps, "suggested", spoilt)
    assert not proved(certus.certify(model, ratings))
    assert asked


# -- faults in their own code -------------------------------------------------------


def faults_in(module):
    """The module with one fault after the other; none for those it does not survive."""
    path = Path(module.__file__)
    for fault in mutate.faults_of(path, path.name, lambda line: True)[::FEW]:
        other = ModuleType(module.__name__)
        try:
            exec(mutate.broken(path, fault.number), vars(other))
        except Exception:  # the fault shows as the module is loaded
            continue
        yield other


#: One in so many faults is planted, so that this takes seconds.
FEW = 5


def wrong_models():
    """Models that are not solved, without a witness, and what a search could forge."""
    for model, y in MODELS.values():
        model.fit(X, y)
        model.coef_ = model.coef_ + 0.1
        yield model, X, y
    huber = HuberRegressor(alpha=1e-6).fit(X, amounts)
    huber.certificate_, huber.coef_ = None, huber.coef_ + 0.01
    yield huber, X, amounts
    for y in (signs, np.arange(60) % 3):
        yield LogisticRegression(C=np.inf).fit(X, y), X, y
    y = np.where(X[:, 0] > 0, 1, -1)
    apart = certus.svm.LinearSVC(C=np.inf, intercept_scaling=np.inf).fit(X, y)
    apart.certificate_, apart.coef_ = None, -apart.coef_
    yield apart, X, y
    yield Perceptron(random_state=0).fit(X, y), X, y
    yield unsolved_factors(), ratings, None


#: The checkers that use each search, and the name they import it by.
CHECKERS = {
    slopes: [(problems, "slopes"), (huber_checker, "slopes")],
    directions: [(separation, "directions")],
    overlaps: [(margin, "overlaps"), (online, "overlaps")],
    steps: [(half_steps, "search")],
}


@pytest.mark.parametrize("module", CHECKERS)
def test_no_fault_in_a_search_is_proved_right(module, monkeypatch):
    models, planted = list(wrong_models()), 0
    for spoilt in faults_in(module):
        planted += 1
        for checker, name in CHECKERS[module]:
            monkeypatch.setattr(checker, name, spoilt)
        for model, rows, y in models:
            try:
                level = "quick" if y is None else "full"
                found = certus.certify(model, rows, y, level=level)
            except Exception:  # the fault shows by itself
                continue
            lied = proved(found) and not isinstance(model, Perceptron)
            assert not lied and found.status is not Status.NO_MINIMISER
            assert "separation" not in found
    assert planted > 10
