"""Checks of linear networks: their loss compared with the smallest possible one.

Whatever its depth, a linear network is one matrix P whose rank is at most its narrowest
layer, so the best one follows from Eckart and Young. For an autoencoder with k numbers
between encoder and decoder the least loss is ½Σ_{i>k} λᵢ, with λ the eigenvalues of the
covariance. For a network that maps x to y it is ½(tr S_yy − Σ_{i≤r} σᵢ²), with σ the
singular values of Γ = S_yx S_xx^(−1/2).

The loss itself is added up row by row, about points p and q near the means of x and y:
the variance of e = (y − q) − P(x − p), and the square of its mean less Pp + b − q.

Rounding. An entry of e is off by at most γ times what the magnitudes of the layers make
of |x − p| and |y − q|; in mean square, of the deviations. An entry of the
covariance S is off by at most γ·s_i s_j, so ‖E‖_F ≤ γ·tr S and the sum of its k largest
eigenvalues by √k times that. Γ is found with a computed W in place of S_xx^(−1/2);
WᵀSW = I + Δ raises what is explained by at most 1/(1 − ‖Δ‖).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status
from certus.typing import Array, ArrayLike, Fit
from certus.verify import data, deciding, stating
from certus.verify.blocks import add_up, over_blocks
from certus.verify.covariance import EIGEN, RUN, Spread, covariance_about
from certus.verify.deciding import Number, gamma, length, power_of_two, proved
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
    """Widths of the hidden layers, the target of the excess, and the advice."""

    objective: str
    widths: tuple[int, ...]
    tol: float
    fix: str


def _autoencoder(model: Fit) -> Statement:
    fix = f"raise max_iter (now {model.max_iter}), or tol"
    return Statement(ENCODED, (int(model.n_components),), stating.tol_of(model), fix)


def _network(model: Fit) -> Statement:
    fix = f"raise max_iter (now {model.max_iter}), or lower learning_rate"
    fix += f" (now {model.learning_rate})"
    widths = tuple(int(width) for width in model.hidden_layer_sizes)
    return Statement(MAPPED, widths, stating.tol_of(model), fix)


READERS: dict[str, stating.Reader] = {
    "LinearAutoencoder": _autoencoder,
    "DeepLinearNetwork": _network,
}


class Chain(NamedTuple):
    """y = W_L…W₁(x − ``before``) + ``after``; ``eps`` of the numbers stored."""

    layers: list[Array]
    before: Array
    after: Array
    eps: float
    #: The layers that the first is said to be the product of.
    parts: list[Array]


class Loss(NamedTuple):
    """Loss here and without factors, of x and y in these units, and the mean of x."""

    value: Number
    size: float
    units: tuple[Array, float]
    points: tuple[Array, Array]
    mean: Array


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge the layers, and the numbers that the model states."""
    deciding.refuse_weights(model, given.sample_weight)
    X: Any = reading.as_matrix(given.X)
    n, d = X.shape
    encoded = stated.objective == ENCODED
    Y = X if encoded else reading.numbers(given.y, n).reshape(n, -1)
    targets = np.zeros(n) if encoded else Y @ (1.0 + np.arange(Y.shape[1]))
    marks = data.fingerprint(X, targets, np.ones(n))
    own = (_read_autoencoder if encoded else _read_network)(model, d, Y.shape[1])
    parts = (*own.layers, *own.parts, own.before, own.after)
    if not all(np.isfinite(part).all() for part in parts):
        told = "the weights hold NaN or infinite values"
        words = {"objective": stated.objective, "fix": stated.fix}
        claim = proved("loss_excess", Number(math.inf), stated.tol, told, **words)
        return [claim], Status.DIVERGED, marks
    with np.errstate(over="ignore", invalid="ignore"):
        found = _loss(X, Y, own)
    rank = min(*stated.widths, d, Y.shape[1])
    claims, widths = [], tuple(len(W) for W in own.parts[:-1])
    if widths != stated.widths:
        counts = sum(widths), sum(stated.widths)
        claims.append(deciding.wrong_count("units between its ends", *counts))
    claims.append(_excess_claim(found, _explained(X, Y, found, rank), stated))
    if encoded:
        claims += [_stated_claim(model, found, own), _mean_claim(found, own, n)]
    else:
        claims.append(_product_claim(own))
    deciding.verdict(claims)  # missed claims come first
    return claims, deciding.status_of(claims[0]), marks


