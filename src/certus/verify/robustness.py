"""Which rows no allowed change can move to another class: proved, or not claimed.

    m_j(x) = min over allowed x̂ of z_y(x̂) − z_j(x̂),  certified if > 0 for all j ≠ y

z is what the network computes in its own precision, rounding included. Linear networks
are solved exactly. Of others two lower bounds count, the better of which is taken:
Lipschitz constants, which give a radius for each row at once, and interval bounds at a
given radius. Where the model's own scores are handed over, they must be those of the
arrays within rounding: else nothing is proved.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from certus import layers as net
from certus.certificate import Claim, Strength
from certus.verify.boxes import WRITTEN_OUT, Boxes, Start, box, centre, dual, free
from certus.verify.layers import (
    SLACK,
    Array,
    Map,
    Unbounded,
    lengths,
    operations,
    share,
    walk,
)
from certus.verify.reach import Lipschitz, as_matrix

__all__ = [
    "Proof",
    "accuracy_claim",
    "among",
    "lipschitz_constant",
    "prove_robust",
    "refuted",
]

#: Rows that go through the bounds together.
TOGETHER = 256
_EXACT = "exact, as the model is linear"
_LIPSCHITZ = "by Lipschitz constants of the layers"
_INTERVALS = "by intervals through the layers"
_OTHERWISE = "a step that does to tensors what it does not say has no bound"


class Proof(NamedTuple):
    """What is proved: by radius and row, how, and whether time sufficed."""

    certified: Array  # (radii, rows)
    method: str
    refused: bool = False
    complete: bool = True


def prove_robust(
    network: net.Network,
    X: Any,
    y: Any,
    threat: Any,
    radii: Sequence[float],
    *,
    outputs: Any = None,
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
    >>> from certus.robust import ThreatModel
    >>> from certus.verify import prove_robust
    >>> dense = layers.Dense(np.array([[0.0], [1.0]]))
    >>> network = layers.Network((layers.Step(dense, (0,)),), (1,))
    >>> proof = prove_robust(network, [[2.0], [0.5]], [1, 1], ThreatModel(2, 1), [1.0])
    >>> proof.certified.tolist(), proof.method
    ([[True, False]], 'exact, as the model is linear')
    """
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y)
    certified = np.zeros((len(radii), len(X)), dtype=bool)
    try:
        with np.errstate(all="ignore"):
            pass_ = _Pass(network, X, y, threat, radii, outputs, predicted)
            return pass_.run(certified, deadline)
    except Unbounded as reason:
        why = f"nothing is proved: {reason}"
        return Proof(np.zeros_like(certified), why, refused=True)


