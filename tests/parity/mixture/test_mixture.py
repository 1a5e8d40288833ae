"""GaussianMixture against scikit-learn's, from the same start."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Theirs

import certus
from certus.certificate import Status
from certus.mixture import GaussianMixture, gaussian_start

KINDS = ["full", "tied", "diag", "spherical"]
ARRAYS = ["weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"]


def data(dtype=float):
    rng = np.random.default_rng(0)
    centres = 2 * rng.standard_normal((4, 3))
    shapes = 0.4 * rng.standard_normal((4, 3, 3)) + 0.5 * np.eye(3)
    z = rng.integers(0, 4, 3000)
    X = centres[z] + np.einsum("nij,nj->ni", shapes[z], rng.standard_normal((3000, 3)))
    return X.astype(dtype)


def both(X, k=4, **options):
    theirs = Theirs(k, **options).fit(X)
    return GaussianMixture(k, **options).fit(X), theirs


def assert_equal(ours, theirs, X, rtol=1e-7):
    assert ours.n_iter_ == theirs.n_iter_
    assert ours.converged_ == theirs.converged_
    assert ours.lower_bound_ == pytest.approx(theirs.lower_bound_, rel=rtol)
    np.testing.assert_allclose(ours.lower_bounds_, theirs.lower_bounds_, rtol=rtol)
    for name in ARRAYS:
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=rtol, atol=rtol, err_msg=name)
    assert_predicts_equally(ours, theirs, X, rtol)


def assert_predicts_equally(ours, theirs, X, rtol=1e-7):
    np.testing.assert_allclose(
        ours.predict_proba(X), theirs.predict_proba(X), atol=100 * rtol
    )
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(
        ours.score_samples(X), theirs.score_samples(X), rtol=rtol
    )
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=rtol)
    assert ours.bic(X) == pytest.approx(theirs.bic(X), rel=rtol)
    assert ours.aic(X) == pytest.approx(theirs.aic(X), rel=rtol)


@pytest.mark.catalog("LAT-11", "LAT-12")
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_start_takes_the_same_steps(kind):
    X = data()
    start = gaussian_start(X, 4, covariance_type=kind, random_state=3)
    options = {"covariance_type": kind, "tol": 1e-5, "max_iter": 500, **start}
    assert_equal(*both(X, **options), X)


def test_a_fit_continues_where_scikit_learn_stops_on_a_plateau():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-3, 1, 100), rng.normal(3, 1, 100)])[:, None]
    start = {
        "weights_init": [0.5, 0.5],
        "means_init": [[-1.2], [1.2]],
        "precisions_init": [[[0.1]], [[0.1]]],
    }
    ours, theirs = both(X, k=2, **start)
    assert theirs.converged_ and not certus.certify(theirs, X).met
    assert ours.converged_ and ours.certificate_.met
    assert ours.n_iter_ == len(ours.history_["gap"]) > theirs.n_iter_
    assert ours.score(X) > theirs.score(X) + 0.1
    n = theirs.n_iter_
    np.testing.assert_allclose(ours.lower_bounds_[:n], theirs.lower_bounds_)
    np.testing.assert_allclose(np.sort(ours.means_.ravel()), [-3, 3], atol=0.2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["random", "random_from_data"])
def test_the_same_seed_begins_alike(kind, method):
    X = data()
    options = {"covariance_type": kind, "init_params": method, "random_state": 5}
    if method == "random":
        ours, theirs = both(X, tol=1e-4, max_iter=1000, **options)
        assert_equal(ours, theirs, X, rtol=1e-6)
        return
    if kind == "tied":
        return  # theirs divides the scatter of all rows by the number of components
    # Their weights are 1/n at first and do not sum to 1, so the first bound differs.
    ours, theirs = both(X, tol=1e-4, max_iter=1000, **options)
    assert ours.n_iter_ == theirs.n_iter_
    np.testing.assert_allclose(ours.lower_bounds_[1:], theirs.lower_bounds_[1:])
    assert_predicts_equally(ours, theirs, X, rtol=1e-6)


@pytest.mark.parametrize("given", ["weights_init", "means_init", "precisions_init"])
def test_one_part_of_the_start_given(given):
    X = data()
    start = gaussian_start(X, 4, random_state=3)
    options = {given: start[given], "init_params": "random", "random_state": 1}
    assert_equal(*both(X, tol=1e-4, max_iter=1000, **options), X, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_the_same_draws(kind):
    X = data()
    start = gaussian_start(X, 4, covariance_type=kind, random_state=3)
    ours, theirs = both(X, covariance_type=kind, random_state=7, tol=1e-2, **start)
    mine, labels = ours.sample(50)
    other, names = theirs.sample(50)
    np.testing.assert_array_equal(labels, names)
    np.testing.assert_allclose(mine, other, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_is_kept_and_computed_in_double(kind):
    X = data(np.float32)
    start = gaussian_start(X, 4, covariance_type=kind, random_state=3)
    options = {"covariance_type": kind, "tol": 1e-4, "max_iter": 500, **start}
    single = GaussianMixture(4, **options).fit(X)
    double = GaussianMixture(4, **options).fit(X.astype(float))
    for name in ARRAYS:
        assert getattr(single, name).dtype == np.float32
        np.testing.assert_allclose(
            getattr(single, name), getattr(double, name), rtol=1e-6, atol=1e-6
        )
    assert single.predict_proba(X).dtype == np.float32
    assert single.n_iter_ == double.n_iter_
    assert all(claim.met for claim in single.certificate_.claims)


@pytest.mark.parametrize("kind", KINDS)
def test_to_sklearn_predicts_the_same(kind):
    X = data()
    ours = GaussianMixture(3, covariance_type=kind, random_state=0, max_iter=500).fit(X)
    theirs = ours.to_sklearn()
    assert type(theirs) is Theirs
    assert_predicts_equally(ours, theirs, X, rtol=1e-9)
    theirs.set_params(warm_start=True).fit(X)
    assert theirs.n_iter_ <= 3


def test_sums_of_squares_about_the_origin_would_lose_what_ours_keep():
    X = data()
    options = {"tol": 1e-4, "max_iter": 500, "random_state": 0}
    near = GaussianMixture(4, covariance_type="diag", **options).fit(X)
    far = GaussianMixture(4, covariance_type="diag", **options).fit(X + 1e7)
    np.testing.assert_allclose(far.covariances_, near.covariances_, rtol=1e-6)
    np.testing.assert_allclose(far.lower_bounds_, near.lower_bounds_, rtol=1e-6)


# -- certify on their models ------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_certify_a_scikit_learn_model(kind):
    X = data()
    model = Theirs(4, covariance_type=kind, random_state=0, max_iter=1000).fit(X)
    certificate = certus.certify(model, X, level="full")
    assert certificate.model == "sklearn GaussianMixture"
    assert certificate.met
    assert certificate["elbo"].met
    assert certificate["parameters"].met
    assert certificate["monotone"].strength.value == "refused"
    truth = Theirs(
        4,
        covariance_type=kind,
        max_iter=1,
        weights_init=model.weights_,
        means_init=model.means_,
        precisions_init=model.precisions_,
    )
    with pytest.warns(ConvergenceWarning):
        truth.fit(X)
    gain = abs(truth.score(X) - model.score(X))
    assert certificate.value == pytest.approx(gain, abs=1e-10)


def test_certify_a_scikit_learn_model_stopped_early():
    X = data()
    with pytest.warns(ConvergenceWarning):
        model = Theirs(4, max_iter=2, init_params="random", random_state=0).fit(X)
    certificate = certus.certify(model, X)
    assert certificate.met is False
    assert certificate.status is Status.TOL_NOT_REACHED
    assert "max_iter" in certificate["step_gain"].fix
    model.means_ = model.means_ + 0.5
    assert certus.certify(model, X).value > certificate.value


def test_cancellation_of_signed_parts_is_seen():
    X = data() + 1e6
    model = Theirs(2, covariance_type="diag", random_state=0)
    model.fit(X[:, :1])
    assert certus.certify(model, X[:, :1])["elbo"].met is False
