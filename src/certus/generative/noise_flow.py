"""From noise to rows along falling noise levels, and from rows to noise.

    probability flow   dx/dσ = (x − D(x, σ))/σ
    log p(x) = log N(z; 0, I) at its end + the integral of its divergence

The variable z = x/√(1 + σ²) keeps unit spread, and stands still where rows are standard
normal: dz/d log σ = z/(1 + σ²) − D/√(1 + σ²).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.neural_network.modules.denoiser import LEAST, MOST
from certus.typing import Array

SAMPLERS = ("heun", "ddim", "ddpm")
#: Rows that are drawn together, and numbers that are differentiated together.
TOGETHER, NUMBERS = 1024, 1 << 21
#: Noise levels of a sampler are evenly spaced in σ^(1/7): dense where σ is small.
POWER = 7.0


def noise_grid(n: int) -> list[float]:
    """Falling noise levels, from the largest to the least."""
    ends = MOST ** (1 / POWER), LEAST ** (1 / POWER)
    return [float(s) for s in np.linspace(*ends, max(n, 2)) ** POWER][:n]


@torch.no_grad()
def noise_to_rows(
    model: Any, n: int, codes: Array | None, rng: np.random.Generator
) -> Array:
    """Draw standardised rows.

    Parameters
    ----------
    model : Diffusion
        Its ``_guided(x, sigma, c)`` is followed, with its ``sampler`` and ``n_steps``.
    n : int
        How many rows.
    codes : int array of shape (n,) or None
        Numbers of their classes.
    rng : numpy.random.Generator
        Random numbers.
    """
    width = int(model.varies_.sum())
    levels = noise_grid(int(model.n_steps))
    parts = []
    for i in parts_of(n, TOGETHER):
        c = None if codes is None else torch.as_tensor(codes[i].copy())
        x = normal_noise(rng, (len(range(n)[i]), width)) * math.sqrt(1 + MOST**2)
        for one, other in zip(levels, [*levels[1:], 0.0]):
            x = _moved(model, x, one, other, c, rng)
        parts.append(x.numpy())
    return np.concatenate(parts)


def _moved(
    model: Any, x: Tensor, one: float, other: float, c: Any, rng: np.random.Generator
) -> Tensor:
    """From one noise level to the next, which is lower."""
    D: Tensor = model._guided(x, one, c)
    share = other / one
    if model.sampler == "ddpm":  # x at the next level, drawn given x and x₀ = D
        noise = other * math.sqrt(1 - share**2) * normal_noise(rng, tuple(x.shape))
        return D + share**2 * (x - D) + noise
    moved = D + share * (x - D)
    if model.sampler == "ddim" or other == 0:
        return moved
    slopes = (x - D) / one + (moved - model._guided(moved, other, c)) / other
    return x + 0.5 * (other - one) * slopes


def flow_log_density(network: Any, Z: Array, code: int | None, n_steps: int) -> Array:
    """Log p of standardised rows of one class, or of a model without classes.

    Parameters
    ----------
    network : Denoiser or UNet
        Trained, float64.
    Z : float64 array of shape (n, d)
        Rows.
    code : int or None
        Number of their class.
    n_steps : int
        Steps from the least noise to the largest.
    """
    d = Z.shape[1]
    some = max(1, NUMBERS // (d * max(d, *network.config["hidden"])))
    parts = [_integrated(network, Z[i], code, n_steps) for i in parts_of(len(Z), some)]
    return np.concatenate(parts) - 0.5 * d * math.log1p(LEAST**2)


def _integrated(network: Any, Z: Array, code: int | None, n: int) -> Array:
    """Log p of z at the least noise, by Runge and Kutta's steps of fourth order."""
    x, _, c = tensors_of(Z, np.ones(len(Z)), code)
    z, total = x / math.sqrt(1 + LEAST**2), torch.zeros(len(x), dtype=x.dtype)
    begin, end = math.log(LEAST), math.log(MOST)
    h = (end - begin) / n
    for k in range(n):
        t = begin + k * h
        a, u = _slope(network, z, t, c)
        b, v = _slope(network, z + 0.5 * h * a, t + 0.5 * h, c)
        e, w = _slope(network, z + 0.5 * h * b, t + 0.5 * h, c)
        f, q = _slope(network, z + h * e, t + h, c)
        z = z + h / 6 * (a + 2 * b + 2 * e + f)
        total = total + h / 6 * (u + 2 * v + 2 * w + q)
    base = -0.5 * (z.square() + math.log(2 * math.pi)).sum(dim=1)
    return np.asarray((base + total).numpy())


def _slope(network: Any, z: Tensor, log_level: float, c: Any) -> tuple[Tensor, Tensor]:
    """dz/d log σ and its divergence, which is exact."""
    sigma = math.exp(log_level)
    v, d = 1 + sigma**2, z.shape[1]
    level = torch.full((len(z),), sigma, dtype=z.dtype)
    found: Any = torch.func.vjp(lambda x: network(x, level, c), z * math.sqrt(v))
    D, back = found
    basis = torch.eye(d, dtype=z.dtype)[:, None].expand(d, len(z), d)
    J = torch.func.vmap(back)(basis)[0]  # (d, rows, d)
    trace = torch.diagonal(J, dim1=0, dim2=2).sum(dim=-1)
    return z / v - D.detach() / math.sqrt(v), d / v - trace.detach()


def normal_noise(rng: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers as a tensor."""
    return torch.from_numpy(rng.standard_normal(shape))


def parts_of(n: int, some: int) -> list[slice]:
    """Slices of at most ``some`` rows that cover n."""
    return [slice(i, i + some) for i in range(0, n, some)]


def tensors_of(
    Z: Array, sigma: Array, codes: Any, part: slice = slice(None)
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Rows, noise levels and classes as tensors; one class stands for all rows."""
    x, level = (torch.from_numpy(np.array(a)) for a in (Z, sigma))
    if codes is None:
        return x, level, None
    told = codes[part] if np.ndim(codes) else np.broadcast_to(codes, len(Z))
    return x, level, torch.as_tensor(np.array(told))