class _Pass:
    """The proofs of one network: what is computed once for all rows and radii."""

    def __init__(
        self,
        network: net.Network,
        X: Array,
        y: Array,
        threat: Any,
        radii: Sequence[float],
        outputs: Any,
        predicted: bool,
    ) -> None:
        self.network, self.X, self.y, self.threat = network, X, y, threat
        self.radii, self.outputs, self.predicted = radii, outputs, predicted
        self.kinds, self.q = operations(network), dual(threat.norm)
        self.reach = Lipschitz(threat.norm, radii[-1], network.precision)
        self.boxes = Boxes(threat, network.precision)

    def run(self, certified: Array, deadline: float) -> Proof:
        """All blocks of rows, by the road that the network admits."""
        count = len(self.X) if self.outputs is None else len(self.outputs)
        matrix = self._matrix()
        method = _LIPSCHITZ if matrix is None else _EXACT
        for start in range(0, count, TOGETHER):
            if time.perf_counter() > deadline:
                return Proof(certified, method, complete=False)
            at = np.arange(start, min(start + TOGETHER, count))
            if matrix is None:
                certified[:, at] = self._radii(at) >= np.array(self.radii)[:, None]
            else:
                certified[:, at] = self._exact(at, *matrix)
        complete = count == len(self.X)
        if matrix is not None:
            return Proof(certified, method, complete=complete)
        before = certified[-1].sum()
        complete &= self._bisected(certified[:, :count], deadline)
        more = certified[-1].sum() - before
        method = _INTERVALS if more > before else _LIPSCHITZ
        return Proof(certified, method, complete=bool(complete))

    # -- Lipschitz constants ----------------------------------------------------------

    def _radii(self, at: Array) -> Array:
        """Up to which radius no change alters the class of each row; −1 if none is.

        Over a ball of radius r the margin over class j is z_y − z_j − r·L_yj at least,
        and what is computed is off by no more than rounding can add.
        """
        network, y = self.network, self.y[at]
        out = walk(network, self.kinds, self.reach.start(self.X[at]), self.reach)
        z, error, growth = out.values, out.error, out.growth
        # The network's own rounding, and that of the centre, computed here in float64.
        twice = 2 * (1 + 2.0**-51 / network.precision.unit)
        if not network.hidden:
            self._agreeing(at, z, (twice * error)[:, None])
        if network.ranked or network.hidden:
            part, (size, slope) = share(network.precision, 8), self.reach.sizes(out)
            error, growth = error + part * (1 + size), growth + part * slope
        own = np.take_along_axis(z, y[:, None], axis=1)
        lost = (twice * error)[:, None] + 2.0**-50 * (np.abs(own) + np.abs(z))
        margins = own - z - lost
        self._predicting(own - z + lost)
        L = self.reach.differences(out, self.q)[y]
        radii = margins / ((L + 2 * growth) * (1 + SLACK))
        radii = np.where(margins > 0, radii, -1.0)
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
        y, own = self.y[at], self.y[at][:, None]
        self.boxes.radius = radius
        out = walk(self.network, self.kinds, Start(self.X[at]), self.boxes)
        out = self.boxes.interval(out)
        most = np.maximum(np.abs(out.low), np.abs(out.high))
        ranked = self.network.ranked or self.network.hidden
        slack = (share(self.network.precision, 8) if ranked else 0.0) * (1 + most)
        found = np.take_along_axis(out.low, own, axis=1) - out.high
        if out.last is not None:
            middle, half, lost, W = out.last
            found = np.take_along_axis(middle, own, axis=1) - middle
            for k in np.unique(y):
                found[y == k] -= half[y == k] @ np.abs(W[k] - W).T
            found = found - lost - np.take_along_axis(lost, own, axis=1)
        found = found - slack - np.take_along_axis(slack, own, axis=1)
        return _but_own(found, y)

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

    def _matrix(self) -> tuple[Array, float] | None:
        """Of a chain of linear maps without a softmax: its matrix and its rounding."""
        network, chain = self.network, tuple(self.kinds)
        line = all(step.inputs == (i,) for i, step in enumerate(network.steps))
        linear = line and all(isinstance(kind, Map) for kind in chain)
        if not linear or not chain or network.ranked or network.hidden:
            return None
        if len(chain) == 1 and chain[0].weight is not None and len(network.shape) == 1:
            return chain[0].weight, 0.0
        return as_matrix(chain, network.shape, math.inf, WRITTEN_OUT)

    def _exact(self, at: Array, A: Array, off: float) -> Array:
        """The worst allowed row for each rival, by duality: (radii, rows)."""
        X, y = self.X[at], self.y[at]
        precision, found = self.network.precision, []
        here = Start(X, tuple(self.kinds))
        z, lost = centre(here, (X, X), precision)
        self._agreeing(at, z, lost)
        own = y[:, None]
        more = lost + np.take_along_axis(lost, own, axis=1)
        self._predicting(np.take_along_axis(z, own, axis=1) - z + more)
        for radius in self.radii:
            ends = box(self.threat, X, radius)
            z, lost = centre(here, ends, precision)
            low, high = ((end - X).reshape(len(X), -1) for end in ends)
            widest = np.maximum(-low, high)
            passed = np.ones(len(at), dtype=bool)
            for j in range(A.shape[0]):
                rivals = np.flatnonzero(y != j)
                own = y[rivals]
                G = free(self.threat, A[j] - A[own])
                room = np.where(G > 0, high[rivals], -low[rivals])
                most = _most(np.abs(G), room, self.threat.norm, radius)
                size = (np.abs(A[j]) + np.abs(A[own])) * widest[rivals]
                slack = lost[rivals, j] + lost[rivals, own] + 2 * off * radius
                slack = slack + share(precision, A.shape[1] + 8) * size.sum(axis=1)
                gap = z[rivals, own] - z[rivals, j] - most
                passed[rivals] &= gap > slack
            found.append(passed)
        return np.array(found)


