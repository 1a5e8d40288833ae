"""The convergence theorems, as bounds on what a run observed.

Each function takes the trace of a run and returns bounds, or a sentence that says why
no theorem applies. If a minimiser is given, the bounds are about it. Where it is not,
they are stated against the best iterate in a form that stays true: convex theorems
hold for any point of comparison, strong convexity and PL say how far the optimum can
be from a point whose gradient is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from certus._core.rounding import ROUNDING
from certus.optimize.constants import contradictions, slope_is_false
from certus.optimize.loop import Trace
from certus.optimize.objective import Objective
from certus.optimize.record import Bound, Known, Record, Theorem
from certus.typing import Array

Constants = dict[str, Known]
Verdict = tuple[Bound, ...] | str
UNKNOWN_L = "L is not known: pass Objective(f, L=...)"


class Reference(NamedTuple):
    """The point that gaps and distances are measured against.

    ``given`` says whether it is a minimiser; otherwise it is the best iterate, and
    ``gradient`` is the gradient norm there. ``minimum`` is a least value of f that was
    given, or that of the point.
    """

    x: Array
    value: float
    given: bool
    gradient: float
    minimum: float
    minimum_given: bool

    @property
    def point(self) -> str:
        """How the point is called in the name of a quantity."""
        return "x*" if self.given else "x_best"

    @property
    def least(self) -> str:
        """How its value is called in the name of a quantity."""
        return "f*" if self.given else "f(x_best)"


def reference(
    trace: Trace,
    objective: Objective,
    value: Callable[[Array], float] | None = None,
) -> Reference:
    """The given minimiser, or the best iterate of the run."""
    if objective.optimum is not None:
        x = np.array(objective.optimum, dtype=np.float64, ndmin=1)
        if x.shape != trace.iterates[0].shape:
            raise ValueError(
                f"optimum has shape {x.shape}, but x0 has {trace.iterates[0].shape}."
            )
        found = objective.evaluate(x)[0] + (value(x) if value else 0.0)
        least = found if objective.minimum is None else objective.minimum
        return Reference(x, found, True, 0.0, least, True)
    best = int(np.argmin(trace.values))
    found = trace.values[best]
    known = objective.minimum is not None
    least = objective.minimum if objective.minimum is not None else found
    slope = trace.gradient_norms[best]
    return Reference(trace.iterates[best], found, False, slope, least, known)


def value_allowance(trace: Trace, ref: Reference) -> float:
    """Rounding of a difference of two values of f."""
    return float(ROUNDING * max(abs(trace.values[0]), abs(ref.value), 1e-300))


def sums(steps: Array, terms: Array) -> Array:
    """Σ over the moves made before each row."""
    return np.concatenate([[0.0], np.cumsum(terms)])[steps]


def products(steps: Array, factors: Array) -> Array:
    """Product over the moves made before each row."""
    return np.concatenate([[1.0], np.cumprod(factors)])[steps]


def sources(constants: Constants, *names: str) -> tuple[str, ...]:
    """The line that says which constants were used and where they come from."""
    used = [
        f"{name} = {constants[name].value:.4g} ({constants[name].source})"
        for name in names
        if name in constants
    ]
    return (", ".join(used),) if used else ()


def of(constants: Constants, name: str) -> float:
    """A constant's value, 0 where it is not known."""
    return constants[name].value if name in constants else 0.0


def descended(L: Array | float) -> tuple[str, ...]:
    """The line for steps with a smoothness of their own."""
    if isinstance(L, np.ndarray):
        return ("L is 1/t in each step: f was seen to fall by (t/2)‖∇f‖²",)
    return ()


def against(ref: Reference, values: bool = False) -> tuple[str, ...]:
    """The line that says what gaps are measured against; ``values`` if only values."""
    if ref.given:
        return ("against the given minimiser",)
    if values and ref.minimum_given:
        return ("against the given minimum",)
    return ("no minimiser given: against the best iterate",)


def descent(
    trace: Trace,
    objective: Objective,
    constants: Constants,
    composite: bool = False,
    searched: bool = False,
    value: Callable[[Array], float] | None = None,
) -> Verdict:
    """Gradient, projected and proximal gradient descent with any sequence of steps.

    ``searched`` says that the lemma for steps of 1/L was seen to hold at every step, f
    falling by (t/2)‖∇f‖²: each step then counts with a smoothness of its own.
    """
    t = np.array(trace.step_sizes)
    if t.size == 0:
        return "no step was taken"
    if searched:
        ref, L = reference(trace, objective, value), 1 / t
        if max(of(constants, "m"), of(constants, "pl")) > 0 and not composite:
            return _polyak_lojasiewicz(trace, constants, ref, L)
        if objective.is_convex:
            return (_convex(trace, constants, ref),)
        return (_stationary(trace, constants, ref, L, composite),)
    if "L" not in constants:
        return UNKNOWN_L
    return _descent(trace, objective, constants, composite, value)


