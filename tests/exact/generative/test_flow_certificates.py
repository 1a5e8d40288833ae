"""Certificates of flows: they hold, and each sees the fault that is planted for it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

import certus
from certus.certificate import Strength
from certus.generative import NormalizingFlow
from certus.verify.balls import Dual, ErrorBall
from certus.verify.flow_maps import least_slope

CASES = [
    {},
    {"coupling": True},
    {"layer": "affine"},
    {"layer": "monotone"},
    {"layer": "sum_of_squares"},
    {"layer": "planar", "n_layers": 3},
    {"layer": "linear"},
]
PROVED = ("bijective", "log_density", "inverse", "start")


def rows(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return np.column_stack([x, x**2 + 0.5 * rng.normal(size=n), rng.normal(size=n) + x])


def fitted(**params: Any) -> NormalizingFlow:
    params = {
        "max_iter": 20,
        "hidden_layer_sizes": (16, 16),
        "n_components": 2,
    } | params
    return NormalizingFlow(random_state=0, **params).fit(rows(300, 0))


@pytest.fixture(scope="module")
def whole() -> NormalizingFlow:
    return fitted()


@pytest.fixture
def model(whole) -> NormalizingFlow:
    return copy.deepcopy(whole)


@pytest.mark.parametrize("params", CASES, ids=str)
def test_each_kind_of_flow_is_certified(params) -> None:
    found = fitted(**params).certificate_
    assert found.met and found.primary == "bijective"
    for name in PROVED:
        assert found[name].strength is Strength.PROVED and found[name].met
    assert found["log_density"].value <= 1e-9 and found["inverse"].value <= 1e-9
    assert found["sample_density"].strength is Strength.STATISTICAL
    assert found["sample_density"].met
    assert found["gain"].strength is Strength.MEASURED
    assert found["stated_score"].met


def test_on_new_rows_the_gain_has_an_interval(model) -> None:
    found = certus.certify(model, rows(2000, 5), level="full")
    claim = found["gain"]
    assert claim.strength is Strength.STATISTICAL and claim.delta == 0.05
    X = rows(20_000, 6)
    start = model.mixture_.score_samples(model._scaled.inner(X))
    gains = model.score_samples(X) + np.log(model.scale_).sum() - start
    assert claim.value <= np.clip(gains, -5, 5).mean()
    assert found["sample_density"].value <= 0.25
    assert "stated_score" not in [each.name for each in found.claims]


class WrongSign(NormalizingFlow):
    """Subtracts the log-determinant where it must be added."""

    def _log_density(self, Z: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            z, log_det = self.network_(torch.from_numpy(Z))
            return (self.network_.base_log_prob(z) - log_det).numpy()


class WrongWay(NormalizingFlow):
    """Draws S(z) where S⁻¹(z) is asked for."""

    def _draw(self, n: int, codes: Any, rng: np.random.Generator) -> np.ndarray:
        z = self.network_.draw_base(n, rng)
        with torch.no_grad():
            return self.network_(torch.from_numpy(z))[0].numpy()


class WrongConstant(NormalizingFlow):
    """Forgets a factor of the density."""

    def _log_density(self, Z: np.ndarray) -> np.ndarray:
        return super()._log_density(Z) + 1.0


def test_a_wrong_sign_of_the_log_determinant_is_found(model) -> None:
    model.__class__ = WrongSign
    found = certus.certify(model, rows(300, 0))
    assert found["log_density"].met is False and not found.met


def test_a_lost_constant_is_seen_by_the_density_and_by_draws(model) -> None:
    model.__class__ = WrongConstant
    found = certus.certify(model, rows(300, 0))
    assert found["log_density"].met is False
    assert found["sample_density"].met is False


def test_draws_in_the_wrong_direction_are_seen() -> None:
    # A flow that has learnt much: one Gaussian becomes a banana.
    with certus.config_context(certify="never"):
        model = fitted(base="normal", max_iter=150, learning_rate=0.02)
    assert certus.certify(model, rows(300, 0), level="full")["sample_density"].met
    model.__class__ = WrongWay
    found = certus.certify(model, rows(300, 0), level="full")
    assert found["sample_density"].met is False and not found.met


def test_a_swapped_mask_is_found(model) -> None:
    layer = model.network_.layers[0].net[-1]
    layer.mask.copy_(layer.mask.flip(0))
    found = certus.certify(model, rows(300, 0))
    assert found["bijective"].met is False and not found.met
    assert "break their order" in found["bijective"].detail


def test_a_mixture_that_was_changed_is_seen(model) -> None:
    model.mixture_.means_ = model.mixture_.means_ + 0.1
    found = certus.certify(model, rows(300, 0))
    assert found["start"].met is False and not found.met


def test_weights_that_were_edited_are_seen(model, tmp_path) -> None:
    with torch.no_grad():
        model.network_.layers[1].net[0].weight[0, 0] += 0.25
        model.network_.layers[1].net[-1].bias += 0.05
    again = certus.load(model.save(tmp_path / "flow.certus"))
    found = certus.certify(again, rows(300, 0))
    assert found["bijective"].met and found["log_density"].met  # a flow all the same
    assert found["stated_score"].met is False and not found.met


# -- numbers with a radius ------------------------------------------------------------


def test_balls_hold_the_exact_result() -> None:
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(0)
    with mpmath.workdps(60):
        for _ in range(50):
            a, b = rng.normal(size=2)
            x = ErrorBall([a]) * ErrorBall([b]) + ErrorBall([a]) / (
                ErrorBall([b]) * ErrorBall([b]) + 1.0
            )
            y = (x.tanh() + 2.0).log().exp() - ErrorBall([b])
            A, B = mpmath.mpf(float(a)), mpmath.mpf(float(b))
            X = A * B + A / (B * B + 1)
            Y = mpmath.tanh(X) + 2 - B
            assert abs(mpmath.mpf(float(y.x[0])) - Y) <= mpmath.mpf(float(y.r[0]))
            assert y.r[0] < 1e-13


def test_dual_numbers_differentiate() -> None:
    u = Dual([0.3], [1.0])
    found = (u * u + 1.0) / (2.0 - u) + (u * 3.0).tanh()
    slope = 2 * 0.3 / 1.7 + 1.09 / 1.7**2 + 3 * (1 - np.tanh(0.9) ** 2)
    assert found.d.x[0] == pytest.approx(slope, abs=1e-14)


@pytest.mark.parametrize("kind", ["spline", "affine", "monotone", "sum_of_squares"])
def test_no_parameters_give_a_slope_below_the_bound(kind) -> None:
    from certus.neural_network.modules.flow import Flow

    each = Flow(1, kind, n_layers=1).layers[0].each
    u = torch.linspace(-0.999, 0.999, 201, dtype=torch.float64)
    worst = np.inf
    for seed in range(40):
        t = 20 * np.random.default_rng(seed).normal(size=each.n_params)
        log_slope = each(u, torch.from_numpy(t).expand(201, -1))[1]
        worst = min(worst, float(log_slope.min()))
    assert worst >= np.log(least_slope(kind, 8))


def test_the_verifier_adds_mixtures_as_scipy_does(whole) -> None:
    from certus.verify.flow_maps import PlainFlow

    flow = PlainFlow(whole.config_, whole.weights_)
    Z = whole._scaled.inner(rows(40, 3))
    mixture = whole.mixture_
    joint = np.log(mixture.weights_)[:, None] + [
        -0.5 * np.square((Z - mean) @ U).sum(axis=1)
        + np.log(np.diag(U)).sum()
        - 1.5 * np.log(2 * np.pi)
        for mean, U in zip(mixture.means_, mixture.precisions_cholesky_)
    ]
    found = flow.base(ErrorBall(Z))
    np.testing.assert_allclose(found.x, logsumexp(joint, axis=0), rtol=1e-12)
