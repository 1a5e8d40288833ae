"""Non-negative factors, X ≈ WH: how far from rest, and how far from the data.

For any β-divergence with penalties, the length of one scaled and projected gradient
step in H, and ‖X − WH‖ for the squared error, W as the model's ``transform`` gives it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Strength
from certus.typing import Array

#: Products WH below this are raised to it, as scikit-learn does.
FLOOR = float(np.finfo(np.float32).eps)
BETAS = {"frobenius": 2.0, "kullback-leibler": 1.0, "itakura-saito": 0.0}


def measure(model: Any, X: Any) -> list[Claim]:
    """Claims about scikit-learn's NMF on its rows."""
    beta = float(BETAS.get(model.beta_loss, model.beta_loss))
    H = np.asarray(model.components_, dtype=np.float64)
    W = model.transform(X) if H.any() else np.zeros((X.shape[0], len(H)))
    W = np.asarray(W, dtype=np.float64)
    X = sparse.csr_matrix(X) if sparse.issparse(X) else X
    value = _move(X, W, H, beta, _penalties(model, X.shape[0]))
    slope = Claim(
        "stationarity",
        Strength.MEASURED,
        value,
        target=float(model.tol),
        objective=f"projected gradient step in H, β-divergence with β = {beta:g}",
        theorem="at a local minimum no such step moves H; the problem is not convex",
        detail=f"a projected gradient step would move H by {value:.1e} of its size",
    )
    if beta != 2.0:
        return [slope]
    values = np.asarray(X.data if sparse.issparse(X) else X, dtype=np.float64)
    inner = float(np.sum(np.asarray(X @ H.T) * W))
    square = float(np.sum(values**2)) - 2 * inner + np.sum((W.T @ W) * (H @ H.T))
    error, stated = float(np.sqrt(max(square, 0.0))), float(model.reconstruction_err_)
    rest = Claim(
        "reconstruction",
        Strength.MEASURED,
        error,
        objective="‖X − WH‖, W as transform gives it",
        detail=f"‖X − WH‖ is {error:.4g}; the model stated {stated:.4g}",
    )
    return [slope, rest]


def _penalties(model: Any, n: int) -> tuple[float, float]:
    """L1 and L2 of H: scikit-learn scales them by the number of rows."""
    share, own = float(model.l1_ratio), model.alpha_H
    own = n * float(model.alpha_W if isinstance(own, str) else own)
    return own * share, own * (1 - share)


def _move(
    X: Any, W: Array, H: Array, beta: float, penalties: tuple[float, float]
) -> float:
    """How far one scaled and projected gradient step would move H, as a share."""
    (l1, l2), rows = penalties, max(1, (1 << 20) // max(1, H.shape[1]))
    slope, curvature = l1 + l2 * H, np.full(H.shape, l2)
    if beta == 2.0:
        slope += W.T @ W @ H - np.asarray(X.T @ W, dtype=np.float64).T
        curvature += np.square(W).sum(axis=0)[:, None]
    for i in range(0, X.shape[0] if beta != 2.0 else 0, rows):
        block, w = X[i : i + rows], W[i : i + rows]
        block = block.toarray() if sparse.issparse(block) else block
        fit = np.maximum(w @ H, FLOOR)
        slope += w.T @ (fit ** (beta - 1) - block * fit ** (beta - 2))
        curvature += np.square(w).T @ fit ** (beta - 2)
    move = np.divide(slope, curvature, out=np.zeros(H.shape), where=curvature > 0)
    moved = float(np.sum(curvature * np.square(H - np.maximum(H - move, 0.0))))
    size = float(np.sum(curvature * np.square(H)))
    return float(np.sqrt(moved / size)) if size > 0 else float(moved > 0)
