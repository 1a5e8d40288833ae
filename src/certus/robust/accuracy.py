"""``robust_accuracy``: the accuracy under attack, between two numbers.

    certified ≤ robust accuracy ≤ what the best attack leaves

A row counts below if no allowed change can alter its class, which is proved; it counts
above unless an attack changed it, which is shown. For linear models both agree. How the
sample differs from new rows is stated apart, by exact binomial intervals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from certus.bounds import clopper_pearson
from certus.robust.attacks import DeepFool, OneStep, Worst
from certus.robust.black_box import Search
from certus.robust.boundary import Boundary
from certus.robust.judging import attack, prepared
from certus.robust.pgd import PGD
from certus.robust.proving import certified_rows
from certus.robust.target import Array, Target
from certus.threat import ThreatModel

#: What is tried where gradients are known, and where a formula is.
WHITE_BOX: tuple[Any, ...] = (
    OneStep(),
    DeepFool(),
    PGD(steps=40, restarts=2),
    PGD(steps=40, restarts=5, loss="rivals"),
)


class Bracket(NamedTuple):
    """Robust accuracy at one radius.

    Attributes
    ----------
    radius : float
    lower, upper : float
        Shares of the sample: proved to be robust; not fooled by any attack.
    low, high : float
        Between these it lies for new rows, with probability 1 − delta.
    """

    radius: float
    lower: float
    upper: float
    low: float
    high: float


@dataclass(frozen=True)
class RobustAccuracy:
    """What is known of the accuracy under a threat.

    Attributes
    ----------
    threat : ThreatModel
        With the largest radius.
    curve : tuple of Bracket
        By radius, ascending; the last one is that of the threat.
    certified, fooled : ndarray of bool
        At the radius of the threat: rows proved to be robust; rows that are wrong
        already or can be made so.
    method : str
        How rows were proved to be robust; or why none was.
    delta : float
        Failure probability of the statement about new rows.
    """

    threat: ThreatModel
    curve: tuple[Bracket, ...]
    certified: Array
    fooled: Array
    method: str
    delta: float

    @property
    def lower(self) -> float:
        """Share of rows proved to be robust."""
        return self.curve[-1].lower

    @property
    def upper(self) -> float:
        """Share of rows that no attack fooled."""
        return self.curve[-1].upper

    @property
    def clean(self) -> float:
        """Accuracy without any attack."""
        return self.curve[0].upper


def robust_accuracy(
    model: Any,
    X: Any,
    y: Any,
    threat: ThreatModel,
    *,
    radii: Iterable[float] | int = 8,
    attacks: Iterable[Any] | None = None,
    delta: float = 0.05,
    random_state: Any = 0,
) -> RobustAccuracy:
    """Between what the accuracy lies when rows may be changed.

    Parameters
    ----------
    model : classifier, nn.Module or callable
        Anything that predicts classes; see :func:`as_target`.
    X, y : array-like
        Rows in raw units that the model was not trained on, and their classes.
    threat : ThreatModel
        What is allowed.
    radii : int or iterable of float, default=8
        Radii of the curve, or how many; 0 and that of the threat always belong to it.
    attacks : iterable, optional
        Attacks to try; by default those that the model admits.
    delta : float, default=0.05
        Failure probability of the statement about new rows, at each radius.
    random_state : int or Generator, default=0
        For random starts.

    Returns
    -------
    RobustAccuracy

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from certus.robust import ThreatModel, robust_accuracy
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LogisticRegression())
    >>> model = model.fit(X[:400], y[:400])
    >>> found = robust_accuracy(model, X[400:], y[400:], ThreatModel("linf", 0.02))
    >>> found.lower == found.upper
    True
    """
    target, X, true = prepared(model, X, y, threat)
    right = target.labels(X) == true
    chosen = tuple(attacks) if attacks is not None else _attacks(target)
    levels = _levels(threat.radius, radii)
    fooled, upper = ~right, []
    for radius in levels:
        for method in chosen if radius > 0 else ():
            left = np.flatnonzero(~fooled)
            if len(left):
                names = target.classes[true[left]]
                now = threat.within(radius)
                found = attack(
                    target, X[left], names, now, method, random_state=random_state
                )
                fooled[left] |= found.fooled
        upper.append(fooled.copy())
    certified, lower, method = np.zeros(len(X), bool), [], ""
    for radius in reversed(levels):
        proved, method = certified_rows(target, X, true, threat.within(radius))
        certified = certified | (proved & right)
        lower.append(certified.copy())
    lower.reverse()
    curve = tuple(
        _bracket(radius, a, ~b, delta) for radius, a, b in zip(levels, lower, upper)
    )
    return RobustAccuracy(threat, curve, lower[-1], upper[-1], method, delta)


def _attacks(target: Target) -> tuple[Any, ...]:
    if target.formula is not None:
        return (Worst(),)
    if target.has_gradients:
        return WHITE_BOX
    return (Search(), Boundary()) if target.has_scores else (Boundary(),)


def _levels(most: float, radii: Iterable[float] | int) -> list[float]:
    """Radii in ascending order, 0 first and that of the threat last."""
    given = np.linspace(0, most, radii + 1) if isinstance(radii, int) else list(radii)
    levels = sorted({0.0, float(most), *(float(r) for r in given)})
    if levels[-1] > most or levels[0] < 0:
        raise ValueError(
            f"radii must lie between 0 and the radius of the threat, {most:g}."
        )
    return levels


def _bracket(radius: float, proved: Array, standing: Array, delta: float) -> Bracket:
    """The shares, and exact binomial bounds for new rows, half of delta for each."""
    n = len(proved)
    below = clopper_pearson(int(proved.sum()), n, delta)
    above = clopper_pearson(int(standing.sum()), n, delta)
    shares = float(proved.mean()), float(standing.mean())
    return Bracket(radius, *shares, below.low, above.high)
