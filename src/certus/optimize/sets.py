"""Convex sets and the projections onto them: P(w) = argmin_{v in C} ‖v − w‖.

Balls in the l1, l2 and l∞ norm, boxes, the simplex, half-spaces, and intersections of
any of these (Dykstra's method). A projection is unique, idempotent and never stretches
distances; (w − Pw)ᵀ(v − Pw) ≤ 0 for every v in the set characterises it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from certus.typing import Array


def _vector(w: Any) -> Array:
    return np.asarray(w, dtype=np.float64)


def as_projection(constraint: Any) -> Callable[[Array], Array]:
    """The projection onto a set; the identity where there is none."""
    if constraint is None:
        return _vector
    if not hasattr(constraint, "project"):
        raise TypeError(
            "constraint must have a method project(w); see certus.optimize."
        )
    return cast(Callable[[Array], Array], constraint.project)


class Ball(NamedTuple):
    """‖v − center‖_p ≤ radius for p = 1, 2 or ∞.

    Attributes
    ----------
    radius : float
    p : {1, 2, inf}, default=2
    center : float or array-like, default=0

    Examples
    --------
    >>> from certus.optimize import Ball
    >>> Ball(1.0).project([3.0, 4.0])
    array([0.6, 0.8])
    >>> Ball(1.0, p=1).project([3.0, 2.5])
    array([0.75, 0.25])
    """

    radius: float
    p: float = 2
    center: Any = 0.0

    def project(self, w: Any) -> Array:
        """The nearest point of the ball; O(d), for p = 1 O(d log d)."""
        if not self.radius >= 0:
            raise ValueError(f"radius must not be negative, got {self.radius!r}.")
        z = _vector(w) - self.center
        if self.p == 2:
            largest = float(np.abs(z).max(initial=0.0))
            unit = z / (largest or 1.0)  # its squares neither vanish nor overflow
            size = float(np.linalg.norm(unit))
            outside = largest * size > self.radius
            inside = unit * (self.radius / size) if outside else z
        elif self.p == np.inf:
            inside = np.clip(z, -self.radius, self.radius)
        elif self.p == 1:
            inside = z
            if np.abs(z).sum() > self.radius:
                inside = np.sign(z) * _simplex(np.abs(z), self.radius)
        else:
            raise ValueError(
                "p must be 1, 2 or inf, for which projections are "
                f"known; got {self.p!r}."
            )
        return inside + self.center

    def contains(self, w: Any, tol: float = 1e-10) -> bool:
        """Whether ``w`` is in the ball, up to ``tol``."""
        z = _vector(w) - self.center
        return bool(np.linalg.norm(z, self.p) <= self.radius * (1 + tol) + tol)


class Box(NamedTuple):
    """low ≤ v ≤ high, coordinate by coordinate; infinities are allowed.

    Examples
    --------
    >>> from certus.optimize import Box
    >>> Box(0.0, 1.0).project([-2.0, 0.5, 3.0])
    array([0. , 0.5, 1. ])
    """

    low: Any
    high: Any

    def project(self, w: Any) -> Array:
        """The nearest point of the box; O(d)."""
        if np.any(np.asarray(self.low) > np.asarray(self.high)):
            raise ValueError("the box is empty: some low exceeds its high.")
        return np.clip(_vector(w), self.low, self.high)

    def contains(self, w: Any, tol: float = 1e-10) -> bool:
        """Whether ``w`` is in the box, up to ``tol``."""
        w = _vector(w)
        low, high = np.asarray(self.low) - tol, np.asarray(self.high) + tol
        return bool(np.all(w >= low) and np.all(w <= high))


class Simplex(NamedTuple):
    """v ≥ 0 with Σv = total.

    Examples
    --------
    >>> from certus.optimize import Simplex
    >>> Simplex().project([0.5, 1.0])
    array([0.25, 0.75])
    """

    total: float = 1.0

    def project(self, w: Any) -> Array:
        """The nearest point of the simplex; O(d log d)."""
        if not self.total > 0:
            raise ValueError(f"total must be positive, got {self.total!r}.")
        return _simplex(_vector(w), self.total)

    def contains(self, w: Any, tol: float = 1e-10) -> bool:
        """Whether ``w`` is in the simplex, up to ``tol``."""
        w = _vector(w)
        total = abs(float(w.sum()) - self.total) <= tol * max(1.0, self.total)
        return total and bool(np.all(w >= -tol))


class HalfSpace(NamedTuple):
    """aᵀv ≤ b.

    Examples
    --------
    >>> from certus.optimize import HalfSpace
    >>> HalfSpace([1.0, 1.0], 0.0).project([1.0, 1.0])
    array([0., 0.])
    """

    a: Any
    b: float

    def project(self, w: Any) -> Array:
        """The nearest point of the half-space; O(d)."""
        w, a = _vector(w), _vector(self.a)
        size = float(a @ a)
        if size == 0:
            raise ValueError("a half-space needs a normal vector that is not zero.")
        return w - max(0.0, float(a @ w) - self.b) / size * a

    def contains(self, w: Any, tol: float = 1e-10) -> bool:
        """Whether ``w`` is in the half-space, up to ``tol``."""
        a = _vector(self.a)
        return bool(a @ _vector(w) <= self.b + tol * max(1.0, float(np.linalg.norm(a))))


class Intersection(NamedTuple):
    """Points common to all ``sets``; projected onto by Dykstra's method.

    The answer is a limit, computed until a round moves it by less than ``tol``; sets
    without a common point are refused after ``max_iter`` rounds.

    Examples
    --------
    >>> from certus.optimize import Ball, HalfSpace, Intersection
    >>> both = Intersection((Ball(1.0), HalfSpace([0.0, 1.0], 0.0)))
    >>> both.project([2.0, 1.0]).round(6)
    array([1., 0.])
    """

    sets: tuple[Any, ...]
    tol: float = 1e-12
    max_iter: int = 100_000

    def project(self, w: Any) -> Array:
        """The nearest common point; a round costs one projection onto each set."""
        x = _vector(w)
        if len(self.sets) == 1:
            return self.sets[0].project(x)
        corrections = [np.zeros_like(x) for _ in self.sets]
        scale = self.tol * (1 + float(np.linalg.norm(x)))
        for _ in range(self.max_iter):
            change = 0.0
            for i, part in enumerate(self.sets):
                shifted = x + corrections[i]
                x = part.project(shifted)
                # Dykstra may rest in one place while its corrections still move.
                change += float(np.linalg.norm(shifted - x - corrections[i]))
                corrections[i] = shifted - x
            if change <= scale:
                return x
        if not self.contains(x, 1e-6):
            raise ValueError(
                "the sets have no common point, or almost none: the projection does "
                f"not converge in {self.max_iter:,} rounds."
            )
        return x

    def contains(self, w: Any, tol: float = 1e-10) -> bool:
        """Whether ``w`` is in all sets, up to ``tol``."""
        return all(part.contains(w, tol) for part in self.sets)


def _simplex(w: Array, total: float) -> Array:
    """Nearest v ≥ 0 with Σv = total: shift by a threshold and cut at zero."""
    if total == 0:
        return np.zeros_like(w)
    ordered = np.sort(w)[::-1]
    shifts = (np.cumsum(ordered) - total) / np.arange(1, w.size + 1)
    support = np.flatnonzero(ordered > shifts)
    # The first entry always qualifies but for rounding.
    threshold = shifts[support[-1] if support.size else 0]
    return np.maximum(w - threshold, 0.0)


def linear_maximizer(z: Any, p: float) -> Array:
    """The v with ‖v‖_p ≤ 1 that makes vᵀz largest; vᵀz is then the dual norm ‖z‖_q.

    Parameters
    ----------
    z : array-like of shape (d,)
        The linear function.
    p : float
        At least 1; ``inf`` is allowed.

    Returns
    -------
    ndarray of shape (d,)
        ``sign(z)·abs(z)^{q−1}/‖z‖_q^{q−1}`` with 1/p + 1/q = 1; for p = 1 all mass is
        on the largest entry (the first of several), for z = 0 it is zero.

    Examples
    --------
    >>> from certus.optimize import linear_maximizer
    >>> linear_maximizer([3.0, -4.0], 2)
    array([ 0.6, -0.8])
    >>> linear_maximizer([3.0, -4.0], 1)
    array([ 0., -1.])
    """
    z = _vector(z)
    if not p >= 1:
        raise ValueError(f"p must be at least 1, got {p!r}.")
    v = np.zeros_like(z)
    largest = float(np.abs(z).max(initial=0.0))
    if largest == 0:
        return v
    if p == 1:
        i = int(np.argmax(np.abs(z)))
        v[i] = np.sign(z[i])
        return v
    if p == np.inf:
        return np.sign(z)
    q = p / (p - 1)
    shape = np.abs(z / largest) ** (q - 1)
    return np.sign(z) * shape / np.linalg.norm(shape, p)
