"""``robust_accuracy``: the accuracy under attack, between two numbers.

    certified ≤ robust accuracy ≤ accuracy under the best attack

The lower end counts rows for which it is proved that no allowed change alters their
class; the upper end counts all correct rows that no attack has fooled. For linear
models both agree. Exact binomial intervals account for the difference between the
sample and new rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from certus.base import check_number, generator_of
from certus.robustness.attacks import DeepFool, OneStep, Worst
from certus.robustness.black_box import Search
from certus.robustness.boundary import Boundary
from certus.robustness.bracket import Bracket, RobustAccuracy, allowed, bracket
from certus.robustness.judging import attack, chosen_attack, prepared
from certus.robustness.pgd import PGD
from certus.robustness.proving import prove
from certus.robustness.target import Target
from certus.threat import ThreatModel
from certus.typing import Array, ArrayLike, Fit, MatrixLike, RandomState
from certus.verify import Proof, accuracy_claim, among, refuted

__all__ = ["Bracket", "RobustAccuracy", "robust_accuracy"]

#: The attacks if gradients are known. DeepFool comes first: its changes are small,
#: and count at all larger radii. The search shows whether gradients are misleading.
WHITE_BOX: tuple[Any, ...] = (
    DeepFool(),
    OneStep(),
    PGD(steps=40, restarts=2),
    PGD(steps=40, restarts=5, loss="rivals"),
    Search(steps=300),
)
#: Share of the time that proofs may take.
PROVING = 0.5


def robust_accuracy(
    model: Fit,
    X: MatrixLike,
    y: ArrayLike,
    threat: ThreatModel,
    *,
    radii: Iterable[float] | int = 8,
    attacks: Iterable[Any] | None = None,
    delta: float = 0.05,
    max_time: float | None = None,
    random_state: RandomState = None,
) -> RobustAccuracy:
    """Bound the accuracy of a classifier when rows may be changed, from both sides.

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
        Failure probability: the chance that the statement does not hold. There is one
        statement at each radius.
    max_time : float, optional
        Seconds after which no more is proved or attacked. Both bounds still hold, and
        are farther apart.
    random_state : int, Generator or None, default=None
        Seed or generator of all random numbers. They decide random starts.

    Returns
    -------
    RobustAccuracy

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from certus.robustness import ThreatModel, robust_accuracy
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LogisticRegression())
    >>> model = model.fit(X[:400], y[:400])
    >>> found = robust_accuracy(model, X[400:], y[400:], ThreatModel("linf", 0.02))
    >>> found.lower == found.upper
    True
    """
    start = time.perf_counter()
    check_number("max_time", max_time, none=True)
    check_number("delta", delta, 0.0, 1.0, open_low=True)
    seconds = math.inf if max_time is None else max_time
    target, X, true, threat = prepared(model, X, y, threat)
    threat = threat.bounded(X)
    chosen = tuple(attacks) if attacks is not None else _attacks(target)
    chosen = tuple(chosen_attack(method, target) for method in chosen)
    levels = _levels(threat.radius, radii)
    right = target.labels(X) == true
    begin = time.perf_counter()  # the time limit is for this case
    proof = _proof(target, X, true, right, threat, levels, begin + PROVING * seconds)
    tried = _attack(
        *(target, X, true, right, threat, levels, chosen),
        *(begin + seconds, generator_of(random_state)),
    )
    fooled = [tried.distances <= radius for radius in levels]
    proof = refuted(proof, fooled)
    notes: tuple[str, ...] = ()
    if not (proof.complete and tried.complete):
        notes = ("the time limit left some rows unproved or some attacks untried",)
    curve = tuple(
        bracket(radius, a, ~b, delta)
        for radius, a, b in zip(levels, proof.certified, fooled)
    )
    return RobustAccuracy(
        *(threat, curve, proof.certified[-1], fooled[-1], proof.method, proof.refused),
        *(_names(chosen), tried.masked, delta, accuracy_claim(proof, allowed(threat))),
        *(notes, time.perf_counter() - start),
    )


def _attacks(target: Target) -> tuple[Any, ...]:
    if target.formula is not None and target.known:
        return (Worst(),)
    if target.has_gradients:
        return WHITE_BOX
    return (Search(), Boundary()) if target.has_scores else (Boundary(),)


def _names(chosen: tuple[Any, ...]) -> tuple[str, ...]:
    """The attacks, each once."""
    return tuple(dict.fromkeys(type(method).__name__ for method in chosen))


def _levels(most: float, radii: Iterable[float] | int) -> list[float]:
    """Radii in ascending order, 0 first and that of the threat last."""
    if isinstance(radii, Iterable):
        given = [float(radius) for radius in radii]
    else:
        check_number("radii", radii, 1, integer=True)
        given = np.linspace(0, most, int(radii) + 1).tolist()
    levels = sorted({0.0, float(most), *given})
    if not (levels[-1] <= most and levels[0] >= 0):
        raise ValueError(
            f"radii must lie between 0 and the radius of the threat, {most:g}."
        )
    return levels


def _proof(
    target: Target,
    X: Array,
    true: Array,
    right: Array,
    threat: ThreatModel,
    levels: list[float],
    deadline: float,
) -> Proof:
    """The proof for all rows; wrongly predicted rows are not robust."""
    found = prove(
        target, X[right], true[right], threat, levels, deadline, predicted=True
    )
    return among(found, right)


class _Tried(NamedTuple):
    """The smallest change known to fool each row; 0 for those that are wrong."""

    distances: Array
    masked: int | None
    complete: bool


def _attack(
    target: Target,
    X: Array,
    true: Array,
    right: Array,
    threat: ThreatModel,
    levels: list[float],
    chosen: tuple[Any, ...],
    deadline: float,
    rng: np.random.Generator,
) -> _Tried:
    """Attack at the largest radius; rows that fall at one also at the next smaller.

    A change that fools a row counts at every radius from its size on. Attacks that ask
    for labels alone make changes small whatever the radius: beside others they are
    made once.
    """
    distances = np.where(right, math.inf, 0.0)
    needs = [getattr(method, "needs", "labels") for method in chosen]
    by_gradients = [need in ("gradients", "formula") for need in needs]
    masked = 0 if len(set(by_gradients)) == 2 else None
    once = [len(set(needs)) > 1 and need == "labels" for need in needs]
    # Black-box attacks come last: they find what gradients missed.
    order = sorted(range(len(chosen)), key=lambda i: not by_gradients[i])
    larger = math.inf
    for radius in reversed(levels[1:]):
        top, within = larger == math.inf, distances <= larger
        larger = radius
        for i in order:
            misled = masked is not None and not by_gradients[i]
            if not top and (misled or once[i]):
                continue
            rows = np.flatnonzero(within & (distances > radius))
            if not len(rows):
                continue
            left = deadline - time.perf_counter()
            if left <= 0:
                return _Tried(distances, masked, complete=False)
            found = attack(
                target,
                X[rows],
                target.classes[true[rows]],
                threat.within(radius),
                chosen[i],
                random_state=rng,
                max_time=left if left < math.inf else None,
            )
            hit = rows[found.fooled]
            distances[hit] = found.distances[found.fooled]
            if top and misled and masked is not None:
                masked += len(hit)
            if not found.tried.all():
                return _Tried(distances, masked, complete=False)
    return _Tried(distances, masked, complete=True)
