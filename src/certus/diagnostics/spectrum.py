"""The ends of the spectrum of a Hessian, by Lanczos' method, and what they say.

Ritz values are curvatures along actual directions, so both ends lie inside the
spectrum. Each is compared with how the gradient changes along its direction: at a kink
of the loss, as of a ReLU whose input is exactly zero, second derivatives say nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Strength
from certus.typing import Array

#: Products with the Hessian that Lanczos' method may take.
STEPS = 40
#: Most numbers of its basis, a gigabyte: few directions of very large networks.
BASIS = 1 << 27
#: Curvatures this much smaller than the largest are rounding.
FLAT = 1e-6


class End(NamedTuple):
    """A curvature, the direction of unit length along which it is found."""

    value: float
    direction: Array


class Ends(NamedTuple):
    """Both ends, and whether all directions were tried."""

    low: End
    high: End
    whole: bool


def spectrum_ends(product: Callable[[Array], Array], n: int, steps: int) -> Ends:
    """Smallest and largest eigenvalue of a symmetric operator.

    Parameters
    ----------
    product : callable
        v ↦ Av.
    n : int
        Length of v.
    steps : int
        Most products.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.diagnostics.spectrum import spectrum_ends
    >>> d = np.linspace(-1, 3, 30)
    >>> low, high, whole = spectrum_ends(lambda v: d * v, 30, 30)
    >>> round(low.value, 6), round(high.value, 6), whole
    (-1.0, 3.0, True)
    """
    v = np.random.default_rng(0).standard_normal(n)
    basis = [v / np.linalg.norm(v)]
    diagonal: list[float] = []
    beside: list[float] = []
    whole = steps >= n
    for _ in range(min(steps, n)):
        w = np.array(product(basis[-1]))
        if not np.isfinite(w).all():
            raise ArithmeticError("some second derivatives are NaN")
        diagonal.append(float(basis[-1] @ w))
        for _again in range(2):  # once is not enough in floating point
            for q in basis:
                w -= (q @ w) * q
        size = float(np.linalg.norm(w))
        if size <= 1e-10 * max(1e-300, np.abs(diagonal).max()):
            whole = True  # the basis spans an invariant subspace
            break
        beside.append(size)
        basis.append(w / size)
    k = len(diagonal)
    off = np.diag(beside[: k - 1], 1)
    values, vectors = np.linalg.eigh(np.diag(diagonal) + off + off.T)
    found = np.stack(basis[:k], axis=1) @ vectors[:, [0, -1]]  # (n, 2)
    low, high = (End(float(values[i]), found[:, i]) for i in (0, -1))
    return Ends(low, high, whole)


def curvature_claims(stated: Any, n: int) -> list[Claim]:
    """The ends of the spectrum of the Hessian on n rows, what they say of a minimum."""
    theta, rows = stated.point, f"on {n:,} row{'s'[: n != 1]}"

    steps = min(STEPS, max(2, BASIS // theta.size))

    def product(v: Array) -> Array:
        return np.asarray(stated.product(theta, v))

    low, high, whole = spectrum_ends(product, theta.size, steps)
    scale = max(abs(low.value), abs(high.value))
    doubts = ", which the gradient does not confirm, so it means nothing"
    if confirmed(stated.gradient, theta, low, scale):
        says = _meaning(low.value, scale, whole, steps)
    else:
        says = doubts
    longest = f": plain gradient steps longer than {2 / (high.value or 1):.2g} diverge "
    longest += "along it"
    if not confirmed(stated.gradient, theta, high, scale):
        longest = doubts
    return [
        Claim(
            "smallest_curvature",
            Strength.MEASURED,
            low.value,
            theorem="at a minimum the gradient is zero and no curvature is negative",
            detail=f"smallest curvature {low.value:.2g} {rows}{says}",
        ),
        Claim(
            "largest_curvature",
            Strength.MEASURED,
            high.value,
            detail=f"largest curvature {high.value:.2g} {rows}"
            f"{longest if high.value > 0 else ''}",
        ),
    ]


def _meaning(low: float, scale: float, whole: bool, steps: int) -> str:
    tried = "no direction" if whole else f"none of {steps} directions tried"
    if low < -FLAT * scale:
        return (
            ", negative: the loss curves downwards along some direction, so this is "
            "not a minimum"
        )
    if low <= FLAT * scale:
        return (
            ", zero up to rounding: the loss is flat along some direction, and "
            f"{tried} curves downwards"
        )
    if whole:
        return ", positive in all directions: the second-order condition holds"
    return f", positive: {tried} curves downwards"


def confirmed(
    gradient: Callable[[Array], Array], theta: Array, end: End, scale: float
) -> bool:
    """Whether the gradient changes along a direction as a curvature says.

    Parameters
    ----------
    gradient : callable
        θ ↦ ∇L(θ).
    theta : ndarray
        The point.
    end : End
        A curvature and its direction.
    scale : float
        The largest curvature; a thousandth of it is agreement.
    """
    t = 1e-7 * max(1.0, float(np.linalg.norm(theta)))
    up, down = (gradient(theta + sign * t * end.direction) for sign in (1, -1))
    found = float((up - down) @ end.direction) / (2 * t)
    size = float(np.linalg.norm(up) + np.linalg.norm(down))
    rounding = 64 * float(np.finfo(float).eps) * (size + scale) / t
    return abs(found - end.value) <= 1e-3 * scale + rounding
