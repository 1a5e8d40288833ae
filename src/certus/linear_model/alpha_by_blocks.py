"""The strength of ridge regression over blocks of rows: leave-one-out, or folds.

Leave-one-out takes a second pass: with AᵀSA/Σs = VΛVᵀ from the first, each row gives
its error (yᵢ − ŷᵢ)/(1 − hᵢ) for every alpha, as in ``ridge_cv``, and only the sums of
their squares are kept. Folds are runs of rows; from the moments of each follow the
coefficients on the others and R² on itself, so that one pass does for all of them.
"""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import linalg
from sklearn.model_selection import KFold

from certus._solvers.block_design import (
    BlockDesign,
    BlockMoments,
    merge,
    moments_of,
)
from certus._solvers.block_design import (
    numbers as numbers_of,
)
from certus.blocks import RowBlock, total, tree
from certus.blocks.ranges import folds_of
from certus.linear_model.by_blocks import refuse
from certus.typing import Array

if TYPE_CHECKING:
    from certus.blocks import Blocks

#: Numbers of a run of rows.
CELLS = 1 << 18


def choose(model: Any, blocks: Blocks, alphas: Array, design: BlockDesign) -> None:
    """Set ``alpha_`` and ``best_score_`` of a RidgeCV."""
    if model.scoring is not None:
        refuse(model, f"scoring={model.scoring!r}")
    if model.store_cv_results:
        refuse(model, "store_cv_results=True")
    if model.alpha_per_target and design.targets > 1:
        refuse(model, "alpha_per_target=True")
    if model.cv is None:
        scores = -_left_out(design, alphas)
    else:
        scores = _on_folds(model, blocks, alphas)
    best = int(scores.argmax())
    model.alpha_, model.best_score_ = float(alphas[best]), float(scores[best])


# -- leave-one-out -----------------------------------------------------------------


class Turned(NamedTuple):
    """Rows along the axes of the Gram matrix, and the fits for all strengths."""

    mean: Array  # of the columns, and of the targets
    V: Array
    shrink: Array  # (d, alphas)
    C: Array  # (d, targets·alphas)
    total: float
    centred: bool


def _left_out(design: BlockDesign, alphas: Array) -> Array:
    """The mean squared leave-one-out error of each alpha; a pass over the rows."""
    n, d = design.n, design.d
    if n <= d:
        raise ValueError(
            f"RidgeCV needs more rows than columns in blocks, got {n:,} rows and {d:,} "
            "columns. Pass a table with so few rows as an array."
        )
    values, V = np.linalg.eigh(design.gram())
    values = np.maximum(values, 0.0)
    shrink = 1.0 / (values[:, None] + alphas / design.total)
    B = V.T @ design.t_dot_targets(np.empty(0))
    C = np.concatenate([shrink * B[:, [k]] for k in range(B.shape[1])], axis=1)
    mean = np.concatenate([design.mean, design.target_mean])
    turned = Turned(mean, V, shrink, C, design.total, design.centred)
    squares = total(design.blocks, _squares, turned)
    return np.asarray(squares.mean(axis=0) / n)


def _squares(block: RowBlock, turned: Turned) -> Array:
    """Σ s·(leave-one-out error)² of each target and alpha."""
    X, y, s = numbers_of(block)
    (d, m), k = turned.shrink.shape, y.shape[1]
    out = np.zeros((k, m))
    rows = max(64, CELLS // max(1, d))
    for i in range(0, len(X), rows):
        part = slice(i, i + rows)
        Z = turned.V.T @ (X[part] - turned.mean[:d]).T
        errors = (turned.C.T @ Z).reshape(k, m, -1)
        np.subtract((y[part] - turned.mean[d:]).T[:, None, :], errors, out=errors)
        kept = turned.shrink.T @ np.square(Z, out=Z)
        kept += float(turned.centred)
        errors /= 1.0 - kept * (s[part] / turned.total)
        out += np.square(errors, out=errors) @ s[part]
    return out


# -- folds -------------------------------------------------------------------------


def _moments(block: RowBlock) -> BlockMoments:
    X, y, s = numbers_of(block)
    return moments_of(X, s, y)


def _on_folds(model: Any, blocks: Blocks, alphas: Array) -> Array:
    """The mean over the folds of R², for each alpha."""
    d, count = len(blocks.names), _count(model, len(blocks))
    folds = [total(fold, _moments, merge=merge) for fold in folds_of(blocks, count)]
    scores = np.zeros((count, len(alphas)))
    for i, fold in enumerate(folds):
        rest = tree(folds[:i] + folds[i + 1 :], merge)
        if not (rest.weight > 0 and fold.weight > 0):
            raise ValueError("All rows inside or outside a fold have weight zero.")
        for j, alpha in enumerate(alphas):
            W, b = _solved(rest, d, float(alpha), bool(model.fit_intercept))
            scores[i, j] = _r2(fold, W, b)
    return scores.mean(axis=0)


def _count(model: Any, n: int) -> int:
    """How many folds ``cv`` asks for: runs of rows of equal length."""
    cv = model.cv
    if isinstance(cv, KFold) and not cv.shuffle:
        cv = cv.get_n_splits()
    if not isinstance(cv, numbers.Integral) or isinstance(cv, bool):
        refuse(model, f"cv={cv!r}; a number of folds is possible, or leave-one-out")
    if not 2 <= cv <= n:
        raise ValueError(f"cv must be from 2 to the number of rows, {n:,}; got {cv}.")
    return int(cv)


def _solved(
    rest: BlockMoments, d: int, alpha: float, free: bool
) -> tuple[Array, Array]:
    """Coefficients and intercepts of ridge regression, from moments."""
    M, mean = rest.scatter, rest.mean
    if not free:
        M, mean = M + rest.weight * np.outer(mean, mean), np.zeros_like(mean)
    G = M[:d, :d] + alpha * np.eye(d)
    size = np.sqrt(np.diag(G))
    size = np.where(size > 0, size, 1.0)
    scaled, wanted = G / size / size[:, None], M[:d, d:] / size[:, None]
    try:
        factor = linalg.cho_factor(scaled, check_finite=False)
        if not (np.diag(factor[0]) ** 2 > 1e-13).all():  # columns repeat each other
            raise linalg.LinAlgError
        W = linalg.cho_solve(factor, wanted) / size[:, None]
    except linalg.LinAlgError:  # the shortest of all solutions
        W = linalg.lstsq(G, M[:d, d:], cond=d * 2.0**-50)[0]
    return W, mean[d:] - mean[:d] @ W


def _r2(rows: BlockMoments, W: Array, b: Array) -> float:
    """R² of the rows with these moments, averaged over the targets."""
    d, k = W.shape
    turn = np.vstack([-W, np.eye(k)])  # [X, Y] becomes the residuals
    off = rows.mean @ turn - b
    left = np.einsum("ik,ij,jk->k", turn, rows.scatter, turn) + rows.weight * off**2
    whole = np.diag(rows.scatter)[d:]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(whole > 0, 1 - left / whole, np.where(left > 0, 0.0, 1.0))
    return math.fsum(share) / k