def _descent(
    trace: Trace,
    objective: Objective,
    constants: Constants,
    composite: bool,
    value: Callable[[Array], float] | None,
) -> Verdict:
    L, t = of(constants, "L"), np.array(trace.step_sizes)
    if L * t.max() >= 2 * (1 + 1e-12):
        return (
            f"the step {t.max():.4g} is not below 2/L = {2 / L:.4g}: descent is not "
            "guaranteed"
        )
    ref = reference(trace, objective, value)
    convex = objective.is_convex or of(constants, "m") > 0
    short = L * t.max() <= 1 + 1e-12
    if of(constants, "m") > 0 and (ref.given or not composite):
        return _strongly_convex(trace, constants, ref, composite)
    if of(constants, "pl") > 0 and not composite:
        return _polyak_lojasiewicz(trace, constants, ref, L)
    if convex and short:
        return (_convex(trace, constants, ref),)
    return (_stationary(trace, constants, ref, L, composite),)


def _strongly_convex(
    trace: Trace, constants: Constants, ref: Reference, composite: bool
) -> Verdict:
    L, m, t = of(constants, "L"), of(constants, "m"), np.array(trace.step_sizes)
    steps = np.array(trace.steps)
    # x ↦ x − t∇f(x) shrinks distances by this factor; projections and proximal maps
    # never stretch them.
    P = products(steps, np.maximum(np.abs(1 - t * m), np.abs(1 - t * L)))
    away = 0.0 if ref.given else ref.gradient / m  # how far x* can be from ref
    R = float(np.linalg.norm(trace.iterates[0] - ref.x)) + away
    distance = np.linalg.norm(trace.points - ref.x, axis=1)
    size = float(np.linalg.norm(ref.x)) + R
    lines = (*sources(constants, "L", "m"), *against(ref))
    kind = "strongly convex"
    bounds = [
        Bound(
            Theorem(kind, "‖x_k − x*‖ ≤ Π max(|1 − tm|, |1 − tL|)·‖x_0 − x*‖", lines),
            f"‖x_k − {ref.point}‖",
            steps,
            distance,
            P * R + away,
            ROUNDING * size * max(1.0, L / m),
        )
    ]
    if not composite:
        bounds.append(
            Bound(
                Theorem(kind, "f(x_k) − f* ≤ (L/2)·Π max(…)²·‖x_0 − x*‖²", lines),
                f"f(x_k) − {ref.least}",
                steps,
                np.array(trace.values) - ref.value,
                L / 2 * (P * R) ** 2,
                value_allowance(trace, ref),
            )
        )
    return tuple(bounds)


def _polyak_lojasiewicz(
    trace: Trace, constants: Constants, ref: Reference, L: Array | float
) -> Verdict:
    """A linear rate; strong convexity implies the condition with μ = m."""
    m, t = of(constants, "m"), np.array(trace.step_sizes)
    mu = max(m, of(constants, "pl"))
    steps = np.array(trace.steps)
    least = ref.minimum
    if not ref.minimum_given:
        least = ref.value - ref.gradient**2 / (2 * mu)
    # Never negative unless a constant is false, which a bound of zero brings to light.
    P = products(steps, np.maximum(0.0, 1 - mu * t * (2 - L * t)))
    bound = Bound(
        Theorem(
            "strongly convex" if m > 0 else "PL",
            "f(x_k) − f* ≤ Π (1 − μt(2 − Lt))·(f(x_0) − f*), μ = m or the PL constant",
            (*sources(constants, "L", "m", "pl"), *descended(L), *against(ref, True)),
        ),
        "f(x_k) − f*" if ref.minimum_given else f"f(x_k) − {ref.least}",
        steps,
        np.array(trace.values) - ref.minimum,
        P * (trace.values[0] - least),
        value_allowance(trace, ref),
    )
    return (bound,)


