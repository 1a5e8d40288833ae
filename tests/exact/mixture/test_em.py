"""General EM on models whose answer is known otherwise."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from scipy.stats import expon

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status, Strength
from certus.mixture import EM, GaussianMixture

# -- mixtures of Bernoulli vectors and of exponentials ----------------------------


def bernoulli_joint(X, params):
    weights, p = params
    return np.log(weights) + X @ np.log(p).T + (1 - X) @ np.log1p(-p).T


def bernoulli_m(X, q):
    return q.mean(axis=0), (q.T @ X) / q.sum(axis=0)[:, None]


def bernoulli_data(seed=0, n=500):
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.1, 0.9, (2, 6))
    X = (rng.random((n, 6)) < p[rng.integers(0, 2, n)]).astype(float)
    return X, (np.array([0.5, 0.5]), rng.uniform(0.3, 0.7, (2, 6)))


@pytest.mark.catalog("LAT-14")
def test_a_mixture_of_bernoullis_ends_in_a_maximum_of_its_likelihood():
    X, start = bernoulli_data()
    model = EM(None, bernoulli_m, bernoulli_joint, tol=1e-12, max_iter=5000)
    model.fit(X, start)
    weights, p = model.params_

    def loss(theta):
        w = np.array([expit(theta[0]), expit(-theta[0])])
        joint = bernoulli_joint(X, (w, expit(theta[1:]).reshape(2, 6)))
        return -logsumexp(joint, axis=1).mean()

    theta = np.concatenate(
        [[np.log(weights[0] / weights[1])], np.log(p / (1 - p)).ravel()]
    )
    assert loss(theta) == pytest.approx(-model.log_likelihood_, rel=1e-12)
    found = minimize(loss, theta, method="BFGS", options={"gtol": 1e-9})
    assert found.fun == pytest.approx(loss(theta), abs=1e-9)
    certificate = certus.certify(model, X, level="full")
    assert all(claim.met for claim in certificate.claims)
    assert {c.strength for c in certificate.claims} == {Strength.PROVED}


def test_a_fit_does_not_stop_on_a_plateau():
    # What each step gains, in units of tol: the second one is small, the third is not.
    gains = [4.0, 0.9, 1.5, 0.8, 0.7, 0.6]
    levels = 1e-3 * np.cumsum([0.0, *gains])
    model = EM(
        lambda X, step: (step, np.full(3, levels[step])),
        lambda X, step: step + 1,
        tol=1e-3,
    ).fit(np.zeros(3), 0)
    assert (model.params_, model.n_iter_, model.converged_) == (4, 4, True)
    assert model.certificate_.claims[0].value == pytest.approx(0.7e-3)
    assert len(model.history_["gap"]) == 5


@pytest.mark.catalog("LAT-14", "LAT-16")
def test_a_mixture_of_exponentials_climbs_at_every_step():
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.exponential(1.0, 4000), rng.exponential(20.0, 4000)])

    def log_joint(X, params):
        weights, scales = params
        return np.log(weights) + expon.logpdf(X[:, None], scale=scales)

    def m_step(X, q):
        return q.mean(axis=0), X @ q / q.sum(axis=0)

    model = EM(None, m_step, log_joint, tol=1e-9)
    model.fit(X, (np.array([0.5, 0.5]), np.array([2.0, 5.0])))
    weights, scales = model.params_
    assert weights == pytest.approx([0.5, 0.5], abs=0.03)
    assert scales == pytest.approx([1.0, 20.0], rel=0.07)
    assert (np.diff(model.history_["objective"]) >= -1e-13).all()
    assert certus.certify(model, X, level="full")["monotone"].met
    # What every M-step implies: the mean of the mixture is that of the rows.
    assert weights @ scales == pytest.approx(X.mean(), rel=1e-12)


@pytest.mark.catalog("LAT-14")
def test_gaussian_mixtures_are_a_case_of_it():
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.normal(0, 1, 200), rng.normal(5, 2, 200)])
    start = (np.array([0.5, 0.5]), np.array([-1.0, 6.0]), np.array([1.0, 1.0]))

    def log_joint(X, params):
        w, m, v = params
        return np.log(w) - 0.5 * ((X[:, None] - m) ** 2 / v + np.log(2 * np.pi * v))

    def m_step(X, q):
        means = X @ q / q.sum(axis=0)
        return q.mean(axis=0), means, (q * (X[:, None] - means) ** 2).sum(0) / q.sum(0)

    model = EM(None, m_step, log_joint, tol=1e-8).fit(X, start)
    same = GaussianMixture(
        *(2,),
        covariance_type="spherical",
        weights_init=start[0],
        means_init=start[1][:, None],
        precisions_init=1 / start[2],
        reg_covar=0.0,
        tol=1e-8,
        max_iter=1000,
    ).fit(X[:, None])
    np.testing.assert_allclose(model.params_[1], same.means_[:, 0], atol=1e-3)
    steps = min(len(model.history_["objective"]), same.n_iter_)
    np.testing.assert_allclose(
        model.history_["objective"][:steps], same.lower_bounds_[:steps], rtol=1e-12
    )


# -- a continuous latent variable -------------------------------------------------


def censored():
    """Exponential lifetimes, some only known to exceed a limit."""
    rng = np.random.default_rng(3)
    life, limit = rng.exponential(5.0, 300), rng.uniform(1, 10, 300)
    X = np.column_stack([np.minimum(life, limit), life > limit])

    def e_step(X, rate):
        time, cut = X.T
        rows = np.where(cut == 1, -rate * time, np.log(rate) - rate * time)
        return time + cut / rate, rows  # E[life | X]

    def m_step(X, life):
        return 1 / life.mean()

    return X, e_step, m_step


@pytest.mark.catalog("LAT-14")
def test_censored_lifetimes_reach_their_closed_form():
    X, e_step, m_step = censored()
    model = EM(e_step, m_step, tol=1e-14).fit(X, 1.0)
    exact = (X[:, 1] == 0).sum() / X[:, 0].sum()
    assert model.params_ == pytest.approx(exact, rel=1e-6)
    gain = model.certificate_["step_gain"]
    assert gain.strength is Strength.MEASURED
    assert gain.met is None
    assert model.certificate_["elbo"].strength is Strength.REFUSED
    replay = certus.certify(model, X, level="full")["monotone"]
    assert replay.strength is Strength.MEASURED
    assert replay.value == 0.0


# -- what the verifier sees -------------------------------------------------------


def posterior(X, params):
    joint = bernoulli_joint(X, params)
    rows = logsumexp(joint, axis=1)
    return np.exp(joint - rows[:, None]), rows


def test_a_right_e_step_is_recognised():
    X, start = bernoulli_data()
    model = EM(posterior, bernoulli_m, bernoulli_joint).fit(X, start)
    assert model.certificate_["elbo"].met
    assert model.certificate_["elbo"].value < 1e-12


@pytest.mark.parametrize("wrong", ["tempered", "unnormalised", "likelihood"])
def test_a_wrong_e_step_is_found(wrong):
    X, start = bernoulli_data()

    def e_step(X, params):
        q, rows = posterior(X, params)
        if wrong == "tempered":
            q = q**0.7 / (q**0.7).sum(axis=1, keepdims=True)
        elif wrong == "unnormalised":
            q = q * 1.001
        else:
            rows = rows + 0.01
        return q, rows

    model = EM(e_step, bernoulli_m, bernoulli_joint, max_iter=20)
    with certus.config_context(on_uncertified="ignore"):
        model.fit(X, start)
    assert model.certificate_["elbo"].met is False


def test_an_m_step_that_goes_down_is_found():
    X, start = bernoulli_data()

    def backwards(X, q):
        weights, p = bernoulli_m(X, q)
        return weights, np.clip(1.02 * p, 0.01, 0.99)

    model = EM(None, backwards, bernoulli_joint, max_iter=30, tol=0.0)
    with pytest.warns(UncertifiedWarning):
        model.fit(X, bernoulli_m(X, posterior(X, start)[0]))
    claim = certus.certify(model, X, level="full")["monotone"]
    assert claim.met is False
    assert claim.value > 1e-6


def test_other_parameters_are_refuted():
    X, start = bernoulli_data()
    model = EM(None, bernoulli_m, bernoulli_joint).fit(X, start)
    weights, p = model.params_
    model.params_ = (weights, np.clip(p + 0.1, 0.01, 0.99))
    assert certus.certify(model, X).status is Status.REFUTED


def test_limits_leave_a_fitted_state():
    X, start = bernoulli_data()
    model = EM(None, bernoulli_m, bernoulli_joint, max_iter=2)
    with pytest.warns(UncertifiedWarning, match="max_iter"):
        model.fit(X, start)
    assert model.n_iter_ == 2
    assert not model.converged_
    level = logsumexp(bernoulli_joint(X, model.params_), axis=1).mean()
    assert model.log_likelihood_ == pytest.approx(level, rel=1e-14)
    model.set_params(max_iter=1000, max_time=0.0)
    with pytest.warns(UncertifiedWarning, match="max_time"):
        model.fit(X, start)
    assert model.certificate_.status is Status.TIME_LIMIT


def test_an_interrupt_leaves_a_fitted_state():
    X, start = bernoulli_data()
    calls = []

    def m_step(X, q):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return bernoulli_m(X, q)

    model = EM(None, m_step, bernoulli_joint)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, start)
    assert model.certificate_.status is Status.INTERRUPTED
    assert model.n_iter_ == 2


def test_functions_of_the_wrong_kind_are_explained():
    X, start = bernoulli_data()
    with pytest.raises(ValueError, match="both are None"):
        EM(None, bernoulli_m).fit(X, start)
    with pytest.raises(TypeError, match="m_step must be a function"):
        EM(posterior, None).fit(X, start)
    with pytest.raises(TypeError, match="two things"):
        EM(lambda X, p: 1.0, bernoulli_m).fit(X, start)
    with pytest.raises(ValueError, match="one log-likelihood per row"):
        EM(lambda X, p: (1.0, 2.0), bernoulli_m).fit(X, start)
    with pytest.raises(ValueError, match="rows × states"):
        EM(None, bernoulli_m, lambda X, p: X[:, 0]).fit(X, start)


def test_a_likelihood_that_is_lost_stops_the_fit():
    X, start = bernoulli_data()

    def m_step(X, q):
        weights, p = bernoulli_m(X, q)
        return weights, p * np.nan

    model = EM(None, m_step, bernoulli_joint)
    with pytest.warns(UncertifiedWarning, match="diverged"):
        model.fit(X, start)
    assert np.isfinite(model.params_[1]).all()
