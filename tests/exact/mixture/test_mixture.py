"""Gaussian mixtures against densities, sums and derivatives written out by hand."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

import certus
from certus.mixture import GaussianMixture, gaussian_start
from certus.mixture.covariances import (
    Components,
    em_step,
    from_public,
    inverse_roots,
    log_joint,
    to_public,
)

KINDS = ["full", "tied", "diag", "spherical"]


def blobs(seed=0, n=300, d=2, k=3, apart=2.0):
    rng = np.random.default_rng(seed)
    centres = apart * rng.standard_normal((k, d))
    shapes = 0.4 * rng.standard_normal((k, d, d)) + 0.6 * np.eye(d)
    z = rng.integers(0, k, n)
    return centres[z] + np.einsum("nij,nj->ni", shapes[z], rng.standard_normal((n, d)))


def fitted(kind="full", X=None, k=3, **options):
    X = blobs() if X is None else X
    options = {"tol": 1e-6, "max_iter": 500, "random_state": 0, **options}
    with certus.config_context(on_uncertified="ignore"):
        return GaussianMixture(k, covariance_type=kind, **options).fit(X)


def matrices(model):
    """The K covariance matrices, whatever the type."""
    k, d = model.means_.shape
    c = model.covariances_
    return {
        "full": lambda: c,
        "tied": lambda: [c] * k,
        "diag": lambda: [np.diag(v) for v in c],
        "spherical": lambda: [v * np.eye(d) for v in c],
    }[model.covariance_type]()


def joint_by_hand(model, X):
    parts = zip(model.weights_, model.means_, matrices(model))
    columns = [w * multivariate_normal(m, s).pdf(X) for w, m, s in parts]
    return np.column_stack(columns)


# -- the density ------------------------------------------------------------------


@pytest.mark.catalog("LAT-07")
@pytest.mark.parametrize("kind", KINDS)
def test_the_density_integrates_to_one(kind):
    model = fitted(kind, blobs(1, d=1))
    total, _ = quad(lambda x: np.exp(model.score_samples([[x]])[0]), -30, 30, limit=300)
    assert total == pytest.approx(1.0, abs=1e-7)
    plane = fitted(kind)
    side = np.linspace(-15, 15, 601)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    cell = (side[1] - side[0]) ** 2
    assert np.exp(plane.score_samples(grid)).sum() * cell == pytest.approx(1, abs=1e-6)


@pytest.mark.catalog("LAT-07")
@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_moments_of_the_mixture(kind):
    model = fitted(kind)
    rows, labels = model.sample(200_000)
    mean = model.weights_ @ model.means_
    second = sum(
        w * (s + np.outer(m, m))
        for w, m, s in zip(model.weights_, model.means_, matrices(model))
    )
    covariance = second - np.outer(mean, mean)
    noise = 5 * np.sqrt(np.diag(covariance) / len(rows))
    assert (np.abs(rows.mean(axis=0) - mean) < noise).all()
    np.testing.assert_allclose(np.cov(rows.T), covariance, atol=0.02 * covariance.max())
    share = np.bincount(labels, minlength=3) / len(rows)
    np.testing.assert_allclose(share, model.weights_, atol=0.01)
    own = rows[labels == 1]
    np.testing.assert_allclose(np.cov(own.T), matrices(model)[1], rtol=0.1, atol=0.02)


@pytest.mark.catalog("LAT-08", "LAT-11")
@pytest.mark.parametrize("kind", KINDS)
def test_the_latent_component_is_summed_out(kind):
    X = blobs()
    model = fitted(kind, X)
    joint = joint_by_hand(model, X)
    np.testing.assert_allclose(model.score_samples(X), np.log(joint.sum(axis=1)))
    assert model.score(X) == pytest.approx(np.log(joint.sum(axis=1)).mean())
    posterior = joint / joint.sum(axis=1, keepdims=True)
    q = model.predict_proba(X)
    np.testing.assert_allclose(q, posterior, atol=1e-10)
    np.testing.assert_allclose(q.sum(axis=1), 1.0, atol=1e-14)
    np.testing.assert_array_equal(model.predict(X), posterior.argmax(axis=1))


# -- pathologies of the likelihood ------------------------------------------------


@pytest.mark.catalog("LAT-09")
def test_permuted_components_have_the_same_likelihood_and_their_middle_a_lower():
    X = blobs(apart=6.0)
    model = fitted("full", X)
    theta = from_public(model, "full")
    order = np.array([2, 0, 1])
    other = Components(*(part[order] for part in theta))

    def level(t):
        return logsumexp(log_joint(X, t), axis=1).mean()

    assert level(other) == pytest.approx(level(theta), rel=1e-13)
    middle = [(a + b) / 2 for a, b in zip(theta[:3], other[:3])]
    assert level(Components(*middle, inverse_roots(middle[2]))) < level(theta) - 0.1


@pytest.mark.catalog("LAT-09")
def test_a_component_on_one_row_drives_the_likelihood_to_infinity():
    X = blobs()
    n, d = X.shape
    levels = []
    for sigma in [1e-2, 1e-20, 1e-40, 1e-80, 1e-150]:
        theta = Components(
            np.array([0.5, 0.5]),
            np.stack([X[7], X.mean(axis=0)]),
            np.stack([np.full(d, sigma**2), X.var(axis=0)]),
            np.stack([np.full(d, 1 / sigma), 1 / X.std(axis=0)]),
        )
        levels.append(logsumexp(log_joint(X, theta), axis=1).sum())
    rises = np.diff(levels)
    expected = d * np.diff([-np.log(s) for s in [1e-2, 1e-20, 1e-40, 1e-80, 1e-150]])
    np.testing.assert_allclose(rises[1:], expected[1:], rtol=1e-6)
    assert n > 1


# -- E and M ----------------------------------------------------------------------


@pytest.mark.catalog("LAT-12")
@pytest.mark.parametrize("kind", KINDS)
def test_one_step_is_the_weighted_maximum_likelihood(kind):
    X = blobs()
    start = fitted(kind, X, max_iter=2, tol=0.0, reg_covar=1e-6)
    theta = from_public(start, kind)
    found, level = em_step(X, theta, kind, 0.0)
    q = joint_by_hand(start, X)
    assert level == pytest.approx(np.log(q.sum(axis=1)).mean(), rel=1e-12)
    q /= q.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.weights, q.mean(axis=0), rtol=1e-12)
    means = [np.average(X, axis=0, weights=r) for r in q.T]
    np.testing.assert_allclose(found.means, means, rtol=1e-10)
    spread = [np.cov(X.T, aweights=r, ddof=0) for r in q.T]
    pooled = np.einsum("k,kij->ij", q.mean(axis=0), spread)
    truth = {
        "full": spread,
        "tied": [pooled] * 3,
        "diag": [np.diag(s) for s in spread],
        "spherical": [np.full(2, np.trace(s) / 2) for s in spread],
    }[kind]
    np.testing.assert_allclose(found.covariances, truth, rtol=1e-9, atol=1e-12)


@pytest.mark.catalog("LAT-12")
def test_the_m_step_is_stationary_for_the_expected_likelihood():
    X = blobs()
    theta = from_public(fitted("full", X, max_iter=2, tol=0.0), "full")
    joint = log_joint(X, theta)
    q = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    found, _ = em_step(X, theta, "full", 0.0)

    def expected(t):
        return float((q * log_joint(X, t)).sum())

    top, rng = expected(found), np.random.default_rng(0)
    for _ in range(20):
        tilt = rng.standard_normal(3)
        lower = np.linalg.cholesky(found.covariances)
        shift = np.einsum("kij,kj->ki", lower, rng.standard_normal(found.means.shape))
        bend = rng.standard_normal(found.covariances.shape)
        bend = lower @ (bend + bend.transpose(0, 2, 1)) @ lower.transpose(0, 2, 1)
        values = []
        for h in (-1e-4, 1e-4):
            weights = found.weights * np.exp(h * tilt)
            covariances = found.covariances + h * bend
            values.append(
                expected(
                    Components(
                        weights / weights.sum(),
                        found.means + h * shift,
                        covariances,
                        inverse_roots(covariances),
                    )
                )
            )
        assert max(values) < top  # a strict maximum …
        assert abs(values[1] - values[0]) < 1e-2 * (top - min(values)) + 1e-8


@pytest.mark.catalog("LAT-16")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_every_step_climbs_through_the_lower_bound(kind, seed):
    X = blobs(seed)
    start = gaussian_start(X, 3, covariance_type=kind, reg_covar=0.0, random_state=seed)
    options = {"max_iter": 1, "tol": 0.0, "reg_covar": 0.0}
    theta = from_public(fitted(kind, X, **start, **options), kind)
    for _ in range(40):
        joint = log_joint(X, theta)
        level = logsumexp(joint, axis=1)
        q = np.exp(joint - level[:, None])
        entropy = -np.where(q > 0, q * np.log(np.where(q > 0, q, 1)), 0).sum(axis=1)
        found, _ = em_step(X, theta, kind, 0.0)
        here = ((q * joint).sum(axis=1) + entropy).mean()
        there = ((q * log_joint(X, found)).sum(axis=1) + entropy).mean()
        after = logsumexp(log_joint(X, found), axis=1).mean()
        assert here == pytest.approx(level.mean(), abs=1e-12)
        assert there >= here - 1e-12
        assert after >= there - 1e-12
        theta = found


@pytest.mark.catalog("LAT-16")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("assignment", ["soft", "hard"])
def test_replayed_steps_never_go_down(kind, assignment):
    X = blobs()
    model = fitted(kind, X, reg_covar=0.0, assignment=assignment)
    assert (np.diff(model.lower_bounds_) >= -1e-12).all()
    claim = certus.certify(model, X, level="full")["monotone"]
    assert claim.met
    assert claim.strength.value == "proved"


@pytest.mark.catalog("LAT-15")
@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), sharp=st.floats(0.01, 30))
def test_evidence_is_lower_bound_plus_divergence_for_any_q(seed, sharp):
    rng = np.random.default_rng(seed)
    X, theta = rng.standard_normal((20, 3)), _random_components(rng, 4, 3)
    joint = log_joint(X, theta)
    log_q = sharp * rng.standard_normal((20, 4))
    log_q -= logsumexp(log_q, axis=1, keepdims=True)
    q = np.exp(log_q)
    level = logsumexp(joint, axis=1)
    bound = (q * (joint - log_q)).sum(axis=1)
    divergence = (q * (log_q - (joint - level[:, None]))).sum(axis=1)
    np.testing.assert_allclose(bound + divergence, level, atol=1e-10, rtol=1e-10)
    assert (divergence >= -1e-12).all()


def _random_components(rng, k, d):
    shapes = rng.standard_normal((k, d, d)) + np.eye(d)
    covariances = shapes @ shapes.transpose(0, 2, 1) + 0.1 * np.eye(d)
    weights = rng.dirichlet(np.ones(k))
    means = rng.standard_normal((k, d))
    return Components(weights, means, covariances, inverse_roots(covariances))


# -- hard EM and the limit --------------------------------------------------------


def _equal_spheres(means, variance):
    k, d = means.shape
    same = np.full((k, d), variance)
    return Components(np.full(k, 1 / k), means, same, 1 / np.sqrt(same))


def _lloyd(X, start, steps):
    model = KMeans(len(start), init=start, n_init=1, max_iter=steps, tol=0.0)
    return model.fit(X)


@pytest.mark.catalog("LAT-10")
def test_hard_em_with_equal_spheres_is_lloyd():
    X = blobs(5, n=400, k=4)
    start = X[:4].copy()
    means = start
    for _ in range(100):
        theta = _equal_spheres(means, 1.0)
        found, _ = em_step(X, theta, "spherical", 0.0, hard=True)
        if np.array_equal(found.means, means):
            break
        means = found.means
    lloyd = _lloyd(X, start, 100)
    np.testing.assert_allclose(means, lloyd.cluster_centers_, atol=1e-12)
    labels = log_joint(X, _equal_spheres(means, 1.0)).argmax(axis=1)
    np.testing.assert_array_equal(labels, lloyd.labels_)


@pytest.mark.catalog("LAT-13")
def test_soft_em_becomes_lloyd_as_the_variance_vanishes():
    X = blobs(5, n=400, k=4)
    start = X[:4].copy()
    lloyd = _lloyd(X, start, 100).cluster_centers_
    distances = []
    for variance in [1.0, 1e-2, 1e-4, 1e-8]:
        means = start
        for _ in range(200):
            means = em_step(X, _equal_spheres(means, variance), "spherical", 0.0)[
                0
            ].means
        joint = log_joint(X, _equal_spheres(means, variance))
        q = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        distances.append(np.abs(means - lloyd).max())
    assert distances[0] > 0.1 > distances[2]
    assert distances[-1] < 1e-12
    assert (q.max(axis=1) > 1 - 1e-12).all()


@pytest.mark.catalog("LAT-10")
@pytest.mark.parametrize("kind", KINDS)
def test_hard_em_maximises_the_complete_likelihood(kind):
    X = blobs()
    model = fitted(kind, X, assignment="hard", reg_covar=0.0, tol=0.0)
    z = model.predict(X)
    assert model.certificate_.met
    with np.errstate(divide="ignore"):
        joint = np.log(joint_by_hand(model, X))
    assert model.lower_bound_ == pytest.approx(joint.max(axis=1).mean(), rel=1e-10)
    # The parameters are those of the rows each component was given.
    np.testing.assert_allclose(model.weights_, np.bincount(z) / len(z), rtol=1e-12)
    own = [X[z == k].mean(axis=0) for k in range(3)]
    np.testing.assert_allclose(model.means_, own, rtol=1e-9)


# -- where it begins --------------------------------------------------------------


@pytest.mark.catalog("LAT-17")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("means", ["k-means++", "random"])
def test_the_textbook_start(kind, means):
    X = blobs()
    start = gaussian_start(
        X, 3, covariance_type=kind, means=means, reg_covar=0.0, random_state=1
    )
    np.testing.assert_array_equal(start["weights_init"], np.full(3, 1 / 3))
    rows = {tuple(x) for x in X}
    assert len({tuple(m) for m in start["means_init"]} & rows) == 3
    spread = np.cov(X.T, ddof=0)
    truth = {
        "full": [np.linalg.inv(spread)] * 3,
        "tied": np.linalg.inv(spread),
        "diag": [1 / np.diag(spread)] * 3,
        "spherical": [2 / np.trace(spread)] * 3,
    }[kind]
    np.testing.assert_allclose(start["precisions_init"], truth, rtol=1e-10)
    model = fitted(kind, X, **start)
    joint = [np.log(w) for w in start["weights_init"]] + _log_pdf(X, start, kind)
    expected = logsumexp(joint, axis=1).mean()
    assert model.lower_bounds_[0] == pytest.approx(expected, rel=1e-10)


def _log_pdf(X, start, kind):
    spread = np.cov(X.T, ddof=0)
    if kind == "diag":
        spread = np.diag(np.diag(spread))
    elif kind == "spherical":
        spread = np.trace(spread) / 2 * np.eye(2)
    columns = [multivariate_normal(m, spread).logpdf(X) for m in start["means_init"]]
    return np.column_stack(columns)


@pytest.mark.catalog("LAT-17")
@pytest.mark.parametrize("method", ["kmeans", "k-means++", "random_from_data"])
def test_zero_steps_leave_the_start(method):
    X = blobs(apart=20.0)
    model = fitted("full", X, max_iter=0, init_params=method)
    assert model.n_iter_ == 0
    assert model.lower_bounds_ == []
    if method != "kmeans":  # one row each
        assert {tuple(m) for m in model.means_} <= {tuple(x) for x in X}
        np.testing.assert_allclose(model.covariances_, [1e-6 * np.eye(2)] * 3)
        np.testing.assert_allclose(model.weights_, 1 / 3)


@pytest.mark.catalog("LAT-06")
def test_elongated_blobs_are_split_by_k_means_and_found_by_a_mixture():
    X, truth = make_blobs(n_samples=900, random_state=170)
    X = X @ [[0.6, -0.64], [-0.41, 0.85]]
    clusters = KMeans(3, n_init=10, random_state=0).fit_predict(X)
    components = GaussianMixture(3, random_state=0).fit_predict(X)

    def agreement(labels):
        orders = [np.array(order) for order in permutations(range(3))]
        return max(np.mean(order[labels] == truth) for order in orders)

    assert agreement(clusters) < 0.9
    assert agreement(components) > 0.99


# -- attributes -------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_are_inverses_and_survive_a_change_of_shape(kind):
    model = fitted(kind)
    theta = from_public(model, kind)
    again = to_public(theta, kind, np.float64)
    for name, value in again.items():
        np.testing.assert_allclose(value, getattr(model, name), rtol=1e-12)
    for covariance, root in zip(theta.covariances, theta.roots):
        if covariance.ndim == 1:
            np.testing.assert_allclose(root**2 * covariance, 1.0)
        else:
            product = covariance @ root @ root.T
            np.testing.assert_allclose(product, np.eye(2), atol=1e-10)
            assert np.array_equal(root, np.triu(root))


def test_criteria_count_the_free_parameters():
    X = blobs(d=3)
    counts = {"full": 3 * 6, "tied": 6, "diag": 9, "spherical": 3}
    for kind, covariance in counts.items():
        model = fitted(kind, X)
        free = covariance + 9 + 2
        total = model.score_samples(X).sum()
        assert model.aic(X) == pytest.approx(2 * free - 2 * total)
        assert model.bic(X) == pytest.approx(free * np.log(len(X)) - 2 * total)


def test_warm_start_goes_on_where_it_ended():
    X = blobs()
    whole = fitted("full", X, max_iter=30, tol=1e-300)
    with certus.config_context(on_uncertified="ignore"):
        parts = GaussianMixture(
            3, max_iter=10, tol=0.0, warm_start=True, random_state=0
        )
        for _ in range(3):
            parts.fit(X)
    np.testing.assert_allclose(parts.means_, whole.means_, rtol=1e-12)
    assert parts.lower_bounds_ == pytest.approx(whole.lower_bounds_[20:])


def test_the_best_of_several_starts_is_kept():
    X = blobs(3, k=5, n=500)
    options = {"init_params": "random_from_data", "tol": 1e-4, "max_iter": 300}
    single = GaussianMixture(5, random_state=0, **options).fit(X)
    several = GaussianMixture(5, n_init=8, random_state=0, **options).fit(X)
    assert several.lower_bound_ >= single.lower_bound_
    assert len(several.history_["objective"]) > several.n_iter_
    assert several.lower_bound_ == max(several.history_["objective"])
