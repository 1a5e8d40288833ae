"""Rows on conditions, by models that draw by codes or in steps.

A variational autoencoder has p(z | conditions) ∝ N(z; 0, I)·Π P(condition j | z), and
given z its columns are independent. Codes are drawn from the prior and taken by weight;
Markov chains then move each of them on, and keep this distribution:
- a class, where it is open, by its probability given the code (Gibbs' sampler);
- z' = √(1 − b²)·z + b·η, accepted by the ratio of the conditions' probabilities;
- a whole row given z, and a new code that the encoder proposes, accepted by
  Metropolis' rule.

A diffusion model draws rows and keeps those inside the ranges, which is exact. Columns
of a known value are put back at each noise level, which is not: see ``filling``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import log_expit, log_ndtr, ndtri_exp

from certus.generative.filling import drawn_around
from certus.generative.given import chosen_by_weight, require_possible
from certus.generative.noise_flow import noise_to_rows
from certus.generative.vae_likelihood import paired, sigmoid
from certus.typing import Array

#: Codes of the prior from which those of rows are taken, and rounds of the chains.
POOL, ROUNDS = 4096, 60
#: Spreads b of a move, from which one is drawn evenly in log b.
MOVES = (0.02, 1.0)
#: Standard deviations from the model's rows at which a value is refused.
FAR = 6.0
#: Rows of a diffusion model that are tried at first, and at most for each one.
TRIED, EACH = 4096, 200
#: Passes at each noise level where a value is known. Of two groups whose exact shares
#: are 0.76 and 0.24, 4, 16 and 32 passes give the first 0.56, 0.68 and 0.72.
PASSES = 16
#: Noise level at which a diffusion model says how far known values are from its rows.
LOOK = 0.3


class GivenRows(NamedTuple):
    """Standardised rows, and numbers of their classes or None."""

    Z: Array
    codes: Array | None


# -- variational autoencoders -------------------------------------------------------


def rows_by_codes(
    model: Any,
    n: int,
    ends: tuple[Array, Array],
    codes: Array | None,
    rng: np.random.Generator,
) -> GivenRows:
    """Rows of a variational autoencoder that meet conditions.

    Parameters
    ----------
    model : VariationalAutoencoder
        Fitted.
    n : int
        How many.
    ends : tuple of arrays of shape (d,)
        Lowest and highest number of each standardised column.
    codes : int array of shape (n,) or None
        Numbers of their classes; with None, classes follow the conditions.
    rng : numpy.random.Generator
        Random numbers.
    """
    law = _BernoulliLaw if model.likelihood == "bernoulli" else _NormalLaw
    chains = _Chains(model, law(model, *ends), rng)
    if codes is None:
        found, drawn = chains.run(n, None)
        return GivenRows(found, drawn if hasattr(model, "classes_") else None)
    Z = np.empty((n, len(ends[0])))
    for c in np.unique(codes):
        at = codes == c
        Z[at] = chains.run(int(at.sum()), int(c))[0]
    return GivenRows(Z, codes)


class _NormalLaw:
    """Columns given m(z): normal, cut to a range, or known."""

    def __init__(self, model: Any, low: Array, high: Array) -> None:
        self.low, self.high = low, high
        self.spread = math.sqrt(model.noise_variance_)
        self.known = low == high
        self.ranges = ~self.known & (np.isfinite(low) | np.isfinite(high))

    def log_mass(self, m: Array) -> Array:
        """Log-probability of the conditions at each code, up to a constant."""
        off = (self.low - m)[:, self.known] / self.spread
        a, b = (end[:, self.ranges] for end in self._ends(m))
        with np.errstate(over="ignore"):  # then it is minus infinity, and refused
            return np.asarray(
                _log_interval(a, b).sum(axis=1) - 0.5 * np.square(off).sum(axis=1)
            )

    def draw(self, m: Array, rng: np.random.Generator) -> Array:
        """Whole rows that meet the conditions."""
        x = m + self.spread * rng.standard_normal(m.shape)
        x[:, self.known] = self.low[self.known]
        a, b = (end[:, self.ranges] for end in self._ends(m))
        cut = m[:, self.ranges] + self.spread * _cut_normal(a, b, rng)
        x[:, self.ranges] = np.clip(cut, self.low[self.ranges], self.high[self.ranges])
        return np.asarray(x)

    def distance(self, m: Array) -> float:
        """Root mean square distance of m(z) from the conditions, in spreads."""
        off = np.maximum(np.maximum(self.low - m, m - self.high), 0.0) / self.spread
        at = self.known | self.ranges
        return float(np.sqrt(np.square(off[:, at]).mean(axis=1)).mean())

    def _ends(self, m: Array) -> tuple[Array, Array]:
        return (self.low - m) / self.spread, (self.high - m) / self.spread


class _BernoulliLaw:
    """Columns given m(z): zero or one, whichever the conditions leave."""

    def __init__(self, model: Any, low: Array, high: Array) -> None:
        self.zero, self.one = (low <= 0) & (high >= 0), (low <= 1) & (high >= 1)
        if not (self.zero | self.one).all():
            raise ValueError(
                'given must allow 0 or 1 in each column: with likelihood="bernoulli" '
                "there are no other values. Change the condition on that column."
            )

    def log_mass(self, m: Array) -> Array:
        """Log-probability of the conditions at each code."""
        only_one, only_zero = ~self.zero, ~self.one
        ones = log_expit(m[:, only_one]).sum(axis=1)
        return np.asarray(ones + log_expit(-m[:, only_zero]).sum(axis=1))

    def draw(self, m: Array, rng: np.random.Generator) -> Array:
        """Whole rows that meet the conditions."""
        x = rng.random(m.shape) < sigmoid(m)
        return np.where(~self.zero, 1.0, np.where(~self.one, 0.0, x))

    def distance(self, m: Array) -> float:
        """Zero: no value is impossible."""
        return 0.0


class _Chains:
    """Markov chains over codes, one for each row."""

    def __init__(self, model: Any, law: Any, rng: np.random.Generator) -> None:
        self.model, self.law, self.rng = model, law, rng
        self.network = model.network_
        self.k = self.network.config["n_components"]
        known = hasattr(model, "classes_")
        self.log_prior = np.log(model.class_prior_) if known else np.zeros(1)
        self.classes = len(self.log_prior) if known else 0

    @torch.no_grad()
    def run(self, n: int, code: int | None) -> tuple[Array, Array]:
        """Rows of one class, or of classes that follow the conditions."""
        is_open = code is None and self.classes > 0
        z, c = self._start(n, code)
        mass = self.law.log_mass(self._decode(z, c))
        for _ in range(ROUNDS):
            if is_open:
                c = self._classes(z)
                mass = self.law.log_mass(self._decode(z, c))
            z, mass = self._walk(z, c, mass)
            z, mass = self._encode(z, c, mass)
        m = self._decode(z, c)
        far = self.law.distance(m)
        if not far <= FAR:
            raise ValueError(
                f"the conditions are {far:.3g} standard deviations away from all rows "
                "of this model, so that nothing is known of such rows. Change one of "
                "them."
            )
        return self.law.draw(m, self.rng), c

    def _start(self, n: int, code: int | None) -> tuple[Array, Array]:
        """Codes and classes of the prior, taken by the conditions' probability."""
        size = max(POOL, 4 * n)
        z = self.rng.standard_normal((size, self.k))
        c = np.full(size, code or 0)
        if code is None and self.classes:
            p = self.model.class_prior_
            c = self.rng.choice(self.classes, size, p=p / p.sum())
        w = self.law.log_mass(self._decode(z, c))
        require_possible(w.max())
        p = np.exp(w - w.max())
        pick = self.rng.choice(size, n, p=p / p.sum())
        return z[pick], c[pick]

    def _classes(self, z: Array) -> Array:
        """A class for each code, by its probability."""
        each = [
            self.law.log_mass(self._decode(z, np.full(len(z), c))) + self.log_prior[c]
            for c in range(self.classes)
        ]
        return chosen_by_weight(np.column_stack(each), self.rng)

    def _walk(self, z: Array, c: Array, mass: Array) -> tuple[Array, Array]:
        """A move that keeps N(0, I), accepted by the conditions' probability."""
        low, high = (math.log(b) for b in MOVES)
        b = np.exp(self.rng.uniform(low, high, (len(z), 1)))
        new = np.sqrt(1 - b**2) * z + b * self.rng.standard_normal(z.shape)
        ahead = self.law.log_mass(self._decode(new, c))
        take = np.log(self.rng.random(len(z))) < ahead - mass
        return np.where(take[:, None], new, z), np.where(take, ahead, mass)

    def _encode(self, z: Array, c: Array, mass: Array) -> tuple[Array, Array]:
        """A code that the encoder proposes for a whole row with the code z."""
        x, told = paired(self.law.draw(self._decode(z, c), self.rng), self._told(c))
        code = self.network.encode(x, told)
        noise = torch.from_numpy(self.rng.standard_normal(z.shape))
        new = code.mean + (0.5 * code.log_variance).exp() * noise
        old = torch.from_numpy(z)
        ahead, here = (
            self.network.log_likelihood(x, self.network.decode(v, told))
            - 0.5 * v.square().sum(dim=1)
            - code.log_prob(v)
            for v in (new, old)
        )
        gain = (ahead - here).numpy()
        take = np.log(self.rng.random(len(z))) < gain
        z = np.where(take[:, None], new.numpy(), z)
        return z, np.where(take, self.law.log_mass(self._decode(z, c)), mass)

    def _decode(self, z: Array, c: Array) -> Array:
        m: Array = self.network.decode(*paired(z, self._told(c))).numpy()
        return m

    def _told(self, c: Array) -> Array | None:
        return c if self.classes else None


