"""Checks of linear networks: their loss beside the least that any of them reaches.

Whatever its depth, a linear network is one matrix P whose rank is at most its narrowest
layer, so the best one follows from Eckart and Young. For an autoencoder with k numbers
between encoder and decoder the least loss is ½Σ_{i>k} λᵢ, with λ the eigenvalues of the
covariance. For a network that maps x to y it is ½(tr S_yy − Σ_{i≤r} σᵢ²), with σ the
singular values of Γ = S_yx S_xx^(−1/2).

Rounding. An entry of the covariance S is off by at most γ·s_i s_j, so ‖E‖_F ≤ γ·tr S
and the sum of its k largest eigenvalues by √k times that. Γ is found with a computed W
in place of S_xx^(−1/2); WᵀSW = I + Δ raises what is explained by at most 1/(1 − ‖Δ‖).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status
from certus.verify import data, stating
from certus.verify.covariance import EIGEN, Spread, covariance_about
from certus.verify.data import Array
from certus.verify.deciding import (
    Number,
    gamma,
    length,
    measured,
    power_of_two,
    proved,
    refuse_weights,
    refused,
    verdict,
    wrong_count,
)
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Directions with less than this share of the largest variance are not searched.
ABSENT = 1e-10
#: Largest relative difference between a network's matrix and its layers' product.
PRODUCT = 1e-9
#: How far a stated loss may be off, as a share of the loss without factors; and a
#: stated mean, as a share of the mean deviation.
STATED, SAME_MEAN = 1e-9, 1e-6
ENCODED = "(1/2n) Σ‖(x − m) − DC(x − m)‖²"
MAPPED = "(1/2n) Σ‖y − W_L…W₁x − b‖²"


class Statement(NamedTuple):
    """Widths between the ends, the target of the excess, and what helps."""

    objective: str
    widths: tuple[int, ...]
    tol: float
    fix: str


def _autoencoder(model: Any) -> Statement:
    fix = f"raise max_iter (now {model.max_iter}), or tol"
    return Statement(ENCODED, (int(model.n_components),), stating.tol_of(model), fix)


def _network(model: Any) -> Statement:
    fix = (
        f"raise max_iter (now {model.max_iter}), or lower learning_rate (now "
        f"{model.learning_rate})"
    )
    widths = tuple(int(width) for width in model.hidden)
    return Statement(MAPPED, widths, stating.tol_of(model), fix)


READERS: dict[str, stating.Reader] = {
    "LinearAutoencoder": _autoencoder,
    "DeepLinearNetwork": _network,
}


class Loss(NamedTuple):
    """Loss here, the most a model explains of it (None if unknown), size, gradient."""

    value: Number
    explained: Number | None
    size: float  # the loss without factors
    gradient: float
    absent: int = 0  # directions of x that vary too little to be searched


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Judge layers, and what the model says of itself."""
    _, X, y, sample_weight, _, _ = given
    refuse_weights(model, sample_weight)
    X = reading.as_matrix(X)
    if stated.objective == ENCODED:
        claims, marks = _check_autoencoder(model, stated, X)
    else:
        claims, marks = _check_network(model, stated, X, y)
    if claims[0].value == math.inf and not claims[0].allowance:
        return claims, Status.DIVERGED, marks
    return claims, verdict(claims), marks


# -- the autoencoder --------------------------------------------------------------


def _check_autoencoder(
    model: Any, stated: Statement, X: Any
) -> tuple[list[Claim], dict[str, Any]]:
    C, D, mean = (
        np.asarray(part, dtype=np.float64)
        for part in (model.encoder_, model.decoder_, model.mean_)
    )
    n, d = X.shape
    if mean.shape != (d,) or C.shape[1:] != (d,) or D.shape != C.shape[::-1]:
        raise ValueError(f"X has {d} columns and the model was fitted on {len(mean)}.")
    marks = data.fingerprint(X, np.zeros(n), np.ones(n))
    if not all(np.isfinite(part).all() for part in (C, D, mean)):
        return [_diverged(stated)], marks
    point, unit = _middle(X), power_of_two(float(np.abs(X).max()))
    some = _varies(X)  # the others have no part in the covariance
    spread, shift = covariance_about(X[:, some] * unit, point[some] * unit)
    spread = spread.about_the_mean(shift)
    point[some] += shift / unit
    found = _autoencoder_loss(spread, C[:, some], D, some, n)
    eps = float(np.finfo(np.asarray(model.encoder_).dtype).eps)
    claims = [_excess_claim(found, stated), _stated_claim(model, found, unit, eps)]
    deviation = math.sqrt(2 * found.size / d) / unit or 1.0
    claims.append(_mean_claim(mean, point, deviation, eps, n))
    if len(C) != stated.widths[0]:
        claims.append(wrong_count("numbers in its code", len(C), stated.widths[0]))
    return [*claims, _gradient_claim(found)], marks


