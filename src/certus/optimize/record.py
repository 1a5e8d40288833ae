"""The record of a run: the theorem's bound next to the observed value, at every step.

A :class:`Bound` compares a theorem's right-hand side with the measured left-hand side,
with a small allowance for rounding. A violation means that a constant or an assumption
is wrong. If no theorem applies, the record says why.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Status
from certus.rendering import WIDTH, format_seconds
from certus.results import TableResult
from certus.typing import Array


class Known(NamedTuple):
    """A constant and where it comes from: "given" or "estimated"."""

    value: float
    source: str


class Theorem(NamedTuple):
    """A convergence theorem: which class of problems, what it says, what it assumes.

    ``kind`` is one of "convex", "strongly convex", "PL", "non-convex", "stochastic",
    "exact".
    """

    kind: str
    statement: str
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bound(TableResult):
    """A theorem's bound and what was observed, row by row.

    Attributes
    ----------
    theorem : Theorem
        What is promised, and under which assumptions.
    quantity : str
        What both columns measure.
    steps, observed, bound : ndarray of shape (rows,)
        Step number, left-hand side, right-hand side. A bound of inf promises nothing.
    allowance : float
        Rounding granted to the comparison, in the units of ``observed``.
    expected : bool
        Whether the theorem is about the mean over the random draws; a single run may
        then exceed it.
    error : ndarray or None
        Standard error of ``observed`` where it is a mean of runs.
    """

    theorem: Theorem
    quantity: str
    steps: Array
    observed: Array
    bound: Array
    allowance: float = 0.0
    expected: bool = False
    error: Array | None = None

    @property
    def violations(self) -> Array:
        """Step numbers at which the bound is exceeded.

        For a bound on a mean, by more than four standard errors; empty where a single
        run cannot tell.
        """
        if self.expected and self.error is None:
            return self.steps[:0]
        margin = 0.0 if self.error is None else 4 * self.error
        limit = self.bound + 1e-9 * np.abs(self.bound) + self.allowance + margin
        return self.steps[~(self.observed <= limit)]

    @property
    def holds(self) -> bool | None:
        """Whether the bound is respected at every step; None if one run cannot tell."""
        if self.expected and self.error is None:
            return None
        return self.violations.size == 0

    def plot(self, ax: Any = None, title: str = "") -> Any:
        """Draw the bound and what was observed.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; None means a new figure.
        title : str, optional
            Stands before the kind of the theorem.

        Returns
        -------
        Axes
        """
        from certus.optimize.plotting import draw_bound

        return draw_bound(self, ax, title)

    def _columns(self) -> Mapping[str, Array]:
        return {"step": self.steps, "observed": self.observed, "bound": self.bound}


@dataclass(frozen=True, repr=False)
class Record(TableResult):
    """What a method did, why it stopped, and which theorem applies to it.

    Attributes
    ----------
    method : str
        Name of the method.
    x, value : ndarray of shape (d,), float
        The point returned and the objective there.
    steps : ndarray of shape (rows,)
        Step numbers of the rows below; stochastic methods evaluate f in full only now
        and then.
    iterates : ndarray of shape (rows, d)
        Points.
    values, gradient_norms : ndarray of shape (rows,)
        Objective and norm of the full gradient at the points.
    step_sizes : ndarray of shape (n_iter,)
        Length of each step taken, clipping included.
    status, reason : Status, str
        How the run ended, and the sentence that says why.
    n_iter, evaluations : int
        Steps taken, and full evaluations of f recorded.
    constants : dict of Known
        L, m and others with their source, "given" or "estimated".
    bounds : tuple of Bound
        What the theorems promise; the first is the principal one.
    refused : str
        Why no theorem applies, where none does.
    refutations : tuple of str
        Promises about f that the run itself contradicts.
    seconds : float
        Time taken.
    extra : dict
        What a method adds, for example the average of the iterates.
    """

    method: str
    x: Array
    value: float
    steps: Array
    iterates: Array
    values: Array
    gradient_norms: Array
    step_sizes: Array
    status: Status
    reason: str
    n_iter: int
    evaluations: int
    constants: Mapping[str, Known] = field(default_factory=dict)
    bounds: tuple[Bound, ...] = ()
    refused: str = ""
    refutations: tuple[str, ...] = ()
    seconds: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def theorem(self) -> Theorem | None:
        """The principal theorem, None where none applies."""
        return self.bounds[0].theorem if self.bounds else None

    @property
    def bound(self) -> Array | None:
        """The principal theorem's bound, row by row."""
        return self.bounds[0].bound if self.bounds else None

    @property
    def observed(self) -> Array | None:
        """What the principal theorem bounds, as observed, row by row."""
        return self.bounds[0].observed if self.bounds else None

    @property
    def holds(self) -> bool | None:
        """Whether theory and practice agree; None if no theorem applies."""
        if self.refutations:
            return False
        verdicts = [b.holds for b in self.bounds if b.holds is not None]
        return all(verdicts) if verdicts else None

    def __repr__(self) -> str:
        return f"<Record of {self.method}: {self.n_iter} steps, {self.reason}>"

    def __str__(self) -> str:
        mark = "✓" if self.status is Status.SOLVED else "·"
        lines = [
            f"{self.method} · {self.n_iter:,} steps in {format_seconds(self.seconds)}"
            f" · f = {self.value:.6g}",
            *_entry(mark, "stopped", self.reason),
        ]
        if self.constants:
            known = [f"{k} = {v.value:.4g} {v.source}" for k, v in _sorted(self)]
            lines += _entry("·", "constants", ", ".join(known))
        for bound in self.bounds:
            lines += _bound_lines(bound)
        if self.refused:
            lines += _entry("–", "refused", self.refused)
        for sentence in self.refutations:
            lines += _entry("✗", "refuted", sentence)
        return "\n".join(lines)

    def plot(self, ax: Any = None, index: int = 0) -> Any:
        """Draw theory against practice: the bound and what was observed.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; None means a new figure.
        index : int, default=0
            Which of ``bounds``.

        Returns
        -------
        Axes

        Notes
        -----
        Needs matplotlib. Without a theorem the values are drawn, and the title says
        why there is no bound.
        """
        from certus.optimize.plotting import draw

        return draw(self, ax, index)

    def _columns(self) -> Mapping[str, Array]:
        values, norms = self.values, self.gradient_norms
        return {"step": self.steps, "value": values, "gradient_norm": norms}


