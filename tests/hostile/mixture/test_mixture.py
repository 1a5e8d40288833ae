"""Gaussian mixtures on data and parameters that should not exist."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.mixture import GaussianMixture, gaussian_start
from certus.mixture.covariances import BLOCK, Components, em_step, inverse_roots
from helpers.interrupting import interrupt_at

KINDS = ["full", "tied", "diag", "spherical"]


def rows(seed=0, n=200, d=3):
    rng = np.random.default_rng(seed)
    return np.vstack([rng.normal(0, 1, (n // 2, d)), rng.normal(6, 2, (n // 2, d))])


def quiet(**options):
    """A fit whose certificate may miss its target."""
    X = options.pop("X")
    with certus.config_context(on_uncertified="ignore"):
        return GaussianMixture(**{"random_state": 0, **options}).fit(X)


# -- components that collapse -----------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "diag", "spherical"])
def test_a_component_on_copies_of_one_row_is_reported(kind):
    X = np.vstack([rows(), np.full((30, 3), 40.0)])
    model = quiet(X=X, n_components=3, covariance_type=kind)
    claim = model.certificate_["collapse"]
    assert claim.met is False
    assert claim.value == 1
    assert "collapsed" in claim.detail
    assert "n_components" in claim.fix
    assert model.certificate_["parameters"].met


@pytest.mark.parametrize("kind", KINDS)
def test_without_regularisation_a_collapse_ends_the_fit_and_says_so(kind):
    far = np.vstack([rows(), np.full((30, 3), 40.0)])
    X = far if kind != "tied" else np.column_stack([far[:, 0], far[:, 0]])
    labels = np.repeat([0, 1, 2], [100, 100, 30])
    centre = np.stack([X[labels == k].mean(axis=0) for k in range(3)])
    d = X.shape[1]
    unit = {
        "full": np.repeat(np.eye(d)[None], 3, axis=0),
        "tied": np.eye(d),
        "diag": np.ones((3, d)),
        "spherical": np.ones(3),
    }
    model = GaussianMixture(
        3,
        covariance_type=kind,
        reg_covar=0.0,
        weights_init=np.full(3, 1 / 3),
        means_init=centre,
        precisions_init=unit[kind],
    )
    with pytest.warns(UncertifiedWarning, match="singular"):
        model.fit(X)
    assert model.certificate_.status is Status.DIVERGED
    assert "reg_covar" in model.certificate_["step_gain"].fix
    assert np.isfinite(model.score(X))


def test_a_singular_start_is_an_error_that_says_what_to_do():
    X = rows()
    for method in ("k-means++", "random_from_data"):
        with pytest.raises(ValueError, match="Raise reg_covar"):
            GaussianMixture(2, reg_covar=0.0, init_params=method).fit(X)
    constant = np.column_stack([X, np.ones(len(X))])
    with pytest.raises(ValueError, match="Raise reg_covar"):
        GaussianMixture(2, reg_covar=0.0).fit(constant)
    with pytest.raises(ValueError, match="constant"):
        gaussian_start(constant, 2, reg_covar=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_component_may_lose_all_its_rows(kind):
    X = rows()
    start = gaussian_start(X, 3, covariance_type=kind, random_state=0)
    start["means_init"][2] = 1e6
    model = quiet(X=X, n_components=3, covariance_type=kind, **start)
    assert model.weights_[2] == 0.0
    assert model.weights_.sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(model.means_[2], 1e6)
    assert (model.predict_proba(X)[:, 2] == 0).all()
    assert np.isfinite(model.score_samples(X)).all()
    claim = model.certificate_["collapse"]
    assert claim.met is False
    assert claim.detail == "component 2 has less than half a row"
    assert len(model.sample(20)[0]) == 20


# -- data -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("assignment", ["soft", "hard"])
def test_copies_and_constant_columns(kind, assignment):
    X = np.column_stack([np.repeat([[0.0, 1.0], [5.0, 5.0]], 20, axis=0), np.ones(40)])
    model = quiet(X=X, n_components=2, covariance_type=kind, assignment=assignment)
    assert np.isfinite(model.score(X))
    assert model.certificate_["collapse"].met is False
    assert len(set(model.predict(X))) == 2
    assert "column" in model.certificate_["collapse"].fix


def test_more_components_than_distinct_rows():
    X = np.repeat([[0.0, 0.0], [1.0, 1.0]], 10, axis=0)
    with np.errstate(all="raise", under="ignore"):
        model = quiet(X=X, n_components=5, init_params="random_from_data")
    assert np.isfinite(model.score(X))
    assert model.certificate_["collapse"].met is False


@pytest.mark.parametrize("kind", KINDS)
def test_a_far_outlier_leaves_the_others_alone(kind):
    X = rows()
    start = gaussian_start(X, 2, covariance_type=kind, random_state=0)
    start["means_init"] = np.array([[0.0] * 3, [6.0] * 3])
    alone = quiet(X=X, n_components=2, covariance_type=kind, tol=1e-8, **start)
    far = np.vstack([X, [[1e9, 0.0, 0.0]]])
    both = {
        "weights_init": np.full(3, 1 / 3),
        "means_init": np.vstack([start["means_init"], far[-1:]]),
    }
    if kind != "tied":
        given = np.asarray(start["precisions_init"])
        both["precisions_init"] = np.concatenate([given, given[:1]])
        model = quiet(X=far, n_components=3, covariance_type=kind, tol=1e-8, **both)
        np.testing.assert_allclose(model.means_[:2], alone.means_, atol=1e-5)
        np.testing.assert_allclose(model.means_[2], far[-1])
    else:
        model = quiet(X=far, n_components=3, covariance_type=kind, **both)
    assert np.isfinite(model.score(far))


def test_means_a_million_apart_with_tiny_covariances_match_long_double():
    """Sums about zero would lose all of σ² = 1e-6 beside 1e12."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [1e6, -1e6], [-1e6, 1e6]])
    shapes = 1e-3 * np.array([[[1, 0.5], [0, 1]], [[2, 0], [1, 1]], [[1, -1], [0, 1]]])
    z = rng.integers(0, 3, 3000)
    X = centres[z] + np.einsum("nij,nj->ni", shapes[z], rng.standard_normal((3000, 2)))
    model = quiet(
        X=X,
        n_components=3,
        reg_covar=0.0,
        tol=1e-10,
        weights_init=np.full(3, 1 / 3),
        means_init=centres + 300.0,
        precisions_init=np.repeat(np.eye(2)[None] * 1e-6, 3, axis=0),
    )
    exact = X.astype(np.longdouble)
    for k in range(3):
        own = exact[z == k]
        mean = own.mean(axis=0)
        covariance = (own - mean).T @ (own - mean) / len(own)
        np.testing.assert_allclose(model.means_[k], mean.astype(float), rtol=1e-13)
        np.testing.assert_allclose(
            model.covariances_[k], covariance.astype(float), rtol=1e-6
        )
    levels = np.stack([_log_density(exact, model, k) for k in range(3)], axis=1)
    truth = logsumexp(levels.astype(float), axis=1)
    np.testing.assert_allclose(model.score_samples(X), truth, rtol=1e-8, atol=1e-6)
    assert model.certificate_.met
    assert certus.certify(model, X, level="full")["monotone"].met


