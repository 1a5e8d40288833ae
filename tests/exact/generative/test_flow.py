"""Normalising flows: known densities, the start, samples, outliers, gaps."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import certus
from certus.generative import NormalizingFlow
from certus.generative.base import ImplicitModel


def banana(n: int, seed: int, noise: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return np.column_stack([x, x**2 + noise * rng.normal(size=n)])


def fitted(X: np.ndarray, **params: Any) -> NormalizingFlow:
    params = {"random_state": 0, "hidden_layer_sizes": (32, 32)} | params
    with certus.config_context(certify="never"):
        return NormalizingFlow(**params).fit(X)


@pytest.fixture(scope="module")
def flow() -> NormalizingFlow:
    return fitted(banana(800, 0, 0.5), max_iter=120, n_components=3)


@pytest.mark.catalog("GEN-31", "GEN-33")
def test_a_linear_flow_is_the_gaussian_of_maximum_likelihood() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3)) @ [
        [1, 2, 0],
        [0, 1, 0],
        [3, 0, 1],
    ]
    model = fitted(X, layer="linear", early_stopping=False)
    law = stats.multivariate_normal(X.mean(axis=0), np.cov(X.T, bias=True))
    np.testing.assert_allclose(model.score_samples(X), law.logpdf(X), rtol=1e-9)
    # Its determinant is a product over the diagonal, and that of the dense matrix.
    A = model.weights_["layers.0.weight"]
    z, log_det = model.network_(torch.from_numpy(model._scaled.inner(X)))
    assert float(log_det[0]) == pytest.approx(np.linalg.slogdet(A)[1])
    np.testing.assert_allclose(np.cov(z.numpy().T, bias=True), np.eye(3), atol=1e-9)


@pytest.mark.catalog("GEN-31")
def test_training_an_affine_flow_on_normal_rows_keeps_mean_and_covariance() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1500, 2)) @ np.array([[2.0, 1.0], [0.0, 0.5]]) + [5, -1]
    model = fitted(X, layer="affine", base="normal", max_iter=100)
    S = model.sample(40_000, random_state=1)
    np.testing.assert_allclose(S.mean(axis=0), X.mean(axis=0), atol=0.15)
    np.testing.assert_allclose(np.cov(S.T), np.cov(X.T), rtol=0.12, atol=0.05)


@pytest.mark.catalog("GEN-28")
def test_the_density_integrates_to_one_and_is_that_of_the_samples(flow) -> None:
    low, high, m = np.array([-8.0, -8.0]), np.array([8.0, 40.0]), (500, 1200)
    sides = [np.linspace(a, b, k) for a, b, k in zip(low, high, m)]
    grid = np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, 2)
    cell = math.prod(side[1] - side[0] for side in sides)
    p = np.exp(flow.score_samples(grid)) * cell
    assert p.sum() == pytest.approx(1, abs=1e-4)
    inside = ((grid > [-0.5, 0]) & (grid < [1, 1])).all(axis=1)
    S = flow.sample(20_000, random_state=0)
    share = ((S > [-0.5, 0]) & (S < [1, 1])).all(axis=1).mean()
    assert share == pytest.approx(p[inside].sum(), abs=0.02)


@pytest.mark.catalog("GEN-30", "GEN-32")
@pytest.mark.parametrize("coupling", [False, True])
def test_both_directions_give_the_same_likelihood(coupling) -> None:
    X = banana(300, 1)
    model = fitted(X, coupling=coupling, max_iter=30, n_components=2)
    net, Z = model.network_, torch.from_numpy(model._scaled.inner(X[:8]))
    with torch.no_grad():
        z, log_det = net(Z)
        inverse = net.base_log_prob(z) + log_det  # log r(Sx) + log |det ∇S|
    step = 1e-6 * torch.eye(2).double()
    for row, said, value in zip(z, inverse, model.score_samples(X[:8])):
        ahead, behind = (net.inverse(row + sign * step) for sign in (1, -1))
        T = ((ahead - behind) / 2e-6).T.detach()  # log r(z) − log |det ∇T(z)|
        generative = net.base_log_prob(row[None])[0] - torch.linalg.slogdet(T)[1]
        assert float(generative) == pytest.approx(float(said), abs=1e-6)
        volume = np.log(model.scale_).sum()
        assert value == pytest.approx(float(said) - volume, abs=1e-9)


@pytest.mark.catalog("GEN-39")
def test_gaussian_conditionals_give_a_skewed_banana() -> None:
    X = banana(4000, 0)
    model = fitted(
        X, layer="affine", base="normal", n_layers=1, max_iter=300, learning_rate=0.01
    )
    # x₂ = x₁² + e has skewness 8/3^1.5 = 1.54; one Gaussian has none.
    skew = stats.skew(model.sample(20_000, random_state=0)[:, 1])
    assert skew == pytest.approx(1.57, abs=0.3)
    plain = fitted(X, layer="linear").sample(20_000, random_state=0)[:, 1]
    assert abs(stats.skew(plain)) < 0.1


@pytest.mark.catalog("GEN-37")
def test_flows_from_two_starts_find_the_one_increasing_triangular_map() -> None:
    """Other weights, other batches, the same map: (x₁, (x₂ − x₁²)/0.5)."""
    fits = [
        NormalizingFlow(
            layer="affine",
            base="normal",
            n_layers=1,
            hidden_layer_sizes=(64,),
            max_iter=1500,
            learning_rate=0.01,
            early_stopping=False,
            random_state=seed,
        )
        for seed in (1, 2)
    ]
    X, new = banana(3000, 0, 0.5), banana(2000, 1, 0.5)
    with certus.config_context(certify="never"):
        a, b = (flow.fit(X) for flow in fits)
    inner = "layers.0.net.0.weight"
    assert np.abs(a.weights_[inner] - b.weights_[inner]).max() > 0.1
    # Rows without end have one map: both come near to it, and nearer to each other.
    known = np.column_stack([new[:, 0], (new[:, 1] - new[:, 0] ** 2) / 0.5])
    apart = np.sqrt(np.square(a.transform(new) - b.transform(new)).mean())
    off = np.sqrt(np.square(a.transform(new) - known).mean())
    assert apart <= 0.05 and off <= 0.15
    p, q = a.score_samples(new), b.score_samples(new)
    assert np.abs(p - q).mean() <= 0.05


@pytest.mark.catalog("GEN-41")
def test_a_monotone_flow_learns_two_modes_from_one_gaussian() -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random(3000) < 0.4, -2.0, 1.5) + 0.4 * rng.normal(size=3000)
    model = fitted(
        x[:, None], layer="monotone", base="normal", max_iter=300, learning_rate=0.02
    )
    at = np.linspace(-4, 4, 801)[:, None]
    truth = 0.4 * stats.norm(-2, 0.4).pdf(at) + 0.6 * stats.norm(1.5, 0.4).pdf(at)
    p = np.exp(model.score_samples(at))
    assert abs(p - truth[:, 0]).sum() * 0.01 < 0.2  # twice the total variation
    assert (np.diff(model.transform(at)[:, 0]) > 0).all()
    start = stats.norm(x.mean(), x.std()).pdf(at)[:, 0]
    assert abs(start - truth[:, 0]).sum() * 0.01 > 0.6


@pytest.mark.catalog("GEN-01")
def test_an_implicit_model_has_no_density_and_names_what_judges_its_rows(flow) -> None:
    class Sampler(ImplicitModel):
        def fit(self, X: Any, y: Any = None) -> Sampler:
            self.network_, self.shape_ = nn.Identity(), X.shape[1:]
            self.loc_, self.scale_, self.varies_ = self._scaling(X)
            return self

        def _draw(self, n: int, codes: Any, rng: np.random.Generator) -> np.ndarray:
            return rng.normal(size=(n, 2))

    model = Sampler()
    assert hasattr(flow, "score_samples") and not hasattr(model, "score_samples")
    with pytest.raises(AttributeError, match=r"generative\.examine"):
        model.score_samples  # noqa: B018
    drawn = model.fit(banana(50, 0)).sample(5000, random_state=0)
    np.testing.assert_allclose(drawn.mean(axis=0), model.loc_, atol=0.15)


@pytest.mark.parametrize("rate", [1e-3, 10.0])
def test_a_flow_is_never_worse_than_its_start(rate) -> None:
    model = fitted(banana(300, 2), max_iter=30, learning_rate=rate, n_components=2)
    assert model.validation_score_ >= model.start_score_ - 1e-5
    if rate > 1:  # such steps destroy it: the mixture is what is left
        assert model.best_epoch_ == 0
        X = banana(50, 3)
        start = model.mixture_.score_samples(model._scaled.inner(X))
        volume = np.log(model.scale_).sum()
        np.testing.assert_allclose(model.score_samples(X), start - volume, rtol=1e-9)


def test_false_alarms_keep_their_level(flow) -> None:
    model = copy.deepcopy(flow).calibrate(banana(400, 5, 0.5))
    new = banana(2000, 6, 0.5)
    assert model.predict_outlier(new, alpha=0.1).mean() < 0.1 + 4 * math.sqrt(
        0.09 / 400
    )
    far = banana(20, 7, 0.5) - [0, 6]
    assert model.predict_outlier(far, alpha=0.05).mean() > 0.9
    mixed = np.concatenate([new[:200], far])
    alarms = model.predict_outlier(mixed, alpha=0.1, together=True)
    assert alarms[200:].mean() > 0.9 and alarms[:200].mean() < 0.1
    claim = model.calibration_certificate_["coverage"]
    assert claim.met and "no alarm" in claim.detail
    assert not hasattr(model.set_params(bins=9), "calibration_certificate_")


def test_gaps_are_filled_with_conditional_means(flow) -> None:
    X = banana(30, 9, 0.5)
    gaps = X.copy()
    gaps[:, 1] = np.nan
    filled = flow.impute(gaps, random_state=0)
    assert (filled[:, 0] == X[:, 0]).all()
    near = np.abs(X[:, 0]) < 1.5
    assert np.abs(filled[near, 1] - X[near, 0] ** 2).mean() < 0.35
    whole = flow.impute(np.full((1, 2), np.nan), random_state=0)
    assert np.abs(whole - [[0, 1]]).max() < 0.5


def test_samples_depend_on_their_seed_alone(flow) -> None:
    a, b = (flow.sample(7, random_state=s) for s in (3, 3))
    assert (a == b).all()
    assert not (a == flow.sample(7, random_state=4)).any()
    with pytest.raises(ValueError, match="without classes"):
        flow.sample(2, y=1)


def test_a_resumed_fit_is_the_same_to_the_last_bit(tmp_path) -> None:
    X = banana(200, 4)
    whole = fitted(X, max_iter=30, n_components=1, layer="affine")
    folder = str(tmp_path / "run")
    fitted(
        X,
        max_iter=30,
        n_components=1,
        layer="affine",
        checkpoint=folder,
        max_time=1e-9,
    )
    again = fitted(X, max_iter=30, n_components=1, layer="affine", checkpoint=folder)
    for name, value in whole.weights_.items():
        np.testing.assert_array_equal(value, again.weights_[name])


def test_a_file_gives_the_same_densities(flow, tmp_path) -> None:
    again = certus.load(flow.save(tmp_path / "flow.certus"))
    X = banana(20, 8)
    np.testing.assert_array_equal(again.score_samples(X), flow.score_samples(X))
    np.testing.assert_array_equal(
        again.sample(3, random_state=1), flow.sample(3, random_state=1)
    )
