"""Factor analysis: its model, posterior, rotation, ascent and certificate."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, ortho_group

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status, Strength
from certus.decomposition import FactorAnalysis
from certus.decomposition.analysis import rotate
from certus.verify.covariance import Spread
from certus.verify.gaussian_factors import Factors, em_step, log_likelihood
from helpers.interrupting import interrupt_at


def rows_with(covariance, n=200, mean=0.0, seed=0):
    """Rows whose covariance, divided by n, is exactly the one given."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, len(covariance)))
    Z -= Z.mean(axis=0)
    Z = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / n)).T
    return Z @ np.linalg.cholesky(covariance).T + mean


def factor_rows(n=400, d=7, k=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, k)) @ rng.normal(size=(k, d))
    return X + rng.normal(size=(n, d)) * rng.uniform(0.3, 1.5, d) + rng.normal(size=d)


def true_model(d=6, k=2, seed=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(d, k)), rng.uniform(0.3, 1.0, d)


# -- the model ----------------------------------------------------------------------


@pytest.mark.catalog("LAT-18")
def test_rows_drawn_have_the_covariance_of_the_model():
    model = FactorAnalysis(2).fit(factor_rows())
    C, n = model.get_covariance(), 200_000
    X = model.sample(n, random_state=1)
    found = np.cov(X.T, bias=True)
    # Var of a product of two Gaussians: (c_ii c_jj + c_ij²)/n
    error = np.sqrt((np.outer(np.diag(C), np.diag(C)) + C**2) / n)
    assert np.all(np.abs(found - C) < 5 * error)
    assert np.all(np.abs(X.mean(axis=0) - model.mean_) < 5 * np.sqrt(np.diag(C) / n))


@pytest.mark.catalog("LAT-18")
def test_a_covariance_that_has_factors_is_recovered():
    W, noise = true_model()
    S = W @ W.T + np.diag(noise)
    X = rows_with(S, mean=np.arange(6.0))
    with certus.config_context(on_uncertified="ignore"):  # rounding hides such a tol
        model = FactorAnalysis(2, tol=1e-11, max_iter=20_000).fit(X)
    assert model.certificate_.met is None
    np.testing.assert_allclose(model.get_covariance(), S, atol=1e-5)
    np.testing.assert_allclose(model.noise_variance_, noise, atol=1e-4)
    np.testing.assert_allclose(model.mean_, np.arange(6.0), atol=1e-12)
    best = -0.5 * (6 * math.log(2 * math.pi) + np.linalg.slogdet(S)[1] + 6)
    assert model.score(X) == pytest.approx(best, abs=1e-9)
    assert model.loglike_[-1] / len(X) == pytest.approx(best, abs=1e-9)


@pytest.mark.catalog("LAT-19")
def test_the_posterior_is_that_of_the_joint_gaussian():
    X = factor_rows()
    model = FactorAnalysis(2).fit(X)
    W, d = model.components_.T, X.shape[1]
    joint = np.block([[np.eye(2), W.T], [W, model.get_covariance()]])
    gain = joint[:2, 2:] @ np.linalg.inv(joint[2:, 2:])
    np.testing.assert_allclose(model.transform(X), (X - model.mean_) @ gain.T)
    covariance = joint[:2, :2] - gain @ joint[2:, :2]
    inner = np.linalg.inv(np.eye(2) + W.T @ np.diag(1 / model.noise_variance_) @ W)
    np.testing.assert_allclose(covariance, inner, atol=1e-12)
    np.testing.assert_allclose(
        model.get_precision() @ model.get_covariance(), np.eye(d), atol=1e-10
    )


def test_scores_are_gaussian_log_densities():
    X = factor_rows()
    model = FactorAnalysis(3).fit(X)
    known = multivariate_normal(model.mean_, model.get_covariance()).logpdf(X)
    np.testing.assert_allclose(model.score_samples(X), known, rtol=1e-10)
    assert model.score(X) == pytest.approx(known.mean())
    assert model.loglike_[-1] == pytest.approx(known.sum())


