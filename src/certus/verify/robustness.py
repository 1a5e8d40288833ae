"""Which rows no allowed change can move to another class: proved, or not claimed.

    m_j(x) = min over allowed x̂ of z_y(x̂) − z_j(x̂),  certified if > 0 for all j ≠ y

z is what the network computes in its own precision, rounding included. Linear networks
are solved exactly. For other networks the better of two lower bounds is taken:
Lipschitz constants, which give a radius for each row at once, and interval bounds at a
given radius. If the model's own scores are given, they must agree with those of the
arrays up to rounding; else nothing is proved.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from certus import layers as net
from certus.certificate import Claim, Strength
from certus.typing import Array, ArrayLike, ThreatLike
from certus.verify import layers, reach
from certus.verify.deciding import refused
from certus.verify.layers import SLACK, Unbounded, share, walk
from certus.verify.reach import Allowed, Boxes, Lipschitz, box, centre, dual, free

#: Rows that go through the bounds together.
TOGETHER = 256
_EXACT = "exact, because the model is linear"
_LIPSCHITZ = "from the Lipschitz constants of the layers"
_INTERVALS = "from intervals through the layers"
_OTHERWISE = "no bound is known for an operation that changes tensors in a hidden way"


class Proof(NamedTuple):
    """What is proved for each radius and row, how, and whether time sufficed."""

    certified: Array  # (radii, rows)
    method: str
    refused: bool = False
    complete: bool = True


def unproved(reason: str, radii: Sequence[float], X: Sized) -> Proof:
    """No proof for any of the rows, and why.

    Parameters
    ----------
    reason : str
        A sentence, in place of how it was proved.
    radii, X
        As in :func:`prove_robust`.
    """
    nothing = np.zeros((len(radii), len(X)), dtype=bool)
    return Proof(nothing, reason, refused=True)


def prove_robust(
    network: net.Network,
    X: ArrayLike,
    y: ArrayLike,
    threat: ThreatLike,
    radii: Sequence[float],
    *,
    outputs: Array | None = None,
    predicted: bool = False,
    deadline: float = math.inf,
) -> Proof:
    """Rows whose class no allowed change alters, at each of several radii.

    Parameters
    ----------
    network : Network
        Of ``certus.layers``: the arrays that compute a score for each class.
    X, y : ndarray
        Rows and class numbers.
    threat : ThreatModel
        What is allowed, but for the radius.
    radii : sequence of float
        Ascending.
    outputs : ndarray of shape (n, classes), optional
        What the model itself computes for the rows, or for the first n of them: others
        are not looked at.
    predicted : bool, default=False
        Whether the model predicts y for these rows: then the arrays must, too.
    deadline : float
        Of ``time.perf_counter``; what is not proved by then is not claimed.

    Examples
    --------
    >>> import numpy as np
    >>> from certus import layers
    >>> from certus.robustness import ThreatModel
    >>> from certus.verify import prove_robust
    >>> dense = layers.Dense(np.array([[0.0], [1.0]]))
    >>> network = layers.Network((layers.LayerStep(dense, (0,)),), (1,))
    >>> proof = prove_robust(network, [[2.0], [0.5]], [1, 1], ThreatModel(2, 1), [1.0])
    >>> proof.certified.tolist(), proof.method
    ([[True, False]], 'exact, because the model is linear')
    """
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y)
    try:
        with np.errstate(all="ignore"):
            rows = _Pass(network, X, y, threat, radii, outputs, predicted)
            return rows.run(deadline)
    except Unbounded as reason:
        return unproved(f"nothing is proved: {reason}", radii, X)


@dataclass
class _Pass:
    """The proofs of one network: what is computed once for all rows and radii."""

    network: net.Network
    X: Array
    y: Array
    threat: ThreatLike
    radii: Sequence[float]
    outputs: Array | None
    predicted: bool

    def __post_init__(self) -> None:
        precision, norm = self.network.precision, self.threat.norm
        self.kinds = layers.operations(self.network)
        self.reach = Lipschitz(norm, self.radii[-1], precision)
        self.boxes = Boxes(self.threat, precision)

    def run(self, deadline: float) -> Proof:
        """All blocks of rows, by the method that the network allows."""
        count = len(self.X) if self.outputs is None else len(self.outputs)
        certified = np.zeros((len(self.radii), len(self.X)), dtype=bool)
        A, off = self._matrix()
        method = _LIPSCHITZ if A is None else _EXACT
        for start in range(0, count, TOGETHER):
            if time.perf_counter() > deadline:
                return Proof(certified, method, complete=False)
            at = np.arange(start, min(start + TOGETHER, count))
            if A is None:
                certified[:, at] = self._radii(at) >= np.array(self.radii)[:, None]
            else:
                certified[:, at] = self._exact(at, A, off)
        complete = count == len(self.X)
        if A is None:
            before = certified[-1].sum()
            complete &= self._bisected(certified[:, :count], deadline)
            more = certified[-1].sum() - before
            method = _INTERVALS if more > before else _LIPSCHITZ
        return Proof(certified, method, complete=complete)

    # -- Lipschitz constants ----------------------------------------------------------

    def _radii(self, at: Array) -> Array:
        """Up to which radius no change alters the class of each row; −1 if none is.

        Over a ball of radius r the margin over class j is z_y − z_j − r·L_yj at least,
        and what is computed is off by no more than rounding can add within the largest.
        """
        network, y = self.network, self.y[at]
        out = walk(network, self.kinds, self.reach.start(self.X[at]), self.reach)
        z, error = out.values, out.error
        # The network's own rounding, and that of the centre, computed here in float64.
        twice = 2 * (1 + 2.0**-51 / network.precision.unit)
        if not network.hidden:
            self._agreeing(at, z, (twice * error)[:, None])
        if network.ranked or network.hidden:
            error = error + share(network.precision, 8) * (1 + self.reach.size(out))
        own = _own(z, y)
        lost = (twice * error)[:, None] + 2.0**-50 * (np.abs(own) + np.abs(z))
        margins = own - z - lost
        self._predicting(own - z + lost)
        L = _but_own(self.reach.differences(out, dual(self.threat.norm))[y], y)
        radii = np.where(margins > 0, margins / (L * (1 + SLACK)), -1.0)
        return _but_own(np.where(np.isnan(radii), -1.0, radii), y).min(axis=1)

    def _agreeing(self, at: Array, z: Array, lost: Array) -> None:
        """Refuse a network that gives rows other scores than rounding explains."""
        if self.outputs is None:
            return
        found = np.asarray(self.outputs, dtype=np.float64)[at]
        near = np.abs(found - z) <= lost if found.shape == z.shape else np.array(False)
        if not (near | (lost == math.inf)).all():
            raise Unbounded(_OTHERWISE)

    def _predicting(self, most: Array) -> None:
        """Refuse arrays that put another class first than the model does."""
        if self.predicted and (most < 0).any():
            raise Unbounded("the model does not compute what its layers say")

    # -- intervals --------------------------------------------------------------------

    def _margins(self, at: Array, radius: float) -> Array:
        """Lower bounds of z_y − z_j by intervals; the last layer in one step."""
        y, precision = self.y[at], self.network.precision
        self.boxes.radius = radius
        out = walk(self.network, self.kinds, Allowed(self.X[at]), self.boxes)
        out = self.boxes.interval(out)
        found, slack = _own(out.low, y) - out.high, np.zeros_like(out.low)
        if out.last is not None:
            middle, half, slack, W = out.last
            found = _own(middle, y) - middle
            for k in np.unique(y):
                found[y == k] -= half[y == k] @ np.abs(W[k] - W).T
        if self.network.ranked or self.network.hidden:
            slack = slack + share(precision, 8) * (1 + out.size)
        return _but_own(found - slack - _own(slack, y), y)

    def _bisected(self, certified: Array, deadline: float) -> bool:
        """Find for each row up to which radius it passes; False if time was short.

        A row that passes at a radius is proved at all smaller ones; one that fails is
        not tried at larger ones.
        """
        # Radii that are proved of each row, and those that may be.
        low, high = certified.sum(axis=0), np.full(certified.shape[1], len(certified))
        while (low < high).any():
            middle = np.where(low < high, (low + high) // 2, -1)
            for i in np.unique(middle[middle >= 0]):
                rows = np.flatnonzero(middle == i)
                for start in range(0, len(rows), TOGETHER):
                    if time.perf_counter() > deadline:
                        return False
                    at = rows[start : start + TOGETHER]
                    passed = (self._margins(at, self.radii[i]) > 0).all(axis=1)
                    certified[: i + 1, at] |= passed
                    low[at[passed]], high[at[~passed]] = i + 1, i
        return True

    # -- linear networks --------------------------------------------------------------

    def _matrix(self) -> tuple[Array | None, float]:
        """Of a chain of linear maps without a softmax: its matrix and its rounding."""
        network, chain = self.network, tuple(self.kinds)
        line = all(step.inputs == (i,) for i, step in enumerate(network.steps))
        linear = line and all(isinstance(kind, layers.Affine) for kind in chain)
        if not linear or network.ranked or network.hidden:
            return None, 0.0
        return reach.as_matrix(chain, network.shape, math.inf, reach.WRITTEN_OUT)

    def _exact(self, at: Array, A: Array, off: float) -> Array:
        """The worst allowed row for each rival, by duality: (radii, rows)."""
        X, y, precision = self.X[at], self.y[at], self.network.precision
        here = Allowed(X, tuple(self.kinds))
        z, lost = centre(here, (X, X), precision)
        self._agreeing(at, z, lost)
        self._predicting(_own(z, y) - z + lost + _own(lost, y))
        found = np.ones((len(self.radii), len(at)), dtype=bool)
        for radius, passed in zip(self.radii, found):
            ends = box(self.threat, X, radius)
            z, lost = centre(here, ends, precision)
            margins, slack = _own(z, y) - z, _own(lost, y) + lost + 2 * off * radius
            low, high = ((end - X).reshape(len(X), -1) for end in ends)
            for j in range(len(A)):
                some = y != j
                G = free(self.threat, A[j] - A[y[some]])
                room = np.where(G > 0, high[some], -low[some])
                most = _most(np.abs(G), room, self.threat.norm, radius)
                size = np.abs(A[j]) + np.abs(A[y[some]])
                size = (size * np.maximum(-low, high)[some]).sum(axis=1)
                most += slack[some, j] + share(precision, A.shape[1] + 8) * size
                passed[some] &= margins[some, j] > most
        return found


def _most(g: Array, room: Array, p: float, radius: float) -> Array:
    """Never less than the largest Σ gᵢdᵢ with 0 ≤ d ≤ room, ‖d‖_p ≤ radius, g ≥ 0.

    By duality, where the choice of a multiplier is not trusted: every τ ≥ 0 bounds it
    by Σ (gᵢ − τ)⁺·roomᵢ + τr for p = 1, every λ ≥ 0 by Σ max(gᵢd − λd²/2) + λr²/2 for
    p = 2. The multiplier of the worst row makes them equal.
    """
    g = np.where(room > 0, g, 0.0)
    most = (g * room).sum(axis=1)
    if p == math.inf or not radius:
        return np.asarray(most)
    most = np.minimum(most, radius * layers.lengths(g, dual(p)))
    if p == 1:  # entries are at their ends, the largest slopes first
        order = np.argsort(-g, axis=1)
        slopes, filled = (np.take_along_axis(V, order, axis=1) for V in (g, room))
        k = (np.cumsum(filled, axis=1) < radius).sum(axis=1)[:, None]
        level = np.take_along_axis(np.hstack([slopes, 0.0 * k]), k, axis=1)
        D = np.where(g > level, room, 0.0)
    elif p == 2:  # more of them in each round, as λ falls
        level, last = np.full((len(g), 1), math.inf), None
        while last is None or (level < last).any():
            full, last = g >= level * room, level
            left = radius**2 - np.where(full, room**2, 0.0).sum(axis=1, keepdims=True)
            rest = np.where(full, 0.0, g**2).sum(axis=1, keepdims=True)
            level = np.fmin(level, np.sqrt(rest / left))
        D = np.where(level > 0, np.minimum(g / level, room), room)
    else:
        return most
    bound = (g * D - level * D**p / p).sum(axis=1) + level[:, 0] * radius**p / p
    return np.asarray(np.fmin(most, bound))


def _own(z: Array, y: Array) -> Array:
    """The entry of each row's own class, as a column."""
    return np.take_along_axis(z, y[:, None], axis=1)


