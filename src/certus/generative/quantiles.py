"""Quantile maps: from uniform or normal noise to any distribution on the line.

    Q(u) = inf{x : F(x) ≥ u},   U uniform on (0, 1)  ⇒  Q(U) has the distribution F
    Z ~ N(0, 1)  ⇒  T(Z) = Q(Φ(Z)) has the distribution F, and T never decreases

T is the only map from N(0, 1) to F that never decreases, and so the optimal one for
convex costs. It needs noise without atoms: the image of a distribution with n atoms has
at most n atoms, whatever the map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr

from certus.base import check_number, generator_of
from certus.generative.inputs import finite_array, probabilities, same_shape
from certus.typing import Array, ArrayLike, RandomState

#: Brackets below this size are not halved any more.
LEAST = 1e-60


class QuantileMap:
    """Q(u) = inf{x : F(x) ≥ u}: turns uniform numbers into draws of F.

    Parameters
    ----------
    quantile : callable, optional
        Q, for example ``scipy.stats.expon.ppf``.
    cdf : callable, optional
        F, where no Q is known; Q is then found by bisection.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import QuantileMap
    >>> exponential = QuantileMap(lambda u: -np.log1p(-u))
    >>> exponential([0.5, 0.9]).round(4)
    array([0.6931, 2.3026])
    >>> QuantileMap.discrete([10, 20], [0.3, 0.7])([0.3, 0.31])
    array([10., 20.])
    """

    def __init__(
        self,
        quantile: Callable[[Array], Any] | None = None,
        *,
        cdf: Callable[[Array], Any] | None = None,
    ) -> None:
        if (quantile is None) == (cdf is None):
            raise TypeError("Pass either quantile or cdf.")
        if cdf is not None:
            self._quantile: Callable[[Array], Any] = lambda u: bisect(cdf, u)
        elif quantile is not None:
            self._quantile = quantile

    @classmethod
    def discrete(cls, values: ArrayLike, probs: ArrayLike) -> QuantileMap:
        """The distribution of finitely many values.

        Parameters
        ----------
        values, probs : array-like of shape (n,)
            The values in any order, and their probabilities.
        """
        x, p = finite_array("values", values, 1), probabilities("probs", probs)
        same_shape("values", "probs", x, p)
        order = np.argsort(x, kind="stable")
        x, sums = x[order][p[order] > 0], np.cumsum(p[order])[p[order] > 0]
        sums[-1] = 1.0  # rounding

        return cls(lambda u: x[np.searchsorted(sums, u, side="left")])

    @classmethod
    def from_sample(cls, sample: ArrayLike) -> QuantileMap:
        """The empirical distribution of a sample: its values, each equally often."""
        x = np.sort(finite_array("sample", sample, 1))
        n = len(x)
        # ⌈nu⌉ − 1, where a product that is whole up to rounding counts as whole.
        return cls(lambda u: x[_places(n, u)])

    def __call__(self, u: ArrayLike) -> Any:
        """Q at numbers strictly between 0 and 1."""
        u = np.asarray(u, dtype=np.float64)
        if not ((u > 0) & (u < 1)).all():  # NaN fails as well
            raise ValueError("u must hold numbers strictly between 0 and 1.")
        return np.asarray(self._quantile(u))[()]

    def from_normal(self, z: ArrayLike) -> Any:
        """T(z) = Q(Φ(z)): noise → uniform → data."""
        z = finite_array("z", z)
        u = ndtr(z)
        # Beyond ±8 or so Φ rounds to 1; the largest number below it stands for it.
        return self(np.clip(u, np.finfo(float).tiny, np.nextafter(1.0, 0.0)))

    def sample(self, n_samples: int, *, random_state: RandomState = None) -> Array:
        """Draw n numbers of F, by inverse-transform sampling.

        Parameters
        ----------
        n_samples : int
            Number of draws.
        random_state : int, RandomState instance or None, default=None
            Seed or generator of all random numbers.
        """
        check_number("n", n_samples, 1, integer=True)
        # Multiples of 2⁻⁵³ that are moved by half of it: never 0 and never 1.
        u = generator_of(random_state).random(n_samples) + 2.0**-54
        return np.asarray(self(np.minimum(u, np.nextafter(1.0, 0.0))))


def _places(n: int, u: Array) -> Array:
    whole = np.rint(n * u)
    near = np.abs(n * u - whole) <= 4 * np.finfo(float).eps * np.maximum(whole, 1.0)
    places = np.where(near, whole, np.ceil(n * u)) - 1
    return np.clip(places, 0, n - 1).astype(np.intp)


def push_forward(
    transport: Callable[[Array], Any], points: ArrayLike, probs: ArrayLike
) -> tuple[Array, Array]:
    """The distribution of T(Z) for a discrete Z: its atoms and their probabilities.

    Parameters
    ----------
    transport : callable
        T, a function of an array of points.
    points : array-like of shape (n,) or (n, d)
        The atoms of Z.
    probs : array-like of shape (n,)
        Their probabilities.

    Returns
    -------
    atoms : ndarray
        Different values of T, sorted; never more than atoms of Z.
    probs : ndarray
        Their probabilities.

    Examples
    --------
    >>> from certus.generative import push_forward
    >>> push_forward(abs, [-1.0, 0.0, 1.0], [0.2, 0.5, 0.3])
    (array([0., 1.]), array([0.5, 0.5]))
    """
    z, p = finite_array("points", points), probabilities("probs", probs)
    if p.shape != z.shape[:1]:
        raise ValueError(
            f"probs must have one number for each of {len(z)} points, got shape "
            f"{p.shape}."
        )
    x = finite_array("transport(points)", transport(z))
    if len(x) != len(z):
        raise ValueError(f"transport must return {len(z)} values, got {len(x)}.")
    atoms, where = np.unique(x, axis=0, return_inverse=True)
    return atoms, np.bincount(np.ravel(where), weights=p, minlength=len(atoms))


def bisect(
    f: Callable[[Array], Any], target: ArrayLike, *, start: float = 1.0
) -> Array:
    """The smallest x with f(x) ≥ target, for a function that never decreases.

    The bracket grows by doubling from ±start, then it is halved until no number lies
    between its ends: x is found up to one rounding, or up to 1e-60.

    Parameters
    ----------
    f : callable
        Takes an array x of the shape of ``target``, entry by entry.
    target : array-like
        The values to reach.
    start : float, default=1.0
        Size of the first bracket.

    Examples
    --------
    >>> from certus.generative.quantiles import bisect
    >>> bisect(lambda x: x**3, [8.0, -27.0])
    array([ 2., -3.])
    """
    target = finite_array("target", target)
    check_number("start", start, 0, open_low=True)
    high, low = np.full(target.shape, start), np.full(target.shape, -start)
    for ends, sign in ((high, 1), (low, -1)):
        while True:
            values = _values(f, ends)
            short = values < target if sign > 0 else values >= target
            if not short.any():
                break
            if np.abs(ends[short]).max() > 1e307:
                raise ValueError(
                    f"target must be a value that the function reaches, got "
                    f"{target[short][0]:.6g}."
                )
            ends[short] *= 2.0
    for _ in range(1200):
        middle = low + 0.5 * (high - low)
        still = (middle > low) & (middle < high) & (high - low > LEAST)
        if not still.any():
            break
        above = _values(f, middle) >= target
        high = np.where(still & above, middle, high)
        low = np.where(still & ~above, middle, low)
    return high


def _values(f: Callable[[Array], Any], x: Array) -> Array:
    with np.errstate(over="ignore"):
        values = np.asarray(f(x), dtype=np.float64)
    if values.shape != x.shape or np.isnan(values).any():
        raise ValueError(
            f"The function must return numbers of shape {x.shape}, got shape "
            f"{values.shape}{' with NaN' * bool(np.isnan(values).any())}."
        )
    return values
