"""Checks of linear networks: their loss beside the least that any of them reaches.

Whatever its depth, a linear network is one matrix P whose rank is at most its narrowest
layer, so the best one follows from Eckart and Young. For an autoencoder with k numbers
between encoder and decoder the least loss is ½Σ_{i>k} λᵢ, with λ the eigenvalues of the
covariance. For a network that maps x to y it is ½(tr S_yy − Σ_{i≤r} σᵢ²), with σ the
singular values of Γ = S_yx S_xx^(−1/2).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.claims import UNTELLABLE
from certus.verify.covariance import EIGEN, EPS, Spread, covariance_about
from certus.verify.data import Array

#: Directions with less than this share of the largest variance are not searched.
ABSENT = 1e-10
#: Largest relative difference between a network's matrix and its layers' product.
PRODUCT = 1e-9
#: How far a stated loss may be off, as a share of the loss without factors.
STATED = 1e-9

Checked = tuple[list[Claim], Status, dict[str, Any]]


class Loss(NamedTuple):
    """Loss here, the least there is (None if unknown), without any factor; rounding."""

    value: float
    least: float | None
    size: float
    rounding: float
    gradient: float
    absent: int = 0  # directions of x that vary too little to be searched


# -- the autoencoder --------------------------------------------------------------


def check_autoencoder(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> Checked:
    """Judge encoder, decoder and mean. ``evidence.params``: tol, fix."""
    X = data.as_matrix(X)
    C = np.asarray(model.encoder_, dtype=np.float64)
    D = np.asarray(model.decoder_, dtype=np.float64)
    mean = np.asarray(model.mean_, dtype=np.float64)
    d = X.shape[1]
    if mean.shape != (d,) or C.shape[1:] != (d,) or D.shape != C.shape[::-1]:
        raise ValueError(f"X has {d} columns and the model was fitted on {len(mean)}.")
    marks = data.fingerprint(X, np.zeros(len(X)), np.ones(len(X)))
    objective = "(1/2n) Σ‖(x − m) − DC(x − m)‖²"
    if not all(np.isfinite(part).all() for part in (C, D, mean)):
        return [_diverged(objective, evidence)], Status.DIVERGED, marks
    spread, shift = covariance_about(X, mean)
    # In units of the mean deviation, as squares of S may be beyond the range.
    unit = math.sqrt(float(spread.diagonal.mean())) or 1.0
    spread, shift = spread.scaled(np.full(d, 1 / unit)), shift / unit
    eps = float(np.finfo(np.asarray(model.encoder_).dtype).eps)
    found = _autoencoder_loss(spread, shift, C, D, len(X), eps * mean / unit)
    claims = [_excess_claim(found, objective, evidence), _gradient_claim(found)]
    stated = float(getattr(model, "loss_", found.value * unit**2)) / unit / unit
    claims.append(_stated_claim(found, stated, eps))
    claims.sort(key=lambda claim: claim.met is not False)  # what is missed leads
    return claims, _status(claims[0]), marks


def _autoencoder_loss(
    S: Spread, shift: Array, C: Array, D: Array, n: int, cast: Array
) -> Loss:
    SC = S.times(C.T)
    inner, outer = C @ SC, D.T @ D
    total, cross = float(S.diagonal.sum()), float(np.einsum("ij,ij->", D, SC))
    kept = float(np.sum(outer * inner))
    value = 0.5 * (total - 2 * cross + kept)
    d, k = D.shape
    centred = S.about_the_mean(shift)
    size = 0.5 * float(centred.diagonal.sum())
    rounding = EPS * (16 + d) * (total + 2 * abs(cross) + kept)
    rounding += float(cast @ cast)  # what rounding has cost the mean itself
    least = None
    if min(n, d) <= EIGEN:
        values = centred.eigen()[0]
        least = 0.5 * max(0.0, 2 * size - float(values[:k].sum()))
    slope = outer @ SC.T - S.times(D).T
    gradient = math.hypot(float(np.linalg.norm(slope)), _norm(D @ inner - SC))
    return Loss(value, least, size, rounding, gradient)


# -- networks from x to y ---------------------------------------------------------


def check_deep_linear(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> Checked:
    """Judge a network's matrix and layers. ``evidence.params``: tol, fix."""
    X = data.as_matrix(X)
    n, d = X.shape
    Y = data.numbers(y, n).reshape(n, -1)
    layers = [np.asarray(W, dtype=np.float64) for W in model.weights_]
    coef = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    b = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
    if coef.shape != (Y.shape[1], d) or b.shape != (Y.shape[1],):
        raise ValueError(
            f"X has {d} columns and y {Y.shape[1]}; the model was fitted on "
            f"{coef.shape[1]} and {coef.shape[0]}."
        )
    marks = data.fingerprint(X, Y @ (1.0 + np.arange(Y.shape[1])), np.ones(n))
    objective = "(1/2n) Σ‖y − W_L…W₁x − b‖²"
    if not all(np.isfinite(part).all() for part in (coef, b, *layers)):
        return [_diverged(objective, evidence)], Status.DIVERGED, marks
    product, narrowest = _product_claim(layers, coef, np.asarray(model.coef_).dtype)
    found = _network_loss(X, Y, coef, b, layers if product.met else [coef], narrowest)
    claims = [_excess_claim(found, objective, evidence), product]
    claims.append(_gradient_claim(found))
    claims.sort(key=lambda claim: claim.met is not False)  # what is missed leads
    return claims, _status(claims[0]), marks