def _convex(trace: Trace, constants: Constants, ref: Reference) -> Bound:
    steps = np.array(trace.steps)
    T = sums(steps, np.array(trace.step_sizes))
    R2 = float(np.sum((trace.iterates[0] - ref.x) ** 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(T > 0, R2 / (2 * T), np.inf)
    return Bound(
        Theorem(
            "convex",
            "f(x_k) − f* ≤ ‖x_0 − x*‖²/(2 Σt), t ≤ 1/L",
            (*sources(constants, "L"), *against(ref)),
        ),
        f"f(x_k) − {ref.least}",
        steps,
        np.array(trace.values) - ref.value,
        bound,
        value_allowance(trace, ref),
    )


def _stationary(
    trace: Trace,
    constants: Constants,
    ref: Reference,
    L: Array | float,
    composite: bool,
) -> Bound:
    t, steps = np.array(trace.step_sizes), np.array(trace.steps)
    drop = t * (1 - L * t / 2)  # f falls by at least drop·‖g‖² in each step
    total = sums(steps, drop)
    if ref.minimum_given:
        # The step that would follow the last record also falls, to f* at the least;
        # not where its length is unknown and matters.
        after = 0.0 if composite or isinstance(L, np.ndarray) else drop[-1]
        total = total + np.append(drop, after)[steps]
    gap = trace.values[0] - ref.minimum + value_allowance(trace, ref)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(total > 0, np.sqrt(gap / total), np.inf)
    norms = np.array(trace.measures)
    return Bound(
        Theorem(
            "non-convex",
            "min ‖∇f(x_i)‖ ≤ √((f(x_0) − f*)/Σ t(1 − Lt/2)); "
            "√(2L(f(x_0) − f*)/(k + 1)) at t = 1/L",
            (*sources(constants, "L"), *descended(L), *against(ref, True)),
        ),
        "min ‖∇f(x_i)‖, i ≤ k",
        steps,
        np.minimum.accumulate(norms),
        bound,
        ROUNDING * float(norms[0]),
    )


def subgradient(trace: Trace, objective: Objective) -> Verdict:
    """Best value so far of a (projected) subgradient method, for any steps."""
    if not objective.is_convex:
        return "the subgradient theorem needs a convex f: Objective(f, convex=True)"
    if not trace.step_sizes:
        return "no step was taken"
    ref = reference(trace, objective)
    steps = np.array(trace.steps)
    t = np.append(trace.step_sizes, trace.step_sizes[-1:])
    squares = np.append(trace.sizes, trace.gradient_norms[-1] ** 2)[: t.size]
    total, noise = np.cumsum(t)[steps], np.cumsum(t**2 * squares)[steps]
    R2 = float(np.sum((trace.iterates[0] - ref.x) ** 2))
    return (
        Bound(
            Theorem(
                "convex",
                "min f(x_i) − f* ≤ (‖x_0 − x*‖² + Σ t²‖g‖²)/(2 Σt)",
                against(ref),
            ),
            f"min f(x_i) − {ref.least}, i ≤ k",
            steps,
            np.minimum.accumulate(trace.values) - ref.value,
            (R2 + noise) / (2 * total),
            value_allowance(trace, ref),
        ),
    )


def make_record(
    method: str,
    trace: Trace,
    objective: Objective,
    constants: Constants,
    verdict: Verdict,
    x: Array | None = None,
    value: float | None = None,
    extra: Mapping[str, Any] | None = None,
    penalty: Callable[[Array], float] | None = None,
) -> Record:
    """Make a record from trace and verdict; ``x`` is the last iterate by default."""
    if not isinstance(verdict, str) and not any(
        np.isfinite(bound.bound).any() for bound in verdict
    ):
        verdict = "the theorem promises nothing at the steps taken"
    refused = verdict if isinstance(verdict, str) else ""
    return Record(
        method=method,
        x=trace.iterates[-1] if x is None else x,
        value=trace.values[-1] if value is None else value,
        steps=np.array(trace.steps),
        iterates=trace.points,
        values=np.array(trace.values),
        gradient_norms=np.array(trace.gradient_norms),
        step_sizes=np.array(trace.step_sizes),
        status=trace.status,
        reason=trace.reason,
        n_iter=trace.steps[-1],
        evaluations=trace.evaluations,
        constants=constants,
        bounds=() if isinstance(verdict, str) else verdict,
        refused=refused,
        refutations=_refutations(trace, objective, constants, penalty),
        seconds=trace.seconds,
        extra=dict(extra or {}),
    )


def _refutations(
    trace: Trace,
    objective: Objective,
    constants: Constants,
    penalty: Callable[[Array], float] | None,
) -> tuple[str, ...]:
    """Stated facts about f that this run contradicts."""
    found = list(contradictions(trace.path, constants, objective))
    if "L" in constants and slope_is_false(objective, trace.iterates[0]):
        found.append(
            "the gradient at x0 is not that of f: the values of f change differently"
        )
    pl = of(constants, "pl")
    if pl > 0 and penalty is None:
        least = min(trace.values) if objective.minimum is None else objective.minimum
        gaps = np.array(trace.values) - least - ROUNDING * np.abs(trace.values)
        if np.any(np.square(trace.gradient_norms) / 2 < pl * gaps * (1 - 1e-6)):
            found.append(
                f"pl = {pl:.4g} (given) is too large: ½‖∇f‖² is below pl·(f − f*)"
            )
    return (*found, *_undercut(trace, objective, penalty))


def _undercut(
    trace: Trace, objective: Objective, penalty: Callable[[Array], float] | None
) -> tuple[str, ...]:
    """Whether an iterate lies below the stated minimum."""
    found = []
    lowest, scale = min(trace.values), 1e-9 * max(map(abs, trace.values))
    if objective.minimum is not None and lowest < objective.minimum - scale:
        found.append(
            f"minimum = {objective.minimum:.6g} is not the minimum: an iterate has "
            f"{lowest:.6g}"
        )
    if objective.optimum is not None:
        promised = reference(trace, objective, penalty).value
        if lowest < promised - scale:
            found.append(
                f"the given optimum is not a minimum: f is {promised:.6g} there, but "
                f"{lowest:.6g} at an iterate"
            )
    return tuple(found)