def _sorted(record: Record) -> list[tuple[str, Known]]:
    return sorted(record.constants.items())


def _entry(mark: str, label: str, *texts: str) -> list[str]:
    """Lines of one entry, laid out like those of a certificate."""
    indent = 15
    body = [
        line
        for text in texts
        for line in textwrap.wrap(
            text, WIDTH - indent, subsequent_indent="  ", break_on_hyphens=False
        )
    ]
    first = f"  {mark} {label}".ljust(indent) + body[0]
    return [first, *(" " * indent + line for line in body[1:])]


def _bound_lines(bound: Bound) -> list[str]:
    mark = {True: "✓", False: "✗", None: "·"}[bound.holds]
    if bound.holds is None:
        verdict = "one run cannot tell, because the bound is on the mean"
    elif bound.holds:
        verdict = f"respected at all {bound.steps.size:,} records"
    else:
        count, first = bound.violations.size, bound.violations[0]
        verdict = f"EXCEEDED at {count:,} records, first at step {first}"
    last = f"last {bound.observed[-1]:.2g}, bound {bound.bound[-1]:.2g}"
    return _entry(
        mark,
        "theorem",
        f"{bound.theorem.kind}: {bound.theorem.statement}",
        f"{verdict}: {last}",
        *bound.theorem.assumptions,
    )


def average_bounds(records: Sequence[Record], index: int = 0) -> Bound:
    """The mean over independent runs against a bound on the mean.

    Parameters
    ----------
    records : sequence of Record
        Runs of one method on one problem with different seeds, recorded at the same
        steps.
    index : int, default=0
        Which of their bounds.

    Returns
    -------
    Bound
        Mean observation with its standard error; ``violations`` counts excesses of
        more than four standard errors.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import average_bounds, stochastic_gradient_descent
    >>> from certus.optimize import least_squares_objective
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    >>> f = least_squares_objective(X, y)
    >>> runs = [stochastic_gradient_descent(f, [1.0, 1.0], step=0.05, random_state=i,
    ...     max_iter=50, every=1) for i in range(30)]
    >>> average_bounds(runs).holds
    True
    """
    bounds = [record.bounds[index] for record in records if record.bounds]
    if len(bounds) < 2 or len(bounds) != len(records):
        raise ValueError("pass at least two records, each with a bound.")
    rows = min(bound.steps.size for bound in bounds)
    seen = np.array([bound.observed[:rows] for bound in bounds])
    limits = np.array([bound.bound[:rows] for bound in bounds])
    first = bounds[0]
    if any((b.steps[:rows] != first.steps[:rows]).any() for b in bounds):
        raise ValueError("the records were taken at different steps; use one every=.")
    # A bound that is itself measured along the run is random: the theorem is about
    # the mean of the difference, so its spread is what counts.
    finite = np.where(np.isfinite(limits), limits, 0.0)
    return Bound(
        first.theorem,
        f"mean of {first.quantity} over {len(bounds)} runs",
        first.steps[:rows],
        seen.mean(axis=0),
        limits.mean(axis=0),
        max(bound.allowance for bound in bounds),
        True,
        (seen - finite).std(axis=0, ddof=1) / np.sqrt(len(bounds)),
    )
