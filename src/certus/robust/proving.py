"""Which rows no allowed change can move to another class: proved, or not claimed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from certus.robust.target import Array, Differentiated, Linear, Target
from certus.threat import ThreatModel

#: Share of the sizes of the terms that rounding may hide in a score.
ROUNDING = 1e-12
#: Rows that go through the bounds together.
TOGETHER = 256


class Proof(NamedTuple):
    """What is proved: by radius and row, how, and whether time sufficed."""

    certified: Array  # (radii, rows)
    method: str
    refused: bool
    complete: bool = True


def prove(
    target: Target,
    X: Array,
    y: Array,
    threat: ThreatModel,
    radii: Sequence[float],
    deadline: float = math.inf,
) -> Proof:
    """Rows whose class no allowed change alters, at each of several radii."""
    found = [certified_rows(target, X, y, threat.within(radius)) for radius in radii]
    rows = [certified for certified, _ in found]
    method = found[-1][1]
    return Proof(np.array(rows), method, method.startswith("nothing"))


def certified_rows(
    target: Target, X: Array, y: Array, threat: ThreatModel
) -> tuple[Array, str]:
    """Rows whose class no allowed change alters, and how that was proved.

    Parameters
    ----------
    target : Target
        What is attacked.
    X, y : ndarray
        Rows and class numbers.
    threat : ThreatModel
        What is allowed.

    Returns
    -------
    certified : ndarray of bool
        False where nothing is proved.
    method : str
        In a few words.
    """
    if isinstance(target, Linear):
        return _linear(target, X, y, threat), "exact: the model is linear"
    if isinstance(target, Differentiated):
        return _network(target, X, y, threat)
    reason = (
        "nothing is proved: the model is neither linear nor a network of known layers"
    )
    return np.zeros(len(X), dtype=bool), reason


def _linear(target: Linear, X: Array, y: Array, threat: ThreatModel) -> Array:
    """The worst allowed row for each rival, in closed form."""
    W, b = target.formula
    flat = np.asarray(X, dtype=np.float64).reshape(len(X), -1)
    certified = np.ones(len(X), dtype=bool)
    for j in range(len(W)):
        rivals = y != j
        if not rivals.any():
            continue
        rows, own = flat[rivals], y[rivals]
        G = W[j] - W[own]
        most = _most(threat, rows.reshape(-1, *X.shape[1:]), G)
        gap = b[own] - b[j] - np.einsum("nd,nd->n", G, rows) - most
        size = np.einsum("nd,nd->n", abs(G), abs(rows)) + abs(b[own]) + abs(b[j]) + most
        certified[rivals] &= gap > ROUNDING * size
    return certified


def _most(threat: ThreatModel, X: Array, G: Array) -> Array:
    """Never less than the largest gᵀ(x̂ − x) of each row; that itself for p = 1, 2, ∞.

    For p = 2 by duality: every λ ≥ 0 bounds it by Σᵢ max(gᵢdᵢ − λdᵢ²/2) + λr²/2 over
    the box, and the λ of the worst row found gives the optimum.
    """
    radius = threat.radius
    low, high = (
        np.clip(np.broadcast_to(end, X.shape) - X, -radius, radius).reshape(G.shape)
        for end in (threat.low, threat.high)
    )
    box = np.where(G > 0, G * high, G * low).sum(axis=1)
    if threat.norm == np.inf or not radius:
        return np.where(radius > 0, box, 0.0)
    if threat.norm not in (1, 2):
        return np.minimum(box, radius * np.linalg.norm(G, threat.dual, axis=1))
    worst = threat.worst(X, G.reshape(X.shape)).reshape(G.shape)
    D = worst - X.reshape(G.shape)
    if threat.norm == 1:
        return np.einsum("nd,nd->n", G, D)
    free = np.minimum(D - low, high - D) > 0
    steep, moved = (np.linalg.norm(np.where(free, A, 0.0), axis=1) for A in (G, D))
    slope = np.divide(steep, moved, out=np.zeros_like(steep), where=moved > 0)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        D = np.where(slope > 0, np.clip(G / slope, low, high), 0.0)
    bound = (G * D - slope * D * D / 2).sum(axis=1) + slope[:, 0] * radius**2 / 2
    return np.where(slope[:, 0] > 0, np.minimum(bound, box), box)


def _network(
    target: Differentiated, X: Array, y: Array, threat: ThreatModel
) -> tuple[Array, str]:
    """The better of two bounds; none where a layer is unknown."""
    import torch

    from certus.robust.abstract import Unknown
    from certus.robust.certified import interval_margins, lipschitz_margins

    function = target.exactly()
    found, used = [], {"Lipschitz constants": 0, "intervals": 0}
    try:
        with torch.no_grad():
            for start in range(0, len(X), TOGETHER):
                rows = torch.as_tensor(X[start : start + TOGETHER], dtype=torch.float64)
                own = torch.as_tensor(y[start : start + TOGETHER])
                bounds = (
                    lipschitz_margins(function, rows, own, threat),
                    interval_margins(function, rows, own, threat),
                )
                passed = [(m > 0).all(dim=1).numpy() for m in bounds]
                for name, part in zip(used, passed):
                    used[name] += int(part.sum())
                found.append(passed[0] | passed[1])
    except Unknown as unknown:
        return np.zeros(len(X), dtype=bool), f"nothing is proved: {unknown}"
    best = max(used, key=lambda name: used[name])
    return np.concatenate(found), f"by {best} of the layers, in float64"