def _log_interval(a: Array, b: Array) -> Array:
    """Log P(a < ξ < b) of a standard normal ξ, where the smaller tail has digits."""
    a, b = np.where(a > 0, -b, a), np.where(a > 0, -a, b)
    low, high = log_ndtr(a), log_ndtr(b)
    with np.errstate(invalid="ignore"):
        apart = np.where(np.isneginf(low), -np.inf, low - high)
    return np.asarray(high + np.log(-np.expm1(np.minimum(apart, -1e-300))))


def _cut_normal(a: Array, b: Array, rng: np.random.Generator) -> Array:
    """Standard normal numbers between a and b."""
    flip = a > 0
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    u = rng.random(a.shape)
    with np.errstate(divide="ignore"):
        logs = np.logaddexp(log_ndtr(a) + np.log1p(-u), log_ndtr(b) + np.log(u))
    found = ndtri_exp(logs)
    return np.where(flip, -found, found)


# -- diffusion models ---------------------------------------------------------------


def rows_by_steps(
    model: Any,
    n: int,
    ends: tuple[Array, Array],
    codes: Array | None,
    rng: np.random.Generator,
) -> GivenRows:
    """Rows of a diffusion model that meet conditions; parameters as above."""
    classes = hasattr(model, "classes_")
    if classes and codes is None and (ends[0] == ends[1]).any():
        raise ValueError(
            "A diffusion model does not know how frequent classes are among rows with "
            "a given value. Pass y, or a range instead of the value."
        )
    if codes is None:
        found, drawn = _kept(model, n, ends, None, rng)
        return GivenRows(found, drawn if classes else None)
    Z = np.empty((n, len(ends[0])))
    for c in np.unique(codes):
        at = codes == c
        Z[at] = _kept(model, int(at.sum()), ends, int(c), rng)[0]
    return GivenRows(Z, codes)