def _but_own(margins: Array, y: Array) -> Array:
    """Inf where j = y."""
    return np.where(np.arange(margins.shape[1]) == y[:, None], math.inf, margins)


def lipschitz_constant(network: net.Network, p: float) -> float:
    """L with ‖f(x̂) − f(x)‖_p ≤ L·‖x̂ − x‖_p for all rows; a ValueError if none is known.

    Parameters
    ----------
    network : Network
        Of ``certus.layers``.
    p : float
        Of the norm of rows and scores, at least 1.
    """
    try:
        with np.errstate(all="ignore"):
            domain = Lipschitz(p, 0.0, network.precision)
            start = domain.start(np.zeros((1, *network.shape)))
            constant = walk(network, layers.operations(network), start, domain).constant
    except Unbounded as reason:
        raise ValueError(str(reason)) from None
    return float(constant)


def among(proof: Proof, right: ArrayLike) -> Proof:
    """A proof about the rows that are predicted correctly, as one about all rows.

    Parameters
    ----------
    proof : Proof
        Of the right rows, that of no change first.
    right : array-like of bool
        Which of all rows they are: without any change the model was asked.
    """
    right = np.asarray(right, dtype=bool)
    certified = np.zeros((len(proof.certified), len(right)), dtype=bool)
    certified[:, right] = proof.certified
    certified[0] = right
    return proof._replace(certified=certified)