@pytest.mark.catalog("LAT-20")
@pytest.mark.parametrize("method", [None, "varimax", "quartimax"])
def test_a_rotation_of_the_factors_changes_no_likelihood(method):
    X = factor_rows(k=3)
    plain, model = FactorAnalysis(3).fit(X), FactorAnalysis(3, rotation=method).fit(X)
    Q = ortho_group.rvs(3, random_state=0)
    np.testing.assert_allclose(model.get_covariance(), plain.get_covariance())
    assert model.certificate_.value == pytest.approx(plain.certificate_.value, rel=1e-4)
    model.components_ = Q @ model.components_
    assert model.score(X) == pytest.approx(plain.score(X), abs=1e-12)
    assert certus.certify(model, X).met


@pytest.mark.parametrize("method", ["varimax", "quartimax"])
def test_rotations_maximise_their_criterion(method):
    W = np.random.default_rng(0).normal(size=(2, 8))

    def criterion(A):
        squares = A**2
        if method == "varimax":
            squares = squares - squares.mean(axis=1, keepdims=True)
        return np.sum(squares**2)

    def turned(angle):
        c, s = np.cos(angle), np.sin(angle)
        return criterion(np.array([[c, -s], [s, c]]) @ W)

    best = max(turned(angle) for angle in np.linspace(0, np.pi, 20_001))
    assert criterion(rotate(W, method, tol=1e-12)) == pytest.approx(best, rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(-8, 8))
def test_units_of_the_columns_do_not_matter(seed, power):
    rng = np.random.default_rng(seed)
    X = factor_rows(seed=seed)
    scale = 10.0 ** rng.uniform(-abs(power), abs(power), X.shape[1])
    first = np.full(X.shape[1], 0.5)
    one = FactorAnalysis(2, noise_variance_init=first).fit(X)
    two = FactorAnalysis(2, noise_variance_init=first * scale**2).fit(X * scale)
    assert one.n_iter_ == two.n_iter_
    np.testing.assert_allclose(
        np.abs(two.components_ / scale), np.abs(one.components_), atol=1e-6
    )
    np.testing.assert_allclose(two.noise_variance_ / scale**2, one.noise_variance_)
    assert two.certificate_.met == one.certificate_.met


# -- the ascent ---------------------------------------------------------------------


def test_every_step_climbs_and_the_last_gains_less_than_tol():
    X = factor_rows()
    model = FactorAnalysis(2, tol=1e-3).fit(X)
    gains = np.diff(model.loglike_)
    assert np.all(gains > -1e-9)
    assert gains[-1] <= 1e-3 < gains[-2]
    assert model.n_iter_ == len(model.loglike_) == len(model.history_["objective"])
    assert model.history_["objective"][-1] == pytest.approx(model.score(X))
    full = certus.certify(model, X, level="full")
    assert full["monotone"].met
    assert full.value <= 1e-3


def test_the_verifiers_step_is_em_on_the_rows():
    """Posterior moments of every row, then least squares of the rows on them."""
    X = factor_rows(n=60, d=5)
    rng = np.random.default_rng(1)
    W, noise = rng.normal(size=(5, 2)), rng.uniform(0.5, 2, 5)
    Xc = X - X.mean(axis=0)
    B = np.linalg.inv(W @ W.T + np.diag(noise)) @ W
    Z = Xc @ B
    second = len(X) * (np.eye(2) - W.T @ B) + Z.T @ Z
    new = Xc.T @ Z @ np.linalg.inv(second)
    S = Xc.T @ Xc / len(X)
    left = np.diag(S) - np.mean(Xc * (Z @ new.T), axis=0)
    spread = Spread(S, np.diag(S).copy(), True)
    found = em_step(spread, Factors(W, noise), False, np.zeros(5))
    np.testing.assert_allclose(found.W, new)
    np.testing.assert_allclose(found.noise, left)
    shared = em_step(spread, Factors(W, noise), True, np.zeros(5))
    np.testing.assert_allclose(shared.noise, np.full(5, left.mean()))
    C = W @ W.T + np.diag(noise)
    known = -0.5 * (np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, S)))
    assert log_likelihood(spread, Factors(W, noise))[0] == pytest.approx(known)


