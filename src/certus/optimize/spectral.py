"""The power method: the largest singular value of a matrix or linear map.

v ← JᵀJv/‖JᵀJv‖. The angle to the leading right singular vector shrinks by (σ₂/σ₁)² in
every step, the error of ‖Jv‖² by the square of that.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from certus.certificate import Status
from certus.optimize.loop import whole
from certus.optimize.objective import as_start
from certus.optimize.record import Bound, Known, Record, Theorem
from certus.typing import Array, RandomState


def power_method(
    J: Any,
    v0: Any = None,
    *,
    ratio: float | None = None,
    leading: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-12,
    random_state: RandomState = None,
) -> Record:
    """σ_max(J) by repeated multiplication with JᵀJ.

    Parameters
    ----------
    J : array, sparse matrix or LinearOperator of shape (n, d)
        Only ``J @ v`` and ``J.T @ u`` are used.
    v0 : array-like of shape (d,), optional
        Start; random by default. From a singular vector the method does not leave it.
    ratio : float, optional
        σ₂/σ₁, for the bound.
    leading : array-like of shape (d,), optional
        The leading right singular vector, for the bound.
    max_iter : int, default=1000
        Most steps; each costs two products.
    tol : float, default=1e-12
        Stop when the residual ‖JᵀJv − ρv‖ is at most tol·ρ, ρ = ‖Jv‖².
    random_state : int, Generator or None
        Seed or generator of all random numbers. They decide the start.

    Returns
    -------
    Record
        ``value`` is ‖Jv‖, ``values`` its estimates, ``iterates`` the vectors v, and
        ``gradient_norms`` the residuals relative to ρ. ‖Jv‖ never exceeds σ_max and
        never falls.

    Objective
    ---------
    ``max ‖Jv‖`` over ‖v‖ = 1

    Certificate
    -----------
    With ``ratio`` and ``leading``: ``tan∠(v_k, v*) ≤ (σ₂/σ₁)^{2k}·tan∠(v_0, v*)``.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import power_method
    >>> J = np.diag([3.0, 1.0])
    >>> round(power_method(J, random_state=0).value, 9)
    3.0
    """
    start, max_iter = time.perf_counter(), whole("max_iter", max_iter, 0)
    v = _first(J, v0, random_state)
    iterates, values, residuals = [], [], []
    status, reason = Status.MAX_ITER, f"max_iter of {max_iter:,} reached"
    for _ in range(max_iter + 1):
        with np.errstate(all="ignore"):  # overflow is refused
            sigma, u = _split(J @ v)
            size, ahead = _split(J.T @ u)
        if sigma == 0 and v0 is not None:
            _check_start(J)
        iterates.append(v)
        values.append(sigma)
        # ‖JᵀJv − ρv‖/ρ with JᵀJv/ρ = ahead·size/σ
        rest = float(np.linalg.norm(ahead * (size / sigma) - v)) if sigma > 0 else 0.0
        residuals.append(rest)
        if residuals[-1] <= tol:
            status, reason = Status.SOLVED, f"residual {residuals[-1]:.2g} ≤ {tol:g}"
            break
        v = ahead
    points, k = np.array(iterates), np.arange(len(values))
    bounds: tuple[Bound, ...] = ()
    refused, constants = "the rate needs ratio = σ₂/σ₁ and the leading vector", {}
    if ratio is not None and leading is not None:
        bounds, refused = (_angle_bound(points, ratio, leading),), ""
        constants = {"ratio": Known(float(ratio), "given")}
    return Record(
        method="power_method",
        x=points[-1],
        value=values[-1],
        steps=k,
        iterates=points,
        values=np.array(values),
        gradient_norms=np.array(residuals),
        step_sizes=np.ones(k.size - 1),
        status=status,
        reason=reason,
        n_iter=k.size - 1,
        evaluations=k.size,
        constants=constants,
        bounds=bounds,
        refused=refused,
        seconds=time.perf_counter() - start,
    )


def _first(J: Any, v0: Any, random_state: RandomState) -> Array:
    """The start, of length one."""
    if v0 is None:
        return _split(np.random.default_rng(random_state).normal(size=J.shape[1]))[1]
    size, v = _split(as_start(v0))
    if size == 0:
        raise ValueError(
            "v0 must not be zero, because then every product is zero. "
            "Pass another start."
        )
    return v


def _split(found: Any) -> tuple[float, Array]:
    """Length and direction; scaled first, so that no square overflows or vanishes."""
    v = np.asarray(found).ravel()
    if np.iscomplexobj(v) or not np.isfinite(v).all():
        raise ValueError(
            "J must hold finite real numbers, but contains complex "
            "numbers, NaN or infinity."
        )
    top = float(np.abs(v).max(initial=0.0))
    if top == 0:
        return 0.0, v
    size = float(np.linalg.norm(v / top))
    return top * size, v / top / size


def _check_start(J: Any) -> None:
    """A start with Jv = 0 says nothing unless J itself is zero."""
    probe = np.random.default_rng(0).normal(size=J.shape[1])
    if np.any(np.asarray(J @ probe)):
        raise ValueError("J @ v0 is zero although J is not. Pass another v0.")


def _angle_bound(points: Any, ratio: float, leading: Any) -> Bound:
    if not 0 <= ratio < 1:
        raise ValueError(f"ratio must lie in [0, 1), got {ratio!r}.")
    top = as_start(leading)
    top = top / np.linalg.norm(top)
    along = points @ top
    across = np.linalg.norm(points - np.outer(along, top), axis=1)
    tangent = across / np.maximum(np.abs(along), np.finfo(float).tiny)
    k = np.arange(len(points))
    return Bound(
        Theorem(
            "exact",
            "tan∠(v_k, v*) ≤ (σ₂/σ₁)^{2k}·tan∠(v_0, v*)",
            (f"σ₂/σ₁ = {ratio:.4g} (given)",),
        ),
        "tan∠(v_k, v*)",
        k,
        tangent,
        ratio ** (2.0 * k) * tangent[0],
        # The vector given is itself rounded, and its error grows as the gap closes.
        1e3 * np.finfo(float).eps / (1 - ratio**2),
    )