@pytest.mark.parametrize("kind", KINDS)
def test_one_step_keeps_its_digits_when_a_mean_moves_far(kind):
    X = 1e-3 * np.random.default_rng(0).standard_normal((3000, 2))
    wide = np.full((1, 2), 1e10)
    if kind in ("full", "tied"):
        wide = np.diag(wide[0])[None]
    away = Components(np.ones(1), np.full((1, 2), 1e5), wide, inverse_roots(wide))
    found, _ = em_step(X, away, kind, 0.0)
    exact = X.astype(np.longdouble)
    centred = exact - exact.mean(axis=0)
    truth = (centred.T @ centred / len(X)).astype(float)
    variances = np.diag(truth)
    if kind == "spherical":
        variances = np.full(2, variances.mean())
    kept = found.covariances[0]
    np.testing.assert_allclose(
        kept, truth if kept.ndim == 2 else variances, rtol=1e-8, atol=1e-14
    )


def _log_density(X, model, k):
    """Log π_k N(x; μ_k, Σ_k) for two columns, in long double."""
    (a, b), (_, c) = model.covariances_[k].astype(np.longdouble)
    x, y = (X - model.means_[k].astype(np.longdouble)).T
    det = a * c - b * b
    square = (c * x * x - 2 * b * x * y + a * y * y) / det
    return np.log(model.weights_[k]) - 0.5 * (square + np.log(4 * np.pi**2 * det))