def _autoencoder_loss(S: Spread, C: Array, D: Array, some: Array, n: int) -> Loss:
    SC = S.times(C.T)
    inner, outer, code = C @ SC, D.T @ D, C @ C.T
    total = float(S.diagonal.sum())
    cross = float((D[some] * SC).sum(axis=0).sum())
    kept = float((outer * inner).sum(axis=0).sum())
    (d, k), large = D.shape, float(np.linalg.norm(S.matrix)) if S.formed else total
    # ½tr((I − P)ᵀ(I − P)E) for P = DC, and products with S, C and D in float64.
    P = math.sqrt(abs(float(np.vdot(outer, code))))
    PP = math.sqrt(abs(float(np.vdot(outer @ code, (outer @ code).T))))
    rounding = S.share * total * (2 + 2 * P + PP) / 2
    g, of_C, of_D = gamma(2 * d + 2 * k + 8), length(C), length(D)
    rounding += g * large * of_C * (of_D + of_C * length(outer))
    rounding += g * (of_D**2 * length(inner) + abs(cross) + kept + total)
    value = Number((total - 2 * cross + kept) / 2, rounding)
    explained = None
    if min(n, len(some)) <= EIGEN:
        values, off = S.bounds()
        slack = gamma(k + 4) * total + math.sqrt(k) * off
        explained = Number(float(values[:k].sum()) / 2, slack / 2)
    slope = outer @ SC.T - S.times(D[some]).T
    back = D @ inner
    back[some] -= SC
    gradient = math.hypot(length(slope), length(back))
    return Loss(value, explained, total / 2, gradient)


def _stated_claim(model: Any, found: Loss, unit: float, eps: float) -> Claim:
    """Whether the loss that the model states is its own."""
    size = found.size if found.size > 0 else 1.0
    told = float(getattr(model, "loss_", math.inf)) * unit * unit
    off = abs(told - found.value.value) / size
    same = "the loss stated is {}that of encoder and decoder"
    return proved(
        *("reported_loss", Number(off, found.value.rounding / size)),
        *(max(STATED, 64 * eps), same.format("")),
        missed=same.format("not "),
        objective="|loss_ − loss| as a share of the loss without factors",
        fix="fit again",
    )


def _mean_claim(mean: Array, point: Array, unit: float, eps: float, n: int) -> Claim:
    """Whether m is the mean of the rows, as its precision allows."""
    size = float(np.abs(point).max())
    off = float(np.abs(mean - point).max()) / unit
    return proved(
        *("mean", Number(off, gamma(4) * (size / unit + math.sqrt(n)))),
        *(max(SAME_MEAN, eps * size / unit), "m is the mean of the rows"),
        missed=f"m lies {off:.2g} of the mean deviation from the mean of the rows",
        objective="max |mⱼ − x̄ⱼ| as a share of the mean deviation",
        fix="fit again",
    )


# -- networks from x to y ---------------------------------------------------------