def _read_autoencoder(model: Fit, d: int, _: int) -> Chain:
    C = data.fitted(model, "encoder_", (None, d)).astype(np.float64)
    D = data.fitted(model, "decoder_", (d, len(C))).astype(np.float64)
    mean = data.fitted(model, "mean_", (d,)).astype(np.float64)
    return Chain([C, D], mean, mean, _eps(model.encoder_), [C, D])


def _read_network(model: Fit, d: int, k: int) -> Chain:
    flat = k == 1 and np.ndim(model.coef_) == 1
    P = data.fitted(model, "coef_", (d,) if flat else (k, d)).astype(np.float64)
    b = data.fitted(model, "intercept_", () if flat else (k,)).astype(np.float64)
    try:
        layers = [reading.plain(W).astype(np.float64) for W in model.weights_]
    except (TypeError, ValueError):
        layers = []
    if not layers or any(W.ndim != 2 for W in layers):
        kind = type(model).__name__
        raise ValueError(f"weights_ of this {kind} must be matrices. Fit it again.")
    P, b = P.reshape(k, d), b.reshape(k)
    return Chain([P], np.zeros(d), b, _eps(model.coef_), layers)


def _eps(values: ArrayLike) -> float:
    """The precision of the stored numbers."""
    return float(np.finfo(np.result_type(values, np.float32)).eps)


def _product_claim(own: Chain) -> Claim:
    """Whether the matrix is the product of the layers."""
    layers, P, found = own.parts, own.layers[0], Number(math.inf)
    fits = all(a.shape[0] == b.shape[1] for a, b in pairwise(layers))
    if fits and (len(layers[-1]), layers[0].shape[1]) == P.shape:
        made = _through(layers, np.eye(P.shape[1])).T
        sizes = math.prod(length(W) for W in layers)
        size = max(length(P), 1e-6 * sizes) or 1.0
        rounding = gamma(sum(map(len, layers)) + 8) * (sizes / size + 1)
        found = Number(length(made - P) / size, rounding)
    return proved(
        *("layers", found, PRODUCT if own.eps < PRODUCT else 1e-4),
        f"the matrix is the product of {len(layers)} layers, the narrowest of width "
        f"{min(*map(len, layers), P.shape[1])}",
        missed="the matrix is not the product of the layers",
        objective="‖W_L…W₁ − P‖ / ‖P‖",
        fix="fit again",
    )


# -- the loss, and the smallest possible one
# ---------------------------------------------


def _through(layers: list[Array], rows: Array) -> Array:
    for W in layers:
        rows = rows @ W.T
    return rows


