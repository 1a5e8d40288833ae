"""Variational autoencoders against formulas, integrals and planted faults."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from certus import certify, load
from certus.certificate import Strength
from certus.decomposition import ProbabilisticPCA
from certus.generative import VariationalAutoencoder
from certus.neural_network.modules import Variational
from certus.neural_network.modules.variational import Code
from certus.verify.quadrature import bracket
from certus.verify.variational import PlainVAE, Statement, log_mass

DIGITS = load_digits().data / 16


@pytest.fixture(scope="module")
def small() -> VariationalAutoencoder:
    """Two components, binary pixels."""
    X = (DIGITS[:400] > 0.5).astype(float)
    model = VariationalAutoencoder(
        likelihood="bernoulli", hidden_layer_sizes=(32,), max_iter=300, random_state=0
    )
    return model.fit(X)


@pytest.mark.catalog("GEN-27")
@pytest.mark.parametrize(
    ("X", "k"),
    [
        (load_wine().data, 3),
        (load_breast_cancer().data, 5),
        (load_digits().data, 10),
    ],
)
def test_linear_networks_are_probabilistic_pca(X: np.ndarray, k: int) -> None:
    model = VariationalAutoencoder(n_components=k, hidden_layer_sizes=()).fit(X)
    claim = model.certificate_["gap_to_best"]
    assert claim.strength is Strength.PROVED and claim.met and claim.value <= 1e-6
    Z = (X - model.loc_)[:, model.varies_] / model.scale_[model.varies_]
    ppca = ProbabilisticPCA(n_components=k).fit(Z)
    W = model.weights_["decoder.output.weight"]
    cov = W @ W.T + model.noise_variance_ * np.eye(len(W))
    np.testing.assert_allclose(cov, ppca.get_covariance(), atol=1e-8)
    assert model.log_likelihood(X).mean() == pytest.approx(
        ppca.score(Z) - np.log(model.scale_[model.varies_]).sum()
    )


@pytest.mark.catalog("GEN-24")
def test_the_bound_is_the_likelihood_at_the_exact_posterior_only() -> None:
    X = load_wine().data[:, :5]
    model = VariationalAutoencoder(hidden_layer_sizes=()).fit(X)
    exact = model.log_likelihood(X)
    W, m = (model.weights_[f"decoder.output.{n}"] for n in ("weight", "bias"))
    cov = W @ W.T + model.noise_variance_ * np.eye(5)
    truth = multivariate_normal(m, cov).logpdf((X - model.loc_) / model.scale_)
    np.testing.assert_allclose(exact, truth - np.log(model.scale_).sum(), atol=1e-9)
    # One draw is enough where q is the posterior: p(x, z)/q(z | x) = p(x) for every z.
    np.testing.assert_allclose(model.bound(X, n_draws=1), exact, atol=1e-9)
    with torch.no_grad():
        model.network_.encoder.output.bias[0] += 0.5
    assert model.bound(X, n_draws=2000, random_state=0).mean() < exact.mean() + 0.02
    elbo = np.mean([model.bound(X, n_draws=1, random_state=i) for i in range(200)], 0)
    assert (elbo < exact).all()


@pytest.mark.catalog("GEN-24")
def test_bounds_rise_to_the_integral(small: VariationalAutoencoder) -> None:
    X = (DIGITS[400:500] > 0.5).astype(float)
    exact = small.log_likelihood(X).mean()
    bounds = [
        np.mean([small.bound(X, n_draws=n, random_state=i).mean() for i in range(5)])
        for n in (1, 10, 200)
    ]
    assert bounds[0] < bounds[1] < bounds[2] < exact + 0.05
    assert small.score(X) == pytest.approx(bounds[2], abs=1.0)


@pytest.mark.catalog("GEN-25")
def test_the_divergence_is_that_of_normals() -> None:
    rng = np.random.default_rng(0)
    mean, log_var = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    code = Code(torch.from_numpy(mean), torch.from_numpy(log_var))
    s2 = np.exp(log_var)
    formula = 0.5 * (mean**2 + s2 - 1 - log_var)
    np.testing.assert_allclose(code.divergence().numpy(), formula, atol=1e-12)
    eta = rng.standard_normal((100_000, 4, 3))
    z = torch.from_numpy(mean + np.sqrt(s2) * eta)
    prior = -0.5 * (z.square() + math.log(2 * math.pi)).sum(dim=-1)
    drawn = (code.log_prob(z) - prior).mean(dim=0).numpy()
    np.testing.assert_allclose(drawn, formula.sum(axis=1), atol=0.06)


@pytest.mark.catalog("GEN-26")
def test_reparameterised_gradients_are_unbiased_and_less_noisy() -> None:
    """d/dμ E[f(z)], f(z) = Σz²: 2μ. Draws of Code against the score function."""
    mean = torch.tensor([[0.7, -0.4]], dtype=torch.float64, requires_grad=True)
    code = Code(mean, torch.full_like(mean, -1.0))
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        z = code.draw(20_000)
    f = z.square().sum(dim=-1)
    (through,) = torch.autograd.grad(f.mean(), mean, retain_graph=True)
    np.testing.assert_allclose(through.numpy(), 2 * mean.detach().numpy(), atol=0.03)
    each = (2 * z)[:, 0].detach().numpy()  # ∂f/∂μ of a draw
    fixed = z.detach()
    slope = (fixed - mean.detach()) * math.exp(1.0)  # ∂ log q/∂μ
    score = (f.detach()[..., None] * slope)[:, 0].numpy()
    np.testing.assert_allclose(score.mean(0), 2 * mean.detach().numpy()[0], atol=0.1)
    assert (each.var(axis=0) < 0.5 * score.var(axis=0)).all()


def test_the_networks_are_known_by_their_certificate(
    small: VariationalAutoencoder,
) -> None:
    found = small.certificate_
    assert found["codes_agree"].met and found.primary == "likelihood_bound"
    assert found["likelihood_bound"].value < found["importance_bound"].value
    assert 0 < found["integrated_likelihood"].value < 1.0


def test_classes_are_drawn_as_asked() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    X = rng.normal(size=(600, 4)) + 5 * np.eye(4)[y]
    model = VariationalAutoencoder(
        n_components=1,
        hidden_layer_sizes=(16,),
        learning_rate=1e-2,
        max_iter=400,
        random_state=0,
    ).fit(X, y)
    for c in range(3):
        drawn, labels = model.sample(500, y=c, random_state=1)
        assert (labels == c).all()
        np.testing.assert_allclose(drawn.mean(axis=0), 5 * np.eye(4)[c], atol=0.4)
    assert (model.transform(X[:9]) == model.transform(X[:9], y[:9])).all()


def test_a_model_that_ignores_its_codes_is_named() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    model = VariationalAutoencoder(
        beta=50.0,
        hidden_layer_sizes=(8,),
        learning_rate=1e-2,
        max_iter=300,
        random_state=0,
    ).fit(X)
    assert "collapsed" in model.certificate_["likelihood_bound"].detail


def test_faults_are_found(small: VariationalAutoencoder, tmp_path, monkeypatch) -> None:
    X = (DIGITS[:400] > 0.5).astype(float)
    whole = VariationalAutoencoder.transform
    with monkeypatch.context() as changed:
        changed.setattr(
            VariationalAutoencoder, "transform", lambda *given: 1.001 * whole(*given)
        )
        assert certify(small, X)["codes_agree"].met is False
    linear = VariationalAutoencoder(hidden_layer_sizes=()).fit(DIGITS)
    with torch.no_grad():
        linear.network_.decoder.output.weight[3] *= 1.05
    assert certify(linear, DIGITS)["gap_to_best"].met is False
    small.save(tmp_path / "vae.certus")
    again = load(tmp_path / "vae.certus")
    np.testing.assert_array_equal(again.transform(X), small.transform(X))


def test_several_draws_and_a_weight_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="no divergence to weight"):
        VariationalAutoencoder(beta=2.0, n_draws=5).fit(DIGITS)
    with pytest.raises(ValueError, match="between 0 and 1"):
        VariationalAutoencoder(likelihood="bernoulli").fit(DIGITS * 16)


def test_an_importance_weighted_fit_is_at_least_as_good() -> None:
    X = (DIGITS[:300] > 0.5).astype(float)
    options = {"likelihood": "bernoulli", "hidden_layer_sizes": (32,)}
    fits = [
        VariationalAutoencoder(n_draws=n, max_iter=200, random_state=0, **options).fit(
            X
        )
        for n in (1, 10)
    ]
    plain, several = (m.log_likelihood(X).mean() for m in fits)
    assert several > plain - 0.5


def test_the_module_keeps_its_config() -> None:
    net = Variational(4, 2, [8], likelihood="bernoulli", n_classes=3)
    assert Variational(**net.config).config == net.config


@pytest.mark.parametrize("likelihood", ["normal", "bernoulli"])
@pytest.mark.parametrize("k", [1, 2])
def test_log_p_lies_between_both_bounds(likelihood: str, k: int) -> None:
    """Against a fine grid of the decoder itself, and tighter with more cells."""
    rng = np.random.default_rng(k)
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(k)
        net = Variational(4, k, (8, 8), likelihood=likelihood).double()
    weights = {n: v.detach().numpy() for n, v in net.state_dict().items()}
    plain = PlainVAE(Statement(net.config, weights, 1.0))
    Z = rng.normal(size=(5, 4)) if likelihood == "normal" else rng.random((5, 4))
    axis = np.linspace(-8, 8, 40_001 if k == 1 else 401)
    z = np.stack(np.meshgrid(*[axis] * k), axis=-1).reshape(-1, k)
    with torch.no_grad():
        m = net.decode(torch.from_numpy(z))
        seen = net.log_likelihood(torch.from_numpy(Z[:, None]), m).numpy()
    prior = -0.5 * (z**2 + math.log(2 * math.pi)).sum(axis=1)
    truth = logsumexp(seen + prior + k * math.log(axis[1] - axis[0]), axis=1)
    widths = []
    for cells in (400, 3000):
        found = bracket(plain, Z, cells)
        assert (found.low <= truth + 1e-3).all() and (truth <= found.high + 1e-3).all()
        widths.append((found.high - found.low).max())
    assert widths[1] < 0.5 * widths[0] and widths[1] < 0.5


def test_a_wrong_slope_or_constant_leaves_the_bracket(monkeypatch) -> None:
    """Planted in the model: its own integral is then outside of the bounds."""
    X = (DIGITS[:300] > 0.5).astype(float)
    model = VariationalAutoencoder(
        likelihood="bernoulli", hidden_layer_sizes=(16,), max_iter=100, random_state=0
    ).fit(X)
    plain = PlainVAE(Statement(model.config_, model.weights_, 1.0))
    ends = bracket(plain, X[:10], 4000)
    said = model.log_likelihood(X[:10])
    assert ((ends.low <= said) & (said <= ends.high)).all()
    whole = Variational.decode
    monkeypatch.setattr(Variational, "decode", lambda *given: 1.1 * whole(*given))
    said = model.log_likelihood(X[:10])
    assert ((said < ends.low) | (said > ends.high)).any()


def test_bounds_of_new_rows_have_intervals(small: VariationalAutoencoder) -> None:
    X = (DIGITS[400:700] > 0.5).astype(float)
    found = certify(small, X)
    bits = found["bits_per_dimension"]
    for claim in (found["likelihood_bound"], found["importance_bound"], bits):
        assert claim.strength is Strength.STATISTICAL and claim.delta == 0.05
    exact = small.log_likelihood(X).mean()
    assert found["likelihood_bound"].value < exact
    assert bits.value > -exact / (64 * math.log(2))
    assert found["integrated_likelihood"].strength is Strength.PROVED


def test_bits_of_rounded_draws_are_those_of_the_normal_distribution() -> None:
    middle, half = np.array([0.0, 3.0, -12.0, 40.0]), np.full(4, 0.25)
    near = -np.abs(middle[:3])
    truth = np.log(norm.cdf(near + 0.25) - norm.cdf(near - 0.25))
    np.testing.assert_allclose(log_mass(middle, half)[:3], truth, rtol=1e-9)
    # Beyond the reach of differences: log of φ(x)/x at the nearer end.
    assert log_mass(middle, half)[3] == pytest.approx(norm.logsf(39.75), rel=1e-3)
    rng = np.random.default_rng(0)
    X = np.round(2 * rng.normal(size=(600, 2)))
    model = VariationalAutoencoder(hidden_layer_sizes=()).fit(X)
    entropy = 2.05 + 1.0  # log₂ √(2πe) + log₂ 2
    assert model.certificate_["bits_per_dimension"].value == pytest.approx(
        entropy, abs=0.1
    )


def test_gaps_are_filled_with_their_expected_value() -> None:
    """Of linear networks the expected value has a formula."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(
        size=(400, 4)
    )
    model = VariationalAutoencoder(hidden_layer_sizes=()).fit(X)
    W, m = (model.weights_[f"decoder.output.{n}"] for n in ("weight", "bias"))
    C = W @ W.T + model.noise_variance_ * np.eye(4)
    Z = (X[:40] - model.loc_) / model.scale_
    truth = m[3] + (Z[:, :3] - m[:3]) @ np.linalg.solve(C[:3, :3], C[:3, 3])
    holed = X[:40].copy()
    holed[:, 3] = np.nan
    filled = model.impute(holed, random_state=0)
    np.testing.assert_array_equal(filled[:, :3], X[:40, :3])
    off = (filled[:, 3] - model.loc_[3]) / model.scale_[3] - truth
    assert np.sqrt(np.square(off).mean()) < 0.15
    with pytest.raises(ValueError, match="Fit without y"):
        VariationalAutoencoder(hidden_layer_sizes=(4,), max_iter=2).fit(
            X, X[:, 0] > 0
        ).impute(holed)
