"""PCA on data whose singular values and directions are known by construction."""

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multivariate_normal
from threadpoolctl import threadpool_limits

from certus import certify
from certus.certificate import Status
from certus.decomposition import PCA
from certus.decomposition.pca import _minka
from certus.verify import moments

SOLVERS = ["auto", "full", "covariance_eigh", "arpack", "randomized"]


def constructed(n, d, values, mean=0.0, seed=0):
    """X = 1m + U diag(values) V with U orthonormal and orthogonal to the ones."""
    rng = np.random.default_rng(seed)
    r = len(values)
    U = rng.standard_normal((n, r + 1))
    U[:, 0] = 1.0
    U = np.linalg.qr(U)[0][:, 1:]
    V = np.linalg.qr(rng.standard_normal((d, r)))[0].T
    V *= np.sign(V[np.arange(r), np.abs(V).argmax(axis=1)])[:, None]
    means = mean * np.linspace(0.5, 1.0, d)
    return (U * values) @ V + means, V, means


def angle(A, B):
    """Sine of the largest angle between the spans of orthonormal rows."""
    return np.linalg.norm(B - (B @ A.T) @ A, 2)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(300, 40), (40, 300), (100, 99)])
def test_known_components_are_found(solver, shape):
    values = np.array([50.0, 30.0, 20.0, 7.0, 2.0])
    X, V, means = constructed(*shape, values, mean=3.0)
    model = PCA(3, svd_solver=solver, random_state=0).fit(X)
    np.testing.assert_allclose(model.singular_values_, values[:3], rtol=1e-12)
    np.testing.assert_allclose(model.components_, V[:3], atol=1e-11)
    np.testing.assert_allclose(model.mean_, means, rtol=1e-12)
    variances = values**2 / (shape[0] - 1)
    np.testing.assert_allclose(model.explained_variance_, variances[:3], rtol=1e-12)
    share = variances[:3] / variances.sum()
    np.testing.assert_allclose(model.explained_variance_ratio_, share, rtol=1e-12)
    left = variances[3:].sum() / (min(shape) - 3)
    assert model.noise_variance_ == pytest.approx(left, rel=1e-10)
    assert model.certificate_.met


@pytest.mark.parametrize("shape", [(1400, 1100), (1100, 1400)])
def test_lanczos_on_many_rows_and_columns(shape):
    values = np.concatenate([[90.0, 60.0, 59.0, 59.0, 40.0], np.linspace(20, 1, 200)])
    X, V, _ = constructed(*shape, values, mean=100.0)
    model = PCA(5, random_state=0).fit(X)
    assert model.solver_ == "lanczos"
    np.testing.assert_allclose(model.singular_values_, values[:5], rtol=1e-11)
    assert angle(V[:5], model.components_) < 1e-9
    assert len(model.history_["gap"]) > 1
    assert model.history_["gap"][-1] < 1e-10 < model.history_["gap"][0]
    assert model.certificate_.met
    ratio = np.sum(values[:5] ** 2) / np.sum(values**2)
    assert model.explained_variance_ratio_.sum() == pytest.approx(ratio, rel=1e-10)


def test_equal_variances_are_a_subspace():
    X, V, _ = constructed(200, 30, np.array([5.0, 5.0, 5.0, 1.0, 1.0]))
    model = PCA(3).fit(X)
    assert angle(V[:3], model.components_) < 1e-12
    np.testing.assert_allclose(model.singular_values_, 5.0, rtol=1e-12)
    assert model.certificate_.met


@pytest.mark.catalog("LAT-24")
@pytest.mark.parametrize("solver", SOLVERS)
def test_whitened_data_have_covariance_one(solver):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 8)) @ rng.standard_normal((8, 8)) + 10.0
    model = PCA(5, whiten=True, svd_solver=solver, random_state=0).fit(X)
    Z = model.transform(X)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.cov(Z.T), np.eye(5), atol=1e-10)


@pytest.mark.catalog("LAT-24")
def test_centring_leaves_the_components_and_moves_the_mean():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((80, 6)) * np.arange(1, 7)
    shifted = PCA(3).fit(X + np.arange(6.0))
    plain = PCA(3).fit(X - X.mean(axis=0))
    np.testing.assert_allclose(shifted.components_, plain.components_, atol=1e-12)
    np.testing.assert_allclose(plain.mean_, 0.0, atol=1e-15)
    np.testing.assert_allclose(shifted.mean_, X.mean(axis=0) + np.arange(6.0))