def _product_claim(layers: list[Array], coef: Array, dtype: Any) -> tuple[Claim, int]:
    """Whether the matrix is the product of the layers, and their narrowest width."""
    fits = all(a.shape[0] == b.shape[1] for a, b in pairwise(layers))
    widths = [*(W.shape[0] for W in layers), coef.shape[1]]
    off, size = math.inf, float(np.linalg.norm(coef)) or 1.0
    if fits and (widths[-2], layers[0].shape[1]) == coef.shape:
        made = layers[0]
        for W in layers[1:]:
            made = W @ made
        sizes = math.prod(float(np.linalg.norm(W)) for W in layers)
        off = float(np.linalg.norm(made - coef)) / max(size, 1e-6 * sizes)
    target = PRODUCT if dtype == np.float64 else 1e-4
    met = off <= target
    detail = (
        f"the matrix is the product of {len(layers)} layers, narrowest {min(widths)}"
    )
    if not met:
        detail = "the matrix is not the product of the layers"
    claim = Claim(
        "layers",
        Strength.PROVED,
        off,
        target,
        met,
        objective="‖W_L…W₁ − P‖ / ‖P‖",
        detail=detail,
        fix="" if met else "fit again",
    )
    return claim, min(widths)


def _network_loss(
    X: Any, Y: Array, coef: Array, b: Array, layers: list[Array], rank: int
) -> Loss:
    n, d = X.shape
    Z = data.dot(X, coef.T)
    residual = Y - Z - b
    value = 0.5 * float(np.sum(residual**2)) / n
    centre = Y.mean(axis=0)
    centred = Y - centre
    size = 0.5 * float(np.sum(centred**2)) / n
    # Losses of rounded residuals: 2|r|·δ with δ the rounding of products and sums.
    magnitudes = np.abs(Y).max(axis=0) + np.abs(b) + np.abs(coef) @ data.magnitudes(X)
    delta = EPS * (8 + d) * magnitudes
    rounding = float(np.abs(residual).mean(axis=0) @ delta + delta @ delta)
    mean = data.t_dot(X, np.full(n, 1.0 / n))
    spread, shift = covariance_about(X, mean)
    slope = np.outer(mean, residual.mean(axis=0)) - data.t_dot(X, residual / n)
    gradient = _layers_gradient(layers, slope.T)
    least, absent = None, 0
    if min(n, d) <= EIGEN:
        S = spread.about_the_mean(shift)
        cross = data.t_dot(X, centred / n)  # d × p, as the columns of y are centred
        cross -= np.outer(mean + shift, centred.mean(axis=0))
        explained, lost, absent = _explained(S, cross, mean, rank)
        least, rounding = max(0.0, size - 0.5 * explained), rounding + lost
    return Loss(value, least, size, rounding + 8 * EPS * size, gradient, absent)


def _layers_gradient(layers: list[Array], slope: Array) -> float:
    """‖(∂W₁, …, ∂W_L)‖, with ∂W_l = (W_L…W_{l+1})ᵀ · slope · (W_{l−1}…W₁)ᵀ."""
    above, total = [slope], 0.0
    for W in layers[:0:-1]:
        above.append(W.T @ above[-1])
    below = np.eye(layers[0].shape[1])
    for W, left in zip(layers, above[::-1]):
        total += _norm(left @ below.T) ** 2
        below = W @ below
    return math.sqrt(total)


