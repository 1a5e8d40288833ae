"""What an attacker may do to a row: a ball around it, cut by the box of valid values.

    {x̂ : ‖x̂ − x‖_p ≤ radius, low ≤ x̂ ≤ high}

The radius is in the units of the user's rows, before any scaling. The
same lines serve NumPy arrays and torch tensors; the first axis counts rows, the others
are one long vector for each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace

__all__ = ["ThreatModel"]

_NAMES = {"l1": 1.0, "l2": 2.0, "linf": math.inf, "inf": math.inf}
#: Steps towards the nearest point of ball and box; every one of them is in both.
_STEPS = 25
#: Multiples of the radius from which on entries count as far out.
_FAR = 1e9
#: Largest entry of a row, for any precision.
_NEAR = 2.0**14


@dataclass(frozen=True)
class ThreatModel:
    """All rows within ``radius`` of a given one that are valid.

    Parameters
    ----------
    norm : {"l1", "l2", "linf"} or float
        The p of the norm, at least 1.
    radius : float
        In the units of the raw rows; 0 allows nothing, inf everything in the box.
    low, high : float or array-like of the shape of a row, default=-inf, inf
        Smallest and largest valid value of each entry.
    fixed : array-like of bool of the shape of a row, optional
        Entries that may not change at all; none by default.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.robustness import ThreatModel
    >>> threat = ThreatModel("l2", 1.0, low=0.0)
    >>> threat.project(np.array([[3.0, 4.0]]), np.zeros((1, 2)))
    array([[0.6, 0.8]])
    >>> ThreatModel.parse("linf:0.1")
    ThreatModel(norm=inf, radius=0.1, low=-inf, high=inf)
    """

    norm: Any
    radius: float
    low: Any = -math.inf
    high: Any = math.inf
    fixed: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", _norm(self.norm))
        object.__setattr__(self, "radius", _radius(self.radius))
        if np.any(np.isnan(self.low)) or np.any(np.isnan(self.high)):
            raise ValueError("low and high must be numbers, got NaN.")
        if np.any(np.asarray(self.low) > np.asarray(self.high)):
            raise ValueError("low must not be above high; swap them, or widen the box.")
        if self.fixed is not None and np.asarray(self.fixed).dtype != bool:
            raise ValueError("fixed must be True or False for each entry of a row.")

    @classmethod
    def parse(cls, text: str, low: Any = -math.inf, high: Any = math.inf) -> Any:
        """Read a threat from a text such as ``"linf:0.1"`` or ``"l2:1.5"``."""
        name, _, radius = text.partition(":")
        try:
            size = float(radius)
        except ValueError:
            size = math.nan  # not a radius either
        try:
            return cls(name.strip(), size, low, high)
        except ValueError as error:
            reason = f" ({error})" if math.isfinite(size) else ""
            raise ValueError(
                f"{text!r} is not a threat. Write l1, l2 or linf, a colon and a "
                f"radius, as in linf:0.1.{reason}"
            ) from None

    @property
    def dual(self) -> float:
        """The q with 1/p + 1/q = 1: what the ball does to a linear function."""
        if self.norm == 1:
            return math.inf
        return 1.0 if self.norm == math.inf else self.norm / (self.norm - 1)

    def within(self, radius: float) -> ThreatModel:
        """The same threat with another radius."""
        return replace(self, radius=radius)

    def rounded(self, X: Any) -> ThreatModel:
        """The same threat with the box rounded to the precision of X.

        A float32 row can meet an end of the box only to about seven digits.
        """
        kind = X.dtype if np.issubdtype(X.dtype, np.floating) else np.float64
        ends = (np.asarray(end, dtype=kind) for end in (self.low, self.high))
        low, high = (end.astype(np.float64) if end.ndim else float(end) for end in ends)
        return replace(self, low=low, high=high)

    def bounded(self, X: Any) -> ThreatModel:
        """The same threat with a finite radius: the largest that the box allows."""
        if math.isfinite(self.radius):
            return self
        diagonal = self._diagonal(X)
        if not math.isfinite(diagonal):
            raise ValueError(
                "the threat has no bound: give it a finite radius, or low and high. "
                "For the smallest change of any size use DeepFool() or Boundary()."
            )
        return self.within(diagonal)

    def reachable(self, X: Any) -> ThreatModel:
        """The same threat with the radius that attacks on X need.

        It is at most what the box allows, and small enough that squares do not
        overflow.
        """
        far = min(self._diagonal(X), farthest(X))
        return self.within(min(self.bounded(X).radius, far))

    def _diagonal(self, X: Any) -> float:
        """The distance between the ends of the box."""
        width = np.subtract(self.high, self.low, dtype=np.float64)
        if self.fixed is not None:
            width = np.where(self.fixed, 0.0, width)
        return float(row_norms(np.broadcast_to(width, (1, *X.shape[1:])), self.norm)[0])

    def check_rows(self, X: Any) -> None:
        """Refuse rows that are not valid themselves."""
        X = np.asarray(X)
        box = self.rounded(X)
        free = True if self.fixed is None else ~np.asarray(self.fixed)
        outside = np.any(
            ((box.low > X) | (box.high < X)) & free,
            axis=tuple(range(1, np.ndim(X))),
        )
        if outside.any():
            raise ValueError(
                f"{int(outside.sum()):,} of {len(outside):,} rows lie outside the box "
                f"(the first is row {int(np.argmax(outside))}). low and high must be "
                "in the same units as X. Widen them, or rescale X."
            )

    def distances(self, X_hat: Any, X: Any) -> Any:
        """‖x̂ − x‖_p of each pair of rows."""
        return row_norms(X_hat - X, self.norm)

    def contains(self, X_hat: Any, X: Any) -> Any:
        """Whether each x̂ may replace its x; in float64 and without any slack."""
        new, old = (np.asarray(A, dtype=np.float64) for A in (X_hat, X))
        low, high = self.box(old)
        inside = (new >= low) & (new <= high)
        near = self.distances(new, old) <= self.radius
        return near & _flat(inside).all(axis=1)

    def project(self, X_hat: Any, X: Any) -> Any:
        """The nearest row that is allowed; for p other than 1, 2, ∞ an allowed one.

        Where ball and box both bind, p = 2 is solved to about 1e-6 of the radius; the
        result is in both, up to rounding.
        """
        X = _real(X)
        low, high = self._room(X)
        D = X_hat - X
        if self.norm == math.inf:
            return X + self._cut(D, low, high)
        if self.norm == 1:
            return X + self._project_l1(D, low, high)
        xp = array_namespace(X)
        cut = xp.clip(D, low, high)
        if bool(xp.all(row_norms(cut, self.norm) <= self.radius)):
            return X + cut
        return X + self._filled(D, low, high, 1.0)

    def steepest(self, G: Any) -> Any:
        """For each row the v with ‖v‖_p ≤ 1 that makes vᵀg largest; 0 where g is 0."""
        G = _real(G)
        xp = array_namespace(G)
        if self.fixed is not None:
            G = xp.where(self._held(G), 0.0, G)
        if self.norm == math.inf or not G.shape[0]:
            return xp.sign(G)
        flat = _flat(G)
        size = abs(flat)
        if self.norm == 1:
            columns = xp.arange(flat.shape[1], device=_device(flat))
            first = columns == xp.argmax(size, axis=1, keepdims=True)
            return xp.reshape(xp.sign(flat) * xp.astype(first, flat.dtype), G.shape)
        # Entries by the largest one: their powers neither vanish nor overflow.
        largest = _positive(xp.max(size, axis=1, keepdims=True))
        shape = xp.sign(flat) * (size / largest) ** (self.dual - 1)
        shape = shape / column(_positive(row_norms(shape, self.norm)), shape)
        return xp.reshape(shape, G.shape)

    def worst(self, X: Any, G: Any) -> Any:
        """The allowed row that makes gᵀx̂ largest.

        The box is respected: an entry that may not move leaves its share of the radius
        to the others.
        """
        X = _real(X)
        xp = array_namespace(X)
        if not X.shape[0]:
            return X
        if not math.isfinite(self.radius):
            return self.bounded(X).worst(X, G)
        low, high = self._room(X)
        if self.norm == math.inf:
            return X + xp.clip(self.radius * xp.sign(G), low, high)
        if self.norm > 1:
            # With a multiplier for the ball, each entry goes t·|g|^(q−1) or to its end.
            return X + self._filled(self.steepest(G), low, high, self.radius * _FAR)
        room = xp.where(G > 0, high, xp.where(G < 0, -low, xp.zeros_like(X)))
        room = xp.clip(room, None, self.radius)
        flat, space = _flat(G), _flat(room)
        order = xp.argsort(-abs(flat), axis=1, stable=True)
        space = xp.take_along_axis(space, order, axis=1)
        before = xp.cumulative_sum(space, axis=1) - space
        used = xp.clip(xp.clip(self.radius - before, 0, None), None, space)
        back = xp.argsort(order, axis=1, stable=True)
        moved = xp.take_along_axis(used, back, axis=1)
        return X + xp.sign(G) * xp.reshape(moved, X.shape)

    def draw(self, X: Any, rng: np.random.Generator) -> Any:
        """Rows uniform in the ball (Barthe et al.'s construction), cut by the box."""
        X = _real(X)
        if not math.isfinite(self.radius):
            return self.bounded(X).draw(X, rng)
        n, d = len(X), math.prod(X.shape[1:])
        if self.norm == math.inf:
            D = rng.uniform(-1, 1, (n, d))
        else:
            # Entries with density ∝ exp(−|t|^p) and one more exponential.
            size = rng.gamma(1 / self.norm, size=(n, d)) ** (1 / self.norm)
            D = size * rng.choice([-1.0, 1.0], (n, d))
            total = (size**self.norm).sum(axis=1) + rng.standard_exponential(n)
            D /= (total ** (1 / self.norm))[:, None]
        xp = array_namespace(X)
        D = xp.asarray(self.radius * D, dtype=X.dtype, device=_device(X))
        low, high = self._room(X)
        return X + xp.clip(xp.reshape(D, X.shape), low, high)

    def box(self, X: Any) -> tuple[Any, Any]:
        """The ends between which each entry of the rows X may lie."""
        xp = array_namespace(X)
        low, high = (
            xp.asarray(bound, dtype=X.dtype, device=_device(X))
            for bound in (self.low, self.high)
        )
        if self.fixed is None:
            return low, high
        held = self._held(X)
        return xp.where(held, X, low), xp.where(held, X, high)

    def _held(self, X: Any) -> Any:
        """Where entries may not change, beside the rows X."""
        return array_namespace(X).asarray(self.fixed, device=_device(X))

    def _room(self, X: Any) -> tuple[Any, Any]:
        """How far each entry may fall and rise."""
        low, high = self.box(X)
        return low - X, high - X

    def _cut(self, D: Any, low: Any, high: Any) -> Any:
        xp = array_namespace(D)
        return xp.clip(xp.clip(D, -self.radius, self.radius), low, high)

    def _filled(self, D: Any, low: Any, high: Any, most: float) -> Any:
        """Clip(tD) with the t ≤ most for which its norm is the radius.

        Newton's steps on t: with the entries that are cut now, the norm to the power p
        is a + bt^p. More are cut as t rises, so that t rises to the solution and never
        passes it, and the entries that are cut settle after a few steps.
        """
        xp, p, radius = array_namespace(D), self.norm, self.radius
        tiny = xp.finfo(D.dtype).smallest_normal
        # Entries by the largest one, which t takes over: no power overflows.
        largest = _positive(xp.max(abs(_flat(D)), axis=1))
        D = D / column(largest, D)
        end = most * largest
        size = row_norms(D, p)
        t = xp.where(size > 0, xp.minimum(radius / _positive(size), end), end)
        for _ in range(_STEPS):
            moved = D * column(t, D)
            cut = xp.clip(moved, low, high)
            total = (row_norms(cut, p) / radius) ** p
            if not bool(xp.any((total < 1 - 1e-6) & (t < end))):
                break
            free = xp.where(cut == moved, moved, xp.zeros_like(D))
            share = (row_norms(free, p) / radius) ** p
            rest = xp.clip(1 - (total - share), 0.0, None)
            t = xp.clip(t * (rest / xp.clip(share, tiny, None)) ** (1 / p), t, end)
        return cut

    def _project_l1(self, D: Any, low: Any, high: Any) -> Any:
        """Clip(sign(D)·max(|D| − τ, 0)) with the τ ≥ 0 for which Σ is the radius.

        As τ falls, an entry counts from |D| on, and is cut from |D| − room on: the sum
        is linear between these points, and sorting them finds τ.
        """
        xp = array_namespace(D)
        cut = xp.clip(D, low, high)
        inside = row_norms(cut, 1) <= self.radius
        if bool(xp.all(inside)):
            return cut
        size, sign = abs(_flat(D)), xp.sign(_flat(D))
        room = _flat(xp.where(D > 0, high, -low))
        # All less the largest entry: differences stay exact for points far away.
        most = xp.max(size, axis=1, keepdims=True)
        size = size - most
        turns = xp.concat([size, xp.maximum(size - room, -most)], axis=1)
        order = xp.argsort(-turns, axis=1, stable=True)
        turns = xp.take_along_axis(turns, order, axis=1)
        begins = xp.astype(order < size.shape[1], D.dtype)
        slope = xp.cumulative_sum(2 * begins - 1, axis=1)
        rises = slope[:, :-1] * (turns[:, :-1] - turns[:, 1:])
        total = xp.cumulative_sum(rises, axis=1, include_initial=True)
        k = xp.sum(xp.astype(total <= self.radius, xp.int64), axis=1, keepdims=True) - 1
        k = xp.clip(k, 0, None)
        here, grown, steep = (
            xp.take_along_axis(A, k, axis=1) for A in (turns, total, slope)
        )
        tau = here - (self.radius - grown) / xp.clip(steep, 1.0, None)
        moved = (sign * xp.clip(size - tau, 0.0, None)).reshape(D.shape)
        return xp.where(column(inside, D), cut, xp.clip(moved, low, high))


def farthest(X: Any) -> float:
    """Largest entries for which norms and scores can be computed in this precision."""
    return max(float(array_namespace(X).finfo(X.dtype).max) ** (1 / 3), _NEAR)


def row_norms(D: Any, p: float) -> Any:
    """‖d‖_p of each row, all its axes as one vector."""
    xp, flat = array_namespace(D), _flat(D)
    if not D.shape[0]:
        return xp.sum(flat, axis=1)
    if p in (1, 2, math.inf):
        return xp.linalg.vector_norm(flat, ord=p, axis=1)
    # Entries by the largest one: their powers neither vanish nor overflow.
    largest = xp.max(abs(flat), axis=1)
    scaled = flat / column(_positive(largest), flat)
    return largest * xp.linalg.vector_norm(scaled, ord=p, axis=1)


def column(values: Any, like: Any) -> Any:
    """One number for each row, in a shape that multiplies the rows."""
    return values.reshape((-1,) + (1,) * (like.ndim - 1))


def _flat(A: Any) -> Any:
    """Each row as one vector."""
    return A.reshape((A.shape[0], math.prod(A.shape[1:])))


def _real(A: Any) -> Any:
    """Integers as floating-point numbers; floating-point numbers unchanged."""
    xp = array_namespace(A)
    return A if xp.isdtype(A.dtype, "real floating") else xp.astype(A, xp.float64)


def _positive(sizes: Any) -> Any:
    """Sizes to divide by: 1 for 0, and for infinite ones."""
    xp = array_namespace(sizes)
    return xp.where((sizes > 0) & xp.isfinite(sizes), sizes, xp.ones_like(sizes))


def _device(A: Any) -> Any:
    return getattr(A, "device", None)


def _norm(value: Any) -> float:
    p = _NAMES.get(value.lower(), value) if isinstance(value, str) else value
    try:
        p = float(p)
    except (TypeError, ValueError):
        p = math.nan
    if not p >= 1:
        raise ValueError(
            f"norm must be 'l1', 'l2', 'linf' or a number of at least 1, got {value!r}."
        )
    return p


def _radius(value: Any) -> float:
    try:
        radius = float(value)
    except (TypeError, ValueError):
        radius = math.nan
    if not radius >= 0:
        raise ValueError(f"radius must be a number of at least 0, got {value!r}.")
    return radius
