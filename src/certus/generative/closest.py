"""The Gaussian that is nearest to a mixture, in either direction of the KL divergence.

    forward  min over N of KL(P‖N): N has the mean and variance of P, and covers it
    reverse  min over N of KL(N‖P): N avoids places where P is small; it sits on a mode

The first is a maximum-likelihood fit, the second what variational inference minimises.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import logsumexp, roots_hermitenorm

from certus.base import check_choice
from certus.generative.inputs import finite_array, probabilities, same_shape
from certus.typing import Array, ArrayLike

#: Nodes of the Gauss–Hermite rule for expectations under N.
NODES = 120


class ClosestGaussian(NamedTuple):
    """A Gaussian, and its divergence from the mixture in the direction asked for."""

    mean: float
    variance: float
    divergence: float


def closest_gaussian(
    weights: ArrayLike,
    means: ArrayLike,
    variances: ArrayLike,
    *,
    direction: str = "forward",
) -> ClosestGaussian:
    """The Gaussian on the line with the least KL divergence from a mixture P.

    Parameters
    ----------
    weights, means, variances : array-like of shape (n_components,)
        The mixture P; weights sum to 1, variances are positive.
    direction : {"forward", "reverse"}, default="forward"
        ``"forward"`` minimises KL(P‖N), in closed form. ``"reverse"`` minimises
        KL(N‖P) from each component and from the moments of P, and keeps the best; the
        problem is not convex.

    Returns
    -------
    ClosestGaussian
        Mean, variance, and the divergence by quadrature.

    Examples
    --------
    >>> from certus.generative import closest_gaussian
    >>> P = [0.5, 0.5], [-4.0, 4.0], [1.0, 1.0]
    >>> closest_gaussian(*P)[:2]
    (0.0, 17.0)
    >>> found = closest_gaussian(*P, direction="reverse")
    >>> round(abs(found.mean), 2), round(found.variance, 2)
    (4.0, 1.0)
    """
    check_choice("direction", direction, ("forward", "reverse"))
    w, m = probabilities("weights", weights), finite_array("means", means, 1)
    v = finite_array("variances", variances, 1)
    same_shape("weights", "means", w, m)
    same_shape("weights", "variances", w, v)
    if (v <= 0).any():
        raise ValueError(f"variances must be positive, got {v.min():.4g}.")
    mean = float(w @ m)
    variance = float(w @ (v + (m - mean) ** 2))
    if direction == "forward":
        return ClosestGaussian(mean, variance, _forward(w, m, v, mean, variance))
    starts = [(mean, variance), *zip(m.tolist(), v.tolist())]
    found = [
        minimize(
            lambda point: _reverse(w, m, v, point[0], point[1]),
            [start, math.log(spread)],
            method="BFGS",
            options={"gtol": 1e-9},
        )
        for start, spread in starts
    ]
    best = min(found, key=lambda one: one.fun)
    return ClosestGaussian(float(best.x[0]), math.exp(best.x[1]), float(best.fun))


def _log_density(w: Array, m: Array, v: Array, x: Array) -> Array:
    part = -0.5 * ((x[..., None] - m) ** 2 / v + np.log(2 * np.pi * v))
    return logsumexp(part, b=w, axis=-1)


def _reverse(w: Array, m: Array, v: Array, mean: float, log_variance: float) -> float:
    """KL(N‖P) = E_N log N − E_N log P."""
    nodes, rule = roots_hermitenorm(NODES)
    x = mean + math.exp(0.5 * log_variance) * nodes
    cross = float(rule @ _log_density(w, m, v, x)) / math.sqrt(2 * math.pi)
    return -0.5 * (1.0 + math.log(2 * math.pi) + log_variance) - cross


def _forward(w: Array, m: Array, v: Array, mean: float, variance: float) -> float:
    """KL(P‖N) = E_P log P − E_P log N; the second mean is known, as moments agree."""

    def term(x: float) -> float:
        log_p = float(_log_density(w, m, v, np.array(x)))
        return math.exp(log_p) * log_p

    # Component by component: an adaptive rule would miss narrow ones far apart.
    edges = np.unique([m - 40 * np.sqrt(v), m, m + 40 * np.sqrt(v)])
    total = sum(quad(term, a, b, limit=200)[0] for a, b in pairwise(edges))
    return total + 0.5 * (1.0 + math.log(2 * math.pi * variance))
