"""Attacks that only use scores.

- :func:`finite_differences` and :class:`Differences` rebuild gradients from scores,
  with d + 1 or 2d queries for each row, or fewer in random directions;
- :class:`Search` changes random parts of a row and keeps what lowers the margin, as in
  Andriushchenko et al. (2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from certus.base import generator_of
from certus.robustness.attacks import check_counts, margin
from certus.robustness.pgd import PGD
from certus.robustness.target import Pull, Target
from certus.threat import ThreatModel, column, row_norms
from certus.typing import Array, ArrayLike, Matrix, MatrixLike, RandomState

#: Points at which a function is evaluated together.
TOGETHER = 4096
#: Share of the entries that a search changes together at first; halved as it goes.
WINDOW = 0.5


def finite_differences(
    function: Callable[[Any], Any],
    X: Any,
    *,
    step_size: float = 1e-3,
    central: bool = True,
    directions: int | None = None,
    random_state: RandomState = None,
) -> Any:
    """The gradient of a function of rows, from its values alone.

    (g(x + αeᵢ) − g(x))/α with an error of O(α), d + 1 questions for each row; or
    (g(x + αeᵢ) − g(x − αeᵢ))/(2α) with an error of O(α²) and 2d questions. With m
    random directions u, ‖u‖ = 1, in place of all eᵢ: (d/m) Σ u (uᵀ∇g), which is right
    in the mean, with m + 1 or 2m questions.

    Parameters
    ----------
    function : callable
        One number for each row.
    X : ndarray or tensor
        Rows of any shape.
    step_size : float, default=1e-3
        How far to go, in the units of X.
    central : bool, default=True
        Whether to go both ways.
    directions : int, optional
        So many random directions; by default along every entry.
    random_state : int or Generator, optional
        Seed or generator of all random numbers. They decide the directions.

    Returns
    -------
    ndarray or tensor of the shape of X

    Examples
    --------
    >>> import numpy as np
    >>> from certus.robustness import finite_differences
    >>> finite_differences(lambda X: X[:, 0] * X[:, 1], np.array([[2.0, 3.0]])).round(6)
    array([[3., 2.]])
    """
    if not (step_size > 0 and math.isfinite(step_size)):
        raise ValueError(f"step_size must be a number above 0, got {step_size!r}.")
    xp = array_namespace(X)
    n, d = X.shape[0], math.prod(X.shape[1:])
    G = xp.zeros_like(X.reshape((n, d)))
    here: Any = None if central or not n else function(X)
    ways = _beside(_directions(d, directions, random_state), X)
    at_once = max(1, TOGETHER // max(n, 1))
    for start in range(0, len(ways) if n else 0, at_once):
        part = ways[start : start + at_once]
        up = _values(function, X, step_size * part)
        down = _values(function, X, -step_size * part) if central else here[:, None]
        slopes = (up - down) / (2 * step_size if central else step_size)
        if directions is None:
            G[:, start : start + at_once] = slopes
        else:
            G += xp.astype(slopes, G.dtype) @ part * (d / len(ways))
    return G.reshape(X.shape)


def _directions(d: int, count: int | None, random_state: RandomState) -> Array:
    """All entries, or random directions of length one."""
    if count is None:
        return np.eye(d)
    check_counts(directions=count)
    D = generator_of(random_state).standard_normal((count, d))
    return D / np.linalg.norm(D, axis=1, keepdims=True)


def _values(function: Callable[[Any], Any], X: Any, moves: Any) -> Any:
    """The function of each row after each move: (rows, moves)."""
    n, d = X.shape[0], moves.shape[1]
    points = X.reshape((n, 1, d)) + moves[None]
    return function(points.reshape((-1, *X.shape[1:]))).reshape((n, len(moves)))


class Estimated(Target):
    """A target of which scores are known, with gradients by finite differences."""

    has_scores = has_gradients = True

    def __init__(self, target: Target, **options: Any) -> None:
        super().__init__(target.labels, np.arange(len(target.classes)))
        self._asked, self.options = target, options

    def scores(self, X: MatrixLike) -> Any:
        """One score for each class."""
        return self._asked.scores(X)

    def gradient(self, X: MatrixLike, *pulls: Pull) -> tuple[Any, ...]:
        """Scores, and the differences for each pull."""
        z = self.scores(X)
        return z, *(self._differences(X, pull(z)) for pull in pulls)

    def _differences(self, X: Any, V: Any) -> Any:
        xp = array_namespace(X)
        n = X.shape[0]

        def pulled(points: Any) -> Any:
            z = self.scores(points)
            many = z.reshape((n, -1, z.shape[1]))
            return xp.sum(many * V[:, None, :], axis=2).reshape(-1)

        return finite_differences(pulled, X, **self.options)


@dataclass(frozen=True)
class Differences:
    """An attack along gradients that are estimated from scores.

    Parameters
    ----------
    method : attack, default=PGD(steps=10)
        Any attack that needs gradients.
    step_size : float, default=1e-3
        How far apart the scores are asked, in the units of X.
    central : bool, default=False
        Whether both ways: twice as many questions, for a smaller error.
    directions : int, optional
        So many random directions for each gradient, in place of all entries: fewer
        questions about long rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from certus.robustness import Differences, ThreatModel, attack
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianNB().fit(X, y)
    >>> found = attack(model, X, y, ThreatModel("linf", 0.3), Differences())
    >>> found.accuracy < 0.9 < model.score(X, y)
    True
    """

    method: Any = field(default_factory=lambda: PGD(steps=10))
    step_size: float = 1e-3
    central: bool = False
    directions: int | None = None

    needs = "scores"

    def run(
        self,
        target: Target,
        X: MatrixLike,
        y: ArrayLike,
        threat: ThreatModel,
        rng: np.random.Generator,
    ) -> Any:
        """Changed rows."""
        asked = Estimated(
            target,
            step_size=self.step_size,
            central=self.central,
            directions=self.directions,
            random_state=rng,
        )
        return self.method.run(asked, X, y, threat, rng)


@dataclass(frozen=True)
class Search:
    """Random changes of parts of a row; those that lower the margin are kept.

    A proposal takes the size that the change has in some entries, and what is left of
    the radius, to others, in random directions; for p = ∞ entries go to the ends of
    their range. Rows with two or three axes, images, are changed in squares.

    Parameters
    ----------
    steps : int
        Questions for each row, at most.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from certus.robustness import Search, ThreatModel, attack
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RandomForestClassifier(20, random_state=0).fit(X, y)
    >>> threat = ThreatModel("linf", 0.3)
    >>> attack(model, X, y, threat, Search(100), random_state=0).accuracy < 0.9
    True
    """

    steps: int = 500

    needs = "scores"

    def __post_init__(self) -> None:
        check_counts(steps=self.steps)

    def run(
        self,
        target: Target,
        X: Array,
        y: Array,
        threat: ThreatModel,
        rng: np.random.Generator,
    ) -> Any:
        """Changed rows."""
        xp = array_namespace(X)
        threat = threat.reachable(X)
        x = threat.project(_corner(X, threat, rng), X)
        value = margin(y, target.scores(x))
        for step in range(1, self.steps):
            left = xp.nonzero(value <= 0)[0]
            if not len(left):
                break
            centre, now = X[left], x[left]
            share = WINDOW / 2 ** (8 * step / self.steps)
            trial = threat.project(_proposal(now, centre, threat, share, rng), centre)
            found = margin(y[left], target.scores(trial))
            better = found > value[left]
            x[left[better]], value[left[better]] = trial[better], found[better]
        return x


def _corner(X: Array, threat: ThreatModel, rng: np.random.Generator) -> Any:
    """Random corners of the ball, as a start."""
    sign = rng.choice([-1.0, 1.0], X.shape)
    d = max(1, math.prod(X.shape[1:]))
    size = threat.radius * d ** (-1 / threat.norm)
    return X + _beside(size * sign, X)


def _proposal(
    x: Array, X: Array, threat: ThreatModel, share: float, rng: np.random.Generator
) -> Any:
    """Rows with the change in a random window replaced."""
    xp = array_namespace(x)
    change, shape = x - X, tuple(X.shape)
    here = _beside(_window(shape, share, rng), X)
    sign = _beside(rng.choice([-1.0, 1.0], shape), X)
    if threat.norm == math.inf:
        return X + xp.where(here > 0, threat.radius * sign, change)
    there = _beside(_window(shape, share, rng), X)
    kept = xp.where((here > 0) | (there > 0), 0.0, change)
    # Of radius^p, what the entries outside both windows leave.
    used = row_norms(kept, threat.norm) / threat.radius
    rest = threat.radius * xp.clip(1 - used**threat.norm, 0.0, 1.0) ** (1 / threat.norm)
    size = _beside(rng.standard_exponential(shape), X)
    new = _unit(here * sign * size, threat) + _unit(here * change, threat)
    return X + kept + _unit(new, threat) * column(rest, X)


def _unit(D: Array, threat: ThreatModel) -> Any:
    xp = array_namespace(D)
    size = row_norms(D, threat.norm)
    return D / column(xp.where(size > 0, size, xp.ones_like(size)), D)


def _window(shape: tuple[int, ...], share: float, rng: np.random.Generator) -> Array:
    """One where a row may change: a square of an image, or some entries of others."""
    n, d = shape[0], math.prod(shape[1:])
    if len(shape) < 3:
        some = rng.random((n, d)) < share
        some[np.arange(n), rng.integers(0, d, n)] = True
        return some.reshape(shape).astype(float)
    height, width = shape[-2:]
    side = max(1, round(math.sqrt(share * height * width)))
    rows, columns = np.arange(height), np.arange(width)
    top = rng.integers(0, max(1, height - side + 1), (n, 1))
    left = rng.integers(0, max(1, width - side + 1), (n, 1))
    tall = (rows >= top) & (rows < top + side)
    wide = (columns >= left) & (columns < left + side)
    square = tall[:, :, None] & wide[:, None, :]
    middle = (n,) + (1,) * (len(shape) - 3) + (height, width)
    return np.broadcast_to(square.reshape(middle), shape).astype(float)


def _beside(values: Array, X: Matrix) -> Any:
    """NumPy numbers as an array or tensor, like the rows."""
    xp = array_namespace(X)
    return xp.asarray(values, dtype=X.dtype, device=getattr(X, "device", None))
