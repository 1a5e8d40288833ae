"""When to stop, beyond ``max_iter`` and the gradient tolerance ``tol``.

Each rule looks at the newest recorded point and answers with a reason or None; the
reason ends up in the record. Rules are passed as ``stop=(Static(), MaxTime(2.0))`` and
may be used for several runs: their memory belongs to the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from certus.certificate import Status
from certus.typing import Array


class Moment(NamedTuple):
    """What a rule sees: seconds, values and iterates so far, the rule's own memory."""

    seconds: float
    values: list[float]
    x: Array
    memory: list[float]


class MaxTime(NamedTuple):
    """Stop after this many seconds.

    Examples
    --------
    >>> from certus.optimize import MaxTime, gradient_descent
    >>> f = lambda x: (x @ x, 2 * x)
    >>> gradient_descent(f, [1.0], step=1e-9, max_iter=10**6, stop=MaxTime(0.01)).status
    <Status.TIME_LIMIT: 'time_limit'>
    """

    seconds: float

    def check(self, moment: Moment) -> tuple[Status, str] | None:
        """The reason to stop now, or None."""
        if moment.seconds < self.seconds:
            return None
        return Status.TIME_LIMIT, f"max_time of {self.seconds:g} s reached"


class Static(NamedTuple):
    """Stop when the training value fell by less than ``tol`` over ``patience`` records.

    Examples
    --------
    >>> from certus.optimize import Static, gradient_descent
    >>> f = lambda x: (x @ x, 2 * x)
    >>> gradient_descent(f, [1.0], tol=0, step=0.4, stop=Static(1e-6)).reason
    'the training value stopped falling: it fell by less than 1e-06 in 5 records'
    """

    tol: float = 1e-10
    patience: int = 5

    def check(self, moment: Moment) -> tuple[Status, str] | None:
        """The reason to stop now, or None."""
        best = moment.memory  # the lowest value up to each record
        newest = moment.values[-1]
        best.append(min(newest, best[-1]) if best else newest)
        if len(best) <= self.patience:
            return None
        if best[-1 - self.patience] - best[-1] >= self.tol:
            return None
        return Status.STOPPED, (
            f"the training value stopped falling: it fell by less than {self.tol:g} "
            f"in {self.patience} records"
        )


class Validation(NamedTuple):
    """Stop when ``error(x)`` has not fallen for ``patience`` records.

    ``error`` is for example the error on held-out rows.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import Validation, gradient_descent
    >>> f = lambda x: (x @ x, 2 * x)
    >>> held_out = Validation(lambda x: abs(x[0] - 0.5), patience=3)
    >>> gradient_descent(f, [1.0], step=0.1, stop=held_out).reason
    'the validation error has not fallen for 3 records (best 0.012)'
    """

    error: Callable[[Array], float]
    patience: int = 5

    def check(self, moment: Moment) -> tuple[Status, str] | None:
        """The reason to stop now, or None."""
        memory = moment.memory  # the best error, and how many records ago it was
        error = float(self.error(moment.x))
        if not memory or error < memory[0]:
            memory[:] = [error, 0.0]
            return None
        memory[1] += 1
        if memory[1] < self.patience:
            return None
        return Status.STOPPED, (
            f"the validation error has not fallen for {self.patience} records (best "
            f"{memory[0]:g})"
        )


Rule = MaxTime | Static | Validation


def as_rules(stop: Any) -> tuple[Rule, ...]:
    """One rule, several, or none, as a tuple."""
    if hasattr(stop, "check"):
        return (stop,)
    rules = tuple(stop) if isinstance(stop, list | tuple) else (stop,)
    for rule in rules:
        if not hasattr(rule, "check"):
            raise TypeError(
                f"stop must hold MaxTime, Static or Validation, got {rule!r}."
            )
    return rules
