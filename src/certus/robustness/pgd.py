"""Projected gradient ascent on a loss that grows as the model becomes wrong.

    x̂ ← P(x̂ + α · argmax_{‖v‖_p ≤ 1} vᵀ∇ℓ(y, z(x̂)))

with P the projection to ball and box. Left to itself, α starts at the width of the
ball and is halved for the rows whose loss no longer rises, which then go on from
the best point they have seen; steps carry momentum, as in Croce and Hein (2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from certus.robustness.attacks import (
    SURROGATES,
    check_counts,
    check_loss,
    free,
    indices,
    plainly_wrong,
    ranked,
)
from certus.robustness.target import Target
from certus.threat import ThreatModel, column
from certus.typing import Array, ArrayLike, MatrixLike

#: Share of a step that is new; the rest repeats the last one.
NEW = 0.75
#: Share of steps that must have raised the loss, or else the step size is halved.
RISING = 0.75
#: When to look: after this share of the steps, then sooner each time.
FIRST_LOOK, SOONER, LEAST_LOOK = 0.22, 0.03, 0.06


class _Climb(NamedTuple):
    """The rows still climbing; the first axis of every entry counts them."""

    at: Any  # their places
    X: Any  # where they started from, the centre of the ball
    y: Any
    rival: Any
    x: Any
    before: Any
    best: Any
    slope: Any  # the gradient at the best point
    value: Any  # the loss there
    held: Any  # and when last looked at
    alpha: Any
    rises: Any
    last: Any


@dataclass(frozen=True)
class PGD:
    """Projected gradient steps: x̂ ← P(x̂ + α · argmax_{‖v‖_p ≤ 1} vᵀ∇ℓ).

    In l1, where the steepest step would move a single entry, adapted steps go a share
    of the way to the allowed row that is best by the gradient (Frank and Wolfe's
    method).

    Parameters
    ----------
    steps : int
        At most.
    step_size : float, optional
        α as a share of the radius, constant and without momentum. By default it is
        adapted to each row.
    restarts : int
        Runs in all; later ones start elsewhere, with the rows not fooled yet.
    random_start : bool
        Whether the first run starts at a random point of the ball, too; else it starts
        at the row, and its first step is that of :class:`OneStep` but for the box.
    loss : {"cross_entropy", "margin", "rivals"}
        What the steps raise; ``"rivals"``: in each run the margin over another class,
        those of the largest scores first.
    stop : bool
        Whether a row rests once it is fooled; else it goes on to the largest loss.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from certus.robustness import PGD, ThreatModel, Worst, attack
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression(max_iter=1000).fit(X, y)
    >>> threat = ThreatModel("l2", 0.5, low=0.0)
    >>> found = attack(model, X, y, threat, PGD(loss="rivals", restarts=2))
    >>> found.accuracy == attack(model, X, y, threat, Worst()).accuracy
    True
    """

    steps: int = 40
    step_size: float | None = None
    restarts: int = 1
    random_start: bool = False
    loss: str = "cross_entropy"
    stop: bool = True

    needs = "gradients"

    def __post_init__(self) -> None:
        check_counts(steps=self.steps, restarts=self.restarts)
        check_loss(self.loss, tuple(SURROGATES))
        if self.step_size is not None and not self.step_size > 0:
            raise ValueError("step_size must be above 0.")

    def run(
        self, target: Target, X: Array, y: Array, threat: ThreatModel, rng: Any
    ) -> Any:
        """Changed rows."""
        xp = array_namespace(X)
        threat = threat.reachable(X)
        rivals = ranked(y, target.scores(X)) if self.loss == "rivals" else None
        found, left = xp.asarray(X, copy=True), indices(X)
        most = len(target.classes) - 1 if rivals is not None else self.restarts
        for restart in range(min(self.restarts, most)):
            if not len(left):
                break
            start = X[left]
            if self.random_start or (restart and rivals is None):
                start = threat.draw(start, rng)
            rival = y[left] if rivals is None else rivals[left, restart]
            rows, fooled = self._climb(target, X[left], start, y[left], rival, threat)
            found[left] = rows
            left = left[~fooled]
        return found

    def _climb(
        self,
        target: Target,
        X: MatrixLike,
        x: Array,
        y: ArrayLike,
        rival: Array,
        threat: ThreatModel,
    ) -> tuple[Any, Any]:
        """The steps from x; and which rows the scores say are fooled."""
        xp = array_namespace(X)
        value_of, slope_of = SURROGATES[self.loss]
        found = xp.asarray(x, copy=True)
        fooled = xp.zeros_like(indices(X), dtype=xp.bool)
        now = self._begin(X, x, y, rival, threat)
        looks = self._looks()
        for step in range(self.steps + 1):
            aim = now.rival if self.loss == "rivals" else None
            if step < self.steps:
                z, G = target.gradient(now.x, partial(slope_of, now.y, rival=aim))
            else:
                z, G = target.scores(now.x), now.slope
            value = value_of(now.y, z, aim)
            now = self._seen(now, value, G)
            wrong = plainly_wrong(now.y, z)
            if bool(xp.any(wrong)):
                fooled[now.at[wrong]] = True
                if self.stop:
                    found[now.at[wrong]] = now.x[wrong]
                    now, G = _Climb(*(A[~wrong] for A in now)), G[~wrong]
            if not len(now.at):
                return found, fooled
            if step in looks:
                now, G = _halved(now, G, looks[step])
            if step < self.steps:
                now = self._moved(now, G, threat)
        found[now.at] = now.best
        return found, fooled

    def _begin(
        self, X: Any, x: Any, y: ArrayLike, rival: Any, threat: ThreatModel
    ) -> _Climb:
        xp = array_namespace(X)
        zero = xp.zeros_like(X.reshape((X.shape[0], -1))[:, 0])
        low = zero - float("inf")
        alpha = zero + threat.radius * (self.step_size or 2.0)
        return _Climb(
            *(indices(X), X, y, rival, x, x, x, xp.zeros_like(x)),
            *(low, low, alpha, zero, low),
        )

    def _looks(self) -> dict[int, int]:
        """After which steps to look at the step size, and how many since the last."""
        looks: dict[int, int] = {}
        if self.step_size is not None:
            return looks
        share, at = FIRST_LOOK, 0
        while True:
            wait = max(1, round(share * self.steps))
            at, share = at + wait, max(share - SOONER, LEAST_LOOK)
            if at >= self.steps:
                return looks
            looks[at] = wait

    def _seen(self, now: _Climb, value: float | Array, G: Array) -> _Climb:
        """With the value of the loss noted, and the point if it is the best."""
        xp = array_namespace(value)
        better = value > now.value
        wide = column(better, now.x)
        return now._replace(
            best=xp.where(wide, now.x, now.best),
            slope=xp.where(wide, G, now.slope),
            value=xp.where(better, value, now.value),
            rises=now.rises + xp.astype(value > now.last, now.rises.dtype),
            last=value,
        )

    def _moved(self, now: _Climb, G: Array, threat: ThreatModel) -> _Climb:
        """One step on."""
        if self.step_size is None and threat.norm == 1:
            share = now.alpha / (2 * threat.radius)
            x = now.x + column(share, G) * (threat.worst(now.X, G) - now.x)
            return now._replace(x=x, before=now.x)
        way = threat.steepest(free(G, now.x, threat))
        x = threat.project(now.x + column(now.alpha, G) * way, now.X)
        if self.step_size is None:
            x = now.x + NEW * (x - now.x) + (1 - NEW) * (now.x - now.before)
            x = threat.project(x, now.X)
        return now._replace(x=x, before=now.x)


def _halved(now: _Climb, G: Array, waited: int) -> tuple[_Climb, Any]:
    """Half the step for rows that have stopped to rise, which go back to their best."""
    xp = array_namespace(now.x)
    stuck = (now.rises < RISING * waited) | (now.value <= now.held)
    wide = column(stuck, now.x)
    G = xp.where(wide, now.slope, G)
    now = now._replace(
        x=xp.where(wide, now.best, now.x),
        before=xp.where(wide, now.best, now.before),
        alpha=xp.where(stuck, now.alpha / 2, now.alpha),
        last=xp.where(stuck, now.value, now.last),
        held=now.value,
        rises=xp.zeros_like(now.rises),
    )
    return now, G
