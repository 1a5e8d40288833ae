"""Rows that a model draws have the density that it states: faults of every kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from certus import certify, config_context
from certus.certificate import Claim, Strength
from certus.generative import Diffusion, VariationalAutoencoder, noise_flow
from certus.neural_network.modules.denoiser import LEAST, MOST
from certus.verify import denoising

RNG = np.random.default_rng(0)
#: Two columns that depend on each other, skewed: no map and its inverse look alike.
ROWS = RNG.normal(size=(1200, 1)) ** 2 @ [[1.0, 1.5]] + RNG.normal(size=(1200, 2))
LINEAR = RNG.normal(size=(500, 2)) @ RNG.normal(size=(2, 5)) + RNG.normal(size=(500, 5))
ALONG = RNG.normal(size=1200)
CURVE = np.column_stack([ALONG, ALONG + 0.2 * ALONG**2])
CURVE += 0.3 * RNG.normal(size=(1200, 2))


@pytest.fixture(scope="module")
def diffusion() -> Diffusion:
    model = Diffusion(hidden_layer_sizes=(32, 32), max_iter=700, random_state=0)
    with config_context(certify="never"):
        return model.fit(ROWS)


@pytest.fixture(scope="module")
def linear() -> VariationalAutoencoder:
    return VariationalAutoencoder(hidden_layer_sizes=(), random_state=0).fit(LINEAR)


@pytest.fixture(scope="module")
def curved() -> VariationalAutoencoder:
    model = VariationalAutoencoder(
        n_components=1, hidden_layer_sizes=(16,), max_iter=900, random_state=0
    )
    with config_context(certify="never"):
        return model.fit(CURVE)


@pytest.fixture(autouse=True)
def less_work_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other claims of a diffusion are not what is tested here."""
    monkeypatch.setitem(denoising.WORK, "full", 2e7)
    monkeypatch.setattr(denoising, "FLOWN", 4)


def draws_of(model: Any, X: Any, level: str = "full") -> Claim:
    found = certify(model, X, level=level)["sample_density"]
    assert found.strength is Strength.STATISTICAL and found.delta == 0.05
    return found


def test_a_diffusion_draws_what_it_states(diffusion: Diffusion) -> None:
    claim = draws_of(diffusion, ROWS)
    assert claim.met and claim.value < 0.25
    names = [c.name for c in certify(diffusion, ROWS).claims]
    assert "sample_density" not in names  # a flow for each draw takes its time
    chain = Diffusion(**diffusion.get_params())
    chain.__dict__.update(diffusion.__dict__)
    claim = certify(chain.set_params(sampler="ddpm"), ROWS, level="full")
    assert claim["sample_density"].strength is Strength.REFUSED


def test_faults_of_a_diffusion_are_found(
    diffusion: Diffusion, monkeypatch: pytest.MonkeyPatch
) -> None:
    slope, whole = noise_flow._slope, Diffusion._log_density

    def wrong_sign(*given: Any) -> Any:
        v, divergence = slope(*given)
        return v, -divergence

    def wrong_way(
        self: Any, n: int, codes: Any, rng: np.random.Generator
    ) -> np.ndarray:
        z, steps = torch.from_numpy(rng.standard_normal((n, 2))), 64
        h = math.log(MOST / LEAST) / steps
        for k in range(steps):  # from rows to noise
            z = z + h * slope(self.network_, z, math.log(LEAST) + k * h, None)[0]
        return z.detach().numpy()

    for owner, name, fault in (
        (noise_flow, "_slope", wrong_sign),
        (Diffusion, "_log_density", lambda self, Z: whole(self, Z) + 1.0),
        (Diffusion, "_log_density", lambda self, Z: whole(self, Z) - 1.0),
        (Diffusion, "_draw", wrong_way),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(owner, name, fault)
            assert draws_of(diffusion, ROWS).met is False


def test_autoencoders_draw_what_they_state(
    linear: VariationalAutoencoder, curved: VariationalAutoencoder
) -> None:
    claim = linear.certificate_["sample_density"]
    assert claim.met and claim.strength is Strength.STATISTICAL
    assert draws_of(linear, LINEAR).value < 0.25
    assert draws_of(curved, CURVE).met
    assert "sample_density" not in [c.name for c in certify(curved, CURVE).claims]


@pytest.mark.parametrize("fault", ["constant", "sign", "direction"])
def test_faults_of_autoencoders_are_found(
    fault: str,
    linear: VariationalAutoencoder,
    curved: VariationalAutoencoder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = VariationalAutoencoder.log_likelihood
    drawn = VariationalAutoencoder.sample

    def wrong(self: Any, X: Any) -> np.ndarray:
        if fault == "constant":
            return whole(self, X) + 0.5 * math.log(2 * math.pi)
        # The logarithm of the scales must be subtracted, not added.
        return whole(self, X) + 2 * np.log(self.scale_).sum()

    def other(self: Any, n: int, *, random_state: Any = None) -> np.ndarray:
        made = drawn(self, n, random_state=random_state)
        made[:, 1] = 2 * X[:, 1].mean() - made[:, 1]  # the decoder's sign is turned
        return made

    name, change = "log_likelihood", wrong
    if fault == "direction":
        name, change = "sample", other
    monkeypatch.setattr(VariationalAutoencoder, name, change)
    for model, X in ((linear, LINEAR), (curved, CURVE)):
        assert draws_of(model, X).met is False
