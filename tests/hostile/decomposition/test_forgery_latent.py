"""Forged clusterings, mixtures, factors and vectors: none may pass as proved.

Each test changes a fitted model so that it says something untrue, and asks the
verifier; or fits at scales where a careless verifier would see nothing, or fail.
"""

import copy
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import cluster, mixture
from sklearn import decomposition as theirs

import certus
from certus.certificate import Status, Strength
from certus.cluster import KMeans
from certus.decomposition import (
    PCA,
    DeepLinearNetwork,
    FactorAnalysis,
    LinearAutoencoder,
    ProbabilisticPCA,
    TruncatedSVD,
)
from certus.mixture import GaussianMixture
from certus.recommend import ImplicitALS, MatrixFactorization
from certus.text import (
    Cooccurrence,
    FastTextClassifier,
    FastTextVectors,
    GloVe,
    SkipGram,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 5)) + 3 * rng.integers(0, 3, size=(120, 1))
LEVELS = pytest.mark.parametrize("level", ["quick", "full"])


def changed(model: Any, **changes: Any) -> Any:
    model = copy.copy(model)
    for name, value in changes.items():
        setattr(model, name, value)
    return model


def put(values: Any, at: int, value: float) -> Any:
    """A copy with one number replaced."""
    out = np.array(values, dtype=float)
    out.flat[at] = value
    return out


def caught(model: Any, *data: Any, level: str = "quick", **options: Any) -> None:
    """Certify says no, in so many words, or raises a sentence."""
    try:
        found = certus.certify(model, *data, level=level, **options)
    except ValueError as error:
        assert len(str(error)) < 250
        return
    assert found.met is False, found
    assert found.status is not Status.SOLVED


# -- principal components ---------------------------------------------------------


@LEVELS
@pytest.mark.parametrize("name", ["explained_variance_", "explained_variance_ratio_"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, 0.0])
def test_invalid_variances_are_refused(name, bad, level):
    model = PCA(3).fit(X)
    caught(changed(model, **{name: put(getattr(model, name), -1, bad)}), X, level=level)


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, 2.5])
def test_invalid_noise_is_refused(k, bad):
    caught(changed(theirs.PCA(k).fit(X), noise_variance_=bad), X)


def test_small_variances_are_held_to_their_own_size():
    # Whitening divides by them, and the density by the noise, however small they are.
    Z = X * [1e4, 1e3, 1.0, 1e-2, 1e-2]
    model = theirs.PCA(3, whiten=True).fit(Z)
    assert certus.certify(model, Z).met
    least = model.explained_variance_[-1]
    assert least < 1e-7 * model.explained_variance_[0]
    forged = put(model.explained_variance_, -1, 1.1 * least)
    caught(changed(model, explained_variance_=forged), Z)
    Z = X * [
        1e3,
        1e2,
        1.0,
        0.1,
        0.1,
    ]  # of less, beside the whole, rounding tells naught
    model = theirs.PCA(3).fit(Z)
    assert model.noise_variance_ < 1e-7 * model.explained_variance_[0]
    caught(changed(model, noise_variance_=1.1 * model.noise_variance_), Z)


@pytest.mark.parametrize("cls", [theirs.PCA, theirs.TruncatedSVD, PCA, TruncatedSVD])
@pytest.mark.parametrize("scale", [1e-150, 1e-90, 1e90, 1e150])
def test_invalid_vectors_at_any_scale_are_refused(cls, scale):
    # Squares of squares vanish below 1e-81: every residual was zero there.
    Z = X * scale
    model = cls(2).fit(Z)
    assert certus.certify(model, Z)["ritz_residual"].met
    turn = np.array([[np.cos(0.3), np.sin(0.3)], [-np.sin(0.3), np.cos(0.3)]])
    forged = changed(model, components_=turn @ model.components_)
    assert certus.certify(forged, Z)["ritz_residual"].met is False


def test_stated_sizes_do_not_widen_the_rounding():
    model = theirs.PCA(2).fit(X)
    other = np.linalg.svd(X - X.mean(axis=0))[2][[2, 4]]
    forged = changed(model, components_=other, singular_values_=np.array([1e9, 1e8]))
    assert certus.certify(forged, X)["eckart_young"].met is False


