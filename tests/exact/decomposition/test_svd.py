"""Truncated SVD: Eckart and Young, known spectra, sparse data, interrupted runs."""

import numpy as np
import pytest
from scipy import sparse

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status, Strength
from certus.decomposition import TruncatedSVD, spectra
from certus.decomposition.operator import Operator


def sparse_rows(n=1050, d=1300, density=0.015, seed=0):
    S = sparse.random(n, d, density, "csr", random_state=seed)
    S.data += 0.5
    return S


def low_rank(n, d, values, seed=0):
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((n, len(values))))[0]
    V = np.linalg.qr(rng.standard_normal((d, len(values))))[0]
    return (U * values) @ V.T, V.T


@pytest.mark.parametrize("n_iter", [0, 1, 5])
@pytest.mark.parametrize("shape", [(60, 25), (25, 60)])
def test_a_fixed_number_of_passes_states_what_its_components_capture(n_iter, shape):
    X = np.random.default_rng(0).standard_normal(shape)  # flat: few passes stay far off
    model = TruncatedSVD(4, algorithm="randomized", n_iter=n_iter, random_state=0)
    Z = model.fit_transform(X)
    np.testing.assert_allclose(Z.T @ Z, np.diag(model.singular_values_**2), atol=1e-10)
    np.testing.assert_allclose(model.explained_variance_, Z.var(axis=0), rtol=1e-10)
    V = model.components_
    np.testing.assert_allclose(V @ V.T, np.eye(4), atol=1e-12)


@pytest.mark.catalog("LAT-23")
@pytest.mark.parametrize("r", [1, 3, 7])
def test_eckart_and_young(r):
    rng = np.random.default_rng(r)
    X = rng.standard_normal((30, 12)) @ np.diag(np.arange(1, 13.0))
    model = TruncatedSVD(r).fit(X)
    best = np.linalg.norm(X - model.inverse_transform(model.transform(X)))
    values = np.linalg.svd(X, compute_uv=False)
    assert best == pytest.approx(np.sqrt(np.sum(values[r:] ** 2)), rel=1e-12)
    for _ in range(50):
        U, V = rng.standard_normal((30, r)), rng.standard_normal((r, 12))
        left = np.linalg.lstsq(V.T, X.T, rcond=None)[0].T  # the best U for this V
        assert np.linalg.norm(X - U @ V) > best
        assert np.linalg.norm(X - left @ V) >= best * (1 - 1e-12)
    near = model.components_ + 1e-2 * rng.standard_normal((r, 12))
    Q = np.linalg.qr(near.T)[0]
    assert np.linalg.norm(X - X @ Q @ Q.T) > best
    claim = certus.certify(model, X, level="full")["eckart_young"]
    assert claim.strength is Strength.PROVED and claim.met
    assert claim.value < 1e-12


@pytest.mark.parametrize("algorithm", ["auto", "arpack", "randomized"])
@pytest.mark.parametrize("shape", [(50, 20), (20, 50)])
def test_known_spectrum(algorithm, shape):
    X, V = low_rank(*shape, np.array([9.0, 5.0, 4.0, 1.0]))
    model = TruncatedSVD(3, algorithm=algorithm, n_iter=30, random_state=0).fit(X)
    np.testing.assert_allclose(model.singular_values_, [9.0, 5.0, 4.0], rtol=1e-10)
    np.testing.assert_allclose(
        np.abs(model.components_ @ V[:3].T), np.eye(3), atol=1e-9
    )
    assert np.all(model.components_.max(axis=1) >= -model.components_.min(axis=1))
    Z = model.transform(X)
    np.testing.assert_allclose(model.explained_variance_, Z.var(axis=0), rtol=1e-9)
    share = Z.var(axis=0) / X.var(axis=0).sum()
    np.testing.assert_allclose(model.explained_variance_ratio_, share, rtol=1e-9)


@pytest.mark.parametrize("transpose", [False, True])
def test_lanczos_on_sparse_rows(transpose):
    S = sparse_rows()
    S = S.T.tocsr() if transpose else S
    values, V = np.linalg.svd(S.toarray(), full_matrices=False)[1:]
    model = TruncatedSVD(10, random_state=0).fit(S)
    assert model.solver_ == "lanczos" and model.certificate_.met
    np.testing.assert_allclose(model.singular_values_, values[:10], rtol=1e-9)
    assert np.sum(model.singular_values_**2) == pytest.approx(
        np.sum(values[:10] ** 2), rel=1e-10
    )
    tight = TruncatedSVD(10, tol=1e-11, random_state=0).fit(S)
    assert tight.n_iter_ > model.n_iter_
    left = tight.components_ - (tight.components_ @ V[:10].T) @ V[:10]
    assert np.linalg.norm(left) < 1e-8
    np.testing.assert_allclose(
        tight.components_ @ tight.components_.T, np.eye(10), atol=1e-11
    )


