"""An attack that uses labels alone, and walks along the boundary of a class.

    bisection to the boundary → its normal, from the labels of points around
    → a step along it → bisection; and again

as in Chen, Jordan and Wainwright (2020). A point is only ever replaced by a nearer one
that the model gets wrong: the distance never grows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.robustness.attacks import check_counts, into_box
from certus.robustness.target import Target
from certus.threat import ThreatModel, column, row_norms
from certus.typing import Array

#: Bisections to the boundary, and halvings of a step that leads back.
HALVINGS = 12
#: Points asked at once.
TOGETHER = 4096
#: Random rows tried for a first point that is predicted otherwise, at each scale.
TRIED = 20


@dataclass(frozen=True)
class Boundary:
    """A walk along the boundary towards the row, by labels alone.

    It starts at rows of the same batch that the model predicts differently, or at
    random ones. With a finite radius a row stops once it is that near; with an infinite
    one all steps are taken, for a change that is as small as they find.

    Parameters
    ----------
    steps : int
        Times the normal is estimated, at most.
    probes : int
        Labels asked for the normal at the first step; √t times as many at step t.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from certus.robustness import Boundary, ThreatModel, attack
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KNeighborsClassifier(1).fit(X, y)
    >>> threat = ThreatModel("l2", 0.5)
    >>> attack(model, X, y, threat, Boundary(5), random_state=0).accuracy < 0.9
    True
    """

    steps: int = 20
    probes: int = 50

    needs = "labels"

    def __post_init__(self) -> None:
        check_counts(steps=self.steps, probes=self.probes)

    def run(
        self,
        target: Target,
        X: Array,
        y: Array,
        threat: ThreatModel,
        rng: np.random.Generator,
    ) -> Any:
        """Changed rows."""
        X = X.detach().cpu().numpy() if hasattr(X, "detach") else X
        y = np.asarray(y)
        walk = _Walk(target, threat, rng)
        x, found = walk.beginning(X, y)
        x[found] = walk.bisected(X[found], x[found], y[found])
        size = np.full(len(X), -1.0)
        size[found] = row_norms(x[found] - X[found], threat.norm)
        for step in range(1, self.steps + 1):
            rests = size <= threat.radius if math.isfinite(threat.radius) else size < 0
            at = np.flatnonzero(~rests & (size > 0))
            if not len(at):
                break
            probes = int(self.probes * math.sqrt(step))
            trial = walk.onward(X[at], x[at], y[at], probes, step)
            nearer = row_norms(trial - X[at], threat.norm) < size[at]
            x[at[nearer]] = trial[nearer]
            size[at] = row_norms(x[at] - X[at], threat.norm)
        return x


class _Walk:
    """The steps of the walk, for many rows at once."""

    def __init__(
        self, target: Target, threat: ThreatModel, rng: np.random.Generator
    ) -> None:
        self.target, self.threat, self.rng = target, threat, rng

    def wrong(self, points: Array, y: Array) -> Array:
        """Whether the prediction for each point differs from its y."""
        parts = range(0, len(points), TOGETHER)
        labels = [self.target.labels(points[i : i + TOGETHER]) for i in parts]
        return np.concatenate([np.empty(0, int), *labels]) != y

    def beginning(self, X: Array, y: Array) -> tuple[Array, Array]:
        """A point predicted otherwise for each row, and where there is one."""
        x, found = X.copy(), np.zeros(len(X), dtype=bool)
        self._other_rows(X, y, x, found)
        # Random points, the farther the longer none is found.
        spread = max(float(np.std(X)), float(np.abs(X).max(initial=0.0)), 1.0) / 64
        for scale in spread * 2.0 ** np.arange(12):
            for _ in range(TRIED):
                at = np.flatnonzero(~found)
                if not len(at):
                    return x, found
                noise = self.rng.standard_normal(X[at].shape)
                trial = (X[at] + scale * noise).astype(X.dtype)
                trial = into_box(trial, self.threat, X[at])
                wrong = self.wrong(trial, y[at])
                x[at[wrong]], found[at[wrong]] = trial[wrong], True
        return x, found

    def _other_rows(self, X: Array, y: Array, x: Array, found: Array) -> None:
        """For each row the nearest one of the batch that is predicted otherwise."""
        flat = X.reshape(len(X), -1).astype(np.float64)
        for i in range(len(X)):
            other = np.flatnonzero(y != y[i])
            if len(other):
                gaps = row_norms(flat[other] - flat[i], self.threat.norm)
                x[i], found[i] = X[other[np.argmin(gaps)]], True
        if self.threat.fixed is not None:  # with this row's own entries there
            x[found] = into_box(x, self.threat, X)[found]
            found &= self.wrong(x, y)

    def towards(self, X: Array, x: Array, share: Array) -> Array:
        """Between the row (0) and the point (1), the way the norm shrinks evenly."""
        if self.threat.norm != math.inf:
            return X + column(share, X) * (x - X)
        most = column(share * row_norms(x - X, math.inf), X)
        return X + np.clip(x - X, -most, most)

    def bisected(self, X: Array, x: Array, y: Array) -> Array:
        """Drawn to the row until just before the label is the row's own."""
        near, far = np.zeros(len(X), X.dtype), np.ones(len(X), X.dtype)
        for _ in range(HALVINGS):
            middle = (near + far) / 2
            wrong = self.wrong(self.towards(X, x, middle), y)
            near, far = np.where(wrong, near, middle), np.where(wrong, middle, far)
        return self.towards(X, x, far)

    def onward(self, X: Array, x: Array, y: Array, probes: int, step: int) -> Array:
        """Along the normal as far as the label stays wrong, then to the boundary."""
        size = row_norms(x - X, self.threat.norm)
        way = self.threat.steepest(self.normal(X, x, y, probes))
        length = size / math.sqrt(step)
        best, left = x.copy(), np.arange(len(X))
        for _ in range(HALVINGS):
            trial = x[left] + column(length[left], X) * way[left]
            trial = into_box(trial.astype(X.dtype), self.threat, X[left])
            wrong = self.wrong(trial, y[left])
            best[left[wrong]] = trial[wrong]
            left = left[~wrong]
            length = length / 2
            if not len(left):
                break
        return self.bisected(X, best, y)

    def normal(self, X: Array, x: Array, y: Array, probes: int) -> Array:
        """The mean of random directions, + where the label is wrong and − else."""
        radius = row_norms(x - X, 2) / math.sqrt(math.prod(x.shape[1:]))
        G = np.zeros(x.shape)
        at_once = max(1, TOGETHER // max(1, probes))
        for start in range(0, len(x), at_once):
            part = slice(start, start + at_once)
            rows = x[part]
            D = self.rng.standard_normal((len(rows), probes, *x.shape[1:]))
            lengths = np.linalg.norm(D.reshape(*D.shape[:2], -1), axis=2)
            D /= lengths.reshape(*lengths.shape, *(1,) * (x.ndim - 1))
            points = rows[:, None] + column(radius[part], D) * D
            points = points.reshape(-1, *x.shape[1:]).astype(x.dtype)
            centres = np.repeat(X[part], probes, axis=0)
            points = into_box(points, self.threat, centres)
            wrong = self.wrong(points, np.repeat(y[part], probes)).reshape(-1, probes)
            signs = np.where(wrong, 1.0, -1.0)
            uneven = signs.mean(axis=1, keepdims=True)
            # Less their mean, for a smaller variance, unless all are alike.
            signs = np.where(np.abs(uneven) < 1, signs - uneven, signs)
            G[part] = np.einsum("np,np...->n...", signs, D)
        return G