def test_null_directions_are_not_all_there_are():
    # As many components as rows, one of them outside the rows' span.
    Z = rng.normal(size=(150, 160))
    model = theirs.TruncatedSVD(150, algorithm="arpack")
    _, s, Vt = np.linalg.svd(Z)
    V = np.vstack([Vt[1:150], Vt[155]])
    values = np.append(s[1:150], 0.0)
    T = Z @ V.T
    model.components_, model.singular_values_ = V, values
    model.explained_variance_ = T.var(axis=0)
    model.explained_variance_ratio_ = T.var(axis=0) / Z.var(axis=0).sum()
    found = certus.certify(model, Z)
    assert found["ritz_residual"].met and found["captured_variance"].met
    claim = found["largest"]
    assert not (claim.strength is Strength.PROVED and claim.met)


def test_constant_rows_have_a_mean_and_no_variance():
    Z = np.full((20, 3), 5.0)
    model = PCA(2).fit(Z)
    assert model.certificate_.met
    caught(changed(model, mean_=np.array([5.0, 5.0, 6.0])), Z)
    caught(changed(model, singular_values_=np.array([1e-7, 0.0])), np.zeros((20, 3)))
    caught(changed(model, explained_variance_=np.array([1e-3, 0.0])), Z)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_components_far_from_the_origin(form):
    Z = X * [1, 2, 3, 4, 5] + 3e6
    model = theirs.PCA(2, svd_solver="full").fit(Z)
    for level in ("quick", "full"):
        found = certus.certify(model, form(Z), level=level)
        assert found.met and found["eckart_young"].allowance < 1e-6
    lesser = np.linalg.svd(Z - Z.mean(axis=0))[2][[0, 2]]
    caught(changed(model, components_=lesser), form(Z))


@pytest.mark.parametrize("model", [PCA(2), TruncatedSVD(2), theirs.PCA(2)])
def test_both_levels_make_the_same_claim(model):
    model = model.fit(X)
    quick, full = (certus.certify(model, X, level=k) for k in ("quick", "full"))
    assert quick.primary == full.primary == "ritz_residual"
    assert quick.value == full.value


# -- clusters ---------------------------------------------------------------------


@LEVELS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, 0.0, 1e9])
@pytest.mark.parametrize("cls", [KMeans, cluster.KMeans])
def test_an_inertia_of_another_clustering(cls, bad, level):
    model = cls(3, n_init=2, random_state=0, tol=0).fit(X)
    assert certus.certify(model, X).met
    caught(changed(model, inertia_=bad), X, level=level)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_rows_far_from_the_origin(dtype):
    # About zero their squares drown all distances: any label passed as the nearest.
    Z = (X + (1e5 if dtype == np.float32 else 7e7)).astype(dtype)
    model = cluster.KMeans(3, n_init=1, random_state=0).fit(Z)
    assert certus.certify(model, sparse.csr_matrix(Z))["nearest_centres"].met
    labels = np.roll(model.labels_, 1)
    found = certus.certify(changed(model, labels_=labels), sparse.csr_matrix(Z))
    exact = certus.certify(changed(model, labels_=labels), Z)
    assert not found["nearest_centres"].met
    for name in ("centre_shift", "nearest_centres"):
        assert found[name].value == pytest.approx(exact[name].value, rel=1e-6)


def test_centres_of_single_precision_far_from_the_origin():
    # Their rounding alone is a shift: single precision cannot hold the means there.
    Z = (X + 1e6).astype(np.float32)
    model = cluster.KMeans(3, n_init=1, random_state=0).fit(Z)
    found = certus.certify(model, Z)
    assert found["centre_shift"].met is False and found["inertia"].met
    assert certus.certify(cluster.KMeans(3, n_init=1).fit(Z - Z[0]), Z - Z[0]).met
    caught(changed(model, inertia_=1.5 * model.inertia_), Z)


# -- mixtures ---------------------------------------------------------------------

KINDS = pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
NAMES = ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_")