@pytest.mark.parametrize("d", [300, 1100])
def test_fewer_rows_than_columns_take_another_way_to_the_same_place(d):
    """The second fit forms the covariance, and so does its verifier."""
    X = factor_rows(n=60, d=d, k=2)
    wide = FactorAnalysis(2, tol=1e-3).fit(X)
    again = FactorAnalysis(2, tol=1e-3 * (d // 60 + 1)).fit(
        np.vstack([X] * (d // 60 + 1))
    )
    assert wide.n_iter_ == again.n_iter_
    np.testing.assert_allclose(wide.get_covariance(), again.get_covariance(), atol=1e-4)
    assert wide.certificate_.met
    assert certus.certify(wide, X, level="full")["monotone"].met


def test_warm_start_goes_on():
    X = factor_rows()
    with pytest.warns(UncertifiedWarning, match="max_iter"):
        model = FactorAnalysis(2, max_iter=5, warm_start=True).fit(X)
    assert model.certificate_.status is Status.MAX_ITER
    before = model.loglike_[-1]
    model.set_params(max_iter=1000).fit(X)
    assert model.loglike_[0] == pytest.approx(before, abs=1e-6)
    cold = FactorAnalysis(2).fit(X)
    assert model.n_iter_ == cold.n_iter_ - 4


def test_limits_and_interrupts_leave_a_model(monkeypatch):
    X = factor_rows()
    with pytest.warns(UncertifiedWarning, match="max_time"):
        model = FactorAnalysis(2, tol=0, max_time=0.0).fit(X)
    assert model.certificate_.status is Status.TIME_LIMIT
    assert model.n_iter_ == 1

    from certus.decomposition.analysis import _FactorAscent

    interrupt_at(monkeypatch, _FactorAscent, "propose", 4)
    model = FactorAnalysis(2)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert model.certificate_.status is Status.INTERRUPTED
    assert model.n_iter_ == 3
    assert model.certificate_["log_likelihood"].met


# -- the certificate ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["components_", "noise_variance_", "mean_"])
def test_changed_parameters_are_refuted(name):
    X = factor_rows()
    model = FactorAnalysis(2).fit(X)
    value = getattr(model, name).copy()
    value.flat[0] += 0.3
    setattr(model, name, value)
    found = certus.certify(model, X)
    assert found.status is Status.REFUTED
    assert found.met is False
    assert not found["log_likelihood"].met


def test_a_saddle_is_not_taken_for_a_maximum():
    """Without loadings EM is at rest; the best loadings are not."""
    X = factor_rows()
    model = FactorAnalysis(2).fit(X)
    model.components_ = 0 * model.components_
    model.noise_variance_ = X.var(axis=0)
    assert certus.certify(model, X).status is Status.REFUTED


def test_other_rows_are_reported():
    X = factor_rows()
    model = FactorAnalysis(2).fit(X)
    found = certus.certify(model, factor_rows(seed=9))
    assert found.met is False
    assert "not those of the fit" in found[found.primary].assumptions[0]


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_noise_must_be_positive(value):
    X = factor_rows()
    model = FactorAnalysis(2).fit(X)
    model.noise_variance_ = model.noise_variance_.copy()
    model.noise_variance_[2] = value
    found = certus.certify(model, X)
    assert found.met is False
    assert found["noise_variances"].met is False
    model.noise_variance_[2] = np.nan
    assert certus.certify(model, X).met is False


def test_heywood_cases_are_named():
    """r₁₂r₁₃/r₂₃ > 1: one factor would have to explain more than all of column 0."""
    R = np.array([[1, 0.84, 0.6], [0.84, 1, 0.35], [0.6, 0.35, 1]])
    with certus.config_context(on_uncertified="ignore"):  # EM crawls towards it
        model = FactorAnalysis(1, tol=1e-6, max_iter=100_000).fit(rows_with(R))
    assert "Heywood cases" in model.certificate_["noise_variances"].detail
    assert "column 0" in model.certificate_["noise_variances"].detail
    plain = FactorAnalysis(2).fit(factor_rows())
    assert "Heywood" not in plain.certificate_["noise_variances"].detail


def test_without_a_maximum_the_certificate_refuses():
    X = factor_rows(d=4)
    doubled = np.column_stack([X, X[:, 0]])
    with pytest.warns(UncertifiedWarning, match="columns 0, 4 entirely"):
        model = FactorAnalysis(2, tol=1e-9, max_iter=5000).fit(doubled)
    claim = model.certificate_["step_gain"]
    assert claim.strength is Strength.REFUSED
    assert model.certificate_.status is Status.NO_MINIMISER
