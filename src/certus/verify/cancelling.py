"""Patterns that no weights of a unit store, shown by a combination that cancels.

For unit i let z_t = x_ti·x_t without unit i, and with a last entry x_ti if there is an
intercept. If Σ a_t z_t = 0 with a ≥ 0, a ≠ 0, then no w has w·z_t > 0 for all t: it
would give 0 = w·Σ a_t z_t > 0 (Farkas). The a found in float64 leaves a residual r. If
Z_SᵀZ_S over the support S has smallest eigenvalue λ > 0, then a moved by at most ‖r‖/√λ
cancels exactly, and is still positive if min a is more than that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number, U, gamma


def claims(witness: Any, x: Array, intercept: bool) -> list[Claim]:
    """Whether a combination shows that the patterns of a unit cannot be stored."""
    unit, a = witness.unit, witness.combination
    if unit is None or a is None:
        return []
    a = np.asarray(a)
    if a.shape != (len(x),) or a.dtype.kind not in "fiu" or not 0 <= unit < x.shape[1]:
        raise ValueError("The stored combination does not fit the patterns.")
    Z = np.delete(x, unit, axis=1)
    Z = np.column_stack([Z, np.ones(len(x))]) if intercept else Z
    if not cancels(Z * x[:, [unit]], a.astype(np.float64)):
        return []
    told = f"no weights of unit {unit} store these {len(x):,} patterns"
    return [
        bd.proved(
            *("not_storable", Number(1.0), None, told),
            objective="a ≥ 0, a ≠ 0 with Σ a_t·x_ti·x_t = 0, without unit i",
            theorem="Farkas: weights with w·z_t > 0 for all t would give "
            "0 = w·Σ a_t z_t > 0",
        )
    ]


def cancels(Z: Array, a: Array) -> bool:
    """Whether rows of ±1 cancel under weights a ≥ 0 that may be moved by rounding."""
    if not np.isfinite(a).all() or (a < 0).any() or not a.any():
        return False
    if not Z.shape[1]:
        return True
    Z, a = Z[a > 0], a[a > 0]
    # Columns that are equal, or opposite, are the same equation.
    Z = np.unique(Z * Z[0], axis=1)
    s, n = Z.shape
    r = np.abs(Z.T @ a) + gamma(s + 2) * float(a.sum())
    G = Z.T @ Z  # whole numbers
    values = np.linalg.eigvalsh(G)
    # Backward error of a symmetric eigensolver, generously: 100·n·u·‖G‖.
    least = float(values[0]) - 100 * n * U * float(np.abs(G).sum(axis=1).max())
    if not least > 0:
        return False
    moved = float(np.linalg.norm(r)) * (1 + gamma(n + 8)) / math.sqrt(least)
    return bool(moved * (1 + 1e-9) < float(a.min()))
