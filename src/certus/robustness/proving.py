"""Which rows no allowed change can move to another class: proved, or not claimed."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from certus.robustness.target import Differentiated, LinearTarget, Target, two_columns
from certus.threat import ThreatModel
from certus.typing import Array, Fit
from certus.verify import Proof, prove_robust, prove_trees, unproved

#: Rows that go through the network together.
TOGETHER = 256


def prove(
    target: Target,
    X: Array,
    y: Array,
    threat: ThreatModel,
    radii: Sequence[float],
    deadline: float = math.inf,
    predicted: bool = False,
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
    predicted : bool, default=False
        Whether the model predicts y for these rows.
    """
    if not target.known:
        reason = "nothing is proved, because the model overrides how it predicts"
        return unproved(reason, radii, X)
    if isinstance(target, LinearTarget):
        rows, allowed = _flat(X, threat)
        network = target.network(X.dtype)
        return prove_robust(network, rows, y, allowed, radii, predicted=predicted)
    if isinstance(target, Differentiated):
        return _network(target, X, y, threat, radii, predicted, deadline)
    if target.trees is not None:
        return prove_trees(target.trees, X, y, threat, radii, deadline)
    reason = (
        "nothing is proved, because the model is neither linear nor a network of "
        "known layers"
    )
    reason += f" ({target.note})" if target.note else ""
    return unproved(reason, radii, X)


def _flat(X: Array, threat: ThreatModel) -> tuple[Array, ThreatModel]:
    """Rows of any shape as vectors, and the threat to them."""
    ends: dict[str, Any] = {
        name: np.ravel(np.broadcast_to(value, X.shape[1:]))
        for name in ("low", "high", "fixed")
        if np.ndim(value := getattr(threat, name))
    }
    return X.reshape(len(X), -1), replace(threat, **ends)


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


def _network(
    target: Differentiated,
    X: Array,
    y: Array,
    threat: ThreatModel,
    radii: Sequence[float],
    predicted: bool,
    deadline: float,
) -> Proof:
    """What the verifier proves about the layers; nothing if one of them is unknown."""
    import torch

    from certus.robustness.tracing import Unknown, traced

    function, ranked = target.copied(), not target.decides
    outputs = np.zeros((0, len(target.classes)))
    try:
        with torch.no_grad():
            shape = (min(len(X), TOGETHER), *X.shape[1:])
            network = traced(
                function, shape, target.dtype, target.device, ranked=ranked
            )
            blocks = [outputs]
            for start in range(0, len(X), TOGETHER):
                if time.perf_counter() > deadline:
                    break
                rows = torch.as_tensor(X[start : start + TOGETHER], dtype=target.dtype)
                blocks.append(two_columns(function(rows)).double().numpy())
            outputs = np.concatenate(blocks)
    except Unknown as unknown:
        return unproved(f"nothing is proved: {named(unknown)}", radii, X)
    return prove_robust(
        *(network, X, y, threat, radii),
        outputs=outputs,
        predicted=predicted,
        deadline=deadline,
    )


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


def _around(part: Fit) -> bool:
    return type(part).__module__ == "certus.robustness.modules"
