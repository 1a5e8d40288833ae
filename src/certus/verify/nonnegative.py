"""Non-negative factors, X ≈ WH: how much a further update of one factor could gain.

    P(W, H) = ½‖X − WH‖² + a‖W‖₁ + ½b‖W‖² + a'‖H‖₁ + ½b'‖H‖²,      W, H ≥ 0

The problem in both is not convex, and nothing is said about its global minimum. In each
factor alone it is, row by row of W (column by column of H). With G = HHᵀ, B = XHᵀ and
v = wG − B, the slopes at w + tc are a dual point for any shift t ≥ 0 along c > 0, and
Fenchel–Young's excess is a sum of terms ≥ 0,

    P(w) − min P  ≤  ½t²cᵀGc + Σ w(a + v + tGc)     once  v + tGc ≥ −a
    b > 0, t = 0:    ½b‖w − p‖² + Σ w(a − A),       A = min(−v, a),  p = (−v − a)⁺/b

No entry of X, W, H is negative, so that v is known to γ(wG + B). Nothing is proved
about divergences other than the squared error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Status
from certus.objectives.terms import NonNegative
from certus.typing import Array, ArrayLike, Fit, Matrix
from certus.verify import data
from certus.verify import deciding as bd
from certus.verify.deciding import TINY, Number, gamma
from certus.verify.kernel import reading
from certus.verify.kernel.penalties import row_of
from certus.verify.stating import Checked, Given

#: Squares below this have lost digits.
LEAST = 1e-280
OBJECTIVE = "(P − D)/½‖X‖²,  P = ½‖X − WH‖² + penalties,  over the rows of one factor"
GLOBAL = "the other factor is held fixed; nothing is said about the global minimum"
BETAS = {"frobenius": 2.0, "kullback-leibler": 1.0, "itakura-saito": 0.0}


class Statement(NamedTuple):
    """A β-divergence, and penalties: of W, and of H for each row of X."""

    beta: float
    on_W: NonNegative
    on_H: NonNegative
    n_components: Any
    tol: float
    fix: str


def _nmf(model: Fit) -> Statement:
    """scikit-learn scales the penalties by the other side's length."""
    d = data.fitted(model, "components_", (None, None)).shape[1]
    share, own = float(model.l1_ratio), float(model.alpha_W)
    other = own if isinstance(model.alpha_H, str) else float(model.alpha_H)
    on_W = NonNegative(d * own * share, d * own * (1 - share))
    on_H = NonNegative(other * share, other * (1 - share))
    beta, tol = float(BETAS.get(model.beta_loss, model.beta_loss)), float(model.tol)
    fix = f"lower tol (now {tol:g}) and raise max_iter"
    return Statement(beta, on_W, on_H, model.n_components, tol, fix)


READERS = {"NMF": _nmf}


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge H of the model, with W as the model itself gives it for these rows."""
    bd.refuse_weights(model, given.sample_weight)
    X = reading.as_matrix(given.X)
    n, d = X.shape
    marks = data.fingerprint(X, np.zeros(n), np.ones(n))
    data.fitted(model, "reconstruction_err_", ())  # a number, if it is stated at all
    H, K = _factor(model.components_), stated.n_components
    if H.shape[1] != d:
        raise ValueError(f"X has {d} columns, but the fit had {H.shape[1]}.")
    if isinstance(K, int) and len(H) != K:
        raise ValueError(f"The model has {len(H)} components, but n_components is {K}.")
    values = np.asarray(X.data if sparse.issparse(X) else X, dtype=np.float64).ravel()
    if values.min(initial=0.0) < 0:
        raise ValueError("X holds negative values, which NMF does not allow.")
    if stated.beta != 2.0:
        return [], Status.UNDECIDED, marks
    # With no component left there is nothing to transform by.
    W = _factor(model.transform(X) if H.any() else np.zeros((n, len(H))))
    if W.shape != (n, len(H)):
        raise ValueError("The shapes of the factors do not match. Fit the model again.")
    on_H = NonNegative(*(n * p for p in stated.on_H))
    whole = 0.5 * float(values @ values)
    size = whole * (1 - gamma(values.size + 8)) - values.size * TINY
    size = size if size > 0 else np.nan if values.any() else 1.0  # squares that vanish
    claims = [
        _gap_claim("components_gap", "H", gap(X.T, W.T, H.T, on_H), size, stated),
        _gap_claim("weights_gap", "W", gap(X, H, W, stated.on_W), size, stated),
    ]
    return claims, bd.verdict(claims), marks


def _factor(F: ArrayLike) -> Array:
    F = np.asarray(F, dtype=np.float64)
    if F.ndim != 2 or not np.isfinite(F).all() or F.min(initial=0.0) < 0:
        raise ValueError("A factor is negative or not finite. Fit the model again.")
    return F


# -- squared error: one factor is a convex problem ----------------------------------


def gap(X: Matrix, H: Array, W: Array, penalty: NonNegative) -> Number:
    """Bound on P(W) − min over W ≥ 0 of P, for H fixed; sums over the rows of W.

    Examples
    --------
    >>> import numpy as np
    >>> H = np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> W = np.array([[1.0, 2.0]])
    >>> round(gap(W @ H, H, W, NonNegative(0.0, 0.0)).value, 12)
    0.0
    """
    G, B = H @ H.T, data.dot(X, H.T)
    v, sums = W @ G - B, gamma(sum(H.shape) + W.size + 32)
    size, a = np.diag(G), penalty.l1
    if np.any(H.any(axis=1) & (size < LEAST)):
        return Number(0.0, np.inf)  # squares that float64 does not hold
    error, moved, used = sums * (W @ G + B + a) + TINY, 0.0, size > 0
    if penalty.l2 == 0:  # a component of zeros asks for nothing
        c = np.where(used, 1.0 / np.sqrt(np.where(used, size, 1.0)), 0.0)
        slope = np.where(used, G @ c, np.inf) * (1 - sums)
        t = np.maximum((error * used - v - a) / slope, 0.0).max(axis=1, initial=0.0)
        t *= 1 + 8 * sums
        moved = 0.5 * float(np.sum(t**2) * (c @ G @ c))
        v, error = v + np.outer(t, G @ c), error + 2 * sums * np.outer(t, G @ c)
    found = row_of(penalty).excess(penalty, W, v, error)
    rounding = found.bound - found.value + 2 * sums * moved + 8 * W.size * TINY
    return Number(found.value + moved, rounding)


def _gap_claim(
    name: str, factor: str, found: Number, whole: float, stated: Statement
) -> Claim:
    found = Number(found.value / whole, found.rounding / whole)
    text = f"the best {factor} for the other factor"
    asked = f"of ½‖X‖² (asked for {stated.tol:.0e})"
    return bd.proved(
        *(name, found, stated.tol, f"{text} gains at most {found.most:.1e} {asked}"),
        missed=f"{text} may gain {found.most:.2g} {asked}",
        fix=stated.fix,
        objective=OBJECTIVE,
        theorem="weak duality: P − min P ≤ P − D for every feasible dual point",
        assumptions=(GLOBAL,),
    )
