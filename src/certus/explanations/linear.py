"""Contributions for models that are linear in their columns, in closed form.

    φ_j = Σ over the encoded columns e of j of w_e (x_e − mean of background b_e)

A model counts as linear if its coefficients reproduce its answers, of many rows for
some of them; the certificate then compares the sums with the answers in every row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus.explanations.answers import ask
from certus.explanations.games import MixingGame
from certus.typing import Array, MatrixLike

#: Rows on which coefficients are tried, and cells from which on a compiled loop pays.
TRIED, COMPILED = 10_000, 1_000_000


def coefficients(game: MixingGame) -> Array | None:
    """Coefficients of shape (outputs, encoded columns) if the model is linear."""
    coef, (Z, behind) = getattr(game.inner, "coef_", None), game.halves
    if coef is None or Z is None or sparse.issparse(coef):
        return None
    W = np.atleast_2d(np.asarray(coef, dtype=np.float64))
    if W.shape != (game.k, Z.shape[1]):
        return None
    if Z is game.rows.first and len(Z) > TRIED:
        numbers = np.concatenate([Z[:: len(Z) // TRIED], behind])
        said = ask(game.model, game.answer.method, numbers)
    else:
        numbers, said = game.numbers, game.answers
    z = np.asarray(numbers @ W.T) + np.asarray(getattr(game.inner, "intercept_", 0.0))
    close = np.allclose(z, said, rtol=1e-5, atol=1e-5 * np.abs(z).max())
    return W if close else None


def linear_contributions(game: MixingGame, W: Array) -> Array:
    """Contributions of shape (rows, columns, outputs)."""
    (X, B), owner = game.halves, game.owner
    n = X.shape[0]
    plain = np.array_equal(owner, np.arange(game.d))  # type: ignore[arg-type]
    centre = np.asarray(B.mean(axis=0)).ravel()
    found = np.empty((n, game.d, game.k))
    for k, w in enumerate(W):
        if not plain or sparse.issparse(X):
            found[:, :, k] = _grouped(X, centre, w, owner, game.d)
            continue
        if X.size > COMPILED:
            from certus.explanations.linear_kernels import fill_differences

            fill_differences(X, centre, w, found[:, :, k])
        else:
            found[:, :, k] = w * (X - centre)
    return found


def _grouped(X: MatrixLike, centre: Array, w: Array, owner: Any, d: int) -> Array:
    """Sums over the encoded columns of each column."""
    D = len(w)
    sums = sparse.csr_array((w, (np.arange(D), owner)), shape=(D, d))
    if sparse.issparse(X):
        return np.asarray((X @ sums).toarray() - centre @ sums)
    return np.asarray((X - centre) @ sums)
