"""The likelihood of a variational autoencoder: bounds, integrals and the linear case.

- By draws: log of the mean of p(x, z)/q(z | x), a lower bound in expectation.
- By the trapezoidal rule, for codes of at most two numbers.
- By a formula, for linear networks: N(x; m, WWᵀ + σ²I), probabilistic PCA, whose best
  W, m and σ² follow from eigenvectors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor, nn

from certus.neural_network.randomness import own_generator
from certus.typing import Array

#: Numbers that are decoded together.
TOGETHER = 1 << 22
#: The least σ² of a linear network, of spreads that are 1.
FLOOR = 1e-6
#: Half the width of the square of codes that is integrated over, and its points.
REACH, GRID = 6.0, 161


def paired(Z: Array, code: Any) -> tuple[Tensor, Tensor | None]:
    """Rows or codes, and their classes, as tensors; one class stands for all."""
    x = torch.from_numpy(np.ascontiguousarray(Z))
    if code is None:
        return x, None
    return x, torch.as_tensor(np.broadcast_to(code, len(Z)).copy())


def sigmoid(x: Array) -> Array:
    """1/(1 + exp(−x)), without overflow."""
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x))


@torch.no_grad()
def importance_bounds(
    network: Any,
    Z: Array,
    code: int | None,
    n_draws: int,
    seed: int,
    *,
    alike: bool = False,
) -> Array:
    """The importance-weighted bound of each row.

    Parameters
    ----------
    network : Variational
        Trained, float64.
    Z : float64 array of shape (n, d)
        Standardised rows.
    code : int or None
        Number of their class.
    n_draws : int
        Codes drawn for each row.
    seed : int
        Seed of the draws.
    alike : bool, default=False
        Whether all rows share their random numbers.
    """
    some = max(1, TOGETHER // (n_draws * Z.shape[1]))
    parts = []
    with own_generator():
        torch.default_generator.manual_seed(seed)
        for i in range(0, len(Z), some):
            if alike:
                torch.default_generator.manual_seed(seed)
            x, c = paired(Z[i : i + some], code)
            w = network.log_weights(x, c, n_draws, alike=alike)
            # Far outside, the encoder's spread may overflow: nothing is known there.
            w = w.nan_to_num(nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)
            parts.append(torch.logsumexp(w, dim=0) - math.log(n_draws))
    return torch.cat(parts).numpy()


@torch.no_grad()
def integrated(network: Any, Z: Array, code: int | None) -> Array:
    """Log p of rows, by the trapezoidal rule over codes of one or two numbers."""
    axis = np.linspace(-REACH, REACH, GRID)
    k = network.config["n_components"]
    z = np.stack(np.meshgrid(*[axis] * k, indexing="ij"), axis=-1).reshape(-1, k)
    step = k * math.log(axis[1] - axis[0])
    prior = -0.5 * (np.square(z) + math.log(2 * math.pi)).sum(axis=1) + step
    codes, c = paired(z, code)
    m = network.decode(codes, c)  # (points, n_inputs)
    some = max(1, TOGETHER // len(m))
    parts = [
        _all_pairs(network, torch.from_numpy(Z[i : i + some]), m).numpy()
        for i in range(0, len(Z), some)
    ]
    return np.asarray(logsumexp(np.hstack(parts) + prior[:, None], axis=0))


def _all_pairs(network: Any, x: Tensor, m: Tensor) -> Tensor:
    """Log p(x | z) of every row at every code, (points, rows), by one product."""
    if network.config["likelihood"] == "bernoulli":
        return m @ x.T - nn.functional.softplus(m).sum(dim=1, keepdim=True)
    noise = float(network.noise())
    logs = x.shape[1] * math.log(2 * math.pi * noise)
    return -0.5 * (torch.cdist(m, x).square() / noise + logs)


def normal_log_density(weights: dict[str, Array], noise: float, Z: Array) -> Array:
    """Log N(z; m, WWᵀ + σ²I) of rows, W and m those of a linear decoder."""
    W, m = weights["decoder.output.weight"], weights["decoder.output.bias"]
    C = W @ W.T + noise * np.eye(len(m))
    L = np.linalg.cholesky(C)
    r = np.linalg.solve(L, (Z - m).T)
    logs = 2 * np.log(np.diag(L)).sum() + len(m) * math.log(2 * math.pi)
    return np.asarray(-0.5 * (np.square(r).sum(axis=0) + logs))


def start_at_components(module: Any, Z: Array, k: int) -> nn.Module:
    """Linear networks that are the best probabilistic PCA of rows.

    Axes have their surplus variance, σ² is the mean of the rest. Axes are not turned,
    so that the posterior has independent components.
    """
    width, mean = Z.shape[1], Z.mean(axis=0)
    _, s, Vt = np.linalg.svd(Z - mean, full_matrices=False)
    values, axes = np.zeros(max(width, k)), np.zeros((k, width))
    values[: len(s)] = s**2 / len(Z)
    axes[: len(Vt)] = Vt[:k]
    noise = max(float(values[min(k, width - 1) : width].mean()), FLOOR)
    surplus = np.maximum(values[:k] - noise, 0.0)
    W = axes.T * np.sqrt(surplus)
    precision = surplus / noise + 1.0  # of the posterior, M/σ²
    A = W.T / (surplus + noise)[:, None]
    state = {
        "encoder.output.weight": np.vstack([A, np.zeros_like(A)]),
        "encoder.output.bias": np.concatenate([-A @ mean, -np.log(precision)]),
        "decoder.output.weight": W,
        "decoder.output.bias": mean,
        "log_noise": np.array([math.log(noise)]),
    }
    module.load_state_dict({name: torch.as_tensor(a) for name, a in state.items()})
    found: nn.Module = module
    return found