@pytest.mark.parametrize("scale", [1e-100, 1e-8, 1e8, 1e100])
def test_scales(scale):
    X = rows() * scale
    reg = 1e-6 * scale**2
    plain = GaussianMixture(2, random_state=0, tol=1e-6).fit(rows())
    model = GaussianMixture(2, random_state=0, tol=1e-6, reg_covar=reg).fit(X)
    order = [0, 1] if model.means_[0, 0] < model.means_[1, 0] else [1, 0]
    want = [0, 1] if plain.means_[0, 0] < plain.means_[1, 0] else [1, 0]
    np.testing.assert_allclose(model.means_[order], plain.means_[want] * scale)
    np.testing.assert_allclose(
        model.covariances_[order], plain.covariances_[want] * scale**2, rtol=1e-5
    )


def test_scales_that_no_square_survives():
    with pytest.raises(ValueError, match="Standardise"):
        GaussianMixture(2, random_state=0, init_params="random").fit(rows() * 1e200)
    tiny = quiet(X=rows() * 1e-200, n_components=2, init_params="random")
    assert tiny.certificate_["collapse"].met is False
    model = GaussianMixture(2, random_state=0).fit(rows())
    with pytest.raises(ValueError, match="Row 1 is so far"):
        model.predict_proba([[0.0, 0.0, 0.0], [1e300, 0.0, 0.0]])


def test_input_is_checked():
    X = rows()
    for bad in (np.nan, np.inf):
        broken = X.copy()
        broken[3, 1] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            GaussianMixture(2).fit(broken)
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            GaussianMixture(2, random_state=0).fit(X).predict(broken)
    with pytest.raises(ValueError, match="minimum of 2"):
        GaussianMixture(1).fit(X[:1])
    with pytest.raises(ValueError, match="n_samples >= n_components"):
        GaussianMixture(9).fit(X[:8])
    with pytest.raises(ValueError, match="than n_components"):
        gaussian_start(X[:3], 4)
    one = GaussianMixture(2, random_state=0, covariance_type="full").fit(X[:, :1])
    assert one.covariances_.shape == (2, 1, 1)
    same = GaussianMixture(len(X), random_state=0, init_params="random_from_data")
    assert np.isfinite(quiet(X=X, **same.get_params()).score(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"covariance_type": "round"}, "covariance_type"),
        ({"tol": -1.0}, "tol"),
        ({"reg_covar": np.nan}, "reg_covar"),
        ({"init_params": "best"}, "init_params"),
        ({"assignment": "firm"}, "assignment"),
        ({"n_init": 0}, "n_init"),
        ({"weights_init": [0.2, 0.2]}, "sum to 1"),
        ({"weights_init": [1.0]}, "shape"),
        ({"means_init": [[0.0]]}, "shape"),
        ({"means_init": np.full((2, 3), np.nan)}, "NaN"),
        ({"precisions_init": -np.ones((2, 3, 3))}, "positive definite"),
    ],
)
def test_parameters_are_checked(options, message):
    model = GaussianMixture(**{"n_components": 2, **options})
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(rows())


# -- threads, time, interrupts ----------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_nothing(kind):
    X = rows(n=5 * BLOCK + 17)
    options = {"n_components": 3, "covariance_type": kind, "init_params": "random"}
    found = []
    for threads in (1, 2, 2):
        with threadpool_limits(threads):
            found.append(quiet(X=X, max_iter=20, **options))
    one, two, again = found
    np.testing.assert_array_equal(two.means_, again.means_)
    assert one.n_iter_ == two.n_iter_
    np.testing.assert_allclose(one.means_, two.means_, rtol=1e-10)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


def test_time_is_kept():
    model = GaussianMixture(3, tol=0.0, max_iter=10**6, max_time=0.2, random_state=0)
    with pytest.warns(UncertifiedWarning, match="max_time"):
        model.fit(rows())
    assert model.certificate_.status is Status.TIME_LIMIT
    assert model.history_["seconds"][-1] < 5


