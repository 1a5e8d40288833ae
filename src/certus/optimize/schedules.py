"""Step-size schedules: the length of step k = 0, 1, 2, ...

A schedule is a callable of the step number. A method's ``step`` is a number (constant),
one of these, or any function ``k -> float``. Decaying ones suit gradients that do not
vanish at the optimum: stochastic ones and subgradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from certus.wording import unstopped

Schedule = Callable[[int], float]


class Constant(NamedTuple):
    """η for every step.

    Examples
    --------
    >>> from certus.optimize import Constant
    >>> Constant(0.1)(1000)
    0.1
    """

    eta: float

    def __call__(self, k: int) -> float:
        """Length of step ``k``."""
        return self.eta


class RobbinsMonro(NamedTuple):
    """η₀/(k + k₀): the sum diverges, the sum of squares does not.

    With η₀ > 1/(2m) on an m-strongly convex function stochastic gradient descent has
    E‖x_k − x*‖² = O(1/k). ``k0`` keeps the first steps short enough.

    Examples
    --------
    >>> from certus.optimize import RobbinsMonro
    >>> [RobbinsMonro(1.0)(k) for k in range(3)]
    [1.0, 0.5, 0.3333333333333333]
    """

    eta0: float
    k0: float = 1.0

    def __call__(self, k: int) -> float:
        """Length of step ``k``."""
        return self.eta0 / (k + self.k0)


class Sublinear(NamedTuple):
    """η₀/(1 + ck).

    Examples
    --------
    >>> from certus.optimize import Sublinear
    >>> Sublinear(1.0, c=0.5)(2)
    0.5
    """

    eta0: float
    c: float = 1.0

    def __call__(self, k: int) -> float:
        """Length of step ``k``."""
        return self.eta0 / (1 + self.c * k)


class InverseSqrt(NamedTuple):
    """η₀/√(1 + ck), the schedule of subgradient and convex stochastic descent.

    Examples
    --------
    >>> from certus.optimize import InverseSqrt
    >>> InverseSqrt(1.0)(3)
    0.5
    """

    eta0: float
    c: float = 1.0

    def __call__(self, k: int) -> float:
        """Length of step ``k``."""
        return self.eta0 / math.sqrt(1 + self.c * k)


class Piecewise(NamedTuple):
    """η₀, multiplied by ``factor`` from each step named in ``boundaries`` on.

    Examples
    --------
    >>> from certus.optimize import Piecewise
    >>> schedule = Piecewise(1.0, (100, 200))
    >>> schedule(99), schedule(100), schedule(200)
    (1.0, 0.1, 0.01)
    """

    eta0: float
    boundaries: tuple[int, ...]
    factor: float = 0.1

    def __call__(self, k: int) -> float:
        """Length of step ``k``."""
        passed = sum(k >= boundary for boundary in self.boundaries)
        # A division by 10 or 100 is exact where a product of tenths is not.
        return self.eta0 / (1 / self.factor) ** passed


def as_schedule(step: Any) -> Schedule:
    """A number or callable as a schedule whose values are checked."""
    if callable(step):
        return step
    try:
        eta = float(step)
    except (TypeError, ValueError):
        raise TypeError(
            "step must be a positive number, a schedule or a function of k, got "
            f"{step!r}."
        ) from None
    if not (math.isfinite(eta) and eta > 0):
        raise ValueError(f"step must be positive and finite, got {step!r}.")
    return cast(Schedule, Constant(eta))


def constant(step: Any) -> float:
    """One length for every step, for methods whose theorem has no other."""
    if callable(step):
        raise TypeError("this method needs a constant step: pass a positive number.")
    return length(as_schedule(step), 0)


def length(schedule: Schedule, k: int) -> float:
    """Length of step ``k``; an error names the step where a schedule goes wrong."""
    try:
        eta = float(schedule(k))
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ValueError(
            f"the schedule fails at step {k}: {unstopped(error)}."
        ) from None
    if not (math.isfinite(eta) and eta > 0):
        raise ValueError(
            f"the schedule must give positive steps, got {eta!r} at step {k}."
        )
    return eta