@KINDS
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_mixtures_of_no_numbers(kind, name, bad):
    model = GaussianMixture(3, covariance_type=kind, random_state=0).fit(X)
    caught(changed(model, **{name: put(getattr(model, name), -1, bad)}), X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES[2:])
def test_inverses_of_long_and_thin_covariances(name, dtype):
    # By the square of the condition, any matrix would pass for their inverse.
    Z = (X * [1e3, 1, 1, 1, 1e-3]).astype(dtype)
    Z[:, 1] = Z[:, 2] + 3e-2 * Z[:, 1]
    model = mixture.GaussianMixture(2, random_state=0, reg_covar=1e-9, tol=1e-6).fit(Z)
    assert certus.certify(model, Z)["parameters"].met
    for at in (0, 6, -1):
        values = np.array(getattr(model, name))
        values.flat[at] *= 1.02
        assert certus.certify(changed(model, **{name: values}), Z).met is False


def test_a_root_that_is_not_triangular_is_refused():
    # Densities take its determinant from the diagonal.
    model = GaussianMixture(2, covariance_type="tied", random_state=0).fit(X)
    turn = np.eye(5)
    turn[:2, :2] = [[np.cos(0.02), np.sin(0.02)], [-np.sin(0.02), np.cos(0.02)]]
    caught(changed(model, precisions_cholesky_=model.precisions_cholesky_ @ turn), X)


def test_responsibilities_that_are_not_the_posterior():
    class Bold(mixture.GaussianMixture):
        def predict_proba(self, X):
            q = super().predict_proba(X) ** 2
            return q / q.sum(axis=1, keepdims=True)

    model = Bold(3, random_state=0, tol=1e-6, max_iter=1000).fit(X)
    found = certus.certify(model, X)  # what it answers is its own affair
    assert not found.met and "overrides predict_proba" in str(found)
    model = mixture.GaussianMixture(3, random_state=0, tol=1e-6, max_iter=1000).fit(X)
    model.predict_proba = lambda Z: np.full((len(Z), 3), 1 / 3)
    found = certus.certify(model, X)
    assert not found.met and "overrides predict_proba" in str(found)


def test_covariances_that_rounding_leaves_lopsided():
    Z = X + 300.0
    model = mixture.GaussianMixture(3, covariance_type="tied", random_state=0).fit(Z)
    assert certus.certify(model, Z)["parameters"].met


# -- Gaussian factors and linear networks -----------------------------------------


@LEVELS
@pytest.mark.parametrize("cls", [FactorAnalysis, ProbabilisticPCA])
def test_loadings_other_than_those_stated(cls, level):
    # A step gains little from there, but the likelihood is not the one stated.
    model = cls(2, tol=1.0).fit(X)
    W = put(model.components_, -1, model.components_.flat[-1] + 0.02)
    caught(changed(model, components_=W), X, level=level)


@pytest.mark.parametrize("cls", [FactorAnalysis, theirs.FactorAnalysis])
def test_noise_that_is_stated_to_vanish(cls):
    # Only where factors explain a column is the likelihood unbounded.
    model = cls(2).fit(X)
    for noise in (1e-3, 1e-6):
        caught(changed(model, noise_variance_=put(model.noise_variance_, 1, noise)), X)
    for noise in (1e-9, 1e-12, 1e-14, 1e-100):  # nothing can be told, and that is said
        forged = changed(model, noise_variance_=put(model.noise_variance_, 1, noise))
        found = certus.certify(forged, X)
        assert not found.met and "without bound" not in str(found)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, -1.0])
def test_the_loss_of_another_autoencoder(bad):
    model = LinearAutoencoder(2, random_state=0).fit(X)
    assert model.certificate_["reported_loss"].met
    caught(changed(model, loss_=bad), X)


def test_layers_that_do_not_make_the_matrix():
    Y = X[:, :2] @ rng.normal(size=(2, 3))
    model = DeepLinearNetwork(random_state=0).fit(X, Y)
    caught(
        changed(model, weights_=[*model.weights_[:-1], 2 * model.weights_[-1]]), X, Y
    )