@pytest.mark.parametrize("solver", ["auto", "full", "arpack"])
def test_a_huge_offset_costs_no_more_than_its_own_rounding(solver):
    values = np.array([30.0, 20.0, 10.0])
    X, V, _ = constructed(400, 12, values, mean=1e8)
    model = PCA(3, svd_solver=solver, random_state=0).fit(X)
    # Cells of size 1e8 are rounded to 1e-8 themselves.
    np.testing.assert_allclose(model.singular_values_, values, rtol=1e-7)
    np.testing.assert_allclose(model.components_, V, atol=1e-6)
    assert model.certificate_.met
    Z = model.transform(X)
    np.testing.assert_allclose(Z.T @ Z, np.diag(values**2), atol=1e-4)


def test_small_singular_values_are_not_lost():
    """A covariance matrix would lose all below 1e-8 of the largest."""
    values = 10.0 ** -np.arange(0.0, 12.0, 2.0)
    X, V, _ = constructed(300, 20, values)
    model = PCA(6, svd_solver="covariance_eigh").fit(X)
    assert model.solver_ == "full"
    assert "too small" in model.solver_reason_
    np.testing.assert_allclose(model.singular_values_, values, rtol=0, atol=1e-14)
    assert angle(V, model.components_) < 1e-4
    assert model.certificate_.met
    few = PCA(2, svd_solver="covariance_eigh").fit(X)
    assert few.solver_ == "covariance_eigh"


@pytest.mark.parametrize("shape", [(60, 10), (10, 60)])
def test_more_components_than_directions(shape):
    X, _, _ = constructed(*shape, np.array([4.0, 2.0]), mean=1.0)
    model = PCA(6).fit(X)
    np.testing.assert_allclose(model.singular_values_[:2], [4.0, 2.0])
    np.testing.assert_allclose(model.singular_values_[2:], 0.0, atol=1e-13)
    np.testing.assert_allclose(
        model.components_ @ model.components_.T, np.eye(6), atol=1e-12
    )
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X)
    assert model.certificate_.met


def test_constant_columns_and_constant_rows():
    X, V, _ = constructed(50, 4, np.array([3.0, 2.0, 1.0]))
    wide = np.hstack([X, np.full((50, 2), 7.0)])
    model = PCA(3).fit(wide)
    np.testing.assert_allclose(model.components_[:, :4], V, atol=1e-12)
    np.testing.assert_allclose(model.components_[:, 4:], 0.0, atol=1e-15)
    still = PCA(2).fit(np.full((5, 3), 2.0))
    np.testing.assert_array_equal(still.explained_variance_, 0.0)
    np.testing.assert_array_equal(still.explained_variance_ratio_, 0.0)
    assert still.certificate_.met


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e150])
@pytest.mark.parametrize("shape", [(100, 8), (8, 100)])
def test_scale_scales_the_singular_values_alone(scale, shape):
    X, V, _ = constructed(*shape, np.array([5.0, 3.0, 1.0]), mean=2.0)
    model = PCA(2).fit(X * scale)
    np.testing.assert_allclose(model.singular_values_, [5 * scale, 3 * scale])
    np.testing.assert_allclose(model.components_, V[:2], atol=1e-11)
    np.testing.assert_allclose(model.explained_variance_ratio_, [25 / 35, 9 / 35])
    assert model.certificate_.met


def test_permuted_rows_and_columns():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((90, 7)) * np.arange(1, 8)
    rows, columns = rng.permutation(90), rng.permutation(7)
    model, other = PCA(4).fit(X), PCA(4).fit(X[rows][:, columns])
    np.testing.assert_allclose(
        np.abs(other.components_), np.abs(model.components_[:, columns]), atol=1e-11
    )
    np.testing.assert_allclose(other.explained_variance_, model.explained_variance_)


