"""Attacks that use gradients: the exact worst case, one step, the nearest boundary.

    maximise ℓ(y, z(x̂)) over the rows x̂ that the threat allows

Each attack is a small object with ``run(target, X, y, threat, rng)``, which returns
changed rows; :func:`certus.robustness.attack` judges whether they fool the model.
``needs`` says what an attack must know about a model: labels, scores, gradients or the
formula. A row that is already predicted wrongly is not changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from certus.robustness.target import Target
from certus.threat import ThreatModel, column, row_norms
from certus.typing import Array, ArrayLike, MatrixLike

#: Rounds in which a step grows for what the box cut off.
_CUT = 5
#: Units of rounding that scores may differ by between two calls.
_ROUNDING = 64


class Surrogate(NamedTuple):
    """The function of class numbers and scores that an attack maximises.

    Attributes
    ----------
    value : callable
        One number for each row; above 0 the model is wrong, or nearly so.
    slope : callable
        Its derivative by each score.
    """

    value: Callable[..., Any]
    slope: Callable[..., Any]


def log_odds(y: ArrayLike, z: Array, rival: Any = None) -> Any:
    """The log of Σ_{j≠y} exp z_j / exp z_y, which grows with the cross-entropy."""
    xp = array_namespace(z)
    others = xp.where(one_hot(z, y), -math.inf, z)
    most = xp.max(others, axis=1, keepdims=True)
    total = xp.log(xp.sum(xp.exp(others - most), axis=1)) + most[:, 0]
    return total - taken(z, y)


def log_odds_slope(y: ArrayLike, z: Array, rival: Any = None) -> Any:
    """The softmax of the other classes, less one at y.

    That of the cross-entropy but for a factor, which vanishes where the model is all
    but certain: only the direction counts for a step.
    """
    xp = array_namespace(z)
    true = one_hot(z, y)
    others = xp.where(true, -math.inf, z)
    shares = xp.exp(others - xp.max(others, axis=1, keepdims=True))
    shares = shares / xp.sum(shares, axis=1, keepdims=True)
    return xp.where(true, -xp.ones_like(z), shares)


def margin(y: ArrayLike, z: Array, rival: Any = None) -> Any:
    """max_{j≠y} z_j − z_y; with a rival, z_rival − z_y."""
    rival = strongest(y, z) if rival is None else rival
    return taken(z, rival) - taken(z, y)


def margin_slope(y: ArrayLike, z: Array, rival: Any = None) -> Any:
    """One at the strongest other class, or at the rival; less one at y."""
    xp = array_namespace(z)
    rival = strongest(y, z) if rival is None else rival
    return xp.astype(one_hot(z, rival), z.dtype) - xp.astype(one_hot(z, y), z.dtype)


#: By name. "rivals" is the margin over one class after the other.
SURROGATES: dict[str, Surrogate] = {
    "cross_entropy": Surrogate(log_odds, log_odds_slope),
    "margin": Surrogate(margin, margin_slope),
    "rivals": Surrogate(margin, margin_slope),
}


@dataclass(frozen=True)
class Worst:
    """The exact worst case of a linear model: the worst allowed row for each rival.

    Needs scores W x + b; no other attack on such a model finds more.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from certus.robustness import ThreatModel, Worst, attack
    >>> X, y = np.array([[-3.0], [-1.0], [1.0], [3.0]]), [0, 0, 1, 1]
    >>> model = RidgeClassifier(alpha=0.0).fit(X, y)
    >>> attack(model, X, y, ThreatModel("l2", 1.1), Worst()).fooled
    array([False,  True,  True, False])
    """

    needs = "formula"

    def run(
        self,
        target: Target,
        X: Array,
        y: Array,
        threat: ThreatModel,
        rng: np.random.Generator,
    ) -> Any:
        """Changed rows."""
        formula = target.formula
        if formula is None:
            raise ValueError("Worst() is for linear models; use PGD() here.")
        W, X_hat = formula.W, X.copy()
        threat = threat.reachable(X)
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


@dataclass(frozen=True)
class OneStep:
    """x + radius · argmax_{‖v‖_p ≤ 1} vᵀ∇ℓ: FGSM for p = ∞, the l2 step for p = 2.

    The box counts as well: the allowed row that is best by the gradient, which is the
    exact worst case of a linear model with two classes.

    Parameters
    ----------
    loss : {"cross_entropy", "margin"}
        What the step raises.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from certus.robustness import OneStep, ThreatModel, attack
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression(max_iter=1000).fit(X, y)
    >>> found = attack(model, X, y, ThreatModel("linf", 0.25), OneStep())
    >>> bool((found.distances <= 0.25).all()), found.gradients
    (True, 146)
    """

    loss: str = "cross_entropy"

    needs = "gradients"

    def __post_init__(self) -> None:
        check_loss(self.loss)

    def run(
        self,
        target: Target,
        X: MatrixLike,
        y: ArrayLike,
        threat: ThreatModel,
        rng: np.random.Generator,
    ) -> Any:
        """Changed rows."""
        threat = threat.reachable(X)
        _, G = target.gradient(X, partial(SURROGATES[self.loss].slope, y))
        return threat.worst(X, G)


@dataclass(frozen=True)
class DeepFool:
    """Steps to the nearest boundary of the linearised scores, until the label changes.

    With w = ∇z_j − ∇z_k and f = z_k − z_j for the predicted k, the boundary to class j
    is f/‖w‖_q away; the step goes to the nearest one. The last point is then drawn back
    towards the row, to just past where its label changes, and replaced by the point of
    the linearised boundary there that is nearest to the row, if that is nearer. The
    changes it finds are small; it ignores the radius and respects the box.

    Parameters
    ----------
    steps : int
        At most.
    overshoot : float
        How far past the boundary to step, as a share of the way.
    candidates : int
        Classes looked at, those of the largest scores.
    halvings : int
        Of the way back; 0 leaves the last point as it is.
    refinements : int
        How often the boundary is linearised again where it was crossed.

    Examples
    --------
    >>> import math
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from certus.robustness import DeepFool, ThreatModel, attack
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression(max_iter=1000).fit(X, y)
    >>> found = attack(model, X, y, ThreatModel("l2", math.inf), DeepFool())
    >>> found.success
    1.0
    """

    steps: int = 50
    overshoot: float = 0.02
    candidates: int = 10
    halvings: int = 8
    refinements: int = 4

    needs = "gradients"

    def __post_init__(self) -> None:
        check_counts(steps=self.steps, candidates=self.candidates - 1)
        if not 0 <= min(self.overshoot, self.halvings, self.refinements) < math.inf:
            raise ValueError("overshoot, halvings and refinements must be at least 0.")

    def run(
        self,
        target: Target,
        X: Array,
        y: Array,
        threat: ThreatModel,
        rng: np.random.Generator | None,
    ) -> Any:
        """Changed rows."""
        xp = array_namespace(X)
        found, left = xp.asarray(X, copy=True), indices(X)
        crossed = xp.zeros_like(left, dtype=xp.bool)
        X0, way, labels = X, xp.zeros_like(X), y
        for _ in range(self.steps):
            x = into_box(X0 + (1 + self.overshoot) * way, threat, X0)
            right = ~plainly_wrong(labels, target.scores(x))
            found[left], crossed[left] = x, ~right
            left, X0, x, way, labels = (A[right] for A in (left, X0, x, way, labels))
            if not len(left):
                break
            way = way + self._step(target, x, labels, threat)
        at = indices(X)[crossed]
        if len(at):
            X0, labels = X[at], y[at]
            x = self._back(target, X0, found[at], labels)
            for _ in range(self.refinements):
                x = self._refined(target, X0, x, labels, threat)
            found[at] = x
        return found

    def _step(self, target: Target, x: Array, y: ArrayLike, threat: ThreatModel) -> Any:
        """The smallest step to a boundary of the linearised scores."""
        xp = array_namespace(x)
        count = min(self.candidates, len(target.classes)) - 1
        pulls = [_Ranked(y, rank) for rank in range(count)]
        z, *slopes = target.gradient(x, *pulls)
        nearest = xp.full_like(z[:, 0], math.inf)
        step = xp.zeros_like(x)
        for pull, G in zip(pulls, slopes):
            G = free(G, x, threat)
            gap = 2 * rounding(z) - margin(y, z, pull.rival)
            steep = row_norms(G, threat.dual)
            some = steep > 0
            distance = xp.where(some, gap / xp.where(some, steep, 1.0), math.inf)
            closer = distance < nearest
            nearest = xp.where(closer, distance, nearest)
            way = threat.steepest(G) * column(xp.where(closer, distance, 0.0), G)
            step = xp.where(column(closer, G), way, step)
        return step

    def _refined(
        self, target: Target, X: MatrixLike, x: Array, y: ArrayLike, threat: ThreatModel
    ) -> Any:
        """The nearest point of the boundary as linearised at x, if it is nearer."""
        xp = array_namespace(X)
        z, G = target.gradient(x, partial(margin_slope, y))
        way = threat.steepest(free(G, X, threat))
        # The linearised margin is 0 where gᵀδ is this; entries that the box cuts leave
        # their share to the others.
        need = _dots(G, x - X) - margin(y, z)
        gain = _dots(G, way)
        length = need / xp.where(gain > 0, gain, 1.0)
        for _ in range(_CUT):
            got = _dots(G, into_box(X + column(length, X) * way, threat, X) - X)
            length = length * xp.where(got > 0, need / xp.where(got > 0, got, 1.0), 1.0)
        length = xp.clip((1 + self.overshoot) * length, 0.0, None)
        trial = into_box(X + column(length, X) * way, threat, X)
        wrong = column(plainly_wrong(y, target.scores(trial)), X)
        near, far = xp.where(wrong, X, trial), xp.where(wrong, trial, x)
        trial = self._back(target, near, far, y)
        nearer = row_norms(trial - X, threat.norm) < row_norms(x - X, threat.norm)
        return xp.where(column(nearer, X), trial, x)

    def _back(self, target: Target, X: MatrixLike, x: Array, y: ArrayLike) -> Any:
        """From x towards X by halving, as far as the label stays changed."""
        xp = array_namespace(X)
        near = xp.zeros_like(x.reshape((x.shape[0], -1))[:, 0])
        far = xp.ones_like(near)
        for _ in range(self.halvings):
            middle = (near + far) / 2
            trial = X + column(middle, X) * (x - X)
            wrong = plainly_wrong(y, target.scores(trial))
            near, far = xp.where(wrong, near, middle), xp.where(wrong, middle, far)
        return X + column(far, X) * (x - X)


def _dots(A: Array, B: Array) -> Any:
    """Aᵀb of each pair of rows."""
    xp = array_namespace(A)
    return xp.sum((A * B).reshape((A.shape[0], -1)), axis=1)


class _Ranked:
    """Raises the score of a rival over that of the true class.

    The rival is the class that comes next in the order of scores, after ``rank``
    others.
    """

    def __init__(self, y: ArrayLike, rank: int) -> None:
        self.y, self.rank, self.rival = y, rank, y

    def __call__(self, z: Array) -> Any:
        self.rival = ranked(self.y, z)[:, self.rank]
        return margin_slope(self.y, z, self.rival)


def ranked(y: ArrayLike, z: Array) -> Any:
    """The other classes by score, the largest first; the true one last."""
    xp = array_namespace(z)
    return xp.argsort(-xp.where(one_hot(z, y), -math.inf, z), axis=1)


def strongest(y: ArrayLike, z: Array) -> Any:
    """The other class with the largest score."""
    xp = array_namespace(z)
    return xp.argmax(xp.where(one_hot(z, y), -math.inf, z), axis=1)


def plainly_wrong(y: ArrayLike, z: Array) -> Any:
    """Whether another class leads by more than rounding."""
    return margin(y, z) > rounding(z)


def rounding(z: Array) -> Any:
    """By how much scores may differ from call to call, with the rows beside them."""
    xp = array_namespace(z)
    return _ROUNDING * xp.finfo(z.dtype).eps * xp.max(abs(z), axis=1)


def taken(z: Array, y: ArrayLike) -> Any:
    """The score of each row's class."""
    xp = array_namespace(z)
    return xp.take_along_axis(z, xp.reshape(y, (-1, 1)), axis=1)[:, 0]


