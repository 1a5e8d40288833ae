"""Contributions for models that are linear in their columns, in closed form.

    φ_j = Σ over the encoded columns e of j of w_e (x_e − mean of background b_e)

A model counts as linear if its coefficients reproduce its answers on the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus.explanations.games import MixingGame
from certus.typing import Array


def coefficients(game: MixingGame) -> Array | None:
    """Coefficients of shape (outputs, encoded columns) if the model is linear."""
    coef, Z = getattr(game.inner, "coef_", None), game.numbers
    if coef is None or Z is None or sparse.issparse(coef):
        return None
    W = np.atleast_2d(np.asarray(coef, dtype=np.float64))
    if W.shape != (game.k, Z.shape[1]):
        return None
    z = np.asarray(Z @ W.T) + np.asarray(getattr(game.inner, "intercept_", 0.0))
    close = np.allclose(z, game.answers, rtol=1e-5, atol=1e-5 * np.abs(z).max())
    return W if close else None


def linear_contributions(game: MixingGame, W: Array) -> Array:
    """Contributions of shape (rows, columns, outputs)."""
    n, Z, owner = game.rows.n, game.numbers, game.owner
    plain = np.array_equal(owner, np.arange(game.d))  # type: ignore[arg-type]
    X, B = Z[:n], Z[n:]
    centre = np.asarray(B.mean(axis=0)).ravel()
    found = np.empty((n, game.d, game.k))
    for k, w in enumerate(W):
        if plain and not sparse.issparse(X):
            part = found[:, :, k] if game.k > 1 else found.reshape(n, game.d)
            np.subtract(X, centre, out=part)
            part *= w
        else:
            found[:, :, k] = _grouped(X, centre, w, owner, game.d)
    return found


def _grouped(X: Any, centre: Array, w: Array, owner: Any, d: int) -> Array:
    """Sums over the encoded columns of each column."""
    D = len(w)
    sums = sparse.csr_array((w, (np.arange(D), owner)), shape=(D, d))
    if sparse.issparse(X):
        return np.asarray((X @ sums).toarray() - centre @ sums)
    return np.asarray((X - centre) @ sums)