def refuted(proof: Proof, fooled: ArrayLike) -> Proof:
    """No proof at all if an attack changed a proved row: the model is another one.

    Parameters
    ----------
    proof : Proof
        By radius and row, that of no change first.
    fooled : array-like of bool, of the same shape
        Rows that are known to change their class within each radius.
    """
    if not (proof.certified[1:] & np.asarray(fooled)[1:]).any():
        return proof
    certified = np.zeros_like(proof.certified)
    certified[0] = proof.certified[0]
    reason = "nothing is proved: an attack fooled rows that the layers call robust, "
    reason += "so the model does not compute what its layers say"
    return proof._replace(certified=certified, method=reason, refused=True)


def accuracy_claim(proof: Proof, allowed: str) -> Claim:
    """The share of rows that are proved to be right at the largest radius.

    Parameters
    ----------
    proof : Proof
        Of all rows; those that are wrong are not certified.
    allowed : str
        What is allowed, in words.
    """
    if proof.refused:
        return refused("certified_accuracy", proof.method, "")
    n = proof.certified.shape[1]
    lower = int(proof.certified[-1].sum()) / max(1, n)
    said = f"none of {n:,} rows: the bounds {proof.method} are too wide"
    if lower:
        percent = math.floor(1000 * lower + 1e-9) / 10
        said = f"at least {percent:.1f} % of {n:,} rows: {proof.method}"
    return Claim(
        *("certified_accuracy", Strength.PROVED, lower),
        objective=f"share of the {n:,} rows that stay correct under any {allowed}",
        theorem=proof.method,
        detail=said,
    )
