"""Gaps in rows, filled by models that draw in steps or by codes.

- A variational autoencoder draws codes and gaps in turn (Gibbs' sampler). A code is
  proposed from the encoder and accepted by Metropolis' rule, so that the chain has the
  distribution of code and gaps given the rest of the row, also where the encoder is not
  exact.
- A diffusion model draws with its chain; at each noise level the known columns are put
  back with fresh noise, several times (Lugmayr et al. 2022). The gaps
  follow the rest of the row, but not exactly so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.base import generator_of
from certus.generative.noise_flow import noise_grid
from certus.generative.rows import read_rows
from certus.neural_network.randomness import own_generator
from certus.typing import Array

#: Rounds of a chain over codes, of which the first third is not counted.
ROUNDS = 120
#: Draws of a diffusion model for each row, and passes at each noise level.
DRAWS, REPEATS = 16, 4


def filled(model: Any, X: Any, random_state: Any, how: Any) -> Array:
    """Rows with their gaps filled, in the shape of the fit.

    Parameters
    ----------
    model : GenerativeModel
        Fitted without classes.
    X : array-like
        Rows, NaN where a value is missing.
    random_state : int, RandomState or None
        Seed or generator of all random numbers.
    how : callable
        ``how(model, Z, rng)`` fills standardised rows.
    """
    if hasattr(model, "classes_"):
        raise ValueError(
            f"This {type(model).__name__} was fitted with classes, and impute does not "
            "know those of these rows. Fit without y."
        )
    X, scaled = read_rows(model, X, reset=False, missing=True), model._scaled
    rng = generator_of(random_state)
    gaps = np.isnan(X)
    Z = scaled.inner(np.where(gaps & ~scaled.varies, scaled.loc, X))
    some = np.isnan(Z).any(axis=1)
    if some.any():
        Z[some] = how(model, Z[some], rng)
    # What was known comes back as it was, not through a division and a product.
    return model._shaped(np.where(gaps, scaled.outer(Z), X))


@torch.no_grad()
def by_codes(model: Any, Z: Array, rng: np.random.Generator) -> Array:
    """Expected gaps under a variational autoencoder."""
    network, gap = model.network_, torch.from_numpy(np.isnan(Z))
    bernoulli = model.likelihood == "bernoulli"
    x = torch.from_numpy(np.where(np.isnan(Z), 0.5 if bernoulli else 0.0, Z))
    total, counted = torch.zeros_like(x), 0
    with own_generator():
        torch.default_generator.manual_seed(int(rng.integers(2**62)))
        z = network.encode(x).draw()[0]
        for k in range(ROUNDS):
            code = network.encode(x)
            new = code.draw()[0]
            ahead = _log_joint(network, x, new) - code.log_prob(new)
            here = _log_joint(network, x, z) - code.log_prob(z)
            accept = torch.log(torch.rand(len(x))) < ahead - here
            z = torch.where(accept[:, None], new, z)
            m = network.decode(z)
            mean = torch.sigmoid(m) if bernoulli else m
            if k >= ROUNDS // 3:
                total, counted = total + mean, counted + 1
            drawn = (
                mean + math.sqrt(model.noise_variance_) * torch.randn_like(m)
                if (not bernoulli)
                else torch.bernoulli(mean)
            )
            x = torch.where(gap, drawn, x)
    return np.where(np.isnan(Z), (total / counted).numpy(), Z)


def _log_joint(network: Any, x: Tensor, z: Tensor) -> Tensor:
    """Log p(x, z), up to a constant."""
    found: Tensor = network.log_likelihood(x, network.decode(z))
    return found - 0.5 * z.square().sum(dim=-1)


@torch.no_grad()
def by_steps(
    model: Any, Z: Array, rng: np.random.Generator, draws: int = DRAWS
) -> Array:
    """Mean gaps of some draws of a diffusion model, given the rest of the row."""
    rows = np.tile(Z, (draws, 1))
    found = drawn_around(model, rows, rng).reshape(draws, *Z.shape)
    return np.where(np.isnan(Z), found.mean(axis=0), Z)


@torch.no_grad()
def drawn_around(
    model: Any,
    Z: Array,
    rng: np.random.Generator,
    codes: Array | None = None,
    passes: int = REPEATS,
) -> Array:
    """One draw of each row: known columns are put back at each noise level.

    Parameters
    ----------
    model : Diffusion
        Fitted.
    Z : float64 array of shape (n, d)
        Standardised rows, NaN where a number is drawn.
    rng : numpy.random.Generator
        Random numbers.
    codes : int array of shape (n,), optional
        Numbers of the classes of rows.
    passes : int, default=4
        Passes at each noise level; more bring the distribution closer to the
        conditional one.
    """
    gap = torch.from_numpy(np.isnan(Z))
    known = torch.from_numpy(np.nan_to_num(Z))
    levels = noise_grid(max(int(model.n_steps), 32))
    c = None if codes is None else torch.as_tensor(codes)

    def noise() -> Tensor:
        return torch.from_numpy(rng.standard_normal(Z.shape))

    x = noise() * math.sqrt(1 + levels[0] ** 2)
    for one, other in zip(levels, [*levels[1:], 0.0]):
        share, back = other / one, math.sqrt(one**2 - other**2)
        for again in range(passes):
            if again:  # up again, so that gaps and known columns come to agree
                x = x + back * noise()
            x = torch.where(gap, x, known + one * noise())
            D = model._guided(x, one, c)
            fresh = other * math.sqrt(1 - share**2) * noise()
            x = D + share**2 * (x - D) + fresh
    return torch.where(gap, x, known).numpy()
