"""Gaps in rows, and rows on conditions, by proposals from a flow's mixture.

    E[x_gap | x_rest] ≈ Σ wᵢxᵢ/Σ wᵢ,   xᵢ ~ r(· | x_rest),   wᵢ = p(xᵢ)/r(xᵢ)

A mixture's conditional distribution is a mixture again; the flow's density corrects it
by self-normalised importance weights. Rows on conditions are such proposals, taken by
their weights; a proposal outside a range has none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp

from certus.base import generator_of
from certus.generative.starts import MixtureStart
from certus.typing import Array

#: Proposals for each row, and of a batch where rows are drawn on conditions.
DRAWS, BATCH = 512, 4096
#: Proposals inside the ranges for each row that is asked for, and batches at most.
EACH, BATCHES = 8, 200


def imputed(model: Any, X: Array, random_state: Any) -> Array:
    """Rows of float64 with their gaps filled.

    Parameters
    ----------
    model : NormalizingFlow
        Fitted.
    X : float64 array of shape (n, d)
        In the units of the fit, NaN where a value is missing.
    random_state : int, RandomState or None
        Seed or generator of all random numbers.
    """
    rng, scaled = generator_of(random_state), model._scaled
    X = np.where(np.isnan(X) & ~scaled.varies, scaled.loc, X)
    Z = scaled.inner(X)
    means, precisions, log_shares = _precisions(model.mixture_)
    for i in np.flatnonzero(np.isnan(Z).any(axis=1)):
        gap = np.isnan(Z[i])
        proposals = _conditional(Z[i], gap, means, precisions, log_shares, rng, DRAWS)
        log_r = model.mixture_.score_samples(proposals)
        w = model._log_density(proposals) - log_r
        w = np.exp(w - logsumexp(w))
        Z[i, gap] = w @ proposals[:, gap]
    filled = scaled.outer(Z)
    return np.where(np.isnan(X), filled, X)


def rows_by_weight(
    model: Any, n: int, ends: tuple[Array, Array], rng: np.random.Generator
) -> Array:
    """Standardised rows of a flow that lie in a box.

    Parameters
    ----------
    model : NormalizingFlow
        Fitted.
    n : int
        How many rows.
    ends : tuple of arrays of shape (d,)
        Lowest and highest number of each standardised column.
    rng : numpy.random.Generator
        Random numbers.
    """
    low, high = ends
    row = np.where(low == high, low, np.nan)
    gap, parts = np.isnan(row), _precisions(model.mixture_)
    kept: list[Array] = []
    for _ in range(BATCHES):
        if not gap.any():
            return np.tile(row, (n, 1))
        Z = _conditional(row, gap, *parts, rng, BATCH)
        kept.append(Z[((low <= Z) & (high >= Z))[:, gap].all(axis=1)])
        if sum(map(len, kept)) >= EACH * n:
            break
    Z = np.concatenate(kept)
    if len(Z) < n:
        raise ValueError(
            f"only {len(Z):,} of {BATCHES * BATCH:,} proposals met the conditions, and "
            f"{n:,} rows were asked for. Widen a range, or give a value instead."
        )
    w = model._log_density(Z) - model.mixture_.score_samples(Z)
    w = np.exp(w - w.max()) + 1e-300
    return Z[rng.choice(len(Z), n, replace=False, p=w / w.sum())]


def _precisions(mixture: Any) -> tuple[Array, Array, Array]:
    """Means, precision matrices and log-shares of a mixture."""
    shares, means, U = MixtureStart.of(mixture)
    if U.ndim == 2:
        U = U[:, :, None] * np.eye(U.shape[1])
    return means, U @ U.swapaxes(1, 2), np.log(np.maximum(shares, 1e-300))


def _conditional(
    row: Array,
    gap: Array,
    means: Array,
    precisions: Array,
    log_shares: Array,
    rng: np.random.Generator,
    count: int,
) -> Array:
    """Rows from the mixture's distribution of the gaps, given the rest of a row."""
    k, rest = len(means), ~gap
    centres, roots = np.empty((k, gap.sum())), []
    weight = log_shares.copy()
    for j in range(k):
        P = precisions[j]
        inner, off = P[np.ix_(gap, gap)], row[rest] - means[j, rest]
        L = np.linalg.cholesky(inner)
        shift = np.linalg.solve(inner, P[np.ix_(gap, rest)] @ off)
        centres[j] = means[j, gap] - shift
        roots.append(L)
        # log N(x_rest): the precision of the rest is a Schur complement.
        S = P[np.ix_(rest, rest)] - P[np.ix_(rest, gap)] @ np.linalg.solve(
            inner, P[np.ix_(gap, rest)]
        )
        weight[j] += 0.5 * (np.linalg.slogdet(S)[1] if rest.any() else 0.0)
        weight[j] -= 0.5 * off @ S @ off
    p = np.exp(weight - logsumexp(weight))
    which = rng.choice(k, count, p=p / p.sum())
    found = np.tile(row, (count, 1))
    e = rng.standard_normal((count, int(gap.sum())))
    for j in np.unique(which):
        at = which == j
        step = np.linalg.solve(roots[j].T, e[at].T).T
        found[np.ix_(at, gap)] = centres[j] + step
    return found