def _check_network(
    model: Any, stated: Statement, X: Any, y: Any
) -> tuple[list[Claim], dict[str, Any]]:
    n, d = X.shape
    Y = reading.numbers(y, n).reshape(n, -1)
    layers = [np.asarray(W, dtype=np.float64) for W in model.weights_]
    P = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    b = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
    if P.shape != (Y.shape[1], d) or b.shape != (Y.shape[1],):
        raise ValueError(
            f"X has {d} columns and y {Y.shape[1]}; the model was fitted on "
            f"{P.shape[1]} and {P.shape[0]}."
        )
    marks = data.fingerprint(X, Y @ (1.0 + np.arange(Y.shape[1])), np.ones(n))
    if not all(np.isfinite(part).all() for part in (P, b, *layers)):
        return [_diverged(stated)], marks
    product = _product_claim(layers, P, np.asarray(model.coef_).dtype)
    rank = min(*stated.widths, *P.shape)
    found = _network_loss(X, Y, P, b, layers if product.met else [P], rank)
    claims = [_excess_claim(found, stated), product]
    if [len(W) for W in layers[:-1]] != list(stated.widths):
        asked = sum(stated.widths) + len(Y[0])
        claims.append(wrong_count("units", sum(map(len, layers)), asked))
    return [*claims, _gradient_claim(found)], marks


def _product_claim(layers: list[Array], P: Array, dtype: Any) -> Claim:
    """Whether the matrix is the product of the layers."""
    fits = all(a.shape[0] == b.shape[1] for a, b in pairwise(layers))
    off, rounding = math.inf, 0.0
    if fits and (len(layers[-1]), layers[0].shape[1]) == P.shape:
        made = layers[0]
        for W in layers[1:]:
            made = W @ made
        sizes = math.prod(length(W) for W in layers)
        size = max(length(P), 1e-6 * sizes) or 1.0
        off = length(made - P) / size
        rounding = gamma(sum(map(len, layers)) + 8) * (sizes / size + 1)
    return proved(
        *("layers", Number(off, rounding), PRODUCT if dtype == np.float64 else 1e-4),
        f"the matrix is the product of {len(layers)} layers, narrowest "
        f"{min(*map(len, layers), P.shape[1])}",
        missed="the matrix is not the product of the layers",
        objective="‖W_L…W₁ − P‖ / ‖P‖",
        fix="fit again",
    )


def _network_loss(
    X: Any, Y: Array, P: Array, b: Array, layers: list[Array], rank: int
) -> Loss:
    """All from the covariance of x and y together; the residual is y − Px − b."""
    n, d = X.shape
    some = _varies(X)
    u = np.array([power_of_two(float(size)) for size in np.abs(X).max(axis=0)])
    v = power_of_two(float(np.abs(Y).max()))
    point = np.append(_middle(X) * u, _middle(Y) * v)
    M = np.hstack([-P / u * v, np.eye(len(P))])
    both, kept = np.hstack([X * u, Y * v]), np.append(some, _varies(Y))
    spread, shift = covariance_about(both[:, kept], point[kept])
    spread = spread.about_the_mean(shift)
    point[kept] += shift
    T, s = spread.times(M[:, kept].T), np.sqrt(np.abs(spread.diagonal))
    g = spread.share + gamma(2 * d + 2 * len(P) + 16)
    reach = np.abs(M[:, kept]) @ s  # of the score of a row, in mean square
    around = float((M[:, kept].T * T).sum(axis=0).sum())
    left = M @ point - b * v
    slip = g * (np.abs(M) @ np.abs(point) + np.abs(b * v) + reach)
    rounding = float(g * reach @ reach / 2 + np.abs(left) @ slip + slip @ slip)
    value = Number((around + float(left @ left)) / 2, rounding)
    width = int(some.sum())
    slope = np.zeros((len(P), d))
    slope[:, some] = T[:width].T / u[some]
    size = float(spread.diagonal[width:].sum()) / 2
    gradient = _layers_gradient(layers, slope) * v
    explained, absent = None, 0
    if min(n, d) <= EIGEN:
        explained, absent = _explained(spread, width, rank)
    return Loss(value, explained, size, gradient, absent)


def _layers_gradient(layers: list[Array], slope: Array) -> float:
    """‖(∂W₁, …, ∂W_L)‖, with ∂W_l = (W_L…W_{l+1})ᵀ · slope · (W_{l−1}…W₁)ᵀ."""
    above, total = [slope], 0.0
    for W in layers[:0:-1]:
        above.append(W.T @ above[-1])
    below = np.eye(layers[0].shape[1])
    for W, over in zip(layers, above[::-1]):
        total += length(over @ below.T) ** 2
        below = W @ below
    return math.sqrt(total)