def _explained(
    S: Spread, cross: Array, mean: Array, rank: int
) -> tuple[float, float, int]:
    """Σσᵢ² over the largest ``rank`` singular values of Γ, the rounding in it.

    And how many directions were left out, beyond those that n rows cannot have.
    """
    varies = S.diagonal > np.square(16 * EPS * np.abs(mean))
    if not varies.any():
        return 0.0, 0.0, 0
    u = 1 / np.sqrt(S.diagonal[varies])
    values, V = S.scaled(u, varies).eigen()
    used = values > ABSENT * values[0]
    G = (cross[varies] * u[:, None]).T @ (V[:, used] / np.sqrt(values[used]))
    squares = np.linalg.svd(G, compute_uv=False) ** 2
    lost = 4 * len(u) * EPS * (np.sum(G**2, axis=0) / values[used]).sum()
    tiny = values[~used] > len(u) * EPS * values[0]
    return float(squares[:rank].sum()), float(lost), int(np.count_nonzero(tiny))


# -- claims -----------------------------------------------------------------------


def _norm(A: Array) -> float:
    return float(np.linalg.norm(A))


def _status(primary: Claim) -> Status:
    blurred = primary.strength is Strength.REFUSED and primary.value is not None
    missed = primary.met is False or blurred
    return Status.TOL_NOT_REACHED if missed else Status.SOLVED


def _diverged(objective: str, evidence: Evidence) -> Claim:
    return Claim(
        "loss_excess",
        Strength.PROVED,
        math.inf,
        float(evidence.params.get("tol", 0.0)),
        False,
        objective=objective,
        detail="the weights hold NaN or infinite values",
        fix=str(evidence.params.get("fix", "")),
    )


def _excess_claim(found: Loss, objective: str, evidence: Evidence) -> Claim:
    """Loss above the least there is, as a share of the loss without factors."""
    tol = float(evidence.params.get("tol", 1e-6))
    if found.least is None:
        return Claim(
            "loss_excess",
            Strength.REFUSED,
            objective=objective,
            detail=f"the least loss needs eigenvalues of more than {EIGEN:,} rows and "
            "columns",
            fix="certify a model of fewer rows or columns",
        )
    size = found.size
    excess = found.value - found.least
    allowance = found.rounding / size if size > 0 else 0.0
    if size > 0:
        value = excess / size
    else:  # nothing varies: any loss is one too many
        value = 0.0 if excess <= found.rounding else math.inf
    met = bool(value <= tol + allowance)
    value = max(value, 0.0)
    if met and allowance > UNTELLABLE:
        return Claim(
            "loss_excess",
            Strength.REFUSED,
            value,
            tol,
            objective=objective,
            allowance=allowance,
            detail=f"rounding alone may be {allowance:.1e} of the loss: the numbers "
            "cancel each other",
            fix="centre and scale the columns (StandardScaler)",
        )
    return Claim(
        "loss_excess",
        Strength.PROVED,
        value,
        tol,
        met,
        objective=objective,
        theorem="Eckart and Young: no matrix of this rank has a lower loss",
        assumptions=_left_out(found.absent),
        allowance=allowance,
        detail=f"the loss is {value:.1e} of that without factors above the least",
        fix="" if met else str(evidence.params.get("fix", "raise max_iter")),
    )


def _stated_claim(found: Loss, stated: float, eps: float) -> Claim:
    """Whether the loss that the model states is its own."""
    size = found.size if found.size > 0 else 1.0
    off = abs(stated - found.value) / size
    allowance = (found.rounding + 64 * eps * found.value) / size
    met = bool(off <= STATED + allowance)
    return Claim(
        "reported_loss",
        Strength.PROVED,
        off if math.isfinite(off) else math.inf,
        STATED,
        met,
        objective="|loss_ − loss| as a share of the loss without factors",
        allowance=allowance,
        detail="the loss stated is that of encoder and decoder"
        if met
        else "the loss stated is not that of encoder and decoder",
        fix="" if met else "fit again",
    )


def _left_out(absent: int) -> tuple[str, ...]:
    if not absent:
        return ()
    return (f"{absent} directions with less than {ABSENT:g} of the variance left out",)


def _gradient_claim(found: Loss) -> Claim:
    share = found.gradient / (2 * found.size) if found.size > 0 else found.gradient
    return Claim(
        "gradient_norm",
        Strength.MEASURED,
        share,
        detail=f"the gradient is {share:.1e} of twice the loss without factors",
    )