def _most(g: Array, room: Array, p: float, radius: float) -> Array:
    """Never less than the largest Σ gᵢdᵢ with 0 ≤ d ≤ room, ‖d‖_p ≤ radius, g ≥ 0.

    By duality, where the choice of a multiplier is not trusted: every τ ≥ 0 bounds it
    by Σ (gᵢ − τ)⁺·roomᵢ + τr for p = 1, every λ ≥ 0 by Σ max(gᵢd − λd²/2) + λr²/2 for
    p = 2. The multiplier of the worst row makes them equal.
    """
    g = np.where(room > 0, g, 0.0)
    most = (g * room).sum(axis=1)
    if p == math.inf or not radius:
        return most
    most = np.minimum(most, radius * lengths(g, dual(p)))
    if p == 1:
        order = np.argsort(-g, axis=1)
        full = np.cumsum(np.take_along_axis(room, order, axis=1), axis=1) >= radius
        first = np.argmax(full, axis=1)[:, None]
        level = np.take_along_axis(np.take_along_axis(g, order, axis=1), first, axis=1)
        level = np.where(full.any(axis=1, keepdims=True), level, 0.0)
        bound = (np.maximum(g - level, 0.0) * room).sum(axis=1) + level[:, 0] * radius
        return np.asarray(np.fmin(most, bound))
    if p != 2:
        return most
    # Entries are at their ends up to the λ where g/λ is less; from the largest on.
    turn = np.where(room > 0, g / room, 0.0)
    order = np.argsort(-turn, axis=1)
    turn, steep, width = (
        np.take_along_axis(V, order, axis=1) for V in (turn, g**2, room**2)
    )
    rest = np.cumsum(steep[:, ::-1], axis=1)[:, ::-1] - steep
    filled = np.cumsum(width, axis=1)
    norm = filled + np.where(turn > 0, rest / np.where(turn > 0, turn, 1.0) ** 2, 0.0)
    k = (norm < radius**2).sum(axis=1)[:, None]
    rest, filled = (
        np.take_along_axis(np.hstack([first, V]), k, axis=1)
        for first, V in ((steep.sum(axis=1, keepdims=True), rest), (0 * k, filled))
    )
    slope = np.sqrt(rest / (radius**2 - filled))
    D = np.where(slope > 0, np.minimum(g / slope, room), room)
    bound = (g * D - slope * D * D / 2).sum(axis=1) + slope[:, 0] * radius**2 / 2
    return np.asarray(np.fmin(most, bound))


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
            constant = walk(network, operations(network), start, domain).constant
    except Unbounded as reason:
        raise ValueError(str(reason)) from None
    return float(constant)


def among(proof: Proof, right: Any) -> Proof:
    """A proof about the rows that are predicted rightly, as one about all rows.

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


def refuted(proof: Proof, fooled: Any) -> Proof:
    """No proof at all where an attack fooled a row: the model is not what it says.

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
    reason = (
        "nothing is proved: an attack fooled rows that the layers say are robust, so "
        "that the model does not compute what its layers say"
    )
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
        return Claim("certified_accuracy", Strength.REFUSED, detail=proof.method)
    count, rows = int(proof.certified[-1].sum()), f"{proof.certified.shape[1]:,} rows"
    lower, method = count / max(1, proof.certified.shape[1]), proof.method
    return Claim(
        *("certified_accuracy", Strength.PROVED, lower),
        objective=f"share of the {rows} whose class is right under any {allowed}",
        theorem=method,
        detail=f"at least {math.floor(1000 * lower + 1e-9) / 10:.1f} % of {rows}: "
        f"{method}"
        if lower
        else f"of none of {rows}: bounds {method} are too wide",
    )
