"""Forged components, swapped data, senseless input: seen, or refused in a sentence."""

import copy

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits

import certus
from certus.certificate import Status, Strength
from certus.decomposition import PCA, TruncatedSVD

X = load_digits().data
NAMES = (
    *("components_", "explained_variance_", "explained_variance_ratio_"),
    "singular_values_",
)


def forged(model, **changes):
    other = copy.deepcopy(model)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def dropped(model, which):
    """A fit that has lost some of its components, in every attribute."""
    kept = np.setdiff1d(np.arange(len(model.components_)), which)
    other = forged(model, **{name: getattr(model, name)[kept] for name in NAMES})
    if hasattr(other, "n_components_"):
        other.n_components_ = len(kept)
    return other


@pytest.mark.parametrize("cls", [PCA, TruncatedSVD])
@pytest.mark.parametrize("level", ["quick", "full"])
def test_one_wrong_direction_is_refuted(cls, level):
    model = cls(5).fit(X)
    rng = np.random.default_rng(0)
    V = model.components_.copy()
    V[2] += 1e-3 * rng.standard_normal(64)
    V[2] /= np.linalg.norm(V[2])
    assert certus.certify(forged(model, components_=V), X, level=level).status == (
        Status.REFUTED
    )


@pytest.mark.parametrize("cls", [PCA, TruncatedSVD])
def test_turned_directions_capture_as_much_and_are_refuted(cls):
    """A rotation within the subspace leaves the captured variance, not the residual."""
    model = cls(5).fit(X)
    c, s = np.cos(0.1), np.sin(0.1)
    V = model.components_.copy()
    V[:2] = np.array([[c, s], [-s, c]]) @ V[:2]
    certificate = certus.certify(forged(model, components_=V), X)
    assert certificate.status is Status.REFUTED
    assert certificate["ritz_residual"].met is False
    assert certificate["orthonormality"].met


@pytest.mark.parametrize("name", ["explained_variance_", "explained_variance_ratio_"])
@pytest.mark.parametrize("cls", [PCA, TruncatedSVD])
def test_forged_variances(cls, name):
    model = cls(5).fit(X)
    wrong = getattr(model, name) * 1.001
    certificate = certus.certify(forged(model, **{name: wrong}), X)
    assert certificate.status is Status.REFUTED
    assert certificate["captured_variance"].met is False
    assert certificate["ritz_residual"].met


def test_forged_singular_values_mean_and_noise():
    model = PCA(5).fit(X)
    for changes in (
        {"singular_values_": model.singular_values_ * 1.0001},
        {"mean_": model.mean_ + 0.01},
        {"noise_variance_": model.noise_variance_ * 1.1},
        {"components_": model.components_ * 1.01},
    ):
        certificate = certus.certify(forged(model, **changes), X)
        assert certificate.status is Status.REFUTED, changes


@pytest.mark.parametrize("cls", [PCA, TruncatedSVD])
@pytest.mark.parametrize("lost", [0, 2])
def test_a_larger_direction_left_out_is_seen(cls, lost):
    rng = np.random.default_rng(0)
    scales = np.concatenate([[30, 25, 20, 15, 10, 6], np.linspace(2, 1, 194)])
    Z = rng.standard_normal((600, 200)) * scales
    other = dropped(cls(6).fit(Z), [lost])
    if cls is PCA:  # a consistent forger would restate the noise as well
        left = Z.var(axis=0, ddof=1).sum() - other.explained_variance_.sum()
        other.noise_variance_ = left / (200 - 5)
    quick = certus.certify(other, Z)
    assert quick["ritz_residual"].met and quick["captured_variance"].met
    assert quick["largest"].met is False and quick["largest"].value > 1
    assert quick.status is Status.REFUTED
    full = certus.certify(other, Z, level="full")
    assert full.status is Status.REFUTED
    values = np.linalg.svd(Z - Z.mean(axis=0) if cls is PCA else Z, compute_uv=False)
    missing = (values[lost] ** 2 - values[5] ** 2) / np.sum(values**2)
    assert full["eckart_young"].met is False
    assert full["eckart_young"].value == pytest.approx(missing, rel=1e-8)
    # The probe's number is a lower bound of a variance that exists.
    assert quick["largest"].value <= (values[lost] / values[5]) ** 2 + 1e-9


def test_narrow_data_are_settled_at_once():
    other = dropped(TruncatedSVD(6).fit(X), [5, 0])
    quick = certus.certify(other, X)
    assert quick["eckart_young"].met is False and quick.status is Status.REFUTED


