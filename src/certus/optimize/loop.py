"""The loop that every method shares: evaluate, record, ask whether to stop, move.

A method is a function ``advance(k, x, gradient) -> Move``. The loop keeps what the
theorems need: iterates, values, gradient norms, step lengths, and how the gradient
changed along the path, which reveals a wrong constant.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from certus._core.rounding import EPS
from certus.certificate import Status
from certus.config import get_config
from certus.optimize.objective import ALL, Objective
from certus.optimize.stopping import MaxTime, Moment, as_rules
from certus.typing import Array, RandomState

#: Beyond this a run has diverged: squares still fit into a float64.
HUGE = 1e100


def norm(v: Array) -> float:
    """Euclidean length; quicker than NumPy's on short vectors."""
    return math.sqrt(float(v @ v))


class Move(NamedTuple):
    """Where a method goes next, and by what step.

    ``measure`` is what ``tol`` bounds, where it is not the gradient norm; ``sizes`` is
    the squared length of the gradient that was followed.
    """

    x: Array
    step: float
    measure: float | None = None
    sizes: float = 0.0


Advance = Callable[[int, Array, Array], Move]


@dataclass
class Trace:
    """The history of one run; rows are the steps at which f was evaluated in full."""

    steps: list[int] = field(default_factory=list)
    iterates: list[Array] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    measures: list[float] = field(default_factory=list)
    step_sizes: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    averages: list[Array] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    status: Status = Status.MAX_ITER
    reason: str = ""
    seconds: float = 0.0
    evaluations: int = 0
    path: CurvaturePath = field(default_factory=lambda: CurvaturePath())

    @property
    def points(self) -> Array:
        """The iterates as rows of a matrix."""
        return np.array(self.iterates)


@dataclass
class CurvaturePath:
    """Curvature seen between neighbouring records: what L and m must agree with.

    It shows twice: in how the gradient turned, and in how far the value is from the
    tangent at either end. An allowance for rounding is subtracted from the steepest and
    added to the flattest.
    """

    L: float = 0.0
    steepest: float = 0.0  # largest ‖Δg‖/‖Δx‖, or 2|Δf − gᵀΔx|/‖Δx‖²
    flattest: float = np.inf  # smallest ΔgᵀΔx/‖Δx‖², or 2(Δf − gᵀΔx)/‖Δx‖²
    below: float = 0.0  # largest violation of f(y) ≥ f(x) + gᵀ(y − x), relative
    bent: float = 0.0  # largest |Δf − ½(g + g')ᵀΔx|, 0 on a quadratic, relative
    last: tuple[Array, float, Array] | None = None

    def add(self, x: Array, value: float, gradient: Array) -> None:
        """Compare with the previous record."""
        if self.last is not None:
            self._compare(x, value, gradient, *self.last)
        self.last = (x, value, gradient)

    def _compare(
        self,
        x: Array,
        value: float,
        gradient: Array,
        y: Array,
        old: float,
        slope: Array,
    ) -> None:
        move, turn = x - y, gradient - slope
        length, place, steep = norm(move), norm(x) + norm(y), norm(slope)
        # Below this the difference of two gradients is mostly rounding.
        if length <= 1e-6 * (1e-6 + place):
            return
        bend, along, change = float(turn @ move), float(slope @ move), norm(turn)
        rough = max(self.L, self.steepest) * place
        terms = norm(gradient) + steep + rough
        granted = 1e3 * EPS * terms / length
        self.steepest = max(self.steepest, change / length - granted)
        self.flattest = min(self.flattest, bend / length**2 + granted)
        # The value above the tangent at the old point, and seen from the new one.
        ahead, behind = value - old - along, old - value + along + bend
        scale = abs(old) + abs(value) + length * steep
        self.below = max(self.below, -min(ahead, behind) / (scale + 1e-300))
        self.bent = max(self.bent, abs(ahead - behind) / 2 / (scale + 1e-300))
        unit, granted = length**2 / 2, 1e3 * EPS * (scale + length * terms)
        granted += 1e3 * EPS * rough * place
        high, low = max(abs(ahead), abs(behind)), min(ahead, behind)
        self.steepest = max(self.steepest, (high - granted) / unit)
        self.flattest = min(self.flattest, (low + granted) / unit)


