"""What is measured where no bound exists: gradients and curvature of linear models.

Likelihoods without a penalty, and losses that are not convex. These numbers promise
nothing: they say how small the gradient is beside its natural size, what one more
Newton step would gain, and whether the Hessian is positive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus import terms as t
from certus.certificate import Claim
from certus.verify.deciding import measured
from certus.verify.kernel import losses, penalties
from certus.verify.kernel.gap import Problem, columns, means, norm
from certus.verify.kernel.reading import Array
from certus.verify.kernel.spaces import UNIT
from certus.verify.stated_linear import Statement


def scores(p: Problem) -> Array:
    """The scores z = Xw + b."""
    z = p.space.look(columns(p.w), p.b, None).z
    return z if p.w.ndim == 2 else z[:, 0]


def _level(p: Problem) -> float:
    return float(getattr(p.penalty, "alpha", 0.0))


def gradient_claim(p: Problem, stated: Statement, objective: str) -> Claim:
    """The gradient's share of its natural size, Σ of |xⱼ|·|u| in the mean square."""
    row, level, flat = losses.row_of(p.loss), _level(p), p.w.ndim == 1

    def slopes(rows: slice, z: Array) -> Array:
        return columns(row.slope(p.loss, p.y[rows], z[:, 0] if flat else z))

    seen = p.space.look(columns(p.w), p.b, slopes)
    size_u, mean_u = norm(p, seen.B), means(p, seen.B)
    # With columns shifted by c, Xᵀ(su) has c·mean u more.
    whole = seen.V.copy()
    whole[p.space.full] += np.multiply.outer(p.space.shift, mean_u)
    reach = float(np.linalg.norm(p.space.norms) + np.linalg.norm(p.space.shift))
    size = reach * size_u + level * float(np.linalg.norm(p.w))
    slope = float(np.linalg.norm(whole + level * columns(p.w)))
    value = slope / size if size > 0 else 0.0
    if p.free and size_u > 0:
        value = max(value, float(np.abs(mean_u).max()) / size_u)
    noise = 64 * UNIT * (norm(p, p.y.astype(float)) + norm(p, seen.z))
    if size_u <= noise and level == 0.0 and flat:
        value = 0.0  # the residuals are rounding
    detail = f"gradient is {value:.1e} of its natural size (asked for {stated.tol:.0e})"
    theorem = "a convex function is minimal where its gradient vanishes"
    if isinstance(p.loss, t.Tukey):
        far = np.abs(p.y - seen.z[:, 0]) >= p.loss.delta
        detail += f"; {int(far.sum()):,} of {len(far):,} rows have no influence"
        theorem = "at a local minimum the gradient vanishes; the loss is not convex"
    words = {"objective": f"gradient of  {objective}", "theorem": theorem}
    words["fix"] = "" if value <= stated.tol else stated.fix
    return measured("stationarity", value, detail, target=stated.tol, **words)


def _dense(p: Problem) -> Array:
    """X with a column of ones where the intercept is free."""
    X = p.space.given
    A = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    return np.hstack([A, np.ones((len(A), 1))]) if p.free else A


def _hessian(p: Problem, A: Array) -> tuple[Array, Array]:
    """Of the mean loss, in the columns of A for each class; and the gradient."""
    row, z = losses.row_of(p.loss), scores(p)
    share = (p.space.s / p.space.total)[:, None]
    u = columns(row.slope(p.loss, p.y, z))
    curve = row.curvature(p.loss, p.y, z).reshape(-1, u.shape[1], u.shape[1])
    H = np.einsum("iab,ij,il->ajbl", curve, A * share, A, optimize=True)
    size = u.shape[1] * A.shape[1]
    return H.reshape(size, size), (u.T @ (A * share)).ravel()


def decrement_claim(p: Problem) -> Claim:
    """½ gᵀH⁻¹g: what the quadratic model says is left to gain."""
    hessian, gradient = _hessian(p, _dense(p))
    step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
    left = float(gradient @ step / 2)
    detail = f"one more Newton step would gain {left:.1e}"
    return measured("newton_decrement", left, detail, objective="½ gᵀH⁻¹g")


def curvature_claim(p: Problem) -> Claim:
    """Smallest eigenvalue of the Hessian, columns in units of their own size."""
    A, d = _dense(p), p.space.width
    size = np.sqrt(p.space.s / p.space.total @ np.square(A))
    scale = np.where(size > 0, size, 1.0)
    H = _hessian(p, A / scale)[0]
    H[range(d), range(d)] += _level(p) / np.square(scale[:d])
    least = float(np.linalg.eigvalsh(H)[0])
    word = "a strict local minimum" if least > 0 else "not shown to be a local minimum"
    detail = f"smallest curvature {least:.2g} (columns scaled): {word}"
    what = "smallest eigenvalue of the Hessian"
    return measured("curvature", least, detail, objective=what)


def levels_of(penalty: Any) -> tuple[float, float] | None:
    """(l1, l2) of a penalty l1·‖w‖₁ + ½·l2·‖w‖², for choices that need them."""
    row = penalties.row_of(penalty)
    if not row.by_coordinate or row.cone is not None or hasattr(penalty, "alphas"):
        return None
    l1 = getattr(penalty, "l1", penalty.alpha if isinstance(penalty, t.L1) else 0.0)
    l2 = getattr(penalty, "l2", penalty.alpha if isinstance(penalty, t.L2) else 0.0)
    return float(l1), float(l2)
