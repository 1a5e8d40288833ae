"""PCA and TruncatedSVD beside scikit-learn's, and scikit-learn's own certified."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import decomposition as theirs
from sklearn.datasets import load_digits, load_iris, load_wine

import certus
from certus import decomposition
from certus.certificate import Strength

ATTRIBUTES = (
    *("components_", "explained_variance_", "explained_variance_ratio_"),
    *("singular_values_", "mean_", "noise_variance_"),
)
DIGITS, WINE = load_digits().data, load_wine().data
WIDE = np.random.default_rng(0).standard_normal((30, 200)) * np.linspace(3, 1, 200)


def compare(ours, other, names=ATTRIBUTES, tol=1e-9):
    for name in names:
        a, b = getattr(ours, name), getattr(other, name)
        assert np.shape(a) == np.shape(b), name
        scale = max(1e-300, float(np.abs(b).max(initial=0.0)))
        np.testing.assert_allclose(a, b, rtol=0, atol=tol * scale, err_msg=name)


@pytest.mark.parametrize("solver", ["auto", "full", "covariance_eigh", "arpack"])
@pytest.mark.parametrize(
    "X", [DIGITS, load_wine().data, WIDE], ids=["tall", "wine", "wide"]
)
@pytest.mark.parametrize("k", [1, 5])
def test_every_solver_leaves_the_same_attributes(X, solver, k):
    theirs_solver = "full" if solver == "auto" else solver
    other = theirs.PCA(k, svd_solver=theirs_solver, random_state=0).fit(X)
    ours = decomposition.PCA(k, svd_solver=solver, random_state=0).fit(X)
    wide = X is WIDE and solver == "covariance_eigh"  # there they count null variances
    compare(ours, other, ATTRIBUTES[:5] if wide else ATTRIBUTES)
    assert ours.n_components_ == other.n_components_
    assert ours.n_samples_ == other.n_samples_
    np.testing.assert_allclose(ours.transform(X), other.transform(X), atol=1e-8)
    Z = other.transform(X)
    np.testing.assert_allclose(
        ours.inverse_transform(Z), other.inverse_transform(Z), atol=1e-10
    )
    np.testing.assert_allclose(ours.fit_transform(X), other.fit_transform(X), atol=1e-8)
    np.testing.assert_array_equal(
        ours.get_feature_names_out(), other.get_feature_names_out()
    )


def test_randomised_iterations_come_as_close_as_those_of_scikit_learn():
    exact = theirs.PCA(5, svd_solver="full").fit(DIGITS).explained_variance_
    ours = decomposition.PCA(
        5, svd_solver="randomized", iterated_power=4, random_state=0
    )
    other = theirs.PCA(5, svd_solver="randomized", iterated_power=4, random_state=0)
    gap = np.abs(ours.fit(DIGITS).explained_variance_ - exact).max()
    assert gap <= 2 * np.abs(other.fit(DIGITS).explained_variance_ - exact).max() + 1e-6
    assert ours.solver_ == "randomized"
    until = decomposition.PCA(5, svd_solver="randomized", random_state=0).fit(DIGITS)
    np.testing.assert_allclose(until.explained_variance_, exact, rtol=1e-12)


@pytest.mark.parametrize("wanted", [None, 0, 0.3, 0.9, 0.999, "mle", 3])
def test_how_many_components(wanted):
    X = WINE
    ours, other = decomposition.PCA(wanted).fit(X), theirs.PCA(wanted).fit(X)
    assert ours.n_components_ == other.n_components_
    compare(ours, other, tol=1e-7)


def test_densities():
    X = load_iris().data
    for k in (1, 2, 4):
        ours, other = decomposition.PCA(k).fit(X), theirs.PCA(k).fit(X)
        np.testing.assert_allclose(ours.score_samples(X), other.score_samples(X))
        np.testing.assert_allclose(ours.get_covariance(), other.get_covariance())
        np.testing.assert_allclose(ours.get_precision(), other.get_precision())
        assert ours.score(X) == pytest.approx(other.score(X))


def test_whitening():
    X = WINE
    ours = decomposition.PCA(4, whiten=True).fit(X)
    other = theirs.PCA(4, whiten=True).fit(X)
    np.testing.assert_allclose(ours.transform(X), other.transform(X), atol=1e-9)
    Z = other.transform(X)
    np.testing.assert_allclose(ours.inverse_transform(Z), other.inverse_transform(Z))


@pytest.mark.parametrize("solver", ["auto", "arpack", "covariance_eigh"])
def test_sparse_rows(solver):
    S = sparse.random(300, 40, 0.2, "csr", random_state=0)
    ours = decomposition.PCA(4, svd_solver=solver, random_state=0).fit(S)
    other = theirs.PCA(4, svd_solver="arpack", random_state=0).fit(S)
    compare(ours, other, tol=1e-8)
    np.testing.assert_allclose(ours.transform(S), other.transform(S), atol=1e-8)


@pytest.mark.parametrize("options", [{"svd_solver": "arpack", "n_components": 4}])
def test_both_refuse_the_same(options):
    X = np.random.default_rng(0).standard_normal((20, 4))
    wide = X.T.copy()
    cases = [
        (options, X),
        ({"n_components": 5}, X),
        ({"n_components": 1.5}, X),
        ({"n_components": "mle"}, wide),
        ({"n_components": "mle", "svd_solver": "arpack"}, X),
        ({"svd_solver": "lanczos"}, X),
    ]
    for params, data in cases:
        for library in (decomposition, theirs):
            with pytest.raises(ValueError):
                library.PCA(**params).fit(data)
    for library in (decomposition, theirs):
        with pytest.raises(TypeError, match="sparse"):
            library.PCA(2, svd_solver="full").fit(sparse.csr_matrix(X))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
@pytest.mark.parametrize("algorithm", ["auto", "arpack"])
def test_truncated_svd(form, algorithm):
    X = form(DIGITS)
    ours = decomposition.TruncatedSVD(6, algorithm=algorithm, random_state=0).fit(X)
    other = theirs.TruncatedSVD(6, algorithm="arpack", random_state=0).fit(X)
    compare(ours, other, ATTRIBUTES[:4])
    np.testing.assert_allclose(ours.transform(X), other.transform(X), atol=1e-8)
    Z = other.transform(X)
    np.testing.assert_allclose(
        ours.inverse_transform(Z), other.inverse_transform(Z), atol=1e-10
    )


def test_truncated_svd_with_fewer_rows_than_components():
    X = np.random.default_rng(0).standard_normal((4, 9))
    ours = decomposition.TruncatedSVD(6).fit(X)
    other = theirs.TruncatedSVD(6).fit(X)
    assert ours.components_.shape == other.components_.shape == (4, 9)
    np.testing.assert_allclose(ours.singular_values_, other.singular_values_)


@pytest.mark.parametrize(
    "model", [decomposition.PCA(3), decomposition.TruncatedSVD(3)], ids=str
)
def test_handed_to_scikit_learn(model):
    model = model.fit(DIGITS)
    other = model.to_sklearn()
    assert type(other).__module__.startswith("sklearn.")
    np.testing.assert_allclose(other.transform(DIGITS), model.transform(DIGITS))
    Z = model.transform(DIGITS)
    np.testing.assert_allclose(other.inverse_transform(Z), model.inverse_transform(Z))
    other.fit(DIGITS)  # its parameters are scikit-learn's


def test_saved_and_loaded(tmp_path):
    for model in (decomposition.PCA(3, whiten=True), decomposition.TruncatedSVD(3)):
        model.fit(DIGITS)
        back = certus.load(model.save(tmp_path / "m.certus"))
        assert set(vars(back)) == set(vars(model))
        np.testing.assert_array_equal(back.transform(DIGITS), model.transform(DIGITS))
        checked = certus.certify(back, DIGITS, level="full")
        assert checked.met and checked["eckart_young"].value < 1e-11


# -- scikit-learn's own, certified ----------------------------------------------------


@pytest.mark.parametrize("solver", ["full", "covariance_eigh", "arpack"])
@pytest.mark.parametrize("level", ["quick", "full"])
def test_models_of_scikit_learn_are_certified(solver, level):
    model = theirs.PCA(5, svd_solver=solver, random_state=0).fit(DIGITS)
    certificate = certus.certify(model, DIGITS, level=level)
    assert certificate.met and certificate.status == "solved"
    assert certificate["ritz_residual"].value < 1e-9
    assert all(claim.met is not False for claim in certificate.claims)
    assert certificate["eckart_young"].value < 1e-11
    assert certificate.primary == "ritz_residual"


def test_that_directions_are_the_largest_is_measured_on_wide_data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 300)) * np.linspace(9, 1, 300)
    model = theirs.PCA(5, svd_solver="full").fit(X)
    claim = certus.certify(model, X)["largest"]
    assert claim.strength is Strength.MEASURED and claim.met is None
    A = X - X.mean(axis=0)
    values = np.linalg.svd(A, compute_uv=False)
    assert 0.3 < claim.value <= (values[5] / values[4]) ** 2 + 1e-12
    assert certus.certify(model, X, level="full")["eckart_young"].met


def test_randomised_answers_of_scikit_learn_are_measured():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 300)) * np.linspace(2, 1, 300)
    loose = theirs.PCA(5, svd_solver="randomized", iterated_power=0, random_state=0)
    certificate = certus.certify(loose.fit(X), X)
    assert certificate.met is False
    assert "certus.decomposition.PCA" in certificate[certificate.primary].fix
    full = certus.certify(loose, X, level="full")["eckart_young"]
    A = X - X.mean(axis=0)
    values = np.linalg.svd(A, compute_uv=False)
    lost = np.sum(values[:5] ** 2) - np.sum((A @ loose.components_.T) ** 2)
    assert full.value == pytest.approx(lost / np.sum(values**2), rel=1e-6)
    assert full.met is False


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_the_truncated_svd_of_scikit_learn_is_judged(form):
    X = form(DIGITS)
    model = theirs.TruncatedSVD(5, algorithm="arpack", random_state=0).fit(X)
    assert certus.certify(model, X).met
    assert certus.certify(model, X, level="full").met
    loose = theirs.TruncatedSVD(20, n_iter=0, n_oversamples=1, random_state=0).fit(X)
    assert certus.certify(loose, X).met is False


def test_float32_models_of_scikit_learn_are_judged():
    X = DIGITS.astype(np.float32)
    model = theirs.PCA(5, svd_solver="full").fit(X)
    assert certus.certify(model, X).met
    assert certus.certify(model, X, level="full").met