def _loss(X: Array, Y: Array, own: Chain) -> Loss:
    """Row by row, in units of powers of two, so that no square is out of range."""
    n = len(X)
    u = np.array([power_of_two(float(size)) for size in np.abs(X).max(axis=0)])
    v = power_of_two(float(np.abs(Y).max()))
    layers = list(own.layers)
    layers[0] = layers[0] / u
    layers[-1] = layers[-1] * v
    p, q = (rows.sum(axis=0, dtype=np.float64) / n for rows in (X * u, Y * v))

    def look(part: slice) -> tuple[Any, ...]:
        x, y = X[part] * u - p, Y[part] * v - q
        off = y - _through(layers, x)
        sums = (x, x * x, y, y * y, off)
        return *(each.sum(axis=0) for each in sums), (off * off).sum()

    totals = add_up(over_blocks(look, n, RUN, alone=True))
    x_mean, x_square, y_mean, y_square, mean, square = (each / n for each in totals)
    # About the mean of what is off, and that mean itself: the points may be far away.
    before, after = p - own.before * u, own.after * v - q
    left = mean - _through(layers, before) - after
    value = (square - mean @ mean + left @ left) / 2
    sizes = [np.abs(W) for W in layers]
    g = gamma(min(n, RUN) + n // RUN + sum(W.shape[1] for W in layers) + len(q) + 16)
    lost = g * length(np.sqrt(y_square) + _through(sizes, np.sqrt(x_square)))
    slip = lost + g * length(np.abs(after) + _through(sizes, np.abs(before)))
    rounding = (math.sqrt(square) + length(mean) + lost) * lost
    rounding += (length(left) + slip) * slip
    rounding += g * float(square + y_square.sum() + left @ left)
    size = max(0.0, float((y_square - y_mean**2).sum()) / 2)
    found = Number(max(0.0, float(value)), rounding)
    return Loss(found, size, (u, v), (p, q), (p + x_mean) / u)


def _explained(X: Array, Y: Array, found: Loss, rank: int) -> tuple[Number, int] | None:
    """The most that a matrix of this rank explains, and directions left out."""
    if min(X.shape) > EIGEN:
        return None
    (u, v), (p, q) = found.units, found.points
    some, kept = _varies(X), _varies(Y)
    if Y is X:
        S, shift = covariance_about(Y[:, kept] * v, q[kept])
        S = S.about_the_mean(shift)
        values, off = S.bounds()
        slack = gamma(rank + 4) * float(S.diagonal.sum()) + math.sqrt(rank) * off
        return Number(float(values[:rank].sum()) / 2, slack / 2), 0
    both = np.hstack([X[:, some] * u[some], Y[:, kept] * v])
    S, shift = covariance_about(both, np.append(p[some], q[kept]))
    return _mapped(S.about_the_mean(shift), int(some.sum()), rank)


def _mapped(S: Spread, d: int, rank: int) -> tuple[Number, int]:
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


def _excess_claim(
    found: Loss, explained: tuple[Number, int] | None, stated: Statement
) -> Claim:
    """Loss above the smallest possible, as a share of the loss without factors."""
    if explained is None:
        why = f"the check needs all eigenvalues of over {EIGEN:,} rows and columns"
        fix = "certify a model of fewer rows or columns"
        return deciding.refused("loss_excess", why, fix, objective=stated.objective)
    most, absent = explained
    # The smallest loss is at least zero, whatever rounding gives.
    least = max(found.size - most.value, 0.0)
    rounding = found.value.rounding + most.rounding
    # Where nothing varies, the smallest loss is zero.
    excess = Number.share(max(found.value.value - least, 0.0), rounding, found.size)
    left = f"{absent} directions with less than {ABSENT:g} of the variance are left out"
    return proved(
        *("loss_excess", excess, stated.tol),
        f"the loss is within {excess.most:.1e} of its minimum (1 = no factors)",
        objective=stated.objective,
        theorem="Eckart and Young: no matrix of this rank has a lower loss",
        assumptions=(left,) if absent else (),
        fix=stated.fix,
    )


def _stated_claim(model: Fit, found: Loss, own: Chain) -> Claim:
    """Whether the loss that the model states is its own."""
    size, unit = found.size or 1.0, found.units[1]
    off = abs(float(getattr(model, "loss_", math.inf)) * unit**2 - found.value.value)
    same = "the stated loss is {}that of the encoder and decoder"
    return proved(
        *("reported_loss", Number(off / size, found.value.rounding / size)),
        *(max(STATED, 64 * own.eps), same.format("")),
        missed=same.format("not "),
        objective="|loss_ − loss| as a share of the loss without factors",
        fix="fit again",
    )


def _mean_claim(found: Loss, own: Chain, n: int) -> Claim:
    """Whether m is the mean of the rows, as its precision allows."""
    unit = math.sqrt(2 * found.size / len(own.before)) / found.units[1] or 1.0
    size = float(np.abs(found.mean).max()) / unit
    off = float(np.abs(own.before - found.mean).max()) / unit
    return proved(
        *("mean", Number(off, gamma(4) * (size + math.sqrt(n)))),
        *(max(SAME_MEAN, own.eps * size), "m is the mean of the rows"),
        missed=f"m is {off:.2g} of the mean deviation away from the mean of the rows",
        objective="max |mⱼ − x̄ⱼ| as a share of the mean deviation",
        fix="fit again",
    )