class RunLimits(NamedTuple):
    """When a run ends: after a number of steps, at a tolerance, or by a rule."""

    max_iter: int
    tol: float
    stop: Any = ()


def whole(name: str, value: Any, least: int) -> int:
    """``value`` as a whole number that is large enough."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}.") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}.")
    return number


class _Plan(NamedTuple):
    """The settings of one run, and what its stopping rules remember."""

    max_iter: int
    tol: float
    rules: tuple[Any, ...]
    memory: list[list[float]]
    start: float
    deadline: float
    sampler: Callable[[Array], Array] | None
    every: int
    average: bool
    measure: str
    value: Callable[[Array], float] | None
    observe: Callable[[Array], Any] | None

    def due(self, k: int) -> bool:
        """Whether f is evaluated in full at step ``k``."""
        late = time.perf_counter() - self.start > self.deadline
        return late or k % self.every == 0 or k == self.max_iter


def run(
    objective: Objective,
    x0: Array,
    advance: Advance,
    limits: RunLimits,
    *,
    sampler: Callable[[Array], Array] | None = None,
    every: int = 1,
    average: bool = False,
    measure: str = "",
    value: Callable[[Array], float] | None = None,
    observe: Callable[[Array], Any] | None = None,
) -> Trace:
    """Iterate until a rule, ``tol`` or ``max_iter`` says so.

    ``sampler`` draws the gradient that is followed, so that f is evaluated in full only
    every ``every`` steps; ``value`` adds a part that is not differentiated (a penalty);
    ``measure`` names what ``tol`` bounds where the method supplies it; else the
    gradient norm decides before the method is asked to move. The result of ``observe``
    on the full gradient at each record is kept.
    """
    max_iter, tol = whole("max_iter", limits.max_iter, 0), limits.tol
    if not tol >= 0:
        raise ValueError(f"tol must not be negative, got {tol!r}.")
    every, rules = whole("every", every, 1), as_rules(limits.stop)
    start = time.perf_counter()
    plan = _Plan(
        max_iter,
        tol,
        rules,
        [[] for _ in rules],
        start,
        min((r.seconds for r in rules if isinstance(r, MaxTime)), default=np.inf),
        sampler,
        every,
        average,
        measure,
        value,
        observe,
    )
    L = 0.0 if objective.L is None or objective.L == "estimate" else float(objective.L)
    trace = Trace(path=CurvaturePath(L), reason=f"max_iter of {max_iter:,} reached")
    try:
        with np.errstate(all="ignore"):
            _iterate(trace, objective, x0, advance, plan)
    except KeyboardInterrupt:
        if get_config()["on_interrupt"] == "raise" or not trace.gradient_norms:
            raise
        trace.status, trace.reason = Status.INTERRUPTED, "interrupted"
    _square(trace)
    trace.seconds = time.perf_counter() - start
    return trace


def _iterate(
    trace: Trace, objective: Objective, x: Array, advance: Advance, plan: _Plan
) -> None:
    mean, weight = x, 0.0
    for k in range(plan.max_iter + 1):
        due, gradient = plan.due(k), None
        if due:
            gradient = _record(trace, objective, k, x, plan.value)
            if gradient is None:
                return
            if plan.average:
                trace.averages.append(mean)
            if plan.observe is not None:
                trace.kept.append(plan.observe(gradient))
            if not plan.measure and (_finished(trace, plan) or k == plan.max_iter):
                return
        elif not norm(x) < HUGE:  # also where it is NaN
            trace.status, trace.reason = Status.DIVERGED, f"diverged at step {k}"
            return
        followed = gradient if plan.sampler is None else plan.sampler(x)
        move = advance(k, x, followed)  # type: ignore[arg-type]
        if due and plan.measure:
            trace.measures.append(move.measure or 0.0)
            if _finished(trace, plan) or k == plan.max_iter:
                return
        if plan.average:
            weight += move.step
            mean = mean + (move.step / weight) * (x - mean)
        trace.step_sizes.append(move.step)
        trace.sizes.append(move.sizes)
        x = move.x


def _record(
    trace: Trace,
    objective: Objective,
    k: int,
    x: Array,
    value: Callable[[Array], float] | None,
) -> Array | None:
    """Evaluate f at ``x`` into a new row; None where the run has diverged."""
    smooth, gradient = objective.evaluate(x)
    trace.evaluations += 1
    found = smooth + (value(x) if value is not None else 0.0)
    slope = norm(gradient)
    if not (abs(found) < HUGE and slope < HUGE):  # also where one of them is NaN
        if k == 0:
            raise ValueError(
                "f or its gradient is not finite at x0, or exceeds 1e100. Start "
                "elsewhere."
            )
        trace.status, trace.reason = Status.DIVERGED, f"diverged at step {k}"
        if np.isnan(found) or np.isnan(slope):
            trace.reason += ": f or its gradient is NaN there"
        return None
    trace.steps.append(k)
    trace.iterates.append(x)
    trace.values.append(found)
    trace.gradient_norms.append(slope)
    trace.path.add(x, smooth, gradient)
    return gradient


def _finished(trace: Trace, plan: _Plan) -> bool:
    """Whether the newest row ends the run; status and reason are set if so."""
    found = trace.measures[-1] if plan.measure else trace.gradient_norms[-1]
    if found <= plan.tol:
        name = plan.measure or "gradient norm"
        trace.status = Status.SOLVED
        trace.reason = f"{name} {found:.2g} ≤ tol {plan.tol:g}"
        return True
    seconds = time.perf_counter() - plan.start
    for rule, remembered in zip(plan.rules, plan.memory):
        moment = Moment(seconds, trace.values, trace.iterates[-1], remembered)
        if (reason := rule.check(moment)) is not None:
            trace.status, trace.reason = reason
            return True
    return False


def _square(trace: Trace) -> None:
    """Bring all columns to the same number of rows after an early end."""
    # An interrupt may come between two columns of a row: that row is dropped.
    filled: list[list[Any]] = [trace.gradient_norms, trace.averages]
    filled += [trace.kept, trace.measures]
    rows = min(len(column) for column in filled if column)
    filled += [trace.steps, trace.iterates, trace.values]
    for column in filled:
        del column[rows:]
    trace.measures = trace.measures or list(trace.gradient_norms)
    moves = trace.steps[-1]
    del trace.step_sizes[moves:], trace.sizes[moves:]


class Sampler:
    """Draws mini-batches of a finite sum and evaluates their gradient.

    With all rows and no replacement the rows are taken in order, so that the result is
    bit for bit the full gradient.
    """

    def __init__(
        self,
        objective: Objective,
        batch_size: int,
        replace: bool,
        random_state: RandomState,
    ) -> None:
        n, batch_size = objective.n_terms or 0, whole("batch_size", batch_size, 1)
        if not 1 <= batch_size <= n and not (replace and batch_size >= 1):
            raise ValueError(
                f"batch_size must lie between 1 and {n}, got {batch_size!r}."
            )
        self.objective, self.n = objective, n
        self.batch_size, self.replace = batch_size, replace
        self.rng = np.random.default_rng(random_state)

    def rows(self) -> Any:
        """The rows of the next batch."""
        if self.replace:
            return self.rng.integers(self.n, size=self.batch_size)
        if self.batch_size == self.n:
            return ALL
        return self.rng.choice(self.n, self.batch_size, replace=False, shuffle=False)

    def __call__(self, x: Array) -> Array:
        """Gradient of the next batch at ``x``."""
        return self.objective.evaluate(x, self.rows())[1]

    @property
    def variance_factor(self) -> float:
        """Variance of a batch's gradient, relative to that of one term."""
        if self.replace:
            return 1 / self.batch_size
        rest = (self.n - self.batch_size) / max(1, self.n - 1)
        return rest / self.batch_size


def as_sampler(
    objective: Objective, batch_size: int | None, random_state: RandomState
) -> tuple[Sampler | None, int]:
    """A sampler and the steps per epoch, or (None, 1) for full gradients."""
    if batch_size is None:
        return None, 1
    if objective.n_terms is None:
        raise ValueError(
            "batch_size needs a finite sum: pass Objective(function, n_terms=n)."
        )
    sampler = Sampler(objective, batch_size, False, random_state)
    return sampler, max(1, objective.n_terms // batch_size)