def one_hot(z: Array, y: ArrayLike) -> Any:
    """True where the column is the row's class."""
    xp = array_namespace(z)
    columns = xp.arange(z.shape[1], device=getattr(z, "device", None))
    return columns[None, :] == xp.reshape(y, (-1, 1))


def indices(X: Any) -> Any:
    """0, 1, ... for the rows, beside them."""
    xp = array_namespace(X)
    return xp.arange(X.shape[0], device=getattr(X, "device", None))


def into_box(X_hat: Any, threat: ThreatModel, X: MatrixLike) -> Any:
    """Changed rows with every entry moved to the nearest value that X may take."""
    return array_namespace(X_hat).clip(X_hat, *threat.box(X))


def free(G: Array, x: Any, threat: ThreatModel) -> Any:
    """The gradient, 0 where the box lets an entry move no further that way."""
    ends = np.isfinite(threat.low), np.isfinite(threat.high)
    if threat.fixed is None and not (ends[0].any() or ends[1].any()):
        return G
    xp = array_namespace(G)
    low, high = threat.box(x)
    return xp.where(((x <= low) & (G < 0)) | ((x >= high) & (G > 0)), 0.0, G)


def check_loss(name: str, known: tuple[str, ...] = ("cross_entropy", "margin")) -> None:
    """Refuse a loss that is not known."""
    if name not in known:
        raise ValueError(f"loss must be one of {', '.join(known)}, got {name!r}.")


def check_counts(**counts: Any) -> None:
    """Refuse counts below one."""
    for name, count in counts.items():
        if not (isinstance(count, (int, np.integer)) and count >= 1):
            raise ValueError(f"{name} must be a whole number of at least 1.")
