"""Autoencoders against PCA, formulas of linear networks, and planted faults."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA

from certus import certify, load
from certus.certificate import Strength
from certus.decomposition import LinearAutoencoder
from certus.generative import Autoencoder
from certus.generative.autoencoder import _slopes
from certus.neural_network.modules import Bottleneck

DIGITS = load_digits().data


@pytest.fixture(scope="module")
def sparse() -> Autoencoder:
    """Two of eight entries of a code differ from zero."""
    return Autoencoder(
        n_components=8,
        hidden_layer_sizes=(32,),
        sparsity=0.75,
        max_iter=150,
        random_state=0,
    ).fit(DIGITS[:400])


def test_linear_networks_are_pca() -> None:
    X = load_wine().data
    model = Autoencoder(n_components=3, hidden_layer_sizes=()).fit(X)
    Z = (X - model.loc_) / model.scale_
    pca = PCA(3).fit(Z)
    error = np.square(pca.inverse_transform(pca.transform(Z)) - Z).mean()
    assert -model.score(X) == pytest.approx(error, rel=1e-9)
    assert model.certificate_["gap_to_best"].met
    assert model.certificate_["beside_pca"].value == pytest.approx(0, abs=1e-9)
    other = LinearAutoencoder(n_components=3, random_state=0).fit(Z)
    assert 2 * other.loss_ / 13 == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize("how", [{"noise": 0.8}, {"contraction": 0.64}])
def test_noise_and_contraction_shrink_axes_alike(how: dict[str, float]) -> None:
    """Both have the formula λ/(λ + 0.64); gradient steps do not improve on it."""
    X = load_wine().data
    model = Autoencoder(n_components=2, hidden_layer_sizes=(), **how).fit(X)
    assert model.certificate_["gap_to_best"].met
    Z = (X - model.loc_) / model.scale_
    values, V = np.linalg.eigh(Z.T @ Z / len(Z))
    A = (V[:, -2:] * (values[-2:] / (values[-2:] + 0.64))) @ V[:, -2:].T
    back = (model.inverse_transform(model.transform(X)) - model.loc_) / model.scale_
    np.testing.assert_allclose(back, Z @ A.T, atol=1e-9)
    with torch.no_grad():
        model.network_.decoder.output.weight *= 1.001
    assert certify(model, X)["gap_to_best"].met is False


def test_networks_beat_every_linear_code() -> None:
    """Rows on a circle: one component is enough for a network, not for a line."""
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 1.5 * math.pi, 500)
    X = np.column_stack([np.cos(t), np.sin(t)]) + 0.01 * rng.normal(size=(500, 2))
    model = Autoencoder(
        n_components=1,
        hidden_layer_sizes=(32,),
        learning_rate=1e-2,
        max_iter=500,
        random_state=0,
    ).fit(X)
    claim = model.certificate_["beside_pca"]
    assert claim.strength is Strength.PROVED and claim.value < -0.1
    Z = (X - model.loc_) / model.scale_
    least = np.linalg.eigvalsh(Z.T @ Z / 500)[0] / 2
    assert claim.value == pytest.approx(-model.score(X) - least, abs=1e-9)


def test_a_denoising_code_removes_noise() -> None:
    X, new = DIGITS[:1200], DIGITS[1200:1500]
    fits = [
        Autoencoder(
            n_components=48,
            hidden_layer_sizes=(96,),
            noise=s,
            max_iter=500,
            random_state=0,
        ).fit(X)
        for s in (0.0, 0.8)
    ]
    noise = 0.8 * np.random.default_rng(1).normal(size=new.shape)
    errors = []
    for model in fits:
        back = model.inverse_transform(model.transform(new + noise * model.scale_))
        errors.append(np.square((back - new) / model.scale_).mean())
    assert errors[1] < 0.9 * errors[0]


def test_sparse_codes_have_few_entries(sparse: Autoencoder, monkeypatch) -> None:
    codes = sparse.transform(DIGITS[:400])
    assert ((codes != 0).sum(axis=1) <= 2).all()
    assert "at most 2 of 8" in sparse.certificate_["codes_agree"].detail
    whole = Autoencoder.transform

    def dense(self: Autoencoder, X: np.ndarray) -> np.ndarray:
        found = whole(self, X)
        return np.where(found == 0, 1e-3, found)

    monkeypatch.setattr(Autoencoder, "transform", dense)
    assert certify(sparse, DIGITS[:400])["codes_agree"].met is False


def test_the_penalty_is_the_norm_of_the_slopes() -> None:
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        net = Bottleneck(4, 2, (8,)).double()
        x = torch.randn(3, 4, dtype=torch.float64)
        many = torch.stack([_slopes(net, x).detach() for _ in range(3000)]).mean()
    J = [torch.autograd.functional.jacobian(net, row[None])[0, :, 0] for row in x]
    truth = torch.stack([j.square().sum() for j in J]).mean() / 4
    assert float(many) == pytest.approx(float(truth), rel=0.05)
    fits = [
        Autoencoder(
            n_components=4,
            hidden_layer_sizes=(16,),
            contraction=c,
            max_iter=150,
            random_state=0,
        ).fit(DIGITS[:300, 9:15])
        for c in (0.0, 1.0)
    ]
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(500, 6)))
    steep = [float(_slopes(m.network_, rows).detach()) for m in fits]
    assert steep[1] < 0.7 * steep[0]


def test_faults_are_found(sparse: Autoencoder, tmp_path, monkeypatch) -> None:
    X = DIGITS[:400]
    assert sparse.certificate_["codes_agree"].met
    with monkeypatch.context() as changed:
        whole = Autoencoder.inverse_transform
        changed.setattr(
            Autoencoder, "inverse_transform", lambda *given: 1.001 * whole(*given)
        )
        assert certify(sparse, X)["codes_agree"].met is False
    sparse.save(tmp_path / "coder.certus")
    again = load(tmp_path / "coder.certus")
    np.testing.assert_array_equal(again.transform(X), sparse.transform(X))
    again.network_.encoder.output = torch.nn.Linear(3, 3)
    with pytest.raises(ValueError, match="does not fit"):
        certify(again, X)


def test_a_code_without_information_is_named() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    model = Autoencoder(n_components=2, hidden_layer_sizes=(8,), max_iter=20).fit(X)
    with torch.no_grad():
        model.network_.encoder.output.weight[1].zero_()
    assert "1 of 2 components carry nothing" in certify(model, X)["row_error"].detail
    with torch.no_grad():
        model.network_.encoder.output.weight.zero_()
    assert "collapsed" in certify(model, X)["row_error"].detail


def test_new_rows_and_outliers_have_a_level(sparse: Autoencoder) -> None:
    claim = certify(sparse, DIGITS[400:])["row_error"]
    assert claim.strength is Strength.STATISTICAL and claim.delta == 0.05
    assert 0 < claim.value < 10
    assert sparse.score(DIGITS[:400]) == -sparse.outlier_scores(DIGITS[:400]).mean()
    sparse.calibrate(DIGITS[400:800])
    odd = np.random.default_rng(0).permuted(DIGITS[800:900], axis=1)
    assert sparse.predict_outlier(odd, 0.1).mean() > 0.8
    assert sparse.predict_outlier(DIGITS[900:], 0.1).mean() < 0.2


def test_drawing_from_no_distribution_is_refused(sparse: Autoencoder) -> None:
    assert not hasattr(sparse, "sample")
    with pytest.raises(AttributeError, match="VariationalAutoencoder"):
        sparse.sample(3)
    with pytest.raises(ValueError, match="sparsity"):
        Autoencoder(sparsity=1.5).fit(DIGITS[:20])
    with pytest.raises(ValueError, match="n_active must be from 1 to"):
        Bottleneck(4, 2, (), n_active=3)


def test_the_module_keeps_its_config() -> None:
    net = Bottleneck(4, 2, [8], n_active=1)
    assert Bottleneck(**net.config).config == net.config
