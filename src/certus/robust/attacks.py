"""Attacks that follow gradients: one step, projected steps, and the nearest boundary.

    maximise ℓ(y, z(x̂)) over the rows x̂ that the threat allows

Each attack is a small object with ``run(target, X, y, threat, rng)``, which returns
changed rows; whether they fool the model is for :func:`certus.robust.attack` to judge.
A row that is predicted wrongly already is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from certus.robust.target import Target
from certus.threat import ThreatModel, column, row_norms

#: By name: the derivative by each score of what an attack makes large.
Surrogate = Callable[[Any, Any], Any]


def cross_entropy_slope(y: Any, z: Any) -> Any:
    """∂/∂z of log Σ exp z − z_y: softmax(z) less one at y.

    Up to a positive factor for each row, so that it does not vanish where the model is
    all but certain: only the direction counts for a step.
    """
    xp = array_namespace(z)
    true = _one_hot(z, y)
    others = xp.where(true, -math.inf, z)
    others = others - xp.max(others, axis=1, keepdims=True)
    shares = xp.exp(others)
    shares = shares / xp.sum(shares, axis=1, keepdims=True)
    return xp.where(true, -xp.ones_like(z), shares)


def margin_slope(y: Any, z: Any) -> Any:
    """∂/∂z of max_{j≠y} z_j − z_y."""
    xp = array_namespace(z)
    true = _one_hot(z, y)
    rival = xp.argmax(xp.where(true, -math.inf, z), axis=1)
    best = _one_hot(z, rival)
    return xp.astype(best, z.dtype) - xp.astype(true, z.dtype)


SURROGATES: dict[str, Surrogate] = {
    "cross_entropy": cross_entropy_slope,
    "margin": margin_slope,
}


class Worst(NamedTuple):
    """The worst there is for a linear model: the farthest allowed row for each rival.

    Needs scores W x + b; no other attack on such a model finds more.
    """

    def run(self, target: Target, X: Any, y: Any, threat: ThreatModel, rng: Any) -> Any:
        """Changed rows."""
        if target.formula is None:
            raise ValueError("Worst() is for linear models; use PGD() here.")
        W, X_hat = target.formula.W, X.copy()
        gaps = np.full(len(X), -np.inf)
        for j in range(len(W)):
            rival = np.flatnonzero(y != j)
            if not len(rival):
                continue
            G = (W[j] - W[y[rival]]).reshape(len(rival), *X.shape[1:])
            worst = threat.worst(X[rival], G)
            z = target.scores(worst)
            gap = z[:, j] - z[np.arange(len(rival)), y[rival]]
            better = gap > gaps[rival]
            gaps[rival[better]] = gap[better]
            X_hat[rival[better]] = worst[better]
        return X_hat


class OneStep(NamedTuple):
    """x + radius · argmax_{‖v‖_p ≤ 1} vᵀ∇ℓ: FGSM for p = ∞, the l2 step for p = 2.

    The worst there is for a linear model with two classes and no box.
    """

    loss: str = "cross_entropy"

    def run(self, target: Target, X: Any, y: Any, threat: ThreatModel, rng: Any) -> Any:
        """Changed rows."""
        slope = SURROGATES[self.loss]
        _, G = target.gradient(X, partial(slope, y))
        xp = array_namespace(X)
        room = X + threat.radius * threat.steepest(G)
        return xp.clip(room, _like(threat.low, X), _like(threat.high, X))


class PGD(NamedTuple):
    """Projected gradient steps: x̂ ← P(x̂ + α · argmax_{‖v‖_p ≤ 1} vᵀ∇ℓ).

    Rows that are fooled need no further steps and take none.

    Attributes
    ----------
    steps : int
    step_size : float, optional
        α as a share of the radius; 2.5/steps by default.
    restarts : int
        Runs from other starts, for the rows not fooled yet.
    random_start : bool
        Whether the first run starts at a random point of the ball as well.
    loss : {"cross_entropy", "margin"}
        What the steps raise.
    """

    steps: int = 40
    step_size: float | None = None
    restarts: int = 1
    random_start: bool = True
    loss: str = "cross_entropy"

    def run(self, target: Target, X: Any, y: Any, threat: ThreatModel, rng: Any) -> Any:
        """Changed rows."""
        xp = array_namespace(X)
        X_hat = xp.asarray(X, copy=True)
        left = xp.arange(len(X))
        for restart in range(self.restarts):
            if not len(left):
                break
            start = X[left]
            if restart or self.random_start:
                start = threat.draw(start, rng)
            found, fooled = self._climb(target, X[left], start, y[left], threat)
            X_hat[left] = found
            left = left[~fooled]
        return X_hat

    def _climb(
        self, target: Target, X: Any, x: Any, y: Any, threat: ThreatModel
    ) -> tuple[Any, Any]:
        """The steps from x; and which rows the scores say are fooled at the end."""
        xp, slope = array_namespace(X), SURROGATES[self.loss]
        alpha = threat.radius * (self.step_size or 2.5 / self.steps)
        found, left = xp.asarray(x, copy=True), xp.arange(len(X))
        for _ in range(self.steps):
            z, G = target.gradient(x, partial(slope, y))
            right = xp.argmax(z, axis=1) == y
            if not bool(xp.all(right)):
                found[left[~right]] = x[~right]
                left, X, x, y, G = left[right], X[right], x[right], y[right], G[right]
                if not len(left):
                    break
            x = threat.project(x + alpha * threat.steepest(G), X)
        fooled = xp.ones(found.shape[0], dtype=xp.bool)
        if len(left):
            found[left] = x
            fooled[left] = xp.argmax(target.scores(x), axis=1) != y
        return found, fooled


class DeepFool(NamedTuple):
    """Steps to the nearest boundary of the linearised scores, until the label changes.

    With w = ∇z_j − ∇z_k and f = z_k − z_j for the predicted k, the boundary to class j
    is f/‖w‖_q away; the step goes to the nearest one. What it finds is small; it does
    not look at the radius, only at the box.

    Attributes
    ----------
    steps : int
    overshoot : float
        How far past the boundary, as a share of the way.
    candidates : int
        Classes looked at, those of the largest scores.
    """

    steps: int = 50
    overshoot: float = 0.02
    candidates: int = 10

    def run(self, target: Target, X: Any, y: Any, threat: ThreatModel, rng: Any) -> Any:
        """Changed rows."""
        xp = array_namespace(X)
        low, high = _like(threat.low, X), _like(threat.high, X)
        found, left = xp.asarray(X, copy=True), xp.arange(len(X))
        X0, x = X, X
        for _ in range(self.steps):
            z = target.scores(x)
            right = xp.argmax(z, axis=1) == y
            found[left[~right]] = x[~right]
            left, X0, x, y = left[right], X0[right], x[right], y[right]
            if not len(left):
                return found
            step = self._step(target, x, y, threat)
            x = xp.clip(X0 + (1 + self.overshoot) * (x - X0 + step), low, high)
        found[left] = x
        return found

    def _step(self, target: Target, x: Any, y: Any, threat: ThreatModel) -> Any:
        """The smallest step to a boundary of the linearised scores."""
        xp = array_namespace(x)
        count = min(self.candidates, len(target.classes)) - 1
        pulls = [_Rival(y, rank) for rank in range(count)]
        z, *slopes = target.gradient(x, *pulls)
        own = _taken(z, y)
        nearest = xp.full(x.shape[0], math.inf, dtype=x.dtype)
        step = xp.zeros_like(x)
        for pull, G in zip(pulls, slopes):
            gap = own - _taken(z, pull.rival)
            steep = row_norms(G, threat.dual)
            distance = xp.where(steep > 0, gap / xp.clip(steep, 1e-30, None), math.inf)
            closer = distance < nearest
            nearest = xp.where(closer, distance, nearest)
            way = threat.steepest(G) * column(distance, G)
            step = xp.where(column(closer, G), way, step)
        return step


class _Rival:
    """Raises the score of a rival over that of the true class.

    The rival is the class that comes next in the order of scores, after ``rank``
    others.
    """

    def __init__(self, y: Any, rank: int) -> None:
        self.y, self.rank, self.rival = y, rank, y

    def __call__(self, z: Any) -> Any:
        xp = array_namespace(z)
        true = _one_hot(z, self.y)
        others = xp.where(true, -math.inf, z)
        self.rival = xp.argsort(-others, axis=1)[:, self.rank]
        return xp.astype(_one_hot(z, self.rival), z.dtype) - xp.astype(true, z.dtype)


def _taken(z: Any, y: Any) -> Any:
    """The score of each row's class."""
    xp = array_namespace(z)
    return xp.take_along_axis(z, xp.reshape(y, (-1, 1)), axis=1)[:, 0]


def _one_hot(z: Any, y: Any) -> Any:
    """True where the column is the row's class."""
    xp = array_namespace(z)
    columns = xp.arange(z.shape[1], device=getattr(z, "device", None))
    return columns[None, :] == xp.reshape(xp.asarray(y), (-1, 1))


def _like(bound: Any, X: Any) -> Any:
    xp = array_namespace(X)
    return xp.asarray(bound, dtype=X.dtype)