@pytest.mark.parametrize("solver", SOLVERS)
def test_float32_stays_float32_and_close(solver):
    values = np.array([50.0, 30.0, 20.0, 7.0, 2.0])
    X, V, _ = constructed(3000, 40, values, mean=3.0)
    model = PCA(3, svd_solver=solver, random_state=0).fit(X.astype(np.float32))
    for name in ("components_", "explained_variance_", "mean_", "singular_values_"):
        assert getattr(model, name).dtype == np.float32
    assert model.noise_variance_.dtype == np.float32
    assert model.transform(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(model.singular_values_, values[:3], rtol=2e-6)
    np.testing.assert_allclose(model.components_, V[:3], atol=2e-6)
    assert model.certificate_.met


def test_small_variances_in_float32_are_found_in_float64():
    values = np.array([1.0, 1e-3])
    X, _, _ = constructed(400, 10, values)
    model = PCA(2).fit(X.astype(np.float32))
    np.testing.assert_allclose(model.singular_values_, values, rtol=1e-4)


def test_one_thread_or_two():
    rng = np.random.default_rng(3)
    for shape, k in (((20_000, 60), 5), ((1200, 1050), 4)):
        X = rng.standard_normal(shape) * np.linspace(3, 1, shape[1])
        found = []
        for threads in (1, 2, 2):
            with threadpool_limits(threads):
                found.append(PCA(k, random_state=0).fit(X))
        one, two, again = found
        assert one.n_iter_ == two.n_iter_
        np.testing.assert_allclose(
            one.explained_variance_, two.explained_variance_, rtol=1e-10
        )
        np.testing.assert_allclose(one.components_, two.components_, atol=1e-8)
        np.testing.assert_array_equal(two.components_, again.components_)


def test_sparse_rows_are_centred_without_being_filled():
    S = sparse.random(1200, 1050, 0.02, "csr", random_state=0)
    S.data += 1.0
    dense = S.toarray()
    centred = dense - dense.mean(axis=0)
    _, values, V = np.linalg.svd(centred, full_matrices=False)
    for form in (S, S.tocsc(), sparse.csr_array(S)):
        model = PCA(3, random_state=0).fit(form)
        np.testing.assert_allclose(model.singular_values_, values[:3], rtol=1e-9)
        assert angle(V[:3], model.components_) < 1e-6
        assert model.certificate_.met
    np.testing.assert_allclose(
        model.transform(S), centred @ model.components_.T, atol=1e-10
    )
    small = PCA(2, svd_solver="covariance_eigh").fit(S[:, :30])
    some = dense[:, :30] - dense[:, :30].mean(axis=0)
    expected = np.linalg.svd(some, compute_uv=False)[:2]
    np.testing.assert_allclose(small.singular_values_, expected, rtol=1e-12)


# -- the probabilistic model --------------------------------------------------------


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("k", [0, 3, 6])
def test_density_covariance_and_precision(k, whiten):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((200, 6)) @ rng.standard_normal((6, 6)) + 5.0
    model = PCA(k, whiten=whiten).fit(X)
    C = model.get_covariance()
    if k == 6:
        np.testing.assert_allclose(C, np.cov(X.T), atol=1e-12)
    assert np.trace(C) == pytest.approx(np.trace(np.cov(X.T)))
    np.testing.assert_allclose(model.get_precision() @ C, np.eye(6), atol=1e-10)
    expected = multivariate_normal(X.mean(axis=0), C).logpdf(X)
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-10)
    assert model.score(X) == pytest.approx(expected.mean())


def test_the_likelihood_is_highest_at_the_principal_subspace():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((300, 5)) * [5, 3, 1, 1, 1]
    model = PCA(2).fit(X)
    best = model.score(X)
    for _ in range(10):
        turn = np.linalg.qr(np.eye(5) + 0.1 * rng.standard_normal((5, 5)))[0]
        model.components_ = model.components_ @ turn
        assert model.score(X) < best


# -- how many -----------------------------------------------------------------------


def test_a_share_of_the_variance():
    values = np.sqrt(np.array([5.0, 3.0, 1.0, 1.0]))
    X, _, _ = constructed(60, 9, values)
    assert PCA(0.45).fit(X).n_components_ == 1
    assert PCA(0.55).fit(X).n_components_ == 2
    assert PCA(0.85).fit(X).n_components_ == 3
    assert PCA(0.95).fit(X).n_components_ == 4


def test_minka_finds_the_true_dimension():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((3000, 4)) @ rng.standard_normal((4, 12)) * 3
    X += rng.standard_normal(X.shape)
    assert PCA("mle").fit(X).n_components_ == 4
    assert _minka(np.array([4.0, 1.0, 1.0, 1.0]), 1000) == 1


def test_everything_comes_back_from_all_components():
    rng = np.random.default_rng(7)
    for shape in ((40, 7), (7, 40), (12, 12)):
        X = rng.standard_normal(shape) + 2
        for whiten in (False, True):
            model = PCA(whiten=whiten).fit(X)
            assert model.n_components_ == min(shape)
            np.testing.assert_allclose(
                model.inverse_transform(model.transform(X)), X, atol=1e-9
            )


@pytest.mark.parametrize("steps", [0, moments.STEPS])
def test_a_direction_that_was_left_out_is_found_beyond_the_whole_spectrum(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More columns than are decomposed at level "quick": probes have to find it, also
    # where the data are too many for a second step.
    monkeypatch.setattr(moments, "STEPS", steps)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 200))
    X[:, 100:] += 30 * rng.normal(size=(500, 1))
    model = PCA(n_components=3, svd_solver="full").fit(X)
    assert certify(model, X)["largest"].met is not False
    model.n_components = model.n_components_ = 2
    for name in (
        *("components_", "singular_values_", "explained_variance_"),
        "explained_variance_ratio_",
    ):
        setattr(model, name, getattr(model, name)[1:])
    found = certify(model, X)
    assert found["largest"].met is False and found.status is not Status.SOLVED