def _kept(
    model: Any,
    n: int,
    ends: tuple[Array, Array],
    code: int | None,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Rows inside the ranges and their classes, of one class or of all by shares."""
    low, high = ends
    row = np.where(low == high, low, np.nan)
    is_open = code is None and hasattr(model, "classes_")
    kept, drawn, got, tried = [], [], 0, 0
    # Among rows without a known value those inside are few, or none is found at all.
    while got < n and tried < TRIED + EACH * n and (got or tried < TRIED):
        rate = max(got, 1) / max(tried, 1)
        size = int(np.clip(1.2 * (n - got) / rate, min(n, 64), 1024))
        c = None if code is None else np.full(size, code)
        if is_open:
            c = rng.choice(len(model.classes_), size, p=model.class_prior_)
        made = _tried(model, np.tile(row, (size, 1)), c, rng)
        inside = ((low <= made) & (made <= high)).all(axis=1)
        kept.append(made[inside])
        drawn.append(np.zeros(size, int)[inside] if c is None else c[inside])
        got, tried = got + int(inside.sum()), tried + size
    if got < n:
        raise ValueError(
            f"{got:,} of {tried:,} rows that were drawn met the conditions, and {n:,} "
            "are asked for. Widen a range, or ask for fewer rows."
        )
    return np.concatenate(kept)[:n], np.concatenate(drawn)[:n]


def _tried(
    model: Any, rows: Array, codes: Array | None, rng: np.random.Generator
) -> Array:
    """Rows with the known columns as they are given."""
    known = ~np.isnan(rows[0])
    if not known.any():
        return noise_to_rows(model, len(rows), codes, rng)
    with np.errstate(all="ignore"):
        made = drawn_around(model, rows, rng, codes, PASSES)
        far = _distance(model, made, known, codes)
    if not far <= FAR:
        raise ValueError(
            f"the given values are {far:.3g} standard deviations away from all rows of "
            "this model, so that nothing is known of such rows. Change one of them."
        )
    return made


@torch.no_grad()
def _distance(model: Any, made: Array, known: Array, codes: Array | None) -> float:
    """How far the denoiser would move known values, in units of the noise.

    It is the score σ∇log p_σ, which is large where the model has no rows.
    """
    c = None if codes is None else torch.as_tensor(codes)
    D: Array = model._guided(torch.from_numpy(made), LOOK, c).numpy()
    off = (D - made)[:, known] / LOOK
    return float(np.sqrt(np.square(off).mean(axis=1)).mean())
