"""Which rows no allowed change can move to another class: proved, or not claimed."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from certus.robust.target import Array, Differentiated, Linear, Target
from certus.threat import ThreatModel

#: Share of the sizes of the terms that rounding may hide in a score.
ROUNDING = 1e-12
#: Rows that go through the bounds together.
TOGETHER = 256
_LIPSCHITZ = "by Lipschitz constants of the layers"
_INTERVALS = "by intervals through the layers"


class Proof(NamedTuple):
    """What is proved: by radius and row, how, and whether time sufficed."""

    certified: Array  # (radii, rows)
    method: str
    refused: bool = False
    complete: bool = True


def prove(
    target: Target,
    X: Array,
    y: Array,
    threat: ThreatModel,
    radii: Sequence[float],
    deadline: float = math.inf,
) -> Proof:
    """Rows whose class no allowed change alters, at each of several radii.

    Parameters
    ----------
    target : Target
        What is attacked.
    X, y : ndarray
        Rows and class numbers.
    threat : ThreatModel
        What is allowed, but for the radius.
    radii : sequence of float
        Ascending.
    deadline : float
        Of ``time.perf_counter``; what is not proved by then is not claimed.
    """
    certified = np.zeros((len(radii), len(X)), dtype=bool)
    if not target.known:
        reason = "nothing is proved, as the model predicts by a method of its own"
        return Proof(certified, reason, refused=True)
    if isinstance(target, Linear):
        for i, radius in enumerate(radii):
            certified[i] = _linear(target, X, y, threat.within(radius))
        return Proof(certified, "exact, as the model is linear")
    if isinstance(target, Differentiated):
        return _network(target, X, y, threat, radii, certified, deadline)
    reason = (
        "nothing is proved, as the model is neither linear nor a network of known "
        "layers"
    )
    reason += f" ({target.note})" if target.note else ""
    return Proof(certified, reason, refused=True)


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
    found = prove(target, X, y, threat, [threat.radius])
    return found.certified[0], found.method


def _linear(target: Linear, X: Array, y: Array, threat: ThreatModel) -> Array:
    """The worst allowed row for each rival, in closed form."""
    W, b = target.formula
    flat = np.asarray(X, dtype=np.float64).reshape(len(X), -1)
    certified = np.ones(len(X), dtype=bool)
    # Models compute in the precision of the rows.
    share = max(ROUNDING, 8 * float(np.finfo(X.dtype).eps))
    for j in range(len(W)):
        rivals = y != j
        if not rivals.any():
            continue
        rows, own = flat[rivals], y[rivals]
        G = W[j] - W[own]
        most = _most(threat, rows.reshape(-1, *X.shape[1:]), G)
        gap = b[own] - b[j] - np.einsum("nd,nd->n", G, rows) - most
        size = np.einsum("nd,nd->n", abs(G), abs(rows)) + abs(b[own]) + abs(b[j]) + most
        certified[rivals] &= gap > share * size
    return certified


def _most(threat: ThreatModel, X: Array, G: Array) -> Array:
    """Never less than the largest gᵀ(x̂ − x) of each row; that itself for p = 1, 2, ∞.

    For p = 2 by duality: every λ ≥ 0 bounds it by Σᵢ max(gᵢdᵢ − λdᵢ²/2) + λr²/2 over
    the box, and the λ of the worst row found gives the optimum.
    """
    radius = threat.radius
    low, high = (
        np.clip(np.broadcast_to(end, X.shape) - X, -radius, radius).reshape(G.shape)
        for end in threat.box(X)
    )
    box = np.where(G > 0, G * high, G * low).sum(axis=1)
    if threat.norm == np.inf or not radius:
        return np.where(radius > 0, box, 0.0)
    if threat.norm not in (1, 2):
        G = np.where(high > low, G, 0.0)
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
    target: Differentiated,
    X: Array,
    y: Array,
    threat: ThreatModel,
    radii: Sequence[float],
    certified: Array,
    deadline: float,
) -> Proof:
    """The better of two bounds; none where a layer is unknown."""
    import torch

    from certus.robust.abstract import Memory, Rounding, Unknown
    from certus.robust.certified import certified_radii, interval_margins
    from certus.robust.lipschitz import Ground

    function, ranked = target.copied(), not target.decides
    rows, own = torch.as_tensor(X, dtype=torch.float64), torch.as_tensor(y)
    try:
        rounding, memory = Rounding.of(target.dtype, target.device), Memory()
        ground = Ground(threat.norm, radii[-1], rounding, Memory())
        with torch.no_grad():
            for start in range(0, len(X), TOGETHER):
                if time.perf_counter() > deadline:
                    return Proof(certified, _LIPSCHITZ, complete=False)
                at = slice(start, start + TOGETHER)
                found = certified_radii(
                    function, rows[at], own[at], threat, ground, ranked
                )
                certified[:, at] = found.numpy() >= np.array(radii)[:, None]
            before = certified[-1].sum()

            def passes(at: Array, i: int) -> Array:
                now = threat.within(radii[i])
                margins = interval_margins(
                    function, rows[at], own[at], now, rounding, memory, ranked
                )
                return (margins > 0).all(dim=1).numpy()

            complete = _bisected(passes, certified, deadline)
    except Unknown as unknown:
        reason = f"nothing is proved: {named(unknown)}"
        return Proof(np.zeros_like(certified), reason, refused=True)
    more = certified[-1].sum() - before
    method = _INTERVALS if more > before else _LIPSCHITZ
    return Proof(certified, method, complete=complete)


def _bisected(
    passes: Callable[[Array, int], Array], certified: Array, deadline: float
) -> bool:
    """Find for each row up to which radius it passes; False if time was short.

    A row that passes at a radius is proved at all smaller ones; one that fails is not
    tried at larger ones.
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
                passed = passes(at, int(i))
                certified[: i + 1, at] |= passed
                low[at[passed]], high[at[~passed]] = i + 1, i
    return True


def named(error: Exception) -> str:
    """What a step lacks, and the layer it is in: the innermost module on the way."""
    import torch

    frames = traceback.walk_tb(error.__traceback__)
    found = [frame.f_locals.get("self") for frame, _ in frames]
    layers = [layer for layer in found if isinstance(layer, torch.nn.Module)]
    if not layers:
        return str(error)
    # Not what was put around the network to attack it.
    own = [m for m in layers if not any(map(_around, m.children()))] or layers
    names = {part: name for name, part in own[0].named_modules()}
    name, kind = names.get(layers[-1], ""), type(layers[-1]).__name__
    return f"{error} (layer {name}, {kind})" if name else f"{error} ({kind})"


def _around(part: Any) -> bool:
    return type(part).__module__ == "certus.robust.modules"
