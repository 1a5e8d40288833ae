"""Increasing maps of one number whose parameters come from elsewhere; flows use them.

    v = f(u; t),   f increasing in u, and f(u; 0) = u

Each map gives v and log f′(u), and has an inverse. Data lie in about −1 ≤ u ≤ 1. With
σ₃(t) = 3 tanh(t/3) no parameter can grow beyond bounds, so slopes are bounded away from
zero for every input:

- affine:          v = (u − μ) exp(−α),  α = σ₃(t)
- monotone:        v = (u + ¹⁄ₖ Σ cₖ/aₖ tanh(aₖ(u − bₖ)) − μ) exp(−α) with
                   cₖ = (1 − ε)(exp σ₃(t) − 1) > −(1 − ε), so that slopes exceed ε e⁻³
- sum_of_squares:  v = εu + (1 − ε) ∫₀ᵘ Σₖ pₖ(s)² ds − μ, pₖ polynomials: of degree 1 in
                   all if they are constants, which is an affine map. Beyond ±2 it goes
                   on with the slope it has there
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

#: ε: the least slope.
LEAST = 1e-3
#: Polynomials go on as lines from here.
EDGE = 2.0
#: Largest number of rounds of an inverse.
ROUNDS = 200


def bounded(t: Tensor, most: float = 3.0) -> Tensor:
    """Between −most and most, with slope 1 at zero."""
    return most * torch.tanh(t / most)


def solve(
    g: Callable[[Tensor], tuple[Tensor, Tensor]], v: Tensor, low: Tensor
) -> Tensor:
    """The u with g(u) = v, by Newton's steps inside a bracket that shrinks.

    Parameters
    ----------
    g : callable
        An increasing function: its value and its slope.
    v : Tensor
        What it must give.
    low : Tensor
        Half the width of a bracket around v that holds the solution.
    """
    a, b = v - low, v + low
    u, eps = v.clone(), torch.finfo(v.dtype).eps
    for _ in range(ROUNDS):
        value, slope = g(u)
        off = value - v
        a, b = torch.where(off <= 0, u, a), torch.where(off >= 0, u, b)
        new = u - off / slope
        inside = (new > a) & (new < b)
        new = torch.where(inside, new, 0.5 * (a + b))
        moved, u = (new - u).abs(), new
        if bool((moved <= 2 * eps * (1 + u.abs())).all()):
            break
    return u


class ShiftScale:
    """v = (u − μ) exp(−α)."""

    n_params = 2

    def __call__(self, u: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """The moved u and the log slope; parameters are the last axis of t."""
        mu, alpha = t.unbind(-1)  # one pass back, where two indices would be three
        log_slope = 3.0 * torch.tanh(alpha / -3.0)  # −σ₃(α) without a further pass
        return (u - mu) * torch.exp(log_slope), log_slope

    def inverse(self, v: Tensor, t: Tensor) -> Tensor:
        """The u that gives v."""
        return v * torch.exp(bounded(t[..., 1])) + t[..., 0]


class Monotone:
    """A sum of steps of any height above −1, then an affine map.

    Parameters
    ----------
    units : int
        Number of steps.
    """

    def __init__(self, units: int) -> None:
        self.units, self.n_params = units, 3 * units + 2

    def _parts(self, t: Tensor) -> tuple[Tensor, ...]:
        k = self.units
        c = (1 - LEAST) * torch.expm1(bounded(t[..., :k])) / k
        a = 0.5 * k * torch.exp(bounded(t[..., k : 2 * k], 2.0))
        places = torch.linspace(-1, 1, k, dtype=t.dtype, device=t.device)
        b = places + t[..., 2 * k : 3 * k]
        return c, a, b, t[..., -2], bounded(t[..., -1])

    @staticmethod
    def _steps(u: Tensor, c: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """The sum u + Σ c/a tanh(a(u − b)), and its slope."""
        h = torch.tanh(a * (u[..., None] - b))
        return u + (c / a * h).sum(-1), 1 + (c * (1 - h * h)).sum(-1)

    def __call__(self, u: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """The moved u and the log slope; parameters are the last axis of t."""
        c, a, b, mu, alpha = self._parts(t)
        w, slope = self._steps(u, c, a, b)
        return (w - mu) * torch.exp(-alpha), torch.log(slope) - alpha

    def inverse(self, v: Tensor, t: Tensor) -> Tensor:
        """The u that gives v, by search."""
        c, a, b, mu, alpha = self._parts(t)
        w = v * torch.exp(alpha) + mu
        return solve(lambda u: self._steps(u, c, a, b), w, (c / a).abs().sum(-1))


class SumOfSquares:
    """The integral of a sum of squared polynomials.

    Parameters
    ----------
    degree : int
        Degree of the polynomials; the map has degree 2·degree + 1.
    terms : int
        Number of polynomials.
    """

    def __init__(self, degree: int, terms: int = 2) -> None:
        self.degree, self.terms = degree, terms
        self.n_params = terms * (degree + 1) + 1

    def _coefs(self, t: Tensor) -> Tensor:
        """Coefficients of the slope, from the constant on; at zero it is 1."""
        r, k = self.degree, self.terms
        a = bounded(t[..., :-1]).unflatten(-1, (k, r + 1))
        # Unequal constants of both signs: each polynomial learns something of its own.
        first = [(-1) ** i * math.sqrt(2 * (i + 1) / (k * (k + 1))) for i in range(k)]
        start = torch.zeros(k, r + 1, dtype=t.dtype, device=t.device)
        start[:, 0] = torch.tensor(first, dtype=t.dtype)
        a = a + start
        sums = [
            sum(
                (a[..., i] * a[..., n - i]).sum(-1)
                for i in range(max(0, n - r), min(n, r) + 1)
            )
            for n in range(2 * r + 1)
        ]
        q = (1 - LEAST) * torch.stack(sums, -1)
        return torch.cat([q[..., :1] + LEAST, q[..., 1:]], -1)

    @staticmethod
    def _integral(u: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """The integral ∫₀ᵘ Σ qₙsⁿ ds and its slope, by Horner's rule; lines beyond."""
        at, n = u.clamp(-EDGE, EDGE), q.shape[-1]
        slope, total = q[..., -1], q[..., -1] / n
        for i in range(n - 2, -1, -1):
            slope = slope * at + q[..., i]
            total = total * at + q[..., i] / (i + 1)
        slope = slope.clamp(min=LEAST)  # a sum of squares, rounded
        return total * at + slope * (u - at), slope

    def __call__(self, u: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """The moved u and the log slope; parameters are the last axis of t."""
        value, slope = self._integral(u, self._coefs(t))
        return value - t[..., -1], torch.log(slope)

    def inverse(self, v: Tensor, t: Tensor) -> Tensor:
        """The u that gives v, by search."""
        q, w = self._coefs(t), v + t[..., -1]
        return solve(lambda u: self._integral(u, q), w, w.abs() / LEAST + 1)
