"""Modern Hopfield networks: bounds against what a step really does."""

import numpy as np
import pytest

import certus
from certus.memory import ModernHopfield

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
RNG = np.random.default_rng(0)


def unit_rows(s, d):
    X = RNG.normal(size=(s, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def test_a_step_is_a_softmax_over_the_patterns():
    X, q = RNG.normal(size=(7, 4)), RNG.normal(size=(3, 4))
    model = ModernHopfield(0.7).fit(X)
    p = np.exp(0.7 * q @ X.T)
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict(q), p @ X, rtol=1e-12)
    model.max_iter = 2
    once = ModernHopfield(0.7).fit(X).predict(q)
    again = ModernHopfield(0.7).fit(X).predict(once)
    np.testing.assert_allclose(model.predict(q), again, rtol=1e-12)


@pytest.mark.parametrize("beta", [2.0, 8.0, 30.0])
def test_the_bound_is_above_the_true_error(beta):
    X = unit_rows(30, 12)
    model = ModernHopfield(beta).fit(X)
    away = np.linalg.norm(model.predict(X) - X, axis=1).max()
    assert away <= model.certificate_["retrieval_error"].value


def test_within_the_radius_a_step_ends_at_the_pattern():
    X = unit_rows(40, 10)
    model = ModernHopfield().fit(X)
    assert model.certificate_.met and (model.radius_ > 0).all()
    for _ in range(20):
        push = unit_rows(40, 10) * model.radius_[:, None]
        assert np.abs(model.predict(X + push) - X).max() <= 1e-6
    # The worst direction: straight to the nearest other pattern.
    D = np.linalg.norm(X[:, None] - X, axis=2) + 9 * np.eye(40)
    other = X[D.argmin(axis=1)] - X
    push = other / np.linalg.norm(other, axis=1, keepdims=True)
    found = model.predict(X + push * model.radius_[:, None])
    assert np.linalg.norm(found - X, axis=1).max() <= 1e-6


def test_energy_is_never_negative_and_never_rises():
    X = unit_rows(20, 6)
    model = ModernHopfield(3.0).fit(X)
    q = RNG.normal(size=(50, 6))
    energies = [model.energy(q)]
    for _ in range(5):
        q = model.predict(q)
        energies.append(model.energy(q))
    assert (np.diff(energies, axis=0) <= 1e-12).all() and np.min(energies) >= 0


def test_thousands_of_patterns_in_64_dimensions_come_back_from_noise():
    X = np.where(RNG.random((1000, 64)) < 0.5, -1.0, 1.0)
    noisy = X + 0.5 * RNG.normal(size=X.shape)
    found = ModernHopfield(4.0).fit(X).predict(noisy)
    assert np.abs(found - X).max() < 1e-6


def test_patterns_too_close_are_named_and_equal_ones_are_not():
    X = unit_rows(5, 8)
    close = np.vstack([X, X[0] + 1e-3])
    found = ModernHopfield(10.0).fit(close).certificate_
    assert found.met is False and "too close" in found["retrieval_error"].detail
    twice = ModernHopfield().fit(np.vstack([X, X]))
    assert twice.certificate_.met
    np.testing.assert_allclose(twice.predict(X), X, atol=1e-6)


def test_a_file_and_changed_parts(tmp_path):
    X = unit_rows(12, 6)
    model = ModernHopfield().fit(X)
    back = certus.load(model.save(tmp_path / "m.certus"))
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert certus.certify(back, X, level="full").met
    for name, value in (
        ("radius_", model.radius_ * 3),
        ("beta_", model.beta_ / 20),
        ("patterns_", X[::-1].copy()),
        ("tol", 1e-300),
    ):
        forged = certus.load(tmp_path / "m.certus")
        setattr(forged, name, value)
        assert certus.certify(forged, X).met is False, name
    assert certus.certify(model, unit_rows(12, 6)).met is False