def _explained(S: Spread, d: int, rank: int) -> tuple[Number, int]:
    """½Σσᵢ² over the largest ``rank`` of Γ, the rounding in it, and what was left out.

    With columns of variance one an entry of S_xx is off by γ, of S_xy by γ·s_y; w_j,
    of length ℓ_j = λ_j^(−1/2), has ‖w_j‖₁ ≤ √d·ℓ_j.
    """
    if not d:
        return Number(0.0, 0.0), 0
    scale = np.append(1 / np.sqrt(S.diagonal[:d]), np.ones(len(S.diagonal) - d))
    S = S.scaled(scale)
    x, s_y = np.arange(len(S.diagonal)) < d, np.sqrt(np.abs(S.diagonal[d:]))
    values, V = S.scaled(np.ones(d), x).eigen()
    used = values > ABSENT * values[0]
    lengths = 1 / np.sqrt(values[used])
    W = np.zeros((len(S.diagonal), used.sum()))
    W[:d] = V[:, used] * lengths
    SW = S.times(W)
    G, delta = SW[d:], W[:d].T @ SW[:d] - np.eye(len(lengths))
    share = S.share + gamma(2 * d + 16)
    eta, q = share * d, float(np.square(np.abs(G) @ lengths).sum())
    skew = float(np.linalg.norm(delta)) + eta * float(lengths @ lengths)
    squares = np.linalg.svd(G, compute_uv=False) ** 2
    value = float(squares[:rank].sum())
    lost = (float(np.linalg.norm(delta)) * value + eta * q) / (1 - skew)
    slip = share * math.sqrt(d) * float(s_y @ (np.abs(G) @ lengths))
    lost += 2 * slip + (share**2 * d) * float(s_y @ s_y) * float(lengths @ lengths)
    lost += gamma(8 * sum(G.shape)) * float(squares.sum())
    tiny = values[~used] > d * 2.0**-52 * values[0]
    rounding = lost / 2 if skew < 0.5 else math.inf
    return Number(value / 2, rounding), int(np.count_nonzero(tiny))


# -- claims -----------------------------------------------------------------------


def _varies(X: Array) -> Array:
    """Which columns are not constant: the others would leave mere rounding."""
    return np.asarray(X.max(axis=0) > X.min(axis=0))


def _middle(X: Array) -> Array:
    """A point near the mean of the rows, without overflow of their sums."""
    return np.asarray(np.mean(X / len(X), axis=0, dtype=np.float64) * len(X))


def _diverged(stated: Statement) -> Claim:
    detail = "the weights hold NaN or infinite values"
    found = Number(math.inf, 0.0)
    more = {"objective": stated.objective, "fix": stated.fix}
    return proved("loss_excess", found, stated.tol, detail, **more)


def _excess_claim(found: Loss, stated: Statement) -> Claim:
    """Loss above the least there is, as a share of the loss without factors."""
    if found.explained is None:
        return refused(
            "loss_excess",
            f"the least loss needs eigenvalues of more than {EIGEN:,} rows and columns",
            "certify a model of fewer rows or columns",
            objective=stated.objective,
        )
    rounding = found.value.rounding + found.explained.rounding
    # The least is no less than zero, whatever rounding explains.
    least = max(found.size - found.explained.value, 0.0)
    excess, size = max(found.value.value - least, 0.0), found.size
    if size > 0:
        excess, rounding = excess / size, rounding / size
    elif excess + rounding > 0:  # nothing varies: any loss is one too many
        excess = math.inf
    left = f"{found.absent} directions with less than {ABSENT:g} of the variance"
    return proved(
        *("loss_excess", Number(excess, rounding), stated.tol),
        f"the loss is {excess + rounding:.1e} of that without factors above the least",
        objective=stated.objective,
        theorem="Eckart and Young: no matrix of this rank has a lower loss",
        assumptions=(f"{left} left out",) if found.absent else (),
        fix=stated.fix,
    )


def _gradient_claim(found: Loss) -> Claim:
    share = found.gradient / (2 * found.size) if found.size > 0 else found.gradient
    detail = f"the gradient is {share:.1e} of twice the loss without factors"
    return measured("gradient_norm", share, detail)
