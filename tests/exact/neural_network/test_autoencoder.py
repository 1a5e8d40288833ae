"""The linear autoencoder is trained, and ends in the subspace of PCA."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.optimize import check_grad
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import certus
from certus.base import UncertifiedWarning
from certus.callbacks import Monitor
from certus.certificate import Status, Strength
from certus.decomposition import LinearAutoencoder, autoencoder

SOLVERS = ["alternating", "lbfgs"]


def rows(n=200, d=8, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.linspace(3, 0.5, d) @ rng.normal(size=(d, d))


def leading(X, k):
    values, U = np.linalg.eigh(np.cov(X.T, bias=True))
    return 0.5 * values[: len(values) - k].sum(), U[:, len(values) - k :]


@pytest.mark.catalog("LAT-22", "NN-57")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("k", [1, 3, 7, 8])
def test_encoder_and_decoder_span_the_subspace_of_pca(solver, k):
    X = rows() + 10
    model = LinearAutoencoder(k, solver=solver, random_state=0).fit(X)
    least, U = leading(X, k)
    assert subspace_angles(model.decoder_, U).max() < 1e-4
    assert subspace_angles(model.encoder_.T, U).max() < 1e-4
    np.testing.assert_allclose(model.decoder_ @ model.encoder_, U @ U.T, atol=1e-4)
    assert model.loss_ == pytest.approx(least, abs=1e-10 * X.var(axis=0).sum())
    assert model.certificate_.met
    # The rows come back as PCA gives them, though C and D are nothing like U.
    back = model.inverse_transform(model.transform(X))
    pca = PCA(k).fit(X)
    there = pca.inverse_transform(pca.transform(X))
    np.testing.assert_allclose(back, there, atol=1e-3)
    loss = 0.5 * np.sum((X - back) ** 2) / len(X)
    assert loss == pytest.approx(model.loss_, abs=1e-9)


@pytest.mark.catalog("LAT-22")
def test_any_basis_of_the_code_is_as_good():
    X = rows()
    model = LinearAutoencoder(3, random_state=0).fit(X)
    A = np.random.default_rng(0).normal(size=(3, 3))
    model.encoder_ = A @ model.encoder_
    model.decoder_ = model.decoder_ @ np.linalg.inv(A)
    assert certus.certify(model, X).met


def test_digits():
    """Constant columns and eigenvalues close to each other."""
    X = load_digits().data
    model = LinearAutoencoder(10, random_state=0).fit(X)
    least, U = leading(X, 10)
    assert subspace_angles(model.decoder_, U).max() < 1e-4
    assert model.loss_ == pytest.approx(least, rel=1e-9)


def test_training_starts_far_away_and_never_climbs():
    X = rows()
    for solver in SOLVERS:
        model = LinearAutoencoder(3, solver=solver, random_state=0).fit(X)
        losses = np.array(model.history_["objective"])
        assert losses[0] > 1.05 * losses[-1]
        assert np.all(np.diff(losses) <= 1e-9)
        assert model.n_iter_ == len(losses)


@pytest.mark.catalog("NN-57")
def test_the_gradient_is_that_of_the_notes(monkeypatch):
    """∂C = Dᵀ(DC − I)S and ∂D = (DC − I)SCᵀ, against finite differences."""
    caught = {}

    def catch(value, first, **options):
        caught["value"], caught["first"] = value, first
        raise KeyboardInterrupt

    monkeypatch.setattr(autoencoder, "minimize", catch)
    X = rows(d=5)
    with pytest.raises(KeyboardInterrupt):
        LinearAutoencoder(2, solver="lbfgs", random_state=0).fit(X)
    value, first = caught["value"], caught["first"]
    off = check_grad(lambda p: value(p)[0], lambda p: value(p)[1], first)
    assert off < 1e-5
    C, D = first[:10].reshape(2, 5), first[10:].reshape(5, 2)
    Xc = (X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).mean())
    known = 0.5 * np.sum((Xc - Xc @ C.T @ D.T) ** 2) / len(X)
    assert value(first)[0] == pytest.approx(known)
    off = Xc @ C.T @ D.T - Xc  # y − x, in rows
    by_C, by_D = D.T @ off.T @ Xc, off.T @ Xc @ C.T
    both = np.concatenate((by_C.ravel(), by_D.ravel())) / len(X)
    np.testing.assert_allclose(value(first)[1], both, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["encoder_", "decoder_", "mean_"])
def test_changed_parameters_are_refuted(name):
    X = rows()
    model = LinearAutoencoder(3, random_state=0).fit(X)
    value = getattr(model, name).copy()
    value.flat[0] += 0.01
    setattr(model, name, value)
    assert certus.certify(model, X).status is Status.REFUTED
    value.flat[0] = np.nan
    assert certus.certify(model, X).met is False


def test_another_invariant_subspace_is_refuted():
    """There the gradient is zero as well."""
    X = rows()
    model = LinearAutoencoder(2, random_state=0).fit(X)
    U = np.linalg.eigh(np.cov(X.T, bias=True))[1]
    model.decoder_ = U[:, [-1, -3]]
    model.encoder_ = model.decoder_.T
    found = certus.certify(model, X)
    assert found.status is Status.REFUTED
    assert found["gradient_norm"].value < 1e-12


def test_too_few_steps_are_reported_and_continued():
    X = rows()
    for solver in SOLVERS:
        model = LinearAutoencoder(
            3, solver=solver, max_iter=2, warm_start=True, random_state=0
        )
        with pytest.warns(UncertifiedWarning, match="of its minimum"):
            model.fit(X)
        assert model.certificate_.status is Status.MAX_ITER
        before = model.loss_
        model.set_params(max_iter=10_000).fit(X)
        assert model.history_["objective"][0] <= before
        assert model.certificate_.met


def test_interrupts_leave_a_model(monkeypatch):
    plain, calls = Monitor.step, []

    def interrupted(self, *args):
        found = plain(self, *args)
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Monitor, "step", interrupted)
    for solver in SOLVERS:
        calls.clear()
        model = LinearAutoencoder(2, solver=solver, random_state=0)
        with pytest.raises(KeyboardInterrupt):
            model.fit(rows())
        assert model.certificate_.status is Status.INTERRUPTED
        assert model.n_iter_ == 3


def test_beyond_two_thousand_rows_and_columns_the_optimum_is_refused(monkeypatch):
    from certus.verify import linear_networks

    monkeypatch.setattr(linear_networks, "EIGEN", 5)
    monkeypatch.setattr(autoencoder, "EIGEN", 5)
    X = rows()
    model = LinearAutoencoder(3, random_state=0).fit(X)
    assert model.certificate_[model.certificate_.primary].strength is Strength.REFUSED
    assert model.certificate_.status is Status.UNDECIDED
    assert certus.certify(model, X)["gradient_norm"].value < 1e-4
    assert subspace_angles(model.decoder_, leading(X, 3)[1]).max() < 1e-4


def test_the_problem_is_what_the_parameters_say():
    X = rows()
    model = LinearAutoencoder(3, random_state=0).fit(X)
    assert model.set_params(n_components=4) is model
    found = certus.certify(model, X)
    assert found.met is False
    assert found.primary == "parts"
    with pytest.raises(ValueError, match="takes no sample_weight"):
        certus.certify(model, X, sample_weight=np.ones(len(X)))


def test_rounding_is_added_and_may_decide():
    X = rows()
    model = LinearAutoencoder(3, tol=1e-10, random_state=0).fit(X)
    claim = model.certificate_["loss_excess"]
    assert 0 < claim.allowance < claim.value <= 1e-10
    model.decoder_ = leading(X, 3)[1]
    model.encoder_ = model.decoder_.T
    found = certus.certify(model.set_params(tol=1e-16), X)
    assert found.met is None
    assert found.status is Status.UNDECIDED
    assert "rounding errors alone" in found["loss_excess"].detail


def test_a_stated_loss_is_checked():
    X = rows()
    model = LinearAutoencoder(3, random_state=0).fit(X)
    model.loss_ *= 1 + 1e-6
    assert certus.certify(model, X)["reported_loss"].met is False


@pytest.mark.parametrize("name", ["encoder_", "decoder_", "mean_"])
@pytest.mark.parametrize("value", [None, "three", np.ones(7), np.ones((2, 2, 2))])
def test_attributes_that_no_fit_sets_are_named(name, value):
    X = rows()
    model = LinearAutoencoder(3, random_state=0).fit(X)
    setattr(model, name, value)
    with pytest.raises(ValueError, match=f"^{name} of this .* Fit it again"):
        certus.certify(model, X)