def test_a_probe_that_misses_does_not_claim_proof():
    """A direction barely larger, among many: only the whole spectrum tells."""
    rng = np.random.default_rng(1)
    A = np.linalg.qr(rng.standard_normal((500, 300)))[0]
    Z = (A - A.mean(axis=0)) * np.linspace(1.1, 1.0, 300)
    model = PCA(4).fit(Z)
    other = dropped(model, [2])
    left = Z.var(axis=0, ddof=1).sum() - other.explained_variance_.sum()
    other.noise_variance_ = left / (300 - 3)
    quick = certus.certify(other, Z)
    assert quick["largest"].strength is Strength.MEASURED
    assert "not proved" in quick["largest"].detail
    full = certus.certify(other, Z, level="full")
    assert full["eckart_young"].met is False and full.status is Status.REFUTED


def test_other_rows_do_not_reveal_it():
    model = PCA(5).fit(X)
    certificate = certus.certify(model, X[::2])
    assert certificate.met is False
    assert "not those of the fit" in certificate[certificate.primary].notes[1]
    with pytest.raises(ValueError, match="columns"):
        certus.certify(model, X[:, :10])
    with pytest.raises(ValueError, match="sample_weight"):
        certus.certify(model, X, sample_weight=np.ones(len(X)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("cls", [PCA, TruncatedSVD])
def test_missing_values_are_refused(cls, bad):
    for form in (np.array, sparse.csr_matrix):
        Z = X[:50].copy()
        Z[3, 4] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity|inf"):
            cls(2).fit(form(Z))


def test_too_few_rows_and_columns():
    with pytest.raises(ValueError, match="1 sample"):
        PCA().fit(X[:1])
    one = TruncatedSVD(1).fit(X[:1])
    assert one.singular_values_[0] == pytest.approx(np.linalg.norm(X[0]))
    with pytest.raises(ValueError, match="0 sample"):
        PCA().fit(X[:0])
    with pytest.raises(ValueError, match="1 feature"):
        TruncatedSVD(1).fit(X[:, :1])
    column = PCA().fit(X[:, 20:21])
    assert column.components_ == 1.0
    two = PCA().fit(X[:2])
    assert two.components_.shape == (2, 64) and two.certificate_.met


def test_cells_out_of_range():
    Z = np.random.default_rng(0).standard_normal((20, 5)) * 1e200
    model = PCA(2).fit(Z)
    small = PCA(2).fit(Z / 1e200)
    np.testing.assert_allclose(model.components_, small.components_, atol=1e-12)
    np.testing.assert_allclose(model.singular_values_, small.singular_values_ * 1e200)
    still = PCA(2).fit(np.full((20, 5), 1.7e308))
    assert still.certificate_.met and np.all(still.singular_values_ == 0)
    with pytest.raises(ValueError, match="too large for float64"):
        PCA(2).fit(np.where(np.arange(20)[:, None] % 2, 1.7e308, -1.7e308) * np.ones(5))
    wild = Z.copy() / 1e200
    wild[5, 3] = 1e300  # one cell among ordinary ones
    try:
        found = PCA(2).fit(wild)
    except ValueError as error:
        assert "range" in str(error)
    else:
        assert found.certificate_.met


@pytest.mark.parametrize(
    "params",
    [
        {"n_components": -1},
        {"n_components": 0.0},
        {"n_components": 2.0},
        {"n_components": "all"},
        {"n_components": [2]},
        {"tol": -1.0},
        {"iterated_power": -1},
        {"iterated_power": "many"},
        {"n_oversamples": 0},
        {"power_iteration_normalizer": "qr"},
        {"svd_solver": "lapack"},
        {"max_time": -1.0},
    ],
)
def test_parameters_out_of_range(params):
    with pytest.raises((ValueError, TypeError), match=next(iter(params))):
        PCA(**params).fit(X)


def test_parameters_of_truncated_svd():
    for params in (
        {"n_components": 0},
        {"n_components": 65},
        {"n_components": 2.5},
        {"algorithm": "lapack"},
        {"n_iter": -1},
        {"tol": np.nan},
    ):
        with pytest.raises((ValueError, TypeError), match=next(iter(params))):
            TruncatedSVD(**params).fit(X)


def test_no_density_without_variance():
    model = PCA().fit(X[:10])
    with pytest.raises(ValueError, match="Keep fewer components"):
        model.score(X)
    with pytest.raises(ValueError, match="Keep fewer components"):
        model.get_precision()


def test_damaged_models_are_refused_with_a_message():
    model = PCA(3).fit(X)
    for changes in (
        {"components_": np.full((3, 64), np.nan)},
        {"singular_values_": model.singular_values_[:2]},
        {"mean_": np.full(64, np.inf)},
        {"mean_": np.zeros(3)},
    ):
        with pytest.raises(ValueError, match="Fit it again"):
            certus.certify(forged(model, **changes), X)
    lost = forged(model, explained_variance_=model.explained_variance_[:2])
    assert certus.certify(lost, X).status is Status.REFUTED
