"""The constants L and m: as given, or estimated from the curvature at a point.

An estimate looks at one point; the theorems want a constant for the whole space. So an
estimate is labelled as one, and it is checked along the path of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from certus.optimize.loop import CurvaturePath
from certus.optimize.objective import Objective, as_objective, as_start
from certus.optimize.record import Known
from certus.typing import Array

#: Up to this many variables the Hessian is formed column by column.
SMALL = 60


def estimate_constants(f: Any, x: Any) -> tuple[float, float]:
    """Curvature at ``x``: the largest in absolute value, and the smallest.

    Parameters
    ----------
    f : callable or Objective
        Value and gradient; a ``hessian`` is used if it has one.
    x : array-like of shape (d,)
        Where to look.

    Returns
    -------
    L, m : float
        Estimates of the smoothness and strong-convexity constants. On a quadratic they
        are exact up to differencing; elsewhere they describe ``x`` only.

    Notes
    -----
    Differences of gradients: 2d evaluations for d ≤ 60, Lanczos iterations beyond.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import estimate_constants
    >>> f = lambda x: (x[0] ** 2 + 4 * x[1] ** 2, x * [2, 8])
    >>> L, m = estimate_constants(f, [1.0, 1.0])
    >>> round(L, 6), round(m, 6)
    (8.0, 2.0)
    """
    objective, x = as_objective(f), as_start(x)
    return _curvature(objective, x, need_smallest=True)


def _curvature(
    objective: Objective, x: Array, need_smallest: bool
) -> tuple[float, float]:
    if not np.isfinite(objective.evaluate(x)[1]).all():
        raise ValueError("f or its gradient is not finite at x0. Start elsewhere.")
    d = x.size
    if objective.hessian is not None:
        return _extremes(hessian_at(objective.hessian, x))
    h = np.finfo(float).eps ** (1 / 3) * (1 + float(np.abs(x).max()))

    def product(v: Array) -> Array:
        v = np.asarray(v).ravel()
        size = float(np.linalg.norm(v))
        if size == 0:
            return np.zeros(d)
        along = (h / size) * v
        ahead = objective.evaluate(x + along)[1]
        behind = objective.evaluate(x - along)[1]
        return (ahead - behind) * (size / (2 * h))

    if d <= SMALL:
        H = np.array([product(column) for column in np.eye(d)])
        return _extremes((H + H.T) / 2)
    operator = LinearOperator((d, d), matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).normal(size=d)
    if not np.any(product(start)):
        return 0.0, 0.0
    largest = abs(_lanczos(operator, "LM", start))
    if not need_smallest:
        return largest, 0.0
    return largest, _lanczos(operator, "SA", start)


def hessian_at(hessian: Callable[[Array], Any], x: Array) -> Array:
    """The Hessian at ``x``, symmetric; an error says what is wrong with it."""
    H = np.asarray(hessian(x), dtype=np.float64)
    if H.shape != (x.size, x.size):
        raise ValueError(
            f"hessian must return shape ({x.size}, {x.size}), got {H.shape}."
        )
    return (H + H.T) / 2


def _lanczos(operator: LinearOperator, which: str, start: Array) -> float:
    """One extreme eigenvalue; NaN where it does not settle."""
    try:
        found = eigsh(
            operator, k=1, which=which, v0=start, tol=1e-4, return_eigenvectors=False
        )
    except ArpackNoConvergence as error:
        found = error.eigenvalues
    return float(found[0]) if len(found) else float("nan")


def _extremes(H: Array) -> tuple[float, float]:
    """Largest absolute and smallest eigenvalue; NaN where differences overflow."""
    if not np.isfinite(H).all():
        return float("nan"), float("nan")
    eigenvalues = np.linalg.eigvalsh(H)
    return float(np.abs(eigenvalues).max()), float(eigenvalues.min())


def find_constants(
    objective: Objective, x0: Array, need_L: bool = True
) -> dict[str, Known]:
    """L and m with their source; L is estimated where a method needs it."""
    known: dict[str, Known] = {}
    wanted = {
        "L": objective.L == "estimate" or (need_L and objective.L is None),
        "m": objective.m == "estimate",
    }
    estimates: dict[str, float] = {}
    if any(wanted.values()):
        L, m = _curvature(objective, x0, wanted["m"])
        estimates = {"L": L, "m": max(m, 0.0)}
    for name in ("L", "m"):
        given = getattr(objective, name)
        if wanted[name]:
            if np.isfinite(estimates[name]):
                known[name] = Known(estimates[name], "estimated")
        elif given is not None and not isinstance(given, str):
            known[name] = Known(float(given), "given")
    for name in ("pl", "hessian_lipschitz", "L_terms"):
        given = getattr(objective, name)
        if given is not None:
            known[name] = Known(float(given), "given")
    return known


def smoothness(constants: dict[str, Known]) -> float:
    """L for a default step, or an error that says what to give."""
    L = constants["L"].value if "L" in constants else float("nan")
    if not (np.isfinite(L) and L > 0):
        raise ValueError(
            f"the curvature at x0 is {L:g}, so no step size follows from it. Pass "
            "step=, or Objective(f, L=...)."
        )
    return L


def contradictions(
    path: CurvaturePath, constants: dict[str, Known], objective: Objective
) -> tuple[str, ...]:
    """Stated facts about f that the path of a run contradicts."""
    found = []
    L, m = constants.get("L"), constants.get("m")
    if L is not None and path.steepest > L.value * (1 + 1e-6):
        found.append(
            f"L = {L.value:.4g} ({L.source}) is too small: between two iterates the "
            f"curvature is {path.steepest:.4g}"
        )
    if m is not None and path.flattest < m.value * (1 - 1e-6):
        found.append(
            f"m = {m.value:.4g} ({m.source}) is too large: between two iterates the "
            f"curvature is {path.flattest:.4g}"
        )
    if objective.is_convex and path.below > 1e-9:
        found.append("f is not convex: an iterate lies below the tangent at another")
    if objective.quadratic and path.bent > 1e-9:
        found.append("f is not quadratic: its gradient does not change linearly")
    return tuple(found)


def slope_is_false(objective: Objective, x: Array) -> bool:
    """Whether values of f around ``x`` contradict the gradient there.

    The slope along the gradient is g·g; differences at two widths tell how far the
    curvature of f can bend what they show.
    """
    value, g = objective.evaluate(x)
    size = float(np.linalg.norm(g))
    if not size > 0:
        return False
    unit = g / size

    def slope(h: float) -> float:
        ahead, behind = (
            objective.evaluate(x + h * unit),
            objective.evaluate(x - h * unit),
        )
        return (ahead[0] - behind[0]) / (2 * h)

    h = 1e-5 * (1 + float(np.abs(x).max()))
    wide, narrow = slope(h), slope(h / 2)
    rounding = 1e3 * np.finfo(float).eps * abs(value) / h
    granted = 1e-3 * size + 4 * abs(wide - narrow) + rounding
    return bool(abs(narrow - size) > granted)