def test_a_later_start_cut_short_does_not_undo_the_best(monkeypatch):
    from certus.mixture import ascent

    interrupt_at(monkeypatch, ascent, "em_step", 60)
    model = GaussianMixture(2, n_init=1000, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(rows())
    assert model.certificate_.status is Status.INTERRUPTED
    assert model.converged_
    assert model.certificate_.met


def test_a_warm_start_of_another_shape_begins_again():
    X = rows()
    model = GaussianMixture(2, warm_start=True, random_state=0).fit(X)
    model.set_params(covariance_type="diag").fit(X)
    assert model.covariances_.shape == (2, 3)
    model.set_params(n_components=3, covariance_type="spherical", tol=1e-2).fit(X)
    assert model.covariances_.shape == (3,)


def test_an_interrupt_leaves_a_model(monkeypatch):
    from certus.mixture import ascent

    interrupt_at(monkeypatch, ascent, "em_step", 4)
    model = GaussianMixture(3, tol=0.0, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(rows())
    assert model.n_iter_ == 3
    assert model.certificate_.status is Status.INTERRUPTED
    assert np.isfinite(model.score(rows()))


# -- forgery ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    ["weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"],
)
def test_changed_parameters_are_refuted(kind, name):
    X = rows()
    model = GaussianMixture(2, covariance_type=kind, random_state=0, tol=1e-5).fit(X)
    assert certus.certify(model, X).met
    value = getattr(model, name)
    changed = value[::-1].copy() if name == "weights_" else value * 1.2
    if name == "weights_":
        changed = np.array([0.9, 0.1])
    setattr(model, name, changed)
    assert certus.certify(model, X).status is Status.REFUTED


def test_weights_that_are_not_shares_are_refuted():
    X = rows()
    model = GaussianMixture(2, random_state=0).fit(X)
    for forged in ([0.6, 0.6], [1.5, -0.5], [np.nan, 0.5]):
        model.weights_ = np.array(forged)
        assert certus.certify(model, X).status is Status.REFUTED


def test_other_rows_are_noticed():
    X = rows()
    model = GaussianMixture(2, random_state=0, tol=1e-6, max_iter=500).fit(X)
    other = certus.certify(model, rows(5) + 1.0)
    assert other.met is False
    assert other.status is not Status.REFUTED
    with pytest.raises(ValueError, match="columns"):
        certus.certify(model, X[:, :2])


def test_responsibilities_that_are_not_the_posterior_are_found(monkeypatch):
    X = rows()
    model = GaussianMixture(2, random_state=0).fit(X)
    right = model.predict_proba

    def wrong(self, X):
        q = right(X) ** 0.5
        return q / q.sum(axis=1, keepdims=True)

    monkeypatch.setattr(GaussianMixture, "predict_proba", wrong)
    assert certus.certify(model, X)["elbo"].met is False


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(KINDS),
    n=st.integers(2, 40),
    d=st.integers(1, 4),
    k=st.integers(1, 6),
    size=st.sampled_from([1e-6, 1.0, 1e6]),
    assignment=st.sampled_from(["soft", "hard"]),
)
def test_any_small_data_gives_a_model_or_a_clear_error(
    seed, kind, n, d, k, size, assignment
):
    rng = np.random.default_rng(seed)
    X = size * np.round(rng.standard_normal((n, d)), int(rng.integers(0, 3)))
    options = {"covariance_type": kind, "assignment": assignment, "max_iter": 30}
    try:
        model = quiet(X=X, n_components=min(k, n), init_params="random", **options)
    except ValueError as error:
        assert "Raise reg_covar" in str(error)
        return
    assert np.isfinite(model.means_).all()
    assert model.certificate_["parameters"].met
    assert model.certificate_["elbo"].met
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_file_brings_it_back(kind, tmp_path):
    X = rows()
    model = GaussianMixture(2, covariance_type=kind, random_state=0).fit(X)
    back = certus.load(model.save(tmp_path / "m.certus"))
    assert set(vars(back)) == set(vars(model))
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    assert back.lower_bounds_ == model.lower_bounds_
    again = certus.certify(back, X, level="full")
    assert again.met
    assert again["monotone"].value == 0.0