def test_sparse_data_are_never_filled(monkeypatch):
    S = sparse_rows()

    def refuse(*args, **kwargs):
        raise AssertionError("densified")

    for cls in (sparse.csr_matrix, sparse.csc_matrix):
        monkeypatch.setattr(cls, "toarray", refuse)
        monkeypatch.setattr(cls, "todense", refuse)
    for algorithm in ("auto", "randomized"):
        model = TruncatedSVD(4, algorithm=algorithm, random_state=0).fit(S)
        assert model.transform(S).shape == (1050, 4)


def test_restarts_reach_the_same(monkeypatch):
    S = sparse_rows()
    free = TruncatedSVD(6, tol=1e-9, random_state=0).fit(S)
    monkeypatch.setattr(spectra, "BLOCKS", 4)
    tight = TruncatedSVD(6, tol=1e-9, random_state=0).fit(S)
    assert tight.n_iter_ > free.n_iter_ and tight.certificate_.met
    np.testing.assert_allclose(
        tight.singular_values_, free.singular_values_, rtol=1e-12
    )


@pytest.mark.parametrize("rank", [2, 9])
def test_fewer_directions_than_wanted(rank):
    values = np.linspace(5, 1, rank)
    X, _ = low_rank(1300, 1200, values)
    model = TruncatedSVD(12, random_state=0).fit(X)
    np.testing.assert_allclose(model.singular_values_[:rank], values, rtol=1e-10)
    np.testing.assert_allclose(model.singular_values_[rank:], 0.0, atol=1e-6)
    np.testing.assert_allclose(
        model.components_ @ model.components_.T, np.eye(12), atol=1e-10
    )
    assert model.certificate_.met
    few = TruncatedSVD(12).fit(X[:, :100])
    np.testing.assert_allclose(few.singular_values_[rank:], 0.0, atol=1e-12)


def test_a_multiple_singular_value():
    """More copies than a block has columns."""
    values = np.concatenate([np.full(20, 3.0), np.linspace(1, 0.1, 1100)])
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((1300, 1120)))[0]
    X = Q * values
    model = TruncatedSVD(24, random_state=0).fit(X)
    np.testing.assert_allclose(model.singular_values_[:16], 3.0, rtol=1e-9)
    full = np.linalg.norm(X @ model.components_.T) ** 2
    assert full == pytest.approx(np.sum(values[:24] ** 2), rel=1e-6)


def test_operator_equals_the_dense_matrix():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((700, 30)) + 4
    S = sparse.random(300, 80, 0.1, "csc", random_state=1)
    for given, centre in ((X, True), (X.astype("f"), True), (S, True), (S, False)):
        op = Operator(given, centre)
        A = given.toarray() if sparse.issparse(given) else given.astype(float)
        A = A - A.mean(axis=0) if centre else A
        B, U = rng.standard_normal((A.shape[1], 5)), rng.standard_normal((len(A), 3))
        np.testing.assert_allclose(op.dot(B), A @ B, atol=1e-10)
        np.testing.assert_allclose(op.t_dot(U), A.T @ U, atol=1e-10)
        np.testing.assert_allclose(op.gram(), A.T @ A, atol=1e-9)
        assert op.squares() == pytest.approx(np.sum(A**2), rel=1e-12)
    op = Operator(X, True)
    R = op.triangle()
    np.testing.assert_allclose(R.T @ R, op.gram(), atol=1e-9)
    wide = Operator(np.ascontiguousarray(X.T), True)
    A = X.T - X.T.mean(axis=0)
    np.testing.assert_allclose(wide.gram(), A @ A.T, atol=1e-9)


# -- ended early ----------------------------------------------------------------------


def test_interrupted_and_out_of_time(monkeypatch):
    S = sparse_rows()
    with certus.config_context(on_uncertified="ignore"):
        timed = TruncatedSVD(5, max_time=0.0, random_state=0).fit(S)
    assert timed.certificate_.status is Status.TIME_LIMIT
    assert timed.transform(S).shape == (1050, 5)
    calls = []
    extend = spectra._Basis.extend

    def interrupt(self, block, W):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return extend(self, block, W)

    monkeypatch.setattr(spectra._Basis, "extend", interrupt)
    model = TruncatedSVD(5, tol=1e-12, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(S)
    assert model.certificate_.status is Status.INTERRUPTED
    assert model.certificate_.met is False
    np.testing.assert_allclose(
        model.components_ @ model.components_.T, np.eye(5), atol=1e-10
    )


def test_a_missed_target_is_reported():
    S = sparse_rows()
    with pytest.warns(UncertifiedWarning, match="max_time"):
        TruncatedSVD(5, max_time=0.0, random_state=0).fit(S)


def test_a_fixed_number_of_passes_has_no_target():
    S = sparse_rows()
    model = TruncatedSVD(5, algorithm="randomized", n_iter=1, random_state=0).fit(S)
    claim = model.certificate_["ritz_residual"]
    assert claim.met is None and claim.value > 1e-3
    best = np.sum(np.linalg.svd(S.toarray(), compute_uv=False)[:5] ** 2)
    assert np.sum(model.singular_values_**2) < best
