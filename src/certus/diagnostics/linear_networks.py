"""The gradient of linear networks: how far from rest their layers are.

For y ≈ W_L…W₁x the loss (1/2n) Σ‖y − W_L…W₁x‖² of centred rows has the slope
∂W_l = (W_L…W_{l+1})ᵀ · G · (W_{l−1}…W₁)ᵀ with G = −(1/n) Σ (y − Px) xᵀ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from certus.certificate import Claim, Strength
from certus.typing import Array, MatrixLike


def gradient_claims(
    X: MatrixLike, Y: Any, layers: Sequence[Any], P: Any = None
) -> list[Claim]:
    """‖(∂W₁, …, ∂W_L)‖ as a share of twice the loss without factors.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows.
    Y : array-like of shape (n_samples,) or (n_samples, n_targets)
        Targets.
    layers : sequence of ndarray
        W₁ … W_L.
    P : ndarray, optional
        The matrix that stands for the layers where their shapes do not fit.

    Returns
    -------
    list of Claim
        One, MEASURED; none where the layers hold no finite numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.diagnostics.linear_networks import gradient_claims
    >>> X = np.array([[-1.0], [1.0]])
    >>> round(gradient_claims(X, 3 * X, [np.array([[2.0]])])[0].value, 3)
    0.111
    """
    found = [np.atleast_2d(np.asarray(W, dtype=np.float64)) for W in layers]
    if P is not None and not all(len(a) == b.shape[1] for a, b in pairwise(found)):
        found = [np.atleast_2d(np.asarray(P, dtype=np.float64))]
    if not all(np.isfinite(W).all() for W in found):
        return []
    with np.errstate(all="ignore"):
        (x, a), (y, c) = (_centred(values) for values in (X, Y))
        z = x
        for W in found:
            z = z @ W.T
        slope = (z * (a / c) - y).T @ x / len(x)
        size = float(np.square(y).sum()) / (2 * len(y))
        share = _length(found, slope) * a / c / (2 * size or 1.0)
    detail = f"the gradient is {share:.1e} of twice the loss at zero weights"
    return [Claim("gradient_norm", Strength.MEASURED, share, detail=detail)]


def _centred(values: Any) -> tuple[Array, float]:
    """Rows about their mean in units of the largest entry, and that unit."""
    rows = np.asarray(values, dtype=np.float64)
    rows = rows.reshape(len(rows), -1)
    unit = float(np.abs(rows).max(initial=0.0)) or 1.0
    rows = rows / unit
    return rows - rows.mean(axis=0), unit


def _length(layers: list[Array], slope: Array) -> float:
    above, total = [slope], 0.0
    for W in layers[:0:-1]:
        above.append(W.T @ above[-1])
    below = np.eye(layers[0].shape[1])
    for W, over in zip(layers, above[::-1]):
        total += float(np.square(over @ below.T).sum())
        below = W @ below
    return math.sqrt(total)
