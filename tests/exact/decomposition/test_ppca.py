"""Probabilistic PCA: the closed form is the maximum, and EM comes to it."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status, Strength
from certus.decomposition import FactorAnalysis, ProbabilisticPCA


def rows(n=150, d=6, k=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, k)) * [3, 2, 1][:k] @ rng.normal(size=(k, d))
    return X + 0.7 * rng.normal(size=(n, d)) + 5


@pytest.mark.catalog("LAT-21")
@pytest.mark.parametrize("k", [0, 1, 2, 5, 6])
def test_the_closed_form_agrees_with_pca_of_scikit_learn(k):
    X = rows()
    n, d = X.shape
    model = ProbabilisticPCA(k).fit(X)
    # scikit-learn divides by n − 1, so it is given rows that are smaller by as much.
    theirs = PCA(k).fit(X * np.sqrt((n - 1) / n))
    if 0 < k < d:
        assert model.noise_variance_ == pytest.approx(theirs.noise_variance_)
    np.testing.assert_allclose(model.get_covariance(), theirs.get_covariance())
    shifted = X - model.mean_ + theirs.mean_
    assert model.score(X) == pytest.approx(theirs.score(shifted))
    assert model.certificate_.met
    assert model.certificate_.value == pytest.approx(0, abs=1e-6)


@pytest.mark.catalog("LAT-21")
def test_closed_form_has_the_stated_shape():
    X = rows()
    model = ProbabilisticPCA(2).fit(X)
    values, U = np.linalg.eigh(np.cov(X.T, bias=True))
    values, U = values[::-1], U[:, ::-1]
    assert model.noise_variance_ == pytest.approx(values[2:].mean())
    gram = model.components_ @ model.components_.T
    np.testing.assert_allclose(
        gram, np.diag(values[:2] - model.noise_variance_), atol=1e-10
    )
    assert subspace_angles(model.components_.T, U[:, :2]).max() < 1e-7


@pytest.mark.catalog("LAT-21")
def test_no_other_point_is_more_likely():
    X = rows(n=60, d=4, k=2)
    model = ProbabilisticPCA(2).fit(X)

    def loss(point):
        W, noise = point[:8].reshape(4, 2), np.exp(point[8])
        C = W @ W.T + noise * np.eye(4)
        return -multivariate_normal(X.mean(axis=0), C).logpdf(X).mean()

    rng = np.random.default_rng(0)
    found = min(minimize(loss, rng.normal(size=9)).fun for _ in range(5))
    assert model.score(X) == pytest.approx(-found, abs=1e-6)


@pytest.mark.catalog("LAT-21")
def test_em_comes_to_the_closed_form():
    X = rows()
    exact = ProbabilisticPCA(2).fit(X)
    with certus.config_context(on_uncertified="ignore"):  # rounding hides such a tol
        em = ProbabilisticPCA(
            2, solver="em", tol=1e-9, max_iter=5000, random_state=0
        ).fit(X)
    assert em.noise_variance_ == pytest.approx(exact.noise_variance_, rel=1e-4)
    np.testing.assert_allclose(em.get_covariance(), exact.get_covariance(), atol=1e-3)
    assert np.all(np.diff(em.loglike_) > -1e-9)
    assert em.certificate_.value <= 1e-7
    full = certus.certify(em, X, level="full")
    assert full["monotone"].met
    assert full["step_gain"].met is not False


def test_transform_is_the_posterior_mean_and_back_the_mean_of_rows():
    X = rows()
    model = ProbabilisticPCA(2).fit(X)
    W = model.components_.T
    C = model.get_covariance()
    Z = (X - model.mean_) @ np.linalg.inv(C) @ W
    np.testing.assert_allclose(model.transform(X), Z)
    np.testing.assert_allclose(model.inverse_transform(Z), model.mean_ + Z @ W.T)
    with pytest.raises(ValueError, match="2 factors"):
        model.inverse_transform(X)
    drawn = model.sample(100_000, random_state=0)
    np.testing.assert_allclose(np.cov(drawn.T), C, atol=0.05 * C.max())


def test_factor_analysis_is_never_less_likely():
    X = rows()
    shared = ProbabilisticPCA(2).fit(X).score(X)
    assert FactorAnalysis(2, tol=1e-6).fit(X).score(X) >= shared


@pytest.mark.parametrize("solver", ["closed_form", "em"])
@pytest.mark.parametrize("change", ["zero", "noise", "mean", "subspace"])
def test_changed_parameters_are_refuted(solver, change):
    X = rows()
    model = ProbabilisticPCA(2, solver=solver, random_state=0).fit(X)
    if change == "zero":  # EM is at rest here
        model.components_ = 0 * model.components_
        model.noise_variance_ = X.var(axis=0).mean()
    elif change == "noise":
        model.noise_variance_ = 1.3 * model.noise_variance_
    elif change == "mean":
        model.mean_ = model.mean_ + 0.1
    else:  # a saddle: the second and third direction
        values, U = np.linalg.eigh(np.cov(X.T, bias=True))
        noise = (values.sum() - values[-3:-1].sum()) / 4
        model.components_ = (
            U[:, -3:-1] * np.sqrt(np.maximum(values[-3:-1] - noise, 0))
        ).T
        model.noise_variance_ = noise
    assert certus.certify(model, X).status is Status.REFUTED


def test_rows_in_a_subspace_have_no_most_likely_noise():
    X = rows(n=4)  # three directions
    with pytest.warns(UncertifiedWarning, match="grows without bound"):
        model = ProbabilisticPCA(3).fit(X)
    assert model.certificate_["step_gain"].strength is Strength.REFUSED
    assert model.certificate_.status is Status.NO_MINIMISER
    assert ProbabilisticPCA(2).fit(X).certificate_.met
    assert ProbabilisticPCA().fit(X).n_components_ == 2


def test_too_many_components():
    with pytest.raises(ValueError, match=r"at most the number of columns, 6; got 7"):
        ProbabilisticPCA(7).fit(rows())


def test_warm_start_and_limits():
    X = rows()
    model = ProbabilisticPCA(
        2, solver="em", max_iter=2, warm_start=True, tol=1e-7, random_state=0
    )
    with pytest.warns(UncertifiedWarning, match="closed_form"):
        model.fit(X)
    before = model.loglike_[-1]
    model.set_params(max_iter=5000).fit(X)
    assert model.loglike_[0] > before
    assert model.certificate_.met


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("tol", [1e-6, 1e-7, 1e-8])
def test_em_stops_with_room_for_the_rounding_of_its_certificate(k, tol):
    X, _ = load_iris(return_X_y=True)
    with certus.config_context(on_uncertified="ignore"):
        model = ProbabilisticPCA(
            k, solver="em", tol=tol, max_iter=2000, random_state=0
        ).fit(X)
    claim = model.certificate_["likelihood_gap"]
    assert claim.met or claim.allowance > 0.9 * tol


def test_factors_stop_with_room_for_the_rounding_of_their_certificate():
    X, _ = load_digits(return_X_y=True)
    assert FactorAnalysis(4, tol=1e-7).fit(X).certificate_.met
