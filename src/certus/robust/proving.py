"""Which rows no allowed change can move to another class: proved, or not claimed."""

from __future__ import annotations

import numpy as np

from certus.robust.target import Array, Differentiated, Linear, Target
from certus.threat import ThreatModel

#: Share of the sizes of the terms that rounding may hide in a score.
ROUNDING = 1e-12
#: Rows that go through the bounds together.
TOGETHER = 256


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
        shaped = G.reshape(len(G), *X.shape[1:])
        worst = threat.worst(rows.reshape(shaped.shape), shaped).reshape(rows.shape)
        gap = b[own] - b[j] - np.einsum("nd,nd->n", G, worst)
        size = np.einsum("nd,nd->n", abs(G), abs(worst)) + abs(b[own]) + abs(b[j])
        certified[rivals] &= gap > ROUNDING * size
    return certified


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
                z = function(rows)
                bounds = (
                    lipschitz_margins(function, rows, own, z, threat),
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