def test_cancelling_numbers_count_with_their_rounding():
    Z = np.column_stack([X, X[:, 0]])
    Y = Z[:, :2] @ rng.normal(size=(2, 3)) + rng.normal(size=(120, 3))
    model = DeepLinearNetwork(random_state=0).fit(Z, Y)
    large = 1e13 * np.outer(np.ones(3), [1, 0, 0, 0, 0, -1])
    layers = [*model.weights_[:-1], model.weights_[-1]]
    forged = changed(model, coef_=model.coef_ + large, weights_=layers)
    found = certus.certify(forged, Z, Y)
    assert not found.met and found.status is not Status.SOLVED
    assert not found["loss_excess"].met


# -- recommenders -----------------------------------------------------------------


def ratings():
    some = np.random.default_rng(0)
    known = some.random((30, 20)) < 0.5
    known[:, 0] = known[0] = True
    values = some.integers(1, 6, known.sum()).astype(float)
    return sparse.csr_matrix((values, np.nonzero(known)), (30, 20))


@pytest.mark.parametrize("cls", [MatrixFactorization, ImplicitALS])
def test_ids_and_rows_that_are_not_those_of_the_ratings(cls):
    R = ratings()
    model = cls(3, random_state=0, max_iter=500, tol=1e-4).fit(R)
    assert certus.certify(model, R).met
    caught(changed(model, users_=model.users_[::-1]), R)
    caught(changed(model, items_=np.zeros_like(model.items_)), R)
    caught(changed(model, _seen_items=np.roll(model._seen_items, 1)), R)
    for name in ("user_factors_", "item_factors_"):
        caught(changed(model, **{name: getattr(model, name)[:-1]}), R)
        caught(changed(model, **{name: getattr(model, name)[0]}), R)


# -- non-negative factors and vectors ---------------------------------------------


def test_a_factorisation_without_components_left():
    Z = np.abs(X)
    model = theirs.NMF(2, alpha_W=10.0, l1_ratio=1.0, tol=1e-4)
    model.components_, model.reconstruction_err_ = np.zeros((2, 5)), 1.0
    found = certus.certify(model, Z)
    assert (
        max(found[f"{name}_gap"].value for name in ("components", "weights")) < 1e-300
    )


DOCUMENTS = ["the cat sat on the mat", "a dog ran up the hill", "cat and dog"] * 20


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_without_numbers_are_refused(bad):
    model = GloVe(2, solver="als", min_count=1, random_state=0).fit(DOCUMENTS)
    assert certus.certify(model, DOCUMENTS).met
    for name in ("word_biases_", "context_biases_", "word_factors_"):
        caught(changed(model, **{name: put(getattr(model, name), 0, bad)}), DOCUMENTS)
        caught(changed(model, **{name: getattr(model, name)[:-1]}), DOCUMENTS)
    model = FastTextVectors(2, min_count=1, max_iter=1, random_state=0).fit(DOCUMENTS)
    table = put(model.subword_vectors_, 0, bad).astype(np.float32)
    caught(changed(model, subword_vectors_=table), DOCUMENTS)


@pytest.mark.parametrize(
    "model",
    [
        Cooccurrence(min_count=1),
        GloVe(2, min_count=1, random_state=0),
        SkipGram(2, min_count=1, max_iter=1, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_counts_and_words_in_another_order(model):
    model = model.fit(DOCUMENTS)
    assert certus.certify(model, DOCUMENTS)["word_counts"].met
    caught(changed(model, counts_=model.counts_ + 1), DOCUMENTS)
    caught(changed(model, counts_=model.counts_[:-1]), DOCUMENTS)
    words = [*model.vocabulary_[1:], model.vocabulary_[0]]
    caught(changed(model, vocabulary_=words), DOCUMENTS)


def test_a_text_classifier_of_another_shape():
    y = np.arange(len(DOCUMENTS)) % 3
    model = FastTextClassifier(2, max_iter=1, random_state=0).fit(DOCUMENTS, y)
    for name in ("vectors_", "coef_"):
        caught(changed(model, **{name: getattr(model, name)[:-1]}), DOCUMENTS, y)
        caught(changed(model, **{name: getattr(model, name)[0]}), DOCUMENTS, y)
