"""Attributes that no fit leaves: certify names them, and says to fit again."""

import copy

import numpy as np
import pytest
from sklearn import cluster, decomposition, mixture

import certus
from certus.cluster import KMeans
from certus.decomposition import PCA, FactorAnalysis, ProbabilisticPCA, TruncatedSVD
from certus.mixture import GaussianMixture

X = np.random.default_rng(0).normal(size=(60, 4)) * [1, 2, 3, 4]
MIXED = ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_")
VECTORS = ("components_", "singular_values_")
SPREADS = ("explained_variance_", "explained_variance_ratio_")
MODELS = [
    (KMeans(2, random_state=0), ("cluster_centers_",)),
    (cluster.KMeans(2, random_state=0), ("cluster_centers_",)),
    (GaussianMixture(2, random_state=0), MIXED),
    (mixture.GaussianMixture(2, random_state=0, covariance_type="tied"), MIXED),
    (PCA(2), (*VECTORS, "mean_")),
    (decomposition.PCA(2), (*VECTORS, "mean_", "noise_variance_")),
    (TruncatedSVD(2), VECTORS),
    (FactorAnalysis(1), ("components_", "mean_", "noise_variance_")),
    (ProbabilisticPCA(1), ("components_", "mean_", "noise_variance_", "loglike_")),
]
BAD = {
    "nothing": None,
    "text": "abc",
    "texts": np.full((2, 4), "a"),
    "ragged": [[1.0], [1.0, 2.0]],
    "too deep": np.zeros((1, 1, 1, 1)),
}


def forged(model, name, value):
    model = copy.copy(model)
    setattr(model, name, value)
    return model


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(("model", "names"), MODELS, ids=lambda m: str(m)[:24])
def test_faults_are_named(model, names, bad):
    fitted = copy.deepcopy(model).fit(X)
    for name in names:
        with pytest.raises(ValueError, match=f"^{name} of this .*Fit it again"):
            certus.certify(forged(fitted, name, BAD[bad]), X)


@pytest.mark.parametrize("bad", [None, "abc", [[1.0], [1.0, 2.0]]])
@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize("model", [PCA(2), decomposition.TruncatedSVD(2)])
def test_variances_that_are_not_numbers_are_refused(model, name, bad):
    fitted = copy.deepcopy(model).fit(X)
    with pytest.raises(ValueError, match=f"^{name} of this .*Fit it again"):
        certus.certify(forged(fitted, name, bad), X)


@pytest.mark.parametrize("bad", [None, "abc", [1.0, 2.0]])
def test_an_inertia_that_is_not_a_number_is_refused(bad):
    fitted = KMeans(2, random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"^inertia_ of this .*Fit it again"):
        certus.certify(forged(fitted, "inertia_", bad), X)


@pytest.mark.parametrize("bad", [None, "abc", np.full(60, "a"), np.full(60, 0.5)])
def test_invalid_labels_are_refused(bad):
    found = certus.certify(forged(KMeans(2, random_state=0).fit(X), "labels_", bad), X)
    assert found["nearest_centres"].met is False


def test_an_unknown_kind_of_covariance_is_refused():
    fitted = GaussianMixture(2, random_state=0).fit(X)
    found = certus.certify(fitted.set_params(covariance_type="round"), X)
    assert not found.met and "covariance_type='round' is unknown" in str(found)


def test_an_accurate_decomposition_is_not_called_solved():
    text = str(certus.certify(decomposition.PCA(2).fit(X), X))
    assert "accurate   each σ is within" in text
    assert "solved" not in text
